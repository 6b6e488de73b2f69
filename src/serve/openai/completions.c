/* Text completions of OpenAI's interface: prompts as texts or ids, echo with log-probabilities, fill-in-the-middle. */
#include "serve/openai/openai.h"
#include "serve/prompts.h"
#include "serve/sampling.h"

#include <hearth/score.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

const serve_field serve_openai_completions_fields[] = {
    {"model", .is = SERVE_IS_TEXT},
    {"prompt", .is = SERVE_IS_PROMPTS, .required = true},
    {"n", .is = SERVE_IS_INTEGER(1, SERVE_MOST_ANSWERS)},
    {"best_of", .is = SERVE_IS_INTEGER(1, SERVE_MOST_ANSWERS)},
    {"echo", .is = SERVE_IS_FLAG},
    {"suffix", .is = SERVE_IS_TEXT},
    {"stop", .is = SERVE_IS_STOP},
    {"max_tokens", .is = SERVE_IS_MAX_TOKENS},
    /* An integer here; chats use a boolean. */
    {"logprobs", .is = {.types = SERVE_JSON_INTEGER | SERVE_JSON_FLAG, .low = 0, .high = SERVE_MOST_LOGPROBS}},
    SERVE_MORE(serve_openai_stream_fields),
    SERVE_MORE(serve_thinking_fields),
    SERVE_MORE(serve_sampling_fields),
    SERVE_MORE(serve_structure_fields),
    SERVE_MORE(serve_noted_fields),
    {0}};

/* ---- log-probabilities of prompts ---- */

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

/* Scores a prompt: a list of {token, logprob, bytes, top_logprobs}, where the first logprob is null. NULL, with a
 * failure in the call, when scoring fails. Blocks until the model is done. */
static ht_json *score_prompt(serve_generation *g, const int32_t *ids, size_t n) {
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

/* The number of characters in n bytes of UTF-8. */
static int64_t count_characters(const char *text, size_t n) {
    int64_t count = 0;
    for (size_t i = 0; i < n; i++) count += ((unsigned char)text[i] & 0xC0) != 0x80;
    return count;
}

/* Converts the list to {tokens, token_logprobs, top_logprobs, text_offset}; the text starts at character `offset`. */
static ht_json *completion_logprobs(const ht_json *list, int64_t offset) {
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
            /* If two tokens have the same text, the first and likelier one is kept. */
            const char *name = ht_json_string_value(ht_json_object_get(one, "token"));
            if (name && !ht_json_object_get(by_token, name))
                ht_json_object_set(by_token, name, ht_json_object_get(one, "logprob"));
        }
        ht_json_array_append_new(tops, by_token);
        ht_json_array_append_new(offsets, ht_json_integer(offset));
        offset += token ? count_characters(ht_json_string_value(token), ht_json_string_length(token)) : 0;
    }
    return ht_json_pack("{so so so so}", "tokens", tokens, "token_logprobs", values, "top_logprobs", tops,
                        "text_offset", offsets);
}

/* ---- echoes ---- */

/* The echo of a prompt. */
typedef struct echo {
    char *text; /* may contain NUL bytes */
    size_t length;
    ht_json *logprobs; /* a list; NULL: none */
} echo;

/* A generation's `extra`. */
typedef struct echoes {
    size_t n;
    echo *prompt;           /* [n] */
    serve_prefill *prefill; /* measurements of the prompts, for requests that generate nothing */
} echoes;

static void discard_echoes(void *user) {
    echoes *e = user;
    for (size_t i = 0; i < e->n; i++) {
        ht_text_free(e->prompt[i].text);
        ht_json_decref(e->prompt[i].logprobs);
    }
    free(e->prompt);
    free(e->prefill);
}

static bool make_echoes(serve_generation *g) {
    ht_error err = {0};
    serve_call *c = g->c;
    echoes *e = g->extra;
    const ht_tokenizer *t = ht_model_tokenizer(c->lease.model);
    if (!t) return serve_fail(&c->failure, 400, "echo", "\"echo\" requires a tokenizer, which the model does not have");
    if (!(e->prompt = calloc(g->n_prompts, sizeof *e->prompt)) ||
        !(e->prefill = calloc(g->n_prompts, sizeof *e->prefill)))
        return serve_fail_memory(&c->failure);
    e->n = g->n_prompts;
    for (size_t i = 0; i < e->n; i++) {
        const serve_prompt *p = &g->prompt[i];
        echo *of = &e->prompt[i];
        /* Decodes the ids, since the client may have sent ids instead of text. */
        const ht_status status = ht_tokenizer_decode(t, p->ids, p->n_ids, true, &of->text, &of->length, &err);
        if (status) return serve_fail_as(&c->failure, status, &err);
        e->prefill[i].reuse.computed = (int64_t)p->n_ids;
        if (g->logprobs && !(of->logprobs = score_prompt(g, p->ids, p->n_ids))) return false;
    }
    return true;
}

/* ---- requests ---- */

/* Reads a prompt with a suffix. */
static bool read_gap(serve_call *c, const ht_json *value, const char *member, serve_prompt *out) {
    const serve_infill gap = {.prefix = ht_json_string_value(value), .suffix = serve_text(c->body, "suffix")};
    if (gap.prefix) return serve_infill_prompt(c, &gap, "suffix", out);
    return serve_fail(&c->failure, 400, member,
                      "\"%s\" must be a string or a list of strings with \"suffix\", not token ids", member);
}

static bool read_prompts(serve_generation *g) {
    serve_call *c = g->c;
    if (!serve_filled_text(c->body, "suffix")) return serve_read_prompts(g, "prompt", serve_read_prompt);
    if (g->echo) return serve_fail(&c->failure, 400, "echo", "\"echo\" cannot be combined with \"suffix\"");
    return serve_read_prompts(g, "prompt", read_gap);
}

