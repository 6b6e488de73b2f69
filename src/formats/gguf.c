/* GGUF parser of one file: header, metadata, tensor directory, read by a sticky-error cursor that reports the first error; and
 * typed access to metadata values. */
#include "formats/gguf.h"

#include "base/checked.h"
#include "base/error.h"
#include "base/text.h"
#include "formats/name_index.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    DEFAULT_ALIGNMENT = 32,
    ALIGNMENT_MAX = 1 << 20,
    /* Smallest encodings of a metadata pair and of a tensor entry, the bounds for their counts. */
    VALUE_MIN_BYTES = 8 + 1 + 4 + 1,
    TENSOR_MIN_BYTES = 8 + 1 + 4 + 8 + 4 + 8,
};

struct ht_gguf {
    ht_gguf_value *values;
    ht_gguf_tensor *tensors;
    size_t n_values, n_tensors;
    ht_name_index value_names, tensor_names;
    const ht_gguf *next; /* next part of a multi-file checkpoint, or NULL */
};

static const struct {
    const char *name;
    size_t bytes; /* of one value; 0 for strings and arrays */
} types[] = {
    [HT_GGUF_U8] = {"u8", 1},       [HT_GGUF_I8] = {"i8", 1},     [HT_GGUF_U16] = {"u16", 2},
    [HT_GGUF_I16] = {"i16", 2},     [HT_GGUF_U32] = {"u32", 4},   [HT_GGUF_I32] = {"i32", 4},
    [HT_GGUF_F32] = {"f32", 4},     [HT_GGUF_BOOL] = {"bool", 1}, [HT_GGUF_STRING] = {"string", 0},
    [HT_GGUF_ARRAY] = {"array", 0}, [HT_GGUF_U64] = {"u64", 8},   [HT_GGUF_I64] = {"i64", 8},
    [HT_GGUF_F64] = {"f64", 8},
};

typedef struct cursor {
    const unsigned char *data;
    size_t size, pos;
    size_t ready;  /* bytes of data already loaded; the rest is fetched on demand */
    ht_file *from; /* NULL: all of data is loaded */
    const char *file;
    ht_status status;
    ht_error *err;
} cursor;

HT_PRINTF(3, 4) static void fail(cursor *c, ht_status status, const char *fmt, ...) {
    if (c->status) return;
    char message[512];
    va_list args;
    va_start(args, fmt);
    vsnprintf(message, sizeof message, fmt, args);
    va_end(args);
    c->status = ht_fail(c->err, status, "%s: %s", c->file, message);
}

/* Length argument of "%.*s" for a name that passed read_name. */
static int shown(ht_bytes name) { return ht_name_shown(name.data, name.len); }

/* Loads the next n bytes, which must lie in the file. */
static bool ensure_loaded(cursor *c, size_t n) {
    if (n <= c->ready - c->pos) return true;
    if (!c->status) c->status = ht_file_fetch(c->from, c->pos + n, c->err);
    if (!c->status) c->ready = c->from->loaded;
    return !c->status;
}

/* Consumes n bytes; NULL after an error. `what` names the field in the message. */
static const unsigned char *read_bytes(cursor *c, uint64_t n, const char *what) {
    if (c->status) return NULL;
    if (n > c->size - c->pos) {
        fail(c, HT_ERR_FORMAT,
             "%s at byte %zu: expected %" PRIu64 " bytes, but only %zu remain; the file is cut short or damaged", what,
             c->pos, n, c->size - c->pos);
        return NULL;
    }
    if (!ensure_loaded(c, (size_t)n)) return NULL;
    const unsigned char *p = c->data + c->pos;
    c->pos += (size_t)n;
    return p;
}

static uint32_t read_u32(cursor *c, const char *what) {
    const unsigned char *p = read_bytes(c, 4, what);
    return p ? ht_le32(p) : 0;
}

static uint64_t read_u64(cursor *c, const char *what) {
    const unsigned char *p = read_bytes(c, 8, what);
    return p ? ht_le64(p) : 0;
}

static ht_bytes read_string(cursor *c, const char *what) {
    uint64_t len = read_u64(c, what);
    const unsigned char *p = read_bytes(c, len, what);
    return p ? (ht_bytes){(const char *)p, (size_t)len} : (ht_bytes){"", 0};
}

