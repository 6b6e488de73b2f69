/* Function transformations by tracing: derivatives, checkpointing and compilation of functions of arrays.
 *
 * A transformation traces an ht_function: it calls the function once with placeholder arrays, and the operations that
 * the function applies form a graph, the trace. Derivatives are computed on the trace; a compiled function replays it.
 *
 * Arrays that the function captures are constants of the trace. The function may evaluate arrays, unless it is being
 * compiled. Transformations nest to any depth: a second derivative is the derivative of a derivative. Results belong to
 * the scope `s` of the transformation.
 *
 * Errors are those of array.h; a failure inside the function becomes the error of `s`, and every output is NULL. */
#ifndef HEARTH_TRANSFORM_H
#define HEARTH_TRANSFORM_H

#include <hearth/array.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A function of arrays. */
typedef struct ht_function {
    /* Computes out[0 .. count) from in[0 .. n_in), in the scope `s` of the trace, and returns count <= max_out.
     * Returns -1 after an operation in `s` failed or ht_scope_report was called. Neither retains nor releases its
     * arrays. */
    int (*call)(ht_scope *s, ht_array *const *in, int n_in, ht_array **out, int max_out, void *user);
    void *user; /* passed to `call` */
} ht_function;

/* Reports a failure of a user's function in the scope that the function was given. The first report of a scope
 * counts. */
HT_API void ht_scope_report(ht_scope *s, ht_status status, const char *message);

/* ---- derivatives ---- */

/* Vector-Jacobian product (reverse mode). Computes out[0 .. n_out) = f(in) and grad_in[i], the gradient of sum_k
 * <grad_out[k], out[k]> with respect to in[i], of in[i]'s shape and dtype. Every in[i] is floating point; f returns
 * exactly n_out arrays; grad_out[k] has the shape of out[k]. `out` may be NULL. Returns false on failure. */
HT_API bool ht_vjp(ht_scope *s, const ht_function *f, ht_array *const *in, int n_in, ht_array *const *grad_out,
                   int n_out, ht_array **out, ht_array **grad_in);

/* Jacobian-vector product (forward mode). Computes out = f(in) and tangent_out[k], the directional derivative of out[k]
 * along tangent_in; tangent_in[i] has the shape of in[i]. Returns the number of outputs of f, at most max_out, or -1 on
 * failure. */
HT_API int ht_jvp(ht_scope *s, const ht_function *f, ht_array *const *in, ht_array *const *tangent_in, int n_in,
                  ht_array **out, ht_array **tangent_out, int max_out);

/* The arguments of a function that a gradient is taken with respect to: in[index[i]], i < n. */
typedef struct ht_wrt {
    const int *index;
    int n;
} ht_wrt;

/* Computes out = f(in) and grad[i], i < wrt.n, the gradient of out[0] with respect to in[wrt.index[i]], which is
 * floating point. out[0] has one element; further outputs are auxiliary. Returns the number of outputs of f, at most
 * max_out, or -1 on failure. */
HT_API int ht_value_and_grad(ht_scope *s, const ht_function *f, ht_array *const *in, int n_in, ht_wrt wrt,
                             ht_array **out, int max_out, ht_array **grad);
/* ht_value_and_grad without the values. Returns false on failure. */
HT_API bool ht_grad(ht_scope *s, const ht_function *f, ht_array *const *in, int n_in, ht_wrt wrt, ht_array **grad);

/* x as a constant of every derivative: no gradient flows through the result. */
HT_API ht_array *ht_stop_gradient(ht_scope *s, ht_array *x);

/* Gradient checkpointing (Chen et al., 2016). Computes out = f(in); reverse mode keeps only `in` and recomputes the
 * intermediate arrays of f when gradients need them, trading time for memory. Returns the number of outputs of f, or -1
 * on failure. */
HT_API int ht_checkpoint(ht_scope *s, const ht_function *f, ht_array *const *in, int n_in, ht_array **out, int max_out);

/* A user-defined vector-Jacobian product. */
typedef struct ht_custom_vjp {
    /* Computes grad_in[i], the gradient with respect to in[i], or HT_NONE for a zero gradient, from the gradients
     * grad_out[0 .. n_out) of the outputs. Returns false on failure. */
    bool (*call)(ht_scope *s, ht_array *const *in, int n_in, ht_array *const *out, ht_array *const *grad_out, int n_out,
                 ht_array **grad_in, void *user);
    void *user;
    void (*release)(void *user); /* NULL, or called once when no graph uses `user` any longer, also on failure */
} ht_custom_vjp;

/* Computes out = f(in), with `vjp` as its derivative instead of that of its trace. Returns the number of outputs of f,
 * or -1 on failure. */
HT_API int ht_custom_function(ht_scope *s, const ht_function *f, const ht_custom_vjp *vjp, ht_array *const *in,
                              int n_in, ht_array **out, int max_out);

/* ---- compiled functions ---- */

/* A function that is traced once for every combination of argument shapes and dtypes, and replayed on later calls. The
 * function must not evaluate its placeholder arguments, which have no values. Captured arrays are evaluated once and
 * kept.
 *
 * A compiled function can be differentiated and used inside other functions like the original, and may be called from
 * several threads. A call that is not differentiated runs as one list of kernels: evaluating one of its results
 * computes them all. */
typedef struct ht_compiled ht_compiled;

/* Options of ht_compile. */
typedef struct ht_compile_options {
    size_t size; /* of the struct, set by ht_compile_options_init */
    /* Trace once for every combination of argument dtypes and numbers of dimensions, not for every shape. For new
     * sizes the operations of the trace are applied again, and each infers its result shape.
     *
     * Numbers passed to an operation are constants of the trace, including those computed from ht_array_dim and
     * ht_array_size. A constant that does not fit new sizes is an error that names the operation, the sizes and the
     * traced sizes; so is a bound of ht_slice that was the end of an axis in the trace, not given as HT_OPEN, when
     * that axis changes. These adapt to the sizes: -1 in ht_reshape and ht_unflatten; HT_OPEN in ht_slice,
     * ht_slice_update and ht_gather; ht_slice_range, ht_slice_update_range, ht_flatten, ht_split_equally,
     * ht_full_like, ht_zeros_like, ht_ones_like, ht_reshape_like, ht_broadcast_like and ht_number_of_elements.
     *
     * Derivatives inside the function are derived again for new sizes, so a custom VJP is called again. Default
     * false. */
    bool shapeless;
    /* Called with f->user when the compiled function is freed; not called when ht_compile fails. Default NULL. */
    void (*release)(void *user);
} ht_compile_options;
HT_API void ht_compile_options_init(ht_compile_options *options, size_t size);

/* Prepares f for tracing; the first call traces it. `options` may be NULL (the defaults). The caller frees *out. */
HT_API ht_status ht_compile(const ht_function *f, const ht_compile_options *options, ht_compiled **out, ht_error *err);
/* Calls a compiled function. Returns the number of outputs, at most max_out, or -1 after an error in `s`. The 64 most
 * recently used traces are kept. Inside a shapeless trace of another compiled function the original function is called
 * instead. */
HT_API int ht_compiled_call(ht_scope *s, ht_compiled *c, ht_array *const *in, int n_in, ht_array **out, int max_out);
HT_API void ht_compiled_free(ht_compiled *c); /* NULL is fine */

#ifdef __cplusplus
}
#endif
#endif
