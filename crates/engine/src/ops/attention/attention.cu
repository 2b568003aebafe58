// Attention forward: out = w·dropout(softmax(Q·Kᵀ/√K))·V for every sentence and head; probabilities stay in registers.
// Arguments, macros and building blocks: attention.cuh.

constexpr int STAGES = LONG ? MOST_STAGES : 1;  // tiles of keys and values in shared memory: most sentences have one

// The running softmax of a lane's two rows: p = exp(s − top), total = Σ p of the lane's columns. Scores and `top` are those
// of Q·Kᵀ; they are scaled on the way into the exponential.
struct Softmax {
    float top[2] = {-INFINITE, -INFINITE};
    float total[2] = {0.0f, 0.0f};

    // Makes scores into p; what was summed before shrinks by `shrink`.
    __device__ __forceinline__ void step(float s[TILE / 8][4], float shrink[2]) {
#pragma unroll
        for (int half = 0; half < 2; half++) {
            float next = top[half];
#pragma unroll
            for (int i = 0; i < TILE / 4; i++) next = fmaxf(next, s[i / 2][2 * half + i % 2]);
            next = quad_max(next);
            shrink[half] = power((top[half] - next) * SCORE_SCALE);
            top[half] = next;
            total[half] *= shrink[half];
            const float scaled = next * SCORE_SCALE;
#pragma unroll
            for (int i = 0; i < TILE / 4; i++) {
                float& p = s[i / 2][2 * half + i % 2];
                p = power(fmaf(p, SCORE_SCALE, -scaled));
                total[half] += p;
            }
        }
    }
};

// Scores of a warp's rows and the keys of a tile, of which it sees `count`: others get any values. For all keys in turns
// where all are loaded anyway: the tensor cores are slow to answer.
__device__ __forceinline__ void scores(float (&s)[TILE / 8][4], const act* queries, const act* keys, u32 count) {
#if HOPPER
    start_scores(s, queries, keys);
#else
#pragma unroll
    for (int i = 0; i < TILE / 2; i++) s[i / 4][i % 4] = 0.0f;
    constexpr int AT_ONCE = LONG ? TILE : 16;
#pragma unroll
    for (int first = 0; first < TILE; first += AT_ONCE) {
        if (first >= count) break;
#pragma unroll
        for (int k = 0; k < WIDTH; k += 16)
#pragma unroll
            for (int i = first; i < first + AT_ONCE; i += 16) add_columns(&s[i / 8], queries, keys + i * PITCH, k);
    }
#endif
}

