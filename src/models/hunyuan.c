/* Hunyuan: Llama's blocks with norms of q and k per head after RoPE. */
#include "models/decoder.h"
#include "models/registry.h"

#define AT(field) offsetof(ht_decoder_layer, field)
static const ht_tensor_spec head_norms[] = {
    {AT(q_norm), "self_attn.query_layernorm", "attn_q_norm", .rows = HT_EXTENT_HEAD},
    {AT(k_norm), "self_attn.key_layernorm", "attn_k_norm", .rows = HT_EXTENT_HEAD},
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
