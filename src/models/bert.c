/* Text encoders. BERT: learned positions and token types, a norm of each sum on the residual stream; RoBERTa and XLM-R
 * differ in their tokenizers, and in where the table of positions begins. Nomic's: RoPE and a gate instead. ModernBERT:
 * norms before the sublayers, a gate, and windows in two of three layers. */
#include "checkpoint/convert_metadata.h"
#include "models/decoder.h"
#include "models/registry.h"

#define AT(field) offsetof(ht_decoder_layer, field)
static const ht_tensor_spec bert_specs[] = {
    {AT(q), "attention.self.query", "attn_q", HT_EXTENT_Q, HT_EXTENT_HIDDEN, .bias = HT_BIAS_Q},
    {AT(k), "attention.self.key", "attn_k", HT_EXTENT_KV, HT_EXTENT_HIDDEN, .bias = HT_BIAS_Q},
    {AT(v), "attention.self.value", "attn_v", HT_EXTENT_KV, HT_EXTENT_HIDDEN, .bias = HT_BIAS_Q},
    {AT(out), "attention.output.dense", "attn_output", HT_EXTENT_HIDDEN, HT_EXTENT_Q, .bias = HT_BIAS_OUT},
    {AT(after_attention_norm), "attention.output.LayerNorm", "attn_output_norm", .rows = HT_EXTENT_HIDDEN,
     .bias = HT_BIAS_NORM},
    {AT(up), "intermediate.dense", "ffn_up", HT_EXTENT_FEED_FORWARD, HT_EXTENT_HIDDEN, .bias = HT_BIAS_MLP},
    {AT(down), "output.dense", "ffn_down", HT_EXTENT_HIDDEN, HT_EXTENT_FEED_FORWARD, .bias = HT_BIAS_MLP},
    {AT(after_mlp_norm), "output.LayerNorm", "layer_output_norm", .rows = HT_EXTENT_HIDDEN, .bias = HT_BIAS_NORM},
    {.gguf = NULL}};
#undef AT

static bool has_labels(const ht_config *c, int64_t layer) {
    (void)layer;
    return c->n_labels > 0;
}

/* The head of BERT begins with its pooler; that of RoBERTa with another matrix. */
#define BERT_HEAD                                                                                                      \
    {offsetof(ht_encoder_around, head.dense),                                                                          \
     "classifier.dense",                                                                                               \
     "cls",                                                                                                            \
     HT_EXTENT_HIDDEN,                                                                                                 \
     HT_EXTENT_HIDDEN,                                                                                                 \
     .bias = HT_BIAS_NONE,                                                                                             \
     .has = has_labels,                                                                                                \
     .optional = true,                                                                                                 \
     .transformers = "pooler.dense"},                                                                                  \
    {                                                                                                                  \
        offsetof(ht_encoder_around, head.out), "classifier.out_proj", "cls.output", HT_EXTENT_LABELS,                  \
            HT_EXTENT_HIDDEN, .bias = HT_BIAS_NONE, .has = has_labels, .optional = true, .transformers = "classifier"  \
    }

static bool has_token_types(const ht_config *c, int64_t layer) {
    (void)layer;
    return c->n_token_types > 0;
}

#define AT(field) offsetof(ht_encoder_around, field)
static const ht_tensor_spec bert_around_specs[] = {
    {AT(positions), "embeddings.position_embeddings", "position_embd", HT_EXTENT_CONTEXT, HT_EXTENT_HIDDEN,
     .looked_up = true},
    {AT(types), "embeddings.token_type_embeddings", "token_types", HT_EXTENT_TOKEN_TYPES, HT_EXTENT_HIDDEN,
     .has = has_token_types, .looked_up = true},
    {AT(norm), "embeddings.LayerNorm", "token_embd_norm", .rows = HT_EXTENT_HIDDEN, .bias = HT_BIAS_NORM},
    BERT_HEAD,
    {.gguf = NULL}};
#undef AT

static void leave_out_rope(ht_config *c) {
    for (int64_t i = 0; i < c->n_layers; i++) c->layer[i].no_rope = true;
}

