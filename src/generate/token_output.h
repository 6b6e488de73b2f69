/* Output of generated tokens: ids in; text out, up to a stop string, or an answer in its parts. */
#ifndef HT_GENERATE_TOKEN_OUTPUT_H
#define HT_GENERATE_TOKEN_OUTPUT_H

#include "base/text.h"
#include "chat/response.h"

#include <hearth/generate.h>

/* Figures of a call that has done nothing yet. */
static inline ht_metrics ht_metrics_none(void) { return (ht_metrics){.stop = -1, .stop_id = -1}; }
/* At the end of a call: a failure has no finish, and stops are those of HT_FINISH_STOP alone, which a reader may still refuse. */
static inline void ht_metrics_end(ht_metrics *m, ht_status status) {
    if (status) m->finish = 0;
    if (m->finish != HT_FINISH_STOP) m->stop = m->stop_id = -1;
}

/* ---- text up to a stop string ---- */

/* Text is held back only as far as it could be the beginning of a stop string. */
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

/* ---- tokens ---- */

typedef struct ht_token_output {
    const ht_tokenizer *tokenizer; /* lent; NULL only where nobody wants text */
    ht_decoder *decoder;           /* NULL: nobody wants text */
    ht_text_stream stream;
    ht_response_reader *answer; /* lent, reads the text and hands it over in parts; NULL: fn gets it */
    bool has_text;              /* a token with text has come */
    bool no_memory;             /* for the answer */
} ht_token_output;

/* Begins an output to `fn`, or to `answer`, which is not NULL then; both NULL: tokens are taken for their stop strings
 * alone. `o` is to be freed in any case and may not move. HT_ERR_ARGUMENT for stop strings that are none. */
ht_status ht_token_output_begin(ht_token_output *o, const ht_tokenizer *t, const ht_generate_options *options,
                                ht_response_reader *answer, ht_text_fn *fn, void *user, ht_error *err);
void ht_token_output_free(ht_token_output *o);

/* The output goes on with the text of n tokens, if they have any. */
void ht_token_output_join(ht_token_output *o, const int32_t *ids, int64_t n);
/* Takes a token. *finish is HT_FINISH_STOP for a stop string (stream.found), HT_FINISH_CALLBACK when nobody wants more, else untouched. */
ht_status ht_token_output_put(ht_token_output *o, int32_t id, ht_finish *finish, ht_error *err);
/* Hands over what was held back, whatever ended the output; *finish as above. */
ht_status ht_token_output_end(ht_token_output *o, ht_finish *finish, ht_error *err);

#endif
