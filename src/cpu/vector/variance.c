/* Means and sums of squared distances from them. Elements are read once: distances are taken from a middle, the mean of the
 * first 64, and what they come to is moved to the mean afterwards. That costs digits if the mean is far from the middle, as
 * in a row that rises; then blocks that the second cache holds are gone through twice, for the mean and for the distances. */
#include "cpu/vector/variance.h"

#include "base/math.h"
#include "cpu/asking.h"
#include "cpu/each.h"
#include "cpu/vector/reduce.h"
#include "cpu/vector/rows.h"

#include <math.h>

enum {
    LANES = COLUMNS_LANES,
    BLOCK = 512,    /* elements that are gone through twice, where once is not enough */
    AHEAD = 1024,   /* floats of a row that are asked for before they are needed */
    FOLLOWED = 256, /* the same of bytes of columns (columns_ahead) */
    ROWS_AHEAD = 8, /* the same of rows */
    WIDTH = COLUMNS_TOTALS,
    ABREAST = 8,      /* rows that are added to the same sums at a time, */
    MOST_ABREAST = 16 /* and if the core follows so many (cpu/asking.h) */
};

/* What sums of n distances from a middle come to. */
static ht_variance around(float middle, float off, float squares, double n) {
    const double e = (double)off;
    return (ht_variance){(double)middle + e / n, (double)squares - e * (e / n)};
}

/* Whether no more than a quarter of the squares was due to the middle's distance from the mean. */
static bool is_near(ht_variance v, float squares) { return isfinite(v.squares) && v.squares >= 0.75 * (double)squares; }

/* ---- rows ---- */

static float mean_of(const float *x, int64_t n) {
    row_sum sum = row_sum_zero();
    int64_t i = 0;
    for (; i + 64 <= n; i += 64) {
        HT_UNROLL
        for (int k = 0; k < 4; k++) sum.lane[k] = v16f_add(sum.lane[k], v16f_load(x + i + 16 * k));
    }
    for (; i < n; i += 16) sum.lane[i / 16 % 4] = v16f_add(sum.lane[i / 16 % 4], v16f_load_n(x + i, lanes_of(n - i)));
    return row_sum_total(&sum) / (float)n;
}

/* Of n elements, with distances from the mean of the first `some` of them; *near: whether that was near enough. `far`: whether
 * what follows is asked for far ahead. */
static ht_variance of_floats(const float *x, int64_t n, int64_t some, bool far, bool *near) {
    row_sum off = row_sum_zero(), squares = row_sum_zero();
    const float mean = mean_of(x, some);
    const v16f middle = v16f_set1(mean);
    const bool asks = ht_asks_near();
    int64_t i = 0;
    for (; i + 64 <= n; i += 64) {
        HT_UNROLL
        for (int k = 0; k < 4; k++) {
            if (asks)
                HT_PREFETCH(x + i + 16 * k + AHEAD); /* also of the next row */
            else if (HT_ASKS_FAR && far)
                HT_PREFETCH_FAR(x + i + 16 * k);
            const v16f d = v16f_sub(v16f_load(x + i + 16 * k), middle);
            off.lane[k] = v16f_add(off.lane[k], d);
            squares.lane[k] = v16f_fma(d, d, squares.lane[k]);
        }
    }
    for (; i < n; i += 16) {
        const int lanes = lanes_of(n - i), k = (int)(i / 16 % 4);
        const v16f d = v16f_select(m16_first(lanes), v16f_sub(v16f_load_n(x + i, lanes), middle), v16f_zero());
        off.lane[k] = v16f_add(off.lane[k], d);
        squares.lane[k] = v16f_fma(d, d, squares.lane[k]);
    }
    const float q = row_sum_total(&squares);
    const ht_variance v = around(mean, row_sum_total(&off), q, (double)n);
    *near = n == some || is_near(v, q);
    return v;
}

/* Of f64, in two passes. */
static ht_variance of_doubles(const double *x, int64_t n) {
    double sum[LANES] = {0.0}, squares[LANES] = {0.0};
    ROW_SUM_F64(sum, LANES, x[i + k])
    const double mean = sum[0] / (double)n;
    ROW_SUM_F64(squares, LANES, (x[i + k] - mean) * (x[i + k] - mean))
    return (ht_variance){mean, squares[0]};
}

