/* Tokenization: text to ids by UTF-8 repair, added tokens, normalizer, pre-tokenizer, model, post-processor. One
 * encoder per call. */
#include "base/error.h"
#include "base/grow.h"
#include "tokenizer/tokenizer.h"

#include <stdlib.h>
#include <string.h>

/* origin: bytes of the text, where they are wanted. */
static void encode_id(ht_encoder *e, int32_t id, ht_origin origin) {
    if (e->status) return;
    if (!HT_GROW(e->ids, e->capacity, e->n_ids + 1) ||
        (e->wants_offsets && !HT_GROW(e->offsets, e->offset_capacity, e->n_ids + 1))) {
        e->status = ht_fail_memory(e->err, (e->n_ids + 1) * sizeof *e->ids, "token ids");
        return;
    }
    if (e->wants_offsets) e->offsets[e->n_ids] = origin;
    e->ids[e->n_ids++] = id;
}

static const ht_origin nowhere;

static void fail_unknown(ht_encoder *e) {
    const ht_tokenizer *t = e->t;
    e->status = ht_fail(e->err, HT_ERR_FORMAT, "the text needs the unknown token%s%s%s, which the vocabulary lacks",
                        t->unk_text ? " `" : "", t->unk_text ? t->unk_text : "", t->unk_text ? "`" : "");
}

/* Whether each byte of a text has its <0xNN> token. */
static bool has_byte_tokens(const ht_tokenizer *t, const char *text, size_t n) {
    bool all = t->byte_fallback;
    for (size_t i = 0; i < n && all; i++) all = t->fallback_id[(unsigned char)text[i]] >= 0;
    return all;
}

static void push_symbol(ht_encoder *e, int32_t id) {
    if (!ht_bpe_push(&e->work, id)) e->status = ht_fail_memory(e->err, e->work.n * sizeof id, "encoding");
}

/* Encodes a character without a token as its <0xNN> tokens, as the unknown token (one per run when fused), or as
 * nothing. */
static void push_unknown(ht_encoder *e, const char *text, size_t n, bool *pending_unk) {
    const ht_tokenizer *t = e->t;
    if (has_byte_tokens(t, text, n)) {
        for (size_t i = 0; i < n; i++) push_symbol(e, t->fallback_id[(unsigned char)text[i]]);
        return;
    }
    if (!t->unk_text) return;
    if (t->unk < 0) {
        fail_unknown(e);
        return;
    }
    if (*pending_unk && !t->fuse_unk) push_symbol(e, t->unk);
    *pending_unk = true;
}

static void push_known(ht_encoder *e, int32_t id, bool *pending_unk) {
    if (*pending_unk) push_symbol(e, e->t->unk);
    *pending_unk = false;
    push_symbol(e, id);
}

static void push_bytes(ht_encoder *e, const char *text, size_t n) {
    bool pending_unk = false;
    for (size_t i = 0; i < n && !e->status; i++) {
        unsigned char byte = (unsigned char)text[i];
        if (e->t->byte_id[byte] >= 0)
            push_known(e, e->t->byte_id[byte], &pending_unk);
        else {
            ht_text_clear(&e->piece);
            ht_text_append_utf8(&e->piece, ht_char_of_byte(byte));
            if (!e->piece.failed) push_unknown(e, e->piece.data, e->piece.len, &pending_unk);
        }
    }
    if (pending_unk && !e->status) push_symbol(e, e->t->unk);
}

static void push_chars(ht_encoder *e, const char *text, size_t n) {
    bool pending_unk = false;
    for (size_t i = 0, length; i < n && !e->status; i += length) {
        uint32_t c = ht_utf8_next(text + i, &length);
        int32_t id = c < 128 ? e->t->ascii_id[c] : ht_vocab_find(&e->t->vocab, text + i, length);
        if (id >= 0)
            push_known(e, id, &pending_unk);
        else
            push_unknown(e, text + i, length, &pending_unk);
    }
    if (pending_unk && !e->status) push_symbol(e, e->t->unk);
}

static int32_t find_whole(ht_encoder *e, const char *text, size_t n) {
    if (n > e->t->vocab.longest) return -1;
    if (!e->t->byte_level) return ht_vocab_find(&e->t->vocab, text, n);
    ht_text_clear(&e->piece);
    for (size_t i = 0; i < n; i++) ht_text_append_utf8(&e->piece, ht_char_of_byte((unsigned char)text[i]));
    return e->piece.failed ? -1 : ht_vocab_find(&e->t->vocab, e->piece.data, e->piece.len);
}

