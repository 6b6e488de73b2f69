/* Attention tiles, shared with the gradient: tiles of queries of one key head, blocks of keys, and the scores of both.
 *
 * Scores lie key by key, with queries side by side: [keys][SDPA_ROWS]. So the lanes of a vector are queries, of which each
 * has its own maximum and sum; keys are read where they are, as rows on the left of a product; and the weights are on the
 * left of the product with the values. Only the queries of a tile are turned. Scores are in powers of 2: what queries are
 * scaled by has a factor log2(e). */
#ifndef HT_CPU_VECTOR_SDPA_H
#define HT_CPU_VECTOR_SDPA_H

#include "base/checked.h"
#include "cpu/vector/math.h"
#include "cpu/vector/panel.h"
#include "cpu/vector/simd_int.h"
#include "device/kernel.h"
#include "device/params.h"

#include <float.h>
#include <math.h>

enum {
    SDPA_ROWS = 64, /* queries of a tile, of all heads that share the keys */
    SDPA_KEYS = 128 /* keys of a block: its scores are 32 KB */
};

typedef struct sdpa_shape {
    const ht_call *call;
    const ht_sdpa_params *how;
    int64_t batch, heads, kv_heads, group, n_q, n_k, d, dv;
    int64_t d_padded, dv_padded;
    int64_t rows; /* queries of one batch entry and key head: n_q * group, query by query */
} sdpa_shape;

HT_INLINE int64_t sdpa_padded(int64_t n) { return (n + 15) / 16 * 16; }

HT_INLINE sdpa_shape sdpa_shape_of(const ht_call *call) {
    const ht_view *q = &call->in[0], *k = &call->in[1], *v = &call->in[2];
    sdpa_shape s = {.call = call,
                    .how = call->params,
                    .batch = q->shape[0],
                    .heads = q->shape[1],
                    .kv_heads = k->shape[1],
                    .n_q = q->shape[2],
                    .n_k = k->shape[2],
                    .d = q->shape[3],
                    .dv = v->shape[3]};
    s.group = s.heads / s.kv_heads;
    s.rows = s.n_q * s.group;
    s.d_padded = sdpa_padded(s.d);
    s.dv_padded = sdpa_padded(s.dv);
    return s;
}

/* Queries [first, first + n) of the rows of key head `head` of batch entry `batch`. */
typedef struct sdpa_tile {
    int64_t batch, head, first, n;
} sdpa_tile;

HT_INLINE int64_t sdpa_query(const sdpa_shape *s, int64_t row) { return row / s->group; }
HT_INLINE int64_t sdpa_head(const sdpa_shape *s, const sdpa_tile *t, int64_t row) {
    return t->head * s->group + row % s->group;
}

/* The newest key that query i sees; negative: none. */
HT_INLINE int64_t sdpa_last(const sdpa_shape *s, int64_t i) {
    return s->how->causal ? i + s->n_k - s->n_q : s->n_k - 1;
}
HT_INLINE int64_t sdpa_first(const sdpa_shape *s, int64_t i) {
    return s->how->window > 0 ? ht_max_i64(0, sdpa_last(s, i) - s->how->window + 1) : 0;
}

/* Keys that some query of the tile sees: [*begin, *end). All of them, where a query may see none. */
HT_INLINE void sdpa_span(const sdpa_shape *s, const sdpa_tile *t, int64_t *begin, int64_t *end) {
    int64_t oldest = sdpa_query(s, t->first), newest = sdpa_query(s, t->first + t->n - 1);
    const ht_view *mask = &s->call->in[3];
    bool blind = sdpa_last(s, oldest) < 0 || (!ht_view_absent(mask) && mask->dtype == HT_BOOL);
    *begin = blind ? 0 : sdpa_first(s, oldest) / SDPA_KEYS * SDPA_KEYS;
    *end = blind ? s->n_k : ht_min_i64(s->n_k, sdpa_last(s, newest) + 1);
}

/* ---- operands ---- */

