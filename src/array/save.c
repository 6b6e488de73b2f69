/* Array saving (hearth/io.h): npy, npz and safetensors, written atomically. */
#include "array/array.h"
#include "base/error.h"
#include "base/file.h"
#include "formats/npy_header.h"
#include "formats/zip.h"

#include <hearth/io.h>

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static size_t bytes_of(const ht_array *a) { return (size_t)ht_array_size(a) * ht_dtype_bytes(a->dtype); }

static ht_status put_elements(ht_scope *s, ht_writer *w, ht_array *a, ht_error *err) {
    const void *data;
    ht_status st = ht_array_data(s, a, &data, err);
    return st || !bytes_of(a) ? st : ht_writer_put(w, data, bytes_of(a), err);
}

static ht_status finish(ht_writer *w, ht_status st, ht_error *err) {
    if (st == HT_OK) return ht_writer_commit(w, err);
    ht_writer_discard(w);
    return st;
}

/* ---- npy ---- */

enum { PREFIX = 10, ALIGNMENT = 64 };

static size_t npy_header(const ht_array *a, char header[512]) {
    static const char magic[8] = {'\x93', 'N', 'U', 'M', 'P', 'Y', 1, 0};
    memcpy(header, magic, sizeof magic);
    size_t n = PREFIX, capacity = 512;
    n += (size_t)snprintf(header + n, capacity - n, "{'descr': '%s', 'fortran_order': False, 'shape': (",
                          ht_npy_descr(a->dtype));
    for (int i = 0; i < a->n_dims; i++)
        n += (size_t)snprintf(header + n, capacity - n, i && i == a->n_dims - 1 ? "%" PRId64 : "%" PRId64 ", ",
                              a->shape[i]);
    n += (size_t)snprintf(header + n, capacity - n, "), }");
    size_t end = (n + 1 + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    memset(header + n, ' ', end - n);
    header[end - 1] = '\n';
    header[8] = (char)((end - PREFIX) & 255);
    header[9] = (char)((end - PREFIX) >> 8);
    return end;
}

ht_status ht_npy_save(ht_scope *s, const char *path, ht_array *a, ht_error *err) {
    ht_status st = ht_array_eval(s, &a, 1, err);
    ht_writer *w;
    if (!st) st = ht_writer_open(path, &w, err);
    if (st) return st;
    char header[512];
    st = ht_writer_put(w, header, npy_header(a, header), err);
    if (!st) st = put_elements(s, w, a, err);
    return finish(w, st, err);
}

/* ---- npz ---- */

static ht_status put_npz(ht_scope *s, ht_zip_writer *w, const char *name, ht_array *a, bool deflate, ht_error *err) {
    char header[512], *file = malloc(strlen(name) + sizeof ".npy");
    if (!file) return ht_fail_memory(err, strlen(name), name);
    strcat(strcpy(file, name), ".npy");
    const size_t n = npy_header(a, header);
    const void *data;
    ht_status st = ht_array_data(s, a, &data, err);
    if (!st) st = ht_zip_begin(w, file, n + bytes_of(a), deflate, err);
    if (!st) st = ht_zip_put(w, header, n, err);
    if (!st) st = ht_zip_put(w, data, bytes_of(a), err);
    free(file);
    return st;
}

static ht_status check_names(const char *path, const char *const *names, int n, ht_error *err) {
    ht_status st = HT_OK;
    json_t *known = json_object();
    for (int i = 0; i < n && !st; i++) {
        if (json_object_get(known, names[i]))
            st = ht_fail(err, HT_ERR_ARGUMENT, "%s: the name `%s` is given twice", path, names[i]);
        else if (json_object_set_new(known, names[i], json_true()))
            st = ht_fail(err, HT_ERR_ARGUMENT, "%s: name %d is no UTF-8", path, i);
    }
    json_decref(known);
    return st;
}

ht_status ht_npz_save(ht_scope *s, const char *path, const char *const *names, ht_array *const *arrays, int n,
                      bool deflate, ht_error *err) {
    ht_zip_writer *w;
    ht_status st = ht_array_eval(s, arrays, n, err);
    if (!st) st = check_names(path, names, n, err);
    if (!st) st = ht_zip_writer_open(path, &w, err);
    if (st) return st;
    for (int i = 0; i < n && !st; i++) st = put_npz(s, w, names[i], arrays[i], deflate, err);
    if (st == HT_OK) return ht_zip_commit(w, err);
    ht_zip_discard(w);
    return st;
}

/* ---- safetensors ---- */

static const char *const names_of_dtypes[HT_DTYPE_COUNT] = {
    [HT_BOOL] = "BOOL", [HT_U8] = "U8",   [HT_U16] = "U16",   [HT_U32] = "U32", [HT_U64] = "U64",
    [HT_I8] = "I8",     [HT_I16] = "I16", [HT_I32] = "I32",   [HT_I64] = "I64", [HT_F16] = "F16",
    [HT_F32] = "F32",   [HT_F64] = "F64", [HT_BF16] = "BF16",
};

static json_t *entry_of(const ht_array *a, size_t begin) {
    json_t *shape = json_array();
    for (int i = 0; shape && i < a->n_dims; i++) json_array_append_new(shape, json_integer(a->shape[i]));
    return json_pack("{s:s, s:o, s:[I, I]}", "dtype", names_of_dtypes[a->dtype], "shape", shape, "data_offsets",
                     (json_int_t)begin, (json_int_t)(begin + bytes_of(a)));
}

static ht_status make_header(const char *path, const char *const *names, ht_array *const *arrays, int n,
                             const char *const *keys, const char *const *values, int n_pairs, char **out,
                             ht_error *err) {
    json_t *header = json_object(), *metadata = n_pairs ? json_object() : NULL;
    ht_status st = header && (metadata || !n_pairs) ? HT_OK : ht_fail_memory(err, 0, path);
    for (int i = 0; i < n_pairs && !st; i++)
        if (json_object_set_new(metadata, keys[i], json_string(values[i])))
            st = ht_fail(err, HT_ERR_ARGUMENT, "%s: metadata %d is no UTF-8", path, i);
    if (metadata && !st) json_object_set(header, "__metadata__", metadata);
    size_t at = 0;
    for (int i = 0; i < n && !st; i++) {
        if (json_object_get(header, names[i]) || strcmp(names[i], "__metadata__") == 0)
            st = ht_fail(err, HT_ERR_ARGUMENT, "%s: the name `%s` is given twice, or reserved", path, names[i]);
        else if (json_object_set_new(header, names[i], entry_of(arrays[i], at)))
            st = ht_fail(err, HT_ERR_ARGUMENT, "%s: name %d is no UTF-8", path, i);
        at += bytes_of(arrays[i]);
    }
    *out = st ? NULL : json_dumps(header, JSON_COMPACT);
    json_decref(metadata);
    json_decref(header);
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

ht_status ht_safetensors_save(ht_scope *s, const char *path, const char *const *names, ht_array *const *arrays, int n,
                              const char *const *keys, const char *const *values, int n_pairs, ht_error *err) {
    char *header = NULL;
    ht_writer *w = NULL;
    ht_status st = ht_array_eval(s, arrays, n, err);
    if (!st) st = make_header(path, names, arrays, n, keys, values, n_pairs, &header, err);
    if (!st) st = ht_writer_open(path, &w, err);
    if (st) {
        free(header);
        return st;
    }
    st = put_header(w, header, err);
    for (int i = 0; i < n && !st; i++) st = put_elements(s, w, arrays[i], err);
    free(header);
    return finish(w, st, err);
}
