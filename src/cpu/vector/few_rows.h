/* GEMV with quantised arrays: a few rows of activations by a matrix that is never decoded into memory, as its numbers
 * become floats in registers. By a row of the matrix (its transpose is multiplied): chunks of numbers meet activations
 * that were arranged to lie as they do; the scales of their groups multiply what sixteen lanes have summed, the biases
 * meet sums of the activations of whole groups. By columns of it: the sums of a stretch of columns stay in the cache,
 * and rows are added four at a time. */
#ifndef HT_CPU_VECTOR_FEW_ROWS_H
#define HT_CPU_VECTOR_FEW_ROWS_H

#include "cpu/vector/groups.h"
#include "cpu/vector/tile.h"

enum { FEW_ROWS = 8, ROWS_AT_ONCE = 4 };

/* ---- by rows of the matrix ---- */

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
static inline int64_t few_rows_floats(const few_rows *f, int64_t rows) { return f->k ? rows * few_rows_stride(f) : 0; }

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

/* Rows [first, first + rows) of the arranged activations; scales, and biases if there are any, have room for
 * few_rows_groups. */
static inline void few_rows_multiply(const few_rows *f, int64_t first, int rows, const uint8_t *numbers,
                                     const float *scales, const float *biases, float *out) {
    for (int m = 0, some; m < rows; m += some) {
        some = rows - m >= 4 ? 4 : rows - m >= 2 ? 2 : 1;
        const float *x = f->x + (first + m) * few_rows_stride(f);
#define BY_FORMAT(k, b)                                                                                                \
    if (f->format.kind == k && f->format.bits == b) {                                                                  \
        if (some == 4)                                                                                                 \
            few_rows_by(f, x, 4, k, b, numbers, scales, biases, out + m);                                              \
        else if (some == 2)                                                                                            \
            few_rows_by(f, x, 2, k, b, numbers, scales, biases, out + m);                                              \
        else                                                                                                           \
            few_rows_by(f, x, 1, k, b, numbers, scales, biases, out + m);                                              \
    }
        GROUP_FORMATS(BY_FORMAT)
#undef BY_FORMAT
    }
}

/* ---- by columns ---- */

enum {
    COLUMN_STRETCH = 1024, /* at most so many columns, a multiple of every chunk */
    STRETCH_GROUPS = COLUMN_STRETCH / 16 + 16,
    ROWS_ADDED = 4
};

/* A stretch of columns of a matrix, and what its rows add to. */
typedef struct few_columns {
    const group_format *format;
    const uint8_t *numbers;                  /* of row 0, where the stretch begins */
    int64_t row_bytes, n, left;              /* columns of the stretch, bytes from there to the end of a row */
    const ht_view *scales, *biases;          /* biases: NULL when there are none */
    int64_t first_scale, first_bias, groups; /* of row 0; groups of a row */
    float *sums;  /* [ROWS_AT_ONCE][COLUMN_STRETCH]: number i of lane l of a chunk at 16 i + l */
    float *added; /* [ROWS_AT_ONCE][STRETCH_GROUPS]: the biases */
    float *scale; /* [ROWS_ADDED][STRETCH_GROUPS] */
} few_columns;

