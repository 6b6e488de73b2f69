#include "chat/tools.h"

#include "base/error.h"
#include "base/log.h"
#include "base/tool_name.h"
#include "template/eval.h"

#include <string.h>

const ht_jinja_value *ht_tool_field(const ht_jinja_value *v, const char *key) {
    return v && v->kind == HT_VALUE_DICT ? ht_jinja_dict_find_text(v->dict, key, strlen(key)) : NULL;
}

static const ht_jinja_value *description(const ht_jinja_value *tool) {
    const ht_jinja_value *function = ht_tool_field(tool, "function");
    return function ? function : tool;
}

static bool is_text(const ht_jinja_value *v, const char *text, size_t n) {
    return v && ht_jinja_is_string(*v) && v->string->n == n && memcmp(v->string->text, text, n) == 0;
}

const ht_jinja_value *ht_tool_find(ht_jinja_value tools, const char *name, size_t n) {
    for (size_t i = 0; tools.kind == HT_VALUE_LIST && i < tools.list->n; i++) {
        const ht_jinja_value *d = description(&tools.list->items[i]);
        if (is_text(ht_tool_field(d, "name"), name, n)) return d;
    }
    return NULL;
}

/* ---- types of schemas ---- */

enum { SCHEMA_PARTS = 1000, POINTER_BYTES = 256 }; /* that are looked at, as references may go around in circles */

typedef struct type_query {
    const ht_jinja_value *root;
    const char *text;
    size_t n;
    int left;
} type_query;

static unsigned type_of(const ht_jinja_value *v) {
    switch (v->kind) {
    case HT_VALUE_STRING: return HT_TYPE_STRING;
    case HT_VALUE_NONE: return HT_TYPE_NULL;
    case HT_VALUE_BOOL: return HT_TYPE_BOOL;
    case HT_VALUE_LIST: return HT_TYPE_ARRAY;
    case HT_VALUE_DICT: return HT_TYPE_OBJECT;
    default: return HT_TYPE_NUMBER;
    }
}

static unsigned named_type(const ht_jinja_value *v) {
    static const char *const names[] = {"string", "null", "boolean", "number", "array", "object", "integer"};
    static const unsigned types[] = {HT_TYPE_STRING, HT_TYPE_NULL,   HT_TYPE_BOOL,  HT_TYPE_NUMBER,
                                     HT_TYPE_ARRAY,  HT_TYPE_OBJECT, HT_TYPE_NUMBER};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (is_text(v, names[i], strlen(names[i]))) return types[i];
    return HT_TYPE_ANY;
}

/* Types of the values that an enum or const lists. */
static unsigned listed_types(const type_query *q, const ht_jinja_value *items, size_t n) {
    unsigned types = 0;
    for (size_t i = 0; i < n; i++) {
        if (q->text && is_text(&items[i], q->text, q->n)) return HT_TYPE_STRING;
        types |= type_of(&items[i]);
    }
    return q->text && types != HT_TYPE_STRING ? types & ~(unsigned)HT_TYPE_STRING : types;
}

/* The next name of a JSON pointer, unescaped; n bytes. */
static size_t pointer_name(const char **pointer, char *name) {
    size_t n = 0;
    const char *p = *pointer + 1;
    for (; *p && *p != '/' && n < POINTER_BYTES; p++) {
        const bool escaped = *p == '~' && (p[1] == '0' || p[1] == '1');
        if (escaped) p++;
        name[n++] = escaped ? (*p == '0' ? '~' : '/') : *p;
    }
    *pointer = p;
    return n;
}

const ht_jinja_value *ht_schema_reference(const ht_jinja_value *root, const ht_jinja_value *schema) {
    const ht_jinja_value *reference = ht_tool_field(schema, "$ref"), *at = root;
    if (!reference || !ht_jinja_is_string(*reference) || reference->string->text[0] != '#') return NULL;
    const char *pointer = reference->string->text + 1;
    while (at && *pointer == '/') {
        char name[POINTER_BYTES];
        const size_t n = pointer_name(&pointer, name);
        at = at->kind == HT_VALUE_DICT ? ht_jinja_dict_find_text(at->dict, name, n) : NULL;
    }
    return *pointer ? NULL : at;
}

