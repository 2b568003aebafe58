// Search: one new row per hypothesis and step, attention over cached keys and values, the best next tokens.
//
// Self-attention's cache is kv [ring, room, 2D], keys then values, one matrix per step; `room` is the most rows there
// can be. Step t uses matrix t mod `ring`, a power of two that no hypothesis has more steps than. Hypotheses that are
// reordered do not move it: the lineage says at which row of each step a hypothesis has its past. Hypotheses begin at
// different steps: ages[row] is the number of steps that one has taken before this one. Lineage [2, ring, room] and
// running sums [2, room, D] exist twice: step t reads the copy of step t − 1 and writes its own, t mod 2. `*clock` is t;
// clock and ages are read from device memory, so that a captured step can be replayed. The clock may wrap.

// ---- caches ----------------------------------------------------------------------------------------------------

// Puts columns D..3D of qkv, whose rows are `stride` apart, into the newest step of kv, D = width.
// launch: grid ceil(rows·2·ceil(width/8)/256), block 256
extern "C" __global__ void __launch_bounds__(THREADS)
store_kv(const act* __restrict__ qkv, act* __restrict__ kv, const u32* clock, u32 ring, u32 room, u32 rows, u32 width,
         u32 stride) {
    u32 runs = (width + 7) / 8, index = blockIdx.x * THREADS + threadIdx.x;
    u32 row = index / (2 * runs), part = index / runs % 2, at = index % runs * 8;
    if (row >= rows) return;
    u64 to = (u64)(*clock & (ring - 1)) * room + row;
    float v[8];
    load8(qkv + (u64)row * stride + (1 + part) * width, at, width, v);
    store8(kv + (to * 2 + part) * width, at, width, v);
}

__device__ __forceinline__ u64 copy_of(u32 step, u32 ring, u32 room) {
    return (u64)(step % 2) * ring * room;
}

// Hypothesis r of this step descends from hypothesis parents[r] of the step before: new[s][r] = old[s][parents[r]] for
// its steps s before this one, and in this one it has its own row.
// launch: grid (ceil(rows/256), 32), block 256
extern "C" __global__ void __launch_bounds__(THREADS)
advance_lineage(u32* lineage, const u32* parents, const u32* ages, const u32* clock, u32 ring, u32 room, u32 rows) {
    u32 row = blockIdx.x * THREADS + threadIdx.x, t = *clock;
    if (row >= rows) return;
    u32* own = lineage + copy_of(t, ring, room);
    const u32* old = lineage + copy_of(t + 1, ring, room);
    u32 parent = parents[row], age = ages[row];
    if (blockIdx.y == 0) own[(u64)(t & (ring - 1)) * room + row] = row;
#pragma unroll 4
    for (u32 back = 1 + blockIdx.y; back <= age; back += gridDim.y) {
        u64 step = (u64)((t - back) & (ring - 1)) * room;
        own[step + row] = old[step + parent];
    }
}

// Eight columns, as batch_norm_forward; unchanged where gamma is null.
__device__ __forceinline__ void normalise(const Norm& norm, u32 at, u32 cols, float v[8]) {
    if (norm.gamma == nullptr) return;
    float gamma[8], beta[8], mean[8], variance[8];
    load8(norm.gamma, at, cols, gamma);
    load8(norm.beta, at, cols, beta);
    load8(norm.mean, at, cols, mean);
    load8(norm.variance, at, cols, variance);
#pragma unroll
    for (int i = 0; i < 8; i++) v[i] = fmaf(v[i] - mean[i], gamma[i] / sqrtf(variance[i] + EPSILON), beta[i]);
}

// What a running gate reads: the sum of the inputs x [rows, cols] of a hypothesis so far, and mean = sum/(age + 1),
// normalised.
// launch: grid ceil(rows·ceil(cols/8)/256), block 256
extern "C" __global__ void __launch_bounds__(THREADS)
running_gate(const act* __restrict__ x, float* sums, const u32* parents, const u32* ages, const u32* clock,
             Norm norm, act* __restrict__ mean, u32 room, u32 rows, u32 cols) {
    u32 runs = (cols + 7) / 8, index = blockIdx.x * THREADS + threadIdx.x, t = *clock;
    u32 row = index / runs, at = index % runs * 8;
    if (row >= rows) return;
    u32 age = ages[row];
    float v[8], past[8], inverse = 1.0f / (float)(age + 1);
    load8(x + (u64)row * cols, at, cols, v);
    if (age > 0) {
        load8(sums + ((u64)((t + 1) % 2) * room + parents[row]) * cols, at, cols, past);
#pragma unroll
        for (int i = 0; i < 8; i++) v[i] += past[i];
    }
    store8(sums + ((u64)(t % 2) * room + row) * cols, at, cols, v);
#pragma unroll
    for (int i = 0; i < 8; i++) v[i] *= inverse;
    normalise(norm, at, cols, v);
    store8(mean + (u64)row * cols, at, cols, v);
}

