#include "chat/reasoning_rules.h"

#include <string.h>

ht_re ht_response_blanks(ht_regexes *re, uint32_t most) {
    ht_byte_set set = {{0}};
    ht_byte_set_add(&set, '\t', '\n');
    ht_byte_set_add(&set, '\r', '\r');
    ht_byte_set_add(&set, ' ', ' ');
    return ht_re_repeat(re, ht_re_bytes(re, &set), 0, most);
}

static ht_re containing(ht_regexes *re, const char *text) {
    return ht_re_concat(re, HT_RE_ALL, ht_re_concat(re, ht_re_text(re, text, strlen(text)), HT_RE_ALL));
}

/* Whether an end of one text begins the other. */
static bool overlaps(const char *first, const char *second) {
    const size_t n = strlen(first);
    for (size_t length = 1; length < n; length++)
        if (strncmp(first + n - length, second, length) == 0) return true;
    return false;
}

ht_re ht_response_until(ht_regexes *re, const char *mark, const char *const *others, size_t n_others,
                        ht_re not_before) {
    const ht_re end = ht_re_text(re, mark, strlen(mark));
    ht_re before = containing(re, mark);
    bool overlap = overlaps(mark, mark);
    for (size_t i = 0; i < n_others; i++) {
        before = ht_re_either(re, before, containing(re, others[i]));
        overlap = overlap || overlaps(others[i], mark);
    }
    before = ht_re_either(re, before, not_before);
    const ht_re text = ht_re_concat(re, ht_re_not(re, before), end);
    if (!overlap) return text;
    /* A text that overlaps the mark ends before it: only the whole text ends with a mark, no beginning of it. */
    ht_byte_set any = {{0}};
    ht_byte_set_add(&any, 0, 255);
    const ht_re more = ht_re_concat(re, ht_re_bytes(re, &any), HT_RE_ALL);
    ht_re later = ht_re_concat(re, ht_re_concat(re, HT_RE_ALL, end), more);
    for (size_t i = 0; i < n_others; i++)
        later = ht_re_either(
            re, later,
            ht_re_concat(re, ht_re_concat(re, HT_RE_ALL, ht_re_text(re, others[i], strlen(others[i]))), more));
    return ht_re_both(re, ht_re_concat(re, ht_re_not(re, not_before), end), ht_re_not(re, later));
}

ht_re ht_response_without(ht_regexes *re, const char *const *texts, size_t n, ht_re others) {
    for (size_t i = 0; i < n; i++) others = ht_re_either(re, others, containing(re, texts[i]));
    return ht_re_not(re, others);
}

void ht_rules_add_reasoning(ht_rules *r, const ht_reasoning_format *t) {
    if (!t || r->status) return;
    ht_regexes *re = r->re;
    bool has_text;
    const ht_symbol text = r->start[0], after = ht_rules_rule(r), in = ht_rules_rule(r), answer = ht_rules_rule(r);
    const ht_re blanks = ht_response_blanks(re, HT_BLANKS_MOST);
    const ht_symbol blank = ht_rules_lexeme(r, ht_re_without_empty(re, blanks));
    const ht_symbol open = ht_rules_lexeme(r, ht_re_concat(re, blanks, ht_re_text(re, t->open, strlen(t->open))));
    const ht_symbol reasoning = ht_rules_free_lexeme(r, ht_response_until(re, t->close, NULL, 0, HT_RE_NONE), false);
    ht_rules_add(r, after, &text, 1);
    ht_rules_add(r, after, (ht_symbol[]){blank, text}, 2);
    ht_rules_add(r, in, (ht_symbol[]){reasoning, after}, 2);
    ht_rules_add(r, answer, &text, 1);
    ht_rules_add(r, answer, (ht_symbol[]){open, in}, 2);
    r->start[HT_START_ANSWER] = answer;
    r->start[HT_START_IN_REASONING] = in;
    r->n_starts = HT_START_IN_REASONING + 1;
    ht_rules_finish(r, text, &has_text);
}
