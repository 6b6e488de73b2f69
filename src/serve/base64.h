/* Base64 (RFC 4648, section 4) of less than 2 GB, in strings. */
#ifndef HT_SERVE_BASE64_H
#define HT_SERVE_BASE64_H

#include "base/text.h"

#include <openssl/evp.h>

/* Appends n bytes. In a sequence of calls, only the last n may not be a multiple of 3. */
static inline void serve_base64_append(ht_text *out, const void *bytes, size_t n) {
    if (!ht_text_reserve(out, (n + 2) / 3 * 4)) return;
    out->len += (size_t)EVP_EncodeBlock((unsigned char *)out->data + out->len, bytes, (int)n);
}

/* Appends the bytes that n characters encode; false for invalid base64. */
static inline bool serve_base64_decode(ht_text *out, const char *text, size_t n) {
    if (n < 4 || n > INT32_MAX || !ht_text_reserve(out, n)) return false;
    const int got = EVP_DecodeBlock((unsigned char *)out->data + out->len, (const unsigned char *)text, (int)n);
    if (got < 0) return false;
    out->len += (size_t)got - (text[n - 1] == '=') - (text[n - 2] == '=');
    out->data[out->len] = '\0';
    return true;
}

#endif
