/* GGUF tensors as arrays, as in MLX: block types that are affine groups stay quantised. */
#include "array/load.h"
#include "base/checked.h"
#include "base/error.h"
#include "base/half.h"
#include "formats/blocks.h"
#include "formats/json.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { GROUP = 32 };

static bool is_affine(int type) { return type == HT_W_Q4_0 || type == HT_W_Q4_1 || type == HT_W_Q8_0; }

/* ---- list of arrays ---- */

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

/* ---- metadata ---- */

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

ht_status ht_array_file_open_gguf(ht_array_file *f, ht_error *err) {
    ht_status st = ht_gguf_read(f->file, f->file->path, &f->gguf, err);
    if (!st) st = list_parts(f, err);
    if (!st) st = read_metadata(f, err);
    return st;
}

/* ---- elements ---- */

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

/* Dtype of an unquantised tensor; false for block types. */
static bool dense_dtype(const ht_gguf_tensor *t, ht_dtype *out) {
    static const struct {
        const char *name;
        ht_dtype dtype;
    } known[] = {{"F32", HT_F32}, {"F16", HT_F16}, {"BF16", HT_BF16}, {"F64", HT_F64},
                 {"I8", HT_I8},   {"I16", HT_I16}, {"I32", HT_I32},   {"I64", HT_I64}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strcmp(known[i].name, t->type_name) == 0) {
            *out = known[i].dtype;
            return true;
        }
    return false;
}

static ht_array *fill(ht_scope *s, const ht_array_file *f, const ht_gguf_tensor *t, ht_part part, ht_dtype dtype,
                      const int64_t *shape) {
    ht_dtype whole;
    void *to;
    ht_error err = {0};
    size_t offset = (size_t)(t->data - f->file->data);
    ht_array *a = ht_array_unfilled(s, dtype, shape, t->n_dims, &to);
    if (!a) return NULL;
    bool direct = dense_dtype(t, &whole);
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

ht_array *ht_array_file_read_gguf(ht_scope *s, ht_array_file *f, size_t i) {
    const ht_gguf_array *p = &f->parts[i];
    const ht_gguf_tensor *t = ht_gguf_tensor_at(f->gguf, p->tensor);
    ht_dtype dtype = HT_F16;
    if (!dense_dtype(t, &dtype) && t->type < 0)
        return ht_scope_fail(s, HT_ERR_UNSUPPORTED, "%s: `%s` is of %s, which is no dtype here", f->file->path, p->name,
                             t->type_name);
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
