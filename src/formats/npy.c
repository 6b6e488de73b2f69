/* npy headers, read by a sticky-error cursor from a Python dict of three entries in any order, and written; and the writer of
 * matrices (hearth/npy.h). */
#include "base/checked.h"
#include "base/error.h"
#include "base/file.h"
#include "base/half.h"
#include "formats/npy_header.h"

#include <hearth/npy.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* NumPy's spelling of the dtypes. */
static const char *const descrs[HT_DTYPE_COUNT] = {
    [HT_BOOL] = "|b1", [HT_U8] = "|u1",  [HT_U16] = "<u2",  [HT_U32] = "<u4", [HT_U64] = "<u8",
    [HT_I8] = "|i1",   [HT_I16] = "<i2", [HT_I32] = "<i4",  [HT_I64] = "<i8", [HT_F16] = "<f2",
    [HT_F32] = "<f4",  [HT_F64] = "<f8", [HT_BF16] = "<V2",
};

typedef struct cursor {
    const char *at, *end;
    bool bad;
} cursor;

static void skip_spaces(cursor *c) {
    while (c->at < c->end && (*c->at == ' ' || *c->at == '\t' || *c->at == '\n' || *c->at == '\r')) c->at++;
}

/* Consumes `text` if it is next. */
static bool accept(cursor *c, const char *text) {
    skip_spaces(c);
    size_t n = strlen(text);
    if (c->bad || (size_t)(c->end - c->at) < n || memcmp(c->at, text, n) != 0) return false;
    c->at += n;
    return true;
}

static void expect(cursor *c, const char *text) { c->bad |= !accept(c, text); }

/* A Python string literal without escapes, truncated to `capacity` - 1 bytes. */
static void read_string(cursor *c, char *out, size_t capacity) {
    out[0] = '\0';
    skip_spaces(c);
    if (c->at == c->end || (*c->at != '\'' && *c->at != '"')) c->bad = true;
    if (c->bad) return;
    const char *begin = c->at + 1, *close = memchr(begin, *c->at, (size_t)(c->end - begin));
    if (!close) {
        c->bad = true;
        return;
    }
    size_t n = ht_min_size((size_t)(close - begin), capacity - 1);
    memcpy(out, begin, n);
    out[n] = '\0';
    c->at = close + 1;
}

static int64_t read_size(cursor *c) {
    int64_t n = 0;
    skip_spaces(c);
    if (c->at == c->end || *c->at < '0' || *c->at > '9') c->bad = true;
    for (; !c->bad && c->at < c->end && *c->at >= '0' && *c->at <= '9'; c->at++)
        c->bad |= !ht_mul_i64(n, 10, &n) || !ht_add_i64(n, *c->at - '0', &n);
    return n;
}

/* "(2, 3)", "(2,)", "()" */
static void read_shape(cursor *c, ht_npy_header *h) {
    expect(c, "(");
    while (!c->bad && !accept(c, ")")) {
        if (h->rank == HT_NPY_RANK_MAX) {
            c->bad = true;
            return;
        }
        h->shape[h->rank++] = read_size(c);
        if (accept(c, ",")) continue;
        expect(c, ")");
        return;
    }
}

static bool find_dtype(const char *descr, ht_npy_header *h) {
    for (int d = HT_BOOL; d < HT_DTYPE_COUNT; d++) {
        const bool one_byte = descrs[d][2] == '1', bf16 = d == HT_BF16, swapped = descr[0] == '>' && !one_byte;
        const bool order = descr[0] == '<' || descr[0] == '=' || (one_byte && descr[0]) || (bf16 && descr[0] == '|');
        if ((order || (swapped && !bf16)) && strcmp(descr + 1, descrs[d] + 1) == 0) {
            h->dtype = (ht_dtype)d;
            h->swapped = swapped;
            return true;
        }
    }
    return false;
}

