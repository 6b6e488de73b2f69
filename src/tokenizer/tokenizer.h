/* Tokenizer internals: the stages that the loaders fill in and the encoder and decoder execute.
 *
 * The stages are those of a Hugging Face tokenizer.json (normalizer, pre_tokenizer, model, post_processor, decoder,
 * added_tokens); GGUF metadata is converted to them. Immutable after loading. */
#ifndef HT_TOKENIZER_TOKENIZER_H
#define HT_TOKENIZER_TOKENIZER_H

#include "formats/gguf.h"
#include "tokenizer/bpe.h"
#include "tokenizer/charsmap.h"
#include "tokenizer/pieces.h"
#include "tokenizer/regex.h"
#include "tokenizer/unicode.h"
#include "tokenizer/vocab.h"

#include <hearth/tokenizer.h>

#define HT_MAX_STEPS 32 /* steps of a normalizer, a pre-tokenizer or a decoder */

#define HT_METASPACE "\xE2\x96\x81" /* U+2581, which stands for a space in SentencePiece vocabularies */

/* ---- normalizer ---- */

typedef enum ht_normal_kind {
    HT_NORMAL_FORM,
    HT_NORMAL_PREPEND,
    HT_NORMAL_REPLACE, /* replaces `from` by `to` */
    HT_NORMAL_REPLACE_REGEX,
    HT_NORMAL_LOWERCASE,
    HT_NORMAL_STRIP,
    HT_NORMAL_STRIP_ACCENTS,
    HT_NORMAL_BERT,
    HT_NORMAL_CHARSMAP
} ht_normal_kind;

/* Parts of BertNormalizer, in their order. */
enum {
    HT_BERT_CLEAN = 1,   /* drops control characters; white space becomes spaces */
    HT_BERT_CHINESE = 2, /* puts spaces around Chinese characters */
    HT_BERT_ACCENTS = 4, /* NFD without accents */
    HT_BERT_LOWERCASE = 8
};

typedef struct ht_normal_step {
    ht_normal_kind kind;
    ht_normal_form form;
    char *from, *to; /* Prepend uses `to`; from is a regular expression's pattern, too */
    size_t n_from, n_to;
    ht_regex *regex;
    bool left, right; /* Strip: ends to strip */
    uint8_t bert;     /* HT_BERT_* bits */
    ht_charsmap charsmap;
} ht_normal_step;

/* ---- pre-tokenizer ---- */

typedef enum ht_behavior {
    HT_SPLIT_ISOLATED,
    HT_SPLIT_REMOVED,
    HT_SPLIT_CONTIGUOUS,
    HT_SPLIT_MERGED_WITH_PREVIOUS,
    HT_SPLIT_MERGED_WITH_NEXT,
    HT_BEHAVIORS
} ht_behavior;

/* Hand-written equivalent of a Split pattern that matches everywhere: returns the end of the match at text[at]. */
typedef size_t ht_scan_fn(const char *text, size_t n, size_t at);

typedef enum ht_pre_kind { HT_PRE_SPLIT, HT_PRE_BYTE_LEVEL, HT_PRE_METASPACE } ht_pre_kind;

typedef struct ht_pre_step {
    ht_pre_kind kind;
    ht_behavior behavior; /* Split only */
    bool invert;
    ht_scan_fn *scan; /* Split: one of scan, regex, text, classes; ByteLevel: its own pattern */
    ht_regex *regex;
    char *pattern; /* Split: the regular expression that scan or regex stands for; else NULL */
    size_t n_pattern;
    char *text; /* literal text */
    size_t n_text;
    uint8_t classes;       /* HT_CLASS_* bits; each character is one match */
    bool add_prefix_space; /* ByteLevel; Metaspace "always" */
    bool prefix_first;     /* Metaspace "first": only at the start of the text */
    char *replacement;     /* Metaspace: replacement of a space */
    size_t n_replacement;
    bool split; /* Metaspace: splits before the replacement */
} ht_pre_step;

/* ---- added tokens ---- */

typedef struct ht_added {
    int32_t id;
    bool special, normalized, lstrip, rstrip, single_word;
    bool control;  /* special, or spelled like one that is: "<|...|>"; for texts that came from elsewhere */
    char *text;    /* the file's spelling */
    size_t n_text; /* bytes */
    char *normal;  /* normalised text, when `normalized` and different; else NULL */
    size_t n_normal;
} ht_added;

typedef struct ht_trie_node {
    int32_t child, sibling; /* node index, -1: none */
    int32_t value;          /* index into `added`, -1: no token ends here */
    unsigned char byte;
} ht_trie_node;

typedef struct ht_trie {
    ht_trie_node *nodes;
    int32_t n;
    int32_t root[256]; /* node of a first byte, -1: none */
} ht_trie;

