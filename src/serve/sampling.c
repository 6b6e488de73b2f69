#include "serve/sampling.h"

#include "formats/json.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const serve_shape bias = SERVE_IS_NUMBER(-100, 100);

const serve_field serve_sampling_fields[] = {
    {"temperature", .is = SERVE_IS_NUMBER(0, 100)},
    {"top_p", .is = SERVE_IS_NUMBER(0, 1)},
    {"top_k", .is = SERVE_IS_INTEGER(-1, INT32_MAX)},
    {"min_p", .is = SERVE_IS_NUMBER(0, 1)},
    {"repeat_penalty", .is = SERVE_IS_NUMBER(0, 100)},
    {"repetition_penalty", .is = SERVE_IS_NUMBER(0, 100)},
    {"presence_penalty", .is = SERVE_IS_NUMBER(-100, 100)},
    {"frequency_penalty", .is = SERVE_IS_NUMBER(-100, 100)},
    {"repeat_last_n", .is = SERVE_IS_INTEGER(-1, INT32_MAX)},
    {"seed", .is = {.types = SERVE_JSON_INTEGER}},
    {"logit_bias", .is = {.types = SERVE_JSON_OBJECT, .every = &bias}},
    {"ignore_eos", .is = SERVE_IS_FLAG},
    /* Samplers that are not there, of which some clients send all numbers: with those by which they are off. */
    {"typical_p", .class = SERVE_LACKED, .is = SERVE_IS_NUMBER(1, INT64_MAX), .instead = "leave it out, or send 1"},
    {"typ_p", .class = SERVE_LACKED, .is = SERVE_IS_NUMBER(1, INT64_MAX), .instead = "leave it out, or send 1"},
    {"tfs_z", .class = SERVE_LACKED, .is = SERVE_IS_NUMBER(1, INT64_MAX), .instead = "leave it out, or send 1"},
    {"mirostat", .class = SERVE_LACKED, .is = SERVE_IS_NUMBER(INT64_MIN, 0), .instead = "leave it out, or send 0"},
    {"mirostat_tau", .class = SERVE_NOTED},
    {"mirostat_eta", .class = SERVE_NOTED},
    {"dry_multiplier", .class = SERVE_LACKED, .is = SERVE_IS_NUMBER(INT64_MIN, 0),
     .instead = "leave it out, or send 0"},
    {"dry_base", .class = SERVE_NOTED},
    {"dry_allowed_length", .class = SERVE_NOTED},
    {"dry_penalty_last_n", .class = SERVE_NOTED},
    {"dry_sequence_breakers", .class = SERVE_NOTED},
    {"xtc_probability", .class = SERVE_LACKED, .is = SERVE_IS_NUMBER(INT64_MIN, 0),
     .instead = "leave it out, or send 0"},
    {"xtc_threshold", .class = SERVE_NOTED},
    {"dynatemp_range", .class = SERVE_LACKED, .is = SERVE_IS_NUMBER(INT64_MIN, 0),
     .instead = "leave it out, or send 0"},
    {"dynatemp_exponent", .class = SERVE_NOTED},
    {"top_n_sigma", .class = SERVE_LACKED, .is = SERVE_IS_NUMBER(INT64_MIN, 0), .instead = "leave it out, or send 0"},
    {"use_beam_search", .class = SERVE_LACKED},
    {0}};

const serve_field serve_noted_fields[] = {{"metadata", .class = SERVE_NOTED},
                                          {"moderation", .class = SERVE_NOTED},
                                          {"prompt_cache_key", .class = SERVE_NOTED},
                                          {"prompt_cache_options", .class = SERVE_NOTED},
                                          {"prompt_cache_retention", .class = SERVE_NOTED},
                                          {"safety_identifier", .class = SERVE_NOTED},
                                          {"service_tier", .class = SERVE_NOTED},
                                          {"store", .class = SERVE_NOTED},
                                          {"user", .class = SERVE_NOTED},
                                          {"verbosity", .class = SERVE_NOTED},
                                          {"cache_prompt", .class = SERVE_NOTED},
                                          {"prediction", .class = SERVE_NOTED},
                                          {"id_slot", .class = SERVE_NOTED},
                                          {"timings_per_token", .class = SERVE_NOTED},
                                          {0}};

/* ---- the seed ---- */

/* Any integer is a seed, modulo 2^64; clients send -1 to have one drawn. */
static void read_seed(serve_generation *g, const ht_json *object) {
    const serve_options *o = &g->c->server->o;
    const ht_json *value = serve_member(object, "seed");
    if (value) (void)ht_json_modulo(value, &g->sampler.seed);
    if (value ? ht_json_number_value(value) == -1 : !o->seed_given) {
        uint64_t drawn = 0;
        serve_random(&drawn, sizeof drawn);
        g->sampler.seed = drawn >> 11; /* exact as a number of JavaScript */
    }
    char text[32];
    snprintf(text, sizeof text, "%llu", (unsigned long long)g->sampler.seed);
    (void)http_exchange_field(g->c->x, "X-Seed", text);
}

/* ---- biases ---- */

static bool read_bias(serve_generation *g, const ht_json *object) {
    const ht_json *biases = serve_member(object, "logit_bias"), *value;
    const char *name;
    serve_failure *f = &g->c->failure;
    if (!ht_json_object_size(biases)) return true;
    g->bias = calloc(ht_json_object_size(biases), sizeof *g->bias);
    if (!g->bias) return serve_fail_memory(f);
    int n = 0;
    ht_json_object_foreach((ht_json *)biases, name, value) {
        char *end;
        errno = 0;
        const long id = strtol(name, &end, 10);
        if (*end || end == name || errno || id < 0 || id >= ht_model_vocab_size(g->c->lease.model))
            return serve_fail(f, 400, "logit_bias", "\"logit_bias\": \"%.32s\" is no token of the model", name);
        g->bias[n++] = (ht_logit_bias){.id = (int32_t)id, .bias = (float)ht_json_number_value(value)};
    }
    g->sampler.logit_bias = g->bias;
    g->sampler.n_logit_bias = n;
    return true;
}

