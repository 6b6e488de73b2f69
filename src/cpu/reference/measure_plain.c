/* The measuring loops over plain lanes. */
#define HT_ISA reference
#include "cpu/vector/measure.c"
