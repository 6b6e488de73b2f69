/* Adapters as directories of PEFT and of mlx-lm: adapter_config.json, and safetensors whose names are modules. */
#include "base/error.h"
#include "base/text.h"
#include "checkpoint/adapter_file.h"
#include "checkpoint/family.h"
#include "checkpoint/stored_weights.h"
#include "formats/json.h"
#include "tokenizer/regex.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CONFIG_BYTES_MAX = 16 << 20 };

/* PEFT: adapter_model.safetensors. A is [rank, in], B [out, rank]. Experts are separate modules
 * (`mlp.experts.7.gate_proj`) or parameters. Parameters have one A [experts * rank, in], expert by expert, and one B
 * [out, rank * experts], with the expert as fastest index. `experts.base_layer` is gate and up, the outer `experts` is
 * down. Source: peft/tuners/lora/layer.py (ParamWrapper), peft/utils/other.py (get_pattern_key). */

/* ---- configuration ---- */

/* A key of rank_pattern or alpha_pattern. */
typedef struct pattern {
    const char *key;
    ht_regex *regex;
    double value;
} pattern;

typedef struct patterns {
    pattern *item;
    size_t n;
} patterns;

typedef struct peft_config {
    ht_json *root;
    int64_t rank;
    double alpha;
    bool rs; /* scale is alpha / sqrt(rank) */
    patterns ranks, alphas;
    const char *only_parameter; /* the only target among gate_up_proj and down_proj; NULL: both or none */
    ht_regex_work *work;
} peft_config;

static void free_patterns(patterns *p) {
    for (size_t i = 0; i < p->n; i++) ht_regex_free(p->item[i].regex);
    free(p->item);
}

static void free_config(peft_config *c) {
    free_patterns(&c->ranks);
    free_patterns(&c->alphas);
    ht_regex_work_free(c->work);
    ht_json_decref(c->root);
}

/* Unsupported keys, which must be unset, and their meaning. */
static const struct {
    const char *key, *why;
} unsupported[] = {
    {"use_dora", "it is DoRA, which rescales whole rows"},
    {"lora_bias", "its B has biases"},
    {"modules_to_save", "it replaces whole modules"},
    {"trainable_token_indices", "it replaces rows of the embedding"},
    {"layer_replication", "it repeats layers"},
    {"alora_invocation_tokens", "it is an aLoRA, which is active only from certain tokens on"},
    {"use_qalora", "it is QA-LoRA, whose A is for groups of inputs"},
    {"use_bdlora", "its A or B is block-diagonal"},
    {"arrow_config", "it chooses among several adapters"},
    {"kasa_config", "it changes the base weights"},
    {"velora_config", "it is VeLoRA"},
    {"monteclora_config", "it is MonteCLoRA"},
};

static bool is_set(const ht_json *value) {
    if (ht_json_is_array(value) || ht_json_is_object(value))
        return ht_json_array_size(value) + ht_json_object_size(value) > 0;
    return value && !ht_json_is_null(value) && !ht_json_is_false(value);
}

static void check_keys(const peft_config *c, ht_json_reader *r) {
    const char *type = NULL, *bias = "none";
    ht_json_str(r, c->root, "peft_type", &type);
    if (!type) ht_json_missing(r, "peft_type", "the string \"LORA\"");
    if (!r->status && strcmp(type, "LORA") != 0)
        ht_json_fail(r, HT_ERR_UNSUPPORTED, "`peft_type` is \"%.40s\"; only LORA can be applied", type);
    for (size_t i = 0; i < sizeof unsupported / sizeof *unsupported; i++)
        if (is_set(ht_json_object_get(c->root, unsupported[i].key)))
            ht_json_fail(r, HT_ERR_UNSUPPORTED, "`%s` is set: the adapter is no plain LoRA, as %s", unsupported[i].key,
                         unsupported[i].why);
    ht_json_str(r, c->root, "bias", &bias);
    if (strcmp(bias, "none") != 0)
        ht_json_fail(r, HT_ERR_UNSUPPORTED, "`bias` is \"%.40s\": the adapter changes the biases of the base", bias);
    static const char *const changing[] = {"pissa", "olora", "corda", "lora_ga", "loftq"};
    const char *init = ht_json_string_value(ht_json_object_get(c->root, "init_lora_weights"));
    for (size_t i = 0; init && i < sizeof changing / sizeof *changing; i++)
        if (strncmp(init, changing[i], strlen(changing[i])) == 0)
            ht_json_fail(r, HT_ERR_UNSUPPORTED,
                         "`init_lora_weights` is \"%.40s\", which has changed the base weights; save the adapter with "
                         "PEFT's `path_initial_model_for_weight_conversion`",
                         init);
}

