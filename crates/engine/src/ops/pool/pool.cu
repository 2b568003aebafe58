// Inputs of gates: the mean of a sentence's rows, or the causal running mean at each row.
//
// A block takes 64 columns of one sentence with 16 groups of 8 threads; a thread holds a run of eight columns of its
// group's rows. Long sentences are cut among the groups, so that one of 175 rows costs little more than one of 22.

#define GROUPS (THREADS / 8)
#define WARPS (THREADS / 32)

// y[b] = (1/n_b)·Σ x[t] over the rows t of sentence b; zeros for a sentence without rows. x [rows, cols],
// y [sentences, cols].
// launch: grid (sentences, ceil(cols/64)), block THREADS
extern "C" __global__ void __launch_bounds__(THREADS)
segment_mean_forward(const act* __restrict__ x, Segments segments, act* __restrict__ y, u32 cols) {
    __shared__ alignas(16) float sums[WARPS][COLUMNS];
    u32 sentence = blockIdx.x, group = threadIdx.x / 8, lane = threadIdx.x % 8;
    u32 first = segments.starts[sentence], end = segments.starts[sentence + 1];
    u32 at = blockIdx.y * COLUMNS + 8 * lane;
    float sum[8] = {};
    if (at < cols) {
        for (u32 row = first + group; row < end; row += 4 * GROUPS) {
            float v[4][8];
            auto from = [&](u32 b) { return row + b * GROUPS < end ? x + (u64)(row + b * GROUPS) * cols : nullptr; };
            load_rows<4>(from, at, cols, v);
#pragma unroll
            for (u32 b = 0; b < 4; b++)
#pragma unroll
                for (int i = 0; i < 8; i++) sum[i] += v[b][i];
        }
    }
    // The four groups of each warp, then the warps.
#pragma unroll
    for (int i = 0; i < 8; i++) {
        sum[i] += __shfl_xor_sync(FULL_WARP, sum[i], 8);
        sum[i] += __shfl_xor_sync(FULL_WARP, sum[i], 16);
    }
    if (group % 4 == 0) store8(sums[group / 4], 8 * lane, COLUMNS, sum);
    __syncthreads();
    u32 column = blockIdx.y * COLUMNS + threadIdx.x;
    if (threadIdx.x >= COLUMNS || column >= cols) return;
    float total = 0.0f;
#pragma unroll
    for (u32 warp = 0; warp < WARPS; warp++) total += sums[warp][threadIdx.x];
    y[(u64)sentence * cols + column] = as_act(total * (1.0f / (float)max(end - first, 1u)));
}

// dx[t] (+)= dy[b]/n_b for the rows t of sentence b; tail rows get zeros, or stay as they are if `add`.
// launch: grid ceil(rows·ceil(cols/8)/128), block THREADS
extern "C" __global__ void __launch_bounds__(THREADS)
segment_mean_backward(const act* __restrict__ dy, Segments segments, act* __restrict__ dx, u32 add, u32 cols) {
    u32 runs = (cols + 7) / 8, index = blockIdx.x * THREADS + threadIdx.x;
    u32 row = index / runs, at = index % runs * 8;
    if (row >= segments.rows) return;
    u32 sentence = segments.sentence_of_row[row];
    float v[8] = {};
    if (sentence != NO_SENTENCE) {
        float inverse = 1.0f / (float)(segments.starts[sentence + 1] - segments.starts[sentence]);
        load8(dy + (u64)sentence * cols, at, cols, v);
#pragma unroll
        for (int i = 0; i < 8; i++) v[i] *= inverse;
    } else if (add) {
        return;
    }
    put8(dx + (u64)row * cols, at, cols, v, add);
}

// Replaces a group's sum by that of all groups before it: a scan over the groups of a warp, then over the warps.
__device__ __forceinline__ void sums_before(float sum[8], u32 group, u32 lane) {
    __shared__ alignas(16) float totals[WARPS][COLUMNS];
    u32 warp = group / 4, place = group % 4;
#pragma unroll
    for (int i = 0; i < 8; i++) {
        float up = __shfl_up_sync(FULL_WARP, sum[i], 8);
        if (place >= 1) sum[i] += up;
        up = __shfl_up_sync(FULL_WARP, sum[i], 16);
        if (place >= 2) sum[i] += up;
    }
    if (place == 3) store8(totals[warp], 8 * lane, COLUMNS, sum);
#pragma unroll
    for (int i = 0; i < 8; i++) {
        float up = __shfl_up_sync(FULL_WARP, sum[i], 8);
        sum[i] = place >= 1 ? up : 0.0f;
    }
    __syncthreads();
#pragma unroll
    for (u32 earlier = 0; earlier < WARPS - 1; earlier++) {
        if (earlier >= warp) break;
        float total[8];
        load8(totals[earlier], 8 * lane, COLUMNS, total);
#pragma unroll
        for (int i = 0; i < 8; i++) sum[i] += total[i];
    }
}

