// A scaled sigmoid of n values: a thread takes a run of eight.
// launch of each: grid (ceil(n / 2048)), block (256), shared 0

// y = scale / (1 + exp(-x))
extern "C" __global__ void sigmoid_forward(const act* x, float* y, float scale, u64 n) {
    const u64 at = first_of_run();
    if (at >= n) return;
    const int length = run_length(at, n);
    float v[8];
    load8(x + at, 0, length, v);
#pragma unroll
    for (int i = 0; i < 8; i++) v[i] = scale / (1.0f + expf(-v[i]));
    store8(y + at, 0, length, v);
}

// dx = dy·y·(1 - y/scale), or dx += that
extern "C" __global__ void sigmoid_backward(const float* dy, const float* y, act* dx, u32 add, float scale, u64 n) {
    const u64 at = first_of_run();
    if (at >= n) return;
    const int length = run_length(at, n);
    const float inverse = 1.0f / scale;
    float v[8], d[8];
    load8(y + at, 0, length, v);
    load8(dy + at, 0, length, d);
#pragma unroll
    for (int i = 0; i < 8; i++) d[i] *= v[i] * (1.0f - v[i] * inverse);
    put8(dx + at, 0, length, d, add != 0);
}
