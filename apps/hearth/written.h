/* Output about a checkpoint that was written: the path to load, its files and bytes. */
#ifndef HEARTH_APP_WRITTEN_H
#define HEARTH_APP_WRITTEN_H

#include <hearth/convert.h>

enum { WRITTEN_PATH_SIZE = 4352 /* more than a path that was opened can have */ };

/* The path to load of what ht_convert wrote to `out`: that, or the first of several GGUF files beside each other. */
void written_path(const char *out, const ht_convert_report *r, char path[WRITTEN_PATH_SIZE]);
/* Prints the path, the files where there are several, and the bytes. */
void written_print(const char *out, const ht_convert_report *r);

#endif
