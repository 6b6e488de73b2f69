/* Grammars of answers behind thoughts: exactly the tokens with which some answer goes on, in a thought, at its mark and behind it;
 * and whole answers, alone, with guesses and in an engine that is short of memory. */
#include "chat/reasoning_rules.h"
#include "generate/generation.h"
#include "models/model.h"
#include "support/chat.h"
#include "support/options.h"
#include "support/scratch.h"
#include "support/test.h"
#include "support/tiny_model.h"
#include "tokenizer/tokenizer.h"

#include <hearth/engine.h>

#include <stdio.h>
#include <string.h>

/* Thoughts end only where the model writes their mark, so it has tokens that do. */
static const char template_of_thoughts[] =
    "{% for m in messages %}<|im_start|>{{ m.content }}<|im_end|>{% endfor %}"
    "{% if enable_thinking is defined and not enable_thinking %}{% elif opened is defined %}<think>\n{% endif %}";
static const char *const marks[] = {"<think>", "</think>", NULL}, *const words[] = {"</think>",
                                                                                    "k></think>y",
                                                                                    "</think>yes",
                                                                                    "</think>\xC4\x8A\xC4\x8A",
                                                                                    "ink>n",
                                                                                    "nk>\xC4\xA0yes",
                                                                                    "<think>a</think>no",
                                                                                    "es",
                                                                                    NULL};

static ht_model *load(bool special) {
    return tiny_load(&(tiny_options){.chat_template = template_of_thoughts,
                                     .special = special ? marks : NULL,
                                     .words = special ? words + 1 : words});
}

static ht_grammar *regex(ht_model *m, const char *pattern) {
    ht_grammar *g;
    ht_error err = {0};
    if (ht_grammar_from_regex(m, pattern, strlen(pattern), &g, &err)) fail_msg("%s: %s", pattern, err.message);
    return g;
}

/* ---- what an answer may be, told by looking at its characters ---- */

/* The texts of the grammar `yes|no| ye?|`, the last of which is empty. */
static const char *const texts[] = {"yes", "no", " ye", " y", ""};
enum { N_TEXTS = sizeof texts / sizeof *texts };

typedef struct verdict {
    bool begins, is_whole;
} verdict;

static verdict or_else(verdict a, verdict b) { return (verdict){a.begins || b.begins, a.is_whole || b.is_whole}; }

static verdict is_text(const char *s, size_t n) {
    verdict v = {false, false};
    for (int i = 0; i < N_TEXTS; i++) {
        v.begins = v.begins || (n <= strlen(texts[i]) && memcmp(s, texts[i], n) == 0);
        v.is_whole = v.is_whole || (n == strlen(texts[i]) && memcmp(s, texts[i], n) == 0);
    }
    return v;
}

static bool is_blank(char c) { return c && strchr(" \t\r\n", c); }

static verdict is_behind(const char *s, size_t n) {
    verdict v = is_text(s, n);
    for (size_t blanks = 1; blanks <= n && blanks <= HT_BLANKS_MOST && is_blank(s[blanks - 1]); blanks++)
        v = or_else(v, is_text(s + blanks, n - blanks));
    return v;
}

static verdict is_in_thought(const char *s, size_t n) {
    static const char mark[] = "</think>";
    for (size_t at = 0; at + 8 <= n; at++)
        if (memcmp(s + at, mark, 8) == 0) return is_behind(s + at + 8, n - at - 8);
    return (verdict){.begins = true};
}

static verdict is_answer(const char *s, size_t n) {
    verdict v = is_text(s, n);
    for (size_t blanks = 0; blanks <= n && blanks <= HT_BLANKS_MOST; blanks++) {
        const size_t left = n - blanks, length = left < 7 ? left : 7;
        if (memcmp(s + blanks, "<think>", length) == 0)
            v = or_else(v, length == 7 ? is_in_thought(s + blanks + 7, left - 7) : (verdict){.begins = true});
        if (blanks < n && !is_blank(s[blanks])) break;
    }
    return v;
}

static verdict judge(ht_grammar_start start, const char *s, size_t n) {
    return start == HT_START_TEXT ? is_text(s, n) : start == HT_START_ANSWER ? is_answer(s, n) : is_in_thought(s, n);
}

/* ---- every token behind random answers ---- */

typedef struct token_texts {
    char text[TINY_VOCAB][32];
    size_t n[TINY_VOCAB];
} token_texts;

static void find_texts(const ht_tokenizer *t, token_texts *all) {
    for (int32_t i = 0; i < TINY_VOCAB; i++) {
        char *bytes = NULL;
        if (ht_tokenizer_is_special(t, i)) {
            const bool is_mark = strstr(ht_tokenizer_piece(t, i), "think") != NULL;
            all->n[i] = is_mark ? strlen(ht_tokenizer_piece(t, i)) : 0;
            memcpy(all->text[i], ht_tokenizer_piece(t, i), all->n[i]);
            continue;
        }
        assert_int_equal(ht_tokenizer_token_bytes(t, i, &bytes, &all->n[i], NULL), HT_OK);
        assert_true(all->n[i] <= sizeof all->text[i]);
        memcpy(all->text[i], bytes, all->n[i]);
        free(bytes);
    }
}

