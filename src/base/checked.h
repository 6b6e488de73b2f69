/* Checked arithmetic for sizes that come from a file or a caller. Functions return false on overflow, with *out
 * unspecified. */
#ifndef HT_BASE_CHECKED_H
#define HT_BASE_CHECKED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

static inline bool ht_add_size(size_t a, size_t b, size_t *out) { return !__builtin_add_overflow(a, b, out); }
static inline bool ht_mul_size(size_t a, size_t b, size_t *out) { return !__builtin_mul_overflow(a, b, out); }
static inline bool ht_add_i64(int64_t a, int64_t b, int64_t *out) { return !__builtin_add_overflow(a, b, out); }
static inline bool ht_mul_i64(int64_t a, int64_t b, int64_t *out) { return !__builtin_mul_overflow(a, b, out); }

/* Rounds up to a multiple of `align`, a power of two. */
static inline bool ht_align_size(size_t n, size_t align, size_t *out) {
    size_t sum;
    if (!ht_add_size(n, align - 1, &sum)) return false;
    *out = sum & ~(align - 1);
    return true;
}

static inline size_t ht_min_size(size_t a, size_t b) { return a < b ? a : b; }
static inline size_t ht_max_size(size_t a, size_t b) { return a > b ? a : b; }
static inline int64_t ht_min_i64(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t ht_max_i64(int64_t a, int64_t b) { return a > b ? a : b; }
static inline int32_t ht_min_i32(int32_t a, int32_t b) { return a < b ? a : b; }
static inline int32_t ht_max_i32(int32_t a, int32_t b) { return a > b ? a : b; }
static inline double ht_max_double(double a, double b) { return a > b ? a : b; }
/* ceil(a / b) for a >= 0 and b > 0. */
static inline int64_t ht_ceil_div_i64(int64_t a, int64_t b) { return a / b + (a % b != 0); }

#endif
