// A gate's network and the expert that a row picks by it, when no gradient is wanted: logits = W2·dropout(tanh(W1·x̂ +
// b1)) + b2, x̂ being batch-normed x. `gate_network` does all of it; `gate_pick`, for sizes that it does not take and for
// floats, comes after a product that makes z = W1·x̂.

#define WARPS 8u
#ifndef GATE_RUNS
#define GATE_RUNS 4  // of eight hidden units that a lane takes: ceil(hidden units / 256)
#endif

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

// The end of a row: gates = softmax(logits), weights = the row of M of the expert that is picked. Lane e has the logit
// of expert e, −∞ from `count` on; `u` is the row's random number.
__device__ __forceinline__ void finish_row(const Picking& picking, float u, float logit, const float* experts,
                                           float* gates, float* weights, u32 row, u32 count, u32 heads) {
    u32 lane = threadIdx.x % 32;
    float power = expf(logit - warp_max(logit)), gate = power / warp_sum(power);
    if (lane < count) gates[(u64)row * count + lane] = gate;
    u32 expert = pick(picking, u, &gate, row, count, lane);
    for (u32 h = lane; h < heads; h += 32) weights[(u64)row * heads + h] = experts[expert * heads + h];
}

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

// The second half of a gate and the pick in one: hidden = dropout(tanh(z + b1)) [n, inner], logits = W2·hidden + b2,
// then as pick_forward, for at most 32 experts. W2 [count, inner] is small and read again and again: it stays in L1.
// launch: grid ceil(n/8), block 256
extern "C" __global__ void __launch_bounds__(256)
gate_pick(const act* z, const float* b1, Dropout dropout, const float* w2, const float* b2, u32 inner,
          const float* experts, Picking picking, float* gates, float* weights, u32 n, u32 count, u32 heads) {
    u32 lane = threadIdx.x % 32, row = blockIdx.x * WARPS + threadIdx.x / 32;
    if (row >= n) return;
    float hidden[GATE_RUNS][8] = {}, u = draw(picking, row), own_bias = lane < count ? b2[lane] : 0.0f;
#pragma unroll
    for (int r = 0; r < GATE_RUNS; r++) {
        u32 run = lane + 32 * r, at = 8 * run;
        if (at >= inner) continue;
        float bias[8], f[8];
        load8(z + (u64)row * inner, at, inner, hidden[r]);
        load8(b1, at, inner, bias);
        dropout8(dropout, row, run, f);
#pragma unroll
        for (int i = 0; i < 8; i++) hidden[r][i] = at + i < inner ? gate_tanh(hidden[r][i] + bias[i]) * f[i] : 0.0f;
    }
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
    finish_row(picking, u, logit, experts, gates, weights, row, count, heads);
}

#if BF16
// ---- the whole gate on tensor cores ------------------------------------------------------------------------------

#ifndef GATE_WIDTH
#define GATE_WIDTH 512  // D: a power of two from 64 to 1024
#endif

constexpr u32 THREADS = 32 * WARPS;
constexpr u32 ROWS = GATE_WIDTH <= 512 ? 32 : 16;  // of a block, so that its inputs fit into shared memory
constexpr u32 TILES = ROWS / 16;
constexpr u32 PITCH = GATE_WIDTH + 32;  // two rows lie in different halves of the banks
constexpr u32 ROW_RUNS = GATE_WIDTH / 8;
constexpr u32 OWN_RUNS = ROWS * ROW_RUNS / THREADS;  // of a thread, all in the same columns
constexpr u32 CHUNKS = GATE_WIDTH / 32;              // of the inner dimension of the first layer
constexpr u32 STAGES = 4;                            // chunks of W1 that are under way
constexpr u32 MOST_EXPERTS = 32;
constexpr u32 LOGITS = WARPS * ROWS * MOST_EXPERTS * 2;  // floats of all warps take the room of so many inputs
constexpr u32 ROOM = ROWS * PITCH > LOGITS ? ROWS * PITCH : LOGITS;

