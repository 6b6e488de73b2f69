/* Checks of a report that are about what the model says: that drawing is repeatable, that stops stop, that text is text, that
 * it knows how well-known sequences go on, and that it can write JSON. */
#include "analysis/report_internal.h"
#include "base/error.h"
#include "generate/sampler.h"
#include "models/model.h"
#include "template/eval.h"

#include <stdlib.h>
#include <string.h>

static ht_status check_seed(ht_report_data *r, ht_error *err) {
    ht_sampler_options sampler = ht_sampler_greedy;
    sampler.temperature = 1;
    sampler.seed = 7;
    ht_generate_options how = ht_report_how(r);
    how.sampler = &sampler;
    ht_report_answer a[2] = {0};
    ht_status status = HT_OK;
    for (int i = 0; i < 2 && !status; i++) status = ht_report_generate(r, r->prompt, &how, &a[i], err);
    const bool same = !status && ht_report_same(&a[0], &a[1]);
    if (!status)
        status = ht_report_add(r, "the same with a seed", same, err,
                               same ? "two answers of %lld tokens, drawn with one seed, are the same"
                                    : "two answers of %lld tokens, drawn with one seed, differ",
                               (long long)a[0].metrics.generated_tokens);
    for (int i = 0; i < 2; i++) ht_report_answer_free(&a[i]);
    return status;
}

/* The bytes of the character at or behind place i. */
static size_t character_at(const ht_text *t, size_t i, char out[5]) {
    uint32_t code_point;
    while (i < t->len && ((unsigned char)t->data[i] & 0xc0) == 0x80) i++;
    const size_t n = i < t->len ? ht_utf8_decode(t->data + i, t->len - i, &code_point) : 0;
    memcpy(out, n ? t->data + i : "", n);
    out[n] = '\0';
    return n;
}

/* An answer is to end before a character of its middle. */
static ht_status check_stop(ht_report_data *r, const ht_report_answer *plain, ht_error *err) {
    char stop[5];
    const char *const stops[] = {stop};
    if (!character_at(&plain->text, plain->text.len / 2, stop) || !*stop)
        return ht_report_add(r, "stop texts stop", false, err, "the answer has no text to stop at");
    ht_generate_options how = ht_report_how(r);
    ht_report_answer a;
    how.stop = stops;
    how.n_stop = 1;
    ht_status status = ht_report_generate(r, r->prompt, &how, &a, err);
    if (status) return status;
    const char *text = a.text.data ? a.text.data : "";
    const size_t expected = (size_t)(strstr(plain->text.data, stop) - plain->text.data);
    const bool held =
        a.metrics.finish == HT_FINISH_STOP && a.text.len == expected && memcmp(text, plain->text.data, expected) == 0;
    status = ht_report_add(r, "stop texts stop", held, err,
                           held ? "the answer ends before \"%s\", after %zu bytes"
                                : "the answer should have ended before \"%s\", after %zu bytes",
                           stop, expected);
    ht_report_answer_free(&a);
    return status;
}

static ht_status check_text(ht_report_data *r, ht_error *err) {
    const ht_generate_options how = ht_report_how(r);
    ht_report_answer a;
    ht_status status = ht_report_generate(r, r->prompt, &how, &a, err);
    if (status) return status;
    const bool valid = ht_utf8_valid(a.text.data ? a.text.data : "", a.text.len);
    status = ht_report_add(
        r, "text is UTF-8", valid, err,
        valid ? "%zu bytes of an answer are valid UTF-8" : "%zu bytes of an answer are not valid UTF-8", a.text.len);
    if (!status) status = check_stop(r, &a, err);
    ht_report_answer_free(&a);
    return status;
}

/* ---- what every model ought to know ---- */

static const struct known {
    const char *prompt, *answer;
} known[] = {
    {"1, 2, 3, 4, 5, 6, 7,", "8"},
    {"Monday, Tuesday, Wednesday, Thursday,", "Friday"},
    {"January, February, March, April,", "May"},
    {"a, b, c, d, e, f,", "g"},
};
enum { N_KNOWN = sizeof known / sizeof *known };

static ht_status check_known(ht_report_data *r, ht_error *err) {
    ht_text found = {0};
    int right = 0;
    ht_status status = HT_OK;
    for (int i = 0; i < N_KNOWN && !status; i++) {
        ht_generate_options how = ht_report_how(r);
        how.max_tokens = 6;
        ht_report_answer a;
        status = ht_report_generate(r, known[i].prompt, &how, &a, err);
        if (status) break;
        const char *text = a.text.data ? a.text.data : "";
        text += strspn(text, " \n");
        const bool same = strncmp(text, known[i].answer, strlen(known[i].answer)) == 0;
        right += same;
        if (!same) ht_text_printf(&found, "; \"%s\" goes on with \"%.20s\"", known[i].prompt, text);
        ht_report_answer_free(&a);
    }
    if (!status && found.failed) status = ht_fail_memory(err, found.len, "a report");
    if (!status)
        status = ht_report_add(r, "known continuations", right == N_KNOWN, err, "%d of %d are right%s", right, N_KNOWN,
                               found.data ? found.data : "");
    ht_text_discard(&found);
    return status;
}

/* ---- JSON ---- */

static bool add_piece(const ht_answer_piece *piece, void *user) {
    if (piece->part == HT_ANSWER_TEXT) ht_text_append(user, piece->text, piece->n);
    return true;
}

/* What stands from the first brace to the last. */
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

static ht_status ask_for_json(const ht_report_data *r, ht_text *out, ht_error *err) {
    ht_chat *chat;
    ht_session *s = NULL;
    ht_generate_options how = ht_report_how(r);
    how.ignore_eos = false; /* the object ends where the model ends it */
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

static ht_status check_json(ht_report_data *r, ht_error *err) {
    ht_text text = {0};
    if (!ht_chat_format_name(r->model)) return HT_OK; /* it cannot be asked */
    ht_status status = ask_for_json(r, &text, err);
    if (!status) {
        const bool valid = holds_json(&text);
        status = ht_report_add(
            r, "JSON when asked for", valid, err,
            valid ? "an object of %zu bytes can be read" : "%zu bytes hold no object that can be read", text.len);
    }
    ht_text_discard(&text);
    return status;
}

ht_status ht_report_run_checks(ht_report_data *r, ht_error *err) {
    ht_status status = check_seed(r, err);
    if (!status) status = check_text(r, err);
    if (!status) status = check_known(r, err);
    if (!status) status = check_json(r, err);
    return status;
}
