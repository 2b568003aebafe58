// Head weights of MoH from logits [n, heads + 2]: `shared` heads that every row uses, routed heads of which a row uses
// the `active` ones with the largest logits, and two numbers that divide a row between them. A thread takes a row.

// Writes the softmax of `count` logits.
__device__ __forceinline__ void softmax_part(const act* logits, float* shares, u32 count) {
    float highest = as_float(logits[0]), sum = 0.0f;
    for (u32 j = 1; j < count; j++) highest = fmaxf(highest, as_float(logits[j]));
    for (u32 j = 0; j < count; j++) sum += expf(as_float(logits[j]) - highest);
    float inverse = 1.0f / sum;
    for (u32 j = 0; j < count; j++) shares[j] = expf(as_float(logits[j]) - highest) * inverse;
}

// True if fewer than `active` logits come before that of head e: larger ones, and equal ones of earlier heads.
__device__ __forceinline__ bool is_active(const act* logits, u32 e, u32 count, u32 active) {
    float own = as_float(logits[e]);
    u32 before = 0;
    for (u32 i = 0; i < count; i++) {
        float other = as_float(logits[i]);
        before += other > own || (other == own && i < e);
    }
    return before < active;
}

// shares [n, heads + 2]: softmax of the shared, the routed and the last two logits. weights [n, heads]:
// 2·a0·shared·s_j, and 2·a1·active·p_j·m_j / Σ p∘m. used [blocks, heads - shared]: rows of each block that use a routed
// head, among the first *valid; may be null.
// launch: grid ceil(n/128), block 128
extern "C" __global__ void __launch_bounds__(THREADS)
route_forward(const act* logits, float* shares, float* weights, float* used, const u32* valid, u32 n, u32 heads,
              u32 shared, u32 active) {
    u32 row = blockIdx.x * THREADS + threadIdx.x, routed = heads - shared;
    bool is_there = row < n;
    // Threads without a row stay for the counts.
    if (is_there) {
        logits += (u64)row * (heads + 2);
        shares += (u64)row * (heads + 2);
        weights += (u64)row * heads;
        softmax_part(logits, shares, shared);
        softmax_part(logits + shared, shares + shared, routed);
        softmax_part(logits + heads, shares + heads, 2);
        float factor = 2.0f * shares[heads] * (float)shared;
        for (u32 j = 0; j < shared; j++) weights[j] = factor * shares[j];
        float kept = 0.0f;
        for (u32 e = 0; e < routed; e++) {
            float p = is_active(logits + shared, e, routed, active) ? shares[shared + e] : 0.0f;
            weights[shared + e] = p;
            kept += p;
        }
        factor = 2.0f * shares[heads + 1] * (float)active / kept;
        for (u32 j = shared; j < heads; j++) weights[j] *= factor;
    }
    if (used == nullptr) return;
    bool counts = is_there && row < *valid;
    for (u32 e = 0; e < routed; e++) {
        int users = __syncthreads_count(counts && weights[shared + e] > 0.0f);
        if (threadIdx.x == 0) used[blockIdx.x * routed + e] = (float)users;
    }
}

// d_logits (+)=
//   y∘(dw − Σ y∘dw / Σ y)            in the shared and in the routed part, y the weights
//   Σ y∘dw of the part − a·Σ y∘dw    for the last two
// and for the routed part of the first *valid rows, if `used` is not null, p∘(pull − Σ p∘pull) with
// pull_e = balance·*batch_rows·*loss_weight·*factor·routed·(Σ used_e)/valid². shares, weights, used as route_forward
// writes them, in `parts` blocks.
// launch: grid ceil(n/128), block 128, shared 4·routed bytes
extern "C" __global__ void __launch_bounds__(THREADS)
route_backward(const float* dw, const float* shares, const float* weights, const float* used, u32 parts,
               const u32* valid, const u32* batch_rows, const float* loss_weight, const float* factor, float balance,
               act* d_logits, u32 add, u32 n, u32 heads, u32 shared) {
    extern __shared__ float pull[];
    u32 row = blockIdx.x * THREADS + threadIdx.x, routed = heads - shared;
    if (used != nullptr) {
        float rows = (float)*valid;
        float scale = balance * (float)*batch_rows * *loss_weight * *factor * (float)routed / (rows * rows);
        for (u32 e = threadIdx.x; e < routed; e += THREADS) {
            float users = 0.0f;
            for (u32 part = 0; part < parts; part++) users += used[part * routed + e];
            pull[e] = rows > 0.0f ? scale * users : 0.0f;
        }
        __syncthreads();
    }
    if (row >= n) return;
    dw += (u64)row * heads;
    weights += (u64)row * heads;
    shares += (u64)row * (heads + 2);
    d_logits += (u64)row * (heads + 2);
    auto put = [&](u32 j, float value) {
        d_logits[j] = as_act(add ? as_float(d_logits[j]) + value : value);
    };
    bool balanced = used != nullptr && row < *valid;
    float tilt = 0.0f;
    if (balanced)
        for (u32 e = 0; e < routed; e++) tilt = fmaf(shares[shared + e], pull[e], tilt);
    float sums[2];
    for (u32 part = 0; part < 2; part++) {
        u32 first = part ? shared : 0, end = part ? heads : shared;
        float sum = 0.0f, product = 0.0f;
        for (u32 j = first; j < end; j++) {
            sum += weights[j];
            product = fmaf(weights[j], dw[j], product);
        }
        float mean = sum > 0.0f ? product / sum : 0.0f;
        for (u32 j = first; j < end; j++) {
            float value = weights[j] * (dw[j] - mean);
            if (balanced && part) value = fmaf(shares[j], pull[j - shared] - tilt, value);
            put(j, value);
        }
        sums[part] = product;
    }
    float both = sums[0] + sums[1];
    put(heads, sums[0] - shares[heads] * both);
    put(heads + 1, sums[1] - shares[heads + 1] * both);
}
