/* Adapter files: code shared by the formats. A format maps the matrices of each pair to tensors by names and strides,
 * both for reading and for writing. */
#ifndef HT_CHECKPOINT_ADAPTER_FILE_H
#define HT_CHECKPOINT_ADAPTER_FILE_H

#include "checkpoint/adapter.h"
#include "formats/gguf.h"
#include "formats/safetensors.h"
#include "formats/safetensors_write.h"

enum { HT_ADAPTER_SLOT = 128, HT_ADAPTER_NAME = 192 };

/* A or B of a pair, or of some of its experts, in a tensor. Element (expert, rank, feature) is at `at` + the sum of
 * index times stride; features are inputs of A and outputs of B. */
typedef struct ht_adapter_piece {
    char slot[HT_ADAPTER_SLOT];
    bool is_b;
    int64_t expert, n_experts; /* first expert and number of experts; dense: 0 and 0 */
    int64_t rank, features;
    double scale;
    size_t tensor;                                          /* its number in the file */
    int64_t at, expert_stride, rank_stride, feature_stride; /* in elements */
    ht_order order;                                         /* of the features in the tensor */
    bool joined; /* the tensor holds gate and up, whose ranks may be disjoint */
} ht_adapter_piece;

/* Reads a module's name: "model.layers.3.self_attn.q_proj" is layer 3 and "self_attn.q_proj", which *rest points to.
 * Parts of the prefix that wrappers add (base_model, language_model) are accepted and set *text. False for a module
 * that is in no layer of the text model. */
bool ht_adapter_module(const char *name, int64_t *layer, const char **rest, ht_text_module *text);
/* Writes the slot of a projection; false when it is too long. */
bool ht_adapter_slot(char out[HT_ADAPTER_SLOT], int64_t layer, const char *rest);
/* Whether a tensor's name has the ending of A (ends[0]) or B (ends[1]), of equal length; *n is the length before it. */
bool ht_adapter_half(const char *name, const char *const ends[2], bool *is_b, size_t *n);
/* Sets the strides of consecutive row-major matrices of experts: [features, rank], or [rank, features]. */
void ht_adapter_lay_out(ht_adapter_piece *p, bool rank_last);

/* ---- reading ---- */

typedef struct ht_adapter_reading {
    const char *path; /* of the file with the tensors, for messages and JSON */
    const char *config_path;
    const ht_adapter_base *m; /* NULL: none */
    ht_safetensors *tensors;
    ht_file *file; /* of GGUF */
    ht_gguf *gguf;
    ht_adapter_piece *piece;
    size_t n_pieces;
    ht_adapter_origin origin;
    bool gguf_order, halved;
    bool has_parts; /* slots with an ending that ht_adapter_merge_parts removes */
} ht_adapter_reading;

/* List the pieces of all tensors; a tensor without a piece is an error. */
ht_status ht_adapter_list_peft(ht_adapter_reading *r, ht_error *err);
ht_status ht_adapter_list_mlx(ht_adapter_reading *r, ht_error *err);
ht_status ht_adapter_list_gguf(ht_adapter_reading *r, ht_error *err);

/* Makes one pair of the pairs of parts of a joined projection, when the model is known. */
ht_status ht_adapter_merge_parts(const ht_adapter_reading *r, ht_adapter *a, ht_error *err);

ht_status ht_adapter_add_piece(ht_adapter_reading *r, const ht_adapter_piece *piece, ht_error *err);
/* Adds both pieces of a tensor that holds gate and up: their shared A, or B with the rows of both, which are halves or
 * alternate. */
ht_status ht_adapter_add_joined(ht_adapter_reading *r, ht_adapter_piece piece, bool alternates, const char *name,
                                int64_t layer, ht_error *err);
