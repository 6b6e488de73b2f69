/* Llama: pre-norm blocks of grouped-query attention with RoPE and a SwiGLU feed-forward; and families that differ from
 * it in one part. */
#include "checkpoint/convert_metadata.h"
#include "models/decoder.h"
#include "models/registry.h"

const ht_family ht_family_llama = {
    .architecture = "llama",
    .model_types = {"llama", "smolvlm", "idefics3"},
    .class_name = "LlamaForCausalLM",
    .defaults = {HT_LLAMA_SIZES, .feed_forward = 11008, .vocab = 32000, .context = 2048, HT_LLAMA_DEFAULTS},
    .gguf_interleaves = true,
    HT_LLAMA_RUNS};

/* SmolLM3: every fourth layer has no RoPE. */
static void skip_rope(ht_config *c, int64_t interval) {
    for (int64_t i = 0; i < c->n_layers; i++) c->layer[i].no_rope = interval > 0 && (i + 1) % interval == 0;
}

static void read_smollm3(ht_config *c, ht_json_reader *r, const ht_json *object) {
    int64_t interval = 4, rotates;
    const ht_json *layers = ht_json_array(r, object, "no_rope_layers");
    ht_json_i64(r, object, "no_rope_layer_interval", &interval);
    skip_rope(c, interval);
    for (int64_t i = 0; layers && i < c->n_layers; i++)
        if (!ht_json_whole(ht_json_array_get(layers, (size_t)i), &rotates))
            ht_json_fail(r, HT_ERR_FORMAT, "`no_rope_layers` does not say for each of %lld layers whether it has RoPE",
                         (long long)c->n_layers);
        else
            c->layer[i].no_rope = rotates == 0;
    bool slides = false;
    if (ht_json_bool(r, object, "use_sliding_window", &slides) && slides)
        ht_json_i64(r, object, "sliding_window", &c->window);
}

static void write_smollm3(const ht_config *c, ht_document *d) {
    ht_json *rotates = ht_json_new_array();
    for (int64_t i = 0; i < c->n_layers; i++) ht_list_append(&rotates, ht_json_integer(!c->layer[i].no_rope));
    ht_document_set(d, "no_rope_layers", rotates);
}

static void read_smollm3_gguf(ht_config *c, ht_meta *m) {
    (void)m;
    skip_rope(c, 4);
}

const ht_family ht_family_smollm3 = {.architecture = "smollm3",
                                     .model_types = {"smollm3"},
                                     .class_name = "SmolLM3ForCausalLM",
                                     .defaults = {.n_layers = 36,
                                                  .hidden = 2048,
                                                  .n_heads = 16,
                                                  .n_kv_heads = 4,
                                                  .feed_forward = 11008,
                                                  .vocab = 128256,
                                                  .context = 32768,
                                                  .tied_head = true,
                                                  HT_LLAMA_LIKE("silu"),
                                                  .norm_eps = 1e-6,
                                                  .rope_theta = 2000000},
                                     .read_json = read_smollm3,
                                     .write_json = write_smollm3,
                                     .read_gguf = read_smollm3_gguf,
                                     .gguf_interleaves = true,
                                     HT_LLAMA_RUNS};

/* Arcee: relu(x)^2 without a gate. */
const ht_family ht_family_arcee = {.architecture = "arcee",
                                   .model_types = {"arcee"},
                                   .class_name = "ArceeForCausalLM",
                                   .defaults = {.n_layers = 32,
                                                .hidden = 2560,
                                                .n_heads = 32,
                                                .n_kv_heads = 32,
                                                .feed_forward = 18432,
                                                .vocab = 32000,
                                                .context = 4096,
                                                HT_LLAMA_LIKE("relu2"),
                                                .norm_eps = 1e-5,
                                                .rope_theta = 10000},
                                   .gguf_interleaves = true,
                                   .activate = ht_decoder_relu_squared,
                                   .layer = {ht_decoder_norm_specs, ht_decoder_attention_specs,
                                             ht_decoder_mlp_norm_specs, ht_decoder_ungated_mlp_specs},
                                   HT_DECODER_RUNS};

/* Seed-OSS: biases of q, k and v; the output's is optional. */
static const ht_config_field seed_oss_fields[] = {{HT_FIELD(BOOL, out_bias, "attention_out_bias", NULL, 0)},
                                                  {.json = NULL}};

#define AT(field) offsetof(ht_decoder_layer, field)
static const ht_tensor_spec seed_oss_norm[] = {
    {AT(mlp_norm), "post_attention_layernorm", "post_attention_norm", .rows = HT_EXTENT_HIDDEN}, {.gguf = NULL}};
#undef AT

const ht_family ht_family_seed_oss = {
    .architecture = "seed_oss",
    .model_types = {"seed_oss"},
    .class_name = "SeedOssForCausalLM",
    .defaults = {.n_layers = 64,
                 .hidden = 4096,
                 .n_heads = 80,
                 .n_kv_heads = 8,
                 .head_dim = 128,
                 .feed_forward = 27648,
                 .vocab = 155136,
                 .context = 524288,
                 .q_bias = true,
                 HT_LLAMA_DEFAULTS},
    .fields = seed_oss_fields,
    .activate = ht_silu,
    .layer = {ht_decoder_norm_specs, ht_decoder_attention_specs, seed_oss_norm, ht_decoder_mlp_specs},
    HT_DECODER_RUNS};
