/* Adapters of mlx-lm: adapter_config.json and adapters.safetensors. A is [in, rank], B [rank, out]; of experts they are
 * [experts, rank, in] and [experts, out, rank]. Its scale multiplies as it is. Source: mlx_lm/tuner/lora.py, utils.py. */
#include "base/error.h"
#include "checkpoint/adapter_file.h"
#include "checkpoint/config.h"
#include "formats/json.h"

#include <stdio.h>
#include <string.h>

enum { CONFIG_BYTES_MAX = 16 << 20 };

typedef struct config {
    int64_t rank;
    double scale;
} config;

static ht_status read_config(ht_adapter_reading *reading, config *c, ht_error *err) {
    ht_json *root;
    ht_status status = ht_json_read(reading->config_path, CONFIG_BYTES_MAX, &root, err);
    if (status) return status;
    ht_json_reader r = {.file = reading->config_path, .err = err};
    const char *type = "lora", *base = NULL;
    ht_json_str(&r, root, "fine_tune_type", &type);
    ht_json_str(&r, root, "model", &base);
    const ht_json *lora = ht_json_object(&r, root, "lora_parameters");
    if (strcmp(type, "lora") != 0)
        ht_json_fail(&r, HT_ERR_UNSUPPORTED, "`fine_tune_type` is \"%.40s\"; only lora can be applied", type);
    if (!lora) ht_json_missing(&r, "lora_parameters", "an object");
    if (lora && !ht_json_i64(&r, lora, "rank", &c->rank)) ht_json_missing(&r, "rank", "an integer");
    if (lora && !ht_json_f64(&r, lora, "scale", &c->scale)) ht_json_missing(&r, "scale", "a number");
    status = r.status ? r.status : ht_adapter_keep(&reading->origin.base, base, base ? strlen(base) : 0, err);
    ht_json_decref(root);
    return status;
}

static ht_status refuse(const char *path, const char *name, ht_error *err) {
    size_t n = strlen(name);
    if (n > 2 && !strcmp(name + n - 2, ".m"))
        return ht_fail(err, HT_ERR_UNSUPPORTED, "%s: tensor `%s` is a magnitude of DoRA, which rescales whole rows",
                       path, name);
    return ht_fail(err, HT_ERR_UNSUPPORTED, "%s: tensor `%s` is neither lora_a nor lora_b of a module", path, name);
}

/* Experts of a layer: mlp.switch_mlp of those in the feed-forward, experts.switch_glu of those beside it. Writes the
 * projection as slots spell it. */
static bool expert_of(const char *rest, char projection[HT_ADAPTER_SLOT], bool *outside) {
    static const char *const places[] = {"mlp.switch_mlp.", "experts.switch_glu."};
    for (int i = 0; i < 2; i++) {
        size_t n = strlen(places[i]);
        if (strncmp(rest, places[i], n) != 0) continue;
        *outside = i == 1;
        snprintf(projection, HT_ADAPTER_SLOT, "experts.%.100s", rest + n);
        return true;
    }
    snprintf(projection, HT_ADAPTER_SLOT, "%.120s", rest);
    return false;
}

static ht_status add_tensor(ht_adapter_reading *r, const config *c, size_t i, ht_error *err) {
    static const char *const ends[] = {".lora_a", ".lora_b"};
    char name[HT_ADAPTER_NAME], module[HT_ADAPTER_NAME], projection[HT_ADAPTER_SLOT];
    ht_stored_tensor t = ht_adapter_tensor(r, i, name);
    size_t n = strlen(name), end = strlen(ends[0]);
    ht_adapter_piece p = {.tensor = i, .scale = c->scale, .rank = c->rank};
    p.is_b = n > end && !strcmp(name + n - end, ends[1]);
    if (!p.is_b && (n <= end || strcmp(name + n - end, ends[0]) != 0)) return refuse(r->path, name, err);
    snprintf(module, sizeof module, "%.*s", (int)(n - end), name);
    int64_t layer = 0;
    const char *rest;
    if (!ht_adapter_module(module, &layer, &rest, &r->origin.wrapped))
        return ht_fail(err, HT_ERR_UNSUPPORTED,
                       "%s: tensor `%s` is of no layer of a text model; embeddings and heads cannot have adapters",
                       r->path, name);
    bool experts = expert_of(rest, projection, &r->origin.experts_outside);
    if (!ht_adapter_slot(p.slot, layer, projection))
        return ht_fail(err, HT_ERR_FORMAT, "%s: tensor `%s` is of a module with too long a name", r->path, name);
    ht_status status = ht_adapter_need_axes(r, &t, name, experts ? 3 : 2, err);
    if (status) return status;
    /* [in, rank] and [rank, out]; of experts [n, rank, in] and [n, out, rank]: the last axes are the other way round. */
    const int64_t *dims = t.dims + experts;
    bool rank_last = experts == p.is_b;
    int64_t rank = dims[rank_last];
    p.features = dims[!rank_last];
    p.n_experts = experts ? t.dims[0] : 0;
    p.expert_stride = dims[0] * dims[1];
    p.rank_stride = rank_last ? 1 : p.features;
    p.feature_stride = rank_last ? rank : 1;
    if (rank != c->rank)
        return ht_fail(err, HT_ERR_FORMAT, "%s: tensor `%s` has rank %lld, %s states %lld", r->path, name,
                       (long long)rank, r->config_path, (long long)c->rank);
    return ht_adapter_add_piece(r, &p, err);
}

