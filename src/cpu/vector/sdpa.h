/* Attention tiles of the sdpa kernels and the gradient: tiles of queries of one KV head, blocks of keys, and their
 * scores.
 *
 * Scores are stored transposed, [keys][SDPA_ROWS]: lanes are queries, each with its own maximum and sum. Keys, and
 * weights in the product with V, are then left operands of panel products in their natural layout; only the queries are
 * transposed. Scores are in log2 units: the query scale includes log2(e). */
#ifndef HT_CPU_VECTOR_SDPA_H
#define HT_CPU_VECTOR_SDPA_H

#include "base/checked.h"
#include "cpu/vector/math.h"
#include "cpu/vector/panel.h"
#include "cpu/vector/simd_int.h"
#include "device/kernel.h"
#include "device/params.h"
#include "device/window.h"

#include <float.h>
#include <math.h>

enum {
    SDPA_ROWS = 64, /* queries per tile, over all heads that share the keys */
    SDPA_KEYS = 128 /* keys per block: its scores take 32 KB */
};

typedef struct sdpa_shape {
    const ht_call *call;
    const ht_sdpa_params *params;
    int64_t batch, heads, kv_heads, group, n_q, n_k, d, dv;
    int64_t d_padded, dv_padded;
    int64_t rows; /* queries of one batch entry and KV head: n_q * group, heads innermost */
    /* Results, with strides: the attention; or the gradients of queries, keys and values. */
    ht_view out[3];
    const int32_t *own; /* each query's own key, `base` keys into the flat rows; NULL: queries are at the last keys */
    int64_t base;
    float softcap;  /* of scores, in log2 units; 0: none */
    bool chunked;   /* kind of window */
    bool two_sided; /* queries have the rows of keys, and windows that begin before them */
} sdpa_shape;

HT_INLINE int64_t sdpa_padded(int64_t n) { return (n + 15) / 16 * 16; }

