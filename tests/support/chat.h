/* Conversations of tests: written as arrays of roles and contents. */
#ifndef TEST_SUPPORT_CHAT_H
#define TEST_SUPPORT_CHAT_H

#include <hearth/chat.h>

typedef struct test_message {
    const char *role, *content;
} test_message;

/* The conversation of n messages, which the caller frees; a failure fails the test. */
ht_chat *test_chat(const test_message *messages, size_t n);

#endif
