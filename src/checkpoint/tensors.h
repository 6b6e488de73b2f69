/* Tensors of a checkpoint by name and by number, and their values, for any container and quantisation scheme. */
#ifndef HT_CHECKPOINT_TENSORS_H
#define HT_CHECKPOINT_TENSORS_H

#include "base/file.h"
#include "formats/gguf.h"
#include "formats/safetensors.h"

typedef struct ht_checkpoint_files ht_checkpoint_files; /* checkpoint.h */

/* File range of one component (q, scales, biases) of a quantised weight; a unit of columns has unit_bytes. */
typedef struct ht_tensor_part {
    const ht_file *file;
    size_t offset, unit_bytes;
} ht_tensor_part;

/* A tensor's location in the checkpoint. */
typedef struct ht_stored_tensor {
    const char *name; /* not NUL-terminated; lent */
    size_t name_len;
    size_t number; /* index for ht_checkpoint_tensor_at */
    const ht_file *file;
    const char *file_name;
    const char *type_name; /* "Q4_K", "BF16", "I64" */
    int type;              /* ht_weight_type, or -1 when no weight has this type */
    int n_dims;
    int64_t dims[HT_SAFETENSORS_RANK_MAX]; /* outermost dimension first */
    size_t offset, n_bytes;
    /* Components of a quantised weight (MLX, NVFP4): q, scales, biases, joined unit by unit of columns. `type`, `dims`
     * and `n_bytes` describe the joined tensor, `file` and `offset` its q. */
    int n_parts; /* 0: one contiguous tensor */
    int64_t unit;
    ht_tensor_part part[3];
    /* Elements in the file between consecutive rows and between consecutive columns, for a matrix that is stored
     * transposed or with its rows apart; row_step 0: rows follow each other. */
    int64_t row_step, column_step;
} ht_stored_tensor;

/* Finds a tensor. In safetensors each tensor may have its own prefix of `model.`, `language_model.` and
 * `text_model.`: an exact match of `name` comes first, then a match without prefixes. */
bool ht_checkpoint_find(const ht_checkpoint_files *c, const char *name, ht_stored_tensor *out);
enum { HT_SIBLING_NAME = 256 };
/* Replaces the end of a name of n bytes by `to`; false if it has another end or the result is too long. */
bool ht_sibling_name(const char *name, size_t n, const char *end, const char *to, char out[HT_SIBLING_NAME]);
enum { HT_DIMS_TEXT = 128 };
/* Writes a shape for messages: "32, 64". */
void ht_dims_text(const int64_t *dims, int n, char out[HT_DIMS_TEXT]);
/* Source of the weights' shapes, for messages: "config.json". */
const char *ht_checkpoint_shape_source(const ht_checkpoint_files *c);
/* Finds tensor `name` with the shape dims[0 .. n_dims - 1] and a weight type. */
ht_status ht_checkpoint_need(const ht_checkpoint_files *c, const char *name, const int64_t *dims, int n_dims,
                             ht_stored_tensor *out, ht_error *err);
size_t ht_checkpoint_n_tensors(const ht_checkpoint_files *c);
void ht_checkpoint_tensor_at(const ht_checkpoint_files *c, size_t i, ht_stored_tensor *out);

/* Locations from the containers. */
ht_stored_tensor ht_stored_of_gguf(const ht_gguf_tensor *t, const ht_file *file, const char *file_name, size_t number);
ht_stored_tensor ht_stored_of_safetensors(const ht_safetensors *set, size_t number);

/* ---- safetensors: single tensors, before the parts of a quantised weight are joined ---- */

/* ht_checkpoint_find; NULL when absent. */
const ht_safetensor *ht_checkpoint_safetensor(const ht_checkpoint_files *c, const char *name);
/* Like ht_checkpoint_safetensor, but also finds the elements of a quantised weight "X.weight" under another name. */
const ht_safetensor *ht_checkpoint_elements(const ht_checkpoint_files *c, const char *name);
/* Location of a tensor, completed while the checkpoint is opened. */
ht_stored_tensor *ht_checkpoint_stored(ht_checkpoint_files *c, const ht_safetensor *t);
/* Name of a tensor's file, for messages. */
const char *ht_checkpoint_file_of(const ht_checkpoint_files *c, const ht_safetensor *t);
/* Lists all tensors separately, and indexes those of the text model by bare name. */
ht_status ht_checkpoint_list_tensors(ht_checkpoint_files *c, ht_error *err);
/* A safetensors name without prefixes of wrappers: "layers.0.mlp.up_proj.weight", "lm_head.weight". */
const char *ht_checkpoint_bare_name(const char *name);
/* Whether a safetensors name belongs to the text model. */
bool ht_checkpoint_is_text(const ht_checkpoint_files *c, const char *name);
/* Whether a tensor belongs to a vision or audio tower, or connects one with the text model. */
bool ht_checkpoint_is_tower(const char *name);
/* Whether a name contains one of the words, a list that ends with NULL. */
bool ht_contains_any(const char *name, const char *const *words);

