/* Activation quantisation: to 8 bits, or to 15 bits in two planes of 8. Sixteen blocks are judged at a time, a lane each,
 * so that their largest values, the errors of the scales that are tried, and the sums of their numbers all add up without
 * crossing lanes. */
#include "cpu/vector/matrix_int8.h"
#include "cpu/vector/simd_int.h"
#include "cpu/vector/simd_word.h"

#include <math.h>

/* Added to a number under 2^22 in size it leaves the nearest integer, ties to even, in the low bits of the sum. */
#define ROUND_BASE 12582912.0f
#define TINY       0x1p-110f /* blocks without a larger value are zero, because the division would overflow */
enum {
    TRIES = 3,
    LANES = 16,
    WORDS = HT_QBLOCK / 2 /* vectors of two columns */
};

/* Rounding is a matter of luck, and a block may try its luck more than once: the largest value becomes 127, 126 or 125,
 * whichever leaves the least error in the block's 32 values. The coarser steps cost less than the best of three draws
 * gains: 7 % of the divergence of SmolLM2's output. Levels are in 1 / 128 of 127. */
static const int32_t try_levels[TRIES] = {128, 127, 126};
static const float try_steps[TRIES] = {1.0f, 128.0f / 127.0f, 128.0f / 126.0f};

/* Sixteen blocks, one per lane, and their quantised form. A lane of `word` has two columns of 16 bits, in 1 / 256 of
 * the first step: of four columns, 0 and 2, then 1 and 3. */
typedef struct group {
    _Alignas(64) float column[HT_QBLOCK][LANES];
    _Alignas(64) int32_t word[WORDS][LANES];
    _Alignas(64) int32_t half[2][2][LANES]; /* [plane][half of the block]: sums of the numbers */
} group;

/* Fills the columns. Returns the bits of the largest magnitudes, compared as integers so that NaN is the largest. */
HT_INLINE v16i load_blocks(const float *const block[LANES], group *g) {
    v16i peak = v16i_set1(0);
    for (int c = 0; c < HT_QBLOCK; c += 4) {
        v16f v[4];
        for (int i = 0; i < 4; i++)
            v[i] = v16f_load_quads(block[i] + c, block[4 + i] + c, block[8 + i] + c, block[12 + i] + c);
        v16f_transpose_quads(v);
        for (int i = 0; i < 4; i++) {
            v16f_store(g->column[c + i], v[i]);
            peak = v16i_max(peak, v16f_bits(v16f_abs(v[i])));
        }
    }
    return peak;
}

/* Two columns, each multiplied by `by` and rounded. */
HT_INLINE v16i join_columns(const float *low, const float *high, v16f by) {
    const v16f base = v16f_set1(ROUND_BASE);
    return v16w_join(v16f_bits(v16f_fma(v16f_load(low), by, base)), v16f_bits(v16f_fma(v16f_load(high), by, base)));
}

HT_INLINE v16i both_words(int n) { return v16i_set1(n * 0x10001); }

/* Fills the words and chooses the level with the least error. Returns it, twice in each lane, and its step. */
HT_INLINE v16i choose_level(group *g, v16f by, v16f *step) {
    v16i level[TRIES], error[TRIES];
    for (int i = 0; i < TRIES; i++) {
        level[i] = both_words(try_levels[i]);
        error[i] = v16i_set1(0);
    }
    for (int w = 0; w < WORDS; w++) {
        const float *first = g->column[2 * w - (w & 1)];
        v16i y = join_columns(first, first + 2 * LANES, by);
        v16i_store(g->word[w], y);
        HT_UNROLL
        for (int i = 0; i < TRIES; i++) {
            /* of y * level, a fraction of the step has 15 bits: twice that fills the low word, sign included */
            v16i e = v16w_sra(v16w_mul(y, both_words(2 * try_levels[i])), 8);
            error[i] = v16w_dot(error[i], e, e);
        }
    }
    v16f least = v16f_from_i(error[0]);
    v16i best = level[0];
    *step = v16f_set1(1.0f);
    for (int i = 1; i < TRIES; i++) {
        v16f in_steps = v16f_mul(v16f_from_i(error[i]), v16f_set1(try_steps[i] * try_steps[i]));
        m16 better = v16f_lt(in_steps, least);
        least = v16f_select(better, in_steps, least);
        *step = v16f_select(better, v16f_set1(try_steps[i]), *step);
        best = v16f_bits(v16f_select(better, v16f_from_bits(level[i]), v16f_from_bits(best)));
    }
    return best;
}

