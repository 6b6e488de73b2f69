/* For targets of what reads tokenizers: what has loaded must also encode, decode what it encoded, and can be written. */
#ifndef TESTS_FUZZ_TOKENS_H
#define TESTS_FUZZ_TOKENS_H

#include "fuzz.h"
#include "tokenizer/save.h"
#include "tokenizer/tokenizer.h"

#include <string.h>

static const char tokens_text[] =
    " The quick  brown fox's 1234 \n\t h\xC3\xA9llo e\xCC\x81 \xE2\x96\x81\xE2\x96\x81 \xE6\x97\xA5\xE6\x9C\xAC "
    "\xF0\x9F\x98\x80\xFF<s>a</s><|x|> aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa.";

/* Piece by piece it is the same text. */
static inline void tokens_stream(const ht_tokenizer *t, const int32_t *ids, size_t n, const char *whole,
                                 size_t n_whole) {
    ht_decoder *d;
    ht_error err;
    if (ht_decoder_new(t, false, &d, &err)) return;
    size_t at = 0;
    for (size_t i = 0; i <= n; i++) {
        const char *piece;
        size_t length;
        ht_status st =
            i < n ? ht_decoder_feed(d, ids[i], &piece, &length, &err) : ht_decoder_flush(d, &piece, &length, &err);
        check(!st && at + length <= n_whole && memcmp(whole + at, piece, length) == 0);
        at += length;
    }
    check(at == n_whole);
    ht_decoder_free(d);
}

/* Two texts: as many token types and offsets, which lie in the texts. */
static inline void tokens_pair(const ht_tokenizer *t, size_t from) {
    static const char text[] = "The  quick h\xC3\xA9llo e\xCC\x81 \xE6\x97\xA5<s>a\xEF\xAC\x81\xCC\x81 \xC2\xBD aaaa";
    ht_pair_options options = {.flags = (unsigned)from & 3};
    ht_encoding e;
    ht_error err = {0};
    for (int offsets = 0; offsets < 2; offsets++) {
        options.offsets = offsets;
        const ht_status status = ht_tokenizer_encode_pair(t, text, sizeof text - 1, from & 32 ? text : NULL,
                                                          from & 32 ? sizeof text - 1 : 0, &options, &e, &err);
        if (refused(status, &err, e.ids)) continue;
        for (size_t i = 0; i < e.n; i++) {
            check(ht_tokenizer_piece(t, e.ids[i]) != NULL && e.types[i] >= 0);
            check(!offsets || (e.offsets[i].begin <= e.offsets[i].end && e.offsets[i].end < sizeof text));
        }
        ht_encoding_free(&e);
    }
}

/* With the text from byte `from` on, taken round. */
static inline void tokens_use(const ht_tokenizer *t, size_t from) {
    tokens_pair(t, from);
    from %= sizeof tokens_text - 1;
    ht_error err;
    for (int i = 0; i < 4; i++) { /* all flags */
        int32_t *ids;
        size_t n, length;
        char *decoded;
        if (ht_tokenizer_encode(t, tokens_text + from, sizeof tokens_text - 1 - from, (unsigned)i, &ids, &n, &err))
            return;
        for (size_t k = 0; k < n; k++) check(ht_tokenizer_piece(t, ids[k]) != NULL);
        check(!ht_tokenizer_decode(t, ids, n, false, &decoded, &length, &err));
        tokens_stream(t, ids, n, decoded, length);
        free(decoded);
        free(ids);
    }
}

static inline void tokens_same_ids(const ht_tokenizer *a, const ht_tokenizer *b) {
    int32_t *x, *y;
    size_t n_x, n_y;
    ht_error err;
    if (ht_tokenizer_encode(a, tokens_text, sizeof tokens_text - 1, HT_ENCODE_PARSE_SPECIAL, &x, &n_x, &err)) return;
    check(!ht_tokenizer_encode(b, tokens_text, sizeof tokens_text - 1, HT_ENCODE_PARSE_SPECIAL, &y, &n_y, &err));
    check(n_x == n_y && (!n_x || !memcmp(x, y, n_x * sizeof *x)));
    free(x);
    free(y);
}

/* Written as a tokenizer.json it is the same tokenizer, if its merges are a list; as GGUF metadata it may be refused. */
static inline void tokens_save(const ht_tokenizer *t) {
    char *text;
    ht_tokenizer *read;
    ht_error err = {0};
    ht_status status = ht_tokenizer_save_json(t, &text, &err);
    if (!refused(status, &err, text)) {
        check(!ht_tokenizer_from_json(text, strlen(text), NULL, 0, &read, &err));
        if (!t->merges.order) tokens_same_ids(t, read);
        ht_tokenizer_free(read);
        free(text);
    }
    ht_json *metadata = ht_json_new_object();
    if (metadata) status = ht_tokenizer_save_gguf(t, t->vocab.n + 2, t->vocab.n % 2, metadata, &err);
    check(!status || (err.status == status && err.message[0]));
    ht_json_decref(metadata);
}

#endif
