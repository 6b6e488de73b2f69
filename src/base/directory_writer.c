#include "base/directory_writer.h"

#include "base/error.h"
#include "base/file.h"
#include "base/system.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static ht_status cannot_write(const char *path, int code, ht_error *err) {
    return ht_fail(err, code == ENOMEM ? HT_ERR_MEMORY : HT_ERR_IO, "%s: cannot be written: %s", path, strerror(code));
}

static bool is_dots(const char *name) { return !strcmp(name, ".") || !strcmp(name, ".."); }

/* ---- temporary directories; functions that return a code return 0 or errno ---- */

int ht_temporary_directory_make(const char *path, char **out) {
    static atomic_uint counter;
    int code = EEXIST;
    for (int attempt = 0; code == EEXIST && attempt < 100; attempt++) {
        if (asprintf(out, "%s.%ld-%u.tmp", path, (long)getpid(), atomic_fetch_add(&counter, 1)) < 0) {
            *out = NULL;
            return ENOMEM;
        }
        if (mkdir(*out, 0777) == 0) return 0;
        code = errno;
        free(*out);
        *out = NULL;
    }
    return code;
}

void ht_temporary_directory_remove(const char *path) {
    DIR *directory = opendir(path);
    if (!directory) return;
    for (const struct dirent *e; (e = readdir(directory));) {
        char *within = NULL;
        if (is_dots(e->d_name)) continue;
        if (unlinkat(dirfd(directory), e->d_name, 0) == 0) continue;
        if (asprintf(&within, "%s/%s", path, e->d_name) >= 0) ht_temporary_directory_remove(within);
        free(within);
    }
    closedir(directory);
    (void)rmdir(path);
}

char *ht_directory_above(const char *path) {
    const char *slash = strrchr(path, '/');
    return !slash ? strdup(".") : slash == path ? strdup("/") : strndup(path, (size_t)(slash - path));
}

static int open_directory(const char *path, int *fd) {
    *fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return *fd < 0 ? errno : 0;
}

/* Flushes the names in a directory. EINVAL: a file system that cannot, which is no failure. */
static int flush(int fd) { return fsync(fd) == 0 || errno == EINVAL ? 0 : errno; }

int ht_directory_flush(const char *path) {
    int fd;
    int code = open_directory(path, &fd);
    if (code) return code;
    code = flush(fd);
    close(fd);
    return code;
}

/* ---- one directory ---- */

struct ht_directory_writer {
    char *path; /* target after following symbolic links, which stay links; no slash at its end */
    char *temporary;
    bool replaces;
};

static bool is_among(const char *const *known, const char *name) {
    while (*known && strcmp(*known, name) != 0) known++;
    return *known != NULL;
}

static ht_status check_target(const char *path, const char *const *known, ht_error *err) {
    DIR *directory = opendir(path);
    if (!directory) return ht_fail(err, HT_ERR_IO, "%s: cannot be replaced: %s", path, strerror(errno));
    ht_status status = HT_OK;
    for (const struct dirent *e; !status && (e = readdir(directory));)
        if (!is_dots(e->d_name) && !is_among(known, e->d_name))
            status = ht_fail(err, HT_ERR_ARGUMENT,
                             "%s: is not replaced, as it holds `%s`, which this command does not write; remove it, or "
                             "take another directory",
                             path, e->d_name);
    closedir(directory);
    return status;
}

static char *without_slash(const char *path) {
    size_t n = strlen(path);
    while (n > 1 && path[n - 1] == '/') n--;
    return strndup(path, n);
}

/* Path of the target after following symbolic links, which stay links; NULL sets errno. */
static char *target_of(const char *path) {
    errno = ENOMEM;
    return ht_path_exists(path) ? realpath(path, NULL) : without_slash(path);
}

ht_status ht_directory_writer_check(const char *path, const char *const *known, ht_error *err) {
    if (!*path) return ht_fail(err, HT_ERR_ARGUMENT, "the name of the directory to write is empty");
    if (ht_path_exists(path)) {
        if (!ht_path_is_directory(path))
            return ht_fail(err, HT_ERR_IO, "%s: cannot be written: it is a file, expected a directory or none", path);
        ht_status status = check_target(path, known, err);
        if (status) return status;
    }
    char *target = target_of(path), *parent = target ? ht_directory_above(target) : NULL;
    struct stat link;
    if (target && !ht_path_exists(path) && lstat(target, &link) == 0) {
        free(parent);
        free(target);
        return ht_fail(err, HT_ERR_IO, "%s: cannot be written: it is a link that leads nowhere", path);
    }
    int code = !parent || access(parent, W_OK | X_OK) != 0 ? errno : 0;
    free(parent);
    free(target);
    return code ? cannot_write(path, code, err) : HT_OK;
}

ht_status ht_directory_writer_open(const char *path, const char *const *known, ht_directory_writer **out,
                                   ht_error *err) {
    *out = NULL;
    ht_status status = ht_directory_writer_check(path, known, err);
    if (status) return status;
    ht_directory_writer *w = calloc(1, sizeof *w);
    if (!w) return ht_fail_memory(err, sizeof *w, path);
    w->replaces = ht_path_exists(path);
    w->path = target_of(path);
    const int code = w->path ? ht_temporary_directory_make(w->path, &w->temporary) : errno;
    if (code) {
        ht_directory_writer_discard(w);
        return cannot_write(path, code, err);
    }
    *out = w;
    return HT_OK;
}

