// Values as bfloat16 and back, for sums that travel in half the bytes. A u16 has the bits of a bfloat16.

// launch: over_values
extern "C" __global__ void to_halves(const float* src, u16* dst, u64 n) {
    const u64 at = first_of_run();
    if (at >= n) return;
    const int length = run_length(at, n);
    float v[8];
    u16 bits[8];
    load8(src + at, 0, length, v);
#pragma unroll
    for (int i = 0; i < 8; i++) asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits[i]) : "f"(v[i]));
    if (length == 8) {
        u32 words[4];
#pragma unroll
        for (int i = 0; i < 4; i++) words[i] = bits[2 * i] | (u32)bits[2 * i + 1] << 16;
        *(uint4*)(dst + at) = make_uint4(words[0], words[1], words[2], words[3]);
    } else {
        for (int i = 0; i < length; i++) dst[at + i] = bits[i];
    }
}

// launch: over_values
extern "C" __global__ void from_halves(const u16* src, float* dst, u64 n) {
    const u64 at = first_of_run();
    if (at >= n) return;
    const int length = run_length(at, n);
    float v[8];
    if (length == 8) {
        const uint4 p = *(const uint4*)(src + at);
        const u32 words[4] = {p.x, p.y, p.z, p.w};
#pragma unroll
        for (int i = 0; i < 4; i++) {
            v[2 * i] = __uint_as_float(words[i] << 16);
            v[2 * i + 1] = __uint_as_float(words[i] & 0xffff0000u);
        }
    } else {
        for (int i = 0; i < 8; i++) v[i] = i < length ? __uint_as_float((u32)src[at + i] << 16) : 0.0f;
    }
    store8(dst + at, 0, length, v);
}
