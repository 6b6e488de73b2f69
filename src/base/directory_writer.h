/* Directories that appear whole or not at all: files go to a temporary directory beside the target, `path`.*.tmp, which
 * takes the target's place on commit. */
#ifndef HT_BASE_DIRECTORY_WRITER_H
#define HT_BASE_DIRECTORY_WRITER_H

#include <hearth/status.h>

typedef struct ht_directory_writer ht_directory_writer;

/* Whether the directory may be written, as far as that can be told without writing. A target that exists must be a directory
 * whose entries are all among `known`, a list that ends with NULL, so that nobody's files are lost: HT_ERR_ARGUMENT names an
 * entry that is not. HT_ERR_IO when the directory above is missing or not writable. */
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

/* Sets of files that are of use together alone: all of them are written to a temporary directory, `path`.*.tmp, and moved to
 * their names beside it on commit, the first one last. Whoever finds the first file finds the whole set, also when the process
 * is killed between two of them. */
typedef struct ht_file_set_writer ht_file_set_writer;

/* Makes the temporary directory, in the directory that `path` is in. */
ht_status ht_file_set_writer_open(const char *path, ht_file_set_writer **out, ht_error *err);
/* Path of the temporary directory, lent. Its files are the caller's to flush, as ht_writer_commit does. */
const char *ht_file_set_writer_path(const ht_file_set_writer *w);
/* Moves files name[0] to name[n - 1] out of the temporary directory, over those of the same names, and frees the writer. Of
 * files that are replaced the first one goes first, so that old and new ones never make a set. On failure what was there is there
 * again, and nothing of the new set. */
ht_status ht_file_set_writer_commit(ht_file_set_writer *w, const char *const *name, int n, ht_error *err);
/* Removes the temporary directory with the files in it and frees the writer. NULL is fine. */
void ht_file_set_writer_discard(ht_file_set_writer *w);

#endif
