/* Grammars: context-free ones beside all of their short texts, GBNF, and tokens: masks are exactly the tokens after which a text
 * can go on, whatever was forgotten meanwhile and whoever else asks. */
#include "grammar/automaton.h"
#include "grammar/grammar.h"
#include "support/scratch.h"
#include "support/short_texts.h"
#include "support/test.h"
#include "support/tiny_model.h"
#include "tokenizer/tokenizer.h"

#include <hearth/grammar.h>

#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint32_t seed;

static uint32_t draw(uint32_t n) {
    seed = seed * 1664525u + 1013904223u;
    return (seed >> 8) % n;
}

static ht_automaton *automaton_of(const char *text) {
    ht_rules *rules;
    ht_automaton *a = NULL;
    ht_error err = {0};
    if (ht_gbnf_parse(text, strlen(text), &rules, &err) || ht_automaton_new(rules, &a, &err))
        fail_msg("%s\n%s", text, err.message);
    return a;
}

typedef enum search_end { ENDS, HAS_NO_END, TOO_FAR } search_end;

/* Whether a text of the grammar can be found from here: breadth first, since depth first might go on for ever. Ends of tens of bytes are
 * behind more configurations than are looked at. */
static search_end find_end(ht_automaton *a, uint32_t configuration) {
    enum { MOST = 200000 };
    static uint32_t pending[MOST];
    static bool known[MOST];
    size_t n = 0;
    bool saw_all = true;
    memset(known, 0, sizeof known);
    pending[n++] = configuration;
    for (size_t i = 0; i < n; i++) {
        if (ht_automaton_may_end(a, pending[i])) return ENDS;
        for (int byte = 'a'; byte <= 'b'; byte++) {
            const char text = (char)byte;
            const uint32_t next = ht_automaton_feed(a, pending[i], &text, 1);
            if (!ht_automaton_is_live(a, next) || (next < MOST && known[next])) continue;
            saw_all = saw_all && next < MOST && n < MOST;
            if (next >= MOST || n == MOST) continue;
            known[next] = true;
            pending[n++] = next;
        }
    }
    return saw_all ? HAS_NO_END : TOO_FAR;
}

/* ---- beside all short texts ---- */

enum { RULES = 3, DEPTH = 3 };

/* A tree of alternatives is drawn twice from the same seed: once as text, and in each round as the set of its short texts. */
static uint64_t make(char *text, size_t size, const uint64_t rule[RULES], int depth) {
    uint64_t all;
    char inside[600] = "", more[600] = "";
    switch (draw(depth ? 8 : 4)) {
    case 0: snprintf(text, size, "\"a\""); return (uint64_t)1 << short_text_number("a", 1);
    case 1: snprintf(text, size, "[b]"); return (uint64_t)1 << short_text_number("b", 1);
    case 2:
    case 3: {
        const uint32_t which = draw(RULES);
        snprintf(text, size, "%s", (const char *[]){"root", "x", "y"}[which]);
        return rule[which];
    }
    case 4: {
        const uint64_t a = make(inside, sizeof inside, rule, depth - 1), b = make(more, sizeof more, rule, depth - 1);
        snprintf(text, size, "(%.280s | %.280s)", inside, more);
        return a | b;
    }
    case 5: {
        static const struct {
            const char *counts;
            uint32_t min, max;
        } repeats[] = {{"*", 0, UINT32_MAX}, {"+", 1, UINT32_MAX}, {"?", 0, 1},
                       {"{2}", 2, 2},        {"{1,3}", 1, 3},      {"{0,2}", 0, 2}};
        const uint32_t which = draw(6);
        all =
            short_texts_repeated(make(inside, sizeof inside, rule, depth - 1), repeats[which].min, repeats[which].max);
        snprintf(text, size, "(%.580s)%s", inside, repeats[which].counts);
        return all;
    }
    default: {
        const uint64_t a = make(inside, sizeof inside, rule, depth - 1), b = make(more, sizeof more, rule, depth - 1);
        snprintf(text, size, "(%.280s %.280s)", inside, more);
        return short_texts_joined(a, b);
    }
    }
}

