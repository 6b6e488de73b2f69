/* Atomic directory writer: files go to a temporary directory, `path`.*.tmp in the target's parent directory, which
 * replaces the target on commit. */
#ifndef HT_BASE_DIRECTORY_WRITER_H
#define HT_BASE_DIRECTORY_WRITER_H

#include <hearth/status.h>

typedef struct ht_directory_writer ht_directory_writer;

/* Checks, without writing, whether the directory can be written. To protect other files, an existing target may
 * contain only entries listed in `known`, which ends with NULL: HT_ERR_ARGUMENT names any other entry. HT_ERR_IO
 * when the parent directory is missing or not writable. */
ht_status ht_directory_writer_check(const char *path, const char *const *known, ht_error *err);
/* Checks the same and makes the temporary directory. */
ht_status ht_directory_writer_open(const char *path, const char *const *known, ht_directory_writer **out,
                                   ht_error *err);
/* Path of the temporary directory, lent. Its files are the caller's to flush, as ht_writer_commit does. */
const char *ht_directory_writer_path(const ht_directory_writer *w);
/* Flushes the directory, moves it to the target and frees the writer. The kernel exchanges it with an existing target in one
 * step; on file systems that cannot, the old directory is moved aside first. On failure the target is as it was. */
ht_status ht_directory_writer_commit(ht_directory_writer *w, ht_error *err);
/* Removes the temporary directory with the files in it and frees the writer. NULL is fine. */
void ht_directory_writer_discard(ht_directory_writer *w);

/* Makes a new directory `path`.*.tmp; 0, or errno. The caller frees *out, which is NULL after a failure. */
int ht_temporary_directory_make(const char *path, char **out);
/* Removes the directory with all in it. Links are removed, not followed. */
void ht_temporary_directory_remove(const char *path);

/* Path of the directory that `path` is in; the caller frees it. NULL when memory ran out. */
char *ht_directory_above(const char *path);
/* Flushes the names in a directory; 0, or errno. A file system that cannot flush directories is no failure. */
int ht_directory_flush(const char *path);

/* Writer of a set of files that are useful only together. They are written to a temporary directory, `path`.*.tmp,
 * and moved to its parent directory on commit, the first file last. If the first file exists, the set is complete,
 * even when the process was killed during the commit. */
typedef struct ht_file_set_writer ht_file_set_writer;

/* Makes the temporary directory, in the directory that `path` is in. */
ht_status ht_file_set_writer_open(const char *path, ht_file_set_writer **out, ht_error *err);
/* Path of the temporary directory, lent. Its files are the caller's to flush, as ht_writer_commit does. */
const char *ht_file_set_writer_path(const ht_file_set_writer *w);
/* Moves files name[0] to name[n - 1] out of the temporary directory, replaces files of the same names, and frees the
 * writer. The old name[0] is removed first: old and new files never form a set. On failure, restores the old files
 * and removes the new ones. */
ht_status ht_file_set_writer_commit(ht_file_set_writer *w, const char *const *name, int n, ht_error *err);
/* Removes the temporary directory with the files in it and frees the writer. NULL is fine. */
void ht_file_set_writer_discard(ht_file_set_writer *w);

#endif
