/* ZIP archives: the central directory, located from the end of the archive and checked against the file and the local headers;
 * streams of entries; the writer, whose timestamps are constant, so that equal arrays make equal files. */
#include "formats/zip.h"

#include "base/checked.h"
#include "base/error.h"
#include "base/grow.h"

#include <stdlib.h>
#include <string.h>
#include <zlib.h>

enum {
    ZIP_LOCAL = 0x04034b50,
    ZIP_ENTRY = 0x02014b50,
    ZIP_END = 0x06054b50,
    ZIP_END64 = 0x06064b50,
    ZIP_LOCATOR64 = 0x07064b50
};
/* Fixed sizes, without name, extra field and comment. */
enum { ZIP_LOCAL_BYTES = 30, ZIP_ENTRY_BYTES = 46, ZIP_END_BYTES = 22, ZIP_END64_BYTES = 56, ZIP_LOCATOR64_BYTES = 20 };
enum { ZIP_STORED = 0, ZIP_DEFLATED = 8 };
enum { ZIP_VERSION = 20, ZIP_VERSION64 = 45, ZIP_EXTRA64 = 1 };
/* Marks a 16- or 32-bit field whose value is in a ZIP64 field. */
enum { ZIP_IN_ZIP64_16 = 0xffff };
#define ZIP_IN_ZIP64_32 UINT32_C(0xffffffff)

enum { INPUT_BYTES = 1 << 16, OUTPUT_BYTES = 1 << 16, ZLIB_CHUNK_BYTES = 1 << 30 /* zlib counts in 32 bits */ };

static uint64_t number_at(const unsigned char *p, int bytes) {
    uint64_t n = 0;
    while (bytes-- > 0) n = n << 8 | p[bytes];
    return n;
}

static unsigned char *put_number(unsigned char *p, uint64_t n, int bytes) {
    for (; bytes-- > 0; n >>= 8) *p++ = (unsigned char)n;
    return p;
}

/* End-of-central-directory record: entry count, and the byte range of the central directory. */
typedef struct end_record {
    uint64_t count, bytes, begin, end; /* `end`: start of the records after the directory */
} end_record;

static ht_status fail_format(const ht_zip *z, const char *what, ht_error *err) {
    return ht_fail(err, HT_ERR_FORMAT, "%s: %s", z->file->path, what);
}

/* ---- end of central directory ---- */

enum { COMMENT_MAX = 65535 };

/* The last end record whose comment ends at the end of the file, or NULL. */
static const unsigned char *find_end(const unsigned char *tail, size_t n) {
    for (size_t i = n < ZIP_END_BYTES ? 0 : n - ZIP_END_BYTES + 1; i-- > 0;)
        if (number_at(tail + i, 4) == ZIP_END && i + ZIP_END_BYTES + number_at(tail + i + 20, 2) == n) return tail + i;
    return NULL;
}

static ht_status read_end64(const ht_zip *z, const unsigned char *locator, end_record *p, ht_error *err) {
    unsigned char end[ZIP_END64_BYTES];
    uint64_t at = number_at(locator + 8, 8);
    if (at > z->file->size || z->file->size - at < sizeof end)
        return fail_format(z, "the archive's 64-bit end record lies outside the file", err);
    ht_status st = ht_file_read_at(z->file, (size_t)at, end, sizeof end, err);
    if (st) return st;
    if (number_at(end, 4) != ZIP_END64)
        return fail_format(z, "there is no 64-bit end record where one is announced", err);
    *p = (end_record){number_at(end + 32, 8), number_at(end + 40, 8), number_at(end + 48, 8), at};
    return HT_OK;
}

static ht_status read_end(const ht_zip *z, unsigned char *tail, size_t n, end_record *p, ht_error *err) {
    ht_status st = ht_file_read_at(z->file, z->file->size - n, tail, n, err);
    if (st) return st;
    const unsigned char *end = find_end(tail, n);
    if (!end) return fail_format(z, "no ZIP archive, or one that is cut: its end record is missing", err);
    size_t before = (size_t)(end - tail);
    *p = (end_record){number_at(end + 10, 2), number_at(end + 12, 4), number_at(end + 16, 4),
                      z->file->size - n + before};
    bool elsewhere = p->count == ZIP_IN_ZIP64_16 || p->bytes == ZIP_IN_ZIP64_32 || p->begin == ZIP_IN_ZIP64_32;
    const unsigned char *locator = end - ZIP_LOCATOR64_BYTES;
    if (elsewhere && before >= ZIP_LOCATOR64_BYTES && number_at(locator, 4) == ZIP_LOCATOR64)
        return read_end64(z, locator, p, err);
    if (number_at(end + 4, 2) || number_at(end + 6, 2) || number_at(end + 8, 2) != p->count)
        return ht_fail(err, HT_ERR_UNSUPPORTED, "%s: an archive in several files", z->file->path);
    return HT_OK;
}

