/* Command R, R7B and A: attention and feed-forward side by side, after one LayerNorm without bias, and scaled logits.
 * Command R7B and A slide in most layers, and have RoPE only there; North has experts, too. */
#include "checkpoint/convert_metadata.h"
#include "checkpoint/sampling.h"
#include "models/decoder.h"
#include "models/registry.h"

#include <string.h>

enum { PATTERN = 4 }; /* full attention in every fourth layer */

#define AT(field) offsetof(ht_decoder_layer, field)
static const ht_tensor_spec head_norms[] = {{AT(q_norm), "self_attn.q_norm", "attn_q_norm", .rows = HT_EXTENT_Q,
                                             .has = ht_decoder_has_head_norms, .row = HT_EXTENT_HEAD},
                                            {AT(k_norm), "self_attn.k_norm", "attn_k_norm", .rows = HT_EXTENT_KV,
                                             .has = ht_decoder_has_head_norms, .row = HT_EXTENT_HEAD},
                                            {.gguf = NULL}};
#undef AT

static const ht_config_field command_r_fields[] = {{HT_FIELD(F32, logit_scale, "logit_scale", "logit_scale", 0.0625)},
                                                   {HT_FIELD(BOOL, head_norms, "use_qk_norm", NULL, 0)},
                                                   {.json = NULL}},
                             cohere2_fields[] = {
                                 {HT_FIELD(F32, logit_scale, "logit_scale", "logit_scale", 0.0625)},
                                 {HT_FIELD(I64, window, "sliding_window", "attention.sliding_window", 4096)},
                                 {.json = NULL}};

static void skip_rope(ht_config *c) {
    for (int64_t i = 0; i < c->n_layers; i++) c->layer[i].no_rope = !c->layer[i].slides;
}

static void read_cohere2(ht_config *c, ht_json_reader *r, const ht_json *object) {
    int64_t pattern = PATTERN;
    ht_json_i64(r, object, "sliding_window_pattern", &pattern);
    ht_config_slide_by_pattern(c, pattern > 0 ? pattern : PATTERN);
}

static void read_cohere2_layers(ht_config *c, ht_json_reader *r, const ht_json *object) {
    (void)r, (void)object;
    skip_rope(c);
}

static void read_cohere2_gguf(ht_config *c, ht_meta *m) {
    (void)m;
    ht_config_slide_by_pattern(c, PATTERN);
    skip_rope(c);
}

#define SIZES                                                                                                          \
    .n_layers = 40, .hidden = 8192, .n_heads = 64, .feed_forward = 22528, .vocab = 256000, .context = 8192,            \
    .tied_head = true, HT_LLAMA_LIKE("silu"), .norm_eps = 1e-5, .norm_eps_field = "layer_norm_eps"

const ht_family ht_family_command_r = {
    .architecture = "command-r",
    .model_types = {"cohere"},
    .class_name = "CohereForCausalLM",
    .defaults = {SIZES, .rope_theta = 500000},
    .fields = command_r_fields,
    .activate = ht_silu,
    .layer_norm = true,
    .parallel = true,
    .interleaved_rope = true,
    .head_norm = HT_HEAD_NORM_OWN,
    .layer = {ht_decoder_norm_specs, ht_decoder_attention_specs, head_norms, ht_decoder_mlp_specs},
    HT_DECODER_RUNS};

const ht_family ht_family_cohere2 = {.architecture = "cohere2",
                                     .model_types = {"cohere2"},
                                     .class_name = "Cohere2ForCausalLM",
                                     .defaults = {SIZES, .rope_theta = 10000},
                                     .fields = cohere2_fields,
                                     .read_json = read_cohere2,
                                     .read_json_layers = read_cohere2_layers,
                                     .read_gguf = read_cohere2_gguf,
                                     .activate = ht_silu,
                                     .layer_norm = true,
                                     .parallel = true,
                                     .interleaved_rope = true,
                                     .layer = {ht_decoder_norm_specs, ht_decoder_attention_specs, ht_decoder_mlp_specs},
                                     HT_DECODER_RUNS};

/* prefix_dense_*: the first layers, without experts, have another width and pattern. */
static void read_cohere2_moe(ht_config *c, ht_json_reader *r, const ht_json *object) {
    const char *scores = "softmax", *combination = "average";
    int64_t dense = 0;
    read_cohere2(c, r, object);
    ht_json_str(r, object, "expert_selection_fn", &scores);
    ht_json_str(r, object, "shared_expert_combination_strategy", &combination);
    double eps;
    c->layer_norm = !ht_json_f64(r, object, "rms_norm_eps", &eps);
    if (!c->layer_norm) c->norm_eps = (float)eps;
    const bool sigmoid = !strcmp(scores, "sigmoid");
    if (!sigmoid && strcmp(scores, "softmax") != 0)
        ht_json_fail(r, HT_ERR_UNSUPPORTED, "`expert_selection_fn` is `%.40s`; softmax and sigmoid are supported",
                     scores);
    c->routing.scores = sigmoid ? HT_ROUTER_CHOSEN_SIGMOID : HT_ROUTER_CHOSEN_SOFTMAX;
    c->routing.normalized = c->routing.normalized && sigmoid;
    c->routing.shared_scale = strcmp(combination, "average") ? 0 : 0.5f;
    if (ht_json_i64(r, object, "prefix_dense_intermediate_size", &dense) && dense > 0)
        for (int64_t i = 0; i < c->n_layers; i++)
            if (!c->layer[i].has_experts) c->layer[i].feed_forward = dense;
}

