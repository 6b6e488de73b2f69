/* The library's warnings, taken note of while something is done. One thread at a time. */
#ifndef TESTS_SUPPORT_WARNINGS_H
#define TESTS_SUPPORT_WARNINGS_H

void warnings_begin(void);
/* The warnings since warnings_begin, each with a newline behind it, until the next begin. Fails the test unless there were `n`. */
const char *warnings_end(int n);

#endif