/* A module takes the first pattern for which Python's re.match("(.*\.)?(KEY)$") holds. */
static void read_patterns(ht_json_reader *r, const ht_json *object, const char *name, patterns *out) {
    const ht_json *all = ht_json_object(r, object, name);
    const char *key;
    ht_json *value;
    out->item = calloc(ht_json_object_size(all) + 1, sizeof *out->item);
    if (!out->item) r->status = ht_fail_memory(r->err, 0, name);
    ht_json_object_foreach((ht_json *)(uintptr_t)all, key, value) {
        if (r->status) return;
        ht_text text = {0};
        ht_text_printf(&text, "^(?:.*\\.)?(?:%s)$", key);
        pattern *p = &out->item[out->n];
        *p = (pattern){.key = key, .value = ht_json_number_value(value)};
        if (!ht_json_is_number(value) || !isfinite(p->value))
            ht_json_fail(r, HT_ERR_FORMAT, "`%s` of \"%.80s\" is no number", name, key);
        else if (text.failed)
            r->status = ht_fail_memory(r->err, strlen(key), name);
        else if ((r->status = ht_regex_new(text.data, text.len, &p->regex, r->err)))
            r->status = ht_fail_in(r->err, r->status, "%s: `%s` of \"%.80s\"", r->file, name, key);
        else
            out->n++;
        ht_text_discard(&text);
    }
}

/* PEFT nests gate_up_proj, or up_proj of experts without a gate, inside down_proj if both are targeted; names do not
 * identify a single target. */
static void read_parameters(peft_config *c, ht_json_reader *r) {
    const ht_json *all = ht_json_array(r, c->root, "target_parameters");
    bool gate_up = false, down = false;
    for (size_t i = 0; i < ht_json_array_size(all); i++) {
        const char *name = ht_json_string_value(ht_json_array_get(all, i)), *leaf = name ? strrchr(name, '.') : NULL;
        leaf = leaf ? leaf + 1 : name;
        gate_up = gate_up || (leaf && (!strcmp(leaf, "gate_up_proj") || !strcmp(leaf, "up_proj")));
        down = down || (leaf && !strcmp(leaf, "down_proj"));
    }
    if (gate_up != down) c->only_parameter = gate_up ? "gate_up_proj" : "down_proj";
}

static ht_status read_peft_config(ht_adapter_reading *reading, peft_config *c, ht_error *err) {
    ht_status status = ht_json_read(reading->config_path, CONFIG_BYTES_MAX, &c->root, err);
    if (status) return status;
    c->work = ht_regex_work_new();
    if (!c->work) return ht_fail_memory(err, 0, reading->config_path);
    ht_json_reader r = {.file = reading->config_path, .err = err};
    const char *base = NULL, *task = "";
    check_keys(c, &r);
    if (!ht_json_i64(&r, c->root, "r", &c->rank)) ht_json_missing(&r, "r", "an integer");
    if (!ht_json_f64(&r, c->root, "lora_alpha", &c->alpha)) ht_json_missing(&r, "lora_alpha", "a number");
    ht_json_bool(&r, c->root, "use_rslora", &c->rs);
    ht_json_str(&r, c->root, "base_model_name_or_path", &base);
    ht_json_str(&r, c->root, "task_type", &task);
    reading->origin.embeds = !strcmp(task, "FEATURE_EXTRACTION");
    read_parameters(c, &r);
    if (!r.status) read_patterns(&r, c->root, "rank_pattern", &c->ranks);
    if (!r.status) read_patterns(&r, c->root, "alpha_pattern", &c->alphas);
    return r.status ? r.status : ht_adapter_keep(&reading->origin.base, base, SIZE_MAX, err);
}

static ht_status pattern_value(const peft_config *c, const patterns *all, const char *module, double *out,
                               ht_error *err) {
    ht_regex_match match = {0};
    ht_status status = HT_OK;
    for (size_t i = 0; !status && !match.found && i < all->n; i++) {
        status = ht_regex_find(all->item[i].regex, c->work, module, strlen(module), 0, &match, err);
        if (match.found) *out = all->item[i].value;
    }
    return status;
}

/* The rank that the configuration gives a module, and its scale. */
static ht_status module_scale(const peft_config *c, const char *module, const char *config_path, int64_t *rank,
                              double *scale, ht_error *err) {
    double r = (double)c->rank, alpha = c->alpha;
    ht_status status = pattern_value(c, &c->ranks, module, &r, err);
    if (!status) status = pattern_value(c, &c->alphas, module, &alpha, err);
    if (status) return ht_fail_in(err, status, "%s: patterns", config_path);
    if (!(r >= 1 && r <= 1 << 20) || r != floor(r))
        return ht_fail(err, HT_ERR_FORMAT, "%s: the rank of `%s` is %g, expected a whole number from 1", config_path,
                       module, r);
    *rank = (int64_t)r;
    *scale = alpha / (c->rs ? sqrt(r) : r);
    return HT_OK;
}

/* ---- names ---- */

