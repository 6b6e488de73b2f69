#include "support/safetensors_writer.h"

#include "support/scratch.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static void put_zeros(ht_text *t, size_t n) {
    while (n--) ht_text_append(t, "\0", 1);
}

void safetensors_put(safetensors_writer *w, const char *name, const char *dtype, int rank, const int64_t *shape,
                     const void *data, size_t n_bytes) {
    ht_text_printf(&w->header, "%s\"%s\":{\"dtype\":\"%s\",\"shape\":[", w->header.len ? "," : "", name, dtype);
    for (int d = 0; d < rank; d++) ht_text_printf(&w->header, "%s%" PRId64, d ? "," : "", shape[d]);
    ht_text_printf(&w->header, "],\"data_offsets\":[%zu,%zu]}", w->data.len, w->data.len + n_bytes);
    if (data)
        ht_text_append(&w->data, data, n_bytes);
    else
        put_zeros(&w->data, n_bytes);
}

static unsigned char *assemble(const char *header, size_t header_len, const ht_text *data, size_t *size) {
    ht_text file = {0};
    for (int i = 0; i < 8; i++) {
        char byte = (char)(((uint64_t)header_len >> (8 * i)) & 0xFF);
        ht_text_append(&file, &byte, 1);
    }
    ht_text_append(&file, header, header_len);
    ht_text_append(&file, data->data, data->len);
    *size = file.len;
    return (unsigned char *)ht_text_take(&file);
}

unsigned char *safetensors_finish(safetensors_writer *w, size_t *size) {
    ht_text header = {0};
    ht_text_append_str(&header, "{");
    ht_text_append(&header, w->header.data, w->header.len);
    ht_text_append_str(&header, "}");
    while (header.len % 8) ht_text_append_str(&header, " ");
    unsigned char *file = assemble(header.data, header.len, &w->data, size);
    ht_text_discard(&header);
    ht_text_discard(&w->header);
    ht_text_discard(&w->data);
    return file;
}

void safetensors_write(safetensors_writer *w, const char *name) {
    size_t size;
    unsigned char *file = safetensors_finish(w, &size);
    scratch_write(name, file, size);
    free(file);
}

unsigned char *safetensors_raw(const char *header, size_t n_data, size_t *size) {
    ht_text data = {0};
    put_zeros(&data, n_data);
    unsigned char *file = assemble(header, strlen(header), &data, size);
    ht_text_discard(&data);
    return file;
}
