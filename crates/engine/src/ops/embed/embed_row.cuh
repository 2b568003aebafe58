// A row of an embedding with its position; the word comes from a table (embed.cu) or from bands (adaptive.cu).

// Y[n] = dropout(scale·word(n) + position); rows of no sentence become 0, whatever their words.
template <typename Word>
__device__ __forceinline__ void embed_row(Word word, const float* positions, const Segments& segments,
                                          const u32* ages, float scale, const Dropout& dropout, act* y, u32 cols) {
    const u32 row = blockIdx.y * BLOCK_ROWS + threadIdx.x / BLOCK_RUNS;
    const u32 run = blockIdx.x * BLOCK_RUNS + threadIdx.x % BLOCK_RUNS;
    const int at = 8 * run;
    if (row >= segments.rows || at >= cols) return;
    const u32 sentence = segments.sentence_of_row[row];
    const auto* from = word(row);
    float v[8] = {};
    if (sentence != NO_SENTENCE) {
        const u32 place = ages != nullptr ? ages[row] : row - segments.starts[sentence];
        float position[8], f[8];
        load8(from, at, cols, v);
        load8(positions + (u64)place * cols, at, cols, position);
        dropout8(dropout, row, run, f);
#pragma unroll
        for (int i = 0; i < 8; i++) v[i] = fmaf(v[i], scale, position[i]) * f[i];
    }
    store8(y + (u64)row * cols, at, cols, v);
}
