/* Array loading (hearth/io.h): arrays are read on demand, directly into their buffers. */
#include "array/load.h"

#include "array/array.h"
#include "base/checked.h"
#include "base/error.h"
#include "base/file.h"
#include "formats/gguf.h"
#include "formats/json.h"
#include "formats/npy_header.h"
#include "formats/safetensors.h"

#include <hearth/io.h>
#include <hearth/ops.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- npy ---- */

/* Unfilled array for an npy file. Fortran order is row-major order of the reversed shape, transposed after reading. */
static ht_array *place_for(ht_scope *s, const ht_npy_header *h, void **data) {
    int64_t shape[HT_NPY_RANK_MAX];
    for (int i = 0; i < h->rank; i++) shape[i] = h->shape[h->fortran ? h->rank - 1 - i : i];
    return ht_array_unfilled(s, h->dtype, shape, h->rank, data);
}

static void swap_bytes(unsigned char *data, size_t n_bytes, size_t width) {
    for (size_t i = 0; i < n_bytes; i += width)
        for (size_t k = 0; k < width / 2; k++) {
            const unsigned char byte = data[i + k];
            data[i + k] = data[i + width - 1 - k];
            data[i + width - 1 - k] = byte;
        }
}

/* The array of the file: `a`, whose elements at `data` are as stored, after byte swapping and transposition. */
static ht_array *as_announced(ht_scope *s, const ht_npy_header *h, ht_array *a, void *data) {
    if (h->swapped) swap_bytes(data, h->n_bytes, ht_dtype_bytes(h->dtype));
    a = ht_array_filled(s, a);
    return a && h->fortran && h->rank > 1 ? ht_transpose(s, a, NULL) : a;
}

ht_array *ht_npy_parse(ht_scope *s, const void *data, size_t size, const char *name) {
    ht_npy_header h;
    ht_error err = {0};
    void *to;
    if (ht_npy_read_header(data, size, size, name, &h, &err)) return ht_scope_fail_with(s, &err);
    ht_array *a = place_for(s, &h, &to);
    if (a && h.n_bytes) memcpy(to, (const char *)data + h.begin, h.n_bytes);
    return a ? as_announced(s, &h, a, to) : NULL;
}

static ht_array *load_npy(ht_scope *s, ht_file *file, ht_error *err) {
    ht_npy_header h;
    size_t size = file->size < HT_NPY_HEADER_MAX ? file->size : HT_NPY_HEADER_MAX;
    void *to;
    if (ht_file_fetch(file, size, err)) return NULL;
    if (ht_npy_read_header(file->data, size, file->size, file->path, &h, err)) return NULL;
    ht_array *a = place_for(s, &h, &to);
    if (!a || (h.n_bytes && ht_file_read_at(file, h.begin, to, h.n_bytes, err))) return NULL;
    return as_announced(s, &h, a, to);
}

ht_array *ht_npy_load(ht_scope *s, const char *path) {
    ht_file *file;
    ht_error err = {0};
    if (ht_file_open(path, &file, &err)) return ht_scope_fail_with(s, &err);
    ht_array *a = load_npy(s, file, &err);
    ht_file_close(file);
    return a || !err.status ? a : ht_scope_fail_with(s, &err);
}

/* ---- npz ---- */

static ht_status open_npz(ht_array_file *f, ht_error *err) {
    ht_status st = ht_zip_read(f->file, ".npy", &f->zip, err);
    if (st) return st;
    f->count = f->zip->count;
    f->metadata = strdup("{}");
    return f->metadata ? HT_OK : ht_fail_memory(err, 0, f->file->path);
}

/* Reads one npy entry: the head for its header, the rest directly into the array. */
static ht_array *read_entry(ht_scope *s, const ht_array_file *f, size_t i, ht_zip_stream *in, char *head,
                            ht_error *err) {
    const size_t size = f->zip->entries[i].size, n = ht_min_size(size, HT_NPY_HEADER_MAX);
    char name[512];
    snprintf(name, sizeof name, "%s: `%s`", f->file->path, f->zip->entries[i].name);
    ht_npy_header h;
    void *to;
    if (ht_zip_get(in, head, n, err) || ht_npy_read_header(head, n, size, name, &h, err)) return NULL;
    if (h.n_bytes != size - h.begin) {
        ht_fail(err, HT_ERR_FORMAT, "%s: %zu bytes of elements are declared, %zu are present", name, h.n_bytes,
                size - h.begin);
        return NULL;
    }
    ht_array *a = place_for(s, &h, &to);
    const size_t first = a ? ht_min_size(n - h.begin, h.n_bytes) : 0;
    if (first) memcpy(to, head + h.begin, first);
    if (!a || (h.n_bytes > first && ht_zip_get(in, (char *)to + first, h.n_bytes - first, err))) return NULL;
    return as_announced(s, &h, a, to);
}

