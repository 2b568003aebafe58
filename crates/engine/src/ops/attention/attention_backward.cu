// Attention backward. With P = exp(Q·Kᵀ/√K − log_sum), f the dropout factors and dP = dO·Vᵀ, per sentence and head:
//   dw = Σ_j f_j·P_j·dP_j = dO·out/w    the gradient of a row's weight, and the inner product in the softmax's gradient
//   dS = w·P∘(f∘dP − dw)/√K             dQ = dS·K   dK = dSᵀ·Q   dV = (w·f∘P)ᵀ·dO
// Where most sentences are short, those take attention_backward_short. Others take attention_backward_rows, then
// attention_backward_keys and, for per-sentence weights, attention_weight_gradients. Heads of weight 0 are computed
// only where d_weights is wanted. Arguments, macros and building blocks: attention.cuh.

constexpr int STAGES = MOST_STAGES;  // tiles of the other side in shared memory

// Starts to load `count` queries of a sentence and the gradients of their outputs, from query `from` on.
template <int R>
__device__ __forceinline__ void load_queries(act* q, act* d_out, const AttendBackward& b, const Head& h, u32 from,
                                             u32 count) {
    const Attend& a = b.forward;
    const u32 out_stride = a.heads * HEAD;
    load_tile<R>(q, head_rows(a.q, a.q_stride, h.query + from, h.head), a.q_stride, count);
    load_tile<R>(d_out, head_rows(b.d_out, out_stride, h.query + from, h.head), out_stride, count);
}

// The 16 queries of a warp: what a lane knows of its two rows.
struct Queries {
    u32 visible[2];
    float log_sum[2], weight[2];

    // From query `first` of the sentence on. Rows past its end and rows that are not computed see no key.
    __device__ __forceinline__ Queries(const AttendBackward& b, const Head& h, u32 first) {
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const u32 i = first + lane_row() + 8 * half;
            const bool inside = i < h.queries;
            weight[half] = inside ? weight_of(b.forward, h, i) : 0.0f;
            log_sum[half] = inside ? b.forward.log_sums[place_of(b.forward, h, i)] * UNIT : 0.0f;
            visible[half] = inside && (weight[half] != 0.0f || b.d_weights != nullptr) ? visible_keys(h, i) : 0;
        }
    }

    // P from the scores of 16 keys from `key` on.
    __device__ __forceinline__ void probabilities(float p[2][4], u32 key) const {
#pragma unroll
        for (int e = 0; e < 8; e++) {
            const u32 j = key + e / 4 * 8 + lane_column() + e % 2;
            const int half = e % 4 / 2;
            p[e / 4][e % 4] = j < visible[half] ? power(p[e / 4][e % 4] * SCORE_SCALE - log_sum[half]) : 0.0f;
        }
    }
};

// dP becomes f∘dP.
__device__ __forceinline__ void drop(float dp[2][4], u32 bits, float scale) {
#pragma unroll
    for (int e = 0; e < 8; e++) dp[e / 4][e % 4] = Drops::kept(bits, e / 4, e % 4) ? dp[e / 4][e % 4] * scale : 0.0f;
}

// A lane's part of dw.
__device__ __forceinline__ void add_products(float dw[2], const float p[2][4], const float dp[2][4]) {
#pragma unroll
    for (int e = 0; e < 8; e++) dw[e % 4 / 2] += p[e / 4][e % 4] * dp[e / 4][e % 4];
}

// w·f∘P.
__device__ __forceinline__ FragmentA weighted_probabilities(const float p[2][4], u32 bits, const float weight[2],
                                                            float scale) {
    float out[2][4];
#pragma unroll
    for (int e = 0; e < 8; e++) {
        const bool kept = !DROPOUT || Drops::kept(bits, e / 4, e % 4);
        out[e / 4][e % 4] = kept ? p[e / 4][e % 4] * weight[e % 4 / 2] * scale : 0.0f;
    }
    return as_fragment(out);
}

