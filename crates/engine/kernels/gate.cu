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

// Two blocks share their rows, each taking half of the hidden units, where blocks can write to one another's memory: so
// W1, which all blocks read, crosses the chip half as often.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
#define CLUSTER 2u
#define CLUSTER_DIMS __cluster_dims__(CLUSTER, 1, 1)

// Says that this block has begun; nothing that it wrote is meant for others.
__device__ __forceinline__ void cluster_begin() {
    asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
}

__device__ __forceinline__ void cluster_arrive() {
    asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
}

__device__ __forceinline__ void cluster_wait() {
    asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

// Where the block `rank` of the cluster has what this one has at `own`.
__device__ __forceinline__ float* shared_of(float* own, u32 rank) {
    float* out;
    asm("mapa.u64 %0, %1, %2;" : "=l"(out) : "l"(own), "r"(rank));
    return out;
}
#else
#define CLUSTER 1u
#define CLUSTER_DIMS

__device__ __forceinline__ void cluster_begin() {}

__device__ __forceinline__ void cluster_arrive() {}

__device__ __forceinline__ void cluster_wait() {
    __syncthreads();
}

__device__ __forceinline__ float* shared_of(float* own, u32) {
    return own;
}
#endif

// Copy to shared memory, while the thread goes on: eight inputs, a float.
__device__ __forceinline__ void copy_run(act* to, const act* from) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"((u32)__cvta_generic_to_shared(to)), "l"(from)
                 : "memory");
}

__device__ __forceinline__ void copy_float(float* to, const float* from) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"((u32)__cvta_generic_to_shared(to)), "l"(from)
                 : "memory");
}

// Waits for the thread's own copies.
__device__ __forceinline__ void finish_copies() {
    asm volatile("cp.async.wait_all;" ::: "memory");
}

constexpr u32 THREADS = 32 * WARPS;
constexpr u32 OWN_ROWS = 32;  // that a warp multiplies, and that a block brings to their end
constexpr u32 TILES = OWN_ROWS / 16;
constexpr u32 ROWS = OWN_ROWS * CLUSTER;
constexpr u32 ABREAST = WARPS / CLUSTER;  // warps of a block with the same rows
constexpr u32 PITCH = GATE_WIDTH + 32;    // two rows lie in different halves of the banks
constexpr u32 ROW_RUNS = GATE_WIDTH / 8;
constexpr u32 OWN_RUNS = ROWS * ROW_RUNS / THREADS;  // of a thread, all in the same columns
constexpr u32 BATCH = OWN_RUNS < 4 ? OWN_RUNS : 4;
constexpr u32 CHUNKS = GATE_WIDTH / 32;  // of the inner dimension of the first layer
constexpr u32 STAGES = 6;                // chunks of W1 that are under way
constexpr u32 MOST_EXPERTS = 32;
constexpr u32 TABLE = 1024;  // numbers of M that are kept close by

// Batch norm: x̂ = (x − mean)/√(variance + ε)·γ + β, zeros from row *valid on; null: all rows are there.
struct Norm {
    const u32* valid;
    const float *mean, *variance, *gamma, *beta;
};

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

// The hidden units that a lane keeps of a warp's 32 rows and a strip of 32, as bits: of tile t, row group + 8·low and
// run j of eight units, those at 2·place and 2·place + 1 are bits 16·t + 8·low + 2·j and the next.
__device__ __forceinline__ u32 kept_units(const Dropout& dropout, u32 first, u32 strip, u32 group, u32 place) {
    if (dropout.threshold == 0) return 0xffffffffu;
    u32 kept = 0;
#pragma unroll
    for (u32 i = 0; i < 2 * TILES; i++) {
        uint4 drawn = dropout_words(dropout, first + 8 * i + group, 4 * strip + place);
        u32 words[4] = {drawn.x, drawn.y, drawn.z, drawn.w};
        transpose_quad(words, place);
#pragma unroll
        for (u32 j = 0; j < 4; j++) {
            kept |= (u32)((words[j] & 0xffffu) >= dropout.threshold) << (8 * i + 2 * j);
            kept |= (u32)((words[j] >> 16) >= dropout.threshold) << (8 * i + 2 * j + 1);
        }
    }
    return kept;
}

