/* References between schemas of a document: identifiers, anchors, JSON pointers, and dynamic references. */
#include "base/hex.h"
#include "grammar/schema.h"

/* ---- URIs: RFC 3986, 5.2 ---- */

typedef struct span {
    const char *text; /* NULL: the component is absent */
    size_t n;
} span;

typedef struct uri {
    span scheme, authority, path, query, fragment;
} uri;

static size_t until(const char *text, size_t n, const char *ends) {
    size_t i = 0;
    while (i < n && !(text[i] && strchr(ends, text[i]))) i++;
    return i;
}

/* Takes `skipped` bytes and a part that ends before one of `ends`. */
static span take(span *t, size_t skipped, const char *ends) {
    const size_t k = skipped + until(t->text + skipped, t->n - skipped, ends);
    const span part = {t->text + skipped, k - skipped};
    *t = (span){t->text + k, t->n - k};
    return part;
}

static uri split(ht_tree_string text) {
    uri u = {.scheme = {0}};
    span t = {text.text, text.n};
    const size_t k = until(t.text, t.n, ":/?#");
    if (k && k < t.n && t.text[k] == ':') {
        u.scheme = (span){t.text, k};
        t = (span){t.text + k + 1, t.n - k - 1};
    }
    if (t.n >= 2 && t.text[0] == '/' && t.text[1] == '/') u.authority = take(&t, 2, "/?#");
    u.path = take(&t, 0, "?#");
    if (t.n && *t.text == '?') u.query = take(&t, 1, "#");
    if (t.n) u.fragment = take(&t, 1, "");
    return u;
}

/* Appends a path without its segments `.` and `..`. */
static void append_path(ht_text *to, const char *path, size_t n) {
    ht_text out = {0};
    for (size_t i = 0; i < n;) {
        const bool slash = path[i] == '/';
        const size_t k = until(path + i + slash, n - i - slash, "/");
        const char *segment = path + i + slash;
        const bool is_last = i + slash + k == n;
        if (k == 1 && segment[0] == '.') {
            if (is_last && slash) ht_text_append_str(&out, "/");
        } else if (k == 2 && segment[0] == '.' && segment[1] == '.') {
            while (out.len && out.data[out.len - 1] != '/') out.len--;
            if (out.len) out.len--;
            if (is_last) ht_text_append_str(&out, "/");
        } else
            ht_text_append(&out, path + i, slash + k);
        i += slash + k;
    }
    if (out.failed) to->failed = true;
    if (out.len) ht_text_append(to, out.data, out.len);
    ht_text_discard(&out);
}

/* Resolves a reference against `base` and appends the URI, without a fragment. */
static void resolve_uri(ht_tree_string base, const uri *r, ht_text *out) {
    const uri b = split(base);
    const bool absolute = r->scheme.text != NULL, own_host = absolute || r->authority.text;
    const bool own_path = own_host || r->path.n, own_query = own_path || r->query.text;
    const span scheme = absolute ? r->scheme : b.scheme, authority = own_host ? r->authority : b.authority;
    const span query = own_query ? r->query : b.query;
    if (scheme.text) {
        ht_text_append(out, scheme.text, scheme.n);
        ht_text_append_str(out, ":");
    }
    if (authority.text) {
        ht_text_append_str(out, "//");
        ht_text_append(out, authority.text, authority.n);
    }
    if (!own_path)
        ht_text_append(out, b.path.text, b.path.n);
    else if (own_host || r->path.text[0] == '/')
        append_path(out, r->path.text, r->path.n);
    else {
        size_t n = b.path.n;
        ht_text merged = {0};
        while (n && b.path.text[n - 1] != '/') n--;
        ht_text_append(&merged, b.path.text, n);
        if (!n && b.authority.text) ht_text_append_str(&merged, "/");
        ht_text_append(&merged, r->path.text, r->path.n);
        if (merged.failed) out->failed = true;
        if (merged.len) append_path(out, merged.data, merged.len);
        ht_text_discard(&merged);
    }
    if (query.text) {
        ht_text_append_str(out, "?");
        ht_text_append(out, query.text, query.n);
    }
}

