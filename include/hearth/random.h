/* Random numbers that follow from a key: the numbers MLX gives for the same key, but for integers that it does not draw evenly
 * (ht_random_randint). Nothing has a state; who needs more numbers splits the key. Bits come from Threefry-2x32 with 20 rounds,
 * and with them integers, uniform numbers and permutations, which are the same everywhere. Normal, Laplace and Gumbel numbers
 * and choices of many are made with the C library's `logf` and `log1pf`, as MLX makes them on a CPU: to the bit those of MLX on
 * the same machine, and the same wherever these functions are (glibc's since 2.28 are). Another C library may round a few of
 * them differently, in the last place.
 *
 * A key is u32 [2]. Bounds and probabilities are arrays that broadcast to the shape of the result. */
#ifndef HEARTH_RANDOM_H
#define HEARTH_RANDOM_H

#include <hearth/array.h>

#ifdef __cplusplus
extern "C" {
#endif

/* u32 [2]: the upper and the lower half of the seed. */
HT_API ht_array *ht_random_key(ht_scope *s, uint64_t seed);
/* n keys from one, u32 [n, 2]: the one must not be used for anything else. */
HT_API ht_array *ht_random_split(ht_scope *s, ht_array *key, int64_t n);
/* u8, u16 or u32, by `width` in bytes. */
HT_API ht_array *ht_random_bits(ht_scope *s, int width, const int64_t *shape, int n_dims, ht_array *key);

/* All of these are f16, bf16 or f32. */
/* low <= x < high; HT_NONE stands for 0 and for 1. */
HT_API ht_array *ht_random_uniform(ht_scope *s, ht_array *low, ht_array *high, ht_dtype dtype, const int64_t *shape,
                                   int n_dims, ht_array *key);
/* With a mean of loc and a standard deviation of scale; HT_NONE stands for 0 and for 1, here and in laplace. */
HT_API ht_array *ht_random_normal(ht_scope *s, ht_array *loc, ht_array *scale, ht_dtype dtype, const int64_t *shape,
                                  int n_dims, ht_array *key);
/* A standard normal distribution between bounds. */
HT_API ht_array *ht_random_truncated_normal(ht_scope *s, ht_array *lower, ht_array *upper, ht_dtype dtype,
                                            const int64_t *shape, int n_dims, ht_array *key);
/* loc + scale * sign(u) * log1p(-|u|) of a u between -1 and 1. */
HT_API ht_array *ht_random_laplace(ht_scope *s, ht_array *loc, ht_array *scale, ht_dtype dtype, const int64_t *shape,
                                   int n_dims, ht_array *key);
/* -log(-log(u)) of a u between 0 and 1. */
HT_API ht_array *ht_random_gumbel(ht_scope *s, ht_dtype dtype, const int64_t *shape, int n_dims, ht_array *key);

/* Integers of [low, high), each as likely as any other, whatever their size; of bounds with a fraction, those between them.
 * Where both bounds are within 2^17 of 0, and within 128 times high - low, they are the numbers of MLX, which draws elsewhere
 * some integers too often and others never, as f32 holds no more of them. Those that the dtype does not hold wrap. */
HT_API ht_array *ht_random_randint(ht_scope *s, ht_array *low, ht_array *high, ht_dtype dtype, const int64_t *shape,
                                   int n_dims, ht_array *key);
/* bool: true with probability p. */
HT_API ht_array *ht_random_bernoulli(ht_scope *s, ht_array *p, const int64_t *shape, int n_dims, ht_array *key);
/* u32: places along an axis of the logits, each with the probability that softmax gives it. The shape [...] of the result
 * has to be one to which the logits, without that axis, broadcast. */
HT_API ht_array *ht_random_categorical(ht_scope *s, ht_array *logits, int axis, const int64_t *shape, int n_dims,
                                       ht_array *key);
/* x with the slices along an axis in another order. For numbers 0 to n - 1, x is their ht_arange. */
HT_API ht_array *ht_random_permutation(ht_scope *s, ht_array *x, int axis, ht_array *key);

#ifdef __cplusplus
}
#endif
#endif
