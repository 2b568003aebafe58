// Attention forward: out = w·dropout(softmax(Q·Kᵀ/√K))·V for every sentence and head; probabilities stay in registers.
// Arguments, macros and building blocks: attention.cuh.

// The running softmax of a lane's two rows: p = exp(s − top), total = Σ p of the lane's columns.
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
            shrink[half] = power(top[half] - next);
            top[half] = next;
            total[half] *= shrink[half];
#pragma unroll
            for (int i = 0; i < TILE / 4; i++) {
                float& p = s[i / 2][2 * half + i % 2];
                p = power(p - next);
                total[half] += p;
            }
        }
    }
};

// out and log_sums. A tile whose weights are all 0 gets zeros, log-sums too, unless `every_head`.
//
// launch: grid (heads, query tiles), block (2·ROWS), shared (ROWS + 2·STAGES·32)·PITCH·sizeof(act)
extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS(10, 6)) attention_forward(Attend a) {
    const uint2 tile = a.query_tiles[ordered_tile()];
    const u32 end = end_of(a.queries), out_stride = a.heads * HEAD;
    const Head h = head_of(a, tile.x, blockIdx.x);
    zero_tail(a.out, out_stride, end, a.queries.rows);
    zero_tail_places(a.log_sums, end, a.queries.rows);
    if (h.sentence == NO_SENTENCE || tile.y % ROWS != 0) return;

    const u32 first = tile.y, rows = min(ROWS, h.queries - first);
    const u32 block_keys = visible_keys(h, first + rows - 1);
    act* q = own_tile(0);
    auto load = [&](int stage, u32 from) {
        load_keys(other_tile(1, stage, 0), other_tile(1, stage, 1), a, h, from, min(TILE, block_keys - from));
    };
    load_tile(q, head_rows(a.q, a.q_stride, h.query + first, h.head), a.q_stride, rows);
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
    const Drops drops(a.dropout);
    OwnRows<LONG> own(q + row * PITCH);
    Softmax softmax;
    Sum sum = {};
    over_tiles(0, block_keys, load, [](int) {}, [&](int stage, u32 from) {
        const act *k = other_tile(1, stage, 0), *v = other_tile(1, stage, 1);
        if (from == 0) own.take();
        if (from >= warp_keys) return;
        float s[TILE / 8][4], shrink[2];
#pragma unroll
        for (int i = 0; i < TILE; i += 16) {
            const bool seen = from + i < warp_keys;
            if (seen) product_of_rows(&s[i / 8], own, k + i * PITCH);
#pragma unroll
            for (int e = 0; e < 8; e++) {
                float& score = s[i / 8 + e / 4][e % 4];
                const u32 key = from + i + e / 4 * 8 + lane_column() + e % 2;
                score = seen && key < visible[e % 4 / 2] ? score * SCORE_SCALE : -INFINITE;
            }
        }
        softmax.step(s, shrink);
#pragma unroll
        for (int i = 0; i < WIDTH / 2; i++) sum.c[i / 4][i % 4] *= shrink[i % 4 / 2];
#pragma unroll
        for (int i = 0; i < TILE; i += 16) {
            if (from + i >= warp_keys) break;
            if (DROPOUT) {
                const u32 bits = drops.of_rows(place_of(a, h, first + row), a.heads, (from + i) / 8);
#pragma unroll
                for (int e = 0; e < 8; e++)
                    if (!Drops::kept(bits, e / 4, e % 4)) s[i / 8 + e / 4][e % 4] = 0.0f;
            }
            add_product(sum, as_fragment(&s[i / 8]), v + i * PITCH);
        }
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
            a.log_sums[place_of(a, h, i)] = (softmax.top[half] + logarithm(total)) / UNIT;
    }
#pragma unroll
    for (int i = 0; i < WIDTH / 2; i++) sum.c[i / 4][i % 4] *= factor[i % 4 / 2];
    store_rows(head_rows(a.out, out_stride, h.query + first + row, h.head), out_stride, rows - row, sum);
}
