#include "terminal.h"

#include "command.h"

#include <hearth/log.h>

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

void terminal_begin(void) {
    /* Opened in the wrong direction, so that using a closed stream remains an error. */
    for (int fd = 0; fd <= 2; fd++)
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", fd == 0 ? O_WRONLY : O_RDONLY) != fd) _exit(EXIT_FAILED);
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN);
}

/* ---- stdout ---- */

static int output_error;       /* errno of the first failed write */
static bool output_incomplete; /* output is incomplete, and the reason has been printed */

static bool note_failure(bool good) {
    if (!good && !output_error) output_error = errno ? errno : EIO;
    return !output_error;
}

bool output_write(const char *bytes, size_t n) {
    return note_failure(!output_error && fwrite(bytes, 1, n, stdout) == n);
}

enum { LINE_BYTES = 8192 }; /* enough for a path and a message */

static void write_line(const char *name, const char *format, va_list args) {
    char text[LINE_BYTES];
    int n = name ? snprintf(text, sizeof text, "%-14s ", name) : 0;
    vsnprintf(text + n, sizeof text - (size_t)n, format, args);
    make_printable(text);
    output_write(text, strlen(text));
    output_write("\n", 1);
}

static bool is_c0_control(unsigned char c) { return c < 0x20 || c == 0x7F; }

/* C2 80 to C2 9F in UTF-8. */
static bool is_c1_control(const unsigned char *at) { return at[0] == 0xC2 && at[1] >= 0x80 && at[1] < 0xA0; }

void output_line(const char *format, ...) {
    va_list args;
    va_start(args, format);
    write_line(NULL, format, args);
    va_end(args);
}

void output_field(const char *name, const char *format, ...) {
    va_list args;
    va_start(args, format);
    write_line(name, format, args);
    va_end(args);
}

bool output_text(const char *text, size_t n) {
    bool good = true;
    for (size_t i = 0; good && i < n; i++) {
        const unsigned char *at = (const unsigned char *)text + i;
        const bool c1 = i + 1 < n && is_c1_control(at), control = *at != '\n' && *at != '\t' && is_c0_control(*at);
        good = output_write(c1 || control ? "?" : text + i, 1);
        i += c1;
    }
    return good;
}

enum { COLUMNS = 80 };

/* Columns of n bytes of UTF-8, assuming one per character. */
static int columns_of(const char *text, size_t n) {
    int columns = 0;
    for (size_t i = 0; i < n; i++) columns += (text[i] & 0xC0) != 0x80;
    return columns;
}

/* Wraps words at COLUMNS with `indent`; the first line continues at column `at`. */
static void write_words(const char *text, size_t n, int at, int indent) {
    bool first = true;
    for (size_t i = 0; i < n;) {
        const size_t spaces = strspn(text + i, " ");
        i += spaces;
        size_t end = i;
        while (end < n && text[end] != ' ') end++;
        if (end == i) break;
        const int width = columns_of(text + i, end - i);
        if (!first && at + 1 + width > COLUMNS) {
            printf("\n%*s", indent, "");
            at = indent;
        } else if (!first) {
            output_write(" ", 1);
            at++;
        }
        output_write(text + i, end - i);
        at += width;
        first = false;
        i = end;
    }
    output_write("\n", 1);
}

void output_entry(const char *left, int column, const char *text) {
    int at = columns_of(left, strlen(left));
    output_write(left, strlen(left));
    if (at + 2 > column) {
        output_write("\n", 1);
        at = 0;
    }
    printf("%*s", column - at, "");
    write_words(text, strlen(text), column, column);
}

void output_paragraphs(const char *text) {
    output_write("\n", 1);
    for (const char *end; *text; text = end + (*end == '\n')) {
        end = text + strcspn(text, "\n");
        write_words(text, (size_t)(end - text), 0, 0);
    }
}

/* printf also flushes when its buffer is full; ferror is the only trace of a failure there. */
bool output_flush(void) { return note_failure(!output_error && fflush(stdout) == 0 && !ferror(stdout)); }

int output_finish(int status) {
    if (output_flush() || output_reader_gone()) return output_incomplete ? EXIT_FAILED : status;
    fprintf(stderr, "hearth: standard output cannot be written: %s\n", strerror(output_error));
    return EXIT_FAILED;
}

bool output_reader_gone(void) { return output_error == EPIPE; }
bool output_is_terminal(void) { return isatty(STDOUT_FILENO) == 1; }

/* ---- stderr ---- */

void make_printable(char *text) {
    for (unsigned char *at = (unsigned char *)text; *at; at++) {
        const bool c1 = is_c1_control(at);
        if (c1) *at++ = '?';
        if (c1 || is_c0_control(*at)) *at = '?';
    }
}

