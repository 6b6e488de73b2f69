#include "serve/sampling.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

const serve_field serve_sampling_fields[] = {{"temperature", SERVE_USED},
                                             {"top_p", SERVE_USED},
                                             {"top_k", SERVE_USED},
                                             {"min_p", SERVE_USED},
                                             {"repeat_penalty", SERVE_USED},
                                             {"repetition_penalty", SERVE_USED},
                                             {"presence_penalty", SERVE_USED},
                                             {"frequency_penalty", SERVE_USED},
                                             {"repeat_last_n", SERVE_USED},
                                             {"seed", SERVE_USED},
                                             {"logit_bias", SERVE_USED},
                                             {"ignore_eos", SERVE_USED},
                                             {"typical_p", SERVE_LACKED},
                                             {"mirostat", SERVE_LACKED},
                                             {"dry_multiplier", SERVE_LACKED},
                                             {"xtc_probability", SERVE_LACKED},
                                             {"dynatemp_range", SERVE_LACKED},
                                             {"top_n_sigma", SERVE_LACKED},
                                             {"use_beam_search", SERVE_LACKED},
                                             {NULL, SERVE_USED}};

const serve_field serve_noted_fields[] = {{"metadata", SERVE_NOTED},
                                          {"moderation", SERVE_NOTED},
                                          {"prompt_cache_key", SERVE_NOTED},
                                          {"prompt_cache_options", SERVE_NOTED},
                                          {"prompt_cache_retention", SERVE_NOTED},
                                          {"safety_identifier", SERVE_NOTED},
                                          {"service_tier", SERVE_NOTED},
                                          {"store", SERVE_NOTED},
                                          {"user", SERVE_NOTED},
                                          {"verbosity", SERVE_NOTED},
                                          {"cache_prompt", SERVE_NOTED},
                                          {"prediction", SERVE_NOTED},
                                          {"id_slot", SERVE_NOTED},
                                          {"timings_per_token", SERVE_NOTED},
                                          {NULL, SERVE_NOTED}};

/* ---- numbers ---- */

static bool read_float(const json_t *object, const char *name, double low, double high, float *out, serve_failure *f) {
    double value = (double)*out;
    if (!serve_read_number(object, name, low, high, &value, f)) return false;
    *out = (float)value;
    return true;
}

static bool read_int32(const json_t *object, const char *name, int64_t low, int32_t *out, serve_failure *f) {
    int64_t value = *out;
    if (!serve_read_integer(object, name, low, INT32_MAX, &value, f)) return false;
    *out = (int32_t)value;
    return true;
}

/* ---- the seed ---- */

static bool read_seed(serve_generation *g, const json_t *object) {
    int64_t seed = -1; /* as is sent for one that is to be drawn */
    if (!serve_read_integer(object, "seed", INT64_MIN, INT64_MAX, &seed, &g->c->failure)) return false;
    g->sampler.seed = (uint64_t)seed;
    if (seed == -1) {
        uint64_t drawn = 0;
        serve_random(&drawn, sizeof drawn);
        g->sampler.seed = drawn >> 11; /* exact as a number of JavaScript */
    }
    char text[32];
    snprintf(text, sizeof text, "%llu", (unsigned long long)g->sampler.seed);
    (void)http_exchange_field(g->c->x, "X-Seed", text);
    return true;
}

/* ---- biases ---- */

static bool read_bias(serve_generation *g, const json_t *object) {
    const json_t *biases = NULL, *value;
    const char *name;
    serve_failure *f = &g->c->failure;
    if (!serve_read_object(object, "logit_bias", &biases, f)) return false;
    if (!biases || !json_object_size(biases)) return true;
    g->bias = calloc(json_object_size(biases), sizeof *g->bias);
    if (!g->bias) return serve_fail_memory(f);
    int n = 0;
    json_object_foreach((json_t *)biases, name, value) {
        char *end;
        errno = 0;
        const long id = strtol(name, &end, 10);
        const double bias = json_number_value(value);
        if (*end || end == name || errno || id < 0 || id >= ht_model_vocab_size(g->c->lease.model))
            return serve_fail(f, 400, "logit_bias", "\"logit_bias\": \"%.32s\" is no token of the model", name);
        if (!json_is_number(value) || !(bias >= -100 && bias <= 100))
            return serve_fail(f, 400, "logit_bias", "\"logit_bias\": that of %s is to be a number from -100 to 100",
                              name);
        g->bias[n++] = (ht_logit_bias){.id = (int32_t)id, .bias = (float)bias};
    }
    g->sampler.logit_bias = g->bias;
    g->sampler.n_logit_bias = n;
    return true;
}

/* ---- all ---- */

