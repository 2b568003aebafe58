// What the attention kernels share: arguments, tiles in shared memory, tensor-core products, dropout of score tiles.
// The text is put between prelude.cuh and attention.cu or attention_backward.cu.
//
// Macros: HEAD (width K of a head, 1 to 128), CAUSAL (0, 1), DROPOUT (0, 1), WEIGHTS (0 none, 1 per sentence, 2 per
// query row), LONG (0, 1) and the prelude's BF16.
//
// A block works on one head of one sentence, a warp on 16 rows of it. Most sentences are short: blocks are small, so
// that many of them share a multiprocessor. LONG is for batches of long ones: blocks are larger, so that each tile they
// load serves more rows, load a tile while they work on another, and keep fragments of their own rows in registers.
// Products are those of mma.m16n8k16. With BF16 = 0 the same kernels run in
// float: a fragment holds floats in the places of the bfloat16 values, and mma is emulated by shuffles. What differs is
// in pair_of, shuffle_xor, load_four, mma, load_tile, store_run and power.

constexpr int TILE = 32;                      // rows that a block loads at a time
constexpr int ROWS = LONG ? 64 : TILE;        // rows of one sentence that a block works on
constexpr int STAGES = LONG ? 2 : 1;          // tiles of the other side in shared memory
constexpr int THREADS = ROWS / 16 * 32;
constexpr int WIDTH = (HEAD + 15) / 16 * 16;  // columns of a tile, zeros from HEAD on
constexpr int PITCH = WIDTH + 8;              // an odd number of 16-byte units: eight rows lie in different banks
constexpr int RUNS = (HEAD + 7) / 8;

// Blocks of TILE rows that share a multiprocessor at least, for heads of up to 64 columns and wider ones: a limit for
// registers.
#define BLOCKS(narrow, wide) (!BF16 ? 1 : (HEAD <= 64 ? (narrow) : (wide)) * TILE / ROWS)

__device__ constexpr double square_root(double x) {
    double root = x;
    for (int i = 0; i < 32; i++) root = 0.5 * (root + x / root);
    return root;
}

// ---- arguments -------------------------------------------------------------------------------------------------

struct Attend {
    const act *q, *k, *v;      // packed rows, q_stride or kv_stride apart; head j has the columns j·HEAD ..
    const float* weights;      // w: [sentences, heads] or [queries.rows, heads]; null without WEIGHTS
    act* out;                  // [queries.rows, heads·HEAD]
    float* log_sums;           // [queries.rows, heads]: log Σ exp(scores), for the backward pass
    const uint2* query_tiles;  // {sentence or NO_SENTENCE, first query within the sentence: 0, TILE, ..}
    Segments queries, keys;
    Dropout dropout;
    u32 heads, q_stride, kv_stride;
    u32 every_head;  // 1: heads of weight 0 are computed too (their log-sums), as the gradient of the weights needs
};

// Gradients lie as their inputs do: d_q as q, d_k and d_v as k and v. All of them are written, not added to.
struct AttendBackward {
    Attend forward;  // `every_head` is not used
    const act* d_out;
    act *d_q, *d_k, *d_v;
    float* d_weights;        // as weights; null where not wanted
    float* delta;            // [queries.rows, heads]: scratch of the general path
    const uint2* key_tiles;  // as query_tiles, for keys
};

// One head of one sentence: its first packed rows and how many there are.
struct Head {
    u32 sentence, head, query, queries, key, keys;
};

__device__ __forceinline__ Head head_of(const Attend& a, u32 sentence, u32 head) {
    if (sentence == NO_SENTENCE) return {sentence};
    const u32 *q = a.queries.starts + sentence, *k = a.keys.starts + sentence;
    return {sentence, head, q[0], q[1] - q[0], k[0], k[1] - k[0]};
}

__device__ __forceinline__ u32 end_of(const Segments& s) {
    return s.starts[s.sentences];
}

// The columns of a head, from packed row `row` on.
template <typename T>
__device__ __forceinline__ T* head_rows(T* matrix, u32 stride, u32 row, u32 head) {
    return matrix + (u64)row * stride + head * HEAD;
}

// The place of query `i` of the sentence in log_sums, delta and per-row weights; also its row of dropout numbers.
__device__ __forceinline__ u32 place_of(const Attend& a, const Head& h, u32 i) {
    return (h.query + i) * a.heads + h.head;
}

