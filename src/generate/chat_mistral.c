/* The formats with [INST] around what the user says. Mistral's templates differ in blanks and in where the system text
 * goes, from model to model, so these are read off the template: off the string literals that hold the marks. */
#include "base/error.h"
#include "generate/chat_inside.h"

#include <string.h>

/* Where the system text goes. */
typedef enum system_place { IN_FIRST, IN_LAST, IN_LAST_MESSAGE, IN_A_BLOCK } system_place;

typedef struct dialect {
    ht_span user, user_end, system, system_end; /* what stands around their texts */
    const char *before_answer, *after_answer;   /* the latter after EOS */
    bool trims_answers;
    bool alternates;
    system_place place;
} dialect;

static bool has(const ht_chat_writer *c, const char *text) { return strstr(c->template_text, text) != NULL; }

/* The string literal of the template that holds `mark`; the mark alone when there is none. */
static ht_span literal_with(const ht_chat_writer *c, const char *mark) {
    ht_span alone = {mark, strlen(mark)};
    for (const char *p = c->template_text; (p = strstr(p, mark)); p += alone.n) {
        const char *begin = p, *end = p + alone.n;
        while (begin > c->template_text && begin[-1] == ' ') begin--;
        while (*end == ' ') end++;
        if (begin > c->template_text && (begin[-1] == '\'' || begin[-1] == '"') && *end == begin[-1])
            return (ht_span){begin, (size_t)(end - begin)};
    }
    return alone;
}

static dialect dialect_of(const ht_chat_writer *c) {
    dialect d = {.user = literal_with(c, "[INST]"),
                 .user_end = literal_with(c, "[/INST]"),
                 .system = literal_with(c, "[SYSTEM_PROMPT]"),
                 .system_end = literal_with(c, "[/SYSTEM_PROMPT]"),
                 .before_answer = "",
                 .after_answer = has(c, "eos_token + ' '") ? " " : "",
                 .trims_answers = has(c, "message[\"content\"]|trim + eos_token"),
                 .alternates = !*c->template_text || has(c, "must alternate")};
    if (has(c, "\" \" + message[\"content\"]") || has(c, "' ' + message['content']")) d.before_answer = " ";
    if (has(c, "[SYSTEM_PROMPT]"))
        d.place = IN_A_BLOCK;
    else if (has(c, "loop.last and system_message"))
        d.place = IN_LAST_MESSAGE;
    else if (has(c, "user_messages[-1]) and system_message"))
        d.place = IN_LAST;
    return d;
}

/* ---- the system text that a template writes by itself ---- */

/* Appends what the string literal at p means and returns where it ends; NULL when it does not. */
static const char *read_literal(const char *p, ht_text *out) {
    const char quote = *p++;
    for (; *p && *p != quote; p++) {
        char byte = *p;
        if (byte == '\\' && p[1]) byte = *++p == 'n' ? '\n' : *p == 't' ? '\t' : *p;
        ht_text_append(out, &byte, 1);
    }
    return *p ? p + 1 : NULL;
}

/* The date is the one of Llama's templates: an answer may not depend on the day. */
static const struct { const char *name, *value; } dates[] = {{"today", "2024-07-26"}, {"yesterday", "2024-07-25"}};

/* One term of the sum that p points at. */
static const char *read_term(const char *p, ht_text *out) {
    if (*p == '\'' || *p == '"') return read_literal(p, out);
    for (size_t i = 0; i < sizeof dates / sizeof *dates; i++) {
        size_t n = strlen(dates[i].name);
        if (strncmp(p, dates[i].name, n) != 0) continue;
        ht_text_append_str(out, dates[i].value);
        return p + n;
    }
    return NULL;
}

