#include "models/weights.h"

#include "base/arena.h"
#include "base/checked.h"
#include "base/error.h"
#include "base/log.h"
#include "checkpoint/kv_size.h"
#include "models/packed_cache.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct ht_weights {
    ht_decoder_weights decoder;
    ht_arena arena; /* of names and the lists, which are sized for all specs of all layers */
    int64_t n_matrices, n_tables, n_arrays, n_projections;
    ht_matrix **matrices;
    ht_matrix_use *use; /* of each matrix */
    ht_matrix **tables; /* not loaded: in their file */
    ht_array **arrays;
    ht_projection *projections;
    ht_device *device; /* lent; the model keeps it longer */
    /* All matrices, on the device or mapped. One allocation, so that nearly all of it can use large pages. */
    void *memory;
    size_t memory_bytes;
    bool mapped; /* `memory` is a mapped file (models/packed_cache.h) */
};

/* One pass over a checkpoint's weights; without a store it only adds up. */
typedef struct loader {
    const ht_checkpoint_files *from;
    const ht_config *config;
    ht_device *device;
    ht_precision precision;
    ht_weights *into; /* NULL: measure */
    ht_scope *scope;
    size_t bytes, matrix_bytes; /* in memory so far: in total, in matrices */
    int64_t n_matrices;         /* so far */
    ht_arena scratch;
    ht_pack_task *tasks;  /* one per matrix, executed at the end */
    ht_array **bias;      /* of the last weight: where the next bias belongs */
    float *parts;         /* the values so far of a vector in parts */
    float *expert_scales; /* of the matrices of the current part */
    bool any_expert_scale;
    ht_error *err;
} loader;

/* ---- single weights ---- */

static ht_status keep_name(loader *l, const char *name, const char **out) {
    *out = ht_arena_copy(&l->into->arena, name, strlen(name));
    return *out ? HT_OK : ht_fail_memory(l->err, strlen(name) + 1, "a name");
}

static ht_status keep_array(loader *l, const float *values, int64_t n, ht_array **out) {
    ht_array *a = ht_array_retain(ht_array_from(l->scope, values, HT_F32, &n, 1));
    if (a) l->into->arrays[l->into->n_arrays++] = a;
    *out = a;
    return ht_array_eval(l->scope, &a, 1, l->err);
}

/* Sets a weight's slot; a weight in a layer becomes a projection for adapters. */
static ht_status keep_slot(loader *l, const ht_stored_weight *at, const char **slot) {
    ht_status status = keep_name(l, at->slot, slot);
    if (status || !at->projection || at->spec->expert == HT_HEAD_KEY || at->spec->part == HT_PART_GATE)
        return status; /* the projection is that of the values, or of the other part, too */
    ht_projection *kept = &l->into->projections[l->into->n_projections];
    *kept = *at->projection;
    kept->slot = *slot;
    status = keep_name(l, at->projection->gguf, &kept->gguf);
    if (!status) l->into->n_projections++;
    return status;
}

static ht_status set_block_scales(const ht_stored_weight *at, ht_matrix *m, ht_error *err) {
    ht_block_scales read;
    ht_status status = ht_fp8_scales_read(&at->scales, at->scale_matrix, at->scale_row, m->n_rows, &read, err);
    if (!status && read.values) status = ht_matrix_set_scales(m, read.values, read.n, read.rows, read.columns, err);
    free(read.values);
    return status;
}

