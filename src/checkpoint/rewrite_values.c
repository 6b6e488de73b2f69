/* Values of output tensors: stored rows are reordered, multiplied by scales and product factors, changed by
 * adapters, checked, and rounded once. Each thread handles some rows at a time. */
#include "base/checked.h"
#include "base/error.h"
#include "base/half.h"
#include "base/text.h"
#include "checkpoint/rewrite.h"
#include "checkpoint/scheme.h"
#include "device/device.h"
#include "formats/affine.h"
#include "formats/block_pack.h"
#include "formats/blocks.h"
#include "formats/finite.h"
#include "formats/importance.h"
#include "formats/repack.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { CHUNK = 1 << 16 }; /* elements per chunk of a thread; whole blocks of every type */

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
    size_t number;
    for (int i = 0; !status && found && i < s->n_shares; i++) {
        const ht_product_scales of = {name, s->n_matrices, i, s->n_shares};
        status =
            ht_stored_product_scales(plan->c, plan->config, &of, s->products + i * s->n_matrices, &found, &number, err);
    }
    if (found) return status;
    free(s->products);
    s->products = NULL;
    return status;
}

/* Matrices [n_rows, k] of a tensor: one, or one per stacked expert. */
static void matrices_of(const ht_stored_tensor *t, int64_t *n_matrices, int64_t *n_rows, int64_t *k) {
    const int stacked = t->n_dims == 3;
    *n_matrices = stacked ? t->dims[0] : 1;
    *k = t->n_dims ? t->dims[t->n_dims - 1] : 1;
    *n_rows = t->n_dims ? ht_elements(t->dims + stacked, t->n_dims - stacked - 1) : 1;
}