/* The number of a string that a text holds; HT_INTERN_FAILED, and the failure is recorded, when memory runs out. */
static uint32_t string_of(ht_schema *s, const ht_text *t) {
    const uint32_t string =
        t->failed ? HT_INTERN_FAILED : ht_json_tree_string(&s->tree, t->data ? t->data : "", t->len);
    if (string == HT_INTERN_FAILED) ht_schema_fail_memory(s);
    return string;
}

static uint32_t resolved(ht_schema *s, uint32_t base, const uri *r) {
    ht_text t = {0};
    resolve_uri(s->tree.string[base], r, &t);
    const uint32_t string = string_of(s, &t);
    ht_text_discard(&t);
    return string;
}

/* ---- finding ---- */

static void note(ht_schema *s, ht_pair_map *map, uint32_t a, uint32_t b, uint32_t value) {
    if (ht_pair_map_find(map, a, b) == HT_INTERN_FAILED) ht_schema_note(s, map, a, b, value);
}

static uint32_t add_resource(ht_schema *s, uint32_t uri_string, const ht_tree_value *root) {
    ht_references *f = &s->references;
    if (!HT_SCHEMA_APPEND(s, f->resource, f->n)) return 0;
    f->resource[f->n] = (ht_resource){uri_string, root, false};
    note(s, &f->by_uri, uri_string, 0, f->n);
    return f->n++;
}

/* The resource that an identifier begins, or `now`. */
static uint32_t identify(ht_schema *s, const ht_tree_value *v, uint32_t now) {
    ht_references *f = &s->references;
    const ht_tree_value *id = ht_schema_keyword(s, v, "$id");
    if (!id && s->parsed.draft == 4) id = ht_schema_keyword(s, v, "id");
    if (!id || id->kind != HT_SCAN_STRING || (s->parsed.old_references && ht_schema_keyword(s, v, "$ref"))) return now;
    const ht_tree_string text = s->tree.string[id->string];
    const uri u = split(text);
    if (u.fragment.n) {
        const uint32_t name = ht_json_tree_string(&s->tree, u.fragment.text, u.fragment.n);
        if (name == HT_INTERN_FAILED) return ht_schema_fail_memory(s), now;
        if (!u.scheme.text && !u.authority.text && !u.path.n && !u.query.text) {
            note(s, &f->anchors, now, name, v->number);
            return now;
        }
    }
    const uint32_t full = resolved(s, f->resource[now].uri, &u);
    if (s->status) return now;
    if (v == s->tree.root) {
        f->resource[now].uri = full;
        note(s, &f->by_uri, full, 0, now);
        return now;
    }
    return add_resource(s, full, v);
}

static void anchor(ht_schema *s, const ht_tree_value *v, uint32_t at) {
    ht_references *f = &s->references;
    const ht_tree_value *name = ht_schema_keyword(s, v, "$anchor");
    if (name && name->kind == HT_SCAN_STRING) note(s, &f->anchors, at, name->string, v->number);
    name = ht_schema_keyword(s, v, "$dynamicAnchor");
    if (name && name->kind == HT_SCAN_STRING) {
        note(s, &f->anchors, at, name->string, v->number);
        note(s, &f->dynamic_anchors, at, name->string, v->number);
        f->is_dynamic = true;
    }
    name = ht_schema_keyword(s, v, "$recursiveAnchor");
    if (name && name->kind == HT_SCAN_TRUE && f->resource[at].root == v)
        f->resource[at].is_recursive = f->is_dynamic = true;
}

static void find(ht_schema *s, const ht_tree_value *v, uint32_t at);

/* The schemas of a keyword that is a list or an object of them. */
static void find_all(ht_schema *s, const ht_tree_value *schema, const char *keyword, ht_json_event kind, uint32_t at) {
    const ht_tree_value *all = ht_schema_keyword(s, schema, keyword);
    if (!all || all->kind != kind) return;
    for (const ht_tree_value *v = all->first; v && !s->status; v = v->next) find(s, v, at);
}

