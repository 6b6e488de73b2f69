/* Values of rewritten tensors: rows are read, changed by adapters and rounded once, some rows at a time on each thread. */
#include "base/checked.h"
#include "base/error.h"
#include "base/half.h"
#include "checkpoint/rewrite.h"
#include "checkpoint/tensor_read.h"
#include "device/device.h"
#include "formats/affine.h"
#include "formats/block_pack.h"
#include "formats/blocks.h"
#include "formats/importance.h"
#include "formats/repack.h"

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

/* A thread's own. */
typedef struct worker {
    buffer scratch, base, delta, blocks; /* as read, W + D, D, rounded */
} worker;

/* Some rows of the tensor that is being made. */
typedef struct chunk {
    sums own;
    ht_status status;
    ht_error error;
} chunk;

struct ht_rewrite_values {
    const ht_rewrite_plan *plan;
    ht_device *host;    /* whose threads and kernels round */
    worker *worker;     /* [host->n_threads] */
    size_t done, total; /* bytes */
    buffer out[3];      /* as written; of groups, the packed elements, scales and biases */
    size_t made;        /* the weight whose parts are in `out`; SIZE_MAX: none */
    buffer chunks, importance;
    sums all;
    double least_kept;
    int64_t n_inexact;
    /* Of the weight that is being made: */
    const ht_rewrite_tensor *t;
    ht_weight_rows rows;
    const float *importances; /* [n_matrices][k]; NULL: none */
    int64_t step;             /* rows of a chunk */
};

static ht_status grow(buffer *b, size_t bytes, ht_error *err) {
    if (bytes <= b->capacity) return HT_OK;
    free(b->data);
    b->data = malloc(bytes);
    b->capacity = b->data ? bytes : 0;
    return b->data ? HT_OK : ht_fail_memory(err, bytes, "a tensor");
}

/* ---- changes ---- */

/* Adds scale * B A to row `row` of the tensor. */
static void add_change(const ht_rewrite_change *c, int64_t row, float *delta) {
    const ht_lora *l = c->lora;
    int64_t b_row = ht_canonical_row(row - c->first_row, c->head_rows);
    if (c->lora_head_rows) b_row = ht_interleaved_row(b_row, c->lora_head_rows);
    const float *b = l->b + (c->expert * l->n_out + b_row) * l->rank, *a = l->a + c->expert * l->rank * l->n_in;
    for (int64_t i = 0; i < l->rank; i++, a += l->n_in) {
        const float factor = c->scale * b[i];
        for (int64_t col = 0; col < l->n_in; col++) delta[col] += factor * a[col];
    }
}

