/* Tool calls by the table of formats: whole ones, and streams of those whose arguments are JSON. */
#include "chat/tool_call_reader.h"

#include "base/hex.h"
#include "base/text.h"
#include "chat/tools.h"
#include "template/eval.h"

#include <string.h>

/* ---- text that is still to be read ---- */

static void span_skip(ht_span *s, size_t n) {
    s->p += n;
    s->n -= n;
}

static void span_skip_any(ht_span *s, const char *characters) {
    while (s->n && *s->p && strchr(characters, *s->p)) span_skip(s, 1);
}

static void span_skip_blanks(ht_span *s) { span_skip_any(s, " \t\r\n"); }

static bool span_begins(ht_span s, ht_span text) { return s.n >= text.n && memcmp(s.p, text.p, text.n) == 0; }

static bool span_is(ht_span s, const char *text) { return s.n == strlen(text) && memcmp(s.p, text, s.n) == 0; }

static bool span_accept(ht_span *s, const char *text) {
    const ht_span t = {text, strlen(text)};
    if (!span_begins(*s, t)) return false;
    span_skip(s, t.n);
    return true;
}

/* Reads up to and past `text`, which is not empty; *before precedes it. False when it does not occur: nothing is read. */
static bool span_until(ht_span *s, ht_span text, ht_span *before) {
    const char *found = memmem(s->p, s->n, text.p, text.n);
    if (!found) return false;
    *before = (ht_span){s->p, (size_t)(found - s->p)};
    span_skip(s, before->n + text.n);
    return true;
}

static ht_span span_trimmed(ht_span s) {
    span_skip_blanks(&s);
    while (s.n && s.p[s.n - 1] && strchr(" \t\r\n", s.p[s.n - 1])) s.n--;
    return s;
}

static ht_jinja_value span_string(ht_jinja_arena *a, ht_span s) {
    return ht_jinja_string_value(ht_jinja_string_new(a, s.p, s.n, true));
}

/* Undefined when the text is no JSON. */
static ht_jinja_value span_json(ht_jinja_arena *a, ht_span s) {
    if (a->status) return ht_jinja_undefined();
    const ht_jinja_value v = ht_jinja_json_loads(a, s.p, s.n, "a call");
    if (a->status == HT_ERR_FORMAT) a->status = HT_OK;
    return v;
}

static ht_jinja_value new_dict(ht_jinja_arena *a) {
    return (ht_jinja_value){.kind = HT_VALUE_DICT, .dict = ht_jinja_dict_new(a)};
}

static void dict_set(ht_jinja_arena *a, ht_jinja_value dict, ht_span key, ht_jinja_value v) {
    if (!a->status) ht_jinja_dict_set(a, dict.dict, span_string(a, key), v);
}

/* ---- literals: values as Python writes them, or as Gemma does with bare keys and its own quotes ---- */

typedef struct literals {
    ht_jinja_arena *a;
    ht_span s;
    const char *quote; /* around strings; NULL: Python's */
    int depth;
    bool is_cut; /* a word at the end of the text may be incomplete, and is not read */
} literals;

static bool read_literal(literals *l, ht_jinja_value *v);

enum { LITERAL_DEPTH = 64 };

static bool until_quote(literals *l, ht_span *text) {
    return span_until(&l->s, (ht_span){l->quote, strlen(l->quote)}, text);
}

/* The character of an escape, whose letter `s` begins with; reads all of it. An unknown escape is a backslash: nothing is read. */
static uint32_t read_escape(ht_span *s) {
    static const char names[] = "abfnrtv0\\'\"", values[] = "\a\b\f\n\r\t\v\0\\'\"";
    const char c = *s->p, *at = c ? strchr(names, c) : NULL;
    if (at) {
        span_skip(s, 1);
        return (uint32_t)(unsigned char)values[at - names];
    }
    const size_t digits = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
    uint32_t code = 0;
    size_t n = 0;
    for (; n < digits && n + 1 < s->n; n++) {
        const int value = ht_hex_digit(s->p[n + 1]);
        if (value < 0) break;
        code = code * 16 + (uint32_t)value;
    }
    if (!digits || n < digits) return '\\';
    span_skip(s, digits + 1);
    uint32_t low;
    ht_span rest = *s;
    /* A pair of surrogates, as JSON writes one. */
    if (code >= 0xD800 && code < 0xDC00 && span_accept(&rest, "\\") && rest.n && *rest.p == 'u' &&
        (low = read_escape(&rest)) >= 0xDC00 && low < 0xE000) {
        *s = rest;
        code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
    }
    return code;
}

