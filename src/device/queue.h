/* Device queue: work that a device does after the call which submitted it has returned, in the order of submission.
 *
 * Kernels, stages and programs are submitted between `begin` and `end` of a device (device/device.h), when the queue is one
 * thread's; copies (device/memory.h) by anybody at any time. A mark is a place in it.
 *
 * Kernels fail one by one. A copy that fails loses the device: whoever wrote it may long have gone on, so every wait and every
 * read from then on reports it, whatever it is for. Work that fails does so when it is done, and is reported by the wait that
 * finds it. */
#ifndef HT_DEVICE_QUEUE_H
#define HT_DEVICE_QUEUE_H

#include <hearth/status.h>

#include <stdint.h>

struct ht_device;

/* A place behind all work submitted so far; later places are larger. */
typedef uint64_t ht_mark;

typedef struct ht_queue_ops {
    ht_mark (*mark)(struct ht_device *d);
    /* Waits until the work before `mark` is done. When some of it failed, *failed is the mark behind the first that did, and
     * kernels submitted after it, up to this call, are void: they have been left out, or their results mean nothing. Each
     * failure is reported once. Between `begin` and `end`. */
    ht_status (*wait)(struct ht_device *d, ht_mark mark, ht_mark *failed, ht_error *err);
} ht_queue_ops;

#endif