/* Adds a matrix to the matrices to pack. */
static ht_status add_matrix(loader *l, const ht_stored_weight *at, bool is_head, ht_matrix **out) {
    const ht_stored_tensor *t = &at->stored;
    const ht_matrix_kind kind = {l->precision, (ht_weight_type)t->type, t->dims[0], t->dims[1], is_head};
    size_t offset = l->matrix_bytes, bytes = l->device ? ht_matrix_bytes(l->device, &kind) : 0;
    if (!bytes) bytes = t->n_bytes;
    l->bytes += bytes;
    l->matrix_bytes += (bytes + 63) & ~(size_t)63;
    l->n_matrices++;
    if (!l->into) return HT_OK;
    ht_weights *w = l->into;
    ht_matrix *m;
    ht_status status = ht_matrix_new(l->device, &kind, at->name, &m, l->err);
    if (status) return status;
    l->tasks[w->n_matrices] = (ht_pack_task){m, *t, at->stored_rows, offset};
    w->use[w->n_matrices].late = at->layer >= ht_unshared_layers(l->config);
    w->use[w->n_matrices].expert =
        at->role == HT_ROLE_EXPERT && !ht_part_is_of_head(at->spec->expert) && !ht_part_is_of_stream(at->spec->expert);
    w->matrices[w->n_matrices++] = m;
    *out = m;
    return set_block_scales(at, m, l->err);
}

/* Adds a table, which stays in its file if the device's kernels can read it there. */
static ht_status add_table(loader *l, const ht_stored_weight *at, ht_matrix **out) {
    const bool in_memory = l->device && !ht_memory_is_host(l->device->memory);
    const bool is_f8 = ht_weight_is_f8((ht_weight_type)at->stored.type);
    ht_status status;
    if (in_memory || is_f8) {
        status = add_matrix(l, at, false, out);
        if (!status && l->into && !is_f8) l->into->use[l->into->n_matrices - 1].table = true;
        return status;
    }
    if (!l->into) return HT_OK;
    status = ht_file_rows_new(&at->stored, out, l->err);
    if (!status) l->into->tables[l->into->n_tables++] = *out;
    return status;
}

/* Vectors are few and small, so they become f32 arrays. */
static ht_status add_vector(loader *l, const ht_stored_weight *at, ht_array **out) {
    const int64_t n = at->columns;
    l->bytes += (size_t)n * sizeof(float);
    if (!l->into) return HT_OK;
    float *values = malloc((size_t)n * 2 * sizeof *values);
    if (!values) return ht_fail_memory(l->err, (size_t)n * 2 * sizeof *values, at->name);
    float *ordered = values + n;
    ht_status status = ht_tensor_read_f32(&at->stored, n, values, l->err);
    if (at->spec->is_logarithm && !l->from->gguf)
        for (int64_t i = 0; !status && i < n; i++) values[i] = -expf(values[i]);
    for (int64_t i = 0; at->spec->is_logarithm && !status && i < n; i++)
        if (!(values[i] <= 0))
            status = ht_fail(l->err, HT_ERR_FORMAT, "%s: `%s` holds %g, expected numbers up to 0", at->stored.file_name,
                             at->name, (double)values[i]);
    for (int64_t i = 0; !status && i < n; i++) ordered[i] = values[ht_order_stored(&at->stored_rows, i)];
    if (!status) status = keep_array(l, ordered, n, out);
    free(values);
    return status;
}

/* ---- weights in the structs of the model ---- */

/* Loads the model's factors on the product's rows: one if all are the same, none if they are 1. */
static ht_status load_multiplier(loader *l, const ht_stored_weight *at, ht_array **out) {
    const float first = ht_stored_multiplier(l->config, at, 0);
    bool same = true;
    *out = NULL;
    if (at->role != HT_ROLE_MATRIX) return HT_OK; /* the others' are factors on embeddings and logits */
    for (int64_t i = 1; i < at->rows; i++) same = same && ht_stored_multiplier(l->config, at, i) == first;
    if (same) return first == 1 ? HT_OK : keep_array(l, &first, 1, out);
    float *values = malloc((size_t)at->rows * sizeof *values);
    if (!values) return ht_fail_memory(l->err, (size_t)at->rows * sizeof *values, at->name);
    for (int64_t i = 0; i < at->rows; i++) values[i] = ht_stored_multiplier(l->config, at, i);
    ht_status status = keep_array(l, values, at->rows, out);
    free(values);
    return status;
}

