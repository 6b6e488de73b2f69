/* Languages as sets of short texts: all texts over {a, b} of at most five bytes by number, a bit for each in a word, so that what
 * expressions and grammars mean can be computed by trying everything. */
#ifndef TESTS_SUPPORT_SHORT_TEXTS_H
#define TESTS_SUPPORT_SHORT_TEXTS_H

#include <stddef.h>
#include <stdint.h>

enum { SHORT_TEXT_LONGEST = 5, SHORT_TEXTS = 63 };

/* The bytes of a text, with a NUL; returns their number. */
size_t short_text(int number, char out[SHORT_TEXT_LONGEST + 1]);
/* The number of n bytes. */
int short_text_number(const char *text, size_t n);
/* Texts of `a` with texts of `b` behind them. */
uint64_t short_texts_joined(uint64_t a, uint64_t b);
/* min to max texts of `a`, one behind the other. */
uint64_t short_texts_repeated(uint64_t a, uint32_t min, uint32_t max);

#endif
