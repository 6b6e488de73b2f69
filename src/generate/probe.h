/* Probes of an answer (hearth/probe.h): measurements of each step's logits and taps, delivered with the token. */
#ifndef HT_GENERATE_PROBE_H
#define HT_GENERATE_PROBE_H

#include "generate/session_internal.h"

#include <hearth/probe.h>

typedef struct ht_probing ht_probing;

/* Fills in the defaults, and checks them. NULL: these alone, no probes. */
ht_status ht_probing_read_options(ht_probe_options *o, const ht_probe_options *options, ht_error *err);
/* *out is NULL when no kind is requested. Later calls allocate nothing. */
ht_status ht_probing_new(const ht_model *m, const ht_probe_options *options, ht_probing **out, ht_error *err);
void ht_probing_free(ht_probing *p); /* NULL is fine */

/* Whether all logits are needed, and the taps of the step. */
bool ht_probing_needs_logits(const ht_probing *p);
bool ht_probing_needs_taps(const ht_probing *p);
/* Reads the finite logits from which a token was drawn, and taps if needed; on a thread of the step. */
void ht_probing_look(ht_probing *p, int32_t token, const float *logits, const float *taps);

/* Values that only the owner of the answer has. */
typedef struct ht_probing_token {
    int32_t token;
    int64_t index;
    const ht_session *s;              /* the token is not among its tokens yet */
    size_t cache_bytes, cache_budget; /* of an engine; 0: there is none */
} ht_probing_token;
/* Passes all kinds to fn; NULL: to the options' function. */
void ht_probing_show(ht_probing *p, const ht_probing_token *t, ht_probe_fn *fn, void *user);

/* A copy that includes everything it lends, for `free`; *bytes is its size. NULL when memory runs out. */
ht_probe *ht_probe_copy(const ht_probe *probe, size_t *bytes);

#endif
