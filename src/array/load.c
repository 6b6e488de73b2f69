/* Array loading (hearth/io.h): arrays are read on demand, directly into their buffers. */
#include "array/load.h"

#include "array/array.h"
#include "base/checked.h"
#include "base/error.h"
#include "base/file.h"
#include "base/half.h"
#include "formats/blocks.h"
#include "formats/gguf.h"
#include "formats/json.h"
#include "formats/npy_header.h"
#include "formats/safetensors.h"
#include "formats/zip.h"

#include <hearth/io.h>
#include <hearth/ops.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Content of an array read from a GGUF file: a whole tensor, or one part of its quantised blocks. */
typedef enum ht_part { HT_PART_ALL, HT_PART_NUMBERS, HT_PART_SCALES, HT_PART_BIASES } ht_part;

/* An array that a GGUF file holds: which tensor, and which part of it. */
typedef struct ht_gguf_array {
    char *name;
    size_t tensor;
    ht_part part;
} ht_gguf_array;

struct ht_array_file {
    ht_file *file;
    ht_safetensors *safetensors; /* exactly one of the three formats is not NULL */
    ht_gguf *gguf;
    ht_zip *zip;
    ht_gguf_array *parts; /* [count], GGUF only */
    size_t count;
    char *metadata;
};

const char *const ht_dtype_file_names[HT_DTYPE_COUNT] = {
    [HT_BOOL] = "BOOL", [HT_U8] = "U8",   [HT_U16] = "U16",   [HT_U32] = "U32", [HT_U64] = "U64",
    [HT_I8] = "I8",     [HT_I16] = "I16", [HT_I32] = "I32",   [HT_I64] = "I64", [HT_F16] = "F16",
    [HT_F32] = "F32",   [HT_F64] = "F64", [HT_BF16] = "BF16",
};

static ht_dtype dtype_named(const char *name) {
    for (int d = HT_BOOL; d < HT_DTYPE_COUNT; d++)
        if (strcmp(ht_dtype_file_names[d], name) == 0) return (ht_dtype)d;
    return HT_DTYPE_NONE;
}

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

/* ---- safetensors ---- */

static ht_status open_safetensors(ht_array_file *f, const char *path, ht_error *err) {
    ht_status st = ht_safetensors_open(path, &f->safetensors, err);
    if (st) return st;
    f->count = ht_safetensors_count(f->safetensors);
    const ht_json *metadata = f->safetensors->metadata;
    f->metadata = metadata ? ht_json_dump(metadata, HT_JSON_COMPACT) : strdup("{}");
    return f->metadata ? HT_OK : ht_fail_memory(err, 0, path);
}

static ht_array *read_safetensor(ht_scope *s, const ht_array_file *f, const ht_safetensor *t) {
    const bool is_f8 = !strcmp(t->dtype, "F8_E4M3") || !strcmp(t->dtype, "F8_E5M2");
    const ht_dtype dtype = is_f8 ? HT_U8 : dtype_named(t->dtype);
    void *to;
    ht_error err = {0};
    if (!dtype)
        return ht_scope_fail(s, HT_ERR_UNSUPPORTED, "%s: `%s` is of %s, which is no dtype here", f->file->path, t->name,
                             t->dtype);
    ht_array *a = ht_array_unfilled(s, dtype, t->shape, t->rank, &to);
    if (a && t->n_bytes &&
        ht_file_read_at(ht_safetensors_file(f->safetensors, t->file), t->offset, to, t->n_bytes, &err))
        return ht_scope_fail_with(s, &err);
    return ht_array_filled(s, a);
}

/* ---- GGUF, as in MLX: block types that are affine groups stay quantised ---- */

enum { GROUP = 32 };

static bool is_affine(int type) { return type == HT_W_Q4_0 || type == HT_W_Q4_1 || type == HT_W_Q8_0; }

/* Adds an array for a part of a tensor: the scales of "a.weight" are "a.scales", its biases "a.biases". */
static bool add_part(ht_array_file *f, size_t tensor, ht_part part) {
    static const char *const last[] = {"", "", ".scales", ".biases"};
    static const char weight[] = ".weight";
    ht_bytes name = ht_gguf_tensor_at(f->gguf, tensor)->name;
    size_t n = name.len, w = sizeof weight - 1;
    if (last[part][0] && n > w && memcmp(name.data + n - w, weight, w) == 0) n -= w;
    char *text = malloc(n + strlen(last[part]) + 1);
    if (!text) return false;
    memcpy(text, name.data, n);
    strcpy(text + n, last[part]);
    f->parts[f->count++] = (ht_gguf_array){text, tensor, part};
    return true;
}

