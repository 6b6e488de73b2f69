/* User functions as graph nodes: custom derivatives, and gradient checkpointing by recomputation. */
#include "array/custom.h"

#include "array/differentiate.h"
#include "array/op.h"
#include "array/replay.h"
#include "array/user_function.h"

#include <hearth/ops.h>

#include <stdlib.h>
#include <string.h>

/* State of a call. The inputs of its CUSTOM node are the arguments [n_in], the results [n_out] and, for checkpoints,
 * the placeholders [n_in] from which the results were computed. */
struct ht_custom {
    _Atomic int refs;
    int n_in, n_out;
    bool recompute;
    ht_custom_vjp vjp;
};

ht_custom *ht_custom_retain(ht_custom *c) {
    if (c) atomic_fetch_add_explicit(&c->refs, 1, memory_order_relaxed);
    return c;
}

void ht_custom_release(ht_custom *c) {
    if (!c || atomic_fetch_sub_explicit(&c->refs, 1, memory_order_acq_rel) != 1) return;
    if (c->vjp.release) c->vjp.release(c->vjp.user);
    free(c);
}

int ht_custom_n_in(const ht_array *node) { return node->custom->n_in; }
int ht_custom_n_out(const ht_array *node) { return node->custom->n_out; }

int ht_custom_out_index(const ht_array *node) {
    int index;
    memcpy(&index, node->params, sizeof index);
    return index;
}

/* ---- the gradient ---- */

/* x, ordered after the evaluation of the gradients, so that recomputation does not use memory earlier. An evaluated x is
 * in no order: its node would only keep the gradients in memory. */
static ht_array *after(ht_scope *s, ht_array *x, ht_array *const *grad, int n) {
    if (ht_array_is_evaluated(x)) return ht_placeholder(s, x);
    ht_array **in = ht_array_list(s, n + 1);
    if (!in) return NULL;
    in[0] = x;
    memcpy(in + 1, grad, (size_t)n * sizeof(ht_array *));
    ht_array *late = ht_view_node(s, HT_OP_AFTER, in, n + 1, 0);
    free(in);
    return late;
}

static bool gradient_of_results_again(ht_scope *s, const ht_array *node, ht_array *const *grad, ht_array **grad_in) {
    const int n_in = node->custom->n_in, n_out = node->custom->n_out;
    ht_array *const *out = node->in + n_in, *const *placeholder = out + n_out;
    ht_array **late = ht_array_list(s, n_in + n_out), **again = late + n_in;
    bool ok = late != NULL;
    for (int i = 0; ok && i < n_in; i++) {
        late[i] = after(s, node->in[i], grad, n_out);
        ok = late[i] != NULL;
    }
    ok = ok && ht_recompute(s, placeholder, late, n_in, out, n_out, again);
    ok = ok && ht_backward(s, again, grad, n_out, late, n_in, grad_in);
    free(late);
    return ok;
}

/* Checks that every input has a gradient of its shape, and converts it to the input's dtype. */
static bool check_gradients(ht_scope *s, const ht_array *node, ht_array **grad_in) {
    char want[HT_SHAPE_TEXT], have[HT_SHAPE_TEXT];
    for (int i = 0; i < node->custom->n_in && !s->failed; i++) {
        const ht_array *x = node->in[i], *g = grad_in[i];
        if (!g)
            ht_scope_fail(s, HT_ERR_ARGUMENT, "a custom gradient, of input %d, is missing", i);
        else if (g != HT_NONE && !ht_same_shape(g, x))
            ht_scope_fail(s, HT_ERR_ARGUMENT, "a custom gradient, of input %d, is %s, expected %s", i,
                          ht_shape_text(g->shape, g->n_dims, have), ht_shape_text(x->shape, x->n_dims, want));
        else if (g != HT_NONE)
            grad_in[i] = ht_dtype_is_float(x->dtype) ? ht_astype(s, grad_in[i], x->dtype) : HT_NONE;
    }
    return !s->failed;
}

static bool gradient_of_the_user(ht_scope *s, const ht_array *node, ht_array *const *grad, ht_array **grad_in) {
    const ht_custom *c = node->custom;
    ht_scope *inner = ht_scope_child(s);
    if (!inner) return false;
    ht_graphs_kept++;
    bool ok = c->vjp.call(inner, node->in, c->n_in, node->in + c->n_in, grad, c->n_out, grad_in, c->vjp.user);
    ht_graphs_kept--;
    return ht_scope_give(s, inner, ok && check_gradients(inner, node, grad_in), grad_in, c->n_in);
}

bool ht_custom_backward(ht_scope *s, const ht_array *node, ht_array *const *grad_out, ht_array **grad_in) {
    const ht_custom *c = node->custom;
    ht_array **grad = ht_array_list(s, c->n_out);
    bool ok = grad != NULL;
    for (int i = 0; ok && i < c->n_out; i++) {
        const ht_array *y = node->in[c->n_in + i];
        grad[i] = grad_out[i] ? grad_out[i] : ht_zeros(s, y->dtype, y->shape, y->n_dims);
        ok = grad[i] != NULL;
    }
    if (ok && c->recompute)
        ok = gradient_of_results_again(s, node, grad, grad_in);
    else if (ok)
        ok = gradient_of_the_user(s, node, grad, grad_in);
    free(grad);
    return ok;
}