// The end of four rows at once, for at most eight experts: lane 8·r + e has the logit of expert e of row r, −∞ from
// `count` on; `row` is its row, `u` the row's random number and `expert` what is decided about it.
__device__ __forceinline__ void finish_four(u32 how, u32 expert, float u, float logit, const float* experts,
                                            float* gates, float* weights, u32 row, u32 n, u32 count, u32 heads) {
    u32 lane = threadIdx.x % 32, own = lane % 8;
    float highest = logit;
#pragma unroll
    for (u32 o = 4; o > 0; o /= 2) highest = fmaxf(highest, __shfl_xor_sync(FULL_WARP, highest, o));
    float power = expf(logit - highest), total = power;
#pragma unroll
    for (u32 o = 4; o > 0; o /= 2) total += __shfl_xor_sync(FULL_WARP, total, o);
    float gate = power / total, sum = 0.0f, best = MINUS_INFINITY;
    u32 drawn = UNDECIDED, last = 0, likeliest = 0;
#pragma unroll
    for (u32 e = 0; e < 8; e++) {  // as inverse_cdf and argmax; experts that are not there have gates of 0
        float g = __shfl_sync(FULL_WARP, gate, lane - own + e);
        sum += g;
        if (drawn == UNDECIDED && u < sum) drawn = e;
        if (g > 0.0f) last = e;
        if (g > best) best = g, likeliest = e;
    }
    if (row >= n) return;
    if (drawn == UNDECIDED) drawn = last;
    if (expert == UNDECIDED) expert = how == ARGMAX ? likeliest : drawn;
    if (own < count) gates[(u64)row * count + own] = gate;
    for (u32 h = own; h < heads; h += 8) weights[(u64)row * heads + h] = experts[expert * heads + h];
}

