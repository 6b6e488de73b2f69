/* Coarse heads without a vector unit: the vector source over plain lanes. Its static names collide with those of
 * matrix.c. */
#define HT_ISA reference
#include "cpu/vector/matrix_coarse_head.c"
