#define _GNU_SOURCE
#include "base/directory_writer.h"

#include "base/error.h"
#include "base/file.h"
#include "base/system.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct ht_directory_writer {
    char *path; /* target after following symbolic links, which stay links; no slash at its end */
    char *temporary;
    bool replaces;
};

static bool is_dots(const char *name) { return !strcmp(name, ".") || !strcmp(name, ".."); }

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

static bool make_temporary(ht_directory_writer *w) {
    static atomic_uint counter;
    for (int attempt = 0; attempt < 100; attempt++) {
        if (asprintf(&w->temporary, "%s.%ld-%u.tmp", w->path, (long)getpid(), atomic_fetch_add(&counter, 1)) < 0) {
            w->temporary = NULL;
            errno = ENOMEM;
            return false;
        }
        if (mkdir(w->temporary, 0777) == 0) return true;
        int code = errno;
        free(w->temporary);
        w->temporary = NULL;
        errno = code;
        if (code != EEXIST) return false;
    }
    return false;
}

static char *without_slash(const char *path) {
    size_t n = strlen(path);
    while (n > 1 && path[n - 1] == '/') n--;
    return strndup(path, n);
}

/* Path of the directory above; the caller frees it. NULL when memory ran out. */
static char *parent_of(const char *path) {
    const char *slash = strrchr(path, '/');
    return !slash ? strdup(".") : slash == path ? strdup("/") : strndup(path, (size_t)(slash - path));
}

static ht_status cannot_write(const char *path, int code, ht_error *err) {
    return ht_fail(err, code == ENOMEM ? HT_ERR_MEMORY : HT_ERR_IO, "%s: cannot be written: %s", path, strerror(code));
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
    char *target = target_of(path), *parent = target ? parent_of(target) : NULL;
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
    if (!w->path || !make_temporary(w)) {
        int code = errno;
        ht_directory_writer_discard(w);
        return cannot_write(path, code, err);
    }
    *out = w;
    return HT_OK;
}

const char *ht_directory_writer_path(const ht_directory_writer *w) { return w->temporary; }

/* 0, or errno. EINVAL: a file system without fsync for directories. */
static int flush_directory(const char *path) {
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return errno;
    int code = fsync(fd) == 0 || errno == EINVAL ? 0 : errno;
    close(fd);
    return code;
}

static int flush_parent(const char *path) {
    char *parent = parent_of(path);
    int code = parent ? flush_directory(parent) : ENOMEM;
    free(parent);
    return code;
}

/* Removes the directory and its files; directories within, which no caller makes, stay. */
static void remove_directory(const char *path) {
    DIR *directory = opendir(path);
    if (!directory) return;
    for (const struct dirent *e; (e = readdir(directory));)
        if (!is_dots(e->d_name)) (void)unlinkat(dirfd(directory), e->d_name, 0);
    closedir(directory);
    (void)rmdir(path);
}

/* Moves the old directory aside and the new one into its place; 0, or errno. */
static int replace_in_steps(const ht_directory_writer *w) {
    char *aside = NULL;
    if (asprintf(&aside, "%s.old", w->temporary) < 0) return ENOMEM;
    int code = rename(w->path, aside) == 0 ? 0 : errno;
    if (!code && rename(w->temporary, w->path) != 0) {
        code = errno;
        (void)rename(aside, w->path);
    }
    if (!code) remove_directory(aside);
    free(aside);
    return code;
}

static int move_into_place(const ht_directory_writer *w) {
    if (!w->replaces) return rename(w->temporary, w->path) == 0 ? 0 : errno;
    const int code = ht_system_exchange(w->temporary, w->path);
    if (code) return code == ENOSYS || code == EINVAL || code == ENOTSUP ? replace_in_steps(w) : code;
    remove_directory(w->temporary); /* the old one */
    return 0;
}

ht_status ht_directory_writer_commit(ht_directory_writer *w, ht_error *err) {
    int code = flush_directory(w->temporary);
    if (!code) code = move_into_place(w);
    ht_status status = HT_OK;
    if (code)
        status = ht_fail(err, HT_ERR_IO, "%s: cannot be written: %s", w->path, strerror(code));
    else {
        (void)flush_parent(w->path); /* the directory is whole whether or not its name has reached the disk */
        free(w->temporary);
        w->temporary = NULL;
    }
    ht_directory_writer_discard(w);
    return status;
}

void ht_directory_writer_discard(ht_directory_writer *w) {
    if (!w) return;
    if (w->temporary) remove_directory(w->temporary);
    free(w->temporary);
    free(w->path);
    free(w);
}
