/* Temporary directories beside what is written: their names, their removal, and flushing of directories. */
#ifndef HT_BASE_TEMPORARY_DIRECTORY_H
#define HT_BASE_TEMPORARY_DIRECTORY_H

/* Makes a new directory `path`.*.tmp; 0, or errno. The caller frees *out, which is NULL after a failure. */
int ht_temporary_directory_make(const char *path, char **out);
/* Removes the directory with all in it. Links are removed, not followed. */
void ht_temporary_directory_remove(const char *path);

/* Path of the directory that `path` is in; the caller frees it. NULL when memory ran out. */
char *ht_directory_above(const char *path);
/* Flushes the names in a directory; 0, or errno. A file system that cannot flush directories is no failure. */
int ht_directory_flush(const char *path);

#endif
