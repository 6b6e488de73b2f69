/* Weights: from a family's table of tensor names to packed matrices and f32 arrays.
 *
 * Looks up each tensor under its name in the checkpoint's format and checks type and shape. The device packs matrices slab
 * by slab on all threads. A table used only for row lookups stays in the file (models/pack.h). One store owns all
 * loaded weights and frees them together. */
#ifndef HT_MODELS_WEIGHTS_H
#define HT_MODELS_WEIGHTS_H

#include "checkpoint/stored_weights.h"
#include "models/forward.h"
#include "models/pack.h"

/* ---- weights of every decoder outside its layers ---- */

typedef struct ht_rotation {
    ht_rope_config how;
    ht_array *factors; /* f32 [rotated dimensions / 2] or HT_NONE */
} ht_rotation;

typedef struct ht_decoder_weights {
    const ht_config *config;
    ht_weight embedding;        /* [vocab, hidden] */
    ht_weight head;             /* [vocab, hidden]; the embedding's matrix when the head is tied */
    ht_norm_weights final_norm; /* f32 [hidden] */
    /* In full-attention layers, and in others without local_rope: in short sequences, and in long ones (ht_ctx.is_long)
     * if the model distinguishes them. */
    ht_rotation rope[HT_ROPE_LENGTHS];
    ht_rotation local_rope; /* in sliding layers, if config->has_local_rope */
    void *layers;           /* [n_layers] of the family's layer struct */
    void *around;           /* the family's struct of its other weights outside the layers */
} ht_decoder_weights;

/* ---- loading ---- */

typedef struct ht_weights ht_weights; /* owns a decoder and everything in it */

typedef struct ht_weights_options {
    ht_device *device;
    ht_stream *stream; /* for the arrays */
    ht_precision precision;
    ht_pack_hooks hooks;      /* while the matrices are packed */
    const char *packed_cache; /* directory of models/packed_cache.h; NULL: none */
} ht_weights_options;

/* Bytes the weights will take in memory; checks that every tensor exists with the right shape and type. */
ht_status ht_weights_measure(const ht_checkpoint_files *c, const ht_config *config, ht_device *device,
                             ht_precision precision, size_t *bytes, ht_error *err);
/* `config` must outlive the result. */
ht_status ht_weights_load(const ht_checkpoint_files *c, const ht_config *config, const ht_weights_options *options,
                          ht_weights **out, ht_error *err);
void ht_weights_free(ht_weights *w); /* NULL is fine */

const ht_decoder_weights *ht_weights_decoder(const ht_weights *w); /* lent */
/* Every matrix in memory, each once: *n of them, lent. Tables that stayed in their file are not among them. */
ht_matrix *const *ht_weights_matrices(const ht_weights *w, int64_t *n);
/* How matrix i is used. */
typedef struct ht_matrix_use {
    bool expert; /* belongs to an expert: only some tokens use it */
    bool table;  /* only rows are looked up; it is in memory because the device cannot read its file */
    bool late;   /* only output rows use it: its layer follows the last layer with keys */
} ht_matrix_use;
ht_matrix_use ht_weights_use(const ht_weights *w, int64_t i);

/* All projections inside layers, in the order of layers and of their tables; lent. */
const ht_projection *ht_weights_projections(const ht_weights *w, int64_t *n);
/* Index of the projection with a slot; -1: none. */
int64_t ht_weights_find_projection(const ht_weights *w, const char *slot);

#endif
