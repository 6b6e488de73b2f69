/* Tokenizer internals: the stages that the loaders fill in and the encoder and decoder read.
 *
 * Everything here follows the stages of a Hugging Face tokenizer.json (normalizer, pre_tokenizer, model,
 * post_processor, decoder, added_tokens); a GGUF's metadata is turned into the same stages. Immutable after loading. */
#ifndef HT_TOKENIZER_TOKENIZER_H
#define HT_TOKENIZER_TOKENIZER_H

#include "formats/gguf.h"
#include "tokenizer/bpe.h"
#include "tokenizer/regex.h"
#include "tokenizer/unicode.h"
#include "tokenizer/vocab.h"

#include <hearth/tokenizer.h>

#define HT_MAX_STEPS 32 /* of one normalizer, pre-tokenizer or decoder */

/* ---- normalizer ---- */

typedef enum ht_normal_kind {
    HT_NORMAL_FORM,
    HT_NORMAL_PREPEND,
    HT_NORMAL_REPLACE, /* `from` by `to` */
    HT_NORMAL_REPLACE_REGEX,
    HT_NORMAL_LOWERCASE,
    HT_NORMAL_STRIP
} ht_normal_kind;

typedef struct ht_normal_step {
    ht_normal_kind kind;
    ht_normal_form form;
    char *from, *to; /* Prepend: `to` */
    size_t n_from, n_to;
    ht_regex *regex;
    bool left, right; /* Strip: at which end */
} ht_normal_step;

/* ---- pre-tokenizer ---- */

typedef enum ht_behavior {
    HT_SPLIT_ISOLATED,
    HT_SPLIT_REMOVED,
    HT_SPLIT_CONTIGUOUS,
    HT_SPLIT_MERGED_WITH_PREVIOUS,
    HT_SPLIT_MERGED_WITH_NEXT
} ht_behavior;

/* A hand-written equivalent of a well-known pattern that covers every text: the end of the match at text[at]. */
typedef size_t ht_scan_fn(const char *text, size_t n, size_t at);

typedef enum ht_pre_kind { HT_PRE_SPLIT, HT_PRE_BYTE_LEVEL, HT_PRE_METASPACE } ht_pre_kind;

typedef struct ht_pre_step {
    ht_pre_kind kind;
    ht_behavior behavior; /* Split */
    bool invert;
    ht_scan_fn *scan; /* Split by one of these four; ByteLevel with its own pattern: scan */
    ht_regex *regex;
    char *text; /* or by a literal text */
    size_t n_text;
    uint8_t classes;       /* or by characters of a class, each one a match */
    bool add_prefix_space; /* ByteLevel, and Metaspace's "always" */
    bool prefix_first;     /* Metaspace's "first": only where the whole text begins */
    char *replacement;     /* Metaspace: what a space becomes */
    size_t n_replacement;
    bool split; /* Metaspace */
} ht_pre_step;

/* ---- added tokens ---- */

typedef struct ht_added {
    int32_t id;
    bool special, normalized, lstrip, rstrip, single_word;
    char *text;    /* as written in the file */
    size_t n_text; /* bytes */
    char *normal;  /* after the normalizer, when `normalized` and different; else NULL */
    size_t n_normal;
} ht_added;

typedef struct ht_trie_node {
    int32_t child, sibling; /* -1 when none */
    int32_t value;          /* index into added, -1 when no token ends here */
    unsigned char byte;
} ht_trie_node;

typedef struct ht_trie {
    ht_trie_node *nodes;
    int32_t n, capacity;
    int32_t root[256]; /* node of each first byte, -1 when none */
} ht_trie;

/* ---- decoder ---- */

typedef struct ht_decode_replace {
    char *from, *to;
    size_t n_from, n_to;
} ht_decode_replace;

typedef struct ht_decode_plan {
    bool byte_level;    /* characters of the byte alphabet are bytes */
    bool byte_fallback; /* runs of <0xNN> tokens are bytes */
    bool join_spaces;   /* no decoder in the file: tokens are joined by spaces */
    ht_decode_replace replace[4];
    int n_replace;
    char *metaspace; /* what a space was replaced by; NULL without Metaspace */
    size_t n_metaspace;
    bool metaspace_drops; /* the first token loses its metaspaces */
    char *strip;          /* a character cut from the front of the text, up to strip_count times */
    size_t n_strip;
    size_t strip_count;
} ht_decode_plan;

/* ---- the whole ---- */

enum { HT_TOKEN_SPECIAL = 1, HT_TOKEN_ADDED = 2, HT_TOKEN_RESPELLED = 4 /* ht_added.normal is set */ };

struct ht_tokenizer {
    ht_vocab vocab;
    uint8_t *flags; /* [vocab.n], HT_TOKEN_* */
    ht_merges merges;
    bool byte_level;    /* the last pre-tokenizer step is ByteLevel: symbols begin as bytes */
    bool ignore_merges; /* a piece that is a token as a whole is that token */
    bool byte_fallback; /* characters without a token become <0xNN> tokens */
    bool fuse_unk;
    char *unk_text;           /* NULL when characters without a token are dropped */
    int32_t unk;              /* -1 when the vocabulary lacks unk_text */
    int32_t byte_id[256];     /* the token of a byte's character in the byte alphabet, or -1 */
    int32_t fallback_id[256]; /* the token <0xNN>, or -1 */
    int32_t ascii_id[128];
    bool words_apart;      /* pieces may be cut before a U+2581 that follows another character ... */
    bool joins_space[256]; /* ... unless its last byte is one of these */