__device__ __forceinline__ float weight_of(const Attend& a, const Head& h, u32 i) {
#if WEIGHTS == 0
    return 1.0f;
#elif WEIGHTS == 1
    return a.weights[h.sentence * a.heads + h.head];
#else
    return a.weights[place_of(a, h, i)];
#endif
}

// Whether one of `rows` queries from `first` on has a weight other than 0. Every warp looks at all of them.
__device__ __forceinline__ bool any_weight(const Attend& a, const Head& h, u32 first, u32 rows) {
    if (WEIGHTS != 2) return weight_of(a, h, first) != 0.0f;
    bool any = false;
    for (u32 i = threadIdx.x % 32; i < rows; i += 32) any |= weight_of(a, h, first + i) != 0.0f;
    return __any_sync(FULL_WARP, any);
}

// Whether one of them has a weight of 0.
__device__ __forceinline__ bool some_without(const Attend& a, const Head& h, u32 first, u32 rows) {
    if (WEIGHTS != 2) return weight_of(a, h, first) == 0.0f;
    bool some = false;
    for (u32 i = threadIdx.x % 32; i < rows; i += 32) some |= weight_of(a, h, first + i) == 0.0f;
    return __any_sync(FULL_WARP, some);
}

// The place in the list of tiles of this block. Of a long sentence the last queries see most keys: they come first.
__device__ __forceinline__ u32 ordered_tile() {
    return LONG && CAUSAL ? gridDim.y - 1 - blockIdx.y : blockIdx.y;
}

// How many keys query `i` sees.
__device__ __forceinline__ u32 visible_keys(const Head& h, u32 i) {
    return CAUSAL ? min(h.keys, i + 1) : h.keys;
}

// ---- fragments -------------------------------------------------------------------------------------------------

// Two neighbouring values. A lane of a warp holds, with row g = lane / 4 and column c = 2·(lane % 4), of
//   C (16×8 floats)  {(g, c), (g, c + 1), (g + 8, c), (g + 8, c + 1)},
//   A (16×16 pairs)  {(g, c), (g + 8, c), (g, c + 8), (g + 8, c + 8)}, the pair along the columns,
//   B (16×8 pairs)   {(c, g), (c + 8, g)}, the pair along the rows.
// So C of two neighbouring products is A of the next one.
#if BF16
typedef u32 Pair;

__device__ __forceinline__ Pair pair_of(float low, float high) {
    return as_pair(low, high);
}

__device__ __forceinline__ Pair shuffle_xor(Pair v, int mask) {
    return __shfl_xor_sync(FULL_WARP, v, mask);
}
#else
typedef float2 Pair;

__device__ __forceinline__ Pair pair_of(float low, float high) {
    return make_float2(low, high);
}

__device__ __forceinline__ Pair shuffle_xor(Pair v, int mask) {
    return make_float2(__shfl_xor_sync(FULL_WARP, v.x, mask), __shfl_xor_sync(FULL_WARP, v.y, mask));
}
#endif

struct FragmentA {
    Pair r[4];
};

// By a shuffle, so that the compiler knows it to be the same in all lanes.
__device__ __forceinline__ u32 warp_index() {
    return __shfl_sync(FULL_WARP, threadIdx.x / 32, 0);
}

__device__ __forceinline__ int lane_row() {
    return threadIdx.x % 32 / 4;
}

__device__ __forceinline__ int lane_column() {
    return threadIdx.x % 4 * 2;
}

__device__ __forceinline__ FragmentA as_fragment(const float c[2][4]) {
    return {{pair_of(c[0][0], c[0][1]), pair_of(c[0][2], c[0][3]),  //
             pair_of(c[1][0], c[1][1]), pair_of(c[1][2], c[1][3])}};
}

