/* Nodes: interned formulas of leaves, simplified when they are made; and sets of keys. */
#include "base/error.h"
#include "base/grow.h"
#include "grammar/schema.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NODES_MOST 4000000u

/* ---- failures and memory ---- */

ht_node ht_schema_fail_memory(ht_schema *s) {
    if (!s->status) s->status = ht_fail_memory(s->err, s->arena.bytes, "a JSON Schema");
    return HT_NODE_NOTHING;
}

ht_node ht_schema_fail_limit(ht_schema *s, const char *what) {
    if (!s->status) s->status = ht_fail(s->err, HT_ERR_LIMIT, "the JSON Schema is too complex: %s", what);
    return HT_NODE_NOTHING;
}

ht_node ht_schema_fail_at(ht_schema *s, const ht_tree_value *where, ht_status status, const char *fmt, ...) {
    if (s->status) return HT_NODE_NOTHING;
    char message[600];
    va_list args;
    va_start(args, fmt);
    vsnprintf(message, sizeof message, fmt, args);
    va_end(args);
    ht_text pointer = {0};
    ht_tree_pointer(&s->tree, where, &pointer);
    s->status = pointer.failed ? ht_fail_memory(s->err, pointer.len, "a message")
                               : ht_fail(s->err, status, "JSON Schema, %s: %s", pointer.data, message);
    ht_text_discard(&pointer);
    return HT_NODE_NOTHING;
}

bool ht_schema_failed(ht_schema *s) {
    if (!s->status) s->status = ht_rules_status(s->rules, s->err);
    return s->status != HT_OK;
}

bool ht_schema_is_live(ht_schema *s, ht_re r) {
    if (!ht_re_liveness_is_known(s->re, r)) ht_regexes_refine(s->re);
    return ht_re_is_live(s->re, r);
}

bool ht_schema_reserve(ht_schema *s, void *array, size_t *capacity, size_t need, size_t size) {
    if (need <= INT32_MAX && ht_grow(array, capacity, need, size)) return true;
    ht_schema_fail_memory(s);
    return false;
}

void ht_schema_push(ht_schema *s, uint32_t word) {
    if (!ht_schema_reserve(s, &s->scratch, &s->scratch_capacity, (size_t)s->n_scratch + 1, sizeof *s->scratch)) return;
    s->scratch[s->n_scratch++] = word;
}

void ht_schema_push_all(ht_schema *s, const uint32_t *words, uint32_t n) {
    for (uint32_t i = 0; i < n; i++) ht_schema_push(s, words[i]);
}

void *ht_schema_take(ht_schema *s, size_t n, size_t size) {
    void *taken = ht_arena_take(&s->arena, n, size);
    if (!taken) ht_schema_fail_memory(s);
    return taken;
}

void ht_schema_note(ht_schema *s, ht_pair_map *map, uint32_t a, uint32_t b, uint32_t value) {
    if (!ht_pair_map_add(map, a, b, value)) ht_schema_fail_memory(s);
}

/* ---- construction ---- */

ht_node ht_node_of(ht_schema *s, const uint32_t *words, size_t n) {
    if (s->status) return HT_NODE_NOTHING;
    if (s->nodes.n >= NODES_MOST) return ht_schema_fail_limit(s, "it describes more than 4000000 sets of values");
    const uint32_t node = ht_intern_add(&s->nodes, words, n, NULL);
    return node == HT_INTERN_FAILED ? ht_schema_fail_memory(s) : node;
}

void ht_node_read(const ht_schema *s, ht_node leaf, uint32_t words[HT_LEAF_WORDS]) {
    size_t n;
    const uint32_t *all = ht_node_words(s, leaf, &n);
    memcpy(words, all, (n < HT_LEAF_WORDS ? n : HT_LEAF_WORDS) * sizeof *words);
}

