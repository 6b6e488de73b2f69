/* Checkpoint on disk: its files, its configuration, and its stored tensors by name. Everything that differs between
 * GGUF and safetensors, but for the names of tensors, ends here.
 *
 * Immutable once opened; may be shared between threads. */
#ifndef HT_MODELS_CHECKPOINT_H
#define HT_MODELS_CHECKPOINT_H

#include "base/file.h"
#include "formats/gguf_set.h"
#include "formats/json.h"
#include "formats/safetensors.h"
#include "models/config.h"
#include "models/quantized.h"

typedef struct ht_checkpoint_files {
    char *path;                          /* of the GGUF file (of several, of any) or of the directory of safetensors */
    const char *name;                    /* what messages call it: the file's name, or "config.json" */
    char *directory;                     /* that holds the GGUF file and no other model's; else NULL */
    ht_gguf_set *parts;                  /* GGUF: one file or several */
    const ht_gguf *gguf;                 /* NULL: safetensors; else that of the first file, with the metadata */
    ht_safetensors *tensors;             /* NULL: GGUF */
    char *config_text, *generation_text; /* safetensors; the latter may be NULL */
    size_t config_size, generation_size;
    ht_quantized quantized; /* what config.json says of weights in 8-bit floats */
    const char *prefix;     /* of the text model's tensors in safetensors: "model.", "language_model.model.", ... */
    const char *head;       /* name of the output head's tensor, or NULL when there is none */
    json_t *quantization;   /* how weights are quantised, of MLX's safetensors (models/mlx.h); else NULL */
} ht_checkpoint_files;

/* `path` is a .gguf file or a directory with safetensors and config.json, or with one GGUF file. Of a GGUF
 * in several files, it names any. */
ht_status ht_checkpoint_open(const char *path, ht_checkpoint_files **out, ht_error *err);
void ht_checkpoint_close(ht_checkpoint_files *c); /* NULL is fine */

/* The configuration its files state. */
ht_status ht_checkpoint_config(const ht_checkpoint_files *c, ht_config *out, ht_error *err);

/* Where one of the tensors lies that a quantised weight is joined from. */
typedef struct ht_tensor_part {
    const ht_file *file;
    size_t offset, unit_bytes;
} ht_tensor_part;

/* A tensor as it lies in a file; models/tensor_read.h reads it. */
typedef struct ht_stored_tensor {
    const char *name; /* not NUL-terminated */
    size_t name_len;
    size_t number; /* for ht_checkpoint_tensor_at */
    const ht_file *file;
    const char *file_name;
    const char *type_name; /* "Q4_K", "BF16", "I64" */
    int type;              /* ht_weight_type, or -1: none that weights are read from */
    int n_dims;
    int64_t dims[HT_SAFETENSORS_RANK_MAX]; /* outermost first */
    size_t offset, n_bytes;
    /* Of MLX: numbers, scales and biases, by the bytes that `unit` columns have there. `file` and `offset` are those of the
     * numbers, `type` and `n_bytes` what they are joined to. */
    int n_parts; /* 0: the tensor lies in one piece */
    int64_t unit;
    ht_tensor_part part[3];
} ht_stored_tensor;

bool ht_checkpoint_find(const ht_checkpoint_files *c, const char *name, ht_stored_tensor *out);
size_t ht_checkpoint_n_tensors(const ht_checkpoint_files *c);
void ht_checkpoint_tensor_at(const ht_checkpoint_files *c, size_t i, ht_stored_tensor *out);

/* The part of a path after the last '/'. */
const char *ht_base_name(const char *path);

#endif
