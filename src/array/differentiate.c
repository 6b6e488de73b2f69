#include "array/differentiate.h"

#include "array/custom.h"
#include "array/op.h"
#include "array/replay.h"
#include "array/tape.h"

#include <hearth/ops.h>

#include <stdlib.h>
#include <string.h>

ht_array *ht_placeholder(ht_scope *s, ht_array *x) { return ht_view_node(s, HT_OP_IDENTITY, &x, 1, 0); }

ht_array **ht_array_list(ht_scope *s, int n) {
    ht_array **list = calloc((size_t)n + 1, sizeof(ht_array *));
    if (!list) ht_scope_fail(s, HT_ERR_MEMORY, "out of memory: a list of %d arrays", n);
    return list;
}

/* ---- reverse ---- */

static bool accumulate(ht_scope *s, ht_array **sum, ht_array *more) {
    if (!more) return false;
    if (more == HT_NONE) return true;
    *sum = *sum ? ht_add(s, *sum, more) : more;
    return *sum != NULL;
}

/* Whether input i of a step depends on a source of the tape, so that its gradient is needed. */
static bool depends(const ht_tape_step *step, int i) { return i < step->n_in && step->in[i] >= 0; }

/* Applies the reverse rule of a step to the gradient collected in its mark. */
static bool apply_rule(ht_scope *s, const ht_tape_step *step, ht_array **grad_in) {
    const ht_array *node = step->node;
    if (node->op == HT_OP_CUSTOM) return ht_custom_backward(s, node, step->mark, grad_in);
    if (node->op == HT_OP_CUSTOM_OUT) {
        grad_in[0] = step->mark[0];
        return true;
    }
    ht_vjp_fn *rule = ht_op_info_of(node->op)->vjp;
    if (!rule) return ht_scope_fail(s, HT_ERR_UNSUPPORTED, "%s: has no gradient", ht_op_name(node->op));
    for (int i = 0; i < node->n_in; i++) grad_in[i] = depends(step, i) ? HT_NONE : NULL;
    rule(s, node, step->mark[0], grad_in);
    bool ok = true;
    for (int i = 0; i < node->n_in; i++) ok = ok && (grad_in[i] || !depends(step, i));
    return ok;
}

static bool any_mark(const ht_tape_step *step) {
    for (int i = 0; i < step->n_marks; i++)
        if (step->mark[i]) return true;
    return false;
}

static bool back_through(ht_scope *s, ht_tape *t, const ht_tape_step *step) {
    ht_array *few[HT_INLINE_INPUTS], **grad_in = few;
    if (step->node->n_in > HT_INLINE_INPUTS && !(grad_in = ht_array_list(s, step->node->n_in))) return false;
    for (int i = 0; i < step->node->n_in; i++) grad_in[i] = HT_NONE;
    bool ok = apply_rule(s, step, grad_in);
    int which = step->node->op == HT_OP_CUSTOM_OUT ? ht_custom_out_index(step->node) : 0;
    for (int i = 0; ok && i < step->n_in; i++)
        if (step->in[i] >= 0) ok = accumulate(s, &t->step[step->in[i]].mark[which], grad_in[i]);
    if (grad_in != few) free(grad_in);
    return ok;
}

/* ---- recording: a derivative is one recorded call ---- */

/* The operands of a recorded derivative: n arrays, a direction for each, and n_others arrays. */
typedef struct derivative_args {
    int n, n_others;
} derivative_args;

static bool same_shapes(ht_scope *s, ht_array *const *of, ht_array *const *along, int n) {
    char have[HT_SHAPE_TEXT], want[HT_SHAPE_TEXT];
    for (int i = 0; i < n; i++) {
        if (ht_same_shape(of[i], along[i])) continue;
        return ht_scope_fail(s, HT_ERR_ARGUMENT,
                             "a derivative is taken along %s of what is %s now; the function gave a size as a number",
                             ht_shape_text(along[i]->shape, along[i]->n_dims, have),
                             ht_shape_text(of[i]->shape, of[i]->n_dims, want));
    }
    return true;
}

static bool backward_again(ht_scope *s, const void *args, ht_array *const *in, int n_in, ht_array **grad) {
    const derivative_args *a = args;
    (void)n_in;
    return same_shapes(s, in, in + a->n, a->n) && ht_backward(s, in, in + a->n, a->n, in + 2 * a->n, a->n_others, grad);
}

static bool forward_again(ht_scope *s, const void *args, ht_array *const *in, int n_in, ht_array **tangent_out) {
    const derivative_args *a = args;
    (void)n_in;
    return same_shapes(s, in, in + a->n, a->n) &&
           ht_forward(s, in, in + a->n, a->n, in + 2 * a->n, a->n_others, tangent_out);
}

