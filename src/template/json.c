/* JSON in and out of templates: as Python's json reads it, and writes it. */
#include "base/text.h"
#include "template/eval.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <yajl_parse.h>

enum { DEPTH_MAX = 256 };

/* ---- reading ---- */

typedef struct reader {
    ht_jinja_arena *a;
    ht_jinja_value result, open[DEPTH_MAX], key[DEPTH_MAX];
    int depth;
} reader;

static int put(reader *r, ht_jinja_value v) {
    if (r->a->status) return 0;
    if (!r->depth)
        r->result = v;
    else if (r->open[r->depth - 1].kind == HT_VALUE_DICT)
        ht_jinja_dict_set(r->a, r->open[r->depth - 1].dict, r->key[r->depth - 1], v);
    else
        ht_jinja_list_append(r->a, r->open[r->depth - 1].list, v);
    return !r->a->status;
}

static int on_null(void *user) { return put(user, ht_jinja_none()); }
static int on_boolean(void *user, int b) { return put(user, ht_jinja_boolean(b)); }

static int on_number(void *user, const char *text, size_t n) {
    reader *r = user;
    const ht_jinja_string *s = ht_jinja_string_new(r->a, text, n, true);
    if (!s) return 0;
    if (strpbrk(s->text, ".eE")) return put(r, ht_jinja_real(strtod(s->text, NULL)));
    errno = 0;
    long long i = strtoll(s->text, NULL, 10);
    return put(r, errno ? (ht_jinja_value){.kind = HT_VALUE_BIG, .string = s} : ht_jinja_integer(i));
}

/* Half a pair of surrogates comes as bytes that are no UTF-8, and becomes U+FFFD. */
static ht_jinja_value string_of(reader *r, const char *text, size_t n) {
    if (ht_utf8_valid(text, n)) return ht_jinja_string_value(ht_jinja_string_new(r->a, text, n, true));
    ht_jinja_builder b = {.arena = r->a};
    for (size_t i = 0; i < n;) {
        uint32_t c;
        i += ht_utf8_decode(text + i, n - i, &c);
        ht_jinja_put_code_point(&b, c, true);
    }
    return ht_jinja_string_value(ht_jinja_built(&b));
}

static int on_string(void *user, const unsigned char *text, size_t n) {
    return put(user, string_of(user, (const char *)text, n));
}

static int on_key(void *user, const unsigned char *text, size_t n) {
    reader *r = user;
    r->key[r->depth - 1] = string_of(r, (const char *)text, n);
    return !r->a->status;
}

static int open_value(reader *r, ht_jinja_value v) {
    if (r->depth == DEPTH_MAX) {
        ht_jinja_arena_fail_as(r->a, HT_ERR_LIMIT, "JSON is nested more than %d deep", DEPTH_MAX);
        return 0;
    }
    if (!put(r, v)) return 0;
    r->open[r->depth++] = v;
    return 1;
}

static int on_object(void *user) {
    reader *r = user;
    return open_value(r, (ht_jinja_value){.kind = HT_VALUE_DICT, .dict = ht_jinja_dict_new(r->a)});
}

static int on_array(void *user) {
    reader *r = user;
    return open_value(r, (ht_jinja_value){.kind = HT_VALUE_LIST, .list = ht_jinja_list_new(r->a, 0)});
}

static int on_end(void *user) {
    ((reader *)user)->depth--;
    return 1;
}

/* The first half of a pair of surrogates; the parser would drop what follows one that stands alone. */
static bool is_high_half(const char *p, size_t n) {
    return n >= 6 && p[0] == '\\' && p[1] == 'u' && (p[2] == 'd' || p[2] == 'D') && strchr("89abAB", p[3]) && p[3];
}
static bool is_low_half(const char *p, size_t n) {
    return n >= 6 && p[0] == '\\' && p[1] == 'u' && (p[2] == 'd' || p[2] == 'D') && strchr("cdefCDEF", p[3]) && p[3];
}

