/* Answers that are the text of a grammar, or calls or such a text: exactly the tokens with which one of both goes on, from every beginning, where
 * marks are tokens and where they are text, with tokens that are taken back and grammars that forget. */
#include "chat/conversation.h"
#include "chat/response_rules.h"
#include "grammar/grammar.h"
#include "models/model.h"
#include "support/chat.h"
#include "support/scratch.h"
#include "support/test.h"
#include "support/tiny_model.h"
#include "tokenizer/tokenizer.h"

#include <stdio.h>
#include <string.h>

/* A format of calls, and the texts that are allowed beside them, of which some begin as a call does. In `inside` ~ is white space. */
typedef struct format {
    const char *source, *open, *inside; /* `open` NULL: there are no calls */
    bool is_bare;
    const char *text[16], *special[6], *words[16];
} format;

#define SPACE "\xC4\xA0" /* in a token */
#define LINE  "\xC4\x8A"

static const format formats[] = {
    {"<think><tool_call>",
     "<tool_call>",
     "~{~\"name\"~:~\"a\"~,~\"arguments\"~:~{~}~}~</tool_call>",
     false,
     {"", "yes", "no<tool_call>x", "<tool_call>yes", "<tool_calm", "<", " y", "\t<tool", "{\"name\": \"a\"}",
      "\n<tool_call>", "y<tool_call>{\"name\": \"a\", \"arguments\": {}}</tool_call>"},
     {"<tool_call>", "</tool_call>", "<think>", "</think>"},
     {"<tool_call>", "k></think>" LINE "<", "l_call>", "</think>yes", "nk>" SPACE "yes", "<tool",
      "{\"name\":" SPACE "\"a", "\"," SPACE "\"argu", "ments\":" SPACE "{}}", "s<tool_c", "</tool"}},
    {"<think><|python_tag|>",
     "<|python_tag|>",
     "~{~\"name\"~:~\"a\"~,~\"parameters\"~:~{~}~}",
     true,
     {"", "yes", "{", "{\"name\": \"ab\"", "{\"name\": \"a\", \"x\": 1}", "{\"name\": \"a", "{\"name\":  1}",
      "{\"parameters\": {}}", " {\"name\"", "{\n\"name\"", "\t{", "<|python_tag|>z", "[{\"name\": \"a\"", "<|python",
      "{\"name\":\"a\",\"parameters\":{}}"},
     {"<|python_tag|>", "<think>", "</think>"},
     {"</think>", "nk>" SPACE "{\"", "{\"name\":" SPACE "\"a", "\",", SPACE "\"para", "meters\":" SPACE "{}}", "b\"",
      "\"" SPACE "b", "<|python_tag|>{", "name\"", "ython_tag|>"}},
    {"<think>",
     NULL,
     NULL,
     false,
     {"", "yes", "no", " ye", " y"},
     {"<think>", "</think>"},
     {"k></think>y", "</think>yes", "</think>" LINE LINE, "ink>n", "nk>" SPACE "yes", "<think>a</think>no", "es"}},
};
enum { N_FORMATS = sizeof formats / sizeof *formats };

/* ---- what an answer may be, told by looking at its characters ---- */

/* Whether a text begins one that may be, and whether it is one. */
typedef struct verdict {
    bool begins, is_whole;
} verdict;

static verdict or_else(verdict a, verdict b) { return (verdict){a.begins || b.begins, a.is_whole || b.is_whole}; }

static bool is_blank(char c) { return c && strchr(" \t\r\n", c); }

static verdict is_pattern(const char *p, const char *s, size_t n);

/* A space, or the end of a line and what indents the next, or nothing. */
static verdict is_behind_space(const char *p, const char *s, size_t n) {
    verdict v = is_pattern(p, s, n);
    if (n && *s == ' ') v = or_else(v, is_pattern(p, s + 1, n - 1));
    if (!n || *s != '\n') return v;
    const char indent = n > 1 && s[1] == '\t' ? '\t' : ' ';
    for (size_t at = 1; at <= n && at <= (indent == ' ' ? 65u : 17u); at++) {
        v = or_else(v, is_pattern(p, s + at, n - at));
        if (at == n || s[at] != indent) break;
    }
    return v;
}

static verdict is_pattern(const char *p, const char *s, size_t n) {
    if (*p == '~') return is_behind_space(p + 1, s, n);
    if (!n || !*p) return (verdict){.begins = !n, .is_whole = !n && !*p};
    return *p == *s ? is_pattern(p + 1, s + 1, n - 1) : (verdict){false, false};
}

