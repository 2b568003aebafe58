// What gates read: the mean of a sentence's rows, or the causal running mean at each row.
//
// A block takes 64 columns of one sentence with 16 groups of 8 threads; a thread holds a run of eight columns of its
// group's rows. Long sentences are cut among the groups, so that one of 175 rows costs little more than one of 22.

#define COLUMNS 64u
#define GROUPS 16u
#define THREADS 128u
#define WARPS 4u

// y[b] = (1/n_b)·Σ x[t] over the rows t of sentence b; zeros for a sentence without rows. x [rows, cols],
// y [sentences, cols].
// launch: grid (sentences, ceil(cols/64)), block 128
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
// launch: grid ceil(rows·ceil(cols/8)/128), block 128
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

// Both directions are a running sum over the places i of a sentence of n rows. Forward: place i is row i, and the sum
// is divided by its number of terms c. Backward: place i is row n−1−i, whose gradient is divided by c first.
//
// Each group takes a stretch of places, sums what comes before it, then sweeps over its stretch. WINDOW: only the last
// `window` places count; the sum before a stretch is taken anew over them, and since values that leave the window are
// subtracted, it is a double.
template <bool BACKWARD, bool WINDOW, typename Sum>
__device__ __forceinline__ void running(const act* __restrict__ from, act* __restrict__ to, u32 first, u32 n,
                                        u32 window, bool add, u32 cols) {
    constexpr u32 BATCH = WINDOW ? 1 : 2;
    u32 group = threadIdx.x / 8, lane = threadIdx.x % 8, at = blockIdx.y * COLUMNS + 8 * lane;
    u32 stretch = (n + GROUPS - 1) / GROUPS;
    u32 begin = min(group * stretch, n), end = min(begin + stretch, n);
    auto offset = [&](u32 i) { return (u64)(first + (BACKWARD ? n - 1 - i : i)) * cols; };
    auto inverse = [&](u32 i) {
        u32 terms = BACKWARD ? n - i : i + 1;
        return 1.0f / (float)(WINDOW ? min(terms, window) : terms);
    };
    // The places i .. i + BATCH below `end`, as terms of the sum.
    auto load = [&](u32 i, u32 end, float v[BATCH][8]) {
        load_rows<BATCH>([&](u32 b) { return i + b < end ? from + offset(i + b) : nullptr; }, at, cols, v);
        if constexpr (BACKWARD) {
#pragma unroll
            for (u32 b = 0; b < BATCH; b++) {
                float factor = inverse(min(i + b, n - 1));
#pragma unroll
                for (int c = 0; c < 8; c++) v[b][c] *= factor;
            }
        }
    };

    Sum sum[8] = {};
    float v[BATCH][8];
    if (at < cols) {
        u32 until = WINDOW ? begin : end;
        for (u32 i = WINDOW ? begin - min(begin, window) : begin; i < until; i += BATCH) {
            load(i, until, v);
#pragma unroll
            for (u32 b = 0; b < BATCH; b++)
#pragma unroll
                for (int c = 0; c < 8; c++) sum[c] += v[b][c];
        }
    }
    if constexpr (!WINDOW) sums_before(sum, group, lane);
    if (at >= cols) return;
    for (u32 i = begin; i < end; i += BATCH) {
        load(i, end, v);
#pragma unroll
        for (u32 b = 0; b < BATCH; b++) {
            if (i + b >= end) return;
#pragma unroll
            for (int c = 0; c < 8; c++) sum[c] += v[b][c];
            if (WINDOW && i >= window) {
                load(i - window, i, v);
#pragma unroll
                for (int c = 0; c < 8; c++) sum[c] -= v[0][c];
            }
            float factor = BACKWARD ? 1.0f : inverse(i + b);
#pragma unroll
            for (int c = 0; c < 8; c++) v[b][c] = (float)sum[c] * factor;
            put8(to + offset(i + b), at, cols, v[b], BACKWARD && add);
        }
    }
}

// The sentence of this block; the tail rows are shared among all blocks.
template <bool BACKWARD>
__device__ __forceinline__ void running_sentence(const act* __restrict__ from, const Segments& segments, u32 window,
                                                 act* __restrict__ to, bool add, u32 cols) {
    u32 first = segments.starts[blockIdx.x], n = segments.starts[blockIdx.x + 1] - first;
    u32 group = threadIdx.x / 8, at = blockIdx.y * COLUMNS + threadIdx.x % 8 * 8;
    if (at < cols && !add) {
        float zeros[8] = {};
        u32 tail = segments.starts[segments.sentences];
        for (u32 row = tail + blockIdx.x * GROUPS + group; row < segments.rows; row += gridDim.x * GROUPS)
            store8(to + (u64)row * cols, at, cols, zeros);
    }
    if (window == 0 || window >= n)
        running<BACKWARD, false, float>(from, to, first, n, window, add, cols);
    else
        running<BACKWARD, true, double>(from, to, first, n, window, add, cols);
}

// y[t] = (1/c_t)·Σ x[s] over t − window < s ≤ t in t's sentence, c_t terms; window 0 has no limit. Tail rows get zeros.
// x, y [rows, cols], not the same memory.
// launch: grid (sentences, ceil(cols/64)), block 128
extern "C" __global__ void __launch_bounds__(THREADS, 7)
running_mean_forward(const act* __restrict__ x, Segments segments, u32 window, act* __restrict__ y, u32 cols) {
    running_sentence<false>(x, segments, window, y, false, cols);
}

// dx[s] (+)= Σ dy[t]/c_t over s ≤ t < s + window in s's sentence. Tail rows get zeros, or stay as they are if `add`.
// dy, dx [rows, cols], not the same memory.
// launch: grid (sentences, ceil(cols/64)), block 128
extern "C" __global__ void __launch_bounds__(THREADS, 7)
running_mean_backward(const act* __restrict__ dy, Segments segments, u32 window, act* __restrict__ dx, u32 add,
                      u32 cols) {
    running_sentence<true>(dy, segments, window, dx, add, cols);
}
