#include "cpu/vector/matrix_int8.h"

#include "base/checked.h"
#include "cpu/codebook_panel.h"
#include "cpu/vector/decode.h"
#include "cpu/vector/tile.h"

/* Of some sums, what the weights' bias, or their minimum, needs of them. */
HT_INLINE void offsets_of(const ht_panel_layout *l, const int32_t *a, const int32_t *b, int n, void *to) {
    int32_t bias = ht_weight_bits(l->bits, l->codes) == 8 ? HT_DOT_BIAS_8 : l->bias;
    for (int i = 0; i < n; i++) {
        int32_t sum = b ? a[i] + b[i] : a[i];
        if (l->has_min)
            ((float *)to)[i] = (float)sum;
        else
            ((int32_t *)to)[i] = HT_SUM_BASE - bias * sum;
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
            offsets_of(l, sum, NULL, last - first, to);
            offsets_of(l, sum + n, NULL, last - first, to + 4 * n);
        } else
            offsets_of(l, sum, sum + n, last - first, to);
    }
}

/* ---- one block of one panel against rows of a tile ---- */

/* What a sum over a block or half of one is offset by. Of weights of 8 bits, all of them positive, products may have been
 * summed with 128 less. */
HT_INLINE int32_t sum_offset(ht_qkind kind, const void *offset, int at) {
    if (!kind.has_min) return ((const int32_t *)offset)[at];
    int32_t base = kind.wide ? 0 : HT_SUM_BASE;
    if (kind.bits < 8 || HT_DOT_BIAS_8 == 128) return base;
    return base + (128 - HT_DOT_BIAS_8) * (int32_t)((const float *)offset)[at];
}

/* Scales of more bits do without the sum's base. */
HT_INLINE v16f scaled_sum(ht_qkind kind, v16i sum, v16f scale, v16f base) {
    return kind.wide ? v16f_mul(v16f_from_i(sum), scale) : ht_scaled_sum(sum, scale, base);
}

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

/* The next block. */
HT_INLINE void advance(ht_qkind kind, tile *t, int n_x) {
    t->q += HT_QBLOCK * n_x;
    t->scale += n_x;
    t->offset += 4 * kind.halves * n_x;
}

/* ---- from the packed panels: few rows, each block decoded into registers ---- */

/* One decoded block against rows [first, first + some), step by step for all of them, folded into y. The first of them
 * ask for the lines ahead of `unit`, one per step: all at once they would hold up the products until most of them are on
 * their way. */
HT_INLINE void direct_rows(ht_qkind kind, const v16i w[8], const v16f *scale, const v16f *min, const tile *x, int n_x,
                           int first, int some, const uint8_t *unit, v16f y[DIRECT_ROWS]) {
    const int halves = kind.halves, steps = 8 / halves;
    v16f t[DIRECT_ROWS];
    for (int i = 0; i < some; i++) t[i] = v16f_zero();
    HT_UNROLL
    for (int h = 0; h < halves; h++) {
        v16d d[DIRECT_ROWS];
        HT_UNROLL
        for (int i = 0; i < some; i++) d[i] = v16d_start(sum_offset(kind, x->offset, h * n_x + first + i));
        HT_UNROLL
        for (int j = 0; j < steps; j++) {
            if (FETCH_BY_STEP && first == 0 && steps * h + j < kind.bits) ht_fetch_ahead(unit + 64 * (steps * h + j));
            HT_UNROLL
            for (int i = 0; i < some; i++)
                d[i] = v16d_step4(d[i], w[steps * h + j], x->q + HT_QBLOCK * (first + i) + 4 * (steps * h + j),
                                  ht_step_bits(kind), steps, j);
        }
        v16f base = ht_scale_base(scale[h]);
        HT_UNROLL
        for (int i = 0; i < some; i++) {
            v16i whole = v16d_sum(d[i], sum_offset(kind, x->offset, h * n_x + first + i));
            v16f sum = scaled_sum(kind, whole, scale[h], base);
            t[i] = h ? v16f_add(t[i], sum) : sum;
        }
    }
    HT_UNROLL
    for (int i = 0; i < some; i++) {
        const float *sums = (const float *)(const void *)x->offset + first + i;
        for (int h = 0; h < halves && kind.has_min; h++) t[i] = v16f_fma(min[h], v16f_set1(sums[h * n_x]), t[i]);
        y[first + i] = v16f_fma(t[i], v16f_set1(x->scale[first + i]), y[first + i]);
    }
}