/* Replaces operands of the same kind by theirs, and all leaves of types by one. */
static void flatten(ht_schema *s, ht_node_kind kind, size_t begin) {
    const bool is_and = kind == HT_NODE_AND;
    uint32_t types = is_and ? HT_TYPE_ALL : 0;
    for (size_t i = begin; i < s->n_scratch && !s->status;) {
        size_t n, same;
        const ht_node of = s->scratch[i];
        const uint32_t *words = ht_node_words(s, of, &n);
        const ht_node_kind k = (ht_node_kind)words[0];
        if (k != kind && k != HT_NODE_TYPES) {
            i++;
            continue;
        }
        s->scratch[i] = s->scratch[--s->n_scratch];
        if (k == HT_NODE_TYPES)
            types = is_and ? types & words[1] : types | words[1];
        else
            for (size_t m = 1; m < n; m++) ht_schema_push(s, ht_node_words(s, of, &same)[m]);
    }
    ht_schema_push(s, ht_node_types(s, types));
}

/* Drops neutral operands; true when one operand decides the result. */
static bool simplify(ht_schema *s, ht_node_kind kind, uint32_t begin) {
    const ht_node decides = kind == HT_NODE_AND ? HT_NODE_NOTHING : HT_NODE_ANYTHING;
    uint32_t *nodes = s->scratch + begin;
    size_t n = ht_sort_words(nodes, s->n_scratch - begin), kept = 0;
    for (size_t i = 0; i < n; i++) {
        if (nodes[i] == decides) return true;
        if (nodes[i] > HT_NODE_ANYTHING) nodes[kept++] = nodes[i];
    }
    s->n_scratch = begin + (uint32_t)kept;
    for (size_t i = 0; i < kept; i++) {
        const uint32_t *words = ht_node_words(s, nodes[i], &n);
        if (words[0] == HT_NODE_NOT && ht_sorted_has(nodes, kept, words[1])) return true;
    }
    return false;
}

ht_node ht_node_join_scratch(ht_schema *s, ht_node_kind kind, size_t begin) {
    const bool is_and = kind == HT_NODE_AND;
    ht_node result = is_and ? HT_NODE_NOTHING : HT_NODE_ANYTHING;
    if (!s->status) flatten(s, kind, begin);
    if (!s->status && !simplify(s, kind, (uint32_t)begin)) {
        const size_t n = s->n_scratch - begin;
        if (n == 0)
            result = is_and ? HT_NODE_ANYTHING : HT_NODE_NOTHING;
        else if (n == 1)
            result = s->scratch[begin];
        else {
            ht_schema_push(s, 0);
            if (!s->status) {
                memmove(s->scratch + begin + 1, s->scratch + begin, n * sizeof *s->scratch);
                s->scratch[begin] = (uint32_t)kind;
                result = ht_node_of(s, s->scratch + begin, n + 1);
            }
        }
    }
    s->n_scratch = (uint32_t)begin;
    return s->status ? HT_NODE_NOTHING : result;
}

static ht_node join(ht_schema *s, ht_node_kind kind, ht_node a, ht_node b) {
    const size_t begin = s->n_scratch;
    ht_schema_push(s, a);
    ht_schema_push(s, b);
    return ht_node_join_scratch(s, kind, begin);
}

ht_node ht_node_and(ht_schema *s, ht_node a, ht_node b) {
    return a == b || b == HT_NODE_ANYTHING ? a : a == HT_NODE_ANYTHING ? b : join(s, HT_NODE_AND, a, b);
}
ht_node ht_node_or(ht_schema *s, ht_node a, ht_node b) {
    return a == b || b == HT_NODE_NOTHING ? a : a == HT_NODE_NOTHING ? b : join(s, HT_NODE_OR, a, b);
}

ht_node ht_node_not(ht_schema *s, ht_node a) {
    size_t n;
    const uint32_t *words = ht_node_words(s, a, &n);
    if (a <= HT_NODE_ANYTHING) return a == HT_NODE_NOTHING ? HT_NODE_ANYTHING : HT_NODE_NOTHING;
    if (words[0] == HT_NODE_NOT) return words[1];
    if (words[0] == HT_NODE_TYPES) return ht_node_types(s, HT_TYPE_ALL & ~words[1]);
    return ht_node_of(s, (uint32_t[]){HT_NODE_NOT, a}, 2);
}

