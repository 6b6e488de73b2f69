/* The ids of conversations: chat formats and tokenizers together, as transformers' apply_chat_template gives them. */
#include "generate/chat.h"
#include "support/chat.h"
#include "support/test.h"
#include "tokenizer/tokenizer.h"

#include <hearth/hearth.h>

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

/* Needs the headers above. */
#include "golden/chat.inc"

static size_t length_of(const test_message *messages) {
    size_t n = 0;
    while (n < 8 && messages[n].role) n++;
    return n;
}

static const char *text_of(const json_t *object, const char *key) {
    const char *text = json_string_value(json_object_get(object, key));
    assert_non_null(text);
    return text;
}

static const ht_template *template_of(const char *name) {
    for (size_t i = 0; i < sizeof golden_texts / sizeof *golden_texts; i++)
        if (strcmp(golden_texts[i].name, name) == 0) return &golden_texts[i].template;
    fail_msg("chat.inc has no %s", name);
    return NULL;
}

static void check_case(const json_t *document, const json_t *c, const ht_tokenizer *t) {
    const test_message *messages = golden_chats[json_integer_value(json_object_get(c, "chat"))];
    ht_chat *chat = test_chat(messages, length_of(messages));
    const json_t *wanted = json_object_get(c, "ids");
    char *text;
    int32_t *ids = NULL;
    size_t n = 0;
    ht_error err = {0};
    if (ht_chat_write(template_of(text_of(c, "name")), text_of(document, "bos"), text_of(document, "eos"), chat, &text,
                      &err) ||
        ht_tokenizer_encode(t, text, strlen(text), HT_ENCODE_PARSE_SPECIAL, &ids, &n, &err))
        fail_msg("%s: %s", text_of(c, "name"), err.message);
    for (size_t i = 0; i < n || i < json_array_size(wanted); i++)
        if (i >= n || i >= json_array_size(wanted) || ids[i] != json_integer_value(json_array_get(wanted, i)))
            fail_msg("%s: \"%s\" has %zu ids, expected %zu, and differs at %zu", text_of(c, "name"), text, n,
                     json_array_size(wanted), i);
    free(ids);
    free(text);
    ht_chat_free(chat);
}

static void conversations(void **state) {
    (void)state;
    json_t *document = json_load_file("tests/golden/chat_ids.json", 0, NULL);
    assert_non_null(document);
    const json_t *cases = json_object_get(document, "cases");
    assert_true(json_array_size(cases) > 30);
    const char *name;
    json_t *vocabulary;
    size_t n_checked = 0;
    json_object_foreach(json_object_get(document, "vocabularies"), name, vocabulary) {
        char *json = json_dumps(vocabulary, JSON_COMPACT);
        ht_tokenizer *t;
        ht_error err = {0};
        if (ht_tokenizer_from_json(json, strlen(json), NULL, 0, &t, &err)) fail_msg("%s: %s", name, err.message);
        for (size_t i = 0; i < json_array_size(cases); i++) {
            const json_t *c = json_array_get(cases, i);
            if (strcmp(text_of(c, "vocabulary"), name) != 0) continue;
            check_case(document, c, t);
            n_checked++;
        }
        ht_tokenizer_free(t);
        free(json);
    }
    assert_int_equal(n_checked, json_array_size(cases));
    json_decref(document);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(conversations)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
