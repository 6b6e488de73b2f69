#include "models/weights.h"

#include "array/memory.h"
#include "base/error.h"
#include "models/pack.h"
#include "models/registry.h"
#include "models/table.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NAME_SIZE = 160 };

struct ht_weights {
    ht_decoder decoder;
    int64_t n_matrices, n_arrays, n_slots;
    int64_t capacity; /* of each list: one more than all places of all layers can need */
    ht_matrix **matrices;
    ht_matrix *table; /* the embedding when the head is another matrix; or NULL */
    ht_array **arrays;
    char **slots;
    void *memory; /* of all matrices: one piece, so that nearly all of it can be in large pages */
    size_t memory_bytes;
};

/* One walk over all tables; without a store it only checks and adds up. */
typedef struct loader {
    const ht_checkpoint *from;
    const ht_config *config;
    ht_device *device;
    ht_precision precision;
    ht_weights *into; /* NULL: measure */
    ht_scope *scope;
    size_t bytes, matrix_bytes; /* in memory, so far: of everything, of matrices */
    ht_pack_task *tasks;        /* one per matrix, carried out at the end */
    ht_error *err;
} loader;

static int64_t extent(const ht_config *c, ht_extent e) {
    switch (e) {
    case HT_EXTENT_NONE: break;
    case HT_EXTENT_HIDDEN: return c->hidden;
    case HT_EXTENT_Q: return ht_config_q_rows(c);
    case HT_EXTENT_KV: return ht_config_kv_rows(c);
    case HT_EXTENT_HEAD: return c->head_dim;
    case HT_EXTENT_FEED_FORWARD: return c->feed_forward;
    case HT_EXTENT_VOCAB: return c->vocab;
    }
    return 0;
}

static const char *source_of_shapes(const loader *l) { return l->from->gguf ? "its metadata" : "config.json"; }

/* Finds `name` with the shape [rows, columns], or [rows] when columns is 0, in a type that can be read. */
static ht_status look_up(const loader *l, const char *name, int64_t rows, int64_t columns, ht_stored *t) {
    if (!ht_checkpoint_find(l->from, name, t))
        return ht_fail(l->err, HT_ERR_FORMAT, "%s: tensor `%s` is missing, which %s implies",
                       ht_base_name(l->from->path), name, source_of_shapes(l));
    int n_dims = columns ? 2 : 1;
    if (t->n_dims != n_dims || t->dims[0] != rows || (columns && t->dims[1] != columns)) {
        char found[128] = "";
        for (int i = 0, at = 0; i < t->n_dims && at < 100; i++)
            at += snprintf(found + at, sizeof found - (size_t)at, i ? ", %lld" : "%lld", (long long)t->dims[i]);
        char expected[64];
        snprintf(expected, sizeof expected, columns ? "%lld, %lld" : "%lld", (long long)rows, (long long)columns);
        return ht_fail(l->err, HT_ERR_FORMAT, "%s: tensor `%s` is [%s], %s implies [%s]", t->file_name, name, found,
                       source_of_shapes(l), expected);
    }
    if (t->type < 0)
        return ht_fail(l->err, HT_ERR_UNSUPPORTED, "%s: tensor `%s` is of type %s, which is none of weights",
                       t->file_name, name, t->type_name);
    return HT_OK;
}

/* The name under which adapters find the weight, whatever the file calls it. */
static ht_status keep_slot(loader *l, const char *slot, const char **out) {
    char *copy = strdup(slot);
    if (!copy) return ht_fail_memory(l->err, strlen(slot) + 1, "a name");
    l->into->slots[l->into->n_slots++] = copy;
    *out = copy;
    return HT_OK;
}