/* Four columns in whole steps: a byte each. */
HT_INLINE v16i whole_steps(const group *g, int w, v16i level) {
    v16i even = v16w_scale(v16i_load(g->word[w]), level), odd = v16w_scale(v16i_load(g->word[w + 1]), level);
    return v16i_or(v16i_and(even, both_words(255)), v16w_shl(odd, 8));
}

/* Half a block of every lane, four columns in each v, to bytes q[l] + at. */
HT_INLINE void store_half(v16i v[4], int8_t *const q[LANES], int at) {
    v16i_transpose_quads(v);
    for (int i = 0; i < 4; i++) v16i_store_quads(q[i] + at, q[4 + i] + at, q[8 + i] + at, q[12 + i] + at, v[i]);
}

/* The numbers of block l to q[l], their sums to g. */
HT_INLINE void store_numbers(group *g, v16i level, int8_t *const q[LANES]) {
    for (int h = 0; h < 2; h++) {
        v16i v[4];
        v16d d = v16d_start(0);
        HT_UNROLL
        for (int i = 0; i < 4; i++) {
            v[i] = whole_steps(g, WORDS / 2 * h + 2 * i, level);
            d = v16d_step(d, v16i_set1(0x01010101), v[i], 4, 4, i);
        }
        v16i_store(g->half[0][h], v16d_sum(d, 0));
        store_half(v, q, 16 * h);
    }
}

/* Gives the scales. */
HT_INLINE v16f quantise_bytes(const float *const block[LANES], group *g, int8_t *const q[LANES]) {
    v16f peak = v16f_from_bits(load_blocks(block, g)), step;
    m16 finite = v16f_lt(peak, v16f_set1(INFINITY));
    v16f s = v16f_div(peak, v16f_set1(127.0f)), by = v16f_div(v16f_set1(256.0f * 127.0f), peak);
    by = v16f_select(v16f_gt(peak, v16f_set1(TINY)), by, v16f_zero());
    v16i level = choose_level(g, by, &step);
    store_numbers(g, level, q);
    return v16f_select(finite, v16f_mul(s, step), v16f_set1(NAN));
}

/* Four columns of numbers to bytes, column i in bits 8 i. */
HT_INLINE v16i join_bytes(const v16i n[4]) {
    const v16i byte = v16i_set1(255);
    v16i low = v16i_or(v16i_and(n[0], byte), v16i_shl(v16i_and(n[1], byte), 8));
    return v16i_or(low, v16i_or(v16i_shl(v16i_and(n[2], byte), 16), v16i_shl(n[3], 24)));
}

/* q = 128 high + low for each value, |q| at most HT_PLANES_X, low within [-64, 63]. Writes the high numbers of block l
 * to q[l], followed by the low ones. Returns the scales. */
