/* Expert matrices in checkpoints: one tensor per expert, with its index in the name, or one stacked tensor [n_experts,
 * rows, columns], where gate and up may share the rows. */
#ifndef HT_CHECKPOINT_EXPERTS_H
#define HT_CHECKPOINT_EXPERTS_H

#include "checkpoint/family.h"

typedef struct ht_expert_form {
    ht_expert_part part;
    bool gguf;           /* GGUF name, else safetensors */
    bool stacked;        /* all experts in one tensor [n_experts, rows, columns] */
    const char *name;    /* tensor name behind the layer's prefix; %d: expert index */
    int share, n_shares; /* index and number of equal row ranges of an expert's rows */
} ht_expert_form;

/* The form of a layer's experts in the checkpoint; the format's first form when there are no such tensors. */
const ht_expert_form *ht_expert_form_of(const ht_checkpoint_files *c, ht_expert_part part, int64_t layer);
/* Writes the name of the tensor with expert `expert`. */
void ht_expert_name(const ht_checkpoint_files *c, const ht_expert_form *f, int64_t layer, int64_t expert, char *out,
                    size_t size);
/* How experts are written: GGUF's names, those of transformers, or mlx-lm's. */
typedef enum ht_expert_naming { HT_EXPERTS_GGUF, HT_EXPERTS_TRANSFORMERS, HT_EXPERTS_MLX } ht_expert_naming;
/* The form in which a part is written; `outside`: of families with experts beside the feed-forward, Gemma 4's. */
const ht_expert_form *ht_expert_form_named(ht_expert_naming naming, bool outside, ht_expert_part part);
/* ht_expert_name behind the prefix of a text model, "" in GGUF. */
void ht_expert_name_behind(const char *prefix, const ht_expert_form *f, int64_t layer, int64_t expert, char *out,
                           size_t size);
/* Slice of a stacked tensor: the matrix [rows, columns] of expert `expert`. */
ht_stored_tensor ht_expert_slice(const ht_stored_tensor *all, const ht_expert_form *f, int64_t expert, int64_t rows);

#endif
