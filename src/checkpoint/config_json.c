/* Configuration from config.json and generation_config.json, in all spellings that checkpoints use. */
#include "base/checked.h"
#include "base/error.h"
#include "base/plural.h"
#include "checkpoint/family.h"
#include "checkpoint/scheme.h"
#include "formats/json.h"
#include "tokenizer/vocab.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const char config_file[] = "config.json", generation_file[] = "generation_config.json";

/* Reads a token id, saturating to INT64_MAX or INT64_MIN. */
static bool read_id(const ht_json *v, int64_t *id) {
    if (ht_json_whole(v, id)) return true;
    const double real = ht_json_real_value(v);
    *id = real > 0 ? INT64_MAX : INT64_MIN;
    return fabs(real) > 0x1p53;
}

/* eos_token_id: a number or a list of numbers. */
static void read_eos(ht_config *c, ht_json_reader *r, const ht_json *object) {
    const char *key = "eos_token_id";
    const ht_json *v = ht_json_object_get(object, key);
    if (!v || ht_json_is_null(v)) return;
    size_t n = ht_json_is_array(v) ? ht_json_array_size(v) : 1;
    for (size_t i = 0; i < n; i++) {
        int64_t id;
        if (!read_id(ht_json_is_array(v) ? ht_json_array_get(v, i) : v, &id)) {
            ht_json_fail(r, HT_ERR_FORMAT, "`%s` holds something that is no token id", key);
            return;
        }
        if (id < 0 || id >= c->vocab) ht_vocab_warn_outside(r->file, key, id, c->vocab);
        if (!ht_config_add_eos(c, id))
            ht_json_fail(r, HT_ERR_UNSUPPORTED, "`%s` lists more than %d ids", key, HT_MAX_EOS);
    }
}

/* partial_rotary_factor: the share of a head's dimensions that is rotated, or of its pairs in proportional RoPE. */
static void read_partial_rotary(ht_rope_spec *rope, ht_json_reader *r, const ht_json *object, int64_t head_dim) {
    double share;
    if (!ht_json_f64(r, object, "partial_rotary_factor", &share)) return;
    rope->share = share;
    if (rope->kind == HT_ROPE_PROPORTIONAL) return;
    rope->dims = share > 0 && share < 1 ? (int64_t)((double)head_dim * share) : 0;
    if (share != 1 && rope->dims < 2)
        ht_json_fail(r, HT_ERR_FORMAT, "`partial_rotary_factor` is %g, expected a share that rotates a part of a head",
                     share);
}

/* Longrope's divisors for one length. */
static void read_divisors(ht_rope_spec *rope, ht_rope_length length, ht_json_reader *r, const ht_json *o) {
    static const char *const keys[] = {"short_factor", "long_factor"};
    const ht_json *list = ht_json_array(r, o, keys[length]);
    const size_t n = ht_json_array_size(list);
    if (!list) ht_json_missing(r, keys[length], "the divisors of RoPE's frequencies");
    if (n < 1 || n > HT_ROPE_MOST_DIVISORS || (length && n != (size_t)rope->n_divisors)) {
        ht_json_fail(r, HT_ERR_FORMAT, "`%s` lists %zu numbers, expected %d", keys[length], n,
                     length ? (int)rope->n_divisors : HT_ROPE_MOST_DIVISORS);
        return;
    }
    rope->n_divisors = (int32_t)n;
    for (size_t i = 0; i < n; i++) rope->divisor[length][i] = (float)ht_json_number_value(ht_json_array_get(list, i));
}

/* Longrope: two lists of divisors, and their factors on cos and sin, which some files state for each. */
static void read_longrope(ht_rope_spec *rope, ht_json_reader *r, const ht_json *o) {
    static const char *const factors[] = {"short_mscale", "long_mscale"};
    for (int k = 0; k < HT_ROPE_LENGTHS; k++) {
        read_divisors(rope, (ht_rope_length)k, r, o);
        if (!ht_json_f64(r, o, "attention_factor", &rope->length_factor[k]))
            ht_json_f64(r, o, factors[k], &rope->length_factor[k]);
    }
}

