/* ERNIE 4.5: Llama's blocks with RoPE of interleaved pairs and optional biases; in the MoE variant experts and a shared
 * one in a range of layers. */
#include "checkpoint/convert_metadata.h"
#include "models/decoder.h"
#include "models/registry.h"

static const ht_config_field fields[] = {{HT_FIELD(BOOL, q_bias, "use_bias", NULL, 0)},
                                         {HT_FIELD(BOOL, out_bias, "use_bias", NULL, 0)},
                                         {HT_FIELD(BOOL, mlp_bias, "use_bias", NULL, 0)},
                                         {.json = NULL}};

#define LIKE HT_LLAMA_LIKE("silu"), .norm_eps = 1e-5, .rope_theta = 500000, .vocab = 103424, .tied_head = true

const ht_family ht_family_ernie4_5 = {.architecture = "ernie4_5",
                                      .model_types = {"ernie4_5"},
                                      .class_name = "Ernie4_5ForCausalLM",
                                      .defaults = {.n_layers = 18,
                                                   .hidden = 1024,
                                                   .n_heads = 16,
                                                   .n_kv_heads = 2,
                                                   .head_dim = 128,
                                                   .feed_forward = 3072,
                                                   .context = 131072,
                                                   LIKE},
                                      .fields = fields,
                                      .interleaved_rope = true,
                                      HT_LLAMA_RUNS};

#define AT(field) offsetof(ht_decoder_layer, field)
static const ht_tensor_spec choice_bias[] = {
    {AT(router_bias), "mlp.moe_statics.e_score_correction_bias", "exp_probs_b.bias", .rows = HT_EXTENT_EXPERTS,
     .has = ht_decoder_has_experts, .bare = true, .optional = true, .row = HT_EXTENT_EXPERTS},
    {.gguf = NULL}};
#undef AT

static void read_moe(ht_config *c, ht_json_reader *r, const ht_json *object) {
    int64_t first = 1, last = c->n_layers - 1, interval = 1;
    ht_json_i64(r, object, "moe_layer_start_index", &first);
    ht_json_i64(r, object, "moe_layer_end_index", &last);
    ht_json_i64(r, object, "moe_layer_interval", &interval);
    if (last < 0) last = c->n_layers - 1;
    for (int64_t i = 0; i < c->n_layers; i++) {
        c->layer[i].has_experts = i >= first && i <= last && interval > 0 && (i + 1) % interval == 0;
        c->layer[i].feed_forward = c->layer[i].has_experts ? 0 : c->feed_forward;
    }
}

static void write_moe(const ht_config *c, ht_document *d) {
    int64_t first = 0, last = c->n_layers - 1;
    while (first < last && !c->layer[first].has_experts) first++;
    while (last > first && !c->layer[last].has_experts) last--;
    ht_document_set(d, "moe_layer_start_index", ht_json_integer(first));
    ht_document_set(d, "moe_layer_end_index", ht_json_integer(last));
    ht_document_set(d, "moe_layer_interval", ht_json_integer(1));
}

const ht_family ht_family_ernie4_5_moe = {
    .architecture = "ernie4_5-moe",
    .model_types = {"ernie4_5_moe"},
    .class_name = "Ernie4_5_MoeForCausalLM",
    .defaults = {.n_layers = 28,
                 .hidden = 2560,
                 .n_heads = 20,
                 .n_kv_heads = 4,
                 .feed_forward = 12288,
                 .context = 131072,
                 LIKE,
                 .n_experts = 64,
                 .experts_used = 6,
                 .expert_feed_forward = 1536,
                 .n_shared = 2,
                 .experts_field = "moe_num_experts",
                 .experts_used_field = "moe_k",
                 .shared_field = "moe_num_shared_experts",
                 .routing = {.normalized = true}},
    .fields = fields,
    .read_json = read_moe,
    .write_json = write_moe,
    .interleaved_rope = true,
    .activate = ht_silu,
    .layer = {ht_decoder_norm_specs, ht_decoder_attention_specs, ht_decoder_mlp_norm_specs, ht_decoder_mlp_specs,
              ht_decoder_router_specs, choice_bias, ht_decoder_expert_specs, ht_decoder_shared_expert_specs},
    HT_DECODER_RUNS};
