/* Tokenizers: text to token ids and back, exactly as the checkpoint's own tokenizer defines it.
 *
 * A tokenizer is immutable after loading and may be shared between threads. Four kinds exist: byte-level BPE (GPT-2 byte
 * alphabet), SentencePiece-style BPE (spaces as U+2581, byte fallback), WordPiece (BERT) and Unigram (XLM-R, T5). */
#ifndef HEARTH_TOKENIZER_H
#define HEARTH_TOKENIZER_H

#include <hearth/status.h>
#include <hearth/text.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ht_tokenizer ht_tokenizer;

/* Loads from a `.gguf` file (vocabulary-only ones too), a `tokenizer.json` file, or a directory holding either, or BERT's
 * `vocab.txt`: with one GGUF and no safetensors, the GGUF's vocabulary has precedence. The caller frees the result with
 * ht_tokenizer_free. */
HT_API ht_status ht_tokenizer_load(const char *path, ht_tokenizer **out, ht_error *err);
HT_API void ht_tokenizer_free(ht_tokenizer *t); /* NULL is fine */

/* Flags of ht_tokenizer_encode. By default no tokens are added, and special tokens in the text are ordinary text. */
enum {
    /* Add BOS and EOS where the checkpoint requires them; no BOS before a text that begins with it. */
    HT_ENCODE_ADD_SPECIAL = 1,
    /* Recognise special tokens written in the text. */
    HT_ENCODE_PARSE_SPECIAL = 2
};

/* Encodes n bytes of UTF-8 with the flags (HT_ERR_ARGUMENT for unknown ones); invalid sequences are read as U+FFFD.
 * *ids has *n_ids ids, which the caller frees with ht_ids_free; NULL for an empty result. */
HT_API ht_status ht_tokenizer_encode(const ht_tokenizer *t, const char *text, size_t n, unsigned flags, int32_t **ids,
                                     size_t *n_ids, ht_error *err);

HT_API void ht_ids_free(int32_t *ids); /* NULL is fine */

/* Decodes ids to UTF-8 text, NUL-terminated, which the caller frees with ht_text_free; *n is its length without the
 * NUL. skip_special omits special tokens. Ids outside the vocabulary are an error. */
HT_API ht_status ht_tokenizer_decode(const ht_tokenizer *t, const int32_t *ids, size_t n_ids, bool skip_special,
                                     char **text, size_t *n, ht_error *err);

/* The n bytes of a token in the middle of a text, possibly partial characters, followed by a NUL. The caller frees
 * *bytes with ht_text_free. */
HT_API ht_status ht_tokenizer_token_bytes(const ht_tokenizer *t, int32_t id, char **bytes, size_t *n, ht_error *err);

/* Streaming decode: feed ids one by one, get complete characters. The concatenation of all pieces and the flushed rest
 * equals ht_tokenizer_decode of the same ids. One thread at a time. */
typedef struct ht_decoder ht_decoder;
/* The tokenizer must outlive the decoder, which the caller frees. */
HT_API ht_status ht_decoder_new(const ht_tokenizer *t, bool skip_special, ht_decoder **out, ht_error *err);
/* *piece (lent until the next call, NUL-terminated, maybe empty) is the text completed by this id. */
HT_API ht_status ht_decoder_feed(ht_decoder *d, int32_t id, const char **piece, size_t *n, ht_error *err);
/* Declares, before the first id, that the ids continue earlier text: a space before the first word is kept. */
HT_API void ht_decoder_join(ht_decoder *d);
/* Returns the buffered rest, invalid bytes as U+FFFD, and resets the decoder. */
HT_API ht_status ht_decoder_flush(ht_decoder *d, const char **piece, size_t *n, ht_error *err);
HT_API void ht_decoder_free(ht_decoder *d); /* NULL is fine */

HT_API int32_t ht_tokenizer_vocab_size(const ht_tokenizer *t); /* ids are 0 .. this - 1 (added tokens included) */
/* The stored form of a token ("Ġthe", "▁the", "<0x0A>"), lent, NUL-terminated; NULL when id is out of range. */
HT_API const char *ht_tokenizer_piece(const ht_tokenizer *t, int32_t id);
/* Id of a token by its stored form, or -1. */
HT_API int32_t ht_tokenizer_find(const ht_tokenizer *t, const char *piece);
HT_API bool ht_tokenizer_is_special(const ht_tokenizer *t, int32_t id);
HT_API int32_t ht_tokenizer_bos(const ht_tokenizer *t); /* -1 without one, here and below */
HT_API int32_t ht_tokenizer_eos(const ht_tokenizer *t);
/* "byte-level BPE", "SentencePiece BPE", "WordPiece" or "Unigram". */
HT_API const char *ht_tokenizer_kind(const ht_tokenizer *t);
/* The checkpoint's own chat template (Jinja text), lent, or NULL. */
HT_API const char *ht_tokenizer_chat_template(const ht_tokenizer *t);
/* Its template named "tool_use", for conversations with tools, lent, or NULL. */
HT_API const char *ht_tokenizer_tool_template(const ht_tokenizer *t);

#ifdef __cplusplus
}
#endif
#endif
