/* Thinking budgets: thoughts end with the tokens that the budget leaves them, by the mark as the template writes it; what comes before is
 * the answer without a budget, to the bit, whatever computes it. Answers are random, or say given tokens by their biases. */
#include "models/model.h"
#include "support/chat.h"
#include "support/options.h"
#include "support/scratch.h"
#include "support/test.h"
#include "support/tiny_model.h"
#include "tokenizer/tokenizer.h"

#include <hearth/engine.h>
#include <hearth/state.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

#define NEWLINE "\xC4\x8A" /* as byte-level vocabularies spell it */
#define TURNS   "{% for m in messages %}<|im_start|>{{ m.role }}\n"
#define OPENED  "{% if add_generation_prompt %}<|im_start|>assistant\n{{ '<think>\n' if opened is defined }}{% endif %}"

/* Templates that do not write the thoughts of answers, that write them with white space of their own, that write the mark alone, and
 * with a title. */
static const char plain[] = TURNS "{{ m.content }}<|im_end|>\n{% endfor %}" OPENED;
static const char spaced[] = TURNS "{% if m.thinking is defined %}<think>{{ m.thinking }}</think>\n{% endif %}{{ "
                                   "m.content }}<|im_end|>\n{% endfor %}" OPENED;
static const char dropped[] =
    TURNS "{{ '</think>' if m.role == 'assistant' }}{{ m.content }}<|im_end|>\n{% endfor %}" OPENED;
static const char titled[] = TURNS "{{ m.content }}<|im_end|>\n{% endfor %}<|im_start|>{{ '<|channel>thought\n' if "
                                   "opened is defined }}{# <channel|> #}";

static const char *const marks[] = {"<think>", "</think>", NULL}, *const channels[] = {"<|channel>", "<channel|>",
                                                                                       NULL};
static const char *const words[] = {"</th", "ink>n", "<th", "ink>", "<think>", "thought", "</think>yes", NULL};
/* Without "</think>yes": marks that are special tokens leave less room. */
static const char *const few_words[] = {"</th", "ink>n", "<th", "ink>", "<thi", "thought", NULL};

static ht_model *load(const char *template, const char *const *special) {
    return tiny_load(
        &(tiny_options){.chat_template = template, .special = special, .words = special ? few_words : words});
}

/* ---- answers ---- */

enum { MOST = 400, PROMPT_MOST = 96 };

typedef struct answer {
    int32_t id[MOST];
    int64_t n;
    char thinking[2048], text[2048], calls[2048];
    size_t n_thinking, n_text, n_calls;
    ht_metrics metrics;
} answer;

static bool take(const ht_answer_piece *piece, void *user) {
    answer *a = user;
    const bool is_call = piece->part == HT_ANSWER_CALL, is_text = piece->part == HT_ANSWER_TEXT;
    const char *from = is_call ? piece->call->name : piece->text;
    char *to = is_call ? a->calls : is_text ? a->text : a->thinking;
    size_t *n = is_call ? &a->n_calls : is_text ? &a->n_text : &a->n_thinking;
    assert_true(*n + strlen(from) < sizeof a->text);
    memcpy(to + *n, from, strlen(from) + 1);
    *n += strlen(from);
    return true;
}

static ht_chat *conversation(bool opened) {
    ht_chat *chat = test_chat((const test_message[]){{"user", "hello there"}}, 1);
    if (opened) assert_int_equal(ht_chat_set_variable(chat, "opened", "true", 4, NULL), HT_OK);
    return chat;
}

static void keep_tokens(answer *a, const ht_session *s) {
    a->n = a->metrics.generated_tokens;
    assert_true(a->n <= MOST);
    memcpy(a->id, ht_session_tokens(s) + ht_session_length(s) - a->n, (size_t)a->n * sizeof *a->id);
}

static answer answer_with(ht_model *m, const ht_chat *chat, const ht_generate_options *o) {
    answer a = {.n = 0};
    ht_session *s = tiny_session(m, 32);
    assert_works(ht_generate_chat, s, chat, o, take, &a, &a.metrics);
    keep_tokens(&a, s);
    ht_session_free(s);
    return a;
}

static void expect_same(const answer *a, const answer *b) {
    assert_int_equal(a->n, b->n);
    assert_memory_equal(a->id, b->id, (size_t)a->n * sizeof *a->id);
    assert_string_equal(a->thinking, b->thinking);
    assert_string_equal(a->text, b->text);
    assert_string_equal(a->calls, b->calls);
    assert_int_equal(a->metrics.finish, b->metrics.finish);
    assert_int_equal(a->metrics.thought_ended, b->metrics.thought_ended);
}