/* Reads one RoPE object: {"rope_type" or "type", "rope_theta", "factor", ...}. */
static void read_rope(ht_rope_spec *rope, ht_json_reader *r, const ht_json *o, const ht_config *c) {
    const int64_t context = c->context;
    const char *kind = "default";
    double alpha;
    if (!ht_json_str(r, o, "rope_type", &kind)) ht_json_str(r, o, "type", &kind);
    ht_json_f64(r, o, "rope_theta", &rope->theta);
    if (!strcmp(kind, "dynamic") && ht_json_f64(r, o, "alpha", &alpha)) { /* Hunyuan: a fixed change of theta */
        kind = "default";
        if (c->head_dim > 2) rope->theta *= pow(alpha, (double)c->head_dim / (double)(c->head_dim - 2));
    }
    if (!strcmp(kind, "yarn") && ht_json_object_get(o, "long_factor")) kind = "longrope"; /* the first Phi-3 files */
    if (!ht_rope_kind_from_name(kind, &rope->kind))
        ht_json_fail(r, HT_ERR_UNSUPPORTED,
                     "RoPE scaling `%.40s` is not supported; default, linear, llama3, yarn, longrope and proportional "
                     "are",
                     kind);
    if (rope->kind == HT_ROPE_LONG) read_longrope(rope, r, o);
    read_partial_rotary(rope, r, o, c->head_dim);
    rope->original_context = (double)context;
    ht_json_f64(r, o, "original_max_position_embeddings", &rope->original_context);
    bool has_factor = ht_json_f64(r, o, "factor", &rope->factor);
    if (rope->kind == HT_ROPE_YARN && !has_factor && rope->original_context > 0)
        rope->factor = (double)context / rope->original_context;
    ht_json_f64(r, o, "low_freq_factor", &rope->low_freq_factor);
    ht_json_f64(r, o, "high_freq_factor", &rope->high_freq_factor);
    rope->beta_fast = 32;
    rope->beta_slow = 1;
    ht_json_f64(r, o, "beta_fast", &rope->beta_fast);
    ht_json_f64(r, o, "beta_slow", &rope->beta_slow);
    ht_json_f64(r, o, "attention_factor", &rope->attention_factor);
    ht_json_f64(r, o, "mscale", &rope->mscale);
    ht_json_f64(r, o, "mscale_all_dim", &rope->mscale_all_dim);
    bool truncate = true;
    ht_json_bool(r, o, "truncate", &truncate);
    rope->no_truncate = !truncate;
}

/* Derives the factors of longrope that the file does not state from the extension of the context. */
static void finish_longrope(ht_rope_spec *rope, const ht_config *c) {
    const double extension = rope->factor > 0 ? rope->factor : (double)c->context / rope->original_context;
    for (int k = 0; k < HT_ROPE_LENGTHS && rope->kind == HT_ROPE_LONG; k++)
        if (rope->length_factor[k] == 0) rope->length_factor[k] = ht_rope_long_magnitude(rope, extension);
}

/* Reads rope_theta + rope_scaling, or the newer rope_parameters (flat, or one object per layer type). Scaling without a
 * layer type applies to full-attention layers only. rope_scaling overrides a flat rope_parameters;
 * original_max_position_embeddings outside rope_parameters overrides the one inside. */
static void read_ropes(ht_config *c, ht_json_reader *r, const ht_json *o) {
    ht_json_f64(r, o, "rope_theta", &c->rope.theta);
    ht_json_f64(r, o, "rope_local_base_freq", &c->local_rope.theta);
    read_partial_rotary(&c->rope, r, o, c->head_dim);
    const ht_json *parameters = ht_json_object(r, o, "rope_parameters");
    const ht_json *full = ht_json_object(r, parameters, "full_attention");
    const ht_json *local = ht_json_object(r, parameters, "sliding_attention");
    if (full) read_rope(&c->rope, r, full, c);
    if (local) read_rope(&c->local_rope, r, local, c);
    if (local) c->has_local_rope = true;
    const ht_json *scaling = ht_json_object(r, o, "rope_scaling");
    if (scaling && ht_json_object_size(scaling))
        read_rope(&c->rope, r, scaling, c);
    else if (parameters && !full && !local)
        read_rope(&c->rope, r, parameters, c);
    if (!full) ht_json_f64(r, o, "original_max_position_embeddings", &c->rope.original_context);
    finish_longrope(&c->rope, c);
    finish_longrope(&c->local_rope, c);
}