// dS of 16 queries × 16 keys from P and f∘dP.
__device__ __forceinline__ FragmentA score_gradient(const float p[2][4], const float dp[2][4], const float weight[2],
                                                    const float dw[2]) {
    float ds[2][4];
#pragma unroll
    for (int e = 0; e < 8; e++) {
        const int half = e % 4 / 2;
        ds[e / 4][e % 4] = weight[half] * SCALE * p[e / 4][e % 4] * (dp[e / 4][e % 4] - dw[half]);
    }
    return as_fragment(ds);
}

// Whether the sentence takes attention_backward_short.
__device__ __forceinline__ bool is_short(const Head& h) {
    return max(h.queries, h.keys) <= SHORT;
}

#if !LONG
// ---- short sentences -------------------------------------------------------------------------------------------

constexpr int SCORE_PITCH = SHORT + PADDING;
constexpr int HALF = SHORT / 2;

__device__ __forceinline__ void store_fragment(act* scores, const FragmentA& a) {
    Pair* to = (Pair*)(scores + lane_row() * SCORE_PITCH + lane_column());
    to[0] = a.r[0], to[4] = a.r[2];
    to[4 * SCORE_PITCH] = a.r[1], to[4 * SCORE_PITCH + 4] = a.r[3];
}

// Everything, for sentences of at most SHORT queries and keys. First a warp owns 16 queries, computes dw, then dS, w·f∘P
// and dQ; then the warps take turns at dK and dV of 16 keys.
//
// The two halves of a block (threadIdx.y) share the rows of a head, HALF each; or, if the sentence is that short, each
// has a head of its own. Either way the rows that a half loads lie from row HALF·threadIdx.y of the tiles on.
//
// launch: grid (heads, sentences), block (SHORT, 2), shared (4·SHORT·PITCH + 2·SHORT·(SHORT + PADDING))·sizeof(act)
extern "C" __global__ void __launch_bounds__(2 * SHORT, BLOCKS(256 / SHORT, 128 / SHORT))
attention_backward_short(AttendBackward b) {
    const Attend& a = b.forward;
    const u32 query_end = end_of(a.queries), key_end = end_of(a.keys), half = threadIdx.y;
    if (half == 0) {
        zero_tail(b.d_q, a.q_stride, query_end, a.queries.rows);
        zero_tail(b.d_k, a.kv_stride, key_end, a.keys.rows);
        zero_tail(b.d_v, a.kv_stride, key_end, a.keys.rows);
        if (WEIGHTS == 2 && b.d_weights != nullptr) zero_tail_places(b.d_weights, query_end, a.queries.rows);
    }
    Head h = head_of(a, blockIdx.y, blockIdx.x);
    const bool two_heads = max(h.queries, h.keys) <= HALF;
    if (two_heads) {
        if (h.head % 2 == 1) return;  // the block before this one has it
        h.head += half;
        if (h.head == a.heads) return;
    } else if (!is_short(h)) {
        return;
    }
    // Where the half's rows begin in tiles and in the sentence, and where the rows of its head begin in tiles.
    const u32 own = HALF * half, first = two_heads ? 0 : own, base = own - first;
    const u32 own_queries = min(HALF, max(h.queries, first) - first), own_keys = min(HALF, max(h.keys, first) - first);
    auto wait_for_head = [&] {
        if (two_heads)
            asm volatile("bar.sync %0, %1;" ::"r"(1 + half), "n"(SHORT) : "memory");
        else
            __syncthreads();
    };

    act *q = (act*)shared_memory, *d_out = q + SHORT * PITCH, *k = d_out + SHORT * PITCH, *v = k + SHORT * PITCH;
    act *ds_tile = v + SHORT * PITCH, *weighted_tile = ds_tile + SHORT * SCORE_PITCH;
    load_queries<HALF>(q + own * PITCH, d_out + own * PITCH, b, h, first, own_queries);
    load_keys<HALF>(k + own * PITCH, v + own * PITCH, a, h, first, own_keys);
    k += base * PITCH, v += base * PITCH;

    const u32 warp = warp_index(), row = first + 16 * warp, tile_row = own + 16 * warp;
    const Queries queries(b, h, row);
    const Drops drops(a.dropout);
    const bool computed = any_weight(a, h, 0, h.queries) || b.d_weights != nullptr;
    __shared__ float row_dw[SHORT];
    copies_done();
    wait_for_head();
    if (h.queries == 0 || h.keys == 0 || !computed) {
        zero_rows(head_rows(b.d_q, a.q_stride, h.query + first, h.head), a.q_stride, own_queries);
        zero_rows(head_rows(b.d_k, a.kv_stride, h.key + first, h.head), a.kv_stride, own_keys);
        zero_rows(head_rows(b.d_v, a.kv_stride, h.key + first, h.head), a.kv_stride, own_keys);
        if (WEIGHTS == 2 && b.d_weights != nullptr) zero_places(b.d_weights, a, h, first, own_queries);
        if (WEIGHTS == 1 && b.d_weights != nullptr && threadIdx.x == 0)
            b.d_weights[h.sentence * a.heads + h.head] = 0.0f;
        return;
    }
    if (row < h.queries) {
        const act *q_rows = q + tile_row * PITCH, *d_out_rows = d_out + tile_row * PITCH;
        const u32 seen = visible_keys(h, row + 15);
        float dw[2] = {0.0f, 0.0f};
        u32 kept = 0;  // two bits of each byte for 16 keys
        Sum sum = {};
        // P and dP of 16 keys from `at` on, and what they add to dw.
        auto first_look = [&](float p[2][4], float dp[2][4], u32 at) {
            products_of_rows(p, q_rows, k + at * PITCH, dp, d_out_rows, v + at * PITCH);
            queries.probabilities(p, at);
            if (DROPOUT) {
                const u32 bits = drops.of_rows(place_of(a, h, row), a.heads, at / 8);
                drop(dp, bits, drops.scale);
                kept |= (bits & 0x03030303) << at / 8;
            }
            add_products(dw, p, dp);
        };
        auto second_look = [&](const float p[2][4], const float dp[2][4], u32 at) {
            const u32 bits = kept >> at / 8, place = tile_row * SCORE_PITCH + at;
            const FragmentA ds[1] = {score_gradient(p, dp, queries.weight, dw)};
            store_fragment(ds_tile + place, ds[0]);
            store_fragment(weighted_tile + place, weighted_probabilities(p, bits, queries.weight, drops.scale));
            add_product(sum, ds, k + at * PITCH);
        };
        // Those of the first 32 keys stay in registers, those of others are made again.
        float p[3][2][4], dp[3][2][4];
        first_look(p[0], dp[0], 0);
        if (seen > 16) first_look(p[1], dp[1], 16);
#pragma unroll 1
        for (u32 at = 32; at < seen; at += 16) first_look(p[2], dp[2], at);
        dw[0] = quad_sum(dw[0]), dw[1] = quad_sum(dw[1]);
        if (lane_column() == 0) {
            row_dw[tile_row + lane_row()] = dw[0];
            row_dw[tile_row + lane_row() + 8] = dw[1];
        }
        second_look(p[0], dp[0], 0);
        if (seen > 16) second_look(p[1], dp[1], 16);
#pragma unroll 1
        for (u32 at = 32; at < seen; at += 16) {
            products_of_rows(p[2], q_rows, k + at * PITCH, dp[2], d_out_rows, v + at * PITCH);
            queries.probabilities(p[2], at);
            if (DROPOUT) drop(dp[2], kept >> at / 8, drops.scale);
            second_look(p[2], dp[2], at);
        }
        store_rows(head_rows(b.d_q, a.q_stride, h.query + row, h.head), a.q_stride, h.queries - row, sum);
    }
    wait_for_head();

    if (WEIGHTS == 2 && b.d_weights != nullptr && threadIdx.x < own_queries)
        b.d_weights[place_of(a, h, first + threadIdx.x)] = row_dw[own + threadIdx.x];
    if (WEIGHTS == 1 && b.d_weights != nullptr && threadIdx.x < 32 && first == 0) {
        float dw = 0.0f;
        for (u32 i = threadIdx.x; i < h.queries; i += 32) dw += row_dw[base + i];
        dw = warp_sum(dw);
        if (threadIdx.x == 0) b.d_weights[h.sentence * a.heads + h.head] = dw;
    }
    // Work 2·i is dK of the keys 16·i .., work 2·i + 1 is dV of the same.
    const u32 warps = two_heads ? HALF / 16 : SHORT / 16;
    for (u32 work = first / 16 + warp; work < (h.keys + 15) / 16 * 2; work += warps) {
        const u32 key = work / 2 * 16;
        const bool values = work % 2;
        const act *scores = (values ? weighted_tile : ds_tile) + base * SCORE_PITCH;
        const act *rows = (values ? d_out : q) + base * PITCH;
        Sum sum = {};
        // Queries before a key do not see it.
        for (u32 i = CAUSAL ? key : 0; i < h.queries; i += 16) {
            FragmentA transposed[1];
            load_four<false, true, SCORE_PITCH>(transposed[0].r, scores + i * SCORE_PITCH, key);
            add_product(sum, transposed, rows + i * PITCH);
        }
        act* to = head_rows(values ? b.d_v : b.d_k, a.kv_stride, h.key + key, h.head);
        store_rows(to, a.kv_stride, h.keys - key, sum);
    }
}
#endif

