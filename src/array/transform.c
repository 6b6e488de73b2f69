/* Derivatives of user functions: traces the function on placeholders of its arguments and differentiates the trace. */
#include "array/differentiate.h"
#include "array/op.h"
#include "array/user_function.h"
#include "base/dtype.h"

#include <hearth/ops.h>

#include <stdlib.h>
#include <string.h>

static void clear(ht_array **arrays, int n) {
    for (int i = 0; arrays && i < n; i++) arrays[i] = NULL;
}

/* Arguments of a trace: placeholders for in[which[i]], or for all without `which`; other arguments are passed as they
 * are. */
typedef struct arguments {
    ht_array **all, **wrt;
    int n_wrt;
} arguments;

static bool may_move(ht_scope *s, const ht_array *x, int i) {
    if (x && x != HT_NONE && ht_dtype_is_float(x->dtype)) return true;
    return ht_scope_fail(s, HT_ERR_ARGUMENT, "argument %d of the function is %s, a derivative needs floating point", i,
                         x && x != HT_NONE ? ht_dtype_name(x->dtype) : "missing");
}

static bool stand_for(ht_scope *inner, ht_array *const *in, int n_in, const int *which, int n_wrt, arguments *a) {
    *a = (arguments){ht_array_list(inner, n_in), ht_array_list(inner, n_wrt), n_wrt};
    if (!a->all || !a->wrt) return false;
    memcpy(a->all, in, (size_t)n_in * sizeof(ht_array *));
    for (int i = 0; i < n_wrt; i++) {
        int at = which ? which[i] : i;
        if (at < 0 || at >= n_in)
            return ht_scope_fail(inner, HT_ERR_ARGUMENT, "there is no argument %d among the %d of the function", at,
                                 n_in);
        if (!may_move(inner, in[at], at)) return false;
        if (a->all[at] == in[at]) a->all[at] = ht_placeholder(inner, in[at]);
        a->wrt[i] = a->all[at];
        if (!a->wrt[i]) return false;
    }
    return true;
}

static void free_arguments(arguments *a) {
    free(a->all);
    free(a->wrt);
}

/* Replaces absent derivatives, HT_NONE, by zeros. */
static bool fill_zeros(ht_scope *s, ht_array **derivative, ht_array *const *like, int n) {
    for (int i = 0; i < n; i++) {
        if (derivative[i] == HT_NONE) derivative[i] = ht_zeros_like(s, like[i]);
        if (!derivative[i]) return false;
    }
    return true;
}

/* Checks that given[i], a gradient or tangent, has the shape of of[i], and converts it to its dtype. */
static bool check_direction(ht_scope *s, const char *what, ht_array *const *of, ht_array *const *given, int n,
                            ht_array **out) {
    char want[HT_SHAPE_TEXT], have[HT_SHAPE_TEXT];
    for (int i = 0; i < n; i++) {
        if (!given[i] || given[i] == HT_NONE || !ht_same_shape(given[i], of[i])) {
            bool missing = !given[i] || given[i] == HT_NONE;
            return ht_scope_fail(s, HT_ERR_ARGUMENT, "%s %d is %s, expected %s", what, i,
                                 missing ? "missing" : ht_shape_text(given[i]->shape, given[i]->n_dims, have),
                                 ht_shape_text(of[i]->shape, of[i]->n_dims, want));
        }
        out[i] = ht_astype(s, given[i], of[i]->dtype);
        if (!out[i]) return false;
    }
    return true;
}

/* Moves both lists of results to the caller's scope; on failure none. */
static bool give_both(ht_scope *s, ht_scope *inner, bool ok, ht_array **a, int n_a, ht_array **b, int n_b) {
    for (int i = 0; ok && i < n_a; i++) {
        a[i] = ht_scope_move(s, inner, a[i]);
        ok = a[i] != NULL;
    }
    ok = ht_scope_give(s, inner, ok && !s->failed, b, n_b);
    if (!ok) clear(a, n_a);
    return ok;
}

