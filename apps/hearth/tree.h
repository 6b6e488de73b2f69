/* Creates, hard-links and removes directory trees of the cache. */
#ifndef HEARTH_APP_TREE_H
#define HEARTH_APP_TREE_H

#include <hearth/status.h>

#include <stdbool.h>
#include <stddef.h>

/* Removes a file or a directory tree without following links. False with errno, also for a missing path. */
bool tree_remove(const char *path);
/* Creates the parent directories of `path` below its first `from` bytes, an existing directory. False with errno. */
bool tree_make_parents(const char *path, size_t from);
/* Removes empty parent directories of `path` below its first `from` bytes. */
void tree_remove_parents(const char *path, size_t from);

/* Selects the files to link, by path in the tree. */
typedef bool tree_filter(const char *within, void *user);
/* Hard-links the wanted files of one directory tree into another. HT_ERR_UNSUPPORTED without hard links. */
ht_status tree_link(const char *from, const char *to, tree_filter *wanted, void *user, ht_error *err);
/* Hard-links a file, or moves it on a file system without hard links; replaces an existing target. */
ht_status tree_link_or_move(const char *from, const char *to, ht_error *err);

#endif
