/* Array internals: nodes of a lazy graph, their buffers, scopes and streams. */
#ifndef HT_ARRAY_ARRAY_H
#define HT_ARRAY_ARRAY_H

#include "device/device.h"
#include "device/params.h"

#include <hearth/array.h>

#include <pthread.h>
#include <stdatomic.h>
#include <sys/types.h>

/* Reference-counted memory of a device, shared by an array and its views. It holds the device. */
typedef struct ht_buffer {
    _Atomic int refs;
    ht_memory *memory;
    void *data; /* the device's: an address, and host memory only if `memory` is */
    size_t bytes;
    _Atomic(void *) mirror;      /* host copy of memory that the host cannot read, kept for readers; or NULL */
    void (*release)(void *user); /* frees wrapped memory; NULL: nothing to free */
    void *user;
    bool wrapped;
} ht_buffer;

typedef enum ht_state { HT_LAZY, HT_READY, HT_FAILED } ht_state;

/* The per-step value that a leaf of a traced plan stands for. */
typedef enum ht_batch_field {
    HT_BATCH_NONE,
    HT_BATCH_ID,
    HT_BATCH_POS,
    HT_BATCH_OUT_ROW,
    HT_BATCH_FIRST,
    HT_BATCH_LAST,
    HT_BATCH_TYPE
} ht_batch_field;

enum { HT_INLINE_INPUTS = 4 };

/* Node of a lazy graph. A view (reshape, slice, ...) has a `base`, the array that owns its buffer: its storage. Every other
 * node is its own storage; kernels write it row-contiguous from offset 0, so that all strides are known when the graph is
 * built. */
struct ht_array {
    _Atomic int32_t refs;       /* all references: by the scope, other arrays and the user */
    _Atomic int32_t graph_refs; /* references by other arrays, included in refs */
    _Atomic int state;          /* ht_state, of storage only */
    ht_op_id op;
    ht_dtype dtype;
    int n_dims;
    int64_t offset; /* elements from the start of the storage */

    ht_memory *memory; /* where it is, or will be */
    ht_array *base;    /* the storage of a view; NULL: not a view */
    ht_buffer *buffer;
    _Atomic(ht_array *) contiguous; /* row-contiguous copy, kept for readers; or NULL */
    ht_error *failure;

    int n_in;
    ht_array **in; /* inline_in, or allocated for more than HT_INLINE_INPUTS */
    ht_array *inline_in[HT_INLINE_INPUTS];
    struct ht_custom *custom; /* CUSTOM: the user's function */
    struct ht_flat_run *run;  /* COMPILED, COMPILED_OUT: the call */
    const ht_step *step;      /* ATTEND outside a trace: its step */
    ht_batch_field batch_field;

    _Atomic bool settled;      /* submitted for asynchronous evaluation, which detaches it: derivatives stop here */
    _Atomic bool at_rest;      /* evaluated, and no longer changed by the evaluation: readable without a lock */
    _Atomic(ht_scope *) scope; /* set to NULL before the scope releases its reference, possibly during an evaluation */
    ht_array *previous, *next; /* list of the scope */

    /* Marks of the current evaluation (eval.c) or of the trace being compiled (plan.c). */
    uint64_t visit;
    ht_mark submitted; /* position in the device's queue after its kernel */
    int32_t graph_uses, kernel_uses;
    int32_t slot;
    bool keep;

    /* Last, because untouched cache lines cost nothing: entries from n_dims on, and bytes beyond the operation's
     * parameters, are not initialised. */
    int64_t shape[HT_MAX_DIMS], stride[HT_MAX_DIMS];
    _Alignas(8) unsigned char params[HT_MAX_PARAMS];
};

struct ht_scope {
    ht_stream *stream;
    ht_memory *memory; /* of the stream's device */
    bool tracing;      /* row counts are symbolic; arrays are never evaluated */
    bool failed;
    ht_error error;
    ht_array *first; /* arrays of the scope, linked by `next` */
};

/* Above 0 while a user's function is differentiated on this thread: evaluated arrays keep their inputs. */
extern _Thread_local int ht_graphs_kept;

typedef struct ht_stream_task ht_stream_task;

/* Nodes in topological order (topological_order.h). */
typedef struct ht_worklist {
    ht_array **order, **stack;
    size_t n, capacity, n_stack, stack_capacity;
} ht_worklist;

