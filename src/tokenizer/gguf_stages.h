/* Names and numbers of GGUF metadata for tokenizers: pre-tokenizers and kinds of tokens. Shared by reading and
 * writing. */
#ifndef HT_TOKENIZER_GGUF_STAGES_H
#define HT_TOKENIZER_GGUF_STAGES_H

#include "tokenizer/tokenizer.h"

/* Values of tokenizer.ggml.token_type (gguf.constants.TokenType). */
enum {
    HT_GGUF_TOKEN_NORMAL = 1,
    HT_GGUF_TOKEN_UNKNOWN = 2,
    HT_GGUF_TOKEN_CONTROL = 3,
    HT_GGUF_TOKEN_USER_DEFINED = 4,
    HT_GGUF_TOKEN_UNUSED = 5,
    HT_GGUF_TOKEN_BYTE = 6
};

/* Ids of added tokens that take the spaces before or after them, in order. Absent: none, or those of the architecture. */
#define HT_GGUF_LSTRIP "hearth.tokenizer.lstrip"
#define HT_GGUF_RSTRIP "hearth.tokenizer.rstrip"

enum { HT_GGUF_STAGES = 8 };

/* A pre-tokenizer of byte-level BPE, and what else its name implies. */
typedef struct ht_gguf_stages {
    const char *names;                 /* values of tokenizer.ggml.pre, separated and surrounded by spaces */
    const char *steps[HT_GGUF_STAGES]; /* patterns and codes of steps (gguf_stages.c), then NULL */
    bool nfc;                          /* the text is normalised to NFC before */
    bool ignore_merges;
    bool add_bos; /* default of tokenizer.ggml.add_bos_token */
} ht_gguf_stages;

/* Row i; NULL past the last one. The first row with the same stages has the most common name. */
const ht_gguf_stages *ht_gguf_stages_at(size_t i);
const ht_gguf_stages *ht_gguf_stages_named(ht_bytes name); /* NULL when unknown */
/* Adds the normalizer and the pre-tokenizer to a tokenizer, and sets what the name implies except add_bos. */
ht_status ht_gguf_stages_add(const ht_gguf_stages *row, ht_tokenizer *t, ht_error *err);

/* ---- WordPiece and Unigram ---- */

/* The stages of such a tokenizer as JSON, without post_processor's ids in other keys and without the character map. Absent: those
 * that the keys below stand for. */
#define HT_GGUF_STAGES_KEY "hearth.tokenizer.stages"
/* Scores in f64, where those in f32 differ. */
#define HT_GGUF_SCORES   "hearth.tokenizer.scores"
#define HT_GGUF_CHARSMAP "tokenizer.ggml.precompiled_charsmap"

/* Settings that GGUF's keys give for the stages of WordPiece (tokenizer.ggml.model bert) or Unigram (t5). */
typedef struct ht_gguf_keys {
    bool is_bert;
    bool lowercase, strip_accents; /* bert: normalizer.* */
    bool adds_prefix, collapses;   /* t5: add_space_prefix, remove_extra_whitespaces */
    ht_bytes charsmap;             /* t5, or none */
    int32_t begin, end;            /* tokens around a text, -1: none */
} ht_gguf_keys;

/* Adds the stages. The vocabulary must have the tokens. */
ht_status ht_gguf_keys_add(const ht_gguf_keys *k, ht_tokenizer *t, ht_error *err);

/* Whether a token is a converter's filler [PAD<id>] for an id without a token, sometimes marked as user-defined; text must
 * never match it. */
bool ht_gguf_is_filler(const char *text, int32_t id);
/* The same with any number: converters of Unigram vocabularies move fillers to other ids. */
bool ht_gguf_is_any_filler(const char *text);

#endif
