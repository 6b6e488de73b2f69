/* Reports on a model (hearth/report.h): measures an answer and checks repetition, saved states and probes. */
#include "base/clock.h"
#include "base/directory_writer.h"
#include "base/error.h"
#include "base/options.h"
#include "base/text.h"
#include "device/device.h"
#include "generate/prompt_ids.h"
#include "generate/sampler.h"
#include "models/model.h"
#include "template/eval.h"

#include <hearth/engine.h>
#include <hearth/report.h>
#include <hearth/state.h>
#include <hearth/version.h>

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const ht_report_options defaults = {.size = sizeof defaults, .max_tokens = 64};

void ht_report_options_init(ht_report_options *options, size_t size) {
    ht_options_init(options, size, &defaults, sizeof defaults);
}

enum { CHECKS_MAX = 16, PROBE_KINDS = 8 };

_Static_assert(HT_PROBE_ALL == (1 << PROBE_KINDS) - 1, "a report counts every kind of probe");

/* The public struct with the data that it lends. */
typedef struct report_data {
    ht_bench_report public;
    ht_model *model; /* lent during the call */
    ht_report_options o;
    const char *prompt;
    ht_report_check check[CHECKS_MAX];
    char *detail[CHECKS_MAX];
    ht_report_probe probe[PROBE_KINDS];
    char *note;
} report_data;

typedef struct answer {
    ht_text text;
    int32_t *token; /* [metrics.generated_tokens] */
    ht_metrics metrics;
} answer;

enum {
    PREFIX_TOKENS = 2 * HT_KV_PAGE + 1, /* minimum length of a prompt whose reuse is measured: two pages and a token */
    MOST_COPIES = 4096,                 /* limits repetitions of prompts with few tokens, such as spaces */
    LEAST_PREFIX = 32                   /* shorter prefixes take less time than the noise of the measurement */
};

static const char default_prompt[] =
    "A lighthouse stands on a rock in the sea, two miles from the nearest harbour. Its keeper writes down the "
    "weather every three hours, day and night: where the wind comes from and how strong it is, how far one can see, "
    "how high the waves go, and whether ships have passed. In winter the boat with his supplies comes once a month, "
    "when the sea allows it; he then has bread, paraffin, newspapers and letters for some days. In the logbook of "
    "the year 1911, which is kept in the town's library today, there are a few longer entries. The first one tells "
    "of a storm in March, during which the light went out for an hour. The keeper describes how he climbed the "
    "stairs, cleaned the lenses, and lit the lamp again. Then he writes:";

/* ---- life ---- */

void ht_bench_report_free(ht_bench_report *report) {
    report_data *r = (report_data *)report; /* `public` is first */
    if (!r) return;
    for (int i = 0; i < r->public.n_checks; i++) free(r->detail[i]);
    free(r->note);
    free(r);
}

static void free_answer(answer *a) {
    ht_text_discard(&a->text);
    free(a->token);
    *a = (answer){0};
}

/* Adds a check and its finding. */
HT_PRINTF(5, 6)
static ht_status add_check(report_data *r, const char *name, bool passed, ht_error *err, const char *fmt, ...) {
    const int i = r->public.n_checks;
    va_list arguments;
    va_start(arguments, fmt);
    if (vasprintf(&r->detail[i], fmt, arguments) < 0) r->detail[i] = NULL;
    va_end(arguments);
    if (!r->detail[i]) return ht_fail_memory(err, 1, "a report");
    r->check[i] = (ht_report_check){.name = name, .detail = r->detail[i], .passed = passed};
    r->public.n_checks++;
    return HT_OK;
}

/* ---- an answer ---- */

/* Options for compared answers: greedy, max_tokens long. Ignores EOS, as empty answers would always be equal. */
static ht_generate_options options_of(const report_data *r) {
    ht_generate_options how;
    ht_generate_options_init(&how, sizeof how);
    how.max_tokens = r->o.max_tokens;
    how.cancel = r->o.cancel;
    how.ignore_eos = true;
    how.sampler = &ht_sampler_greedy;
    return how;
}

/* Whether two answers have the same tokens, and at least one. */
static bool is_same(const answer *a, const answer *b) {
    const int64_t n = a->metrics.generated_tokens;
    return n > 0 && b->metrics.generated_tokens == n && memcmp(a->token, b->token, (size_t)n * sizeof *a->token) == 0;
}

