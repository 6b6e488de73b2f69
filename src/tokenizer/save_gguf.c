/* A loaded tokenizer as GGUF metadata: the names of its stages, its tokens with their types, and merges or scores. */
#include "base/error.h"
#include "base/log.h"
#include "tokenizer/gguf_stages.h"
#include "tokenizer/save.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static ht_status out_of_memory(ht_error *err) { return ht_fail_memory(err, 0, "GGUF metadata"); }

static ht_status set(ht_json *metadata, const char *key, ht_json *value, ht_error *err) {
    return value && !ht_json_object_set_new(metadata, key, value) ? HT_OK : out_of_memory(err);
}

static ht_status set_bool(ht_json *metadata, const char *key, bool value, ht_error *err) {
    return set(metadata, key, ht_json_pack("{s:s, s:b}", "dtype", "bool", "value", value), err);
}

/* A list of numbers, which is taken over. */
static ht_status set_numbers(ht_json *metadata, const char *key, const char *dtype, ht_json *list, ht_error *err) {
    return set(metadata, key, list ? ht_json_pack("{s:s, s:o}", "dtype", dtype, "value", list) : NULL, err);
}

/* ---- stages of byte-level BPE ---- */

/* Whether matches and the texts between them become the same pieces: the pattern of a scanner matches everywhere. */
static ht_pre_step plain_split(ht_pre_step s) {
    if (s.kind == HT_PRE_SPLIT && s.scan && s.behavior == HT_SPLIT_REMOVED && s.invert) {
        s.behavior = HT_SPLIT_ISOLATED;
        s.invert = false;
    }
    return s;
}

/* The next character of a pattern. Files spell line breaks and characters outside of ASCII as such or as escapes. */
static uint32_t next_character(const char **at) {
    size_t length;
    const char *p = *at;
    char *end;
    if (p[0] == '\\' && p[1] == '\\') {
        *at += 2;
        return 0x110000; /* itself, and not the begin of an escape */
    }
    if (p[0] == '\\' && (p[1] == 'r' || p[1] == 'n')) {
        *at += 2;
        return p[1] == 'r' ? '\r' : '\n';
    }
    if (strncmp(p, "\\x{", 3) == 0) {
        const unsigned long c = strtoul(p + 3, &end, 16);
        if (*end == '}' && c >= 0x80 && c < 0x110000) {
            *at = end + 1;
            return (uint32_t)c;
        }
    }
    const uint32_t c = ht_utf8_next(p, &length);
    *at += length;
    return c;
}

static bool same_pattern(const char *a, const char *b) {
    while (*a && *b)
        if (next_character(&a) != next_character(&b)) return false;
    return *a == *b;
}

static bool same_step(const ht_pre_step *one, const ht_pre_step *other) {
    const ht_pre_step a = plain_split(*one), b = plain_split(*other);
    if (a.kind != b.kind || a.add_prefix_space != b.add_prefix_space || a.scan != b.scan) return false;
    if (a.kind != HT_PRE_SPLIT) return true;
    if (a.behavior != b.behavior || a.invert != b.invert || a.classes != b.classes || a.text || b.text) return false;
    if (a.scan || !a.pattern || !b.pattern) return !a.pattern == !b.pattern;
    return same_pattern(a.pattern, b.pattern); /* which hold no NUL */
}

static bool same_normalizer(const ht_tokenizer *a, const ht_tokenizer *b) {
    if (a->n_normalizer != b->n_normalizer) return false;
    for (int i = 0; i < a->n_normalizer; i++)
        if (a->normalizer[i].kind != HT_NORMAL_FORM || b->normalizer[i].kind != HT_NORMAL_FORM ||
            a->normalizer[i].form != b->normalizer[i].form)
            return false;
    return true;
}

/* Whether step i is a Split by GPT-2's pattern before a ByteLevel without one, which is ByteLevel's own pattern. */
static bool splits_as_gpt2(const ht_tokenizer *t, int i) {
    if (i + 1 >= t->n_pre) return false;
    const ht_pre_step split = plain_split(t->pre[i]), *bytes = &t->pre[i + 1];
    return split.kind == HT_PRE_SPLIT && split.scan == ht_scan_gpt2 && split.behavior == HT_SPLIT_ISOLATED &&
           !split.invert && bytes->kind == HT_PRE_BYTE_LEVEL && !bytes->scan;
}

