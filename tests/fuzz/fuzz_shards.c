/* Safetensors in shards: model.safetensors.index.json and the headers of up to three shards, with a NUL between each. The
 * first byte says which of the files there are. What is accepted has every tensor once, where the index says. */
#include "files.h"
#include "formats/safetensors.h"

#include <stdlib.h>
#include <string.h>

static const char *const shards[] = {"model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors",
                                     "model.safetensors"};

static void walk(const ht_safetensors *s) {
    check(ht_safetensors_n_files(s) >= 1);
    uint8_t byte;
    ht_error err = {0};
    for (size_t i = 0; i < ht_safetensors_count(s); i++) {
        const ht_safetensor *t = ht_safetensors_at(s, i);
        check(ht_safetensors_find(s, t->name) == t);
        check(t->file >= 0 && t->file < ht_safetensors_n_files(s));
        const ht_file *file = ht_safetensors_file(s, t->file);
        check(t->offset <= file->size && t->n_bytes <= file->size - t->offset);
        check(!t->n_bytes || !ht_file_read_at(file, t->offset + t->n_bytes - 1, &byte, 1, &err));
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size == 0) return 0;
    uint8_t there = *data++;
    size--;
    const char *directory = files_begin();
    size_t n;
    const uint8_t *part = files_part(&data, &size, &n);
    if (there & 1) files_write("model.safetensors.index.json", part, n);
    for (int i = 0; i < 3; i++) {
        part = files_part(&data, &size, &n);
        if (there & 2 << i) files_write_safetensors(shards[i], part, n);
    }
    ht_safetensors *s;
    ht_error err = {0};
    ht_status status = ht_safetensors_open(directory, &s, &err);
    if (refused(status, &err, s)) return 0;
    walk(s);
    ht_safetensors_close(s);
    return 0;
}