/* The text with \ufffd for every such half alone; the text itself when there is none. */
static const char *without_halves(ht_jinja_arena *a, const char *text, size_t n) {
    char *copy = NULL;
    for (size_t i = 0; i + 1 < n; i++) {
        if (text[i] != '\\') continue;
        const bool high = is_high_half(text + i, n - i);
        if (high && is_low_half(text + i + 6, n - i - 6))
            i += 11;
        else if (high) {
            if (!copy && !(copy = ht_jinja_arena_alloc(a, n + 1))) return text;
            if (copy[0] == '\0') memcpy(copy, text, n);
            memcpy(copy + i + 2, "fffd", 4);
            i += 5;
        } else
            i++;
    }
    return copy ? copy : text;
}

ht_jinja_value ht_jinja_json_value(ht_jinja_arena *a, const char *text, size_t n, const char *name) {
    static const yajl_callbacks callbacks = {.yajl_null = on_null,
                                             .yajl_boolean = on_boolean,
                                             .yajl_number = on_number,
                                             .yajl_string = on_string,
                                             .yajl_start_map = on_object,
                                             .yajl_map_key = on_key,
                                             .yajl_end_map = on_end,
                                             .yajl_start_array = on_array,
                                             .yajl_end_array = on_end};
    reader r = {.a = a};
    yajl_handle parser = yajl_alloc(&callbacks, NULL, &r);
    if (!parser) {
        ht_jinja_arena_fail_as(a, HT_ERR_MEMORY, "out of memory for JSON");
        return ht_jinja_undefined();
    }
    text = without_halves(a, text, n);
    yajl_status status = yajl_parse(parser, (const unsigned char *)text, n);
    if (status == yajl_status_ok) status = yajl_complete_parse(parser);
    if (status != yajl_status_ok) {
        unsigned char *why = yajl_get_error(parser, 0, NULL, 0);
        char first[96];
        snprintf(first, sizeof first, "%s", why ? (const char *)why : "it is no JSON");
        first[strcspn(first, "\n")] = '\0';
        ht_jinja_arena_fail(a, "%s: %s", name, first);
        if (why) yajl_free_error(parser, why);
    }
    yajl_free(parser);
    return a->status ? ht_jinja_undefined() : r.result;
}

/* ---- writing ---- */

typedef struct writer {
    ht_jinja_rendering *r;
    ht_jinja_builder b;
    const ht_jinja_string *indent; /* NULL: one line */
    const ht_jinja_string *item_separator, *key_separator;
    bool sort_keys, ascii;
} writer;

static void put_string(writer *w, const ht_jinja_string *s) {
    ht_jinja_put_text(&w->b, "\"");
    for (size_t at = 0; at < s->n;) {
        size_t from = at;
        uint32_t c = ht_jinja_string_next(s, &at);
        char escape[16];
        static const char plain[] = "\"\\\b\f\n\r\t", letters[] = "\"\\bfnrt";
        const char *found = c && c < 128 ? strchr(plain, (int)c) : NULL;
        if (found)
            snprintf(escape, sizeof escape, "\\%c", letters[found - plain]);
        else if (c < 32 || (w->ascii && c > 126 && c < 0x10000))
            snprintf(escape, sizeof escape, "\\u%04x", c);
        else if (w->ascii && c >= 0x10000)
            snprintf(escape, sizeof escape, "\\u%04x\\u%04x", 0xD800 + ((c - 0x10000) >> 10),
                     0xDC00 + ((c - 0x10000) & 0x3FF));
        else {
            ht_jinja_put_span(&w->b, s, from, at);
            continue;
        }
        ht_jinja_put(&w->b, escape, strlen(escape), ht_jinja_string_input_at(s, from));
    }
    ht_jinja_put_text(&w->b, "\"");
}

static void new_line(writer *w, int depth) {
    if (!w->indent) return;
    ht_jinja_put_text(&w->b, "\n");
    for (int i = 0; i < depth && ht_jinja_step(w->r, 1); i++) ht_jinja_put_string(&w->b, w->indent);
}

static void put_real(writer *w, double x) {
    char text[64];
    ht_jinja_format_real(x, text);
    ht_jinja_put_text(&w->b, x != x ? "NaN" : x - x != 0 ? (x > 0 ? "Infinity" : "-Infinity") : text);
}

static void put_value(writer *w, ht_jinja_value v, int depth);

