/* The queue: one stream, whose failures are found by waiting for it. */
#include "base/error.h"
#include "cuda/cuda.h"

#define NAME(id, name) [HT_OP_##id] = #name,
static const char *const op_names[HT_OP_COUNT] = {HT_OP_KERNELS(NAME) HT_OP_PACKED(NAME)};

void ht_cuda_enter(const ht_cuda_device *d) { (void)d->driver->context_push(d->context); }

void ht_cuda_leave(const ht_cuda_device *d) {
    CUcontext mine;
    (void)d->driver->context_pop(&mine);
}

ht_status ht_cuda_note(ht_cuda_device *d, CUresult result, ht_error *err, const char *what) {
    ht_error own = {0};
    if (!ht_cuda_check(d->driver, result, &own, what)) return HT_OK;
    pthread_mutex_lock(&d->lock);
    if (!d->lost.status) d->lost = own;
    pthread_mutex_unlock(&d->lock);
    if (err) *err = own;
    return own.status;
}

ht_status ht_cuda_lost(ht_cuda_device *d, ht_error *err) {
    pthread_mutex_lock(&d->lock);
    const ht_error lost = d->lost;
    pthread_mutex_unlock(&d->lock);
    if (lost.status && err) *err = lost;
    return lost.status;
}

static ht_mark mark(ht_device *d) { return atomic_load_explicit(&ht_cuda_of(d)->submitted, memory_order_relaxed); }

/* As the CPU's kernels name themselves. */
static const char *name_of(int op) {
    if (op == HT_OP_TAKE_ALONG) return "take_along_axis";
    if (op == HT_OP_PUT_ALONG) return "put_along_axis";
    return op >= 0 && op < HT_OP_COUNT && op_names[op] ? op_names[op] : "a kernel";
}

static ht_status describe(const ht_cuda_fault *f, ht_error *err) {
    const char *name = name_of(f->op);
    if (f->op == HT_OP_GATHER_MM || f->op == HT_OP_QUANTIZED_MATMUL) /* cuda/product.h */
        return ht_fail(err, HT_ERR_ARGUMENT, "gather: %s index %lld at position %lld is outside the %lld matrices",
                       f->axis ? "right" : "left", (long long)f->value, (long long)(f->position - f->axis * f->length),
                       (long long)f->size);
    if (f->wrong == HT_CUDA_EXPERT)
        return ht_fail(err, HT_ERR_ARGUMENT,
                       "%s: expert index %lld is out of range in row %lld, expected less than %lld", name,
                       (long long)f->value, (long long)f->position, (long long)f->size);
    if (f->wrong == HT_CUDA_ROWS)
        return ht_fail(
            err, HT_ERR_ARGUMENT,
            "%s: query %lld is at row %lld of a sequence that begins at row %lld, of %lld rows of keys; rows of a "
            "sequence do not go back",
            name, (long long)f->position, (long long)f->value, (long long)f->length, (long long)f->size);
    if (f->wrong == HT_CUDA_SEQUENCE)
        return ht_fail(err, HT_ERR_ARGUMENT,
                       "%s: the sequence of row %lld begins at row %lld, expected that row or the first row of the "
                       "previous row's sequence",
                       name, (long long)f->position, (long long)f->value);
    return ht_fail(err, HT_ERR_INDEX, "%s: index %lld at position %lld is outside axis %d of size %lld%s", name,
                   (long long)f->value, (long long)f->position, (int)f->axis, (long long)f->size,
                   f->length < f->size ? " as the start of a slice" : "");
}

/* Waits for the stream and reads the fault record. */
static CUresult wait_and_look(ht_cuda_device *d, ht_cuda_fault *out) {
    const ht_cuda_driver *cuda = d->driver;
    const CUdeviceptr at = (CUdeviceptr)d->fault;
    CUresult result = CUDA_SUCCESS;
    if (d->may_have_failed) result = cuda->copy_from(d->found, at, sizeof *out, d->stream);
    if (!result) result = cuda->stream_wait(d->stream);
    if (result || !d->may_have_failed) return result;
    *out = *d->found;
    if (out->wrong) result = cuda->fill(at, 0, sizeof *out, d->stream);
    if (!result) d->may_have_failed = false;
    return result;
}

static ht_status wait(ht_device *device, ht_mark until, ht_mark *failed, ht_error *err) {
    ht_cuda_device *d = ht_cuda_of(device);
    (void)until; /* waits for the whole stream; work after the first failure is void */
    ht_cuda_fault fault = {0};
    ht_cuda_enter(d);
    (void)ht_cuda_note(d, wait_and_look(d, &fault), NULL, "a kernel");
    ht_cuda_leave(d);
    const ht_status lost = ht_cuda_lost(d, err);
    if (lost) {
        *failed = 1;
        return lost;
    }
    if (!fault.wrong) return HT_OK;
    *failed = fault.mark;
    return describe(&fault, err);
}

const ht_queue_ops ht_cuda_queue = {mark, wait};
