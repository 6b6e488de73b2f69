/* Families with latent attention: DeepSeek V2 and V3, Kimi K2, GLM-4.7-Flash and Mistral Small 4.
 *
 * The cache keeps one key per token: the normed latent vector, then the rotated values that all heads share; the latent
 * is also the value. Queries are therefore projected to the latent's space, and the results back from there, by every
 * head's own matrices; so that prefill and decoding compute the same. A plain pass, which keeps nothing, projects the
 * latents to keys and values instead. */
#include "checkpoint/convert_metadata.h"
#include "models/latent.h"
#include "models/registry.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define LATENT_EPS 1e-6f /* of both latent norms, whatever the model's epsilon is */

/* ---- weights ---- */

static bool compresses_queries(const ht_config *c, int64_t layer) {
    return c->latent.q_rank > 0 && ht_decoder_has_attention(c, layer);
}
static bool projects_queries(const ht_config *c, int64_t layer) {
    return c->latent.q_rank == 0 && ht_decoder_has_attention(c, layer);
}

#define AT(field) offsetof(ht_decoder_layer, field)
/* A head's two matrices are rows of one tensor, kv_b_proj or attn_kv_b, or apart (stored_weights.c). */
const ht_tensor_spec ht_latent_specs[] = {
    {AT(q_a), "self_attn.q_a_proj", "attn_q_a", HT_EXTENT_LATENT_Q_RANK, HT_EXTENT_HIDDEN, .bias = HT_BIAS_Q,
     .has = compresses_queries},
    {AT(q_a_norm), "self_attn.q_a_layernorm", "attn_q_a_norm", .rows = HT_EXTENT_LATENT_Q_RANK,
     .has = compresses_queries},
    {AT(q), "self_attn.q_b_proj", "attn_q_b", HT_EXTENT_LATENT_Q, HT_EXTENT_LATENT_Q_RANK, .has = compresses_queries},
    {AT(q), "self_attn.q_proj", "attn_q", HT_EXTENT_LATENT_Q, HT_EXTENT_HIDDEN, .has = projects_queries},
    {AT(kv_a), "self_attn.kv_a_proj_with_mqa", "attn_kv_a_mqa", HT_EXTENT_LATENT_KEY, HT_EXTENT_HIDDEN,
     .bias = HT_BIAS_Q, .has = ht_decoder_has_attention},
    {AT(kv_a_norm), "self_attn.kv_a_layernorm", "attn_kv_a_norm", .rows = HT_EXTENT_LATENT,
     .has = ht_decoder_has_attention},
    {AT(key_heads), "self_attn.embed_q", "attn_k_b", HT_EXTENT_LATENT, HT_EXTENT_LATENT_KEY_HEAD,
     .has = ht_decoder_has_attention, .expert = HT_HEAD_KEY},
    {AT(value_heads), "self_attn.unembed_out", "attn_v_b", HT_EXTENT_LATENT_VALUE, HT_EXTENT_LATENT,
     .has = ht_decoder_has_attention, .expert = HT_HEAD_VALUE},
    {AT(out), "self_attn.o_proj", "attn_output", HT_EXTENT_HIDDEN, HT_EXTENT_LATENT_OUT, .bias = HT_BIAS_OUT,
     .has = ht_decoder_has_attention},
    {.gguf = NULL}};

static const ht_tensor_spec biased_router_specs[] = {
    {AT(router), "mlp.gate", "ffn_gate_inp", HT_EXTENT_EXPERTS, HT_EXTENT_HIDDEN, .has = ht_decoder_has_experts},
    {AT(router_bias), "mlp.gate.e_score_correction_bias", "exp_probs_b.bias", .rows = HT_EXTENT_EXPERTS,
     .has = ht_decoder_has_experts, .bare = true},
    {.gguf = NULL}};
#undef AT

/* ---- attention ---- */