static void merge_symbols(ht_encoder *e, const char *text, size_t n) {
    if (e->t->ignore_merges) {
        int32_t id = find_whole(e, text, n);
        if (id >= 0) {
            encode_id(e, id, nowhere);
            return;
        }
    }
    e->work.n = 0;
    if (e->t->byte_level)
        push_bytes(e, text, n);
    else
        push_chars(e, text, n);
    if (e->piece.failed) e->status = ht_fail_memory(e->err, n, "encoding");
    if (!e->status) e->status = ht_bpe_merge(&e->t->merges, &e->t->vocab, &e->work, e->err);
    for (size_t i = 0; i < e->work.n && !e->status; i++) encode_id(e, e->work.symbols[i], nowhere);
}

static void encode_unknown(ht_encoder *e, const char *text, size_t n, ht_origin origin) {
    const ht_tokenizer *t = e->t;
    if (has_byte_tokens(t, text, n))
        for (size_t i = 0; i < n; i++) encode_id(e, t->fallback_id[(unsigned char)text[i]], origin);
    else if (t->unk >= 0)
        encode_id(e, t->unk, origin);
    else
        fail_unknown(e);
}

static void encode_uncached(ht_encoder *e, const char *text, size_t n, const ht_origin *origins) {
    const ht_tokenizer *t = e->t;
    if (t->model == HT_MODEL_BPE) {
        merge_symbols(e, text, n);
        return;
    }
    ht_piece_work *w = &e->pieces;
    e->status = t->model == HT_MODEL_WORDPIECE
                    ? ht_wordpiece(&t->pieces, t->flags, e->hidden, text, n, w, e->err)
                    : ht_unigram(&t->pieces, t->flags, e->hidden, t->unk, text, n, w, e->err);
    for (size_t i = 0; i < w->n && !e->status; i++) {
        const ht_piece *p = &w->piece[i];
        const ht_origin origin = origins ? (ht_origin){origins[p->begin].begin, origins[p->end - 1].end} : nowhere;
        if (p->id >= 0)
            encode_id(e, p->id, origin);
        else
            encode_unknown(e, text + p->begin, p->end - p->begin, origin);
    }
}

static void encode_cached(ht_encoder *e, const char *text, size_t n, const ht_origin *origins) {
    if (!e->piece_cache || n > sizeof e->piece_cache->text) {
        encode_uncached(e, text, n, origins);
        return;
    }
    ht_cached_piece *k = &e->piece_cache[ht_hash_bytes(text, n) & (HT_PIECE_CACHE_SIZE - 1)];
    if (k->n_text == n && memcmp(k->text, text, n) == 0) {
        for (int i = 0; i < k->n_ids; i++) encode_id(e, k->ids[i], nowhere);
        return;
    }
    size_t before = e->n_ids;
    encode_uncached(e, text, n, NULL);
    size_t made = e->n_ids - before;
    if (e->status || made > sizeof k->ids / sizeof *k->ids) return;
    k->n_text = (unsigned char)n;
    k->n_ids = (unsigned char)made;
    memcpy(k->text, text, n);
    if (made) memcpy(k->ids, e->ids + before, made * sizeof *k->ids);
}

/* Splits a SentencePiece text, which has no pre-tokenizer, into words at U+2581 wherever no merge can cross
 * (ht_tokenizer.joins_metaspace): same ids, but shorter pieces that the cache can hold. */
static void encode_words(ht_encoder *e, const char *text, size_t n) {
    size_t begin = 0, after_space = 0; /* end of the last U+2581 */
    for (size_t at = 0; at + 3 <= n && !e->status;) {
        const char *hit = memchr(text + at, HT_METASPACE[0], n - at - 2);
        if (!hit) break;
        at = (size_t)(hit - text);
        if (memcmp(hit, HT_METASPACE, 3) != 0) {
            at++;
            continue;
        }
        if (at > begin && at != after_space && !e->t->joins_metaspace[(unsigned char)text[at - 1]]) {
            encode_cached(e, text + begin, at - begin, NULL);
            begin = at;
        }
        after_space = at += 3;
    }
    if (begin < n && !e->status) encode_cached(e, text + begin, n - begin, NULL);
}

