/* Tokenizer from GGUF metadata. `tokenizer.ggml.pre` names the pre-tokenizer (gguf_stages.h). Unknown names are
 * errors: a similar pre-tokenizer would give almost the right tokens. */
#include "base/error.h"
#include "tokenizer/gguf_stages.h"
#include "tokenizer/tokenizer.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- vocabulary ---- */

typedef struct reader {
    const ht_gguf *g;
    const char *name; /* file name, for messages */
    ht_tokenizer *t;
    const ht_gguf_value *types, *scores; /* NULL when absent */
    bool sentencepiece;                  /* spaces are U+2581 */
    bool wordpiece;                      /* words begin with U+2581, and tokens within them lack their prefix */
    int32_t unk, pad, sep;               /* -1: none */
    ht_error *err;
} reader;

static int type_of(const reader *r, int32_t id) {
    int64_t type;
    if (!r->types || !ht_gguf_item_i64(r->types, (uint64_t)id, &type)) return HT_GGUF_TOKEN_NORMAL;
    return type >= HT_GGUF_TOKEN_NORMAL && type <= HT_GGUF_TOKEN_BYTE ? (int)type : HT_GGUF_TOKEN_NORMAL;
}

static ht_status find_array(const reader *r, const char *key, ht_gguf_type type, uint64_t n,
                            const ht_gguf_value **out) {
    const ht_gguf_value *v = ht_gguf_find(r->g, key);
    *out = NULL;
    if (!v) return HT_OK;
    if (v->type != HT_GGUF_ARRAY || v->item_type != type)
        return ht_fail(r->err, HT_ERR_FORMAT, "%s is not an array of the type it should be", key);
    if (n && v->n_items != n)
        return ht_fail(r->err, HT_ERR_FORMAT, "%s has %llu items, but there are %llu tokens", key,
                       (unsigned long long)v->n_items, (unsigned long long)n);
    *out = v;
    return HT_OK;
}

/* Restores U+2581 in a SentencePiece user-defined token, where the converter replaced it by a space. */
static ht_status set_respelled(reader *r, int32_t id, ht_bytes text) {
    ht_text respelled = {0};
    ht_append_replaced(&respelled, text.data, text.len, " ", 1, HT_METASPACE, 3);
    ht_status st = respelled.failed ? ht_fail_memory(r->err, text.len, "vocabulary")
                                    : ht_vocab_set(&r->t->vocab, id, respelled.data, respelled.len, r->err);
    ht_text_discard(&respelled);
    return st;
}

/* Restores the spelling of vocab.txt: "##" before a token within a word, none before a word. */
static ht_status set_wordpiece(reader *r, int32_t id, ht_bytes text) {
    const int type = type_of(r, id);
    const bool is_word = text.len >= 3 && memcmp(text.data, HT_METASPACE, 3) == 0,
               is_special = type == HT_GGUF_TOKEN_CONTROL || type == HT_GGUF_TOKEN_UNKNOWN ||
                            (text.len > 2 && text.data[0] == '[' && text.data[text.len - 1] == ']');
    if (is_word && !is_special) return ht_vocab_set(&r->t->vocab, id, text.data + 3, text.len - 3, r->err);
    if (is_special) return ht_vocab_set(&r->t->vocab, id, text.data, text.len, r->err);
    ht_text spelled = {0};
    ht_text_append(&spelled, "##", 2);
    ht_text_append(&spelled, text.data, text.len);
    ht_status st = spelled.failed ? ht_fail_memory(r->err, text.len, "vocabulary")
                                  : ht_vocab_set(&r->t->vocab, id, spelled.data, spelled.len, r->err);
    ht_text_discard(&spelled);
    return st;
}

