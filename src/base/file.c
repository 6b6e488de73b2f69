#include "base/file.h"

#include "base/checked.h"
#include "base/error.h"
#include "base/system.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* Name, for messages, of a file type that is not a regular file. */
static const char *kind_of(mode_t mode) {
    if (S_ISDIR(mode)) return "a directory";
    if (S_ISFIFO(mode)) return "a pipe";
    if (S_ISSOCK(mode)) return "a socket";
    return "a device";
}

/* Opens the descriptor and fills in all fields except `data`, `loaded` and `path`. */
static ht_status open_regular(const char *path, ht_file *file, ht_error *err) {
    struct stat st;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) return ht_fail(err, HT_ERR_IO, "%s: cannot be opened: %s", path, strerror(errno));
    if (fstat(fd, &st) != 0) {
        int code = errno;
        close(fd);
        return ht_fail(err, HT_ERR_IO, "%s: cannot be examined: %s", path, strerror(code));
    }
    if (!S_ISREG(st.st_mode)) {
        close(fd);
        return ht_fail(err, HT_ERR_IO, "%s: is %s, expected a regular file", path, kind_of(st.st_mode));
    }
    file->fd = fd;
    file->size = (size_t)st.st_size;
    file->modified_ns = ht_system_modified_ns(&st);
    return HT_OK;
}

/* Copies `from`, which has no path yet, to the heap and adds the path; closes the descriptor on failure. */
static ht_status new_file(ht_file from, const char *path, ht_file **out, ht_error *err) {
    ht_file *file = calloc(1, sizeof *file);
    from.path = strdup(path);
    if (!file || !from.path) {
        close(from.fd);
        free(file);
        free(from.path);
        return ht_fail_memory(err, sizeof *file, path);
    }
    *file = from;
    *out = file;
    return HT_OK;
}

