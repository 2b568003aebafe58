// Residual, dropout and layer norm: sum = x + dropout(z), y = (sum − mean)/√(var + ε)·γ + β per row.
//
// A warp takes a row. In the common cases the row stays in its registers: lane l holds the runs l, l + 32, ... of eight
// columns, and 0 past the end. The rare ones (long rows, odd widths, absent inputs) read rows several times. Mean and
// variance take two passes, as E[x²] − E[x]² would cancel.

template <int RUNS>
__device__ __forceinline__ void load_packed(const act* row, int lane, int cols, Packed run[RUNS]) {
#pragma unroll
    for (int k = 0; k < RUNS; k++) {
        const int at = 8 * (lane + 32 * k);
        run[k] = {};
        if (at < cols) run[k].load(row, at, cols);
    }
}

// Subtracts the row's mean from the columns that exist and gives 1/√(var + ε).
template <int RUNS>
__device__ __forceinline__ float center(float v[RUNS][8], int lane, int cols) {
    float total = 0.0f, squares = 0.0f;
#pragma unroll
    for (int k = 0; k < RUNS; k++)
#pragma unroll
        for (int i = 0; i < 8; i++) total += v[k][i];
    const float inverse = 1.0f / cols, mean = warp_sum(total) * inverse;
#pragma unroll
    for (int k = 0; k < RUNS; k++)
#pragma unroll
        for (int i = 0; i < 8; i++) {
            v[k][i] = 8 * (lane + 32 * k) < cols ? v[k][i] - mean : 0.0f;
            squares = fmaf(v[k][i], v[k][i], squares);
        }
    return rsqrtf(fmaf(warp_sum(squares), inverse, EPSILON));
}

// The same for a row in memory, of any length.
struct Moments {
    float mean, scale;
};

__device__ __forceinline__ Moments moments(const act* row, int lane, int cols) {
    float v[8], total = 0.0f, squares = 0.0f;
#pragma unroll 1
    for (int at = 8 * lane; at < cols; at += 256) {
        load8(row, at, cols, v);
#pragma unroll
        for (int i = 0; i < 8; i++) total += v[i];
    }
    const float inverse = 1.0f / cols, mean = warp_sum(total) * inverse;
#pragma unroll 1
    for (int at = 8 * lane; at < cols; at += 256) {
        load8(row, at, cols, v);
#pragma unroll
        for (int i = 0; i < 8; i++) squares += at + i < cols ? (v[i] - mean) * (v[i] - mean) : 0.0f;
    }
    return {mean, rsqrtf(fmaf(warp_sum(squares), inverse, EPSILON))};
}

// ---- forward -----------------------------------------------------------------------------------------------------

struct Forward {
    const act *x, *z;
    Dropout dropout;
    const float *gamma, *beta;
    act *sum, *normed;

    // x + dropout(z), z being there, of up to 256·RUNS columns.
    template <int RUNS>
    __device__ __forceinline__ void row(u32 row, int lane, int cols) const {
        const u64 start = (u64)row * cols;
        constexpr int GROUP = RUNS * sizeof(Packed) > 64 ? 2 : RUNS;  // runs that find registers to wait in
        float s[RUNS][8];
#pragma unroll
        for (int k = 0; k < RUNS; k += GROUP) {
            Packed x_run[GROUP], z_run[GROUP];
            load_packed<GROUP>(x + start + 256 * k, lane, cols - 256 * k, x_run);
            load_packed<GROUP>(z + start + 256 * k, lane, cols - 256 * k, z_run);
#pragma unroll
            for (int j = 0; j < GROUP; j++) {
                const int at = 8 * (lane + 32 * (k + j));
                float v[8];
                x_run[j].unpack(s[k + j]);
                z_run[j].unpack(v);
                if (at < cols) add_run(row, at, cols, v, s[k + j]);
            }
        }
        if (normed == nullptr) return;
        const float scale = center<RUNS>(s, lane, cols);
#pragma unroll
        for (int k = 0; k < RUNS; k++) {
            const int at = 8 * (lane + 32 * k);
            if (at < cols) norm_run(start, at, cols, {0.0f, scale}, s[k]);
        }
    }

    __device__ __forceinline__ void any_row(u32 row, int lane, int cols) const {
        const u64 start = (u64)row * cols;
        float s[8], v[8];
        if (z != nullptr) {
#pragma unroll 1
            for (int at = 8 * lane; at < cols; at += 256) {
                load8(x + start, at, cols, s);
                load8(z + start, at, cols, v);
                add_run(row, at, cols, v, s);
            }
        }
        if (normed == nullptr) return;
        // A lane rereads what it wrote itself.
        const act* from = (z != nullptr ? sum : x) + start;
        const Moments m = moments(from, lane, cols);
#pragma unroll 1
        for (int at = 8 * lane; at < cols; at += 256) {
            load8(from, at, cols, s);
            norm_run(start, at, cols, m, s);
        }
    }

