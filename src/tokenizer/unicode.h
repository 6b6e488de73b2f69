/* Unicode as Hugging Face `tokenizers` sees it: character classes from a generated table (tools/unicode_tables.py), the
 * GPT-2 byte alphabet, normal forms by utf8proc. All text must be valid UTF-8. */
#ifndef HT_TOKENIZER_UNICODE_H
#define HT_TOKENIZER_UNICODE_H

#include "base/text.h"

#include <hearth/status.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Character class bits, in the order of the generator. */
enum {
    HT_CLASS_LETTER = 1,
    HT_CLASS_NUMBER = 2,
    HT_CLASS_MARK = 4,
    HT_CLASS_PUNCTUATION = 8,
    HT_CLASS_SYMBOL = 16,
    HT_CLASS_SPACE = 32,
    HT_CLASS_DIGIT = 64,      /* of the Digits pre-tokenizer: a newer Unicode version than HT_CLASS_NUMBER */
    HT_CLASS_PUNCT_STEP = 128 /* of the Punctuation pre-tokenizer: ASCII punctuation, and an older Unicode version */
};

typedef struct ht_unicode_range {
    uint32_t begin, end;
    uint8_t classes;
} ht_unicode_range;

/* unicode_table.c: lengths and classes of the runs of code points below HT_UNICODE_TABLE_END, and the ranges from there on. */
#define HT_UNICODE_TABLE_END 0x20000u
extern const uint16_t ht_unicode_runs[][2];
extern const ht_unicode_range ht_unicode_far[];
/* Marks newer than the Unicode version of the reference normalizers: utf8proc would reorder or compose them. */
extern const ht_unicode_range ht_unicode_newer_marks[];
/* Characters that a normalizer drops; `classes` are HT_DROP_* bits. */
extern const ht_unicode_range ht_unicode_drops[];
extern const size_t ht_unicode_n_runs, ht_unicode_n_far, ht_unicode_n_newer_marks, ht_unicode_n_drops;

enum {
    HT_DROP_CONTROL = 1, /* BertNormalizer's clean_text */
    HT_DROP_ACCENT = 2,  /* its strip_accents, after NFD */
    HT_DROP_MARK = 4     /* StripAccents */
};
uint8_t ht_unicode_dropped(uint32_t c);

/* Fills ht_unicode_classes, before the first ht_unicode_class. From any thread. */
void ht_unicode_prepare(void);
extern uint8_t ht_unicode_classes[HT_UNICODE_TABLE_END];

uint8_t ht_unicode_class_far(uint32_t c);

static inline uint8_t ht_unicode_class(uint32_t c) {
    return c < HT_UNICODE_TABLE_END ? ht_unicode_classes[c] : ht_unicode_class_far(c);
}

/* Decodes one code point; the text must be valid UTF-8. */
static inline uint32_t ht_utf8_next(const char *text, size_t *length) {
    const unsigned char *s = (const unsigned char *)text;
    if (s[0] < 0x80) {
        *length = 1;
        return s[0];
    }
    if (s[0] < 0xE0) {
        *length = 2;
        return (uint32_t)(s[0] & 0x1F) << 6 | (s[1] & 0x3F);
    }
    if (s[0] < 0xF0) {
        *length = 3;
        return (uint32_t)(s[0] & 0x0F) << 12 | (uint32_t)(s[1] & 0x3F) << 6 | (s[2] & 0x3F);
    }
    *length = 4;
    return (uint32_t)(s[0] & 0x07) << 18 | (uint32_t)(s[1] & 0x3F) << 12 | (uint32_t)(s[2] & 0x3F) << 6 | (s[3] & 0x3F);
}

/* Byte of a character of the GPT-2 byte alphabet, or -1. */
int ht_byte_of_char(uint32_t c);
/* Character of a byte in the GPT-2 byte alphabet: 0x21 to 0x143. */
uint32_t ht_char_of_byte(unsigned char byte);

typedef enum ht_normal_form { HT_NFC, HT_NFD, HT_NFKC, HT_NFKD, HT_NORMAL_FORMS } ht_normal_form;

/* A character that a normalizer writes. change > 0: in addition to the character before. Otherwise in place of the next
 * 1 - change characters of the text. Offsets of tokens follow from it. */
typedef struct ht_changed_char {
    uint32_t c;
    int32_t change;
} ht_changed_char;

typedef struct ht_changes {
    ht_changed_char *list;
    size_t n, capacity;
    bool failed; /* sticky: memory ran out */
} ht_changes;

void ht_changes_append(ht_changes *changes, uint32_t c, int32_t change);

/* Appends the normal form of n bytes to `out`. */
ht_status ht_unicode_normalize(ht_normal_form form, const char *text, size_t n, ht_text *out, ht_error *err);
/* Appends the same characters as changes of the text. */
ht_status ht_unicode_normalize_changes(ht_normal_form form, const char *text, size_t n, ht_changes *out, ht_error *err);
/* Appends the text in lower case, by full case mapping. */
void ht_unicode_lowercase(const char *text, size_t n, ht_text *out);
/* Appends the text with invalid sequences replaced by U+FFFD. */
void ht_unicode_repair(const char *text, size_t n, ht_text *out);

#endif
