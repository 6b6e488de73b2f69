/* Llama: pre-norm blocks of grouped-query attention with RoPE and a SwiGLU feed-forward. Mistral: Llama with an
 * optional sliding window in all layers. */
#include "models/decoder.h"
#include "models/registry.h"

const ht_family ht_family_llama = {
    .architecture = "llama",
    .model_types = {"llama"},
    .class_name = "LlamaForCausalLM",
    .form = HT_CONFIG_LLAMA,
    .defaults = {HT_LLAMA_SIZES, .feed_forward = 11008, .vocab = 32000, .context = 2048, HT_LLAMA_DEFAULTS},
    .gguf_interleaves = true,
    HT_LLAMA_RUNS};

/* A GGUF Mistral has the architecture llama. */
static void read_mistral(ht_config *c, ht_json_reader *r, const ht_json *object) {
    c->q_bias = c->out_bias = c->mlp_bias = false;
    c->window = ht_json_is_null(ht_json_object_get(object, "sliding_window")) ? 0 : 4096;
    ht_json_i64(r, object, "sliding_window", &c->window);
    for (int64_t i = 0; i < c->n_layers; i++) c->layer[i].slides = c->window > 0;
}

const ht_family ht_family_mistral = {.architecture = "mistral",
                                     .gguf_architecture = "llama",
                                     .model_types = {"mistral"},
                                     .defaults = {HT_LLAMA_SIZES, .n_kv_heads = 8, .feed_forward = 14336,
                                                  .vocab = 32000, .context = 131072, HT_LLAMA_DEFAULTS},
                                     .read_json = read_mistral,
                                     .gguf_interleaves = true,
                                     HT_LLAMA_RUNS};