UNIT_TEST(random_grammars) {
    int n_empty = 0, n_found = 0, n_far = 0, n_cases = test_cases(TEST_SLOW ? 200 : 400, 40000);
    for (int round = 0; round < n_cases; round++) {
        char text[RULES][600], all[2000];
        uint64_t set[RULES] = {0}, before[RULES];
        do { /* the least sets that are so */
            memcpy(before, set, sizeof set);
            seed = (uint32_t)round * 77 + 5;
            for (int i = 0; i < RULES; i++) set[i] = make(text[i], sizeof text[i], before, DEPTH);
        } while (memcmp(before, set, sizeof set) != 0);
        snprintf(all, sizeof all, "root ::= %s\nx ::= %s\ny ::= %s\n", text[0], text[1], text[2]);
        ht_rules *rules;
        ht_automaton *a;
        ht_error err = {0};
        const ht_status status = ht_gbnf_parse(all, strlen(all), &rules, &err);
        if (status) {
            if (status != HT_ERR_FORMAT || !strstr(err.message, "no text") || set[0])
                fail_msg("%s%s", all, err.message);
            n_empty++;
            continue;
        }
        if (ht_automaton_new(rules, &a, &err)) fail_msg("%s%s", all, err.message);
        for (int pass = 0; pass < 2; pass++) {
            for (int t = 0; t < SHORT_TEXTS; t++) {
                char of[SHORT_TEXT_LONGEST + 1], other[SHORT_TEXT_LONGEST + 1];
                const size_t n = short_text(t, of);
                const uint32_t c = ht_automaton_feed(a, a->start[0], of, n);
                assert_int_equal(ht_automaton_status(a, &err), HT_OK);
                if (ht_automaton_may_end(a, c) != (set[0] >> t & 1)) fail_msg("%s\"%s\" is read wrongly", all, of);
                bool has_more = false;
                for (int k = 0; k < SHORT_TEXTS; k++)
                    has_more = has_more || (set[0] >> k & 1 && short_text(k, other) >= n && !memcmp(of, other, n));
                if (has_more && !ht_automaton_is_live(a, c)) fail_msg("%s\"%s\" is refused", all, of);
                if (has_more || n > 2 || !ht_automaton_is_live(a, c)) continue;
                const search_end end = find_end(a, c);
                if (end == HAS_NO_END) fail_msg("%s\"%s\" has no end", all, of);
                n_found += end == ENDS;
                n_far += end == TOO_FAR;
            }
            assert_int_equal(ht_automaton_reset(a, &err), HT_OK);
        }
        ht_automaton_free(a);
    }
    assert_in_range(n_empty, 1, n_cases / 2);
    assert_in_range(n_found, 100 * n_far + 1, INT32_MAX);
}

/* ---- GBNF ---- */

static void reads(const char *grammar, const char *const *yes, const char *const *no) {
    ht_automaton *a = automaton_of(grammar);
    for (; *yes; yes++)
        if (!ht_automaton_may_end(a, ht_automaton_feed(a, a->start[0], *yes, strlen(*yes))))
            fail_msg("%s\ndoes not read \"%s\"", grammar, *yes);
    for (; *no; no++)
        if (ht_automaton_may_end(a, ht_automaton_feed(a, a->start[0], *no, strlen(*no))))
            fail_msg("%s\nreads \"%s\"", grammar, *no);
    ht_automaton_free(a);
}

#define TEXTS_OF(...) ((const char *[]){__VA_ARGS__, NULL})

UNIT_TEST(gbnf) {
    reads("# A comment\nroot ::= \"a\" # another\n  | \"b\" \n", TEXTS_OF("a"), TEXTS_OF("", "ab", "c"));
    reads("root ::= (\"a\" |\n \"b\")\n\n", TEXTS_OF("a", "b"), TEXTS_OF("", "ab"));
    reads("root ::= |\n \"a\"", TEXTS_OF("", "a"), TEXTS_OF("aa"));
    reads("root::=[a-c\\x41\\u00fc\\U0001F600\\n\\]^-]+", TEXTS_OF("abcA\xC3\xBC\xF0\x9F\x98\x80\n]^-"),
          TEXTS_OF("", "d"));
    reads("root ::= [^\"\\\\]{2}", TEXTS_OF("ab", "\xC3\xBC\n"), TEXTS_OF("a", "\"a", "\\\\"));
    reads("root ::= . .", TEXTS_OF("a\n", "\xE2\x82\xAC."), TEXTS_OF("a", "\xE2\x82"));
    reads("root ::= expr \";\"\nexpr ::= expr [-+] term | term\nterm ::= [0-9]+ | \"(\" expr \")\"",
          TEXTS_OF("1;", "1+(2-3)-45;", "((((1))));"), TEXTS_OF("1", "1+;", "(1;", "1)"));
    reads("root ::= a-b_1?\na-b_1 ::= \"(\" a-b_1* \")\"", TEXTS_OF("", "()", "(()(()))"), TEXTS_OF("(", "()()"));
    reads("root ::= x{2,3}\nx ::= \"a\" x | \"b\"", TEXTS_OF("bb", "abaab", "bbb"), TEXTS_OF("b", "bbbb", "a"));
    reads("root ::= s\ns ::= \"a\" s \"b\" | \"ab\" | s s", TEXTS_OF("ab", "aabbab", "aaabbb"),
          TEXTS_OF("", "a", "ba", "aab"));
    reads("root ::= \"\" x\nx ::= x \"a\" | \"\"", TEXTS_OF("", "a", "aaaa"), TEXTS_OF("b"));
    reads("root ::= x\r\nx ::= \"a\"\r\n", TEXTS_OF("a"), TEXTS_OF(""));
}