static ht_status find_directory(const ht_zip *z, end_record *p, ht_error *err) {
    size_t n = ht_min_size(z->file->size, ZIP_LOCATOR64_BYTES + ZIP_END_BYTES + COMMENT_MAX);
    unsigned char *tail = malloc(n + 1);
    if (!tail) return ht_fail_memory(err, n, z->file->path);
    ht_status st = read_end(z, tail, n, p, err);
    free(tail);
    if (st) return st;
    if (p->begin > p->end || p->bytes > p->end - p->begin || p->count > p->bytes / ZIP_ENTRY_BYTES)
        return fail_format(z, "the archive's directory does not lie inside the file", err);
    return HT_OK;
}

/* ---- entries ---- */

/* Reads the ZIP64 extra field: the 64-bit values of those fields that were 0xffffffff, in the order uncompressed size,
 * compressed size, offset. */
static bool read_zip64(const unsigned char *extra, size_t n, uint64_t *numbers[3], int n_numbers) {
    while (n_numbers && n >= 4) {
        uint64_t id = number_at(extra, 2), bytes = number_at(extra + 2, 2);
        if (bytes > n - 4) return false;
        if (id == ZIP_EXTRA64) {
            if (bytes < 8 * (uint64_t)n_numbers) return false;
            for (int i = 0; i < n_numbers; i++) *numbers[i] = number_at(extra + 4 + 8 * i, 8);
            return true;
        }
        extra += 4 + bytes;
        n -= 4 + (size_t)bytes;
    }
    return n_numbers == 0;
}

/* Maximum compression ratio of deflate. */
enum { MAX_DEFLATE_RATIO = 1032 };

static ht_status check_sizes(const ht_zip *z, const ht_zip_entry *e, ht_error *err) {
    bool fits = e->deflated ? e->size / MAX_DEFLATE_RATIO <= e->compressed : e->size == e->compressed;
    return fits ? HT_OK
                : ht_fail(err, HT_ERR_FORMAT, "%s: `%s` is said to be %zu bytes, packed into %zu", z->file->path,
                          e->name, e->size, e->compressed);
}

/* Finds the entry's data after its local header, whose extra field may differ in length from the directory's. */
static ht_status find_bytes(const ht_zip *z, ht_zip_entry *e, uint64_t at, uint64_t end, ht_error *err) {
    unsigned char local[ZIP_LOCAL_BYTES];
    if (at > end || end - at < sizeof local)
        return fail_format(z, "an entry of the archive lies outside the file", err);
    ht_status st = ht_file_read_at(z->file, (size_t)at, local, sizeof local, err);
    if (st) return st;
    uint64_t begin = at + sizeof local + number_at(local + 26, 2) + number_at(local + 28, 2);
    if (number_at(local, 4) != ZIP_LOCAL || number_at(local + 26, 2) != strlen(e->name))
        return ht_fail(err, HT_ERR_FORMAT, "%s: `%s` is not where the archive's directory says", z->file->path,
                       e->name);
    if (begin > end || e->compressed > end - begin)
        return ht_fail(err, HT_ERR_FORMAT, "%s: `%s` has %zu bytes and does not end inside the file", z->file->path,
                       e->name, e->compressed);
    e->begin = (size_t)begin;
    return HT_OK;
}

