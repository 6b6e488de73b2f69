/* Attention over one page: scores, their weights, the weighted sum of values (attend.h). */
#include "cpu/vector/attend.h"
#include "cpu/vector/lanes.h"
#include "cpu/vector/math.h"
#include "cpu/vector/simd_int.h"

/* Accumulators that fit beside the operands: 24 registers of 32 with AVX-512, 12 of 16 with AVX2, 24 of 32 with NEON.
 * WIDE(m) sixteen-lane columns go with m queries; one or two queries take more columns, or the chains of dependent
 * multiply-adds would be too few to keep the units busy. */
#if defined(HT_ISA_avx512)
#define WIDE(m) ((m) == 1 ? 8 : 4)
#else
#define WIDE(m) ((m) == 1 ? 4 : (m) <= 3 ? 2 : 1)
#endif

/* `scale` is of 8 bits alone. */
HT_INLINE v16f load16(ht_dtype t, const void *p, int64_t at, v16f scale) {
    switch (t) {
    case HT_F16: return v16f_load_f16((const uint16_t *)p + at);
    case HT_BF16: return v16f_load_bf16((const uint16_t *)p + at);
    case HT_I8: return v16f_mul(v16f_from_i(v16i_load_s8((const uint8_t *)p + at)), scale);
    default: return v16f_load((const float *)p + at);
    }
}

/* Scales of the keys of a tile, and of a value, in the block that dimension d is in. */
HT_INLINE v16f key_scales(const attend_page *page, int64_t tile, int64_t d) {
    int64_t blocks = ht_kv_blocks(page->head_dim);
    return v16f_load_bf16(page->k_scale + (tile * blocks + d / HT_KV_QBLOCK) * HT_KV_TILE);
}
HT_INLINE v16f value_scale(const attend_page *page, int64_t key, int64_t d) {
    return v16f_set1(ht_bf16_to_f32(page->v_scale[key * ht_kv_blocks(page->head_dim) + d / HT_KV_QBLOCK]));
}

/* Bytes that are asked for ahead of their use: some hundred nanoseconds of work. The tiles of K are several short streams
 * and pages lie anywhere, so that the processor's own prefetching starts anew too often. */
enum { AHEAD = 8192, LINE = 64 };

HT_INLINE bool fetches_ahead(ht_dtype t) { return t != HT_F32; } /* converted, so just written */
HT_INLINE int64_t bytes_of(ht_dtype t) { return t == HT_I8 ? 1 : 2; }

HT_INLINE void prefetch_lines(const char *p, int64_t lines) {
    for (int64_t i = 0; i < lines; i++) HT_PREFETCH(p + i * LINE);
}

/* What lies AHEAD bytes behind row j of the `end` rows of V that are read: more of V, then what comes next. */
HT_INLINE const char *ahead_of_value(const attend_page *page, ht_dtype t, int64_t j, int64_t end) {
    int64_t row = page->v_stride * bytes_of(t), at = j * row + AHEAD, rest = at - end * row;
    return rest >= 0 && page->next ? (const char *)page->next + rest : (const char *)page->v + at;
}

/* In step d of the last scores: the share of the first AHEAD bytes of V. */
HT_INLINE void prefetch_values(const attend_page *page, int64_t d) {
    int64_t lines = (AHEAD / LINE + page->head_dim - 1) / page->head_dim;
    prefetch_lines((const char *)page->v + d * lines * LINE, lines);
}

/* In step d of others: what that step reads of the tiles after these. */
HT_INLINE void prefetch_keys(ht_dtype t, const char *after, int64_t tile_size, int tiles, int64_t d) {
    if (d * HT_KV_TILE * bytes_of(t) % LINE) return;
#pragma GCC unroll 8
    for (int c = 0; c < tiles; c++) HT_PREFETCH(after + (c * tile_size + d * HT_KV_TILE) * bytes_of(t));
}

