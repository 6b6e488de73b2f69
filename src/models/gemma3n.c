/* Gemma 3n: AltUp, four residual streams of which a layer computes one and predicts the others; a learned residual layer
 * parallel to attention (LAuReL); per-layer inputs; and gates that are mostly zeros in the first layers. The last layers share K
 * and V of earlier ones, as in Gemma 4. */
#include "checkpoint/convert_metadata.h"
#include "checkpoint/kv_size.h"
#include "checkpoint/sampling.h"
#include "models/layer_inputs.h"
#include "models/registry.h"

#include <float.h>
#include <math.h>

typedef struct gemma3n_layer {
    ht_input_layer of;
    ht_weight router;                /* [streams, hidden]: of the active stream, what the coefficients are made of */
    ht_norm_weights router_norm;     /* f32 [hidden] */
    ht_weight predictions;           /* [streams * streams, streams]: coefficients of the streams in each prediction */
    ht_weight corrections;           /* [streams, streams]: share of the computed stream's change in each stream */
    ht_array *scale;                 /* f32 [hidden]: factor on the active stream, for the per-layer input */
    ht_weight laurel_in, laurel_out; /* [laurel_rank, hidden], [hidden, laurel_rank] */
    ht_norm_weights after_laurel_norm; /* f32 [hidden] */
} gemma3n_layer;

typedef struct gemma3n_around {
    ht_input_tables tables;
    ht_experts stream_in, stream_out; /* [streams - 1][hidden, hidden] */
} gemma3n_around;

#define AT(field) offsetof(gemma3n_layer, field)
static const ht_tensor_spec layer_specs[] = {
    {AT(router), "altup.modality_router", "altup_router", .rows = HT_EXTENT_STREAMS, .columns = HT_EXTENT_HIDDEN},
    {AT(router_norm), "altup.router_norm", "altup_router_norm", .rows = HT_EXTENT_HIDDEN},
    {AT(predictions), "altup.prediction_coefs", "altup_predict_coef", .rows = HT_EXTENT_STREAM_PAIRS,
     .columns = HT_EXTENT_STREAMS},
    {AT(corrections), "altup.correction_coefs", "altup_correct_coef", .rows = HT_EXTENT_STREAMS,
     .columns = HT_EXTENT_STREAMS},
    {AT(scale), "altup.correct_output_scale", "altup_correct_scale.weight", .rows = HT_EXTENT_HIDDEN, .bare = true},
    {AT(laurel_in), "laurel.linear_left", "laurel_l", .rows = HT_EXTENT_LAUREL, .columns = HT_EXTENT_HIDDEN},
    {AT(laurel_out), "laurel.linear_right", "laurel_r", .rows = HT_EXTENT_HIDDEN, .columns = HT_EXTENT_LAUREL},
    {AT(after_laurel_norm), "laurel.post_laurel_norm", "laurel_post_norm", .rows = HT_EXTENT_HIDDEN},
    {.gguf = NULL}};
#undef AT

static const ht_tensor_spec around[] = {HT_INPUT_TABLE_SPECS,
                                        {offsetof(gemma3n_around, stream_in), "altup_projections", "altup_proj",
                                         HT_EXTENT_HIDDEN, HT_EXTENT_HIDDEN, .expert = HT_STREAM_IN},
                                        {offsetof(gemma3n_around, stream_out), "altup_unembed_projections",
                                         "altup_unembd_proj", HT_EXTENT_HIDDEN, HT_EXTENT_HIDDEN,
                                         .expert = HT_STREAM_OUT},
                                        {.gguf = NULL}};

/* ---- configuration ---- */

enum { PATTERN = 5, SPARSE_LAYERS = 10 }; /* full attention in every fifth layer; sparse gates in the first ones */

static const ht_config_field fields[] = {
    {HT_FIELD(I64, window, "sliding_window", "attention.sliding_window", 512)},
    {HT_FIELD(F32, final_softcap, "final_logit_softcapping", "final_logit_softcapping", 30)},
    {HT_FIELD(I64, layer_input, "hidden_size_per_layer_input", "embedding_length_per_layer_input", 256)},
    {HT_FIELD(I64, layer_input_vocab, "vocab_size_per_layer_input", NULL, 262144)},
    {HT_FIELD(I64, altup.streams, "altup_num_inputs", "altup.num_inputs", 4)},
    {HT_FIELD(I64, altup.active, "altup_active_idx", "altup.active_idx", 0)},
    {HT_FIELD(I64, altup.laurel_rank, "laurel_rank", NULL, 64)},
    {.json = NULL}};

