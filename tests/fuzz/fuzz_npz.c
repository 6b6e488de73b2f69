/* Archives of arrays: entries lie inside the file, and what unpacks has the size that was announced. */
#include "files.h"
#include "formats/npy_header.h"
#include "formats/zip.h"

static void read_whole(const ht_zip *z, size_t i) {
    const ht_zip_entry *e = &z->entries[i];
    unsigned char piece[4096];
    ht_error err = {0};
    ht_zip_stream *s;
    if (ht_zip_open(z, i, &s, &err)) abort();
    size_t left = e->size;
    ht_status st = HT_OK;
    for (size_t n; left && !st; left -= n) {
        n = left < sizeof piece ? left : sizeof piece;
        st = ht_zip_get(s, piece, n, &err);
        ht_npy_header h;
        if (!st && left == e->size) (void)ht_npy_read_header(piece, n, n, "fuzz", &h, &err);
    }
    if (!st && !ht_zip_get(s, piece, 1, &err)) abort(); /* nothing is behind the end */
    if (st && !err.message[0]) abort();
    ht_zip_close(s);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    files_begin();
    files_write("x.npz", data, size);
    char path[128];
    snprintf(path, sizeof path, "%s/x.npz", files_directory);
    ht_file *file;
    ht_zip *z;
    ht_error err = {0};
    if (ht_file_open(path, &file, &err)) return 0;
    if (ht_zip_read(file, ".npy", &z, &err)) {
        if (!err.status || !err.message[0]) abort();
    } else {
        for (size_t i = 0; i < z->count; i++) {
            const ht_zip_entry *e = &z->entries[i];
            if (!*e->name || e->begin > size || e->compressed > size - e->begin) abort();
            if (e->size < 1 << 22) read_whole(z, i);
        }
        ht_zip_free(z);
    }
    ht_file_close(file);
    return 0;
}
