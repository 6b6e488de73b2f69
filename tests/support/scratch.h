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
#define in_scratch(test) cmocka_unit_test_setup_teardown(test, scratch_start, scratch_finish)
/* The bytes of a file, and of one there, which must be some; the caller frees them. A failure ends the test. */
char *file_bytes(const char *path, size_t *n);
char *scratch_read(const char *name, size_t *n);

#endif
