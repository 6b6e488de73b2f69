/* Granite: Llama's blocks with multipliers of embeddings, attention, residuals and logits; with experts in its MoE
 * variant. */
#include "models/decoder.h"
#include "models/registry.h"

static const ht_config_field fields[] = {
    {HT_FIELD(F32, embedding_scale, "embedding_multiplier", "embedding_scale", 1)},
    {HT_FIELD(F32, residual_scale, "residual_multiplier", "residual_scale", 1)},
    {HT_FIELD(F32, attention_scale, "attention_multiplier", "attention.scale", 1)},
    {HT_FIELD(F32, logit_scale, "logits_scaling", "logit_scale", 1), .is_inverse = true},
    {.json = NULL}};

#define SIZES HT_LLAMA_SIZES, .feed_forward = 11008, .vocab = 32000, .context = 2048, HT_LLAMA_DEFAULTS

const ht_family ht_family_granite = {.architecture = "granite",
                                     .model_types = {"granite"},
                                     .class_name = "GraniteForCausalLM",
                                     .defaults = {SIZES},
                                     .fields = fields,
                                     .gguf_interleaves = true,
                                     HT_LLAMA_RUNS};

#define AT(field) offsetof(ht_decoder_layer, field)
static const ht_tensor_spec router[] = {{AT(router), "block_sparse_moe.router.layer", "ffn_gate_inp", HT_EXTENT_EXPERTS,
                                         HT_EXTENT_HIDDEN, .has = ht_decoder_has_experts},
                                        {.gguf = NULL}};
#undef AT

const ht_family ht_family_granitemoe = {.architecture = "granitemoe",
                                        .model_types = {"granitemoe"},
                                        .class_name = "GraniteMoeForCausalLM",
                                        .defaults = {SIZES, .n_experts = 8, .experts_used = 2,
                                                     .experts_field = "num_local_experts",
                                                     .routing = {HT_ROUTER_CHOSEN_SOFTMAX}},
                                        .fields = fields,
                                        .gguf_interleaves = true,
                                        .experts = HT_EXPERTS_LINEAR,
                                        .activate = ht_silu,
                                        .layer = {ht_decoder_norm_specs, ht_decoder_attention_specs,
                                                  ht_decoder_mlp_norm_specs, router, ht_decoder_expert_specs},
                                        HT_DECODER_RUNS};
