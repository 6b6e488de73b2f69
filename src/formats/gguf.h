/* GGUF: a validated view of one file's metadata and tensor directory.
 *
 * Layout facts: the `gguf` Python package (constants, reader). Parsing is a pure function over a byte range: nothing
 * is read past it, nothing outlives it. Every check of a hostile file happens in ht_gguf_parse; after it succeeds, every
 * offset, count and length below is inside the range. Immutable after parsing. */
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
    ht_gguf_type type;          /* HT_GGUF_ARRAY: the fields below describe the elements */
    ht_gguf_type item_type;     /* of an array's elements; the same as `type` for a scalar */
    uint64_t n_items;           /* arrays; 1 for a scalar */
    const unsigned char *items; /* little-endian, unaligned; strings as u64 length + bytes */
    size_t items_bytes;
} ht_gguf_value;

typedef struct ht_gguf_tensor {
    ht_bytes name;
    int type;                  /* ht_weight_type, or -1 for one that is no weight's: I32, F64 ... */
    const char *type_name;     /* "Q4_K" */
    int n_dims;                /* 1 to 4 */
    int64_t dims[4];           /* as in the file: dims[0] is the contiguous one (columns); unused ones are 1 */
    const unsigned char *data; /* inside the parsed range */
    size_t n_bytes;
} ht_gguf_tensor;

typedef struct ht_gguf ht_gguf;

/* Parses `size` bytes at `data`, which must outlive the result. `name` is used in messages. */
ht_status ht_gguf_parse(const void *data, size_t size, const char *name, ht_gguf **out, ht_error *err);
/* The same for a file, of which only metadata and directory are fetched: the `data` of tensors tells their place in the
 * file, not where to read them. `file` must outlive the result. */
ht_status ht_gguf_read(ht_file *file, const char *name, ht_gguf **out, ht_error *err);
void ht_gguf_free(ht_gguf *g); /* NULL is fine */

size_t ht_gguf_n_values(const ht_gguf *g);
const ht_gguf_value *ht_gguf_value_at(const ht_gguf *g, size_t i);
const ht_gguf_value *ht_gguf_find(const ht_gguf *g, const char *key); /* NULL when absent; hashed */

size_t ht_gguf_n_tensors(const ht_gguf *g);
const ht_gguf_tensor *ht_gguf_tensor_at(const ht_gguf *g, size_t i);
const ht_gguf_tensor *ht_gguf_find_tensor(const ht_gguf *g, const char *name); /* NULL when absent; hashed */

/* Of a checkpoint in several files: from now on ht_gguf_find_tensor(g) looks in `next`, too, and what that goes on to, so
 * that whoever reads the metadata can ask which tensors there are. `next` must outlive g. */
void ht_gguf_continue(ht_gguf *g, const ht_gguf *next);

/* "u32", "string", ...: for messages. */
const char *ht_gguf_type_name(ht_gguf_type type);

/* Scalars: true and *out set when `key` exists with a type that holds the value without loss; false otherwise. */
bool ht_gguf_get_u64(const ht_gguf *g, const char *key, uint64_t *out);
/* Any integer; one beyond INT64_MAX becomes that. */
bool ht_gguf_get_i64_saturated(const ht_gguf *g, const char *key, int64_t *out);
bool ht_gguf_get_f64(const ht_gguf *g, const char *key, double *out);
bool ht_gguf_get_bool(const ht_gguf *g, const char *key, bool *out);
bool ht_gguf_get_string(const ht_gguf *g, const char *key, ht_bytes *out);
/* Element i of an array of integers, booleans (0 or 1, as integers only) or floats (as f64 only); false when i is past the
 * end, the element is of another kind, or would lose value. A scalar is an array of one. */
bool ht_gguf_item_i64(const ht_gguf_value *v, uint64_t i, int64_t *out);
bool ht_gguf_item_f64(const ht_gguf_value *v, uint64_t i, double *out);
/* Walks an array of strings: start with *offset = 0; false at the end. */
bool ht_gguf_next_string(const ht_gguf_value *v, size_t *offset, ht_bytes *out);

#endif
