#include "support/gguf_writer.h"

#include "support/scratch.h"

#include <stdlib.h>
#include <string.h>

gguf_writer gguf_writer_new(void) { return (gguf_writer){.version = 3, .alignment = 32}; }

static void put_u32(ht_text *t, uint32_t v) {
    unsigned char b[4] = {(unsigned char)v, (unsigned char)(v >> 8), (unsigned char)(v >> 16),
                          (unsigned char)(v >> 24)};
    ht_text_append(t, b, 4);
}

static void put_u64(ht_text *t, uint64_t v) {
    put_u32(t, (uint32_t)v);
    put_u32(t, (uint32_t)(v >> 32));
}

static void put_string(ht_text *t, const char *s) {
    put_u64(t, strlen(s));
    ht_text_append_str(t, s);
}

static void put_key(gguf_writer *w, const char *key, uint32_t type) {
    put_string(&w->values, key);
    put_u32(&w->values, type);
    w->n_values++;
}

static void put_array_key(gguf_writer *w, const char *key, uint32_t type, size_t n) {
    put_key(w, key, HT_GGUF_ARRAY);
    put_u32(&w->values, type);
    put_u64(&w->values, n);
}

static uint32_t float_bits(float f) {
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    return bits;
}

void gguf_put_u32(gguf_writer *w, const char *key, uint32_t value) {
    put_key(w, key, HT_GGUF_U32);
    put_u32(&w->values, value);
}

void gguf_put_i32(gguf_writer *w, const char *key, int32_t value) {
    put_key(w, key, HT_GGUF_I32);
    put_u32(&w->values, (uint32_t)value);
}

void gguf_put_u64(gguf_writer *w, const char *key, uint64_t value) {
    put_key(w, key, HT_GGUF_U64);
    put_u64(&w->values, value);
}

void gguf_put_f32(gguf_writer *w, const char *key, float value) {
    put_key(w, key, HT_GGUF_F32);
    put_u32(&w->values, float_bits(value));
}

void gguf_put_bool(gguf_writer *w, const char *key, bool value) {
    put_key(w, key, HT_GGUF_BOOL);
    ht_text_append(&w->values, value ? "\1" : "\0", 1);
}

void gguf_put_str(gguf_writer *w, const char *key, const char *value) {
    put_key(w, key, HT_GGUF_STRING);
    put_string(&w->values, value);
}

void gguf_put_strs(gguf_writer *w, const char *key, const char *const *values, size_t n) {
    put_array_key(w, key, HT_GGUF_STRING, n);
    for (size_t i = 0; i < n; i++) put_string(&w->values, values[i]);
}

void gguf_put_i32s(gguf_writer *w, const char *key, const int32_t *values, size_t n) {
    put_array_key(w, key, HT_GGUF_I32, n);
    for (size_t i = 0; i < n; i++) put_u32(&w->values, (uint32_t)values[i]);
}

void gguf_put_f32s(gguf_writer *w, const char *key, const float *values, size_t n) {
    put_array_key(w, key, HT_GGUF_F32, n);
    for (size_t i = 0; i < n; i++) put_u32(&w->values, float_bits(values[i]));
}

void gguf_put_raw(gguf_writer *w, const char *key, uint32_t type, const void *bytes, size_t n) {
    put_key(w, key, type);
    ht_text_append(&w->values, bytes, n);
}

void gguf_put_entry(gguf_writer *w, const char *name, uint32_t n_dims, const uint64_t *dims, uint32_t type,
                    uint64_t offset) {
    put_string(&w->directory, name);
    put_u32(&w->directory, n_dims);
    for (uint32_t d = 0; d < n_dims; d++) put_u64(&w->directory, dims[d]);
    put_u32(&w->directory, type);
    put_u64(&w->directory, offset);
    w->n_tensors++;
}

static void pad(ht_text *t, size_t alignment) {
    while (alignment && t->len % alignment) ht_text_append(t, "\0", 1);
}

void gguf_put_tensor(gguf_writer *w, const char *name, ht_weight_type type, int n_dims, const int64_t *dims,
                     const void *data) {
    const ht_weight_type_info *info = ht_weight_type_info_of(type);
    uint64_t shape[4];
    size_t n_bytes = info->block_bytes;
    for (int d = 0; d < n_dims; d++) {
        shape[d] = (uint64_t)dims[d];
        n_bytes *= (size_t)dims[d] / (d == 0 ? (size_t)info->block : 1);
    }
    gguf_put_entry(w, name, (uint32_t)n_dims, shape, (uint32_t)info->gguf_id, w->data.len);
    if (data)
        ht_text_append(&w->data, data, n_bytes);
    else
        for (size_t i = 0; i < n_bytes; i++) ht_text_append(&w->data, "\0", 1);
    pad(&w->data, w->alignment);
}

unsigned char *gguf_finish(gguf_writer *w, size_t *size) {
    ht_text file = {0};
    if (w->alignment != 32) gguf_put_u32(w, "general.alignment", w->alignment);
    ht_text_append(&file, "GGUF", 4);
    put_u32(&file, w->version);
    put_u64(&file, w->n_tensors + w->extra_tensors);
    put_u64(&file, w->n_values + w->extra_values);
    ht_text_append(&file, w->values.data, w->values.len);
    ht_text_append(&file, w->directory.data, w->directory.len);
    if (w->n_tensors) pad(&file, w->alignment);
    ht_text_append(&file, w->data.data, w->data.len);
    ht_text_discard(&w->values);
    ht_text_discard(&w->directory);
    ht_text_discard(&w->data);
    *w = gguf_writer_new();
    *size = file.len;
    return (unsigned char *)ht_text_take(&file);
}

void gguf_write(gguf_writer *w, const char *name) {
    size_t size;
    unsigned char *file = gguf_finish(w, &size);
    scratch_write(name, file, size);
    free(file);
}