static ht_status open_source(const ht_rewrite_plan *plan, const ht_stored_tensor *t, int n_shares,
                             ht_weight_source *out, ht_error *err) {
    *out = (ht_weight_source){.t = *t, .n_shares = n_shares};
    matrices_of(t, &out->n_matrices, &out->n_rows, &out->k);
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

/* Rows of one matrix as blocks. */
static ht_status read_blocks(const ht_weight_source *s, int64_t first, int64_t n, void *out, void *scratch,
                             ht_error *err) {
    ht_stored_tensor t = s->t;
    const int64_t skipped = t.column_step ? first / s->n_rows * s->n_rows : 0; /* matrices transposed one by one */
    t.offset += ht_tensor_size(&t, skipped * s->k);
    return ht_tensor_read(&t, (first - skipped) * s->k, n * s->k, out, scratch, err);
}

static ht_status read_source(const ht_weight_source *s, int64_t first, int64_t n, float *out, void *scratch,
                             ht_error *err) {
    const size_t bytes = ht_tensor_size(&s->t, n * s->k);
    ht_status status = read_blocks(s, first, n, scratch, (unsigned char *)scratch + bytes, err);
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

/* Opens each source tensor of the pieces once, in order of their numbers. */
static ht_status open_pieces(const ht_rewrite_plan *plan, const ht_rewrite_tensor *t, ht_weight_rows *out,
                             ht_error *err) {
    const int64_t n = t->piece ? t->n_pieces : 1;
    const size_t bytes = (size_t)n * sizeof *t->piece;
    ht_rewrite_piece *sorted = malloc(bytes);
    out->source = calloc((size_t)n, sizeof *out->source);
    if (!sorted || !out->source) {
        free(sorted);
        return ht_fail_memory(err, bytes, "pieces of a tensor");
    }
    memcpy(sorted, t->piece ? t->piece : &out->whole, bytes);
    qsort(sorted, (size_t)n, sizeof *sorted, by_number);
    ht_status status = HT_OK;
    for (int64_t i = 0; !status && i < n; i++) {
        ht_stored_tensor stored;
        if (i && sorted[i].tensor == sorted[i - 1].tensor) continue;
        ht_checkpoint_tensor_at(plan->c, sorted[i].tensor, &stored);
        if (sorted[i].transposed)
            stored = ht_tensor_transposed(&stored);
        else if (t->piece && n == 1 &&
                 ht_elements(stored.dims, stored.n_dims) ==
                     ht_elements(t->from.dims, t->from.n_dims)) { /* a vector may be stored in rows */
            stored.n_dims = t->from.n_dims;
            memcpy(stored.dims, t->from.dims, sizeof stored.dims);
        }
        if (sorted[i].block_rows) out->most_block_rows = ht_max_i64(out->most_block_rows, sorted[i].block_rows);
        if (t->by_value) {
            stored.dims[0] = ht_elements(stored.dims, stored.n_dims);
            stored.dims[1] = 1;
            stored.n_dims = 2;
        }
        status = open_source(plan, &stored, sorted[i].n_shares, &out->source[out->n_sources++], err);
    }
    free(sorted);
    return status;
}

ht_status ht_weight_rows_open(const ht_rewrite_plan *plan, const ht_rewrite_tensor *t, ht_weight_rows *out,
                              ht_error *err) {
    const ht_stored_tensor *from = &t->from;
    *out = (ht_weight_rows){.of = t, .whole = {.tensor = from->number, .row_step = 1, .n_shares = t->n_shares}};
    matrices_of(from, &out->n_matrices, &out->n_rows, &out->k);
    if (t->by_value) {
        out->n_rows = ht_elements(from->dims, from->n_dims);
        out->n_matrices = out->k = 1;
    }
    return open_pieces(plan, t, out, err);
}

void ht_weight_rows_close(ht_weight_rows *r) {
    for (int64_t i = 0; i < r->n_sources; i++) close_source(&r->source[i]);
    free(r->source);
    *r = (ht_weight_rows){0};
}

/* Applies ht_file_unchanged to all files of the rows. */
static ht_status unchanged(const ht_weight_rows *r, ht_error *err) {
    ht_status status = HT_OK;
    for (int64_t i = 0; !status && i < r->n_sources; i++) status = ht_file_unchanged(r->source[i].t.file, err);
    return status;
}

/* ---- rows ---- */

size_t ht_weight_rows_scratch(const ht_weight_rows *r, int64_t n) {
    size_t most = 0;
    for (int64_t i = 0; i < r->n_sources; i++) {
        const ht_stored_tensor *t = &r->source[i].t;
        const int64_t block = r->most_block_rows * r->source[i].k, elements = ht_max_i64(n * r->k, block);
        most = ht_max_size(most, (size_t)block * sizeof(float) + ht_tensor_size(t, elements) +
                                     ht_tensor_read_scratch(t, elements));
    }
    return ht_max_size(most, (size_t)r->k * sizeof(float)); /* at least a row, of which columns are ordered */
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

/* Row of the source tensor that stores row `row` of a piece. */
static int64_t stored_row(const ht_weight_rows *r, const ht_rewrite_piece *p, int64_t row) {
    return p->first_row + ht_order_stored(&r->of->stored_rows, ht_order_canonical(&r->of->rows, row)) * p->row_step;
}

/* Rows of a piece from `row` on that are stored one after another. */
static int64_t run_of(const ht_weight_rows *r, const ht_rewrite_piece *p, int64_t row) {
    const ht_order written = ht_order_inverse(r->of->rows);
    if (p->row_step > 1) return 1;
    return ht_min_i64(ht_order_run(&written, row),
                      ht_order_run(&r->of->stored_rows, ht_order_canonical(&r->of->rows, row)));
}

/* Column of the stored row that becomes column `at`. */
static int64_t stored_column(const ht_rewrite_tensor *t, int64_t at) {
    return ht_order_stored(&t->stored_columns, ht_order_canonical(&t->columns, at));
}

/* Restores, or makes, the order of a row's columns, which are moved in whole blocks of the order. */
static void order_columns(const ht_weight_rows *r, size_t row_bytes, unsigned char *row, unsigned char *scratch) {
    const ht_rewrite_tensor *t = r->of;
    const int64_t block = t->stored_columns.group ? t->stored_columns.block : t->columns.block;
    if (!block) return;
    const size_t bytes = row_bytes / (size_t)(r->k / block);
    memcpy(scratch, row, row_bytes);
    for (int64_t c = 0; c < r->k; c += block, row += bytes)
        memcpy(row, scratch + (size_t)(stored_column(t, c) / block) * bytes, bytes);
}

/* The piece that contains output row `row`, as its row *within. */
static const ht_rewrite_piece *piece_at(const ht_weight_rows *r, int64_t row, int64_t *within) {
    const ht_rewrite_tensor *t = r->of;
    *within = t->piece ? row % t->piece_rows : row;
    return t->piece ? &t->piece[row / t->piece_rows] : &r->whole;
}

/* The stored tensor and row that output row `row` is read from, lent; *column becomes that of the stored row. */
static const ht_stored_tensor *origin_of(const ht_weight_rows *r, int64_t row, int64_t *at, int64_t *column) {
    int64_t within;
    const ht_rewrite_piece *p = piece_at(r, row, &within);
    *at = p->block_rows ? p->first_row + *column : stored_row(r, p, within);
    *column = p->block_rows ? p->column + within : stored_column(r->of, *column);
    return &source_of(r, p->tensor)->t;
}

/* Values of rows [first, first + n) of a piece whose rows are columns of some stored rows. */
static ht_status read_columns(const ht_weight_source *s, const ht_rewrite_piece *p, int64_t first, int64_t n,
                              float *out, void *scratch, ht_error *err) {
    float *rows = scratch;
    ht_status status = read_source(s, p->first_row, p->block_rows, rows, rows + p->block_rows * s->k, err);
    for (int64_t i = 0; !status && i < n; i++)
        for (int64_t c = 0; c < p->block_rows; c++) out[i * p->block_rows + c] = rows[c * s->k + p->column + first + i];
    return status;
}

/* Rows [first, first + n) of one piece, as blocks or as values. */
static ht_status read_piece(const ht_weight_rows *r, const ht_rewrite_piece *p, int64_t first, int64_t n, bool blocks,
                            unsigned char *out, void *scratch, ht_error *err) {
    const ht_weight_source *s = source_of(r, p->tensor);
    if (p->block_rows) return read_columns(s, p, first, n, (float *)(void *)out, scratch, err); /* never as blocks */
    const size_t bytes = blocks ? ht_tensor_size(&s->t, r->k) : (size_t)r->k * sizeof(float);
    ht_status status = HT_OK;
    for (int64_t i = 0, run; !status && i < n; i += run, out += (size_t)run * bytes) {
        const int64_t row = stored_row(r, p, first + i);
        run = ht_min_i64(n - i, run_of(r, p, first + i));
        status = blocks ? read_blocks(s, row, run, out, scratch, err)
                        : read_source(s, row, run, (float *)(void *)out, scratch, err);
        for (int64_t k = 0; !status && k < run; k++) order_columns(r, bytes, out + (size_t)k * bytes, scratch);
    }
    return status;
}

/* Rows [first, first + n) of the output tensor, as blocks or as values. */
static ht_status read_rows(const ht_weight_rows *r, int64_t first, int64_t n, bool blocks, unsigned char *out,
                           void *scratch, ht_error *err) {
    const size_t row_bytes = blocks ? ht_tensor_size(&r->source->t, r->k) : (size_t)r->k * sizeof(float);
    const int64_t rows = r->of->piece ? r->of->piece_rows : first + n;
    ht_status status = HT_OK;
    for (int64_t at = first, end, within; !status && at < first + n; at = end) {
        const ht_rewrite_piece *p = piece_at(r, at, &within);
        end = ht_min_i64(first + n, at - within + rows);
        status = read_piece(r, p, within, end - at, blocks, out + (size_t)(at - first) * row_bytes, scratch, err);
    }
    return status;
}

/* The roundest of the floats next to ln(-x) whose exponential is -x: bf16 comes back as it was. */
static float logarithm_of(float x) {
    const float y = logf(-x), near[] = {ht_bf16_to_f32(ht_f32_to_bf16(y)), ht_f16_to_f32(ht_f32_to_f16(y))};
    for (int i = 0; i < 2; i++)
        if (expf(near[i]) == -x) return near[i];
    float below = y, above = y;
    for (int i = 0; i < 4 && expf(below) != -x && expf(above) != -x; i++) {
        below = nextafterf(below, -INFINITY);
        above = nextafterf(above, INFINITY);
    }
    return expf(below) == -x ? below : expf(above) == -x ? above : y;
}

ht_status ht_weight_rows_read_blocks(const ht_weight_rows *r, int64_t first, int64_t n, void *out, void *scratch,
                                     ht_error *err) {
    return read_rows(r, first, n, true, out, scratch, err);
}

ht_status ht_weight_rows_read(const ht_weight_rows *r, int64_t first, int64_t n, float *out, void *scratch,
                              ht_error *err) {
    ht_status status = read_rows(r, first, n, false, (unsigned char *)out, scratch, err);
    const float offset = r->of->offset;
    for (int64_t i = 0; !status && offset != 0 && i < n * r->k; i++) out[i] += offset;
    for (int64_t i = 0; !status && r->of->factors && i < n * r->k; i++) out[i] *= r->of->factors[first + i / r->k];
    for (int64_t i = 0; !status && r->of->map && i < n * r->k; i++)
        out[i] = r->of->map == HT_VALUES_TO_EXPONENTIAL ? -expf(out[i]) : logarithm_of(out[i]);
    return status;
}

/* Activation bounds in towers of multimodal checkpoints are single numbers; an infinite one means no bound. */
static bool is_bound(const char *name) { return ht_ends_with(name, "_min") || ht_ends_with(name, "_max"); }

/* The first damaged element of n, and its value; -1: none. */
static int64_t first_damaged(ht_weight_type type, const void *blocks, int64_t n, bool bound, float *value) {
    if (ht_is_finite(type, blocks, n)) return -1;
    const int64_t i = ht_first_not_finite(type, blocks, n, value);
    return i >= 0 && bound && isinf(*value) ? -1 : i;
}

static ht_status not_finite(const char *file, const char *name, size_t name_len, float value, int64_t row,
                            int64_t column, ht_error *err) {
    return ht_fail(err, HT_ERR_FORMAT, "%s: tensor `%.*s` holds %g in row %lld, column %lld: the file may be damaged",
                   file, (int)name_len, name, (double)value, (long long)row, (long long)column);
}

/* ---- rounded rows ---- */

/* HT_ERR_FORMAT if values x of rows [first, first + n) are not finite. Allowed in floats unless the plan checks
 * values. */
static ht_status check_rows(const ht_rewrite_plan *plan, const ht_weight_rows *rows, int64_t first, int64_t n,
                            const float *x, ht_error *err) {
    const ht_rewrite_tensor *t = rows->of;
    float value;
    if (ht_weight_is_float((int)t->type) && !plan->checks_values) return HT_OK;
    const int64_t i = first_damaged(HT_W_F32, x, n * rows->k, is_bound(t->name), &value);
    if (i < 0) return HT_OK;
    int64_t row, column = i % rows->k;
    const ht_stored_tensor *stored = origin_of(rows, first + i / rows->k, &row, &column);
    return not_finite(stored->file_name, stored->name, stored->name_len, value, row, column, err);
}

typedef struct buffer {
    void *data;
    size_t capacity;
} buffer;

/* Sums over weights: W as it was, D the change, S as stored, R = S - W - D. */
typedef struct sums {
    double change, result, rounding, along; /* <D, D>, <W + D, W + D>, <R, R>, <R, D> */
} sums;

/* State of one thread. */
typedef struct worker {
    buffer scratch, base, delta, blocks; /* as read, W + D, D, rounded */
} worker;

/* Some rows of the current tensor. */
typedef struct chunk {
    sums own;
    ht_status status;
    ht_error error;
} chunk;

/* A copied tensor, as in the file. */
typedef struct copied {
    const ht_rewrite_tensor *of;
    const unsigned char *bytes;
    int type;        /* ht_weight_type; E8M0: exponents, one a byte */
    int64_t n;       /* elements */
    int64_t columns; /* of a row */
} copied;

enum { NOT_CHECKED = -1, E8M0 = HT_W_COUNT };

struct ht_rewrite_values {
    const ht_rewrite_plan *plan;
    ht_device *host;    /* whose threads and kernels round */
    worker *worker;     /* [host->n_threads] */
    size_t done, total; /* bytes */
    buffer out[3];      /* output; for groups, packed elements, scales and biases */
    size_t made;        /* the weight whose parts are in `out`; SIZE_MAX: none */
    buffer chunks, importance;
    sums all;
    double least_kept;
    int64_t n_inexact;
    /* State of the current weight: */
    const ht_rewrite_tensor *t;
    ht_weight_rows rows;
    const float *importances; /* [n_matrices][k]; NULL: none */
    int64_t step;             /* rows of a chunk */
    copied checked;           /* the current copied tensor */
};

static ht_status grow(buffer *b, size_t bytes, ht_error *err) {
    if (bytes <= b->capacity) return HT_OK;
    free(b->data);
    b->data = malloc(bytes);
    b->capacity = b->data ? bytes : 0;
    return b->data ? HT_OK : ht_fail_memory(err, bytes, "a tensor");
}

/* ---- changes ---- */

/* Adds a row of k values of scale * (B A)^T, that of input `input`. */
static void add_transposed(const ht_rewrite_change *c, int64_t input, int64_t k, float *delta) {
    const ht_lora *l = c->lora;
    const float *b = l->b + (c->expert * l->n_out + c->first_output) * l->rank;
    const float *a = l->a + c->expert * l->rank * l->n_in + input;
    for (int64_t i = 0; i < l->rank; i++, a += l->n_in, b++)
        for (int64_t o = 0; o < k; o++) delta[o] += c->scale * b[o * l->rank] * *a;
}

/* Adds scale * B A to row `row` of the tensor. */
static void add_change(const ht_rewrite_change *c, int64_t row, int64_t k, float *delta) {
    if (c->is_transposed) {
        add_transposed(c, row - c->first_row, k, delta);
        return;
    }
    const ht_lora *l = c->lora;
    const int64_t output = ht_order_canonical(&c->rows, row - c->first_row),
                  b_row = ht_order_stored(&c->lora_rows, output) + c->first_output;
    const float *b = l->b + (c->expert * l->n_out + b_row) * l->rank, *a = l->a + c->expert * l->rank * l->n_in;
    for (int64_t i = 0; i < l->rank; i++, a += l->n_in) {
        const float factor = c->scale * b[i];
        for (int64_t col = 0; col < l->n_in; col++)
            delta[col] += factor * a[ht_order_stored(&c->lora_columns, ht_order_canonical(&c->columns, col))];
    }
}

/* D of rows [first, first + n). */
static void change_rows(const ht_rewrite_values *v, int64_t first, int64_t n, int64_t k, float *delta) {
    const ht_rewrite_change *c;
    memset(delta, 0, (size_t)(n * k) * sizeof *delta);
    for (size_t i = v->t->change; i; i = c->next) {
        c = &v->plan->change[i - 1];
        const int64_t begin = ht_max_i64(first, c->first_row), end = ht_min_i64(first + n, c->first_row + c->n_rows);
        for (int64_t row = begin; row < end; row++) add_change(c, row, k, delta + (row - first) * k);
    }
}

static double kept(const sums *s) { return s->change > 0 ? 1 + s->along / s->change : 1; }

static void add_sums(sums *to, const sums *s) {
    to->change += s->change;
    to->result += s->result;
    to->rounding += s->rounding;
    to->along += s->along;
}

/* ---- rounding ---- */

/* Rounds to nearest even. */
static void round_floats(ht_weight_type type, const float *x, int64_t n, uint8_t *out) {
    if (type == HT_W_F32) {
        memcpy(out, x, (size_t)n * sizeof *x);
        return;
    }
    for (int64_t i = 0; i < n; i++) {
        const uint16_t bits = type == HT_W_BF16 ? ht_f32_to_bf16(x[i]) : ht_f32_to_f16(x[i]);
        out[2 * i] = (uint8_t)bits;
        out[2 * i + 1] = (uint8_t)(bits >> 8);
    }
}

bool ht_rewrite_is_exact(ht_weight_type type, const float *x, int64_t n) {
    for (int64_t i = 0; type != HT_W_F32 && i < n; i++) {
        const float stored =
            type == HT_W_BF16 ? ht_bf16_to_f32(ht_f32_to_bf16(x[i])) : ht_f16_to_f32(ht_f32_to_f16(x[i]));
        if (ht_float_bits(stored) != ht_float_bits(x[i])) return false;
    }
    return true;
}

static ht_status too_large(const ht_rewrite_tensor *t, float x, ht_error *err) {
    if (!isfinite(x))
        return ht_fail(err, HT_ERR_LIMIT, "tensor `%s` would hold %g: the adapters' values or factors are too large",
                       t->name, (double)x);
    return ht_fail(err, HT_ERR_LIMIT, "tensor `%s` holds %g now, more than %s can; take bf16 or f32", t->name,
                   (double)x, ht_weight_type_info_of(t->type)->name);
}

static float largest(const float *x, int64_t n) {
    float peak = x[0];
    for (int64_t i = 1; i < n; i++)
        if (fabsf(x[i]) > fabsf(peak)) peak = x[i];
    return peak;
}

/* W + D. */
static ht_status add_delta(const ht_rewrite_values *v, const float *delta, int64_t n, float *x, ht_error *err) {
    for (int64_t i = 0; i < n; i++) {
        const float sum = x[i] + delta[i];
        if (!isfinite(sum) && isfinite(x[i])) return too_large(v->t, sum, err);
        x[i] = sum;
    }
    return HT_OK;
}

/* Adds the adapter's change and the rounding error of x = W + D to `own`. */
static ht_status measure(const ht_rewrite_values *v, const float *x, const float *delta, int64_t n, const float *stored,
                         sums *own, ht_error *err) {
    for (int64_t i = 0; i < n; i++) {
        if (!isfinite(x[i])) continue; /* stored as it is */
        if (!isfinite(stored[i])) return too_large(v->t, x[i], err);
        const double d = delta ? (double)delta[i] : 0, r = (double)stored[i] - (double)x[i];
        own->change += d * d;
        own->result += (double)x[i] * (double)x[i];
        own->rounding += r * r;
        own->along += r * d;
    }
    return HT_OK;
}

/* Bytes of a row of blocks. */
static size_t row_bytes_of(const ht_rewrite_values *v) {
    const ht_weight_type_info *info = ht_weight_type_info_of(v->t->type);
    return (size_t)(v->rows.k / info->block) * info->block_bytes;
}

static bool is_spread(const ht_rewrite_tensor *t) { return t->transposes || t->alternates; }

/* Destination of rounded rows from `first` on: `out`, or a worker's blocks, which are split or spread later. */
static uint8_t *blocks_of(const ht_rewrite_values *v, const worker *w, int64_t first) {
    return ht_rewrite_in_parts(v->plan, v->t) || is_spread(v->t)
               ? w->blocks.data
               : (uint8_t *)v->out[0].data + (size_t)first * row_bytes_of(v);
}

/* Writes n rows of floats to a tensor whose matrices are transposed, or whose rows alternate. */
static void spread_floats(ht_rewrite_values *v, const uint8_t *floats, int64_t first, int64_t n) {
    const ht_rewrite_tensor *t = v->t;
    const size_t size = ht_weight_type_info_of(t->type)->block_bytes;
    const int64_t k = v->rows.k, n_rows = v->rows.n_rows;
    const ht_order halves = ht_order_of_halves(t->alternates);
    if (!is_spread(t)) return;
    for (int64_t row = first; row < first + n; row++) {
        const int64_t begin = row / n_rows * n_rows,
                      within = t->alternates ? ht_order_stored(&halves, row - begin) : row - begin;
        for (int64_t column = 0; column < k; column++, floats += size) {
            const int64_t at = t->transposes ? begin * k + column * n_rows + within : (begin + within) * k + column;
            memcpy((uint8_t *)v->out[0].data + (size_t)at * size, floats, size);
        }
    }
}

/* Splits n rows of joined MLX groups into their tensors. */
static void split_groups(ht_rewrite_values *v, const uint8_t *blocks, int64_t first, int64_t n) {
    const ht_affine a = ht_affine_of(v->t->type);
    if (!ht_rewrite_in_parts(v->plan, v->t)) return;
    const int64_t per_row = v->rows.k / ht_weight_type_info_of(v->t->type)->block;
    first *= per_row;
    n *= per_row;
    if (a.bits) {
        const size_t bytes = (size_t)a.group * (size_t)a.bits / 8, scale = (size_t)a.scale_bytes;
        for (int64_t g = first; g < first + n; g++, blocks += bytes + 2 * scale) {
            memcpy((uint8_t *)v->out[1].data + (size_t)g * scale, blocks, scale);
            memcpy((uint8_t *)v->out[2].data + (size_t)g * scale, blocks + scale, scale);
            memcpy((uint8_t *)v->out[0].data + (size_t)g * bytes, blocks + 2 * scale, bytes);
        }
        return;
    }
    const ht_block_mxfp4 *b = (const void *)blocks;
    for (int64_t g = first; g < first + n; g++, b++) {
        ((uint8_t *)v->out[1].data)[g] = b->e;
        uint8_t *to = (uint8_t *)v->out[0].data + g * 16;
        for (int i = 0; i < 8; i++) {
            to[i] = (uint8_t)((b->qs[2 * i] & 15) | (b->qs[2 * i + 1] & 15) << 4);
            to[8 + i] = (uint8_t)(b->qs[2 * i] >> 4 | b->qs[2 * i + 1] >> 4 << 4);
        }
    }
}

/* Rounds whole blocks matrix by matrix, as each matrix has separate importance weights. */
static bool round_blocks(const ht_rewrite_values *v, const float *x, int64_t first, int64_t n, uint8_t *to) {
    const int64_t k = v->rows.k, per_matrix = v->rows.n_rows;
    const size_t row_bytes = row_bytes_of(v);
    bool fits = true;
    for (int64_t row = first, end; row < first + n; row = end) {
        const int64_t matrix = row / per_matrix;
        end = ht_min_i64(first + n, (matrix + 1) * per_matrix);
        const float *importance = v->importances ? v->importances + matrix * k : NULL;
        fits = v->host->round_weights(v->t->type, x + (row - first) * k, end - row, k, importance,
                                      to + (size_t)(row - first) * row_bytes) &&
               fits;
    }
    return fits;
}

/* Rounds W + D of rows [first, first + n) into `out`. */
static ht_status round_rows(ht_rewrite_values *v, worker *w, int64_t first, int64_t n, const float *delta, sums *own,
                            ht_error *err) {
    const ht_weight_type type = v->t->type;
    const int64_t count = n * v->rows.k;
    const float *x = w->base.data;
    uint8_t *to = blocks_of(v, w, first);
    bool fits = true;
    if (ht_weight_is_float((int)type))
        round_floats(type, x, count, to);
    else
        fits = round_blocks(v, x, first, n, to);
    if (!fits) return too_large(v->t, largest(x, count), err);
    ht_status status = HT_OK;
    if (delta || v->plan->on_tensor || ht_weight_is_float((int)type)) {
        float *stored = w->scratch.data;
        ht_dequantize(type, to, count, stored);
        status = measure(v, x, delta, count, stored, own, err);
    }
    split_groups(v, to, first, n);
    spread_floats(v, to, first, n);
    return status;
}

/* Converts the stored blocks of rows [first, first + n) to the output type, into `out`. */
static ht_status repack_rows(ht_rewrite_values *v, worker *w, int64_t first, int64_t n, ht_error *err) {
    uint8_t *to = blocks_of(v, w, first);
    ht_status status = ht_weight_rows_read_blocks(&v->rows, first, n, w->base.data, w->scratch.data, err);
    if (status) return status;
    if (!ht_repack((ht_weight_type)v->t->from.type, w->base.data, n * v->rows.k, v->t->type,
                   to)) /* all values were compared before */
        return ht_fail(err, HT_ERR_IO, "%s: tensor `%s` changed while it was read", v->t->from.file_name, v->t->name);
    split_groups(v, to, first, n);
    return HT_OK;
}

static ht_status make_rows(ht_rewrite_values *v, worker *w, int64_t first, int64_t n, sums *own, ht_error *err) {
    if (ht_cancel_requested(v->plan->cancel)) return ht_fail(err, HT_ERR_CANCELLED, "%s was cancelled", v->plan->verb);
    const int64_t count = n * v->rows.k;
    const size_t floats = (size_t)count * sizeof(float);
    const bool changed = v->t->change != 0;
    ht_status status = grow(&w->scratch, ht_max_size(floats, ht_weight_rows_scratch(&v->rows, n)), err);
    if (!status) status = grow(&w->base, floats, err);
    if (!status) status = grow(&w->blocks, floats, err);
    if (!status && changed) status = grow(&w->delta, floats, err);
    if (!status && v->t->repacks) return repack_rows(v, w, first, n, err);
    if (!status) status = ht_weight_rows_read(&v->rows, first, n, w->base.data, w->scratch.data, err);
    if (status) return status;
    float *x = w->base.data, *delta = changed ? w->delta.data : NULL;
    if (changed) {
        change_rows(v, first, n, v->rows.k, delta);
        status = add_delta(v, delta, count, x, err);
    }
    if (!status) status = check_rows(v->plan, &v->rows, first, n, x, err);
    return status ? status : round_rows(v, w, first, n, delta, own, err);
}

static void make_chunks(void *arg, int64_t begin, int64_t end, int number) {
    ht_rewrite_values *v = arg;
    const int64_t rows = v->rows.n_matrices * v->rows.n_rows;
    for (int64_t i = begin; i < end; i++) {
        chunk *c = (chunk *)v->chunks.data + i;
        const int64_t first = i * v->step, n = ht_min_i64(v->step, rows - first);
        c->status = make_rows(v, &v->worker[number], first, n, &c->own, &c->error);
    }
}

/* Runs n chunks on all threads; reports the first failure in chunk order. */
static ht_status run_chunks(ht_rewrite_values *v, int64_t n, ht_block_fn *run, sums *all, ht_error *err) {
    ht_status status = grow(&v->chunks, (size_t)n * sizeof(chunk), err);
    if (status) return status;
    memset(v->chunks.data, 0, (size_t)n * sizeof(chunk));
    v->host->run_on_host(v->host, n, 1, run, v);
    for (int64_t i = 0; i < n; i++) {
        const chunk *c = (const chunk *)v->chunks.data + i;
        if (c->status) {
            *err = c->error;
            return c->status;
        }
        add_sums(all, &c->own);
    }
    return HT_OK;
}

/* ---- copied tensors ---- */

/* The type to check for damaged values; integers and packed elements have none. */
static int type_named(const ht_rewrite_plan *plan, const ht_rewrite_tensor *t, const char *dtype) {
    static const ht_weight_type floats[] = {HT_W_F32, HT_W_F16, HT_W_BF16, HT_W_F8_E4M3, HT_W_F8_E5M2};
    const int owner = plan->tensor[t->owner].from.type;
    for (size_t i = 0; i < sizeof floats / sizeof *floats; i++)
        if (!strcmp(dtype, ht_weight_type_info_of(floats[i])->name)) return (int)floats[i];
    const bool is_scale = t != &plan->tensor[t->owner];
    const bool has_exponents = owner == HT_W_MXFP4 || (owner >= 0 && ht_weight_is_f8((ht_weight_type)owner));
    return !strcmp(dtype, "F8_E8M0") || (is_scale && has_exponents && !strcmp(dtype, "U8")) ? E8M0 : NOT_CHECKED;
}

static copied describe(const ht_rewrite_plan *plan, size_t number, const void *bytes) {
    const ht_rewrite_tensor *t = &plan->tensor[number];
    return (copied){.of = t,
                    .bytes = bytes,
                    .type = plan->c->gguf ? t->from.type : type_named(plan, t, t->to.dtype),
                    .n = ht_elements(t->to.shape, t->to.rank),
                    .columns = t->to.rank ? t->to.shape[t->to.rank - 1] : 1};
}

/* Fails for the first element of a chunk that is not finite. */
static ht_status check_chunk(const copied *t, int64_t number, ht_error *err) {
    const int64_t first = number * CHUNK, n = ht_min_i64(CHUNK, t->n - first);
    float value = NAN;
    int64_t i;
    if (t->type == E8M0) { /* 2^(e - 127), except for 255 */
        const unsigned char *bad = memchr(t->bytes + first, 255, (size_t)n);
        i = bad ? bad - t->bytes - first : -1;
    } else {
        const ht_weight_type type = (ht_weight_type)t->type;
        const ht_weight_type_info *info = ht_weight_type_info_of(type);
        const unsigned char *blocks = t->bytes + (size_t)(first / info->block) * info->block_bytes;
        i = first_damaged(type, blocks, n, is_bound(t->of->name), &value);
    }
    if (i < 0) return HT_OK;
    return not_finite(t->of->from.file_name, t->of->name, strlen(t->of->name), value, (first + i) / t->columns,
                      (first + i) % t->columns, err);
}

static void check_chunks(void *arg, int64_t begin, int64_t end, int number) {
    ht_rewrite_values *v = arg;
    (void)number;
    for (int64_t i = begin; i < end; i++) {
        chunk *c = (chunk *)v->chunks.data + i;
        c->status = check_chunk(&v->checked, i, &c->error);
    }
}

/* ---- importance ---- */

/* Brings the weights, which are in GGUF's order of columns, into that of the tensor. */
static ht_status order_importance(ht_rewrite_values *v, ht_error *err) {
    const ht_order *order = &v->t->importance_columns;
    const int64_t k = v->rows.k;
    float *weights = v->importance.data;
    if (!order->group) return HT_OK;
    float *ordered = malloc((size_t)k * sizeof *ordered);
    if (!ordered) return ht_fail_memory(err, (size_t)k * sizeof *ordered, "importance weights");
    for (int64_t e = 0; e < v->rows.n_matrices; e++, weights += k) {
        for (int64_t i = 0; i < k; i++) ordered[i] = weights[ht_order_stored(order, i)];
        memcpy(weights, ordered, (size_t)k * sizeof *ordered);
    }
    free(ordered);
    return HT_OK;
}

static ht_status find_importance(ht_rewrite_values *v, ht_error *err) {
    const int64_t n = v->rows.n_matrices, k = v->rows.k;
    v->importances = NULL;
    if (!v->plan->importance || !*v->t->importance || ht_weight_is_float((int)v->t->type)) return HT_OK;
    ht_status status = ht_importance_check(v->plan->importance, v->t->importance, k, n, err);
    if (!status) status = grow(&v->importance, (size_t)(n * k) * sizeof(float), err);
    for (int64_t e = 0; !status && e < n; e++)
        if (!ht_importance_weigh(v->plan->importance, v->t->importance, k, e, (float *)v->importance.data + e * k))
            return HT_OK;
    if (!status) status = order_importance(v, err);
    if (!status) v->importances = v->importance.data;
    return status;
}

/* ---- tensors ---- */

static ht_status make_tensor(ht_rewrite_values *v, sums *own, ht_error *err) {
    const int64_t rows = v->rows.n_matrices * v->rows.n_rows;
    v->step = ht_max_i64(1, CHUNK / ht_max_i64(1, v->rows.k));
    return run_chunks(v, ht_ceil_div_i64(rows, v->step), make_chunks, own, err);
}

static void report_tensor(const ht_rewrite_values *v, size_t bytes, const sums *own) {
    if (!v->plan->on_tensor || !ht_rewrite_changes_type(v->t)) return;
    const ht_convert_tensor said = {.name = v->t->renamed ? v->t->renamed : v->t->name,
                                    .from = v->t->from.type_name,
                                    .to = ht_weight_type_info_of(v->t->type)->name,
                                    .bytes = (int64_t)bytes,
                                    .error = own->result > 0 ? sqrt(own->rounding / own->result) : 0};
    v->plan->on_tensor(&said, v->plan->user);
}

/* Makes a weight with all its parts; consecutive parts in a file share one computation. `counts` is true for the
 * first of them, so that sums and reports include each weight once. */
static ht_status make_weight(ht_rewrite_values *v, size_t owner, bool counts, ht_error *err) {
    size_t bytes = 0;
    sums own = {0};
    v->made = SIZE_MAX;
    v->t = &v->plan->tensor[owner];
    ht_status status = HT_OK;
    for (size_t i = 0; !status && i < v->plan->n; i++) {
        const ht_rewrite_tensor *t = &v->plan->tensor[i];
        if (t->owner != owner || t->action != HT_REWRITE_ROUND) continue;
        status = grow(&v->out[t->part], t->to.n_bytes, err);
        bytes += t->to.n_bytes;
    }
    if (!status) status = ht_weight_rows_open(v->plan, v->t, &v->rows, err);
    if (!status) status = find_importance(v, err);
    if (!status) status = make_tensor(v, &own, err);
    if (!status) status = unchanged(&v->rows, err);
    ht_weight_rows_close(&v->rows);
    if (status) return status;
    v->made = owner;
    v->n_inexact += ht_weight_is_float((int)v->t->type) && own.rounding > 0;
    if (!counts) return HT_OK;
    if (v->t->change) {
        add_sums(&v->all, &own);
        v->least_kept = fmin(v->least_kept, kept(&own));
    }
    report_tensor(v, bytes, &own);
    return HT_OK;
}

static ht_status copy(ht_rewrite_values *v, size_t number, const ht_rewrite_tensor *t, ht_error *err) {
    v->made = SIZE_MAX;
    ht_status status = grow(&v->out[0], t->to.n_bytes, err);
    if (status) return status;
    if (t->given) {
        memcpy(v->out[0].data, t->given, t->to.n_bytes);
        return HT_OK;
    }
    const ht_stored_tensor from = v->plan->c->gguf ? t->from : ht_stored_of_safetensors(v->plan->c->tensors, number);
    status = ht_file_read_at(from.file, from.offset, v->out[0].data, t->to.n_bytes, err);
    v->checked = describe(v->plan, number, v->out[0].data);
    if (!status && v->plan->checks_values && v->checked.type != NOT_CHECKED && v->checked.n)
        status = run_chunks(v, ht_ceil_div_i64(v->checked.n, CHUNK), check_chunks, &(sums){0}, err);
    return status ? status : ht_file_unchanged(t->from.file, err);
}

ht_status ht_rewrite_values_of(ht_rewrite_values *v, size_t number, const void **bytes, ht_error *err) {
    const ht_rewrite_plan *plan = v->plan;
    const ht_rewrite_tensor *t = &plan->tensor[number];
    ht_status status = HT_OK;
    if (ht_cancel_requested(plan->cancel)) return ht_fail(err, HT_ERR_CANCELLED, "%s was cancelled", plan->verb);
    if (t->action == HT_REWRITE_COPY)
        status = copy(v, number, t, err);
    else if (v->made != t->owner)
        status = make_weight(v, t->owner, t->owner == number, err);
    if (status) return status;
    *bytes = v->out[t->part].data;
    v->done += t->to.n_bytes;
    if (plan->progress) plan->progress((double)v->done / (double)v->total, plan->user);
    return HT_OK;
}

ht_status ht_rewrite_values_new(const ht_rewrite_plan *plan, ht_rewrite_values **out, ht_error *err) {
    ht_rewrite_values *v = *out = calloc(1, sizeof *v);
    if (!v) return ht_fail_memory(err, sizeof *v, plan->verb);
    *v = (ht_rewrite_values){.plan = plan, .total = ht_rewrite_plan_bytes(plan) + 1, .made = SIZE_MAX, .least_kept = 1};
    ht_device_options how;
    ht_device_options_init(&how, sizeof how);
    how.n_threads = plan->n_threads;
    ht_status status = ht_device_open("cpu", &how, &v->host, err);
    const size_t threads = status ? 0 : (size_t)v->host->n_threads;
    if (!status && !(v->worker = calloc(threads, sizeof *v->worker)))
        status = ht_fail_memory(err, threads * sizeof *v->worker, plan->verb);
    if (!status) return HT_OK;
    ht_rewrite_values_free(v);
    *out = NULL;
    return status;
}

void ht_rewrite_values_free(ht_rewrite_values *v) {
    if (!v) return;
    for (int i = 0; v->worker && i < v->host->n_threads; i++) {
        free(v->worker[i].scratch.data);
        free(v->worker[i].base.data);
        free(v->worker[i].delta.data);
        free(v->worker[i].blocks.data);
    }
    free(v->worker);
    ht_device_free(v->host);
    for (int i = 0; i < 3; i++) free(v->out[i].data);
    free(v->chunks.data);
    free(v->importance.data);
    free(v);
}

int64_t ht_rewrite_values_inexact(const ht_rewrite_values *v) { return v->n_inexact; }

void ht_rewrite_values_report(const ht_rewrite_values *v, ht_fuse_report *out) {
    const sums *s = &v->all;
    *out = (ht_fuse_report){.bytes = (int64_t)ht_rewrite_plan_bytes(v->plan),
                            .error = s->result > 0 ? sqrt(s->rounding / s->result) : 0,
                            .noise = s->change > 0 ? sqrt(s->rounding / s->change) : 0,
                            .kept = kept(s),
                            .least_kept = v->least_kept};
    for (size_t i = 0; i < v->plan->n; i++) {
        const ht_rewrite_tensor *t = &v->plan->tensor[i];
        out->n_changed += t->change != 0;
        out->n_dense += t->quantized && t->action == HT_REWRITE_ROUND && ht_weight_is_float((int)t->type);
    }
}
