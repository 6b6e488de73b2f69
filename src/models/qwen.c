/* Qwen: Llama's layer, of which the last ones may slide. Qwen2 has biases on q, k and v; Qwen3 norms q and k per head. */
#include "models/decoder.h"

static void read_window(ht_config *c, ht_json_reader *r, const json_t *object) {
    bool slides = false;
    int64_t first = 28;
    c->window = 4096;
    ht_json_bool(r, object, "use_sliding_window", &slides);
    ht_json_i64(r, object, "sliding_window", &c->window);
    ht_json_i64(r, object, "max_window_layers", &first);
    if (!slides) c->window = 0;
    for (int64_t i = 0; i < c->n_layers; i++) c->layer[i].slides = slides && i >= first;
}

static void read_qwen2(ht_config *c, ht_json_reader *r, const json_t *object) {
    c->q_bias = true; /* always, and only there; the class has no such field */
    c->out_bias = c->mlp_bias = false;
    read_window(c, r, object);
}

static void read_qwen3(ht_config *c, ht_json_reader *r, const json_t *object) {
    c->mlp_bias = false;
    read_window(c, r, object);
}

const ht_family ht_family_qwen2 = {
    .architecture = "qwen2",
    .model_types = {"qwen2"},
    .defaults = {.n_layers = 32,
                 .hidden = 4096,
                 .n_heads = 32,
                 .n_kv_heads = 32,
                 .feed_forward = 22016,
                 .vocab = 151936,
                 .context = 32768,
                 .rms_eps = 1e-6,
                 .rope_theta = 10000,
                 .activation_field = "hidden_act",
                 .activation = "silu"},
    .read_json = read_qwen2,
    .activate = ht_silu,
    .layer = {ht_decoder_attention_places, ht_decoder_mlp_norm_places, ht_decoder_mlp_places},
    .layer_bytes = sizeof(ht_decoder_layer),
    .forward = ht_decoder_forward};

const ht_family ht_family_qwen3 = {.architecture = "qwen3",
                                   .model_types = {"qwen3"},
                                   .defaults = {.n_layers = 32,
                                                .hidden = 4096,
                                                .n_heads = 32,
                                                .n_kv_heads = 32,
                                                .head_dim = 128,
                                                .feed_forward = 22016,
                                                .vocab = 151936,
                                                .context = 32768,
                                                .rms_eps = 1e-6,
                                                .rope_theta = 10000,
                                                .activation_field = "hidden_act",
                                                .activation = "silu"},
                                   .read_json = read_qwen3,
                                   .activate = ht_silu,
                                   .layer = {ht_decoder_attention_places, ht_decoder_head_norm_places,
                                             ht_decoder_mlp_norm_places, ht_decoder_mlp_places},
                                   .layer_bytes = sizeof(ht_decoder_layer),
                                   .forward = ht_decoder_forward};
