#include "serve/generation.h"

#include "base/clock.h"
#include "base/grow.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* ---- creation and destruction ---- */

static void free_answer(serve_answer *a) {
    for (size_t i = 0; i < a->n_calls; i++) {
        free(a->call[i].name);
        ht_text_discard(&a->call[i].arguments);
    }
    free(a->call);
    free(a->ids);
    ht_text_discard(&a->text);
    ht_text_discard(&a->thoughts);
    ht_json_decref(a->logprobs);
    ht_json_decref(a->pending_logprobs);
    ht_text_discard(&a->pending_bytes);
}

static void free_generation(void *user) {
    serve_generation *g = user;
    for (size_t i = 0; i < g->n_answers; i++) free_answer(&g->answer[i]);
    for (size_t i = 0; g->prompt && i < g->n_prompts; i++) {
        ht_chat_free(g->prompt[i].chat);
        ht_ids_free(g->prompt[i].ids);
    }
    if (g->extra && g->dialect->discard_extra) g->dialect->discard_extra(g->extra);
    free(g->extra);
    ht_grammar_free(g->how.grammar);
    free(g->answer);
    free(g->prompt);
    free(g->stop);
    free(g->bias);
    pthread_mutex_destroy(&g->lock);
    pthread_mutex_destroy(&g->ticket_lock);
    free(g);
}

/* ---- cancellation ---- */

static void cancel_all(serve_generation *g) {
    pthread_mutex_lock(&g->ticket_lock);
    for (size_t i = 0; i < g->n_prompts; i++)
        if (g->prompt[i].ticket) ht_engine_cancel(g->c->lease.engine, g->prompt[i].ticket);
    pthread_mutex_unlock(&g->ticket_lock);
}

static void on_gone(serve_call *c) {
    serve_generation *g = c->state;
    ht_cancel_request(&g->cancel);
    cancel_all(g);
}

/* ---- sending ---- */

/* Aborts the stream of a client that leaves a full buffer unread, which bounds the memory per client. With the lock. */
static void check_sent(serve_generation *g, http_sent sent) {
    if (sent == HTTP_SENT) return;
    g->closed = true;
    if (g->streaming) http_stream_abort(g->c->x);
}

void serve_send(serve_generation *g, const char *name, ht_json *data) {
    char *text = data && !g->closed ? ht_json_dump(data, HT_JSON_COMPACT) : NULL;
    ht_json_decref(data);
    if (g->closed) return;
    check_sent(g, !text                     ? HTTP_GONE
                  : g->dialect->stream_type ? http_stream_line(g->c->x, text, strlen(text))
                                            : http_stream_event(g->c->x, name, text, strlen(text)));
    free(text);
}

/* ---- failures ---- */

/* Sends the failure and ends the response. With the lock. */
static void fail(serve_generation *g, const serve_failure *f) {
    if (g->closed) return;
    if (!g->streaming)
        serve_failure_reply(g->c->x, f, g->c->route->dialect);
    else if (g->dialect->fail)
        g->dialect->fail(g, f);
    else
        serve_send(g, g->dialect->fail_event,
                   serve_failure_json(f, g->c->route->dialect, http_exchange_request(g->c->x)->id));
    if (g->streaming && !g->closed) (void)http_stream_end(g->c->x);
    g->closed = true;
}

static void on_expired(serve_call *c, const serve_failure *f) {
    serve_generation *g = c->state;
    pthread_mutex_lock(&g->lock);
    fail(g, f);
    pthread_mutex_unlock(&g->lock);
}

/* ---- requests ---- */

serve_generation *serve_generation_new(serve_call *c, const serve_dialect *dialect) {
    serve_generation *g = calloc(1, sizeof *g);
    if (g) g->extra = calloc(1, dialect->extra_bytes + 1);
    if (!g || !g->extra) {
        free(g);
        serve_fail_memory(&c->failure);
        return NULL;
    }
    g->c = c;
    g->dialect = dialect;
    g->n = 1;
    g->created = (int64_t)time(NULL);
    ht_generate_options_init(&g->how, sizeof g->how);
    g->how.lookup = c->server->o.lookup;
    g->how.stop = c->server->o.stop;
    g->how.n_stop = c->server->o.n_stop;
    if (c->server->o.bounds_thinking) g->how.max_thinking_tokens = c->server->o.thinking_budget;
    pthread_mutex_init(&g->lock, NULL);
    pthread_mutex_init(&g->ticket_lock, NULL);
    c->state = g;
    c->free_state = free_generation;
    atomic_store(&c->expired, on_expired);
    atomic_store(&c->gone, on_gone);
    if (atomic_load(&c->is_gone)) ht_cancel_request(&g->cancel);
    return g;
}

