/* Names in checkpoint files: validation, and a hash index from name to position that detects duplicates. */
#ifndef HT_FORMATS_NAME_INDEX_H
#define HT_FORMATS_NAME_INDEX_H

#include "base/table.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Validates a name for messages and C strings: 1 to 65535 bytes, valid UTF-8, no control characters. NULL when valid;
 * otherwise the predicate of a sentence, "is empty". */
const char *ht_name_problem(const char *name, size_t len);

/* Length argument of "%.*s": the whole name, or the whole characters within its first 100 bytes. */
int ht_name_shown(const char *name, size_t len);

typedef struct ht_indexed_name {
    const char *text;
    uint32_t len, position;
} ht_indexed_name;

typedef struct ht_name_index {
    ht_table table;
    ht_indexed_name *name; /* [table.n] */
} ht_name_index;

typedef enum ht_name_result {
    HT_NAME_ADDED,
    HT_NAME_TWICE,  /* *where is the position of the first occurrence */
    HT_NAME_CROWDED /* probe limit reached: a hostile file */
} ht_name_result;

/* Index with capacity for `n` names; false when out of memory or n > 2^30. */
bool ht_name_index_init(ht_name_index *index, size_t n);
void ht_name_index_free(ht_name_index *index);

/* Adds a name, which must outlive the index; at most n of ht_name_index_init. */
ht_name_result ht_name_index_add(ht_name_index *index, const char *name, size_t len, size_t position, size_t *where);
/* SIZE_MAX when absent. */
size_t ht_name_index_find(const ht_name_index *index, const char *name, size_t len);

#endif
