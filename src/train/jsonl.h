/* JSONL files: one JSON value per line, found by an index of offsets and read when asked for, so that a file may be larger
 * than memory. Lines end with LF or CRLF; a byte order mark and lines of white space are skipped. */
#ifndef HT_TRAIN_JSONL_H
#define HT_TRAIN_JSONL_H

#include "base/text.h"

#include <hearth/status.h>

#include <stddef.h>
#include <stdint.h>

enum { HT_JSONL_LINE_BYTES_MAX = 64 << 20 };

/* Immutable; may be shared between threads. */
typedef struct ht_jsonl ht_jsonl;

/* Reads the file once for its index, 16 bytes a line. The caller closes *out. */
ht_status ht_jsonl_open(const char *path, ht_jsonl **out, ht_error *err);
void ht_jsonl_close(ht_jsonl *j); /* NULL is fine */

size_t ht_jsonl_length(const ht_jsonl *j);            /* lines that are not empty */
int64_t ht_jsonl_number(const ht_jsonl *j, size_t i); /* the number of the i-th of them in the file, from 1 */
const char *ht_jsonl_path(const ht_jsonl *j);         /* lent */

/* The bytes of the i-th line in place of what `line` held, without the line's end. HT_ERR_IO when the file has changed since
 * it was opened, HT_ERR_LIMIT for a line of more than HT_JSONL_LINE_BYTES_MAX bytes. */
ht_status ht_jsonl_read(const ht_jsonl *j, size_t i, ht_text *line, ht_error *err);
/* Puts file and line number before the message of a failure in the i-th line; returns `status`. */
ht_status ht_jsonl_fail(const ht_jsonl *j, size_t i, ht_status status, ht_error *err);

#endif