/* Parses one directory entry and advances *at past it. */
static ht_status read_entry(ht_zip *z, const unsigned char **at, const unsigned char *end, uint64_t limit,
                            ht_error *err) {
    const unsigned char *p = *at;
    if (end - p < ZIP_ENTRY_BYTES || number_at(p, 4) != ZIP_ENTRY)
        return fail_format(z, "the archive's directory is damaged", err);
    size_t n_name = number_at(p + 28, 2), n_extra = number_at(p + 30, 2), n_comment = number_at(p + 32, 2);
    if ((size_t)(end - p) - ZIP_ENTRY_BYTES < n_name + n_extra + n_comment)
        return fail_format(z, "the archive's directory is damaged", err);
    const unsigned char *name = p + ZIP_ENTRY_BYTES;
    if (!n_name || memchr(name, 0, n_name)) return fail_format(z, "an entry of the archive has no name", err);
    ht_zip_entry *e = &z->entries[z->count];
    e->name = strndup((const char *)name, n_name);
    if (!e->name) return ht_fail_memory(err, n_name, z->file->path);
    z->count++;
    uint64_t flags = number_at(p + 8, 2), method = number_at(p + 10, 2);
    if ((flags & 1) || (method != ZIP_STORED && method != ZIP_DEFLATED))
        return ht_fail(err, HT_ERR_UNSUPPORTED, "%s: `%s` is %s; entries are read that are stored or deflated",
                       z->file->path, e->name, flags & 1 ? "encrypted" : "compressed in another way");
    uint64_t compressed = number_at(p + 20, 4), size = number_at(p + 24, 4), local = number_at(p + 42, 4);
    uint64_t *wide[3];
    int n_wide = 0;
    if (size == ZIP_IN_ZIP64_32) wide[n_wide++] = &size;
    if (compressed == ZIP_IN_ZIP64_32) wide[n_wide++] = &compressed;
    if (local == ZIP_IN_ZIP64_32) wide[n_wide++] = &local;
    if (!read_zip64(name + n_name, n_extra, wide, n_wide) || size > SIZE_MAX || compressed > SIZE_MAX)
        return fail_format(z, "an entry of the archive lacks its 64-bit sizes", err);
    e->crc = (uint32_t)number_at(p + 16, 4);
    e->deflated = method == ZIP_DEFLATED;
    e->compressed = (size_t)compressed;
    e->size = (size_t)size;
    *at = name + n_name + n_extra + n_comment;
    ht_status st = find_bytes(z, e, local, limit, err);
    return st ? st : check_sizes(z, e, err);
}

static int by_name(const void *a, const void *b) {
    return strcmp((*(const ht_zip_entry *const *)a)->name, (*(const ht_zip_entry *const *)b)->name);
}

static ht_status check_names(const ht_zip *z, ht_error *err) {
    const ht_zip_entry **sorted = calloc(z->count + 1, sizeof *sorted);
    if (!sorted) return ht_fail_memory(err, z->count * sizeof *sorted, z->file->path);
    for (size_t i = 0; i < z->count; i++) sorted[i] = &z->entries[i];
    qsort(sorted, z->count, sizeof *sorted, by_name);
    ht_status st = HT_OK;
    for (size_t i = 1; i < z->count && !st; i++)
        if (strcmp(sorted[i - 1]->name, sorted[i]->name) == 0)
            st = ht_fail(err, HT_ERR_FORMAT, "%s: `%s` occurs twice", z->file->path, sorted[i]->name);
    free(sorted);
    return st;
}

static ht_status read_directory(ht_zip *z, const end_record *p, ht_error *err) {
    unsigned char *directory = malloc((size_t)p->bytes + 1);
    z->entries = calloc((size_t)p->count + 1, sizeof *z->entries);
    ht_status st = HT_OK;
    if (!directory || !z->entries)
        st = ht_fail_memory(err, (size_t)p->bytes, z->file->path);
    else
        st = ht_file_read_at(z->file, (size_t)p->begin, directory, (size_t)p->bytes, err);
    const unsigned char *at = directory;
    for (uint64_t i = 0; i < p->count && !st; i++) st = read_entry(z, &at, directory + p->bytes, p->begin, err);
    free(directory);
    return st;
}

static void strip_suffix(char *name, const char *suffix) {
    size_t n = strlen(name), n_suffix = strlen(suffix);
    if (n > n_suffix && strcmp(name + n - n_suffix, suffix) == 0) name[n - n_suffix] = '\0';
}

ht_status ht_zip_read(ht_file *file, const char *suffix, ht_zip **out, ht_error *err) {
    *out = NULL;
    ht_zip *z = calloc(1, sizeof *z);
    if (!z) return ht_fail_memory(err, sizeof *z, file->path);
    z->file = file;
    end_record p = {0};
    ht_status st = find_directory(z, &p, err);
    if (!st) st = read_directory(z, &p, err);
    for (size_t i = 0; i < z->count && !st; i++) strip_suffix(z->entries[i].name, suffix);
    if (!st) st = check_names(z, err);
    if (st)
        ht_zip_free(z);
    else
        *out = z;
    return st;
}

