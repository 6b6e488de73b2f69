#include "support/chat.h"

#include "support/test.h"

ht_chat *test_chat(const test_message *messages, size_t n) {
    ht_chat *chat;
    ht_error err = {0};
    if (ht_chat_new(&chat, &err)) fail_msg("%s", err.message);
    for (size_t i = 0; i < n; i++)
        if (ht_chat_add(chat, messages[i].role, messages[i].content, &err)) fail_msg("%s", err.message);
    return chat;
}
