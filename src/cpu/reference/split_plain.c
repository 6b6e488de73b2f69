/* As matrix_plain.c, of split heads: in a file of its own because names inside the sources are alike. */
#define HT_ISA reference
#include "cpu/vector/matrix_split.c"