/* The part of a path after the last '/'. */
const char *ht_base_name(const char *path);

/* ---- values: blocks as ht_dequantize and packing expect them, joined from a weight's parts where these are separate ---- */

/* Elements of a shape. */
static inline int64_t ht_elements(const int64_t *dims, int n_dims) {
    int64_t n = 1;
    for (int d = 0; d < n_dims; d++) n *= dims[d];
    return n;
}
/* Columns per block or unit; column counts below are multiples of it. */
int64_t ht_tensor_unit(const ht_stored_tensor *t);
/* Bytes of n columns as blocks. */
size_t ht_tensor_size(const ht_stored_tensor *t, int64_t n);
/* Scratch bytes for reading n columns; 0 for a contiguous tensor. */
size_t ht_tensor_read_scratch(const ht_stored_tensor *t, int64_t n);

/* Reads elements [first, first + n) of the row-major tensor to `out`; `scratch` has ht_tensor_read_scratch bytes.
 * Thread-safe. */
ht_status ht_tensor_read(const ht_stored_tensor *t, int64_t first, int64_t n, void *out, void *scratch, ht_error *err);

/* A matrix, or stacked matrices, stored [..., k, n] as [..., n, k]; of a type without blocks. */
ht_stored_tensor ht_tensor_transposed(const ht_stored_tensor *t);

/* The n even rows of a matrix of 2 n rows of k elements, or with `odd` the others; with k = 1 the values of a vector. */
ht_stored_tensor ht_tensor_alternate(const ht_stored_tensor *t, int odd, int64_t n, int64_t k);

/* Rows [first, first + n) as a tensor [n, k]; leading dimensions count as rows, but not of transposed tensors. */
ht_stored_tensor ht_tensor_rows(const ht_stored_tensor *t, int64_t first, int64_t n);

/* Reads a vector or row-major matrix as f32; n must be its number of values. */
ht_status ht_tensor_read_f32(const ht_stored_tensor *t, int64_t n, float *out, ht_error *err);

/* ---- rows, or columns, in another order ---- */

/* From row `first` on, the rows are in groups; each consists of `parts` equal parts, whose blocks of `block` rows the file
 * stores alternately: the first of every part, then the second of every part, and so on. */
typedef struct ht_order {
    int64_t first;
    int64_t group; /* rows of a group; 0: all rows are in their place */
    int64_t parts, block;
} ht_order;

/* Rows that the file stores alternately from both halves of every head. */
static inline ht_order ht_order_of_halves(int64_t head_rows) { return (ht_order){0, head_rows, 2, 1}; }
/* The order in which a file that is stored in canonical order has the rows of one stored in order o. */
static inline ht_order ht_order_inverse(ht_order o) {
    if (o.group) o.parts = o.group / (o.parts * o.block);
    return o;
}
/* Index among the stored rows of canonical row r. */
static inline int64_t ht_order_stored(const ht_order *o, int64_t r) {
    if (!o->group || r < o->first) return r;
    const int64_t within = (r - o->first) % o->group, block = within / o->block,
                  of_part = o->group / (o->parts * o->block);
    return r - within + (block % of_part * o->parts + block / of_part) * o->block + within % o->block;
}
static inline int64_t ht_order_canonical(const ht_order *o, int64_t row) {
    const ht_order inverse = ht_order_inverse(*o);
    return ht_order_stored(&inverse, row);
}
/* Rows from canonical row r on, r included, that are stored one after another: at least 1. */
static inline int64_t ht_order_run(const ht_order *o, int64_t r) {
    if (!o->group) return INT64_MAX;
    return r < o->first ? o->first - r : o->block - (r - o->first) % o->block;
}

#endif
