/* Gemma 3: blocks with a norm before and after both halves, norms of q and k per head, and a window on most layers, which
 * turn positions by a base of their own. */
#include "models/decoder.h"

#include <math.h>

#define AT(field) offsetof(ht_decoder_layer, field)
static const ht_weight_place places[] = {
    {AT(q_norm), "self_attn.q_norm", "attn_q_norm", HT_EXTENT_HEAD, .columns = HT_EXTENT_NONE},
    {AT(k_norm), "self_attn.k_norm", "attn_k_norm", HT_EXTENT_HEAD, .columns = HT_EXTENT_NONE},
    {AT(after_attention_norm), "post_attention_layernorm", "post_attention_norm", HT_EXTENT_HIDDEN,
     .columns = HT_EXTENT_NONE},
    {AT(mlp_norm), "pre_feedforward_layernorm", "ffn_norm", HT_EXTENT_HIDDEN, .columns = HT_EXTENT_NONE},
    {AT(after_mlp_norm), "post_feedforward_layernorm", "post_ffw_norm", HT_EXTENT_HIDDEN, .columns = HT_EXTENT_NONE},
    {.gguf = NULL}};
#undef AT

enum { PATTERN = 6 }; /* every sixth layer sees everything, unless the file says otherwise */

static void slide_by_pattern(ht_config *c, int64_t pattern) {
    for (int64_t i = 0; i < c->n_layers; i++) c->sliding[i] = c->window > 0 && (i + 1) % pattern != 0;
}

static void read_json(ht_config *c, ht_json_reader *r, const json_t *object) {
    c->norm_offset = 1;
    c->mlp_bias = false;
    double scalar = 256, cap = 0;
    ht_json_f64(r, object, "query_pre_attn_scalar", &scalar);
    if (!(scalar > 0))
        ht_json_fail(r, HT_ERR_FORMAT, "`query_pre_attn_scalar` is %g, expected a positive number", scalar);
    c->attention_scale = (float)(1 / sqrt(scalar));
    ht_json_f64(r, object, "final_logit_softcapping", &cap);
    c->final_softcap = (float)cap;
    int64_t pattern = PATTERN;
    c->window = 4096;
    ht_json_i64(r, object, "sliding_window", &c->window);
    ht_json_i64(r, object, "sliding_window_pattern", &pattern);
    if (pattern < 1)
        ht_json_fail(r, HT_ERR_FORMAT, "`sliding_window_pattern` is %lld, expected a positive number",
                     (long long)pattern);
    else
        slide_by_pattern(c, pattern);
    bool both_ways = false;
    if (ht_json_bool(r, object, "use_bidirectional_attention", &both_ways) && both_ways)
        ht_json_fail(r, HT_ERR_UNSUPPORTED,
                     "`use_bidirectional_attention` is true: the model is an encoder, not a generator");
}

/* The pattern as one number, or as one boolean per layer. */
static void read_pattern(ht_config *c, ht_meta *m) {
    const char *name = "attention.sliding_window_pattern";
    const ht_gguf_value *v = ht_meta_value(m, name);
    if (!v || v->type != HT_GGUF_ARRAY) {
        int64_t pattern = ht_meta_i64(m, name, PATTERN);
        if (pattern < 1)
            ht_meta_fail(m, HT_ERR_FORMAT, "`%s.%s` is %lld, expected a positive number", m->architecture, name,
                         (long long)pattern);
        else
            slide_by_pattern(c, pattern);
        return;
    }
    for (int64_t i = 0; i < c->n_layers; i++) {
        int64_t slides;
        if (!ht_gguf_item_i64(v, (uint64_t)i, &slides)) {
            ht_meta_fail(m, HT_ERR_FORMAT, "`%s.%s` does not say for each of %lld layers whether it slides",
                         m->architecture, name, (long long)c->n_layers);
            return;
        }
        c->sliding[i] = slides != 0;
    }
}

/* The file has 1 + w as the weight of a norm; what it lacks is as the family has it. */
static void read_gguf(ht_config *c, ht_meta *m) {
    enum { LAYERS_OF_27B = 62 }; /* the one size whose scale is not from head_dim, and whose file does not say so */
    if (c->n_layers == LAYERS_OF_27B && c->n_heads > 0 && !ht_meta_has(m, "attention.scale"))
        c->attention_scale = (float)(1 / sqrt((double)c->hidden / (double)c->n_heads));
    c->mlp_bias = false;
    c->final_softcap = (float)ht_meta_f64(m, "final_logit_softcapping", 0);
    c->window = ht_meta_i64(m, "attention.sliding_window", 0);
    read_pattern(c, m);
}

const ht_family ht_family_gemma3 = {.architecture = "gemma3",
                                    .model_types = {"gemma3_text", "gemma3"},
                                    .defaults = {.n_layers = 26,
                                                 .hidden = 2304,
                                                 .n_heads = 8,
                                                 .n_kv_heads = 4,
                                                 .head_dim = 256,
                                                 .feed_forward = 9216,
                                                 .vocab = 262208,
                                                 .context = 131072,
                                                 .rms_eps = 1e-6,
                                                 .rope_theta = 1000000,
                                                 .local_rope_theta = 10000,
                                                 .tied_head = true,
                                                 .activation_field = "hidden_activation",
                                                 .activation = "gelu_pytorch_tanh"},
                                    .read_json = read_json,
                                    .read_gguf = read_gguf,
                                    .activate = ht_gelu_tanh,
                                    .scaled_embedding = true,
                                    .layer = {ht_decoder_attention_places, ht_decoder_mlp_places, places},
                                    .layer_bytes = sizeof(ht_decoder_layer),
                                    .forward = ht_decoder_forward};
