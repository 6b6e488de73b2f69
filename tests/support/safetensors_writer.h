/* Builds safetensors files in memory for tests, well formed or broken on purpose. */
#ifndef TESTS_SUPPORT_SAFETENSORS_WRITER_H
#define TESTS_SUPPORT_SAFETENSORS_WRITER_H

#include "base/text.h"

typedef struct safetensors_writer {
    ht_text header, data;
} safetensors_writer; /* zero-initialise */

/* `name` and `dtype` go into the JSON as they are; `data` NULL writes zeros. */
void safetensors_put(safetensors_writer *w, const char *name, const char *dtype, int rank, const int64_t *shape,
                     const void *data, size_t n_bytes);
/* The whole file, owned by the caller; the writer is empty afterwards. */
unsigned char *safetensors_finish(safetensors_writer *w, size_t *size);
/* The same, as a file of the scratch directory. */
void safetensors_write(safetensors_writer *w, const char *name);
/* A file with this header text and n_data zero bytes. */
unsigned char *safetensors_raw(const char *header, size_t n_data, size_t *size);

#endif
