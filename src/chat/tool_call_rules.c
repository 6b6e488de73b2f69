#include "chat/tool_call_rules.h"

#include "base/error.h"
#include "base/log.h"
#include "base/tool_name.h"
#include "grammar/regex_syntax.h"

#include <string.h>

/* ---- tools that can be called ---- */

ht_status ht_tool_list_read(ht_tool_list *t, ht_jinja_value tools, const char *only, ht_error *err) {
    *t = (ht_tool_list){.arena = {.limit = (size_t)256 << 20, .name = "the tools", .err = err}};
    const size_t n = tools.kind == HT_VALUE_LIST ? tools.list->n : 0;
    if (!(t->tool = ht_jinja_arena_alloc(&t->arena, (n + 1) * sizeof *t->tool))) return t->arena.status;
    for (size_t i = 0; i < n; i++) {
        const ht_jinja_value *of = ht_tool_description(&tools.list->items[i]), *name = ht_tool_field(of, "name");
        if (!name || !ht_jinja_is_string(*name) || (only && !ht_jinja_string_is(name->string, only))) continue;
        if (!ht_is_tool_name(name->string->text)) {
            if (only)
                return ht_fail(err, HT_ERR_ARGUMENT, "the tool `%.200s` has a name that no call can be written with",
                               only);
            ht_log_write(HT_LOG_WARNING, "the tool `%.200s` has a name that no call can be written with",
                         name->string->text);
            continue;
        }
        const ht_jinja_value *parameters = ht_tool_field(of, "parameters");
        t->tool[t->n++] = (ht_tool){
            .name = name->string->text,
            .parameters = parameters && parameters->kind != HT_VALUE_NONE ? parameters : NULL,
        };
    }
    return HT_OK;
}

static ht_status embed(const ht_tool_calls *c, const ht_tool *tool, const char *property, ht_symbol *out,
                       ht_error *err) {
    /* Models write arguments in any order. */
    const ht_schema_options how = {.closed = true};
    const ht_schema_part part = {.property = tool->is_relaxed ? NULL : property, .is_object = !property};
    if (tool->is_relaxed || !tool->parameters) {
        const char *json = tool->is_relaxed ? "{}" : "{\"type\": \"object\", \"maxProperties\": 0}";
        return ht_schema_embed(c->r, json, strlen(json), &how, &part, out, err);
    }
    const ht_jinja_string *json = ht_tool_json(&c->tools->arena, *tool->parameters);
    return json ? ht_schema_embed(c->r, json->text, json->n, &how, &part, out, err) : c->tools->arena.status;
}

/* Schemas that may prove too complex, which can take seconds each. After this number no others are tried. */
enum { TOO_COMPLEX_MOST = 8 };

static void relax(ht_tool *tool, const char *why) {
    ht_log_write(HT_LOG_WARNING, "the parameters of the tool `%.200s` are not constrained by their schema: %.500s",
                 tool->name, why);
    tool->is_relaxed = true;
}

/* The symbol of a tool's arguments, or of a property. An unsupported schema relaxes the tool and may damage the
 * rules. */
static ht_symbol values(ht_tool_calls *c, ht_tool *tool, const char *property) {
    ht_tool_list *t = c->tools;
    ht_symbol symbol = 0;
    ht_error why = {0};
    if (c->status || c->again) return 0;
    if (!property && tool->has_symbol) return tool->arguments;
    if (t->n_too_complex == TOO_COMPLEX_MOST && !tool->is_constrained && !tool->is_relaxed)
        relax(tool, "too many tools before it are too complex");
    ht_status status = embed(c, tool, property, &symbol, &why);
    if (status && status != HT_ERR_MEMORY && !tool->is_relaxed && !t->arena.status) {
        relax(tool, why.message);
        if (status == HT_ERR_LIMIT) t->n_too_complex++;
        c->again = ht_rules_status(c->r, NULL) != HT_OK;
        if (c->again) return 0;
        status = embed(c, tool, property, &symbol, &why);
    }
    if (status) {
        c->status = status;
        c->err = why;
        return 0;
    }
    tool->is_constrained = !tool->is_relaxed;
    if (!property) {
        tool->has_symbol = true;
        tool->arguments = symbol;
    }
    return symbol;
}

/* ---- parts ---- */

/* Symbols of one production at most: those of the longest text of the table. */
enum { PARTS_MOST = 16 };

/* A production under construction: `literal` gathers text up to the next symbol. */
typedef struct production {
    ht_tool_calls *c;
    ht_re literal;
    ht_symbol symbol[PARTS_MOST];
    size_t n;
} production;

