/* Out of memory while grammars are compiled and texts are matched is an error, and the next call is as if nothing had been; as in
 * test_allocation.c. */
#include "base/error.h"
#include "chat/conversation.h"
#include "chat/response.h"
#include "device/device.h"
#include "generate/masks_ahead.h"
#include "grammar/automaton.h"
#include "grammar/grammar.h"
#include "grammar/schema_rules.h"
#include "models/model.h"
#include "support/allocations.h"
#include "support/options.h"
#include "support/scratch.h"
#include "support/test.h"
#include "support/tiny_model.h"

#include <hearth/generate.h>
#include <hearth/grammar.h>

#include <stdio.h>
#include <string.h>

static ht_model *model;
static ht_grammar *grammar, *calls;

static const char nested[] =
    "root ::= \"[\" (item (\",\" item)*)? \"]\"\nitem ::= root | [0-9]{1,3} | word\nword ::= [a-c]+";

static ht_status compile(ht_error *err) {
    ht_grammar *g;
    const ht_status st = ht_grammar_from_gbnf(model, nested, strlen(nested), &g, err);
    ht_grammar_free(g);
    return st;
}

static ht_status compile_regex(ht_error *err) {
    static const char pattern[] = "(?=.*\\d)[^a]{2,4}\\p{Lu}|x";
    ht_grammar *g;
    const ht_status st = ht_grammar_from_regex(model, pattern, strlen(pattern), &g, err);
    ht_grammar_free(g);
    return st;
}

/* With masks found ahead, unless t is NULL. */
static ht_status match_text(ht_masks_ahead *t, ht_error *err) {
    static const char text[] = "[[1,abc],22]";
    ht_answer_matcher *m;
    ht_ending ending;
    const uint32_t *mask;
    ht_mask_order order = {.next = NULL};
    ht_status st = ht_answer_matcher_new(grammar, NULL, HT_START_TEXT, &m, err);
    for (size_t i = 0; i < strlen(text) && !st; i++) {
        bool allowed;
        const char one[2] = {text[i]};
        const int32_t token = ht_tokenizer_find(ht_model_tokenizer(model), one);
        if (t) ht_masks_ahead_order(t, &order, m, &token, 1);
        st = ht_answer_matcher_mask(m, &mask, err);
        if (!st) st = ht_answer_matcher_accept(m, token, &allowed, err);
        if (!st) assert_true(allowed);
        if (t) ht_masks_ahead_end(t, &order);
    }
    if (!st) st = ht_answer_matcher_ending(m, &ending, err);
    if (!st) assert_int_equal(ending, HT_ENDING_MUST);
    ht_answer_matcher_free(m);
    ht_grammar_set_budget(grammar, 1); /* the next one starts with nothing */
    return st;
}

/* The same beside calls, of which one is half written and taken back first. */
static ht_status match_either(ht_error *err) {
    static const char call[] = "<tool_call>{\"name\": \"a\"", text[] = "[[1,abc],22]";
    ht_answer_matcher *m;
    const uint32_t *mask;
    ht_status st = ht_answer_matcher_new(grammar, calls, HT_START_TEXT, &m, err);
    for (size_t i = 0; i < strlen(call) + strlen(text) && !st; i++) {
        bool allowed;
        const size_t n = i < strlen(call) ? i : i - strlen(call);
        const char one[3] = {n < i ? text[n] : call[n]}, *token = *one == ' ' ? "\xC4\xA0" : one;
        if (n < i && !n) ht_answer_matcher_truncate(m, 0);
        st = ht_answer_matcher_mask(m, &mask, err);
        if (!st) st = ht_answer_matcher_accept(m, ht_tokenizer_find(ht_model_tokenizer(model), token), &allowed, err);
        if (!st) assert_true(allowed && ht_answer_matcher_length(m) == n + 1);
        if (st && m) assert_int_equal(ht_answer_matcher_length(m), n);
    }
    ht_answer_matcher_free(m);
    ht_grammar_set_budget(grammar, 1);
    ht_grammar_set_budget(calls, 1);
    return st;
}