/* A string in the quotes of Python or JSON. */
static bool read_python_string(literals *l, ht_jinja_value *v) {
    const char quote = *l->s.p;
    ht_text text = {0};
    for (span_skip(&l->s, 1); l->s.n && *l->s.p != quote;) {
        const char c = *l->s.p;
        span_skip(&l->s, 1);
        if (c == '\\' && l->s.n)
            ht_text_append_utf8(&text, read_escape(&l->s));
        else
            ht_text_append(&text, &c, 1);
    }
    const bool good = l->s.n && !text.failed;
    if (good) {
        span_skip(&l->s, 1);
        *v = span_string(l->a, (ht_span){text.len ? text.data : "", text.len});
    }
    ht_text_discard(&text);
    return good;
}

static bool read_key(literals *l, ht_span *key, char end) {
    if (l->quote && span_accept(&l->s, l->quote)) {
        if (!until_quote(l, key)) return false;
    } else {
        size_t n = 0;
        while (n < l->s.n && l->s.p[n] != end) n++;
        *key = span_trimmed((ht_span){l->s.p, n});
        span_skip(&l->s, n);
        if (key->n > 1 && (*key->p == '\'' || *key->p == '"') && key->p[key->n - 1] == *key->p)
            *key = (ht_span){key->p + 1, key->n - 2};
    }
    span_skip_blanks(&l->s);
    if (!l->s.n || *l->s.p != end) return false;
    span_skip(&l->s, 1);
    return true;
}

/* Items, or with a separator keys and values, up to and past `close`. On failure *v has those before. */
static bool read_container(literals *l, char separator, char close, ht_jinja_value *v) {
    *v = separator ? new_dict(l->a) : ht_jinja_list_value(HT_VALUE_LIST, ht_jinja_list_new(l->a, 0));
    for (;;) {
        ht_span key;
        ht_jinja_value item;
        span_skip_any(&l->s, " \t\r\n,");
        if (!l->s.n || l->a->status) return false;
        if (*l->s.p == close) {
            span_skip(&l->s, 1);
            return true;
        }
        if ((separator && !read_key(l, &key, separator)) || !read_literal(l, &item)) return false;
        if (separator)
            dict_set(l->a, *v, key, item);
        else
            ht_jinja_list_append(l->a, v->list, item);
    }
}

static bool read_word(literals *l, ht_jinja_value *v) {
    static const struct { const char *word, *json; } words[] = {{"True", "true"}, {"False", "false"}, {"None", "null"}};
    size_t n = 0;
    while (n < l->s.n && !strchr(",)]} \t\r\n", l->s.p[n])) n++;
    if (n == l->s.n && l->is_cut) return false;
    ht_span word = {l->s.p, n};
    span_skip(&l->s, n);
    for (int i = 0; i < 3; i++)
        if (span_is(word, words[i].word)) word = (ht_span){words[i].json, strlen(words[i].json)};
    *v = span_json(l->a, word);
    return v->kind != HT_VALUE_UNDEFINED;
}

static bool read_literal(literals *l, ht_jinja_value *v) {
    span_skip_blanks(&l->s);
    if (!l->s.n || l->a->status || ++l->depth > LITERAL_DEPTH) return false;
    const char c = *l->s.p;
    bool good;
    if (l->quote && span_accept(&l->s, l->quote)) {
        ht_span text;
        good = until_quote(l, &text);
        if (good) *v = span_string(l->a, text);
    } else if (c == '"' || (c == '\'' && !l->quote))
        good = read_python_string(l, v);
    else if (c == '{' || c == '[' || (c == '(' && !l->quote)) {
        span_skip(&l->s, 1);
        good = c == '{' ? read_container(l, ':', '}', v) : read_container(l, '\0', c == '[' ? ']' : ')', v);
    } else
        good = read_word(l, v);
    l->depth--;
    return good;
}

