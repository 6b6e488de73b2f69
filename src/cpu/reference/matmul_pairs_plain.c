/* Products of pairs of bf16 over plain lanes: what those of a processor are compared with. */
#define HT_ISA   pairs
#define HT_PAIRS 1
#include "cpu/vector/matmul.c"
