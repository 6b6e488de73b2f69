#include "tokenizer/json_document.h"

#include "base/error.h"
#include "base/file.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <yajl/yajl_parse.h>

#define MAX_DEPTH 64

/* Parser position. model.vocab and model.merges are containers at depth 2. */
typedef enum part { IN_DOCUMENT, IN_VOCAB, IN_MERGES, IN_SKIPPED } part;

typedef struct parser {
    ht_json_document *out;
    ht_vocab *vocab;
    ht_json *open[MAX_DEPTH]; /* open containers of the document, outermost first; the root owns the others */
    int depth;                /* open containers, counted in every part */
    part part;
    int part_depth; /* depth inside the current part's container */
    ht_text key;    /* last key of the innermost object; in the vocabulary, the token */
    bool in_model;  /* the innermost container is root.model */
    int n_sides;    /* sides read of a merge ["a", "b"] */
    ht_status status;
    ht_error *err;
} parser;

static int fail(parser *p, ht_status status, const char *message) {
    p->status = ht_fail(p->err, status, "%s", message);
    return 0;
}

static int out_of_memory(parser *p) {
    p->status = ht_fail_memory(p->err, p->vocab->arena_size, "tokenizer.json");
    return 0;
}

/* Adds a finished value to the innermost container; takes ownership of the reference. */
static int put(parser *p, ht_json *value) {
    if (!value) return out_of_memory(p);
    if (p->depth == 0) {
        ht_json_decref(value);
        return fail(p, HT_ERR_FORMAT, "the document is not an object");
    }
    ht_json *parent = p->open[p->depth - 1];
    if (ht_json_is_array(parent)) return ht_json_array_append_new(parent, value) == 0 ? 1 : out_of_memory(p);
    if (ht_json_object_get(parent, p->key.data)) {
        ht_json_decref(value);
        p->status = ht_fail(p->err, HT_ERR_FORMAT, "the member `%.64s` occurs twice", p->key.data);
        return 0;
    }
    return ht_json_object_set_new(parent, p->key.data, value) == 0 ? 1 : out_of_memory(p);
}

/* Adds a scalar; an error in the vocabulary, whose values are integers only. */
static int put_scalar(parser *p, ht_json *value) {
    if (p->part == IN_DOCUMENT) return put(p, value);
    ht_json_decref(value);
    if (p->part == IN_SKIPPED) return 1;
    return fail(p, HT_ERR_FORMAT,
                p->part == IN_VOCAB ? "model.vocab has a value that is not an integer"
                                    : "model.merges has an item that is neither a text nor a pair of texts");
}

static int on_null(void *user) { return put_scalar(user, ht_json_null()); }
static int on_boolean(void *user, int value) { return put_scalar(user, ht_json_boolean(value)); }
static int on_double(void *user, double value) {
    return put_scalar(user, isfinite(value) ? ht_json_real(value) : ht_json_null());
}

static int on_integer(void *user, long long value) {
    parser *p = user;
    if (p->part != IN_VOCAB) return put_scalar(p, ht_json_integer(value));
    if (value < 0 || value >= HT_MAX_VOCAB) {
        p->status = ht_fail(p->err, HT_ERR_LIMIT, "model.vocab has the id %lld; 0 to %d are supported", value,
                            HT_MAX_VOCAB - 1);
        return 0;
    }
    p->status = ht_vocab_set(p->vocab, (int32_t)value, p->key.data, p->key.len, p->err);
    return p->status == HT_OK;
}

static ht_listed_merge *new_merge(parser *p) {
    ht_json_document *d = p->out;
    if (d->n_merges == d->merge_capacity) {
        size_t capacity = d->merge_capacity ? d->merge_capacity * 2 : 1024;
        ht_listed_merge *merges = realloc(d->merges, capacity * sizeof *merges);
        if (!merges) return NULL;
        d->merges = merges;
        d->merge_capacity = capacity;
    }
    ht_listed_merge *m = &d->merges[d->n_merges++];
    *m = (ht_listed_merge){.begin = d->merge_text.len};
    return m;
}

/* Merge of the form "a b". */
static int add_joined_merge(parser *p, const char *text, size_t n) {
    const char *space = n > 2 ? memchr(text + 1, ' ', n - 2) : NULL;
    if (!space || memchr(space + 1, ' ', n - (size_t)(space + 1 - text)))
        return fail(p, HT_ERR_FORMAT, "model.merges has a text that is not two tokens with one space between");
    ht_listed_merge *m = new_merge(p);
    if (!m) return out_of_memory(p);
    m->n_left = (uint32_t)(space - text);
    m->n_right = (uint32_t)(n - m->n_left - 1);
    ht_text_append(&p->out->merge_text, text, m->n_left);
    ht_text_append(&p->out->merge_text, space + 1, m->n_right);
    return p->out->merge_text.failed ? out_of_memory(p) : 1;
}

/* One side of a merge ["a", "b"]. */
static int add_merge_side(parser *p, const char *text, size_t n) {
    if (p->n_sides == 2) return fail(p, HT_ERR_FORMAT, "model.merges has a merge of more than two tokens");
    ht_listed_merge *m = p->n_sides ? &p->out->merges[p->out->n_merges - 1] : new_merge(p);
    if (!m) return out_of_memory(p);
    *(p->n_sides ? &m->n_right : &m->n_left) = (uint32_t)n;
    p->n_sides++;
    ht_text_append(&p->out->merge_text, text, n);
    return p->out->merge_text.failed ? out_of_memory(p) : 1;
}