/* ---- decoder ---- */

typedef struct ht_decode_replace {
    char *from, *to;
    size_t n_from, n_to;
} ht_decode_replace;

typedef struct ht_decode_plan {
    bool byte_level;    /* characters of the byte alphabet decode to bytes */
    bool byte_fallback; /* <0xNN> tokens decode to bytes */
    bool join_spaces;   /* tokenizer without decoder: tokens are joined by spaces */
    ht_decode_replace replace[4];
    int n_replace;
    char *metaspace; /* Metaspace's replacement of a space; NULL: no Metaspace */
    size_t n_metaspace;
    bool metaspace_drops; /* metaspaces of the first token are dropped */
    char *strip;          /* Strip: removed from the start of the text, at most strip_count times */
    size_t n_strip;
    size_t strip_count;
    char *word_prefix; /* WordPiece: a token with it continues a word, others begin one; NULL: no WordPiece */
    size_t n_word_prefix;
    bool cleanup; /* WordPiece: no spaces before punctuation and contractions */
} ht_decode_plan;

/* ---- post-processor ---- */

/* An item of the template of a pair: a special token, or one of the two texts. */
typedef struct ht_pair_item {
    int32_t id; /* or HT_PAIR_FIRST, HT_PAIR_SECOND */
    int32_t type;
} ht_pair_item;

enum { HT_PAIR_FIRST = -1, HT_PAIR_SECOND = -2 };

/* ---- tokenizer ---- */

enum {
    HT_TOKEN_SPECIAL = 1,
    HT_TOKEN_ADDED = 2,
    HT_TOKEN_RESPELLED = 4, /* ht_added.normal is set */
    HT_TOKEN_UNUSED = 8     /* unused in GGUF, or a filler of padding: it stands for no text, whatever its name */
};

typedef enum ht_model_kind { HT_MODEL_BPE, HT_MODEL_WORDPIECE, HT_MODEL_UNIGRAM } ht_model_kind;

struct ht_tokenizer {
    ht_vocab vocab;
    ht_model_kind model;
    ht_pieces pieces; /* of WordPiece and Unigram; the fields down to unk_text, except byte_fallback, are of BPE */
    int32_t n_model_tokens; /* of a tokenizer.json: tokens in the model's vocabulary, without added ones */
    uint8_t *flags;         /* [vocab.n], HT_TOKEN_* */
    ht_merges merges;
    bool byte_level;    /* last pre-tokenizer step is ByteLevel: initial symbols are bytes */
    bool ignore_merges; /* a piece that is a token is not merged */
    bool byte_fallback; /* characters without a token become <0xNN> tokens */
    bool fuse_unk;
    char *unk_text;           /* NULL: characters without a token are dropped */
    int32_t unk;              /* id of unk_text, -1 when not in the vocabulary */
    int32_t byte_id[256];     /* [byte]: token of its character in the byte alphabet, -1: none */
    int32_t fallback_id[256]; /* [byte]: token <0xNN>, -1: none */
    int32_t ascii_id[128];
    bool split_words;          /* pieces may be split before a U+2581 */
    bool joins_metaspace[256]; /* [byte]: no split between this byte and a U+2581: a merge may cross */

    ht_normal_step normalizer[HT_MAX_STEPS];
    int n_normalizer;
    ht_pre_step pre[HT_MAX_STEPS];
    int n_pre;
    ht_added *added;
    size_t n_added;
    ht_trie raw_trie, normal_trie; /* added tokens matched before and after the normalizer */
    int32_t *prefix, *suffix;      /* post-processor: ids around the text */
    size_t n_prefix, n_suffix;
    ht_pair_item *pair; /* of two texts */
    size_t n_pair;
    ht_decode_plan decode;

    int32_t bos, eos;
    bool may_add_bos;                    /* the files have no post-processor and do not disable BOS */
    char *chat_template, *tool_template; /* sources: the default one, and the one named "tool_use"; or NULL */
};

/* load_gguf.c: from parsed metadata; keeps no reference to `g`. `name` is used in messages. */
ht_status ht_tokenizer_from_gguf(const ht_gguf *g, const char *name, ht_tokenizer **out, ht_error *err);
/* load_json.c: from the text of a tokenizer.json and of its tokenizer_config.json (`config`, or NULL). */
ht_status ht_tokenizer_from_json(const char *json, size_t n, const char *config, size_t n_config, ht_tokenizer **out,
                                 ht_error *err);

/* load_vocab.c: from the text of BERT's vocab.txt and of its tokenizer_config.json (`config`, or NULL). */
ht_status ht_tokenizer_from_vocab(const char *text, size_t n, const char *config, size_t n_config, ht_tokenizer **out,
                                  ht_error *err);
