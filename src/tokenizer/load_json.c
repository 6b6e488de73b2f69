/* Tokenizer from a tokenizer.json. A scanner reads vocabulary and merges, nearly all of the file, into flat tables
 * and the rest into a JSON document, loaded stage by stage (load_stages.c). */
#include "tokenizer/load_json.h"

#include "base/checked.h"
#include "base/error.h"
#include "base/grow.h"
#include "formats/json.h"
#include "tokenizer/load_config.h"
#include "tokenizer/tokenizer.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct listed_merge { /* text[begin, begin + n_left + n_right): left and right, adjacent */
    size_t begin;
    uint32_t n_left, n_right;
} listed_merge;

typedef struct document {
    ht_json *root;              /* without model.vocab and model.merges */
    bool has_vocab, has_merges; /* the vocabulary is an object of ids */
    bool has_scores;            /* the vocabulary is a list of texts with scores, as in Unigram models */
    double *scores;             /* [n_scores] */
    size_t n_scores;
    ht_text merge_text;
    listed_merge *merges;
    size_t n_merges, merge_capacity;
} document;

typedef struct parser {
    ht_json_scanner scan;
    document *out;
    ht_vocab *vocab;
    ht_error *err;
} parser;

static void fail(parser *p, const char *message) { ht_json_scan_fail(&p->scan, HT_ERR_FORMAT, "%s", message); }

/* ---- the vocabulary ---- */

/* The id at a number, HT_MAX_VOCAB for one beyond the limits; -1 when it is not an integer. */
static int64_t id_of(const ht_json_scanner *s) {
    int64_t id = 0;
    const bool is_negative = s->bytes[0] == '-';
    for (size_t i = is_negative; i < s->n_bytes; i++) {
        if (s->bytes[i] < '0' || s->bytes[i] > '9') return -1;
        if (id < HT_MAX_VOCAB) id = id * 10 + (s->bytes[i] - '0');
    }
    return is_negative || id > HT_MAX_VOCAB ? HT_MAX_VOCAB : id;
}

static void read_vocab(parser *p) {
    ht_json_scanner *s = &p->scan;
    while (ht_json_scan_next(s) == HT_SCAN_KEY) {
        const char *token = s->bytes;
        const size_t n = s->n_bytes;
        const ht_json_event event = ht_json_scan_next(s);
        const int64_t id = event == HT_SCAN_NUMBER ? id_of(s) : -1;
        if (id < 0)
            fail(p, "model.vocab has a value that is not an integer");
        else if (id == HT_MAX_VOCAB)
            ht_json_scan_fail(s, HT_ERR_LIMIT, "model.vocab has the id %.*s; 0 to %d are supported",
                              s->n_bytes < 32 ? (int)s->n_bytes : 32, s->bytes, HT_MAX_VOCAB - 1);
        else if (!s->status)
            s->status = ht_vocab_set(p->vocab, (int32_t)id, token, n, p->err);
    }
}

/* The finite number of the last event; false for any other value. */
static bool number_of(const ht_json_scanner *s, ht_json_event event, double *out) {
    char spelling[64];
    if (event != HT_SCAN_NUMBER || s->n_bytes >= sizeof spelling) return false;
    memcpy(spelling, s->bytes, s->n_bytes);
    spelling[s->n_bytes] = '\0';
    *out = strtod(spelling, NULL);
    return isfinite(*out);
}

/* A vocabulary of the form [["a", -1.5], ...]; the ids are the indices. */
static void read_scores(parser *p) {
    ht_json_scanner *s = &p->scan;
    document *d = p->out;
    ht_json_event event;
    while ((event = ht_json_scan_next(s)) > HT_SCAN_END && event != HT_SCAN_CLOSE) {
        const int32_t id = (int32_t)d->n_scores;
        if (event != HT_SCAN_ARRAY || ht_json_scan_next(s) != HT_SCAN_STRING) {
            fail(p, "model.vocab has an item that is not a text with a score");
            return;
        }
        s->status = ht_vocab_set(p->vocab, id, s->bytes, s->n_bytes, p->err);
        if (s->status) return;
        if (!HT_GROW_ONE(d->scores, d->n_scores)) {
            ht_json_scan_fail_memory(s);
            return;
        }
        if (!number_of(s, ht_json_scan_next(s), &d->scores[d->n_scores++]))
            fail(p, "model.vocab has a score that is not a finite number");
        else if (ht_json_scan_next(s) != HT_SCAN_CLOSE)
            fail(p, "model.vocab has an item of more than a text and a score");
    }
}

