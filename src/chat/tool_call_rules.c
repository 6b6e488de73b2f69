/* Calls as their notation writes them, with parameters one by one or as a JSON object. */
#include "chat/tool_call_rules.h"

#include "base/error.h"
#include "base/log.h"
#include "chat/reasoning_rules.h"
#include "grammar/regex_syntax.h"

#include <string.h>

/* Symbols of one production at most: those of the longest text of the table. */
enum { PARTS_MOST = 16 };

/* A production in the making: literal text is gathered until something else follows. */
typedef struct production {
    ht_tool_calls *c;
    ht_re literal;
    ht_symbol symbol[PARTS_MOST];
    size_t n;
} production;

void ht_tool_calls_begin(ht_tool_calls *c, ht_rules *r, ht_tool_list *tools, bool parallel,
                         const ht_call_notation *notation) {
    const ht_call_writing *writing = c->writing;
    *c = (ht_tool_calls){.r = r, .tools = tools, .writing = writing, .notation = notation, .parallel = parallel};
    c->space = ht_schema_white_space(r->re, HT_SCHEMA_SPACE_LINES);
    for (size_t i = 0; i < tools->n; i++) tools->tool[i].has_symbol = false;
}

/* ---- parts ---- */

static void put_symbol(production *p, ht_symbol symbol) {
    if (p->n < PARTS_MOST)
        p->symbol[p->n++] = symbol;
    else if (!p->c->status)
        p->c->status = ht_fail(&p->c->err, HT_ERR_INTERNAL, "a notation of calls has too many parts");
}

static void put_re(production *p, ht_re re) { p->literal = ht_re_concat(p->c->r->re, p->literal, re); }

static void put_literal(production *p, const char *text, size_t n) {
    if (n) put_re(p, ht_re_text(p->c->r->re, text, n));
}

/* Makes a lexeme of the text so far; white space alone waits for what follows it. */
static void flush(production *p) {
    if (p->literal == HT_RE_EMPTY || ht_re_is_nullable(p->c->r->re, p->literal)) return;
    put_symbol(p, ht_rules_lexeme(p->c->r, p->literal));
    p->literal = HT_RE_EMPTY;
}

/* A class of ASCII characters, from `least` to `most` times. */
static ht_re ascii(ht_regexes *re, const char *ranges, uint32_t least, uint32_t most) {
    ht_byte_set set = {{0}};
    for (; *ranges; ranges += 2) ht_byte_set_add(&set, (unsigned char)ranges[0], (unsigned char)ranges[1]);
    return ht_re_repeat(re, ht_re_bytes(re, &set), least, most);
}

static void put_id_member(production *p) {
    ht_regexes *re = p->c->r->re;
    const ht_re before[] = {p->c->space,
                            ht_re_text(re, ",", 1),
                            p->c->space,
                            ht_re_text(re, "\"id\"", 4),
                            p->c->space,
                            ht_re_text(re, ":", 1),
                            p->c->space,
                            ht_re_text(re, "\"", 1),
                            ascii(re, "azAZ09", 9, 9),
                            ht_re_text(re, "\"", 1)};
    ht_re member = HT_RE_EMPTY;
    for (size_t i = 0; i < sizeof before / sizeof *before; i++) member = ht_re_concat(re, member, before[i]);
    put_re(p, ht_re_either(re, HT_RE_EMPTY, member));
}

static ht_symbol values(ht_tool_calls *c, ht_tool *tool, const char *property) {
    ht_symbol symbol = 0;
    bool again = false;
    if (!c->status && !c->again) c->status = ht_tool_values(c->tools, tool, c->r, property, &symbol, &again, &c->err);
    c->again = c->again || again;
    return symbol;
}

static ht_symbol parameters(ht_tool_calls *c, ht_tool *tool);

/* Adds the parts of a text of the table up to the value of a parameter, if it has one; what stands behind it. */
static const char *put(production *p, const char *text, ht_tool *tool, const char *key) {
    ht_regexes *re = p->c->r->re;
    for (const char *at = text ? text : ""; *at;) {
        const size_t n = strcspn(at, "%");
        put_literal(p, at, n);
        at += n;
        if (!*at) break;
        switch (at[1]) {
        case 's': put_re(p, p->c->space); break;
        case 'n':
            flush(p);
            put_literal(p, tool->name, strlen(tool->name));
            break;
        case 'k': put_literal(p, key, strlen(key)); break;
        case 'd': put_re(p, ascii(re, "09", 1, 3)); break;
        case 'i': put_re(p, ascii(re, "azAZ09", 9, 9)); break;
        case 'm': put_id_member(p); break;
        case 'a':
            flush(p);
            put_symbol(p, values(p->c, tool, NULL));
            break;
        case 'p':
            flush(p);
            put_symbol(p, parameters(p->c, tool));
            break;
        default: return at + 2; /* %v */
        }
        at += 2;
    }
    return "";
}