    // s += dropout(v), rounded as it is stored: the backward pass sees no other sum.
    __device__ __forceinline__ void add_run(u32 row, int at, int cols, const float v[8], float s[8]) const {
        float f[8];
        dropout8(dropout, row, at / 8, f);
#pragma unroll
        for (int i = 0; i < 8; i++) s[i] = as_float(as_act(fmaf(v[i], f[i], s[i])));
        store8(sum + (u64)row * cols, at, cols, s);
    }

    __device__ __forceinline__ void norm_run(u64 start, int at, int cols, Moments m, float v[8]) const {
        float g[8], b[8];
        load8(gamma, at, cols, g);
        load8(beta, at, cols, b);
#pragma unroll
        for (int i = 0; i < 8; i++) v[i] = fmaf((v[i] - m.mean) * m.scale, g[i], b[i]);
        store8(normed + start, at, cols, v);
    }
};

// sum = x + dropout(z); normed = the layer norm of sum as it is stored. z null: the layer norm of x, sum is not
// written. normed null: the sum alone. All [rows, cols]; gamma, beta [cols].
// launch: grid (ceil(rows / FORWARD_ROWS)), block (32·FORWARD_ROWS), shared 0
extern "C" __global__ void __launch_bounds__(32 * FORWARD_ROWS, BF16 ? 8 : 7)
    residual_norm_forward(const act* x, const act* z, Dropout dropout, const float* gamma, const float* beta, act* sum,
                          act* normed, u32 rows, u32 cols) {
    const u32 row = blockIdx.x * FORWARD_ROWS + threadIdx.x / 32, lane = threadIdx.x % 32;
    if (row >= rows) return;
    const Forward op = {x, z, dropout, gamma, beta, sum, normed};
    const int wide = cols & ~7u;  // known to be a multiple of 8, so that load8 has no branch
    if (cols > WIDE || cols != wide || z == nullptr) {
        op.any_row(row, lane, cols);
    } else if (cols > NARROW) {
        op.row<4>(row, lane, wide);
    } else {
        op.row<2>(row, lane, wide);
    }
}

// ---- backward ----------------------------------------------------------------------------------------------------

// With x̂ = (x − mean)·scale and dx̂ = dy·γ: total = d_sum + scale·(dx̂ − mean(dx̂) − x̂·mean(dx̂·x̂)).
struct Backward {
    const act *dy, *d_sum, *sum;
    const float* gamma;
    Dropout dropout;
    act* dx;
    bool add_dx;
    act* dz;
    bool add_dz;
    float* partials;  // of this part: dγ, then dβ, then the sums of dz
    bool sum_dz;

