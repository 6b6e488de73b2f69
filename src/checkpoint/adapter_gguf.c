/* Adapters of llama.cpp: a GGUF file with the base's tensor names plus ".lora_a" or ".lora_b". Row-major, A is [rank,
 * in] and B [out, rank]; experts add a leading axis. B's rows of q and k are in the order in which the base's family
 * stores them. One alpha applies to all tensors, divided by the rank of each; 0 or none means a scale of 1. Source:
 * llama.cpp's llama-adapter.cpp and convert_lora_to_gguf.py. */
#include "base/checked.h"
#include "base/error.h"
#include "base/grow.h"
#include "base/text.h"
#include "checkpoint/adapter_file.h"
#include "checkpoint/convert_metadata.h"
#include "checkpoint/family.h"
#include "formats/gguf_write.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char gate_up[] = "ffn_gate_up_exps";

/* ---- reading ---- */

typedef struct config {
    const ht_family *family;
    double alpha;
} config;

static ht_status read_family(ht_adapter_reading *r, config *c, ht_error *err) {
    char name[48];
    (void)ht_meta_text(r->gguf, "general.architecture", name, sizeof name);
    c->family = ht_family_of_architecture(name);
    if (!c->family) return ht_family_unknown(r->path, name, err);
    if (r->m && !ht_family_has_architecture(r->m->config->family, name))
        return ht_fail(err, HT_ERR_ARGUMENT, "%s: the adapter is for another model: for a %s, and the model is a %s",
                       r->path, name, r->m->config->family->architecture);
    if (r->m) c->family = r->m->config->family;
    r->origin.family = c->family;
    return HT_OK;
}

static ht_status read_config(ht_adapter_reading *r, config *c, ht_error *err) {
    ht_bytes value;
    char type[40];
    if (!ht_meta_text(r->gguf, "general.type", type, sizeof type) || strcmp(type, "adapter") != 0)
        return ht_fail(err, HT_ERR_ARGUMENT, "%s: `general.type` is `%s`, expected `adapter`: this is no adapter",
                       r->path, type);
    if (!ht_meta_text(r->gguf, "adapter.type", type, sizeof type) || strcmp(type, "lora") != 0)
        return ht_fail(err, HT_ERR_UNSUPPORTED, "%s: `adapter.type` is `%s`, expected `lora`", r->path, type);
    const ht_gguf_value *tokens = ht_gguf_find(r->gguf, "adapter.alora.invocation_tokens");
    if (tokens && tokens->n_items)
        return ht_fail(
            err, HT_ERR_UNSUPPORTED,
            "%s: `adapter.alora.invocation_tokens` is set: it is an aLoRA, which is active only from certain "
            "tokens on",
            r->path);
    if (ht_gguf_find(r->gguf, "adapter.lora.alpha") && !ht_gguf_get_f64(r->gguf, "adapter.lora.alpha", &c->alpha))
        return ht_fail(err, HT_ERR_FORMAT, "%s: `adapter.lora.alpha` is no number", r->path);
    static const struct {
        const char *key;
        size_t field;
    } texts[] = {{"hearth.base_model", offsetof(ht_adapter_origin, base)},
                 {"hearth.base_fingerprint", offsetof(ht_adapter_origin, fingerprint)},
                 {"hearth.template_hash", offsetof(ht_adapter_origin, template_hash)}};
    ht_status status = read_family(r, c, err);
    for (size_t i = 0; !status && i < sizeof texts / sizeof *texts; i++)
        if (ht_gguf_get_string(r->gguf, texts[i].key, &value))
            status =
                ht_adapter_keep((char **)(void *)((char *)&r->origin + texts[i].field), value.data, value.len, err);
    return status;
}

/* A projection of the family's tables by its name in a block; the model's own where several have the name; NULL when
 * there is none. `of` may be NULL. */
static const ht_tensor_spec *spec_of(const ht_family *family, const ht_config *of, int64_t layer, const char *name) {
    const ht_tensor_spec *any = NULL;
    for (const ht_tensor_spec *const *table = family->layer; *table; table++)
        for (const ht_tensor_spec *p = *table; p->gguf; p++) {
            if (p->columns == HT_EXTENT_NONE || p->part == HT_PART_ALL ||
                strcmp(ht_part_is_of_head(p->expert) ? HT_HEADS_GGUF : p->gguf, name) != 0)
                continue;
            if (of && layer < of->n_layers && (!p->has || p->has(of, layer))) return p;
            if (!any) any = p;
        }
    return any;
}

