/* State files: a table and its sections, each with a checksum, in one file that is replaced as a whole.
 *
 *   bytes 0 .. 7      "HEARTHST"
 *   8 .. 15           version, number n of sections: u32 each, little-endian as everything here
 *   16 .. 31          checksum of bytes 8 .. 15 and of the table
 *   32 .. 32 + 48 n   the table: for each section its kind and index, u64 each; offset and size in bytes; checksum
 *
 * The sections follow in order, each aligned to 64 bytes, with zeros between them and no bytes after the last. */
#ifndef HT_GENERATE_STATE_FILE_H
#define HT_GENERATE_STATE_FILE_H

#include "base/digest.h"
#include "base/file.h"
#include "device/kv.h"
#include "models/adapter.h"
#include "models/model.h"

enum { HT_STATE_VERSION = 1, HT_STATE_MOST_SECTIONS = 1 << 16 };

typedef enum ht_state_kind {
    HT_STATE_ORIGIN = 1,
    HT_STATE_TOKENS, /* with PAGES: a session (state.c) */
    HT_STATE_PAGES,
    HT_STATE_CACHE, /* with NODES: a prefix cache (engine_cache.c) */
    HT_STATE_NODE,
    HT_STATE_SNAPSHOTS /* of a session of a recurrent model */
} ht_state_kind;

typedef struct ht_state_section {
    uint64_t kind, index; /* ht_state_kind; which one of several */
    uint64_t offset, bytes;
    ht_digest sum;
} ht_state_section;

/* The lowest `bytes` bytes of a number, little-endian. */
void ht_state_put_number(unsigned char *at, uint64_t x, int bytes);
uint64_t ht_state_get_number(const unsigned char *at, int bytes);

/* Incremental checksum of a section, however its bytes are split. */
typedef struct ht_state_sum {
    ht_digest digest;
    unsigned char rest[8]; /* [n % 8] bytes that make no word yet */
    uint64_t n;
} ht_state_sum;
ht_state_sum ht_state_sum_begin(uint64_t kind, uint64_t index);

/* ---- writing ---- */

typedef struct ht_state_writer ht_state_writer;

/* Writes n sections to a file that replaces `path` on commit. It holds users' text: only the owner may read it. */
ht_status ht_state_writer_open(const char *path, uint32_t n, ht_state_writer **out, ht_error *err);
/* Begins the next section; the following puts go there. */
ht_status ht_state_writer_begin(ht_state_writer *w, uint64_t kind, uint64_t index, ht_error *err);
ht_status ht_state_writer_put(ht_state_writer *w, const void *bytes, size_t n, ht_error *err);
/* Both free the writer. */
ht_status ht_state_writer_commit(ht_state_writer *w, ht_error *err);
void ht_state_writer_discard(ht_state_writer *w); /* NULL is fine */

/* ---- reading ---- */

typedef struct ht_state_file {
    ht_file *file;
    uint32_t n;
    ht_state_section *section; /* [n], with offsets and sizes inside the file */
} ht_state_file;

/* Opens a file and checks its table. HT_ERR_FORMAT: damaged or another format; HT_ERR_UNSUPPORTED: newer. */
ht_status ht_state_file_open(const char *path, ht_state_file *out, ht_error *err);
void ht_state_file_close(ht_state_file *f); /* a zeroed one is fine */
/* HT_ERR_FORMAT: the file is damaged, and how. */
ht_status ht_state_damaged(const ht_state_file *f, const char *what, ht_error *err);
/* The section, or NULL when there is none, or two. */
const ht_state_section *ht_state_file_find(const ht_state_file *f, uint64_t kind, uint64_t index);
/* Reads n bytes at `at` of a section and adds them to *sum. Thread-safe. */
ht_status ht_state_file_read(const ht_state_file *f, const ht_state_section *s, uint64_t at, void *out, size_t n,
                             ht_state_sum *sum, ht_error *err);
/* HT_ERR_FORMAT unless the sum of everything read is the section's. */
ht_status ht_state_file_check(const ht_state_file *f, const ht_state_section *s, const ht_state_sum *sum,
                              ht_error *err);
/* Reads and checks a whole section of at most `limit` bytes; the caller frees *out, which is NUL-terminated. */
ht_status ht_state_file_read_all(const ht_state_file *f, const ht_state_section *s, size_t limit, char **out,
                                 ht_error *err);

/* ---- parts that files of sessions and of prefix caches share ---- */

/* Origins are compared as texts, line by line: files need no parser for them, and errors can quote the difference. */

/* Writes the origin, on which keys and values depend besides tokens: model, cache types and shapes, n adapters. */
ht_status ht_state_put_origin(ht_state_writer *w, const ht_model *m, ht_adapter *const *adapters, const float *scales,
                              int n, ht_error *err);
/* HT_ERR_ARGUMENT, with the first difference, when a file has another origin. `who` has this one, such as "session". */
ht_status ht_state_check_origin(const ht_state_file *f, const ht_model *m, ht_adapter *const *adapters,
                                const float *scales, int n, const char *who, ht_error *err);

/* Bytes of a buffer for a saved page of any layer. */
size_t ht_state_buffer_bytes(const ht_layer_kv *kv, int32_t n_layers);

#endif
