/* GGUF: whatever parses is walked to its last byte through every getter. */
#include "formats/gguf.h"
#include "fuzz.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static volatile uint64_t sink;

static void walk_value(const ht_gguf *g, const ht_gguf_value *v) {
    char key[64];
    snprintf(key, sizeof key, "%.*s", (int)(v->key.len < 63 ? v->key.len : 63), v->key.data);
    uint64_t u;
    double f;
    bool b;
    int64_t s;
    ht_bytes text;
    sink += (uint64_t)ht_gguf_get_u64(g, key, &u) + ht_gguf_get_f64(g, key, &f) + ht_gguf_get_bool(g, key, &b);
    if (ht_gguf_get_string(g, key, &text))
        for (size_t i = 0; i < text.len; i++) sink += (unsigned char)text.data[i];
    if (v->key.len < 64 && ht_gguf_find(g, key) != v) abort();

    size_t offset = 0;
    uint64_t n = 0;
    for (; ht_gguf_next_string(v, &offset, &text); n++)
        if (text.len) sink += (unsigned char)text.data[0] + (unsigned char)text.data[text.len - 1];
    if (v->item_type == HT_GGUF_STRING) {
        if (n != v->n_items || offset != v->items_bytes) abort();
        return;
    }
    for (uint64_t i = 0; i <= v->n_items; i++) {
        bool whole = ht_gguf_item_i64(v, i, &s), real = ht_gguf_item_f64(v, i, &f);
        if ((whole || real) && i == v->n_items) abort();
        sink += (uint64_t)whole + real;
    }
}

static void walk_tensor(const ht_gguf_tensor *t, const uint8_t *data, size_t size) {
    if (t->data < data || t->n_bytes > size - (size_t)(t->data - data)) abort();
    if (t->type < 0) return;
    const ht_weight_type_info *info = ht_weight_type_info_of((ht_weight_type)t->type);
    float values[256];
    int64_t blocks = t->dims[0] / info->block;
    for (int d = 1; d < 4; d++) blocks *= t->dims[d];
    if ((size_t)blocks * info->block_bytes != t->n_bytes) abort();
    for (int64_t i = 0; i < blocks; i++) {
        ht_dequantize((ht_weight_type)t->type, t->data + (size_t)i * info->block_bytes, info->block, values);
        sink += (uint64_t)(values[0] > 0);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    ht_gguf *g;
    ht_error err = {0};
    const ht_status status = ht_gguf_parse(data, size, "fuzz", &g, &err);
    if (refused(status, &err, g)) return 0;
    for (size_t i = 0; i < ht_gguf_n_values(g); i++) walk_value(g, ht_gguf_value_at(g, i));
    for (size_t i = 0; i < ht_gguf_n_tensors(g); i++) walk_tensor(ht_gguf_tensor_at(g, i), data, size);
    ht_gguf_free(g);
    return 0;
}