/* The family's own fields. A null is 0: none. */
static void read_fields(ht_config *c, ht_json_reader *r, const ht_json *o) {
    for (const ht_config_field *f = c->family->fields; f && (f->json || f->gguf); f++) {
        double value = f->fallback;
        bool is_set = f->fallback != 0;
        int64_t whole;
        if (!f->json) continue;
        if (ht_json_is_null(ht_json_object_get(o, f->json)))
            value = 0;
        else if (f->type == HT_FIELD_BOOL)
            value = ht_json_bool(r, o, f->json, &is_set) ? is_set : f->fallback;
        else if (f->type == HT_FIELD_I64)
            value = ht_json_i64(r, o, f->json, &whole) ? (double)whole : f->fallback;
        else
            ht_json_f64(r, o, f->json, &value);
        ht_config_set_field(c, f, value);
    }
}

/* The first of several spellings in the file: a number, or a list of equal numbers for all layers. */
static bool read_first(ht_json_reader *r, const ht_json *o, const char *const *keys, int64_t *out) {
    for (; *keys; keys++) {
        const ht_json *list = ht_json_object_get(o, *keys);
        if (!ht_json_is_array(list)) {
            if (ht_json_i64(r, o, *keys, out)) return true;
            continue;
        }
        int64_t each = 0;
        for (size_t i = 0; i < ht_json_array_size(list); i++)
            if (!ht_json_whole(ht_json_array_get(list, i), i ? &each : out) || (i && each != *out))
                ht_json_fail(r, HT_ERR_UNSUPPORTED, "`%s` differs between layers; one value for all is supported",
                             *keys);
        return true;
    }
    return false;
}

static void read_expert_layers(ht_config *c, ht_json_reader *r, const ht_json *o) {
    int64_t n_dense = c->family->defaults.n_dense;
    const ht_json *types = ht_json_array(r, o, "mlp_layer_types");
    if (!ht_json_i64(r, o, "first_k_dense_replace", &n_dense)) ht_json_i64(r, o, "num_dense_layers", &n_dense);
    for (int64_t i = 0; i < c->n_layers; i++) {
        const char *type = ht_json_string_value(ht_json_array_get(types, (size_t)i));
        c->layer[i].has_experts = c->n_experts > 0 && (types ? type && !strcmp(type, "sparse") : i >= n_dense);
        if (c->layer[i].has_experts) c->layer[i].feed_forward = 0;
    }
}

/* Mixtures of experts, in the spellings of all families; only those that have experts by default. */
static void read_experts(ht_config *c, ht_json_reader *r, const ht_json *o) {
    static const char *const n_experts[] = {"num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts",
                                            NULL},
                             *const used[] = {"num_experts_per_tok",
                                              "num_experts_per_token",
                                              "experts_per_token",
                                              "moe_k",
                                              "moe_topk",
                                              NULL},
                             *const sizes[] = {"moe_intermediate_size", NULL},
                             *const shared[] = {"n_shared_experts", "num_shared_experts", "num_shared_expert",
                                                "moe_num_shared_experts", NULL};
    const ht_config_defaults *d = &c->family->defaults;
    double scale = 1;
    int64_t n_shared = d->n_shared;
    if (!d->n_experts) return;
    c->n_experts = d->n_experts;
    c->experts_used = d->experts_used;
    c->expert_feed_forward = d->expert_feed_forward ? d->expert_feed_forward : c->feed_forward;
    read_first(r, o, n_experts, &c->n_experts);
    read_first(r, o, used, &c->experts_used);
    read_first(r, o, sizes, &c->expert_feed_forward);
    read_first(r, o, shared, &n_shared);
    if (n_shared < 0 || n_shared > 1 << 10 || !ht_mul_i64(n_shared, c->expert_feed_forward, &c->shared_feed_forward))
        ht_json_fail(r, HT_ERR_FORMAT, "%lld shared experts of %lld, expected at most 1024", (long long)n_shared,
                     (long long)c->expert_feed_forward);
    ht_json_i64(r, o, "shared_expert_intermediate_size", &c->shared_feed_forward);
    ht_json_bool(r, o, "norm_topk_prob", &c->routing.normalized);
    ht_json_bool(r, o, "moe_renormalize", &c->routing.normalized);
    if (!ht_json_i64(r, o, "n_group", &c->routing.groups)) ht_json_i64(r, o, "num_expert_group", &c->routing.groups);
    ht_json_i64(r, o, "topk_group", &c->routing.groups_used);
    ht_json_bool(r, o, "route_norm", &c->routing.normalized);
    if (ht_json_f64(r, o, "routed_scaling_factor", &scale) || ht_json_f64(r, o, "router_scaling_factor", &scale) ||
        ht_json_f64(r, o, "route_scale", &scale))
        c->routing.scale = (float)scale;
    read_expert_layers(c, r, o);
}

