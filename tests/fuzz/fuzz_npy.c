/* The header of .npy files: whatever parses lies inside the file. */
#include "formats/npy_header.h"
#include "fuzz.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    ht_npy_header h;
    ht_error err = {0};
    if (ht_npy_read_header(data, size, size, "fuzz", &h, &err)) {
        if (!err.status || !err.message[0]) abort();
        return 0;
    }
    if (h.begin > size || h.n_bytes > size - h.begin || h.rank > HT_NPY_RANK_MAX || h.rank < 0) abort();
    size_t count = ht_dtype_bytes(h.dtype);
    for (int i = 0; i < h.rank; i++) count *= (size_t)h.shape[i];
    if (count != h.n_bytes) abort();
    return 0;
}
