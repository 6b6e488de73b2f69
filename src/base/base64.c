#include "base/base64.h"

static const char alphabet[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

void ht_base64_encode(const void *bytes, size_t n, ht_text *out) {
    const unsigned char *p = bytes;
    if (!ht_text_reserve(out, (n + 2) / 3 * 4)) return;
    for (size_t i = 0; i < n; i += 3) {
        const size_t left = n - i;
        const uint32_t group =
            (uint32_t)p[i] << 16 | (left > 1 ? (uint32_t)p[i + 1] << 8 : 0) | (left > 2 ? p[i + 2] : 0);
        const char four[] = {alphabet[group >> 18], alphabet[group >> 12 & 63],
                             left > 1 ? alphabet[group >> 6 & 63] : '=', left > 2 ? alphabet[group & 63] : '='};
        ht_text_append(out, four, 4);
    }
}

static int digit_of(char c) {
    if (c >= 'A' && c <= 'Z') return c - 'A';
    if (c >= 'a' && c <= 'z') return c - 'a' + 26;
    if (c >= '0' && c <= '9') return c - '0' + 52;
    return c == '+' ? 62 : c == '/' ? 63 : -1;
}

bool ht_base64_decode(const char *text, size_t n, ht_text *out) {
    if (n % 4 || !ht_text_reserve(out, n / 4 * 3 + 1)) return false;
    for (size_t i = 0; i < n; i += 4) {
        const bool is_last = i + 4 == n;
        const size_t pad = is_last && text[i + 3] == '=' ? 1 + (text[i + 2] == '=') : 0;
        uint32_t group = 0;
        for (size_t k = 0; k < 4; k++) {
            const int digit = k + pad < 4 ? digit_of(text[i + k]) : 0;
            if (digit < 0) return false;
            group = group << 6 | (uint32_t)digit;
        }
        const char three[] = {(char)(group >> 16), (char)(group >> 8), (char)group};
        ht_text_append(out, three, 3 - pad);
    }
    return true;
}
