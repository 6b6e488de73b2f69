/* Measurement loops of one instruction set: arithmetic in registers, and memory reads. */
#ifndef HT_CPU_VECTOR_MEASURE_H
#define HT_CPU_VECTOR_MEASURE_H

#include "cpu/vector/simd.h"

#include <stddef.h>

/* Arithmetic loops; each returns the number of operations done. */
double HT_ISA_NAME(ht_int8_loop)(int64_t iterations);
double HT_ISA_NAME(ht_int16_loop)(int64_t iterations); /* 0 without 16-bit dot products */
double HT_ISA_NAME(ht_f32_loop)(int64_t iterations);
void HT_ISA_NAME(ht_read_loop)(const char *memory, size_t bytes);

#endif
