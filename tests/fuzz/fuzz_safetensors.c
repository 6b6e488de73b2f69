/* Safetensors: whatever parses is walked to its last byte. */
#include "formats/safetensors.h"
#include "fuzz.h"

#include <stdlib.h>
#include <string.h>

static volatile uint64_t sink;

static void parse_and_walk(const uint8_t *data, size_t size) {
    ht_safetensors *s;
    ht_error err = {0};
    const ht_status status = ht_safetensors_parse(data, size, "fuzz", &s, &err);
    if (refused(status, &err, s)) return;
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
    const char *format = ht_safetensors_metadata(s, "format");
    sink += format ? strlen(format) : 0;
    if (covered > size - 8) abort();
    ht_safetensors_close(s);
}

/* Once as it is, and once with the length made to fit: a mutation seldom keeps text and length in step. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    parse_and_walk(data, size);
    size_t end = size;
    while (end > 8 && data[end - 1] != '}') end--;
    if (end <= 8) return 0;
    uint8_t *copy = malloc(size);
    if (!copy) return 0;
    memcpy(copy, data, size);
    for (int i = 0; i < 8; i++) copy[i] = (uint8_t)((uint64_t)(end - 8) >> (8 * i));
    parse_and_walk(copy, size);
    free(copy);
    return 0;
}
