// From gate logits to head weights: gates g = softmax(logits) [n, count], head weights w [n, heads], which are g·M for a
// mixture or one row of the experts' matrix M [count, heads] for a drawn expert. One warp per row.

// ROWS and GATE_ROWS: of a block, one warp each.
// Writes the softmax of a row of logits, or even gates if there are none. A lane writes the experts lane, lane + 32, ….
template <typename Logit>
__device__ __forceinline__ void write_gates(const Logit* logits, float* gates, u32 count, u32 lane) {
    if (logits == nullptr) {
        for (u32 e = lane; e < count; e += 32) gates[e] = 1.0f / (float)count;
        return;
    }
    float highest = MINUS_INFINITY, sum = 0.0f;
    for (u32 e = lane; e < count; e += 32) highest = fmaxf(highest, as_float(logits[e]));
    highest = warp_max(highest);
    for (u32 e = lane; e < count; e += 32) sum += expf(as_float(logits[e]) - highest);
    float inverse = 1.0f / warp_sum(sum);
    for (u32 e = lane; e < count; e += 32) gates[e] = expf(as_float(logits[e]) - highest) * inverse;
}

// How a warp is laid over M: `width` lanes (a power of two) over heads, the others over experts. With more than 32
// heads a lane has a second one, 32 further on.
struct Layout {
    u32 width, head, expert, experts;
};

__device__ __forceinline__ Layout layout_of(u32 heads, u32 lane) {
    u32 width = 1;
    while (width < min(heads, 32u)) width *= 2;
    return {width, lane % width, lane / width, 32 / width};
}

// A lane's share of g·M: over its experts only, for its two heads.
__device__ __forceinline__ float2 mixed(const Layout& lay, const float* gates, const float* experts, u32 count,
                                        u32 heads) {
    float2 w = make_float2(0.0f, 0.0f);
#pragma unroll 4
    for (u32 e = lay.expert; e < count; e += lay.experts) {
        const float* m = experts + e * heads + lay.head;
        if (lay.head < heads) w.x = fmaf(gates[e], m[0], w.x);
        if (lay.head + 32 < heads) w.y = fmaf(gates[e], m[32], w.y);
    }
    return w;
}

// gates = softmax(logits), weights = gates·M.
// launch: grid ceil(n/4), block 128
extern "C" __global__ void __launch_bounds__(32 * ROWS)
mix_forward(const act* logits, const float* experts, float* gates, float* weights, u32 n, u32 count, u32 heads) {
    u32 row = blockIdx.x * ROWS + threadIdx.x / 32, lane = threadIdx.x % 32;
    if (row >= n) return;
    gates += (u64)row * count;
    weights += (u64)row * heads;
    write_gates(logits + (u64)row * count, gates, count, lane);
    __syncwarp();
    Layout lay = layout_of(heads, lane);
    float2 w = mixed(lay, gates, experts, count, heads);
    for (u32 o = 16; o >= lay.width; o /= 2) w.x += __shfl_xor_sync(FULL_WARP, w.x, o);
    if (lay.expert == 0 && lay.head < heads) weights[lay.head] = w.x;
    if (lay.expert == 0 && lay.head + 32 < heads) weights[lay.head + 32] = w.y;
}

// dg = M·dw, d_logits (+)= g·(dg − Σ g·dg).
// launch: grid ceil(n/4), block 128
extern "C" __global__ void __launch_bounds__(32 * ROWS)
mix_backward(const float* d_weights, const float* gates, const float* experts, act* d_logits, u32 add, u32 n, u32 count,
             u32 heads) {
    u32 row = blockIdx.x * ROWS + threadIdx.x / 32, lane = threadIdx.x % 32;
    if (row >= n) return;
    gates += (u64)row * count;
    d_logits += (u64)row * count;
    d_weights += (u64)row * heads;
    Layout lay = layout_of(heads, lane);
    float dw = lay.head < heads ? d_weights[lay.head] : 0.0f;
    float dw_far = lay.head + 32 < heads ? d_weights[lay.head + 32] : 0.0f;
    // Σ g·dg = w·dw needs no dg.
    float2 w = mixed(lay, gates, experts, count, heads);
    float mean = warp_sum(w.x * dw + w.y * dw_far);
    for (u32 first = 0; first < count; first += lay.experts) {
        u32 e = first + lay.expert;
        float dg = 0.0f;
        if (e < count) {
            const float* m = experts + e * heads + lay.head;
            if (lay.head < heads) dg = dw * m[0];
            if (lay.head + 32 < heads) dg = fmaf(dw_far, m[32], dg);
        }
        for (u32 o = lay.width / 2; o > 0; o /= 2) dg += __shfl_xor_sync(FULL_WARP, dg, o);
        if (e < count && lay.head == 0) {
            float held = add ? as_float(d_logits[e]) : 0.0f;
            d_logits[e] = as_act(held + gates[e] * (dg - mean));
        }
    }
}