static bool same_pre_tokenizer(const ht_tokenizer *t, const ht_tokenizer *row) {
    int k = 0;
    for (int i = 0; i < t->n_pre; i++, k++) {
        if (k >= row->n_pre) return false;
        ht_pre_step step = t->pre[i];
        if (splits_as_gpt2(t, i)) {
            step = t->pre[++i];
            step.scan = ht_scan_gpt2;
        }
        if (!same_step(&step, &row->pre[k])) return false;
    }
    return k == row->n_pre;
}

/* The first row with the tokenizer's stages, or NULL: then *what is the difference to the nearest row. `merges`:
 * model.ignore_merges may differ. */
static ht_status find_stages(const ht_tokenizer *t, bool merges, const ht_gguf_stages **out, const char **what,
                             ht_error *err) {
    const ht_gguf_stages *row;
    *out = NULL;
    *what = "pre_tokenizer";
    for (size_t i = 0; !*out && (row = ht_gguf_stages_at(i)); i++) {
        ht_tokenizer *candidate = ht_tokenizer_new(err);
        if (!candidate) return HT_ERR_MEMORY;
        ht_status st = ht_gguf_stages_add(row, candidate, err);
        if (!st && same_pre_tokenizer(t, candidate)) {
            const bool normal = same_normalizer(t, candidate);
            if (normal && (merges || t->ignore_merges == candidate->ignore_merges))
                *out = row;
            else if (normal)
                *what = "model.ignore_merges";
            else if (!strcmp(*what, "pre_tokenizer"))
                *what = "normalizer";
        }
        ht_tokenizer_free(candidate);
        if (st) return st;
    }
    return HT_OK;
}

static ht_status set_stages(const ht_tokenizer *t, ht_json *metadata, ht_error *err) {
    const ht_gguf_stages *row;
    const char *what;
    ht_status st = find_stages(t, false, &row, &what, err);
    bool suffice = false;
    if (!st && !row && !strcmp(what, "model.ignore_merges")) st = ht_tokenizer_merges_suffice(t, &suffice, err);
    if (!st && suffice) st = find_stages(t, true, &row, &what, err);
    if (st) return st;
    if (!row)
        return ht_fail(err, HT_ERR_UNSUPPORTED,
                       "tokenizer.json: `%s` is that of no tokenizer that GGUF has a name for (tokenizer.ggml.pre)",
                       what);
    const char *name = row->names + 1;
    st = set(metadata, "tokenizer.ggml.model", ht_json_string("gpt2"), err);
    return st ? st : set(metadata, "tokenizer.ggml.pre", ht_json_stringn(name, strcspn(name, " ")), err);
}

/* ---- stages of SentencePiece-style BPE ---- */

static ht_status refuse(ht_error *err, const char *part, const char *why) {
    return ht_fail(err, HT_ERR_UNSUPPORTED, "tokenizer.json: GGUF cannot express its `%s`: %s", part, why);
}

static bool is_text(const char *text, size_t n, const char *expected) {
    return text && n == strlen(expected) && !memcmp(text, expected, n);
}

/* Whether a merge gives a token with a U+2581 that is not its first character. */
static bool merges_cross_words(const ht_tokenizer *t) {
    for (int32_t i = 0; i < t->merges.n; i++)
        if (t->vocab.length[t->merges.product[i]] > 1 &&
            strstr(ht_vocab_text(&t->vocab, t->merges.product[i]) + 1, HT_METASPACE))
            return true;
    return false;
}

static ht_status read_metaspace(const ht_tokenizer *t, bool *prefix, ht_error *err) {
    const ht_pre_step *s = &t->pre[0];
    if (!is_text(s->replacement, s->n_replacement, HT_METASPACE))
        return refuse(err, "pre_tokenizer", "Metaspace replaces a space by something else than U+2581");
    if (s->split && merges_cross_words(t))
        return refuse(err, "pre_tokenizer", "Metaspace splits a text within what the vocabulary has as one token");
    *prefix = s->add_prefix_space || s->prefix_first;
    if (s->prefix_first)
        ht_log_write(HT_LOG_WARNING, "tokenizer.json: a space is put before the start of a text alone (prepend_scheme "
                                     "`first`); with GGUF metadata also after each special token");
    return HT_OK;
}

/* A Split by spaces has no effect, as the normalizer has replaced them. */
static bool splits_nothing(const ht_pre_step *s) {
    return s->kind == HT_PRE_SPLIT && is_text(s->text, s->n_text, " ") && !s->invert;
}

