/* Generation with mlx_lm: the child receives and returns token ids; this file encodes and decodes text. */
#include "backends/mlx_lm.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/plural.h"
#include "chat/conversation.h"
#include "generate/sampler.h"
#include "generate/token_output.h"
#include "tokenizer/tokenizer.h"

#include <stdlib.h>
#include <string.h>

/* One answer in progress. */
typedef struct run {
    ht_mlx_call call;
    const ht_generate_options *o;
    const int32_t *ids; /* [n] of the prompt */
    size_t n;
    int64_t limit;   /* maximum number of tokens */
    int32_t *answer; /* [limit] their ids; NULL: not requested */
    ht_token_output *output;
    ht_metrics *metrics;
    double begin, first_token;
} run;

/* ---- texts ---- */

/* HT_ERR_UNSUPPORTED, with the reason, when there is no tokenizer. */
static ht_status need_text(const ht_mlx_text *t, ht_error *err) {
    if (t->tokenizer) return HT_OK;
    return ht_fail(err, HT_ERR_UNSUPPORTED, "the model %s: it takes and gives token ids alone", t->no_tokenizer);
}

static ht_status copy_ids(const int32_t *from, size_t n_from, int32_t **ids, size_t *n, ht_error *err) {
    if (!n_from) return HT_OK;
    *ids = malloc(n_from * sizeof **ids);
    if (!*ids) return ht_fail_memory(err, n_from * sizeof **ids, "a prompt");
    memcpy(*ids, from, n_from * sizeof **ids);
    *n = n_from;
    return HT_OK;
}

/* Ids of a prompt, in fresh memory, to be freed with ht_ids_free. */
static ht_status encode(const ht_mlx_text *t, const ht_backend_prompt *prompt, int32_t **ids, size_t *n,
                        ht_error *err) {
    *ids = NULL;
    *n = 0;
    if (!prompt->text) return copy_ids(prompt->ids, prompt->n_ids, ids, n, err);
    const ht_status st = need_text(t, err);
    if (st) return st;
    return ht_tokenizer_encode(t->tokenizer, prompt->text, strlen(prompt->text),
                               HT_ENCODE_PARSE_SPECIAL | HT_ENCODE_ADD_SPECIAL, ids, n, err);
}

/* A conversation as it is written, and its ids. */
static ht_status write_chat(const ht_mlx_text *t, const ht_chat *chat, bool parse_special, ht_chat_text *text,
                            int32_t **ids, size_t *n_ids, ht_error *err) {
    ht_status st = need_text(t, err);
    if (!st) st = ht_chat_write_with(&t->chat, t->tokenizer, chat, text, err);
    if (!st) st = ht_chat_encode_text(t->tokenizer, text, parse_special ? HT_ENCODE_PARSE_SPECIAL : 0, ids, n_ids, err);
    return st;
}

/* ---- the request ---- */

static int64_t vocab_of(const ht_mlx_model *m) { return m->loaded.info.vocab ? m->loaded.info.vocab : INT32_MAX; }

static ht_status check_prompt(const ht_mlx_model *m, const int32_t *ids, size_t n, ht_error *err) {
    const int64_t vocab = vocab_of(m);
    if (!n) return ht_fail(err, HT_ERR_ARGUMENT, "the prompt is empty");
    for (size_t i = 0; i < n; i++)
        if (ids[i] < 0 || ids[i] >= vocab)
            return ht_fail(err, HT_ERR_ARGUMENT, "token %zu of the prompt is %d, and the vocabulary has ids 0 to %lld",
                           i, (int)ids[i], (long long)vocab - 1);
    if ((int64_t)n >= m->context)
        return ht_fail(err, HT_ERR_LIMIT, "prompt of %zu token%s does not fit the context of %lld with an answer", n,
                       ht_plural(n), (long long)m->context);
    return HT_OK;
}

static ht_json *ids_json(const int32_t *ids, size_t n) {
    ht_json *list = ht_json_new_array();
    for (size_t i = 0; list && i < n; i++)
        if (ht_json_array_append_new(list, ht_json_integer(ids[i]))) {
            ht_json_decref(list);
            return NULL;
        }
    return list;
}

/* Pairs of an id and its bias, in order. */
static ht_json *biases_json(const ht_logit_bias *bias, int n) {
    ht_json *list = ht_json_new_array();
    for (int i = 0; list && i < n; i++)
        if (ht_json_array_append_new(list, ht_json_pack("[if]", (int)bias[i].id, (double)bias[i].bias))) {
            ht_json_decref(list);
            return NULL;
        }
    return list;
}

