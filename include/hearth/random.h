/* Random numbers as pure functions of a key, without any state: a program that needs more numbers splits its key. A key
 * is u32 [2].
 *
 * Bits come from Threefry-2x32 with 20 rounds (Salmon et al., SC 2011). Integers, uniform numbers and permutations
 * derive from the bits alone and are the same on every machine. Normal, Laplace and Gumbel numbers, and categorical
 * samples, use the C library's `logf` and `log1pf`, as MLX does on a CPU: results are bit-identical to MLX on the same
 * machine and with any glibc since 2.28; another C library may change some in the last place. Only ht_random_randint
 * differs from MLX, for large ranges.
 *
 * Bounds, probabilities and other distribution parameters are arrays that broadcast to the shape of the result. */
#ifndef HEARTH_RANDOM_H
#define HEARTH_RANDOM_H

#include <hearth/array.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Key of a seed: its upper and its lower 32 bits. */
HT_API ht_array *ht_random_key(ht_scope *s, uint64_t seed);
/* n independent keys, u32 [n, 2]. `key` must not be used again, or its numbers would be correlated with theirs. */
HT_API ht_array *ht_random_split(ht_scope *s, ht_array *key, int64_t n);
/* Uniform random bits, as u8, u16 or u32 for a `width` of 1, 2 or 4 bytes. */
HT_API ht_array *ht_random_bits(ht_scope *s, int width, const int64_t *shape, int n_dims, ht_array *key);

/* ---- real numbers: dtype f16, bf16 or f32 ---- */

/* Uniform distribution on [low, high); HT_NONE is 0 for `low` and 1 for `high`. */
HT_API ht_array *ht_random_uniform(ht_scope *s, ht_array *low, ht_array *high, ht_dtype dtype, const int64_t *shape,
                                   int n_dims, ht_array *key);
/* Normal distribution of mean `loc` and standard deviation `scale`; HT_NONE is 0 for `loc` and 1 for `scale`. */
HT_API ht_array *ht_random_normal(ht_scope *s, ht_array *loc, ht_array *scale, ht_dtype dtype, const int64_t *shape,
                                  int n_dims, ht_array *key);
/* Standard normal distribution truncated to [lower, upper]. */
HT_API ht_array *ht_random_truncated_normal(ht_scope *s, ht_array *lower, ht_array *upper, ht_dtype dtype,
                                            const int64_t *shape, int n_dims, ht_array *key);
/* Laplace distribution: loc + scale * sign(u) * log1p(-|u|) with u uniform on (-1, 1). HT_NONE is 0 for `loc` and 1 for
 * `scale`. */
HT_API ht_array *ht_random_laplace(ht_scope *s, ht_array *loc, ht_array *scale, ht_dtype dtype, const int64_t *shape,
                                   int n_dims, ht_array *key);
/* Gumbel distribution: -log(-log(u)) with u uniform on [0, 1). */
HT_API ht_array *ht_random_gumbel(ht_scope *s, ht_dtype dtype, const int64_t *shape, int n_dims, ht_array *key);

/* ---- integers, choices, permutations ---- */

/* Uniform integers low <= x < high; the bounds may have a fraction. Integers that the dtype cannot represent wrap
 * around.
 *
 * The numbers equal MLX's when |low| and |high| are at most 2^17 and at most 128 * (high - low). Beyond that MLX's
 * f32 arithmetic makes some integers too frequent and others impossible; Hearth stays uniform. */
HT_API ht_array *ht_random_randint(ht_scope *s, ht_array *low, ht_array *high, ht_dtype dtype, const int64_t *shape,
                                   int n_dims, ht_array *key);
/* Bernoulli distribution, bool: true with probability p. */
HT_API ht_array *ht_random_bernoulli(ht_scope *s, ht_array *p, const int64_t *shape, int n_dims, ht_array *key);
/* Categorical distribution, u32: indices along an axis of `logits`, drawn with the probabilities softmax(logits). The
 * shape of the logits without that axis must broadcast to `shape`, the shape of the result. */
HT_API ht_array *ht_random_categorical(ht_scope *s, ht_array *logits, int axis, const int64_t *shape, int n_dims,
                                       ht_array *key);
/* x with its slices along an axis in random order. For a permutation of 0 .. n - 1, pass ht_arange. */
HT_API ht_array *ht_random_permutation(ht_scope *s, ht_array *x, int axis, ht_array *key);

#ifdef __cplusplus
}
#endif
#endif
