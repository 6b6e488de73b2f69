/* Output text stream of generation: pieces of text in, text that may be shown out. Text is held back only as far as it
 * could be the beginning of a stop string. */
#ifndef HT_GENERATE_OUTPUT_H
#define HT_GENERATE_OUTPUT_H

#include "base/text.h"

#include <hearth/session.h>

typedef struct ht_output {
    const char *const *stop; /* lent, checked */
    int n_stop;
    ht_text_fn *fn; /* NULL: nobody reads */
    void *user;
    ht_text held;
    bool closed; /* a stop string came, or fn returned false: nothing is handed over any more */
} ht_output;

/* Empty stop strings and ones that are not UTF-8 are refused. */
ht_status ht_output_check_stops(const char *const *stop, int n_stop, ht_error *err);
void ht_output_free(ht_output *o);

typedef enum ht_output_state {
    HT_OUTPUT_OPEN,
    HT_OUTPUT_STOPPED,
    HT_OUTPUT_REFUSED,
    HT_OUTPUT_NO_MEMORY
} ht_output_state;

/* Takes whole characters and hands over what cannot be part of a stop string any more. */
ht_output_state ht_output_put(ht_output *o, const char *text, size_t n);
/* Hands over what is still held: no stop string came. */
ht_output_state ht_output_end(ht_output *o);

#endif
