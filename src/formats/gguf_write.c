#include "formats/gguf_write.h"

#include "base/checked.h"
#include "base/error.h"
#include "base/file.h"
#include "formats/json.h"

#include <stdlib.h>
#include <string.h>

enum { ALIGNMENT = 32, VERSION = 3, DIMS_MAX = 4, HEADER = 4 + 4 + 8 + 8 };

static const char alignment_key[] = "general.alignment";

/* Output with a sticky error. */
typedef struct sink {
    ht_writer *w;          /* NULL: into memory, */
    unsigned char *memory; /* or NULL: only counts bytes */
    const char *path;
    size_t n, alignment;
    ht_status status;
    ht_error *err;
} sink;

static void put(sink *s, const void *bytes, size_t n) {
    if (!s->status && n && s->w) s->status = ht_writer_put(s->w, bytes, n, s->err);
    if (s->memory && n) memcpy(s->memory + s->n, bytes, n);
    s->n += n;
}

static void put_number(sink *s, uint64_t value, size_t bytes) {
    unsigned char b[8];
    for (size_t i = 0; i < bytes; i++) b[i] = (unsigned char)(value >> 8 * i);
    put(s, b, bytes);
}

static void put_text(sink *s, const char *text, size_t n) {
    put_number(s, n, 8);
    put(s, text, n);
}

static void pad(sink *s) {
    static const char zeros[ALIGNMENT];
    for (size_t left = (s->alignment - s->n % s->alignment) % s->alignment, part; left; left -= part) {
        part = ht_min_size(left, sizeof zeros);
        put(s, zeros, part);
    }
}

/* ---- metadata ---- */

static void refuse(sink *s, const char *key, const char *what) {
    if (!s->status) s->status = ht_fail(s->err, HT_ERR_ARGUMENT, "%s: metadata `%s` %s", s->path, key, what);
}

static bool type_named(const char *name, ht_gguf_type *out) {
    for (int type = HT_GGUF_U8; type <= HT_GGUF_F64; type++) {
        if (type == HT_GGUF_STRING || type == HT_GGUF_ARRAY || strcmp(ht_gguf_type_name((ht_gguf_type)type), name) != 0)
            continue;
        *out = (ht_gguf_type)type;
        return true;
    }
    return false;
}

static void put_integer(sink *s, const char *key, const ht_json *value, int bits, bool is_signed) {
    int64_t n = (int64_t)ht_json_integer_value(value);
    int64_t most = bits == 64 ? INT64_MAX : (int64_t)((UINT64_C(1) << (is_signed ? bits - 1 : bits)) - 1);
    if (!ht_json_is_integer(value) || n > most || n < (is_signed ? -most - 1 : 0))
        refuse(s, key, "holds what is no integer of its dtype");
    else
        put_number(s, (uint64_t)n, (size_t)bits / 8);
}

static void put_real(sink *s, const char *key, const ht_json *value, size_t bytes) {
    double d = ht_json_number_value(value);
    float f = (float)d;
    if (!ht_json_is_number(value))
        refuse(s, key, "holds what is no number");
    else
        put(s, bytes == 4 ? (const void *)&f : (const void *)&d, bytes);
}

static void put_item(sink *s, const char *key, ht_gguf_type type, const ht_json *value) {
    switch (type) {
    case HT_GGUF_U8: put_integer(s, key, value, 8, false); break;
    case HT_GGUF_I8: put_integer(s, key, value, 8, true); break;
    case HT_GGUF_U16: put_integer(s, key, value, 16, false); break;
    case HT_GGUF_I16: put_integer(s, key, value, 16, true); break;
    case HT_GGUF_U32: put_integer(s, key, value, 32, false); break;
    case HT_GGUF_I32: put_integer(s, key, value, 32, true); break;
    case HT_GGUF_U64: put_integer(s, key, value, 64, false); break;
    case HT_GGUF_I64: put_integer(s, key, value, 64, true); break;
    case HT_GGUF_F32: put_real(s, key, value, 4); break;
    case HT_GGUF_F64: put_real(s, key, value, 8); break;
    case HT_GGUF_BOOL:
        if (!ht_json_is_boolean(value)) refuse(s, key, "holds what is neither true nor false");
        put_number(s, ht_json_is_true(value), 1);
        break;
    case HT_GGUF_STRING:
        if (!ht_json_is_string(value)) refuse(s, key, "holds what is no text");
        put_text(s, ht_json_is_string(value) ? ht_json_string_value(value) : "", ht_json_string_length(value));
        break;
    case HT_GGUF_ARRAY: break;
    }
}

/* Writes a metadata value of the form of ht_array_file_metadata: a string, a list of strings, or {"dtype": ...,
 * "value": ...}. */
