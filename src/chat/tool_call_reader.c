#include "chat/tool_call_reader.h"

#include "chat/literals.h"
#include "chat/span.h"
#include "chat/tools.h"

/* ---- values ---- */

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
            ht_span_skip(s, i + 1);
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
    const ht_jinja_value v = ht_span_json(a, (ht_span){text, n});
    return v.kind == HT_VALUE_DICT && is_finite(v);
}

/* A value without quotes: a string where the schema allows strings; else JSON, or a Python literal where the schema allows no
 * string; else a string. A nullable string may be null. */
static ht_jinja_value bare_value(ht_call_reading *r, ht_span tool, ht_span parameter, ht_span text) {
    const ht_jinja_value *schema = ht_tool_field(ht_tool_find(r->tools, tool.p, tool.n), "parameters"),
                         *properties = ht_tool_field(schema, "properties"), *property = NULL;
    if (properties && properties->kind == HT_VALUE_DICT)
        property = ht_jinja_dict_find_text(properties->dict, parameter.p, parameter.n);
    const unsigned types = ht_schema_types(schema, property, text.p, text.n);
    const ht_span trimmed = ht_span_trimmed(text);
    if (ht_types_are_text(types) && !((types & HT_TYPE_NULL) && ht_span_is(trimmed, "null")))
        return ht_span_string(r->a, text);
    ht_jinja_value v = ht_span_json(r->a, trimmed);
    if (v.kind != HT_VALUE_UNDEFINED) return v;
    ht_literals l = {.a = r->a, .s = trimmed};
    const bool is_literal = types != HT_TYPE_ANY && ht_literal_read(&l, &v);
    ht_span_skip_blanks(&l.s);
    return is_literal && !l.s.n ? v : ht_span_string(r->a, text);
}

/* ---- calls ---- */

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
    const ht_jinja_value name = ht_span_string(r->a, c->name),
                         id = c->id.n ? ht_span_string(r->a, c->id) : ht_jinja_undefined(),
                         begun = c->is_begun ? ht_span_string(r->a, c->begun) : ht_jinja_undefined();
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
    call_parts c = {.name = ht_span_trimmed((ht_span){name->string->text, name->string->n}),
                    .id = id && ht_jinja_is_string(*id) ? (ht_span){id->string->text, id->string->n} : (ht_span){0},
                    .arguments = arguments ? *arguments : ht_new_dict(r->a)};
    if (ht_jinja_is_string(c.arguments))
        c.arguments = ht_span_json(r->a, (ht_span){c.arguments.string->text, c.arguments.string->n});
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
static ht_match match_literal(ht_span *s, const char **pattern) {
    const char *p = *pattern;
    for (; *p && *p != '%'; p++) {
        if (is_blank(*p)) {
            if (strncmp(p, "\n%v", 3) != 0) ht_span_skip_blanks(s);
            continue;
        }
        if (!s->n || *s->p != *p) return s->n ? HT_DIFFERS : HT_TRUNCATED;
        ht_span_skip(s, 1);
    }
    *pattern = p;
    return HT_MATCHES;
}

/* A key or an id, which the next character of the pattern ends. */
static ht_match match_word(ht_span *s, const char *pattern, ht_span *word) {
    const char *end = s->n ? memchr(s->p, *pattern, s->n) : NULL;
    if (!end) return HT_TRUNCATED;
    *word = ht_span_trimmed((ht_span){s->p, (size_t)(end - s->p)});
    ht_span_skip(s, (size_t)(end - s->p));
    return HT_MATCHES;
}

static ht_match match_name(ht_span *s, call_parts *c) {
    ht_span_skip_blanks(s);
    c->name = (ht_span){s->p, name_length(*s)};
    ht_span_skip(s, c->name.n);
    c->has_name = s->n;
    ht_span_skip_blanks(s);
    return c->name.n ? HT_MATCHES : s->n ? HT_DIFFERS : HT_TRUNCATED;
}

/* functions.NAME:INDEX, or NAME alone. */
static ht_match match_id_with_name(ht_span *s, const char *pattern, call_parts *c) {
    if (match_word(s, pattern, &c->id) != HT_MATCHES) return HT_TRUNCATED;
    ht_span name = c->id;
    (void)ht_span_accept(&name, "functions.");
    size_t n = name.n;
    while (n && name.p[n - 1] >= '0' && name.p[n - 1] <= '9') n--;
    c->name = (ht_span){name.p, n && name.p[n - 1] == ':' ? n - 1 : name.n};
    c->has_name = true;
    return HT_MATCHES;
}