/* Whether the tokens from `at` on are the text, written by the mark's own token where it is one. */
static bool has_text_at(const ht_model *m, const answer *a, int64_t at, const char *text) {
    int32_t *ids;
    size_t n;
    assert_int_equal(ht_tokenizer_encode(m->tokenizer, text, strlen(text), HT_ENCODE_PARSE_SPECIAL, &ids, &n, NULL),
                     HT_OK);
    const bool is_there = at + (int64_t)n <= a->n && memcmp(a->id + at, ids, n * sizeof *ids) == 0;
    ht_ids_free(ids);
    return is_there;
}

/* ---- scripts ---- */

enum { SCRIPT_MOST = 24 };

/* A sampler that draws given tokens one after the other: the ones that have come are as good as forbidden. */
typedef struct script {
    ht_logit_bias bias[SCRIPT_MOST];
    int n;
    ht_sampler_options sampler;
} script;

/* The tokens, NULL-terminated, and then the end of the answer. Each comes once. */
static void write_script(script *s, const ht_model *m, const char *const *tokens) {
    s->n = 0;
    for (int i = 0; i == 0 || tokens[i - 1]; i++) {
        const int32_t id = tokens[i] ? ht_tokenizer_find(m->tokenizer, tokens[i]) : TINY_IM_END;
        if (id < 0) fail_msg("\"%s\" is no token", tokens[i]);
        assert_true(s->n < SCRIPT_MOST);
        s->bias[s->n++] = (ht_logit_bias){.id = id, .bias = 1000.0F * (float)(SCRIPT_MOST - i)};
    }
    s->sampler =
        OPTIONS(ht_sampler_options, with.presence_penalty = 1e6F, with.logit_bias = s->bias, with.n_logit_bias = s->n);
}

static answer say(ht_model *m, bool opened, int32_t budget, const char *const *tokens) {
    script s;
    ht_chat *chat = conversation(opened);
    write_script(&s, m, tokens);
    ht_generate_options o = OPTIONS(ht_generate_options, with.max_tokens = 64, with.sampler = &s.sampler,
                                    with.max_thinking_tokens = budget);
    const answer a = answer_with(m, chat, &o);
    o.lookup = true;
    o.draft_tokens = 4;
    const answer guessed = answer_with(m, chat, &o);
    expect_same(&a, &guessed);
    ht_chat_free(chat);
    return a;
}
#define SAY(m, opened, budget, ...) say(m, opened, budget, (const char *const[]){__VA_ARGS__, NULL})

static void expect(const answer *a, bool ended, const char *thinking, const char *text) {
    assert_int_equal(a->metrics.finish, HT_FINISH_STOP);
    assert_string_equal(a->thinking, thinking);
    assert_string_equal(a->text, text);
    assert_int_equal(a->metrics.thought_ended, ended);
}

/* ---- tests ---- */

/* With its last token within the budget a thought is as without one; with one less it is cut. */
UNIT_TEST(budget_at_the_mark) {
    ht_model *m = load(plain, marks);
    const answer free = SAY(m, true, -1, "a", "b", "c", "</think>", "y");
    expect(&free, false, "abc", "y");
    for (int32_t budget = 0; budget < 6; budget++) {
        const answer a = SAY(m, true, budget, "a", "b", "c", "</think>", "y");
        if (budget >= 3) {
            expect_same(&a, &free);
            continue;
        }
        assert_memory_equal(a.id, free.id, (size_t)budget * sizeof *a.id);
        assert_true(has_text_at(m, &a, budget, "\n</think>\n\n"));
        /* What the script has left is the text. */
        const char *const thinking[] = {"", "a", "ab"}, *const text[] = {"abcy", "bcy", "cy"};
        expect(&a, true, thinking[budget], text[budget]);
    }
    /* The model's own white space before the mark may be the budget's next token, too. */
    const answer own = SAY(m, true, 2, "a", "b", NEWLINE, "</think>", "y");
    expect(&own, false, "ab", "y");
    ht_model_free(m);
}

