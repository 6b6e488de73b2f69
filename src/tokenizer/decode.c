/* Detokenization: ids to text. One state machine for whole sequences and streams: tokens in, complete characters out,
 * incomplete UTF-8 held back. */
#include "base/error.h"
#include "tokenizer/tokenizer.h"

#include <stdlib.h>
#include <string.h>

struct ht_decoder {
    const ht_tokenizer *t;
    bool skip_special;
    bool raw;          /* keeps bytes that are not valid UTF-8 */
    bool started;      /* a token was decoded */
    size_t strip_left; /* leading characters that may still be stripped */
    ht_text bytes;     /* incomplete character, of byte-level or <0xNN> tokens */
    ht_text ready;     /* complete text */
    ht_text token;     /* scratch */
    ht_text piece;     /* text returned by the last call */
};

static void restart(ht_decoder *d) {
    d->started = false;
    d->strip_left = d->t->decode.strip_count;
    ht_text_clear(&d->bytes);
    ht_text_clear(&d->ready);
}

ht_status ht_decoder_new(const ht_tokenizer *t, bool skip_special, ht_decoder **out, ht_error *err) {
    *out = NULL;
    ht_decoder *d = calloc(1, sizeof *d);
    if (!d) return ht_fail_memory(err, sizeof *d, "decoder");
    d->t = t;
    d->skip_special = skip_special;
    restart(d);
    *out = d;
    return HT_OK;
}

void ht_decoder_join(ht_decoder *d) {
    d->started = true;
    d->strip_left = 0;
}

static void discard_texts(ht_decoder *d) {
    ht_text_discard(&d->bytes);
    ht_text_discard(&d->ready);
    ht_text_discard(&d->token);
    ht_text_discard(&d->piece);
}

void ht_decoder_free(ht_decoder *d) {
    if (!d) return;
    discard_texts(d);
    free(d);
}

/* Moves the first n held-back bytes to `ready`, invalid sequences replaced by U+FFFD. */
static void release_bytes(ht_decoder *d, size_t n) {
    if (!n) return;
    if (d->raw)
        ht_text_append(&d->ready, d->bytes.data, n);
    else
        ht_unicode_repair(d->bytes.data, n, &d->ready);
    memmove(d->bytes.data, d->bytes.data + n, d->bytes.len - n);
    d->bytes.len -= n;
}

/* Emits characters as soon as they are complete. Hugging Face instead holds a run of byte tokens to its end and
 * replaces the whole run by U+FFFD when invalid, which would stall a stream and lose complete characters. */
static void release_characters(ht_decoder *d) {
    release_bytes(d, ht_utf8_complete_prefix(d->bytes.data, d->bytes.len));
}

/* Maps a token from the byte alphabet to bytes; a token with any other character is literal text. */
static void decode_byte_level(ht_decoder *d, const char *text, size_t n) {
    size_t before = d->bytes.len, i = 0;
    for (size_t length; i < n; i += length) {
        int byte = ht_byte_of_char(ht_utf8_next(text + i, &length));
        if (byte < 0) break;
        char c = (char)byte;
        ht_text_append(&d->bytes, &c, 1);
    }
    if (i < n) {
        d->bytes.len = before;
        ht_text_append(&d->bytes, text, n);
    }
    release_characters(d);
}

static int hex_digit(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
}

/* The byte of a <0xNN> token, or -1. */
static int byte_token(const char *text, size_t n) {
    if (n != 6 || memcmp(text, "<0x", 3) != 0 || text[5] != '>') return -1;
    int high = hex_digit(text[3]), low = hex_digit(text[4]);
    return high < 0 || low < 0 ? -1 : high * 16 + low;
}

static void swap_texts(ht_text *a, ht_text *b) {
    ht_text swap = *a;
    *a = *b;
    *b = swap;
}

/* Replaces a text in d->token. */
static void replace(ht_decoder *d, const char *from, size_t n_from, const char *to, size_t n_to) {
    ht_text_clear(&d->piece);
    ht_append_replaced(&d->piece, d->token.data, d->token.len, from, n_from, to, n_to);
    swap_texts(&d->token, &d->piece);
}

/* WordPiece: puts the token with the space before it into d->token. */
static void join_word(ht_decoder *d, const char *text, size_t n) {
    static const char *const cleaned[][2] = {{" .", "."},   {" ?", "?"},     {" !", "!"},    {" ,", ","},
                                             {" ' ", "'"},  {" n't", "n't"}, {" 'm", "'m"},  {" do not", " don't"},
                                             {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}};
    const ht_decode_plan *plan = &d->t->decode;
    const bool continues = n >= plan->n_word_prefix && memcmp(text, plan->word_prefix, plan->n_word_prefix) == 0;
    const size_t cut = d->started && continues ? plan->n_word_prefix : 0;
    ht_text_clear(&d->token);
    if (d->started && !continues) ht_text_append(&d->token, " ", 1);
    ht_text_append(&d->token, text + cut, n - cut);
    for (size_t i = 0; plan->cleanup && i < sizeof cleaned / sizeof *cleaned; i++)
        replace(d, cleaned[i][0], strlen(cleaned[i][0]), cleaned[i][1], strlen(cleaned[i][1]));
}

