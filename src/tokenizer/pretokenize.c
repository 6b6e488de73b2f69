/* Pre-tokenizer stage: each step splits or rewrites the pieces of the previous step, depth first and without a list of
 * pieces; the last step passes its pieces to the model. */
#include "base/error.h"
#include "tokenizer/tokenizer.h"

#include <stdlib.h>
#include <string.h>

static void run_step(ht_encoder *e, int step, const char *text, size_t n, const ht_origin *origins, bool at_start);

/* Split of one piece: receives its spans, matches and gaps in order, and merges them by `behavior`. */
typedef struct splitter {
    ht_encoder *e;
    int next_step;
    const char *text;
    const ht_origin *origins;
    bool at_start;
    ht_behavior behavior;
    bool invert;
    bool pending, pending_is_match; /* span that may still be extended: text[begin, end) */
    bool previous_is_match;
    size_t begin, end;
} splitter;

static void emit(splitter *s, size_t begin, size_t end) {
    run_step(s->e, s->next_step, s->text + begin, end - begin, ht_origins_from(s->origins, begin),
             s->at_start && begin == 0);
}

static void flush(splitter *s) {
    if (s->pending) emit(s, s->begin, s->end);
    s->pending = false;
}

static void add_span(splitter *s, size_t begin, size_t end, bool is_match) {
    is_match = is_match != s->invert;
    bool joins = false;
    switch (s->behavior) {
    case HT_SPLIT_ISOLATED: emit(s, begin, end); return;
    case HT_SPLIT_REMOVED:
        if (!is_match) emit(s, begin, end);
        return;
    case HT_SPLIT_CONTIGUOUS: joins = is_match == s->previous_is_match; break;
    case HT_SPLIT_MERGED_WITH_PREVIOUS: /* a match joins the gap before it, unless another match did */
        joins = is_match && !s->previous_is_match;
        break;
    default: /* HT_SPLIT_MERGED_WITH_NEXT: a match joins the gap after it; of adjacent matches, the last */
        joins = s->pending_is_match && !is_match;
    }
    s->previous_is_match = is_match;
    if (!s->pending || !joins) {
        flush(s);
        s->begin = begin;
    }
    s->pending = true;
    s->pending_is_match = is_match;
    s->end = end;
}

static void split_by_regex(splitter *s, const ht_regex *re, size_t n) {
    ht_encoder *e = s->e;
    if (!e->regex && !(e->regex = ht_regex_work_new())) {
        e->status = ht_fail_memory(e->err, n, "pre-tokenizer");
        return;
    }
    size_t done = 0, from = 0, last_end = SIZE_MAX;
    while (from <= n && !e->status) {
        ht_regex_match match;
        e->status = ht_regex_find(re, e->regex, s->text, n, from, &match, e->err);
        if (e->status || !match.found) break;
        bool empty = match.begin == match.end;
        if (!empty || match.end != last_end) { /* an empty match directly after a match is dropped */
            if (done < match.begin) add_span(s, done, match.begin, false);
            add_span(s, match.begin, match.end, true);
            done = last_end = match.end;
        }
        from = match.end;
        if (empty) {
            size_t length = 1;
            if (from < n) ht_utf8_next(s->text + from, &length);
            from += length;
        }
    }
    if (!e->status && done < n) add_span(s, done, n, false);
}

static void split_by_text(splitter *s, const char *pattern, size_t n_pattern, size_t n) {
    size_t done = 0, at = 0;
    while (n_pattern && at + n_pattern <= n) {
        const char *hit = memchr(s->text + at, pattern[0], n - n_pattern - at + 1);
        if (!hit) break;
        at = (size_t)(hit - s->text);
        if (memcmp(hit, pattern, n_pattern) != 0) {
            at++;
            continue;
        }
        if (done < at) add_span(s, done, at, false);
        add_span(s, at, at + n_pattern, true);
        done = at = at + n_pattern;
    }
    if (done < n) add_span(s, done, n, false);
}

static void split_by_class(splitter *s, uint8_t classes, size_t n) {
    size_t done = 0;
    for (size_t at = 0, length; at < n; at += length) {
        if (!(ht_unicode_class(ht_utf8_next(s->text + at, &length)) & classes)) continue;
        if (done < at) add_span(s, done, at, false);
        add_span(s, at, at + length, true);
        done = at + length;
    }
    if (done < n) add_span(s, done, n, false);
}

static void split_by_scan(splitter *s, ht_scan_fn *scan, size_t n) {
    for (size_t at = 0, end; at < n && !s->e->status; at = end) {
        end = scan(s->text, n, at);
        add_span(s, at, end, true);
    }
}

static void run_split(ht_encoder *e, int step, const char *text, size_t n, const ht_origin *origins, bool at_start) {
    const ht_pre_step *p = &e->t->pre[step];
    splitter s = {.e = e,
                  .next_step = step + 1,
                  .text = text,
                  .origins = origins,
                  .at_start = at_start,
                  .behavior = p->behavior,
                  .invert = p->invert};
    if (p->scan)
        split_by_scan(&s, p->scan, n);
    else if (p->regex)
        split_by_regex(&s, p->regex, n);
    else if (p->text)
        split_by_text(&s, p->text, p->n_text, n);
    else
        split_by_class(&s, p->classes, n);
    flush(&s);
}

