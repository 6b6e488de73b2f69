/* Batches: requests in, results out in order. The caller's thread submits and delivers. The engine's threads fill a
 * request's entry in a ring; a lock guards the fields that mark an entry as done. */
#include "base/checked.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/grow.h"
#include "base/options.h"
#include "base/plural.h"
#include "base/system.h"
#include "base/text.h"
#include "generate/generation.h"
#include "generate/prompt_ids.h"
#include "models/model.h"

#include <hearth/batch.h>

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const ht_batch_options defaults = {.size = sizeof defaults};

void ht_batch_options_init(ht_batch_options *options, size_t size) {
    ht_options_init(options, size, &defaults, sizeof defaults);
}

/* Requests compared for a common prefix, and tokens that make it worth computing; seconds between looks at the flag. */
enum { COMPARED = 8, FEWEST_TOKENS = 16, WINDOW_FACTOR = 4, MOST_SEQUENCES = 32 };
static const double nap = 0.01;

typedef struct answer {
    ht_text text, thinking;
    ht_tool_call *calls; /* [n_calls], texts are the answer's own */
    size_t n_calls;
    bool no_memory;
    ht_answer_report report;
    char *message;
    int32_t *token;
} answer;

typedef struct batch batch;

typedef struct entry {
    batch *b;
    ht_ticket ticket;
    ht_status status; /* of one that was refused */
    ht_error err;
    answer *answer; /* [n] */
    int32_t n;
    int32_t left; /* answers that have not ended; lock */
} entry;

struct batch {
    ht_model *model;
    ht_batch_options o;
    const ht_request *const *requests; /* NULL: those of o.next */
    size_t n;
    ht_batch_fn *fn;
    void *user;
    ht_engine *engine;
    size_t window;
    entry *entry;              /* [window] request i is in entry i % window */
    size_t begun, handed_over; /* requests */
    bool stopped;              /* fn wants no more */
    pthread_mutex_t lock;
    pthread_cond_t ended;
};

/* ---- on the engine's threads ---- */

static char *copy_text(const char *text, bool *failed) {
    char *copy = text ? strdup(text) : NULL;
    *failed = *failed || (text && !copy);
    return copy;
}

static bool add_call(answer *a, const ht_tool_call *call) {
    if (!HT_GROW_ONE(a->calls, a->n_calls)) return false;
    bool failed = false;
    a->calls[a->n_calls++] = (ht_tool_call){.name = copy_text(call->name, &failed),
                                            .arguments = copy_text(call->arguments, &failed),
                                            .id = copy_text(call->id, &failed)};
    return !failed;
}

static bool take_piece(const ht_answer_piece *piece, int32_t index, void *user) {
    answer *a = &((entry *)user)->answer[index];
    switch (piece->part) {
    case HT_ANSWER_TEXT: ht_text_append(&a->text, piece->text, piece->n); break;
    case HT_ANSWER_THINKING: ht_text_append(&a->thinking, piece->text, piece->n); break;
    case HT_ANSWER_CALL: a->no_memory = a->no_memory || !add_call(a, piece->call); break;
    case HT_ANSWER_CALL_BEGIN: /* calls of a batch come whole */
    case HT_ANSWER_CALL_ARGUMENTS:
    case HT_ANSWER_CALL_END: break;
    }
    a->no_memory = a->no_memory || a->text.failed || a->thinking.failed;
    return !a->no_memory;
}

static void take_end(const ht_answer_report *report, void *user) {
    entry *e = user;
    answer *a = &e->answer[report->answer];
    const size_t n = (size_t)report->metrics.generated_tokens;
    a->report = *report;
    a->message = strdup(report->message);
    a->token = malloc(n * sizeof *a->token + 1);
    if (a->token && n) memcpy(a->token, report->token, n * sizeof *a->token);
    if (!a->message || !a->token) a->no_memory = true;
    pthread_mutex_lock(&e->b->lock);
    if (--e->left == 0) pthread_cond_signal(&e->b->ended);
    pthread_mutex_unlock(&e->b->lock);
}

/* ---- entries ---- */

static void free_answer(answer *a) {
    ht_text_discard(&a->text);
    ht_text_discard(&a->thinking);
    for (size_t i = 0; i < a->n_calls; i++) {
        /* The copies are this file's own. */
        free((void *)(uintptr_t)a->calls[i].name);
        free((void *)(uintptr_t)a->calls[i].arguments);
        free((void *)(uintptr_t)a->calls[i].id);
    }
    free(a->calls);
    free(a->message);
    free(a->token);
}

static void clear(entry *e) {
    for (int32_t i = 0; i < e->n; i++) free_answer(&e->answer[i]);
    free(e->answer);
    *e = (entry){.b = e->b};
}

/* ---- submitting ---- */

/* Request i as it was given. */
static ht_status get_request(const batch *b, size_t i, ht_request *out, ht_error *err) {
    ht_request_init(out, sizeof *out);
    if (!b->requests) return b->o.next(i, out, b->user, err);
    const ht_request request_defaults = *out;
    return ht_options_read(out, b->requests[i], &request_defaults, sizeof request_defaults, "ht_request", err);
}