static bool add_text(const char *text, size_t n, void *user) {
    ht_text_append(user, text, n);
    return true;
}

static ht_status answer_on(ht_session *s, const char *prompt, const ht_generate_options *how, answer *out,
                           ht_error *err) {
    *out = (answer){0};
    ht_status status = ht_generate_text(s, prompt, how, add_text, &out->text, &out->metrics, err);
    if (!status && out->text.failed) status = ht_fail_memory(err, out->text.len, "a report");
    const size_t n = (size_t)out->metrics.generated_tokens;
    if (!status && !(out->token = malloc(n * sizeof *out->token + 1)))
        status = ht_fail_memory(err, n * sizeof *out->token, "a report");
    if (!status && n)
        memcpy(out->token, ht_session_tokens(s) + (ht_session_length(s) - (int64_t)n), n * sizeof *out->token);
    if (status) free_answer(out);
    return status;
}

/* Generates an answer in a new session; `how` NULL: options_of(r). */
static ht_status generate(const report_data *r, const char *prompt, const ht_generate_options *how, answer *out,
                          ht_error *err) {
    ht_session *s;
    const ht_generate_options usual = options_of(r);
    *out = (answer){0};
    ht_status status = ht_session_new(r->model, NULL, &s, err);
    if (status) return status;
    status = answer_on(s, prompt, how ? how : &usual, out, err);
    ht_session_free(s);
    return status;
}

/* ---- states ---- */

/* A session saved after half an answer must continue it unchanged after restoring. */
static ht_status go_on(report_data *r, const char *path, const answer *whole, ht_error *err) {
    ht_session *s;
    answer rest;
    ht_generate_options how = options_of(r);
    how.max_tokens = r->o.max_tokens - r->o.max_tokens / 2;
    ht_status status = ht_session_new(r->model, NULL, &s, err);
    if (status) return status;
    const double begin = ht_now_seconds();
    status = ht_session_load(s, path, err);
    r->public.state_load_seconds = ht_now_seconds() - begin;
    if (!status) status = answer_on(s, "", &how, &rest, err);
    ht_session_free(s);
    if (status) return status;
    const int64_t first = r->o.max_tokens / 2;
    const bool same =
        rest.metrics.generated_tokens > 0 && whole->metrics.generated_tokens == first + rest.metrics.generated_tokens &&
        memcmp(whole->token + first, rest.token, (size_t)rest.metrics.generated_tokens * sizeof *rest.token) == 0;
    free_answer(&rest);
    return add_check(r, "a restored state goes on", same, err,
                     same ? "%d tokens after a saved state are those of an answer that was not interrupted"
                          : "%d tokens after a saved state are not those of an answer that was not interrupted",
                     (int)how.max_tokens);
}

static ht_status save_half(report_data *r, const char *path, ht_error *err) {
    ht_session *s;
    answer half = {0};
    ht_generate_options how = options_of(r);
    struct stat file;
    how.max_tokens = r->o.max_tokens / 2;
    ht_status status = ht_session_new(r->model, NULL, &s, err);
    if (status) return status;
    if (how.max_tokens > 0) status = answer_on(s, r->prompt, &how, &half, err);
    free_answer(&half);
    const double begin = ht_now_seconds();
    if (!status) status = ht_session_save(s, path, err);
    r->public.state_save_seconds = ht_now_seconds() - begin;
    r->public.cache_bytes = ht_session_cache_bytes(s);
    if (!status && stat(path, &file) == 0) r->public.state_bytes = (size_t)file.st_size;
    ht_session_free(s);
    return status;
}