static void refuses(const char *text, ht_status status, const char *word) {
    ht_rules *rules;
    ht_error err = {0};
    const size_t n = strlen(text);
    char *exact = malloc(n + !n); /* without a NUL, so that sanitizers see its end */
    memcpy(exact, text, n);
    const ht_status got = ht_gbnf_parse(exact, n, &rules, &err);
    free(exact);
    if (got != status || rules) fail_msg("%s: status %d (%s)", text, got, err.message);
    if (!strstr(err.message, word)) fail_msg("\"%s\" does not say \"%s\"", err.message, word);
}

UNIT_TEST(refused_grammars) {
    refuses("", HT_ERR_FORMAT, "there is no rule `root`");
    refuses("root ::= x\n\n  y ::= \"a\"", HT_ERR_FORMAT, "line 1, column 10: there is no rule `x`");
    refuses("root ::= \"a\nx", HT_ERR_FORMAT, "ends within a literal");
    refuses("root ::= \"\\", HT_ERR_FORMAT, "there is no such escape");
    refuses("root ::= \"\\x1", HT_ERR_FORMAT, "hexadecimal digit is missing");
    refuses("root ::= [a", HT_ERR_FORMAT, "ends within a literal or a class");
    refuses("root ::= [b-a]", HT_ERR_FORMAT, "line 1, column 11: a range");
    refuses("root ::= (\"a\"", HT_ERR_FORMAT, "`(` without `)`");
    refuses("root ::= \"a\"{3,2}", HT_ERR_FORMAT, "counts are");
    refuses("root ::= \"a\"{20000}", HT_ERR_LIMIT, "a count of more than 10000");
    refuses("root ::= \"\\q\"", HT_ERR_FORMAT, "line 1, column 12: there is no such escape");
    refuses("root = \"a\"", HT_ERR_FORMAT, "`::=` is expected");
    refuses("root ::= \"a\" )", HT_ERR_FORMAT, "does not belong to a rule");
    refuses("root ::= <[1000]>", HT_ERR_UNSUPPORTED,
            "line 1, column 10: tokens in grammars are not supported: write the text");
    refuses("root ::= \"a\" <think>", HT_ERR_UNSUPPORTED, "in quotes, as \"<think>\"");
    refuses("root ::= (!<[5]>)*", HT_ERR_UNSUPPORTED, "line 1, column 11: tokens in grammars");
    refuses("root ::= \"a\" | !<think>", HT_ERR_UNSUPPORTED, "tokens in grammars");
    refuses("root ::= \"a\" !x", HT_ERR_FORMAT, "does not belong to a rule");
    refuses("root ::= \"a\"\nroot ::= \"b\"", HT_ERR_FORMAT, "line 2, column 1: this rule is already defined");
    refuses("root ::= \"a\" root", HT_ERR_FORMAT, "the grammar has no text");
    refuses("root ::= \"\\U00110000\"", HT_ERR_FORMAT, "no such code point");
    static char deep[4000];
    snprintf(deep, sizeof deep, "root ::= ");
    memset(deep + 9, '(', 1500);
    refuses(deep, HT_ERR_LIMIT, "nested too deeply");
    static char chain[40000]; /* each rule in the next */
    size_t n = (size_t)snprintf(chain, sizeof chain, "root ::= r0\n");
    for (int i = 0; i < 1000; i++)
        n += (size_t)snprintf(chain + n, sizeof chain - n, "r%d ::= \"(\" r%d \")\"\n", i, i + 1);
    snprintf(chain + n, sizeof chain - n, "r1000 ::= \"a\"");
    refuses(chain, HT_ERR_LIMIT, "nested too deeply");
}