static double share_below(double z) { return erfc(-z * sqrt(0.5)) / 2; }

/* The number of standard deviations below which a share of normally distributed values is; by Newton's method, which
 * approaches it from zero. */
static float deviations_of(double share) {
    const double density = 1 / sqrt(8 * atan(1));
    double z = 0;
    for (int i = 0; i < 100; i++) z -= (share_below(z) - share) / (density * exp(-z * z / 2));
    return (float)z;
}

static void set_cutoff(ht_config *c, int64_t layer, bool is_sparse, float cutoff) {
    c->layer[layer].is_sparse = is_sparse;
    c->layer[layer].cutoff = is_sparse ? cutoff : 0;
}

/* activation_sparsity_pattern: the share of gates that are zero, of all layers or of each. */
static void read_sparsity(ht_config *c, ht_json_reader *r, const ht_json *object) {
    const char *key = "activation_sparsity_pattern";
    const ht_json *list = ht_json_object_get(object, key);
    const bool none = !list || ht_json_is_null(list), each = ht_json_is_array(list);
    for (int64_t i = 0; i < c->n_layers; i++) {
        const ht_json *item = each ? ht_json_array_get(list, (size_t)i) : list;
        const double share = !none                                              ? ht_json_number_value(item)
                             : c->n_layers > SPARSE_LAYERS && i < SPARSE_LAYERS ? 0.95
                                                                                : 0;
        if ((!none && !ht_json_is_number(item)) || !(share >= 0 && share < 1)) {
            ht_json_fail(r, HT_ERR_FORMAT, "`%s` has no share for layer %lld, expected 0 to less than 1", key,
                         (long long)i);
            return;
        }
        set_cutoff(c, i, share > 0, share > 0 ? deviations_of(share) : 0);
    }
}

static void read_json(ht_config *c, ht_json_reader *r, const ht_json *object) {
    bool scaled = true;
    c->attention_scale = 1;
    c->mlp_bias = false;
    ht_json_bool(r, object, "altup_correct_scale", &scaled);
    c->altup.unscaled = !scaled;
    ht_config_slide_by_pattern(c, PATTERN);
    read_sparsity(c, r, object);
}

static void read_json_layers(ht_config *c, ht_json_reader *r, const ht_json *object) {
    int64_t n_shared = 15;
    ht_json_i64(r, object, "num_kv_shared_layers", &n_shared);
    if (!ht_config_share_keys(c, n_shared))
        ht_json_fail(r, HT_ERR_FORMAT,
                     "`num_kv_shared_layers` is %lld of %lld: no earlier layer of the same type has keys and values",
                     (long long)n_shared, (long long)c->n_layers);
}

static void write_json(const ht_config *c, ht_document *d) {
    ht_json *shares = ht_json_new_array(), *widths = ht_json_new_array();
    bool differ = false;
    for (int64_t i = 0; i < c->n_layers; i++) {
        const ht_layer_config *l = &c->layer[i];
        differ = differ || l->feed_forward != c->layer[0].feed_forward;
        ht_list_append(&widths, ht_json_integer(l->feed_forward));
        ht_list_append(&shares,
                       ht_json_real(l->is_sparse ? ht_short_decimal((float)share_below((double)l->cutoff)) : 0));
    }
    ht_document_set(d, "activation_sparsity_pattern", shares);
    if (differ)
        ht_document_set(d, "intermediate_size", widths);
    else
        ht_json_decref(widths);
    ht_document_set(d, "num_kv_shared_layers", ht_json_integer(c->n_layers - ht_unshared_layers(c)));
    ht_document_set(d, "altup_active_idx", ht_json_integer(c->altup.active));
    ht_document_set(d, "altup_correct_scale", ht_json_boolean(!c->altup.unscaled));
    ht_document_set(d, "altup_coef_clip", ht_json_real(120)); /* of training */
}

