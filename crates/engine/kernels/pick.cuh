// How a row with gates g [count] comes to one expert; a warp per row.

#define MINUS_INFINITY __uint_as_float(0xff800000u)

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

#define SAMPLE 0u               // drawn from the gate
#define SAMPLE_PER_SENTENCE 1u  // the same with one number per sentence; rows without a sentence take expert 0
#define ARGMAX 2u               // the most likely one
#define FIXED 3u                // given[0]
#define GIVEN 4u                // given[row]

// How a row comes to its expert.
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