HT_INLINE sdpa_shape sdpa_shape_of(const ht_call *call) {
    const ht_view *q = &call->in[0], *k = &call->in[1], *v = &call->in[2];
    sdpa_shape s = {.call = call,
                    .params = call->params,
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
    s.out[0] = call->out;
    return s;
}

/* A contiguous view of `like`'s shape at element *at of a flat result; advances *at past it. */
HT_INLINE ht_view sdpa_part(const ht_view *flat, const ht_view *like, int64_t *at) {
    ht_view part = *like;
    part.dtype = flat->dtype;
    part.data = (char *)flat->data + (size_t)*at * ht_dtype_bytes(flat->dtype);
    int64_t stride = 1;
    for (int i = like->n_dims - 1; i >= 0; stride *= like->shape[i--]) part.stride[i] = stride;
    *at += stride;
    return part;
}

/* Splits the flat result of a gradient into those of queries, keys and values. */
HT_INLINE void sdpa_gradient_parts(const ht_call *call, ht_view out[3]) {
    int64_t at = 0;
    for (int i = 0; i < 3; i++) out[i] = sdpa_part(&call->out, &call->in[i], &at);
}

/* Element of row `row`, of a head, in a result. */
HT_INLINE int64_t sdpa_out_at(const ht_view *out, int64_t batch, int64_t head, int64_t row) {
    return batch * out->stride[0] + head * out->stride[1] + row * out->stride[2];
}

/* Rows [first, first + n) of KV head `head` of batch entry `batch`. */
typedef struct sdpa_tile {
    int64_t batch, head, first, n;
} sdpa_tile;

/* Query position of a row. */
HT_INLINE int64_t sdpa_query(const sdpa_shape *s, int64_t row) { return row / s->group; }
/* Query head of a row. */
HT_INLINE int64_t sdpa_head(const sdpa_shape *s, const sdpa_tile *t, int64_t row) {
    return t->head * s->group + row % s->group;
}

/* Last key visible to query i; negative if none is. */
HT_INLINE int64_t sdpa_last(const sdpa_shape *s, int64_t i) {
    if (s->own) return s->own[i] - s->base;
    return s->params->causal ? i + s->n_k - s->n_q : s->n_k - 1;
}
/* First key visible to query i. */
HT_INLINE int64_t sdpa_first(const sdpa_shape *s, int64_t i) {
    if (s->two_sided) return s->params->window > 0 ? ht_max_i64(0, i - s->params->window) : 0;
    return ht_first_visible(s->params->window, s->chunked, sdpa_last(s, i));
}

/* Range of keys visible to any query of the tile. All keys if a query may see none, since the softmax is then over all
 * keys, masked alike. */
HT_INLINE void sdpa_key_range(const sdpa_shape *s, const sdpa_tile *t, int64_t *begin, int64_t *end) {
    int64_t oldest = sdpa_query(s, t->first), newest = sdpa_query(s, t->first + t->n - 1);
    const ht_view *mask = &s->call->in[3];
    bool blind = sdpa_last(s, oldest) < 0 || (!ht_view_absent(mask) && mask->dtype == HT_BOOL);
    *begin = blind ? 0 : sdpa_first(s, oldest) / SDPA_KEYS * SDPA_KEYS;
    *end = blind ? s->n_k : ht_min_i64(s->n_k, sdpa_last(s, newest) + 1);
}

/* ---- operands ---- */

/* Loads the tile's rows of a [batch, heads, n_q, n] view, times `scale`, to [t->n][padded n]. */
static inline void sdpa_load_rows(const sdpa_shape *s, const sdpa_tile *t, const ht_view *v, int64_t n, float scale,
                                  float *to) {
    int64_t padded = sdpa_padded(n);
    for (int64_t r = 0; r < t->n; r++) {
        int64_t row = t->first + r;
        int64_t at = t->batch * v->stride[0] + sdpa_head(s, t, row) * v->stride[1] + sdpa_query(s, row) * v->stride[2];
        panel_load(v->dtype, v->data, at, 0, v->stride[3], 1, n, to + r * padded, padded, scale);
    }
}

/* Transposes the tile's rows to [padded n][SDPA_ROWS], zero-padded to whole vectors of queries. `rows` has space for
 * SDPA_ROWS rows. */
static inline void sdpa_transpose_rows(const sdpa_tile *t, int64_t padded, float *rows, float *to) {
    int64_t lanes = sdpa_padded(t->n);
    memset(rows + t->n * padded, 0, (size_t)((lanes - t->n) * padded) * sizeof *rows);
    panel_transpose(rows, padded, lanes, padded, to, SDPA_ROWS);
}

/* K or V as f32: in place, or copied block by block on first use. A copy serves consecutive tiles of one KV head in a
 * thread. */
typedef struct sdpa_rows {
    const ht_view *view; /* [batch, kv_heads, n_k, n] */
    int64_t n, padded;
    bool in_place;
    float *copy;    /* [n_k][padded]; unused in place */
    uint8_t *ready; /* per block: copied */
    int64_t batch, head;
} sdpa_rows;

/* Whether K or V is read in place. `adjacent`: the caller reads rows as panels, which takes whole contiguous
 * vectors. */
HT_INLINE bool sdpa_in_place(const ht_view *v, int64_t n, bool adjacent) {
    return v->dtype == HT_F32 && (!adjacent || (v->stride[3] == 1 && n % 16 == 0));
}
HT_INLINE int64_t sdpa_blocks(const sdpa_shape *s) { return ht_ceil_div_i64(s->n_k, SDPA_KEYS); }
/* Initialises `rows` and returns the floats of memory it needs; with at = NULL it only counts. */
static inline int64_t sdpa_rows_init(const sdpa_shape *s, const ht_view *v, int64_t n, bool adjacent, float *at,
                                     sdpa_rows *rows) {
    bool in_place = sdpa_in_place(v, n, adjacent);
    int64_t floats = in_place ? 0 : s->n_k * sdpa_padded(n);
    *rows = (sdpa_rows){v, n, sdpa_padded(n), in_place, at, NULL, -1, -1};
    if (in_place) return 0;
    if (at) rows->ready = (uint8_t *)(at + floats);
    return floats + ht_ceil_div_i64(sdpa_blocks(s), 64) * 16;
}

/* Up to SDPA_KEYS rows of the tile's KV head from row `begin`, the start of a block. */
static inline panel_operand sdpa_rows_at(const sdpa_shape *s, const sdpa_tile *t, sdpa_rows *rows, int64_t begin) {
    const ht_view *v = rows->view;
    int64_t at = t->batch * v->stride[0] + t->head * v->stride[1] + begin * v->stride[2];
    if (rows->in_place) return (panel_operand){(const float *)v->data + at, v->stride[2], v->stride[3]};
    float *copy = rows->copy + begin * rows->padded;
    if (rows->batch != t->batch || rows->head != t->head) memset(rows->ready, 0, (size_t)sdpa_blocks(s));
    rows->batch = t->batch;
    rows->head = t->head;
    if (!rows->ready[begin / SDPA_KEYS])
        panel_load(v->dtype, v->data, at, v->stride[2], v->stride[3], ht_min_i64(SDPA_KEYS, s->n_k - begin), rows->n,
                   copy, rows->padded, 1.0f);
    rows->ready[begin / SDPA_KEYS] = 1;
    return (panel_operand){copy, rows->padded, 1};
}

/* product [m][SDPA_ROWS] = keys [m][d] * transposed [d][SDPA_ROWS]: of keys and queries, or of V and dO. */
static inline void sdpa_multiply(const sdpa_tile *t, panel_operand keys, int64_t m, const float *transposed, int64_t d,
                                 float *product) {
    panel_multiply(keys, transposed, SDPA_ROWS, d, m, sdpa_padded(t->n), product, SDPA_ROWS, false);
}

/* Scores of m keys, capped. */
static inline void sdpa_scores(const sdpa_shape *s, const sdpa_tile *t, panel_operand keys, int64_t m,
                               const float *transposed, float *scores) {
    sdpa_multiply(t, keys, m, transposed, s->d, scores);
    if (s->softcap <= 0) return;
    const v16f cap = v16f_set1(s->softcap);
    for (int64_t r = 0; r < t->n; r += 16)
        for (int64_t at = r; at < m * SDPA_ROWS; at += SDPA_ROWS)
            v16f_store(scores + at, v16f_mul(cap, v16f_tanh(v16f_div(v16f_load(scores + at), cap))));
}

/* ---- masks ---- */

/* Mask elements of one query for sixteen keys, of which n exist; bool gives 1 and 0. */
HT_INLINE v16f sdpa_mask_lanes(const ht_view *m, int64_t at, int n) {
    const int64_t step = m->stride[3];
    if (m->dtype != HT_BOOL) return lanes_load(m->dtype, m->data, at, step, n);
    const uint8_t *p = (const uint8_t *)m->data + at;
    uint8_t values[16] = {0};
    if (step != 1 || n < 16) {
        for (int i = 0; i < n; i++) values[i] = p[i * step];
        p = values;
    }
    return v16f_from_i(v16i_load_u8(p));
}

/* Applies mask elements x to scores. A bool mask replaces a hidden score by -FLT_MAX. */
HT_INLINE v16f sdpa_masked(ht_dtype dtype, v16f x, v16f score) {
    const v16f lowest = v16f_set1(-FLT_MAX);
    if (dtype == HT_BOOL) return v16f_select(v16f_gt(x, v16f_zero()), score, lowest);
    score = v16f_fma(x, v16f_set1(HT_LOG2_E), score);
    m16 over = v16f_lt(score, lowest); /* an additive mask that overflows counts as hidden */
    return v16f_select(over, v16f_select(v16f_lt(x, lowest), x, lowest), score);
}

/* Applies the mask operand to the scores of sixteen queries from row r on. */
static inline void sdpa_apply_mask(const sdpa_shape *s, const sdpa_tile *t, int64_t r, int64_t begin, int64_t m,
                                   float *scores) {
    const ht_view *mask = &s->call->in[3];
    float of_query[16][16] = {{0}}, transposed[16][16];
    const int lanes = lanes_count(t->n - r);
    for (int64_t j = 0; j < m; j += 16) {
        const int n = lanes_count(m - j);
        for (int l = 0; l < lanes; l++) {
            int64_t row = t->first + r + l;
            int64_t at = t->batch * mask->stride[0] + sdpa_head(s, t, row) * mask->stride[1] +
                         sdpa_query(s, row) * mask->stride[2] + (begin + j) * mask->stride[3];
            v16f_store(of_query[l], sdpa_mask_lanes(mask, at, n));
        }
        panel_transpose(of_query[0], 16, 16, 16, transposed[0], 16);
        for (int i = 0; i < n; i++) {
            float *to = scores + (j + i) * SDPA_ROWS + r;
            v16f_store(to, sdpa_masked(mask->dtype, v16f_load(transposed[i]), v16f_load(to)));
        }
    }
}

/* Applies the causal mask and the sliding window to sixteen queries from row r on. */
static inline void sdpa_mask_positions(const sdpa_shape *s, const sdpa_tile *t, int64_t r, int64_t begin, int64_t m,
                                       float *scores) {
    float first[16], last[16];
    bool all = true;
    for (int l = 0; l < 16; l++) {
        int64_t i = sdpa_query(s, t->first + ht_min_i64(r + l, t->n - 1));
        int64_t from = sdpa_first(s, i) - begin, to = sdpa_last(s, i) - begin;
        all &= from <= 0 && to >= m - 1;
        first[l] = (float)ht_max_i64(0, ht_min_i64(from, m)); /* exact: at most SDPA_KEYS */
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
        sdpa_mask_positions(s, t, r, begin, m, scores);
    }
}

/* ---- weights ---- */

/* 2^x for x <= 0, with the polynomial of base/math.h; 0 below -126. Error 1 ulp. */
HT_INLINE v16f sdpa_exp2(v16f x) {
#define SDPA_COEFFICIENT(c, power) v16f_set1((float)((double)(c) * (power)))
    const double l = 0.69314718055994530942;
    x = v16f_max(v16f_set1(-200.0f), x);
    v16f n = v16f_round(x), r = v16f_sub(x, n);
    v16f p =
        v16f_fma(SDPA_COEFFICIENT(HT_EXP_6, l * l * l * l * l * l), r, SDPA_COEFFICIENT(HT_EXP_5, l * l * l * l * l));
    p = v16f_fma(p, r, SDPA_COEFFICIENT(HT_EXP_4, l * l * l * l));
    p = v16f_fma(p, r, SDPA_COEFFICIENT(HT_EXP_3, l * l * l));
    p = v16f_fma(p, r, SDPA_COEFFICIENT(HT_EXP_2, l * l));
    p = v16f_fma(p, r, SDPA_COEFFICIENT(1.0, l));
    return v16f_scale(v16f_fma(p, r, v16f_set1(1.0f)), n);
#undef SDPA_COEFFICIENT
}

/* Online softmax state of each query. Earlier sums must be multiplied by `factor`. */
typedef struct sdpa_running {
    float max[SDPA_ROWS], sum[SDPA_ROWS], factor[SDPA_ROWS];
} sdpa_running;

/* Starts the softmax: empty, or with the attention sink as its first score. */
static inline void sdpa_running_init(const sdpa_shape *s, const sdpa_tile *t, sdpa_running *run) {
    const ht_view *sinks = &s->call->in[4];
    for (int64_t r = 0; r < SDPA_ROWS; r++) {
        run->max[r] = -INFINITY;
        run->sum[r] = 0.0f;
        if (ht_view_absent(sinks) || r >= t->n) continue;
        float values[16];
        v16f_store(values,
                   lanes_load(sinks->dtype, sinks->data, sdpa_head(s, t, t->first + r) * sinks->stride[0], 1, 1));
        const float sink = values[0] * HT_LOG2_E;
        run->max[r] = sink > FLT_MAX ? FLT_MAX : sink; /* an infinite maximum would make all weights NaN */
        run->sum[r] = 1.0f;
    }
}

/* Maximum of `max` and sixteen queries' scores of m keys. */
HT_INLINE v16f sdpa_column_max(const float *x, int64_t m, v16f max) {
    v16f most[4] = {max, max, max, max};
    int64_t j = 0;
    for (; j + 4 <= m; j += 4)
        for (int i = 0; i < 4; i++) most[i] = v16f_max(v16f_load(x + (j + i) * SDPA_ROWS), most[i]);
    for (; j < m; j++) most[0] = v16f_max(v16f_load(x + j * SDPA_ROWS), most[0]);
    return v16f_max(v16f_max(most[0], most[1]), v16f_max(most[2], most[3]));
}

/* Replaces the scores of m keys by weights relative to the new maximum, and updates the running state. */
static inline void sdpa_softmax(const sdpa_tile *t, sdpa_running *run, int64_t m, float *scores) {
    for (int64_t r = 0; r < t->n; r += 16) {
        float *x = scores + r;
        v16f old = v16f_load(run->max + r), max = sdpa_column_max(x, m, old);
        v16f from = v16f_select(v16f_eq(max, v16f_set1(-INFINITY)), v16f_zero(), max);
        v16f factor = sdpa_exp2(v16f_sub(old, from)), sum[2] = {v16f_zero(), v16f_zero()};
        int64_t j = 0;
        for (; j + 2 <= m; j += 2)
            for (int i = 0; i < 2; i++) {
                float *at = x + (j + i) * SDPA_ROWS;
                v16f w = sdpa_exp2(v16f_sub(v16f_load(at), from));
                v16f_store(at, w);
                sum[i] = v16f_add(sum[i], w);
            }
        if (j < m) {
            v16f w = sdpa_exp2(v16f_sub(v16f_load(x + j * SDPA_ROWS), from));
            v16f_store(x + j * SDPA_ROWS, w);
            sum[0] = v16f_add(sum[0], w);
        }
        v16f_store(run->factor + r, factor);
        v16f_store(run->sum + r, v16f_fma(v16f_load(run->sum + r), factor, v16f_add(sum[0], sum[1])));
        v16f_store(run->max + r, max);
    }
}

#endif
