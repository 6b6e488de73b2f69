#include "cpu/vector/matrix_int8.h"

#include "base/checked.h"
#include "cpu/codebook_panel.h"
#include "cpu/vector/decode.h"
#include "cpu/vector/tile.h"

/* Offsets from sums of activations: f32 sums for types with a minimum, else start values that cancel the bias. That of
 * a row in two planes is with its second one. */
HT_INLINE void offsets_of(const ht_panel_layout *l, int planes, const int32_t *a, const int32_t *b, int n, void *to) {
    const int32_t bias = ht_weight_bits(l->bits, l->codes) == 8 ? HT_DOT_BIAS_8 : l->bias;
    for (int i = 0; i < n; i++) {
        int32_t sum = b ? a[i] + b[i] : a[i];
        if (planes == 2) sum = i % 2 ? sum + (b ? a[i - 1] + b[i - 1] : a[i - 1]) * HT_PLANE_STEP : 0;
        if (l->has_min)
            ((float *)to)[i] = (float)sum;
        else
            ((int32_t *)to)[i] = -bias * sum;
    }
}

void HT_ISA_NAME(ht_row_offsets)(ht_weight_type type, const ht_qrows *x, int64_t tile, int first, int last,
                                 void *offset) {
    const ht_panel_layout *l = ht_panel_layout_of(type);
    const int64_t n = ht_qtile_rows(x, tile), at = ht_qtile_first(x, tile) * x->n_blocks;
    int64_t b = ht_first_block(x, tile, first);
    for (int64_t done = 0; done < x->n_blocks; done++, b = b + 1 < x->n_blocks ? b + 1 : 0) {
        const int32_t *sum = x->sum + 2 * (at + b * n) + first;
        char *to = (char *)offset + 4 * (l->halves * (at + b * n) + first);
        if (l->halves == 2) {
            offsets_of(l, x->planes, sum, NULL, last - first, to);
            offsets_of(l, x->planes, sum + n, NULL, last - first, to + 4 * n);
        } else
            offsets_of(l, x->planes, sum, sum + n, last - first, to);
    }
}

/* ---- one block of one panel against rows of a tile ---- */

/* Where a tile's numbers are. */
typedef struct tile {
    const int8_t *q;
    const float *scale;
    const char *offset;
} tile;

HT_INLINE tile tile_at(ht_qkind kind, const ht_qtiles *x, int64_t t, int64_t block, int n_x) {
    int64_t at = ht_qtile_first(x->x, t) * x->x->n_blocks + block * n_x;
    return (tile){x->x->q + HT_QBLOCK * at, x->x->scale + at, (const char *)x->offset + 4 * kind.halves * at};
}

/* Start value of the integer sum of row i of n_x over half h of a block. Products of 8-bit weights may have been summed
 * with the signed weight, 128 less than the stored one. */
HT_INLINE int32_t sum_start(ht_qkind kind, const tile *x, int n_x, int h, int i) {
    const int at = h * n_x + i;
    if (!kind.has_min) return ((const int32_t *)(const void *)x->offset)[at];
    if (kind.bits < 8 || HT_DOT_BIAS_8 == 128) return 0;
    return (128 - HT_DOT_BIAS_8) * (int32_t)((const float *)(const void *)x->offset)[at];
}

/* The next block. */
HT_INLINE void advance(ht_qkind kind, tile *t, int n_x) {
    t->q += HT_QBLOCK * n_x;
    t->scale += n_x;
    t->offset += 4 * kind.halves * n_x;
}

/* ---- decoding of panels ---- */

/* Scales, and minima if the type has any, of n blocks as in ht_qpanel, from the first block of a unit on. */
typedef void scales_fn(const ht_panel_layout *l, const uint8_t *unit, int n, float (*scale)[HT_PANEL],
                       float (*min)[HT_PANEL]);

HT_INLINE void decode_units(ht_weight_type type, int has_min, int unit_scales, int group, int unit_bytes,
                            const uint8_t *unit, int n, float (*scale)[HT_PANEL], float (*min)[HT_PANEL]) {
    for (int b = 0; b < n; b += group, unit += unit_bytes, scale += unit_scales, min += unit_scales) {
        v16f s[16], m[16];
        ht_decode_scales(type, unit, s, m);
        for (int i = 0; i < unit_scales; i++) v16f_store(scale[i], s[i]);
        for (int i = 0; i < unit_scales && has_min; i++) v16f_store(min[i], m[i]);
    }
}