// The four 8×8 matrices of 16 rows of a tile, columns `at ..`: matrix 1 is below matrix 0 (DOWN) or right of it. A lane
// gets of each the pair (g, c), (g, c + 1), or of its transpose: (c, g), (c + 1, g).
template <bool DOWN, bool TRANSPOSED, int TILE_PITCH>
__device__ __forceinline__ void load_four(Pair r[4], const act* rows, int at) {
    auto corner = [&](int i) { return rows + (DOWN ? i % 2 : i / 2) * 8 * TILE_PITCH + (DOWN ? i / 2 : i % 2) * 8; };
#if BF16
    // Lane l gives the address of row l % 8 of matrix l / 8.
    const int lane = threadIdx.x % 32;
    const u32 from = (u32)__cvta_generic_to_shared(corner(lane / 8) + lane % 8 * TILE_PITCH) + at * sizeof(act);
    if constexpr (TRANSPOSED)
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                     : "r"(from)
                     : "memory");
    else
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                     : "r"(from)
                     : "memory");
#else
    const int g = lane_row(), c = lane_column();
    for (int i = 0; i < 4; i++) {
        const float* m = corner(i) + at;
        r[i] = TRANSPOSED ? make_float2(m[c * TILE_PITCH + g], m[(c + 1) * TILE_PITCH + g])
                          : make_float2(m[g * TILE_PITCH + c], m[g * TILE_PITCH + c + 1]);
    }
#endif
}

// c += a·b.
__device__ __forceinline__ void mma(float c[4], const FragmentA& a, Pair b0, Pair b1) {
#if BF16
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a.r[0]), "r"(a.r[1]), "r"(a.r[2]), "r"(a.r[3]), "r"(b0), "r"(b1));
#else
    // Row g of A is with the lanes 4·g .., column n of B with the lanes 4·n ..
    const int row = 4 * lane_row(), column = 4 * lane_column();
#pragma unroll 1
    for (int lane = 0; lane < 4; lane++)
#pragma unroll
        for (int k = 0; k < 4; k++) {
            auto get = [&](Pair p, int from) { return __shfl_sync(FULL_WARP, k % 2 ? p.y : p.x, from + lane); };
            const Pair b = k < 2 ? b0 : b1;
            const float top = get(a.r[k / 2 * 2], row), bottom = get(a.r[k / 2 * 2 + 1], row);
            const float left = get(b, column), right = get(b, column + 4);
            c[0] = fmaf(top, left, c[0]), c[1] = fmaf(top, right, c[1]);
            c[2] = fmaf(bottom, left, c[2]), c[3] = fmaf(bottom, right, c[3]);
        }
#endif
}

// ---- products --------------------------------------------------------------------------------------------------

// The 16 rows of a tile that a warp owns, as fragments A: in registers, or loaded each time they are used.
template <bool REGISTERS>
struct OwnRows {
    const act* rows;
    FragmentA a[REGISTERS ? WIDTH / 16 : 1];

    __device__ __forceinline__ OwnRows(const act* rows) : rows(rows) {}

    // To be called once the tile is there.
    __device__ __forceinline__ void take() {
        if constexpr (REGISTERS) {
#pragma unroll
            for (int k = 0; k < WIDTH; k += 16) load_four<true, false, PITCH>(a[k / 16].r, rows, k);
        }
    }

    __device__ __forceinline__ FragmentA at(int k) const {
        if constexpr (REGISTERS) return a[k / 16];
        FragmentA loaded;
        load_four<true, false, PITCH>(loaded.r, rows, k);
        return loaded;
    }
};

// c += columns k .. k + 16 of A·Bᵀ, of a warp's own rows and 16 rows of another tile: 16 × 16 scores.
template <typename Own>
__device__ __forceinline__ void add_columns(float c[2][4], const Own& own, const act* b_rows, int k) {
    const FragmentA a = own.at(k);
    Pair b[4];  // B of two products
    load_four<false, false, PITCH>(b, b_rows, k);
    mma(c[0], a, b[0], b[1]);
    mma(c[1], a, b[2], b[3]);
}

// c = A·Bᵀ.
template <typename Own>
__device__ __forceinline__ void product_of_rows(float c[2][4], const Own& own, const act* b_rows) {
#pragma unroll
    for (int i = 0; i < 8; i++) c[i / 4][i % 4] = 0.0f;
#pragma unroll
    for (int k = 0; k < WIDTH; k += 16) add_columns(c, own, b_rows, k);
}

// A warp's sum of 16 rows of WIDTH columns.
struct Sum {
    float c[WIDTH / 8][4];
};

