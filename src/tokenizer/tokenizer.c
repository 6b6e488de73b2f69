/* Tokenizers: constructors of stages that the loaders share, the derivation of lookup tables, queries and destruction. */
#include "tokenizer/tokenizer.h"

#include "base/error.h"
#include "base/grow.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

char *ht_copy_text(const char *text, size_t n) {
    char *copy = malloc(n + 1);
    if (!copy) return NULL;
    if (n) memcpy(copy, text, n);
    copy[n] = '\0';
    return copy;
}

void ht_append_replaced(ht_text *out, const char *text, size_t n, const char *from, size_t n_from, const char *to,
                        size_t n_to) {
    const char *end = text + n;
    while (text < end) {
        const char *hit = n_from ? memmem(text, (size_t)(end - text), from, n_from) : NULL;
        ht_text_append(out, text, (size_t)((hit ? hit : end) - text));
        if (!hit) break;
        ht_text_append(out, to, n_to);
        text = hit + n_from;
    }
}

const char *const ht_normal_form_names[HT_NORMAL_FORMS] = {"NFC", "NFD", "NFKC", "NFKD"};
const char *const ht_behavior_names[HT_BEHAVIORS] = {"Isolated", "Removed", "Contiguous", "MergedWithPrevious",
                                                     "MergedWithNext"};

ht_tokenizer *ht_tokenizer_new(ht_error *err) {
    ht_tokenizer *t = calloc(1, sizeof *t);
    if (!t) {
        ht_fail_memory(err, sizeof *t, "tokenizer");
        return NULL;
    }
    ht_unicode_prepare();
    t->bos = t->eos = t->unk = -1;
    return t;
}

ht_normal_step *ht_add_normal(ht_tokenizer *t, ht_normal_kind kind, ht_error *err) {
    if (t->n_normalizer == HT_MAX_STEPS) {
        ht_fail(err, HT_ERR_LIMIT, "the normalizer has more than %d steps", HT_MAX_STEPS);
        return NULL;
    }
    ht_normal_step *step = &t->normalizer[t->n_normalizer++];
    *step = (ht_normal_step){.kind = kind};
    return step;
}

ht_pre_step *ht_add_pre(ht_tokenizer *t, ht_pre_kind kind, ht_error *err) {
    if (t->n_pre == HT_MAX_STEPS) {
        ht_fail(err, HT_ERR_LIMIT, "the pre_tokenizer has more than %d steps", HT_MAX_STEPS);
        return NULL;
    }
    ht_pre_step *step = &t->pre[t->n_pre++];
    *step = (ht_pre_step){.kind = kind};
    return step;
}

ht_status ht_add_split_regex(ht_tokenizer *t, const char *pattern, size_t n, ht_behavior behavior, bool invert,
                             ht_error *err) {
    ht_pre_step *step = ht_add_pre(t, HT_PRE_SPLIT, err);
    if (!step) return HT_ERR_LIMIT;
    step->behavior = behavior;
    step->invert = invert;
    step->pattern = ht_copy_text(pattern, n);
    step->n_pattern = n;
    if (!step->pattern) return ht_fail_memory(err, n, "pre_tokenizer");
    step->scan = ht_scan_known(pattern, n, behavior == HT_SPLIT_ISOLATED && !invert);
    return step->scan ? HT_OK : ht_regex_new(pattern, n, &step->regex, err);
}

ht_status ht_add_normal_replace(ht_tokenizer *t, const char *from, size_t n_from, const char *to, size_t n_to,
                                ht_error *err) {
    ht_normal_step *step = ht_add_normal(t, HT_NORMAL_REPLACE, err);
    if (!step) return HT_ERR_LIMIT;
    step->from = ht_copy_text(from, n_from);
    step->n_from = n_from;
    step->to = ht_copy_text(to, n_to);
    step->n_to = n_to;
    return step->from && step->to ? HT_OK : ht_fail_memory(err, n_from + n_to, "normalizer");
}

ht_status ht_add_decode_replace(ht_tokenizer *t, const char *from, size_t n_from, const char *to, size_t n_to,
                                ht_error *err) {
    ht_decode_plan *plan = &t->decode;
    int most = (int)(sizeof plan->replace / sizeof *plan->replace);
    if (plan->n_replace == most) return ht_fail(err, HT_ERR_LIMIT, "the decoder has more than %d Replace steps", most);
    ht_decode_replace *r = &plan->replace[plan->n_replace++];
    *r = (ht_decode_replace){ht_copy_text(from, n_from), ht_copy_text(to, n_to), n_from, n_to};
    return r->from && r->to ? HT_OK : ht_fail_memory(err, n_from + n_to, "decoder");
}

