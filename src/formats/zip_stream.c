/* ZIP entry streams: zlib inflation with CRC check. */
#include "base/checked.h"
#include "base/error.h"
#include "formats/zip.h"

#include <stdlib.h>
#include <string.h>
#include <zlib.h>

enum { INPUT_BYTES = 1 << 16, ZLIB_CHUNK_BYTES = 1 << 30 /* zlib counts in 32 bits */ };

struct ht_zip_stream {
    const ht_file *file;
    const ht_zip_entry *entry;
    size_t n_read, n_given; /* compressed bytes consumed; uncompressed bytes delivered */
    uLong crc;
    z_stream z;
    bool inflating;
    unsigned char input[INPUT_BYTES];
};

ht_status ht_zip_open(const ht_zip *z, size_t i, ht_zip_stream **out, ht_error *err) {
    *out = NULL;
    ht_zip_stream *s = calloc(1, sizeof *s);
    if (!s) return ht_fail_memory(err, sizeof *s, z->file->path);
    s->file = z->file;
    s->entry = &z->entries[i];
    s->crc = crc32(0, NULL, 0);
    if (s->entry->deflated && inflateInit2(&s->z, -MAX_WBITS) != Z_OK) {
        free(s);
        return ht_fail_memory(err, sizeof(z_stream), z->file->path);
    }
    s->inflating = s->entry->deflated;
    *out = s;
    return HT_OK;
}

void ht_zip_close(ht_zip_stream *s) {
    if (!s) return;
    if (s->inflating) inflateEnd(&s->z);
    free(s);
}

static ht_status damaged(const ht_zip_stream *s, const char *how, ht_error *err) {
    return ht_fail(err, HT_ERR_FORMAT, "%s: `%s` is damaged: %s", s->file->path, s->entry->name, how);
}

static ht_status fill_input(ht_zip_stream *s, ht_error *err) {
    size_t n = ht_min_size(s->entry->compressed - s->n_read, INPUT_BYTES);
    ht_status st = ht_file_read_at(s->file, s->entry->begin + s->n_read, s->input, n, err);
    s->n_read += n;
    s->z.next_in = s->input;
    s->z.avail_in = (uInt)n;
    return st;
}

static ht_status inflate_some(ht_zip_stream *s, unsigned char *out, size_t n, ht_error *err) {
    s->z.next_out = out;
    s->z.avail_out = (uInt)n;
    while (s->z.avail_out) {
        if (!s->z.avail_in && s->n_read < s->entry->compressed) {
            ht_status st = fill_input(s, err);
            if (st) return st;
        }
        int status = inflate(&s->z, Z_NO_FLUSH);
        if (status == Z_MEM_ERROR) return ht_fail_memory(err, 0, s->file->path);
        if (status != Z_OK && status != Z_STREAM_END && status != Z_BUF_ERROR)
            return damaged(s, "its packed bytes make no sense", err);
        if (s->z.avail_out && (status == Z_STREAM_END || (!s->z.avail_in && s->n_read == s->entry->compressed)))
            return damaged(s, "it ends too early", err);
    }
    return HT_OK;
}

/* Checks the CRC and that no data follows the last byte. */
static ht_status check_end(ht_zip_stream *s, ht_error *err) {
    unsigned char more;
    if (s->inflating) {
        s->z.next_out = &more;
        s->z.avail_out = 1;
        int status = Z_OK;
        while (status == Z_OK && s->z.avail_out) {
            ht_status st = s->z.avail_in || s->n_read == s->entry->compressed ? HT_OK : fill_input(s, err);
            if (st) return st;
            status = inflate(&s->z, Z_NO_FLUSH);
        }
        if (status != Z_STREAM_END || !s->z.avail_out || s->z.avail_in || s->n_read != s->entry->compressed)
            return damaged(s, "there is more in it than it says", err);
    }
    if (s->crc != s->entry->crc) return damaged(s, "its checksum is another one", err);
    return HT_OK;
}

ht_status ht_zip_get(ht_zip_stream *s, void *out, size_t n, ht_error *err) {
    unsigned char *to = out;
    if (n > s->entry->size - s->n_given)
        return ht_fail(err, HT_ERR_FORMAT, "%s: `%s` ends after %zu bytes", s->file->path, s->entry->name,
                       s->entry->size);
    for (size_t some; n; n -= some, to += some) {
        some = ht_min_size(n, ZLIB_CHUNK_BYTES);
        ht_status st = s->inflating ? inflate_some(s, to, some, err)
                                    : ht_file_read_at(s->file, s->entry->begin + s->n_given, to, some, err);
        if (st) return st;
        s->crc = crc32(s->crc, to, (uInt)some);
        s->n_given += some;
    }
    return s->n_given == s->entry->size ? check_end(s, err) : HT_OK;
}
