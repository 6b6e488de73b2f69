/* Choices of tools: a model of random weights calls the tools that there are, with valid arguments, in every format; free text
 * stays free until a call begins, and text of a grammar is whole where there is no call. */
#include "chat/conversation.h"
#include "grammar/grammar.h"
#include "models/model.h"
#include "support/chat.h"
#include "support/json_file.h"
#include "support/options.h"
#include "support/scratch.h"
#include "support/test.h"
#include "support/tiny_model.h"
#include "template/eval.h"

#include <hearth/hearth.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char tools_json[] =
    "[{'type': 'function', 'function': {'name': 'weather', 'parameters': {'type': 'object', 'properties': {'city': "
    "{'anyOf': [{'type': 'string', 'maxLength': 3}, {'type': 'null'}]}, 'days': {'$ref': '#/$defs/few'}, 'unit': "
    "{'$ref': '#/$defs/unit'}}, 'required': ['city', 'days'], 'additionalProperties': false, '$defs': {'unit': "
    "{'enum': ['c', 'f']}, 'few': {'type': 'integer', 'minimum': 0, 'maximum': 9}}}}}, {'name': 'stop'}, {'name': "
    "'note', 'parameters': {'type': 'object', 'properties': {'at': {'type': 'array', 'items': {'type': 'boolean'}, "
    "'maxItems': 2}}, 'additionalProperties': false}}]";

#define BAR      "\xEF\xBD\x9C"
#define LOW      "\xE2\x96\x81"
#define DS(a, b) "<" BAR "tool" LOW a LOW b BAR ">"
#define DSEP     "<" BAR "tool" LOW "sep" BAR ">"
#define DSML     BAR "DSML" BAR
#define HARMONY  "<|channel|>analysis<|message|>"

/* What the template's source holds, and tokens of the model; the first of them opens a call. */
static const struct {
    const char *source, *tokens[12];
} formats[] = {
    {"<think><tool_call>", {"<tool_call>", "</tool_call>", "<think>", "</think>"}},
    {"<tool_call><function=<parameter=", {"<tool_call>", "</tool_call>"}},
    {"<tool_call><arg_key>", {"<tool_call>", "</tool_call>", "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>"}},
    {"<|python_tag|>", {"<|python_tag|>"}},
    {"<think><|python_tag|>", {"<|python_tag|>", "<think>", "</think>"}},
    {"\"parameters\": dictionary", {NULL}},
    {"[THINK][TOOL_CALLS]", {"[TOOL_CALLS]", "[THINK]", "[/THINK]"}},
    {"[TOOL_CALLS][ARGS]", {"[TOOL_CALLS]", "[ARGS]"}},
    {"[TOOL_CALLS][CALL_ID][ARGS]", {"[TOOL_CALLS]", "[ARGS]", "[CALL_ID]"}},
    {DS("calls", "begin") "```json",
     {DS("calls", "begin"), DS("calls", "end"), DS("call", "begin"), DS("call", "end"), DSEP}},
    {DS("calls", "begin"), {DS("calls", "begin"), DS("calls", "end"), DS("call", "begin"), DS("call", "end"), DSEP}},
    {"dsml_token + 'function_calls", {"<" DSML "function_calls>"}},
    {"dsml_token + 'tool_calls", {"<" DSML "tool_calls>"}},
    {"<|channel><tool_call|>", {"<|tool_call>", "<tool_call|>", "<|channel>", "<channel|>", "<|\"|>"}},
    {"<start_function_call>", {"<start_function_call>", "<end_function_call>", "<escape>"}},
    {"<|tool_calls_section_begin|>",
     {"<|tool_calls_section_begin|>", "<|tool_calls_section_end|>", "<|tool_call_begin|>", "<|tool_call_end|>",
      "<|tool_call_argument_begin|>"}},
    {"</seed:think><seed:tool_call>", {"<seed:tool_call>", "</seed:tool_call>", "<seed:think>", "</seed:think>"}},
    {"minimax:tool_call", {"<minimax:tool_call>", "</minimax:tool_call>"}},
    {"<tool_calls>", {"<tool_calls>", "</tool_calls>"}},
    {"<function name=", {"<function name="}},
    {"<function=", {"<function="}},
    {"<function=<parameter=", {"<function="}},
    {"<|tool_call_start|>", {"<|tool_call_start|>", "<|tool_call_end|>"}},
    {"<TOOLCALL>", {"<TOOLCALL>", "</TOOLCALL>"}},
    {"<extra_id_1>", {"<toolcall>", "</toolcall>"}},
    {"<|START_THINKING|><|START_ACTION|>",
     {"<|START_ACTION|>", "<|END_ACTION|>", "<|START_THINKING|>", "<|END_THINKING|>"}},
    {"<|inner_prefix|><|tools_prefix|>",
     {"<|tools_prefix|>", "<|tools_suffix|>", "<|inner_prefix|>", "<|inner_suffix|>"}},
    {"<|tool_call:begin|>",
     {"<|tool_calls|>", "<|calls|>", "<|tool_call:begin|>", "<|tool_call:name|>", "<|tool_call:args|>",
      "<|tool_call:end|>"}},
    {"<|tool_call|><|/tool_call|>", {"<|tool_call|>", "<|/tool_call|>"}},
    {"<|tool_call|>", {"<|tool_call|>"}},
    {"<|function_call|>", {"<|function_call|>"}},
    {"<function_calls>", {"<function_calls>"}},
    {"'Action:\\n```json'", {NULL}},
    {"<|/tool|>", {"<|tool_call|>", "<|/tool_call|>"}},
    {"<tool_calls{}></think{}>",
     {"<tool_calls:opensource>", "<tool_call:opensource>", "<tool_sep:opensource>", "</tool_call:opensource>",
      "</tool_calls:opensource>", "<think:opensource>", "</think:opensource>"}},
    {"<tool_calls>```json", {"<tool_calls>", "</tool_calls>", "<tool_call>", "</tool_call>"}},
    {"<tool_calls>[{", {"<tool_calls>", "</tool_calls>"}},
    {"[func_name1(param", {NULL}},
    {"<|python_end|>", {NULL}},
    {"functools[", {"functools["}},
    {"<|observation|>metadata", {"<|assistant|>"}},
    {HARMONY, {"<|channel|>", "<|message|>", "<|start|>", "<|end|>", "<|constrain|>"}},
};
enum { N_FORMATS = sizeof formats / sizeof *formats };

