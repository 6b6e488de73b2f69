/* Operands for tests of kernels, in every layout and with extreme values, and comparing a kernel with the plain one. */
#ifndef TEST_OPERANDS_H
#define TEST_OPERANDS_H

#include "support/kernels.h"

/* How an operand lies in memory. */
typedef enum layout { CONTIGUOUS, SHIFTED, REVERSED_AXES, EVERY_SECOND, BACKWARDS, REPEATED, LAYOUT_COUNT } layout;

typedef struct operand {
    ht_view view;
    void *memory;
    int64_t room; /* elements of it */
} operand;

typedef enum values { ORDINARY, EXTREME, VALUES_COUNT } values;

/* An operand of the given shape with random elements, laid out in memory of its own, which the caller frees. */
operand test_operand(ht_dtype dtype, int n_dims, const int64_t *dim, layout how, values kind, uint64_t *state);
float test_value(values kind, uint64_t *state);

/* Equal, or both NaN, or for floats within `tolerance` of the larger of 1 and their size. */
bool test_alike(ht_dtype t, const void *a, const void *b, int64_t i, double tolerance);

typedef struct comparison {
    ht_op_id op;
    const void *params;
    int n_in;
    ht_view in[8], out; /* out.data is filled in */
    double tolerance;
    const char *what;
} comparison;

/* The kernel of every device and of 1 and 3 threads against the plain one's result; gives the status of them all. */
ht_status test_compare(const comparison *c);

typedef struct shape {
    int n_dims;
    int64_t dim[4];
} shape;

/* What tests go through. */
static const shape shapes[] = {
    {0, {0}},      {1, {0}},       {1, {1}},        {1, {15}},         {1, {16}},       {1, {17}},    {1, {63}},
    {1, {65}},     {1, {577}},     {2, {3, 0}},     {2, {0, 3}},       {2, {5, 1}},     {2, {1, 33}}, {2, {7, 31}},
    {2, {19, 64}}, {3, {3, 5, 7}}, {3, {2, 1, 17}}, {4, {2, 3, 4, 5}}, {2, {2, 20011}}, {1, {70001}},
};
static const ht_dtype float_types[] = {HT_F32, HT_F16, HT_BF16, HT_F64};
static const ht_dtype int_types[] = {HT_BOOL, HT_U8, HT_U16, HT_U32, HT_U64, HT_I8, HT_I16, HT_I32, HT_I64};
#define EACH(i, list)                                                                                                  \
    size_t i = 0;                                                                                                      \
    i < sizeof(list) / sizeof *(list);                                                                                 \
    i++

#endif