static void read_gguf(ht_config *c, ht_meta *m) {
    const ht_gguf_value *cutoffs = ht_meta_value(m, "activation_sparsity_scale");
    const bool has_pattern = ht_meta_has(m, "attention.sliding_window_pattern");
    const ht_gguf_tensor *table = ht_gguf_find_tensor(m->gguf, "per_layer_token_embd.weight"),
                         *laurel = ht_gguf_find_tensor(m->gguf, "blk.0.laurel_l.weight");
    c->attention_scale = 1;
    c->mlp_bias = false;
    c->layer_input_vocab = table && table->n_dims == 2 ? table->dims[1] : c->vocab;
    c->altup.laurel_rank = laurel && laurel->n_dims == 2 ? laurel->dims[1] : 1;
    for (int64_t i = 0; i < c->n_layers; i++) {
        double cutoff = -INFINITY; /* -infinity, or the lowest float, of layers without one */
        if (cutoffs && cutoffs->type == HT_GGUF_ARRAY && !ht_gguf_item_f64(cutoffs, (uint64_t)i, &cutoff))
            ht_meta_fail(m, HT_ERR_FORMAT, "`%s.activation_sparsity_scale` has no number for layer %lld",
                         m->architecture, (long long)i);
        if (isnan(cutoff) || cutoff > (double)FLT_MAX)
            ht_meta_fail(m, HT_ERR_FORMAT, "`%s.activation_sparsity_scale` is %g in layer %lld", m->architecture,
                         cutoff, (long long)i);
        set_cutoff(c, i, cutoff > -(double)FLT_MAX, (float)cutoff);
        c->layer[i].slides =
            has_pattern ? ht_meta_layer_i64(m, "attention.sliding_window_pattern", i, 0) != 0 : (i + 1) % PATTERN != 0;
    }
    if (!ht_config_share_keys(c, ht_meta_i64(m, "attention.shared_kv_layers", 0)))
        ht_meta_fail(m, HT_ERR_FORMAT,
                     "`%s.attention.shared_kv_layers` leaves no earlier layer of the same type with keys and values",
                     m->architecture);
}

static void write_gguf(const ht_config *c, ht_document *d) {
    ht_json *cutoffs = ht_json_new_array();
    for (int64_t i = 0; i < c->n_layers; i++)
        ht_list_append(&cutoffs, ht_json_real(c->layer[i].is_sparse ? (double)c->layer[i].cutoff : -(double)FLT_MAX));
    ht_gguf_put(d, c, "activation_sparsity_scale", ht_json_pack("{s:s, s:o}", "dtype", "f32", "value", cutoffs));
    ht_gguf_put(d, c, "altup.active_idx", ht_gguf_u32(c->altup.active));
}

/* ---- the forward function ---- */

/* streams [T, n * hidden] -> [T, n, hidden] */
static ht_array *apart(ht_ctx *c, const ht_config *cfg, ht_array *streams, int64_t n) {
    return ht_reshape(c->s, streams, (int64_t[]){-1, n, cfg->hidden}, 3);
}

/* Streams [first, end) of x [T, n, hidden]. */
static ht_array *slice(ht_ctx *c, ht_array *x, int64_t first, int64_t end) {
    return ht_slice(c->s, x, (int64_t[]){0, first, 0}, (int64_t[]){HT_OPEN, end, HT_OPEN}, NULL);
}

static ht_array *active(ht_ctx *c, const ht_config *cfg, ht_array *streams) {
    return ht_squeeze(c->s, slice(c, streams, cfg->altup.active, cfg->altup.active + 1), 1);
}

/* Root of the mean square of x [..., hidden], at least that of `least`: [..., 1]. */
static ht_array *magnitude(ht_ctx *c, ht_array *x, double least) {
    ht_array *square = ht_mean(c->s, ht_square(c->s, x), (int[]){-1}, 1, true);
    if (least > 0) square = ht_maximum(c->s, square, ht_full(c->s, least, HT_F32, NULL, 0));
    return ht_sqrt(c->s, square);
}

/* All streams [T, n, hidden]: the first one [T, 1, hidden] as it is, and products of the others with their matrices, scaled to
 * its magnitude. */
