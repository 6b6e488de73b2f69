/* Text of a model of mlx_lm: the checkpoint's tokenizer, chat template, stop ids and sampling values, as models of this library have them. */
#ifndef HT_BACKENDS_MLX_TEXT_H
#define HT_BACKENDS_MLX_TEXT_H

#include "checkpoint/chat_detection.h"
#include "checkpoint/sampling.h"

#include <hearth/backend.h>

typedef struct ht_mlx_text {
    ht_tokenizer *tokenizer;  /* NULL: none, and the model takes and gives ids alone */
    const char *no_tokenizer; /* the reason. Static */
    ht_chat_setup chat;
    int32_t *stop_ids;
    int n_stop_ids;
    ht_sampling sampling; /* where a request gives no values */
} ht_mlx_text;

/* Reads them from a directory. *out is to be freed in any case. */
ht_status ht_mlx_text_load(const char *path, ht_mlx_text *out, ht_error *err);
void ht_mlx_text_free(ht_mlx_text *t);

/* HT_ERR_UNSUPPORTED, with the reason, when there is no tokenizer. */
ht_status ht_mlx_text_need(const ht_mlx_text *t, ht_error *err);
/* Ids of a prompt, in fresh memory, to be freed with ht_ids_free. */
ht_status ht_mlx_text_encode(const ht_mlx_text *t, const ht_backend_prompt *prompt, int32_t **ids, size_t *n,
                             ht_error *err);
/* A conversation as it is written, which the caller frees with free(), and its ids. */
ht_status ht_mlx_text_chat(const ht_mlx_text *t, const ht_chat *chat, bool parse_special, char **text, size_t *n_text,
                           int32_t **ids, size_t *n_ids, ht_error *err);

#endif