bool serve_generation_prompts(serve_generation *g, size_t n) {
    serve_prompt *prompt = calloc(n, sizeof *prompt);
    if (!prompt) return serve_fail_memory(&g->c->failure);
    for (size_t i = 0; i < n; i++) prompt[i].g = g;
    pthread_mutex_lock(&g->ticket_lock); /* a disconnect may already read the tickets */
    g->prompt = prompt;
    g->n_prompts = n;
    pthread_mutex_unlock(&g->ticket_lock);
    return true;
}

/* ---- log-probabilities ---- */

/* A JSON number; NaN becomes null, and an infinity the lowest value, for a probability of zero. */
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

static size_t bytes_of(const ht_json *token) { return ht_json_array_size(ht_json_object_get(token, "bytes")); }

/* Tokens wait for their text: those of reasoning, calls, markers and stop strings never appear in it. */
static void take_logprob(serve_answer *a, const ht_tokenizer *t, const ht_probe *p) {
    ht_json *token = serve_token_json(t, p->token, p->log_probability), *top = ht_json_new_array();
    const ht_json *bytes = ht_json_object_get(token, "bytes");
    for (size_t i = 0; i < ht_json_array_size(bytes); i++) {
        const char byte = (char)ht_json_integer_value(ht_json_array_get(bytes, i));
        ht_text_append(&a->pending_bytes, &byte, 1);
    }
    for (int32_t i = 0; i < p->n_likeliest; i++)
        ht_json_array_append_new(top, serve_token_json(t, p->likeliest[i].id, p->likeliest[i].log_probability));
    ht_json_object_set_new(token, "top_logprobs", top);
    ht_json_array_append_new(a->pending_logprobs, token);
}

/* Finds the end of a text piece in the pending bytes: after the last piece, or after a marker's hidden bytes. Replaced
 * invalid UTF-8 does not match, and takes all pending bytes. */
static size_t find_pending(const ht_text *bytes, const char *text, size_t n, size_t *from) {
    const bool next = n <= bytes->len && memcmp(bytes->data, text, n) == 0;
    *from = 0;
    for (size_t to = bytes->len; !next && to >= n; to--)
        if (memcmp(bytes->data + to - n, text, n) == 0) {
            *from = to - n;
            return to;
        }
    return next ? n : bytes->len;
}

/* Moves the tokens that overlap the text to the answer. Earlier tokens have no visible text. Later ones still wait:
 * white space and prefixes of stop strings are held back. */
static void show_logprobs(serve_answer *a, const char *text, size_t n) {
    ht_text *bytes = &a->pending_bytes;
    size_t from, at = a->shown_bytes; /* bytes of a moved token that are still to come */
    const size_t to = find_pending(bytes, text, n, &from);
    while (at < to && ht_json_array_size(a->pending_logprobs)) {
        ht_json *token = ht_json_array_get(a->pending_logprobs, 0);
        at += bytes_of(token);
        if (at > from) ht_json_array_append(a->logprobs, token);
        ht_json_array_remove(a->pending_logprobs, 0);
    }
    a->shown_bytes = at > to ? at - to : 0;
    bytes->len -= to;
    if (bytes->len) memmove(bytes->data, bytes->data + to, bytes->len);
}

static void hide_logprobs(serve_answer *a) {
    ht_json_array_clear(a->pending_logprobs);
    ht_text_clear(&a->pending_bytes);
    a->shown_bytes = 0;
}

ht_json *serve_take_logprobs(serve_answer *a) {
    ht_json *taken = a->logprobs;
    if (!ht_json_array_size(taken)) return NULL;
    a->logprobs = ht_json_new_array();
    return taken;
}

