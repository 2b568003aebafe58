// Batch norm over rows: y = (x − mean)·scale·γ + β per column, scale = 1/√(variance + ε).
//
// `*valid` rows count; rows from there on are written as zeros. Sums over rows are made in two steps: blocks sum parts
// of the rows, and the kernel that needs the totals adds the parts of its own columns up, which spares a launch.
// A block takes 64 columns with 32 groups of 8 threads; a thread holds a run of eight columns, and the groups take rows
// in turn. With parts = min(ceil(rows/64), 32) there are enough blocks, and few enough partial sums.

#define GROUPS (THREADS / 8)
#define WARPS (THREADS / 32)
#define QUARTERS (THREADS / COLUMNS)

#define INFINITE __uint_as_float(0x7f800000u)

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

// Σ value(part) over the parts, for the column threadIdx.x % 64: each quarter of the block takes every fourth part.
template <typename Value>
__device__ __forceinline__ float sum_parts(u32 parts, float (*sums)[COLUMNS], Value value) {
    u32 column = threadIdx.x % COLUMNS, quarter = threadIdx.x / COLUMNS;
    float sum = 0.0f;
    for (u32 first = quarter; first < parts; first += 8 * QUARTERS) {
#pragma unroll
        for (u32 i = 0; i < 8; i++) {
            // Read whether it counts or not: then the loads do not wait for one another.
            u32 part = first + i * QUARTERS;
            float term = value(min(part, parts - 1));
            sum += part < parts ? term : 0.0f;
        }
    }
    sums[quarter][column] = sum;
    __syncthreads();
    return (sums[0][column] + sums[1][column]) + (sums[2][column] + sums[3][column]);
}

// The rows of a part of `each` rows, as far as they count: [first, end).
__device__ __forceinline__ uint2 part_rows(u32 part, u32 each, u32 valid) {
    return make_uint2(min(part * each, valid), min((part + 1) * each, valid));
}

// Per part of rows and column: the mean and the sum of squared deviations from it. x [rows, cols],
// partials [parts, 2, cols].
// launch: grid (ceil(cols/64), parts), block 256
extern "C" __global__ void __launch_bounds__(THREADS, 2)
batch_norm_statistics(const act* __restrict__ x, const u32* valid, u32 rows, u32 cols, float* __restrict__ partials,
                      u32 parts) {
    constexpr u32 BATCH = 4;
    uint2 range = part_rows(blockIdx.y, (rows + parts - 1) / parts, *valid);
    u32 group = threadIdx.x / 8, at = blockIdx.x * COLUMNS + threadIdx.x % 8 * 8;
    // Distances from the part's first row: one sweep is enough, and cancels at most a factor of the part's length.
    float origin[8], sum[8] = {}, squares[8] = {};
    if (at < cols && range.x < range.y) {
        load8(x + (u64)range.x * cols, at, cols, origin);
        for (u32 row = range.x + group; row < range.y; row += BATCH * GROUPS) {
            float v[BATCH][8];
            auto from = [&](u32 b) {
                return row + b * GROUPS < range.y ? x + (u64)(row + b * GROUPS) * cols : nullptr;
            };
            load_rows<BATCH>(from, at, cols, v);
#pragma unroll
            for (u32 b = 0; b < BATCH; b++) {
                if (row + b * GROUPS >= range.y) break;
#pragma unroll
                for (int i = 0; i < 8; i++) {
                    float d = v[b][i] - origin[i];
                    sum[i] += d;
                    squares[i] = fmaf(d, d, squares[i]);
                }
            }
        }
    }
    float2 total = sum_groups(sum, squares);
    u32 column = blockIdx.x * COLUMNS + threadIdx.x;
    if (threadIdx.x >= COLUMNS || column >= cols) return;
    float mean = 0.0f, deviations = 0.0f;
    if (range.x < range.y) {
        float shift = total.x / (float)(range.y - range.x);
        mean = as_float(x[(u64)range.x * cols + column]) + shift;
        deviations = fmaxf(total.y - total.x * shift, 0.0f);
    }
    float* out = partials + (u64)blockIdx.y * 2 * cols;
    out[column] = mean;
    out[cols + column] = deviations;
}

