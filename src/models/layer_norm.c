/* Families of LayerNorm blocks: StableLM, StarCoder2, Nemotron and GPT-2. */
#include "checkpoint/convert_metadata.h"
#include "models/decoder.h"
#include "models/registry.h"

/* ---- StableLM: a gated feed-forward, after attention or parallel to it; RoPE of a part of each head ---- */

#define AT(field) offsetof(ht_decoder_layer, field)
static bool is_sequential(const ht_config *c, int64_t layer) {
    (void)layer;
    return !c->parallel;
}

static const ht_tensor_spec stablelm_norm[] = {{AT(mlp_norm), "post_attention_layernorm", "ffn_norm",
                                                .rows = HT_EXTENT_HIDDEN, .bias = HT_BIAS_NORM, .has = is_sequential},
                                               {.gguf = NULL}};

static const ht_tensor_spec stablelm_head_norms[] = {
    {AT(q_norm), "self_attn.q_layernorm", "attn_q_norm", .rows = HT_EXTENT_Q, .has = ht_decoder_has_head_norms,
     .per_head = true},
    {AT(k_norm), "self_attn.k_layernorm", "attn_k_norm", .rows = HT_EXTENT_KV, .has = ht_decoder_has_head_norms,
     .per_head = true},
    {.gguf = NULL}};

static const ht_config_field stablelm_fields[] = {
    {HT_FIELD(BOOL, head_norms, "qk_layernorm", NULL, 0)},
    {HT_FIELD(BOOL, parallel, "use_parallel_residual", "use_parallel_residual", 0)},
    {HT_FIELD(BOOL, q_bias, "use_qkv_bias", NULL, 0)},
    {.json = NULL}};

static void read_stablelm(ht_config *c, ht_json_reader *r, const ht_json *object) {
    (void)r, (void)object;
    c->out_bias = c->mlp_bias = false;
}

const ht_family ht_family_stablelm = {.architecture = "stablelm",
                                      .model_types = {"stablelm", "stablelm_epoch"},
                                      .class_name = "StableLmForCausalLM",
                                      .defaults = {.n_layers = 32,
                                                   .hidden = 2560,
                                                   .n_heads = 32,
                                                   .feed_forward = 6912,
                                                   .vocab = 50304,
                                                   .context = 4096,
                                                   HT_LLAMA_LIKE("silu"),
                                                   .norm_eps = 1e-5,
                                                   .norm_eps_field = "layer_norm_eps",
                                                   .rope_theta = 10000,
                                                   .rotated_share = 0.25,
                                                   .norm_bias = true},
                                      .fields = stablelm_fields,
                                      .read_json = read_stablelm,
                                      .head_norm = HT_HEAD_NORM_OWN,
                                      .activate = ht_silu,
                                      .layer_norm = true,
                                      .layer = {ht_decoder_norm_specs, ht_decoder_attention_specs, stablelm_head_norms,
                                                stablelm_norm, ht_decoder_mlp_specs},
                                      HT_DECODER_RUNS};

/* ---- StarCoder2: biases everywhere, an ungated feed-forward, and an optional sliding window ---- */

static const ht_tensor_spec starcoder2_mlp[] = {
    {AT(up), "mlp.c_fc", "ffn_up", HT_EXTENT_FEED_FORWARD, HT_EXTENT_HIDDEN, .bias = HT_BIAS_MLP},
    {AT(down), "mlp.c_proj", "ffn_down", HT_EXTENT_HIDDEN, HT_EXTENT_FEED_FORWARD, .bias = HT_BIAS_MLP},
    {.gguf = NULL}};
#undef AT

static const ht_config_field starcoder2_fields[] = {
    {HT_FIELD(I64, window, "sliding_window", "attention.sliding_window", 0)},
    {HT_FIELD(BOOL, q_bias, "use_bias", NULL, 1)},
    {HT_FIELD(BOOL, out_bias, "use_bias", NULL, 1)},
    {HT_FIELD(BOOL, mlp_bias, "use_bias", NULL, 1)},
    {.json = NULL}};

const ht_family ht_family_starcoder2 = {
    .architecture = "starcoder2",
    .model_types = {"starcoder2"},
    .class_name = "Starcoder2ForCausalLM",
    .defaults = {.n_layers = 30,
                 .hidden = 3072,
                 .n_heads = 24,
                 .n_kv_heads = 2,
                 .feed_forward = 12288,
                 .vocab = 49152,
                 .context = 4096,
                 .tied_head = true,
                 HT_LLAMA_LIKE("gelu_pytorch_tanh"),
                 .norm_eps = 1e-5,
                 .norm_eps_field = "norm_epsilon",
                 .rope_theta = 10000,
                 .norm_bias = true},
    .fields = starcoder2_fields,
    .slides_everywhere = true,
    .activate = ht_gelu_tanh,
    .layer_norm = true,
    .layer = {ht_decoder_norm_specs, ht_decoder_attention_specs, ht_decoder_mlp_norm_specs, starcoder2_mlp},
    HT_DECODER_RUNS};

/* ---- Nemotron: gains of 1 + weight, relu(x)^2 without a gate, RoPE of half of each head ---- */

