// Token embeddings: Y[n] = dropout(scale·E[id[n]] + P[place of n in its sentence]), and dE. A row:
// embed_row.cuh.

// In search, ages [rows] are the places of the tokens, each of which is a sentence here; else null.
// table [types, cols], positions [places, cols], ids [rows], y [rows, cols].
// launch: grid (ceil(cols / 512), ceil(rows / 4)), block (256), shared 0
extern "C" __global__ void embed_forward(const float* table, const float* positions, const u32* ids, Segments segments,
                                         const u32* ages, float scale, Dropout dropout, act* y, u32 cols) {
    auto word = [&](u32 row) { return table + (u64)ids[row] * cols; };
    embed_row(word, positions, segments, ages, scale, dropout, y, cols);
}

// ---- backward ----------------------------------------------------------------------------------------------------
//
// A block owns the ids that are blockIdx.x modulo gridDim.x (vocabularies are sorted by frequency: this spreads the
// frequent ones) and 256 columns, eight to a lane. It goes through all ids, noting the rows of its own in row order,
// and then adds these rows up: a warp for each id that was found, or all warps together for a frequent one.

// WARPS: of a block; MAX_SLOTS: ids of a block; a note is slot << ROW_BITS | row.
#define TILE (8 * 32 * WARPS)  // rows looked at at a time
#define CAPACITY (TILE + 960)  // rows noted before they are added up
#define FREQUENT 16            // rows that one warp adds up

struct Notes {
    u32 note[CAPACITY];  // in row order
    u32 count_of_slot[MAX_SLOTS];
    u32 first_of_slot[MAX_SLOTS];  // its first note
    u32 found[WARPS];
    u32 queue[WARPS][64];
    float sums[WARPS][256];
};

// total += dropout·dy over `count` rows, so many of them in flight.
template <int IN_FLIGHT>
__device__ __forceinline__ void add_rows(const act* dy, const Dropout& dropout, const u32* rows, u32 count, int at,
                                         int cols, float total[8]) {
    for (u32 k = 0; k < count; k += IN_FLIGHT) {
        float v[IN_FLIGHT][8], f[8];
#pragma unroll
        for (int j = 0; j < IN_FLIGHT; j++)
            if (k + j < count) load8(dy + (u64)rows[k + j] * cols, at, cols, v[j]);
#pragma unroll
        for (int j = 0; j < IN_FLIGHT; j++) {
            if (k + j >= count) break;
            dropout8(dropout, rows[k + j], at / 8, f);
#pragma unroll
            for (int i = 0; i < 8; i++) total[i] = fmaf(v[j][i], f[i], total[i]);
        }
    }
}

// Notes the rows first .. first + TILE (up to `rows`) that have one of the block's ids; gives their number.
__device__ __forceinline__ u32 note_rows(Notes& notes, u32 noted, const u32* ids, u32 first, u32 rows) {
    const u32 warp = threadIdx.x / 32, lane = threadIdx.x % 32, below = (1u << lane) - 1;
    const u32 shift = __popc(gridDim.x - 1);  // gridDim.x is a power of two
    u32 id[8], own[8], mine = 0, place = noted, found = 0;
    first += 256 * warp + lane;
#pragma unroll
    for (int k = 0; k < 8; k++) id[k] = first + 32 * k < rows ? ids[first + 32 * k] : blockIdx.x + 1;
#pragma unroll
    for (int k = 0; k < 8; k++) {
        own[k] = __ballot_sync(FULL_WARP, first + 32 * k < rows && (id[k] & (gridDim.x - 1)) == blockIdx.x);
        mine += __popc(own[k]);
    }
    if (lane == 0) notes.found[warp] = mine;
    __syncthreads();
#pragma unroll
    for (int w = 0; w < WARPS; w++) {
        if (w < warp) place += notes.found[w];
        found += notes.found[w];
    }
#pragma unroll
    for (int k = 0; k < 8; k++) {
        if (own[k] >> lane & 1) {
            const u32 slot = id[k] >> shift, at = place + __popc(own[k] & below);
            notes.note[at] = slot << ROW_BITS | (first + 32 * k);
            atomicAdd(&notes.count_of_slot[slot], 1);
            atomicMin(&notes.first_of_slot[slot], at);
        }
        place += __popc(own[k]);
    }
    __syncthreads();
    return found;
}

