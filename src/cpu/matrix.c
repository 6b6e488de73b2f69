#include "cpu/matrix.h"

#include "cpu/matrix_ops.h"
#include "cpu/split.h"

/* A head from this size on is split: several conversations in one step, which need all outputs, pay for it with the work of
 * joining the two parts, and gain nothing. */
enum { SPLIT_WEIGHTS = 64 << 20 };

#define QUANTISED_OPS(isa, type)                                                                                       \
    [HT_W_##type] = {{#type " panels (" #isa ")", true, ht_panels_bytes, ht_panels_pack, ht_panels_row,                \
                      ht_fast_scratch, ht_fast_mul, NULL, NULL},                                                       \
                     &ht_matrix_kernels_##isa,                                                                         \
                     false},
#define DENSE_OPS(type, isa)                                                                                           \
    [HT_W_##type] = {{#type " panels (" #isa ")", false, ht_panels_bytes, ht_panels_pack, ht_panels_row,               \
                      ht_dense_scratch, ht_dense_mul, NULL, NULL},                                                     \
                     &ht_matrix_kernels_##isa,                                                                         \
                     false},
#define HALF_OPS(type, isa)                                                                                            \
    [HT_W_##type] = {{#type " panels (" #isa ")", false, ht_panels_bytes, ht_panels_pack, ht_panels_row,               \
                      ht_half_scratch, ht_half_mul, NULL, NULL},                                                       \
                     &ht_matrix_kernels_##isa,                                                                         \
                     false},
#define F8_OPS(isa, type)                                                                                              \
    [HT_W_##type] = {{#type " panels (" #isa ")", false, ht_panels_bytes, ht_panels_pack, ht_f8_row, ht_dense_scratch, \
                      ht_dense_mul, NULL, NULL},                                                                       \
                     &ht_matrix_kernels_##isa,                                                                         \
                     false},
#define REFERENCE_OPS(isa)                                                                                             \
    {                                                                                                                  \
        {"as stored, in f32 (" #isa ")",                                                                               \
         false,                                                                                                        \
         ht_stored_bytes,                                                                                              \
         ht_stored_pack,                                                                                               \
         ht_stored_row,                                                                                                \
         ht_reference_scratch,                                                                                         \
         ht_reference_mul,                                                                                             \
         NULL,                                                                                                         \
         NULL},                                                                                                        \
            &ht_matrix_kernels_##isa, false                                                                            \
    }

#define SPLIT_OPS(isa)                                                                                                 \
    {                                                                                                                  \
        {"Q8_0 split panels (" #isa ")",                                                                               \
         true,                                                                                                         \
         ht_split_bytes,                                                                                               \
         ht_split_pack,                                                                                                \
         ht_split_row,                                                                                                 \
         ht_fast_scratch,                                                                                              \
         ht_fast_mul,                                                                                                  \
         ht_fast_mul_top,                                                                                              \
         ht_split_top_bytes},                                                                                          \
            &ht_matrix_kernels_##isa, true                                                                             \
    }

#define TABLE(isa, id)                                                                                                 \
    extern const ht_matrix_kernels ht_matrix_kernels_##isa;                                                            \
    static const ht_cpu_ops fast_##isa[HT_W_COUNT] = {                                                                 \
        DENSE_OPS(F32, isa) HALF_OPS(F16, isa) HALF_OPS(BF16, isa) QUANTISED_OPS(isa, Q4_0) QUANTISED_OPS(isa, Q4_1)   \
            QUANTISED_OPS(isa, Q5_0) QUANTISED_OPS(isa, Q5_1) QUANTISED_OPS(isa, Q8_0) QUANTISED_OPS(isa, Q2_K)        \
                QUANTISED_OPS(isa, Q3_K) QUANTISED_OPS(isa, Q4_K) QUANTISED_OPS(isa, Q5_K) QUANTISED_OPS(isa, Q6_K)    \
                    QUANTISED_OPS(isa, IQ4_NL) QUANTISED_OPS(isa, IQ4_XS) QUANTISED_OPS(isa, MXFP4)                    \
                        QUANTISED_OPS(isa, NVFP4) QUANTISED_OPS(isa, TQ2_0) QUANTISED_OPS(isa, TQ1_0)                  \
                            QUANTISED_OPS(isa, Q1_0) QUANTISED_OPS(isa, IQ1_S) QUANTISED_OPS(isa, IQ1_M)               \
                                QUANTISED_OPS(isa, IQ2_XXS) QUANTISED_OPS(isa, IQ2_XS) QUANTISED_OPS(isa, IQ2_S)       \
                                    QUANTISED_OPS(isa, IQ3_XXS) QUANTISED_OPS(isa, IQ3_S) F8_OPS(isa, F8_E4M3)         \
                                        F8_OPS(isa, F8_E5M2)};                                                         \
    static const ht_cpu_ops reference_##isa = REFERENCE_OPS(isa), split_##isa = SPLIT_OPS(isa);

TABLE(reference, HT_CPU_REFERENCE)
HT_EACH_ISA(TABLE)

/* Products with 8-bit floats are always in f32, from exact weights. */
#define CHOOSE(isa)                                                                                                    \
    precision == HT_PRECISION_REFERENCE && !ht_weight_is_f8(type) ? &reference_##isa.base : &fast_##isa[type].base
#define CHOOSE_FOR(isa, id)                                                                                            \
    case id: return CHOOSE(isa);

const ht_matrix_ops *ht_cpu_matrix_ops(ht_cpu_isa isa, ht_weight_type type, ht_precision precision) {
    switch (isa) {
        HT_EACH_ISA(CHOOSE_FOR)
    default: return CHOOSE(reference);
    }
}

#define SPLIT_FOR(isa, id)                                                                                             \
    case id: return &split_##isa.base;

const ht_matrix_ops *ht_cpu_split_ops(ht_cpu_isa isa) {
    switch (isa) {
        HT_EACH_ISA(SPLIT_FOR)
    default: return &split_reference.base;
    }
}

const ht_matrix_ops *ht_cpu_head_ops(ht_cpu_isa isa, ht_weight_type type, ht_precision precision, int64_t n_rows,
                                     int64_t k) {
    bool split = type == HT_W_Q8_0 && precision == HT_PRECISION_FAST && n_rows * k >= SPLIT_WEIGHTS;
    return split ? ht_cpu_split_ops(isa) : ht_cpu_matrix_ops(isa, type, precision);
}

bool ht_cpu_multiplies_words(ht_cpu_isa isa) {
    const ht_matrix_ops *ops = ht_cpu_matrix_ops(isa, HT_W_BF16, HT_PRECISION_FAST);
    return ((const ht_cpu_ops *)(const void *)ops)->kernels->words_of != NULL;
}
