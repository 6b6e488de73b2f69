/* Name index: open addressing with a load of at most one half. The probe length is limited, as a hostile file could
 * contain names of one hash and make insertion quadratic; honest names stay far below the limit. */
#include "formats/name_index.h"

#include "base/text.h"

#include <stdlib.h>
#include <string.h>

enum { PROBES_MAX = 2048, NAME_BYTES_MAX = 65535, SHOWN_BYTES = 100 };

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

static uint64_t hash_of(const char *name, size_t len) {
    uint64_t h = 0x9E3779B97F4A7C15u ^ len;
    while (len) {
        uint64_t word = 0;
        size_t n = len < 8 ? len : 8;
        memcpy(&word, name, n);
        h = (h ^ word) * 0xBF58476D1CE4E5B9u;
        h ^= h >> 32;
        name += n;
        len -= n;
    }
    h *= 0x94D049BB133111EBu;
    return h ^ (h >> 29);
}

bool ht_name_index_init(ht_name_index *index, size_t n) {
    *index = (ht_name_index){0};
    if (n > (size_t)1 << 30) return false;
    size_t n_slots = 16;
    while (n_slots < 2 * n) n_slots *= 2;
    index->slots = calloc(n_slots, sizeof *index->slots);
    if (!index->slots) return false;
    index->n_slots = n_slots;
    return true;
}

void ht_name_index_free(ht_name_index *index) {
    free(index->slots);
    *index = (ht_name_index){0};
}

ht_name_result ht_name_index_add(ht_name_index *index, const char *name, size_t len, size_t position, size_t *where) {
    uint64_t hash = hash_of(name, len);
    for (size_t i = 0; i < PROBES_MAX && i < index->n_slots; i++) {
        ht_name_slot *slot = &index->slots[(hash + i) & (index->n_slots - 1)];
        if (!slot->position) {
            *slot = (ht_name_slot){hash, name, (uint32_t)len, (uint32_t)position + 1};
            return HT_NAME_ADDED;
        }
        if (slot->hash == hash && slot->len == len && memcmp(slot->name, name, len) == 0) {
            *where = slot->position - 1;
            return HT_NAME_TWICE;
        }
    }
    return HT_NAME_CROWDED;
}

size_t ht_name_index_find(const ht_name_index *index, const char *name, size_t len) {
    if (!index->n_slots) return SIZE_MAX;
    uint64_t hash = hash_of(name, len);
    for (size_t i = 0; i < PROBES_MAX && i < index->n_slots; i++) {
        const ht_name_slot *slot = &index->slots[(hash + i) & (index->n_slots - 1)];
        if (!slot->position) return SIZE_MAX;
        if (slot->hash == hash && slot->len == len && memcmp(slot->name, name, len) == 0) return slot->position - 1;
    }
    return SIZE_MAX;
}
