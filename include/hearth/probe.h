/* Probes: observations of a model's internals while it generates, token by token.
 *
 * Each kind is enabled and delivered separately, once for each drawn token, including the last. Probes change no bit of
 * the output. HT_PROBE_ROUTER and HT_PROBE_RESIDUAL describe the position after which the token was drawn; its step
 * computes a little more. Disabled kinds cost nothing. */
#ifndef HEARTH_PROBE_H
#define HEARTH_PROBE_H

#include <hearth/score.h>

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum ht_probe_kind {
    HT_PROBE_TOKEN = 1,     /* the token that was drawn */
    HT_PROBE_TOP = 2,       /* the highest logits */
    HT_PROBE_ENTROPY = 4,   /* of the model's distribution */
    HT_PROBE_CACHE = 8,     /* how full the KV cache is */
    HT_PROBE_MEMORY = 16,   /* how full the device's memory is */
    HT_PROBE_ROUTER = 32,   /* the experts of each layer that has some; no probes for a model without */
    HT_PROBE_RESIDUAL = 64, /* how large the residual stream is */
    HT_PROBE_LOGPROB = 128, /* log-probability of the drawn token, and the most likely tokens */
    HT_PROBE_ALL = 255
} ht_probe_kind;
/* A short name such as "entropy"; NULL for an unknown kind. A constant. */
HT_API const char *ht_probe_name(ht_probe_kind kind);

enum { HT_PROBE_TOP_LOGITS = 8, HT_PROBE_MOST_LOGPROBS = 20 };

/* The experts that a layer has chosen. */
typedef struct ht_probe_route {
    int32_t layer, n;
    const int32_t *expert; /* [n] highest score first */
    const float *weight;   /* [n] of their outputs in the sum, as the router gives them */
} ht_probe_route;

/* One observation. Its kind determines the fields in use after the first four. Lent during the call. */
typedef struct ht_probe {
    ht_probe_kind kind;
    int32_t answer;   /* of an engine's request, from 0 */
    int64_t index;    /* of the token among those generated, from 0 */
    int64_t position; /* of the token in the sequence */
    int32_t token;    /* HT_PROBE_TOKEN */
    /* HT_PROBE_TOP: before penalties and temperature, highest first, the lowest id on ties; n_top is less in a
     * smaller vocabulary. */
    int32_t n_top;
    int32_t top_token[HT_PROBE_TOP_LOGITS];
    float top_logit[HT_PROBE_TOP_LOGITS];
    double entropy;  /* HT_PROBE_ENTROPY: in nats, of the logits' softmax, likewise */
    double pressure; /* HT_PROBE_CACHE and _MEMORY: share that is used; 0 if the total is unknown */
    /* HT_PROBE_CACHE: positions of the sequence and its context; bytes of its pages, or of all in an engine, and the
     * engine's kv_bytes, else 0. The pressure is that of the bytes where there is such a budget, else of the
     * positions. */
    int64_t positions, context;
    size_t cache_bytes, cache_budget;
    /* HT_PROBE_MEMORY: of arrays, weights, caches and plans, now and at most so far; and the limit
     * (ht_memory_set_limit), else the machine's memory, or 0. */
    size_t memory_bytes, memory_peak, memory_limit;
    int32_t n_routes; /* HT_PROBE_ROUTER */
    const ht_probe_route *routes;
    int32_t n_layers; /* HT_PROBE_RESIDUAL: L2 norm after each layer */
    const float *norms;
    /* HT_PROBE_LOGPROB: in nats, of the model's distribution before biases, penalties, filters and grammar: equal
     * to ht_score's (score.h), to the bit. The most likely tokens are `top_logprobs` in number, the lowest id
     * first on ties. */
    double log_probability;
    int32_t n_likeliest;
    const ht_token_probability *likeliest; /* [n_likeliest] */
} ht_probe;

/* Called on the caller's thread, or, for an engine's request, on the thread of its pieces and in order with them:
 * before the text of the token. */
typedef void ht_probe_fn(const ht_probe *probe, void *user);

/* In ht_generate_options. */
typedef struct ht_probe_options {
    size_t size;    /* of the struct, set by ht_probe_options_init */
    unsigned kinds; /* ht_probe_kind, added up; default 0: none */
    ht_probe_fn *fn;
    void *user;
    int32_t top_logprobs; /* most likely tokens of HT_PROBE_LOGPROB, 0 to HT_PROBE_MOST_LOGPROBS; default 0 */
} ht_probe_options;
HT_API void ht_probe_options_init(ht_probe_options *options, size_t size);

#ifdef __cplusplus
}
#endif
#endif
