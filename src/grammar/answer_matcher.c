/* Two matchers side by side, of which the one that has fewer tokens than the answer has died. */
#include "grammar/answer_matcher.h"

#include "base/checked.h"
#include "base/error.h"

#include <stdlib.h>

struct ht_answer_matcher {
    ht_matcher *text;
    ht_matcher *calls;   /* NULL: none */
    ht_matcher *no_call; /* with `calls`: what the text may be while it may yet become a call */
    size_t n;            /* tokens */
    uint32_t *mask;      /* [n_words] of both; NULL without `calls` */
    size_t n_words;
};

static bool is_live(const ht_matcher *one, size_t n) { return one && ht_matcher_length(one) == n; }

ht_status ht_answer_matcher_new(ht_grammar *text, ht_grammar *calls, ht_grammar_start start, ht_answer_matcher **out,
                                ht_error *err) {
    ht_answer_matcher *m = *out = calloc(1, sizeof *m);
    if (!m) return ht_fail_memory(err, sizeof *m, "a matcher");
    ht_status status = ht_matcher_new_at(text, start, &m->text, err);
    if (!status && calls) {
        const ht_grammar_start no_call = (ht_grammar_start)(HT_START_NO_CALL + start);
        status = ht_matcher_new_at(calls, start, &m->calls, err);
        if (!status) status = ht_matcher_new_at(calls, no_call, &m->no_call, err);
        m->n_words = ht_grammar_mask_words(calls);
        m->mask = malloc((m->n_words + 1) * sizeof *m->mask);
        if (!status && !m->mask) status = ht_fail_memory(err, m->n_words * sizeof *m->mask, "a matcher");
    }
    if (!status) return HT_OK;
    ht_answer_matcher_free(m);
    *out = NULL;
    return status;
}

void ht_answer_matcher_free(ht_answer_matcher *m) {
    if (!m) return;
    ht_matcher_free(m->text);
    ht_matcher_free(m->calls);
    ht_matcher_free(m->no_call);
    free(m->mask);
    free(m);
}

size_t ht_answer_matcher_length(const ht_answer_matcher *m) { return m->n; }

ht_status ht_answer_matcher_mask(ht_answer_matcher *m, const uint32_t **mask, ht_error *err) {
    const uint32_t *text, *calls, *no_call;
    if (!is_live(m->calls, m->n)) return ht_matcher_mask(m->text, mask, err);
    if (!is_live(m->text, m->n)) return ht_matcher_mask(m->calls, mask, err);
    *mask = NULL;
    ht_status status = ht_matcher_mask(m->text, &text, err);
    if (!status) status = ht_matcher_mask(m->calls, &calls, err);
    if (!status) status = ht_matcher_mask(m->no_call, &no_call, err);
    if (status) return status;
    for (size_t w = 0; w < m->n_words; w++) m->mask[w] = calls[w] | (text[w] & no_call[w]);
    *mask = m->mask;
    return HT_OK;
}

/* Appends a token to the alternatives that go on with it. */
static ht_status accept(ht_answer_matcher *m, int32_t token, bool *allowed, ht_error *err) {
    const bool calls = is_live(m->calls, m->n);
    bool is_call = false, is_text = is_live(m->text, m->n);
    ht_status status = calls ? ht_matcher_accept(m->calls, token, &is_call, err) : HT_OK;
    if (!status && calls && is_text) status = ht_matcher_accept(m->no_call, token, &is_text, err);
    if (!status && is_text) status = ht_matcher_accept(m->text, token, &is_text, err);
    *allowed = !status && (is_call || is_text);
    return status;
}

static void take_back(ht_matcher *one, size_t n) {
    if (one && ht_matcher_length(one) > n) (void)ht_matcher_truncate(one, n, NULL);
}

void ht_answer_matcher_truncate(ht_answer_matcher *m, size_t n) {
    m->n = ht_min_size(m->n, n);
    take_back(m->text, m->n);
    take_back(m->calls, m->n);
    take_back(m->no_call, m->n);
}

ht_status ht_answer_matcher_accept(ht_answer_matcher *m, int32_t token, bool *allowed, ht_error *err) {
    const ht_status status = accept(m, token, allowed, err);
    /* A token that ends the text is appended to neither. */
    if (*allowed && (is_live(m->text, m->n + 1) || is_live(m->calls, m->n + 1)))
        m->n++;
    else
        ht_answer_matcher_truncate(m, m->n);
    return status;
}

ht_status ht_answer_matcher_ending(ht_answer_matcher *m, ht_ending *ending, ht_error *err) {
    ht_ending calls;
    if (!is_live(m->calls, m->n)) return ht_matcher_ending(m->text, ending, err);
    if (!is_live(m->text, m->n)) return ht_matcher_ending(m->calls, ending, err);
    ht_status status = ht_matcher_ending(m->text, ending, err);
    if (!status) status = ht_matcher_ending(m->calls, &calls, err);
    if (!status && calls != *ending) *ending = HT_ENDING_MAY;
    return status;
}

bool ht_answer_matcher_is_text(const ht_answer_matcher *m, size_t n) {
    return m->calls && ht_matcher_length(m->calls) < ht_min_size(m->n, n);
}

ht_status ht_answer_matcher_forced(ht_answer_matcher *m, char *bytes, size_t most, size_t *n, ht_error *err) {
    if (!is_live(m->calls, m->n)) return ht_matcher_forced(m->text, bytes, most, n, err);
    ht_status status = ht_matcher_forced(m->calls, bytes, most, n, err);
    if (status || !*n || !is_live(m->text, m->n)) return status;
    /* What both begin with. */
    char *text = malloc(*n);
    size_t n_text = 0, same = 0;
    if (!text) return ht_fail_memory(err, *n, "a text that is forced");
    status = ht_matcher_forced(m->text, text, *n, &n_text, err);
    while (same < n_text && same < *n && text[same] == bytes[same]) same++;
    free(text);
    *n = same;
    return status;
}

void ht_answer_matcher_missing(ht_answer_matcher *m, const int32_t *token, int n, ht_answer_places *out) {
    ht_matcher *const all[HT_ANSWER_TEXTS] = {m->text, m->calls, m->no_call};
    out->n = 0;
    for (int i = 0; i < HT_ANSWER_TEXTS; i++) {
        if (!is_live(all[i], m->n)) continue;
        ht_matcher_missing(all[i], token, n, &out->of[out->n]);
        if (out->of[out->n].n) out->n++;
    }
}