/* D of rows [first, first + n). */
static void change_rows(const ht_rewrite_tensor *t, int64_t first, int64_t n, int64_t k, float *delta) {
    memset(delta, 0, (size_t)(n * k) * sizeof *delta);
    for (size_t i = 0; i < t->n_changes; i++) {
        const ht_rewrite_change *c = &t->change[i];
        const int64_t begin = ht_max_i64(first, c->first_row),
                      end = ht_min_i64(first + n, c->first_row + c->lora->n_out);
        for (int64_t row = begin; row < end; row++) add_change(c, row, delta + (row - first) * k);
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

/* To nearest even. */
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

/* What is stored, against W + D. */
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

/* Joined groups of MLX to their tensors, from group `first` on. */
static void split_groups(ht_rewrite_values *v, const uint8_t *blocks, int64_t first, int64_t n) {
    const ht_affine a = ht_affine_of(v->t->type);
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

/* Whole blocks, matrix by matrix, as each has importance weights of its own. */
static bool round_blocks(const ht_rewrite_values *v, const float *x, int64_t first, int64_t n, uint8_t *to) {
    const ht_weight_type_info *info = ht_weight_type_info_of(v->t->type);
    const int64_t k = v->rows.k, per_matrix = v->rows.n_rows;
    const size_t row_bytes = (size_t)(k / info->block) * info->block_bytes;
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

/* Rounds W + D of rows [first, first + n) and puts it into `out`. */
static ht_status round_rows(ht_rewrite_values *v, worker *w, int64_t first, int64_t n, const float *delta, sums *own,
                            ht_error *err) {
    const ht_weight_type type = v->t->type;
    const ht_weight_type_info *info = ht_weight_type_info_of(type);
    const int64_t count = n * v->rows.k;
    const size_t bytes = (size_t)(count / info->block) * info->block_bytes;
    const float *x = w->base.data;
    const bool in_parts = ht_rewrite_in_parts(v->plan, v->t);
    uint8_t *to = in_parts ? w->blocks.data : (uint8_t *)v->out[0].data + (size_t)first * (bytes / (size_t)n);
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
    if (in_parts) split_groups(v, to, first * v->rows.k / info->block, count / info->block);
    return status;
}

/* Puts the stored blocks of rows [first, first + n) into `out` in the type that is written. */
static ht_status repack_rows(ht_rewrite_values *v, worker *w, int64_t first, int64_t n, ht_error *err) {
    const int64_t count = n * v->rows.k;
    const ht_weight_type type = v->t->type;
    const ht_weight_type_info *info = ht_weight_type_info_of(type);
    const size_t bytes = (size_t)(count / info->block) * info->block_bytes;
    const bool in_parts = ht_rewrite_in_parts(v->plan, v->t);
    uint8_t *to = in_parts ? w->blocks.data : (uint8_t *)v->out[0].data + (size_t)first * (bytes / (size_t)n);
    ht_status status = ht_weight_rows_read_blocks(&v->rows, first, n, w->base.data, w->scratch.data, err);
    if (status) return status;
    if (!ht_repack((ht_weight_type)v->t->from.type, w->base.data, count, type,
                   to)) /* all values were compared before */
        return ht_fail(err, HT_ERR_IO, "%s: tensor `%s` changed while it was read", v->t->from.file_name, v->t->name);
    if (in_parts) split_groups(v, to, first * v->rows.k / info->block, count / info->block);
    return HT_OK;
}

static ht_status make_rows(ht_rewrite_values *v, worker *w, int64_t first, int64_t n, sums *own, ht_error *err) {
    if (ht_cancel_requested(v->plan->cancel)) return ht_fail(err, HT_ERR_CANCELLED, "%s was cancelled", v->plan->verb);
    const int64_t count = n * v->rows.k;
    const size_t floats = (size_t)count * sizeof(float);
    const bool changed = v->t->n_changes > 0;
    ht_status status = grow(&w->scratch, ht_max_size(floats, ht_weight_rows_scratch(&v->rows, n)), err);
    if (!status) status = grow(&w->base, floats, err);
    if (!status) status = grow(&w->blocks, floats, err);
    if (!status && changed) status = grow(&w->delta, floats, err);
    if (!status && v->t->repacks) return repack_rows(v, w, first, n, err);
    if (!status) status = ht_weight_rows_read(&v->rows, first, n, w->base.data, w->scratch.data, err);
    if (status) return status;
    float *x = w->base.data, *delta = changed ? w->delta.data : NULL;
    if (changed) {
        change_rows(v->t, first, n, v->rows.k, delta);
        status = add_delta(v, delta, count, x, err);
    }
    if (!status) status = ht_rewrite_check_rows(v->plan, &v->rows, first, n, x, err);
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

/* ---- importance ---- */

static ht_status find_importance(ht_rewrite_values *v, ht_error *err) {
    const int64_t n = v->rows.n_matrices, k = v->rows.k;
    v->importances = NULL;
    if (!v->plan->importance || !*v->t->importance || ht_weight_is_float((int)v->t->type)) return HT_OK;
    ht_status status = ht_importance_check(v->plan->importance, v->t->importance, k, n, err);
    if (!status) status = grow(&v->importance, (size_t)(n * k) * sizeof(float), err);
    for (int64_t e = 0; !status && e < n; e++)
        if (!ht_importance_weigh(v->plan->importance, v->t->importance, k, e, (float *)v->importance.data + e * k))
            return HT_OK;
    if (!status) v->importances = v->importance.data;
    return status;
}

/* ---- tensors ---- */

static ht_status make_tensor(ht_rewrite_values *v, sums *own, ht_error *err) {
    const int64_t rows = v->rows.n_matrices * v->rows.n_rows;
    v->step = ht_max_i64(1, CHUNK / ht_max_i64(1, v->rows.k));
    const int64_t n_chunks = (rows + v->step - 1) / v->step;
    ht_status status = grow(&v->chunks, (size_t)n_chunks * sizeof(chunk), err);
    if (status) return status;
    memset(v->chunks.data, 0, (size_t)n_chunks * sizeof(chunk));
    v->host->run_on_host(v->host, n_chunks, 1, make_chunks, v);
    for (int64_t i = 0; i < n_chunks; i++) {
        const chunk *c = (const chunk *)v->chunks.data + i;
        if (c->status) {
            *err = c->error;
            return c->status;
        }
        add_sums(own, &c->own);
    }
    return HT_OK;
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

/* A weight with all its parts; where they follow each other in the file they are made once. `counts` where it is for the first of
 * them, so that sums and reports have each weight once. */
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
    if (!status) status = ht_weight_rows_unchanged(&v->rows, err);
    ht_weight_rows_close(&v->rows);
    if (status) return status;
    v->made = owner;
    v->n_inexact += ht_weight_is_float((int)v->t->type) && own.rounding > 0;
    if (!counts) return HT_OK;
    if (v->t->n_changes) {
        add_sums(&v->all, &own);
        v->least_kept = fmin(v->least_kept, kept(&own));
    }
    report_tensor(v, bytes, &own);
    return HT_OK;
}

static ht_status copy(ht_rewrite_values *v, size_t number, const ht_rewrite_tensor *t, ht_error *err) {
    if (t->given) {
        v->made = SIZE_MAX;
        const ht_status grown = grow(&v->out[0], t->to.n_bytes, err);
        if (!grown) memcpy(v->out[0].data, t->given, t->to.n_bytes);
        return grown;
    }
    const ht_file *file = t->from.file;
    size_t offset = t->from.offset;
    if (!v->plan->c->gguf) {
        const ht_safetensor *s = ht_safetensors_at(v->plan->c->tensors, number);
        file = ht_safetensors_file(v->plan->c->tensors, s->file);
        offset = s->offset;
    }
    v->made = SIZE_MAX;
    ht_status status = grow(&v->out[0], t->to.n_bytes, err);
    if (!status) status = ht_file_read_at(file, offset, v->out[0].data, t->to.n_bytes, err);
    if (!status && v->plan->checks_values)
        status = ht_rewrite_check_copied(v->plan, v->host, number, v->out[0].data, err);
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

ht_status ht_rewrite_values_new(const ht_rewrite_plan *plan, int n_threads, ht_rewrite_values **out, ht_error *err) {
    ht_rewrite_values *v = *out = calloc(1, sizeof *v);
    if (!v) return ht_fail_memory(err, sizeof *v, plan->verb);
    *v = (ht_rewrite_values){.plan = plan, .total = ht_rewrite_plan_bytes(plan) + 1, .made = SIZE_MAX, .least_kept = 1};
    ht_device_options how;
    ht_device_options_init(&how, sizeof how);
    how.n_threads = n_threads;
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
        out->n_changed += t->n_changes > 0;
        out->n_dense += t->quantized && t->action == HT_REWRITE_ROUND && ht_weight_is_float((int)t->type);
    }
}
