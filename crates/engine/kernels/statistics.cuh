// Batch norm's statistics per column, which blocks make part by part of the rows: of part p the mean and the sum of
// squared deviations from it, partials [parts, 2, cols].

#define EPSILON 1e-5f
#define MOMENTUM 0.1f
#define MOST_PARTS 32u

// The rows of a part of `each` rows, as far as they count: [first, end).
__device__ __forceinline__ uint2 part_rows(u32 part, u32 each, u32 valid) {
    return make_uint2(min(part * each, valid), min((part + 1) * each, valid));
}

// A running statistic after a batch. A batch whose numbers are not finite must not spoil it.
__device__ __forceinline__ float moved(float running, float batch) {
    float value = (1.0f - MOMENTUM) * running + MOMENTUM * batch;
    return fabsf(value) < __uint_as_float(0x7f800000u) ? value : running;
}
