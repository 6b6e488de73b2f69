/* Measurement loops without a vector unit: the vector source over plain lanes. */
#define HT_ISA reference
#include "cpu/vector/measure.c"
