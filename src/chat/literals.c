#include "chat/literals.h"

#include "base/text.h"

enum { LITERAL_DEPTH = 64 };

static bool until_quote(ht_literals *l, ht_span *text) {
    return ht_span_until(&l->s, (ht_span){l->quote, strlen(l->quote)}, text);
}

/* The character of an escape, whose letter `s` begins with; reads all of it. An unknown escape is a backslash: nothing is read. */
static uint32_t read_escape(ht_span *s) {
    static const char names[] = "abfnrtv0\\'\"", values[] = "\a\b\f\n\r\t\v\0\\'\"";
    const char c = *s->p, *at = c ? strchr(names, c) : NULL;
    if (at) {
        ht_span_skip(s, 1);
        return (uint32_t)(unsigned char)values[at - names];
    }
    const size_t digits = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
    uint32_t code = 0;
    size_t n = 0;
    for (; n < digits && n + 1 < s->n; n++) {
        const char d = s->p[n + 1];
        const int value = d >= '0' && d <= '9'   ? d - '0'
                          : d >= 'a' && d <= 'f' ? d - 'a' + 10
                          : d >= 'A' && d <= 'F' ? d - 'A' + 10
                                                 : -1;
        if (value < 0) break;
        code = code * 16 + (uint32_t)value;
    }
    if (!digits || n < digits) return '\\';
    ht_span_skip(s, digits + 1);
    uint32_t low;
    ht_span rest = *s;
    /* A pair of surrogates, as JSON writes one. */
    if (code >= 0xD800 && code < 0xDC00 && ht_span_accept(&rest, "\\") && rest.n && *rest.p == 'u' &&
        (low = read_escape(&rest)) >= 0xDC00 && low < 0xE000) {
        *s = rest;
        code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
    }
    return code;
}

/* A string in the quotes of Python or JSON. */
static bool read_python_string(ht_literals *l, ht_jinja_value *v) {
    const char quote = *l->s.p;
    ht_text text = {0};
    for (ht_span_skip(&l->s, 1); l->s.n && *l->s.p != quote;) {
        const char c = *l->s.p;
        ht_span_skip(&l->s, 1);
        if (c == '\\' && l->s.n)
            ht_text_append_utf8(&text, read_escape(&l->s));
        else
            ht_text_append(&text, &c, 1);
    }
    const bool good = l->s.n && !text.failed;
    if (good) {
        ht_span_skip(&l->s, 1);
        *v = ht_span_string(l->a, (ht_span){text.len ? text.data : "", text.len});
    }
    ht_text_discard(&text);
    return good;
}

static bool read_key(ht_literals *l, ht_span *key, char end) {
    if (l->quote && ht_span_accept(&l->s, l->quote)) {
        if (!until_quote(l, key)) return false;
    } else {
        size_t n = 0;
        while (n < l->s.n && l->s.p[n] != end) n++;
        *key = ht_span_trimmed((ht_span){l->s.p, n});
        ht_span_skip(&l->s, n);
        if (key->n > 1 && (*key->p == '\'' || *key->p == '"') && key->p[key->n - 1] == *key->p)
            *key = (ht_span){key->p + 1, key->n - 2};
    }
    ht_span_skip_blanks(&l->s);
    if (!l->s.n || *l->s.p != end) return false;
    ht_span_skip(&l->s, 1);
    return true;
}

bool ht_literal_read_members(ht_literals *l, char separator, char close, ht_jinja_value *v) {
    *v = ht_new_dict(l->a);
    for (;;) {
        ht_span key;
        ht_jinja_value item;
        ht_span_skip_any(&l->s, " \t\r\n,");
        if (!l->s.n) return false;
        if (*l->s.p == close) {
            ht_span_skip(&l->s, 1);
            return true;
        }
        if (!read_key(l, &key, separator) || !ht_literal_read(l, &item)) return false;
        ht_dict_set_span(l->a, *v, key, item);
    }
}

static bool read_items(ht_literals *l, char close, ht_jinja_value *v) {
    ht_jinja_list *list = ht_jinja_list_new(l->a, 0);
    for (;;) {
        ht_jinja_value item;
        ht_span_skip_any(&l->s, " \t\r\n,");
        if (!l->s.n || !list) return false;
        if (*l->s.p == close) {
            ht_span_skip(&l->s, 1);
            *v = ht_jinja_list_value(HT_VALUE_LIST, list);
            return true;
        }
        if (!ht_literal_read(l, &item)) return false;
        ht_jinja_list_append(l->a, list, item);
    }
}

static bool read_word(ht_literals *l, ht_jinja_value *v) {
    static const struct { const char *word, *json; } words[] = {{"True", "true"}, {"False", "false"}, {"None", "null"}};
    size_t n = 0;
    while (n < l->s.n && !strchr(",)]} \t\r\n", l->s.p[n])) n++;
    if (n == l->s.n && l->is_cut) return false;
    ht_span word = {l->s.p, n};
    ht_span_skip(&l->s, n);
    for (int i = 0; i < 3; i++)
        if (ht_span_is(word, words[i].word)) word = (ht_span){words[i].json, strlen(words[i].json)};
    *v = ht_span_json(l->a, word);
    return v->kind != HT_VALUE_UNDEFINED;
}

bool ht_literal_read(ht_literals *l, ht_jinja_value *v) {
    ht_span_skip_blanks(&l->s);
    if (!l->s.n || l->a->status || ++l->depth > LITERAL_DEPTH) return false;
    const char c = *l->s.p;
    bool good;
    if (l->quote && ht_span_accept(&l->s, l->quote)) {
        ht_span text;
        good = until_quote(l, &text);
        if (good) *v = ht_span_string(l->a, text);
    } else if (c == '"' || (c == '\'' && !l->quote))
        good = read_python_string(l, v);
    else if (c == '{' || c == '[' || (c == '(' && !l->quote)) {
        ht_span_skip(&l->s, 1);
        good = c == '{' ? ht_literal_read_members(l, ':', '}', v) : read_items(l, c == '[' ? ']' : ')', v);
    } else
        good = read_word(l, v);
    l->depth--;
    return good;
}
