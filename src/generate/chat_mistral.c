/* Chat formats with [INST] around the user's text: Llama 2's and Mistral's. Mistral's templates differ in blanks and in
 * where the system text goes, from model to model. */
#include "base/error.h"
#include "generate/chat_internal.h"

#include <string.h>

/* Where the system text goes. */
typedef enum system_place { IN_FIRST, IN_LAST_MESSAGE, IN_A_BLOCK } system_place;

typedef struct dialect {
    const char *user, *user_end, *system, *system_end; /* what stands around their texts */
    const char *before_answer, *after_answer;          /* the latter after EOS */
    bool trims_answers;
    bool alternates;
    system_place place;
} dialect;

/* By what HT_MISTRAL_SHIFT says. */
static const dialect dialects[] = {
    /* a vocabulary without a template */
    {"[INST]", "[/INST]", "", "", "", "", false, true, IN_FIRST},
    /* 7B v0.1 */
    {"[INST] ", " [/INST]", "", "", "", " ", false, true, IN_FIRST},
    /* 7B v0.2 */
    {"[INST] ", " [/INST]", "", "", "", "", false, true, IN_FIRST},
    /* 7B v0.2, tokenizer v1 */
    {" [INST] ", " [/INST]", "", "", " ", "", false, true, IN_FIRST},
    /* Large 2407, tokenizer v3 */
    {"[INST] ", "[/INST]", "", "", " ", "", true, true, IN_LAST_MESSAGE},
    /* Nemo 2407 */
    {"[INST]", "[/INST]", "", "", "", "", false, true, IN_LAST_MESSAGE},
    /* Large 2411, tokenizer v7 */
    {"[INST] ", "[/INST]", "[SYSTEM_PROMPT] ", "[/SYSTEM_PROMPT]", " ", "", false, false, IN_A_BLOCK},
    /* Small 3.2, Ministral 3 */
    {"[INST]", "[/INST]", "[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]", "", "", false, true, IN_A_BLOCK},
    /* Devstral Small 2507 */
    {"[INST]", "[/INST]", "[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]", "", "", false, false, IN_A_BLOCK},
    /* 7B v0.3 */
    {"[INST] ", "[/INST]", "", "", " ", "", false, true, IN_FIRST},
};

/* ---- turns ---- */

static void put_user(ht_chat_writer *c, const dialect *d, size_t i, bool with_system) {
    ht_chat_put_text(c, d->user);
    if (with_system) ht_text_printf(&c->out, "%s\n\n", c->messages[0].content);
    ht_text_printf(&c->out, "%s%s", c->messages[i].content, d->user_end);
}

static void put_answer(ht_chat_writer *c, const dialect *d, const char *content) {
    ht_text_span text = {content, strlen(content)};
    ht_chat_put_text(c, d->before_answer);
    ht_chat_put(c, d->trims_answers ? ht_chat_trim(text.text, text.n) : text);
    ht_chat_put_text(c, c->eos);
    ht_chat_put_text(c, d->after_answer);
}

static void put_system(ht_chat_writer *c, const dialect *d, const char *content) {
    ht_text_printf(&c->out, "%s%s%s", d->system, content, d->system_end);
}

/* Whose message takes the system text in. */
static size_t bearer(const ht_chat_writer *c, const dialect *d, size_t first) {
    size_t last = c->n - 1;
    if (!first || d->place == IN_A_BLOCK) return c->n;
    return d->place == IN_FIRST ? first : last;
}

ht_status ht_chat_write_mistral(ht_chat_writer *c, ht_error *err) {
    const size_t row = c->dialect >> HT_MISTRAL_SHIFT;
    const dialect d = dialects[row < sizeof dialects / sizeof *dialects ? row : 0];
    const bool block = d.place == IN_A_BLOCK;
    const size_t first = ht_chat_begins_with_system(c) ? 1 : 0;
    ht_status status = d.alternates || !block ? ht_chat_check_turns(c, first, "mistral", err) : HT_OK;
    if (status) return status;
    if (block && !first && c->system) put_system(c, &d, c->system);
    const size_t with_system = bearer(c, &d, first);
    for (size_t i = block ? 0 : first; i < c->n; i++) {
        const ht_chat_message *m = &c->messages[i];
        if (ht_chat_has_role(m, "system"))
            put_system(c, &d, m->content);
        else if (ht_chat_has_role(m, "user"))
            put_user(c, &d, i, i == with_system);
        else
            put_answer(c, &d, m->content);
    }
    return HT_OK;
}

/* Llama 2's: BOS before every pair of messages, texts trimmed together with the system text. */
ht_status ht_chat_write_llama2(ht_chat_writer *c, ht_error *err) {
    const size_t first = ht_chat_begins_with_system(c) ? 1 : 0;
    ht_status status = ht_chat_check_turns(c, first, "llama2", err);
    if (status) return status;
    const bool bos_again = c->dialect & HT_LLAMA2_BOS_AGAIN;
    for (size_t i = first; i < c->n; i++) {
        const ht_chat_message *m = &c->messages[i];
        ht_text text = {0};
        if (i == first && first) ht_text_printf(&text, "<<SYS>>\n%s\n<</SYS>>\n\n", c->messages[0].content);
        ht_text_append_str(&text, m->content);
        ht_text_span trimmed = text.len ? ht_chat_trim(text.data, text.len) : (ht_text_span){"", 0};
        bool user = ht_chat_has_role(m, "user");
        if (user && bos_again && i > first) ht_chat_put_text(c, c->bos);
        ht_chat_put_text(c, user ? "[INST] " : " ");
        ht_chat_put(c, trimmed);
        ht_chat_put_text(c, user ? " [/INST]" : " ");
        if (!user) ht_chat_put_text(c, c->eos);
        c->out.failed = c->out.failed || text.failed;
        ht_text_discard(&text);
    }
    return HT_OK;
}