/* Texts that go deep, and long ones, take a row for each step and nothing that grows with the depth. */
UNIT_TEST(depth) {
    enum { N = 20000 };
    ht_automaton *a = automaton_of("root ::= \"(\" root \")\" | list\nlist ::= \"a\" \",\" list | \"a\"");
    uint32_t c = a->start[0];
    for (int i = 0; i < N; i++) c = ht_automaton_feed(a, c, "(", 1);
    const uint32_t rows = a->kernels.n;
    for (int i = 0; i < N; i++) c = ht_automaton_feed(a, c, "a,", 2);
    assert_in_range(a->kernels.n - rows, 1, 10); /* the second element's row is the first one's */
    c = ht_automaton_feed(a, c, "a", 1);
    for (int i = 0; i < N; i++) c = ht_automaton_feed(a, c, ")", 1);
    assert_true(ht_automaton_may_end(a, c));
    assert_false(ht_automaton_is_live(a, ht_automaton_feed(a, c, ")", 1)));
    assert_int_equal(ht_automaton_status(a, NULL), HT_OK);
    ht_automaton_free(a);
}

/* Each byte has more ways to be read than the one before: an error comes before they take seconds. Ambiguity of the common kind is read. */
UNIT_TEST(ambiguous_grammars) {
    ht_automaton *a = automaton_of("root ::= s\ns ::= s? s? s? s? s? s? s? s? \"a\"+++++++++");
    uint32_t at = a->start[0];
    for (int i = 0; i < 4000 && !ht_automaton_status(a, NULL); i++) at = ht_automaton_feed(a, at, "a", 1);
    assert_fails(HT_ERR_LIMIT, "too ambiguous", ht_automaton_status, a);
    ht_automaton_free(a);
    a = automaton_of("root ::= e\ne ::= e \"+\" e | \"a\"");
    at = ht_automaton_feed(a, a->start[0], "a", 1);
    for (int i = 0; i < 200; i++) at = ht_automaton_feed(a, at, "+a", 2);
    assert_int_equal(ht_automaton_status(a, NULL), HT_OK);
    assert_true(ht_automaton_may_end(a, at));
    ht_automaton_free(a);
}

/* What is large takes memory in proportion: alternatives, literals, rules. */
UNIT_TEST(large_grammars) {
    enum { N = 3000, EACH = 40 };
    char *text = malloc(N * EACH + 100);
    for (int kind = 0; kind < 3; kind++) {
        size_t n = (size_t)sprintf(text, "root ::= %s", kind == 1 ? "\"" : "");
        for (int i = 0; i < N; i++)
            n += kind == 0   ? (size_t)sprintf(text + n, "%s\"%d\"", i ? " | " : "", i)
                 : kind == 1 ? (size_t)sprintf(text + n, "%d ", i)
                             : (size_t)sprintf(text + n, "%sr%d", i ? " | " : "", i);
        n += (size_t)sprintf(text + n, kind == 1 ? "\"" : "\n");
        for (int i = 0; i < N && kind == 2; i++) n += (size_t)sprintf(text + n, "r%d ::= \"%d\"\n", i, i);
        ht_automaton *a = automaton_of(text);
        assert_in_range(ht_automaton_bytes(a), N, 1000 * N);
        if (kind != 1)
            for (int i = 0; i < N + 2; i += 7) {
                char number[20];
                const int length = sprintf(number, "%d", i);
                const uint32_t end = ht_automaton_feed(a, a->start[0], number, (size_t)length);
                assert_int_equal(ht_automaton_may_end(a, end), i < N);
            }
        ht_automaton_free(a);
    }
    free(text);
}

/* ---- tokens ---- */