bool serve_read_sampling(serve_generation *g, const json_t *object, double temperature) {
    serve_failure *f = &g->c->failure;
    const serve_options *o = &g->c->server->o;
    ht_sampler_options *s = &g->sampler;
    *s = o->sampler;
    if (!o->sampler_given) s->temperature = (float)temperature;
    return read_float(object, "temperature", 0, 100, &s->temperature, f) &&
           read_float(object, "top_p", 0, 1, &s->top_p, f) && read_int32(object, "top_k", -1, &s->top_k, f) &&
           read_float(object, "min_p", 0, 1, &s->min_p, f) &&
           read_float(object, "repeat_penalty", 0, 100, &s->repeat_penalty, f) &&
           read_float(object, "repetition_penalty", 0, 100, &s->repeat_penalty, f) &&
           read_int32(object, "repeat_last_n", -1, &s->repeat_window, f) &&
           read_float(object, "presence_penalty", -100, 100, &s->presence_penalty, f) &&
           read_float(object, "frequency_penalty", -100, 100, &s->frequency_penalty, f) &&
           serve_read_flag(object, "ignore_eos", &g->how.ignore_eos, f) && read_seed(g, object) &&
           read_bias(g, object) && (s->top_k = s->top_k < 0 ? 0 : s->top_k, true);
}

void serve_default_filters(serve_generation *g, const json_t *object, int32_t top_k, double top_p, double min_p) {
    ht_sampler_options *s = &g->sampler;
    if (g->c->server->o.sampler_given) return;
    if (!serve_member(object, "top_k") && !s->top_k) s->top_k = top_k;
    if (!serve_member(object, "top_p") && !(s->top_p > 0)) s->top_p = (float)top_p;
    if (!serve_member(object, "min_p") && !(s->min_p > 0)) s->min_p = (float)min_p;
}

/* ---- samplers that are not there ---- */

const serve_field serve_other_sampler_fields[] = {{"typical_p", SERVE_USED},
                                                  {"typ_p", SERVE_USED},
                                                  {"tfs_z", SERVE_USED},
                                                  {"mirostat", SERVE_USED},
                                                  {"mirostat_tau", SERVE_NOTED},
                                                  {"mirostat_eta", SERVE_NOTED},
                                                  {"dry_multiplier", SERVE_USED},
                                                  {"dry_base", SERVE_NOTED},
                                                  {"dry_allowed_length", SERVE_NOTED},
                                                  {"dry_penalty_last_n", SERVE_NOTED},
                                                  {"dry_sequence_breakers", SERVE_NOTED},
                                                  {"xtc_probability", SERVE_USED},
                                                  {"xtc_threshold", SERVE_NOTED},
                                                  {"dynatemp_range", SERVE_USED},
                                                  {"dynatemp_exponent", SERVE_NOTED},
                                                  {"top_n_sigma", SERVE_USED},
                                                  {NULL, SERVE_USED}};

bool serve_refuse_other_samplers(const json_t *object, serve_failure *f) {
    static const struct {
        const char *name;
        double off; /* as is everything beyond it, away from where the sampler does something */
        bool below;
    } others[] = {{"typical_p", 1, false},     {"typ_p", 1, false},         {"tfs_z", 1, false},
                  {"mirostat", 0, true},       {"dry_multiplier", 0, true}, {"xtc_probability", 0, true},
                  {"dynatemp_range", 0, true}, {"top_n_sigma", 0, true}};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        const json_t *value = serve_member(object, others[i].name);
        const double got = json_number_value(value);
        if (!value || (json_is_number(value) && (others[i].below ? got <= others[i].off : got >= others[i].off)))
            continue;
        return serve_fail(f, 400, others[i].name,
                          "\"%s\" asks for a sampler that this server does not have: leave it out, or send %g",
                          others[i].name, others[i].off);
    }
    return true;
}

/* ---- ends ---- */

bool serve_read_stop(serve_generation *g, const json_t *value, const char *name) {
    serve_failure *f = &g->c->failure;
    if (!value || json_is_null(value)) return true;
    const size_t n = json_is_array(value) ? json_array_size(value) : 1;
    enum { MOST = 64 };
    if (n > MOST) return serve_fail(f, 400, name, "\"%s\" has %zu texts, at most %d are taken", name, n, MOST);
    g->stop = calloc(n + 1, sizeof *g->stop);
    if (!g->stop) return serve_fail_memory(f);
    for (size_t i = 0; i < n; i++) {
        const json_t *one = json_is_array(value) ? json_array_get(value, i) : value;
        if (!json_string_length(one))
            return serve_fail(f, 400, name, "\"%s\" is to be a text or a list of texts, none of them empty", name);
        g->stop[i] = json_string_value(one);
    }
    g->how.stop = g->stop;
    g->how.n_stop = (int)n;
    return true;
}

bool serve_read_max_tokens(serve_generation *g, const json_t *object, const char *const *names) {
    int64_t most = INT32_MAX;
    for (; *names; names++) {
        if (!serve_member(object, *names)) continue;
        if (!serve_read_integer(object, *names, -1, INT64_MAX, &most, &g->c->failure)) return false;
        break;
    }
    g->how.max_tokens = most < 0 || most > INT32_MAX ? INT32_MAX : (int32_t)most;
    return true;
}

bool serve_read_logprobs(serve_generation *g) {
    serve_failure *f = &g->c->failure;
    int64_t top = 0;
    if (!serve_read_flag(g->c->body, "logprobs", &g->logprobs, f) ||
        !serve_read_integer(g->c->body, "top_logprobs", 0, 20, &top, f))
        return false;
    if (top && !g->logprobs) return serve_fail(f, 400, "top_logprobs", "\"top_logprobs\" goes with \"logprobs\": true");
    g->top_logprobs = (int32_t)top;
    return true;
}