// y = (x − mean)·scale·γ + β; x, y [rows, cols], all others [cols] but for `partials` of batch_norm_statistics.
// Training with more than one valid row: the batch's mean and biased variance, and running statistics moved towards
// them (the unbiased variance) in new_*. Otherwise: the running statistics, new_* is a copy of them, and `partials` is
// not read. mean, scale, new_* may be null; new_* may be the running statistics themselves.
// launch: grid (ceil(cols/64), parts), block 256; another number of blocks over the rows is right, too
extern "C" __global__ void __launch_bounds__(THREADS, 2)
batch_norm_forward(const act* __restrict__ x, const u32* valid, const float* partials, u32 parts, const float* gamma,
                   const float* beta, const float* running_mean, const float* running_var, float* mean, float* scale,
                   float* new_running_mean, float* new_running_var, u32 training, act* __restrict__ y, u32 rows,
                   u32 cols) {
    constexpr u32 BATCH = 4;
    __shared__ float sums[2][QUARTERS][COLUMNS];
    __shared__ alignas(16) float centre[COLUMNS], factor[COLUMNS], offset[COLUMNS];
    u32 count = *valid, place = threadIdx.x % COLUMNS, column = blockIdx.x * COLUMNS + place;
    u32 near = min(column, cols - 1);
    float weight = gamma[near], bias = beta[near], moved_mean = running_mean[near], moved_var = running_var[near];
    float average = moved_mean, variance = moved_var;
    bool of_batch = training && count > 1;
    if (of_batch) {
        // Chan et al.'s combination of all parts at once.
        u32 each = (rows + parts - 1) / parts;
        auto size = [&](u32 part) {
            uint2 range = part_rows(part, each, count);
            return (float)(range.y - range.x);
        };
        auto partial = [&](u32 part, u32 which) { return partials[((u64)part * 2 + which) * cols + near]; };
        average = sum_parts(parts, sums[0], [&](u32 p) { return size(p) * partial(p, 0); }) / (float)count;
        variance = sum_parts(parts, sums[1], [&](u32 p) {
            float distance = partial(p, 0) - average;
            return fmaf(size(p) * distance, distance, partial(p, 1));
        }) / (float)count;
    }
    if (threadIdx.x < COLUMNS && column < cols) {
        if (of_batch) {
            float unbiased = (float)count / (float)(count - 1);
            moved_mean = (1.0f - MOMENTUM) * moved_mean + MOMENTUM * average;
            moved_var = (1.0f - MOMENTUM) * moved_var + MOMENTUM * unbiased * variance;
        }
        float inverse = 1.0f / sqrtf(variance + EPSILON);
        if (blockIdx.y == 0) {
            if (mean != nullptr) mean[column] = average;
            if (scale != nullptr) scale[column] = inverse;
            // A batch whose numbers are not finite must not spoil them.
            if (new_running_mean != nullptr)
                new_running_mean[column] = fabsf(moved_mean) < INFINITE ? moved_mean : running_mean[column];
            if (new_running_var != nullptr)
                new_running_var[column] = fabsf(moved_var) < INFINITE ? moved_var : running_var[column];
        }
        centre[place] = average, factor[place] = inverse * weight, offset[place] = bias;
    }
    __syncthreads();
    u32 group = threadIdx.x / 8, lane = threadIdx.x % 8, at = blockIdx.x * COLUMNS + 8 * lane;
    if (at >= cols) return;
    float m[8], f[8], o[8];
    load8(centre, 8 * lane, COLUMNS, m);
    load8(factor, 8 * lane, COLUMNS, f);
    load8(offset, 8 * lane, COLUMNS, o);
    u32 stride = gridDim.y * GROUPS;
    for (u32 row = blockIdx.y * GROUPS + group; row < rows; row += BATCH * stride) {
        float v[BATCH][8];
        auto from = [&](u32 b) { return row + b * stride < count ? x + (u64)(row + b * stride) * cols : nullptr; };
        load_rows<BATCH>(from, at, cols, v);
#pragma unroll
        for (u32 b = 0; b < BATCH; b++) {
            u32 own = row + b * stride;
            if (own >= rows) return;
#pragma unroll
            for (int i = 0; i < 8; i++) v[b][i] = own < count ? fmaf(v[b][i] - m[i], f[i], o[i]) : 0.0f;
            store8(y + (u64)own * cols, at, cols, v[b]);
        }
    }
}

// Per part of rows and column: Σ dy and Σ dy·x̂, x̂ = (x − mean)·scale. dy, x [rows, cols], partials [parts, 2, cols].
// launch: grid (ceil(cols/64), parts), block 256
extern "C" __global__ void __launch_bounds__(THREADS, 2)
batch_norm_sums(const act* __restrict__ dy, const act* __restrict__ x, const u32* valid, const float* mean,
                const float* scale, u32 rows, u32 cols, float* __restrict__ partials, u32 parts) {
    constexpr u32 BATCH = 4;
    uint2 range = part_rows(blockIdx.y, (rows + parts - 1) / parts, *valid);
    u32 group = threadIdx.x / 8, at = blockIdx.x * COLUMNS + threadIdx.x % 8 * 8;
    float beta[8] = {}, gamma[8] = {};
    if (at < cols) {
        float m[8], s[8];
        load8(mean, at, cols, m);
        load8(scale, at, cols, s);
        for (u32 row = range.x + group; row < range.y; row += BATCH * GROUPS) {
            float v[2 * BATCH][8];  // dy and x in turn
            auto from = [&](u32 b) {
                u32 own = row + b / 2 * GROUPS;
                return own < range.y ? (b % 2 ? x : dy) + (u64)own * cols : nullptr;
            };
            load_rows<2 * BATCH>(from, at, cols, v);
#pragma unroll
            for (u32 b = 0; b < 2 * BATCH; b += 2) {
#pragma unroll
                for (int i = 0; i < 8; i++) {
                    beta[i] += v[b][i];
                    gamma[i] = fmaf(v[b][i], (v[b + 1][i] - m[i]) * s[i], gamma[i]);
                }
            }
        }
    }
    float2 total = sum_groups(beta, gamma);
    u32 column = blockIdx.x * COLUMNS + threadIdx.x;
    if (threadIdx.x >= COLUMNS || column >= cols) return;
    float* out = partials + (u64)blockIdx.y * 2 * cols;
    out[column] = total.x;
    out[cols + column] = total.y;
}