/* ---- pieces ---- */

static bool no_memory(serve_generation *g) {
    serve_failure f = {0};
    serve_fail_memory(&f);
    fail(g, &f);
    return false;
}

static bool begin_call(serve_generation *g, serve_answer *a, const ht_tool_call *call) {
    if (!HT_GROW_ONE(a->call, a->n_calls)) return no_memory(g);
    serve_tool_call *to = &a->call[a->n_calls];
    *to = (serve_tool_call){.name = strdup(call->name)};
    if (!to->name) return no_memory(g);
    a->n_calls++;
    /* Ids that the model writes may repeat within a conversation. */
    serve_new_id(g->dialect->call_prefix ? g->dialect->call_prefix : "call_", to->id);
    return true;
}

static bool add_text(serve_generation *g, ht_text *to, const ht_answer_piece *p) {
    ht_text_append(to, p->text, p->n);
    return to->failed ? no_memory(g) : true;
}

/* With the lock, as for all piece handlers. */
static void note_cached(serve_generation *g, serve_answer *a) {
    pthread_mutex_lock(&g->ticket_lock);
    const ht_ticket ticket = g->prompt[a->index / g->n].ticket;
    pthread_mutex_unlock(&g->ticket_lock);
    a->cached_tokens = ht_engine_reused_tokens(g->c->lease.engine, ticket, a->index % g->n);
}

/* Streams have sent their text and reasoning already, and keep no copy. */
static bool keep_piece(serve_generation *g, serve_answer *a, const ht_answer_piece *p) {
    serve_tool_call *call = a->n_calls ? &a->call[a->n_calls - 1] : NULL;
    switch (p->part) {
    case HT_ANSWER_TEXT: return g->streaming || add_text(g, &a->text, p);
    case HT_ANSWER_THINKING: return g->streaming || add_text(g, &a->thoughts, p);
    case HT_ANSWER_CALL_BEGIN: return begin_call(g, a, p->call);
    case HT_ANSWER_CALL_ARGUMENTS: return add_text(g, &call->arguments, p);
    case HT_ANSWER_CALL_END: call->cut = p->cut; break;
    case HT_ANSWER_CALL: break; /* does not occur: calls come in pieces */
    }
    return true;
}

static bool take_piece(serve_generation *g, serve_answer *a, const ht_answer_piece *p) {
    if (a->tokens == 0) note_cached(g, a);
    if (p->part == HT_ANSWER_THINKING) a->thought_tokens += p->tokens - a->tokens;
    a->tokens = p->tokens;
    a->last = p->part;
    if (a->logprobs && a->last == HT_ANSWER_TEXT) show_logprobs(a, p->text, p->n);
    if (a->logprobs && a->last != HT_ANSWER_TEXT) hide_logprobs(a);
    if (!keep_piece(g, a, p)) return false;
    if (g->streaming && !g->closed) g->dialect->piece(g, a, p);
    return true;
}

static serve_answer *answer_of(const serve_prompt *p, int32_t index) {
    return &p->g->answer[(p - p->g->prompt) * p->g->n + index];
}

static void on_probe(const ht_probe *probe, void *user) {
    const serve_prompt *of = user;
    serve_generation *g = of->g;
    pthread_mutex_lock(&g->lock);
    if (!g->closed) take_logprob(answer_of(of, probe->answer), ht_model_tokenizer(g->c->lease.model), probe);
    pthread_mutex_unlock(&g->lock);
}

static bool on_piece(const ht_answer_piece *piece, int32_t index, void *user) {
    const serve_prompt *of = user;
    serve_generation *g = of->g;
    pthread_mutex_lock(&g->lock);
    if (g->first_piece == 0) {
        g->first_piece = ht_now_seconds();
        serve_histogram_add(&g->c->server->metrics.first_token, g->first_piece - g->c->begin);
    }
    const bool goes_on = !g->closed && take_piece(g, answer_of(of, index), piece) && !g->closed;
    pthread_mutex_unlock(&g->lock);
    return goes_on && !atomic_load(&g->c->is_gone);
}

