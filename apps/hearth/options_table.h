/* The table of all options: names, values, the commands that use them, and their help. */
#ifndef HEARTH_APP_OPTIONS_TABLE_H
#define HEARTH_APP_OPTIONS_TABLE_H

#include "options.h"

typedef enum option_kind {
    KIND_FLAG,
    KIND_INTEGER,
    KIND_SEED, /* a uint64_t */
    KIND_NUMBER,
    KIND_SIZE, /* bytes, with a unit */
    KIND_TEXT,
    KIND_PATH,
    KIND_LIST,
    KIND_PATHS, /* a list of files */
    KIND_CHOICE,
    KIND_ORDER,
    KIND_BIAS /* of a logit; a list */
} option_kind;

/* An option of the commands in `commands`. An option whose meaning, range or default differs between commands has
 * several rows, with the same field, kind and letter. */
typedef struct option_spec {
    const char *name; /* without the dashes */
    char letter;      /* 0: none */
    option_kind kind;
    size_t field; /* offset in options */
    double low, high;
    const char *const *choices;
    unsigned commands; /* commands that accept it; all others reject it */
    const char *value; /* placeholder in the help */
    const char *help;
} option_spec;

/* Whether it may be given several times. */
bool option_is_list(const option_spec *spec);

extern const option_spec option_table[];
extern const int option_count;
/* Mutually exclusive pairs; one on the command line overrides the other in --config. NULL-terminated. */
extern const char *const option_rivals[][2];
extern const char *const precisions[], *const kv_names[]; /* end with NULL */

#endif