/* load_stages.c: adds the stages of a JSON text of the form of a tokenizer.json with only those. `charsmap` is that of a
 * Precompiled step without one. The vocabulary must have its tokens. */
ht_status ht_load_stages(ht_tokenizer *t, const char *json, size_t n, ht_bytes charsmap, ht_error *err);

/* The directory of a checkpoint's named templates, as `transformers` saves them. */
#define HT_TEMPLATES_DIRECTORY "additional_chat_templates"
#define HT_TOOL_TEMPLATE_FILE  HT_TEMPLATES_DIRECTORY "/tool_use.jinja"

/* load.c: loads the chat templates from the files of a directory, unless the tokenizer has one. */
ht_status ht_tokenizer_find_template(ht_tokenizer *t, const char *directory, ht_error *err);

/* load.c: the path of a directory's tokenizer.json, else of its vocab.txt, which may not exist. The caller frees it; NULL
 * when out of memory. */
char *ht_tokenizer_file_in(const char *directory);

/* load.c: why a directory has no tokenizer, a predicate to follow its name ("holds neither ..."). Static. */
const char *ht_tokenizer_missing(const char *directory);

/* tokenizer.c: shared by the loaders. */
ht_tokenizer *ht_tokenizer_new(ht_error *err);
/* In the spelling of tokenizer.json. */
extern const char *const ht_normal_form_names[HT_NORMAL_FORMS], *const ht_behavior_names[HT_BEHAVIORS];
/* NUL-terminated copy; NULL when out of memory. */
char *ht_copy_text(const char *text, size_t n);
/* Appends n bytes of text, replacing each `from` of n_from bytes by `to`. No replacement if n_from is 0. */
void ht_append_replaced(ht_text *out, const char *text, size_t n, const char *from, size_t n_from, const char *to,
                        size_t n_to);
/* Appends a zeroed step; NULL with an error when the stage is full. */
ht_normal_step *ht_add_normal(ht_tokenizer *t, ht_normal_kind kind, ht_error *err);
ht_pre_step *ht_add_pre(ht_tokenizer *t, ht_pre_kind kind, ht_error *err);
/* Appends a Split by a pattern: a scanner for known patterns, else PCRE2. */
ht_status ht_add_split_regex(ht_tokenizer *t, const char *pattern, size_t n, ht_behavior behavior, bool invert,
                             ht_error *err);
ht_status ht_add_normal_replace(ht_tokenizer *t, const char *from, size_t n_from, const char *to, size_t n_to,
                                ht_error *err);
ht_status ht_add_decode_replace(ht_tokenizer *t, const char *from, size_t n_from, const char *to, size_t n_to,
                                ht_error *err);
/* Appends an added token and copies its text. The id must be in the vocabulary. */
ht_status ht_add_added(ht_tokenizer *t, ht_added token, const char *text, size_t n, ht_error *err);
ht_status ht_add_pair_item(ht_tokenizer *t, int32_t id, int32_t type, ht_error *err);
/* Appends `id` to the array *list of *n ids. */
ht_status ht_append_id(int32_t **list, size_t *n, int32_t id, ht_error *err);
/* Appends up to HT_MERGE_BATCH merges. Left, right and merged text must be tokens. */
#define HT_MERGE_BATCH 32
typedef struct ht_merge_text {
    const char *left, *right;
    size_t n_left, n_right;
} ht_merge_text;
ht_status ht_add_merges(ht_tokenizer *t, const ht_merge_text *texts, size_t n, ht_error *err);
/* Derives the lookup tables; the loader's last call. */
ht_status ht_tokenizer_finish(ht_tokenizer *t, ht_error *err);

/* Bytes [begin, end) of the text that was encoded. */
typedef struct ht_origin {
    uint32_t begin, end;
} ht_origin;

/* A text whose bytes are marked, 1 for those that came from the inputs, where that matters. Or with their origins, for the
 * offsets of tokens. */
typedef struct ht_marked_text {
    ht_text text;
    bool wants_marks, wants_origins; /* not both */
    ht_text marks;                   /* one byte for each of the text's */
    ht_text origins;                 /* an ht_origin for each byte of the text */
} ht_marked_text;
/* NULL without origins. */
static inline const ht_origin *ht_origins(const ht_marked_text *t) {
    return t->wants_origins ? (const ht_origin *)(const void *)t->origins.data : NULL;
}
static inline const ht_origin *ht_origins_from(const ht_origin *origins, size_t begin) {
    return origins ? origins + begin : NULL;
}
void ht_marked_text_discard(ht_marked_text *t);

/* normalize.c: whether the normalizer makes lower case. */
bool ht_tokenizer_lowercases(const ht_tokenizer *t);
/* normalize.c: normalises `text` in place; `scratch` is the second buffer. */
ht_status ht_normalize(const ht_normal_step *steps, int n_steps, ht_regex_work **regex, ht_marked_text *text,
                       ht_marked_text *scratch, ht_error *err);
