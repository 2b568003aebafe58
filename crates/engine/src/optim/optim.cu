// Optimisers over the flat buffers of parameter groups, the gradient's norm, and the copies of weights in `act`.
//
// A step that fails (a loss or norm that is not finite) sets *failed; the kernels that change weights then do nothing.

struct AdamConstants {
    float beta1, beta2, epsilon;
};

// g' = clip·g; m = β₁m + (1−β₁)g'; v = β₂v + (1−β₂)g'²; p −= live[1]·p; p −= live[0]·m/(√v + ε), where live[0] is
// rate·√(1−β₂ᵗ)/(1−β₁ᵗ) and live[1] is rate·decay; shadow = p (if not null). clip may be null: 1.
// launch: grid (ceil(n / 2048)), block (256), shared 0
extern "C" __global__ void adam(float* p, act* shadow, const float* g, float* m, float* v, AdamConstants c,
                                const float* live, const float* clip, const u32* failed, u64 n) {
    const u64 at = first_of_run();
    if (at >= n || *failed != 0) return;
    const int length = run_length(at, n);
    const float size = live[0], decay = live[1], factor = clip != nullptr ? *clip : 1.0f;
    float weight[8], gradient[8], first[8], second[8];
    load8(p + at, 0, length, weight);
    load8(g + at, 0, length, gradient);
    load8(m + at, 0, length, first);
    load8(v + at, 0, length, second);
#pragma unroll
    for (int i = 0; i < 8; i++) {
        const float d = gradient[i] * factor;
        first[i] = fmaf(c.beta1, first[i], (1.0f - c.beta1) * d);
        second[i] = fmaf(c.beta2, second[i], (1.0f - c.beta2) * d * d);
        const float decayed = fmaf(decay, -weight[i], weight[i]);
        weight[i] = fmaf(size, -first[i] / (sqrtf(second[i]) + c.epsilon), decayed);
    }
    store8(p + at, 0, length, weight);
    store8(m + at, 0, length, first);
    store8(v + at, 0, length, second);
    if (shadow != nullptr) store8(shadow + at, 0, length, weight);
}

// Nesterov's accelerated gradient: g' = *clip·g; p −= live[1]·p; p += live[0]·(μ²u − (1+μ)g'); u = μu − g', where live[0]
// is the rate and live[1] is rate·decay; shadow = p (if not null).
// launch: grid (ceil(n / 2048)), block (256), shared 0
extern "C" __global__ void nag(float* p, act* shadow, const float* g, float* u, float momentum, const float* live,
                               const float* clip, const u32* failed, u64 n) {
    const u64 at = first_of_run();
    if (at >= n || *failed != 0) return;
    const int length = run_length(at, n);
    const float rate = live[0], decay = live[1], factor = *clip;
    float weight[8], gradient[8], velocity[8];
    load8(p + at, 0, length, weight);
    load8(g + at, 0, length, gradient);
    load8(u + at, 0, length, velocity);
#pragma unroll
    for (int i = 0; i < 8; i++) {
        const float d = gradient[i] * factor;
        const float step = fmaf(momentum * momentum, velocity[i], -(1.0f + momentum) * d);
        weight[i] = fmaf(rate, step, fmaf(decay, -weight[i], weight[i]));
        velocity[i] = fmaf(momentum, velocity[i], -d);
    }
    store8(p + at, 0, length, weight);
    store8(u + at, 0, length, velocity);
    if (shadow != nullptr) store8(shadow + at, 0, length, weight);
}

// p −= rate·g; shadow = p (if not null)
// launch: grid (ceil(n / 2048)), block (256), shared 0
extern "C" __global__ void sgd(float* p, act* shadow, const float* g, const float* rate, const u32* failed, u64 n) {
    const u64 at = first_of_run();
    if (at >= n || *failed != 0) return;
    const int length = run_length(at, n);
    float weight[8], gradient[8];
    load8(p + at, 0, length, weight);
    load8(g + at, 0, length, gradient);
#pragma unroll
    for (int i = 0; i < 8; i++) weight[i] = fmaf(*rate, -gradient[i], weight[i]);
    store8(p + at, 0, length, weight);
    if (shadow != nullptr) store8(shadow + at, 0, length, weight);
}

