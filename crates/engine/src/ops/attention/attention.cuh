// What the attention kernels share: arguments, fragments and tensor-core products. The text, then attention_hopper.cuh
// and attention_tiles.cuh, is put between prelude.cuh and attention.cu or attention_backward.cu.
//
// Macros: HEAD (width K of a head, 1 to 128), CAUSAL (0, 1), DROPOUT (0, 1), WEIGHTS (0 none, 1 per sentence, 2 per
// query row), LONG (0, 1), HOPPER (0, 1) and the prelude's BF16; TILE (rows that a block loads at a time), LONG_TILE,
// MOST_STAGES, SHORT and PADDING.
//
// A block works on one head of one sentence, a warp on 16 rows of it; in the backward pass on two heads of a very short
// sentence, or on several tiles one after the other. Most sentences are short: blocks are small, so that many of them
// share a multiprocessor. LONG is for batches of long ones: blocks are larger, so that each tile they load serves more
// rows, and load a tile while they work on another, as all do in the backward pass; which reads the probabilities that
// were kept instead of drawing them again.
// HOPPER is for LONG ones in bfloat16 with heads of 64 or 128 columns on GPUs of compute capability 9.0, whose tensor
// cores can do products of whole tiles: attention_hopper.cuh.
// Other products are those of mma.m16n8k16. With BF16 = 0 the same kernels run in
// float: a fragment holds floats in the places of the bfloat16 values, and mma is emulated by shuffles. What differs is
// in pair_of, shuffle_xor, load_four, mma, load_tile, store_run and power.

constexpr int ROWS = LONG ? LONG_TILE : TILE;      // rows of one sentence that a block works on
constexpr int CHUNK = HOPPER ? TILE : 16;          // rows of the other side that a warp works on at a time
constexpr int THREADS = ROWS / 16 * 32;
constexpr int WIDTH = (HEAD + 15) / 16 * 16;       // columns of a tile, zeros from HEAD on
constexpr int PITCH = HOPPER ? WIDTH : WIDTH + PADDING;  // values per row of a tile: more than there are, so that eight
                                                         // rows lie in different banks; HOPPER has an order of its own
constexpr int RUNS = (HEAD + 7) / 8;

// Blocks of TILE rows that share a multiprocessor at least, for heads of up to 64 columns and wider ones: a limit for
// registers. (With HOPPER, a launch lets three of 64 rows share one.)
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
    u16* kept;                 // LONG, DROPOUT: [queries.rows, heads, kept_stride], a bit per key, for the backward pass;
                               // not written, and of no effect, where heads are dropped and keys not seen
    const uint2* query_tiles;  // {sentence or NO_SENTENCE, first query within the sentence: 0, ROWS, ..}
    Segments queries, keys;
    Dropout dropout;
    u32 heads, q_stride, kv_stride;
    u32 kept_stride;  // a multiple of 4
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
    u32 query_tile_count, key_tile_count;
    u32 short_apart;         // 1: attention_backward_short computes sentences of at most SHORT rows, others the rest
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

// A warp's sum of 16 rows of WIDTH columns.
struct Sum {
    float c[WIDTH / 8][4];
};

#if !HOPPER
// c += columns k .. k + 16 of A·Bᵀ, of 16 rows of one tile and 16 of another: 16 × 16 scores.
__device__ __forceinline__ void add_columns(float c[2][4], const act* a_rows, const act* b_rows, int k) {
    FragmentA a;
    Pair b[4];  // B of two products
    load_four<true, false, PITCH>(a.r, a_rows, k);
    load_four<false, false, PITCH>(b, b_rows, k);
    mma(c[0], a, b[0], b[1]);
    mma(c[1], a, b[2], b[3]);
}

// c = A·Bᵀ and d = X·Yᵀ, in turns: the tensor cores are slow to answer.
__device__ __forceinline__ void products_of_rows(float c[2][4], const act* a, const act* b, float d[2][4],
                                                 const act* x, const act* y) {
#pragma unroll
    for (int i = 0; i < 8; i++) c[i / 4][i % 4] = d[i / 4][i % 4] = 0.0f;
#pragma unroll
    for (int k = 0; k < WIDTH; k += 16) {
        add_columns(c, a, b, k);
        add_columns(d, x, y, k);
    }
}

// sum += A·B, B being 16 rows of a tile.
__device__ __forceinline__ void add_product(Sum& sum, const FragmentA (&a)[1], const act* b_rows) {
#pragma unroll
    for (int n = 0; n < WIDTH; n += 16) {
        Pair b[4];
        load_four<true, true, PITCH>(b, b_rows, n);
        mma(sum.c[n / 8], a[0], b[0], b[1]);
        mma(sum.c[n / 8 + 1], a[0], b[2], b[3]);
    }
}
#endif