/* The sampler's options; its seed has 64 bits without a sign, which JSON's integers here have not. */
static ht_status sampler_json(const ht_sampler_options *given, const ht_sampling *model, int64_t vocab, ht_json **out,
                              ht_error *err) {
    ht_sampler_options s;
    ht_sampler_stage order[HT_SAMPLER_STAGES];
    ht_logit_bias *bias;
    *out = NULL;
    ht_status st = ht_sampler_options_read(given, model, &s, err);
    if (!st) st = ht_sampler_order_parse(s.order, order, err);
    if (!st) st = ht_logit_biases_read(&s, (int32_t)vocab, &bias, err);
    if (st) return st;
    char seed[32];
    snprintf(seed, sizeof seed, "%llu", (unsigned long long)s.seed);
    ht_json *names = ht_json_new_array();
    for (int i = 0; i < HT_SAMPLER_STAGES; i++)
        ht_json_array_append_new(names, ht_json_string(ht_sampler_stage_name(order[i])));
    *out = ht_json_pack("{sf si sf sf sf si sf sf so ss so}", "temperature", (double)s.temperature, "top_k",
                        (int)s.top_k, "top_p", (double)s.top_p, "min_p", (double)s.min_p, "repeat_penalty",
                        (double)s.repeat_penalty, "repeat_window", (int)s.repeat_window, "presence_penalty",
                        (double)s.presence_penalty, "frequency_penalty", (double)s.frequency_penalty, "logit_bias",
                        biases_json(bias, s.n_logit_bias), "seed", seed, "order", names);
    free(bias);
    const bool whole = *out && ht_json_array_size(names) == HT_SAMPLER_STAGES;
    return whole ? HT_OK : ht_fail_memory(err, 0, "a request");
}

static ht_status send_request(run *r, const char *command, ht_error *err) {
    const ht_mlx_text *t = &r->call.m->text;
    ht_json *sampler;
    const ht_status st = sampler_json(r->o->sampler, &t->sampling, vocab_of(r->call.m), &sampler, err);
    if (st) {
        ht_json_decref(sampler);
        return st;
    }
    ht_json *stops = ids_json(t->stop_ids, r->o->ignore_eos ? 0 : (size_t)t->n_stop_ids);
    return ht_mlx_send(&r->call, command,
                       ht_json_pack("{so sI so so}", "ids", ids_json(r->ids, r->n), "max_tokens", (int64_t)r->limit,
                                    "stop_ids", stops, "sampler", sampler),
                       err);
}

/* ---- the answer ---- */

/* Processes the tokens of an event; discards tokens after the end of the output. */
static ht_status take_tokens(run *r, const ht_mlx_event *e, ht_error *err) {
    const ht_mlx_model *m = r->call.m;
    const int64_t vocab = vocab_of(m);
    if (r->first_token == 0) r->first_token = ht_now_seconds();
    for (int i = 0; i < e->n_tokens; i++) {
        if (e->tokens[i] >= vocab)
            return ht_mlx_refuse(&r->call, HT_ERR_FORMAT, err, "gives token %d, and the vocabulary has %lld",
                                 (int)e->tokens[i], (long long)vocab);
        if (r->metrics->generated_tokens >= r->limit)
            return ht_mlx_refuse(&r->call, HT_ERR_LIMIT, err, "gives more than the %lld token%s that were asked for",
                                 (long long)r->limit, ht_plural(r->limit));
        if (r->answer) r->answer[r->metrics->generated_tokens] = e->tokens[i];
        r->metrics->generated_tokens++;
        const ht_status st = ht_token_output_put(r->output, e->tokens[i], &r->metrics->finish, err);
        r->metrics->stop = r->output->stream.found;
        if (st || r->metrics->finish) {
            ht_mlx_abandon(&r->call);
            return st;
        }
    }
    return HT_OK;
}

static bool is_stop_id(const run *r, int32_t id) {
    const ht_mlx_text *t = &r->call.m->text;
    int i = 0;
    while (i < t->n_stop_ids && t->stop_ids[i] != id) i++;
    return !r->o->ignore_eos && i < t->n_stop_ids;
}