size_t ht_adapter_n_tensors(const ht_adapter_reading *r);
/* Tensor i, with its name in `name`. */
ht_stored_tensor ht_adapter_tensor(const ht_adapter_reading *r, size_t i, char name[HT_ADAPTER_NAME]);
/* HT_ERR_FORMAT unless the tensor has n axes. */
ht_status ht_adapter_need_axes(const ht_adapter_reading *r, const ht_stored_tensor *t, const char *name, int n,
                               ht_error *err);
/* Copies at most n bytes of a string into a string of the origin; NULL stays NULL. */
ht_status ht_adapter_keep(char **to, const char *text, size_t n, ht_error *err);

/* ---- writing ---- */

typedef struct ht_adapter_writing {
    const ht_adapter *a;
    const ht_adapter_base *m; /* NULL: none */
    const char *path;         /* file or directory to write */
    int64_t rank;             /* of all pairs in the file, except joined ones */
    double scale;             /* of all pairs: B is multiplied by the pair's scale / this scale */
    ht_text_module text;
    const ht_family *family; /* whose names of experts are written; NULL: the usual ones */
    char fingerprint[HT_FINGERPRINT_SIZE], template_hash[HT_FINGERPRINT_SIZE]; /* "": not known */
    const char *base;                                                          /* NULL: not known */
    const ht_multipliers *multipliers; /* of the base, in families that have some; NULL: not stated */
    struct ht_adapter_tensor_out *tensor;
    size_t n_tensors;
    float *values;  /* of the current tensor */
    ht_lora **part; /* [n_parts] pairs made for this file, owned; A is lent */
    size_t n_parts;
} ht_adapter_writing;

ht_status ht_adapter_write_peft(ht_adapter_writing *w, ht_error *err);
ht_status ht_adapter_write_mlx(ht_adapter_writing *w, ht_error *err);
ht_status ht_adapter_write_gguf(ht_adapter_writing *w, ht_error *err);

/* How a format stores a pair. */
typedef struct ht_adapter_layout {
    const char *const *ends; /* [2] name endings of A and B */
    bool a_rank_last;        /* the rank is A's last axis and B's first one, else A's first and B's last */
    bool is_fused;           /* experts have no axis: A [experts * rank, in], B [out, rank * experts] */
    bool is_swapped;         /* A is in B's place, with the names and shapes that B has, and B in A's */
    bool alternates;         /* the rows of two shares alternate */
    int64_t expert;          /* the only one; -1: all */
    int64_t shares;          /* 2: gate and up in one tensor with separate ranks; B is 0 at the other's ranks */
    double scale;            /* factor on B; 0: none */
    ht_order rows, columns;  /* of B's rows and A's columns */
} ht_adapter_layout;

/* Adds the tensors of a pair, whose names begin with `name`; either gate or up may be NULL. */
ht_status ht_adapter_put(ht_adapter_writing *w, const char *name, const ht_lora *first, const ht_lora *second,
                         const ht_adapter_layout *how, ht_error *err);
/* Writes all tensors, sorted by name, and Hearth's metadata. */
ht_status ht_adapter_write_safetensors(ht_adapter_writing *w, const char *name, ht_error *err);
/* Bytes of tensor i for a writer; `user` is the ht_adapter_writing. */
ht_status ht_adapter_values(void *user, int i, const void **bytes, ht_error *err);
/* Descriptions of all tensors, sorted by name; the caller frees *out. */
ht_status ht_adapter_outputs(ht_adapter_writing *w, ht_tensor_output **out, ht_error *err);
/* Writes a JSON object as `name` in the directory and takes ownership; NULL: out of memory. */
ht_status ht_adapter_write_json(const ht_adapter_writing *w, const char *name, ht_json *value, ht_error *err);
/* Layer and projection of a slot: "self_attn.q_proj" of "model.layers.3.self_attn.q_proj". */
int64_t ht_adapter_slot_layer(const char *slot, const char **rest);
/* For a gate or up pair that is stored joined, the same layer's up or gate pair, or NULL. */
const ht_lora *ht_adapter_partner(const ht_adapter *a, const char *slot, bool *is_up);

#endif