/* Passes a ByteLevel piece on: as bytes to a BPE model, in the byte alphabet to others and to a further step. */
static void leave_byte_level(ht_encoder *e, int step, const char *text, size_t n, bool at_start) {
    if (step + 1 == e->t->n_pre && e->t->byte_level) {
        ht_encode_piece(e, text, n, NULL);
        return;
    }
    ht_text *spelled = &e->spelled[step];
    ht_text_clear(spelled);
    for (size_t i = 0; i < n; i++) ht_text_append_utf8(spelled, ht_char_of_byte((unsigned char)text[i]));
    if (spelled->failed)
        e->status = ht_fail_memory(e->err, n, "pre-tokenizer");
    else
        run_step(e, step + 1, spelled->data, spelled->len, NULL, at_start);
}

static void run_byte_level(ht_encoder *e, int step, const char *text, size_t n, bool at_start) {
    const ht_pre_step *p = &e->t->pre[step];
    if (p->add_prefix_space && text[0] != ' ') {
        ht_text *rewritten = &e->scratch[step];
        ht_text_clear(rewritten);
        ht_text_append(rewritten, " ", 1);
        ht_text_append(rewritten, text, n);
        if (rewritten->failed) {
            e->status = ht_fail_memory(e->err, n, "pre-tokenizer");
            return;
        }
        text = rewritten->data;
        n = rewritten->len;
    }
    if (!p->scan) {
        leave_byte_level(e, step, text, n, at_start);
        return;
    }
    for (size_t at = 0, end; at < n && !e->status; at = end) {
        end = p->scan(text, n, at);
        leave_byte_level(e, step, text + at, end - at, at_start && at == 0);
    }
}

/* Origins after Metaspace: a prefix comes from the first character, a replacement from its space. */
static const ht_origin *metaspace_origins(ht_encoder *e, int step, const char *text, size_t n, const ht_origin *origins,
                                          bool prefix) {
    ht_text *made = &e->origins[step];
    const size_t n_replacement = e->t->pre[step].n_replacement;
    ht_text_clear(made);
    for (size_t i = 0; prefix && i < n_replacement; i++) ht_text_append(made, &origins[0], sizeof *origins);
    for (size_t at = 0; at < n; at++) {
        const size_t times = text[at] == ' ' ? n_replacement : 1;
        for (size_t i = 0; i < times; i++) ht_text_append(made, &origins[at], sizeof *origins);
    }
    if (made->failed) e->status = ht_fail_memory(e->err, n, "offsets");
    return (const ht_origin *)(const void *)made->data;
}

static void run_metaspace(ht_encoder *e, int step, const char *text, size_t n, const ht_origin *origins,
                          bool at_start) {
    const ht_pre_step *p = &e->t->pre[step];
    bool has_prefix = text[0] == ' ' || (n >= p->n_replacement && memcmp(text, p->replacement, p->n_replacement) == 0);
    ht_text *rewritten = &e->scratch[step];
    ht_text_clear(rewritten);
    const bool adds_prefix = !has_prefix && (p->add_prefix_space || (p->prefix_first && at_start));
    if (adds_prefix) ht_text_append(rewritten, p->replacement, p->n_replacement);
    ht_append_replaced(rewritten, text, n, " ", 1, p->replacement, p->n_replacement);
    if (rewritten->failed) {
        e->status = ht_fail_memory(e->err, n, "pre-tokenizer");
        return;
    }
    if (origins) origins = metaspace_origins(e, step, text, n, origins, adds_prefix);
    if (!p->split) {
        run_step(e, step + 1, rewritten->data, rewritten->len, origins, at_start);
        return;
    }
    splitter s = {.e = e,
                  .next_step = step + 1,
                  .text = rewritten->data,
                  .origins = origins,
                  .at_start = at_start,
                  .behavior = HT_SPLIT_MERGED_WITH_NEXT};
    split_by_text(&s, p->replacement, p->n_replacement, rewritten->len);
    flush(&s);
}

static void run_step(ht_encoder *e, int step, const char *text, size_t n, const ht_origin *origins, bool at_start) {
    if (n == 0 || e->status) return;
    if (step == e->t->n_pre) {
        ht_encode_piece(e, text, n, origins);
        return;
    }
    switch (e->t->pre[step].kind) {
    case HT_PRE_SPLIT: run_split(e, step, text, n, origins, at_start); break;
    case HT_PRE_BYTE_LEVEL: run_byte_level(e, step, text, n, at_start); break;
    case HT_PRE_METASPACE: run_metaspace(e, step, text, n, origins, at_start); break;
    }
}

void ht_pretokenize(ht_encoder *e, const char *text, size_t n, const ht_origin *origins, bool at_start) {
    run_step(e, 0, text, n, origins, at_start);
}

void ht_pre_step_free(ht_pre_step *s) {
    ht_regex_free(s->regex);
    free(s->pattern);
    free(s->text);
    free(s->replacement);
    *s = (ht_pre_step){0};
}
