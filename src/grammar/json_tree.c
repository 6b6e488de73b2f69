/* Parser of JSON documents to trees. */
#include "grammar/json_tree.h"

#include "base/error.h"

#include <stdlib.h>

enum { DEPTH_MOST = 200, VALUES_MOST = 1 << 22 };

typedef struct parser {
    ht_json_tree *t;
    const char *json, *name;
    size_t n, at;
    int depth;
    ht_text text; /* of the string that is read */
    ht_status status;
    ht_error *err;
} parser;

static bool fail(parser *p, ht_status status, const char *what) {
    size_t line = 1, begin = 0;
    if (p->status) return false;
    for (size_t i = 0; i < p->at; i++)
        if (p->json[i] == '\n') {
            line++;
            begin = i + 1;
        }
    p->status = ht_fail(p->err, status, "%s, line %zu, column %zu: %s", p->name, line, p->at - begin + 1, what);
    return false;
}

static bool fail_memory(parser *p) {
    if (!p->status) p->status = ht_fail_memory(p->err, p->n, p->name);
    return false;
}

/* ---- strings and values of a tree ---- */

static bool grow(void *array, uint32_t *capacity, uint32_t need, size_t size) {
    void **of = array;
    if (need <= *capacity) return true;
    uint32_t larger = *capacity ? *capacity : 64;
    while (larger < need) larger *= 2;
    void *moved = realloc(*of, larger * size);
    if (!moved) return false;
    *of = moved;
    *capacity = larger;
    return true;
}

uint32_t ht_json_tree_string(ht_json_tree *t, const char *text, size_t n) {
    uint32_t few[64] = {0}, *words = few;
    const size_t n_words = 1 + (n + 3) / 4;
    bool is_new;
    if (n > INT32_MAX) return HT_INTERN_FAILED;
    if (n_words > 64 && !(words = calloc(n_words, sizeof *words))) return HT_INTERN_FAILED;
    words[0] = (uint32_t)n;
    if (n) memcpy(words + 1, text, n);
    uint32_t number = ht_intern_add(&t->packed, words, n_words, &is_new);
    if (words != few) free(words);
    if (number == HT_INTERN_FAILED || !is_new) return number;
    char *copy = ht_arena_copy(&t->arena, text, n);
    if (!copy || !grow(&t->string, &t->strings_capacity, number + 1, sizeof *t->string)) {
        ht_intern_truncate(&t->packed, number);
        return HT_INTERN_FAILED;
    }
    t->string[number] = (ht_json_string){copy, n};
    t->n_strings = number + 1;
    return number;
}

static ht_tree_value *new_value(parser *p, ht_tree_kind kind, ht_tree_value *parent) {
    ht_json_tree *t = p->t;
    if (t->n_values >= VALUES_MOST) return fail(p, HT_ERR_LIMIT, "more than 4194304 values"), NULL;
    ht_tree_value *v = ht_arena_take(&t->arena, 1, sizeof *v);
    if (!v || !grow(&t->value, &t->values_capacity, t->n_values + 1, sizeof(ht_tree_value *)))
        return fail_memory(p), NULL;
    *v = (ht_tree_value){.kind = kind, .number = t->n_values, .key = HT_INTERN_FAILED, .parent = parent};
    t->value[t->n_values++] = v;
    if (!parent) return v;
    v->index = parent->n++;
    if (parent->last)
        parent->last->next = v;
    else
        parent->first = v;
    parent->last = v;
    return v;
}

const ht_tree_value *ht_tree_member(const ht_json_tree *t, const ht_tree_value *object, uint32_t name) {
    if (object->kind != HT_TREE_OBJECT) return NULL;
    const uint32_t number = ht_pair_map_find(&t->members, object->number, name);
    return number == HT_INTERN_FAILED ? NULL : t->value[number];
}