// ---- other sentences -------------------------------------------------------------------------------------------

// Calls work(head, first row) for the tiles of this block: its own, or, where short sentences have a kernel of their own,
// every gridDim.y-th of those of others. All warps look at all of them, a lane at one.
template <bool LAST_FIRST = false, typename Work>
__device__ __forceinline__ void over_block_tiles(const AttendBackward& b, const uint2* tiles, u32 count, Work work) {
    const Attend& a = b.forward;
#if LONG
    // Long tiles are listed from the ends of sentences on, where queries see most keys, but keys are seen least.
    const uint2 tile = tiles[LAST_FIRST ? count - 1 - blockIdx.y : blockIdx.y];
    if (tile.x != NO_SENTENCE) work(head_of(a, tile.x, blockIdx.x), tile.y);
#else
    const u32 lane = b.short_apart ? threadIdx.x % 32 : 0;
    for (u32 at = blockIdx.y; at < count; at += b.short_apart ? 32 * gridDim.y : count) {
        const u32 own = at + lane * gridDim.y;
        const uint2 tile = own < count ? tiles[own] : make_uint2(NO_SENTENCE, 0);
        const bool left = tile.x != NO_SENTENCE && !(b.short_apart && is_short(head_of(a, tile.x, 0)));
#pragma unroll 1
        for (u32 rest = __ballot_sync(FULL_WARP, left) & (b.short_apart ? FULL_WARP : 1); rest != 0; rest &= rest - 1) {
            const int from = __ffs(rest) - 1;
            const u32 sentence = __shfl_sync(FULL_WARP, tile.x, from), first = __shfl_sync(FULL_WARP, tile.y, from);
            work(head_of(a, sentence, blockIdx.x), first);
            __syncthreads();
        }
    }
#endif
}