static ht_status load_matrix(loader *l, const char *name, int64_t rows, int64_t columns, int64_t head_rows,
                             ht_matrix **out) {
    ht_stored t;
    ht_status status = look_up(l, name, rows, columns, &t);
    if (status) return status;
    size_t bytes = ht_matrix_bytes(l->device, l->precision, (ht_weight_type)t.type, rows, columns),
           at = l->matrix_bytes;
    if (!bytes) bytes = t.n_bytes;
    l->bytes += bytes;
    l->matrix_bytes += (bytes + 63) & ~(size_t)63;
    if (!l->into) return HT_OK;
    ht_matrix *m;
    status = ht_matrix_new(l->device, l->precision, (ht_weight_type)t.type, rows, columns, name,
                           (char *)l->into->memory + at, &m, l->err);
    if (status) return status;
    l->tasks[l->into->n_matrices] = (ht_pack_task){m, t, head_rows};
    l->into->matrices[l->into->n_matrices++] = m;
    *out = m;
    return HT_OK;
}

static ht_status keep_array(loader *l, const float *values, int64_t n, ht_array **out) {
    ht_array *a = ht_array_retain(ht_array_from(l->scope, values, HT_F32, &n, 1));
    if (a) l->into->arrays[l->into->n_arrays++] = a;
    *out = a;
    return ht_eval(l->scope, &a, 1, l->err);
}

/* Vectors are few and small: they are kept as f32 arrays. */
static ht_status load_vector(loader *l, const char *name, int64_t n, int64_t head_rows, ht_array **out) {
    ht_stored t;
    ht_status status = look_up(l, name, n, 0, &t);
    l->bytes += (size_t)n * sizeof(float);
    if (status || !l->into) return status;
    float *values = malloc((size_t)n * 2 * sizeof *values), *ordered = values + n;
    if (!values) return ht_fail_memory(l->err, (size_t)n * 2 * sizeof *values, name);
    status = ht_stored_read_f32(&t, n, values, l->err);
    for (int64_t i = 0; !status && head_rows && i < n; i++) ordered[i] = values[ht_interleaved_row(i, head_rows)];
    if (!status) status = keep_array(l, head_rows ? ordered : values, n, out);
    free(values);
    return status;
}

static bool has_bias(const ht_config *c, ht_bias_rule rule) {
    return (rule == HT_BIAS_Q && c->q_bias) || (rule == HT_BIAS_OUT && c->out_bias) ||
           (rule == HT_BIAS_MLP && c->mlp_bias);
}

static void layer_name(const loader *l, const ht_weight_place *p, int64_t layer, const char *part, char *out) {
    if (l->from->gguf)
        snprintf(out, NAME_SIZE, "blk.%lld.%s.%s", (long long)layer, p->gguf, part);
    else
        snprintf(out, NAME_SIZE, "%slayers.%lld.%s.%s", l->from->prefix, (long long)layer, p->safetensors, part);
}

static ht_status load_weight(loader *l, const ht_weight_place *p, int64_t layer, ht_weight *w) {
    char name[NAME_SIZE];
    layer_name(l, p, layer, "weight", name);
    const ht_config *c = l->config;
    int64_t rows = extent(c, p->rows), head_rows = c->interleaved_rows && p->heads != HT_HEADS_NONE ? c->head_dim : 0;
    ht_status status = load_matrix(l, name, rows, extent(c, p->columns), head_rows, &w->matrix);
    if (status) return status;
    w->bias = HT_NONE;
    layer_name(l, p, layer, "bias", name);
    ht_stored unwanted;
    if (has_bias(c, p->bias))
        status = load_vector(l, name, rows, head_rows, &w->bias);
    else if (ht_checkpoint_find(l->from, name, &unwanted))
        return ht_fail(l->err, HT_ERR_FORMAT, "%s: there is a tensor `%s`, but %s implies none", unwanted.file_name,
                       name, source_of_shapes(l));
    if (status || !l->into) return status;
    snprintf(name, sizeof name, "model.layers.%lld.%s", (long long)layer, p->safetensors);
    return keep_slot(l, name, &w->slot);
}

/* One row of a table; without a layer to fill it only checks. */
static ht_status load_place(loader *l, const ht_weight_place *p, int64_t layer, char *base) {
    if (p->columns != HT_EXTENT_NONE) {
        ht_weight none = {0};
        return load_weight(l, p, layer, base ? (ht_weight *)(void *)(base + p->offset) : &none);
    }
    char name[NAME_SIZE];
    layer_name(l, p, layer, "weight", name);
    ht_array *none;
    ht_array **to = base ? (ht_array **)(void *)(base + p->offset) : &none;
    return load_vector(l, name, extent(l->config, p->rows), 0, to);
}

