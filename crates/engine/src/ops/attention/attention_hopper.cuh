// Products of whole tiles for HOPPER: the four warps of a block start them together, and the tensor cores read tiles in
// shared memory by themselves. It follows attention.cuh.
//
// A tile of R rows lies in panels of 64 columns, [WIDTH / 64][R][64], and in each row r of a panel the eight runs of
// eight values are permuted, run c being in the place c ^ r % 8: what the hardware calls a 128-byte swizzle. A warp has
// 16 rows of the block's own tile; fragments are those of mma.m16n8k16.

#if HOPPER
constexpr u32 PANEL_ROW = 64 * sizeof(act), EIGHT_ROWS = 8 * PANEL_ROW;  // bytes

// Where run `run` of row `row` of a tile of R rows lies, in values.
template <int R>
__device__ __forceinline__ u32 place_of_run(u32 row, u32 run) {
    return run / 8 * R * 64 + row * 64 + (run % 8 ^ row % 8) * 8;
}

// A matrix as the tensor cores are told of it: it begins at byte `offset` of a tile (the start address, in 16 bytes),
// panels are `panel` bytes apart (the leading offset), eight rows EIGHT_ROWS bytes from the next eight (the stride
// offset). Tiles begin on 1024 bytes, or more would have to be told.
__device__ __forceinline__ u64 matrix_at(const act* tile, u32 offset, u32 panel) {
    const u32 low = ((u32)__cvta_generic_to_shared(tile) >> 4) + (offset >> 4 | panel >> 4 << 16);
    constexpr u32 SWIZZLE_128 = 1u << 30;
    u64 matrix;
    asm("mov.b64 %0, {%1, %2};" : "=l"(matrix) : "r"(low), "n"(EIGHT_ROWS >> 4 | SWIZZLE_128));
    return matrix;
}

// Keeps the compiler from moving work on these registers across this place: products run beside the program.
template <int N>
__device__ __forceinline__ void settle(float (&c)[N][4]) {
#pragma unroll
    for (int i = 0; i < 4 * N; i++) asm volatile("" : "+f"(c[i / 4][i % 4])::"memory");
}

__device__ __forceinline__ void begin_products() {
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

__device__ __forceinline__ void end_products() {
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

// Waits for all products that were started, before their result `c` is looked at.
template <int N>
__device__ __forceinline__ void finish(float (&c)[N][4]) {
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
    settle(c);
}

// `add` below is always true: the products are added to c.
#define FOUR(c) "+f"((c)[0]), "+f"((c)[1]), "+f"((c)[2]), "+f"((c)[3])
#define SIXTEEN(c, i) FOUR(c[i]), FOUR(c[(i) + 1]), FOUR(c[(i) + 2]), FOUR(c[(i) + 3])

// c += A·Bᵀ, 16 columns of each: the block's rows by those of a tile.
__device__ __forceinline__ void add_columns(float (&c)[TILE / 8][4], u64 a, u64 b) {
    static_assert(TILE == 32, "the instruction names its size");
    asm volatile(
        "{.reg .pred add; setp.eq.u32 add, 0, 0;\n\t"
        "wgmma.mma_async.sync.aligned.m64n32k16.f32.bf16.bf16 "
        "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15}, %16, %17, add, 1, 1, 0, 0;}"
        : SIXTEEN(c, 0)
        : "l"(a), "l"(b));
}

// c += A·B, B being 16 rows of a tile.
__device__ __forceinline__ void add_rows(float (&c)[8][4], const FragmentA& a, u64 b) {
    asm volatile(
        "{.reg .pred add; setp.eq.u32 add, 0, 0;\n\t"
        "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 "
        "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
        "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
        "{%32, %33, %34, %35}, %36, add, 1, 1, 1;}"
        : SIXTEEN(c, 0), SIXTEEN(c, 4)
        : "r"(a.r[0]), "r"(a.r[1]), "r"(a.r[2]), "r"(a.r[3]), "l"(b));
}

__device__ __forceinline__ void add_rows(float (&c)[16][4], const FragmentA& a, u64 b) {
    asm volatile(
        "{.reg .pred add; setp.eq.u32 add, 0, 0;\n\t"
        "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 "
        "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
        "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
        "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
        "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "
        "{%64, %65, %66, %67}, %68, add, 1, 1, 1;}"
        : SIXTEEN(c, 0), SIXTEEN(c, 4), SIXTEEN(c, 8), SIXTEEN(c, 12)
        : "r"(a.r[0]), "r"(a.r[1]), "r"(a.r[2]), "r"(a.r[3]), "l"(b));
}

// Starts c = own·otherᵀ of the block's own tile and one of the other side.
__device__ __forceinline__ void start_scores(float (&c)[TILE / 8][4], const act* own, const act* other) {
    constexpr u32 OWN_PANEL = ROWS * PANEL_ROW, OTHER_PANEL = TILE * PANEL_ROW;
#pragma unroll
    for (int i = 0; i < TILE / 2; i++) c[i / 4][i % 4] = 0.0f;
    settle(c);
    begin_products();
#pragma unroll
    for (int k = 0; k < WIDTH; k += 16) {
        const u32 panel = k / 64, within = k % 64 * sizeof(act);
        add_columns(c, matrix_at(own, panel * OWN_PANEL + within, OWN_PANEL),
                    matrix_at(other, panel * OTHER_PANEL + within, OTHER_PANEL));
    }
    end_products();
}

__device__ __forceinline__ void products_of_rows(float (&c)[TILE / 8][4], const act* a, const act* b,
                                                 float (&d)[TILE / 8][4], const act* x, const act* y) {
    start_scores(c, a, b);
    start_scores(d, x, y);
    finish(c);
    settle(d);
}

// Starts sum += A·other.
__device__ __forceinline__ void add_product(Sum& sum, FragmentA (&a)[TILE / 16], const act* other) {
    settle(sum.c);
#pragma unroll
    for (int i = 0; i < TILE / 4; i++) asm volatile("" : "+r"(a[i / 4].r[i % 4])::"memory");
    begin_products();
#pragma unroll
    for (int i = 0; i < TILE / 16; i++) add_rows(sum.c, a[i], matrix_at(other, 2 * i * EIGHT_ROWS, TILE * PANEL_ROW));
    end_products();
}

// The block's own tile, for products with all of it.
__device__ __forceinline__ const act* rows_of_warp(const act* own, u32) {
    return own;
}
#else
// Products are done when they are asked for.
template <int N>
__device__ __forceinline__ void finish(float (&)[N][4]) {}

__device__ __forceinline__ const act* rows_of_warp(const act* own, u32 row) {
    return own + row * PITCH;
}
#endif
