#include "serve/sampling.h"

#include "formats/json.h"

#include <errno.h>
#include <math.h>
#include <stddef.h>
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
    /* Unsupported samplers. Some clients send every sampler, so values that turn one off are valid. */
    {SERVE_NAMES("typical_p", "typ_p", "tfs_z"), .class = SERVE_LACKED, .is = SERVE_IS_NUMBER(1, INT64_MAX),
     .instead = "leave it out, or send 1"},
    {SERVE_NAMES("mirostat", "dry_multiplier", "xtc_probability", "dynatemp_range", "top_n_sigma"),
     .class = SERVE_LACKED, .is = SERVE_IS_NUMBER(INT64_MIN, 0), .instead = "leave it out, or send 0"},
    SERVE_LACKED_FIELDS("use_beam_search"),
    SERVE_NOTED_FIELDS("mirostat_tau", "mirostat_eta", "dry_base", "dry_allowed_length", "dry_penalty_last_n",
                       "dry_sequence_breakers", "xtc_threshold", "dynatemp_exponent"),
    {0}};

const serve_field serve_noted_fields[] = {
    SERVE_NOTED_FIELDS("metadata", "moderation", "prompt_cache_key", "prompt_cache_options", "prompt_cache_retention",
                       "safety_identifier", "service_tier", "store", "user", "verbosity", "cache_prompt", "prediction",
                       "id_slot", "timings_per_token"),
    {0}};

#define IS_BUDGET SERVE_IS_INTEGER(-1, INT64_MAX)
const serve_field serve_thinking_fields[] = {
    {"thinking_budget_tokens", .is = IS_BUDGET}, /* llama-server's, as is the next */
    {"reasoning_budget_tokens", .is = IS_BUDGET},
    {"thinking_token_budget", .is = IS_BUDGET}, /* vLLM's */
    {"thinking_budget", .is = IS_BUDGET},       /* Qwen's own service */
    {0}};

const serve_field serve_logprobs_fields[] = {
    {"logprobs", .is = SERVE_IS_FLAG}, {"top_logprobs", .is = SERVE_IS_INTEGER(0, SERVE_MOST_LOGPROBS)}, {0}};

/* ---- the seed ---- */

/* Any integer is a seed, modulo 2^64; -1 requests a random one. */
static void read_seed(serve_generation *g, const ht_json *object) {
    const serve_options *o = &g->c->server->o;
    const ht_json *value = serve_member(object, "seed");
    if (value) (void)ht_json_modulo(value, &g->sampler.seed);
    if (value ? ht_json_number_value(value) == -1 : !o->seed_given) {
        uint64_t drawn = 0;
        serve_random(&drawn, sizeof drawn);
        g->sampler.seed = drawn >> 11; /* exact as a JavaScript number */
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

/* ---- options ---- */

/* Sampling options of requests, with the library's name where it differs. */
static const struct option {
    const char *name, *of_model;
    size_t offset;
    bool is_integer;
} options[] = {{"temperature", NULL, offsetof(ht_sampler_options, temperature), false},
               {"top_p", NULL, offsetof(ht_sampler_options, top_p), false},
               {"top_k", NULL, offsetof(ht_sampler_options, top_k), true},
               {"min_p", NULL, offsetof(ht_sampler_options, min_p), false},
               {"repeat_penalty", NULL, offsetof(ht_sampler_options, repeat_penalty), false},
               {"repetition_penalty", NULL, offsetof(ht_sampler_options, repeat_penalty), false},
               {"repeat_last_n", "repeat_window", offsetof(ht_sampler_options, repeat_window), true},
               {"presence_penalty", NULL, offsetof(ht_sampler_options, presence_penalty), false},
               {"frequency_penalty", NULL, offsetof(ht_sampler_options, frequency_penalty), false}};

static bool read_stop(serve_generation *g, const ht_json *value) {
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

static int32_t bounded(int64_t tokens) { return tokens > INT32_MAX ? INT32_MAX : (int32_t)tokens; }

/* Reads stop strings, the token limit and the reasoning budget. */
static bool read_ends(serve_generation *g, const ht_json *object, const serve_option_names *names) {
    const int32_t server = g->c->server->o.max_tokens;
    const ht_json *stop = serve_member(object, names->stop);
    const serve_field *budget = serve_thinking_fields;
    const char *const *name = names->max_tokens;
    while (*name && !serve_member(object, *name)) name++;
    const int64_t most = *name ? serve_integer(object, *name, 0) : server ? server : names->most;
    g->how.max_tokens = most < 0 ? INT32_MAX : bounded(most);
    while (names->thinking && budget->name && !serve_member(object, budget->name)) budget++;
    if (names->thinking && budget->name) g->how.max_thinking_tokens = bounded(serve_integer(object, budget->name, -1));
    return !stop || (ht_json_is_string(stop) && !ht_json_string_length(stop)) || read_stop(g, stop);
}

/* Reads the options of the response's form. */
static bool read_form(serve_generation *g, const ht_json *body, const serve_option_names *names) {
    const ht_json *usage = serve_member(body, "stream_options");
    g->stream = serve_flag(body, "stream", names->streams);
    g->usage = serve_flag(usage, "include_usage", false);
    g->continuous_usage = serve_flag(usage, "continuous_usage_stats", false);
    if (!names->logprobs) return true;
    g->logprobs = serve_flag(body, "logprobs", false);
    g->top_logprobs = (int32_t)serve_integer(body, "top_logprobs", 0);
    if (!g->top_logprobs || g->logprobs) return true;
    return serve_fail(&g->c->failure, 400, "top_logprobs", "\"top_logprobs\" requires \"logprobs\": true");
}

bool serve_read_options(serve_generation *g, const ht_json *object, const serve_option_names *names) {
    ht_sampler_options *s = &g->sampler;
    ht_error err = {0};
    *s = g->c->server->o.sampler;
    for (size_t i = 0; i < sizeof options / sizeof *options; i++) {
        const ht_json *value = serve_member(object, options[i].name);
        char *to = (char *)s + options[i].offset;
        if (value && options[i].is_integer)
            *(int32_t *)(void *)to = (int32_t)ht_json_number_value(value);
        else if (value)
            *(float *)(void *)to = (float)ht_json_number_value(value);
    }
    if (s->top_k == -1) s->top_k = 0;
    g->how.ignore_eos = serve_flag(object, "ignore_eos", g->how.ignore_eos);
    const ht_status status = ht_sampler_options_resolve(g->c->lease.model, s, s, &err);
    if (status) return serve_fail_as(&g->c->failure, status, &err);
    read_seed(g, object);
    return read_bias(g, object) && read_ends(g, object, names) && read_form(g, g->c->body, names);
}

double serve_rounded(float value) { return round((double)value * 1e6) / 1e6; }

ht_sampling_value serve_sampling_value(const serve_options *o, const ht_sampling_value *of_model) {
    ht_sampling_value v = *of_model;
    for (size_t i = 0; i < sizeof options / sizeof *options; i++) {
        const struct option *k = &options[i];
        const char *from = (const char *)&o->sampler + k->offset;
        const float given =
            k->is_integer ? (float)*(const int32_t *)(const void *)from : *(const float *)(const void *)from;
        if (strcmp(k->of_model ? k->of_model : k->name, v.name) != 0 || given == (float)HT_SAMPLER_UNSET) continue;
        v.value = serve_rounded(given);
        v.source = "server option";
    }
    return v;
}
