/* Conversations: what a template is given of them, what the built-in formats write, and what is refused. */
#include "chat/conversation.h"
#include "checkpoint/chat_detection.h"
#include "support/chat.h"
#include "support/json_file.h"
#include "support/options.h"
#include "support/test.h"

#include <hearth/hearth.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static ht_chat_setup setup_of(const char *source) {
    ht_chat_setup setup;
    assert_works(ht_chat_setup_parse, source, "template", "t", &setup);
    if (setup.error.status) fail_msg("%s", setup.error.message);
    return setup;
}

static ht_status write_with(const char *source, const char *bos, const char *eos, const ht_chat *chat, char **text,
                            ht_error *err) {
    ht_chat_setup setup = setup_of(source);
    ht_chat_text written;
    const ht_status status = ht_chat_write(&setup, bos, eos, chat, &written, err);
    *text = written.text;
    free(written.runs);
    ht_chat_setup_free(&setup);
    return status;
}

/* What the template writes of the conversation, which it frees. */
static void expect_text(const char *source, ht_chat *chat, const char *expected) {
    char *text;
    ht_error err = {0};
    if (write_with(source, "<bos>", "<eos>", chat, &text, &err)) fail_msg("%s: %s", source, err.message);
    assert_string_equal(text, expected);
    free(text);
    ht_chat_free(chat);
}

static ht_chat *from_json(const char *json) {
    ht_chat *chat;
    ht_error err = {0};
    json = json_quoted(json);
    if (ht_chat_from_json(json, strlen(json), &chat, &err)) fail_msg("%s: %s", json, err.message);
    return chat;
}

static const char *source_of(const char *format) {
    const ht_builtin_chat_format *f;
    for (int i = 0; (f = ht_builtin_chat_format_at(i)); i++)
        if (strcmp(f->name, format) == 0) return f->source;
    fail_msg("there is no format %s", format);
    return NULL;
}

/* ---- built-in formats ---- */

