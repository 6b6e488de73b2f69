/* Tensors of a checkpoint by name and by number, whatever its container and quantisation scheme. */
#ifndef HT_CHECKPOINT_TENSORS_H
#define HT_CHECKPOINT_TENSORS_H

#include "base/file.h"
#include "formats/safetensors.h"

typedef struct ht_checkpoint_files ht_checkpoint_files; /* checkpoint.h */

/* File range of one component (q, scales, biases) of a quantised weight; a unit of columns has unit_bytes. */
typedef struct ht_tensor_part {
    const ht_file *file;
    size_t offset, unit_bytes;
} ht_tensor_part;

/* A tensor's location in the checkpoint; checkpoint/tensor_read.h reads it. */
typedef struct ht_stored_tensor {
    const char *name; /* not NUL-terminated */
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
} ht_stored_tensor;

/* Finds a tensor. In safetensors each tensor may have its own prefix of `model.`, `language_model.` and `text_model.`: what
 * is stored under `name` comes first, else what is called so without prefixes. */
bool ht_checkpoint_find(const ht_checkpoint_files *c, const char *name, ht_stored_tensor *out);
enum { HT_DIMS_TEXT = 128 };
/* Writes a shape for messages: "32, 64". */
void ht_dims_text(const int64_t *dims, int n, char out[HT_DIMS_TEXT]);
/* Where the shapes of weights come from, for messages: "config.json". */
const char *ht_checkpoint_shape_source(const ht_checkpoint_files *c);
/* Finds tensor `name` with the shape dims[0 .. n_dims - 1], in a type of weights. */
ht_status ht_checkpoint_need(const ht_checkpoint_files *c, const char *name, const int64_t *dims, int n_dims,
                             ht_stored_tensor *out, ht_error *err);
size_t ht_checkpoint_n_tensors(const ht_checkpoint_files *c);
void ht_checkpoint_tensor_at(const ht_checkpoint_files *c, size_t i, ht_stored_tensor *out);

/* ---- safetensors: single tensors, before the parts of a quantised weight are joined ---- */

/* ht_checkpoint_find; NULL when absent. */
const ht_safetensor *ht_checkpoint_safetensor(const ht_checkpoint_files *c, const char *name);
/* The same, or the tensor with the elements of a quantised weight "X.weight" that is stored under another name. */
const ht_safetensor *ht_checkpoint_elements(const ht_checkpoint_files *c, const char *name);
/* Its location. */
void ht_checkpoint_locate(const ht_checkpoint_files *c, const ht_safetensor *t, ht_stored_tensor *out);
/* Name of its file, for messages. */
const char *ht_checkpoint_file_of(const ht_checkpoint_files *c, const ht_safetensor *t);
/* Indexes the text model's tensors by their bare names. */
ht_status ht_checkpoint_index_names(ht_checkpoint_files *c, ht_error *err);
/* A safetensors name without what wrappers put before it: "layers.0.mlp.up_proj.weight", "lm_head.weight". */
const char *ht_checkpoint_bare_name(const char *name);
/* Whether a safetensors name belongs to the text model. */
bool ht_checkpoint_is_text(const ht_checkpoint_files *c, const char *name);
/* Whether a tensor belongs to a vision or audio tower, or to what connects one with the text model. */
bool ht_checkpoint_is_tower(const char *name, size_t len);

/* The part of a path behind the last '/'. */
const char *ht_base_name(const char *path);

#endif
