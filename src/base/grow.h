/* Growable arrays: a pointer with its number of elements, and its capacity where elements are also removed. Functions return
 * false, with nothing changed, when memory ran out or the size overflows. Everything is inline for the command. */
#ifndef HT_BASE_GROW_H
#define HT_BASE_GROW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

/* Capacity for `n` elements in an array with capacity *capacity (a size_t), which at least doubles when it is exceeded. */
#define HT_GROW(array, capacity, n) ht_grow(&(array), &(capacity), (size_t)(n), sizeof *(array))
/* Capacity for one more element after `n`, without a capacity field: 16 at first, doubled at each power of two. The
 * array must start as NULL and grow only by this macro. */
#define HT_GROW_ONE(array, n) ht_grow_one(&(array), (size_t)(n), sizeof *(array))

/* Exactly `n` elements, at least one. */
#define HT_RESIZE(array, n) ht_resize(&(array), (size_t)(n), sizeof *(array))

/* `array` is the address of the pointer. */
static inline bool ht_resize(void *array, size_t n, size_t size) {
    void *elements;
    size_t bytes;
    if (__builtin_mul_overflow(n, size, &bytes)) return false;
    memcpy(&elements, array, sizeof elements);
    elements = realloc(elements, bytes ? bytes : 1);
    if (elements) memcpy(array, &elements, sizeof elements);
    return elements != NULL;
}

static inline bool ht_grow(void *array, size_t *capacity, size_t n, size_t size) {
    const size_t first = size == 1 ? 64 : 16;
    size_t larger;
    if (n <= *capacity) return true;
    if (__builtin_mul_overflow(*capacity, (size_t)2, &larger)) return false;
    if (larger < first) larger = first;
    if (larger < n) larger = n;
    if (!ht_resize(array, larger, size)) return false;
    *capacity = larger;
    return true;
}

static inline bool ht_grow_one(void *array, size_t n, size_t size) {
    size_t capacity = n;
    const bool is_full = n == 0 || (n >= 16 && (n & (n - 1)) == 0);
    return !is_full || ht_grow(array, &capacity, n + 1, size);
}

#endif
