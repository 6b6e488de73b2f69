/* Normalizer stage: each step rewrites a whole span of text, and the marks of its bytes if requested. */
#include "base/error.h"
#include "tokenizer/tokenizer.h"

#include <stdlib.h>
#include <string.h>

static void put_marks(ht_marked_text *out, char mark) {
    if (!out->wants_marks || !ht_text_reserve(&out->marks, out->text.len - out->marks.len)) return;
    memset(out->marks.data + out->marks.len, mark, out->text.len - out->marks.len);
    out->marks.len = out->text.len;
}

/* Gives the last bytes of the text, those without an origin, the one of byte `at` of the source. */
static void put_origins(ht_marked_text *out, const ht_marked_text *in, size_t at) {
    if (!out->wants_origins) return;
    const ht_origin origin = at < in->text.len ? ht_origins(in)[at] : (ht_origin){0, 0};
    while (out->origins.len < out->text.len * sizeof origin && !out->origins.failed)
        ht_text_append(&out->origins, &origin, sizeof origin);
}

static void copy(const ht_marked_text *in, size_t begin, size_t end, ht_marked_text *out) {
    ht_text_append(&out->text, in->text.data + begin, end - begin);
    if (in->wants_marks) ht_text_append(&out->marks, in->marks.data + begin, end - begin);
    if (in->wants_origins) ht_text_append(&out->origins, ht_origins(in) + begin, (end - begin) * sizeof(ht_origin));
}

/* Mark of text that replaces bytes [begin, end): set if any of them is marked. */
static char mark_of(const ht_marked_text *in, size_t begin, size_t end) {
    return in->wants_marks && begin < end && memchr(in->marks.data + begin, 1, end - begin) ? 1 : 0;
}

/* Puts the step's text in place of bytes [begin, end). Its origin is that of their last one, as in `tokenizers`. */
static void put_replacement(const ht_normal_step *s, const ht_marked_text *in, size_t begin, size_t end,
                            ht_marked_text *out) {
    ht_text_append(&out->text, s->to, s->n_to);
    put_marks(out, mark_of(in, begin, end));
    put_origins(out, in, end - 1);
}

/* Writes characters in place of those of a text. */
typedef struct rewriter {
    const ht_marked_text *in;
    ht_marked_text *out;
    size_t at; /* the next byte to replace */
} rewriter;

static void skip_character(rewriter *r) {
    size_t length;
    if (r->at >= r->in->text.len) return;
    ht_utf8_next(r->in->text.data + r->at, &length);
    r->at += length;
}

static void put_character(rewriter *r, uint32_t c, int32_t change) {
    const size_t from = change > 0 ? r->at - 1 : r->at; /* SIZE_MAX before the first character */
    for (int32_t i = change; i <= 0; i++) skip_character(r);
    ht_text_append_utf8(&r->out->text, c);
    put_marks(r->out, r->in->wants_marks && from < r->at ? mark_of(r->in, from, r->at) : 0);
    put_origins(r->out, r->in, from);
}

static void replace_text(const ht_normal_step *s, const ht_marked_text *in, ht_marked_text *out) {
    const char *p = in->text.data, *end = p + in->text.len, *const begin = p;
    while (p < end) {
        const char *hit = s->n_from ? memchr(p, s->from[0], (size_t)(end - p)) : NULL;
        while (hit && ((size_t)(end - hit) < s->n_from || memcmp(hit, s->from, s->n_from) != 0))
            hit = hit + 1 < end ? memchr(hit + 1, s->from[0], (size_t)(end - hit - 1)) : NULL;
        if (!hit) break;
        const size_t at = (size_t)(hit - begin);
        copy(in, (size_t)(p - begin), at, out);
        put_replacement(s, in, at, at + s->n_from, out);
        p = hit + s->n_from;
    }
    copy(in, (size_t)(p - begin), in->text.len, out);
}

static ht_status replace_regex(const ht_normal_step *s, ht_regex_work **regex, const ht_marked_text *in,
                               ht_marked_text *out, ht_error *err) {
    const char *text = in->text.data;
    const size_t n = in->text.len;
    if (!*regex && !(*regex = ht_regex_work_new())) return ht_fail_memory(err, n, "normalizer");
    size_t done = 0, from = 0;
    while (from <= n) {
        ht_regex_match match;
        ht_status st = ht_regex_find(s->regex, *regex, text, n, from, &match, err);
        if (st) return st;
        if (!match.found) break;
        copy(in, done, match.begin, out);
        put_replacement(s, in, match.begin, match.end, out);
        done = from = match.end;
        if (match.begin == match.end) { /* empty match: continue after the next character */
            size_t length = 1;
            if (from < n) ht_utf8_next(text + from, &length);
            from += length;
        }
    }
    copy(in, done, n, out);
    return HT_OK;
}

