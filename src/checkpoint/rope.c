#include "checkpoint/rope.h"

#include <math.h>
#include <string.h>

static const double two_pi = 6.283185307179586476925286766559;

bool ht_rope_kind_from_name(const char *name, ht_rope_kind *out) {
    static const struct {
        const char *name;
        ht_rope_kind kind;
    } kinds[] = {{"default", HT_ROPE_PLAIN}, {"none", HT_ROPE_PLAIN}, {"linear", HT_ROPE_LINEAR},
                 {"llama3", HT_ROPE_LLAMA3}, {"yarn", HT_ROPE_YARN},  {"proportional", HT_ROPE_PROPORTIONAL}};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (!strcmp(name, kinds[i].name)) {
            *out = kinds[i].kind;
            return true;
        }
    return false;
}

static bool positive(double x) { return isfinite(x) && x > 0 && x <= 1e12; }

const char *ht_rope_problem(const ht_rope_spec *r) {
    if (!positive(r->theta) || r->theta <= 1) return "the RoPE base (rope_theta) must be a number above 1";
    if (r->kind == HT_ROPE_PLAIN) return "";
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

static double yarn_mscale(double factor, double mscale) { return factor <= 1 ? 1 : 0.1 * mscale * log(factor) + 1; }

static double yarn_magnitude(const ht_rope_spec *r) {
    if (r->attention_factor > 0) return r->attention_factor;
    if (r->mscale != 0 && r->mscale_all_dim != 0)
        return yarn_mscale(r->factor, r->mscale) / yarn_mscale(r->factor, r->mscale_all_dim);
    return yarn_mscale(r->factor, 1);
}

static int32_t turning_pairs(const ht_rope_spec *r, int32_t dims) {
    return r->share > 0 ? (int32_t)(r->share * dims / 2) : dims / 2;
}

bool ht_rope_prepare(const ht_rope_spec *r, int32_t dims, ht_rope_config *how, float *factors) {
    *how = (ht_rope_config){.theta = (float)r->theta, .scale = 1, .magnitude = 1, .dims = dims};
    if (r->kind == HT_ROPE_LINEAR) how->scale = (float)(1 / r->factor);
    if (r->kind == HT_ROPE_PLAIN || r->kind == HT_ROPE_LINEAR) return false;
    double low = 0, high = 0;
    if (r->kind == HT_ROPE_YARN) {
        yarn_ramp(r, dims, &low, &high);
        how->magnitude = (float)yarn_magnitude(r);
    }
    for (int32_t i = 0; i < dims / 2; i++) {
        if (r->kind == HT_ROPE_PROPORTIONAL) {
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