/* Marks of several tokens: what the model has begun of one goes on; half a character ends before it. */
UNIT_TEST(budget_within_marks_and_characters) {
    ht_model *text = load(plain, NULL), *special = load(plain, marks);
    answer a = SAY(text, true, 2, "a", "</th", "b");
    expect(&a, true, "a", "b");
    assert_true(has_text_at(text, &a, 2, "ink>\n\n"));
    a = SAY(text, true, 1, "a", "b");
    expect(&a, true, "a", "b");
    assert_true(has_text_at(text, &a, 1, "\n</think>\n\n"));
    a = SAY(text, true, 2, "a", "</think>yes", "b");
    expect(&a, false, "a", "yesb");
    a = SAY(text, true, 1, "a", "</th", "ink>n");
    expect(&a, true, "a", "</think>n"); /* a token more than the budget has */
    a = SAY(text, true, 2, "a", "</th", "ink>n", "b");
    expect(&a, true, "a", "ink>nb");
    a = SAY(text, true, 3, "a", "</th", "ink>n", "b");
    expect(&a, false, "a", "nb");
    /* Where the mark is a token of its own, its letters are a thought's. */
    a = SAY(special, true, 2, "a", "</th", "b");
    expect(&a, true, "a</th", "b");
    assert_true(has_text_at(special, &a, 2, "\n</think>\n\n"));
    for (int i = 0; i < 2; i++) {
        a = SAY(i ? special : text, true, 2, "a", "\xC3\xA2", "b"); /* the byte E2 */
        expect(&a, true, "a\xEF\xBF\xBD", "b");
    }
    ht_model_free(text);
    ht_model_free(special);
}

UNIT_TEST(several_thoughts) {
    ht_model *text = load(plain, NULL), *special = load(plain, marks);
    /* Two tokens, and one that is left. */
    answer a = SAY(text, false, 3, "<think>", "a", "b", "</think>yes", "c");
    expect(&a, false, "ab", "yesc");
    a = SAY(special, false, 3, "<think>", "a", "b", "</think>", NEWLINE, "<thi", "n", "k", ">", "c", "d", "e");
    expect(&a, true, "abc", "de");
    assert_true(has_text_at(special, &a, 10, "\n</think>\n\n"));
    /* None is left: each is closed at once, the first and the second. */
    a = SAY(special, false, 0, "<think>", "<thi", "n", "k", ">", "c", "d");
    expect(&a, true, "", "cd");
    assert_true(has_text_at(special, &a, 1, "\n</think>\n\n"));
    /* What stands in the text is no thought. */
    a = SAY(special, false, 0, "a", "<thi", "n", "k", ">", "c", "d");
    expect(&a, false, "", "a<think>cd");
    ht_model_free(text);
    ht_model_free(special);
}

/* A conversation that holds what the model says: its opening mark is guessed with what follows, which the budget does not have. */
UNIT_TEST(guesses_across_an_opening) {
    static const char template[] = "{% for m in messages %}{{ m.content }}{% endfor %}\n{# [THINK] #}";
    ht_model *m = tiny_load(&(tiny_options){.chat_template = template, .words = words});
    ht_chat *chat = test_chat((const test_message[]){{"user", "xyz[THINK]abcdefg"}}, 1);
    script s;
    write_script(
        &s, m, (const char *const[]){"x", "y", "z", "[", "T", "H", "I", "N", "K", "]", "a", "b", "c", "d", "e", NULL});
    for (int32_t budget = 0; budget < 5; budget++) {
        ht_generate_options o = OPTIONS(ht_generate_options, with.max_tokens = 64, with.sampler = &s.sampler,
                                        with.max_thinking_tokens = budget);
        const answer a = answer_with(m, chat, &o);
        o.lookup = true;
        o.draft_tokens = 15;
        const answer guessed = answer_with(m, chat, &o);
        expect_same(&a, &guessed);
        assert_true(guessed.metrics.accepted_tokens > 5);
        assert_int_equal(a.n_thinking, budget);
        assert_true(has_text_at(m, &a, 10 + budget, "[/THINK]"));
        assert_true(a.metrics.thought_ended);
    }
    ht_chat_free(chat);
    ht_model_free(m);
}

