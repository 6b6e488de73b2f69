/* Conversations from JSON: whatever the bytes are, there is a conversation of whole messages, or an error and none. */
#include "generate/chat.h"
#include "tokens.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    ht_chat *chat;
    ht_error err = {0};
    ht_status status = ht_chat_from_json((const char *)data, size, &chat, &err);
    tokens_check(!status == (chat != NULL));
    if (status) tokens_check(err.status == status && err.message[0]);
    for (size_t i = 0; chat && i < ht_chat_length(chat); i++)
        tokens_check(chat->messages[i].role[0] && strlen(chat->messages[i].content) <= size);
    ht_chat_free(chat);
    return 0;
}