/* Copies the tile's rows of a view [batch, heads, n_q, n], times `scale`, to [t->n][padded n]. */
static inline void sdpa_load_rows(const sdpa_shape *s, const sdpa_tile *t, const ht_view *v, int64_t n, float scale,
                                  float *to) {
    int64_t padded = sdpa_padded(n);
    for (int64_t r = 0; r < t->n; r++) {
        int64_t row = t->first + r;
        int64_t at = t->batch * v->stride[0] + sdpa_head(s, t, row) * v->stride[1] + sdpa_query(s, row) * v->stride[2];
        panel_load(v->dtype, v->data, at, 0, v->stride[3], 1, n, to + r * padded, padded, scale);
    }
}

/* The same rows side by side: [padded n][SDPA_ROWS], with zeros up to the next sixteen. `rows` has room for SDPA_ROWS. */
static inline void sdpa_turn_rows(const sdpa_tile *t, int64_t padded, float *rows, float *to) {
    int64_t lanes = sdpa_padded(t->n);
    memset(rows + t->n * padded, 0, (size_t)((lanes - t->n) * padded) * sizeof *rows);
    panel_transpose(rows, padded, lanes, padded, to, SDPA_ROWS);
}

/* Keys or values as f32: where they are, or copied block by block as they are asked for. A copy serves the tiles of one
 * key head that follow one another in a thread. */
typedef struct sdpa_rows {
    const ht_view *view; /* [batch, kv_heads, n_k, n] */
    int64_t n, padded;
    bool in_place;
    float *copy;    /* [n_k][padded]; unused in place */
    uint8_t *ready; /* which blocks are there */
    int64_t batch, head;
} sdpa_rows;

/* `adjacent`: the n elements of a row are to be read as panels. */
HT_INLINE bool sdpa_in_place(const ht_view *v, int64_t n, bool adjacent) {
    return v->dtype == HT_F32 && (!adjacent || (v->stride[3] == 1 && n % 16 == 0));
}
HT_INLINE int64_t sdpa_blocks(const sdpa_shape *s) { return ht_ceil_div_i64(s->n_k, SDPA_KEYS); }
/* Floats of memory; `at`, if there is any, is given out. */
static inline int64_t sdpa_lay_rows(const sdpa_shape *s, const ht_view *v, int64_t n, bool adjacent, float *at,
                                    sdpa_rows *rows) {
    bool in_place = sdpa_in_place(v, n, adjacent);
    int64_t floats = in_place ? 0 : s->n_k * sdpa_padded(n);
    *rows = (sdpa_rows){v, n, sdpa_padded(n), in_place, at, NULL, -1, -1};
    if (in_place) return 0;
    if (at) rows->ready = (uint8_t *)(at + floats);
    return floats + ht_ceil_div_i64(sdpa_blocks(s), 64) * 16;
}

/* m rows from row `begin` on, which begins a block, of the tile's key head. */
static inline panel_left sdpa_rows_at(const sdpa_shape *s, const sdpa_tile *t, sdpa_rows *rows, int64_t begin) {
    const ht_view *v = rows->view;
    int64_t at = t->batch * v->stride[0] + t->head * v->stride[1] + begin * v->stride[2];
    if (rows->in_place) return (panel_left){(const float *)v->data + at, v->stride[2], v->stride[3]};
    float *copy = rows->copy + begin * rows->padded;
    if (rows->batch != t->batch || rows->head != t->head) memset(rows->ready, 0, (size_t)sdpa_blocks(s));
    rows->batch = t->batch;
    rows->head = t->head;
    if (!rows->ready[begin / SDPA_KEYS])
        panel_load(v->dtype, v->data, at, v->stride[2], v->stride[3], ht_min_i64(SDPA_KEYS, s->n_k - begin), rows->n,
                   copy, rows->padded, 1.0f);
    rows->ready[begin / SDPA_KEYS] = 1;
    return (panel_left){copy, rows->padded, 1};
}

/* scores [m][SDPA_ROWS] of the tile and m keys; of values and gradients likewise. */
static inline void sdpa_multiply(const sdpa_tile *t, panel_left keys, int64_t m, const float *turned, int64_t d,
                                 float *scores) {
    panel_multiply(keys, turned, SDPA_ROWS, d, m, sdpa_padded(t->n), scores, SDPA_ROWS, false);
}

/* ---- masks ---- */