/* ---- values ---- */

typedef enum match {
    DIFFERS,
    MATCHES,
    TRUNCATED /* the text ends, and could go on as the pattern does */
} match;

/* The object or list at the beginning, whose brackets and strings show its end. */
static bool read_extent(ht_span *s, ht_span *value) {
    size_t depth = 0;
    bool quoted = false;
    for (size_t i = 0; i < s->n; i++) {
        const char c = s->p[i];
        if (quoted) {
            if (c == '\\')
                i++;
            else
                quoted = c != '"';
        } else if (c == '"')
            quoted = true;
        else if (c == '{' || c == '[')
            depth++;
        else if (c == '}' || c == ']')
            depth--;
        if (!depth && !quoted) {
            if (c != '}' && c != ']') return false;
            *value = (ht_span){s->p, i + 1};
            span_skip(s, i + 1);
            return true;
        }
    }
    return false;
}

static size_t name_length(ht_span s) {
    size_t n = 0;
    while (n < s.n && (unsigned char)s.p[n] > ' ' && !strchr("\"'`<>{}()[],;", s.p[n])) n++;
    return n;
}

bool ht_is_call_name(const char *name, size_t n) { return n && name_length((ht_span){name, n}) == n; }

/* Numbers too large for a float are no JSON. */
static bool is_finite(ht_jinja_value v) {
    bool finite = v.kind != HT_VALUE_FLOAT || v.real - v.real == 0;
    if (v.kind == HT_VALUE_LIST)
        for (size_t i = 0; i < v.list->n && finite; i++) finite = is_finite(v.list->items[i]);
    if (v.kind == HT_VALUE_DICT)
        for (size_t i = 0; i < v.dict->n && finite; i++) finite = is_finite(v.dict->values[i]);
    return finite;
}

bool ht_is_arguments(ht_jinja_arena *a, const char *text, size_t n) {
    const ht_jinja_value v = span_json(a, (ht_span){text, n});
    return v.kind == HT_VALUE_DICT && is_finite(v);
}

/* A value without quotes: a string (or null) where the schema allows strings; else JSON or a Python literal; else a string. */
static ht_jinja_value bare_value(ht_call_reading *r, ht_span tool, ht_span parameter, ht_span text) {
    const ht_jinja_value *schema = ht_tool_field(ht_tool_find(r->tools, tool.p, tool.n), "parameters"),
                         *properties = ht_tool_field(schema, "properties"), *property = NULL;
    if (properties && properties->kind == HT_VALUE_DICT)
        property = ht_jinja_dict_find_text(properties->dict, parameter.p, parameter.n);
    const unsigned types = ht_schema_types(schema, property, text.p, text.n);
    const ht_span trimmed = span_trimmed(text);
    if (ht_types_are_text(types) && !((types & HT_TYPE_NULL) && span_is(trimmed, "null")))
        return span_string(r->a, text);
    ht_jinja_value v = span_json(r->a, trimmed);
    if (v.kind != HT_VALUE_UNDEFINED) return v;
    literals l = {.a = r->a, .s = trimmed};
    const bool is_literal = types != HT_TYPE_ALL && read_literal(&l, &v);
    span_skip_blanks(&l.s);
    return is_literal && !l.s.n ? v : span_string(r->a, text);
}

/* A call while it is read. */
typedef struct call_parts {
    ht_span name, id; /* id of no bytes: none */
    ht_jinja_value arguments;
    ht_span begun;      /* with is_begun: what came of the arguments as JSON */
    const char *tail;   /* of a head: the pattern after the arguments */
    bool is_head;       /* read up to JSON arguments */
    bool has_name;      /* all of it came */
    bool has_arguments; /* as above */
    bool is_begun;
} call_parts;

static bool add(ht_call_reading *r, const call_parts *c) {
    if (!ht_is_call_name(c->name.p, c->name.n) || c->arguments.kind != HT_VALUE_DICT || !is_finite(c->arguments) ||
        (r->only_tools && !ht_tool_find(r->tools, c->name.p, c->name.n)))
        return false;
    ht_read_call *larger = ht_jinja_arena_grow(r->a, r->calls, r->n, sizeof *larger, &r->capacity);
    const ht_jinja_value name = span_string(r->a, c->name),
                         id = c->id.n ? span_string(r->a, c->id) : ht_jinja_undefined(),
                         begun = c->is_begun ? span_string(r->a, c->begun) : ht_jinja_undefined();
    if (r->a->status) return false;
    r->calls = larger;
    r->calls[r->n++] =
        (ht_read_call){name.string, c->id.n ? id.string : NULL, c->arguments, c->is_begun ? begun.string : NULL};
    return true;
}

