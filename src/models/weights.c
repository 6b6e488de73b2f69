#include "models/weights.h"

#include "array/memory.h"
#include "base/checked.h"
#include "base/error.h"
#include "models/extras.h"
#include "models/kv.h"
#include "models/nvfp4.h"
#include "models/pack.h"
#include "models/registry.h"
#include "models/scales.h"
#include "models/stored.h"
#include "models/table.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NAME_SIZE = 160 };

struct ht_weights {
    ht_decoder decoder;
    int64_t n_matrices, n_tables, n_arrays, n_slots, n_experts;
    int64_t capacity; /* of each list: more than all places of all layers can need */
    ht_matrix **matrices;
    ht_matrix_use *use;   /* of each matrix */
    ht_matrix **tables;   /* in their file */
    ht_matrix ***experts; /* lists of matrices */
    ht_array **arrays;
    char **slots;
    void *memory; /* of all matrices: one piece, so that nearly all of it can be in large pages */
    size_t memory_bytes;
};

/* One walk over all tables; without a store it only checks and adds up. */
typedef struct loader {
    const ht_checkpoint_files *from;
    const ht_config *config;
    ht_device *device; /* NULL: only what is in the files is looked at */
    ht_precision precision;
    ht_weights *into; /* NULL: measure */
    ht_scope *scope;
    size_t bytes, matrix_bytes; /* in memory, so far: of everything, of matrices */
    size_t table_bytes;         /* in the file */
    ht_pack_task *tasks;        /* one per matrix, carried out at the end */
    bool late;                  /* in a layer that only rows meet whose logits are asked for */
    bool *used;                 /* one per tensor of the checkpoint; NULL: nobody asks */
    ht_error *err;
} loader;

static int64_t extent(const ht_config *c, ht_extent e, int64_t layer) {
    const ht_layer_config *l = &c->layer[layer];
    switch (e) {
    case HT_EXTENT_NONE: break;
    case HT_EXTENT_HIDDEN: return c->hidden;
    case HT_EXTENT_Q: return c->n_heads * l->head_dim;
    case HT_EXTENT_KV: return l->n_kv_heads * l->head_dim;
    case HT_EXTENT_HEAD: return l->head_dim;
    case HT_EXTENT_FEED_FORWARD: return l->feed_forward;
    case HT_EXTENT_VOCAB: return c->vocab;
    case HT_EXTENT_ONE: return 1;
    case HT_EXTENT_EXPERTS: return c->n_experts;
    case HT_EXTENT_EXPERT_FEED_FORWARD: return c->expert_feed_forward;
    case HT_EXTENT_LAYER_INPUT: return c->layer_input;
    case HT_EXTENT_LAYER_INPUTS: return c->layer_input * c->n_layers;
    case HT_EXTENT_LAYER_INPUT_VOCAB: return c->layer_input_vocab;
    }
    return 0;
}

static const char *source_of_shapes(const loader *l) { return l->from->gguf ? "its metadata" : "config.json"; }

static void shape_text(const int64_t *dims, int n, char out[128]) {
    *out = '\0';
    for (int i = 0, at = 0; i < n && at < 100; i++)
        at += snprintf(out + at, 128 - (size_t)at, i ? ", %lld" : "%lld", (long long)dims[i]);
}

