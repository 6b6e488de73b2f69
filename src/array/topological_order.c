#include "array/topological_order.h"

#include "array/op.h"
#include "base/error.h"
#include "base/grow.h"

#include <stdlib.h>

bool ht_list_push(ht_array ***list, size_t *n, size_t *capacity, ht_array *a) {
    if (!HT_GROW(*list, *capacity, *n + 1)) return false;
    (*list)[(*n)++] = a;
    return true;
}

/* A node whose inputs have been pushed stays on the stack with a tag in its pointer. When it is popped again, all its
 * inputs are in the order. */
static ht_array *tagged(ht_array *a) { return (ht_array *)((uintptr_t)a | 1); }
static bool is_tagged(ht_array *a) { return ((uintptr_t)a & 1) != 0; }
static ht_array *untagged(ht_array *a) { return (ht_array *)((uintptr_t)a & ~(uintptr_t)1); }

static ht_state state_of(ht_array *a) { return (ht_state)atomic_load_explicit(&a->state, memory_order_acquire); }

static ht_status out_of_memory(ht_worklist *w, ht_error *err) {
    return ht_fail_memory(err, (w->n + w->n_stack) * sizeof(void *), "the order of a graph");
}

static ht_status push_need(ht_worklist *w, ht_array *a, ht_error *err) {
    if (a == HT_NONE || state_of(ht_storage(a)) == HT_READY) return HT_OK;
    return ht_list_push(&w->stack, &w->n_stack, &w->stack_capacity, a) ? HT_OK : out_of_memory(w, err);
}

/* Pushes the inputs of a node, and the storage of a view. The parents of a view count as users of its storage. */
static ht_status push_inputs(ht_worklist *w, ht_array *a, ht_error *err) {
    ht_status st = a->base ? push_need(w, a->base, err) : HT_OK;
    for (int i = 0; i < a->n_in && st == HT_OK; i++) st = push_need(w, a->in[i], err);
    return st;
}

static ht_status failed_before(const ht_array *a, ht_error *err) {
    if (!a->failure) return ht_fail(err, HT_ERR_MEMORY, "%s failed before", ht_op_name(a->op));
    if (err) *err = *a->failure;
    return a->failure->status;
}

static uint64_t new_visit(void) {
    static _Atomic uint64_t visits;
    return atomic_fetch_add(&visits, 1) + 1;
}

/* Depth-first order; the last array, and the last input of a node, come first. */
static ht_status order_depth_first(ht_worklist *w, ht_array *const *arrays, int n, uint64_t visit, ht_error *err) {
    w->n = w->n_stack = 0;
    ht_status st = HT_OK;
    for (int i = 0; i < n && st == HT_OK; i++) st = push_need(w, arrays[i], err);
    while (st == HT_OK && w->n_stack) {
        ht_array *a = w->stack[--w->n_stack];
        if (is_tagged(a)) {
            if (!ht_list_push(&w->order, &w->n, &w->capacity, untagged(a))) st = out_of_memory(w, err);
            continue;
        }
        if (a->visit == visit) continue;
        a->visit = visit;
        a->graph_uses = a->kernel_uses = 0;
        a->keep = false;
        if (state_of(a) == HT_FAILED)
            st = failed_before(a, err);
        else if (!ht_list_push(&w->stack, &w->n_stack, &w->stack_capacity, tagged(a)))
            st = out_of_memory(w, err);
        else
            st = push_inputs(w, a, err);
    }
    return st;
}

/* ---- order of several results ---- */

typedef struct ranked {
    ht_array *array;
    int32_t depth;
    int index;
} ranked;

/* Sets `slot` of every node to its depth: the length of the longest path to it. */
static void find_depths(ht_worklist *w, uint64_t visit) {
    for (size_t i = 0; i < w->n; i++) {
        ht_array *a = w->order[i];
        a->slot = 0;
        for (int k = 0; k < a->n_in; k++)
            if (a->in[k] != HT_NONE && a->in[k]->visit == visit && a->in[k]->slot >= a->slot)
                a->slot = a->in[k]->slot + 1;
    }
}

static int deepest_first(const void *a, const void *b) {
    const ranked *x = a, *y = b;
    if (x->depth != y->depth) return x->depth > y->depth ? -1 : 1;
    return x->index < y->index ? -1 : 1;
}

/* Orders the results by depth, shallow ones first, so that intermediate memory is released early: the gradients of a
 * network's last layers are computed first, in whatever order they are requested. */
static ht_status order_shallow_first(ht_worklist *w, ht_array *const *arrays, int n, uint64_t *visit, ht_error *err) {
    find_depths(w, *visit);
    ranked *rank = malloc((size_t)n * sizeof *rank);
    ht_array **sorted = malloc((size_t)n * sizeof *sorted);
    if (!rank || !sorted) {
        free(rank);
        free(sorted);
        return out_of_memory(w, err);
    }
    for (int i = 0; i < n; i++) {
        bool computed = arrays[i] == HT_NONE || arrays[i]->visit != *visit;
        rank[i] = (ranked){arrays[i], computed ? -1 : arrays[i]->slot, i};
    }
    qsort(rank, (size_t)n, sizeof *rank, deepest_first);
    bool other = false;
    for (int i = 0; i < n; i++) {
        sorted[i] = rank[i].array;
        other |= rank[i].index != i;
    }
    ht_status st = HT_OK;
    if (other) {
        *visit = new_visit();
        st = order_depth_first(w, sorted, n, *visit, err);
    }
    free(rank);
    free(sorted);
    return st;
}

ht_status ht_topological_order(ht_worklist *w, ht_array *const *arrays, int n, uint64_t *visit, ht_error *err) {
    *visit = new_visit();
    ht_status st = order_depth_first(w, arrays, n, *visit, err);
    return st == HT_OK && n > 1 && w->n > (size_t)n ? order_shallow_first(w, arrays, n, visit, err) : st;
}

/* ---- uses ---- */

static void count_use(ht_array *a, uint64_t visit, bool by_kernel) {
    if (a == HT_NONE || a->visit != visit) return;
    a->graph_uses++;
    if (by_kernel) ht_storage(a)->kernel_uses++;
}

/* True when the user or a graph outside this traversal refers to `a`. The reference count is read before the scope, as
 * a scope clears a->scope before it releases its reference. */
static bool held_outside(ht_array *a) {
    int32_t graph = atomic_load_explicit(&a->graph_refs, memory_order_relaxed);
    int32_t all = atomic_load_explicit(&a->refs, memory_order_acquire);
    int32_t scopes = atomic_load_explicit(&a->scope, memory_order_relaxed) ? 1 : 0;
    return graph > a->graph_uses || all - graph > scopes;
}

void ht_count_uses(const ht_worklist *w, uint64_t visit, ht_array *const *arrays, int n) {
    for (size_t i = 0; i < w->n; i++) {
        const ht_array *a = w->order[i];
        for (int k = 0; k < a->n_in; k++) count_use(a->in[k], visit, !a->base);
        if (a->base) count_use(a->base, visit, false);
    }
    for (size_t i = 0; i < w->n; i++)
        if (held_outside(w->order[i])) ht_storage(w->order[i])->keep = true;
    for (int i = 0; i < n; i++)
        if (arrays[i] != HT_NONE) ht_storage(arrays[i])->keep = true;
}

void ht_worklist_free(ht_worklist *w) {
    free(w->order);
    free(w->stack);
    *w = (ht_worklist){0};
}
