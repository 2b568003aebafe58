// Ranking of rows of scores: candidates as numbers, logarithms of sums, the best of a row.
//
// Put before decode.cu (logits as they come) and chances.cu (log-probabilities that rules have changed).

#define MINUS_INFINITY __uint_as_float(0xff800000u)
#define LOWEST (-3.402823466e38f)  // below every number that occurs, and still subtracts to a number

// A candidate as one number: the larger, the better; of equal scores the lower token. 0 is an impossible one.
__device__ __forceinline__ u64 candidate(float score, u32 token) {
    u32 bits = __float_as_uint(score);
    if ((bits & 0x7f800000u) == 0x7f800000u) return 0;
    return (u64)(bits >> 31 ? ~bits : bits | 0x80000000u) << 32 | ~token;
}

__device__ __forceinline__ u32 token_of(u64 candidate) {
    return ~(u32)candidate;
}

__device__ __forceinline__ float score_of(u64 candidate) {
    u32 order = (u32)(candidate >> 32);
    return candidate == 0 ? MINUS_INFINITY : __uint_as_float(order >> 31 ? order & 0x7fffffffu : ~order);
}

__device__ __forceinline__ u64 warp_best(u64 v) {
    u32 high = __reduce_max_sync(FULL_WARP, (u32)(v >> 32));
    u32 low = __reduce_max_sync(FULL_WARP, (u32)(v >> 32) == high ? (u32)v : 0u);
    return (u64)high << 32 | low;
}

// Reads the runs run, run + stride, … of eight logits; −∞ past the last type. All loads are begun before any is used.
template <u32 N, typename T>
__device__ __forceinline__ void load_runs(const T* logits, u32 run, u32 stride, u32 types, float v[N][8]) {
#pragma unroll
    for (u32 b = 0; b < N; b++)
        if (8 * (run + b * stride) < types) load8(logits, 8 * (run + b * stride), types, v[b]);
#pragma unroll
    for (u32 b = 0; b < N; b++)
#pragma unroll
        for (int i = 0; i < 8; i++)
            if (8 * (run + b * stride) + i >= types) v[b][i] = MINUS_INFINITY;
}

// ln Σ exp(sharpness·logit) over the block's row, as the largest term and the logarithm of the sum relative to it.
__device__ __forceinline__ float2 log_sum(const act* logits, u32 types, float sharpness) {
    __shared__ float highs[32], sums[32];
    float highest = LOWEST, sum = 0.0f;
    for (u32 run = threadIdx.x; 8 * run < types; run += 4 * blockDim.x) {
        float v[4][8], top = highest;
        load_runs<4>(logits, run, blockDim.x, types, v);
#pragma unroll
        for (u32 b = 0; b < 4; b++)
#pragma unroll
            for (int i = 0; i < 8; i++) v[b][i] *= sharpness, top = fmaxf(top, v[b][i]);
        sum *= expf(highest - top);
        highest = top;
#pragma unroll
        for (u32 b = 0; b < 4; b++)
#pragma unroll
            for (int i = 0; i < 8; i++) sum += expf(v[b][i] - top);
    }
    float top = warp_max(highest);
    sum = warp_sum(sum * expf(highest - top));
    u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
    if (lane == 0) highs[warp] = top, sums[warp] = sum;
    __syncthreads();
    highest = lane < warps ? highs[lane] : LOWEST;
    top = warp_max(highest);
    return make_float2(top, logf(warp_sum(lane < warps ? sums[lane] * expf(highest - top) : 0.0f)));
}

// How the continuations of a row are scored; rows of logits, or of log-probabilities with nothing left to constrain.
template <typename T>
struct Scoring {
    const T* logits;
    u32 types;
    float base;  // the hypothesis' score − ln Σ exp
    u32 forbidden[2];
    u32 penalised;
    float penalty;

    // Whether a token of one of the runs first, first + stride, … is forbidden or penalised.
    __device__ __forceinline__ bool constrained(u32 first, u32 stride) const {
        return forbidden[0] / 8 % stride == first || forbidden[1] / 8 % stride == first ||
               penalised / 8 % stride == first;
    }

    __device__ __forceinline__ void constrain(u32 run, float score[8]) const {
#pragma unroll
        for (int i = 0; i < 8; i++) {
            u32 token = 8 * run + i;
            if (token == penalised) score[i] -= penalty;
            if (token == forbidden[0] || token == forbidden[1]) score[i] = MINUS_INFINITY;
        }
    }

    // The best candidate in the runs first, first + stride, …, of those that come after (limit, token).
    template <u32 N>
    __device__ __forceinline__ u64 best(u32 first, u32 stride, bool constrained, float limit, u32 token) const {
        float high = MINUS_INFINITY;
        u32 chosen = 0;
        for (u32 run = first; 8 * run < types; run += N * stride) {
            float v[N][8];
            load_runs<N>(logits, run, stride, types, v);
#pragma unroll
            for (u32 b = 0; b < N; b++) {
#pragma unroll
                for (int i = 0; i < 8; i++) v[b][i] += base;
                if (constrained) constrain(run + b * stride, v[b]);
#pragma unroll
                for (int i = 0; i < 8; i++) {
                    u32 own = 8 * (run + b * stride) + i;
                    bool after = v[b][i] < limit || (v[b][i] == limit && own > token);
                    if (after && v[b][i] > high) high = v[b][i], chosen = own;
                }
            }
        }
        return candidate(high, chosen);
    }
};

// Writes the `count` best candidates of the block's row, best first, of equal scores the lower token first; the score is −∞
// and the token 0 where there are no more.
//
// A thread owns the runs of eight tokens threadIdx.x, threadIdx.x + blockDim.x, … and knows the best candidate among
// them that is not taken. Each round takes the best of all; the lanes of its warp look for the owner's next one.
template <typename T>
__device__ __forceinline__ void take_best(const Scoring<T>& scoring, bool constrained, u32 count, float* best_scores,
                                          u32* best_tokens) {
    __shared__ u64 of_warp[2][32];
    u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
    u64 own = scoring.template best<2>(threadIdx.x, blockDim.x, constrained, -MINUS_INFINITY, ~0u);
    u64 best = warp_best(own);
    for (u32 rank = 0; rank < count; rank++) {
        // Two buffers in turn: nobody writes what a slower warp still reads.
        u64* heads = of_warp[rank % 2];
        if (lane == 0) heads[warp] = best;
        __syncthreads();
        u64 taken = warp_best(lane < warps ? heads[lane] : 0);
        if (threadIdx.x == 0) {
            best_scores[rank] = score_of(taken);
            best_tokens[rank] = taken == 0 ? 0 : token_of(taken);
        }
        if (best != taken || taken == 0) continue;
        u32 token = token_of(taken), owner = token / 8 % blockDim.x;
        bool of_owner = __shfl_sync(FULL_WARP, (int)constrained, owner % 32);
        u64 next = scoring.template best<1>(owner + lane * blockDim.x, 32 * blockDim.x, of_owner, score_of(taken), token);
        next = warp_best(next);
        if (threadIdx.x == owner) own = next;
        best = warp_best(own);
    }
}