/* ---- the merges ---- */

static listed_merge *new_merge(parser *p) {
    document *d = p->out;
    if (!HT_GROW(d->merges, d->merge_capacity, d->n_merges + 1)) {
        ht_json_scan_fail_memory(&p->scan);
        return NULL;
    }
    listed_merge *m = &d->merges[d->n_merges++];
    *m = (listed_merge){.begin = d->merge_text.len};
    return m;
}

/* Merge of the form "a b". */
static void add_joined_merge(parser *p) {
    const char *text = p->scan.bytes;
    const size_t n = p->scan.n_bytes;
    const char *space = n > 2 ? memchr(text + 1, ' ', n - 2) : NULL;
    if (!space || memchr(space + 1, ' ', n - (size_t)(space + 1 - text))) {
        fail(p, "model.merges has a text that is not two tokens with one space between");
        return;
    }
    listed_merge *m = new_merge(p);
    if (!m) return;
    m->n_left = (uint32_t)(space - text);
    m->n_right = (uint32_t)(n - m->n_left - 1);
    ht_text_append(&p->out->merge_text, text, m->n_left);
    ht_text_append(&p->out->merge_text, space + 1, m->n_right);
}

/* Merge of the form ["a", "b"]. */
static void add_pair(parser *p) {
    listed_merge *m = new_merge(p);
    uint32_t *side[] = {m ? &m->n_left : NULL, m ? &m->n_right : NULL};
    int n = 0;
    ht_json_event event;
    while (m && (event = ht_json_scan_next(&p->scan)) == HT_SCAN_STRING) {
        if (n == 2) {
            fail(p, "model.merges has a merge of more than two tokens");
            return;
        }
        *side[n++] = (uint32_t)p->scan.n_bytes;
        ht_text_append(&p->out->merge_text, p->scan.bytes, p->scan.n_bytes);
    }
    if (!m) return;
    if (event != HT_SCAN_CLOSE)
        fail(p, "model.merges has an item that is neither a text nor a pair of texts");
    else if (n < 2)
        fail(p, "model.merges has a merge of fewer than two tokens");
}

static void read_merges(parser *p) {
    ht_json_event event;
    while ((event = ht_json_scan_next(&p->scan)) > HT_SCAN_END && event != HT_SCAN_CLOSE) {
        if (p->scan.n_bytes > UINT32_MAX)
            fail(p, "model.merges has a text of more than 4 GiB");
        else if (event == HT_SCAN_STRING)
            add_joined_merge(p);
        else if (event == HT_SCAN_ARRAY)
            add_pair(p);
        else
            fail(p, "model.merges has an item that is neither a text nor a pair of texts");
        if (p->out->merge_text.failed) ht_json_scan_fail_memory(&p->scan);
    }
}

/* ---- the document ---- */

/* Reads the vocabulary or the merges into a table, or skips merges that are an object. False: a field for read_object. */
static bool read_table(parser *p, const char *name, ht_json_event event) {
    document *d = p->out;
    const bool is_vocab = strcmp(name, "vocab") == 0, is_object = event == HT_SCAN_OBJECT;
    if ((!is_vocab && strcmp(name, "merges") != 0) || (!is_object && event != HT_SCAN_ARRAY)) return false;
    bool *has = !is_vocab ? &d->has_merges : is_object ? &d->has_vocab : &d->has_scores;
    if (*has || (is_vocab && d->has_vocab) || (is_vocab && d->has_scores))
        fail(p, "the model has two vocabularies or two lists of merges");
    else if (!is_vocab && is_object)
        (void)ht_json_scan_skip(&p->scan, event);
    else {
        *has = true;
        if (!is_vocab)
            read_merges(p);
        else if (is_object)
            read_vocab(p);
        else
            read_scores(p);
    }
    return true;
}