static verdict is_call(const format *of, const char *s, size_t n) {
    verdict v = {false, false};
    const size_t n_open = strlen(of->open);
    for (size_t blanks = 0; blanks <= n && blanks <= HT_BLANKS_MOST; blanks++) {
        const char *at = s + blanks;
        const size_t left = n - blanks;
        if (left < n_open)
            v.begins = v.begins || memcmp(at, of->open, left) == 0;
        else if (memcmp(at, of->open, n_open) == 0)
            v = or_else(v, is_pattern(of->inside, at + n_open, left - n_open));
        if (of->is_bare) v = or_else(v, is_pattern(of->inside, at, left));
        if (blanks < n && !is_blank(*at)) break;
    }
    return v;
}

/* Whether the text cannot but be a call: it has the mark, or the name of the tool. */
static bool has_begun_a_call(const format *of, const char *text) {
    while (is_blank(*text)) text++;
    if (!of->open) return false;
    if (strncmp(text, of->open, strlen(of->open)) == 0) return true;
    for (size_t n = 1; of->is_bare && n <= strlen(text); n++)
        if (is_pattern("~{~\"name\"~:~\"a\"", text, n).is_whole) return true;
    return false;
}

static verdict is_text(const format *of, const char *s, size_t n) {
    verdict v = {false, false};
    for (int i = 0; of->text[i]; i++) {
        const size_t length = strlen(of->text[i]);
        if (has_begun_a_call(of, of->text[i]) || n > length || memcmp(s, of->text[i], n) != 0) continue;
        v.begins = true;
        v.is_whole = v.is_whole || n == length;
    }
    return v;
}

typedef verdict judge(const format *of, const char *s, size_t n);

