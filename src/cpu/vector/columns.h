/* What kernels that reduce columns share: asking for rows before they are needed, and adding up partial sums. */
#ifndef HT_CPU_VECTOR_COLUMNS_H
#define HT_CPU_VECTOR_COLUMNS_H

#include "base/checked.h"
#include "cpu/asking.h"
#include "cpu/vector/lanes.h"

enum {
    COLUMNS_LANES = 64,   /* partial sums of a column, as row_sum has them of a row */
    COLUMNS_TOTALS = 1024 /* results that are made of sums at a time, at most */
};

/* Columns whose sums are under way side by side, at most. A core that has to be asked for what it reads is asked for eight rows
 * while eight are read, into a first cache of 32 KB. Others read pages of rows, of 1024 columns. One that follows rows by
 * itself gains from more, and so does one that looks less far, with AVX2: 0.75 of the time on Zen 3, where what is next in a row
 * is asked for. */
HT_INLINE int64_t columns_widest(void) {
    if (ht_asks_near()) return 512;
#if defined(HT_ISA_YMM)
    return 4096;
#else
    return ht_follows_rows() ? 4096 : 1024;
#endif
}

/* How many such pieces a thread gets at least: threads that get several end together. */
HT_INLINE int64_t columns_pieces(void) {
#if defined(HT_ISA_YMM)
    return 1;
#else
    return ht_follows_rows() ? 2 : 4;
#endif
}

/* From one of the sums of w columns to the next, in floats: no power of two, of which a cache holds only few. */
HT_INLINE int64_t columns_apart(int64_t w) { return (w + 15) / 16 * 16 + 16; }

/* How many bytes ahead of what is read of a row is asked for, 0: the row to come is. By a core that follows rows, `followed`:
 * on Zen 5 variances took 0.7 of the time so, and sums of powers 0.8 to 0.9, of that of asking for the row to come. */
HT_INLINE int64_t columns_ahead(int64_t followed) {
#if defined(HT_ISA_YMM)
    (void)followed;
    return 512;
#else
    return ht_follows_rows() ? followed : 0;
#endif
}

/* Rows are added to COLUMNS_LANES sums in turn, so many to each at a time: how far behind those of sum k the next ones are. */
HT_INLINE int64_t columns_to_next(int64_t k, int rows) {
    return k < COLUMNS_LANES - 1 ? 1 : (int64_t)COLUMNS_LANES * (rows - 1) + 1;
}

/* How far behind byte `at` of rows of so many bytes lies what to ask for, `on` bytes on, or 0 (columns_ahead); `ahead`: how far
 * the rows to come are. */
HT_INLINE int64_t columns_next(int64_t at, int64_t bytes, int64_t on, int64_t ahead) {
    on = ht_min_i64(bytes, on);
    return on == 0 ? ahead : at + on < bytes ? on : on - bytes + ahead;
}

HT_INLINE void columns_ask_for(const char *p, int64_t bytes) {
    const bool near = ht_asks_near();
    for (int64_t b = 0; b < bytes; b += 64) HT_PREFETCH_BESIDE(near, p + b);
}

/* The rows i, i + 16, i + 32 and i + 48 of the n that there are, from column c on. */
HT_INLINE v16f columns_every_16th(ht_dtype t, const void *rows, int64_t step, int64_t i, int64_t n, int64_t c,
                                  int lanes) {
    if (i >= n) return v16f_zero();
    v16f sum = lanes_load(t, rows, i * step + c, 1, lanes);
    if (i + 16 < n) sum = v16f_add(sum, lanes_load(t, rows, (i + 16) * step + c, 1, lanes));
    if (i + 32 >= n) return sum;
    v16f other = lanes_load(t, rows, (i + 32) * step + c, 1, lanes);
    if (i + 48 < n) other = v16f_add(other, lanes_load(t, rows, (i + 48) * step + c, 1, lanes));
    return v16f_add(sum, other);
}

/* The tree of row_sum_total down w columns of n rows, `step` elements apart and COLUMNS_LANES at most: partial sums, or the
 * elements themselves if there are no more. What was never added to is 0, and so is the sum of negative zeros. */
HT_INLINE void columns_add_lanes(ht_dtype t, const void *rows, int64_t step, int64_t n, int64_t w, float *to) {
    for (int64_t c = 0; c < w; c += 16) {
        const int lanes = lanes_of(w - c);
        v16f sum[16];
        HT_UNROLL
        for (int i = 0; i < 16; i++) sum[i] = columns_every_16th(t, rows, step, i, n, c, lanes);
        HT_UNROLL
        for (int half = 8; half > 0; half /= 2) {
            HT_UNROLL
            for (int i = 0; i < half; i++) sum[i] = v16f_add(sum[i], sum[i + half]);
        }
        v16f_store_n(to + c, v16f_add(v16f_zero(), sum[0]), lanes);
    }
}

#endif