ht_status ht_file_open(const char *path, ht_file **out, ht_error *err) {
    *out = NULL;
    ht_file opened = {0}, *file = NULL;
    ht_status st = open_regular(path, &opened, err);
    if (!st) st = new_file(opened, path, &file, err);
    if (st) return st;
    if (file->size) {
        void *mapping = mmap(NULL, file->size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (mapping == MAP_FAILED) {
            size_t size = file->size;
            ht_file_close(file);
            return ht_fail_memory(err, size, path);
        }
        file->data = mapping;
    }
    *out = file;
    return HT_OK;
}

ht_status ht_file_share(const ht_file *file, ht_file **out, ht_error *err) {
    *out = NULL;
    int fd = fcntl(file->fd, F_DUPFD_CLOEXEC, 0);
    if (fd < 0) return ht_fail(err, HT_ERR_IO, "%s: cannot be kept open: %s", file->path, strerror(errno));
    ht_file shared = {.fd = fd, .size = file->size, .modified_ns = file->modified_ns};
    return new_file(shared, file->path, out, err);
}

ht_status ht_file_unchanged(const ht_file *file, ht_error *err) {
    struct stat st;
    if (fstat(file->fd, &st) != 0)
        return ht_fail(err, HT_ERR_IO, "%s: cannot be examined: %s", file->path, strerror(errno));
    if (ht_system_modified_ns(&st) != file->modified_ns || (size_t)st.st_size != file->size)
        return ht_fail(err, HT_ERR_IO, "%s: has changed since it was opened; open it again", file->path);
    return HT_OK;
}

void ht_file_close(ht_file *file) {
    if (!file) return;
    if (file->data) munmap((void *)(uintptr_t)file->data, file->size);
    close(file->fd);
    free(file->path);
    free(file);
}

ht_status ht_file_read_at(const ht_file *file, size_t offset, void *out, size_t n, ht_error *err) {
    for (size_t done = 0; done < n;) {
        ssize_t got = pread(file->fd, (char *)out + done, n - done, (off_t)(offset + done));
        if (got > 0)
            done += (size_t)got;
        else if (got == 0)
            return ht_fail(err, HT_ERR_IO, "%s: the file ends before offset %zu; it was %zu bytes when it was opened",
                           file->path, offset + n, file->size);
        else if (errno != EINTR)
            return ht_fail(err, HT_ERR_IO, "%s: cannot be read: %s", file->path, strerror(errno));
    }
    return HT_OK;
}

ht_status ht_file_fetch(ht_file *file, size_t n, ht_error *err) {
    enum { STEP = 1 << 20 };
    if (n <= file->loaded) return HT_OK;
    size_t end = ht_min_size(file->size, ht_max_size(n, file->loaded + STEP)), page = (size_t)sysconf(_SC_PAGESIZE);
    unsigned char *to = (unsigned char *)(uintptr_t)file->data;
    size_t first = file->loaded & ~(page - 1);
    if (mprotect(to + first, end - first, PROT_READ | PROT_WRITE) != 0)
        return ht_fail_memory(err, end - first, file->path);
    ht_status st = ht_file_read_at(file, file->loaded, to + file->loaded, end - file->loaded, err);
    if (!st) file->loaded = end;
    return st;
}

ht_status ht_file_read_all(const char *path, size_t limit, char **data, size_t *size, ht_error *err) {
    *data = NULL;
    *size = 0;
    ht_file file = {.path = (char *)(uintptr_t)path};
    ht_status st = open_regular(path, &file, err);
    if (st) return st;
    char *bytes = NULL;
    if (file.size > limit)
        st = ht_fail(err, HT_ERR_LIMIT, "%s: is %zu bytes, at most %zu are accepted", path, file.size, limit);
    else if (!(bytes = malloc(file.size + 1)))
        st = ht_fail_memory(err, file.size, path);
    else
        st = ht_file_read_at(&file, 0, bytes, file.size, err);
    close(file.fd);
    if (st) {
        free(bytes);
        return st;
    }
    bytes[file.size] = '\0';
    *data = bytes;
    *size = file.size;
    return HT_OK;
}

bool ht_is_lfs_pointer(const void *bytes, size_t n) {
    static const char begin[] = "version https://git-lfs";
    return n >= sizeof begin - 1 && memcmp(bytes, begin, sizeof begin - 1) == 0;
}

bool ht_path_is_directory(const char *path) {
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

bool ht_path_exists(const char *path) { return access(path, F_OK) == 0; }

char *ht_path_join(const char *directory, const char *name) {
    size_t n = strlen(directory), m = strlen(name);
    bool slash = n > 0 && directory[n - 1] != '/';
    char *path = malloc(n + m + 2);
    if (!path) return NULL;
    memcpy(path, directory, n);
    if (slash) path[n] = '/';
    memcpy(path + n + slash, name, m + 1);
    return path;
}

struct ht_writer {
    int fd;
    size_t end;
    char *path; /* target after following symbolic links, which stay links */
    char *temporary;
};

static ht_status cannot_write(const char *path, int code, ht_error *err) {
    return ht_fail(err, code == ENOMEM ? HT_ERR_MEMORY : HT_ERR_IO, "%s: cannot be written: %s", path, strerror(code));
}

/* Creates the temporary file in the target's directory. open() applies the umask, which a library cannot read without
 * changing it for all threads. */
static bool create_temporary(ht_writer *w, mode_t mode) {
    static atomic_uint counter;
    for (int attempt = 0; attempt < 100; attempt++) {
        if (asprintf(&w->temporary, "%s.%ld-%u.tmp", w->path, (long)getpid(), atomic_fetch_add(&counter, 1)) < 0) {
            w->temporary = NULL;
            errno = ENOMEM;
            return false;
        }
        w->fd = open(w->temporary, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, mode);
        if (w->fd >= 0) {
            (void)flock(w->fd, LOCK_EX | LOCK_NB); /* marks the file as in use, not left over */
            return true;
        }
        int code = errno;
        free(w->temporary);
        w->temporary = NULL;
        errno = code;
        if (code != EEXIST) return false;
    }
    return false;
}

static ht_status open_writer(const char *path, mode_t mode, ht_writer **out, ht_error *err) {
    *out = NULL;
    /* rename() would replace a device by a regular file, and would fail for a directory only at commit. */
    struct stat st;
    bool replaces = stat(path, &st) == 0;
    if (replaces && !S_ISREG(st.st_mode))
        return ht_fail(err, HT_ERR_IO, "%s: cannot be written: it is %s, expected a regular file or none", path,
                       kind_of(st.st_mode));
    ht_writer *w = calloc(1, sizeof *w);
    if (!w) return ht_fail_memory(err, sizeof *w, path);
    w->fd = -1;
    errno = ENOMEM;
    w->path = replaces ? realpath(path, NULL) : strdup(path);
    if (!w->path || !create_temporary(w, mode)) {
        int code = errno;
        ht_writer_discard(w);
        return cannot_write(path, code, err);
    }
    if (replaces) (void)fchmod(w->fd, st.st_mode & 0777);
    *out = w;
    return HT_OK;
}

ht_status ht_writer_open(const char *path, ht_writer **out, ht_error *err) { return open_writer(path, 0666, out, err); }

ht_status ht_writer_open_private(const char *path, ht_writer **out, ht_error *err) {
    return open_writer(path, 0600, out, err);
}

ht_status ht_writer_put(ht_writer *w, const void *bytes, size_t n, ht_error *err) {
    const size_t offset = w->end;
    w->end += n;
    return ht_writer_put_at(w, offset, bytes, n, err);
}

ht_status ht_writer_put_at(ht_writer *w, size_t offset, const void *bytes, size_t n, ht_error *err) {
    for (size_t done = 0; done < n;) {
        ssize_t put = pwrite(w->fd, (const char *)bytes + done, n - done, (off_t)(offset + done));
        if (put >= 0)
            done += (size_t)put;
        else if (errno != EINTR)
            return cannot_write(w->path, errno, err);
    }
    return HT_OK;
}

ht_status ht_writer_commit(ht_writer *w, ht_error *err) {
    /* EINVAL: a file system without fsync. The first failure is the one to report; close and unlink set errno too. */
    int code = fsync(w->fd) == 0 || errno == EINVAL ? 0 : errno;
    if (close(w->fd) != 0 && !code) code = errno;
    w->fd = -1;
    if (!code && rename(w->temporary, w->path) != 0) code = errno;
    ht_status st = HT_OK;
    if (code)
        st = cannot_write(w->path, code, err);
    else {
        free(w->temporary);
        w->temporary = NULL;
    }
    ht_writer_discard(w);
    return st;
}

void ht_writer_discard(ht_writer *w) {
    if (!w) return;
    if (w->fd >= 0) close(w->fd);
    if (w->temporary) unlink(w->temporary);
    free(w->temporary);
    free(w->path);
    free(w);
}
