/* tokenizer.json of a loaded tokenizer. The vocabulary and the merges, nearly all of the file, are written as text; the rest
 * goes through a JSON document. */
#include "base/base64.h"
#include "base/error.h"
#include "formats/json.h"
#include "tokenizer/gguf_stages.h"
#include "tokenizer/save.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- stages ---- */

/* Appends to a list of steps; false when memory ran out. */
static bool push(ht_json *list, ht_json *step) { return step && !ht_json_array_append_new(list, step); }

static ht_json *text_of(const char *text, size_t n) { return ht_json_stringn(n ? text : "", n); }

/* A stage as JSON: null without steps, a single step itself, otherwise a Sequence with the list under `key`. Takes the
 * list; NULL if it is incomplete. */
static ht_json *stage_of(ht_json *steps, bool is_whole, const char *key) {
    ht_json *stage = NULL;
    if (is_whole && ht_json_array_size(steps) == 0)
        stage = ht_json_null();
    else if (is_whole && ht_json_array_size(steps) == 1)
        stage = ht_json_incref(ht_json_array_get(steps, 0));
    else if (is_whole)
        stage = ht_json_pack("{s:s, s:O}", "type", "Sequence", key, steps);
    ht_json_decref(steps);
    return stage;
}

static ht_json *charsmap_step(const ht_charsmap *m, bool whole) {
    ht_text base64 = {0};
    if (!whole) return ht_json_pack("{s:s}", "type", "Precompiled");
    ht_base64_encode(m->bytes, m->n, &base64);
    ht_json *text = base64.failed ? NULL : ht_json_stringn(base64.data, base64.len);
    ht_text_discard(&base64);
    return ht_json_pack("{s:s, s:o}", "type", "Precompiled", "precompiled_charsmap", text);
}

static ht_json *normal_step(const ht_normal_step *s, bool charsmaps) {
    switch (s->kind) {
    case HT_NORMAL_FORM: return ht_json_pack("{s:s}", "type", ht_normal_form_names[s->form]);
    case HT_NORMAL_PREPEND: return ht_json_pack("{s:s, s:o}", "type", "Prepend", "prepend", text_of(s->to, s->n_to));
    case HT_NORMAL_REPLACE:
    case HT_NORMAL_REPLACE_REGEX:
        return ht_json_pack("{s:s, s:{s:o}, s:o}", "type", "Replace", "pattern",
                            s->kind == HT_NORMAL_REPLACE ? "String" : "Regex", text_of(s->from, s->n_from), "content",
                            text_of(s->to, s->n_to));
    case HT_NORMAL_LOWERCASE: return ht_json_pack("{s:s}", "type", "Lowercase");
    case HT_NORMAL_STRIP:
        return ht_json_pack("{s:s, s:b, s:b}", "type", "Strip", "strip_left", s->left, "strip_right", s->right);
    case HT_NORMAL_STRIP_ACCENTS: return ht_json_pack("{s:s}", "type", "StripAccents");
    case HT_NORMAL_BERT:
        return ht_json_pack("{s:s, s:b, s:b, s:b, s:b}", "type", "BertNormalizer", "clean_text",
                            s->bert & HT_BERT_CLEAN, "handle_chinese_chars", s->bert & HT_BERT_CHINESE, "strip_accents",
                            s->bert & HT_BERT_ACCENTS, "lowercase", s->bert & HT_BERT_LOWERCASE);
    case HT_NORMAL_CHARSMAP: return charsmap_step(&s->charsmap, charsmaps);
    }
    return NULL;
}

static ht_json *normalizer_of(const ht_tokenizer *t, bool charsmaps) {
    ht_json *steps = ht_json_new_array();
    bool good = steps;
    for (int i = 0; i < t->n_normalizer && good; i++) good = push(steps, normal_step(&t->normalizer[i], charsmaps));
    return stage_of(steps, good, "normalizers");
}