    ht_normal_step normalizer[HT_MAX_STEPS];
    int n_normalizer;
    ht_pre_step pre[HT_MAX_STEPS];
    int n_pre;
    ht_added *added;
    size_t n_added;
    ht_trie raw_trie, normal_trie; /* added tokens matched before and after the normalizer */
    int32_t *prefix, *suffix;      /* ids that add_special puts around the text */
    size_t n_prefix, n_suffix;
    ht_decode_plan decode;

    int32_t bos, eos;
    char *chat_template;
};

/* load_gguf.c: from a parsed file's metadata; nothing of `g` is referred to afterwards. `name` is used in messages. */
ht_status ht_tokenizer_from_gguf(const ht_gguf *g, const char *name, ht_tokenizer **out, ht_error *err);
/* load_json.c: from the text of a tokenizer.json and, unless NULL, of the tokenizer_config.json beside it. */
ht_status ht_tokenizer_from_json(const char *json, size_t n, const char *config, size_t n_config, ht_tokenizer **out,
                                 ht_error *err);

/* load.c: the chat template that files of a directory hold, for a tokenizer that has none. */
ht_status ht_tokenizer_find_template(ht_tokenizer *t, const char *directory, ht_error *err);

/* load.c: what a directory without tokenizer.json and GGUF lacks, to be read behind its name. A constant. */
const char *ht_tokenizer_missing(const char *directory);

/* stages.c: what the loaders share. */
ht_tokenizer *ht_tokenizer_new(ht_error *err);
/* A NUL-terminated copy, or NULL when memory ran out. */
char *ht_copy_text(const char *text, size_t n);
/* The next free step of a stage, zeroed, or NULL with an error when there are too many. */
ht_normal_step *ht_add_normal(ht_tokenizer *t, ht_normal_kind kind, ht_error *err);
ht_pre_step *ht_add_pre(ht_tokenizer *t, ht_pre_kind kind, ht_error *err);
/* A Split by a pattern: a scanner when it is a known one, else PCRE2. */
ht_status ht_add_split_regex(ht_tokenizer *t, const char *pattern, size_t n, ht_behavior behavior, bool invert,
                             ht_error *err);
ht_status ht_add_normal_replace(ht_tokenizer *t, const char *from, size_t n_from, const char *to, size_t n_to,
                                ht_error *err);
ht_status ht_add_decode_replace(ht_tokenizer *t, const char *from, size_t n_from, const char *to, size_t n_to,
                                ht_error *err);
/* Appends an added token; its text is copied. The id must be in the vocabulary. */
ht_status ht_add_added(ht_tokenizer *t, ht_added token, const char *text, size_t n, ht_error *err);
/* Replaces *list by its first *n ids and `id`. */
ht_status ht_append_id(int32_t **list, size_t *n, int32_t id, ht_error *err);
/* Adds merges, at most HT_MERGE_BATCH at a time. Both texts of each and their concatenation must be tokens. */
#define HT_MERGE_BATCH 32
typedef struct ht_merge_text {
    const char *left, *right;
    size_t n_left, n_right;
} ht_merge_text;
ht_status ht_add_merges(ht_tokenizer *t, const ht_merge_text *texts, size_t n, ht_error *err);
/* Builds what follows from the stages; the last thing a loader does. */
ht_status ht_tokenizer_finish(ht_tokenizer *t, ht_error *err);

/* normalize.c */
ht_status ht_normalize(const ht_normal_step *steps, int n_steps, ht_regex_work **regex, ht_text *text, ht_text *scratch,
                       ht_error *err);
void ht_normal_step_free(ht_normal_step *s);

/* scan.c: a scanner for a pattern that is one of the known ones, or NULL. */
ht_scan_fn *ht_scan_known(const char *pattern, size_t n);
size_t ht_scan_gpt2(const char *text, size_t n, size_t at);

/* The ids of a short piece met before: most words of a text are. */
typedef struct ht_known_piece {
    unsigned char n_text, n_ids; /* n_text is 0 when free */
    char text[30];
    int32_t ids[8];
} ht_known_piece;

#define HT_KNOWN_PIECES 4096

/* encode.c's working memory. Errors stick: once `status` is set, nothing more is encoded. */
typedef struct ht_encoder {
    const ht_tokenizer *t;
    ht_bpe_work work;
    ht_known_piece *known; /* [HT_KNOWN_PIECES], or NULL: short texts do without */
    int32_t *ids;
    size_t n_ids, capacity;
    ht_text scratch[HT_MAX_STEPS], spelled[HT_MAX_STEPS]; /* rewritten pieces, for each pre-tokenizer step */
    ht_text piece;
    ht_regex_work *regex;
    bool parse_special;
    ht_status status;
    ht_error *err;
} ht_encoder;

void ht_encode_id(ht_encoder *e, int32_t id);
/* Splits and encodes a stretch without added tokens; at_start: it begins where the whole text begins. */
void ht_pretokenize(ht_encoder *e, const char *text, size_t n, bool at_start);
/* encode.c: encodes one piece by the model. */
void ht_encode_piece(ht_encoder *e, const char *text, size_t n);
void ht_pre_step_free(ht_pre_step *s);

/* special.c: the parts of a text, each either an added token (added >= 0) or plain text. */
typedef void ht_part_fn(void *user, const char *text, size_t begin, size_t end, int32_t added);
ht_status ht_trie_build(ht_trie *trie, const ht_added *added, size_t n, bool normalized, ht_error *err);
void ht_trie_free(ht_trie *trie);
void ht_find_added(const ht_tokenizer *t, const ht_trie *trie, const char *text, size_t n, bool parse_special,
                   ht_part_fn *fn, void *user);

#endif
