/* Child processes with a line protocol: a program, a script that it reads, and its standard streams.
 *
 * A child leads a process group, so that its descendants end with it, and is always reaped. No shell is used, the
 * script is a pipe, and only descriptors 0 to 3 are inherited. Writing to a child that has ended returns an error,
 * no signal. Not thread-safe. */
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
/* Appends the last lines of standard error to the message in `err`, as far as they fit. */
void ht_child_add_errors(ht_child *c, ht_error *err);

/* Closes the child's input, waits up to `seconds` for it to exit, then kills its process group and frees `c`. NULL
 * is fine. */
void ht_child_end(ht_child *c, double seconds);

#endif