    // Rows of up to 256·RUNS columns with dy; the ROWS warps of the block take them in turn.
    template <int RUNS, int ROWS>
    __device__ __forceinline__ void part(u32 first, u32 end, int cols) const {
        constexpr bool LATE = RUNS * sizeof(Packed) > 64;  // dy and d_sum find no registers to wait in
        constexpr bool SUMS_DZ = RUNS == NARROW / 256;     // nor do sums of dz in wide rows
        __shared__ float sums[ROWS][256 * RUNS];
        const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
        float d_gamma[RUNS][8] = {}, d_beta[RUNS][8] = {}, dz_sum[RUNS][8] = {};
        for (u32 row = first + warp; row < end; row += ROWS) {
            const u64 start = (u64)row * cols;
            // dy once more where d_sum is absent: no branch keeps the loads apart.
            const act* from = (d_sum != nullptr ? d_sum : dy) + start;
            Packed x_run[RUNS], d_run[RUNS], sum_run[RUNS];
            load_packed<RUNS>(sum + start, lane, cols, x_run);
            load_packed<RUNS>(dy + start, lane, cols, d_run);
            if constexpr (!LATE) load_packed<RUNS>(from, lane, cols, sum_run);

            float x[RUNS][8], d[8], g[8], total = 0.0f;
#pragma unroll
            for (int k = 0; k < RUNS; k++) {
                x_run[k].unpack(x[k]);
#pragma unroll
                for (int i = 0; i < 8; i++) total += x[k][i];
            }
            const float inverse = 1.0f / cols, mean = warp_sum(total) * inverse;

            // Three sums at once: mean(dx̂·x̂) is scale·mean(dx̂·(x − mean)).
            float squares = 0.0f, plain = 0.0f, dot = 0.0f;
#pragma unroll
            for (int k = 0; k < RUNS; k++) {
                const bool there = 8 * (lane + 32 * k) < cols;
                d_run[k].unpack(d);
                load_gamma(8 * (lane + 32 * k), cols, g);
#pragma unroll
                for (int i = 0; i < 8; i++) {
                    x[k][i] = there ? x[k][i] - mean : 0.0f;
                    squares = fmaf(x[k][i], x[k][i], squares);
                    plain = fmaf(d[i], g[i], plain);
                    dot = fmaf(d[i] * g[i], x[k][i], dot);
                }
            }
            const float scale = rsqrtf(fmaf(warp_sum(squares), inverse, EPSILON));
            plain = warp_sum(plain) * inverse;
            dot = warp_sum(dot) * scale * inverse;

#pragma unroll
            for (int k = 0; k < RUNS; k++) {
                const int at = 8 * (lane + 32 * k);
                float out[8];
                if constexpr (LATE) {
                    load_packed<1>(dy + start + 256 * k, lane, cols - 256 * k, &d_run[k]);
                    load_packed<1>(from + 256 * k, lane, cols - 256 * k, &sum_run[k]);
                }
                d_run[k].unpack(d);
                sum_run[k].unpack(out);
                load_gamma(at, cols, g);
#pragma unroll
                for (int i = 0; i < 8; i++) {
                    const float normed = x[k][i] * scale;
                    d_gamma[k][i] = fmaf(d[i], normed, d_gamma[k][i]);
                    d_beta[k][i] += d[i];
                    const float value = fmaf(d[i], g[i], -plain) - normed * dot;
                    out[i] = fmaf(scale, value, d_sum != nullptr ? out[i] : 0.0f);
                }
                if (at >= cols) continue;
                put_run(row, at, cols, out, d);
                if constexpr (!SUMS_DZ) continue;
#pragma unroll
                for (int i = 0; i < 8; i++) dz_sum[k][i] += d[i];
            }
        }
        if (partials == nullptr) return;
#pragma unroll
        for (int which = 0; which < 3; which++) {
            if (which == 2 && !(SUMS_DZ && sum_dz)) break;
            if (which > 0) __syncthreads();
#pragma unroll
            for (int k = 0; k < RUNS; k++)
                store8(sums[warp], 8 * (lane + 32 * k), 256 * RUNS,
                       which == 0 ? d_gamma[k] : which == 1 ? d_beta[k] : dz_sum[k]);
            __syncthreads();
#pragma unroll 1
            for (int c = threadIdx.x; c < cols; c += 32 * ROWS) {
                float total = 0.0f;
#pragma unroll
                for (int w = 0; w < ROWS; w++) total += sums[w][c];
                partials[which * cols + c] = total;
            }
        }
    }

    __device__ __forceinline__ void load_gamma(int at, int cols, float g[8]) const {
#pragma unroll
        for (int i = 0; i < 8; i++) g[i] = 0.0f;
        if (at < cols) load8(gamma, at, cols, g);
    }

    // Anything: each row is read several times by a warp, and every eight rows are added up by columns.
    __device__ __forceinline__ void any_part(u32 first, u32 end, int cols) const {
        __shared__ Moments of_row[WARPS];
        const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
        for (u32 base = first; base < end; base += WARPS) {
            if (base + warp < end) {
                const Moments m = any_row(base + warp, lane, cols);
                if (lane == 0) of_row[warp] = m;
            }
            if (partials == nullptr) continue;
            __syncthreads();
#pragma unroll 1
            for (int at = 8 * threadIdx.x; at < cols; at += 8 * 32 * WARPS) {
                float d_gamma[8] = {}, d_beta[8] = {};
#pragma unroll 1
                for (u32 row = base; dy != nullptr && row < end && row < base + WARPS; row++) {
                    const Moments m = of_row[row - base];
                    float x[8], d[8];
                    load8(sum + (u64)row * cols, at, cols, x);
                    load8(dy + (u64)row * cols, at, cols, d);
#pragma unroll
                    for (int i = 0; i < 8; i++) {
                        d_gamma[i] = fmaf(d[i], (x[i] - m.mean) * m.scale, d_gamma[i]);
                        d_beta[i] += d[i];
                    }
                }
                put8(partials, at, cols, d_gamma, base > first);
                put8(partials + cols, at, cols, d_beta, base > first);
            }
            __syncthreads();
        }
    }

