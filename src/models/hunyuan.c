/* Hunyuan: Llama's blocks with norms of q and k per head after RoPE; with experts and a shared one in its MoE variant.
 * HY 3: norms of q and k before RoPE, a dense first layer, and experts chosen with a bias. */
#include "checkpoint/convert_metadata.h"
#include "checkpoint/sampling.h"
#include "models/decoder.h"
#include "models/registry.h"

#define AT(field) offsetof(ht_decoder_layer, field)
static const ht_tensor_spec head_norms[] = {
    {AT(q_norm), "self_attn.query_layernorm", "attn_q_norm", .rows = HT_EXTENT_HEAD},
    {AT(k_norm), "self_attn.key_layernorm", "attn_k_norm", .rows = HT_EXTENT_HEAD},
    {.gguf = NULL}};

static const ht_tensor_spec shared_mlp[] = {
    {AT(shared_gate), "mlp.shared_mlp.gate_proj", "ffn_gate_shexp", HT_EXTENT_SHARED_FEED_FORWARD, HT_EXTENT_HIDDEN,
     .has = ht_decoder_has_shared_expert},
    {AT(shared_up), "mlp.shared_mlp.up_proj", "ffn_up_shexp", HT_EXTENT_SHARED_FEED_FORWARD, HT_EXTENT_HIDDEN,
     .has = ht_decoder_has_shared_expert},
    {AT(shared_down), "mlp.shared_mlp.down_proj", "ffn_down_shexp", HT_EXTENT_HIDDEN, HT_EXTENT_SHARED_FEED_FORWARD,
     .has = ht_decoder_has_shared_expert},
    {.gguf = NULL}};

static const ht_tensor_spec v3_shared_mlp[] = {
    {AT(shared_gate), "mlp.shared_mlp.gate_proj", "ffn_gate_shexp", HT_EXTENT_SHARED_FEED_FORWARD, HT_EXTENT_HIDDEN,
     .has = ht_decoder_has_shared_expert, .module = "mlp.shared_experts.gate_proj"},
    {AT(shared_up), "mlp.shared_mlp.up_proj", "ffn_up_shexp", HT_EXTENT_SHARED_FEED_FORWARD, HT_EXTENT_HIDDEN,
     .has = ht_decoder_has_shared_expert, .module = "mlp.shared_experts.up_proj"},
    {AT(shared_down), "mlp.shared_mlp.down_proj", "ffn_down_shexp", HT_EXTENT_HIDDEN, HT_EXTENT_SHARED_FEED_FORWARD,
     .has = ht_decoder_has_shared_expert, .module = "mlp.shared_experts.down_proj"},
    {.gguf = NULL}};

static const ht_tensor_spec moe_router[] = {
    {AT(router), "mlp.gate.wg", "ffn_gate_inp", HT_EXTENT_EXPERTS, HT_EXTENT_HIDDEN, .has = ht_decoder_has_experts},
    {.gguf = NULL}};

static const ht_tensor_spec v3_router[] = {{AT(router), "mlp.router.gate", "ffn_gate_inp", HT_EXTENT_EXPERTS,
                                            HT_EXTENT_HIDDEN, .has = ht_decoder_has_experts, .module = "mlp.gate"},
                                           {AT(router_bias), "mlp.expert_bias", "exp_probs_b",
                                            .rows = HT_EXTENT_EXPERTS, .has = ht_decoder_has_experts, .bare = true},
                                           {.gguf = NULL}};
#undef AT

const ht_family ht_family_hunyuan_dense = {.architecture = "hunyuan-dense",
                                           .model_types = {"hunyuan_v1_dense"},
                                           .class_name = "HunYuanDenseV1ForCausalLM",
                                           .defaults = {HT_LLAMA_SIZES, .feed_forward = 11008, .vocab = 290943,
                                                        .context = 2048, HT_LLAMA_LIKE("silu"), .norm_eps = 1e-5,
                                                        .rope_theta = 10000},
                                           .activate = ht_silu,
                                           .head_norm_after_rope = true,
                                           .layer = {ht_decoder_norm_specs, ht_decoder_attention_specs, head_norms,
                                                     ht_decoder_mlp_norm_specs, ht_decoder_mlp_specs},
                                           HT_DECODER_RUNS};

const ht_family ht_family_hunyuan_moe = {
    .architecture = "hunyuan-moe",
    .model_types = {"hunyuan_v1_moe"},
    .class_name = "HunYuanMoEV1ForCausalLM",
    .defaults = {HT_LLAMA_SIZES, .feed_forward = 11008, .vocab = 290943, .context = 2048, HT_LLAMA_LIKE("silu"),
                 .norm_eps = 1e-5, .rope_theta = 10000, .n_experts = 1, .experts_used = 1, .n_shared = 1,
                 .experts_used_field = "moe_topk", .shared_field = "num_shared_expert",
                 .routing = {.normalized = true}},
    .activate = ht_silu,
    .head_norm_after_rope = true,
    .layer = {ht_decoder_norm_specs, ht_decoder_attention_specs, head_norms, ht_decoder_mlp_norm_specs, moe_router,
              ht_decoder_expert_specs, shared_mlp},
    HT_DECODER_RUNS};

static void write_v3(const ht_config *c, ht_document *d) {
    ht_document_set(d, "router_scaling_factor", ht_json_real(ht_short_decimal((double)c->routing.scale)));
    ht_convert_set_mlp_types(c, d);
}

const ht_family ht_family_hy_v3 = {.architecture = "hy_v3",
                                   .model_types = {"hy_v3"},
                                   .class_name = "HYV3ForCausalLM",
                                   .defaults = {.n_layers = 80,
                                                .hidden = 4096,
                                                .n_heads = 64,
                                                .n_kv_heads = 8,
                                                .head_dim = 128,
                                                .feed_forward = 13312,
                                                .vocab = 120832,
                                                .context = 131072,
                                                HT_LLAMA_LIKE("silu"),
                                                .norm_eps = 1e-5,
                                                .rope_theta = 11158840,
                                                .n_experts = 192,
                                                .experts_used = 8,
                                                .expert_feed_forward = 1536,
                                                .n_shared = 1,
                                                .n_dense = 1,
                                                .shared_field = "num_shared_experts",
                                                .routing = {HT_ROUTER_SIGMOID, .normalized = true, .scale = 2.826f}},
                                   .write_json = write_v3,
                                   .activate = ht_silu,
                                   .layer = {ht_decoder_norm_specs, ht_decoder_attention_specs,
                                             ht_decoder_head_norm_specs, ht_decoder_mlp_norm_specs,
                                             ht_decoder_mlp_specs, v3_router, ht_decoder_expert_specs, v3_shared_mlp},
                                   HT_DECODER_RUNS};
