// Vocabularies cut into bands: rows by index, embeddings from bands, losses of tails, log-probabilities of a band.

// ---- rows by index -----------------------------------------------------------------------------------------------
// launch of each: grid (ceil(cols / 512), ceil(count / 4)), block (256), shared 0

// y[i] = x[rows[i]] for i < *valid, 0 for the others; y [count, cols]
extern "C" __global__ void take_rows(const act* x, const u32* rows, const u32* valid, act* y, u32 count, u32 cols) {
    const Place p = place_of_thread();
    if (p.row >= count || p.at >= cols) return;
    float v[8] = {};
    if (p.row < *valid) load8(x + (u64)rows[p.row] * cols, p.at, cols, v);
    store8(y + (u64)p.row * cols, p.at, cols, v);
}

// y[rows[i]] += x[i] for i < *valid; no row is named twice. x [count, cols]
extern "C" __global__ void give_rows(const act* x, const u32* rows, const u32* valid, act* y, u32 count, u32 cols) {
    const Place p = place_of_thread();
    if (p.row >= min(count, *valid) || p.at >= cols) return;
    float v[8];
    load8(x + (u64)p.row * cols, p.at, cols, v);
    put8(y + (u64)rows[p.row] * cols, p.at, cols, v, true);
}

// ---- adaptive input ----------------------------------------------------------------------------------------------

// The rows of all bands, end to end: those from first[b] on are part[b]'s.
struct BandParts {
    const act* part[MOST_BANDS];
    u32 first[MOST_BANDS];  // ~0 where there is no such band
};

// As embed_forward, the word of a row being row places[row] of the bands.
// launch: grid (ceil(cols / 512), ceil(rows / 4)), block (256), shared 0
extern "C" __global__ void embed_bands_forward(BandParts bands, const float* positions, const u32* places,
                                               Segments segments, const u32* ages, float scale, Dropout dropout,
                                               act* y, u32 cols) {
    auto word = [&](u32 row) {
        const u32 place = places[row];
        const act* part = bands.part[0];
        u32 first = 0;
#pragma unroll
        for (int b = 1; b < MOST_BANDS; b++)
            if (place >= bands.first[b]) part = bands.part[b], first = bands.first[b];
        return part + (u64)(place - first) * cols;
    };
    embed_row(word, positions, segments, ages, scale, dropout, y, cols);
}

// The gradient of one band's rows: dz[i] (+)= scale·dropout·dy[rows[i]] for i < *valid; surplus rows get zeros, or stay
// as they are if `add`. dz [room, cols].
// launch: grid (ceil(cols / 512), ceil(room / 4)), block (256), shared 0
extern "C" __global__ void embed_bands_backward(const act* dy, const u32* rows, const u32* valid, Dropout dropout,
                                                float scale, act* dz, u32 add, u32 room, u32 cols) {
    const u32 i = blockIdx.y * BLOCK_ROWS + threadIdx.x / BLOCK_RUNS;
    const u32 run = blockIdx.x * BLOCK_RUNS + threadIdx.x % BLOCK_RUNS;
    const int at = 8 * run;
    if (i >= room || at >= cols) return;
    float v[8] = {};
    if (i < *valid) {
        const u32 row = rows[i];
        float f[8];
        load8(dy + (u64)row * cols, at, cols, v);
        dropout8(dropout, row, run, f);
#pragma unroll
        for (int c = 0; c < 8; c++) v[c] *= f[c] * scale;
    } else if (add) {
        return;
    }
    put8(dz + (u64)i * cols, at, cols, v, add);
}

// ---- adaptive softmax --------------------------------------------------------------------------------------------

// What row i < *valid of a tail loses is row rows[i]'s loss, too: log_probs and losses of the tail, [count] and
// [count, 2], are added to those of all rows. No row is named twice.
// launch: grid (ceil(count / 256)), block (256), shared 0
extern "C" __global__ void add_tail(const float* tail_log_probs, const float* tail_losses, const u32* rows,
                                    const u32* valid, float* log_probs, float* losses, u32 count) {
    const u32 i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= min(count, *valid)) return;
    const u32 row = rows[i];
    const float2 own = ((const float2*)tail_losses)[i];
    float2* all = (float2*)losses + row;
    log_probs[row] += tail_log_probs[i];
    *all = make_float2(all->x + own.x, all->y + own.y);
}

// ln p of the words of one band, `count` columns of y from `first` on; y [rows, types]. Band 0 (tail is null): the head's
// first logits less ln Σ exp; another one: ln p_tail + ln p_head(class_of_tail). head and tail [rows, their pitch].
// launch: grid (rows), block (512), shared 0
extern "C" __global__ void __launch_bounds__(ROW_THREADS)
    band_log_probs(const act* head, u32 head_types, u32 class_of_tail, const act* tail, act* y, u32 first, u32 count,
                   u32 types) {
    const u32 row = blockIdx.x;
    const int head_pitch = (head_types + 7) & ~7u, tail_pitch = (count + 7) & ~7u;
    head += (u64)row * head_pitch;
    Softmax sums = softmax_of_row(head, nullptr, head_types, head_pitch);
    const act* from = head;
    float offset = -(sums.highest + logf(sums.sum));
    if (tail != nullptr) {
        from = tail + (u64)row * tail_pitch;
        offset += as_float(head[class_of_tail]);
        sums = softmax_of_row(from, nullptr, count, tail_pitch);
        offset -= sums.highest + logf(sums.sum);
    }
    y += (u64)row * types + first;  // at any address
#pragma unroll 8
    for (u32 c = threadIdx.x; c < count; c += blockDim.x) y[c] = as_act(as_float(from[c]) + offset);
}
