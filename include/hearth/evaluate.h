/* Evaluation: perplexity of a text under a model, and KL divergence of its predictions from those of another
 * model.
 *
 * Windows. The ids are cut into windows of `window` tokens, one after the other, without overlap; each is computed
 * by itself. Within a window every token but the first one counts: it is predicted from all tokens before it. A
 * last window of one token has no predictions and is skipped. A text is encoded as a whole; where the checkpoint
 * requires BOS at the beginning of a text, every window begins with it and holds one token of the text less, and
 * all of these count.
 *
 * Memory: logits of a few rows (about 16 MB, or one row) and a few bytes per token. */
#ifndef HEARTH_EVALUATE_H
#define HEARTH_EVALUATE_H

#include <hearth/adapter.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Options of ht_evaluate_ids and ht_evaluate_text. */
typedef struct ht_evaluate_options {
    size_t size;             /* of the struct, set by ht_evaluate_options_init */
    int32_t window;          /* tokens of a window, 2 or more; default 0: 512, or the context when that is less */
    ht_model *reference;     /* to compare with, of the same vocabulary; default NULL: none */
    const ht_cancel *cancel; /* ends the evaluation with HT_ERR_CANCELLED; default NULL */
    /* Called periodically with the share done, 0 to 1. Default NULL. */
    void (*progress)(double done, void *user);
    void *user; /* handed to `progress` */
    /* [n_adapters] of the model, as for ht_session_set_adapters; default none. `adapted_reference`: of the reference,
     * too, to compare precisions; default false, to compare with the model without them. */
    ht_adapter *const *adapters;
    const float *adapter_scales; /* NULL: 1 each */
    int n_adapters;
    bool adapted_reference;
} ht_evaluate_options;
HT_API void ht_evaluate_options_init(ht_evaluate_options *options, size_t size);

/* This percentage of the tokens has at most this value. */
typedef struct ht_percentile {
    double percent, value;
} ht_percentile;

/* Result of an evaluation. Errors are standard errors of the mean over tokens, as if these were independent. */
typedef struct ht_evaluation {
    int64_t n_tokens;                    /* of the text, BOS not counted */
    int64_t n_windows;                   /* computed windows */
    int64_t n_scored;                    /* tokens that count */
    int32_t window;                      /* tokens, the one used */
    double mean_nll;                     /* of -log p(token), in nats */
    double perplexity, perplexity_error; /* exp(mean_nll), and its error */
    /* Only with a reference, else 0. KL is sum p log(p / q) in nats, p the reference's distribution, q the model's. */
    double reference_perplexity, reference_perplexity_error;
    double kl_mean, kl_error, kl_max;
    const ht_percentile
        *kl_percentiles; /* [n_kl_percentiles], from 50 to 99.9 percent; lent until ht_evaluation_free */
    int n_kl_percentiles;
    double same_top, same_top_error; /* share of tokens for which both models agree on the most likely token */
} ht_evaluation;

/* Evaluates n ids unchanged, without BOS. HT_ERR_ARGUMENT for fewer than two ids, ids outside the vocabulary, or a
 * reference with another vocabulary; HT_ERR_LIMIT for a window longer than a context; HT_ERR_FORMAT when logits
 * are not finite. Sessions may use the models meanwhile. The caller frees *out. */
HT_API ht_status ht_evaluate_ids(ht_model *m, const int32_t *ids, size_t n, const ht_evaluate_options *options,
                                 ht_evaluation **out, ht_error *err);
/* The same on n bytes of UTF-8, encoded by the model's tokenizer (HT_ERR_UNSUPPORTED without one); special tokens
 * written in the text are recognised. */
HT_API ht_status ht_evaluate_text(ht_model *m, const char *text, size_t n, const ht_evaluate_options *options,
                                  ht_evaluation **out, ht_error *err);
HT_API void ht_evaluation_free(ht_evaluation *e); /* NULL is fine */

#ifdef __cplusplus
}
#endif
#endif
