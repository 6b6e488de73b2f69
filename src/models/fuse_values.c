/* Values of fused tensors: rows are read, dequantised, scaled, changed by B A, and rounded once, some rows at a time. */
#include "base/checked.h"
#include "base/error.h"
#include "base/half.h"
#include "formats/affine.h"
#include "formats/groups.h"
#include "models/fp8_scales.h"
#include "models/fuse.h"
#include "models/pack.h"
#include "models/tensor_read.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { CHUNK = 1 << 16 }; /* elements that are changed at a time, about */

typedef struct buffer {
    void *data;
    size_t capacity;
} buffer;

/* Sums over weights: W as it was, D the change, S as stored, R = S - W - D. */
typedef struct sums {
    double change, result, rounding, along; /* <D, D>, <W + D, W + D>, <R, R>, <R, D> */
} sums;

struct ht_fuse_values {
    const ht_fuse_plan *plan;
    size_t done, total;      /* bytes */
    buffer out[3];           /* as written; of groups, the packed elements, scales and biases */
    size_t grouped;          /* the weight whose groups are in `out`; plan->n: none */
    buffer raw, base, delta; /* rows as read, W, D */
    sums all;
    double least_kept;
    /* Of the tensor that is being changed: */
    const ht_fuse_tensor *t;
    int64_t n_matrices, n_rows, k; /* rows of one matrix */
    ht_block_scales *scales;       /* [n_matrices]; NULL: none */
    float *products;               /* [n_shares][n_matrices] factors on the products; NULL: none */
    sums own;
};

static ht_status grow(buffer *b, size_t bytes, ht_error *err) {
    if (bytes <= b->capacity) return HT_OK;
    free(b->data);
    b->data = malloc(bytes);
    b->capacity = b->data ? bytes : 0;
    return b->data ? HT_OK : ht_fail_memory(err, bytes, "a tensor");
}

/* ---- a tensor's scales ---- */

static void forget_scales(ht_fuse_values *v) {
    for (int64_t e = 0; v->scales && e < v->n_matrices; e++) free(v->scales[e].values);
    free(v->scales);
    free(v->products);
    v->scales = NULL;
    v->products = NULL;
}

static ht_status read_fp8_scales(ht_fuse_values *v, ht_error *err) {
    ht_fp8_scales found;
    const int64_t stacked = v->t->from.n_dims == 3 ? v->n_matrices : 0;
    ht_status status = ht_fp8_scales_find(v->plan->c, v->t->name, stacked, v->n_rows, v->k, &found, err);
    if (status || !found.any) return status;
    v->scales = calloc((size_t)v->n_matrices, sizeof *v->scales);
    if (!v->scales) return ht_fail_memory(err, (size_t)v->n_matrices * sizeof *v->scales, "scales");
    for (int64_t e = 0; !status && e < v->n_matrices; e++) {
        status = ht_fp8_scales_read(&found, e, 0, v->n_rows, &v->scales[e], err);
    }
    return status;
}

static ht_status read_products(ht_fuse_values *v, ht_error *err) {
    const int n_shares = v->t->n_shares;
    bool found = true;
    size_t bytes = (size_t)(v->n_matrices * n_shares) * sizeof *v->products;
    v->products = malloc(bytes);
    if (!v->products) return ht_fail_memory(err, bytes, "scales");
    ht_status status = HT_OK;
    for (int i = 0; !status && found && i < n_shares; i++)
        status = ht_weights_product_scales(v->plan->c, v->plan->config, v->t->name, v->n_matrices, i, n_shares,
                                           v->products + i * v->n_matrices, &found, err);
    if (found) return status;
    free(v->products);
    v->products = NULL;
    return status;
}

static ht_status begin(ht_fuse_values *v, const ht_fuse_tensor *t, ht_error *err) {
    forget_scales(v);
    v->t = t;
    v->own = (sums){0};
    v->n_matrices = t->from.n_dims == 3 ? t->from.dims[0] : 1;
    v->k = t->from.n_dims ? t->from.dims[t->from.n_dims - 1] : 1;
    v->n_rows = 1;
    for (int d = t->from.n_dims == 3; d < t->from.n_dims - 1; d++) v->n_rows *= t->from.dims[d];
    ht_status status = ht_weight_is_f8((ht_weight_type)t->from.type) ? read_fp8_scales(v, err) : HT_OK;
    return status ? status : read_products(v, err);
}