static ht_model *load(int i, bool special) {
    static char source[400];
    snprintf(source, sizeof source,
             "{%% for m in messages %%}<|im_start|>{{ m.content }}<|im_end|>{%% endfor %%}{# %s #}", formats[i].source);
    const tiny_options o = {.chat_template = source,
                            .special = special ? formats[i].tokens : NULL,
                            .words = special ? NULL : formats[i].tokens};
    return tiny_load(&o);
}

/* Tools written with ' for ". */
static void set_tools(ht_chat *chat, const char *tools) {
    assert_works(ht_chat_set_tools, chat, json_quoted(tools), strlen(tools));
}

static ht_chat *conversation(ht_tool_choice choice, const char *name, bool parallel) {
    ht_chat *chat = test_chat((const test_message[]){{"user", "hello"}}, 1);
    set_tools(chat, tools_json);
    assert_works(ht_chat_set_tool_choice, chat, choice, name, parallel);
    return chat;
}

/* ---- answers ---- */

typedef struct answer {
    ht_text calls, text, thinking;
    bool any_calls; /* they need not be of the tools */
    int n_calls, n_of[3];
    ht_metrics metrics;
} answer;

static const ht_jinja_value *member(ht_jinja_value v, const char *key) {
    return ht_jinja_dict_find_text(v.dict, key, strlen(key));
}

static bool is_weather(ht_jinja_value v) {
    const ht_jinja_value *city = member(v, "city"), *days = member(v, "days"), *unit = member(v, "unit");
    int64_t n;
    return city && days && v.dict->n == (unit ? 3 : 2) &&
           (city->kind == HT_VALUE_NONE || (ht_jinja_is_string(*city) && city->string->chars <= 3)) &&
           days->kind == HT_VALUE_INT && ht_jinja_as_integer(*days, &n) && n >= 0 && n <= 9 &&
           (!unit || (ht_jinja_is_string(*unit) &&
                      (ht_jinja_string_is(unit->string, "c") || ht_jinja_string_is(unit->string, "f"))));
}

static bool is_note(ht_jinja_value v) {
    const ht_jinja_value *at = member(v, "at");
    if (v.dict->n != (at ? 1 : 0)) return false;
    for (size_t i = 0; at && at->kind == HT_VALUE_LIST && i < at->list->n; i++)
        if (at->list->items[i].kind != HT_VALUE_BOOL) return false;
    return !at || (at->kind == HT_VALUE_LIST && at->list->n <= 2);
}

static void check_call(const ht_tool_call *call, answer *a) {
    static const char *const names[] = {"weather", "stop", "note"};
    ht_jinja_arena arena = {.limit = 1 << 20, .name = "a call"};
    const ht_jinja_value v = ht_jinja_json_value(&arena, call->arguments, strlen(call->arguments), "a call");
    assert_int_equal(arena.status, HT_OK);
    assert_int_equal(v.kind, HT_VALUE_DICT);
    int which = 0;
    while (which < 3 && strcmp(call->name, names[which]) != 0) which++;
    const bool good = which == 0 ? is_weather(v) : which == 1 ? v.dict->n == 0 : which == 2 && is_note(v);
    if (!good) fail_msg("%s %s", call->name, call->arguments);
    a->n_of[which]++;
    ht_jinja_arena_free(&arena);
}

static bool take(const ht_answer_piece *piece, void *user) {
    answer *a = user;
    if (piece->part == HT_ANSWER_CALL) {
        if (!a->any_calls) check_call(piece->call, a);
        a->n_calls++;
        ht_text_printf(&a->calls, "%s %s\n", piece->call->name, piece->call->arguments);
    } else
        ht_text_append(piece->part == HT_ANSWER_TEXT ? &a->text : &a->thinking, piece->text, piece->n);
    return true;
}

static void discard(answer *a) {
    ht_text_discard(&a->calls);
    ht_text_discard(&a->text);
    ht_text_discard(&a->thinking);
}

/* Beside the texts of a grammar calls are likelier with odd seeds. */
static const ht_logit_bias no_text[] = {{'x' - '!', -6}, {'y' - '!', -6}, {'z' - '!', -6}, {'(' - '!', -6}};

static answer generate_of(ht_model *m, const ht_chat *chat, ht_grammar *g, uint64_t seed, bool lookup, int32_t most) {
    answer a = {.n_calls = 0};
    ht_error err = {0};
    ht_session *s = tiny_session(m, 64);
    const ht_sampler_options sampler = OPTIONS(ht_sampler_options, with.temperature = 1.2f, with.seed = seed,
                                               with.logit_bias = no_text, with.n_logit_bias = g && seed % 2 ? 4 : 0);
    const ht_generate_options o = OPTIONS(ht_generate_options, with.max_tokens = most, with.sampler = &sampler,
                                          with.lookup = lookup, with.draft_tokens = lookup ? 3 : 0, with.grammar = g);
    if (ht_generate_chat(s, chat, &o, take, &a, &a.metrics, &err))
        fail_msg("choice %d: %s", (int)chat->tool_choice, err.message);
    ht_session_free(s);
    return a;
}

static answer generate(ht_model *m, const ht_chat *chat, uint64_t seed, bool lookup, int32_t most) {
    return generate_of(m, chat, NULL, seed, lookup, most);
}

static void check_with_guesses(ht_model *m, const ht_chat *chat, uint64_t seed, const answer *a) {
    answer b = generate(m, chat, seed, true, 1200);
    assert_int_equal(a->metrics.generated_tokens, b.metrics.generated_tokens);
    assert_int_equal(a->n_calls, b.n_calls);
    if (a->n_calls) assert_string_equal(a->calls.data, b.calls.data);
    discard(&b);
}

/* Answers of one choice of tools: several calls, one, or one of a name. */
static void check_required(ht_model *m, int format, int how, int *n_ended, int n_of[3]) {
    ht_chat *chat =
        conversation(how == 2 ? HT_TOOL_CHOICE_NAMED : HT_TOOL_CHOICE_REQUIRED, how == 2 ? "weather" : NULL, how == 0);
    for (uint64_t seed = 0; seed < (uint64_t)test_cases(1, 50); seed++) {
        answer a = generate(m, chat, seed, false, 1200);
        if (test_takes(format + (int)seed, TEST_SLOW ? 5 : 1)) check_with_guesses(m, chat, seed, &a);
        if (a.metrics.finish == HT_FINISH_STOP) {
            if (a.text.len)
                fail_msg("%s: text: %s thoughts: %s calls: %s", formats[format].source, a.text.data,
                         a.thinking.len ? a.thinking.data : "", a.n_calls ? a.calls.data : "");
            assert_true(a.n_calls > 0);
            ++*n_ended;
        } else
            assert_int_equal(a.metrics.finish, HT_FINISH_LENGTH);
        if (how > 0) assert_true(a.n_calls <= 1);
        if (how == 2) assert_int_equal(a.n_of[1] + a.n_of[2], 0);
        for (int k = 0; k < 3; k++) n_of[k] += a.n_of[k];
        discard(&a);
    }
    ht_chat_free(chat);
}

