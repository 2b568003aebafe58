// Shared by all kernels: number types, runs of eight values, Philox dropout, reductions, packed sentences.
//
// The text is put before each kernel file and compiled by NVRTC, without any header of the CUDA toolkit. The macro
// BF16 chooses the type `act` of activations and their gradients: bfloat16 (1) or float (0). Sums, statistics, head
// weights, master weights and weight gradients are float in both modes.
//
// Constants that Rust needs, too, are macros that Rust defines: NO_SENTENCE, BLOCK_ROWS, BLOCK_RUNS and those of Philox
// for all files, others in the declaration of each file.
//
// Rows are handled in runs of eight columns: one 16-byte access in bfloat16, and one Philox block of dropout.

typedef unsigned int u32;
typedef unsigned short u16;
typedef unsigned long long u64;

#define FULL_WARP 0xffffffffu

// ---- activations -----------------------------------------------------------------------------------------------

#if BF16
struct act {
    u16 bits;
};
#else
typedef float act;
#endif

__device__ __forceinline__ float as_float(float value) {
    return value;
}

#if BF16
__device__ __forceinline__ float as_float(act value) {
    return __uint_as_float((u32)value.bits << 16);
}

__device__ __forceinline__ act as_act(float value) {
    act out;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(out.bits) : "f"(value));
    return out;
}

// Two values in one register, the first in the low half.
__device__ __forceinline__ u32 as_pair(float low, float high) {
    u32 out;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(out) : "f"(high), "f"(low));
    return out;
}
#else
__device__ __forceinline__ act as_act(float value) {
    return value;
}
#endif

// ---- runs of eight columns -------------------------------------------------------------------------------------

// The columns `at .. at + 8` of a row of `cols` values at `row`; those past the end read as 0. Wide accesses are used
// where `cols` is a multiple of 8, which makes every row begin on 16 bytes.
__device__ __forceinline__ void load8(const float* row, int at, int cols, float v[8]) {
    if ((cols & 7) == 0) {
        const float4* p = (const float4*)(row + at);
        float4 a = p[0], b = p[1];
        v[0] = a.x, v[1] = a.y, v[2] = a.z, v[3] = a.w;
        v[4] = b.x, v[5] = b.y, v[6] = b.z, v[7] = b.w;
    } else {
#pragma unroll
        for (int i = 0; i < 8; i++) v[i] = at + i < cols ? row[at + i] : 0.0f;
    }
}

__device__ __forceinline__ void store8(float* row, int at, int cols, const float v[8]) {
    if ((cols & 7) == 0) {
        float4* p = (float4*)(row + at);
        p[0] = make_float4(v[0], v[1], v[2], v[3]);
        p[1] = make_float4(v[4], v[5], v[6], v[7]);
    } else {
#pragma unroll
        for (int i = 0; i < 8; i++)
            if (at + i < cols) row[at + i] = v[i];
    }
}

#if BF16
__device__ __forceinline__ void load8(const act* row, int at, int cols, float v[8]) {
    if ((cols & 7) == 0) {
        uint4 p = *(const uint4*)(row + at);
        u32 words[4] = {p.x, p.y, p.z, p.w};
#pragma unroll
        for (int i = 0; i < 4; i++) {
            v[2 * i] = __uint_as_float(words[i] << 16);
            v[2 * i + 1] = __uint_as_float(words[i] & 0xffff0000u);
        }
    } else {
#pragma unroll
        for (int i = 0; i < 8; i++) v[i] = at + i < cols ? as_float(row[at + i]) : 0.0f;
    }
}

__device__ __forceinline__ void store8(act* row, int at, int cols, const float v[8]) {
    if ((cols & 7) == 0) {
        uint4 p = make_uint4(as_pair(v[0], v[1]), as_pair(v[2], v[3]), as_pair(v[4], v[5]), as_pair(v[6], v[7]));
        *(uint4*)(row + at) = p;
    } else {
#pragma unroll
        for (int i = 0; i < 8; i++)
            if (at + i < cols) row[at + i] = as_act(v[i]);
    }
}
#endif

// A run as it is stored: in bfloat16 it waits in half the registers.
struct Packed {
#if BF16
    uint4 values;
#else
    float4 values[2];
#endif

    __device__ __forceinline__ void load(const act* row, int at, int cols) {
        if ((cols & 7) == 0) {
            *this = *(const Packed*)(row + at);
        } else {
            act* value = (act*)&values;
#pragma unroll
            for (int i = 0; i < 8; i++) value[i] = at + i < cols ? row[at + i] : as_act(0.0f);
        }
    }

    __device__ __forceinline__ void unpack(float v[8]) const {
        load8((const act*)&values, 0, 8, v);
    }
};

// Arrays of n values: a thread takes the run of eight that begins here, which the last thread finds cut short.
__device__ __forceinline__ u64 first_of_run() {
    return 8 * ((u64)blockIdx.x * blockDim.x + threadIdx.x);
}

