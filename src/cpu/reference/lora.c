/* Products of adapters, in the order of cpu/lora.h but for rounding between a product and its sum. */
#include "cpu/lora.h"

#include "base/checked.h"
#include "cpu/call.h"
#include "cpu/reference/reference.h"
#include "cpu/reference/strided_copy.h"

static void down(const ht_lora_down *d) {
    for (int64_t i = 0; i < d->n; i++) {
        float *low = d->low + i * HT_LORA_RANKS;
        for (int64_t r = 0; r < d->ranks; r++) low[r] = 0;
        for (int64_t begin = 0; begin < d->n_in; begin += HT_LORA_CHUNK) {
            const int64_t end = ht_min_i64(d->n_in, begin + HT_LORA_CHUNK);
            float sum[HT_LORA_RANKS] = {0};
            for (int64_t k = begin; k < end; k++)
                for (int64_t r = 0; r < d->ranks; r++) sum[r] += d->x[i * d->x_row + k] * d->a[k * d->a_row + r];
            for (int64_t r = 0; r < d->ranks; r++) low[r] = begin ? low[r] + sum[r] : sum[r];
        }
    }
}

static void up(const ht_lora_up *u) {
    for (int64_t i = 0; i < u->n; i++)
        for (int64_t j = 0; j < u->n_out; j++) {
            float sum = 0;
            for (int64_t r = 0; r < u->ranks; r++) sum += u->low[i * HT_LORA_RANKS + r] * u->b[r * u->b_row + j];
            u->y[i * u->y_row + j] += sum;
        }
}

static void copy(const ht_view *from, const ht_view *to, struct ht_device *d) {
    ht_strided_copy(ht_device_pool(d), to, from);
}

ht_status ht_plain_lora(const ht_call *call, ht_error *err) {
    static const ht_lora_products products = {down, up, copy};
    return ht_cpu_lora(call, &products, err);
}

size_t ht_plain_lora_scratch(const ht_call *call) { return ht_cpu_lora_scratch(call); }