/* Applies the decoder's replacements to a token; the result is in d->token. */
static void replace_in_token(ht_decoder *d, const char *text, size_t n) {
    const ht_decode_plan *plan = &d->t->decode;
    if (plan->word_prefix) {
        join_word(d, text, n);
        return;
    }
    ht_text_clear(&d->token);
    ht_text_append(&d->token, text, n);
    for (int i = 0; i < plan->n_replace; i++) {
        const ht_decode_replace *r = &plan->replace[i];
        replace(d, r->from, r->n_from, r->to, r->n_to);
    }
    const bool drops = plan->metaspace_drops && !d->started;
    if (plan->metaspace) replace(d, plan->metaspace, plan->n_metaspace, " ", !drops);
}

static void decode_text(ht_decoder *d, const char *text, size_t n) {
    const ht_decode_plan *plan = &d->t->decode;
    if (plan->join_spaces && d->started) ht_text_append(&d->ready, " ", 1);
    replace_in_token(d, text, n);
    if (!d->token.len) return;
    int byte = plan->byte_fallback ? byte_token(d->token.data, d->token.len) : -1;
    if (byte >= 0) {
        char c = (char)byte;
        ht_text_append(&d->bytes, &c, 1);
        release_characters(d);
        return;
    }
    release_bytes(d, d->bytes.len);
    ht_text_append(&d->ready, d->token.data, d->token.len);
}

/* Strip decoder: cuts characters from the front of the whole text. */
static void strip_front(ht_decoder *d) {
    const ht_decode_plan *plan = &d->t->decode;
    while (d->strip_left && d->ready.len) {
        if (d->ready.len < plan->n_strip || memcmp(d->ready.data, plan->strip, plan->n_strip) != 0) {
            d->strip_left = 0;
            return;
        }
        memmove(d->ready.data, d->ready.data + plan->n_strip, d->ready.len - plan->n_strip);
        d->ready.len -= plan->n_strip;
        d->strip_left--;
    }
}

/* Text of a token; for an added token changed by the normalizer, its normalised form. */
static void token_text(const ht_tokenizer *t, int32_t id, const char **text, size_t *n) {
    *text = ht_vocab_text(&t->vocab, id);
    *n = t->vocab.length[id];
    if (!(t->flags[id] & HT_TOKEN_RESPELLED)) return;
    for (size_t i = 0; i < t->n_added; i++)
        if (t->added[i].id == id && t->added[i].normal) {
            *text = t->added[i].normal;
            *n = t->added[i].n_normal;
        }
}

static ht_status decode_token(ht_decoder *d, int32_t id, ht_error *err) {
    const ht_tokenizer *t = d->t;
    if (id < 0 || id >= t->vocab.n)
        return ht_fail(err, HT_ERR_ARGUMENT, "token id %d is not in the vocabulary, whose ids are 0 to %d", (int)id,
                       (int)t->vocab.n - 1);
    if (!ht_vocab_has(&t->vocab, id) || (t->flags[id] & HT_TOKEN_UNUSED)) return HT_OK;
    if (d->skip_special && (t->flags[id] & HT_TOKEN_SPECIAL)) return HT_OK;
    const char *text;
    size_t n;
    token_text(t, id, &text, &n);
    if (t->decode.byte_level)
        decode_byte_level(d, text, n);
    else
        decode_text(d, text, n);
    d->started = true;
    strip_front(d);
    if (d->bytes.failed || d->ready.failed || d->token.failed || d->piece.failed)
        return ht_fail_memory(err, n, "decoding");
    return HT_OK;
}

static void finish(ht_decoder *d) {
    release_bytes(d, d->bytes.len);
    strip_front(d);
}

static ht_status return_piece(ht_decoder *d, const char **piece, size_t *n, ht_error *err) {
    swap_texts(&d->piece, &d->ready);
    ht_text_clear(&d->ready);
    ht_text_append(&d->piece, "", 0);
    if (d->piece.failed) return ht_fail_memory(err, 1, "decoding");
    *piece = d->piece.data;
    *n = d->piece.len;
    return HT_OK;
}

ht_status ht_decoder_feed(ht_decoder *d, int32_t id, const char **piece, size_t *n, ht_error *err) {
    *piece = NULL;
    *n = 0;
    ht_status st = decode_token(d, id, err);
    return st ? st : return_piece(d, piece, n, err);
}

ht_status ht_decoder_flush(ht_decoder *d, const char **piece, size_t *n, ht_error *err) {
    *piece = NULL;
    *n = 0;
    finish(d);
    ht_status st = return_piece(d, piece, n, err);
    restart(d);
    return st;
}

/* Gives the text of a sequence that has been decoded with this status; the decoder is not used again. */
static ht_status take_text(ht_decoder *d, ht_status st, char **text, size_t *n, ht_error *err) {
    *text = NULL;
    *n = 0;
    if (!st) {
        finish(d);
        *n = d->ready.len;
        *text = ht_text_take(&d->ready);
        if (!*text) st = ht_fail_memory(err, *n, "decoding");
    }
    discard_texts(d);
    return st;
}

ht_status ht_tokenizer_token_bytes(const ht_tokenizer *t, int32_t id, char **bytes, size_t *n, ht_error *err) {
    ht_decoder d = {.t = t, .raw = true};
    ht_decoder_join(&d);
    return take_text(&d, decode_token(&d, id, err), bytes, n, err);
}

ht_status ht_tokenizer_decode(const ht_tokenizer *t, const int32_t *ids, size_t n_ids, bool skip_special, char **text,
                              size_t *n, ht_error *err) {
    ht_decoder d = {.t = t, .skip_special = skip_special};
    restart(&d);
    ht_status st = HT_OK;
    for (size_t i = 0; i < n_ids && !st; i++) st = decode_token(&d, ids[i], err);
    return take_text(&d, st, text, n, err);
}
