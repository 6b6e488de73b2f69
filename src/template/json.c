/* JSON in templates, read and written by the rules of Python's json. */
#include "formats/json_write.h"
#include "template/eval.h"

#include <stdlib.h>
#include <string.h>

/* ---- reading ---- */

static ht_jinja_value container_of_json(ht_jinja_arena *a, const ht_json *v) {
    size_t n;
    const ht_json_member *members = ht_json_members(v, &n);
    if (ht_json_is_array(v)) {
        ht_jinja_list *list = ht_jinja_list_new(a, ht_json_array_size(v));
        for (size_t i = 0; i < ht_json_array_size(v) && !a->status; i++)
            ht_jinja_list_append(a, list, ht_jinja_of_json(a, ht_json_array_get(v, i)));
        return ht_jinja_list_value(HT_VALUE_LIST, list);
    }
    const ht_jinja_value dict = {.kind = HT_VALUE_DICT, .dict = ht_jinja_dict_new(a)};
    for (size_t i = 0; i < n && !a->status; i++) {
        const ht_jinja_string *key = ht_jinja_string_new(a, members[i].name, members[i].n_name, true);
        ht_jinja_dict_set(a, dict.dict, ht_jinja_string_value(key), ht_jinja_of_json(a, members[i].value));
    }
    return dict;
}

ht_jinja_value ht_jinja_of_json(ht_jinja_arena *a, const ht_json *v) {
    const char *spelling = ht_json_spelling(v);
    if (a->status) return ht_jinja_undefined();
    switch (ht_json_typeof(v)) {
    case HT_JSON_OBJECT:
    case HT_JSON_ARRAY: return container_of_json(a, v);
    case HT_JSON_STRING: {
        const char *text = ht_json_string_value(v);
        return ht_jinja_string_value(ht_jinja_string_new(a, text, ht_json_string_length(v), true));
    }
    case HT_JSON_INTEGER: return ht_jinja_integer(ht_json_integer_value(v));
    case HT_JSON_REAL:
        if (!spelling || strpbrk(spelling, ".eE")) return ht_jinja_real(ht_json_real_value(v));
        return (ht_jinja_value){.kind = HT_VALUE_BIG,
                                .string = ht_jinja_string_new(a, spelling, strlen(spelling), true)};
    case HT_JSON_NOT_FINITE: return ht_jinja_real(strtod(spelling, NULL));
    case HT_JSON_TRUE:
    case HT_JSON_FALSE: return ht_jinja_boolean(ht_json_is_true(v));
    default: return ht_jinja_none();
    }
}

static ht_jinja_value read_json(ht_jinja_arena *a, const char *text, size_t n, const char *name, bool as_python) {
    const ht_json_options options = {
        .name = name, .any_value = true, .depth_max = HT_JSON_DEPTH_MAX, .as_python = as_python};
    ht_error err = {0};
    ht_json *v;
    if (a->status) return ht_jinja_undefined();
    const ht_status status = ht_json_load(text, n, &options, &v, &err);
    if (status) {
        ht_jinja_arena_fail_as(a, status, "%s", err.message);
        return ht_jinja_undefined();
    }
    const ht_jinja_value read = ht_jinja_of_json(a, v);
    ht_json_decref(v);
    return a->status ? ht_jinja_undefined() : read;
}

ht_jinja_value ht_jinja_json_value(ht_jinja_arena *a, const char *text, size_t n, const char *name) {
    return read_json(a, text, n, name, false);
}

ht_jinja_value ht_jinja_json_loads(ht_jinja_arena *a, const char *text, size_t n, const char *name) {
    return read_json(a, text, n, name, true);
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
    for (size_t at = 0, plain; at < s->n;) {
        char escape[16];
        const size_t from = at;
        at += ht_json_escape(s->text + from, s->n - from, w->ascii, &plain, escape);
        ht_jinja_put_span(&w->b, s, from, from + plain);
        if (*escape) ht_jinja_put(&w->b, escape, strlen(escape), ht_jinja_string_input_at(s, from + plain));
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

/* Converts keys to strings as json.dumps does. */
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
    const ht_jinja_value key = ht_jinja_integer(0);
    ht_jinja_list *pairs = ht_jinja_pairs(w->r, d);
    if (w->sort_keys) ht_jinja_sort(w->r, pairs, &(ht_jinja_sorting){.attribute = &key});
    if (!pairs || a->status) return;
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
    if (depth > HT_JSON_DEPTH_MAX)
        ht_jinja_arena_fail_as(w->r->a, HT_ERR_LIMIT, "a value is nested more than %d deep, or in itself",
                               HT_JSON_DEPTH_MAX);
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