static ht_variance in_blocks(const void *x, bool wide, int64_t n) {
    ht_variance all = {0};
    for (int64_t i = 0; i < n; i += BLOCK) {
        const int64_t some = n - i < BLOCK ? n - i : BLOCK;
        bool ignored;
        const ht_variance here = wide ? of_doubles((const double *)x + i, some)
                                      : of_floats((const float *)x + i, some, some, false, &ignored);
        all = i ? ht_variance_joined(all, (double)i, here, (double)some) : here;
    }
    return all;
}

ht_variance HT_ISA_NAME(ht_variance_of_row)(const ht_view *x, int64_t at, int64_t n) {
    _Alignas(64) char room[HT_REDUCE_BLOCK * sizeof(double)];
    const int64_t stride = x->stride[x->n_dims - 1], bytes = (int64_t)ht_dtype_bytes(x->dtype);
    const void *p = (const char *)x->data + at * bytes;
    bool far = rows_ask_far(x), near;
    if (x->dtype == HT_F64) {
        if (stride != 1) ht_gather_elements(room, p, stride, n, sizeof(double));
        return in_blocks(stride == 1 ? p : room, true, n);
    }
    if (x->dtype != HT_F32 || stride != 1) {
        float *to = (float *)(void *)room;
        for (int64_t i = 0; i < n; i += 16) {
            const int lanes = lanes_of(n - i);
            v16f_store_n(to + i, lanes_load(x->dtype, x->data, at + i * stride, stride, lanes), lanes);
        }
        p = room;
        far = false;
    }
    const ht_variance once = of_floats(p, n, n < LANES ? n : LANES, far, &near);
    return near ? once : in_blocks(p, false, n);
}

/* ---- columns ----
 *
 * The same steps as for rows, a column to a lane, so that the layout changes no result: 64 partial sums take elements in turn
 * and are added pairwise. */

typedef struct strip {
    ht_dtype dtype;
    const char *first;
    int64_t step, bytes; /* elements from row to row, bytes of one */
    int64_t n, w;        /* rows and columns */
} strip;

/* The means of the first rows, from which distances are taken, and the sums of each lane, `apart` floats from one to the next. */
typedef struct columns_room {
    float *mean, *off, *squares;
    int64_t apart;
} columns_room;

/* Of the columns from c on, in the room of w. */
static columns_room room_of(float *room, int64_t w, int64_t c) {
    const int64_t apart = columns_apart(w);
    return (columns_room){room + c, room + c + apart, room + c + (1 + LANES) * apart, apart};
}

/* Rows 64 apart, from `row` on, to the sums of a lane; `ahead` bytes behind them is what comes next. Rows are read along as
 * far as the strip is wide, which is how memory is fast: sums wait in a cache. */
HT_INLINE void add_rows(const strip *s, const char *row, int64_t ahead, ht_dtype t, int rows, bool begins,
                        const float *middle, float *off, float *squares) {
    const int64_t apart = LANES * s->step * s->bytes, on = columns_ahead(FOLLOWED);
    const bool near = ht_asks_near();
    for (int64_t c = 0; c < s->w; c += 16) {
        const int n = lanes_of(s->w - c);
        const int64_t next = columns_next(c * s->bytes, s->w * s->bytes, on, ahead);
        const v16f m = v16f_load(middle + c);
        v16f e = begins ? v16f_zero() : v16f_load(off + c), q = begins ? v16f_zero() : v16f_load(squares + c);
        HT_UNROLL
        for (int i = 0; i < rows; i++) {
            const char *p = row + i * apart + c * s->bytes;
            HT_PREFETCH_BESIDE(near, p + next);
            const v16f d = v16f_sub(lanes_load(t, p, 0, 1, n), m);
            e = v16f_add(e, d);
            q = v16f_fma(d, d, q);
        }
        v16f_store(off + c, e);
        v16f_store(squares + c, q);
    }
}

/* As many rows from r on as there are in whole groups of 64 times `rows`; where they end. */
HT_INLINE int64_t add_groups(const strip *s, int64_t r, ht_dtype t, int rows, columns_room to) {
    const int64_t next = s->step * s->bytes, group = (int64_t)LANES * rows;
    for (; r + group <= s->n; r += group)
        for (int64_t k = 0; k < LANES; k++)
            add_rows(s, s->first + (r + k) * next, columns_to_next(k, rows) * next, t, rows, r == 0, to.mean,
                     to.off + k * to.apart, to.squares + k * to.apart);
    return r;
}

