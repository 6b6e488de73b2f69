/* Streams an answer to standard output or collects it, and reports its statistics and probes. */
#ifndef HEARTH_APP_ANSWER_H
#define HEARTH_APP_ANSWER_H

#include "options.h"

#include <hearth/generate.h>

#include <stdio.h>

/* Set `shows` and `keeps`; zero-initialise the rest. */
typedef struct answer {
    bool shows; /* streams to stdout; reasoning only on a terminal, dimmed */
    bool keeps; /* collects text, thinking and calls */
    ht_text text, thinking;
    ht_json *calls; /* NULL: none */
    bool has_text, has_thought, out_of_memory;
    bool in_line, dimmed; /* state of the output's end: inside a line, dimmed */
} answer;

/* A call as {"name", "arguments"}, and "id" if it has one. */
ht_json *call_json(const ht_tool_call *call);

/* Callbacks of type ht_text_fn and ht_answer_fn; `user` is the answer. */
bool answer_text(const char *text, size_t n, void *user);
bool answer_piece(const ht_answer_piece *piece, void *user);
/* Terminates the streamed output with a newline. */
void answer_end(answer *a);
void answer_free(answer *a);

/* Tokens per second in prefill and in decode; 0 without such tokens. */
double prefill_rate(const ht_metrics *m);
double decode_rate(const ht_metrics *m);
/* Prints durations and rates to standard error, without a newline. */
void metrics_print(const ht_metrics *m);
/* Reports an answer that max_tokens or the context cut short, with the options that help.
 * --quiet reports only a full context. */
void limit_print(const options *o, const ht_metrics *m, int32_t max_tokens, int64_t context, const answer *a);

/* ---- probes: the JSON lines of --probe in the file of --probe-out, or on standard error ---- */

typedef struct probe_lines {
    ht_probe_options options; /* for ht_generate_options; its user is this struct, which must not move */
    FILE *file;
    const char *path; /* NULL: standard error */
    bool failed;      /* a write failed */
} probe_lines;

/* Bit mask of probe kinds from a list such as "token,entropy" or "all"; 0 for an unknown kind. */
unsigned probes_kinds(const char *list);
/* Opens the file. Call probes_close also after a failure. */
ht_status probes_open(const options *o, probe_lines *p, ht_error *err);
/* HT_ERR_IO if a line could not be written. */
ht_status probes_close(probe_lines *p, ht_error *err);

#endif