static void finish(production *p, ht_symbol rule) {
    flush(p);
    ht_rules_add(p->c->r, rule, p->symbol, p->n);
}

/* ---- parameters one by one ---- */

static const ht_jinja_value *member(const ht_jinja_value *v, const char *key) {
    return v && v->kind == HT_VALUE_DICT ? ht_jinja_dict_find_text(v->dict, key, strlen(key)) : NULL;
}

/* Keys that stand in tags and before colons as they are. */
static bool is_key(const char *key) {
    const char *at = key;
    while (*at && (unsigned char)*at > ' ' && !strchr("\"'`<>{}()[],;:=\\", *at)) at++;
    return at > key && !*at;
}

static uint32_t bound(const ht_jinja_value *schema, const char *key, uint32_t otherwise) {
    const ht_jinja_value *v = member(schema, key);
    int64_t n;
    return v && v->kind == HT_VALUE_INT && ht_jinja_as_integer(*v, &n) && n >= 0 && n < UINT32_MAX ? (uint32_t)n
                                                                                                   : otherwise;
}

/* The strings that a schema of strings lists; HT_RE_NONE for one that lists none. */
static ht_re listed(ht_regexes *re, const ht_jinja_value *schema) {
    const ht_jinja_value *list = member(schema, "enum"), *one = member(schema, "const");
    ht_re all = HT_RE_NONE;
    for (size_t i = 0; list && list->kind == HT_VALUE_LIST && i < list->list->n; i++) {
        const ht_jinja_value *v = &list->list->items[i];
        if (ht_jinja_is_string(*v)) all = ht_re_either(re, all, ht_re_text(re, v->string->text, v->string->n));
    }
    if (one && ht_jinja_is_string(*one)) all = ht_re_text(re, one->string->text, one->string->n);
    return all;
}

/* Strings of a schema as they are, without what would end them. */
static ht_re raw_strings(ht_tool_calls *c, const ht_tool *tool, const char *key, const ht_jinja_value *schema,
                         const char *end) {
    static const ht_code_range characters[] = {{1, 0x10FFFF}};
    ht_regexes *re = c->r->re;
    const ht_re one = ht_re_code_points(re, characters, 1), list = listed(re, schema);
    while (*end == '\n') end++; /* an end on a line of its own is one on the same line, too */
    const ht_re ends = ht_re_concat(re, HT_RE_ALL, ht_re_concat(re, ht_re_text(re, end, strlen(end)), HT_RE_ALL));
    ht_re all = ht_re_repeat(re, one, bound(schema, "minLength", 0), bound(schema, "maxLength", HT_RE_UNBOUNDED));
    if (list != HT_RE_NONE) all = ht_re_both(re, all, list);
    const ht_jinja_value *pattern = member(schema, "pattern");
    ht_error why = {0};
    if (pattern && ht_jinja_is_string(*pattern)) {
        ht_re found;
        const ht_regex_syntax how = {.searches = true};
        const ht_status status = ht_regex_parse(re, pattern->string->text, pattern->string->n, &how, &found, &why);
        if (!status) all = ht_re_both(re, all, found);
        if (status == HT_ERR_MEMORY && !c->status) {
            c->status = status;
            c->err = why;
        } else if (status)
            ht_log_write(HT_LOG_WARNING, "the parameter `%.100s` of the tool `%.200s` is any string: %.400s", key,
                         tool->name, why.message);
    }
    return ht_re_both(re, all, ht_re_not(re, ends));
}

/* One parameter with its marks. */
static ht_symbol parameter(ht_tool_calls *c, ht_tool *tool, const char *key, const ht_jinja_value *schema,
                           bool is_first) {
    ht_regexes *re = c->r->re;
    const ht_jinja_value *type = member(schema, "type");
    const bool is_raw =
        c->writing->raw && type && ht_jinja_is_string(*type) && ht_jinja_string_is(type->string, "string");
    const ht_symbol rule = ht_rules_rule(c->r);
    production p = {.c = c, .literal = HT_RE_EMPTY};
    if (!is_first) put(&p, c->writing->between, tool, key);
    const char *end = put(&p, is_raw ? c->writing->raw : c->writing->json, tool, key);
    if (is_raw) {
        flush(&p);
        p.literal = ht_re_concat(re, raw_strings(c, tool, key, schema, end), ht_re_text(re, end, strlen(end)));
    } else {
        flush(&p);
        put_symbol(&p, values(c, tool, key));
        put_literal(&p, end, strlen(end));
    }
    finish(&p, rule);
    return rule;
}

static bool is_required(const ht_tool *tool, const char *key) {
    const ht_jinja_value *required = member(tool->parameters, "required");
    for (size_t i = 0; required && required->kind == HT_VALUE_LIST && i < required->list->n; i++)
        if (ht_jinja_is_string(required->list->items[i]) && ht_jinja_string_is(required->list->items[i].string, key))
            return true;
    return false;
}