static ht_status load_layer(loader *l, int64_t layer, char *base) {
    for (const ht_weight_place *const *table = l->config->family->layer; *table; table++)
        for (const ht_weight_place *p = *table; p->gguf; p++) {
            ht_status status = load_place(l, p, layer, base);
            if (status) return status;
        }
    return HT_OK;
}

/* Divisors of the frequencies: from the scheme of the configuration, or as a GGUF file lists them. */
static ht_status prepare_rope(loader *l, const ht_rope_spec *rope, bool from_file, ht_rope_config *how,
                              ht_array **factors) {
    int32_t dims = (int32_t)l->config->head_dim;
    *factors = HT_NONE;
    float *values = malloc((size_t)dims * sizeof *values);
    if (!values) return ht_fail_memory(l->err, (size_t)dims * sizeof *values, "rotary embedding");
    bool any = ht_rope_prepare(rope, dims, how, values);
    ht_status status = HT_OK;
    ht_stored t;
    if (from_file && l->from->gguf && ht_checkpoint_find(l->from, "rope_freqs.weight", &t)) {
        status = look_up(l, "rope_freqs.weight", dims / 2, 0, &t);
        if (!status) status = ht_stored_read_f32(&t, dims / 2, values, l->err);
        for (int32_t i = 0; !status && i < dims / 2; i++)
            if (!isfinite(values[i]) || values[i] <= 0)
                status = ht_fail(l->err, HT_ERR_FORMAT, "%s: `rope_freqs.weight` holds %g, expected positive numbers",
                                 t.file_name, (double)values[i]);
        any = true;
    }
    if (!status && any) status = keep_array(l, values, dims / 2, factors);
    free(values);
    return status;
}

static void embedding_name(const ht_checkpoint *from, char name[NAME_SIZE]) {
    snprintf(name, NAME_SIZE, from->gguf ? "token_embd.weight" : "%sembed_tokens.weight", from->prefix);
}

bool ht_weights_in_file(const ht_checkpoint *c, const ht_config *config, ht_stored *table) {
    char name[NAME_SIZE];
    embedding_name(c, name);
    return !config->tied_head && ht_checkpoint_find(c, name, table);
}

/* Rows of an embedding that is not the head, too, are few per step and read where they lie. */
static ht_status load_embedding(loader *l, ht_decoder *d) {
    const ht_config *c = l->config;
    char name[NAME_SIZE];
    embedding_name(l->from, name);
    if (c->tied_head) return load_matrix(l, name, c->vocab, c->hidden, 0, &d->embedding.matrix);
    ht_stored t;
    ht_status status = look_up(l, name, c->vocab, c->hidden, &t);
    if (status || !l->into) return status;
    status = ht_table_new(&t, &l->into->table, l->err);
    d->embedding.matrix = l->into->table;
    return status;
}

static ht_status load_around(loader *l, ht_decoder *d) {
    const ht_config *c = l->config;
    const ht_checkpoint *from = l->from;
    char name[NAME_SIZE];
    ht_status status = load_embedding(l, d);
    if (status) return status;
    snprintf(name, sizeof name, "%snorm.weight", from->gguf ? "" : from->prefix);
    status = load_vector(l, from->gguf ? "output_norm.weight" : name, c->hidden, 0, &d->final_norm);
    if (status) return status;
    d->head.matrix = d->embedding.matrix;
    if (!c->tied_head)
        status = load_matrix(l,
                             from->gguf   ? "output.weight"
                             : from->head ? from->head
                                          : "lm_head.weight",
                             c->vocab, c->hidden, 0, &d->head.matrix);
    d->embedding.bias = d->head.bias = HT_NONE;
    d->embedding.slot = "model.embed_tokens";
    d->head.slot = "lm_head";
    return status;
}

static ht_status walk(loader *l, ht_decoder *d) {
    ht_status status = load_around(l, d);
    char *base = d->layers;
    for (int64_t i = 0; !status && i < l->config->n_layers;
         i++, base = base ? base + l->config->family->layer_bytes : NULL)
        status = load_layer(l, i, base);
    return status;
}