/* A value up to the text that follows it in the pattern, without the line ends between them. */
static ht_match match_value(ht_span *s, const char **pattern, bool on_lines, ht_span *value) {
    const char *end = *pattern;
    while (*end == '\n' || strncmp(end, "%l", 2) == 0) end += *end == '%' ? 2 : 1;
    const size_t n = strcspn(end, "%");
    if (!ht_span_until(s, (ht_span){end, n}, value)) return HT_TRUNCATED;
    *pattern = end + n;
    if (on_lines && value->n && value->p[0] == '\n') ht_span_skip(value, 1);
    if (on_lines && value->n && value->p[value->n - 1] == '\n') value->n--;
    return HT_MATCHES;
}

static ht_match match_parameter(ht_span *s, const char *pattern, ht_span *key, ht_span *value) {
    ht_match m = pattern ? HT_MATCHES : HT_DIFFERS;
    for (const char *p = pattern; m == HT_MATCHES && *p;) {
        if (*p != '%') {
            m = match_literal(s, &p);
            continue;
        }
        const bool on_lines = p > pattern + 1 && (p[-1] == '\n' || (p[-2] == '%' && p[-1] == 'l'));
        p += 2;
        if (p[-1] == 's') ht_span_skip_blanks(s);
        if (p[-1] == 'k') m = match_word(s, p, key);
        if (p[-1] == 'v') m = match_value(s, &p, on_lines, value);
    }
    return m;
}

static ht_match match_object(ht_call_reading *r, ht_span *s, call_parts *c) {
    ht_span json;
    ht_span_skip_blanks(s);
    if (s->n && *s->p != '{') return HT_DIFFERS;
    if (read_extent(s, &json)) {
        c->arguments = ht_span_json(r->a, json);
        c->has_arguments = c->arguments.kind == HT_VALUE_DICT;
        ht_span_skip_blanks(s);
        return c->has_arguments ? HT_MATCHES : HT_DIFFERS;
    }
    c->begun = ht_span_trimmed(*s);
    c->is_begun = true;
    return HT_TRUNCATED;
}

/* The arguments end within their parameters: their JSON so far. */
static ht_match truncate_parameters(ht_call_reading *r, call_parts *c) {
    ht_jinja_rendering rendering = {.a = r->a};
    const ht_jinja_string *json = ht_jinja_json_text(&rendering, c->arguments, NULL, NULL, NULL, false, false);
    if (!json) return HT_DIFFERS;
    c->begun = (ht_span){json->text, json->n - 1};
    c->is_begun = true;
    return HT_TRUNCATED;
}

static ht_match match_literals(ht_call_reading *r, ht_span *s, const ht_tool_call_format *f, char end, call_parts *c) {
    ht_literals l = {.a = r->a, .s = *s, .quote = f->quote, .is_cut = r->with_truncated};
    if (!ht_literal_read_members(&l, f->json[2], end, &c->arguments)) return truncate_parameters(r, c);
    *s = (ht_span){l.s.p - 1, l.s.n + 1}; /* the pattern goes on with the end */
    c->has_arguments = true;
    return HT_MATCHES;
}

/* One parameter in any of the ways that the format has; HT_MATCHES, too, where only the end of the parameters can follow. */
static ht_match match_tag(ht_call_reading *r, ht_span *s, const ht_tool_call_format *f, ht_span end, call_parts *c) {
    const char *const patterns[] = {f->quoted, f->raw, f->json};
    const bool marks_strings = ht_tool_call_format_marks_strings(f);
    ht_match best = HT_DIFFERS;
    for (int i = 0; i < 3; i++) {
        ht_span at = *s, key = {0}, value = {0};
        const ht_match m = match_parameter(&at, patterns[i], &key, &value);
        if (m == HT_MATCHES) {
            const bool is_string = i == 0 || (i == 1 && marks_strings);
            ht_jinja_value v = is_string ? ht_span_string(r->a, value) : ht_jinja_undefined();
            if (i == 2 && marks_strings) v = ht_span_json(r->a, value);
            if (v.kind == HT_VALUE_UNDEFINED) v = bare_value(r, c->name, key, value);
            *s = at;
            ht_dict_set_span(r->a, c->arguments, key, v);
            return HT_MATCHES;
        }
        if (m == HT_TRUNCATED) best = HT_TRUNCATED;
    }
    c->has_arguments = best == HT_DIFFERS && s->n < end.n && memcmp(s->p, end.p, s->n) == 0;
    return c->has_arguments ? HT_MATCHES : best;
}

static ht_match match_parameters(ht_call_reading *r, ht_span *s, const ht_tool_call_format *f, const char *pattern,
                                 call_parts *c) {
    if (strncmp(pattern, "%s", 2) == 0) pattern += 2;
    const ht_span end = {pattern, strcspn(pattern, "%")};
    if (strcmp(f->json + strlen(f->json) - 2, "%v") == 0) return match_literals(r, s, f, *end.p, c);
    ht_span_skip_blanks(s);
    if (s->n && *s->p == '{') return match_object(r, s, c);
    for (; !c->has_arguments; ht_span_skip_blanks(s)) {
        if (end.n ? ht_span_begins(*s, end) : !s->n && !r->is_truncated) {
            c->has_arguments = true;
            break;
        }
        const ht_match m = s->n ? match_tag(r, s, f, end, c) : HT_TRUNCATED;
        if (m != HT_MATCHES) return m == HT_TRUNCATED ? truncate_parameters(r, c) : m;
    }
    return HT_MATCHES;
}

