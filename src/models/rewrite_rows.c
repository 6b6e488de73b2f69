/* Rows of a stored weight as exact f32, with fp8 scales and factors on products multiplied in. */
#include "base/error.h"
#include "models/fp8_scales.h"
#include "models/rewrite.h"
#include "models/tensor_read.h"

#include <stdlib.h>

static ht_status read_fp8_scales(const ht_rewrite_plan *plan, const char *name, ht_weight_rows *r, ht_error *err) {
    ht_fp8_scales found;
    const int64_t stacked = r->t->n_dims == 3 ? r->n_matrices : 0;
    ht_status status = ht_fp8_scales_find(plan->c, name, stacked, r->n_rows, r->k, &found, err);
    if (status || !found.any) return status;
    r->scales = calloc((size_t)r->n_matrices, sizeof *r->scales);
    if (!r->scales) return ht_fail_memory(err, (size_t)r->n_matrices * sizeof *r->scales, "scales");
    for (int64_t e = 0; !status && e < r->n_matrices; e++)
        status = ht_fp8_scales_read(&found, e, 0, r->n_rows, &r->scales[e], err);
    return status;
}

static ht_status read_products(const ht_rewrite_plan *plan, const char *name, ht_weight_rows *r, ht_error *err) {
    bool found = true;
    size_t bytes = (size_t)(r->n_matrices * r->n_shares) * sizeof *r->products;
    r->products = malloc(bytes);
    if (!r->products) return ht_fail_memory(err, bytes, "scales");
    ht_status status = HT_OK;
    for (int i = 0; !status && found && i < r->n_shares; i++)
        status = ht_weights_product_scales(plan->c, plan->config, name, r->n_matrices, i, r->n_shares,
                                           r->products + i * r->n_matrices, &found, err);
    if (found) return status;
    free(r->products);
    r->products = NULL;
    return status;
}

ht_status ht_weight_rows_open(const ht_rewrite_plan *plan, const ht_rewrite_tensor *t, ht_weight_rows *out,
                              ht_error *err) {
    const ht_stored_tensor *from = &t->from;
    *out = (ht_weight_rows){.t = from,
                            .n_matrices = from->n_dims == 3 ? from->dims[0] : 1,
                            .n_rows = 1,
                            .k = from->n_dims ? from->dims[from->n_dims - 1] : 1,
                            .n_shares = t->n_shares};
    for (int d = from->n_dims == 3; d < from->n_dims - 1; d++) out->n_rows *= from->dims[d];
    ht_status status = HT_OK;
    if (ht_weight_is_f8((ht_weight_type)from->type)) status = read_fp8_scales(plan, t->name, out, err);
    return status ? status : read_products(plan, t->name, out, err);
}

void ht_weight_rows_close(ht_weight_rows *r) {
    for (int64_t e = 0; r->scales && e < r->n_matrices; e++) free(r->scales[e].values);
    free(r->scales);
    free(r->products);
    *r = (ht_weight_rows){0};
}

static void scale_row(const ht_weight_rows *r, int64_t row, float *x) {
    const int64_t matrix = row / r->n_rows, within = row % r->n_rows;
    if (r->scales) {
        const ht_block_scales *all = &r->scales[matrix];
        const float *scales = all->values + within / all->rows * all->per_row;
        for (int64_t c = 0; c < r->k; c++) x[c] *= scales[c / all->columns];
    }
    if (r->products) {
        const int64_t share = within / (r->n_rows / r->n_shares);
        const float factor = r->products[share * r->n_matrices + matrix];
        for (int64_t c = 0; c < r->k; c++) x[c] *= factor;
    }
}

size_t ht_weight_rows_scratch(const ht_weight_rows *r, int64_t n) {
    return ht_tensor_size(r->t, n * r->k) + ht_tensor_read_scratch(r->t, n * r->k);
}

ht_status ht_weight_rows_read(const ht_weight_rows *r, int64_t first, int64_t n, float *out, void *scratch,
                              ht_error *err) {
    const size_t bytes = ht_tensor_size(r->t, n * r->k);
    ht_status status = ht_tensor_read(r->t, first * r->k, n * r->k, scratch, (unsigned char *)scratch + bytes, err);
    if (status) return status;
    ht_dequantize((ht_weight_type)r->t->type, scratch, n * r->k, out);
    for (int64_t i = 0; i < n; i++) scale_row(r, first + i, out + i * r->k);
    return HT_OK;
}
