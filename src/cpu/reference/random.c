/* Random bits from a key, cumulative sums for categorical draws, and the elementwise functions of random distributions. Bits
 * are Threefry-2x32 of 20 rounds (Salmon, Moraes, Dror, Shaw: Parallel random numbers, as easy as 1, 2, 3). Word i of the
 * first half and word i of the second come from one counter pair; for odd n the middle word's second counter is 0. */
#include "base/dtype.h"
#include "base/error.h"
#include "base/math_drawn.h"
#include "cpu/call.h"
#include "cpu/element.h"
#include "cpu/reference/reference.h"
#include "cpu/strided_iterator.h"
#include "device/params.h"

#include <math.h>
#include <string.h>

typedef struct bits_job {
    uint32_t key[3];
    int64_t pairs, second; /* word `second` + i is paired with word i */
    void *words;
} bits_job;

static inline uint32_t rotate_left(uint32_t x, int by) { return x << by | x >> (32 - by); }

#define ROUND(by)                                                                                                      \
    x += y;                                                                                                            \
    y = rotate_left(y, by) ^ x

/* Four rounds and a key injection. */
#define ROUNDS(a, b, c, d, k, l, i)                                                                                    \
    ROUND(a);                                                                                                          \
    ROUND(b);                                                                                                          \
    ROUND(c);                                                                                                          \
    ROUND(d);                                                                                                          \
    x += k;                                                                                                            \
    y += l + i

#define THREEFRY(first, second)                                                                                        \
    uint32_t x = (uint32_t)(first) + k0, y = (uint32_t)(second) + k1;                                                  \
    ROUNDS(13, 15, 26, 6, k1, k2, 1);                                                                                  \
    ROUNDS(17, 29, 16, 24, k2, k0, 2);                                                                                 \
    ROUNDS(13, 15, 26, 6, k0, k1, 3);                                                                                  \
    ROUNDS(17, 29, 16, 24, k1, k2, 4);                                                                                 \
    ROUNDS(13, 15, 26, 6, k2, k0, 5)

static inline float unit(uint32_t bits) {
    float u = (float)bits * 0x1p-32f;
    return u < 0x1.fffffep-1f ? u : 0x1.fffffep-1f;
}

/* One counter pair per lane, by autovectorisation. */
static void draw_bits(const uint32_t *key, uint32_t i, uint32_t j, int64_t n, uint32_t *restrict a,
                      uint32_t *restrict b) {
    const uint32_t k0 = key[0], k1 = key[1], k2 = key[2];
    for (int64_t k = 0; k < n; k++) {
        THREEFRY(i + (uint32_t)k, j + (uint32_t)k);
        a[k] = x;
        b[k] = y;
    }
}

static void draw_units(const uint32_t *key, uint32_t i, uint32_t j, int64_t n, float *restrict a, float *restrict b) {
    const uint32_t k0 = key[0], k1 = key[1], k2 = key[2];
    for (int64_t k = 0; k < n; k++) {
        THREEFRY(i + (uint32_t)k, j + (uint32_t)k);
        a[k] = unit(x);
        b[k] = unit(y);
    }
}

static void bits_block(void *arg, int64_t begin, int64_t end, int worker) {
    (void)worker;
    const bits_job *job = arg;
    uint32_t *words = job->words;
    draw_bits(job->key, (uint32_t)begin, (uint32_t)(begin + job->second), end - begin, words + begin,
              words + begin + job->second);
}

static void units_block(void *arg, int64_t begin, int64_t end, int worker) {
    (void)worker;
    const bits_job *job = arg;
    float *words = job->words;
    draw_units(job->key, (uint32_t)begin, (uint32_t)(begin + job->second), end - begin, words + begin,
               words + begin + job->second);
}

enum { PAIR_GRAIN = 4096 };

ht_status ht_plain_random_bits(const ht_call *call, ht_error *err) {
    (void)err;
    const ht_view *key = &call->in[0], *out = &call->out;
    const uint32_t *k = key->data;
    const int64_t bytes = ht_view_size(out) * (int64_t)ht_dtype_bytes(out->dtype), n = bytes / 4 + (bytes % 4 > 0);
    bits_job job = {.key = {k[0], k[key->stride[0]]}, .words = out->data};
    job.key[2] = job.key[0] ^ job.key[1] ^ 0x1BD11BDA;
    job.second = n / 2 + n % 2;
    job.pairs = n / 2 - (bytes % 4 > 0 && n > 1); /* without the pair of an incomplete last word */
    if (job.pairs > 0)
        ht_pool_run(ht_call_pool(call), job.pairs, PAIR_GRAIN, out->dtype == HT_F32 ? units_block : bits_block, &job);
    uint32_t word[2];
    char *to = out->data;
    if (n % 2 > 0) {
        draw_bits(job.key, (uint32_t)(n / 2), 0, 1, &word[0], &word[1]);
        const float u = unit(word[0]);
        memcpy(to + 4 * (n / 2), out->dtype == HT_F32 ? (const void *)&u : word, bytes < 4 ? (size_t)bytes : 4);
    }
    if (job.pairs < n / 2) {
        draw_bits(job.key, (uint32_t)job.pairs, (uint32_t)(job.pairs + job.second), 1, &word[0], &word[1]);
        memcpy(to + 4 * job.pairs, &word[0], 4);
        memcpy(to + 4 * (n - 1), &word[1], (size_t)(bytes % 4));
    }
    return HT_OK;
}

/* Exponentials are vectorised in blocks; the cumulative sum is sequential, since any other order rounds differently. */
static void add_exp(const float *x, int64_t stride, float *y, int64_t n) {
    enum { AT_A_TIME = 512 };
    float power[AT_A_TIME], sum = 0.0f;
    for (int64_t i = 0; i < n; i += AT_A_TIME) {
        const int some = n - i < AT_A_TIME ? (int)(n - i) : AT_A_TIME;
        for (int k = 0; k < some; k++) power[k] = ht_drawn_exp(x[(i + k) * stride]);
        for (int k = 0; k < some; k++) y[i + k] = sum += power[k];
    }
}

ht_status ht_plain_random_sums(const ht_call *call, ht_error *err) {
    (void)err;
    const ht_view *x = &call->in[0], *out = &call->out;
    const int last = x->n_dims - 1;
    const int64_t n = x->shape[last], rows = n > 0 ? ht_view_size(x) / n : 0;
    for (int64_t row = 0; row < rows; row++)
        add_exp((const float *)x->data + ht_view_offset(x, last, row), x->stride[last], (float *)out->data + row * n,
                n);
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
