/* Opening a GPU: the functions that device/shared_device.h requires of this shared object. */
#include "base/error.h"
#include "cuda/cuda.h"
#include "device/shared_device.h"

#include <stdio.h>
#include <stdlib.h>

enum { OLDEST_MAJOR = 8 }; /* compute capability that the kernels are compiled for */
/* An H100 prefills an 8B model at 21,900 tokens/s with 2048 rows per step, and at 14,700 with 512. */
enum { STEP_ROWS = 2048 };

static unsigned begin(ht_device *d) {
    pthread_mutex_lock(&ht_cuda_of(d)->turn);
    ht_cuda_enter(ht_cuda_of(d));
    return 0;
}

static void end(ht_device *d, unsigned state) {
    (void)state;
    ht_cuda_leave(ht_cuda_of(d));
    pthread_mutex_unlock(&ht_cuda_of(d)->turn);
}

static void run_on_host(ht_device *d, int64_t n, int64_t grain, ht_block_fn *fn, void *arg) {
    ht_device *host = ht_cuda_of(d)->host;
    host->run_on_host(host, n, grain, fn, arg);
}

static const ht_matrix_ops *head_ops(const ht_device *d, ht_weight_type type, ht_precision precision, int64_t n_rows,
                                     int64_t k) {
    (void)n_rows, (void)k;
    return ht_cuda_matrix_ops(d, type, precision);
}

static void destroy(ht_device *device) {
    ht_cuda_device *d = ht_cuda_of(device);
    const ht_cuda_driver *cuda = d->driver;
    if (d->context) ht_cuda_enter(d);
    if (d->stream) (void)cuda->stream_wait(d->stream);
    ht_memory_destroy(&d->memory);
    ht_cuda_staging_end(d);
    if (d->found) (void)cuda->host_give_back(d->found);
    if (d->fault) (void)cuda->memory_give_back((CUdeviceptr)d->fault);
    if (d->arrivals) (void)cuda->memory_give_back((CUdeviceptr)d->arrivals);
    for (int i = 0; i < HT_CUDA_MODULE_COUNT; i++)
        if (d->module[i]) (void)cuda->module_unload(d->module[i]);
    if (d->stream) (void)cuda->stream_destroy(d->stream);
    if (d->context) {
        ht_cuda_leave(d);
        (void)cuda->context_release(d->device);
    }
    if (d->host) d->host->destroy(d->host); /* the device owns it */
    pthread_mutex_destroy(&d->base.run_lock);
    pthread_mutex_destroy(&d->turn);
    pthread_mutex_destroy(&d->lock);
    free(d);
}

ht_status ht_shared_device_count(int *n, ht_error *err) {
    const ht_cuda_driver *cuda;
    *n = 0;
    const ht_status status = ht_cuda_driver_find(&cuda, err);
    return status ? status : ht_cuda_check(cuda, cuda->device_count(n), err, "counting GPUs");
}

static ht_status look_at(ht_cuda_device *d, int index, ht_error *err) {
    const ht_cuda_driver *cuda = d->driver;
    int n = 0;
    ht_status status = ht_cuda_check(cuda, cuda->device_count(&n), err, "counting GPUs");
    if (status) return status;
    if (n == 0) return ht_fail(err, HT_ERR_UNSUPPORTED, "the CUDA driver has no GPU");
    if (index >= n)
        return ht_fail(err, HT_ERR_UNSUPPORTED, "there is no GPU %d: the CUDA driver has %d, counted from 0", index, n);
    CUresult result = cuda->device_get(&d->device, index);
    if (!result) result = cuda->device_name(d->name, (int)sizeof d->name, d->device);
    const struct {
        CUdevice_attribute attribute;
        int *value;
    } asked[] = {{CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, &d->multiprocessors},
                 {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, &d->major},
                 {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, &d->minor},
                 {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR, &d->most_shared},
                 {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, &d->most_shared_of_block}};
    for (size_t i = 0; i < sizeof asked / sizeof *asked && !result; i++)
        result = cuda->device_attribute(asked[i].value, asked[i].attribute, d->device);
    status = ht_cuda_check(cuda, result, err, "looking at the GPU");
    if (!status && d->major < OLDEST_MAJOR)
        status = ht_fail(err, HT_ERR_UNSUPPORTED, "%s has compute capability %d.%d, and Hearth needs %d.0 or later",
                         d->name, d->major, d->minor, OLDEST_MAJOR);
    return status;
}

