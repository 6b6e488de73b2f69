#include "cpu/vector/matrix_f32.h"

#include "cpu/vector/simd_int.h"
#include "cpu/vector/tile.h"

enum { FETCH_AHEAD = 4096 }; /* bytes */

/* Two columns of a bf16 panel share a load: the first is the low half of each lane. */
HT_INLINE v16f bf16_first(v16i pairs) { return v16f_from_bits(v16i_shl(pairs, 16)); }
HT_INLINE v16f bf16_second(v16i pairs) { return v16f_from_bits(v16i_and(pairs, v16i_set1((int32_t)0xffff0000u))); }

/* Column c, counted from the panel's pointer. */
HT_INLINE v16f load_column(ht_weight_type type, const void *panel, int64_t c) {
    if (type == HT_W_F32) return v16f_load((const float *)panel + HT_PANEL * c);
    if (type == HT_W_F16) return v16f_load_f16((const uint16_t *)panel + HT_PANEL * c);
    v16i pairs = v16i_load((const int32_t *)panel + c / 2 * HT_PANEL);
    return c % 2 ? bf16_second(pairs) : bf16_first(pairs);
}

HT_INLINE void dense_tile(ht_weight_type type, const void *panel, int64_t stride, int64_t column, int n, const float *x,
                          int64_t ldx, int rows, int n_x, const ht_gemm_out *out) {
    const size_t bytes = type == HT_W_F32 ? 4 : 2;
    int lanes[TILE_PANELS];
    const char *w[TILE_PANELS];
    for (int p = 0; p < TILE_PANELS; p++) {
        lanes[p] = ht_lanes_of(out, p);
        w[p] = (const char *)panel + (lanes[p] ? (size_t)p * (size_t)stride * bytes : 0);
    }
    x += column;
    const float *last_row = x + (n_x - 1) * ldx; /* twice where there are rows - 1 */
    v16f y[TILE_PANELS][TILE_ROWS];
    for (int p = 0; p < TILE_PANELS; p++)
        for (int i = 0; i < rows; i++) y[p][i] = v16f_zero();
    int c = 0;
    for (; c + 2 <= n; c += 2) {
        if (type != HT_W_F32) /* halves take few instructions per byte: the hardware alone does not keep up */
            for (int p = 0; p < TILE_PANELS; p++) __builtin_prefetch(w[p] + c * HT_PANEL * 2 + FETCH_AHEAD, 0, 2);
        v16f first[TILE_PANELS], second[TILE_PANELS];
        for (int p = 0; p < TILE_PANELS; p++) {
            first[p] = load_column(type, w[p], c);
            second[p] = load_column(type, w[p], c + 1);
        }
        for (int i = 0; i < rows; i++) {
            const float *row = i + 1 < rows ? x + i * ldx : last_row;
            v16f x0 = v16f_set1(row[c]), x1 = v16f_set1(row[c + 1]);
            for (int p = 0; p < TILE_PANELS; p++) y[p][i] = v16f_fma(second[p], x1, v16f_fma(first[p], x0, y[p][i]));
        }
    }
    if (c < n)
        for (int p = 0; p < TILE_PANELS; p++) {
            v16f last = load_column(type, w[p], c);
            for (int i = 0; i < rows; i++)
                y[p][i] = v16f_fma(last, v16f_set1((i + 1 < rows ? x + i * ldx : last_row)[c]), y[p][i]);
        }
    for (int p = 0; p < TILE_PANELS; p++)
        for (int i = 0; i < rows; i++) {
            if (!ht_row_exists(i, rows, n_x)) continue;
            v16f sum = column && lanes[p] ? v16f_add(ht_load_out(out, i, p, lanes[p]), y[p][i]) : y[p][i];
            ht_store_out(out, i, p, lanes[p], sum);
        }
}

HT_INLINE void widen(ht_weight_type type, const void *panel, int64_t column, int n, float *to) {
    for (int c = 0; c < n; c++) v16f_store(to + HT_PANEL * c, load_column(type, panel, column + c));
}

#define TILE(n_rows) dense_tile(type, panel, stride, column, n, x, ldx, n_rows, n_x, out)

#define FUNCTIONS(name)                                                                                                \
    void HT_ISA_NAME(ht_dense_##name)(const void *panel, int64_t stride, int64_t column, int n, const float *x,        \
                                      int64_t ldx, int n_x, const ht_gemm_out *out) {                                  \
        const ht_weight_type type = HT_W_##name;                                                                       \
        HT_WITH_TILE_ROWS(n_x, TILE);                                                                                  \
    }                                                                                                                  \
    void HT_ISA_NAME(ht_widen_##name)(const void *panel, int64_t column, int n, float *to) {                           \
        widen(HT_W_##name, panel, column, n, to);                                                                      \
    }

HT_DENSE_TYPES(FUNCTIONS)

void HT_ISA_NAME(ht_transpose_panel)(const float *rows, int64_t ld, int n, float *to) {
    for (int c = 0; c < n; c++)
        for (int r = 0; r < HT_PANEL; r++) to[HT_PANEL * c + r] = rows[r * ld + c];
}

/* By way of halves: e5m2 are their upper bytes, e4m3 have 8 less in the exponent. Halves of any size are read exactly,
 * whatever becomes of small floats. */
HT_INLINE void widen_f8(bool e5m2, const uint8_t *panel, int n, const float *scale, float *to) {
    const v16f s = v16f_load(scale), up = v16f_set1(256.0f), nan = v16f_set1(__builtin_nanf(""));
    for (int c = 0; c < n; c++) {
        uint16_t half[HT_PANEL];
        v16i code = v16i_load_u8(panel + HT_PANEL * c), magnitude = v16i_and(code, v16i_set1(127));
        v16i sign = v16i_shl(v16i_sub(code, magnitude), 8);
        v16i_store_u16(half, e5m2 ? v16i_shl(code, 8) : v16i_or(v16i_shl(magnitude, 7), sign));
        v16f value = v16f_load_f16(half);
        if (!e5m2) value = v16f_select(v16i_eq(magnitude, v16i_set1(127)), nan, v16f_mul(value, up));
        v16f_store(to + HT_PANEL * c, v16f_mul(value, s));
    }
}

void HT_ISA_NAME(ht_widen_e4m3)(const uint8_t *panel, int64_t column, int n, const float scale[HT_PANEL], float *to) {
    widen_f8(false, panel + HT_PANEL * column, n, scale, to);
}
void HT_ISA_NAME(ht_widen_e5m2)(const uint8_t *panel, int64_t column, int n, const float scale[HT_PANEL], float *to) {
    widen_f8(true, panel + HT_PANEL * column, n, scale, to);
}
