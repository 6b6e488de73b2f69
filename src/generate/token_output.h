/* Output of generated tokens: ids in; text out, up to a stop string, or an answer in its parts. */
#ifndef HT_GENERATE_TOKEN_OUTPUT_H
#define HT_GENERATE_TOKEN_OUTPUT_H

#include "base/text.h"
#include "chat/response.h"

#include <hearth/generate.h>

/* Metrics of a call that has done nothing yet. */
static inline ht_metrics ht_metrics_none(void) { return (ht_metrics){.stop = -1, .stop_id = -1}; }
/* Completes a call's metrics: a failure has no finish, and only HT_FINISH_STOP has stops. */
static inline void ht_metrics_end(ht_metrics *m, ht_status status) {
    if (status) m->finish = 0;
    if (m->finish != HT_FINISH_STOP) m->stop = m->stop_id = -1;
}

/* ---- text up to a stop string ---- */

/* Holds back text only while it could begin a stop string. */
typedef struct ht_text_stream {
    const char *const *stop; /* lent, checked */
    int n_stop;
    int found;      /* the stop string that came; -1: none */
    ht_text_fn *fn; /* NULL: no reader */
    void *user;
    ht_text held;
    bool closed; /* a stop string came, or fn returned false: no more text is delivered */
} ht_text_stream;

/* Rejects stop strings that are empty or not UTF-8. */
ht_status ht_text_stream_check_stops(const char *const *stop, int n_stop, ht_error *err);
void ht_text_stream_free(ht_text_stream *o);

typedef enum ht_text_stream_state {
    HT_TEXT_STREAM_OPEN,
    HT_TEXT_STREAM_STOPPED,
    HT_TEXT_STREAM_REFUSED,
    HT_TEXT_STREAM_NO_MEMORY
} ht_text_stream_state;

/* Takes whole characters, and delivers text that cannot be part of a stop string. */
ht_text_stream_state ht_text_stream_put(ht_text_stream *o, const char *text, size_t n);
/* Delivers the held text: no stop string came. */
ht_text_stream_state ht_text_stream_end(ht_text_stream *o);

/* ---- tokens ---- */

typedef struct ht_token_output {
    const ht_tokenizer *tokenizer; /* lent; NULL only when no text is wanted */
    ht_decoder *decoder;           /* NULL: no text is wanted */
    ht_text_stream stream;
    ht_response_reader *answer; /* lent: splits the text into parts; NULL: fn receives it */
    bool has_text;              /* a token with text has come */
    bool no_memory;             /* for the answer */
} ht_token_output;

/* Begins an output to `fn`, or to `answer` unless it is NULL; both NULL: tokens are only searched for stop strings.
 * Free `o` even after a failure, and never move it. HT_ERR_ARGUMENT: invalid stop strings. */
ht_status ht_token_output_begin(ht_token_output *o, const ht_tokenizer *t, const ht_generate_options *options,
                                ht_response_reader *answer, ht_text_fn *fn, void *user, ht_error *err);
void ht_token_output_free(ht_token_output *o);

/* Makes the output continue the text of n tokens, if they have any. */
void ht_token_output_join(ht_token_output *o, const int32_t *ids, int64_t n);
/* Takes a token. *finish: HT_FINISH_STOP at a stop string (stream.found), HT_FINISH_CALLBACK if refused. */
ht_status ht_token_output_put(ht_token_output *o, int32_t id, ht_finish *finish, ht_error *err);
/* Delivers held-back text, whatever ended the output; *finish as above. */
ht_status ht_token_output_end(ht_token_output *o, ht_finish *finish, ht_error *err);

#endif
