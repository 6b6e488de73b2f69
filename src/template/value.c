/* Values of templates: arena, equality and order, strings with their origins, Python's texts of values, dicts. */
#include "template/value.h"

#include "base/checked.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/text.h"
#include "formats/json_write.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

enum { DEPTH_MAX = 256 };

/* ---- arena ---- */

void *ht_jinja_arena_alloc(ht_jinja_arena *a, size_t bytes) {
    if (a->status) return NULL;
    const size_t left = a->memory.used < a->limit ? a->limit - a->memory.used : 0;
    if (bytes > left) {
        ht_jinja_arena_fail_as(a, HT_ERR_LIMIT, "the template takes more than %zu MB", a->limit >> 20);
        return NULL;
    }
    void *p = ht_arena_take(&a->memory, bytes, 1);
    if (!p) a->status = ht_fail_memory(a->err, bytes, "a template");
    return p;
}

void *ht_jinja_arena_grow(ht_jinja_arena *a, void *items, size_t n, size_t size, size_t *capacity) {
    if (n < *capacity) return a->status ? NULL : items;
    size_t more = ht_max_size(8, 2 * *capacity), bytes;
    if (!ht_mul_size(more, size, &bytes)) bytes = SIZE_MAX / 2;
    void *larger = ht_jinja_arena_alloc(a, bytes);
    if (!larger) return NULL;
    if (n) memcpy(larger, items, n * size);
    *capacity = more;
    return larger;
}

bool ht_jinja_work(ht_jinja_arena *a, size_t n) {
    if (a->most_work && (uint64_t)(a->most_work - a->work) < n)
        ht_jinja_arena_fail_as(a, HT_ERR_LIMIT, "the template takes more than %lld steps", (long long)a->most_work);
    else
        a->work += (int64_t)n;
    return !a->status;
}

void ht_jinja_arena_free(ht_jinja_arena *a) { ht_arena_free(&a->memory); }

static void fail_with(ht_jinja_arena *a, ht_status status, const char *fmt, va_list args) {
    if (a->status) return;
    char sentence[256];
    vsnprintf(sentence, sizeof sentence, fmt, args);
    ht_utf8_trim(sentence);
    if (a->line)
        a->status = ht_fail(a->err, status, "%s, line %d, column %d: %s", a->name, a->line, a->column, sentence);
    else
        a->status = ht_fail(a->err, status, "%s: %s", a->name, sentence);
}

void ht_jinja_arena_fail(ht_jinja_arena *a, const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    fail_with(a, HT_ERR_FORMAT, fmt, args);
    va_end(args);
}

void ht_jinja_arena_fail_as(ht_jinja_arena *a, ht_status status, const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    fail_with(a, status, fmt, args);
    va_end(args);
}

ht_jinja_value ht_jinja_undefined_because(ht_jinja_arena *a, const char *fmt, ...) {
    char sentence[160];
    va_list args;
    va_start(args, fmt);
    vsnprintf(sentence, sizeof sentence, fmt, args);
    va_end(args);
    ht_utf8_trim(sentence);
    return (ht_jinja_value){.kind = HT_VALUE_UNDEFINED,
                            .string = ht_jinja_string_new(a, sentence, strlen(sentence), false)};
}

/* ---- values ---- */

bool ht_jinja_as_integer(ht_jinja_value v, int64_t *out) {
    if (v.kind == HT_VALUE_INT)
        *out = v.integer;
    else if (v.kind == HT_VALUE_BOOL)
        *out = v.boolean;
    else
        return false;
    return true;
}

double ht_jinja_as_real(ht_jinja_value v) {
    switch (v.kind) {
    case HT_VALUE_BOOL: return v.boolean;
    case HT_VALUE_INT: return (double)v.integer;
    case HT_VALUE_BIG: return strtod(v.string->text, NULL);
    default: return v.real;
    }
}

const char *ht_jinja_type_name(ht_jinja_value v) {
    static const char *const names[] = {"Undefined", "NoneType",  "bool",  "int",      "int",        "float",
                                        "str",       "list",      "tuple", "dict",     "dict_keys",  "range",
                                        "generator", "Namespace", "Macro", "function", "LoopContext"};
    if ((v.kind == HT_VALUE_VIEW || v.kind == HT_VALUE_ITERATOR) && v.how) return v.how;
    return v.kind == HT_VALUE_STRING && v.markup ? "Markup" : names[v.kind];
}