static void strip(const ht_normal_step *s, const ht_marked_text *in, ht_marked_text *out) {
    const char *text = in->text.data;
    size_t begin = 0, end = in->text.len, length;
    while (s->left && begin < end && (ht_unicode_class(ht_utf8_next(text + begin, &length)) & HT_CLASS_SPACE))
        begin += length;
    while (s->right && end > begin) {
        size_t last = end - 1;
        while (last > begin && ((unsigned char)text[last] & 0xC0) == 0x80) last--;
        if (!(ht_unicode_class(ht_utf8_next(text + last, &length)) & HT_CLASS_SPACE)) break;
        end = last;
    }
    copy(in, begin, end, out);
}

static ht_status rewrite_by(const ht_changes *changes, const ht_marked_text *in, ht_marked_text *out, ht_error *err) {
    rewriter r = {in, out, 0};
    for (size_t i = 0; i < changes->n && !changes->failed; i++)
        put_character(&r, changes->list[i].c, changes->list[i].change);
    return changes->failed ? ht_fail_memory(err, in->text.len, "normalised text") : HT_OK;
}

static ht_status normalize_form(ht_normal_form form, const ht_marked_text *in, ht_marked_text *out, ht_error *err) {
    ht_changes changes = {0};
    ht_status st = ht_unicode_normalize_changes(form, in->text.data, in->text.len, &changes, err);
    if (!st) st = rewrite_by(&changes, in, out, err);
    free(changes.list);
    return st;
}

static ht_status apply_charsmap(const ht_normal_step *s, const ht_marked_text *in, ht_marked_text *out, ht_error *err) {
    ht_changes changes = {0};
    ht_charsmap_apply(&s->charsmap, in->text.data, in->text.len, &changes);
    const ht_status st = rewrite_by(&changes, in, out, err);
    free(changes.list);
    return st;
}

/* Normal form or lower case. With marks, works on pieces that begin with an ASCII character, which never affects the
 * text before it. An unchanged ASCII character keeps its mark. */
static ht_status change_characters(ht_normal_kind kind, ht_normal_form form, const ht_marked_text *in,
                                   ht_marked_text *out, ht_error *err) {
    const char *text = in->text.data;
    ht_status st = HT_OK;
    if (in->wants_origins && kind == HT_NORMAL_FORM) return normalize_form(form, in, out, err);
    for (size_t begin = 0, end, length; begin < in->text.len && !st; begin = end) {
        end = begin + 1;
        if (in->wants_origins) { /* of each character */
            ht_utf8_next(text + begin, &length);
            end = begin + length;
        }
        while (end < in->text.len && !in->wants_origins && (!in->wants_marks || (unsigned char)text[end] >= 0x80))
            end++;
        if (kind == HT_NORMAL_FORM)
            st = ht_unicode_normalize(form, text + begin, end - begin, &out->text, err);
        else
            ht_unicode_lowercase(text + begin, end - begin, &out->text);
        put_origins(out, in, begin);
        if (!in->wants_marks || out->text.failed || out->text.len == out->marks.len) continue;
        const size_t rest = begin + (out->text.data[out->marks.len] == text[begin]);
        if (rest > begin) ht_text_append(&out->marks, in->marks.data + begin, 1);
        put_marks(out, mark_of(in, rest, end));
    }
    return st;
}

/* Leaves out the characters that a table drops. */
static void drop_characters(uint8_t drops, const ht_marked_text *in, ht_marked_text *out) {
    size_t done = 0;
    for (size_t at = 0, length; at < in->text.len; at += length) {
        if (!(ht_unicode_dropped(ht_utf8_next(in->text.data + at, &length)) & drops)) continue;
        copy(in, done, at, out);
        done = at + length;
    }
    copy(in, done, in->text.len, out);
}

static bool is_chinese(uint32_t c) {
    static const uint32_t ranges[][2] = {{0x3400, 0x4DBF},   {0x4E00, 0x9FFF},   {0xF900, 0xFAFF},  {0x20000, 0x2A6DF},
                                         {0x2A700, 0x2B81F}, {0x2B920, 0x2CEAF}, {0x2F800, 0x2FA1F}};
    for (size_t i = 0; c >= ranges[0][0] && i < sizeof ranges / sizeof *ranges; i++)
        if (c >= ranges[i][0] && c <= ranges[i][1]) return true;
    return false;
}