/* The order of B's rows, or of A's columns, if the model is known, on which it depends. */
static ht_order order_of(ht_adapter_reading *r, const config *c, const ht_tensor_spec *p,
                         const ht_adapter_piece *piece) {
    const ht_projection *of = r->m ? ht_adapter_base_find(r->m, piece->slot) : NULL;
    if (!r->m && p->heads != HT_HEADS_NONE && (c->family->gguf_interleaves || c->family->gguf_deals_heads))
        r->gguf_order = true;
    return !of ? (ht_order){0} : piece->is_b ? of->rows : of->columns;
}

static const char *const ends[] = {".weight.lora_a", ".weight.lora_b"};

/* Parses "blk.3.attn_q.weight.lora_a" into the layer, "attn_q", and whether it is B. */
static bool parse_name(const char *name, int64_t *layer, char block[HT_ADAPTER_NAME], bool *is_b) {
    size_t n;
    char *rest;
    if (!ht_adapter_half(name, ends, is_b, &n) || strncmp(name, "blk.", 4) != 0 || name[4] < '0' || name[4] > '9')
        return false;
    *layer = strtoll(name + 4, &rest, 10);
    if (*rest != '.' || *layer >= HT_MAX_LAYERS || rest + 1 > name + n) return false;
    snprintf(block, HT_ADAPTER_NAME, "%.*s", (int)(name + n - (rest + 1)), rest + 1);
    return true;
}

/* ---- parts of a joined projection ---- */

static const char *const part_ends[] = {[HT_PART_QKV] = ".attn_qkv", [HT_PART_GATE] = ".attn_gate"};

const ht_lora *ht_adapter_find_part(const ht_adapter *a, const char *slot, ht_part_rule part) {
    char name[HT_ADAPTER_SLOT];
    const int n = snprintf(name, sizeof name, "%s%s", slot, part_ends[part]);
    return n > 0 && n < HT_ADAPTER_SLOT ? ht_adapter_find(a, name) : NULL;
}

static int64_t rows_of_part(const ht_recurrence_spec *r, ht_part_rule part) {
    const int64_t n_values = r->heads * r->value_dim;
    return part == HT_PART_GATE ? n_values : 2 * r->key_heads * r->key_dim + n_values;
}

/* The part whose pair this is; HT_PART_NONE: not that of a part. */
static ht_part_rule part_of(const ht_lora *l) {
    for (int part = HT_PART_QKV; part <= HT_PART_GATE; part++)
        if (ht_ends_with(l->slot, part_ends[part])) return (ht_part_rule)part;
    return HT_PART_NONE;
}

/* Whether both pairs have one A, as they have if they were parted. */
static bool has_same_a(const ht_lora *a, const ht_lora *b) {
    return a->rank == b->rank && !memcmp(a->a, b->a, (size_t)(a->rank * a->n_in) * sizeof *a->a);
}

/* The pair of the joined projection: with the pairs' A, if it is the same, else with the ranks of both. */
static ht_status merge(const ht_recurrence_spec *r, const ht_lora *pair, int n, ht_lora *out, ht_error *err) {
    const bool same = n == 2 && has_same_a(&pair[0], &pair[1]);
    const int64_t n_in = pair->n_in, n_out = rows_of_part(r, HT_PART_QKV) + rows_of_part(r, HT_PART_GATE),
                  rank = n == 2 && !same ? pair[0].rank + pair[1].rank : pair->rank;
    *out = (ht_lora){.rank = rank, .n_in = n_in, .n_out = n_out, .scale = pair->scale};
    out->slot = strndup(pair->slot, strlen(pair->slot) - strlen(part_ends[part_of(pair)]));
    out->a = malloc((size_t)(rank * n_in) * sizeof *out->a);
    out->b = calloc((size_t)(n_out * rank), sizeof *out->b);
    if (!out->slot || !out->a || !out->b)
        return ht_fail_memory(err, (size_t)(n_out * rank) * sizeof *out->b, "an adapter");
    for (int64_t i = 0, first = 0; i < n; i++) {
        const ht_lora *l = &pair[i];
        memcpy(out->a + first * n_in, l->a, (size_t)(l->rank * n_in) * sizeof *l->a);
        for (int64_t row = 0, run; row < l->n_out; row++) {
            float *to = out->b + ht_part_row(r, part_of(l), row, &run) * rank + first;
            for (int64_t k = 0; k < l->rank; k++) to[k] = l->b[row * l->rank + k] * (l->scale / pair->scale);
        }
        if (!same) first += l->rank;
    }
    return HT_OK;
}

static void free_pair(ht_lora *l) {
    free(l->slot);
    free(l->a);
    free(l->b);
}

