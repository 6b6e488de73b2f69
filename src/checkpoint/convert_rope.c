/* RoPE's divisors per frequency, which GGUF has as a tensor and config.json as settings. */
#include "base/error.h"
#include "checkpoint/convert_metadata.h"

#include <math.h>
#include <stdlib.h>

/* What GGUF files have for the infinite divisor of a pair that is not rotated. */
#define NOT_ROTATED 1e30f

/* ---- settings to divisors ---- */

/* Head size of the full-attention layers, which the divisors are for; of all layers when none has full attention. */
static int64_t full_head_dim(const ht_config *config) {
    for (int64_t i = 0; i < config->n_layers; i++)
        if (!config->layer[i].slides) return config->layer[i].head_dim;
    return config->layer[0].head_dim;
}

ht_status ht_gguf_rope_factors(const ht_config *config, float **values, int64_t *n, ht_error *err) {
    *values = NULL;
    *n = 0;
    if (config->rope.kind != HT_ROPE_LLAMA3 && config->rope.kind != HT_ROPE_PROPORTIONAL) return HT_OK;
    const int64_t dims = full_head_dim(config);
    ht_rope_config how;
    float *factors = malloc((size_t)dims / 2 * sizeof *factors);
    if (!factors) return ht_fail_memory(err, (size_t)dims / 2 * sizeof *factors, HT_ROPE_FACTORS);
    (void)ht_rope_prepare(&config->rope, (int32_t)dims, &how, factors);
    for (int64_t i = 0; i < dims / 2; i++)
        if (isinf(factors[i])) factors[i] = NOT_ROTATED;
    *values = factors;
    *n = dims / 2;
    return HT_OK;
}

/* ---- divisors to settings ---- */

static bool close_to(double a, double b) { return fabs(a - b) <= 2e-5 * fabs(b); }

/* Whether these settings give the divisors. */
static bool gives(const ht_rope_spec *rope, const float *values, int64_t n, float *scratch) {
    ht_rope_config how;
    if (*ht_rope_problem(rope) || !ht_rope_prepare(rope, (int32_t)(2 * n), &how, scratch)) return false;
    for (int64_t i = 0; i < n; i++)
        if (isinf(scratch[i]) ? values[i] < 0.5f * NOT_ROTATED : !close_to((double)values[i], (double)scratch[i]))
            return false;
    return true;
}

/* The first pairs have one divisor, the others stay. */
static bool fit_proportional(const float *values, int64_t n, ht_rope_spec *rope, float *scratch) {
    int64_t turning = 0;
    while (turning < n && values[turning] < 0.5f * NOT_ROTATED) turning++;
    if (turning == 0 || turning == n) return false;
    rope->kind = HT_ROPE_PROPORTIONAL;
    rope->share = (double)turning / (double)n;
    rope->factor = values[0] == 1 ? 0 : (double)values[0];
    if (gives(rope, values, n, scratch)) return true;
    rope->share = ((double)turning + 0.5) / (double)n; /* where the product with n is rounded down */
    return gives(rope, values, n, scratch);
}

/* 1 / wavelength of pair i. */
static double turns(const ht_rope_spec *rope, int64_t i, int64_t n) {
    return pow(rope->theta, -(double)i / (double)n) / 6.283185307179586476925286766559;
}

static double rounded(double x) {
    const double nearest = round(x);
    return nearest > 0 && fabs(x - nearest) < 1e-3 * x ? nearest : x;
}

/* Llama 3 blends 1 and 1 / factor by a share that is linear in 1 / wavelength, cut to 0 and 1: slope * turns - offset. */
static bool try_line(const float *values, int64_t n, double slope, double offset, ht_rope_spec *rope, float *scratch) {
    /* One of the three settings is free, as they can be multiplied by a number: low_freq_factor is 1 in all models. */
    if (!(slope > 0) || !(offset > 0)) return false;
    const double high = 1 + 1 / offset, context = slope / offset;
    rope->low_freq_factor = 1;
    rope->high_freq_factor = rounded(high);
    rope->original_context = rounded(context);
    if (gives(rope, values, n, scratch)) return true;
    /* The context is a whole number, whatever the line. */
    rope->original_context = fmax(round(context), 1);
    rope->low_freq_factor = rope->original_context / context;
    rope->high_freq_factor = rope->low_freq_factor * high;
    return gives(rope, values, n, scratch);
}