/* Whether the stages are those of SentencePiece: spaces become U+2581, optionally with one before the text. */
static ht_status read_spaces(const ht_tokenizer *t, bool *prefix, ht_error *err) {
    const ht_normal_step *n = t->normalizer;
    const int prepends =
        t->n_normalizer && n[0].kind == HT_NORMAL_PREPEND && is_text(n[0].to, n[0].n_to, HT_METASPACE) ? 1 : 0;
    *prefix = prepends;
    if (t->n_pre == 1 && t->pre[0].kind == HT_PRE_METASPACE) {
        if (t->n_normalizer) return refuse(err, "normalizer", "there are steps before Metaspace");
        return read_metaspace(t, prefix, err);
    }
    if (t->n_pre > 1 || (t->n_pre == 1 && !splits_nothing(&t->pre[0])))
        return refuse(err, "pre_tokenizer", "SentencePiece vocabularies are not split into pieces there");
    n += prepends;
    if (t->n_normalizer != prepends + 1 || n->kind != HT_NORMAL_REPLACE || !is_text(n->from, n->n_from, " ") ||
        !is_text(n->to, n->n_to, HT_METASPACE))
        return refuse(err, "normalizer", "expected that spaces become U+2581, and nothing else");
    return HT_OK;
}

/* Whether characters without a token become bytes, or one unknown token per run. GGUF has no other option. */
static bool has_fallback(const ht_tokenizer *t) {
    for (int byte = 0; byte < 256; byte++)
        if (t->fallback_id[byte] < 0) return t->unk >= 0 && t->fuse_unk;
    return true;
}

/* llama.cpp cuts a text with listed merges at line breaks. */
static bool merges_mix_lines(const ht_tokenizer *t) {
    for (int32_t i = 0; i < t->merges.n; i++) {
        const char *text = ht_vocab_text(&t->vocab, t->merges.product[i]);
        const size_t n = t->vocab.length[t->merges.product[i]], breaks = strspn(text, "\n");
        if (breaks < n && (breaks || memchr(text, '\n', n))) return true;
    }
    return false;
}

/* why: what scores cannot express, or NULL when the caller requested a list. */
static ht_status check_list(const ht_tokenizer *t, bool prefix, const char *why, ht_error *err) {
    const bool crosses = merges_mix_lines(t);
    if (!prefix && !crosses) return HT_OK;
    return ht_fail(err, HT_ERR_UNSUPPORTED, "tokenizer.json: GGUF cannot express its `model.merges`: %s%s%s",
                   why ? why : "", why ? ", and " : "",
                   prefix ? "a space is put before the text, which listed merges of GGUF do not have"
                          : "a token has a line break and other text, where GGUF with listed merges cuts a text");
}

static ht_status set_merges(const ht_tokenizer *t, ht_json *metadata, ht_error *err) {
    const ht_vocab *v = &t->vocab;
    ht_merge_pair *list;
    size_t n;
    ht_text line = {0};
    ht_json *lines = ht_json_new_array();
    ht_status st = lines ? ht_tokenizer_list_merges(t, &list, &n, err) : out_of_memory(err);
    if (st) {
        ht_json_decref(lines);
        return st;
    }
    for (size_t i = 0; !st && i < n; i++) {
        const char *left = ht_vocab_text(v, list[i].left);
        const size_t n_left = v->length[list[i].left], n_right = v->length[list[i].right];
        if (!n_left || !n_right || memchr(left + 1, ' ', n_left - 1)) {
            st = refuse(err, "model.merges", "a merge begins with a token that holds a space or nothing");
            break;
        }
        ht_text_clear(&line);
        ht_text_append(&line, left, n_left);
        ht_text_append(&line, " ", 1);
        ht_text_append(&line, ht_vocab_text(v, list[i].right), n_right);
        if (line.failed || ht_json_array_append_new(lines, ht_json_bytes(line.data, line.len))) st = out_of_memory(err);
    }
    ht_text_discard(&line);
    free(list);
    if (!st) return set(metadata, "tokenizer.ggml.merges", lines, err);
    ht_json_decref(lines);
    return st;
}

