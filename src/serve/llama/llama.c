/* llama-server's smaller endpoints: tokenization, formatted prompts, properties, adapters, embeddings. */
#include "serve/embeddings.h"
#include "serve/openai/openai.h"
#include "serve/sampling.h"

#include <hearth/version.h>

#include <stdlib.h>
#include <string.h>

static const ht_tokenizer *tokenizer(serve_call *c) {
    const ht_tokenizer *t = ht_model_tokenizer(c->lease.model);
    if (!t) serve_fail(&c->failure, 400, NULL, "the model has no tokenizer");
    return t;
}

/* ---- tokens ---- */

const serve_field serve_tokenize_fields[] = {
    {"model", .is = SERVE_IS_TEXT},       {"content", .is = SERVE_IS_TEXT, .required = true},
    {"add_special", .is = SERVE_IS_FLAG}, {"parse_special", .is = SERVE_IS_FLAG},
    {"with_pieces", .is = SERVE_IS_FLAG}, {0}};

static ht_json *token_json(const ht_tokenizer *t, int32_t id) {
    char *bytes;
    size_t n;
    if (ht_tokenizer_token_bytes(t, id, &bytes, &n, NULL)) return NULL;
    ht_json *piece = ht_utf8_valid(bytes, n) && !memchr(bytes, 0, n) ? ht_json_stringn(bytes, n) : ht_json_new_array();
    for (size_t i = 0; ht_json_is_array(piece) && i < n; i++)
        ht_json_array_append_new(piece, ht_json_integer((unsigned char)bytes[i]));
    ht_text_free(bytes);
    return ht_json_pack("{si so}", "id", (int)id, "piece", piece);
}

bool serve_tokenize(serve_call *c) {
    const char *content = serve_text(c->body, "content");
    const bool pieces = serve_flag(c->body, "with_pieces", false);
    const ht_tokenizer *t = tokenizer(c);
    if (!t) return false;
    int32_t *ids;
    size_t n;
    ht_error err = {0};
    const unsigned flags = (serve_flag(c->body, "add_special", false) ? HT_ENCODE_ADD_SPECIAL : 0u) |
                           (serve_flag(c->body, "parse_special", true) ? HT_ENCODE_PARSE_SPECIAL : 0u);
    const ht_status status = ht_tokenizer_encode(t, content, strlen(content), flags, &ids, &n, &err);
    if (status) return serve_fail_as(&c->failure, status, &err);
    ht_json *tokens = ht_json_new_array();
    for (size_t i = 0; i < n; i++)
        ht_json_array_append_new(tokens, pieces ? token_json(t, ids[i]) : ht_json_integer(ids[i]));
    ht_ids_free(ids);
    serve_reply_json(c->x, 200, ht_json_pack("{so}", "tokens", tokens), SERVE_OPENAI);
    return true;
}

static const serve_shape id_shape = SERVE_IS_INTEGER(0, INT32_MAX);
const serve_field serve_detokenize_fields[] = {
    {"model", .is = SERVE_IS_TEXT}, {"tokens", .is = SERVE_IS_LIST(&id_shape), .required = true}, {0}};

bool serve_detokenize(serve_call *c) {
    const ht_json *tokens = serve_member(c->body, "tokens");
    const ht_tokenizer *t = tokenizer(c);
    if (!t) return false;
    const size_t n = ht_json_array_size(tokens);
    int32_t *ids = calloc(n + 1, sizeof *ids);
    if (!ids) return serve_fail_memory(&c->failure);
    for (size_t i = 0; i < n; i++) {
        int64_t value;
        if (!ht_json_whole(ht_json_array_get(tokens, i), &value) || value >= ht_tokenizer_vocab_size(t)) {
            free(ids);
            return serve_fail(&c->failure, 400, "tokens", "\"tokens\": number %zu is no token of the model", i);
        }
        ids[i] = (int32_t)value;
    }
    char *text;
    size_t length;
    ht_error err = {0};
    const ht_status status = ht_tokenizer_decode(t, ids, n, false, &text, &length, &err);
    free(ids);
    if (status) return serve_fail_as(&c->failure, status, &err);
    serve_reply_json(c->x, 200, ht_json_pack("{ss%}", "content", text, length), SERVE_OPENAI);
    ht_text_free(text);
    return true;
}

/* ---- templates ---- */

bool serve_apply_template(serve_call *c) {
    serve_conversation k = {0};
    ht_chat *chat;
    char *text;
    ht_error err = {0};
    if (!serve_openai_read_conversation(c, &k) || !serve_make_chat(c, &k, &chat)) return false;
    const ht_status status = ht_chat_format(c->lease.model, chat, &text, &err);
    ht_chat_free(chat);
    if (status) return serve_fail_as(&c->failure, status, &err);
    serve_reply_json(c->x, 200, ht_json_pack("{ss}", "prompt", text), SERVE_OPENAI);
    ht_text_free(text);
    return true;
}

/* ---- properties ---- */

static ht_json *piece_json(const ht_tokenizer *t, int32_t id) {
    const char *piece = t && id >= 0 ? ht_tokenizer_piece(t, id) : NULL;
    return ht_json_string(piece ? piece : "");
}