// out and log_sums. A tile whose weights are all 0 gets zeros, log-sums too, unless `every_head`.
//
// launch: grid (heads, query tiles), block (2·ROWS), shared (ROWS + 2·STAGES·32)·PITCH·sizeof(act)
extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS(HOPPER ? 6 : 10, LONG ? 8 : 6)) attention_forward(Attend a) {
    const uint2 tile = a.query_tiles[blockIdx.y];
    const u32 end = end_of(a.queries), out_stride = a.heads * HEAD;
    const Head h = head_of(a, tile.x, blockIdx.x);
    zero_tail(a.out, out_stride, end, a.queries.rows);
    zero_tail_places(a.log_sums, end, a.queries.rows);
    if (h.sentence == NO_SENTENCE) return;

    const u32 first = tile.y, rows = min(ROWS, h.queries - first);
    const u32 block_keys = visible_keys(h, first + rows - 1);
    act* q = own_tile(0);
    auto load = [&](int stage, u32 from) {
        load_keys<TILE>(other_tile(1, stage, 0), other_tile(1, stage, 1), a, h, from, min(TILE, block_keys - from));
    };
    load_tile<ROWS>(q, head_rows(a.q, a.q_stride, h.query + first, h.head), a.q_stride, rows);
    load(0, 0);
    const bool dropped = !any_weight(a, h, first, rows) && !a.every_head;
    if (h.keys == 0 || dropped) {
        tiles_ready();
        zero_rows(head_rows(a.out, out_stride, h.query + first, h.head), out_stride, rows);
        zero_places(a.log_sums, a, h, first, rows);
        return;
    }
    const u32 row = warp_index() * 16;  // of the tile: the warp's first
    const u32 lane = first + row + lane_row();
    const u32 visible[2] = {visible_keys(h, lane), visible_keys(h, lane + 8)};
    const u32 warp_keys = row < rows ? visible_keys(h, first + row + 15) : 0;
    const u32 every_row = visible_keys(h, first + row);  // keys that all rows of the warp see
    const Drops drops(a.dropout);
    // Bits for the warp's queries and 16 keys. The backward pass for long sentences reads them.
    auto draw = [&](u32 key) {
        const u32 query = first + row + Drops::own_query(), run = key / 8 + Drops::own_run();
        const u32 own = drops.kept8(place_of(a, h, query), run);
        if (LONG && a.kept != nullptr && query < h.queries) ((unsigned char*)kept_bits(a, h, query))[run] = own;
        return Drops::shared(own);
    };
    Softmax softmax;
    Sum sum = {};
    over_tiles<STAGES>(0, block_keys, load, [](int) {}, [&](int stage, u32 from) {
        const act *k = other_tile(1, stage, 0), *v = other_tile(1, stage, 1);
        // HOPPER: products are for all four warps, so that none may leave them out; what a row does not see is masked.
        if (!HOPPER && from >= warp_keys) return;
        float s[TILE / 8][4], shrink[2];
        scores(s, rows_of_warp(q, row), k, warp_keys - from);
        u32 drawn[TILE / 16];
        if (HOPPER && DROPOUT) {
#pragma unroll
            for (int i = 0; i < TILE; i += 16) {
                drawn[i / 16] = draw(from + i);
                asm volatile("" : "+r"(drawn[i / 16]));  // now, beside the products
            }
        }
        finish(s);
        if (from + TILE > every_row) {
#pragma unroll
            for (int i = 0; i < TILE / 2; i++) {
                const u32 key = from + i / 4 * 8 + lane_column() + i % 2;
                if (key >= visible[i % 4 / 2]) s[i / 4][i % 4] = -INFINITE;
            }
        }
        softmax.step(s, shrink);
        if (!LONG || __any_sync(FULL_WARP, shrink[0] != 1.0f || shrink[1] != 1.0f)) {
#pragma unroll
            for (int i = 0; i < WIDTH / 2; i++) sum.c[i / 4][i % 4] *= shrink[i % 4 / 2];
        }
#pragma unroll
        for (int at = 0; at < TILE && (HOPPER || from + at < warp_keys); at += CHUNK) {
            FragmentA p[CHUNK / 16];
#pragma unroll
            for (int i = at; i < at + CHUNK; i += 16) {
                const u32 bits = !DROPOUT ? 0 : HOPPER ? drawn[i / 16] : draw(from + i);
#pragma unroll
                for (int e = 0; DROPOUT && e < 8; e++)
                    if (!Drops::kept(bits, e / 4, e % 4)) s[i / 8 + e / 4][e % 4] = 0.0f;
                p[(i - at) / 16] = as_fragment(&s[i / 8]);
            }
            add_product(sum, p, v + at * PITCH);
        }
        finish(sum.c);
    });
    if (row >= rows) return;

    float factor[2];
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const u32 i = lane + 8 * half;
        const float total = quad_sum(softmax.total[half]);
        const bool inside = i < h.queries;
        factor[half] = inside ? __fdividef(weight_of(a, h, i) * drops.scale, total) : 0.0f;
        if (inside && lane_column() == 0)
            a.log_sums[place_of(a, h, i)] = softmax.top[half] * SCALE + logarithm(total) / UNIT;
    }
#pragma unroll
    for (int i = 0; i < WIDTH / 2; i++) sum.c[i / 4][i % 4] *= factor[i % 4 / 2];
    store_rows(head_rows(a.out, out_stride, h.query + first + row, h.head), out_stride, rows - row, sum);
}