HT_INLINE void direct_panel(ht_qkind kind, const uint8_t *panel, int64_t k, tile x, int n_x, const ht_gemm_out *out,
                            int64_t first, int p) {
    const int abreast = kind.halves == 1 ? DIRECT_ABREAST : DIRECT_ABREAST_HALVES;
    const uint8_t *unit = panel, *scales = panel + (size_t)(k / HT_QBLOCK) * 64 * (size_t)kind.bits;
    v16f y[DIRECT_ROWS];
    for (int i = 0; i < n_x; i++) y[i] = v16f_zero();
    for (int64_t g = 0; g < k / HT_QBLOCK / kind.group; g++, scales += kind.scale_bytes) {
        v16f scale[16], min[16];
        for (int i = 0; i < kind.scale_bytes; i += 64) ht_fetch_ahead(scales + i);
        ht_decode_scales(kind, scales, scale, min);
        for (int b = 0; b < kind.group; b++, unit += 64 * kind.bits) {
            v16i w[8];
            for (int i = 0; i < kind.bits && !FETCH_BY_STEP; i++) ht_fetch_ahead(unit + 64 * i);
            ht_decode_weights(kind, unit, w);
            HT_UNROLL
            for (int i = 0; i < n_x; i += abreast)
                direct_rows(kind, w, scale + ht_scale_of(kind, b), min + ht_scale_of(kind, b), &x, n_x, i,
                            n_x - i < abreast ? n_x - i : abreast, unit, y);
            advance(kind, &x, n_x);
        }
    }
    ht_store_rows(out, (int)first, n_x, p, ht_lanes_of(out, p), y);
}

HT_INLINE void direct_panels(ht_qkind kind, const uint8_t *panels, int64_t k, const ht_qtiles *x, int64_t t, int n_x,
                             const ht_gemm_out *out) {
    size_t panel_bytes = ht_panel_bytes(kind.type, k);
    int n = (int)ht_panel_count(out->n);
    tile at = tile_at(kind, x, t, 0, n_x);
    for (int p = 0; p < n; p++, panels += panel_bytes)
        direct_panel(kind, panels, k, at, n_x, out, ht_qtile_first(x->x, t), p);
}

/* ---- through a decoded panel: many rows ---- */

HT_INLINE void decode_panel(ht_qkind kind, const uint8_t *panel, int64_t k, int64_t block, int n, ht_qpanel *to) {
    const uint8_t *unit = panel + (size_t)block * 64 * (size_t)kind.bits;
    const uint8_t *scales = panel + (size_t)(k / HT_QBLOCK) * 64 * (size_t)kind.bits;
    scales += (size_t)(block / kind.group) * (size_t)kind.scale_bytes;
    for (int b = 0; b < n; b++, unit += 64 * kind.bits) {
        v16i w[8];
        for (int i = 0; i < kind.bits; i++) ht_fetch_far(unit + 64 * (n * kind.bits + i)); /* the next chunk */
        ht_decode_weights(kind, unit, w);
        v16r_order(w);
        for (int j = 0; j < 8; j++) v16i_store((int32_t *)(void *)(to->w[b] + 64 * j), w[j]);
    }
    for (int b = 0; b < n; b += kind.group, scales += kind.scale_bytes) {
        v16f scale[16], min[16];
        ht_decode_scales(kind, scales, scale, min);
        for (int i = 0; i < kind.group * kind.halves; i++) {
            const int of = kind.affine ? 0 : i;
            v16f_store(to->scale[b * kind.halves + i], scale[of]);
            if (kind.has_min) v16f_store(to->min[b * kind.halves + i], min[of]);
        }
    }
}

/* ---- exact weights, for products with the transposed matrix ---- */

