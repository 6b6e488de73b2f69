/* Text completions of OpenAI's interface: prompts as texts or ids, several at once, given back with log-probabilities if asked; or texts
 * before a gap. */
#include "serve/echo.h"
#include "serve/infill.h"
#include "serve/openai/openai.h"
#include "serve/prompts.h"
#include "serve/sampling.h"

#include <stdlib.h>
#include <string.h>

static const serve_field fields[] = {
    {"model", .is = SERVE_IS_TEXT},
    {"prompt", .is = SERVE_IS_PROMPTS, .required = true},
    {"n", .is = SERVE_IS_INTEGER(1, SERVE_MOST_ANSWERS)},
    {"best_of", .is = SERVE_IS_INTEGER(1, SERVE_MOST_ANSWERS)},
    {"echo", .is = SERVE_IS_FLAG},
    {"suffix", .is = SERVE_IS_TEXT},
    {"stop", .is = SERVE_IS_STOP},
    {"max_tokens", .is = SERVE_IS_MAX_TOKENS},
    /* A number here; a flag is what chats have. */
    {"logprobs", .is = {.types = SERVE_JSON_INTEGER | SERVE_JSON_FLAG, .low = 0, .high = SERVE_MOST_LOGPROBS}},
    {0}};
const serve_field *const serve_openai_completions_fields[] = {fields,
                                                              serve_openai_stream_fields,
                                                              serve_thinking_fields,
                                                              serve_sampling_fields,
                                                              serve_structure_fields,
                                                              serve_noted_fields,
                                                              NULL};

/* What comes in front of the answers to each prompt. */
typedef struct echoes {
    size_t n;
    char **text; /* may hold NUL bytes */
    size_t *length;
    ht_json **logprobs;     /* lists; NULL: none */
    serve_prefill *prefill; /* of the prompts, for a request that generates nothing */
} echoes;

static void free_echoes(void *user) {
    echoes *e = user;
    if (!e) return;
    for (size_t i = 0; i < e->n; i++) {
        if (e->text) ht_text_free(e->text[i]);
        if (e->logprobs) ht_json_decref(e->logprobs[i]);
    }
    free(e->text);
    free(e->length);
    free(e->logprobs);
    free(e->prefill);
    free(e);
}

static bool make_echoes(serve_generation *g) {
    ht_error err = {0};
    serve_call *c = g->c;
    const ht_tokenizer *t = ht_model_tokenizer(c->lease.model);
    if (!t) return serve_fail(&c->failure, 400, "echo", "\"echo\" requires a tokenizer, which the model does not have");
    echoes *e = g->extra = calloc(1, sizeof *e);
    g->free_extra = free_echoes;
    if (!e || !(e->text = calloc(g->n_prompts, sizeof *e->text)) ||
        !(e->length = calloc(g->n_prompts, sizeof *e->length)) ||
        !(e->logprobs = calloc(g->n_prompts, sizeof *e->logprobs)) ||
        !(e->prefill = calloc(g->n_prompts, sizeof *e->prefill)))
        return serve_fail_memory(&c->failure);
    e->n = g->n_prompts;
    for (size_t i = 0; i < e->n; i++) {
        const serve_prompt *p = &g->prompt[i];
        /* What the client sent, or what its ids spell. */
        const ht_status status = ht_tokenizer_decode(t, p->ids, p->n_ids, true, &e->text[i], &e->length[i], &err);
        if (status) return serve_fail_as(&c->failure, status, &err);
        e->prefill[i].reuse.computed = (int64_t)p->n_ids;
        if (g->logprobs && !(e->logprobs[i] = serve_score_prompt(g, p->ids, p->n_ids))) return false;
    }
    return true;
}

/* ---- requests ---- */

/* A text with what is to follow its completion. */
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

static bool read_request(serve_generation *g, bool *generates) {
    static const char *const most[] = {"max_tokens", NULL};
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
    serve_openai_read_stream(g, c->body);
    serve_read_max_tokens(g, c->body, most, 16); /* OpenAI's default */
    serve_read_thinking_budget(g, c->body);
    if (!serve_read_sampling(g, c->body) || !serve_read_stop(g, ht_json_object_get(c->body, "stop")) ||
        !serve_read_structure(g, c->body))
        return false;
    *generates = g->how.max_tokens > 0;
    if (!*generates && !g->echo)
        return serve_fail(f, 400, "max_tokens", "\"max_tokens\" must be 1 or more without \"echo\"");
    return read_prompts(g) && (!g->echo || make_echoes(g));
}

