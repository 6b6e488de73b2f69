/* GGUF: a validated view of one file's metadata and tensor directory.
 *
 * Layout: the `gguf` Python package (constants, reader). Parsing is a pure function over a byte range and makes every
 * check of a hostile file: after success every offset, count and length below lies inside the range. Immutable after
 * parsing. */
#ifndef HT_FORMATS_GGUF_H
#define HT_FORMATS_GGUF_H

#include "base/file.h"
#include "formats/weight_type.h"

#include <hearth/status.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum ht_gguf_type {
    HT_GGUF_U8,
    HT_GGUF_I8,
    HT_GGUF_U16,
    HT_GGUF_I16,
    HT_GGUF_U32,
    HT_GGUF_I32,
    HT_GGUF_F32,
    HT_GGUF_BOOL,
    HT_GGUF_STRING,
    HT_GGUF_ARRAY,
    HT_GGUF_U64,
    HT_GGUF_I64,
    HT_GGUF_F64
} ht_gguf_type;

typedef struct ht_bytes { /* not NUL-terminated */
    const char *data;
    size_t len;
} ht_bytes;

typedef struct ht_gguf_value {
    ht_bytes key;
    ht_gguf_type type;          /* HT_GGUF_ARRAY: see item_type, n_items, items */
    ht_gguf_type item_type;     /* element type of an array; same as `type` for a scalar */
    uint64_t n_items;           /* 1 for a scalar */
    const unsigned char *items; /* little-endian, unaligned; a string is a u64 length and its bytes */
    size_t items_bytes;
} ht_gguf_value;

typedef struct ht_gguf_tensor {
    ht_bytes name;
    int type;                  /* ht_weight_type, or -1 when no weight has this type: I32, F64 ... */
    const char *type_name;     /* "Q4_K" */
    int n_dims;                /* 1 to 4 */
    int64_t dims[4];           /* GGUF order: dims[0] is contiguous (columns); unused dimensions are 1 */
    const unsigned char *data; /* inside the parsed range */
    size_t n_bytes;
} ht_gguf_tensor;

typedef struct ht_gguf ht_gguf;

/* Parses `size` bytes at `data`, which must outlive the result. `name` is used in messages. */
ht_status ht_gguf_parse(const void *data, size_t size, const char *name, ht_gguf **out, ht_error *err);
/* Parses a file, fetching only metadata and tensor directory: a tensor's `data` gives its offset in the file and must
 * not be dereferenced. `file` must outlive the result. */
ht_status ht_gguf_read(ht_file *file, const char *name, ht_gguf **out, ht_error *err);
void ht_gguf_free(ht_gguf *g); /* NULL is fine */

size_t ht_gguf_n_values(const ht_gguf *g);
const ht_gguf_value *ht_gguf_value_at(const ht_gguf *g, size_t i);
const ht_gguf_value *ht_gguf_find(const ht_gguf *g, const char *key); /* NULL when absent; hashed */

size_t ht_gguf_n_tensors(const ht_gguf *g);
const ht_gguf_tensor *ht_gguf_tensor_at(const ht_gguf *g, size_t i);
const ht_gguf_tensor *ht_gguf_find_tensor(const ht_gguf *g, const char *name); /* NULL when absent; hashed */

/* Chains the parts of a multi-file checkpoint: ht_gguf_find_tensor(g) then searches `next` and its successors, too.
 * `next` must outlive g. */
void ht_gguf_continue(ht_gguf *g, const ht_gguf *next);

/* Little-endian numbers. */
static inline uint32_t ht_le32(const unsigned char *p) {
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}
static inline uint64_t ht_le64(const unsigned char *p) { return ht_le32(p) | (uint64_t)ht_le32(p + 4) << 32; }

/* "u32", "string" ..., for messages. */
const char *ht_gguf_type_name(ht_gguf_type type);

/* Scalar getters: true when `key` exists and its type converts to *out without loss; otherwise false, *out
 * unchanged. */
bool ht_gguf_get_u64(const ht_gguf *g, const char *key, uint64_t *out);
/* Any integer; values above INT64_MAX saturate. */
bool ht_gguf_get_i64_saturated(const ht_gguf *g, const char *key, int64_t *out);
bool ht_gguf_get_f64(const ht_gguf *g, const char *key, double *out);
bool ht_gguf_get_bool(const ht_gguf *g, const char *key, bool *out);
bool ht_gguf_get_string(const ht_gguf *g, const char *key, ht_bytes *out);
/* Element i of an array, or of a scalar (n_items = 1). _i64 accepts integers and booleans (0 or 1), _f64 also floats.
 * False when i is out of range, the type is another, or the conversion would lose value. */
bool ht_gguf_item_i64(const ht_gguf_value *v, uint64_t i, int64_t *out);
bool ht_gguf_item_f64(const ht_gguf_value *v, uint64_t i, double *out);
/* Iterates over an array of strings: start with *offset = 0; false at the end. */
bool ht_gguf_next_string(const ht_gguf_value *v, size_t *offset, ht_bytes *out);

#endif
