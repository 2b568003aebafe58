// Whole rows of log-probabilities: of one model or the mean of several, changed by rules, ranked and drawn from.
//
// chances [rows, types] holds the log-probabilities of what may follow each hypothesis.

// chances[i] = ln softmax(logits[rows[i]] / temperatures[i]), or where `models` came before: the logarithm of the sum of
// probabilities, less `share` in the end.
// launch: grid rows, block up to BEST_THREADS
extern "C" __global__ void __launch_bounds__(BEST_THREADS, 2)
add_log_probs(const act* logits, const u32* rows, const float* temperatures, float* chances, u32 types, u32 models,
              float share) {
    float sharpness = 1.0f / temperatures[blockIdx.x];
    logits += (u64)rows[blockIdx.x] * types;
    chances += (u64)blockIdx.x * types;
    float2 total = log_sum(logits, types, sharpness);
    float base = total.x + total.y;
    for (u32 at = 8 * threadIdx.x; at < types; at += 8 * blockDim.x) {
        float v[8], before[8];
        load8(logits, at, types, v);
        if (models > 0) load8(chances, at, types, before);
#pragma unroll
        for (int i = 0; i < 8; i++) {
            v[i] = v[i] * sharpness - base;
            if (models > 0) {
                float high = fmaxf(v[i], before[i]);
                // Impossible for all of them, or not a number: nothing to add up.
                if (isfinite(high)) v[i] = high + logf(expf(before[i] - high) + expf(v[i] - high));
            }
            v[i] -= share;
        }
        store8(chances, at, types, v);
    }
}

// Makes impossible what must not follow. The token `unknown` is penalised; if there is an only[row], all others are
// impossible. Else `pad` is, `end` where too_short[row], and forbidden[starts[row]] .. forbidden[starts[row + 1]]; a row in
// which these leave nothing possible may end.
// launch: grid rows, block up to BEST_THREADS
extern "C" __global__ void __launch_bounds__(BEST_THREADS)
constrain(float* chances, const float* penalties, const u32* only, const u32* too_short, const u32* starts,
          const u32* forbidden, u32 types, u32 pad, u32 end, u32 unknown) {
    u32 row = blockIdx.x, first = starts[row], last = starts[row + 1];
    chances += (u64)row * types;
    if (threadIdx.x == 0) chances[unknown] -= penalties[row];
    __syncthreads();
    if (only[row] != ANY) {
        float kept = chances[only[row]];
        __syncthreads();
        for (u32 token = threadIdx.x; token < types; token += blockDim.x)
            chances[token] = token == only[row] ? kept : MINUS_INFINITY;
        return;
    }
    float at_end = chances[end];
    __syncthreads();
    if (threadIdx.x == 0) {
        chances[pad] = MINUS_INFINITY;
        if (too_short[row]) chances[end] = MINUS_INFINITY;
    }
    for (u32 i = first + threadIdx.x; i < last; i += blockDim.x) chances[forbidden[i]] = MINUS_INFINITY;
    if (first == last) return;
    __syncthreads();
    int possible = 0;
    for (u32 token = threadIdx.x; token < types; token += blockDim.x) possible |= isfinite(chances[token]) ? 1 : 0;
    if (!__syncthreads_or(possible) && threadIdx.x == 0) chances[end] = at_end;
}

// The `count` best continuations of each row, see take_best: score = scores[row] + chances[row][token].
// launch: grid rows, block up to BEST_THREADS
extern "C" __global__ void __launch_bounds__(BEST_THREADS, 2)
best_chances(const float* chances, u32 types, const float* scores, u32 count, float* best_scores, u32* best_tokens) {
    u64 row = blockIdx.x;
    Scoring<float> scoring = {chances + row * types, types, scores[row], {~0u, ~0u}, ~0u, 0.0f};
    take_best(scoring, false, count, best_scores + row * count, best_tokens + row * count);
}

// ---- draws -----------------------------------------------------------------------------------------------------

__device__ __forceinline__ double warp_sum(double v) {
#pragma unroll
    for (int o = 16; o > 0; o >>= 1) v += __shfl_xor_sync(FULL_WARP, v, o);
    return v;
}

// Sums over the block, the same for every thread.
template <u32 N>
__device__ __forceinline__ void block_sums(double sums[N]) {
    __shared__ double of_warp[N][32];
    u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
    __syncthreads();
#pragma unroll
    for (u32 n = 0; n < N; n++) {
        double sum = warp_sum(sums[n]);
        if (lane == 0) of_warp[n][warp] = sum;
    }
    __syncthreads();
#pragma unroll
    for (u32 n = 0; n < N; n++) sums[n] = warp_sum(lane < warps ? of_warp[n][lane] : 0.0);
}

// The tokens of a row in the order in which a draw goes over them.
struct Order {
    const float* chances;
    u32 types;
    float most;     // the largest of chances that is finite
    bool likelier;  // the likelier first; else the lower token first

