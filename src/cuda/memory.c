/* The device's memory: allocation and copies, in the order of the stream. What goes through page-locked memory is cuda/staging.h's. */
#include "base/error.h"
#include "cuda/cuda.h"

static void *take(void *user, size_t bytes) {
    ht_cuda_device *d = user;
    CUdeviceptr p = 0;
    ht_cuda_enter(d);
    const CUresult result = d->driver->memory_take(&p, bytes);
    ht_cuda_leave(d);
    return result == CUDA_SUCCESS ? (void *)p : NULL;
}

static void give_back(void *user, void *p, size_t bytes) {
    (void)bytes;
    ht_cuda_device *d = user;
    ht_cuda_enter(d);
    (void)d->driver->stream_wait(d->stream);
    (void)d->driver->memory_give_back((CUdeviceptr)p);
    ht_cuda_leave(d);
}

static ht_status write_bytes(void *user, void *to, const void *from, size_t bytes, ht_error *err) {
    return bytes ? ht_cuda_staged_write(user, to, from, bytes, err) : HT_OK;
}

static ht_status read_bytes(void *user, void *to, const void *from, size_t bytes, ht_error *err) {
    ht_cuda_device *d = user;
    const ht_status status = bytes ? ht_cuda_staged_read(d, to, from, bytes, err) : HT_OK;
    const ht_status lost = ht_cuda_lost(d, err);
    return lost ? lost : status;
}

static void *take_host(void *user, size_t bytes) {
    ht_cuda_device *d = user;
    void *p = NULL;
    ht_cuda_enter(d);
    const CUresult result = d->driver->host_take(&p, bytes, 0);
    ht_cuda_leave(d);
    return result == CUDA_SUCCESS ? p : NULL;
}

static void give_back_host(void *user, void *p) {
    ht_cuda_device *d = user;
    ht_cuda_enter(d);
    (void)d->driver->host_give_back(p);
    ht_cuda_leave(d);
}

static ht_status fetch(void *user, void *to, const void *from, size_t bytes, ht_error *err) {
    ht_cuda_device *d = user;
    if (bytes == 0) return HT_OK;
    ht_cuda_enter(d);
    const ht_status status =
        ht_cuda_note(d, d->driver->copy_from(to, (CUdeviceptr)from, bytes, d->stream), err, "copying from the GPU");
    ht_cuda_leave(d);
    return status;
}

static ht_status copy_bytes(void *user, void *to, const void *from, size_t bytes, ht_error *err) {
    ht_cuda_device *d = user;
    if (bytes == 0) return HT_OK;
    ht_cuda_enter(d);
    const ht_status status = ht_cuda_note(d, d->driver->copy((CUdeviceptr)to, (CUdeviceptr)from, bytes, d->stream), err,
                                          "copying on the GPU");
    ht_cuda_leave(d);
    return status;
}

static ht_status fill(void *user, void *to, int byte, size_t bytes, ht_error *err) {
    ht_cuda_device *d = user;
    if (bytes == 0) return HT_OK;
    ht_cuda_enter(d);
    const ht_status status =
        ht_cuda_note(d, d->driver->fill((CUdeviceptr)to, (unsigned char)byte, bytes, d->stream), err, "filling memory");
    ht_cuda_leave(d);
    return status;
}

static bool left(void *user, size_t *bytes) {
    const ht_cuda_device *d = user;
    size_t all;
    ht_cuda_enter(d);
    const CUresult result = d->driver->memory_info(bytes, &all);
    ht_cuda_leave(d);
    return result == CUDA_SUCCESS;
}

const ht_memory_ops ht_cuda_memory_ops = {
    .take = take,
    .give_back = give_back,
    .write = write_bytes,
    .read = read_bytes,
    .copy = copy_bytes,
    .fill = fill,
    .left = left,
    .take_host = take_host,
    .give_back_host = give_back_host,
    .fetch = fetch,
};