void ht_zip_free(ht_zip *z) {
    if (!z) return;
    for (size_t i = 0; i < z->count; i++) free(z->entries[i].name);
    free(z->entries);
    free(z);
}

/* ---- streams ---- */

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

/* ---- writing: local headers come first without sizes, and are rewritten at the end of the entry ---- */

enum { FIRST_DAY = 33 /* 1980-01-01 */, UTF8_NAMES = 1 << 11 };
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

static uint64_t narrow(const entry *e, uint64_t n) { return e->wide ? ZIP_IN_ZIP64_32 : n; }

/* Common part of local header and directory entry: version needed to name length. */
static unsigned char *put_common(unsigned char *p, const entry *e) {
    p = put_number(p, e->wide ? ZIP_VERSION64 : ZIP_VERSION, 2);
    p = put_number(p, UTF8_NAMES, 2);
    p = put_number(p, e->deflated ? ZIP_DEFLATED : ZIP_STORED, 2);
    p = put_number(p, 0, 2);
    p = put_number(p, FIRST_DAY, 2);
    p = put_number(p, e->crc, 4);
    p = put_number(p, narrow(e, e->compressed), 4);
    p = put_number(p, narrow(e, e->size), 4);
    return put_number(p, strlen(e->name), 2);
}

static unsigned char *put_extra(unsigned char *p, const entry *e, int bytes) {
    p = put_number(p, ZIP_EXTRA64, 2);
    p = put_number(p, (uint64_t)bytes - 4, 2);
    p = put_number(p, e->size, 8);
    return put_number(p, e->compressed, 8);
}

static void local_header(const entry *e, unsigned char header[ZIP_LOCAL_BYTES], unsigned char *extra) {
    unsigned char *p = put_common(put_number(header, ZIP_LOCAL, 4), e);
    put_number(p, e->wide ? LOCAL_EXTRA_BYTES : 0, 2);
    put_extra(extra, e, LOCAL_EXTRA_BYTES);
}

static ht_status put_directory_entry(ht_zip_writer *w, const entry *e, ht_error *err) {
    unsigned char header[ZIP_ENTRY_BYTES] = {0}, extra[ENTRY_EXTRA_BYTES];
    unsigned char *p = put_number(header, ZIP_ENTRY, 4);
    p = put_common(put_number(p, ZIP_VERSION64, 2), e);
    put_number(p, e->wide ? ENTRY_EXTRA_BYTES : 0, 2);
    put_number(header + 42, narrow(e, e->at), 4);
    put_number(put_extra(extra, e, ENTRY_EXTRA_BYTES), e->at, 8);
    ht_status st = put(w, header, sizeof header, err);
    if (!st) st = put(w, e->name, strlen(e->name), err);
    return st || !e->wide ? st : put(w, extra, sizeof extra, err);
}

static ht_status put_end(ht_zip_writer *w, uint64_t begin, ht_error *err) {
    uint64_t bytes = w->n_put - begin, at = w->n_put;
    bool wide = w->count >= ZIP_IN_ZIP64_16 || begin >= ZIP_IN_ZIP64_32 || bytes >= ZIP_IN_ZIP64_32;
    unsigned char end64[ZIP_END64_BYTES + ZIP_LOCATOR64_BYTES] = {0}, end[ZIP_END_BYTES] = {0}, *p;
    p = put_number(end64, ZIP_END64, 4);
    p = put_number(p, ZIP_END64_BYTES - 12, 8);
    p = put_number(p, ZIP_VERSION64, 2);
    p = put_number(p, ZIP_VERSION64, 2) + 8; /* disk numbers: 0 */
    p = put_number(p, w->count, 8);
    p = put_number(p, w->count, 8);
    p = put_number(p, bytes, 8);
    p = put_number(p, begin, 8);
    p = put_number(p, ZIP_LOCATOR64, 4) + 4;
    p = put_number(p, at, 8);
    put_number(p, 1, 4);
    put_number(end, ZIP_END, 4);
    for (int i = 8; i <= 10; i += 2) put_number(end + i, wide ? ZIP_IN_ZIP64_16 : w->count, 2);
    put_number(end + 12, wide ? ZIP_IN_ZIP64_32 : bytes, 4);
    put_number(end + 16, wide ? ZIP_IN_ZIP64_32 : begin, 4);
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