/* Calls and nothing else but thoughts, alone and with guesses, marks being special tokens or text: all of it in a soak, else
 * each format with one of the six. */
UNIT_TEST(required_calls) {
    int n_ended = 0, n_of[3] = {0};
    for (int i = 0; i < N_FORMATS; i++) {
        const int ended = n_ended, called = n_of[0];
        for (int special = 0; special < 2; special++) {
            ht_model *m = NULL;
            for (int how = 0; how < 3; how++) {
                if (!test_takes(i + 3 * special + how, 6)) continue;
                if (!m) m = load(i, special);
                check_required(m, i, how, &n_ended, n_of);
            }
            ht_model_free(m);
        }
        if (n_ended - ended < test_cases(0, 6) || n_of[0] - called < test_cases(0, 1))
            fail_msg("%s: %d answers ended, with %d calls", formats[i].source, n_ended - ended, n_of[0] - called);
    }
    if (n_ended < N_FORMATS / 2 || n_of[0] < 5 || n_of[1] + n_of[2] < 5)
        fail_msg("%d answers ended, with %d, %d, %d calls", n_ended, n_of[0], n_of[1], n_of[2]);
}

/* What begins as a call is one, whatever else there is; free text is what it is without a choice, up to the first call; and without
 * calls there is none. */
UNIT_TEST(free_answers) {
    int n_calls = 0, n_ends = 0;
    for (int i = 0; i < N_FORMATS; i++) {
        if (!formats[i].tokens[0]) continue;
        ht_model *m = load(i, true);
        const char *open = strcmp(formats[i].source, HARMONY) == 0 ? "to=functions." : formats[i].tokens[0];
        const uint64_t first = 100 * (uint64_t)i; /* the weights of all models are the same */
        for (uint64_t seed = first; seed < first + (uint64_t)test_cases(1, 50); seed++) {
            ht_chat *chat[3];
            answer got[3];
            for (int c = 0; c < 3; c++) {
                static const ht_tool_choice choices[] = {HT_TOOL_CHOICE_FREE, HT_TOOL_CHOICE_AUTO, HT_TOOL_CHOICE_NONE};
                chat[c] = conversation(choices[c], NULL, true);
                got[c] = generate(m, chat[c], seed, c == 1, 500);
                ht_chat_free(chat[c]);
            }
            const bool was_cut = got[1].metrics.finish == HT_FINISH_LENGTH;
            if (!was_cut && got[1].text.len) assert_null(strstr(got[1].text.data, open));
            assert_int_equal(got[2].n_calls, 0);
            if (got[2].text.len) assert_null(strstr(got[2].text.data, open));
            n_calls += got[1].n_calls;
            n_ends += !was_cut;
            /* Thoughts and text before the first call are the same. */
            const size_t n = got[0].text.len < got[1].text.len ? got[0].text.len : got[1].text.len;
            if (!got[1].n_calls && !was_cut && n) assert_memory_equal(got[0].text.data, got[1].text.data, n);
            for (int c = 0; c < 3; c++) discard(&got[c]);
        }
        ht_model_free(m);
    }
    if (n_calls < 5 || n_ends < 5) fail_msg("%d calls, %d ends", n_calls, n_ends);
}

/* ---- calls or the text of a grammar ---- */

enum { N_GRAMMARS = 3 };

static ht_grammar *grammar_of(ht_model *m, int kind) {
    static const char
        regex[] = "[xyz]{2,3}!",
        gbnf[] = "root ::= \"(\" root \")\" | \"x\"",
        schema[] = "{\"properties\": {\"k\": {\"enum\": [\"a\", \"b\"]}}, \"type\": \"object\", \"required\": [\"k\"], "
                   "\"additionalProperties\": false}";
    ht_grammar *g;
    ht_error err = {0};
    const ht_status status = kind == 0   ? ht_grammar_from_regex(m, regex, strlen(regex), &g, &err)
                             : kind == 1 ? ht_grammar_from_gbnf(m, gbnf, strlen(gbnf), &g, &err)
                                         : ht_grammar_from_json_schema(m, schema, strlen(schema), NULL, &g, &err);
    if (status) fail_msg("%s", err.message);
    return g;
}

static bool is_text_of(int kind, const char *text) {
    const size_t n = strlen(text);
    if (kind == 0) return strspn(text, "xyz") == n - 1 && n >= 3 && n <= 4 && text[n - 1] == '!';
    if (kind == 1) {
        const size_t depth = strspn(text, "(");
        return text[depth] == 'x' && strspn(text + depth + 1, ")") == depth && n == 2 * depth + 1;
    }
    ht_jinja_arena arena = {.limit = 1 << 20, .name = "a text"};
    const ht_jinja_value v = ht_jinja_json_value(&arena, text, n, "a text");
    const ht_jinja_value *k = v.kind == HT_VALUE_DICT ? member(v, "k") : NULL;
    const bool good = k && v.dict->n == 1 && ht_jinja_is_string(*k) &&
                      (ht_jinja_string_is(k->string, "a") || ht_jinja_string_is(k->string, "b"));
    ht_jinja_arena_free(&arena);
    return good;
}

/* Checks an answer beside a grammar and the same one with guesses, and counts it. */
static void check_text_or_calls(ht_model *m, const ht_chat *chat, ht_grammar *g, int kind, uint64_t seed, int *n_calls,
                                int *n_texts) {
    answer a = generate_of(m, chat, g, seed, false, 700), b = generate_of(m, chat, g, seed, true, 700);
    assert_int_equal(a.metrics.generated_tokens, b.metrics.generated_tokens);
    assert_int_equal(a.n_calls, b.n_calls);
    if (a.text.len) assert_string_equal(a.text.data, b.text.data);
    if (a.n_calls) assert_string_equal(a.calls.data, b.calls.data);
    if (a.metrics.finish == HT_FINISH_STOP) {
        const char *text = a.text.len ? a.text.data : "";
        if (a.n_calls ? *text : !is_text_of(kind, text))
            fail_msg("grammar %d, seed %d: %d calls, text: %s", kind, (int)seed, a.n_calls, text);
        *n_calls += a.n_calls > 0;
        *n_texts += a.n_calls == 0;
    }
    discard(&a);
    discard(&b);
}

/* An answer is calls or one whole text, never both, behind thoughts and not; the same one with guesses: every format beside
 * every grammar in a soak, else beside one. */
