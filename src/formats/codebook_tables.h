/* Codebooks of the IQ types: an index stands for 8 or 4 neighbouring weights. An entry has 16 bits: element i is in
 * bits 2 i, 2 i + 1 (of 8 elements) or 4 i to 4 i + 3 (of 4), a code for its value:
 *
 *   iq2_xxs iq2_xs iq2_s   0, 1, 2   magnitudes 8, 25, 43
 *   iq3_xxs                0 to 7    magnitudes 4, 12, 20, 28, 36, 44, 52, 62
 *   iq3_s                  0 to 7    magnitudes 1, 3, 5 ... 15
 *   iq1                    0, 1, 2   values -1, 0, 1 */
#ifndef HT_FORMATS_CODEBOOK_TABLES_H
#define HT_FORMATS_CODEBOOK_TABLES_H

#include <stdint.h>

#ifndef __CUDACC__ /* which includes the definitions; its code for the host may not declare them, too */
extern const uint16_t ht_grid_iq2_xxs[256], ht_grid_iq2_xs[512], ht_grid_iq2_s[1024];
extern const uint16_t ht_grid_iq3_xxs[256], ht_grid_iq3_s[512];
extern const uint16_t ht_grid_iq1[2048];
#endif

/* Codes of an entry, one per byte, element 0 lowest. */
static inline uint64_t ht_grid_pairs(uint16_t entry) {
    uint64_t x = entry;
    x = (x | x << 24) & 0x000000FF000000FFu;
    x = (x | x << 12) & 0x000F000F000F000Fu;
    return (x | x << 6) & 0x0303030303030303u;
}
static inline uint32_t ht_grid_nibbles(uint16_t entry) {
    uint32_t x = entry;
    x = (x | x << 8) & 0x00FF00FFu;
    return (x | x << 4) & 0x0F0F0F0Fu;
}

#define HT_EACH_BYTE 0x0101010101010101u

/* Magnitudes of an entry, one per byte; no byte sum exceeds 255, so nothing carries. */
static inline uint64_t ht_grid_iq2_values(uint16_t entry) {
    uint64_t x = ht_grid_pairs(entry);
    return x * 17 + (x >> 1 & HT_EACH_BYTE) + 8 * HT_EACH_BYTE;
}
/* Magnitudes 4 + 8 * code, but 62 for code 7. */
static inline uint32_t ht_grid_iq3_xxs_values(uint16_t entry) {
    uint32_t x = ht_grid_nibbles(entry);
    uint32_t seven = x & x >> 1 & x >> 2 & 0x01010101u;
    return x * 8 + 2 * seven + 0x04040404u;
}
static inline uint32_t ht_grid_iq3_s_values(uint16_t entry) { return ht_grid_nibbles(entry) * 2 + 0x01010101u; }

/* Eight sign bits of seven: the number of minus signs is even. */
static inline uint8_t ht_signs_of(uint32_t seven) {
    uint32_t odd = seven ^ seven >> 4;
    odd ^= odd >> 2;
    odd ^= odd >> 1;
    return (uint8_t)(seven | (odd & 1) << 7);
}

#endif