/* The template says what stands around the mark, and a title is no part of a thought. */
UNIT_TEST(as_the_template_writes) {
    ht_model *m = load(spaced, marks);
    answer a = SAY(m, true, 1, "a", "b");
    expect(&a, true, "a", "b");
    assert_true(has_text_at(m, &a, 1, "</think>\n"));
    assert_int_equal(a.n, 4);
    ht_model_free(m);
    m = load(dropped, marks);
    a = SAY(m, true, 1, "a", "b");
    expect(&a, true, "a", "b");
    assert_true(has_text_at(m, &a, 1, "\n</think>b"));
    ht_model_free(m);
    m = load(titled, channels);
    a = SAY(m, false, 0, "<|channel>", "a", "b");
    expect(&a, true, "", "ab");
    assert_true(has_text_at(m, &a, 1, "thought\n<channel|>"));
    a = SAY(m, false, 1, "<|channel>", "thought", NEWLINE, "a", "b");
    expect(&a, true, "a", "b");
    assert_true(has_text_at(m, &a, 4, "<channel|>"));
    a = SAY(m, false, 1, "x", "<|channel>", "a", "b"); /* no title, anywhere */
    expect(&a, true, "a", "xb");
    a = SAY(m, true, 1, "a", "b");
    expect(&a, true, "a", "b");
    assert_true(has_text_at(m, &a, 1, "<channel|>"));
    a = SAY(m, true, 0, "thought", "a");
    expect(&a, true, "", "thoughta");
    ht_model_free(m);
}

/* After a message of reasoning another one begins. */
UNIT_TEST(as_messages) {
    static const char template[] = TURNS "{{ m.content }}<|im_end|>\n{% endfor %}<|start|>assistant{{ "
                                         "'<|channel|>analysis<|message|>' if opened is defined }}";
    static const char *const messages[] = {"<|channel|>", "<|message|>", "<|start|>", "<|end|>", NULL},
                             *const headers[] = {"analysis", "final", NULL};
    ht_model *m = tiny_load(&(tiny_options){.chat_template = template, .special = messages, .words = headers});
    answer a = SAY(m, true, 1, "a", "<|channel|>", "final", "<|message|>", "y");
    expect(&a, true, "a", "y");
    assert_true(has_text_at(m, &a, 1, "<|end|><|start|>assistant"));
    a = SAY(m, false, 0, "<|channel|>", "analysis", "<|message|>", "y");
    expect(&a, true, "", "y");
    assert_true(has_text_at(m, &a, 3, "<|end|><|start|>assistant"));
    a = SAY(m, false, 0, "<|channel|>", "final", "<|message|>", "y");
    expect(&a, false, "", "y");
    ht_model_free(m);
}

static ht_generate_options sampled(ht_sampler_options *sampler, uint64_t seed, int32_t budget) {
    /* A mark that random weights would hardly write, now and then; and no end within the answer. */
    static const ht_logit_bias some[] = {{TINY_MORE, 6}, {TINY_MORE + 1, 2}, {TINY_IM_END, -100}, {TINY_EOS, -100}};
    *sampler = OPTIONS(ht_sampler_options, with.temperature = 1, with.seed = seed, with.logit_bias = some,
                       with.n_logit_bias = 4);
    return OPTIONS(ht_generate_options, with.max_tokens = 60, with.sampler = sampler,
                   with.max_thinking_tokens = budget);
}

/* Random answers: up to where the thought is cut the same tokens, and the same with guesses. */
UNIT_TEST(beginnings_are_the_same) {
    int n_ended = 0;
    for (int kind = 0; kind < 2; kind++) {
        ht_model *m = load(plain, kind ? marks : NULL);
        for (uint64_t seed = 0; seed < (uint64_t)test_cases(12, 200); seed++) {
            ht_sampler_options sampler;
            ht_chat *chat = conversation(seed % 3 > 0);
            ht_generate_options o = sampled(&sampler, seed, -1);
            const answer free = answer_with(m, chat, &o);
            for (int32_t budget = 0; budget < 40; budget += budget < 3 ? 1 : 9) {
                o = sampled(&sampler, seed, budget);
                const answer a = answer_with(m, chat, &o);
                for (int32_t guesses = 1; guesses < 16; guesses += 7) {
                    o.lookup = true;
                    o.draft_tokens = guesses;
                    const answer guessed = answer_with(m, chat, &o);
                    expect_same(&a, &guessed);
                }
                if (!a.metrics.thought_ended) {
                    expect_same(&a, &free);
                    continue;
                }
                int64_t same = 0;
                while (same < a.n && same < free.n && a.id[same] == free.id[same]) same++;
                assert_true(same >= budget);
                assert_true(strstr(a.thinking, "</think>") == NULL);
                n_ended++;
            }
            ht_chat_free(chat);
        }
        ht_model_free(m);
    }
    assert_true(n_ended > 40);
}