static void find(ht_schema *s, const ht_tree_value *v, uint32_t at) {
    static const char *const schemas[] = {"additionalProperties",
                                          "additionalItems",
                                          "unevaluatedProperties",
                                          "unevaluatedItems",
                                          "propertyNames",
                                          "contains",
                                          "not",
                                          "if",
                                          "then",
                                          "else",
                                          "items",
                                          "contentSchema"};
    static const char *const lists[] = {"allOf", "anyOf", "oneOf", "prefixItems", "items"};
    static const char *const maps[] = {"properties",  "patternProperties", "$defs",
                                       "definitions", "dependentSchemas",  "dependencies"};
    if (v->kind != HT_SCAN_OBJECT || s->status) return;
    at = identify(s, v, at);
    anchor(s, v, at);
    note(s, &s->references.of_value, v->number, 0, at);
    for (size_t i = 0; i < sizeof schemas / sizeof *schemas; i++) {
        const ht_tree_value *below = ht_schema_keyword(s, v, schemas[i]);
        if (below) find(s, below, at);
    }
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) find_all(s, v, lists[i], HT_SCAN_ARRAY, at);
    for (size_t i = 0; i < sizeof maps / sizeof *maps; i++) find_all(s, v, maps[i], HT_SCAN_OBJECT, at);
}

void ht_references_find(ht_schema *s) {
    const uint32_t none = ht_json_tree_string(&s->tree, "", 0), first = 0;
    if (none == HT_INTERN_FAILED || ht_intern_add(&s->parsed.scopes, &first, 1, NULL) == HT_INTERN_FAILED)
        ht_schema_fail_memory(s);
    else
        find(s, s->tree.root, add_resource(s, none, s->tree.root));
}

static uint32_t resource_of(const ht_schema *s, const ht_tree_value *v) {
    for (; v; v = v->parent) {
        const uint32_t at = ht_pair_map_find(&s->references.of_value, v->number, 0);
        if (at != HT_INTERN_FAILED) return at;
    }
    return 0;
}

/* ---- following ---- */

ht_place ht_references_enter(ht_schema *s, ht_place from, const ht_tree_value *schema) {
    ht_place to = {schema, from.scope};
    if (!s->references.is_dynamic) return to;
    const uint32_t at = resource_of(s, schema), begin = s->n_scratch;
    size_t n;
    ht_intern_at(&s->parsed.scopes, from.scope, &n);
    for (size_t i = 0; i < n; i++) {
        size_t same;
        const uint32_t one = ht_intern_at(&s->parsed.scopes, from.scope, &same)[i];
        if (one == at) {
            s->n_scratch = begin;
            return to;
        }
        ht_schema_push(s, one);
    }
    ht_schema_push(s, at);
    if (s->status) return to;
    to.scope = ht_intern_add(&s->parsed.scopes, s->scratch + begin, s->n_scratch - begin, NULL);
    s->n_scratch = begin;
    if (to.scope != HT_INTERN_FAILED) return to;
    ht_schema_fail_memory(s);
    return from;
}

/* Decodes the percent escapes in part of a fragment. */
static void decode(const char *text, size_t n, ht_text *out) {
    ht_text_clear(out);
    for (size_t i = 0; i < n; i++) {
        char c = text[i];
        if (c == '%' && n - i > 2 && ht_hex_digit(text[i + 1]) >= 0 && ht_hex_digit(text[i + 2]) >= 0) {
            c = (char)(ht_hex_digit(text[i + 1]) * 16 + ht_hex_digit(text[i + 2]));
            i += 2;
        }
        ht_text_append(out, &c, 1);
    }
}

/* Decodes the escapes of JSON pointers: ~1 is a slash, ~0 a tilde. */
static void decode_pointer(ht_text *t) {
    size_t n = 0;
    for (size_t i = 0; i < t->len; i++) {
        const bool is_escape = t->data[i] == '~' && i + 1 < t->len && (t->data[i + 1] == '0' || t->data[i + 1] == '1');
        t->data[n++] = is_escape ? (t->data[++i] == '1' ? '/' : '~') : t->data[i];
    }
    t->len = n;
}

