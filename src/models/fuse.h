/* Fusing of adapters into a checkpoint (hearth/fuse.h): a plan of what becomes of every tensor, the values of those that do
 * not stay as they are, and the files. */
#ifndef HT_MODELS_FUSE_H
#define HT_MODELS_FUSE_H

#include "formats/safetensors_write.h"
#include "models/adapter.h"
#include "models/checkpoint.h"
#include "models/weights.h"

#include <hearth/fuse.h>

/* Metadata of what ht_fuse writes, by which it knows what it may replace. */
#define HT_FUSE_MARK "hearth.fused"

typedef enum ht_fuse_action {
    HT_FUSE_COPY,  /* stays as it is */
    HT_FUSE_DROP,  /* belongs to a weight that is written as floats */
    HT_FUSE_DENSE, /* is written as floats */
    HT_FUSE_GROUPS /* is written as MLX's affine groups, or is a part of such a weight */
} ht_fuse_action;

/* Rows of a tensor that one pair of an adapter changes. */
typedef struct ht_fuse_change {
    size_t tensor;
    int64_t first_row;      /* of the tensor, whose axes but the last one are all rows */
    int64_t head_rows;      /* the tensor's rows are interleaved in heads of so many; 0: they are not */
    int64_t lora_head_rows; /* likewise B's */
    const ht_lora *lora;
    int64_t expert;
    float scale; /* factor on B A */
} ht_fuse_change;

typedef struct ht_fuse_tensor {
    ht_stored_tensor from;
    size_t owner; /* the tensor that it is a scale of; itself when it is none */
    ht_fuse_action action;
    bool quantized;
    int part; /* HT_FUSE_GROUPS: 0 the packed elements, 1 the scales, 2 the biases */
    const ht_fuse_change *change;
    size_t n_changes;
    int n_shares;                           /* weights that share the rows of an expert */
    char *name;                             /* as stored */
    char *renamed;                          /* as written, when that is another; else NULL */
    int64_t shape[HT_SAFETENSORS_RANK_MAX]; /* as written */
    ht_tensor_output to;                    /* as written; it lends its name and shape from here */
} ht_fuse_tensor;

typedef struct ht_fuse_plan {
    const ht_checkpoint_files *c;
    const ht_config *config;
    ht_fuse_options options; /* complete */
    ht_fuse_tensor *tensor;  /* [n], by number */
    size_t n;
    ht_fuse_change *change; /* [n_changes], sorted by tensor */
    size_t n_changes, capacity;
} ht_fuse_plan;

/* Decides what becomes of every tensor of plan->c; the caller frees the plan even after a failure. */
ht_status ht_fuse_plan_make(ht_fuse_plan *plan, ht_adapter *const *adapters, const float *scales, int n, ht_error *err);
void ht_fuse_plan_free(ht_fuse_plan *plan);
/* Bytes of all tensors as they will be written. */
size_t ht_fuse_plan_bytes(const ht_fuse_plan *plan);

/* ---- values (fuse_values.c) ---- */

typedef struct ht_fuse_values ht_fuse_values;

ht_status ht_fuse_values_new(const ht_fuse_plan *plan, ht_fuse_values **out, ht_error *err);
void ht_fuse_values_free(ht_fuse_values *v); /* NULL is fine */
/* The bytes of tensor `number` as it is written, lent until the next call. */
ht_status ht_fuse_values_of(ht_fuse_values *v, size_t number, const void **bytes, ht_error *err);
/* What all calls together have done to the changed tensors. */
void ht_fuse_values_report(const ht_fuse_values *v, ht_fuse_report *out);

/* ---- files ---- */

/* config.json with what the plan changes: the dtype and the quantisation. *text is NULL when it stays as it is; else the caller
 * frees it. */
ht_status ht_fuse_config(const ht_fuse_plan *plan, char **text, ht_error *err);
/* Whether every quantised tensor of the plan is written as floats. */
bool ht_fuse_is_dense(const ht_fuse_plan *plan);

/* Write the checkpoint to a GGUF file, and to a directory. */
ht_status ht_fuse_write_gguf(const ht_fuse_plan *plan, ht_fuse_values *values, const char *path, ht_error *err);
ht_status ht_fuse_write_directory(const ht_fuse_plan *plan, ht_fuse_values *values, const char *path, ht_error *err);

#endif
