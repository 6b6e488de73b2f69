/* Products in tiles over plain lanes: what those of a processor are compared with. */
#define HT_ISA reference
#include "cpu/vector/matmul_bf16.c"