static void read_bert(ht_config *c, ht_json_reader *r, const ht_json *object) {
    const char *type = "bert", *positions = "absolute";
    bool is_decoder = false;
    int64_t padding = 1;
    ht_json_str(r, object, "model_type", &type);
    ht_json_str(r, object, "position_embedding_type", &positions);
    if (strcmp(positions, "absolute"))
        ht_json_fail(r, HT_ERR_UNSUPPORTED, "`position_embedding_type` is `%.40s`; only absolute is supported",
                     positions);
    if (ht_json_bool(r, object, "is_decoder", &is_decoder) && is_decoder)
        ht_json_fail(r, HT_ERR_UNSUPPORTED, "`is_decoder` is true; encoders are supported");
    if (strcmp(type, "bert")) { /* positions begin after the padding token's id */
        ht_json_i64(r, object, "pad_token_id", &padding);
        if (padding < 0 || padding >= c->context)
            ht_json_fail(r, HT_ERR_FORMAT, "`pad_token_id` is %lld, expected one of %lld positions", (long long)padding,
                         (long long)c->context);
        c->position_offset = padding + 1;
        c->context -= c->position_offset;
    }
    leave_out_rope(c);
}

static void read_bert_gguf(ht_config *c, ht_meta *m) {
    (void)m;
    leave_out_rope(c);
}

/* in: h [T, hidden], pos i32 [T]. */
static ht_array *bert_layer(ht_ctx *c, const void *model, int i, ht_array *const *in) {
    const ht_decoder_weights *m = model;
    const ht_decoder_layer *l = (const ht_decoder_layer *)m->layers + i;
    ht_array *h = ht_add(c->s, in[0], ht_decoder_attention(c, m, l, i, in[0], in[1]));
    if (i == m->config->n_layers - 1) h = ht_decoder_cut(c, h);
    h = ht_decoder_norm(c, m->config, h, &l->after_attention_norm);
    return ht_decoder_norm(c, m->config, ht_add(c->s, h, ht_decoder_mlp(c, m, l, h)), &l->after_mlp_norm);
}

static ht_array *forward_bert(ht_ctx *c, const void *model) {
    const ht_decoder_weights *m = model;
    const ht_encoder_around *a = m->around;
    ht_array *pos = ht_batch_positions(c), *h = ht_decoder_embed(c, m);
    if (a->types.matrix) h = ht_add(c->s, h, ht_embed(c, ht_batch_types(c), &a->types, 1));
    if (a->positions.matrix) h = ht_add(c->s, h, ht_embed(c, pos, &a->positions, 1));
    h = ht_decoder_norm(c, m->config, h, &a->norm);
    for (int i = 0; i < m->config->n_layers; i++) h = ht_layer(c, bert_layer, m, i, i, (ht_array *[]){h, pos}, 2);
    return h;
}

static const ht_config_field bert_fields[] = {{HT_FIELD(I64, n_token_types, "type_vocab_size", NULL, 2)},
                                              {.json = NULL}};

const ht_family ht_family_bert = {.architecture = "bert",
                                  .model_types = {"bert", "roberta", "xlm-roberta", "camembert"},
                                  .class_name = "BertModel",
                                  .head_class_name = "BertForSequenceClassification",
                                  .defaults = {.n_layers = 12,
                                               .hidden = 768,
                                               .n_heads = 12,
                                               .feed_forward = 3072,
                                               .vocab = 30522,
                                               .context = 512,
                                               .tied_head = true,
                                               .activation_field = "hidden_act",
                                               .activation = "gelu",
                                               .norm_eps = 1e-12,
                                               .norm_eps_field = "layer_norm_eps",
                                               .rope_theta = 10000,
                                               .q_bias = true,
                                               .out_bias = true,
                                               .mlp_bias = true,
                                               .norm_bias = true},
                                  .fields = bert_fields,
                                  .read_json = read_bert,
                                  .read_gguf = read_bert_gguf,
                                  .activate = ht_gelu,
                                  .activate_head = ht_tanh,
                                  .layer_norm = true,
                                  .two_sided = true,
                                  .no_final_norm = true,
                                  .prefix = "",
                                  .layers_name = "encoder.layer",
                                  .embedding_name = "embeddings.word_embeddings",
                                  .layer = {bert_specs},
                                  .layer_bytes = sizeof(ht_decoder_layer),
                                  .around = bert_around_specs,
                                  .around_bytes = sizeof(ht_encoder_around),
                                  .forward = forward_bert};

/* ---- Nomic's BERT: RoPE, a gated feed-forward, no biases but those of norms ---- */

