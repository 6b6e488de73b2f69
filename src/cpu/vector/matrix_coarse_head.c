/* Split output heads (cpu/coarse_head.h): bounds from the first part, full products from both. */
#include "cpu/coarse_head.h"
#include "cpu/vector/decode.h"
#include "cpu/vector/matrix_int8.h"
#include "cpu/vector/tile.h"

#include <math.h>

enum { UNIT = 64 * HT_COARSE_BITS_UNIT, REST = 64 * HT_FINE_BITS_UNIT };

HT_INLINE v16f scaled(v16i sum, v16f scale) { return v16f_mul(v16f_from_i(sum), scale); }

HT_INLINE void fetch(const uint8_t *p, int bytes) {
    for (int i = 0; i < bytes; i += 64) ht_fetch_far(p + i);
}

HT_INLINE void fetch_ahead(const uint8_t *p, int bytes) {
    for (int i = 0; i < bytes; i += 64) ht_fetch_ahead(p + i);
}

/* ---- bounds ---- */

HT_INLINE float panel_bound(int planes, const uint8_t *unit, int64_t n_blocks, const int8_t *q, const float *x_scale,
                            const int32_t *offset) {
    const uint8_t *scales = unit + n_blocks * UNIT;
    v16f bound = v16f_zero(), lowest = v16f_zero();
    for (int64_t b = 0; b < n_blocks; b++, unit += UNIT, scales += HT_COARSE_SCALES) {
        v16i w[8];
        fetch_ahead(scales, HT_COARSE_SCALES);
        fetch_ahead(unit, UNIT);
        ht_decode_weights(HT_COARSE_BITS_UNIT, HT_CODES_NONE, unit, w);
        v16f scale = ht_halves_at(scales);
        lowest = v16f_min(scale, lowest);
        v16i sum[2];
        HT_UNROLL
        for (int i = 0; i < planes; i++, q += HT_QBLOCK) {
            v16d d = v16d_start(0);
            HT_UNROLL
            for (int j = 0; j < 8; j++) d = v16d_step(d, w[j], v16i_set4(q + 4 * j), HT_COARSE_BITS_UNIT, 8, j);
            sum[i] = v16d_sum(d, 0);
        }
        v16i whole = v16i_shl(planes == 2 ? ht_join_planes(sum[0], sum[1]) : sum[0], HT_FINE_BITS_UNIT);
        whole = v16i_add(whole, v16i_set1(*offset++));
        bound = v16f_fma(scaled(whole, scale), v16f_set1(x_scale[planes - 1]), bound);
        x_scale += planes;
    }
    /* No bound: a negative scale reverses the order, and a NaN or minus infinity may be below the true output. */
    m16 none = m16_or(v16f_lt(lowest, v16f_zero()), v16f_is_nan(bound));
    none = m16_or(none, v16f_eq(bound, v16f_set1(-INFINITY)));
    return v16f_hmax(v16f_select(none, v16f_set1(INFINITY), bound));
}

void HT_ISA_NAME(ht_coarse_bounds)(const uint8_t *first, int64_t n_blocks, int64_t n, int planes, const int8_t *q,
                                   const float *scale, const int32_t *offset, float *bound) {
    size_t bytes = ht_coarse_head_coarse_bytes(n_blocks);
    for (int64_t p = 0; p < n && planes == 1; p++, first += bytes)
        bound[p] = panel_bound(1, first, n_blocks, q, scale, offset);
    for (int64_t p = 0; p < n && planes == 2; p++, first += bytes)
        bound[p] = panel_bound(2, first, n_blocks, q, scale, offset);
}

/* ---- both parts ---- */

HT_INLINE void join(const uint8_t *unit, const uint8_t *rest, v16i w[8]) {
    v16i low[8];
    ht_decode_weights(HT_COARSE_BITS_UNIT, HT_CODES_NONE, unit, w);
    ht_decode_weights(HT_FINE_BITS_UNIT, HT_CODES_NONE, rest, low);
    HT_UNROLL
    for (int j = 0; j < 8; j++) w[j] = v16i_or(v16i_shl(w[j], HT_FINE_BITS_UNIT), low[j]);
}

