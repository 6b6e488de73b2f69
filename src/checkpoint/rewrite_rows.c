/* Rows of a tensor that is written, as exact f32: stored rows, put into order, with fp8 scales and factors on products multiplied
 * in. */
#include "base/checked.h"
#include "base/error.h"
#include "checkpoint/fp8_scales.h"
#include "checkpoint/rewrite.h"
#include "checkpoint/tensor_read.h"

#include <stdlib.h>
#include <string.h>

/* ---- one stored tensor ---- */

static ht_status read_fp8_scales(const ht_rewrite_plan *plan, const char *name, ht_weight_source *s, ht_error *err) {
    ht_fp8_scales found;
    const int64_t stacked = s->t.n_dims == 3 ? s->n_matrices : 0;
    ht_status status = ht_fp8_scales_find(plan->c, name, stacked, s->n_rows, s->k, &found, err);
    if (status || !found.any) return status;
    s->scales = calloc((size_t)s->n_matrices, sizeof *s->scales);
    if (!s->scales) return ht_fail_memory(err, (size_t)s->n_matrices * sizeof *s->scales, "scales");
    for (int64_t e = 0; !status && e < s->n_matrices; e++)
        status = ht_fp8_scales_read(&found, e, 0, s->n_rows, &s->scales[e], err);
    return status;
}

static ht_status read_products(const ht_rewrite_plan *plan, const char *name, ht_weight_source *s, ht_error *err) {
    bool found = true;
    size_t bytes = (size_t)(s->n_matrices * s->n_shares) * sizeof *s->products;
    s->products = malloc(bytes);
    if (!s->products) return ht_fail_memory(err, bytes, "scales");
    ht_status status = HT_OK;
    for (int i = 0; !status && found && i < s->n_shares; i++)
        status = ht_weights_product_scales(plan->c, plan->config, name, s->n_matrices, i, s->n_shares,
                                           s->products + i * s->n_matrices, &found, err);
    if (found) return status;
    free(s->products);
    s->products = NULL;
    return status;
}

static ht_status open_source(const ht_rewrite_plan *plan, const ht_stored_tensor *t, int n_shares,
                             ht_weight_source *out, ht_error *err) {
    *out = (ht_weight_source){.t = *t,
                              .n_matrices = t->n_dims == 3 ? t->dims[0] : 1,
                              .n_rows = 1,
                              .k = t->n_dims ? t->dims[t->n_dims - 1] : 1,
                              .n_shares = n_shares};
    for (int d = t->n_dims == 3; d < t->n_dims - 1; d++) out->n_rows *= t->dims[d];
    char *name = strndup(t->name, t->name_len);
    if (!name) return ht_fail_memory(err, t->name_len + 1, "a name");
    ht_status status = HT_OK;
    if (ht_weight_is_f8((ht_weight_type)t->type)) status = read_fp8_scales(plan, name, out, err);
    if (!status) status = read_products(plan, name, out, err);
    free(name);
    return status;
}

static void close_source(ht_weight_source *s) {
    for (int64_t e = 0; s->scales && e < s->n_matrices; e++) free(s->scales[e].values);
    free(s->scales);
    free(s->products);
}

static void scale_row(const ht_weight_source *s, int64_t row, float *x) {
    const int64_t matrix = row / s->n_rows, within = row % s->n_rows;
    if (s->scales) {
        const ht_block_scales *all = &s->scales[matrix];
        const float *scales = all->values + within / all->rows * all->per_row;
        for (int64_t c = 0; c < s->k; c++) x[c] *= scales[c / all->columns];
    }
    if (s->products) {
        const int64_t share = within / (s->n_rows / s->n_shares);
        const float factor = s->products[share * s->n_matrices + matrix];
        for (int64_t c = 0; c < s->k; c++) x[c] *= factor;
    }
}

