/* Converting and quantising: a checkpoint in another container, with its weights as they are or rounded to another type; splitting
 * and merging: the same tensors in more or in fewer files.
 *
 * Between GGUF and directories of safetensors, weights are named, ordered and stacked as the readers of each expect them, and the
 * configuration, the tokenizer and the chat template go over as GGUF metadata or as JSON files. Between directories for transformers
 * and for mlx-lm, experts are stacked as the reader expects them; all else has the same names in both and keeps them, with the files
 * beside the weights. Values stay what they are; where
 * a container has no type for those of a quantised weight, it is written as floats.
 *
 * Every block gets the scales and numbers of least squared error that a search finds; what a text's activations say of the columns'
 * importance counts where it is given. Metadata, tokenizer, chat template and the other files are kept. Tensors are read,
 * rounded on all threads and written one after the other: memory holds the largest of them, not the model. */
#ifndef HEARTH_CONVERT_H
#define HEARTH_CONVERT_H

#include <hearth/cancel.h>
#include <hearth/dtype.h>
#include <hearth/importance.h>
#include <hearth/status.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Containers of checkpoints. */
typedef enum ht_container {
    HT_CONTAINER_SAME,        /* that of the checkpoint, unless the name to write and the type say otherwise */
    HT_CONTAINER_GGUF,        /* a GGUF file */
    HT_CONTAINER_SAFETENSORS, /* a directory as transformers reads it: all weights are floats */
    HT_CONTAINER_MLX          /* a directory as mlx-lm reads it: floats, or MLX's groups */
} ht_container;

/* A tensor that was rounded. */
typedef struct ht_convert_tensor {
    const char *name, *from, *to; /* types as "BF16", "Q4_K"; lent during the call */
    int64_t bytes;                /* as written */
    double error;                 /* |S - W| / |W|, Frobenius norms: W as read, S as stored */
} ht_convert_tensor;

/* What was written. */
typedef struct ht_convert_report {
    int64_t n_rounded; /* tensors with another type than before */
    int64_t bytes;     /* of all tensors as written */
    double bits;       /* per weight of the tensors with another type */
    int64_t n_tensors; /* all tensors as written */
    int64_t n_floats;  /* those that were quantised and are floats now */
    int64_t n_inexact; /* floats of which some were rounded to fewer bits, and so changed */
    int64_t n_files;   /* of weights */
} ht_convert_report;

/* All tensors in one file. */
#define HT_ONE_FILE INT64_MAX

/* Options of ht_convert. */
typedef struct ht_convert_options {
    size_t size; /* of the struct, set by ht_convert_options_init */
    /* The weights' type; NULL leaves values as they are. Required where neither `container` nor `max_file_bytes` says what is to be
     * done. In GGUF a type (Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q2_K to Q6_K, IQ4_NL, IQ4_XS, MXFP4, F32, F16, BF16)
     * or a mix by llama.cpp's names and rules: Q2_K_S, Q3_K_S, Q3_K_M, Q3_K_L, Q4_K_S, Q4_K_M, Q5_K_S, Q5_K_M. In
     * safetensors MLX's affine groups as BITS or BITS:GROUP ("4", "4:32"; 2, 3, 4, 5, 6 or 8 bits in groups of 32, 64 or
     * 128 columns, default 64), mxfp4, or F32, F16, BF16. Case does not count. */
    const char *type;
    bool pure; /* every matrix in the type itself, no mix; default false */
    /* What columns count for; matrices that it does not have are rounded without. Default NULL: all columns count alike. */
    const ht_importance *importance;
    int32_t n_threads;                         /* default 0: one for each core */
    const ht_cancel *cancel;                   /* ends the call with HT_ERR_CANCELLED; default NULL */
    void (*progress)(double done, void *user); /* called now and then with the share done, 0 to 1; default NULL */
    void (*on_tensor)(const ht_convert_tensor *t, void *user); /* called for each rounded tensor; default NULL */
    void *user;                                                /* handed to both */
    ht_convert_report *report;                                 /* filled in on success; default NULL */
    ht_container container;                                    /* default HT_CONTAINER_SAME */
    /* The type of floats without `type`, and of quantised weights that cannot stay so: HT_F32, HT_F16 or HT_BF16. Default
     * HT_DTYPE_NONE: floats stay as they are, quantised weights become f32, which holds their values. */
    ht_dtype dtype;
    /* The most bytes of a file of weights, with its header; HT_ONE_FILE: all tensors are in one file. A tensor that needs more has
     * a file of its own, and so has, in GGUF, metadata with which no tensor has room. Scales and biases of MLX's groups are in the
     * file of their weight, where they fit. With HT_CONTAINER_SAME, without `type` and `dtype`, a checkpoint is split or merged:
     * every tensor is copied, bit for bit, whatever model it is of, into the container that it is in. Default 0: one file in GGUF; in safetensors the files that the
     * checkpoint has, or in another container files of 5 GB. */
    int64_t max_file_bytes;
} ht_convert_options;
HT_API void ht_convert_options_init(ht_convert_options *options, size_t size);

/* Writes the checkpoint at `model_path` (a path as of ht_model_load) in a container, and with its weights in a type.
 * HT_CONTAINER_SAME is GGUF where `out_path` ends with .gguf; a directory for a GGUF file where the type is one of MLX's groups;
 * else the container that the checkpoint has, where floats keep their names, and groups are written for mlx-lm. A weight that has the type already stays as it is, bit for bit; the others are
 * rounded from their exact values. Vectors, and the routers of experts, keep their type, but in a directory that becomes F32, F16
 * or BF16; those of a directory become f32 in GGUF. Rows that are no whole blocks of the type get the next larger type that fits.
 *
 * `out_path` is a file for GGUF, whose name ends with .gguf, unless `model_path` is a directory with a GGUF file and the container stays; else a directory. It
 * appears whole or not at all. What is there already is replaced when it was written by this function or by ht_fuse and its
 * files have the same names; anything else is HT_ERR_ARGUMENT, as are the checkpoint itself and a place inside of it.
 *
 * Parts of a GGUF file become one, unless `max_file_bytes` says otherwise. Where that takes several, they are called as llama.cpp
 * calls them: for an `out_path` of NAME.gguf NAME-00001-of-00003.gguf and so on, beside each other; any other `out_path` is then a
 * directory, in which they have the checkpoint's name. The first part, with the metadata, is the one to load, and the last to appear:
 * a process that is killed meanwhile leaves no set that could be loaded, or the whole one. Where one file is enough, it is NAME.gguf
 * itself. Directories of safetensors have model-00001-of-00003.safetensors and so on with an index, or model.safetensors.
 *
 * HT_ERR_UNSUPPORTED for settings of the model that the container cannot express, HT_ERR_ARGUMENT for a type that there is not or
 * that the container does not hold, and importance weights of another model, HT_ERR_LIMIT for a weight that the type cannot hold
 * and for more files than a container can number (65535 in GGUF, 99999 in safetensors), else the errors of ht_model_load. HT_ERR_FORMAT for weights that are no finite numbers: with `type` of all tensors that are
 * written, those that stay as they are included; without, where values stay, only of those that become blocks. */
HT_API ht_status ht_convert(const char *model_path, const char *out_path, const ht_convert_options *options,
                            ht_error *err);

#ifdef __cplusplus
}
#endif
#endif
