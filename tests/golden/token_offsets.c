/* Tokens of texts with the bytes that they come from, for check_tokenizer.py:
 *
 *     token_offsets MODEL < TEXTS
 *
 * reads texts that end with NUL, and writes a line "ID:BEGIN-END ..." for each. */
#include "base/file.h"
#include "support/test.h"
#include "tokenizer/tokenizer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static ht_text read_all(FILE *f) {
    ht_text all = {0};
    char part[65536];
    for (size_t n; (n = fread(part, 1, sizeof part, f)) > 0;) ht_text_append(&all, part, n);
    return all;
}

int main(int argc, char **argv) {
    ht_tokenizer *t;
    ht_error err = {0};
    if (argc != 2 || ht_tokenizer_load(argv[1], &t, &err)) {
        fprintf(stderr, "%s\n", argc == 2 ? err.message : "usage: token_offsets MODEL < TEXTS");
        return 2;
    }
    const ht_pair_options options = {.flags = HT_ENCODE_PARSE_SPECIAL, .offsets = true};
    ht_text all = read_all(stdin);
    for (size_t at = 0, n; at < all.len; at += n + 1) {
        n = strlen(all.data + at);
        ht_encoding e;
        if (ht_tokenizer_encode_pair(t, all.data + at, n, NULL, 0, &options, &e, &err)) {
            fprintf(stderr, "%s\n", err.message);
            return 1;
        }
        for (size_t i = 0; i < e.n; i++)
            printf("%s%d:%u-%u", i ? " " : "", (int)e.ids[i], (unsigned)e.offsets[i].begin, (unsigned)e.offsets[i].end);
        puts("");
        ht_encoding_free(&e);
    }
    ht_text_discard(&all);
    ht_tokenizer_free(t);
    return 0;
}