/* ---- the end ---- */

/* A limit within an answer is not the context's: its error code would make clients shorten the conversation. */
static void fail_as(serve_generation *g, const serve_answer *bad) {
    ht_error err = {.status = bad->status};
    serve_failure f = {0};
    snprintf(err.message, sizeof err.message, "%s", bad->message);
    serve_fail_as(&f, bad->status, &err);
    f.code = NULL;
    fail(g, &f);
}

/* With the lock. */
static void finish(serve_generation *g) {
    const char *last = g->dialect->last_event;
    for (size_t i = 0; i < g->n_answers && !g->closed; i++)
        if (g->answer[i].status) fail_as(g, &g->answer[i]);
    if (g->closed) return;
    if (!g->streaming) serve_reply_json(g->c->x, 200, g->dialect->reply(g), g->c->route->dialect);
    if (g->streaming && g->dialect->end) g->dialect->end(g);
    if (g->streaming && !g->closed && last) check_sent(g, http_stream_event(g->c->x, NULL, last, strlen(last)));
    if (g->streaming && !g->closed) (void)http_stream_end(g->c->x);
    g->closed = true;
}

static void count(serve_generation *g, const ht_answer_report *r) {
    serve_metrics *m = &g->c->server->metrics;
    const ht_metrics *k = &r->metrics;
    if (r->answer == 0) {
        atomic_fetch_add(&m->prompt_tokens, k->prompt_tokens + k->reused_tokens);
        atomic_fetch_add(&m->cached_tokens, r->reuse.reused);
    }
    atomic_fetch_add(&m->generated_tokens, k->generated_tokens);
    if (r->status == HT_ERR_CANCELLED || k->finish == HT_FINISH_CALLBACK) atomic_fetch_add(&m->cancelled, 1);
    if (k->generated_tokens > 1)
        serve_histogram_add(&m->between_tokens, k->decode_seconds / (double)(k->generated_tokens - 1));
}

static void keep_ids(serve_generation *g, serve_answer *a, const ht_answer_report *report) {
    const size_t n = (size_t)report->metrics.generated_tokens;
    if (!g->keep_ids || a->status || g->closed) return;
    a->ids = malloc((n + 1) * sizeof *a->ids);
    if (a->ids && n) memcpy(a->ids, report->token, n * sizeof *a->ids);
    if (a->ids)
        a->n_ids = n;
    else
        (void)no_memory(g);
}

static void on_end(const ht_answer_report *report, void *user) {
    const serve_prompt *of = user;
    serve_generation *g = of->g;
    serve_answer *a = answer_of(of, report->answer);
    http_exchange *x = g->c->x;
    count(g, report);
    pthread_mutex_lock(&g->lock);
    a->status = report->status;
    snprintf(a->message, sizeof a->message, "%s", report->message);
    ht_utf8_trim(a->message);
    a->metrics = report->metrics;
    a->reuse = report->reuse;
    a->cached_tokens = report->reuse.reused;
    a->queue_seconds = report->queue_seconds;
    a->tokens = report->metrics.generated_tokens;
    keep_ids(g, a, report);
    if (g->streaming && !g->closed && !a->status && g->dialect->answer_end) g->dialect->answer_end(g, a);
    const bool last = --g->left == 0;
    if (last) finish(g);
    pthread_mutex_unlock(&g->lock);
    if (last) {
        atomic_fetch_sub(&g->c->server->metrics.under_way, 1);
        http_exchange_release(x);
    }
}

/* ---- submission ---- */

/* An engine request for one of the prompts. */
static ht_request request_for(serve_prompt *p, const ht_generate_options *how) {
    const serve_lease *l = &p->g->c->lease;
    ht_request r;
    ht_request_init(&r, sizeof r);
    r.ids = p->ids;
    r.n_ids = p->n_ids;
    r.text = p->text;
    r.chat = p->chat;
    r.options = how;
    if (l->adapter) {
        r.adapters = &l->adapter;
        r.adapter_scales = &l->scale;
        r.n_adapters = 1;
    }
    r.n = p->g->n;
    r.salt = p->g->c->salt;
    r.piece = on_piece;
    r.end = on_end;
    r.user = p;
    return r;
}