/* What one call could not get is no loss to the next: the grammar is shared. */
static ht_status match(ht_error *err) { return match_text(NULL, err); }

/* Nor is what the thread could not get. */
static ht_status match_ahead(ht_error *err) {
    static const ht_queue_ops queue;
    static const ht_device elsewhere = {.queue = &queue, .n_threads = 1};
    ht_masks_ahead *t = ht_masks_ahead_new(&elsewhere);
    if (!t) return ht_fail_memory(err, 0, "a thread");
    const ht_status st = match_text(t, err);
    ht_masks_ahead_free(t);
    return st;
}

static ht_status generate(ht_error *err) {
    static const int32_t ids[] = {1, 2, 3};
    const ht_generate_options o = OPTIONS(ht_generate_options, with.max_tokens = 4, with.grammar = grammar);
    ht_session *s;
    ht_status st = ht_session_new(model, NULL, &s, err);
    if (!st) st = ht_generate(s, ids, 3, &o, NULL, NULL, NULL, err);
    ht_session_free(s);
    return st;
}

/* An answer whose thought is cut. */
static ht_status end_thought(ht_error *err) {
    const ht_generate_options o =
        OPTIONS(ht_generate_options, with.max_tokens = 16, with.max_thinking_tokens = 2, with.ignore_eos = true);
    ht_session *s;
    ht_metrics metrics;
    ht_status st = ht_session_new(model, NULL, &s, err);
    if (!st) st = ht_generate_text(s, "a<think>", &o, NULL, NULL, &metrics, err);
    if (!st) assert_true(metrics.thought_ended && metrics.generated_tokens == 16);
    ht_session_free(s);
    return st;
}

/* The model keeps what was compiled, and nothing of what was not. */
static ht_status compile_tools_for(ht_tool_choice choice, ht_grammar **out, ht_error *err) {
    static int n; /* other tools each time: those of before are kept */
    static const char format[] =
        "[{\"name\": \"a\", \"parameters\": {\"properties\": {\"b\": {\"type\": \"boolean\"}}, "
        "\"additionalProperties\": false}}, {\"name\": \"stop%d\"}]";
    char tools[256];
    ht_chat *chat;
    *out = NULL;
    ht_status st = ht_chat_new(&chat, err);
    snprintf(tools, sizeof tools, format, n++);
    if (!st) st = ht_chat_set_tools(chat, tools, strlen(tools), err);
    if (!st) st = ht_chat_set_tool_choice(chat, choice, NULL, true, err);
    if (!st) st = ht_tool_cache_find(model, chat, choice == HT_TOOL_CHOICE_AUTO, out, err);
    if (!st) assert_non_null(*out);
    ht_chat_free(chat);
    return st;
}

static ht_status compile_tools(ht_error *err) {
    ht_grammar *g;
    const ht_status st = compile_tools_for(HT_TOOL_CHOICE_REQUIRED, &g, err);
    ht_grammar_free(g);
    return st;
}

static ht_status compile_tools_beside_text(ht_error *err) {
    ht_grammar *g;
    const ht_status st = compile_tools_for(HT_TOOL_CHOICE_AUTO, &g, err);
    ht_grammar_free(g);
    return st;
}

/* An answer with a call in pieces, at its beginning. */
static ht_status call_in_pieces(ht_error *err) {
    static const char text[] =
        "<tool_call>{\"name\": \"a\", \"id\": \"1\", \"arguments\": {\"b\": true}}</tool_call> end";
    ht_response_reader *r;
    ht_status st = ht_response_reader_new(model->chat.template, ht_jinja_none(), "", 0, NULL, NULL, &r, err);
    if (st) return st;
    ht_response_reader_set_call_pieces(r, true);
    if (ht_response_put(r, text, strlen(text)) == HT_RESPONSE_NO_MEMORY || ht_response_end(r) == HT_RESPONSE_NO_MEMORY)
        st = ht_fail_memory(err, 0, "the answer");
    ht_response_reader_free(r);
    return st;
}