bool ht_vjp(ht_scope *s, const ht_function *f, ht_array *const *in, int n_in, ht_array *const *grad_out, int n_out,
            ht_array **out, ht_array **grad_in) {
    clear(out, n_out);
    clear(grad_in, n_in);
    ht_scope *inner = ht_scope_child(s);
    if (!inner) return false;
    arguments a;
    ht_array **made = ht_array_list(inner, 2 * n_out);
    bool ok = stand_for(inner, in, n_in, NULL, n_in, &a) && made;
    int n = ok ? ht_user_function_call(inner, f, a.all, n_in, made, n_out) : -1;
    if (n >= 0 && n != n_out)
        ht_scope_fail(inner, HT_ERR_ARGUMENT, "the function gave %d arrays, gradients are given for %d", n, n_out);
    ok = n == n_out && check_direction(inner, "the gradient of output", made, grad_out, n, made + n_out) &&
         ht_backward(inner, made, made + n_out, n, a.wrt, n_in, grad_in) && fill_zeros(inner, grad_in, a.wrt, n_in);
    for (int i = 0; ok && out && i < n_out; i++) out[i] = made[i];
    ok = give_both(s, inner, ok, out, out ? n_out : 0, grad_in, n_in);
    free(made);
    free_arguments(&a);
    return ok;
}

int ht_jvp(ht_scope *s, const ht_function *f, ht_array *const *in, ht_array *const *tangent_in, int n_in,
           ht_array **out, ht_array **tangent_out, int max_out) {
    clear(out, max_out);
    clear(tangent_out, max_out);
    ht_scope *inner = ht_scope_child(s);
    if (!inner) return -1;
    arguments a;
    ht_array **tangent = ht_array_list(inner, n_in);
    bool ok = stand_for(inner, in, n_in, NULL, n_in, &a) && tangent &&
              check_direction(inner, "the tangent of argument", a.wrt, tangent_in, n_in, tangent);
    int n = ok ? ht_user_function_call(inner, f, a.all, n_in, out, max_out) : -1;
    ok = n >= 0 && ht_forward(inner, a.wrt, tangent, n_in, out, n, tangent_out) &&
         fill_zeros(inner, tangent_out, out, n);
    ok = give_both(s, inner, ok, out, n > 0 ? n : 0, tangent_out, n > 0 ? n : 0);
    if (!ok) clear(out, max_out);
    free(tangent);
    free_arguments(&a);
    return ok ? n : -1;
}

static ht_array *one_for(ht_scope *s, const ht_array *value) {
    char text[HT_SHAPE_TEXT];
    if (ht_array_size(value) != 1 || !ht_dtype_is_float(value->dtype))
        return ht_scope_fail(s, HT_ERR_ARGUMENT,
                             "a gradient is that of one floating-point number; the function's first output is %s of %s",
                             ht_shape_text(value->shape, value->n_dims, text), ht_dtype_name(value->dtype));
    return ht_ones(s, value->dtype, value->shape, value->n_dims);
}

int ht_value_and_grad(ht_scope *s, const ht_function *f, ht_array *const *in, int n_in, ht_wrt wrt, ht_array **out,
                      int max_out, ht_array **grad) {
    clear(out, max_out);
    clear(grad, wrt.n);
    ht_scope *inner = ht_scope_child(s);
    if (!inner) return -1;
    arguments a;
    bool ok = stand_for(inner, in, n_in, wrt.index, wrt.n, &a);
    int n = ok ? ht_user_function_call(inner, f, a.all, n_in, out, max_out) : -1;
    if (n == 0) ht_scope_fail(inner, HT_ERR_ARGUMENT, "the function gives no array that could have a gradient");
    ht_array *one = n > 0 ? one_for(inner, out[0]) : NULL;
    ok = one && ht_backward(inner, out, &one, 1, a.wrt, wrt.n, grad) && fill_zeros(inner, grad, a.wrt, wrt.n);
    ok = give_both(s, inner, ok, out, n > 0 ? n : 0, grad, wrt.n);
    if (!ok) clear(out, max_out);
    free_arguments(&a);
    return ok ? n : -1;
}

bool ht_grad(ht_scope *s, const ht_function *f, ht_array *const *in, int n_in, ht_wrt wrt, ht_array **grad) {
    enum { MAX_OUT = 1024 };
    ht_array **out = ht_array_list(s, MAX_OUT);
    if (!out) return false;
    int n = ht_value_and_grad(s, f, in, n_in, wrt, out, MAX_OUT, grad);
    for (int i = 0; i < n; i++) ht_scope_drop(s, out[i]);
    free(out);
    return n > 0;
}
