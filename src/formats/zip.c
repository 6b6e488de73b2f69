/* ZIP central directory: located from the end of the archive, checked against the file and the local headers. */
#include "formats/zip.h"

#include "base/checked.h"
#include "base/error.h"
#include "formats/zip_bytes.h"

#include <stdlib.h>
#include <string.h>

/* End-of-central-directory record: entry count, and the byte range of the central directory. */
typedef struct end_record {
    uint64_t count, bytes, begin, end; /* `end`: start of the records behind the directory */
} end_record;

static ht_status fail_format(const ht_zip *z, const char *what, ht_error *err) {
    return ht_fail(err, HT_ERR_FORMAT, "%s: %s", z->file->path, what);
}

/* ---- end of central directory ---- */

enum { COMMENT_MAX = 65535 };

/* The last end record whose comment ends at the end of the file, or NULL. */
static const unsigned char *find_end(const unsigned char *tail, size_t n) {
    for (size_t i = n < ZIP_END_BYTES ? 0 : n - ZIP_END_BYTES + 1; i-- > 0;)
        if (ht_zip_number(tail + i, 4) == ZIP_END && i + ZIP_END_BYTES + ht_zip_number(tail + i + 20, 2) == n)
            return tail + i;
    return NULL;
}

static ht_status read_end64(const ht_zip *z, const unsigned char *locator, end_record *p, ht_error *err) {
    unsigned char end[ZIP_END64_BYTES];
    uint64_t at = ht_zip_number(locator + 8, 8);
    if (at > z->file->size || z->file->size - at < sizeof end)
        return fail_format(z, "the archive's 64-bit end record lies outside the file", err);
    ht_status st = ht_file_read_at(z->file, (size_t)at, end, sizeof end, err);
    if (st) return st;
    if (ht_zip_number(end, 4) != ZIP_END64)
        return fail_format(z, "there is no 64-bit end record where one is announced", err);
    *p = (end_record){ht_zip_number(end + 32, 8), ht_zip_number(end + 40, 8), ht_zip_number(end + 48, 8), at};
    return HT_OK;
}

static ht_status read_end(const ht_zip *z, unsigned char *tail, size_t n, end_record *p, ht_error *err) {
    ht_status st = ht_file_read_at(z->file, z->file->size - n, tail, n, err);
    if (st) return st;
    const unsigned char *end = find_end(tail, n);
    if (!end) return fail_format(z, "no ZIP archive, or one that is cut: its end record is missing", err);
    size_t before = (size_t)(end - tail);
    *p = (end_record){ht_zip_number(end + 10, 2), ht_zip_number(end + 12, 4), ht_zip_number(end + 16, 4),
                      z->file->size - n + before};
    bool elsewhere = p->count == ZIP_IN_ZIP64_16 || p->bytes == ZIP_IN_ZIP64_32 || p->begin == ZIP_IN_ZIP64_32;
    const unsigned char *locator = end - ZIP_LOCATOR64_BYTES;
    if (elsewhere && before >= ZIP_LOCATOR64_BYTES && ht_zip_number(locator, 4) == ZIP_LOCATOR64)
        return read_end64(z, locator, p, err);
    if (ht_zip_number(end + 4, 2) || ht_zip_number(end + 6, 2) || ht_zip_number(end + 8, 2) != p->count)
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
        uint64_t id = ht_zip_number(extra, 2), bytes = ht_zip_number(extra + 2, 2);
        if (bytes > n - 4) return false;
        if (id == ZIP_EXTRA64) {
            if (bytes < 8 * (uint64_t)n_numbers) return false;
            for (int i = 0; i < n_numbers; i++) *numbers[i] = ht_zip_number(extra + 4 + 8 * i, 8);
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

/* Finds the entry's data behind its local header, whose extra field may differ in length from the directory's. */
static ht_status find_bytes(const ht_zip *z, ht_zip_entry *e, uint64_t at, uint64_t end, ht_error *err) {
    unsigned char local[ZIP_LOCAL_BYTES];
    if (at > end || end - at < sizeof local)
        return fail_format(z, "an entry of the archive lies outside the file", err);
    ht_status st = ht_file_read_at(z->file, (size_t)at, local, sizeof local, err);
    if (st) return st;
    uint64_t begin = at + sizeof local + ht_zip_number(local + 26, 2) + ht_zip_number(local + 28, 2);
    if (ht_zip_number(local, 4) != ZIP_LOCAL || ht_zip_number(local + 26, 2) != strlen(e->name))
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
    if (end - p < ZIP_ENTRY_BYTES || ht_zip_number(p, 4) != ZIP_ENTRY)
        return fail_format(z, "the archive's directory is damaged", err);
    size_t n_name = ht_zip_number(p + 28, 2), n_extra = ht_zip_number(p + 30, 2), n_comment = ht_zip_number(p + 32, 2);
    if ((size_t)(end - p) - ZIP_ENTRY_BYTES < n_name + n_extra + n_comment)
        return fail_format(z, "the archive's directory is damaged", err);
    const unsigned char *name = p + ZIP_ENTRY_BYTES;
    if (!n_name || memchr(name, 0, n_name)) return fail_format(z, "an entry of the archive has no name", err);
    ht_zip_entry *e = &z->entries[z->count];
    e->name = strndup((const char *)name, n_name);
    if (!e->name) return ht_fail_memory(err, n_name, z->file->path);
    z->count++;
    uint64_t flags = ht_zip_number(p + 8, 2), method = ht_zip_number(p + 10, 2);
    if ((flags & 1) || (method != ZIP_STORED && method != ZIP_DEFLATED))
        return ht_fail(err, HT_ERR_UNSUPPORTED, "%s: `%s` is %s; entries are read that are stored or deflated",
                       z->file->path, e->name, flags & 1 ? "encrypted" : "compressed in another way");
    uint64_t compressed = ht_zip_number(p + 20, 4), size = ht_zip_number(p + 24, 4), local = ht_zip_number(p + 42, 4);
    uint64_t *wide[3];
    int n_wide = 0;
    if (size == ZIP_IN_ZIP64_32) wide[n_wide++] = &size;
    if (compressed == ZIP_IN_ZIP64_32) wide[n_wide++] = &compressed;
    if (local == ZIP_IN_ZIP64_32) wide[n_wide++] = &local;
    if (!read_zip64(name + n_name, n_extra, wide, n_wide) || size > SIZE_MAX || compressed > SIZE_MAX)
        return fail_format(z, "an entry of the archive lacks its 64-bit sizes", err);
    e->crc = (uint32_t)ht_zip_number(p + 16, 4);
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
