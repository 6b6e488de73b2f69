/* Normalizer stage: each step rewrites a whole span of text. */
#include "base/error.h"
#include "tokenizer/tokenizer.h"

#include <stdlib.h>
#include <string.h>

static void replace_text(const ht_normal_step *s, const ht_text *in, ht_text *out) {
    const char *p = in->data, *end = in->data + in->len;
    while (p < end) {
        const char *hit = s->n_from ? memchr(p, s->from[0], (size_t)(end - p)) : NULL;
        while (hit && ((size_t)(end - hit) < s->n_from || memcmp(hit, s->from, s->n_from) != 0))
            hit = hit + 1 < end ? memchr(hit + 1, s->from[0], (size_t)(end - hit - 1)) : NULL;
        if (!hit) break;
        ht_text_append(out, p, (size_t)(hit - p));
        ht_text_append(out, s->to, s->n_to);
        p = hit + s->n_from;
    }
    ht_text_append(out, p, (size_t)(end - p));
}

static ht_status replace_regex(const ht_normal_step *s, ht_regex_work **regex, const ht_text *in, ht_text *out,
                               ht_error *err) {
    if (!*regex && !(*regex = ht_regex_work_new())) return ht_fail_memory(err, in->len, "normalizer");
    size_t done = 0, from = 0;
    while (from <= in->len) {
        bool found;
        size_t begin, end;
        ht_status st = ht_regex_find(s->regex, *regex, in->data, in->len, from, &found, &begin, &end, err);
        if (st) return st;
        if (!found) break;
        ht_text_append(out, in->data + done, begin - done);
        ht_text_append(out, s->to, s->n_to);
        done = from = end;
        if (begin == end) { /* empty match: continue behind the next character */
            size_t length = 1;
            if (end < in->len) ht_utf8_next(in->data + end, &length);
            from += length;
        }
    }
    ht_text_append(out, in->data + done, in->len - done);
    return HT_OK;
}

static void strip(const ht_normal_step *s, const ht_text *in, ht_text *out) {
    size_t begin = 0, end = in->len, length;
    while (s->left && begin < end && (ht_unicode_class(ht_utf8_next(in->data + begin, &length)) & HT_CLASS_SPACE))
        begin += length;
    while (s->right && end > begin) {
        size_t last = end - 1;
        while (last > begin && ((unsigned char)in->data[last] & 0xC0) == 0x80) last--;
        if (!(ht_unicode_class(ht_utf8_next(in->data + last, &length)) & HT_CLASS_SPACE)) break;
        end = last;
    }
    ht_text_append(out, in->data + begin, end - begin);
}

static ht_status apply(const ht_normal_step *s, ht_regex_work **regex, const ht_text *in, ht_text *out, ht_error *err) {
    switch (s->kind) {
    case HT_NORMAL_FORM: return ht_unicode_normalize(s->form, in->data, in->len, out, err);
    case HT_NORMAL_PREPEND:
        if (in->len) ht_text_append(out, s->to, s->n_to);
        ht_text_append(out, in->data, in->len);
        return HT_OK;
    case HT_NORMAL_REPLACE: replace_text(s, in, out); return HT_OK;
    case HT_NORMAL_REPLACE_REGEX: return replace_regex(s, regex, in, out, err);
    case HT_NORMAL_LOWERCASE: ht_unicode_lowercase(in->data, in->len, out); return HT_OK;
    case HT_NORMAL_STRIP: strip(s, in, out); return HT_OK;
    }
    return HT_OK;
}

/* Normalises `text` in place; `scratch` is the second buffer. */
ht_status ht_normalize(const ht_normal_step *steps, int n_steps, ht_regex_work **regex, ht_text *text, ht_text *scratch,
                       ht_error *err) {
    for (int i = 0; i < n_steps && text->len; i++) {
        ht_text_clear(scratch);
        ht_status st = apply(&steps[i], regex, text, scratch, err);
        if (st) return st;
        if (scratch->failed) return ht_fail_memory(err, text->len, "normalised text");
        ht_text swap = *text;
        *text = *scratch;
        *scratch = swap;
    }
    return text->failed ? ht_fail_memory(err, text->len, "normalised text") : HT_OK;
}

void ht_normal_step_free(ht_normal_step *s) {
    free(s->from);
    free(s->to);
    ht_regex_free(s->regex);
    *s = (ht_normal_step){0};
}
