/* Conversations as real chat templates write them, and what the formats refuse. */
#include "base/file.h"
#include "generate/chat.h"
#include "support/chat.h"
#include "support/test.h"

#include <hearth/hearth.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Needs the headers above. */
#include "golden/chat.inc"

static size_t length_of(const test_message *messages) {
    size_t n = 0;
    while (n < 8 && messages[n].role) n++;
    return n;
}

static void as_the_templates_write_it(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof golden_texts / sizeof *golden_texts; i++) {
        const test_message *messages = golden_chats[golden_texts[i].chat];
        ht_chat *chat = test_chat(messages, length_of(messages));
        char *text;
        ht_error err = {0};
        if (ht_chat_write(&golden_texts[i].template, golden_texts[i].bos, "</s>", chat, &text, &err))
            fail_msg("%s", err.message);
        ht_chat_free(chat);
        if (strcmp(text, golden_texts[i].expected) != 0)
            fail_msg("%s, conversation %d: expected\n%s\nfound\n%s", golden_texts[i].name, golden_texts[i].chat,
                     golden_texts[i].expected, text);
        free(text);
    }
}

/* Without a template: the plain form of each format. */
static void formats_without_a_template(void **state) {
    (void)state;
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
        const ht_template plain = {.format = cases[i].format, .dialect = HT_CHAT_BOS};
        assert_int_equal(
            ht_chat_write(&plain, strstr(cases[i].expected, "<bos>") ? "<bos>" : NULL, "<eos>", chat, &text, &err),
            HT_OK);
        assert_string_equal(text, cases[i].expected);
        free(text);
        assert_int_equal(ht_chat_write(&plain, NULL, NULL, chat, &text, &err), HT_OK);
        assert_null(strstr(text, "<bos>"));
        free(text);
    }
    ht_chat_free(chat);
}

static void expect_refusal(const char *format, const test_message *messages, size_t n, ht_status status,
                           const char *part) {
    ht_chat *chat = test_chat(messages, n);
    char *text = (char *)1;
    ht_error err = {0};
    assert_int_equal(ht_chat_write(&(ht_template){.format = format}, NULL, NULL, chat, &text, &err), status);
    ht_chat_free(chat);
    assert_null(text);
    if (!strstr(err.message, part)) fail_msg("message \"%s\" lacks \"%s\"", err.message, part);
}

#define BEGIN  "{% for message in messages %}"
#define TURN   "{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}{% endfor %}"
#define ANSWER "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
#define UNLESS "{% if loop.first and messages[0]['role'] != 'system' %}{{ '<|im_start|>system\n"
#define THEN   "<|im_end|>\n' }}{% endif %}"

static ht_template read_template(const char *text) {
    ht_template t;
    ht_error err = {0};
    if (ht_template_read(text, &t, &err)) fail_msg("%s", err.message);
    return t;
}

/* One template in other spellings: what is written is the same. */
static void spellings_of_a_template(void **state) {
    (void)state;
    static const char *const same[] = {
        BEGIN TURN ANSWER,
        BEGIN TURN ANSWER "\n",
        "{#- a comment #}\n" BEGIN "\n" TURN "\n  " ANSWER,
        "{%- for message in messages -%}\n    {{- \"<|im_start|>\" + message.role + \"\\n\" -}}\n"
        "{{ message.content }}{{ '<|im_end|>\\n' }}\n{%- endfor -%}\n" ANSWER,
        BEGIN "\n<|im_start|>{{ message['role'] }}\n{{ message[\"content\"] ~ '<|im_end|>' }}\n{% endfor %}\n"
              "{% if add_generation_prompt %}\n<|im_start|>assistant\n  {% endif %}",
    };
    const ht_template first = read_template(same[0]);
    assert_string_equal(first.format, "chatml");
    assert_true(first.dialect == 0 && !first.system);
    for (size_t i = 1; i < sizeof same / sizeof *same; i++) {
        ht_template t = read_template(same[i]);
        if (t.fingerprint != first.fingerprint) fail_msg("spelling %zu is another template", i);
        ht_template_free(&t);
    }
    static const char *const other[] = {
        BEGIN "{{'<|im_start|>' + message['role'] + '\n' + message['content']|trim + '<|im_end|>' + '\n'}}{% endfor "
              "%}" ANSWER,
        BEGIN " " TURN ANSWER,
        BEGIN TURN "{% if add_generation_prompt %}{{ '<|im_start|>assistant-units\n' }}{% endif %}",
        BEGIN TURN "{% if not add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}",
        BEGIN TURN ANSWER " ",
        "{% raw %}" BEGIN TURN ANSWER,
        BEGIN TURN "{{ '<|im_start|>assistant",
        "",
    };
    for (size_t i = 0; i < sizeof other / sizeof *other; i++) {
        ht_template t = read_template(other[i]);
        if (t.format) fail_msg("\"%s\" was taken for %s", other[i], t.format);
        ht_template_free(&t);
    }
}

