/* Array saving (hearth/io.h): npy, npz, safetensors and GGUF, written atomically. */
#include "array/load.h"
#include "base/error.h"
#include "base/file.h"
#include "formats/gguf_write.h"
#include "formats/json.h"
#include "formats/npy_header.h"
#include "formats/zip.h"

#include <hearth/io.h>

#include <stdlib.h>
#include <string.h>

static size_t bytes_of(const ht_array *a) { return (size_t)ht_array_size(a) * ht_dtype_bytes(a->dtype); }

static ht_status put_elements(ht_scope *s, ht_writer *w, ht_array *a, ht_error *err) {
    const void *data;
    void *copy = NULL;
    ht_status st = ht_array_borrow(s, a, &data, &copy, err);
    if (!st && bytes_of(a)) st = ht_writer_put(w, data, bytes_of(a), err);
    free(copy);
    return st;
}

static ht_status finish(ht_writer *w, ht_status st, ht_error *err) {
    if (st == HT_OK) return ht_writer_commit(w, err);
    ht_writer_discard(w);
    return st;
}

/* ---- npy ---- */

static size_t npy_header(const ht_array *a, char header[HT_NPY_HEADER_WRITTEN]) {
    return ht_npy_write_header(a->dtype, a->shape, a->n_dims, header);
}

ht_status ht_npy_save(ht_scope *s, const char *path, ht_array *a, ht_error *err) {
    ht_status st = ht_array_eval(s, &a, 1, err);
    ht_writer *w;
    if (!st) st = ht_writer_open(path, &w, err);
    if (st) return st;
    char header[HT_NPY_HEADER_WRITTEN];
    st = ht_writer_put(w, header, npy_header(a, header), err);
    if (!st) st = put_elements(s, w, a, err);
    return finish(w, st, err);
}

/* ---- npz ---- */

static ht_status put_npz(ht_scope *s, ht_zip_writer *w, const char *name, ht_array *a, bool deflate, ht_error *err) {
    char header[HT_NPY_HEADER_WRITTEN], *file = malloc(strlen(name) + sizeof ".npy");
    if (!file) return ht_fail_memory(err, strlen(name), name);
    strcat(strcpy(file, name), ".npy");
    const size_t n = npy_header(a, header);
    const void *data;
    void *copy = NULL;
    ht_status st = ht_array_borrow(s, a, &data, &copy, err);
    if (!st) st = ht_zip_begin(w, file, n + bytes_of(a), deflate, err);
    if (!st) st = ht_zip_put(w, header, n, err);
    if (!st) st = ht_zip_put(w, data, bytes_of(a), err);
    free(copy);
    free(file);
    return st;
}

static ht_status check_names(const char *path, const char *const *names, int n, ht_error *err) {
    ht_status st = HT_OK;
    ht_json *known = ht_json_new_object();
    for (int i = 0; i < n && !st; i++) {
        if (ht_json_object_get(known, names[i]))
            st = ht_fail(err, HT_ERR_ARGUMENT, "%s: the name `%s` is given twice", path, names[i]);
        else if (!ht_utf8_valid(names[i], strlen(names[i])))
            st = ht_fail(err, HT_ERR_ARGUMENT, "%s: name %d is not UTF-8", path, i);
        else if (ht_json_object_set_new(known, names[i], ht_json_boolean(true)))
            st = ht_fail_memory(err, 0, path);
    }
    ht_json_decref(known);
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

/* ---- safetensors and GGUF ---- */

typedef struct evaluated_arrays {
    ht_scope *s;
    ht_array *const *arrays;
    void *copy; /* of the values that are being written */
} evaluated_arrays;

static ht_status values_of(void *user, int i, const void **bytes, ht_error *err) {
    evaluated_arrays *from = user;
    free(from->copy);
    return ht_array_borrow(from->s, from->arrays[i], bytes, &from->copy, err);
}

/* Evaluates the arrays and describes them for a writer; the caller frees *out. */
static ht_status describe(ht_scope *s, const char *path, const char *const *names, ht_array *const *arrays, int n,
                          ht_tensor_output **out, ht_error *err) {
    *out = NULL;
    ht_status st = ht_array_eval(s, arrays, n, err);
    if (st) return st;
    *out = calloc((size_t)n + 1, sizeof **out);
    if (!*out) return ht_fail_memory(err, (size_t)n * sizeof **out, path);
    for (int i = 0; i < n; i++)
        (*out)[i] = (ht_tensor_output){names[i], ht_dtype_file_names[arrays[i]->dtype], arrays[i]->n_dims,
                                       arrays[i]->shape, bytes_of(arrays[i])};
    return HT_OK;
}

ht_status ht_safetensors_save(ht_scope *s, const char *path, const char *const *names, ht_array *const *arrays, int n,
                              const ht_metadata_pair *pairs, int n_pairs, ht_error *err) {
    ht_tensor_output *tensors;
    ht_status st = describe(s, path, names, arrays, n, &tensors, err);
    if (st) return st;
    evaluated_arrays from = {s, arrays, NULL};
    st = ht_safetensors_write(path, tensors, n, pairs, n_pairs, values_of, &from, err);
    free(from.copy);
    free(tensors);
    return st;
}

ht_status ht_gguf_save(ht_scope *s, const char *path, const char *const *names, ht_array *const *arrays, int n,
                       const char *metadata, ht_error *err) {
    ht_json *values = NULL;
    ht_tensor_output *tensors;
    ht_status st = describe(s, path, names, arrays, n, &tensors, err);
    if (!st) st = ht_json_parse(metadata ? metadata : "{}", metadata ? strlen(metadata) : 2, path, &values, err);
    evaluated_arrays from = {s, arrays, NULL};
    if (!st) st = ht_gguf_write(path, tensors, n, values, values_of, &from, err);
    free(from.copy);
    ht_json_decref(values);
    free(tensors);
    return st;
}
