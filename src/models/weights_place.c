/* Weight places of a family's tables: the name of each in the checkpoint, its shape, and the tensors that fill it. */
#include "base/checked.h"
#include "base/error.h"
#include "checkpoint/experts.h"
#include "checkpoint/kv_size.h"
#include "models/weights_internal.h"

#include <stdio.h>
#include <stdlib.h>

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

static bool has_bias(const ht_config *c, ht_bias_rule rule) {
    return (rule == HT_BIAS_Q && c->q_bias) || (rule == HT_BIAS_OUT && c->out_bias) ||
           (rule == HT_BIAS_MLP && c->mlp_bias);
}

enum { AROUND = -1 }; /* as a layer: outside of them */

/* The name in a container; `prefix` is that of the text model in safetensors. */
static void name_in(bool gguf, const char *prefix, const ht_weight_place *p, int64_t layer, const char *part,
                    char *out) {
    const char *name = gguf ? p->gguf : p->safetensors, *dot = p->bare ? "" : ".";
    if (p->bare) part = "";
    if (gguf) prefix = "";
    if (layer == AROUND)
        snprintf(out, HT_WEIGHT_NAME, "%s%s%s%s", prefix, name, dot, part);
    else
        snprintf(out, HT_WEIGHT_NAME, "%s%s.%lld.%s%s%s", prefix, gguf ? "blk" : "layers", (long long)layer, name, dot,
                 part);
}

static void place_name(const ht_loader *l, const ht_weight_place *p, int64_t layer, const char *part, char *out) {
    name_in(l->from->gguf != NULL, l->from->prefix, p, layer, part, out);
}

/* Rows of a head, of a matrix that GGUF files of this family store for interleaved RoPE. */
static int64_t permuted_rows(const ht_config *c, const ht_weight_place *p, int64_t layer) {
    return c->family->gguf_interleaves && p->heads != HT_HEADS_NONE ? c->layer[layer].head_dim : 0;
}

static void projection_slot(const ht_weight_place *p, int64_t layer, char name[HT_WEIGHT_NAME]) {
    snprintf(name, HT_WEIGHT_NAME, "model.layers.%lld.%s", (long long)layer, p->safetensors);
}

static void projection_gguf(const ht_weight_place *p, int64_t layer, char name[HT_WEIGHT_NAME]) {
    snprintf(name, HT_WEIGHT_NAME, "blk.%lld.%s", (long long)layer, p->gguf);
}

/* Tells the visitor where projection `of` is stored. */
static ht_status visit(const ht_loader *l, const ht_weight_place *p, ht_stored_projection at) {
    char slot[HT_WEIGHT_NAME], gguf[HT_WEIGHT_NAME];
    projection_slot(p, at.of.layer, slot);
    projection_gguf(p, at.of.layer, gguf);
    at.of.slot = slot;
    at.of.gguf = gguf;
    return l->visit(&at, l->visit_user, l->err);
}

/* Tells the visitor of all weights of the one in tensor `stored`, whose names the caller has filled in. */
static ht_status visit_stored(const ht_loader *l, const char *stored, ht_stored_weight at) {
    ht_stored_tensor t;
    if (!l->visit_all) return HT_OK;
    (void)ht_checkpoint_find(l->from, stored, &t); /* it was found before */
    at.tensor = t.number;
    at.n_shares = 1;
    return l->visit_all(&at, l->visit_user, l->err);
}

/* The same of a row of a table; part: "weight" or "bias". */
static ht_status visit_place(const ht_loader *l, const ht_weight_place *p, const char *part, ht_stored_weight at) {
    char stored[HT_WEIGHT_NAME], safetensors[HT_WEIGHT_NAME], gguf[HT_WEIGHT_NAME];
    if (!l->visit_all) return HT_OK;
    place_name(l, p, at.layer, part, stored);
    name_in(true, "", p, at.layer, part, gguf);
    name_in(false, "", p, at.layer, part, safetensors);
    at.gguf = gguf;
    at.safetensors = safetensors;
    return visit_stored(l, stored, at);
}

