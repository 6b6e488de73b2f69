/* Operand packing of products: rows or columns of an operand into panels, the steps of some lines side by side. */
#ifndef HT_CPU_VECTOR_OPERAND_PACKING_H
#define HT_CPU_VECTOR_OPERAND_PACKING_H

#include "base/checked.h"
#include "cpu/vector/lanes.h"

enum {
    PACKING_STEPS = 256, /* packed at a time, at most */
    PACKING_AHEAD = 16   /* elements of a line prefetched before they are read */
};

/* Element s of line l at data[offset + l * line + s * step]. */
typedef struct packing_operand {
    ht_dtype dtype;
    const void *data;
    int64_t offset, line, step, n;
} packing_operand;

/* n rows of f32, ld elements apart, to [steps][stride], sixteen of each step written; steps is a multiple of 4. */
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

/* Step s of n lines from line `first` on; elements `stride` apart, which is that of the lines, of the lines' dtype. */
HT_INLINE v16f packing_step(const packing_operand *o, ht_dtype dtype, int64_t stride, int64_t first, int64_t s, int n) {
    return lanes_load(dtype, o->data, o->offset + first * stride + s * o->step, stride, n);
}

/* Steps [k, k + n_steps) of n lines, at most 16, from line `first` on, to [n_steps][stride]. Sixteen are written of each
 * step, in order, so those that are none of its lines are there behind the last step alone if stride is n. */
static inline void packing_pack(const packing_operand *o, int64_t first, int n, int64_t k, int64_t n_steps, float *to,
                                int64_t stride) {
    const int64_t whole = n_steps / 4 * 4;
    int64_t done = 0;
    if (o->step == 1 && o->line != 1) {
        const int64_t at = o->offset + first * o->line + k;
        if (o->dtype == HT_F32) {
            packing_transpose((const float *)o->data + at, o->line, n, whole, to, stride);
        } else {
            float room[16][PACKING_STEPS];
            for (int i = 0; i < n; i++)
                for (int64_t s = 0; s < whole; s += 16)
                    v16f_store(room[i] + s,
                               lanes_load(o->dtype, o->data, at + i * o->line + s, 1, lanes_of(whole - s)));
            packing_transpose(room[0], PACKING_STEPS, n, whole, to, stride);
        }
        done = whole;
    }
    for (int64_t s = done; s < n_steps; s++)
        v16f_store(to + stride * s, packing_step(o, o->dtype, o->line, first, k + s, n));
}

/* Sums over `steps` words of x and sixteen lines, ld words apart, whose words are adjacent: of each a chain of words_fma from 0.
 * A line of the cache is used up before others take its place. */
HT_INLINE v16f packing_dot(const float *x, const float *line, int64_t ld, int64_t steps) {
    const float *at[4] = {line, line + 4 * ld, line + 8 * ld, line + 12 * ld};
    v16f sum = v16f_zero();
    int64_t s = 0;
    for (; s + 16 <= steps; s += 16) {
        v16f v[4][4];
        int64_t far = ld;
        __asm__("" : "+r"(far)); /* or the compiler keeps sixteen addresses, of which most are in memory */
        HT_UNROLL
        for (int i = 0; i < 4; i++) HT_UNROLL
        for (int g = 0; g < 4; g++) HT_PREFETCH(at[g] + i * far + PACKING_AHEAD);
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
        float room[16];
        for (int i = 0; i < 16; i++) room[i] = line[i * ld + s];
        sum = v16f_fma(v16f_load(room), v16f_set1(x[s]), sum);
    }
    return sum;
}

#endif