bool ht_jinja_length(ht_jinja_value v, size_t *n) {
    switch (v.kind) {
    case HT_VALUE_UNDEFINED: *n = 0; return true;
    case HT_VALUE_STRING: *n = v.string->chars; return true;
    case HT_VALUE_LIST:
    case HT_VALUE_TUPLE:
    case HT_VALUE_VIEW:
    case HT_VALUE_RANGE: *n = v.list->n; return true;
    case HT_VALUE_DICT: *n = v.dict->n; return true;
    default: return false;
    }
}

bool ht_jinja_truth(ht_jinja_value v) {
    size_t n;
    switch (v.kind) {
    case HT_VALUE_NONE: return false;
    case HT_VALUE_BOOL: return v.boolean;
    case HT_VALUE_INT: return v.integer != 0;
    case HT_VALUE_FLOAT: return v.real != 0;
    default: return !ht_jinja_length(v, &n) || n > 0;
    }
}

static bool too_deep(ht_jinja_arena *a, int depth) {
    if (depth > DEPTH_MAX) ht_jinja_arena_fail_as(a, HT_ERR_LIMIT, "values are nested more than %d deep", DEPTH_MAX);
    return a->status != HT_OK;
}

static bool dicts_equal(ht_jinja_arena *a, const ht_jinja_dict *x, const ht_jinja_dict *y, int depth);

static bool equal_at(ht_jinja_arena *a, ht_jinja_value x, ht_jinja_value y, int depth) {
    if (too_deep(a, depth)) return false;
    if (!ht_jinja_work(a, 1 + (x.kind == HT_VALUE_STRING ? x.string->n / 64 : 0))) return false;
    if (ht_jinja_is_number(x) && ht_jinja_is_number(y)) {
        int64_t i, j;
        if (x.kind == HT_VALUE_BIG && y.kind == HT_VALUE_BIG) return !strcmp(x.string->text, y.string->text);
        if (ht_jinja_as_integer(x, &i) && ht_jinja_as_integer(y, &j)) return i == j;
        return ht_jinja_as_real(x) == ht_jinja_as_real(y);
    }
    if (x.kind != y.kind) return false;
    switch (x.kind) {
    case HT_VALUE_UNDEFINED:
    case HT_VALUE_NONE: return true;
    case HT_VALUE_STRING: return x.string->n == y.string->n && !memcmp(x.string->text, y.string->text, x.string->n);
    case HT_VALUE_LIST:
    case HT_VALUE_TUPLE:
    case HT_VALUE_RANGE:
        if (x.list->n != y.list->n) return false;
        for (size_t i = 0; i < x.list->n; i++)
            if (!equal_at(a, x.list->items[i], y.list->items[i], depth + 1)) return false;
        return true;
    case HT_VALUE_DICT: return dicts_equal(a, x.dict, y.dict, depth + 1);
    default: return x.object == y.object;
    }
}

static bool dicts_equal(ht_jinja_arena *a, const ht_jinja_dict *x, const ht_jinja_dict *y, int depth) {
    if (x->n != y->n) return false;
    for (size_t i = 0; i < x->n; i++) {
        const ht_jinja_value *other = ht_jinja_dict_find(a, y, x->keys[i]);
        if (!other || !equal_at(a, x->values[i], *other, depth)) return false;
    }
    return true;
}

bool ht_jinja_equal(ht_jinja_arena *a, ht_jinja_value x, ht_jinja_value y) { return equal_at(a, x, y, 0); }

static int order_at(ht_jinja_arena *a, ht_jinja_value x, ht_jinja_value y, int depth) {
    if (too_deep(a, depth)) return 0;
    if (!ht_jinja_work(a, 1 + (x.kind == HT_VALUE_STRING ? x.string->n / 64 : 0))) return 0;
    if (ht_jinja_is_number(x) && ht_jinja_is_number(y)) {
        int64_t i, j;
        if (ht_jinja_as_integer(x, &i) && ht_jinja_as_integer(y, &j)) return (i > j) - (i < j);
        double p = ht_jinja_as_real(x), q = ht_jinja_as_real(y);
        return (p > q) - (p < q);
    }
    if (x.kind == HT_VALUE_STRING && y.kind == HT_VALUE_STRING) {
        int order = memcmp(x.string->text, y.string->text, ht_min_size(x.string->n, y.string->n));
        return order ? (order > 0) - (order < 0) : (x.string->n > y.string->n) - (x.string->n < y.string->n);
    }
    if (x.kind == y.kind && (x.kind == HT_VALUE_LIST || x.kind == HT_VALUE_TUPLE)) {
        for (size_t i = 0; i < x.list->n && i < y.list->n; i++)
            if (!ht_jinja_equal(a, x.list->items[i], y.list->items[i]))
                return order_at(a, x.list->items[i], y.list->items[i], depth + 1);
        return (x.list->n > y.list->n) - (x.list->n < y.list->n);
    }
    ht_jinja_arena_fail(a, "%s and %s have no order", ht_jinja_type_name(x), ht_jinja_type_name(y));
    return 0;
}

