/* Converting and quantising: writes a checkpoint in another container, with its weights unchanged or rounded to
 * another type. Splitting and merging: the same tensors in more or fewer files.
 *
 * Between GGUF and directories of safetensors, weights are named, ordered and stacked as the readers of each expect.
 * Configuration, tokenizer and chat template become GGUF metadata or JSON files. Between directories for transformers
 * and for mlx-lm, only the stacking of experts changes; other names and the other files of the directory are kept.
 * Values do not change; a quantised weight whose values the container cannot hold is written as floats.
 *
 * A search finds the scales and numbers of least squared error for every block, weighted by an importance matrix if
 * given. Metadata, tokenizer, chat template and the other files are kept. Tensors are read, rounded on all threads
 * and written one after the other: memory holds the largest of them, not the model. */
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
    HT_CONTAINER_SAME,        /* the checkpoint's, unless `out_path` or `type` requires another */
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

/* Stats of the written checkpoint. */
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
    /* The weights' type; NULL keeps the values. Required if neither `container` nor `max_file_bytes` is set. In GGUF
     * a type (Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q2_K to Q6_K, IQ4_NL, IQ4_XS, MXFP4, F32, F16, BF16) or a mix by
     * llama.cpp's names and rules: Q2_K_S, Q3_K_S, Q3_K_M, Q3_K_L, Q4_K_S, Q4_K_M, Q5_K_S, Q5_K_M. In safetensors
     * MLX's affine groups as BITS or BITS:GROUP ("4", "4:32"; 2, 3, 4, 5, 6 or 8 bits in groups of 32, 64 or 128
     * columns, default 64), mxfp4, or F32, F16, BF16. Case does not matter. */
    const char *type;
    bool pure; /* every matrix in the type itself, no mix; default false */
    /* Importance matrix; matrices that it lacks are rounded without it. Default NULL: all columns have equal weight. */
    const ht_importance *importance;
    int32_t n_threads;                         /* default 0: one for each core */
    const ht_cancel *cancel;                   /* ends the call with HT_ERR_CANCELLED; default NULL */
    void (*progress)(double done, void *user); /* called periodically with the share done, 0 to 1; default NULL */
    void (*on_tensor)(const ht_convert_tensor *t, void *user); /* called for each rounded tensor; default NULL */
    void *user;                                                /* handed to both */
    ht_convert_report *report;                                 /* filled in on success; default NULL */
    ht_container container;                                    /* default HT_CONTAINER_SAME */
    /* The type of floats without `type`, and of quantised weights that cannot stay so: HT_F32, HT_F16 or HT_BF16.
     * Default HT_DTYPE_NONE: floats stay as they are, quantised weights become f32, which holds their values. */
    ht_dtype dtype;
    /* Maximum bytes of a file of weights, header included; HT_ONE_FILE: all tensors in one file. A larger tensor gets
     * a separate file, and so does GGUF metadata that leaves no room for a tensor. Scales and biases of MLX's groups
     * are in the file of their weight, where they fit.
     *
     * With HT_CONTAINER_SAME, without `type` and `dtype`, a checkpoint is split or merged: every tensor is copied,
     * bit for bit, whatever its model, into the same container. Default 0: one file in GGUF; in safetensors the
     * checkpoint's files, or in another container files of 5 GB. */
    int64_t max_file_bytes;
} ht_convert_options;
HT_API void ht_convert_options_init(ht_convert_options *options, size_t size);

/* Writes the checkpoint at `model_path` (a path as for ht_model_load) in a container, with its weights in a type.
 * HT_CONTAINER_SAME is GGUF if `out_path` ends with .gguf; a directory for a GGUF file if the type is one of MLX's
 * groups; else the checkpoint's container, where floats keep their names, and groups are written for mlx-lm.
 *
 * A weight that already has the type is copied, bit for bit; the others are rounded from their exact values. Vectors,
 * and the routers of experts, keep their type; in a directory that type becomes F32, F16 or BF16, and those of a
 * directory become f32 in GGUF. Rows that are not whole blocks of the type get the next larger type that fits.
 *
 * `out_path` is a file for GGUF, whose name ends with .gguf, unless `model_path` is a directory with a GGUF file and
 * the container does not change; else a directory. It appears whole or not at all. It replaces an existing output if
 * this function or ht_fuse wrote that and its files have the same names. Anything else is HT_ERR_ARGUMENT, as are the
 * checkpoint itself and a path inside of it.
 *
 * Parts of a GGUF file become one, unless `max_file_bytes` requires several. These are named as in llama.cpp:
 * NAME-00001-of-00003.gguf and so on, in one directory, for an `out_path` of NAME.gguf. Any other `out_path` is then
 * a directory, in which they have the checkpoint's name. The first part, with the metadata, is the one to load, and
 * the last to appear: a killed process leaves no loadable set, or a complete one. If one file is enough, it is
 * NAME.gguf itself. Directories of safetensors have model-00001-of-00003.safetensors and so on with an index, or
 * model.safetensors.
 *
 * HT_ERR_UNSUPPORTED for settings of the model that the container cannot express. HT_ERR_ARGUMENT for a type that is
 * unknown or that the container does not hold, and for importance weights of another model. HT_ERR_LIMIT for a weight
 * that the type cannot hold, and for more files than a container can number (65535 in GGUF, 99999 in safetensors).
 * HT_ERR_FORMAT for weights that are not finite: with `type` in any written tensor, unchanged ones included; without,
 * where values do not change, only in those that become blocks. Else the errors of ht_model_load. */
HT_API ht_status ht_convert(const char *model_path, const char *out_path, const ht_convert_options *options,
                            ht_error *err);

#ifdef __cplusplus
}
#endif
#endif