static ht_status list_parts(ht_array_file *f, ht_error *err) {
    size_t n = ht_gguf_n_tensors(f->gguf), bytes;
    bool good = ht_mul_size(n + 1, 3 * sizeof *f->parts, &bytes) && (f->parts = calloc(1, bytes)) != NULL;
    for (size_t i = 0; i < n && good; i++) {
        if (is_affine(ht_gguf_tensor_at(f->gguf, i)->type))
            good = add_part(f, i, HT_PART_NUMBERS) && add_part(f, i, HT_PART_SCALES) && add_part(f, i, HT_PART_BIASES);
        else
            good = add_part(f, i, HT_PART_ALL);
    }
    return good ? HT_OK : ht_fail_memory(err, n * sizeof *f->parts, f->file->path);
}

static ht_json *number_of(const ht_gguf_value *v, uint64_t i) {
    int64_t whole;
    double real;
    if (ht_gguf_item_i64(v, i, &whole))
        return v->item_type == HT_GGUF_BOOL ? ht_json_boolean(whole) : ht_json_integer(whole);
    return ht_gguf_item_f64(v, i, &real) ? ht_json_real(real)
                                         : ht_json_null(); /* infinities, and integers beyond i64 */
}

static ht_json *numbers_of(const ht_gguf_value *v) {
    if (v->type != HT_GGUF_ARRAY) return number_of(v, 0);
    ht_json *list = ht_json_new_array();
    for (uint64_t i = 0; list && i < v->n_items; i++) ht_json_array_append_new(list, number_of(v, i));
    return list;
}

static ht_json *strings_of(const ht_gguf_value *v) {
    ht_json *list = ht_json_new_array();
    ht_bytes text;
    for (size_t offset = 0; list && ht_gguf_next_string(v, &offset, &text);)
        ht_json_array_append_new(list, ht_json_stringn(text.data, text.len));
    if (v->type == HT_GGUF_ARRAY || !list) return list;
    ht_json *only = ht_json_incref(ht_json_array_get(list, 0));
    ht_json_decref(list);
    return only;
}

static ht_json *value_of(const ht_gguf_value *v) {
    if (v->item_type == HT_GGUF_STRING) return strings_of(v);
    return ht_json_pack("{s:s, s:o}", "dtype", ht_gguf_type_name(v->item_type), "value", numbers_of(v));
}

static ht_status read_metadata(ht_array_file *f, ht_error *err) {
    ht_json *all = ht_json_new_object();
    for (size_t i = 0; all && i < ht_gguf_n_values(f->gguf); i++) {
        const ht_gguf_value *v = ht_gguf_value_at(f->gguf, i);
        char *key = strndup(v->key.data, v->key.len);
        if (key) ht_json_object_set_new(all, key, value_of(v));
        free(key);
    }
    f->metadata = all ? ht_json_dump(all, HT_JSON_COMPACT) : NULL;
    ht_json_decref(all);
    return f->metadata ? HT_OK : ht_fail_memory(err, 0, f->file->path);
}

static ht_status open_gguf(ht_array_file *f, ht_error *err) {
    ht_status st = ht_gguf_read(f->file, f->file->path, &f->gguf, err);
    if (!st) st = list_parts(f, err);
    if (!st) st = read_metadata(f, err);
    return st;
}

/* Elements first .. first + 7 of a block of nibbles, the first in the lowest bits. */
static uint32_t eight_nibbles(const uint8_t *qs, int first) {
    uint32_t word = 0;
    for (int i = 0; i < 8; i++) {
        int e = first + i;
        word |= (uint32_t)(e < 16 ? qs[e] & 15 : qs[e - 16] >> 4) << 4 * i;
    }
    return word;
}

/* Packs the elements of a block as unsigned numbers; the block's zero point becomes part of the bias. */
static void put_numbers(int type, const unsigned char *block, uint32_t *out) {
    if (type == HT_W_Q8_0) {
        const uint8_t *qs = (const uint8_t *)((const ht_block_q8_0 *)(const void *)block)->qs;
        for (int w = 0; w < GROUP / 4; w++)
            out[w] = ((uint32_t)qs[4 * w] | (uint32_t)qs[4 * w + 1] << 8 | (uint32_t)qs[4 * w + 2] << 16 |
                      (uint32_t)qs[4 * w + 3] << 24) ^
                     0x80808080u;
        return;
    }
    const uint8_t *qs = block + (type == HT_W_Q4_1 ? 4 : 2);
    for (int w = 0; w < GROUP / 8; w++) out[w] = eight_nibbles(qs, 8 * w);
}

