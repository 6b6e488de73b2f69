/* gpt-oss: attention sinks and biases, sliding windows in every second layer, and experts with biases, whose gate and up
 * are clamped and whose rows alternate in safetensors. */
#include "models/decoder.h"
#include "models/registry.h"

#define AT(field) offsetof(ht_decoder_layer, field)
static const ht_tensor_spec specs[] = {
    {AT(sinks), "self_attn.sinks", "attn_sinks.weight", .rows = HT_EXTENT_HEADS, .bare = true},
    {AT(mlp_norm), "post_attention_layernorm", "post_attention_norm", .rows = HT_EXTENT_HIDDEN},
    {AT(router), "mlp.router", "ffn_gate_inp", HT_EXTENT_EXPERTS, HT_EXTENT_HIDDEN, .bias = HT_BIAS_MLP},
    {AT(expert_gate), "experts.gate_proj", "ffn_gate_exps", HT_EXTENT_EXPERT_FEED_FORWARD, HT_EXTENT_HIDDEN,
     .expert = HT_EXPERT_GATE, .alternates = true, .transposed = true},
    {AT(expert_up), "experts.up_proj", "ffn_up_exps", HT_EXTENT_EXPERT_FEED_FORWARD, HT_EXTENT_HIDDEN,
     .expert = HT_EXPERT_UP, .alternates = true, .transposed = true},
    {AT(expert_down), "experts.down_proj", "ffn_down_exps", HT_EXTENT_HIDDEN, HT_EXTENT_EXPERT_FEED_FORWARD,
     .expert = HT_EXPERT_DOWN, .transposed = true},
    {AT(expert_gate.bias), "mlp.experts.gate_proj.bias", "ffn_gate_exps.bias", .rows = HT_EXTENT_EXPERTS_FEED_FORWARD,
     .bare = true, .row = HT_EXTENT_EXPERT_FEED_FORWARD, .transformers = "mlp.experts.gate_up_proj_bias", .share = 0,
     .n_shares = 2, .alternates = true},
    {AT(expert_up.bias), "mlp.experts.up_proj.bias", "ffn_up_exps.bias", .rows = HT_EXTENT_EXPERTS_FEED_FORWARD,
     .bare = true, .row = HT_EXTENT_EXPERT_FEED_FORWARD, .transformers = "mlp.experts.gate_up_proj_bias", .share = 1,
     .n_shares = 2, .alternates = true},
    {AT(expert_down.bias), "mlp.experts.down_proj.bias", "ffn_down_exps.bias", .rows = HT_EXTENT_EXPERTS_HIDDEN,
     .bare = true, .row = HT_EXTENT_HIDDEN, .transformers = "mlp.experts.down_proj_bias"},
    {.gguf = NULL}};
#undef AT

static const ht_config_field fields[] = {{HT_FIELD(I64, window, "sliding_window", "attention.sliding_window", 128)},
                                         {.json = NULL}};

static void read_json(ht_config *c, ht_json_reader *r, const ht_json *object) {
    double limit = 7, alpha = 1.702;
    c->mlp_bias = true;
    ht_config_slide_by_pattern(c, 2);
    ht_json_f64(r, object, "swiglu_limit", &limit);
    ht_json_f64(r, object, "swiglu_alpha", &alpha);
    if (limit != 7 || alpha != 1.702)
        ht_json_fail(r, HT_ERR_UNSUPPORTED, "`swiglu_limit` is %g and `swiglu_alpha` %g; 7 and 1.702 are supported",
                     limit, alpha);
}

/* GGUF does not say that the bounds of yarn's ramp are not rounded. */
static void read_gguf(ht_config *c, ht_meta *m) {
    (void)m;
    c->mlp_bias = true;
    c->rope.no_truncate = true;
    ht_config_slide_by_pattern(c, 2);
}

/* (up + 1) * gate * sigmoid(1.702 * gate), of gate <= 7 and -7 <= up <= 7. */
static ht_array *combine(ht_scope *s, ht_array *gate, ht_array *up) {
    ht_array *most = ht_full(s, 7, HT_F32, NULL, 0), *least = ht_full(s, -7, HT_F32, NULL, 0);
    gate = ht_minimum(s, gate, most);
    up = ht_maximum(s, ht_minimum(s, up, most), least);
    ht_array *glu = ht_multiply(s, gate, ht_sigmoid(s, ht_scale(s, gate, 1.702f)));
    return ht_multiply(s, ht_add(s, up, ht_full(s, 1, HT_F32, NULL, 0)), glu);
}

const ht_family ht_family_gpt_oss = {.architecture = "gpt-oss",
                                     .model_types = {"gpt_oss"},
                                     .class_name = "GptOssForCausalLM",
                                     .defaults = {.n_layers = 36,
                                                  .hidden = 2880,
                                                  .n_heads = 64,
                                                  .n_kv_heads = 8,
                                                  .head_dim = 64,
                                                  .feed_forward = 2880,
                                                  .vocab = 201088,
                                                  .context = 131072,
                                                  HT_LLAMA_LIKE("silu"),
                                                  .norm_eps = 1e-5,
                                                  .rope_theta = 150000,
                                                  .q_bias = true,
                                                  .out_bias = true,
                                                  .n_experts = 128,
                                                  .experts_used = 4,
                                                  .experts_field = "num_local_experts",
                                                  .routing = {.scores = HT_ROUTER_CHOSEN_SOFTMAX}},
                                     .fields = fields,
                                     .read_json = read_json,
                                     .read_gguf = read_gguf,
                                     .activate = ht_silu,
                                     .combine = combine,
                                     .experts = HT_EXPERTS_UNSWITCHED,
                                     .layer = {ht_decoder_norm_specs, ht_decoder_attention_specs, specs},
                                     HT_DECODER_RUNS};
