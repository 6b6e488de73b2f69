/* GLM-4: four norms, RoPE of interleaved pairs, gate and up in one matrix. GLM-4.5 to 4.7: a mixture of experts with a
 * shared one, after leading dense layers. RoPE rotates half of each head. */
#include "models/decoder.h"
#include "models/registry.h"

#define AT(field) offsetof(ht_decoder_layer, field)
static const ht_tensor_spec glm4_norms[] = {
    {AT(after_attention_norm), "post_self_attn_layernorm", "post_attention_norm", .rows = HT_EXTENT_HIDDEN},
    {AT(mlp_norm), "post_attention_layernorm", "ffn_norm", .rows = HT_EXTENT_HIDDEN},
    {AT(after_mlp_norm), "post_mlp_layernorm", "post_ffw_norm", .rows = HT_EXTENT_HIDDEN},
    {.gguf = NULL}};

static const ht_tensor_spec glm4moe_specs[] = {
    {AT(mlp_norm), "post_attention_layernorm", "post_attention_norm", .rows = HT_EXTENT_HIDDEN},
    {AT(router_bias), "mlp.gate.e_score_correction_bias", "exp_probs_b.bias", .rows = HT_EXTENT_EXPERTS,
     .has = ht_decoder_has_experts, .bare = true},
    {.gguf = NULL}};
#undef AT

const ht_family ht_family_glm4 = {
    .architecture = "glm4",
    .model_types = {"glm4"},
    .class_name = "Glm4ForCausalLM",
    .defaults = {.n_layers = 40,
                 .hidden = 4096,
                 .n_heads = 32,
                 .n_kv_heads = 2,
                 .head_dim = 128,
                 .feed_forward = 13696,
                 .vocab = 151552,
                 .context = 131072,
                 HT_LLAMA_LIKE("silu"),
                 .norm_eps = 1.5625e-7,
                 .rope_theta = 10000,
                 .rotated_share = 0.5,
                 .q_bias = true},
    .read_json = ht_decoder_read_q_bias,
    .interleaved_rope = true,
    .activate = ht_silu,
    .layer = {ht_decoder_norm_specs, ht_decoder_attention_specs, glm4_norms, ht_decoder_gate_up_specs},
    HT_DECODER_RUNS};

static const ht_config_field glm4moe_fields[] = {{HT_FIELD(BOOL, head_norms, "use_qk_norm", NULL, 0)}, {.json = NULL}};

const ht_family ht_family_glm4moe = {
    .architecture = "glm4moe",
    .model_types = {"glm4_moe"},
    .class_name = "Glm4MoeForCausalLM",
    .defaults = {.n_layers = 46,
                 .hidden = 4096,
                 .n_heads = 96,
                 .n_kv_heads = 8,
                 .feed_forward = 10944,
                 .vocab = 151552,
                 .context = 131072,
                 HT_LLAMA_LIKE("silu"),
                 .norm_eps = 1e-5,
                 .rope_theta = 10000,
                 .rotated_share = 0.5,
                 .n_experts = 128,
                 .experts_used = 8,
                 .expert_feed_forward = 1408,
                 .n_shared = 1,
                 .n_dense = 1,
                 .experts_field = "n_routed_experts",
                 .shared_field = "n_shared_experts",
                 .routing = {HT_ROUTER_SIGMOID, .normalized = true, .scale = 1}},
    .fields = glm4moe_fields,
    .read_json = ht_decoder_read_q_bias,
    .activate = ht_silu,
    .layer = {ht_decoder_norm_specs, ht_decoder_attention_specs, ht_decoder_head_norm_specs, glm4moe_specs,
              ht_decoder_mlp_specs, ht_decoder_router_specs, ht_decoder_expert_specs, ht_decoder_shared_expert_specs},
    HT_DECODER_RUNS};
