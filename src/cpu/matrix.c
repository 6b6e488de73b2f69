#include "cpu/matrix.h"

#include "cpu/coarse_head.h"
#include "cpu/matrix_ops.h"

/* A head from this size on is split: several conversations in one step, which need all outputs, pay for it with the work of
 * joining the two parts, and gain nothing. */
enum { COARSE_HEAD_WEIGHTS = 64 << 20 };

/* In fast and in high precision. */
#define INTEGER_OPS(isa, type) [HT_W_##type] = {INTEGER_ROW(isa, type, false), INTEGER_ROW(isa, type, true)},
#define INTEGER_ROW(isa, type, is_high)                                                                                \
    {                                                                                                                  \
        .base = {#type " panels (" #isa ")", ht_panels_bytes, ht_panels_pack, ht_panels_row, NULL},                    \
        .takes_rows_once = true, .mul_scratch = ht_fast_scratch, .mul = ht_fast_mul,                                   \
        .kernels = &ht_matrix_kernels_##isa, .high = is_high,                                                          \
    }
#define DENSE_OPS(isa, type)                                                                                           \
    [HT_W_##type] = {                                                                                                  \
        .base = {#type " panels (" #isa ")", ht_panels_bytes, ht_panels_pack, ht_panels_row, NULL},                    \
        .mul_scratch = ht_dense_scratch,                                                                               \
        .mul = ht_dense_mul,                                                                                           \
        .kernels = &ht_matrix_kernels_##isa,                                                                           \
    },
#define F8_OPS(isa, type)                                                                                              \
    [HT_W_##type] = {                                                                                                  \
        .base = {#type " panels (" #isa ")", ht_panels_bytes, ht_panels_pack, ht_f8_row, NULL},                        \
        .mul_scratch = ht_dense_scratch,                                                                               \
        .mul = ht_dense_mul,                                                                                           \
        .kernels = &ht_matrix_kernels_##isa,                                                                           \
    },
#define REFERENCE_OPS(isa)                                                                                             \
    {                                                                                                                  \
        .base = {"as stored, in f32 (" #isa ")", ht_stored_bytes, ht_stored_pack, ht_stored_row, NULL},                \
        .mul_scratch = ht_reference_scratch, .mul = ht_reference_mul, .kernels = &ht_matrix_kernels_##isa,             \
    }

#define COARSE_HEAD_OPS(isa, is_high)                                                                                  \
    {                                                                                                                  \
        .base = {"Q8_0 coarse panels (" #isa ")", ht_coarse_head_bytes, ht_coarse_head_pack, ht_coarse_head_row,       \
                 ht_coarse_head_top_bytes},                                                                            \
        .takes_rows_once = true, .mul_scratch = ht_fast_scratch, .mul = ht_fast_mul,                                   \
        .kernels = &ht_matrix_kernels_##isa, .coarse_head = true, .high = is_high,                                     \
    }

#define TYPE_OPS_reference(type, ...) INTEGER_OPS(reference, type)
#define TYPE_OPS_neon(type, ...)      INTEGER_OPS(neon, type)
#define TYPE_OPS_i8mm(type, ...)      INTEGER_OPS(i8mm, type)
#define TYPE_OPS_avx2(type, ...)      INTEGER_OPS(avx2, type)
#define TYPE_OPS_avxvnni(type, ...)   INTEGER_OPS(avxvnni, type)
#define TYPE_OPS_avx512(type, ...)    INTEGER_OPS(avx512, type)

#define TABLE(isa, id, shared)                                                                                         \
    extern const ht_matrix_kernels ht_matrix_kernels_##isa;                                                            \
    static const ht_cpu_ops integer_##isa[HT_W_COUNT][2] = {                                                           \
        INTEGER_OPS(isa, F16) INTEGER_OPS(isa, BF16) HT_QUANTISED_TYPES(TYPE_OPS_##isa)                                \
            HT_UNPACKED_TYPES(TYPE_OPS_##isa) HT_AFFINE_TYPES(TYPE_OPS_##isa)};                                        \
    static const ht_cpu_ops dense_##isa[] = {DENSE_OPS(isa, F32) DENSE_OPS(isa, F16) DENSE_OPS(isa, BF16)              \
                                                 F8_OPS(isa, F8_E4M3) F8_OPS(isa, F8_E5M2)};                           \
    static const ht_cpu_ops reference_##isa = REFERENCE_OPS(isa);                                                      \
    static const ht_cpu_ops coarse_##isa[2] = {COARSE_HEAD_OPS(isa, false), COARSE_HEAD_OPS(isa, true)};

TABLE(reference, HT_CPU_REFERENCE, reference)
HT_EACH_ISA(TABLE)

/* Chooses the products of a weight type: in integers where kernels exist. 8-bit floats are always multiplied in f32,
 * from exact weights. */
static const ht_matrix_ops *choose(ht_weight_type type, ht_precision precision, const ht_matrix_kernels *kernels,
                                   const ht_cpu_ops (*integer)[2], const ht_cpu_ops *dense,
                                   const ht_cpu_ops *reference) {
    if (precision == HT_PRECISION_REFERENCE && !ht_weight_is_f8(type)) return &reference->base;
    const bool words = (type == HT_W_F16 || type == HT_W_BF16) && kernels->words.direct;
    if (!ht_panel_layout_of(type)->bits && !words) return &dense[type].base;
    return &integer[type][precision == HT_PRECISION_HIGH].base;
}

#define CHOOSE(isa) choose(type, precision, &ht_matrix_kernels_##isa, integer_##isa, dense_##isa, &reference_##isa)
#define CHOOSE_FOR(isa, id, shared)                                                                                    \
    case id: return CHOOSE(isa);

const ht_matrix_ops *ht_cpu_matrix_ops(ht_cpu_isa isa, ht_weight_type type, ht_precision precision) {
    switch (isa) {
        HT_EACH_ISA(CHOOSE_FOR)
    default: return CHOOSE(reference);
    }
}

#define COARSE_HEAD_FOR(isa, id, shared)                                                                               \
    case id: return &coarse_##isa[precision == HT_PRECISION_HIGH].base;

const ht_matrix_ops *ht_cpu_coarse_head_ops(ht_cpu_isa isa, ht_precision precision) {
    switch (isa) {
        HT_EACH_ISA(COARSE_HEAD_FOR)
    default: return &coarse_reference[precision == HT_PRECISION_HIGH].base;
    }
}

const ht_matrix_ops *ht_cpu_head_ops(ht_cpu_isa isa, ht_weight_type type, ht_precision precision, int64_t n_rows,
                                     int64_t k) {
    bool split = type == HT_W_Q8_0 && precision != HT_PRECISION_REFERENCE && n_rows * k >= COARSE_HEAD_WEIGHTS;
    return split ? ht_cpu_coarse_head_ops(isa, precision) : ht_cpu_matrix_ops(isa, type, precision);
}

bool ht_cpu_multiplies_words(ht_cpu_isa isa) {
    return ht_kernels_of(&(ht_matrix){.ops = ht_cpu_matrix_ops(isa, HT_W_BF16, HT_PRECISION_FAST)})->words.direct;
}