    __device__ __forceinline__ Moments any_row(u32 row, int lane, int cols) const {
        const u64 start = (u64)row * cols;
        float x[8], d[8], g[8], total[8], plain = 0.0f, dot = 0.0f;
        Moments m = {0.0f, 0.0f};
        if (dy != nullptr) {
            m = moments(sum + start, lane, cols);
#pragma unroll 1
            for (int at = 8 * lane; at < cols; at += 256) {
                load8(sum + start, at, cols, x);
                load8(dy + start, at, cols, d);
                load8(gamma, at, cols, g);
#pragma unroll
                for (int i = 0; i < 8; i++) {
                    plain = fmaf(d[i], g[i], plain);
                    dot = fmaf(d[i] * g[i], (x[i] - m.mean) * m.scale, dot);
                }
            }
            plain = warp_sum(plain) / cols;
            dot = warp_sum(dot) / cols;
        }
#pragma unroll 1
        for (int at = 8 * lane; at < cols; at += 256) {
#pragma unroll
            for (int i = 0; i < 8; i++) total[i] = 0.0f;
            if (d_sum != nullptr) load8(d_sum + start, at, cols, total);
            if (dy != nullptr) {
                load8(sum + start, at, cols, x);
                load8(dy + start, at, cols, d);
                load8(gamma, at, cols, g);
#pragma unroll
                for (int i = 0; i < 8; i++)
                    total[i] += m.scale * (d[i] * g[i] - plain - (x[i] - m.mean) * m.scale * dot);
            }
            put_run(row, at, cols, total, d);
        }
        return m;
    }

    // dx (+)= total; dz (+)= total·factors, which `scaled` becomes where dz is not added to.
    __device__ __forceinline__ void put_run(u32 row, int at, int cols, float total[8], float scaled[8]) const {
        const u64 start = (u64)row * cols;
        dropout8(dropout, row, at / 8, scaled);
#pragma unroll
        for (int i = 0; i < 8; i++) scaled[i] *= total[i];
        if (dz != nullptr) put8(dz + start, at, cols, scaled, add_dz);
        if (dx != nullptr) put8(dx + start, at, cols, total, add_dx);
    }
};

// total = d_sum + the layer norm's gradient by its input (dy or d_sum null: absent; dy null: sum, gamma are not read);
// dx (+)= total; dz (+)= total·dropout factors (either may be null; dx may be d_sum, dy and sum must be left alone);
// partials [parts, sums·cols] (or null): dγ = Σ dy·x̂, then dβ = Σ dy over the part's rows, and with three sums Σ dz, for
// rows of a multiple of 8 columns, NARROW at most, with dy, where dz is not added to.
// launch: grid (ceil(rows / rows_per_part)), block (32·WARPS), shared 0; rows_per_part =
// WARPS·ceil(rows / (2·WARPS·SMs)): at most two blocks for each SM
extern "C" __global__ void __launch_bounds__(32 * WARPS, 2)
    residual_norm_backward(const act* dy, const act* d_sum, const act* sum, const float* gamma, Dropout dropout,
                           act* dx, u32 add_dx, act* dz, u32 add_dz, float* partials, u32 sums, u32 rows,
                           u32 cols, u32 rows_per_part) {
    const u32 first = blockIdx.x * rows_per_part, end = min(rows, first + rows_per_part);
    if (partials != nullptr) partials += sums * (u64)blockIdx.x * cols;
    const Backward op = {dy, d_sum, sum, gamma, dropout, dx, add_dx != 0, dz, add_dz != 0, partials, sums == 3};
    const int wide = cols & ~7u;  // known to be a multiple of 8, so that load8 has no branch
    if (cols > NARROW || cols != wide || dy == nullptr) {
        op.any_part(first, end, cols);
    } else {
        op.part<2, WARPS>(first, end, wide);
    }
}

// The same for rows of up to WIDE columns, a multiple of 8, with dy. A kernel of its own, as a warp that holds such a
// row and its sums needs more registers than two blocks of eight leave it.
// launch: grid (ceil(rows / rows_per_part)), block (32·WIDE_WARPS), shared 0; rows_per_part = ceil(rows / SMs): a
// block for each SM
extern "C" __global__ void __launch_bounds__(32 * WIDE_WARPS, 1)
    residual_norm_backward_wide(const act* dy, const act* d_sum, const act* sum, const float* gamma, Dropout dropout,
                                act* dx, u32 add_dx, act* dz, u32 add_dz, float* partials, u32 sums,
                                u32 rows, u32 cols, u32 rows_per_part) {
    const u32 first = blockIdx.x * rows_per_part, end = min(rows, first + rows_per_part);
    if (partials != nullptr) partials += sums * (u64)blockIdx.x * cols;
    const Backward op = {dy, d_sum, sum, gamma, dropout, dx, add_dx != 0, dz, add_dz != 0, partials, sums == 3};
    op.part<4, WIDE_WARPS>(first, end, cols & ~7u);
}
