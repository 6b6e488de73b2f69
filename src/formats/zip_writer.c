/* ZIP writer: local headers are written first without sizes and rewritten at the entry's end. Timestamps are constant,
 * so that equal arrays make equal files. */
#include "base/checked.h"
#include "base/error.h"
#include "base/grow.h"
#include "formats/zip.h"
#include "formats/zip_bytes.h"

#include <stdlib.h>
#include <string.h>
#include <zlib.h>

enum { OUTPUT_BYTES = 1 << 16, ZLIB_CHUNK_BYTES = 1 << 30, FIRST_DAY = 33 /* 1980-01-01 */, UTF8_NAMES = 1 << 11 };
enum { LOCAL_EXTRA_BYTES = 20, ENTRY_EXTRA_BYTES = 28 };

typedef struct entry {
    char *name;
    uint64_t at, compressed, size;
    uint32_t crc;
    bool deflated, wide;
} entry;

struct ht_zip_writer {
    ht_writer *file;
    char *path;
    entry *entries;
    size_t count;
    uint64_t n_put; /* bytes written to the file */
    uint64_t left;  /* bytes missing in the last entry */
    z_stream z;
    bool deflating;
    unsigned char output[OUTPUT_BYTES];
};

ht_status ht_zip_writer_open(const char *path, ht_zip_writer **out, ht_error *err) {
    *out = NULL;
    ht_zip_writer *w = calloc(1, sizeof *w);
    if (w) w->path = strdup(path);
    if (!w || !w->path) {
        ht_zip_discard(w);
        return ht_fail_memory(err, sizeof *w, path);
    }
    ht_status st = ht_writer_open(path, &w->file, err);
    if (st)
        ht_zip_discard(w);
    else
        *out = w;
    return st;
}

void ht_zip_discard(ht_zip_writer *w) {
    if (!w) return;
    if (w->deflating) deflateEnd(&w->z);
    ht_writer_discard(w->file);
    for (size_t i = 0; i < w->count; i++) free(w->entries[i].name);
    free(w->entries);
    free(w->path);
    free(w);
}

static ht_status put(ht_zip_writer *w, const void *bytes, size_t n, ht_error *err) {
    ht_status st = ht_writer_put(w->file, bytes, n, err);
    if (!st) w->n_put += n;
    return st;
}

/* ---- records ---- */

static uint64_t narrow(const entry *e, uint64_t n) { return e->wide ? ZIP_IN_ZIP64_32 : n; }

/* Common part of local header and directory entry: version needed to name length. */
static unsigned char *put_common(unsigned char *p, const entry *e) {
    p = ht_zip_put_number(p, e->wide ? ZIP_VERSION64 : ZIP_VERSION, 2);
    p = ht_zip_put_number(p, UTF8_NAMES, 2);
    p = ht_zip_put_number(p, e->deflated ? ZIP_DEFLATED : ZIP_STORED, 2);
    p = ht_zip_put_number(p, 0, 2);
    p = ht_zip_put_number(p, FIRST_DAY, 2);
    p = ht_zip_put_number(p, e->crc, 4);
    p = ht_zip_put_number(p, narrow(e, e->compressed), 4);
    p = ht_zip_put_number(p, narrow(e, e->size), 4);
    return ht_zip_put_number(p, strlen(e->name), 2);
}

static unsigned char *put_extra(unsigned char *p, const entry *e, int bytes) {
    p = ht_zip_put_number(p, ZIP_EXTRA64, 2);
    p = ht_zip_put_number(p, (uint64_t)bytes - 4, 2);
    p = ht_zip_put_number(p, e->size, 8);
    return ht_zip_put_number(p, e->compressed, 8);
}

static void local_header(const entry *e, unsigned char header[ZIP_LOCAL_BYTES], unsigned char *extra) {
    unsigned char *p = put_common(ht_zip_put_number(header, ZIP_LOCAL, 4), e);
    ht_zip_put_number(p, e->wide ? LOCAL_EXTRA_BYTES : 0, 2);
    put_extra(extra, e, LOCAL_EXTRA_BYTES);
}