/* Gives a weight its slot; inside a layer it becomes a projection that adapters can name. */
static ht_status keep_projection(ht_loader *l, const ht_weight_place *p, const ht_projection *of, const char **slot) {
    char name[HT_WEIGHT_NAME];
    if (of->layer == AROUND) {
        snprintf(name, sizeof name, "model.%s", p->safetensors);
        return ht_loader_keep_name(l, name, slot);
    }
    ht_projection *kept = &l->into->projections[l->into->n_projections];
    *kept = *of;
    projection_slot(p, of->layer, name);
    ht_status status = ht_loader_keep_name(l, name, &kept->slot);
    projection_gguf(p, of->layer, name);
    if (!status) status = ht_loader_keep_name(l, name, &kept->gguf);
    if (status) return status;
    *slot = kept->slot;
    l->into->n_projections++;
    return HT_OK;
}

/* The bias of a matrix. */
static ht_stored_weight as_vector(ht_stored_weight matrix) {
    matrix.columns = matrix.rows;
    matrix.rows = 1;
    matrix.is_vector = true;
    matrix.is_quantized = false;
    return matrix;
}

static ht_status load_weight(ht_loader *l, const ht_weight_place *p, int64_t layer, ht_weight *w) {
    char name[HT_WEIGHT_NAME];
    place_name(l, p, layer, "weight", name);
    const ht_config *c = l->config;
    int64_t of = ht_max_i64(layer, 0), rows = extent(c, p->rows, of), columns = extent(c, p->columns, of);
    int64_t head_rows = c->interleaved_rows ? permuted_rows(c, p, of) : 0;
    ht_status status = p->looked_up ? ht_loader_table(l, name, rows, columns, &w->matrix)
                                    : ht_loader_matrix(l, name, rows, columns, head_rows, &w->matrix);
    if (!status) status = ht_loader_scale_products(l, name, w);
    if (status) return status;
    w->bias = HT_NONE;
    place_name(l, p, layer, "bias", name);
    ht_stored_tensor unwanted;
    if (has_bias(c, p->bias))
        status = ht_loader_vector(l, name, rows, head_rows, &w->bias);
    else if (ht_checkpoint_find(l->from, name, &unwanted))
        return ht_fail(l->err, HT_ERR_FORMAT, "%s: there is a tensor `%s`, but %s implies none", unwanted.file_name,
                       name, ht_loader_source(l));
    const ht_projection projection = {
        .layer = layer, .n_out = rows, .n_in = columns, .head_rows = permuted_rows(c, p, of)};
    if (!status && l->visit && layer != AROUND) {
        ht_stored_tensor t;
        place_name(l, p, layer, "weight", name);
        (void)ht_checkpoint_find(l->from, name, &t); /* it was found above */
        status = visit(l, p, (ht_stored_projection){projection, 0, t.number, 0, 1, head_rows});
    }
    const ht_stored_weight at = {.layer = layer,
                                 .rows = rows,
                                 .columns = columns,
                                 .is_quantized = layer != AROUND || p->looked_up,
                                 .head_rows = projection.head_rows,
                                 .stored_head_rows = head_rows};
    if (!status) status = visit_place(l, p, "weight", at);
    if (!status && has_bias(c, p->bias)) status = visit_place(l, p, "bias", as_vector(at));
    return status || !l->into ? status : keep_projection(l, p, &projection, &w->slot);
}

/* What products with the experts are multiplied by: stated together, or by each. */
static ht_status load_expert_scales(ht_loader *l, const ht_expert_form *f, int64_t layer, ht_experts *out) {
    int64_t n = l->config->n_experts;
    float *values = malloc((size_t)n * sizeof *values);
    if (!values) return ht_fail_memory(l->err, (size_t)n * sizeof *values, "scales");
    bool any = false;
    char name[HT_WEIGHT_NAME];
    out->scale = HT_NONE;
    ht_status status = HT_OK;
    for (int64_t e = 0; !status && e < (f->stacked ? 1 : n); e++) {
        bool found;
        values[e] = 1;
        ht_expert_name(l->from, f, layer, e, name, sizeof name);
        status = ht_loader_product_scales(l, name, f->stacked ? n : 1, f->share, f->n_shares, values + e, &found);
        any = any || found;
    }
    if (!status && any && l->into) status = ht_loader_keep_array(l, values, n, &out->scale);
    free(values);
    return status;
}

