/* Samples as text, in pieces that are learned and pieces that are not. */
#include "base/error.h"
#include "base/text.h"
#include "models/model.h"
#include "train/sample.h"

static ht_status hand_over(ht_text *run, bool learned, ht_train_piece_fn *fn, void *user, ht_error *err) {
    if (run->failed) return ht_fail_memory(err, run->len, "the text of a sample");
    if (run->len && !fn(run->data, run->len, learned, user))
        return ht_fail(err, HT_ERR_CANCELLED, "showing the sample was ended");
    ht_text_clear(run);
    return HT_OK;
}

/* The text of a token, or without a decoder its number. */
static ht_status append_token(ht_decoder *d, int32_t id, ht_text *run, ht_error *err) {
    const char *piece;
    size_t n;
    if (!d) {
        ht_text_printf(run, "%d ", (int)id);
        return HT_OK;
    }
    ht_status status = ht_decoder_feed(d, id, &piece, &n, err);
    if (!status) ht_text_append(run, piece, n);
    return status;
}

/* A character of which a run has only the first bytes belongs to the next one. */
static ht_status decode(ht_decoder *d, const ht_sample *s, ht_text *run, ht_train_piece_fn *fn, void *user,
                        ht_error *err) {
    ht_status status = HT_OK;
    const char *piece = "";
    size_t n = 0;
    for (int32_t i = 0; i < s->n && !status; i++) {
        if (i && s->learned[i] != s->learned[i - 1]) status = hand_over(run, s->learned[i - 1], fn, user, err);
        if (!status) status = append_token(d, s->id[i], run, err);
    }
    if (!status && d) status = ht_decoder_flush(d, &piece, &n, err);
    if (status || !s->n) return status;
    ht_text_append(run, piece, n);
    return hand_over(run, s->learned[s->n - 1], fn, user, err);
}

ht_status ht_sample_pieces(const ht_model *m, const ht_sample *s, ht_train_piece_fn *fn, void *user, ht_error *err) {
    ht_decoder *d = NULL;
    ht_text run = {0};
    ht_status status = HT_OK;
    if (m->tokenizer) status = ht_decoder_new(m->tokenizer, false, &d, err);
    if (!status) status = decode(d, s, &run, fn, user, err);
    ht_text_discard(&run);
    ht_decoder_free(d);
    return status;
}