static ht_status read_tokens(reader *r) {
    const ht_gguf_value *tokens;
    ht_status st = find_array(r, "tokenizer.ggml.tokens", HT_GGUF_STRING, 0, &tokens);
    if (st) return st;
    if (!tokens || !tokens->n_items) return ht_fail(r->err, HT_ERR_FORMAT, "the file has no tokenizer.ggml.tokens");
    if (tokens->n_items > HT_MAX_VOCAB)
        return ht_fail(r->err, HT_ERR_LIMIT, "tokenizer.ggml.tokens has %llu tokens; at most %d are supported",
                       (unsigned long long)tokens->n_items, HT_MAX_VOCAB);
    st = find_array(r, "tokenizer.ggml.token_type", HT_GGUF_I32, tokens->n_items, &r->types);
    if (!st) st = find_array(r, "tokenizer.ggml.scores", HT_GGUF_F32, tokens->n_items, &r->scores);
    if (!st) st = ht_vocab_reserve(&r->t->vocab, (int32_t)tokens->n_items, tokens->items_bytes, r->err);
    size_t offset = 0;
    ht_bytes text;
    for (int32_t id = 0; !st && ht_gguf_next_string(tokens, &offset, &text); id++) {
        if (!ht_utf8_valid(text.data, text.len))
            st = ht_fail(r->err, HT_ERR_FORMAT, "token %d is not valid UTF-8", (int)id);
        else if (r->wordpiece)
            st = set_wordpiece(r, id, text);
        else if (r->sentencepiece && type_of(r, id) == HT_GGUF_TOKEN_USER_DEFINED && memchr(text.data, ' ', text.len))
            st = set_respelled(r, id, text);
        else
            st = ht_vocab_set(&r->t->vocab, id, text.data, text.len, r->err);
    }
    return st ? st : ht_vocab_index(&r->t->vocab, r->err);
}

/* Reads a token id; `otherwise` when absent or outside the vocabulary. */
static ht_status read_id(const reader *r, const char *key, int32_t otherwise, int32_t *id) {
    int64_t value;
    *id = otherwise < r->t->vocab.n ? otherwise : -1;
    if (!ht_gguf_find(r->g, key)) return HT_OK;
    if (!ht_gguf_get_i64_saturated(r->g, key, &value))
        return ht_fail(r->err, HT_ERR_FORMAT, "%s is not an integer", key);
    if (value >= 0 && value < r->t->vocab.n)
        *id = (int32_t)value;
    else
        ht_vocab_warn_outside(r->name, key, value, r->t->vocab.n);
    return HT_OK;
}

static ht_status read_ids(reader *r, int32_t bos, int32_t eos, int32_t unk) {
    ht_status st = read_id(r, "tokenizer.ggml.bos_token_id", bos, &r->t->bos);
    if (!st) st = read_id(r, "tokenizer.ggml.eos_token_id", eos, &r->t->eos);
    if (!st) st = read_id(r, "tokenizer.ggml.unknown_token_id", unk, &r->unk);
    return st ? st : read_id(r, "tokenizer.ggml.padding_token_id", -1, &r->pad);
}

/* Whether ids, in order, hold this one; *at is the place of the first one not below it. */
static bool holds_id(const ht_gguf_value *ids, uint64_t *at, int32_t id) {
    int64_t found = -1;
    for (; ids && *at < ids->n_items && ht_gguf_item_i64(ids, *at, &found) && found < id; ++*at) {}
    return found == id;
}

/* Phi-3's special tokens take the spaces after them; its GGUF files lack this. */
static bool strips_in_phi3(const reader *r, const char *text) {
    ht_bytes architecture;
    return r->sentencepiece && ht_gguf_get_string(r->g, "general.architecture", &architecture) &&
           ((architecture.len == 4 && memcmp(architecture.data, "phi3", 4) == 0) ||
            (architecture.len == 6 && memcmp(architecture.data, "phimoe", 6) == 0)) &&
           strcmp(text, "<unk>") != 0 && strcmp(text, "<s>") != 0 && strcmp(text, "<|endoftext|>") != 0;
}

static ht_status read_added(reader *r) {
    ht_tokenizer *t = r->t;
    const ht_gguf_value *left, *right;
    uint64_t at_left = 0, at_right = 0;
    ht_status status = find_array(r, HT_GGUF_LSTRIP, HT_GGUF_I32, 0, &left);
    if (!status) status = find_array(r, HT_GGUF_RSTRIP, HT_GGUF_I32, 0, &right);
    if (status) return status;
    for (int32_t id = 0; id < t->vocab.n; id++) {
        int type = type_of(r, id);
        bool named = id == t->bos || id == t->eos || id == r->unk || id == r->pad || id == r->sep;
        bool control = type == HT_GGUF_TOKEN_CONTROL || (named && (type != HT_GGUF_TOKEN_NORMAL || !r->types));
        if (!control && type != HT_GGUF_TOKEN_USER_DEFINED) continue;
        if (!t->vocab.length[id] || ht_gguf_is_filler(ht_vocab_text(&t->vocab, id), id)) continue;
        const char *text = ht_vocab_text(&t->vocab, id);
        const ht_added token = {.id = id,
                                .special = control,
                                .lstrip = holds_id(left, &at_left, id),
                                .rstrip = right ? holds_id(right, &at_right, id) : strips_in_phi3(r, text)};
        ht_status st = ht_add_added(t, token, text, t->vocab.length[id], r->err);
        if (st) return st;
    }
    return HT_OK;
}

