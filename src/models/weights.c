#include "models/weights.h"

#include "base/error.h"
#include "base/log.h"
#include "checkpoint/tensor_read.h"
#include "checkpoint/unused_tensors.h"
#include "models/file_rows.h"
#include "models/pack.h"
#include "models/packed_cache.h"
#include "models/weights_internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Divisors of the frequencies: from the scheme of the configuration, or as a GGUF file lists them. */
static ht_status prepare_rope(ht_loader *l, const ht_rope_spec *rope, int32_t dims, bool from_file, ht_rope_config *how,
                              ht_array **factors) {
    *factors = HT_NONE;
    float *values = malloc((size_t)dims * sizeof *values);
    if (!values) return ht_fail_memory(l->err, (size_t)dims * sizeof *values, "rotary embedding");
    bool any = ht_rope_prepare(rope, dims, how, values);
    ht_status status = HT_OK;
    ht_stored_tensor t;
    if (from_file && l->from->gguf && ht_checkpoint_find(l->from, "rope_freqs.weight", &t)) {
        status = ht_loader_look_up(l, "rope_freqs.weight", (int64_t[]){dims / 2}, 1, &t);
        if (!status) status = ht_tensor_read_f32(&t, dims / 2, values, l->err);
        for (int32_t i = 0; !status && i < dims / 2; i++)
            if (!isfinite(values[i]) || values[i] <= 0)
                status = ht_fail(l->err, HT_ERR_FORMAT, "%s: `rope_freqs.weight` holds %g, expected positive numbers",
                                 t.file_name, (double)values[i]);
        any = true;
    }
    if (!status && any) status = ht_loader_keep_array(l, values, dims / 2, factors);
    free(values);
    return status;
}

static ht_status walk(ht_loader *l, ht_decoder_weights *d) {
    ht_status status = ht_loader_around(l, d);
    char *base = d->layers;
    for (int64_t i = 0; !status && i < l->config->n_layers;
         i++, base = base ? base + l->config->family->layer_bytes : NULL)
        status = ht_loader_layer(l, i, base);
    return status;
}

/* Checks that the checkpoint has all tensors of the model, and none that would change its results. */
static ht_status measure(ht_loader *l, bool notes_unused) {
    ht_decoder_weights none = {0};
    const size_t n = ht_checkpoint_n_tensors(l->from);
    l->used = calloc(n + 1, sizeof *l->used);
    if (!l->used) return ht_fail_memory(l->err, n, "a list of tensors");
    ht_status status = walk(l, &none);
    if (!status) status = ht_unused_tensors_check(l->from, l->config, l->used, notes_unused, l->err);
    free(l->used);
    l->used = NULL;
    return status;
}

ht_status ht_weights_measure(const ht_checkpoint_files *c, const ht_config *config, ht_device *device,
                             ht_precision precision, size_t *bytes, ht_error *err) {
    ht_loader l = {.from = c, .config = config, .device = device, .precision = precision, .err = err};
    ht_status status = measure(&l, false);
    *bytes = l.bytes;
    return status;
}

size_t ht_weights_bytes_in_file(const ht_checkpoint_files *c, const ht_config *config) {
    ht_error unwanted = {0};
    ht_decoder_weights none = {0};
    ht_loader l = {.from = c, .config = config, .err = &unwanted};
    ht_loader_around(&l, &none);
    return l.table_bytes;
}

ht_status ht_weights_visit(const ht_checkpoint_files *c, const ht_config *config, ht_stored_projection_fn *fn,
                           void *user, ht_error *err) {
    ht_loader l = {.from = c, .config = config, .visit = fn, .visit_user = user, .err = err};
    return measure(&l, false);
}

ht_status ht_weights_visit_all(const ht_checkpoint_files *c, const ht_config *config, bool notes_unused,
                               ht_stored_weight_fn *fn, void *user, ht_error *err) {
    ht_loader l = {.from = c, .config = config, .visit_all = fn, .visit_user = user, .err = err};
    return measure(&l, notes_unused);
}

