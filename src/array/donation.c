#include "array/donation.h"

/* Limit of the search. a[i] += x has a view and an operation or two between the array and the node that updates it. */
enum { MOST_NODES = 32 };

/* A node and its ancestors, as far as they are views or belong to this evaluation. */
typedef struct subgraph {
    const ht_array *node[MOST_NODES];
    int n;
    uint64_t visit;
} subgraph;

static bool add(subgraph *b, const ht_array *a) {
    if (a == HT_NONE || (a->visit != b->visit && !a->base)) return true; /* evaluated earlier */
    for (int i = 0; i < b->n; i++)
        if (b->node[i] == a) return true;
    if (b->n == MOST_NODES) return false;
    b->node[b->n++] = a;
    return true;
}

static bool collect(subgraph *b, const ht_array *node) {
    if (!add(b, node)) return false;
    for (int i = 0; i < b->n; i++) {
        const ht_array *a = b->node[i];
        if (a->base && !add(b, a->base)) return false;
        for (int k = 0; k < a->n_in; k++)
            if (!add(b, a->in[k])) return false;
    }
    return true;
}

static int32_t count_references(const ht_array *owner, const ht_array *a) {
    int32_t n = owner->base == a;
    for (int k = 0; k < owner->n_in; k++) n += owner->in[k] == a;
    return n;
}

static bool owns_all_references(const subgraph *b, const ht_array *a) {
    int32_t n = 0;
    for (int i = 0; i < b->n; i++) n += count_references(b->node[i], a);
    return n == atomic_load_explicit(&a->refs, memory_order_acquire);
}

bool ht_donation_check(const ht_array *evaluated, const ht_array *node, uint64_t visit) {
    subgraph b = {.visit = visit};
    if (!collect(&b, node) || !owns_all_references(&b, evaluated)) return false;
    /* Every node on a path from `evaluated` to `node` must be referenced by the subgraph alone: another owner of such a
     * node could still evaluate it, and read `evaluated`. */
    bool is_between[MOST_NODES] = {false}, more = true;
    while (more) {
        more = false;
        for (int i = 1; i < b.n; i++) {
            bool reaches = count_references(b.node[i], evaluated) > 0;
            for (int k = 1; k < b.n; k++) reaches |= is_between[k] && count_references(b.node[i], b.node[k]) > 0;
            if (!reaches || is_between[i]) continue;
            if (!owns_all_references(&b, b.node[i])) return false;
            is_between[i] = more = true;
        }
    }
    return true;
}
