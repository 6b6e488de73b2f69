/* Attention over one page: scores, weights, weighted sum of V (attend.h). */
#include "cpu/vector/attend.h"
#include "cpu/vector/lanes.h"
#include "cpu/vector/math.h"
#include "cpu/vector/simd_int.h"

/* Register blocking: accumulators take 24 of 32 registers with AVX-512, 12 of 16 with AVX2, 24 of 32 with NEON. m
 * queries take WIDE(m) vectors of sixteen columns; one or two queries take more columns, to have enough independent
 * multiply-adds in flight. */
#if defined(HT_ISA_avx512)
#define WIDE(m) ((m) == 1 ? 8 : 4)
#else
#define WIDE(m) ((m) == 1 ? 4 : (m) <= 3 ? 2 : 1)
#endif

/* `scale` applies to 8-bit pages only. */
HT_INLINE v16f load16(ht_dtype t, const void *p, int64_t at, v16f scale) {
    switch (t) {
    case HT_F16: return v16f_load_f16((const uint16_t *)p + at);
    case HT_BF16: return v16f_load_bf16((const uint16_t *)p + at);
    case HT_I8: return v16f_mul(v16f_from_i(v16i_load_s8((const uint8_t *)p + at)), scale);
    default: return v16f_load((const float *)p + at);
    }
}

/* Scales of a tile's keys for the block of dimension d. */
HT_INLINE v16f key_scales(const attend_page *page, int64_t tile, int64_t d) {
    int64_t blocks = ht_kv_blocks(page->head_dim);
    return v16f_load_bf16(page->k_scale + (tile * blocks + d / HT_KV_QBLOCK) * HT_KV_TILE);
}
/* Scale of a value for the block of dimension d, in all lanes. */
HT_INLINE v16f value_scale(const attend_page *page, int64_t key, int64_t d) {
    return v16f_set1(ht_bf16_to_f32(page->v_scale[key * ht_kv_blocks(page->head_dim) + d / HT_KV_QBLOCK]));
}

/* Prefetch distance, a few hundred nanoseconds of work. Hardware prefetchers keep restarting: tiles of K are several
 * short streams, and pages are scattered. */
enum { PREFETCH_BYTES = 8192, LINE = 64 };

HT_INLINE bool prefetches(ht_dtype t) { return t != HT_F32; } /* f32 pages were just converted, so they are cached */
HT_INLINE int64_t bytes_of(ht_dtype t) { return t == HT_I8 ? 1 : 2; }

HT_INLINE void prefetch_lines(const char *p, int64_t lines) {
    for (int64_t i = 0; i < lines; i++) HT_PREFETCH(p + i * LINE);
}

/* Address PREFETCH_BYTES beyond row j of V, or in the next page's K beyond the `end` rows read. */
HT_INLINE const char *value_prefetch_address(const attend_page *page, ht_dtype t, int64_t j, int64_t end) {
    int64_t row = page->v_stride * bytes_of(t), at = j * row + PREFETCH_BYTES, rest = at - end * row;
    return rest >= 0 && page->next ? (const char *)page->next + rest : (const char *)page->v + at;
}

/* Prefetches dimension d's share of the first PREFETCH_BYTES of V during the last score tiles. */
HT_INLINE void prefetch_values(const attend_page *page, int64_t d) {
    int64_t lines = (PREFETCH_BYTES / LINE + page->head_dim - 1) / page->head_dim;
    prefetch_lines((const char *)page->v + d * lines * LINE, lines);
}

/* Prefetches dimension d of the following key tiles. */
HT_INLINE void prefetch_keys(ht_dtype t, const char *after, int64_t tile_size, int tiles, int64_t d) {
    if (d * HT_KV_TILE * bytes_of(t) % LINE) return;
#pragma GCC unroll 8
    for (int c = 0; c < tiles; c++) HT_PREFETCH(after + (c * tile_size + d * HT_KV_TILE) * bytes_of(t));
}

/* Scores of m queries for K tiles [tile, tile + tiles); `end` is the last tile plus one. */
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
        if (prefetches(t) && last)
            prefetch_values(page, d);
        else if (prefetches(t))
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

/* The remainder of WIDE(m) tiles is split by halving: single tiles have too few independent multiply-adds. */
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

/* Accumulates the weighted values of keys [first, end) for queries [query, query + m) and `columns` vectors of
 * dimensions. */
