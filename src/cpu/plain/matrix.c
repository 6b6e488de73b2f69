/* Matrix kernels, measurement loops and logit scans without a vector unit: the vector sources over plain lanes. */
#define HT_ISA      reference
#define FETCH_AHEAD FETCH_AHEAD_DENSE /* defined by both sources */
#include "cpu/vector/matrix_f32.c"
#undef FETCH_AHEAD
#undef FUNCTIONS
#include "cpu/vector/matrix_int8.c"
#undef DIRECT
#undef DECODED
#include "cpu/vector/matrix_loss.c"
#include "cpu/vector/matrix_table.c"
#include "cpu/vector/measure.c"
#include "cpu/vector/quantise.c"
#include "cpu/vector/row.c"