    // Larger for those that come earlier; 0 for impossible ones.
    __device__ __forceinline__ u64 key(u32 token) const {
        u64 own = candidate(chances[token], token);
        return own == 0 ? 0 : likelier ? own >> 32 << TOKEN_BITS | (~token & ((1u << TOKEN_BITS) - 1)) : types - token;
    }

    __device__ __forceinline__ u32 bits() const {
        return likelier ? 32 + TOKEN_BITS : TOKEN_BITS;
    }

    __device__ __forceinline__ u32 token(u64 key) const {
        return likelier ? ~(u32)key & ((1u << TOKEN_BITS) - 1) : types - (u32)key;
    }

    // Relative to the likeliest, so that none underflows because all are small.
    __device__ __forceinline__ double weight(u32 token) const {
        return (double)expf(chances[token] - most);
    }

    // Sum of the weights of the tokens from `bound` on.
    __device__ __forceinline__ double total(u64 bound) const {
        double sum[1] = {};
        for (u32 own = threadIdx.x; own < types; own += blockDim.x) {
            u64 at = key(own);
            if (at != 0 && at >= bound) sum[0] += weight(own);
        }
        block_sums<1>(sum);
        return sum[0];
    }

    // The last token that is needed for the sum (or the number) of all up to it to reach `wanted`, or to be more than it:
    // its key, 0 if all together do not. Two bits of the key are found at a time.
    __device__ __forceinline__ u64 reach(double wanted, bool counted, bool more) const {
        u64 bound = 0;
        for (int shift = (int)bits() - 2; shift >= 0; shift -= 2) {
            double sums[3] = {};
            for (u32 own = threadIdx.x; own < types; own += blockDim.x) {
                u64 at = key(own);
                if (at == 0 || at < bound) continue;
                u64 steps = (at - bound) >> shift;
                double part = counted ? 1.0 : weight(own);
#pragma unroll
                for (u32 i = 0; i < 3; i++)
                    if (steps > i) sums[i] += part;
            }
            block_sums<3>(sums);
            u64 taken = 0;
#pragma unroll
            for (u32 i = 0; i < 3; i++)
                if (more ? sums[i] > wanted : sums[i] >= wanted) taken = i + 1;
            bound += taken << shift;
        }
        return bound;
    }

    // The last token that can be drawn at all, of those from `bound` on; 0 if there is none.
    __device__ __forceinline__ u64 last(u64 bound) const {
        __shared__ u64 of_warp[32];
        u64 own = ~(u64)0;
        for (u32 token = threadIdx.x; token < types; token += blockDim.x) {
            u64 at = key(token);
            if (at != 0 && at >= bound && weight(token) > 0.0 && at < own) own = at;
        }
        u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
        u64 least = ~warp_best(~own);
        if (lane == 0) of_warp[warp] = least;
        __syncthreads();
        least = ~warp_best(lane < warps ? ~of_warp[lane] : 0);
        return least == ~(u64)0 ? 0 : least;
    }
};

// The largest number of the row that is finite; −∞ if there is none.
__device__ __forceinline__ float highest(const float* chances, u32 types) {
    __shared__ float of_warp[32];
    float high = MINUS_INFINITY;
    for (u32 token = threadIdx.x; token < types; token += blockDim.x)
        if (isfinite(chances[token])) high = fmaxf(high, chances[token]);
    high = warp_max(high);
    u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
    if (lane == 0) of_warp[warp] = high;
    __syncthreads();
    return warp_max(lane < warps ? of_warp[lane] : MINUS_INFINITY);
}

// Draw i takes a token of row rows[i] with the uniform number numbers[i], within the `most[i]` likeliest tokens (0: no
// bound) and the likeliest whose share reaches shares[i] (above 1: no bound): tokens[i], and its score
// scores[row] + chances[row][token], −∞ where nothing can be drawn. Tokens are gone over from the likeliest on where
// there is a bound, else in their order, until their sum is more than the number's share of all.
// launch: grid draws, block BEST_THREADS
extern "C" __global__ void __launch_bounds__(BEST_THREADS)
draw(const float* chances, u32 types, const float* scores, const u32* rows, const float* numbers, const u32* most,
     const float* shares, float* drawn_scores, u32* drawn_rows, u32* drawn_tokens) {
    u32 i = blockIdx.x, row = rows[i];
    chances += (u64)row * types;
    Order order = {chances, types, highest(chances, types), most[i] > 0 || shares[i] <= 1.0f};
    u64 bound = 0;
    if (shares[i] <= 1.0f) bound = order.reach((double)shares[i] * order.total(0), false, false);
    if (most[i] > 0) {
        u64 counted = order.reach((double)most[i], true, false);
        bound = counted > bound ? counted : bound;
    }
    u64 found = order.reach((double)numbers[i] * order.total(bound), false, true);
    // Rounding can leave a little: then it is the last that is possible.
    if (found == 0 || found < bound) found = order.last(bound);
    if (threadIdx.x != 0) return;
    u32 token = found == 0 ? 0 : order.token(found);
    drawn_scores[i] = found == 0 ? MINUS_INFINITY : scores[row] + chances[token];
    drawn_rows[i] = row;
    drawn_tokens[i] = token;
}
