/* Operand packing for matrix products: up to sixteen rows or columns ("lines") interleaved into a panel [k][16]. */
#ifndef HT_CPU_VECTOR_OPERAND_PACKING_H
#define HT_CPU_VECTOR_OPERAND_PACKING_H

#include "base/checked.h"
#include "cpu/vector/lanes.h"

enum {
    PACKING_STEPS = 256,  /* most steps of k packed at a time */
    PACKING_PREFETCH = 16 /* prefetch distance in elements of a line */
};

/* Packing source: element s (along k) of line l is data[offset + l * line + s * step]. */
typedef struct packing_operand {
    ht_dtype dtype;
    const void *data;
    int64_t offset, line, step, n;
} packing_operand;

/* Transposes n f32 rows, ld elements apart, to [steps][stride], writing sixteen lanes per step. `steps` is a multiple
 * of 4. */
HT_INLINE void packing_transpose(const float *rows, int64_t ld, int n, int64_t steps, float *to, int64_t stride) {
    const float *row[16];
    for (int i = 0; i < 16; i++) row[i] = rows + (i < n ? i : n - 1) * ld;
    for (int64_t s = 0; s < steps; s += 4) {
        v16f v[4];
        for (int i = 0; i < 4; i++) v[i] = v16f_load_quads(row[i] + s, row[i + 4] + s, row[i + 8] + s, row[i + 12] + s);
        v16f_transpose_quads(v);
        for (int i = 0; i < 4; i++) v16f_store(to + (s + i) * stride, v[i]);
    }
}

/* Loads step s of lines [first, first + n). Dtype and line stride are arguments so that callers can pass constants. */
HT_INLINE v16f packing_step(const packing_operand *o, ht_dtype dtype, int64_t stride, int64_t first, int64_t s, int n) {
    return lanes_load(dtype, o->data, o->offset + first * stride + s * o->step, stride, n);
}

/* Packs steps [k, k + n_steps) of n <= 16 lines to [n_steps][stride]. Every step writes sixteen lanes in ascending
 * order, so with stride = n only the lanes past the last step are excess. */
static inline void packing_pack(const packing_operand *o, int64_t first, int n, int64_t k, int64_t n_steps, float *to,
                                int64_t stride) {
    const int64_t whole = n_steps / 4 * 4;
    int64_t done = 0;
    if (o->step == 1 && o->line != 1) {
        const int64_t at = o->offset + first * o->line + k;
        if (o->dtype == HT_F32) {
            packing_transpose((const float *)o->data + at, o->line, n, whole, to, stride);
        } else {
            float staged[16][PACKING_STEPS];
            for (int i = 0; i < n; i++)
                for (int64_t s = 0; s < whole; s += 16)
                    v16f_store(staged[i] + s,
                               lanes_load(o->dtype, o->data, at + i * o->line + s, 1, lanes_count(whole - s)));
            packing_transpose(staged[0], PACKING_STEPS, n, whole, to, stride);
        }
        done = whole;
    }
    for (int64_t s = done; s < n_steps; s++)
        v16f_store(to + stride * s, packing_step(o, o->dtype, o->line, first, k + s, n));
}

/* Dot products of x with sixteen lines, ld floats apart and contiguous along k; each is one sequence of fused
 * multiply-adds from 0. All lines advance together, so that a cache line is consumed before its eviction. */
HT_INLINE v16f packing_dot(const float *x, const float *line, int64_t ld, int64_t steps) {
    const float *at[4] = {line, line + 4 * ld, line + 8 * ld, line + 12 * ld};
    v16f sum = v16f_zero();
    int64_t s = 0;
    for (; s + 16 <= steps; s += 16) {
        v16f v[4][4];
        int64_t far = ld;
        /* Hides `far` from the compiler, which would otherwise keep sixteen addresses and spill most of them. */
        __asm__("" : "+r"(far));
        HT_UNROLL
        for (int i = 0; i < 4; i++) HT_UNROLL
        for (int g = 0; g < 4; g++) HT_PREFETCH(at[g] + i * far + PACKING_PREFETCH);
        HT_UNROLL
        for (int i = 0; i < 4; i++) HT_UNROLL
        for (int q = 0; q < 4; q++) {
            const int64_t to = i * far + 4 * q;
            v[q][i] = v16f_load_quads(at[0] + to, at[1] + to, at[2] + to, at[3] + to);
        }
        HT_UNROLL
        for (int q = 0; q < 4; q++) {
            v16f_transpose_quads(v[q]);
            HT_UNROLL
            for (int i = 0; i < 4; i++) sum = v16f_fma(v[q][i], v16f_set1(x[s + 4 * q + i]), sum);
        }
        HT_UNROLL
        for (int g = 0; g < 4; g++) at[g] += 16;
    }
    for (; s < steps; s++) {
        float staged[16];
        for (int i = 0; i < 16; i++) staged[i] = line[i * ld + s];
        sum = v16f_fma(v16f_load(staged), v16f_set1(x[s]), sum);
    }
    return sum;
}

#endif