static ht_bytes read_name(cursor *c, const char *what, size_t number) {
    size_t at = c->pos;
    ht_bytes name = read_string(c, what);
    const char *problem = c->status ? NULL : ht_name_problem(name.data, name.len);
    if (problem) fail(c, HT_ERR_FORMAT, "%s %zu, at byte %zu, %s", what, number, at, problem);
    return name;
}

/* Validates n strings, so that ht_gguf_next_string needs no bounds checks. */
static void read_string_array(cursor *c, uint64_t n, ht_bytes key) {
    if (n > (c->size - c->pos) / 8) {
        fail(c, HT_ERR_FORMAT, "key `%.*s` claims %" PRIu64 " strings, the remaining %zu bytes cannot hold them",
             shown(key), key.data, n, c->size - c->pos);
        return;
    }
    for (uint64_t i = 0; i < n; i++) {
        size_t left = c->size - c->pos;
        if (left >= 8 && !ensure_loaded(c, 8)) return;
        uint64_t len = left >= 8 ? ht_le64(c->data + c->pos) : 0;
        if (left < 8 || len > left - 8) {
            fail(c, HT_ERR_FORMAT,
                 "string %" PRIu64 " of %" PRIu64 " of key `%.*s`, at byte %zu, reaches past the end of the file", i, n,
                 shown(key), key.data, c->pos);
            return;
        }
        if (!ensure_loaded(c, 8 + (size_t)len)) return;
        c->pos += 8 + (size_t)len;
    }
}

static void read_items(cursor *c, ht_gguf_value *v) {
    ht_gguf_type type = v->type == HT_GGUF_ARRAY ? v->item_type : v->type;
    size_t begin = c->pos, n_bytes;
    if (type == HT_GGUF_STRING)
        read_string_array(c, v->n_items, v->key);
    else if (v->n_items > SIZE_MAX || !ht_mul_size((size_t)v->n_items, types[type].bytes, &n_bytes) ||
             n_bytes > c->size - c->pos)
        fail(c, HT_ERR_FORMAT, "key `%.*s` claims %" PRIu64 " values of %zu bytes, only %zu bytes remain",
             shown(v->key), v->key.data, v->n_items, types[type].bytes, c->size - c->pos);
    else if (ensure_loaded(c, n_bytes))
        c->pos += n_bytes;
    v->items = c->data + begin;
    v->items_bytes = c->pos - begin;
}

static void read_value(cursor *c, size_t number, ht_gguf_value *v) {
    v->key = read_name(c, "metadata key", number);
    uint32_t type = read_u32(c, "the type of a metadata value");
    if (c->status) return;
    v->n_items = 1;
    if (type == HT_GGUF_ARRAY) {
        uint32_t item_type = read_u32(c, "the type of an array");
        v->n_items = read_u64(c, "the length of an array");
        if (c->status) return;
        if (item_type == HT_GGUF_ARRAY)
            fail(c, HT_ERR_UNSUPPORTED, "key `%.*s` is an array of arrays, expected numbers, booleans or strings",
                 shown(v->key), v->key.data);
        else if (item_type > HT_GGUF_F64)
            fail(c, HT_ERR_FORMAT, "key `%.*s` is an array of the unknown type %" PRIu32 ", expected 0 to %d",
                 shown(v->key), v->key.data, item_type, HT_GGUF_F64);
        v->item_type = (ht_gguf_type)item_type;
    } else if (type > HT_GGUF_F64)
        fail(c, HT_ERR_FORMAT, "key `%.*s` has the unknown type %" PRIu32 ", expected 0 to %d", shown(v->key),
             v->key.data, type, HT_GGUF_F64);
    if (c->status) return;
    v->type = (ht_gguf_type)type;
    if (v->type != HT_GGUF_ARRAY) v->item_type = v->type;
    read_items(c, v);
}

