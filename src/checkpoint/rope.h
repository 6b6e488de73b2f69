/* RoPE settings: the scaling schemes of checkpoints as parameters of the rope operation.
 *
 * Formulas: `transformers` modeling_rope_utils (linear, llama3, yarn, longrope, proportional). */
#ifndef HT_CHECKPOINT_ROPE_H
#define HT_CHECKPOINT_ROPE_H

#include <hearth/fast.h>
#include <hearth/ops.h>
#include <hearth/status.h>

#include <stdbool.h>
#include <stdint.h>

typedef enum ht_rope_kind {
    HT_ROPE_PLAIN,
    HT_ROPE_LINEAR,
    HT_ROPE_LLAMA3,
    HT_ROPE_YARN,
    HT_ROPE_PROPORTIONAL, /* partial: only a first share of the pairs is rotated */
    HT_ROPE_LONG          /* "longrope": divisors of the frequencies that depend on the length of the sequence */
} ht_rope_kind;

/* Divisors of longrope: of sequences of up to original_context tokens, and of longer ones. */
typedef enum ht_rope_length { HT_ROPE_OF_SHORT, HT_ROPE_OF_LONG, HT_ROPE_LENGTHS } ht_rope_length;

enum { HT_ROPE_MOST_DIVISORS = 256 };

typedef struct ht_rope_spec {
    ht_rope_kind kind;
    double theta;
    double factor;                            /* context extension factor; proportional: 0 means 1 */
    double low_freq_factor, high_freq_factor; /* llama3 */
    double original_context;                  /* llama3, yarn, longrope: positions before extension */
    double beta_fast, beta_slow;              /* yarn: rotation counts that bound the ramp */
    double attention_factor;                  /* yarn: factor on cos and sin; 0: from factor, mscale, mscale_all_dim */
    double length_factor[HT_ROPE_LENGTHS];    /* longrope: factor on cos and sin */
    double mscale, mscale_all_dim;            /* yarn; 0: absent */
    double share;                             /* proportional: share of the pairs that is rotated; 0: all */
    bool no_truncate;                         /* yarn: ramp bounds are not rounded to whole dimensions */
    int64_t dims;                             /* rotated leading dimensions of a head; 0: all */
    bool interleaved;                         /* pairs (2 i, 2 i + 1) instead of (i, i + dims / 2) */
    int32_t n_divisors;                       /* longrope: of each length; 0: not read yet */
    float divisor[HT_ROPE_LENGTHS][HT_ROPE_MOST_DIVISORS];
} ht_rope_spec;

/* Parses a scheme's name ("default", "none", "mrope" (whose three positions are equal in text), "linear", "llama3", "yarn",
 * "proportional", "longrope" or its older name "su"); false when unsupported. */
bool ht_rope_kind_from_name(const char *name, ht_rope_kind *out);

/* Range check: "" when valid, else the problem. */
const char *ht_rope_problem(const ht_rope_spec *r);

/* YaRN's factor for `mscale` at the spec's context extension: 0.1 mscale ln(factor) + 1. */
double ht_rope_yarn_mscale(const ht_rope_spec *r, double mscale);

/* Longrope's factor on cos and sin for a context extended by `factor`: sqrt(1 + ln(factor) / ln(original_context)). */
double ht_rope_long_magnitude(const ht_rope_spec *r, double factor);

/* Parameters of the rope operation for heads of `dims` rotated dimensions, in sequences of a length. True when the
 * scheme has divisors per frequency, written to factors[dims / 2]; otherwise `factors` is unchanged. */
bool ht_rope_prepare(const ht_rope_spec *r, ht_rope_length length, int32_t dims, ht_rope_config *how, float *factors);

/* Whether two settings rotate heads of `head_dim` values alike. */
bool ht_rope_is_same(const ht_rope_spec *a, const ht_rope_spec *b, int32_t head_dim);

/* GGUF's tensor of the divisors per frequency, and the value for the infinite divisor of a pair that is not rotated. */
#define HT_ROPE_FACTORS     "rope_freqs.weight"
#define HT_ROPE_NOT_ROTATED 1e30f
/* GGUF's tensors of longrope's divisors. */
extern const char *const ht_rope_length_factors[HT_ROPE_LENGTHS];

/* Derives RoPE settings from n divisors in HT_ROPE_FACTORS: plain, linear, llama3 or proportional; an error if none
 * match. *rope holds the other settings, including theta. */
ht_status ht_rope_from_factors(const float *values, int64_t n, ht_rope_spec *rope, ht_error *err);

/* Pairs of each axis of RoPE with three axes, one of them for time, when `dims` values are rotated. */
enum { HT_ROPE_AXES = 3 };
static inline void ht_rope_sections(int64_t dims, int64_t pairs[HT_ROPE_AXES]) {
    const int64_t n = dims / 2;
    pairs[0] = pairs[1] = (n + 2) / HT_ROPE_AXES;
    pairs[2] = n - 2 * pairs[0];
}

#endif