/* Reports why a tensor that is neither A nor B is not supported. */
static ht_status refuse_peft(const char *path, const char *name, ht_error *err) {
    static const struct {
        const char *part, *why;
    } known[] = {
        {"lora_magnitude_vector", "a magnitude of DoRA, which rescales whole rows"},
        {".lora_A.bias", "a bias of A"},
        {".lora_B.bias", "a bias of B"},
        {"lora_embedding_", "LoRA on an embedding, which is not supported"},
        {"trainable_tokens", "rows that replace some of the embedding"},
        {".base_layer.weight", "a weight of the base model; save the adapter with save_embedding_layers=False"},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strstr(name, known[i].part))
            return ht_fail(err, HT_ERR_UNSUPPORTED, "%s: tensor `%s` is %s", path, name, known[i].why);
    return ht_fail(err, HT_ERR_UNSUPPORTED,
                   "%s: tensor `%s` is neither lora_A.weight nor lora_B.weight; whole modules (modules_to_save) cannot "
                   "be applied",
                   path, name);
}

/* Which expert weights a module in a layer holds. */
typedef enum expert_kind { NO_EXPERT, ONE_EXPERT, GATE_UP, DOWN } expert_kind;

/* The family whose adapters have experts in this module, if it is not the usual one; NULL: none, or any. */
static const ht_family *family_of_module(const char *module, ht_expert_naming naming) {
    if (!strcmp(ht_expert_module(naming, HT_EXPERTS_MLP), module)) return NULL;
    for (const ht_family *const *f = ht_families; *f; f++)
        if (!strcmp(ht_expert_module(naming, (*f)->experts), module)) return *f;
    return NULL;
}

/* Whether other families have experts in the same module, of which PEFT takes the inputs for the outputs, or not. */
static bool is_ambiguous(const ht_family *family) {
    const char *module = ht_expert_module(HT_EXPERTS_TRANSFORMERS, family->experts);
    for (const ht_family *const *f = ht_families; *f; f++)
        if ((*f)->swaps_expert_axes != family->swaps_expert_axes &&
            !strcmp(ht_expert_module(HT_EXPERTS_TRANSFORMERS, (*f)->experts), module))
            return true;
    return false;
}

/* Projections of an expert as slots spell them: some families' files have other names. */
static const char *expert_projection(const char *name) {
    static const char *const names[][2] = {
        {"w1", "gate_proj"}, {"w3", "up_proj"}, {"w2", "down_proj"}, {"fc1", "up_proj"}, {"fc2", "down_proj"}};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!strcmp(names[i][0], name)) return names[i][1];
    return name;
}

/* The parameter that is nested inside down_proj. */
static const char *inner_parameter(const ht_family *family) {
    return family && !ht_experts_are_gated(family->experts) ? "up_proj" : "gate_up_proj";
}

/* Parses `rest`, a module's name after the layer; writes the projection as slots spell it. */
static expert_kind peft_expert_of(const peft_config *c, const char *rest, int64_t *expert,
                                  char projection[HT_ADAPTER_SLOT], const ht_family **family) {
    static const char *const places[] = {
        "mlp.experts", "experts", "moe.experts", "block_sparse_moe.experts", "feed_forward.experts", "mixer.experts"};
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        size_t n = strlen(places[i]);
        if (strncmp(rest, places[i], n) != 0 || (rest[n] != '.' && rest[n] != '\0')) continue;
        *family = family_of_module(strcmp(places[i], "moe.experts") ? places[i] : "experts", HT_EXPERTS_TRANSFORMERS);
        const char *behind = rest + n + (rest[n] == '.');
        const bool gated = !*family || ht_experts_are_gated((*family)->experts),
                   is_down = !*behind && !(c->only_parameter && !strcmp(c->only_parameter, "gate_up_proj"));
        snprintf(projection, HT_ADAPTER_SLOT, gated || is_down ? "experts.down_proj" : "experts.up_proj");
        if (!*behind) return c->only_parameter && !strcmp(c->only_parameter, "gate_up_proj") ? GATE_UP : DOWN;
        if (!strcmp(behind, "base_layer")) return GATE_UP;
        char *end;
        *expert = strtoll(behind, &end, 10);
        if (*behind < '0' || *behind > '9' || *end != '.' || *expert >= 1 << 20) return NO_EXPERT;
        snprintf(projection, HT_ADAPTER_SLOT, "experts.%.100s", expert_projection(end + 1));
        return ONE_EXPERT;
    }
    return NO_EXPERT;
}

/* The module in the first n bytes of a tensor's name: its layer, and *rest, the name after the layer. */
static ht_status module_of(ht_adapter_reading *r, const char *name, size_t n, char module[HT_ADAPTER_NAME],
                           int64_t *layer, const char **rest, ht_error *err) {
    snprintf(module, HT_ADAPTER_NAME, "%.*s", (int)n, name);
    if (ht_adapter_module(module, layer, rest, &r->origin.text)) return HT_OK;
    return ht_fail(err, HT_ERR_UNSUPPORTED,
                   "%s: tensor `%s` is of no layer of a text model; embeddings, heads and towers of other kinds cannot "
                   "have adapters",
                   r->path, name);
}