/* Records a derivative; `made` has one result for each of `others`. */
static bool record_derivative(ht_scope *s, ht_replay_fn *again, derivative_args a, ht_array *const *of,
                              ht_array *const *along, ht_array *const *others, ht_array **made) {
    ht_array **in = ht_array_list(s, 2 * a.n + a.n_others);
    if (!in) return false;
    memcpy(in, of, (size_t)a.n * sizeof *in);
    memcpy(in + a.n, along, (size_t)a.n * sizeof *in);
    memcpy(in + 2 * a.n, others, (size_t)a.n_others * sizeof *in);
    bool ok =
        ht_record_call(s, &(ht_recorded_call){again, &a, sizeof a, NULL}, in, 2 * a.n + a.n_others, made, a.n_others);
    free(in);
    return ok;
}

bool ht_backward(ht_scope *s, ht_array *const *out, ht_array *const *grad_out, int n_out, ht_array *const *wrt,
                 int n_wrt, ht_array **grad) {
    for (int i = 0; i < n_wrt; i++) grad[i] = NULL;
    for (int i = 0; i < n_out; i++)
        if (!out[i]) return false;
    if (ht_recording())
        return record_derivative(s, backward_again, (derivative_args){n_out, n_wrt}, out, grad_out, wrt, grad);
    ht_tape t;
    if (!ht_tape_make(s, HT_EDGES_DIFFERENTIABLE, wrt, n_wrt, out, n_out, &t)) return false;
    bool ok = true;
    for (int i = 0; ok && i < n_out; i++) {
        ht_tape_step *end = ht_tape_at(&t, out[i]);
        if (end) ok = accumulate(s, &end->mark[0], grad_out[i]);
    }
    for (int64_t i = t.n - 1; ok && i >= 0; i--)
        if (t.step[i].n_in && any_mark(&t.step[i])) ok = back_through(s, &t, &t.step[i]);
    for (int i = 0; ok && i < n_wrt; i++) {
        ht_tape_step *beginning = ht_tape_at(&t, wrt[i]);
        grad[i] = beginning && beginning->mark[0] ? beginning->mark[0] : HT_NONE;
    }
    ht_tape_free(&t);
    return ok;
}

/* ---- forward mode: the reverse rule is linear in its gradient; its transpose is the forward rule ---- */

/* Computes the tangents of a step's outputs from those of its inputs (NULL or HT_NONE: zero). */
static bool forward_through(ht_scope *s, const ht_tape *t, ht_tape_step *step) {
    const ht_array *node = step->node;
    int n_in = node->n_in, n = 0;
    if (node->op == HT_OP_CUSTOM_OUT) {
        step->mark[0] = t->step[step->in[0]].mark[ht_custom_out_index(node)];
        return true;
    }
    ht_array **list = ht_array_list(s, 3 * n_in + 2 * step->n_marks);
    if (!list) return false;
    ht_array **pull = list, **end = list + n_in, **tangent = end + n_in, **cotangent = tangent + n_in;
    bool ok = true;
    for (int i = 0; ok && i < step->n_marks; i++) {
        const ht_array *y = node->op == HT_OP_CUSTOM ? node->in[ht_custom_n_in(node) + i] : node;
        cotangent[i] = ht_zeros(s, y->dtype, y->shape, y->n_dims);
        ok = cotangent[i] != NULL;
    }
    for (int i = 0; i < n_in; i++) pull[i] = HT_NONE;
    ht_tape_step reversed = *step;
    reversed.mark = cotangent;
    ok = ok && apply_rule(s, &reversed, pull);
    for (int i = 0; ok && i < step->n_in; i++) {
        ht_array *moves = step->in[i] >= 0 ? t->step[step->in[i]].mark[0] : NULL;
        if (!moves || moves == HT_NONE || pull[i] == HT_NONE) continue;
        end[n] = pull[i];
        tangent[n++] = moves;
    }
    ok = ok && ht_backward(s, end, tangent, n, cotangent, step->n_marks, step->mark);
    free(list);
    return ok;
}