/* ---- JSON ---- */

static const ht_jinja_value *first_of(const ht_jinja_value *v, const char *const *keys) {
    const ht_jinja_value *found = NULL;
    for (; *keys && !found; keys++) found = ht_tool_field(v, *keys);
    return found;
}

/* {"name": ..., "arguments": {...}}, the same in "function", arguments as a string, or {NAME: {...}}. */
static bool add_object(ht_call_reading *r, const ht_jinja_value *v) {
    static const char *const names[] = {"name", "tool_name", NULL},
                             *const ids[] = {"id", "tool_call_id", "call_id", NULL},
                             *const keys[] = {"arguments", "parameters", "args", NULL};
    const ht_jinja_value *id = first_of(v, ids), *function = ht_tool_field(v, "function");
    if (function && function->kind == HT_VALUE_DICT) v = function;
    const ht_jinja_value *name = first_of(v, names), *arguments = first_of(v, keys);
    if (v->kind != HT_VALUE_DICT) return false;
    if (!name && v->dict->n == 1) {
        name = &v->dict->keys[0];
        arguments = &v->dict->values[0];
    }
    if (!name || !ht_jinja_is_string(*name)) return false;
    call_parts c = {.name = span_trimmed((ht_span){name->string->text, name->string->n}),
                    .id = id && ht_jinja_is_string(*id) ? (ht_span){id->string->text, id->string->n} : (ht_span){0},
                    .arguments = arguments ? *arguments : new_dict(r->a)};
    if (ht_jinja_is_string(c.arguments))
        c.arguments = span_json(r->a, (ht_span){c.arguments.string->text, c.arguments.string->n});
    return add(r, &c);
}

/* Adds the calls of an object, or a list of them. */
static bool add_json(ht_call_reading *r, const ht_jinja_value *v) {
    if (v->kind != HT_VALUE_LIST) return add_object(r, v);
    for (size_t i = 0; i < v->list->n; i++)
        if (!add_object(r, &v->list->items[i])) return false;
    return true;
}

/* ---- patterns ---- */

static bool is_blank(char c) { return c && strchr(" \t\r\n", c); }

/* Literal text of a pattern, up to its next field. A line end before a value belongs to the value's text. */
static match match_literal(ht_span *s, const char **pattern) {
    const char *p = *pattern;
    for (; *p && *p != '%'; p++) {
        if (is_blank(*p)) {
            if (strncmp(p, "\n%v", 3) != 0) span_skip_blanks(s);
            continue;
        }
        if (!s->n || *s->p != *p) return s->n ? DIFFERS : TRUNCATED;
        span_skip(s, 1);
    }
    *pattern = p;
    return MATCHES;
}

/* A key or an id, which the next character of the pattern ends. */
static match match_word(ht_span *s, const char *pattern, ht_span *word) {
    const char *end = s->n ? memchr(s->p, *pattern, s->n) : NULL;
    if (!end) return TRUNCATED;
    *word = span_trimmed((ht_span){s->p, (size_t)(end - s->p)});
    span_skip(s, (size_t)(end - s->p));
    return MATCHES;
}

static match match_name(ht_span *s, call_parts *c) {
    span_skip_blanks(s);
    c->name = (ht_span){s->p, name_length(*s)};
    span_skip(s, c->name.n);
    c->has_name = s->n;
    span_skip_blanks(s);
    return c->name.n ? MATCHES : s->n ? DIFFERS : TRUNCATED;
}

/* functions.NAME:INDEX, or NAME alone. */
static match match_id_with_name(ht_span *s, const char *pattern, call_parts *c) {
    if (match_word(s, pattern, &c->id) != MATCHES) return TRUNCATED;
    ht_span name = c->id;
    (void)span_accept(&name, "functions.");
    size_t n = name.n;
    while (n && name.p[n - 1] >= '0' && name.p[n - 1] <= '9') n--;
    c->name = (ht_span){name.p, n && name.p[n - 1] == ':' ? n - 1 : name.n};
    c->has_name = true;
    return MATCHES;
}

