/* The header of a NumPy .npy file. Format: numpy.lib.format, versions 1 to 3. */
#ifndef HT_FORMATS_NPY_HEADER_H
#define HT_FORMATS_NPY_HEADER_H

#include "base/dtype.h"

#include <hearth/dtype.h>

#include <stdbool.h>
#include <stdint.h>

enum { HT_NPY_RANK_MAX = 8 };

typedef struct ht_npy_header {
    ht_dtype dtype;
    bool fortran; /* the first axis is the contiguous one */
    bool swapped; /* elements have their highest byte first */
    int rank;
    int64_t shape[HT_NPY_RANK_MAX];
    size_t begin, n_bytes; /* of the elements, in the file */
} ht_npy_header;

/* Longer headers are of structures with many fields. */
enum { HT_NPY_HEADER_MAX = 1 << 16 };

/* Reads the header of a file of `file_size` bytes, of which the first `size` are at `data`: at least HT_NPY_HEADER_MAX, or
 * all. On success the elements are inside the file. */
ht_status ht_npy_read_header(const void *data, size_t size, size_t file_size, const char *name, ht_npy_header *out,
                             ht_error *err);
/* "<f4": as NumPy writes the dtype. */
const char *ht_npy_descr(ht_dtype dtype);

#endif