// g[i] is negated if bit i mod 128 of the Philox block ⌊i/128⌋ (column) of row 0 is set
// launch: grid (ceil(n / 2048)), block (256), shared 0
extern "C" __global__ void random_signs(float* g, u32 key0, u32 key1, u32 stream, u32 step, u64 n) {
    const u64 at = first_of_run();
    if (at >= n) return;
    const uint4 block = philox(make_uint4((u32)(at / 128), 0, stream, step), key0, key1);
    const u32 words[4] = {block.x, block.y, block.z, block.w};
    const u32 first = (u32)(at % 128);
    const u32 bits = words[first / 32] >> (first % 32);
    float gradient[8];
    load8(g + at, 0, run_length(at, n), gradient);
#pragma unroll
    for (int i = 0; i < 8; i++) {
        if ((bits >> i) & 1u) gradient[i] = -gradient[i];
    }
    store8(g + at, 0, run_length(at, n), gradient);
}

// dst = src, rounded to `act`
// launch: grid (ceil(n / 2048)), block (256), shared 0
extern "C" __global__ void to_act(const float* src, act* dst, u64 n) {
    const u64 at = first_of_run();
    if (at >= n) return;
    float v[8];
    load8(src + at, 0, run_length(at, n), v);
    store8(dst + at, 0, run_length(at, n), v);
}

// ---- norm --------------------------------------------------------------------------------------------------------

// The sum over a block of SUM_THREADS threads, by a tree; thread 0 gets it.
__device__ __forceinline__ double block_sum(double value) {
    __shared__ double sums[SUM_THREADS];
    sums[threadIdx.x] = value;
    for (int half = SUM_THREADS / 2; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half) sums[threadIdx.x] += sums[threadIdx.x + half];
    }
    return sums[0];
}

// partials[block] = Σ g² over the block's runs of g, which are every gridDim.x-th row of 2048 values
// launch: grid (NORM_PARTS), block (SUM_THREADS), shared 0
extern "C" __global__ void squares(const float* g, u64 n, double* partials) {
    double total = 0.0;
    for (u64 at = first_of_run(); at < n; at += 8 * (u64)gridDim.x * SUM_THREADS) {
        float v[8];
        load8(g + at, 0, run_length(at, n), v);
#pragma unroll
        for (int i = 0; i < 8; i++) total += (double)v[i] * (double)v[i];
    }
    total = block_sum(total);
    if (threadIdx.x == 0) partials[blockIdx.x] = total;
}

__device__ __forceinline__ bool is_finite(double value) {
    return fabs(value) <= 1.7976931348623157e308;
}

// norm = √Σ partials (all groups' lie end to end); *norm_out = norm; *clip_out = min(1, limit/(norm + 10⁻⁶)), or 1
// without a limit; *failed = 1 if the norm or one of the two loss sums is not finite (it is never reset here).
// loss_sums, clip_out may be null. (`norm` is a name of CUDA's own.)
// launch: grid (1), block (256), shared 0
extern "C" __global__ void gradient_norm(const double* partials, u32 count, const double* loss_sums, double* norm_out,
                                         float clip_limit, float* clip_out, u32* failed) {
    double total = 0.0;
    for (u32 i = threadIdx.x; i < count; i += SUM_THREADS) total += partials[i];
    total = block_sum(total);
    if (threadIdx.x != 0) return;
    const double norm = sqrt(total);
    *norm_out = norm;
    if (clip_out != nullptr) *clip_out = clip_limit > 0.0f ? (float)fmin(1.0, clip_limit / (norm + 1e-6)) : 1.0f;
    const bool losses_finite = loss_sums == nullptr || (is_finite(loss_sums[0]) && is_finite(loss_sums[1]));
    if (!is_finite(norm) || !losses_finite) *failed = 1;
}
