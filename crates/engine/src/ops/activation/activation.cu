// Smooth activations of a matrix [rows, cols]: a thread takes a run of eight columns of a row.
// launch of each: grid (ceil(cols / 512), ceil(rows / 4)), block (256), shared 0

// SWISH and GELU are the kinds of activation.

__device__ __forceinline__ float sigmoid(float x) {
    return 1.0f / (1.0f + expf(-x));
}

// The distribution function of the normal distribution.
__device__ __forceinline__ float normal(float x) {
    return 0.5f * (1.0f + erff(x * 0.70710678f));
}

// Y / X
__device__ __forceinline__ float share(float x, u32 kind) {
    return kind == GELU ? normal(x) : sigmoid(x);
}

// Y = dropout(act(X))
extern "C" __global__ void activation_forward(const act* x, u32 kind, Dropout dropout, act* y, u32 rows, u32 cols) {
    const u32 row = blockIdx.y * BLOCK_ROWS + threadIdx.x / BLOCK_RUNS;
    const u32 run = blockIdx.x * BLOCK_RUNS + threadIdx.x % BLOCK_RUNS;
    const int at = 8 * run;
    if (row >= rows || at >= cols) return;
    float v[8], f[8];
    load8(x + (u64)row * cols, at, cols, v);
    dropout8(dropout, row, run, f);
#pragma unroll
    for (int i = 0; i < 8; i++) v[i] *= f[i] * share(v[i], kind);
    store8(y + (u64)row * cols, at, cols, v);
}

// dX = dY·factors·act'(X) in place
extern "C" __global__ void activation_backward(const act* x, u32 kind, Dropout dropout, act* dy_to_dx, u32 rows,
                                               u32 cols) {
    const u32 row = blockIdx.y * BLOCK_ROWS + threadIdx.x / BLOCK_RUNS;
    const u32 run = blockIdx.x * BLOCK_RUNS + threadIdx.x % BLOCK_RUNS;
    const int at = 8 * run;
    if (row >= rows || at >= cols) return;
    float v[8], d[8], f[8];
    load8(x + (u64)row * cols, at, cols, v);
    load8(dy_to_dx + (u64)row * cols, at, cols, d);
    dropout8(dropout, row, run, f);
#pragma unroll
    for (int i = 0; i < 8; i++) {
        float slope;
        if (kind == SWISH) {
            const float s = sigmoid(v[i]);
            slope = fmaf(v[i] * (1.0f - s), s, s);
        } else {
            const float density = 0.39894228f * expf(-0.5f * v[i] * v[i]);
            slope = fmaf(v[i], density, normal(v[i]));
        }
        d[i] *= f[i] * slope;
    }
    store8(dy_to_dx + (u64)row * cols, at, cols, d);
}
