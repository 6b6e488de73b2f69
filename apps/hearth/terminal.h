/* Standard streams and signals: results on stdout, everything else on stderr, progress only on a terminal. A closed
 * pipe ends the program silently; Ctrl-C requests cancellation. */
#ifndef HEARTH_APP_TERMINAL_H
#define HEARTH_APP_TERMINAL_H

#include <hearth/cancel.h>

#include <stdbool.h>
#include <stddef.h>

/* Call first. Reserves the descriptors of closed standard streams, and turns SIGPIPE and SIGXFSZ into write errors. */
void terminal_begin(void);

/* ---- stdout ---- */

/* Appends to stdout. After a failed write it returns false and discards further output. */
bool output_write(const char *bytes, size_t n);
/* Prints a line; control characters become question marks. */
void output_line(const char *format, ...) HT_PRINTF(1, 2);
/* The same, with the name in a left column. */
void output_field(const char *name, const char *format, ...) HT_PRINTF(2, 3);
/* Prints lines of complete characters; control characters except newlines and tabs become question marks. */
bool output_text(const char *text, size_t n);
/* Prints `left`, then the text from `column` on, wrapped at 80 columns. A long `left` takes its own line. */
void output_entry(const char *left, int column, const char *text);
/* Wraps paragraphs at 80 columns, each after an empty line. "\n\n" ends a paragraph; a single "\n" ends a line. */
void output_paragraphs(const char *text);
bool output_flush(void);
/* Flushes; returns `status`, or EXIT_FAILED with a message when writing to stdout failed. A closed pipe is not a
 * failure. */
int output_finish(int status);
/* Reports that the output is incomplete; output_finish will return EXIT_FAILED. */
void output_lacks(const char *why);
/* Whether the reader of stdout has gone away. */
bool output_reader_gone(void);
bool output_is_terminal(void);

/* ---- stderr ---- */

/* Replaces control characters by question marks, in place: text from paths and checkpoints is untrusted. */
void make_printable(char *text);
/* Prints "hearth: " and a sentence on one line. */
void warn(const char *format, ...) HT_PRINTF(1, 2);
/* Prints an error likewise; returns EXIT_FAILED. */
int report(const ht_error *err);

/* Prints the library's notes on stderr from now on, one per line. */
void notes_begin(void);

/* A progress line, overwritten in place. Silent with `quiet` or when stderr is not a terminal. */
typedef struct progress {
    const char *what;
    bool on, shown;
    double begin; /* start time; the line appears half a second later */
} progress;
void progress_begin(progress *p, const char *what, bool quiet);
/* A progress callback for the library; `user` is a progress, done is 0 to 1. */
void progress_show(double done, void *user);
void progress_end(progress *p);

/* ---- Ctrl-C ---- */

/* From now on SIGINT, SIGTERM and SIGHUP cancel calls that have the flag; a second signal ends the process. */
void interrupt_watch(void);
const ht_cancel *interrupt_flag(void); /* also calls interrupt_watch */
void interrupt_request(void);          /* cancels calls as a signal would */
bool interrupted(void);                /* whether a signal arrived */
/* From now on a first SIGINT only cancels calls; a second one before interrupt_taken() counts as interrupted().
 * Returns false and changes nothing if no descriptors are left. */
bool interrupts_count(void);
/* For poll: readable after a signal since interrupts_count() or interrupt_taken(). A read begun later would block. */
int interrupt_descriptor(void);
/* Clears the cancellation of a first SIGINT; returns whether there was one. */
bool interrupt_taken(void);
/* Call last, with stdout flushed. Ends the process by the received signal (status 130 for Ctrl-C, 143 for SIGTERM), so
 * that a calling shell script stops too. Without a signal returns `status`. */
int interrupt_end(int status);

/* Plural suffix after a count: "%lld token%s". */
#define plural(n) ((n) == 1 ? "" : "s")

/* "350 MB", "1.2 GB"; returns `out`. */
const char *bytes_text(double bytes, char out[24]);

double now_seconds(void); /* of a monotonic clock */
/* Peak resident memory of the process in bytes; 0 if unknown. */
long long peak_memory_bytes(void);

#endif
