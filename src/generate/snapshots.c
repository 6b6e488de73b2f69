#include "generate/snapshots.h"

#include "base/checked.h"

/* The page end that ends the interval of `position`; INT64_MAX after the last page end. */
static int64_t interval_end(int64_t position, int64_t end) {
    int64_t least = INT64_MAX;
    for (int64_t unit = HT_KV_PAGE; unit < end; unit *= 2) {
        const int64_t last = ht_snapshot_multiple(unit, end);
        if (last >= position) least = ht_min_i64(least, last);
    }
    return least;
}

/* Whether the position, a page end, is the last odd multiple of a power of two. */
static bool ends_interval(int64_t position, int64_t end) {
    return position < end && end - 1 - position < 2 * (position & -position);
}

bool ht_snapshot_stays(int64_t position, int64_t before, int64_t after, int64_t end) {
    if (!ht_snapshot_is_page_end(position)) return after < 0 || interval_end(position, end) < after;
    return ends_interval(position, end) && (before < 0 || after < 0 || interval_end(before, end) < position);
}

static bool is_message_end(const ht_snapshot_plan *p, int64_t position) {
    if (ht_snapshot_is_page_end(position)) return false;
    for (int i = 0; i < p->n_stop_ids; i++)
        if (p->token[position - 1] == p->stop_ids[i]) return true;
    return position == p->mark;
}

/* The next message end after the position; -1: none is known. */
static int64_t next_message_end(const ht_snapshot_plan *p, int64_t position) {
    const int64_t last = ht_min_i64(p->n, p->end - 1);
    for (int64_t at = position + 1; at <= last; at++)
        if (is_message_end(p, at)) return at;
    return -1;
}

int64_t ht_snapshot_next(const ht_snapshot_plan *p, int64_t from, int64_t to) {
    to = ht_min_i64(to, p->end);
    for (int64_t at = ht_max_i64(from, 1); at < to; at++)
        if ((ht_snapshot_is_page_end(at) || is_message_end(p, at)) &&
            ht_snapshot_stays(at, p->last_message, next_message_end(p, at), p->end))
            return at;
    return to;
}
