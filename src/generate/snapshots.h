/* Positions at which the states of a sequence's recurrent layers are kept, so that the sequence can go back there.
 *
 * For each power of two from 256 on, a snapshot is kept at its last odd multiple before the sequence's last token:
 * distances from the end double, and a longer sequence needs no snapshot that was not taken when it was shorter. These
 * page ends divide a sequence into intervals. The snapshot at the last message end of an interval takes the place of
 * the page end after it. The snapshot at the sequence's last message end is kept in addition: chats whose template
 * drops reasoning go back there at each message. ht_state_pages (checkpoint/kv_size.h) counts all of them. */
#ifndef HT_GENERATE_SNAPSHOTS_H
#define HT_GENERATE_SNAPSHOTS_H

#include "device/kv.h"

static inline bool ht_snapshot_is_page_end(int64_t position) { return position % HT_KV_PAGE == 0; }

/* The last odd multiple of `unit` before the last of `end` tokens; negative if there is none. */
static inline int64_t ht_snapshot_multiple(int64_t unit, int64_t end) {
    const int64_t n = (end - 1) / unit;
    return (n - (n % 2 == 0)) * unit;
}

/* Whether a snapshot is kept in a sequence of `end` tokens. All snapshots that are at no page end count as message
 * ends; the nearest of them are `before` and `after` the position, -1: none. */
bool ht_snapshot_stays(int64_t position, int64_t before, int64_t after, int64_t end);

/* A sequence that will be computed up to `end`. */
typedef struct ht_snapshot_plan {
    const int32_t *token; /* [n] known tokens */
    int64_t n, end;
    const int32_t *stop_ids; /* [n_stop_ids]: messages end after them */
    int n_stop_ids;
    int64_t mark;         /* position that counts as a message end; -1: none */
    int64_t last_message; /* position of the last snapshot so far at a message end; -1: none */
} ht_snapshot_plan;

/* The first position of [from, to) whose snapshot will still be kept at `end`; `to` if there is none. */
int64_t ht_snapshot_next(const ht_snapshot_plan *p, int64_t from, int64_t to);

#endif
