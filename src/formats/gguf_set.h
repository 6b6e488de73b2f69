/* GGUF checkpoints of one or several files: `name-00001-of-00003.gguf` and so on; the first part has the metadata, each
 * part some of the tensors. Format: gguf.constants (split.*), llama.cpp's file names. Immutable once made. */
#ifndef HT_FORMATS_GGUF_SET_H
#define HT_FORMATS_GGUF_SET_H

#include "formats/gguf.h"

#include <hearth/discover.h>

enum { HT_GGUF_PARTS_MAX = 65535 }; /* split.count is a u16 */

typedef struct ht_gguf_part {
    char *path;
    const char *name; /* file name, for messages */
    ht_file *file;    /* NULL when parsed from memory */
    ht_gguf *gguf;
} ht_gguf_part;

typedef struct ht_gguf_set ht_gguf_set;

/* Opens a .gguf file; when `path` is any part of several, all parts. Error when a part is missing, the parts disagree
 * on their number, or a tensor name repeats. */
ht_status ht_gguf_set_open(const char *path, ht_gguf_set **out, ht_error *err);
/* A part in memory, for ht_gguf_set_parse; `data` must outlive the set. */
typedef struct ht_gguf_source {
    const char *name;
    const void *data;
    size_t size;
} ht_gguf_source;
ht_status ht_gguf_set_parse(const ht_gguf_source *sources, int n, ht_gguf_set **out, ht_error *err);
void ht_gguf_set_close(ht_gguf_set *set); /* NULL is fine */

int ht_gguf_set_n_parts(const ht_gguf_set *set);
const ht_gguf_part *ht_gguf_set_part(const ht_gguf_set *set, int part);
/* The first part: metadata, and ht_gguf_find_tensor over all parts. */
const ht_gguf *ht_gguf_set_metadata(const ht_gguf_set *set);

/* Tensors of all parts. *part is the part of the tensor. */
size_t ht_gguf_set_n_tensors(const ht_gguf_set *set);
const ht_gguf_tensor *ht_gguf_set_tensor_at(const ht_gguf_set *set, size_t i, const ht_gguf_part **part);
const ht_gguf_tensor *ht_gguf_set_find(const ht_gguf_set *set, const char *name,
                                       const ht_gguf_part **part); /* or NULL */

/* Inverse of ht_gguf_set_tensor_at: the index of tensor `t` of `part`. */
size_t ht_gguf_set_number(const ht_gguf_set *set, const ht_gguf_tensor *t, const ht_gguf_part *part);

/* Parses the "-00001-of-00003.gguf" suffix of a part's file name: *number and *count from 1, *prefix_len the length
 * before it. False when `name` has no such suffix. */
bool ht_gguf_part_name(const char *name, int *number, int *count, size_t *prefix_len);
/* Whether two file names are parts of one checkpoint. */
bool ht_gguf_same_set(const char *a, const char *b);
/* The inverse of ht_gguf_part_name, of the prefix's first n bytes; the caller frees it. NULL when memory ran out. */
char *ht_gguf_part_path(const char *prefix, size_t n, int number, int count);

/* The GGUF models of a directory: files of its lowest role, up to HT_FILE_AUXILIARY. Initialised to zero. */
typedef struct ht_gguf_listing {
    ht_file_role role;
    int n;          /* models; the parts of one count once */
    char name[256]; /* file name of a model, or of its first part among those added */
} ht_gguf_listing;

/* Adds a file of the directory; ignores files that are not GGUF. */
void ht_gguf_listing_add(ht_gguf_listing *l, const char *name);

#endif
