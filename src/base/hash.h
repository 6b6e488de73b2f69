/* Hashes of bytes, words and numbers for tables in memory: fast, well mixed in all 64 bits, without defence against crafted
 * keys (base/table.h has that). Not for files: the values may change and depend on the byte order. */
#ifndef HT_BASE_HASH_H
#define HT_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

static inline uint64_t ht_hash_mix(uint64_t a, uint64_t b) {
    __extension__ typedef unsigned __int128 wide;
    const wide product = (wide)a * b;
    return (uint64_t)product ^ (uint64_t)(product >> 64);
}

static inline uint64_t ht_hash_number(uint64_t x) { return ht_hash_mix(x ^ 0x9E3779B97F4A7C15u, 0xD6E8FEB86659FD93u); }

static inline uint64_t ht_hash_bytes(const void *bytes, size_t n) {
    const char *at = bytes;
    uint64_t hash = 0x9E3779B97F4A7C15u ^ n, word;
    for (; n > 8; at += 8, n -= 8) {
        memcpy(&word, at, 8);
        hash = ht_hash_mix(hash ^ word, 0xD6E8FEB86659FD93u);
    }
    word = 0;
    if (n) memcpy(&word, at, n);
    return ht_hash_mix(hash ^ word, 0xA0761D6478BD642Fu);
}

#endif