static void scale_row(const ht_fuse_values *v, int64_t row, float *x) {
    const int64_t matrix = row / v->n_rows, within = row % v->n_rows;
    if (v->scales) {
        const ht_block_scales *all = &v->scales[matrix];
        const float *scales = all->values + within / all->rows * all->per_row;
        for (int64_t c = 0; c < v->k; c++) x[c] *= scales[c / all->columns];
    }
    if (v->products) {
        const int64_t share = within / (v->n_rows / v->t->n_shares);
        const float factor = v->products[share * v->n_matrices + matrix];
        for (int64_t c = 0; c < v->k; c++) x[c] *= factor;
    }
}

/* ---- rows ---- */

/* W of rows [first, first + n). */
static ht_status read_rows(ht_fuse_values *v, int64_t first, int64_t n, ht_error *err) {
    const ht_stored_tensor *t = &v->t->from;
    const size_t bytes = ht_tensor_size(t, n * v->k);
    ht_status status = grow(&v->raw, bytes + ht_tensor_read_scratch(t, n * v->k), err);
    if (!status) status = grow(&v->base, (size_t)(n * v->k) * sizeof(float), err);
    if (!status)
        status = ht_tensor_read(t, first * v->k, n * v->k, v->raw.data, (unsigned char *)v->raw.data + bytes, err);
    if (status) return status;
    float *base = v->base.data;
    ht_dequantize((ht_weight_type)t->type, v->raw.data, n * v->k, base);
    for (int64_t r = 0; r < n; r++) scale_row(v, first + r, base + r * v->k);
    return HT_OK;
}

/* Row of the canonical order at place `at` of rows that are interleaved in heads; inverse of ht_interleaved_row. */
static int64_t canonical_row(int64_t at, int64_t head_rows) {
    if (!head_rows) return at;
    const int64_t within = at % head_rows;
    return at - within + within % 2 * (head_rows / 2) + within / 2;
}

/* Adds scale * B A to row `row` of the tensor. */
static void add_change(const ht_fuse_change *c, int64_t row, float *delta) {
    const ht_lora *l = c->lora;
    int64_t b_row = canonical_row(row - c->first_row, c->head_rows);
    if (c->lora_head_rows) b_row = ht_interleaved_row(b_row, c->lora_head_rows);
    const float *b = l->b + (c->expert * l->n_out + b_row) * l->rank, *a = l->a + c->expert * l->rank * l->n_in;
    for (int64_t i = 0; i < l->rank; i++, a += l->n_in) {
        const float factor = c->scale * b[i];
        for (int64_t col = 0; col < l->n_in; col++) delta[col] += factor * a[col];
    }
}

/* D of rows [first, first + n). */
static ht_status change_rows(ht_fuse_values *v, int64_t first, int64_t n, ht_error *err) {
    ht_status status = grow(&v->delta, (size_t)(n * v->k) * sizeof(float), err);
    if (status) return status;
    float *delta = v->delta.data;
    memset(delta, 0, (size_t)(n * v->k) * sizeof *delta);
    for (size_t i = 0; i < v->t->n_changes; i++) {
        const ht_fuse_change *c = &v->t->change[i];
        const int64_t begin = ht_max_i64(first, c->first_row),
                      end = ht_min_i64(first + n, c->first_row + c->lora->n_out);
        for (int64_t row = begin; row < end; row++) add_change(c, row, delta + (row - first) * v->k);
    }
    return HT_OK;
}

static void count(ht_fuse_values *v, float base, float delta, float stored) {
    const double d = (double)delta, x = (double)base + d, r = (double)stored - x;
    v->own.change += d * d;
    v->own.result += x * x;
    v->own.rounding += r * r;
    v->own.along += r * d;
}

static double kept(const sums *s) { return s->change > 0 ? 1 + s->along / s->change : 1; }

static void add_up(ht_fuse_values *v) {
    if (!v->t->n_changes) return;
    v->all.change += v->own.change;
    v->all.result += v->own.result;
    v->all.rounding += v->own.rounding;
    v->all.along += v->own.along;
    v->least_kept = fmin(v->least_kept, kept(&v->own));
}

/* ---- floats ---- */

/* Rounds to nearest even; returns the value that is stored. */
static float put_float(const char *dtype, float x, size_t i, void *out) {
    if (dtype[0] == 'F' && dtype[1] == '3') {
        memcpy((float *)out + i, &x, sizeof x);
        return x;
    }
    const bool is_bf16 = dtype[0] == 'B';
    const uint16_t bits = is_bf16 ? ht_f32_to_bf16(x) : ht_f32_to_f16(x);
    const unsigned char bytes[2] = {(unsigned char)bits, (unsigned char)(bits >> 8)};
    memcpy((unsigned char *)out + 2 * i, bytes, sizeof bytes);
    return is_bf16 ? ht_bf16_to_f32(bits) : ht_f16_to_f32(bits);
}

