/* GGUF value types and little-endian loads, shared by gguf.c and gguf_value.c. */
#ifndef HT_FORMATS_GGUF_BYTES_H
#define HT_FORMATS_GGUF_BYTES_H

#include "formats/gguf.h"

static inline uint32_t ht_le32(const unsigned char *p) {
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}
static inline uint64_t ht_le64(const unsigned char *p) { return ht_le32(p) | (uint64_t)ht_le32(p + 4) << 32; }

/* Bytes of one value; 0 for strings and arrays. */
size_t ht_gguf_type_bytes(ht_gguf_type type);

#endif