ht_status ht_adapter_list_mlx(ht_adapter_reading *r, ht_error *err) {
    config c = {0};
    ht_status status = read_config(r, &c, err);
    for (size_t i = 0; !status && i < ht_adapter_n_tensors(r); i++) status = add_tensor(r, &c, i, err);
    return status;
}

/* ---- writing ---- */

/* A projection's name in a block of mlx-lm. */
static void block_name(const ht_adapter_writing *w, const ht_lora *l, const char *rest, char out[HT_ADAPTER_SLOT]) {
    if (!l->n_experts)
        snprintf(out, HT_ADAPTER_SLOT, "%s", rest);
    else
        snprintf(out, HT_ADAPTER_SLOT, "%s.%.100s", w->experts_outside ? "experts.switch_glu" : "mlp.switch_mlp",
                 strchr(rest, '.') + 1);
}

static ht_status put_pair(ht_adapter_writing *w, const ht_lora *l, ht_error *err) {
    char block[HT_ADAPTER_SLOT];
    const char *rest;
    int64_t layer = ht_adapter_slot_layer(l->slot, &rest);
    block_name(w, l, rest, block);
    for (int is_b = 0; is_b < 2; is_b++) {
        ht_adapter_tensor_out *t = ht_adapter_add_tensor(w, err);
        if (!t) return HT_ERR_MEMORY;
        bool experts = l->n_experts > 0, rank_last = experts == is_b;
        int64_t features = is_b ? l->n_out : l->n_in;
        snprintf(t->name, sizeof t->name, "%smodel.layers.%lld.%s.%s", w->wrapped ? "language_model." : "",
                 (long long)layer, block, is_b ? "lora_b" : "lora_a");
        t->rank = 2 + experts;
        t->shape[0] = l->n_experts;
        t->shape[experts + rank_last] = w->rank;
        t->shape[experts + !rank_last] = features;
        const ht_adapter_piece p = {.is_b = is_b,
                                    .n_experts = l->n_experts,
                                    .expert_stride = w->rank * features,
                                    .rank_stride = rank_last ? 1 : features,
                                    .feature_stride = rank_last ? w->rank : 1};
        ht_adapter_put_piece(t, l, &p);
    }
    return HT_OK;
}

/* mlx-lm wraps `keys` in the last num_layers blocks, -1 being all; what it wraps without a tensor changes nothing. */
static ht_json *make_config(const ht_adapter_writing *w) {
    ht_json *keys = ht_json_new_array();
    int64_t first = INT64_MAX;
    bool good = keys != NULL;
    for (int64_t i = 0; good && i < w->a->n; i++) {
        char block[HT_ADAPTER_SLOT];
        const char *rest;
        int64_t layer = ht_adapter_slot_layer(w->a->lora[i].slot, &rest);
        if (layer < first) first = layer;
        block_name(w, &w->a->lora[i], rest, block);
        size_t k = 0;
        while (k < ht_json_array_size(keys) && strcmp(ht_json_string_value(ht_json_array_get(keys, k)), block) != 0)
            k++;
        if (k == ht_json_array_size(keys)) good = ht_json_array_append_new(keys, ht_json_string(block)) == 0;
    }
    int64_t layers = w->m ? w->m->config->n_layers - first : -1;
    ht_json *root = good ? ht_json_pack("{ss ss sI s{sI sf sf sO}}", "fine_tune_type", "lora", "model",
                                        w->base ? w->base : "", "num_layers", (int64_t)layers, "lora_parameters",
                                        "rank", (int64_t)w->rank, "scale", w->scale, "dropout", 0.0, "keys", keys)
                         : NULL;
    ht_json_decref(keys);
    return root;
}

ht_status ht_adapter_write_mlx(ht_adapter_writing *w, ht_error *err) {
    ht_status status = HT_OK;
    for (int64_t i = 0; !status && i < w->a->n; i++) status = put_pair(w, &w->a->lora[i], err);
    if (!status) status = ht_adapter_write_safetensors(w, "adapters.safetensors", err);
    return status ? status : ht_adapter_write_json(w, "adapter_config.json", make_config(w), err);
}