int ht_jinja_order(ht_jinja_arena *a, ht_jinja_value x, ht_jinja_value y) { return order_at(a, x, y, 0); }

/* ---- strings ---- */

static size_t count_chars(const char *text, size_t n) {
    size_t chars = 0;
    for (size_t i = 0; i < n; i++) chars += (text[i] & 0xC0) != 0x80;
    return chars;
}

/* Reserves capacity for n more bytes and a NUL. */
static bool reserve(ht_jinja_builder *b, size_t n) {
    if (b->capacity - b->n > n) return !b->arena->status;
    size_t wanted = ht_max_size(b->n + n + 1, ht_max_size(48, 2 * b->capacity));
    ht_jinja_string *larger = ht_jinja_arena_alloc(b->arena, sizeof *larger + wanted);
    if (!larger) return false;
    if (b->n) memcpy(larger->text, b->text, b->n);
    b->string = larger;
    b->text = larger->text;
    b->capacity = wanted;
    return true;
}

void ht_jinja_reserve(ht_jinja_builder *b, size_t n) { (void)reserve(b, n); }

/* The run that ends at b->n. */
static void put_run(ht_jinja_builder *b, bool input) {
    if (b->n_runs && b->runs[b->n_runs - 1].input == input) {
        b->runs[b->n_runs - 1].end = b->n;
        return;
    }
    ht_text_run *runs = ht_jinja_arena_grow(b->arena, b->runs, b->n_runs, sizeof *runs, &b->runs_capacity);
    if (!runs) return;
    b->runs = runs;
    b->runs[b->n_runs++] = (ht_text_run){b->n, input};
}

void ht_jinja_put(ht_jinja_builder *b, const void *bytes, size_t n, bool input) {
    if (!n || !reserve(b, n)) return;
    memcpy(b->text + b->n, bytes, n);
    b->chars += count_chars(bytes, n);
    b->n += n;
    put_run(b, input);
}

void ht_jinja_put_text(ht_jinja_builder *b, const char *text) { ht_jinja_put(b, text, strlen(text), false); }

void ht_jinja_put_span(ht_jinja_builder *b, const ht_jinja_string *s, size_t from, size_t to) {
    for (size_t i = 0, begin = 0; i < s->n_runs && begin < to; begin = s->runs[i++].end) {
        size_t first = ht_max_size(begin, from), last = ht_min_size(s->runs[i].end, to);
        if (first < last) ht_jinja_put(b, s->text + first, last - first, s->runs[i].input);
    }
}

void ht_jinja_put_string(ht_jinja_builder *b, const ht_jinja_string *s) {
    if (!s || !s->n || !reserve(b, s->n)) return;
    const size_t before = b->n;
    memcpy(b->text + b->n, s->text, s->n);
    b->chars += s->chars;
    for (size_t i = 0; i < s->n_runs && !b->arena->status; i++) {
        b->n = before + s->runs[i].end;
        put_run(b, s->runs[i].input);
    }
}

void ht_jinja_put_code_point(ht_jinja_builder *b, uint32_t c, bool input) {
    utf8proc_uint8_t bytes[4];
    utf8proc_ssize_t n = utf8proc_encode_char((utf8proc_int32_t)c, bytes);
    if (n > 0) ht_jinja_put(b, bytes, (size_t)n, input);
}

const ht_jinja_string *ht_jinja_built(ht_jinja_builder *b) {
    if (!reserve(b, 0)) return NULL;
    ht_jinja_string *s = b->string;
    s->n = b->n;
    s->text[b->n] = '\0';
    s->chars = b->chars;
    s->runs = b->runs;
    s->n_runs = b->n_runs;
    return s;
}