/* Finds `name` with the shape dims[0 .. n_dims - 1], in a type that can be read. */
static ht_status look_up(const loader *l, const char *name, const int64_t *dims, int n_dims, ht_stored *t) {
    if (!ht_checkpoint_find(l->from, name, t))
        return ht_fail(l->err, HT_ERR_FORMAT, "%s: tensor `%s` is missing, which %s implies",
                       ht_base_name(l->from->path), name, source_of_shapes(l));
    if (l->used) l->used[t->number] = true;
    if (t->n_dims != n_dims || memcmp(t->dims, dims, (size_t)n_dims * sizeof *dims)) {
        char found[128], expected[128];
        shape_text(t->dims, t->n_dims, found);
        shape_text(dims, n_dims, expected);
        return ht_fail(l->err, HT_ERR_FORMAT, "%s: tensor `%s` is [%s], %s implies [%s]", t->file_name, name, found,
                       source_of_shapes(l), expected);
    }
    if (t->type < 0)
        return ht_fail(l->err, HT_ERR_UNSUPPORTED, "%s: tensor `%s` is of type %s, expected a float or quantised type",
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

/* Whether the family has a vector of this name of its own (Gemma 4's `ffn_down_exps.scale`). */
static bool is_place(const loader *l, const char *gguf) {
    for (const ht_weight_place *const *table = l->config->family->layer; *table; table++)
        for (const ht_weight_place *p = *table; p->gguf; p++)
            if (p->bare && !strcmp(p->gguf, gguf)) return true;
    return false;
}

/* What a product of the matrix is multiplied by: the scale of a whole tensor in NVFP4. A GGUF file may have `x.scale` beside
 * `x.weight`, with one for each of its n experts. *found is false when there is none. */
static ht_status read_product_scale(const loader *l, const char *name, int64_t n, float *out, bool *found) {
    char scale[NAME_SIZE];
    ht_stored t;
    const char *stem = strstr(name, "weight"), *place = strncmp(name, "blk.", 4) ? name : strchr(name + 4, '.') + 1;
    *found = false;
    if (!l->from->gguf && n == 1) return ht_nvfp4_whole_scale(l->from, name, out, found, l->err);
    if (!l->from->gguf || !stem) return HT_OK;
    snprintf(scale, sizeof scale, "%.*sscale", (int)(stem - name), name);
    if (is_place(l, scale + (place - name)) || !ht_checkpoint_find(l->from, scale, &t)) return HT_OK;
    *found = true;
    ht_status status = look_up(l, scale, &n, 1, &t);
    if (!status) status = ht_stored_read_f32(&t, n, out, l->err);
    for (int64_t i = 0; !status && i < n; i++)
        if (!isfinite(out[i]) || out[i] == 0)
            status = ht_fail(l->err, HT_ERR_FORMAT, "%s: `%s` holds %g, expected a finite number that is not 0",
                             t.file_name, scale, (double)out[i]);
    return status;
}

static ht_status load_product_scale(const loader *l, const char *name, ht_weight *w) {
    float scale;
    bool found;
    ht_status status = read_product_scale(l, name, 1, &scale, &found);
    w->scale = found && !status && scale != 1 ? scale : 0;
    return status;
}

/* The scales that the checkpoint has for t, of n matrices one after another, or of the one that it is when n is 0. */
static ht_status find_scales(loader *l, const ht_stored *t, const char *name, int64_t n, ht_scales *out) {
    *out = (ht_scales){0};
    if (!ht_weight_is_f8((ht_weight_type)t->type)) return HT_OK;
    const int64_t *dims = t->dims + t->n_dims - 2;
    return ht_scales_find(l->from, name, n, dims[0], dims[1], out, l->err);
}

/* A matrix to be packed from `t`, [rows, columns]. */
static ht_status add_matrix(loader *l, bool is_head, const ht_stored *t, const char *name, int64_t head_rows,
                            ht_matrix **out) {
    const ht_matrix_kind kind = {l->precision, (ht_weight_type)t->type, t->dims[0], t->dims[1], is_head};
    size_t at = l->matrix_bytes, bytes = l->device ? ht_matrix_bytes(l->device, &kind) : 0;
    if (!bytes) bytes = t->n_bytes;
    l->bytes += bytes;
    l->matrix_bytes += (bytes + 63) & ~(size_t)63;
    if (!l->into) return HT_OK;
    ht_matrix *m;
    ht_status status = ht_matrix_new(l->device, &kind, name, (char *)l->into->memory + at, &m, l->err);
    if (status) return status;
    l->tasks[l->into->n_matrices] = (ht_pack_task){m, *t, head_rows};
    l->into->use[l->into->n_matrices].late = l->late;
    l->into->matrices[l->into->n_matrices++] = m;
    *out = m;
    return HT_OK;
}

static ht_status load_as(loader *l, bool is_head, const char *name, int64_t rows, int64_t columns, int64_t head_rows,
                         ht_matrix **out) {
    ht_stored t;
    ht_scales scales;
    ht_status status = look_up(l, name, (int64_t[]){rows, columns}, 2, &t);
    if (!status) status = find_scales(l, &t, name, 0, &scales);
    if (!status) status = add_matrix(l, is_head, &t, name, head_rows, out);
    return status || !l->into ? status : ht_scales_read(&scales, 0, 0, *out, l->err);
}

static ht_status load_matrix(loader *l, const char *name, int64_t rows, int64_t columns, int64_t head_rows,
                             ht_matrix **out) {
    return load_as(l, false, name, rows, columns, head_rows, out);
}

/* The head; or the embedding that is also the head. */
static ht_status load_head(loader *l, const char *name, ht_matrix **out) {
    return load_as(l, true, name, l->config->vocab, l->config->hidden, 0, out);
}

/* A table stays where it is: it takes no memory. */
static ht_status load_table(loader *l, const char *name, int64_t rows, int64_t columns, ht_matrix **out) {
    ht_stored t;
    ht_status status = look_up(l, name, (int64_t[]){rows, columns}, 2, &t);
    if (!status && ht_weight_is_f8((ht_weight_type)t.type)) return load_matrix(l, name, rows, columns, 0, out);
    if (!status) l->table_bytes += t.n_bytes;
    if (status || !l->into) return status;
    status = ht_table_new(&t, out, l->err);
    if (!status) l->into->tables[l->into->n_tables++] = *out;
    return status;
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
    ht_status status = look_up(l, name, &n, 1, &t);
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

enum { AROUND = -1 }; /* as a layer: outside of them */

static void place_name(const loader *l, const ht_weight_place *p, int64_t layer, const char *part, char *out) {
    const char *name = l->from->gguf ? p->gguf : p->safetensors, *dot = p->bare ? "" : ".";
    if (p->bare) part = "";
    if (l->from->gguf && layer == AROUND)
        snprintf(out, NAME_SIZE, "%s%s%s", name, dot, part);
    else if (l->from->gguf)
        snprintf(out, NAME_SIZE, "blk.%lld.%s%s%s", (long long)layer, name, dot, part);
    else if (layer == AROUND)
        snprintf(out, NAME_SIZE, "%s%s%s%s", l->from->prefix, name, dot, part);
    else
        snprintf(out, NAME_SIZE, "%slayers.%lld.%s%s%s", l->from->prefix, (long long)layer, name, dot, part);
}

static ht_status load_weight(loader *l, const ht_weight_place *p, int64_t layer, ht_weight *w) {
    char name[NAME_SIZE];
    place_name(l, p, layer, "weight", name);
    const ht_config *c = l->config;
    int64_t of = ht_max_i64(layer, 0), rows = extent(c, p->rows, of), columns = extent(c, p->columns, of);
    int64_t head_rows = c->interleaved_rows && p->heads != HT_HEADS_NONE ? c->layer[of].head_dim : 0;
    ht_status status = p->looked_up ? load_table(l, name, rows, columns, &w->matrix)
                                    : load_matrix(l, name, rows, columns, head_rows, &w->matrix);
    if (!status) status = load_product_scale(l, name, w);
    if (status) return status;
    w->bias = HT_NONE;
    place_name(l, p, layer, "bias", name);
    ht_stored unwanted;
    if (has_bias(c, p->bias))
        status = load_vector(l, name, rows, head_rows, &w->bias);
    else if (ht_checkpoint_find(l->from, name, &unwanted))
        return ht_fail(l->err, HT_ERR_FORMAT, "%s: there is a tensor `%s`, but %s implies none", unwanted.file_name,
                       name, source_of_shapes(l));
    if (status || !l->into) return status;
    if (layer == AROUND)
        snprintf(name, sizeof name, "model.%s", p->safetensors);
    else
        snprintf(name, sizeof name, "model.layers.%lld.%s", (long long)layer, p->safetensors);
    return keep_slot(l, name, &w->slot);
}

/* What products with the experts are multiplied by: stated together, or by each. */
static ht_status load_expert_scales(loader *l, const ht_expert_form *f, int64_t layer, ht_experts *out) {
    int64_t n = l->config->n_experts;
    float *values = malloc((size_t)n * sizeof *values);
    if (!values) return ht_fail_memory(l->err, (size_t)n * sizeof *values, "scales");
    bool any = false;
    char name[NAME_SIZE];
    out->scale = HT_NONE;
    ht_status status = HT_OK;
    for (int64_t e = 0; !status && e < (f->stacked ? 1 : n); e++) {
        bool found;
        values[e] = 1;
        ht_expert_name(l->from, f, layer, e, name, sizeof name);
        status = read_product_scale(l, name, f->stacked ? n : 1, values + e, &found);
        any = any || found;
    }
    if (!status && any && l->into) status = keep_array(l, values, n, &out->scale);
    free(values);
    return status;
}

/* A layer's experts, each a matrix of its own; those in one tensor are looked up once. */
static ht_status load_experts(loader *l, const ht_weight_place *p, int64_t layer, ht_experts *out) {
    const ht_config *c = l->config;
    int64_t n = c->n_experts, rows = extent(c, p->rows, layer), columns = extent(c, p->columns, layer);
    const ht_expert_form *f = ht_expert_form_of(l->from, p->expert, layer);
    ht_matrix **matrix = NULL;
    if (l->into) {
        matrix = calloc((size_t)n * 2, sizeof *matrix);
        if (!matrix) return ht_fail_memory(l->err, (size_t)n * 2 * sizeof *matrix, "experts");
        l->into->experts[l->into->n_experts++] = matrix;
        *out = (ht_experts){{matrix, (int32_t)n, 0}, HT_NONE};
    }
    char name[NAME_SIZE];
    ht_stored all, t;
    ht_scales scales;
    ht_status status = HT_OK;
    if (f->stacked) {
        ht_expert_name(l->from, f, layer, 0, name, sizeof name);
        status = look_up(l, name, (int64_t[]){n, rows * f->n_shares, columns}, 3, &all);
        if (!status) status = find_scales(l, &all, name, n, &scales);
    }
    for (int64_t e = 0; !status && e < n; e++) {
        if (f->stacked)
            t = ht_expert_slice(&all, f, e, rows);
        else {
            ht_expert_name(l->from, f, layer, e, name, sizeof name);
            status = look_up(l, name, (int64_t[]){rows, columns}, 2, &t);
            if (!status) status = find_scales(l, &t, name, 0, &scales);
        }
        if (!status) status = add_matrix(l, false, &t, name, 0, matrix ? &matrix[e] : NULL);
        if (status || !l->into) continue;
        l->into->use[l->into->n_matrices - 1].expert = true;
        status = ht_scales_read(&scales, f->stacked ? e : 0, f->stacked ? f->share * rows : 0, matrix[e], l->err);
    }
    if (!status && matrix) ht_matrix_list_find_kinds(&out->list);
    return status ? status : load_expert_scales(l, f, layer, out);
}

/* One row of a table; without a struct to fill it only checks. */
static ht_status load_place(loader *l, const ht_weight_place *p, int64_t layer, char *base) {
    if (p->has && !p->has(l->config, ht_max_i64(layer, 0))) return HT_OK;
    if (p->expert) {
        ht_experts none = {0};
        return load_experts(l, p, layer, base ? (ht_experts *)(void *)(base + p->offset) : &none);
    }
    if (p->columns != HT_EXTENT_NONE) {
        ht_weight none = {0};
        return load_weight(l, p, layer, base ? (ht_weight *)(void *)(base + p->offset) : &none);
    }
    char name[NAME_SIZE];
    place_name(l, p, layer, "weight", name);
    ht_array *none;
    ht_array **to = base ? (ht_array **)(void *)(base + p->offset) : &none;
    return load_vector(l, name, extent(l->config, p->rows, ht_max_i64(layer, 0)), 0, to);
}

static ht_status load_places(loader *l, const ht_weight_place *table, int64_t layer, char *base) {
    ht_status status = HT_OK;
    for (const ht_weight_place *p = table; !status && p->gguf; p++) status = load_place(l, p, layer, base);
    return status;
}

static ht_status load_layer(loader *l, int64_t layer, char *base) {
    ht_status status = HT_OK;
    l->late = layer >= ht_kv_layers(l->config);
    for (const ht_weight_place *const *table = l->config->family->layer; !status && *table; table++)
        status = load_places(l, *table, layer, base);
    return status;
}

/* Divisors of the frequencies: from the scheme of the configuration, or as a GGUF file lists them. */
static ht_status prepare_rope(loader *l, const ht_rope_spec *rope, int32_t dims, bool from_file, ht_rope_config *how,
                              ht_array **factors) {
    *factors = HT_NONE;
    float *values = malloc((size_t)dims * sizeof *values);
    if (!values) return ht_fail_memory(l->err, (size_t)dims * sizeof *values, "rotary embedding");
    bool any = ht_rope_prepare(rope, dims, how, values);
    ht_status status = HT_OK;
    ht_stored t;
    if (from_file && l->from->gguf && ht_checkpoint_find(l->from, "rope_freqs.weight", &t)) {
        status = look_up(l, "rope_freqs.weight", (int64_t[]){dims / 2}, 1, &t);
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

static ht_status load_around(loader *l, ht_decoder *d) {
    const ht_config *c = l->config;
    const ht_checkpoint_files *from = l->from;
    char name[NAME_SIZE];
    snprintf(name, sizeof name, "%sembed_tokens.weight", from->gguf ? "" : from->prefix);
    const char *embedding = from->gguf ? "token_embd.weight" : name;
    ht_status status = c->tied_head ? load_head(l, embedding, &d->embedding.matrix)
                                    : load_table(l, embedding, c->vocab, c->hidden, &d->embedding.matrix);
    if (!status) status = load_product_scale(l, embedding, &d->embedding);
    if (status) return status;
    snprintf(name, sizeof name, "%snorm.weight", from->gguf ? "" : from->prefix);
    status = load_vector(l, from->gguf ? "output_norm.weight" : name, c->hidden, 0, &d->final_norm);
    if (status) return status;
    d->head.matrix = d->embedding.matrix;
    d->head.scale = d->embedding.scale;
    if (!c->tied_head) {
        const char *head = from->gguf ? "output.weight" : from->head ? from->head : "lm_head.weight";
        status = load_head(l, head, &d->head.matrix);
        if (!status) status = load_product_scale(l, head, &d->head);
    }
    d->embedding.bias = d->head.bias = HT_NONE;
    d->embedding.slot = "model.embed_tokens";
    d->head.slot = "lm_head";
    if (!status && c->family->around) status = load_places(l, c->family->around, AROUND, d->around);
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

ht_status ht_weights_measure(const ht_checkpoint_files *c, const ht_config *config, ht_device *device,
                             ht_precision precision, size_t *bytes, ht_error *err) {
    loader l = {.from = c, .config = config, .device = device, .precision = precision, .err = err};
    ht_status status = measure(&l);
    *bytes = l.bytes;
    return status;
}

size_t ht_weights_bytes_in_file(const ht_checkpoint_files *c, const ht_config *config) {
    ht_error unwanted = {0};
    ht_decoder none = {0};
    loader l = {.from = c, .config = config, .err = &unwanted};
    load_around(&l, &none);
    return l.table_bytes;
}

static ht_weights *new_weights(const ht_config *config) {
    ht_weights *w = calloc(1, sizeof *w);
    if (!w) return NULL;
    const ht_family *family = config->family;
    int64_t places = 0, around = 0;
    for (const ht_weight_place *const *table = family->layer; *table; table++)
        for (const ht_weight_place *p = *table; p->gguf; p++) places += p->expert ? config->n_experts : 1;
    for (const ht_weight_place *p = family->around; p && p->gguf; p++) around++;
    w->capacity = 2 * (places * config->n_layers + around) + 8; /* a bias with every weight, and what all have */
    w->decoder.config = config;
    w->decoder.layers = calloc((size_t)config->n_layers, family->layer_bytes);
    w->decoder.around = calloc(1, family->around_bytes + 1);
    w->matrices = calloc((size_t)w->capacity, sizeof(ht_matrix *));
    w->use = calloc((size_t)w->capacity, sizeof *w->use);
    w->tables = calloc((size_t)w->capacity, sizeof(ht_matrix *));
    w->experts = calloc((size_t)w->capacity, sizeof(ht_matrix **));
    w->arrays = calloc((size_t)w->capacity, sizeof(ht_array *));
    w->slots = calloc((size_t)w->capacity, sizeof(char *));
    if (w->decoder.layers && w->decoder.around && w->matrices && w->use && w->tables && w->experts && w->arrays &&
        w->slots)
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

static ht_status fill(loader *l, const ht_weights_options *options) {
    ht_decoder *d = &l->into->decoder;
    ht_status status = walk(l, d);
    const ht_config *c = l->config;
    if (!status) status = prepare_rope(l, &c->rope, rotated_dims(c, false), true, &d->rope, &d->rope_factors);
    d->local_rope = d->rope;
    d->local_rope_factors = d->rope_factors;
    if (!status && c->family->defaults.local_rope_theta > 0)
        status = prepare_rope(l, &c->local_rope, rotated_dims(c, true), false, &d->local_rope, &d->local_rope_factors);
    if (status) return status;
    ht_pool_lease(l->device->pool);
    status = ht_matrices_pack(l->tasks, l->into->n_matrices, &options->company, l->device->pool, l->err);
    ht_pool_release(l->device->pool);
    return status;
}

ht_status ht_weights_load(const ht_checkpoint_files *c, const ht_config *config, const ht_weights_options *options,
                          ht_weights **out, ht_error *err) {
    *out = NULL;
    loader l = {.from = c, .config = config, .device = options->device, .precision = options->precision, .err = err};
    l.used = calloc(ht_checkpoint_n_tensors(c) + 1, sizeof *l.used);
    ht_status status = measure(&l);
    if (!status && l.used) ht_extras_note(c, l.used);
    free(l.used);
    l.used = NULL;
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
    for (int64_t i = 0; i < w->n_tables; i++) ht_table_free(w->tables[i]);
    for (int64_t i = 0; i < w->n_arrays; i++) ht_array_release(w->arrays[i]);
    for (int64_t i = 0; i < w->n_slots; i++) free(w->slots[i]);
    ht_memory_free(w->memory, w->memory_bytes);
    for (int64_t i = 0; i < w->n_experts; i++) free(w->experts[i]);
    free(w->experts);
    free(w->matrices);
    free(w->use);
    free(w->tables);
    free(w->arrays);
    free(w->slots);
    free(w->decoder.layers);
    free(w->decoder.around);
    free(w);
}

const ht_decoder *ht_weights_decoder(const ht_weights *w) { return &w->decoder; }

ht_matrix *const *ht_weights_matrices(const ht_weights *w, int64_t *n) {
    *n = w->n_matrices;
    return w->matrices;
}

ht_matrix_use ht_weights_use(const ht_weights *w, int64_t i) { return w->use[i]; }