static ht_status measure_state(report_data *r, ht_error *err) {
    const char *directory = r->o.directory ? r->o.directory : P_tmpdir;
    char *prefix = NULL, *folder = NULL, *path = NULL;
    answer whole = {0};
    ht_status status = HT_OK;
    if (asprintf(&prefix, "%s/hearth-report", directory) < 0) return ht_fail_memory(err, strlen(directory), "a path");
    const int e = ht_temporary_directory_make(prefix, &folder);
    free(prefix);
    if (e) return ht_fail(err, HT_ERR_IO, "no file can be written in %s to measure saved states", directory);
    if (asprintf(&path, "%s/state", folder) < 0) status = ht_fail_memory(err, strlen(folder), "a path");
    if (!status) status = generate(r, r->prompt, NULL, &whole, err);
    if (!status) status = save_half(r, path, err);
    if (!status) status = go_on(r, path, &whole, err);
    free_answer(&whole);
    ht_temporary_directory_remove(folder);
    free(folder);
    free(path);
    return status;
}

/* ---- prefix cache ---- */

/* Repeats the prompt until it has PREFIX_TOKENS or fills the context up to the answer; *n is its token count. */
static ht_status make_long_prompt(const report_data *r, ht_text *out, int64_t *n, ht_error *err) {
    const int64_t most = r->model->context - r->o.max_tokens;
    size_t length = 0;
    *n = 0;
    for (int copies = 0; *n < PREFIX_TOKENS && copies < MOST_COPIES; copies++) {
        ht_ids ids = {0};
        if (length) ht_text_append_str(out, "\n");
        ht_text_append_str(out, r->prompt);
        if (out->failed) return ht_fail_memory(err, out->len, "a report");
        const ht_status status = ht_prompt_encode(r->model, &(ht_prompt){.text = out->data}, 0, &ids, NULL, err);
        ht_ids_free(ids.id);
        if (status) return status;
        if (length && (int64_t)ids.n > most) { /* undo the last addition: the text fitted without it */
            out->data[out->len = length] = '\0';
            return HT_OK;
        }
        *n = (int64_t)ids.n;
        length = out->len;
    }
    return HT_OK;
}

typedef struct ended {
    answer answer; /* without a text */
    ht_reuse reuse;
    ht_status status;
    ht_error err;
} ended;

static void on_end(const ht_answer_report *report, void *user) {
    ended *e = user;
    const size_t n = (size_t)report->metrics.generated_tokens;
    e->reuse = report->reuse;
    e->status = report->status;
    e->answer.metrics = report->metrics;
    e->answer.token = malloc(n * sizeof *e->answer.token + 1);
    if (!e->status && !e->answer.token) e->status = ht_fail_memory(&e->err, n * sizeof *e->answer.token, "a report");
    if (report->status) ht_fail(&e->err, report->status, "%s", report->message);
    if (!e->status && n) memcpy(e->answer.token, report->token, n * sizeof *e->answer.token);
}

static ht_status ask(const report_data *r, ht_engine *e, const char *prompt, ended *end, ht_error *err) {
    const ht_generate_options how = options_of(r);
    ht_request q;
    ht_request_init(&q, sizeof q);
    q.text = prompt;
    q.options = &how;
    q.end = on_end;
    q.user = end;
    ht_ticket ticket;
    ht_status status = ht_engine_submit(e, &q, &ticket, err);
    if (status) return status;
    ht_engine_wait(e, ticket);
    if (end->status && err) *err = end->err;
    return end->status;
}

static ht_status compare_requests(report_data *r, const char *prompt, ended end[2], ht_error *err) {
    ht_engine *e;
    answer alone;
    ht_status status = generate(r, prompt, NULL, &alone, err);
    if (status) return status;
    status = ht_engine_open(r->model, NULL, &e, err);
    for (int i = 0; i < 2 && !status; i++) status = ask(r, e, prompt, &end[i], err);
    ht_engine_close(e);
    const bool same = !status && is_same(&end[0].answer, &alone) && is_same(&end[1].answer, &alone);
    if (!status)
        status = add_check(r, "an engine answers as a session", same, err,
                           same ? "an engine gave the same %lld tokens, with and without a prefix to reuse"
                                : "an engine gave other tokens than the %lld of a session",
                           (long long)alone.metrics.generated_tokens);
    free_answer(&alone);
    return status;
}

