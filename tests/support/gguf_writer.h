/* Builds GGUF files in memory for tests, well formed or broken on purpose.
 *
 *     gguf_writer w = gguf_writer_new();
 *     gguf_put_str(&w, "general.architecture", "llama");
 *     gguf_put_tensor(&w, "token_embd.weight", HT_W_F32, 2, (int64_t[]){8, 16}, values);
 *     size_t size;
 *     unsigned char *file = gguf_finish(&w, &size);   // free() it
 */
#ifndef TESTS_SUPPORT_GGUF_WRITER_H
#define TESTS_SUPPORT_GGUF_WRITER_H

#include "base/text.h"
#include "formats/gguf.h"
#include "formats/weight_type.h"

typedef struct gguf_writer {
    uint32_t version;   /* 3 */
    uint32_t alignment; /* 32; other values also write general.alignment */
    /* Added to the counts in the header, to make them lie. */
    uint64_t extra_values, extra_tensors;
    uint64_t n_values, n_tensors;
    ht_text values, directory, data;
} gguf_writer;

gguf_writer gguf_writer_new(void);

void gguf_put_u32(gguf_writer *w, const char *key, uint32_t value);
void gguf_put_i32(gguf_writer *w, const char *key, int32_t value);
void gguf_put_u64(gguf_writer *w, const char *key, uint64_t value);
void gguf_put_f32(gguf_writer *w, const char *key, float value);
void gguf_put_bool(gguf_writer *w, const char *key, bool value);
void gguf_put_str(gguf_writer *w, const char *key, const char *value);
void gguf_put_strs(gguf_writer *w, const char *key, const char *const *values, size_t n);
void gguf_put_i32s(gguf_writer *w, const char *key, const int32_t *values, size_t n);
void gguf_put_f32s(gguf_writer *w, const char *key, const float *values, size_t n);
/* A value whose bytes after the type number are given as they are. */
void gguf_put_raw(gguf_writer *w, const char *key, uint32_t type, const void *bytes, size_t n);

/* `data` holds what dims and type imply; NULL writes zeros. dims[0] is the contiguous one. */
void gguf_put_tensor(gguf_writer *w, const char *name, ht_weight_type type, int n_dims, const int64_t *dims,
                     const void *data);
/* A directory entry written as it is, without data. */
void gguf_put_entry(gguf_writer *w, const char *name, uint32_t n_dims, const uint64_t *dims, uint32_t type,
                    uint64_t offset);

/* The whole file, owned by the caller; the writer is empty afterwards. */
unsigned char *gguf_finish(gguf_writer *w, size_t *size);
/* The same, as a file of the scratch directory. */
void gguf_write(gguf_writer *w, const char *name);

#endif
