/* What Hearth makes of chat templates, for check_templates.py. Each line of standard input is a request, {"template",
 * "bos", "eos", "conversations": [[[role, content], ...], ...]} and, to try another one than is known, "format" and
 * "dialect"; each line of standard output the answer: {"format": name or null, "dialect", "system", "fingerprint", "texts":
 * [text, or {"error"}, ...]}. */
#include "generate/chat.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *member(const json_t *request, const char *key) {
    return json_string_value(json_object_get(request, key));
}

static json_t *write_one(const ht_template *t, const json_t *request, const json_t *conversation) {
    ht_chat *chat;
    char *text = NULL;
    ht_error err = {0};
    ht_status st = ht_chat_new(&chat, &err);
    for (size_t i = 0; !st && i < json_array_size(conversation); i++) {
        const json_t *m = json_array_get(conversation, i);
        st = ht_chat_add(chat, json_string_value(json_array_get(m, 0)), json_string_value(json_array_get(m, 1)), &err);
    }
    if (!st) st = ht_chat_write(t, member(request, "bos"), member(request, "eos"), chat, &text, &err);
    json_t *result = st ? json_pack("{ss}", "error", err.message) : json_string(text);
    ht_text_free(text);
    ht_chat_free(chat);
    return result;
}

static json_t *answer(const json_t *request) {
    ht_template t;
    ht_error err = {0};
    if (ht_template_read(member(request, "template"), &t, &err)) abort();
    if (member(request, "format")) {
        t.format = member(request, "format");
        t.dialect = (unsigned)json_integer_value(json_object_get(request, "dialect"));
    }
    json_t *texts = json_array();
    const json_t *conversation;
    size_t i;
    json_array_foreach(json_object_get(request, "conversations"), i, conversation)
        json_array_append_new(texts, write_one(&t, request, conversation));
    char fingerprint[24];
    snprintf(fingerprint, sizeof fingerprint, "0x%016llx", (unsigned long long)t.fingerprint);
    json_t *result = json_pack("{ss? si ss? ss so}", "format", t.format, "dialect", (int)t.dialect, "system", t.system,
                               "fingerprint", fingerprint, "texts", texts);
    ht_template_free(&t);
    return result;
}

int main(void) {
    json_t *request;
    while ((request = json_loadf(stdin, JSON_DISABLE_EOF_CHECK, NULL)) != NULL) {
        json_t *result = answer(request);
        json_dumpf(result, stdout, JSON_COMPACT);
        putchar('\n');
        fflush(stdout);
        json_decref(result);
        json_decref(request);
    }
    return 0;
}