/* Elements of the mask for one query and sixteen keys, n of them there; of bool, 1 and 0. */
HT_INLINE v16f sdpa_mask_lanes(const ht_view *m, int64_t at, int n) {
    const int64_t step = m->stride[3];
    if (m->dtype != HT_BOOL) return lanes_load(m->dtype, m->data, at, step, n);
    const uint8_t *p = (const uint8_t *)m->data + at;
    uint8_t room[16] = {0};
    if (step != 1 || n < 16) {
        for (int i = 0; i < n; i++) room[i] = p[i * step];
        p = room;
    }
    return v16f_from_i(v16i_load_u8(p));
}

/* Scores with elements x of the mask applied. Of bool, a hidden one is what no score can bring back. */
HT_INLINE v16f sdpa_masked(ht_dtype dtype, v16f x, v16f score) {
    const v16f lowest = v16f_set1(-FLT_MAX);
    if (dtype == HT_BOOL) return v16f_select(v16f_gt(x, v16f_zero()), score, lowest);
    score = v16f_fma(x, v16f_set1(HT_LOG2_E), score);
    m16 over = v16f_lt(score, lowest); /* of the lowest number there is: as though hidden */
    return v16f_select(over, v16f_select(v16f_lt(x, lowest), x, lowest), score);
}

/* Applies the mask to the scores of sixteen queries from row r on. */
static inline void sdpa_apply_mask(const sdpa_shape *s, const sdpa_tile *t, int64_t r, int64_t begin, int64_t m,
                                   float *scores) {
    const ht_view *mask = &s->call->in[3];
    float of_query[16][16] = {{0}}, turned[16][16];
    const int lanes = lanes_of(t->n - r);
    for (int64_t j = 0; j < m; j += 16) {
        const int n = lanes_of(m - j);
        for (int l = 0; l < lanes; l++) {
            int64_t row = t->first + r + l;
            int64_t at = t->batch * mask->stride[0] + sdpa_head(s, t, row) * mask->stride[1] +
                         sdpa_query(s, row) * mask->stride[2] + (begin + j) * mask->stride[3];
            v16f_store(of_query[l], sdpa_mask_lanes(mask, at, n));
        }
        panel_transpose(of_query[0], 16, 16, 16, turned[0], 16);
        for (int i = 0; i < n; i++) {
            float *to = scores + (j + i) * SDPA_ROWS + r;
            v16f_store(to, sdpa_masked(mask->dtype, v16f_load(turned[i]), v16f_load(to)));
        }
    }
}

/* Hides keys that sixteen queries from row r on do not see for their place. */
static inline void sdpa_hide(const sdpa_shape *s, const sdpa_tile *t, int64_t r, int64_t begin, int64_t m,
                             float *scores) {
    float first[16], last[16];
    bool all = true;
    for (int l = 0; l < 16; l++) {
        int64_t i = sdpa_query(s, t->first + ht_min_i64(r + l, t->n - 1));
        int64_t from = sdpa_first(s, i) - begin, to = sdpa_last(s, i) - begin;
        all &= from <= 0 && to >= m - 1;
        first[l] = (float)ht_max_i64(0, ht_min_i64(from, m)); /* few enough to be exact */
        last[l] = (float)ht_max_i64(-1, ht_min_i64(to, m));
    }
    if (all) return;
    v16f from = v16f_load(first), to = v16f_load(last), hidden = v16f_set1(-FLT_MAX);
    for (int64_t j = 0; j < m; j++) {
        float *p = scores + j * SDPA_ROWS + r;
        v16f at = v16f_set1((float)j);
        v16f_store(p, v16f_select(m16_or(v16f_lt(at, from), v16f_gt(at, to)), hidden, v16f_load(p)));
    }
}

/* Applies all masks to the scores of m keys from `begin` on. */
static inline void sdpa_mask(const sdpa_shape *s, const sdpa_tile *t, int64_t begin, int64_t m, float *scores) {
    for (int64_t r = 0; r < t->n; r += 16) {
        if (!ht_view_absent(&s->call->in[3])) sdpa_apply_mask(s, t, r, begin, m, scores);
        sdpa_hide(s, t, r, begin, m, scores);
    }
}

