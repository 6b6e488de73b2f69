/* GGUF checkpoints of one file or of several: `name-00001-of-00003.gguf` and so on, of which the first holds the metadata
 * and each some of the tensors. Facts: gguf.constants (split.*), llama.cpp's naming of the parts. Immutable once made. */
#ifndef HT_FORMATS_GGUF_SET_H
#define HT_FORMATS_GGUF_SET_H

#include "formats/gguf.h"

typedef struct ht_gguf_part {
    char *path;
    const char *name; /* the end of the path, for messages */
    ht_file *file;    /* NULL when it was parsed from memory */
    ht_gguf *gguf;
} ht_gguf_part;

typedef struct ht_gguf_set ht_gguf_set;

/* Opens a .gguf file, and when it is a part, the others beside it, whichever of them `path` names. All parts must be there,
 * agree on their number, and hold each tensor once. */
ht_status ht_gguf_set_open(const char *path, ht_gguf_set **out, ht_error *err);
/* The same from memory, which must outlive the result. */
typedef struct ht_gguf_source {
    const char *name;
    const void *data;
    size_t size;
} ht_gguf_source;
ht_status ht_gguf_set_parse(const ht_gguf_source *sources, int n, ht_gguf_set **out, ht_error *err);
void ht_gguf_set_close(ht_gguf_set *set); /* for both; NULL is fine */

int ht_gguf_set_n_parts(const ht_gguf_set *set);
const ht_gguf_part *ht_gguf_set_part(const ht_gguf_set *set, int part);
/* The first part's, which has the metadata; ht_gguf_find_tensor finds those of all parts with it. */
const ht_gguf *ht_gguf_set_metadata(const ht_gguf_set *set);

/* Tensors of all parts. *part is where it is. */
size_t ht_gguf_set_n_tensors(const ht_gguf_set *set);
const ht_gguf_tensor *ht_gguf_set_tensor_at(const ht_gguf_set *set, size_t i, const ht_gguf_part **part);
const ht_gguf_tensor *ht_gguf_set_find(const ht_gguf_set *set, const char *name,
                                       const ht_gguf_part **part); /* or NULL */

/* The i for which ht_gguf_set_tensor_at gives this tensor of this part. */
size_t ht_gguf_set_number(const ht_gguf_set *set, const ht_gguf_tensor *t, const ht_gguf_part *part);

/* Whether a file name ends as that of a part does; then its number and their count, from 1, and the length of what is
 * before that end. */
bool ht_gguf_part_name(const char *name, int *number, int *count, size_t *prefix_len);

#endif
