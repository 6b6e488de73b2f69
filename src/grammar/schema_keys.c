/* Sets of keys of members: names and patterns, or all keys but those. */
#include "grammar/schema.h"

#include <stdlib.h>

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
    size_t n;
    const uint32_t *words = ht_intern_at(&s->key_sets, a, &n);
    uint32_t *copy = malloc(n * sizeof *copy);
    if (!copy) return ht_schema_fail_memory(s), 0;
    memcpy(copy, words, n * sizeof *copy);
    copy[0] = !copy[0];
    const uint32_t keys = ht_intern_add(&s->key_sets, copy, n, NULL);
    free(copy);
    return keys == HT_INTERN_FAILED ? ht_schema_fail_memory(s) : keys;
}

/* Appends the names of a that are, or are not, in list b. */
static void push_names(ht_schema *s, const uint32_t *a, uint32_t n_a, const uint32_t *b, uint32_t n_b, bool in) {
    for (uint32_t i = 0; i < n_a; i++)
        if (ht_sorted_has(b, n_b, a[i]) == in) ht_schema_push(s, a[i]);
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
        for (uint32_t i = 0; i < x.n_names; i++) ht_schema_push(s, x.names[i]);
        for (uint32_t i = 0; i < y.n_names; i++) ht_schema_push(s, y.names[i]);
        const uint32_t n = s->n_scratch - begin;
        for (uint32_t i = 0; i < x.n_patterns; i++) ht_schema_push(s, x.patterns[i]);
        for (uint32_t i = 0; i < y.n_patterns; i++) ht_schema_push(s, y.patterns[i]);
        if (s->status) return 0;
        keys = ht_keys_of(s, false, s->scratch + begin, n, s->scratch + begin + n, s->n_scratch - begin - n);
    } else if (!x.n_patterns && !y.n_patterns) {
        push_names(s, y.names, y.n_names, x.names, x.n_names, x.is_complement);
        if (s->status) return 0;
        keys = ht_keys_of(s, true, s->scratch + begin, s->n_scratch - begin, NULL, 0);
    } else {
        /* All but the texts of neither: as one pattern. */
        ht_string_set none = {.re = HT_RE_NONE, .is_closed = true};
        const ht_keys sets[2] = {ht_keys_at(s, a), ht_keys_at(s, b)};
        ht_string_set all = none;
        for (int k = 0; k < 2; k++) {
            ht_string_set one = none;
            for (uint32_t i = 0; i < sets[k].n_names; i++)
                one = ht_strings_either(s, one, ht_strings_one(s, sets[k].names[i]));
            for (uint32_t i = 0; i < sets[k].n_patterns; i++)
                one = ht_strings_either(s, one, s->strings[sets[k].patterns[i]]);
            all = ht_strings_either(s, all, sets[k].is_complement ? ht_strings_not(s, one) : one);
        }
        const uint32_t pattern = ht_strings_add(s, all);
        keys = ht_keys_of(s, false, NULL, 0, &pattern, 1);
    }
    s->n_scratch = begin;
    return keys;
}

bool ht_keys_has_name(ht_schema *s, const ht_keys *keys, uint32_t name) {
    bool has = ht_sorted_has(keys->names, keys->n_names, name);
    if (!has && keys->n_patterns) {
        const ht_re text = ht_strings_text(s->re, s->tree.string[name].text, s->tree.string[name].n);
        for (uint32_t i = 0; i < keys->n_patterns && !has; i++)
            has = ht_strings_is_live(s, ht_strings_both(s, ht_strings_of_re(text), s->strings[keys->patterns[i]]));
    }
    return has != keys->is_complement;
}
