/* Grammars: whatever a GBNF text or a regular expression is, there is a grammar that reads texts the same way in whatever pieces,
 * or an error that says why not. The first byte chooses the notation; behind a NUL comes a text to read. */
#include "base/error.h"
#include "grammar/automaton.h"
#include "grammar/regex_syntax.h"
#include "tokens.h"

#include <string.h>

static ht_status parse(bool is_regex, const char *text, size_t n, ht_rules **out, ht_error *err) {
    ht_re re;
    bool has_text;
    if (!is_regex) return ht_gbnf_parse(text, n, out, err);
    ht_rules *r = *out = ht_rules_new();
    check(r != NULL);
    ht_status status = ht_regex_parse(r->re, text, n, &(ht_regex_syntax){.searches = n % 2 == 0}, &re, err);
    if (!status) {
        const ht_symbol whole = ht_rules_rule(r), lexeme = ht_rules_lexeme(r, ht_re_without_empty(r->re, re));
        if (ht_re_is_nullable(r->re, re)) ht_rules_add(r, whole, NULL, 0);
        ht_rules_add(r, whole, &lexeme, 1);
        ht_rules_finish(r, whole, &has_text);
        status = ht_rules_status(r, err);
        if (!status && !has_text) status = ht_fail(err, HT_ERR_FORMAT, "no text");
    }
    if (!status) return HT_OK;
    ht_rules_free(r);
    *out = NULL;
    return status;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size == 0) return 0;
    const char *text = (const char *)data + 1;
    const char *nul = memchr(text, 0, --size);
    const size_t n = nul ? (size_t)(nul - text) : size;
    ht_rules *rules;
    ht_automaton *a;
    ht_error err = {0};
    ht_status status = parse(data[0] % 2, text, n, &rules, &err);
    check(!status == (rules != NULL));
    if (!status) status = ht_automaton_new(rules, &a, &err);
    if (status) {
        check(err.status == status && err.message[0]);
        return 0;
    }
    const char *read = nul ? nul + 1 : "";
    const size_t n_read = nul ? size - n - 1 : 0, some = n_read < 200 ? n_read : 200;
    uint32_t one_by_one = a->start[0];
    size_t n_threads;
    for (size_t i = 0; i < some && !ht_automaton_status(a, NULL); i++)
        one_by_one = ht_automaton_feed(a, one_by_one, read + i, 1);
    const uint32_t whole = ht_automaton_feed(a, a->start[0], read, some);
    if (!ht_automaton_status(a, NULL)) {
        check(one_by_one == whole);
        ht_automaton_threads(a, whole, &n_threads);
        /* What can go on has a byte that does. */
        bool goes_on = n_threads == 0;
        for (int byte = 0; byte < 256 && !goes_on; byte++) {
            const char c = (char)byte;
            size_t n_next;
            const uint32_t next = ht_automaton_feed(a, whole, &c, 1);
            ht_automaton_threads(a, next, &n_next);
            goes_on = n_next > 0 || ht_automaton_may_end(a, next) || ht_automaton_status(a, NULL);
        }
        check(goes_on);
    }
    const bool may_end = ht_automaton_may_end(a, whole), failed = ht_automaton_status(a, NULL) != HT_OK;
    check(ht_automaton_reset(a, &err) == HT_OK);
    if (!failed)
        check(ht_automaton_may_end(a, ht_automaton_feed(a, a->start[0], read, some)) == may_end ||
              ht_automaton_status(a, NULL));
    ht_automaton_free(a);
    return 0;
}
