/* Non-temporal (streaming) stores for results larger than the cache. An ordinary store first reads the line it
 * overwrites (write allocate), so a copy moves three bytes per byte instead of two. */
#ifndef HT_CPU_STREAMING_STORE_H
#define HT_CPU_STREAMING_STORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

/* Least result size for streaming stores. A smaller result is likely to be read again while it is cached. */
#define HT_STREAMING_BYTES ((size_t)8 << 20)

/* Prefetches the cache line at an address, which need not be mapped. The empty asm is a workaround: gcc 12 takes a
 * function that only prefetches for one without effect and drops its calls. */
static inline void ht_prefetch(uintptr_t address) {
    __builtin_prefetch((const void *)address, 0, 3);
    __asm__ volatile("");
}

/* An operand to prefetch during streaming stores, `per_line` bytes for every 64 bytes stored. Otherwise later loads
 * wait until the stores drain. */
typedef struct ht_prefetch_stream {
    const char *data;
    size_t per_line;
} ht_prefetch_stream;

/* Prefetches each stream's share for the 64-byte line number `line` of a store. */
static inline void ht_prefetch_ahead(const ht_prefetch_stream *ahead, int n_ahead, size_t line) {
    for (int k = 0; k < n_ahead; k++)
        for (size_t b = 0; b < ahead[k].per_line; b += 64)
            ht_prefetch((uintptr_t)ahead[k].data + line * ahead[k].per_line + b);
}

/* Copies n bytes by streaming stores. ht_stream_fence must follow on the same thread before another thread reads
 * them. */
static inline void ht_stream_store(void *to, const void *from, size_t n, const ht_prefetch_stream *ahead, int n_ahead) {
#if defined(__SSE2__)
    char *y = to;
    const char *x = from;
    size_t head = (size_t)(-(uintptr_t)y & 63);
    if (head > n) head = n;
    memcpy(y, x, head);
    size_t i = head;
    for (; i + 64 <= n; i += 64) {
        ht_prefetch_ahead(ahead, n_ahead, (i - head) / 64);
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

/* Orders earlier streaming stores of this thread before its later stores. */
static inline void ht_stream_fence(void) {
#if defined(__SSE2__)
    _mm_sfence();
#endif
}

/* Whether a result of this size is worth streaming; false on processors without streaming stores. */
static inline bool ht_use_streaming(size_t bytes) {
#if defined(__SSE2__)
    return bytes >= HT_STREAMING_BYTES;
#else
    (void)bytes;
    return false;
#endif
}

#endif
