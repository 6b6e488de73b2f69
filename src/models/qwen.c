/* Qwen: Llama's layers, the last ones with an optional sliding window. Qwen2 has q, k and v biases; Qwen3 q and k
 * norms, and experts instead of the feed-forward in its MoE variant. */
#include "checkpoint/convert_metadata.h"
#include "models/decoder.h"
#include "models/registry.h"

#include <string.h>

/* With use_sliding_window, layers from `first` on have a sliding window. */
static void read_window(ht_config *c, ht_json_reader *r, const ht_json *object, int64_t first) {
    bool slides = false;
    c->window = 4096;
    ht_json_bool(r, object, "use_sliding_window", &slides);
    ht_json_i64(r, object, "sliding_window", &c->window);
    if (ht_json_is_null(ht_json_object_get(object, "sliding_window"))) slides = false;
    if (!slides) c->window = 0;
    for (int64_t i = 0; i < c->n_layers; i++) c->layer[i].slides = slides && i >= first;
}

static int64_t max_window_layers(ht_json_reader *r, const ht_json *object) {
    int64_t first = 28;
    ht_json_i64(r, object, "max_window_layers", &first);
    return first;
}

static void read_qwen2(ht_config *c, ht_json_reader *r, const ht_json *object) {
    c->q_bias = true; /* fixed by the architecture: no config field */
    c->out_bias = c->mlp_bias = false;
    read_window(c, r, object, max_window_layers(r, object));
}

static void read_qwen3(ht_config *c, ht_json_reader *r, const ht_json *object) {
    c->mlp_bias = false;
    read_window(c, r, object, max_window_layers(r, object));
}

const ht_family ht_family_qwen2 = {
    .architecture = "qwen2",
    .model_types = {"qwen2", "qwen2_vl", "qwen2_vl_text", "qwen2_5_vl", "qwen2_5_vl_text"},
    .gguf_aliases = {"qwen2vl"},
    .class_name = "Qwen2ForCausalLM",
    .defaults = {HT_LLAMA_SIZES, .n_kv_heads = 32, .feed_forward = 22016, .vocab = 151936, .context = 32768,
                 HT_LLAMA_DEFAULTS},
    .read_json = read_qwen2,
    HT_LLAMA_RUNS};

/* Common row fields, plus additional weight tables. */
#define HT_QWEN3_RUNS(...)                                                                                             \
    .activate = ht_silu, .layer = {ht_decoder_norm_specs,     ht_decoder_attention_specs, ht_decoder_head_norm_specs,  \
                                   ht_decoder_mlp_norm_specs, ht_decoder_mlp_specs,       __VA_ARGS__},                \
    HT_DECODER_RUNS

const ht_family ht_family_qwen3 = {.architecture = "qwen3",
                                   .model_types = {"qwen3", "qwen3_vl", "qwen3_vl_text"},
                                   .gguf_aliases = {"qwen3vl"},
                                   .class_name = "Qwen3ForCausalLM",
                                   .defaults = {HT_LLAMA_SIZES, .n_kv_heads = 32, .head_dim = 128,
                                                .feed_forward = 22016, .vocab = 151936, .context = 32768,
                                                HT_LLAMA_DEFAULTS},
                                   .read_json = read_qwen3,
                                   HT_QWEN3_RUNS(NULL)};

/* ---- mixture of experts ---- */

void ht_decoder_read_sparse_layers(ht_config *c, ht_json_reader *r, const ht_json *object) {
    int64_t step = 1;
    ht_json_i64(r, object, "decoder_sparse_step", &step);
    if (step < 1) {
        ht_json_fail(r, HT_ERR_FORMAT, "`decoder_sparse_step` is %lld, expected a positive number", (long long)step);
        return;
    }
    for (int64_t i = 0; i < c->n_layers; i++) c->layer[i].has_experts = c->n_experts > 0 && (i + 1) % step == 0;
    const ht_json *dense = ht_json_array(r, object, "mlp_only_layers");
    for (size_t i = 0; i < ht_json_array_size(dense); i++) {
        int64_t layer;
        if (!ht_json_whole(ht_json_array_get(dense, i), &layer) || layer < 0 || layer >= c->n_layers)
            ht_json_fail(r, HT_ERR_FORMAT, "`mlp_only_layers` lists something that is no layer of %lld",
                         (long long)c->n_layers);
        else
            c->layer[layer].has_experts = false;
    }
    for (int64_t i = 0; i < c->n_layers; i++) c->layer[i].feed_forward = c->layer[i].has_experts ? 0 : c->feed_forward;
}

