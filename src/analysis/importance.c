/* Importance matrix of a text: passes over its chunks sum the squares of every projection's inputs, without logits. */
#include "formats/importance.h"

#include "analysis/window.h"
#include "array/array.h"
#include "array/user_function.h"
#include "base/checked.h"
#include "base/error.h"
#include "base/options.h"
#include "base/plural.h"
#include "checkpoint/config.h"
#include "generate/session_internal.h"
#include "models/weights.h"

#include <hearth/importance.h>
#include <hearth/index.h>
#include <hearth/ops.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Rows per step. Constant because a step sums in f32 before adding to f64 totals: the size affects rounding. */
enum { ROWS = HT_WINDOW_ROWS_MAX, NAME_SIZE = 160 };

/* One matrix, or the matrices of all experts. */
typedef struct matrix_site {
    const char *slot;                  /* as passed to ht_linear; lent by the model */
    char name[NAME_SIZE];              /* GGUF tensor name with ".weight"; "": listed under another matrix's name */
    int64_t n_columns, n_experts;      /* 1 when dense */
    ht_order columns;                  /* in GGUF, and in the sums */
    const struct matrix_site *same_as; /* the site with the same inputs that holds the sums; NULL: this one does */
    double *sum, *count; /* [n_experts][n_columns] sums of squares, [n_experts] numbers of inputs; NULL: none yet */
} matrix_site;

/* All matrices of a model that tokens are multiplied with. */
typedef struct matrix_sites {
    int64_t n;
    matrix_site *site; /* [n] */
} matrix_sites;

static const ht_importance_options defaults = {.size = sizeof defaults};

void ht_importance_options_init(ht_importance_options *options, size_t size) {
    ht_options_init(options, size, &defaults, sizeof defaults);
}

/* ---- the matrices of a model ---- */

/* Number of the family's matrices outside the layers, without embedding and head. */
static int64_t count_around(const ht_family *family) {
    int64_t n = 0;
    for (const ht_tensor_spec *p = family->around; p && p->gguf; p++) n++;
    return n;
}

static void name_projection(const ht_projection *p, matrix_site *out) {
    static const char gate[] = "ffn_gate_exps", up[] = "ffn_up_exps";
    out->slot = p->slot;
    out->n_columns = p->n_in;
    out->columns = p->columns;
    out->n_experts = ht_max_i64(1, p->n_experts);
    if (p->fused && strstr(p->gguf, up)) return; /* the gate's entry covers both */
    const char *fused = p->fused ? strstr(p->gguf, gate) : NULL;
    if (fused)
        snprintf(out->name, sizeof out->name, "%.*sffn_gate_up_exps.weight", (int)(fused - p->gguf), p->gguf);
    else
        snprintf(out->name, sizeof out->name, "%s.weight", p->gguf);
}

/* Lists a matrix of gate and up, which GGUF has apart, under both names. */
static void name_apart(matrix_site *both, matrix_sites *out) {
    static const char joined[] = "ffn_gate_up", experts[] = "_exps";
    char *end = strstr(both->name, joined), rest[32];
    if (!end || !strncmp(end + strlen(joined), experts, strlen(experts))) return;
    matrix_site *second = &out->site[out->n++];
    const size_t size = sizeof both->name - (size_t)(end - both->name);
    snprintf(rest, sizeof rest, "%s", end + strlen(joined)); /* ".weight", or the shared expert's "_shexp.weight" */
    snprintf(end, size, "ffn_up%s", rest);
    *second = *both;
    second->slot = ""; /* no matrix of the model */
    second->same_as = both;
    snprintf(end, size, "ffn_gate%s", rest);
}

/* Lists the inputs of a joined projection, of which GGUF has two parts, under both names. */
static void name_parts(const ht_family *family, const ht_projection *p, matrix_site *both, matrix_sites *out) {
    for (const ht_tensor_spec *const *table = family->layer; p->part && *table; table++)
        for (const ht_tensor_spec *spec = *table; spec->gguf; spec++) {
            if (spec->part != HT_PART_GATE) continue;
            matrix_site *second = &out->site[out->n++];
            *second = *both;
            second->slot = ""; /* no matrix of the model */
            second->same_as = both;
            snprintf(second->name, sizeof second->name, "blk.%lld.%s.weight", (long long)p->layer, spec->gguf);
        }
}

/* The extents of matrices outside the layers are those of the hidden state. */
static void add_around(const ht_model *m, const ht_tensor_spec *spec, matrix_sites *out) {
    if (spec->columns != HT_EXTENT_HIDDEN || spec->looked_up || spec->expert || (spec->has && !spec->has(m->config, 0)))
        return;
    matrix_site *site = &out->site[out->n++];
    *site = (matrix_site){.slot = spec->safetensors, .n_columns = m->config->hidden, .n_experts = 1};
    snprintf(site->name, sizeof site->name, "%s.weight", spec->gguf);
}