ht_status ht_weights_product_scales(const ht_checkpoint_files *c, const ht_config *config, const char *name, int64_t n,
                                    int share, int n_shares, float *out, bool *found, ht_error *err) {
    const ht_loader l = {.from = c, .config = config, .err = err};
    return ht_loader_product_scales(&l, name, n, share, n_shares, out, found);
}

static ht_weights *new_weights(const ht_config *config) {
    ht_weights *w = calloc(1, sizeof *w);
    if (!w) return NULL;
    const ht_family *family = config->family;
    int64_t places = 0, around = 0;
    for (const ht_weight_place *const *table = family->layer; *table; table++)
        for (const ht_weight_place *p = *table; p->gguf; p++) places += p->expert ? config->n_experts : 1;
    for (const ht_weight_place *p = family->around; p && p->gguf; p++) around++;
    w->capacity =
        2 * (places * config->n_layers + around) + 8; /* a bias or two names with every weight, and what all have */
    w->decoder.config = config;
    w->decoder.layers = calloc((size_t)config->n_layers, family->layer_bytes);
    w->decoder.around = calloc(1, family->around_bytes + 1);
    w->matrices = calloc((size_t)w->capacity, sizeof(ht_matrix *));
    w->use = calloc((size_t)w->capacity, sizeof *w->use);
    w->tables = calloc((size_t)w->capacity, sizeof(ht_matrix *));
    w->experts = calloc((size_t)w->capacity, sizeof(ht_matrix **));
    w->arrays = calloc((size_t)w->capacity, sizeof(ht_array *));
    w->names = calloc((size_t)w->capacity, sizeof(char *));
    w->projections = calloc((size_t)w->capacity, sizeof *w->projections);
    if (w->decoder.layers && w->decoder.around && w->matrices && w->use && w->tables && w->experts && w->arrays &&
        w->names && w->projections)
        return w;
    ht_weights_free(w);
    return NULL;
}

/* The head size of the layers that slide, or of those that do not. */
static int32_t rotated_dims(const ht_config *c, bool slides) {
    for (int64_t i = 0; i < c->n_layers; i++)
        if (c->layer[i].slides == slides) return (int32_t)c->layer[i].head_dim;
    return (int32_t)c->head_dim;
}

static ht_status fill(ht_loader *l) {
    ht_decoder_weights *d = &l->into->decoder;
    ht_status status = walk(l, d);
    const ht_config *c = l->config;
    if (!status) status = prepare_rope(l, &c->rope, rotated_dims(c, false), true, &d->rope, &d->rope_factors);
    d->local_rope = d->rope;
    d->local_rope_factors = d->rope_factors;
    if (!status && c->family->defaults.local_rope_theta > 0)
        status = prepare_rope(l, &c->local_rope, rotated_dims(c, true), false, &d->local_rope, &d->local_rope_factors);
    return status;
}

/* ---- memory of the matrices: packed now, or mapped from a cache ---- */

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

static ht_status pack(ht_loader *l, const ht_pack_company *company) {
    void *memory;
    ht_status status = ht_memory_alloc(l->device->memory, l->into->memory_bytes, "the weights", &memory, l->err);
    if (status) return status;
    put_matrices_into(l->into, l->tasks, memory, false);
    return ht_matrices_pack(l->tasks, l->into->n_matrices, company, l->device, l->err);
}

/* Whether the matrices are in the cache's mapped memory now, brought in by all threads. */
static ht_status map(ht_loader *l, const ht_packed_cache *cache, const ht_pack_company *company, bool *done) {
    void *memory = ht_packed_cache_map(cache);
    *done = memory != NULL;
    if (!memory) return HT_OK;
    put_matrices_into(l->into, l->tasks, memory, true);
    return ht_packed_cache_touch(cache, memory, company, l->device, l->err);
}

