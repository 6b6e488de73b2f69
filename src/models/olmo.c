/* OLMo 2 and 3: norms after attention and feed-forward instead of before, and over the whole of q and k. OLMo 3 slides in
 * most layers, where RoPE is not scaled. OLMoE: pre-norms, and experts. */
#include "checkpoint/convert_metadata.h"
#include "models/decoder.h"
#include "models/registry.h"

enum { PATTERN = 4 }; /* full attention in every fourth layer */

static const ht_config_field fields[] = {{HT_FIELD(I64, window, "sliding_window", "attention.sliding_window", 0)},
                                         {.json = NULL}};

static void read_json(ht_config *c, ht_json_reader *r, const ht_json *object) {
    (void)r, (void)object;
    ht_config_slide_by_pattern(c, PATTERN);
}

/* Only full attention has the scaling of a flat RoPE object. */
static void read_json_layers(ht_config *c, ht_json_reader *r, const ht_json *object) {
    (void)r, (void)object;
    if (c->window > 0 && !c->has_local_rope) c->local_rope.theta = c->rope.theta;
    c->has_local_rope = c->window > 0;
}

static void write_json(const ht_config *c, ht_document *d) {
    if (c->window == 0) return;
    ht_document_set(d, "architectures", ht_json_pack("[s]", "Olmo3ForCausalLM"));
    ht_document_set(d, "model_type", ht_json_string("olmo3"));
}

static void read_gguf(ht_config *c, ht_meta *m) {
    for (int64_t i = 0; i < c->n_layers; i++)
        c->layer[i].slides =
            c->window > 0 && ht_meta_layer_i64(m, "attention.sliding_window_pattern", i, (i + 1) % PATTERN != 0);
    c->has_local_rope = c->window > 0;
}

#define SIZES HT_LLAMA_LIKE("silu"), .norm_eps = 1e-5, .rope_theta = 10000, .vocab = 50304

const ht_family ht_family_olmo2 = {.architecture = "olmo2",
                                   .model_types = {"olmo2", "olmo3"},
                                   .class_name = "Olmo2ForCausalLM",
                                   .defaults = {HT_LLAMA_SIZES, .feed_forward = 11008, .context = 2048, SIZES},
                                   .fields = fields,
                                   .read_json = read_json,
                                   .read_json_layers = read_json_layers,
                                   .write_json = write_json,
                                   .read_gguf = read_gguf,
                                   .activate = ht_silu,
                                   .head_norm = HT_HEAD_NORM_WHOLE,
                                   .layer = {ht_decoder_attention_specs, ht_decoder_whole_head_norm_specs,
                                             ht_decoder_post_norm_specs, ht_decoder_mlp_specs},
                                   HT_DECODER_RUNS};

static void read_olmoe(ht_config *c, ht_json_reader *r, const ht_json *object) {
    double clip = 0;
    (void)c;
    if (ht_json_f64(r, object, "clip_qkv", &clip) && clip > 0)
        ht_json_fail(r, HT_ERR_UNSUPPORTED, "`clip_qkv` is %g; only null is supported", clip);
}

const ht_family ht_family_olmoe = {.architecture = "olmoe",
                                   .model_types = {"olmoe"},
                                   .class_name = "OlmoeForCausalLM",
                                   .defaults = {.n_layers = 16,
                                                .hidden = 2048,
                                                .n_heads = 16,
                                                .feed_forward = 2048,
                                                .context = 4096,
                                                SIZES,
                                                .n_experts = 64,
                                                .experts_used = 8},
                                   .read_json = read_olmoe,
                                   .activate = ht_silu,
                                   .head_norm = HT_HEAD_NORM_WHOLE,
                                   .layer = {ht_decoder_norm_specs, ht_decoder_attention_specs,
                                             ht_decoder_whole_head_norm_specs, ht_decoder_mlp_norm_specs,
                                             ht_decoder_router_specs, ht_decoder_expert_specs},
                                   HT_DECODER_RUNS};
