/* What answers with reasoning may be, told by looking at their characters; tokens and random walks of tests that compare masks with it. */
#ifndef TESTS_SUPPORT_ANSWERS_H
#define TESTS_SUPPORT_ANSWERS_H

#include "chat/response_rules.h"
#include "grammar/grammar.h"
#include "support/test.h"
#include "support/tiny_model.h"
#include "tokenizer/tokenizer.h"

#include <string.h>

/* Whether a text begins one that may be, and whether it is one. */
typedef struct verdict {
    bool begins, is_whole;
} verdict;

static inline verdict or_else(verdict a, verdict b) {
    return (verdict){a.begins || b.begins, a.is_whole || b.is_whole};
}

static inline bool is_blank(char c) { return c && strchr(" \t\r\n", c); }

/* Of n bytes without reasoning; `of` is the test's. */
typedef verdict judge(const void *of, const char *s, size_t n);

static inline verdict is_in_thought(judge *one, const void *of, const char *s, size_t n) {
    static const char mark[] = "</think>";
    size_t at = 0;
    while (at + 8 <= n && memcmp(s + at, mark, 8) != 0) at++;
    if (at + 8 > n) return (verdict){.begins = true};
    verdict v = {false, false};
    for (size_t from = at + 8, blanks = 0; blanks <= HT_BLANKS_MOST; blanks++) {
        v = or_else(v, one(of, s + from + blanks, n - from - blanks));
        if (from + blanks == n || !is_blank(s[from + blanks])) break;
    }
    return v;
}

static inline verdict is_answer(judge *one, const void *of, const char *s, size_t n) {
    verdict v = one(of, s, n);
    for (size_t blanks = 0; blanks <= n && blanks <= HT_BLANKS_MOST; blanks++) {
        const size_t left = n - blanks, length = left < 7 ? left : 7;
        if (memcmp(s + blanks, "<think>", length) == 0)
            v = or_else(v, length == 7 ? is_in_thought(one, of, s + blanks + 7, left - 7) : (verdict){.begins = true});
        if (blanks < n && !is_blank(s[blanks])) break;
    }
    return v;
}

static inline verdict judge_from(ht_grammar_start start, judge *one, const void *of, const char *s, size_t n) {
    return start == HT_START_TEXT     ? one(of, s, n)
           : start == HT_START_ANSWER ? is_answer(one, of, s, n)
                                      : is_in_thought(one, of, s, n);
}

typedef struct token {
    char text[32];
    size_t n;
    bool is_mark_of_calls; /* which the grammar of texts does not know */
} token;

/* The tokens of a tiny model: special ones have a text if it is one of `marks`, up to NULL. */
static inline void find_tokens(const ht_tokenizer *t, const char *const *marks, token tokens[TINY_VOCAB]) {
    for (int32_t i = 0; i < TINY_VOCAB; i++) {
        char *bytes = NULL;
        tokens[i] = (token){.n = 0};
        if (ht_tokenizer_is_special(t, i)) {
            const char *piece = ht_tokenizer_piece(t, i);
            for (const char *const *mark = marks; mark && *mark; mark++)
                if (strcmp(piece, *mark) == 0) tokens[i].n = strlen(piece);
            memcpy(tokens[i].text, piece, tokens[i].n);
            tokens[i].is_mark_of_calls = tokens[i].n && !strstr(piece, "think");
            continue;
        }
        assert_int_equal(ht_tokenizer_token_bytes(t, i, &bytes, &tokens[i].n, NULL), HT_OK);
        assert_true(tokens[i].n <= sizeof tokens[i].text);
        memcpy(tokens[i].text, bytes, tokens[i].n);
        free(bytes);
    }
}

static inline uint64_t draw(uint64_t *random) {
    *random = *random * 6364136223846793005u + 1442695040888963407u;
    return *random >> 33;
}

/* How often a grammar has forgotten everything. */
static inline uint64_t times_forgotten(ht_grammar *g) {
    ht_matcher *m;
    ht_mask_places places;
    ht_grammar_set_budget(g, (size_t)1 << 40);
    assert_int_equal(ht_matcher_new(g, &m, NULL), HT_OK);
    ht_matcher_missing(m, NULL, 0, &places);
    ht_matcher_free(m);
    return places.generation;
}

#endif