/* One block as f32 [32][16], a column of the panel after the other. */
HT_INLINE void widen_block(ht_qkind kind, const uint8_t *unit, const v16f *scale, const v16f *min, float *to) {
    const bool bytes = ht_step_bits(kind) == 8, is_signed = bytes && HT_DOT_BIAS_8 == 0;
    const int unsigned_bias = kind.has_min ? 0 : kind.bias;
    const int bias = bytes ? HT_DOT_BIAS_8 - 128 * kind.has_min : unsigned_bias;
    v16i w[8];
    ht_decode_weights(kind, unit, w);
    HT_UNROLL
    for (int j = 0; j < 8; j++) {
        const int half = kind.halves == 2 && j >= 4;
        HT_UNROLL
        for (int i = 0; i < 4; i++) {
            v16i q = v16i_and(ht_shift(w[j], -8 * i), v16i_set1(255));
            if (is_signed) q = v16i_sub(v16i_xor(q, v16i_set1(128)), v16i_set1(128));
            v16f value = v16f_from_i(v16i_sub(q, v16i_set1(bias)));
            /* With scales of 32 bits the product is rounded, as where the weights come from. */
            if (kind.has_min && !kind.wide)
                value = v16f_fma(value, scale[half], min[half]);
            else
                value = v16f_mul(value, scale[half]);
            if (kind.wide) value = v16f_add(value, min[half]);
            v16f_store(to + (4 * j + i) * HT_PANEL, value);
        }
    }
}

HT_INLINE void widen_panel(ht_qkind kind, const uint8_t *panel, int64_t k, int64_t block, int n, float *to) {
    const uint8_t *unit = panel + (size_t)block * 64 * (size_t)kind.bits;
    const uint8_t *scales = panel + (size_t)(k / HT_QBLOCK) * 64 * (size_t)kind.bits;
    scales += (size_t)(block / kind.group) * (size_t)kind.scale_bytes;
    for (int b = 0; b < n; b += kind.group, scales += kind.scale_bytes) {
        v16f scale[16], min[16];
        ht_decode_scales(kind, scales, scale, min);
        for (int g = 0; g < kind.group; g++, unit += 64 * kind.bits, to += HT_QBLOCK * HT_PANEL)
            widen_block(kind, unit, scale + ht_scale_of(kind, g), min + ht_scale_of(kind, g), to);
    }
}

/* The row that goes beside row i: the next one, or itself. */
HT_INLINE int beside(int i, int end) { return i + HT_ABREAST <= end ? i + HT_ABREAST - 1 : i; }

/* The block's t of rows first .. end - 1, folded into y. */
HT_INLINE void decoded_block(ht_qkind kind, const ht_qpanel *panels, int b, const tile *x, int n_x, int first, int end,
                             v16f y[TILE_PANELS][DIRECT_ROWS]) {
    const int halves = kind.halves, steps = 8 / halves;
    v16f t[TILE_PANELS][DIRECT_ROWS];
    HT_UNROLL
    for (int i = first; i < end; i++) HT_UNROLL
    for (int p = 0; p < TILE_PANELS; p++) t[p][i] = v16f_zero();
    HT_UNROLL
    for (int h = 0; h < halves; h++) {
        v16r d[TILE_PANELS][DIRECT_ROWS];
        HT_UNROLL
        for (int i = first; i < end; i += HT_ABREAST) HT_UNROLL
        for (int p = 0; p < TILE_PANELS; p++)
            d[p][i] = v16r_start(sum_offset(kind, x->offset, h * n_x + i),
                                 sum_offset(kind, x->offset, h * n_x + beside(i, end)));
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
                    d[p][i] = v16r_step(d[p][i], w[p], v16r_load(q, q1, steps * h + j), ht_step_bits(kind), steps, j);
            }
        }
        HT_UNROLL
        for (int p = 0; p < TILE_PANELS; p++) {
            v16f scale = v16f_load(panels[p].scale[halves * b + h]), base = ht_scale_base(scale);
            HT_UNROLL
            for (int i = first; i < end; i++) {
                int of = (i - first) % HT_ABREAST;
                v16i whole = v16r_sum(d[p][i - of], of, sum_offset(kind, x->offset, h * n_x + i));
                v16f sum = scaled_sum(kind, whole, scale, base);
                t[p][i] = h ? v16f_add(t[p][i], sum) : sum;
            }
        }
    }
    for (int h = 0; h < halves && kind.has_min; h++) HT_UNROLL
    for (int p = 0; p < TILE_PANELS; p++) {
        v16f min = v16f_load(panels[p].min[halves * b + h]);
        HT_UNROLL
        for (int i = first; i < end; i++)
            t[p][i] = v16f_fma(min, v16f_set1(((const float *)(const void *)x->offset)[h * n_x + i]), t[p][i]);
    }
    HT_UNROLL
    for (int i = first; i < end; i++) HT_UNROLL
    for (int p = 0; p < TILE_PANELS; p++) y[p][i] = v16f_fma(t[p][i], v16f_set1(x->scale[i]), y[p][i]);
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

