/* Quantising: a checkpoint whose weights are rounded to another type, in the container that it has.
 *
 * Every block gets the scales and numbers of least squared error that a search finds; what a text's activations say of the columns'
 * importance counts where it is given. Metadata, tokenizer, chat template and the other files are kept. Tensors are read,
 * rounded on all threads and written one after the other: memory holds the largest of them, not the model. */
#ifndef HEARTH_CONVERT_H
#define HEARTH_CONVERT_H

#include <hearth/cancel.h>
#include <hearth/importance.h>
#include <hearth/status.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

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
    double bits;       /* per weight of the rounded tensors */
} ht_convert_report;

/* Options of ht_convert. */
typedef struct ht_convert_options {
    size_t size; /* of the struct, set by ht_convert_options_init */
    /* The weights' type; required. In GGUF a type (Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q2_K to Q6_K, IQ4_NL, IQ4_XS, MXFP4, F32, F16, BF16)
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
} ht_convert_options;
HT_API void ht_convert_options_init(ht_convert_options *options, size_t size);

/* Writes the checkpoint at `model_path` (a path as of ht_model_load) with its weights in another type. A weight that has the
 * type already stays as it is, bit for bit; the others are rounded from their exact values. Vectors, and the routers of experts,
 * keep their type. Rows that are no whole blocks of the type get the next larger type that fits.
 *
 * `out_path` is a file where `model_path` is one, else a directory. It appears whole or not at all. What is there already is
 * replaced when it was written by this function or by ht_fuse and its files have the same names; anything else is
 * HT_ERR_ARGUMENT, as are the checkpoint itself and a place inside of it. Parts of a GGUF file become one.
 *
 * HT_ERR_ARGUMENT for a type that there is not or that the container does not hold, and importance weights of another model, HT_ERR_FORMAT for weights that are no finite
 * numbers, HT_ERR_LIMIT for a weight that the type cannot hold, else the errors of ht_model_load. */
HT_API ht_status ht_convert(const char *model_path, const char *out_path, const ht_convert_options *options,
                            ht_error *err);

#ifdef __cplusplus
}
#endif
#endif
