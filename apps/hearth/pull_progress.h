/* Download progress: on a terminal one line with rate and time left, elsewhere one line per file; and notes in between.
 * Thread-safe. */
#ifndef HEARTH_APP_PULL_PROGRESS_H
#define HEARTH_APP_PULL_PROGRESS_H

#include <hearth/status.h>

#include <stdbool.h>
#include <stdint.h>

typedef struct pull_progress {
    bool quiet, terminal, shown;
    int64_t total, done; /* bytes of all files */
    double rate;         /* recent bytes per second; 0: not known yet */
    double since;        /* time of the last rate measurement, in seconds */
    int64_t done_then;
} pull_progress;

enum { SIZE_BYTES = 32 };
/* "1.2 GB"; returns `text`. */
const char *size_text(int64_t bytes, char text[SIZE_BYTES]);

/* `done`: bytes fetched by earlier calls, which do not count towards the rate. */
void pull_progress_begin(pull_progress *p, bool quiet, int64_t total, int64_t done);
/* Adds bytes of the named file; a negative number when wrong bytes were discarded. */
void pull_progress_add(pull_progress *p, const char *name, int64_t bytes);
void pull_progress_clear(pull_progress *p);
/* Prints a sentence on a separate line, unless quiet. Control characters become question marks. */
void pull_note(pull_progress *p, const char *format, ...) HT_PRINTF(2, 3);

#endif