enum { LONGEST = 400 };

static uint64_t draw(uint64_t *random) {
    *random = *random * 6364136223846793005u + 1442695040888963407u;
    return *random >> 33;
}

/* Whether the mask has exactly the tokens that it should; how many. */
static int check_mask(const ht_model *m, ht_matcher *matcher, ht_grammar_start start, const token_texts *all,
                      const char *so_far, size_t n) {
    char text[LONGEST + 32];
    const uint32_t *mask;
    int n_allowed = 0;
    ht_ending ending;
    memcpy(text, so_far, n);
    const verdict now = judge(start, so_far, n);
    assert_int_equal(ht_matcher_mask(matcher, &mask, NULL), HT_OK);
    for (int32_t i = 0; i < TINY_VOCAB; i++) {
        const bool is_end = i == TINY_EOS || i == TINY_IM_END, says_nothing = !all->n[i];
        /* What says nothing may come where the text is free, as any character may. */
        memcpy(text + n, says_nothing ? "\1" : all->text[i], says_nothing ? 1 : all->n[i]);
        const bool expected = is_end ? now.is_whole : judge(start, text, n + (says_nothing ? 1 : all->n[i])).begins;
        if ((mask[i >> 5] >> (i & 31) & 1) != expected)
            fail_msg("start %d: \"%.*s\", then \"%s\": expected %d", (int)start, (int)n, so_far,
                     ht_tokenizer_piece(m->tokenizer, i), expected);
        n_allowed += expected;
    }
    assert_int_equal(ht_matcher_ending(matcher, &ending, NULL), HT_OK);
    assert_int_equal(ending != HT_ENDING_NOT, now.is_whole);
    return n_allowed;
}

TEST_CASE(masks_are_exact) {
    for (int special = 0; special < 2; special++) {
        ht_model *m = load(special);
        ht_grammar *g = regex(m, "yes|no| ye?|");
        static token_texts all;
        find_texts(m->tokenizer, &all);
        uint64_t random = 7;
        for (int round = 0; round < test_cases(300, 20000); round++) {
            const ht_grammar_start start = (ht_grammar_start)(round % 3);
            ht_matcher *matcher;
            char text[LONGEST];
            size_t n = 0, ends[64];
            assert_int_equal(ht_matcher_new_at(g, start, &matcher, NULL), HT_OK);
            for (int step = 0; step < 40 && n + 32 < sizeof text; step++) {
                check_mask(m, matcher, start, &all, text, n);
                /* Mostly what brings it forward: pieces of the marks and of the texts. */
                static const char *const favourites[] = {"<",  "think>", "</think>", "k", ">",
                                                         "\n", " ",      "yes",      "n", "o"};
                int32_t id = (int32_t)(draw(&random) % TINY_VOCAB);
                if (draw(&random) & 3) {
                    const char *wanted = favourites[draw(&random) % 10];
                    for (int32_t i = 0; i < TINY_VOCAB; i++)
                        if (all.n[i] && strncmp(all.text[i], wanted, strlen(wanted)) == 0 && draw(&random) % 2) id = i;
                }
                bool allowed;
                const size_t before = ht_matcher_length(matcher);
                assert_int_equal(ht_matcher_accept(matcher, id, &allowed, NULL), HT_OK);
                if (!allowed || id == TINY_EOS || id == TINY_IM_END) continue;
                ends[before] = n;
                memcpy(text + n, all.text[id], all.n[id]);
                n += all.n[id];
                /* Guesses that were wrong are taken back. */
                if (draw(&random) % 5 == 0) {
                    const size_t kept = draw(&random) % (before + 1);
                    assert_int_equal(ht_matcher_truncate(matcher, kept, NULL), HT_OK);
                    n = ends[kept];
                }
                if (draw(&random) % 50 == 0) ht_grammar_set_budget(g, 1);
            }
            ht_matcher_free(matcher);
        }
        assert_true(ht_grammar_times_forgotten(g) > 0);
        ht_grammar_free(g);
        ht_model_free(m);
    }
}

/* ---- answers ---- */

typedef struct answer {
    char thinking[4096], text[4096];
    size_t n_thinking, n_text;
    ht_metrics metrics;
} answer;

static bool take(const ht_answer_piece *piece, void *user) {
    answer *a = user;
    assert_true(piece->part == HT_ANSWER_TEXT || piece->part == HT_ANSWER_THINKING);
    char *to = piece->part == HT_ANSWER_TEXT ? a->text : a->thinking;
    size_t *n = piece->part == HT_ANSWER_TEXT ? &a->n_text : &a->n_thinking;
    assert_true(*n + piece->n < sizeof a->text);
    memcpy(to + *n, piece->text, piece->n + 1);
    *n += piece->n;
    return true;
}

static ht_chat *conversation(const char *content, bool opened, bool off) {
    ht_chat *chat = test_chat((const test_message[]){{"user", content}}, 1);
    if (opened) assert_int_equal(ht_chat_set_variable(chat, "opened", "true", 4, NULL), HT_OK);
    if (off) assert_int_equal(ht_chat_set_thinking(chat, false, NULL), HT_OK);
    return chat;
}