/* As direct_panel in matrix_int8.c. */
HT_INLINE void direct_panel(int planes, const uint8_t *unit, const uint8_t *rest, const ht_qtiles *all, int64_t t,
                            int rows, const ht_gemm_out *out, int p) {
    const int n_x = ht_qtile_rows(all->x, t);
    int64_t n_blocks = all->x->n_blocks, first = ht_qtile_first(all->x, t), at = first * n_blocks;
    const uint8_t *scales = unit + n_blocks * UNIT;
    const int8_t *q = all->x->q + HT_QBLOCK * at;
    const float *x_scale = all->x->scale + at;
    const int32_t *offset = (const int32_t *)all->offset + at;
    v16f y[DIRECT_ROWS];
    for (int i = 0; i < rows / planes; i++) y[i] = v16f_zero();
    for (int64_t b = 0; b < n_blocks; b++, unit += UNIT, rest += REST, scales += HT_COARSE_SCALES) {
        v16i w[8];
        fetch_ahead(scales, HT_COARSE_SCALES);
        fetch_ahead(unit, UNIT);
        fetch_ahead(rest, REST);
        join(unit, rest, w);
        v16f scale = ht_halves_at(scales);
        HT_UNROLL
        for (int j = 0; j < 8; j++) w[j] = v16d_weights8(w[j]);
        v16i sum[DIRECT_ROWS];
        HT_UNROLL
        for (int i = 0; i < rows; i++) {
            v16d d = v16d_start(offset[i]);
            HT_UNROLL
            for (int j = 0; j < 8; j++) d = v16d_step(d, w[j], v16i_set4(q + HT_QBLOCK * i + 4 * j), 8, 8, j);
            sum[i] = v16d_sum(d, offset[i]);
            if ((i + 1) % planes) continue;
            const v16i whole = planes == 2 ? ht_join_planes(sum[i - 1], sum[i]) : sum[i];
            y[i / planes] = v16f_fma(scaled(whole, scale), v16f_set1(x_scale[i]), y[i / planes]);
        }
        q += HT_QBLOCK * n_x;
        x_scale += n_x;
        offset += n_x;
    }
    ht_store_rows(out, (int)first / planes, rows / planes, n_x / planes, p, ht_lanes_of(out, p), y);
}

HT_INLINE void direct_panels(int planes, ht_coarse_panels panels, const ht_qtiles *x, int64_t t, int rows,
                             const ht_gemm_out *out) {
    size_t first_bytes = ht_coarse_head_coarse_bytes(x->x->n_blocks),
           rest_bytes = ht_coarse_head_fine_bytes(x->x->n_blocks);
    int n = (int)ht_panel_count(out->n);
    for (int p = 0; p < n; p++, panels.first += first_bytes, panels.rest += rest_bytes)
        direct_panel(planes, panels.first, panels.rest, x, t, rows, out, p);
}

#define DIRECT(n) direct_panels(planes, panels, x, t, n, out)

void HT_ISA_NAME(ht_coarse_direct)(ht_coarse_panels panels, int64_t k, const ht_qtiles *x, const ht_gemm_out *out) {
    (void)k;
    int planes = x->x->planes;
    for (int64_t t = x->first; t < x->last; t++) {
        HT_WITH_NUMBER_ROWS(planes, ht_qtile_rows(x->x, t), DIRECT);
    }
}

void HT_ISA_NAME(ht_coarse_decode)(ht_coarse_panels panel, int64_t k, int64_t block, int n, ht_qpanel *to) {
    const uint8_t *unit = panel.first + block * UNIT, *rest = panel.rest + block * REST;
    const uint8_t *scales = panel.first + k / HT_QBLOCK * UNIT + block * HT_COARSE_SCALES;
    for (int b = 0; b < n; b++, unit += UNIT, rest += REST, scales += HT_COARSE_SCALES) {
        v16i w[8];
        fetch(unit + n * UNIT, UNIT); /* the next chunk */
        fetch(rest + n * REST, REST);
        join(unit, rest, w);
        for (int j = 0; j < 8; j++) w[j] = v16d_weights8(w[j]);
        v16r_order(w);
        for (int j = 0; j < 8; j++) v16i_store((int32_t *)(void *)(to->w[b] + 64 * j), w[j]);
        v16f_store(to->scale[b], ht_halves_at(scales));
    }
}
