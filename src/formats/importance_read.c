/* Readers of importance weights. Source of both layouts: llama.cpp's tools/imatrix.
 *
 * GGUF: general.type "imatrix", and for each matrix NAME two tensors of F32: NAME.in_sum2 with the sums of squares [columns,
 * experts] and NAME.counts with the inputs that they are of [1, experts].
 *
 * The older form has no magic number. Little-endian: i32 number of entries; of each i32 length and bytes of the name, i32
 * chunks, i32 number of values, and that many f32, the means times the chunks; then, where the file goes on, i32 chunks in all, i32
 * length and bytes of the text's name. */
#include "base/checked.h"
#include "base/error.h"
#include "base/file.h"
#include "formats/gguf.h"
#include "formats/gguf_bytes.h"
#include "formats/importance.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static void read_floats(const unsigned char *from, int64_t n, float *out) {
    for (int64_t i = 0; i < n; i++) {
        const uint32_t bits = ht_le32(from + 4 * i);
        memcpy(&out[i], &bits, sizeof bits);
    }
}

/* ---- GGUF ---- */

static const char sums_end[] = ".in_sum2", counts_end[] = ".counts";

static bool ends_in(ht_bytes name, const char *end, size_t *before) {
    const size_t n = strlen(end);
    if (name.len <= n || memcmp(name.data + name.len - n, end, n) != 0) return false;
    *before = name.len - n;
    return true;
}

static int64_t elements(const ht_gguf_tensor *t) { return (int64_t)(t->n_bytes / sizeof(float)); }

/* The tensor `name` + `end`; NULL when there is none. */
static const ht_gguf_tensor *partner(const ht_gguf *g, ht_bytes name, const char *end) {
    char whole[256];
    if (name.len > sizeof whole - sizeof sums_end) return NULL;
    snprintf(whole, sizeof whole, "%.*s%s", (int)name.len, name.data, end);
    return ht_gguf_find_tensor(g, whole);
}

static ht_status read_pair(const ht_gguf *g, ht_bytes name, const ht_gguf_tensor *sums, ht_importance *into,
                           ht_error *err) {
    const int shown = ht_name_shown(name.data, name.len);
    const ht_gguf_tensor *counts = partner(g, name, counts_end);
    if (!counts)
        return ht_fail(err, HT_ERR_FORMAT, "`%.*s` has sums but no counts, expected `%.*s%s` too", shown, name.data,
                       shown, name.data, counts_end);
    if (sums->type != HT_W_F32 || counts->type != HT_W_F32)
        return ht_fail(err, HT_ERR_FORMAT, "`%.*s` has sums of %s and counts of %s, expected F32", shown, name.data,
                       sums->type_name, counts->type_name);
    const int64_t n = elements(sums), n_experts = elements(counts);
    if (n % n_experts != 0)
        return ht_fail(err, HT_ERR_FORMAT,
                       "`%.*s` has %" PRId64 " sums, which are no multiple of its %" PRId64 " counts", shown, name.data,
                       n, n_experts);
    ht_importance_row *row;
    const ht_status status = ht_importance_add(into, name.data, name.len, n / n_experts, n_experts, &row, err);
    if (status) return status;
    read_floats(sums->data, n, row->sum);
    for (int64_t e = 0; e < n_experts; e++) {
        float count;
        read_floats(counts->data + 4 * e, 1, &count);
        row->count[e] = (double)count;
    }
    return HT_OK;
}

static ht_status read_metadata(const ht_gguf *g, ht_importance *into, ht_error *err) {
    ht_bytes type;
    if (!ht_gguf_get_string(g, "general.type", &type) || type.len != 7 || memcmp(type.data, "imatrix", 7) != 0)
        return ht_fail(err, HT_ERR_FORMAT,
                       "this GGUF file does not hold importance weights: its general.type is not \"imatrix\"");
    ht_gguf_get_i64_saturated(g, "imatrix.chunk_count", &into->n_chunks);
    ht_gguf_get_i64_saturated(g, "imatrix.chunk_size", &into->chunk_tokens);
    if (into->n_chunks < 0 || into->chunk_tokens < 0)
        return ht_fail(err, HT_ERR_FORMAT, "imatrix.chunk_count is %" PRId64 " and imatrix.chunk_size %" PRId64,
                       into->n_chunks, into->chunk_tokens);
    const ht_gguf_value *names = ht_gguf_find(g, "imatrix.datasets");
    ht_status status = HT_OK;
    ht_bytes dataset;
    for (size_t at = 0; !status && names && ht_gguf_next_string(names, &at, &dataset);)
        status = ht_importance_add_dataset(into, dataset.data, dataset.len, err);
    return status;
}

static ht_status read_gguf(const ht_gguf *g, ht_importance *into, ht_error *err) {
    ht_status status = read_metadata(g, into, err);
    for (size_t i = 0; !status && i < ht_gguf_n_tensors(g); i++) {
        const ht_gguf_tensor *t = ht_gguf_tensor_at(g, i);
        size_t before;
        if (ends_in(t->name, sums_end, &before))
            status = read_pair(g, (ht_bytes){t->name.data, before}, t, into, err);
        else if (ends_in(t->name, counts_end, &before) && !partner(g, (ht_bytes){t->name.data, before}, sums_end))
            status = ht_fail(err, HT_ERR_FORMAT, "`%.*s` has counts but no sums", ht_name_shown(t->name.data, before),
                             t->name.data);
    }
    return status;
}