// sum += A·B, B being 16 rows of a tile.
__device__ __forceinline__ void add_product(Sum& sum, const FragmentA& a, const act* b_rows) {
#pragma unroll
    for (int n = 0; n < WIDTH; n += 16) {
        Pair b[4];
        load_four<true, true, PITCH>(b, b_rows, n);
        mma(sum.c[n / 8], a, b[0], b[1]);
        mma(sum.c[n / 8 + 1], a, b[2], b[3]);
    }
}

// ---- tiles and global memory -----------------------------------------------------------------------------------

#if BF16
// Starts to copy 16 bytes, of which those from `size` on become zeros.
__device__ __forceinline__ void copy_unit(act* to, const act* from, u32 size) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                 :
                 : "r"((u32)__cvta_generic_to_shared(to)), "l"(from), "r"(size)
                 : "memory");
}
#endif

// Starts to copy `count` rows of a head into a tile; rows are filled with zeros up to a multiple of 16.
__device__ __forceinline__ void load_tile(act* tile, const act* rows, u32 stride, u32 count) {
#if BF16 && LONG
    // Most tiles are whole, and a thread's units of them lie in one column.
    constexpr int UNITS = WIDTH / 8, STEP = THREADS / UNITS;
    if (HEAD == WIDTH && STEP * UNITS == THREADS && TILE % STEP == 0 && count == TILE) {
        const u32 row = threadIdx.x / UNITS, at = threadIdx.x % UNITS * 8;
        const act* from = rows + (u64)row * stride + at;
#pragma unroll
        for (int i = 0; i < TILE; i += STEP, from += (u64)STEP * stride) copy_unit(tile + (row + i) * PITCH + at, from, 16);
        return;
    }
#endif
    const u32 units = (count + 15) / 16 * 16 * (WIDTH / 8);
    for (u32 i = threadIdx.x; i < units; i += blockDim.x) {
        const u32 row = i / (WIDTH / 8), at = i % (WIDTH / 8) * 8;
        const bool inside = row < count && at < HEAD;
#if BF16
        if constexpr (HEAD % 8 == 0) {
            copy_unit(tile + row * PITCH + at, inside ? rows + (u64)row * stride + at : rows, inside ? 16 : 0);
            continue;
        }
#endif
        float v[8] = {};
        if (inside) load8(rows + (u64)row * stride, at, HEAD, v);
        store8(tile + row * PITCH, at, PITCH, v);
    }
}

// Starts to load `count` keys and values of a sentence from key `from` on.
__device__ __forceinline__ void load_keys(act* k, act* v, const Attend& a, const Head& h, u32 from, u32 count) {
    load_tile(k, head_rows(a.k, a.kv_stride, h.key + from, h.head), a.kv_stride, count);
    load_tile(v, head_rows(a.v, a.kv_stride, h.key + from, h.head), a.kv_stride, count);
}

// Waits until the tiles that any thread of the block has started to load are there.
__device__ __forceinline__ void tiles_ready() {
#if BF16
    asm volatile("cp.async.wait_all;" ::: "memory");
#endif
    __syncthreads();
}

// Closes the group of the copies that a thread has started since the last.
__device__ __forceinline__ void end_group() {
#if BF16
    asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}

// Waits for all groups of the block but each thread's newest.
__device__ __forceinline__ void older_groups_ready() {
#if BF16
    asm volatile("cp.async.wait_group 1;" ::: "memory");
#endif
    __syncthreads();
}

// Works on the tiles `begin`, `begin` + TILE, .. below `end` of the other side, of which `load(stage, from)` starts to
// load one, `store(stage)` puts into shared memory what came by registers, and `work(stage, from)` uses it. The caller has
// done the first two for stage 0. A block for long sentences loads the next while it works.
template <typename Load, typename Store, typename Work>
__device__ __forceinline__ void over_tiles(u32 begin, u32 end, Load load, Store store, Work work) {
#if LONG
    int stage = 0;
    end_group();
    for (u32 from = begin; from < end; from += TILE) {
        const bool more = from + TILE < end;
        if (more) load(stage ^ 1, from + TILE);
        end_group();
        older_groups_ready();
        work(stage, from);
        if (more) store(stage ^ 1);
        __syncthreads();
        stage ^= 1;
    }
#else
    for (u32 from = begin; from < end; from += TILE) {
        if (from > begin) {
            __syncthreads();
            load(0, from);
            store(0);
        }
        tiles_ready();
        work(0, from);
    }
#endif
}