// dw of a lane's two queries from the outputs: dO·out/w. It is left 0 where the weight is.
__device__ __forceinline__ void gradients_of_weights(float dw[2], const AttendBackward& b, const Head& h, u32 first,
                                                     const float weight[2]) {
    const u32 stride = b.forward.heads * HEAD;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const u32 i = first + lane_row() + 8 * half;
        float sum = 0.0f;
        if (weight[half] != 0.0f) {
            const act* out = head_rows(b.forward.out, stride, h.query + i, h.head);
            const act* d_out = head_rows(b.d_out, stride, h.query + i, h.head);
            for (int at = lane_column() * 4; at < HEAD; at += 32) {
                float x[8], y[8];
                load8(out, at, HEAD, x);
                load8(d_out, at, HEAD, y);
#pragma unroll
                for (int e = 0; e < 8; e++) sum += x[e] * y[e];
            }
        }
        sum = quad_sum(sum);
        dw[half] = weight[half] != 0.0f ? sum / weight[half] : 0.0f;
    }
}

// delta (= dw), d_weights if per row, and dQ. Where the gradient of a weight of 0 is wanted, `out` says nothing of it, and
// there is a pass over the keys for dw first.
__device__ __forceinline__ void gradients_of_rows(const AttendBackward& b, const Head& h, u32 first) {
    const Attend& a = b.forward;
    float* row_weights = WEIGHTS == 2 ? b.d_weights : nullptr;
    const u32 rows = min(ROWS, h.queries - first);
    const u32 block_keys = visible_keys(h, first + rows - 1);
    act *q = own_tile(0), *d_out = own_tile(1);
    auto load = [&](int stage, u32 from) {
        load_keys<TILE>(other_tile(2, stage, 0), other_tile(2, stage, 1), a, h, from, min(TILE, block_keys - from));
    };
    load_queries<ROWS>(q, d_out, b, h, first, rows);
    load(0, 0);
    const bool dropped = !any_weight(a, h, first, rows) && b.d_weights == nullptr;
    if (h.keys == 0 || dropped) {
        tiles_ready();
        zero_rows(head_rows(b.d_q, a.q_stride, h.query + first, h.head), a.q_stride, rows);
        zero_places(b.delta, a, h, first, rows);
        if (row_weights != nullptr) zero_places(row_weights, a, h, first, rows);
        return;
    }
    const u32 row = warp_index() * 16;
    const u32 warp_keys = row < rows ? visible_keys(h, first + row + 15) : 0;
    const Queries queries(b, h, first + row);
    const Drops drops(a.dropout);
    const act *q_rows = rows_of_warp(q, row), *d_out_rows = rows_of_warp(d_out, row);
    u32 kept[2] = {}, coming[2] = {};  // LONG: bits of the lane's queries for the keys of this tile and of the next
    auto load_kept = [&](u32 from) {
        if (!LONG || !DROPOUT) return;
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const u32 i = first + row + lane_row() + 8 * half;
            if (i < h.queries) coming[half] = *(const u32*)(kept_bits(a, h, i) + from / 16);
        }
    };
    auto load_all = [&](int stage, u32 from) { load(stage, from), load_kept(from); };
    auto store_kept = [&](int) { kept[0] = coming[0], kept[1] = coming[1]; };
    load_kept(0);
    store_kept(0);
    float dw[2];
    gradients_of_weights(dw, b, h, first + row, queries.weight);

    const bool again = b.d_weights != nullptr && some_without(a, h, first, rows);
    if (again) dw[0] = dw[1] = 0.0f;
    Sum sum = {};
    for (int pass = again ? 0 : 1; pass < 2; pass++) {
        if (again && pass == 1) {
            dw[0] = quad_sum(dw[0]), dw[1] = quad_sum(dw[1]);
            __syncthreads();
            load_all(0, 0);
            store_kept(0);
        }
        over_tiles<STAGES>(0, block_keys, load_all, store_kept, [&](int stage, u32 from) {
            const act *k = other_tile(2, stage, 0), *v = other_tile(2, stage, 1);
            // HOPPER: one chunk, for all four warps; what a row does not see is masked.
            for (u32 at = 0; at < TILE && (HOPPER || from + at < warp_keys); at += CHUNK) {
                float all_p[CHUNK / 8][4], all_dp[CHUNK / 8][4];
                FragmentA ds[CHUNK / 16];
                products_of_rows(all_p, q_rows, k + at * PITCH, all_dp, d_out_rows, v + at * PITCH);
#pragma unroll
                for (u32 i = 0; i < CHUNK; i += 16) {
                    float(*p)[4] = &all_p[i / 8], (*dp)[4] = &all_dp[i / 8];
                    queries.probabilities(p, from + at + i);
                    if (DROPOUT) {
                        const u32 bits = LONG ? Drops::of_words(kept[0] >> (at + i), kept[1] >> (at + i))
                                              : drops.of_rows(place_of(a, h, first + row), a.heads, (from + at) / 8);
                        drop(dp, bits, drops.scale);
                    }
                    if (pass == 0)
                        add_products(dw, p, dp);
                    else
                        ds[i / 16] = score_gradient(p, dp, queries.weight, dw);
                }
                if (pass == 1) add_product(sum, ds, k + at * PITCH);
            }
            finish(sum.c);
        });
    }
    if (row >= rows) return;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const u32 i = row + lane_row() + 8 * half;
        if (lane_column() != 0 || i >= rows) continue;
        b.delta[place_of(a, h, first + i)] = dw[half];
        if (row_weights != nullptr) row_weights[place_of(a, h, first + i)] = dw[half];
    }
    store_rows(head_rows(b.d_q, a.q_stride, h.query + first + row, h.head), a.q_stride, rows - row, sum);
}

