/* Child processes that are spoken with in lines: a program, a script that it reads, its standard streams.
 *
 * A child has a process group, so that all that it starts ends with it, and is always waited for. No shell is asked, the script is no
 * file, and only descriptors 0 to 3 are inherited. Writing to a child that is gone is an error, not a signal. One thread at a time. */
#ifndef HT_BACKENDS_CHILD_H
#define HT_BACKENDS_CHILD_H

#include <hearth/cancel.h>

#include <stddef.h>

typedef struct ht_child ht_child;

typedef struct ht_child_options {
    const char *name;    /* for messages, lent as long as the child lives */
    const char *program; /* a path, or a name that PATH has */
    const char *script;  /* its argument; no longer than a pipe holds, 16 KiB everywhere, 64 KiB on Linux */
    size_t line_bytes;   /* that a line may have, without its newline */
} ht_child_options;

/* Starts it. The caller ends *out. HT_ERR_IO when it cannot be started. */
ht_status ht_child_start(const ht_child_options *options, ht_child **out, ht_error *err);

/* How long a call may wait. */
typedef struct ht_child_wait {
    double until;            /* on the clock of ht_now_seconds */
    double seconds;          /* that were given in all, for the message */
    const char *what;        /* for, "the first token" */
    const ht_cancel *cancel; /* NULL: never */
} ht_child_wait;

ht_child_wait ht_child_wait_for(double seconds, const char *what, const ht_cancel *cancel);

/* HT_ERR_LIMIT: too late, or a line too long; HT_ERR_CANCELLED: before the first byte of a write; HT_ERR_IO: the child
 * is gone. Any other failure may leave half a line. */
ht_status ht_child_write(ht_child *c, const char *bytes, size_t n, const ht_child_wait *wait, ht_error *err);
/* The next line, without its newline, NUL-terminated, lent until the next call. */
ht_status ht_child_read(ht_child *c, const ht_child_wait *wait, char **line, size_t *n, ht_error *err);
/* Puts the last lines of standard error behind the message in `err`, as far as they fit. */
void ht_child_add_errors(ht_child *c, ht_error *err);

/* Closes its input, waits so long for it to end by itself, then ends it and all of its group, and frees `c`. NULL is fine. */
void ht_child_end(ht_child *c, double seconds);

#endif