static bool read_request(serve_generation *g) {
    static const serve_option_names names = {
        .max_tokens = {"max_tokens"}, .most = 16 /* OpenAI's default */, .stop = "stop", .thinking = true};
    serve_call *c = g->c;
    serve_failure *f = &c->failure;
    const int64_t n = serve_integer(c->body, "n", 1), best = serve_integer(c->body, "best_of", 1);
    const int64_t top = serve_integer(c->body, "logprobs", serve_flag(c->body, "logprobs", false) ? 0 : -1);
    if (best != 1 && best != n)
        return serve_fail(f, 400, "best_of", "\"best_of\" is %lld, expected the value of \"n\", %lld", (long long)best,
                          (long long)n);
    g->n = (int32_t)n;
    g->logprobs = top >= 0;
    g->top_logprobs = top > 0 ? (int32_t)top : 0;
    g->echo = serve_flag(c->body, "echo", false);
    if (!serve_read_options(g, c->body, &names) || !serve_read_structure(g, c->body)) return false;
    if (!g->how.max_tokens && !g->echo)
        return serve_fail(f, 400, "max_tokens", "\"max_tokens\" must be 1 or more without \"echo\"");
    return read_prompts(g) && (!g->echo || make_echoes(g));
}

/* ---- answers ---- */

static const echo *echo_of(const serve_generation *g, const serve_answer *a) {
    return g->echo ? &((const echoes *)g->extra)->prompt[a->index / g->n] : NULL;
}

/* Log-probabilities of an answer, preceded by those of its echoed prompt. */
static ht_json *logprobs_json(const serve_generation *g, const serve_answer *a) {
    const echo *e = echo_of(g, a);
    if (!g->logprobs) return ht_json_null();
    ht_json *all = ht_json_new_array();
    if (e) ht_json_array_extend(all, e->logprobs);
    ht_json_array_extend(all, a->logprobs);
    ht_json *out = completion_logprobs(all, 0);
    ht_json_decref(all);
    return out;
}

static ht_json *choice_json(const serve_generation *g, const serve_answer *a) {
    const echo *e = echo_of(g, a);
    ht_text text = {0};
    if (e) ht_text_append(&text, e->text, e->length);
    ht_text_append(&text, a->text.data ? a->text.data : "", a->text.len);
    ht_json *choice = ht_json_pack("{so si so ss}", "text", serve_text_json(&text), "index", (int)a->index, "logprobs",
                                   logprobs_json(g, a), "finish_reason", serve_openai_finish(a));
    ht_text_discard(&text);
    return choice;
}

static ht_json *completion(serve_generation *g, ht_json *choices, ht_json *usage) {
    ht_json *whole = ht_json_pack("{ss ss sI ss so}", "id", g->id, "object", "text_completion", "created",
                                  (int64_t)g->created, "model", g->c->lease.name, "choices", choices);
    if (usage) ht_json_object_set_new(whole, "usage", usage);
    return whole;
}

static ht_json *reply(serve_generation *g) {
    ht_json *choices = ht_json_new_array();
    for (size_t i = 0; i < g->n_answers; i++) ht_json_array_append_new(choices, choice_json(g, &g->answer[i]));
    return completion(g, choices, serve_openai_usage(serve_usage_of(g)));
}

static void send(serve_generation *g, serve_answer *a, const char *text, size_t n, ht_json *logprobs,
                 const char *finish) {
    ht_json *choices = ht_json_pack("[{ss% si so ss?}]", "text", text, n, "index", (int)a->index, "logprobs", logprobs,
                                    "finish_reason", finish);
    serve_send(g, NULL, completion(g, choices, serve_openai_stream_usage(g, a)));
}

static ht_json *new_logprobs(serve_answer *a) {
    ht_json *come = serve_take_logprobs(a);
    ht_json *out = come ? completion_logprobs(come, a->told_characters) : ht_json_null();
    ht_json_decref(come);
    return out;
}

static void begin(serve_generation *g) {
    for (size_t i = 0; g->echo && i < g->n_answers && !g->closed; i++) {
        serve_answer *a = &g->answer[i];
        const echo *e = echo_of(g, a);
        a->told_characters = count_characters(e->text, e->length);
        send(g, a, e->text, e->length, e->logprobs ? completion_logprobs(e->logprobs, 0) : ht_json_null(), NULL);
    }
}

static void piece(serve_generation *g, serve_answer *a, const ht_answer_piece *p) {
    if (p->part != HT_ANSWER_TEXT) return;
    send(g, a, p->text, p->n, new_logprobs(a), NULL);
    a->told_characters += count_characters(p->text, p->n);
}

static void answer_end(serve_generation *g, serve_answer *a) {
    send(g, a, "", 0, new_logprobs(a), serve_openai_finish(a));
}

static void end(serve_generation *g) {
    if (g->usage) serve_send(g, NULL, completion(g, ht_json_new_array(), serve_openai_usage(serve_usage_of(g))));
}

static const serve_dialect completions = {.extra_bytes = sizeof(echoes),
                                          .discard_extra = discard_echoes,
                                          .begin = begin,
                                          .piece = piece,
                                          .answer_end = answer_end,
                                          .end = end,
                                          .last_event = "[DONE]",
                                          .reply = reply};

bool serve_openai_completions(serve_call *c) {
    serve_generation *g = serve_generation_new(c, &completions);
    if (!g || !read_request(g)) return false;
    serve_new_id("cmpl-", g->id);
    if (g->how.max_tokens) return serve_generation_start(g);
    return serve_generation_answer_empty(g, ((const echoes *)g->extra)->prefill);
}