static const char json_grammar[] =
    "root ::= object\n"
    "value ::= object | array | string | number | (\"true\" | \"false\" | \"null\") ws\n"
    "object ::= \"{\" ws ( string \":\" ws value (\",\" ws string \":\" ws value)* )? \"}\" ws\n"
    "array ::= \"[\" ws ( value (\",\" ws value)* )? \"]\" ws\n"
    "string ::= \"\\\"\" ( [^\"\\\\\\x7F\\x00-\\x1F] | \"\\\\\" ([\"\\\\bfnrt] | \"u\" [0-9a-fA-F]{4}) )* \"\\\"\" ws\n"
    "number ::= (\"-\"? ([0-9] | [1-9] [0-9]{0,15})) (\".\" [0-9]+)? ([eE] [-+]? [0-9] [1-9]{0,15})? ws\n"
    "ws ::= | \" \" | \"\\n\" [ \\t]{0,20}\n";

static bool accepts(ht_matcher *m, int32_t token) {
    bool allowed;
    assert_int_equal(ht_matcher_accept(m, token, &allowed, NULL), HT_OK);
    return allowed;
}

static ht_ending ending_of(ht_matcher *m) {
    ht_ending ending;
    assert_int_equal(ht_matcher_ending(m, &ending, NULL), HT_OK);
    return ending;
}

/* A random walk over the tokens of a vocabulary: each mask has exactly the tokens after which a copy of the automaton goes on. */
static void walk(const ht_tokenizer *t, const char *grammar, const int32_t *ending, int n_ending, int steps, int stride,
                 size_t budget) {
    ht_token_trie *trie;
    ht_rules *rules;
    ht_grammar *g;
    ht_matcher *m;
    ht_error err = {0};
    const uint32_t *mask;
    if (ht_token_trie_new(t, &trie, &err) || ht_gbnf_parse(grammar, strlen(grammar), &rules, &err) ||
        ht_grammar_new(rules, trie, ending, n_ending, NULL, &g, &err) || ht_matcher_new(g, &m, &err))
        fail_msg("%s", err.message);
    if (budget) ht_grammar_set_budget(g, budget);
    ht_automaton *a = automaton_of(grammar);
    uint32_t at = a->start[0];
    for (int step = 0; step < steps; step++) {
        assert_works(ht_matcher_mask, m, &mask);
        int32_t n_allowed = 0, chosen = -1;
        for (int32_t id = 0; id < trie->n_tokens; id++) {
            const bool allowed = mask[id >> 5] >> (id & 31) & 1;
            if (allowed && draw((uint32_t)++n_allowed) == 0) chosen = id;
            if (draw((uint32_t)stride)) continue;
            size_t n;
            const char *text = ht_token_trie_text(trie, id, &n);
            bool expected = n && ht_automaton_is_live(a, ht_automaton_feed(a, at, text, n));
            for (int i = 0; i < n_ending; i++)
                if (id == ending[i]) expected = ht_automaton_may_end(a, at);
            if (allowed != expected)
                fail_msg("step %d: token %d \"%.*s\" is %s", step, id, (int)n, text, allowed ? "allowed" : "refused");
        }
        assert_true(n_allowed > 0);
        size_t n_threads;
        ht_automaton_threads(a, at, &n_threads);
        assert_int_equal(ending_of(m), !ht_automaton_may_end(a, at) ? HT_ENDING_NOT
                                       : n_threads                  ? HT_ENDING_MAY
                                                                    : HT_ENDING_MUST);
        assert_true(accepts(m, chosen));
        if (chosen == ending[0]) {
            assert_int_equal(ht_matcher_truncate(m, 0, &err), HT_OK);
            at = a->start[0];
            continue;
        }
        size_t n;
        const char *text = ht_token_trie_text(trie, chosen, &n);
        at = ht_automaton_feed(a, at, text, n);
    }
    ht_automaton_free(a);
    ht_matcher_free(m);
    ht_grammar_free(g);
    ht_token_trie_free(trie);
}

UNIT_TEST(masks) {
    static const char *const grammars[] = {
        json_grammar,
        "root ::= expr \"\\n\"\nexpr ::= expr [-+] term | term\nterm ::= [a-z]+ (\"(\" (expr (\",\" expr)*)? \")\")?",
        "root ::= .{0,40} \"end\"", "root ::= [a-e]{3} x\nx ::= \"\" | [^a]+ x \"!\"",
        "root ::= \"\\xE4\" | \"the \" (\"quick\" | \"brown\")+ | [\\u00e0-\\u0fff]*"};
    ht_model *m = tiny_load(&(tiny_options){0});
    const int32_t ending[] = {TINY_EOS, TINY_IM_END};
    for (size_t i = 0; i < sizeof grammars / sizeof *grammars; i++)
        for (int round = 0; round < test_cases(3, 100); round++) {
            seed = (uint32_t)round;
            walk(ht_model_tokenizer(m), grammars[i], ending, 2, 60, 1, round == 1 ? 1 : 0);
        }
    ht_model_free(m);
}

