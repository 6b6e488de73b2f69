/* Gemma 2 and 3: pre- and post-norms around attention and feed-forward, sliding-window layers. Gemma 2 softcaps
 * attention scores; Gemma 3 has q and k norms and a separate RoPE base for sliding layers. EmbeddingGemma is a Gemma 3
 * that attends to both sides. */
#include "checkpoint/convert_metadata.h"
#include "models/decoder.h"
#include "models/registry.h"

#include <math.h>

/* Every second or sixth layer has full attention, unless the file says otherwise. */
enum { PATTERN_2 = 2, PATTERN_3 = 6 };

enum { CAP_OF_SCORES = 50, CAP_OF_LOGITS = 30 }; /* Gemma 2's defaults */

static const ht_config_field
    fields_2[] = {{HT_FIELD(I64, window, "sliding_window", "attention.sliding_window", 4096)},
                  {HT_FIELD(F32, attention_softcap, "attn_logit_softcapping", "attn_logit_softcapping", CAP_OF_SCORES)},
                  {HT_FIELD(F32, final_softcap, "final_logit_softcapping", "final_logit_softcapping", CAP_OF_LOGITS)},
                  {.json = NULL}},
    fields_3[] = {{HT_FIELD(I64, window, "sliding_window", NULL, 4096)},
                  {HT_FIELD(I64, window, NULL, "attention.sliding_window", 0)},
                  {HT_FIELD(F32, final_softcap, "final_logit_softcapping", "final_logit_softcapping", 0)},
                  {HT_FIELD(BOOL, two_sided, "use_bidirectional_attention", NULL, 0)},
                  {.json = NULL}};

static void read_json(ht_config *c, ht_json_reader *r, const ht_json *object) {
    c->mlp_bias = false;
    double scalar = 256;
    ht_json_f64(r, object, "query_pre_attn_scalar", &scalar);
    if (!(scalar > 0))
        ht_json_fail(r, HT_ERR_FORMAT, "`query_pre_attn_scalar` is %g, expected a positive number", scalar);
    c->attention_scale = (float)(1 / sqrt(scalar));
}

static void read_json_2(ht_config *c, ht_json_reader *r, const ht_json *object) {
    bool both_ways = false;
    read_json(c, r, object);
    if (ht_json_bool(r, object, "use_bidirectional_attention", &both_ways) && both_ways)
        ht_json_fail(r, HT_ERR_UNSUPPORTED, "`use_bidirectional_attention` is true; Gemma 3 models are supported then");
    ht_config_slide_by_pattern(c, PATTERN_2);
}

static void read_json_3(ht_config *c, ht_json_reader *r, const ht_json *object) {
    read_json(c, r, object);
    int64_t pattern = PATTERN_3;
    ht_json_i64(r, object, "sliding_window_pattern", &pattern);
    if (pattern < 1)
        ht_json_fail(r, HT_ERR_FORMAT, "`sliding_window_pattern` is %lld, expected a positive number",
                     (long long)pattern);
    else
        ht_config_slide_by_pattern(c, pattern);
}

/* Some readers want the activation under the usual key. */
static void write_activation(const ht_config *c, ht_document *d) {
    ht_document_set(d, "hidden_act", ht_json_string(c->family->defaults.activation));
}

/* query_pre_attn_scalar is 1 / scale^2: a whole number in all models. */
static void write_json(const ht_config *c, ht_document *d) {
    const double exact = 1 / ((double)c->attention_scale * (double)c->attention_scale), whole = round(exact);
    const bool is_whole = (float)(1 / sqrt(whole)) == c->attention_scale;
    ht_document_set(d, "query_pre_attn_scalar", is_whole ? ht_json_integer((int64_t)whole) : ht_json_real(exact));
    write_activation(c, d);
}

/* With sliding_window_pattern if the layers with full attention are at equal distances. */
static void write_json_3(const ht_config *c, ht_document *d) {
    int64_t pattern = 1;
    bool is_regular = true;
    while (pattern <= c->n_layers && c->layer[pattern - 1].slides) pattern++;
    for (int64_t i = 0; i < c->n_layers; i++) is_regular &= c->layer[i].slides == ((i + 1) % pattern != 0);
    write_json(c, d);
    if (is_regular) ht_document_set(d, "sliding_window_pattern", ht_json_integer(pattern));
}