/* Scores that fall with the rank of a token; tokens that no merge produces have the lowest. */
static ht_status set_scores(const ht_tokenizer *t, const int32_t *order, int64_t n_rows, ht_json *metadata,
                            ht_error *err) {
    ht_json *scores = ht_json_new_array();
    const double lowest = -(double)t->vocab.n - 1;
    bool good = scores;
    for (int64_t id = 0; id < n_rows && good; id++)
        good = !ht_json_array_append_new(
            scores, ht_json_real(id < t->vocab.n && order[id] >= 0 ? -(double)order[id] - 1 : lowest));
    if (good) return set_numbers(metadata, "tokenizer.ggml.scores", "f32", scores, err);
    ht_json_decref(scores);
    return out_of_memory(err);
}

static ht_status set_sentencepiece(const ht_tokenizer *t, int64_t n_rows, bool list_merges, ht_json *metadata,
                                   ht_error *err) {
    bool prefix;
    const char *why = NULL;
    int32_t *order = NULL;
    if (t->ignore_merges) return refuse(err, "model.ignore_merges", "it is true, in a vocabulary of SentencePiece");
    if (!t->byte_fallback)
        return refuse(err, "model.byte_fallback", "it is false, and a vocabulary of SentencePiece has it there");
    if (!has_fallback(t))
        return refuse(err, "model.unk_token", "not every byte has a token, and unknown characters do not become one");
    ht_status st = read_spaces(t, &prefix, err);
    if (!st && !list_merges) st = ht_tokenizer_score_merges(t, &order, &why, err);
    list_merges |= why != NULL;
    if (!st && list_merges) st = check_list(t, prefix, why, err);
    if (!st) st = set(metadata, "tokenizer.ggml.model", ht_json_string(list_merges ? "gemma4" : "llama"), err);
    if (!st && !list_merges) st = set(metadata, "tokenizer.ggml.pre", ht_json_string("default"), err);
    if (!st) st = set_bool(metadata, "tokenizer.ggml.add_space_prefix", prefix, err);
    if (!st) st = list_merges ? set_merges(t, metadata, err) : set_scores(t, order, n_rows, metadata, err);
    free(order);
    return st;
}

/* ---- WordPiece and Unigram ---- */

static const ht_normal_step *find_normal(const ht_tokenizer *t, ht_normal_kind kind) {
    for (int i = 0; i < t->n_normalizer; i++)
        if (t->normalizer[i].kind == kind) return &t->normalizer[i];
    return NULL;
}

/* The part of the stages that the format's keys express. */
static ht_gguf_keys keys_of(const ht_tokenizer *t) {
    const ht_normal_step *bert = find_normal(t, HT_NORMAL_BERT), *map = find_normal(t, HT_NORMAL_CHARSMAP);
    ht_gguf_keys k = {.is_bert = t->model == HT_MODEL_WORDPIECE,
                      .begin = t->n_prefix ? t->prefix[0] : -1,
                      .end = t->n_suffix ? t->suffix[0] : -1};
    if (bert) {
        k.lowercase = bert->bert & HT_BERT_LOWERCASE;
        k.strip_accents = bert->bert & HT_BERT_ACCENTS;
    }
    if (map) k.charsmap = (ht_bytes){map->charsmap.bytes, map->charsmap.n};
    for (int i = 0; i < t->n_pre; i++) {
        k.adds_prefix |= t->pre[i].kind == HT_PRE_METASPACE && (t->pre[i].add_prefix_space || t->pre[i].prefix_first);
        k.collapses |= t->pre[i].kind == HT_PRE_SPLIT && t->pre[i].classes == HT_CLASS_SPACE;
    }
    return k;
}

/* Sets the stages' own key, unless a reader makes the same of the format's keys. */
static ht_status set_stages_key(const ht_tokenizer *t, const ht_gguf_keys *k, ht_json *metadata, ht_error *err) {
    ht_tokenizer *read = ht_tokenizer_new(err);
    if (!read) return HT_ERR_MEMORY;
    read->vocab = t->vocab; /* lent */
    ht_gguf_keys as_read = *k;
    if (!k->is_bert) {
        as_read.begin = k->begin >= 0 ? t->bos : -1;
        as_read.end = k->end >= 0 ? t->eos : -1;
    }
    ht_status st = ht_gguf_keys_add(&as_read, read, err);
    ht_json *own = ht_tokenizer_stages(t, false), *theirs = st ? NULL : ht_tokenizer_stages(read, false);
    if (!st && (!own || !theirs)) st = out_of_memory(err);
    if (!st && !ht_json_equal(own, theirs)) {
        ht_text text = {0};
        ht_json_append(&text, own, HT_JSON_COMPACT);
        ht_log_write(HT_LOG_WARNING,
                     "tokenizer.json: other programs than this one read some of its stages as the common "
                     "ones from GGUF metadata");
        st = text.failed ? out_of_memory(err)
                         : set(metadata, HT_GGUF_STAGES_KEY, ht_json_stringn(text.data, text.len), err);
        ht_text_discard(&text);
    }
    ht_json_decref(own);
    ht_json_decref(theirs);
    read->vocab = (ht_vocab){0};
    ht_tokenizer_free(read);
    return st;
}