/* ---- the nodes ---- */

static bool show_results(ht_scope *s, ht_custom *c, ht_array *const *in, ht_array *const *placeholder, ht_array **out);

static void release_custom(void *args) { ht_custom_release(*(ht_custom *const *)args); }

/* Replays show_results; `in` has the arguments, the results, then the placeholders. */
static bool show_again(ht_scope *s, const void *args, ht_array *const *in, int n_in, ht_array **out) {
    ht_custom *c = *(ht_custom *const *)args;
    (void)n_in;
    for (int i = 0; i < c->n_out; i++) out[i] = in[c->n_in + i];
    return show_results(s, c, in, in + c->n_in + c->n_out, out);
}

/* Replaces every result by its CUSTOM_OUT view. */
static bool show_results(ht_scope *s, ht_custom *c, ht_array *const *in, ht_array *const *placeholder, ht_array **out) {
    const int n = c->n_in + c->n_out;
    ht_array **all = ht_array_list(s, n + c->n_in);
    if (!all) return false;
    memcpy(all, in, (size_t)c->n_in * sizeof(ht_array *));
    memcpy(all + c->n_in, out, (size_t)c->n_out * sizeof(ht_array *));
    memcpy(all + n, placeholder, (size_t)c->n_in * sizeof(ht_array *));
    if (ht_recording()) {
        ht_custom_retain(c);
        const ht_recorded_call call = {show_again, &c, sizeof c, release_custom};
        bool ok = ht_record_call(s, &call, all, n + c->n_in, out, c->n_out);
        free(all);
        return ok;
    }
    ht_array *node = ht_view_node(s, HT_OP_CUSTOM, all, c->recompute ? n + c->n_in : n, 0);
    free(all);
    if (!node) return false;
    node->custom = ht_custom_retain(c);
    for (int i = 0; i < c->n_out; i++) {
        out[i] = ht_view_node(s, HT_OP_CUSTOM_OUT, (ht_array *[]){node, out[i]}, 2, 1);
        if (!out[i]) return false;
        memcpy(out[i]->params, &i, sizeof i);
    }
    return true;
}

static ht_custom *new_custom(ht_scope *s, const ht_custom_vjp *vjp) {
    ht_custom *c = calloc(1, sizeof *c);
    if (!c) {
        ht_scope_fail(s, HT_ERR_MEMORY, "out of memory: a function with a gradient");
        return NULL;
    }
    c->refs = 1;
    c->recompute = vjp == NULL;
    if (vjp) c->vjp = *vjp;
    return c;
}

/* Calls f on placeholders and wraps its results in a CUSTOM node with the reverse rule of `c`. Owns the caller's
 * reference to `c`. */
static int call_as_node(ht_scope *s, const ht_function *f, ht_custom *c, ht_array *const *in, int n_in, ht_array **out,
                        int max_out) {
    for (int i = 0; i < max_out; i++) out[i] = NULL;
    ht_scope *inner = ht_scope_child(s);
    if (!inner) {
        ht_custom_release(c);
        return -1;
    }
    ht_array **placeholder = ht_array_list(inner, n_in);
    bool ok = placeholder != NULL;
    for (int i = 0; ok && i < n_in; i++) {
        placeholder[i] = ht_placeholder(inner, in[i]);
        ok = placeholder[i] && placeholder[i] != HT_NONE;
    }
    if (!ok && !inner->failed && !s->failed)
        ht_scope_fail(inner, HT_ERR_ARGUMENT, "an argument of a function is missing");
    int n = ok ? ht_user_function_call(inner, f, placeholder, n_in, out, max_out) : -1;
    c->n_in = n_in;
    c->n_out = n > 0 ? n : 0;
    ok = n >= 0 && (n == 0 || n_in == 0 || show_results(inner, c, in, placeholder, out));
    free(placeholder);
    const int n_out = c->n_out;
    ht_custom_release(c);
    if (ht_scope_give(s, inner, ok, out, n_out)) return n;
    for (int i = 0; i < max_out; i++) out[i] = NULL;
    return -1;
}

int ht_custom_function(ht_scope *s, const ht_function *f, const ht_custom_vjp *vjp, ht_array *const *in, int n_in,
                       ht_array **out, int max_out) {
    ht_custom *c = new_custom(s, vjp);
    if (!c && vjp->release) vjp->release(vjp->user);
    return c ? call_as_node(s, f, c, in, n_in, out, max_out) : -1;
}

int ht_checkpoint(ht_scope *s, const ht_function *f, ht_array *const *in, int n_in, ht_array **out, int max_out) {
    ht_custom *c = new_custom(s, NULL);
    return c ? call_as_node(s, f, c, in, n_in, out, max_out) : -1;
}

ht_array *ht_stop_gradient(ht_scope *s, ht_array *x) { return ht_view_node(s, HT_OP_STOP_GRADIENT, &x, 1, 0); }