// dβ (+)= Σ dy, dγ (+)= Σ dy·x̂, dx (+)= γ·scale·(dy − (Σ dy + x̂·Σ dy·x̂)/n) with a batch's statistics (`of_batch` and
// more than one valid row), γ·scale·dy otherwise; sums from the `partials` of batch_norm_sums. d_gamma, d_beta [cols]
// and dx [rows, cols] may each be null. Rows that do not count get zeros, or stay as they are if `add_dx`.
// launch: grid (ceil(cols/64), dx ? parts : 1), block 256; another number of blocks over the rows is right, too
extern "C" __global__ void __launch_bounds__(THREADS, 2)
batch_norm_backward(const act* __restrict__ dy, const act* __restrict__ x, const u32* valid, const float* mean,
                    const float* scale, const float* gamma, const float* partials, u32 parts, u32 of_batch,
                    float* d_gamma, u32 add_gamma, float* d_beta, u32 add_beta, act* __restrict__ dx, u32 add_dx,
                    u32 rows, u32 cols) {
    constexpr u32 BATCH = 3;
    __shared__ float sums[2][QUARTERS][COLUMNS];
    __shared__ alignas(16) float centre[COLUMNS], factor[COLUMNS], slope[COLUMNS], offset[COLUMNS];
    u32 count = *valid, place = threadIdx.x % COLUMNS, column = blockIdx.x * COLUMNS + place;
    u32 near = min(column, cols - 1);
    float average = mean[near], inverse = scale[near], steep = gamma[near] * inverse;
    auto partial = [&](u32 part, u32 which) { return partials[((u64)part * 2 + which) * cols + near]; };
    float beta_sum = sum_parts(parts, sums[0], [&](u32 p) { return partial(p, 0); });
    float gamma_sum = sum_parts(parts, sums[1], [&](u32 p) { return partial(p, 1); });
    if (threadIdx.x < COLUMNS && column < cols) {
        if (blockIdx.y == 0) {
            if (d_gamma != nullptr) d_gamma[column] = gamma_sum + (add_gamma ? d_gamma[column] : 0.0f);
            if (d_beta != nullptr) d_beta[column] = beta_sum + (add_beta ? d_beta[column] : 0.0f);
        }
        // dx = factor·dy + slope·(x − mean) + offset
        float share = of_batch && count > 1 ? 1.0f / (float)count : 0.0f;
        centre[place] = average, factor[place] = steep;
        slope[place] = -steep * share * gamma_sum * inverse, offset[place] = -steep * share * beta_sum;
    }
    __syncthreads();
    u32 group = threadIdx.x / 8, lane = threadIdx.x % 8, at = blockIdx.x * COLUMNS + 8 * lane;
    if (dx == nullptr || at >= cols) return;
    float m[8], f[8], s[8], o[8];
    load8(centre, 8 * lane, COLUMNS, m);
    load8(factor, 8 * lane, COLUMNS, f);
    load8(slope, 8 * lane, COLUMNS, s);
    load8(offset, 8 * lane, COLUMNS, o);
    u32 stride = gridDim.y * GROUPS;
    for (u32 row = blockIdx.y * GROUPS + group; row < rows; row += BATCH * stride) {
        float v[2 * BATCH][8];  // dy and x in turn
        auto from = [&](u32 b) {
            u32 own = row + b / 2 * stride;
            return own < count ? (b % 2 ? x : dy) + (u64)own * cols : nullptr;
        };
        load_rows<2 * BATCH>(from, at, cols, v);
#pragma unroll
        for (u32 b = 0; b < BATCH; b++) {
            u32 own = row + b * stride;
            if (own >= (add_dx ? count : rows)) return;
            float d[8];
#pragma unroll
            for (int i = 0; i < 8; i++) {
                float value = fmaf(f[i], v[2 * b][i], fmaf(s[i], v[2 * b + 1][i] - m[i], o[i]));
                d[i] = own < count ? value : 0.0f;
            }
            put8(dx + (u64)own * cols, at, cols, d, add_dx);
        }
    }
}