static ht_status read_source(const ht_weight_source *s, int64_t first, int64_t n, float *out, void *scratch,
                             ht_error *err) {
    const size_t bytes = ht_tensor_size(&s->t, n * s->k);
    ht_status status = ht_tensor_read(&s->t, first * s->k, n * s->k, scratch, (unsigned char *)scratch + bytes, err);
    if (status) return status;
    ht_dequantize((ht_weight_type)s->t.type, scratch, n * s->k, out);
    for (int64_t i = 0; i < n; i++) scale_row(s, first + i, out + i * s->k);
    return HT_OK;
}

/* ---- the tensors of a weight ---- */

static int by_number(const void *a, const void *b) {
    const ht_rewrite_piece *x = a, *y = b;
    return x->tensor < y->tensor ? -1 : x->tensor > y->tensor;
}

/* Opens each tensor that pieces are in once, in the order of their numbers. */
static ht_status open_pieces(const ht_rewrite_plan *plan, const ht_rewrite_tensor *t, ht_weight_rows *out,
                             ht_error *err) {
    const size_t bytes = (size_t)t->n_pieces * sizeof *t->piece;
    ht_rewrite_piece *sorted = malloc(bytes);
    out->source = calloc((size_t)t->n_pieces, sizeof *out->source);
    if (!sorted || !out->source) {
        free(sorted);
        return ht_fail_memory(err, bytes, "pieces of a tensor");
    }
    memcpy(sorted, t->piece, bytes);
    qsort(sorted, (size_t)t->n_pieces, sizeof *sorted, by_number);
    ht_status status = HT_OK;
    for (int64_t i = 0; !status && i < t->n_pieces; i++) {
        ht_stored_tensor stored;
        if (i && sorted[i].tensor == sorted[i - 1].tensor) continue;
        ht_checkpoint_tensor_at(plan->c, sorted[i].tensor, &stored);
        if (t->from.n_dims == 1 && t->head_rows + t->stored_head_rows) { /* single elements change places */
            stored.n_dims = 2;
            stored.dims[1] = 1;
        }
        status = open_source(plan, &stored, sorted[i].n_shares, &out->source[out->n_sources++], err);
    }
    free(sorted);
    return status;
}

ht_status ht_weight_rows_open(const ht_rewrite_plan *plan, const ht_rewrite_tensor *t, ht_weight_rows *out,
                              ht_error *err) {
    const ht_stored_tensor *from = &t->from;
    *out = (ht_weight_rows){.of = t,
                            .n_matrices = from->n_dims == 3 ? from->dims[0] : 1,
                            .n_rows = 1,
                            .k = from->n_dims ? from->dims[from->n_dims - 1] : 1};
    for (int d = from->n_dims == 3; d < from->n_dims - 1; d++) out->n_rows *= from->dims[d];
    if (t->piece && from->n_dims == 1 && t->head_rows + t->stored_head_rows) {
        out->n_rows = out->k;
        out->k = 1;
    }
    if (t->piece) return open_pieces(plan, t, out, err);
    out->source = calloc(1, sizeof *out->source);
    if (!out->source) return ht_fail_memory(err, sizeof *out->source, "a tensor");
    out->n_sources = 1;
    return open_source(plan, from, t->n_shares, out->source, err);
}

void ht_weight_rows_close(ht_weight_rows *r) {
    for (int64_t i = 0; i < r->n_sources; i++) close_source(&r->source[i]);
    free(r->source);
    *r = (ht_weight_rows){0};
}

ht_status ht_weight_rows_unchanged(const ht_weight_rows *r, ht_error *err) {
    ht_status status = HT_OK;
    for (int64_t i = 0; !status && i < r->n_sources; i++) status = ht_file_unchanged(r->source[i].t.file, err);
    return status;
}

/* ---- rows ---- */

int64_t ht_canonical_row(int64_t at, int64_t head_rows) {
    if (!head_rows) return at;
    const int64_t within = at % head_rows;
    return at - within + within % 2 * (head_rows / 2) + within / 2;
}

size_t ht_weight_rows_scratch(const ht_weight_rows *r, int64_t n) {
    size_t most = 0;
    for (int64_t i = 0; i < r->n_sources; i++) {
        const ht_stored_tensor *t = &r->source[i].t;
        most = ht_max_size(most, ht_tensor_size(t, n * r->k) + ht_tensor_read_scratch(t, n * r->k));
    }
    return most;
}

