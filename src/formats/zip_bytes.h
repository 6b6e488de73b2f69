/* ZIP record constants and little-endian numbers, shared by reader and writer. */
#ifndef HT_FORMATS_ZIP_BYTES_H
#define HT_FORMATS_ZIP_BYTES_H

#include <stdint.h>

enum {
    ZIP_LOCAL = 0x04034b50,
    ZIP_ENTRY = 0x02014b50,
    ZIP_END = 0x06054b50,
    ZIP_END64 = 0x06064b50,
    ZIP_LOCATOR64 = 0x07064b50
};
/* Fixed sizes, without name, extra field and comment. */
enum { ZIP_LOCAL_BYTES = 30, ZIP_ENTRY_BYTES = 46, ZIP_END_BYTES = 22, ZIP_END64_BYTES = 56, ZIP_LOCATOR64_BYTES = 20 };
enum { ZIP_STORED = 0, ZIP_DEFLATED = 8 };
enum { ZIP_VERSION = 20, ZIP_VERSION64 = 45, ZIP_EXTRA64 = 1 };
/* Marks a 16- or 32-bit field whose value is in a ZIP64 field. */
enum { ZIP_IN_ZIP64_16 = 0xffff };
#define ZIP_IN_ZIP64_32 UINT32_C(0xffffffff)

static inline uint64_t ht_zip_number(const unsigned char *p, int bytes) {
    uint64_t n = 0;
    while (bytes-- > 0) n = n << 8 | p[bytes];
    return n;
}

static inline unsigned char *ht_zip_put_number(unsigned char *p, uint64_t n, int bytes) {
    for (; bytes-- > 0; n >>= 8) *p++ = (unsigned char)n;
    return p;
}

#endif
