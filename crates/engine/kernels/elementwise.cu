// Copies and conversions, and the last stage of all column sums.

// ---- arrays of n values: a thread takes a run of eight -----------------------------------------------------------
// launch of each: grid (ceil(n / 2048)), block (256), shared 0

template <typename From, typename To>
__device__ __forceinline__ void copy_run(const From* src, To* dst, u64 n, bool add) {
    const u64 at = first_of_run();
    if (at >= n) return;
    const int length = run_length(at, n);
    float v[8];
    load8(src + at, 0, length, v);
    put8(dst + at, 0, length, v, add);
}

// total += values
extern "C" __global__ void add(act* total, const act* values, u64 n) {
    copy_run(values, total, n, true);
}

// total += values
extern "C" __global__ void add_float(float* total, const float* values, u64 n) {
    copy_run(values, total, n, true);
}

// dst = src, or dst += src, as float
extern "C" __global__ void from_act(const act* src, float* dst, u64 n, u32 add) {
    copy_run(src, dst, n, add != 0);
}

// ---- rows: 64 threads take 64 runs of a row, a block four rows ---------------------------------------------------
// launch of each: grid (ceil(cols / 512), ceil(count / 4)), block (256), shared 0

// y[i] = x[rows[i]] for i < *valid, 0 for the others; y [count, cols]
extern "C" __global__ void take_rows(const act* x, const u32* rows, const u32* valid, act* y, u32 count, u32 cols) {
    const Place p = place_of_thread();
    if (p.row >= count || p.at >= cols) return;
    float v[8] = {};
    if (p.row < *valid) load8(x + (u64)rows[p.row] * cols, p.at, cols, v);
    store8(y + (u64)p.row * cols, p.at, cols, v);
}

// y[rows[i]] += x[i] for i < *valid; no row is named twice. x [count, cols]
extern "C" __global__ void give_rows(const act* x, const u32* rows, const u32* valid, act* y, u32 count, u32 cols) {
    const Place p = place_of_thread();
    if (p.row >= min(count, *valid) || p.at >= cols) return;
    float v[8];
    load8(x + (u64)p.row * cols, p.at, cols, v);
    put8(y + (u64)rows[p.row] * cols, p.at, cols, v, true);
}

// ---- column sums -------------------------------------------------------------------------------------------------

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
