/* Granite: Llama's blocks with multipliers of embeddings, attention, residuals and logits; with experts in its MoE
 * variant. Granite 4 without recurrent layers joins gate and up in one matrix, in safetensors. */
#include "checkpoint/convert_metadata.h"
#include "models/decoder.h"
#include "models/registry.h"

#include <string.h>

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
                                         HT_EXTENT_HIDDEN, .has = ht_decoder_has_experts,
                                         .module = "block_sparse_moe.router"},
                                        {.gguf = NULL}};

static bool is_fused(const ht_config *c, int64_t layer) {
    (void)layer;
    return c->fused_gate_up;
}
static bool is_apart(const ht_config *c, int64_t layer) {
    (void)layer;
    return !c->fused_gate_up;
}

#define INPUT "shared_mlp.input_linear"
static const ht_tensor_spec shared_mlp[] = {
    {AT(gate_up), INPUT, "ffn_gate_up", HT_EXTENT_GATE_UP, HT_EXTENT_HIDDEN, .has = is_fused},
    {AT(gate), "mlp.gate_proj", "ffn_gate", HT_EXTENT_FEED_FORWARD, HT_EXTENT_HIDDEN, .has = is_apart,
     .transformers = INPUT, .share = 0, .n_shares = 2},
    {AT(up), "mlp.up_proj", "ffn_up", HT_EXTENT_FEED_FORWARD, HT_EXTENT_HIDDEN, .has = is_apart, .transformers = INPUT,
     .share = 1, .n_shares = 2},
    {AT(down), "shared_mlp.output_linear", "ffn_down", HT_EXTENT_HIDDEN, HT_EXTENT_FEED_FORWARD, .has = is_fused},
    {AT(down), "mlp.down_proj", "ffn_down", HT_EXTENT_HIDDEN, HT_EXTENT_FEED_FORWARD, .has = is_apart,
     .transformers = "shared_mlp.output_linear"},
    {.gguf = NULL}};
#undef AT

const ht_family ht_family_granitemoe = {.architecture = "granitemoe",
                                        .model_types = {"granitemoe"},
                                        .class_name = "GraniteMoeForCausalLM",
                                        .defaults = {SIZES, .n_experts = 8, .experts_used = 2,
                                                     .experts_field = "num_local_experts",
                                                     .routing = {.scores = HT_ROUTER_CHOSEN_SOFTMAX}},
                                        .fields = fields,
                                        .gguf_interleaves = true,
                                        .experts = HT_EXPERTS_LINEAR,
                                        .activate = ht_silu,
                                        .layer = {ht_decoder_norm_specs, ht_decoder_attention_specs,
                                                  ht_decoder_mlp_norm_specs, router, ht_decoder_expert_specs},
                                        HT_DECODER_RUNS};

static void set_rope(ht_config *c, bool has_rope) {
    for (int64_t i = 0; i < c->n_layers; i++) c->layer[i].no_rope = !has_rope;
}

static void read_dense(ht_config *c, ht_json_reader *r, const ht_json *object) {
    const char *positions = "nope";
    int64_t n_experts = 0;
    c->fused_gate_up = true;
    ht_json_i64(r, object, "shared_intermediate_size", &c->feed_forward);
    ht_config_fill_layers(c);
    ht_json_str(r, object, "position_embedding_type", &positions);
    set_rope(c, !strcmp(positions, "rope"));
    if (ht_json_i64(r, object, "num_local_experts", &n_experts) && n_experts > 0)
        ht_json_fail(r, HT_ERR_UNSUPPORTED, "`num_local_experts` is %lld; Granite 4 is supported without experts",
                     (long long)n_experts);
}

static void read_dense_gguf(ht_config *c, ht_meta *m) { set_rope(c, ht_meta_bool(m, "rope.scaling.finetuned", true)); }

static void write_dense_gguf(const ht_config *c, ht_document *d) {
    ht_gguf_put(d, c, "rope.scaling.finetuned", ht_gguf_bool(!c->layer[0].no_rope));
}

static void write_dense(const ht_config *c, ht_document *d) {
    ht_json *types = ht_json_new_array();
    for (int64_t i = 0; i < c->n_layers; i++) ht_list_append(&types, ht_json_string("attention"));
    ht_document_set(d, "layer_types", types);
    ht_document_set(d, "shared_intermediate_size", ht_json_integer(c->feed_forward));
    ht_document_set(d, "position_embedding_type", ht_json_string(c->layer[0].no_rope ? "nope" : "rope"));
    ht_document_set(d, "num_local_experts", ht_json_integer(0));
    ht_document_set(d, "num_experts_per_tok", ht_json_integer(0));
}

const ht_family ht_family_granitehybrid = {
    .architecture = "granitehybrid",
    .model_types = {"granitemoehybrid"},
    .class_name = "GraniteMoeHybridForCausalLM",
    .defaults = {SIZES},
    .fields = fields,
    .read_json = read_dense,
    .read_gguf = read_dense_gguf,
    .write_json = write_dense,
    .write_gguf = write_dense_gguf,
    .gguf_interleaves = true,
    .activate = ht_silu,
    .layer = {ht_decoder_norm_specs, ht_decoder_attention_specs, ht_decoder_mlp_norm_specs, shared_mlp},
    HT_DECODER_RUNS};
