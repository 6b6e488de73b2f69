/* Llama 4: layers of chunked attention with RoPE and norms of q and k without gains, every fourth layer with full
 * attention, no RoPE and a temperature of queries; experts, whose input is weighted, and a shared one in some layers. */
#include "checkpoint/convert_metadata.h"
#include "models/decoder.h"
#include "models/registry.h"

enum { INTERVAL = 4 }; /* of layers without RoPE */

#define AT(field) offsetof(ht_decoder_layer, field)
static const ht_tensor_spec specs[] = {
    {AT(gate), "feed_forward.gate_proj", "ffn_gate", HT_EXTENT_FEED_FORWARD, HT_EXTENT_HIDDEN,
     .has = ht_decoder_is_dense},
    {AT(up), "feed_forward.up_proj", "ffn_up", HT_EXTENT_FEED_FORWARD, HT_EXTENT_HIDDEN, .has = ht_decoder_is_dense},
    {AT(down), "feed_forward.down_proj", "ffn_down", HT_EXTENT_HIDDEN, HT_EXTENT_FEED_FORWARD,
     .has = ht_decoder_is_dense},
    {AT(router), "feed_forward.router", "ffn_gate_inp", HT_EXTENT_EXPERTS, HT_EXTENT_HIDDEN,
     .has = ht_decoder_has_experts},
    {AT(shared_gate), "feed_forward.shared_expert.gate_proj", "ffn_gate_shexp", HT_EXTENT_SHARED_FEED_FORWARD,
     HT_EXTENT_HIDDEN, .has = ht_decoder_has_experts},
    {AT(shared_up), "feed_forward.shared_expert.up_proj", "ffn_up_shexp", HT_EXTENT_SHARED_FEED_FORWARD,
     HT_EXTENT_HIDDEN, .has = ht_decoder_has_experts},
    {AT(shared_down), "feed_forward.shared_expert.down_proj", "ffn_down_shexp", HT_EXTENT_HIDDEN,
     HT_EXTENT_SHARED_FEED_FORWARD, .has = ht_decoder_has_experts},
    {AT(expert_gate), "experts.gate_proj", "ffn_gate_exps", HT_EXTENT_EXPERT_FEED_FORWARD, HT_EXTENT_HIDDEN,
     .has = ht_decoder_has_experts, .expert = HT_EXPERT_GATE, .transposed = true},
    {AT(expert_up), "experts.up_proj", "ffn_up_exps", HT_EXTENT_EXPERT_FEED_FORWARD, HT_EXTENT_HIDDEN,
     .has = ht_decoder_has_experts, .expert = HT_EXPERT_UP, .transposed = true},
    {AT(expert_down), "experts.down_proj", "ffn_down_exps", HT_EXTENT_HIDDEN, HT_EXTENT_EXPERT_FEED_FORWARD,
     .has = ht_decoder_has_experts, .expert = HT_EXPERT_DOWN, .transposed = true},
    {.gguf = NULL}};
#undef AT

static const ht_config_field fields[] = {{HT_FIELD(BOOL, head_norms, "use_qk_norm", NULL, 1)},
                                         {HT_FIELD(F32, query_beta, "attn_scale", NULL, 0.1)},
                                         {HT_FIELD(I64, query_period, "floor_scale", NULL, 8192)},
                                         {HT_FIELD(I64, window, "attention_chunk_size", "attention.chunk_size", 8192)},
                                         {.json = NULL}};

/* Layers without RoPE attend to all keys, the others within chunks. */
static void set_layers(ht_config *c) {
    c->query_shift = 1;
    for (int64_t i = 0; i < c->n_layers; i++) {
        c->layer[i].no_rope = (i + 1) % INTERVAL == 0;
        c->layer[i].slides = c->layer[i].chunked = c->window > 0 && !c->layer[i].no_rope;
    }
}

