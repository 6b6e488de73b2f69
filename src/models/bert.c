/* Text encoders of BERT's kind: learned positions and token types, a norm of each sum on the residual stream, attention to
 * both sides. RoBERTa and XLM-R differ in their tokenizers, and in where the table of positions begins. */
#include "checkpoint/convert_metadata.h"
#include "models/decoder.h"
#include "models/registry.h"

typedef struct bert_around {
    ht_weight positions; /* [context, hidden] */
    ht_weight types;     /* [n_token_types, hidden] */
    ht_norm_weights norm;
} bert_around;

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

static bool has_token_types(const ht_config *c, int64_t layer) {
    (void)layer;
    return c->n_token_types > 0;
}

#define AT(field) offsetof(bert_around, field)
static const ht_tensor_spec bert_around_specs[] = {
    {AT(positions), "embeddings.position_embeddings", "position_embd", HT_EXTENT_CONTEXT, HT_EXTENT_HIDDEN,
     .looked_up = true},
    {AT(types), "embeddings.token_type_embeddings", "token_types", HT_EXTENT_TOKEN_TYPES, HT_EXTENT_HIDDEN,
     .has = has_token_types, .looked_up = true},
    {AT(norm), "embeddings.LayerNorm", "token_embd_norm", .rows = HT_EXTENT_HIDDEN, .bias = HT_BIAS_NORM},
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
    const bert_around *a = m->around;
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
                                  .layer_norm = true,
                                  .two_sided = true,
                                  .no_final_norm = true,
                                  .prefix = "",
                                  .layers_name = "encoder.layer",
                                  .embedding_name = "embeddings.word_embeddings",
                                  .layer = {bert_specs},
                                  .layer_bytes = sizeof(ht_decoder_layer),
                                  .around = bert_around_specs,
                                  .around_bytes = sizeof(bert_around),
                                  .forward = forward_bert};
