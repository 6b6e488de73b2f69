#include "backends/child.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/grow.h"
#include "base/text.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

extern char **environ;

enum { ERRORS_KEPT = 2048 };

struct ht_child {
    const char *name;
    pid_t pid;
    bool reaped; /* waited for, by this library or by the program around it */
    bool known;  /* `status` was set by waitpid */
    int status;
    int to, from, errors; /* descriptors of its standard input, output and error; -1: closed */
    size_t line_bytes;
    char *in; /* [capacity] read from it; lines begin at `taken`, `scanned` bytes are known to hold no newline */
    size_t n, capacity, taken, scanned;
    char tail[ERRORS_KEPT]; /* of standard error, the last n_tail bytes */
    size_t n_tail;
};

/* ---- start ---- */

/* The script's descriptor in the child; the parent's own start at FIRST_FD, out of the way of the child's 0 to 3. */
enum { SCRIPT_FD = 3, FIRST_FD = 10 };
#define SCRIPT_PATH "/dev/fd/3"

/* Pipes of a child: [0] reads, [1] writes; -1: closed. */
typedef struct pipes {
    int input[2], output[2], errors[2], script[2];
} pipes;

static void close_fd(int *fd) {
    if (*fd >= 0) close(*fd);
    *fd = -1;
}

static void close_pipes(pipes *p) {
    int *const all[] = {p->input, p->output, p->errors, p->script};
    for (int i = 0; i < 4; i++) {
        close_fd(&all[i][0]);
        close_fd(&all[i][1]);
    }
}

static bool move_up(int *fd) {
    if (*fd >= FIRST_FD) return true;
    const int higher = fcntl(*fd, F_DUPFD_CLOEXEC, FIRST_FD);
    if (higher < 0) return false;
    close(*fd);
    *fd = higher;
    return true;
}

/* Both ends are closed by exec. Where pipe2 is missing, a process that another thread starts in between gets them, too. */
static bool make_pipe(int fd[2]) {
#if defined(__APPLE__)
    if (pipe(fd)) return false;
    for (int i = 0; i < 2; i++) (void)fcntl(fd[i], F_SETFD, FD_CLOEXEC);
#else
    if (pipe2(fd, O_CLOEXEC)) return false;
#endif
    return move_up(&fd[0]) && move_up(&fd[1]);
}

static bool never_blocks(int fd) {
    const int flags = fcntl(fd, F_GETFL);
    return flags >= 0 && fcntl(fd, F_SETFL, flags | O_NONBLOCK) == 0;
}

static ht_status make_pipes(pipes *p, ht_error *err) {
    const bool made = make_pipe(p->input) && make_pipe(p->output) && make_pipe(p->errors) && make_pipe(p->script) &&
                      never_blocks(p->input[1]) && never_blocks(p->output[0]) && never_blocks(p->errors[0]) &&
                      never_blocks(p->script[1]);
    return made ? HT_OK : ht_fail(err, HT_ERR_IO, "pipes to a child process: %s", strerror(errno));
}

/* Writes the whole script before the child starts to read: it must fit in the pipe's buffer. */
static ht_status put_script(pipes *p, const char *script, ht_error *err) {
    const size_t n = strlen(script);
    const ssize_t put = write(p->script[1], script, n);
    if (put < 0 || (size_t)put != n)
        return ht_fail(err, HT_ERR_LIMIT, "a script of %zu bytes for a child process does not fit a pipe", n);
    close_fd(&p->script[1]);
    return HT_OK;
}

/* Default signal handlers, no blocked signals, and a new process group, which a terminal's Ctrl-C does not reach. */
static int set_attributes(posix_spawnattr_t *a) {
    static const int to_default[] = {SIGHUP, SIGINT, SIGQUIT, SIGPIPE, SIGALRM, SIGTERM, SIGCHLD, SIGUSR1, SIGUSR2};
    sigset_t none, defaults;
    sigemptyset(&none);
    sigemptyset(&defaults);
    for (size_t i = 0; i < sizeof to_default / sizeof *to_default; i++) sigaddset(&defaults, to_default[i]);
    short flags = POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF;
#if defined(POSIX_SPAWN_CLOEXEC_DEFAULT)
    flags |= POSIX_SPAWN_CLOEXEC_DEFAULT;
#endif
    int e = posix_spawnattr_setflags(a, flags);
    if (!e) e = posix_spawnattr_setpgroup(a, 0);
    if (!e) e = posix_spawnattr_setsigmask(a, &none);
    return e ? e : posix_spawnattr_setsigdefault(a, &defaults);
}

