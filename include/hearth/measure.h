/* Roofline measurements: the measured peaks of a device, and the bytes and operations of a model's token. Their ratio
 * is the used share of the machine; docs/performance.md explains it.
 *
 * The speed of a shared machine varies by the second. So divide a speed by a peak measured next to it, not by one
 * from yesterday. */
#ifndef HEARTH_MEASURE_H
#define HEARTH_MEASURE_H

#include <hearth/model.h>

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- the machine ---- */

typedef struct ht_instruction_set {
    const char *name;  /* as ht_device_options takes it */
    const char *needs; /* required processor features: "AVX2, FMA, F16C, BMI2" */
    bool built_in;     /* this build of Hearth has kernels for it */
    bool machine_has;  /* processor and operating system support it; false for another architecture's */
    bool best;         /* default of a CPU device: the last one with both */
} ht_instruction_set;

/* All that Hearth knows of, worst first, never freed; *n is their number. */
HT_API const ht_instruction_set *ht_instruction_sets(int *n);

/* Free memory in bytes, within the limits of control groups; ht_model_load compares a model with it. False, and 0,
 * if unknown. */
HT_API bool ht_memory_available(size_t *bytes);

/* An NVIDIA GPU, as its driver describes it. */
typedef struct ht_gpu {
    char name[128];             /* "NVIDIA H100 80GB HBM3" */
    char driver[64];            /* its version, "550.54.15"; "" when the system does not say */
    int major, minor;           /* compute capability: 9 and 0 */
    int cuda_major, cuda_minor; /* CUDA version of the driver */
    int multiprocessors;
    size_t memory_bytes, memory_free_bytes; /* now */
} ht_gpu;

/* Properties of an open GPU. False, and zeros, for another device, and when the driver does not answer. */
HT_API bool ht_device_gpu(ht_device *d, ht_gpu *out);

/* ---- peaks ---- */

/* How products are computed. */
typedef enum ht_arithmetic {
    HT_ARITHMETIC_INT8, /* products of bytes, 32-bit sums: quantised weights */
    /* Products of 16 bits, 32-bit sums, where the device has a unit for them: f16 and bf16 weights, and quantised
     * weights in high precision. */
    HT_ARITHMETIC_INT16,
    HT_ARITHMETIC_F32, /* everything else */
    HT_ARITHMETIC_F16  /* products of f16, f32 sums, of a GPU's tensor cores: all weights but those of f32 */
} ht_arithmetic;
/* Number of kinds; a later library may have more. */
enum { HT_ARITHMETICS = 4 };

HT_API const char *ht_arithmetic_name(ht_arithmetic a); /* "int8", "int16", "f32", "f16" */

typedef struct ht_meter ht_meter;

/* A meter with `bytes` of memory to read, allocated as weights are (0: none; it can then only compute). Choose the
 * size of the weights to compare with: data that fits a cache is read faster. HT_ERR_UNSUPPORTED for a device that
 * cannot measure. The meter holds the device; it belongs to one thread at a time. */
HT_API ht_status ht_meter_new(ht_device *d, size_t bytes, ht_meter **out, ht_error *err);
HT_API void ht_meter_free(ht_meter *m); /* NULL is fine */

/* Both occupy all threads of the device for about `seconds` and return the mean over that wall-clock time. */

/* Bytes per second of reading the meter's memory front to back, over and over; 0 without memory. */
HT_API double ht_meter_read(ht_meter *m, double seconds);
/* Operations per second, a multiplication and an addition being two, with all operands in registers, or without
 * a GPU's tensor cores; 0 when the device has no unit for it. */
HT_API double ht_meter_compute(ht_meter *m, ht_arithmetic a, double seconds);

/* ---- cost of a model ---- */

/* For a loaded model, on its device: matrix products only, without norms, attention and its keys and values. */

/* Bytes that a decoded token reads: every matrix of its products, as packed, output head included; not an embedding
 * of which it looks up one row. `greedy`: only the most likely token is needed. Part of some heads then shows which
 * logits need not be computed; the few rows that must be are not counted. */
HT_API int64_t ht_model_token_bytes(const ht_model *m, bool greedy);
/* Multiply-adds that the device does in an arithmetic (two for a weight where high precision takes two bytes): of a
 * token in the layers; and of a token whose logits are asked for in the head, and in layers that only such tokens go
 * through. */
HT_API int64_t ht_model_layer_products(const ht_model *m, ht_arithmetic a);
HT_API int64_t ht_model_head_products(const ht_model *m, ht_arithmetic a);

#ifdef __cplusplus
}
#endif
#endif