static ht_status find_sites(const ht_model *m, matrix_sites *out, ht_error *err) {
    int64_t n;
    const ht_projection *projections = ht_weights_projections(m->weights, &n);
    const size_t room = (size_t)(2 * n + count_around(m->config->family) + 1);
    *out = (matrix_sites){.site = calloc(room, sizeof *out->site)};
    if (!out->site) return ht_fail_memory(err, room * sizeof *out->site, "importance weights");
    for (; out->n < n; out->n++) name_projection(&projections[out->n], &out->site[out->n]);
    for (int64_t i = 0; i < n; i++) name_apart(&out->site[i], out);
    for (int64_t i = 0; i < n; i++) name_parts(m->config->family, &projections[i], &out->site[i], out);
    for (const ht_tensor_spec *p = m->config->family->around; p && p->gguf; p++) add_around(m, p, out);
    matrix_site *head = &out->site[out->n++];
    *head = (matrix_site){
        .slot = ht_weights_decoder(m->weights)->head.slot, .n_columns = m->config->hidden, .n_experts = 1};
    snprintf(head->name, sizeof head->name, "%s", m->config->tied_head ? "token_embd.weight" : "output.weight");
    return HT_OK;
}

static void free_sites(matrix_sites *s) {
    for (int64_t i = 0; s->site && i < s->n; i++) {
        free(s->site[i].sum);
        free(s->site[i].count);
    }
    free(s->site);
    *s = (matrix_sites){0};
}

static matrix_site *site_of(const matrix_sites *s, const char *slot) {
    static const char model[] = "model.";
    for (int64_t i = 0; slot && i < s->n; i++)
        if (strcmp(s->site[i].slot, slot) == 0) return &s->site[i];
    /* Tables outside the layers have names without the prefix of slots. */
    return slot && strncmp(slot, model, sizeof model - 1) == 0 ? site_of(s, slot + sizeof model - 1) : NULL;
}

/* ---- a text ---- */

typedef struct gathering {
    ht_model *model;
    ht_importance_options o;
    const int32_t *ids;
    int64_t n;
    int32_t bos;                   /* prepended to each chunk; -1: none */
    int64_t window, step;          /* tokens per chunk, and text tokens among them */
    int64_t first_chunk, n_chunks; /* chunks to compute */
    int64_t done;                  /* computed chunks */
    int32_t *chunk;                /* [window] */
    ht_session_adapters *adapters; /* NULL: none */
    matrix_sites sites;
    ht_cache *cache;
} gathering;

/* Number of chunks in the text. */
static int64_t count_chunks(const gathering *g) {
    const int64_t full = g->n / g->step, rest = g->n % g->step;
    return full + (rest >= g->step - rest || (full == 0 && rest > 0));
}

static ht_status check(gathering *g, ht_error *err) {
    const ht_importance_options *o = &g->o;
    const int64_t context = g->model->context;
    if (o->window < 0 || o->window == 1)
        return ht_fail(err, HT_ERR_ARGUMENT, "a chunk of %d tokens, expected 2 or more", (int)o->window);
    if (o->skip_chunks < 0 || o->max_chunks < 0 || o->n_from < 0 || o->n_adapters < 0 || o->so_far_chunks < 0)
        return ht_fail(err, HT_ERR_ARGUMENT, "a negative number of chunks, importance weights or adapters");
    g->window = o->window ? o->window : ht_min_i64(HT_IMPORTANCE_CHUNK, context);
    if (g->window > context)
        return ht_fail(err, HT_ERR_LIMIT, "a chunk of %lld token%s is longer than the context of %lld",
                       (long long)g->window, ht_plural(g->window), (long long)context);
    g->step = g->window - (g->bos >= 0);
    if (g->step < 1)
        return ht_fail(err, HT_ERR_ARGUMENT, "a chunk of %lld token%s has no room for more than BOS",
                       (long long)g->window, ht_plural(g->window));
    g->first_chunk = o->skip_chunks;
    g->n_chunks = ht_max_i64(0, count_chunks(g) - g->first_chunk);
    if (o->max_chunks) g->n_chunks = ht_min_i64(g->n_chunks, o->max_chunks);
    if (!g->n_chunks)
        return ht_fail(
            err, HT_ERR_ARGUMENT,
            "a text of %lld token%s has %lld chunks of %lld, and %lld are left out: there is nothing to compute",
            (long long)g->n, ht_plural(g->n), (long long)count_chunks(g), (long long)g->window,
            (long long)g->first_chunk);
    return ht_model_check_ids(g->model, g->ids, (size_t)g->n, err);
}