static ht_json *split_step(const ht_pre_step *s) {
    const char *behavior = ht_behavior_names[s->behavior];
    if (s->classes == HT_CLASS_DIGIT)
        return ht_json_pack("{s:s, s:b}", "type", "Digits", "individual_digits", s->behavior == HT_SPLIT_ISOLATED);
    if (s->classes == HT_CLASS_SPACE) return ht_json_pack("{s:s}", "type", "WhitespaceSplit");
    if (s->classes) return ht_json_pack("{s:s, s:s}", "type", "Punctuation", "behavior", behavior);
    ht_json *pattern = s->pattern ? text_of(s->pattern, s->n_pattern) : text_of(s->text, s->n_text);
    return ht_json_pack("{s:s, s:{s:o}, s:s, s:b}", "type", "Split", "pattern", s->pattern ? "Regex" : "String",
                        pattern, "behavior", behavior, "invert", s->invert);
}

static ht_json *pre_step(const ht_pre_step *s) {
    switch (s->kind) {
    case HT_PRE_SPLIT: return split_step(s);
    case HT_PRE_BYTE_LEVEL:
        return ht_json_pack("{s:s, s:b, s:b, s:b}", "type", "ByteLevel", "add_prefix_space", s->add_prefix_space,
                            "trim_offsets", 1, "use_regex", s->scan != NULL);
    case HT_PRE_METASPACE:
        return ht_json_pack("{s:s, s:o, s:s, s:b}", "type", "Metaspace", "replacement",
                            text_of(s->replacement, s->n_replacement), "prepend_scheme",
                            s->add_prefix_space ? "always"
                            : s->prefix_first   ? "first"
                                                : "never",
                            "split", s->split);
    }
    return NULL;
}

static bool splits_by(const ht_pre_step *s, uint8_t classes, ht_behavior behavior) {
    return s->kind == HT_PRE_SPLIT && s->classes == classes && s->behavior == behavior;
}

static ht_json *pre_tokenizer_of(const ht_tokenizer *t) {
    ht_json *steps = ht_json_new_array();
    bool good = steps;
    for (int i = 0; i < t->n_pre && good; i++) {
        const bool is_bert = i + 1 < t->n_pre && splits_by(&t->pre[i], HT_CLASS_SPACE, HT_SPLIT_REMOVED) &&
                             splits_by(&t->pre[i + 1], HT_CLASS_PUNCT_STEP, HT_SPLIT_ISOLATED);
        good = push(steps, is_bert ? ht_json_pack("{s:s}", "type", "BertPreTokenizer") : pre_step(&t->pre[i]));
        i += is_bert;
    }
    return stage_of(steps, good, "pretokenizers");
}

static ht_json *decoder_of(const ht_tokenizer *t) {
    const ht_decode_plan *d = &t->decode;
    ht_json *steps = ht_json_new_array();
    bool good = steps;
    if (good && d->byte_level)
        good = push(steps, ht_json_pack("{s:s, s:b, s:b, s:b}", "type", "ByteLevel", "add_prefix_space", 1,
                                        "trim_offsets", 1, "use_regex", 1));
    if (good && d->word_prefix)
        good = push(steps, ht_json_pack("{s:s, s:o, s:b}", "type", "WordPiece", "prefix",
                                        text_of(d->word_prefix, d->n_word_prefix), "cleanup", d->cleanup));
    for (int i = 0; i < d->n_replace && good; i++) {
        const ht_decode_replace *r = &d->replace[i];
        good = push(steps, ht_json_pack("{s:s, s:{s:o}, s:o}", "type", "Replace", "pattern", "String",
                                        text_of(r->from, r->n_from), "content", text_of(r->to, r->n_to)));
    }
    if (good && d->metaspace)
        good = push(steps, ht_json_pack("{s:s, s:o, s:s, s:b}", "type", "Metaspace", "replacement",
                                        text_of(d->metaspace, d->n_metaspace), "prepend_scheme",
                                        d->metaspace_drops ? "always" : "never", "split", 1));
    if (good && d->byte_fallback) good = push(steps, ht_json_pack("{s:s}", "type", "ByteFallback"));
    if (good && (d->byte_fallback || d->strip)) good = push(steps, ht_json_pack("{s:s}", "type", "Fuse"));
    if (good && d->strip)
        good = push(steps, ht_json_pack("{s:s, s:o, s:I, s:i}", "type", "Strip", "content",
                                        text_of(d->strip, d->n_strip), "start", (int64_t)d->strip_count, "stop", 0));
    /* A document without a decoder joins tokens by spaces; a decoder that does nothing is one that only fuses. */
    if (good && !d->join_spaces && ht_json_array_size(steps) == 0)
        good = push(steps, ht_json_pack("{s:s}", "type", "Fuse"));
    return stage_of(steps, good, "decoders");
}

