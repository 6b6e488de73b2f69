#include "train/jsonl.h"

#include "base/checked.h"
#include "base/error.h"
#include "base/file.h"
#include "base/grow.h"

#include <stdlib.h>
#include <string.h>

enum { CHUNK_BYTES = 1 << 20 };

typedef struct line {
    uint64_t offset;
    uint32_t bytes; /* UINT32_MAX stands for all longer ones, too */
    uint32_t number;
} line;

struct ht_jsonl {
    ht_file *file;
    line *lines;
    size_t n;
};

/* ---- index ---- */

/* The line that is being scanned. */
typedef struct scan {
    size_t begin;
    uint64_t number;
    bool blank; /* so far */
} scan;

static bool is_blank(const char *text, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (text[i] != ' ' && text[i] != '\t' && text[i] != '\r') return false;
    return true;
}

static ht_status end_line(ht_jsonl *j, scan *s, size_t end, ht_error *err) {
    if (!s->blank) {
        if (s->number > INT32_MAX)
            return ht_fail(err, HT_ERR_LIMIT, "%s: has more than %d lines; split it", j->file->path, INT32_MAX);
        if (!HT_GROW_ONE(j->lines, j->n))
            return ht_fail_memory(err, (j->n + 1) * sizeof *j->lines, "the index of a file's lines");
        j->lines[j->n++] = (line){s->begin, (uint32_t)ht_min_size(end - s->begin, UINT32_MAX), (uint32_t)s->number};
    }
    *s = (scan){end + 1, s->number + 1, true};
    return HT_OK;
}

static ht_status scan_chunk(ht_jsonl *j, scan *s, size_t offset, const char *chunk, size_t n, ht_error *err) {
    ht_status status = HT_OK;
    for (size_t at = 0; at < n && !status;) {
        const char *newline = memchr(chunk + at, '\n', n - at);
        const size_t end = newline ? (size_t)(newline - chunk) : n;
        s->blank = s->blank && is_blank(chunk + at, end - at);
        if (newline) status = end_line(j, s, offset + end, err);
        at = end + 1;
    }
    return status;
}

static ht_status make_index(ht_jsonl *j, ht_error *err) {
    static const char mark[] = "\xEF\xBB\xBF";
    const size_t size = j->file->size;
    char *chunk = malloc(CHUNK_BYTES);
    if (!chunk) return ht_fail_memory(err, CHUNK_BYTES, j->file->path);
    scan s = {.number = 1, .blank = true};
    ht_status status = HT_OK;
    for (size_t offset = 0, n; offset < size && !status; offset += n) {
        n = ht_min_size(CHUNK_BYTES, size - offset);
        status = ht_file_read_at(j->file, offset, chunk, n, err);
        if (status) break;
        size_t skipped = 0;
        if (!offset && n >= strlen(mark) && memcmp(chunk, mark, strlen(mark)) == 0) s.begin = skipped = strlen(mark);
        if (!offset && ht_is_lfs_pointer(chunk, n))
            status = ht_fail(err, HT_ERR_FORMAT, "%s: %s", j->file->path, HT_LFS_POINTER);
        else
            status = scan_chunk(j, &s, offset + skipped, chunk + skipped, n - skipped, err);
    }
    free(chunk);
    return status ? status : end_line(j, &s, size, err);
}

ht_status ht_jsonl_open(const char *path, ht_jsonl **out, ht_error *err) {
    *out = NULL;
    ht_jsonl *j = calloc(1, sizeof *j);
    if (!j) return ht_fail_memory(err, sizeof *j, path);
    ht_status status = ht_file_open(path, &j->file, err);
    if (!status) status = make_index(j, err);
    if (status)
        ht_jsonl_close(j);
    else
        *out = j;
    return status;
}

void ht_jsonl_close(ht_jsonl *j) {
    if (!j) return;
    ht_file_close(j->file);
    free(j->lines);
    free(j);
}

/* ---- lines ---- */

size_t ht_jsonl_length(const ht_jsonl *j) { return j->n; }
int64_t ht_jsonl_number(const ht_jsonl *j, size_t i) { return j->lines[i].number; }
const char *ht_jsonl_path(const ht_jsonl *j) { return j->file->path; }

ht_status ht_jsonl_fail(const ht_jsonl *j, size_t i, ht_status status, ht_error *err) {
    return ht_fail_in(err, status, "%s: line %lld", j->file->path, (long long)ht_jsonl_number(j, i));
}

ht_status ht_jsonl_read(const ht_jsonl *j, size_t i, ht_text *to, ht_error *err) {
    const line *l = &j->lines[i];
    if (l->bytes > HT_JSONL_LINE_BYTES_MAX) {
        ht_fail(err, HT_ERR_LIMIT, "it has %u bytes, at most %d are read", l->bytes, HT_JSONL_LINE_BYTES_MAX);
        return ht_jsonl_fail(j, i, HT_ERR_LIMIT, err);
    }
    ht_status status = ht_file_unchanged(j->file, err);
    if (status) return status;
    ht_text_clear(to);
    if (!ht_text_reserve(to, l->bytes)) return ht_fail_memory(err, l->bytes, j->file->path);
    status = ht_file_read_at(j->file, l->offset, to->data, l->bytes, err);
    if (status) return status;
    to->len = l->bytes;
    to->data[to->len] = '\0';
    return HT_OK;
}