/* Turn markers that their vocabulary does not declare special, such as DeepSeek's: "<|...|>", also with U+FF5C as
 * the bar. */
static bool is_control(const char *text, size_t n) {
    static const char *const begins[] = {"<|", "<\xEF\xBD\x9C"}, *const ends[] = {"|>", "\xEF\xBD\x9C>"};
    for (int i = 0; i < 2; i++) {
        const size_t begin = strlen(begins[i]), end = strlen(ends[i]);
        if (n > begin + end && memcmp(text, begins[i], begin) == 0 && memcmp(text + n - end, ends[i], end) == 0)
            return true;
    }
    return false;
}

ht_status ht_add_added(ht_tokenizer *t, ht_added token, const char *text, size_t n, ht_error *err) {
    if (!HT_GROW_ONE(t->added, t->n_added)) return ht_fail_memory(err, t->n_added * sizeof *t->added, "added tokens");
    token.text = ht_copy_text(text, n);
    token.n_text = n;
    token.normal = NULL;
    token.control = token.special || is_control(text, n);
    if (!token.text) return ht_fail_memory(err, n, "added tokens");
    t->added[t->n_added++] = token;
    return HT_OK;
}

ht_status ht_add_pair_item(ht_tokenizer *t, int32_t id, int32_t type, ht_error *err) {
    if (!HT_GROW_ONE(t->pair, t->n_pair)) return ht_fail_memory(err, t->n_pair * sizeof *t->pair, "post_processor");
    t->pair[t->n_pair++] = (ht_pair_item){id, type};
    return HT_OK;
}

ht_status ht_append_id(int32_t **list, size_t *n, int32_t id, ht_error *err) {
    if (!HT_GROW_ONE(*list, *n)) return ht_fail_memory(err, *n, "special ids");
    (*list)[(*n)++] = id;
    return HT_OK;
}

typedef struct merge_part { /* left, right or merged token of a merge */
    const char *text;
    size_t n;
    uint64_t hash;
} merge_part;

static ht_status missing_token(const merge_part *part, const ht_merge_text *m, ht_error *err) {
    return ht_fail(err, HT_ERR_FORMAT, "merge `%.*s` + `%.*s`: `%.*s` is not in the vocabulary", (int)(m->n_left % 256),
                   m->left, (int)(m->n_right % 256), m->right, (int)(part->n % 256), part->text);
}

static ht_status add_found(ht_tokenizer *t, merge_part (*parts)[3], const ht_merge_text *texts, size_t n,
                           ht_error *err) {
    int32_t ids[HT_MERGE_BATCH][3];
    for (size_t i = 0; i < n; i++) {
        for (int k = 0; k < 3; k++) {
            const merge_part *part = &parts[i][k];
            ids[i][k] = ht_vocab_find_hashed(&t->vocab, part->hash, part->text, part->n);
            if (ids[i][k] < 0) return missing_token(part, &texts[i], err);
        }
        ht_merges_prefetch(&t->merges, ids[i][0], ids[i][1]);
    }
    for (size_t i = 0; i < n; i++) ht_merges_add(&t->merges, ids[i][0], ids[i][1], ids[i][2]);
    return HT_OK;
}

ht_status ht_add_merges(ht_tokenizer *t, const ht_merge_text *texts, size_t n, ht_error *err) {
    merge_part parts[HT_MERGE_BATCH][3];
    size_t bytes = 0;
    for (size_t i = 0; i < n; i++) bytes += texts[i].n_left + texts[i].n_right;
    char small[HT_MERGE_BATCH * 32], *joined = bytes <= sizeof small ? small : malloc(bytes);
    if (!joined) return ht_fail_memory(err, bytes, "merges");
    char *at = joined;
    for (size_t i = 0; i < n; i++) {
        const ht_merge_text *m = &texts[i];
        memcpy(at, m->left, m->n_left);
        memcpy(at + m->n_left, m->right, m->n_right);
        parts[i][0] = (merge_part){at, m->n_left, 0};
        parts[i][1] = (merge_part){at + m->n_left, m->n_right, 0};
        parts[i][2] = (merge_part){at, m->n_left + m->n_right, 0};
        for (int k = 0; k < 3; k++) {
            parts[i][k].hash = ht_hash_bytes(parts[i][k].text, parts[i][k].n);
            ht_vocab_prefetch(&t->vocab, parts[i][k].hash);
        }
        at += m->n_left + m->n_right;
    }
    for (size_t i = 0; i < n; i++)
        for (int k = 0; k < 3; k++) ht_vocab_peek(&t->vocab, parts[i][k].hash);
    ht_status st = add_found(t, parts, texts, n, err);
    if (joined != small) free(joined);
    return st;
}

