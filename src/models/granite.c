/* Granite: Llama's blocks with multipliers of embeddings, attention, residuals and logits; with experts in its MoE
 * variant. Granite 4 has Mamba-2 in most layers, or none, and experts in addition to a dense feed-forward, or none. */
#include "checkpoint/convert_metadata.h"
#include "models/mamba.h"
#include "models/registry.h"

#include <string.h>

#define GRANITE_FIELDS                                                                                                 \
    {HT_FIELD(F32, embedding_scale, "embedding_multiplier", "embedding_scale", 1)},                                    \
        {HT_FIELD(F32, residual_scale, "residual_multiplier", "residual_scale", 1)},                                   \
        {HT_FIELD(F32, attention_scale, "attention_multiplier", "attention.scale", 1)}, {                              \
        HT_FIELD(F32, logit_scale, "logits_scaling", "logit_scale", 1), .is_inverse = true                             \
    }
static const ht_config_field fields[] = {GRANITE_FIELDS, {.json = NULL}};

#define SIZES HT_LLAMA_SIZES, .feed_forward = 11008, .vocab = 32000, .context = 2048, HT_LLAMA_DEFAULTS
#define MIXTURE                                                                                                        \
    .n_experts = 8, .experts_used = 2, .experts_field = "num_local_experts",                                           \
    .routing = {.scores = HT_ROUTER_CHOSEN_SOFTMAX}

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

const ht_family ht_family_granitemoe = {.architecture = "granitemoe",
                                        .model_types = {"granitemoe"},
                                        .class_name = "GraniteMoeForCausalLM",
                                        .defaults = {SIZES, MIXTURE},
                                        .fields = fields,
                                        .gguf_interleaves = true,
                                        .experts = HT_EXPERTS_LINEAR,
                                        .activate = ht_silu,
                                        .layer = {ht_decoder_norm_specs, ht_decoder_attention_specs,
                                                  ht_decoder_mlp_norm_specs, router, ht_decoder_expert_specs},
                                        HT_DECODER_RUNS};

/* ---- Granite 4 ---- */

/* Safetensors join gate and up in one matrix; GGUF files do not, nor does mlx-lm in models without experts. */
static bool is_fused(const ht_config *c, int64_t layer) { return c->fused_gate_up && ht_decoder_is_dense(c, layer); }
static bool is_apart(const ht_config *c, int64_t layer) { return !c->fused_gate_up && ht_decoder_is_dense(c, layer); }
static bool is_shared_fused(const ht_config *c, int64_t layer) {
    return c->fused_gate_up && ht_decoder_has_shared_expert(c, layer);
}
static bool is_shared_apart(const ht_config *c, int64_t layer) {
    return !c->fused_gate_up && ht_decoder_has_shared_expert(c, layer);
}

#define INPUT  "shared_mlp.input_linear"
#define OUTPUT "shared_mlp.output_linear"
static const ht_tensor_spec shared_mlp[] = {
    {AT(gate_up), INPUT, "ffn_gate_up", HT_EXTENT_GATE_UP, HT_EXTENT_HIDDEN, .has = is_fused},
    {AT(gate), "mlp.gate_proj", "ffn_gate", HT_EXTENT_FEED_FORWARD, HT_EXTENT_HIDDEN, .has = is_apart,
     .transformers = INPUT, .share = 0, .n_shares = 2},
    {AT(up), "mlp.up_proj", "ffn_up", HT_EXTENT_FEED_FORWARD, HT_EXTENT_HIDDEN, .has = is_apart, .transformers = INPUT,
     .share = 1, .n_shares = 2},
    {AT(down), OUTPUT, "ffn_down", HT_EXTENT_HIDDEN, HT_EXTENT_FEED_FORWARD, .has = is_fused},
    {AT(down), "mlp.down_proj", "ffn_down", HT_EXTENT_HIDDEN, HT_EXTENT_FEED_FORWARD, .has = is_apart,
     .transformers = OUTPUT},
    {AT(shared_gate_up), INPUT, "ffn_gate_up_shexp", HT_EXTENT_SHARED_GATE_UP, HT_EXTENT_HIDDEN,
     .has = is_shared_fused},
    {AT(shared_gate), INPUT, "ffn_gate_shexp", HT_EXTENT_SHARED_FEED_FORWARD, HT_EXTENT_HIDDEN, .has = is_shared_apart,
     .transformers = INPUT, .share = 0, .n_shares = 2, .module = "shared_mlp.gate_proj"},
    {AT(shared_up), INPUT, "ffn_up_shexp", HT_EXTENT_SHARED_FEED_FORWARD, HT_EXTENT_HIDDEN, .has = is_shared_apart,
     .transformers = INPUT, .share = 1, .n_shares = 2, .module = "shared_mlp.up_proj"},
    {AT(shared_down), OUTPUT, "ffn_down_shexp", HT_EXTENT_HIDDEN, HT_EXTENT_SHARED_FEED_FORWARD,
     .has = ht_decoder_has_shared_expert},
    {.gguf = NULL}};
#undef AT

static const ht_tensor_spec mamba[] = {HT_MAMBA_SPECS("mamba"), {.gguf = NULL}};