/* Of what was finite before. */
static ht_status too_large(const ht_fuse_values *v, float x, const char *dtype, ht_error *err) {
    if (!isfinite(x))
        return ht_fail(err, HT_ERR_LIMIT, "tensor `%s` would hold %g: the adapters' values or factors are too large",
                       v->t->name, (double)x);
    return ht_fail(err, HT_ERR_LIMIT, "tensor `%s` holds %g now, more than %s can; take bf16 or f32", v->t->name,
                   (double)x, dtype);
}

static ht_status put_dense(ht_fuse_values *v, int64_t first, int64_t n, ht_error *err) {
    const float *base = v->base.data, *delta = v->delta.data;
    const bool changed = v->t->n_changes > 0;
    for (int64_t i = 0; i < n * v->k; i++) {
        const float d = changed ? delta[i] : 0, x = base[i] + d;
        const float stored = put_float(v->t->to.dtype, x, (size_t)(first * v->k + i), v->out[0].data);
        if (!isfinite(stored) && isfinite(base[i])) return too_large(v, x, v->t->to.dtype, err);
        if (changed) count(v, base[i], d, stored);
    }
    return HT_OK;
}

/* ---- groups ---- */

/* One group, with the scale and bias that are stored: the packed elements are chosen for these. */
static ht_status put_group(ht_fuse_values *v, const ht_quantization *how, int64_t index, const float *base,
                           const float *delta, const char *dtype, ht_error *err) {
    float x[HT_GROUP_MOST], low = INFINITY, high = -INFINITY;
    for (int i = 0; i < how->group; i++) {
        x[i] = base[i] + delta[i];
        if (!isfinite(x[i]) && isfinite(base[i])) return too_large(v, x[i], dtype, err);
        low = fminf(low, x[i]);
        high = fmaxf(high, x[i]);
    }
    ht_group fit;
    ht_groups_fit(how, low, high, &fit);
    const float scale = put_float(dtype, fit.scale, (size_t)index, v->out[1].data);
    const float bias = put_float(dtype, fit.bias, (size_t)index, v->out[2].data), most = (float)((1 << how->bits) - 1);
    if (isfinite(low) && isfinite(high) && (!isfinite(scale) || !isfinite(bias)))
        return too_large(v, high > -low ? high : low, dtype, err);
    uint8_t *to = (uint8_t *)v->out[0].data + index * (how->group / 8 * how->bits);
    for (int i = 0; i < how->group; i += 8, to += how->bits) {
        uint64_t numbers = 0;
        for (int k = 0; k < 8; k++) {
            float q = scale != 0 ? rintf((x[i + k] - bias) / scale) : 0;
            q = q > 0 ? fminf(q, most) : 0; /* also for NaN */
            numbers |= (uint64_t)q << 8 * k;
            count(v, base[i + k], delta[i + k], scale * q + bias);
        }
        ht_affine_gather(how->bits, numbers, to);
    }
    return HT_OK;
}

static ht_status put_groups(ht_fuse_values *v, int64_t first, int64_t n, ht_error *err) {
    const ht_fuse_options *o = &v->plan->options;
    const ht_quantization how = {HT_QUANT_AFFINE, o->quantize_group, o->quantize_bits};
    const char *dtype = ht_weight_type_info_of(ht_affine_of((ht_weight_type)v->t->from.type).scale)->name;
    const float *base = v->base.data, *delta = v->delta.data;
    const int64_t before = first * v->k / how.group;
    ht_status status = HT_OK;
    for (int64_t g = 0; !status && g < n * v->k / how.group; g++)
        status = put_group(v, &how, before + g, base + g * how.group, delta + g * how.group, dtype, err);
    return status;
}

/* ---- tensors ---- */

static ht_status change_tensor(ht_fuse_values *v, ht_error *err) {
    const int64_t rows = v->n_matrices * v->n_rows, step = ht_max_i64(1, CHUNK / ht_max_i64(1, v->k));
    ht_status status = HT_OK;
    for (int64_t first = 0; !status && first < rows; first += step) {
        const int64_t n = ht_min_i64(step, rows - first);
        if (ht_cancel_requested(v->plan->options.cancel)) return ht_fail(err, HT_ERR_CANCELLED, "fusing was cancelled");
        status = read_rows(v, first, n, err);
        if (!status && v->t->n_changes) status = change_rows(v, first, n, err);
        if (status) break;
        if (v->t->action == HT_FUSE_GROUPS)
            status = put_groups(v, first, n, err);
        else
            status = put_dense(v, first, n, err);
    }
    return status;
}