/* ---- merges ---- */

static ht_status read_merges(reader *r, const ht_gguf_value *merges) {
    if (merges->n_items > HT_MAX_MERGES)
        return ht_fail(r->err, HT_ERR_LIMIT, "tokenizer.ggml.merges has %llu merges; at most %d are supported",
                       (unsigned long long)merges->n_items, HT_MAX_MERGES);
    ht_status st = ht_merges_reserve(&r->t->merges, (int32_t)merges->n_items, r->err);
    size_t offset = 0, n = 0;
    ht_bytes text;
    ht_merge_text batch[HT_MERGE_BATCH];
    for (uint64_t i = 0; !st && ht_gguf_next_string(merges, &offset, &text); i++) {
        const char *space = text.len > 2 ? memchr(text.data + 1, ' ', text.len - 2) : NULL;
        if (!space)
            return ht_fail(r->err, HT_ERR_FORMAT, "merge %llu is not two texts with a space between",
                           (unsigned long long)i);
        size_t left = (size_t)(space - text.data);
        batch[n++] = (ht_merge_text){text.data, space + 1, left, text.len - left - 1};
        if (n < HT_MERGE_BATCH) continue;
        st = ht_add_merges(r->t, batch, n, r->err);
        n = 0;
    }
    return st ? st : ht_add_merges(r->t, batch, n, r->err);
}

typedef struct scored {
    double score;
    int32_t id;
} scored;

static int by_score(const void *a, const void *b) {
    const scored *x = a, *y = b;
    if (x->score != y->score) return x->score > y->score ? -1 : 1;
    return x->id < y->id ? -1 : x->id > y->id;
}

/* Ranks the tokens that merges may produce: user-defined tokens first (their scores are meaningless), then by
 * descending score, then by id. */
static ht_status read_scores(reader *r) {
    ht_tokenizer *t = r->t;
    int32_t n = t->vocab.n, count = 0, order = 0;
    t->merges.order = malloc((size_t)n * sizeof *t->merges.order);
    scored *list = malloc((size_t)n * sizeof *list);
    if (!t->merges.order || !list) {
        free(list);
        return ht_fail_memory(r->err, (size_t)n * sizeof *list, "token scores");
    }
    bool sorted = true;
    for (int32_t id = 0; id < n; id++) {
        t->merges.order[id] = HT_NO_ORDER;
        int type = type_of(r, id);
        if (type == HT_GGUF_TOKEN_USER_DEFINED) t->merges.order[id] = (uint32_t)order++;
        if (type != HT_GGUF_TOKEN_NORMAL) continue;
        list[count] = (scored){.id = id};
        (void)ht_gguf_item_f64(r->scores, (uint64_t)id, &list[count].score);
        if (isnan(list[count].score)) list[count].score = -INFINITY;
        sorted = sorted && (count == 0 || list[count - 1].score >= list[count].score);
        count++;
    }
    if (!sorted) qsort(list, (size_t)count, sizeof *list, by_score);
    for (int32_t i = 0; i < count; i++) t->merges.order[list[i].id] = (uint32_t)order++;
    free(list);
    return HT_OK;
}

/* ---- BPE and SentencePiece ---- */

static ht_status read_bool(const reader *r, const char *key, bool otherwise, bool *out) {
    *out = otherwise;
    if (ht_gguf_find(r->g, key) && !ht_gguf_get_bool(r->g, key, out))
        return ht_fail(r->err, HT_ERR_FORMAT, "%s is not a boolean", key);
    return HT_OK;
}

static ht_status read_template(reader *r, const char *key, char **out) {
    ht_bytes text;
    if (!ht_gguf_get_string(r->g, key, &text)) return HT_OK;
    *out = ht_copy_text(text.data, text.len);
    return *out ? HT_OK : ht_fail_memory(r->err, text.len, "chat template");
}