/* ---- answers ---- */

/* Choices of answers and of streams differ in the end, which a piece does not have yet. */
#define FINISHES "stop", "length"
static const echoes *echoes_of(const serve_generation *g) { return g->echo ? g->extra : NULL; }

/* Log-probabilities of an answer, those of its prompt before them when it is echoed. */
static ht_json *logprobs_json(const serve_generation *g, const serve_answer *a, size_t prompt, bool echoed) {
    const echoes *e = echoes_of(g);
    if (!g->logprobs) return ht_json_null();
    if (!e || !echoed) return serve_completion_logprobs(a->logprobs, a->told_characters);
    ht_json *all = ht_json_new_array();
    ht_json_array_extend(all, e->logprobs[prompt]);
    ht_json_array_extend(all, a->logprobs);
    ht_json *out = serve_completion_logprobs(all, 0);
    ht_json_decref(all);
    return out;
}

static ht_json *choice_json(const serve_generation *g, const serve_answer *a) {
    const size_t prompt = (size_t)a->index / (size_t)g->n;
    const echoes *e = echoes_of(g);
    ht_text text = {0};
    if (e) ht_text_append(&text, e->text[prompt], e->length[prompt]);
    ht_text_append(&text, a->text.data ? a->text.data : "", a->text.len);
    ht_json *choice = ht_json_pack("{so si so ss}", "text", serve_text_json(&text), "index", (int)a->index, "logprobs",
                                   logprobs_json(g, a, prompt, true), "finish_reason", serve_openai_finish(a));
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
    ht_json *usage = g->continuous_usage ? serve_openai_usage(serve_answer_usage(a)) : g->usage ? ht_json_null() : NULL;
    serve_send_event(g, NULL, completion(g, choices, usage));
}

static ht_json *new_logprobs(serve_generation *g, serve_answer *a) {
    if (!g->logprobs || !ht_json_array_size(a->logprobs)) return ht_json_null();
    ht_json *out = logprobs_json(g, a, 0, false);
    ht_json_decref(a->logprobs);
    a->logprobs = ht_json_new_array();
    return out;
}

static void begin(serve_generation *g) {
    const echoes *e = echoes_of(g);
    for (size_t i = 0; e && i < g->n_answers && !g->closed; i++) {
        serve_answer *a = &g->answer[i];
        const size_t prompt = i / (size_t)g->n;
        a->told_characters = serve_characters(e->text[prompt], e->length[prompt]);
        send(g, a, e->text[prompt], e->length[prompt],
             e->logprobs[prompt] ? serve_completion_logprobs(e->logprobs[prompt], 0) : ht_json_null(), NULL);
    }
}

static void piece(serve_generation *g, serve_answer *a, const ht_answer_piece *p) {
    if (p->part != HT_ANSWER_TEXT) return;
    send(g, a, p->text, p->n, new_logprobs(g, a), NULL);
    a->told_characters += serve_characters(p->text, p->n);
}

static void answer_end(serve_generation *g, serve_answer *a) {
    send(g, a, "", 0, new_logprobs(g, a), serve_openai_finish(a));
}

static void end(serve_generation *g) {
    if (g->usage) serve_send_event(g, NULL, completion(g, ht_json_new_array(), serve_openai_usage(serve_usage_of(g))));
    serve_send_text_event(g, SERVE_OPENAI_DONE);
}

static void fail(serve_generation *g, const serve_failure *f) {
    serve_send_event(g, NULL, serve_failure_json(f, SERVE_OPENAI, http_exchange_id(g->c->x)));
}

static const serve_dialect completions = {
    .begin = begin, .piece = piece, .answer_end = answer_end, .end = end, .fail = fail, .reply = reply};

bool serve_openai_completions(serve_call *c) {
    serve_generation *g = serve_generation_new(c, &completions);
    bool generates = true;
    if (!g || !read_request(g, &generates)) return false;
    serve_new_id("cmpl-", g->id);
    if (generates) return serve_generation_start(g);
    return serve_generation_answer_empty(g, ((const echoes *)g->extra)->prefill);
}