void warn(const char *format, ...) {
    char text[LINE_BYTES];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    make_printable(text);
    fprintf(stderr, "hearth: %s\n", text);
}

void output_lacks(const char *why) {
    warn("%s", why);
    output_incomplete = true;
}

int report(const ht_error *err) {
    warn("%s", err->message);
    return EXIT_FAILED;
}

static void print_note(ht_log_level level, const char *message, void *user) {
    (void)level, (void)user;
    warn("%s", message);
}

void notes_begin(void) { ht_log_set(print_note, HT_LOG_INFO, NULL); }

void progress_begin(progress *p, const char *what, bool quiet) {
    *p = (progress){.what = what, .on = !quiet && isatty(STDERR_FILENO) == 1, .begin = now_seconds()};
}

void progress_show(double done, void *user) {
    progress *p = user;
    if (!p->on || now_seconds() - p->begin < 0.5) return;
    fprintf(stderr, "\r\033[K%s %3.0f %%", p->what, done * 100);
    fflush(stderr);
    p->shown = true;
}

void progress_end(progress *p) {
    if (p->shown) fputs("\r\033[K", stderr);
    p->on = p->shown = false;
}

/* ---- Ctrl-C ---- */

static ht_cancel interruption;
static volatile sig_atomic_t signalled; /* signal number; 0: none yet */

static int wake[2] = {-1, -1}; /* a pipe, after interrupts_count() */

static void request_end(void) {
    const int before = errno;
    ht_cancel_request(&interruption);
    if (wake[1] >= 0 && write(wake[1], "", 1) < 0) errno = before; /* a full pipe wakes the reader as well */
    errno = before;
}

static void on_signal(int number) {
    signalled = number;
    request_end();
}

void interrupt_watch(void) {
    static const int numbers[] = {SIGINT, SIGTERM, SIGHUP};
    static bool watching;
    if (watching) return;
    watching = true;
    /* SA_RESETHAND: a second Ctrl-C ends the process at once. */
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = (int)SA_RESETHAND};
    sigemptyset(&action.sa_mask);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        struct sigaction before;
        /* `nohup` starts the process with SIGHUP ignored; keep that. */
        bool ignored = sigaction(numbers[i], NULL, &before) == 0 && before.sa_handler == SIG_IGN;
        if (!(ignored && numbers[i] == SIGHUP)) sigaction(numbers[i], &action, NULL);
    }
}

const ht_cancel *interrupt_flag(void) {
    interrupt_watch();
    return &interruption;
}

void interrupt_request(void) { ht_cancel_request(&interruption); }

bool interrupted(void) { return signalled != 0; }

static volatile sig_atomic_t presses; /* of Ctrl-C */

static void on_press(int number) {
    if (presses++) signalled = number;
    request_end();
}

bool interrupts_count(void) {
    interrupt_watch();
    if (pipe(wake) != 0) return false;
    for (int i = 0; i < 2; i++) {
        fcntl(wake[i], F_SETFL, O_NONBLOCK);
        fcntl(wake[i], F_SETFD, FD_CLOEXEC);
    }
    struct sigaction action = {.sa_handler = on_press, .sa_flags = SA_RESTART}; /* writes must not fail with EINTR */
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, NULL);
    return true;
}

int interrupt_descriptor(void) { return wake[0]; }

bool interrupt_taken(void) {
    char bytes[64];
    const bool came = presses > 0;
    presses = 0;
    if (came && !signalled) ht_cancel_reset(&interruption);
    while (!signalled && read(wake[0], bytes, sizeof bytes) > 0) {}
    return came;
}

int interrupt_end(int status) {
    int number = signalled;
    if (!number) return status;
    signal(number, SIG_DFL);
    raise(number);
    return 128 + number; /* the signal is blocked: return the shell's exit status for it */
}

/* ---- the process ---- */

const char *bytes_text(double bytes, char out[24]) {
    snprintf(out, 24, bytes < 1e9 ? "%.0f MB" : "%.1f GB", bytes < 1e9 ? bytes / 1e6 : bytes / 1e9);
    return out;
}

double now_seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

long long peak_memory_bytes(void) {
    /* VmHWM covers only this program; ru_maxrss starts at the parent's size before exec. */
    FILE *f = fopen("/proc/self/status", "re");
    long long kib = 0;
    if (f) {
        char line[256];
        while (!kib && fgets(line, sizeof line, f)) sscanf(line, "VmHWM: %lld kB", &kib);
        fclose(f);
    }
    if (!kib) {
        struct rusage usage;
        if (getrusage(RUSAGE_SELF, &usage) == 0) kib = usage.ru_maxrss;
    }
    return kib * 1024;
}
