/* A pass that gathers importance weights: the model's forward function, evaluated layer by layer, with an observer that adds up the
 * squares of every projection's inputs on the device. Logits are never computed. */
#include "analysis/importance.h"
#include "array/array.h"
#include "array/user_function.h"
#include "base/checked.h"
#include "base/error.h"
#include "checkpoint/config.h"
#include "generate/cache.h"
#include "models/weights.h"

#include <hearth/index.h>
#include <hearth/ops.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Projections whose inputs are not evaluated yet: those of one layer, or around them. */
enum { MOST_PENDING = 32 };

typedef struct pending {
    ht_importance_site *site; /* the first matrix that meets this input */
    ht_array *x, *ids;        /* the input, to be recognised; the chosen experts or HT_NONE */
    ht_array *sum;            /* f32 [n_columns] or [n_experts, n_columns] of the squares */
    int64_t rows;             /* inputs of a dense matrix */
} pending;

typedef struct pass {
    ht_observer observer; /* first: what is called back with */
    const ht_importance_pass *p;
    int64_t begin; /* tokens of this pass before the step */
    int32_t rows;  /* of the step */
    int n_pending;
    pending pending[MOST_PENDING];
} pass;

/* ---- sums of a step, on the device ---- */

/* x [..., k] -> f32 [k] */
static ht_array *sum_rows(ht_scope *s, ht_array *x) {
    const int64_t flat[] = {-1, ht_array_dim(x, -1)};
    x = ht_reshape(s, x, flat, 2);
    return ht_sum(s, ht_multiply(s, x, x), (int[]){0}, 1, false);
}

/* x [T, k] or [T, m, k], ids i32 [T, m] -> f32 [n, k], each row the sum over the inputs of an expert. Scattering adds in the
 * order of the tokens, for any number of threads. */
static ht_array *sum_by_expert(ht_scope *s, ht_array *x, ht_array *ids, int64_t n) {
    const int64_t k = ht_array_dim(x, -1), t = ht_array_dim(ids, 0), m = ht_array_dim(ids, 1);
    ht_array *squares = ht_multiply(s, x, x);
    if (ht_array_n_dims(x) == 2) squares = ht_broadcast_to(s, ht_expand_dims(s, squares, 1), (int64_t[]){t, m, k}, 3);
    squares = ht_reshape(s, squares, (int64_t[]){t * m, 1, k}, 3);
    ht_array *none = ht_full(s, 0, HT_F32, (int64_t[]){n, k}, 2), *at = ht_reshape(s, ids, (int64_t[]){t * m}, 1);
    return ht_scatter(s, none, &at, (int[]){0}, 1, squares, HT_SCATTER_ADD);
}

static bool projects(ht_observer *o, ht_ctx *c, const char *slot, ht_array *x, ht_array *ids) {
    pass *p = (pass *)o;
    ht_importance_site *site = ht_importance_site_of(p->p->into, slot);
    if (!site) return true;
    for (int i = 0; i < p->n_pending; i++) {
        const pending *before = &p->pending[i];
        if (before->x != x || before->ids != ids) continue;
        if (before->site != site) site->same_as = before->site;
        return true;
    }
    if (p->n_pending == MOST_PENDING) {
        ht_scope_fail(c->s, HT_ERR_INTERNAL, "a layer with more than %d projections", (int)MOST_PENDING);
        return false;
    }
    ht_array *sum = ids == HT_NONE ? sum_rows(c->s, x) : sum_by_expert(c->s, x, ids, site->n_experts);
    if (!sum) return false;
    p->pending[p->n_pending++] = (pending){site, x, ids, sum, ht_array_size(x) / site->n_columns};
    return true;
}

/* ---- sums of the text, on the host ---- */

static ht_status make_sums(ht_importance_site *site, ht_error *err) {
    if (site->sum) return HT_OK;
    const size_t experts = (size_t)site->n_experts, columns = (size_t)site->n_columns;
    size_t n;
    if (ht_mul_size(experts, columns, &n) && (site->count = calloc(experts, sizeof *site->count)))
        site->sum = calloc(n, sizeof *site->sum);
    return site->sum ? HT_OK : ht_fail_memory(err, experts * columns * sizeof *site->sum, "the sums of a matrix");
}

/* Counts the inputs of each expert. */
static ht_status count_experts(ht_scope *s, const pending *of, ht_error *err) {
    const void *data;
    void *copy;
    ht_status status = ht_array_borrow(s, of->ids, &data, &copy, err);
    const int32_t *id = data;
    const int64_t n = status ? 0 : ht_array_size(of->ids);
    for (int64_t i = 0; i < n; i++) of->site->count[id[i]]++;
    free(copy);
    return status;
}