UNIT_TEST(text_or_calls) {
    int n_calls = 0, n_texts = 0;
    for (int i = 0; i < N_FORMATS; i++) {
        const int calls = n_calls, texts = n_texts;
        for (int special = 0; special < 2; special++) {
            ht_model *m = NULL;
            ht_grammar *before = NULL, *after = NULL;
            ht_chat *chat = conversation(HT_TOOL_CHOICE_AUTO, NULL, true);
            for (int kind = 0; kind < N_GRAMMARS; kind++) {
                if (!test_takes(i + 3 * special + kind, 6)) continue;
                if (!m) {
                    m = load(i, special);
                    assert_int_equal(ht_tool_cache_find(m, chat, true, &before, NULL), HT_OK);
                }
                ht_grammar *g = grammar_of(m, kind);
                const uint64_t first = 100 * (uint64_t)i, end = first + (uint64_t)test_cases(1, 60);
                for (uint64_t seed = first; seed < end; seed++)
                    check_text_or_calls(m, chat, g, kind, seed, &n_calls, &n_texts);
                ht_grammar_free(g);
            }
            if (m) assert_int_equal(ht_tool_cache_find(m, chat, true, &after, NULL), HT_OK);
            assert_ptr_equal(before, after); /* whatever it stands beside */
            ht_grammar_free(before);
            ht_grammar_free(after);
            ht_chat_free(chat);
            ht_model_free(m);
        }
        if (n_calls - calls < test_cases(0, 1) || n_texts - texts < test_cases(0, 1))
            fail_msg("%s: %d calls, %d texts", formats[i].source, n_calls - calls, n_texts - texts);
    }
    if (n_calls < 3 || n_texts < 3) fail_msg("%d calls, %d texts", n_calls, n_texts);
}

static ht_grammar *exactly(ht_model *m, const char *text) {
    ht_text pattern = {0};
    for (; *text; text++) ht_text_printf(&pattern, strchr("\\^$.*+?()[]{}|/", *text) ? "\\%c" : "%c", *text);
    ht_grammar *g = tiny_regex(m, pattern.data);
    ht_text_discard(&pattern);
    return g;
}

