#include "tree.h"

#include "base/file.h"
#include "fail.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int remove_entry(const char *path, const struct stat *s, int type, struct FTW *where) {
    (void)s, (void)type, (void)where;
    return remove(path);
}

bool tree_remove(const char *path) { return nftw(path, remove_entry, 16, FTW_DEPTH | FTW_PHYS) == 0; }

bool tree_make_parents(const char *path, size_t from) {
    char *copy = strdup(path);
    bool good = copy != NULL;
    for (char *slash = good ? strchr(copy + from + 1, '/') : NULL; good && slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        good = mkdir(copy, 0777) == 0 || errno == EEXIST;
        *slash = '/';
    }
    const int why = errno;
    free(copy);
    errno = why;
    return good;
}

void tree_remove_parents(const char *path, size_t from) {
    char *copy = strdup(path);
    for (char *slash; copy && (slash = strrchr(copy, '/')) && slash > copy + from;) {
        *slash = '\0';
        if (rmdir(copy) != 0) break;
    }
    free(copy);
}

static bool link_file(const char *from, const char *to) {
    if (linkat(AT_FDCWD, from, AT_FDCWD, to, 0) == 0) return true;
    return errno == EEXIST && unlink(to) == 0 && linkat(AT_FDCWD, from, AT_FDCWD, to, 0) == 0;
}

ht_status tree_link_or_move(const char *from, const char *to, ht_error *err) {
    return link_file(from, to) || rename(from, to) == 0 ? HT_OK : fail_system(err, to, "written");
}

typedef struct link_job {
    const char *from, *to; /* directories */
    tree_filter *wanted;
    void *user;
} link_job;

static ht_status link_directory(const link_job *j, const char *within, ht_error *err);

static ht_status link_entry(const link_job *j, const char *within, ht_error *err) {
    char *from = ht_path_join(j->from, within), *to = ht_path_join(j->to, within);
    struct stat s;
    ht_status st = HT_OK;
    if (!from || !to)
        st = fail_memory(err, "a path");
    else if (lstat(from, &s) != 0)
        st = fail_system(err, from, "read");
    else if (S_ISDIR(s.st_mode))
        st = mkdir(to, s.st_mode & 0777) == 0 || errno == EEXIST ? link_directory(j, within, err)
                                                                 : fail_system(err, to, "made");
    else if (j->wanted(within, j->user) && !link_file(from, to)) {
        const bool other = errno == ENOSPC || errno == EACCES || errno == EROFS;
        st = fail_system(err, to, "linked");
        if (!other) st = err->status = HT_ERR_UNSUPPORTED;
    }
    free(from);
    free(to);
    return st;
}

static ht_status link_directory(const link_job *j, const char *within, ht_error *err) {
    char *path = ht_path_join(j->from, within);
    ht_status st = HT_OK;
    if (!path) return fail_memory(err, "a path");
    DIR *d = opendir(path);
    if (!d) st = fail_system(err, path, "read");
    for (const struct dirent *e; !st && d && (e = readdir(d));) {
        char *inner = NULL;
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0) continue;
        if (asprintf(&inner, "%s%s%s", within, *within ? "/" : "", e->d_name) < 0)
            st = fail_memory(err, "a path");
        else {
            st = link_entry(j, inner, err);
            free(inner);
        }
    }
    if (d) closedir(d);
    free(path);
    return st;
}

ht_status tree_link(const char *from, const char *to, tree_filter *wanted, void *user, ht_error *err) {
    const link_job j = {from, to, wanted, user};
    return link_directory(&j, "", err);
}
