/* EXAONE 4: norms after attention and feed-forward instead of before, and of q and k per head. Models with sliding
 * layers have RoPE only there. */
#include "checkpoint/convert_metadata.h"
#include "models/decoder.h"
#include "models/registry.h"

enum { PATTERN = 4 }; /* full attention in every fourth layer */

static const ht_config_field fields[] = {{HT_FIELD(I64, window, "sliding_window", "attention.sliding_window", 0)},
                                         {.json = NULL}};

static void skip_rope(ht_config *c) {
    for (int64_t i = 0; i < c->n_layers; i++) c->layer[i].no_rope = c->window > 0 && !c->layer[i].slides;
}

/* sliding_window_pattern: a number, or "LLLG" with a letter for each layer of the period. */
static void read_json(ht_config *c, ht_json_reader *r, const ht_json *object) {
    const ht_json *pattern = ht_json_object_get(object, "sliding_window_pattern");
    const size_t n = ht_json_is_string(pattern) ? ht_json_string_length(pattern) : 0;
    int64_t period = PATTERN;
    if (!ht_json_is_string(pattern)) ht_json_i64(r, object, "sliding_window_pattern", &period);
    ht_config_slide_by_pattern(c, period > 0 ? period : PATTERN);
    for (int64_t i = 0; n && i < c->n_layers; i++)
        c->layer[i].slides = c->window > 0 && ht_json_string_value(pattern)[(size_t)i % n] == 'L';
}

/* mlx-lm reads the pattern, transformers layer_types. */
static void write_json(const ht_config *c, ht_document *d) {
    char letters[HT_MAX_LAYERS + 1] = "";
    for (int64_t i = 0; i < c->n_layers; i++) letters[i] = c->layer[i].slides ? 'L' : 'G';
    letters[c->n_layers] = '\0';
    ht_document_set(d, "sliding_window_pattern", c->window > 0 ? ht_json_string(letters) : ht_json_null());
}

static void read_json_layers(ht_config *c, ht_json_reader *r, const ht_json *object) {
    (void)r, (void)object;
    skip_rope(c);
}

static void read_gguf(ht_config *c, ht_meta *m) {
    (void)m;
    ht_config_slide_by_pattern(c, PATTERN);
    skip_rope(c);
}

const ht_family ht_family_exaone4 = {
    .architecture = "exaone4",
    .model_types = {"exaone4"},
    .class_name = "Exaone4ForCausalLM",
    .defaults = {HT_LLAMA_SIZES, .feed_forward = 16384, .vocab = 102400, .context = 2048, HT_LLAMA_LIKE("silu"),
                 .norm_eps = 1e-5, .rope_theta = 10000},
    .fields = fields,
    .read_json = read_json,
    .read_json_layers = read_json_layers,
    .write_json = write_json,
    .read_gguf = read_gguf,
    .activate = ht_silu,
    .layer = {ht_decoder_attention_specs, ht_decoder_head_norm_specs, ht_decoder_post_norm_specs, ht_decoder_mlp_specs},
    HT_DECODER_RUNS};