/* A layer's experts, each a matrix of its own; those in one tensor are looked up once. */
static ht_status load_experts(ht_loader *l, const ht_weight_place *p, int64_t layer, ht_experts *out) {
    const ht_config *c = l->config;
    int64_t n = c->n_experts, rows = extent(c, p->rows, layer), columns = extent(c, p->columns, layer);
    const ht_expert_form *f = ht_expert_form_of(l->from, p->expert, layer);
    const bool fused = p->expert != HT_EXPERT_DOWN && (f->gguf ? f->n_shares > 1 : c->family->gguf_fuses_experts);
    const ht_projection projection = {.layer = layer, .n_out = rows, .n_in = columns, .n_experts = n, .fused = fused};
    ht_matrix **matrix = NULL;
    if (l->into) {
        matrix = calloc((size_t)n * 2, sizeof *matrix);
        if (!matrix) return ht_fail_memory(l->err, (size_t)n * 2 * sizeof *matrix, "experts");
        l->into->experts[l->into->n_experts++] = matrix;
        *out = (ht_experts){{matrix, (int32_t)n, 0}, HT_NONE, NULL};
        ht_status kept = keep_projection(l, p, &projection, &out->slot);
        if (kept) return kept;
    }
    char name[HT_WEIGHT_NAME];
    ht_stored_tensor all, t;
    ht_fp8_scales scales;
    ht_status status = HT_OK;
    if (f->stacked) {
        ht_expert_name(l->from, f, layer, 0, name, sizeof name);
        status = ht_loader_look_up(l, name, (int64_t[]){n, rows * f->n_shares, columns}, 3, &all);
        if (!status) status = ht_loader_find_scales(l, &all, name, n, &scales);
    }
    for (int64_t e = 0; !status && e < n; e++) {
        if (f->stacked)
            t = ht_expert_slice(&all, f, e, rows);
        else {
            ht_expert_name(l->from, f, layer, e, name, sizeof name);
            status = ht_loader_look_up(l, name, (int64_t[]){rows, columns}, 2, &t);
            if (!status) status = ht_loader_find_scales(l, &t, name, 0, &scales);
        }
        if (!status && l->visit) {
            int64_t row = f->stacked ? (e * f->n_shares + f->share) * rows : 0;
            status = visit(l, p, (ht_stored_projection){projection, e, t.number, row, f->n_shares, 0});
        }
        if (!status && l->visit_all) {
            const ht_stored_weight at = {.layer = layer,
                                         .rows = rows,
                                         .columns = columns,
                                         .is_quantized = true,
                                         .part = p->expert,
                                         .expert = e,
                                         .tensor = t.number,
                                         .first_row = f->stacked ? (e * f->n_shares + f->share) * rows : 0,
                                         .n_shares = f->n_shares};
            status = l->visit_all(&at, l->visit_user, l->err);
        }
        if (!status) status = ht_loader_add(l, false, &t, name, 0, matrix ? &matrix[e] : NULL);
        if (status || !l->into) continue;
        l->into->use[l->into->n_matrices - 1].expert = true;
        status = ht_loader_set_scales(&scales, f->stacked ? e : 0, f->stacked ? f->share * rows : 0, matrix[e], l->err);
    }
    if (!status && matrix) ht_matrix_list_find_kinds(&out->list);
    return status ? status : load_expert_scales(l, f, layer, out);
}

/* One row of a table; without a struct to fill it only checks. */
static ht_status load_place(ht_loader *l, const ht_weight_place *p, int64_t layer, char *base) {
    if (p->has && !p->has(l->config, ht_max_i64(layer, 0))) return HT_OK;
    if (p->expert) {
        ht_experts none = {0};
        return load_experts(l, p, layer, base ? (ht_experts *)(void *)(base + p->offset) : &none);
    }
    if (p->columns != HT_EXTENT_NONE) {
        ht_weight none = {0};
        return load_weight(l, p, layer, base ? (ht_weight *)(void *)(base + p->offset) : &none);
    }
    char name[HT_WEIGHT_NAME];
    place_name(l, p, layer, "weight", name);
    ht_array *none;
    ht_array **to = base ? (ht_array **)(void *)(base + p->offset) : &none;
    const int64_t n = extent(l->config, p->rows, ht_max_i64(layer, 0));
    ht_status status = ht_loader_vector(l, name, n, 0, to);
    const ht_stored_weight at = {.layer = layer, .rows = 1, .columns = n, .is_vector = true, .is_gain = !p->bare};
    return status ? status : visit_place(l, p, "weight", at);
}