static const ht_config_field hybrid_fields[] = {GRANITE_FIELDS, HT_MAMBA_JAMBA_FIELDS(256), {.json = NULL}};

static void set_rope(ht_config *c, bool has_rope) {
    for (int64_t i = 0; i < c->n_layers; i++) c->layer[i].no_rope = !has_rope;
}

/* A model without experts has the shared one as its feed-forward. */
static void set_feed_forward(ht_config *c) {
    if (c->n_experts) return;
    c->feed_forward = c->shared_feed_forward;
    c->shared_feed_forward = 0;
    for (int64_t i = 0; i < c->n_layers; i++) c->layer[i].feed_forward = c->feed_forward;
}

static void read_hybrid(ht_config *c, ht_json_reader *r, const ht_json *object) {
    const char *positions = "nope", *norm = "rmsnorm";
    int64_t expand = 2;
    c->fused_gate_up = true;
    c->shared_feed_forward = 1024;
    ht_json_i64(r, object, "shared_intermediate_size", &c->shared_feed_forward);
    set_feed_forward(c);
    ht_json_str(r, object, "position_embedding_type", &positions);
    if (strcmp(positions, "rope") && strcmp(positions, "nope"))
        ht_json_fail(r, HT_ERR_UNSUPPORTED, "`position_embedding_type` is `%.40s`; rope and nope are supported",
                     positions);
    ht_json_str(r, object, "normalization_function", &norm);
    if (strcmp(norm, "rmsnorm"))
        ht_json_fail(r, HT_ERR_UNSUPPORTED, "`normalization_function` is `%.40s`; rmsnorm is supported", norm);
    set_rope(c, !strcmp(positions, "rope"));
    ht_json_i64(r, object, "mamba_expand", &expand);
    ht_mamba_read_json(c, r, object, "mamba_d_head", ht_mamba_head_size(c, expand));
}

static void read_hybrid_layers(ht_config *c, ht_json_reader *r, const ht_json *object) {
    bool recurs = !ht_json_object_get(object, "layer_types");
    for (int64_t i = 0; i < c->n_layers; i++) {
        if (recurs && !c->layer[i].recurrent) ht_config_make_recurrent(c, i); /* all, by default */
        if (c->layer[i].recurrent && c->recurrence.key_heads != 1)
            ht_json_fail(r, HT_ERR_UNSUPPORTED, "`mamba_n_groups` is %lld; Granite models with one group are supported",
                         (long long)c->recurrence.key_heads);
    }
}

static void read_hybrid_gguf(ht_config *c, ht_meta *m) {
    if (!c->n_experts && !c->shared_feed_forward) c->shared_feed_forward = c->feed_forward;
    set_feed_forward(c);
    set_rope(c, ht_meta_bool(m, "rope.scaling.finetuned", true));
    ht_mamba_read_gguf(c, m);
}

static void write_hybrid_gguf(const ht_config *c, ht_document *d) {
    ht_gguf_put(d, c, "rope.scaling.finetuned", ht_gguf_bool(!c->layer[0].no_rope));
    if (!c->n_experts) ht_gguf_put(d, c, "expert_shared_feed_forward_length", ht_gguf_u32(c->feed_forward));
    ht_mamba_write_gguf(c, d);
}

static void write_hybrid(const ht_config *c, ht_document *d) {
    ht_json *types = ht_json_new_array();
    for (int64_t i = 0; i < c->n_layers; i++)
        ht_list_append(&types, ht_json_string(c->layer[i].recurrent ? "mamba" : "attention"));
    ht_document_set(d, "layer_types", types);
    ht_document_set(d, "shared_intermediate_size",
                    ht_json_integer(c->n_experts ? c->shared_feed_forward : c->feed_forward));
    ht_document_set(d, "position_embedding_type", ht_json_string(c->layer[0].no_rope ? "nope" : "rope"));
    ht_document_set(d, "mamba_proj_bias", ht_json_boolean(false));
    if (!c->recurrence.kind) return;
    ht_document_set(d, "mamba_d_head", ht_json_integer(c->recurrence.value_dim));
    ht_document_set(d, "mamba_expand", ht_json_integer(c->recurrence.heads * c->recurrence.value_dim / c->hidden));
}

const ht_family ht_family_granitehybrid = {.architecture = "granitehybrid",
                                           .gguf_attention_architecture = {"granite", "granitemoe"},
                                           .model_types = {"granitemoehybrid"},
                                           .class_name = "GraniteMoeHybridForCausalLM",
                                           .defaults = {SIZES, MIXTURE},
                                           .recurrence = HT_RECURRENCE_SSM,
                                           .fields = hybrid_fields,
                                           .read_json = read_hybrid,
                                           .read_json_layers = read_hybrid_layers,
                                           .read_gguf = read_hybrid_gguf,
                                           .write_json = write_hybrid,
                                           .write_gguf = write_hybrid_gguf,
                                           .gguf_interleaves = true,
                                           .experts = HT_EXPERTS_LINEAR,
                                           .activate = ht_silu,
                                           .layer = {ht_decoder_norm_specs, ht_decoder_attention_specs, mamba,
                                                     ht_decoder_mlp_norm_specs, router, ht_decoder_expert_specs,
                                                     shared_mlp},
                                           HT_DECODER_RUNS};