#define IN_FLIGHT 4u

// What a gate over a window reads: the mean of the last `window` inputs of a hypothesis, x [rows, cols] being the newest,
// which is put into inputs [kept, room, cols]: those of step s lie in matrix s mod kept, a power of two that is at least
// min(window, steps of a hypothesis).
// launch: grid ceil(rows·ceil(cols/8)/256), block 256
extern "C" __global__ void __launch_bounds__(THREADS)
window_gate(const act* __restrict__ x, act* inputs, const u32* lineage, const u32* ages, const u32* clock,
            act* __restrict__ mean, u32 window, u32 kept, u32 ring, u32 room, u32 rows, u32 cols) {
    u32 runs = (cols + 7) / 8, index = blockIdx.x * THREADS + threadIdx.x, t = *clock;
    u32 row = index / runs, at = index % runs * 8;
    if (row >= rows) return;
    lineage += copy_of(t, ring, room) + row;
    u32 terms = min(ages[row] + 1, window);
    float sum[8] = {}, v[IN_FLIGHT][8], own[8];
    for (u32 back = terms - 1; back > 0; back -= min(back, IN_FLIGHT)) {
        auto from = [&](u32 b) {
            u32 step = t - (b < back ? back - b : 0);
            u64 place = (u64)(step & (kept - 1)) * room + lineage[(u64)(step & (ring - 1)) * room];
            return b < back ? inputs + place * cols : nullptr;
        };
        load_rows<IN_FLIGHT>(from, at, cols, v);
#pragma unroll
        for (u32 b = 0; b < IN_FLIGHT; b++)
#pragma unroll
            for (int i = 0; i < 8; i++) sum[i] += v[b][i];
    }
    load8(x + (u64)row * cols, at, cols, own);
    store8(inputs + ((u64)(t & (kept - 1)) * room + row) * cols, at, cols, own);
    float inverse = 1.0f / (float)terms;
#pragma unroll
    for (int i = 0; i < 8; i++) sum[i] = (sum[i] + own[i]) * inverse;
    store8(mean + (u64)row * cols, at, cols, sum);
}

// ---- rows by index -----------------------------------------------------------------------------------------------
// launch of each: grid (ceil(cols / 512), ceil(count / 4)), block (256), shared 0

template <typename T>
__device__ __forceinline__ void gather_run(const T* x, const u32* rows, T* y, u32 count, u32 cols) {
    const Place p = place_of_thread();
    if (p.row >= count || p.at >= cols) return;
    float v[8];
    load8(x + (u64)rows[p.row] * cols, p.at, cols, v);
    store8(y + (u64)p.row * cols, p.at, cols, v);
}

// y[i] = x[rows[i]]; y [count, cols]
extern "C" __global__ void gather(const act* x, const u32* rows, act* y, u32 count, u32 cols) {
    gather_run(x, rows, y, count, cols);
}

extern "C" __global__ void gather_float(const float* x, const u32* rows, float* y, u32 count, u32 cols) {
    gather_run(x, rows, y, count, cols);
}

template <typename T>
__device__ __forceinline__ void put_run(const T* x, const u32* rows, const u32* count, T* y, u32 cols) {
    const Place p = place_of_thread();
    if (p.row >= *count || p.at >= cols) return;
    float v[8];
    load8(x + (u64)p.row * cols, p.at, cols, v);
    store8(y + (u64)rows[p.row] * cols, p.at, cols, v);
}

// y[rows[i]] = x[i] for i < *count; no row is named twice
extern "C" __global__ void put(const act* x, const u32* rows, const u32* count, act* y, u32 cols) {
    put_run(x, rows, count, y, cols);
}

extern "C" __global__ void put_float(const float* x, const u32* rows, const u32* count, float* y, u32 cols) {
    put_run(x, rows, count, y, cols);
}

// ---- attention of single rows ----------------------------------------------------------------------------------

#define UNROLL 2u  // keys of a group in flight