/* ---- leaves ---- */

ht_node ht_node_types(ht_schema *s, uint32_t types) {
    if (types == HT_TYPE_ALL || !types) return types ? HT_NODE_ANYTHING : HT_NODE_NOTHING;
    return ht_node_of(s, (uint32_t[]){HT_NODE_TYPES, types}, 2);
}

ht_node ht_node_strings(ht_schema *s, ht_string_set set) {
    if (!set.is_listed && set.re == HT_RE_ALL) return HT_NODE_ANYTHING;
    if (set.is_listed ? !set.n : set.re == HT_RE_NONE) return ht_node_types(s, HT_TYPE_ALL & ~HT_TYPE_STRING);
    return ht_node_of(s, (uint32_t[]){HT_NODE_STRINGS, ht_strings_add(s, set)}, 2);
}

ht_node ht_node_numbers(ht_schema *s, ht_number_set set) {
    if (set.all == HT_RE_ALL && set.written == HT_RE_ALL) return HT_NODE_ANYTHING;
    if (set.all == HT_RE_NONE) return ht_node_types(s, HT_TYPE_ALL & ~HT_TYPE_NUMBER);
    return ht_node_of(s, (uint32_t[]){HT_NODE_NUMBERS, set.all, set.written}, 3);
}

static ht_node items(ht_schema *s, ht_node_kind kind, uint32_t index, ht_node node) {
    if (node == HT_NODE_ANYTHING) return node;
    if (node == HT_NODE_NOTHING) return ht_node_counted(s, HT_NODE_LENGTH, 0, index);
    return ht_node_of(s, (uint32_t[]){(uint32_t)kind, index, node}, 3);
}

ht_node ht_node_item(ht_schema *s, uint32_t index, ht_node node) { return items(s, HT_NODE_ITEM, index, node); }
ht_node ht_node_items(ht_schema *s, uint32_t from, ht_node node) { return items(s, HT_NODE_ITEMS, from, node); }

ht_node ht_node_counted(ht_schema *s, ht_node_kind kind, uint32_t least, uint32_t most) {
    const uint32_t type = kind == HT_NODE_SIZE ? HT_TYPE_OBJECT : HT_TYPE_ARRAY;
    if (least == 0 && most == HT_UNBOUNDED) return HT_NODE_ANYTHING;
    if (least > most) return ht_node_types(s, HT_TYPE_ALL & ~type);
    return ht_node_of(s, (uint32_t[]){(uint32_t)kind, least, most}, 3);
}

ht_node ht_node_count(ht_schema *s, uint32_t from, ht_node node, uint32_t least, uint32_t most) {
    if (least == 0 && most == HT_UNBOUNDED) return HT_NODE_ANYTHING;
    if (least > most || (node == HT_NODE_NOTHING && least)) return ht_node_types(s, HT_TYPE_ALL & ~HT_TYPE_ARRAY);
    if (node == HT_NODE_NOTHING) return HT_NODE_ANYTHING;
    if (node == HT_NODE_ANYTHING && most <= HT_UNBOUNDED - 1 - from && least <= HT_UNBOUNDED - 1 - from)
        return ht_node_counted(s, HT_NODE_LENGTH, least ? from + least : 0, from + most);
    if (node == HT_NODE_ANYTHING && most == HT_UNBOUNDED && least < HT_UNBOUNDED - from)
        return ht_node_counted(s, HT_NODE_LENGTH, from + least, most);
    if (most == 0) return ht_node_items(s, from, ht_node_not(s, node));
    return ht_node_of(s, (uint32_t[]){HT_NODE_COUNT, from, node, least, most}, 5);
}