/* The template of pairs of an encoder, which has a separator: one more may stand between the texts. */
static ht_status read_pair(reader *r, bool ends) {
    ht_tokenizer *t = r->t;
    bool adds_sep;
    ht_status st = read_id(r, "tokenizer.ggml.seperator_token_id", -1, &r->sep);
    if (!st) st = read_bool(r, "tokenizer.ggml.add_sep_token", false, &adds_sep);
    if (st || r->sep < 0 || !ends) return st;
    const int32_t ids[] = {t->n_prefix ? t->bos : -1, HT_PAIR_FIRST,  t->eos,
                           adds_sep ? r->sep : -1,    HT_PAIR_SECOND, t->eos};
    for (int i = 0; i < 6 && !st; i++)
        if (ids[i] >= 0 || i == 1 || i == 4) st = ht_add_pair_item(t, ids[i], 0, r->err);
    return st;
}

/* Reads BOS and EOS, whether they surround the text, and the chat templates. */
static ht_status read_ends(reader *r, bool bos_by_default) {
    ht_tokenizer *t = r->t;
    bool add_bos, add_eos;
    ht_status st = read_bool(r, "tokenizer.ggml.add_bos_token", bos_by_default, &add_bos);
    if (!st) st = read_bool(r, "tokenizer.ggml.add_eos_token", false, &add_eos);
    if (!st && add_bos && t->bos >= 0) st = ht_append_id(&t->prefix, &t->n_prefix, t->bos, r->err);
    if (!st && add_eos && t->eos >= 0) st = ht_append_id(&t->suffix, &t->n_suffix, t->eos, r->err);
    if (!st) st = read_pair(r, t->n_suffix);
    if (!st) st = read_template(r, "tokenizer.chat_template", &t->chat_template);
    return st ? st : read_template(r, "tokenizer.chat_template.tool_use", &t->tool_template);
}

static ht_status read_sentencepiece(reader *r, bool listed_merges) {
    ht_tokenizer *t = r->t;
    bool prefix_space;
    const ht_gguf_value *merges = NULL;
    r->sentencepiece = true;
    ht_status st = read_tokens(r);
    if (!st) st = find_array(r, "tokenizer.ggml.merges", HT_GGUF_STRING, 0, &merges);
    if (!st && listed_merges && !merges) st = ht_fail(r->err, HT_ERR_FORMAT, "the file has no tokenizer.ggml.merges");
    if (!st && !merges && !r->scores) st = ht_fail(r->err, HT_ERR_FORMAT, "the file has no tokenizer.ggml.scores");
    if (!st) st = merges ? read_merges(r, merges) : read_scores(r);
    if (!st) st = listed_merges ? read_ids(r, 2, 1, 3) : read_ids(r, 1, 2, 0);
    if (!st) st = read_bool(r, "tokenizer.ggml.add_space_prefix", !listed_merges, &prefix_space);
    if (!st && prefix_space) {
        ht_normal_step *step = ht_add_normal(t, HT_NORMAL_PREPEND, r->err);
        if (!step) return HT_ERR_LIMIT;
        step->to = ht_copy_text(HT_METASPACE, 3);
        step->n_to = 3;
        t->decode.strip = ht_copy_text(" ", 1);
        t->decode.n_strip = t->decode.strip_count = 1;
        if (!step->to || !t->decode.strip) st = ht_fail_memory(r->err, 3, "normalizer");
    }
    if (!st) st = ht_add_normal_replace(t, " ", 1, HT_METASPACE, 3, r->err);
    if (!st) st = ht_add_decode_replace(t, HT_METASPACE, 3, " ", 1, r->err);
    if (st) return st;
    t->byte_fallback = t->fuse_unk = t->decode.byte_fallback = true;
    if (r->unk >= 0) {
        t->unk_text = ht_copy_text(ht_vocab_text(&t->vocab, r->unk), t->vocab.length[r->unk]);
        if (!t->unk_text) return ht_fail_memory(r->err, t->vocab.length[r->unk], "unknown token");
    }
    st = read_added(r);
    return st ? st : read_ends(r, true);
}