static ht_status begin(batch *b, size_t i, entry *e, ht_error *err) {
    ht_request request;
    ht_status status = get_request(b, i, &request, err);
    if (status) return status;
    if (request.n < 1 || !(e->answer = calloc((size_t)request.n, sizeof *e->answer)))
        return request.n < 1 ? ht_fail(err, HT_ERR_ARGUMENT, "%d answers, expected 1 or more", (int)request.n)
                             : ht_fail_memory(err, (size_t)request.n * sizeof *e->answer, "answers");
    ht_generate_options whole;
    if ((status = ht_generation_read_options(&whole, request.options, err))) return status;
    whole.call_pieces = false;
    request.options = &whole;
    e->n = e->left = request.n;
    request.piece = ht_model_tokenizer(b->model) ? take_piece : NULL; /* a model without one answers with ids alone */
    request.end = take_end;
    request.user = e;
    return ht_engine_submit(b->engine, &request, &e->ticket, err);
}

/* Begins request i; false when the engine has no room for it yet. */
static bool submit(batch *b, size_t i) {
    entry *e = &b->entry[i % b->window];
    *e = (entry){.b = b};
    ht_error err = {0};
    const ht_status status = begin(b, i, e, &err);
    if (!status) return true;
    const bool alone = b->begun == b->handed_over;
    clear(e);
    if (status == HT_ERR_BUSY && !alone) return false;
    e->status = status;
    e->err = err;
    return true;
}

/* ---- what the first requests have in common ---- */

static bool same_adapters(const ht_request *a, const ht_request *b) {
    if (a->n_adapters != b->n_adapters) return false;
    for (int i = 0; i < a->n_adapters; i++) {
        const float x = a->adapter_scales ? a->adapter_scales[i] : 1, y = b->adapter_scales ? b->adapter_scales[i] : 1;
        if (a->adapters[i] != b->adapters[i] || x != y) return false;
    }
    return strcmp(a->salt ? a->salt : "", b->salt ? b->salt : "") == 0;
}

/* Request i and its ids, if its adapters are those of `like`, unless that is NULL. False when it has none. */
static bool ids_of(const batch *b, size_t i, const ht_request *like, ht_request *request, ht_ids *out) {
    ht_error ignored = {0}; /* reported when the request begins */
    if (get_request(b, i, request, &ignored)) return false;
    if (like && !same_adapters(like, request)) return false;
    const ht_prompt prompt = {request->ids, request->n_ids, request->text, request->chat};
    return ht_prompt_encode(b->model, &prompt, 0, out, NULL, NULL) == HT_OK;
}

/* Tokens at the beginning of `common` with which the following requests begin, too. */
static size_t compare_first(const batch *b, const ht_request *first, const ht_ids *common) {
    size_t same = common->n;
    for (size_t i = 1; i < b->n && i < COMPARED && same >= FEWEST_TOKENS; i++) {
        ht_request request;
        ht_ids other;
        if (!ids_of(b, i, first, &request, &other)) return 0;
        size_t k = 0;
        while (k < same && k < other.n && other.id[k] == common->id[k]) k++;
        same = k;
        ht_ids_free(other.id);
    }
    return same;
}

/* Puts the common prefix of the first requests into the prefix cache; without, each of them would compute it. */
static void warm(batch *b) {
    ht_ids common;
    ht_request first;
    if (b->n < 2 || !ids_of(b, 0, NULL, &first, &common)) return;
    const size_t same = compare_first(b, &first, &common);
    first.text = NULL;
    first.chat = NULL;
    first.options = NULL;
    first.ids = common.id;
    first.n_ids = same;
    if (same >= FEWEST_TOKENS) (void)ht_engine_warm(b->engine, &first, NULL, NULL);
    ht_ids_free(common.id);
}

/* ---- handing over ---- */

static bool call_back(batch *b, size_t i, const entry *e, ht_error *err) {
    ht_batch_result result = {
        .index = i, .status = e->status, .message = e->status ? e->err.message : "", .n_answers = e->n};
    ht_batch_answer *answers = calloc((size_t)e->n + 1, sizeof *answers);
    if (!answers) {
        ht_fail_memory(err, (size_t)e->n * sizeof *answers, "answers");
        return false;
    }
    for (int32_t k = 0; k < e->n; k++) {
        answer *a = &e->answer[k];
        a->report.message = a->message ? a->message : "";
        a->report.token = a->token;
        if (a->no_memory) {
            a->report.status = HT_ERR_MEMORY;
            a->report.message = "out of memory for an answer";
        }
        answers[k] = (ht_batch_answer){.report = &a->report,
                                       .text = a->text.data ? a->text.data : "",
                                       .n_text = a->text.len,
                                       .thinking = a->thinking.data ? a->thinking.data : "",
                                       .n_thinking = a->thinking.len,
                                       .calls = a->calls,
                                       .n_calls = a->n_calls};
    }
    result.answers = answers;
    const bool goes_on = b->fn(&result, b->user);
    free(answers);
    if (!goes_on)
        ht_fail(err, HT_ERR_CANCELLED, "stopped by the callback after %zu of %zu request%s", i + 1, b->n,
                ht_plural(b->n));
    return goes_on;
}