/* Reads the rest of an object. The vocabulary and merges of the model go to tables instead. */
static ht_json *read_object(parser *p, bool is_model) {
    ht_json_scanner *s = &p->scan;
    ht_json *object = ht_json_new_object();
    if (!object) ht_json_scan_fail_memory(s);
    while (ht_json_scan_next(s) == HT_SCAN_KEY) {
        char *name = ht_copy_text(s->bytes, s->n_bytes);
        const ht_json_event event = name ? ht_json_scan_next(s) : ht_json_scan_fail_memory(s);
        if (event == HT_SCAN_FAILED || !is_model || !read_table(p, name, event)) {
            const bool is_next = !is_model && event == HT_SCAN_OBJECT && strcmp(name, "model") == 0;
            ht_json *value = is_next ? read_object(p, true) : ht_json_scan_value(s, event);
            if (!value || ht_json_object_set_new(object, name, value)) ht_json_scan_fail_memory(s);
        }
        free(name);
    }
    return object;
}

/* Fills `vocab` (without its index) from model.vocab. */
static ht_status parse_document(const char *json, size_t n, document *out, ht_vocab *vocab, ht_error *err) {
    *out = (document){0};
    parser p = {.out = out, .vocab = vocab, .err = err};
    ht_json_scan_begin(&p.scan, json, n,
                       &(ht_json_options){.as_python = true, .keeps_nul = true, .values_max = SIZE_MAX}, err);
    if (ht_json_scan_next(&p.scan) == HT_SCAN_OBJECT) {
        out->root = read_object(&p, false);
        (void)ht_json_scan_next(&p.scan);
    }
    return ht_json_scan_end(&p.scan);
}

static void free_document(document *d) {
    ht_json_decref(d->root);
    ht_text_discard(&d->merge_text);
    free(d->merges);
    free(d->scores);
}

/* ---- model and added tokens ---- */

static bool is_empty(const ht_json *value) {
    return ht_is_absent(value) || (ht_json_is_string(value) && !ht_json_string_length(value)) ||
           (ht_json_is_number(value) && ht_json_number_value(value) == 0);
}

static void load_merges(ht_loader *l, const document *d) {
    if (d->n_merges > HT_MAX_MERGES)
        FAIL(l, HT_ERR_LIMIT, "model.merges has %zu merges; at most %d are supported", d->n_merges, HT_MAX_MERGES);
    if (!l->status) l->status = ht_merges_reserve(&l->t->merges, (int32_t)d->n_merges, l->err);
    ht_merge_text batch[HT_MERGE_BATCH];
    for (size_t i = 0, n; i < d->n_merges && !l->status; i += n) {
        n = ht_min_size(HT_MERGE_BATCH, d->n_merges - i);
        for (size_t k = 0; k < n; k++) {
            const listed_merge *m = &d->merges[i + k];
            const char *left = d->merge_text.data + m->begin;
            batch[k] = (ht_merge_text){left, left + m->n_left, m->n_left, m->n_right};
        }
        l->status = ht_add_merges(l->t, batch, n, l->err);
    }
}

static void load_unknown(ht_loader *l, const ht_json *model) {
    const ht_json *unk = ht_json_object_get(model, "unk_token");
    if (ht_json_is_string(unk)) l->t->unk_text = ht_copy_for(l, ht_json_string_value(unk), ht_json_string_length(unk));
}