/* A stop text that is the end's first token, by the model's own will: what a step has drawn behind it is no part of the answer. */
UNIT_TEST(stops_within_the_end) {
    static const char *const stop[] = {"\n"};
    ht_model *m = load(plain, marks);
    ht_session *s = tiny_session(m, 32);
    script how;
    write_script(&how, m, (const char *const[]){"a", NEWLINE, "b", NULL});
    for (int budget = 0; budget < 3; budget++) {
        ht_metrics metrics;
        const ht_generate_options o = OPTIONS(ht_generate_options, with.sampler = &how.sampler, with.stop = stop,
                                              with.n_stop = 1, with.max_thinking_tokens = budget);
        ht_session_reset(s);
        assert_int_equal(ht_generate_text(s, "x<think>", &o, NULL, NULL, &metrics, NULL), HT_OK);
        assert_int_equal(metrics.finish, HT_FINISH_STOP);
        assert_int_equal(metrics.stop, 0);
        assert_int_equal(metrics.generated_tokens, budget == 0 ? 1 : 2);
        assert_int_equal(metrics.thought_ended, budget == 0);
    }
    ht_session_free(s);
    ht_model_free(m);
}

/* ---- engines ---- */

static ht_grammar *regex(ht_model *m, const char *pattern) {
    ht_grammar *g;
    ht_error err = {0};
    if (ht_grammar_from_regex(m, pattern, strlen(pattern), &g, &err)) fail_msg("%s: %s", pattern, err.message);
    return g;
}

typedef struct shared {
    answer of[3];
    int32_t preempted;
} shared;

static bool take_shared(const ht_answer_piece *piece, int32_t index, void *user) {
    return take(piece, &((shared *)user)->of[index]);
}

static void take_end(const ht_answer_report *r, void *user) {
    answer *a = &((shared *)user)->of[r->answer];
    if (r->status) fail_msg("%s", r->message);
    a->metrics = r->metrics;
    a->n = r->metrics.generated_tokens;
    memcpy(a->id, r->token, (size_t)a->n * sizeof *a->id);
    ((shared *)user)->preempted += r->preempted;
}

/* Requests with budgets of their own side by side, several answers each, set back for want of memory: each as it is alone. */
UNIT_TEST(engines_give_the_same) {
    enum { REQUESTS = 10 };
    static const int32_t budgets[REQUESTS] = {0, -1, 7, 30, 1, 0, 100, 13, 5, 40}; /* the last two with a grammar */
    static shared got[REQUESTS];
    ht_model *m = load(plain, marks);
    ht_engine *e;
    int32_t preempted = 0, n_ended = 0;
    ht_grammar *g = regex(m, "[0-9ab]{40,60}");
    const ht_engine_options how = OPTIONS(ht_engine_options, with.sequences = 8, with.kv_bytes = (size_t)1 << 18);
    assert_works(ht_engine_open, m, &how, &e);
    for (int i = 0; i < REQUESTS; i++) {
        ht_sampler_options sampler;
        ht_generate_options o = sampled(&sampler, 100, budgets[i]);
        o.max_tokens = 380;
        o.lookup = i % 2;
        o.grammar = i >= 8 ? g : NULL;
        ht_chat *chat = conversation(i != 5);
        const ht_request r = OPTIONS(ht_request, with.chat = chat, with.options = &o, with.n = 3,
                                     with.piece = take_shared, with.end = take_end, with.user = &got[i]);
        ht_ticket ticket;
        assert_works(ht_engine_submit, e, &r, &ticket);
        ht_chat_free(chat);
    }
    ht_engine_wait(e, 0);
    ht_engine_close(e);
    for (int i = 0; i < REQUESTS; i++) {
        ht_chat *chat = conversation(i != 5);
        for (uint64_t k = 0; k < 3; k++) {
            ht_sampler_options sampler;
            ht_generate_options o = sampled(&sampler, 100 + k, budgets[i]);
            o.max_tokens = 380;
            o.grammar = i >= 8 ? g : NULL;
            const answer alone = answer_with(m, chat, &o);
            expect_same(&alone, &got[i].of[k]);
            n_ended += alone.metrics.thought_ended;
        }
        preempted += got[i].preempted;
        ht_chat_free(chat);
    }
    assert_true(preempted > 0 && n_ended > 6);
    ht_grammar_free(g);
    ht_model_free(m);
}