void ht_tool_calls_begin(ht_tool_calls *c, ht_rules *r, ht_tool_list *tools, bool parallel,
                         const ht_tool_call_format *format) {
    *c = (ht_tool_calls){.r = r, .tools = tools, .format = format, .parallel = parallel};
    c->space = ht_schema_white_space(r->re, HT_SCHEMA_SPACE_LINES);
    for (size_t i = 0; i < tools->n; i++) tools->tool[i].has_symbol = false;
}

static void put_symbol(production *p, ht_symbol symbol) {
    if (p->n < PARTS_MOST)
        p->symbol[p->n++] = symbol;
    else if (!p->c->status)
        p->c->status = ht_fail(&p->c->err, HT_ERR_INTERNAL, "a tool-call format has too many parts");
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

static ht_symbol parameters(ht_tool_calls *c, ht_tool *tool);

/* Adds the parts of a pattern up to the value of a parameter, if it has one. Returns the pattern after the value. */
static const char *put(production *p, const char *text, ht_tool *tool, const char *key) {
    ht_regexes *re = p->c->r->re;
    production id = {.c = p->c, .literal = HT_RE_EMPTY};
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
        case 'f': put(p, "functions.%n:%d", tool, NULL); break;
        case 'l': break; /* only read */
        case 'i': put_re(p, ascii(re, "azAZ09", 9, 9)); break;
        case 'm':
            put(&id, "%s,%s\"id\"%s:%s\"%i\"", NULL, NULL);
            put_re(p, ht_re_either(re, HT_RE_EMPTY, id.literal));
            break;
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

/* Keys that may appear unquoted in tags and before colons. */
static bool is_key(const char *key) {
    const char *at = key;
    while (*at && (unsigned char)*at > ' ' && !strchr("\"'`<>{}()[],;:=\\", *at)) at++;
    return at > key && !*at;
}

static uint32_t bound(const ht_jinja_value *schema, const char *key, uint32_t otherwise) {
    const ht_jinja_value *v = ht_tool_field(schema, key);
    int64_t n;
    return v && v->kind == HT_VALUE_INT && ht_jinja_as_integer(*v, &n) && n >= 0 && n < UINT32_MAX ? (uint32_t)n
                                                                                                   : otherwise;
}

enum { SCHEMA_PARTS = 1000 }; /* limit: references may be cyclic */

/* A parameter whose values are written without quotes. */
typedef struct raw_parameter {
    ht_tool_calls *c;
    const ht_tool *tool;
    const char *key;
    ht_re any; /* all valid text */
    int left;  /* parts of the schema to look at */
} raw_parameter;

/* The texts of the values that an enum or const lists. */
static ht_re listed(const raw_parameter *p, const ht_jinja_value *items, size_t n) {
    ht_regexes *re = p->c->r->re;
    ht_re all = HT_RE_NONE;
    for (size_t i = 0; i < n; i++) {
        const ht_jinja_string *text =
            ht_jinja_is_string(items[i]) ? items[i].string : ht_tool_json(&p->c->tools->arena, items[i]);
        if (text) all = ht_re_either(re, all, ht_re_text(re, text->text, text->n));
    }
    return all;
}

static ht_re strings(const raw_parameter *p, const ht_jinja_value *schema) {
    static const ht_code_range characters[] = {{1, 0x10FFFF}};
    ht_regexes *re = p->c->r->re;
    const ht_re one = ht_re_code_points(re, characters, 1);
    const ht_re all = ht_re_repeat(re, one, bound(schema, "minLength", 0), bound(schema, "maxLength", HT_RE_UNBOUNDED));
    const ht_jinja_value *pattern = ht_tool_field(schema, "pattern");
    if (!pattern || !ht_jinja_is_string(*pattern)) return all;
    ht_re found;
    ht_error why = {0};
    const ht_regex_syntax how = {.searches = true};
    const ht_status status = ht_regex_parse(re, pattern->string->text, pattern->string->n, &how, &found, &why);
    if (!status) return ht_re_both(re, all, found);
    if (status == HT_ERR_MEMORY && !p->c->status) {
        p->c->status = status;
        p->c->err = why;
    } else
        ht_log_write(HT_LOG_WARNING, "parameter `%.100s` of the tool `%.200s` is any string: %.400s", p->key,
                     p->tool->name, why.message);
    return all;
}

/* Texts of a schema's values: strings as they are, other scalars as JSON; any text where it allows objects or lists. */
static ht_re raw_values(raw_parameter *p, const ht_jinja_value *schema) {
    static const char *const unions[] = {"anyOf", "oneOf", "allOf"};
    ht_regexes *re = p->c->r->re;
    if (!schema || schema->kind != HT_VALUE_DICT || --p->left < 0) return p->any;
    unsigned types = ht_schema_types(p->tool->parameters, schema, NULL, 0);
    if (types == HT_TYPE_ALL) types = HT_TYPE_STRING; /* whose texts include the others' */
    if (types & (HT_TYPE_ARRAY | HT_TYPE_OBJECT)) return p->any;
    ht_re all = types & HT_TYPE_STRING ? strings(p, schema) : HT_RE_NONE;
    if (types & HT_TYPE_NULL) all = ht_re_either(re, all, ht_re_text(re, "null", 4));
    if (types & HT_TYPE_BOOLEAN)
        all = ht_re_either(re, all, ht_re_either(re, ht_re_text(re, "true", 4), ht_re_text(re, "false", 5)));
    if (types & HT_TYPE_NUMBER) all = ht_re_either(re, all, ascii(re, "09..--++eeEE", 1, HT_RE_UNBOUNDED));
    const ht_jinja_value *list = ht_tool_field(schema, "enum"), *one = ht_tool_field(schema, "const");
    if (list && list->kind == HT_VALUE_LIST) all = ht_re_both(re, all, listed(p, list->list->items, list->list->n));
    if (one) all = ht_re_both(re, all, listed(p, one, 1));
    all = ht_re_both(re, all, raw_values(p, ht_schema_reference(p->tool->parameters, schema)));
    for (int u = 0; u < 3; u++) {
        const ht_jinja_value *parts = ht_tool_field(schema, unions[u]);
        ht_re either = HT_RE_NONE;
        if (!parts || parts->kind != HT_VALUE_LIST) continue;
        for (size_t i = 0; i < parts->list->n; i++) {
            const ht_re part = raw_values(p, &parts->list->items[i]);
            if (u == 2)
                all = ht_re_both(re, all, part);
            else
                either = ht_re_either(re, either, part);
        }
        if (u < 2) all = ht_re_both(re, all, either);
    }
    return all;
}

/* Values of a schema without quotes, and without the text that ends them. */
static ht_re raw_text(ht_tool_calls *c, const ht_tool *tool, const char *key, const ht_jinja_value *schema,
                      const char *end) {
    static const ht_code_range characters[] = {{1, 0x10FFFF}};
    ht_regexes *re = c->r->re;
    const ht_re any = ht_re_repeat(re, ht_re_code_points(re, characters, 1), 0, HT_RE_UNBOUNDED);
    raw_parameter p = {.c = c, .tool = tool, .key = key, .any = any, .left = SCHEMA_PARTS};
    while (*end == '\n') end++; /* no value contains its end, even without the line break */
    const ht_re ends = ht_re_concat(re, HT_RE_ALL, ht_re_concat(re, ht_re_text(re, end, strlen(end)), HT_RE_ALL));
    return ht_re_both(re, raw_values(&p, schema), ht_re_not(re, ends));
}

/* One parameter with its marks. */
static ht_symbol parameter(ht_tool_calls *c, ht_tool *tool, const char *key, const ht_jinja_value *schema,
                           bool is_first) {
    ht_regexes *re = c->r->re;
    const unsigned types = ht_schema_types(tool->parameters, schema, NULL, 0);
    const bool is_raw = ht_tool_call_format_marks_strings(c->format) ? types == HT_TYPE_STRING
                                                                     : c->format->raw && ht_types_are_text(types);
    const ht_symbol rule = ht_rules_rule(c->r);
    production p = {.c = c, .literal = HT_RE_EMPTY};
    if (!is_first) put(&p, c->format->between, tool, key);
    const char *end = put(&p, is_raw ? c->format->raw : c->format->json, tool, key);
    if (strncmp(end, "%l", 2) == 0) end += 2;
    if (is_raw) {
        flush(&p);
        p.literal = ht_re_concat(re, raw_text(c, tool, key, schema, end), ht_re_text(re, end, strlen(end)));
    } else {
        flush(&p);
        put_symbol(&p, values(c, tool, key));
        put_literal(&p, end, strlen(end));
    }
    finish(&p, rule);
    return rule;
}

static bool is_required(const ht_tool *tool, const char *key) {
    const ht_jinja_value *required = ht_tool_field(tool->parameters, "required");
    for (size_t i = 0; required && required->kind == HT_VALUE_LIST && i < required->list->n; i++)
        if (ht_jinja_is_string(required->list->items[i]) && ht_jinja_string_is(required->list->items[i].string, key))
            return true;
    return false;
}

/* The parameters in the schema's order: a rule for those from each on, after others and as the first. */
static ht_symbol parameters(ht_tool_calls *c, ht_tool *tool) {
    const ht_jinja_value *properties = ht_tool_field(tool->parameters, "properties");
    const size_t n = properties && properties->kind == HT_VALUE_DICT ? properties->dict->n : 0;
    const bool has_separator = c->format->between && *c->format->between;
    const ht_symbol none = ht_rules_rule(c->r);
    ht_symbol from[2] = {none, none}; /* [whether there is one before them] */
    ht_rules_add(c->r, none, NULL, 0);
    for (size_t i = n; i-- > 0 && !c->status && !c->again;) {
        const char *key = properties->dict->keys[i].string->text;
        const ht_jinja_value *schema = &properties->dict->values[i];
        if (!is_key(key)) {
            ht_log_write(HT_LOG_WARNING,
                         "parameter `%.100s` of the tool `%.200s`: the model's tool-call format cannot spell its name",
                         key, tool->name);
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

/* A call of each tool, by the format's pattern or the rest of it. */
static ht_symbol one_call(ht_tool_calls *c, const char *pattern) {
    const ht_symbol call = ht_rules_rule(c->r);
    for (size_t i = 0; i < c->tools->n && !c->status && !c->again; i++) {
        production p = {.c = c, .literal = HT_RE_EMPTY};
        put(&p, pattern, &c->tools->tool[i], NULL);
        finish(&p, call);
    }
    return call;
}

/* A rule of calls with separators between them. */
static ht_symbol several(ht_tool_calls *c, ht_symbol call) {
    const ht_symbol all = ht_rules_rule(c->r);
    const ht_re separator = c->format->separator[0] ? HT_RE_NONE : HT_RE_EMPTY;
    ht_rules_add(c->r, all, &call, 1);
    if (separator == HT_RE_EMPTY) {
        ht_rules_add(c->r, all, (ht_symbol[]){call, all}, 2);
        return all;
    }
    production p = {.c = c, .literal = HT_RE_EMPTY};
    put_symbol(&p, call);
    put(&p, c->format->separator, NULL, NULL);
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
    const ht_tool_call_format *f = c->format;
    const ht_symbol call = one_call(c, f->call), calls = c->parallel && f->separator ? several(c, call) : call;
    production p = {.c = c, .literal = HT_RE_EMPTY};
    put(&p, f->begin, NULL, NULL);
    flush(&p);
    put_symbol(&p, calls);
    put(&p, f->end, NULL, NULL);
    if (f->close) {
        put_re(&p, c->space);
        put_literal(&p, f->close, strlen(f->close));
    }
    c->inside = ht_rules_rule(c->r);
    c->has_inside = true;
    finish(&p, c->inside);
    return c->inside;
}

ht_symbol ht_tool_calls_after_bare(ht_tool_calls *c) {
    const char *bare = c->format->bare;
    return one_call(c, strstr(c->format->call, bare) + strlen(bare));
}

ht_symbol ht_tool_calls_by(ht_tool_calls *c, const char *pattern) { return one_call(c, pattern); }

/* Adds a pattern up to a tool's name: text, and white space. */
static const char *put_beginning(production *p, const char *pattern) {
    while (*pattern && strncmp(pattern, "%n", 2) != 0) {
        const size_t n = strcspn(pattern, "%");
        put_literal(p, pattern, n);
        pattern += n;
        if (strncmp(pattern, "%s", 2) != 0) break;
        put_re(p, p->c->space);
        pattern += 2;
    }
    return pattern;
}

ht_re ht_tool_calls_beginning(ht_tool_calls *c, ht_re blanks) {
    ht_re all = HT_RE_NONE;
    for (size_t i = 0; i < c->tools->n; i++) {
        production p = {.c = c, .literal = blanks};
        (void)put_beginning(&p, c->format->begin ? c->format->begin : "");
        const char *name = put_beginning(&p, c->format->call);
        put_literal(&p, c->tools->tool[i].name, strlen(c->tools->tool[i].name));
        put_literal(&p, name + strlen("%n"), 1);
        all = ht_re_either(c->r->re, all, p.literal);
    }
    return all;
}
