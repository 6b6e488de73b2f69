/* Measuring loops for machines without a vector form: the vector source over plain lanes. */
#define HT_ISA reference
#include "cpu/vector/measure.c"
