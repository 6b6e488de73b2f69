/* AFMoE, of the Trinity models: four norms, attention whose output has a gate, RoPE in sliding layers alone, and a mixture
 * of experts with shared ones after leading dense layers. */
#include "checkpoint/convert_metadata.h"
#include "models/decoder.h"
#include "models/registry.h"

#include <math.h>

enum { PATTERN = 4 }; /* full attention in every fourth layer */

#define AT(field) offsetof(ht_decoder_layer, field)
static const ht_tensor_spec specs[] = {
    {AT(attention_gate), "self_attn.gate_proj", "attn_gate", .rows = HT_EXTENT_Q, .columns = HT_EXTENT_HIDDEN},
    {AT(after_attention_norm), "post_attention_layernorm", "post_attention_norm", .rows = HT_EXTENT_HIDDEN},
    {AT(mlp_norm), "pre_mlp_layernorm", "ffn_norm", .rows = HT_EXTENT_HIDDEN},
    {AT(after_mlp_norm), "post_mlp_layernorm", "post_ffw_norm", .rows = HT_EXTENT_HIDDEN},
    {AT(router), "mlp.router.gate", "ffn_gate_inp", HT_EXTENT_EXPERTS, HT_EXTENT_HIDDEN, .has = ht_decoder_has_experts},
    {AT(router_bias), "mlp.expert_bias", "exp_probs_b.bias", .rows = HT_EXTENT_EXPERTS, .has = ht_decoder_has_experts,
     .bare = true},
    {.gguf = NULL}};
#undef AT

static const ht_config_field fields[] = {{HT_FIELD(I64, window, "sliding_window", "attention.sliding_window", 1024)},
                                         {.json = NULL}};

static void scale_embedding(ht_config *c) { c->embedding_scale = (float)sqrt((double)c->hidden); }

static void skip_rope(ht_config *c) {
    for (int64_t i = 0; i < c->n_layers; i++) c->layer[i].no_rope = !c->layer[i].slides;
}

static void read_json(ht_config *c, ht_json_reader *r, const ht_json *object) {
    bool is_scaled = false;
    int64_t period = PATTERN;
    if (ht_json_bool(r, object, "mup_enabled", &is_scaled) && is_scaled) scale_embedding(c);
    ht_json_i64(r, object, "global_attn_every_n_layers", &period);
    ht_config_slide_by_pattern(c, period > 0 ? period : PATTERN);
}

static void read_json_layers(ht_config *c, ht_json_reader *r, const ht_json *object) {
    (void)r, (void)object;
    skip_rope(c);
}

static void write_json(const ht_config *c, ht_document *d) {
    ht_document_set(d, "num_dense_layers", ht_json_integer(ht_config_leading_dense(c)));
    ht_document_set(d, "route_scale", ht_json_real(c->routing.scale != 0 ? (double)c->routing.scale : 1));
    ht_document_set(d, "mup_enabled", ht_json_boolean(c->embedding_scale != 1));
}

/* GGUF files have the scaled embedding without saying so. */
static void read_gguf(ht_config *c, ht_meta *m) {
    (void)m;
    scale_embedding(c);
    ht_config_slide_by_pattern(c, PATTERN);
    skip_rope(c);
}

const ht_family ht_family_afmoe = {.architecture = "afmoe",
                                   .model_types = {"afmoe"},
                                   .class_name = "AfmoeForCausalLM",
                                   .defaults = {.n_layers = 32,
                                                .hidden = 2048,
                                                .n_heads = 16,
                                                .head_dim = 128,
                                                .feed_forward = 6144,
                                                .vocab = 200192,
                                                .context = 16384,
                                                HT_LLAMA_LIKE("silu"),
                                                .norm_eps = 1e-5,
                                                .rope_theta = 10000,
                                                .n_experts = 64,
                                                .experts_used = 6,
                                                .expert_feed_forward = 1408,
                                                .n_shared = 2,
                                                .n_dense = 1,
                                                .shared_field = "num_shared_experts",
                                                .routing = {HT_ROUTER_SIGMOID, .normalized = true, .scale = 1}},
                                   .fields = fields,
                                   .read_json = read_json,
                                   .read_json_layers = read_json_layers,
                                   .write_json = write_json,
                                   .read_gguf = read_gguf,
                                   .activate = ht_silu,
                                   .layer = {ht_decoder_norm_specs, ht_decoder_attention_specs,
                                             ht_decoder_head_norm_specs, specs, ht_decoder_mlp_specs,
                                             ht_decoder_expert_specs, ht_decoder_shared_expert_specs},
                                   HT_DECODER_RUNS};
