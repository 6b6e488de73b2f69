/* Function transformations: derivatives, compilation and checkpointing of functions of arrays.
 *
 * A function is given as ht_function. A transformation calls it once, with stand-ins for its arguments that belong to a
 * scope of that call; the function makes its results of them with ordinary operations. What it reads or captures beside its
 * arguments counts as constant. It may evaluate arrays, and it may itself use transformations, to any depth: second
 * derivatives are the derivative of a derivative. Results belong to the scope `s` of the transformation.
 *
 * Errors: as in array.h; a failure inside the function is the scope's error. Several outputs are all NULL on failure. */
#ifndef HEARTH_TRANSFORM_H
#define HEARTH_TRANSFORM_H

#include <hearth/array.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ht_function {
    /* Makes arrays out[0 .. count) of in[0 .. n_in) and returns their count, at most max_out; or -1, after an operation in
     * `s` has failed or ht_scope_report was called. Retains or releases nothing. */
    int (*call)(ht_scope *s, ht_array *const *in, int n_in, ht_array **out, int max_out, void *user);
    void *user;
} ht_function;

/* Records a failure of a user's function in the scope it was given; the first one counts. */
HT_API void ht_scope_report(ht_scope *s, ht_status status, const char *message);

/* Reverse mode. out[0 .. n_out) = f(in), and grad_in[i], of in[i]'s shape and dtype, the gradient of sum_k <grad_out[k],
 * out[k]> with respect to in[i]. The function gives exactly n_out arrays; grad_out[k] has the shape of out[k]. Every in[i]
 * is floating point. `out` may be NULL. */
HT_API bool ht_vjp(ht_scope *s, const ht_function *f, ht_array *const *in, int n_in, ht_array *const *grad_out,
                   int n_out, ht_array **out, ht_array **grad_in);

/* Forward mode. out = f(in), and tangent_out[k] the derivative of out[k] when every in[i] moves along tangent_in[i], of
 * in[i]'s shape. Returns how many arrays f gives, at most max_out, or -1. */
HT_API int ht_jvp(ht_scope *s, const ht_function *f, ht_array *const *in, ht_array *const *tangent_in, int n_in,
                  ht_array **out, ht_array **tangent_out, int max_out);

/* out = f(in) and the gradient of out[0], which has one element, with respect to in[argument[i]], i < n_arguments, each
 * floating point. Further outputs are passed through. Returns how many arrays f gives, at most max_out, or -1. */
HT_API int ht_value_and_grad(ht_scope *s, const ht_function *f, ht_array *const *in, int n_in, const int *argument,
                             int n_arguments, ht_array **out, int max_out, ht_array **grad);
/* The gradients alone. */
HT_API bool ht_grad(ht_scope *s, const ht_function *f, ht_array *const *in, int n_in, const int *argument,
                    int n_arguments, ht_array **grad);

/* x, which counts as constant wherever derivatives are taken. */
HT_API ht_array *ht_stop_gradient(ht_scope *s, ht_array *x);

/* f(in), of which reverse mode keeps the inputs alone: what f made on the way is computed again when gradients need it. */
HT_API int ht_checkpoint(ht_scope *s, const ht_function *f, ht_array *const *in, int n_in, ht_array **out, int max_out);

/* The derivative of a function as its user gives it. */
typedef struct ht_custom_vjp {
    /* Fills grad_in[0 .. n_in) with the gradients of in[i], HT_NONE where there is none, from the outputs' gradients
     * grad_out[0 .. n_out). False after a failure. */
    bool (*call)(ht_scope *s, ht_array *const *in, int n_in, ht_array *const *out, ht_array *const *grad_out, int n_out,
                 ht_array **grad_in, void *user);
    void *user;
    void (*release)(void *user); /* NULL, or called once when no graph needs `user` any more, also on failure */
} ht_custom_vjp;

/* f(in), with `vjp` in the place of the derivative of what f does. */
HT_API int ht_custom_function(ht_scope *s, const ht_function *f, const ht_custom_vjp *vjp, ht_array *const *in,
                              int n_in, ht_array **out, int max_out);

/* ---- compiled functions ---- */

/* A function that is called once for every combination of its arguments' shapes and dtypes, with arguments that have no
 * value: it must not evaluate them. Later calls lay out what that call made for new arguments. What the function reads beside
 * its arguments is kept as it was then, and computed once. Can be differentiated, and used in other functions, as the
 * function itself; may be called from several threads. A call that nobody differentiates runs as one list of kernels, all of
 * whose results are computed when the first is needed. */
typedef struct ht_compiled ht_compiled;

/* Options of ht_compile. */
typedef struct ht_compile_options {
    size_t size; /* of the struct, set by ht_compile_options_init */
    /* Called once for every combination of the arguments' dtypes and numbers of dimensions: for other sizes its operations
     * are made again, each with its own rule for the shape of its result. What an operation is given as a number or a list of
     * numbers stays as it was in the traced call, as does everything that the function computes from ht_array_dim and
     * ht_array_size; what does not fit any more is an error that names the operation, the sizes and those of the traced call.
     * Sizes follow the arguments where they are not written: -1 in ht_reshape and ht_unflatten, HT_OPEN in ht_slice,
     * ht_slice_update and ht_gather, and in ht_slice_range, ht_slice_update_range, ht_flatten, ht_split_equally,
     * ht_full_like, ht_zeros_like, ht_ones_like, ht_reshape_like, ht_broadcast_like and ht_number_of_elements. A bound of
     * ht_slice that is the end of an axis in the traced call, without saying HT_OPEN, is an error when that size changes.
     * Derivatives are found again for new sizes, so a custom one is called again. Default false. */
    bool shapeless;
    /* Called with f->user when the compiled function goes, not when ht_compile fails. Default NULL. */
    void (*release)(void *user);
} ht_compile_options;
HT_API void ht_compile_options_init(ht_compile_options *options, size_t size);

/* The caller frees *out. */
HT_API ht_status ht_compile(const ht_function *f, const ht_compile_options *options, ht_compiled **out, ht_error *err);
/* Results as of ht_function: their count, or -1 after an error in `s`. The 64 combinations of shapes used last are kept. A
 * compiled function that is called while another one is traced without shapes is called as it is. */
HT_API int ht_compiled_call(ht_scope *s, ht_compiled *c, ht_array *const *in, int n_in, ht_array **out, int max_out);
HT_API void ht_compiled_free(ht_compiled *c); /* NULL is fine */

#ifdef __cplusplus
}
#endif
#endif
