/* The loop of matmul_pairs_plain.c. */
#define HT_ISA   pairs
#define HT_PAIRS 1
#include "cpu/vector/panel.c"
