#include "chat/tools.h"

#include "template/eval.h"

#include <string.h>

const ht_jinja_value *ht_tool_field(const ht_jinja_value *v, const char *key) {
    return v && v->kind == HT_VALUE_DICT ? ht_jinja_dict_find_text(v->dict, key, strlen(key)) : NULL;
}

const ht_jinja_value *ht_tool_description(const ht_jinja_value *tool) {
    const ht_jinja_value *function = ht_tool_field(tool, "function");
    return function ? function : tool;
}

static bool is_text(const ht_jinja_value *v, const char *text, size_t n) {
    return v && ht_jinja_is_string(*v) && v->string->n == n && memcmp(v->string->text, text, n) == 0;
}

const ht_jinja_value *ht_tool_find(ht_jinja_value tools, const char *name, size_t n) {
    for (size_t i = 0; tools.kind == HT_VALUE_LIST && i < tools.list->n; i++) {
        const ht_jinja_value *d = ht_tool_description(&tools.list->items[i]);
        if (is_text(ht_tool_field(d, "name"), name, n)) return d;
    }
    return NULL;
}

bool ht_tool_name_begins(ht_jinja_value tools, const char *text, size_t n) {
    for (size_t i = 0; tools.kind == HT_VALUE_LIST && i < tools.list->n; i++) {
        const ht_jinja_value *name = ht_tool_field(ht_tool_description(&tools.list->items[i]), "name");
        if (name && ht_jinja_is_string(*name) && name->string->n >= n && memcmp(name->string->text, text, n) == 0)
            return true;
    }
    return false;
}

/* ---- types of schemas ---- */

enum { SCHEMA_PARTS = 1000, POINTER_BYTES = 256 }; /* limit: references may be cyclic */

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
    case HT_VALUE_BOOL: return HT_TYPE_BOOLEAN;
    case HT_VALUE_LIST: return HT_TYPE_ARRAY;
    case HT_VALUE_DICT: return HT_TYPE_OBJECT;
    default: return HT_TYPE_NUMBER;
    }
}

static unsigned named_type(const ht_jinja_value *v) {
    const unsigned types = ht_jinja_is_string(*v) ? ht_schema_type(v->string->text) : 0;
    return types ? types : HT_TYPE_ALL;
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
    if (!schema || schema->kind != HT_VALUE_DICT || --q->left < 0) return HT_TYPE_ALL;
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
    return types && q.left >= 0 ? types : HT_TYPE_ALL;
}

const ht_jinja_string *ht_tool_json(ht_jinja_arena *a, ht_jinja_value v) {
    ht_jinja_rendering r = {.a = a};
    return ht_jinja_json_text(&r, v, NULL, NULL, NULL, false, false);
}