/* Whether a type of layer_types, or of layers_block_type, is a recurrent layer. */
static bool is_recurrent_type(const char *type) {
    static const char *const names[] = {"conv", "linear_attention", "mamba"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!strcmp(type, names[i])) return true;
    return false;
}

/* Reads layer_types: sliding or full attention, or a recurrence, per layer. */
static void read_layer_types(ht_config *c, ht_json_reader *r, const ht_json *o) {
    const ht_json *list = c->family->one_block ? NULL : ht_json_array(r, o, "layer_types");
    if (!list) return;
    if ((int64_t)ht_json_array_size(list) != c->n_layers) {
        ht_json_fail(r, HT_ERR_FORMAT, "`layer_types` lists %zu layer%s, `num_hidden_layers` says %lld",
                     ht_json_array_size(list), ht_plural(ht_json_array_size(list)), (long long)c->n_layers);
        return;
    }
    for (int64_t i = 0; i < c->n_layers; i++) {
        const char *type = ht_json_string_value(ht_json_array_get(list, (size_t)i));
        const bool chunked = type && !strcmp(type, "chunked_attention");
        if (c->recurrence.kind && type && is_recurrent_type(type)) {
            ht_config_make_recurrent(c, i);
            continue;
        }
        c->layer[i].chunked = chunked;
        c->layer[i].slides = chunked || (type && !strcmp(type, "sliding_attention"));
        if (!c->layer[i].slides && (!type || (strcmp(type, "full_attention") && strcmp(type, "attention"))))
            ht_json_fail(r, HT_ERR_UNSUPPORTED,
                         "layer %lld is of type `%.40s`, expected full_attention, sliding_attention or "
                         "chunked_attention%s",
                         (long long)i, type ? type : "?",
                         c->recurrence.kind ? ", or conv, linear_attention or mamba" : "");
    }
}

static const ht_family *find_family(ht_json_reader *r, const ht_json *text, const ht_json *root,
                                    const ht_config_hints *hints) {
    const char *type = NULL;
    if (!ht_json_str(r, text, "model_type", &type) && !ht_json_str(r, root, "model_type", &type)) {
        if (!hints->has_tensors || hints->has_more_norms)
            ht_json_missing(r, "model_type", "the name of an architecture");
        type = hints->has_q_norm ? "qwen3" : hints->has_q_bias ? "qwen2" : "llama";
    }
    if (r->status) return NULL;
    const ht_family *family = ht_family_of_model_type(type);
    if (!family) r->status = ht_family_unknown(r->file, type, r->err);
    return family;
}

/* Reads a size by its usual key, or by that of GPT-2. */
static void read_size(ht_json_reader *r, const ht_json *o, const char *key, const char *gpt2_key, int64_t *out) {
    if (!ht_json_i64(r, o, key, out)) ht_json_i64(r, o, gpt2_key, out);
}

/* intermediate_size as a list: the feed-forward size of every layer. */
static void read_widths(ht_config *c, ht_json_reader *r, const ht_json *o) {
    const char *key = "intermediate_size";
    const ht_json *list = ht_json_object_get(o, key);
    if (!ht_json_is_array(list)) return;
    bool good = (int64_t)ht_json_array_size(list) == c->n_layers;
    for (int64_t i = 0; good && i < c->n_layers; i++)
        good = ht_json_whole(ht_json_array_get(list, (size_t)i), &c->layer[i].feed_forward);
    if (!good)
        ht_json_fail(r, HT_ERR_FORMAT, "`%s` is no list of a size for each of %lld layers", key,
                     (long long)c->n_layers);
    c->feed_forward = c->layer[0].feed_forward;
}