static unsigned schema_types(type_query *q, const ht_jinja_value *schema) {
    static const char *const unions[] = {"anyOf", "oneOf", "allOf"};
    if (!schema || schema->kind != HT_VALUE_DICT || --q->left < 0) return HT_TYPE_ANY;
    const ht_jinja_value *type = ht_tool_field(schema, "type"), *one = ht_tool_field(schema, "const"),
                         *several = ht_tool_field(schema, "enum");
    unsigned types = schema_types(q, ht_schema_reference(q->root, schema));
    if (type && type->kind == HT_VALUE_LIST) {
        unsigned any = 0;
        for (size_t i = 0; i < type->list->n; i++) any |= named_type(&type->list->items[i]);
        types &= any;
    } else if (type)
        types &= named_type(type);
    if (one) types &= listed_types(q, one, 1);
    if (several && several->kind == HT_VALUE_LIST) types &= listed_types(q, several->list->items, several->list->n);
    for (int u = 0; u < 3; u++) {
        const ht_jinja_value *parts = ht_tool_field(schema, unions[u]);
        if (!parts || parts->kind != HT_VALUE_LIST) continue;
        unsigned any = 0;
        for (size_t i = 0; i < parts->list->n; i++) {
            const unsigned part = schema_types(q, &parts->list->items[i]);
            any |= part;
            if (u == 2) types &= part;
        }
        if (u < 2) types &= any;
    }
    return types;
}

unsigned ht_schema_types(const ht_jinja_value *root, const ht_jinja_value *schema, const char *text, size_t n) {
    type_query q = {.root = root, .text = text, .n = n, .left = SCHEMA_PARTS};
    const unsigned types = schema_types(&q, schema);
    return types && q.left >= 0 ? types : HT_TYPE_ANY;
}

/* ---- tools that can be called ---- */

ht_status ht_tool_list_read(ht_tool_list *t, ht_jinja_value tools, const char *only, ht_error *err) {
    *t = (ht_tool_list){.arena = {.limit = (size_t)256 << 20, .name = "the tools", .err = err}};
    const size_t n = tools.kind == HT_VALUE_LIST ? tools.list->n : 0;
    if (!(t->tool = ht_jinja_arena_alloc(&t->arena, (n + 1) * sizeof *t->tool))) return t->arena.status;
    for (size_t i = 0; i < n; i++) {
        const ht_jinja_value *of = description(&tools.list->items[i]), *name = ht_tool_field(of, "name");
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

void ht_tool_list_free(ht_tool_list *t) { ht_jinja_arena_free(&t->arena); }

static ht_status embed(ht_tool_list *t, const ht_tool *tool, ht_rules *r, const char *property, ht_symbol *out,
                       ht_error *err) {
    static const char none[] = "{\"type\": \"object\", \"maxProperties\": 0}", any[] = "{}";
    /* Models write arguments in any order. */
    const ht_schema_options how = {.closed = true};
    const ht_schema_part part = {.property = tool->is_relaxed ? NULL : property, .is_object = !property};
    if (tool->is_relaxed) return ht_schema_embed(r, any, strlen(any), &how, &part, out, err);
    if (!tool->parameters) return ht_schema_embed(r, none, strlen(none), &how, &part, out, err);
    ht_jinja_rendering rendering = {.a = &t->arena};
    const ht_jinja_string *json = ht_jinja_json_text(&rendering, *tool->parameters, NULL, NULL, NULL, false, false);
    if (!json) return t->arena.status;
    return ht_schema_embed(r, json->text, json->n, &how, &part, out, err);
}

/* Schemas that may prove too complex, which can take seconds each. After this number no others are tried. */
enum { TOO_COMPLEX_MOST = 8 };

static void relax(ht_tool *tool, const char *why) {
    ht_log_write(HT_LOG_WARNING, "the parameters of the tool `%.200s` are not constrained by their schema: %.500s",
                 tool->name, why);
    tool->is_relaxed = true;
}

ht_status ht_tool_values(ht_tool_list *t, ht_tool *tool, ht_rules *r, const char *property, ht_symbol *out, bool *again,
                         ht_error *err) {
    ht_error why = {0};
    *again = false;
    if (!property && tool->has_symbol) {
        *out = tool->arguments;
        return HT_OK;
    }
    if (t->n_too_complex == TOO_COMPLEX_MOST && !tool->is_constrained && !tool->is_relaxed)
        relax(tool, "too many tools before it are too complex");
    ht_status status = embed(t, tool, r, property, out, &why);
    if (status && status != HT_ERR_MEMORY && !tool->is_relaxed && !t->arena.status) {
        relax(tool, why.message);
        if (status == HT_ERR_LIMIT) t->n_too_complex++;
        *again = ht_rules_status(r, NULL) != HT_OK;
        if (*again) return HT_OK;
        status = embed(t, tool, r, property, out, &why);
    }
    if (status) {
        if (err) *err = why;
        return status;
    }
    tool->is_constrained = !tool->is_relaxed;
    if (!property) {
        tool->has_symbol = true;
        tool->arguments = *out;
    }
    return HT_OK;
}