/* ---- post-processor and added tokens ---- */

/* id < 0: a text. */
static bool push_item(ht_json *list, ht_json *specials, const ht_tokenizer *t, int32_t id, int32_t type) {
    if (id < 0)
        return push(list, ht_json_pack("{s:{s:s, s:i}}", "Sequence", "id", id == HT_PAIR_SECOND ? "B" : "A", "type_id",
                                       (int)type));
    const char *text = ht_vocab_text(&t->vocab, id);
    ht_json *one = ht_json_pack("{s:s, s:[i], s:[s]}", "id", text, "ids", (int)id, "tokens", text);
    return one && !ht_json_object_set_new(specials, text, one) &&
           push(list, ht_json_pack("{s:{s:s, s:i}}", "SpecialToken", "id", text, "type_id", (int)type));
}

static ht_json *post_processor_of(const ht_tokenizer *t) {
    if (t->n_prefix + t->n_suffix == 0 && t->n_pair == 2) return ht_json_null();
    ht_json *specials = ht_json_new_object(), *single = ht_json_new_array(), *pair = ht_json_new_array();
    bool good = specials && single && pair;
    for (size_t i = 0; i < t->n_prefix && good; i++) good = push_item(single, specials, t, t->prefix[i], 0);
    good = good && push_item(single, specials, t, HT_PAIR_FIRST, 0);
    for (size_t i = 0; i < t->n_suffix && good; i++) good = push_item(single, specials, t, t->suffix[i], 0);
    for (size_t i = 0; i < t->n_pair && good; i++) good = push_item(pair, specials, t, t->pair[i].id, t->pair[i].type);
    ht_json *stage = good ? ht_json_pack("{s:s, s:O, s:O, s:O}", "type", "TemplateProcessing", "single", single, "pair",
                                         pair, "special_tokens", specials)
                          : NULL;
    ht_json_decref(specials);
    ht_json_decref(single);
    ht_json_decref(pair);
    return stage;
}

ht_json *ht_tokenizer_stages(const ht_tokenizer *t, bool charsmaps) {
    return ht_json_pack("{s:o, s:o, s:o, s:o}", "normalizer", normalizer_of(t, charsmaps), "pre_tokenizer",
                        pre_tokenizer_of(t), "post_processor", post_processor_of(t), "decoder", decoder_of(t));
}

static int by_id(const void *a, const void *b) {
    const ht_added *x = *(const ht_added *const *)a, *y = *(const ht_added *const *)b;
    return x->id < y->id ? -1 : x->id > y->id;
}

/* Sorted by id: `tokenizers` adds them in this order, and numbers those that the model lacks after the model's
 * tokens. */
static ht_json *added_of(const ht_tokenizer *t) {
    const ht_added **sorted = malloc((t->n_added + 1) * sizeof *sorted);
    ht_json *list = ht_json_new_array();
    bool good = sorted && list;
    for (size_t i = 0; i < t->n_added && good; i++) sorted[i] = &t->added[i];
    if (good) qsort((void *)sorted, t->n_added, sizeof *sorted, by_id);
    for (size_t i = 0; i < t->n_added && good; i++) {
        const ht_added *a = sorted[i];
        good = push(list, ht_json_pack("{s:i, s:o, s:b, s:b, s:b, s:b, s:b}", "id", (int)a->id, "content",
                                       text_of(a->text, a->n_text), "single_word", a->single_word, "lstrip", a->lstrip,
                                       "rstrip", a->rstrip, "normalized", a->normalized, "special", a->special));
    }
    free((void *)sorted);
    if (good) return list;
    ht_json_decref(list);
    return NULL;
}

/* ---- vocabulary and merges ---- */