void ht_encode_piece(ht_encoder *e, const char *text, size_t n, const ht_origin *origins) {
    if (e->status) return;
    if (e->t->split_words)
        encode_words(e, text, n);
    else
        encode_cached(e, text, n, origins);
}

#define LONG_TEXT 4096 /* bytes above which the piece cache and the merge memo pay for their allocation */

typedef struct pass {
    ht_encoder *e;
    bool parse_special;
    const ht_written *whole;
    size_t run;                   /* index of the last run of `whole` that was queried */
    bool marks_normal;            /* special tokens are found in normalised text, too */
    ht_marked_text text, scratch; /* normalised span and its scratch */
    bool at_start;                /* the span begins at the start of the text */
    size_t offset;                /* of the searched text, in `whole` */
} pass;

static bool has_input(pass *p, size_t begin, size_t end) {
    const ht_text_run *runs = p->whole->runs;
    const size_t n = p->whole->n_runs;
    while (p->run > 0 && runs[p->run - 1].end > begin) p->run--;
    while (p->run < n && runs[p->run].end <= begin) p->run++;
    for (size_t i = p->run; i < n; i++) {
        if (runs[i].input) return true;
        if (runs[i].end >= end) break;
    }
    return false;
}

static bool may_be_special(void *user, bool special, size_t begin, size_t end) {
    pass *p = user;
    return (p->parse_special || !special) && !(p->whole->runs && has_input(p, p->offset + begin, p->offset + end));
}

static bool may_be_special_when_normal(void *user, bool special, size_t begin, size_t end) {
    pass *p = user;
    return (p->parse_special || !special) &&
           !(p->text.wants_marks && memchr(p->text.marks.data + begin, 1, end - begin));
}

static void encode_normalized_part(void *user, const char *text, size_t begin, size_t end, int32_t added) {
    pass *p = user;
    const ht_origin *origins = ht_origins(&p->text);
    if (added >= 0)
        encode_id(p->e, p->e->t->added[added].id,
                  origins ? (ht_origin){origins[begin].begin, origins[end - 1].end} : nowhere);
    else
        ht_pretokenize(p->e, text + begin, end - begin, ht_origins_from(origins, begin), p->at_start && begin == 0);
}

static void mark_inputs(pass *p, size_t begin, size_t end) {
    ht_text_clear(&p->text.marks);
    p->text.wants_marks = p->marks_normal && has_input(p, begin, end);
    if (!p->text.wants_marks || !ht_text_reserve(&p->text.marks, end - begin)) return;
    for (size_t i = begin; i < end; i++) p->text.marks.data[i - begin] = has_input(p, i, i + 1);
    p->text.marks.len = end - begin;
}

/* Each byte of [begin, end) comes from its character. */
static void set_origins(pass *p, size_t begin, size_t end) {
    ht_text_clear(&p->text.origins);
    p->text.wants_origins = p->e->wants_offsets;
    if (!p->text.wants_origins) return;
    for (size_t at = begin, length; at < end && !p->text.origins.failed; at += length) {
        ht_utf8_next(p->whole->text + at, &length);
        const ht_origin origin = {(uint32_t)at, (uint32_t)(at + length)};
        for (size_t i = 0; i < length; i++) ht_text_append(&p->text.origins, &origin, sizeof origin);
    }
}

static void encode_raw_part(void *user, const char *text, size_t begin, size_t end, int32_t added) {
    pass *p = user;
    ht_encoder *e = p->e;
    if (e->status) return;
    if (added >= 0) {
        encode_id(e, e->t->added[added].id, (ht_origin){(uint32_t)begin, (uint32_t)end});
        return;
    }
    p->at_start = begin == 0;
    set_origins(p, begin, end);
    if (p->text.origins.failed) {
        e->status = ht_fail_memory(e->err, end - begin, "offsets");
        return;
    }
    if (!e->t->n_normalizer) {
        p->offset = begin;
        ht_find_added(e->t, &e->t->normal_trie, text + begin, end - begin, may_be_special, encode_normalized_part, p);
        p->offset = 0;
        return;
    }
    ht_text_clear(&p->text.text);
    ht_text_append(&p->text.text, text + begin, end - begin);
    mark_inputs(p, begin, end);
    e->status = ht_normalize(e->t->normalizer, e->t->n_normalizer, &e->regex, &p->text, &p->scratch, e->err);
    if (!e->status && p->text.text.len)
        ht_find_added(e->t, &e->t->normal_trie, p->text.text.data, p->text.text.len, may_be_special_when_normal,
                      encode_normalized_part, p);
}