static uint16_t scale_or_bias(int type, const unsigned char *block, ht_part part) {
    if (part == HT_PART_SCALES) return ht_u16_at(block);
    if (type == HT_W_Q4_1) return ht_u16_at(block + 2);
    return ht_f32_to_f16(-(type == HT_W_Q8_0 ? 128.0f : 8.0f) * ht_half_at(block));
}

static void put_part(const ht_gguf_tensor *t, ht_part part, const unsigned char *blocks, void *to) {
    size_t block_bytes = ht_weight_type_info_of((ht_weight_type)t->type)->block_bytes,
           words = t->type == HT_W_Q8_0 ? 8 : 4;
    for (size_t i = 0; i < t->n_bytes / block_bytes; i++) {
        if (part == HT_PART_NUMBERS)
            put_numbers(t->type, blocks + i * block_bytes, (uint32_t *)to + i * words);
        else
            ((uint16_t *)to)[i] = scale_or_bias(t->type, blocks + i * block_bytes, part);
    }
}

static void put_halves(const ht_gguf_tensor *t, const unsigned char *blocks, uint16_t *to) {
    const ht_weight_type_info *info = ht_weight_type_info_of((ht_weight_type)t->type);
    float values[256];
    for (size_t i = 0; i < t->n_bytes / info->block_bytes; i++) {
        ht_dequantize((ht_weight_type)t->type, blocks + i * info->block_bytes, info->block, values);
        for (int j = 0; j < info->block; j++) *to++ = ht_f32_to_f16(values[j]);
    }
}

static ht_array *fill(ht_scope *s, const ht_array_file *f, const ht_gguf_tensor *t, ht_part part, ht_dtype dtype,
                      const int64_t *shape) {
    void *to;
    ht_error err = {0};
    size_t offset = (size_t)(t->data - f->file->data);
    ht_array *a = ht_array_unfilled(s, dtype, shape, t->n_dims, &to);
    if (!a) return NULL;
    bool direct = dtype_named(t->type_name) != HT_DTYPE_NONE;
    unsigned char *blocks = direct ? to : malloc(t->n_bytes + 1);
    if (!blocks) return ht_scope_fail(s, HT_ERR_MEMORY, "%s: out of memory for %zu bytes", f->file->path, t->n_bytes);
    if (ht_file_read_at(f->file, offset, blocks, t->n_bytes, &err))
        a = ht_scope_fail_with(s, &err);
    else if (!direct && part == HT_PART_ALL)
        put_halves(t, blocks, to);
    else if (!direct)
        put_part(t, part, blocks, to);
    if (!direct) free(blocks);
    return ht_array_filled(s, a);
}

static ht_array *read_gguf(ht_scope *s, ht_array_file *f, size_t i) {
    const ht_gguf_array *p = &f->parts[i];
    const ht_gguf_tensor *t = ht_gguf_tensor_at(f->gguf, p->tensor);
    ht_dtype dtype = dtype_named(t->type_name);
    if (!dtype && t->type < 0)
        return ht_scope_fail(s, HT_ERR_UNSUPPORTED, "%s: `%s` is of %s, which is no dtype here", f->file->path, p->name,
                             t->type_name);
    if (!dtype) dtype = HT_F16;
    int64_t shape[4];
    for (int d = 0; d < t->n_dims; d++) shape[d] = t->dims[t->n_dims - 1 - d];
    int64_t *columns = &shape[t->n_dims - 1];
    if (p->part == HT_PART_NUMBERS) {
        dtype = HT_U32;
        *columns = *columns / GROUP * (t->type == HT_W_Q8_0 ? 8 : 4);
    } else if (p->part != HT_PART_ALL)
        *columns /= GROUP;
    return fill(s, f, t, p->part, dtype, shape);
}

/* ---- files ---- */

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
             : memcmp(magic, "GGUF", 4) == 0 ? open_gguf(f, err)
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

ht_array *ht_array_file_read(ht_scope *s, ht_array_file *f, size_t i) {
    if (i >= f->count)
        return ht_scope_fail(s, HT_ERR_ARGUMENT, "%s: array %zu of %zu was asked for", f->file->path, i, f->count);
    if (f->zip) return read_npz(s, f, i);
    return f->gguf ? read_gguf(s, f, i) : read_safetensor(s, f, ht_safetensors_at(f->safetensors, i));
}