/* Submits the answers to a prompt. The lock delays callbacks until their data is set. */
static bool submit(serve_generation *g, serve_prompt *p) {
    serve_call *c = g->c;
    ht_error err = {0};
    ht_ticket ticket = 0;
    ht_probe_options probes;
    ht_probe_options_init(&probes, sizeof probes);
    probes.kinds = HT_PROBE_LOGPROB;
    probes.top_logprobs = g->top_logprobs;
    probes.fn = on_probe;
    probes.user = p;
    ht_generate_options how = g->how;
    how.call_pieces = true; /* also for whole responses, which then match their streams */
    if (g->logprobs) how.probes = &probes;
    const ht_request r = request_for(p, &how);
    const ht_status status = ht_engine_submit(c->lease.engine, &r, &ticket, &err);
    if (status) return serve_fail_as(&c->failure, status, &err);
    if (g->left == 0) {
        http_exchange_retain(c->x);
        atomic_fetch_add(&c->server->metrics.under_way, 1);
    }
    g->left += (size_t)g->n;
    pthread_mutex_lock(&g->ticket_lock);
    p->ticket = ticket;
    pthread_mutex_unlock(&g->ticket_lock);
    const int64_t n = ht_engine_prompt_tokens(c->lease.engine, ticket);
    for (int32_t k = 0; k < g->n; k++) answer_of(p, k)->prompt_tokens = n;
    return true;
}

static bool make_answers(serve_generation *g) {
    const size_t n = g->n_prompts * (size_t)g->n;
    g->answer = calloc(n, sizeof *g->answer);
    if (!g->answer) return serve_fail_memory(&g->c->failure);
    g->n_answers = n;
    for (size_t i = 0; i < n; i++) {
        g->answer[i].index = (int32_t)i;
        g->answer[i].last = HT_ANSWER_TEXT;
        if (!g->logprobs) continue;
        g->answer[i].logprobs = ht_json_new_array();
        g->answer[i].pending_logprobs = ht_json_new_array();
        if (!g->answer[i].logprobs || !g->answer[i].pending_logprobs) return serve_fail_memory(&g->c->failure);
    }
    return true;
}

static void begin_stream(serve_generation *g) {
    const http_stream_options how = {.content_type = g->dialect->stream_type,
                                     .alive_seconds = g->dialect->stream_type ? 0 : 15,
                                     .alive = g->dialect->alive};
    g->streaming = true;
    check_sent(g, http_stream_begin(g->c->x, &how));
    if (!g->closed && g->dialect->begin) g->dialect->begin(g);
}

bool serve_generation_start(serve_generation *g) {
    bool good = true;
    g->how.sampler = &g->sampler;
    if (!make_answers(g)) return false;
    pthread_mutex_lock(&g->lock);
    for (size_t i = 0; i < g->n_prompts && good; i++) good = submit(g, &g->prompt[i]);
    if (!good) g->closed = true;
    if (good && g->stream) begin_stream(g);
    pthread_mutex_unlock(&g->lock);
    if (!good || atomic_load(&g->c->is_gone)) cancel_all(g); /* an earlier disconnect saw no ticket */
    return good;
}

bool serve_generation_answer_empty(serve_generation *g, const serve_prefill *prefill) {
    if (!make_answers(g)) return false;
    pthread_mutex_lock(&g->lock);
    for (size_t i = 0; i < g->n_answers; i++) {
        const serve_prefill *of = &prefill[i / (size_t)g->n];
        serve_answer *a = &g->answer[i];
        a->metrics.finish = HT_FINISH_LENGTH;
        a->metrics.stop = -1;
        a->metrics.prompt_tokens = of->reuse.computed;
        a->metrics.reused_tokens = of->reuse.reused;
        a->metrics.prefill_seconds = of->seconds;
        a->reuse = of->reuse;
        a->prompt_tokens = of->reuse.computed + of->reuse.reused;
        a->cached_tokens = of->reuse.reused;
    }
    if (g->stream) begin_stream(g);
    for (size_t i = 0; i < g->n_answers && g->dialect->answer_end; i++)
        if (g->streaming && !g->closed) g->dialect->answer_end(g, &g->answer[i]);
    finish(g);
    pthread_mutex_unlock(&g->lock);
    return true;
}

