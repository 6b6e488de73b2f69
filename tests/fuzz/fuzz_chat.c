/* Chat templates, of which the form is read, and conversations. The first byte chooses the format: the one that the template is
 * known by, or any, in a dialect that the first message chooses. Then come the template, BOS and EOS, each up to a NUL, and
 * the messages: a byte for the role and the text up to a NUL. What is written is a text, the same one every time, with BOS in
 * front where the dialect has it, and all that a user says in it. */
#include "generate/chat.h"
#include "tokens.h"

#include <hearth/model.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MESSAGES = 8 };

/* Up to a NUL, as a string of its own; an empty one at the end of the input. */
static char *next_text(const uint8_t **data, size_t *size) {
    const uint8_t *end = *size ? memchr(*data, 0, *size) : NULL;
    size_t n = end ? (size_t)(end - *data) : *size;
    char *text = malloc(n + 1);
    tokens_check(text != NULL);
    if (n) memcpy(text, *data, n);
    text[n] = 0;
    *data += n + (end != NULL);
    *size -= n + (end != NULL);
    return text;
}

static bool is_blank(const char *text) { return !text[strspn(text, " \t\r\n")]; }

/* Every format writes what a user says, without the white space around it at most. */
static void check_text(const char *text, const ht_chat *chat) {
    for (size_t i = 0; i < chat->n; i++) {
        const char *said = chat->messages[i].content;
        size_t length = strlen(said);
        if (strcmp(chat->messages[i].role, "user") != 0 || is_blank(said)) continue;
        for (const char *c = said; *c; c++)
            if ((unsigned char)*c > 127 || (unsigned char)*c < 32) length = 0; /* may be white space of other kinds */
        if (!length) continue;
        while (*said == ' ') said++, length--;
        while (said[length - 1] == ' ') length--;
        const char *at = text;
        while ((at = strchr(at, said[0])) && strncmp(at, said, length) != 0) at++;
        tokens_check(at != NULL);
    }
}

static void write_twice(const ht_template *t, const char *bos, const char *eos, const ht_chat *chat) {
    char *text, *again;
    ht_error err = {0};
    ht_status status = ht_chat_write(t, bos, eos, chat, &text, &err);
    tokens_check(!status == (text != NULL));
    if (status) {
        tokens_check(err.status == status && err.message[0]);
        return;
    }
    tokens_check(!ht_chat_write(t, bos, eos, chat, &again, &err) && !strcmp(text, again));
    if (t->dialect & HT_CHAT_BOS) tokens_check(!strncmp(text, bos, strlen(bos)));
    check_text(text, chat);
    free(text);
    free(again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const char *const roles[] = {"system", "user", "assistant", "tool"};
    if (size == 0) return 0;
    const int choice = *data++;
    size--;
    char *template_text = next_text(&data, &size), *bos = next_text(&data, &size), *eos = next_text(&data, &size);
    ht_chat *chat;
    ht_template t, again;
    ht_error err = {0};
    tokens_check(!ht_chat_new(&chat, &err));
    for (size_t i = 0; i < MESSAGES && size > 0; i++) {
        const uint8_t role = *data++ % 4;
        size--;
        char *content = next_text(&data, &size);
        tokens_check(!ht_chat_add(chat, roles[role], content, &err) == (role < 3));
        free(content);
    }
    tokens_check(!ht_template_read(template_text, &t, &err) && !ht_template_read(template_text, &again, &err));
    tokens_check(t.fingerprint == again.fingerprint && t.format == again.format && !t.system == !again.system);
    ht_template_free(&again);
    write_twice(&t, bos, eos, chat);
    if (choice < 128) { /* whatever the template is, its system text goes with any format and dialect */
        t.format = ht_model_chat_format(choice % 8);
        t.dialect = chat->n ? (unsigned)chat->messages[0].content[0] : 0;
        write_twice(&t, bos, eos, chat);
    }
    ht_template_free(&t);
    ht_chat_free(chat);
    free(template_text);
    free(bos);
    free(eos);
    return 0;
}
