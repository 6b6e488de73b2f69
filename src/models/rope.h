/* Rotary embedding settings: the scaling schemes of checkpoints, turned into what the rope operation takes.
 *
 * Formulas: `transformers` modeling_rope_utils (linear, llama3, yarn, proportional). */
#ifndef HT_MODELS_ROPE_H
#define HT_MODELS_ROPE_H

#include <hearth/fast.h>
#include <hearth/ops.h>

#include <stdbool.h>
#include <stdint.h>

typedef enum ht_rope_kind {
    HT_ROPE_PLAIN,
    HT_ROPE_LINEAR,
    HT_ROPE_LLAMA3,
    HT_ROPE_YARN,
    HT_ROPE_PROPORTIONAL /* the pairs after a first share stay where they are */
} ht_rope_kind;

typedef struct ht_rope_spec {
    ht_rope_kind kind;
    double theta;
    double factor;                            /* by how much the context was stretched; proportional: 0 is 1 */
    double low_freq_factor, high_freq_factor; /* llama3 */
    double original_context;                  /* llama3, yarn: positions before stretching */
    double beta_fast, beta_slow;              /* yarn: rotations that bound the ramp */
    double attention_factor;                  /* yarn: factor on cos and sin; 0: from factor, mscale, mscale_all_dim */
    double mscale, mscale_all_dim;            /* yarn; 0: not given */
    double share;                             /* proportional: of the pairs that turn; 0: all */
    bool no_truncate;                         /* yarn: the ramp's bounds are not rounded to whole dimensions */
} ht_rope_spec;

/* The kind a file calls `name` ("default", "none", "linear", "llama3", "yarn", "proportional"); false when Hearth does not know it. */
bool ht_rope_kind_from_name(const char *name, ht_rope_kind *out);

/* Values are finite and in range: "" when fine, else what is wrong. */
const char *ht_rope_problem(const ht_rope_spec *r);

/* How the rope operation is called for heads of `dims` rotated dimensions. When the scheme divides frequencies one by
 * one, factors[dims / 2] is filled and true is returned; else it is untouched. */
bool ht_rope_prepare(const ht_rope_spec *r, int32_t dims, ht_rope_config *how, float *factors);

#endif