static ht_status read_dict(cursor *c, const char *name, ht_npy_header *h, ht_error *err) {
    char key[32], descr[16] = "";
    bool has_order = false, has_shape = false;
    expect(c, "{");
    while (!c->bad && !accept(c, "}")) {
        read_string(c, key, sizeof key);
        expect(c, ":");
        if (strcmp(key, "descr") == 0 && !descr[0])
            read_string(c, descr, sizeof descr);
        else if (strcmp(key, "fortran_order") == 0 && !has_order) {
            has_order = true;
            h->fortran = accept(c, "True");
            if (!h->fortran) expect(c, "False");
        } else if (strcmp(key, "shape") == 0 && !has_shape) {
            has_shape = true;
            read_shape(c, h);
        } else
            c->bad = true;
        if (accept(c, ",")) continue;
        expect(c, "}");
        break;
    }
    if (c->bad || !descr[0] || !has_order || !has_shape)
        return ht_fail(err, HT_ERR_FORMAT, "%s: the header is no dict of descr, fortran_order and shape", name);
    if (!find_dtype(descr, h))
        return ht_fail(err, HT_ERR_UNSUPPORTED, "%s: elements \"%s\" have no dtype here", name, descr);
    return HT_OK;
}

ht_status ht_npy_read_header(const void *data, size_t size, size_t file_size, const char *name, ht_npy_header *out,
                             ht_error *err) {
    const unsigned char *b = data;
    *out = (ht_npy_header){0};
    if (size < 12 || memcmp(b, "\x93NUMPY", 6) != 0) return ht_fail(err, HT_ERR_FORMAT, "%s: not a .npy file", name);
    if (b[6] < 1 || b[6] > 3)
        return ht_fail(err, HT_ERR_UNSUPPORTED, "%s: .npy version %d.%d, expected 1 to 3", name, b[6], b[7]);
    size_t begin = b[6] == 1 ? 10 : 12, n = (size_t)b[8] | (size_t)b[9] << 8;
    if (b[6] > 1) n |= (size_t)b[10] << 16 | (size_t)b[11] << 24;
    if (n > HT_NPY_HEADER_MAX - begin || n > size - begin)
        return ht_fail(err, HT_ERR_FORMAT, "%s: a header of %zu bytes in a file of %zu", name, n, file_size);
    cursor c = {.at = (const char *)b + begin, .end = (const char *)b + begin + n};
    ht_status st = read_dict(&c, name, out, err);
    if (st) return st;
    size_t count = 1;
    for (int i = 0; i < out->rank; i++)
        if (!ht_mul_size(count, (size_t)out->shape[i], &count))
            return ht_fail(err, HT_ERR_FORMAT, "%s: the shape is too large", name);
    out->begin = begin + n;
    if (!ht_mul_size(count, ht_dtype_bytes(out->dtype), &out->n_bytes) || out->n_bytes > file_size - out->begin)
        return ht_fail(err, HT_ERR_FORMAT, "%s: %zu elements are declared, %zu bytes are present", name, count,
                       file_size - out->begin);
    return HT_OK;
}

/* ---- writing ---- */

enum { PREFIX = 10, ALIGNMENT = 64 };

size_t ht_npy_write_header(ht_dtype dtype, const int64_t *shape, int n_dims, char header[HT_NPY_HEADER_WRITTEN]) {
    static const char magic[8] = {'\x93', 'N', 'U', 'M', 'P', 'Y', 1, 0};
    memcpy(header, magic, sizeof magic);
    size_t n = PREFIX, capacity = HT_NPY_HEADER_WRITTEN;
    n +=
        (size_t)snprintf(header + n, capacity - n, "{'descr': '%s', 'fortran_order': False, 'shape': (", descrs[dtype]);
    for (int i = 0; i < n_dims; i++)
        n += (size_t)snprintf(header + n, capacity - n, i && i == n_dims - 1 ? "%" PRId64 : "%" PRId64 ", ", shape[i]);
    n += (size_t)snprintf(header + n, capacity - n, "), }");
    size_t end = (n + 1 + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    memset(header + n, ' ', end - n);
    header[end - 1] = '\n';
    header[8] = (char)((end - PREFIX) & 255);
    header[9] = (char)((end - PREFIX) >> 8);
    return end;
}

/* ---- matrices ---- */

enum { CHUNK_VALUES = 4096 };

struct ht_npy_writer {
    ht_writer *file;
    char *path;
    int64_t n_rows, n_columns, n_put;
};

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
    char header[HT_NPY_HEADER_WRITTEN];
    const size_t n = ht_npy_write_header(HT_F32, (const int64_t[]){n_rows, n_columns}, 2, header);
    ht_status st = ht_writer_open(path, &w->file, err);
    if (!st) st = ht_writer_put(w->file, header, n, err);
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