const ht_jinja_string *ht_jinja_string_new(ht_jinja_arena *a, const char *text, size_t n, bool input) {
    ht_jinja_string *s = ht_jinja_arena_alloc(a, sizeof *s + n + 1);
    ht_text_run *run = ht_jinja_arena_alloc(a, sizeof *run);
    if (!s || !run) return NULL;
    *run = (ht_text_run){n, input};
    s->n = n;
    if (n) memcpy(s->text, text, n);
    s->chars = count_chars(text, n);
    s->runs = run;
    s->n_runs = n > 0;
    return s;
}

const ht_jinja_string *ht_jinja_string_span(ht_jinja_arena *a, const ht_jinja_string *s, size_t from, size_t to) {
    if (from == 0 && to == s->n) return s;
    if (s->n_runs == 1) return ht_jinja_string_new(a, s->text + from, to - from, s->runs[0].input);
    ht_jinja_builder b = {.arena = a};
    ht_jinja_put_span(&b, s, from, to);
    return ht_jinja_built(&b);
}

ht_jinja_value ht_jinja_text_value(ht_jinja_arena *a, const char *text) {
    return ht_jinja_string_value(ht_jinja_string_new(a, text, strlen(text), false));
}

bool ht_jinja_string_is(const ht_jinja_string *s, const char *text) {
    return s->n == strlen(text) && !memcmp(s->text, text, s->n);
}

bool ht_jinja_string_input_at(const ht_jinja_string *s, size_t at) {
    for (size_t i = 0; i < s->n_runs; i++)
        if (at < s->runs[i].end) return s->runs[i].input;
    return false;
}

size_t ht_jinja_string_offset(const ht_jinja_string *s, size_t i) {
    if (s->chars == s->n) return i;
    size_t at = 0;
    for (; i && at < s->n; i--) do
            at++;
        while (at < s->n && (s->text[at] & 0xC0) == 0x80);
    return at;
}

uint32_t ht_jinja_string_next(const ht_jinja_string *s, size_t *at) {
    uint32_t c;
    *at += ht_utf8_decode(s->text + *at, s->n - *at, &c);
    return c;
}

