#include "tokenizer/vocab.h"

#include "base/checked.h"
#include "base/error.h"
#include "base/grow.h"
#include "base/log.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

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

/* The next id with a text; the probe is past its slot. */
static int32_t next_id(const ht_vocab *v, uint64_t hash, const char *text, size_t n, size_t *probe) {
    for (uint32_t id; (id = ht_table_next(&v->index, hash, probe)) != HT_TABLE_END;)
        if (v->length[id] == n && memcmp(v->arena + v->begin[id], text, n) == 0) return (int32_t)id;
    return -1;
}

static bool add_id(ht_vocab *v, int32_t id, uint64_t hash) {
    size_t probe = 0;
    if (next_id(v, hash, ht_vocab_text(v, id), v->length[id], &probe) < 0)
        return !ht_table_add(&v->index, hash, (uint32_t)id);
    ht_table_replace(&v->index, hash, probe, (uint32_t)id);
    return true;
}

ht_status ht_vocab_index(ht_vocab *v, ht_error *err) {
    ht_table_free(&v->index);
    if (!ht_table_reserve(&v->index, (size_t)v->n))
        return ht_fail_memory(err, (size_t)v->n * 2 * sizeof *v->index.slot, "vocabulary index");
    /* Inserts in batches, so that the cache misses of the hash slots overlap. */
    enum { BATCH = 32 };
    uint64_t hash[BATCH];
    for (int32_t first = 0; first < v->n; first += BATCH) {
        int32_t end = v->n - first < BATCH ? v->n : first + BATCH;
        for (int32_t id = first; id < end; id++) {
            if (v->begin[id] == HT_NO_TOKEN) continue;
            hash[id - first] = ht_hash_bytes(ht_vocab_text(v, id), v->length[id]);
            __builtin_prefetch(ht_table_slot(&v->index, hash[id - first]), 1);
        }
        for (int32_t id = first; id < end; id++)
            if (v->begin[id] != HT_NO_TOKEN && !add_id(v, id, hash[id - first]))
                return ht_fail(err, HT_ERR_FORMAT, "the texts of tokens were made to collide; the file is not honest");
    }
    return HT_OK;
}

int32_t ht_vocab_find_hashed(const ht_vocab *v, uint64_t hash, const char *text, size_t n) {
    size_t probe = 0;
    return next_id(v, hash, text, n, &probe);
}

int32_t ht_vocab_find(const ht_vocab *v, const char *text, size_t n) {
    if (n > v->longest) return -1;
    return ht_vocab_find_hashed(v, ht_hash_bytes(text, n), text, n);
}

void ht_vocab_free(ht_vocab *v) {
    free(v->arena);
    free(v->begin);
    free(v->length);
    ht_table_free(&v->index);
    *v = (ht_vocab){0};
}

void ht_vocab_warn_outside(const char *file, const char *key, int64_t id, int64_t n_vocab) {
    ht_log_write(HT_LOG_WARNING, "%s: `%s` is %" PRId64 ", outside the vocabulary of %" PRId64 " tokens; it is ignored",
                 file, key, id, n_vocab);
}