HT_INLINE void sum_lanes_of(const strip *s, ht_dtype t, columns_room to) {
    const int64_t next = s->step * s->bytes;
    int64_t r = ht_follows_rows() ? add_groups(s, 0, t, MOST_ABREAST, to) : 0;
    r = add_groups(s, r, t, ABREAST, to);
    for (; r < s->n; r++)
        add_rows(s, s->first + r * next, next, t, 1, r < LANES, to.mean, to.off + r % LANES * to.apart,
                 to.squares + r % LANES * to.apart);
}

static void sum_lanes(const strip *s, columns_room to) {
    if (s->dtype == HT_F32)
        sum_lanes_of(s, HT_F32, to);
    else if (s->dtype == HT_F16)
        sum_lanes_of(s, HT_F16, to);
    else
        sum_lanes_of(s, HT_BF16, to);
}

/* The means of the first `some` rows; the sums are room. */
static void means_of(const strip *s, int64_t some, columns_room to) {
    const int64_t lanes = some < LANES ? some : LANES;
    for (int64_t k = 0; k < lanes; k++) {
        columns_ask_for(s->first + (k + ROWS_AHEAD) * s->step * s->bytes, s->w * s->bytes);
        for (int64_t c = 0; c < s->w; c += 16) {
            v16f sum = v16f_zero();
            for (int64_t r = k; r < some; r += LANES)
                sum = v16f_add(sum, lanes_load(s->dtype, s->first, r * s->step + c, 1, lanes_of(s->w - c)));
            v16f_store(to.off + k * to.apart + c, sum);
        }
    }
    columns_add_lanes(HT_F32, to.off, to.apart, lanes, s->w, to.off);
    for (int64_t c = 0; c < s->w; c += 16)
        v16f_store(to.mean + c, v16f_div(v16f_load(to.off + c), v16f_set1((float)some)));
}

/* Distances from the means of the first `some` rows, to the sums. */
static void add_strip(const strip *s, int64_t some, columns_room to) {
    means_of(s, some, to);
    sum_lanes(s, to);
}

/* As of_floats, what they come to; whether all columns were near. */
static bool totals_of(const strip *s, int64_t some, columns_room from, ht_variance *to, bool *near) {
    const int64_t lanes = s->n < LANES ? s->n : LANES;
    columns_add_lanes(HT_F32, from.off, from.apart, lanes, s->w, from.off);
    columns_add_lanes(HT_F32, from.squares, from.apart, lanes, s->w, from.squares);
    bool all = true;
    for (int64_t c = 0; c < s->w; c++) {
        to[c] = around(from.mean[c], from.off[c], from.squares[c], (double)s->n);
        near[c] = s->n == some || is_near(to[c], from.squares[c]);
        all &= near[c];
    }
    return all;
}

static strip strip_of(const ht_view *x, int64_t at, int64_t n, int64_t w) {
    const int64_t bytes = (int64_t)ht_dtype_bytes(x->dtype), step = x->stride[x->n_dims - 1];
    return (strip){x->dtype, (const char *)x->data + at * bytes, step, bytes, n, w};
}

void HT_ISA_NAME(ht_variance_add_columns)(const ht_view *x, int64_t at, int64_t n, int64_t w, float *room) {
    const strip all = strip_of(x, at, n, w);
    add_strip(&all, n < LANES ? n : LANES, room_of(room, w, 0));
}

void HT_ISA_NAME(ht_variance_of_columns)(const ht_view *x, int64_t at, int64_t n, int64_t w, float *room, int64_t c,
                                         int64_t some, ht_variance *to) {
    const strip all = strip_of(x, at + c, n, some);
    const columns_room from = room_of(room, w, c);
    bool near[WIDTH], ignored[WIDTH];
    if (totals_of(&all, n < LANES ? n : LANES, from, to, near)) return;
    for (int64_t r = 0; r < n; r += BLOCK) {
        ht_variance here[WIDTH];
        strip block = all;
        block.first += r * all.step * all.bytes;
        block.n = n - r < BLOCK ? n - r : BLOCK;
        add_strip(&block, block.n, from);
        totals_of(&block, block.n, from, here, ignored);
        for (int64_t i = 0; i < some; i++)
            if (!near[i]) to[i] = r ? ht_variance_joined(to[i], (double)r, here[i], (double)block.n) : here[i];
    }
}