static ht_status load_matrix(loader *l, const ht_stored_weight *at, bool is_head, ht_weight *w) {
    ht_status status = at->is_table ? add_table(l, at, &w->matrix) : add_matrix(l, at, is_head, &w->matrix);
    if (!status && l->into) status = load_multiplier(l, at, &w->multiplier);
    if (status || !l->into) return status;
    w->bias = HT_NONE;
    w->columns = at->stored_columns;
    w->scale = at->has_product_scale && at->product_scale != 1 ? at->product_scale : 0;
    l->bias = &w->bias;
    return keep_slot(l, at, &w->slot);
}

/* Loads one of the tensors that a vector is stored in; the last one makes the array. */
static ht_status load_part(loader *l, const ht_stored_weight *at, ht_array **out) {
    const int64_t n = at->columns, all = n * at->n_parts;
    l->bytes += (size_t)n * sizeof(float);
    if (!l->into) return HT_OK;
    if (at->part == 0) {
        free(l->parts);
        l->parts = malloc((size_t)all * sizeof *l->parts);
        if (!l->parts) return ht_fail_memory(l->err, (size_t)all * sizeof *l->parts, at->name);
    }
    ht_status status = ht_tensor_read_f32(&at->stored, n, l->parts + at->part * n, l->err);
    return status || at->part + 1 < at->n_parts ? status : keep_array(l, l->parts, all, out);
}

/* Loads a vector; one with a bias goes to an ht_norm_weights, others to an ht_array *, which is also the beginning of that. */
static ht_status load_vector(loader *l, const ht_stored_weight *at, ht_norm_weights *out) {
    l->bias = &out->bias;
    return at->n_parts ? load_part(l, at, &out->weight) : add_vector(l, at, &out->weight);
}

/* Loads the embedding; a tied head uses the same matrix. */
static ht_status load_embedding(loader *l, const ht_stored_weight *at, ht_decoder_weights *d) {
    ht_status status = load_matrix(l, at, l->config->tied_head, &d->embedding);
    d->head = d->embedding;
    d->head.slot = "lm_head";
    return status;
}

static ht_status begin_experts(loader *l, const ht_stored_weight *at, ht_experts *out) {
    const int64_t n = ht_part_count(l->config, at->spec->expert);
    ht_matrix **matrix = ht_arena_take(&l->into->arena, (size_t)n * 2, sizeof *matrix);
    if (!matrix) return ht_fail_memory(l->err, (size_t)n * 2 * sizeof *matrix, "experts");
    out->list = (ht_matrix_list){matrix, (int32_t)n, 0};
    out->scale = HT_NONE;
    out->as_rows = ht_part_is_of_stream(at->spec->expert);
    if (ht_part_is_of_head(at->spec->expert)) {
        const bool is_key = at->spec->expert == HT_HEAD_KEY;
        out->head_rows = ht_latent_head_rows(&l->config->latent);
        out->first_row = is_key ? 0 : l->config->latent.key_dim;
        out->as_rows = !is_key || at->is_transposed;
    }
    l->any_expert_scale = false;
    return keep_slot(l, at, &out->slot);
}

static ht_status load_expert(loader *l, const ht_stored_weight *at, ht_experts *out) {
    ht_stored_weight turned = *at;
    if (at->is_transposed && ht_weight_is_float(at->stored.type)) { /* products by rows are faster than by columns */
        turned.stored = ht_tensor_transposed(&at->stored);
        turned.is_transposed = false;
        at = &turned;
    }
    if (!l->into) return add_matrix(l, at, false, NULL);
    const int64_t n = ht_part_count(l->config, at->spec->expert);
    ht_status status = at->expert ? HT_OK : begin_experts(l, at, out);
    if (!status) status = add_matrix(l, at, false, &out->list.matrix[at->expert]);
    l->expert_scales[at->expert] = at->product_scale;
    l->any_expert_scale = l->any_expert_scale || at->has_product_scale;
    if (status || at->expert + 1 < n) return status;
    ht_matrix_list_find_kinds(&out->list);
    return l->any_expert_scale ? keep_array(l, l->expert_scales, n, &out->scale) : HT_OK;
}

