/* Names inside checkpoint files: valid names, and an index of names that live elsewhere, for positions and duplicates. */
#ifndef HT_FORMATS_NAME_INDEX_H
#define HT_FORMATS_NAME_INDEX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Names end up in messages, in paths of slots and in look-ups by C string: they are not empty, at most 65535 bytes, valid
 * UTF-8 and free of control characters. NULL when `name` is such; else the end of a sentence, "is empty". */
const char *ht_name_problem(const char *name, size_t len);

/* How many bytes of a name to show in a message: all, or as many whole characters as fit in 100. */
int ht_name_shown(const char *name, size_t len);

typedef struct ht_name_slot {
    uint64_t hash;
    const char *name;
    uint32_t len;
    uint32_t position; /* + 1; 0 marks a free slot */
} ht_name_slot;

typedef struct ht_name_index {
    ht_name_slot *slots;
    size_t n_slots; /* a power of two */
} ht_name_index;

typedef enum ht_name_result {
    HT_NAME_ADDED,
    HT_NAME_TWICE,  /* *where is the position of the first one */
    HT_NAME_CROWDED /* too many names of one hash: nothing but a file made for it has them */
} ht_name_result;

/* Room for `n` names; false when memory ran out or n is above 2^30. */
bool ht_name_index_init(ht_name_index *index, size_t n);
void ht_name_index_free(ht_name_index *index);

/* `name` must outlive the index. At most the n names promised to init. */
ht_name_result ht_name_index_add(ht_name_index *index, const char *name, size_t len, size_t position, size_t *where);
/* Position of `name`, or SIZE_MAX. */
size_t ht_name_index_find(const ht_name_index *index, const char *name, size_t len);

#endif
