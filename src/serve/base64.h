/* Base64 (RFC 4648, section 4). */
#ifndef HT_SERVE_BASE64_H
#define HT_SERVE_BASE64_H

#include "base/text.h"

/* Appends n bytes; but for the last of several calls, n is a multiple of 3. */
void serve_base64_append(ht_text *out, const void *bytes, size_t n);
/* Appends the bytes that n characters stand for; false, with some of them appended, for what is no base64. */
bool serve_base64_decode(ht_text *out, const char *text, size_t n);

#endif
