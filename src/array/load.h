/* Array file internals (hearth/io.h): the format-specific part of ht_array_file. */
#ifndef HT_ARRAY_LOAD_H
#define HT_ARRAY_LOAD_H

#include "array/array.h"
#include "formats/gguf.h"
#include "formats/safetensors.h"
#include "formats/zip.h"

#include <hearth/io.h>

/* Content of an array read from a GGUF file: a whole tensor, or one part of its quantised blocks. */
typedef enum ht_part { HT_PART_ALL, HT_PART_NUMBERS, HT_PART_SCALES, HT_PART_BIASES } ht_part;

/* An array that a GGUF file holds: which tensor, and which part of it. */
typedef struct ht_gguf_array {
    char *name;
    size_t tensor;
    ht_part part;
} ht_gguf_array;

struct ht_array_file {
    ht_file *file;
    ht_safetensors *safetensors; /* exactly one of the three formats is not NULL */
    ht_gguf *gguf;
    ht_zip *zip;
    ht_gguf_array *parts; /* [count], GGUF only */
    size_t count;
    char *metadata;
};

ht_status ht_array_file_open_gguf(ht_array_file *f, ht_error *err);
ht_array *ht_array_file_read_gguf(ht_scope *s, ht_array_file *f, size_t i);

/* New evaluated array with uninitialised elements, which the caller writes to *data, host memory, before ht_array_filled takes
 * them to the device. Until then the array is the caller's alone. */
ht_array *ht_array_unfilled(ht_scope *s, ht_dtype dtype, const int64_t *shape, int n_dims, void **data);
ht_array *ht_array_filled(ht_scope *s, ht_array *a); /* `a`, or NULL with an error in the scope, as for NULL */

#endif