/* Delivers the first undelivered request, which is done. */
static ht_status hand_over(batch *b, ht_error *err) {
    ht_error own = {0};
    entry *e = &b->entry[b->handed_over % b->window];
    const bool goes_on = call_back(b, b->handed_over, e, &own);
    clear(e);
    b->handed_over++;
    if (goes_on) return HT_OK;
    b->stopped = true;
    if (err) *err = own;
    return own.status;
}

/* Whether the entry is done, after a short wait at most. */
static bool wait_for(batch *b, const entry *e) {
    const double until = ht_now_seconds() + nap;
    pthread_mutex_lock(&b->lock);
    while (e->left > 0)
        if (!ht_condition_wait_until(&b->ended, &b->lock, until)) break;
    const bool done = e->left == 0;
    pthread_mutex_unlock(&b->lock);
    return done;
}

static ht_status run(batch *b, ht_error *err) {
    ht_status status = HT_OK;
    while (b->handed_over < b->n && !status) {
        if (ht_cancel_requested(b->o.cancel))
            return ht_fail(err, HT_ERR_CANCELLED, "cancelled after %zu of %zu request%s", b->handed_over, b->n,
                           ht_plural(b->n));
        while (b->begun < b->n && b->begun - b->handed_over < b->window && submit(b, b->begun)) b->begun++;
        if (wait_for(b, &b->entry[b->handed_over % b->window])) status = hand_over(b, err);
    }
    return status;
}

/* Ends what is under way. */
static void end(batch *b) {
    for (size_t i = b->handed_over; i < b->begun; i++) {
        const entry *e = &b->entry[i % b->window];
        if (e->ticket) ht_engine_cancel(b->engine, e->ticket);
    }
    ht_engine_wait(b->engine, 0);
    while (b->handed_over < b->begun) {
        if (!b->stopped) {
            (void)hand_over(b, NULL);
        } else {
            clear(&b->entry[b->handed_over % b->window]);
            b->handed_over++;
        }
    }
}

static ht_status open_batch(batch *b, ht_error *err) {
    ht_engine_options o;
    ht_engine_options_init(&o, sizeof o);
    /* No reader waits for a single request or token, so run more than the default; still more are no faster. */
    o.prefill_budget = 1;
    o.sequences = (int32_t)ht_min_i64(b->model->slots, MOST_SEQUENCES);
    if (b->o.window < 0)
        return ht_fail(err, HT_ERR_ARGUMENT, "a window of %d requests, expected 1 or more", (int)b->o.window);
    const ht_engine_options *engine = b->o.engine ? b->o.engine : &o;
    ht_status status = ht_engine_open(b->model, engine, &b->engine, err);
    if (status) return status;
    b->window = b->o.window ? (size_t)b->o.window : (size_t)engine->sequences * WINDOW_FACTOR;
    b->window = ht_min_size(b->window, b->n);
    b->entry = calloc(b->window, sizeof *b->entry);
    return b->entry ? HT_OK : ht_fail_memory(err, b->window * sizeof *b->entry, "a batch");
}

static ht_status load_cache(const batch *b, ht_error *err) {
    if (!b->o.cache_file || access(b->o.cache_file, F_OK)) return HT_OK;
    return ht_engine_load_cache(b->engine, b->o.cache_file, err);
}

/* A cancelled batch saves its pages, too: they stay valid. */
static ht_status save_cache(const batch *b, ht_status status, ht_error *err) {
    if (!b->o.cache_file || (status && status != HT_ERR_CANCELLED)) return status;
    const ht_status saved = ht_engine_save_cache(b->engine, b->o.cache_file, status ? NULL : err);
    return status ? status : saved;
}

ht_status ht_batch_generate(ht_model *m, const ht_request *const *requests, size_t n, const ht_batch_options *options,
                            ht_batch_fn *fn, void *user, ht_error *err) {
    batch b = {.model = m, .requests = requests, .n = n, .fn = fn, .user = user};
    ht_status status = ht_options_read(&b.o, options, &defaults, sizeof defaults, "ht_batch_options", err);
    if (status || n == 0) return status;
    if (!requests && !b.o.next)
        return ht_fail(err, HT_ERR_ARGUMENT,
                       "%zu request%s, but neither an array of them nor a function that gives them", n, ht_plural(n));
    ht_condition_init(&b.ended);
    pthread_mutex_init(&b.lock, NULL);
    status = open_batch(&b, err);
    if (!status) status = load_cache(&b, err);
    if (!status) {
        warm(&b);
        status = run(&b, err);
        end(&b);
        status = save_cache(&b, status, err);
    }
    ht_engine_close(b.engine);
    free(b.entry);
    pthread_cond_destroy(&b.ended);
    pthread_mutex_destroy(&b.lock);
    return status;
}
