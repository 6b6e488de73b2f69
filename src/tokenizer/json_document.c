#include "tokenizer/json_document.h"

#include "base/error.h"
#include "tokenizer/tokenizer.h"

#include <stdlib.h>

typedef struct parser {
    ht_json_scanner scan;
    ht_json_document *out;
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

/* ---- the merges ---- */

static ht_listed_merge *new_merge(parser *p) {
    ht_json_document *d = p->out;
    if (d->n_merges == d->merge_capacity) {
        size_t capacity = d->merge_capacity ? d->merge_capacity * 2 : 1024;
        ht_listed_merge *merges = realloc(d->merges, capacity * sizeof *merges);
        if (!merges) {
            ht_json_scan_fail_memory(&p->scan);
            return NULL;
        }
        d->merges = merges;
        d->merge_capacity = capacity;
    }
    ht_listed_merge *m = &d->merges[d->n_merges++];
    *m = (ht_listed_merge){.begin = d->merge_text.len};
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
    ht_listed_merge *m = new_merge(p);
    if (!m) return;
    m->n_left = (uint32_t)(space - text);
    m->n_right = (uint32_t)(n - m->n_left - 1);
    ht_text_append(&p->out->merge_text, text, m->n_left);
    ht_text_append(&p->out->merge_text, space + 1, m->n_right);
}

/* Merge of the form ["a", "b"]. */
static void add_pair(parser *p) {
    ht_listed_merge *m = new_merge(p);
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

/* Reads a vocabulary or merges into its table, or passes over a value of another kind; false: the member is neither, and
 * belongs to the document. */
static bool read_table(parser *p, const char *name, ht_json_event event) {
    const bool is_vocab = strcmp(name, "vocab") == 0, is_object = event == HT_SCAN_OBJECT;
    bool *has = is_vocab ? &p->out->has_vocab : &p->out->has_merges;
    if ((!is_vocab && strcmp(name, "merges") != 0) || (!is_object && event != HT_SCAN_ARRAY)) return false;
    if (*has)
        fail(p, "the model has two vocabularies or two lists of merges");
    else if (is_vocab != is_object)
        (void)ht_json_scan_skip(&p->scan, event);
    else {
        *has = true;
        if (is_vocab)
            read_vocab(p);
        else
            read_merges(p);
    }
    return true;
}

/* The members of an object that has begun; those of the model have tables among them. */
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

ht_status ht_json_document_parse(const char *json, size_t n, ht_json_document *out, ht_vocab *vocab, ht_error *err) {
    *out = (ht_json_document){0};
    parser p = {.out = out, .vocab = vocab, .err = err};
    ht_json_scan_begin(&p.scan, json, n,
                       &(ht_json_options){.as_python = true, .keeps_nul = true, .values_max = SIZE_MAX}, err);
    if (ht_json_scan_next(&p.scan) == HT_SCAN_OBJECT) {
        out->root = read_object(&p, false);
        (void)ht_json_scan_next(&p.scan);
    }
    return ht_json_scan_end(&p.scan);
}

void ht_json_document_free(ht_json_document *d) {
    ht_json_decref(d->root);
    ht_text_discard(&d->merge_text);
    free(d->merges);
    *d = (ht_json_document){0};
}
