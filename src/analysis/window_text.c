#include "analysis/window_text.h"

#include <hearth/tokenizer.h>

/* BOS when the checkpoint puts it before a text, else -1. */
static ht_status bos_of(const ht_tokenizer *t, int32_t *bos, ht_error *err) {
    int32_t *ids;
    size_t n;
    *bos = -1;
    ht_status status = ht_tokenizer_encode(t, "", 0, HT_ENCODE_ADD_SPECIAL, &ids, &n, err);
    if (status) return status;
    if (n && ids[0] == ht_tokenizer_bos(t)) *bos = ids[0];
    ht_ids_free(ids);
    return HT_OK;
}

ht_status ht_window_text_encode(const ht_model *m, const char *text, size_t n, ht_window_text *out, ht_error *err) {
    *out = (ht_window_text){.bos = -1};
    ht_status status = ht_model_need_tokenizer(m, err);
    if (!status) status = bos_of(m->tokenizer, &out->bos, err);
    if (!status)
        status = ht_tokenizer_encode(m->tokenizer, text, n, HT_ENCODE_PARSE_SPECIAL, &out->encoded, &out->n, err);
    if (status) return status;
    const bool written = out->n && out->bos >= 0 && out->encoded[0] == out->bos; /* a BOS in the text is not doubled */
    out->ids = out->n ? out->encoded + written : out->encoded;
    out->n -= written;
    return HT_OK;
}

void ht_window_text_free(ht_window_text *t) {
    ht_ids_free(t->encoded);
    *t = (ht_window_text){.bos = -1};
}