static int on_string(void *user, const unsigned char *bytes, size_t n) {
    parser *p = user;
    const char *text = (const char *)bytes;
    if (p->part == IN_MERGES && n <= UINT32_MAX)
        return p->depth == p->part_depth ? add_joined_merge(p, text, n) : add_merge_side(p, text, n);
    return put_scalar(p, ht_json_stringn(text, n));
}

static int on_key(void *user, const unsigned char *bytes, size_t n) {
    parser *p = user;
    if (p->part == IN_SKIPPED) return 1;
    ht_text_clear(&p->key);
    ht_text_append(&p->key, bytes, n);
    if (p->key.failed) return out_of_memory(p);
    if (p->part == IN_DOCUMENT && memchr(bytes, '\0', n))
        return fail(p, HT_ERR_FORMAT, "the name of a member contains a NUL");
    return 1;
}

static bool key_is(const parser *p, const char *name) { return p->key.data && strcmp(p->key.data, name) == 0; }

/* Opens a container; model.vocab and model.merges begin a part. */
static int open_container(parser *p, bool object) {
    if (p->depth == MAX_DEPTH) return fail(p, HT_ERR_LIMIT, "the document is nested more than 64 deep");
    if (p->part == IN_DOCUMENT && p->depth == 2 && p->in_model && (key_is(p, "vocab") || key_is(p, "merges"))) {
        bool vocab = key_is(p, "vocab");
        if (vocab ? p->out->has_vocab : p->out->has_merges)
            return fail(p, HT_ERR_FORMAT, "the model has two vocabularies or two lists of merges");
        p->part = vocab && object ? IN_VOCAB : !vocab && !object ? IN_MERGES : IN_SKIPPED;
        p->out->has_vocab = p->out->has_vocab || p->part == IN_VOCAB;
        p->out->has_merges = p->out->has_merges || p->part == IN_MERGES;
        p->part_depth = ++p->depth;
        return 1;
    }
    if (p->part == IN_VOCAB) return fail(p, HT_ERR_FORMAT, "model.vocab has a value that is not an integer");
    if (p->part == IN_MERGES) {
        if (object || p->depth != p->part_depth)
            return fail(p, HT_ERR_FORMAT, "model.merges has an item that is neither a text nor a pair of texts");
        p->n_sides = 0;
    }
    if (p->part == IN_DOCUMENT) {
        ht_json *container = object ? ht_json_new_object() : ht_json_new_array();
        if (!container) return out_of_memory(p);
        if (p->depth == 0)
            p->out->root = container;
        else if (!put(p, container))
            return 0;
        p->in_model = p->depth == 1 && object && key_is(p, "model");
        p->open[p->depth] = container;
    }
    p->depth++;
    return 1;
}

static int close_container(parser *p) {
    if (p->part == IN_MERGES && p->depth > p->part_depth && p->n_sides != 2)
        return fail(p, HT_ERR_FORMAT, "model.merges has a merge of fewer than two tokens");
    if (p->part != IN_DOCUMENT && p->depth == p->part_depth) p->part = IN_DOCUMENT;
    p->depth--;
    p->in_model = p->part == IN_DOCUMENT && p->depth == 2 && p->open[1] == ht_json_object_get(p->open[0], "model") &&
                  ht_json_is_object(p->open[1]);
    return 1;
}

static int on_open_object(void *user) { return open_container(user, true); }
static int on_open_array(void *user) { return open_container(user, false); }
static int on_close(void *user) { return close_container(user); }

static const yajl_callbacks callbacks = {
    .yajl_null = on_null,
    .yajl_boolean = on_boolean,
    .yajl_integer = on_integer,
    .yajl_double = on_double,
    .yajl_string = on_string,
    .yajl_start_map = on_open_object,
    .yajl_map_key = on_key,
    .yajl_end_map = on_close,
    .yajl_start_array = on_open_array,
    .yajl_end_array = on_close,
};

static ht_status syntax_error(const char *json, size_t at, ht_error *err) {
    size_t line = 1, column = 1;
    for (size_t i = 0; i < at; i++) {
        column++;
        if (json[i] == '\n') {
            line++;
            column = 1;
        }
    }
    return ht_fail(err, HT_ERR_FORMAT, "is not valid JSON at line %zu, column %zu", line, column);
}

ht_status ht_json_document_parse(const char *json, size_t n, ht_json_document *out, ht_vocab *vocab, ht_error *err) {
    *out = (ht_json_document){0};
    if (ht_is_lfs_pointer(json, n)) return ht_fail(err, HT_ERR_FORMAT, "%s", HT_LFS_POINTER);
    parser p = {.out = out, .vocab = vocab, .err = err};
    yajl_handle handle = yajl_alloc(&callbacks, NULL, &p);
    if (!handle) return ht_fail_memory(err, n, "tokenizer.json");
    yajl_status status = yajl_parse(handle, (const unsigned char *)json, n);
    size_t at = yajl_get_bytes_consumed(handle);
    if (status == yajl_status_ok) {
        status = yajl_complete_parse(handle);
        at = n;
    }
    yajl_free(handle);
    ht_text_discard(&p.key);
    if (p.status) return p.status;
    if (status != yajl_status_ok) return syntax_error(json, at < n ? at : n, err);
    if (!ht_json_is_object(out->root)) return ht_fail(err, HT_ERR_FORMAT, "the document is not an object");
    return HT_OK;
}

void ht_json_document_free(ht_json_document *d) {
    ht_json_decref(d->root);
    ht_text_discard(&d->merge_text);
    free(d->merges);
    *d = (ht_json_document){0};
}