/* A value up to the text that follows it in the pattern, without the line ends between them. */
static match match_value(ht_span *s, const char **pattern, bool on_lines, ht_span *value) {
    const char *end = *pattern;
    while (*end == '\n' || strncmp(end, "%l", 2) == 0) end += *end == '%' ? 2 : 1;
    const size_t n = strcspn(end, "%");
    if (!span_until(s, (ht_span){end, n}, value)) return TRUNCATED;
    *pattern = end + n;
    if (on_lines && value->n && value->p[0] == '\n') span_skip(value, 1);
    if (on_lines && value->n && value->p[value->n - 1] == '\n') value->n--;
    return MATCHES;
}

static match match_parameter(ht_span *s, const char *pattern, ht_span *key, ht_span *value) {
    match m = pattern ? MATCHES : DIFFERS;
    for (const char *p = pattern; m == MATCHES && *p;) {
        if (*p != '%') {
            m = match_literal(s, &p);
            continue;
        }
        const bool on_lines = p > pattern + 1 && (p[-1] == '\n' || (p[-2] == '%' && p[-1] == 'l'));
        p += 2;
        if (p[-1] == 's') span_skip_blanks(s);
        if (p[-1] == 'k') m = match_word(s, p, key);
        if (p[-1] == 'v') m = match_value(s, &p, on_lines, value);
    }
    return m;
}

static match match_object(ht_call_reading *r, ht_span *s, call_parts *c) {
    ht_span json;
    span_skip_blanks(s);
    if (s->n && *s->p != '{') return DIFFERS;
    if (read_extent(s, &json)) {
        c->arguments = span_json(r->a, json);
        c->has_arguments = c->arguments.kind == HT_VALUE_DICT;
        span_skip_blanks(s);
        return c->has_arguments ? MATCHES : DIFFERS;
    }
    c->begun = span_trimmed(*s);
    c->is_begun = true;
    return TRUNCATED;
}

/* The arguments end within their parameters: their JSON so far. */
static match truncate_parameters(ht_call_reading *r, call_parts *c) {
    const ht_jinja_string *json = ht_tool_json(r->a, c->arguments);
    if (!json) return DIFFERS;
    c->begun = (ht_span){json->text, json->n - 1};
    c->is_begun = true;
    return TRUNCATED;
}

static match match_literals(ht_call_reading *r, ht_span *s, const ht_tool_call_format *f, char end, call_parts *c) {
    literals l = {.a = r->a, .s = *s, .quote = f->quote, .is_cut = r->with_truncated};
    if (!read_container(&l, f->json[2], end, &c->arguments)) return truncate_parameters(r, c);
    *s = (ht_span){l.s.p - 1, l.s.n + 1}; /* the pattern goes on with the end */
    c->has_arguments = true;
    return MATCHES;
}

/* One parameter in any of the ways that the format has; MATCHES, too, where only the end of the parameters can follow. */
static match match_tag(ht_call_reading *r, ht_span *s, const ht_tool_call_format *f, ht_span end, call_parts *c) {
    const char *const patterns[] = {f->quoted, f->raw, f->json};
    const bool marks_strings = ht_tool_call_format_marks_strings(f);
    match best = DIFFERS;
    for (int i = 0; i < 3; i++) {
        ht_span at = *s, key = {0}, value = {0};
        const match m = match_parameter(&at, patterns[i], &key, &value);
        if (m == MATCHES) {
            const bool is_string = i == 0 || (i == 1 && marks_strings);
            ht_jinja_value v = is_string ? span_string(r->a, value) : ht_jinja_undefined();
            if (i == 2 && marks_strings) v = span_json(r->a, value);
            if (v.kind == HT_VALUE_UNDEFINED) v = bare_value(r, c->name, key, value);
            *s = at;
            dict_set(r->a, c->arguments, key, v);
            return MATCHES;
        }
        if (m == TRUNCATED) best = TRUNCATED;
    }
    c->has_arguments = best == DIFFERS && s->n < end.n && memcmp(s->p, end.p, s->n) == 0;
    return c->has_arguments ? MATCHES : best;
}

