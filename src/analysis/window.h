/* Windows of tokens that are computed one by one: the ids of a text, and passes outside plans and sessions. */
#ifndef HT_ANALYSIS_WINDOW_H
#define HT_ANALYSIS_WINDOW_H

#include "device/lora.h"
#include "generate/cache.h"
#include "models/forward.h"
#include "models/model.h"

/* A text, encoded as a whole without BOS. Every window begins with BOS if the checkpoint prepends it to a text. */
typedef struct ht_window_text {
    int32_t bos;        /* prepended to each window; -1: none */
    const int32_t *ids; /* [n] without a leading BOS, even if the text contains it */
    size_t n;
    int32_t *encoded; /* output of the tokenizer */
} ht_window_text;

/* Encodes UTF-8, special tokens included. HT_ERR_UNSUPPORTED without a tokenizer. Free *out after a failure, too. */
ht_status ht_window_text_encode(const ht_model *m, const char *text, size_t n, ht_window_text *out, ht_error *err);
void ht_window_text_free(ht_window_text *t);

enum { HT_WINDOW_ROWS_MAX = 512 };

/* A pass: the forward function, evaluated layer by layer, with an observer. All rows are output rows. */
typedef struct ht_window_pass {
    ht_observer observer; /* first: its functions are called with it */
    const ht_model *model;
    const ht_lora_set *lora; /* NULL: none */
    ht_cache *cache;
    int64_t begin; /* tokens before the current step */
    int32_t rows;  /* of the step */
    /* Evaluates the observer's pending arrays together with h (may be NULL). NULL: the observer has none. */
    ht_status (*flush)(struct ht_window_pass *p, ht_scope *s, ht_array *h, ht_error *err);
} ht_window_pass;

/* Runs n ids through the model from an empty cache, which was made for steps of `rows`. */
ht_status ht_window_pass_run(ht_window_pass *p, const int32_t *ids, int64_t n, int32_t rows, ht_error *err);
/* Evaluates a layer, as ht_observer has it, in its own scope: only one layer has its values in memory. */
ht_array *ht_window_pass_layer(ht_window_pass *p, ht_ctx *c, ht_layer_fn *layer, const void *model, int index,
                               ht_array *const *in);

#endif