// The eight columns of a head from `at` on, those below HEAD. (A plain 16-byte store is at times taken apart.)
__device__ __forceinline__ void store_run(act* row, u32 at, const Pair w[4]) {
    if constexpr (HEAD % 8 == 0) {
#if BF16
        asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};"
                     :
                     : "l"(row + at), "r"(w[0]), "r"(w[1]), "r"(w[2]), "r"(w[3])
                     : "memory");
#else
        ((float4*)(row + at))[0] = make_float4(w[0].x, w[0].y, w[1].x, w[1].y);
        ((float4*)(row + at))[1] = make_float4(w[2].x, w[2].y, w[3].x, w[3].y);
#endif
    } else {
#pragma unroll
        for (int i = 0; i < 8; i++)
            if (at + i < HEAD) row[at + i] = ((const act*)&w[i / 2])[i % 2];
    }
}

// Lane i of each quad gets word i of its four lanes.
__device__ __forceinline__ void transpose_quad(Pair w[4]) {
    const bool odd = threadIdx.x & 1, high = threadIdx.x & 2;
#pragma unroll
    for (int i = 0; i < 4; i += 2) {
        const Pair other = shuffle_xor(odd ? w[i] : w[i + 1], 1);
        (odd ? w[i] : w[i + 1]) = other;
    }
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const Pair other = shuffle_xor(high ? w[i] : w[i + 2], 2);
        (high ? w[i] : w[i + 2]) = other;
    }
}

// Writes a warp's 16 rows, those below `count`, eight columns at a time.
__device__ __forceinline__ void store_rows(act* rows, u32 stride, u32 count, const Sum& sum) {
    const u32 row = lane_row() + threadIdx.x % 4 / 2 * 8;
#pragma unroll
    for (int n = 0; n < WIDTH; n += 16) {
        const float *left = sum.c[n / 8], *right = sum.c[n / 8 + 1];
        Pair w[4] = {pair_of(left[0], left[1]), pair_of(right[0], right[1]), pair_of(left[2], left[3]),
                     pair_of(right[2], right[3])};
        transpose_quad(w);
        const u32 at = n + threadIdx.x % 2 * 8;
        if (row < count && at < HEAD) store_run(rows + (u64)row * stride, at, w);
    }
}

// Zeros to the rows from `end` on, which belong to no sentence, in the columns of head blockIdx.x: the blocks of a head
// share them.
__device__ __forceinline__ void zero_tail(act* matrix, u32 stride, u32 end, u32 rows) {
    const Pair zeros[4] = {};
    for (u32 i = blockIdx.y * blockDim.x + threadIdx.x; i < (rows - end) * RUNS; i += gridDim.y * blockDim.x)
        store_run(head_rows(matrix, stride, end + i / RUNS, blockIdx.x), i % RUNS * 8, zeros);
}

// The same for a matrix like log_sums.
__device__ __forceinline__ void zero_tail_places(float* matrix, u32 end, u32 rows) {
    for (u32 i = end + blockIdx.y * blockDim.x + threadIdx.x; i < rows; i += gridDim.y * blockDim.x)
        matrix[i * gridDim.x + blockIdx.x] = 0.0f;
}

// Zeros to `count` rows of a head.
__device__ __forceinline__ void zero_rows(act* rows, u32 stride, u32 count) {
    const Pair zeros[4] = {};
    for (u32 i = threadIdx.x; i < count * RUNS; i += blockDim.x)
        store_run(rows + (u64)(i / RUNS) * stride, i % RUNS * 8, zeros);
}

// Zeros to the queries `first ..` of a matrix like log_sums.
__device__ __forceinline__ void zero_places(float* matrix, const Attend& a, const Head& h, u32 first, u32 count) {
    for (u32 i = threadIdx.x; i < count; i += blockDim.x) matrix[place_of(a, h, first + i)] = 0.0f;
}

// ---- softmax and dropout ---------------------------------------------------------------------------------------

// Scores are kept in units of the logarithm that the exponential is fast in.
#if BF16
constexpr float UNIT = 1.44269504f;
__device__ __forceinline__ float power(float x) {
    float out;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(out) : "f"(x));
    return out;
}
__device__ __forceinline__ float logarithm(float x) {
    return __log2f(x);
}
#else
constexpr float UNIT = 1.0f;
__device__ __forceinline__ float power(float x) {
    return expf(x);
}
__device__ __forceinline__ float logarithm(float x) {
    return logf(x);
}
#endif
constexpr float SCALE = (float)(1.0 / square_root(HEAD));
constexpr float SCORE_SCALE = SCALE * UNIT;
#define INFINITE __int_as_float(0x7f800000)