// launch: grid (heads, query tiles or fewer), block (2·ROWS), shared (2·ROWS + 2·STAGES·32)·PITCH·sizeof(act)
extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS(HOPPER ? 6 : 10, 6))
attention_backward_rows(AttendBackward b) {
    const Attend& a = b.forward;
    if (!b.short_apart) {
        const u32 end = end_of(a.queries);
        zero_tail(b.d_q, a.q_stride, end, a.queries.rows);
        if (WEIGHTS == 2 && b.d_weights != nullptr) zero_tail_places(b.d_weights, end, a.queries.rows);
    }
    over_block_tiles(b, a.query_tiles, b.query_tile_count,
                     [&](const Head& h, u32 first) { gradients_of_rows(b, h, first); });
}

// dK and dV, after attention_backward_rows. A warp owns 16 keys and makes scores transposed, 16 queries at a time.
__device__ __forceinline__ void gradients_of_keys(const AttendBackward& b, const Head& h, u32 first) {
    const Attend& a = b.forward;
    const u32 rows = min(ROWS, h.keys - first);
    const u32 row = warp_index() * 16;
    const u32 queries = WEIGHTS != 1 || any_weight(a, h, 0, 1) ? h.queries : 0;  // of a dropped head: none
    const u32 begin = CAUSAL ? first : 0;                                        // queries before a key do not see it
    const Drops drops(a.dropout);
    act *own_k = own_tile(0), *own_v = own_tile(1);
    __shared__ float log_sum[STAGES][TILE], weight[STAGES][TILE], dw[STAGES][TILE];
    __shared__ u64 kept[STAGES][TILE];                              // LONG: bits of a query for the block's keys
    float next_weight = 0.0f, next_log_sum = 0.0f, next_dw = 0.0f;  // of the query that this thread looks after
    u64 next_kept = 0;
    auto load = [&](int stage, u32 from) {
        const u32 count = min(TILE, queries - from);
        load_queries<TILE>(other_tile(2, stage, 0), other_tile(2, stage, 1), b, h, from, count);
        next_weight = 0.0f;
        if (threadIdx.x >= count) return;
        const u32 i = from + threadIdx.x;
        next_weight = weight_of(a, h, i);
        next_log_sum = a.log_sums[place_of(a, h, i)];
        next_dw = b.delta[place_of(a, h, i)];
        if (LONG && DROPOUT) next_kept = *(const u64*)(kept_bits(a, h, i) + first / 16);
    };
    auto store = [&](int stage) {
        if (threadIdx.x >= TILE) return;
        weight[stage][threadIdx.x] = next_weight;
        log_sum[stage][threadIdx.x] = next_weight != 0.0f ? next_log_sum * UNIT : INFINITE;  // P = 0
        dw[stage][threadIdx.x] = next_weight != 0.0f ? next_dw : 0.0f;
        if (LONG && DROPOUT) kept[stage][threadIdx.x] = next_kept;
    };
    load_keys<ROWS>(own_k, own_v, a, h, first, rows);
    const act *k_rows = rows_of_warp(own_k, row), *v_rows = rows_of_warp(own_v, row);
    if (begin < queries) load(0, begin), store(0);
    Sum d_k = {}, d_v = {};
    over_tiles<STAGES>(begin, queries, load, store, [&](int stage, u32 from) {
        const act *q = other_tile(2, stage, 0), *d_out = other_tile(2, stage, 1);
        const bool dropped = WEIGHTS == 2 && !__any_sync(FULL_WARP, weight[stage][threadIdx.x % TILE] != 0.0f);
        // HOPPER: one chunk, for all four warps.
        if ((!HOPPER && row >= rows) || dropped) return;
        const u32 count = min(TILE, queries - from);
        for (u32 at = CAUSAL && !HOPPER && from < first + row ? first + row - from : 0; at < count; at += CHUNK) {
            float all_p[CHUNK / 8][4], all_dp[CHUNK / 8][4];
            FragmentA kept_p[CHUNK / 16], ds[CHUNK / 16];
            products_of_rows(all_p, k_rows, q + at * PITCH, all_dp, v_rows, d_out + at * PITCH);
#pragma unroll
            for (u32 part = 0; part < CHUNK; part += 16) {
                float(*p)[4] = &all_p[part / 8], (*dp)[4] = &all_dp[part / 8];
                u32 bits[2];
                if (DROPOUT && LONG) {
                    const u16* words = (const u16*)&kept[stage][at + part] + row / 16;
                    Drops::of_queries(words, bits);
                } else if (DROPOUT) {
                    drops.of_columns(place_of(a, h, from + at), a.heads, (first + row) / 8, bits);
                }
#pragma unroll
                for (int e = 0; e < 8; e++) {
                    float &p_e = p[e / 4][e % 4], &dp_e = dp[e / 4][e % 4];
                    const u32 i = at + part + e / 4 * 8 + lane_column() + e % 2;
                    const u32 key = first + row + lane_row() + e % 4 / 2 * 8;
                    const bool seen = !CAUSAL || key <= from + i;
                    const bool kept = !DROPOUT || Drops::kept_transposed(bits[e / 4], e % 4);
                    const float power_of = power(p_e * SCORE_SCALE - log_sum[stage][i]);
                    const float weighted = seen ? weight[stage][i] * power_of : 0.0f;  // w·P
                    p_e = kept ? weighted * drops.scale : 0.0f;
                    dp_e = SCALE * (p_e * dp_e - weighted * dw[stage][i]);  // dS
                }
                kept_p[part / 16] = as_fragment(p), ds[part / 16] = as_fragment(dp);
            }
            add_product(d_k, ds, q + at * PITCH);
            add_product(d_v, kept_p, d_out + at * PITCH);
            finish(d_k.c);
            finish(d_v.c);
        }
    });
    tiles_ready();  // no copy is under way when the block ends or takes its next tile
    if (row >= rows) return;
    store_rows(head_rows(b.d_k, a.kv_stride, h.key + first + row, h.head), a.kv_stride, rows - row, d_k);
    store_rows(head_rows(b.d_v, a.kv_stride, h.key + first + row, h.head), a.kv_stride, rows - row, d_v);
}