/* Whether the post-processor or a setting refers to a token. */
static bool is_named(const ht_tokenizer *t, int32_t id) {
    for (size_t i = 0; i < t->n_pair; i++)
        if (t->pair[i].id == id) return true;
    for (size_t i = 0; i < t->n_prefix; i++)
        if (t->prefix[i] == id) return true;
    for (size_t i = 0; i < t->n_suffix; i++)
        if (t->suffix[i] == id) return true;
    return id == t->bos || id == t->eos || id == t->unk;
}

/* Omits fillers, which only name ids without a token, unless something refers to them. */
static bool is_left_out(const ht_tokenizer *t, int32_t id, const bool *merged) {
    return ht_gguf_is_filler(ht_vocab_text(&t->vocab, id), id) && !(merged && merged[id]) &&
           !(t->flags[id] & HT_TOKEN_ADDED) && !is_named(t, id);
}

static ht_status check_distinct(const ht_vocab *v, int32_t id, ht_error *err) {
    const char *text = ht_vocab_text(v, id);
    const int32_t found = ht_vocab_find(v, text, v->length[id]);
    if (found == id) return HT_OK;
    return ht_fail(err, HT_ERR_UNSUPPORTED,
                   "tokens %d and %d are both `%.64s`; a tokenizer.json has one id for each text", (int)id, (int)found,
                   text);
}

/* The first n ids. */
static ht_status put_vocab(const ht_tokenizer *t, int32_t n, const bool *merged, ht_text *out, ht_error *err) {
    const ht_vocab *v = &t->vocab;
    const char *separator = "";
    for (int32_t id = 0; id < n; id++) {
        if (!ht_vocab_has(v, id) || is_left_out(t, id, merged)) continue;
        const ht_status st = check_distinct(v, id, err);
        if (st) return st;
        ht_text_append_str(out, separator);
        ht_json_append_string(out, ht_vocab_text(v, id), v->length[id], 0);
        ht_text_printf(out, ":%d", (int)id);
        separator = ",";
    }
    return HT_OK;
}

static void put_merges(const ht_vocab *v, const ht_merge_pair *list, size_t n, ht_text *out) {
    for (size_t i = 0; i < n; i++) {
        ht_text_append_str(out, i ? ",[" : "[");
        ht_json_append_string(out, ht_vocab_text(v, list[i].left), v->length[list[i].left], 0);
        ht_text_append(out, ",", 1);
        ht_json_append_string(out, ht_vocab_text(v, list[i].right), v->length[list[i].right], 0);
        ht_text_append(out, "]", 1);
    }
}

static ht_status put_vocab_and_merges(const ht_tokenizer *t, ht_text *out, ht_error *err) {
    ht_merge_pair *list;
    size_t n;
    ht_status st = ht_tokenizer_list_merges(t, &list, &n, err);
    if (st) return st;
    bool *merged = calloc((size_t)t->vocab.n + 1, sizeof *merged);
    if (!merged) st = ht_fail_memory(err, (size_t)t->vocab.n, "tokenizer.json");
    for (size_t i = 0; !st && i < n; i++) merged[list[i].left] = merged[list[i].right] = merged[list[i].product] = true;
    ht_text_append_str(out, "\n\"vocab\":{");
    if (!st) st = put_vocab(t, t->vocab.n, merged, out, err);
    ht_text_append_str(out, "},\n\"merges\":[");
    if (!st) put_merges(&t->vocab, list, n, out);
    ht_text_append_str(out, "]");
    free(merged);
    free(list);
    return st;
}

/* ---- the document ---- */

/* Appends a JSON value and releases it; NULL: memory ran out. */
static ht_status put_value(ht_text *out, ht_json *value, ht_error *err) {
    if (!value) return ht_fail_memory(err, 0, "tokenizer.json");
    ht_json_append(out, value, HT_JSON_COMPACT);
    ht_json_decref(value);
    return HT_OK;
}

static ht_status put_wordpiece(const ht_tokenizer *t, ht_text *out, ht_error *err) {
    ht_text_append_str(out, "{\"type\":\"WordPiece\",\"unk_token\":");
    ht_json_append_string(out, t->unk_text, strlen(t->unk_text), 0);
    ht_text_append_str(out, ",\"continuing_subword_prefix\":");
    ht_json_append_string(out, t->pieces.prefix, t->pieces.n_prefix, 0);
    ht_text_printf(out, ",\"max_input_chars_per_word\":%zu,\n\"vocab\":{", t->pieces.most_chars);
    const ht_status st = put_vocab(t, t->pieces.n, NULL, out, err);
    ht_text_append_str(out, "}}");
    return st;
}

