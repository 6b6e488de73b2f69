/* Weight loading internals: the store, and the traversal of a family's tables that fills it. */
#ifndef HT_MODELS_WEIGHTS_INTERNAL_H
#define HT_MODELS_WEIGHTS_INTERNAL_H

#include "checkpoint/family.h"
#include "checkpoint/fp8_scales.h"
#include "models/weights.h"

enum { HT_WEIGHT_NAME = 160 };

struct ht_weights {
    ht_decoder_weights decoder;
    int64_t n_matrices, n_tables, n_arrays, n_names, n_experts;
    int64_t capacity; /* of each list: more than all places of all layers can need */
    ht_matrix **matrices;
    ht_matrix_use *use;   /* of each matrix */
    ht_matrix **tables;   /* in their file */
    ht_matrix ***experts; /* lists of matrices */
    ht_array **arrays;
    char **names; /* slots, and names of tensors */
    int64_t n_projections;
    ht_projection *projections;
    ht_device *device; /* lent: the model holds it longer */
    void *
        memory; /* of the device, or mapped, of all matrices: one piece, so that nearly all of it can be in large pages */
    size_t memory_bytes;
    bool mapped; /* `memory` is a file's (models/packed_cache.h) */
};

/* One walk over all tables; without a store it only checks and adds up. */
typedef struct ht_loader {
    const ht_checkpoint_files *from;
    const ht_config *config;
    ht_device *device; /* NULL: only what is in the files is looked at */
    ht_precision precision;
    ht_weights *into; /* NULL: measure */
    ht_scope *scope;
    size_t bytes, matrix_bytes;     /* in memory, so far: of everything, of matrices */
    size_t table_bytes;             /* in the file */
    ht_pack_task *tasks;            /* one per matrix, carried out at the end */
    bool late;                      /* in a layer that only rows meet whose logits are asked for */
    bool *used;                     /* one per tensor of the checkpoint; NULL: nobody asks */
    ht_stored_projection_fn *visit; /* called for every projection; NULL: nobody asks */
    ht_stored_weight_fn *visit_all; /* called for every weight; NULL: nobody asks */
    void *visit_user;
    ht_error *err;
} ht_loader;

/* ---- single tensors (weights_find.c) ---- */

/* Who says which shapes there are, for messages. */
const char *ht_loader_source(const ht_loader *l);
/* Finds `name` with the shape dims[0 .. n_dims - 1], in a type that can be read. */
ht_status ht_loader_look_up(const ht_loader *l, const char *name, const int64_t *dims, int n_dims, ht_stored_tensor *t);
/* The scales that the checkpoint has for t, of n matrices one after another, or of the one that it is when n is 0. */
ht_status ht_loader_find_scales(ht_loader *l, const ht_stored_tensor *t, const char *name, int64_t n,
                                ht_fp8_scales *out);
/* Gives a matrix the scales of rows [row, row + n_rows) of stored matrix `index`. */
ht_status ht_loader_set_scales(const ht_fp8_scales *s, int64_t index, int64_t row, ht_matrix *m, ht_error *err);
/* What products of the matrix are multiplied by: the scale of a whole tensor in NVFP4. A GGUF file may have `x.scale` beside
 * `x.weight`, with one for each of its n experts. A tensor may hold the rows of n_shares weights, of which this is
 * number `share`. *found is false when there is none. */
ht_status ht_loader_product_scales(const ht_loader *l, const char *name, int64_t n, int share, int n_shares, float *out,
                                   bool *found);
/* The same into w->scale. */
ht_status ht_loader_scale_products(const ht_loader *l, const char *name, ht_weight *w);

/* What follows only checks and adds up when there is no store, and leaves outputs as they are. */

/* A matrix to be packed from `t`, [rows, columns]. */
ht_status ht_loader_add(ht_loader *l, bool is_head, const ht_stored_tensor *t, const char *name, int64_t head_rows,
                        ht_matrix **out);
ht_status ht_loader_matrix(ht_loader *l, const char *name, int64_t rows, int64_t columns, int64_t head_rows,
                           ht_matrix **out);
/* The head; or the embedding that is also the head. */
ht_status ht_loader_head(ht_loader *l, const char *name, ht_matrix **out);
/* A table stays where it is: it takes no memory. */
ht_status ht_loader_table(ht_loader *l, const char *name, int64_t rows, int64_t columns, ht_matrix **out);
/* Vectors are few and small: they are kept as f32 arrays. */
ht_status ht_loader_vector(ht_loader *l, const char *name, int64_t n, int64_t head_rows, ht_array **out);
ht_status ht_loader_keep_array(ht_loader *l, const float *values, int64_t n, ht_array **out);
/* A copy of a name, which the store owns. */
ht_status ht_loader_keep_name(ht_loader *l, const char *name, const char **out);

/* ---- places in a family's tables (weights_place.c) ---- */

ht_status ht_loader_around(ht_loader *l, ht_decoder_weights *d);
/* `base` is the family's struct of the layer; NULL: nothing is filled in. */
ht_status ht_loader_layer(ht_loader *l, int64_t layer, char *base);

#endif
