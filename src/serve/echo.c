#include "serve/echo.h"

#include <hearth/score.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- tokens ---- */

/* A number of JSON; null for what is none. The lowest that there is stands for a probability of zero. */
static ht_json *number(double value) {
    return isnan(value) ? ht_json_null() : ht_json_real(isinf(value) ? -1e308 : value);
}

ht_json *serve_token_json(const ht_tokenizer *t, int32_t id, double logprob) {
    char *bytes;
    size_t n;
    ht_text text = {0};
    if (ht_tokenizer_token_bytes(t, id, &bytes, &n, NULL))
        return ht_json_pack("{ss so s[]}", "token", "", "logprob", number(logprob), "bytes");
    ht_json *list = ht_json_new_array();
    for (size_t at = 0; at < n;) {
        uint32_t c;
        at += ht_utf8_decode(bytes + at, n - at, &c);
        ht_text_append_utf8(&text, c);
    }
    for (size_t i = 0; i < n; i++) ht_json_array_append_new(list, ht_json_integer((unsigned char)bytes[i]));
    ht_text_free(bytes);
    ht_json *token = text.failed ? NULL
                                 : ht_json_pack("{so so so}", "token", serve_text_json(&text), "logprob",
                                                number(logprob), "bytes", list);
    if (text.failed) ht_json_decref(list);
    ht_text_discard(&text);
    return token;
}

/* ---- scores ---- */

typedef struct scoring {
    serve_generation *g;
    const int32_t *ids;
    ht_json *list;
    ht_status status;
    ht_error err;
} scoring;

static bool on_score(const ht_score_result *r, void *user) {
    scoring *s = user;
    const ht_tokenizer *t = ht_model_tokenizer(s->g->c->lease.model);
    s->status = r->status;
    if (r->status) {
        snprintf(s->err.message, sizeof s->err.message, "%s", r->message);
        return false;
    }
    for (int64_t i = 0; i < r->continuations[0].n_tokens; i++) {
        const ht_token_score *k = &r->continuations[0].tokens[i];
        ht_json *token = serve_token_json(t, k->id, k->log_probability), *top = ht_json_new_array();
        for (int32_t j = 0; j < k->n_top; j++)
            ht_json_array_append_new(top, serve_token_json(t, k->top[j].id, k->top[j].log_probability));
        ht_json_object_set_new(token, "top_logprobs", top);
        ht_json_array_append_new(s->list, token);
    }
    return true;
}

ht_json *serve_score_prompt(serve_generation *g, const int32_t *ids, size_t n) {
    serve_call *c = g->c;
    scoring s = {.g = g, .ids = ids, .list = ht_json_new_array()};
    ht_json *first = serve_token_json(ht_model_tokenizer(c->lease.model), ids[0], (double)NAN);
    if (first) ht_json_object_set_new(first, "top_logprobs", ht_json_null());
    ht_json_array_append_new(s.list, first);
    if (n > 1) {
        const ht_continuation rest = {.ids = ids + 1, .n_ids = n - 1};
        const ht_score_request request = {
            .prompt = {.ids = ids, .n_ids = 1}, .continuations = &rest, .n_continuations = 1};
        ht_score_options o;
        ht_score_options_init(&o, sizeof o);
        o.top_k = g->top_logprobs;
        o.cancel = &g->cancel;
        if (c->lease.adapter) {
            o.adapters = &c->lease.adapter;
            o.adapter_scales = &c->lease.scale;
            o.n_adapters = 1;
        }
        const ht_status status = ht_score(c->lease.model, &request, 1, &o, on_score, &s, &s.err);
        if (status || s.status) {
            ht_json_decref(s.list);
            serve_fail_as(&c->failure, status && !s.status ? status : s.status, &s.err);
            return NULL;
        }
    }
    if (ht_json_array_size(s.list) == n) return s.list;
    ht_json_decref(s.list);
    serve_fail_memory(&c->failure);
    return NULL;
}

/* ---- the form of text completions ---- */

int64_t serve_characters(const char *text, size_t n) {
    int64_t count = 0;
    for (size_t i = 0; i < n; i++) count += ((unsigned char)text[i] & 0xC0) != 0x80;
    return count;
}

ht_json *serve_completion_logprobs(const ht_json *list, int64_t offset) {
    ht_json *tokens = ht_json_new_array(), *values = ht_json_new_array(), *tops = ht_json_new_array(),
            *offsets = ht_json_new_array(), *entry;
    size_t i;
    ht_json_array_foreach((ht_json *)list, i, entry) {
        ht_json *token = ht_json_object_get(entry, "token"), *top = ht_json_object_get(entry, "top_logprobs"), *one;
        size_t j;
        ht_json *by_token = ht_json_is_null(top) ? ht_json_null() : ht_json_new_object();
        ht_json_array_append(tokens, token);
        ht_json_array_append(values, ht_json_object_get(entry, "logprob"));
        ht_json_array_foreach(top, j, one) {
            /* Two tokens may have the same text; the likelier one comes first, and stays. */
            const char *name = ht_json_string_value(ht_json_object_get(one, "token"));
            if (name && !ht_json_object_get(by_token, name))
                ht_json_object_set(by_token, name, ht_json_object_get(one, "logprob"));
        }
        ht_json_array_append_new(tops, by_token);
        ht_json_array_append_new(offsets, ht_json_integer(offset));
        offset += token ? serve_characters(ht_json_string_value(token), ht_json_string_length(token)) : 0;
    }
    return ht_json_pack("{so so so so}", "tokens", tokens, "token_logprobs", values, "top_logprobs", tops,
                        "text_offset", offsets);
}
