/* Typed reading of GGUF metadata with a sticky error, the counterpart of formats/json.h. Names omit the architecture
 * prefix: "block_count" reads "llama.block_count". */
#ifndef HT_CHECKPOINT_GGUF_FIELDS_H
#define HT_CHECKPOINT_GGUF_FIELDS_H

#include "formats/gguf.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct ht_meta {
    const ht_gguf *gguf;
    const char *file; /* for messages */
    char architecture[64];
    ht_status status;
    ht_error *err;
} ht_meta;

bool ht_meta_has(const ht_meta *m, const char *name);
int64_t ht_meta_i64(ht_meta *m, const char *name, int64_t fallback);
bool ht_meta_bool(ht_meta *m, const char *name, bool fallback);
double ht_meta_f64(ht_meta *m, const char *name, double fallback);
/* A number, or an array of equal numbers per layer. */
int64_t ht_meta_uniform_i64(ht_meta *m, const char *name, int64_t fallback);
/* A number for all layers, or element `layer` of an array of numbers or booleans per layer. */
int64_t ht_meta_layer_i64(ht_meta *m, const char *name, int64_t layer, int64_t fallback);
/* Copies at most size - 1 bytes and a NUL; "" when absent. */
void ht_meta_string(ht_meta *m, const char *name, char *out, size_t size);
/* NULL when absent. */
const ht_gguf_value *ht_meta_value(const ht_meta *m, const char *name);

/* Records an error, unless there was one before. */
void ht_meta_fail(ht_meta *m, ht_status status, const char *fmt, ...) HT_PRINTF(3, 4);

#endif