static ht_status load(const ht_stored_weight *at, void *user, ht_error *err) {
    (void)err;
    loader *l = user;
    ht_decoder_weights none = {0}, *d = l->into ? &l->into->decoder : &none;
    union {
        ht_weight weight;
        ht_experts experts;
        ht_norm_weights norm;
    } nowhere = {0};
    char *base = !l->into ? NULL
                 : at->layer == HT_OUTSIDE_LAYERS
                     ? d->around
                     : (char *)d->layers + (size_t)at->layer * l->config->family->layer_bytes;
    void *to = base ? base + at->spec->offset : (void *)&nowhere;
    switch (at->role) {
    case HT_ROLE_EMBEDDING: return load_embedding(l, at, d);
    case HT_ROLE_FINAL_NORM: return load_vector(l, at, &d->final_norm);
    case HT_ROLE_HEAD: return load_matrix(l, at, true, &d->head);
    case HT_ROLE_HEAD_BIAS: return add_vector(l, at, &d->head.bias);
    case HT_ROLE_MATRIX: return load_matrix(l, at, false, to);
    case HT_ROLE_BIAS: return add_vector(l, at, l->into ? l->bias : to);
    case HT_ROLE_VECTOR: return load_vector(l, at, to);
    case HT_ROLE_EXPERT: return load_expert(l, at, to);
    }
    return HT_OK;
}

/* Divisors of the RoPE frequencies, from the configuration's scheme or a tensor of a GGUF file. */
static ht_status prepare_rope(loader *l, const ht_rope_spec *rope, ht_rope_length length, bool slides,
                              ht_rotation *out) {
    const int32_t dims = (int32_t)(rope->dims ? rope->dims : ht_config_head_dim(l->config, slides));
    out->factors = HT_NONE;
    float *values = malloc((size_t)dims * sizeof *values);
    if (!values) return ht_fail_memory(l->err, (size_t)dims * sizeof *values, "rotary embedding");
    bool any = ht_rope_prepare(rope, length, dims, &out->how, values);
    ht_status status = HT_OK;
    ht_stored_tensor t;
    if (!slides && l->from->gguf && ht_checkpoint_find(l->from, HT_ROPE_FACTORS, &t)) {
        status = ht_checkpoint_need(l->from, HT_ROPE_FACTORS, (int64_t[]){dims / 2}, 1, &t, l->err);
        if (!status) status = ht_tensor_read_f32(&t, dims / 2, values, l->err);
        for (int32_t i = 0; !status && i < dims / 2; i++)
            if (!isfinite(values[i]) || values[i] <= 0)
                status = ht_fail(l->err, HT_ERR_FORMAT, "%s: `" HT_ROPE_FACTORS "` holds %g, expected positive numbers",
                                 t.file_name, (double)values[i]);
        any = true;
    }
    if (!status && any) status = keep_array(l, values, dims / 2, &out->factors);
    free(values);
    return status;
}

ht_status ht_weights_measure(const ht_checkpoint_files *c, const ht_config *config, ht_device *device,
                             ht_precision precision, size_t *bytes, ht_error *err) {
    loader l = {.from = c, .config = config, .device = device, .precision = precision, .err = err};
    ht_status status = ht_stored_weights_visit(c, config, false, load, &l, err);
    *bytes = l.bytes;
    return status;
}