/* The system text of a known template is read, whatever it is: with an apostrophe, a backslash, braces, or empty. */
static void default_system_texts(void **state) {
    (void)state;
    static const struct {
        const char *written, *text;
    } cases[] = {
        {"You are a helpful assistant", "You are a helpful assistant"},
        {"Don\\'t say \\\"{{no}}\\\" \\\\o/", "Don't say \"{{no}}\" \\o/"},
        {"two\\nlines\n", "two\nlines\n"},
        {"", ""},
    };
    ht_chat *user = test_chat(&(test_message){"user", "a"}, 1);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char template_text[1024], expected[512], *text;
        snprintf(template_text, sizeof template_text, "%s%s%s", BEGIN UNLESS, cases[i].written, THEN TURN ANSWER);
        snprintf(expected, sizeof expected,
                 "<|im_start|>system\n%s<|im_end|>\n<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\n",
                 cases[i].text);
        ht_template t = read_template(template_text);
        ht_error err = {0};
        if (ht_chat_write(&t, NULL, NULL, user, &text, &err)) fail_msg("%s", err.message);
        assert_string_equal(text, expected);
        free(text);
        ht_template_free(&t);
    }
    ht_chat_free(user);
}

/* Templates with the marks of a format that write something else with them are refused, and the format is named. */
static void templates_that_look_like_a_format(void **state) {
    (void)state;
    static const struct {
        const char *format, *template;
    } cases[] = {
        /* the system text in a variable, or computed */
        {"chatml",
         "{% set system_message = 'You are kind.' %}" BEGIN "{% if loop.first and messages[0]['role'] != 'system' %}"
         "{{ '<|im_start|>system\n' + system_message + '<|im_end|>\n' }}{% endif %}" TURN ANSWER},
        {"chatml", BEGIN UNLESS "a' + name + 'b" THEN TURN ANSWER},
        {"chatml", BEGIN UNLESS "\\u00e9" THEN TURN ANSWER},
        /* system text without a header, as Yi-1.5's */
        {"chatml", "{% if messages[0]['role'] == 'system' %}{{ messages[0]['content'] }}{% endif %}" BEGIN
                   "{% if message['role'] == 'user' %}{{ '<|im_start|>user\n' + message['content'] + '<|im_end|>\n' }}"
                   "{% endif %}{% endfor %}" ANSWER},
        {"gemma",
         "{{ bos_token }}" BEGIN "{% if message['role'] == 'system' %}{{ message['content'] + '\n' }}{% else %}"
         "{{ '<start_of_turn>' + message['role'] + '\n' + message['content'] + '<end_of_turn>\n' }}{% endif %}"
         "{% endfor %}{{ '<start_of_turn>model\n' }}"},
        /* a task of its own, as Llama Guard's */
        {"llama3", "{{ '<|begin_of_text|><|start_header_id|>user<|end_header_id|>\n\nTask: Check if there is unsafe "
                   "content in ' + messages[-1]['content'] + '<|eot_id|>' }}"},
        {"llama2", "{{- '[INST] <<SYS>>\\n' + messages[idx]['content'] + '\\n<</SYS>>\\n\\n' -}}"},
        {"mistral", "{{ bos_token }}" BEGIN "{{ '[INST]' + message['content'] | trim + '[/INST]' }}{% endfor %}"},
        {"chatml", "{{'<|im_start|>user<|im_sep|>' + message['content'] + '<|im_end|>'}}"},
        {"deepseek", BEGIN "{{ '<\xEF\xBD\x9CUser\xEF\xBD\x9C>' + message['content'] + '\n' }}{% endfor %}"},
        {"gemma4", "{{ '<|turn>' + role }}"},
    };
    ht_chat *user = test_chat(&(test_message){"user", "a"}, 1);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *text, names[32];
        ht_error err = {0};
        ht_template t = read_template(cases[i].template);
        assert_int_equal(ht_chat_write(&t, "", "", user, &text, &err), HT_ERR_UNSUPPORTED);
        assert_null(text);
        snprintf(names, sizeof names, "of the %s format", cases[i].format);
        if (!strstr(err.message, names)) fail_msg("case %zu: %s", i, err.message);
        ht_template_free(&t);
    }
    ht_chat_free(user);
}

/* An answer without a question behind it: Qwen3's templates write an empty thought into it. */
static void answers_that_end_a_conversation(void **state) {
    (void)state;
    ht_chat *chat = test_chat((const test_message[]){{"user", "a"}, {"assistant", "b"}}, 2);
    const ht_template qwen3 = {.format = "chatml", .dialect = HT_CHATML_DROPS_THOUGHTS | HT_CHATML_QWEN3};
    char *text;
    ht_error err = {0};
    assert_int_equal(ht_chat_write(&qwen3, NULL, NULL, chat, &text, &err), HT_ERR_UNSUPPORTED);
    ht_chat_free(chat);
    assert_non_null(strstr(err.message, "message 1 is an answer that no user's message follows"));
}