static int set_files(posix_spawn_file_actions_t *a, const pipes *p) {
    int e = posix_spawn_file_actions_adddup2(a, p->input[0], STDIN_FILENO);
    if (!e) e = posix_spawn_file_actions_adddup2(a, p->output[1], STDOUT_FILENO);
    if (!e) e = posix_spawn_file_actions_adddup2(a, p->errors[1], STDERR_FILENO);
    if (!e) e = posix_spawn_file_actions_adddup2(a, p->script[0], SCRIPT_FD);
#if defined(__GLIBC__) && defined(__GLIBC_PREREQ)
#if __GLIBC_PREREQ(2, 34)
    /* The child must not inherit other descriptors of the program, such as a server's connections. */
    if (!e) e = posix_spawn_file_actions_addclosefrom_np(a, SCRIPT_FD + 1);
#endif
#endif
    return e;
}

static ht_status spawn(ht_child *c, const char *program, const pipes *p, ht_error *err) {
    posix_spawnattr_t attributes;
    posix_spawn_file_actions_t files;
    char script[] = SCRIPT_PATH, *arguments[] = {(char *)(uintptr_t)program, script, NULL};
    int e = posix_spawnattr_init(&attributes);
    if (e) return ht_fail(err, HT_ERR_IO, "starting %s: %s", program, strerror(e));
    e = posix_spawn_file_actions_init(&files);
    if (!e) {
        e = set_attributes(&attributes);
        if (!e) e = set_files(&files, p);
        if (!e) e = posix_spawnp(&c->pid, program, &files, &attributes, arguments, environ);
        posix_spawn_file_actions_destroy(&files);
    }
    posix_spawnattr_destroy(&attributes);
    return e ? ht_fail(err, HT_ERR_IO, "%s cannot start \"%.200s\": %s", c->name, program, strerror(e)) : HT_OK;
}

ht_status ht_child_start(const ht_child_options *options, ht_child **out, ht_error *err) {
    *out = NULL;
    ht_child *c = calloc(1, sizeof *c);
    if (!c) return ht_fail_memory(err, sizeof *c, "a child process");
    *c = (ht_child){.name = options->name, .line_bytes = options->line_bytes, .to = -1, .from = -1, .errors = -1};
    pipes p = {{-1, -1}, {-1, -1}, {-1, -1}, {-1, -1}};
    ht_status st = make_pipes(&p, err);
    if (!st) st = put_script(&p, options->script, err);
    if (!st) st = spawn(c, options->program, &p, err);
    if (st) {
        close_pipes(&p);
        free(c);
        return st;
    }
    c->to = p.input[1], p.input[1] = -1;
    c->from = p.output[0], p.output[0] = -1;
    c->errors = p.errors[0], p.errors[0] = -1;
    close_pipes(&p);
    *out = c;
    return HT_OK;
}

/* Milliseconds between checks of the cancel flag; bytes of a read; seconds to wait for a child after SIGKILL. */
enum { SLICE_MS = 20, READ_BYTES = 1 << 16, KILL_SECONDS = 10 };

ht_child_wait ht_child_wait_for(double seconds, const char *what, const ht_cancel *cancel) {
    return (ht_child_wait){ht_now_seconds() + seconds, seconds, what, cancel};
}

/* ---- end ---- */

/* Reaps the child if it has ended. Kills its process group before waitpid() frees the id for reuse. */
static bool reap(ht_child *c) {
    if (c->reaped) return true;
    siginfo_t info = {0};
    const int r = waitid(P_PID, (id_t)c->pid, &info, WEXITED | WNOHANG | WNOWAIT);
    if (r == 0 && info.si_pid != c->pid) return false;
    if (r < 0 && errno != ECHILD) return false;
    c->reaped = true;
    if (r < 0) return true; /* another waitpid() in the program has reaped the child */
    kill(-c->pid, SIGKILL);
    while (waitpid(c->pid, &c->status, 0) < 0)
        if (errno != EINTR) return true;
    return c->known = true;
}

static bool reap_within(ht_child *c, double seconds) {
    const double until = ht_now_seconds() + seconds;
    for (long ns = 500000; !reap(c); ns = ns < 10000000 ? ns * 2 : ns) {
        if (ht_now_seconds() >= until) return false;
        nanosleep(&(struct timespec){0, ns}, NULL);
    }
    return true;
}