static ht_status measure(loader *l) {
    ht_decoder none = {0};
    return walk(l, &none);
}

ht_status ht_weights_measure(const ht_checkpoint *c, const ht_config *config, ht_device *device, ht_precision precision,
                             size_t *bytes, ht_error *err) {
    loader l = {.from = c, .config = config, .device = device, .precision = precision, .err = err};
    ht_status status = measure(&l);
    *bytes = l.bytes;
    return status;
}

static ht_weights *new_weights(const ht_config *config) {
    ht_weights *w = calloc(1, sizeof *w);
    if (!w) return NULL;
    int64_t places = 0;
    for (const ht_weight_place *const *table = config->family->layer; *table; table++)
        for (const ht_weight_place *p = *table; p->gguf; p++) places++;
    w->capacity = 2 * places * config->n_layers + 8; /* a bias with every weight, and what is around the layers */
    w->decoder.config = config;
    w->decoder.layers = calloc((size_t)config->n_layers, config->family->layer_bytes);
    w->matrices = calloc((size_t)w->capacity, sizeof(ht_matrix *));
    w->arrays = calloc((size_t)w->capacity, sizeof(ht_array *));
    w->slots = calloc((size_t)w->capacity, sizeof(char *));
    if (w->decoder.layers && w->matrices && w->arrays && w->slots) return w;
    ht_weights_free(w);
    return NULL;
}

static ht_status fill(loader *l, const ht_weights_options *options) {
    ht_decoder *d = &l->into->decoder;
    ht_status status = walk(l, d);
    if (!status) status = prepare_rope(l, &l->config->rope, true, &d->rope, &d->rope_factors);
    d->local_rope = d->rope;
    d->local_rope_factors = d->rope_factors;
    if (!status && l->config->family->defaults.local_rope_theta > 0)
        status = prepare_rope(l, &l->config->local_rope, false, &d->local_rope, &d->local_rope_factors);
    if (status) return status;
    ht_pool_lease(l->device->pool);
    status = ht_matrices_pack(l->tasks, l->into->n_matrices, &options->company, l->device->pool, l->err);
    ht_pool_release(l->device->pool);
    return status;
}

ht_status ht_weights_load(const ht_checkpoint *c, const ht_config *config, const ht_weights_options *options,
                          ht_weights **out, ht_error *err) {
    *out = NULL;
    loader l = {.from = c, .config = config, .device = options->device, .precision = options->precision, .err = err};
    ht_status status = measure(&l);
    if (status) return status;
    size_t matrix_bytes = l.matrix_bytes;
    l.bytes = l.matrix_bytes = 0;
    l.into = new_weights(config);
    l.scope = ht_scope_new(options->stream);
    if (l.into) l.tasks = calloc((size_t)l.into->capacity, sizeof *l.tasks);
    if (!l.into || !l.scope || !l.tasks)
        status = ht_fail_memory(err, (size_t)config->n_layers * config->family->layer_bytes, "a model");
    if (!status) status = ht_memory_alloc(matrix_bytes, "the weights", &l.into->memory, err);
    if (!status) {
        l.into->memory_bytes = matrix_bytes;
        status = fill(&l, options);
    }
    free(l.tasks);
    ht_scope_free(l.scope);
    if (status)
        ht_weights_free(l.into);
    else
        *out = l.into;
    return status;
}

void ht_weights_free(ht_weights *w) {
    if (!w) return;
    for (int64_t i = 0; i < w->n_matrices; i++) ht_matrix_free(w->matrices[i]);
    ht_table_free(w->table);
    for (int64_t i = 0; i < w->n_arrays; i++) ht_array_release(w->arrays[i]);
    for (int64_t i = 0; i < w->n_slots; i++) free(w->slots[i]);
    ht_memory_free(w->memory, w->memory_bytes);
    free(w->matrices);
    free(w->arrays);
    free(w->slots);
    free(w->decoder.layers);
    free(w);
}

const ht_decoder *ht_weights_decoder(const ht_weights *w) { return &w->decoder; }

ht_matrix *const *ht_weights_matrices(const ht_weights *w, int64_t *n) {
    *n = w->n_matrices;
    return w->matrices;
}