static void load_bpe(ht_loader *l, const document *d, const ht_json *model) {
    static const char *const must_be_empty[] = {"dropout", "continuing_subword_prefix", "end_of_word_suffix"};
    if (!d->has_vocab || !d->has_merges) FAIL(l, HT_ERR_FORMAT, "the model has no `vocab` or no `merges`");
    for (int i = 0; i < 3; i++)
        if (!is_empty(ht_json_object_get(model, must_be_empty[i])))
            FAIL(l, HT_ERR_UNSUPPORTED, "model: `%s` is not supported", must_be_empty[i]);
    l->t->fuse_unk = ht_get_bool(l, model, "fuse_unk", false);
    l->t->byte_fallback = ht_get_bool(l, model, "byte_fallback", false);
    l->t->ignore_merges = ht_get_bool(l, model, "ignore_merges", false);
    load_unknown(l, model);
    if (!l->status) load_merges(l, d);
}

static void load_wordpiece(ht_loader *l, const document *d, const ht_json *model) {
    ht_pieces *p = &l->t->pieces;
    const ht_json *most = ht_json_object_get(model, "max_input_chars_per_word"),
                  *prefix = ht_json_object_get(model, "continuing_subword_prefix");
    if (!d->has_vocab) FAIL(l, HT_ERR_FORMAT, "the model has no `vocab`");
    if (most && (!ht_json_is_integer(most) || ht_json_integer_value(most) < 0))
        FAIL(l, HT_ERR_FORMAT, "model: `max_input_chars_per_word` is not a number of characters");
    p->most_chars = most ? (size_t)ht_json_integer_value(most) : HT_WORDPIECE_CHARS;
    p->prefix = prefix ? ht_copy_field(l, model, "continuing_subword_prefix", &p->n_prefix)
                       : ht_copy_for(l, "##", p->n_prefix = 2);
    load_unknown(l, model);
    if (!l->t->unk_text) l->t->unk_text = ht_copy_for(l, "[UNK]", 5);
}

static void load_unigram(ht_loader *l, const document *d, const ht_json *model) {
    ht_tokenizer *t = l->t;
    const ht_json *unk = ht_json_object_get(model, "unk_id");
    const int64_t id = ht_json_integer_value(unk);
    if (!d->has_scores) FAIL(l, HT_ERR_FORMAT, "the model has no `vocab` of texts with scores");
    if (!ht_is_absent(unk) && (!ht_json_is_integer(unk) || id < 0 || id >= t->vocab.n))
        FAIL(l, HT_ERR_FORMAT, "model: `unk_id` is not an id of the vocabulary");
    if (l->status) return;
    t->byte_fallback = ht_get_bool(l, model, "byte_fallback", false);
    if (!ht_is_absent(unk)) t->unk = (int32_t)id;
    t->pieces.score = malloc((d->n_scores + 1) * sizeof *d->scores);
    if (!t->pieces.score)
        l->status = ht_fail_memory(l->err, d->n_scores * sizeof *d->scores, "token scores");
    else if (d->n_scores)
        memcpy(t->pieces.score, d->scores, d->n_scores * sizeof *d->scores);
}

/* Old files do not name the model. */
static const char *model_type(const document *d, const ht_json *model) {
    const ht_json *type = ht_json_object_get(model, "type");
    if (type) return ht_json_is_string(type) ? ht_json_string_value(type) : "(no text)";
    if (d->has_scores) return "Unigram";
    if (ht_json_object_get(model, "max_input_chars_per_word")) return "WordPiece";
    return d->has_merges ? "BPE" : "(without type)";
}