static ht_status measure_prefix(report_data *r, ht_error *err) {
    ended end[2] = {0};
    ht_text prompt = {0};
    int64_t n;
    ht_status status = make_long_prompt(r, &prompt, &n, err);
    if (!status) status = compare_requests(r, prompt.data, end, err);
    if (!status && n < LEAST_PREFIX) {
        if (asprintf(
                &r->note,
                "not measured: a prompt of %lld tokens is too short, expected %d or more; the context has %lld, and an "
                "answer %d of them",
                (long long)n, LEAST_PREFIX, (long long)r->model->context, (int)r->o.max_tokens) < 0)
            r->note = NULL;
        r->public.prefix_note = r->note ? r->note : "not measured: the prompt is too short";
    } else if (!status) {
        r->public.prefix_reused = end[1].reuse.reused;
        r->public.prefix_hit_rate = (double)end[1].reuse.reused / (double)n;
        r->public.cold_seconds = end[0].answer.metrics.first_token_seconds;
        r->public.warm_seconds = end[1].answer.metrics.first_token_seconds;
    }
    for (int i = 0; i < 2; i++) free_answer(&end[i].answer);
    ht_text_discard(&prompt);
    return status;
}

/* ---- probes ---- */

static void count_probe(const ht_probe *probe, void *user) {
    int64_t *count = user;
    int i = 0;
    while ((1 << i) < (int)probe->kind) i++;
    count[i]++;
}

/* Relative slowdown per token with probes, measured in one round. */
static ht_status compare_pace(const report_data *r, const ht_probe_options *probes, bool first, double *overhead,
                              ht_error *err) {
    double seconds[2] = {0};
    ht_status status = HT_OK;
    for (int i = 0; i < 2 && !status; i++) {
        const bool on = (i == 0) == first;
        ht_generate_options how = options_of(r);
        how.probes = on ? probes : NULL;
        answer a;
        status = generate(r, r->prompt, &how, &a, err);
        if (!status) seconds[on] = a.metrics.decode_seconds;
        free_answer(&a);
    }
    *overhead = seconds[0] > 0 ? seconds[1] / seconds[0] - 1 : 0;
    return status;
}