static ht_status add(ht_scope *s, const pending *of, ht_error *err) {
    ht_importance_site *site = of->site;
    const void *data;
    void *copy = NULL;
    ht_status status = make_sums(site, err);
    if (!status) status = ht_array_borrow(s, of->sum, &data, &copy, err);
    if (status) return status;
    const float *sum = data;
    bool finite = true;
    for (int64_t i = 0; i < site->n_experts * site->n_columns; i++) {
        finite = finite && isfinite(sum[i]);
        site->sum[i] += (double)sum[i];
    }
    free(copy);
    if (!finite)
        return ht_fail(err, HT_ERR_FORMAT, "the inputs of `%s` are not finite numbers, or too large to be squared",
                       site->name);
    if (of->ids != HT_NONE) return count_experts(s, of, err);
    site->count[0] += (double)of->rows;
    return HT_OK;
}

/* Evaluates what is pending, and h beside it unless that is NULL, so that no input is computed twice or kept. */
static ht_status flush(pass *p, ht_scope *s, ht_array *h, ht_error *err) {
    ht_array *wanted[2 * MOST_PENDING + 1];
    int n = 0;
    for (int i = 0; i < p->n_pending; i++) {
        wanted[n++] = p->pending[i].sum;
        if (p->pending[i].ids != HT_NONE) wanted[n++] = p->pending[i].ids;
    }
    if (h) wanted[n++] = h;
    ht_status status = n ? ht_array_eval(s, wanted, n, err) : HT_OK;
    for (int i = 0; !status && i < p->n_pending; i++) status = add(s, &p->pending[i], err);
    p->n_pending = 0;
    return status;
}

/* ---- layers ---- */

/* Each is evaluated in a scope of its own, so that only one of them has its values in memory. */
static ht_array *run_layer(ht_observer *o, ht_ctx *c, ht_layer_fn *layer, const void *model, int index,
                           ht_array *const *in) {
    pass *p = (pass *)o;
    const ht_importance_pass *of = p->p;
    if (ht_cancel_requested(of->cancel)) return ht_scope_fail(c->s, HT_ERR_CANCELLED, "cancelled");
    ht_error err = {0};
    if (flush(p, c->s, NULL, &err)) return ht_scope_fail_with(c->s, &err);
    ht_ctx inner = *c;
    inner.s = ht_scope_child(c->s);
    if (!inner.s) return NULL;
    ht_array *h = layer(&inner, model, index, in);
    if (h && (flush(p, inner.s, h, &err) || ht_array_detach(inner.s, h, &err))) h = ht_scope_fail_with(inner.s, &err);
    p->n_pending = 0;
    if (!ht_scope_give(c->s, inner.s, h != NULL, &h, 1)) return NULL;
    const double share = (double)(index + 1) / (double)of->model->config->n_layers; /* of the step */
    if (of->progress) of->progress(((double)(of->done + p->begin) + p->rows * share) / (double)of->total, of->user);
    return h;
}

/* ---- steps ---- */

/* Runs ids [begin, begin + rows). All rows are output rows, so that the last layer and the head meet all of them. */
static ht_status run_step(pass *p, const int32_t *ids, ht_error *err) {
    const ht_importance_pass *of = p->p;
    int32_t pos[HT_IMPORTANCE_ROWS], out_row[HT_IMPORTANCE_ROWS];
    for (int32_t i = 0; i < p->rows; i++) {
        pos[i] = (int32_t)p->begin + i;
        out_row[i] = i;
    }
    const ht_batch batch = {.n_tok = p->rows,
                            .n_seq = 1,
                            .n_out = p->rows,
                            .id = ids + p->begin,
                            .pos = pos,
                            .seq_start = (int32_t[]){0, p->rows},
                            .kv_len = (int32_t[]){(int32_t)p->begin + p->rows},
                            .out_row = out_row};
    ht_cache *cache = of->cache;
    const ht_step step = {.batch = &batch, .kv = &cache, .lora = of->lora ? &of->lora : NULL};
    ht_status status = ht_cache_reserve(cache, p->begin + p->rows, err);
    if (status) return status;
    ht_scope *s = ht_scope_new(of->model->stream);
    if (!s) return ht_fail_memory(err, sizeof(void *), "a scope");
    ht_ctx c = {.s = s, .step = &step, .lora = of->lora ? of->model->weights : NULL, .observer = &p->observer};
    const ht_array *logits = of->model->config->family->forward(&c, ht_weights_decoder(of->model->weights));
    status = !logits || ht_scope_error(s) ? ht_scope_status(s, err) : flush(p, s, NULL, err);
    ht_scope_free(s);
    if (!status) cache->length = p->begin + p->rows;
    return status;
}

ht_status ht_importance_pass_run(const ht_importance_pass *of, const int32_t *ids, int64_t n, ht_error *err) {
    pass p = {.observer = {.layer = run_layer, .projects = projects}, .p = of};
    ht_status status = ht_cache_truncate(of->cache, 0, err);
    for (; !status && p.begin < n; p.begin += p.rows) {
        p.rows = (int32_t)ht_min_i64(HT_IMPORTANCE_ROWS, n - p.begin);
        status = run_step(&p, ids, err);
    }
    return status;
}