static ht_status take_end(run *r, const ht_mlx_event *e, ht_error *err) {
    const int64_t n = r->metrics->generated_tokens;
    if (e->finish == HT_FINISH_CALLBACK)
        return ht_mlx_refuse(&r->call, HT_ERR_FORMAT, err, "ends a call as cancelled that was not");
    if (e->finish == HT_FINISH_LENGTH && n != r->limit)
        return ht_mlx_refuse(&r->call, HT_ERR_FORMAT, err,
                             "ends after %lld token%s for their number, and %lld were asked for", (long long)n,
                             ht_plural(n), (long long)r->limit);
    if (e->finish == HT_FINISH_STOP && !is_stop_id(r, e->stop_id))
        return ht_mlx_refuse(&r->call, HT_ERR_FORMAT, err, "ends for token %d, which is no stop id", (int)e->stop_id);
    r->metrics->finish = e->finish;
    r->metrics->stop_id = e->finish == HT_FINISH_STOP ? e->stop_id : -1;
    r->metrics->peak_memory_bytes = (size_t)e->peak_memory_bytes;
    return HT_OK;
}

static ht_status take_begin(run *r, const ht_child_wait *wait, ht_error *err) {
    ht_mlx_event e;
    ht_status st = ht_mlx_next(&r->call, wait, HT_MLX_BEGIN, &e, err);
    if (!st && e.reused >= (int64_t)r->n)
        st = ht_mlx_refuse(&r->call, HT_ERR_FORMAT, err, "holds %lld token%s of a prompt of %zu already",
                           (long long)e.reused, ht_plural(e.reused), r->n);
    if (!st) r->metrics->reused_tokens = e.reused;
    ht_mlx_event_free(&e);
    return st;
}

static ht_status read_answer(run *r, ht_error *err) {
    const ht_mlx_model *m = r->call.m;
    ht_child_wait wait = ht_mlx_wait(&r->call, m->first_seconds, "the first token");
    ht_status st = take_begin(r, &wait, err);
    while (!st && !r->metrics->finish) {
        ht_mlx_event e;
        if (r->first_token > 0) wait = ht_mlx_wait(&r->call, m->next_seconds, "the next token");
        st = ht_mlx_next(&r->call, &wait, HT_MLX_TOKENS, &e, err);
        if (!st) st = e.kind == HT_MLX_TOKENS ? take_tokens(r, &e, err) : take_end(r, &e, err);
        ht_mlx_event_free(&e);
    }
    return st;
}

static void report(run *r) {
    ht_metrics *t = r->metrics;
    if (r->first_token == 0) return;
    t->prompt_tokens = (int64_t)r->n - t->reused_tokens;
    t->prefill_seconds = t->first_token_seconds = r->first_token - r->begin;
    t->decode_seconds = ht_now_seconds() - r->first_token;
}

/* The call with its turn; `r` has all but that. */
static ht_status run_with(run *r, ht_mlx_model *m, const char *command, ht_error *err) {
    const char *beyond = r->o->lookup                     ? "lookup"
                         : r->o->draft                    ? "draft"
                         : r->o->draft_tokens             ? "draft_tokens"
                         : r->o->probes                   ? "probes"
                         : r->o->grammar                  ? "grammar"
                         : r->o->max_thinking_tokens >= 0 ? "max_thinking_tokens"
                                                          : NULL;
    if (beyond) return ht_fail(err, HT_ERR_UNSUPPORTED, "%s is not supported by mlx_lm", beyond);
    if (r->o->max_tokens < 1)
        return ht_fail(err, HT_ERR_ARGUMENT, "max_tokens is %d, expected 1 or more", (int)r->o->max_tokens);
    ht_status st = check_prompt(m, r->ids, r->n, err);
    if (!st) st = ht_mlx_enter(m, r->o->cancel, &r->call, err);
    if (st) return st;
    const int64_t left = m->context - (int64_t)r->n;
    r->limit = r->o->max_tokens < left ? r->o->max_tokens : left;
    st = send_request(r, command, err);
    if (!st) st = read_answer(r, err);
    const ht_status ended = ht_token_output_end(r->output, &r->metrics->finish, st ? NULL : err);
    report(r);
    if (!st) st = ended;
    ht_metrics_end(r->metrics, st);
    ht_mlx_leave(&r->call);
    return st;
}