static ht_status put_default_system(ht_chat_writer *c, const dialect *d, ht_error *err) {
    static const char begin[] = "set default_system_message =";
    const char *p = strstr(c->template_text, begin);
    if (!p) return HT_OK;
    ht_text text = {0};
    for (p += strlen(begin); p; p++) {
        p = read_term(p + strspn(p, " \n"), &text);
        if (p) p += strspn(p, " \n-");
        if (!p || *p != '+') break;
    }
    bool known = p && !strncmp(p, "%}", 2);
    if (known && text.len) {
        ht_chat_put(c, d->system);
        ht_text_append(&c->out, text.data, text.len);
        ht_chat_put(c, d->system_end);
    }
    c->out.failed = c->out.failed || text.failed;
    ht_text_free(&text);
    return known
               ? HT_OK
               : ht_fail(err, HT_ERR_UNSUPPORTED,
                         "the chat template computes its default system text in a way that Hearth does not know: begin "
                         "the conversation with a system message");
}

/* ---- turns ---- */

static void put_user(ht_chat_writer *c, const dialect *d, size_t i, bool with_system) {
    ht_chat_put(c, d->user);
    if (with_system) ht_text_printf(&c->out, "%s\n\n", c->messages[0].content);
    ht_chat_put_text(c, c->messages[i].content);
    ht_chat_put(c, d->user_end);
}

static void put_answer(ht_chat_writer *c, const dialect *d, const char *content) {
    ht_span text = {content, strlen(content)};
    ht_chat_put_text(c, d->before_answer);
    ht_chat_put(c, d->trims_answers ? ht_chat_trim(text.text, text.n) : text);
    ht_chat_put_text(c, c->eos);
    ht_chat_put_text(c, d->after_answer);
}

static void put_system(ht_chat_writer *c, const dialect *d, const char *content) {
    ht_chat_put(c, d->system);
    ht_chat_put_text(c, content);
    ht_chat_put(c, d->system_end);
}

/* Whose message takes the system text in. */
static size_t bearer(const ht_chat_writer *c, const dialect *d, size_t first) {
    size_t last = c->n - 1;
    if (!first || d->place == IN_A_BLOCK) return c->n;
    if (d->place == IN_FIRST) return first;
    while (d->place == IN_LAST && last > first && !ht_chat_has_role(&c->messages[last], "user")) last--;
    return last;
}

ht_status ht_chat_write_mistral(ht_chat_writer *c, ht_error *err) {
    const dialect d = dialect_of(c);
    const bool block = d.place == IN_A_BLOCK;
    const size_t first = ht_chat_begins_with_system(c) ? 1 : 0;
    ht_status status = d.alternates || !block ? ht_chat_check_turns(c, first, "mistral", err) : HT_OK;
    if (!status && block && !first) status = put_default_system(c, &d, err);
    if (status) return status;
    const size_t with_system = bearer(c, &d, first);
    for (size_t i = block ? 0 : first; i < c->n; i++) {
        const ht_message *m = &c->messages[i];
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
    const bool known = !*c->template_text || has(c, "content.strip()") || has(c, "content | trim");
    if (!known || has(c, "set system_message = '")) return ht_chat_unknown_dialect("llama2", err);
    ht_status status = ht_chat_check_turns(c, first, "llama2", err);
    if (status) return status;
    const bool bos_again = has(c, "bos_token + '[INST] '");
    for (size_t i = first; i < c->n; i++) {
        const ht_message *m = &c->messages[i];
        ht_text text = {0};
        if (i == first && first) ht_text_printf(&text, "<<SYS>>\n%s\n<</SYS>>\n\n", c->messages[0].content);
        ht_text_append_str(&text, m->content);
        ht_span trimmed = text.len ? ht_chat_trim(text.data, text.len) : (ht_span){"", 0};
        bool user = ht_chat_has_role(m, "user");
        if (user && bos_again && i > first) ht_chat_put_text(c, c->bos);
        ht_chat_put_text(c, user ? "[INST] " : " ");
        ht_chat_put(c, trimmed);
        ht_chat_put_text(c, user ? " [/INST]" : " ");
        if (!user) ht_chat_put_text(c, c->eos);
        c->out.failed = c->out.failed || text.failed;
        ht_text_free(&text);
    }
    return HT_OK;
}
