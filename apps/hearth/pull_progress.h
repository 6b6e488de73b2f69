/* Progress of a download: on a terminal a line with rate and time left, elsewhere a line for each file; and notes between them. Any thread
 * may add to it. */
#ifndef HEARTH_APP_PULL_PROGRESS_H
#define HEARTH_APP_PULL_PROGRESS_H

#include <hearth/status.h>

#include <stdbool.h>
#include <stdint.h>

typedef struct pull_progress {
    bool quiet, terminal, shown;
    int64_t total, done; /* bytes of all files */
    double rate;         /* bytes per second of late; 0: not known yet */
    double since;        /* seconds, when the rate was measured last */
    int64_t done_then;
} pull_progress;

enum { SIZE_BYTES = 32 };
/* "1.2 GB"; returns `text`. */
const char *size_text(int64_t bytes, char text[SIZE_BYTES]);

/* The bytes of `done` were there before. */
void pull_progress_begin(pull_progress *p, bool quiet, int64_t total, int64_t done);
/* More bytes are there, or fewer where some were wrong: of the file of that name, which is shown. */
void pull_progress_add(pull_progress *p, const char *name, int64_t bytes);
void pull_progress_clear(pull_progress *p);
/* A sentence on a line of its own, unless quiet. Control characters in it become question marks. */
void pull_note(pull_progress *p, const char *format, ...) HT_PRINTF(2, 3);

#endif