static void add_name(cursor *c, ht_name_index *index, ht_bytes name, const char *what, size_t position) {
    size_t first;
    if (c->status) return;
    switch (ht_name_index_add(index, name.data, name.len, position, &first)) {
    case HT_NAME_ADDED: break;
    case HT_NAME_TWICE:
        fail(c, HT_ERR_FORMAT, "%s `%.*s` occurs twice, as number %zu and %zu", what, shown(name), name.data, first,
             position);
        break;
    case HT_NAME_CROWDED: fail(c, HT_ERR_FORMAT, "%s names were made to collide; the file is not honest", what); break;
    }
}

static void parse_values(cursor *c, ht_gguf *g, uint64_t n) {
    if (c->status) return;
    if (n > (c->size - c->pos) / VALUE_MIN_BYTES) {
        fail(c, HT_ERR_FORMAT, "claims %" PRIu64 " metadata values, its %zu bytes cannot hold them", n, c->size);
        return;
    }
    g->values = calloc((size_t)n + 1, sizeof *g->values);
    if (!g->values || !ht_name_index_init(&g->value_names, (size_t)n)) {
        c->status = ht_fail_memory(c->err, (size_t)n * sizeof *g->values, "GGUF metadata");
        return;
    }
    for (size_t i = 0; i < n && !c->status; i++) {
        read_value(c, i, &g->values[i]);
        add_name(c, &g->value_names, g->values[i].key, "metadata key", i);
        g->n_values = i + 1;
    }
}

static size_t find_alignment(cursor *c, const ht_gguf *g) {
    const ht_gguf_value *v = c->status ? NULL : ht_gguf_find(g, "general.alignment");
    if (!v) return DEFAULT_ALIGNMENT;
    if (v->type != HT_GGUF_U32) {
        fail(c, HT_ERR_FORMAT, "general.alignment has type %s, expected u32", ht_gguf_type_name(v->type));
        return DEFAULT_ALIGNMENT;
    }
    uint32_t alignment = ht_le32(v->items);
    if (alignment == 0 || (alignment & (alignment - 1)) || alignment > ALIGNMENT_MAX)
        fail(c, HT_ERR_FORMAT, "general.alignment is %" PRIu32 ", expected a power of two of at most %d", alignment,
             ALIGNMENT_MAX);
    return alignment;
}

/* Reads the dimensions of `t`; returns its element count. */
static uint64_t read_dims(cursor *c, ht_gguf_tensor *t) {
    uint32_t n_dims = read_u32(c, "the number of dimensions of a tensor");
    if (!c->status && (n_dims < 1 || n_dims > 4))
        fail(c, HT_ERR_FORMAT, "tensor `%.*s` has %" PRIu32 " dimensions, expected 1 to 4", shown(t->name),
             t->name.data, n_dims);
    int64_t count = 1;
    for (uint32_t d = 0; d < 4; d++) t->dims[d] = 1;
    for (uint32_t d = 0; d < n_dims && !c->status; d++) {
        uint64_t dim = read_u64(c, "a dimension of a tensor");
        if (c->status) break;
        if (dim == 0)
            fail(c, HT_ERR_FORMAT, "dimension %" PRIu32 " of tensor `%.*s` is zero", d, shown(t->name), t->name.data);
        else if (dim > INT64_MAX || !ht_mul_i64(count, (int64_t)dim, &count))
            fail(c, HT_ERR_FORMAT,
                 "tensor `%.*s` has more elements than can be counted (dimension %" PRIu32 " is %" PRIu64 ")",
                 shown(t->name), t->name.data, d, dim);
        else
            t->dims[d] = (int64_t)dim;
    }
    t->n_dims = (int)n_dims;
    return (uint64_t)count;
}