HT_INLINE void decoded_tile(ht_qkind kind, const ht_qpanel *panels, int64_t block, int n, const ht_qtiles *all,
                            int64_t t, int n_x, const ht_gemm_out *out) {
    tile x = tile_at(kind, all, t, block, n_x);
    const int first = (int)ht_qtile_first(all->x, t), half = (n_x + 1) / 2;
    v16f y[TILE_PANELS][DIRECT_ROWS];
    int lanes[TILE_PANELS];
    if (t + 1 < all->last) fetch_results(out, first + n_x, ht_qtile_rows(all->x, t + 1));
    for (int p = 0; p < TILE_PANELS; p++) lanes[p] = ht_lanes_of(out, p);
    for (int p = 0; p < TILE_PANELS; p++)
        for (int i = 0; i < n_x; i++) y[p][i] = block ? ht_load_out(out, first + i, p, lanes[p]) : v16f_zero();
    for (int b = 0; b < n; b++) {
        if (n_x > TILE_ROWS || (TILE_SPLITS && kind.halves == 2)) {
            decoded_block(kind, panels, b, &x, n_x, 0, half, y);
            if (n_x > half) decoded_block(kind, panels, b, &x, n_x, half, n_x, y);
        } else {
            if (TILE_SPILLS || kind.halves == 2) KEEP_IN_MEMORY(y);
            decoded_block(kind, panels, b, &x, n_x, 0, n_x, y);
        }
        advance(kind, &x, n_x);
    }
    for (int p = 0; p < TILE_PANELS; p++)
        for (int i = 0; i < n_x; i++) ht_store_out(out, first + i, p, lanes[p], y[p][i]);
}

/* ---- decoded panels against all rows: one loop for all types of one shape ---- */

#define DECODED(n) decoded_tile(kind, panels, block, count, x, t, n, out)

/* What is left of a type behind its decoded panels: how many products fit 16 bits (simd_int.h), by the bits of a weight, 2 to 4
 * being alike; halves; an offset; and scales of 32 bits. WITH says how many rows a tile may have: more, of types that have
 * no other way. */
#define DECODED_SHAPE(name, step_bits, halves, has_min, wide, WITH)                                                    \
    static void decoded_##name(const ht_qpanel *panels, int64_t block, int count, const ht_qtiles *x,                  \
                               const ht_gemm_out *out) {                                                               \
        const ht_qkind kind = {HT_W_COUNT, step_bits, 0, halves, has_min, 1, 0, HT_CODES_NONE, 0, wide, HT_W_COUNT};   \
        for (int64_t t = x->first; t < x->last; t++) {                                                                 \
            WITH(ht_qtile_rows(x->x, t), DECODED);                                                                     \
        }                                                                                                              \
    }
