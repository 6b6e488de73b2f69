/* Capabilities of a model, as its template and its vocabulary tell them. */
#ifndef HT_SERVE_CAPABILITIES_H
#define HT_SERVE_CAPABILITIES_H

#include <hearth/tokenizer.h>

#include <stdbool.h>

typedef struct serve_capabilities {
    bool template; /* the checkpoint has one of its own; without, nothing is known of the next two */
    bool tools;    /* the template writes tools */
    bool thinking; /* it can be told to have the model think, or marks thoughts */
    bool insert;   /* the vocabulary has marks of what is before and behind a gap (infill.h) */
} serve_capabilities;

/* NULL: a model without a tokenizer, which has none of them. Renders the template a few times. */
serve_capabilities serve_capabilities_of(const ht_tokenizer *t);

#endif