/* ---- grammars and calls ---- */

static bool is_date(const char *s) {
    return strlen(s) == 4 && s[0] >= '0' && s[0] <= '9' && s[1] >= '0' && s[1] <= '9' && s[2] == '-' &&
           (s[3] == 'a' || s[3] == 'b');
}

UNIT_TEST(grammar_behind_the_thought) {
    for (int kind = 0; kind < 2; kind++) {
        ht_model *m = load(plain, kind ? marks : NULL);
        ht_grammar *g = regex(m, "\\d\\d-[ab]");
        for (uint64_t seed = 0; seed < 6; seed++)
            for (int32_t budget = 0; budget < 24; budget += 4) {
                ht_chat *chat = conversation(true);
                ht_sampler_options sampler;
                ht_generate_options o = sampled(&sampler, seed, budget);
                sampler.n_logit_bias = 0; /* the grammar's end is one */
                o.grammar = g;
                const answer a = answer_with(m, chat, &o);
                o.lookup = true;
                const answer guessed = answer_with(m, chat, &o);
                expect_same(&a, &guessed);
                assert_int_equal(a.metrics.finish, HT_FINISH_STOP);
                assert_true(is_date(a.text));
                if (budget == 0) assert_true(a.metrics.thought_ended && !a.n_thinking);
                ht_chat_free(chat);
            }
        ht_grammar_free(g);
        /* A grammar of the whole text has thoughts of its own: what it does not allow is not written. */
        g = regex(m, "<think>[a-z]{20}</think>no");
        ht_sampler_options sampler;
        ht_generate_options o = sampled(&sampler, 3, 4);
        ht_metrics metrics;
        ht_session *s = tiny_session(m, 32);
        char *text;
        size_t n;
        sampler.n_logit_bias = 0;
        o.grammar = g;
        assert_int_equal(ht_generate_text(s, "hello", &o, NULL, NULL, &metrics, NULL), HT_OK);
        assert_int_equal(metrics.finish, HT_FINISH_STOP);
        const int32_t *ids = ht_session_tokens(s) + ht_session_length(s) - metrics.generated_tokens;
        assert_int_equal(
            ht_tokenizer_decode(m->tokenizer, ids, (size_t)metrics.generated_tokens, false, &text, &n, NULL), HT_OK);
        assert_int_equal(n, 7 + 20 + 8 + 2);
        assert_string_equal(text + 27, "</think>no");
        ht_text_free(text);
        ht_session_free(s);
        ht_grammar_free(g);
        ht_model_free(m);
    }
}

static const char template_of_calls[] =
    TURNS "{{ m.content }}<|im_end|>\n{% endfor %}{# <tool_call> </think> #}" OPENED;

/* Calls that have to come, behind a thought that is cut. */
UNIT_TEST(calls_behind_the_thought) {
    static const char tools[] =
        "[{\"type\": \"function\", \"function\": {\"name\": \"look\", \"parameters\": {\"type\": "
        "\"object\", \"properties\": {\"n\": {\"type\": \"boolean\"}}, \"required\": [\"n\"], "
        "\"additionalProperties\": false}}}]";
    ht_model *m = load(template_of_calls, marks);
    for (uint64_t seed = 0; seed < 4; seed++)
        for (int32_t budget = 0; budget < 20; budget += 6) {
            ht_chat *chat = conversation(true);
            ht_sampler_options sampler;
            ht_generate_options o = sampled(&sampler, seed, budget);
            o.max_tokens = 200;
            sampler.n_logit_bias = 0;
            assert_int_equal(ht_chat_set_tools(chat, tools, strlen(tools), NULL), HT_OK);
            assert_int_equal(ht_chat_set_tool_choice(chat, HT_TOOL_CHOICE_REQUIRED, NULL, false, NULL), HT_OK);
            const answer a = answer_with(m, chat, &o);
            o.lookup = true;
            const answer guessed = answer_with(m, chat, &o);
            expect_same(&a, &guessed);
            assert_string_equal(a.calls, "look");
            assert_int_equal(a.n_text, 0);
            assert_true(a.metrics.thought_ended);
            ht_chat_free(chat);
        }
    ht_model_free(m);
}

/* ---- sessions ---- */