__device__ __forceinline__ int run_length(u64 at, u64 n) {
    return at + 8 <= n ? 8 : (int)(n - at);
}

// Matrices: a thread takes a run of a row, a block BLOCK_RUNS runs of BLOCK_ROWS rows.
struct Place {
    u32 row;
    int at;
};

__device__ __forceinline__ Place place_of_thread() {
    return {blockIdx.y * BLOCK_ROWS + threadIdx.x / BLOCK_RUNS,
            (int)(8 * (blockIdx.x * BLOCK_RUNS + threadIdx.x % BLOCK_RUNS))};
}

// Writes `v`, or adds it to what is there.
template <typename T>
__device__ __forceinline__ void put8(T* row, int at, int cols, float v[8], bool add) {
    if (add) {
        float held[8];
        load8(row, at, cols, held);
#pragma unroll
        for (int i = 0; i < 8; i++) v[i] += held[i];
    }
    store8(row, at, cols, v);
}

// Reads rows row(0) .. row(N) at a thread's columns; null ones read as zeros. All loads are begun before any is used.
template <u32 N, typename Row>
__device__ __forceinline__ void load_rows(Row row, u32 at, u32 cols, float v[N][8]) {
#pragma unroll
    for (u32 b = 0; b < N; b++) {
        const act* from = row(b);
        if (from != nullptr) {
            load8(from, at, cols, v[b]);
        } else {
#pragma unroll
            for (int i = 0; i < 8; i++) v[b][i] = 0.0f;
        }
    }
}

// ---- random numbers --------------------------------------------------------------------------------------------

// Ten rounds of Philox 4x32: the same numbers as the CPU's.
__device__ __forceinline__ uint4 philox(uint4 c, u32 key0, u32 key1) {
#pragma unroll
    for (int round = 0; round < 10; round++) {
        u32 low0 = MULTIPLIER_0 * c.x, high0 = __umulhi(MULTIPLIER_0, c.x);
        u32 low1 = MULTIPLIER_1 * c.z, high1 = __umulhi(MULTIPLIER_1, c.z);
        c = make_uint4(high1 ^ c.y ^ key0, low1, high0 ^ c.w ^ key1, low0);
        key0 += WEYL_0;
        key1 += WEYL_1;
    }
    return c;
}

// The random numbers of one op. The step is read from device memory, so that a captured graph draws afresh.
struct Stream {
    u32 key0, key1, stream;
    const u32* step;
};

// One uniform number in [0, 1) with 24 bits.
__device__ __forceinline__ float uniform(Stream s, u32 row, u32 column) {
    uint4 block = philox(make_uint4(column, row, s.stream, *s.step), s.key0, s.key1);
    return (float)(block.x >> 8) * (1.0f / 16777216.0f);
}

// Dropout: a value whose 16-bit number is below `threshold` is dropped, kept ones are multiplied by `scale`. With
// threshold 0 nothing is dropped and no number is drawn.
struct Dropout {
    Stream stream;
    u32 threshold;
    float scale;
};

// The factors (0 or `scale`) of the columns 8·run .. 8·run + 8 of `row`.
__device__ __forceinline__ void dropout8(const Dropout& d, u32 row, u32 run, float f[8]) {
    if (d.threshold == 0) {
#pragma unroll
        for (int i = 0; i < 8; i++) f[i] = 1.0f;
        return;
    }
    uint4 block = philox(make_uint4(run, row, d.stream.stream, *d.stream.step), d.stream.key0, d.stream.key1);
    u32 words[4] = {block.x, block.y, block.z, block.w};
#pragma unroll
    for (int i = 0; i < 8; i++) {
        u32 number = (words[i / 2] >> (16 * (i % 2))) & 0xffffu;
        f[i] = number < d.threshold ? 0.0f : d.scale;
    }
}

// ---- sums ------------------------------------------------------------------------------------------------------

__device__ __forceinline__ float warp_sum(float v) {
#pragma unroll
    for (int o = 16; o > 0; o >>= 1) v += __shfl_xor_sync(FULL_WARP, v, o);
    return v;
}

__device__ __forceinline__ float warp_max(float v) {
#pragma unroll
    for (int o = 16; o > 0; o >>= 1) v = fmaxf(v, __shfl_xor_sync(FULL_WARP, v, o));
    return v;
}

// ---- packed sentences ------------------------------------------------------------------------------------------

// Sentence b owns the rows starts[b] .. starts[b + 1] of a packed matrix. Sizes are rounded up so that one captured
// graph serves many batches: sentences from `*count` on are empty, rows from starts[sentences] on belong to none
// (sentence_of_row says NO_SENTENCE there), and kernels write zeros to such rows.
struct Segments {
    const u32* starts;           // [sentences + 1]
    const u32* sentence_of_row;  // [rows]
    const u32* count;            // [1]: sentences that are really there
    u32 sentences;
    u32 rows;
};
