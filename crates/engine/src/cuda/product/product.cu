// Matrix products of sizes that cuBLASLt has none for (odd widths in bfloat16): plain tiles in shared memory.

// C [m, n] (+)= A·B, with A(i, t) = a[i·a_row + t·a_step] and B(t, j) = b[t·b_row + j·b_step]; then the bias of each
// column (may be null) and, if asked for, max(0, ·). C has rows of c_row values.
template <typename Out>
__device__ __forceinline__ void tile_product(const act* a, u32 a_row, u32 a_step, const act* b, u32 b_row, u32 b_step,
                                             Out* c, u32 c_row, u32 add, const act* bias, u32 relu, u32 m, u32 n,
                                             u32 k) {
    __shared__ float left[TILE][TILE + 1], right[TILE][TILE + 1];
    const u32 x = threadIdx.x % TILE, y = threadIdx.x / TILE;
    const u32 i = blockIdx.y * TILE + y, j = blockIdx.x * TILE + x;
    float total = 0.0f;
    for (u32 from = 0; from < k; from += TILE) {
        left[y][x] = i < m && from + x < k ? as_float(a[(u64)i * a_row + (u64)(from + x) * a_step]) : 0.0f;
        right[y][x] = from + y < k && j < n ? as_float(b[(u64)(from + y) * b_row + (u64)j * b_step]) : 0.0f;
        __syncthreads();
#pragma unroll
        for (int t = 0; t < TILE; t++) total = fmaf(left[y][t], right[t][x], total);
        __syncthreads();
    }
    if (i >= m || j >= n) return;
    Out* out = c + (u64)i * c_row + j;
    if (add) total += as_float(*out);
    if (bias != nullptr) total += as_float(bias[j]);
    if (relu) total = fmaxf(total, 0.0f);
    if constexpr (sizeof(Out) == sizeof(float)) {
        *(float*)out = total;
    } else {
        *(act*)out = as_act(total);
    }
}

// launch of both: grid (ceil(n/16), ceil(m/16)), block 256
extern "C" __global__ void product_act(const act* a, u32 a_row, u32 a_step, const act* b, u32 b_row, u32 b_step, act* c,
                                       u32 c_row, u32 add, const act* bias, u32 relu, u32 m, u32 n, u32 k) {
    tile_product(a, a_row, a_step, b, b_row, b_step, c, c_row, add, bias, relu, m, n, k);
}

extern "C" __global__ void product_float(const act* a, u32 a_row, u32 a_step, const act* b, u32 b_row, u32 b_step,
                                         float* c, u32 c_row, u32 add, const act* bias, u32 relu, u32 m, u32 n,
                                         u32 k) {
    tile_product(a, a_row, a_step, b, b_row, b_step, c, c_row, add, bias, relu, m, n, k);
}
