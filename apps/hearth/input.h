/* User input: standard input as a whole, and lists of token ids. */
#ifndef HEARTH_APP_INPUT_H
#define HEARTH_APP_INPUT_H

#include <hearth/status.h>

#include <stddef.h>
#include <stdint.h>

/* Reads all of standard input and appends a NUL; the caller frees *text. On a terminal it first prints that it waits
 * for `what` ("the prompt"). */
ht_status input_read_all(const char *what, char **text, size_t *n, ht_error *err);

/* The same for a file, without its byte order mark; "-" is standard input. */
ht_status input_read_file(const char *path, char **text, size_t *n, ht_error *err);

/* Expands a leading ~ or ~NAME as a shell does; the caller frees the path. NULL: memory ran out. */
char *expand_home(const char *path);

typedef struct id_list {
    int32_t *ids;
    size_t n;
} id_list;

/* Appends the ids of a text such as "1,2, 3\n4" to *list (freed with free(list->ids), also after a failure).
 * HT_ERR_ARGUMENT names the first word that is no id. */
ht_status ids_parse(const char *text, id_list *list, ht_error *err);
/* The same for an option's value; "-" reads standard input. */
ht_status ids_read(const char *given, id_list *list, ht_error *err);

/* A text or token ids. */
typedef struct text_source {
    char *text;
    size_t n;
    id_list list;
} text_source;

/* Reads the file of --text or the ids of --ids; both may be NULL. The caller frees *out, also after a failure. */
ht_status text_source_read(const char *text, const char *ids, text_source *out, ht_error *err);
void text_source_free(text_source *s);

#endif
