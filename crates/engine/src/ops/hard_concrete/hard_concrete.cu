// Hard concrete gates of heads: g = clip(WIDTH·σ(logit) + LOW, 0, 1), the same for all rows.

__device__ __forceinline__ float sigmoid(float x) {
    return 1.0f / (1.0f + expf(-x));
}

// weights [n, heads]; logit = log a in evaluation (how NOTHING), (logit(u) + log a) / TEMPERATURE with u drawn (DRAWN) or
// (given + 1/2) / STEPS; log a = start + log_a.
// launch: grid ceil(n·heads/256), block 256
extern "C" __global__ void __launch_bounds__(THREADS)
hard_concrete_forward(const float* log_a, float start, Stream stream, u32 how, const u32* given, float* weights, u32 n,
                      u32 heads) {
    u64 at = (u64)blockIdx.x * THREADS + threadIdx.x;
    if (at >= (u64)n * heads) return;
    u32 head = (u32)(at % heads);
    float logit = start + log_a[head];
    if (how != NOTHING) {
        float u = how == DRAWN ? uniform(stream, 0, head) : ((float)given[head] + 0.5f) / STEPS;
        u = fminf(fmaxf(u, MARGIN), 1.0f - MARGIN);
        logit = (logf(u / (1.0f - u)) + logit) / TEMPERATURE;
    }
    weights[at] = fminf(fmaxf(fmaf(WIDTH, sigmoid(logit), LOW), 0.0f), 1.0f);
}

// gradient (+)= dg/d log a·Σ dw + penalty·*batch_rows·*loss_weight·*factor·σ·(1 − σ), σ = σ(log a + CLOSED); batch_rows null:
// no penalty. dw [n, heads]; weights: the gates, of which the first row is read. A block takes a head; its threads take
// rows in turn.
// launch: grid heads, block 256
extern "C" __global__ void __launch_bounds__(THREADS)
hard_concrete_backward(const float* dw, const float* weights, const float* log_a, float start, float temperature,
                       const u32* batch_rows, const float* loss_weight, const float* factor, float penalty,
                       float* gradient, u32 add, u32 n, u32 heads) {
    __shared__ float sums[THREADS / 32];
    u32 head = blockIdx.x;
    float sum = 0.0f;
    for (u32 row = threadIdx.x; row < n; row += THREADS) sum += dw[(u64)row * heads + head];
    sum = warp_sum(sum);
    if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = sum;
    __syncthreads();
    if (threadIdx.x != 0) return;
    float total = 0.0f;
    for (u32 warp = 0; warp < THREADS / 32; warp++) total += sums[warp];
    float g = weights[head], s = (g - LOW) / WIDTH;
    float value = g > 0.0f && g < 1.0f ? WIDTH * s * (1.0f - s) / temperature * total : 0.0f;
    if (batch_rows != nullptr) {
        float open = sigmoid(start + log_a[head] + CLOSED);
        value += penalty * (float)*batch_rows * *loss_weight * *factor * open * (1.0f - open);
    }
    gradient[head] = add ? gradient[head] + value : value;
}