#define AT(field) offsetof(ht_decoder_layer, field)
static const ht_tensor_spec nomic_specs[] = {
    {AT(qkv), "attn.Wqkv", "attn_qkv", HT_EXTENT_QKV, HT_EXTENT_HIDDEN, .bias = HT_BIAS_Q},
    {AT(out), "attn.out_proj", "attn_output", HT_EXTENT_HIDDEN, HT_EXTENT_Q, .bias = HT_BIAS_OUT},
    {AT(after_attention_norm), "norm1", "attn_output_norm", .rows = HT_EXTENT_HIDDEN, .bias = HT_BIAS_NORM},
    {AT(up), "mlp.fc11", "ffn_up", HT_EXTENT_FEED_FORWARD, HT_EXTENT_HIDDEN, .bias = HT_BIAS_MLP},
    {AT(gate), "mlp.fc12", "ffn_gate", HT_EXTENT_FEED_FORWARD, HT_EXTENT_HIDDEN, .bias = HT_BIAS_MLP},
    {AT(down), "mlp.fc2", "ffn_down", HT_EXTENT_HIDDEN, HT_EXTENT_FEED_FORWARD, .bias = HT_BIAS_MLP},
    {AT(after_mlp_norm), "norm2", "layer_output_norm", .rows = HT_EXTENT_HIDDEN, .bias = HT_BIAS_NORM},
    {.gguf = NULL}};
#undef AT

#define AT(field) offsetof(ht_encoder_around, field)
static const ht_tensor_spec nomic_around_specs[] = {
    {AT(types), "embeddings.token_type_embeddings", "token_types", HT_EXTENT_TOKEN_TYPES, HT_EXTENT_HIDDEN,
     .has = has_token_types, .looked_up = true},
    {AT(norm), "emb_ln", "token_embd_norm", .rows = HT_EXTENT_HIDDEN, .bias = HT_BIAS_NORM},
    BERT_HEAD,
    {.gguf = NULL}};
#undef AT

/* Fields of the releases, which transformers spells like others'. */
static void read_nomic(ht_config *c, ht_json_reader *r, const ht_json *object) {
    static const char *const flags[] = {"prenorm",       "causal",       "rotary_emb_interleaved",
                                        "qkv_proj_bias", "mlp_fc1_bias", "mlp_fc2_bias"};
    double eps = (double)c->norm_eps, share = 1;
    int64_t trained = c->context, every = 0;
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++) {
        bool on = false;
        if (ht_json_bool(r, object, flags[i], &on) && on)
            ht_json_fail(r, HT_ERR_UNSUPPORTED, "`%s` is true; only false is supported", flags[i]);
    }
    if (ht_json_i64(r, object, "moe_every_n_layers", &every) && every > 0)
        ht_json_fail(r, HT_ERR_UNSUPPORTED, "`moe_every_n_layers` is %lld; models without experts are supported",
                     (long long)every);
    if (ht_json_f64(r, object, "rotary_emb_fraction", &share) && share != 1)
        ht_json_fail(r, HT_ERR_UNSUPPORTED, "`rotary_emb_fraction` is %g; only 1 is supported", share);
    ht_json_f64(r, object, "layer_norm_epsilon", &eps);
    c->norm_eps = (float)eps;
    ht_json_f64(r, object, "rotary_emb_base", &c->rope.theta);
    /* The releases claim four times the positions that they were trained for. */
    ht_json_i64(r, object, "max_trained_positions", &trained);
    if (ht_json_object_get(object, "n_positions") && !ht_json_object_get(object, "max_position_embeddings"))
        c->context = c->context < trained ? c->context : trained;
}

const ht_family ht_family_nomic_bert = {.architecture = "nomic-bert",
                                        .model_types = {"nomic_bert"},
                                        .class_name = "NomicBertModel",
                                        .head_class_name = "NomicBertForSequenceClassification",
                                        .defaults = {.n_layers = 12,
                                                     .hidden = 768,
                                                     .n_heads = 12,
                                                     .feed_forward = 3072,
                                                     .vocab = 30528,
                                                     .context = 2048,
                                                     .tied_head = true,
                                                     .activation_field = "activation_function",
                                                     .activation = "swiglu",
                                                     .norm_eps = 1e-12,
                                                     .norm_eps_field = "layer_norm_eps",
                                                     .rope_theta = 1000,
                                                     .norm_bias = true},
                                        .fields = bert_fields,
                                        .read_json = read_nomic,
                                        .activate = ht_silu,
                                        .activate_head = ht_tanh,
                                        .layer_norm = true,
                                        .two_sided = true,
                                        .no_final_norm = true,
                                        .prefix = "",
                                        .layers_name = "encoder.layers",
                                        .embedding_name = "embeddings.word_embeddings",
                                        .layer = {nomic_specs},
                                        .layer_bytes = sizeof(ht_decoder_layer),
                                        .around = nomic_around_specs,
                                        .around_bytes = sizeof(ht_encoder_around),
                                        .forward = forward_bert};