bool ht_forward(ht_scope *s, ht_array *const *wrt, ht_array *const *tangent, int n_wrt, ht_array *const *out, int n_out,
                ht_array **tangent_out) {
    for (int i = 0; i < n_out; i++) tangent_out[i] = NULL;
    if (ht_recording())
        return record_derivative(s, forward_again, (derivative_args){n_wrt, n_out}, wrt, tangent, out, tangent_out);
    ht_tape t;
    if (!ht_tape_make(s, HT_EDGES_DIFFERENTIABLE, wrt, n_wrt, out, n_out, &t)) return false;
    bool ok = true;
    for (int i = 0; i < n_wrt; i++) {
        ht_tape_step *beginning = ht_tape_at(&t, wrt[i]);
        if (beginning) beginning->mark[0] = tangent[i];
    }
    for (int64_t i = 0; ok && i < t.n; i++)
        if (t.step[i].n_in) ok = forward_through(s, &t, &t.step[i]);
    for (int i = 0; ok && i < n_out; i++) {
        ht_tape_step *end = ht_tape_at(&t, out[i]);
        tangent_out[i] = end && end->mark[0] ? end->mark[0] : HT_NONE;
    }
    ht_tape_free(&t);
    return ok;
}

/* ---- recomputation ---- */

/* Copy of a node on the copies of its inputs. */
static ht_array *copy_on(ht_scope *s, const ht_tape *t, const ht_tape_step *step) {
    const ht_array *node = step->node;
    ht_array **in = ht_array_list(s, node->n_in);
    if (!in) return NULL;
    for (int i = 0; i < node->n_in; i++) {
        const ht_tape_step *from = ht_tape_at(t, node->in[i]);
        in[i] = from ? from->mark[0] : node->in[i];
    }
    ht_array *a = ht_array_like(s, node, in);
    free(in);
    return a;
}

bool ht_recompute(ht_scope *s, ht_array *const *from, ht_array *const *to, int n_from, ht_array *const *out, int n_out,
                  ht_array **again) {
    for (int i = 0; i < n_out; i++) again[i] = NULL;
    ht_tape t;
    if (!ht_tape_make(s, HT_EDGES_ALL, from, n_from, out, n_out, &t)) return false;
    bool ok = true;
    for (int i = 0; i < n_from; i++) ht_tape_at(&t, from[i])->mark[0] = to[i];
    for (int64_t i = 0; ok && i < t.n; i++) {
        if (t.step[i].mark[0]) continue;
        t.step[i].mark[0] = copy_on(s, &t, &t.step[i]);
        ok = t.step[i].mark[0] != NULL;
    }
    for (int i = 0; ok && i < n_out; i++) {
        ht_tape_step *end = ht_tape_at(&t, out[i]);
        again[i] = end ? end->mark[0] : out[i];
    }
    ht_tape_free(&t);
    return ok;
}

/* ---- rules by composition ---- */

/* Placeholders of operands, some of which may be equal or computed from others: derivatives are partial. NULL on failure;
 * the caller frees the list. */
static ht_array **placeholders(ht_scope *s, ht_array *const *in, int n) {
    ht_array **list = ht_array_list(s, n);
    for (int i = 0; list && i < n; i++) {
        list[i] = in[i] == HT_NONE ? HT_NONE : ht_placeholder(s, in[i]);
        if (list[i]) continue;
        free(list);
        return NULL;
    }
    return list;
}

void ht_vjp_by_composition(ht_scope *s, ht_compose_fn *compose, const ht_array *node, ht_array *grad,
                           ht_array **grad_in) {
    ht_array **in = placeholders(s, node->in, node->n_in);
    ht_array *y = in ? compose(s, node->params, in) : NULL;
    (void)ht_backward(s, &y, &grad, 1, in, node->n_in, grad_in);
    free(in);
}

/* grad[0 .. n) of in[0 .. n), flattened and concatenated; HT_NONE is zeros. */
static ht_array *joined(ht_scope *s, ht_array *const *in, ht_array **grad, int n) {
    int there = 0;
    for (int i = 0; i < n; i++) {
        if (in[i] == HT_NONE) continue;
        if (grad[i] == HT_NONE) grad[i] = ht_zeros(s, in[i]->dtype, in[i]->shape, in[i]->n_dims);
        grad[there++] = ht_reshape(s, grad[i], (int64_t[]){ht_array_size(in[i])}, 1);
    }
    return ht_concatenate(s, grad, there, 0);
}

ht_array *ht_gradients_by_composition(ht_scope *s, ht_compose_fn *compose, const void *params, ht_array *const *in,
                                      int n_in, int n_wrt, ht_array *grad) {
    ht_array **at = placeholders(s, in, n_in), **grad_in = ht_array_list(s, n_wrt);
    ht_array *y = at && grad_in ? compose(s, params, at) : NULL;
    ht_array *flat = y && ht_backward(s, &y, &grad, 1, at, n_wrt, grad_in) ? joined(s, at, grad_in, n_wrt) : NULL;
    free(at);
    free(grad_in);
    return flat;
}