void ht_tree_pointer(const ht_json_tree *t, const ht_tree_value *v, ht_text *out) {
    const ht_tree_value *path[DEPTH_MOST + 2];
    size_t n = 0;
    for (; v->parent && n < DEPTH_MOST + 1; v = v->parent) path[n++] = v;
    ht_text_append_str(out, "#");
    while (n--) {
        ht_text_append_str(out, "/");
        if (path[n]->key == HT_INTERN_FAILED) {
            ht_text_printf(out, "%u", path[n]->index);
            continue;
        }
        const ht_json_string key = t->string[path[n]->key];
        for (size_t i = 0; i < key.n; i++) {
            const char c = key.text[i];
            if (c == '~' || c == '/')
                ht_text_append_str(out, c == '~' ? "~0" : "~1");
            else if ((unsigned char)c < 0x20 || c == 0x7F)
                ht_text_append_str(out, " ");
            else
                ht_text_append(out, &c, 1);
        }
    }
}

/* ---- the parser ---- */

static void skip(parser *p) {
    while (p->at < p->n &&
           (p->json[p->at] == ' ' || p->json[p->at] == '\t' || p->json[p->at] == '\n' || p->json[p->at] == '\r'))
        p->at++;
}

static bool take(parser *p, char c) {
    if (p->at >= p->n || p->json[p->at] != c) return false;
    p->at++;
    return true;
}

static bool hex(parser *p, uint32_t *out) {
    *out = 0;
    for (int i = 0; i < 4; i++, p->at++) {
        const char c = p->at < p->n ? p->json[p->at] : '\0';
        const int digit = c >= '0' && c <= '9'   ? c - '0'
                          : c >= 'a' && c <= 'f' ? c - 'a' + 10
                          : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                                 : -1;
        if (digit < 0) return fail(p, HT_ERR_FORMAT, "`\\u` needs four hexadecimal digits");
        *out = *out * 16 + (uint32_t)digit;
    }
    return true;
}

static bool escape(parser *p) {
    static const char letters[] = "\"\\/bfnrt", bytes[] = "\"\\/\b\f\n\r\t";
    const char c = p->at < p->n ? p->json[p->at++] : '\0';
    uint32_t code, low = 0;
    if (c != 'u') {
        const char *at = c ? strchr(letters, c) : NULL;
        if (!at) return fail(p, HT_ERR_FORMAT, "there is no such escape in JSON");
        ht_text_append(&p->text, bytes + (at - letters), 1);
        return true;
    }
    if (!hex(p, &code)) return false;
    if (code >= 0xD800 && code < 0xE000) {
        if (code >= 0xDC00 || !take(p, '\\') || !take(p, 'u') || !hex(p, &low) || low < 0xDC00 || low >= 0xE000)
            return fail(p, HT_ERR_FORMAT, "half a surrogate pair");
        code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
    }
    ht_text_append_utf8(&p->text, code);
    return true;
}

/* A string behind its first quote, as a number. */
static bool parse_string(parser *p, uint32_t *out) {
    ht_text_clear(&p->text);
    while (!take(p, '"')) {
        const size_t begin = p->at;
        while (p->at < p->n && p->json[p->at] != '"' && p->json[p->at] != '\\' && (unsigned char)p->json[p->at] >= 0x20)
            p->at++;
        ht_text_append(&p->text, p->json + begin, p->at - begin);
        if (p->at >= p->n) return fail(p, HT_ERR_FORMAT, "the text ends within a string");
        if (p->json[p->at] == '"') continue;
        if (!take(p, '\\')) return fail(p, HT_ERR_FORMAT, "a control character within a string");
        if (!escape(p)) return false;
    }
    *out = p->text.failed ? HT_INTERN_FAILED : ht_json_tree_string(p->t, p->text.data ? p->text.data : "", p->text.len);
    return *out != HT_INTERN_FAILED || fail_memory(p);
}

static size_t digits(parser *p) {
    const size_t begin = p->at;
    while (p->at < p->n && p->json[p->at] >= '0' && p->json[p->at] <= '9') p->at++;
    return p->at - begin;
}

static bool parse_number(parser *p, ht_tree_value *v) {
    const size_t begin = p->at;
    bool good = true;
    take(p, '-');
    if (!take(p, '0')) good = digits(p) > 0;
    if (good && take(p, '.')) good = digits(p) > 0;
    if (good && (take(p, 'e') || take(p, 'E'))) {
        if (!take(p, '+')) take(p, '-');
        good = digits(p) > 0;
    }
    if (!good) return fail(p, HT_ERR_FORMAT, "this is no JSON value");
    v->text = p->json + begin;
    v->n_text = p->at - begin;
    return true;
}

