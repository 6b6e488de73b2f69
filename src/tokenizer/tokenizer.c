/* Tokenizer queries and destruction (hearth/tokenizer.h). */
#include "tokenizer/tokenizer.h"

#include <stdlib.h>
#include <string.h>

void ht_tokenizer_free(ht_tokenizer *t) {
    if (!t) return;
    ht_vocab_free(&t->vocab);
    free(t->flags);
    ht_merges_free(&t->merges);
    free(t->unk_text);
    for (int i = 0; i < HT_MAX_STEPS; i++) {
        ht_normal_step_free(&t->normalizer[i]);
        ht_pre_step_free(&t->pre[i]);
    }
    for (size_t i = 0; i < t->n_added; i++) {
        free(t->added[i].text);
        free(t->added[i].normal);
    }
    free(t->added);
    ht_trie_free(&t->raw_trie);
    ht_trie_free(&t->normal_trie);
    free(t->prefix);
    free(t->suffix);
    for (int i = 0; i < t->decode.n_replace; i++) {
        free(t->decode.replace[i].from);
        free(t->decode.replace[i].to);
    }
    free(t->decode.metaspace);
    free(t->decode.strip);
    free(t->chat_template);
    free(t->tool_template);
    free(t);
}

int32_t ht_tokenizer_vocab_size(const ht_tokenizer *t) { return t->vocab.n; }

const char *ht_tokenizer_piece(const ht_tokenizer *t, int32_t id) {
    if (id < 0 || id >= t->vocab.n) return NULL;
    return ht_vocab_has(&t->vocab, id) ? ht_vocab_text(&t->vocab, id) : "";
}

int32_t ht_tokenizer_find(const ht_tokenizer *t, const char *piece) {
    return ht_vocab_find(&t->vocab, piece, strlen(piece));
}

bool ht_tokenizer_is_special(const ht_tokenizer *t, int32_t id) {
    return id >= 0 && id < t->vocab.n && (t->flags[id] & HT_TOKEN_SPECIAL);
}

int32_t ht_tokenizer_bos(const ht_tokenizer *t) { return t->bos; }
int32_t ht_tokenizer_eos(const ht_tokenizer *t) { return t->eos; }

const char *ht_tokenizer_kind(const ht_tokenizer *t) {
    return t->byte_level || t->decode.byte_level ? "byte-level BPE" : "SentencePiece BPE";
}

const char *ht_tokenizer_chat_template(const ht_tokenizer *t) { return t->chat_template; }
const char *ht_tokenizer_tool_template(const ht_tokenizer *t) { return t->tool_template; }