static ht_status set_id(ht_json *metadata, const char *key, int32_t id, ht_error *err) {
    return id < 0 ? HT_OK : set(metadata, key, ht_json_pack("{s:s, s:i}", "dtype", "u32", "value", (int)id), err);
}

static ht_status set_bert(const ht_tokenizer *t, const ht_gguf_keys *k, ht_json *metadata, ht_error *err) {
    if (!is_text(t->pieces.prefix, t->pieces.n_prefix, "##"))
        return refuse(err, "model.continuing_subword_prefix", "it is not `##`");
    if (t->pieces.most_chars != HT_WORDPIECE_CHARS)
        return refuse(err, "model.max_input_chars_per_word", "it is not 100");
    ht_status st = set_id(metadata, "tokenizer.ggml.cls_token_id", k->begin, err);
    if (!st) st = set_id(metadata, "tokenizer.ggml.seperator_token_id", k->end, err);
    if (!st) st = set_bool(metadata, "tokenizer.ggml.normalizer.lowercase", k->lowercase, err);
    if (!st) st = set_bool(metadata, "tokenizer.ggml.normalizer.strip_accents", k->strip_accents, err);
    if (!st) st = set_bool(metadata, "tokenizer.ggml.add_bos_token", k->begin >= 0, err);
    return st ? st : set_bool(metadata, "tokenizer.ggml.add_sep_token", k->end >= 0, err);
}

static ht_status set_charsmap(const ht_tokenizer *t, ht_bytes map, ht_json *metadata, ht_error *err) {
    for (int i = 0; i < t->n_normalizer; i++) {
        const ht_charsmap *m = &t->normalizer[i].charsmap;
        if (m->n && (m->n != map.len || memcmp(m->bytes, map.data, m->n) != 0))
            return refuse(err, "normalizer", "it has two different character maps");
    }
    ht_json *bytes = ht_json_new_array();
    bool good = bytes;
    for (size_t i = 0; i < map.len && good; i++)
        good = !ht_json_array_append_new(bytes, ht_json_integer((unsigned char)map.data[i]));
    if (good) return set_numbers(metadata, HT_GGUF_CHARSMAP, "u8", bytes, err);
    ht_json_decref(bytes);
    return out_of_memory(err);
}

/* The score of a row. Added tokens are found before the model, and fillers never. */
static double score_of(const ht_tokenizer *t, int64_t id) {
    if (id < t->pieces.n && !isnan(t->pieces.score[id])) return t->pieces.score[id];
    return id < t->vocab.n && t->flags[id] & HT_TOKEN_ADDED ? 0 : -10000;
}

static ht_status set_row_scores(const ht_tokenizer *t, const char *key, const char *dtype, int64_t n_rows,
                                ht_json *metadata, ht_error *err) {
    ht_json *scores = ht_json_new_array();
    bool good = scores;
    for (int64_t id = 0; id < n_rows && good; id++)
        good = !ht_json_array_append_new(scores, ht_json_real(score_of(t, id)));
    if (good) return set_numbers(metadata, key, dtype, scores, err);
    ht_json_decref(scores);
    return out_of_memory(err);
}

static ht_status set_t5(const ht_tokenizer *t, const ht_gguf_keys *k, int64_t n_rows, ht_json *metadata,
                        ht_error *err) {
    bool rounds = false;
    if (t->unk < 0) return refuse(err, "model.unk_id", "it is null");
    for (int32_t id = 0; id < t->pieces.n; id++) {
        const double score = t->pieces.score[id];
        rounds |= !isnan(score) && (double)(float)score != score;
    }
    ht_status st = set_row_scores(t, "tokenizer.ggml.scores", "f32", n_rows, metadata, err);
    if (!st && rounds) st = set_row_scores(t, HT_GGUF_SCORES, "f64", n_rows, metadata, err);
    if (!st) st = set_bool(metadata, "tokenizer.ggml.add_space_prefix", k->adds_prefix, err);
    if (!st) st = set_bool(metadata, "tokenizer.ggml.remove_extra_whitespaces", k->collapses, err);
    if (!st) st = set_bool(metadata, "tokenizer.ggml.add_bos_token", k->begin >= 0, err);
    if (!st) st = set_bool(metadata, "tokenizer.ggml.add_eos_token", k->end >= 0, err);
    if (!st && t->eos < 0) st = set_id(metadata, "tokenizer.ggml.eos_token_id", k->end, err);
    return !st && k->charsmap.data ? set_charsmap(t, k->charsmap, metadata, err) : st;
}