/* What the divisors say of that line. */
typedef struct blend {
    double last_one;     /* turns of the last pair whose divisor is 1; infinite without */
    double first_factor; /* of the first pair whose divisor is the factor; 0 without */
    double first_turns, first_share, last_turns, last_share; /* of the pairs between them */
    int n_between;
} blend;

static blend read_blend(const float *values, int64_t n, const ht_rope_spec *rope) {
    blend b = {.last_one = INFINITY};
    for (int64_t i = 0; i < n; i++) {
        const double x = turns(rope, i, n), f = (double)values[i];
        if (close_to(f, 1))
            b.last_one = x;
        else if (close_to(f, rope->factor)) {
            if (b.first_factor == 0) b.first_factor = x;
        } else {
            const double share = (1 / f - 1 / rope->factor) / (1 - 1 / rope->factor);
            if (b.n_between++ == 0) {
                b.first_turns = x;
                b.first_share = share;
            }
            b.last_turns = x;
            b.last_share = share;
        }
    }
    return b;
}

static bool fit_llama3(const float *values, int64_t n, ht_rope_spec *rope, float *scratch) {
    rope->kind = HT_ROPE_LLAMA3;
    rope->factor = rounded((double)values[n - 1]);
    const blend b = read_blend(values, n, rope);
    /* The settings of Llama 3 itself, when they are enough: few divisors leave a choice. */
    rope->low_freq_factor = 1;
    rope->high_freq_factor = 4;
    rope->original_context = 8192;
    if (gives(rope, values, n, scratch)) return true;
    double slope, offset;
    if (b.n_between > 1)
        slope = (b.first_share - b.last_share) / (b.first_turns - b.last_turns);
    else if (b.n_between == 1)
        slope =
            fmax((1 - b.first_share) / (b.last_one - b.first_turns), b.first_share / (b.first_turns - b.first_factor));
    else
        slope = 1 / (b.last_one - b.first_factor);
    if (b.n_between)
        offset = slope * b.first_turns - b.first_share;
    else
        offset = slope * b.first_factor;
    return try_line(values, n, slope, offset, rope, scratch);
}

ht_status ht_rope_from_factors(const float *values, int64_t n, ht_rope_spec *rope, ht_error *err) {
    bool plain = true, equal = true;
    for (int64_t i = 0; i < n; i++) {
        if (!isfinite(values[i]) || values[i] <= 0)
            return ht_fail(err, HT_ERR_FORMAT, "`" HT_ROPE_FACTORS "` holds %g, expected positive numbers",
                           (double)values[i]);
        plain &= values[i] == 1;
        equal &= values[i] == values[0];
    }
    if (plain || n < 1) return HT_OK;
    if (rope->kind != HT_ROPE_PLAIN)
        return ht_fail(err, HT_ERR_UNSUPPORTED,
                       "`" HT_ROPE_FACTORS "` is there beside another RoPE scaling; config.json has place for one");
    if (equal) {
        rope->kind = HT_ROPE_LINEAR;
        rope->factor = (double)values[0];
        return HT_OK;
    }
    float *scratch = malloc((size_t)n * sizeof *scratch);
    if (!scratch) return ht_fail_memory(err, (size_t)n * sizeof *scratch, HT_ROPE_FACTORS);
    ht_rope_spec found = *rope;
    bool fits = fit_proportional(values, n, &found, scratch);
    if (!fits) {
        found = *rope;
        fits = fit_llama3(values, n, &found, scratch);
    }
    free(scratch);
    if (!fits)
        return ht_fail(err, HT_ERR_UNSUPPORTED,
                       "the divisors in `" HT_ROPE_FACTORS
                       "` are neither those of llama3 nor of proportional RoPE; config.json cannot express others");
    *rope = found;
    return HT_OK;
}