/* The templates of the vocabularies' package, where that has been fetched: those that Hearth has to know. */
static void real_templates_are_known(void **state) {
    (void)state;
    static const struct {
        const char *name, *format;
    } cases[] = {
        {"Qwen-Qwen2.5-7B-Instruct", "chatml"},
        {"Qwen-Qwen3-0.6B", "chatml"},
        {"Qwen-QwQ-32B", "chatml"},
        {"Qwen3-Coder", "chatml"},
        {"meta-llama-Llama-3.1-8B-Instruct", "llama3"},
        {"meta-llama-Llama-3.2-3B-Instruct", "llama3"},
        {"meta-llama-Llama-3.3-70B-Instruct", "llama3"},
        {"google-gemma-2-2b-it", "gemma"},
        {"google-gemma-4-31B-it", "gemma4"},
        {"google-gemma-4-31B-it-interleaved", "gemma4"},
        {"deepseek-ai-DeepSeek-R1-Distill-Llama-8B", "deepseek"},
        {"deepseek-ai-DeepSeek-R1-Distill-Qwen-32B", "deepseek"},
        {"Mistral-Small-3.2-24B-Instruct-2506", "mistral"},
        {"mistralai-Ministral-3-14B-Reasoning-2512", "mistral"},
        {"mistralai-Mistral-Nemo-Instruct-2407", "mistral"},
        {"unsloth-mistral-Devstral-Small-2507", "mistral"},
        {"HuggingFaceTB-SmolLM3-3B", NULL},
        {"NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", NULL},
        {"NousResearch-Hermes-2-Pro-Llama-3-8B-tool_use", NULL},
        {"Qwen3.5-4B", NULL},
        {"deepseek-ai-DeepSeek-V3.1", NULL},
        {"meetkai-functionary-medium-v3.1", NULL},
        {"fireworks-ai-llama-3-firefunction-v2", NULL},
    };
    const char *directory = getenv("HEARTH_TEST_MODELS");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char path[512], *text;
        size_t n;
        snprintf(path, sizeof path, "%s/vocab/templates/%s.jinja", directory ? directory : "", cases[i].name);
        if (!directory || ht_file_read_all(path, 1 << 20, &text, &n, NULL)) {
            print_message("skipped: HEARTH_TEST_MODELS does not name a directory with %s\n", path);
            continue;
        }
        ht_template t = read_template(text);
        if (cases[i].format ? !t.format || strcmp(t.format, cases[i].format) != 0 : t.format != NULL)
            fail_msg("%s was taken for %s", cases[i].name, t.format ? t.format : "nothing");
        assert_true(t.format || t.resembles);
        ht_template_free(&t);
        free(text);
    }
}

static void what_is_refused(void **state) {
    (void)state;
    const test_message user = {"user", "x"}, system = {"system", "x"};
    expect_refusal("chatml", NULL, 0, HT_ERR_ARGUMENT, "no messages");
    expect_refusal("gemma", &system, 1, HT_ERR_ARGUMENT, "needs a user message");
    expect_refusal("gemma", (const test_message[]){user, user}, 2, HT_ERR_ARGUMENT, "expected assistant");
    expect_refusal("gemma", (const test_message[]){user, system}, 2, HT_ERR_ARGUMENT, "message 1 has the role system");
    expect_refusal("mistral", (const test_message[]){user, user}, 2, HT_ERR_ARGUMENT, "expected assistant");
    expect_refusal("llama2", &system, 1, HT_ERR_ARGUMENT, "needs a user message");
    expect_refusal(NULL, &user, 1, HT_ERR_UNSUPPORTED, "no chat format");
    expect_refusal("vicuna", &user, 1, HT_ERR_UNSUPPORTED, "no chat format");
}

/* ---- the builder ---- */

static void messages_are_copied_and_checked(void **state) {
    (void)state;
    ht_chat *chat;
    ht_error err = {0};
    assert_int_equal(ht_chat_new(&chat, &err), HT_OK);
    assert_int_equal(ht_chat_length(chat), 0);
    char content[] = "first";
    assert_int_equal(ht_chat_add(chat, "user", content, &err), HT_OK);
    content[0] = '?';
    assert_string_equal(chat->messages[0].content, "first");
    assert_int_equal(ht_chat_add(chat, "tool", "x", &err), HT_ERR_ARGUMENT);
    assert_string_equal(err.message, "message 1 has the role \"tool\", expected system, user or assistant");
    assert_int_equal(ht_chat_add(chat, "user", NULL, &err), HT_ERR_ARGUMENT);
    assert_string_equal(err.message, "message 1 has no role or no content");
    assert_int_equal(ht_chat_add(chat, NULL, "x", &err), HT_ERR_ARGUMENT);
    assert_int_equal(ht_chat_length(chat), 1);
    for (int i = 0; i < 100; i++) assert_int_equal(ht_chat_add(chat, i % 2 ? "user" : "assistant", "x", &err), HT_OK);
    assert_int_equal(ht_chat_length(chat), 101);
    assert_string_equal(chat->messages[0].content, "first");
    ht_chat_free(chat);
    ht_chat_free(NULL);
}