// ---- running means ---------------------------------------------------------------------------------------------
//
// Both directions are a running sum over the places i of a sentence of n rows. Forward: place i is row i, and the sum
// is divided by its number of terms c. Backward: place i is row n−1−i, whose gradient is divided by c first. With a
// window only the last `window` places count.

template <bool BACKWARD>
struct Places {
    const act* from;
    act* to;
    u32 first, n, window, at, cols;
    bool add;

    __device__ __forceinline__ u64 offset(u32 i) const {
        return (u64)(first + (BACKWARD ? n - 1 - i : i)) * cols;
    }

    // 1/c of the row at place i
    __device__ __forceinline__ float inverse(u32 i) const {
        return 1.0f / (float)min(BACKWARD ? n - i : i + 1, window);
    }

    // The places i .. i + N below `end`, as terms of the sum; those before 0 are large numbers, and so not there.
    template <u32 N>
    __device__ __forceinline__ void load(u32 i, u32 end, float v[N][8]) const {
        Packed run[N];
#pragma unroll
        for (u32 b = 0; b < N; b++) {
            run[b] = {};
            if (i + b < end) run[b].load(from + offset(i + b), at, cols);
        }
#pragma unroll
        for (u32 b = 0; b < N; b++) {
            run[b].unpack(v[b]);
            if constexpr (BACKWARD) {
                const float factor = inverse(min(i + b, n - 1));
#pragma unroll
                for (int c = 0; c < 8; c++) v[b][c] *= factor;
            }
        }
    }

    // What the result at place i is added to.
    __device__ __forceinline__ Packed held(u32 i, u32 end) const {
        Packed run = {};
        if (BACKWARD && add && i < end) run.load(to + offset(i), at, cols);
        return run;
    }

    __device__ __forceinline__ void put(u32 i, float sum[8], const Packed& held) const {
        if constexpr (BACKWARD) {
            float v[8];
            held.unpack(v);
#pragma unroll
            for (int c = 0; c < 8; c++) sum[c] += v[c];
        } else {
            const float factor = inverse(i);
#pragma unroll
            for (int c = 0; c < 8; c++) sum[c] *= factor;
        }
        store8(to + offset(i), at, cols, sum);
    }
};

// Zeros for the tail rows, which are shared among the `groups` of all blocks.
__device__ __forceinline__ void clear_tail(const Segments& segments, act* to, u32 group, u32 groups, u32 at, u32 cols) {
    float zeros[8] = {};
    u32 tail = segments.starts[segments.sentences];
    for (u32 row = tail + blockIdx.x * groups + group; row < segments.rows; row += gridDim.x * groups)
        store8(to + (u64)row * cols, at, cols, zeros);
}

// Without a window. Each group takes a stretch of places, sums what comes before it, then sweeps over its stretch.
template <bool BACKWARD>
__device__ __forceinline__ void running(const act* from, const Segments& segments, act* to, bool add, u32 cols) {
    u32 first = segments.starts[blockIdx.x], n = segments.starts[blockIdx.x + 1] - first;
    u32 group = threadIdx.x / 8, lane = threadIdx.x % 8, at = blockIdx.y * COLUMNS + 8 * lane;
    u32 stretch = (n + GROUPS - 1) / GROUPS, begin = min(group * stretch, n), end = min(begin + stretch, n);
    const Places<BACKWARD> places = {from, to, first, n, n, at, cols, add};
    if (at < cols && !add) clear_tail(segments, to, group, GROUPS, at, cols);

    float sum[8] = {}, v[2][8];
    for (u32 i = begin; at < cols && i < end; i += 2) {
        places.template load<2>(i, end, v);
#pragma unroll
        for (int c = 0; c < 8; c++) sum[c] = sum[c] + v[0][c] + v[1][c];
    }
    sums_before(sum, group, lane);
    if (at >= cols) return;
    for (u32 i = begin; i < end; i += 2) {
        const Packed held[2] = {places.held(i, end), places.held(i + 1, end)};
        places.template load<2>(i, end, v);
#pragma unroll
        for (u32 b = 0; b < 2; b++) {
            if (i + b >= end) return;
#pragma unroll
            for (int c = 0; c < 8; c++) sum[c] += v[b][c], v[b][c] = sum[c];
            places.put(i + b, v[b], held[b]);
        }
    }
}

