/* Conversations as real chat templates write them, and what the formats refuse. */
#include "base/text.h"
#include "generate/chat.h"
#include "support/test.h"

#include <hearth/hearth.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Needs the headers above. */
#include "golden/chat.inc"

static size_t length_of(const ht_message *messages) {
    size_t n = 0;
    while (n < 8 && messages[n].role) n++;
    return n;
}

static void as_the_templates_write_it(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof golden_texts / sizeof *golden_texts; i++) {
        const ht_message *chat = golden_chats[golden_texts[i].chat];
        char *text;
        ht_error err = {0};
        if (ht_chat_write(golden_texts[i].format, golden_texts[i].fragments, golden_texts[i].bos, "</s>", chat,
                          length_of(chat), &text, &err))
            fail_msg("%s", err.message);
        if (strcmp(text, golden_texts[i].expected) != 0)
            fail_msg("%s, conversation %d: expected\n%s\nfound\n%s", golden_texts[i].name, golden_texts[i].chat,
                     golden_texts[i].expected, text);
        free(text);
    }
}

/* Without a template: the plain form of each format. */
static void formats_without_a_template(void **state) {
    (void)state;
    const ht_message chat[] = {{"system", "Be brief."}, {"user", " Hi "}, {"assistant", "Yes"}, {"user", "Bye"}};
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
        assert_int_equal(ht_chat_write(cases[i].format, NULL, "<bos>", "<eos>", chat, 4, &text, &err), HT_OK);
        assert_string_equal(text, cases[i].expected);
        free(text);
        assert_int_equal(ht_chat_write(cases[i].format, NULL, NULL, NULL, chat, 4, &text, &err), HT_OK);
        assert_null(strstr(text, "<bos>"));
        free(text);
    }
}

static void expect_refusal(const char *format, const ht_message *chat, size_t n, ht_status status, const char *part) {
    char *text = (char *)1;
    ht_error err = {0};
    assert_int_equal(ht_chat_write(format, NULL, NULL, NULL, chat, n, &text, &err), status);
    assert_null(text);
    if (!strstr(err.message, part)) fail_msg("message \"%s\" lacks \"%s\"", err.message, part);
}

/* Dialects that no template at hand has. */
static void parts_of_templates(void **state) {
    (void)state;
    const ht_message chat[] = {{"system", "S"}, {"user", "a"}, {"assistant", " b "}, {"user", "c"}};
    static const struct {
        const char *format, *template, *expected;
    } cases[] = {{"mistral", "(message == user_messages[-1]) and system_message \"[INST] \" \"[/INST]\" must alternate",
                  "[INST] a[/INST] b </s>[INST] S\n\nc[/INST]"},
                 {"llama2", "{{ bos_token + '[INST] ' + content.strip() + ' [/INST]' }}",
                  "<s>[INST] <<SYS>>\nS\n<</SYS>>\n\na [/INST] b </s><s>[INST] c [/INST]"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *text;
        ht_error err = {0};
        assert_int_equal(ht_chat_write(cases[i].format, cases[i].template, "<s>", "</s>", chat, 4, &text, &err), HT_OK);
        assert_string_equal(text, cases[i].expected);
        free(text);
    }
}

/* A default system text that is not a sum of strings and dates is asked for, not made up. */
static void a_default_that_cannot_be_read(void **state) {
    (void)state;
    static const char *const templates[] = {"'[SYSTEM_PROMPT]' {%- set default_system_message = 'a' + name %}",
                                            "'[SYSTEM_PROMPT]' {%- set default_system_message = 'a",
                                            "'[SYSTEM_PROMPT]' {%- set default_system_message =",
                                            "'[SYSTEM_PROMPT]' {%- set default_system_message = 'a' ~ 'b' %}"};
    const ht_message chat[] = {{"user", "a"}};
    for (size_t i = 0; i < sizeof templates / sizeof *templates; i++) {
        char *text;
        ht_error err = {0};
        assert_int_equal(ht_chat_write("mistral", templates[i], "", "", chat, 1, &text, &err), HT_ERR_UNSUPPORTED);
        assert_non_null(strstr(err.message, "begin the conversation with a system message"));
    }
}

/* Templates with the marks of a format that write something else with them. */
static void dialects_that_are_not_known(void **state) {
    (void)state;
    static const struct {
        const char *format, *template;
    } cases[] = {
        {"llama2", "{{- '[INST] <<SYS>>\\n' + messages[idx]['content'] + '\\n<</SYS>>\\n\\n' -}}"},
        {"llama2", "<<SYS>> {% set system_message = 'Be kind.' %} {{ '[INST] ' + content.strip() + ' [/INST]' }}"},
        {"chatml", "{{'<|im_start|>user<|im_sep|>' + message['content'] + '<|im_end|>'}}"},
    };
    const ht_message chat[] = {{"user", "a"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *text;
        ht_error err = {0};
        assert_int_equal(ht_chat_write(cases[i].format, cases[i].template, "", "", chat, 1, &text, &err),
                         HT_ERR_UNSUPPORTED);
        assert_non_null(strstr(err.message, "is a dialect of the"));
        assert_null(text);
    }
}

static void what_is_refused(void **state) {
    (void)state;
    const ht_message user = {"user", "x"}, system = {"system", "x"}, tool = {"tool", "x"}, none = {"user", NULL};
    expect_refusal("chatml", NULL, 0, HT_ERR_ARGUMENT, "no messages");
    expect_refusal("chatml", &tool, 1, HT_ERR_ARGUMENT, "role \"tool\", expected system, user or assistant");
    expect_refusal("chatml", &none, 1, HT_ERR_ARGUMENT, "no content");
    expect_refusal("gemma", &system, 1, HT_ERR_ARGUMENT, "needs a user message");
    expect_refusal("gemma", (const ht_message[]){user, user}, 2, HT_ERR_ARGUMENT, "expected assistant");
    expect_refusal("gemma", (const ht_message[]){user, system}, 2, HT_ERR_ARGUMENT, "message 1 has the role system");
    expect_refusal("mistral", (const ht_message[]){user, user}, 2, HT_ERR_ARGUMENT, "expected assistant");
    expect_refusal("llama2", &system, 1, HT_ERR_ARGUMENT, "needs a user message");
    expect_refusal(NULL, &user, 1, HT_ERR_UNSUPPORTED, "no chat format");
    expect_refusal("vicuna", &user, 1, HT_ERR_UNSUPPORTED, "no chat format");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(as_the_templates_write_it),   cmocka_unit_test(formats_without_a_template),
        cmocka_unit_test(parts_of_templates),          cmocka_unit_test(a_default_that_cannot_be_read),
        cmocka_unit_test(dialects_that_are_not_known), cmocka_unit_test(what_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