static ht_weights *new_weights(const ht_config *config) {
    ht_weights *w = calloc(1, sizeof *w);
    if (!w) return NULL;
    const ht_family *family = config->family;
    int64_t specs = 0, around = 0;
    for (const ht_tensor_spec *const *table = family->layer; *table; table++)
        for (const ht_tensor_spec *p = *table; p->gguf; p++) specs += p->expert ? ht_part_count(config, p->expert) : 1;
    for (const ht_tensor_spec *p = family->around; p && p->gguf; p++)
        around += p->expert ? ht_part_count(config, p->expert) : 1;
    /* Every weight may have a bias; 8 covers the weights of all models. */
    const size_t n = 2 * (size_t)(specs * config->n_layers + around) + 8;
    w->decoder.config = config;
    w->decoder.layers = ht_arena_take(&w->arena, (size_t)config->n_layers, family->layer_bytes);
    w->decoder.around = ht_arena_take(&w->arena, 1, family->around_bytes);
    w->matrices = ht_arena_take(&w->arena, n, sizeof(ht_matrix *));
    w->use = ht_arena_take(&w->arena, n, sizeof *w->use);
    w->tables = ht_arena_take(&w->arena, n, sizeof(ht_matrix *));
    w->arrays = ht_arena_take(&w->arena, n, sizeof(ht_array *));
    w->projections = ht_arena_take(&w->arena, n, sizeof *w->projections);
    if (w->decoder.layers && w->decoder.around && w->matrices && w->use && w->tables && w->arrays && w->projections)
        return w;
    ht_weights_free(w);
    return NULL;
}

static ht_status fill(loader *l) {
    ht_decoder_weights *d = &l->into->decoder;
    ht_status status = ht_stored_weights_visit(l->from, l->config, false, load, l, l->err);
    const ht_config *c = l->config;
    for (int k = 0; !status && k < (c->rope.kind == HT_ROPE_LONG ? HT_ROPE_LENGTHS : 1); k++)
        status = prepare_rope(l, &c->rope, (ht_rope_length)k, false, &d->rope[k]);
    if (!status && c->has_local_rope) status = prepare_rope(l, &c->local_rope, HT_ROPE_OF_SHORT, true, &d->local_rope);
    return status;
}

/* ---- matrix memory: packed now or mapped from a cache ---- */

static void free_memory(ht_weights *w) {
    if (!w->memory) return;
    if (w->mapped)
        ht_packed_cache_unmap(w->memory, w->memory_bytes);
    else
        ht_memory_free(w->device->memory, w->memory, w->memory_bytes);
}

static void put_matrices_into(ht_weights *w, const ht_pack_task *tasks, void *memory, bool mapped) {
    if (memory != w->memory) free_memory(w);
    w->memory = memory;
    w->mapped = mapped;
    for (int64_t i = 0; i < w->n_matrices; i++) w->matrices[i]->packed = (char *)memory + tasks[i].at;
}

static ht_status pack(loader *l, const ht_pack_hooks *hooks) {
    void *memory;
    ht_status status = ht_memory_alloc(l->device->memory, l->into->memory_bytes, "the weights", &memory, l->err);
    if (status) return status;
    put_matrices_into(l->into, l->tasks, memory, false);
    return ht_matrices_pack(l->tasks, l->into->n_matrices, hooks, l->device, l->err);
}

/* Maps the matrices and pages them in on all threads; *done is false without a valid cached file. */
static ht_status map(loader *l, const ht_packed_cache *cache, const ht_pack_hooks *hooks, bool *done) {
    void *memory = ht_packed_cache_map(cache);
    *done = memory != NULL;
    if (!memory) return HT_OK;
    put_matrices_into(l->into, l->tasks, memory, true);
    return ht_packed_cache_touch(cache, memory, hooks, l->device, l->err);
}

/* Packs, stores the packed form in the cache and maps it from there, to share its memory with other processes. A
 * full disk does not fail loading. */