static ht_status set_pieces(const ht_tokenizer *t, int64_t n_rows, ht_json *metadata, ht_error *err) {
    const ht_gguf_keys k = keys_of(t);
    ht_status st = set(metadata, "tokenizer.ggml.model", ht_json_string(k.is_bert ? "bert" : "t5"), err);
    if (!st) st = set(metadata, "tokenizer.ggml.pre", ht_json_string("default"), err);
    if (!st) st = k.is_bert ? set_bert(t, &k, metadata, err) : set_t5(t, &k, n_rows, metadata, err);
    return st ? st : set_stages_key(t, &k, metadata, err);
}

/* ---- tokens ---- */

static bool is_byte(const ht_tokenizer *t, int32_t id) {
    unsigned byte;
    const char *text = ht_vocab_text(&t->vocab, id);
    return t->byte_fallback && t->vocab.length[id] == 6 && sscanf(text, "<0x%2X>", &byte) == 1 &&
           t->fallback_id[byte & 255] == id;
}

static int type_of(const ht_tokenizer *t, int32_t id) {
    if (id == t->unk && (t->unk_text || t->model == HT_MODEL_UNIGRAM)) return HT_GGUF_TOKEN_UNKNOWN;
    if (t->flags[id] & HT_TOKEN_SPECIAL) return HT_GGUF_TOKEN_CONTROL;
    if (t->flags[id] & HT_TOKEN_ADDED) return HT_GGUF_TOKEN_USER_DEFINED;
    if (t->flags[id] & HT_TOKEN_UNUSED) return HT_GGUF_TOKEN_UNUSED;
    return is_byte(t, id) ? HT_GGUF_TOKEN_BYTE : HT_GGUF_TOKEN_NORMAL;
}

/* A user-defined token of SentencePiece is written as it occurs in a text, with spaces. */
static ht_json *spelled(const char *text, size_t n) {
    ht_text out = {0};
    ht_append_replaced(&out, text, n, HT_METASPACE, 3, " ", 1);
    ht_json *value = out.failed ? NULL : ht_json_stringn(n ? out.data : "", out.len);
    ht_text_discard(&out);
    return value;
}

/* A token of WordPiece: those of words begin with U+2581, those within words have no prefix. */
static ht_json *spelled_as_word(const char *text, size_t n) {
    ht_text out = {0};
    if (n >= 2 && memcmp(text, "##", 2) == 0) return ht_json_stringn(text + 2, n - 2);
    ht_text_append(&out, HT_METASPACE, 3);
    ht_text_append(&out, text, n);
    ht_json *value = out.failed ? NULL : ht_json_stringn(out.data, out.len);
    ht_text_discard(&out);
    return value;
}

/* Text and type of a token, or of the filler for an id without one; the caller owns *text, NULL when memory ran out. */
static int token_of(const ht_tokenizer *t, int64_t id, ht_json **text) {
    if (id >= t->vocab.n || !ht_vocab_has(&t->vocab, (int32_t)id)) {
        char filler[32];
        snprintf(filler, sizeof filler, "[PAD%lld]", (long long)id);
        *text = ht_json_string(filler);
        return HT_GGUF_TOKEN_UNUSED;
    }
    const char *stored = ht_vocab_text(&t->vocab, (int32_t)id);
    const size_t n = t->vocab.length[id];
    const int type = type_of(t, (int32_t)id);
    if (t->model == HT_MODEL_WORDPIECE && type != HT_GGUF_TOKEN_CONTROL && type != HT_GGUF_TOKEN_UNKNOWN)
        *text = spelled_as_word(stored, n);
    else if (t->model != HT_MODEL_WORDPIECE && type == HT_GGUF_TOKEN_USER_DEFINED && !t->decode.byte_level)
        *text = spelled(stored, n);
    else
        *text = ht_json_stringn(stored, n);
    return type;
}