/* What reads as a call and is a text of the grammar is text, where it is decided that there is none. */
UNIT_TEST(texts_that_read_as_calls) {
    static const struct {
        const char *source, *text;
    } cases[] = {
        {"<think><tool_call>", "x<tool_call>{\"name\": \"stop\", \"arguments\": {}}</tool_call>"},
        {"<|python_tag|>", "{\"parameters\": {\"x\": 1}, \"name\": \"stop\"}"},
        {"\"parameters\": dictionary", "{\"name\": \"stop\" , \"parameters\" :  {}}"},
        {"[THINK][TOOL_CALLS]", "{\"a\": \"[TOOL_CALLS] [{\\\"name\\\": 1}]\"}"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int format = 0, n_calls = 0, n_texts = 0;
        while (strcmp(formats[format].source, cases[i].source) != 0) format++;
        ht_model *m = load(format, true);
        ht_grammar *g = exactly(m, cases[i].text);
        for (uint64_t seed = 0; seed < 24; seed++) {
            if (seed >= (uint64_t)test_cases(2, 24) && n_calls && (i == 2 || n_texts)) break;
            ht_chat *none = conversation(HT_TOOL_CHOICE_NONE, NULL, true),
                    *both = conversation(HT_TOOL_CHOICE_AUTO, NULL, true);
            ht_chat_set_thinking(none, false, NULL);
            ht_chat_set_thinking(both, false, NULL);
            answer a = generate_of(m, none, g, seed, seed % 2, 700), b = generate_of(m, both, g, seed, seed % 2, 700);
            assert_int_equal(a.n_calls, 0);
            assert_string_equal(a.text.data, cases[i].text);
            if (b.metrics.finish == HT_FINISH_STOP && !b.n_calls) {
                n_texts++;
                if (i != 2) assert_string_equal(b.text.data, cases[i].text);
            } else
                n_calls += b.n_calls > 0;
            discard(&a);
            discard(&b);
            ht_chat_free(none);
            ht_chat_free(both);
        }
        /* The third one begins as a call does, and has to be one. */
        if (!n_calls || (i != 2 && !n_texts) || (i == 2 && n_texts))
            fail_msg("%s: %d calls, %d texts", cases[i].text, n_calls, n_texts);
        ht_grammar_free(g);
        ht_model_free(m);
    }
}

/* Where calls have to be made the grammar has nothing to hold, and where there are none to make it holds all. */
UNIT_TEST(one_alone) {
    ht_model *m = load(0, true);
    ht_grammar *g = grammar_of(m, 0);
    ht_chat *chat = conversation(HT_TOOL_CHOICE_NAMED, "stop", false);
    int n_calls = 0;
    for (uint64_t seed = 0; seed < 6; seed++) {
        answer a = generate_of(m, chat, g, seed, false, 700);
        assert_int_equal(a.text.len, 0);
        if (a.metrics.finish == HT_FINISH_STOP) assert_int_equal(a.n_of[1], 1);
        n_calls += a.n_of[1];
        discard(&a);
    }
    assert_true(n_calls > 0);
    ht_grammar_free(g);
    ht_chat_free(chat);
    ht_model_free(m);
    /* No format that is known, no tools, and none that has arguments. */
    static const char *const lists[] = {tools_json, "[]",
                                        "[{'name': 'a', 'parameters': {'properties': {'b': {'type': 'string', "
                                        "'pattern': '^(?:a(?=b)c)$'}}, 'required': ['b']}}]"};
    for (int i = 0; i < 3; i++) {
        m = i ? load(i, true) : tiny_load(&(tiny_options){.chat_template = "{{ messages[0].content }}"});
        g = grammar_of(m, 0);
        chat = conversation(HT_TOOL_CHOICE_AUTO, NULL, true);
        set_tools(chat, lists[i]);
        assert_int_equal(ht_chat_set_thinking(chat, false, NULL), HT_OK);
        answer a = generate_of(m, chat, g, 1, false, 700);
        assert_true(is_text_of(0, a.text.data));
        discard(&a);
        ht_session *s = tiny_session(m, 64);
        assert_int_equal(ht_chat_set_tool_choice(chat, HT_TOOL_CHOICE_REQUIRED, NULL, true, NULL), HT_OK);
        assert_int_equal(ht_generate_chat(s, chat, NULL, NULL, NULL, NULL, NULL),
                         i ? HT_ERR_ARGUMENT : HT_ERR_UNSUPPORTED);
        ht_session_free(s);
        ht_grammar_free(g);
        ht_chat_free(chat);
        ht_model_free(m);
    }
}

/* ---- calls in pieces, alone and in an engine ---- */

typedef struct pieces {
    ht_text text;
    int n_ends, n_cut;
    size_t n_text; /* bytes that are no calls */
} pieces;

static bool take_piece(const ht_answer_piece *piece, int32_t answer_index, void *user) {
    pieces *p = user;
    assert_int_equal(answer_index, 0);
    assert_int_not_equal(piece->part, HT_ANSWER_CALL);
    if (piece->part == HT_ANSWER_TEXT) {
        ht_text_append(&p->text, piece->text, piece->n);
        p->n_text += piece->n;
    }
    if (piece->part == HT_ANSWER_CALL_BEGIN) ht_text_printf(&p->text, "%s ", piece->call->name);
    if (piece->part == HT_ANSWER_CALL_ARGUMENTS) ht_text_append(&p->text, piece->text, piece->n);
    if (piece->part == HT_ANSWER_CALL_END) {
        ht_text_append_str(&p->text, "\n");
        p->n_ends++;
        p->n_cut += piece->cut;
    }
    return true;
}

static bool take_alone(const ht_answer_piece *piece, void *user) { return take_piece(piece, 0, user); }

/* Calls alone, or with `kind` not negative beside the text of a grammar; what came in all. */
static pieces answers_in_pieces(int format, int kind) {
    ht_model *m = load(format, true);
    ht_engine *e;
    ht_grammar *g = kind < 0 ? NULL : grammar_of(m, kind);
    ht_chat *chat = conversation(g ? HT_TOOL_CHOICE_AUTO : HT_TOOL_CHOICE_REQUIRED, NULL, false);
    pieces all = {.n_ends = 0};
    assert_int_equal(ht_engine_open(m, NULL, &e, NULL), HT_OK);
    for (uint64_t seed = 0; seed < 100; seed++) {
        const bool has_all = all.n_ends > all.n_cut && (g ? all.n_text > 0 : all.n_cut > 0);
        if (seed >= (uint64_t)(g ? test_cases(1, 40) : test_cases(6, 12)) && (has_all || (g && test_cases(1, 0))))
            break;
        pieces alone = {.n_ends = 0}, shared = {.n_ends = 0};
        const ht_sampler_options sampler =
            OPTIONS(ht_sampler_options, with.temperature = 1, with.seed = seed, with.logit_bias = no_text,
                    with.n_logit_bias = g && seed % 2 ? 4 : 0);
        const int32_t most = seed % 2 ? 70 : seed % 8 == 4 ? 3 : 1500;
        const ht_generate_options o = OPTIONS(ht_generate_options, with.max_tokens = most, with.sampler = &sampler,
                                              with.call_pieces = true, with.grammar = g);
        ht_session *s = tiny_session(m, 64);
        assert_int_equal(ht_generate_chat(s, chat, &o, take_alone, &alone, NULL, NULL), HT_OK);
        ht_session_free(s);
        const ht_request r =
            OPTIONS(ht_request, with.chat = chat, with.options = &o, with.piece = take_piece, with.user = &shared);
        ht_ticket ticket;
        assert_int_equal(ht_engine_submit(e, &r, &ticket, NULL), HT_OK);
        ht_engine_wait(e, ticket);
        assert_int_equal(alone.n_ends, shared.n_ends);
        assert_int_equal(alone.n_cut, shared.n_cut);
        assert_int_equal(alone.text.len, shared.text.len);
        if (alone.text.len) assert_string_equal(alone.text.data, shared.text.data);
        assert_true((g && !alone.n_ends) || !alone.n_text); /* where calls are required nothing of them is text */
        all.n_ends += alone.n_ends;
        all.n_cut += alone.n_cut;
        all.n_text += alone.n_text;
        ht_text_discard(&alone.text);
        ht_text_discard(&shared.text);
    }
    ht_engine_close(e);
    ht_grammar_free(g);
    ht_chat_free(chat);
    ht_model_free(m);
    return all;
}

UNIT_TEST(calls_in_pieces) {
    const pieces calls = answers_in_pieces(0, -1);
    assert_true(calls.n_ends > calls.n_cut && calls.n_cut > 0);
    int n_calls = 0, n_texts = 0;
    for (int i = 0; i < N_FORMATS; i++) {
        const pieces both = answers_in_pieces(i, i % N_GRAMMARS);
        n_calls += both.n_ends > both.n_cut;
        n_texts += both.n_text > 0;
    }
    if (n_calls < test_cases(3, N_FORMATS) || n_texts < test_cases(3, N_FORMATS))
        fail_msg("%d formats with calls, %d with text", n_calls, n_texts);
}

/* How many bytes of a text the grammars of an answer allow. */
static size_t bytes_of(ht_grammar *g, ht_grammar *calls, ht_grammar_start start, const char *text) {
    ht_answer_matcher *matcher;
    size_t n = 0;
    bool allowed = true;
    assert_works(ht_answer_matcher_new, g, calls, start, &matcher);
    for (; text[n]; n++) {
        const int32_t id = text[n] == '\n' ? 198 : text[n] == ' ' ? 220 : text[n] - '!'; /* GPT-2's order of bytes */
        assert_works(ht_answer_matcher_accept, matcher, id, &allowed);
        if (!allowed) break;
    }
    ht_answer_matcher_free(matcher);
    return n;
}

static size_t allowed_bytes(ht_model *m, ht_tool_choice choice, bool parallel, const char *text) {
    ht_chat *chat = conversation(choice, NULL, parallel);
    ht_grammar *g;
    assert_works(ht_tool_cache_find, m, chat, false, &g);
    const size_t n = bytes_of(g, NULL, HT_START_ANSWER, text);
    ht_grammar_free(g);
    ht_chat_free(chat);
    return n;
}

/* Qwen3-Coder often leaves out the opening mark: in free text its calls are constrained all the same. */
UNIT_TEST(calls_without_opening_mark) {
    static const char call[] = "So:\n<function=stop>\n</function>\n</tool_call>", other[] = "<function=other";
    ht_model *m = load(1, false);
    for (int parallel = 0; parallel < 2; parallel++) {
        assert_int_equal(allowed_bytes(m, HT_TOOL_CHOICE_AUTO, parallel, call), strlen(call));
        assert_int_equal(allowed_bytes(m, HT_TOOL_CHOICE_AUTO, parallel, other), strlen("<function="));
        assert_int_equal(allowed_bytes(m, HT_TOOL_CHOICE_NONE, parallel, other), strlen("<function"));
    }
    ht_model_free(m);
}

#define START    "<|start|>assistant"
#define FINAL    "<|channel|>final<|message|>"
#define ANALYSIS HARMONY "1 < 2<|end|>" START
#define BY_ROLE  " to=functions.stop<|channel|>commentary "
#define IN_WORD  "\n" /* in a text: the grammar allows what comes before, and not what follows */

/* Checks that a text is allowed as a whole, or up to the IN_WORD in it. */
static void check_bytes(const char *allowed_text, size_t (*count)(const char *text, void *user), void *user) {
    char text[400];
    const size_t n = strcspn(allowed_text, IN_WORD);
    snprintf(text, sizeof text, "%.*s%s", (int)n, allowed_text, allowed_text[n] ? allowed_text + n + 1 : "");
    const size_t found = count(text, user);
    if (found != n) fail_msg("%s: %zu bytes are allowed, expected %zu", text, found, n);
}

typedef struct message_grammar {
    ht_model *m;
    ht_tool_choice choice;
    ht_grammar *g, *calls;
    ht_grammar_start start;
} message_grammar;

static size_t count_of_choice(const char *text, void *user) {
    const message_grammar *g = user;
    return allowed_bytes(g->m, g->choice, true, text);
}

static size_t count_of_grammar(const char *text, void *user) {
    const message_grammar *g = user;
    return bytes_of(g->g, g->calls, g->start, text);
}

/* gpt-oss answers in messages: headers and marks belong to an answer's grammar, and only tools' calls have recipients. */
UNIT_TEST(messages) {
    static const struct {
        ht_tool_choice choice;
        const char *text;
    } choices[] = {
        {HT_TOOL_CHOICE_REQUIRED, BY_ROLE "json<|message|>{}" IN_WORD "<|end|>"},
        {HT_TOOL_CHOICE_REQUIRED, ANALYSIS ANALYSIS BY_ROLE "<|constrain|>json<|message|>{}"},
        {HT_TOOL_CHOICE_REQUIRED, ANALYSIS "<|channel|>commentary to=functions.stop <|constrain|>json<|message|>{}"},
        {HT_TOOL_CHOICE_REQUIRED, BY_ROLE "json<|message|>{" IN_WORD "\"a\": 1}"},
        {HT_TOOL_CHOICE_REQUIRED, ANALYSIS "<|channel|>" IN_WORD "final"},
        {HT_TOOL_CHOICE_REQUIRED, "<|channel|>commentary" IN_WORD "<|message|>"},
        {HT_TOOL_CHOICE_REQUIRED, " to=functions." IN_WORD "other"},
        {HT_TOOL_CHOICE_AUTO,
         ANALYSIS "<|channel|>commentary<|message|>So:<|end|>" START BY_ROLE "json<|message|>{}" IN_WORD "x"},
        {HT_TOOL_CHOICE_AUTO,
         ANALYSIS "<|channel|>commentary to=functions.stop <|constrain|>json<|message|>{" IN_WORD "x"},
        {HT_TOOL_CHOICE_AUTO, ANALYSIS FINAL "to=functions.other {1 < 2} to=functions.other"},
        {HT_TOOL_CHOICE_AUTO, "<|channel|>commentary to=" IN_WORD "python code"},
        {HT_TOOL_CHOICE_AUTO, ANALYSIS "<|channel|>analysis to" IN_WORD "=functions.stop"},
        {HT_TOOL_CHOICE_AUTO, ANALYSIS " to=functions." IN_WORD "other"},
        {HT_TOOL_CHOICE_NONE, ANALYSIS FINAL "to=functions.stop"},
        {HT_TOOL_CHOICE_NONE, " to" IN_WORD "=functions.stop"},
        {HT_TOOL_CHOICE_NONE, ANALYSIS "<|channel|>commentary to" IN_WORD "=functions.stop"},
    };
    static const struct {
        ht_grammar_start start;
        bool beside_calls;
        const char *text;
    } texts[] = {
        {HT_START_TEXT, false, "xy!"},
        {HT_START_ANSWER, false, IN_WORD "xy!"},
        {HT_START_ANSWER, false, FINAL "xy!" IN_WORD "!"},
        {HT_START_ANSWER, false, FINAL IN_WORD "a"},
        {HT_START_ANSWER, false, ANALYSIS ANALYSIS "<|channel|>final <|constrain|>json<|message|>xy!"},
        {HT_START_ANSWER, false, ANALYSIS "<|channel|>" IN_WORD "commentary<|message|>"},
        {HT_START_IN_REASONING, false, "hm<|end|>" START FINAL "xy!"},
        {HT_START_ANSWER, true, ANALYSIS FINAL "xy!" IN_WORD "!"},
        {HT_START_ANSWER, true, ANALYSIS BY_ROLE "json<|message|>{}" IN_WORD "x"},
        {HT_START_ANSWER, true, "<|channel|>commentary" IN_WORD "<|message|>"},
    };
    int format = 0;
    while (strcmp(formats[format].source, HARMONY) != 0) format++;
    message_grammar g = {.m = load(format, false)};
    for (size_t i = 0; i < sizeof choices / sizeof *choices; i++) {
        g.choice = choices[i].choice;
        check_bytes(choices[i].text, count_of_choice, &g);
    }
    ht_chat *chat = conversation(HT_TOOL_CHOICE_AUTO, NULL, true);
    ht_grammar *calls;
    g.g = grammar_of(g.m, 0);
    assert_works(ht_tool_cache_find, g.m, chat, true, &calls);
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        g.start = texts[i].start;
        g.calls = texts[i].beside_calls ? calls : NULL;
        check_bytes(texts[i].text, count_of_grammar, &g);
    }
    ht_grammar_free(calls);
    ht_grammar_free(g.g);
    ht_chat_free(chat);
    ht_model_free(g.m);
}

