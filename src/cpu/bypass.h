/* Non-temporal stores, for results that are larger than a cache will keep of them. An ordinary store first reads the
 * line that it is going to overwrite, so that a copy moves three bytes per byte and not two. */
#ifndef HT_CPU_BYPASS_H
#define HT_CPU_BYPASS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

/* From this size on results go round the caches. Smaller ones are likely to be read again while a cache has them: in a chain of passes that read what they have just written, both ways
 * are equal at 4 MB and this one 1.2 times as fast at 8, on a core with 2 MB of its own in front of a large shared cache. */
#define HT_BYPASS_BYTES ((size_t)8 << 20)

/* Asks for the cache line at an address, which need not be memory. gcc 12 takes a function that does nothing else for one
 * without effect and drops its calls, but for the second line. */
static inline void ht_ask(uintptr_t address) {
    __builtin_prefetch((const void *)address, 0, 3);
    __asm__ volatile("");
}

/* An operand that will be read next: `per_line` bytes of it are asked for with every 64 bytes that are written. A core that
 * only writes for a while would otherwise begin to wait for its operands behind that. */
typedef struct ht_ahead {
    const char *data;
    size_t per_line;
} ht_ahead;

static inline void ht_ask_ahead(const ht_ahead *ahead, int n_ahead, size_t line) {
    for (int k = 0; k < n_ahead; k++)
        for (size_t b = 0; b < ahead[k].per_line; b += 64)
            ht_ask((uintptr_t)ahead[k].data + line * ahead[k].per_line + b);
}

/* Copies n bytes round the caches; ht_bypass_end has to follow, on the same thread, before others read them. */
static inline void ht_bypass(void *to, const void *from, size_t n, const ht_ahead *ahead, int n_ahead) {
#if defined(__SSE2__)
    char *y = to;
    const char *x = from;
    size_t head = (size_t)(-(uintptr_t)y & 63);
    if (head > n) head = n;
    memcpy(y, x, head);
    size_t i = head;
    for (; i + 64 <= n; i += 64) {
        ht_ask_ahead(ahead, n_ahead, (i - head) / 64);
        const __m128i *in = (const __m128i *)(const void *)(x + i);
        __m128i *out = (__m128i *)(void *)(y + i);
        const __m128i a = _mm_loadu_si128(in), b = _mm_loadu_si128(in + 1), c = _mm_loadu_si128(in + 2);
        const __m128i d = _mm_loadu_si128(in + 3);
        _mm_stream_si128(out, a);
        _mm_stream_si128(out + 1, b);
        _mm_stream_si128(out + 2, c);
        _mm_stream_si128(out + 3, d);
    }
    memcpy(y + i, x + i, n - i);
#else
    (void)ahead, (void)n_ahead;
    memcpy(to, from, n);
#endif
}

static inline void ht_bypass_end(void) {
#if defined(__SSE2__)
    _mm_sfence();
#endif
}

/* Whether there are such stores: elsewhere a detour through a buffer would be for nothing. */
static inline bool ht_bypasses(size_t bytes) {
#if defined(__SSE2__)
    return bytes >= HT_BYPASS_BYTES;
#else
    (void)bytes;
    return false;
#endif
}

#endif
