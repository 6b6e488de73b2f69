/* An answer as it comes: shown on standard output, or kept whole. */
#ifndef HEARTH_APP_ANSWER_H
#define HEARTH_APP_ANSWER_H

#include "formats/json.h"
#include "options.h"

#include <hearth/generate.h>

typedef struct answer_part {
    char *text; /* NUL-terminated; NULL: nothing came */
    size_t n, capacity;
} answer_part;

/* Zero-initialise, but for the first two. */
typedef struct answer {
    bool shows; /* thoughts on a terminal alone, dimmed there */
    bool keeps; /* in what follows */
    answer_part text, thinking;
    ht_json *calls; /* NULL: none */
    bool has_text, has_thought, out_of_memory;
    bool in_line, dimmed; /* what standard output ends with */
} answer;

/* An ht_text_fn and an ht_answer_fn, whose `user` is the answer. */
bool answer_text(const char *text, size_t n, void *user);
bool answer_piece(const ht_answer_piece *piece, void *user);
/* Ends what is shown with a line's end. */
void answer_end(answer *a);
void answer_free(answer *a);

/* Tokens per second of prefill and of decoding; 0 where there were none. */
double prefill_rate(const ht_metrics *m);
double decode_rate(const ht_metrics *m);
/* Seconds and rates of an answer as one line, without its end, to standard error. */
void metrics_print(const ht_metrics *m);
/* A line on standard error for an answer that max_tokens or the context ended, with the options that help; with --quiet the context
 * alone. */
void limit_print(const options *o, const ht_metrics *m, int32_t max_tokens, int64_t context, const answer *a);

#endif