#define SCALES(type, bits, bias, halves, has_min, group, scale_bytes, codes)                                           \
    static void scales_##type(const ht_panel_layout *l, const uint8_t *unit, int n, float(*scale)[HT_PANEL],           \
                              float(*min)[HT_PANEL]) {                                                                 \
        (void)l;                                                                                                       \
        decode_units(HT_W_##type, has_min, (group) * (halves), group, scale_bytes, unit, n, scale, min);               \
    }
HT_QUANTISED_TYPES(SCALES)

/* MLX's groups: the blocks of a unit share a scale and a minimum. */
#define AFFINE_SCALES(type)                                                                                            \
    static void affine_##type(const ht_panel_layout *l, const uint8_t *unit, int n, float(*scale)[HT_PANEL],           \
                              float(*min)[HT_PANEL]) {                                                                 \
        for (int b = 0; b < n; b++) {                                                                                  \
            const uint8_t *at = unit + b / l->group * l->scale_bytes;                                                  \
            v16f_store(scale[b], ht_affine_scales_at(HT_W_##type, at));                                                \
            v16f_store(min[b], ht_affine_scales_at(HT_W_##type, at + l->scale_bytes / 2));                             \
        }                                                                                                              \
    }
AFFINE_SCALES(F16)
AFFINE_SCALES(BF16)
AFFINE_SCALES(F32)

#define SCALES_OF(type, ...)                   [HT_W_##type] = scales_##type,
#define AFFINE_SCALES_OF(type, bits, group, s) [HT_W_##type] = affine_##s,
static scales_fn *const scales_of[HT_W_COUNT] = {HT_QUANTISED_TYPES(SCALES_OF) HT_AFFINE_TYPES(AFFINE_SCALES_OF)};

/* Weights of n blocks, a byte each; `ordered` for v16r_step. */
typedef void weights_fn(const uint8_t *unit, int n, bool ordered, ht_qpanel *to);

#define WEIGHTS(bits, codes)                                                                                           \
    static void weights_##bits##_##codes(const uint8_t *unit, int n, bool ordered, ht_qpanel *to) {                    \
        for (int b = 0; b < n; b++, unit += 64 * (bits)) {                                                             \
            v16i w[8];                                                                                                 \
            for (int i = 0; i < (bits); i++) ht_fetch_far(unit + 64 * (n * (bits) + i)); /* the next chunk */          \
            ht_decode_weights(bits, codes, unit, w);                                                                   \
            if (ordered) v16r_order(w);                                                                                \
            for (int j = 0; j < 8; j++) v16i_store((int32_t *)(void *)(to->w[b] + 64 * j), w[j]);                      \
        }                                                                                                              \
    }
WEIGHTS(2, HT_CODES_NONE)
WEIGHTS(3, HT_CODES_NONE)
WEIGHTS(4, HT_CODES_NONE)
WEIGHTS(5, HT_CODES_NONE)
WEIGHTS(6, HT_CODES_NONE)
WEIGHTS(8, HT_CODES_NONE)
WEIGHTS(4, HT_CODES_IQ4)
WEIGHTS(4, HT_CODES_E2M1)

#define WEIGHTS_OF(type, bits, bias, halves, has_min, group, scale_bytes, codes)                                       \
    [HT_W_##type] = weights_##bits##_##codes,
#define AFFINE_WEIGHTS_OF(type, bits, group, s) [HT_W_##type] = weights_##bits##_HT_CODES_NONE,
static weights_fn *const weights_of[HT_W_COUNT] = {HT_QUANTISED_TYPES(WEIGHTS_OF) HT_AFFINE_TYPES(AFFINE_WEIGHTS_OF)};

static const uint8_t *scales_at(const ht_panel_layout *l, const uint8_t *panel, int64_t k, int64_t block) {
    return panel + k / HT_QBLOCK * 64 * l->bits + block / l->group * l->scale_bytes;
}

static void order_weights(ht_qpanel *to, int n) {
    for (int b = 0; HT_ABREAST > 1 && b < n; b++) {
        v16i w[8];
        for (int j = 0; j < 8; j++) w[j] = v16i_load_bytes(to->w[b] + 64 * j);
        v16r_order(w);
        for (int j = 0; j < 8; j++) v16i_store((int32_t *)(void *)(to->w[b] + 64 * j), w[j]);
    }
}

void HT_ISA_NAME(ht_decode)(ht_weight_type type, const void *panel, int64_t k, int64_t block, int n, void *to) {
    const ht_panel_layout *l = ht_panel_layout_of(type);
    ht_qpanel *q = to;
    if (l->unpacked) {
        ht_codebook_panel(type, panel, k, block, n, q);
        order_weights(q, n);
        return;
    }
    weights_of[type]((const uint8_t *)panel + block * 64 * l->bits, n, true, q);
    scales_of[type](l, scales_at(l, panel, k, block), n, q->scale, q->min);
}

/* ---- exact weights, for products with the transposed matrix ---- */

/* Block b of a panel as f32 [32][16], a column of the panel after the other. */
static void widen_block(const ht_panel_layout *l, bool wide, const ht_qpanel *from, int b, float *to) {
    const int bits = ht_weight_bits(l->bits, l->codes);
    const bool bytes = bits == 8, is_signed = bytes && HT_DOT_BIAS_8 == 0;
    const v16i flip = v16i_set1(is_signed ? 128 : 0);
    const v16i bias = v16i_add(flip, v16i_set1(bytes ? HT_DOT_BIAS_8 - 128 * l->has_min : l->has_min ? 0 : l->bias));
    for (int j = 0; j < 8; j++) {
        const int at = l->halves * b + (l->halves == 2 && j >= 4);
        const v16i w = v16i_load_bytes(from->w[b] + 64 * j);
        const v16f scale = v16f_load(from->scale[at]), min = l->has_min ? v16f_load(from->min[at]) : v16f_zero();
        HT_UNROLL
        for (int i = 0; i < 4; i++, to += HT_PANEL) {
            const v16i q = v16i_xor(v16i_and(ht_shift(w, -8 * i), v16i_set1(255)), flip);
            v16f value = v16f_from_i(v16i_sub(q, bias));
            /* With scales of 32 bits the product is rounded, as where the weights come from. */
            if (!l->has_min || wide) value = v16f_mul(value, scale);
            if (l->has_min) value = wide ? v16f_add(value, min) : v16f_fma(value, scale, min);
            v16f_store(to, value);
        }
    }
}

void HT_ISA_NAME(ht_widen_blocks)(ht_weight_type type, const void *panel, int64_t k, int64_t block, int n, float *to) {
    enum { CHUNK = HT_QCHUNK / 8 * 8 };
    const ht_panel_layout *l = ht_panel_layout_of(type);
    const bool wide = scales_of[type] == affine_F32;
    ht_qpanel chunk;
    for (int done = 0; done < n; done += CHUNK, block += CHUNK) {
        const int some = n - done < CHUNK ? n - done : CHUNK;
        weights_of[type]((const uint8_t *)panel + block * 64 * l->bits, some, false, &chunk);
        scales_of[type](l, scales_at(l, panel, k, block), some, chunk.scale, chunk.min);
        for (int b = 0; b < some; b++, to += HT_QBLOCK_W) widen_block(l, wide, &chunk, b, to);
    }
}

/* ---- from the packed panels: few rows, each block decoded into registers ---- */

/* The sums of rows [first, first + some) over the halves of a block, times its scales, and all of it times that of x, to
 * y. With two planes, d[h][i] and d[h][i + 1] are of one row. */
HT_INLINE void add_rows(ht_qkind kind, int planes, v16i d[2][DIRECT_ROWS], const float (*scale)[HT_PANEL],
                        const float (*min)[HT_PANEL], const tile *x, int n_x, int first, int some,
                        v16f y[DIRECT_ROWS]) {
    const int last = planes - 1;
    HT_UNROLL
    for (int i = 0; i + last < some; i += planes) {
        v16f t = v16f_zero();
        for (int h = 0; h < kind.halves; h++) {
            const v16i whole = planes == 2 ? ht_join_planes(d[h][i], d[h][i + last]) : d[h][i];
            const v16f sum = v16f_mul(v16f_from_i(whole), v16f_load(scale[h]));
            t = h ? v16f_add(t, sum) : sum;
        }
        const float *sums = (const float *)(const void *)x->offset + first + i + last;
        for (int h = 0; h < kind.halves && kind.has_min; h++)
            t = v16f_fma(v16f_load(min[h]), v16f_set1(sums[h * n_x]), t);
        v16f *to = &y[(first + i) / planes];
        *to = v16f_fma(t, v16f_set1(x->scale[first + i + last]), *to);
    }
}

/* Adds the products of one decoded block and rows [first, first + some) to y, with the steps of all rows interleaved.
 * The first rows prefetch one line ahead of `unit` per step: prefetching all at once would stall the products. */
HT_INLINE void direct_rows(ht_qkind kind, int planes, const v16i w[8], const float (*scale)[HT_PANEL],
                           const float (*min)[HT_PANEL], const tile *x, int n_x, int first, int some,
                           const uint8_t *unit, v16f y[DIRECT_ROWS]) {
    const int halves = kind.halves, steps = 8 / halves;
    v16i sum[2][DIRECT_ROWS];
    HT_UNROLL
    for (int h = 0; h < halves; h++) {
        v16d d[DIRECT_ROWS];
        HT_UNROLL
        for (int i = 0; i < some; i++) d[i] = v16d_start(sum_start(kind, x, n_x, h, first + i));
        HT_UNROLL
        for (int j = 0; j < steps; j++) {
            if (FETCH_BY_STEP && first == 0 && steps * h + j < kind.bits) ht_fetch_ahead(unit + 64 * (steps * h + j));
            HT_UNROLL
            for (int i = 0; i < some; i++)
                d[i] = v16d_step4(d[i], w[steps * h + j], x->q + HT_QBLOCK * (first + i) + 4 * (steps * h + j),
                                  kind.step_bits, steps, j);
        }
        HT_UNROLL
        for (int i = 0; i < some; i++) sum[h][i] = v16d_sum(d[i], sum_start(kind, x, n_x, h, first + i));
    }
    if (planes == 2)
        add_rows(kind, 2, sum, scale, min, x, n_x, first, some, y);
    else
        add_rows(kind, 1, sum, scale, min, x, n_x, first, some, y);
}

/* One panel against a tile of n_x rows, in sums for `rows`. Scales are decoded eight blocks at a time. */
HT_INLINE void direct_panel(ht_qkind kind, const ht_panel_layout *l, scales_fn *decode_scales, const uint8_t *panel,
                            int64_t k, int planes, tile x, int rows, int n_x, const ht_gemm_out *out, int first,
                            int p) {
    const int abreast = kind.halves == 1 ? DIRECT_ABREAST : DIRECT_ABREAST_HALVES;
    const int64_t n_blocks = k / HT_QBLOCK;
    const int scales_bytes = 8 * l->scale_bytes / l->group;
    const uint8_t *unit = panel, *scales = panel + n_blocks * 64 * kind.bits;
    float scale[16][HT_PANEL], min[16][HT_PANEL];
    v16f y[DIRECT_ROWS];
    for (int i = 0; i < rows; i++) y[i] = v16f_zero();
    for (int64_t block = 0; block < n_blocks; block += 8, scales += scales_bytes) {
        const int n = n_blocks - block < 8 ? (int)(n_blocks - block) : 8;
        decode_scales(l, scales, n, scale, min);
        for (int b = 0; b < n; b++, unit += 64 * kind.bits) {
            v16i w[8];
            if (64 * b < scales_bytes) ht_fetch_ahead(scales + 64 * b);
            for (int i = 0; i < kind.bits && !FETCH_BY_STEP; i++) ht_fetch_ahead(unit + 64 * i);
            ht_decode_weights(kind.bits, kind.codes, unit, w);
            HT_UNROLL
            for (int i = 0; i < rows; i += abreast)
                direct_rows(kind, planes, w, scale + kind.halves * b, min + kind.halves * b, &x, n_x, i,
                            rows - i < abreast ? rows - i : abreast, unit, y);
            advance(kind, &x, n_x);
        }
    }
    if (planes == 2)
        ht_store_rows(out, first / 2, rows / 2, n_x / 2, p, ht_lanes_of(out, p), y);
    else
        ht_store_rows(out, first, rows, n_x, p, ht_lanes_of(out, p), y);
}

HT_INLINE void direct_panels(ht_qkind kind, ht_weight_type type, const uint8_t *panels, int64_t k, const ht_qtiles *x,
                             int64_t t, int rows, const ht_gemm_out *out) {
    const ht_panel_layout *l = ht_panel_layout_of(type);
    const size_t panel_bytes = ht_panel_bytes(type, k);
    const int n = (int)ht_panel_count(out->n), n_x = ht_qtile_rows(x->x, t);
    const tile at = tile_at(kind, x, t, 0, n_x);
    for (int p = 0; p < n; p++, panels += panel_bytes)
        direct_panel(kind, l, scales_of[type], panels, k, x->x->planes, at, rows, n_x, out,
                     (int)ht_qtile_first(x->x, t), p);
}

typedef void direct_fn(ht_weight_type type, const void *panels, int64_t k, const ht_qtiles *x, const ht_gemm_out *out);

#define DIRECT(n) direct_panels(kind, type, panels, k, x, t, n, out)

#define DIRECT_SHAPE(bits, halves, has_min, codes)                                                                     \
    static void direct_##bits##_##halves##_##has_min##_##codes(ht_weight_type type, const void *panels, int64_t k,     \
                                                               const ht_qtiles *x, const ht_gemm_out *out) {           \
        const ht_qkind kind = {bits, codes, ht_weight_bits(bits, codes), halves, has_min};                             \
        for (int64_t t = x->first; t < x->last; t++) {                                                                 \
            HT_WITH_DIRECT_ROWS(ht_qtile_rows(x->x, t), DIRECT);                                                       \
        }                                                                                                              \
    }
DIRECT_SHAPE(2, 1, 0, HT_CODES_NONE)
DIRECT_SHAPE(2, 1, 1, HT_CODES_NONE)
DIRECT_SHAPE(2, 2, 1, HT_CODES_NONE)
DIRECT_SHAPE(3, 1, 1, HT_CODES_NONE)
DIRECT_SHAPE(3, 2, 0, HT_CODES_NONE)
DIRECT_SHAPE(4, 1, 0, HT_CODES_NONE)
DIRECT_SHAPE(4, 1, 1, HT_CODES_NONE)
DIRECT_SHAPE(5, 1, 0, HT_CODES_NONE)
DIRECT_SHAPE(5, 1, 1, HT_CODES_NONE)
DIRECT_SHAPE(6, 1, 1, HT_CODES_NONE)
DIRECT_SHAPE(6, 2, 0, HT_CODES_NONE)
DIRECT_SHAPE(8, 1, 0, HT_CODES_NONE)
DIRECT_SHAPE(8, 1, 1, HT_CODES_NONE)
DIRECT_SHAPE(4, 1, 0, HT_CODES_IQ4)
DIRECT_SHAPE(4, 1, 0, HT_CODES_E2M1)
DIRECT_SHAPE(4, 2, 0, HT_CODES_E2M1)

#define DIRECT_OF(type, bits, bias, halves, has_min, group, scale_bytes, codes)                                        \
    [HT_W_##type] = direct_##bits##_##halves##_##has_min##_##codes,
/* Scales of 32 bits are rare: they go through decoded panels, as unpacked types do. */
#define DIRECT_WITH_F16(bits)                  direct_##bits##_1_1_HT_CODES_NONE
#define DIRECT_WITH_BF16(bits)                 direct_##bits##_1_1_HT_CODES_NONE
#define DIRECT_WITH_F32(bits)                  NULL
#define AFFINE_DIRECT_OF(type, bits, group, s) [HT_W_##type] = DIRECT_WITH_##s(bits),
static direct_fn *const direct_of[HT_W_COUNT] = {HT_QUANTISED_TYPES(DIRECT_OF) HT_AFFINE_TYPES(AFFINE_DIRECT_OF)};

/* ---- through a decoded panel: many rows ---- */

/* The row processed together with row i: the next one, or i itself. */
HT_INLINE int beside(int i, int end) { return i + HT_ABREAST <= end ? i + HT_ABREAST - 1 : i; }

/* Adds the block's products with rows first to end - 1 to y. */
HT_INLINE void decoded_block(ht_qkind kind, int planes, const ht_qpanel *panels, int b, const tile *x, int n_x,
                             int first, int end, v16f y[TILE_PANELS][DIRECT_ROWS]) {
    const int halves = kind.halves, steps = 8 / halves, last = planes - 1;
    v16f t[TILE_PANELS][DIRECT_ROWS];
    HT_UNROLL
    for (int i = first; i < end; i += planes) HT_UNROLL
    for (int p = 0; p < TILE_PANELS; p++) t[p][i] = v16f_zero();
    HT_UNROLL
    for (int h = 0; h < halves; h++) {
        v16r d[TILE_PANELS][DIRECT_ROWS];
        HT_UNROLL
        for (int i = first; i < end; i += HT_ABREAST) HT_UNROLL
        for (int p = 0; p < TILE_PANELS; p++)
            d[p][i] = v16r_start(sum_start(kind, x, n_x, h, i), sum_start(kind, x, n_x, h, beside(i, end)));
        HT_UNROLL
        for (int j = 0; j < steps; j++) {
            v16i w[TILE_PANELS];
            HT_UNROLL
            for (int p = 0; p < TILE_PANELS; p++) w[p] = v16i_load_bytes(panels[p].w[b] + 64 * (steps * h + j));
            HT_UNROLL
            for (int i = first; i < end; i += HT_ABREAST) {
                const int8_t *q = x->q + HT_QBLOCK * i, *q1 = x->q + HT_QBLOCK * beside(i, end);
                HT_UNROLL
                for (int p = 0; p < TILE_PANELS; p++)
                    d[p][i] = v16r_step(d[p][i], w[p], v16r_load(q, q1, steps * h + j), kind.step_bits, steps, j);
            }
        }
        HT_UNROLL
        for (int p = 0; p < TILE_PANELS; p++) {
            v16f scale = v16f_load(panels[p].scale[halves * b + h]);
            HT_UNROLL
            for (int i = first; i < end; i += planes) {
                const int of = (i - first) % HT_ABREAST, low = (i + last - first) % HT_ABREAST;
                v16i whole = v16r_sum(d[p][i + last - low], low, sum_start(kind, x, n_x, h, i + last));
                if (planes == 2) whole = ht_join_planes(v16r_sum(d[p][i - of], of, 0), whole);
                v16f sum = v16f_mul(v16f_from_i(whole), scale);
                t[p][i] = h ? v16f_add(t[p][i], sum) : sum;
            }
        }
    }
    for (int h = 0; h < halves && kind.has_min; h++) HT_UNROLL
    for (int p = 0; p < TILE_PANELS; p++) {
        v16f min = v16f_load(panels[p].min[halves * b + h]);
        HT_UNROLL
        for (int i = first; i < end; i += planes)
            t[p][i] = v16f_fma(min, v16f_set1(((const float *)(const void *)x->offset)[h * n_x + i + last]), t[p][i]);
    }
    HT_UNROLL
    for (int i = first; i < end; i += planes) HT_UNROLL
    for (int p = 0; p < TILE_PANELS; p++)
        y[p][i / planes] = v16f_fma(t[p][i], v16f_set1(x->scale[i + last]), y[p][i / planes]);
}

/* The results of rows [first, first + n) on their way to the first cache, where the next tile will look for them. */
HT_INLINE void fetch_results(const ht_gemm_out *out, int64_t first, int n) {
    const float *y = out->y + first * out->ldy + out->row;
    for (int i = 0; i < n; i++, y += out->ldy)
        for (int p = 0; p < TILE_PANELS; p++) HT_PREFETCH(y + HT_PANEL * p);
}

/* With two halves, and on ARM always, y, t and the sums are more than the registers hold. y then waits in memory from
 * block to block, where the compiler left to itself would put t and read the weights twice; with the few registers of
 * AVX2, and of a tile that is alone, some of the rows go at a time. */
#define KEEP_IN_MEMORY(v) __asm__ volatile("" : : "r"(v) : "memory")

HT_INLINE void decoded_tile(ht_qkind kind, int planes, const ht_qpanel *panels, int64_t block, int n,
                            const ht_qtiles *all, int64_t t, int rows, const ht_gemm_out *out) {
    const int n_x = ht_qtile_rows(all->x, t), half = (rows / planes + 1) / 2 * planes;
    const int n_y = rows / planes, first = (int)ht_qtile_first(all->x, t) / planes;
    tile x = tile_at(kind, all, t, block, n_x);
    v16f y[TILE_PANELS][DIRECT_ROWS];
    int lanes[TILE_PANELS];
    if (t + 1 < all->last) fetch_results(out, first + n_x / planes, ht_qtile_rows(all->x, t + 1) / planes);
    for (int p = 0; p < TILE_PANELS; p++) lanes[p] = ht_lanes_of(out, p);
    for (int p = 0; p < TILE_PANELS; p++)
        for (int i = 0; i < n_y; i++)
            y[p][i] =
                block && ht_row_exists(i, n_y, n_x / planes) ? ht_load_out(out, first + i, p, lanes[p]) : v16f_zero();
    for (int b = 0; b < n; b++) {
        if (rows > (planes == 2 ? TILE_PLANE_ROWS : TILE_ROWS) || (TILE_SPLITS && kind.halves == 2)) {
            decoded_block(kind, planes, panels, b, &x, n_x, 0, half, y);
            if (rows > half) decoded_block(kind, planes, panels, b, &x, n_x, half, rows, y);
        } else {
            if (TILE_SPILLS || kind.halves == 2) KEEP_IN_MEMORY(y);
            decoded_block(kind, planes, panels, b, &x, n_x, 0, rows, y);
        }
        advance(kind, &x, n_x);
    }
    for (int p = 0; p < TILE_PANELS; p++)
        for (int i = 0; i < n_y; i++)
            if (ht_row_exists(i, n_y, n_x / planes)) ht_store_out(out, first + i, p, lanes[p], y[p][i]);
}

/* ---- decoded panels against all rows: one loop for all types of one shape ---- */

/* Properties of a type that matter after decoding: halves, a minimum, and the bits of a weight if products are added in
 * 16 bits (simd_int.h) or 8-bit weights are signed. X(bits, halves, has_min): types of at most that many bits. */
#if HT_DOT_PAIRS
#define DECODED_SHAPES(X)                                                                                              \
    X(4, 1, 0)                                                                                                         \
    X(5, 1, 0)                                                                                                         \
    X(8, 1, 0)                                                                                                         \
    X(4, 1, 1)                                                                                                         \
    X(5, 1, 1)                                                                                                         \
    X(6, 1, 1)                                                                                                         \
    X(8, 1, 1)                                                                                                         \
    X(5, 2, 0)                                                                                                         \
    X(6, 2, 0)                                                                                                         \
    X(7, 2, 0)                                                                                                         \
    X(4, 2, 1)
#elif HT_DOT_SIGNED
#define DECODED_SHAPES(X) X(8, 1, 0) X(7, 1, 1) X(8, 1, 1) X(8, 2, 0) X(4, 2, 1)
#else
#define DECODED_SHAPES(X) X(8, 1, 0) X(8, 1, 1) X(8, 2, 0) X(4, 2, 1)
#endif

#define DECODED(n) decoded_tile(kind, planes, panels, block, count, x, t, n, out)

#define DECODED_SHAPE(bits, halves, has_min)                                                                           \
    static void decoded_##bits##_##halves##_##has_min(const ht_qpanel *panels, int64_t block, int count,               \
                                                      const ht_qtiles *x, const ht_gemm_out *out) {                    \
        const ht_qkind kind = {bits, HT_CODES_NONE, bits, halves, has_min};                                            \
        int planes = x->x->planes;                                                                                     \
        for (int64_t t = x->first; t < x->last; t++) {                                                                 \
            HT_WITH_NUMBER_ROWS(planes, ht_qtile_rows(x->x, t), DECODED);                                              \
        }                                                                                                              \
    }
DECODED_SHAPES(DECODED_SHAPE)

typedef struct decoded_shape {
    int bits, halves;
    bool has_min;
    void (*run)(const ht_qpanel *panels, int64_t block, int count, const ht_qtiles *x, const ht_gemm_out *out);
} decoded_shape;

#define SHAPE_ENTRY(bits, halves, has_min) {bits, halves, has_min, decoded_##bits##_##halves##_##has_min},
static const decoded_shape decoded_shapes[] = {DECODED_SHAPES(SHAPE_ENTRY)};

void HT_ISA_NAME(ht_decoded)(ht_weight_type type, const void *panels, int64_t block, int n, const ht_qtiles *x,
                             const ht_gemm_out *out) {
    const ht_panel_layout *l = ht_panel_layout_of(type);
    const int bits = ht_weight_bits(l->bits, l->codes);
    const decoded_shape *s = decoded_shapes;
    while (s->halves != l->halves || s->has_min != l->has_min || s->bits < bits) s++;
    s->run(panels, block, n, x, out);
}

void HT_ISA_NAME(ht_direct)(ht_weight_type type, const void *panels, int64_t k, const ht_qtiles *x,
                            const ht_gemm_out *out) {
    direct_of[type](type, panels, k, x, out);
}