static void read_json(ht_config *c, ht_json_reader *r, const ht_json *object) {
    bool tempered = true;
    int64_t step = 1, wide = 16384, at;
    ht_json_bool(r, object, "attn_temperature_tuning", &tempered);
    ht_json_i64(r, object, "interleave_moe_layer_step", &step);
    ht_json_i64(r, object, "intermediate_size_mlp", &wide);
    if (!tempered) c->query_beta = 0;
    set_layers(c);
    const ht_json *list = ht_json_array(r, object, "moe_layers");
    for (int64_t i = 0; i < c->n_layers; i++)
        c->layer[i].has_experts = !list && c->n_experts > 0 && step > 0 && (i + 1) % step == 0;
    for (size_t i = 0; i < ht_json_array_size(list); i++)
        if (ht_json_whole(ht_json_array_get(list, i), &at) && at >= 0 && at < c->n_layers)
            c->layer[at].has_experts = c->n_experts > 0;
    for (int64_t i = 0; i < c->n_layers; i++) c->layer[i].feed_forward = c->layer[i].has_experts ? 0 : wide;
}

static void read_json_layers(ht_config *c, ht_json_reader *r, const ht_json *object) {
    const ht_json *rotates = ht_json_array(r, object, "no_rope_layers"),
                  *types = ht_json_array(r, object, "layer_types");
    int64_t flag;
    for (int64_t i = 0; rotates && i < c->n_layers; i++) {
        ht_layer_config *l = &c->layer[i];
        if (ht_json_whole(ht_json_array_get(rotates, (size_t)i), &flag)) l->no_rope = flag == 0;
        if (!types) l->slides = l->chunked = c->window > 0 && !l->no_rope;
    }
}

static void write_json(const ht_config *c, ht_document *d) {
    ht_json *rotates = ht_json_new_array(), *moe = ht_json_new_array();
    int64_t wide = c->feed_forward, step = 1;
    while (step < c->n_layers && !c->layer[step - 1].has_experts) step++;
    for (int64_t i = 0; i < c->n_layers; i++) {
        ht_list_append(&rotates, ht_json_integer(!c->layer[i].no_rope));
        if (c->layer[i].has_experts)
            ht_list_append(&moe, ht_json_integer(i));
        else
            wide = c->layer[i].feed_forward;
    }
    ht_document_set(d, "no_rope_layers", rotates);
    ht_document_set(d, "moe_layers", moe);
    ht_document_set(d, "interleave_moe_layer_step", ht_json_integer(step)); /* mlx-lm reads this one */
    ht_document_set(d, "intermediate_size_mlp", ht_json_integer(wide));
    ht_document_set(d, "attn_temperature_tuning", ht_json_boolean(c->query_beta != 0));
}

static void read_gguf(ht_config *c, ht_meta *m) {
    (void)m;
    c->query_beta = 0.1f; /* GGUF does not state the temperature */
    c->query_period = 8192;
    c->head_norms = c->n_experts < 128; /* not in Maverick's models */
    set_layers(c);
}

const ht_family ht_family_llama4 = {
    .architecture = "llama4",
    .model_types = {"llama4_text", "llama4"},
    .class_name = "Llama4ForCausalLM",
    .mlx_wrapper = "llama4",
    .defaults = {.n_layers = 48,
                 .hidden = 5120,
                 .n_heads = 40,
                 .n_kv_heads = 8,
                 .head_dim = 128,
                 .feed_forward = 8192,
                 .vocab = 202048,
                 .context = 131072,
                 HT_LLAMA_LIKE("silu"),
                 .norm_eps = 1e-5,
                 .rope_theta = 500000,
                 .n_experts = 16,
                 .experts_used = 1,
                 .experts_field = "num_local_experts",
                 .n_shared = 1,
                 .routing = {HT_ROUTER_CHOSEN_SIGMOID, .on_input = true}},
    .fields = fields,
    .read_json = read_json,
    .read_json_layers = read_json_layers,
    .write_json = write_json,
    .read_gguf = read_gguf,
    .activate = ht_silu,
    .interleaved_rope = true,
    .experts = HT_EXPERTS_FEED_FORWARD,
    .has_causal_text = true,
    .swaps_expert_axes = true,
    .head_norm = HT_HEAD_NORM_PLAIN,
    .head_norm_after_rope = true,
    .layer = {ht_decoder_norm_specs, ht_decoder_attention_specs, ht_decoder_mlp_norm_specs, specs},
    HT_DECODER_RUNS};