/* Elements [first, first + n) of the last axis of x [T, heads, *]. */
static ht_array *part(ht_ctx *c, ht_array *x, int64_t first, int64_t n) {
    return ht_slice(c->s, x, (int64_t[]){0, 0, first}, (int64_t[]){HT_OPEN, HT_OPEN, first + n}, NULL);
}

static ht_array *joined(ht_ctx *c, ht_array *x, ht_array *y) {
    return ht_concatenate(c->s, (ht_array *[]){x, y}, 2, -1);
}

static ht_array *latent_norm(ht_ctx *c, ht_array *x, const ht_norm_weights *norm) {
    return ht_rms_norm(c->s, x, norm->weight, LATENT_EPS, 0);
}

/* x plus elements [first, first + n) of every head's keys and values [T, n_heads * (key_dim + value_dim)]. */
static ht_array *plus_part(ht_ctx *c, const ht_config *cfg, ht_array *x, ht_array *of_heads, int64_t first, int64_t n) {
    if (of_heads == HT_NONE) return x;
    const int64_t shape[] = {-1, cfg->n_heads, ht_latent_head_rows(&cfg->latent)};
    return ht_add(c->s, x, part(c, ht_reshape(c->s, of_heads, shape, 3), first, n));
}

/* Attention of a plain pass, over keys and values of all heads: q [T, n_heads, key_dim + rope_dim], latent [T, 1,
 * rank], rotated_k [T, 1, rope_dim] -> [T, n_heads, value_dim]. */
static ht_array *attend_expanded(ht_ctx *c, const ht_config *cfg, const ht_decoder_layer *l, int cache_layer,
                                 const ht_attention *how, ht_array *q, ht_array *latent, ht_array *rotated_k) {
    const ht_latent *of = &cfg->latent;
    if (!latent || !rotated_k) return NULL;
    const int64_t t = ht_array_dim(latent, 0), latents[] = {t, cfg->n_heads, of->rank},
                  rotated[] = {t, cfg->n_heads, of->rope_dim};
    ht_array *x = ht_broadcast_to(c->s, latent, latents, 3);
    ht_array *more = ht_linear_adapter(c, ht_squeeze(c->s, latent, 1), l->value_heads.slot);
    ht_array *k = ht_linear_heads(c, x, &l->key_heads, false), *v = ht_linear_heads(c, x, &l->value_heads, false);
    k = joined(c, plus_part(c, cfg, k, more, 0, of->key_dim), ht_broadcast_to(c->s, rotated_k, rotated, 3));
    v = plus_part(c, cfg, v, more, of->key_dim, of->value_dim);
    return ht_attend(c, q, k, v, cache_layer, how);
}

ht_array *ht_latent_attention(ht_ctx *c, const ht_decoder_weights *m, const ht_decoder_layer *l, int index, ht_array *x,
                              ht_array *pos) {
    const ht_config *cfg = m->config;
    const ht_latent *of = &cfg->latent;
    const bool rotates = !cfg->layer[index].no_rope;
    ht_scope *s = c->s;
    ht_array *q = l->q_a.matrix ? latent_norm(c, ht_linear(c, x, &l->q_a), &l->q_a_norm) : x;
    q = ht_reshape(s, ht_linear(c, q, &l->q), (int64_t[]){-1, cfg->n_heads, of->key_dim + of->rope_dim}, 3);
    ht_array *q_part = part(c, q, 0, of->key_dim);
    if (!c->pass) q_part = ht_linear_heads(c, q_part, &l->key_heads, true); /* [T, n_heads, rank] */
    ht_array *rotated_q = part(c, q, of->key_dim, of->rope_dim);
    if (rotates) rotated_q = ht_decoder_rotated(c, m, false, rotated_q, pos);
    q = ht_decoder_tempered(c, cfg, joined(c, q_part, rotated_q), pos);

    ht_array *kv = ht_expand_dims(s, ht_linear(c, x, &l->kv_a), 1); /* [T, 1, rank + rope_dim] */
    ht_array *latent = latent_norm(c, part(c, kv, 0, of->rank), &l->kv_a_norm);
    ht_array *rotated_k = part(c, kv, of->rank, of->rope_dim), *o;
    if (rotates) rotated_k = ht_decoder_rotated(c, m, false, rotated_k, pos);
    ht_attention how = {.scale = cfg->attention_scale, .layer = index, .kv_layer = (int)cfg->layer[index].kv_layer};
    const int cache_layer = (int)ht_cache_layer_of(cfg, how.kv_layer, false);
    if (!ht_observe_input(c, latent, l->value_heads.slot)) return NULL;
    if (c->pass)
        o = attend_expanded(c, cfg, l, cache_layer, &how, q, latent, rotated_k);
    else {
        how.v_dim = (int32_t)of->rank;
        o = ht_attend(c, q, joined(c, latent, rotated_k), HT_NONE, cache_layer, &how); /* [T, n_heads, rank] */
        o = ht_linear_heads(c, o, &l->value_heads, false);
    }
    /* o: [T, n_heads, value_dim] */
    return ht_linear(c, ht_reshape(s, o, (int64_t[]){-1, cfg->n_heads * of->value_dim}, 2), &l->out);
}