static ht_array *with_products(ht_ctx *c, ht_array *first, ht_array *others, const ht_experts *matrices) {
    enum { LEAST_EXPONENT = -5 };
    ht_array *y = ht_linear_heads(c, others, matrices, false);
    ht_array *factor = ht_divide(c->s, magnitude(c, first, 0), magnitude(c, y, pow(10, LEAST_EXPONENT)));
    return ht_concatenate(c->s, (ht_array *[]){first, ht_multiply(c->s, y, factor)}, 2, 1);
}

/* The values from which all streams have their coefficients, x [T, hidden]: [T, streams]. */
static ht_array *modalities(ht_ctx *c, const ht_config *cfg, const gemma3n_layer *l, ht_array *x) {
    x = ht_scale(c->s, ht_decoder_norm(c, cfg, x, &l->router_norm), 1 / (float)cfg->hidden);
    return ht_tanh(c->s, ht_linear(c, x, &l->router));
}

/* Predictions of all streams x [T, streams, hidden] from each other. */
static ht_array *predict(ht_ctx *c, const ht_config *cfg, const gemma3n_layer *l, ht_array *x) {
    const int64_t n = cfg->altup.streams;
    ht_array *coefficients = ht_linear(c, modalities(c, cfg, l, active(c, cfg, x)), &l->predictions);
    coefficients = ht_reshape(c->s, coefficients, (int64_t[]){-1, n, n}, 3);
    return ht_add(c->s, ht_matmul(c->s, coefficients, x, false), x);
}

/* The streams after the active one, predicted with the others, was computed to be `computed` [T, hidden]. */
static ht_array *correct(ht_ctx *c, const ht_config *cfg, const gemma3n_layer *l, ht_array *predicted,
                         ht_array *computed) {
    ht_scope *s = c->s;
    ht_array *change = ht_expand_dims(s, ht_subtract(s, computed, active(c, cfg, predicted)), 1);
    ht_array *shares = ht_linear(c, modalities(c, cfg, l, computed), &l->corrections);
    shares = ht_expand_dims(s, ht_add(s, shares, ht_full(s, 1, HT_F32, NULL, 0)), 2); /* [T, streams, 1] */
    return ht_add(s, ht_multiply(s, change, shares), predicted);
}

static ht_array *laurel(ht_ctx *c, const ht_config *cfg, const gemma3n_layer *l, ht_array *x) {
    ht_array *y = ht_linear(c, ht_linear(c, x, &l->laurel_in), &l->laurel_out);
    return ht_add(c->s, x, ht_decoder_norm(c, cfg, y, &l->after_laurel_norm));
}

/* The feed-forward of layers with a cutoff of gates. */
static ht_array *sparse_mlp(ht_ctx *c, const ht_config *cfg, const ht_decoder_layer *l, float cutoff, ht_array *x) {
    ht_scope *s = c->s;
    ht_array *gate = ht_linear(c, x, &l->gate), *up = ht_linear(c, x, &l->up);
    ht_array *mean = ht_mean(s, gate, (int[]){-1}, 1, true), *deviation = ht_std(s, gate, (int[]){-1}, 1, true, 0);
    gate = ht_relu(s, ht_subtract(s, gate, ht_add(s, mean, ht_scale(s, deviation, cutoff))));
    return ht_linear(c, ht_multiply(s, cfg->family->activate(s, gate), up), &l->down);
}