/* llama.cpp ends its process on a file in which two tokens have one text. */
static ht_status check_distinct(const ht_json *tokens, ht_error *err) {
    ht_vocab seen = {0};
    ht_status st = ht_vocab_reserve(&seen, (int32_t)ht_json_array_size(tokens), 0, err);
    for (size_t i = 0; !st && i < ht_json_array_size(tokens); i++) {
        const ht_json *token = ht_json_array_get(tokens, i);
        st = ht_vocab_set(&seen, (int32_t)i, ht_json_string_value(token), ht_json_string_length(token), err);
    }
    if (!st) st = ht_vocab_index(&seen, err);
    for (int32_t id = 0; !st && id < seen.n; id++) {
        const int32_t found = ht_vocab_find(&seen, ht_vocab_text(&seen, id), seen.length[id]);
        if (found != id)
            st = ht_fail(err, HT_ERR_UNSUPPORTED,
                         "tokenizer.json: tokens %d and %d would both be `%.64s` in GGUF, where texts differ", (int)id,
                         (int)found, ht_vocab_text(&seen, id));
    }
    ht_vocab_free(&seen);
    return st;
}

static ht_status set_tokens(const ht_tokenizer *t, int64_t n_rows, ht_json *metadata, ht_error *err) {
    ht_json *tokens = ht_json_new_array(), *types = ht_json_new_array(), *text;
    bool good = tokens && types;
    for (int64_t id = 0; id < n_rows && good; id++) {
        const int type = token_of(t, id, &text);
        good =
            text && !ht_json_array_append_new(tokens, text) && !ht_json_array_append_new(types, ht_json_integer(type));
    }
    ht_status st = good ? check_distinct(tokens, err) : out_of_memory(err);
    if (st) {
        ht_json_decref(tokens);
        ht_json_decref(types);
        return st;
    }
    st = set(metadata, "tokenizer.ggml.tokens", tokens, err);
    if (!st) return set_numbers(metadata, "tokenizer.ggml.token_type", "i32", types, err);
    ht_json_decref(types);
    return st;
}

/* ---- metadata ---- */

static int by_id(const void *a, const void *b) {
    const int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    return (x > y) - (x < y);
}

/* Writes the ids of added tokens that take the spaces on one side, in order. */
static ht_status set_strips(const ht_tokenizer *t, int64_t n_rows, bool right, ht_json *metadata, ht_error *err) {
    int32_t *ids = malloc((t->n_added + 1) * sizeof *ids);
    ht_json *list = ht_json_new_array();
    size_t n = 0;
    bool good = ids && list;
    for (size_t i = 0; good && i < t->n_added; i++)
        if (t->added[i].id < n_rows && (right ? t->added[i].rstrip : t->added[i].lstrip)) ids[n++] = t->added[i].id;
    if (n) qsort(ids, n, sizeof *ids, by_id);
    for (size_t i = 0; good && i < n; i++) good = !ht_json_array_append_new(list, ht_json_integer(ids[i]));
    free(ids);
    if (!good || !n) {
        ht_json_decref(list);
        return good ? HT_OK : out_of_memory(err);
    }
    ht_log_write(HT_LOG_WARNING,
                 "tokenizer.json: %zu added token%s `%s`, which only this program reads from GGUF metadata", n,
                 n == 1 ? " has" : "s have", right ? "rstrip" : "lstrip");
    return set_numbers(metadata, right ? HT_GGUF_RSTRIP : HT_GGUF_LSTRIP, "i32", list, err);
}

/* How added tokens treat the surrounding text. GGUF has no key for it. */
static ht_status set_added(const ht_tokenizer *t, int64_t n_rows, ht_json *metadata, ht_error *err) {
    for (size_t i = 0; i < t->n_added; i++)
        if (t->added[i].id < n_rows && t->added[i].single_word)
            return ht_fail(err, HT_ERR_UNSUPPORTED,
                           "tokenizer.json: the added token `%.64s` has `single_word`, which GGUF cannot express",
                           t->added[i].text);
    ht_status st = set_strips(t, n_rows, false, metadata, err);
    return st ? st : set_strips(t, n_rows, true, metadata, err);
}