static bool warm(serve_call *c) {
    serve_generation *g = c->state;
    ht_error err = {0};
    serve_prefill *prefill = calloc(g->n_prompts + 1, sizeof *prefill);
    ht_status status = HT_OK;
    if (!prefill) return serve_fail_memory(&g->c->failure);
    ht_generate_options how = g->how;
    how.sampler = &g->sampler;
    how.max_tokens = 1;
    how.cancel = &g->cancel;
    for (size_t i = 0; i < g->n_prompts && !status; i++) {
        const ht_request r = request_for(&g->prompt[i], &how);
        const double begun = ht_now_seconds();
        status = ht_engine_warm(g->c->lease.engine, &r, &prefill[i].reuse, &err);
        prefill[i].seconds = ht_now_seconds() - begun;
    }
    const bool good = status ? serve_fail_as(&g->c->failure, status, &err) : serve_generation_answer_empty(g, prefill);
    free(prefill);
    return good;
}

bool serve_generation_warm(serve_generation *g) { return serve_call_compute(g->c, warm); }

/* ---- usage ---- */

serve_usage serve_answer_usage(const serve_answer *a) {
    return (serve_usage){
        .prompt = a->prompt_tokens, .cached = a->cached_tokens, .generated = a->tokens, .thoughts = a->thought_tokens};
}

serve_usage serve_usage_of(const serve_generation *g) {
    serve_usage all = {0};
    for (size_t i = 0; i < g->n_answers; i++) {
        const serve_usage one = serve_answer_usage(&g->answer[i]);
        const bool first = i % (size_t)g->n == 0;
        all.prompt += first ? one.prompt : 0;
        all.cached += first ? one.cached : 0;
        all.generated += one.generated;
        all.thoughts += one.thoughts;
    }
    return all;
}

/* ---- arguments of calls ---- */

/* Parses a text's first n bytes with the open brackets closed; NULL, with a status, when that fails. */
static ht_json *parse_closed(const ht_text *text, size_t n, const ht_text *closing, ht_status *status) {
    const ht_json_options options = {.name = "the arguments", .keeps_nul = true};
    ht_text whole = {0};
    ht_json *value = NULL;
    ht_text_append(&whole, text->data ? text->data : "", n);
    for (size_t i = closing->len; i > 0; i--) ht_text_append(&whole, closing->data + i - 1, 1);
    *status = whole.failed ? HT_ERR_MEMORY : ht_json_load(whole.data, whole.len, &options, &value, NULL);
    ht_text_discard(&whole);
    return value;
}

/* For a truncated call, parses the longest prefix with complete values. A number at the end may be incomplete. */
ht_json *serve_tool_call_arguments(const serve_tool_call *call) {
    const ht_text *text = &call->arguments;
    ht_text closing = {0}; /* closing brackets of open values, the innermost last */
    size_t whole = 0;      /* length of the prefix that needs only closing brackets */
    bool quoted = false;
    char c = '\0';
    for (size_t i = 0; i < text->len && call->cut; i++) {
        c = text->data[i];
        if (c == '"')
            quoted = !quoted;
        else if (quoted)
            i += c == '\\';
        else if (c == '{' || c == '[') {
            ht_text_append(&closing, c == '{' ? "}" : "]", 1);
            whole = i + 1;
        } else if (c == '}' || c == ']') {
            if (closing.len) closing.len--;
            whole = i + 1;
        } else if (c == ',')
            whole = i;
    }
    ht_status status = closing.failed ? HT_ERR_MEMORY : HT_ERR_FORMAT;
    ht_json *value = NULL;
    if (!call->cut || (closing.len && !quoted && !(c >= '0' && c <= '9')))
        value = parse_closed(text, text->len, &closing, &status);
    if (!value && call->cut && status != HT_ERR_MEMORY) value = parse_closed(text, whole, &closing, &status);
    ht_text_discard(&closing);
    return value || status == HT_ERR_MEMORY ? value : ht_json_new_object();
}