/* Scores of m queries against `tiles` adjacent tiles of K, beginning with `tile`; there are `end` to go through. */
HT_INLINE void score_tiles(const attend_page *page, attend_group *g, ht_dtype t, int m, int tiles, int tile, int end) {
    int64_t head_dim = page->head_dim, base = tile * head_dim * HT_KV_TILE, tile_size = head_dim * HT_KV_TILE;
    v16f sum[ATTEND_QUERIES][8];
#pragma GCC unroll 8
    for (int i = 0; i < m; i++)
#pragma GCC unroll 8
        for (int c = 0; c < tiles; c++) sum[i][c] = v16f_zero();
    const float *q = g->q;
    const char *after = (const char *)page->k + (base + tiles * tile_size) * bytes_of(t);
    const bool last = tile + tiles >= end;
    v16f scale[8];
#pragma GCC unroll 8
    for (int c = 0; c < tiles; c++) scale[c] = v16f_zero();
    for (int64_t d = 0; d < head_dim; d++) {
        v16f k[8];
        if (t == HT_I8 && d % HT_KV_QBLOCK == 0)
#pragma GCC unroll 8
            for (int c = 0; c < tiles; c++) scale[c] = key_scales(page, tile + c, d);
#pragma GCC unroll 8
        for (int c = 0; c < tiles; c++) k[c] = load16(t, page->k, base + c * tile_size + d * HT_KV_TILE, scale[c]);
        if (fetches_ahead(t) && last)
            prefetch_values(page, d);
        else if (fetches_ahead(t))
            prefetch_keys(t, after, tile_size, tiles, d);
#pragma GCC unroll 8
        for (int i = 0; i < m; i++) {
            v16f x = v16f_set1(q[i * head_dim + d]);
#pragma GCC unroll 8
            for (int c = 0; c < tiles; c++) sum[i][c] = v16f_fma(k[c], x, sum[i][c]);
        }
    }
#pragma GCC unroll 8
    for (int i = 0; i < m; i++)
#pragma GCC unroll 8
        for (int c = 0; c < tiles; c++) v16f_store(g->weights + i * HT_KV_PAGE + (tile + c) * HT_KV_TILE, sum[i][c]);
}

/* What is left of WIDE(m) tiles goes in halves: a tile alone waits on its few chains. */
HT_INLINE void score(const attend_page *page, attend_group *g, ht_dtype t, int m, int tile, int end) {
    for (; tile + WIDE(m) <= end; tile += WIDE(m)) score_tiles(page, g, t, m, WIDE(m), tile, end);
    if (WIDE(m) > 4 && tile + 4 <= end) {
        score_tiles(page, g, t, m, 4, tile, end);
        tile += 4;
    }
    if (WIDE(m) > 2 && tile + 2 <= end) {
        score_tiles(page, g, t, m, 2, tile, end);
        tile += 2;
    }
    if (tile < end) score_tiles(page, g, t, m, 1, tile, end);
}

/* Adds keys [first, end) to `columns` adjacent sixteen-lane columns of the outputs of queries [query, query + m). */
HT_INLINE void weigh_columns(const attend_page *page, attend_group *g, ht_dtype t, int query, int m, int columns,
                             int64_t column, int first, int end) {
    int64_t padded = attend_padded(page->head_dim);
    float *out = g->out + query * padded + column;
    const float *w = g->weights + query * HT_KV_PAGE;
    v16f sum[ATTEND_QUERIES][8];
#pragma GCC unroll 8
    for (int i = 0; i < m; i++)
#pragma GCC unroll 8
        for (int c = 0; c < columns; c++) sum[i][c] = v16f_load(out + i * padded + 16 * c);
    for (int j = first; j < end; j++) {
        v16f v[8];
        if (fetches_ahead(t))
            prefetch_lines(ahead_of_value(page, t, j, end) + column * bytes_of(t),
                           (columns * 16 * bytes_of(t) + LINE - 1) / LINE);
#pragma GCC unroll 8
        for (int c = 0; c < columns; c++)
            v[c] = load16(t, page->v, j * page->v_stride + column + 16 * c,
                          t == HT_I8 ? value_scale(page, j, column + 16 * c) : v16f_zero());
#pragma GCC unroll 8
        for (int i = 0; i < m; i++) {
            v16f x = v16f_set1(w[i * HT_KV_PAGE + j]);
#pragma GCC unroll 8
            for (int c = 0; c < columns; c++) sum[i][c] = v16f_fma(v[c], x, sum[i][c]);
        }
    }
#pragma GCC unroll 8
    for (int i = 0; i < m; i++)
#pragma GCC unroll 8
        for (int c = 0; c < columns; c++) v16f_store(out + i * padded + 16 * c, sum[i][c]);
}

/* Up to sixteen dimensions of a value. */
HT_INLINE v16f load_value(const attend_page *page, ht_dtype t, int64_t key, int64_t d, int lanes) {
    int64_t at = key * page->v_stride + d;
    if (t != HT_I8) return lanes_load(t, page->v, at, 1, lanes);
    uint8_t room[16] = {0};
    memcpy(room, (const uint8_t *)page->v + at, (size_t)lanes);
    return load16(t, room, 0, value_scale(page, key, d));
}

/* The last lanes of a head_dim that is no multiple of sixteen, where rows of V follow one another without padding. */
HT_INLINE void weigh_tail(const attend_page *page, attend_group *g, ht_dtype t, int query, int m, int64_t column,
                          int first, int end) {
    int64_t padded = attend_padded(page->head_dim);
    int lanes = (int)(page->head_dim - column);
    for (int i = query; i < query + m; i++) {
        float *out = g->out + i * padded + column;
        v16f sum = v16f_load(out);
        for (int j = first; j < end; j++)
            sum = v16f_fma(load_value(page, t, j, column, lanes), v16f_set1(g->weights[i * HT_KV_PAGE + j]), sum);
        v16f_store(out, sum);
    }
}

