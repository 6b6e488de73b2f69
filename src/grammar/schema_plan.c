/* From which states on arrays and objects can end. */
#include "grammar/schema_plan.h"

#include "base/grow.h"

#include <stdlib.h>

/* ---- arrays ---- */

void ht_array_plan_free(ht_array_plan *p) {
    ht_intern_free(&p->states);
    free(p->known);
    p->known = NULL;
}

bool ht_array_may_end(const ht_array_plan *p, const ht_array_state *at) {
    bool may = at->index >= p->least && at->index <= p->most;
    for (uint32_t k = 0; k < p->n_some && !p->is_unique; k++) may = may && at->count[k] >= p->some_least[k];
    return may;
}

/* Indexes from which on nothing changes any more are one. */
static uint32_t next_index(const ht_array_plan *p, uint32_t index) {
    const uint32_t last = p->n - 1 > p->least ? p->n - 1 : p->least;
    const uint32_t enough = last ? last : 1; /* the first item has no comma before it */
    return p->most == HT_UNBOUNDED && index >= enough ? enough : index + 1;
}

bool ht_array_after(const ht_array_plan *p, const ht_array_state *at, uint32_t mask, ht_array_state *out) {
    *out = *at;
    out->index = next_index(p, at->index);
    for (uint32_t k = 0; k < p->n_some; k++) {
        if (!(mask >> k & 1)) continue;
        if (at->index < p->some_from[k]) return false;
        if (p->some_most[k] < HT_UNBOUNDED) {
            if (at->count[k] == p->some_most[k]) return false;
            out->count[k]++;
        } else if (at->count[k] < p->some_least[k])
            out->count[k]++;
        else
            return false; /* it need not be counted, and items that are not are among the others */
    }
    return at->index < p->most;
}

ht_array_state ht_array_after_value(const ht_array_plan *p, const ht_array_state *at, uint32_t value) {
    ht_array_state out = *at;
    out.index = next_index(p, at->index);
    out.count[value >> 5] |= 1u << (value & 31);
    return out;
}

/* Gives the index a value that no other one has, moving others on (Kuhn's way to match pairs). */
static bool match(const uint64_t *wants, uint32_t n_values, uint32_t i, int32_t *owner, uint64_t *tried) {
    for (uint32_t v = 0; v < n_values; v++) {
        if (!(wants[i] >> v & 1) || *tried >> v & 1) continue;
        *tried |= UINT64_C(1) << v;
        if (owner[v] >= 0 && !match(wants, n_values, (uint32_t)owner[v], owner, tried)) continue;
        owner[v] = (int32_t)i;
        return true;
    }
    return false;
}

static bool unique_can_end(const ht_array_plan *p, const ht_array_state *at) {
    uint64_t wants[HT_UNIQUE_MOST];
    int32_t owner[HT_UNIQUE_MOST];
    const uint64_t used = at->count[0] | (uint64_t)at->count[1] << 32;
    if (at->index > p->most) return false;
    if (at->index >= p->least) return true;
    if (p->least - at->index > HT_UNIQUE_MOST) return false;
    const uint32_t n = p->least - at->index;
    for (uint32_t v = 0; v < HT_UNIQUE_MOST; v++) owner[v] = -1;
    for (uint32_t i = 0; i < n; i++) wants[i] = p->allowed[ht_array_class(p, at->index + i)] & ~used;
    for (uint32_t i = 0; i < n; i++) {
        uint64_t tried = 0;
        if (!match(wants, p->n_values, i, owner, &tried)) return false;
    }
    return true;
}

/* The number of a state in what is known of them. */
static uint32_t number_of(ht_array_plan *p, const ht_array_state *at) {
    uint32_t words[1 + HT_COUNTS_MOST] = {at->index};
    memcpy(words + 1, at->count, sizeof at->count);
    const uint32_t number = ht_intern_add(&p->states, words, 1 + HT_COUNTS_MOST, NULL);
    if (number == HT_INTERN_FAILED) return p->failed = true, number;
    if (number < p->known_capacity) return number;
    const size_t old = p->known_capacity;
    if (!HT_GROW(p->known, p->known_capacity, number + 1)) return p->failed = true, HT_INTERN_FAILED;
    memset(p->known + old, 0, p->known_capacity - old);
    return number;
}

