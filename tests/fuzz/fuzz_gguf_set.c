/* GGUF in two parts, the first half of the input and the second: what is accepted finds every tensor where it is. */
#include "formats/gguf_set.h"
#include "fuzz.h"

#include <stdlib.h>
#include <string.h>

/* The first four bytes say where the second part begins. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    uint32_t first;
    if (size < sizeof first) return 0;
    memcpy(&first, data, sizeof first);
    data += sizeof first;
    size -= sizeof first;
    if (first > size) first = (uint32_t)(first % (size + 1));
    const ht_gguf_source sources[] = {{"one", data, first}, {"two", data + first, size - first}};
    ht_gguf_set *set;
    ht_error err = {0};
    const ht_status status = ht_gguf_set_parse(sources, 2, &set, &err);
    if (refused(status, &err, set)) return 0;
    for (size_t i = 0; i < ht_gguf_set_n_tensors(set); i++) {
        const ht_gguf_part *part, *found_in;
        const ht_gguf_tensor *t = ht_gguf_set_tensor_at(set, i, &part);
        char *name = calloc(t->name.len + 1, 1);
        if (!name) break;
        memcpy(name, t->name.data, t->name.len);
        if (ht_gguf_set_find(set, name, &found_in) != t || found_in != part) abort();
        free(name);
    }
    ht_gguf_set_close(set);
    return 0;
}