/* Llama 4 marks text before its calls, and the marks alone. */
UNIT_TEST(calls_after_marked_text) {
#define STOP  "{\"name\": \"stop\", \"parameters\": {"
#define EMPTY "<|python_start|><|python_end|>"
    static const struct {
        ht_tool_choice choice;
        const char *text;
    } choices[] = {
        {HT_TOOL_CHOICE_REQUIRED, STOP "}}"},
        {HT_TOOL_CHOICE_REQUIRED, EMPTY STOP IN_WORD "\"a\""},
        {HT_TOOL_CHOICE_REQUIRED, "<|python_start|>" IN_WORD "So."},
        {HT_TOOL_CHOICE_AUTO, "<|python_start|>So.<|python_end|>" STOP IN_WORD "\"a\""},
        {HT_TOOL_CHOICE_AUTO, EMPTY STOP "}}"},
        {HT_TOOL_CHOICE_AUTO, "<|python_start|>So.<|python_end|>{\"name\": \"other\"} So"},
    };
    int format = 0;
    while (strcmp(formats[format].source, "<|python_end|>") != 0) format++;
    message_grammar g = {.m = load(format, false)};
    for (size_t i = 0; i < sizeof choices / sizeof *choices; i++) {
        g.choice = choices[i].choice;
        check_bytes(choices[i].text, count_of_choice, &g);
    }
    ht_model_free(g.m);
}

