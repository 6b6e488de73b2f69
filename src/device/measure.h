/* Device measurement for benchmarks: a part of a device's function table. */
#ifndef HT_DEVICE_MEASURE_H
#define HT_DEVICE_MEASURE_H

#include "formats/weight_type.h"

#include <hearth/measure.h>

/* Measurements on all threads of the device. Rates are means over about `seconds` of wall-clock time. The caller does
 * not hold the pool's lease. */
typedef struct ht_measure_ops {
    double (*read)(ht_device *d, const void *memory, size_t bytes, double seconds); /* bytes per second */
    double (*compute)(ht_device *d, ht_arithmetic a, double seconds); /* operations per second; 0: not supported */
    /* The arithmetic of matrix products with weights of a type. */
    ht_arithmetic (*arithmetic)(const ht_device *d, ht_weight_type type, ht_precision precision);
    bool (*gpu)(ht_device *d, ht_gpu *out); /* NULL: it is none */
} ht_measure_ops;

#endif
