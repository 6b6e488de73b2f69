/* Output text stream of generation: pieces of text in, text that may be shown out. Text is held back only as far as it
 * could be the beginning of a stop string. */
#ifndef HT_GENERATE_TEXT_STREAM_H
#define HT_GENERATE_TEXT_STREAM_H

#include "base/text.h"

#include <hearth/generate.h>

typedef struct ht_text_stream {
    const char *const *stop; /* lent, checked */
    int n_stop;
    int found;      /* the stop string that came; -1: none */
    ht_text_fn *fn; /* NULL: nobody reads */
    void *user;
    ht_text held;
    bool closed; /* a stop string came, or fn returned false: nothing is handed over any more */
} ht_text_stream;

/* Empty stop strings and ones that are not UTF-8 are refused. */
ht_status ht_text_stream_check_stops(const char *const *stop, int n_stop, ht_error *err);
void ht_text_stream_free(ht_text_stream *o);

typedef enum ht_text_stream_state {
    HT_TEXT_STREAM_OPEN,
    HT_TEXT_STREAM_STOPPED,
    HT_TEXT_STREAM_REFUSED,
    HT_TEXT_STREAM_NO_MEMORY
} ht_text_stream_state;

/* Takes whole characters and hands over what cannot be part of a stop string any more. */
ht_text_stream_state ht_text_stream_put(ht_text_stream *o, const char *text, size_t n);
/* Hands over what is still held: no stop string came. */
ht_text_stream_state ht_text_stream_end(ht_text_stream *o);

#endif
