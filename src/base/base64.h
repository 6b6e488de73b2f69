/* Base64 (RFC 4648, section 4). */
#ifndef HT_BASE_BASE64_H
#define HT_BASE_BASE64_H

#include "base/text.h"

/* Appends n bytes as base64. In a sequence of calls, only the last n may not be a multiple of 3. */
void ht_base64_encode(const void *bytes, size_t n, ht_text *out);
/* Appends the bytes of n characters; false for a text that is not base64 with its padding. */
bool ht_base64_decode(const char *text, size_t n, ht_text *out);

#endif