/* A thought that was left open goes on with what it has had, also in a session that was saved. */
UNIT_TEST(going_on_in_a_thought) {
    for (int kind = 0; kind < 2; kind++) {
        ht_model *m = load(plain, kind ? marks : NULL);
        script s;
        write_script(&s, m, (const char *const[]){"a", "b", "c", "d", "e", NULL});
        for (int saved = 0; saved < 2; saved++) {
            ht_session *first = tiny_session(m, 32), *session = first;
            ht_metrics metrics;
            ht_generate_options o = OPTIONS(ht_generate_options, with.max_tokens = 2, with.sampler = &s.sampler);
            char path[256];
            snprintf(path, sizeof path, "%s", scratch_path("thought.state"));
            assert_works(ht_generate_text, first, "hi<think>\n", &o, NULL, NULL, &metrics);
            if (saved) {
                session = tiny_session(m, 32);
                assert_int_equal(ht_session_save(first, path, NULL), HT_OK);
                assert_int_equal(ht_session_load(session, path, NULL), HT_OK);
            }
            /* "ab" stands there, and counts; the penalty of this call does not know of it. */
            o.max_tokens = 64;
            o.max_thinking_tokens = 3;
            answer a = {.n = 0};
            assert_works(ht_generate, session, NULL, 0, &o, NULL, NULL, &a.metrics);
            keep_tokens(&a, session);
            assert_true(a.metrics.thought_ended);
            assert_true(has_text_at(m, &a, 0, "a"));
            assert_true(has_text_at(m, &a, 1, "\n</think>\n\n"));
            if (saved) ht_session_free(session);
            ht_session_free(first);
        }
        ht_model_free(m);
    }
}

/* The last mark of the tokens tells, whatever bytes stand before it. */
UNIT_TEST(marks_in_prompts) {
    static const struct {
        const char *text;
        bool opened;
    } cases[] = {{"<think>a", true}, {"a", false}, {"<think>a</think>b", false}, {"<think></think><think>", true}};
    ht_model *m = load(plain, marks);
    ht_sampler_options sampler;
    const ht_generate_options o = sampled(&sampler, 1, 0);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int with_nul = 0; with_nul < 2; with_nul++) {
            int32_t *ids, prompt[64] = {ht_tokenizer_find(m->tokenizer, "\xC4\x80")}; /* the byte 0 */
            size_t n;
            ht_metrics metrics;
            ht_session *s = tiny_session(m, 32);
            assert_int_equal(ht_tokenizer_encode(m->tokenizer, cases[i].text, strlen(cases[i].text),
                                                 HT_ENCODE_PARSE_SPECIAL, &ids, &n, NULL),
                             HT_OK);
            assert_true(prompt[0] >= 0 && n < 60);
            memcpy(prompt + with_nul, ids, n * sizeof *ids);
            assert_int_equal(ht_generate(s, prompt, n + (size_t)with_nul, &o, NULL, NULL, &metrics, NULL), HT_OK);
            assert_int_equal(metrics.thought_ended, cases[i].opened);
            ht_ids_free(ids);
            ht_session_free(s);
        }
    ht_model_free(m);
}

UNIT_TEST(where_the_context_ends) {
    ht_model *m = tiny_load(&(tiny_options){.chat_template = plain, .words = words, .context = 64});
    ht_sampler_options sampler;
    ht_chat *chat = conversation(true);
    ht_generate_options o = sampled(&sampler, 1, 2);
    o.max_tokens = 1000;
    const answer a = answer_with(m, chat, &o);
    assert_int_equal(a.metrics.finish, HT_FINISH_LENGTH);
    for (int32_t n = 1; n < 14; n++) { /* within the thought, within its end, and behind */
        o.max_tokens = n;
        const answer part = answer_with(m, chat, &o);
        assert_int_equal(part.metrics.finish, HT_FINISH_LENGTH);
        assert_int_equal(part.n, n);
        assert_memory_equal(part.id, a.id, (size_t)n * sizeof *a.id);
    }
    ht_chat_free(chat);
    ht_model_free(m);
}

/* ---- probes ---- */

typedef struct seen {
    int n;
    int32_t id[64];
    double log_probability[64];
} seen;

static void keep_probe(const ht_probe *p, void *user) {
    seen *s = user;
    assert_true(s->n < 64);
    s->id[s->n] = p->token;
    s->log_probability[s->n++] = p->log_probability;
}

