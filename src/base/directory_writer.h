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

#endif