/* ---- ModernBERT ---- */

static bool is_not_first(const ht_config *c, int64_t layer) {
    (void)c;
    return layer > 0;
}

#define AT(field) offsetof(ht_decoder_layer, field)
static const ht_tensor_spec modern_specs[] = {
    {AT(attention_norm), "attn_norm", "attn_norm", .rows = HT_EXTENT_HIDDEN, .bias = HT_BIAS_NORM, .has = is_not_first},
    {AT(qkv), "attn.Wqkv", "attn_qkv", HT_EXTENT_QKV, HT_EXTENT_HIDDEN, .bias = HT_BIAS_Q},
    {AT(out), "attn.Wo", "attn_output", HT_EXTENT_HIDDEN, HT_EXTENT_Q, .bias = HT_BIAS_OUT},
    {AT(mlp_norm), "mlp_norm", "ffn_norm", .rows = HT_EXTENT_HIDDEN, .bias = HT_BIAS_NORM},
    {AT(gate_up), "mlp.Wi", "ffn_up", HT_EXTENT_GATE_UP, HT_EXTENT_HIDDEN, .bias = HT_BIAS_MLP},
    {AT(down), "mlp.Wo", "ffn_down", HT_EXTENT_HIDDEN, HT_EXTENT_FEED_FORWARD, .bias = HT_BIAS_MLP},
    {.gguf = NULL}};
#undef AT

#define AT(field) offsetof(ht_encoder_around, field)
static const ht_tensor_spec modern_around_specs[] = {
    {AT(norm), "embeddings.norm", "token_embd_norm", .rows = HT_EXTENT_HIDDEN, .bias = HT_BIAS_NORM},
    {AT(head.dense), "head.dense", "cls", HT_EXTENT_HIDDEN, HT_EXTENT_HIDDEN, .bias = HT_BIAS_NONE, .has = has_labels,
     .optional = true},
    {AT(head.norm), "head.norm", "cls.norm", .rows = HT_EXTENT_HIDDEN, .bias = HT_BIAS_NORM, .has = has_labels,
     .optional = true},
    {AT(head.out), "classifier", "cls.output", HT_EXTENT_LABELS, HT_EXTENT_HIDDEN, .bias = HT_BIAS_NONE,
     .has = has_labels, .optional = true},
    {.gguf = NULL}};
#undef AT

enum { MODERN_PATTERN = 3 }; /* one layer of as many attends to all tokens, the first one too */

static void slide_after_first(ht_config *c, int64_t pattern) {
    for (int64_t i = 0; i < c->n_layers; i++) c->layer[i].slides = c->window > 0 && i % pattern != 0;
}

static void read_modern(ht_config *c, ht_json_reader *r, const ht_json *object) {
    int64_t pattern = MODERN_PATTERN;
    const char *pooling = "cls", *activation = "gelu";
    ht_json_f64(r, object, "global_rope_theta", &c->rope.theta);
    ht_json_f64(r, object, "local_rope_theta", &c->local_rope.theta);
    ht_json_str(r, object, "classifier_pooling", &pooling);
    c->label_mean = !strcmp(pooling, "mean");
    if (ht_json_str(r, object, "classifier_activation", &activation) && c->n_labels && strcmp(activation, "gelu"))
        ht_json_fail(r, HT_ERR_UNSUPPORTED, "`classifier_activation` is `%.40s`; only gelu is supported", activation);
    if (ht_json_i64(r, object, "global_attn_every_n_layers", &pattern) && pattern < 1)
        ht_json_fail(r, HT_ERR_FORMAT, "`global_attn_every_n_layers` is %lld, expected a positive number",
                     (long long)pattern);
    else
        slide_after_first(c, pattern);
}