UNIT_TEST(formats_without_a_template) {
    const test_message messages[] = {{"system", "Be brief."}, {"user", " Hi "}, {"assistant", "Yes"}, {"user", "Bye"}};
    ht_chat *chat = test_chat(messages, 4);
    static const struct {
        const char *format, *expected;
    } cases[] = {
        {"chatml", "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\n Hi <|im_end|>\n<|im_start|>assistant\n"
                   "Yes<|im_end|>\n<|im_start|>user\nBye<|im_end|>\n<|im_start|>assistant\n"},
        {"gemma", "<bos><start_of_turn>user\nBe brief.\n\nHi<end_of_turn>\n<start_of_turn>model\nYes<end_of_turn>\n"
                  "<start_of_turn>user\nBye<end_of_turn>\n<start_of_turn>model\n"},
        {"gemma4",
         "<bos><|turn>system\nBe brief.<turn|>\n<|turn>user\nHi<turn|>\n<|turn>model\nYes<turn|>\n<|turn>user\n"
         "Bye<turn|>\n<|turn>model\n"},
        {"llama3", "<bos><|start_header_id|>system<|end_header_id|>\n\nBe brief.<|eot_id|><|start_header_id|>user"
                   "<|end_header_id|>\n\nHi<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\nYes<|eot_id|>"
                   "<|start_header_id|>user<|end_header_id|>\n\nBye<|eot_id|><|start_header_id|>assistant"
                   "<|end_header_id|>\n\n"},
        {"deepseek", "<bos>Be brief.<\357\275\234User\357\275\234> Hi <\357\275\234Assistant\357\275\234>Yes"
                     "<\357\275\234end\342\226\201of\342\226\201sentence\357\275\234>"
                     "<\357\275\234User\357\275\234>Bye<\357\275\234Assistant\357\275\234>"},
        {"llama2", "<bos>[INST] <<SYS>>\nBe brief.\n<</SYS>>\n\n Hi [/INST] Yes <eos>[INST] Bye [/INST]"},
        {"mistral", "<bos>[INST]Be brief.\n\n Hi [/INST]Yes<eos>[INST]Bye[/INST]"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *text;
        ht_error err = {0};
        assert_works(write_with, source_of(cases[i].format), "<bos>", "<eos>", chat, &text);
        assert_string_equal(text, cases[i].expected);
        free(text);
        assert_int_equal(write_with(source_of(cases[i].format), NULL, NULL, chat, &text, &err), HT_OK);
        assert_null(strstr(text, "<bos>"));
        free(text);
    }
    ht_chat_free(chat);
    int n = 0;
    while (ht_builtin_chat_format_at(n)) n++;
    assert_int_equal(n, sizeof cases / sizeof *cases);
    assert_string_equal(ht_model_chat_format(0), "chatml");
    assert_null(ht_model_chat_format(n));
    assert_null(ht_model_chat_format(-1));
}

/* Thoughts in earlier answers. */
UNIT_TEST(formats_leave_thoughts_out) {
    const test_message gemma[] = {{"user", "a"}, {"assistant", "<|channel>thought\nhm<channel|> b "}, {"user", "c"}};
    expect_text(source_of("gemma4"), test_chat(gemma, 3),
                "<bos><|turn>user\na<turn|>\n<|turn>model\nb<turn|>\n<|turn>user\nc<turn|>\n<|turn>model\n");
    const test_message deepseek[] = {{"user", "a"}, {"assistant", "<think>hm</think> b"}, {"user", "c"}};
    char *text;
    ht_error err = {0};
    ht_chat *chat = test_chat(deepseek, 3);
    assert_int_equal(write_with(source_of("deepseek"), NULL, NULL, chat, &text, &err), HT_OK);
    assert_null(strstr(text, "hm"));
    assert_non_null(strstr(text, " b<"));
    free(text);
    ht_chat_free(chat);
}

static void expect_refusal(const char *format, const test_message *messages, size_t n, ht_status status,
                           const char *part) {
    ht_chat *chat = test_chat(messages, n);
    char *text = (char *)1;
    ht_error err = {0};
    ht_status found = write_with(source_of(format), NULL, NULL, chat, &text, &err);
    ht_chat_free(chat);
    assert_null(text);
    if (found != status || !strstr(err.message, part)) fail_msg("message \"%s\" lacks \"%s\"", err.message, part);
}

UNIT_TEST(what_is_refused) {
    const test_message user = {"user", "x"}, system = {"system", "x"}, tool = {"tool", "x"};
    expect_refusal("chatml", NULL, 0, HT_ERR_ARGUMENT, "no messages");
    expect_refusal("chatml", &tool, 1, HT_ERR_ARGUMENT, "message 0 is of a tool");
    expect_refusal("gemma", &system, 1, HT_ERR_ARGUMENT, "needs a user message");
    expect_refusal("gemma", (const test_message[]){user, user}, 2, HT_ERR_ARGUMENT, "expected assistant");
    expect_refusal("gemma", (const test_message[]){user, system}, 2, HT_ERR_ARGUMENT, "message 1 has the role system");
    expect_refusal("mistral", (const test_message[]){user, user}, 2, HT_ERR_ARGUMENT, "expected assistant");
    expect_refusal("llama2", &system, 1, HT_ERR_ARGUMENT, "needs a user message");
    ht_chat *chat = test_chat(&user, 1);
    char *text;
    ht_chat_text none;
    ht_error err = {0};
    assert_fails(HT_ERR_UNSUPPORTED, "no chat template", ht_chat_write, &(ht_chat_setup){0}, NULL, NULL, chat, &none);
    const ht_chat_setup broken = {.name = "template", .error = {HT_ERR_FORMAT, "the chat template, line 3: why"}};
    assert_int_equal(ht_chat_write(&broken, NULL, NULL, chat, &none, &err), HT_ERR_FORMAT);
    assert_string_equal(err.message, "the chat template, line 3: why");
    assert_int_equal(ht_chat_set_tools(chat, "[{}]", 4, &err), HT_OK);
    assert_fails(HT_ERR_ARGUMENT, "the llama3 chat format has no tools", write_with, source_of("llama3"), NULL, NULL,
                 chat, &text);
    ht_chat_free(chat);
}

/* ---- what a template is given ---- */

#define MESSAGES "{{ messages | tojson }}"

UNIT_TEST(messages_are_copied_and_checked) {
    ht_chat *chat;
    ht_error err = {0};
    assert_int_equal(ht_chat_new(&chat, &err), HT_OK);
    assert_int_equal(ht_chat_length(chat), 0);
    char content[] = "first";
    assert_int_equal(ht_chat_add(chat, "user", content, &err), HT_OK);
    content[0] = '?';
    assert_int_equal(ht_chat_add(chat, "sister", "x", &err), HT_ERR_ARGUMENT);
    assert_string_equal(err.message,
                        "message 1 has the role \"sister\", expected system, developer, user, assistant or tool");
    assert_int_equal(ht_chat_add(chat, "user", NULL, &err), HT_ERR_ARGUMENT);
    assert_string_equal(err.message, "message 1 has no role or no content");
    assert_int_equal(ht_chat_add(chat, NULL, "x", &err), HT_ERR_ARGUMENT);
    ht_chat_message m;
    ht_chat_message_init(&m, sizeof m);
    m.role = "assistant";
    m.n_calls = 1;
    assert_int_equal(ht_chat_add_message(chat, &m, &err), HT_ERR_ARGUMENT);
    m.calls = &(ht_tool_call){.name = "f"};
    assert_int_equal(ht_chat_add_message(chat, &m, &err), HT_ERR_ARGUMENT);
    assert_string_equal(err.message, "call 0 of message 1 has no name or no arguments");
    assert_int_equal(ht_chat_add_message(chat, &(ht_chat_message){0}, &err), HT_ERR_ARGUMENT);
    assert_int_equal(ht_chat_length(chat), 1);
    assert_int_equal(ht_chat_add(chat, "assistant", "not \xff UTF-8", &err), HT_OK);
    for (int i = 0; i < 100; i++) assert_int_equal(ht_chat_add(chat, "user", "x", &err), HT_OK);
    assert_int_equal(ht_chat_length(chat), 102);
    expect_text("{{ messages[0].content }}, {{ messages[1].content }}, {{ messages | length }}", chat,
                "first, not \xEF\xBF\xBD UTF-8, 102");
    ht_chat_free(NULL);
}

UNIT_TEST(calls_and_results) {
    ht_chat *chat;
    ht_error err = {0};
    assert_int_equal(ht_chat_new(&chat, &err), HT_OK);
    const ht_tool_call calls[] = {{"weather", "{\"city\": \"Oslo\", \"days\": 1.50}", "c1"}, {"stop", "now!", NULL}};
    ht_chat_message m;
    ht_chat_message_init(&m, sizeof m);
    m.role = "assistant";
    m.thinking = "hm";
    m.calls = calls;
    m.n_calls = 2;
    assert_int_equal(ht_chat_add_message(chat, &m, &err), HT_OK);
    ht_chat_message_init(&m, sizeof m);
    m.role = "tool";
    m.content = "rain";
    m.name = "weather";
    m.call_id = "c1";
    assert_int_equal(ht_chat_add_message(chat, &m, &err), HT_OK);
    expect_text(
        MESSAGES, chat,
        "[{\"thinking\": \"hm\", \"role\": \"assistant\", \"content\": \"\", \"reasoning_content\": \"hm\", "
        "\"tool_calls\": [{\"id\": \"c1\", \"type\": \"function\", \"function\": {\"name\": \"weather\", "
        "\"arguments\": {\"city\": \"Oslo\", \"days\": 1.5}}}, {\"type\": \"function\", \"function\": {\"name\": "
        "\"stop\", \"arguments\": \"now!\"}}]}, {\"role\": \"tool\", \"content\": \"rain\", \"name\": \"weather\", "
        "\"tool_call_id\": \"c1\"}]");
}

UNIT_TEST(messages_come_from_json) {
    ht_chat *chat =
        from_json("{'messages': [{'role': 'system', 'content': null, 'name': null},{'role': 'user', 'content': 'Hi "
                  "\\u00e9'},{'content': [{'type': 'text', 'text': 'a'},{'type': 'text', 'text': 'b'}], 'role': "
                  "'assistant'},{'role': 'user', 'content': [], 'mood': 1e22}], 'tools': null}");
    assert_int_equal(ht_chat_length(chat), 4);
    expect_text(
        MESSAGES, chat,
        "[{\"role\": \"system\", \"content\": \"\"}, {\"role\": \"user\", \"content\": \"Hi \xc3\xa9\"}, "
        "{\"content\": \"ab\", \"role\": \"assistant\"}, {\"role\": \"user\", \"content\": \"\", \"mood\": 1e+22}]");
    expect_text(
        "{{ messages[0].content }}|{{ messages[1].content }}",
        from_json("\xEF\xBB\xBF[{'role': 'user', 'content': 'a\\u0000b'},{'role': 'user', 'content': '\\ud800'}]"),
        "a\xEF\xBF\xBD"
        "b|\xEF\xBF\xBD");
    /* Arguments are objects for the template, however they came, and text when they are none. */
    expect_text(
        "{{ messages[0].tool_calls | map(attribute='function') | map(attribute='arguments') | list | tojson }}",
        from_json("{'messages': [{'role': 'assistant', 'content': null, 'tool_calls': [{'function': {'name': 'f', "
                  "'arguments': '{\\'a\\': 1}'}},{'function': {'name': 'f', 'arguments': {'b': 2}}},{'function': "
                  "{'name': 'f', 'arguments': '{broken'}},{'function': {'name': 'f', 'arguments': '[3]'}}]}]}"),
        "[{\"a\": 1}, {\"b\": 2}, \"{broken\", \"[3]\"]");
}

static char *to_json(ht_chat *chat) {
    char *json;
    assert_works(ht_chat_to_json, chat, &json);
    ht_chat_free(chat);
    return json;
}

UNIT_TEST(a_conversation_is_written_as_json) {
    static const char whole[] =
        "{'messages': [{'role': 'user', 'content': 'Hi \xc3\xa9 \\'\\n'}, {'role': 'assistant', 'content': null, "
        "'tool_calls': [{'type': 'function', 'function': {'name': 'f', 'arguments': '{\\'a\\': 1.5}'}}]}], 'tools': "
        "[{'name': 'f'}], 'chat_template_kwargs': {'mood': [1, null, true]}}";
    static const ht_tool_call call = {.name = "f", .arguments = "{\"a\": 1.5}"};
    ht_error err = {0};
    char *json = to_json(from_json(whole));
    assert_string_equal(json, json_quoted(whole));
    ht_text_free(json);
    ht_chat *chat = test_chat(&(test_message){"user", "Hi \xc3\xa9 \"\n"}, 1);
    assert_int_equal(
        ht_chat_add_message(
            chat, OPTIONS_AT(ht_chat_message, with.role = "assistant", with.calls = &call, with.n_calls = 1), &err),
        HT_OK);
    assert_int_equal(ht_chat_set_tools(chat, "[{\"name\": \"f\"}]", 15, &err), HT_OK);
    assert_int_equal(ht_chat_set_variable(chat, "mood", "[1,null,true]", 13, &err), HT_OK);
    json = to_json(chat);
    assert_string_equal(json, json_quoted(whole));
    ht_text_free(json);
    json = to_json(test_chat(NULL, 0));
    assert_string_equal(json, "{\"messages\": []}");
    ht_text_free(json);
}

UNIT_TEST(tools_and_variables) {
    static const char tools[] = "[{\"type\": \"function\", \"function\": {\"name\": \"f\", \"parameters\": {\"most\": "
                                "18446744073709551615, \"least\": 1.0, \"big\": 1e+22, \"z\": null, \"a\": [true]}}}]";
    ht_chat *chat = test_chat(&(test_message){"user", "x"}, 1);
    ht_error err = {0};
    assert_int_equal(ht_chat_set_tools(chat, "{}", 2, &err), HT_ERR_FORMAT);
    assert_string_equal(err.message, "tools: line 1, column 1: `tools` is an object, expected a list");
    assert_int_equal(ht_chat_set_variable(chat, "messages", "[]", 2, &err), HT_ERR_ARGUMENT);
    assert_int_equal(ht_chat_set_tools(chat, "[", 1, &err), HT_ERR_FORMAT);
    assert_int_equal(ht_chat_set_tools(chat, tools, sizeof tools - 1, &err), HT_OK);
    assert_int_equal(ht_chat_set_variable(chat, "mood", "{\"a\": 1", 7, &err), HT_ERR_FORMAT);
    assert_int_equal(ht_chat_set_variable(chat, "mood", "{\"a\": 1}", 8, &err), HT_OK);
    assert_int_equal(ht_chat_set_variable(chat, "add_generation_prompt", "false", 5, &err), HT_OK);
    assert_int_equal(ht_chat_set_thinking(chat, false, &err), HT_OK);
    ht_chat_set_time(chat, 86400 * 365);
    expect_text("{{ tools | tojson }}", chat, tools);
    chat = from_json(
        "{'messages': [{'role': 'user', 'content': 'x'}],'chat_template_kwargs': {'mood': 'good', 'tools': [{}]}}");
    assert_int_equal(ht_chat_set_variable(chat, "add_generation_prompt", "false", 5, &err), HT_OK);
    assert_int_equal(ht_chat_set_thinking(chat, false, &err), HT_OK);
    ht_chat_set_time(chat, 86400LL * 365 + 43200); /* noon, whatever the zone: in 1971 */
    expect_text("{{ mood }} {{ add_generation_prompt }} {{ enable_thinking }} {{ thinking }} {{ tools | length }} "
                "{{ bos_token }}{{ eos_token }} {{ strftime_now('%Y') }}",
                chat, "good False False False 1 <bos><eos> 1971");
}

UNIT_TEST(tools_choose_the_template) {
    ht_chat *chat = test_chat(&(test_message){"user", "x"}, 1);
    ht_chat_setup tools = setup_of("tool_use"), setup = setup_of("default");
    setup.for_tools = &tools;
    for (int with = 0; with < 2; with++) {
        ht_chat_text out;
        if (with) assert_int_equal(ht_chat_set_tools(chat, "[]", 2, NULL), HT_OK); /* as transformers */
        assert_int_equal(ht_chat_write(&setup, NULL, NULL, chat, &out, NULL), HT_OK);
        assert_string_equal(out.text, with ? "tool_use" : "default");
        assert_ptr_equal(ht_chat_template_of(&setup, chat), with ? tools.template : setup.template);
        ht_chat_text_free(&out);
    }
    setup.for_tools = NULL;
    ht_chat_setup_free(&tools);
    ht_chat_setup_free(&setup);
    ht_chat_free(chat);
}

UNIT_TEST(developers_are_the_system_elsewhere) {
    const test_message messages[] = {{"developer", "a"}, {"user", "b"}};
    expect_text("{% for m in messages %}{{ m.role }} {% endfor %}", test_chat(messages, 2), "system user ");
    expect_text("{# developer #}{% for m in messages %}{{ m.role }} {% endfor %}", test_chat(messages, 2),
                "developer user ");
}

/* As transformers' continue_final_message: after the content, trimmed where the template trims it. */
UNIT_TEST(the_last_message_is_continued) {
#define TURNS(content)                                                                                                 \
    "{% for m in messages %}<|{{ m.role }}|>{{ " content " }}<|end|>{% endfor %}{{ '<|assistant|>' if "                \
    "add_generation_prompt }}"
#define CONVERSATION(more)                                                                                             \
    "{'messages': [{'role': 'user', 'content': 'a'}, {'role': 'assistant', 'content': 'a '}]" more "}"
    static const char continued[] = CONVERSATION(", 'continue_final_message': true");
    expect_text(TURNS("m.content"), from_json(continued), "<|user|>a<|end|><|assistant|>a ");
    expect_text(TURNS("m.content | trim"), from_json(continued), "<|user|>a<|end|><|assistant|>a");
    expect_text(TURNS("m.content"), from_json(CONVERSATION(", 'add_generation_prompt': false")),
                "<|user|>a<|end|><|assistant|>a <|end|>");
    ht_chat *chat = from_json(CONVERSATION(""));
    ht_chat_set_continue(chat, true);
    char *text = to_json(chat);
    assert_string_equal(text, json_quoted(continued));
    ht_text_free(text);
    ht_error err;
    chat = from_json(continued);
    assert_int_equal(write_with(TURNS("messages[0].content"), NULL, NULL, chat, &text, &err), HT_ERR_ARGUMENT);
    assert_null(text);
    ht_chat_free(chat);
    ht_chat_setup setup = setup_of(TURNS("m.content"));
    ht_chat_text out;
    chat = from_json(continued);
    assert_int_equal(ht_chat_write(&setup, NULL, NULL, chat, &out, &err), HT_OK);
    assert_true(out.n == strlen(out.text) && out.n_runs == 4 && out.runs[3].input && out.runs[3].end == out.n);
    ht_chat_text_free(&out);
    ht_chat_free(chat);
    ht_chat_template_free(setup.template);
}

/* Roles, BOS and EOS are the template's own text, contents are not. */
UNIT_TEST(what_came_from_the_user) {
    ht_chat_setup setup = setup_of("{{ bos_token }}<|{{ messages[0].role }}|>{{ messages[0].content }}{{ eos_token }}");
    ht_chat *chats[] = {test_chat(&(test_message){"user", "<|user|>"}, 1),
                        from_json("{'messages': [{'role': 'user', 'content': '<|user|>'}]}")};
    for (int i = 0; i < 2; i++) {
        ht_chat_text out;
        assert_int_equal(ht_chat_write(&setup, "<s>", "</s>", chats[i], &out, NULL), HT_OK);
        assert_string_equal(out.text, "<s><|user|><|user|></s>");
        assert_int_equal(out.n_runs, 3);
        assert_true(!out.runs[0].input && out.runs[0].end == 11 && out.runs[1].input && out.runs[1].end == 19);
        assert_false(out.runs[2].input);
        ht_chat_text_free(&out);
        ht_chat_free(chats[i]);
    }
    ht_chat_setup_free(&setup);
}

/* ---- calls ---- */

#define CALL(id, arguments)                                                                                            \
    "{\"id\": \"" id "\", \"type\": \"function\", \"function\": {\"name\": \"f\", \"arguments\": " arguments "}}"
#define CALLS(content, calls) "{\"messages\": [{\"role\": \"assistant\", " content "\"tool_calls\": [" calls "]}]}"
#define WRITES_CALLS(arguments)                                                                                        \
    "{% for m in messages %}{% for c in m.tool_calls %}" arguments "{% endfor %}{{ m.content }}|{% endfor %}"
#define NULL_ALONE "{% for m in messages %}{% if m.content is none %}{{ m.tool_calls | tojson }}{% endif %}{% endfor %}"

UNIT_TEST(calls_are_given_as_the_template_takes_them) {
    static const char as_object[] = WRITES_CALLS("{{ c.function.arguments | tojson }}"),
                      as_text[] = WRITES_CALLS("{{ 'x' + c.function.arguments }}"),
                      as_python[] = WRITES_CALLS("{{ c.function.arguments }}"),
                      either[] =
                          WRITES_CALLS("{% set a = c.function.arguments %}{{ a if a is string else a | tojson }}");
    static const struct {
        const char *source, *arguments, *expected;
    } cases[] = {{as_object, "{\"a\": 1}", "{\"a\": 1}|"},
                 {as_object, "\"{\\\"a\\\":1}\"", "{\"a\": 1}|"},
                 {as_object, "\"\"", "{}|"},
                 {as_object, "\"{broken\"", "\"{broken\"|"},
                 {as_text, "{\"a\": 1}", "x{\"a\": 1}|"},
                 {as_text, "\"{\\\"a\\\":1}\"", "x{\"a\":1}|"},
                 {as_text, "\" \"", "x{}|"},
                 {as_python, "{\"a\": true}", "{\"a\": true}|"},
                 {either, "\"{\\\"a\\\":1}\"", "{\"a\": 1}|"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char json[256];
        snprintf(json, sizeof json, CALLS("", CALL("1", "%s")), cases[i].arguments);
        expect_text(cases[i].source, from_json(json), cases[i].expected);
    }
}

/* Null where the template distinguishes it, an empty text elsewhere, however a message came without content. */
UNIT_TEST(calls_without_content) {
    static const char *const contents[] = {"", "\"content\": null, "};
    const ht_tool_call call = {.name = "f", .arguments = "{}", .id = "1"};
    for (int i = 0; i < 3; i++) {
        static const char *const expected[][2] = {{NULL_ALONE, "[" CALL("1", "{}") "]"},
                                                  {WRITES_CALLS("{{ c.function.arguments | tojson }}"), "{}|"}};
        for (int j = 0; j < 2; j++) {
            char json[256];
            snprintf(json, sizeof json, CALLS("%s", CALL("1", "{}")), contents[i % 2]);
            ht_chat *chat = i < 2 ? from_json(json) : test_chat(NULL, 0);
            if (i == 2)
                assert_int_equal(ht_chat_add_message(chat,
                                                     OPTIONS_AT(ht_chat_message, with.role = "assistant",
                                                                with.calls = &call, with.n_calls = 1),
                                                     NULL),
                                 HT_OK);
            expect_text(expected[j][0], chat, expected[j][1]);
        }
    }
    expect_text("{{ messages[0].tool_calls is defined }}{{ messages[0] | length }}{% if 'tool_calls' in messages[1] "
                "%}!{% endif %}",
                from_json("{'messages': [{'role': 'assistant', 'content': 'a', 'tool_calls': []},{'role': 'assistant', "
                          "'content': 'b', 'tool_calls': null}]}"),
                "False2");
}

/* GLM 4 of April 2025: calls and results are messages without the fields that others have. */
UNIT_TEST(calls_as_messages_with_metadata) {
    static const char source[] =
        "{% for m in messages %}{% if m.role == 'observation' %}<|observation|>{% endif %}{{ m.role }}:{{ "
        "m.get('metadata', '') }}:{{ m.content }};{% endfor %}";
    static const char talk[] = "{\"messages\": [{\"role\": \"assistant\", \"content\": \"%s\", \"tool_calls\": [" CALL(
        "1", "{\"a\": 1}") ", " CALL("2", "\"{}\"") "]}, {\"role\": \"tool\", \"tool_call_id\": \"1\", "
                                                    "\"content\": \"x\"}, {\"role\": \"assistant\", "
                                                    "\"content\": \"y\"}]}";
    static const char calls[] = "assistant:f:{\"a\": 1};assistant:f:{};<|observation|>observation::x;assistant::y;";
    for (int with_text = 0; with_text < 2; with_text++) {
        char json[512], expected[256];
        snprintf(json, sizeof json, talk, with_text ? "b" : "");
        snprintf(expected, sizeof expected, "%s%s", with_text ? "assistant::b;" : "", calls);
        expect_text(source, from_json(json), expected);
    }
    expect_text("{# <|observation|> metadata tool_calls #}{% for m in messages %}{{ m.role }};{% endfor %}",
                from_json("{'messages': [{'role': 'tool', 'content': 'x'}]}"), "tool;");
}

/* SmolLM3 and Granite 3 have no fields of calls: they are text. Formats with parameters one by one are not written. */
UNIT_TEST(calls_in_the_text) {
#define CONTENTS "{% for m in messages %}{{ m.content }};{% endfor %}"
#define F        "{\"name\": \"f\", \"arguments\": {}}"
#define G        "{\"name\": \"f\", \"arguments\": {\"a\": 1}}"
    static const char *const cases[][3] = {
        {CONTENTS "<tool_call>", "", "<tool_call>\n" F "\n</tool_call>\n<tool_call>\n" G "\n</tool_call>;<tool_call>"},
        {CONTENTS "<tool_call>", "b",
         "b\n<tool_call>\n" F "\n</tool_call>\n<tool_call>\n" G "\n</tool_call>;<tool_call>"},
        {CONTENTS "<|tool_call|>", "", "<|tool_call|>[" F ", " G "];<|tool_call|>"},
        {CONTENTS "<|tool_call_start|>", "b", "b;<|tool_call_start|>"},
        {CONTENTS "<tool_call>{# tool_calls #}", "b", "b;<tool_call>"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char json[512];
        snprintf(json, sizeof json,
                 "{\"messages\": [{\"role\": \"assistant\", \"content\": \"%s\", \"tool_calls\": [" CALL(
                     "1", "{}") ", " CALL("2", "{\"a\": 1}") "]}]}",
                 cases[i][1]);
        expect_text(cases[i][0], from_json(json), cases[i][2]);
    }
}

/* SmolLM3's template has its own name of the tools, unless a variable has it. */
UNIT_TEST(tools_by_another_name) {
    static const char source[] = "{{ xml_tools | tojson }}{{ tools | tojson }}", talk[] =
                                                                                     "'messages': [{'role': 'user', "
                                                                                     "'content': 'a'}]";
    char json[200];
    snprintf(json, sizeof json, "{%s, 'tools': [{'name': 'f'}]}", talk);
    expect_text(source, from_json(json), "[{\"name\": \"f\"}][{\"name\": \"f\"}]");
    ht_chat *chat = from_json(json);
    assert_works(ht_chat_set_variable, chat, "xml_tools", "1", 1);
    expect_text(source, chat, "1[{\"name\": \"f\"}]");
}

/* Seed's template and Cohere's have their own names of reasoning that is off. */
UNIT_TEST(reasoning_off_by_other_names) {
    static const char source[] = "{{ thinking_budget is defined }}{{ reasoning is not undefined }}";
    static const char *const expected[] = {"FalseFalse", "TrueTrue", "FalseFalse"};
    for (int i = 0; i < 3; i++) {
        ht_chat *chat = from_json("{'messages': [{'role': 'user', 'content': 'a'}]}");
        if (i) assert_works(ht_chat_set_thinking, chat, i == 2);
        expect_text(source, chat, expected[i]);
    }
    ht_chat *chat = from_json("{'messages': [{'role': 'user', 'content': 'a'}]}");
    assert_works(ht_chat_set_thinking, chat, false);
    assert_works(ht_chat_set_variable, chat, "thinking_budget", "9", 1);
    expect_text("{{ thinking_budget }}{{ reasoning is defined }}", chat, "9False");
}

/* Templates of messages write one text before a call. */
UNIT_TEST(reasoning_and_text_before_a_call) {
#define PARTS "{% for m in messages %}{{ m.thinking }}:{{ m.reasoning_content }}:{{ m.content }};{% endfor %}"
    static const char *const names[] = {"reasoning_content", "thinking", "reasoning"};
    for (int i = 0; i < 3; i++) {
        char json[400];
        snprintf(json, sizeof json,
                 "{'messages': [{'role': 'assistant', 'content': 'b', '%s': 'a', 'tool_calls': [" CALL(
                     "1", "{}") "]}, "
                                "{'role': 'assistant', 'content': 'd', '%s': 'c'}]}",
                 names[i], names[i]);
        expect_text(PARTS "{# <|channel|>analysis #}", from_json(json), "a\n\nb:a\n\nb:;c:c:d;");
        expect_text(PARTS, from_json(json), "a:a:b;c:c:d;");
    }
}

/* Templates that write the tools of a system message get them there, with a message of their own if there is none. */
UNIT_TEST(tools_of_a_system_message) {
    static const char source[] =
        "{% for message in messages %}{{ message['role'] + ':' + message['content'] }}{% if 'tools' in message "
        "%}{{ '<|tool|>' + message['tools'] + '<|/tool|>' }}{% endif %};{% endfor %}";
#define TOOLS "'tools': [{'type': 'function', 'function': {'name': 'f', 'parameters': {}}}, {'name': 'g'}]}"
#define FLAT  "<|tool|>[{\"name\": \"f\", \"parameters\": {}}, {\"name\": \"g\"}]<|/tool|>"
    static const char *const cases[][2] = {
        {"{'messages': [{'role': 'system', 'content': 'a'}, {'role': 'user', 'content': 'b'}], " TOOLS,
         "system:a" FLAT ";user:b;"},
        {"{'messages': [{'role': 'user', 'content': 'b'}], " TOOLS, "system:" FLAT ";user:b;"},
        {"{'messages': [{'role': 'user', 'content': 'b'}], 'tools': []}", "user:b;"},
        {"{'messages': [{'role': 'user', 'content': 'b'}]}", "user:b;"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) expect_text(source, from_json(cases[i][0]), cases[i][1]);
}

UNIT_TEST(results_come_in_the_order_of_the_calls) {
#define RESULT(id) "{\"role\": \"tool\", \"tool_call_id\": \"" id "\", \"content\": \"" id "\"}"
    static const char *const cases[][2] = {{RESULT("2") "," RESULT("1"), "12"},
                                           {RESULT("3") "," RESULT("1") "," RESULT("2"), "123"},
                                           {RESULT("2") "," RESULT("9") "," RESULT("1"), "291"},
                                           {RESULT("1") "," RESULT("2"), "12"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char json[1024];
        snprintf(json, sizeof json,
                 "{\"messages\": [{\"role\": \"assistant\", \"tool_calls\": [%s, %s, %s]}, %s, {\"role\": \"user\", "
                 "\"content\": \"?\"}, " RESULT("0") "]}",
                 CALL("1", "{}"), CALL("2", "{}"), CALL("3", "{}"), cases[i][0]);
        char expected[16];
        snprintf(expected, sizeof expected, "%s?0", cases[i][1]);
        expect_text("{% for m in messages %}{{ m.content }}{% endfor %}", from_json(json), expected);
    }
}

UNIT_TEST(json_that_is_no_conversation) {
#define ONE(message) "{'messages': [" message "]}"
    static const struct {
        const char *json;
        ht_status status;
        const char *part;
    } cases[] = {
        {"", HT_ERR_FORMAT, "line 1, column 1: expected a value"},
        {"7", HT_ERR_FORMAT, "it is a number, expected an object, or a list of messages"},
        {ONE("{'role': 'user', 'content': 1,\n}"), HT_ERR_FORMAT, "line 2, column 1: "},
        {ONE("\n{'role': 'user',\n 'content': 1}"), HT_ERR_FORMAT,
         "line 3, column 13: the content of message 0 is a number"},
        {ONE("{'role': 'user', 'role': 'user', 'content': 'x'}"), HT_ERR_FORMAT, "line 1, column 32: "},
        {"[{'role': 'user', 'content': 'x'}], 'tools': []", HT_ERR_FORMAT, "line 1, column "},
        {"{}", HT_ERR_FORMAT, "`messages` is missing"},
        {"{'messages': 5}", HT_ERR_FORMAT, "`messages` is a number, expected a list"},
        {"{'messages': [], 'tools': {}}", HT_ERR_FORMAT, "`tools` is an object, expected a list"},
        {"{'messages': [], 'chat_template_kwargs': 1}", HT_ERR_FORMAT, "is a number, expected an object"},
        {"{'messages': [], 'model': 'x'}", HT_ERR_UNSUPPORTED, "`model`"},
        {ONE("7"), HT_ERR_FORMAT, "message 0 is a number, expected an object"},
        {ONE("{'content': 'x'}"), HT_ERR_FORMAT, "the role of message 0 is missing"},
        {ONE("{'role': 1, 'content': 'x'}"), HT_ERR_FORMAT, "the role of message 0 is a number"},
        {ONE("{'role': 'x', 'content': 'x'}"), HT_ERR_ARGUMENT, "role \"x\""},
        {ONE("{'role': 'user'}"), HT_ERR_FORMAT, "the content of message 0 is missing"},
        {ONE("{'role': 'user', 'content': 1}"), HT_ERR_FORMAT, "the content of message 0 is a number"},
        {ONE("{'role': 'assistant', 'content': null, 'tool_calls': 1}"), HT_ERR_FORMAT, "`tool_calls`"},
        {ONE("{'role': 'assistant', 'content': null, 'tool_calls': [1]}"), HT_ERR_FORMAT, "a call of message 0"},
        {ONE("{'role': 'assistant', 'content': null, 'tool_calls': [{}]}"), HT_ERR_FORMAT, "the name of a call"},
        {ONE("{'role': 'user', 'content': [{'type': 'image_url'}]}"), HT_ERR_UNSUPPORTED, "\"image_url\""},
        {ONE("{'role': 'user', 'content': ['x']}"), HT_ERR_FORMAT, "the type of a part"},
        {ONE("{'role': 'user', 'content': [{'type': 'text'}]}"), HT_ERR_FORMAT, "the text of a part"},
        {ONE("{'role': 'user', 'content': 'x', 'role': 'user'}"), HT_ERR_FORMAT,
         "line 1, column 48: expected each member once, found `role` again"},
    };
#undef ONE
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ht_chat *chat = (ht_chat *)1;
        ht_error err = {0};
        ht_status status = ht_chat_from_json(json_quoted(cases[i].json), strlen(cases[i].json), &chat, &err);
        assert_null(chat);
        if (status != cases[i].status || !strstr(err.message, cases[i].part))
            fail_msg("%s: %s: %s", cases[i].json, ht_status_name(status), err.message);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(formats_without_a_template),
        cmocka_unit_test(formats_leave_thoughts_out),
        cmocka_unit_test(what_is_refused),
        cmocka_unit_test(messages_are_copied_and_checked),
        cmocka_unit_test(calls_and_results),
        cmocka_unit_test(messages_come_from_json),
        cmocka_unit_test(a_conversation_is_written_as_json),
        cmocka_unit_test(tools_and_variables),
        cmocka_unit_test(tools_choose_the_template),
        cmocka_unit_test(developers_are_the_system_elsewhere),
        cmocka_unit_test(the_last_message_is_continued),
        cmocka_unit_test(what_came_from_the_user),
        cmocka_unit_test(calls_are_given_as_the_template_takes_them),
        cmocka_unit_test(calls_without_content),
        cmocka_unit_test(calls_as_messages_with_metadata),
        cmocka_unit_test(calls_in_the_text),
        cmocka_unit_test(tools_by_another_name),
        cmocka_unit_test(reasoning_off_by_other_names),
        cmocka_unit_test(reasoning_and_text_before_a_call),
        cmocka_unit_test(tools_of_a_system_message),
        cmocka_unit_test(results_come_in_the_order_of_the_calls),
        cmocka_unit_test(json_that_is_no_conversation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
