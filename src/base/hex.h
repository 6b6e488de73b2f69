/* Hexadecimal digits. */
#ifndef HT_BASE_HEX_H
#define HT_BASE_HEX_H

/* The value of a digit; -1 for another character. */
static inline int ht_hex_digit(char c) {
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

#endif