/* They are few, and one function for all groups compiles in less time. */
static void weigh_tails(const attend_page *page, attend_group *g, int query, int m, int64_t column, int first,
                        int end) {
    switch (page->dtype) {
    case HT_F16: weigh_tail(page, g, HT_F16, query, m, column, first, end); break;
    case HT_BF16: weigh_tail(page, g, HT_BF16, query, m, column, first, end); break;
    case HT_I8: weigh_tail(page, g, HT_I8, query, m, column, first, end); break;
    default: weigh_tail(page, g, HT_F32, query, m, column, first, end); break;
    }
}

HT_INLINE void weigh(const attend_page *page, attend_group *g, ht_dtype t, int query, int m, int first, int end) {
    int64_t whole = page->v_stride / 16 * 16, column = 0;
    for (; column + 16 * WIDE(m) <= whole; column += 16 * WIDE(m))
        weigh_columns(page, g, t, query, m, WIDE(m), column, first, end);
    for (; column < whole; column += 16) weigh_columns(page, g, t, query, m, 1, column, first, end);
    if (column < page->v_stride) weigh_tails(page, g, query, m, column, first, end);
}

/* Keys that one query of a group sees, and others do not. */
static void weigh_alone(const attend_page *page, attend_group *g, int query, int first, int end) {
    if (first >= end) return;
    switch (page->dtype) {
    case HT_F16: weigh(page, g, HT_F16, query, 1, first, end); break;
    case HT_BF16: weigh(page, g, HT_BF16, query, 1, first, end); break;
    case HT_I8: weigh(page, g, HT_I8, query, 1, first, end); break;
    default: weigh(page, g, HT_F32, query, 1, first, end); break;
    }
}

/* ---- from scores to weights, in place ---- */

HT_INLINE v16f visible(v16f s, int tile, int first, int end, v16f otherwise) {
    int from = first - tile * HT_KV_TILE, to = end - tile * HT_KV_TILE;
    if (from <= 0 && to >= HT_KV_TILE) return s;
    m16 before_end = m16_first(to < 0    ? 0
                               : to > 16 ? 16
                                         : to),
        before = m16_first(from < 0    ? 0
                           : from > 16 ? 16
                                       : from);
    return v16f_select(before, otherwise, v16f_select(before_end, s, otherwise));
}

static void weights_of(attend_group *g, int i) {
    float *s = g->weights + i * HT_KV_PAGE;
    int tile = g->first[i] / HT_KV_TILE, end = (g->end[i] + HT_KV_TILE - 1) / HT_KV_TILE;
    v16f hidden = v16f_set1(-INFINITY), max = hidden, scale = v16f_set1(g->scale), cap = v16f_set1(g->softcap);
    for (int t = tile; t < end; t++) {
        v16f x = v16f_mul(v16f_load(s + t * HT_KV_TILE), scale);
        if (g->softcap > 0.0f) x = v16f_mul(cap, v16f_tanh(v16f_div(x, cap)));
        x = visible(x, t, g->first[i], g->end[i], hidden);
        max = v16f_max(max, x);
        v16f_store(s + t * HT_KV_TILE, x);
    }
    g->max[i] = v16f_hmax(max);
    v16f sum = v16f_zero(), top = v16f_set1(g->max[i]);
    for (int t = tile; t < end; t++) {
        v16f w = v16f_exp(v16f_sub(v16f_load(s + t * HT_KV_TILE), top));
        sum = v16f_add(sum, w);
        v16f_store(s + t * HT_KV_TILE, w);
    }
    g->sum[i] = v16f_sum(sum);
}

/* ---- one page ---- */

/* Keys that some query of the group sees, and keys that all of those see which see any. */
typedef struct extent {
    int first, end, common_first, common_end;
} extent;

static extent extent_of(const attend_group *g) {
    extent e = {HT_KV_PAGE, 0, 0, HT_KV_PAGE};
    for (int i = 0; i < g->n; i++) {
        if (g->first[i] >= g->end[i]) continue;
        if (g->first[i] < e.first) e.first = g->first[i];
        if (g->end[i] > e.end) e.end = g->end[i];
        if (g->first[i] > e.common_first) e.common_first = g->first[i];
        if (g->end[i] < e.common_end) e.common_end = g->end[i];
    }
    return e;
}

/* A masked key must not even be multiplied by zero, for what it holds may be infinite: the keys that not all queries of
 * the group see are added query by query, before and after those that all see. */