/* Reads a call, or where c->is_head its beginning. */
static ht_match match_call(ht_call_reading *r, ht_span *s, const ht_tool_call_format *f, call_parts *c) {
    ht_match m = HT_MATCHES;
    for (const char *p = f->call; *p && m == HT_MATCHES;) {
        if (*p != '%') {
            m = match_literal(s, &p);
            continue;
        }
        p += 2;
        switch (p[-1]) {
        case 's': ht_span_skip_blanks(s); break;
        case 'n': m = match_name(s, c); break;
        case 'd':
        case 'i': m = match_word(s, p, &c->id); break;
        case 'f': m = match_id_with_name(s, p, c); break;
        case 'a':
            if (c->is_head) {
                ht_span_skip_blanks(s);
                c->tail = p;
                return !s->n ? HT_TRUNCATED : *s->p == '{' ? HT_MATCHES : HT_DIFFERS;
            }
            m = match_object(r, s, c);
            break;
        case 'p': m = c->is_head ? HT_DIFFERS : match_parameters(r, s, f, p, c); break;
        default: break;
        }
    }
    /* Only marks follow whole arguments. */
    if (m == HT_TRUNCATED && c->has_arguments && (r->with_truncated || (r->is_truncated && !s->n))) m = HT_MATCHES;
    return m;
}

ht_match ht_tool_call_read_head(const ht_tool_call_format *format, ht_span *s, ht_span *name, ht_span *id,
                                const char **tail) {
    ht_match best = HT_DIFFERS;
    for (const ht_tool_call_format *f = NULL; best != HT_MATCHES && (f = ht_tool_call_format_next(format, f));) {
        call_parts c = {.is_head = true};
        ht_span at = *s;
        const ht_match m = match_call(NULL, &at, f, &c);
        if (m != HT_DIFFERS) best = m;
        if (m != HT_MATCHES) continue;
        *s = at;
        *name = c.name;
        *id = c.id;
        *tail = c.tail;
    }
    return best;
}

ht_match ht_tool_call_read_tail(ht_span *s, const char *tail) {
    ht_span_skip_blanks(s);
    return match_literal(s, &tail);
}

/* Reads one call in the format, or in another with the same opening mark. A truncated call counts where every format that the
 * text could go on in agrees on its name. */
static bool read_call(ht_call_reading *r, const ht_tool_call_format *format, ht_span *s) {
    call_parts begun = {.has_name = false}, c;
    bool any = false, agree = r->with_truncated;
    for (const ht_tool_call_format *f = NULL; (f = ht_tool_call_format_next(format, f));) {
        ht_span at = *s;
        c = (call_parts){.arguments = ht_new_dict(r->a), .begun = {"", 0}};
        if (r->a->status) return false;
        const ht_match m = match_call(r, &at, f, &c);
        if (m == HT_MATCHES) {
            *s = at;
            return add(r, &c);
        }
        if (m == HT_DIFFERS) continue;
        agree = agree && c.has_name && (!any || (c.name.n == begun.name.n && c.name.p == begun.name.p));
        if (!any) begun = c;
        any = true;
    }
    begun.is_begun = true;
    ht_span_skip(s, s->n);
    return any && agree && add(r, &begun);
}

bool ht_tool_calls_read(ht_call_reading *r, const ht_tool_call_format *f, const char *text, size_t n) {
    ht_span s = {text, n}, json;
    bool in_list = false;
    for (;;) {
        ht_span_skip_any(&s, " \t\r\n,;");
        if (!f->close && f->open && ht_span_accept(&s, f->open)) continue;
        if (!s.n) return r->n > 0 && !in_list;
        if (in_list && ht_span_accept(&s, "]")) {
            ht_span_skip_blanks(&s);
            return r->n > 0 && !s.n;
        }
        ht_span rest = s;
        ht_jinja_value v = ht_jinja_undefined();
        if ((*s.p == '{' || *s.p == '[') && read_extent(&rest, &json)) v = ht_span_json(r->a, json);
        if (v.kind != HT_VALUE_UNDEFINED) {
            s = rest;
            if (!add_json(r, &v)) return false;
        } else if (*s.p == '[' && f->begin && !in_list) {
            ht_span_skip(&s, 1);
            in_list = true;
        } else if (*s.p == '{' || !read_call(r, f, &s))
            return false;
    }
}