// launch: grid (heads, key tiles or fewer), block (2·ROWS), shared (2·ROWS + 2·STAGES·32)·PITCH·sizeof(act)
extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS(HOPPER ? 6 : 8, 4)) attention_backward_keys(AttendBackward b) {
    const Attend& a = b.forward;
    if (!b.short_apart) {
        const u32 end = end_of(a.keys);
        zero_tail(b.d_k, a.kv_stride, end, a.keys.rows);
        zero_tail(b.d_v, a.kv_stride, end, a.keys.rows);
    }
    over_block_tiles<CAUSAL>(b, b.key_tiles, b.key_tile_count,
                             [&](const Head& h, u32 first) { gradients_of_keys(b, h, first); });
}

// d_weights[sentence, head] = Σ delta over the sentence's queries: only with WEIGHTS = 1 and d_weights wanted, after
// attention_backward_rows. One warp per sentence and head.
//
// launch: grid (sentences · heads · 32 / THREADS, rounded up), block (THREADS)
extern "C" __global__ void __launch_bounds__(THREADS) attention_weight_gradients(AttendBackward b) {
    const Attend& a = b.forward;
    const u32 item = (blockIdx.x * THREADS + threadIdx.x) / 32;
    if (item >= a.queries.sentences * a.heads) return;
    const Head h = head_of(a, item / a.heads, item % a.heads);
    if (b.short_apart && is_short(h)) return;
    float dw = 0.0f;
    for (u32 i = threadIdx.x % 32; i < h.queries; i += 32) dw += b.delta[place_of(a, h, i)];
    dw = warp_sum(dw);
    if (threadIdx.x % 32 == 0) b.d_weights[item] = dw;
}
