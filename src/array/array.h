/* Array internals: nodes of a lazy graph, their buffers, scopes and streams. */
#ifndef HT_ARRAY_ARRAY_H
#define HT_ARRAY_ARRAY_H

#include "device/device.h"
#include "device/params.h"

#include <hearth/array.h>

#include <pthread.h>
#include <stdatomic.h>
#include <sys/types.h>

/* Memory shared by an array and its views. */
typedef struct ht_buffer {
    _Atomic int refs;
    void *data;
    size_t bytes;
    void (*release)(void *user); /* wrapped memory: called instead of freeing */
    void *user;
    bool wrapped;
} ht_buffer;

typedef enum ht_state { HT_LAZY, HT_READY, HT_FAILED } ht_state;

/* Which per-step value a leaf of a trace stands for. */
typedef enum ht_batch_field { HT_BATCH_NONE, HT_BATCH_ID, HT_BATCH_POS, HT_BATCH_OUT_ROW } ht_batch_field;

enum { HT_INLINE_INPUTS = 4 };

/* A node. A view (reshape, slice, ...) has a `base`, the array whose buffer it is a window on; every other node is its
 * own storage, and what a kernel writes is always row-contiguous from offset 0. So strides are known when the graph is
 * built. */
struct ht_array {
    _Atomic int32_t refs;       /* all holds: scope, graph, user */
    _Atomic int32_t graph_refs; /* those of them held by other arrays */
    _Atomic int state;          /* ht_state; meaningful on storage only */
    ht_op_id op;
    ht_dtype dtype;
    int n_dims;
    int64_t offset; /* elements from the start of the storage */

    ht_array *base; /* views: the storage; else NULL */
    ht_buffer *buffer;
    _Atomic(ht_array *) contiguous; /* a contiguous copy made for a reader, or NULL */
    ht_error *failure;

    int n_in;
    ht_array **in; /* inline_in, or allocated when there are more */
    ht_array *inline_in[HT_INLINE_INPUTS];
    struct ht_custom *custom; /* CUSTOM: the user's function */
    struct ht_flat_run *run;  /* COMPILED, COMPILED_OUT: the call */
    const ht_step *step;      /* ATTEND outside a trace: the step it belongs to */
    ht_batch_field batch_field;

    _Atomic bool settled;      /* under asynchronous evaluation, which will cut it off: no derivative goes beyond it */
    _Atomic bool at_rest;      /* evaluated, and the evaluation is done with it: it may be read without a lock */
    _Atomic(ht_scope *) scope; /* NULL from before the scope gives its hold back, which may be while others evaluate */
    ht_array *previous, *next;

    /* Marks of the evaluation in progress (eval.c) or of the trace being compiled (plan.c). */
    uint64_t visit;
    int32_t graph_uses, kernel_uses;
    int32_t slot;
    bool keep;

    /* Last, as of most nodes little of it is used, and a line of memory that is not touched costs nothing: what is beyond
     * n_dims, and beyond the operation's parameters, is not initialised. */
    int64_t shape[HT_MAX_DIMS], stride[HT_MAX_DIMS];
    _Alignas(8) unsigned char params[HT_MAX_PARAMS];
};

struct ht_scope {
    ht_stream *stream;
    bool tracing; /* row counts are symbolic, nothing is ever evaluated */
    bool failed;
    ht_error error;
    ht_array *first;
};

/* While a user's function is being differentiated on this thread, evaluated arrays keep what made them. */
extern _Thread_local int ht_graphs_kept;

typedef struct ht_stream_task ht_stream_task;

/* Nodes in the order in which they can be computed (topological_order.h). */
typedef struct ht_worklist {
    ht_array **order, **stack;
    size_t n, capacity, n_stack, stack_capacity;
} ht_worklist;

struct ht_stream {
    ht_device *device;
    pthread_mutex_t queue_lock;
    pthread_cond_t changed;
    pthread_t worker;
    pid_t process; /* in which the worker is */
    bool has_worker, stopping;
    ht_stream_task *head, **tail;
    int64_t submitted, completed;
    ht_worklist list; /* of the evaluation in progress, kept for the next one */
    void *scratch;
    size_t scratch_bytes;
};

/* The array whose buffer `a` looks at. */
static inline ht_array *ht_storage(ht_array *a) { return a->base ? a->base : a; }

/* Records the scope's first error and returns NULL, so that ops write `return ht_scope_fail(s, ...)`. */
ht_array *ht_scope_fail(ht_scope *s, ht_status status, const char *fmt, ...) HT_PRINTF(3, 4);
/* The same for an error that already has its text. */
ht_array *ht_scope_fail_with(ht_scope *s, const ht_error *err);

/* A fresh node of the scope with refs == 1 (the scope's), holding its inputs. NULL and a recorded error when memory ran
 * out. Shape, strides and params are the caller's to fill. */
ht_array *ht_array_new(ht_scope *s, ht_op_id op, ht_array *const *in, int n_in);
/* A view that looks at in[shown] as it is. NULL when an input is NULL or memory ran out. */
ht_array *ht_view_node(ht_scope *s, ht_op_id op, ht_array *const *in, int n_in, int shown);
/* The same operation on other inputs, which have the shapes, strides and dtypes of node's; a view is moved to where its new
 * input begins. */
ht_array *ht_array_like(ht_scope *s, const ht_array *node, ht_array *const *in);
/* Lets go of what made an evaluated array. A view keeps its storage. The device's run_lock is held. */
void ht_array_cut_off(ht_array *a);
/* Makes the scope hold `a` for `from`, which is about to end: `a` itself, or a view of it when it is not from's. */
ht_array *ht_scope_take(ht_scope *s, ht_scope *from, ht_array *a);
void ht_array_set_contiguous(ht_array *a, ht_dtype dtype, const int64_t *shape, int n_dims);

ht_status ht_buffer_new(size_t bytes, ht_buffer **out, ht_error *err);
ht_buffer *ht_buffer_retain(ht_buffer *b);
void ht_buffer_release(ht_buffer *b);

/* What a kernel sees of `a`; `data` is the storage's memory. HT_NONE gives an absent view. */
ht_view ht_array_view(const ht_array *a, void *data);
/* Number of elements; false when it does not fit an int64_t. */
bool ht_shape_size(const int64_t *shape, int n_dims, int64_t *size);
bool ht_array_is_contiguous(const ht_array *a);
/* "[2, 3]" into a buffer of HT_SHAPE_TEXT bytes, for messages. */
enum { HT_SHAPE_TEXT = 192 };
const char *ht_shape_text(const int64_t *shape, int n_dims, char *out);

/* Runs what is needed for `arrays` on the calling thread; the device's run_lock is held. `cut`: what was evaluated and
 * stays lets go of what made it. */
ht_status ht_eval_now(ht_stream *stream, ht_array *const *arrays, int n, bool cut, ht_error *err);

/* A scope for tracing: its arrays are never evaluated. */
ht_scope *ht_scope_new_tracing(ht_stream *stream);

#endif
