#include "array/donation.h"

/* A change of a window, a[i] += x, has a view and an operation or two between the array and the node that puts them back. */
enum { MOST_NODES = 32 };

/* `node` and what it was computed from: nodes of this evaluation, and views. */
typedef struct beneath {
    const ht_array *node[MOST_NODES];
    int n;
    uint64_t visit;
} beneath;

static bool add(beneath *b, const ht_array *a) {
    if (a == HT_NONE || (a->visit != b->visit && !a->base)) return true; /* evaluated before */
    for (int i = 0; i < b->n; i++)
        if (b->node[i] == a) return true;
    if (b->n == MOST_NODES) return false;
    b->node[b->n++] = a;
    return true;
}

static bool collect(beneath *b, const ht_array *node) {
    if (!add(b, node)) return false;
    for (int i = 0; i < b->n; i++) {
        const ht_array *a = b->node[i];
        if (a->base && !add(b, a->base)) return false;
        for (int k = 0; k < a->n_in; k++)
            if (!add(b, a->in[k])) return false;
    }
    return true;
}

static int32_t holds_of(const ht_array *holder, const ht_array *a) {
    int32_t n = holder->base == a;
    for (int k = 0; k < holder->n_in; k++) n += holder->in[k] == a;
    return n;
}

static bool has_all_holds(const beneath *b, const ht_array *a) {
    int32_t n = 0;
    for (int i = 0; i < b->n; i++) n += holds_of(b->node[i], a);
    return n == atomic_load_explicit(&a->refs, memory_order_acquire);
}

bool ht_donation_check(const ht_array *evaluated, const ht_array *node, uint64_t visit) {
    beneath b = {.visit = visit};
    if (!collect(&b, node) || !has_all_holds(&b, evaluated)) return false;
    /* Upwards from it to the node: whoever holds another one on this way could ask for it, or compute it, later. */
    bool leads[MOST_NODES] = {false}, more = true;
    while (more) {
        more = false;
        for (int i = 1; i < b.n; i++) {
            bool reaches = holds_of(b.node[i], evaluated) > 0;
            for (int k = 1; k < b.n; k++) reaches |= leads[k] && holds_of(b.node[i], b.node[k]) > 0;
            if (!reaches || leads[i]) continue;
            if (!has_all_holds(&b, b.node[i])) return false;
            leads[i] = more = true;
        }
    }
    return true;
}