static void read_sizes(ht_config *c, ht_json_reader *r, const ht_json *o, const ht_config_hints *hints) {
    const ht_config_defaults *d = &c->family->defaults;
    c->n_layers = d->n_layers;
    c->hidden = d->hidden;
    c->n_heads = d->n_heads;
    c->feed_forward = d->feed_forward;
    c->vocab = d->vocab;
    c->context = d->context;
    c->head_dim = d->head_dim;
    /* transformers 5 counts Nemotron's layers by their list. */
    if (!ht_json_object_get(o, "num_hidden_layers") && ht_json_object_get(o, "layers_block_type"))
        c->n_layers = (int64_t)ht_json_array_size(ht_json_array(r, o, "layers_block_type"));
    read_size(r, o, "num_hidden_layers", "n_layer", &c->n_layers);
    read_size(r, o, "hidden_size", "n_embd", &c->hidden);
    read_size(r, o, "num_attention_heads", "n_head", &c->n_heads);
    if (!ht_json_is_array(ht_json_object_get(o, "intermediate_size")))
        read_size(r, o, "intermediate_size", "n_inner", &c->feed_forward);
    ht_json_i64(r, o, "vocab_size", &c->vocab);
    read_size(r, o, "max_position_embeddings", "n_positions", &c->context);
    if (d->feed_forward == 0 && c->feed_forward == 0 && c->hidden > 0 && c->hidden <= INT32_MAX)
        c->feed_forward = 4 * c->hidden;
    /* Absent: the configuration class's default; null: n_heads. */
    bool is_null = ht_json_is_null(ht_json_object_get(o, "num_key_value_heads"));
    c->n_kv_heads = d->n_kv_heads && !is_null ? d->n_kv_heads : c->n_heads;
    ht_json_i64(r, o, "num_key_value_heads", &c->n_kv_heads);
    bool from_tensors = hints->has_tensors && hints->q_rows > 0;
    if (!ht_json_i64(r, o, "head_dim", &c->head_dim) && (d->head_dim == 0 || from_tensors) && c->n_heads > 0) {
        int64_t rows = from_tensors ? hints->q_rows : c->hidden;
        if (rows % c->n_heads)
            ht_json_fail(
                r, HT_ERR_FORMAT,
                "%lld values cannot be cut into %lld heads (`num_attention_heads`), and there is no `head_dim`",
                (long long)rows, (long long)c->n_heads);
        c->head_dim = rows / c->n_heads;
    }
    /* Checked before the rest, as the code below indexes layers. */
    if (c->n_layers < 1 || c->n_layers > HT_MAX_LAYERS)
        ht_json_fail(r, HT_ERR_FORMAT, "`num_hidden_layers` is %lld, expected 1 to %d", (long long)c->n_layers,
                     HT_MAX_LAYERS);
    else {
        ht_config_fill_layers(c);
        read_widths(c, r, o);
    }
}

static void read_activation(ht_config *c, ht_json_reader *r, const ht_json *o) {
    const ht_config_defaults *d = &c->family->defaults;
    const char *name = d->activation;
    ht_json_str(r, o, d->activation_field, &name);
    c->silu = d->may_have_silu && !strcmp(name, "silu");
    if (!c->silu && strcmp(name, d->activation))
        ht_json_fail(r, HT_ERR_UNSUPPORTED, "`%s` is `%.40s`, but %s models are computed with %s", d->activation_field,
                     name, c->family->architecture, d->activation);
}

/* Rejects bidirectional attention in families of decoders. */
static void check_causal(const ht_config *c, ht_json_reader *r, const ht_json *o) {
    bool causal = true;
    ht_json_bool(r, o, "is_causal", &causal);
    if (!causal && !c->two_sided)
        ht_json_fail(r, HT_ERR_UNSUPPORTED, "`is_causal` is false: attention in both directions is not supported");
}

/* Rejects a sliding window in families with a recurrence, which compute without one. */
static void check_window(const ht_config *c, ht_json_reader *r, const ht_json *o) {
    const ht_config_field *field = ht_config_field_of(c->family, offsetof(ht_config, window));
    int64_t window = 0;
    bool is_used = true;
    if (!c->family->recurrence || (field && field->json)) return;
    ht_json_i64(r, o, "sliding_window", &window);
    ht_json_bool(r, o, "use_sliding_window", &is_used);
    if (window > 0 && is_used)
        ht_json_fail(r, HT_ERR_UNSUPPORTED, "`sliding_window` is %lld; %s models without a window are supported",
                     (long long)window, c->family->architecture);
}

/* mlx-lm multiplies weights by their factors when it converts, except k by its own factor and v. */
static void fold_as_mlx(ht_config *c, ht_json_reader *r) {
    const float of_key = c->multipliers.key;
    if (c->multipliers.attention_in != 1)
        ht_json_fail(r, HT_ERR_UNSUPPORTED, "`attention_in_multiplier` is %g; weights that mlx-lm has converted need 1",
                     (double)c->multipliers.attention_in);
    ht_multipliers_clear(&c->multipliers);
    c->multipliers.key = of_key;
    c->logit_scale = c->tied_head ? c->logit_scale / c->embedding_scale : 1;
    c->embedding_scale = 1;
}

