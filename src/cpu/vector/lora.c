/* Products of adapters: small f32 matrices, multiplied where they are (cpu/lora.h). */
#include "cpu/lora.h"

#include "cpu/vector/panel.h"
#include "cpu/vector/vector.h"

enum { CHAINS = 4 };

/* Partial sums of n chunks of `steps` columns each, from column `begin` on, added to `low` in order. */
HT_INLINE v16f add_chunks(const ht_lora_down *d, int64_t begin, int n, int64_t steps, v16f low) {
    const float *x = d->x + begin, *a = d->a + begin * d->a_row;
    const int64_t a_row = d->a_row, a_chunk = HT_LORA_CHUNK * a_row;
    v16f sum[CHAINS];
    HT_UNROLL
    for (int c = 0; c < n; c++) sum[c] = v16f_zero();
    for (int64_t s = 0; s < steps; s++) {
        HT_UNROLL
        for (int c = 0; c < n; c++)
            sum[c] = v16f_fma(v16f_set1(x[c * HT_LORA_CHUNK + s]), v16f_load(a + c * a_chunk + s * a_row), sum[c]);
    }
    HT_UNROLL
    for (int c = 0; c < n; c++) low = begin || c ? v16f_add(low, sum[c]) : sum[c];
    return low;
}

/* One row of one panel: several chunks at once, which do not wait for each other's multiply-adds. */
static void down_row(const ht_lora_down *d) {
    int64_t begin = 0;
    v16f low = v16f_zero();
    for (; begin + CHAINS * HT_LORA_CHUNK <= d->n_in; begin += CHAINS * HT_LORA_CHUNK)
        low = add_chunks(d, begin, CHAINS, HT_LORA_CHUNK, low);
    for (; begin < d->n_in; begin += HT_LORA_CHUNK) {
        const int64_t left = d->n_in - begin;
        low = add_chunks(d, begin, 1, left < HT_LORA_CHUNK ? left : HT_LORA_CHUNK, low);
    }
    v16f_store_n(d->low, low, (int)d->ranks);
}

static void down(const ht_lora_down *d) {
    if (d->n == 1 && d->ranks <= 16) {
        down_row(d);
        return;
    }
    HT_ISA_NAME(ht_panel_multiply)
    (&(panel_product){.left = {d->x, d->x_row, 1},
                      .b = d->a,
                      .b_step = d->a_row,
                      .b_panel = 16,
                      .c = d->low,
                      .c_row = HT_LORA_RANKS,
                      .m = d->n,
                      .n = d->ranks,
                      .k = d->n_in,
                      .chunk = HT_LORA_CHUNK,
                      .mode = PANEL_SET});
}

static void up(const ht_lora_up *u) {
    HT_ISA_NAME(ht_panel_multiply)
    (&(panel_product){.left = {u->low, HT_LORA_RANKS, 1},
                      .b = u->b,
                      .b_step = u->b_row,
                      .b_panel = 16,
                      .c = u->y,
                      .c_row = u->y_row,
                      .m = u->n,
                      .n = u->n_out,
                      .k = u->ranks,
                      .mode = PANEL_ADD});
}

static ht_status lora(const ht_call *call, ht_error *err) {
    static const ht_lora_products products = {down, up, HT_ISA_NAME(ht_vector_make_contiguous)};
    return ht_cpu_lora(call, &products, err);
}

void HT_ISA_NAME(ht_vector_lora)(ht_kernel kernels[HT_OP_COUNT]) {
    kernels[HT_OP_LORA] = (ht_kernel){.run = lora, .scratch = ht_cpu_lora_scratch};
}