static const ht_tree_value *child(ht_schema *s, const ht_tree_value *v, const ht_text *key) {
    if (v->kind == HT_SCAN_OBJECT) {
        const uint32_t name = string_of(s, key);
        return s->status ? NULL : ht_tree_member(&s->tree, v, name);
    }
    if (v->kind != HT_SCAN_ARRAY || !key->len || key->len > 9) return NULL;
    uint32_t index = 0;
    for (size_t i = 0; i < key->len; i++) {
        if (key->data[i] < '0' || key->data[i] > '9') return NULL;
        index = index * 10 + (uint32_t)(key->data[i] - '0');
    }
    const ht_tree_value *item = v->first;
    while (item && item->index != index) item = item->next;
    return item;
}

static const ht_tree_value *follow_pointer(ht_schema *s, const ht_tree_value *v, span pointer) {
    ht_text key = {0};
    for (size_t i = 0; i < pointer.n && v && !s->status;) {
        const size_t k = until(pointer.text + i + 1, pointer.n - i - 1, "/");
        decode(pointer.text + i + 1, k, &key);
        decode_pointer(&key);
        v = key.failed ? (ht_schema_fail_memory(s), NULL) : child(s, v, &key);
        i += 1 + k;
    }
    ht_text_discard(&key);
    return v;
}

/* The first resource of a scope that has the dynamic anchor, or is recursive. */
static const ht_tree_value *outermost(ht_schema *s, uint32_t scope, uint32_t name, const ht_tree_value *otherwise) {
    const ht_references *f = &s->references;
    size_t n;
    const uint32_t *resources = ht_intern_at(&s->parsed.scopes, scope, &n);
    for (size_t i = 0; i < n; i++) {
        if (name == HT_INTERN_FAILED) {
            if (f->resource[resources[i]].is_recursive) return f->resource[resources[i]].root;
            continue;
        }
        const uint32_t value = ht_pair_map_find(&f->dynamic_anchors, resources[i], name);
        if (value != HT_INTERN_FAILED) return s->tree.value[value];
    }
    return otherwise;
}

bool ht_references_resolve(ht_schema *s, ht_place from, const char *keyword, ht_reference_kind kind, ht_place *out) {
    const ht_references *f = &s->references;
    const ht_tree_value *reference = ht_schema_keyword(s, from.schema, keyword);
    if (!reference) return false;
    if (reference->kind != HT_SCAN_STRING)
        return ht_schema_fail_at(s, reference, HT_ERR_FORMAT, "a reference is a string"), false;
    const ht_tree_string text = s->tree.string[reference->string];
    const uri u = split(text);
    const uint32_t full = resolved(s, f->resource[resource_of(s, reference)].uri, &u);
    if (s->status) return false;
    const uint32_t at = ht_pair_map_find(&f->by_uri, full, 0);
    if (at == HT_INTERN_FAILED)
        return ht_schema_fail_at(s, reference, HT_ERR_UNSUPPORTED,
                                 "`%.200s` is not within this schema, and others are not fetched", text.text),
               false;
    const ht_tree_value *target = f->resource[at].root;
    if (kind == HT_REFERENCE_RECURSIVE && f->resource[at].is_recursive)
        target = outermost(s, from.scope, HT_INTERN_FAILED, target);
    if (u.fragment.n && u.fragment.text[0] == '/')
        target = follow_pointer(s, target, u.fragment);
    else if (u.fragment.n) {
        ht_text name = {0};
        decode(u.fragment.text, u.fragment.n, &name);
        const uint32_t string = string_of(s, &name);
        ht_text_discard(&name);
        if (s->status) return false;
        const uint32_t value = ht_pair_map_find(&f->anchors, at, string);
        target = value == HT_INTERN_FAILED ? NULL : s->tree.value[value];
        if (target && kind == HT_REFERENCE_DYNAMIC &&
            ht_pair_map_find(&f->dynamic_anchors, at, string) != HT_INTERN_FAILED)
            target = outermost(s, from.scope, string, target);
    }
    if (!target)
        return ht_schema_fail_at(s, reference, HT_ERR_FORMAT, "`%.200s` names nothing in this schema", text.text),
               false;
    *out = ht_references_enter(s, (ht_place){target, from.scope}, target);
    return !s->status;
}
