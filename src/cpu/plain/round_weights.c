/* Rounding of weights without a vector unit: the vector source over plain lanes. */
#define HT_ISA reference
#include "cpu/vector/round_weights.c"
