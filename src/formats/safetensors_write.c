#include "formats/safetensors_write.h"

#include "base/checked.h"
#include "base/error.h"
#include "base/file.h"
#include "formats/json.h"

#include <stdlib.h>
#include <string.h>

/* NULL when memory ran out. */
static ht_json *entry_of(const ht_tensor_output *t, size_t begin) {
    ht_json *shape = ht_json_new_array();
    for (int i = 0; shape && i < t->rank; i++)
        if (ht_json_array_append_new(shape, ht_json_integer(t->shape[i])) != 0) {
            ht_json_decref(shape);
            return NULL;
        }
    return ht_json_pack("{s:s, s:o, s:[I, I]}", "dtype", t->dtype, "shape", shape, "data_offsets", (int64_t)begin,
                        (int64_t)(begin + t->n_bytes));
}

static bool is_utf8(const char *text) { return ht_utf8_valid(text, strlen(text)); }

static ht_status make_header(const char *path, const ht_tensor_output *tensors, int n, const ht_metadata_pair *pairs,
                             int n_pairs, char **out, ht_error *err) {
    ht_json *header = ht_json_new_object(), *metadata = n_pairs ? ht_json_new_object() : NULL;
    ht_status st = header && (metadata || !n_pairs) ? HT_OK : ht_fail_memory(err, 0, path);
    for (int i = 0; i < n_pairs && !st; i++)
        if (!is_utf8(pairs[i].key) || !is_utf8(pairs[i].value))
            st = ht_fail(err, HT_ERR_ARGUMENT, "%s: metadata %d is not UTF-8", path, i);
        else if (ht_json_object_set_new(metadata, pairs[i].key, ht_json_string(pairs[i].value)))
            st = ht_fail_memory(err, 0, path);
    if (metadata && !st && ht_json_object_set(header, "__metadata__", metadata)) st = ht_fail_memory(err, 0, path);
    size_t at = 0;
    for (int i = 0; i < n && !st; i++) {
        const char *name = tensors[i].name;
        if (ht_json_object_get(header, name) || strcmp(name, "__metadata__") == 0)
            st = ht_fail(err, HT_ERR_ARGUMENT, "%s: the name `%s` is given twice, or reserved", path, name);
        else if (!is_utf8(name))
            st = ht_fail(err, HT_ERR_ARGUMENT, "%s: name %d is not UTF-8", path, i);
        else if (ht_json_object_set_new(header, name, entry_of(&tensors[i], at)))
            st = ht_fail_memory(err, 0, path);
        at += tensors[i].n_bytes;
    }
    *out = st ? NULL : ht_json_dump(header, HT_JSON_COMPACT);
    ht_json_decref(metadata);
    ht_json_decref(header);
    return st || *out ? st : ht_fail_memory(err, 0, path);
}

static ht_status put_header(ht_writer *w, const char *text, ht_error *err) {
    size_t n = strlen(text), padded = (n + 7) / 8 * 8;
    unsigned char length[8];
    for (int i = 0; i < 8; i++) length[i] = (unsigned char)((uint64_t)padded >> 8 * i);
    ht_status st = ht_writer_put(w, length, sizeof length, err);
    if (!st) st = ht_writer_put(w, text, n, err);
    return st || padded == n ? st : ht_writer_put(w, "       ", padded - n, err);
}

ht_status ht_safetensors_write(const char *path, const ht_tensor_output *tensors, int n, const ht_metadata_pair *pairs,
                               int n_pairs, ht_tensor_values *values, void *user, ht_error *err) {
    char *header = NULL;
    ht_writer *w = NULL;
    ht_status st = make_header(path, tensors, n, pairs, n_pairs, &header, err);
    if (!st) st = ht_writer_open(path, &w, err);
    if (st) {
        free(header);
        return st;
    }
    st = put_header(w, header, err);
    free(header);
    for (int i = 0; i < n && !st; i++) {
        const void *bytes;
        if (!tensors[i].n_bytes) continue;
        st = values(user, i, &bytes, err);
        if (!st) st = ht_writer_put(w, bytes, tensors[i].n_bytes, err);
    }
    if (st == HT_OK) return ht_writer_commit(w, err);
    ht_writer_discard(w);
    return st;
}

/* ---- sizes ---- */

/* Bytes of a string in JSON: control characters are escaped as \u001f. */
static size_t text_bytes(const char *text) {
    size_t n = 2;
    for (const unsigned char *c = (const unsigned char *)text; *c; c++)
        n += *c < 32 ? 6 : *c == '"' || *c == '\\' ? 2 : 1;
    return n;
}

size_t ht_safetensors_bytes_of(const ht_tensor_output *t) {
    enum { NUMBER = sizeof ",9223372036854775807" - 1 };
    static const char rest[] = ":{\"dtype\":,\"shape\":[],\"data_offsets\":[]},";
    const size_t entry = sizeof rest + text_bytes(t->name) + text_bytes(t->dtype) + NUMBER * ((size_t)t->rank + 2);
    size_t all;
    return ht_add_size(t->n_bytes, entry, &all) ? all : SIZE_MAX;
}

size_t ht_safetensors_metadata_bytes(const ht_metadata_pair *pairs, int n_pairs) {
    enum { LENGTH = 8, PADDING = 7 };
    static const char rest[] = "{\"__metadata__\":{},}";
    size_t n = LENGTH + PADDING + sizeof rest;
    for (int i = 0; i < n_pairs; i++) n += text_bytes(pairs[i].key) + text_bytes(pairs[i].value) + sizeof ":,";
    return n;
}
