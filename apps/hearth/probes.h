/* The probes of --probe, as JSON lines in the file of --probe-out, or on standard error. */
#ifndef HEARTH_APP_PROBES_H
#define HEARTH_APP_PROBES_H

#include "options.h"

#include <stdio.h>

typedef struct probe_lines {
    ht_probe_options options; /* for ht_generate_options; its user is this struct, which must not move */
    FILE *file;
    const char *path; /* NULL: standard error */
    bool failed;      /* something could not be written */
} probe_lines;

/* Kinds of "token,entropy" or "all", added up; 0 for a list that names something else. */
unsigned probes_kinds(const char *list);
/* Opens the file; to be closed after a failure, too. */
ht_status probes_open(const options *o, probe_lines *p, ht_error *err);
/* HT_ERR_IO when not all lines are in the file. */
ht_status probes_close(probe_lines *p, ht_error *err);

#endif