static void messages_come_from_json(void **state) {
    (void)state;
    static const char json[] = "{\"messages\": [{\"role\": \"system\", \"content\": null, \"name\": null},"
                               "{\"role\": \"user\", \"content\": \"Hi \\u00e9\"},"
                               "{\"content\": [{\"type\": \"text\", \"text\": \"a\"},"
                               "{\"type\": \"text\", \"text\": \"b\"}], \"role\": \"assistant\"},"
                               "{\"role\": \"user\", \"content\": []}], \"tools\": null}";
    static const test_message expected[] = {{"system", ""}, {"user", "Hi \xc3\xa9"}, {"assistant", "ab"}, {"user", ""}};
    ht_chat *chat;
    ht_error err = {0};
    if (ht_chat_from_json(json, sizeof json - 1, &chat, &err)) fail_msg("%s", err.message);
    assert_int_equal(ht_chat_length(chat), 4);
    for (size_t i = 0; i < 4; i++) {
        assert_string_equal(chat->messages[i].role, expected[i].role);
        assert_string_equal(chat->messages[i].content, expected[i].content);
    }
    ht_chat_free(chat);
}

static void json_that_is_no_conversation(void **state) {
    (void)state;
#define ONE(message) "{\"messages\": [" message "]}"
    static const struct {
        const char *json;
        ht_status status;
        const char *part;
    } cases[] = {
        {"", HT_ERR_FORMAT, "the conversation"},
        {"[]", HT_ERR_FORMAT, "the conversation"},
        {"{}", HT_ERR_FORMAT, "`messages` is missing"},
        {"{\"messages\": 5}", HT_ERR_FORMAT, "`messages` is 5, expected a list"},
        {"{\"messages\": [], \"tools\": []}", HT_ERR_UNSUPPORTED, "`tools`"},
        {ONE("7"), HT_ERR_FORMAT, "the role of message 0 is missing"},
        {ONE("{\"role\": 1, \"content\": \"x\"}"), HT_ERR_FORMAT, "the role of message 0 is 1"},
        {ONE("{\"role\": \"tool\", \"content\": \"x\"}"), HT_ERR_ARGUMENT, "role \"tool\""},
        {ONE("{\"role\": \"user\"}"), HT_ERR_FORMAT, "the content of message 0 is missing"},
        {ONE("{\"role\": \"user\", \"content\": 1}"), HT_ERR_FORMAT, "the content of message 0 is 1"},
        {ONE("{\"role\": \"assistant\", \"content\": null, \"tool_calls\": []}"), HT_ERR_UNSUPPORTED, "`tool_calls`"},
        {ONE("{\"role\": \"user\", \"content\": [{\"type\": \"image_url\"}]}"), HT_ERR_UNSUPPORTED, "\"image_url\""},
        {ONE("{\"role\": \"user\", \"content\": [\"x\"]}"), HT_ERR_FORMAT, "the type of a part"},
        {ONE("{\"role\": \"user\", \"content\": [{\"type\": \"text\"}]}"), HT_ERR_FORMAT, "the text of a part"},
        {ONE("{\"role\": \"user\", \"content\": \"a\\u0000b\"}"), HT_ERR_FORMAT, "the conversation"},
    };
#undef ONE
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ht_chat *chat = (ht_chat *)1;
        ht_error err = {0};
        ht_status status = ht_chat_from_json(cases[i].json, strlen(cases[i].json), &chat, &err);
        assert_null(chat);
        if (status != cases[i].status || !strstr(err.message, cases[i].part))
            fail_msg("%s: %s: %s", cases[i].json, ht_status_name(status), err.message);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(as_the_templates_write_it),         cmocka_unit_test(formats_without_a_template),
        cmocka_unit_test(spellings_of_a_template),           cmocka_unit_test(default_system_texts),
        cmocka_unit_test(templates_that_look_like_a_format), cmocka_unit_test(answers_that_end_a_conversation),
        cmocka_unit_test(real_templates_are_known),          cmocka_unit_test(what_is_refused),
        cmocka_unit_test(messages_are_copied_and_checked),   cmocka_unit_test(messages_come_from_json),
        cmocka_unit_test(json_that_is_no_conversation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
