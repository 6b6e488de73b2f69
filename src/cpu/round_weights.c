#include "cpu/round_weights.h"

#define CALL(name, id, shared)                                                                                         \
    case id: return ht_round_weights_##shared(type, x, n, k, importance, blocks);
bool ht_round_weights(ht_cpu_isa isa, ht_weight_type type, const float *x, int64_t n, int64_t k,
                      const float *importance, void *blocks) {
    switch (isa) {
        HT_EACH_ISA(CALL)
    default: return ht_round_weights_reference(type, x, n, k, importance, blocks);
    }
}