bool ht_jinja_is_space(uint32_t c) {
    return (c >= 9 && c <= 13) || (c >= 28 && c <= 32) || c == 0x85 || c == 0xA0 || c == 0x1680 ||
           (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

/* ---- texts of values ---- */

void ht_jinja_format_real(double x, char out[64]) {
    if (isnan(x) || isinf(x)) {
        strcpy(out, isnan(x) ? "nan" : x > 0 ? "inf" : "-inf");
        return;
    }
    ht_json_format_real(x, out);
}

static bool is_printable(uint32_t c) {
    if (c == ' ') return true;
    switch (utf8proc_category((utf8proc_int32_t)c)) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
    case UTF8PROC_CATEGORY_ZS: return false;
    default: return true;
    }
}

static void put_string_repr(ht_jinja_builder *b, const ht_jinja_string *s) {
    char quote = memchr(s->text, '\'', s->n) && !memchr(s->text, '"', s->n) ? '"' : '\'';
    ht_jinja_put(b, &quote, 1, false);
    for (size_t at = 0; at < s->n;) {
        size_t from = at;
        uint32_t c = ht_jinja_string_next(s, &at);
        char escape[16];
        if (c == (uint32_t)quote || c == '\\')
            snprintf(escape, sizeof escape, "\\%c", (char)c);
        else if (c == '\n' || c == '\r' || c == '\t')
            snprintf(escape, sizeof escape, "\\%c", c == '\n' ? 'n' : c == '\r' ? 'r' : 't');
        else if (is_printable(c)) {
            ht_jinja_put_span(b, s, from, at);
            continue;
        } else
            snprintf(escape, sizeof escape, c < 0x100 ? "\\x%02x" : c < 0x10000 ? "\\u%04x" : "\\U%08x", c);
        ht_jinja_put(b, escape, strlen(escape), ht_jinja_string_input_at(s, from));
    }
    ht_jinja_put(b, &quote, 1, false);
}

static void put_items(ht_jinja_builder *b, ht_jinja_value v, const char *open, const char *close, int depth);

static void put_at(ht_jinja_builder *b, ht_jinja_value v, bool repr, int depth) {
    char text[64];
    if (too_deep(b->arena, depth)) return;
    switch (v.kind) {
    case HT_VALUE_UNDEFINED: ht_jinja_put_text(b, repr ? "Undefined" : ""); break;
    case HT_VALUE_NONE: ht_jinja_put_text(b, "None"); break;
    case HT_VALUE_BOOL: ht_jinja_put_text(b, v.boolean ? "True" : "False"); break;
    case HT_VALUE_INT:
        snprintf(text, sizeof text, "%lld", (long long)v.integer);
        ht_jinja_put_text(b, text);
        break;
    case HT_VALUE_FLOAT:
        ht_jinja_format_real(v.real, text);
        ht_jinja_put_text(b, text);
        break;
    case HT_VALUE_BIG: ht_jinja_put_string(b, v.string); break;
    case HT_VALUE_STRING:
        if (!repr)
            ht_jinja_put_string(b, v.string);
        else {
            if (v.markup) ht_jinja_put_text(b, "Markup(");
            put_string_repr(b, v.string);
            if (v.markup) ht_jinja_put_text(b, ")");
        }
        break;
    case HT_VALUE_LIST: put_items(b, v, "[", "]", depth); break;
    case HT_VALUE_TUPLE: put_items(b, v, "(", v.list->n == 1 ? ",)" : ")", depth); break;
    case HT_VALUE_VIEW:
        ht_jinja_put_text(b, v.how);
        put_items(b, v, "([", "])", depth);
        break;
    case HT_VALUE_NAMESPACE: ht_jinja_put_text(b, "<Namespace "); /* and its dict */ /* fall through */
    case HT_VALUE_DICT:
        ht_jinja_put_text(b, "{");
        for (size_t i = 0; i < v.dict->n; i++) {
            if (i) ht_jinja_put_text(b, ", ");
            put_at(b, v.dict->keys[i], true, depth + 1);
            ht_jinja_put_text(b, ": ");
            put_at(b, v.dict->values[i], true, depth + 1);
        }
        ht_jinja_put_text(b, v.kind == HT_VALUE_DICT ? "}" : "}>");
        break;
    case HT_VALUE_RANGE: {
        int64_t first = v.list->n ? v.list->items[0].integer : 0;
        int64_t step = v.list->n > 1 ? v.list->items[1].integer - first : 1;
        snprintf(text, sizeof text, step == 1 ? "range(%lld, %lld)" : "range(%lld, %lld, %lld)", (long long)first,
                 (long long)(first + step * (int64_t)v.list->n), (long long)step);
        ht_jinja_put_text(b, text);
        break;
    }
    default: snprintf(text, sizeof text, "<%.48s>", ht_jinja_type_name(v)); ht_jinja_put_text(b, text);
    }
}

static void put_items(ht_jinja_builder *b, ht_jinja_value v, const char *open, const char *close, int depth) {
    ht_jinja_put_text(b, open);
    for (size_t i = 0; i < v.list->n && !b->arena->status; i++) {
        if (i) ht_jinja_put_text(b, ", ");
        put_at(b, v.list->items[i], true, depth + 1);
    }
    ht_jinja_put_text(b, close);
}

void ht_jinja_put_value(ht_jinja_builder *b, ht_jinja_value v) { put_at(b, v, false, 0); }
void ht_jinja_put_repr(ht_jinja_builder *b, ht_jinja_value v) { put_at(b, v, true, 0); }

const ht_jinja_string *ht_jinja_to_string(ht_jinja_arena *a, ht_jinja_value v) {
    if (v.kind == HT_VALUE_STRING) return v.string;
    ht_jinja_builder b = {.arena = a};
    ht_jinja_put_value(&b, v);
    return ht_jinja_built(&b);
}

/* ---- lists ---- */

ht_jinja_list *ht_jinja_list_new(ht_jinja_arena *a, size_t capacity) {
    ht_jinja_list *list = ht_jinja_arena_alloc(a, sizeof *list);
    if (!list || !capacity) return list;
    size_t bytes;
    if (!ht_mul_size(capacity, sizeof(ht_jinja_value), &bytes)) bytes = SIZE_MAX / 2;
    list->items = ht_jinja_arena_alloc(a, bytes);
    list->capacity = capacity;
    return list->items ? list : NULL;
}

void ht_jinja_list_append(ht_jinja_arena *a, ht_jinja_list *list, ht_jinja_value v) {
    if (!list) return;
    ht_jinja_value *items = ht_jinja_arena_grow(a, list->items, list->n, sizeof *items, &list->capacity);
    if (!items) return;
    list->items = items;
    list->items[list->n++] = v;
}

static ht_jinja_list *characters(ht_jinja_arena *a, const ht_jinja_string *s) {
    ht_jinja_list *list = ht_jinja_list_new(a, s->chars);
    for (size_t at = 0; list && at < s->n;) {
        size_t from = at;
        ht_jinja_string_next(s, &at);
        ht_jinja_list_append(a, list, ht_jinja_string_value(ht_jinja_string_span(a, s, from, at)));
    }
    return list;
}

ht_jinja_value ht_jinja_pair(ht_jinja_arena *a, ht_jinja_value x, ht_jinja_value y) {
    ht_jinja_list *pair = ht_jinja_list_new(a, 2);
    ht_jinja_list_append(a, pair, x);
    ht_jinja_list_append(a, pair, y);
    return ht_jinja_list_value(HT_VALUE_TUPLE, pair);
}

static ht_jinja_list *items_of(ht_jinja_arena *a, ht_jinja_value v) {
    ht_jinja_list *list;
    switch (v.kind) {
    case HT_VALUE_UNDEFINED: return ht_jinja_list_new(a, 0);
    case HT_VALUE_STRING: return characters(a, v.string);
    case HT_VALUE_LIST:
    case HT_VALUE_TUPLE:
    case HT_VALUE_VIEW:
    case HT_VALUE_RANGE: return v.list;
    case HT_VALUE_DICT:
        list = ht_jinja_list_new(a, v.dict->n);
        for (size_t i = 0; i < v.dict->n; i++) ht_jinja_list_append(a, list, v.dict->keys[i]);
        return list;
    case HT_VALUE_ITERATOR:
        list = ht_jinja_list_new(a, v.list->n - v.list->next);
        while (list && v.list->next < v.list->n) ht_jinja_list_append(a, list, v.list->items[v.list->next++]);
        return list;
    default: ht_jinja_arena_fail(a, "%s cannot be iterated over", ht_jinja_type_name(v)); return NULL;
    }
}

ht_jinja_list *ht_jinja_items(ht_jinja_arena *a, ht_jinja_value v) {
    static ht_jinja_list none; /* never appended to, as only a failure leads here */
    ht_jinja_list *items = items_of(a, v);
    return items ? items : &none;
}

/* ---- dicts ---- */

/* Equal values have equal hashes. */
static uint64_t hash_at(ht_jinja_arena *a, ht_jinja_value key, int depth) {
    if (too_deep(a, depth)) return 0;
    if (!ht_jinja_work(a, 1 + (key.kind == HT_VALUE_STRING ? key.string->n / 16 : 0))) return 0;
    int64_t i;
    uint64_t h;
    double x;
    switch (key.kind) {
    case HT_VALUE_STRING:
    case HT_VALUE_BIG: return ht_hash_bytes(key.string->text, key.string->n);
    case HT_VALUE_TUPLE:
        h = 17;
        for (size_t j = 0; j < key.list->n; j++) h = h * 31 + hash_at(a, key.list->items[j], depth + 1);
        return h;
    case HT_VALUE_LIST:
    case HT_VALUE_DICT: ht_jinja_arena_fail(a, "%s cannot be a key", ht_jinja_type_name(key)); return 0;
    case HT_VALUE_NONE:
    case HT_VALUE_UNDEFINED: return 3;
    default: break;
    }
    if (!ht_jinja_is_number(key)) return ht_hash_number((uintptr_t)key.object);
    x = ht_jinja_as_integer(key, &i) ? (double)i : ht_jinja_as_real(key);
    if (x == 0) x = 0; /* of both signs */
    memcpy(&h, &x, sizeof h);
    return ht_hash_number(h);
}

static uint64_t hash_of(ht_jinja_arena *a, ht_jinja_value key) { return hash_at(a, key, 0); }

ht_jinja_dict *ht_jinja_dict_new(ht_jinja_arena *a) { return ht_jinja_arena_alloc(a, sizeof(ht_jinja_dict)); }

static ht_jinja_value *find_hashed(ht_jinja_arena *a, const ht_jinja_dict *d, ht_jinja_value key, uint64_t hash) {
    for (size_t i = hash; d->n_slots; i++) {
        uint32_t slot = d->slots[i & (d->n_slots - 1)];
        if (!slot) return NULL;
        if (ht_jinja_equal(a, d->keys[slot - 1], key)) return &d->values[slot - 1];
    }
    return NULL;
}

ht_jinja_value *ht_jinja_dict_find(ht_jinja_arena *a, const ht_jinja_dict *d, ht_jinja_value key) {
    uint64_t hash = hash_of(a, key);
    return a->status ? NULL : find_hashed(a, d, key, hash);
}

ht_jinja_value *ht_jinja_dict_find_text(const ht_jinja_dict *d, const char *key, size_t n) {
    for (size_t i = ht_hash_bytes(key, n); d->n_slots; i++) {
        uint32_t slot = d->slots[i & (d->n_slots - 1)];
        if (!slot) return NULL;
        ht_jinja_value k = d->keys[slot - 1];
        if (k.kind == HT_VALUE_STRING && k.string->n == n && !memcmp(k.string->text, key, n))
            return &d->values[slot - 1];
    }
    return NULL;
}

static void enter(ht_jinja_dict *d, uint64_t hash, size_t index) {
    size_t i = hash;
    while (d->slots[i & (d->n_slots - 1)]) i++;
    d->slots[i & (d->n_slots - 1)] = (uint32_t)index + 1;
}

static bool rehash(ht_jinja_arena *a, ht_jinja_dict *d, size_t n_slots) {
    uint32_t *slots = ht_jinja_arena_alloc(a, n_slots * sizeof *slots);
    if (!slots) return false;
    d->slots = slots;
    d->n_slots = n_slots;
    for (size_t i = 0; i < d->n; i++) enter(d, hash_of(a, d->keys[i]), i);
    return true;
}

void ht_jinja_dict_set(ht_jinja_arena *a, ht_jinja_dict *d, ht_jinja_value key, ht_jinja_value v) {
    if (!d) return;
    uint64_t hash = hash_of(a, key);
    if (a->status) return;
    ht_jinja_value *found = find_hashed(a, d, key, hash);
    if (found) {
        *found = v;
        return;
    }
    ht_jinja_value *keys = ht_jinja_arena_grow(a, d->keys, d->n, sizeof *keys, &d->keys_capacity);
    ht_jinja_value *values = ht_jinja_arena_grow(a, d->values, d->n, sizeof *values, &d->values_capacity);
    if (!keys || !values) return;
    d->keys = keys;
    d->values = values;
    if (2 * (d->n + 1) > d->n_slots && !rehash(a, d, ht_max_size(16, 2 * d->n_slots))) return;
    keys[d->n] = key;
    values[d->n] = v;
    enter(d, hash, d->n++);
}

void ht_jinja_dict_set_text(ht_jinja_arena *a, ht_jinja_dict *d, const char *key, ht_jinja_value v) {
    ht_jinja_dict_set(a, d, ht_jinja_text_value(a, key), v);
}

bool ht_jinja_dict_remove(ht_jinja_arena *a, ht_jinja_dict *d, ht_jinja_value key) {
    ht_jinja_value *found = ht_jinja_dict_find(a, d, key);
    if (!found) return false;
    size_t i = (size_t)(found - d->values);
    memmove(d->keys + i, d->keys + i + 1, (d->n - i - 1) * sizeof *d->keys);
    memmove(d->values + i, d->values + i + 1, (d->n - i - 1) * sizeof *d->values);
    d->n--;
    return rehash(a, d, d->n_slots);
}

ht_jinja_value ht_jinja_copy(ht_jinja_arena *a, ht_jinja_value v) {
    ht_jinja_value copy = v;
    if (v.kind == HT_VALUE_LIST) {
        copy.list = ht_jinja_list_new(a, v.list->n);
        for (size_t i = 0; i < v.list->n && !a->status; i++)
            ht_jinja_list_append(a, copy.list, ht_jinja_copy(a, v.list->items[i]));
    } else if (v.kind == HT_VALUE_DICT) {
        copy.dict = ht_jinja_dict_new(a);
        for (size_t i = 0; i < v.dict->n && !a->status; i++)
            ht_jinja_dict_set(a, copy.dict, v.dict->keys[i], ht_jinja_copy(a, v.dict->values[i]));
    }
    return a->status ? ht_jinja_undefined() : copy;
}
