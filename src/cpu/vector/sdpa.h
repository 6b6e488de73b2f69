/* What attention and its gradient share: a tile of queries of one key head, blocks of keys, and the scores of both. */
#ifndef HT_CPU_VECTOR_SDPA_H
#define HT_CPU_VECTOR_SDPA_H

#include "base/checked.h"
#include "cpu/vector/math.h"
#include "cpu/vector/panel.h"
#include "device/kernel.h"
#include "device/params.h"

#include <float.h>
#include <math.h>

enum {
    SDPA_ROWS = 48, /* queries of a tile, of all heads that share the keys */
    SDPA_KEYS = 64  /* keys of a block */
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

/* Copies the tile's rows of a view [batch, heads, n_q, n], times `scale`. */
static inline void sdpa_load_rows(const sdpa_shape *s, const sdpa_tile *t, const ht_view *v, int64_t n, float scale,
                                  float *to) {
    int64_t padded = sdpa_padded(n);
    for (int64_t r = 0; r < t->n; r++) {
        int64_t row = t->first + r;
        int64_t at = t->batch * v->stride[0] + sdpa_head(s, t, row) * v->stride[1] + sdpa_query(s, row) * v->stride[2];
        panel_load(v->dtype, v->data, at, 0, v->stride[3], 1, n, to + r * padded, padded, scale);
    }
}

/* Keys or values [begin, begin + SDPA_KEYS) of a view [batch, kv_heads, n_k, n]; zeros behind the last. */
static inline void sdpa_load_keys(const sdpa_shape *s, const sdpa_tile *t, const ht_view *v, int64_t n, int64_t begin,
                                  float *to) {
    int64_t padded = sdpa_padded(n), m = ht_min_i64(SDPA_KEYS, s->n_k - begin);
    int64_t at = t->batch * v->stride[0] + t->head * v->stride[1] + begin * v->stride[2];
    panel_load(v->dtype, v->data, at, v->stride[2], v->stride[3], m, n, to, padded, 1.0f);
    memset(to + m * padded, 0, (size_t)((SDPA_KEYS - m) * padded) * sizeof *to);
}

/* Sixteen elements of the mask, to be added to scores: of bool, a hidden one is what no score can bring back. */
HT_INLINE v16f sdpa_masked(const ht_view *m, int64_t at, int n, v16f score) {
    int64_t step = m->stride[3];
    if (m->dtype != HT_BOOL) return v16f_add(score, lanes_load(m->dtype, m->data, at, step, n));
    float seen[16] = {0};
    const uint8_t *p = m->data;
    for (int i = 0; i < n; i++) seen[i] = p[at + i * step] ? 1.0f : 0.0f;
    return v16f_select(v16f_gt(v16f_load(seen), v16f_zero()), score, v16f_set1(-FLT_MAX));
}

/* Lanes [from, to) as they are, the others hidden. */
HT_INLINE v16f sdpa_window(v16f score, int64_t from, int64_t to) {
    m16 seen = m16_first(to < 0 ? 0 : to > 16 ? 16 : (int)to);
    v16f hidden = v16f_set1(-FLT_MAX), y = v16f_select(seen, score, hidden);
    return from <= 0 ? y : v16f_select(m16_first(from > 16 ? 16 : (int)from), hidden, y);
}

/* Applies the masks to scores [t->n][SDPA_KEYS] of keys from `begin` on. Keys that do not exist have minus infinity. */
static inline void sdpa_mask(const sdpa_shape *s, const sdpa_tile *t, int64_t begin, float *scores) {
    const ht_view *mask = &s->call->in[3];
    bool has_mask = !ht_view_absent(mask);
    int64_t left = s->n_k - begin;
    for (int64_t r = 0; r < t->n; r++) {
        int64_t row = t->first + r, i = sdpa_query(s, row), from = sdpa_first(s, i) - begin;
        int64_t to = sdpa_last(s, i) + 1 - begin;
        int64_t at = has_mask ? t->batch * mask->stride[0] + sdpa_head(s, t, row) * mask->stride[1] +
                                    i * mask->stride[2] + begin * mask->stride[3]
                              : 0;
        if (!has_mask && from <= 0 && to >= SDPA_KEYS && left >= SDPA_KEYS) continue;
        for (int64_t j = 0; j < SDPA_KEYS; j += 16) {
            v16f v = v16f_load(scores + r * SDPA_KEYS + j);
            if (has_mask && j < left) v = sdpa_masked(mask, at + j * mask->stride[3], lanes_of(left - j), v);
            v = sdpa_window(v, from - j, to - j);
            if (left - j < 16) v = v16f_select(m16_first(left <= j ? 0 : (int)(left - j)), v, v16f_set1(-INFINITY));
            v16f_store(scores + r * SDPA_KEYS + j, v);
        }
    }
}

HT_INLINE float sdpa_row_max(const float *x) {
    v16f max = v16f_load(x);
    for (int j = 16; j < SDPA_KEYS; j += 16) max = v16f_max(v16f_load(x + j), max);
    return v16f_hmax(max);
}

/* The running maximum and sum of each query. `scores` become their weights, relative to the maximum; what was summed
 * before is to be multiplied by the factor that is left in `factor`. */
typedef struct sdpa_running {
    float max[SDPA_ROWS], sum[SDPA_ROWS], factor[SDPA_ROWS];
} sdpa_running;

static inline void sdpa_start(const sdpa_shape *s, const sdpa_tile *t, sdpa_running *run) {
    const ht_view *sinks = &s->call->in[4];
    for (int64_t r = 0; r < t->n; r++) {
        run->max[r] = -INFINITY;
        run->sum[r] = 0.0f;
        if (ht_view_absent(sinks)) continue;
        float room[16];
        v16f_store(room, lanes_load(sinks->dtype, sinks->data, sdpa_head(s, t, t->first + r) * sinks->stride[0], 1, 1));
        run->max[r] = room[0];
        run->sum[r] = 1.0f;
    }
}

static inline void sdpa_weigh(const sdpa_tile *t, sdpa_running *run, float *scores) {
    for (int64_t r = 0; r < t->n; r++) {
        float *x = scores + r * SDPA_KEYS, max = sdpa_row_max(x);
        max = max > run->max[r] ? max : run->max[r];
        float from = max == -INFINITY ? 0.0f : max;
        float room[16];
        v16f_store(room, v16f_exp(v16f_set1(run->max[r] - from)));
        v16f sum = v16f_zero();
        for (int j = 0; j < SDPA_KEYS; j += 16) {
            v16f w = v16f_exp(v16f_sub(v16f_load(x + j), v16f_set1(from)));
            v16f_store(x + j, w);
            sum = v16f_add(sum, w);
        }
        run->factor[r] = room[0];
        run->sum[r] = run->sum[r] * room[0] + v16f_sum(sum);
        run->max[r] = max;
    }
}

static inline void sdpa_rescale(const sdpa_tile *t, const sdpa_running *run, float *out, int64_t padded) {
    for (int64_t r = 0; r < t->n; r++) {
        if (run->factor[r] == 1.0f) continue;
        v16f f = v16f_set1(run->factor[r]);
        for (int64_t i = 0; i < padded; i += 16)
            v16f_store(out + r * padded + i, v16f_mul(v16f_load(out + r * padded + i), f));
    }
}

#endif