static void read_modern_gguf(ht_config *c, ht_meta *m) {
    static const char name[] = "attention.sliding_window_pattern";
    char activation[16];
    const ht_gguf_value *v = ht_meta_value(m, name);
    const int64_t pattern = v && v->type == HT_GGUF_ARRAY ? 1 : ht_meta_i64(m, name, MODERN_PATTERN);
    c->label_mean = ht_meta_i64(m, "classifier.pooling_type", 1) == 1;
    ht_meta_string(m, "hidden_activation", activation, sizeof activation);
    c->silu = !strcmp(activation, "silu");
    if (*activation && !c->silu && strcmp(activation, "gelu"))
        ht_meta_fail(m, HT_ERR_UNSUPPORTED, "`%s.hidden_activation` is `%s`; gelu and silu are supported",
                     m->architecture, activation);
    if (pattern < 1)
        ht_meta_fail(m, HT_ERR_FORMAT, "`%s.%s` is %lld, expected a positive number", m->architecture, name,
                     (long long)pattern);
    else
        slide_after_first(c, pattern);
    for (int64_t i = 0; v && v->type == HT_GGUF_ARRAY && i < c->n_layers; i++)
        c->layer[i].slides = c->window > 0 && ht_meta_layer_i64(m, name, i, 0) != 0;
}

/* Older readers have fields for the pattern and the thetas. */
static void write_modern(const ht_config *c, ht_document *d) {
    int64_t pattern = 1;
    bool is_regular = true;
    while (pattern < c->n_layers && c->layer[pattern].slides) pattern++;
    for (int64_t i = 0; i < c->n_layers; i++) is_regular = is_regular && c->layer[i].slides == (i % pattern != 0);
    if (is_regular) ht_document_set(d, "global_attn_every_n_layers", ht_json_integer(pattern));
    ht_document_set(d, "global_rope_theta", ht_json_real(c->rope.theta));
    ht_document_set(d, "local_rope_theta", ht_json_real(c->local_rope.theta));
    ht_document_set(d, "classifier_pooling", ht_json_string(c->label_mean ? "mean" : "cls"));
}

static void write_modern_gguf(const ht_config *c, ht_document *d) {
    ht_gguf_put(d, c, "hidden_activation", ht_json_string(c->silu ? "silu" : "gelu"));
}

static ht_array *forward_modern(ht_ctx *c, const void *model) {
    const ht_decoder_weights *m = model;
    const ht_encoder_around *a = m->around;
    ht_begin_two_sided(c, m->config->window / 2);
    ht_array *h = ht_decoder_norm(c, m->config, ht_decoder_embed(c, m), &a->norm);
    return ht_decoder_layers(c, m, h, ht_batch_positions(c));
}

static const ht_config_field modern_fields[] = {{HT_FIELD(I64, window, "local_attention", NULL, 128)},
                                                {HT_FIELD(I64, window, NULL, "attention.sliding_window", 0)},
                                                {HT_FIELD(BOOL, norm_bias, "norm_bias", NULL, 0)},
                                                {.json = NULL}};

const ht_family ht_family_modern_bert = {.architecture = "modern-bert",
                                         .model_types = {"modernbert"},
                                         .class_name = "ModernBertModel",
                                         .head_class_name = "ModernBertForSequenceClassification",
                                         .defaults = {.n_layers = 22,
                                                      .hidden = 768,
                                                      .n_heads = 12,
                                                      .feed_forward = 1152,
                                                      .vocab = 50368,
                                                      .context = 8192,
                                                      .tied_head = true,
                                                      .activation_field = "hidden_activation",
                                                      .activation = "gelu",
                                                      .may_have_silu = true,
                                                      .norm_eps = 1e-5,
                                                      .norm_eps_field = "norm_eps",
                                                      .rope_theta = 160000,
                                                      .local_rope_theta = 10000},
                                         .fields = modern_fields,
                                         .read_json = read_modern,
                                         .read_gguf = read_modern_gguf,
                                         .write_json = write_modern,
                                         .write_gguf = write_modern_gguf,
                                         .rope_by_type = true,
                                         .activate = ht_gelu,
                                         .activate_head = ht_gelu,
                                         .layer_norm = true,
                                         .two_sided = true,
                                         .prefix = "",
                                         .embedding_name = "embeddings.tok_embeddings",
                                         .final_norm_name = "final_norm",
                                         .layer = {modern_specs},
                                         .layer_bytes = sizeof(ht_decoder_layer),
                                         .around = modern_around_specs,
                                         .around_bytes = sizeof(ht_encoder_around),
                                         .forward = forward_modern};