UNIT_TEST(grammars) {
    model = tiny_load(&(tiny_options){
        .context = 64, .n_threads = 1, .chat_template = "{{ messages[0].content }}{# <think><tool_call> #}"});
    assert_true(try_every_failure(compile, NOTHING_ELSE) > 30); /* the first time with the trie of tokens */
    assert_true(try_every_failure(compile_regex, NOTHING_ELSE) > 20);
    assert_int_equal(ht_grammar_from_gbnf(model, nested, strlen(nested), &grammar, NULL), HT_OK);
    assert_true(try_every_failure(match, NOTHING_ELSE) > 30);
    assert_true(try_every_failure(match_ahead, ALSO_OK) > 30);
    assert_true(try_every_failure(generate, ALSO_OK) > 30);
    assert_true(try_every_failure(end_thought, ALSO_OK) > 60);
    assert_true(try_every_failure(compile_tools, NOTHING_ELSE) > 100);
    assert_true(try_every_failure(compile_tools_beside_text, NOTHING_ELSE) > 100);
    assert_int_equal(compile_tools_for(HT_TOOL_CHOICE_AUTO, &calls, NULL), HT_OK);
    assert_true(try_every_failure(match_either, NOTHING_ELSE) > 60);
    ht_grammar_free(calls);
    assert_true(try_every_failure(call_in_pieces, ALSO_OK) > 3);
    ht_grammar_free(grammar);
    ht_model_free(model);
}

static const char *schema, *text;

/* Compiles the schema, and reads the text, which is valid: an error at every allocation, and nothing is left. */
static ht_status compile_and_read(ht_error *err) {
    ht_rules *rules;
    ht_automaton *a;
    ht_status st = ht_schema_compile(schema, strlen(schema), NULL, &rules, err);
    if (st) {
        assert_null(rules);
        return st;
    }
    st = ht_automaton_new(rules, &a, err);
    if (st) {
        assert_null(a);
        return st;
    }
    const uint32_t end = ht_automaton_feed(a, a->start[0], text, strlen(text));
    st = ht_automaton_status(a, err);
    const bool read = ht_automaton_may_end(a, end);
    ht_automaton_free(a);
    if (!st && !read) fail_msg("%s is refused by %s", text, schema);
    return st;
}

static void fail_each(const char *of, const char *valid) {
    schema = of;
    text = valid;
    assert_true(try_every_failure(compile_and_read, NOTHING_ELSE) > 20);
}

UNIT_TEST(schemas) {
    fail_each("{\"type\": \"object\", \"properties\": {\"a\": {\"type\": \"string\", \"format\": \"time\"}, "
              "\"b\": {\"$ref\": \"#\"}},"
              "\"patternProperties\": {\"^x+$\": {\"multipleOf\": 0.5}}, \"required\": [\"a\"],"
              "\"additionalProperties\": {\"enum\": [1, \"one\", \"ones\", null, [true]]}}",
              "{\"a\": \"10:20:30Z\", \"b\": {\"a\": \"10:20:30Z\"}, \"xx\": 1.5, \"c\": [true]}");
    fail_each(
        "{\"$id\": \"http://a/b\", \"$defs\": {\"n\": {\"$id\": \"n\", \"$dynamicAnchor\": \"x\", \"minimum\": 2}},"
        "\"$dynamicAnchor\": \"x\", \"oneOf\": [{\"items\": {\"$dynamicRef\": \"n#x\"}, \"contains\": {\"const\": 3},"
        "\"maxContains\": 2, \"type\": \"array\"}, {\"minimum\": 1, \"maximum\": 9.75, \"type\": \"number\"}]}",
        "[[3], 3]");
    fail_each(
        "{\"allOf\": [{\"properties\": {\"a\": {}}}, {\"not\": {\"required\": [\"b\"]}}], \"anyOf\": [{\"properties\":"
        "{\"c\": true}, \"required\": [\"c\"]}, {}], \"unevaluatedProperties\": {\"items\": {\"enum\": [1, 2]},"
        "\"uniqueItems\": true}, \"propertyNames\": {\"maxLength\": 4}, \"minProperties\": 2}",
        "{\"a\": 0, \"c\": {}, \"d\": [2, 1]}");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(grammars, scratch_start, scratch_finish),
        cmocka_unit_test(schemas),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
