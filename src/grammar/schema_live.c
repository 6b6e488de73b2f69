/* Liveness of sets: whether one has any value. It is found depth first, as a least fixed point. A set that is met while it is looked at has no value by that
 * way; where an answer depends on that, it is kept for the outermost such set alone. */
#include "grammar/schema.h"

/* Questions about one schema: seconds. */
enum { STEPS_MOST = 1000000, DEPTH_MOST = 1000 };
/* States of a set; from OPEN on it is being looked at, at this depth. */
enum { UNKNOWN, DEAD, LIVE, OPEN };

bool ht_conjunction_is_live(ht_schema *s, uint32_t conjunction, uint32_t type) {
    if (type == HT_TYPE_ARRAY) {
        const ht_array_shape *a = ht_array_shape_of(s, conjunction);
        return a && ht_array_is_live(s, a);
    }
    const ht_object_shape *o = ht_object_shape_of(s, conjunction);
    return o && ht_object_is_live(s, o);
}

static bool has_live_alternative(ht_schema *s, ht_node node, uint32_t type) {
    const uint32_t list = ht_set_alternatives(s, node, type);
    for (uint32_t i = 0; !s->status && i < s->lists[list].n; i++)
        if (ht_conjunction_is_live(s, s->lists[list].conjunction[i], type)) return true;
    return false;
}

static bool find_value(ht_schema *s, ht_node node) {
    const uint32_t types = ht_set_types(s, node);
    if (!types || s->status) return false;
    const uint32_t simple = HT_TYPE_NULL | HT_TYPE_FALSE | HT_TYPE_TRUE;
    if (types & simple && ht_set_simple(s, node)) return true;
    if (types & HT_TYPE_STRING && ht_strings_is_live(s, ht_set_strings(s, node))) return true;
    if (types & HT_TYPE_NUMBER && ht_numbers_is_live(s, ht_set_numbers(s, node))) return true;
    return (types & HT_TYPE_ARRAY && has_live_alternative(s, node, HT_TYPE_ARRAY)) ||
           (types & HT_TYPE_OBJECT && has_live_alternative(s, node, HT_TYPE_OBJECT));
}

static bool reserve(ht_schema *s) {
    const size_t before = s->live_capacity;
    if (!ht_schema_reserve(s, &s->live, &s->live_capacity, s->nodes.n, sizeof *s->live)) return false;
    for (size_t i = before; i < s->live_capacity; i++) s->live[i] = UNKNOWN;
    return true;
}

bool ht_set_is_live(ht_schema *s, ht_node node) {
    if (s->status || node <= HT_NODE_ANYTHING) return !s->status && node == HT_NODE_ANYTHING;
    if (!reserve(s)) return false;
    if (s->live[node] == DEAD || s->live[node] == LIVE) return s->live[node] == LIVE;
    if (s->live[node] >= OPEN) {
        const uint32_t depth = s->live[node] - OPEN;
        if (depth < s->live_low) s->live_low = depth;
        return false;
    }
    if (++s->steps > STEPS_MOST || s->live_depth > DEPTH_MOST)
        return ht_schema_fail_limit(s, "it takes too long to find out whether it has any value"), false;
    const uint32_t before = s->live_low, depth = s->live_depth++;
    s->live[node] = OPEN + depth;
    s->live_low = UINT32_MAX;
    const bool live = find_value(s, node);
    const bool depends = !live && s->live_low < depth;
    s->live[node] = live ? LIVE : depends ? UNKNOWN : DEAD;
    s->live_low = depends && s->live_low < before ? s->live_low : before;
    s->live_depth--;
    return live && !s->status;
}
