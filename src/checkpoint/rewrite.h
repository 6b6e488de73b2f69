/* Rewriting of a checkpoint, for ht_fuse and ht_convert: a plan for every tensor, the values that change, and the
 * files.
 *
 * If the container stays the same, the plan lists the checkpoint's tensors by number, followed by restacked experts for
 * another reader of directories. For the other container, the plan lists the tensors to write, each with the stored
 * rows that it is made of. */
#ifndef HT_CHECKPOINT_REWRITE_H
#define HT_CHECKPOINT_REWRITE_H

#include "checkpoint/adapter.h"
#include "checkpoint/stored_weights.h"
#include "device/device.h"
#include "formats/safetensors_write.h"

#include <hearth/cancel.h>
#include <hearth/convert.h>
#include <hearth/dtype.h>
#include <hearth/fuse.h>

/* Metadata of written checkpoints: only checkpoints that have one of these keys are replaced. */
#define HT_REWRITE_FUSED     "hearth.fused"
#define HT_REWRITE_QUANTIZED "hearth.quantized"
#define HT_REWRITE_CONVERTED "hearth.converted"

enum { HT_REWRITE_NAME_MOST = 80 };

typedef enum ht_rewrite_action {
    HT_REWRITE_COPY, /* unchanged */
    HT_REWRITE_DROP, /* scales already applied to their weight's new values */
    HT_REWRITE_ROUND /* written in a new type, or part of such a weight */
} ht_rewrite_action;

/* Functions of values, as is_logarithm of ht_tensor_spec requires. */
typedef enum ht_value_map { HT_VALUES_SAME, HT_VALUES_TO_EXPONENTIAL, HT_VALUES_TO_LOGARITHM } ht_value_map;

/* Rows of a tensor that one adapter pair changes. */
typedef struct ht_rewrite_change {
    size_t next;                      /* number of the tensor's next change in the plan, from 1; 0: none */
    int64_t first_row, n_rows;        /* of the tensor, whose axes but the last one are all rows */
    int64_t first_output;             /* the first of the pair's outputs, whose number is n_rows unless is_transposed */
    bool is_transposed;               /* the tensor's rows are the pair's inputs, and the columns its outputs */
    ht_order rows, columns;           /* of the tensor */
    ht_order lora_rows, lora_columns; /* of B's rows and A's columns */
    const ht_lora *lora;
    int64_t expert;
    float scale; /* factor on B A */
} ht_rewrite_change;

/* Stored rows that become part of a tensor. */
typedef struct ht_rewrite_piece {
    size_t tensor;      /* of the checkpoint */
    int64_t first_row;  /* of it, whose axes but the last one are all rows */
    int row_step;       /* 2: every second row of the tensor, or value of a vector */
    int n_shares;       /* weights that share the rows of an expert */
    bool transposed;    /* its rows are the stored tensor's columns */
    int64_t block_rows; /* not 0: its rows are columns of rows [first_row, first_row + block_rows) alone, */
    int64_t column;     /* from this one on */
} ht_rewrite_piece;

typedef struct ht_rewrite_tensor {
    ht_stored_tensor from; /* the stored tensor, or all pieces together; unspecified for new scales and biases */
    size_t moved;          /* number, from 1, of the first tensor that replaces a restacked one; 0: none */
    size_t owner;          /* the weight that this scale belongs to; itself if it is no scale */
    ht_rewrite_action action;
    ht_weight_type type; /* HT_REWRITE_ROUND: the weight's new type */
    bool quantized;
    int part;                         /* of a weight in MLX's groups: 0 packed elements, 1 scales, 2 biases */
    size_t change;                    /* number of the first change; 0: none */
    int n_shares;                     /* weights that share the rows of an expert */
    ht_rewrite_piece *piece;          /* [n_pieces], in the order of rows; NULL: a tensor of the checkpoint */
    int64_t n_pieces, piece_rows;     /* rows of each piece */
    ht_order stored_rows, rows;       /* pieces: the order of their rows as stored, as written */
    ht_order stored_columns, columns; /* pieces: of their columns */
    float offset;                     /* pieces: added to the values */
    float *factors;                   /* [rows] pieces: on the values of each row; NULL: none */
    ht_value_map map;                 /* pieces: function of the values */
    float *given;                     /* f32 values that are not stored in a tensor; NULL: none */
    bool is_mixed;                    /* pieces of several types */
    bool by_column;                   /* pieces: some are columns of stored rows, which only values can be */
    bool by_value;                    /* pieces: rows are single values of a vector, in another order */
    bool transposes;                  /* pieces: each matrix is written [columns, rows] */
    int64_t alternates;               /* pieces: rows, or values, whose two halves are written alternately; else 0 */
    bool repacks;                     /* pieces: stored blocks become blocks of `type` with the same values */
    bool is_weight;                   /* worth rounding to few bits */
    bool is_vector;                   /* pieces: a vector, which may be stored in rows */
    const char *axes;                 /* pieces: as in ht_tensor_spec; NULL: those of `from` */
    int file;                         /* index in the plan's files; before that, the checkpoint's safetensors file */
    char importance[HT_REWRITE_NAME_MOST];  /* its name in GGUF, for importance weights; "": none */
    ht_order importance_columns;            /* of these weights, other than that of the columns */
    char *name;                             /* as stored */
    char *renamed;                          /* as written, if different; else NULL */
    int64_t shape[HT_SAFETENSORS_RANK_MAX]; /* as written */
    ht_tensor_output to;                    /* as written, with name and shape lent from here */
} ht_rewrite_tensor;