DECODED_SHAPE(4, 4, 1, 0, 0, HT_WITH_DIRECT_ROWS)
DECODED_SHAPE(5, 5, 1, 0, 0, HT_WITH_DIRECT_ROWS)
DECODED_SHAPE(7, 7, 1, 0, 0, HT_WITH_DIRECT_ROWS)
DECODED_SHAPE(8, 8, 1, 0, 0, HT_WITH_ROWS)
DECODED_SHAPE(4_min, 4, 1, 1, 0, HT_WITH_ROWS)
DECODED_SHAPE(5_min, 5, 1, 1, 0, HT_WITH_ROWS)
DECODED_SHAPE(6_min, 6, 1, 1, 0, HT_WITH_ROWS)
DECODED_SHAPE(8_min, 8, 1, 1, 0, HT_WITH_ROWS)
DECODED_SHAPE(4_halves, 4, 2, 0, 0, HT_WITH_ROWS)
DECODED_SHAPE(5_halves, 5, 2, 0, 0, HT_WITH_DIRECT_ROWS)
DECODED_SHAPE(6_halves, 6, 2, 0, 0, HT_WITH_ROWS)
DECODED_SHAPE(7_halves, 7, 2, 0, 0, HT_WITH_DIRECT_ROWS)
DECODED_SHAPE(4_halves_min, 4, 2, 1, 0, HT_WITH_ROWS)
DECODED_SHAPE(6_wide, 6, 1, 1, 1, HT_WITH_DIRECT_ROWS)
DECODED_SHAPE(8_wide, 8, 1, 1, 1, HT_WITH_DIRECT_ROWS)

typedef void decoded_fn(const ht_qpanel *panels, int64_t block, int count, const ht_qtiles *x, const ht_gemm_out *out);

/* That of a type, which is known where this is called. */
HT_INLINE decoded_fn *decoded_of(ht_qkind kind) {
    const int bits = ht_step_bits(kind);
    if (kind.wide) return bits <= 6 ? decoded_6_wide : decoded_8_wide;
    if (kind.halves == 2 && kind.has_min) return decoded_4_halves_min;
    if (kind.halves == 2)
        return bits <= 4   ? decoded_4_halves
               : bits == 5 ? decoded_5_halves
               : bits == 6 ? decoded_6_halves
                           : decoded_7_halves;
    if (kind.has_min)
        return bits <= 4 ? decoded_4_min : bits == 5 ? decoded_5_min : bits == 6 ? decoded_6_min : decoded_8_min;
    return bits <= 4 ? decoded_4 : bits == 5 ? decoded_5 : bits == 7 ? decoded_7 : decoded_8;
}

void HT_ISA_NAME(ht_join_planes)(const float *y, int64_t ld, int64_t n, const ht_gemm_out *out) {
    const int panels = (int)ht_panel_count(out->n);
    for (int64_t i = 0; i < n; i++, y += 2 * ld)
        for (int p = 0; p < panels; p++) {
            const v16f sum = v16f_add(v16f_load(y + HT_PANEL * p), v16f_load(y + ld + HT_PANEL * p));
            ht_store_out(out, (int)i, p, ht_lanes_of(out, p), sum);
        }
}

/* ---- the same for every type ---- */

#define DIRECT(n) direct_panels(kind, panels, k, x, t, n, out)

#define KIND(type, ...) const ht_qkind kind = {HT_W_##type, __VA_ARGS__, 0, 0, HT_W_COUNT}

#define FUNCTIONS(type, ...)                                                                                           \
    void HT_ISA_NAME(ht_direct_##type)(const void *panels, int64_t k, const ht_qtiles *x, const ht_gemm_out *out) {    \
        KIND(type, __VA_ARGS__);                                                                                       \
        for (int64_t t = x->first; t < x->last; t++) {                                                                 \
            HT_WITH_DIRECT_ROWS(ht_qtile_rows(x->x, t), DIRECT);                                                       \
        }                                                                                                              \
    }                                                                                                                  \
    void HT_ISA_NAME(ht_decode_##type)(const void *panel, int64_t k, int64_t block, int n, void *to) {                 \
        KIND(type, __VA_ARGS__);                                                                                       \
        decode_panel(kind, panel, k, block, n, to);                                                                    \
    }                                                                                                                  \
    void HT_ISA_NAME(ht_decoded_##type)(const void *panels, int64_t block, int count, const ht_qtiles *x,              \
                                        const ht_gemm_out *out) {                                                      \
        KIND(type, __VA_ARGS__);                                                                                       \
        decoded_of(kind)(panels, block, count, x, out);                                                                \
    }                                                                                                                  \
    void HT_ISA_NAME(ht_widen_##type)(const void *panel, int64_t k, int64_t block, int n, float *to) {                 \
        KIND(type, __VA_ARGS__);                                                                                       \
        widen_panel(kind, panel, k, block, n, to);                                                                     \
    }

