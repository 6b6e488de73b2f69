#include "cpu/vector/matrix_int16.h"

#if HT_DOT_WORDS

#include "base/checked.h"
#include "cpu/vector/tile.h"

#include <float.h>

/* How many bytes ahead of the weights at work, a block at a time: into the second cache in time for memory, and from
 * there into the first. The hardware does neither across the end of a page, and alone reaches half the speed. */
enum { FETCH_FAR = 8192, FETCH_NEAR = 2048 };

enum {
    STEPS = HT_QBLOCK / 2, /* of a block */
    BLOCK_BYTES = 64 * STEPS,
    LEAST_BF16 = 16 /* exponent of which a block's scale is made at least: that of 2^-111 */
};

/* ---- activations ---- */

HT_INLINE float words_of_block(v16f x0, v16f x1, int16_t *q) {
    float s = v16f_hmax(v16f_max(v16f_abs(x0), v16f_abs(x1))) / (float)HT_WORD_X;
    if (m16_any(v16f_is_nan(v16f_add(x0, x1))) || !(s <= FLT_MAX)) {
        /* A maximum may drop a NaN, and an infinity has no valid numbers: the NaN scale makes the output NaN. */
        memset(q, 0, 32 * sizeof *q);
        return __builtin_nanf("");
    }
    v16f inverse = v16f_set1(s > 0.0f ? 1.0f / s : 0.0f);
    v16i_store_u16((uint16_t *)q, v16i_nearest(v16f_mul(x0, inverse)));
    v16i_store_u16((uint16_t *)q + 16, v16i_nearest(v16f_mul(x1, inverse)));
    return s;
}

void HT_ISA_NAME(ht_prepare_words)(const float *x, int64_t ldx, int64_t k, const ht_qrows *to, int64_t tile, int first,
                                   int last) {
    const int64_t n = ht_qtile_rows(to, tile), row = ht_qtile_first(to, tile), start = row * to->n_blocks;
    int64_t b = ht_first_block(to, tile, first);
    for (int64_t done = 0; done < to->n_blocks; done++, b = b + 1 < to->n_blocks ? b + 1 : 0) {
        const int left = (int)(k - HT_QBLOCK * b < HT_QBLOCK ? k - HT_QBLOCK * b : HT_QBLOCK);
        for (int i = first; i < last; i++) {
            const float *from = x + (row + i) * ldx + HT_QBLOCK * b;
            int64_t at = start + n * b + i;
            int16_t *q = to->word + HT_QBLOCK * at;
            if (left == HT_QBLOCK)
                to->scale[at] = words_of_block(v16f_load(from), v16f_load(from + 16), q);
            else
                to->scale[at] = words_of_block(v16f_load_n(from, left < 16 ? left : 16),
                                               left > 16 ? v16f_load_n(from + 16, left - 16) : v16f_zero(), q);
        }
    }
}

/* ---- weights: a step is two columns of a panel, 64 bytes of either type ---- */

HT_INLINE const char *step_at(const void *w, int64_t step) { return (const char *)w + 64 * step; }

/* Scale that turns a row's weights of one block into words, and its inverse: the power of two that brings the largest
 * just under 2^13. Doubling drops the sign bit, so the largest word has the largest exponent. A NaN or an infinity
 * makes the row NaN. Prefetches the block at `ahead`, unless it is NULL. */
HT_INLINE void block_scale(ht_weight_type type, const void *w, const char *ahead, v16f *up, v16f *down) {
    const bool bf16 = type == HT_W_BF16;
    /* For tiny bf16 weights the power would exceed a float: the exponent has a minimum; smaller weights become 0. */
    v16i top[2] = {v16i_set1(bf16 ? LEAST_BF16 << 8 : 0), v16i_set1(0)}, e;
    HT_UNROLL
    for (int s = 0; s < STEPS; s++) {
        if (ahead) ht_fetch_far(step_at(ahead, s));
        top[s % 2] = v16w_max(top[s % 2], v16w_double(v16i_load_bytes(step_at(w, s))));
    }
    top[0] = v16w_max(top[0], top[1]);
    if (bf16)
        e = v16w_max(v16i_shr(top[0], 24), v16i_and(v16i_shr(top[0], 8), v16i_set1(0xff)));
    else
        e = v16i_shr(v16w_max_halves(top[0]), 11);
    /* |w| < 2^(e - bias + 1) must become < 2^13, so down is 2^(e - bias - 12). */
    const int bias = bf16 ? 127 : 15, most = bf16 ? 255 : 31;
    *down = v16f_from_bits(v16i_shl(v16i_add(e, v16i_set1(127 - bias - 12)), 23));
    *up = v16f_from_bits(v16i_shl(v16i_sub(v16i_set1(127 + bias + 12), e), 23));
    *down = v16f_select(v16i_eq(e, v16i_set1(most)), v16f_set1(__builtin_nanf("")), *down);
}