static ht_status read_byte_level(reader *r) {
    ht_bytes name = {"default", 7};
    (void)ht_gguf_get_string(r->g, "tokenizer.ggml.pre", &name);
    const ht_gguf_stages *row = ht_gguf_stages_named(name);
    if (!row)
        return ht_fail(r->err, HT_ERR_UNSUPPORTED,
                       "the pre-tokenizer `%.*s` (tokenizer.ggml.pre) is not one that this version knows; use the "
                       "checkpoint's tokenizer.json",
                       (int)(name.len % 64), name.data);
    ht_status st = ht_gguf_stages_add(row, r->t, r->err);
    const ht_gguf_value *merges = NULL;
    if (!st) st = read_tokens(r);
    if (!st) st = find_array(r, "tokenizer.ggml.merges", HT_GGUF_STRING, 0, &merges);
    if (!st && !merges) st = ht_fail(r->err, HT_ERR_FORMAT, "the file has no tokenizer.ggml.merges");
    if (!st) st = read_merges(r, merges);
    if (!st) st = read_ids(r, -1, -1, -1);
    if (!st) st = read_added(r);
    return st ? st : read_ends(r, row->add_bos);
}

/* ---- WordPiece and Unigram ---- */

/* Reads the stages from their own key, else from the format's keys. */
static ht_status read_stages(reader *r, ht_gguf_keys *k) {
    ht_bytes stages;
    const ht_gguf_value *map = ht_gguf_find(r->g, HT_GGUF_CHARSMAP);
    if (map && (map->type != HT_GGUF_ARRAY || (map->item_type != HT_GGUF_U8 && map->item_type != HT_GGUF_I8)))
        return ht_fail(r->err, HT_ERR_FORMAT, HT_GGUF_CHARSMAP " is not an array of bytes");
    if (map) k->charsmap = (ht_bytes){(const char *)map->items, (size_t)map->n_items};
    if (!ht_gguf_get_string(r->g, HT_GGUF_STAGES_KEY, &stages)) return ht_gguf_keys_add(k, r->t, r->err);
    return ht_load_stages(r->t, stages.data, stages.len, k->charsmap, r->err);
}

static ht_status read_bert(reader *r) {
    ht_tokenizer *t = r->t;
    ht_gguf_keys k = {.is_bert = true};
    bool adds_begin, adds_end;
    r->wordpiece = true;
    t->model = HT_MODEL_WORDPIECE;
    t->pieces.most_chars = HT_WORDPIECE_CHARS;
    t->pieces.n_prefix = 2;
    t->pieces.prefix = ht_copy_text("##", 2);
    ht_status st = t->pieces.prefix ? read_tokens(r) : ht_fail_memory(r->err, 2, "vocabulary");
    if (!st) st = read_ids(r, 101, -1, 100);
    if (!st) st = read_id(r, "tokenizer.ggml.cls_token_id", t->bos, &k.begin);
    if (!st) st = read_id(r, "tokenizer.ggml.seperator_token_id", 102, &k.end);
    if (!st) st = read_bool(r, "tokenizer.ggml.normalizer.lowercase", true, &k.lowercase);
    if (!st) st = read_bool(r, "tokenizer.ggml.normalizer.strip_accents", k.lowercase, &k.strip_accents);
    if (!st) st = read_bool(r, "tokenizer.ggml.add_bos_token", true, &adds_begin);
    if (!st) st = read_bool(r, "tokenizer.ggml.add_sep_token", true, &adds_end);
    if (st) return st;
    t->bos = k.begin;
    r->sep = k.end;
    if (!adds_begin) k.begin = -1;
    if (!adds_end) k.end = -1;
    return read_stages(r, &k);
}

static ht_status read_f64_scores(reader *r) {
    ht_pieces *p = &r->t->pieces;
    const ht_gguf_value *exact;
    ht_status st = find_array(r, HT_GGUF_SCORES, HT_GGUF_F64, (uint64_t)p->n, &exact);
    if (!st && !exact && !r->scores) st = ht_fail(r->err, HT_ERR_FORMAT, "the file has no tokenizer.ggml.scores");
    if (st) return st;
    p->score = malloc(((size_t)p->n + 1) * sizeof *p->score);
    if (!p->score) return ht_fail_memory(r->err, (size_t)p->n * sizeof *p->score, "token scores");
    for (int32_t id = 0; id < p->n; id++) {
        if (!ht_gguf_item_f64(exact ? exact : r->scores, (uint64_t)id, &p->score[id]) || !isfinite(p->score[id]))
            return ht_fail(r->err, HT_ERR_FORMAT, "the score of token %d is not a finite number", (int)id);
        const int type = type_of(r, id);
        if (type == HT_GGUF_TOKEN_UNUSED && ht_gguf_is_any_filler(ht_vocab_text(&r->t->vocab, id))) p->score[id] = NAN;
        if (type == HT_GGUF_TOKEN_BYTE) r->t->byte_fallback = true;
    }
    return HT_OK;
}

