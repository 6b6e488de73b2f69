/* Text that is still to be read, and values from it. */
#ifndef HT_CHAT_SPAN_H
#define HT_CHAT_SPAN_H

#include "template/eval.h"
#include "template/value.h"

#include <string.h>

typedef struct ht_span {
    const char *p;
    size_t n;
} ht_span;

static inline void ht_span_skip(ht_span *s, size_t n) {
    s->p += n;
    s->n -= n;
}

static inline void ht_span_skip_any(ht_span *s, const char *characters) {
    while (s->n && *s->p && strchr(characters, *s->p)) ht_span_skip(s, 1);
}

static inline void ht_span_skip_blanks(ht_span *s) { ht_span_skip_any(s, " \t\r\n"); }

static inline bool ht_span_begins(ht_span s, ht_span text) { return s.n >= text.n && memcmp(s.p, text.p, text.n) == 0; }

static inline bool ht_span_is(ht_span s, const char *text) {
    return s.n == strlen(text) && memcmp(s.p, text, s.n) == 0;
}

static inline bool ht_span_accept(ht_span *s, const char *text) {
    const ht_span t = {text, strlen(text)};
    if (!ht_span_begins(*s, t)) return false;
    ht_span_skip(s, t.n);
    return true;
}

/* Reads up to and past `text`, which is not empty; *before precedes it. False when it does not occur: nothing is read. */
static inline bool ht_span_until(ht_span *s, ht_span text, ht_span *before) {
    for (size_t i = 0; i + text.n <= s->n; i++)
        if (memcmp(s->p + i, text.p, text.n) == 0) {
            *before = (ht_span){s->p, i};
            ht_span_skip(s, i + text.n);
            return true;
        }
    return false;
}

static inline ht_span ht_span_trimmed(ht_span s) {
    ht_span_skip_blanks(&s);
    while (s.n && s.p[s.n - 1] && strchr(" \t\r\n", s.p[s.n - 1])) s.n--;
    return s;
}

static inline ht_jinja_value ht_span_string(ht_jinja_arena *a, ht_span s) {
    return ht_jinja_string_value(ht_jinja_string_new(a, s.p, s.n, true));
}

/* Undefined when the text is no JSON. */
static inline ht_jinja_value ht_span_json(ht_jinja_arena *a, ht_span s) {
    if (a->status) return ht_jinja_undefined();
    const ht_jinja_value v = ht_jinja_json_loads(a, s.p, s.n, "a call");
    if (a->status == HT_ERR_FORMAT) a->status = HT_OK;
    return v;
}

static inline ht_jinja_value ht_new_dict(ht_jinja_arena *a) {
    return (ht_jinja_value){.kind = HT_VALUE_DICT, .dict = ht_jinja_dict_new(a)};
}

static inline void ht_dict_set_span(ht_jinja_arena *a, ht_jinja_value dict, ht_span key, ht_jinja_value v) {
    if (!a->status) ht_jinja_dict_set(a, dict.dict, ht_span_string(a, key), v);
}

#endif