static ht_tree_value *parse_value(parser *p, ht_tree_value *parent);

static bool parse_member(parser *p, ht_tree_value *object) {
    uint32_t key;
    skip(p);
    const size_t at = p->at;
    if (!take(p, '"')) return fail(p, HT_ERR_FORMAT, "the name of a member is expected");
    if (!parse_string(p, &key)) return false;
    if (ht_pair_map_find(&p->t->members, object->number, key) != HT_INTERN_FAILED) {
        p->at = at;
        return fail(p, HT_ERR_FORMAT, "there is a member with this name already");
    }
    skip(p);
    if (!take(p, ':')) return fail(p, HT_ERR_FORMAT, "`:` is expected behind the name of a member");
    ht_tree_value *v = parse_value(p, object);
    if (!v) return false;
    v->key = key;
    return ht_pair_map_add(&p->t->members, object->number, key, v->number) || fail_memory(p);
}

static bool parse_children(parser *p, ht_tree_value *v) {
    const bool is_array = v->kind == HT_TREE_ARRAY;
    const char end = is_array ? ']' : '}';
    if (++p->depth > DEPTH_MOST) return fail(p, HT_ERR_LIMIT, "nested deeper than 200 levels");
    skip(p);
    if (!take(p, end)) {
        do {
            if (is_array ? !parse_value(p, v) : !parse_member(p, v)) return false;
            skip(p);
        } while (take(p, ','));
        if (!take(p, end))
            return fail(p, HT_ERR_FORMAT, is_array ? "`,` or `]` is expected" : "`,` or `}` is expected");
    }
    p->depth--;
    return true;
}

static ht_tree_value *parse_value(parser *p, ht_tree_value *parent) {
    static const struct {
        const char *word;
        ht_tree_kind kind;
    } words[] = {{"null", HT_TREE_NULL}, {"false", HT_TREE_FALSE}, {"true", HT_TREE_TRUE}};
    skip(p);
    const char c = p->at < p->n ? p->json[p->at] : '\0';
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        const size_t n = strlen(words[i].word);
        if (p->n - p->at < n || memcmp(p->json + p->at, words[i].word, n) != 0) continue;
        p->at += n;
        return new_value(p, words[i].kind, parent);
    }
    const bool is_number = c == '-' || (c >= '0' && c <= '9');
    if (c != '"' && c != '{' && c != '[' && !is_number) return fail(p, HT_ERR_FORMAT, "a JSON value is expected"), NULL;
    ht_tree_value *v = new_value(p,
                                 is_number  ? HT_TREE_NUMBER
                                 : c == '"' ? HT_TREE_STRING
                                 : c == '[' ? HT_TREE_ARRAY
                                            : HT_TREE_OBJECT,
                                 parent);
    if (!v) return NULL;
    if (!is_number) p->at++;
    const bool good = is_number ? parse_number(p, v) : c == '"' ? parse_string(p, &v->string) : parse_children(p, v);
    return good ? v : NULL;
}

ht_status ht_json_tree_parse(ht_json_tree *t, const char *json, size_t n, const char *name, ht_error *err) {
    *t = (ht_json_tree){0};
    parser p = {.t = t, .name = name, .n = n, .err = err};
    if (!ht_utf8_valid(json, n)) return ht_fail(err, HT_ERR_FORMAT, "%s: is not UTF-8", name);
    /* The tree keeps spellings of numbers: the text has to stay. */
    p.json = ht_arena_copy(&t->arena, json, n);
    if (!p.json) return ht_fail_memory(err, n, name);
    t->root = parse_value(&p, NULL);
    skip(&p);
    if (!p.status && p.at < n) fail(&p, HT_ERR_FORMAT, "nothing is expected behind the value");
    ht_text_discard(&p.text);
    return p.status;
}

void ht_json_tree_free(ht_json_tree *t) {
    ht_arena_free(&t->arena);
    ht_intern_free(&t->packed);
    ht_pair_map_free(&t->members);
    free(t->value);
    free(t->string);
    *t = (ht_json_tree){0};
}