/* Reads the sliding pattern: one number, or a boolean per layer. */
static void read_pattern(ht_config *c, ht_meta *m, int64_t pattern) {
    const char *name = "attention.sliding_window_pattern";
    const ht_gguf_value *v = ht_meta_value(m, name);
    if (!v || v->type != HT_GGUF_ARRAY) {
        pattern = ht_meta_i64(m, name, pattern);
        if (pattern < 1)
            ht_meta_fail(m, HT_ERR_FORMAT, "`%s.%s` is %lld, expected a positive number", m->architecture, name,
                         (long long)pattern);
        else
            ht_config_slide_by_pattern(c, pattern);
        return;
    }
    for (int64_t i = 0; i < c->n_layers; i++) {
        int64_t slides;
        if (!ht_gguf_item_i64(v, (uint64_t)i, &slides)) {
            ht_meta_fail(m, HT_ERR_FORMAT, "`%s.%s` does not say for each of %lld layers whether it slides",
                         m->architecture, name, (long long)c->n_layers);
            return;
        }
        c->layer[i].slides = slides != 0;
    }
}

/* GGUF files have norm weights as 1 + w and omit the 27B's attention scale, which is not derived from head_dim; the
 * layer count identifies the 27B. */
static void read_gguf(ht_config *c, ht_meta *m, int64_t layers_of_27b, int64_t pattern) {
    if (c->n_layers == layers_of_27b && c->n_heads > 0 && !ht_meta_has(m, "attention.scale"))
        c->attention_scale = (float)(1 / sqrt((double)c->hidden / (double)c->n_heads));
    c->mlp_bias = false;
    read_pattern(c, m, pattern);
}

static void read_gguf_2(ht_config *c, ht_meta *m) { read_gguf(c, m, 46, PATTERN_2); }

static void read_gguf_3(ht_config *c, ht_meta *m) { read_gguf(c, m, 62, PATTERN_3); }

/* Gemma 1: pre-norms only, no softcaps and no windows. Old files name the exact GELU, but are computed with the other. */
const ht_family ht_family_gemma = {.architecture = "gemma",
                                   .model_types = {"gemma"},
                                   .class_name = "GemmaForCausalLM",
                                   .defaults = {.n_layers = 28,
                                                .hidden = 3072,
                                                .n_heads = 16,
                                                .n_kv_heads = 16,
                                                .head_dim = 256,
                                                .feed_forward = 24576,
                                                .vocab = 256000,
                                                .context = 8192,
                                                .norm_eps = 1e-6,
                                                .rope_theta = 10000,
                                                .tied_head = true,
                                                .activation_field = "hidden_activation",
                                                .activation = "gelu_pytorch_tanh"},
                                   .write_json = write_activation,
                                   .norm_offset = 1,
                                   HT_GEMMA_RUNS(ht_decoder_mlp_norm_specs, ht_decoder_mlp_specs),
                                   HT_DECODER_RUNS};

const ht_family ht_family_gemma2 = {
    .architecture = "gemma2",
    .model_types = {"gemma2"},
    .class_name = "Gemma2ForCausalLM",
    .defaults = {.n_layers = 26, .vocab = 256000, .context = 8192, .rope_theta = 10000, HT_GEMMA_DEFAULTS},
    .fields = fields_2,
    .read_json = read_json_2,
    .write_json = write_json,
    .read_gguf = read_gguf_2,
    .norm_offset = 1,
    HT_GEMMA_RUNS(ht_decoder_mlp_specs, ht_decoder_sandwich_norm_specs),
    HT_DECODER_RUNS};

const ht_family ht_family_gemma3 = {
    .architecture = "gemma3",
    .model_types = {"gemma3_text", "gemma3"},
    .gguf_encoder_architecture = "gemma-embedding",
    .class_name = "Gemma3ForCausalLM",
    .encoder_class_name = "Gemma3TextModel",
    .defaults = {.n_layers = 26, .vocab = 262208, .context = 131072, HT_GEMMA3_THETAS, HT_GEMMA_DEFAULTS},
    .fields = fields_3,
    .read_json = read_json_3,
    .write_json = write_json_3,
    .read_gguf = read_gguf_3,
    .norm_offset = 1,
    HT_GEMMA_RUNS(ht_decoder_head_norm_specs, ht_decoder_mlp_specs, ht_decoder_sandwich_norm_specs),
    HT_DECODER_RUNS};
