#include "array/tape.h"

#include "array/custom.h"
#include "array/topological_order.h"
#include "base/grow.h"

#include <stdlib.h>
#include <string.h>

typedef struct stack {
    ht_array **node;
    size_t n, capacity;
} stack;

/* Number of inputs that the tape follows. */
static int n_followed(const ht_tape *t, const ht_array *a) {
    if (t->edges == HT_EDGES_ALL) return a->n_in;
    switch (a->op) {
    case HT_OP_STOP_GRADIENT: return 0;
    case HT_OP_AFTER:
    case HT_OP_CUSTOM_OUT: return 1;
    case HT_OP_CUSTOM: return ht_custom_n_in(a);
    default: return a->n_in;
    }
}

enum { NO_STEP = -1, OPEN = -2, UNSEEN = -3 };

static int64_t seen_as(const ht_tape *t, const ht_array *a) {
    if (a == HT_NONE) return NO_STEP;
    int64_t at = ht_node_map_get(&t->index, a);
    return at == -1 ? UNSEEN : at == INT64_MAX ? NO_STEP : at == INT64_MAX - 1 ? OPEN : at;
}
static bool set_seen(ht_tape *t, const ht_array *a, int64_t as) {
    return ht_node_map_set(&t->index, a, as == NO_STEP ? INT64_MAX : as == OPEN ? INT64_MAX - 1 : as);
}

/* Appends the step of `a`, after those of its inputs. */
static bool append(ht_tape *t, ht_array *a, int n_in) {
    if (!HT_GROW_ONE(t->step, t->n)) return false;
    ht_tape_step step = {.node = a, .n_in = n_in, .n_marks = a->op == HT_OP_CUSTOM ? ht_custom_n_out(a) : 1};
    step.in = malloc((size_t)(n_in + 1) * sizeof *step.in);
    step.mark = calloc((size_t)step.n_marks, sizeof(ht_array *));
    if (!step.in || !step.mark || !set_seen(t, a, t->n)) {
        free(step.in);
        free(step.mark);
        return false;
    }
    for (int i = 0; i < n_in; i++) step.in[i] = seen_as(t, a->in[i]);
    t->step[t->n++] = step;
    return true;
}

static bool close_node(ht_tape *t, ht_array *a) {
    int n_in = n_followed(t, a);
    for (int i = 0; i < n_in; i++)
        if (seen_as(t, a->in[i]) >= 0) return append(t, a, n_in);
    return set_seen(t, a, NO_STEP);
}

/* Depth-first traversal: when a node is on top of the stack again, all its inputs have been visited. */
static bool traverse(ht_tape *t, stack *open) {
    while (open->n) {
        ht_array *a = open->node[open->n - 1];
        int64_t seen = seen_as(t, a);
        if (seen == UNSEEN) {
            int n_in = a->settled ? 0 : n_followed(t, a);
            if (!set_seen(t, a, n_in ? OPEN : NO_STEP)) return false;
            for (int i = 0; i < n_in; i++)
                if (seen_as(t, a->in[i]) == UNSEEN && !ht_list_push(&open->node, &open->n, &open->capacity, a->in[i]))
                    return false;
            continue;
        }
        open->n--;
        if (seen == OPEN && !close_node(t, a)) return false;
    }
    return true;
}

bool ht_tape_make(ht_scope *s, ht_tape_edges edges, ht_array *const *from, int n_from, ht_array *const *to, int n_to,
                  ht_tape *out) {
    *out = (ht_tape){.edges = edges};
    stack open = {0};
    bool ok = true;
    for (int i = 0; ok && i < n_from; i++)
        if (from[i] != HT_NONE && seen_as(out, from[i]) == UNSEEN) ok = append(out, from[i], 0);
    for (int i = 0; ok && i < n_to; i++)
        if (seen_as(out, to[i]) == UNSEEN)
            ok = ht_list_push(&open.node, &open.n, &open.capacity, to[i]) && traverse(out, &open);
    free(open.node);
    if (ok) return true;
    ht_tape_free(out);
    return ht_scope_fail(s, HT_ERR_MEMORY, "out of memory: the tape of a derivative");
}

int64_t ht_tape_index(const ht_tape *t, const ht_array *node) {
    int64_t at = seen_as(t, node);
    return at >= 0 ? at : -1;
}

ht_tape_step *ht_tape_at(const ht_tape *t, const ht_array *node) {
    int64_t at = seen_as(t, node);
    return at >= 0 ? &t->step[at] : NULL;
}

void ht_tape_free(ht_tape *t) {
    for (int64_t i = 0; i < t->n; i++) {
        free(t->step[i].in);
        free(t->step[i].mark);
    }
    free(t->step);
    ht_node_map_free(&t->index);
    *t = (ht_tape){0};
}
