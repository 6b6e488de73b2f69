/* GGUF metadata values, read by type. Bounds were checked by the parser. */
#include "formats/gguf_bytes.h"

#include <string.h>

static const struct {
    const char *name;
    size_t bytes;
} types[] = {
    [HT_GGUF_U8] = {"u8", 1},       [HT_GGUF_I8] = {"i8", 1},     [HT_GGUF_U16] = {"u16", 2},
    [HT_GGUF_I16] = {"i16", 2},     [HT_GGUF_U32] = {"u32", 4},   [HT_GGUF_I32] = {"i32", 4},
    [HT_GGUF_F32] = {"f32", 4},     [HT_GGUF_BOOL] = {"bool", 1}, [HT_GGUF_STRING] = {"string", 0},
    [HT_GGUF_ARRAY] = {"array", 0}, [HT_GGUF_U64] = {"u64", 8},   [HT_GGUF_I64] = {"i64", 8},
    [HT_GGUF_F64] = {"f64", 8},
};

size_t ht_gguf_type_bytes(ht_gguf_type type) { return types[type].bytes; }
const char *ht_gguf_type_name(ht_gguf_type type) { return types[type].name; }

/* An integer of any GGUF type as two's complement bits and sign; false for other types. */
static bool read_integer(ht_gguf_type type, const unsigned char *p, uint64_t *bits, bool *negative) {
    *negative = false;
    switch (type) {
    case HT_GGUF_U8:
    case HT_GGUF_BOOL: *bits = type == HT_GGUF_BOOL ? p[0] != 0 : p[0]; return true;
    case HT_GGUF_I8: *bits = (uint64_t)(int64_t)(int8_t)p[0]; break;
    case HT_GGUF_U16: *bits = (uint64_t)(p[0] | p[1] << 8); return true;
    case HT_GGUF_I16: *bits = (uint64_t)(int64_t)(int16_t)(uint16_t)(p[0] | p[1] << 8); break;
    case HT_GGUF_U32: *bits = ht_le32(p); return true;
    case HT_GGUF_I32: *bits = (uint64_t)(int64_t)(int32_t)ht_le32(p); break;
    case HT_GGUF_U64: *bits = ht_le64(p); return true;
    case HT_GGUF_I64: *bits = ht_le64(p); break;
    default: return false;
    }
    *negative = *bits >> 63;
    return true;
}

static bool item_f64(ht_gguf_type type, const unsigned char *p, double *out) {
    if (type == HT_GGUF_F32) {
        uint32_t bits = ht_le32(p);
        float f;
        memcpy(&f, &bits, sizeof f);
        *out = (double)f;
        return true;
    }
    if (type == HT_GGUF_F64) {
        uint64_t bits = ht_le64(p);
        memcpy(out, &bits, sizeof *out);
        return true;
    }
    uint64_t bits;
    bool negative;
    if (type == HT_GGUF_BOOL || !read_integer(type, p, &bits, &negative)) return false;
    uint64_t magnitude = negative ? 0 - bits : bits;
    if (magnitude > UINT64_C(1) << 53) return false; /* not exact in a double */
    *out = negative ? -(double)magnitude : (double)magnitude;
    return true;
}

static bool get_integer(const ht_gguf *g, const char *key, uint64_t *bits, bool *negative) {
    const ht_gguf_value *v = ht_gguf_find(g, key);
    return v && v->type != HT_GGUF_ARRAY && v->type != HT_GGUF_BOOL && read_integer(v->type, v->items, bits, negative);
}

bool ht_gguf_get_u64(const ht_gguf *g, const char *key, uint64_t *out) {
    uint64_t bits;
    bool negative;
    if (!get_integer(g, key, &bits, &negative) || negative) return false;
    *out = bits;
    return true;
}

bool ht_gguf_get_i64_saturated(const ht_gguf *g, const char *key, int64_t *out) {
    uint64_t bits;
    bool negative;
    if (!get_integer(g, key, &bits, &negative)) return false;
    *out = !negative && bits > INT64_MAX ? INT64_MAX : (int64_t)bits;
    return true;
}

bool ht_gguf_get_f64(const ht_gguf *g, const char *key, double *out) {
    const ht_gguf_value *v = ht_gguf_find(g, key);
    return v && v->type != HT_GGUF_ARRAY && item_f64(v->type, v->items, out);
}

bool ht_gguf_get_bool(const ht_gguf *g, const char *key, bool *out) {
    const ht_gguf_value *v = ht_gguf_find(g, key);
    if (!v || v->type != HT_GGUF_BOOL) return false;
    *out = v->items[0] != 0;
    return true;
}

bool ht_gguf_get_string(const ht_gguf *g, const char *key, ht_bytes *out) {
    const ht_gguf_value *v = ht_gguf_find(g, key);
    size_t offset = 0;
    return v && v->type == HT_GGUF_STRING && ht_gguf_next_string(v, &offset, out);
}

bool ht_gguf_item_i64(const ht_gguf_value *v, uint64_t i, int64_t *out) {
    uint64_t bits;
    bool negative;
    if (i >= v->n_items) return false;
    if (!read_integer(v->item_type, v->items + (size_t)i * types[v->item_type].bytes, &bits, &negative)) return false;
    if (!negative && bits > INT64_MAX) return false;
    *out = (int64_t)bits;
    return true;
}

bool ht_gguf_item_f64(const ht_gguf_value *v, uint64_t i, double *out) {
    return i < v->n_items && item_f64(v->item_type, v->items + (size_t)i * types[v->item_type].bytes, out);
}

bool ht_gguf_next_string(const ht_gguf_value *v, size_t *offset, ht_bytes *out) {
    if (v->item_type != HT_GGUF_STRING || *offset >= v->items_bytes) return false;
    const unsigned char *p = v->items + *offset;
    size_t len = (size_t)ht_le64(p);
    *out = (ht_bytes){(const char *)p + 8, len};
    *offset += 8 + len;
    return true;
}