ht_status ht_mlx_generate(void *state, const ht_backend_prompt *prompt, const ht_generate_options *options,
                          ht_text_fn *fn, void *user, int32_t *answer, ht_metrics *metrics, ht_error *err) {
    ht_mlx_model *m = state;
    int32_t *ids = NULL;
    ht_token_output output = {0};
    run r = {.o = options, .answer = answer, .output = &output, .metrics = metrics, .begin = ht_now_seconds()};
    ht_status st = fn || options->n_stop ? need_text(&m->text, err) : HT_OK;
    if (!st) st = encode(&m->text, prompt, &ids, &r.n, err);
    if (!st) st = ht_token_output_begin(&output, m->text.tokenizer, options, NULL, fn, user, err);
    if (!st) ht_token_output_join(&output, ids, (int64_t)r.n);
    r.ids = ids;
    if (!st) st = run_with(&r, m, "generate", err);
    ht_token_output_free(&output);
    ht_ids_free(ids);
    return st;
}

ht_status ht_mlx_chat(void *state, const ht_chat *chat, const ht_generate_options *options, ht_answer_fn *fn,
                      void *user, ht_metrics *metrics, ht_error *err) {
    ht_mlx_model *m = state;
    ht_chat_text text = {0};
    int32_t *ids = NULL;
    ht_response_reader *answer = NULL;
    ht_token_output output = {0};
    run r = {.o = options, .output = &output, .metrics = metrics, .begin = ht_now_seconds()};
    if (chat->tool_choice) return ht_fail(err, HT_ERR_UNSUPPORTED, "a choice of tools is not supported by mlx_lm");
    ht_status st = write_chat(&m->text, chat, options->parse_special, &text, &ids, &r.n, err);
    if (!st && fn)
        st = ht_response_reader_new(ht_chat_template_of(&m->text.chat, chat), chat->tools, text.text, text.n, fn, user,
                                    &answer, err);
    if (answer) ht_response_reader_set_call_pieces(answer, options->call_pieces);
    if (!st) st = ht_token_output_begin(&output, m->text.tokenizer, options, answer, NULL, NULL, err);
    r.ids = ids;
    if (!st) st = run_with(&r, m, "chat", err);
    ht_token_output_free(&output);
    ht_response_reader_free(answer);
    ht_ids_free(ids);
    ht_chat_text_free(&text);
    return st;
}

/* ---- inspection ---- */

/* Heads come one after the other, layer by layer; `last` is the one before. */
static bool follows(const ht_backend_keys *last, const ht_backend_keys *next, size_t n) {
    if (next->n_tokens != (int64_t)n) return false;
    if (!last->n_layers) return next->layer == 0 && next->head == 0;
    if (next->n_layers != last->n_layers) return false;
    if (last->head + 1 < last->n_heads)
        return next->layer == last->layer && next->head == last->head + 1 && next->n_heads == last->n_heads;
    return next->layer == last->layer + 1 && next->head == 0;
}

static ht_status read_keys(ht_mlx_call *c, size_t n, ht_backend_keys_fn *fn, void *user, ht_error *err) {
    ht_child_wait wait = ht_mlx_wait(c, c->m->first_seconds, "the first keys");
    ht_backend_keys last = {0};
    bool done = false;
    ht_status st = HT_OK;
    while (!st && !done) {
        ht_mlx_event e;
        st = ht_mlx_next(c, &wait, HT_MLX_KEYS, &e, err);
        done = !st && e.kind == HT_MLX_DONE;
        if (!st &&
            (done ? last.layer + 1 != last.n_layers || last.head + 1 != last.n_heads : !follows(&last, &e.keys, n)))
            st = ht_mlx_refuse(c, HT_ERR_FORMAT, err,
                               "gives keys and values that are not those of the prompt, in order");
        if (!st && !done && !fn(&e.keys, user)) {
            ht_mlx_abandon(c);
            st = ht_fail(err, HT_ERR_CANCELLED, "inspection was ended by its callback");
        }
        last = e.keys;
        ht_mlx_event_free(&e);
        wait = ht_mlx_wait(c, c->m->next_seconds, "the next keys");
    }
    return st;
}

ht_status ht_mlx_inspect(void *state, const ht_backend_prompt *prompt, const ht_cancel *cancel, ht_backend_keys_fn *fn,
                         void *user, ht_error *err) {
    ht_mlx_model *m = state;
    ht_mlx_call c;
    int32_t *ids;
    size_t n;
    ht_status st = encode(&m->text, prompt, &ids, &n, err);
    if (!st) st = check_prompt(m, ids, n, err);
    if (!st) st = ht_mlx_enter(m, cancel, &c, err);
    if (!st) {
        st = ht_mlx_send(&c, "inspect", ht_json_pack("{so}", "ids", ids_json(ids, n)), err);
        if (!st) st = read_keys(&c, n, fn, user, err);
        ht_mlx_leave(&c);
    }
    ht_ids_free(ids);
    return st;
}
