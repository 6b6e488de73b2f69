/* Calls that change files, of which one kills the process or fails. Programs that use it are linked with --wrap for these calls
 * (tests/CMakeLists.txt). */
#ifndef TESTS_SUPPORT_FILE_CALLS_H
#define TESTS_SUPPORT_FILE_CALLS_H

#include <stdbool.h>

/* The process is killed before its k-th call from now on, counted from 0; a write counts twice: before it, and half-way. */
void file_calls_kill(int k);
/* Whether a child that does the work is killed at its k-th call; else it ends, and the work must succeed. */
bool file_calls_killed(int k, bool (*work)(void *user), void *user);
/* The k-th call that creates, writes or renames fails with ENOSPC. */
void file_calls_fail(int k);
/* Ends that; whether the call was made. */
bool file_calls_stop(void);

#endif
