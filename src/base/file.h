/* Files: reading parts or all of one, and writing a file so that it appears whole or not at all. */
#ifndef HT_BASE_FILE_H
#define HT_BASE_FILE_H

#include <hearth/status.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A regular file that is read, never mapped: a map of a file that another process shrinks meanwhile raises SIGBUS, while
 * a read is an error that says so. Room for all of it is set aside in the address space, so that what was fetched stays
 * where it is; memory is taken only for that. */
typedef struct ht_file {
    const unsigned char *data; /* NULL for an empty or shared file; the first `loaded` bytes may be read */
    size_t size, loaded;
    int64_t modified_ns; /* when it was last written to, as of opening it */
    int fd;
    char *path;
} ht_file;

/* Opens a regular file; directories and devices are refused with a sentence that says so. */
ht_status ht_file_open(const char *path, ht_file **out, ht_error *err);
/* The same file once more, for ht_file_read_at alone, whatever becomes of the first. */
ht_status ht_file_share(const ht_file *file, ht_file **out, ht_error *err);
void ht_file_close(ht_file *file); /* NULL is fine */

/* Makes at least the first n bytes (n <= size) readable at `data`. One thread, before others use `data`. */
ht_status ht_file_fetch(ht_file *file, size_t n, ht_error *err);

/* Reads exactly n bytes at `offset`; a short file is an error. Thread-safe. */
ht_status ht_file_read_at(const ht_file *file, size_t offset, void *out, size_t n, ht_error *err);

/* An error that says so when the file was written to or cut since it was opened. Thread-safe. */
ht_status ht_file_unchanged(const ht_file *file, ht_error *err);

/* Reads a whole (small) file; the caller frees *data. A NUL is put after the last byte. Files above `limit` bytes are
 * refused. */
ht_status ht_file_read_all(const char *path, size_t limit, char **data, size_t *size, ht_error *err);

/* Whether a file's bytes are a Git LFS pointer, which stands for a large file in a clone without Git LFS; and the sentence
 * that says so behind the file's name. */
bool ht_is_lfs_pointer(const void *bytes, size_t n);
#define HT_LFS_POINTER "is a Git LFS pointer, not the file itself; fetch the real one (`git lfs pull`)"

bool ht_path_is_directory(const char *path);
bool ht_path_exists(const char *path);
/* directory + "/" + name in fresh memory, or NULL when memory ran out. */
char *ht_path_join(const char *directory, const char *name);

/* Atomic replacement: bytes go to a temporary file beside `path`, which takes its name on commit. A file that is replaced
 * keeps its permissions, a link its target's place; anything that is not a regular file (a directory, /dev/null) is
 * refused. */
typedef struct ht_writer ht_writer;
ht_status ht_writer_open(const char *path, ht_writer **out, ht_error *err);
ht_status ht_writer_put(ht_writer *w, const void *bytes, size_t n, ht_error *err);
/* Overwrites bytes already put, for headers whose content is known only at the end. */
ht_status ht_writer_put_at(ht_writer *w, size_t offset, const void *bytes, size_t n, ht_error *err);
/* Flushes, renames, and frees the writer; on failure the temporary file is gone and `path` is as it was. */
ht_status ht_writer_commit(ht_writer *w, ht_error *err);
/* Gives up: removes the temporary file and frees the writer. NULL is fine. */
void ht_writer_discard(ht_writer *w);

#endif
