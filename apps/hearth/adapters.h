/* The adapters that --adapter names. */
#ifndef HEARTH_APP_ADAPTERS_H
#define HEARTH_APP_ADAPTERS_H

#include "options.h"

#include <hearth/adapter.h>

typedef struct adapter_list {
    ht_adapter **adapter; /* [n] */
    float *scale;         /* [n] */
    char **name;          /* [n] NAME, or the path where none was given */
    int n;
} adapter_list;

/* Loads [name=]PATH[@scale] for each of o->adapters, for the model, and prints what there is to say about one. A list that is not
 * whole is to be freed too. */
ht_status adapters_load(const options *o, const ht_model *m, adapter_list *out, ht_error *err);
/* The path of one such word, in fresh memory, and its scale; NULL when memory ran out. */
char *adapter_path(const char *word, float *scale);
void adapters_free(adapter_list *list);

#endif
