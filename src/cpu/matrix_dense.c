/* f32 products: with dense panels, and in reference precision with weights of any type, dequantised on demand. Both sum
 * in the same order. An fp8 weight is the stored number times the scale of its part of the matrix, rounded once to f32,
 * as in `transformers`. */
#include "base/checked.h"
#include "cpu/matrix_ops.h"

#include <string.h>

enum { STORED_CHUNK = 256 }; /* columns dequantised at a time: a whole block of every type, whole partial sums */

typedef struct product {
    ht_product of;
    const ht_matrix_kernels *kernels;
    char *scratch; /* scratch_bytes per worker */
    size_t scratch_bytes;
} product;

/* Columns [column, column + n), n <= HT_DENSE_CHUNK, of panels of `type` against all activations; the bias only with the last
 * columns. */
static void multiply_chunk(const product *p, ht_weight_type type, const void *panel, int64_t stride, int64_t column,
                           int n, int64_t row, int64_t n_rows) {
    const ht_product *of = &p->of;
    int64_t tile = p->kernels->tile_rows[0];
    for (int64_t i = 0; i < of->n_x; i += tile) {
        ht_gemm_out out = {.y = of->y + i * of->ldy, .ldy = of->ldy, .row = row, .n = n_rows};
        if (column + n == of->m->k) out.bias = of->bias;
        p->kernels->dense[type](panel, stride, column, n, of->x + i * of->ldx, of->ldx,
                                (int)ht_min_i64(tile, of->n_x - i), &out);
    }
}

/* ---- fp8 ---- */

/* Scale of weight (row, column); *end is the first column that has another one. */
static float scale_at(const ht_matrix *m, int64_t row, int64_t column, int64_t *end) {
    *end = m->k;
    if (!m->scales) return 1.0f;
    int64_t part = column / m->scale_columns;
    *end = ht_min_i64((part + 1) * m->scale_columns, m->k);
    return m->scales[row / m->scale_rows * ht_ceil_div_i64(m->k, m->scale_columns) + part];
}

ht_status ht_f8_row(const ht_matrix *m, int64_t row, float *out, ht_error *err) {
    ht_status status = ht_panels_row(m, row, out, err);
    for (int64_t column = 0, end; !status && column < m->k; column = end) {
        float scale = scale_at(m, row, column, &end);
        for (int64_t i = column; i < end; i++) out[i] *= scale;
    }
    return status;
}

/* Columns [column, column + n) of the panel of rows [row, row + 16) as f32 [n][16]. */
static void f8_widen(const ht_matrix *m, int64_t row, int64_t column, int n, float *to) {
    const uint8_t *panel = (const uint8_t *)m->packed + (size_t)(row / HT_PANEL) * ht_panel_bytes(m->type, m->k);
    for (int64_t c = column, end = c; c < column + n; to += (end - c) * HT_PANEL, c = end) {
        float scale[HT_PANEL];
        for (int64_t r = 0; r < HT_PANEL; r++) scale[r] = scale_at(m, ht_min_i64(row + r, m->n_rows - 1), c, &end);
        end = ht_min_i64(end, column + n);
        ht_kernels_of(m)->widen_f8[m->type == HT_W_F8_E5M2](panel, c, (int)(end - c), scale, to);
    }
}

/* ---- dense panels ---- */

static void multiply_dense(void *arg, int64_t begin, int64_t end, int worker) {
    const product *p = arg;
    const ht_matrix *m = p->of.m;
    const ht_matrix_kernels *kernels = p->kernels;
    size_t panel_bytes = ht_panel_bytes(m->type, m->k), bytes = ht_weight_type_info_of(m->type)->block_bytes;
    float *wide = (void *)(p->scratch + (size_t)worker * p->scratch_bytes);
    const bool f8 = ht_weight_is_f8(m->type);
    bool widen = f8 || (m->type != HT_W_F32 && p->of.n_x > kernels->tile_rows[0]);
    for (int64_t g = begin; g < end; g++) {
        int64_t row = g * kernels->tile_panels * HT_PANEL;
        int64_t n_rows = ht_min_i64(kernels->tile_panels * HT_PANEL, m->n_rows - row);
        const char *panel = (const char *)m->packed + (size_t)(row / HT_PANEL) * panel_bytes;
        for (int64_t c = 0; c < m->k; c += HT_DENSE_CHUNK) {
            int n = (int)ht_min_i64(HT_DENSE_CHUNK, m->k - c);
            if (!widen) {
                multiply_chunk(p, m->type, panel + (size_t)c * HT_PANEL * bytes, (int64_t)(panel_bytes / bytes), c, n,
                               row, n_rows);
                continue;
            }
            for (int64_t i = 0; i < ht_panel_count(n_rows); i++) {
                float *to = wide + i * HT_DENSE_CHUNK * HT_PANEL;
                if (f8)
                    f8_widen(m, row + i * HT_PANEL, c, n, to);
                else
                    kernels->widen[m->type](panel + (size_t)i * panel_bytes, c, n, to);
            }
            multiply_chunk(p, HT_W_F32, wide, HT_DENSE_CHUNK * HT_PANEL, c, n, row, n_rows);
        }
    }
}

