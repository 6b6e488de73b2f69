/* Random bits from a key, cumulative sums for categorical draws, and the elementwise functions of random
 * distributions. */
#include "base/dtype.h"
#include "base/error.h"
#include "base/math_drawn.h"
#include "cpu/element.h"
#include "cpu/reference/reference.h"
#include "cpu/strided_iterator.h"
#include "device/params.h"

#include <math.h>
#include <string.h>

/* Threefry-2x32 of 20 rounds [Salmon, Moraes, Dror, Shaw: Parallel random numbers, as easy as 1, 2, 3, 2011]: replaces
 * a pair of counters by a pair of random words. */
static void threefry(const uint32_t key[2], uint32_t pair[2]) {
    static const int rotations[8] = {13, 15, 26, 6, 17, 29, 16, 24};
    const uint32_t keys[3] = {key[0], key[1], key[0] ^ key[1] ^ 0x1BD11BDA};
    pair[0] += keys[0];
    pair[1] += keys[1];
    for (int round = 0; round < 20; round++) {
        const int by = rotations[round % 8];
        pair[0] += pair[1];
        pair[1] = (pair[1] << by | pair[1] >> (32 - by)) ^ pair[0];
        if (round % 4 != 3) continue;
        const int i = round / 4 + 1;
        pair[0] += keys[i % 3];
        pair[1] += keys[(i + 1) % 3] + (uint32_t)i;
    }
}

/* Word i of n. Counter pairs are (i, i + half); for odd n the middle word's second counter is 0. */
static uint32_t word_of(const uint32_t key[2], int64_t i, int64_t n) {
    const int64_t second = n / 2 + n % 2, first = i < second ? i : i - second;
    const bool middle = n % 2 == 1 && i == n / 2;
    uint32_t pair[2] = {(uint32_t)first, middle ? 0 : (uint32_t)(first + second)};
    threefry(key, pair);
    return pair[i >= second];
}

ht_status ht_plain_random_bits(const ht_call *call, ht_error *err) {
    (void)err;
    const ht_view *out = &call->out, *in = &call->in[0];
    const uint32_t key[2] = {((const uint32_t *)in->data)[0], ((const uint32_t *)in->data)[in->stride[0]]};
    const int64_t bytes = ht_view_size(out) * (int64_t)ht_dtype_bytes(out->dtype), n = (bytes + 3) / 4;
    for (int64_t i = 0; i < n; i++) {
        const uint32_t word = word_of(key, i, n);
        const float unit = fminf((float)word * 0x1p-32f, 0x1.fffffep-1f);
        const int64_t left = bytes - 4 * i;
        memcpy((char *)out->data + 4 * i, out->dtype == HT_F32 ? (const void *)&unit : &word,
               left < 4 ? (size_t)left : 4);
    }
    return HT_OK;
}

ht_status ht_plain_random_sums(const ht_call *call, ht_error *err) {
    (void)err;
    const ht_view *x = &call->in[0];
    const int last = x->n_dims - 1;
    const int64_t n = x->shape[last], rows = n > 0 ? ht_view_size(x) / n : 0;
    for (int64_t row = 0; row < rows; row++) {
        const float *from = (const float *)x->data + ht_view_offset(x, last, row);
        float *to = (float *)call->out.data + row * n, sum = 0.0f;
        for (int64_t i = 0; i < n; i++) to[i] = sum += ht_drawn_exp(from[i * x->stride[last]]);
    }
    return HT_OK;
}

static float drawn_of(ht_drawn_function f, float x) {
    switch (f) {
    case HT_DRAWN_LOG: return logf(x);
    case HT_DRAWN_LOG1P: return log1pf(x);
    case HT_DRAWN_ERF: return ht_drawn_erf(x);
    case HT_DRAWN_ERFINV: return ht_drawn_erfinv_of(x, logf(ht_drawn_erfinv_inner(x)));
    }
    return x;
}

static void drawn_span(const ht_call *call, const ht_strided_span *s) {
    const ht_drawn_params *p = call->params;
    const ht_dtype t = call->out.dtype;
    for (int64_t i = 0; i < s->n; i++)
        ht_set_f32(t, call->out.data, s->offset[0] + i,
                   drawn_of(p->function, ht_get_f32(t, call->in[0].data, s->offset[1] + i * s->stride[1])));
}

ht_status ht_plain_drawn(const ht_call *call, ht_error *err) {
    const ht_dtype t = call->out.dtype;
    if (t != HT_F32 && t != HT_F16 && t != HT_BF16)
        return ht_fail(err, HT_ERR_UNSUPPORTED, "drawn of %s is not defined: it takes f16, bf16 and f32",
                       ht_dtype_name(t));
    ht_strided_elementwise(call, HT_GRAIN_PLAIN, drawn_span);
    return HT_OK;
}
