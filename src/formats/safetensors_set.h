/* Internals of ht_safetensors, shared by parser and opener. */
#ifndef HT_FORMATS_SAFETENSORS_SET_H
#define HT_FORMATS_SAFETENSORS_SET_H

#include "formats/json.h"
#include "formats/name_index.h"
#include "formats/safetensors.h"

#include <string.h>

/* Two arguments of "%.*s" for a name in a message. */
#define SHOWN(name) ht_name_shown(name, strlen(name)), name

enum { HT_SAFETENSORS_HEADER_MAX = 100000000 }; /* maximum header size in bytes */

struct ht_safetensors {
    ht_safetensor *tensors; /* names are owned by the set */
    size_t n_tensors;
    ht_name_index names;
    ht_json *metadata; /* of the first file; NULL when absent */
    ht_file **files;
    int n_files;
};

/* Parses `data` as file number `file` and adds its tensors; the set may be partly extended after a failure. */
ht_status ht_safetensors_add(ht_safetensors *set, const void *data, size_t size, const char *name, int file,
                             ht_error *err);
/* Builds the name index once all files are added; a repeated name is an error. `where` prefixes messages. */
ht_status ht_safetensors_index(ht_safetensors *set, const char *where, ht_error *err);

#endif