static ht_status bad_shape(const ht_adapter_reading *r, const char *name, const int64_t dims[2], int64_t rank,
                           ht_error *err) {
    return ht_fail(err, HT_ERR_FORMAT,
                   "%s: tensor `%s` is [%lld, %lld], which does not have the rank %lld that %s states", r->path, name,
                   (long long)dims[0], (long long)dims[1], (long long)rank, r->config_path);
}

/* Adds parameters of all experts. */
static ht_status add_parameters(ht_adapter_reading *r, const ht_stored_tensor *t, const char *name, int64_t layer,
                                bool gate_up, ht_adapter_piece p, ht_error *err) {
    int64_t both = p.is_b ? t->dims[1] : t->dims[0];
    if (both % p.rank) return bad_shape(r, name, t->dims, p.rank, err);
    p.n_experts = both / p.rank;
    p.features = p.is_b ? t->dims[0] : t->dims[1];
    p.expert_stride = p.is_b ? 1 : p.rank * p.features;
    p.rank_stride = p.is_b ? p.n_experts : p.features;
    p.feature_stride = p.is_b ? both : 1;
    const ht_family *family = r->m ? r->m->config->family : r->origin.family;
    if (family && family->swaps_expert_axes) p.is_b = !p.is_b;
    if (!gate_up) return ht_adapter_add_piece(r, &p, err);
    r->halved = !family;
    return ht_adapter_add_joined(r, p, ht_adapter_alternates(family), name, layer, err);
}

/* Names of a dense weight: in slots, in mlx-lm's directories, and in those of transformers. */
typedef enum name_of { OF_SLOT, OF_MLX, OF_TRANSFORMERS } name_of;

/* The spec of a dense weight with a tensor for itself, by its name; NULL: none. */
static const ht_tensor_spec *dense_spec(const ht_family *family, const char *name, name_of which) {
    for (const ht_tensor_spec *const *table = family->layer; *table; table++)
        for (const ht_tensor_spec *p = *table; p->gguf; p++) {
            const char *own = which == OF_SLOT                              ? ht_spec_slot(p)
                              : which == OF_TRANSFORMERS && p->transformers ? p->transformers
                                                                            : p->safetensors;
            if (!p->expert && p->n_shares < 2 && !strcmp(own, name)) return p;
        }
    return NULL;
}

/* Writes the slot of a dense module: some directories' tensors have names that are no modules of transformers, though
 * of the releases' own code. `family` may be NULL: names that mean different slots in different families stay. */
static void peft_slot(const ht_family *family, const char *module, char slot[HT_ADAPTER_SLOT]) {
    const char *found = NULL;
    for (const ht_family *const *f = ht_families; *f; f++) {
        if (family && *f != family) continue;
        if (dense_spec(*f, module, OF_SLOT)) return;
        const ht_tensor_spec *p = dense_spec(*f, module, OF_TRANSFORMERS);
        if (p && found && strcmp(found, ht_spec_slot(p)) != 0) return;
        if (p) found = ht_spec_slot(p);
    }
    if (found) snprintf(slot, HT_ADAPTER_SLOT, "%.120s", found);
}

static const char *const peft_ends[] = {".lora_A.weight", ".lora_B.weight"};

static ht_status add_peft_tensor(ht_adapter_reading *r, const peft_config *c, size_t i, ht_error *err) {
    char name[HT_ADAPTER_NAME], module[HT_ADAPTER_NAME + 16], projection[HT_ADAPTER_SLOT];
    ht_stored_tensor t = ht_adapter_tensor(r, i, name);
    size_t n;
    ht_adapter_piece p = {.tensor = i};
    if (!ht_adapter_half(name, peft_ends, &p.is_b, &n)) return refuse_peft(r->path, name, err);
    ht_status status = ht_adapter_need_axes(r, &t, name, 2, err);
    if (status) return status;
    int64_t layer = 0, rank = 0;
    const char *rest;
    status = module_of(r, name, n, module, &layer, &rest, err);
    if (status) return status;
    snprintf(projection, sizeof projection, "%.120s", rest);
    const ht_family *family = NULL;
    expert_kind kind = peft_expert_of(c, rest, &p.expert, projection, &family);
    if (family && kind != ONE_EXPERT) r->origin.family = family;
    if (kind == NO_EXPERT) peft_slot(r->m ? r->m->config->family : NULL, rest, projection);
    if (!r->m && family && kind != ONE_EXPERT && is_ambiguous(family))
        return ht_fail(err, HT_ERR_ARGUMENT,
                       "%s: the axes of `%s` depend on the model, which was not given: load the adapter for its model",
                       r->path, name);
    if (!ht_adapter_slot(p.slot, layer, projection))
        return ht_fail(err, HT_ERR_FORMAT, "%s: tensor `%s` is of a module with too long a name", r->path, name);
    char *base_layer = kind == GATE_UP ? strstr(module, ".base_layer") : NULL;
    if (base_layer) *base_layer = '\0';
    if (kind == GATE_UP || kind == DOWN) {
        strcat(module, ".");
        strcat(module, kind == GATE_UP ? inner_parameter(family) : "down_proj");
    }
    const char *stated = strncmp(module, "base_model.model.", 17) ? module : module + 17;
    status = module_scale(c, stated, r->config_path, &rank, &p.scale, err);
    if (status) return status;
    p.rank = rank;
    const bool joined = kind == GATE_UP && (!family || ht_experts_are_gated(family->experts));
    if (kind == GATE_UP || kind == DOWN) return add_parameters(r, &t, name, layer, joined, p, err);
    p.n_experts = kind == ONE_EXPERT;
    p.features = t.dims[p.is_b ? 0 : 1];
    ht_adapter_lay_out(&p, p.is_b);
    return t.dims[p.is_b ? 1 : 0] == rank ? ht_adapter_add_piece(r, &p, err) : bad_shape(r, name, t.dims, rank, err);
}