/* Reads one directory entry; returns the tensor's offset in the data section, whose start is not known yet. */
static uint64_t read_tensor(cursor *c, size_t number, ht_gguf_tensor *t) {
    t->name = read_name(c, "tensor name", number);
    uint64_t count = read_dims(c, t);
    uint32_t id = read_u32(c, "the type of a tensor");
    uint64_t offset = read_u64(c, "the offset of a tensor");
    if (c->status) return 0;
    ht_gguf_layout layout;
    if (!ht_gguf_layout_of(id, &layout)) {
        fail(c, HT_ERR_UNSUPPORTED,
             "tensor `%.*s` has type number %" PRIu32
             ", which is none that Hearth knows; is the file newer, or damaged?",
             shown(t->name), t->name.data, id);
        return 0;
    }
    t->type = ht_weight_type_from_gguf(id);
    t->type_name = layout.name;
    if (t->dims[0] % layout.block)
        fail(c, HT_ERR_FORMAT, "rows of tensor `%.*s` have %" PRId64 " elements, type %s needs a multiple of %d",
             shown(t->name), t->name.data, t->dims[0], layout.name, layout.block);
    else if (!ht_mul_size((size_t)count / (size_t)layout.block, layout.block_bytes, &t->n_bytes))
        fail(c, HT_ERR_FORMAT, "tensor `%.*s` has more bytes than can be counted", shown(t->name), t->name.data);
    return offset;
}

/* Turns the data-section offsets into pointers, after checking every range. */
static void place_tensors(cursor *c, ht_gguf *g, const uint64_t *offsets, size_t alignment) {
    size_t start;
    if (c->status || g->n_tensors == 0) return;
    if (!ht_align_size(c->pos, alignment, &start) || start > c->size) {
        fail(c, HT_ERR_FORMAT, "ends at byte %zu, before its tensor data; the file is cut short or damaged", c->size);
        return;
    }
    size_t data_bytes = c->size - start;
    for (size_t i = 0; i < g->n_tensors && !c->status; i++) {
        ht_gguf_tensor *t = &g->tensors[i];
        if (offsets[i] % alignment)
            fail(c, HT_ERR_FORMAT, "tensor `%.*s` is at offset %" PRIu64 ", expected a multiple of %zu", shown(t->name),
                 t->name.data, offsets[i], alignment);
        else if (offsets[i] > data_bytes || t->n_bytes > data_bytes - (size_t)offsets[i])
            fail(c, HT_ERR_FORMAT,
                 "tensor `%.*s` is %zu bytes at offset %" PRIu64
                 ", the file has %zu bytes of tensor data; it is cut short or "
                 "damaged",
                 shown(t->name), t->name.data, t->n_bytes, offsets[i], data_bytes);
        else
            t->data = c->data + start + offsets[i];
    }
}

static int by_address(const void *a, const void *b) {
    const ht_gguf_tensor *s = *(const ht_gguf_tensor *const *)a, *t = *(const ht_gguf_tensor *const *)b;
    return (s->data > t->data) - (s->data < t->data);
}

/* Rejects tensors that share bytes: a hostile file must not expand to more than its own size in memory. */
static void check_overlap(cursor *c, const ht_gguf *g) {
    if (c->status || g->n_tensors == 0) return;
    const ht_gguf_tensor **order = malloc(g->n_tensors * sizeof *order);
    if (!order) {
        c->status = ht_fail_memory(c->err, g->n_tensors * sizeof *order, "GGUF tensor directory");
        return;
    }
    for (size_t i = 0; i < g->n_tensors; i++) order[i] = &g->tensors[i];
    qsort(order, g->n_tensors, sizeof *order, by_address);
    for (size_t i = 1; i < g->n_tensors; i++) {
        const ht_gguf_tensor *s = order[i - 1], *t = order[i];
        if ((size_t)(t->data - s->data) < s->n_bytes) {
            fail(c, HT_ERR_FORMAT, "tensors `%.*s` and `%.*s` overlap", shown(s->name), s->name.data, shown(t->name),
                 t->name.data);
            break;
        }
    }
    free(order);
}

static void parse_tensors(cursor *c, ht_gguf *g, uint64_t n) {
    size_t alignment = find_alignment(c, g);
    if (c->status) return;
    if (n > (c->size - c->pos) / TENSOR_MIN_BYTES) {
        fail(c, HT_ERR_FORMAT, "claims %" PRIu64 " tensors, its %zu bytes cannot hold them", n, c->size);
        return;
    }
    uint64_t *offsets = calloc((size_t)n + 1, sizeof *offsets);
    g->tensors = calloc((size_t)n + 1, sizeof *g->tensors);
    if (!offsets || !g->tensors || !ht_name_index_init(&g->tensor_names, (size_t)n))
        c->status = ht_fail_memory(c->err, (size_t)n * sizeof *g->tensors, "GGUF tensor directory");
    for (size_t i = 0; i < n && !c->status; i++) {
        offsets[i] = read_tensor(c, i, &g->tensors[i]);
        add_name(c, &g->tensor_names, g->tensors[i].name, "tensor", i);
        g->n_tensors = i + 1;
    }
    place_tensors(c, g, offsets, alignment);
    check_overlap(c, g);
    free(offsets);
}