UNIT_TEST(masks_of_real_vocabularies) {
    static const char *const names[] = {"smollm2-135m.gguf", "gemma3-270m.gguf", "qwen2.5-coder-0.5b.gguf"};
    /* Lexemes of any characters, or of letters alone, that end within tokens where others begin. */
    static const char *const grammars[] = {
        json_grammar, "root ::= [^\"\\\\]{1,3} tail\ntail ::= \"end\" tail | [a-z]{2,6} \"!\" root | \".\"",
        "root ::= word (\" \" word)*\nword ::= [a-z]{1,4} | [A-Za-z0-9]+ \"-\" word | [a-zA-Z0-9]{5,9} \"ing\"",
        "root ::= [a-z]{1,7} [0-9]{2,3} root | [a-f0-9]{8} \"-\" root | \"!\""};
    const char *folder = getenv("HEARTH_TEST_MODELS");
    if (!folder) skip();
    for (int i = 0; i < 3; i++) {
        char path[600];
        ht_tokenizer *t;
        snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        assert_works(ht_tokenizer_load, path, &t);
        const int32_t eos = ht_tokenizer_eos(t);
        seed = (uint32_t)i;
        for (size_t k = 0; k < sizeof grammars / sizeof *grammars; k++)
            walk(t, grammars[k], &eos, 1, test_cases(k ? 12 : 30, 500), 20, i == 1 ? 1 : 0);
        ht_tokenizer_free(t);
    }
}

UNIT_TEST(matchers) {
    ht_model *model = tiny_load(&(tiny_options){0});
    ht_grammar *g;
    ht_matcher *m;
    ht_error err = {0};
    const uint32_t *mask;
    const char pattern[] = "ab*|c";
    assert_int_equal(ht_grammar_from_regex(model, pattern, strlen(pattern), &g, &err), HT_OK);
    assert_int_equal(ht_matcher_new(g, &m, &err), HT_OK);
    ht_grammar_free(g); /* the matcher holds it */
    const ht_tokenizer *t = ht_model_tokenizer(model);
    const int32_t a = ht_tokenizer_find(t, "a"), b = ht_tokenizer_find(t, "b"), c = ht_tokenizer_find(t, "c");
    assert_int_equal(ht_matcher_mask(m, &mask, &err), HT_OK);
    assert_true(mask[a >> 5] >> (a & 31) & 1 && mask[c >> 5] >> (c & 31) & 1);
    assert_false(mask[b >> 5] >> (b & 31) & 1 || mask[TINY_EOS >> 5] >> (TINY_EOS & 31) & 1);
    assert_false(accepts(m, b) || accepts(m, TINY_EOS) || accepts(m, -1) || accepts(m, TINY_VOCAB));
    for (int i = 0; i < 200; i++) assert_true(accepts(m, i ? b : a));
    assert_int_equal(ht_matcher_length(m), 200);
    assert_int_equal(ending_of(m), HT_ENDING_MAY);
    assert_int_equal(ht_matcher_truncate(m, 201, &err), HT_ERR_ARGUMENT);
    assert_int_equal(ht_matcher_truncate(m, 0, &err), HT_OK);
    assert_true(accepts(m, c));
    assert_true(accepts(m, TINY_EOS));
    assert_int_equal(ht_matcher_length(m), 1);
    assert_int_equal(ending_of(m), HT_ENDING_MUST);
    ht_matcher_free(m);
    assert_int_equal(ht_grammar_from_regex(model, "a(?!.*)", 7, &g, &err), HT_ERR_FORMAT);
    assert_null(g);
    assert_non_null(strstr(err.message, "matches no text"));
    assert_int_equal(ht_grammar_from_gbnf(model, "root ::= ", 9, &g, &err), HT_OK); /* the empty text alone */
    assert_int_equal(ht_matcher_new(g, &m, &err), HT_OK);
    assert_int_equal(ht_matcher_mask(m, &mask, &err), HT_OK);
    for (int32_t id = 0; id < TINY_VOCAB; id++)
        assert_int_equal(mask[id >> 5] >> (id & 31) & 1, id == TINY_EOS || id == TINY_IM_END);
    ht_matcher_free(m);
    ht_grammar_free(g);
    ht_model_free(model);
}

