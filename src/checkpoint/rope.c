#include "checkpoint/rope.h"

#include "base/error.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

const char *const ht_rope_length_factors[HT_ROPE_LENGTHS] = {"rope_factors_short.weight", "rope_factors_long.weight"};

static const double two_pi = 6.283185307179586476925286766559;

bool ht_rope_kind_from_name(const char *name, ht_rope_kind *out) {
    static const struct {
        const char *name;
        ht_rope_kind kind;
    } kinds[] = {{"default", HT_ROPE_PLAIN},
                 {"none", HT_ROPE_PLAIN},
                 {"mrope", HT_ROPE_PLAIN},
                 {"linear", HT_ROPE_LINEAR},
                 {"llama3", HT_ROPE_LLAMA3},
                 {"yarn", HT_ROPE_YARN},
                 {"proportional", HT_ROPE_PROPORTIONAL},
                 {"longrope", HT_ROPE_LONG},
                 {"su", HT_ROPE_LONG}};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (!strcmp(name, kinds[i].name)) {
            *out = kinds[i].kind;
            return true;
        }
    return false;
}

static bool positive(double x) { return isfinite(x) && x > 0 && x <= 1e12; }

static const char *long_problem(const ht_rope_spec *r) {
    if (!positive(r->original_context)) return "longrope needs a positive original_max_position_embeddings";
    for (int k = 0; k < HT_ROPE_LENGTHS; k++) {
        if (!positive(r->length_factor[k])) return "the attention factor of longrope must be a positive number";
        for (int32_t i = 0; i < r->n_divisors; i++)
            if (!positive((double)r->divisor[k][i])) return "the divisors of longrope must be positive numbers";
    }
    return "";
}

const char *ht_rope_problem(const ht_rope_spec *r) {
    if (!positive(r->theta) || r->theta <= 1) return "the RoPE base (rope_theta) must be a number above 1";
    if (r->kind == HT_ROPE_PLAIN) return "";
    if (r->kind == HT_ROPE_LONG) return long_problem(r);
    if (r->kind == HT_ROPE_PROPORTIONAL) {
        if (r->factor != 0 && !positive(r->factor)) return "the RoPE scaling factor must be a positive number";
        return r->share >= 0 && r->share <= 1 ? "" : "the share of a head that RoPE turns must be between 0 and 1";
    }
    if (!positive(r->factor)) return "the RoPE scaling factor must be a positive number";
    if (r->kind == HT_ROPE_LINEAR) return "";
    if (!positive(r->original_context)) return "RoPE scaling needs a positive original_max_position_embeddings";
    if (r->kind == HT_ROPE_LLAMA3) {
        if (!positive(r->low_freq_factor) || !positive(r->high_freq_factor) ||
            r->high_freq_factor <= r->low_freq_factor)
            return "llama3 RoPE scaling needs 0 < low_freq_factor < high_freq_factor";
        return "";
    }
    if (!positive(r->beta_fast) || !positive(r->beta_slow) || r->beta_fast < r->beta_slow)
        return "yarn RoPE scaling needs 0 < beta_slow <= beta_fast";
    if (!isfinite(r->attention_factor) || r->attention_factor < 0 || !isfinite(r->mscale) ||
        !isfinite(r->mscale_all_dim))
        return "yarn RoPE scaling has an attention_factor or mscale that is no sensible number";
    return "";
}

/* Divides low frequencies by the factor, keeps high ones, interpolates between. */
static double llama3_factor(const ht_rope_spec *r, double frequency) {
    double wavelength = two_pi / frequency;
    if (wavelength < r->original_context / r->high_freq_factor) return 1;
    if (wavelength > r->original_context / r->low_freq_factor) return r->factor;
    double smooth =
        (r->original_context / wavelength - r->low_freq_factor) / (r->high_freq_factor - r->low_freq_factor);
    return 1 / ((1 - smooth) / r->factor + smooth);
}

/* The dimension whose pair makes `rotations` rotations over the original context. */
static double yarn_dimension(const ht_rope_spec *r, double rotations, double dims) {
    return dims * log(r->original_context / (rotations * two_pi)) / (2 * log(r->theta));
}

static void yarn_ramp(const ht_rope_spec *r, double dims, double *low, double *high) {
    *low = yarn_dimension(r, r->beta_fast, dims);
    *high = yarn_dimension(r, r->beta_slow, dims);
    if (!r->no_truncate) {
        *low = floor(*low);
        *high = ceil(*high);
    }
    *low = fmax(*low, 0);
    *high = fmin(*high, dims - 1);
    if (*low == *high) *high += 0.001; /* avoids division by zero, as in `transformers` */
}

double ht_rope_yarn_mscale(const ht_rope_spec *r, double mscale) {
    return r->factor <= 1 ? 1 : 0.1 * mscale * log(r->factor) + 1;
}

static double yarn_magnitude(const ht_rope_spec *r) {
    if (r->attention_factor > 0) return r->attention_factor;
    if (r->mscale != 0 && r->mscale_all_dim != 0)
        return ht_rope_yarn_mscale(r, r->mscale) / ht_rope_yarn_mscale(r, r->mscale_all_dim);
    return ht_rope_yarn_mscale(r, 1);
}