static ht_status parse_gguf(const void *data, size_t size, const char *name, ht_importance **out, ht_error *err) {
    ht_gguf *g;
    ht_status status = ht_gguf_parse(data, size, name, &g, err); /* its messages name the file */
    if (status) return status;
    status = ht_importance_new(ht_gguf_n_tensors(g), out, err);
    if (!status && (status = read_gguf(g, *out, err))) ht_fail_in(err, status, "%s", name);
    ht_gguf_free(g);
    return status;
}

/* ---- the older form ---- */

typedef struct cursor {
    const unsigned char *data;
    size_t size, pos;
    ht_status status;
    ht_error *err;
} cursor;

HT_PRINTF(2, 3) static void fail(cursor *c, const char *fmt, ...) {
    if (c->status) return;
    char message[400];
    va_list args;
    va_start(args, fmt);
    vsnprintf(message, sizeof message, fmt, args);
    va_end(args);
    c->status = ht_fail(c->err, HT_ERR_FORMAT, "%s", message);
}

static const unsigned char *read_bytes(cursor *c, size_t n, const char *what) {
    if (c->status) return NULL;
    if (n > c->size - c->pos) {
        fail(
            c,
            "%s at byte %zu: expected %zu bytes, but only %zu remain; the file is cut short, or is neither GGUF nor an "
            "imatrix.dat",
            what, c->pos, n, c->size - c->pos);
        return NULL;
    }
    const unsigned char *p = c->data + c->pos;
    c->pos += n;
    return p;
}

/* A number that cannot be less than `least`; that after an error. */
static int64_t read_number(cursor *c, int32_t least, const char *what) {
    const size_t at = c->pos;
    const unsigned char *p = read_bytes(c, 4, what);
    const int32_t n = p ? (int32_t)ht_le32(p) : least;
    if (n >= least) return n;
    fail(c, "%s at byte %zu is %" PRId32 "; the file is damaged, or is neither GGUF nor an imatrix.dat", what, at, n);
    return least;
}

static void read_entry(cursor *c, ht_importance *into) {
    const size_t length = (size_t)read_number(c, 1, "the length of a name");
    const unsigned char *name = read_bytes(c, length, "a name");
    const int64_t chunks = read_number(c, 0, "the chunks of an entry"), n = read_number(c, 1, "the values of an entry");
    const unsigned char *values = read_bytes(c, (size_t)n * sizeof(float), "the values of an entry");
    if (!values) return;
    ht_importance_row *row;
    c->status = ht_importance_add(into, (const char *)name, length, n, 1, &row, c->err);
    if (c->status) return;
    /* Values of no chunks are the means. */
    const double times = chunks > 0 ? (double)chunks : 1, count = times * (double)HT_IMPORTANCE_CHUNK;
    row->count[0] = count;
    read_floats(values, n, row->sum);
    for (int64_t i = 0; i < n; i++) row->sum[i] *= (float)HT_IMPORTANCE_CHUNK;
}

static void read_trailer(cursor *c, ht_importance *into) {
    if (c->status || c->pos == c->size) return;
    into->n_chunks = read_number(c, 0, "the number of chunks");
    if (c->status || c->pos == c->size) return;
    const size_t length = (size_t)read_number(c, 0, "the length of the text's name");
    const unsigned char *name = read_bytes(c, length, "the text's name");
    if (name) c->status = ht_importance_add_dataset(into, (const char *)name, length, c->err);
}

static ht_status parse_older(const void *data, size_t size, const char *name, ht_importance **out, ht_error *err) {
    enum { LEAST_BYTES = 4 + 1 + 4 + 4 + 4 }; /* of an entry: bounds their number */
    cursor c = {.data = data, .size = size, .err = err};
    const int64_t n = read_number(&c, 1, "the number of entries");
    if (!c.status && (size_t)n > (size - c.pos) / LEAST_BYTES)
        fail(&c,
             "%" PRId64
             " entries do not fit in %zu bytes; the file is cut short, or is neither GGUF nor an imatrix.dat",
             n, size);
    if (!c.status) c.status = ht_importance_new((size_t)n, out, err);
    for (int64_t i = 0; i < n && !c.status; i++) read_entry(&c, *out);
    if (!c.status) read_trailer(&c, *out);
    return c.status ? ht_fail_in(err, c.status, "%s", name) : HT_OK;
}

/* ---- both ---- */

ht_status ht_importance_parse(const void *data, size_t size, const char *name, ht_importance **out, ht_error *err) {
    ht_importance *i = NULL;
    *out = NULL;
    if (ht_is_lfs_pointer(data, size)) return ht_fail(err, HT_ERR_FORMAT, "%s: %s", name, HT_LFS_POINTER);
    const bool is_gguf = size >= 4 && memcmp(data, "GGUF", 4) == 0;
    ht_status status = is_gguf ? parse_gguf(data, size, name, &i, err) : parse_older(data, size, name, &i, err);
    if (!status && i->n == 0) status = ht_fail(err, HT_ERR_FORMAT, "%s: there are no importance weights in it", name);
    if (!status && (status = ht_importance_seal(i, err))) ht_fail_in(err, status, "%s", name);
    if (status)
        ht_importance_free(i);
    else
        *out = i;
    return status;
}

ht_status ht_importance_load(const char *path, ht_importance **out, ht_error *err) {
    ht_file *file;
    *out = NULL;
    ht_status status = ht_file_open(path, &file, err);
    if (status) return status;
    status = ht_file_fetch(file, file->size, err);
    if (!status) status = ht_importance_parse(file->data, file->size, path, out, err);
    ht_file_close(file);
    return status;
}