static ht_status read_t5(reader *r) {
    ht_tokenizer *t = r->t;
    ht_gguf_keys k = {0};
    bool adds_begin, adds_end;
    r->sentencepiece = true;
    t->model = HT_MODEL_UNIGRAM;
    ht_status st = read_tokens(r);
    t->pieces.n = t->vocab.n;
    if (!st) st = read_f64_scores(r);
    if (!st) st = read_ids(r, -1, 1, 2);
    if (!st) st = read_bool(r, "tokenizer.ggml.add_space_prefix", true, &k.adds_prefix);
    if (!st) st = read_bool(r, "tokenizer.ggml.remove_extra_whitespaces", true, &k.collapses);
    if (!st) st = read_bool(r, "tokenizer.ggml.add_bos_token", false, &adds_begin);
    if (!st) st = read_bool(r, "tokenizer.ggml.add_eos_token", true, &adds_end);
    if (st) return st;
    t->unk = r->unk >= 0 && isnan(t->pieces.score[r->unk]) ? -1 : r->unk;
    k.begin = adds_begin ? t->bos : -1;
    k.end = adds_end ? t->eos : -1;
    return read_stages(r, &k);
}

static ht_status read_pieces(reader *r, bool is_bert) {
    ht_tokenizer *t = r->t;
    ht_status st = is_bert ? read_bert(r) : read_t5(r);
    t->pieces.n = t->vocab.n;
    if (!st) st = ht_pieces_build(&t->pieces, &t->vocab, r->err);
    if (!st && is_bert) {
        t->unk_text = r->unk >= 0 ? ht_copy_text(ht_vocab_text(&t->vocab, r->unk), t->vocab.length[r->unk])
                                  : ht_copy_text("[UNK]", 5);
        if (!t->unk_text) st = ht_fail_memory(r->err, 5, "unknown token");
    }
    if (!st) st = read_added(r);
    if (!st) st = read_template(r, "tokenizer.chat_template", &t->chat_template);
    return st ? st : read_template(r, "tokenizer.chat_template.tool_use", &t->tool_template);
}

/* After ht_tokenizer_finish. llama.cpp prints nothing for them, either; some converters give fillers another type. */
static void mark_unused(const reader *r) {
    ht_tokenizer *t = r->t;
    for (int32_t id = 0; id < t->vocab.n; id++)
        if (type_of(r, id) == HT_GGUF_TOKEN_UNUSED || ht_gguf_is_filler(ht_vocab_text(&t->vocab, id), id))
            t->flags[id] |= HT_TOKEN_UNUSED;
}

static ht_status read_model(reader *r) {
    ht_bytes model;
    if (!ht_gguf_get_string(r->g, "tokenizer.ggml.model", &model))
        return ht_fail(r->err, HT_ERR_FORMAT, "the file has no tokenizer (tokenizer.ggml.model is missing)");
    if (model.len == 4 && memcmp(model.data, "gpt2", 4) == 0) return read_byte_level(r);
    if (model.len == 5 && memcmp(model.data, "llama", 5) == 0) return read_sentencepiece(r, false);
    if (model.len == 6 && memcmp(model.data, "gemma4", 6) == 0) return read_sentencepiece(r, true);
    if (model.len == 4 && memcmp(model.data, "bert", 4) == 0) return read_pieces(r, true);
    if (model.len == 2 && memcmp(model.data, "t5", 2) == 0) return read_pieces(r, false);
    return ht_fail(r->err, HT_ERR_UNSUPPORTED,
                   "the tokenizer model `%.*s` is not supported; gpt2, llama, gemma4, bert and t5 are",
                   (int)(model.len % 64), model.data);
}

ht_status ht_tokenizer_from_gguf(const ht_gguf *g, const char *name, ht_tokenizer **out, ht_error *err) {
    *out = NULL;
    ht_tokenizer *t = ht_tokenizer_new(err);
    if (!t) return HT_ERR_MEMORY;
    reader r = {.g = g, .name = name, .t = t, .unk = -1, .pad = -1, .sep = -1, .err = err};
    ht_status st = read_model(&r);
    if (!st) st = ht_tokenizer_finish(t, err);
    if (!st) mark_unused(&r);
    if (st) {
        ht_tokenizer_free(t);
        return ht_fail_in(err, st, "%s", name);
    }
    *out = t;
    return HT_OK;
}
