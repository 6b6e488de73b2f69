/* Files: positioned and whole reads, and atomic writes. */
#ifndef HT_BASE_FILE_H
#define HT_BASE_FILE_H

#include <hearth/status.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* An open regular file. Files are read, not mapped: when another process truncates a mapped file, access raises
 * SIGBUS, while a read returns an error. Address space for the whole file is reserved, so that `data` never moves;
 * memory is used only for the bytes fetched. */
typedef struct ht_file {
    const unsigned char *data; /* the first `loaded` bytes are readable; NULL for an empty or a shared file */
    size_t size, loaded;
    int64_t modified_ns; /* modification time when the file was opened */
    int fd;
    char *path;
} ht_file;

/* Opens a regular file; a directory or a device is an error. The caller closes *out. */
ht_status ht_file_open(const char *path, ht_file **out, ht_error *err);
/* A second handle to an open file, for ht_file_read_at only. The handles are closed independently. */
ht_status ht_file_share(const ht_file *file, ht_file **out, ht_error *err);
void ht_file_close(ht_file *file); /* NULL is fine */

/* Makes at least the first n bytes, n <= size, readable at `data`. Not thread-safe. */
ht_status ht_file_fetch(ht_file *file, size_t n, ht_error *err);

/* Reads exactly n bytes at `offset`; fewer is an error. Thread-safe. */
ht_status ht_file_read_at(const ht_file *file, size_t offset, void *out, size_t n, ht_error *err);

/* Fails when the file was modified or truncated since it was opened. Thread-safe. */
ht_status ht_file_unchanged(const ht_file *file, ht_error *err);

/* Reads a small file whole, with a NUL after the last byte; the caller frees *data. A file of more than `limit` bytes is an
 * error. */
ht_status ht_file_read_all(const char *path, size_t limit, char **data, size_t *size, ht_error *err);

/* True when the bytes are a Git LFS pointer file, the placeholder of a large file in a clone made without Git LFS. */
bool ht_is_lfs_pointer(const void *bytes, size_t n);
/* End of the error message about such a file, after its name. */
#define HT_LFS_POINTER "is a Git LFS pointer, not the file itself; fetch the real one (`git lfs pull`)"

bool ht_path_is_directory(const char *path);
bool ht_path_exists(const char *path);
/* directory + "/" + name; the caller frees it. NULL when memory ran out. */
char *ht_path_join(const char *directory, const char *name);

/* Atomic writer: bytes go to a temporary file, `path`.*.tmp, which is locked (flock) while it is written and renamed to
 * `path` on commit. Permissions of a replaced file are kept, and a symbolic link is followed. Replacing anything but a
 * regular file (a directory, /dev/null) is an error. */
typedef struct ht_writer ht_writer;
ht_status ht_writer_open(const char *path, ht_writer **out, ht_error *err);
/* The same with permissions for the owner only, unless it replaces a file. */
ht_status ht_writer_open_private(const char *path, ht_writer **out, ht_error *err);
ht_status ht_writer_put(ht_writer *w, const void *bytes, size_t n, ht_error *err);
/* Overwrites bytes already written, for headers whose content is known only at the end. */
ht_status ht_writer_put_at(ht_writer *w, size_t offset, const void *bytes, size_t n, ht_error *err);
/* Flushes, renames and frees the writer. On failure the temporary file is removed and `path` is unchanged. */
ht_status ht_writer_commit(ht_writer *w, ht_error *err);
/* Removes the temporary file and frees the writer. NULL is fine. */
void ht_writer_discard(ht_writer *w);

#endif