ht_status ht_adapter_merge_parts(const ht_adapter_reading *r, ht_adapter *a, ht_error *err) {
    const ht_recurrence_spec *of = &r->m->config->recurrence;
    int64_t kept = 0, n;
    ht_status status = HT_OK;
    for (int64_t i = 0; i < a->n; i += n) {
        ht_lora *l = &a->lora[i], joined = {0};
        const ht_part_rule part = part_of(l);
        n = 1;
        if (part && i + 1 < a->n && part_of(l + 1)) { /* of the same slot */
            const size_t stem = strlen(l->slot) - strlen(part_ends[part]);
            n += !strncmp(l->slot, l[1].slot, stem) && strlen(l[1].slot) == stem + strlen(part_ends[part_of(l + 1)]);
        }
        for (int64_t k = 0; !status && part && k < n; k++)
            if (l[k].n_out != rows_of_part(of, part_of(&l[k])) || l[k].n_in != l->n_in || l[k].scale == 0)
                status =
                    ht_fail(err, HT_ERR_ARGUMENT, "%s: the adapter is for another model: its `%s` has %lld outputs",
                            r->path, l[k].slot, (long long)l[k].n_out);
        if (!status && part) status = merge(of, l, (int)n, &joined, err);
        if (status || !part) {
            memmove(&a->lora[kept], l, (size_t)n * sizeof *l);
            if (joined.slot || joined.a || joined.b) free_pair(&joined);
            kept += n;
            continue;
        }
        for (int64_t k = 0; k < n; k++) free_pair(&l[k]);
        a->lora[kept++] = joined;
    }
    a->n = kept;
    return status;
}

/* ---- tensors ---- */

static ht_status add_tensor(ht_adapter_reading *r, const config *c, size_t i, ht_error *err) {
    char name[HT_ADAPTER_NAME], block[HT_ADAPTER_NAME];
    ht_stored_tensor t = ht_adapter_tensor(r, i, name);
    ht_adapter_piece p = {.tensor = i};
    int64_t layer = 0;
    bool known = parse_name(name, &layer, block, &p.is_b), joined = known && !strcmp(block, gate_up);
    const ht_tensor_spec *spec =
        known ? spec_of(c->family, r->m ? r->m->config : NULL, layer, joined ? "ffn_gate_exps" : block) : NULL;
    if (!spec)
        return ht_fail(err, HT_ERR_UNSUPPORTED,
                       "%s: tensor `%s` is no lora_a or lora_b of a projection in a layer of %s; embeddings, heads and "
                       "norms cannot have adapters",
                       r->path, name, c->family->architecture);
    const bool of_heads = ht_part_is_of_head(spec->expert), stacked = spec->expert && !of_heads;
    ht_status status = ht_adapter_need_axes(r, &t, name, stacked ? 3 : 2, err);
    if (status) return status;
    (void)ht_adapter_slot(p.slot, layer, of_heads ? HT_HEADS_SLOT : ht_spec_slot(spec));
    if (spec->part) {
        if (strlen(p.slot) + strlen(part_ends[spec->part]) >= sizeof p.slot)
            return ht_fail(err, HT_ERR_FORMAT, "%s: `%s` is too long", r->path, p.slot);
        strcat(p.slot, part_ends[spec->part]);
        r->has_parts = true;
        if (!r->m) r->gguf_order = true;
    }
    const int64_t *dims = t.dims + (stacked ? 1 : 0);
    p.n_experts = stacked ? t.dims[0] : 0;
    p.rank = dims[p.is_b];
    p.features = dims[!p.is_b];
    p.scale = c->alpha != 0 ? c->alpha / (double)p.rank : 1;
    ht_adapter_lay_out(&p, p.is_b);
    p.order = order_of(r, c, spec, &p);
    if (p.order.group && (p.features < p.order.first || (p.features - p.order.first) % p.order.group))
        return ht_fail(
            err, HT_ERR_ARGUMENT,
            "%s: the adapter is for another model: tensor `%s` has %lld rows, no multiple of the model's %lld "
            "of a head",
            r->path, name, (long long)p.features, (long long)p.order.group);
    if (!joined) return ht_adapter_add_piece(r, &p, err);
    return ht_adapter_add_joined(r, p, false, name, layer, err);
}

ht_status ht_adapter_list_gguf(ht_adapter_reading *r, ht_error *err) {
    config c = {0};
    ht_status status = read_config(r, &c, err);
    for (size_t i = 0; !status && i < ht_adapter_n_tensors(r); i++) status = add_tensor(r, &c, i, err);
    return status;
}

/* ---- writing ---- */