// One warp: weight·softmax(q·K/√k)·V of one head, over the `count` rows place(0), place(1), … of kv, 2D
// columns of rows that are kv_stride apart.
//
// A key is read by a group of lanes, eight columns each: 8 lanes for a head of 64, so that four groups take keys in
// turn. Each group has its own online softmax; they are merged at the end.
template <typename Place>
__device__ __forceinline__ void attend(const act* q, const act* kv, u64 kv_stride, u32 count, Place place,
                                       float weight, act* out, u32 head, u32 heads, u32 head_width) {
    u32 lane = threadIdx.x % 32, lanes = 1;
    while (8 * lanes < head_width) lanes *= 2;
    u32 groups = 32 / lanes, group = lane / lanes, at = lane % lanes * 8;
    u64 width = heads * head_width;
    bool inside = at < head_width;
    q += head * head_width, kv += head * head_width, out += head * head_width;

    // Powers of 2 instead of e: log2(e) goes into the query.
    float query[8] = {}, sum = 0.0f, highest = LOWEST, mix[8] = {};
    if (inside) load8(q, at, head_width, query);
#pragma unroll
    for (int i = 0; i < 8; i++) query[i] *= 1.44269504f / sqrtf((float)head_width);

    if (weight == 0.0f) count = 0;
    for (u32 base = 0; base < count; base += 32) {
        u32 here = min(32u, count - base);
        u64 own = lane < here ? place(base + lane) : 0;
        for (u32 first = 0; first < here; first += UNROLL * groups) {
            float keys[UNROLL][8] = {}, values[UNROLL][8] = {}, score[UNROLL], top = highest;
            const act* from[UNROLL];
#pragma unroll
            for (u32 u = 0; u < UNROLL; u++) {
                u32 j = first + u * groups + group;
                u64 row = __shfl_sync(FULL_WARP, own, j % 32);
                from[u] = inside && j < here ? kv + row * kv_stride : nullptr;
            }
            // All loads are begun before any is used.
#pragma unroll
            for (u32 u = 0; u < UNROLL; u++) {
                if (from[u] == nullptr) continue;
                load8(from[u], at, head_width, keys[u]);
                load8(from[u] + width, at, head_width, values[u]);
            }
#pragma unroll
            for (u32 u = 0; u < UNROLL; u++) {
                float dot = 0.0f;
#pragma unroll
                for (int i = 0; i < 8; i++) dot = fmaf(query[i], keys[u][i], dot);
                for (u32 o = lanes / 2; o > 0; o /= 2) dot += __shfl_xor_sync(FULL_WARP, dot, o);
                score[u] = first + u * groups + group < here ? dot : MINUS_INFINITY;
                top = fmaxf(top, score[u]);
            }
            float shrink = exp2f(highest - top);
            highest = top;
            sum *= shrink;
#pragma unroll
            for (int i = 0; i < 8; i++) mix[i] *= shrink;
#pragma unroll
            for (u32 u = 0; u < UNROLL; u++) {
                float p = exp2f(score[u] - top);
                sum += p;
#pragma unroll
                for (int i = 0; i < 8; i++) mix[i] = fmaf(p, values[u][i], mix[i]);
            }
        }
    }

    float shrink = exp2f(highest - warp_max(highest));
    sum *= shrink;
#pragma unroll
    for (int i = 0; i < 8; i++) mix[i] *= shrink;
    for (u32 o = 16; o >= lanes; o /= 2) {
        sum += __shfl_xor_sync(FULL_WARP, sum, o);
#pragma unroll
        for (int i = 0; i < 8; i++) mix[i] += __shfl_xor_sync(FULL_WARP, mix[i], o);
    }
    if (!inside || group != 0) return;
    float factor = count > 0 ? weight / sum : 0.0f;
#pragma unroll
    for (int i = 0; i < 8; i++) mix[i] *= factor;
    store8(out, at, head_width, mix);
}

// The rows of a block are neighbours and so mostly of one sentence, whose keys they find in L1.
#define ROWS (THREADS / 32)

// Each row of q against its own past, the newest step included: out [rows, D], D = heads·head_width; q has rows of
// q_stride (D, 3D within qkv, or more); weights [rows, heads] or null. Head widths up to 128; those that are multiples of 8
// are read fast, and then q_stride must be one, too.
// launch: grid (ceil(rows/8), heads), block 256
extern "C" __global__ void __launch_bounds__(THREADS, 3)
attention_cached(const act* q, u32 q_stride, const act* kv, const u32* lineage, const u32* ages, const u32* clock,
                 const float* weights, act* out, u32 ring, u32 room, u32 rows, u32 heads, u32 head_width) {
    u32 row = blockIdx.x * ROWS + threadIdx.x / 32, head = blockIdx.y, t = *clock;
    if (row >= rows) return;
    lineage += copy_of(t, ring, room);
    u32 age = ages[row];
    float weight = weights != nullptr ? weights[(u64)row * heads + head] : 1.0f;
    auto place = [&](u32 s) {
        u64 step = (u64)((t - age + s) & (ring - 1)) * room;
        return step + lineage[step + row];
    };
    out += (u64)row * heads * head_width;
    attend(q + (u64)row * q_stride, kv, 2 * heads * head_width, age + 1, place, weight, out, head, heads, head_width);
}