static void put_value(sink *s, const char *key, const ht_json *value) {
    ht_gguf_type type = HT_GGUF_STRING;
    const ht_json *items = value;
    if (ht_json_is_object(value)) {
        const char *name = ht_json_string_value(ht_json_object_get(value, "dtype"));
        items = ht_json_object_get(value, "value");
        if (!name || !items || !type_named(name, &type)) {
            refuse(s, key, "has no dtype that GGUF knows, or no value");
            return;
        }
    }
    if (!ht_json_is_array(items)) {
        put_number(s, type, 4);
        put_item(s, key, type, items);
        return;
    }
    put_number(s, HT_GGUF_ARRAY, 4);
    put_number(s, type, 4);
    put_number(s, ht_json_array_size(items), 8);
    for (size_t i = 0; i < ht_json_array_size(items); i++) put_item(s, key, type, ht_json_array_get(items, i));
}

static void put_pair(sink *s, const char *key, const ht_json *value) {
    if (strcmp(key, alignment_key) == 0) refuse(s, key, "is the writer's to choose");
    put_text(s, key, strlen(key));
    put_value(s, key, value);
}

/* ---- metadata of another file ---- */

/* The change of a value; NULL: it stays as it is. */
static const ht_json *change_of(const ht_json *changes, const ht_gguf_value *v) {
    return ht_json_object_getn(changes, v->key.data, v->key.len);
}

static bool is_new(const ht_gguf *from, const char *key, const ht_json *value) {
    return !ht_json_is_null(value) && !ht_gguf_find(from, key);
}

static uint64_t count_changed(const ht_gguf *from, ht_json *changes) {
    const char *key;
    ht_json *value;
    uint64_t n = 0;
    for (size_t i = 0; i < ht_gguf_n_values(from); i++) {
        const ht_json *change = change_of(changes, ht_gguf_value_at(from, i));
        n += !change || !ht_json_is_null(change);
    }
    ht_json_object_foreach(changes, key, value) n += is_new(from, key, value);
    return n;
}

static void put_changed(sink *s, const ht_gguf *from, ht_json *changes) {
    for (size_t i = 0; i < ht_gguf_n_values(from); i++) {
        const ht_gguf_value *v = ht_gguf_value_at(from, i);
        const ht_json *change = change_of(changes, v);
        if (change && ht_json_is_null(change)) continue;
        put_text(s, v->key.data, v->key.len);
        if (change) {
            put_value(s, "of another file", change);
            continue;
        }
        put_number(s, v->type, 4);
        if (v->type == HT_GGUF_ARRAY) {
            put_number(s, v->item_type, 4);
            put_number(s, v->n_items, 8);
        }
        put(s, v->items, v->items_bytes);
    }
    const char *key;
    ht_json *value;
    ht_json_object_foreach(changes, key, value) if (is_new(from, key, value)) put_pair(s, key, value);
}

/* ---- tensors ---- */

static ht_status check_tensors(const char *path, const ht_tensor_output *tensors, int n, ht_error *err) {
    ht_json *known = ht_json_new_object();
    ht_status st = known ? HT_OK : ht_fail_memory(err, 0, path);
    for (int i = 0; i < n && !st; i++) {
        const ht_tensor_output *t = &tensors[i];
        if (ht_json_object_get(known, t->name))
            st = ht_fail(err, HT_ERR_ARGUMENT, "%s: the name `%s` is given twice", path, t->name);
        else if (!*t->name || !ht_utf8_valid(t->name, strlen(t->name)))
            st = ht_fail(err, HT_ERR_ARGUMENT, "%s: name %d is empty or not UTF-8", path, i);
        else if (ht_json_object_set_new(known, t->name, ht_json_boolean(true)))
            st = ht_fail_memory(err, 0, path);
        else if (ht_gguf_type_id(t->dtype) < 0)
            st =
                ht_fail(err, HT_ERR_ARGUMENT, "%s: `%s` is of %s, which GGUF has no type for", path, t->name, t->dtype);
        else if (t->rank < 1 || t->rank > DIMS_MAX || !t->n_bytes)
            st = ht_fail(err, HT_ERR_ARGUMENT,
                         "%s: `%s` has %d axes and %zu bytes; arrays in GGUF have 1 to %d axes and an element", path,
                         t->name, t->rank, t->n_bytes, DIMS_MAX);
    }
    ht_json_decref(known);
    return st;
}

static void put_directory(sink *s, const ht_tensor_output *tensors, int n) {
    uint64_t at = 0;
    for (int i = 0; i < n; i++) {
        const ht_tensor_output *t = &tensors[i];
        put_text(s, t->name, strlen(t->name));
        put_number(s, (uint64_t)t->rank, 4);
        for (int d = t->rank - 1; d >= 0; d--) put_number(s, (uint64_t)t->shape[d], 8);
        put_number(s, (uint64_t)ht_gguf_type_id(t->dtype), 4);
        put_number(s, at, 8);
        at += (t->n_bytes + s->alignment - 1) / s->alignment * s->alignment;
    }
}

/* ---- files ---- */