/* Progress of one half of the work. */
typedef struct half {
    const ht_pack_company *company;
    double before;
} half;

static bool on_half(double done, void *user) {
    const half *h = user;
    return h->company->progress(h->before + done / 2, h->company->progress_user);
}

static ht_pack_company half_of(half *h) {
    ht_pack_company c = *h->company;
    if (h->before > 0) c.meanwhile = NULL;
    if (c.progress) c.progress = on_half;
    c.progress_user = h;
    return c;
}

/* Packs, and leaves the packed form to the cache and maps it from there, so that this process shares it, too. A disk
 * that is full is no reason not to load. */
static ht_status pack_into(ht_loader *l, const ht_packed_cache *cache, const ht_pack_company *company) {
    half first = {company, 0}, second = {company, 0.5};
    const ht_pack_company packing = half_of(&first), storing = half_of(&second), nothing = {0};
    ht_error why = {0};
    bool done;
    ht_status status = pack(l, &packing);
    if (status) return status;
    status = ht_packed_cache_store(cache, l->into->memory, &storing, &why);
    if (!status) return map(l, cache, &nothing, &done);
    if (status != HT_ERR_IO) return ht_fail(l->err, status, "%s", why.message);
    ht_log_write(HT_LOG_WARNING, "the packed weights are not cached: %s", why.message);
    return HT_OK;
}

static ht_status load_matrices(ht_loader *l, const ht_weights_options *o) {
    ht_packed_cache *cache;
    bool done = false;
    const bool is_host = ht_memory_is_host(l->device->memory);
    if (o->packed_cache && !is_host)
        ht_log_write(HT_LOG_WARNING,
                     "the packed weights are not cached: the device %s does not compute from the host's memory",
                     l->device->name);
    if (!o->packed_cache || !is_host || !l->into->memory_bytes) return pack(l, &o->company);
    ht_status status = ht_packed_cache_open(o->packed_cache, l->from->path, l->tasks, l->into->n_matrices,
                                            l->into->memory_bytes, &cache, l->err);
    if (status) return status;
    status = map(l, cache, &o->company, &done);
    if (!status && !done) status = pack_into(l, cache, &o->company);
    ht_packed_cache_free(cache);
    return status;
}

ht_status ht_weights_load(const ht_checkpoint_files *c, const ht_config *config, const ht_weights_options *options,
                          ht_weights **out, ht_error *err) {
    *out = NULL;
    ht_loader l = {.from = c, .config = config, .device = options->device, .precision = options->precision, .err = err};
    ht_status status = measure(&l, true);
    if (status) return status;
    size_t matrix_bytes = l.matrix_bytes;
    l.bytes = l.matrix_bytes = 0;
    l.into = new_weights(config);
    l.scope = ht_scope_new(options->stream);
    if (l.into) l.tasks = calloc((size_t)l.into->capacity, sizeof *l.tasks);
    if (!l.into || !l.scope || !l.tasks)
        status = ht_fail_memory(err, (size_t)config->n_layers * config->family->layer_bytes, "a model");
    if (!status) {
        l.into->device = options->device;
        l.into->memory_bytes = matrix_bytes;
        status = fill(&l);
    }
    if (!status) status = load_matrices(&l, options);
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
    for (int64_t i = 0; i < w->n_tables; i++) ht_file_rows_free(w->tables[i]);
    for (int64_t i = 0; i < w->n_arrays; i++) ht_array_free(w->arrays[i]);
    for (int64_t i = 0; i < w->n_names; i++) free(w->names[i]);
    free_memory(w);
    for (int64_t i = 0; i < w->n_experts; i++) free(w->experts[i]);
    free(w->experts);
    free(w->matrices);
    free(w->use);
    free(w->tables);
    free(w->arrays);
    free(w->names);
    free(w->projections);
    free(w->decoder.layers);
    free(w->decoder.around);
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
