/* npy writer (hearth/npy.h). */
#include "base/checked.h"
#include "base/error.h"
#include "base/file.h"
#include "base/half.h"

#include <hearth/npy.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Header: 6 bytes of magic, 2 of version, 2 of length, then text, padded to a multiple of 64. Fits two 19-digit
 * dimensions. */
enum { HEADER_BYTES = 128, TEXT_BYTES = HEADER_BYTES - 10, CHUNK_VALUES = 4096 };

struct ht_npy_writer {
    ht_writer *file;
    char *path;
    int64_t n_rows, n_columns, n_put;
};

static void make_header(char header[HEADER_BYTES], int64_t n_rows, int64_t n_columns) {
    static const char magic[10] = {'\x93', 'N', 'U', 'M', 'P', 'Y', 1, 0, TEXT_BYTES, 0};
    char text[TEXT_BYTES + 1];
    int n =
        snprintf(text, sizeof text, "{'descr': '<f4', 'fortran_order': False, 'shape': (%" PRId64 ", %" PRId64 "), }",
                 n_rows, n_columns);
    memcpy(header, magic, sizeof magic);
    memset(header + sizeof magic, ' ', TEXT_BYTES);
    memcpy(header + sizeof magic, text, (size_t)n);
    header[HEADER_BYTES - 1] = '\n';
}

ht_status ht_npy_writer_new(const char *path, int64_t n_rows, int64_t n_columns, ht_npy_writer **out, ht_error *err) {
    *out = NULL;
    int64_t count, bytes;
    if (n_rows < 0 || n_columns < 0 || !ht_mul_i64(n_rows, n_columns, &count) || !ht_mul_i64(count, 4, &bytes))
        return ht_fail(err, HT_ERR_ARGUMENT, "%s: a matrix of %" PRId64 " x %" PRId64 " cannot be written", path,
                       n_rows, n_columns);
    ht_npy_writer *w = calloc(1, sizeof *w);
    if (w) w->path = strdup(path);
    if (!w || !w->path) {
        ht_npy_writer_free(w);
        return ht_fail_memory(err, sizeof *w, path);
    }
    w->n_rows = n_rows;
    w->n_columns = n_columns;
    char header[HEADER_BYTES];
    make_header(header, n_rows, n_columns);
    ht_status st = ht_writer_open(path, &w->file, err);
    if (!st) st = ht_writer_put(w->file, header, sizeof header, err);
    if (st) {
        ht_npy_writer_free(w);
        return st;
    }
    *out = w;
    return HT_OK;
}

/* Writes little-endian f32 on any machine. */
static ht_status put_values(ht_npy_writer *w, const float *values, size_t n, ht_error *err) {
    unsigned char bytes[4 * CHUNK_VALUES];
    while (n) {
        size_t chunk = ht_min_size(n, CHUNK_VALUES);
        for (size_t i = 0; i < chunk; i++) {
            uint32_t bits = ht_float_bits(values[i]);
            for (int b = 0; b < 4; b++) bytes[4 * i + (size_t)b] = (unsigned char)(bits >> (8 * b));
        }
        ht_status st = ht_writer_put(w->file, bytes, 4 * chunk, err);
        if (st) return st;
        values += chunk;
        n -= chunk;
    }
    return HT_OK;
}

ht_status ht_npy_writer_put(ht_npy_writer *w, const float *values, int64_t n_rows, ht_error *err) {
    if (!w->file) return ht_fail(err, HT_ERR_ARGUMENT, "%s: rows after the commit", w->path);
    if (n_rows < 0 || n_rows > w->n_rows - w->n_put)
        return ht_fail(err, HT_ERR_ARGUMENT,
                       "%s: %" PRId64 " rows after row %" PRId64 ", the file was announced with %" PRId64, w->path,
                       n_rows, w->n_put, w->n_rows);
    ht_status st = put_values(w, values, (size_t)n_rows * (size_t)w->n_columns, err);
    if (!st) w->n_put += n_rows;
    return st;
}

ht_status ht_npy_writer_commit(ht_npy_writer *w, ht_error *err) {
    if (!w->file) return ht_fail(err, HT_ERR_ARGUMENT, "%s: committed twice", w->path);
    if (w->n_put != w->n_rows)
        return ht_fail(err, HT_ERR_ARGUMENT, "%s: has %" PRId64 " rows, was announced with %" PRId64, w->path, w->n_put,
                       w->n_rows);
    ht_writer *file = w->file; /* which the commit frees */
    w->file = NULL;
    return ht_writer_commit(file, err);
}

void ht_npy_writer_free(ht_npy_writer *w) {
    if (!w) return;
    ht_writer_discard(w->file);
    free(w->path);
    free(w);
}
