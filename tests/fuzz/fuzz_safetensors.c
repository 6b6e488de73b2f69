/* Safetensors: whatever parses is walked to its last byte. */
#include "formats/safetensors.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static volatile uint64_t sink;

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    ht_safetensors *s;
    ht_error err = {0};
    if (ht_safetensors_parse(data, size, "fuzz", &s, &err)) {
        if (s || !err.status || !err.message[0]) abort();
        return 0;
    }
    size_t covered = 0;
    for (size_t i = 0; i < ht_safetensors_count(s); i++) {
        const ht_safetensor *t = ht_safetensors_at(s, i);
        if (ht_safetensors_find(s, t->name) != t) abort();
        if (t->data != data + t->offset || t->n_bytes > size - t->offset) abort();
        int64_t n = 1;
        for (int d = 0; d < t->rank; d++) n *= t->shape[d];
        if (t->weight_type >= 0) {
            size_t width = ht_weight_type_info_of((ht_weight_type)t->weight_type)->block_bytes;
            if ((size_t)n * width != t->n_bytes) abort();
        }
        for (size_t b = 0; b < t->n_bytes; b++) sink += t->data[b];
        covered += t->n_bytes;
    }
    sink += strlen(ht_safetensors_metadata(s, "format") ? ht_safetensors_metadata(s, "format") : "");
    if (covered > size - 8) abort();
    ht_safetensors_close(s);
    return 0;
}