/* ---- weights ---- */

/* 2^x for x that is not above 0, by the fit of base/math.h; 0 below -126. Error 1 ulp. */
HT_INLINE v16f sdpa_power(v16f x) {
#define SDPA_FIT(c, power) v16f_set1((float)((double)(c) * (power)))
    const double l = 0.69314718055994530942;
    x = v16f_max(v16f_set1(-200.0f), x);
    v16f n = v16f_round(x), r = v16f_sub(x, n);
    v16f p = v16f_fma(SDPA_FIT(HT_EXP_6, l * l * l * l * l * l), r, SDPA_FIT(HT_EXP_5, l * l * l * l * l));
    p = v16f_fma(p, r, SDPA_FIT(HT_EXP_4, l * l * l * l));
    p = v16f_fma(p, r, SDPA_FIT(HT_EXP_3, l * l * l));
    p = v16f_fma(p, r, SDPA_FIT(HT_EXP_2, l * l));
    p = v16f_fma(p, r, SDPA_FIT(1.0, l));
    return v16f_scale(v16f_fma(p, r, v16f_set1(1.0f)), n);
#undef SDPA_FIT
}

/* The running maximum and sum of each query. What was summed before is to be multiplied by `factor`. */
typedef struct sdpa_running {
    float max[SDPA_ROWS], sum[SDPA_ROWS], factor[SDPA_ROWS];
} sdpa_running;

static inline void sdpa_start(const sdpa_shape *s, const sdpa_tile *t, sdpa_running *run) {
    const ht_view *sinks = &s->call->in[4];
    for (int64_t r = 0; r < SDPA_ROWS; r++) {
        run->max[r] = -INFINITY;
        run->sum[r] = 0.0f;
        if (ht_view_absent(sinks) || r >= t->n) continue;
        float room[16];
        v16f_store(room, lanes_load(sinks->dtype, sinks->data, sdpa_head(s, t, t->first + r) * sinks->stride[0], 1, 1));
        run->max[r] = room[0] * HT_LOG2_E;
        run->sum[r] = 1.0f;
    }
}

/* The maximum of sixteen queries' scores of m keys, and of `max`. */
HT_INLINE v16f sdpa_column_max(const float *x, int64_t m, v16f max) {
    v16f most[4] = {max, max, max, max};
    int64_t j = 0;
    for (; j + 4 <= m; j += 4)
        for (int i = 0; i < 4; i++) most[i] = v16f_max(v16f_load(x + (j + i) * SDPA_ROWS), most[i]);
    for (; j < m; j++) most[0] = v16f_max(v16f_load(x + j * SDPA_ROWS), most[0]);
    return v16f_max(v16f_max(most[0], most[1]), v16f_max(most[2], most[3]));
}

/* Scores become weights, relative to the maximum. */
static inline void sdpa_weigh(const sdpa_tile *t, sdpa_running *run, int64_t m, float *scores) {
    for (int64_t r = 0; r < t->n; r += 16) {
        float *x = scores + r;
        v16f old = v16f_load(run->max + r), max = sdpa_column_max(x, m, old);
        v16f from = v16f_select(v16f_eq(max, v16f_set1(-INFINITY)), v16f_zero(), max);
        v16f factor = sdpa_power(v16f_sub(old, from)), sum[2] = {v16f_zero(), v16f_zero()};
        int64_t j = 0;
        for (; j + 2 <= m; j += 2)
            for (int i = 0; i < 2; i++) {
                float *at = x + (j + i) * SDPA_ROWS;
                v16f w = sdpa_power(v16f_sub(v16f_load(at), from));
                v16f_store(at, w);
                sum[i] = v16f_add(sum[i], w);
            }
        if (j < m) {
            v16f w = sdpa_power(v16f_sub(v16f_load(x + j * SDPA_ROWS), from));
            v16f_store(x + j * SDPA_ROWS, w);
            sum[0] = v16f_add(sum[0], w);
        }
        v16f_store(run->factor + r, factor);
        v16f_store(run->sum + r, v16f_fma(v16f_load(run->sum + r), factor, v16f_add(sum[0], sum[1])));
        v16f_store(run->max + r, max);
    }
}

#endif
