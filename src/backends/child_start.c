/* Start of a child process: its pipes, its script and its place in the system. */
#include "backends/child_internal.h"
#include "base/error.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

extern char **environ;

/* Descriptor of the script in the child, and the first one that the parent may use for its own ends: those below would be in
 * the way of the child's 0 to 3 where the program has closed some of these. */
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

/* The pipe holds all of it before the child is there. */
static ht_status put_script(pipes *p, const char *script, ht_error *err) {
    const size_t n = strlen(script);
    const ssize_t put = write(p->script[1], script, n);
    if (put < 0 || (size_t)put != n)
        return ht_fail(err, HT_ERR_LIMIT, "a script of %zu bytes for a child process does not fit a pipe", n);
    close_fd(&p->script[1]);
    return HT_OK;
}

/* Default signals, none blocked, and a process group of its own, which a terminal's Ctrl-C does not reach. */
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
    /* Descriptors that the program has open for itself, a server's clients for one, would live on in the child. */
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
