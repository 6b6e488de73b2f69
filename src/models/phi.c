/* Phi-3, Phi-3.5 and Phi-4: Llama's blocks with q, k and v in one matrix, gate and up in another. Phi-3.5 MoE: LayerNorms,
 * and experts chosen by a sparse mixer. Phi-2: attention and an ungated feed-forward side by side, after one LayerNorm. */
#include "checkpoint/convert_metadata.h"
#include "models/decoder.h"
#include "models/registry.h"

#define AT(field) offsetof(ht_decoder_layer, field)
static const ht_tensor_spec phi2_specs[] = {
    {AT(attention_norm), "input_layernorm", "attn_norm", .rows = HT_EXTENT_HIDDEN, .bias = HT_BIAS_NORM},
    {AT(q), "self_attn.q_proj", "attn_q", HT_EXTENT_Q, HT_EXTENT_HIDDEN, .bias = HT_BIAS_Q},
    {AT(k), "self_attn.k_proj", "attn_k", HT_EXTENT_KV, HT_EXTENT_HIDDEN, .bias = HT_BIAS_Q},
    {AT(v), "self_attn.v_proj", "attn_v", HT_EXTENT_KV, HT_EXTENT_HIDDEN, .bias = HT_BIAS_Q},
    {AT(out), "self_attn.dense", "attn_output", HT_EXTENT_HIDDEN, HT_EXTENT_Q, .bias = HT_BIAS_OUT},
    {AT(up), "mlp.fc1", "ffn_up", HT_EXTENT_FEED_FORWARD, HT_EXTENT_HIDDEN, .bias = HT_BIAS_MLP},
    {AT(down), "mlp.fc2", "ffn_down", HT_EXTENT_HIDDEN, HT_EXTENT_FEED_FORWARD, .bias = HT_BIAS_MLP},
    {.gguf = NULL}};
#undef AT

static void read_phi2(ht_config *c, ht_json_reader *r, const ht_json *object) {
    bool has_norms = false;
    (void)c;
    if (ht_json_bool(r, object, "qk_layernorm", &has_norms) && has_norms)
        ht_json_fail(r, HT_ERR_UNSUPPORTED, "`qk_layernorm` is true; only false is supported");
}

const ht_family ht_family_phi2 = {.architecture = "phi2",
                                  .model_types = {"phi", "phi-msft"},
                                  .class_name = "PhiForCausalLM",
                                  .defaults = {.n_layers = 24,
                                               .hidden = 2048,
                                               .n_heads = 32,
                                               .feed_forward = 8192,
                                               .vocab = 51200,
                                               .context = 2048,
                                               HT_LLAMA_LIKE("gelu_new"),
                                               .norm_eps = 1e-5,
                                               .norm_eps_field = "layer_norm_eps",
                                               .rope_theta = 10000,
                                               .rotated_share = 0.5,
                                               .q_bias = true,
                                               .out_bias = true,
                                               .mlp_bias = true,
                                               .norm_bias = true,
                                               .head_bias = true},
                                  .read_json = read_phi2,
                                  .parallel = true,
                                  .activate = ht_gelu_tanh,
                                  .layer_norm = true,
                                  .final_norm_name = "final_layernorm",
                                  .layer = {phi2_specs},
                                  HT_DECODER_RUNS};

static const ht_config_field phi3_fields[] = {{HT_FIELD(I64, window, "sliding_window", "attention.sliding_window", 0)},
                                              {.json = NULL}};

const ht_family ht_family_phi3 = {
    .architecture = "phi3",
    .model_types = {"phi3"},
    .class_name = "Phi3ForCausalLM",
    .defaults = {.n_layers = 32,
                 .hidden = 3072,
                 .n_heads = 32,
                 .feed_forward = 8192,
                 .vocab = 32064,
                 .context = 4096,
                 HT_LLAMA_LIKE("silu"),
                 .norm_eps = 1e-5,
                 .rope_theta = 10000},
    .fields = phi3_fields,
    .slides_everywhere = true,
    .activate = ht_silu,
    .layer = {ht_decoder_norm_specs, ht_decoder_qkv_specs, ht_decoder_mlp_norm_specs, ht_decoder_gate_up_specs},
    HT_DECODER_RUNS};

static const ht_config_field phimoe_fields[] = {
    {HT_FIELD(I64, window, "sliding_window", "attention.sliding_window", 0)},
    {HT_FIELD(BOOL, head_bias, "lm_head_bias", NULL, 0)},
    {HT_FIELD(F32, routing.jitter, "router_jitter_noise", NULL, 0.01)},
    {.json = NULL}};

/* The key of files that hold the epsilon of these LayerNorms. */
static void write_phimoe(const ht_config *c, ht_document *d) {
    ht_gguf_put(d, c, "attention.layer_norm_rms_epsilon", ht_gguf_f32((double)c->norm_eps));
}

#define AT(field) offsetof(ht_decoder_layer, field)
static const ht_tensor_spec phimoe_router[] = {{AT(router), "block_sparse_moe.gate", "ffn_gate_inp", HT_EXTENT_EXPERTS,
                                                HT_EXTENT_HIDDEN, .has = ht_decoder_has_experts,
                                                .module = "mlp.router"},
                                               {.gguf = NULL}};
#undef AT

const ht_family ht_family_phimoe = {.architecture = "phimoe",
                                    .model_types = {"phimoe"},
                                    .class_name = "PhiMoEForCausalLM",
                                    .defaults = {.n_layers = 32,
                                                 .hidden = 4096,
                                                 .n_heads = 32,
                                                 .n_kv_heads = 8,
                                                 .feed_forward = 6400,
                                                 .vocab = 32064,
                                                 .context = 131072,
                                                 HT_LLAMA_LIKE("silu"),
                                                 .norm_eps = 1e-5,
                                                 .rope_theta = 1000000,
                                                 .n_experts = 16,
                                                 .experts_used = 2,
                                                 .experts_field = "num_local_experts",
                                                 .routing = {HT_ROUTER_SPARSE_MIXER, .jitter = 0.01f},
                                                 .norm_bias = true},
                                    .fields = phimoe_fields,
                                    .write_gguf = write_phimoe,
                                    .slides_everywhere = true,
                                    .layer_norm = true,
                                    .experts = HT_EXPERTS_SPARSE,
                                    .activate = ht_silu,
                                    .layer = {ht_decoder_norm_specs, ht_decoder_attention_specs,
                                              ht_decoder_mlp_norm_specs, phimoe_router, ht_decoder_expert_specs},
                                    HT_DECODER_RUNS};
