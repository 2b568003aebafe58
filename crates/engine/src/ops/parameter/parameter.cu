// The gradient of a parameter from that of its copy.

// dst = src, or dst += src, as float
// launch: grid (ceil(n / 2048)), block (256), shared 0
extern "C" __global__ void from_act(const act* src, float* dst, u64 n, u32 add) {
    const u64 at = first_of_run();
    if (at >= n) return;
    const int length = run_length(at, n);
    float v[8];
    load8(src + at, 0, length, v);
    put8(dst + at, 0, length, v, add != 0);
}