void ht_child_end(ht_child *c, double seconds) {
    if (!c) return;
    if (c->to >= 0) close(c->to);
    if (!reap_within(c, seconds)) {
        kill(-c->pid, SIGKILL);
        (void)reap_within(c, KILL_SECONDS);
    }
    if (c->from >= 0) close(c->from);
    if (c->errors >= 0) close(c->errors);
    free(c->in);
    free(c);
}

/* ---- standard error ---- */

static void keep_tail(ht_child *c, const char *bytes, size_t n) {
    if (n > sizeof c->tail) {
        bytes += n - sizeof c->tail;
        n = sizeof c->tail;
    }
    const size_t before = c->n_tail + n > sizeof c->tail ? sizeof c->tail - n : c->n_tail;
    memmove(c->tail, c->tail + c->n_tail - before, before);
    memcpy(c->tail + before, bytes, n);
    c->n_tail = before + n;
}

/* Reads available bytes, in a limited number of reads: a child that never stops writing must not block its reader. */
static void drain_errors(ht_child *c) {
    char bytes[4096];
    for (int i = 0; i < 64 && c->errors >= 0; i++) {
        const ssize_t n = read(c->errors, bytes, sizeof bytes);
        if (n > 0)
            keep_tail(c, bytes, (size_t)n);
        else if (n == 0 || (errno != EAGAIN && errno != EINTR)) {
            close_fd(&c->errors);
        } else if (errno == EAGAIN)
            return;
    }
}

/* Makes bytes safe for a message: control characters and invalid UTF-8 become spaces. */
static void make_line(const char *bytes, size_t n, ht_text *out) {
    for (size_t i = 0; i < n;) {
        uint32_t code;
        const size_t length = ht_utf8_decode(bytes + i, n - i, &code);
        if (code < 0x20 || code == 0x7F || code == 0xFFFD || (code >= 0x80 && code < 0xA0))
            ht_text_append(out, " ", 1);
        else
            ht_text_append(out, bytes + i, length);
        i += length;
    }
}

/* Offset of the last whole lines that fit in `most` bytes; a longer last line is cut at its beginning. */
static size_t last_lines(const char *text, size_t n, size_t most) {
    size_t begin = n;
    for (size_t i = n; i > 0 && n - i < most; i--)
        if (text[i - 1] == '\n') begin = i;
    if (n <= most) return 0;
    if (begin < n) return begin;
    begin = n - most;
    while (begin < n && ((unsigned char)text[begin] & 0xC0) == 0x80) begin++;
    return begin;
}

void ht_child_add_errors(ht_child *c, ht_error *err) {
    enum { SHOWN = 320 };
    if (!err) return;
    drain_errors(c);
    size_t n = c->n_tail;
    while (n && (c->tail[n - 1] == '\n' || c->tail[n - 1] == ' ')) n--;
    if (!n) return;
    const size_t from = last_lines(c->tail, n, SHOWN);
    ht_text line = {0};
    make_line(c->tail + from, n - from, &line);
    if (line.data) {
        char before[sizeof err->message];
        snprintf(before, sizeof before, "%s", err->message);
        ht_fail(err, err->status, "%s; its standard error ends with: %s", before, line.data);
    }
    ht_text_discard(&line);
}

/* ---- failures ---- */

/* The child has closed a pipe: it has ended, or is about to. */
static ht_status fail_gone(ht_child *c, const ht_child_wait *wait, ht_error *err) {
    const bool ended = reap_within(c, 1);
    if (ended && c->known && WIFSIGNALED(c->status))
        return ht_fail(err, HT_ERR_IO, "%s: the child process was ended by signal %d while waiting for %s", c->name,
                       WTERMSIG(c->status), wait->what);
    if (ended && c->known)
        return ht_fail(err, HT_ERR_IO, "%s: the child process ended with status %d while waiting for %s", c->name,
                       WEXITSTATUS(c->status), wait->what);
    return ht_fail(err, HT_ERR_IO, "%s: the child process %s while waiting for %s", c->name,
                   ended ? "is gone" : "closed its input or output", wait->what);
}

static ht_status fail_late(const ht_child *c, const ht_child_wait *wait, ht_error *err) {
    return ht_fail(err, HT_ERR_LIMIT, "%s: %s did not come within %g seconds", c->name, wait->what, wait->seconds);
}

/* ---- writing ---- */