/* Earlier importance matrices must match this model. */
static ht_status check_from(const gathering *g, ht_error *err) {
    for (int k = 0; k < g->o.n_from; k++)
        for (int64_t i = 0; i < g->sites.n; i++) {
            const matrix_site *s = &g->sites.site[i];
            if (!*s->name) continue;
            const ht_status status = ht_importance_check(g->o.from[k], s->name, s->n_columns, s->n_experts, err);
            if (status) return status;
        }
    return HT_OK;
}

static ht_status prepare(gathering *g, ht_error *err) {
    g->chunk = malloc((size_t)g->window * sizeof *g->chunk);
    if (!g->chunk) return ht_fail_memory(err, (size_t)g->window * sizeof *g->chunk, "a chunk");
    ht_status status = find_sites(g->model, &g->sites, err);
    if (!status) status = check_from(g, err);
    if (!status && g->o.n_adapters)
        status =
            ht_session_adapters_new(g->model, g->o.adapters, g->o.adapter_scales, g->o.n_adapters, &g->adapters, err);
    if (!status) status = ht_cache_new(g->model, ROWS, &g->cache, err);
    return status;
}

/* ---- the result ---- */

static ht_status keep_site(const matrix_site *s, ht_importance *into, ht_error *err) {
    const matrix_site *from = s;
    while (from->same_as) from = from->same_as;
    if (!*s->name || !from->sum) return HT_OK;
    ht_importance_row *row;
    ht_status status = ht_importance_add(into, s->name, strlen(s->name), s->n_columns, s->n_experts, &row, err);
    if (status) return status;
    for (int64_t i = 0; i < s->n_experts * s->n_columns; i++) row->sum[i] = (float)from->sum[i];
    memcpy(row->count, from->count, (size_t)s->n_experts * sizeof *row->count);
    return HT_OK;
}

static ht_status make_own(const gathering *g, ht_importance **out, ht_error *err) {
    ht_importance *i;
    *out = NULL;
    ht_status status = ht_importance_new((size_t)g->sites.n, &i, err);
    for (int64_t k = 0; !status && k < g->sites.n; k++) status = keep_site(&g->sites.site[k], i, err);
    if (!status && g->o.dataset) status = ht_importance_add_dataset(i, g->o.dataset, strlen(g->o.dataset), err);
    if (!status) {
        i->n_chunks = g->done;
        i->chunk_tokens = g->window;
        status = ht_importance_seal(i, err);
    }
    if (status)
        ht_importance_free(i);
    else
        *out = i;
    return status;
}

/* Combines the sums of this run with the earlier importance matrices. */
static ht_status make_result(const gathering *g, ht_importance **out, ht_error *err) {
    const size_t n = (size_t)g->o.n_from;
    ht_importance *own;
    *out = NULL;
    ht_status status = make_own(g, &own, err);
    if (status || !n) {
        *out = own;
        return status;
    }
    const ht_importance **parts = malloc((n + 1) * sizeof *parts);
    if (parts) {
        memcpy(parts, g->o.from, n * sizeof *parts);
        parts[n] = own;
        status = ht_importance_merge(parts, (int)n + 1, out, err);
    } else
        status = ht_fail_memory(err, (n + 1) * sizeof *parts, "importance weights");
    ht_importance_free(own);
    free(parts);
    return status;
}

/* Projections whose inputs are not evaluated yet: those of one layer, or around them. */
enum { MOST_PENDING = 32 };

typedef struct pending {
    matrix_site *site; /* the first matrix with this input */
    ht_array *x, *ids; /* the input, for comparison; the chosen experts or HT_NONE */
    ht_array *sum;     /* f32 [n_columns] or [n_experts, n_columns] sums of squares */
    int64_t rows;      /* inputs of a dense matrix */
} pending;

