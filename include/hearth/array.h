/* Arrays: immutable n-dimensional values, reference-counted, lazy until someone reads them.
 *
 * An operation (ops.h) takes a scope first and returns a new array at once, without computing it. The array belongs
 * to the scope and dies with it; ht_array_retain carries one across. Evaluation computes what a read needs, on the
 * scope's stream.
 *
 * Errors: an operation that fails returns NULL and records the first error in its scope; an operation given NULL
 * returns NULL. So an expression is written as mathematics and checked once, at its end: ht_array_eval and the
 * readers report the scope's first error.
 *
 * Absent arguments: an array operand that is absent on purpose is HT_NONE, as a NULL array always is the result of a
 * failure; every other absent argument (axes, steps, options, a callback, an ht_error) is NULL.
 *
 * Threads: a scope and the arrays not yet evaluated in it belong to one thread at a time. Evaluated arrays are
 * read-only and may be shared. */
#ifndef HEARTH_ARRAY_H
#define HEARTH_ARRAY_H

#include <hearth/dtype.h>
#include <hearth/memory.h>
#include <hearth/status.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ht_device ht_device; /* a processor */
typedef struct ht_stream ht_stream; /* a queue of work on a device */
typedef struct ht_scope ht_scope;
typedef struct ht_array ht_array;

/* An array operand that is absent on purpose (a norm without weight, a product without bias). A constant: not to be
 * evaluated; retaining and freeing it do nothing. */
HT_API extern ht_array *const HT_NONE;

/* ---- devices and streams ---- */

/* Options of ht_device_open. */
typedef struct ht_device_options {
    size_t size;   /* of the struct, set by ht_device_options_init */
    int n_threads; /* computing threads; default 0: one per available core */
    /* "avx512", "avxvnni", "avx2", "i8mm", "neon" or "reference"; where the machine lacks it, the error lists the
     * possible ones. Default NULL: the best found. */
    const char *instruction_set;
} ht_device_options;
HT_API void ht_device_options_init(ht_device_options *options, size_t size);

/* Opens a device: "cpu", or an NVIDIA GPU by its number, "cuda" or "cuda:0", "cuda:1" and so on, with
 * libhearth_cuda.so in the library's directory. HT_ERR_UNSUPPORTED for another name, a missing device, or an
 * instruction set that machine or build lacks. The caller frees *out; models, streams and arrays hold the device as
 * long as they need it. NULL options mean the defaults. */
HT_API ht_status ht_device_open(const char *name, const ht_device_options *options, ht_device **out, ht_error *err);
/* GPU `index` of those that the CUDA driver has, counted from 0: ht_device_open of "cuda:INDEX". */
HT_API ht_status ht_device_cuda(int index, const ht_device_options *options, ht_device **out, ht_error *err);
/* Number of devices of a name: 1 for "cpu"; for "cuda" the GPUs of the driver, unsupported old ones included, without
 * opening any. 0 and HT_ERR_UNSUPPORTED, with the missing part, without the driver or libhearth_cuda.so. */
HT_API ht_status ht_device_count(const char *name, int *n, ht_error *err);
/* Retains the device, to be released by ht_device_free; returns d. */
HT_API ht_device *ht_device_retain(ht_device *d);
/* Releases one hold; the last one frees the device. NULL is fine. */
HT_API void ht_device_free(ht_device *d);
/* The device's name, the instruction set of its kernels, and its number of computing threads. The texts are
 * constants. */
HT_API const char *ht_device_name(const ht_device *d);
HT_API const char *ht_device_instruction_set(const ht_device *d);
HT_API int ht_device_threads(const ht_device *d);

/* A stream computes in the order of submission. Several threads may use a stream; it then serves them in turn. The
 * caller frees *out; HT_ERR_MEMORY if memory ran out. */
HT_API ht_status ht_stream_new(ht_device *d, ht_stream **out, ht_error *err);
/* Waits for submitted work, then frees. NULL is fine. */
HT_API void ht_stream_free(ht_stream *s);
HT_API ht_device *ht_stream_device(const ht_stream *s); /* lent */
/* Waits until all submitted work is done. */
HT_API void ht_stream_synchronize(ht_stream *s);

/* ---- scopes ---- */

/* NULL when memory ran out. The stream must outlive the scope. */
HT_API ht_scope *ht_scope_new(ht_stream *stream);
/* Releases every array of the scope. NULL is fine. */
HT_API void ht_scope_free(ht_scope *s);
/* The first error of the scope, lent, or NULL. */
HT_API const ht_error *ht_scope_error(const ht_scope *s);
HT_API ht_stream *ht_scope_stream(const ht_scope *s); /* lent */

