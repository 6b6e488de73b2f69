/* f32 products: with dense panels, and in reference precision with weights of any type, dequantised as they are needed.
 * Both sum in the same order. */
#include "base/checked.h"
#include "cpu/matrix_ops.h"

#include <string.h>

enum { STORED_CHUNK = 256 }; /* columns dequantised at a time: a whole block of every type, whole partial sums */

typedef struct product {
    const ht_matrix *m;
    const ht_matrix_kernels *kernels;
    const float *x;
    int64_t ldx, n_x;
    const float *bias;
    float *y;
    int64_t ldy;
    char *scratch; /* scratch_bytes per worker */
    size_t scratch_bytes;
} product;

/* Rows [row, row + n) of y for activations from row i on; the bias only with the last columns. */
static ht_gemm_out out_at(const product *p, int64_t i, int64_t row, int64_t n, bool last) {
    return (ht_gemm_out){.y = p->y + i * p->ldy, .ldy = p->ldy, .bias = last ? p->bias : NULL, .row = row, .n = n};
}

/* Columns [column, column + n), n <= HT_DENSE_CHUNK, of panels of `type` against all activations. */
static void multiply_chunk(const product *p, ht_weight_type type, const void *panel, int64_t stride, int64_t column,
                           int n, int64_t row, int64_t n_rows) {
    int64_t tile = p->kernels->tile_rows;
    for (int64_t i = 0; i < p->n_x; i += tile) {
        ht_gemm_out out = out_at(p, i, row, n_rows, column + n == p->m->k);
        p->kernels->dense[type](panel, stride, column, n, p->x + i * p->ldx, p->ldx, (int)ht_min_i64(tile, p->n_x - i),
                                &out);
    }
}

/* ---- dense panels ---- */

static void multiply_dense(void *arg, int64_t begin, int64_t end, int worker) {
    const product *p = arg;
    const ht_matrix *m = p->m;
    const ht_matrix_kernels *kernels = p->kernels;
    size_t panel_bytes = ht_panel_bytes(m->type, m->k), bytes = ht_weight_type_info_of(m->type)->block_bytes;
    float *wide = (void *)(p->scratch + (size_t)worker * p->scratch_bytes);
    const bool f8 = ht_weight_is_f8(m->type);
    bool widen = f8 || (m->type != HT_W_F32 && p->n_x > kernels->tile_rows);
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
                    ht_f8_widen(m, row + i * HT_PANEL, c, n, to);
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

static void run(product *p, ht_block_fn *fn, ht_pool *pool) {
    if (p->n_x <= 0) return;
    int64_t n_groups = ht_ceil_div_i64(p->m->n_rows, p->kernels->tile_panels * HT_PANEL);
    ht_pool_run(pool, n_groups, ht_max_i64(1, n_groups / (8 * (int64_t)ht_pool_threads(pool))), fn, p);
}

size_t ht_dense_scratch(const ht_matrix *m, int64_t n_x, int n_threads) {
    (void)n_x;
    return (size_t)n_threads * wide_bytes(ht_kernels_of(m));
}

void ht_dense_mul(const ht_matrix *m, const float *x, int64_t ldx, int64_t n_x, const float *bias, float *y,
                  int64_t ldy, void *scratch, ht_pool *pool) {
    const ht_matrix_kernels *kernels = ht_kernels_of(m);
    product p = {m, kernels, x, ldx, n_x, bias, y, ldy, scratch, wide_bytes(kernels)};
    run(&p, multiply_dense, pool);
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
    const ht_matrix *m = p->m;
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

void ht_reference_mul(const ht_matrix *m, const float *x, int64_t ldx, int64_t n_x, const float *bias, float *y,
                      int64_t ldy, void *scratch, ht_pool *pool) {
    const ht_matrix_kernels *kernels = ht_kernels_of(m);
    product p = {m, kernels, x, ldx, n_x, bias, y, ldy, scratch, reference_bytes(kernels)};
    run(&p, multiply_reference, pool);
}
