#include "cpu/matrix.h"

#include "cpu/matrix_ops.h"

#define QUANTISED_OPS(type, isa)                                                                                       \
    [HT_W_##type] = {                                                                                                  \
        {#type " panels (" #isa ")", ht_panels_bytes, ht_panels_pack, ht_panels_row, ht_fast_scratch, ht_fast_mul},    \
        &ht_matrix_kernels_##isa},
#define DENSE_OPS(type, isa)                                                                                           \
    [HT_W_##type] = {                                                                                                  \
        {#type " panels (" #isa ")", ht_panels_bytes, ht_panels_pack, ht_panels_row, ht_dense_scratch, ht_dense_mul},  \
        &ht_matrix_kernels_##isa},
#define REFERENCE_OPS(isa)                                                                                             \
    {                                                                                                                  \
        {"as stored, in f32 (" #isa ")", ht_stored_bytes, ht_stored_pack, ht_stored_row,                               \
         ht_reference_scratch,           ht_reference_mul},                                                            \
            &ht_matrix_kernels_##isa                                                                                   \
    }

#define TABLE(isa)                                                                                                     \
    extern const ht_matrix_kernels ht_matrix_kernels_##isa;                                                            \
    static const ht_cpu_ops fast_##isa[HT_W_COUNT] = {                                                                 \
        DENSE_OPS(F32, isa) DENSE_OPS(F16, isa) DENSE_OPS(BF16, isa) QUANTISED_OPS(Q4_0, isa) QUANTISED_OPS(Q4_1, isa) \
            QUANTISED_OPS(Q5_0, isa) QUANTISED_OPS(Q5_1, isa) QUANTISED_OPS(Q8_0, isa) QUANTISED_OPS(Q2_K, isa)        \
                QUANTISED_OPS(Q3_K, isa) QUANTISED_OPS(Q4_K, isa) QUANTISED_OPS(Q5_K, isa) QUANTISED_OPS(Q6_K, isa)};  \
    static const ht_cpu_ops reference_##isa = REFERENCE_OPS(isa);

TABLE(reference)
#ifdef HT_HAVE_neon
TABLE(neon)
#endif
#ifdef HT_HAVE_avx2
TABLE(avx2)
#endif
#ifdef HT_HAVE_avx512
TABLE(avx512)
#endif

#define CHOOSE(isa) precision == HT_PRECISION_REFERENCE ? &reference_##isa.base : &fast_##isa[type].base

const ht_matrix_ops *ht_cpu_matrix_ops(ht_cpu_isa isa, ht_weight_type type, ht_precision precision) {
    switch (isa) {
#ifdef HT_HAVE_neon
    case HT_CPU_NEON: return CHOOSE(neon);
#endif
#ifdef HT_HAVE_avx2
    case HT_CPU_AVX2: return CHOOSE(avx2);
#endif
#ifdef HT_HAVE_avx512
    case HT_CPU_AVX512: return CHOOSE(avx512);
#endif
    default: return CHOOSE(reference);
    }
}