static ht_status put_directory_entry(ht_zip_writer *w, const entry *e, ht_error *err) {
    unsigned char header[ZIP_ENTRY_BYTES] = {0}, extra[ENTRY_EXTRA_BYTES];
    unsigned char *p = ht_zip_put_number(header, ZIP_ENTRY, 4);
    p = put_common(ht_zip_put_number(p, ZIP_VERSION64, 2), e);
    ht_zip_put_number(p, e->wide ? ENTRY_EXTRA_BYTES : 0, 2);
    ht_zip_put_number(header + 42, narrow(e, e->at), 4);
    ht_zip_put_number(put_extra(extra, e, ENTRY_EXTRA_BYTES), e->at, 8);
    ht_status st = put(w, header, sizeof header, err);
    if (!st) st = put(w, e->name, strlen(e->name), err);
    return st || !e->wide ? st : put(w, extra, sizeof extra, err);
}

static ht_status put_end(ht_zip_writer *w, uint64_t begin, ht_error *err) {
    uint64_t bytes = w->n_put - begin, at = w->n_put;
    bool wide = w->count >= ZIP_IN_ZIP64_16 || begin >= ZIP_IN_ZIP64_32 || bytes >= ZIP_IN_ZIP64_32;
    unsigned char end64[ZIP_END64_BYTES + ZIP_LOCATOR64_BYTES] = {0}, end[ZIP_END_BYTES] = {0}, *p;
    p = ht_zip_put_number(end64, ZIP_END64, 4);
    p = ht_zip_put_number(p, ZIP_END64_BYTES - 12, 8);
    p = ht_zip_put_number(p, ZIP_VERSION64, 2);
    p = ht_zip_put_number(p, ZIP_VERSION64, 2) + 8; /* disk numbers: 0 */
    p = ht_zip_put_number(p, w->count, 8);
    p = ht_zip_put_number(p, w->count, 8);
    p = ht_zip_put_number(p, bytes, 8);
    p = ht_zip_put_number(p, begin, 8);
    p = ht_zip_put_number(p, ZIP_LOCATOR64, 4) + 4;
    p = ht_zip_put_number(p, at, 8);
    ht_zip_put_number(p, 1, 4);
    ht_zip_put_number(end, ZIP_END, 4);
    for (int i = 8; i <= 10; i += 2) ht_zip_put_number(end + i, wide ? ZIP_IN_ZIP64_16 : w->count, 2);
    ht_zip_put_number(end + 12, wide ? ZIP_IN_ZIP64_32 : bytes, 4);
    ht_zip_put_number(end + 16, wide ? ZIP_IN_ZIP64_32 : begin, 4);
    ht_status st = wide ? put(w, end64, sizeof end64, err) : HT_OK;
    return st ? st : put(w, end, sizeof end, err);
}

/* ---- entries ---- */

