#include "formats/gguf_write.h"

#include "base/checked.h"
#include "base/error.h"
#include "base/file.h"
#include "formats/json.h"

#include <string.h>

enum { ALIGNMENT = 32, VERSION = 3, DIMS_MAX = 4, HEADER = 4 + 4 + 8 + 8 };

static const char alignment_key[] = "general.alignment";

/* Output with a sticky error. */
typedef struct sink {
    ht_writer *w; /* NULL: bytes are counted alone */
    const char *path;
    size_t n, alignment;
    ht_status status;
    ht_error *err;
} sink;

static void put(sink *s, const void *bytes, size_t n) {
    if (!s->status && n && s->w) s->status = ht_writer_put(s->w, bytes, n, s->err);
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
    static const ht_gguf_type numbers[] = {HT_GGUF_U8,  HT_GGUF_I8,  HT_GGUF_U16, HT_GGUF_I16,
                                           HT_GGUF_U32, HT_GGUF_I32, HT_GGUF_F32, HT_GGUF_BOOL,
                                           HT_GGUF_U64, HT_GGUF_I64, HT_GGUF_F64};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (strcmp(ht_gguf_type_name(numbers[i]), name) == 0) {
            *out = numbers[i];
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

static void put_metadata(sink *s, ht_json *metadata) {
    const char *key;
    ht_json *value;
    ht_json_object_foreach(metadata, key, value) put_pair(s, key, value);
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

/* ggml's number of a dense type, in safetensors' spelling of it; -1 when GGUF has no such type. */
static int gguf_dense_type(const char *dtype) {
    static const struct {
        const char *name;
        int type;
    } known[] = {{"F32", 0}, {"F16", 1}, {"I8", 24}, {"I16", 25}, {"I32", 26}, {"I64", 27}, {"F64", 28}, {"BF16", 30}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strcmp(known[i].name, dtype) == 0) return known[i].type;
    return -1;
}

static int type_id(const char *dtype) {
    int dense = gguf_dense_type(dtype);
    return dense >= 0 ? dense : ht_gguf_type_id(dtype);
}

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
        else if (type_id(t->dtype) < 0)
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
        put_number(s, (uint64_t)type_id(t->dtype), 4);
        put_number(s, at, 8);
        at += (t->n_bytes + s->alignment - 1) / s->alignment * s->alignment;
    }
}

/* Opens the file and writes what is before the metadata. */
static ht_status begin(sink *s, const ht_tensor_output *tensors, int n, uint64_t n_values) {
    ht_status st = check_tensors(s->path, tensors, n, s->err);
    if (!st) st = ht_writer_open(s->path, &s->w, s->err);
    if (st) return st;
    put(s, "GGUF", 4);
    put_number(s, VERSION, 4);
    put_number(s, (uint64_t)n, 8);
    put_number(s, n_values, 8);
    return HT_OK;
}

/* Writes what is behind the metadata, and commits the file. */
static ht_status finish(sink *s, const ht_tensor_output *tensors, int n, ht_tensor_values *values, void *user) {
    put_directory(s, tensors, n);
    pad(s);
    for (int i = 0; i < n && !s->status; i++) {
        const void *bytes;
        s->status = values(user, i, &bytes, s->err);
        if (s->status) break;
        put(s, bytes, tensors[i].n_bytes);
        pad(s);
    }
    if (s->status == HT_OK) return ht_writer_commit(s->w, s->err);
    ht_writer_discard(s->w);
    return s->status;
}

ht_status ht_gguf_write(const char *path, const ht_tensor_output *tensors, int n, ht_json *metadata,
                        ht_tensor_values *values, void *user, ht_error *err) {
    sink s = {.path = path, .alignment = ALIGNMENT, .err = err};
    ht_status st = begin(&s, tensors, n, ht_json_object_size(metadata));
    if (st) return st;
    put_metadata(&s, metadata);
    return finish(&s, tensors, n, values, user);
}

ht_status ht_gguf_rewrite(const char *path, const ht_gguf *from, ht_json *changes, const ht_tensor_output *tensors,
                          int n, ht_tensor_values *values, void *user, ht_error *err) {
    sink s = {.path = path, .alignment = ht_gguf_alignment(from), .err = err};
    ht_status st = begin(&s, tensors, n, count_changed(from, changes));
    if (st) return st;
    put_changed(&s, from, changes);
    return finish(&s, tensors, n, values, user);
}

/* ---- parts ---- */

size_t ht_gguf_alignment(const ht_gguf *from) {
    uint64_t alignment;
    return from && ht_gguf_get_u64(from, alignment_key, &alignment) ? (size_t)alignment : ALIGNMENT;
}

/* The metadata of a part, with the alignment where it is not the usual one. */
static void put_part_metadata(sink *s, ht_json *metadata) {
    put_metadata(s, metadata);
    if (s->alignment == ALIGNMENT) return;
    put_text(s, alignment_key, sizeof alignment_key - 1);
    put_number(s, HT_GGUF_U32, 4);
    put_number(s, s->alignment, 4);
}

ht_status ht_gguf_write_part(const char *path, const ht_gguf *first, ht_json *metadata, const ht_tensor_output *tensors,
                             int n, ht_tensor_values *values, void *user, ht_error *err) {
    sink s = {.path = path, .alignment = ht_gguf_alignment(first), .err = err};
    ht_status st = begin(&s, tensors, n, ht_json_object_size(metadata) + (s.alignment != ALIGNMENT));
    if (st) return st;
    put_part_metadata(&s, metadata);
    return finish(&s, tensors, n, values, user);
}

/* ---- sizes ---- */

ht_status ht_gguf_metadata_bytes(const ht_gguf *from, ht_json *metadata, bool is_part, size_t *out, ht_error *err) {
    sink s = {.path = "GGUF metadata", .alignment = ht_gguf_alignment(from), .n = HEADER, .err = err};
    if (is_part)
        put_part_metadata(&s, metadata);
    else if (from)
        put_changed(&s, from, metadata);
    else
        put_metadata(&s, metadata);
    *out = s.n;
    return s.status;
}

size_t ht_gguf_bytes_of(const ht_tensor_output *t, size_t alignment) {
    const size_t entry = 8 + strlen(t->name) + 4 + 8 * (size_t)t->rank + 4 + 8;
    size_t values, all;
    return ht_align_size(t->n_bytes, alignment, &values) && ht_add_size(values, entry, &all) ? all : SIZE_MAX;
}