/* Keys that are no strings become some, as json.dumps has it. */
static void put_key(writer *w, ht_jinja_value key) {
    if (ht_jinja_is_string(key)) {
        put_string(w, key.string);
        return;
    }
    if (!ht_jinja_is_number(key) && key.kind != HT_VALUE_NONE) {
        ht_jinja_arena_fail(w->r->a, "keys must be str, int, float, bool or None, not %s", ht_jinja_type_name(key));
        return;
    }
    ht_jinja_put_text(&w->b, "\"");
    put_value(w, key, 0);
    ht_jinja_put_text(&w->b, "\"");
}

static void put_dict(writer *w, const ht_jinja_dict *d, int depth) {
    ht_jinja_arena *a = w->r->a;
    ht_jinja_list *pairs = ht_jinja_list_new(a, d->n);
    for (size_t i = 0; i < d->n; i++) {
        ht_jinja_list *pair = ht_jinja_list_new(a, 2);
        ht_jinja_list_append(a, pair, d->keys[i]);
        ht_jinja_list_append(a, pair, d->values[i]);
        ht_jinja_list_append(a, pairs, ht_jinja_list_value(HT_VALUE_TUPLE, pair));
    }
    if (!pairs || a->status) return;
    if (w->sort_keys) ht_jinja_sort(w->r, pairs, ht_jinja_integer(0), true, false, false);
    ht_jinja_put_text(&w->b, "{");
    for (size_t i = 0; i < pairs->n && !a->status; i++) {
        if (i) ht_jinja_put_string(&w->b, w->item_separator);
        new_line(w, depth + 1);
        put_key(w, pairs->items[i].list->items[0]);
        ht_jinja_put_string(&w->b, w->key_separator);
        put_value(w, pairs->items[i].list->items[1], depth + 1);
    }
    if (d->n) new_line(w, depth);
    ht_jinja_put_text(&w->b, "}");
}

static void put_value(writer *w, ht_jinja_value v, int depth) {
    ht_jinja_builder *b = &w->b;
    if (depth > DEPTH_MAX)
        ht_jinja_arena_fail_as(w->r->a, HT_ERR_LIMIT, "a value is nested more than %d deep, or in itself", DEPTH_MAX);
    if (!ht_jinja_step(w->r, 1)) return;
    switch (v.kind) {
    case HT_VALUE_NONE: ht_jinja_put_text(b, "null"); break;
    case HT_VALUE_BOOL: ht_jinja_put_text(b, v.boolean ? "true" : "false"); break;
    case HT_VALUE_INT:
    case HT_VALUE_BIG: ht_jinja_put_value(b, v); break;
    case HT_VALUE_FLOAT: put_real(w, v.real); break;
    case HT_VALUE_STRING: put_string(w, v.string); break;
    case HT_VALUE_LIST:
    case HT_VALUE_TUPLE:
        ht_jinja_put_text(b, "[");
        for (size_t i = 0; i < v.list->n && !w->r->a->status; i++) {
            if (i) ht_jinja_put_string(b, w->item_separator);
            new_line(w, depth + 1);
            put_value(w, v.list->items[i], depth + 1);
        }
        if (v.list->n) new_line(w, depth);
        ht_jinja_put_text(b, "]");
        break;
    case HT_VALUE_DICT: put_dict(w, v.dict, depth); break;
    default: ht_jinja_arena_fail(w->r->a, "Object of type %s is not JSON serializable", ht_jinja_type_name(v));
    }
}

const ht_jinja_string *ht_jinja_json_text(ht_jinja_rendering *r, ht_jinja_value v, const ht_jinja_string *indent,
                                          const ht_jinja_string *item_separator, const ht_jinja_string *key_separator,
                                          bool sort_keys, bool ascii) {
    if (!item_separator) {
        item_separator = ht_jinja_text_value(r->a, indent ? "," : ", ").string;
        key_separator = ht_jinja_text_value(r->a, ": ").string;
    }
    writer w = {r, {.arena = r->a}, indent, item_separator, key_separator, sort_keys, ascii};
    if (!r->a->status) put_value(&w, v, 0);
    return ht_jinja_built(&w.b);
}
