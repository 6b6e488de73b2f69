/* Llama: pre-norm blocks of grouped-query attention with rotary positions and a SwiGLU feed-forward. */
#include "models/decoder.h"

/* GGUF files of this architecture hold q and k for the RoPE that turns neighbours. */
static void read_gguf(ht_config *c, ht_meta *m) {
    (void)m;
    c->interleaved_rows = true;
}

const ht_family ht_family_llama = {
    .architecture = "llama",
    .model_types = {"llama"},
    .defaults = {.n_layers = 32,
                 .hidden = 4096,
                 .n_heads = 32,
                 .feed_forward = 11008,
                 .vocab = 32000,
                 .context = 2048,
                 .rms_eps = 1e-6,
                 .rope_theta = 10000,
                 .activation_field = "hidden_act",
                 .activation = "silu"},
    .read_gguf = read_gguf,
    .activate = ht_silu,
    .layer = {ht_decoder_attention_places, ht_decoder_mlp_norm_places, ht_decoder_mlp_places},
    .layer_bytes = sizeof(ht_decoder_layer),
    .forward = ht_decoder_forward};
