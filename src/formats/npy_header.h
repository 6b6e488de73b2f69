/* npy header of NumPy. Format: numpy.lib.format, versions 1 to 3. */
#ifndef HT_FORMATS_NPY_HEADER_H
#define HT_FORMATS_NPY_HEADER_H

#include "base/dtype.h"

#include <hearth/dtype.h>

#include <stdbool.h>
#include <stdint.h>

enum { HT_NPY_RANK_MAX = 8 };

typedef struct ht_npy_header {
    ht_dtype dtype;
    bool fortran; /* column-major: the first axis is contiguous */
    bool swapped; /* big-endian elements */
    int rank;
    int64_t shape[HT_NPY_RANK_MAX];
    size_t begin, n_bytes; /* byte range of the elements in the file */
} ht_npy_header;

/* Larger headers belong to structured dtypes, which are not supported. */
enum { HT_NPY_HEADER_MAX = 1 << 16 };

/* Parses the header of a file of `file_size` bytes. `data` has its first `size` bytes: HT_NPY_HEADER_MAX, or all when
 * the file is shorter. On success the elements lie inside the file. */
ht_status ht_npy_read_header(const void *data, size_t size, size_t file_size, const char *name, ht_npy_header *out,
                             ht_error *err);
/* Writes the header, version 1.0, of an array of up to HT_NPY_RANK_MAX axes in C order, and returns its length: the elements
 * follow it. */
enum { HT_NPY_HEADER_WRITTEN = 512 };
size_t ht_npy_write_header(ht_dtype dtype, const int64_t *shape, int n_dims, char header[HT_NPY_HEADER_WRITTEN]);

#endif