// The first expert whose cumulative probability exceeds u, with the CPU's order of additions. Rounding can leave the
// sum a little below 1: then the last expert with any probability. `own` begins at the gate of expert `lane`.
__device__ __forceinline__ u32 inverse_cdf(const float* own, u32 count, float u, u32 lane) {
    float sum = 0.0f;
    u32 last = 0;
    for (u32 first = 0; first < count; first += 32) {
        float gate = first + lane < count ? own[first] : 0.0f;
        u32 here = min(32u, count - first);
        for (u32 j = 0; j < here; j++) {
            float g = __shfl_sync(FULL_WARP, gate, j);
            sum += g;
            if (u < sum) return first + j;
            if (g > 0.0f) last = first + j;
        }
    }
    return last;
}

// The first expert with the largest gate.
__device__ __forceinline__ u32 argmax(const float* own, u32 count, u32 lane) {
    float highest = MINUS_INFINITY;
    u32 best = 0;
    for (u32 first = 0; first + lane < count; first += 32)
        if (own[first] > highest) highest = own[first], best = first + lane;
    for (u32 o = 16; o > 0; o /= 2) {
        float other = __shfl_xor_sync(FULL_WARP, highest, o);
        u32 place = __shfl_xor_sync(FULL_WARP, best, o);
        if (other > highest || (other == highest && place < best)) highest = other, best = place;
    }
    return best;
}

// How a row comes to its head weights. MIX: all experts by the gate, for whole gates only; others one expert. SAMPLE: drawn from the gate; SAMPLE_PER_SENTENCE: the same with one number per sentence,
// rows without a sentence take expert 0; ARGMAX: the most likely one; FIXED: given[0]; GIVEN: given[row].
struct Picking {
    Stream stream;
    u32 how;
    const u32 *given, *sentence_of_row;  // may be null where `how` does not need them, and so may the stream's step
};

// The random number of a row that draws.
__device__ __forceinline__ float draw(const Picking& p, u32 row) {
    if (p.how > SAMPLE_PER_SENTENCE) return 0.0f;
    return uniform(p.stream, p.how == SAMPLE ? row : p.sentence_of_row[row], 0);
}

// The expert of a row, `u` being its random number. `own` begins at the gate of expert `lane`, which alone the lane reads, and every 32nd after it.
__device__ __forceinline__ u32 pick(const Picking& p, float u, const float* own, u32 row, u32 count, u32 lane) {
    if (p.how == ARGMAX) return argmax(own, count, lane);
    if (p.how == FIXED) return p.given[0];
    if (p.how == GIVEN) return p.given[row];
    if (p.how == SAMPLE_PER_SENTENCE && p.sentence_of_row[row] == NO_SENTENCE) return 0;
    return inverse_cdf(own, count, u, lane);
}

// One expert per row; gates as in mix_forward (even if `logits` is null), weights = that expert's row of M.
// launch: grid ceil(n/4), block 128
extern "C" __global__ void __launch_bounds__(32 * ROWS)
pick_forward(const act* logits, const float* experts, Picking picking, float* gates, float* weights, u32 n, u32 count,
             u32 heads) {
    u32 row = blockIdx.x * ROWS + threadIdx.x / 32, lane = threadIdx.x % 32;
    if (row >= n) return;
    gates += (u64)row * count;
    write_gates(logits == nullptr ? nullptr : logits + (u64)row * count, gates, count, lane);
    u32 expert = pick(picking, draw(picking, row), gates + lane, row, count, lane);
    for (u32 h = lane; h < heads; h += 32) weights[(u64)row * heads + h] = experts[expert * heads + h];
}

// The second half of a gate and its head weights in one: hidden = dropout(tanh(z + b1)) [n, inner], logits = W2·hidden + b2,
// then as pick_forward, or as mix_forward, for at most 32 experts.
// launch: grid ceil(n/8), block 256
extern "C" __global__ void __launch_bounds__(32 * GATE_ROWS)
gate_weights(const act* z, const float* b1, Dropout dropout, const float* w2, const float* b2, u32 inner,
             const float* experts, Picking picking, float* gates, float* weights, u32 n, u32 count, u32 heads) {
    u32 lane = threadIdx.x % 32, row = blockIdx.x * GATE_ROWS + threadIdx.x / 32;
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
    float gate = gate_of_lane(hidden, w2, own_bias, inner, count, lane);
    if (lane < count) gates[(u64)row * count + lane] = gate;
    weights += (u64)row * heads;
    if (picking.how == MIX) {
        write_mixture(gate, experts, weights, count, heads, lane);
        return;
    }
    u32 expert = pick(picking, u, &gate, row, count, lane);
    for (u32 h = lane; h < heads; h += 32) weights[h] = experts[expert * heads + h];
}
