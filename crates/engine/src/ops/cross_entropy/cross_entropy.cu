// The label-smoothed loss of logits l against targets y: with p = softmax(l), per row
// (1−ε)·(−ln p_y) + (ε/V)·Σ_v (−ln p_v); its gradient by l is p − (1−ε)·1_y − ε/V.
// The softmax of a row, and its pitch: softmax_row.cuh.

// KEPT_BYTES: a row up to this size is kept in shared memory.

// `keep`: the row stays in shared memory for the gradient, else it is read again.
__device__ __forceinline__ void row_loss(act* row, u32 target, float smoothing, float weight, float* log_prob,
                                         float* losses, bool gradient_wanted, bool keep, int types, int pitch) {
    extern __shared__ __align__(16) unsigned char kept_bytes[];
    act* kept = (act*)kept_bytes;
    const float target_logit = as_float(row[target]);
    const Softmax all = softmax_of_row(row, keep ? kept : nullptr, types, pitch);
    if (threadIdx.x == 0) {
        const float log_sum = all.highest + logf(all.sum), nll = log_sum - target_logit;
        const float smooth = log_sum - all.total / types;
        *log_prob = -nll;
        losses[0] = (1.0f - smoothing) * nll + smoothing * smooth;
        losses[1] = nll;
    }
    if (!gradient_wanted) return;
    const float factor = weight / all.sum, even = smoothing / types * weight, peak = (1.0f - smoothing) * weight;
    for (int at = 8 * threadIdx.x; at < pitch; at += 8 * blockDim.x) {
        float v[8];
        load8(keep ? kept : row, at, pitch, v);
#pragma unroll
        for (int i = 0; i < 8; i++) v[i] = fmaf(power(v[i] - all.highest), factor, -even);
        if (target - at < 8) {
#pragma unroll
            for (int i = 0; i < 8; i++) v[i] -= target == at + i ? peak : 0.0f;
        }
        store8(row, at, pitch, v);
    }
}

// For row = first_row + block: log_probs[row] = ln p_y, losses[row] = {smoothed loss, −ln p_y}, and, if wanted, logits
// turn into (p − (1−ε)·1_y − ε/V)·*weight. logits [gridDim.x, pitch]; targets, log_probs [N], losses [N, 2]. Rows from
// *valid_rows on get zeros.
// launch: grid (rows), block (up to ROW_THREADS), shared: pitch·sizeof(act) if gradient_wanted and that is at most
// KEPT_BYTES (beyond 48 KB the function must be allowed to), else 0
extern "C" __global__ void __launch_bounds__(ROW_THREADS)
    loss_rows(act* logits, const u32* targets, float smoothing, const float* weight, float* log_probs, float* losses,
              const u32* valid_rows, u32 first_row, u32 types, u32 gradient_wanted) {
    const u32 row = first_row + blockIdx.x;
    const int pitch = (types + 7) & ~7u;  // known to be a multiple of 8, so that load8 has no branch
    act* own = logits + (u64)blockIdx.x * pitch;
    log_probs += row;
    losses += 2 * (u64)row;
    if (row >= *valid_rows) {
        float zeros[8] = {};
        const int end = gradient_wanted ? pitch : 0;
        for (int at = 8 * threadIdx.x; at < end; at += 8 * blockDim.x) store8(own, at, pitch, zeros);
        if (threadIdx.x == 0) *log_probs = losses[0] = losses[1] = 0.0f;
        return;
    }
    const bool keep = gradient_wanted && pitch * sizeof(act) <= KEPT_BYTES;
    auto loss = [&](bool keep, int types) {
        row_loss(own, targets[row], smoothing, *weight, log_probs, losses, gradient_wanted, keep, types, pitch);
    };
    if (types == pitch) {
        keep ? loss(true, pitch) : loss(false, pitch);
    } else {
        keep ? loss(true, types) : loss(false, types);
    }
}

// ---- sums --------------------------------------------------------------------------------------------------------

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
