/* Philox4x32-10 (Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as 1, 2, 3", SC 2011): a keyed bijection of
 * 128-bit counters. Without state: a position's draw depends on the seed and the position alone. */
#ifndef HT_GENERATE_PHILOX_H
#define HT_GENERATE_PHILOX_H

#include <stdint.h>

static inline void ht_philox4x32(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4]) {
    uint32_t a = counter[0], b = counter[1], c = counter[2], d = counter[3], k0 = key[0], k1 = key[1];
    for (int round = 0; round < 10; round++) {
        uint64_t x = UINT64_C(0xD2511F53) * a, y = UINT64_C(0xCD9E8D57) * c;
        a = (uint32_t)(y >> 32) ^ b ^ k0;
        b = (uint32_t)y;
        c = (uint32_t)(x >> 32) ^ d ^ k1;
        d = (uint32_t)x;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    out[0] = a, out[1] = b, out[2] = c, out[3] = d;
}

/* Uniform in [0, 1) with 53 bits, for a seed and an index. */
static inline double ht_philox_uniform(uint64_t seed, uint64_t index) {
    uint32_t out[4];
    ht_philox4x32((const uint32_t[4]){(uint32_t)index, (uint32_t)(index >> 32), 0, 0},
                  (const uint32_t[2]){(uint32_t)seed, (uint32_t)(seed >> 32)}, out);
    return (double)(((uint64_t)out[1] << 32 | out[0]) >> 11) * 0x1p-53;
}

#endif
