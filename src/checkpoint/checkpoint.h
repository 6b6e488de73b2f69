/* Checkpoint on disk: files, configuration, and tensors by name. Hides all differences between GGUF and safetensors
 * except tensor names.
 *
 * Immutable once opened; may be shared between threads. */
#ifndef HT_CHECKPOINT_CHECKPOINT_H
#define HT_CHECKPOINT_CHECKPOINT_H

#include "base/file.h"
#include "checkpoint/config.h"
#include "checkpoint/quantized.h"
#include "formats/gguf_set.h"
#include "formats/json.h"
#include "formats/name_index.h"
#include "formats/safetensors.h"

typedef struct ht_checkpoint_files {
    char *path;                          /* GGUF file (any part of several), or directory of safetensors */
    const char *name;                    /* file name for messages: the GGUF file's, or "config.json" */
    char *directory;                     /* directory of the GGUF file, if it has no other model; else NULL */
    ht_gguf_set *parts;                  /* NULL for safetensors */
    const ht_gguf *gguf;                 /* metadata (first part); NULL for safetensors */
    ht_safetensors *tensors;             /* NULL for GGUF */
    char *config_text, *generation_text; /* safetensors: contents; generation_text may be NULL */
    size_t config_size, generation_size;
    ht_quantized quantized;   /* quantization_config of config.json, fp8 and NVFP4 */
    ht_name_index bare_names; /* safetensors: tensors of the text model by name without prefixes */
    char *prefix; /* safetensors: prefix of the embedding's name, and of most: "model.", "language_model.model.", ... */
    char *head;   /* tensor name of the output head; NULL: none */
    ht_json *quantization; /* `quantization` of config.json (checkpoint/mlx.h); NULL: not MLX-quantised */
} ht_checkpoint_files;

/* Opens a .gguf file (any part of several), a directory with safetensors and config.json, or a directory with one GGUF
 * model. */
ht_status ht_checkpoint_open(const char *path, ht_checkpoint_files **out, ht_error *err);
void ht_checkpoint_close(ht_checkpoint_files *c); /* NULL is fine */

/* Reads and checks the configuration; errors name the file. */
ht_status ht_checkpoint_config(const ht_checkpoint_files *c, ht_config *out, ht_error *err);

/* Text of a JSON file in the directory of a GGUF model, which the caller frees; NULL when the file does not exist. */
ht_status ht_checkpoint_text_beside(const ht_checkpoint_files *c, const char *name, char **text, size_t *size,
                                    ht_error *err);

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
size_t ht_checkpoint_n_tensors(const ht_checkpoint_files *c);
void ht_checkpoint_tensor_at(const ht_checkpoint_files *c, size_t i, ht_stored_tensor *out);

/* ht_checkpoint_find of safetensors, before quantised parts are joined; NULL when absent. */
const ht_safetensor *ht_checkpoint_safetensor(const ht_checkpoint_files *c, const char *name);
/* A safetensors name without what wrappers put before it: "layers.0.mlp.up_proj.weight", "lm_head.weight". */
const char *ht_checkpoint_bare_name(const char *name);
/* Whether a safetensors name belongs to the text model. */
bool ht_checkpoint_is_text(const ht_checkpoint_files *c, const char *name);
/* Whether a tensor belongs to a vision or audio tower, or to what connects one with the text model. */
bool ht_checkpoint_is_tower(const char *name, size_t len);

/* The part of a path behind the last '/'. */
const char *ht_base_name(const char *path);

#endif
