// A projection and the first layer of a gate over running means as one matrix, and what follows their product in a step
// of a search: see mod.rs. How steps, rows and sums lie: see decode.cu.

// weight [projected + hidden, cols] and bias: the rows of the projection, then W1 times the norm's scales with the bias
// b1 + W1·(the norm's shifts), so that what the product rounds is centred; hidden_bias: what rounding takes from that
// bias. cols is a multiple of 8.
// launch: grid projected + hidden, block 256
extern "C" __global__ void __launch_bounds__(THREADS)
fold_gate(const act* projection, const act* projection_bias, const float* w1, const float* b1, Norm norm, act* weight,
          act* bias, float* hidden_bias, u32 projected, u32 cols) {
    u32 row = blockIdx.x;
    weight += (u64)row * cols;
    if (row < projected) {
        for (u32 c = threadIdx.x; c < cols; c += THREADS) weight[c] = projection[(u64)row * cols + c];
        if (threadIdx.x == 0) bias[row] = projection_bias[row];
        return;
    }
    __shared__ float sums[THREADS / 32];
    u32 unit = row - projected;
    w1 += (u64)unit * cols;
    float shift = 0.0f;
    for (u32 c = threadIdx.x; c < cols; c += THREADS) {
        float scale = norm.gamma[c] / sqrtf(norm.variance[c] + EPSILON);
        weight[c] = as_act(w1[c] * scale);
        shift = fmaf(w1[c], norm.beta[c] - norm.mean[c] * scale, shift);
    }
    shift = warp_sum(shift);
    if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = shift;
    __syncthreads();
    if (threadIdx.x != 0) return;
    float total = b1[unit];
    for (u32 w = 0; w < THREADS / 32; w++) total += sums[w];
    bias[row] = as_act(total);
    hidden_bias[unit] = total - as_float(as_act(total));
}

// z [n, stride] is the product: `projected` columns of the projection, then `inner` hidden units, whose sums over the
// steps of a hypothesis are kept in sums [2, room, inner]. weights [n, heads] = gate·M of their means with b1 added.
// Where kv is not null, the projection is queries, keys and values of `width` columns, and keys and values go to the
// newest step of kv, as by store_kv. All sizes of rows are multiples of 8.
// launch: grid ceil(n/8), block 256
extern "C" __global__ void __launch_bounds__(32 * GATE_ROWS)
gated_weights(const act* z, u32 stride, u32 projected, float* sums, const u32* parents, const u32* ages,
              const u32* clock, const float* b1, const float* w2, const float* b2, u32 inner, const float* experts,
              float* weights, act* kv, u32 ring, u32 room, u32 n, u32 count, u32 heads, u32 width) {
    u32 lane = threadIdx.x % 32, row = blockIdx.x * GATE_ROWS + threadIdx.x / 32;
    if (row >= n) return;
    u32 t = *clock, age = ages[row];
    float hidden[GATE_RUNS][8] = {}, own_bias = lane < count ? b2[lane] : 0.0f, inverse = 1.0f / (float)(age + 1);
    const float* before = sums + ((u64)((t + 1) % 2) * room + parents[row]) * inner;
    float* after = sums + ((u64)(t % 2) * room + row) * inner;
    z += (u64)row * stride;
#pragma unroll
    for (int r = 0; r < GATE_RUNS; r++) {
        u32 at = 8 * (lane + 32 * r);
        if (at >= inner) continue;
        float past[8] = {}, bias[8];
        load8(z + projected, at, inner, hidden[r]);
        if (age > 0) load8(before, at, inner, past);
        load8(b1, at, inner, bias);
#pragma unroll
        for (int i = 0; i < 8; i++) past[i] += hidden[r][i];
        store8(after, at, inner, past);
#pragma unroll
        for (int i = 0; i < 8; i++) hidden[r][i] = gate_tanh(fmaf(past[i], inverse, bias[i]));
    }
    if (kv != nullptr) {
        kv += ((u64)(t & (ring - 1)) * room + row) * 2 * width;
        for (u32 at = 8 * lane; at < 2 * width; at += 256) {
            float v[8];
            load8(z + width, at, 2 * width, v);
            store8(kv, at, 2 * width, v);
        }
    }
    float gate = gate_of_lane(hidden, w2, own_bias, inner, count, lane);
    write_mixture(gate, experts, weights + (u64)row * heads, count, heads, lane);
}