/* Default sampling values of requests, and their sources. */
static ht_json *default_settings(const serve_call *c) {
    const ht_sampling_value *of_model;
    ht_json *params = ht_json_new_object(), *sources = ht_json_new_object();
    for (int i = 0; (of_model = ht_model_sampling(c->lease.model, i)); i++) {
        const ht_sampling_value v = serve_sampling_value(&c->server->o, of_model);
        const bool window = strcmp(v.name, "repeat_window") == 0, whole = window || strcmp(v.name, "top_k") == 0;
        const bool off_by_one = strcmp(v.name, "top_p") == 0 || strcmp(v.name, "repeat_penalty") == 0;
        const char *name = window ? "repeat_last_n" : v.name;
        const double value = off_by_one && v.value == 0 ? 1 : v.value;
        ht_json_object_set_new(params, name, whole ? ht_json_integer((int64_t)value) : ht_json_real(value));
        ht_json_object_set_new(sources, name, ht_json_string(v.source));
    }
    ht_json_object_set_new(params, "n_predict", ht_json_integer(-1));
    return ht_json_pack("{sI so so}", "n_ctx", (int64_t)ht_model_context(c->lease.model), "params", params, "sources",
                        sources);
}

bool serve_llama_props(serve_call *c) {
    const serve_options *o = &c->server->o;
    const ht_tokenizer *t = ht_model_tokenizer(c->lease.model);
    const char *own = t ? ht_tokenizer_chat_template(t) : NULL;
    serve_reply_json(c->x, 200,
                     ht_json_pack("{so si ss ss ss so so s{sb sb} sb ss}", "default_generation_settings",
                                  default_settings(c), "total_slots", (int)o->models.engine.sequences, "model_alias",
                                  c->lease.name, "model_path", c->lease.name, "chat_template", own ? own : "",
                                  "bos_token", piece_json(t, t ? ht_tokenizer_bos(t) : -1), "eos_token",
                                  piece_json(t, t ? ht_tokenizer_eos(t) : -1), "modalities", "vision", 0, "audio", 0,
                                  "endpoint_slots", 1, "build_info", ht_version()),
                     SERVE_OPENAI);
    return true;
}

/* Rejects changes of read-only properties. */
static bool refuse_change(serve_call *c, const char *sentence) {
    char methods[SERVE_METHODS];
    serve_route_methods(c->route->path, methods);
    (void)http_exchange_field(c->x, "Allow", methods);
    return serve_fail(&c->failure, 405, NULL, "%s", sentence);
}

bool serve_llama_change_props(serve_call *c) {
    return refuse_change(c, "server options cannot change while it runs: set them in each request, or restart the "
                            "server with other options");
}

/* ---- adapters ---- */

bool serve_llama_adapters(serve_call *c) {
    const serve_models_options *o = &c->server->o.models;
    ht_json *list = ht_json_new_array();
    for (size_t i = 0; i < o->n_adapters; i++)
        ht_json_array_append_new(list, ht_json_pack("{si ss sf}", "id", (int)i, "path", o->adapter[i].name, "scale",
                                                    (double)o->adapter[i].scale));
    serve_reply_json(c->x, 200, list, SERVE_OPENAI);
    return true;
}

bool serve_llama_change_adapters(serve_call *c) {
    const serve_models_options *o = &c->server->o.models;
    char sentence[320] = "there are no adapters: start the server with --adapter NAME=PATH, and ask for the model NAME";
    if (o->n_adapters)
        snprintf(
            sentence, sizeof sentence,
            "adapters have no scale for all requests: each is a model, so ask for \"model\": \"%.128s\"; its scale "
            "is that of --adapter NAME=PATH@SCALE",
            o->adapter[0].name);
    return refuse_change(c, sentence);
}

/* ---- embeddings ---- */

const serve_field serve_llama_embedding_fields[] = {{"model", .is = SERVE_IS_TEXT},
                                                    {"content", .is = SERVE_IS_INPUTS},
                                                    {"input", .is = SERVE_IS_INPUTS},
                                                    {"embd_normalize", .is = SERVE_IS_INTEGER(INT32_MIN, INT32_MAX)},
                                                    {"pooling", .is = SERVE_IS_WORD(serve_poolings)},
                                                    {"truncate", .is = SERVE_IS_FLAG},
                                                    {0}};

/* One vector, or those of all tokens. */
static ht_json *vectors_json(const ht_embeddings *e, const ht_embedding *one, const ht_embed_options *o, int32_t norm) {
    ht_json *rows = ht_json_new_array();
    const int64_t n = o->pooling == HT_POOLING_NONE ? one->n_tokens : 1;
    for (int64_t t = 0; t < n; t++)
        ht_json_array_append_new(
            rows, serve_embedding_json(one->values + t * e->hidden, e->hidden, o->normalize ? -1 : norm, false));
    return rows;
}

bool serve_llama_embedding(serve_call *c) {
    ht_embed_options o;
    ht_embeddings *e;
    const ht_json *input = serve_member(c->body, "content");
    ht_embed_options_init(&o, sizeof o);
    if (!input) input = serve_member(c->body, "input");
    if (!input)
        return serve_fail(&c->failure, 400, "content", "\"content\" must be a string, token ids, or a list of these");
    o.pooling = serve_read_pooling(c);
    if (o.pooling == HT_POOLING_MODEL) o.pooling = ht_model_pooling(c->lease.model);
    /* Hidden states of tokens are not scaled, unless the request says so. */
    const int32_t norm = (int32_t)serve_integer(c->body, "embd_normalize", o.pooling == HT_POOLING_NONE ? -1 : 2);
    o.normalize = norm == 2;
    o.truncate = serve_flag(c->body, "truncate", false);
    if (!serve_embed_inputs(c, input, &o, &e)) return false;
    serve_report_truncated(c, e);
    ht_json *list = ht_json_new_array();
    for (size_t i = 0; i < e->n; i++)
        ht_json_array_append_new(
            list, ht_json_pack("{si so}", "index", (int)i, "embedding", vectors_json(e, &e->embeddings[i], &o, norm)));
    ht_embeddings_free(e);
    serve_reply_json(c->x, 200, list, SERVE_OPENAI);
    return true;
}
