/* Arguments of calls as JSON values, which interfaces have that give them as objects: those of a call that is cut as far as they are whole. */
#include "serve/generation.h"

#include <string.h>

/* ---- objects that are cut ---- */

/* A JSON text without its end, and how much of it is whole. */
typedef struct cut_text {
    ht_text closing; /* of what is open now: ] and }, the innermost last */
    size_t whole;    /* bytes behind which only closing brackets are missing */
    size_t n_open;   /* that many of them */
    size_t value;    /* where a value begins that has not ended */
    bool is_key;     /* or a member's name */
} cut_text;

static void mark_whole(cut_text *t, size_t at) {
    t->whole = at;
    t->n_open = t->closing.len;
}

static bool in_object(const cut_text *t) { return t->closing.len && t->closing.data[t->closing.len - 1] == '}'; }

/* A character outside of strings at `at`. */
static void take_mark(cut_text *t, char c, size_t at) {
    switch (c) {
    case '{':
    case '[':
        ht_text_append(&t->closing, c == '{' ? "}" : "]", 1);
        t->is_key = c == '{';
        t->value = at + 1;
        mark_whole(t, at + 1);
        break;
    case '}':
    case ']':
        if (t->closing.len) t->closing.len--;
        mark_whole(t, at + 1);
        break;
    case ',':
        mark_whole(t, at);
        t->is_key = in_object(t);
        t->value = at + 1;
        break;
    case ':':
        t->is_key = false;
        t->value = at + 1;
        break;
    default: break;
    }
}

/* Words are whole when they are written out; numbers might go on. */
static bool is_word(const char *text, size_t n) {
    static const char *const words[] = {"true", "false", "null"};
    while (n && strchr(" \t\r\n", *text)) text++, n--;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strlen(words[i]) == n && memcmp(text, words[i], n) == 0) return true;
    return false;
}

/* The longest beginning of the text that is an object when its brackets are closed: what is in it, and in objects and lists within it, is whole. */
static void mend(const ht_text *text, ht_text *out) {
    cut_text t = {.whole = 0};
    bool quoted = false;
    for (size_t i = 0; i < text->len && !t.closing.failed; i++) {
        const char c = text->data[i];
        if (!quoted)
            take_mark(&t, c, i);
        else if (c == '\\')
            i++;
        if (c != '"') continue;
        quoted = !quoted;
        if (!quoted && !t.is_key) mark_whole(&t, i + 1);
    }
    if (!quoted && !t.is_key && t.closing.len && is_word(text->data + t.value, text->len - t.value))
        mark_whole(&t, text->len);
    ht_text_append(out, text->data ? text->data : "", t.whole);
    for (size_t i = t.n_open; i > 0; i--) ht_text_append(out, t.closing.data + i - 1, 1);
    out->failed = out->failed || t.closing.failed;
    ht_text_discard(&t.closing);
}

/* ---- values ---- */

ht_json *serve_tool_call_arguments(const serve_tool_call *call) {
    ht_text text = {0};
    ht_text_append_str(&text, "");
    if (call->cut)
        mend(&call->arguments, &text);
    else
        ht_text_append(&text, call->arguments.data ? call->arguments.data : "", call->arguments.len);
    const ht_json_options options = {.name = "the arguments", .keeps_nul = true};
    ht_json *value = NULL;
    const bool failed = text.failed || ht_json_load(text.data, text.len, &options, &value, NULL) == HT_ERR_MEMORY;
    ht_text_discard(&text);
    if (value) return value;
    return failed ? NULL : ht_json_new_object();
}