__device__ __forceinline__ float quad_sum(float v) {
    v += __shfl_xor_sync(FULL_WARP, v, 1);
    return v + __shfl_xor_sync(FULL_WARP, v, 2);
}

__device__ __forceinline__ float quad_max(float v) {
    v = fmaxf(v, __shfl_xor_sync(FULL_WARP, v, 1));
    return fmaxf(v, __shfl_xor_sync(FULL_WARP, v, 2));
}

// Dropout of the probabilities: row = place of the query, column = key within the sentence. A Philox block serves one
// query and eight keys; a warp needs 32 blocks for 16 queries and 16 keys, each lane makes one and shares its bits.
struct Drops {
    u32 key0, key1, stream, step, limit;
    float scale;

    __device__ __forceinline__ Drops(const Dropout& d) {
        key0 = d.stream.key0, key1 = d.stream.key1, stream = d.stream.stream;
        step = DROPOUT ? *d.stream.step : 0;
        limit = d.threshold << 16;
        scale = DROPOUT ? d.scale : 1.0f;
    }

    // One bit per key: whether it is kept.
    __device__ __forceinline__ u32 kept8(u32 place, u32 run) const {
        u32 first = key0, second = key1;
#if BF16
        asm volatile("" : "+r"(first), "+r"(second));  // else twenty round keys are kept in registers
#endif
        const uint4 block = philox(make_uint4(run, place, stream, step), first, second);
        const u32 words[4] = {block.x, block.y, block.z, block.w};
        u32 bits = 0;
#pragma unroll
        for (int i = 0; i < 4; i++) {
            bits |= (words[i] << 16 >= limit ? 1u : 0u) << 2 * i;
            bits |= (words[i] >= limit ? 1u : 0u) << (2 * i + 1);
        }
        return bits;
    }

    // Bits for 16 queries (rows of C, `heads` places apart) × 16 keys from 8·run on; see `kept`.
    __device__ __forceinline__ u32 of_rows(u32 first_place, u32 heads, u32 run) const {
        const u32 t = threadIdx.x % 4;
        u32 bits = kept8(first_place + (lane_row() + t % 2 * 8) * heads, run + t / 2) << 8 * t;
        bits |= __shfl_xor_sync(FULL_WARP, bits, 1);
        bits |= __shfl_xor_sync(FULL_WARP, bits, 2);
        return bits >> lane_column();
    }

    // Whether value e of C number `tile` is kept.
    static __device__ __forceinline__ bool kept(u32 bits, int tile, int e) {
        return bits >> (16 * tile + e / 2 * 8 + e % 2) & 1;
    }

    // The same for 16 keys (rows of C) × 16 queries, one word per C; see `kept_transposed`.
    __device__ __forceinline__ void of_columns(u32 first_place, u32 heads, u32 run, u32 bits[2]) const {
        const u32 g = lane_row();
        u32 own = kept8(first_place + (g / 4 * 8 + lane_column() + g / 2 % 2) * heads, run + g % 2) << g % 4 * 8;
        own |= __shfl_xor_sync(FULL_WARP, own, 4);
        own |= __shfl_xor_sync(FULL_WARP, own, 8);
        const u32 other = __shfl_xor_sync(FULL_WARP, own, 16);
        bits[0] = (g < 4 ? own : other) >> g;
        bits[1] = (g < 4 ? other : own) >> g;
    }

    static __device__ __forceinline__ bool kept_transposed(u32 bits, int e) {
        return bits >> (e % 2 * 16 + e / 2 * 8) & 1;
    }
};

extern __shared__ uint4 shared_memory[];

// Shared memory: two tiles of the block's own rows, then two of the other side for each stage. (The forward pass has one
// of its own, in the place of the second.)
__device__ __forceinline__ act* own_tile(int i) {
    return (act*)shared_memory + i * ROWS * PITCH;
}

__device__ __forceinline__ act* other_tile(int own_tiles, int stage, int i) {
    return own_tile(own_tiles) + (2 * stage + i) * TILE * PITCH;
}
