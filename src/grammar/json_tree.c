/* JSON documents as trees. */
#include "grammar/json_tree.h"

#include "base/error.h"
#include "base/grow.h"

#include <stdlib.h>

typedef struct parser {
    ht_json_tree *t;
    ht_json_scanner scan;
    ht_tree_value *open[HT_JSON_DEPTH_MAX];
    uint32_t key; /* of the field whose value follows */
} parser;

uint32_t ht_json_tree_string(ht_json_tree *t, const char *text, size_t n) {
    bool is_new;
    const uint32_t number = ht_intern_text(&t->packed, text, n, &is_new);
    if (number == HT_INTERN_FAILED || !is_new) return number;
    char *copy = ht_arena_copy(&t->arena, text, n);
    if (!copy || !HT_GROW_ONE(t->string, number)) {
        ht_intern_truncate(&t->packed, number);
        return HT_INTERN_FAILED;
    }
    t->string[number] = (ht_tree_string){copy, n};
    return number;
}

static ht_tree_value *new_value(ht_json_tree *t, ht_json_event kind, ht_tree_value *parent) {
    ht_tree_value *v = ht_arena_take(&t->arena, 1, sizeof *v);
    if (!v || !HT_GROW_ONE(t->value, t->n_values)) return NULL;
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
    if (object->kind != HT_SCAN_OBJECT) return NULL;
    const uint32_t number = ht_pair_map_find(&t->members, object->number, name);
    return number == HT_INTERN_FAILED ? NULL : t->value[number];
}

void ht_tree_pointer(const ht_json_tree *t, const ht_tree_value *v, ht_text *out) {
    const ht_tree_value *path[HT_JSON_DEPTH_MAX + 2];
    size_t n = 0;
    for (; v->parent && n < HT_JSON_DEPTH_MAX + 1; v = v->parent) path[n++] = v;
    ht_text_append_str(out, "#");
    while (n--) {
        ht_text_append_str(out, "/");
        if (path[n]->key == HT_INTERN_FAILED) {
            ht_text_printf(out, "%u", path[n]->index);
            continue;
        }
        const ht_tree_string key = t->string[path[n]->key];
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

/* Reads the name of a field, which must be unique in its object. */
static void read_key(parser *p) {
    ht_json_scanner *s = &p->scan;
    const ht_tree_value *object = p->open[s->depth - 1];
    p->key = ht_json_tree_string(p->t, s->bytes, s->n_bytes);
    if (p->key == HT_INTERN_FAILED)
        ht_json_scan_fail_memory(s);
    else if (ht_pair_map_find(&p->t->members, object->number, p->key) != HT_INTERN_FAILED)
        ht_json_scan_fail_repeated(s);
}

static bool read_value(parser *p, ht_json_event event) {
    const ht_json_scanner *s = &p->scan;
    const int depth = s->depth - (event == HT_SCAN_OBJECT || event == HT_SCAN_ARRAY);
    ht_tree_value *parent = depth ? p->open[depth - 1] : NULL, *v = new_value(p->t, event, parent);
    if (!v) return false;
    if (depth < s->depth) p->open[depth] = v;
    if (!parent) p->t->root = v;
    if (event == HT_SCAN_NUMBER) {
        v->text = s->bytes;
        v->n_text = s->n_bytes;
    }
    if (event == HT_SCAN_STRING) {
        v->string = ht_json_tree_string(p->t, s->bytes, s->n_bytes);
        if (v->string == HT_INTERN_FAILED) return false;
    }
    if (!parent || parent->kind == HT_SCAN_ARRAY) return true;
    v->key = p->key;
    return ht_pair_map_add(&p->t->members, parent->number, v->key, v->number);
}

ht_status ht_json_tree_parse(ht_json_tree *t, const char *json, size_t n, const char *name, ht_error *err) {
    const ht_json_options options = {
        .name = name, .depth_max = HT_JSON_DEPTH_MAX, .keeps_nul = true, .any_value = true};
    *t = (ht_json_tree){0};
    parser p = {.t = t};
    ht_json_event event;
    /* The tree refers to the spellings of numbers, so it keeps a copy of the text. */
    json = ht_arena_copy(&t->arena, json, n);
    if (!json) return ht_fail_memory(err, n, name);
    ht_json_scan_begin(&p.scan, json, n, &options, err);
    while ((event = ht_json_scan_next(&p.scan)) > HT_SCAN_END) {
        if (event == HT_SCAN_KEY)
            read_key(&p);
        else if (event != HT_SCAN_CLOSE && !read_value(&p, event))
            ht_json_scan_fail_memory(&p.scan);
    }
    return ht_json_scan_end(&p.scan);
}

void ht_json_tree_free(ht_json_tree *t) {
    ht_arena_free(&t->arena);
    ht_intern_free(&t->packed);
    ht_pair_map_free(&t->members);
    free(t->value);
    free(t->string);
    *t = (ht_json_tree){0};
}
