#include "device/kernel.h"

bool ht_view_has_rows(const ht_view *x, int64_t *ld) {
    const int last = x->n_dims - 1;
    if (x->dtype != HT_F32 || (x->shape[last] > 1 && x->stride[last] != 1)) return false;
    *ld = x->shape[last];
    int64_t expected = 0;
    for (int d = last - 1; d >= 0; d--) {
        if (x->shape[d] == 1) continue;
        if (expected == 0) {
            if (x->stride[d] < 0) return false;
            *ld = x->stride[d];
        } else if (x->stride[d] != expected)
            return false;
        expected = x->stride[d] * x->shape[d];
    }
    return true;
}
