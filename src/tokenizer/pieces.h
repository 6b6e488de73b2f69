/* Models that choose tokens by a trie of their texts: WordPiece (the longest first) and Unigram (the best sum of scores). Both
 * take a time linear in the text for a given longest token. */
#ifndef HT_TOKENIZER_PIECES_H
#define HT_TOKENIZER_PIECES_H

#include "tokenizer/vocab.h"

/* Longest token of these models, in bytes. It bounds the time that a character may cost. */
#define HT_MAX_PIECE 4096

/* Characters of the longest word that WordPiece tokenizes, where a file does not say. */
#define HT_WORDPIECE_CHARS 100

/* Nodes in breadth-first order: the children of a node are adjacent, in the order of their bytes. Node 0 is the root. */
typedef struct ht_piece_trie {
    uint32_t n;
    uint8_t *byte;   /* [n] */
    uint32_t *first; /* [n + 1] first child; the children of a node end where those of the next begin */
    int32_t *token;  /* [n] token that ends at the node, -1: none */
} ht_piece_trie;

typedef struct ht_pieces {
    ht_piece_trie trie;
    int32_t n;         /* ids that the model has: 0 .. n - 1 */
    size_t most_chars; /* WordPiece: longer words are unknown */
    char *prefix;      /* WordPiece: of tokens within a word */
    size_t n_prefix;
    uint32_t within;    /* WordPiece: the prefix's node, HT_NO_NODE without such tokens */
    double *score;      /* Unigram: [n], NaN for ids that the model lacks */
    double least_score; /* Unigram: of the model's tokens */
} ht_pieces;

#define HT_NO_NODE UINT32_MAX

/* Builds the trie of the tokens 0 .. p->n - 1 without those of score NaN, and sets the fields that follow from it. Equal
 * texts are found as the last of their ids. */
ht_status ht_pieces_build(ht_pieces *p, const ht_vocab *v, ht_error *err);
void ht_pieces_free(ht_pieces *p);

/* A token of a text: bytes [begin, end) of it. */
typedef struct ht_piece {
    size_t begin, end;
    int32_t id; /* -1: unknown */
} ht_piece;

/* Position of a Unigram text: the best path to it. */
typedef struct ht_piece_step {
    double score;
    uint32_t begin; /* of its last token; then, in reverse: the end of the token that begins here */
    int32_t id;     /* -1: unknown, -2: not reached */
} ht_piece_step;

/* Result and scratch of one encoding thread. */
typedef struct ht_piece_work {
    ht_piece *piece;
    size_t n, capacity;
    ht_piece_step *step;
    size_t step_capacity;
} ht_piece_work;

void ht_piece_work_free(ht_piece_work *w);

/* Tokenizes a word, or a piece. No token whose flags have one of the bits `hidden` is found. Unknown characters of a Unigram
 * text, and the token `unk`, are joined; a WordPiece word is unknown as a whole. */
ht_status ht_wordpiece(const ht_pieces *p, const uint8_t *flags, uint8_t hidden, const char *text, size_t n,
                       ht_piece_work *w, ht_error *err);
ht_status ht_unigram(const ht_pieces *p, const uint8_t *flags, uint8_t hidden, int32_t unk, const char *text, size_t n,
                     ht_piece_work *w, ht_error *err);

#endif
