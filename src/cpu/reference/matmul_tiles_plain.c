/* Products in tiles over plain lanes: what those of a processor are compared with. */
#define HT_ISA tiles
#include "cpu/vector/matmul_tiles.c"