/* Probes change no bit, and have the model's own probabilities of the tokens that were written. */
UNIT_TEST(probes_of_written_tokens) {
    ht_model *m = load(plain, marks);
    ht_chat *chat = conversation(true);
    ht_sampler_options sampler;
    seen s = {.n = 0};
    const ht_probe_options probes =
        OPTIONS(ht_probe_options, with.kinds = HT_PROBE_LOGPROB, with.fn = keep_probe, with.user = &s);
    ht_generate_options o = sampled(&sampler, 2, 5);
    o.max_tokens = 20;
    const answer a = answer_with(m, chat, &o);
    o.probes = &probes;
    const answer probed = answer_with(m, chat, &o);
    expect_same(&a, &probed);
    assert_true(a.metrics.thought_ended);
    assert_int_equal(s.n, a.n);
    int32_t *ids;
    size_t n;
    assert_int_equal(ht_chat_encode(m, chat, 0, &ids, &n, NULL), HT_OK);
    int32_t all[PROMPT_MOST + 20];
    assert_true(n <= PROMPT_MOST);
    memcpy(all, ids, n * sizeof *ids);
    memcpy(all + n, a.id, (size_t)a.n * sizeof *ids);
    float *rows = tiny_rows((int)n + 20);
    ht_session *session = tiny_session(m, 32);
    tiny_forward(session, all, n + 20, true, rows);
    for (int i = 0; i < 20; i++) {
        const float *row = rows + (n + (size_t)i - 1) * TINY_VOCAB;
        double sum = 0;
        for (int t = 0; t < TINY_VOCAB; t++) sum += exp((double)row[t] - (double)row[a.id[i]]);
        assert_int_equal(s.id[i], a.id[i]);
        assert_true(fabs(s.log_probability[i] + log(sum)) < 1e-4);
    }
    free(rows);
    ht_ids_free(ids);
    ht_session_free(session);
    ht_chat_free(chat);
    ht_model_free(m);
}

/* ---- what has no thoughts ---- */

UNIT_TEST(without_thoughts) {
    ht_model *m = tiny_load(&(tiny_options){.chat_template = "{{ messages[0].content }}"});
    ht_chat *chat = conversation(false);
    ht_sampler_options sampler;
    for (uint64_t seed = 0; seed < 4; seed++) {
        ht_generate_options o = sampled(&sampler, seed, -1);
        const answer free = answer_with(m, chat, &o);
        o.max_thinking_tokens = 0;
        const answer a = answer_with(m, chat, &o);
        expect_same(&a, &free);
    }
    ht_session *s = tiny_session(m, 32);
    const ht_generate_options wrong = OPTIONS(ht_generate_options, with.max_thinking_tokens = -2);
    assert_fails(HT_ERR_ARGUMENT, "max_thinking_tokens is -2", ht_generate_chat, s, chat, &wrong, NULL, NULL, NULL);
    ht_session_free(s);
    ht_chat_free(chat);
    ht_model_free(m);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(budget_at_the_mark, scratch_start, scratch_finish),
        cmocka_unit_test_setup_teardown(budget_within_marks_and_characters, scratch_start, scratch_finish),
        cmocka_unit_test_setup_teardown(several_thoughts, scratch_start, scratch_finish),
        cmocka_unit_test_setup_teardown(guesses_across_an_opening, scratch_start, scratch_finish),
        cmocka_unit_test_setup_teardown(as_the_template_writes, scratch_start, scratch_finish),
        cmocka_unit_test_setup_teardown(as_messages, scratch_start, scratch_finish),
        cmocka_unit_test_setup_teardown(beginnings_are_the_same, scratch_start, scratch_finish),
        cmocka_unit_test_setup_teardown(stops_within_the_end, scratch_start, scratch_finish),
        cmocka_unit_test_setup_teardown(engines_give_the_same, scratch_start, scratch_finish),
        cmocka_unit_test_setup_teardown(grammar_behind_the_thought, scratch_start, scratch_finish),
        cmocka_unit_test_setup_teardown(calls_behind_the_thought, scratch_start, scratch_finish),
        cmocka_unit_test_setup_teardown(going_on_in_a_thought, scratch_start, scratch_finish),
        cmocka_unit_test_setup_teardown(marks_in_prompts, scratch_start, scratch_finish),
        cmocka_unit_test_setup_teardown(where_the_context_ends, scratch_start, scratch_finish),
        cmocka_unit_test_setup_teardown(probes_of_written_tokens, scratch_start, scratch_finish),
        cmocka_unit_test_setup_teardown(without_thoughts, scratch_start, scratch_finish),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
