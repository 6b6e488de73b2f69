#include "tokenizer/vocab.h"

#include "base/checked.h"
#include "base/error.h"
#include "base/grow.h"
#include "base/log.h"
#include "base/pages.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static uint64_t mix(uint64_t a, uint64_t b) {
    __extension__ typedef unsigned __int128 wide;
    wide product = (wide)a * b;
    return (uint64_t)product ^ (uint64_t)(product >> 64);
}

static uint64_t load_tail(const char *p, size_t n) {
    uint64_t value = 0;
    memcpy(&value, p, n);
    return value;
}

uint64_t ht_hash_bytes(const char *text, size_t n) {
    uint64_t hash = 0x9E3779B97F4A7C15u ^ n;
    for (; n > 8; text += 8, n -= 8) hash = mix(hash ^ load_tail(text, 8), 0xD6E8FEB86659FD93u);
    return mix(hash ^ load_tail(text, n), 0xA0761D6478BD642Fu);
}

static ht_status reserve_ids(ht_vocab *v, int32_t n, ht_error *err) {
    if (n <= v->capacity) return HT_OK;
    if (!HT_RESIZE(v->begin, n) || !HT_RESIZE(v->length, n))
        return ht_fail_memory(err, (size_t)n * sizeof *v->begin, "vocabulary");
    v->capacity = n;
    return HT_OK;
}

static ht_status reserve_arena(ht_vocab *v, size_t extra, ht_error *err) {
    size_t need;
    if (!ht_add_size(v->arena_size, extra, &need) || need >= HT_NO_TOKEN)
        return ht_fail(err, HT_ERR_LIMIT, "the vocabulary's texts exceed 4 GiB");
    return HT_GROW(v->arena, v->arena_capacity, need) ? HT_OK : ht_fail_memory(err, need, "vocabulary");
}

ht_status ht_vocab_reserve(ht_vocab *v, int32_t n, size_t bytes, ht_error *err) {
    ht_status st = reserve_ids(v, n, err);
    return st ? st : reserve_arena(v, bytes, err);
}

ht_status ht_vocab_set(ht_vocab *v, int32_t id, const char *text, size_t n, ht_error *err) {
    if (id < 0 || id >= HT_MAX_VOCAB)
        return ht_fail(err, HT_ERR_LIMIT, "token id %d is out of range; 0 to %d are supported", (int)id,
                       HT_MAX_VOCAB - 1);
    ht_status st = HT_OK;
    if (id >= v->capacity) st = reserve_ids(v, id < v->capacity * 2 ? v->capacity * 2 : id + 64, err);
    if (!st) st = reserve_arena(v, n + 1, err);
    if (st) return st;
    while (v->n <= id) v->begin[v->n++] = HT_NO_TOKEN;
    v->begin[id] = (uint32_t)v->arena_size;
    v->length[id] = (uint32_t)n;
    if (n) memcpy(v->arena + v->arena_size, text, n);
    v->arena[v->arena_size + n] = '\0';
    v->arena_size += n + 1;
    if (n > v->longest) v->longest = (uint32_t)n;
    return HT_OK;
}

#define TAG(hash) ((hash)&0xFFFFFFFF00000000u)

static bool same_text(const ht_vocab *v, uint64_t slot, uint64_t hash, const char *text, size_t n) {
    if (TAG(slot) != TAG(hash)) return false;
    uint32_t id = (uint32_t)slot - 1;
    return v->length[id] == n && memcmp(v->arena + v->begin[id], text, n) == 0;
}

static void add_slot(ht_vocab *v, int32_t id, uint64_t hash) {
    size_t i = (size_t)hash & v->mask;
    while (v->slots[i] && !same_text(v, v->slots[i], hash, ht_vocab_text(v, id), v->length[id])) i = (i + 1) & v->mask;
    v->slots[i] = TAG(hash) | (uint32_t)(id + 1);
}

ht_status ht_vocab_index(ht_vocab *v, ht_error *err) {
    size_t size = 16;
    while (size < (size_t)v->n * 2) size *= 2;
    free(v->slots);
    v->slots = ht_pages_zeroed(size, sizeof *v->slots);
    if (!v->slots) return ht_fail_memory(err, size * sizeof *v->slots, "vocabulary index");
    v->mask = size - 1;
    /* Inserts in batches, so that the cache misses of the hash slots overlap. */
    enum { BATCH = 32 };
    uint64_t hash[BATCH];
    for (int32_t first = 0; first < v->n; first += BATCH) {
        int32_t end = v->n - first < BATCH ? v->n : first + BATCH;
        for (int32_t id = first; id < end; id++) {
            if (v->begin[id] == HT_NO_TOKEN) continue;
            hash[id - first] = ht_hash_bytes(ht_vocab_text(v, id), v->length[id]);
            __builtin_prefetch(&v->slots[(size_t)hash[id - first] & v->mask], 1);
        }
        for (int32_t id = first; id < end; id++)
            if (v->begin[id] != HT_NO_TOKEN) add_slot(v, id, hash[id - first]);
    }
    return HT_OK;
}

int32_t ht_vocab_find_hashed(const ht_vocab *v, uint64_t hash, const char *text, size_t n) {
    for (size_t i = (size_t)hash & v->mask; v->slots[i]; i = (i + 1) & v->mask)
        if (same_text(v, v->slots[i], hash, text, n)) return (int32_t)((uint32_t)v->slots[i] - 1);
    return -1;
}

int32_t ht_vocab_find(const ht_vocab *v, const char *text, size_t n) {
    if (!v->slots || n > v->longest) return -1;
    return ht_vocab_find_hashed(v, ht_hash_bytes(text, n), text, n);
}

void ht_vocab_free(ht_vocab *v) {
    free(v->arena);
    free(v->begin);
    free(v->length);
    free(v->slots);
    *v = (ht_vocab){0};
}

void ht_vocab_warn_outside(const char *file, const char *key, int64_t id, int64_t n_vocab) {
    ht_log_write(HT_LOG_WARNING, "%s: `%s` is %" PRId64 ", outside the vocabulary of %" PRId64 " tokens; it is ignored",
                 file, key, id, n_vocab);
}