HT_INLINE void page_of(const attend_page *page, attend_group *g, ht_dtype t, int m) {
    extent e = extent_of(g);
    if (e.first >= e.end) return;
    score(page, g, t, m, e.first / HT_KV_TILE, (e.end + HT_KV_TILE - 1) / HT_KV_TILE);
    for (int i = 0; i < m; i++)
        if (g->first[i] < g->end[i]) weights_of(g, i);
    memset(g->out, 0, (size_t)(m * attend_padded(page->head_dim)) * sizeof(float));
    if (e.common_first >= e.common_end) {
        for (int i = 0; i < m; i++) weigh_alone(page, g, i, g->first[i], g->end[i]);
        return;
    }
    for (int i = 0; i < m; i++)
        if (g->first[i] < g->end[i]) weigh_alone(page, g, i, g->first[i], e.common_first);
    weigh(page, g, t, 0, m, e.common_first, e.common_end);
    for (int i = 0; i < m; i++)
        if (g->first[i] < g->end[i]) weigh_alone(page, g, i, e.common_end, g->end[i]);
}

HT_INLINE void page_of_dtype(const attend_page *page, attend_group *g, ht_dtype t) {
    switch (g->n) {
    case 1: page_of(page, g, t, 1); break;
    case 2: page_of(page, g, t, 2); break;
    case 3: page_of(page, g, t, 3); break;
    case 4: page_of(page, g, t, 4); break;
    case 5: page_of(page, g, t, 5); break;
    default: page_of(page, g, t, ATTEND_QUERIES); break;
    }
}

void HT_ISA_NAME(ht_attend_page)(const attend_page *page, attend_group *group) {
    switch (page->dtype) {
    case HT_F16: page_of_dtype(page, group, HT_F16); break;
    case HT_BF16: page_of_dtype(page, group, HT_BF16); break;
    case HT_I8: page_of_dtype(page, group, HT_I8); break;
    default: page_of_dtype(page, group, HT_F32); break;
    }
}

HT_INLINE void convert(const attend_page *from, ht_dtype t, int first, int end, float *k, float *v) {
    int64_t head_dim = from->head_dim, padded = attend_padded(head_dim);
    for (int64_t tile = first / HT_KV_TILE; tile < (end + HT_KV_TILE - 1) / HT_KV_TILE; tile++) {
        v16f scale = v16f_zero();
        for (int64_t d = 0; d < head_dim; d++) {
            if (t == HT_I8 && d % HT_KV_QBLOCK == 0) scale = key_scales(from, tile, d);
            int64_t at = (tile * head_dim + d) * HT_KV_TILE;
            v16f_store(k + at, load16(t, from->k, at, scale));
        }
    }
    for (int j = first; j < end; j++)
        for (int64_t d = 0; d < head_dim; d += 16)
            v16f_store(v + j * padded + d, load_value(from, t, j, d, lanes_of(head_dim - d)));
}

void HT_ISA_NAME(ht_attend_convert)(const attend_page *from, int first, int end, float *k, float *v) {
    switch (from->dtype) {
    case HT_F16: convert(from, HT_F16, first, end, k, v); break;
    case HT_BF16: convert(from, HT_BF16, first, end, k, v); break;
    case HT_I8: convert(from, HT_I8, first, end, k, v); break;
    default: convert(from, HT_F32, first, end, k, v); break;
    }
}

void HT_ISA_NAME(ht_attend_merge)(float *max, float *sum, float *out, int64_t head_dim, bool fresh, float page_max,
                                  float page_sum, const float *page_out) {
    if (fresh) {
        *max = page_max;
        *sum = page_sum;
        memcpy(out, page_out, (size_t)head_dim * sizeof *out);
        return;
    }
    /* Relative to the larger of the two maxima; the other factor is exp(0) = 1. */
    bool grows = page_max > *max;
    float shrink = ht_exp_f32(grows ? *max - page_max : page_max - *max);
    float keep = grows ? shrink : 1.0f, take = grows ? 1.0f : shrink;
    if (grows) *max = page_max;
    *sum = __builtin_fmaf(page_sum, take, *sum * keep);
    for (int64_t d = 0; d < head_dim; d += 16) {
        int n = lanes_of(head_dim - d);
        v16f kept = v16f_mul(v16f_load_n(out + d, n), v16f_set1(keep));
        v16f_store_n(out + d, v16f_fma(v16f_load(page_out + d), v16f_set1(take), kept), n);
    }
}

void HT_ISA_NAME(ht_attend_finish)(float *out, int64_t head_dim, float sum) {
    v16f factor = v16f_set1(1.0f / sum);
    for (int64_t d = 0; d < head_dim; d += 16) {
        int n = lanes_of(head_dim - d);
        v16f_store_n(out + d, v16f_mul(v16f_load_n(out + d, n), factor), n);
    }
}