/* n rows of the matrix from row l on, times column l of x [rows, ...], are added. */
HT_INLINE void few_columns_add(const few_columns *f, int64_t l, int n, const float *x, int64_t x_row, int rows,
                               group_kind kind, int bits) {
    const int each = HT_NUMBERS_OF_LANE(bits), group = f->format->group;
    const int64_t bytes = group_chunk_bytes(bits), all = f->n * bits / 8;
    for (int64_t c = 0; c * bytes < all; c++) {
        v16i lanes[ROWS_ADDED];
        v16f by[ROWS_AT_ONCE][ROWS_ADDED];
        HT_UNROLL
        for (int r = 0; r < ROWS_ADDED; r++) {
            const int at = r < n ? r : 0; /* what is not there is added 0 times */
            const uint8_t *p = f->numbers + (l + at) * f->row_bytes + c * bytes;
            HT_PREFETCH(p + 2 * ROWS_ADDED * f->row_bytes);
            lanes[r] = group_load(p, f->left - c * bytes, bits);
            v16f scale = group_scale_lanes(f->scale + at * STRETCH_GROUPS + 16 * c * each / group, each, group);
            HT_UNROLL
            for (int m = 0; m < rows; m++)
                by[m][r] = r < n ? v16f_mul(scale, v16f_set1(x[m * x_row + l + at])) : v16f_zero();
        }
        HT_UNROLL
        for (int i = 0; i < each; i++) {
            v16f q[ROWS_ADDED];
            HT_UNROLL
            for (int r = 0; r < ROWS_ADDED; r++) q[r] = group_number(lanes[r], i, kind, bits);
            HT_UNROLL
            for (int m = 0; m < rows; m++) {
                float *to = f->sums + m * COLUMN_STRETCH + (c * each + i) * 16;
                v16f sum = v16f_load(to);
                HT_UNROLL
                for (int r = 0; r < ROWS_ADDED; r++) sum = v16f_fma(q[r], by[m][r], sum);
                v16f_store(to, sum);
            }
        }
    }
}

static inline void few_columns_biases(const few_columns *f, int64_t row, const float *x, int64_t x_row, int rows) {
    float bias[STRETCH_GROUPS];
    int64_t n = f->n / f->format->group;
    group_scales(f->format, f->biases, f->first_bias + row * f->groups, n, bias);
    for (int m = 0; m < rows; m++)
        for (int64_t g = 0; g < n; g += 16) {
            float *to = f->added + m * STRETCH_GROUPS + g;
            v16f_store(to, v16f_fma(v16f_load(bias + g), v16f_set1(x[m * x_row + row]), v16f_load(to)));
        }
}

/* sums and added, for `rows` rows of x [rows, k], x_row apart, at most ROWS_AT_ONCE: 1, 2 or 4. */
static inline void few_columns_multiply(const few_columns *f, const float *x, int64_t x_row, int rows, int64_t k) {
    memset(f->sums, 0, (size_t)(rows * COLUMN_STRETCH) * sizeof *f->sums);
    memset(f->added, 0, (size_t)(rows * STRETCH_GROUPS) * sizeof *f->added);
    int64_t n = f->n / f->format->group;
    for (int64_t l = 0; l < k; l += ROWS_ADDED) {
        const int some = k - l < ROWS_ADDED ? (int)(k - l) : ROWS_ADDED;
        for (int r = 0; r < some; r++) {
            group_scales(f->format, f->scales, f->first_scale + (l + r) * f->groups, n, f->scale + r * STRETCH_GROUPS);
            if (f->biases) few_columns_biases(f, l + r, x, x_row, rows);
        }
#define BY_FORMAT(kind_, b)                                                                                            \
    if (f->format->kind == kind_ && f->format->bits == b) {                                                            \
        if (rows == 4)                                                                                                 \
            few_columns_add(f, l, some, x, x_row, 4, kind_, b);                                                        \
        else if (rows == 2)                                                                                            \
            few_columns_add(f, l, some, x, x_row, 2, kind_, b);                                                        \
        else                                                                                                           \
            few_columns_add(f, l, some, x, x_row, 1, kind_, b);                                                        \
    }
        GROUP_FORMATS(BY_FORMAT)
#undef BY_FORMAT
    }
}

/* Column c of row m, where few_columns_multiply left it. */
HT_INLINE float few_columns_at(const few_columns *f, int m, int64_t c) {
    const int each = f->format->each;
    int64_t chunk = c / (16 * each), in_chunk = c % (16 * each);
    float sum = f->sums[m * COLUMN_STRETCH + (chunk * each + in_chunk % each) * 16 + in_chunk / each];
    return sum + f->added[m * STRETCH_GROUPS + c / f->format->group];
}

#endif
