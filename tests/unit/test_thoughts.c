/* Grammars of answers behind thoughts: whole answers, alone, with guesses and in an engine that is short of memory. Their masks are
 * compared in test_answer_matcher.c. */
#include "generate/generation.h"
#include "models/model.h"
#include "support/chat.h"
#include "support/options.h"
#include "support/scratch.h"
#include "support/test.h"
#include "support/tiny_model.h"

#include <hearth/engine.h>

#include <stdio.h>
#include <string.h>

/* Thoughts end only where the model writes their mark, so it has tokens that do. */
static const char template_of_thoughts[] =
    "{% for m in messages %}<|im_start|>{{ m.content }}<|im_end|>{% endfor %}"
    "{% if enable_thinking is defined and not enable_thinking %}{% elif opened is defined %}<think>\n{% endif %}";
static const char *const marks[] = {"<think>", "</think>", NULL};
static const char *const words[] = {
    "k></think>y", "</think>yes", "</think>\xC4\x8A\xC4\x8A", "ink>n", "nk>\xC4\xA0yes", "<think>a</think>no",
    "es",          NULL};

static ht_model *load(void) {
    return tiny_load(&(tiny_options){.chat_template = template_of_thoughts, .special = marks, .words = words});
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
                                          with.grammar = g, with.lookup = lookup, with.draft_tokens = lookup ? 4 : 0);
    assert_works(ht_generate_chat, s, chat, &o, take, &a, &a.metrics);
    ht_session_free(s);
    return a;
}

static bool is_date(const char *text) {
    int n = 0;
    return (sscanf(text, "%*1[0-9]%*1[0-9]-%*1[ab]%n", &n) == 0 || n) && n == 4 && !text[n];
}

/* Behind a thought comes the text of the grammar, whatever it began with; with thoughts turned off nothing else. */
UNIT_TEST(thoughts_then_text) {
    ht_model *m = load();
    ht_grammar *g = tiny_regex(m, "\\d\\d-[ab]");
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
    int32_t n_preempted;
} shared;

static bool take_piece(const ht_answer_piece *piece, int32_t index, void *user) {
    return take(piece, &((shared *)user)->piece[index]);
}

static void take_end(const ht_answer_report *r, void *user) {
    if (r->status) fail_msg("%s", r->message);
    ((shared *)user)->piece[r->answer].metrics = r->metrics;
    ((shared *)user)->n_preempted += r->preempted;
}

/* Side by side, set back and computed again: each is the answer that is given alone. */
UNIT_TEST(engine_answers) {
    ht_model *m = load();
    ht_engine *e;
    static shared got[3];
    const ht_engine_options how = OPTIONS(ht_engine_options, with.sequences = 8, with.kv_bytes = (size_t)1 << 18);
    assert_works(ht_engine_open, m, &how, &e);
    ht_grammar *g = tiny_regex(m, "\\d\\d-[ab]");
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
    int n_preempted = 0;
    for (int i = 0; i < 3; i++) {
        for (uint64_t k = 0; k < 4; k++) {
            const answer alone = generate(m, chat[i], g, 5 + k, false);
            assert_string_equal(alone.text, got[i].piece[k].text);
            assert_string_equal(alone.thinking, got[i].piece[k].thinking);
            assert_int_equal(alone.metrics.generated_tokens, got[i].piece[k].metrics.generated_tokens);
        }
        ht_chat_free(chat[i]);
        n_preempted += got[i].n_preempted;
    }
    assert_true(n_preempted > 0);
    ht_grammar_free(g);
    ht_model_free(m);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(thoughts_then_text, scratch_start, scratch_finish),
        cmocka_unit_test_setup_teardown(engine_answers, scratch_start, scratch_finish),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
