/* A directory of its own for a test that needs files. */
#ifndef TESTS_SUPPORT_SCRATCH_H
#define TESTS_SUPPORT_SCRATCH_H

#include <stddef.h>

/* Makes an empty directory below $TMPDIR or /tmp; fails the test when it cannot. */
void scratch_make(void);
const char *scratch_directory(void);
/* directory/name, valid until the 64th call after this one. */
const char *scratch_path(const char *name);
/* The same in a new directory within it. */
const char *scratch_path_apart(const char *name);
void scratch_write(const char *name, const void *bytes, size_t n);
/* Entries in the directory, `.` and `..` aside. */
int scratch_count(void);
/* Removes the directory and all in it. */
void scratch_remove(void);
/* Both as a test's or a group's setup and teardown. */
int scratch_start(void **state);
int scratch_finish(void **state);
/* The bytes of a file there, which must be some and fewer than a megabyte; the caller frees them. */
char *scratch_read(const char *name, size_t *n);

#endif