/* A pass over a chunk. */
typedef struct pass {
    ht_window_pass window; /* first: observer and flush are called with it */
    gathering *g;
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

/* x [T, k] or [T, m, k], ids i32 [T, m] -> f32 [n, k]: sums by expert, added in token order for any thread count. */
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
    matrix_site *site = site_of(&p->g->sites, slot);
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

static ht_status make_sums(matrix_site *site, ht_error *err) {
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
    matrix_site *site = of->site;
    const void *data;
    void *copy = NULL;
    ht_status status = make_sums(site, err);
    if (!status) status = ht_array_borrow(s, of->sum, &data, &copy, err);
    if (status) return status;
    const float *sum = data;
    bool finite = true;
    for (int64_t i = 0; i < site->n_experts * site->n_columns; i++) {
        finite = finite && isfinite(sum[i]);
        site->sum[ht_order_stored(&site->columns, i)] += (double)sum[i];
    }
    free(copy);
    if (!finite)
        return ht_fail(err, HT_ERR_FORMAT, "the inputs of `%s` are not finite numbers, or too large to be squared",
                       site->name);
    if (of->ids != HT_NONE) return count_experts(s, of, err);
    site->count[0] += (double)of->rows;
    return HT_OK;
}

/* Evaluates the pending sums together with h (may be NULL), so that each input is computed once and then freed. */
static ht_status flush(ht_window_pass *window, ht_scope *s, ht_array *h, ht_error *err) {
    pass *p = (pass *)window;
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

static ht_array *run_layer(ht_observer *o, ht_ctx *c, ht_layer_fn *layer, const void *model, int index,
                           ht_array *const *in) {
    pass *p = (pass *)o;
    const gathering *g = p->g;
    if (ht_cancel_requested(g->o.cancel)) return ht_scope_fail(c->s, HT_ERR_CANCELLED, "cancelled");
    ht_error err = {0};
    if (flush(&p->window, c->s, NULL, &err)) return ht_scope_fail_with(c->s, &err);
    ht_array *h = ht_window_pass_layer(&p->window, c, layer, model, index, in);
    p->n_pending = 0;
    const double share = (double)(index + 1) / (double)g->model->config->n_layers; /* of the step */
    const double done = (double)(g->done * g->window + p->window.begin) + p->window.rows * share;
    if (h && g->o.progress) g->o.progress(done / (double)(g->n_chunks * g->window), g->o.user);
    return h;
}

/* ---- chunks ---- */

static ht_status show_so_far(const gathering *g, ht_error *err) {
    const ht_importance_options *o = &g->o;
    if (!o->so_far || !o->so_far_chunks || g->done % o->so_far_chunks || g->done == g->n_chunks) return HT_OK;
    ht_importance *i;
    ht_status status = make_result(g, &i, err);
    if (!status && !o->so_far(i, o->user)) status = ht_fail(err, HT_ERR_CANCELLED, "stopped by the callback");
    ht_importance_free(i);
    return status;
}

static ht_status run(gathering *g, ht_error *err) {
    pass p = {.window = {.observer = {.layer = run_layer, .projects = projects},
                         .model = g->model,
                         .lora = g->adapters ? &g->adapters->set : NULL,
                         .cache = g->cache,
                         .flush = flush},
              .g = g};
    const int64_t begin = g->bos >= 0;
    if (begin) g->chunk[0] = g->bos;
    ht_status status = HT_OK;
    while (!status && g->done < g->n_chunks) {
        const int64_t k = g->first_chunk + g->done, n = ht_min_i64(g->step, g->n - k * g->step);
        memcpy(g->chunk + begin, g->ids + k * g->step, (size_t)n * sizeof *g->ids);
        status = ht_window_pass_run(&p.window, g->chunk, begin + n, ROWS, err);
        if (status && status != HT_ERR_CANCELLED) ht_fail_in(err, status, "chunk %lld", (long long)k);
        g->done++;
        if (!status) status = show_so_far(g, err);
    }
    return status;
}

static ht_status gather(ht_model *m, const int32_t *ids, size_t n, int32_t bos, const ht_importance_options *options,
                        ht_importance **out, ht_error *err) {
    gathering g = {.model = m, .ids = ids, .n = n > INT64_MAX ? INT64_MAX : (int64_t)n, .bos = bos};
    *out = NULL;
    ht_status status = ht_options_read(&g.o, options, &defaults, sizeof defaults, "ht_importance_options", err);
    if (!status) status = ht_model_need_decoder(m, err);
    if (!status) status = check(&g, err);
    if (!status) status = prepare(&g, err);
    if (!status) status = run(&g, err);
    if (!status) status = make_result(&g, out, err);
    ht_cache_free(g.cache);
    ht_session_adapters_free(g.adapters);
    free_sites(&g.sites);
    free(g.chunk);
    return status;
}

ht_status ht_importance_gather_ids(ht_model *m, const int32_t *ids, size_t n, const ht_importance_options *options,
                                   ht_importance **out, ht_error *err) {
    return gather(m, ids, n, -1, options, out, err);
}

ht_status ht_importance_gather_text(ht_model *m, const char *text, size_t n, const ht_importance_options *options,
                                    ht_importance **out, ht_error *err) {
    ht_window_text t;
    *out = NULL;
    ht_status status = ht_window_text_encode(m, text, n, &t, err);
    if (!status) status = gather(m, t.ids, t.n, t.bos, options, out, err);
    ht_window_text_free(&t);
    return status;
}