/* ---- all ---- */

static void set_float(const ht_json *object, const char *name, float *to) {
    *to = (float)serve_number(object, name, (double)*to);
}

static void set_int(const ht_json *object, const char *name, int32_t *to) {
    *to = (int32_t)serve_integer(object, name, *to);
}

bool serve_read_sampling(serve_generation *g, const ht_json *object) {
    ht_sampler_options *s = &g->sampler;
    ht_error err = {0};
    *s = g->c->server->o.sampler;
    set_float(object, "temperature", &s->temperature);
    set_float(object, "top_p", &s->top_p);
    set_int(object, "top_k", &s->top_k);
    if (s->top_k == -1) s->top_k = 0;
    set_float(object, "min_p", &s->min_p);
    set_float(object, "repeat_penalty", &s->repeat_penalty);
    set_float(object, "repetition_penalty", &s->repeat_penalty);
    set_int(object, "repeat_last_n", &s->repeat_window);
    set_float(object, "presence_penalty", &s->presence_penalty);
    set_float(object, "frequency_penalty", &s->frequency_penalty);
    g->how.ignore_eos = serve_flag(object, "ignore_eos", g->how.ignore_eos);
    const ht_status status = ht_sampler_options_resolve(g->c->lease.model, s, s, &err);
    if (status) return serve_fail_as(&g->c->failure, status, &err);
    read_seed(g, object);
    return read_bias(g, object);
}

double serve_rounded(float value) { return round((double)value * 1e6) / 1e6; }

ht_sampling_value serve_sampling_value(const serve_options *o, const ht_sampling_value *of_model) {
    const ht_sampler_options *s = &o->sampler;
    const struct {
        const char *name;
        float value;
    } given[] = {{"temperature", s->temperature},
                 {"top_k", (float)s->top_k},
                 {"top_p", s->top_p},
                 {"min_p", s->min_p},
                 {"repeat_penalty", s->repeat_penalty},
                 {"repeat_window", (float)s->repeat_window},
                 {"presence_penalty", s->presence_penalty},
                 {"frequency_penalty", s->frequency_penalty}};
    ht_sampling_value v = *of_model;
    for (size_t i = 0; i < sizeof given / sizeof *given; i++) {
        if (strcmp(given[i].name, v.name) != 0 || given[i].value == (float)HT_SAMPLER_UNSET) continue;
        v.value = serve_rounded(given[i].value);
        v.source = "server option";
    }
    return v;
}

/* ---- ends ---- */

bool serve_read_stop(serve_generation *g, const ht_json *value) {
    if (!value || ht_json_is_null(value) || (ht_json_is_string(value) && !ht_json_string_length(value))) return true;
    const size_t n = ht_json_is_array(value) ? ht_json_array_size(value) : 1;
    g->stop = calloc(n + 1, sizeof *g->stop);
    if (!g->stop) return serve_fail_memory(&g->c->failure);
    g->how.stop = g->stop;
    g->how.n_stop = 0;
    for (size_t i = 0; i < n; i++) {
        const char *text = ht_json_string_value(ht_json_is_array(value) ? ht_json_array_get(value, i) : value);
        if (*text) g->stop[g->how.n_stop++] = text;
    }
    return true;
}

void serve_read_max_tokens(serve_generation *g, const ht_json *object, const char *const *names, int32_t otherwise) {
    int64_t most = g->c->server->o.max_tokens ? g->c->server->o.max_tokens : otherwise;
    while (*names && !serve_member(object, *names)) names++;
    if (*names) most = serve_integer(object, *names, most);
    g->how.max_tokens = most < 0 || most > INT32_MAX ? INT32_MAX : (int32_t)most;
}

#define IS_BUDGET SERVE_IS_INTEGER(-1, INT64_MAX)
const serve_field serve_thinking_fields[] = {
    {"thinking_budget_tokens", .is = IS_BUDGET}, /* llama-server, with the next */
    {"reasoning_budget_tokens", .is = IS_BUDGET},
    {"thinking_token_budget", .is = IS_BUDGET}, /* vLLM */
    {"thinking_budget", .is = IS_BUDGET},       /* Qwen's own service */
    {0}};

void serve_read_thinking_budget(serve_generation *g, const ht_json *object) {
    const serve_field *field = serve_thinking_fields;
    while (field->name && !serve_member(object, field->name)) field++;
    if (!field->name) return;
    const int64_t most = serve_integer(object, field->name, -1);
    g->how.max_thinking_tokens = most > INT32_MAX ? INT32_MAX : (int32_t)most;
}

const serve_field serve_logprobs_fields[] = {
    {"logprobs", .is = SERVE_IS_FLAG}, {"top_logprobs", .is = SERVE_IS_INTEGER(0, SERVE_MOST_LOGPROBS)}, {0}};

bool serve_read_logprobs(serve_generation *g) {
    g->logprobs = serve_flag(g->c->body, "logprobs", false);
    g->top_logprobs = (int32_t)serve_integer(g->c->body, "top_logprobs", 0);
    if (!g->top_logprobs || g->logprobs) return true;
    return serve_fail(&g->c->failure, 400, "top_logprobs", "\"top_logprobs\" requires \"logprobs\": true");
}