static match match_parameters(ht_call_reading *r, ht_span *s, const ht_tool_call_format *f, const char *pattern,
                              call_parts *c) {
    if (strncmp(pattern, "%s", 2) == 0) pattern += 2;
    const ht_span end = {pattern, strcspn(pattern, "%")};
    if (strcmp(f->json + strlen(f->json) - 2, "%v") == 0) return match_literals(r, s, f, *end.p, c);
    span_skip_blanks(s);
    if (s->n && *s->p == '{') return match_object(r, s, c);
    for (; !c->has_arguments; span_skip_blanks(s)) {
        if (end.n ? span_begins(*s, end) : !s->n && !r->is_truncated) {
            c->has_arguments = true;
            break;
        }
        const match m = s->n ? match_tag(r, s, f, end, c) : TRUNCATED;
        if (m != MATCHES) return m == TRUNCATED ? truncate_parameters(r, c) : m;
    }
    return MATCHES;
}

/* Reads a call, or where c->is_head its beginning. */
static match match_call(ht_call_reading *r, ht_span *s, const ht_tool_call_format *f, call_parts *c) {
    match m = MATCHES;
    for (const char *p = f->call; *p && m == MATCHES;) {
        if (*p != '%') {
            m = match_literal(s, &p);
            continue;
        }
        p += 2;
        switch (p[-1]) {
        case 's': span_skip_blanks(s); break;
        case 'n': m = match_name(s, c); break;
        case 'd':
        case 'i': m = match_word(s, p, &c->id); break;
        case 'f': m = match_id_with_name(s, p, c); break;
        case 'a':
            if (c->is_head) {
                span_skip_blanks(s);
                c->tail = p;
                return !s->n ? TRUNCATED : *s->p == '{' ? MATCHES : DIFFERS;
            }
            m = match_object(r, s, c);
            break;
        case 'p': m = c->is_head ? DIFFERS : match_parameters(r, s, f, p, c); break;
        default: break;
        }
    }
    /* Only marks follow whole arguments. */
    if (m == TRUNCATED && c->has_arguments && (r->with_truncated || (r->is_truncated && !s->n))) m = MATCHES;
    return m;
}

/* Reads one call in any format with the same opening mark. A truncated call counts where all possible formats agree on its name. */
static bool read_call(ht_call_reading *r, const ht_tool_call_format *format, ht_span *s) {
    call_parts begun = {.has_name = false}, c;
    bool any = false, agree = r->with_truncated;
    for (const ht_tool_call_format *f = NULL; (f = ht_tool_call_format_next(format, f));) {
        ht_span at = *s;
        c = (call_parts){.arguments = new_dict(r->a), .begun = {"", 0}};
        if (r->a->status) return false;
        const match m = match_call(r, &at, f, &c);
        if (m == MATCHES) {
            *s = at;
            return add(r, &c);
        }
        if (m == DIFFERS) continue;
        agree = agree && c.has_name && (!any || (c.name.n == begun.name.n && c.name.p == begun.name.p));
        if (!any) begun = c;
        any = true;
    }
    begun.is_begun = true;
    span_skip(s, s->n);
    if (any && agree && add(r, &begun)) return true;
    r->ends_in_name = any;
    return false;
}

bool ht_tool_calls_read(ht_call_reading *r, const ht_tool_call_format *f, const char *text, size_t n) {
    ht_span s = {text, n}, json;
    bool in_list = false;
    for (;;) {
        span_skip_any(&s, " \t\r\n,;");
        if (!f->close && f->open && span_accept(&s, f->open)) continue;
        if (!s.n) return r->n > 0 && (!in_list || r->with_truncated);
        if (in_list && span_accept(&s, "]")) {
            span_skip_blanks(&s);
            return r->n > 0 && !s.n;
        }
        ht_span rest = s;
        ht_jinja_value v = ht_jinja_undefined();
        if ((*s.p == '{' || *s.p == '[') && read_extent(&rest, &json)) v = span_json(r->a, json);
        if (v.kind != HT_VALUE_UNDEFINED) {
            s = rest;
            if (!add_json(r, &v)) return false;
        } else if (*s.p == '[' && f->begin && !in_list) {
            span_skip(&s, 1);
            in_list = true;
        } else if (*s.p == '{' || !read_call(r, f, &s))
            return in_list && r->with_truncated && r->ends_in_name && r->n > 0;
    }
}