// Adds up the rows of one slot, whose first note is among the 32 from `start` on.
template <int IN_FLIGHT>
__device__ __forceinline__ void add_slot(Notes& notes, u32 noted, u32 slot, u32 start, const act* dy,
                                         const Dropout& dropout, float scale, float* d_table, bool add, int cols) {
    const u32 warp = threadIdx.x / 32, lane = threadIdx.x % 32, below = (1u << lane) - 1;
    const u32 piece = 32 * ((noted + 32 * WARPS - 1) / (32 * WARPS)), count = notes.count_of_slot[slot];
    const bool together = count > FREQUENT;
    const u32 from = together ? min(noted, piece * warp) : start, to = together ? min(noted, from + piece) : noted;
    const int at = 8 * (blockIdx.y * 32 + lane);
    u32* queue = notes.queue[warp];
    // The slot's rows are queued, until there are enough to have many loads in flight.
    u32 queued = 0, missing = count;
    float total[8] = {};
    for (u32 base = from; base < to && missing > 0; base += 32) {
        const u32 note = base + lane < to ? notes.note[base + lane] : 0;
        const bool wanted = base + lane < to && note >> ROW_BITS == slot;
        const u32 all = __ballot_sync(FULL_WARP, wanted);
        if (wanted) queue[queued + __popc(all & below)] = note & ((1u << ROW_BITS) - 1);
        queued += __popc(all);
        missing -= __popc(all);
        if (queued < 32 && base + 32 < to && missing > 0) continue;
        __syncwarp();
        if (at < cols) add_rows<IN_FLIGHT>(dy, dropout, queue, queued, at, cols, total);
        __syncwarp();
        queued = 0;
    }
#pragma unroll
    for (int i = 0; i < 8; i++) total[i] *= scale;
    float* out = d_table + (u64)(slot * gridDim.x + blockIdx.x) * cols;
    if (!together) {
        if (at < cols) put8(out, at, cols, total, add);
        return;
    }
    store8(notes.sums[warp], 8 * lane, 256, total);
    __syncthreads();
    const u32 column = blockIdx.y * 256 + threadIdx.x;
    if (threadIdx.x < 256 && column < cols) {
        float all = add ? out[column] : 0.0f;
#pragma unroll
        for (int w = 0; w < WARPS; w++) all += notes.sums[w][threadIdx.x];
        out[column] = all;
    }
    __syncthreads();
}

// Adds up what is noted, slot by slot in the order of their first notes.
template <int IN_FLIGHT>
__device__ __forceinline__ void add_up(Notes& notes, u32 noted, const act* dy, const Dropout& dropout, float scale,
                                       float* d_table, bool add, int cols) {
    const u32 warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    u32 turn = 0;
    for (u32 start = 0; start < noted; start += 32) {
        const u32 slot = start + lane < noted ? notes.note[start + lane] >> ROW_BITS : 0;
        u32 heads = __ballot_sync(FULL_WARP, start + lane < noted && notes.first_of_slot[slot] == start + lane);
        for (; heads != 0; heads &= heads - 1) {
            const u32 next = __shfl_sync(FULL_WARP, slot, __popc((heads & -heads) - 1));
            if (notes.count_of_slot[next] > FREQUENT || turn++ % WARPS == warp)
                add_slot<IN_FLIGHT>(notes, noted, next, start, dy, dropout, scale, d_table, add, cols);
        }
    }
}

// Zeros for all of the block's ids.
__device__ __forceinline__ void clear(float* d_table, int cols, u32 types) {
    const float zeros[8] = {};
    const u32 from = blockIdx.y * 256, runs = (min(cols - from, 256u) + 7) / 8;
    for (u32 k = threadIdx.x;; k += 32 * WARPS) {
        const u64 id = blockIdx.x + (u64)gridDim.x * (k / runs);
        if (id >= types) return;
        store8(d_table + id * cols, from + 8 * (k % runs), cols, zeros);
    }
}

// d_table[id] (+)= scale·Σ dropout·dy over the rows with that id (up to starts[sentences]), in row order; for ids with
// more than 16 rows in 16 consecutive pieces, which are then added in order. Rows of d_table without an id get zeros, or
// stay as they are if `add`.
// launch: grid (blocks, ceil(cols / 256)), block (512), shared 0; blocks = a power of two, types / 1024 or more; up to
// 2^22 rows
extern "C" __global__ void __launch_bounds__(32 * WARPS)
    embed_backward(const u32* ids, const act* dy, const u32* valid_rows, Dropout dropout, float scale, float* d_table,
                   u32 add, u32 cols, u32 types) {
    __shared__ Notes notes;
    const u32 rows = *valid_rows;
    if (!add) clear(d_table, cols, types);
    for (u32 first = 0, noted = 0; first < rows; first += TILE) {
        if (noted == 0) {
            __syncthreads();
            for (u32 slot = threadIdx.x; slot < MAX_SLOTS; slot += 32 * WARPS)
                notes.count_of_slot[slot] = 0, notes.first_of_slot[slot] = ~0u;
            __syncthreads();
        }
        noted += note_rows(notes, noted, ids, first, rows);
        if (noted <= CAPACITY - TILE && first + TILE < rows) continue;
        if ((cols & 7) == 0) {
            // `cols & ~7` is known to be a multiple of 8, so that load8 has no branch.
            add_up<6>(notes, noted, dy, dropout, scale, d_table, add != 0, cols & ~7u);
        } else {
            add_up<1>(notes, noted, dy, dropout, scale, d_table, add != 0, cols);
        }
        noted = 0;
        add = 1;  // what comes later is added
    }
}