ht_node ht_node_members(ht_schema *s, uint32_t keys, ht_node node) {
    if (node == HT_NODE_ANYTHING) return node;
    return ht_node_of(s, (uint32_t[]){HT_NODE_MEMBERS, keys, node}, 3);
}

ht_node ht_node_member(ht_schema *s, uint32_t keys, ht_node node) {
    if (node == HT_NODE_NOTHING) return ht_node_types(s, HT_TYPE_ALL & ~HT_TYPE_OBJECT);
    return ht_node_of(s, (uint32_t[]){HT_NODE_MEMBER, keys, node}, 3);
}

/* ---- single values ---- */

static ht_node array_value(ht_schema *s, const ht_tree_value *v) {
    const size_t begin = s->n_scratch;
    ht_schema_push(s, ht_node_types(s, HT_TYPE_ARRAY));
    ht_schema_push(s, ht_node_counted(s, HT_NODE_LENGTH, v->n, v->n));
    for (const ht_tree_value *item = v->first; item && !s->status; item = item->next)
        ht_schema_push(s, ht_node_item(s, item->index, ht_node_value(s, item)));
    return ht_node_join_scratch(s, HT_NODE_AND, begin);
}

static ht_node object_value(ht_schema *s, const ht_tree_value *v) {
    const size_t begin = s->n_scratch;
    uint32_t *names = ht_schema_take(s, v->n, sizeof *names);
    if (!names) return HT_NODE_NOTHING;
    ht_schema_push(s, ht_node_types(s, HT_TYPE_OBJECT));
    for (const ht_tree_value *m = v->first; m && !s->status; m = m->next) {
        const uint32_t keys = ht_keys_name(s, names[m->index] = m->key);
        ht_schema_push(s, ht_node_members(s, keys, ht_node_value(s, m)));
        ht_schema_push(s, ht_node_member(s, keys, HT_NODE_ANYTHING));
    }
    ht_schema_push(s, ht_node_members(s, ht_keys_of(s, true, names, v->n, NULL, 0), HT_NODE_NOTHING));
    return ht_node_join_scratch(s, HT_NODE_AND, begin);
}

ht_node ht_node_value(ht_schema *s, const ht_tree_value *v) {
    ht_decimal d;
    switch (v->kind) {
    case HT_SCAN_NULL: return ht_node_types(s, HT_TYPE_NULL);
    case HT_SCAN_FALSE: return ht_node_types(s, HT_TYPE_FALSE);
    case HT_SCAN_TRUE: return ht_node_types(s, HT_TYPE_TRUE);
    case HT_SCAN_NUMBER:
        if (!ht_decimal_read(s, v, &d)) return HT_NODE_NOTHING;
        return ht_node_and(s, ht_node_types(s, HT_TYPE_NUMBER), ht_node_numbers(s, ht_numbers_one(s, &d)));
    case HT_SCAN_STRING:
        return ht_node_and(s, ht_node_types(s, HT_TYPE_STRING), ht_node_strings(s, ht_strings_one(s, v->string)));
    case HT_SCAN_ARRAY: return array_value(s, v);
    default: return object_value(s, v);
    }
}

/* ---- key sets: names and patterns, or all keys but these ---- */

/* Words of a set: whether it is a complement, number of names, names, patterns. */
uint32_t ht_keys_of(ht_schema *s, bool is_complement, const uint32_t *names, size_t n, const uint32_t *patterns,
                    size_t n_patterns) {
    uint32_t few[32], *words = n + n_patterns <= 30 ? few : malloc((n + n_patterns + 2) * sizeof *words);
    if (!words) return ht_schema_fail_memory(s), 0;
    words[0] = is_complement;
    if (n) memcpy(words + 2, names, n * sizeof *words);
    words[1] = (uint32_t)ht_sort_words(words + 2, n);
    if (n_patterns) memcpy(words + 2 + words[1], patterns, n_patterns * sizeof *words);
    const size_t kept = ht_sort_words(words + 2 + words[1], n_patterns);
    const uint32_t keys = ht_intern_add(&s->key_sets, words, 2 + words[1] + kept, NULL);
    if (words != few) free(words);
    return keys == HT_INTERN_FAILED ? ht_schema_fail_memory(s) : keys;
}