static const ht_weight_source *source_of(const ht_weight_rows *r, size_t tensor) {
    int64_t low = 0, high = r->n_sources - 1;
    while (low < high) {
        const int64_t middle = (low + high) / 2;
        if (r->source[middle].t.number < tensor)
            low = middle + 1;
        else
            high = middle;
    }
    return &r->source[low];
}

/* Row of the tensor of a piece in which row `row` of the piece is stored. */
static int64_t stored_row(const ht_weight_rows *r, const ht_rewrite_piece *p, int64_t row) {
    row = ht_canonical_row(row, r->of->head_rows);
    if (r->of->stored_head_rows) row = ht_interleaved_row(row, r->of->stored_head_rows);
    return p->first_row + row;
}

const ht_stored_tensor *ht_weight_rows_origin(const ht_weight_rows *r, int64_t row, int64_t *at) {
    const ht_rewrite_tensor *t = r->of;
    *at = row;
    if (!t->piece) return &r->source->t;
    const ht_rewrite_piece *p = &t->piece[row / t->piece_rows];
    *at = stored_row(r, p, row % t->piece_rows);
    return &source_of(r, p->tensor)->t;
}

/* Rows [first, first + n) of one stored tensor, as blocks or as values. */
static ht_status read_stored(const ht_weight_source *s, int64_t first, int64_t n, bool blocks, void *out, void *scratch,
                             ht_error *err) {
    if (!blocks) return read_source(s, first, n, out, scratch, err);
    return ht_tensor_read(&s->t, first * s->k, n * s->k, out, scratch, err);
}

/* The same of one piece, `first` counted in it. */
static ht_status read_piece(const ht_weight_rows *r, const ht_rewrite_piece *p, int64_t first, int64_t n, bool blocks,
                            unsigned char *out, void *scratch, ht_error *err) {
    const ht_weight_source *s = source_of(r, p->tensor);
    const size_t row_bytes = blocks ? ht_tensor_size(&s->t, r->k) : (size_t)r->k * sizeof(float);
    ht_status status = HT_OK;
    if (!r->of->stored_head_rows && !r->of->head_rows)
        return read_stored(s, p->first_row + first, n, blocks, out, scratch, err);
    for (int64_t i = 0; !status && i < n; i++)
        status = read_stored(s, stored_row(r, p, first + i), 1, blocks, out + (size_t)i * row_bytes, scratch, err);
    return status;
}

/* The same of the tensor that is written. */
static ht_status read_pieces(const ht_weight_rows *r, int64_t first, int64_t n, bool blocks, unsigned char *out,
                             void *scratch, ht_error *err) {
    const ht_rewrite_tensor *t = r->of;
    const size_t row_bytes = blocks ? ht_tensor_size(&r->source->t, r->k) : (size_t)r->k * sizeof(float);
    const int64_t rows = t->piece_rows;
    ht_status status = HT_OK;
    for (int64_t at = first, end; !status && at < first + n; at = end) {
        end = ht_min_i64(first + n, (at / rows + 1) * rows);
        status = read_piece(r, &t->piece[at / rows], at % rows, end - at, blocks,
                            out + (size_t)(at - first) * row_bytes, scratch, err);
    }
    return status;
}

ht_status ht_weight_rows_read_blocks(const ht_weight_rows *r, int64_t first, int64_t n, void *out, void *scratch,
                                     ht_error *err) {
    return read_pieces(r, first, n, true, out, scratch, err);
}

ht_status ht_weight_rows_read(const ht_weight_rows *r, int64_t first, int64_t n, float *out, void *scratch,
                              ht_error *err) {
    if (!r->of->piece) return read_source(r->source, first, n, out, scratch, err);
    ht_status status = read_pieces(r, first, n, false, (unsigned char *)out, scratch, err);
    const float offset = r->of->offset;
    for (int64_t i = 0; !status && offset != 0 && i < n * r->k; i++) out[i] += offset;
    return status;
}