/* Above 1.5 x 2^23 a float's last bit is worth 1: one fused multiply-add scales, rounds to nearest even, and leaves the
 * integer in its low bits. */
HT_INLINE v16i words_of_step(ht_weight_type type, const char *step, v16f up) {
    const v16f base = v16f_set1(12582912.0f);
    v16f even, odd;
    if (type == HT_W_BF16) {
        v16i pairs = v16i_load_bytes(step);
        even = v16f_from_bits(v16i_shl(pairs, 16));
        odd = v16f_from_bits(v16i_and(pairs, v16i_set1((int32_t)0xffff0000u)));
    } else {
        even = v16f_load_f16((const uint16_t *)(const void *)step);
        odd = v16f_load_f16((const uint16_t *)(const void *)(step + 32));
    }
    return v16w_join(v16f_bits(v16f_fma(even, up, base)), v16f_bits(v16f_fma(odd, up, base)));
}

/* A block of fewer columns, filled up with zeros in `room`. */
HT_INLINE const char *short_block(const char *w, int columns, char room[BLOCK_BYTES]) {
    int bytes = (columns + 1) / 2 * 64;
    memcpy(room, w, (size_t)bytes);
    memset(room + bytes, 0, (size_t)(BLOCK_BYTES - bytes));
    return room;
}

HT_INLINE v16f add_block(v16i sum, v16f w_scale, float x_scale, v16f y) {
    return v16f_fma(v16f_mul(v16f_from_i(sum), w_scale), v16f_set1(x_scale), y);
}

/* A tile's numbers from a block on. */
typedef struct tile {
    const int16_t *q;
    const float *scale;
} tile;

HT_INLINE tile tile_at(const ht_qtiles *x, int64_t t, int64_t block, int n_x) {
    int64_t at = ht_qtile_first(x->x, t) * x->x->n_blocks + block * n_x;
    return (tile){x->x->word + HT_QBLOCK * at, x->x->scale + at};
}

/* The next block. */
HT_INLINE void advance(tile *t, int n_x) {
    t->q += HT_QBLOCK * n_x;
    t->scale += n_x;
}

/* ---- from the packed panels: few rows ---- */

/* One block, stored at address `at`. With one or two rows, two sums per row hide the latency of additions. */
HT_INLINE void direct_block(ht_weight_type type, const char *at, const void *w, const int16_t *q, const float *scale,
                            int rows, v16f *y) {
    v16f up, down;
    v16i d[2][DIRECT_ROWS];
    block_scale(type, w, at + FETCH_FAR, &up, &down);
    HT_UNROLL
    for (int i = 0; i < rows; i++) d[0][i] = d[1][i] = v16i_set1(0);
    HT_UNROLL
    for (int s = 0; s < STEPS; s++) {
        v16i words = words_of_step(type, step_at(w, s), up);
        ht_fetch_near(step_at(at + FETCH_NEAR, s));
        HT_UNROLL
        for (int i = 0; i < rows; i++) {
            v16i *to = &d[rows <= 2 ? s % 2 : 0][i];
            *to = v16w_dot(*to, words, v16i_set2(q + HT_QBLOCK * i + 2 * s));
        }
    }
    HT_UNROLL
    for (int i = 0; i < rows; i++)
        y[i] = add_block(rows <= 2 ? v16i_add(d[0][i], d[1][i]) : d[0][i], down, scale[i], y[i]);
}

HT_INLINE void direct_panels(ht_weight_type type, const char *panel, int64_t k, const ht_qtiles *all, int64_t t,
                             int rows, const ht_gemm_out *out) {
    const size_t panel_bytes = ht_panel_bytes(type, k);
    const int n = (int)ht_panel_count(out->n), first = (int)ht_qtile_first(all->x, t), n_x = ht_qtile_rows(all->x, t);
    char room[BLOCK_BYTES];
    for (int p = 0; p < n; p++, panel += panel_bytes) {
        const char *w = panel;
        tile x = tile_at(all, t, 0, n_x);
        v16f y[DIRECT_ROWS];
        for (int i = 0; i < rows; i++) y[i] = v16f_zero();
        for (int64_t left = k; left > 0; left -= HT_QBLOCK, w += BLOCK_BYTES, advance(&x, n_x))
            direct_block(type, w, left < HT_QBLOCK ? short_block(w, (int)left, room) : w, x.q, x.scale, rows, y);
        int lanes = ht_lanes_of(out, p);
        for (int i = 0; i < rows; i++)
            if (ht_row_exists(i, rows, n_x)) ht_store_out(out, first + i, p, lanes, y[i]);
    }
}

/* ---- through decoded panels: many rows ---- */