// Batch norm, W1·x̂ + b1, tanh and dropout, W2·hidden + b2 and the pick of a gate in one; x [n, D], W1 [inner, D],
// W2 [count, inner], inner a multiple of 32, at most 32 experts.
//
// A warp takes 32 hidden units of 32 rows at a time; W1 comes straight from L2. Products take their terms in another
// order than memory has: a lane reads runs of eight columns of W1 and of x̂, and both are split into two fragments alike.
// Hidden units go to the second layer in registers; its sums over warps in the shared memory of the block whose rows
// they are.
// launch: grid CLUSTER·ceil(n/ROWS), block 256, shared 4·TABLE + 2·ROWS·PITCH + 1024·wide bytes, wide = count rounded up
// to 8; 4·TABLE + max(2·ROWS·PITCH, 1024·wide) where CLUSTER is 1
extern "C" __global__ void CLUSTER_DIMS __launch_bounds__(THREADS, 1)
gate_network(const act* __restrict__ x, Norm norm, const act* __restrict__ w1, const float* __restrict__ b1,
             Dropout dropout, const act* __restrict__ w2, const float* __restrict__ b2, u32 inner,
             const float* __restrict__ experts, Picking picking, float* gates, float* weights, u32 n, u32 count,
             u32 heads) {
    extern __shared__ uint4 room[];
    float* table = (float*)room;
    act* rows = (act*)(table + TABLE);
    float* logits = (float*)(CLUSTER == 1 ? rows : rows + ROWS * PITCH);  // [WARPS, OWN_ROWS, wide]
    u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32, group = lane / 4, place = lane % 4;
    u32 rank = blockIdx.x % CLUSTER, first = blockIdx.x / CLUSTER * ROWS;
    u32 side = warp / ABREAST, slot = rank * ABREAST + warp % ABREAST;
    u32 strips = inner / 32, wide = (count + 7) / 8 * 8;
    bool few = count <= 8, close = count * heads <= TABLE;
    cluster_begin();

    // Everything is asked for before anything is waited for; what is needed first comes first.
    u32 at = threadIdx.x % ROW_RUNS * 8, own = threadIdx.x / ROW_RUNS;
#pragma unroll
    for (u32 i = 0; i < OWN_RUNS; i++) {
        u32 row = own + i * (THREADS / ROW_RUNS);
        copy_run(rows + row * PITCH + at, x + (u64)min(first + row, n - 1) * GATE_WIDTH + at);
    }
    if (close)
        for (u32 i = threadIdx.x; i < count * heads; i += THREADS) copy_float(table + i, experts + i);
    float m[8], variance[8], gamma[8], o[8];
    load8(norm.mean, at, GATE_WIDTH, m);
    load8(norm.variance, at, GATE_WIDTH, variance);
    load8(norm.gamma, at, GATE_WIDTH, gamma);
    load8(norm.beta, at, GATE_WIDTH, o);
    u32 valid = norm.valid != nullptr ? *norm.valid : n;
    u32 own_expert = few ? lane % 8 : lane;
    float own_bias = own_expert < count ? b2[own_expert] : MINUS_INFINITY;
    uint4 b[STAGES][4];
    auto load = [&](u32 strip, u32 chunk) {
        const act* weight = w1 + (u64)(32 * strip + group) * GATE_WIDTH + 8 * place;
#pragma unroll
        for (u32 j = 0; j < 4; j++) b[chunk % STAGES][j] = *(const uint4*)(weight + 8 * j * GATE_WIDTH + 32 * chunk);
    };
    float2 bias[4];
    u32 second[2][MOST_EXPERTS / 8][2], kept = 0;  // W2 of the strip: halves of 16 units, eight experts each
    auto begin = [&](u32 strip) {
#pragma unroll
        for (u32 chunk = 0; chunk < STAGES - 1 && chunk < CHUNKS; chunk++) load(strip, chunk);
#pragma unroll
        for (u32 j = 0; j < 4; j++) bias[j] = *(const float2*)(b1 + 32 * strip + 8 * j + 2 * place);
#pragma unroll
        for (u32 e = 0; e < MOST_EXPERTS / 8; e++) {
            if (8 * e >= count) break;
            u32 expert = 8 * e + group;
            const act* from = w2 + (u64)expert * inner + 32 * strip + 2 * place;
#pragma unroll
            for (u32 half = 0; half < 2; half++)
#pragma unroll
                for (u32 i = 0; i < 2; i++)
                    second[half][e][i] = expert < count ? *(const u32*)(from + 16 * half + 8 * i) : 0;
        }
    };
    u32 strip = slot;
    if (strip < strips) begin(strip);

    // The lanes 8·r .. 8·r + 8 of a warp are for row r of the four that it brings to their end.
    u32 last = OWN_ROWS / WARPS * warp + lane / 8, last_row = first + OWN_ROWS * rank + last;
    u32 expert = last_row < n ? decided(picking, last_row) : 0;
    float u = last_row < n ? draw(picking, last_row) : 0.0f;
    if (strip < strips) kept = kept_units(dropout, first + OWN_ROWS * side, strip, group, place);

    // x̂ = x·f + o
    float f[8];
#pragma unroll
    for (u32 c = 0; c < 8; c++) f[c] = gamma[c] * rsqrtf(variance[c] + EPSILON), o[c] = fmaf(-m[c], f[c], o[c]);
    finish_copies();
#pragma unroll 2
    for (u32 batch = 0; batch < OWN_RUNS; batch += BATCH) {
        float v[BATCH][8];
#pragma unroll
        for (u32 i = 0; i < BATCH; i++)
            load8(rows + (own + (batch + i) * (THREADS / ROW_RUNS)) * PITCH, at, GATE_WIDTH, v[i]);
#pragma unroll
        for (u32 i = 0; i < BATCH; i++) {
            u32 row = own + (batch + i) * (THREADS / ROW_RUNS);
#pragma unroll
            for (u32 c = 0; c < 8; c++) v[i][c] = first + row < valid ? fmaf(v[i][c], f[c], o[c]) : 0.0f;
            store8(rows + row * PITCH, at, GATE_WIDTH, v[i]);
        }
    }
    __syncthreads();

    float logit[TILES][MOST_EXPERTS / 8][4] = {};
    float scale = dropout.threshold == 0 ? 1.0f : dropout.scale;
    while (strip < strips) {
        float hidden[TILES][4][4] = {};
#pragma unroll
        for (u32 chunk = 0; chunk < CHUNKS; chunk++) {
            if (chunk + STAGES - 1 < CHUNKS) load(strip, chunk + STAGES - 1);
#pragma unroll
            for (u32 t = 0; t < TILES; t++) {
                const act* from = rows + (OWN_ROWS * side + 16 * t + group) * PITCH + 32 * chunk + 8 * place;
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
#pragma unroll
        for (u32 t = 0; t < TILES; t++)
#pragma unroll
            for (u32 j = 0; j < 4; j++)
#pragma unroll
                for (u32 i = 0; i < 4; i++) {
                    float factor = kept >> (16 * t + 8 * (i / 2) + 2 * j + i % 2) & 1 ? scale : 0.0f;
                    hidden[t][j][i] = gate_tanh(hidden[t][j][i] + (i % 2 ? bias[j].y : bias[j].x)) * factor;
                }
#pragma unroll
        for (u32 half = 0; half < 2; half++)
#pragma unroll
            for (u32 t = 0; t < TILES; t++) {
                float *h = hidden[t][2 * half], *next = hidden[t][2 * half + 1];
                u32 a[4] = {as_pair(h[0], h[1]), as_pair(h[2], h[3]), as_pair(next[0], next[1]),
                            as_pair(next[2], next[3])};
#pragma unroll
                for (u32 e = 0; e < MOST_EXPERTS / 8; e++) {
                    if (8 * e >= count) break;
                    mma_16x8x16(logit[t][e], a, second[half][e][0], second[half][e][1]);
                }
            }
        strip += WARPS;
        if (strip >= strips) break;
        begin(strip);
        kept = kept_units(dropout, first + OWN_ROWS * side, strip, group, place);
    }
    // The other block has begun, and where `logits` lies over `rows`, nobody reads these any more.
    cluster_wait();
    float* sums = shared_of(logits, side) + slot * OWN_ROWS * wide;
#pragma unroll
    for (u32 t = 0; t < TILES; t++)
#pragma unroll
        for (u32 e = 0; e < MOST_EXPERTS / 8; e++) {
            if (8 * e >= count) break;
            float* to = sums + (16 * t + group) * wide + 8 * e + 2 * place;
            *(float2*)to = make_float2(logit[t][e][0], logit[t][e][1]);
            *(float2*)(to + 8 * wide) = make_float2(logit[t][e][2], logit[t][e][3]);
        }
    cluster_arrive();
    cluster_wait();

    const float* chosen = close ? table : experts;
    auto own_logit = [&](u32 row) {
        float sum = own_bias;
        if (own_expert < count) {
#pragma unroll
            for (u32 w = 0; w < WARPS; w++) sum += logits[(w * OWN_ROWS + row) * wide + own_expert];
        }
        return sum;
    };
    if (few) {
        finish_four(picking.how, expert, u, own_logit(last), chosen, gates, weights, last_row, n, count, heads);
        return;
    }
#pragma unroll
    for (u32 i = 0; i < OWN_ROWS / WARPS; i++) {
        u32 row = OWN_ROWS / WARPS * warp + i;
        if (first + OWN_ROWS * rank + row >= n) return;
        float draw_of_row = __shfl_sync(FULL_WARP, u, 8 * i);
        finish_row(picking, draw_of_row, own_logit(row), chosen, gates, weights, first + OWN_ROWS * rank + row, count,
                   heads);
    }
}
#endif
