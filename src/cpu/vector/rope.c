/* Rotary position embedding of f32, f16 or bf16 heads. A row's angles are computed once in f64, its sines and cosines
 * in f32, sixteen at a time, for all heads. */
#include "cpu/call.h"
#include "cpu/element.h"
#include "cpu/reference/reference.h"
#include "cpu/strided_iterator.h"
#include "cpu/vector/lanes.h"
#include "cpu/vector/math.h"
#include "cpu/vector/vector.h"
#include "device/params.h"

#include <math.h>

/* Scratch: the frequency of each pair (f64), then per thread the cosines and sines of one row, all padded to sixteen
 * pairs. */
typedef struct rope_job {
    const ht_call *call;
    double *frequency;
    float *turns;
    int64_t pairs, padded;
} rope_job;

static int64_t padded_pairs(const ht_call *call) {
    return (((const ht_rope_params *)call->params)->dims / 2 + 15) / 16 * 16;
}

static size_t rope_scratch(const ht_call *call) {
    return (size_t)padded_pairs(call) *
           (sizeof(double) + (size_t)ht_pool_threads(ht_call_pool(call)) * 2 * sizeof(float));
}

/* theta^(-2 i / dims) by repeated multiplication; the error stays within some hundred ulp of an f64. */
static void fill_frequencies(const rope_job *job) {
    const ht_rope_params *p = job->call->params;
    const ht_view *factors = &job->call->in[2];
    double ratio = pow((double)p->theta, -2.0 / p->dims), f = (double)p->scale;
    for (int64_t i = 0; i < job->padded; i++) {
        job->frequency[i] = i < job->pairs ? f : 0.0;
        f *= ratio;
    }
    if (job->call->n_in > 2 && !ht_view_absent(factors))
        for (int64_t i = 0; i < job->pairs; i++)
            job->frequency[i] /= ht_get_f64(factors->dtype, factors->data, i * factors->stride[0]);
}

static void fill_rotations(const rope_job *job, double position, float *cosine, float *sine) {
    v16f magnitude = v16f_set1(((const ht_rope_params *)job->call->params)->magnitude);
    for (int64_t i = 0; i < job->padded; i += 16) {
        float rest[16];
        int32_t quarters[16];
        for (int k = 0; k < 16; k++) { /* ht_reduce_angle, in a form that compilers vectorise */
            double angle = position * job->frequency[i + k];
            double sum = __builtin_fma(angle, HT_TWO_OVER_PI, HT_ROUND_MAGIC), n = sum - HT_ROUND_MAGIC;
            double r = __builtin_fma(-n, HT_HALF_PI_HIGH, angle);
            rest[k] = (float)__builtin_fma(-n, HT_HALF_PI_LOW, r);
            quarters[k] = (int32_t)n;
        }
        v16f s, c;
        v16f_sincos_reduced(v16f_load(rest), v16i_load(quarters), &s, &c);
        v16f_store(cosine + i, v16f_mul(c, magnitude));
        v16f_store(sine + i, v16f_mul(s, magnitude));
    }
}

/* Rotates one f32 head whose pairs are (i, i + pairs). */
static void rotate_halves(const float *x, float *out, const float *cosine, const float *sine, int64_t pairs) {
    for (int64_t i = 0; i < pairs; i += 16) {
        int n = lanes_count(pairs - i);
        v16f a = v16f_load_n(x + i, n), b = v16f_load_n(x + pairs + i, n);
        v16f c = v16f_load(cosine + i), s = v16f_load(sine + i);
        v16f_store_n(out + i, v16f_fnma(b, s, v16f_mul(a, c)), n);
        v16f_store_n(out + pairs + i, v16f_fma(a, s, v16f_mul(b, c)), n);
    }
}

/* rotate_halves for any dtype. */
static void rotate_halves_of(ht_dtype t, const void *x, int64_t at, void *out, int64_t to, const float *cosine,
                             const float *sine, int64_t pairs) {
    for (int64_t i = 0; i < pairs; i += 16) {
        int n = lanes_count(pairs - i);
        v16f a = lanes_load(t, x, at + i, 1, n), b = lanes_load(t, x, at + pairs + i, 1, n);
        v16f c = v16f_load(cosine + i), s = v16f_load(sine + i);
        lanes_store(t, out, to + i, v16f_fnma(b, s, v16f_mul(a, c)), n);
        lanes_store(t, out, to + pairs + i, v16f_fma(a, s, v16f_mul(b, c)), n);
    }
}