ht_status ht_adapter_list_peft(ht_adapter_reading *r, ht_error *err) {
    peft_config c = {0};
    ht_status status = read_peft_config(r, &c, err);
    for (size_t i = 0; !status && i < ht_adapter_n_tensors(r); i++) status = add_peft_tensor(r, &c, i, err);
    free_config(&c);
    return status;
}

/* ---- writing ---- */

static bool is_encoder(const ht_adapter_writing *w) { return w->m && w->m->config->two_sided; }

/* The name of the list of layers (transformers 5), to which PEFT's files add `base_model.model.`. Models for embeddings
 * are those of AutoModel, without a head. */
static const char *prefix_of(const ht_adapter_writing *w) {
    static const char *const prefixes[] = {[HT_TEXT_WHOLE] = "model.layers",
                                           [HT_TEXT_LANGUAGE_MODEL] = "model.language_model.layers",
                                           [HT_TEXT_TEXT_MODEL] = "model.text_model.layers",
                                           [HT_TEXT_CAUSAL_MODEL] = "language_model.model.layers"};
    const char *own = w->m ? w->m->config->family->layers_name : NULL;
    if (is_encoder(w)) return own ? own : "layers";
    if (own) return w->a->origin.embeds ? own : "transformer.h"; /* GPT-2 */
    return w->a->origin.embeds && !w->text ? "layers" : prefixes[w->text];
}

/* Whether experts are written as parameters, which PEFT adapts as such, and not as modules that it converts. */
static bool has_parameters(const ht_adapter_writing *w) {
    return w->family && (!w->family->experts_are_modules || w->text);
}

static const char *module_of_experts(const ht_adapter_writing *w) {
    return ht_expert_module(HT_EXPERTS_TRANSFORMERS, w->family ? w->family->experts : HT_EXPERTS_MLP);
}

static ht_status put_dense(ht_adapter_writing *w, const ht_lora *l, int64_t layer, const char *rest, int64_t expert,
                           ht_error *err) {
    char name[HT_ADAPTER_NAME];
    if (expert < 0)
        snprintf(name, sizeof name, "base_model.model.%s.%lld.%s", prefix_of(w), (long long)layer, rest);
    else
        snprintf(name, sizeof name, "base_model.model.%s.%lld.mlp.experts.%lld.%s", prefix_of(w), (long long)layer,
                 (long long)expert, strchr(rest, '.') + 1);
    return ht_adapter_put(w, name, l, NULL, &(ht_adapter_layout){.ends = peft_ends, .expert = expert, .shares = 1},
                          err);
}

/* All experts' down; or gate and up. */
static ht_status put_parameter(ht_adapter_writing *w, const ht_lora *first, const ht_lora *second, int64_t layer,
                               ht_error *err) {
    const bool is_down = strstr((first ? first : second)->slot, "down_proj");
    const int64_t shares = is_down || !ht_experts_are_gated(w->family->experts) ? 1 : 2;
    char name[HT_ADAPTER_NAME];
    snprintf(name, sizeof name, "base_model.model.%s.%lld.%s%s", prefix_of(w), (long long)layer, module_of_experts(w),
             is_down ? "" : ".base_layer");
    const ht_adapter_layout how = {.ends = peft_ends,
                                   .is_fused = true,
                                   .is_swapped = w->family->swaps_expert_axes,
                                   .alternates = shares == 2 && ht_adapter_alternates(w->family),
                                   .expert = -1,
                                   .shares = shares};
    return ht_adapter_put(w, name, first, second, &how, err);
}