uint32_t ht_keys_name(ht_schema *s, uint32_t name) { return ht_keys_of(s, false, &name, 1, NULL, 0); }

ht_keys ht_keys_at(const ht_schema *s, uint32_t keys) {
    size_t n;
    const uint32_t *words = ht_intern_at(&s->key_sets, keys, &n);
    const uint32_t n_names = words[1];
    return (ht_keys){words[0] != 0, n_names, (uint32_t)n - 2 - n_names, words + 2, words + 2 + n_names};
}

uint32_t ht_keys_others(ht_schema *s, uint32_t a) {
    const ht_keys k = ht_keys_at(s, a);
    return ht_keys_of(s, !k.is_complement, k.names, k.n_names, k.patterns, k.n_patterns);
}

static ht_string_set strings_of(ht_schema *s, uint32_t keys) {
    ht_string_set all = {.re = HT_RE_NONE, .is_closed = true};
    const ht_keys k = ht_keys_at(s, keys);
    for (uint32_t i = 0; i < k.n_names; i++) all = ht_strings_either(s, all, ht_strings_one(s, k.names[i]));
    for (uint32_t i = 0; i < k.n_patterns; i++) all = ht_strings_either(s, all, s->strings[k.patterns[i]]);
    return k.is_complement ? ht_strings_not(s, all) : all;
}

/* a + b, a + ~b = ~(b - a), ~a + ~b = ~(a & b): of patterns no difference or intersection is formed, as none is needed where
 * sets that are complements have the same patterns; else the other one is joined as a pattern. */
uint32_t ht_keys_either(ht_schema *s, uint32_t a, uint32_t b) {
    ht_keys x = ht_keys_at(s, a), y = ht_keys_at(s, b);
    if (a == b) return a;
    if (x.is_complement) {
        const ht_keys swap = x;
        x = y;
        y = swap;
    }
    const uint32_t begin = s->n_scratch;
    uint32_t keys;
    if (!x.is_complement && !y.is_complement) {
        ht_schema_push_all(s, x.names, x.n_names);
        ht_schema_push_all(s, y.names, y.n_names);
        const uint32_t n = s->n_scratch - begin;
        ht_schema_push_all(s, x.patterns, x.n_patterns);
        ht_schema_push_all(s, y.patterns, y.n_patterns);
        if (s->status) return 0;
        keys = ht_keys_of(s, false, s->scratch + begin, n, s->scratch + begin + n, s->n_scratch - begin - n);
    } else if (!x.n_patterns && !y.n_patterns) {
        for (uint32_t i = 0; i < y.n_names; i++)
            if (ht_sorted_has(x.names, x.n_names, y.names[i]) == x.is_complement) ht_schema_push(s, y.names[i]);
        if (s->status) return 0;
        keys = ht_keys_of(s, true, s->scratch + begin, s->n_scratch - begin, NULL, 0);
    } else {
        /* All but the texts of neither: as one pattern. */
        const ht_string_set first = strings_of(s, a);
        const uint32_t pattern = ht_strings_add(s, ht_strings_either(s, first, strings_of(s, b)));
        keys = ht_keys_of(s, false, NULL, 0, &pattern, 1);
    }
    s->n_scratch = begin;
    return keys;
}

bool ht_keys_has_name(ht_schema *s, const ht_keys *keys, uint32_t name) {
    bool has = ht_sorted_has(keys->names, keys->n_names, name);
    if (!has && keys->n_patterns) {
        const ht_string_set text = ht_strings_of_re(ht_strings_text(s, name));
        for (uint32_t i = 0; i < keys->n_patterns && !has; i++)
            has = ht_strings_is_live(s, ht_strings_both(s, text, s->strings[keys->patterns[i]]));
    }
    return has != keys->is_complement;
}