/* in: streams [T or n_out, streams * hidden], pos i32 [T or n_out], the layer's input [T or n_out, layer_input]. */
static ht_array *layer(ht_ctx *c, const void *model, int i, ht_array *const *in) {
    const ht_decoder_weights *m = model;
    const ht_config *cfg = m->config;
    const gemma3n_layer *l = (const gemma3n_layer *)m->layers + i;
    const ht_decoder_layer *base = &l->of.base;
    ht_scope *s = c->s;
    ht_array *input = cfg->layer_input ? in[2] : NULL;
    ht_array *predicted = predict(c, cfg, l, apart(c, cfg, in[0], cfg->altup.streams)), *h = active(c, cfg, predicted);
    ht_array *x = ht_decoder_norm(c, cfg, h, &base->attention_norm);
    ht_array *a = ht_decoder_attention(c, m, base, i, x, in[1]);
    h = ht_add(s, h, ht_decoder_norm(c, cfg, a, &base->after_attention_norm));
    h = ht_scale(s, ht_add(s, h, laurel(c, cfg, l, x)), (float)sqrt(0.5));
    if (i == ht_unshared_layers(cfg) - 1) { /* after its attention, output rows suffice */
        h = ht_input_cut(c, h);
        predicted = ht_input_cut(c, predicted);
        if (input) input = ht_input_cut(c, input);
    }
    x = ht_decoder_norm(c, cfg, h, &base->mlp_norm);
    ht_array *f =
        cfg->layer[i].is_sparse ? sparse_mlp(c, cfg, base, cfg->layer[i].cutoff, x) : ht_decoder_mlp(c, m, base, x);
    h = ht_add(s, h, ht_decoder_norm(c, cfg, f, &base->after_mlp_norm));
    ht_array *streams = correct(c, cfg, l, predicted, h);
    if (input) {
        h = active(c, cfg, streams);
        if (!cfg->altup.unscaled) h = ht_multiply(s, h, l->scale);
        ht_array *term = ht_expand_dims(s, ht_layer_input_term(c, m, &l->of, h, input), 1);
        ht_array *others = ht_add(s, slice(c, streams, 1, HT_OPEN), term);
        streams = ht_concatenate(s, (ht_array *[]){slice(c, streams, 0, 1), others}, 2, 1);
    }
    return ht_reshape(s, streams, (int64_t[]){-1, cfg->altup.streams * cfg->hidden}, 2);
}

static ht_array *forward(ht_ctx *c, const void *model) {
    const ht_decoder_weights *m = model;
    const ht_config *cfg = m->config;
    const gemma3n_around *a = m->around;
    const int64_t n = cfg->altup.streams, all = n * cfg->hidden;
    ht_array *embedding = ht_decoder_embed(c, m), *first = ht_expand_dims(c->s, embedding, 1); /* [T, 1, hidden] */
    if (!first) return NULL;
    const int64_t others[] = {ht_array_dim(first, 0), n - 1, cfg->hidden};
    ht_array *h = with_products(c, first, ht_broadcast_to(c->s, first, others, 3), &a->stream_in);
    h = ht_input_layers(c, m, layer, ht_reshape(c->s, h, (int64_t[]){-1, all}, 2), embedding);
    h = apart(c, cfg, h, n); /* [n_out, n, hidden] */
    h = with_products(c, slice(c, h, 0, 1), slice(c, h, 1, HT_OPEN), &a->stream_out);
    return ht_decoder_head(c, m, ht_mean(c->s, h, (int[]){1}, 1, false));
}

const ht_family ht_family_gemma3n = {.architecture = "gemma3n",
                                     .model_types = {"gemma3n_text", "gemma3n"},
                                     .class_name = "Gemma3nForCausalLM",
                                     .mlx_wrapper = "gemma3n",
                                     .mlx_prefix = "model.language_model.",
                                     .defaults = {.n_layers = 35,
                                                  .hidden = 2048,
                                                  .n_heads = 8,
                                                  .n_kv_heads = 2,
                                                  .head_dim = 256,
                                                  .feed_forward = 16384,
                                                  .vocab = 262400,
                                                  .context = 32768,
                                                  .norm_eps = 1e-6,
                                                  HT_GEMMA3_THETAS,
                                                  .tied_head = true,
                                                  .activation_field = "hidden_activation",
                                                  .activation = "gelu_pytorch_tanh"},
                                     .fields = fields,
                                     .read_json = read_json,
                                     .read_json_layers = read_json_layers,
                                     .write_json = write_json,
                                     .read_gguf = read_gguf,
                                     .write_gguf = write_gguf,
                                     .normed_values = true,
    .repeats_shared_keys = true,
                                     HT_GEMMA_RUNS(ht_decoder_head_norm_specs, ht_decoder_mlp_specs,
                                                   ht_decoder_sandwich_norm_specs, layer_specs, ht_layer_input_specs),
                                     .layer_bytes = sizeof(gemma3n_layer),
                                     .around = around,
                                     .around_bytes = sizeof(gemma3n_around),
                                     .forward = forward};