typedef struct ht_rewrite_plan {
    ht_checkpoint_files *c;
    ht_config *config;  /* read on demand */
    bool is_directory;  /* of the output */
    bool to_gguf;       /* the container of the output */
    bool to_mlx;        /* a directory with the names of mlx-lm */
    bool to_other;      /* the container changes, so tensors are made of pieces */
    bool restacks;      /* some weights are restacked: ht_rewrite_plan_restack */
    bool renames;       /* all names get the prefix that the other reader expects */
    bool copies_files;  /* the checkpoint is a directory; its other files are copied to the output */
    bool checks_values; /* HT_ERR_FORMAT for every value that is not finite; else only if it cannot be written */
    const char *verb;   /* for messages: "fusing" */
    const char *mark;   /* HT_REWRITE_FUSED, HT_REWRITE_QUANTIZED or HT_REWRITE_CONVERTED */
    const char *out_path;
    int64_t max_file_bytes;          /* of ht_convert_options */
    ht_dtype dtype;                  /* stated in config.json; HT_DTYPE_NONE: unchanged */
    int file_type;                   /* general.file_type of GGUF; -1: that of most floats, if any */
    const ht_importance *importance; /* NULL: none */
    int n_threads;                   /* 0: one for each core */
    const ht_cancel *cancel;
    void (*progress)(double done, void *user);
    void *user;
    void (*on_tensor)(const ht_convert_tensor *t, void *user); /* NULL: errors are not measured */
    ht_rewrite_tensor *tensor; /* [n]: those of the checkpoint by number, and new ones */
    size_t n, capacity;
    ht_rewrite_change *change; /* [n_changes] */
    size_t n_changes;
    char **file; /* [n_files] names of the written files of weights */
    int n_files;
    ht_json *metadata; /* GGUF: the output's metadata, or changes to the checkpoint's */
} ht_rewrite_plan;

/* Opens the checkpoint as plan->c and allocates its configuration; the caller frees the plan even after a failure. */
ht_status ht_rewrite_plan_open(ht_rewrite_plan *plan, const char *model_path, ht_error *err);
/* Lists the tensors of plan->c, all to be copied. */
ht_status ht_rewrite_plan_list(ht_rewrite_plan *plan, ht_error *err);
/* Lists the tensors of the other container, each in its stored type or the container's nearest type with the same
 * values. `floats`: the type of float weights and of weights that cannot stay quantised; HT_DTYPE_NONE: floats stay,
 * others become f32. keeps_quantized: weights stay quantised if the container can represent their values. */
ht_status ht_rewrite_plan_translate(ht_rewrite_plan *plan, ht_dtype floats, bool keeps_quantized, ht_error *err);
/* Restacks experts of a listed directory for its new reader, mlx-lm (plan->to_mlx) or transformers, and what else the
 * two name or transpose differently. Drops those in another layout and adds them in the expected one, unquantised, in
 * the types of ht_rewrite_plan_translate. */
ht_status ht_rewrite_plan_restack(ht_rewrite_plan *plan, ht_dtype floats, ht_error *err);
/* Restacks only the tensors [n of the checkpoint] that `only` selects, under the names for transformers. */
ht_status ht_rewrite_plan_restack_some(ht_rewrite_plan *plan, const bool *only, ht_dtype floats, ht_error *err);
/* Writes the axes that a pattern of ht_tensor_spec gives a vector of rows; returns their number. */
int ht_rewrite_axes(const char *pattern, int64_t rows, int64_t columns, int64_t *dims);
/* Whether GGUF files have the tensor of this name in f32, whatever the type of most: its readers compute with vectors
 * of several axes, convolutions and routers unconverted. */
bool ht_rewrite_is_f32_in_gguf(const char *name);
/* Whether the weight, once its values are floats, is stored in another order: transposed, or alternately. */
bool ht_rewrite_is_reordered(const ht_rewrite_plan *plan, const ht_stored_weight *w);
/* Call when each weight has its action and type. Chooses those of scales and biases, adds missing ones, and sets all
 * outputs. */
ht_status ht_rewrite_plan_finish(ht_rewrite_plan *plan, ht_error *err);
void ht_rewrite_plan_free(ht_rewrite_plan *plan);
/* Whether the weight is written in MLX's groups: packed elements, scales and biases as separate tensors. */
bool ht_rewrite_in_parts(const ht_rewrite_plan *plan, const ht_rewrite_tensor *weight);
/* Whether a weight is written in another type than the stored one. */
bool ht_rewrite_changes_type(const ht_rewrite_tensor *weight);
/* Bytes of all tensors as they will be written. */
size_t ht_rewrite_plan_bytes(const ht_rewrite_plan *plan);
/* The float type of quantised weights: that of config.json, else that of most floats. */
ht_status ht_rewrite_float_type(const ht_rewrite_plan *plan, ht_dtype *out, ht_error *err);
/* HT_W_F32, HT_W_F16 or HT_W_BF16 of a float type, and back; HT_DTYPE_NONE of other types. */
ht_weight_type ht_rewrite_weight_type(ht_dtype dtype);
ht_dtype ht_rewrite_dtype(int type);
/* HT_ERR_ARGUMENT unless weights can be written as this type, or it is HT_DTYPE_NONE. */
ht_status ht_rewrite_check_dtype(ht_dtype dtype, ht_error *err);