/* Finds the tokens of single bytes and ASCII characters, the initial symbols. */
static ht_status find_symbols(ht_tokenizer *t, ht_error *err) {
    ht_text spelled = {0};
    for (int byte = 0; byte < 256; byte++) {
        ht_text_clear(&spelled);
        ht_text_append_utf8(&spelled, ht_char_of_byte((unsigned char)byte));
        if (spelled.failed) break;
        t->byte_id[byte] = ht_vocab_find(&t->vocab, spelled.data, spelled.len);
        char name[8];
        snprintf(name, sizeof name, "<0x%02X>", (unsigned)byte);
        t->fallback_id[byte] = ht_vocab_find(&t->vocab, name, 6);
    }
    for (int c = 0; c < 128; c++) {
        char text = (char)c;
        t->ascii_id[c] = ht_vocab_find(&t->vocab, &text, 1);
    }
    if (t->unk_text) t->unk = ht_vocab_find(&t->vocab, t->unk_text, strlen(t->unk_text));
    const bool failed = spelled.failed;
    ht_text_discard(&spelled);
    return failed ? ht_fail_memory(err, 4, "the tokens of bytes") : HT_OK;
}

/* Marks the bytes that precede a U+2581 within the token. */
static void mark_joins(ht_tokenizer *t, int32_t id) {
    const char *text = ht_vocab_text(&t->vocab, id);
    size_t n = t->vocab.length[id], after_space = 0; /* end of the last U+2581 */
    for (size_t i = 0; i + 3 <= n; i++) {
        if (memcmp(text + i, HT_METASPACE, 3) != 0) continue;
        if (i > 0 && i != after_space) t->joins_metaspace[(unsigned char)text[i - 1]] = true;
        after_space = i + 3;
    }
}

/* Whether text may be split into words before the model: a merge crosses a U+2581 only after a byte that precedes
 * one in some mergeable token (joins_metaspace). */
static bool can_split_words(ht_tokenizer *t) {
    if (t->model != HT_MODEL_BPE || t->byte_level || t->ignore_merges || ht_vocab_find(&t->vocab, HT_METASPACE, 3) < 0)
        return false;
    if (t->merges.order) {
        for (int32_t id = 0; id < t->vocab.n; id++)
            if (ht_vocab_has(&t->vocab, id) && t->merges.order[id] != HT_NO_ORDER) mark_joins(t, id);
    } else
        for (int32_t i = 0; i < t->merges.n; i++) mark_joins(t, t->merges.product[i]);
    return true;
}

/* Added tokens with `normalized` are matched by their normalised form. */
static ht_status normalize_added(ht_tokenizer *t, ht_error *err) {
    ht_marked_text text = {0}, scratch = {0};
    ht_regex_work *regex = NULL;
    ht_status st = HT_OK;
    for (size_t i = 0; i < t->n_added && !st && t->n_normalizer; i++) {
        ht_added *a = &t->added[i];
        if (!a->normalized) continue;
        const ht_text *normal = &text.text;
        ht_text_clear(&text.text);
        ht_text_append(&text.text, a->text, a->n_text);
        st = ht_normalize(t->normalizer, t->n_normalizer, &regex, &text, &scratch, err);
        if (st || (normal->len == a->n_text && memcmp(normal->data, a->text, normal->len) == 0)) continue;
        a->normal = ht_copy_text(normal->data, normal->len);
        a->n_normal = normal->len;
        t->flags[a->id] |= HT_TOKEN_RESPELLED;
        if (!a->normal) st = ht_fail_memory(err, normal->len, "added tokens");
    }
    ht_regex_work_free(regex);
    ht_marked_text_discard(&text);
    ht_marked_text_discard(&scratch);
    return st;
}

/* Keeps the last of several added tokens with the same id, at the position of the first. */
static ht_status drop_duplicates(ht_tokenizer *t, ht_error *err) {
    int32_t *place = malloc(((size_t)t->vocab.n + 1) * sizeof *place);
    if (!place) return ht_fail_memory(err, (size_t)t->vocab.n * sizeof *place, "added tokens");
    memset(place, -1, ((size_t)t->vocab.n + 1) * sizeof *place);
    size_t kept = 0;
    for (size_t i = 0; i < t->n_added; i++) {
        ht_added token = t->added[i];
        int32_t *at = &place[token.id];
        if (*at < 0)
            *at = (int32_t)kept++;
        else
            free(t->added[*at].text);
        t->added[*at] = token;
    }
    t->n_added = kept;
    free(place);
    return HT_OK;
}

