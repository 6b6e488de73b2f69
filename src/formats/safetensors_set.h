/* Internals of ht_safetensors, shared by its parser and its opener. */
#ifndef HT_FORMATS_SAFETENSORS_SET_H
#define HT_FORMATS_SAFETENSORS_SET_H

#include "formats/name_index.h"
#include "formats/safetensors.h"

#include <jansson.h>
#include <string.h>

/* The two arguments of "%.*s" for a name in a message. */
#define SHOWN(name) ht_name_shown(name, strlen(name)), name

enum { HT_SAFETENSORS_HEADER_MAX = 100000000 }; /* bytes of a header */

struct ht_safetensors {
    ht_safetensor *tensors; /* their names are owned here */
    size_t n_tensors, capacity;
    ht_name_index names;
    json_t *metadata; /* of the first file; NULL when it has none */
    ht_file **files;
    int n_files, files_capacity;
};

/* Adds the tensors of one file, given as its bytes. The set may hold some of them after a failure. */
ht_status ht_safetensors_add(ht_safetensors *set, const void *data, size_t size, const char *name, int file,
                             ht_error *err);
/* Makes the set searchable once all files are in; a name that is there twice is an error. `where` names each file. */
ht_status ht_safetensors_index(ht_safetensors *set, const char *where, ht_error *err);

#endif