const char *ht_directory_writer_path(const ht_directory_writer *w) { return w->temporary; }

/* Moves the old directory aside and the new one into its place. */
static int replace_in_steps(const ht_directory_writer *w) {
    char *aside = NULL;
    if (asprintf(&aside, "%s.old", w->temporary) < 0) return ENOMEM;
    int code = rename(w->path, aside) == 0 ? 0 : errno;
    if (!code && rename(w->temporary, w->path) != 0) {
        code = errno;
        (void)rename(aside, w->path);
    }
    if (!code) ht_temporary_directory_remove(aside);
    free(aside);
    return code;
}

static int move_into_place(const ht_directory_writer *w) {
    if (!w->replaces) return rename(w->temporary, w->path) == 0 ? 0 : errno;
    const int code = ht_system_exchange(w->temporary, w->path);
    if (code) return code == ENOSYS || code == EINVAL || code == ENOTSUP ? replace_in_steps(w) : code;
    ht_temporary_directory_remove(w->temporary); /* the old one */
    return 0;
}

ht_status ht_directory_writer_commit(ht_directory_writer *w, ht_error *err) {
    int code = ht_directory_flush(w->temporary);
    if (!code) code = move_into_place(w);
    ht_status status = HT_OK;
    if (code)
        status = cannot_write(w->path, code, err);
    else {
        char *parent = ht_directory_above(w->path);
        if (parent)
            (void)ht_directory_flush(parent); /* the directory is whole whether or not its name has reached the disk */
        free(parent);
        free(w->temporary);
        w->temporary = NULL;
    }
    ht_directory_writer_discard(w);
    return status;
}

void ht_directory_writer_discard(ht_directory_writer *w) {
    if (!w) return;
    if (w->temporary) ht_temporary_directory_remove(w->temporary);
    free(w->temporary);
    free(w->path);
    free(w);
}

/* ---- a set of files ---- */

struct ht_file_set_writer {
    char *path;
    char *temporary;        /* of the new files */
    char *aside;            /* of the replaced files */
    int to, from, replaced; /* descriptors of the target directory, `temporary` and `aside` */
    bool holds_replaced;    /* `aside` holds files that could not be restored, and is kept */
};

ht_status ht_file_set_writer_open(const char *path, ht_file_set_writer **out, ht_error *err) {
    *out = NULL;
    ht_file_set_writer *w = calloc(1, sizeof *w);
    if (!w) return ht_fail_memory(err, sizeof *w, path);
    *w = (ht_file_set_writer){.path = strdup(path), .to = -1, .from = -1, .replaced = -1};
    const int code = w->path ? ht_temporary_directory_make(path, &w->temporary) : ENOMEM;
    if (!code) {
        *out = w;
        return HT_OK;
    }
    ht_file_set_writer_discard(w);
    return cannot_write(path, code, err);
}

const char *ht_file_set_writer_path(const ht_file_set_writer *w) { return w->temporary; }

/* Opens the directories before the first file is moved, so that moving and undoing allocate nothing. */
static int prepare(ht_file_set_writer *w) {
    char *above = ht_directory_above(w->path);
    int code = above ? open_directory(above, &w->to) : ENOMEM;
    free(above);
    if (!code) code = open_directory(w->temporary, &w->from);
    if (!code) code = flush(w->from);
    if (!code) code = ht_temporary_directory_make(w->path, &w->aside);
    return code ? code : open_directory(w->aside, &w->replaced);
}

static int move(int from, int to, const char *name) { return renameat(from, name, to, name) == 0 ? 0 : errno; }

/* Restores all files on failure. The first file marks the set as complete: it moves last, after a flush of the
 * directory. */
static int move_all(ht_file_set_writer *w, const char *const *name, int n) {
    int n_aside = 0, first_new = n, code = 0;
    for (; !code && n_aside < n; n_aside += !code) {
        code = move(w->to, w->replaced, name[n_aside]);
        if (code == ENOENT) code = 0;
    }
    for (; !code && first_new > 0; first_new -= !code) {
        if (first_new == 1) code = flush(w->to);
        if (!code) code = move(w->from, w->to, name[first_new - 1]);
    }
    if (!code) return 0;
    for (int i = first_new; i < n; i++) (void)unlinkat(w->to, name[i], 0);
    for (int i = n_aside; i-- > 0;) {
        const int failed = move(w->replaced, w->to, name[i]);
        w->holds_replaced = w->holds_replaced || (failed && failed != ENOENT);
    }
    return code;
}

ht_status ht_file_set_writer_commit(ht_file_set_writer *w, const char *const *name, int n, ht_error *err) {
    int code = prepare(w);
    if (!code) code = move_all(w, name, n);
    ht_status status = HT_OK;
    if (code)
        status = cannot_write(w->path, code, err);
    else
        (void)flush(w->to); /* the set is whole whether or not its first name has reached the disk */
    ht_file_set_writer_discard(w);
    return status;
}

void ht_file_set_writer_discard(ht_file_set_writer *w) {
    if (!w) return;
    const int fds[] = {w->to, w->from, w->replaced};
    for (int i = 0; i < 3; i++)
        if (fds[i] >= 0) close(fds[i]);
    if (w->temporary) ht_temporary_directory_remove(w->temporary);
    if (w->aside && !w->holds_replaced) ht_temporary_directory_remove(w->aside);
    free(w->temporary);
    free(w->aside);
    free(w->path);
    free(w);
}
