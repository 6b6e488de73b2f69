/* GEMV with quantised arrays: a few rows of activations by a transposed matrix, which is never decoded into memory.
 * Chunks of its numbers become floats in registers, multiplied by activations in the same order. The scale of a group
 * multiplies the sums of sixteen lanes; its bias multiplies the sum of the group's activations. */
#ifndef HT_CPU_VECTOR_FEW_ROWS_H
#define HT_CPU_VECTOR_FEW_ROWS_H

#include "cpu/vector/groups.h"
#include "cpu/vector/tile.h"

enum { FEW_ROWS = 8, ROWS_AT_ONCE = 4 };

typedef struct few_rows {
    group_format format;
    int64_t k; /* 0: not used */
    float *x;  /* per row: [chunk][number of a lane][16 lanes], then the sums of groups */
} few_rows;

HT_INLINE int64_t few_rows_chunks(const few_rows *f) { return (f->k / f->format.each + 15) / 16; }
HT_INLINE int64_t few_rows_groups(const few_rows *f) { return (f->k / f->format.group + 31) / 16 * 16; }
HT_INLINE int64_t few_rows_stride(const few_rows *f) {
    return few_rows_chunks(f) * 16 * f->format.each + few_rows_groups(f);
}
static inline int64_t few_rows_floats(const few_rows *f, int64_t rows) {
    return f->k ? (rows + ROWS_AT_ONCE - 1) * few_rows_stride(f) : 0;
}

static inline void few_rows_arrange(const few_rows *f, int64_t row, const float *x) {
    float *to = f->x + row * few_rows_stride(f);
    const int each = f->format.each, group = f->format.group;
    for (int64_t c = 0; c < few_rows_chunks(f); c++)
        for (int i = 0; i < each; i++)
            for (int64_t lane = 16 * c; lane < 16 * c + 16; lane++) {
                int64_t at = lane * each + i;
                *to++ = at < f->k ? x[at] : 0.0f;
            }
    for (int64_t g = 0; g < few_rows_groups(f); g++) {
        v16f sum = v16f_zero();
        for (int64_t i = g * group; i < (g + 1) * group && i < f->k; i += 16) sum = v16f_add(sum, v16f_load(x + i));
        *to++ = v16f_sum(sum);
    }
}

HT_INLINE void few_rows_by(const few_rows *f, const float *x, int rows, group_kind kind, int bits,
                           const uint8_t *numbers, const float *scales, const float *biases, float *out) {
    const int each = HT_NUMBERS_OF_LANE(bits), group = f->format.group;
    const int64_t chunks = few_rows_chunks(f), stride = few_rows_stride(f), bytes = group_chunk_bytes(bits);
    v16f sum[ROWS_AT_ONCE];
    HT_UNROLL
    for (int m = 0; m < rows; m++) sum[m] = v16f_zero();
    for (int64_t c = 0; c < chunks; c++) {
        const uint8_t *p = numbers + c * bytes;
        ht_fetch_ahead(p);
        v16i lanes = group_load(p, f->k * bits / 8 - c * bytes, bits);
        v16f part[ROWS_AT_ONCE][2];
        HT_UNROLL
        for (int m = 0; m < rows; m++) part[m][0] = part[m][1] = v16f_zero();
        HT_UNROLL
        for (int i = 0; i < each; i++) {
            v16f q = group_number(lanes, i, kind, bits);
            HT_UNROLL
            for (int m = 0; m < rows; m++)
                part[m][i & 1] = v16f_fma(q, v16f_load(x + m * stride + (c * each + i) * 16), part[m][i & 1]);
        }
        v16f scale = group_scale_lanes(scales + 16 * c * each / group, each, group);
        HT_UNROLL
        for (int m = 0; m < rows; m++) sum[m] = v16f_fma(scale, v16f_add(part[m][0], part[m][1]), sum[m]);
    }
    for (int64_t g = 0; biases && g < few_rows_groups(f); g += 16) {
        v16f bias = v16f_load(biases + g);
        HT_UNROLL
        for (int m = 0; m < rows; m++)
            sum[m] = v16f_fma(bias, v16f_load(x + m * stride + chunks * each * 16 + g), sum[m]);
    }
    HT_UNROLL
    for (int m = 0; m < rows; m++) out[m] = v16f_sum(sum[m]);
}

/* Rows [first, first + rows) of the arranged activations, one or four at a time: the last four may go beyond `rows`, in
 * `out` as well. scales, and biases if there are any, have space for few_rows_groups. */
static inline void few_rows_multiply(const few_rows *f, int64_t first, int rows, const uint8_t *numbers,
                                     const float *scales, const float *biases, float *out) {
    for (int m = 0; m < rows; m += ROWS_AT_ONCE) {
        const float *x = f->x + (first + m) * few_rows_stride(f);
#define BY_FORMAT(k, b)                                                                                                \
    if (f->format.kind == k && f->format.bits == b) {                                                                  \
        if (rows - m == 1)                                                                                             \
            few_rows_by(f, x, 1, k, b, numbers, scales, biases, out + m);                                              \
        else                                                                                                           \
            few_rows_by(f, x, ROWS_AT_ONCE, k, b, numbers, scales, biases, out + m);                                   \
    }
        GROUP_FORMATS(BY_FORMAT)
#undef BY_FORMAT
    }
}

#endif
