/* MiniMax M2: a mixture of experts in all layers, norms over the whole of q and k, and RoPE of a part of each head. */
#include "checkpoint/convert_metadata.h"
#include "models/decoder.h"
#include "models/registry.h"

#define AT(field) offsetof(ht_decoder_layer, field)
static const ht_tensor_spec router[] = {{AT(router), "block_sparse_moe.gate", "ffn_gate_inp", HT_EXTENT_EXPERTS,
                                         HT_EXTENT_HIDDEN, .has = ht_decoder_has_experts, .module = "mlp.gate"},
                                        {AT(router_bias), "block_sparse_moe.e_score_correction_bias",
                                         "exp_probs_b.bias", .rows = HT_EXTENT_EXPERTS, .bare = true},
                                        {.gguf = NULL}};
#undef AT

static const ht_config_field fields[] = {{HT_FIELD(I64, rope.dims, "rotary_dim", "rope.dimension_count", 0)},
                                         {.json = NULL}};

/* For mlx-lm, which requires it. */
static void write_json(const ht_config *c, ht_document *d) {
    ht_document_set(d, "shared_intermediate_size", ht_json_integer(c->shared_feed_forward));
}

const ht_family ht_family_minimax_m2 = {.architecture = "minimax-m2",
                                        .model_types = {"minimax_m2"},
                                        .class_name = "MiniMaxM2ForCausalLM",
                                        .defaults = {.n_layers = 62,
                                                     .hidden = 3072,
                                                     .n_heads = 48,
                                                     .n_kv_heads = 8,
                                                     .head_dim = 128,
                                                     .feed_forward = 1536,
                                                     .vocab = 200064,
                                                     .context = 196608,
                                                     HT_LLAMA_LIKE("silu"),
                                                     .norm_eps = 1e-6,
                                                     .rope_theta = 5000000,
                                                     .n_experts = 256,
                                                     .experts_used = 8,
                                                     .experts_field = "num_local_experts",
                                                     .routing = {HT_ROUTER_SIGMOID, .normalized = true}},
                                        .fields = fields,
                                        .write_json = write_json,
                                        .experts = HT_EXPERTS_SPARSE,
                                        .activate = ht_silu,
                                        .head_norm = HT_HEAD_NORM_WHOLE,
                                        .layer = {ht_decoder_norm_specs, ht_decoder_attention_specs,
                                                  ht_decoder_whole_head_norm_specs, ht_decoder_mlp_norm_specs, router,
                                                  ht_decoder_expert_specs},
                                        HT_DECODER_RUNS};
