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

static void put(ht_marked_text *out, const char *bytes, size_t n, char mark) {
    ht_text_append(&out->text, bytes, n);
    put_marks(out, mark);
}

static void copy(const ht_marked_text *in, size_t begin, size_t end, ht_marked_text *out) {
    ht_text_append(&out->text, in->text.data + begin, end - begin);
    if (in->wants_marks) ht_text_append(&out->marks, in->marks.data + begin, end - begin);
}

/* Mark of text that replaces bytes [begin, end): set if any of them is marked. */
static char mark_of(const ht_marked_text *in, size_t begin, size_t end) {
    return in->wants_marks && begin < end && memchr(in->marks.data + begin, 1, end - begin) ? 1 : 0;
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
        put(out, s->to, s->n_to, mark_of(in, at, at + s->n_from));
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
        put(out, s->to, s->n_to, mark_of(in, match.begin, match.end));
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

/* Normal form or lower case. With marks, works on pieces that begin with an ASCII character, which never affects the
 * text before it. An unchanged ASCII character keeps its mark. */
static ht_status change_characters(const ht_normal_step *s, const ht_marked_text *in, ht_marked_text *out,
                                   ht_error *err) {
    const char *text = in->text.data;
    ht_status st = HT_OK;
    for (size_t begin = 0, end; begin < in->text.len && !st; begin = end) {
        for (end = begin + 1; end < in->text.len && (!in->wants_marks || (unsigned char)text[end] >= 0x80);) end++;
        if (s->kind == HT_NORMAL_FORM)
            st = ht_unicode_normalize(s->form, text + begin, end - begin, &out->text, err);
        else
            ht_unicode_lowercase(text + begin, end - begin, &out->text);
        if (!in->wants_marks || out->text.failed || out->text.len == out->marks.len) continue;
        const size_t rest = begin + (out->text.data[out->marks.len] == text[begin]);
        if (rest > begin) ht_text_append(&out->marks, in->marks.data + begin, 1);
        put_marks(out, mark_of(in, rest, end));
    }
    return st;
}

static ht_status apply(const ht_normal_step *s, ht_regex_work **regex, const ht_marked_text *in, ht_marked_text *out,
                       ht_error *err) {
    switch (s->kind) {
    case HT_NORMAL_FORM:
    case HT_NORMAL_LOWERCASE: return change_characters(s, in, out, err);
    case HT_NORMAL_PREPEND:
        if (in->text.len) put(out, s->to, s->n_to, 0);
        copy(in, 0, in->text.len, out);
        return HT_OK;
    case HT_NORMAL_REPLACE: replace_text(s, in, out); return HT_OK;
    case HT_NORMAL_REPLACE_REGEX: return replace_regex(s, regex, in, out, err);
    case HT_NORMAL_STRIP: strip(s, in, out); return HT_OK;
    }
    return HT_OK;
}

static bool failed(const ht_marked_text *t) { return t->text.failed || t->marks.failed; }

void ht_marked_text_discard(ht_marked_text *t) {
    ht_text_discard(&t->text);
    ht_text_discard(&t->marks);
}

ht_status ht_normalize(const ht_normal_step *steps, int n_steps, ht_regex_work **regex, ht_marked_text *text,
                       ht_marked_text *scratch, ht_error *err) {
    scratch->wants_marks = text->wants_marks;
    for (int i = 0; i < n_steps && text->text.len && !failed(text); i++) {
        ht_text_clear(&scratch->text);
        ht_text_clear(&scratch->marks);
        ht_status st = apply(&steps[i], regex, text, scratch, err);
        if (st) return st;
        if (failed(scratch)) return ht_fail_memory(err, text->text.len, "normalised text");
        ht_marked_text swap = *text;
        *text = *scratch;
        *scratch = swap;
    }
    return failed(text) ? ht_fail_memory(err, text->text.len, "normalised text") : HT_OK;
}

void ht_normal_step_free(ht_normal_step *s) {
    free(s->from);
    free(s->to);
    ht_regex_free(s->regex);
    *s = (ht_normal_step){0};
}
