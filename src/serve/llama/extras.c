#include "serve/llama/extras.h"

#include "formats/json.h"
#include "serve/echo.h"
#include "serve/openai/openai.h"

#include <stdlib.h>
#include <string.h>

static const ht_tokenizer *tokenizer(serve_call *c) {
    const ht_tokenizer *t = ht_model_tokenizer(c->lease.model);
    if (!t) serve_fail(&c->failure, 400, NULL, "the model has no tokenizer");
    return t;
}

/* ---- tokens ---- */

static const serve_field tokenize_fields[] = {
    {"model", .is = SERVE_IS_TEXT},       {"content", .is = SERVE_IS_TEXT, .required = true},
    {"add_special", .is = SERVE_IS_FLAG}, {"parse_special", .is = SERVE_IS_FLAG},
    {"with_pieces", .is = SERVE_IS_FLAG}, {0}};
const serve_field *const serve_tokenize_fields[] = {tokenize_fields, NULL};

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

static const serve_shape id = SERVE_IS_INTEGER(0, INT32_MAX);
static const serve_field detokenize_fields[] = {
    {"model", .is = SERVE_IS_TEXT}, {"tokens", .is = SERVE_IS_LIST(&id), .required = true}, {0}};
const serve_field *const serve_detokenize_fields[] = {detokenize_fields, NULL};

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