/* A list, whose indices are the ids: it cannot leave out an id between others. */
static ht_status put_unigram(const ht_tokenizer *t, ht_text *out, ht_error *err) {
    const ht_pieces *p = &t->pieces;
    int32_t n = p->n;
    char number[64];
    while (n > 0 && isnan(p->score[n - 1]) && !is_named(t, n - 1)) n--;
    ht_text_append_str(out, "{\"type\":\"Unigram\",\"unk_id\":");
    ht_text_printf(out, t->unk >= 0 ? "%d" : "null", (int)t->unk);
    ht_text_append_str(out, ",\n\"vocab\":[");
    for (int32_t id = 0; id < n; id++) {
        if (isnan(p->score[id]))
            return ht_fail(err, HT_ERR_UNSUPPORTED,
                           "token %d is a filler between tokens; a tokenizer.json has no id without a token there",
                           (int)id);
        const ht_status st = check_distinct(&t->vocab, id, err);
        if (st) return st;
        ht_text_append_str(out, id ? ",[" : "[");
        ht_json_append_string(out, ht_vocab_text(&t->vocab, id), t->vocab.length[id], 0);
        ht_json_format_real(p->score[id], number);
        ht_text_printf(out, ",%s]", number);
    }
    ht_text_printf(out, "],\"byte_fallback\":%s}", t->byte_fallback ? "true" : "false");
    return HT_OK;
}

static ht_status put_bpe(const ht_tokenizer *t, ht_text *out, ht_error *err) {
    ht_json *unk = t->unk_text ? ht_json_string(t->unk_text) : ht_json_null();
    ht_text_append_str(out, "{\"type\":\"BPE\",\"dropout\":null,\"unk_token\":");
    ht_status st = put_value(out, unk, err);
    if (st) return st;
    ht_text_printf(out,
                   ",\"continuing_subword_prefix\":null,\"end_of_word_suffix\":null,\"fuse_unk\":%s,\"byte_fallback\":"
                   "%s,\"ignore_merges\":%s,",
                   t->fuse_unk ? "true" : "false", t->byte_fallback ? "true" : "false",
                   t->ignore_merges ? "true" : "false");
    st = put_vocab_and_merges(t, out, err);
    ht_text_append_str(out, "}");
    return st;
}

static ht_status put_model(const ht_tokenizer *t, ht_text *out, ht_error *err) {
    switch (t->model) {
    case HT_MODEL_WORDPIECE: return put_wordpiece(t, out, err);
    case HT_MODEL_UNIGRAM: return put_unigram(t, out, err);
    case HT_MODEL_BPE: break;
    }
    return put_bpe(t, out, err);
}

ht_status ht_tokenizer_save_json(const ht_tokenizer *t, char **text, ht_error *err) {
    ht_json *stages = ht_tokenizer_stages(t, true), *stage;
    const char *key;
    ht_text out = {0};
    *text = NULL;
    ht_text_append_str(&out, "{\"version\":\"1.0\",\"truncation\":null,\"padding\":null,\n\"added_tokens\":");
    ht_status st = stages ? put_value(&out, added_of(t), err) : ht_fail_memory(err, 0, "tokenizer.json");
    ht_json_object_foreach(stages, key, stage) {
        ht_text_printf(&out, ",\n\"%s\":", key);
        if (!st) st = put_value(&out, ht_json_incref(stage), err);
    }
    ht_json_decref(stages);
    ht_text_append_str(&out, ",\n");
    if (!st) {
        ht_text_append_str(&out, "\"model\":");
        st = put_model(t, &out, err);
    }
    ht_text_append_str(&out, "}");
    const size_t size = out.len;
    if (!st && !(*text = ht_text_take(&out))) st = ht_fail_memory(err, size, "tokenizer.json");
    ht_text_discard(&out);
    return st;
}