/* write() without SIGPIPE: blocks the signal in this thread, and consumes it if it arrived. */
static ssize_t write_quietly(int fd, const char *bytes, size_t n) {
    sigset_t of_pipe, before, pending;
    sigemptyset(&of_pipe);
    sigaddset(&of_pipe, SIGPIPE);
    sigpending(&pending);
    const bool was_pending = sigismember(&pending, SIGPIPE) == 1;
    pthread_sigmask(SIG_BLOCK, &of_pipe, &before);
    const ssize_t written = write(fd, bytes, n);
    const int e = errno;
    if (written < 0 && e == EPIPE && !was_pending) {
        int signal;
        sigpending(&pending);
        if (sigismember(&pending, SIGPIPE) == 1) sigwait(&of_pipe, &signal);
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    errno = e;
    return written;
}

static int slice_of(const ht_child_wait *wait) {
    const double left = (wait->until - ht_now_seconds()) * 1e3;
    return left >= (double)SLICE_MS ? SLICE_MS : left > 0 ? (int)left + 1 : 0;
}

ht_status ht_child_write(ht_child *c, const char *bytes, size_t n, const ht_child_wait *wait, ht_error *err) {
    if (ht_cancel_requested(wait->cancel)) return ht_fail(err, HT_ERR_CANCELLED, "cancelled before the call");
    for (size_t done = 0; done < n;) {
        const ssize_t written = write_quietly(c->to, bytes + done, n - done);
        if (written > 0) {
            done += (size_t)written;
            continue;
        }
        if (errno != EAGAIN && errno != EINTR) return fail_gone(c, wait, err);
        if (ht_now_seconds() >= wait->until) return fail_late(c, wait, err);
        struct pollfd wanted[] = {{.fd = c->to, .events = POLLOUT}, {.fd = c->errors, .events = POLLIN}};
        if (poll(wanted, 2, slice_of(wait)) > 0 && wanted[1].revents) drain_errors(c);
    }
    return HT_OK;
}

/* ---- reading ---- */

/* The next complete line of the buffer. */
static bool find_line(ht_child *c, char **line, size_t *n) {
    char *begin = c->in + c->taken, *end;
    const size_t held = c->n - c->taken;
    if (held == c->scanned || !(end = memchr(begin + c->scanned, '\n', held - c->scanned))) {
        c->scanned = held;
        return false;
    }
    *end = '\0';
    *line = begin;
    *n = (size_t)(end - begin);
    c->taken += *n + 1;
    c->scanned = 0;
    return true;
}

static bool make_capacity(ht_child *c) {
    if (c->taken) {
        memmove(c->in, c->in + c->taken, c->n - c->taken);
        c->n -= c->taken;
        c->taken = 0;
    }
    return HT_GROW(c->in, c->capacity, c->n + READ_BYTES);
}

/* Reads available output into the buffer. */
static ht_status fill(ht_child *c, const ht_child_wait *wait, ht_error *err) {
    if (!make_capacity(c)) return ht_fail_memory(err, c->n + READ_BYTES, "a line of a child process");
    const ssize_t n = read(c->from, c->in + c->n, READ_BYTES);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return HT_OK;
    if (n <= 0) return fail_gone(c, wait, err);
    c->n += (size_t)n;
    return HT_OK;
}

ht_status ht_child_read(ht_child *c, const ht_child_wait *wait, char **line, size_t *n, ht_error *err) {
    *line = NULL;
    *n = 0;
    for (;;) {
        if (ht_cancel_requested(wait->cancel))
            return ht_fail(err, HT_ERR_CANCELLED, "cancelled while waiting for %s", wait->what);
        const bool found = c->in && find_line(c, line, n);
        if ((found ? *n : c->n - c->taken) > c->line_bytes)
            return ht_fail(err, HT_ERR_LIMIT, "%s: the child process wrote a line of more than %zu bytes", c->name,
                           c->line_bytes);
        if (found) return HT_OK;
        if (ht_now_seconds() >= wait->until) return fail_late(c, wait, err);
        struct pollfd wanted[] = {{.fd = c->from, .events = POLLIN}, {.fd = c->errors, .events = POLLIN}};
        const int ready = poll(wanted, 2, slice_of(wait));
        if (ready > 0 && wanted[1].revents) drain_errors(c);
        const size_t before = c->n;
        ht_status st = HT_OK;
        if (ready > 0 && wanted[0].revents) st = fill(c, wait, err);
        /* The child may have ended while a process that left its group keeps its output open. */
        if (ready == 0 && reap(c)) {
            st = fill(c, wait, err);
            if (!st && c->n == before) st = fail_gone(c, wait, err);
        }
        if (st) return st;
    }
}
