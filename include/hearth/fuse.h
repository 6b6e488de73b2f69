/* Fusing: writes a checkpoint whose weights are W + scale * B A. Every reader then answers as this library does
 * with the adapter.
 *
 * The result is in the container of the checkpoint: a GGUF file stays one, a directory of safetensors keeps its
 * shards, MLX's groups stay groups where nothing changed. Metadata, tokenizer, chat template and the other files
 * are kept. Sums are f32 and rounded once. Tensors are read, changed and written one after the other: memory holds
 * the largest of them, not the model.
 *
 * A tensor that an adapter changes is written as floats: rounding the sum to few bits again could lose a small
 * change. Unchanged tensors stay as they are, where the container can mix both: in GGUF and in MLX's groups. A
 * checkpoint of another quantisation (fp8, NVFP4, compressed-tensors, ModelOpt) becomes floats as a whole when one
 * of its quantised tensors changes. */
#ifndef HEARTH_FUSE_H
#define HEARTH_FUSE_H

#include <hearth/adapter.h>
#include <hearth/cancel.h>
#include <hearth/dtype.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Stats of the written checkpoint. Norms are Frobenius norms over all changed weights: W of the checkpoint, D the
 * adapters' change of it, S the stored weights. */
typedef struct ht_fuse_report {
    int64_t n_changed; /* tensors that adapters changed */
    int64_t n_dense;   /* tensors that were quantised and are floats now, changed or not */
    int64_t bytes;     /* of all tensors as written */
    double error;      /* |S - W - D| / |W + D|: relative rounding error */
    double noise;      /* |S - W - D| / |D|: the same in units of the change */
    double kept;       /* <S - W, D> / <D, D>: the share of the change that is stored; 1 when all is */
    double least_kept; /* the lowest `kept` of a tensor */
} ht_fuse_report;

/* Options of ht_fuse. */
typedef struct ht_fuse_options {
    size_t size; /* of the struct, set by ht_fuse_options_init */
    /* HT_F32, HT_F16 or HT_BF16, of tensors written as floats. Default HT_DTYPE_NONE: floats keep their type;
     * quantised tensors get the checkpoint's float type, or without one bf16 in safetensors and f16 in GGUF. */
    ht_dtype dtype;
    bool dense; /* write all quantised tensors as floats, not only changed ones; default false */
    /* Round changed tensors that were MLX's affine groups to such groups again: 2 to 6 or 8 bits. The report has the
     * stored share of the change. Default 0: they become floats. */
    int32_t quantize_bits;
    int32_t quantize_group;                    /* 32, 64 or 128 columns; default 0: 64 */
    const ht_cancel *cancel;                   /* ends the call with HT_ERR_CANCELLED; default NULL */
    void (*progress)(double done, void *user); /* called periodically with the share done, 0 to 1; default NULL */
    void *user;                                /* handed to `progress` */
    ht_fuse_report *report;                    /* filled in on success; default NULL */
} ht_fuse_options;
HT_API void ht_fuse_options_init(ht_fuse_options *options, size_t size);

/* Writes the checkpoint at `model_path` (a path as for ht_model_load) with n adapters, 1 or more, each times
 * scales[i]; NULL scales: 1 each. The adapters may have been loaded without the model: names and shapes are
 * checked here.
 *
 * `out_path` is a file, whose name ends with .gguf, if `model_path` is one, else a directory. It appears whole or
 * not at all. It replaces an existing output if this function wrote that and its files have the same names.
 * Anything else is HT_ERR_ARGUMENT, as are the checkpoint itself and a path inside of it. Parts of a GGUF file
 * become one. From a directory all files but the weights are copied, except weights in other containers;
 * subdirectories are not.
 *
 * HT_ERR_ARGUMENT for an adapter of another model and options that do not fit the checkpoint, HT_ERR_LIMIT for a
 * weight that the chosen type cannot hold, else the errors of ht_model_load. */
HT_API ht_status ht_fuse(const char *model_path, ht_adapter *const *adapters, const float *scales, int n,
                         const char *out_path, const ht_fuse_options *options, ht_error *err);

#ifdef __cplusplus
}
#endif
#endif