/* More than the budget is forgotten now and then, not at each token, and the text goes on. */
UNIT_TEST(forgets_now_and_then) {
    enum { TOKENS = 3000 };
    ht_model *model = tiny_load(&(tiny_options){0});
    ht_grammar *g;
    ht_matcher *m;
    const char nested[] = "root ::= \"(\" root \")\" | \"x\"";
    assert_int_equal(ht_grammar_from_gbnf(model, nested, strlen(nested), &g, NULL), HT_OK);
    assert_int_equal(ht_matcher_new(g, &m, NULL), HT_OK);
    ht_grammar_set_budget(g, 20000);
    const int32_t open = ht_tokenizer_find(ht_model_tokenizer(model), "(");
    for (int i = 0; i < TOKENS; i++) {
        const uint32_t *mask;
        assert_int_equal(ht_matcher_mask(m, &mask, NULL), HT_OK);
        assert_true(mask[open >> 5] >> (open & 31) & 1);
        assert_true(accepts(m, open));
    }
    ht_mask_places places;
    ht_matcher_missing(m, NULL, 0, &places);
    assert_in_range(places.generation, 2, TOKENS / 10);
    ht_matcher_free(m);
    ht_grammar_free(g);
    ht_model_free(model);
}

/* ---- threads ---- */

typedef struct worker {
    ht_grammar *g;
    uint32_t seed;
    uint64_t digest;
} worker;

static void *work(void *user) {
    worker *w = user;
    ht_matcher *m;
    uint32_t random = w->seed;
    if (ht_matcher_new(w->g, &m, NULL)) return NULL;
    for (int step = 0; step < 200; step++) {
        const uint32_t *mask;
        bool allowed;
        if (ht_matcher_mask(m, &mask, NULL)) break;
        int32_t chosen = -1;
        uint32_t n = 0;
        for (int32_t id = 0; id < TINY_VOCAB; id++) {
            if (!(mask[id >> 5] >> (id & 31) & 1)) continue;
            random = random * 1664525u + 1013904223u;
            if ((random >> 8) % ++n == 0) chosen = id;
        }
        w->digest = w->digest * 31 + n * 1000 + (uint64_t)chosen;
        if (ht_matcher_accept(m, chosen, &allowed, NULL) || !allowed) break;
        if (chosen == TINY_EOS || chosen == TINY_IM_END) ht_matcher_truncate(m, 0, NULL);
    }
    ht_matcher_free(m);
    return NULL;
}

UNIT_TEST(threads) {
    enum { N = 4 };
    ht_model *model = tiny_load(&(tiny_options){0});
    ht_grammar *g;
    worker alone[N], together[N];
    pthread_t thread[N];
    assert_int_equal(ht_grammar_from_gbnf(model, json_grammar, strlen(json_grammar), &g, NULL), HT_OK);
    for (int i = 0; i < N; i++) {
        alone[i] = together[i] = (worker){.g = g, .seed = (uint32_t)i};
        work(&alone[i]);
        assert_true(alone[i].digest != 0);
    }
    ht_grammar_set_budget(g, 200000); /* so that what one has found is forgotten under the others */
    for (int i = 0; i < N; i++) assert_int_equal(pthread_create(&thread[i], NULL, work, &together[i]), 0);
    for (int i = 0; i < N; i++) pthread_join(thread[i], NULL);
    for (int i = 0; i < N; i++) assert_true(alone[i].digest == together[i].digest);
    ht_grammar_free(g);
    ht_model_free(model);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_grammars),
        cmocka_unit_test(gbnf),
        cmocka_unit_test(refused_grammars),
        cmocka_unit_test(depth),
        cmocka_unit_test(ambiguous_grammars),
        cmocka_unit_test(large_grammars),
        cmocka_unit_test_setup_teardown(masks, scratch_start, scratch_finish),
        cmocka_unit_test(masks_of_real_vocabularies),
        cmocka_unit_test_setup_teardown(matchers, scratch_start, scratch_finish),
        cmocka_unit_test_setup_teardown(forgets_now_and_then, scratch_start, scratch_finish),
        cmocka_unit_test_setup_teardown(threads, scratch_start, scratch_finish),
    };
    if (test_cases(TEST_WATCHES_THREADS, 0)) cmocka_set_test_filter("threads"); /* the others start none */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