// Each row of q against the rows spans[2b] .. spans[2b + 1] of kv, b = sentences[row]; zeros for a sentence without rows.
// kv [Nk, 2D] has rows of kv_stride. Else as attention_cached.
// launch: grid (ceil(rows/8), heads), block 256
extern "C" __global__ void __launch_bounds__(THREADS, 3)
attention_memory(const act* q, u32 q_stride, const act* kv, u32 kv_stride, const u32* spans, const u32* sentences,
                 const float* weights, act* out, u32 rows, u32 heads, u32 head_width) {
    u32 row = blockIdx.x * ROWS + threadIdx.x / 32, head = blockIdx.y;
    if (row >= rows) return;
    float weight = weights != nullptr ? weights[(u64)row * heads + head] : 1.0f;
    u32 sentence = sentences[row], first = spans[2 * sentence], count = spans[2 * sentence + 1] - first;
    auto place = [&](u32 j) { return (u64)first + j; };
    out += (u64)row * heads * head_width;
    attend(q + (u64)row * q_stride, kv, kv_stride, count, place, weight, out, head, heads, head_width);
}

// ---- best continuations ----------------------------------------------------------------------------------------

// The `count` best continuations of each row of logits [rows, types], best first, of equal scores the lower token
// first: best_scores, best_tokens [rows, count], score = scores[row] + ln softmax(logits)[token], less penalties[row] for
// the token `unknown`. Where there are no more possible ones (forbidden, or not a finite number) the score is −∞ and the
// token 0. `pad` is forbidden. The rule of a row: WORDS, `end` is forbidden, too; END, nothing but `end` is possible, and
// nothing is penalised.
// launch: grid rows, block up to BEST_THREADS
extern "C" __global__ void __launch_bounds__(BEST_THREADS, 2)
best_rows(const act* logits, u32 types, const float* scores, const float* penalties, const u32* rules, u32 pad, u32 end,
          u32 unknown, u32 count, float* best_scores, u32* best_tokens) {
    u32 row = blockIdx.x;
    logits += (u64)row * types;
    best_scores += (u64)row * count;
    best_tokens += (u64)row * count;
    float2 total = log_sum(logits, types, 1.0f);
    float score = scores[row];
    u32 rule = rules[row];
    if (rule == END) {
        for (u32 rank = threadIdx.x; rank < count; rank += blockDim.x) {
            float value = score + ((as_float(logits[end]) - total.x) - total.y);
            best_scores[rank] = rank == 0 ? score_of(candidate(value, end)) : MINUS_INFINITY;
            best_tokens[rank] = rank == 0 ? end : 0;
        }
        return;
    }
    Scoring<act> scoring = {logits,  types,         score - (total.x + total.y), {pad, rule == WORDS ? end : pad},
                       unknown, penalties[row]};
    take_best(scoring, scoring.constrained(threadIdx.x, blockDim.x), count, best_scores, best_tokens);
}

// The `count` best continuations of each group of rows, groups [2, number] being its first row and the one after its
// last: scores, rows, tokens [number, count], best first; of equal scores the lower row and then the lower token first.
// best_scores, best_tokens: see best_rows. Where there are no more, the score is −∞.
// launch: grid number of groups, block 32
extern "C" __global__ void __launch_bounds__(32)
best_of_groups(const float* best_scores, const u32* best_tokens, const u32* groups, u32 count, float* scores, u32* rows,
               u32* tokens) {
    u32 lane = threadIdx.x, first = groups[2 * blockIdx.x] * count, end = groups[2 * blockIdx.x + 1] * count;
    u64 to = (u64)blockIdx.x * count;
    // A candidate as one number, see above, with the row in the place of the token; rows hold theirs in order.
    u64 taken = ~(u64)0;
    u32 taken_at = 0;
    for (u32 rank = 0; rank < count; rank++) {
        u64 best = 0;
        u32 at = ~0u;
        for (u32 i = first + lane; i < end; i += 32) {
            u64 own = candidate(best_scores[i], i / count);
            bool after = own < taken || (own == taken && i > taken_at);
            if (after && own > best) best = own, at = i;
        }
        taken = warp_best(best);
        taken_at = __reduce_min_sync(FULL_WARP, best == taken ? at : ~0u);
        if (lane == 0) {
            scores[to + rank] = score_of(taken);
            rows[to + rank] = taken == 0 ? 0 : taken_at / count;
            tokens[to + rank] = taken == 0 ? 0 : best_tokens[taken_at];
        }
        if (taken == 0) taken_at = ~0u;
    }
}
