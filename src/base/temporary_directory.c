#define _GNU_SOURCE
#include "base/temporary_directory.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

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
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0) continue;
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

int ht_directory_flush(const char *path) {
    const int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return errno;
    const int code = fsync(fd) == 0 || errno == EINVAL ? 0 : errno; /* EINVAL: a file system that cannot */
    close(fd);
    return code;
}