/* ---- values (rewrite_values.c) ---- */

typedef struct ht_rewrite_values ht_rewrite_values;

ht_status ht_rewrite_values_new(const ht_rewrite_plan *plan, ht_rewrite_values **out, ht_error *err);
void ht_rewrite_values_free(ht_rewrite_values *v); /* NULL is fine */
/* The bytes of tensor `number` as it is written, lent until the next call. */
ht_status ht_rewrite_values_of(ht_rewrite_values *v, size_t number, const void **bytes, ht_error *err);
/* Whether n values are exact in a float type. */
bool ht_rewrite_is_exact(ht_weight_type type, const float *x, int64_t n);
/* Number of tensors so far that narrower floats changed. */
int64_t ht_rewrite_values_inexact(const ht_rewrite_values *v);
/* Stats of the changed tensors so far. */
void ht_rewrite_values_report(const ht_rewrite_values *v, ht_fuse_report *out);

/* ---- rows of one weight ---- */

/* A stored tensor's exact values, with the factors that a checkpoint stores for it. */
typedef struct ht_weight_source {
    ht_stored_tensor t;
    int64_t n_matrices, n_rows, k; /* rows of one matrix */
    int n_shares;
    struct ht_block_scales *scales; /* [n_matrices]; NULL: none */
    float *products;                /* [n_shares][n_matrices] factors on the products; NULL: none */
} ht_weight_source;

/* The values of an output tensor before adapters and rounding. */
typedef struct ht_weight_rows {
    const ht_rewrite_tensor *of;
    ht_rewrite_piece whole;        /* of a tensor of the checkpoint: the only piece */
    int64_t n_matrices, n_rows, k; /* rows of one matrix, as written */
    ht_weight_source *source;      /* [n_sources], by their numbers */
    int64_t n_sources;
    int64_t most_block_rows; /* of the pieces */
} ht_weight_rows;

ht_status ht_weight_rows_open(const ht_rewrite_plan *plan, const ht_rewrite_tensor *t, ht_weight_rows *out,
                              ht_error *err);
void ht_weight_rows_close(ht_weight_rows *r);
/* Bytes of scratch for n rows. */
size_t ht_weight_rows_scratch(const ht_weight_rows *r, int64_t n);
/* Rows [first, first + n) as blocks of the pieces' common type, without factors. */
ht_status ht_weight_rows_read_blocks(const ht_weight_rows *r, int64_t first, int64_t n, void *out, void *scratch,
                                     ht_error *err);
/* f32 values of rows [first, first + n). Both are thread-safe, each thread with its own scratch. */
ht_status ht_weight_rows_read(const ht_weight_rows *r, int64_t first, int64_t n, float *out, void *scratch,
                              ht_error *err);

/* ---- output (rewrite_output.c) ---- */

/* HT_ERR_ARGUMENT for an output that would replace the checkpoint, lie inside it, or replace files that ht_fuse and
 * ht_convert did not write. For several files outside a directory, the plan must be finished. */
ht_status ht_rewrite_check_place(const ht_rewrite_plan *plan, const char *model_path, ht_error *err);
/* Whether no quantised tensor is written. */
bool ht_rewrite_is_dense(const ht_rewrite_plan *plan);
/* Writes the plan's checkpoint to plan->out_path: a GGUF file, parts of one in its directory, or a directory. */
ht_status ht_rewrite_write(const ht_rewrite_plan *plan, ht_rewrite_values *values, ht_error *err);

/* ---- files of weights (rewrite_files.c) ---- */

/* Makes the metadata of GGUF, chooses the file of every tensor, and names the files. The plan must be finished. */
ht_status ht_rewrite_choose_files(ht_rewrite_plan *plan, ht_error *err);
/* Writes all files into a directory; several safetensors files get an index. */
ht_status ht_rewrite_write_files(const ht_rewrite_plan *plan, ht_rewrite_values *values, const char *directory,
                                 ht_error *err);
/* Writes plan->out_path, or its parts in the same directory, which appear at the same time. */
ht_status ht_rewrite_write_gguf(const ht_rewrite_plan *plan, ht_rewrite_values *values, ht_error *err);
/* Whether all tensors of a safetensors file are dropped; experts of a large layer can fill a file. */
bool ht_rewrite_is_left_out(const ht_rewrite_plan *plan, int file);
/* Whether the output has an index: it has several files, or keeps the checkpoint's files and their index. */
ht_status ht_rewrite_has_index(const ht_rewrite_plan *plan, bool *out, ht_error *err);

#endif
