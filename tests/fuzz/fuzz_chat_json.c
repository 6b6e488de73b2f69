/* Conversations from JSON: whatever the bytes are, there is a conversation of whole messages, or an error and none. */
#include "chat/conversation.h"
#include "tokens.h"

static void check_message(ht_jinja_value m, size_t size) {
    check(m.kind == HT_VALUE_DICT);
    const ht_jinja_value *role = ht_jinja_dict_find_text(m.dict, "role", 4);
    const ht_jinja_value *content = ht_jinja_dict_find_text(m.dict, "content", 7);
    check(role && role->kind == HT_VALUE_STRING && role->string->n && !role->string->runs[0].input);
    const bool is_text = content && content->kind == HT_VALUE_STRING;
    check(content && (is_text || content->kind == HT_VALUE_NONE));
    check(!is_text || content->string->n <= 3 * size);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    ht_chat *chat;
    ht_error err = {0};
    ht_status status = ht_chat_from_json((const char *)data, size, &chat, &err);
    if (refused(status, &err, chat)) return 0;
    for (size_t i = 0; i < ht_chat_length(chat); i++) check_message(chat->messages->items[i], size);
    ht_chat_free(chat);
    return 0;
}