HT_INLINE void decode_panel(ht_weight_type type, const char *panel, int64_t k, int64_t block, int n, ht_wpanel *to) {
    const char *w = panel + BLOCK_BYTES * block;
    char room[BLOCK_BYTES];
    for (int b = 0; b < n; b++, w += BLOCK_BYTES) {
        int left = (int)ht_min_i64(HT_QBLOCK, k - HT_QBLOCK * (block + b));
        const char *from = left < HT_QBLOCK ? short_block(w, left, room) : w;
        v16f up, down;
        block_scale(type, from, NULL, &up, &down);
        v16f_store(to->scale[b], down);
        for (int s = 0; s < STEPS; s++)
            v16i_store((int32_t *)(void *)to->w[b][s], words_of_step(type, step_at(from, s), up));
    }
}

HT_INLINE void decoded_tile(const ht_wpanel *panels, int64_t block, int n, const ht_qtiles *all, int64_t t, int rows,
                            const ht_gemm_out *out) {
    const int first = (int)ht_qtile_first(all->x, t), n_x = ht_qtile_rows(all->x, t);
    tile x = tile_at(all, t, block, n_x);
    v16f y[TILE_PANELS][TILE_ROWS];
    int lanes[TILE_PANELS];
    for (int p = 0; p < TILE_PANELS; p++) lanes[p] = ht_lanes_of(out, p);
    for (int p = 0; p < TILE_PANELS; p++)
        for (int i = 0; i < rows; i++)
            y[p][i] = block && ht_row_exists(i, rows, n_x) ? ht_load_out(out, first + i, p, lanes[p]) : v16f_zero();
    for (int b = 0; b < n; b++, advance(&x, n_x)) {
        v16i d[TILE_PANELS][TILE_ROWS];
        HT_UNROLL
        for (int i = 0; i < rows; i++) HT_UNROLL
        for (int p = 0; p < TILE_PANELS; p++) d[p][i] = v16i_set1(0);
        HT_UNROLL
        for (int s = 0; s < STEPS; s++) {
            v16i w[TILE_PANELS];
            HT_UNROLL
            for (int p = 0; p < TILE_PANELS; p++) w[p] = v16i_load_bytes(panels[p].w[b][s]);
            HT_UNROLL
            for (int i = 0; i < rows; i++) {
                v16i two = v16i_set2(x.q + HT_QBLOCK * i + 2 * s);
                HT_UNROLL
                for (int p = 0; p < TILE_PANELS; p++) d[p][i] = v16w_dot(d[p][i], w[p], two);
            }
        }
        HT_UNROLL
        for (int p = 0; p < TILE_PANELS; p++) {
            v16f down = v16f_load(panels[p].scale[b]);
            HT_UNROLL
            for (int i = 0; i < rows; i++) y[p][i] = add_block(d[p][i], down, x.scale[i], y[p][i]);
        }
    }
    for (int p = 0; p < TILE_PANELS; p++)
        for (int i = 0; i < rows; i++)
            if (ht_row_exists(i, rows, n_x)) ht_store_out(out, first + i, p, lanes[p], y[p][i]);
}

/* ---- the functions of the table ---- */

#define DIRECT(n)  direct_panels(type, panels, k, x, t, n, out)
#define DECODED(n) decoded_tile(panels, block, count, x, t, n, out)

void HT_ISA_NAME(ht_words_decoded)(ht_weight_type type, const void *panels, int64_t block, int count,
                                   const ht_qtiles *x, const ht_gemm_out *out) {
    (void)type;
    for (int64_t t = x->first; t < x->last; t++) {
        HT_WITH_TILE_ROWS(ht_qtile_rows(x->x, t), DECODED);
    }
}

#define DIRECT_OF(name)                                                                                                \
    static void direct_##name(const void *panels, int64_t k, const ht_qtiles *x, const ht_gemm_out *out) {             \
        const ht_weight_type type = HT_W_##name;                                                                       \
        for (int64_t t = x->first; t < x->last; t++) {                                                                 \
            HT_WITH_DIRECT_ROWS(ht_qtile_rows(x->x, t), DIRECT);                                                       \
        }                                                                                                              \
    }
DIRECT_OF(F16)
DIRECT_OF(BF16)

void HT_ISA_NAME(ht_words_direct)(ht_weight_type type, const void *panels, int64_t k, const ht_qtiles *x,
                                  const ht_gemm_out *out) {
    (type == HT_W_F16 ? direct_F16 : direct_BF16)(panels, k, x, out);
}

void HT_ISA_NAME(ht_words_decode)(ht_weight_type type, const void *panel, int64_t k, int64_t block, int n, void *to) {
    if (type == HT_W_F16)
        decode_panel(HT_W_F16, panel, k, block, n, to);
    else
        decode_panel(HT_W_BF16, panel, k, block, n, to);
}

#endif
