/* KV cache of a session: pages of 256 positions per layer, allocated between steps as positions need them.
 *
 * A layer with a window keeps a ring of pages, enough for the window of a step's first row while its last row is
 * written. A recurrent layer keeps its state, that before the last step, and snapshots at earlier positions
 * (generate/snapshots.h). Pages are device memory, and may be shared with other caches (device/kv.h). A cache belongs
 * to one thread at a time. */
#ifndef HT_GENERATE_CACHE_H
#define HT_GENERATE_CACHE_H

#include "device/step.h"
#include "models/model.h"

/* An empty cache for steps of up to `chunk` rows. */
ht_status ht_cache_new(const ht_model *m, int32_t chunk, ht_cache **out, ht_error *err);
/* Another cache with the same positions. Both share the existing pages; each copies a page before writing to it. */
ht_status ht_cache_share(const ht_cache *from, ht_cache **out, ht_error *err);
void ht_cache_free(ht_cache *c); /* NULL is fine */

/* Whether the cache's positions are those of a sequence of n tokens: see ht_model_is_long. */
bool ht_cache_is_for(const ht_cache *c, int64_t n);
/* Prepares the cache for a sequence of n tokens, including those that are computed next: empties it if its positions
 * are those of the other kind of sequence. */
void ht_cache_begin(ht_cache *c, int64_t n);

/* Counts all pages that the cache allocates from now on. */
void ht_cache_set_account(ht_cache *c, ht_kv_account *account);

/* Whether `more` bytes fit a budget, in addition to the pages that are counted. */
static inline bool ht_cache_fits(const ht_kv_account *account, size_t budget, size_t more) {
    const size_t used = atomic_load_explicit(&account->bytes, memory_order_relaxed);
    return used <= budget && more <= budget - used;
}
/* Bytes of the pages that steps up to `positions` take, copies of shared ones included. An upper bound with states,
 * whose snapshots depend on where messages end. */
size_t ht_cache_growth(const ht_cache *c, int64_t positions);
/* Takes the planned snapshot, if any, and reserves pages for a step that writes positions below `positions`. The states
 * before the last step are given up. On failure the cache is unchanged. */
ht_status ht_cache_reserve(ht_cache *c, int64_t positions, ht_error *err);

/* Takes over what a step has written: `rows` more positions. */
void ht_cache_advance(ht_cache *c, int64_t rows);

/* Positions that ht_cache_truncate(c, n) keeps. */
int64_t ht_cache_kept(const ht_cache *c, int64_t n);
/* Goes back to the first n <= length positions, or to the most of them from which the cache can go on: a ring may have
 * overwritten keys that the next position attends to, and then keeps none; states are kept at few positions. */
void ht_cache_truncate(ht_cache *c, int64_t n);

/* ---- snapshots of states; a cache without states has none ---- */

bool ht_cache_has_states(const ht_cache *c);
/* Plans the snapshots of a sequence of `end` tokens, of which the first n are known and the cache holds fewer: removes
 * those that will not be kept (generate/snapshots.h), and lets the next ht_cache_reserve take one if it will. Returns
 * where the next step must end, at most at `step_end` <= n. */
int64_t ht_cache_plan(ht_cache *c, const ht_model *m, const int32_t *token, int64_t n, int64_t end, int64_t step_end);
/* Lets `position` count as a message's end in plans. */
void ht_cache_mark(ht_cache *c, int64_t position);
/* The number of snapshots, and their positions in increasing order. */
int64_t ht_cache_snapshots(const ht_cache *c);
int64_t ht_cache_snapshot_at(const ht_cache *c, int64_t i);
/* Adds a snapshot with new pages, whose contents the caller writes. After a failure the cache must be freed. */
ht_status ht_cache_new_snapshot(ht_cache *c, int64_t position, ht_error *err);
void ht_cache_drop_snapshots(ht_cache *c);

/* ---- pages shared with other caches ---- */

/* The page of positions [256 index, 256 index + 256) of a layer, lent; NULL unless it has all below the length. For a
 * layer of states: the state after `index` positions; NULL unless there is a snapshot, or these are all. */
ht_kv_page *ht_cache_page(const ht_cache *c, int32_t layer, int64_t index);

/* Pages of other caches, as ht_cache_page returns them. */
typedef ht_kv_page *ht_cache_page_fn(void *user, int32_t layer, int64_t index);
/* Whether page_of has all pages of the first n positions to which the next one attends, and the states after them. */
bool ht_cache_can_adopt(const ht_cache *c, int64_t n, ht_cache_page_fn *page_of, void *user);
/* Shares the first n positions of such pages with an empty cache, after ht_cache_can_adopt; empty on failure. */
ht_status ht_cache_adopt(ht_cache *c, int64_t n, ht_cache_page_fn *page_of, void *user, ht_error *err);

/* The first position whose keys layer `layer` holds. */
int64_t ht_cache_first(const ht_cache *c, int32_t layer);
/* Marks positions of a layer before `first` as not written. Different layers may be marked concurrently. */
void ht_cache_forget_before(ht_cache *c, int32_t layer, int64_t first);

/* Bytes of pages held now, each counted once. */
size_t ht_cache_held_bytes(const ht_cache *c);
/* Page bytes of a cache for steps of `chunk` rows once it has `positions`, with all snapshots that it may have then;
 * SIZE_MAX on overflow. */
size_t ht_cache_bytes(const ht_model *m, int64_t positions, int32_t chunk);

#endif