/* ---- configuration ---- */

static const ht_config_field deepseek_fields[] = {HT_LATENT_FIELDS(1536, 512, 128, 128), {.json = NULL}},
                             glm_fields[] = {HT_LATENT_FIELDS(768, 512, 192, 256), {.json = NULL}},
                             mistral4_fields[] = {
                                 HT_LATENT_FIELDS(1024, 256, 64, 128),
                                 {HT_FIELD(F32, query_beta, NULL, "attention.temperature_scale", 0.1)},
                                 {HT_FIELD(I64, query_period, NULL, "rope.scaling.original_context_length", 0)},
                                 {.json = NULL}};

/* A size from a file, or -1, which ht_config_check refuses, where sums could overflow. */
static int64_t bounded(int64_t size) { return size > 0 && size <= INT32_MAX ? size : -1; }

/* The one key and value of the cache, and the scale, to which YaRN's magnitude belongs. */
void ht_latent_set_heads(ht_config *c) {
    ht_latent *l = &c->latent;
    int64_t *const size[] = {&l->rank, &l->key_dim, &l->rope_dim, &l->value_dim};
    for (int i = 0; i < 4; i++) *size[i] = bounded(*size[i]);
    c->n_kv_heads = 1;
    c->head_dim = l->rank + l->rope_dim;
    c->rope.dims = l->rope_dim;
    for (int64_t i = 0; i < c->n_layers; i++)
        c->layer[i].n_kv_heads = !c->layer[i].no_attention, c->layer[i].head_dim = c->head_dim;
    const double of_key = (double)(l->key_dim + l->rope_dim),
                 m = c->rope.kind == HT_ROPE_YARN ? ht_rope_yarn_mscale(&c->rope, c->rope.mscale_all_dim) : 1;
    c->attention_scale = of_key > 0 ? (float)(m * m / sqrt(of_key)) : 0;
}

static void read_json(ht_config *c, ht_json_reader *r, const ht_json *object) {
    const bool is_v2 = c->routing.scores == HT_ROUTER_SOFTMAX && c->routing.best_of_group;
    const char *wanted = c->routing.scores == HT_ROUTER_SIGMOID ? "sigmoid" : "softmax", *scores = wanted,
               *method = "greedy";
    int64_t every = 1;
    if (ht_json_str(r, object, "scoring_func", &scores) && strcmp(scores, wanted))
        ht_json_fail(r, HT_ERR_UNSUPPORTED, "`scoring_func` is `%.40s`, but %s models are computed with %s", scores,
                     c->family->architecture, wanted);
    if (ht_json_i64(r, object, "moe_layer_freq", &every) && every != 1)
        ht_json_fail(r, HT_ERR_UNSUPPORTED, "`moe_layer_freq` is %lld; only 1 is supported", (long long)every);
    ht_json_bool(r, object, "rope_interleave", &c->rope.interleaved);
    if (!is_v2) return;
    c->routing.normalized = false; /* whatever norm_topk_prob says */
    ht_json_str(r, object, "topk_method", &method);
    if (strcmp(method, "group_limited_greedy")) c->routing.groups = 0;
}

