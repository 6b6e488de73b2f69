/* Checkpoint on disk: files, configuration, and tensors by name. Hides all differences between GGUF and safetensors
 * except tensor names.
 *
 * Immutable once opened; may be shared between threads. */
#ifndef HT_CHECKPOINT_CHECKPOINT_H
#define HT_CHECKPOINT_CHECKPOINT_H

#include "checkpoint/config.h"
#include "checkpoint/tensors.h"
#include "formats/gguf_set.h"
#include "formats/json.h"
#include "formats/name_index.h"

struct ht_model_info;

/* Properties of 8-bit float and NVFP4 tensors, from `quantization_config` of config.json. */
typedef struct ht_quantized {
    const char *scale; /* required suffix of an fp8 weight's scales; NULL: optional */
    int64_t block[2];  /* rows and columns that share a scale; 0: unspecified */
} ht_quantized;

struct ht_checkpoint_files {
    char *path;                          /* GGUF file (any part of several), or directory of safetensors */
    const char *name;                    /* file name for messages: the GGUF file's, or "config.json" */
    char *directory;                     /* directory of the GGUF file, if it has no other model; else NULL */
    ht_gguf_set *parts;                  /* NULL for safetensors */
    const ht_gguf *gguf;                 /* metadata (first part); NULL for safetensors */
    ht_safetensors *tensors;             /* NULL for GGUF */
    ht_stored_tensor *stored;            /* [n_tensors], those of quantised weights joined */
    char *config_text, *generation_text; /* safetensors: contents; generation_text may be NULL */
    size_t config_size, generation_size;
    const struct ht_scheme *scheme; /* scheme.h */
    ht_quantized quantized;
    ht_name_index bare_names; /* safetensors: tensors of the text model by name without prefixes */
    char *prefix; /* safetensors: prefix of the embedding's name, and of most: "model.", "language_model.model.", ... */
    char *head;   /* tensor name of the output head; NULL: none */
    ht_json *quantization; /* `quantization` of config.json (mlx.c); NULL: not MLX-quantised */
};

/* Opens a .gguf file (any part of several), a directory with safetensors and config.json, or a directory with one GGUF
 * model. */
ht_status ht_checkpoint_open(const char *path, ht_checkpoint_files **out, ht_error *err);
void ht_checkpoint_close(ht_checkpoint_files *c); /* NULL is fine */

/* Reads and checks the configuration; errors name the file. */
ht_status ht_checkpoint_config(const ht_checkpoint_files *c, ht_config *out, ht_error *err);

/* Text of a JSON file in the checkpoint's directory, or next to a GGUF model that is alone in its directory. The caller
 * frees it; NULL when the file does not exist. */
ht_status ht_checkpoint_text(const ht_checkpoint_files *c, const char *name, char **text, size_t *size, ht_error *err);
/* The same for GGUF models alone. */
ht_status ht_checkpoint_text_beside(const ht_checkpoint_files *c, const char *name, char **text, size_t *size,
                                    ht_error *err);

/* Writes a text and a newline to directory/name. */
ht_status ht_checkpoint_write_text(const char *directory, const char *name, const char *text, ht_error *err);

/* general.type of a GGUF file: "model", "adapter", "imatrix"; "" if it is not stated or the file is not GGUF. */
void ht_gguf_file_type(const char *path, char out[16]);

/* ht_model_info_read for listings: skips the slow tokenizer (tokenizer_kind and chat_format are ""), but fails, as
 * ht_model_load would, for missing or mismatching tensors. */
ht_status ht_model_info_glance(const char *path, struct ht_model_info **out, ht_error *err);

#endif
