/* fp8 weights, with scales for parts of the matrix. The product of both is the weight: rounded once to f32, as
 * `transformers` dequantises them. */
#include "base/checked.h"
#include "cpu/matrix_ops.h"

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

void ht_f8_widen(const ht_matrix *m, int64_t row, int64_t column, int n, float *to) {
    const uint8_t *panel = (const uint8_t *)m->packed + (size_t)(row / HT_PANEL) * ht_panel_bytes(m->type, m->k);
    for (int64_t c = column, end = c; c < column + n; to += (end - c) * HT_PANEL, c = end) {
        float scale[HT_PANEL];
        for (int64_t r = 0; r < HT_PANEL; r++) scale[r] = scale_at(m, ht_min_i64(row + r, m->n_rows - 1), c, &end);
        end = ht_min_i64(end, column + n);
        ht_kernels_of(m)->widen_f8[m->type == HT_W_F8_E5M2](panel, c, (int)(end - c), scale, to);
    }
}
