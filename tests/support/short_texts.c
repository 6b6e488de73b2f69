#include "support/short_texts.h"

size_t short_text(int number, char out[SHORT_TEXT_LONGEST + 1]) {
    size_t n = 0;
    int first = 0;
    while (number - first >= 1 << n) first += 1 << n++;
    for (size_t i = 0; i < n; i++) out[i] = (number - first) >> (n - 1 - i) & 1 ? 'b' : 'a';
    out[n] = '\0';
    return n;
}

int short_text_number(const char *text, size_t n) {
    int number = (1 << n) - 1;
    for (size_t i = 0; i < n; i++) number += (text[i] == 'b') << (n - 1 - i);
    return number;
}

uint64_t short_texts_joined(uint64_t a, uint64_t b) {
    uint64_t all = 0;
    char text[SHORT_TEXT_LONGEST + 1];
    for (int i = 0; i < SHORT_TEXTS; i++) {
        const size_t n = short_text(i, text);
        for (size_t cut = 0; cut <= n; cut++)
            if (a >> short_text_number(text, cut) & 1 && b >> short_text_number(text + cut, n - cut) & 1)
                all |= (uint64_t)1 << i;
    }
    return all;
}

uint64_t short_texts_repeated(uint64_t a, uint32_t min, uint32_t max) {
    uint64_t power = 1, all = min == 0;
    /* The empty text may be among those of a: then each more repetition has all that fewer have. */
    for (uint32_t k = 1; k <= max && k <= min + SHORT_TEXT_LONGEST + 1; k++) {
        power = short_texts_joined(power, a);
        if (k >= min) all |= power;
    }
    return all;
}
