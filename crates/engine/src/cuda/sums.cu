// Sums of gradients: contributions of several ops to one value, and sums over the rows of a matrix, which are made in two
// stages.

// ---- arrays of n values: a thread takes a run of eight -----------------------------------------------------------
// launch of each: grid (ceil(n / 2048)), block (256), shared 0

template <typename T>
__device__ __forceinline__ void add_run(T* total, const T* values, u64 n) {
    const u64 at = first_of_run();
    if (at >= n) return;
    const int length = run_length(at, n);
    float v[8];
    load8(values + at, 0, length, v);
    put8(total + at, 0, length, v, true);
}

// total += values
extern "C" __global__ void add(act* total, const act* values, u64 n) {
    add_run(total, values, n);
}

// total += values
extern "C" __global__ void add_float(float* total, const float* values, u64 n) {
    add_run(total, values, n);
}

// ---- column sums, first stage ------------------------------------------------------------------------------------

// partials = Σ of the rows first .. end, at the block's 256 columns; a warp takes every eighth row.
template <u32 ROWS>
__device__ __forceinline__ void sum_part(const act* values, float* partials, u32 first, u32 end, int cols) {
    __shared__ float sums[SUM_LANES][8 * SUM_RUNS];
    const u32 lane = threadIdx.x / SUM_RUNS, place = threadIdx.x % SUM_RUNS;
    const int from = 8 * SUM_RUNS * blockIdx.x, at = from + 8 * place, c = from + threadIdx.x;
    float total[8] = {};
    u32 row = at < cols ? first + lane : end;
    for (; row + SUM_LANES * (ROWS - 1) < end; row += SUM_LANES * ROWS) {
        float v[ROWS][8];
#pragma unroll
        for (u32 k = 0; k < ROWS; k++) load8(values + (u64)(row + SUM_LANES * k) * cols, at, cols, v[k]);
#pragma unroll
        for (u32 k = 0; k < ROWS; k++)
#pragma unroll
            for (int i = 0; i < 8; i++) total[i] += v[k][i];
    }
#pragma unroll 1
    for (; row < end; row += SUM_LANES) {
        float v[8];
        load8(values + (u64)row * cols, at, cols, v);
#pragma unroll
        for (int i = 0; i < 8; i++) total[i] += v[i];
    }
    store8(sums[lane], 8 * place, 8 * SUM_RUNS, total);
    __syncthreads();
    if (c >= cols) return;
    float all = 0.0f;
#pragma unroll
    for (int l = 0; l < SUM_LANES; l++) all += sums[l][threadIdx.x];
    partials[c] = all;
}

// A matrix whose columns are summed: values [rows, cols], partials [ceil(rows / rows_per_part), cols].
struct RowSum {
    const act* values;
    float* partials;
    u32 rows, cols, rows_per_part;
};

struct RowSums {
    RowSum job[MATRICES_PER_LAUNCH];
};

// The partial sums of several matrices at once.
// launch: grid (ceil(max cols / 256), max parts, matrices), block (256), shared 0; rows_per_part =
// 64·max(2, ceil(rows / 6400)): up to 100 parts, a thread takes a multiple of eight rows
extern "C" __global__ void __launch_bounds__(SUM_LANES * SUM_RUNS, BF16 ? 4 : 3) sum_rows(RowSums jobs) {
    const RowSum& job = jobs.job[blockIdx.z];
    const u32 first = blockIdx.y * job.rows_per_part, end = min(job.rows, first + job.rows_per_part);
    if (first >= job.rows || blockIdx.x * 8 * SUM_RUNS >= job.cols) return;
    float* partials = job.partials + (u64)blockIdx.y * job.cols;
    if ((job.cols & 7) == 0) {
        sum_part<8>(job.values, partials, first, end, job.cols & ~7u);
    } else {
        sum_part<1>(job.values, partials, first, end, job.cols);
    }
}

// ---- column sums, last stage -------------------------------------------------------------------------------------

// Row-wise kernels leave sums of the columns over parts of the rows; all of a backward pass are finished together.
struct ColumnSum {
    const float* partials;  // [parts, stride]
    float* out;             // [cols]
    u32 parts, cols, stride, add;
};

struct ColumnJobs {
    ColumnSum job[SUMS_PER_LAUNCH];
    u32 count;
};

// out[c] (+)= Σ_p partials[p·stride + c] for every job. Eight threads share a column: thread l adds the parts l,
// l + 8, ..., then the eight sums are added in order.
// launch: grid (ceil(max cols / 32), count), block (256), shared 0
extern "C" __global__ void reduce_columns(ColumnJobs jobs) {
    __shared__ float sums[SUM_LANES][SUM_COLUMNS];
    const ColumnSum& job = jobs.job[blockIdx.y];
    if (blockIdx.x * SUM_COLUMNS >= job.cols) return;
    const u32 lane = threadIdx.x / SUM_COLUMNS, column = threadIdx.x % SUM_COLUMNS;
    const u32 c = blockIdx.x * SUM_COLUMNS + column;
    const u32 parts = c < job.cols ? job.parts : 0;
    const float* p = job.partials + c;
    float total = 0.0f;
    for (u32 part = lane; part < parts; part += 8 * SUM_LANES) {
        // Zeros for parts that are not there: no branch keeps the loads apart.
        float v[8] = {};
#pragma unroll
        for (u32 k = 0; k < 8; k++)
            if (part + k * SUM_LANES < parts) v[k] = p[(u64)(part + k * SUM_LANES) * job.stride];
#pragma unroll
        for (u32 k = 0; k < 8; k++) total += v[k];
    }
    sums[lane][column] = total;
    __syncthreads();
    if (lane != 0 || c >= job.cols) return;
#pragma unroll
    for (int l = 1; l < SUM_LANES; l++) total += sums[l][column];
    job.out[c] = job.add ? job.out[c] + total : total;
}