static int compare_doubles(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static ht_status measure_probes(report_data *r, ht_error *err) {
    enum { ROUNDS = 5 };
    int64_t count[PROBE_KINDS] = {0};
    double overhead[ROUNDS];
    ht_probe_options probes;
    ht_probe_options_init(&probes, sizeof probes);
    probes.kinds = HT_PROBE_ALL;
    probes.top_logprobs = HT_PROBE_MOST_LOGPROBS;
    probes.fn = count_probe;
    probes.user = count;
    ht_status status = HT_OK;
    for (int i = 0; i < ROUNDS && !status; i++) status = compare_pace(r, &probes, i % 2, &overhead[i], err);
    if (status) return status;
    qsort(overhead, ROUNDS, sizeof *overhead, compare_doubles);
    ht_bench_report *p = &r->public;
    p->probe_overhead = overhead[ROUNDS / 2];
    p->probes = r->probe;
    for (int i = 0; i < PROBE_KINDS; i++)
        if (count[i])
            r->probe[p->n_probes++] =
                (ht_report_probe){.name = ht_probe_name((ht_probe_kind)(1 << i)), .count = count[i] / ROUNDS};
    return HT_OK;
}

/* ---- answers: repeated sampling, stop sequences, valid text, sequences, JSON ---- */

static ht_status check_seed(report_data *r, ht_error *err) {
    ht_sampler_options sampler = ht_sampler_greedy;
    sampler.temperature = 1;
    sampler.seed = 7;
    ht_generate_options how = options_of(r);
    how.sampler = &sampler;
    answer a[2] = {0};
    ht_status status = HT_OK;
    for (int i = 0; i < 2 && !status; i++) status = generate(r, r->prompt, &how, &a[i], err);
    const bool same = !status && is_same(&a[0], &a[1]);
    if (!status)
        status = add_check(r, "the same with a seed", same, err,
                           same ? "two answers of %lld tokens, drawn with one seed, are the same"
                                : "two answers of %lld tokens, drawn with one seed, differ",
                           (long long)a[0].metrics.generated_tokens);
    for (int i = 0; i < 2; i++) free_answer(&a[i]);
    return status;
}

/* Copies the first UTF-8 character that begins at or after byte i; returns its length. */
static size_t character_at(const ht_text *t, size_t i, char out[5]) {
    uint32_t code_point;
    while (i < t->len && ((unsigned char)t->data[i] & 0xc0) == 0x80) i++;
    const size_t n = i < t->len ? ht_utf8_decode(t->data + i, t->len - i, &code_point) : 0;
    memcpy(out, n ? t->data + i : "", n);
    out[n] = '\0';
    return n;
}

/* A stop sequence from the middle of an answer must end it there. */
static ht_status check_stop(report_data *r, const answer *plain, ht_error *err) {
    char stop[5];
    const char *const stops[] = {stop};
    if (!character_at(&plain->text, plain->text.len / 2, stop) || !*stop)
        return add_check(r, "stop texts stop", false, err, "the answer has no text to stop at");
    ht_generate_options how = options_of(r);
    answer a;
    how.stop = stops;
    how.n_stop = 1;
    ht_status status = generate(r, r->prompt, &how, &a, err);
    if (status) return status;
    const char *text = a.text.data ? a.text.data : "";
    const size_t expected = (size_t)(strstr(plain->text.data, stop) - plain->text.data);
    const bool held =
        a.metrics.finish == HT_FINISH_STOP && a.text.len == expected && memcmp(text, plain->text.data, expected) == 0;
    status = add_check(r, "stop texts stop", held, err,
                       held ? "the answer ends before \"%s\", after %zu bytes"
                            : "the answer should have ended before \"%s\", after %zu bytes",
                       stop, expected);
    free_answer(&a);
    return status;
}

static ht_status check_text(report_data *r, ht_error *err) {
    answer a;
    ht_status status = generate(r, r->prompt, NULL, &a, err);
    if (status) return status;
    const bool valid = ht_utf8_valid(a.text.data ? a.text.data : "", a.text.len);
    status = add_check(r, "text is UTF-8", valid, err,
                       valid ? "%zu bytes of an answer are valid UTF-8" : "%zu bytes of an answer are not valid UTF-8",
                       a.text.len);
    if (!status) status = check_stop(r, &a, err);
    free_answer(&a);
    return status;
}

/* ---- common knowledge ---- */

static const struct known {
    const char *prompt, *answer;
} known[] = {
    {"1, 2, 3, 4, 5, 6, 7,", "8"},
    {"Monday, Tuesday, Wednesday, Thursday,", "Friday"},
    {"January, February, March, April,", "May"},
    {"a, b, c, d, e, f,", "g"},
};
enum { N_KNOWN = sizeof known / sizeof *known };

static ht_status check_known(report_data *r, ht_error *err) {
    ht_text found = {0};
    int right = 0;
    ht_status status = HT_OK;
    for (int i = 0; i < N_KNOWN && !status; i++) {
        ht_generate_options how = options_of(r);
        how.max_tokens = 6;
        answer a;
        status = generate(r, known[i].prompt, &how, &a, err);
        if (status) break;
        const char *text = a.text.data ? a.text.data : "";
        text += strspn(text, " \n");
        const bool same = strncmp(text, known[i].answer, strlen(known[i].answer)) == 0;
        right += same;
        if (!same) ht_text_printf(&found, "; \"%s\" goes on with \"%.20s\"", known[i].prompt, text);
        free_answer(&a);
    }
    if (!status && found.failed) status = ht_fail_memory(err, found.len, "a report");
    if (!status)
        status = add_check(r, "known continuations", right == N_KNOWN, err, "%d of %d are right%s", right, N_KNOWN,
                           found.data ? found.data : "");
    ht_text_discard(&found);
    return status;
}

/* ---- JSON ---- */

static bool add_piece(const ht_answer_piece *piece, void *user) {
    if (piece->part == HT_ANSWER_TEXT) ht_text_append(user, piece->text, piece->n);
    return true;
}

/* Whether the text from its first '{' to its last '}' is a JSON object. */
static bool holds_json(const ht_text *t) {
    const char *begin = t->data ? strchr(t->data, '{') : NULL, *end = t->data ? strrchr(t->data, '}') : NULL;
    if (!begin || !end || end < begin) return false;
    ht_error ignored = {0};
    ht_jinja_arena arena = {.limit = 1 << 20, .name = "an answer", .err = &ignored};
    const ht_jinja_value v = ht_jinja_json_loads(&arena, begin, (size_t)(end - begin) + 1, "an answer");
    const bool valid = !arena.status && v.kind == HT_VALUE_DICT;
    ht_jinja_arena_free(&arena);
    return valid;
}

static ht_status ask_for_json(const report_data *r, ht_text *out, ht_error *err) {
    ht_chat *chat;
    ht_session *s = NULL;
    ht_generate_options how = options_of(r);
    how.ignore_eos = false; /* the model decides where the object ends */
    ht_status status = ht_chat_new(&chat, err);
    if (status) return status;
    status =
        ht_chat_add(chat, "user",
                    "Anna is 30 years old and lives in Oslo. Answer with nothing but a JSON object that has the keys "
                    "\"name\", \"age\" and \"city\".",
                    err);
    if (!status) status = ht_session_new(r->model, NULL, &s, err);
    if (!status) status = ht_generate_chat(s, chat, &how, add_piece, out, NULL, err);
    if (!status && out->failed) status = ht_fail_memory(err, out->len, "a report");
    ht_session_free(s);
    ht_chat_free(chat);
    return status;
}

static ht_status check_json(report_data *r, ht_error *err) {
    ht_text text = {0};
    if (!ht_chat_format_name(r->model)) return HT_OK; /* the model has no chat format */
    ht_status status = ask_for_json(r, &text, err);
    if (!status) {
        const bool valid = holds_json(&text);
        status = add_check(r, "JSON when asked for", valid, err,
                           valid ? "an object of %zu bytes can be read" : "%zu bytes hold no object that can be read",
                           text.len);
    }
    ht_text_discard(&text);
    return status;
}

/* ---- all of it ---- */

static ht_status run(report_data *r, ht_error *err) {
    ht_bench_report *p = &r->public;
    const ht_model *m = r->model;
    p->version = ht_version();
    p->architecture = m->architecture;
    p->instruction_set = m->device->instruction_set;
    p->precision = ht_precision_name(m->precision);
    p->kv_type = ht_dtype_name(m->kv_dtype);
    p->threads = m->device->n_threads;
    p->prefix_note = "";
    p->checks = r->check;
    answer first, again = {0};
    ht_status status = generate(r, r->prompt, NULL, &first, err);
    if (status) return status;
    p->prompt_tokens = first.metrics.prompt_tokens;
    p->generated_tokens = first.metrics.generated_tokens;
    p->prefill_seconds = first.metrics.prefill_seconds;
    p->first_token_seconds = first.metrics.first_token_seconds;
    p->decode_seconds = first.metrics.decode_seconds;
    status = generate(r, r->prompt, NULL, &again, err);
    const bool same = !status && is_same(&first, &again);
    if (!status)
        status = add_check(r, "the same twice", same, err,
                           same ? "two answers of %lld tokens are the same" : "two answers of %lld tokens differ",
                           (long long)first.metrics.generated_tokens);
    if (!status) status = measure_prefix(r, err);
    free_answer(&first);
    free_answer(&again);
    if (!status) status = measure_state(r, err);
    if (!status) status = measure_probes(r, err);
    if (!status) status = check_seed(r, err);
    if (!status) status = check_text(r, err);
    if (!status) status = check_known(r, err);
    if (!status) status = check_json(r, err);
    p->peak_memory_bytes = ht_memory_get(m->device).peak_bytes;
    return status;
}

ht_status ht_bench_report_run(ht_model *m, const ht_report_options *options, ht_bench_report **out, ht_error *err) {
    ht_report_options o;
    *out = NULL;
    ht_status status = ht_options_read(&o, options, &defaults, sizeof defaults, "ht_report_options", err);
    if (!status) status = ht_model_need_tokenizer(m, err);
    if (!status && o.max_tokens < 2)
        status = ht_fail(err, HT_ERR_ARGUMENT, "answers of %d tokens, expected 2 or more", (int)o.max_tokens);
    if (status) return status;
    report_data *r = calloc(1, sizeof *r);
    if (!r) return ht_fail_memory(err, sizeof *r, "a report");
    r->model = m;
    r->o = o;
    r->prompt = o.prompt ? o.prompt : default_prompt;
    status = run(r, err);
    r->model = NULL;
    if (status)
        ht_bench_report_free(&r->public);
    else
        *out = &r->public;
    return status;
}
