#include "formats/name_index.h"

#include "base/hash.h"
#include "base/text.h"

#include <stdlib.h>
#include <string.h>

enum { NAME_BYTES_MAX = 65535, SHOWN_BYTES = 100 };

const char *ht_name_problem(const char *name, size_t len) {
    if (len == 0) return "is empty";
    if (len > NAME_BYTES_MAX) return "is longer than 65535 bytes";
    if (!ht_utf8_valid(name, len)) return "is not valid UTF-8";
    for (size_t i = 0; i < len; i++)
        if ((unsigned char)name[i] < 0x20 || name[i] == 0x7F) return "contains a control character";
    return NULL;
}

int ht_name_shown(const char *name, size_t len) {
    return (int)ht_utf8_complete_prefix(name, len < SHOWN_BYTES ? len : SHOWN_BYTES);
}

bool ht_name_index_init(ht_name_index *index, size_t n) {
    *index = (ht_name_index){0};
    if (!ht_table_reserve(&index->table, n)) return false;
    index->name = malloc((n + 1) * sizeof *index->name);
    if (!index->name) ht_name_index_free(index);
    return index->name != NULL;
}

void ht_name_index_free(ht_name_index *index) {
    ht_table_free(&index->table);
    free(index->name);
    *index = (ht_name_index){0};
}

static size_t find(const ht_name_index *index, uint64_t hash, const char *name, size_t len) {
    size_t probe = 0;
    for (uint32_t i; (i = ht_table_next(&index->table, hash, &probe)) != HT_TABLE_END;)
        if (index->name[i].len == len && memcmp(index->name[i].text, name, len) == 0) return i;
    return SIZE_MAX;
}

ht_name_result ht_name_index_add(ht_name_index *index, const char *name, size_t len, size_t position, size_t *where) {
    const uint64_t hash = ht_hash_bytes(name, len);
    const size_t first = find(index, hash, name, len), number = index->table.n;
    if (first != SIZE_MAX) {
        *where = index->name[first].position;
        return HT_NAME_TWICE;
    }
    if (ht_table_add(&index->table, hash, (uint32_t)number)) return HT_NAME_CROWDED;
    index->name[number] = (ht_indexed_name){name, (uint32_t)len, (uint32_t)position};
    return HT_NAME_ADDED;
}

size_t ht_name_index_find(const ht_name_index *index, const char *name, size_t len) {
    const size_t i = find(index, ht_hash_bytes(name, len), name, len);
    return i == SIZE_MAX ? SIZE_MAX : index->name[i].position;
}