ht_status ht_zip_begin(ht_zip_writer *w, const char *name, size_t size, bool deflate, ht_error *err) {
    deflate = deflate && size; /* deflate makes two bytes of an empty entry */
    if (!*name || strlen(name) > 65535)
        return ht_fail(err, HT_ERR_ARGUMENT, "%s: a name of an array has to have 1 to 65535 bytes", w->path);
    if (!HT_GROW_ONE(w->entries, w->count)) return ht_fail_memory(err, (w->count + 1) * sizeof *w->entries, w->path);
    /* deflate expands incompressible bytes slightly. */
    uint64_t most = (uint64_t)size + size / 1000 + 64;
    entry *e = &w->entries[w->count];
    *e = (entry){.name = strdup(name), .at = w->n_put, .size = size, .deflated = deflate};
    if (!e->name) return ht_fail_memory(err, strlen(name), w->path);
    e->wide = most >= ZIP_IN_ZIP64_32 || e->at >= ZIP_IN_ZIP64_32;
    w->count++;
    w->left = size;
    if (deflate) {
        w->z = (z_stream){0};
        if (deflateInit2(&w->z, Z_DEFAULT_COMPRESSION, Z_DEFLATED, -MAX_WBITS, 8, Z_DEFAULT_STRATEGY) != Z_OK)
            return ht_fail_memory(err, sizeof(z_stream), w->path);
        w->deflating = true;
    }
    e->crc = (uint32_t)crc32(0, NULL, 0);
    unsigned char header[ZIP_LOCAL_BYTES], extra[LOCAL_EXTRA_BYTES];
    local_header(e, header, extra);
    ht_status st = put(w, header, sizeof header, err);
    if (!st) st = put(w, name, strlen(name), err);
    return st || !e->wide ? st : put(w, extra, sizeof extra, err);
}

static ht_status deflate_some(ht_zip_writer *w, entry *e, const unsigned char *bytes, size_t n, ht_error *err) {
    w->z.next_in = (z_const Bytef *)(uintptr_t)bytes;
    w->z.avail_in = (uInt)n;
    int flush = w->left == n ? Z_FINISH : Z_NO_FLUSH, status = Z_OK;
    do {
        w->z.next_out = w->output;
        w->z.avail_out = OUTPUT_BYTES;
        status = deflate(&w->z, flush);
        size_t made = OUTPUT_BYTES - w->z.avail_out;
        ht_status st = made ? put(w, w->output, made, err) : HT_OK;
        if (st) return st;
        e->compressed += made;
    } while (w->z.avail_in || (flush == Z_FINISH && status != Z_STREAM_END));
    return HT_OK;
}

/* Rewrites the local header with the final sizes and CRC. */
static ht_status end_entry(ht_zip_writer *w, const entry *e, ht_error *err) {
    unsigned char header[ZIP_LOCAL_BYTES], extra[LOCAL_EXTRA_BYTES];
    if (w->deflating) deflateEnd(&w->z);
    w->deflating = false;
    local_header(e, header, extra);
    ht_status st = ht_writer_put_at(w->file, (size_t)e->at, header, sizeof header, err);
    if (st || !e->wide) return st;
    return ht_writer_put_at(w->file, (size_t)e->at + sizeof header + strlen(e->name), extra, sizeof extra, err);
}

ht_status ht_zip_put(ht_zip_writer *w, const void *bytes, size_t n, ht_error *err) {
    entry *e = w->count ? &w->entries[w->count - 1] : NULL;
    if (!e || n > w->left) return ht_fail(err, HT_ERR_INTERNAL, "%s: more bytes than were announced", w->path);
    const unsigned char *from = bytes;
    ht_status st = HT_OK;
    for (size_t some; n && !st; n -= some, from += some) {
        some = ht_min_size(n, ZLIB_CHUNK_BYTES);
        e->crc = (uint32_t)crc32(e->crc, from, (uInt)some);
        st = e->deflated ? deflate_some(w, e, from, some, err) : put(w, from, some, err);
        if (!e->deflated) e->compressed += some;
        w->left -= some;
        if (!st && !w->left) st = end_entry(w, e, err);
    }
    return st;
}

ht_status ht_zip_commit(ht_zip_writer *w, ht_error *err) {
    uint64_t begin = w->n_put;
    ht_status st = w->left ? ht_fail(err, HT_ERR_INTERNAL, "%s: fewer bytes than were announced", w->path) : HT_OK;
    for (size_t i = 0; i < w->count && !st; i++) st = put_directory_entry(w, &w->entries[i], err);
    if (!st) st = put_end(w, begin, err);
    if (!st) {
        st = ht_writer_commit(w->file, err);
        w->file = NULL;
    }
    ht_zip_discard(w);
    return st;
}