/* Every item brings a state on, or leaves it as it is: no state is met again on the way to another one. */
static bool counting_can_end(ht_array_plan *p, const ht_array_state *at) {
    if (ht_array_may_end(p, at)) return true;
    const uint32_t number = number_of(p, at);
    if (p->failed) return false;
    if (p->known[number]) return p->known[number] == 2;
    p->known[number] = 1;
    bool can = false;
    /* Counting first, as it is needed. */
    for (uint32_t mask = 1u << p->n_some; mask-- > 0 && !can && !p->failed;) {
        ht_array_state next;
        if (!p->live[(ht_array_class(p, at->index) << p->n_some) + mask] || !ht_array_after(p, at, mask, &next))
            continue;
        can = counting_can_end(p, &next);
    }
    if (!p->failed) p->known[number] = can ? 2 : 1;
    return can;
}

bool ht_array_can_end(ht_array_plan *p, const ht_array_state *at) {
    if (p->is_unique) return unique_can_end(p, at);
    /* Without counts most is less than the first index that has no item. */
    return p->n_some ? counting_can_end(p, at) : at->index <= p->most;
}

/* ---- objects ---- */

static bool was_seen(const ht_object_state *at, uint32_t name) { return at->seen[name >> 5] >> (name & 31) & 1; }

bool ht_object_may_take(const ht_object_plan *p, const ht_object_state *at, uint32_t member) {
    if (p->is_ordered && member < at->position) return false;
    return member >= p->n_names || !was_seen(at, member);
}

/* Whether those of `some` that are pending can be had of members that may come; then what is left is a matter of counting. */
bool ht_object_can_end(const ht_object_plan *p, ht_object_state *at) {
    uint32_t n_required = 0, n_optional = 0;
    bool has_class = false;
    for (uint32_t i = 0; i < p->n_members; i++) {
        const ht_member_plan *m = &p->member[i];
        const bool may = ht_object_may_take(p, at, i);
        if (i < p->n_names && m->is_required && !was_seen(at, i)) {
            if (!may || !m->live[0]) return false;
            n_required++;
        } else if (may && m->live[0]) {
            if (i < p->n_names)
                n_optional++;
            else
                has_class = true;
        }
    }
    const uint64_t needed = (uint64_t)at->count + n_required;
    if (needed > p->most) return false;
    if (!at->pending) return has_class || needed + n_optional >= p->least;
    /* In order any of them may be next; else they are looked for one after another. */
    const uint32_t lowest = p->is_ordered ? at->pending : at->pending & (~at->pending + 1);
    for (uint32_t i = 0; i < p->n_members; i++) {
        const ht_member_plan *m = &p->member[i];
        if (!(m->mask & lowest) || !ht_object_may_take(p, at, i)) continue;
        for (uint32_t mask = 1; mask < 1u << p->n_some; mask++) {
            if (!(mask & lowest) || (mask & at->pending & m->mask) != mask || !m->live[mask] || at->count == p->most)
                continue;
            const bool is_name = i < p->n_names;
            ht_object_state next = *at;
            next.pending &= ~mask;
            if (next.count < UINT32_MAX - 1) next.count++;
            if (p->is_ordered) next.position = is_name ? i + 1 : p->n_names;
            if (is_name) at->seen[i >> 5] |= 1u << (i & 31);
            const bool can = ht_object_can_end(p, &next);
            if (is_name) at->seen[i >> 5] &= ~(1u << (i & 31));
            if (can) return true;
        }
    }
    return false;
}

bool ht_object_may_end(const ht_object_plan *p, const ht_object_state *at) {
    if (at->pending || at->count < p->least) return false;
    for (uint32_t i = 0; i < p->n_names; i++)
        if (p->member[i].is_required && !was_seen(at, i)) return false;
    return true;
}

bool ht_object_take(const ht_object_plan *p, ht_object_state *at, uint32_t member, uint32_t mask) {
    const bool is_name = member < p->n_names;
    if (at->count == p->most) return false;
    if (p->is_ordered) {
        /* Names before it can come no more: as if they had been there, unless they have to be. */
        const uint32_t position = is_name ? member + 1 : p->n_names;
        for (uint32_t i = at->position; i < position; i++) {
            if (i != member && p->member[i].is_required) return false;
            at->seen[i >> 5] |= 1u << (i & 31);
        }
        at->position = position;
    } else if (is_name)
        at->seen[member >> 5] |= 1u << (member & 31);
    at->pending &= ~mask;
    /* Members without end are counted as far as they are asked for. */
    if (p->most < HT_UNBOUNDED || at->count < p->least) at->count++;
    return p->is_free || ht_object_can_end(p, at);
}
