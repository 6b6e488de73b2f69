/* An answer as it comes: shown on standard output, or kept whole; its figures and probes. */
#ifndef HEARTH_APP_ANSWER_H
#define HEARTH_APP_ANSWER_H

#include "options.h"

#include <hearth/generate.h>

#include <stdio.h>

/* Zero-initialise, but for the first two. */
typedef struct answer {
    bool shows; /* thoughts on a terminal alone, dimmed there */
    bool keeps; /* in what follows */
    ht_text text, thinking;
    ht_json *calls; /* NULL: none */
    bool has_text, has_thought, out_of_memory;
    bool in_line, dimmed; /* what standard output ends with */
} answer;

/* A call as {"name", "arguments"}, and "id" if it has one. */
ht_json *call_json(const ht_tool_call *call);

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

/* ---- probes: the JSON lines of --probe in the file of --probe-out, or on standard error ---- */

typedef struct probe_lines {
    ht_probe_options options; /* for ht_generate_options; its user is this struct, which must not move */
    FILE *file;
    const char *path; /* NULL: standard error */
    bool failed;      /* something could not be written */
} probe_lines;

/* Kinds of "token,entropy" or "all", added up; 0 for a list that names something else. */
unsigned probes_kinds(const char *list);
/* Opens the file; to be closed after a failure, too. */
ht_status probes_open(const options *o, probe_lines *p, ht_error *err);
/* HT_ERR_IO when not all lines are in the file. */
ht_status probes_close(probe_lines *p, ht_error *err);

#endif