/* `o` is the text model's object: the root, or its text_config. */
static void read_model(ht_config *c, ht_json_reader *r, const ht_json *o, const ht_json *root,
                       const ht_config_hints *hints) {
    const ht_config_defaults *d = &c->family->defaults;
    read_sizes(c, r, o, hints);
    if (r->status) return;
    double eps = d->norm_eps;
    ht_json_f64(r, o, d->norm_eps_field ? d->norm_eps_field : "rms_norm_eps", &eps);
    c->norm_eps = (float)eps;
    ht_config_begin(c);
    c->is_of_mlx = hints->has_tensors && hints->is_of_mlx;
    if (c->two_sided) c->n_labels = hints->n_labels;
    if (c->is_of_mlx && c->family->mlx_adds_norm_offset) c->norm_offset = 0;
    c->attention_scale = c->head_dim > 0 ? (float)(1 / sqrt((double)c->head_dim)) : 0;
    bool tied = d->tied_head;
    /* LFM2's spelling precedes the usual one. */
    static const char *const ties[] = {"tie_embedding", "tie_word_embeddings"};
    for (int i = 0; i < 4 && !ht_json_bool(r, i % 2 ? root : o, ties[i / 2], &tied);) i++;
    c->tied_head = tied || (hints->has_tensors && !hints->has_head);
    if (ht_json_bool(r, o, "attention_bias", &c->q_bias)) c->out_bias = c->q_bias;
    ht_json_bool(r, o, "mlp_bias", &c->mlp_bias);
    c->rope.theta = d->rope_theta;
    c->local_rope.theta = d->local_rope_theta > 0 ? d->local_rope_theta : d->rope_theta;
    if (d->rotated_share > 0) c->rope.dims = (int64_t)((double)c->head_dim * d->rotated_share);
    read_activation(c, r, o);
    check_causal(c, r, o);
    check_window(c, r, o);
    if (o != root) check_causal(c, r, root);
    read_experts(c, r, o);
    read_fields(c, r, o);
    if (c->family->slides_everywhere) ht_config_slide_by_pattern(c, c->n_layers + 1);
    if (c->family->read_json) c->family->read_json(c, r, o);
    if (hints->has_tensors && hints->has_gate) c->fused_gate_up = false;
    if (c->is_of_mlx && c->family->multiplier) fold_as_mlx(c, r);
    read_ropes(c, r, o);
    read_layer_types(c, r, o);
    if (c->family->read_json_layers) c->family->read_json_layers(c, r, o);
    ht_config_end(c);
    read_eos(c, r, o);
    if (o != root) read_eos(c, r, root);
    const char *name = "";
    ht_json_str(r, root, "_name_or_path", &name);
    snprintf(c->name, sizeof c->name, "%s", name);
}

ht_status ht_config_from_json(ht_json_text config, ht_json_text generation, const ht_config_hints *hints,
                              ht_config *out, ht_error *err) {
    *out = (ht_config){.pooling = ""};
    ht_json *root = NULL;
    ht_status status = ht_json_parse(config.data, config.size, config_file, &root, err);
    if (status) return status;
    ht_json_reader r = {.file = config_file, .err = err};
    ht_quantized_read(&r, root); /* refuses unsupported methods */
    const ht_json *text = ht_json_object(&r, root, "text_config");
    if (!text) text = root;
    out->family = find_family(&r, text, root, hints);
    if (out->family) read_model(out, &r, text, root, hints);
    ht_json_decref(root);
    if (r.status) return r.status;

    status = ht_config_check(out, config_file, err);
    return status || !generation.data ? status : ht_config_eos_read(generation, generation_file, out, err);
}

ht_status ht_config_eos_read(ht_json_text text, const char *file, ht_config *c, ht_error *err) {
    ht_json *root;
    ht_status status = ht_json_parse(text.data, text.size, file, &root, err);
    if (status) return status;
    ht_json_reader r = {.file = file, .err = err};
    read_eos(c, &r, ht_json_object(&r, root, "text_config"));
    read_eos(c, &r, root);
    ht_json_decref(root);
    return r.status;
}
