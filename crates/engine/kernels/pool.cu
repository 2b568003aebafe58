// What gates read: the mean of a sentence's rows, or the causal running mean at each row.
//
// A block takes 64 columns of one sentence with 16 groups of 8 threads; a thread holds a run of eight columns of its
// group's rows. Long sentences are cut among the groups, so that one of 175 rows costs little more than one of 22.

#define COLUMNS 64u
#define GROUPS 16u
#define THREADS 128u
#define WARPS 4u

__device__ __forceinline__ void sentence_mean(const act* __restrict__ x, const Segments& segments,
                                              act* __restrict__ y, u32 cols) {
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

// y[b] = (1/n_b)·Σ x[t] over the rows t of sentence b; zeros for a sentence without rows. x [rows, cols],
// y [sentences, cols].
// launch: grid (sentences, ceil(cols/64)), block 128
extern "C" __global__ void __launch_bounds__(THREADS)
segment_mean_forward(const act* __restrict__ x, Segments segments, act* __restrict__ y, u32 cols) {
    sentence_mean(x, segments, y, cols);
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
// subtracted, it is a double. `written` is shown each run of eight columns that the thread writes, before its rounding.
template <bool BACKWARD, bool WINDOW, typename Sum, typename Written>
__device__ __forceinline__ void running(const act* __restrict__ from, act* __restrict__ to, u32 first, u32 n,
                                        u32 window, bool add, u32 cols, Written written) {
    constexpr u32 BATCH = 2, BATCHES = WINDOW ? 2 : 1;
    u32 group = threadIdx.x / 8, lane = threadIdx.x % 8, at = blockIdx.y * COLUMNS + 8 * lane;
    u32 stretch = (n + GROUPS - 1) / GROUPS;
    u32 begin = min(group * stretch, n), end = min(begin + stretch, n);
    auto offset = [&](u32 i) { return (u64)(first + (BACKWARD ? n - 1 - i : i)) * cols; };
    auto inverse = [&](u32 i) {
        u32 terms = BACKWARD ? n - i : i + 1;
        return 1.0f / (float)(WINDOW ? min(terms, window) : terms);
    };
    // The places i .. i + BATCH below `end`, as terms of the sum. Those before 0 are large numbers, and so not there.
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
    if (at < cols) {
        u32 until = WINDOW ? begin : end;
        for (u32 i = WINDOW ? begin - min(begin, window) : begin; i < until; i += BATCHES * BATCH) {
            float v[BATCHES][BATCH][8];
#pragma unroll
            for (u32 k = 0; k < BATCHES; k++) load(i + k * BATCH, until, v[k]);
#pragma unroll
            for (u32 b = 0; b < BATCHES * BATCH; b++)
#pragma unroll
                for (int c = 0; c < 8; c++) sum[c] += v[b / BATCH][b % BATCH][c];
        }
    }
    if constexpr (!WINDOW) sums_before(sum, group, lane);
    if (at >= cols) return;
    for (u32 i = begin; i < end; i += BATCH) {
        float v[BATCH][8], leaving[BATCH][8];
        load(i, end, v);
        if constexpr (WINDOW) load(i - window, end, leaving);
#pragma unroll
        for (u32 b = 0; b < BATCH; b++) {
            if (i + b >= end) return;
#pragma unroll
            for (int c = 0; c < 8; c++) {
                sum[c] += v[b][c];
                if constexpr (WINDOW) sum[c] -= leaving[b][c];
            }
            float factor = BACKWARD ? 1.0f : inverse(i + b);
#pragma unroll
            for (int c = 0; c < 8; c++) v[b][c] = (float)sum[c] * factor;
            put8(to + offset(i + b), at, cols, v[b], BACKWARD && add);
            written(v[b]);
        }
    }
}

// Tail rows get zeros; all blocks share them.
__device__ __forceinline__ void clear_tail(act* __restrict__ to, const Segments& segments, u32 cols) {
    u32 group = threadIdx.x / 8, at = blockIdx.y * COLUMNS + threadIdx.x % 8 * 8;
    if (at >= cols) return;
    float zeros[8] = {};
    u32 tail = segments.starts[segments.sentences];
    for (u32 row = tail + blockIdx.x * GROUPS + group; row < segments.rows; row += gridDim.x * GROUPS)
        store8(to + (u64)row * cols, at, cols, zeros);
}

// The sentence of this block.
template <bool BACKWARD>
__device__ __forceinline__ void running_sentence(const act* __restrict__ from, const Segments& segments, u32 window,
                                                 act* __restrict__ to, bool add, u32 cols) {
    u32 first = segments.starts[blockIdx.x], n = segments.starts[blockIdx.x + 1] - first;
    auto nothing = [](const float*) {};
    if (!add) clear_tail(to, segments, cols);
    if (window == 0 || window >= n)
        running<BACKWARD, false, float>(from, to, first, n, window, add, cols, nothing);
    else
        running<BACKWARD, true, double>(from, to, first, n, window, add, cols, nothing);
}

// y[t] = (1/c_t)·Σ x[s] over t − window < s ≤ t in t's sentence, c_t terms; window 0 has no limit. Tail rows get zeros.
// x, y [rows, cols], not the same memory.
// launch: grid (sentences, ceil(cols/64)), block 128
extern "C" __global__ void __launch_bounds__(THREADS, 6)
running_mean_forward(const act* __restrict__ x, Segments segments, u32 window, act* __restrict__ y, u32 cols) {
    running_sentence<false>(x, segments, window, y, false, cols);
}

// dx[s] (+)= Σ dy[t]/c_t over s ≤ t < s + window in s's sentence. Tail rows get zeros, or stay as they are if `add`.
// dy, dx [rows, cols], not the same memory.
// launch: grid (sentences, ceil(cols/64)), block 128
extern "C" __global__ void __launch_bounds__(THREADS, 6)
running_mean_backward(const act* __restrict__ dy, Segments segments, u32 window, act* __restrict__ dx, u32 add,
                      u32 cols) {
    running_sentence<true>(dy, segments, window, dx, add, cols);
}

// ---- with batch norm's statistics of the means ------------------------------------------------------------------

// Per column: what batch norm is to take as the mean and the variance of the rows that a kernel writes. Those of the
// batch, towards which the running ones move; with fewer than two rows the running ones.
struct Statistics {
    float *mean, *variance, *running_mean, *running_var;
    float* partials;  // room for [sentences, 2, cols], where sentences have several rows
    u32* arrived;     // how many blocks of each 64 columns have ended: 0 before and after a launch
};

// Whether this block is the last of its columns to come here. It then sees what the others have written.
__device__ __forceinline__ bool is_last(u32* arrived) {
    __shared__ u32 before;
    __syncthreads();
    if (threadIdx.x == 0) {
        __threadfence();
        before = atomicInc(arrived + blockIdx.y, gridDim.x - 1);  // the last one sets it back to 0
        __threadfence();
    }
    __syncthreads();
    return before == gridDim.x - 1;
}

// Adds a and b up over the groups; thread t < 64 gets the sums of column t.
__device__ __forceinline__ float2 sum_groups(float a[8], float b[8]) {
    __shared__ alignas(16) float sums[WARPS][2][COLUMNS];
    u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32;
#pragma unroll
    for (int i = 0; i < 8; i++) {
        a[i] += __shfl_xor_sync(FULL_WARP, a[i], 8);
        b[i] += __shfl_xor_sync(FULL_WARP, b[i], 8);
        a[i] += __shfl_xor_sync(FULL_WARP, a[i], 16);
        b[i] += __shfl_xor_sync(FULL_WARP, b[i], 16);
    }
    if (lane < 8) {
        store8(sums[warp][0], 8 * lane, COLUMNS, a);
        store8(sums[warp][1], 8 * lane, COLUMNS, b);
    }
    __syncthreads();
    float2 total = make_float2(0.0f, 0.0f);
    if (threadIdx.x < COLUMNS) {
#pragma unroll
        for (u32 w = 0; w < WARPS; w++) total.x += sums[w][0][threadIdx.x], total.y += sums[w][1][threadIdx.x];
    }
    return total;
}

// A column's statistics from total = (Σ (y − pivot), Σ (y − pivot)²) over `count` rows.
__device__ __forceinline__ void finish(const Statistics& statistics, u32 column, u32 count, float pivot,
                                       float2 total) {
    float mean = statistics.running_mean[column], variance = statistics.running_var[column];
    if (count > 1) {
        float shift = total.x / (float)count, squares = total.y - total.x * shift;
        float average = pivot + shift, batch = squares < 0.0f ? 0.0f : squares / (float)count;
        statistics.running_mean[column] = moved(mean, average);
        statistics.running_var[column] = moved(variance, batch * ((float)count / (float)(count - 1)));
        mean = average, variance = batch;
    }
    statistics.mean[column] = mean;
    statistics.variance[column] = variance;
}

// segment_mean_forward, with the statistics of the sentences that are there; cols a multiple of 64.
// launch: grid (sentences, cols/64), block 128
extern "C" __global__ void __launch_bounds__(THREADS, 7)
segment_mean_statistics(const act* __restrict__ x, Segments segments, act* __restrict__ y, u32 cols,
                        Statistics statistics) {
    constexpr u32 BATCH = 4;
    sentence_mean(x, segments, y, cols);
    if (!is_last(statistics.arrived)) return;
    u32 count = *segments.count, group = threadIdx.x / 8, at = blockIdx.y * COLUMNS + threadIdx.x % 8 * 8;
    float pivot[8], sum[8] = {}, squares[8] = {};
    load8(y, at, cols, pivot);
    for (u32 row = group; row < count; row += BATCH * GROUPS) {
        float v[BATCH][8];
        auto from = [&](u32 b) { return row + b * GROUPS < count ? y + (u64)(row + b * GROUPS) * cols : nullptr; };
        load_rows<BATCH>(from, at, cols, v);
#pragma unroll
        for (u32 b = 0; b < BATCH; b++) {
            if (row + b * GROUPS >= count) break;
#pragma unroll
            for (int i = 0; i < 8; i++) {
                float d = v[b][i] - pivot[i];
                sum[i] += d;
                squares[i] = fmaf(d, d, squares[i]);
            }
        }
    }
    float2 total = sum_groups(sum, squares);
    u32 column = blockIdx.y * COLUMNS + threadIdx.x;
    if (threadIdx.x < COLUMNS) finish(statistics, column, count, as_float(y[column]), total);
}

// Chan et al.'s combination of all sentences: a thread takes four columns of every eighth. Distances are from the first
// row, so that one sweep is enough.
__device__ __forceinline__ void combine_sentences(const act* __restrict__ x, const Segments& segments, u32 cols,
                                                  const Statistics& statistics) {
    constexpr u32 BATCH = 5, QUADS = COLUMNS / 4, TURNS = THREADS / QUADS;
    __shared__ alignas(16) float sums[2][TURNS][COLUMNS];
    u32 base = blockIdx.y * COLUMNS, at = threadIdx.x % QUADS * 4, turn = threadIdx.x / QUADS;
    const float* partials = statistics.partials + base;
    float pivot[4], sum[4] = {}, squares[4] = {};
#pragma unroll
    for (int i = 0; i < 4; i++) pivot[i] = as_float(x[base + at + i]);
    for (u32 sentence = turn; sentence < segments.sentences; sentence += BATCH * TURNS) {
        float4 mean[BATCH], deviations[BATCH];
        float size[BATCH];
#pragma unroll
        for (u32 b = 0; b < BATCH; b++) {
            // Read whether it counts or not: then the loads do not wait for one another.
            u32 own = min(sentence + b * TURNS, segments.sentences - 1);
            const float* part = partials + (u64)own * 2 * cols + at;
            mean[b] = *(const float4*)part, deviations[b] = *(const float4*)(part + cols);
            size[b] = (float)(segments.starts[own + 1] - segments.starts[own]);
        }
#pragma unroll
        for (u32 b = 0; b < BATCH; b++) {
            if (sentence + b * TURNS >= segments.sentences) break;
            float means[4] = {mean[b].x, mean[b].y, mean[b].z, mean[b].w};
            float within[4] = {deviations[b].x, deviations[b].y, deviations[b].z, deviations[b].w};
#pragma unroll
            for (int i = 0; i < 4; i++) {
                float d = means[i] - pivot[i];
                sum[i] = fmaf(size[b], d, sum[i]);
                squares[i] += fmaf(size[b] * d, d, within[i]);
            }
        }
    }
    *(float4*)&sums[0][turn][at] = make_float4(sum[0], sum[1], sum[2], sum[3]);
    *(float4*)&sums[1][turn][at] = make_float4(squares[0], squares[1], squares[2], squares[3]);
    __syncthreads();
    if (threadIdx.x >= COLUMNS) return;
    float2 total = make_float2(0.0f, 0.0f);
#pragma unroll
    for (u32 t = 0; t < TURNS; t++) total.x += sums[0][t][threadIdx.x], total.y += sums[1][t][threadIdx.x];
    u32 column = base + threadIdx.x;
    finish(statistics, column, segments.starts[segments.sentences], as_float(x[column]), total);
}

// The sentence of this block, with the statistics of all rows that are there: each block leaves the mean and the squared
// deviations of its sentence; the last one puts them together.
__device__ __forceinline__ void running_statistics(const act* __restrict__ x, const Segments& segments, u32 window,
                                                   act* __restrict__ y, u32 cols, const Statistics& statistics) {
    u32 first = segments.starts[blockIdx.x], n = segments.starts[blockIdx.x + 1] - first;
    u32 base = blockIdx.y * COLUMNS, column = base + threadIdx.x;
    clear_tail(y, segments, cols);
    float mean = 0.0f, deviations = 0.0f;
    if (n > 0) {
        // The first mean of a sentence is its first row.
        float pivot[8], sum[8] = {}, squares[8] = {};
        load8(x + (u64)first * cols, base + threadIdx.x % 8 * 8, cols, pivot);
        auto written = [&](const float* v) {
#pragma unroll
            for (int i = 0; i < 8; i++) {
                float d = as_float(as_act(v[i])) - pivot[i];
                sum[i] += d;
                squares[i] = fmaf(d, d, squares[i]);
            }
        };
        if (window == 0 || window >= n)
            running<false, false, float>(x, y, first, n, window, false, cols, written);
        else
            running<false, true, double>(x, y, first, n, window, false, cols, written);
        float2 total = sum_groups(sum, squares);
        if (threadIdx.x < COLUMNS) {
            float shift = total.x / (float)n;
            mean = as_float(x[(u64)first * cols + column]) + shift;
            deviations = fmaxf(total.y - total.x * shift, 0.0f);
        }
    }
    if (threadIdx.x < COLUMNS) {
        float* out = statistics.partials + (u64)blockIdx.x * 2 * cols + column;
        out[0] = mean, out[cols] = deviations;
    }
    if (is_last(statistics.arrived)) combine_sentences(x, segments, cols, statistics);
}

// running_mean_forward without a window, with batch norm's statistics; cols a multiple of 64.
// launch: grid (sentences, cols/64), block 128
extern "C" __global__ void __launch_bounds__(THREADS, 7)
running_mean_statistics(const act* __restrict__ x, Segments segments, act* __restrict__ y, u32 cols,
                        Statistics statistics) {
    running_statistics(x, segments, 0, y, cols, statistics);
}

// The same with a window.
// launch: grid (sentences, cols/64), block 128
extern "C" __global__ void __launch_bounds__(THREADS, 4)
window_mean_statistics(const act* __restrict__ x, Segments segments, act* __restrict__ y, u32 cols,
                       Statistics statistics, u32 window) {
    running_statistics(x, segments, window, y, cols, statistics);
}