// y[t] = (1/c_t)·Σ x[s] over s ≤ t in t's sentence, c_t terms. Tail rows get zeros. x, y [rows, cols], not the same
// memory.
// launch: grid (sentences, ceil(cols/64)), block THREADS
extern "C" __global__ void __launch_bounds__(THREADS, 7)
running_mean_forward(const act* __restrict__ x, Segments segments, act* __restrict__ y, u32 cols) {
    running<false>(x, segments, y, false, cols);
}

// dx[s] (+)= Σ dy[t]/c_t over s ≤ t in s's sentence. Tail rows get zeros, or stay as they are if `add`. dy, dx
// [rows, cols], not the same memory.
// launch: grid (sentences, ceil(cols/64)), block THREADS
extern "C" __global__ void __launch_bounds__(THREADS, 7)
running_mean_backward(const act* __restrict__ dy, Segments segments, act* __restrict__ dx, u32 add, u32 cols) {
    running<true>(dy, segments, dx, add, cols);
}

// ---- with a window ---------------------------------------------------------------------------------------------
//
// A block takes 32 columns of one sentence with 64 groups of 4 threads. What is left of values that were added and
// later subtracted must not stay behind: sums over many rows are doubles. Those over a few rows need be none in bfloat16,
// whose eight bits leave a float room for exact sums.

#define WINDOW_GROUPS (WINDOW_THREADS / 4)
#define PIECES 8u  // of the groups, when their sums are scanned
#define BATCH 4u

#if BF16
typedef float Few;
#else
typedef double Few;
#endif

// sum += the places i .. end
template <bool BACKWARD>
__device__ __forceinline__ void add_places(const Places<BACKWARD>& places, u32 i, u32 end, double sum[8]) {
    for (; i < end; i += 2 * BATCH) {
        float v[2 * BATCH][8];
        places.template load<2 * BATCH>(i, end, v);
#pragma unroll
        for (int c = 0; c < 8; c++) {
            Few few = v[0][c];
#pragma unroll
            for (u32 b = 1; b < 2 * BATCH; b++) few += v[b][c];
            sum[c] += few;
        }
    }
}

// Replaces the groups' sums by those of all groups before each.
__device__ __forceinline__ void scan(double sums[WINDOW_GROUPS][WINDOW_COLUMNS]) {
    __shared__ double totals[PIECES][WINDOW_COLUMNS];
    constexpr u32 EACH = WINDOW_GROUPS / PIECES;
    u32 column = threadIdx.x % WINDOW_COLUMNS, piece = threadIdx.x / WINDOW_COLUMNS;
    double before = 0.0, own[EACH];
    __syncthreads();
#pragma unroll
    for (u32 g = 0; g < EACH; g++) {
        own[g] = before;
        before += sums[piece * EACH + g][column];
    }
    totals[piece][column] = before;
    __syncthreads();
    before = 0.0;
#pragma unroll
    for (u32 p = 0; p < PIECES - 1; p++)
        if (p < piece) before += totals[p][column];
#pragma unroll
    for (u32 g = 0; g < EACH; g++) sums[piece * EACH + g][column] = before + own[g];
    __syncthreads();
}