static ht_array *read_npz(ht_scope *s, const ht_array_file *f, size_t i) {
    ht_error err = {0};
    ht_zip_stream *in = NULL;
    ht_array *a = NULL;
    char *head = malloc(HT_NPY_HEADER_MAX);
    if (!head)
        ht_fail_memory(&err, HT_NPY_HEADER_MAX, f->file->path);
    else if (!ht_zip_open(f->zip, i, &in, &err))
        a = read_entry(s, f, i, in, head, &err);
    ht_zip_close(in);
    free(head);
    return a || !err.status ? a : ht_scope_fail_with(s, &err);
}

/* ---- safetensors and GGUF ---- */

static ht_status open_safetensors(ht_array_file *f, const char *path, ht_error *err) {
    ht_status st = ht_safetensors_open(path, &f->safetensors, err);
    if (st) return st;
    f->count = ht_safetensors_count(f->safetensors);
    const ht_json *metadata = f->safetensors->metadata;
    f->metadata = metadata ? ht_json_dump(metadata, HT_JSON_COMPACT) : strdup("{}");
    return f->metadata ? HT_OK : ht_fail_memory(err, 0, path);
}

ht_status ht_array_file_open(const char *path, ht_array_file **out, ht_error *err) {
    *out = NULL;
    ht_array_file *f = calloc(1, sizeof *f);
    if (!f) return ht_fail_memory(err, sizeof *f, path);
    char magic[4] = "";
    ht_status st = ht_file_open(path, &f->file, err);
    if (!st && f->file->size >= sizeof magic) st = ht_file_read_at(f->file, 0, magic, sizeof magic, err);
    if (!st) {
        bool is_zip =
            memcmp(magic, "PK\3\4", 4) == 0 || memcmp(magic, "PK\5\6", 4) == 0; /* the second: an empty archive */
        st = is_zip                          ? open_npz(f, err)
             : memcmp(magic, "GGUF", 4) == 0 ? ht_array_file_open_gguf(f, err)
                                             : open_safetensors(f, path, err);
    }
    if (st)
        ht_array_file_free(f);
    else
        *out = f;
    return st;
}

void ht_array_file_free(ht_array_file *f) {
    if (!f) return;
    ht_safetensors_close(f->safetensors);
    for (size_t i = 0; f->parts && i < f->count; i++) free(f->parts[i].name);
    free(f->parts);
    ht_gguf_free(f->gguf);
    ht_zip_free(f->zip);
    ht_file_close(f->file);
    free(f->metadata);
    free(f);
}

size_t ht_array_file_count(const ht_array_file *f) { return f->count; }
const char *ht_array_file_metadata(const ht_array_file *f) { return f->metadata; }

const char *ht_array_file_name(const ht_array_file *f, size_t i) {
    if (f->zip) return f->zip->entries[i].name;
    return f->gguf ? f->parts[i].name : ht_safetensors_at(f->safetensors, i)->name;
}

static bool find_dtype(const char *name, ht_dtype *out) {
    static const struct {
        const char *name;
        ht_dtype dtype;
    } known[] = {{"BOOL", HT_BOOL}, {"U8", HT_U8},   {"U16", HT_U16}, {"U32", HT_U32},    {"U64", HT_U64},
                 {"I8", HT_I8},     {"I16", HT_I16}, {"I32", HT_I32}, {"I64", HT_I64},    {"F16", HT_F16},
                 {"BF16", HT_BF16}, {"F32", HT_F32}, {"F64", HT_F64}, {"F8_E4M3", HT_U8}, {"F8_E5M2", HT_U8}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strcmp(known[i].name, name) == 0) {
            *out = known[i].dtype;
            return true;
        }
    return false;
}

static ht_array *read_safetensor(ht_scope *s, const ht_array_file *f, const ht_safetensor *t) {
    ht_dtype dtype;
    void *to;
    ht_error err = {0};
    if (!find_dtype(t->dtype, &dtype))
        return ht_scope_fail(s, HT_ERR_UNSUPPORTED, "%s: `%s` is of %s, which is no dtype here", f->file->path, t->name,
                             t->dtype);
    ht_array *a = ht_array_unfilled(s, dtype, t->shape, t->rank, &to);
    if (a && t->n_bytes &&
        ht_file_read_at(ht_safetensors_file(f->safetensors, t->file), t->offset, to, t->n_bytes, &err))
        return ht_scope_fail_with(s, &err);
    return ht_array_filled(s, a);
}

ht_array *ht_array_file_read(ht_scope *s, ht_array_file *f, size_t i) {
    if (i >= f->count)
        return ht_scope_fail(s, HT_ERR_ARGUMENT, "%s: array %zu of %zu was asked for", f->file->path, i, f->count);
    if (f->zip) return read_npz(s, f, i);
    return f->gguf ? ht_array_file_read_gguf(s, f, i) : read_safetensor(s, f, ht_safetensors_at(f->safetensors, i));
}