/* Dense layers with full attention have RoPE when their pattern is 1. */
static void read_cohere2_moe_layers(ht_config *c, ht_json_reader *r, const ht_json *object) {
    int64_t pattern = 1;
    ht_json_i64(r, object, "prefix_dense_sliding_window_pattern", &pattern);
    skip_rope(c);
    for (int64_t i = 0; i < c->n_layers; i++)
        if (pattern == 1 && !c->layer[i].has_experts) c->layer[i].no_rope = false;
}

static void write_cohere2_moe(const ht_config *c, ht_document *d) {
    const ht_layer_config *first = &c->layer[0];
    const bool sigmoid = c->routing.scores == HT_ROUTER_CHOSEN_SIGMOID;
    ht_document_set(d, "expert_selection_fn", ht_json_string(sigmoid ? "sigmoid" : "softmax"));
    ht_document_set(d, "shared_expert_combination_strategy",
                    ht_json_string(c->routing.shared_scale == 0 ? "sum" : "average"));
    ht_document_set(d, "prefix_dense_intermediate_size",
                    first->has_experts ? ht_json_null() : ht_json_integer(first->feed_forward));
    ht_document_set(d, "prefix_dense_sliding_window_pattern",
                    ht_json_integer(first->has_experts || !first->no_rope ? 1 : PATTERN));
    if (!c->layer_norm) ht_document_set(d, "rms_norm_eps", ht_json_real(ht_short_decimal((double)c->norm_eps)));
    ht_convert_set_mlp_types(c, d);
}

static void write_cohere2_moe_gguf(const ht_config *c, ht_document *d) {
    const bool sigmoid = c->routing.scores == HT_ROUTER_CHOSEN_SIGMOID;
    ht_gguf_put(d, c, "expert_gating_func", ht_gguf_u32(sigmoid ? 2 : 1));
    ht_gguf_put(d, c, "expert_weights_norm", ht_gguf_bool(c->routing.normalized || !sigmoid));
}

static void read_cohere2_moe_gguf(ht_config *c, ht_meta *m) {
    const bool sigmoid = c->routing.scores == HT_ROUTER_SIGMOID;
    read_cohere2_gguf(c, m);
    c->layer_norm = !ht_meta_has(m, "attention.layer_norm_rms_epsilon");
    if (!c->layer_norm) c->norm_eps = (float)ht_meta_f64(m, "attention.layer_norm_rms_epsilon", 0);
    for (int64_t i = 0; i < c->n_layers; i++) {
        c->layer[i].slides =
            c->window > 0 && ht_meta_layer_i64(m, "attention.sliding_window_pattern", i, (i + 1) % PATTERN != 0);
        c->layer[i].no_rope = !c->layer[i].slides && c->layer[i].has_experts;
    }
    c->routing.scores = sigmoid ? HT_ROUTER_CHOSEN_SIGMOID : HT_ROUTER_CHOSEN_SOFTMAX;
    c->routing.normalized = c->routing.normalized && sigmoid;
    c->routing.shared_scale = 0.5f;
}

const ht_family ht_family_cohere2moe = {
    .architecture = "cohere2moe",
    .model_types = {"cohere2_moe"},
    .class_name = "Cohere2MoeForCausalLM",
    .defaults = {SIZES, .rope_theta = 10000, .n_experts = 8, .experts_used = 2, .shared_field = "num_shared_experts",
                 .routing = {.normalized = true}},
    .fields = cohere2_fields,
    .read_json = read_cohere2_moe,
    .read_json_layers = read_cohere2_moe_layers,
    .write_json = write_cohere2_moe,
    .read_gguf = read_cohere2_moe_gguf,
    .write_gguf = write_cohere2_moe_gguf,
    .activate = ht_silu,
    .layer_norm = true,
    .parallel = true,
    .interleaved_rope = true,
    .layer = {ht_decoder_norm_specs, ht_decoder_attention_specs, ht_decoder_mlp_specs, ht_decoder_router_specs,
              ht_decoder_expert_specs, ht_decoder_shared_expert_specs},
    HT_DECODER_RUNS};
