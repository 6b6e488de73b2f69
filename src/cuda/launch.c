/* Launches: modules are loaded when the first of their kernels is needed. */
#include "base/checked.h"
#include "cuda/cuda.h"

#include <string.h>

/* The modules' binaries, embedded by the assembler (cmake/cuda.cmake). */
#define X(module) extern const unsigned char ht_cuda_swizzled_##module[];
HT_CUDA_MODULES(X)
#undef X

static const unsigned char *const images[HT_CUDA_MODULE_COUNT] = {
#define X(module) [HT_CUDA_MODULE_##module] = ht_cuda_swizzled_##module,
    HT_CUDA_MODULES(X)
#undef X
};

static const struct {
    ht_cuda_module_id module;
    const char *name;
} kernels[HT_CUDA_KERNEL_COUNT] = {
#define X(module, kernel) [HT_CUDA_ID_##kernel] = {HT_CUDA_MODULE_##module, #kernel},
    HT_CUDA_KERNELS(X)
#undef X
};

static ht_status find(ht_cuda_device *d, ht_cuda_kernel_id id, ht_error *err) {
    const ht_cuda_module_id module = kernels[id].module;
    CUresult result = CUDA_SUCCESS;
    if (!d->module[module]) result = d->driver->module_load(&d->module[module], images[module]);
    if (!result) result = d->driver->module_function(&d->function[id], d->module[module], kernels[id].name);
    return ht_cuda_check(d->driver, result, err, kernels[id].name);
}

/* More than 48 KB of shared memory per block, static memory included, must be requested. */
enum { FREE_SHARED_BYTES = 32 << 10 };

static CUresult ask_for_shared(ht_cuda_device *d, ht_cuda_kernel_id kernel, unsigned bytes) {
    if (bytes <= FREE_SHARED_BYTES || bytes <= d->shared_bytes[kernel]) return CUDA_SUCCESS;
    const CUresult result =
        d->driver->function_set(d->function[kernel], CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, (int)bytes);
    if (!result) d->shared_bytes[kernel] = bytes;
    return result;
}

ht_status ht_cuda_launch(ht_cuda_device *d, ht_cuda_kernel_id kernel, const ht_cuda_shape *shape, const void *arguments,
                         ht_error *err) {
    enum { FIRST_DEPENDENT_MAJOR = 9 };
    const unsigned *g = shape->grid, *b = shape->block;
    void *parameters[] = {(void *)arguments}; /* which are only read */
    ht_status status = d->function[kernel] ? HT_OK : find(d, kernel, err);
    if (!status) {
        /* Blocks start while the previous kernel runs, and wait for it themselves (cuda/kernel.cuh). */
        CUlaunchAttribute attributes[] = {
            {.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
             .value.programmaticStreamSerializationAllowed = 1},
            {.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, .value.clusterDim = {shape->cluster, 1, 1}}};
        const CUlaunchConfig config = {.gridDimX = g[0] ? g[0] : 1,
                                       .gridDimY = g[1] ? g[1] : 1,
                                       .gridDimZ = g[2] ? g[2] : 1,
                                       .blockDimX = b[0] ? b[0] : 1,
                                       .blockDimY = b[1] ? b[1] : 1,
                                       .blockDimZ = b[2] ? b[2] : 1,
                                       .sharedMemBytes = shape->shared_bytes,
                                       .hStream = d->stream,
                                       .attrs = attributes,
                                       .numAttrs = d->major < FIRST_DEPENDENT_MAJOR ? 0
                                                   : shape->cluster > 1             ? 2
                                                                                    : 1};
        CUresult result = ask_for_shared(d, kernel, shape->shared_bytes);
        if (!result) result = d->driver->launch(&config, d->function[kernel], parameters, NULL);
        status = ht_cuda_check(d->driver, result, err, kernels[kernel].name);
    }
    if (!status) atomic_fetch_add_explicit(&d->submitted, 1, memory_order_relaxed);
    return status;
}

unsigned ht_cuda_blocks(const ht_cuda_device *d, int64_t n) {
    enum { OF_MULTIPROCESSOR = 16 };
    return (unsigned)ht_min_i64(n, (int64_t)d->multiprocessors * OF_MULTIPROCESSOR);
}

ht_status ht_cuda_launch_threads(ht_cuda_device *d, ht_cuda_kernel_id kernel, int64_t n, const void *arguments,
                                 ht_error *err) {
    enum { THREADS = 256 };
    const ht_cuda_shape shape = {.grid = {ht_cuda_blocks(d, ht_ceil_div_i64(n, THREADS))}, .block = {THREADS}};
    return n ? ht_cuda_launch(d, kernel, &shape, arguments, err) : HT_OK;
}

void *ht_cuda_take(ht_cuda_scratch *s, size_t bytes) {
    enum { ALIGN = 1024 };
    void *p = s->at ? s->at + s->bytes : NULL;
    s->bytes += (bytes + ALIGN - 1) / ALIGN * ALIGN;
    return p;
}

ht_cuda_reporter ht_cuda_report(ht_cuda_device *d, ht_op_id op) {
    d->may_have_failed = true;
    return (ht_cuda_reporter){
        .fault = d->fault, .mark = atomic_load_explicit(&d->submitted, memory_order_relaxed) + 1, .op = (int32_t)op};
}

ht_cuda_view ht_cuda_view_of(const ht_view *v) {
    ht_cuda_view out = {.data = v->data, .dtype = v->dtype, .n_dims = v->n_dims};
    if (v->n_dims > 0) {
        memcpy(out.shape, v->shape, (size_t)v->n_dims * sizeof *v->shape);
        memcpy(out.stride, v->stride, (size_t)v->n_dims * sizeof *v->stride);
    }
    return out;
}

ht_view ht_cuda_contiguous(const ht_view *shape, void *data) {
    ht_view v = *shape;
    int64_t stride = 1;
    v.data = data;
    for (int i = v.n_dims - 1; i >= 0; i--) {
        v.stride[i] = stride;
        stride *= v.shape[i];
    }
    return v;
}
