/* Views of arrays and the record of a kernel's failure, as kernels and the host share them. For C and for CUDA C. */
#ifndef HT_CUDA_FAULT_H
#define HT_CUDA_FAULT_H

#include <hearth/dtype.h>

#include <stdbool.h>
#include <stdint.h>

/* A function of the host and of kernels. */
#ifdef __CUDACC__
#define HT_CUDA_BOTH static inline __host__ __device__
#else
#define HT_CUDA_BOTH static inline
#endif

enum { HT_CUDA_DIMS = 8 };

/* ht_view without the parts that only C compiles. */
typedef struct ht_cuda_view {
    void *data; /* memory of the device */
    ht_dtype dtype;
    int32_t n_dims;
    int64_t shape[HT_CUDA_DIMS], stride[HT_CUDA_DIMS];
} ht_cuda_view;

/* Error that a kernel found in a value. */
typedef enum ht_cuda_wrong {
    HT_CUDA_FINE = 0,
    HT_CUDA_INDEX, /* `value` at `position` is outside axis `axis` of `size` elements, or as the start of a slice, `length` */
    HT_CUDA_EXPERT,   /* expert `value` of row `position` is not below `size` */
    HT_CUDA_ROWS,     /* query `position` is at row `value` of a sequence that begins at row `length`, of `size` rows */
    HT_CUDA_SEQUENCE, /* row `position` is of a sequence that begins at row `value` */
} ht_cuda_wrong;

/* The first failure in queue order, at its lowest position; in device memory. */
typedef struct ht_cuda_fault {
    uint32_t lock;
    uint32_t wrong; /* ht_cuda_wrong */
    uint64_t mark;  /* of the kernel */
    int64_t position, value;
    int32_t op, axis;
    int64_t size, length;
} ht_cuda_fault;

/* Passed with a kernel's arguments, to report failures. */
typedef struct ht_cuda_reporter {
    ht_cuda_fault *fault; /* memory of the device */
    uint64_t mark;
    int32_t op; /* ht_op_id */
} ht_cuda_reporter;

#endif