static ht_status put_peft_pair(ht_adapter_writing *w, const ht_lora *l, ht_error *err) {
    const char *rest;
    int64_t layer = ht_adapter_slot_layer(l->slot, &rest);
    if (!l->n_experts) return put_dense(w, l, layer, rest, -1, err);
    if (has_parameters(w)) {
        bool is_up = false;
        const ht_lora *other = ht_adapter_partner(w->a, l->slot, &is_up);
        if (other && is_up) return HT_OK; /* with its gate */
        is_up = is_up && ht_experts_are_gated(w->family->experts);
        return put_parameter(w, is_up ? NULL : l, is_up ? l : other, layer, err);
    }
    ht_status status = HT_OK;
    for (int64_t e = 0; !status && e < l->n_experts; e++) status = put_dense(w, l, layer, rest, e, err);
    return status;
}

static ht_json *number(double x) {
    return x == floor(x) && fabs(x) < 1e15 ? ht_json_integer((int64_t)x) : ht_json_real(x);
}

static bool append_once(ht_json *list, const char *text) {
    size_t i;
    ht_json *item;
    ht_json_array_foreach(list, i, item) if (!strcmp(ht_json_string_value(item), text)) return true;
    return ht_json_array_append_new(list, ht_json_string(text)) == 0;
}

/* Targets in the configuration: projections by the ends of their names, and the layers that have any. */
typedef struct targets {
    ht_json *modules, *parameters, *layers;
} targets;

/* In ascending order. */
static bool add_layer(ht_json *layers, int64_t layer) {
    const size_t n = ht_json_array_size(layers);
    size_t k = 0;
    while (k < n && ht_json_integer_value(ht_json_array_get(layers, k)) < layer) k++;
    if (k < n && ht_json_integer_value(ht_json_array_get(layers, k)) == layer) return true;
    return ht_json_array_insert_new(layers, k, ht_json_integer(layer)) == 0;
}

/* Whether PEFT must adapt a dense projection as a parameter, in a model with experts. Routers are parameters there.
 * PEFT converts modules with the names that experts' modules had before transformers 5, also those of a shared expert.
 * */
static bool is_parameter(const ht_adapter_writing *w, const ht_lora *l, const char *leaf) {
    static const char *const taken[] = {"gate", "gate_proj", "up_proj", "down_proj"};
    if (!has_parameters(w) || !w->family->defaults.n_experts) return false;
    const ht_projection *p = w->m ? ht_adapter_base_find(w->m, l->slot) : NULL;
    bool is_taken = p && p->is_router;
    for (int i = 0; i < 4; i++) is_taken = is_taken || !strcmp(leaf, taken[i]);
    return is_taken;
}

static bool add_target(const ht_adapter_writing *w, const ht_lora *l, targets *t) {
    const char *rest, *leaf = strrchr(l->slot, '.') + 1;
    char name[HT_ADAPTER_NAME];
    int64_t layer = ht_adapter_slot_layer(l->slot, &rest);
    if (l->n_experts && has_parameters(w)) {
        snprintf(name, sizeof name, "%s.%s", module_of_experts(w),
                 strcmp(leaf, "down_proj") ? inner_parameter(w->family) : "down_proj");
        return append_once(t->parameters, name);
    }
    if (is_parameter(w, l, leaf)) {
        snprintf(name, sizeof name, "%s.%lld.%s.weight", prefix_of(w), (long long)layer, rest);
        return append_once(t->parameters, name);
    }
    /* A pooler has names of encoders' layers. */
    if (!w->text) return append_once(t->modules, is_encoder(w) ? rest : leaf) && add_layer(t->layers, layer);
    /* Towers of a multimodal model have projections of the same names. */
    const char *prefix = prefix_of(w);
    if (!strncmp(prefix, "model.", strlen("model."))) prefix += strlen("model.");
    snprintf(name, sizeof name, "%s.%lld.%s", prefix, (long long)layer, rest);
    return ht_json_array_append_new(t->modules, ht_json_string(name)) == 0;
}

/* gate_up_proj holds two pairs, so it has twice the rank, with the same scale. */
static bool add_parameters_to(ht_json *root, const ht_adapter_writing *w, const ht_json *parameters) {
    if (!ht_experts_are_gated(w->family->experts))
        return ht_json_object_set_new(root, "target_parameters", ht_json_incref(parameters)) == 0;
    ht_json *more =
        ht_json_pack("{sO s{sI} s{so}}", "target_parameters", parameters, "rank_pattern", "gate_up_proj",
                     (int64_t)(2 * w->rank), "alpha_pattern", "gate_up_proj", number(2 * w->scale * (double)w->rank));
    bool good = more && ht_json_object_update(root, more) == 0;
    ht_json_decref(more);
    return good;
}

