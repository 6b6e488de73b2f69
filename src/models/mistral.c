/* Mistral: Llama with an optional sliding window in all layers. Ministral: in some layers. Ministral 3: a temperature of
 * queries by position. Mixtral: experts instead of the feed-forward. */
#include "models/decoder.h"
#include "models/registry.h"

#include <string.h>

#define SIZES HT_LLAMA_SIZES, .n_kv_heads = 8, .feed_forward = 14336, .context = 131072

static const ht_config_field window_of_4096[] = {{HT_FIELD(I64, window, "sliding_window", NULL, 4096)}, {.json = NULL}},
                             window_if_stated[] = {{HT_FIELD(I64, window, "sliding_window", NULL, 0)}, {.json = NULL}};

static void read_json(ht_config *c, ht_json_reader *r, const ht_json *object) {
    (void)r, (void)object;
    c->q_bias = c->out_bias = c->mlp_bias = false;
}

/* A GGUF Mistral has the architecture llama. */
const ht_family ht_family_mistral = {.architecture = "mistral",
                                     .gguf_architecture = "llama",
                                     .model_types = {"mistral", "ministral"},
                                     .class_name = "MistralForCausalLM",
                                     .defaults = {SIZES, .vocab = 32000, HT_LLAMA_DEFAULTS},
                                     .fields = window_of_4096,
                                     .read_json = read_json,
                                     .gguf_interleaves = true,
                                     .slides_everywhere = true,
                                     HT_LLAMA_RUNS};

static const ht_config_field ministral3_fields[] = {
    {HT_FIELD(I64, window, "sliding_window", NULL, 0)},
    {HT_FIELD(F32, query_beta, NULL, "attention.temperature_scale", 0)},
    {HT_FIELD(I64, query_period, NULL, "rope.scaling.original_context_length", 0)},
    {.json = NULL}};

/* The temperature is among the RoPE parameters. */
void ht_decoder_read_temperature(ht_config *c, ht_json_reader *r, const ht_json *object) {
    const ht_json *rope = ht_json_object(r, object, "rope_parameters");
    double beta = 0;
    if (!rope) rope = ht_json_object(r, object, "rope_scaling");
    ht_json_f64(r, rope, "llama_4_scaling_beta", &beta);
    c->query_beta = (float)beta;
    if (beta != 0) c->query_period = c->context;
    if (beta != 0) ht_json_i64(r, rope, "original_max_position_embeddings", &c->query_period);
}

static void read_ministral3(ht_config *c, ht_json_reader *r, const ht_json *object) {
    ht_decoder_read_temperature(c, r, object);
    read_json(c, r, object);
}

const ht_family ht_family_mistral3 = {.architecture = "mistral3",
                                      .model_types = {"ministral3"},
                                      .class_name = "Ministral3ForCausalLM",
                                      .defaults = {.n_layers = 34,
                                                   .hidden = 4096,
                                                   .n_heads = 32,
                                                   .n_kv_heads = 8,
                                                   .head_dim = 128,
                                                   .feed_forward = 14336,
                                                   .vocab = 131072,
                                                   .context = 262144,
                                                   HT_LLAMA_LIKE("silu"),
                                                   .norm_eps = 1e-5,
                                                   .rope_theta = 1000000},
                                      .fields = ministral3_fields,
                                      .read_json = read_ministral3,
                                      .gguf_interleaves = true,
                                      .slides_everywhere = true,
                                      HT_LLAMA_RUNS};

/* In GGUF, the architecture llama with experts. */
const ht_family ht_family_mixtral = {
    .architecture = "mixtral",
    .gguf_architecture = "llama",
    .model_types = {"mixtral"},
    .class_name = "MixtralForCausalLM",
    .defaults = {SIZES, .vocab = 32000, HT_LLAMA_LIKE("silu"), .norm_eps = 1e-5, .rope_theta = 1000000, .n_experts = 8,
                 .experts_used = 2, .experts_field = "num_local_experts", .routing = {.normalized = true}},
    .fields = window_if_stated,
    .read_json = read_json,
    .gguf_interleaves = true,
    .slides_everywhere = true,
    .experts = HT_EXPERTS_SPARSE,
    .activate = ht_silu,
    .layer = {ht_decoder_norm_specs, ht_decoder_attention_specs, ht_decoder_mlp_norm_specs,
              ht_decoder_sparse_router_specs, ht_decoder_expert_specs},
    HT_DECODER_RUNS};