HT_QUANTISED_TYPES(FUNCTIONS)

/* ---- unpacked types: always through decoded panels ---- */

static void unpack(ht_weight_type type, const uint8_t *panel, int64_t k, int64_t block, int n, ht_qpanel *to) {
    ht_codebook_panel(type, panel, k, block, n, to);
    for (int b = 0; HT_ABREAST > 1 && b < n; b++) {
        v16i w[8];
        for (int j = 0; j < 8; j++) w[j] = v16i_load_bytes(to->w[b] + 64 * j);
        v16r_order(w);
        for (int j = 0; j < 8; j++) v16i_store((int32_t *)(void *)(to->w[b] + 64 * j), w[j]);
    }
}

typedef void decode_fn(const void *panel, int64_t k, int64_t block, int n, void *to);

/* A chunk of TILE_PANELS panels at a time meets all rows. */
static void direct_through_panels(ht_weight_type type, decode_fn *decode, decoded_fn *decoded, const uint8_t *panels,
                                  int64_t k, const ht_qtiles *x, const ht_gemm_out *out) {
    const size_t panel_bytes = ht_panel_bytes(type, k);
    const int64_t n_blocks = k / HT_QBLOCK, chunk = HT_QCHUNK / 8 * 8;
    ht_qpanel room[TILE_PANELS];
    for (int64_t row = 0; row < out->n; row += TILE_PANELS * HT_PANEL, panels += TILE_PANELS * panel_bytes) {
        ht_gemm_out part = *out;
        part.row += row;
        part.n = ht_min_i64(TILE_PANELS * HT_PANEL, out->n - row);
        for (int64_t block = 0; block < n_blocks; block += chunk) {
            int n = (int)ht_min_i64(chunk, n_blocks - block);
            for (int64_t p = 0; p < TILE_PANELS; p++) /* there is always one to compute with */
                decode(panels + (p < ht_panel_count(part.n) ? (size_t)p * panel_bytes : 0), k, block, n, &room[p]);
            part.bias = block + n < n_blocks ? NULL : out->bias;
            decoded(room, block, n, x, &part);
        }
    }
}

HT_INLINE decoded_fn *decoded_of_unpacked(int bits, int halves) {
    return decoded_of((ht_qkind){.bits = bits, .halves = halves, .codes = HT_CODES_NONE});
}

#define UNPACKED_FUNCTIONS(type, bits, bias, halves, group)                                                            \
    void HT_ISA_NAME(ht_direct_##type)(const void *panels, int64_t k, const ht_qtiles *x, const ht_gemm_out *out) {    \
        direct_through_panels(HT_W_##type, HT_ISA_NAME(ht_decode_##type), decoded_of_unpacked(bits, halves), panels,   \
                              k, x, out);                                                                              \
    }                                                                                                                  \
    void HT_ISA_NAME(ht_decode_##type)(const void *panel, int64_t k, int64_t block, int n, void *to) {                 \
        unpack(HT_W_##type, panel, k, block, n, to);                                                                   \
    }                                                                                                                  \
    void HT_ISA_NAME(ht_decoded_##type)(const void *panels, int64_t block, int count, const ht_qtiles *x,              \
                                        const ht_gemm_out *out) {                                                      \
        decoded_of_unpacked(bits, halves)(panels, block, count, x, out);                                               \
    }

HT_UNPACKED_TYPES(UNPACKED_FUNCTIONS)

/* ---- MLX's groups: one loop for all types of as many bits ---- */

HT_INLINE ht_qkind affine_kind(ht_weight_type type, int bits, int group, ht_weight_type scale) {
    const int wide = scale == HT_W_F32;
    return (ht_qkind){.type = type,
                      .bits = bits,
                      .halves = 1,
                      .has_min = 1,
                      .group = group / HT_QBLOCK,
                      .scale_bytes = 2 * HT_PANEL * (wide ? 4 : 2),
                      .affine = 1,
                      .wide = wide,
                      .scale = scale};
}

#define AFFINE_DIRECT(bits)                                                                                            \
    static void direct_affine_##bits(ht_weight_type type, int group, ht_weight_type scale, const uint8_t *panels,      \
                                     int64_t k, const ht_qtiles *x, const ht_gemm_out *out) {                          \
        ht_qkind kind = affine_kind(type, bits, group, HT_W_F16);                                                      \
        kind.scale = scale;                                                                                            \
        for (int64_t t = x->first; t < x->last; t++) {                                                                 \
            HT_WITH_DIRECT_ROWS(ht_qtile_rows(x->x, t), DIRECT);                                                       \
        }                                                                                                              \
    }