// Batch norm of the columns c and c + 1: x̂ = (x − centre)·factor + offset. Block 0 moves the running statistics.
struct Norm {
    const u32* valid;
    const float* partials;  // null: not in training
    const float *gamma, *beta;
    float *running_mean, *running_var;
    u32 parts;
};

__device__ __forceinline__ void prepare_norm(const Norm& norm, u32 rows, float* centre, float* factor, float* offset) {
    u32 count = *norm.valid, each = (rows + norm.parts - 1) / norm.parts;
    for (u32 c = 2 * threadIdx.x; c < GATE_WIDTH; c += 2 * THREADS) {
        float mean[2] = {norm.running_mean[c], norm.running_mean[c + 1]};
        float variance[2] = {norm.running_var[c], norm.running_var[c + 1]};
        if (norm.partials != nullptr && count > 1) {
            // Chan et al.'s combination of all parts at once; they are read once, the loads not waiting for one another.
            float2 means[MOST_PARTS];
            float sum[2] = {}, squares[2] = {}, inverse = 1.0f / (float)count;
            auto size = [&](u32 p) {
                uint2 range = part_rows(p, each, count);
                return p < norm.parts ? (float)(range.y - range.x) : 0.0f;
            };
#pragma unroll
            for (u32 p = 0; p < MOST_PARTS; p++) {
                const float* part = norm.partials + (u64)min(p, norm.parts - 1) * 2 * GATE_WIDTH + c;
                float2 deviations = *(const float2*)(part + GATE_WIDTH);
                means[p] = *(const float2*)part;
                sum[0] = fmaf(size(p), means[p].x, sum[0]), sum[1] = fmaf(size(p), means[p].y, sum[1]);
                if (p < norm.parts) squares[0] += deviations.x, squares[1] += deviations.y;
            }
            float average[2] = {sum[0] * inverse, sum[1] * inverse};
#pragma unroll
            for (u32 p = 0; p < MOST_PARTS; p++) {
                float x = means[p].x - average[0], y = means[p].y - average[1];
                squares[0] = fmaf(size(p) * x, x, squares[0]), squares[1] = fmaf(size(p) * y, y, squares[1]);
            }
            float unbiased = (float)count / (float)(count - 1);
#pragma unroll
            for (u32 i = 0; i < 2; i++) {
                float batch = squares[i] * inverse;
                if (blockIdx.x == 0) {
                    norm.running_mean[c + i] = moved(mean[i], average[i]);
                    norm.running_var[c + i] = moved(variance[i], unbiased * batch);
                }
                mean[i] = average[i], variance[i] = batch;
            }
        }
#pragma unroll
        for (u32 i = 0; i < 2; i++) {
            centre[c + i] = mean[i];
            factor[c + i] = norm.gamma[c + i] / sqrtf(variance[i] + EPSILON);
            offset[c + i] = norm.beta[c + i];
        }
    }
}

// Four words that belong to the four lanes of a quad: lane l gives word w to lane w, and gets word l of each lane.
__device__ __forceinline__ void transpose_quad(u32 words[4], u32 place) {
    auto turn = [&]() {  // words[i] = words[i ^ place]
        if (place & 1) swap(words[0], words[1]), swap(words[2], words[3]);
        if (place & 2) swap(words[0], words[2]), swap(words[1], words[3]);
    };
    turn();
#pragma unroll
    for (u32 i = 1; i < 4; i++) words[i] = __shfl_xor_sync(FULL_WARP, words[i], i);
    turn();
}

__device__ __forceinline__ u32 word(const uint4& run, u32 i) {
    return i == 0 ? run.x : i == 1 ? run.y : i == 2 ? run.z : run.w;
}