size_t ht_gguf_alignment(const ht_gguf *from) {
    uint64_t alignment;
    return from && ht_gguf_get_u64(from, alignment_key, &alignment) ? (size_t)alignment : ALIGNMENT;
}

/* A later part has `metadata`, plus the alignment if it is not the default. Other files have the metadata of `from`
 * with changes, or `metadata` without `from`. */
static uint64_t count_values(const sink *s, const ht_gguf *from, ht_json *metadata, bool is_part) {
    if (from && !is_part) return count_changed(from, metadata);
    return ht_json_object_size(metadata) + (is_part && s->alignment != ALIGNMENT);
}

static void put_values(sink *s, const ht_gguf *from, ht_json *metadata, bool is_part) {
    const char *key;
    ht_json *value;
    if (from && !is_part) {
        put_changed(s, from, metadata);
        return;
    }
    ht_json_object_foreach(metadata, key, value) put_pair(s, key, value);
    if (!is_part || s->alignment == ALIGNMENT) return;
    put_text(s, alignment_key, sizeof alignment_key - 1);
    put_number(s, HT_GGUF_U32, 4);
    put_number(s, s->alignment, 4);
}

typedef struct contents {
    const ht_gguf *from;
    ht_json *metadata;
    bool is_part;
    const ht_tensor_output *tensors;
    int n;
    ht_tensor_values *values;
    void *user;
} contents;

static void put_header(sink *s, const contents *c) {
    put(s, "GGUF", 4);
    put_number(s, VERSION, 4);
    put_number(s, (uint64_t)c->n, 8);
    put_number(s, count_values(s, c->from, c->metadata, c->is_part), 8);
    put_values(s, c->from, c->metadata, c->is_part);
    put_directory(s, c->tensors, c->n);
    pad(s);
}

static ht_status write_file(const char *path, const contents *c, ht_error *err) {
    sink s = {.path = path, .alignment = ht_gguf_alignment(c->from), .err = err};
    ht_status st = check_tensors(path, c->tensors, c->n, err);
    if (!st) st = ht_writer_open(path, &s.w, err);
    if (st) return st;
    put_header(&s, c);
    for (int i = 0; i < c->n && !s.status; i++) {
        const void *bytes;
        s.status = c->values(c->user, i, &bytes, err);
        if (s.status) break;
        put(&s, bytes, c->tensors[i].n_bytes);
        pad(&s);
    }
    if (s.status == HT_OK) return ht_writer_commit(s.w, err);
    ht_writer_discard(s.w);
    return s.status;
}

ht_status ht_gguf_write(const char *path, const ht_tensor_output *tensors, int n, ht_json *metadata,
                        ht_tensor_values *values, void *user, ht_error *err) {
    return write_file(path, &(contents){NULL, metadata, false, tensors, n, values, user}, err);
}

ht_status ht_gguf_rewrite(const char *path, const ht_gguf *from, ht_json *changes, const ht_tensor_output *tensors,
                          int n, ht_tensor_values *values, void *user, ht_error *err) {
    return write_file(path, &(contents){from, changes, false, tensors, n, values, user}, err);
}

ht_status ht_gguf_write_part(const char *path, const ht_gguf *first, ht_json *metadata, const ht_tensor_output *tensors,
                             int n, ht_tensor_values *values, void *user, ht_error *err) {
    return write_file(path, &(contents){first, metadata, true, tensors, n, values, user}, err);
}

ht_status ht_gguf_write_zeros(const ht_tensor_output *tensors, int n, ht_json *metadata, unsigned char **out,
                              size_t *size, ht_error *err) {
    const contents all = {NULL, metadata, false, tensors, n, NULL, NULL};
    sink count = {.path = "GGUF metadata", .alignment = ALIGNMENT, .err = err};
    put_header(&count, &all);
    *size = count.n;
    for (int i = 0; i < n; i++) *size += (tensors[i].n_bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    *out = count.status ? NULL : calloc(*size, 1);
    if (!*out) return count.status ? count.status : ht_fail_memory(err, *size, count.path);
    sink s = {.path = count.path, .alignment = ALIGNMENT, .memory = *out, .err = err};
    put_header(&s, &all);
    return HT_OK;
}

/* ---- sizes ---- */

ht_status ht_gguf_metadata_bytes(const ht_gguf *from, ht_json *metadata, bool is_part, size_t *out, ht_error *err) {
    sink s = {.path = "GGUF metadata", .alignment = ht_gguf_alignment(from), .n = HEADER, .err = err};
    put_values(&s, from, metadata, is_part);
    *out = s.n;
    return s.status;
}

size_t ht_gguf_bytes_of(const ht_tensor_output *t, size_t alignment) {
    const size_t entry = 8 + strlen(t->name) + 4 + 8 * (size_t)t->rank + 4 + 8;
    size_t values, all;
    return ht_align_size(t->n_bytes, alignment, &values) && ht_add_size(values, entry, &all) ? all : SIZE_MAX;
}