static verdict is_in_thought(judge *one, const format *of, const char *s, size_t n) {
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

static verdict is_answer(judge *one, const format *of, const char *s, size_t n) {
    verdict v = one(of, s, n);
    for (size_t blanks = 0; blanks <= n && blanks <= HT_BLANKS_MOST; blanks++) {
        const size_t left = n - blanks, length = left < 7 ? left : 7;
        if (memcmp(s + blanks, "<think>", length) == 0)
            v = or_else(v, length == 7 ? is_in_thought(one, of, s + blanks + 7, left - 7) : (verdict){.begins = true});
        if (blanks < n && !is_blank(s[blanks])) break;
    }
    return v;
}

static verdict judge_from(ht_grammar_start start, judge *one, const format *of, const char *s, size_t n) {
    return start == HT_START_TEXT     ? one(of, s, n)
           : start == HT_START_ANSWER ? is_answer(one, of, s, n)
                                      : is_in_thought(one, of, s, n);
}

/* ---- the grammars ---- */

static ht_model *load(const format *of, bool special) {
    static char source[200];
    snprintf(source, sizeof source, "{%% for m in messages %%}{{ m.content }}{%% endfor %%}{# %s #}", of->source);
    return tiny_load(
        &(tiny_options){.chat_template = source, .special = special ? of->special : NULL, .words = of->words});
}

static ht_grammar *texts_of(ht_model *m, const format *of) {
    ht_text pattern = {0};
    for (int i = 0; of->text[i]; i++) {
        if (i) ht_text_append_str(&pattern, "|");
        for (const char *at = of->text[i]; *at; at++)
            ht_text_printf(&pattern, strchr("\\^$.*+?()[]{}|/", *at) ? "\\%c" : "%c", *at);
    }
    ht_grammar *g = tiny_regex(m, pattern.data);
    ht_text_discard(&pattern);
    return g;
}

static ht_grammar *calls_of(ht_model *m) {
    static const char tools[] = "[{\"name\": \"a\"}]";
    ht_chat *chat = test_chat((const test_message[]){{"user", "hello"}}, 1);
    ht_grammar *g;
    assert_int_equal(ht_chat_set_tools(chat, tools, strlen(tools), NULL), HT_OK);
    assert_int_equal(ht_chat_set_tool_choice(chat, HT_TOOL_CHOICE_AUTO, NULL, false, NULL), HT_OK);
    assert_int_equal(ht_tool_cache_find(m, chat, true, &g, NULL), HT_OK);
    assert_non_null(g);
    ht_chat_free(chat);
    return g;
}

/* ---- every token behind random answers ---- */

typedef struct token {
    char text[32];
    size_t n;
    bool is_mark_of_calls; /* which the grammar of texts does not know */
} token;

/* The tokens of a tiny model: special ones have a text if it is one of `marks`, up to NULL. */
static void find_tokens(const ht_tokenizer *t, const char *const *marks, token tokens[TINY_VOCAB]) {
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

static uint64_t draw(uint64_t *random) {
    *random = *random * 6364136223846793005u + 1442695040888963407u;
    return *random >> 33;
}

/* How often a grammar has forgotten everything. */
static uint64_t times_forgotten(ht_grammar *g) {
    ht_matcher *m;
    ht_mask_places places;
    ht_grammar_set_budget(g, (size_t)1 << 40);
    assert_int_equal(ht_matcher_new(g, &m, NULL), HT_OK);
    ht_matcher_missing(m, NULL, 0, &places);
    ht_matcher_free(m);
    return places.generation;
}

static token tokens[TINY_VOCAB];

enum { LONGEST = 500 };

typedef struct walk {
    const format *of;
    ht_grammar_start start;
    ht_answer_matcher *matcher;
    char so_far[LONGEST];
    size_t n, end[64]; /* of its text before each token */
    int n_calls, n_texts, n_forced;
} walk;

static verdict judge_call(const walk *w, const char *s, size_t n) {
    return w->of->open ? judge_from(w->start, is_call, w->of, s, n) : (verdict){false, false};
}

/* Where the token may come; what has no text, where any character may. */
static bool is_allowed(const walk *w, int32_t id) {
    const token *t = &tokens[id];
    char text[LONGEST + 32];
    memcpy(text, w->so_far, w->n);
    const bool has_text = t->n && !t->is_mark_of_calls;
    memcpy(text + w->n, has_text ? t->text : "\1", has_text ? t->n : 1);
    const size_t n = w->n + (has_text ? t->n : 1);
    if (judge_from(w->start, is_text, w->of, text, n).begins) return true;
    if (t->n) memcpy(text + w->n, t->text, t->n);
    return judge_call(w, text, w->n + (t->n ? t->n : 1)).begins;
}

static verdict judge_both(const walk *w, const char *text, size_t n) {
    return or_else(judge_call(w, text, n), judge_from(w->start, is_text, w->of, text, n));
}

/* Every answer goes on with what is forced. */
static int check_forced(walk *w) {
    char text[LONGEST + 16], forced[16];
    size_t n;
    assert_int_equal(ht_answer_matcher_forced(w->matcher, forced, sizeof forced, &n, NULL), HT_OK);
    memcpy(text, w->so_far, w->n);
    for (size_t i = 0; i < n; i++) {
        assert_false(judge_both(w, text, w->n + i).is_whole);
        for (int c = 1; c < 256; c++) {
            text[w->n + i] = (char)c;
            if (c != (unsigned char)forced[i]) assert_false(judge_both(w, text, w->n + i + 1).begins);
        }
        text[w->n + i] = forced[i];
        assert_true(judge_both(w, text, w->n + i + 1).begins);
    }
    return n > 0;
}

/* Finds masks ahead, which are then looked at; a grammar that forgets just then has none of them. */
static void find_ahead(walk *w) {
    ht_answer_places places;
    ht_answer_matcher_missing(w->matcher, NULL, 0, &places);
    for (int i = 0; i < places.n; i++)
        for (int k = 0; k < places.of[i].n; k++) ht_grammar_find_mask(&places.of[i], k);
}

/* Checks what is said of all tokens; the mask, until the next call. */
static const uint32_t *check(walk *w) {
    const uint32_t *mask;
    ht_ending ending;
    const verdict call = judge_call(w, w->so_far, w->n), text = judge_from(w->start, is_text, w->of, w->so_far, w->n),
                  now = or_else(call, text);
    bool goes_on = false;
    if (w->n % 2) find_ahead(w);
    assert_int_equal(ht_answer_matcher_mask(w->matcher, &mask, NULL), HT_OK);
    for (int32_t i = 0; i < TINY_VOCAB; i++) {
        const bool is_end = i == TINY_EOS || i == TINY_IM_END, expected = is_end ? now.is_whole : is_allowed(w, i);
        if ((mask[i >> 5] >> (i & 31) & 1) != expected)
            fail_msg("%s, start %d: \"%.*s\", then token %d \"%.*s\": expected %d", w->of->source, (int)w->start,
                     (int)w->n, w->so_far, (int)i, (int)tokens[i].n, tokens[i].text, expected);
        goes_on = goes_on || (expected && !is_end);
    }
    assert_int_equal(ht_answer_matcher_ending(w->matcher, &ending, NULL), HT_OK);
    assert_int_equal(ending, !now.is_whole ? HT_ENDING_NOT : goes_on ? HT_ENDING_MAY : HT_ENDING_MUST);
    assert_int_equal(ht_answer_matcher_is_text(w->matcher, ht_answer_matcher_length(w->matcher)),
                     w->of->open && !call.begins);
    w->n_forced += check_forced(w);
    w->n_calls += call.is_whole;
    w->n_texts += text.is_whole;
    return mask;
}

/* A token that is allowed, or for a change any. */
static int32_t choose(const uint32_t *mask, uint64_t *random) {
    int32_t id = (int32_t)(draw(random) % TINY_VOCAB);
    if (draw(random) % 8 == 0) return id;
    /* The merged ones and the words, which bring it forward, rather than bytes. */
    for (int tries = 0; tries < 40; tries++) {
        id = draw(random) % 2 ? 256 + (int32_t)(draw(random) % (TINY_VOCAB - 256))
                              : (int32_t)(draw(random) % TINY_VOCAB);
        if (mask[id >> 5] >> (id & 31) & 1) return id;
    }
    while (!(mask[id >> 5] >> (id & 31) & 1)) id = (id + 1) % TINY_VOCAB;
    return id;
}

static void step(walk *w, uint64_t *random) {
    const int32_t id = choose(check(w), random);
    const token *t = &tokens[id];
    const bool is_end = id == TINY_EOS || id == TINY_IM_END;
    bool allowed;
    const size_t before = ht_answer_matcher_length(w->matcher);
    /* A mark of calls in a thought is a text to one grammar and none to the other: half a mark before it would be two things. */
    if (t->is_mark_of_calls &&
        judge_from(w->start, is_text, w->of, strcat(memcpy((char[LONGEST + 2]){0}, w->so_far, w->n), "\1"), w->n + 1)
            .begins)
        return;
    const bool expected = is_end || is_allowed(w, id);
    assert_int_equal(ht_answer_matcher_accept(w->matcher, id, &allowed, NULL), HT_OK);
    if (!is_end) assert_int_equal(allowed, expected);
    assert_int_equal(ht_answer_matcher_length(w->matcher), before + (allowed && !is_end));
    if (!allowed || is_end) return;
    w->end[before] = w->n;
    memcpy(w->so_far + w->n, t->text, t->n);
    w->n += t->n;
    if (draw(random) % 4 == 0) { /* guesses that were wrong, mostly few */
        const size_t few = draw(random) % 3,
                     kept = draw(random) % 4 ? before + 1 - few % (before + 2) : draw(random) % (before + 2);
        ht_answer_matcher_truncate(w->matcher, kept);
        if (kept <= before) w->n = w->end[kept];
    }
}

UNIT_TEST(masks_are_exact) {
    uint64_t random = 11;
    for (int i = 0; i < 2 * N_FORMATS; i++) {
        const format *of = &formats[i / 2];
        const bool special = i % 2;
        ht_model *m = load(of, special);
        ht_grammar *texts = texts_of(m, of), *calls = of->open ? calls_of(m) : NULL;
        int n_calls = 0, n_texts = 0, n_forced = 0;
        find_tokens(m->tokenizer, special ? of->special : NULL, tokens);
        for (int round = 0; round < test_cases(TEST_SLOW ? 20 : 40, 3000); round++) {
            walk w = {.of = of, .start = (ht_grammar_start)(round % 3)};
            assert_int_equal(ht_answer_matcher_new(texts, calls, w.start, &w.matcher, NULL), HT_OK);
            for (int k = 0; k < 40 && w.n + 64 < sizeof w.so_far; k++) {
                step(&w, &random);
                if (draw(&random) % 60 == 0) ht_grammar_set_budget(calls && draw(&random) % 2 ? calls : texts, 1);
            }
            (void)check(&w);
            n_calls += w.n_calls;
            n_texts += w.n_texts;
            n_forced += w.n_forced;
            ht_answer_matcher_free(w.matcher);
        }
        if ((calls && (n_calls < 20 || n_forced < 20)) || n_texts < 20)
            fail_msg("%s: %d calls, %d texts, %d forced", of->source, n_calls, n_texts, n_forced);
        assert_true(times_forgotten(texts) > 0 && (!calls || times_forgotten(calls) > 0));
        ht_grammar_free(texts);
        ht_grammar_free(calls);
        ht_model_free(m);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(masks_are_exact, scratch_start, scratch_finish),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