HT_INLINE void accumulate_columns(const attend_page *page, attend_group *g, ht_dtype t, int query, int m, int columns,
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
        if (prefetches(t))
            prefetch_lines(value_prefetch_address(page, t, j, end) + column * bytes_of(t),
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
    uint8_t padded[16] = {0};
    memcpy(padded, (const uint8_t *)page->v + at, (size_t)lanes);
    return load16(t, padded, 0, value_scale(page, key, d));
}

/* Accumulates the last, partial vector of a head_dim that is not a multiple of sixteen; unpadded rows of V must not be
 * read beyond their end. */
HT_INLINE void accumulate_tail(const attend_page *page, attend_group *g, ht_dtype t, int query, int m, int64_t column,
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

/* Not inlined per group size: tails are rare, and one copy compiles faster. */
static void accumulate_tails(const attend_page *page, attend_group *g, int query, int m, int64_t column, int first,
                             int end) {
    switch (page->dtype) {
    case HT_F16: accumulate_tail(page, g, HT_F16, query, m, column, first, end); break;
    case HT_BF16: accumulate_tail(page, g, HT_BF16, query, m, column, first, end); break;
    case HT_I8: accumulate_tail(page, g, HT_I8, query, m, column, first, end); break;
    default: accumulate_tail(page, g, HT_F32, query, m, column, first, end); break;
    }
}

HT_INLINE void accumulate(const attend_page *page, attend_group *g, ht_dtype t, int query, int m, int first, int end) {
    int64_t whole = page->v_stride / 16 * 16, column = 0;
    for (; column + 16 * WIDE(m) <= whole; column += 16 * WIDE(m))
        accumulate_columns(page, g, t, query, m, WIDE(m), column, first, end);
    for (; column < whole; column += 16) accumulate_columns(page, g, t, query, m, 1, column, first, end);
    if (column < page->v_stride) accumulate_tails(page, g, query, m, column, first, end);
}

/* Accumulates keys that only one query of the group sees. */
static void accumulate_one_query(const attend_page *page, attend_group *g, int query, int first, int end) {
    if (first >= end) return;
    switch (page->dtype) {
    case HT_F16: accumulate(page, g, HT_F16, query, 1, first, end); break;
    case HT_BF16: accumulate(page, g, HT_BF16, query, 1, first, end); break;
    case HT_I8: accumulate(page, g, HT_I8, query, 1, first, end); break;
    default: accumulate(page, g, HT_F32, query, 1, first, end); break;
    }
}

/* ---- softmax in place ---- */

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

/* Keys visible to any query of the group, and keys visible to every query that sees any. */
typedef struct key_range {
    int first, end, common_first, common_end;
} key_range;

static key_range key_range_of(const attend_group *g) {
    key_range e = {HT_KV_PAGE, 0, 0, HT_KV_PAGE};
    for (int i = 0; i < g->n; i++) {
        if (g->first[i] >= g->end[i]) continue;
        if (g->first[i] < e.first) e.first = g->first[i];
        if (g->end[i] > e.end) e.end = g->end[i];
        if (g->first[i] > e.common_first) e.common_first = g->first[i];
        if (g->end[i] < e.common_end) e.common_end = g->end[i];
    }
    return e;
}

/* A masked key must not be multiplied even by a zero weight, because its stale content may be infinite. Keys that only
 * some queries see are therefore accumulated query by query, before and after the common range. */
HT_INLINE void page_of(const attend_page *page, attend_group *g, ht_dtype t, int m) {
    key_range e = key_range_of(g);
    if (e.first >= e.end) return;
    score(page, g, t, m, e.first / HT_KV_TILE, (e.end + HT_KV_TILE - 1) / HT_KV_TILE);
    for (int i = 0; i < m; i++)
        if (g->first[i] < g->end[i]) weights_of(g, i);
    memset(g->out, 0, (size_t)(m * attend_padded(page->head_dim)) * sizeof(float));
    if (e.common_first >= e.common_end) {
        for (int i = 0; i < m; i++) accumulate_one_query(page, g, i, g->first[i], g->end[i]);
        return;
    }
    for (int i = 0; i < m; i++)
        if (g->first[i] < g->end[i]) accumulate_one_query(page, g, i, g->first[i], e.common_first);
    accumulate(page, g, t, 0, m, e.common_first, e.common_end);
    for (int i = 0; i < m; i++)
        if (g->first[i] < g->end[i]) accumulate_one_query(page, g, i, e.common_end, g->end[i]);
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
            v16f_store(v + j * padded + d, load_value(from, t, j, d, lanes_count(head_dim - d)));
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
    /* Rescale to the larger of the two maxima; the other factor is exp(0) = 1. */
    bool grows = page_max > *max;
    float shrink = ht_exp_f32(grows ? *max - page_max : page_max - *max);
    float keep = grows ? shrink : 1.0f, take = grows ? 1.0f : shrink;
    if (grows) *max = page_max;
    *sum = __builtin_fmaf(page_sum, take, *sum * keep);
    for (int64_t d = 0; d < head_dim; d += 16) {
        int n = lanes_count(head_dim - d);
        v16f kept = v16f_mul(v16f_load_n(out + d, n), v16f_set1(keep));
        v16f_store_n(out + d, v16f_fma(v16f_load(page_out + d), v16f_set1(take), kept), n);
    }
}

/* Inverse of `sum` and the weight of a sink. Both are relative to the larger of the scores `max` and `sink`. */
static float inverse_with_sink(float max, float sum, float sink) {
    const bool grows = sink > max;
    const float shrink = ht_exp_f32(grows ? max - sink : sink - max);
    return grows ? shrink / __builtin_fmaf(sum, shrink, 1.0f) : 1.0f / (sum + shrink);
}

void HT_ISA_NAME(ht_attend_finish)(float *out, int64_t head_dim, float max, float sum, const float *sink) {
    v16f factor = v16f_set1(sink ? inverse_with_sink(max, sum, *sink) : 1.0f / sum);
    for (int64_t d = 0; d < head_dim; d += 16) {
        int n = lanes_count(head_dim - d);
        v16f_store_n(out + d, v16f_mul(v16f_load_n(out + d, n), factor), n);
    }
}
