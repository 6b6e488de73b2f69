#include "serve/echo.h"

#include <hearth/score.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- tokens ---- */

/* A number of JSON; null for what is none. The lowest that there is stands for a probability of zero. */
static json_t *number(double value) { return isnan(value) ? json_null() : json_real(isinf(value) ? -1e308 : value); }

json_t *serve_token_json(const ht_tokenizer *t, int32_t id, double logprob) {
    char *bytes;
    size_t n;
    ht_text text = {0};
    if (ht_tokenizer_token_bytes(t, id, &bytes, &n, NULL))
        return json_pack("{ss so s[]}", "token", "", "logprob", number(logprob), "bytes");
    json_t *list = json_array();
    for (size_t at = 0; at < n;) {
        uint32_t c;
        at += ht_utf8_decode(bytes + at, n - at, &c);
        ht_text_append_utf8(&text, c);
    }
    for (size_t i = 0; i < n; i++) json_array_append_new(list, json_integer((unsigned char)bytes[i]));
    ht_text_free(bytes);
    json_t *token = text.failed ? NULL
                                : json_pack("{so so so}", "token", serve_text_json(&text), "logprob", number(logprob),
                                            "bytes", list);
    if (text.failed) json_decref(list);
    ht_text_discard(&text);
    return token;
}

/* ---- scores ---- */

typedef struct scoring {
    serve_generation *g;
    const int32_t *ids;
    json_t *list;
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
        json_t *token = serve_token_json(t, k->id, k->log_probability), *top = json_array();
        for (int32_t j = 0; j < k->n_top; j++)
            json_array_append_new(top, serve_token_json(t, k->top[j].id, k->top[j].log_probability));
        json_object_set_new(token, "top_logprobs", top);
        json_array_append_new(s->list, token);
    }
    return true;
}

json_t *serve_score_prompt(serve_generation *g, const int32_t *ids, size_t n) {
    serve_call *c = g->c;
    scoring s = {.g = g, .ids = ids, .list = json_array()};
    json_t *first = serve_token_json(ht_model_tokenizer(c->lease.model), ids[0], (double)NAN);
    if (first) json_object_set_new(first, "top_logprobs", json_null());
    json_array_append_new(s.list, first);
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
            json_decref(s.list);
            serve_fail_as(&c->failure, status && !s.status ? status : s.status, &s.err);
            return NULL;
        }
    }
    if (json_array_size(s.list) == n) return s.list;
    json_decref(s.list);
    serve_fail_memory(&c->failure);
    return NULL;
}

/* ---- the form of text completions ---- */

int64_t serve_characters(const char *text, size_t n) {
    int64_t count = 0;
    for (size_t i = 0; i < n; i++) count += ((unsigned char)text[i] & 0xC0) != 0x80;
    return count;
}

json_t *serve_completion_logprobs(const json_t *list, int64_t offset) {
    json_t *tokens = json_array(), *values = json_array(), *tops = json_array(), *offsets = json_array(), *entry;
    size_t i;
    json_array_foreach((json_t *)list, i, entry) {
        json_t *token = json_object_get(entry, "token"), *top = json_object_get(entry, "top_logprobs"), *one;
        size_t j;
        json_t *by_token = json_is_null(top) ? json_null() : json_object();
        json_array_append(tokens, token);
        json_array_append(values, json_object_get(entry, "logprob"));
        json_array_foreach(top, j, one) {
            /* Two tokens may have the same text; the likelier one comes first, and stays. */
            const char *name = json_string_value(json_object_get(one, "token"));
            if (name && !json_object_get(by_token, name))
                json_object_set(by_token, name, json_object_get(one, "logprob"));
        }
        json_array_append_new(tops, by_token);
        json_array_append_new(offsets, json_integer(offset));
        offset += token ? serve_characters(json_string_value(token), json_string_length(token)) : 0;
    }
    return json_pack("{so so so so}", "tokens", tokens, "token_logprobs", values, "top_logprobs", tops, "text_offset",
                     offsets);
}