/* Added tokens without a row are left out: checkpoints of a text model may have the tokenizer of one that sees images. */
static ht_status check_rows(const ht_tokenizer *t, int64_t n_rows, ht_error *err) {
    if (n_rows < 1 || n_rows > HT_MAX_VOCAB)
        return ht_fail(err, HT_ERR_LIMIT, "the embedding has %lld rows; tokenizers of 1 to %d tokens are supported",
                       (long long)n_rows, HT_MAX_VOCAB);
    int32_t n = 0;
    for (int32_t id = t->vocab.n - 1; id >= n_rows; id--) {
        if (!ht_vocab_has(&t->vocab, id)) continue;
        if (!(t->flags[id] & HT_TOKEN_ADDED))
            return ht_fail(err, HT_ERR_FORMAT, "tokenizer.json: `%.64s` has the id %d, but the embedding %lld rows",
                           ht_vocab_text(&t->vocab, id), (int)id, (long long)n_rows);
        n++;
    }
    if (n)
        ht_log_write(HT_LOG_WARNING, "tokenizer.json: %d added token%s left out, for which the embedding has no row",
                     (int)n, n == 1 ? " is" : "s are");
    return HT_OK;
}

/* Sets the separator of an encoder's pairs: BOS, a text, EOS, perhaps one more token, a text, EOS. Other pairs have no keys. */
static ht_status set_separator(const ht_tokenizer *t, ht_json *metadata, ht_error *err) {
    const ht_pair_item *pair = t->pair;
    const size_t n = t->n_prefix + 4;
    if (t->n_suffix != 1 || (t->n_pair != n && t->n_pair != n + 1)) return HT_OK;
    const int32_t end = t->suffix[0], more = t->n_pair > n ? pair[n - 2].id : -1;
    const int32_t ids[] = {t->n_prefix ? t->prefix[0] : -1, HT_PAIR_FIRST, end, more, HT_PAIR_SECOND, end};
    for (size_t i = 0, k = 0; i < 6; i++) {
        if (ids[i] == -1 && i != 1) continue; /* HT_PAIR_FIRST is -1, too */
        if (pair[k++].id != ids[i]) return HT_OK;
    }
    if (more == (t->n_prefix ? t->prefix[0] : -1)) return HT_OK; /* the default: the same around each text */
    ht_status st = set_id(metadata, "tokenizer.ggml.seperator_token_id", more < 0 ? end : more, err);
    return st ? st : set_bool(metadata, "tokenizer.ggml.add_sep_token", more >= 0, err);
}

static ht_status set_ends(const ht_tokenizer *t, ht_json *metadata, ht_error *err) {
    const int32_t eos = t->eos < 0 && t->n_suffix ? t->suffix[0] : t->eos;
    const bool begins = t->n_prefix == 1 && t->prefix[0] == t->bos, ends = t->n_suffix == 1 && t->suffix[0] == eos;
    if ((t->n_prefix && !begins) || (t->n_suffix && !ends))
        return refuse(err, "post_processor", "it adds tokens that are neither bos_token nor eos_token");
    ht_status st = set_bool(metadata, "tokenizer.ggml.add_bos_token", begins, err);
    if (!st) st = set_bool(metadata, "tokenizer.ggml.add_eos_token", ends, err);
    if (!st && t->eos < 0) st = set_id(metadata, "tokenizer.ggml.eos_token_id", eos, err);
    return st ? st : set_separator(t, metadata, err);
}

ht_status ht_tokenizer_save_gguf(const ht_tokenizer *t, int64_t n_rows, bool list_merges, ht_json *metadata,
                                 ht_error *err) {
    bool bytes = false;
    const bool merges = t->model == HT_MODEL_BPE;
    for (int i = 0; i < t->n_pre && merges; i++) bytes |= t->pre[i].kind == HT_PRE_BYTE_LEVEL;
    if (bytes && !t->decode.byte_level)
        return refuse(err, "decoder", "the pre_tokenizer is ByteLevel, the decoder is not");
    ht_status st = check_rows(t, n_rows, err);
    if (!st) st = set_added(t, n_rows, metadata, err);
    if (!st && !merges) st = set_pieces(t, n_rows, metadata, err);
    if (!st && merges)
        st = bytes ? set_stages(t, metadata, err) : set_sentencepiece(t, n_rows, list_merges, metadata, err);
    if (!st && bytes) st = set_merges(t, metadata, err);
    if (!st) st = set_tokens(t, n_rows, metadata, err);
    return st || !merges ? st : set_ends(t, metadata, err);
}