/* ---- arrays ---- */

/* Retains the array, independent of its scope. Returns a (NULL and HT_NONE pass through). */
HT_API ht_array *ht_array_retain(ht_array *a);
/* Releases one hold, taken by ht_array_retain or by a call whose result the caller holds; the last one frees the
 * array. NULL and HT_NONE are fine. */
HT_API void ht_array_free(ht_array *a);
/* Releases the scope's hold before the scope ends; do not use `a` afterwards unless you retained it. */
HT_API void ht_scope_drop(ht_scope *s, ht_array *a);
/* Ends an expression: the caller now holds its result `a`. The scope releases all its arrays, clears its error, and
 * is as new. So one scope serves any number of expressions, each of which keeps only its result. Returns a; NULL is
 * fine. */
HT_API ht_array *ht_scope_finish(ht_scope *s, ht_array *a);

/* Known without evaluation, as are the shape and the size. */
HT_API ht_dtype ht_array_dtype(const ht_array *a);
HT_API int ht_array_n_dims(const ht_array *a); /* 0 of a single value, at most 8 */
/* Size of axis `axis`; negative axes count from the end. 0 for an axis that does not exist. */
HT_API int64_t ht_array_dim(const ht_array *a, int axis);
HT_API int64_t ht_array_size(const ht_array *a); /* elements */
/* The distance in memory, in elements, between neighbours along axis `axis` (as in ht_array_dim). 0 along broadcast
 * axes, negative for reversed views. */
HT_API int64_t ht_array_stride(const ht_array *a, int axis);
HT_API bool ht_array_is_evaluated(const ht_array *a); /* whether its elements are in memory */

/* From values in memory: copies shape[0] * ... elements of dtype, row-major. */
HT_API ht_array *ht_array_from(ht_scope *s, const void *values, ht_dtype dtype, const int64_t *shape, int n_dims);
/* The same without copying. `release(user)` is called when the last user of the memory has released it (NULL: never).
 * The memory must not change until then. A device with separate memory copies, and releases at once. On failure
 * `release` is not called. */
HT_API ht_array *ht_array_wrap(ht_scope *s, const void *values, ht_dtype dtype, const int64_t *shape, int n_dims,
                               void (*release)(void *user), void *user);

/* The values of `a`, which belongs to scope `from` or is evaluated, on the device of scope s: copied, or shared where
 * the memory is the same. Operations take operands of one memory, that of their scope's device; others are an error.
 * No derivative passes. Evaluates `a` on the stream of `from`. */
HT_API ht_array *ht_array_to(ht_scope *s, ht_array *a, ht_scope *from);

/* Computes the arrays and their inputs. NULL entries, or any earlier failure in the scope, give the scope's first
 * error. An array whose computation failed stays failed and reports the error at every evaluation. */
HT_API ht_status ht_array_eval(ht_scope *s, ht_array *const *arrays, int n, ht_error *err);
/* The same without waiting; ht_array_wait, or any read, waits. */
HT_API ht_status ht_array_eval_async(ht_scope *s, ht_array *const *arrays, int n, ht_error *err);
/* Waits for an array under asynchronous evaluation and reports its status; evaluates it if needed. */
HT_API ht_status ht_array_wait(ht_scope *s, ht_array *a, ht_error *err);

/* Evaluates, then copies the elements row-major, in the array's dtype, to `out`, which holds `bytes` bytes: exactly
 * size * dtype bytes. */
HT_API ht_status ht_array_read(ht_scope *s, ht_array *a, void *out, size_t bytes, ht_error *err);
/* Evaluates and lends the elements, row-major, valid while the array lives. From a device with separate memory, a
 * copy that the array keeps. NULL in *data on failure. */
HT_API ht_status ht_array_data(ht_scope *s, ht_array *a, const void **data, ht_error *err);
/* The same without making them row-major: element [i, j, ...] is at *data + i * ht_array_stride(a, 0) + j * ..., in
 * elements. The memory is shared with other views of the array. */
HT_API ht_status ht_array_lend(ht_scope *s, ht_array *a, const void **data, ht_error *err);

/* Evaluates `a` and cuts it off the graph that made it, which can then be freed. */
HT_API ht_status ht_array_detach(ht_scope *s, ht_array *a, ht_error *err);

#ifdef __cplusplus
}
#endif
#endif