/* The parameters in the order of the schema's properties, required ones always: a rule for those from each on, once when there is
 * one before them and once when there is none. */
static ht_symbol parameters(ht_tool_calls *c, ht_tool *tool) {
    const ht_jinja_value *properties = member(tool->parameters, "properties");
    const size_t n = properties && properties->kind == HT_VALUE_DICT ? properties->dict->n : 0;
    const bool has_separator = c->writing->between && *c->writing->between;
    const ht_symbol none = ht_rules_rule(c->r);
    ht_symbol from[2] = {none, none}; /* [whether there is one before them] */
    ht_rules_add(c->r, none, NULL, 0);
    for (size_t i = n; i-- > 0 && !c->status && !c->again;) {
        const char *key = properties->dict->keys[i].string->text;
        const ht_jinja_value *schema = &properties->dict->values[i];
        if (!is_key(key)) {
            ht_log_write(HT_LOG_WARNING,
                         "the parameter `%.100s` of the tool `%.200s` cannot be written in its notation", key,
                         tool->name);
            continue;
        }
        ht_symbol next[2];
        for (int before = 0; before < 2; before++) {
            next[before] = before && !has_separator ? next[0] : ht_rules_rule(c->r);
            if (before && !has_separator) continue;
            const ht_symbol one = parameter(c, tool, key, schema, !before);
            ht_rules_add(c->r, next[before], (ht_symbol[]){one, from[1]}, 2);
            if (!is_required(tool, key)) ht_rules_add(c->r, next[before], &from[before], 1);
        }
        from[0] = next[0];
        from[1] = next[1];
    }
    return from[0];
}

/* ---- calls ---- */

static ht_symbol one_call(ht_tool_calls *c) {
    const ht_symbol call = ht_rules_rule(c->r);
    for (size_t i = 0; i < c->tools->n && !c->status && !c->again; i++) {
        production p = {.c = c, .literal = HT_RE_EMPTY};
        put(&p, c->writing->call, &c->tools->tool[i], NULL);
        finish(&p, call);
    }
    return call;
}

/* A rule of calls with separators between them. */
static ht_symbol several(ht_tool_calls *c, ht_symbol call) {
    const ht_symbol all = ht_rules_rule(c->r);
    const ht_re separator = c->writing->separator[0] ? HT_RE_NONE : HT_RE_EMPTY;
    ht_rules_add(c->r, all, &call, 1);
    if (separator == HT_RE_EMPTY) {
        ht_rules_add(c->r, all, (ht_symbol[]){call, all}, 2);
        return all;
    }
    production p = {.c = c, .literal = HT_RE_EMPTY};
    put_symbol(&p, call);
    put(&p, c->writing->separator, NULL, NULL);
    /* White space alone may be left out. */
    if (ht_re_is_nullable(c->r->re, p.literal)) {
        ht_rules_add(c->r, all, (ht_symbol[]){call, all}, 2);
        p.literal = ht_re_without_empty(c->r->re, p.literal);
    }
    flush(&p);
    put_symbol(&p, all);
    finish(&p, all);
    return all;
}

ht_symbol ht_tool_calls_inside(ht_tool_calls *c) {
    if (c->has_inside) return c->inside;
    const ht_call_writing *w = c->writing;
    const ht_symbol call = one_call(c), calls = c->parallel && w->separator ? several(c, call) : call;
    production p = {.c = c, .literal = HT_RE_EMPTY};
    put(&p, w->begin, NULL, NULL);
    flush(&p);
    put_symbol(&p, calls);
    put(&p, w->end, NULL, NULL);
    if (c->notation->close) {
        put_re(&p, c->space);
        put_literal(&p, c->notation->close, strlen(c->notation->close));
    }
    c->inside = ht_rules_rule(c->r);
    c->has_inside = true;
    finish(&p, c->inside);
    return c->inside;
}

ht_re ht_tool_calls_beginning(ht_tool_calls *c, ht_re blanks) {
    ht_regexes *re = c->r->re;
    ht_re all = HT_RE_NONE;
    const char *call = c->writing->call, *name = strstr(call, "%n");
    for (size_t i = 0; name && i < c->tools->n; i++) {
        production p = {.c = c, .literal = blanks};
        for (const char *at = call; at < name;) {
            const size_t n = strcspn(at, "%");
            put_literal(&p, at, n);
            at += n;
            if (at == name) break;
            put_re(&p, c->space); /* nothing else stands before a name */
            at += 2;
        }
        put_literal(&p, c->tools->tool[i].name, strlen(c->tools->tool[i].name));
        put_literal(&p, "\"", 1);
        all = ht_re_either(re, all, p.literal);
    }
    return all;
}