static void read_json_mistral4(ht_config *c, ht_json_reader *r, const ht_json *object) {
    read_json(c, r, object);
    ht_decoder_read_temperature(c, r, object);
}

static void read_json_layers(ht_config *c, ht_json_reader *r, const ht_json *object) {
    (void)r, (void)object;
    ht_latent_set_heads(c);
}

void ht_latent_read_gguf(ht_config *c, ht_meta *m) {
    ht_latent *l = &c->latent;
    bool compresses = false;
    for (int64_t i = 0; i < c->n_layers && !compresses; i++)
        compresses = ht_meta_tensor(m, i, "attn_q_a.weight") != NULL;
    if (!compresses) l->q_rank = 0;
    /* Older files have the sizes of heads in key_length and value_length. */
    const int64_t key = ht_meta_i64(m, "attention.key_length_mla", ht_meta_i64(m, "attention.key_length", 0));
    l->value_dim = ht_meta_i64(m, "attention.value_length_mla", ht_meta_i64(m, "attention.value_length", 0));
    l->key_dim = bounded(key) - bounded(l->rope_dim);
    c->rope.mscale_all_dim = (double)(float)(c->rope.mscale_all_dim * 10); /* the key holds a tenth */
    c->rope.mscale = c->rope.mscale_all_dim;
    ht_latent_set_heads(c);
}

/* The architecture deepseek2 is also that of DeepSeek V2, whose routers have no bias. */
static void read_gguf(ht_config *c, ht_meta *m) {
    ht_routing *r = &c->routing;
    bool biased = false;
    ht_latent_read_gguf(c, m);
    for (int64_t i = 0; i < c->n_layers; i++) biased |= ht_meta_tensor(m, i, "exp_probs_b.bias") != NULL;
    if (!biased) c->family = &ht_family_deepseek_v2;
    if (!ht_meta_has(m, "expert_gating_func")) r->scores = biased ? HT_ROUTER_SIGMOID : HT_ROUTER_SOFTMAX;
    r->best_of_group = !biased;
    r->normalized = ht_meta_bool(m, "expert_weights_norm", false);
}

static void write_json(const ht_config *c, ht_document *d) {
    const bool is_v2 = c->routing.scores == HT_ROUTER_SOFTMAX && c->routing.best_of_group;
    ht_document_set(d, "first_k_dense_replace", ht_json_integer(ht_config_leading_dense(c)));
    ht_document_set(d, "rope_interleave", ht_json_boolean(c->rope.interleaved));
    if (is_v2) ht_document_set(d, "topk_method", ht_json_string(c->routing.groups ? "group_limited_greedy" : "greedy"));
}

void ht_latent_write_gguf(const ht_config *c, ht_document *d) {
    const ht_latent *l = &c->latent;
    ht_gguf_put(d, c, "attention.value_length", ht_gguf_u32(l->rank));
    ht_gguf_put(d, c, "attention.key_length_mla", ht_gguf_u32(l->key_dim + l->rope_dim));
    ht_gguf_put(d, c, "attention.value_length_mla", ht_gguf_u32(l->value_dim));
    ht_gguf_put(d, c, "leading_dense_block_count", ht_gguf_u32(ht_config_leading_dense(c)));
}

/* ---- families ---- */

/* head_dim is not used; it is set from the latent's sizes. */
#define SIZES(layers, width, heads, eps)                                                                               \
    HT_LLAMA_LIKE("silu"), .n_layers = layers, .hidden = width, .n_heads = heads, .head_dim = 128, .norm_eps = eps,    \
                           .rope_theta = 10000, .experts_field = "n_routed_experts",                                   \
                           .shared_field = "n_shared_experts"
