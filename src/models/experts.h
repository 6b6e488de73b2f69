/* Expert matrices in checkpoints, and their tensor names: one tensor for each, with its number in the name; or all in
 * one, [n_experts, rows, columns], which may hold another part's rows as well. */
#ifndef HT_MODELS_EXPERTS_H
#define HT_MODELS_EXPERTS_H

#include "models/checkpoint.h"

/* Which matrix of an expert. */
typedef enum ht_expert_part { HT_EXPERT_NONE, HT_EXPERT_GATE, HT_EXPERT_UP, HT_EXPERT_DOWN } ht_expert_part;

typedef struct ht_expert_form {
    ht_expert_part part;
    bool gguf, stacked;  /* all experts in one tensor */
    const char *name;    /* after the layer's prefix */
    int share, n_shares; /* of the rows that an expert has in the tensor */
} ht_expert_form;

/* The form in which a layer's experts are there; the first one of the format when none is. */
const ht_expert_form *ht_expert_form_of(const ht_checkpoint_files *c, ht_expert_part part, int64_t layer);
/* The tensor that holds expert `expert`. */
void ht_expert_name(const ht_checkpoint_files *c, const ht_expert_form *f, int64_t layer, int64_t expert, char *out,
                    size_t size);
/* The matrix of expert `expert`, [rows, columns], in a tensor that holds those of all. */
ht_stored_tensor ht_expert_slice(const ht_stored_tensor *all, const ht_expert_form *f, int64_t expert, int64_t rows);

#endif
