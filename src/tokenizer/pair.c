/* Texts and pairs of texts with token types: the post-processor's template. */
#include "base/error.h"
#include "tokenizer/tokenizer.h"

#include <stdlib.h>

typedef struct part {
    int32_t *ids;
    ht_origin *offsets;
    size_t n;
} part;

void ht_encoding_free(ht_encoding *e) {
    free(e->ids);
    free(e->types);
    free(e->offsets);
    *e = (ht_encoding){0};
}

static void put(ht_encoding *out, int32_t id, int32_t type, ht_origin offset) {
    out->ids[out->n] = id;
    out->types[out->n] = type;
    if (out->offsets) out->offsets[out->n] = offset;
    out->n++;
}

static void put_part(ht_encoding *out, const part *p, int32_t type) {
    for (size_t i = 0; i < p->n; i++) put(out, p->ids[i], type, p->offsets ? p->offsets[i] : (ht_origin){0, 0});
}

static ht_status assemble(const ht_tokenizer *t, const part *a, const part *b, bool is_pair, bool adds,
                          const ht_pair_options *o, ht_encoding *out, ht_error *err) {
    const size_t most = a->n + b->n + (adds ? t->n_prefix + t->n_suffix + t->n_pair : 0) + 1;
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

ht_status ht_tokenizer_encode_pair(const ht_tokenizer *t, const char *first, size_t n_first, const char *second,
                                   size_t n_second, const ht_pair_options *options, ht_encoding *out, ht_error *err) {
    const bool is_pair = second != NULL, adds = options->flags & HT_ENCODE_ADD_SPECIAL;
    part a = {0}, b = {0};
    *out = (ht_encoding){0};
    ht_status st = ht_tokenizer_encode_text(t, first, n_first, options->flags, &a.ids,
                                            options->offsets ? &a.offsets : NULL, &a.n, err);
    if (!st && is_pair)
        st = ht_tokenizer_encode_text(t, second, n_second, options->flags, &b.ids, options->offsets ? &b.offsets : NULL,
                                      &b.n, err);
    if (!st) st = assemble(t, &a, &b, is_pair, adds, options, out, err);
    free(a.ids);
    free(a.offsets);
    free(b.ids);
    free(b.offsets);
    if (st) ht_encoding_free(out);
    return st;
}
