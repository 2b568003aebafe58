// The softmax of a row of logits, by one block. Rows of V logits have a pitch of V rounded up to 8, so that every row
// begins on 16 bytes; what lies between is garbage.

#define LOG2_E 1.4426950408889634f
#define LOWEST -3.0e38f          // finite: LOWEST − LOWEST is 0, where −∞ would give NaN

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
