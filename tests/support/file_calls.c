#include "support/file_calls.h"

#include "support/test.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

static bool armed, dies;
static int until;

static void arm(int k, bool kills) {
    until = k;
    dies = kills;
    armed = true;
}

void file_calls_kill(int k) { arm(k, true); }
bool file_calls_killed(int k, bool (*work)(void *user), void *user) {
    const pid_t child = fork();
    if (child == 0) {
        file_calls_kill(k);
        _exit(work(user) ? 0 : 1);
    }
    assert_true(child > 0);
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    if (WIFSIGNALED(status)) {
        assert_int_equal(WTERMSIG(status), SIGKILL);
        return true;
    }
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    return false;
}

void file_calls_fail(int k) { arm(k, false); }

bool file_calls_stop(void) {
    armed = false;
    return until < 0;
}

static bool fails_here(bool creates) {
    if (!armed || !(dies || creates) || until-- != 0) return false;
    if (dies) (void)kill(getpid(), SIGKILL);
    errno = ENOSPC;
    return true;
}

#define WRAP(creates, name, parameters, arguments)                                                                     \
    int __real_##name parameters;                                                                                      \
    int __wrap_##name parameters;                                                                                      \
    int __wrap_##name parameters { return fails_here(creates) ? -1 : __real_##name arguments; }

WRAP(true, mkdir, (const char *path, mode_t mode), (path, mode))
WRAP(true, fsync, (int fd), (fd))
WRAP(false, close, (int fd), (fd))
WRAP(false, fchmod, (int fd, mode_t mode), (fd, mode))
WRAP(true, rename, (const char *from, const char *to), (from, to))
WRAP(true, renameat, (int from_fd, const char *from, int to_fd, const char *to), (from_fd, from, to_fd, to))
WRAP(false, renameat2, (int from_fd, const char *from, int to_fd, const char *to, unsigned flags),
     (from_fd, from, to_fd, to, flags))
WRAP(false, unlink, (const char *path), (path))
WRAP(false, unlinkat, (int fd, const char *path, int flags), (fd, path, flags))
WRAP(false, rmdir, (const char *path), (path))

int __real_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...) {
    mode_t mode = 0;
    if (flags & O_CREAT) {
        va_list more;
        va_start(more, flags);
        mode = va_arg(more, mode_t);
        va_end(more);
    }
    return fails_here(flags & O_CREAT) ? -1 : __real_open(path, flags, mode);
}

/* Half of what is to be written, when the process dies there. */
static size_t half_or_all(size_t n) { return armed && dies && until == 0 ? n / 2 : n; }

ssize_t __real_write(int fd, const void *bytes, size_t n);
ssize_t __wrap_write(int fd, const void *bytes, size_t n);
ssize_t __wrap_write(int fd, const void *bytes, size_t n) {
    if (fails_here(true)) return -1;
    const ssize_t written = __real_write(fd, bytes, half_or_all(n));
    (void)(dies && fails_here(true));
    return written;
}

ssize_t __real_pwrite(int fd, const void *bytes, size_t n, off_t offset);
ssize_t __wrap_pwrite(int fd, const void *bytes, size_t n, off_t offset);
ssize_t __wrap_pwrite(int fd, const void *bytes, size_t n, off_t offset) {
    if (fails_here(true)) return -1;
    const ssize_t written = __real_pwrite(fd, bytes, half_or_all(n), offset);
    (void)(dies && fails_here(true));
    return written;
}
