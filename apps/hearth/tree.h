/* Directory trees of the cache: made, linked into another place, removed. */
#ifndef HEARTH_APP_TREE_H
#define HEARTH_APP_TREE_H

#include <hearth/status.h>

#include <stdbool.h>
#include <stddef.h>

/* Removes a file, or a directory with all that is in it; links are not followed. False with errno; a path that is not there is one. */
bool tree_remove(const char *path);
/* Makes the directories above `path`, below the first `from` bytes of it, which are a directory. False with errno. */
bool tree_make_parents(const char *path, size_t from);
/* Removes the directories above `path` that are empty, below the first `from` bytes of it. */
void tree_remove_parents(const char *path, size_t from);

/* Whether a file of a tree, by its path within, is to be linked. */
typedef bool tree_filter(const char *within, void *user);
/* Gives the files of one directory names in another, under the same paths, as hard links. HT_ERR_UNSUPPORTED where the file system has
 * none. */
ht_status tree_link(const char *from, const char *to, tree_filter *wanted, void *user, ht_error *err);
/* Gives a file another name in place of what has that one: as a hard link, or where there are none by moving it. */
ht_status tree_link_or_move(const char *from, const char *to, ht_error *err);

#endif
