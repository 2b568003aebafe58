// The label-smoothed loss of logits l against targets y: with p = softmax(l), per row
// (1−ε)·(−ln p_y) + (ε/V)·Σ_v (−ln p_v); its gradient by l is p − (1−ε)·1_y − ε/V.

#define LOG2_E 1.4426950408889634f
#define LOWEST -3.0e38f          // finite: LOWEST − LOWEST is 0, where −∞ would give NaN
#define KEPT_BYTES (96 * 1024)   // a row up to this size is kept in shared memory

__device__ __forceinline__ float power(float x) {
    return exp2f(x * LOG2_E);
}

// Σ exp(l − highest), highest = max l, and Σ l, of some of the logits of a row.
struct Softmax {
    float highest, sum, total;

    __device__ __forceinline__ void take(float v[8], int at, int types) {
        float high = highest, added = 0.0f;
#pragma unroll
        for (int i = 0; i < 8; i++) {
            total += v[i];
            if ((types & 7) != 0 && at + i >= types) v[i] = LOWEST;
            high = fmaxf(high, v[i]);
        }
#pragma unroll
        for (int i = 0; i < 8; i++) added += power(v[i] - high);
        sum = fmaf(sum, power(highest - high), added);
        highest = high;
    }

    // Those of all lanes of the warp together.
    __device__ __forceinline__ void join() {
        const float high = warp_max(highest);
        sum = warp_sum(sum * power(highest - high));
        total = warp_sum(total);
        highest = high;
    }
};

// `keep`: the row stays in shared memory for the gradient, else it is read again.
__device__ __forceinline__ void row_loss(act* row, u32 target, float smoothing, float weight, float* log_prob,
                                         float* losses, bool gradient_wanted, bool keep, int types) {
    extern __shared__ __align__(16) unsigned char kept_bytes[];
    __shared__ Softmax of_warp[32];
    act* kept = (act*)kept_bytes;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, step = 8 * blockDim.x;
    const float target_logit = as_float(row[target]);

    Softmax all = {LOWEST, 0.0f, 0.0f};
    const int last = (types - 1) & ~7;
    float v[8], next[8];
    load8(row, min(8 * (int)threadIdx.x, last), types, next);
    for (int at = 8 * threadIdx.x; at < types; at += step) {
#pragma unroll
        for (int i = 0; i < 8; i++) v[i] = next[i];
        load8(row, min(at + step, last), types, next);  // under way while v is worked on
        if (keep) store8(kept, at, types, v);
        all.take(v, at, types);
    }
    all.join();
    if (lane == 0) of_warp[warp] = all;
    __syncthreads();
    all = lane < blockDim.x / 32 ? of_warp[lane] : Softmax{LOWEST, 0.0f, 0.0f};
    all.join();

    if (threadIdx.x == 0) {
        const float log_sum = all.highest + logf(all.sum), nll = log_sum - target_logit;
        const float smooth = log_sum - all.total / types;
        *log_prob = -nll;
        losses[0] = (1.0f - smoothing) * nll + smoothing * smooth;
        losses[1] = nll;
    }
    if (!gradient_wanted) return;
    const float factor = weight / all.sum, even = smoothing / types * weight, peak = (1.0f - smoothing) * weight;
    for (int at = 8 * threadIdx.x; at < types; at += step) {
        load8(keep ? kept : row, at, types, v);
#pragma unroll
        for (int i = 0; i < 8; i++) v[i] = fmaf(power(v[i] - all.highest), factor, -even);
        if (target - at < 8) {
#pragma unroll
            for (int i = 0; i < 8; i++) v[i] -= target == at + i ? peak : 0.0f;
        }
        store8(row, at, types, v);
    }
}

// For row = first_row + block: log_probs[row] = ln p_y, losses[row] = {smoothed loss, −ln p_y}, and, if wanted, logits
// turn into (p − (1−ε)·1_y − ε/V)·*weight. logits [gridDim.x, types]; targets, log_probs [N], losses [N, 2]. Rows from
// *valid_rows on get zeros.
// launch: grid (rows), block (types ≤ 8192 ? 256 : 512), shared: types·sizeof(act) if gradient_wanted, types % 8 == 0
// and that is at most 98304 (beyond 48 KB the function must be allowed to), else 0
extern "C" __global__ void __launch_bounds__(512)
    loss_rows(act* logits, const u32* targets, float smoothing, const float* weight, float* log_probs, float* losses,
              const u32* valid_rows, u32 first_row, u32 types, u32 gradient_wanted) {
    const u32 row = first_row + blockIdx.x;
    act* own = logits + (u64)blockIdx.x * types;
    log_probs += row;
    losses += 2 * (u64)row;
    if (row >= *valid_rows) {
        float zeros[8] = {};
        const int end = gradient_wanted ? types : 0;
        for (int at = 8 * threadIdx.x; at < end; at += 8 * blockDim.x) store8(own, at, types, zeros);
        if (threadIdx.x == 0) *log_probs = losses[0] = losses[1] = 0.0f;
        return;
    }
    const int wide = types & ~7u;  // known to be a multiple of 8, so that load8 has no branch
    if (types != wide) {
        row_loss(own, targets[row], smoothing, *weight, log_probs, losses, gradient_wanted, false, types);
    } else if (gradient_wanted && types * sizeof(act) <= KEPT_BYTES) {
        row_loss(own, targets[row], smoothing, *weight, log_probs, losses, true, true, wide);
    } else {
        row_loss(own, targets[row], smoothing, *weight, log_probs, losses, gradient_wanted, false, wide);
    }
}

#define SUM_THREADS 512

// sums[0] (+)= Σ losses[r][0], sums[1] (+)= Σ losses[r][1] over all rows
// launch: grid (1), block (512), shared 0
extern "C" __global__ void loss_sum(const float* losses, u32 rows, double* sums, u32 add) {
    __shared__ double parts[2][SUM_THREADS];
    double smoothed = 0.0, nll = 0.0;
#pragma unroll 8
    for (u32 row = threadIdx.x; row < rows; row += SUM_THREADS) {
        const float2 loss = ((const float2*)losses)[row];
        smoothed += loss.x;
        nll += loss.y;
    }
    parts[0][threadIdx.x] = smoothed;
    parts[1][threadIdx.x] = nll;
    for (u32 half = SUM_THREADS / 2; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.x < 2 * half) {
            double* part = parts[threadIdx.x / half] + threadIdx.x % half;
            part[0] += part[half];
        }
    }
    __syncthreads();
    if (threadIdx.x < 2) sums[threadIdx.x] = (add ? sums[threadIdx.x] : 0.0) + parts[threadIdx.x][0];
}