const ht_family ht_family_nemotron = {.architecture = "nemotron",
                                      .model_types = {"nemotron"},
                                      .class_name = "NemotronForCausalLM",
                                      .defaults = {.n_layers = 32,
                                                   .hidden = 6144,
                                                   .n_heads = 48,
                                                   .head_dim = 128,
                                                   .feed_forward = 24576,
                                                   .vocab = 256000,
                                                   .context = 4096,
                                                   HT_LLAMA_LIKE("relu2"),
                                                   .norm_eps = 1e-5,
                                                   .norm_eps_field = "norm_eps",
                                                   .rope_theta = 10000,
                                                   .rotated_share = 0.5,
                                                   .norm_bias = true},
                                      .activate = ht_decoder_relu_squared,
                                      .layer_norm = true,
                                      .norm_offset = 1,
                                      .layer = {ht_decoder_norm_specs, ht_decoder_attention_specs,
                                                ht_decoder_mlp_norm_specs, ht_decoder_ungated_mlp_specs},
                                      HT_DECODER_RUNS};

/* ---- GPT-2: a table of positions instead of RoPE, q, k and v in one matrix; safetensors hold matrices transposed ---- */

typedef struct gpt2_around {
    ht_weight positions; /* [context, hidden] */
} gpt2_around;

#define AT(field) offsetof(ht_decoder_layer, field)
static const ht_tensor_spec gpt2_specs[] = {
    {AT(attention_norm), "ln_1", "attn_norm", .rows = HT_EXTENT_HIDDEN, .bias = HT_BIAS_NORM},
    {AT(qkv), "attn.c_attn", "attn_qkv", HT_EXTENT_QKV, HT_EXTENT_HIDDEN, .bias = HT_BIAS_Q, .transposed = true},
    {AT(out), "attn.c_proj", "attn_output", HT_EXTENT_HIDDEN, HT_EXTENT_Q, .bias = HT_BIAS_OUT, .transposed = true},
    {AT(mlp_norm), "ln_2", "ffn_norm", .rows = HT_EXTENT_HIDDEN, .bias = HT_BIAS_NORM},
    {AT(up), "mlp.c_fc", "ffn_up", HT_EXTENT_FEED_FORWARD, HT_EXTENT_HIDDEN, .bias = HT_BIAS_MLP, .transposed = true},
    {AT(down), "mlp.c_proj", "ffn_down", HT_EXTENT_HIDDEN, HT_EXTENT_FEED_FORWARD, .bias = HT_BIAS_MLP,
     .transposed = true},
    {.gguf = NULL}};
#undef AT

static const ht_tensor_spec gpt2_around_specs[] = {
    {offsetof(gpt2_around, positions), "wpe", "position_embd", HT_EXTENT_CONTEXT, HT_EXTENT_HIDDEN, .looked_up = true},
    {.gguf = NULL}};

static void read_gpt2(ht_config *c, ht_json_reader *r, const ht_json *object) {
    (void)r, (void)object;
    for (int64_t i = 0; i < c->n_layers; i++) c->layer[i].no_rope = true;
}

static void write_gpt2(const ht_config *c, ht_document *d) {
    ht_document_set(d, "n_layer", ht_json_integer(c->n_layers));
    ht_document_set(d, "n_embd", ht_json_integer(c->hidden));
    ht_document_set(d, "n_head", ht_json_integer(c->n_heads));
    ht_document_set(d, "n_inner", ht_json_integer(c->feed_forward));
    ht_document_set(d, "n_positions", ht_json_integer(c->context));
    ht_document_set(d, "n_ctx", ht_json_integer(c->context));
}

static void read_gpt2_gguf(ht_config *c, ht_meta *m) {
    (void)m;
    for (int64_t i = 0; i < c->n_layers; i++) c->layer[i].no_rope = true;
}

static ht_array *forward_gpt2(ht_ctx *c, const void *model) {
    const ht_decoder_weights *m = model;
    const gpt2_around *a = m->around;
    ht_array *pos = ht_batch_positions(c);
    ht_array *h = ht_add(c->s, ht_decoder_embed(c, m), ht_embed(c, pos, &a->positions, 1));
    return ht_decoder_layers(c, m, h, pos);
}

const ht_family ht_family_gpt2 = {.architecture = "gpt2",
                                  .model_types = {"gpt2"},
                                  .class_name = "GPT2LMHeadModel",
                                  .defaults = {.n_layers = 12,
                                               .hidden = 768,
                                               .n_heads = 12,
                                               .vocab = 50257,
                                               .context = 1024,
                                               .tied_head = true,
                                               .activation_field = "activation_function",
                                               .activation = "gelu_new",
                                               .norm_eps = 1e-5,
                                               .norm_eps_field = "layer_norm_epsilon",
                                               .rope_theta = 10000,
                                               .q_bias = true,
                                               .out_bias = true,
                                               .mlp_bias = true,
                                               .norm_bias = true},
                                  .read_json = read_gpt2,
                                  .write_json = write_gpt2,
                                  .read_gguf = read_gpt2_gguf,
                                  .activate = ht_gelu_tanh,
                                  .layer_norm = true,
                                  .layers_name = "h",
                                  .embedding_name = "wte",
                                  .final_norm_name = "ln_f",
                                  .layer = {gpt2_specs},
                                  .layer_bytes = sizeof(ht_decoder_layer),
                                  .around = gpt2_around_specs,
                                  .around_bytes = sizeof(gpt2_around),
                                  .forward = forward_gpt2};