double ht_rope_long_magnitude(const ht_rope_spec *r, double factor) {
    return factor <= 1 ? 1 : sqrt(1 + log(factor) / log(r->original_context));
}

static int32_t turning_pairs(const ht_rope_spec *r, int32_t dims) {
    return r->share > 0 ? (int32_t)(r->share * dims / 2) : dims / 2;
}

bool ht_rope_prepare(const ht_rope_spec *r, ht_rope_length length, int32_t dims, ht_rope_config *how, float *factors) {
    *how = (ht_rope_config){
        .theta = (float)r->theta, .scale = 1, .magnitude = 1, .dims = dims, .interleaved = r->interleaved};
    if (r->kind == HT_ROPE_LINEAR) how->scale = (float)(1 / r->factor);
    if (r->kind == HT_ROPE_PLAIN || r->kind == HT_ROPE_LINEAR) return false;
    double low = 0, high = 0;
    if (r->kind == HT_ROPE_LONG) how->magnitude = (float)r->length_factor[length];
    if (r->kind == HT_ROPE_YARN) {
        yarn_ramp(r, dims, &low, &high);
        how->magnitude = (float)yarn_magnitude(r);
    }
    for (int32_t i = 0; i < dims / 2; i++) {
        if (r->kind == HT_ROPE_LONG) {
            factors[i] = i < r->n_divisors ? r->divisor[length][i] : 1;
        } else if (r->kind == HT_ROPE_PROPORTIONAL) {
            factors[i] = i < turning_pairs(r, dims) ? (float)(r->factor > 0 ? r->factor : 1) : INFINITY;
        } else if (r->kind == HT_ROPE_LLAMA3) {
            factors[i] = (float)llama3_factor(r, pow(r->theta, -2.0 * i / dims));
        } else { /* yarn: from the original frequency (ramp 0) to the divided one (ramp 1) */
            double ramp = fmin(fmax((i - low) / (high - low), 0), 1);
            factors[i] = (float)(1 / (ramp / r->factor + (1 - ramp)));
        }
    }
    return true;
}

/* ---- divisors to settings ---- */

static bool close_to(double a, double b) { return fabs(a - b) <= 2e-5 * fabs(b); }

static bool rotates_alike(const ht_rope_spec *a, const ht_rope_spec *b, ht_rope_length length, int32_t dims) {
    enum { MOST = 2048 };
    float x[MOST], y[MOST];
    if (dims > 2 * MOST) dims = 2 * MOST; /* settings that are the same for these are the same */
    ht_rope_config one, other;
    const bool any = ht_rope_prepare(a, length, dims, &one, x);
    bool same = ht_rope_prepare(b, length, dims, &other, y) == any && one.interleaved == other.interleaved &&
                close_to((double)one.theta, (double)other.theta) && close_to((double)one.scale, (double)other.scale) &&
                close_to((double)one.magnitude, (double)other.magnitude);
    for (int32_t i = 0; same && any && i < dims / 2; i++) same = x[i] == y[i] || close_to((double)x[i], (double)y[i]);
    return same;
}

bool ht_rope_is_same(const ht_rope_spec *a, const ht_rope_spec *b, int32_t head_dim) {
    const int32_t dims = a->dims ? (int32_t)a->dims : head_dim;
    const bool is_long = a->kind == HT_ROPE_LONG;
    if (dims != (b->dims ? (int32_t)b->dims : head_dim) || is_long != (b->kind == HT_ROPE_LONG)) return false;
    if (is_long && (a->original_context != b->original_context || !rotates_alike(a, b, HT_ROPE_OF_LONG, dims)))
        return false;
    return rotates_alike(a, b, HT_ROPE_OF_SHORT, dims);
}

/* Whether these settings produce the divisors. */
static bool gives(const ht_rope_spec *rope, const float *values, int64_t n, float *scratch) {
    ht_rope_config how;
    if (*ht_rope_problem(rope) || !ht_rope_prepare(rope, HT_ROPE_OF_SHORT, (int32_t)(2 * n), &how, scratch))
        return false;
    for (int64_t i = 0; i < n; i++)
        if (isinf(scratch[i]) ? values[i] < 0.5f * HT_ROPE_NOT_ROTATED
                              : !close_to((double)values[i], (double)scratch[i]))
            return false;
    return true;
}

/* The first pairs share one divisor; the others are not rotated. */
static bool fit_proportional(const float *values, int64_t n, ht_rope_spec *rope, float *scratch) {
    int64_t turning = 0;
    while (turning < n && values[turning] < 0.5f * HT_ROPE_NOT_ROTATED) turning++;
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
    return pow(rope->theta, -(double)i / (double)n) / two_pi;
}

static double rounded(double x) {
    const double nearest = round(x);
    return nearest > 0 && fabs(x - nearest) < 1e-3 * x ? nearest : x;
}

/* Llama 3 blends 1 and 1 / factor by a share linear in 1 / wavelength, clamped to [0, 1]: slope * turns - offset. */
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

/* Constraints of the divisors on that line. */
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
    /* Prefers the settings of Llama 3 itself, as few divisors do not determine them uniquely. */
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