static ht_status pack_into(loader *l, const ht_packed_cache *cache, const ht_pack_hooks *hooks) {
    ht_pack_hooks packing = *hooks, storing = *hooks;
    packing.end = storing.begin = 0.5;
    ht_error why = {0};
    bool done;
    ht_status status = pack(l, &packing);
    if (status) return status;
    status = ht_packed_cache_store(cache, l->into->memory, &storing, &why);
    if (!status) return map(l, cache, NULL, &done);
    if (status != HT_ERR_IO) return ht_fail(l->err, status, "%s", why.message);
    ht_log_write(HT_LOG_WARNING, "the packed weights are not cached: %s", why.message);
    return HT_OK;
}

static ht_status load_matrices(loader *l, const ht_weights_options *o) {
    ht_packed_cache *cache;
    bool done = false;
    const bool is_host = ht_memory_is_host(l->device->memory);
    if (o->packed_cache && !is_host)
        ht_log_write(HT_LOG_WARNING,
                     "the packed weights are not cached: the device %s does not compute from the host's memory",
                     l->device->name);
    if (!o->packed_cache || !is_host || !l->into->memory_bytes) return pack(l, &o->hooks);
    ht_status status = ht_packed_cache_open(o->packed_cache, l->from->path, l->tasks, l->into->n_matrices,
                                            l->into->memory_bytes, &cache, l->err);
    if (status) return status;
    status = map(l, cache, &o->hooks, &done);
    if (!status && !done) status = pack_into(l, cache, &o->hooks);
    ht_packed_cache_free(cache);
    return status;
}

ht_status ht_weights_load(const ht_checkpoint_files *c, const ht_config *config, const ht_weights_options *options,
                          ht_weights **out, ht_error *err) {
    *out = NULL;
    loader l = {.from = c, .config = config, .device = options->device, .precision = options->precision, .err = err};
    ht_status status = ht_stored_weights_visit(c, config, true, load, &l, err);
    if (status) return status;
    const size_t matrix_bytes = l.matrix_bytes;
    const int64_t n_matrices = l.n_matrices;
    l.bytes = l.matrix_bytes = 0;
    l.into = new_weights(config);
    l.scope = ht_scope_new(options->stream);
    if (l.into) l.tasks = ht_arena_take(&l.scratch, (size_t)n_matrices, sizeof *l.tasks);
    l.expert_scales = ht_arena_take(
        &l.scratch, (size_t)ht_max_i64(ht_max_i64(config->n_experts, config->n_heads), config->altup.streams),
        sizeof *l.expert_scales);
    if (!l.into || !l.scope || !l.tasks || !l.expert_scales)
        status = ht_fail_memory(err, (size_t)config->n_layers * config->family->layer_bytes, "a model");
    if (!status) {
        l.into->device = options->device;
        l.into->memory_bytes = matrix_bytes;
        status = fill(&l);
    }
    if (!status) status = load_matrices(&l, options);
    ht_arena_free(&l.scratch);
    free(l.parts);
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
    for (int64_t i = 0; i < w->n_tables; i++) ht_file_rows_free(w->tables[i]);
    for (int64_t i = 0; i < w->n_arrays; i++) ht_array_free(w->arrays[i]);
    free_memory(w);
    ht_arena_free(&w->arena);
    free(w);
}

const ht_decoder_weights *ht_weights_decoder(const ht_weights *w) { return &w->decoder; }

ht_matrix *const *ht_weights_matrices(const ht_weights *w, int64_t *n) {
    *n = w->n_matrices;
    return w->matrices;
}

ht_matrix_use ht_weights_use(const ht_weights *w, int64_t i) { return w->use[i]; }

const ht_projection *ht_weights_projections(const ht_weights *w, int64_t *n) {
    *n = w->n_projections;
    return w->projections;
}

int64_t ht_weights_find_projection(const ht_weights *w, const char *slot) {
    for (int64_t i = 0; i < w->n_projections; i++)
        if (strcmp(w->projections[i].slot, slot) == 0) return i;
    return -1;
}