static ht_status copy(ht_fuse_values *v, size_t number, const ht_fuse_tensor *t, ht_error *err) {
    const ht_file *file = t->from.file;
    size_t offset = t->from.offset;
    if (!v->plan->c->gguf) {
        const ht_safetensor *s = ht_safetensors_at(v->plan->c->tensors, number);
        file = ht_safetensors_file(v->plan->c->tensors, s->file);
        offset = s->offset;
    }
    ht_status status = grow(&v->out[0], t->to.n_bytes, err);
    return status ? status : ht_file_read_at(file, offset, v->out[0].data, t->to.n_bytes, err);
}

static ht_status make_dense(ht_fuse_values *v, const ht_fuse_tensor *t, ht_error *err) {
    ht_status status = grow(&v->out[0], t->to.n_bytes, err);
    if (!status) status = begin(v, t, err);
    if (!status) status = change_tensor(v, err);
    if (!status) add_up(v);
    return status;
}

/* All three parts of the weight that tensor t belongs to; where they follow each other in the file they are made once. */
static ht_status make_groups(ht_fuse_values *v, const ht_fuse_tensor *t, ht_error *err) {
    const ht_fuse_tensor *weight = &v->plan->tensor[t->owner];
    if (v->grouped != t->owner) {
        const ht_affine affine = ht_affine_of((ht_weight_type)weight->from.type);
        ht_status status = grow(&v->out[0], weight->to.n_bytes, err);
        if (!status) status = begin(v, weight, err);
        const size_t n_scales = (size_t)(v->n_matrices * v->n_rows * v->k / v->plan->options.quantize_group);
        for (int i = 1; !status && i < 3; i++) status = grow(&v->out[i], n_scales * (size_t)affine.scale_bytes, err);
        if (!status) status = change_tensor(v, err);
        if (status) return status;
        v->grouped = t->owner;
    }
    if (!t->part) add_up(v);
    return HT_OK;
}

ht_status ht_fuse_values_of(ht_fuse_values *v, size_t number, const void **bytes, ht_error *err) {
    const ht_fuse_tensor *t = &v->plan->tensor[number];
    const ht_fuse_options *o = &v->plan->options;
    ht_status status = HT_OK;
    if (ht_cancel_requested(o->cancel)) return ht_fail(err, HT_ERR_CANCELLED, "fusing was cancelled");
    if (t->action == HT_FUSE_GROUPS)
        status = make_groups(v, t, err);
    else {
        v->grouped = v->plan->n;
        status = t->action == HT_FUSE_DENSE ? make_dense(v, t, err) : copy(v, number, t, err);
    }
    if (!status) status = ht_file_unchanged(t->from.file, err);
    if (status) return status;
    *bytes = v->out[t->part].data;
    v->done += t->to.n_bytes;
    if (o->progress) o->progress((double)v->done / (double)v->total, o->user);
    return HT_OK;
}

ht_status ht_fuse_values_new(const ht_fuse_plan *plan, ht_fuse_values **out, ht_error *err) {
    *out = calloc(1, sizeof **out);
    if (!*out) return ht_fail_memory(err, sizeof **out, "fusing");
    **out = (ht_fuse_values){.plan = plan, .total = ht_fuse_plan_bytes(plan) + 1, .grouped = plan->n, .least_kept = 1};
    return HT_OK;
}

void ht_fuse_values_free(ht_fuse_values *v) {
    if (!v) return;
    forget_scales(v);
    for (int i = 0; i < 3; i++) free(v->out[i].data);
    free(v->raw.data);
    free(v->base.data);
    free(v->delta.data);
    free(v);
}

void ht_fuse_values_report(const ht_fuse_values *v, ht_fuse_report *out) {
    const sums *s = &v->all;
    *out = (ht_fuse_report){.bytes = (int64_t)ht_fuse_plan_bytes(v->plan),
                            .error = s->result > 0 ? sqrt(s->rounding / s->result) : 0,
                            .noise = s->change > 0 ? sqrt(s->rounding / s->change) : 0,
                            .kept = kept(s),
                            .least_kept = v->least_kept};
    for (size_t i = 0; i < v->plan->n; i++) {
        const ht_fuse_tensor *t = &v->plan->tensor[i];
        out->n_changed += t->n_changes > 0;
        out->n_dense += t->quantized && t->action == HT_FUSE_DENSE;
    }
}
