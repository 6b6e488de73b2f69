/* Child process internals, shared by the files that start it and speak with it. */
#ifndef HT_BACKENDS_CHILD_INTERNAL_H
#define HT_BACKENDS_CHILD_INTERNAL_H

#include "backends/child.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

enum { HT_CHILD_ERRORS_KEPT = 2048 };

struct ht_child {
    const char *name;
    pid_t pid;
    bool reaped; /* waited for, by this library or by the program around it */
    bool known;  /* `status` is what waitpid gave */
    int status;
    int to, from, errors; /* descriptors of its standard input, output and error; -1: closed */
    size_t line_bytes;
    char *in; /* [capacity] read from it; lines begin at `taken`, `scanned` bytes are known to hold no newline */
    size_t n, capacity, taken, scanned;
    char tail[HT_CHILD_ERRORS_KEPT]; /* of standard error, the last n_tail bytes */
    size_t n_tail;
};

#endif