static ht_status take_hold(ht_cuda_device *d, ht_error *err) {
    const ht_cuda_driver *cuda = d->driver;
    ht_status status = ht_cuda_check(cuda, cuda->context_retain(&d->context, d->device), err, d->name);
    if (status) {
        d->context = NULL;
        return status;
    }
    const size_t arrivals_bytes = HT_CUDA_ARRIVALS * sizeof *d->arrivals;
    CUdeviceptr fault = 0, arrivals = 0;
    void *found = NULL;
    ht_cuda_enter(d);
    CUresult result = cuda->stream_create(&d->stream, CU_STREAM_NON_BLOCKING);
    if (result) d->stream = NULL;
    if (!result) result = cuda->memory_take(&fault, sizeof *d->fault);
    if (!result) d->fault = (ht_cuda_fault *)fault;
    if (!result) result = cuda->host_take(&found, sizeof *d->found, 0);
    if (!result) d->found = found;
    if (!result) result = ht_cuda_staging_begin(d);
    if (!result) result = cuda->fill(fault, 0, sizeof *d->fault, d->stream);
    if (!result) result = cuda->memory_take(&arrivals, arrivals_bytes);
    if (!result) d->arrivals = (uint32_t *)arrivals;
    if (!result) result = cuda->fill(arrivals, 0, arrivals_bytes, d->stream);
    ht_cuda_leave(d);
    return ht_cuda_check(cuda, result, err, d->name);
}

ht_status ht_shared_device_open(const ht_shared_device *how, ht_device **out, ht_error *err) {
    *out = NULL;
    ht_status status = ht_shared_device_check(how, err);
    const ht_cuda_driver *driver;
    if (!status) status = ht_cuda_driver_find(&driver, err);
    if (status) return status;
    ht_cuda_device *d = calloc(1, sizeof *d);
    if (!d) return ht_fail_memory(err, sizeof *d, "a GPU");
    d->driver = driver;
    d->host = how->host;
    d->base = (ht_device){.name = "cuda",
                          .instruction_set = d->name,
                          .memory = &d->memory,
                          .queue = &ht_cuda_queue,
                          .begin = begin,
                          .end = end,
                          .stages = &ht_cuda_stages,
                          .programs = &ht_cuda_programs,
                          .step_rows = STEP_ROWS,
                          .matrix_ops = ht_cuda_matrix_ops,
                          .head_ops = head_ops,
                          .kv = &ht_cuda_kv,
                          .top = &ht_cuda_top,
                          .n_threads = how->host->n_threads,
                          .run_on_host = run_on_host,
                          .row_ops = how->host->row_ops,
                          .round_weights = how->host->round_weights,
                          .measure = &ht_cuda_measure,
                          .destroy = destroy,
                          .refs = 1};
    pthread_mutex_init(&d->base.run_lock, NULL);
    pthread_mutex_init(&d->turn, NULL);
    pthread_mutex_init(&d->lock, NULL);
    ht_cuda_staging_init(&d->staging);
    ht_memory_init(&d->memory, "cuda", &ht_cuda_memory_ops, d, &d->base);
#define X(module) ht_cuda_##module##_kernels(d->base.kernels);
    HT_CUDA_OPERATIONS(X)
#undef X
    status = look_at(d, how->index, err);
    if (!status) status = take_hold(d, err);
    if (status) {
        d->host = NULL; /* is the caller's again */
        destroy(&d->base);
    } else {
        *out = &d->base;
    }
    return status;
}
