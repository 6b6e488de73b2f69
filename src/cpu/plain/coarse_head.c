/* Split heads for machines without a vector form, as in matrix_plain.c: in a file of its own because names inside the
 * sources are alike. */
#define HT_ISA reference
#include "cpu/vector/matrix_coarse_head.c"