static bool begins_with(const int32_t *ids, size_t n, const int32_t *prefix, size_t n_prefix) {
    return n >= n_prefix && memcmp(ids, prefix, n_prefix * sizeof *ids) == 0;
}

/* Adds the post-processor's prefix and suffix (BOS, EOS), unless the ids have them already. */
static void add_special(ht_encoder *e) {
    const ht_tokenizer *t = e->t;
    size_t n = e->n_ids;
    if (t->n_prefix && !(n && begins_with(e->ids, n, t->prefix, t->n_prefix))) {
        for (size_t i = 0; i < t->n_prefix; i++) encode_id(e, t->prefix[i], nowhere);
        if (e->status) return;
        memmove(e->ids + t->n_prefix, e->ids, n * sizeof *e->ids);
        memcpy(e->ids, t->prefix, t->n_prefix * sizeof *e->ids);
        n += t->n_prefix;
    }
    if (t->n_suffix &&
        !(n >= t->n_suffix && begins_with(e->ids + n - t->n_suffix, t->n_suffix, t->suffix, t->n_suffix)))
        for (size_t i = 0; i < t->n_suffix; i++) encode_id(e, t->suffix[i], nowhere);
}

static void encoder_free(ht_encoder *e) {
    free(e->piece_cache);
    ht_bpe_work_free(&e->work);
    ht_piece_work_free(&e->pieces);
    ht_regex_work_free(e->regex);
    for (int i = 0; i < HT_MAX_STEPS; i++) {
        ht_text_discard(&e->scratch[i]);
        ht_text_discard(&e->spelled[i]);
        ht_text_discard(&e->origins[i]);
    }
    ht_text_discard(&e->piece);
}

/* The bytes of a token in the byte alphabet; false if it has other characters, and no text becomes it. */
static bool bytes_of(const ht_tokenizer *t, int32_t id, ht_text *out) {
    const char *text = ht_vocab_text(&t->vocab, id);
    ht_text_clear(out);
    for (size_t at = 0, length; at < t->vocab.length[id]; at += length) {
        const int byte = ht_byte_of_char(ht_utf8_next(text + at, &length));
        if (byte < 0) return false;
        ht_text_append(out, &(char){(char)byte}, 1);
    }
    return out->len && !out->failed;
}

ht_status ht_tokenizer_merges_suffice(const ht_tokenizer *t, bool *suffice, ht_error *err) {
    ht_tokenizer merging = *t;
    ht_encoder e = {.t = &merging, .err = err};
    ht_text bytes = {0};
    merging.ignore_merges = false;
    *suffice = true;
    for (int32_t id = 0; id < t->vocab.n && *suffice && !e.status && !bytes.failed; id++) {
        if (t->flags[id] & HT_TOKEN_ADDED || !bytes_of(t, id, &bytes)) continue;
        e.n_ids = 0;
        ht_encode_piece(&e, bytes.data, bytes.len, NULL);
        *suffice = e.n_ids == 1 && e.ids[0] == id;
    }
    if (bytes.failed && !e.status) e.status = ht_fail_memory(err, 0, "tokens");
    ht_text_discard(&bytes);
    encoder_free(&e);
    free(e.ids);
    return e.status;
}

static bool has_normal_control(const ht_tokenizer *t) {
    for (size_t i = 0; i < t->n_added; i++)
        if (t->added[i].control && t->added[i].normalized) return true;
    return false;
}

static ht_status check_flags(unsigned flags, ht_error *err) {
    if (!(flags & ~(unsigned)(HT_ENCODE_ADD_SPECIAL | HT_ENCODE_PARSE_SPECIAL))) return HT_OK;
    return ht_fail(err, HT_ERR_ARGUMENT, "the flags 0x%x of encoding: this version does not know all of them", flags);
}

/* Tokens that a model does not find in a text: special ones unless requested, and any that the inputs could spell. */
static uint8_t hidden_tokens(unsigned flags, bool has_runs) {
    if (has_runs) return HT_TOKEN_SPECIAL | HT_TOKEN_ADDED;
    return flags & HT_ENCODE_PARSE_SPECIAL ? 0 : HT_TOKEN_SPECIAL;
}