/* Marks around an answer's text are left to the model, before and after the text of a grammar. */
UNIT_TEST(marks_of_texts) {
    static const struct {
        ht_grammar_start start;
        const char *text;
    } texts[] = {
        {HT_START_TEXT, "xy!" IN_WORD "<"},           {HT_START_TEXT, IN_WORD "<answer>"},
        {HT_START_ANSWER, "xy!" IN_WORD "</answer>"}, {HT_START_ANSWER, "<answer> xy! </answer>" IN_WORD "x"},
        {HT_START_ANSWER, "<answer> " IN_WORD "a"},   {HT_START_ANSWER, "<think>hm</think> <answer>xy!</answer>"},
        {HT_START_IN_REASONING, "hm</think> xy!"},    {HT_START_IN_REASONING, "hm</think><answer>xy!</answer>"},
    };
    ht_model *m = tiny_load(&(tiny_options){.chat_template = "{{ messages[0].content }}{# <think><answer> #}"});
    message_grammar g = {.m = m, .g = grammar_of(m, 0)};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        g.start = texts[i].start;
        check_bytes(texts[i].text, count_of_grammar, &g);
    }
    ht_grammar_free(g.g);
    ht_model_free(m);
}

/* Tries a choice of tools (NULL: none are set): the status, and a part of the message. */
static void try(ht_model *m, const char *tools, ht_tool_choice choice, const char *name, ht_status status,
                const char *part) {
    ht_chat *chat = test_chat((const test_message[]){{"user", "hello"}}, 1);
    ht_session *s = tiny_session(m, 64);
    const ht_generate_options o = OPTIONS(ht_generate_options, with.max_tokens = 2);
    ht_error err = {0};
    if (tools) set_tools(chat, tools);
    ht_status found = ht_chat_set_tool_choice(chat, choice, name, true, &err);
    if (!found) found = ht_generate_chat(s, chat, &o, NULL, NULL, NULL, &err);
    if (found != status || !strstr(err.message, part)) fail_msg("choice %d: %d, %s", (int)choice, found, err.message);
    ht_chat_free(chat);
    ht_session_free(s);
}

UNIT_TEST(what_cannot_be) {
    ht_model *m = load(0, true);
    try(m, NULL, HT_TOOL_CHOICE_REQUIRED, NULL, HT_ERR_ARGUMENT, "no tools to call");
    try(m, tools_json, HT_TOOL_CHOICE_NAMED, "nothing", HT_ERR_ARGUMENT, "`nothing`");
    try(m, tools_json, HT_TOOL_CHOICE_NAMED, NULL, HT_ERR_ARGUMENT, "");
    try(m, tools_json, HT_TOOL_CHOICE_AUTO, "weather", HT_ERR_ARGUMENT, "");
    try(m, tools_json, (ht_tool_choice)9, NULL, HT_ERR_ARGUMENT, "");
    try(m, "[{\"name\": \"two words\"}]", HT_TOOL_CHOICE_NAMED, "two words", HT_ERR_ARGUMENT, "two words");
    try(m, NULL, HT_TOOL_CHOICE_AUTO, NULL, HT_OK, "");
    try(m, NULL, HT_TOOL_CHOICE_NONE, NULL, HT_OK, "");
    ht_model_free(m);
    m = tiny_load(&(tiny_options){.chat_template = "{{ messages[0].content }}"});
    try(m, tools_json, HT_TOOL_CHOICE_REQUIRED, NULL, HT_ERR_UNSUPPORTED, "no known tool-call format");
    try(m, tools_json, HT_TOOL_CHOICE_AUTO, NULL, HT_OK, "");
    ht_model_free(m);
}

static int n_warnings, n_untried;

static void count_warning(ht_log_level level, const char *message, void *user) {
    (void)user;
    if (level == HT_LOG_WARNING && strstr(message, "not constrained by their schema")) n_warnings++;
    if (strstr(message, "before it are too complex")) n_untried++;
}

/* A schema that is refused is a warning, once, and its arguments are objects; the other tools' are held to theirs. */
UNIT_TEST(schemas_that_are_refused) {
    static const char tools[] = "[{'name': 'odd', 'parameters': {'properties': {'a': {'type': 'array', 'uniqueItems': "
                                "true}}, 'maxProperties': 1}}, {'name': 'wrong', 'parameters': {'type': 7}}, {'name': "
                                "'none', 'parameters': {'type': 'string'}}, {'name': 'stop'}]";
    ht_log_set(count_warning, HT_LOG_WARNING, NULL);
    ht_model *m = load(0, true);
    ht_chat *chat = test_chat((const test_message[]){{"user", "hello"}}, 1);
    int n_of[2] = {0};
    n_warnings = 0;
    set_tools(chat, tools);
    assert_int_equal(ht_chat_set_tool_choice(chat, HT_TOOL_CHOICE_REQUIRED, NULL, false, NULL), HT_OK);
    for (uint64_t seed = 0; seed < (n_of[1] ? 12 : 200); seed++) {
        answer a = {.any_calls = true};
        ht_session *s = tiny_session(m, 64);
        const ht_sampler_options sampler = OPTIONS(ht_sampler_options, with.temperature = 3, with.seed = seed);
        const ht_generate_options o = OPTIONS(ht_generate_options, with.max_tokens = 1500, with.sampler = &sampler);
        assert_int_equal(ht_generate_chat(s, chat, &o, take, &a, &a.metrics, NULL), HT_OK);
        if (a.metrics.finish == HT_FINISH_STOP) {
            assert_int_equal(a.n_calls, 1);
            const bool stops = strncmp(a.calls.data, "stop", 4) == 0;
            if (stops) assert_string_equal(a.calls.data, "stop {}\n");
            n_of[stops]++;
        }
        discard(&a);
        ht_session_free(s);
    }
    assert_true(n_of[1] > 0);
    assert_int_equal(n_warnings, 3);
    ht_chat_free(chat);
    ht_model_free(m);
    ht_log_set(NULL, HT_LOG_WARNING, NULL);
}

