#include "base/file_set_writer.h"

#include "base/error.h"
#include "base/temporary_directory.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct ht_file_set_writer {
    char *path;
    char *temporary;        /* of the new files */
    char *aside;            /* of those that are replaced */
    int to, from, replaced; /* descriptors of the directory that they go to, and of these two */
    bool holds_replaced;    /* what could not be put back is aside still, and stays */
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
    return ht_fail(err, code == ENOMEM ? HT_ERR_MEMORY : HT_ERR_IO, "%s: cannot be written: %s", path, strerror(code));
}

const char *ht_file_set_writer_path(const ht_file_set_writer *w) { return w->temporary; }

static int open_directory(const char *path, int *fd) {
    *fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return *fd < 0 ? errno : 0;
}

/* Opens the directories before the first file is moved, so that moving and undoing allocate nothing; 0, or errno. */
static int prepare(ht_file_set_writer *w) {
    char *above = ht_directory_above(w->path);
    int code = above ? open_directory(above, &w->to) : ENOMEM;
    free(above);
    if (!code) code = open_directory(w->temporary, &w->from);
    if (!code) code = fsync(w->from) == 0 || errno == EINVAL ? 0 : errno;
    if (!code) code = ht_temporary_directory_make(w->path, &w->aside);
    return code ? code : open_directory(w->aside, &w->replaced);
}

static int move(int from, int to, const char *name) { return renameat(from, name, to, name) == 0 ? 0 : errno; }

/* The names reach the disk in this order, too, before the one that makes the set whole. EINVAL: a file system that cannot. */
static int flush(const ht_file_set_writer *w) { return fsync(w->to) == 0 || errno == EINVAL ? 0 : errno; }

/* 0, or errno with all files where they were. */
static int move_all(ht_file_set_writer *w, const char *const *name, int n) {
    int n_aside = 0, first_new = n, code = 0;
    for (; !code && n_aside < n; n_aside += !code) {
        code = move(w->to, w->replaced, name[n_aside]);
        if (code == ENOENT) code = 0;
    }
    for (; !code && first_new > 0; first_new -= !code) {
        if (first_new == 1) code = flush(w);
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
        status = ht_fail(err, code == ENOMEM ? HT_ERR_MEMORY : HT_ERR_IO, "%s: cannot be written: %s", w->path,
                         strerror(code));
    else
        (void)flush(w); /* the set is whole whether or not its first name has reached the disk */
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
