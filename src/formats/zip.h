/* ZIP archives, as NumPy keeps arrays in them: entries that are stored or deflated, read one after another piece by piece, and
 * written so that the archive appears whole or not at all.
 *
 * Format: PKWARE's APPNOTE.TXT 6.3, with its 64-bit sizes. Not read: encryption, other ways to compress, archives in
 * several files. */
#ifndef HT_FORMATS_ZIP_H
#define HT_FORMATS_ZIP_H

#include "base/file.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct ht_zip_entry {
    char *name; /* NUL-terminated, not empty, without a NUL inside */
    bool deflated;
    uint32_t crc;
    size_t begin, stored; /* bytes in the file, inside it */
    size_t size;          /* when unpacked; no more than `stored` bytes can give */
} ht_zip_entry;

typedef struct ht_zip {
    ht_file *file; /* lent */
    ht_zip_entry *entries;
    size_t count;
} ht_zip;

/* Reads the directory. The file stays the caller's and has to outlive the archive. Names lose `suffix` where they end with it,
 * and are unique then. */
ht_status ht_zip_read(ht_file *file, const char *suffix, ht_zip **out, ht_error *err);
void ht_zip_free(ht_zip *z); /* NULL is fine */

/* An entry, from front to back. */
typedef struct ht_zip_stream ht_zip_stream;
ht_status ht_zip_open(const ht_zip *z, size_t i, ht_zip_stream **out, ht_error *err);
/* Exactly n bytes, which have to be there. With the last ones of the entry its checksum is compared. */
ht_status ht_zip_get(ht_zip_stream *s, void *out, size_t n, ht_error *err);
void ht_zip_close(ht_zip_stream *s); /* NULL is fine */

typedef struct ht_zip_writer ht_zip_writer;
ht_status ht_zip_writer_open(const char *path, ht_zip_writer **out, ht_error *err);
/* An entry of `size` bytes, all of which are put before the next one begins. */
ht_status ht_zip_begin(ht_zip_writer *w, const char *name, size_t size, bool deflate, ht_error *err);
ht_status ht_zip_put(ht_zip_writer *w, const void *bytes, size_t n, ht_error *err);
/* Writes the directory, puts the file in place, and frees the writer; on failure `path` is as it was. */
ht_status ht_zip_commit(ht_zip_writer *w, ht_error *err);
void ht_zip_discard(ht_zip_writer *w); /* NULL is fine */

#endif