/* Rotates one head of any stride or pairing, with the same operations one by one. */
static void rotate_pairs(const rope_job *job, const void *x, int64_t at, int64_t stride, int64_t to,
                         const float *cosine, const float *sine) {
    bool interleaved = ((const ht_rope_params *)job->call->params)->interleaved;
    const ht_view *out = &job->call->out;
    for (int64_t pair = 0; pair < job->pairs; pair++) {
        int64_t i = interleaved ? 2 * pair : pair, j = interleaved ? i + 1 : i + job->pairs;
        float a = ht_get_f32(out->dtype, x, at + i * stride), b = ht_get_f32(out->dtype, x, at + j * stride);
        float c = cosine[pair], s = sine[pair];
        ht_set_f32(out->dtype, out->data, to + i, __builtin_fmaf(-b, s, a * c));
        ht_set_f32(out->dtype, out->data, to + j, __builtin_fmaf(a, s, b * c));
    }
}

static void rotate_head(const rope_job *job, int64_t at, int64_t to, const float *cosine, const float *sine) {
    const ht_rope_params *p = job->call->params;
    const ht_view *x = &job->call->in[0], *out = &job->call->out;
    int64_t head_dim = x->shape[x->n_dims - 1], step = x->stride[x->n_dims - 1];
    if (step != 1 || p->interleaved)
        rotate_pairs(job, x->data, at, step, to, cosine, sine);
    else if (x->dtype == HT_F32)
        rotate_halves((const float *)x->data + at, (float *)out->data + to, cosine, sine, job->pairs);
    else
        rotate_halves_of(x->dtype, x->data, at, out->data, to, cosine, sine, job->pairs);
    for (int64_t i = p->dims; i < head_dim; i += 16) {
        int n = lanes_count(head_dim - i);
        lanes_store(x->dtype, out->data, to + i, lanes_load(x->dtype, x->data, at + i * step, step, n), n);
    }
}

static void rotate_rows(void *arg, int64_t begin, int64_t end, int worker) {
    const rope_job *job = arg;
    const ht_view *x = &job->call->in[0], *pos = &job->call->in[1];
    int lead = x->n_dims - 2;
    int64_t heads = x->shape[lead], head_dim = x->shape[lead + 1];
    float *cosine = job->turns + worker * 2 * job->padded, *sine = cosine + job->padded;
    for (int64_t t = begin; t < end; t++) {
        int64_t position = ht_get_int(pos->dtype, pos->data, ht_view_offset(pos, lead, t));
        int64_t from = ht_view_offset(x, lead, t);
        fill_rotations(job, (double)position, cosine, sine);
        for (int64_t h = 0; h < heads; h++)
            rotate_head(job, from + h * x->stride[lead], (t * heads + h) * head_dim, cosine, sine);
    }
}

static ht_status rope(const ht_call *call, ht_error *err) {
    const ht_view *x = &call->in[0];
    if (!lanes_supports(x->dtype)) return ht_plain_rope(call, err);
    int64_t size = ht_view_size(x), padded = padded_pairs(call);
    if (size == 0) return HT_OK;
    rope_job job = {.call = call,
                    .frequency = call->scratch,
                    .turns = (float *)(void *)((double *)call->scratch + padded),
                    .pairs = ((const ht_rope_params *)call->params)->dims / 2,
                    .padded = padded};
    fill_frequencies(&job);
    int64_t per_row = x->shape[x->n_dims - 2] * x->shape[x->n_dims - 1];
    ht_pool_run(ht_call_pool(call), size / per_row, ht_row_grain(HT_GRAIN_MATH, per_row), rotate_rows, &job);
    return HT_OK;
}

void HT_ISA_NAME(ht_vector_rope)(ht_kernel kernels[HT_OP_COUNT]) {
    kernels[HT_OP_ROPE] = (ht_kernel){.run = rope, .scratch = rope_scratch};
}