// Batch norm, W1·x̂ + b1, tanh and dropout, W2·hidden + b2 and the pick of a gate in one; x [n, D], W1 [inner, D],
// W2 [count, inner], inner a multiple of 32, at most 32 experts.
//
// A warp takes 32 hidden units of all rows at a time, so that W1 is read once by a block, straight from L2. Products
// take their terms in another order than memory has: a lane reads runs of eight columns of W1 and of x̂, and both are
// split into two fragments alike. Hidden units go to the second layer in registers; its sums over warps in shared memory.
// launch: grid ceil(n/ROWS), block 256
extern "C" __global__ void __launch_bounds__(THREADS, 1)
gate_network(const act* __restrict__ x, Norm norm, const act* __restrict__ w1, const float* b1, Dropout dropout,
             const act* __restrict__ w2, const float* b2, u32 inner, const float* experts, Picking picking,
             float* gates, float* weights, u32 n, u32 count, u32 heads) {
    __shared__ alignas(16) act rows[ROOM];
    __shared__ alignas(16) float centre[GATE_WIDTH], factor[GATE_WIDTH], offset[GATE_WIDTH];
    float(*logits)[ROWS][MOST_EXPERTS] = (float(*)[ROWS][MOST_EXPERTS])rows;  // of each warp, when `rows` is done with
    u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32, group = lane / 4, place = lane % 4;
    u32 first = blockIdx.x * ROWS, strips = inner / 32;

    // Everything is asked for before anything is waited for.
    u32 at = threadIdx.x % ROW_RUNS * 8;
    uint4 raw[OWN_RUNS];
#pragma unroll
    for (u32 i = 0; i < OWN_RUNS; i++) {
        u32 row = first + threadIdx.x / ROW_RUNS + i * (THREADS / ROW_RUNS);
        raw[i] = row < n ? *(const uint4*)(x + (u64)row * GATE_WIDTH + at) : make_uint4(0, 0, 0, 0);
    }
    u32 drawing = first + warp * (ROWS / WARPS) + lane % (ROWS / WARPS);
    float own_draw = drawing < n ? draw(picking, drawing) : 0.0f;
    prepare_norm(norm, n, centre, factor, offset);
    __syncthreads();
    u32 valid = *norm.valid;
    float m[8], f[8], o[8];
    load8(centre, at, GATE_WIDTH, m);
    load8(factor, at, GATE_WIDTH, f);
    load8(offset, at, GATE_WIDTH, o);
#pragma unroll
    for (u32 i = 0; i < OWN_RUNS; i++) {
        u32 row = threadIdx.x / ROW_RUNS + i * (THREADS / ROW_RUNS);
        float v[8];
        load8((const act*)&raw[i], 0, 8, v);
#pragma unroll
        for (u32 c = 0; c < 8; c++) v[c] = first + row < valid ? fmaf(v[c] - m[c], f[c], o[c]) : 0.0f;
        store8(rows + row * PITCH, at, GATE_WIDTH, v);
    }
    __syncthreads();

    float logit[TILES][MOST_EXPERTS / 8][4] = {};
    for (u32 strip = warp; strip < strips; strip += WARPS) {
        const act* weight = w1 + (u64)(32 * strip + group) * GATE_WIDTH + 8 * place;
        uint4 b[STAGES][4];
        auto load = [&](u32 chunk) {
#pragma unroll
            for (u32 j = 0; j < 4; j++)
                b[chunk % STAGES][j] = *(const uint4*)(weight + 8 * j * GATE_WIDTH + 32 * chunk);
        };
        float hidden[TILES][4][4] = {};
#pragma unroll
        for (u32 chunk = 0; chunk < STAGES - 1 && chunk < CHUNKS; chunk++) load(chunk);
#pragma unroll
        for (u32 chunk = 0; chunk < CHUNKS; chunk++) {
            if (chunk + STAGES - 1 < CHUNKS) load(chunk + STAGES - 1);
#pragma unroll
            for (u32 t = 0; t < TILES; t++) {
                const act* from = rows + (16 * t + group) * PITCH + 32 * chunk + 8 * place;
                uint4 upper = *(const uint4*)from, lower = *(const uint4*)(from + 8 * PITCH);
#pragma unroll
                for (u32 half = 0; half < 4; half += 2) {
                    u32 a[4] = {word(upper, half), word(lower, half), word(upper, half + 1), word(lower, half + 1)};
#pragma unroll
                    for (u32 j = 0; j < 4; j++) {
                        const uint4& run = b[chunk % STAGES][j];
                        mma_16x8x16(hidden[t][j], a, word(run, half), word(run, half + 1));
                    }
                }
            }
        }
        // Lane `place` has the columns 2·place, 2·place + 1 of run j of eight hidden units, in rows group and group + 8.
        float2 bias[4];
#pragma unroll
        for (u32 j = 0; j < 4; j++) bias[j] = *(const float2*)(b1 + 32 * strip + 8 * j + 2 * place);
        float kept = dropout.threshold == 0 ? 1.0f : dropout.scale;
#pragma unroll
        for (u32 t = 0; t < TILES; t++) {
#pragma unroll
            for (u32 low = 0; low < 2; low++) {
                u32 words[4] = {};
                if (dropout.threshold != 0) {
                    uint4 drawn = dropout_words(dropout, first + 16 * t + 8 * low + group, 4 * strip + place);
                    words[0] = drawn.x, words[1] = drawn.y, words[2] = drawn.z, words[3] = drawn.w;
                    transpose_quad(words, place);
                }
#pragma unroll
                for (u32 j = 0; j < 4; j++) {
                    float *h = hidden[t][j] + 2 * low, fx = (words[j] & 0xffffu) < dropout.threshold ? 0.0f : kept,
                          fy = (words[j] >> 16) < dropout.threshold ? 0.0f : kept;
                    h[0] = gate_tanh(h[0] + bias[j].x) * fx, h[1] = gate_tanh(h[1] + bias[j].y) * fy;
                }
            }
        }
#pragma unroll
        for (u32 j = 0; j < 4; j += 2) {
#pragma unroll
            for (u32 e = 0; e < MOST_EXPERTS / 8; e++) {
                if (8 * e >= count) break;
                u32 expert = 8 * e + group;
                const act* from = w2 + (u64)expert * inner + 32 * strip + 8 * j + 2 * place;
                u32 near = expert < count ? *(const u32*)from : 0, far = expert < count ? *(const u32*)(from + 8) : 0;
#pragma unroll
                for (u32 t = 0; t < TILES; t++) {
                    float *h = hidden[t][j], *next = hidden[t][j + 1];
                    u32 a[4] = {as_pair(h[0], h[1]), as_pair(h[2], h[3]), as_pair(next[0], next[1]),
                                as_pair(next[2], next[3])};
                    mma_16x8x16(logit[t][e], a, near, far);
                }
            }
        }
    }
    __syncthreads();
#pragma unroll
    for (u32 t = 0; t < TILES; t++)
#pragma unroll
        for (u32 e = 0; e < MOST_EXPERTS / 8; e++) {
            if (8 * e >= count) break;
            u32 row = 16 * t + group, expert = 8 * e + 2 * place;
            *(float2*)&logits[warp][row][expert] = make_float2(logit[t][e][0], logit[t][e][1]);
            *(float2*)&logits[warp][row + 8][expert] = make_float2(logit[t][e][2], logit[t][e][3]);
        }
    __syncthreads();
    float bias = lane < count ? b2[lane] : 0.0f;
#pragma unroll
    for (u32 i = 0; i < ROWS / WARPS; i++) {
        u32 row = warp * (ROWS / WARPS) + i;
        if (first + row >= n) return;
        float u = __shfl_sync(FULL_WARP, own_draw, i), own = MINUS_INFINITY;
        if (lane < count) {
            own = bias;
#pragma unroll
            for (u32 w = 0; w < WARPS; w++) own += logits[w][row][lane];
        }
        finish_row(picking, u, own, experts, gates, weights, first + row, count, heads);
    }
}
#endif
