/* The program's three streams and its signals: results on stdout, everything else on stderr, progress only when stderr
 * is a terminal, an end without noise when a pipe closes, and Ctrl-C as a request to stop. */
#ifndef HEARTH_APP_TERMINAL_H
#define HEARTH_APP_TERMINAL_H

#include <hearth/cancel.h>

#include <stdbool.h>
#include <stddef.h>

/* Call first: standard streams that are closed are put where no file opened later can take their place, a closed pipe
 * and a file-size limit become errors of writing, and a file that shrinks while it is read ends the process with a
 * sentence. */
void terminal_begin(void);

/* ---- stdout ---- */

/* Appends to stdout. False once a write has failed; what follows is then dropped. */
bool output_write(const char *bytes, size_t n);
/* One line: control characters in it become question marks. */
void output_line(const char *format, ...) HT_PRINTF(1, 2);
/* The same with a name in front, in a column of its own. */
void output_field(const char *name, const char *format, ...) HT_PRINTF(2, 3);
/* Lines of whole characters, with question marks for all other control characters but tabs. */
bool output_text(const char *text, size_t n);
/* A list's line: `left`, and the text from `column` on, in lines of 80 columns. Texts that begin too late have lines of their own. */
void output_entry(const char *left, int column, const char *text);
/* An empty line and the text in lines of 80 columns, for each of the paragraphs, which end with "\n\n"; a "\n" alone ends a line. */
void output_paragraphs(const char *text);
bool output_flush(void);
/* Flushes; returns `status`, or EXIT_FAILED with a message when stdout could not be written. A reader that went away
 * is no failure and no message. */
int output_finish(int status);
/* Says why something is missing in what is written, for which output_finish returns EXIT_FAILED. */
void output_lacks(const char *why);
/* Whether the reader of stdout has gone away. */
bool output_reader_gone(void);
bool output_is_terminal(void);

/* ---- stderr ---- */

/* Makes a text fit for one line of a terminal, in place: control characters, which paths and checkpoints may hold, become
 * question marks. */
void make_printable(char *text);
/* Prints "hearth: " and a sentence, on one line. */
void warn(const char *format, ...) HT_PRINTF(1, 2);
/* The same of an error; returns EXIT_FAILED. */
int report(const ht_error *err);

/* From now on what the library has to say beside results is printed, a line each. */
void notes_begin(void);

/* A line that is overwritten while something long goes on. Silent when `quiet` or when stderr is no terminal. */
typedef struct progress {
    const char *what;
    bool on, shown;
    double begin; /* seconds; the line appears half a second later */
} progress;
void progress_begin(progress *p, const char *what, bool quiet);
/* A progress function of the library, whose `user` is a progress; done: 0 to 1. */
void progress_show(double done, void *user);
void progress_end(progress *p);

/* ---- Ctrl-C ---- */

/* From now on SIGINT, SIGTERM and SIGHUP request the end of the calls that have the flag; a second one ends the process. */
void interrupt_watch(void);
const ht_cancel *interrupt_flag(void); /* watches, too */
void interrupt_request(void);          /* as if one had come to those that have the flag */
bool interrupted(void);                /* whether such a signal came */
/* From now on the first SIGINT only requests the end of such calls, and the next one that comes before interrupt_taken() is as before.
 * False, and nothing has changed, where the system has no descriptors left. */
bool interrupts_count(void);
/* Can be read from when a signal has come since then, or since interrupt_taken(): for poll, as a read that begins afterwards would wait. */
int interrupt_descriptor(void);
/* Takes back what the first requested; whether there was one. */
bool interrupt_taken(void);
/* Call last, with stdout flushed: ends the process by the signal that came, so that a shell that runs commands in a row ends,
 * too (status 130 for Ctrl-C, 143 for SIGTERM). Without one it returns `status`. */
int interrupt_end(int status);

/* The end of a noun after a count: "%lld token%s". */
#define plural(n) ((n) == 1 ? "" : "s")

/* "350 MB", "1.2 GB"; returns `out`. */
const char *bytes_text(double bytes, char out[24]);

double now_seconds(void); /* of a clock that only goes forward */
/* The most memory the process has had resident, in bytes; 0 where the system does not say. */
long long peak_memory_bytes(void);

#endif
