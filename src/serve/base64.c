#include "serve/base64.h"

static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

void serve_base64_append(ht_text *out, const void *bytes, size_t n) {
    const unsigned char *b = bytes;
    for (size_t i = 0; i < n; i += 3) {
        const size_t left = n - i;
        const uint32_t three =
            (uint32_t)b[i] << 16 | (uint32_t)(left > 1 ? b[i + 1] : 0) << 8 | (left > 2 ? b[i + 2] : 0);
        const char four[4] = {letters[three >> 18], letters[three >> 12 & 63],
                              left > 1 ? letters[three >> 6 & 63] : '=', left > 2 ? letters[three & 63] : '='};
        ht_text_append(out, four, sizeof four);
    }
}

bool serve_base64_decode(ht_text *out, const char *text, size_t n) {
    if (n % 4) return false;
    for (size_t i = 0; i < n; i += 4) {
        const bool last = i + 4 == n;
        const int padding = !last || text[i + 3] != '=' ? 0 : text[i + 2] != '=' ? 1 : 2;
        uint32_t three = 0;
        for (int j = 0; j < 4 - padding; j++) {
            const char *at = text[i + (size_t)j] ? strchr(letters, text[i + (size_t)j]) : NULL;
            if (!at) return false;
            three |= (uint32_t)(at - letters) << (18 - 6 * j);
        }
        const char bytes[3] = {(char)(three >> 16), (char)(three >> 8), (char)three};
        ht_text_append(out, bytes, (size_t)(3 - padding));
    }
    return true;
}
