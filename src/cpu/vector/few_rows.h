/* Up to FEW_ROWS rows of activations by one row of affine groups of 2, 4 or 8 bits. Sixteen words of numbers are loaded at
 * once; number i of each is shifted down, and meets activations that were arranged to lie as the words do. The scales of
 * their groups multiply what sixteen lanes have summed, the biases meet sums of the activations of whole groups. */
#ifndef HT_CPU_VECTOR_FEW_ROWS_H
#define HT_CPU_VECTOR_FEW_ROWS_H

#include "cpu/vector/lanes.h"
#include "cpu/vector/simd_int.h"

#include <hearth/quantize.h>

enum { FEW_ROWS = 4 };

typedef struct few_rows {
    int64_t words; /* of a row of numbers; 0: these groups are not taken */
    int bits, group, per_word;
    float *x; /* per row: [chunk][number in a word][16 words], then the sums of groups */
} few_rows;

HT_INLINE int64_t few_rows_chunks(const few_rows *f) { return (f->words + 15) / 16; }
HT_INLINE int64_t few_rows_groups(const few_rows *f) { return (f->words * f->per_word / f->group + 31) / 16 * 16; }
HT_INLINE int64_t few_rows_stride(const few_rows *f) {
    return few_rows_chunks(f) * 16 * f->per_word + few_rows_groups(f);
}

static inline few_rows few_rows_of(const ht_quantization *how, int64_t k) {
    bool taken = how->mode == HT_QUANT_AFFINE && (how->bits == 2 || how->bits == 4 || how->bits == 8);
    few_rows f = {.bits = how->bits, .group = how->group, .per_word = taken ? 32 / how->bits : 0};
    f.words = taken && k <= 65536 ? k / f.per_word : 0;
    return f;
}

static inline int64_t few_rows_floats(const few_rows *f, int64_t rows) {
    return f->words ? rows * few_rows_stride(f) : 0;
}

static inline void few_rows_arrange(const few_rows *f, int64_t row, const float *x) {
    float *to = f->x + row * few_rows_stride(f);
    int64_t chunks = few_rows_chunks(f), k = f->words * f->per_word, groups = few_rows_groups(f);
    for (int64_t c = 0; c < chunks; c++)
        for (int i = 0; i < f->per_word; i++)
            for (int64_t word = 16 * c; word < 16 * c + 16; word++)
                *to++ = word < f->words ? x[word * f->per_word + i] : 0.0f;
    for (int64_t g = 0; g < groups; g++) {
        v16f sum = v16f_zero();
        for (int64_t i = g * f->group; i < (g + 1) * f->group && i < k; i += 16) sum = v16f_add(sum, v16f_load(x + i));
        *to++ = v16f_sum(sum);
    }
}

/* The scale of each of sixteen words, whose first number is `first` of its row. */
HT_INLINE v16f few_rows_scales(const float *scales, int64_t first, int per_word, int group) {
    const float *s = scales + first / group;
    switch (group / per_word) { /* words of a group */
    case 2: {
        float each[16];
        for (int i = 0; i < 16; i++) each[i] = s[i / 2];
        return v16f_load(each);
    }
    case 4: {
        v16f low = v16f_select(m16_first(4), v16f_set1(s[0]), v16f_set1(s[1]));
        v16f high = v16f_select(m16_first(12), v16f_set1(s[2]), v16f_set1(s[3]));
        return v16f_select(m16_first(8), low, high);
    }
    case 8: return v16f_select(m16_first(8), v16f_set1(s[0]), v16f_set1(s[1]));
    default: return v16f_set1(s[0]);
    }
}

HT_INLINE void few_rows_by(const few_rows *f, const float *x, int64_t stride, int rows, int bits,
                           const uint8_t *numbers, const float *scales, const float *biases, float *out) {
    const int per_word = 32 / bits;
    int64_t chunks = few_rows_chunks(f), groups = few_rows_groups(f);
    v16i mask = v16i_set1((1 << bits) - 1);
    v16f sum[FEW_ROWS];
    HT_UNROLL
    for (int m = 0; m < rows; m++) sum[m] = v16f_zero();
    for (int64_t c = 0; c < chunks; c++) {
        int64_t left = f->words - 16 * c;
        const float *p = (const float *)(const void *)numbers + 16 * c;
        v16i words = left >= 16 ? v16i_load_bytes(p) : v16f_bits(v16f_load_n(p, (int)left));
        v16f part[FEW_ROWS][2];
        HT_UNROLL
        for (int m = 0; m < rows; m++) part[m][0] = part[m][1] = v16f_zero();
        HT_UNROLL
        for (int i = 0; i < per_word; i++) {
            v16f q = v16f_from_i(v16i_and(v16i_shr(words, i * bits), mask));
            HT_UNROLL
            for (int m = 0; m < rows; m++)
                part[m][i & 1] = v16f_fma(q, v16f_load(x + m * stride + (c * per_word + i) * 16), part[m][i & 1]);
        }
        v16f scale = few_rows_scales(scales, 16 * c * per_word, per_word, f->group);
        HT_UNROLL
        for (int m = 0; m < rows; m++) sum[m] = v16f_fma(scale, v16f_add(part[m][0], part[m][1]), sum[m]);
    }
    for (int64_t g = 0; g < groups; g += 16) {
        v16f bias = v16f_load(biases + g);
        HT_UNROLL
        for (int m = 0; m < rows; m++)
            sum[m] = v16f_fma(bias, v16f_load(x + m * stride + chunks * per_word * 16 + g), sum[m]);
    }
    HT_UNROLL
    for (int m = 0; m < rows; m++) out[m] = v16f_sum(sum[m]);
}

/* Rows [first, first + rows) of the arranged activations; scales and biases are followed by room for few_rows_groups. */
static inline void few_rows_multiply(const few_rows *f, int64_t first, int rows, const uint8_t *numbers,
                                     const float *scales, const float *biases, float *out) {
    int64_t stride = few_rows_stride(f);
    const float *x = f->x + first * stride;
#define FOR_BITS(b)                                                                                                    \
    case b:                                                                                                            \
        if (rows == 4)                                                                                                 \
            few_rows_by(f, x, stride, 4, b, numbers, scales, biases, out);                                             \
        else                                                                                                           \
            for (int m = 0; m < rows; m++)                                                                             \
                few_rows_by(f, x + m * stride, stride, 1, b, numbers, scales, biases, out + m);                        \
        break;
    switch (f->bits) {
        FOR_BITS(2)
        FOR_BITS(4)
        FOR_BITS(8)
    default: break;
    }
#undef FOR_BITS
}

#endif