void ht_normal_step_free(ht_normal_step *s);

/* scan.c: the scanner of a known pattern, or NULL. isolated: matches and the text between them are treated alike. */
ht_scan_fn *ht_scan_known(const char *pattern, size_t n, bool isolated);
size_t ht_scan_gpt2(const char *text, size_t n, size_t at);

/* Piece cache entry: most words of a text repeat. */
typedef struct ht_cached_piece {
    unsigned char n_text, n_ids; /* n_text 0: free */
    char text[30];
    int32_t ids[8];
} ht_cached_piece;

#define HT_PIECE_CACHE_SIZE 4096

/* State of one encode call. Sticky error: nothing is encoded once `status` is set. */
typedef struct ht_encoder {
    const ht_tokenizer *t;
    ht_bpe_work work;
    ht_piece_work pieces;
    uint8_t hidden;               /* HT_TOKEN_* of tokens that WordPiece and Unigram do not find in a text */
    ht_cached_piece *piece_cache; /* [HT_PIECE_CACHE_SIZE], or NULL for short texts */
    int32_t *ids;
    size_t n_ids, capacity;
    bool wants_offsets; /* WordPiece and Unigram */
    ht_origin *offsets; /* [n_ids] bytes of the text; empty ones for tokens that the post-processor adds */
    size_t offset_capacity;
    ht_text scratch[HT_MAX_STEPS], spelled[HT_MAX_STEPS]; /* rewritten pieces, per pre-tokenizer step */
    ht_text origins[HT_MAX_STEPS];                        /* of the rewritten pieces */
    ht_text piece;
    ht_regex_work *regex;
    ht_status status;
    ht_error *err;
} ht_encoder;

/* Pre-tokenizes and encodes a span without added tokens. at_start: the span begins at the start of the text. origins: of
 * its bytes, NULL unless e->wants_offsets. */
void ht_pretokenize(ht_encoder *e, const char *text, size_t n, const ht_origin *origins, bool at_start);
/* encode.c: encodes one piece by the model. */
void ht_encode_piece(ht_encoder *e, const char *text, size_t n, const ht_origin *origins);
/* encode.c: whether merging gives each token of byte-level BPE from its own text, so that ignore_merges changes nothing. */
ht_status ht_tokenizer_merges_suffice(const ht_tokenizer *t, bool *suffice, ht_error *err);
void ht_pre_step_free(ht_pre_step *s);

/* encode.c: ht_tokenizer_encode of valid UTF-8 whose runs mark text from the inputs. Marked text never becomes part
 * of a special token. */
ht_status ht_tokenizer_encode_runs(const ht_tokenizer *t, const ht_written *text, unsigned flags, int32_t **ids,
                                   size_t *n_ids, ht_error *err);

/* The ids of a text, or of two. */
typedef struct ht_encoding {
    int32_t *ids, *types; /* [n]; types: of token_type_ids */
    ht_origin *offsets;   /* [n] bytes of the text that the token comes from, 0 to 0 for added ones; NULL: not wanted */
    size_t n;
} ht_encoding;

typedef struct ht_pair_options {
    unsigned flags; /* of ht_tokenizer_encode; with HT_ENCODE_ADD_SPECIAL also those of the pair's template */
    bool offsets;   /* WordPiece and Unigram only */
} ht_pair_options;

/* pair.c: encodes a text, or two (`second` is not NULL) as the post-processor's template for pairs puts them together. */
ht_status ht_tokenizer_encode_pair(const ht_tokenizer *t, const char *first, size_t n_first, const char *second,
                                   size_t n_second, const ht_pair_options *options, ht_encoding *out, ht_error *err);
void ht_encoding_free(ht_encoding *e);

/* encode.c: the ids of a text without the post-processor's, and their offsets, unless NULL. */
ht_status ht_tokenizer_encode_text(const ht_tokenizer *t, const char *text, size_t n, unsigned flags, int32_t **ids,
                                   ht_origin **offsets, size_t *n_ids, ht_error *err);

/* Whether bytes [begin, end) may spell an added token that is special, or only a control token. */
typedef bool ht_special_fn(void *user, bool special, size_t begin, size_t end);
/* special.c: callback for the consecutive parts of a text: an added token (added >= 0) or plain text (-1). */
typedef void ht_part_fn(void *user, const char *text, size_t begin, size_t end, int32_t added);
ht_status ht_trie_build(ht_trie *trie, const ht_added *added, size_t n, bool normalized, ht_error *err);
void ht_trie_free(ht_trie *trie);
void ht_find_added(const ht_tokenizer *t, const ht_trie *trie, const char *text, size_t n,
                   ht_special_fn *may_be_special, ht_part_fn *fn, void *user);

#endif
