// What follows the product of a linear layer: Y = dropout(act(Z + b)), and its gradient.
//
// A thread takes a run of eight columns in ROWS rows at a time, whose loads are under way together.

// IDENTITY, RELU and TANH are the kinds of activation.

// ---- forward -----------------------------------------------------------------------------------------------------

template <int ROWS>
__device__ __forceinline__ void forward_tail(const act* z, const float* bias, u32 kind, const Dropout& dropout, act* y,
                                             u32 rows, int cols) {
    const u32 run = blockIdx.x * FORWARD_RUNS + threadIdx.x % FORWARD_RUNS;
    const u32 first = blockIdx.y * FORWARD_ROWS + threadIdx.x / FORWARD_RUNS;
    const u32 end = min(rows, blockIdx.y * FORWARD_ROWS + FORWARD_ROWS);
    const int at = 8 * run;
    if (at >= cols) return;
    float b[8] = {};
    if (bias != nullptr) load8(bias, at, cols, b);
    for (u32 base = first; base < end; base += FORWARD_LANES * ROWS) {
        float v[ROWS][8];
#pragma unroll
        for (int k = 0; k < ROWS; k++) {
            const u32 row = base + FORWARD_LANES * k;
            if (row < end) load8(z + (u64)row * cols, at, cols, v[k]);
        }
#pragma unroll
        for (int k = 0; k < ROWS; k++) {
            const u32 row = base + FORWARD_LANES * k;
            if (row >= end) break;
            float f[8];
            dropout8(dropout, row, run, f);
#pragma unroll
            for (int i = 0; i < 8; i++) {
                const float z = v[k][i] + b[i];
                v[k][i] = f[i] * (kind == RELU ? fmaxf(z, 0.0f) : kind == TANH ? tanhf(z) : z);
            }
            store8(y + (u64)row * cols, at, cols, v[k]);
        }
    }
}

// Y = dropout(act(Z + b)); z, y [rows, cols], which may be the same memory, bias [cols] (or null).
// launch: grid (ceil(cols / 512), ceil(rows / 16)), block (256), shared 0
extern "C" __global__ void __launch_bounds__(256)
    bias_act_forward(const act* z, const float* bias, u32 kind, Dropout dropout, act* y, u32 rows, u32 cols) {
    if ((cols & 7) == 0) {
        // `cols & ~7` is known to be a multiple of 8, so that load8 has no branch.
        forward_tail<4>(z, bias, kind, dropout, y, rows, cols & ~7u);
    } else {
        forward_tail<1>(z, bias, kind, dropout, y, rows, cols);
    }
}

// ---- backward ----------------------------------------------------------------------------------------------------

// dY to dZ for a run; the slope is read off Y, which dropout has scaled: kept values times 1/scale are the activations.
__device__ __forceinline__ void slope_run(const float y[8], u32 kind, const Dropout& dropout, u32 row, u32 run,
                                          float d[8]) {
    float f[8];
    if (kind == RELU) {
        // A dropped unit has Y = 0, as one that is off: no mask is needed.
        const float scale = dropout.threshold != 0 ? dropout.scale : 1.0f;
#pragma unroll
        for (int i = 0; i < 8; i++) d[i] = y[i] > 0.0f ? d[i] * scale : 0.0f;
        return;
    }
    const float back = dropout.threshold != 0 ? 1.0f / dropout.scale : 1.0f;
    dropout8(dropout, row, run, f);
#pragma unroll
    for (int i = 0; i < 8; i++) {
        const float value = y[i] * back;
        d[i] *= f[i] * (kind == TANH ? fmaf(value, -value, 1.0f) : 1.0f);
    }
}

template <int ROWS>
__device__ __forceinline__ void backward_tail(act* dy, const act* y, u32 kind, const Dropout& dropout, float* partials,
                                              u32 first, u32 end, int cols) {
    __shared__ float sums[BACKWARD_LANES][8 * BACKWARD_RUNS];
    const bool rewrite = kind != IDENTITY || dropout.threshold != 0;
    const u32 lane = threadIdx.x / BACKWARD_RUNS, place = threadIdx.x % BACKWARD_RUNS;
    const u32 run = blockIdx.x * BACKWARD_RUNS + place;
    const int at = 8 * run;
    float total[8] = {};
    for (u32 base = first + lane; at < cols && base < end; base += BACKWARD_LANES * ROWS) {
        float d[ROWS][8], value[ROWS][8];
#pragma unroll
        for (int k = 0; k < ROWS; k++) {
            // What is not there is replaced by the first row, or by dY: no branch keeps the loads apart.
            const u32 row = base + BACKWARD_LANES * k < end ? base + BACKWARD_LANES * k : base;
            load8(dy + (u64)row * cols, at, cols, d[k]);
            load8((kind != IDENTITY ? y : dy) + (u64)row * cols, at, cols, value[k]);
        }
#pragma unroll
        for (int k = 0; k < ROWS; k++) {
            const u32 row = base + BACKWARD_LANES * k;
            if (row >= end) break;
            if (rewrite) {
                slope_run(value[k], kind, dropout, row, run, d[k]);
                store8(dy + (u64)row * cols, at, cols, d[k]);
            }
#pragma unroll
            for (int i = 0; i < 8; i++) total[i] += d[k][i];
        }
    }
    if (partials == nullptr) return;
    store8(sums[lane], 8 * place, 8 * BACKWARD_RUNS, total);
    __syncthreads();
    const int c = 8 * BACKWARD_RUNS * blockIdx.x + threadIdx.x;
    if (threadIdx.x >= 8 * BACKWARD_RUNS || c >= cols) return;
    float all = 0.0f;
#pragma unroll
    for (int l = 0; l < BACKWARD_LANES; l++) all += sums[l][threadIdx.x];
    partials[(u64)blockIdx.y * cols + c] = all;
}

// dZ = dY·factors·act'(Z) in place, the slope being read off Y; partials [parts, cols] (or null) = Σ dZ over the part's
// rows. Identity without dropout: the sums alone, nothing is rewritten. Y is read for ReLU and tanh only.
// launch: grid (ceil(cols / 128), ceil(rows / rows_per_part)), block (256), shared 0;
// rows_per_part = 64·ceil(rows / 6400): up to 100 parts, a thread takes a multiple of four rows
extern "C" __global__ void __launch_bounds__(256)
    bias_act_backward(act* dy_to_dz, const act* y, u32 kind, Dropout dropout, float* partials, u32 rows, u32 cols,
                      u32 rows_per_part) {
    const u32 first = blockIdx.y * rows_per_part, end = min(rows, first + rows_per_part);
    if ((cols & 7) == 0) {
        backward_tail<4>(dy_to_dz, y, kind, dropout, partials, first, end, cols & ~7u);
    } else {
        backward_tail<1>(dy_to_dz, y, kind, dropout, partials, first, end, cols);
    }
}
