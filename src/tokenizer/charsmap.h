/* Precompiled character maps of SentencePiece: a double-array trie (darts-clone) from texts to replacements. */
#ifndef HT_TOKENIZER_CHARSMAP_H
#define HT_TOKENIZER_CHARSMAP_H

#include "tokenizer/unicode.h"

typedef struct ht_charsmap {
    char *bytes; /* as files store it: bytes of the trie (u32), its units (u32 each), replacements that end with NUL */
    size_t n;
    const unsigned char *units;
    size_t n_units;
    const char *texts; /* the replacements, valid UTF-8 */
    size_t n_texts;
} ht_charsmap;

/* Copies the bytes of a map; every walk within it stays inside the trie. */
ht_status ht_charsmap_read(const void *bytes, size_t n, ht_charsmap *out, ht_error *err);
void ht_charsmap_free(ht_charsmap *m);
/* Appends the characters of a text after the map, as the `tokenizers` library applies it: a grapheme of fewer than 6
 * bytes is replaced as a whole, by the text of its shortest prefix in the map; others character by character. */
void ht_charsmap_apply(const ht_charsmap *m, const char *text, size_t n, ht_changes *out);

#endif
