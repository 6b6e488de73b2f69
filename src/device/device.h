/* Device: the function table that runs operations, with the memory, the weights and the cache pages that they run on.
 * Nothing above this layer knows which one it is. */
#ifndef HT_DEVICE_DEVICE_H
#define HT_DEVICE_DEVICE_H

#include "base/pool.h"
#include "device/kernel.h"
#include "device/kv.h"
#include "device/matrix.h"
#include "device/memory.h"
#include "device/program.h"
#include "device/row.h"
#include "device/stage.h"
#include "formats/weight_type.h"

#include <hearth/measure.h>

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

typedef struct ht_device ht_device;

/* ---- the queue: work that runs after the submitting call returns, in submission order ----
 *
 * Kernels, stages and programs are submitted between `begin` and `end`, when one thread owns the queue. Any thread may
 * submit copies (device/memory.h) at any time.
 *
 * Kernels fail one by one. A failed copy loses the device: its submitter may have moved on, so every later wait and
 * read reports it. Other failures are reported by the wait that finds them. */

/* Position in the queue after all work submitted so far; marks increase. */
typedef uint64_t ht_mark;

typedef struct ht_queue_ops {
    ht_mark (*mark)(ht_device *d);
    /* Waits for the work before `mark`. If some of it failed, *failed is the mark after the first failure. Kernels
     * submitted between it and this call are void: skipped, or with meaningless results. Each failure is reported once.
     * Between `begin` and `end`. */
    ht_status (*wait)(ht_device *d, ht_mark mark, ht_mark *failed, ht_error *err);
} ht_queue_ops;

/* ---- parts of the table ---- */

/* Measurements on all threads of the device. Rates are means over about `seconds` of wall-clock time. The caller does
 * not hold the pool's lease. */
typedef struct ht_measure_ops {
    double (*read)(ht_device *d, const void *memory, size_t bytes, double seconds); /* bytes per second */
    double (*compute)(ht_device *d, ht_arithmetic a, double seconds); /* operations per second; 0: not supported */
    /* The arithmetic of matrix products with weights of a type. */
    ht_arithmetic (*arithmetic)(const ht_device *d, ht_weight_type type, ht_precision precision);
    bool (*gpu)(ht_device *d, ht_gpu *out); /* NULL: it is none */
} ht_measure_ops;

/* Rounding of weights to the blocks of a quantised type, on the host. A search finds scales, offsets and integers of
 * least weighted squared error for every block. The bits do not depend on the instruction set.
 *
 * Rounds n rows of k finite values to blocks of `type` (ht_block_is_packed), k a multiple of the block. `importance`
 * [k] is positive: mean squares of the columns' activations; NULL: unknown. False when a value is too large for the
 * type's scales. Thread-safe. */
typedef bool ht_round_weights_fn(ht_weight_type type, const float *x, int64_t n, int64_t k, const float *importance,
                                 void *blocks);

/* step_rows of a CPU, and the minimum on a device with little memory. */
enum { HT_LEAST_STEP_ROWS = 512 };

struct ht_device {
    const char *name;            /* "cpu" */
    const char *instruction_set; /* such as "avx512"; cpu/isa.h has the names */
    ht_memory *memory;           /* of everything that kernels read and write */
    const ht_queue_ops *queue;   /* NULL: work is done when the call that submits it returns */

    /* ---- work: kernels, and groups of calls as one ---- */

    /* Bracket one thread's submissions: the thread owns the queue until `end`, which takes the value of `begin`. The
     * thread waits for its work before `end`. */
    unsigned (*begin)(ht_device *d);
    void (*end)(ht_device *d, unsigned state);
    /* Between two submissions of a long step: lets threads that have waited go first. NULL: work is short, or queued. */
    void (*yield)(ht_device *d);
    ht_kernel kernels[HT_OP_COUNT]; /* run == NULL: composed of other operations (array/op.h), or not supported */
    const ht_stage_ops *stages;     /* NULL: the calls of a stage run one by one */
    const ht_program_ops *programs; /* NULL: elementwise operations run one by one */
    int32_t step_rows;              /* rows of a prefill step that keep the device busy */

    /* ---- packed weights and cache pages ---- */

    /* Functions for matrices of a weight type; NULL: the type is not supported. */
    const ht_matrix_ops *(*matrix_ops)(const ht_device *d, ht_weight_type type, ht_precision precision);
    /* Functions for an output head [n_rows, k]. The head may pack its rows so that top-k sampling reads less memory. */
    const ht_matrix_ops *(*head_ops)(const ht_device *d, ht_weight_type type, ht_precision precision, int64_t n_rows,
                                     int64_t k);
    const ht_kv_ops *kv;
    const ht_top_ops *top; /* NULL: the host finds the highest logits */

    /* ---- the host's side ---- */

    int n_threads; /* of the host, that work for this device */
    /* Runs fn on them over n items, `grain` at a time, as ht_pool_run does: reading weights, choosing tokens. Not between
     * `begin` and `end`; fn may pack, and copy to the device. */
    void (*run_on_host)(ht_device *d, int64_t n, int64_t grain, ht_block_fn *fn, void *arg);
    const ht_row_ops *row_ops;          /* of logits in host memory */
    ht_round_weights_fn *round_weights; /* of weights in host memory */
    const ht_measure_ops *measure;      /* NULL: measurement is not supported */

    /* Held while a graph is traversed and evaluated. All streams share it, as they share the queue: a stream never sees an
     * array half computed by another stream, and an array that two streams need is computed once. */
    pthread_mutex_t run_lock;
    void (*destroy)(ht_device *d); /* called when the last reference is released */
    _Atomic int refs;
};

static inline ht_mark ht_device_mark(ht_device *d) { return d->queue ? d->queue->mark(d) : 0; }
static inline ht_status ht_device_wait(ht_device *d, ht_mark *failed, ht_error *err) {
    return d->queue ? d->queue->wait(d, d->queue->mark(d), failed, err) : HT_OK;
}

/* Waits for all work of all threads submitted so far and reports failures. Not between `begin` and `end`. */
ht_status ht_device_settle(ht_device *d, ht_error *err);

/* Opens the device with that index; `options` are complete. */
typedef ht_status ht_device_open_fn(const struct ht_device_options *options, int index, ht_device **out, ht_error *err);
/* Registers a device for ht_device_open, or replaces the one of that name. `name` is lent for good. False: the table is
 * full. */
bool ht_device_register(const char *name, ht_device_open_fn *open);

#endif