// Each group takes a stretch of places. The sum of the window − 1 places before it is put together from those of
// whole stretches and a few places. Then the group goes on by batches: the window of the batch's place b is what lies
// between the places that leave and those that enter, the leaving ones from b on and the entering ones up to b. (In a
// window that is no longer than a batch nothing lies between; it is summed anew at each place.)
template <bool BACKWARD>
__device__ __forceinline__ void running_window(const act* from, const Segments& segments, u32 window, act* to, bool add,
                                               u32 cols) {
    __shared__ alignas(16) double sums[WINDOW_GROUPS][WINDOW_COLUMNS];
    u32 first = segments.starts[blockIdx.x], n = segments.starts[blockIdx.x + 1] - first;
    u32 group = threadIdx.x / 4, lane = threadIdx.x % 4, at = blockIdx.y * WINDOW_COLUMNS + 8 * lane;
    u32 stretch = BATCH * ((n + BATCH * WINDOW_GROUPS - 1) / (BATCH * WINDOW_GROUPS));
    u32 begin = min(group * stretch, n), end = min(begin + stretch, n);
    if (at < cols && !add) clear_tail(segments, to, group, WINDOW_GROUPS, at, cols);
    if (n == 0) return;
    window = min(window, n);
    const Places<BACKWARD> places = {from, to, first, n, window, at, cols, add};

    double sum[8] = {};
    if (window <= BATCH) {
        for (u32 i = begin; at < cols && i < end; i++) {
            double few[8] = {};
            float mean[8];
            add_places(places, i + 1 - min(i + 1, window), i + 1, few);
#pragma unroll
            for (int c = 0; c < 8; c++) mean[c] = (float)few[c];
            places.put(i, mean, places.held(i, end));
        }
        return;
    }
    if (at < cols) add_places(places, begin, end, sum);
#pragma unroll
    for (int c = 0; c < 8; c++) sums[group][8 * lane + c] = sum[c], sum[c] = 0.0;
    // The first place of the window before this stretch, and the first stretch that is wholly in it.
    u32 oldest = begin - min(begin, window - 1), whole = (oldest + stretch - 1) / stretch;
    const bool own = at < cols && begin < end;
    if (own) add_places(places, oldest, whole * stretch, sum);
    scan(sums);
    if (!own) return;
#pragma unroll
    for (int c = 0; c < 8; c++) sum[c] += sums[group][8 * lane + c] - sums[whole][8 * lane + c];

    for (u32 i = begin; i < end; i += BATCH) {
        float entering[BATCH][8], leaving[BATCH][8];
        places.template load<BATCH>(i, end, entering);
        places.template load<BATCH>(i + 1 - window, n, leaving);
        Packed held[BATCH];
#pragma unroll
        for (u32 b = 0; b < BATCH; b++) held[b] = places.held(i + b, end);
        Few rest[BATCH][8], entered[8];
#pragma unroll
        for (int c = 0; c < 8; c++) {
            rest[BATCH - 1][c] = leaving[BATCH - 1][c];
#pragma unroll
            for (u32 b = BATCH - 1; b > 0; b--) rest[b - 1][c] = rest[b][c] + leaving[b - 1][c];
            sum[c] -= rest[0][c];
            entered[c] = 0;
        }
#pragma unroll
        for (u32 b = 0; b < BATCH; b++) {
#pragma unroll
            for (int c = 0; c < 8; c++) {
                entered[c] += entering[b][c];
                entering[b][c] = (float)((Few)sum[c] + rest[b][c] + entered[c]);
            }
            if (i + b < end) places.put(i + b, entering[b], held[b]);
        }
#pragma unroll
        for (int c = 0; c < 8; c++) sum[c] += entered[c];
    }
}

// y[t] = (1/c_t)·Σ x[s] over t − window < s ≤ t in t's sentence, c_t terms; window > 0. Tail rows get zeros.
// x, y [rows, cols], not the same memory.
// launch: grid (sentences, ceil(cols/32)), block WINDOW_THREADS
extern "C" __global__ void __launch_bounds__(WINDOW_THREADS, BF16 ? 2 : 1)
running_mean_window_forward(const act* __restrict__ x, Segments segments, u32 window, act* __restrict__ y, u32 cols) {
    // `cols & ~7` is known to be a multiple of 8, so that load8 has no branch that keeps loads apart.
    if ((cols & 7) == 0)
        running_window<false>(x, segments, window, y, false, cols & ~7u);
    else
        running_window<false>(x, segments, window, y, false, cols);
}

// dx[s] (+)= Σ dy[t]/c_t over s ≤ t < s + window in s's sentence. Tail rows get zeros, or stay as they are if `add`.
// dy, dx [rows, cols], not the same memory.
// launch: grid (sentences, ceil(cols/32)), block WINDOW_THREADS
extern "C" __global__ void __launch_bounds__(WINDOW_THREADS, BF16 ? 2 : 1)
running_mean_window_backward(const act* __restrict__ dy, Segments segments, u32 window, act* __restrict__ dx, u32 add,
                             u32 cols) {
    if ((cols & 7) == 0)
        running_window<true>(dy, segments, window, dx, add, cols & ~7u);
    else
        running_window<true>(dy, segments, window, dx, add, cols);
}
