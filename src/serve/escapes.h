/* Escapes in JSON that no text here can hold, and what stands for them: before the JSON is read. */
#ifndef HT_SERVE_ESCAPES_H
#define HT_SERVE_ESCAPES_H

#include <stdbool.h>
#include <stddef.h>

/* What has been replaced. */
typedef struct serve_replaced {
    bool nul, surrogate;
} serve_replaced;

/* The n bytes of JSON with U+FFFD, the character that stands for what is none, for each escape of NUL, which C strings end at, and of a
 * surrogate without its other half, which UTF-8 does not have. As many bytes: the text itself where there is no such escape, else a copy in
 * *owned, which the caller frees. NULL: memory ran out. */
const char *serve_escapes_replace(const char *json, size_t n, char **owned, serve_replaced *replaced);

#endif
