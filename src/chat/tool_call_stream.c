/* Calls handed over as they come: the objects {"name": ..., "arguments": {...}} of a call's text, found before it is whole. */
#include "chat/tool_call_stream.h"

#include "chat/tool_call_reader.h"

#include <string.h>

typedef enum found { MORE_NEEDED, FOUND, IS_NONE } found;

typedef struct scanner {
    const char *text;
    size_t n, at;
} scanner;

/* The next character behind the given ones; 0: it has not come. */
static char next_behind(scanner *s, const char *skipped) {
    while (s->at < s->n && strchr(skipped, s->text[s->at])) s->at++;
    return s->at < s->n ? s->text[s->at] : 0;
}

/* A string without escapes, whose characters are [*from, *from + *n). */
static found read_string(scanner *s, size_t *from, size_t *n) {
    if (s->text[s->at] != '"') return IS_NONE;
    for (size_t i = s->at + 1; i < s->n; i++) {
        if (s->text[i] == '\\') return IS_NONE;
        if (s->text[i] != '"') continue;
        *from = s->at + 1;
        *n = i - s->at - 1;
        s->at = i + 1;
        return FOUND;
    }
    return MORE_NEEDED;
}

static bool is_one_of(const char *key, size_t n, const char *const *keys) {
    for (; *keys; keys++)
        if (strlen(*keys) == n && memcmp(key, *keys, n) == 0) return true;
    return false;
}

static found read_head(scanner *s, ht_call_head *head) {
    static const char blanks[] = " \t\r\n";
    *head = (ht_call_head){.name = 0};
    char c = next_behind(s, " \t\r\n,;[");
    if (c != '{') return c ? IS_NONE : MORE_NEEDED;
    s->at++;
    for (;;) {
        size_t key, n_key;
        if (!(c = next_behind(s, blanks))) return MORE_NEEDED;
        found f = read_string(s, &key, &n_key);
        if (f != FOUND) return f;
        if ((c = next_behind(s, blanks)) != ':') return c ? IS_NONE : MORE_NEEDED;
        s->at++;
        if (!(c = next_behind(s, blanks))) return MORE_NEEDED;
        if (is_one_of(s->text + key, n_key, ht_call_argument_keys)) {
            head->arguments = s->at;
            return head->n_name && c == '{' ? FOUND : IS_NONE;
        }
        const bool is_name = is_one_of(s->text + key, n_key, ht_call_name_keys) && !head->n_name;
        if (!is_name && (!is_one_of(s->text + key, n_key, ht_call_id_keys) || head->n_id)) return IS_NONE;
        f = is_name ? read_string(s, &head->name, &head->n_name) : read_string(s, &head->id, &head->n_id);
        if (f != FOUND) return f;
        if ((c = next_behind(s, blanks)) != ',') return c ? IS_NONE : MORE_NEEDED;
        s->at++;
    }
}

ht_call_step ht_call_stream_next(ht_call_stream *c, const char *text, size_t n) {
    scanner s = {text, n, c->at};
    if (c->stage == HT_CALL_SEEK) {
        const found f = read_head(&s, &c->head);
        if (f == MORE_NEEDED) return HT_CALL_WAITS;
        if (f == IS_NONE) {
            c->stage = HT_CALL_REST;
            return HT_CALL_WAITS;
        }
        c->stage = HT_CALL_IN_ARGUMENTS;
        c->at = c->shown = c->head.arguments;
        c->depth = 0;
        c->is_quoted = c->is_escaped = false;
        return HT_CALL_BEGINS;
    }
    for (; c->at < n && (c->stage == HT_CALL_IN_ARGUMENTS || c->stage == HT_CALL_BEHIND); c->at++) {
        const char b = text[c->at];
        if (c->is_quoted) {
            if (!c->is_escaped && b == '"') c->is_quoted = false;
            c->is_escaped = !c->is_escaped && b == '\\';
            continue;
        }
        /* No JSON has it outside of strings: a mark, before what was begun has ended. */
        if (b == '<') {
            c->is_broken = c->stage == HT_CALL_IN_ARGUMENTS;
            c->end = c->is_broken ? c->at : c->end;
            c->stage = HT_CALL_REST;
            return HT_CALL_ENDS;
        }
        if (b == '"')
            c->is_quoted = true;
        else if (b == '{' || b == '[')
            c->depth++;
        else if ((b == '}' || b == ']') && c->stage == HT_CALL_BEHIND && !c->depth) {
            c->at++;
            c->stage = HT_CALL_SEEK;
            return HT_CALL_ENDS;
        } else if ((b == '}' || b == ']') && !--c->depth && c->stage == HT_CALL_IN_ARGUMENTS) {
            c->end = c->at + 1;
            c->stage = HT_CALL_BEHIND;
        }
    }
    return HT_CALL_WAITS;
}
