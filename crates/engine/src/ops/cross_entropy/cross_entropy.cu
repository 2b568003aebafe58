// The label-smoothed loss of logits l against targets y: with p = softmax(l), per row
// (1−ε)·(−ln p_y) + (ε/V)·Σ_v (−ln p_v); its gradient by l is p − (1−ε)·1_y − ε/V.
//
// Rows of V logits have a pitch of V rounded up to 8, so that every row begins on 16 bytes; what lies between is garbage.

#define LOG2_E 1.4426950408889634f
#define LOWEST -3.0e38f          // finite: LOWEST − LOWEST is 0, where −∞ would give NaN
// KEPT_BYTES: a row up to this size is kept in shared memory.

__device__ __forceinline__ float power(float x) {
    return exp2f(x * LOG2_E);
}

// Σ exp(l − highest), highest = max l, and Σ l, of some of the logits of a row.
struct Softmax {
    float highest, sum, total;

    __device__ __forceinline__ void take(float v[8], int at, int types, int pitch) {
        float high = highest, added = 0.0f;
#pragma unroll
        for (int i = 0; i < 8; i++) {
            const bool inside = types == pitch || at + i < types;
            total += inside ? v[i] : 0.0f;
            v[i] = inside ? v[i] : LOWEST;
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

// The softmax of the block's row, which is also put into `kept`, if that is not null.
__device__ __forceinline__ Softmax softmax_of_row(const act* row, act* kept, int types, int pitch) {
    __shared__ Softmax of_warp[32];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, step = 8 * blockDim.x;
    Softmax all = {LOWEST, 0.0f, 0.0f};
    float v[8], next[8];
    load8(row, min(8 * (int)threadIdx.x, pitch - 8), pitch, next);
    for (int at = 8 * threadIdx.x; at < pitch; at += step) {
#pragma unroll
        for (int i = 0; i < 8; i++) v[i] = next[i];
        load8(row, min(at + step, pitch - 8), pitch, next);  // under way while v is worked on
        if (kept != nullptr) store8(kept, at, pitch, v);
        all.take(v, at, types, pitch);
    }
    all.join();
    __syncthreads();  // of_warp may still be read for the row before
    if (lane == 0) of_warp[warp] = all;
    __syncthreads();
    all = lane < blockDim.x / 32 ? of_warp[lane] : Softmax{LOWEST, 0.0f, 0.0f};
    all.join();
    return all;
}

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

// ---- adaptive softmax --------------------------------------------------------------------------------------------

// What row i < *valid of a tail loses is row rows[i]'s loss, too: log_probs and losses of the tail, [count] and
// [count, 2], are added to those of all rows. No row is named twice.
// launch: grid (ceil(count / 256)), block (256), shared 0
extern "C" __global__ void add_tail(const float* tail_log_probs, const float* tail_losses, const u32* rows,
                                    const u32* valid, float* log_probs, float* losses, u32 count) {
    const u32 i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= min(count, *valid)) return;
    const u32 row = rows[i];
    const float2 own = ((const float2*)tail_losses)[i];
    float2* all = (float2*)losses + row;
    log_probs[row] += tail_log_probs[i];
    *all = make_float2(all->x + own.x, all->y + own.y);
}

// ln p of the words of one band, `count` columns of y from `first` on; y [rows, types]. Band 0 (tail is null): the head's
// first logits less ln Σ exp; another one: ln p_tail + ln p_head(class_of_tail). head and tail [rows, their pitch].
// launch: grid (rows), block (512), shared 0
extern "C" __global__ void __launch_bounds__(ROW_THREADS)
    band_log_probs(const act* head, u32 head_types, u32 class_of_tail, const act* tail, act* y, u32 first, u32 count,
                   u32 types) {
    const u32 row = blockIdx.x;
    const int head_pitch = (head_types + 7) & ~7u, tail_pitch = (count + 7) & ~7u;
    head += (u64)row * head_pitch;
    Softmax sums = softmax_of_row(head, nullptr, head_types, head_pitch);
    const act* from = head;
    float offset = -(sums.highest + logf(sums.sum));
    if (tail != nullptr) {
        from = tail + (u64)row * tail_pitch;
        offset += as_float(head[class_of_tail]);
        sums = softmax_of_row(from, nullptr, count, tail_pitch);
        offset -= sums.highest + logf(sums.sum);
    }
    y += (u64)row * types + first;  // at any address
#pragma unroll 8
    for (u32 c = threadIdx.x; c < count; c += blockDim.x) y[c] = as_act(as_float(from[c]) + offset);
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