/* The first parts of BertNormalizer, a character at a time. */
static void clean(uint8_t parts, const ht_marked_text *in, ht_marked_text *out) {
    rewriter r = {in, out, 0};
    while (r.at < in->text.len) {
        size_t length;
        uint32_t c = ht_utf8_next(in->text.data + r.at, &length);
        const bool is_space = parts & HT_BERT_CLEAN && ht_unicode_class(c) & HT_CLASS_SPACE;
        if (parts & HT_BERT_CLEAN && ht_unicode_dropped(c) & HT_DROP_CONTROL)
            r.at += length;
        else if (parts & HT_BERT_CHINESE && is_chinese(c)) {
            put_character(&r, ' ', 0);
            put_character(&r, c, 1);
            put_character(&r, ' ', 1);
        } else
            put_character(&r, is_space ? ' ' : c, 0);
    }
}

static void swap(ht_marked_text *a, ht_marked_text *b) {
    ht_marked_text held = *a;
    *a = *b;
    *b = held;
    ht_text_clear(&b->text);
    ht_text_clear(&b->marks);
    ht_text_clear(&b->origins);
}

static bool failed(const ht_marked_text *t) { return t->text.failed || t->marks.failed || t->origins.failed; }

/* Whether a text is left for the next part. */
static bool is_left(const ht_marked_text *t) { return t->text.len && !failed(t); }

static ht_status normalize_bert(uint8_t parts, ht_marked_text *text, ht_marked_text *scratch, ht_error *err) {
    ht_status st = HT_OK;
    if (parts & (HT_BERT_CLEAN | HT_BERT_CHINESE)) {
        clean(parts, text, scratch);
        swap(text, scratch);
    }
    if (is_left(text) && parts & HT_BERT_ACCENTS) {
        st = change_characters(HT_NORMAL_FORM, HT_NFD, text, scratch, err);
        swap(text, scratch);
        if (st || !is_left(text)) return st;
        drop_characters(HT_DROP_ACCENT, text, scratch);
        swap(text, scratch);
    }
    if (is_left(text) && parts & HT_BERT_LOWERCASE) {
        st = change_characters(HT_NORMAL_LOWERCASE, HT_NFC, text, scratch, err);
        swap(text, scratch);
    }
    return st;
}

/* Writes the text after one step to `out`. */
static ht_status apply(const ht_normal_step *s, ht_regex_work **regex, const ht_marked_text *in, ht_marked_text *out,
                       ht_error *err) {
    switch (s->kind) {
    case HT_NORMAL_FORM:
    case HT_NORMAL_LOWERCASE: return change_characters(s->kind, s->form, in, out, err);
    case HT_NORMAL_PREPEND:
        ht_text_append(&out->text, s->to, s->n_to);
        put_marks(out, 0);
        put_origins(out, in, 0);
        copy(in, 0, in->text.len, out);
        return HT_OK;
    case HT_NORMAL_REPLACE: replace_text(s, in, out); return HT_OK;
    case HT_NORMAL_REPLACE_REGEX: return replace_regex(s, regex, in, out, err);
    case HT_NORMAL_STRIP: strip(s, in, out); return HT_OK;
    case HT_NORMAL_STRIP_ACCENTS: drop_characters(HT_DROP_MARK, in, out); return HT_OK;
    case HT_NORMAL_CHARSMAP: return apply_charsmap(s, in, out, err);
    case HT_NORMAL_BERT: break; /* of several steps: normalize_bert */
    }
    return HT_OK;
}

void ht_marked_text_discard(ht_marked_text *t) {
    ht_text_discard(&t->text);
    ht_text_discard(&t->marks);
    ht_text_discard(&t->origins);
}

ht_status ht_normalize(const ht_normal_step *steps, int n_steps, ht_regex_work **regex, ht_marked_text *text,
                       ht_marked_text *scratch, ht_error *err) {
    scratch->wants_marks = text->wants_marks;
    scratch->wants_origins = text->wants_origins;
    ht_text_clear(&scratch->text);
    ht_text_clear(&scratch->marks);
    ht_text_clear(&scratch->origins);
    for (int i = 0; i < n_steps && is_left(text); i++) {
        ht_status st;
        if (steps[i].kind == HT_NORMAL_BERT)
            st = normalize_bert(steps[i].bert, text, scratch, err);
        else {
            st = apply(&steps[i], regex, text, scratch, err);
            swap(text, scratch);
        }
        if (st) return st;
        if (failed(scratch)) break;
    }
    return failed(text) || failed(scratch) ? ht_fail_memory(err, text->text.len, "normalised text") : HT_OK;
}

bool ht_tokenizer_lowercases(const ht_tokenizer *t) {
    for (int i = 0; i < t->n_normalizer; i++)
        if (t->normalizer[i].kind == HT_NORMAL_LOWERCASE || t->normalizer[i].bert & HT_BERT_LOWERCASE) return true;
    return false;
}

void ht_normal_step_free(ht_normal_step *s) {
    free(s->from);
    free(s->to);
    ht_regex_free(s->regex);
    ht_charsmap_free(&s->charsmap);
    *s = (ht_normal_step){0};
}