static ht_json *make_peft_config(const ht_adapter_writing *w) {
    targets t = {ht_json_new_array(), ht_json_new_array(), ht_json_new_array()};
    bool good = t.modules && t.parameters && t.layers;
    for (int64_t i = 0; good && i < w->a->n; i++) good = add_target(w, &w->a->lora[i], &t);
    /* layers_to_transform may lack layers of parameters, and full module names contain the layer already. */
    const bool any = ht_json_array_size(t.parameters) > 0,
               all_layers = w->m && (int64_t)ht_json_array_size(t.layers) == w->m->config->n_layers;
    ht_json *root =
        good ? ht_json_pack("{ss ss sI so sO so ss sb sf sb so}", "peft_type", "LORA", "task_type",
                            is_encoder(w) || w->a->origin.embeds ? "FEATURE_EXTRACTION" : "CAUSAL_LM", "r",
                            (int64_t)w->rank, "lora_alpha", number(w->scale * (double)w->rank), "target_modules",
                            t.modules, "base_model_name_or_path", w->base ? ht_json_string(w->base) : ht_json_null(),
                            "bias", "none", "fan_in_fan_out", 0, "lora_dropout", 0.0, "inference_mode", 1,
                            "layers_to_transform",
                            any || w->text || all_layers ? ht_json_null() : ht_json_incref(t.layers))
             : NULL;
    if (root && any && !add_parameters_to(root, w, t.parameters)) {
        ht_json_decref(root);
        root = NULL;
    }
    ht_json_decref(t.modules);
    ht_json_decref(t.parameters);
    ht_json_decref(t.layers);
    return root;
}

ht_status ht_adapter_write_peft(ht_adapter_writing *w, ht_error *err) {
    ht_status status = HT_OK;
    for (int64_t i = 0; !status && i < w->a->n; i++) status = put_peft_pair(w, &w->a->lora[i], err);
    if (!status) status = ht_adapter_write_safetensors(w, "adapter_model.safetensors", err);
    return status ? status : ht_adapter_write_json(w, "adapter_config.json", make_peft_config(w), err);
}

/* mlx-lm: adapters.safetensors. A is [in, rank], B [rank, out]; for experts [experts, rank, in] and [experts, out,
 * rank]. Its scale is not divided by the rank. Source: mlx_lm/tuner/lora.py, utils.py. */

typedef struct mlx_config {
    int64_t rank;
    double scale;
} mlx_config;

static ht_status read_mlx_config(ht_adapter_reading *reading, mlx_config *c, ht_error *err) {
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
    status = r.status ? r.status : ht_adapter_keep(&reading->origin.base, base, SIZE_MAX, err);
    ht_json_decref(root);
    return status;
}

static ht_status refuse_mlx(const char *path, const char *name, ht_error *err) {
    size_t n = strlen(name);
    if (n > 2 && !strcmp(name + n - 2, ".m"))
        return ht_fail(err, HT_ERR_UNSUPPORTED, "%s: tensor `%s` is a magnitude of DoRA, which rescales whole rows",
                       path, name);
    return ht_fail(err, HT_ERR_UNSUPPORTED, "%s: tensor `%s` is neither lora_a nor lora_b of a module", path, name);
}

/* Writes the slot of a dense weight by its name in mlx-lm. False if it depends on the family, which is NULL. */
static bool mlx_slot(const ht_family *family, const char *name, char slot[HT_ADAPTER_SLOT]) {
    const char *found = NULL;
    for (const ht_family *const *f = ht_families; *f; f++) {
        const ht_tensor_spec *p = family && *f != family ? NULL : dense_spec(*f, name, OF_MLX);
        if (p && found && strcmp(found, ht_spec_slot(p)) != 0) return false;
        if (p) found = ht_spec_slot(p);
    }
    snprintf(slot, HT_ADAPTER_SLOT, "%.120s", found ? found : name);
    return true;
}

/* Experts of a layer. Writes the projection as slots spell it. */
static bool mlx_expert_of(const char *rest, char projection[HT_ADAPTER_SLOT], const ht_family **family) {
    static const char *const places[] = {"mlp.switch_mlp",  "experts.switch_glu",   "block_sparse_moe.switch_mlp",
                                         "mlp.experts",     "feed_forward.experts", "feed_forward.switch_mlp",
                                         "mixer.switch_mlp"};
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        size_t n = strlen(places[i]);
        if (strncmp(rest, places[i], n) != 0 || rest[n] != '.') continue;
        if (i) *family = family_of_module(places[i], HT_EXPERTS_MLX);
        snprintf(projection, HT_ADAPTER_SLOT, "experts.%.100s", expert_projection(rest + n + 1));
        return true;
    }
    snprintf(projection, HT_ADAPTER_SLOT, "%.120s", rest);
    return false;
}

static const char *const mlx_ends[] = {".lora_a", ".lora_b"};