void ht_decoder_write_sparse_layers(const ht_config *c, ht_document *d) {
    ht_json *dense = ht_json_new_array();
    for (int64_t i = 0; i < c->n_layers; i++)
        if (!c->layer[i].has_experts) ht_list_append(&dense, ht_json_integer(i));
    ht_document_set(d, "decoder_sparse_step", ht_json_integer(1));
    ht_document_set(d, "mlp_only_layers", dense);
}

static void read_qwen3_moe(ht_config *c, ht_json_reader *r, const ht_json *object) {
    const char *type = "";
    ht_json_str(r, object, "model_type", &type);
    if (!strncmp(type, "qwen3_vl_", 9)) c->routing.normalized = true; /* whatever norm_topk_prob says */
    c->mlp_bias = false;
    read_window(c, r, object, 0);
    ht_decoder_read_sparse_layers(c, r, object);
}

/* GGUF does not say that router weights are normalised. */
static void read_qwen3_moe_gguf(ht_config *c, ht_meta *m) {
    (void)m;
    c->routing.normalized = true;
}

static const ht_config_field qwen2_moe_fields[] = {{HT_FIELD(BOOL, q_bias, "qkv_bias", NULL, 1)}, {.json = NULL}};

static void read_qwen2_moe(ht_config *c, ht_json_reader *r, const ht_json *object) {
    c->out_bias = c->mlp_bias = false;
    read_window(c, r, object, max_window_layers(r, object));
    ht_decoder_read_sparse_layers(c, r, object);
}

/* The shared expert has a gate. */
const ht_family ht_family_qwen2moe = {
    .architecture = "qwen2moe",
    .model_types = {"qwen2_moe"},
    .class_name = "Qwen2MoeForCausalLM",
    .defaults = {.n_layers = 24,
                 .hidden = 2048,
                 .n_heads = 16,
                 .n_kv_heads = 16,
                 .feed_forward = 5632,
                 .vocab = 151936,
                 .context = 32768,
                 .n_experts = 60,
                 .experts_used = 4,
                 .expert_feed_forward = 1408,
                 .n_shared = 4,
                 .shared_field = "shared_expert_intermediate_size",
                 HT_LLAMA_DEFAULTS},
    .fields = qwen2_moe_fields,
    .read_json = read_qwen2_moe,
    .write_json = ht_decoder_write_sparse_layers,
    .activate = ht_silu,
    .layer = {ht_decoder_norm_specs, ht_decoder_attention_specs, ht_decoder_mlp_norm_specs, ht_decoder_mlp_specs,
              ht_decoder_router_specs, ht_decoder_expert_specs, ht_decoder_gated_shared_expert_specs},
    HT_DECODER_RUNS};

const ht_family ht_family_qwen3moe = {.architecture = "qwen3moe",
                                      .model_types = {"qwen3_moe", "qwen3_vl_moe", "qwen3_vl_moe_text"},
                                      .gguf_aliases = {"qwen3vlmoe"},
                                      .class_name = "Qwen3MoeForCausalLM",
                                      .defaults = {.n_layers = 24,
                                                   .hidden = 2048,
                                                   .n_heads = 32,
                                                   .n_kv_heads = 4,
                                                   .feed_forward = 6144,
                                                   .vocab = 151936,
                                                   .context = 32768,
                                                   .n_experts = 128,
                                                   .experts_used = 8,
                                                   .expert_feed_forward = 768,
                                                   HT_LLAMA_DEFAULTS},
                                      .read_json = read_qwen3_moe,
                                      .write_json = ht_decoder_write_sparse_layers,
                                      .read_gguf = read_qwen3_moe_gguf,
                                      .experts_are_modules = true,
                                      HT_QWEN3_RUNS(ht_decoder_router_specs, ht_decoder_expert_specs)};