/* Of many tools whose schemas are too complex, each of which takes long to find out, the first few are tried. */
UNIT_TEST(many_complex_tools) {
    ht_model *m = load(0, true);
    ht_chat *chat = test_chat((const test_message[]){{"user", "hello"}}, 1);
    ht_text tools = {0};
    ht_grammar *g;
    ht_text_append_str(&tools, "[{\"name\": \"first\", \"parameters\": {\"properties\": {\"a\": {}}}}");
    for (int i = 0; i < 12; i++) {
        ht_text_printf(&tools, ", {\"name\": \"complex%d\", \"parameters\": {\"patternProperties\": {", i);
        for (int k = 0; k < 30; k++)
            ht_text_printf(&tools, "%s\"^%c%d\": {\"type\": \"null\"}", k ? ", " : "", 'a' + i, k);
        ht_text_append_str(&tools, "}}}");
    }
    ht_text_append_str(&tools, ", {\"name\": \"last\", \"parameters\": {\"properties\": {\"a\": {}}}}]");
    assert_false(tools.failed);
    assert_int_equal(ht_chat_set_tools(chat, tools.data, tools.len, NULL), HT_OK);
    assert_int_equal(ht_chat_set_tool_choice(chat, HT_TOOL_CHOICE_REQUIRED, NULL, false, NULL), HT_OK);
    ht_log_set(count_warning, HT_LOG_WARNING, NULL);
    n_warnings = n_untried = 0;
    assert_int_equal(ht_tool_cache_find(m, chat, false, &g, NULL), HT_OK);
    ht_log_set(NULL, HT_LOG_WARNING, NULL);
    assert_int_equal(n_warnings, 13); /* all but the first */
    assert_int_equal(n_untried, 5);
    ht_grammar_free(g);
    ht_text_discard(&tools);
    ht_chat_free(chat);
    ht_model_free(m);
}

/* The same tools are compiled once, and of many the latest are kept. */
UNIT_TEST(grammars_are_kept) {
    ht_model *m = load(0, true);
    ht_grammar *kept[8] = {NULL}, *g;
    for (int round = 0; round < 3; round++)
        for (int i = 0; i < 8; i++) {
            char tools[64];
            ht_chat *chat = conversation(HT_TOOL_CHOICE_AUTO, NULL, i % 2);
            snprintf(tools, sizeof tools, "[{\"name\": \"tool%d\"}]", i / 2);
            set_tools(chat, tools);
            assert_int_equal(ht_tool_cache_find(m, chat, false, &g, NULL), HT_OK);
            if (round) assert_ptr_equal(g, kept[i]);
            ht_grammar_free(kept[i]);
            kept[i] = g;
            ht_chat_free(chat);
        }
    ht_chat *chat = conversation(HT_TOOL_CHOICE_NAMED, "stop", true);
    assert_int_equal(ht_tool_cache_find(m, chat, false, &g, NULL), HT_OK);
    for (int i = 0; i < 8; i++) {
        assert_ptr_not_equal(g, kept[i]);
        ht_grammar_free(kept[i]);
    }
    ht_grammar_free(g);
    ht_chat_free(chat);
    ht_model_free(m);
}

/* A choice is a part of the conversation as JSON. */
UNIT_TEST(choices_as_json) {
    static const struct {
        const char *member;
        ht_tool_choice choice;
        bool parallel;
    } cases[] = {
        {"'tool_choice': 'auto'", HT_TOOL_CHOICE_AUTO, true},
        {"'tool_choice': 'none', 'parallel_tool_calls': false", HT_TOOL_CHOICE_NONE, false},
        {"'tool_choice': 'required'", HT_TOOL_CHOICE_REQUIRED, true},
        {"'tool_choice': {'type': 'function', 'function': {'name': 'stop'}}", HT_TOOL_CHOICE_NAMED, true},
        {"'tool_choice': null", HT_TOOL_CHOICE_FREE, true},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char json[256], *written;
        ht_chat *chat, *again;
        snprintf(json, sizeof json, "{'messages': [{'role': 'user', 'content': 'a'}], %s}", cases[i].member);
        assert_int_equal(ht_chat_from_json(json_quoted(json), strlen(json), &chat, NULL), HT_OK);
        assert_int_equal(chat->tool_choice, cases[i].choice);
        assert_int_equal(chat->parallel_calls, cases[i].parallel);
        assert_int_equal(ht_chat_to_json(chat, &written, NULL), HT_OK);
        assert_int_equal(ht_chat_from_json(written, strlen(written), &again, NULL), HT_OK);
        assert_int_equal(again->tool_choice, cases[i].choice);
        assert_int_equal(again->parallel_calls, cases[i].parallel);
        assert_int_equal(!again->tool_name, cases[i].choice != HT_TOOL_CHOICE_NAMED);
        if (again->tool_name) assert_string_equal(again->tool_name->text, "stop");
        ht_text_free(written);
        ht_chat_free(chat);
        ht_chat_free(again);
    }
    static const char *const wrong[] = {"'tool_choice': 'any'", "'tool_choice': 1", "'tool_choice': {}",
                                        "'parallel_tool_calls': 1"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        char json[256];
        ht_chat *chat;
        snprintf(json, sizeof json, "{'messages': [{'role': 'user', 'content': 'a'}], %s}", wrong[i]);
        assert_fails(HT_ERR_FORMAT, "expected", ht_chat_from_json, json_quoted(json), strlen(json), &chat);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(required_calls, scratch_start, scratch_finish),
        cmocka_unit_test_setup_teardown(free_answers, scratch_start, scratch_finish),
        cmocka_unit_test_setup_teardown(text_or_calls, scratch_start, scratch_finish),
        cmocka_unit_test_setup_teardown(texts_that_read_as_calls, scratch_start, scratch_finish),
        cmocka_unit_test_setup_teardown(one_alone, scratch_start, scratch_finish),
        cmocka_unit_test_setup_teardown(calls_in_pieces, scratch_start, scratch_finish),
        cmocka_unit_test_setup_teardown(calls_without_opening_mark, scratch_start, scratch_finish),
        cmocka_unit_test_setup_teardown(messages, scratch_start, scratch_finish),
        cmocka_unit_test_setup_teardown(calls_after_marked_text, scratch_start, scratch_finish),
        cmocka_unit_test_setup_teardown(marks_of_texts, scratch_start, scratch_finish),
        cmocka_unit_test_setup_teardown(what_cannot_be, scratch_start, scratch_finish),
        cmocka_unit_test_setup_teardown(schemas_that_are_refused, scratch_start, scratch_finish),
        cmocka_unit_test_setup_teardown(many_complex_tools, scratch_start, scratch_finish),
        cmocka_unit_test_setup_teardown(grammars_are_kept, scratch_start, scratch_finish),
        cmocka_unit_test(choices_as_json),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
