/* Rotary position embedding of f32 heads. The angles of a row are computed once, in f64, and turned into f32 sines and
 * cosines sixteen at a time; every head of the row uses them. */
#include "cpu/reference/reference.h"
#include "cpu/reference/value.h"
#include "cpu/vector/lanes.h"
#include "cpu/vector/math.h"
#include "cpu/vector/vector.h"
#include "cpu/walk.h"
#include "device/params.h"

#include <math.h>

/* Scratch: the frequency of each pair (f64), then for every thread the cosines and sines of one row, all padded to a
 * multiple of sixteen pairs. */
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
    return (size_t)padded_pairs(call) * (sizeof(double) + (size_t)ht_pool_threads(call->pool) * 2 * sizeof(float));
}

/* theta^(-2 i / dims) as the i-th power of one ratio: the error stays some hundred units of the last place of an f64. */
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

static void fill_turns(const rope_job *job, double position, float *cosine, float *sine) {
    v16f magnitude = v16f_set1(((const ht_rope_params *)job->call->params)->magnitude);
    for (int64_t i = 0; i < job->padded; i += 16) {
        float rest[16];
        int32_t quarters[16];
        for (int k = 0; k < 16; k++) { /* ht_reduce_angle, in a form that the compiler makes vectors of */
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

/* One head whose pairs are (i, i + pairs). */
static void turn_halves(const float *x, float *out, const float *cosine, const float *sine, int64_t pairs) {
    for (int64_t i = 0; i < pairs; i += 16) {
        int n = lanes_of(pairs - i);
        v16f a = v16f_load_n(x + i, n), b = v16f_load_n(x + pairs + i, n);
        v16f c = v16f_load(cosine + i), s = v16f_load(sine + i);
        v16f_store_n(out + i, v16f_fnma(b, s, v16f_mul(a, c)), n);
        v16f_store_n(out + pairs + i, v16f_fma(a, s, v16f_mul(b, c)), n);
    }
}

/* One head with any stride or pairing; the same operations one by one. */
static void turn_pairs(const rope_job *job, const float *x, int64_t stride, float *out, const float *cosine,
                       const float *sine) {
    bool interleaved = ((const ht_rope_params *)job->call->params)->interleaved;
    for (int64_t pair = 0; pair < job->pairs; pair++) {
        int64_t i = interleaved ? 2 * pair : pair, j = interleaved ? i + 1 : i + job->pairs;
        float a = x[i * stride], b = x[j * stride], c = cosine[pair], s = sine[pair];
        out[i] = __builtin_fmaf(-b, s, a * c);
        out[j] = __builtin_fmaf(a, s, b * c);
    }
}

static void rotate_rows(void *arg, int64_t begin, int64_t end, int worker) {
    const rope_job *job = arg;
    const ht_rope_params *p = job->call->params;
    const ht_view *x = &job->call->in[0], *pos = &job->call->in[1];
    int64_t heads = x->shape[1], head_dim = x->shape[2];
    float *cosine = job->turns + worker * 2 * job->padded, *sine = cosine + job->padded;
    for (int64_t t = begin; t < end; t++) {
        fill_turns(job, (double)ht_get_int(pos->dtype, pos->data, t * pos->stride[0]), cosine, sine);
        for (int64_t h = 0; h < heads; h++) {
            const float *from = (const float *)x->data + t * x->stride[0] + h * x->stride[1];
            float *to = (float *)job->call->out.data + (t * heads + h) * head_dim;
            if (x->stride[2] == 1 && !p->interleaved)
                turn_halves(from, to, cosine, sine, job->pairs);
            else
                turn_pairs(job, from, x->stride[2], to, cosine, sine);
            for (int64_t i = p->dims; i < head_dim; i++) to[i] = from[i * x->stride[2]];
        }
    }
}

static ht_status rope(const ht_call *call, ht_error *err) {
    const ht_view *x = &call->in[0];
    if (x->dtype != HT_F32) return ht_plain_rope(call, err);
    if (ht_view_size(x) == 0) return HT_OK;
    int64_t padded = padded_pairs(call);
    rope_job job = {.call = call,
                    .frequency = call->scratch,
                    .turns = (float *)(void *)((double *)call->scratch + padded),
                    .pairs = ((const ht_rope_params *)call->params)->dims / 2,
                    .padded = padded};
    fill_frequencies(&job);
    ht_pool_run(call->pool, x->shape[0], ht_row_grain(HT_GRAIN_MATH, x->shape[1] * x->shape[2]), rotate_rows, &job);
    return HT_OK;
}

void HT_ISA_NAME(ht_vector_rope)(ht_kernel kernels[HT_OP_COUNT]) {
    kernels[HT_OP_ROPE] = (ht_kernel){.run = rope, .scratch = rope_scratch};
}