/* Writes the pair of a joined projection as one pair for each part. */
static ht_status put_parts(ht_adapter_writing *w, const ht_lora *l, ht_error *err) {
    const ht_recurrence_spec *r = &w->m->config->recurrence;
    const ht_adapter_layout how = {.ends = ends, .expert = -1, .shares = 1, .scale = 1};
    ht_status status = HT_OK;
    for (const ht_tensor_spec *const *table = w->m->config->family->layer; *table; table++)
        for (const ht_tensor_spec *p = *table; !status && p->gguf; p++) {
            const char *rest;
            char name[HT_ADAPTER_NAME];
            if (p->part != HT_PART_QKV && p->part != HT_PART_GATE) continue;
            ht_lora *one = malloc(sizeof *one);
            if (!one || !HT_GROW_ONE(w->part, w->n_parts)) {
                free(one);
                return ht_fail_memory(err, sizeof *one, w->path);
            }
            *one = *l;
            one->n_out = rows_of_part(r, p->part);
            w->part[w->n_parts++] = one;
            one->b = malloc((size_t)(one->n_out * l->rank) * sizeof *one->b);
            if (!one->b) return ht_fail_memory(err, (size_t)(one->n_out * l->rank) * sizeof *one->b, w->path);
            for (int64_t row = 0, run; row < one->n_out; row++)
                memcpy(one->b + row * l->rank, l->b + ht_part_row(r, p->part, row, &run) * l->rank,
                       (size_t)l->rank * sizeof *l->b);
            snprintf(name, sizeof name, "blk.%lld.%.32s", (long long)ht_adapter_slot_layer(l->slot, &rest), p->gguf);
            status = ht_adapter_put(w, name, one, NULL, &how, err);
        }
    return status;
}

/* Writes a pair, or gate and up together, as some families have them in one tensor. */
static ht_status put_pair(ht_adapter_writing *w, const ht_lora *l, ht_error *err) {
    bool is_up = false;
    const char *rest;
    char name[HT_ADAPTER_NAME];
    const ht_projection *p = ht_adapter_base_find(w->m, l->slot); /* exists: ht_adapter_check_base */
    const ht_lora *other = p->fused ? ht_adapter_partner(w->a, l->slot, &is_up) : NULL;
    if (p->part) return put_parts(w, l, err);
    ht_adapter_layout how = {.ends = ends, .expert = -1, .shares = 1, .scale = 1};
    if (!p->fused) {
        how.rows = p->rows;
        how.columns = p->columns;
        return ht_adapter_put(w, p->gguf, l, NULL, &how, err);
    }
    if (other && is_up) return HT_OK; /* with its gate */
    snprintf(name, sizeof name, "blk.%lld.%s", (long long)ht_adapter_slot_layer(l->slot, &rest), gate_up);
    how.shares = 2;
    how.scale = 2; /* alpha is divided by the joined tensor's rank */
    return ht_adapter_put(w, name, is_up ? NULL : l, is_up ? l : other, &how, err);
}

static ht_json *make_metadata(const ht_adapter_writing *w, ht_error *err) {
    ht_document d = {ht_json_new_object(), w->path, HT_OK, err};
    ht_document_set(&d, "general.type", ht_json_string("adapter"));
    const ht_config *c = w->m->config;
    ht_document_set(&d, "general.architecture",
                    ht_json_string(*c->architecture ? c->architecture : ht_gguf_architecture_of(c)));
    ht_document_set(&d, "adapter.type", ht_json_string("lora"));
    ht_document_set(&d, "adapter.lora.alpha", ht_gguf_f32(w->scale * (double)w->rank));
    ht_document_set(&d, "general.file_type", ht_gguf_u32(0));
    if (w->base) ht_document_set(&d, "hearth.base_model", ht_json_string(w->base));
    if (*w->fingerprint) ht_document_set(&d, "hearth.base_fingerprint", ht_json_string(w->fingerprint));
    if (*w->template_hash) ht_document_set(&d, "hearth.template_hash", ht_json_string(w->template_hash));
    return ht_document_take(&d);
}

ht_status ht_adapter_write_gguf(ht_adapter_writing *w, ht_error *err) {
    ht_tensor_output *outputs = NULL;
    ht_status status = HT_OK;
    for (int64_t i = 0; !status && i < w->a->n; i++) status = put_pair(w, &w->a->lora[i], err);
    if (!status) status = ht_adapter_outputs(w, &outputs, err);
    ht_json *metadata = status ? NULL : make_metadata(w, err);
    if (!status && !metadata) status = HT_ERR_MEMORY;
    if (!status) status = ht_gguf_write(w->path, outputs, (int)w->n_tensors, metadata, ht_adapter_values, w, err);
    ht_json_decref(metadata);
    free(outputs);
    return status;
}
