#include "generate/snapshots.h"

#include "base/checked.h"

/* The smallest unit of intervals. */
enum { LEAST_UNIT = 32 };

/* The end of the interval of `position`, which belongs to it. */
static int64_t interval_end(int64_t position, int64_t end) {
    int64_t least = INT64_MAX;
    for (int64_t unit = LEAST_UNIT; unit < end; unit *= 2) {
        const int64_t last = ht_snapshot_multiple(unit, end);
        if (last >= position) least = ht_min_i64(least, last);
    }
    return least;
}

static bool page_end_stays(int64_t position, int64_t before, int64_t end) {
    if (position >= end || end - 1 - position >= 2 * (position & -position)) return false; /* not the last multiple */
    return end - 1 - position < HT_KV_PAGE || before < 0 || interval_end(before, end) < position;
}

bool ht_snapshot_stays(int64_t position, int64_t before, int64_t after, int64_t end) {
    if (ht_snapshot_is_page_end(position)) return page_end_stays(position, before, end);
    return after < 0 || interval_end(position, end) < after;
}

static bool is_message_end(const ht_snapshot_plan *p, int64_t position) {
    if (ht_snapshot_is_page_end(position)) return false;
    for (int i = 0; i < p->n_stop_ids; i++)
        if (p->token[position - 1] == p->stop_ids[i]) return true;
    return position == p->mark;
}

/* Whether another message ends in the interval. */
static bool has_later_message_end(const ht_snapshot_plan *p, int64_t position) {
    const int64_t last = ht_min_i64(interval_end(position, p->end), ht_min_i64(p->n, p->end - 1));
    for (int64_t k = position + 1; k <= last; k++)
        if (is_message_end(p, k)) return true;
    return false;
}

int64_t ht_snapshot_next(const ht_snapshot_plan *p, int64_t from, int64_t to) {
    int64_t last = p->last;
    to = ht_min_i64(to, p->end);
    for (int64_t at = ht_max_i64(from, 1); at < to; at++) {
        if (ht_snapshot_is_page_end(at)) {
            if (page_end_stays(at, last, p->end)) return at;
        } else if (is_message_end(p, at)) {
            if (!has_later_message_end(p, at)) return at;
            last = at;
        }
    }
    return to;
}
