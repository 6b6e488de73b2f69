/* The values of sets that have few of them. */
#include "grammar/schema.h"

/* Bytes of a text. */
enum { TEXT_MOST = 300 };

typedef struct lister {
    ht_schema *s;
    ht_node *values;
    uint32_t n, most;
    bool is_number;
    char text[TEXT_MOST];
} lister;

static bool add(lister *l, ht_node value) {
    for (uint32_t i = 0; i < l->n; i++)
        if (l->values[i] == value) return true;
    if (l->n == l->most) return false;
    l->values[l->n++] = value;
    return true;
}

static ht_node of_text(lister *l, size_t n) {
    ht_schema *s = l->s;
    if (!l->is_number) {
        const ht_string_set set = ht_strings_of_re(ht_re_text(s->re, l->text, n));
        return ht_node_and(s, ht_node_types(s, HT_TYPE_STRING), ht_node_strings(s, set));
    }
    const ht_tree_value v = {.kind = HT_TREE_NUMBER, .text = l->text, .n_text = n};
    return ht_node_value(s, &v);
}

/* Adds the texts of an expression behind n bytes; false when there are too many of them, or they are too long. */
static bool list_texts(lister *l, ht_re r, size_t n) {
    ht_schema *s = l->s;
    if (ht_re_is_nullable(s->re, r) && !add(l, of_text(l, n))) return false;
    if (r == HT_RE_EMPTY) return true;
    if (n == TEXT_MOST || s->status) return false;
    for (unsigned b = 0; b < 256; b++) {
        ht_regexes_refine(s->re);
        const ht_re d = ht_re_derivative(s->re, r, ht_regexes_class_of(s->re)[b]);
        if (d == HT_RE_NONE) continue;
        l->text[n] = (char)b;
        if (!list_texts(l, d, n + 1)) return false;
    }
    return true;
}

uint32_t ht_set_values(ht_schema *s, ht_node node, ht_node *values, uint32_t most) {
    lister l = {.s = s, .values = values, .most = most};
    const uint32_t simple = ht_set_simple(s, node);
    if (ht_set_is_live(s, ht_node_and(s, node, ht_node_types(s, HT_TYPE_ARRAY | HT_TYPE_OBJECT))))
        return HT_INTERN_FAILED;
    for (uint32_t type = HT_TYPE_NULL; type <= HT_TYPE_TRUE; type *= 2)
        if (simple & type && !add(&l, ht_node_types(s, type))) return HT_INTERN_FAILED;
    const uint32_t types = ht_set_types(s, node);
    if (types & HT_TYPE_STRING && !list_texts(&l, ht_strings_re(s, ht_set_strings(s, node)), 0))
        return HT_INTERN_FAILED;
    l.is_number = true;
    const ht_re numbers = ht_set_numbers(s, node).written;
    if (types & HT_TYPE_NUMBER && (numbers == HT_RE_ALL || !list_texts(&l, numbers, 0))) return HT_INTERN_FAILED;
    return s->status ? HT_INTERN_FAILED : l.n;
}