/* ---- streams of calls ---- */

/* Reads a call up to its JSON arguments, in the format or another with the same opening mark. */
static match read_head(ht_call_stream *c, ht_span *s) {
    match best = DIFFERS;
    for (const ht_tool_call_format *f = NULL; best != MATCHES && (f = ht_tool_call_format_next(c->format, f));) {
        call_parts parts = {.is_head = true};
        ht_span at = *s;
        const match m = match_call(NULL, &at, f, &parts);
        if (m != DIFFERS) best = m;
        if (m != MATCHES) continue;
        *s = at;
        c->name = parts.name;
        c->id = parts.id;
        c->tail = parts.tail;
    }
    return best;
}

/* Moves to the next call; MATCHES: at its arguments. */
static match seek(ht_call_stream *c, ht_span s, const char *text) {
    const ht_tool_call_format *f = c->format;
    span_skip_any(&s, " \t\r\n,;");
    for (bool more = !f->close && f->open; more; span_skip_blanks(&s)) {
        if (s.n && s.n < strlen(f->open) && memcmp(s.p, f->open, s.n) == 0) return TRUNCATED;
        more = span_accept(&s, f->open);
    }
    if (s.n && *s.p == '[') span_skip(&s, 1);
    const match m = read_head(c, &s);
    if (m == MATCHES) c->at = c->begin = c->shown = (size_t)(s.p - text);
    return m;
}

/* Reads on in the arguments and the JSON object that encloses them. */
static ht_call_event read_json(ht_call_stream *c, const char *text, size_t n) {
    for (; c->at < n; c->at++) {
        const char b = text[c->at];
        if (c->is_quoted) {
            if (!c->is_escaped && b == '"') c->is_quoted = false;
            c->is_escaped = !c->is_escaped && b == '\\';
            continue;
        }
        /* JSON has none outside of strings: a mark, before the call has ended. */
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
        else if ((b == '}' || b == ']') && c->stage == HT_CALL_AFTER_ARGUMENTS && !c->depth) {
            c->at++;
            c->stage = HT_CALL_SEEK;
            return HT_CALL_ENDS;
        } else if ((b == '}' || b == ']') && !--c->depth && c->stage == HT_CALL_IN_ARGUMENTS) {
            c->end = ++c->at;
            c->stage = HT_CALL_AFTER_ARGUMENTS;
            return HT_CALL_NEEDS_TEXT;
        }
    }
    return HT_CALL_NEEDS_TEXT;
}

ht_call_event ht_call_stream_next(ht_call_stream *c, const char *text, size_t n) {
    if (c->stage == HT_CALL_SEEK) {
        const match m = seek(c, (ht_span){text + c->at, n - c->at}, text);
        if (m == MATCHES) {
            c->stage = HT_CALL_IN_ARGUMENTS;
            c->depth = 0;
            c->is_quoted = c->is_escaped = false;
            return HT_CALL_BEGINS;
        }
        if (m == DIFFERS) c->stage = HT_CALL_REST;
        return HT_CALL_NEEDS_TEXT;
    }
    if (c->stage == HT_CALL_IN_ARGUMENTS) {
        const ht_call_event event = read_json(c, text, n);
        if (c->stage != HT_CALL_AFTER_ARGUMENTS) return event;
    }
    if (c->stage != HT_CALL_AFTER_ARGUMENTS) return HT_CALL_NEEDS_TEXT;
    if (strchr(c->tail, '}')) return read_json(c, text, n);
    ht_span s = {text + c->at, n - c->at};
    const char *tail = c->tail;
    span_skip_blanks(&s);
    const match m = match_literal(&s, &tail);
    if (m == TRUNCATED) return HT_CALL_NEEDS_TEXT;
    c->stage = m == MATCHES ? HT_CALL_SEEK : HT_CALL_REST;
    c->at = (size_t)(s.p - text);
    return HT_CALL_ENDS;
}