static void check_magic(cursor *c) {
    size_t n = ht_min_size(c->size, 64);
    if (!ensure_loaded(c, n)) return;
    if (ht_is_lfs_pointer(c->data, n))
        fail(c, HT_ERR_FORMAT, "%s", HT_LFS_POINTER);
    else if (c->size < 4)
        fail(c, HT_ERR_FORMAT, "has %zu bytes, which is too short for a GGUF file", c->size);
    else if (memcmp(c->data, "GGUF", 4) != 0)
        fail(c, HT_ERR_FORMAT, "starts with the bytes %02x %02x %02x %02x, expected `GGUF` (47 47 55 46)", c->data[0],
             c->data[1], c->data[2], c->data[3]);
    else
        c->pos = 4;
}

static void check_version(cursor *c) {
    uint32_t version = read_u32(c, "the version");
    if (c->status || version == 2 || version == 3) return;
    if ((version & 0xFFFF) == 0 && version != 0)
        fail(c, HT_ERR_UNSUPPORTED,
             "is a big-endian GGUF file, expected little-endian; convert it with gguf_convert_endian.py");
    else
        fail(c, HT_ERR_UNSUPPORTED, "is GGUF version %" PRIu32 ", versions 2 and 3 are supported", version);
}

static ht_status parse(cursor *c, ht_gguf **out) {
    *out = NULL;
    ht_gguf *g = calloc(1, sizeof *g);
    if (!g) return ht_fail_memory(c->err, sizeof *g, c->file);
    check_magic(c);
    check_version(c);
    uint64_t n_tensors = read_u64(c, "the number of tensors");
    uint64_t n_values = read_u64(c, "the number of metadata values");
    parse_values(c, g, n_values);
    parse_tensors(c, g, n_tensors);
    if (c->status) {
        ht_gguf_free(g);
        return c->status;
    }
    *out = g;
    return HT_OK;
}

ht_status ht_gguf_parse(const void *data, size_t size, const char *name, ht_gguf **out, ht_error *err) {
    cursor c = {.data = data, .size = size, .ready = size, .file = name, .err = err};
    return parse(&c, out);
}

ht_status ht_gguf_read(ht_file *file, const char *name, ht_gguf **out, ht_error *err) {
    cursor c = {.data = file->data, .size = file->size, .ready = file->loaded, .from = file, .file = name, .err = err};
    return parse(&c, out);
}

void ht_gguf_free(ht_gguf *g) {
    if (!g) return;
    ht_name_index_free(&g->value_names);
    ht_name_index_free(&g->tensor_names);
    free(g->values);
    free(g->tensors);
    free(g);
}

size_t ht_gguf_n_values(const ht_gguf *g) { return g->n_values; }
const ht_gguf_value *ht_gguf_value_at(const ht_gguf *g, size_t i) { return &g->values[i]; }

const ht_gguf_value *ht_gguf_find(const ht_gguf *g, const char *key) {
    size_t i = ht_name_index_find(&g->value_names, key, strlen(key));
    return i == SIZE_MAX ? NULL : &g->values[i];
}

size_t ht_gguf_n_tensors(const ht_gguf *g) { return g->n_tensors; }
const ht_gguf_tensor *ht_gguf_tensor_at(const ht_gguf *g, size_t i) { return &g->tensors[i]; }

void ht_gguf_continue(ht_gguf *g, const ht_gguf *next) { g->next = next; }

const ht_gguf_tensor *ht_gguf_find_tensor(const ht_gguf *g, const char *name) {
    for (; g; g = g->next) {
        size_t i = ht_name_index_find(&g->tensor_names, name, strlen(name));
        if (i != SIZE_MAX) return &g->tensors[i];
    }
    return NULL;
}

/* ---- values ---- */

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
