// What the attention kernels share: tiles in shared memory, how they are loaded and results stored, softmax, dropout of
// score tiles. It follows attention_hopper.cuh.

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

// Starts to copy `count` rows of a head into a tile of R. Rows from `count` on become zeros: up to a multiple of 16, or
// with HOPPER all.
template <int R>
__device__ __forceinline__ void load_tile(act* tile, const act* rows, u32 stride, u32 count) {
#if HOPPER
    // A thread's units lie a multiple of eight rows apart: their places are permuted alike.
    constexpr u32 UNITS = WIDTH / 8, STEP = THREADS / UNITS;
    const u32 row = threadIdx.x / UNITS, run = threadIdx.x % UNITS;
    act* to = tile + place_of_run<R>(row, run);
    const act* from = rows + (u64)row * stride + run * 8;
#pragma unroll
    for (u32 i = 0; i < R; i += STEP, from += STEP * stride) {
        const bool inside = row + i < count;
        copy_unit(to + i * 64, inside ? from : rows, inside ? 16 : 0);
    }
#else
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
#endif
}

// Starts to load `count` keys and values of a sentence from key `from` on.
template <int R>
__device__ __forceinline__ void load_keys(act* k, act* v, const Attend& a, const Head& h, u32 from, u32 count) {
    load_tile<R>(k, head_rows(a.k, a.kv_stride, h.key + from, h.head), a.kv_stride, count);
    load_tile<R>(v, head_rows(a.v, a.kv_stride, h.key + from, h.head), a.kv_stride, count);
}

// When all have come here, all see what each has copied, tensor cores that read shared memory by themselves too.
__device__ __forceinline__ void share_copies() {
#if HOPPER
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
    __syncthreads();
}

// Waits until what this thread has started to copy is there.
__device__ __forceinline__ void copies_done() {
#if BF16
    asm volatile("cp.async.wait_all;" ::: "memory");
#endif
}

// Waits until the tiles that any thread of the block has started to load are there.
__device__ __forceinline__ void tiles_ready() {
    copies_done();
    share_copies();
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
    share_copies();
}

// Works on the tiles `begin`, `begin` + TILE, .. below `end` of the other side, of which `load(stage, from)` starts to
// load one, `store(stage)` puts into shared memory what came by registers, and `work(stage, from)` uses it. The caller has
// done the first two for stage 0. With two stages a block loads the next while it works.
template <int STAGES, typename Load, typename Store, typename Work>
__device__ __forceinline__ void over_tiles(u32 begin, u32 end, Load load, Store store, Work work) {
    if constexpr (STAGES == 2) {
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
    } else {
        for (u32 from = begin; from < end; from += TILE) {
            if (from > begin) {
                __syncthreads();
                load(0, from);
                store(0);
            }
            tiles_ready();
            work(0, from);
        }
    }
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

// LONG: the words of query `i`, a bit per key: whether it is kept.
__device__ __forceinline__ u16* kept_bits(const Attend& a, const Head& h, u32 i) {
    return a.kept + (u64)place_of(a, h, i) * a.kept_stride;
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

    // Of 16 queries × 16 keys a lane makes the bits of one query and eight keys.
    static __device__ __forceinline__ u32 own_query() {
        return lane_row() + threadIdx.x % 2 * 8;
    }

    static __device__ __forceinline__ u32 own_run() {
        return threadIdx.x % 4 / 2;
    }

    // Bits for 16 queries (rows of C, `heads` places apart) × 16 keys from 8·run on; see `kept`.
    __device__ __forceinline__ u32 of_rows(u32 first_place, u32 heads, u32 run) const {
        return shared(kept8(first_place + own_query() * heads, run + own_run()));
    }

    // The same from every lane's own.
    static __device__ __forceinline__ u32 shared(u32 own) {
        u32 bits = own << threadIdx.x % 4 * 8;
        bits |= __shfl_xor_sync(FULL_WARP, bits, 1);
        bits |= __shfl_xor_sync(FULL_WARP, bits, 2);
        return bits >> lane_column();
    }

    // The same from the words of a lane's two queries, a bit per key.
    static __device__ __forceinline__ u32 of_words(u32 top, u32 bottom) {
        const u32 bits = (top & 0xff) | (bottom & 0xff) << 8 | (top & 0xff00) << 8 | (bottom & 0xff00) << 16;
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

    // The same from words of 16 queries, four words apart, each a bit per key.
    static __device__ __forceinline__ void of_queries(const u16* words, u32 bits[2]) {
#pragma unroll
        for (int tile = 0; tile < 2; tile++) {
            const u16* of_query = words + (8 * tile + lane_column()) * 4;
            bits[tile] = (of_query[0] | (u32)of_query[4] << 16) >> lane_row();
        }
    }

    static __device__ __forceinline__ bool kept_transposed(u32 bits, int e) {
        return bits >> (e % 2 * 16 + e / 2 * 8) & 1;
    }
};

// The permutation of HOPPER's tiles repeats every 1024 bytes, counted from address 0.
extern __shared__ __align__(HOPPER ? 1024 : 16) uint4 shared_memory[];

// Shared memory: two tiles of the block's own rows, then two of the other side for each stage. (The forward pass has one
// of its own, in the place of the second.)
__device__ __forceinline__ act* own_tile(int i) {
    return (act*)shared_memory + i * ROWS * PITCH;
}

__device__ __forceinline__ act* other_tile(int own_tiles, int stage, int i) {
    return own_tile(own_tiles) + (2 * stage + i) * TILE * PITCH;
}
