#include "base/directory_writer.h"

#include "base/error.h"
#include "base/file.h"
#include "base/system.h"
#include "base/temporary_directory.h"

#include <dirent.h>
#include <errno.h>
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

static char *without_slash(const char *path) {
    size_t n = strlen(path);
    while (n > 1 && path[n - 1] == '/') n--;
    return strndup(path, n);
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

/* 0, or errno. */
static int flush_parent(const char *path) {
    char *parent = ht_directory_above(path);
    int code = parent ? ht_directory_flush(parent) : ENOMEM;
    free(parent);
    return code;
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
    if (w->temporary) ht_temporary_directory_remove(w->temporary);
    free(w->temporary);
    free(w->path);
    free(w);
}