static ht_status finish_added(ht_tokenizer *t, ht_error *err) {
    ht_status st = drop_duplicates(t, err);
    if (st) return st;
    t->flags = calloc((size_t)t->vocab.n + 1, 1);
    if (!t->flags) return ht_fail_memory(err, (size_t)t->vocab.n, "token flags");
    for (size_t i = 0; i < t->n_added; i++)
        t->flags[t->added[i].id] |= (uint8_t)(HT_TOKEN_ADDED | (t->added[i].special ? HT_TOKEN_SPECIAL : 0));
    st = normalize_added(t, err);
    if (!st) st = ht_trie_build(&t->raw_trie, t->added, t->n_added, false, err);
    if (!st) st = ht_trie_build(&t->normal_trie, t->added, t->n_added, true, err);
    return st;
}

/* A post-processor without a template for pairs: the ids around each of the texts. */
static ht_status default_pair(ht_tokenizer *t, ht_error *err) {
    ht_status st = HT_OK;
    for (int text = 0; !st && text < 2; text++) {
        for (size_t i = 0; !st && i < t->n_prefix; i++) st = ht_add_pair_item(t, t->prefix[i], 0, err);
        if (!st) st = ht_add_pair_item(t, text ? HT_PAIR_SECOND : HT_PAIR_FIRST, text, err);
        for (size_t i = 0; !st && i < t->n_suffix; i++) st = ht_add_pair_item(t, t->suffix[i], 0, err);
    }
    return st;
}

ht_status ht_tokenizer_finish(ht_tokenizer *t, ht_error *err) {
    ht_status st = find_symbols(t, err);
    if (!st && !t->n_pair) st = default_pair(t, err);
    if (st) return st;
    t->byte_level = t->model == HT_MODEL_BPE && t->n_pre && t->pre[t->n_pre - 1].kind == HT_PRE_BYTE_LEVEL;
    t->split_words = can_split_words(t);
    return finish_added(t, err);
}

/* ---- queries ---- */

void ht_tokenizer_free(ht_tokenizer *t) {
    if (!t) return;
    ht_vocab_free(&t->vocab);
    free(t->flags);
    ht_merges_free(&t->merges);
    ht_pieces_free(&t->pieces);
    free(t->unk_text);
    for (int i = 0; i < HT_MAX_STEPS; i++) {
        ht_normal_step_free(&t->normalizer[i]);
        ht_pre_step_free(&t->pre[i]);
    }
    for (size_t i = 0; i < t->n_added; i++) {
        free(t->added[i].text);
        free(t->added[i].normal);
    }
    free(t->added);
    ht_trie_free(&t->raw_trie);
    ht_trie_free(&t->normal_trie);
    free(t->prefix);
    free(t->suffix);
    free(t->pair);
    for (int i = 0; i < t->decode.n_replace; i++) {
        free(t->decode.replace[i].from);
        free(t->decode.replace[i].to);
    }
    free(t->decode.metaspace);
    free(t->decode.strip);
    free(t->decode.word_prefix);
    free(t->chat_template);
    free(t->tool_template);
    free(t);
}

int32_t ht_tokenizer_vocab_size(const ht_tokenizer *t) { return t->vocab.n; }

const char *ht_tokenizer_piece(const ht_tokenizer *t, int32_t id) {
    if (id < 0 || id >= t->vocab.n) return NULL;
    return ht_vocab_has(&t->vocab, id) ? ht_vocab_text(&t->vocab, id) : "";
}

int32_t ht_tokenizer_find(const ht_tokenizer *t, const char *piece) {
    return ht_vocab_find(&t->vocab, piece, strlen(piece));
}

bool ht_tokenizer_is_special(const ht_tokenizer *t, int32_t id) {
    return id >= 0 && id < t->vocab.n && (t->flags[id] & HT_TOKEN_SPECIAL);
}

int32_t ht_tokenizer_bos(const ht_tokenizer *t) { return t->bos; }
int32_t ht_tokenizer_eos(const ht_tokenizer *t) { return t->eos; }

const char *ht_tokenizer_kind(const ht_tokenizer *t) {
    if (t->model == HT_MODEL_WORDPIECE) return "WordPiece";
    if (t->model == HT_MODEL_UNIGRAM) return "Unigram";
    return t->byte_level || t->decode.byte_level ? "byte-level BPE" : "SentencePiece BPE";
}

const char *ht_tokenizer_chat_template(const ht_tokenizer *t) { return t->chat_template; }
const char *ht_tokenizer_tool_template(const ht_tokenizer *t) { return t->tool_template; }