static answer generate(ht_model *m, const ht_chat *chat, ht_grammar *g, uint64_t seed, bool lookup) {
    answer a = {.n_text = 0};
    ht_session *s = tiny_session(m, 32);
    const ht_sampler_options sampler = OPTIONS(ht_sampler_options, with.temperature = 1, with.seed = seed);
    const ht_generate_options o = OPTIONS(ht_generate_options, with.max_tokens = 600, with.sampler = &sampler,
                                          with.grammar = g, with.lookup = lookup, with.guesses = lookup ? 4 : 0);
    assert_works(ht_generate_chat, s, chat, &o, take, &a, &a.metrics);
    ht_session_free(s);
    return a;
}

static bool is_date(const char *text) {
    int n = 0;
    return (sscanf(text, "%*1[0-9]%*1[0-9]-%*1[ab]%n", &n) == 0 || n) && n == 4 && !text[n];
}

/* Behind a thought comes the text of the grammar, whatever it began with; with thoughts turned off nothing else. */
TEST_CASE(thoughts_then_text) {
    ht_model *m = load(true);
    ht_grammar *g = regex(m, "\\d\\d-[ab]");
    int n_thoughts = 0, n_texts = 0;
    for (uint64_t seed = 0; seed < 12; seed++)
        for (int how = 0; how < 3; how++) {
            ht_chat *chat = conversation("hello", how == 1, how == 2);
            const answer plain = generate(m, chat, g, seed, false), guessed = generate(m, chat, g, seed, true);
            assert_string_equal(plain.thinking, guessed.thinking);
            assert_string_equal(plain.text, guessed.text);
            assert_int_equal(plain.metrics.generated_tokens, guessed.metrics.generated_tokens);
            if (how == 2) assert_int_equal(plain.n_thinking, 0);
            if (plain.metrics.finish == HT_FINISH_STOP) {
                assert_true(is_date(plain.text));
                n_texts++;
            } else { /* the thought has used all tokens */
                assert_int_equal(plain.metrics.finish, HT_FINISH_LENGTH);
                assert_int_not_equal(how, 2);
            }
            n_thoughts += plain.n_thinking > 0;
            ht_chat_free(chat);
        }
    assert_in_range(n_thoughts, 10, 24);
    assert_in_range(n_texts, 20, 36);
    ht_grammar_free(g);
    ht_model_free(m);
}

typedef struct shared {
    answer piece[4];
    int32_t n_set_back;
} shared;

static bool take_piece(const ht_answer_piece *piece, int32_t index, void *user) {
    return take(piece, &((shared *)user)->piece[index]);
}

static void take_end(const ht_answer_report *r, void *user) {
    if (r->status) fail_msg("%s", r->message);
    ((shared *)user)->piece[r->answer].metrics = r->metrics;
    ((shared *)user)->n_set_back += r->set_back;
}

/* Side by side, set back and computed again: each is the answer that is given alone. */
TEST_CASE(engine_answers) {
    ht_model *m = load(true);
    ht_engine *e;
    static shared got[3];
    const ht_engine_options how = OPTIONS(ht_engine_options, with.sequences = 8, with.kv_bytes = (size_t)1 << 18);
    assert_works(ht_engine_open, m, &how, &e);
    ht_grammar *g = regex(m, "\\d\\d-[ab]");
    ht_chat *chat[3];
    for (int i = 0; i < 3; i++) {
        chat[i] = conversation("hello there", i == 1, i == 2);
        const ht_sampler_options sampler = OPTIONS(ht_sampler_options, with.temperature = 1, with.seed = 5);
        const ht_generate_options o =
            OPTIONS(ht_generate_options, with.max_tokens = 600, with.sampler = &sampler, with.grammar = g);
        const ht_request r = OPTIONS(ht_request, with.chat = chat[i], with.options = &o, with.n = 4,
                                     with.piece = take_piece, with.end = take_end, with.user = &got[i]);
        ht_ticket ticket;
        assert_works(ht_engine_submit, e, &r, &ticket);
    }
    ht_engine_wait(e, 0);
    ht_engine_close(e);
    int n_set_back = 0;
    for (int i = 0; i < 3; i++) {
        for (uint64_t k = 0; k < 4; k++) {
            const answer alone = generate(m, chat[i], g, 5 + k, false);
            assert_string_equal(alone.text, got[i].piece[k].text);
            assert_string_equal(alone.thinking, got[i].piece[k].thinking);
            assert_int_equal(alone.metrics.generated_tokens, got[i].piece[k].metrics.generated_tokens);
        }
        ht_chat_free(chat[i]);
        n_set_back += got[i].n_set_back;
    }
    assert_true(n_set_back > 0);
    ht_grammar_free(g);
    ht_model_free(m);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(masks_are_exact, scratch_start, scratch_finish),
        cmocka_unit_test_setup_teardown(thoughts_then_text, scratch_start, scratch_finish),
        cmocka_unit_test_setup_teardown(engine_answers, scratch_start, scratch_finish),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
