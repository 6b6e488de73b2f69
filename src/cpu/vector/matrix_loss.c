/* Rows of logits, a slab of the vocabulary at a time: sums for their softmax, and gradients of the cross-entropy. */
#include "cpu/vector/matrix_loss.h"

#include "cpu/vector/exp_bounded.h"

#include <math.h>

HT_INLINE v16f capped(v16f x, float scale, float cap) {
    x = v16f_mul(x, v16f_set1(scale));
    return cap > 0 ? v16f_mul(v16f_set1(cap), v16f_tanh(v16f_mul(x, v16f_set1(1 / cap)))) : x;
}

HT_INLINE int lanes_of(int left) { return left < 16 ? left : 16; }

void HT_ISA_NAME(ht_loss_sums)(float *logits, int n, float scale, float cap, ht_loss_state *state) {
    v16f most = v16f_set1(state->max);
    for (int i = 0; i < n; i += 16) {
        const int lanes = lanes_of(n - i);
        const v16f x = capped(v16f_load_n(logits + i, lanes), scale, cap);
        v16f_store_n(logits + i, x, lanes);
        most = v16f_select(m16_first(lanes), v16f_max(x, most), most);
    }
    const float max = v16f_hmax(most);
    v16f sum = v16f_zero();
    for (int i = 0; i < n; i += 16) {
        const int lanes = lanes_of(n - i);
        const v16f p = v16f_exp_bounded(v16f_sub(v16f_load_n(logits + i, lanes), v16f_set1(max)));
        sum = v16f_add(sum, v16f_select(m16_first(lanes), p, v16f_zero()));
    }
    state->sum = state->sum * exp((double)state->max - (double)max) + (double)v16f_sum(sum);
    state->max = max;
}

void HT_ISA_NAME(ht_loss_gradients)(float *logits, int n, float scale, float cap, float lse, float factor, int target) {
    for (int i = 0; i < n; i += 16) {
        const int lanes = lanes_of(n - i);
        const v16f x = capped(v16f_load_n(logits + i, lanes), scale, cap);
        v16f p = v16f_exp_bounded(v16f_sub(x, v16f_set1(lse)));
        if (target >= i && target < i + 16)
            p = v16f_sub(p, v16f_select(m16_first(target - i + 1),
                                        v16f_select(m16_first(target - i), v16f_zero(), v16f_set1(1)), v16f_zero()));
        v16f g = v16f_mul(p, v16f_set1(factor * scale));
        if (cap > 0) { /* of cap tanh(x / cap): 1 - (y / cap)^2 */
            const v16f y = v16f_mul(x, v16f_set1(1 / cap));
            g = v16f_mul(g, v16f_fnma(y, y, v16f_set1(1)));
        }
        v16f_store_n(logits + i, g, lanes);
    }
}
