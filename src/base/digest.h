/* Digest of words and bytes: two different sums, against accidents and not against an adversary. Depends on neither the byte
 * order nor the machine's word size. */
#ifndef HT_BASE_DIGEST_H
#define HT_BASE_DIGEST_H

#include "base/checked.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

typedef struct ht_digest {
    uint64_t a, b; /* start with two different numbers of the caller's choice */
} ht_digest;

static inline void ht_digest_word(ht_digest *d, uint64_t word) {
    d->a = (d->a ^ word) * 0x9e3779b97f4a7c15u;
    d->a ^= d->a >> 32;
    d->b = (d->b + word) * 0xd6e8feb86659fd93u;
    d->b ^= d->b >> 29;
}

static inline void ht_digest_bytes(ht_digest *d, const void *bytes, size_t n) {
    const unsigned char *at = bytes;
    ht_digest_word(d, n);
    while (n) {
        size_t some = ht_min_size(n, sizeof(uint64_t));
        uint64_t word = 0;
        for (size_t i = 0; i < some; i++) word |= (uint64_t)at[i] << 8 * i;
        ht_digest_word(d, word);
        at += some;
        n -= some;
    }
}

static inline bool ht_digest_same(ht_digest a, ht_digest b) { return a.a == b.a && a.b == b.b; }

static inline void ht_digest_text(ht_digest *d, const char *text) { ht_digest_bytes(d, text, strlen(text)); }

#endif