/* Encodes valid UTF-8; the caller frees e->ids and e->offsets. */
static ht_status encode_whole(ht_encoder *e, const ht_written *text, unsigned flags) {
    const ht_tokenizer *t = e->t;
    pass p = {.e = e, .parse_special = flags & HT_ENCODE_PARSE_SPECIAL, .whole = text};
    p.marks_normal = text->runs && t->n_normalizer && has_normal_control(t);
    e->hidden = hidden_tokens(flags, text->runs);
    if (text->n > LONG_TEXT && !e->wants_offsets) {
        e->piece_cache = calloc(HT_PIECE_CACHE_SIZE, sizeof *e->piece_cache);
        ht_bpe_add_memo(&e->work);
    }
    if (text->n) ht_find_added(t, &t->raw_trie, text->text, text->n, may_be_special, encode_raw_part, &p);
    if (flags & HT_ENCODE_ADD_SPECIAL && !e->status) add_special(e);
    ht_marked_text_discard(&p.text);
    ht_marked_text_discard(&p.scratch);
    encoder_free(e);
    if (!e->status) return HT_OK;
    free(e->ids);
    free(e->offsets);
    return e->status;
}

ht_status ht_tokenizer_encode_runs(const ht_tokenizer *t, const ht_written *text, unsigned flags, int32_t **ids,
                                   size_t *n_ids, ht_error *err) {
    *ids = NULL;
    *n_ids = 0;
    ht_status status = check_flags(flags, err);
    if (status) return status;
    ht_encoder e = {.t = t, .err = err};
    status = encode_whole(&e, text, flags);
    if (status) return status;
    *ids = e.ids;
    *n_ids = e.n_ids;
    return HT_OK;
}

ht_status ht_tokenizer_encode(const ht_tokenizer *t, const char *text, size_t n, unsigned flags, int32_t **ids,
                              size_t *n_ids, ht_error *err) {
    ht_text repaired = {0};
    ht_written whole = {.text = (char *)(uintptr_t)text, .n = n};
    if (!ht_utf8_valid(text, n)) {
        ht_unicode_repair(text, n, &repaired);
        whole = (ht_written){.text = repaired.data, .n = repaired.len};
    }
    ht_status status = repaired.failed ? ht_fail_memory(err, whole.n, "repaired text")
                                       : ht_tokenizer_encode_runs(t, &whole, flags, ids, n_ids, err);
    ht_text_discard(&repaired);
    return status;
}

static bool splits_bytes(const ht_tokenizer *t) {
    for (int i = 0; i < t->n_pre; i++)
        if (t->pre[i].kind == HT_PRE_BYTE_LEVEL) return true;
    return false;
}

ht_status ht_tokenizer_encode_text(const ht_tokenizer *t, const char *text, size_t n, unsigned flags, int32_t **ids,
                                   ht_origin **offsets, size_t *n_ids, ht_error *err) {
    flags &= ~(unsigned)HT_ENCODE_ADD_SPECIAL;
    if (!offsets) return ht_tokenizer_encode(t, text, n, flags, ids, n_ids, err);
    *ids = NULL;
    *offsets = NULL;
    *n_ids = 0;
    const ht_written whole = {.text = (char *)(uintptr_t)text, .n = n};
    ht_encoder e = {.t = t, .err = err, .wants_offsets = true};
    ht_status status = check_flags(flags, err);
    if (!status && (t->model == HT_MODEL_BPE || splits_bytes(t)))
        status = ht_fail(err, HT_ERR_UNSUPPORTED, "offsets of %s are not supported", ht_tokenizer_kind(t));
    if (!status && n > UINT32_MAX) status = ht_fail(err, HT_ERR_LIMIT, "a text of %zu bytes is too long", n);
    if (!status && !ht_utf8_valid(text, n))
        status = ht_fail(err, HT_ERR_ARGUMENT, "offsets need a text of valid UTF-8");
    if (!status) status = encode_whole(&e, &whole, flags);
    if (status) return status;
    *ids = e.ids;
    *offsets = e.offsets;
    *n_ids = e.n_ids;
    return HT_OK;
}

void ht_ids_free(int32_t *ids) { free(ids); }
