/* ZIP archives as NumPy's .npz: stored or deflated entries, read as streams, and written atomically.
 *
 * Format: PKWARE APPNOTE.TXT 6.3 with ZIP64. Unsupported: encryption, other compression methods, multi-file
 * archives. */
#ifndef HT_FORMATS_ZIP_H
#define HT_FORMATS_ZIP_H

#include "base/file.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct ht_zip_entry {
    char *name; /* NUL-terminated, not empty, without a NUL inside */
    bool deflated;
    uint32_t crc;
    size_t begin, compressed; /* byte range in the file, validated */
    size_t size;              /* uncompressed; bounded by deflate's maximum ratio */
} ht_zip_entry;

typedef struct ht_zip {
    ht_file *file; /* borrowed */
    ht_zip_entry *entries;
    size_t count;
} ht_zip;

/* Reads the central directory. `file` must outlive the archive. Strips `suffix` from entry names, which must then be
 * unique. */
ht_status ht_zip_read(ht_file *file, const char *suffix, ht_zip **out, ht_error *err);
void ht_zip_free(ht_zip *z); /* NULL is fine */

/* Sequential reader of one entry. */
typedef struct ht_zip_stream ht_zip_stream;
ht_status ht_zip_open(const ht_zip *z, size_t i, ht_zip_stream **out, ht_error *err);
/* Reads exactly n bytes; an error at the entry's end. The last bytes verify the CRC. */
ht_status ht_zip_get(ht_zip_stream *s, void *out, size_t n, ht_error *err);
void ht_zip_close(ht_zip_stream *s); /* NULL is fine */

typedef struct ht_zip_writer ht_zip_writer;
ht_status ht_zip_writer_open(const char *path, ht_zip_writer **out, ht_error *err);
/* Begins an entry of `size` uncompressed bytes, all of which must be put before the next begin. */
ht_status ht_zip_begin(ht_zip_writer *w, const char *name, size_t size, bool deflate, ht_error *err);
ht_status ht_zip_put(ht_zip_writer *w, const void *bytes, size_t n, ht_error *err);
/* Writes the directory, renames the file into place and frees the writer; on failure `path` is unchanged. */
ht_status ht_zip_commit(ht_zip_writer *w, ht_error *err);
void ht_zip_discard(ht_zip_writer *w); /* NULL is fine */

#endif