AFFINE_DIRECT(2)
AFFINE_DIRECT(3)
AFFINE_DIRECT(4)
AFFINE_DIRECT(5)
AFFINE_DIRECT(6)
AFFINE_DIRECT(8)

/* Scales of 32 bits are rare: not worth a loop of their own for few rows. */
#define DIRECT_F16(type, bits, group)  direct_affine_##bits(HT_W_##type, group, HT_W_F16, panels, k, x, out)
#define DIRECT_BF16(type, bits, group) direct_affine_##bits(HT_W_##type, group, HT_W_BF16, panels, k, x, out)
#define DIRECT_F32(type, bits, group)                                                                                  \
    direct_through_panels(HT_W_##type, HT_ISA_NAME(ht_decode_##type),                                                  \
                          decoded_of(affine_kind(HT_W_##type, bits, group, HT_W_F32)), panels, k, x, out)

#define AFFINE_DECODE(bits)                                                                                            \
    static void decode_affine_##bits(ht_weight_type type, int group, ht_weight_type scale, const uint8_t *panel,       \
                                     int64_t k, int64_t block, int n, ht_qpanel *to) {                                 \
        decode_panel(affine_kind(type, bits, group, scale), panel, k, block, n, to);                                   \
    }                                                                                                                  \
    static void widen_affine_##bits(ht_weight_type type, int group, ht_weight_type scale, const uint8_t *panel,        \
                                    int64_t k, int64_t block, int n, float *to) {                                      \
        widen_panel(affine_kind(type, bits, group, scale), panel, k, block, n, to);                                    \
    }
AFFINE_DECODE(2)
AFFINE_DECODE(3)
AFFINE_DECODE(4)
AFFINE_DECODE(5)
AFFINE_DECODE(6)
AFFINE_DECODE(8)

#define AFFINE_FUNCTIONS(type, bits, group, scale)                                                                     \
    void HT_ISA_NAME(ht_decode_##type)(const void *panel, int64_t k, int64_t block, int n, void *to) {                 \
        decode_affine_##bits(HT_W_##type, group, HT_W_##scale, panel, k, block, n, to);                                \
    }                                                                                                                  \
    void HT_ISA_NAME(ht_widen_##type)(const void *panel, int64_t k, int64_t block, int n, float *to) {                 \
        widen_affine_##bits(HT_W_##type, group, HT_W_##scale, panel, k, block, n, to);                                 \
    }                                                                                                                  \
    void HT_ISA_NAME(ht_direct_##type)(const void *panels, int64_t k, const ht_qtiles *x, const ht_gemm_out *out) {    \
        DIRECT_##scale(type, bits, group);                                                                             \
    }                                                                                                                  \
    void HT_ISA_NAME(ht_decoded_##type)(const void *panels, int64_t block, int count, const ht_qtiles *x,              \
                                        const ht_gemm_out *out) {                                                      \
        decoded_of(affine_kind(HT_W_##type, bits, group, HT_W_##scale))(panels, block, count, x, out);                 \
    }

HT_AFFINE_TYPES(AFFINE_FUNCTIONS)
