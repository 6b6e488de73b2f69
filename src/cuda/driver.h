/* The CUDA driver's functions, found at run time: the library neither links nor requires a driver. */
#ifndef HT_CUDA_DRIVER_H
#define HT_CUDA_DRIVER_H

#include <hearth/status.h>

#include <cuda.h>

/* X(field, symbol): a field of ht_cuda_driver and its driver function, in the version that <cuda.h> declares. */
#define HT_CUDA_FUNCTIONS(X)                                                                                           \
    X(init, cuInit)                                                                                                    \
    X(error_name, cuGetErrorName)                                                                                      \
    X(error_text, cuGetErrorString)                                                                                    \
    X(version, cuDriverGetVersion)                                                                                     \
    X(device_count, cuDeviceGetCount)                                                                                  \
    X(device_get, cuDeviceGet)                                                                                         \
    X(device_name, cuDeviceGetName)                                                                                    \
    X(device_attribute, cuDeviceGetAttribute)                                                                          \
    X(context_retain, cuDevicePrimaryCtxRetain)                                                                        \
    X(context_release, cuDevicePrimaryCtxRelease)                                                                      \
    X(context_push, cuCtxPushCurrent)                                                                                  \
    X(context_pop, cuCtxPopCurrent)                                                                                    \
    X(module_load, cuModuleLoadData)                                                                                   \
    X(module_unload, cuModuleUnload)                                                                                   \
    X(module_function, cuModuleGetFunction)                                                                            \
    X(function_set, cuFuncSetAttribute)                                                                                \
    X(launch, cuLaunchKernelEx)                                                                                        \
    X(stream_create, cuStreamCreate)                                                                                   \
    X(stream_destroy, cuStreamDestroy)                                                                                 \
    X(stream_wait, cuStreamSynchronize)                                                                                \
    X(memory_take, cuMemAlloc)                                                                                         \
    X(memory_give_back, cuMemFree)                                                                                     \
    X(memory_info, cuMemGetInfo)                                                                                       \
    X(host_take, cuMemHostAlloc)                                                                                       \
    X(host_give_back, cuMemFreeHost)                                                                                   \
    X(event_create, cuEventCreate)                                                                                     \
    X(event_destroy, cuEventDestroy)                                                                                   \
    X(event_record, cuEventRecord)                                                                                     \
    X(event_query, cuEventQuery)                                                                                       \
    X(event_wait, cuEventSynchronize)                                                                                  \
    X(copy_to, cuMemcpyHtoDAsync)                                                                                      \
    X(copy_from, cuMemcpyDtoHAsync)                                                                                    \
    X(copy, cuMemcpyDtoDAsync)                                                                                         \
    X(fill, cuMemsetD8Async)

typedef struct ht_cuda_driver {
#define X(member, symbol) __typeof__(&symbol) member;
    HT_CUDA_FUNCTIONS(X)
#undef X
} ht_cuda_driver;

/* The machine's driver, initialised and valid for the rest of the process. HT_ERR_UNSUPPORTED, with the reason, if
 * there is none. */
ht_status ht_cuda_driver_find(const ht_cuda_driver **out, ht_error *err);

/* The status of a driver call: HT_OK, HT_ERR_MEMORY if the device is out of memory, else HT_ERR_INTERNAL. The message
 * is `what`, then the driver's text. */
ht_status ht_cuda_check(const ht_cuda_driver *driver, CUresult result, ht_error *err, const char *what);

#endif