#define LATENT_RUNS(router_specs)                                                                                      \
    .read_json_layers = read_json_layers, .write_json = write_json, .write_gguf = ht_latent_write_gguf,                \
    .interleaved_rope = true, .activate = ht_silu, HT_DECODER_RUNS,                                                    \
    .layer = {ht_decoder_norm_specs, ht_latent_specs,         ht_decoder_mlp_norm_specs,     ht_decoder_mlp_specs,     \
              router_specs,          ht_decoder_expert_specs, ht_decoder_shared_expert_specs}

/* DeepSeek V3 and R1, Kimi K2. */
const ht_family ht_family_deepseek2 = {
    .architecture = "deepseek2",
    .model_types = {"deepseek_v3", "kimi_k2"},
    .class_name = "DeepseekV3ForCausalLM",
    .defaults = {SIZES(61, 7168, 128, 1e-6), .feed_forward = 18432, .vocab = 129280, .context = 4096, .n_experts = 256,
                 .experts_used = 8, .expert_feed_forward = 2048, .n_shared = 1, .n_dense = 3,
                 .routing = {HT_ROUTER_SIGMOID, .normalized = true, .scale = 2.5, .groups = 8, .groups_used = 4}},
    .fields = deepseek_fields,
    .read_json = read_json,
    .read_gguf = read_gguf,
    LATENT_RUNS(biased_router_specs)};

const ht_family ht_family_deepseek_v2 = {
    .architecture = "deepseek_v2",
    .gguf_architecture = "deepseek2",
    .model_types = {"deepseek_v2"},
    .class_name = "DeepseekV2ForCausalLM",
    .defaults = {SIZES(32, 4096, 32, 1e-6), .feed_forward = 11008, .vocab = 32000, .context = 2048, .n_experts = 64,
                 .experts_used = 6, .expert_feed_forward = 1407, .n_shared = 2,
                 .routing = {HT_ROUTER_SOFTMAX, .scale = 1, .best_of_group = true}},
    .fields = deepseek_fields,
    .read_json = read_json,
    LATENT_RUNS(ht_decoder_router_specs)};

/* GLM-4.7-Flash. */
const ht_family ht_family_glm4_moe_lite = {
    .architecture = "glm4_moe_lite",
    .gguf_architecture = "deepseek2",
    .model_types = {"glm4_moe_lite"},
    .class_name = "Glm4MoeLiteForCausalLM",
    .defaults = {SIZES(47, 2048, 20, 1e-5), .feed_forward = 10240, .vocab = 154880, .context = 202752, .n_experts = 64,
                 .experts_used = 4, .expert_feed_forward = 1536, .n_shared = 1, .n_dense = 1,
                 .routing = {HT_ROUTER_SIGMOID, .normalized = true, .scale = 1.8f}},
    .fields = glm_fields,
    .read_json = read_json,
    LATENT_RUNS(biased_router_specs)};

/* Mistral Small 4, with the temperature of queries of Ministral 3. */
const ht_family ht_family_mistral4 = {.architecture = "mistral4",
                                      .model_types = {"mistral4"},
                                      .class_name = "Mistral4ForCausalLM",
                                      .defaults = {SIZES(36, 4096, 32, 1e-6), .feed_forward = 12288, .vocab = 131072,
                                                   .context = 1048576, .n_experts = 128, .experts_used = 4,
                                                   .expert_feed_forward = 2048, .n_shared = 1,
                                                   .routing = {HT_ROUTER_SOFTMAX, .normalized = true, .scale = 1}},
                                      .gguf_fuses_experts = true,
                                      .experts = HT_EXPERTS_STACKED,
                                      .fields = mistral4_fields,
                                      .read_json = read_json_mistral4,
                                      .read_gguf = ht_latent_read_gguf,
                                      LATENT_RUNS(ht_decoder_router_specs)};