static size_t wide_bytes(const ht_matrix_kernels *kernels) {
    return (size_t)kernels->tile_panels * HT_PANEL * HT_DENSE_CHUNK * sizeof(float);
}

static void run(const ht_product *of, void *scratch, size_t scratch_bytes, ht_block_fn *fn, ht_pool *pool) {
    product p = {*of, ht_kernels_of(of->m), scratch, scratch_bytes};
    if (of->n_x <= 0) return;
    int64_t n_groups = ht_ceil_div_i64(of->m->n_rows, p.kernels->tile_panels * HT_PANEL);
    ht_pool_run(pool, n_groups, ht_max_i64(1, n_groups / (8 * (int64_t)ht_pool_threads(pool))), fn, &p);
}

size_t ht_dense_scratch(const ht_matrix *m, int64_t n_x, int n_threads) {
    (void)n_x;
    return (size_t)n_threads * wide_bytes(ht_kernels_of(m));
}

void ht_dense_mul(const ht_product *p, void *scratch, ht_pool *pool) {
    run(p, scratch, wide_bytes(ht_kernels_of(p->m)), multiply_dense, pool);
}

/* ---- reference precision: rows as stored ---- */

static size_t stored_row_bytes(ht_weight_type type, int64_t k) {
    const ht_weight_type_info *info = ht_weight_type_info_of(type);
    return (size_t)(k / info->block) * info->block_bytes;
}

size_t ht_stored_bytes(ht_weight_type type, int64_t n_rows, int64_t k) {
    return (size_t)n_rows * stored_row_bytes(type, k);
}

ht_status ht_stored_pack(ht_matrix *m, int64_t row, int64_t n, const void *stored, ht_error *err) {
    (void)err;
    size_t bytes = stored_row_bytes(m->type, m->k);
    memcpy((char *)m->packed + (size_t)row * bytes, stored, (size_t)n * bytes);
    return HT_OK;
}

static const char *stored_at(const ht_matrix *m, int64_t row, int64_t column) {
    return (const char *)m->packed + (size_t)row * stored_row_bytes(m->type, m->k) + stored_row_bytes(m->type, column);
}

ht_status ht_stored_row(const ht_matrix *m, int64_t row, float *out, ht_error *err) {
    (void)err;
    ht_dequantize(m->type, stored_at(m, row, 0), m->k, out);
    return HT_OK;
}

static size_t reference_panel_bytes(void) { return (size_t)HT_PANEL * STORED_CHUNK * sizeof(float); }

/* Per worker: tile_panels panels of STORED_CHUNK columns, and 16 rows on their way there. */
static size_t reference_bytes(const ht_matrix_kernels *kernels) {
    return (size_t)(kernels->tile_panels + 1) * reference_panel_bytes();
}

/* Columns [column, column + n) of 16 rows, of which n_rows exist, as f32 [16][STORED_CHUNK]. */
static void dequantise_rows(const ht_matrix *m, int64_t row, int64_t n_rows, int64_t column, int64_t n, float *to) {
    for (int64_t r = 0; r < HT_PANEL; r++, to += STORED_CHUNK)
        if (r < n_rows)
            ht_dequantize(m->type, stored_at(m, row + r, column), n, to);
        else
            memset(to, 0, STORED_CHUNK * sizeof *to);
}

/* One group of panels: made from the stored rows STORED_CHUNK columns at a time. */
static void multiply_stored_rows(const product *p, int64_t row, float *scratch) {
    const ht_matrix *m = p->of.m;
    const int64_t stride = HT_PANEL * STORED_CHUNK;
    int64_t n_rows = ht_min_i64(p->kernels->tile_panels * HT_PANEL, m->n_rows - row), n_panels = ht_panel_count(n_rows);
    float *rows = scratch + p->kernels->tile_panels * stride;
    for (int64_t c = 0; c < m->k; c += STORED_CHUNK) {
        int64_t n = ht_min_i64(STORED_CHUNK, m->k - c);
        for (int64_t i = 0; i < n_panels; i++) {
            dequantise_rows(m, row + i * HT_PANEL, n_rows - i * HT_PANEL, c, n, rows);
            p->kernels->transpose(rows, STORED_CHUNK, (int)n, scratch + i * stride);
        }
        for (int64_t part = 0; part < n; part += HT_DENSE_CHUNK)
            multiply_chunk(p, HT_W_F32, scratch + part * HT_PANEL, stride, c + part,
                           (int)ht_min_i64(HT_DENSE_CHUNK, n - part), row, n_rows);
    }
}

static void multiply_reference(void *arg, int64_t begin, int64_t end, int worker) {
    const product *p = arg;
    float *scratch = (void *)(p->scratch + (size_t)worker * p->scratch_bytes);
    for (int64_t g = begin; g < end; g++) multiply_stored_rows(p, g * p->kernels->tile_panels * HT_PANEL, scratch);
}

size_t ht_reference_scratch(const ht_matrix *m, int64_t n_x, int n_threads) {
    (void)n_x;
    return (size_t)n_threads * reference_bytes(ht_kernels_of(m));
}

void ht_reference_mul(const ht_product *p, void *scratch, ht_pool *pool) {
    run(p, scratch, reference_bytes(ht_kernels_of(p->m)), multiply_reference, pool);
}