static void load_model(ht_loader *l, const document *d) {
    static const struct {
        const char *type;
        ht_model_kind kind;
        void (*load)(ht_loader *l, const document *d, const ht_json *model);
    } models[] = {{"BPE", HT_MODEL_BPE, load_bpe},
                  {"WordPiece", HT_MODEL_WORDPIECE, load_wordpiece},
                  {"Unigram", HT_MODEL_UNIGRAM, load_unigram}};
    const ht_json *model = ht_json_object_get(d->root, "model");
    ht_tokenizer *t = l->t;
    l->stage = "model";
    if (!ht_json_is_object(model)) FAIL(l, HT_ERR_FORMAT, "the document has no `model`");
    if (!l->status) l->status = ht_vocab_index(&t->vocab, l->err);
    const char *type = model_type(d, model);
    size_t i = 0;
    while (i < 3 && strcmp(type, models[i].type) != 0) i++;
    if (i == 3) FAIL(l, HT_ERR_UNSUPPORTED, "the model `%.40s` is not supported; BPE, WordPiece and Unigram are", type);
    for (int32_t id = 0; id < t->vocab.n; id++) t->n_model_tokens += ht_vocab_has(&t->vocab, id);
    t->pieces.n = t->vocab.n;
    if (l->status) return;
    t->model = models[i].kind;
    models[i].load(l, d, model);
    if (!l->status && t->model != HT_MODEL_BPE) l->status = ht_pieces_build(&t->pieces, &t->vocab, l->err);
}

static void list_added(ht_loader *l, const ht_json *list, ht_listed_tokens *tokens) {
    for (size_t i = 0; i < ht_json_array_size(list) && !l->status; i++) {
        const ht_json *item = ht_json_array_get(list, i), *id = ht_json_object_get(item, "id");
        size_t n;
        const char *text = ht_get_text(l, item, "content", &n);
        ht_added token = {
            .special = ht_get_bool(l, item, "special", false),
            .normalized = ht_get_bool(l, item, "normalized", true),
            .lstrip = ht_get_bool(l, item, "lstrip", false),
            .rstrip = ht_get_bool(l, item, "rstrip", false),
            .single_word = ht_get_bool(l, item, "single_word", false),
        };
        if (!ht_json_is_integer(id)) FAIL(l, HT_ERR_FORMAT, "added_tokens: `%.64s` has no id", text);
        if (l->status) return;
        int64_t value = ht_json_integer_value(id);
        if (value < 0 || value >= HT_MAX_VOCAB)
            FAIL(l, HT_ERR_LIMIT, "added_tokens: `%.64s` has an id that is out of range", text);
        else {
            token.id = (int32_t)value;
            l->status = ht_list_added(tokens, token, text, n, l->err);
        }
    }
}

static void load_added(ht_loader *l, const ht_json *root) {
    ht_listed_tokens tokens = {0};
    l->stage = "added_tokens";
    list_added(l, ht_json_object_get(root, "added_tokens"), &tokens);
    if (!l->status) l->status = ht_merge_added(l->t, &tokens, "tokenizer.json", l->err);
    ht_listed_tokens_free(&tokens);
}

static void load_document(ht_loader *l, const document *d, const char *config, size_t n_config) {
    ht_load_document_stages(l, d->root);
    l->t->may_add_bos = is_empty(ht_json_object_get(d->root, "post_processor"));
    load_model(l, d);
    if (!l->status) load_added(l, d->root);
    if (!l->status && config) l->status = ht_load_tokenizer_config(l->t, config, n_config, l->err);
    if (!l->status) l->status = ht_vocab_index(&l->t->vocab, l->err); /* again: added tokens extend it */
    if (!l->status) ht_check_ends(l);
    if (!l->status && l->t->bos < 0 && l->t->n_prefix) l->t->bos = l->t->prefix[0];
    if (!l->status) l->status = ht_tokenizer_finish(l->t, l->err);
}

ht_status ht_tokenizer_from_json(const char *json, size_t n, const char *config, size_t n_config, ht_tokenizer **out,
                                 ht_error *err) {
    *out = NULL;
    ht_loader l = {.err = err};
    l.t = ht_tokenizer_new(err);
    if (!l.t) return HT_ERR_MEMORY;
    document d;
    l.status = parse_document(json, n, &d, &l.t->vocab, err);
    if (!l.status) load_document(&l, &d, config, n_config);
    free_document(&d);
    if (l.status) {
        ht_tokenizer_free(l.t);
        return l.status;
    }
    *out = l.t;
    return HT_OK;
}