HT_INLINE v16f quantise_planes(const float *const block[LANES], group *g, int8_t *const q[LANES]) {
    const v16f peak = v16f_from_bits(load_blocks(block, g)), base = v16f_set1(ROUND_BASE);
    v16f by = v16f_div(v16f_set1(HT_PLANES_X), peak);
    by = v16f_select(v16f_gt(peak, v16f_set1(TINY)), by, v16f_zero());
    int8_t *behind[LANES];
    for (int l = 0; l < LANES; l++) behind[l] = q[l] + HT_QBLOCK;
    for (int h = 0; h < 2; h++) {
        v16i high[4], low[4], high_sum = v16i_set1(0), low_sum = v16i_set1(0);
        for (int i = 0; i < 4; i++) {
            v16i a[4], b[4];
            HT_UNROLL
            for (int c = 0; c < 4; c++) {
                v16f value = v16f_load(g->column[16 * h + 4 * i + c]);
                v16i n = v16i_sub(v16f_bits(v16f_fma(value, by, base)), v16f_bits(base));
                a[c] = v16i_sra(v16i_add(n, v16i_set1(HT_PLANE_STEP / 2)), HT_PLANE_BITS);
                b[c] = v16i_sub(n, v16i_shl(a[c], HT_PLANE_BITS));
                high_sum = v16i_add(high_sum, a[c]);
                low_sum = v16i_add(low_sum, b[c]);
            }
            high[i] = join_bytes(a);
            low[i] = join_bytes(b);
        }
        v16i_store(g->half[0][h], high_sum);
        v16i_store(g->half[1][h], low_sum);
        store_half(high, q, 16 * h);
        store_half(low, behind, 16 * h);
    }
    const v16f scale = v16f_div(peak, v16f_set1(HT_PLANES_X));
    return v16f_select(v16f_lt(peak, v16f_set1(INFINITY)), scale, v16f_set1(NAN));
}

/* Infinities and NaN have no valid numbers; the NaN scale makes the output NaN in any case. */
static void replace_numbers(group *g, int planes, const float *scale, int n, int8_t *const q[LANES]) {
    for (int l = 0; l < n; l++) {
        if (!isnan(scale[l])) continue;
        memset(q[l], 1, (size_t)(planes * HT_QBLOCK));
        for (int p = 0; p < planes; p++) g->half[p][0][l] = g->half[p][1][l] = HT_QBLOCK / 2;
    }
}

HT_INLINE void prepare(int planes, const float *x, int64_t ldx, int64_t k, const ht_qrows *to, int64_t t, int first,
                       int last) {
    const int64_t n = ht_qtile_rows(to, t), start = ht_qtile_first(to, t) * to->n_blocks;
    const int64_t row = ht_qtile_first(to, t) / planes; /* of activations */
    const int64_t n_blocks = k / HT_QBLOCK;
    _Alignas(64) float scale[LANES];
    int8_t nowhere[2 * HT_QBLOCK];
    group g;
    int64_t b = ht_first_block(to, t, planes * first), i = first,
            left = n_blocks * (last - first); /* the next block: of row i */
    while (left > 0) {
        const float *block[LANES];
        int8_t *q[LANES];
        int64_t at[LANES], sum[LANES];
        const int count = (int)(left < LANES ? left : LANES);
        for (int l = 0; l < count; l++) {
            block[l] = x + (row + i) * ldx + HT_QBLOCK * b;
            at[l] = start + n * b + planes * i;
            sum[l] = 2 * (start + n * b) + planes * i;
            q[l] = to->q + HT_QBLOCK * at[l];
            if (++i < last) continue;
            i = first;
            if (++b == n_blocks) b = 0;
        }
        for (int l = count; l < LANES; l++) {
            block[l] = x + (row + first) * ldx;
            q[l] = nowhere;
        }
        v16f scales = planes == 2 ? quantise_planes(block, &g, q) : quantise_bytes(block, &g, q);
        v16f_store(scale, scales);
        if (m16_any(v16f_is_nan(scales))) replace_numbers(&g, planes, scale, count, q);
        for (int l = 0; l < count; l++)
            for (int p = 0; p < planes; p++) {
                to->scale[at[l] + p] = scale[l];
                to->sum[sum[l] + p] = g.half[p][0][l];
                to->sum[sum[l] + n + p] = g.half[p][1][l];
            }
        left -= count;
    }
}

void HT_ISA_NAME(ht_prepare_bytes)(const float *x, int64_t ldx, int64_t k, const ht_qrows *to, int64_t t, int first,
                                   int last) {
    prepare(1, x, ldx, k, to, t, first, last);
}

void HT_ISA_NAME(ht_prepare_planes)(const float *x, int64_t ldx, int64_t k, const ht_qrows *to, int64_t t, int first,
                                    int last) {
    prepare(2, x, ldx, k, to, t, first, last);
}
