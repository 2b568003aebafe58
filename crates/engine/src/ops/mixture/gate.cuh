// The second half of a gate, one warp for each row: hidden units to gates to head weights.

// GATE_RUNS: runs of eight hidden units that a lane takes, ceil(hidden units / 256).
#define MINUS_INFINITY __uint_as_float(0xff800000u)

#if BF16
// To 11 bits, more than a bfloat16 has.
__device__ __forceinline__ float gate_tanh(float x) {
    float y;
    asm("tanh.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
#else
__device__ __forceinline__ float gate_tanh(float x) {
    return tanhf(x);
}
#endif

// Sums v[0] .. v[7] over the lanes of a warp; lane l gets the sum of v[l / 4]. Lanes share the work: in each step a lane
// keeps half of the sums and hands over its part of the others.
__device__ __forceinline__ float scattered_sums(float v[8], u32 lane) {
#pragma unroll
    for (int half = 4, o = 16; half > 0; half /= 2, o /= 2) {
        bool upper = lane & o;
#pragma unroll
        for (int i = 0; i < half; i++) {
            float keep = upper ? v[i + half] : v[i], give = upper ? v[i] : v[i + half];
            v[i] = keep + __shfl_xor_sync(FULL_WARP, give, o);
        }
    }
    v[0] += __shfl_xor_sync(FULL_WARP, v[0], 2);
    return v[0] + __shfl_xor_sync(FULL_WARP, v[0], 1);
}

// The gate of expert `lane`: softmax(W2·hidden + b2), for at most 32 experts, `own_bias` being b2 of that expert. Lane l
// has the hidden units of the runs l, l + 32, …; W2 [count, inner] is small and read again and again: it stays in L1.
__device__ __forceinline__ float gate_of_lane(const float hidden[GATE_RUNS][8], const float* w2, float own_bias,
                                              u32 inner, u32 count, u32 lane) {
    float logit = MINUS_INFINITY;  // of expert `lane`
    for (u32 first = 0; first < count; first += 8) {
        float parts[8] = {};
#pragma unroll
        for (int e = 0; e < 8; e++) {
            if (first + e >= count) continue;
#pragma unroll
            for (int r = 0; r < GATE_RUNS; r++) {
                u32 at = 8 * (lane + 32 * r);
                if (at >= inner) continue;
                float w[8];
                load8(w2 + (first + e) * inner, at, inner, w);
#pragma unroll
                for (int i = 0; i < 8; i++) parts[e] = fmaf(hidden[r][i], w[i], parts[e]);
            }
        }
        float sum = scattered_sums(parts, lane);
        float own = __shfl_sync(FULL_WARP, sum, (lane - first) * 4 % 32);
        if (lane >= first && lane < min(first + 8, count)) logit = own + own_bias;
    }
    float power = expf(logit - warp_max(logit));
    return power / warp_sum(power);
}

// The head weights of a mixture, gate·M [heads].
__device__ __forceinline__ void write_mixture(float gate, const float* experts, float* weights, u32 count, u32 heads,
                                              u32 lane) {
    for (u32 first = 0; first < heads; first += 32) {
        float weight = 0.0f;
        for (u32 e = 0; e < count; e++) {
            float g = __shfl_sync(FULL_WARP, gate, e);
            if (first + lane < heads) weight = fmaf(g, experts[e * heads + first + lane], weight);
        }
        if (first + lane < heads) weights[first + lane] = weight;
    }
}