struct ht_stream {
    ht_device *device;
    pthread_mutex_t queue_lock;
    pthread_cond_t changed;
    pthread_t worker;
    pid_t process; /* process of the worker */
    bool has_worker, stopping;
    ht_stream_task *head, **tail;
    int64_t submitted, completed;
    ht_worklist list; /* of the current evaluation; memory is reused by the next one */
    void *scratch;
    size_t scratch_bytes;
};

/* The array that owns the buffer of `a`. */
static inline ht_array *ht_storage(ht_array *a) { return a->base ? a->base : a; }

/* Records the error if it is the scope's first. Returns NULL, for `return ht_scope_fail(s, ...)`. */
ht_array *ht_scope_fail(ht_scope *s, ht_status status, const char *fmt, ...) HT_PRINTF(3, 4);
/* ht_scope_fail with an existing error record. */
ht_array *ht_scope_fail_with(ht_scope *s, const ht_error *err);

/* The scope's error, copied to *err where it is not NULL; HT_OK when nothing failed. */
ht_status ht_scope_status(const ht_scope *s, ht_error *err);

/* New node of the scope, with refs == 1 (the scope's) and references to its inputs. The caller fills in shape, strides and
 * params. NULL, with an error in the scope, when memory ran out. */
ht_array *ht_array_new(ht_scope *s, ht_op_id op, ht_array *const *in, int n_in);
/* View of in[shown], with its shape and strides. NULL when an input is NULL or memory ran out. */
ht_array *ht_view_node(ht_scope *s, ht_op_id op, ht_array *const *in, int n_in, int shown);
/* Copy of a node on other inputs with the same shapes, strides and dtypes; the offset of a view follows its new input. */
ht_array *ht_array_like(ht_scope *s, const ht_array *node, ht_array *const *in);
/* Releases the inputs of an evaluated array, which becomes a leaf; a view keeps its storage. The caller holds the device's
 * run_lock. */
void ht_array_cut_off(ht_array *a);
/* Moves `a` from scope `from`, which is about to end, to `s`. Returns `a`, or a view of it when it belongs to a third
 * scope. */
ht_array *ht_scope_move(ht_scope *s, ht_scope *from, ht_array *a);
/* Sets dtype, shape and row-contiguous strides. */
void ht_array_set_contiguous(ht_array *a, ht_dtype dtype, const int64_t *shape, int n_dims);

ht_status ht_buffer_new(ht_memory *memory, size_t bytes, ht_buffer **out, ht_error *err);
ht_buffer *ht_buffer_retain(ht_buffer *b);
void ht_buffer_release(ht_buffer *b);
/* Must be called before writing a buffer that may have been read. */
void ht_buffer_begin_writing(ht_buffer *b);
/* The contents in host memory, valid until the buffer is written or freed. */
ht_status ht_buffer_on_host(ht_buffer *b, const void **data, ht_error *err);

/* Kernel view of `a`; `data` is the memory of its storage. HT_NONE gives an absent view. */
ht_view ht_array_view(const ht_array *a, void *data);
/* Number of elements; false on overflow. */
bool ht_shape_size(const int64_t *shape, int n_dims, int64_t *size);
bool ht_array_is_contiguous(const ht_array *a);
/* Writes a shape as "[2, 3]" to `out`, a buffer of HT_SHAPE_TEXT bytes, and returns it. */
enum { HT_SHAPE_TEXT = 192 };
const char *ht_shape_text(const int64_t *shape, int n_dims, char *out);

/* Row-major elements in host memory: the array's own memory if possible, else *copy, which the caller frees (NULL: no
 * copy). For a single read: unlike ht_array_data it stores no copy in the array. */
ht_status ht_array_borrow(ht_scope *s, ht_array *a, const void **data, void **copy, ht_error *err);

/* Evaluates `arrays` on the calling thread. The caller holds the device's run_lock. With `cut`, evaluated arrays that stay
 * release their inputs (ht_array_cut_off). */
ht_status ht_eval_now(ht_stream *stream, ht_array *const *arrays, int n, bool cut, ht_error *err);

/* New scope for tracing a plan: its arrays are never evaluated. */
ht_scope *ht_scope_new_tracing(ht_stream *stream);

#endif