static ht_status add_mlx_tensor(ht_adapter_reading *r, const mlx_config *c, size_t i, ht_error *err) {
    char name[HT_ADAPTER_NAME], module[HT_ADAPTER_NAME], projection[HT_ADAPTER_SLOT];
    ht_stored_tensor t = ht_adapter_tensor(r, i, name);
    size_t n;
    ht_adapter_piece p = {.tensor = i, .scale = c->scale, .rank = c->rank};
    if (!ht_adapter_half(name, mlx_ends, &p.is_b, &n)) return refuse_mlx(r->path, name, err);
    int64_t layer = 0;
    const char *rest;
    ht_status status = module_of(r, name, n, module, &layer, &rest, err);
    if (status) return status;
    bool experts = mlx_expert_of(rest, projection, &r->origin.family);
    if (!experts && !mlx_slot(r->m ? r->m->config->family : NULL, rest, projection))
        return ht_fail(err, HT_ERR_ARGUMENT,
                       "%s: what `%s` adapts depends on the model, which was not given: load the adapter for its model",
                       r->path, name);
    if (!ht_adapter_slot(p.slot, layer, projection))
        return ht_fail(err, HT_ERR_FORMAT, "%s: tensor `%s` is of a module with too long a name", r->path, name);
    status = ht_adapter_need_axes(r, &t, name, experts ? 3 : 2, err);
    if (status) return status;
    /* [in, rank] and [rank, out]; for experts [n, rank, in] and [n, out, rank], with the last two axes swapped. */
    const int64_t *dims = t.dims + experts;
    bool rank_last = experts == p.is_b;
    p.features = dims[!rank_last];
    p.n_experts = experts ? t.dims[0] : 0;
    ht_adapter_lay_out(&p, rank_last);
    return dims[rank_last] == c->rank ? ht_adapter_add_piece(r, &p, err) : bad_shape(r, name, dims, c->rank, err);
}

ht_status ht_adapter_list_mlx(ht_adapter_reading *r, ht_error *err) {
    mlx_config c = {0};
    ht_status status = read_mlx_config(r, &c, err);
    for (size_t i = 0; !status && i < ht_adapter_n_tensors(r); i++) status = add_mlx_tensor(r, &c, i, err);
    return status;
}

/* ---- writing ---- */

/* The name in mlx-lm of an expert's projection. */
static const char *mlx_projection(const ht_family *family, const char *name) {
    if (!family || ht_experts_are_gated(family->experts)) return name;
    return strcmp(name, "down_proj") ? "fc1" : "fc2";
}

/* A projection's name in a block of mlx-lm. */
static void block_name(const ht_adapter_writing *w, const ht_lora *l, const char *rest, char out[HT_ADAPTER_SLOT]) {
    const ht_tensor_spec *dense = l->n_experts || !w->family ? NULL : dense_spec(w->family, rest, OF_SLOT);
    if (!l->n_experts) /* a share of a matrix has no module of mlx-lm */
        snprintf(out, HT_ADAPTER_SLOT, "%s", dense && !ht_spec_is_shared_by_all(dense) ? dense->safetensors : rest);
    else
        snprintf(out, HT_ADAPTER_SLOT, "%s.%.100s",
                 ht_expert_module(HT_EXPERTS_MLX, w->family ? w->family->experts : HT_EXPERTS_MLP),
                 mlx_projection(w->family, strchr(rest, '.') + 1));
}

static ht_status put_mlx_pair(ht_adapter_writing *w, const ht_lora *l, ht_error *err) {
    char block[HT_ADAPTER_SLOT], name[HT_ADAPTER_NAME];
    const char *rest;
    int64_t layer = ht_adapter_slot_layer(l->slot, &rest);
    block_name(w, l, rest, block);
    snprintf(name, sizeof name, "%s%s%s.%lld.%s", w->text ? "language_model." : "",
             w->family && w->family->prefix ? w->family->prefix : "model.",
             w->family && w->family->layers_name ? w->family->layers_name : "layers", (long long)layer, block);
    return ht_adapter_put(
        w, name, l, NULL,
        &(ht_adapter_layout){.ends = mlx_ends, .a_rank_last = !l->n_experts, .expert = -1, .shares = 1}, err);
}

/* mlx-lm adapts `keys` in the last num_layers blocks (-1: all); modules without a tensor stay unchanged. */
static ht_json *make_mlx_config(const ht_adapter_writing *w) {
    ht_json *keys = ht_json_new_array();
    int64_t first = INT64_MAX;
    bool good = keys != NULL;
    for (int64_t i = 0; good && i < w->a->n; i++) {
        char block[HT_ADAPTER_SLOT];
        const char *rest;
        int64_t layer = ht_adapter_slot_layer(w->a->lora[i].slot, &rest);
        if (layer < first) first = layer;
        block_name(w, &w->a->lora[i], rest, block);
        good = append_once(keys, block);
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
    for (int64_t i = 0; !status && i < w->a->n; i++) status = put_mlx_pair(w, &w->a->lora[i], err);
    if (!status) status = ht_adapter_write_safetensors(w, "adapters.safetensors", err);
    return status ? status : ht_adapter_write_json(w, "adapter_config.json", make_mlx_config(w), err);
}