static ht_status load_places(ht_loader *l, const ht_weight_place *table, int64_t layer, char *base) {
    ht_status status = HT_OK;
    for (const ht_weight_place *p = table; !status && p->gguf; p++) status = load_place(l, p, layer, base);
    return status;
}

ht_status ht_loader_layer(ht_loader *l, int64_t layer, char *base) {
    ht_status status = HT_OK;
    l->late = layer >= ht_kv_layers(l->config);
    for (const ht_weight_place *const *table = l->config->family->layer; !status && *table; table++)
        status = load_places(l, *table, layer, base);
    return status;
}

static const char *head_name(const ht_checkpoint_files *c) {
    return c->gguf ? "output.weight" : c->head ? c->head : "lm_head.weight";
}

/* Tells the visitor of all weights of those that every decoder has around its layers. */
static ht_status visit_around(const ht_loader *l) {
    const ht_config *c = l->config;
    const ht_stored_weight table = {.gguf = "token_embd.weight",
                                    .safetensors = "embed_tokens.weight",
                                    .layer = AROUND,
                                    .rows = c->vocab,
                                    .columns = c->hidden,
                                    .is_quantized = true};
    ht_stored_weight norm = as_vector(table), head = table;
    char name[HT_WEIGHT_NAME];
    norm.gguf = "output_norm.weight";
    norm.safetensors = "norm.weight";
    norm.columns = c->hidden;
    norm.is_gain = true;
    head.gguf = "output.weight";
    head.safetensors = "lm_head.weight";
    head.is_head = true;
    const bool gguf = l->from->gguf != NULL;
    snprintf(name, sizeof name, "%s%s", gguf ? "" : l->from->prefix, gguf ? table.gguf : table.safetensors);
    ht_status status = visit_stored(l, name, table);
    snprintf(name, sizeof name, "%s%s", gguf ? "" : l->from->prefix, gguf ? norm.gguf : norm.safetensors);
    if (!status) status = visit_stored(l, name, norm);
    if (status || c->tied_head) return status;
    return visit_stored(l, head_name(l->from), head);
}

ht_status ht_loader_around(ht_loader *l, ht_decoder_weights *d) {
    const ht_config *c = l->config;
    const ht_checkpoint_files *from = l->from;
    char name[HT_WEIGHT_NAME];
    snprintf(name, sizeof name, "%sembed_tokens.weight", from->gguf ? "" : from->prefix);
    const char *embedding = from->gguf ? "token_embd.weight" : name;
    ht_status status = c->tied_head ? ht_loader_head(l, embedding, &d->embedding.matrix)
                                    : ht_loader_table(l, embedding, c->vocab, c->hidden, &d->embedding.matrix);
    if (!status) status = ht_loader_scale_products(l, embedding, &d->embedding);
    if (status) return status;
    snprintf(name, sizeof name, "%snorm.weight", from->gguf ? "" : from->prefix);
    status = ht_loader_vector(l, from->gguf ? "output_norm.weight" : name, c->hidden, 0, &d->final_norm);
    if (status) return status;
    d->head.matrix = d->embedding.matrix;
    d->head.scale = d->embedding.scale;
    if (!c->tied_head) {
        const char *head = head_name(from);
        status = ht_loader_head(l, head, &d->head.matrix);
        if (!status) status = ht_loader_scale_products(l, head, &d->head);
    }
    if (!status) status = visit_around(l);
    d->embedding.bias = d->head.bias = HT_NONE;
    d->embedding.slot = "model.embed_tokens";
    d->head.slot = "lm_head";
    if (!status && c->family->around) status = load_places(l, c->family->around, AROUND, d->around);
    return status;
}
