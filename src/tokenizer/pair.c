/* Texts and pairs of texts with token types: the post-processor's template, and truncation as in `tokenizers`. */
#include "base/checked.h"
#include "base/error.h"
#include "tokenizer/tokenizer.h"

#include <stdlib.h>
#include <string.h>

typedef struct part {
    int32_t *ids;
    ht_origin *offsets;
    size_t n, kept;
} part;

void ht_encoding_free(ht_encoding *e) {
    free(e->ids);
    free(e->types);
    free(e->offsets);
    *e = (ht_encoding){0};
}

/* Cuts two texts of more than `most` ids together: the longer one alone to the length of the other, then both. */
static void cut_longest(part *a, part *b, size_t most) {
    part *shorter = a->n <= b->n ? a : b, *longer = shorter == a ? b : a;
    longer->kept = shorter->n > most ? shorter->n : ht_max_size(shorter->n, most - shorter->n);
    if (shorter->n + longer->kept <= most) return;
    shorter->kept = most / 2;
    longer->kept = most - most / 2;
}

/* most: ids without the added ones. */
static ht_status truncate(part *a, part *b, bool is_pair, ht_truncation how, size_t most, ht_error *err) {
    const size_t n = a->n + b->n;
    if (n <= most) return HT_OK;
    if (how == HT_TRUNCATE_NOTHING)
        return ht_fail(err, HT_ERR_LIMIT, "the text%s %zu tokens; at most %zu are allowed here",
                       is_pair ? "s have" : " has", n, most);
    if (how == HT_TRUNCATE_SECOND && (!is_pair || b->n <= n - most))
        return ht_fail(err, HT_ERR_LIMIT, "%s %zu tokens leaves none of at most %zu for the second text",
                       is_pair ? "a first text of" : "a single text of", a->n, most);
    if (how == HT_TRUNCATE_SECOND)
        b->kept = most - a->n;
    else if (is_pair)
        cut_longest(a, b, most);
    else
        a->kept = most;
    return HT_OK;
}

static void put(ht_encoding *out, int32_t id, int32_t type, ht_origin offset) {
    out->ids[out->n] = id;
    out->types[out->n] = type;
    if (out->offsets) out->offsets[out->n] = offset;
    out->n++;
}

static void put_part(ht_encoding *out, const part *p, int32_t type) {
    for (size_t i = 0; i < p->kept; i++) put(out, p->ids[i], type, p->offsets ? p->offsets[i] : (ht_origin){0, 0});
}

static ht_status assemble(const ht_tokenizer *t, const part *a, const part *b, bool is_pair, bool adds,
                          const ht_pair_options *o, ht_encoding *out, ht_error *err) {
    const size_t most = a->kept + b->kept + (adds ? t->n_prefix + t->n_suffix + t->n_pair : 0) + 1;
    out->ids = malloc(most * sizeof *out->ids);
    out->types = malloc(most * sizeof *out->types);
    if (o->offsets) out->offsets = malloc(most * sizeof *out->offsets);
    if (!out->ids || !out->types || (o->offsets && !out->offsets))
        return ht_fail_memory(err, most * sizeof *out->ids, "token ids");
    const ht_origin nowhere = {0, 0};
    if (!is_pair) {
        for (size_t i = 0; adds && i < t->n_prefix; i++) put(out, t->prefix[i], 0, nowhere);
        put_part(out, a, 0);
        for (size_t i = 0; adds && i < t->n_suffix; i++) put(out, t->suffix[i], 0, nowhere);
        return HT_OK;
    }
    for (size_t i = 0; i < t->n_pair; i++) {
        const ht_pair_item *item = &t->pair[i];
        if (item->id < 0) /* without the template's other items the texts keep their types */
            put_part(out, item->id == HT_PAIR_FIRST ? a : b, adds ? item->type : item->id == HT_PAIR_SECOND);
        else if (adds)
            put(out, item->id, item->type, nowhere);
    }
    return HT_OK;
}

static size_t count_added(const ht_tokenizer *t, bool is_pair) {
    size_t n = is_pair ? 0 : t->n_prefix + t->n_suffix;
    for (size_t i = 0; is_pair && i < t->n_pair; i++) n += t->pair[i].id >= 0;
    return n;
}

ht_status ht_tokenizer_encode_pair(const ht_tokenizer *t, const char *first, size_t n_first, const char *second,
                                   size_t n_second, const ht_pair_options *options, ht_encoding *out, ht_error *err) {
    const bool is_pair = second != NULL, adds = options->flags & HT_ENCODE_ADD_SPECIAL;
    const size_t n_added = adds ? count_added(t, is_pair) : 0;
    part a = {0}, b = {0};
    *out = (ht_encoding){0};
    ht_status st = ht_tokenizer_encode_text(t, first, n_first, options->flags, &a.ids,
                                            options->offsets ? &a.offsets : NULL, &a.n, err);
    if (!st && is_pair)
        st = ht_tokenizer_encode_text(t, second, n_second, options->flags, &b.ids, options->offsets ? &b.offsets : NULL,
                                      &b.n, err);
    a.kept = a.n;
    b.kept = b.n;
    if (!st && options->most && options->most <= n_added)
        st = ht_fail(err, HT_ERR_ARGUMENT, "at most %zu tokens leave none for the text, which needs %zu special ones",
                     options->most, n_added);
    if (!st && options->most) st = truncate(&a, &b, is_pair, options->truncation, options->most - n_added, err);
    if (!st) st = assemble(t, &a, &b, is_pair, adds, options, out, err);
    free(a.ids);
    free(a.offsets);
    free(b.ids);
    free(b.offsets);
    if (st) ht_encoding_free(out);
    return st;
}
