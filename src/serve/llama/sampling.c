#include "serve/llama/sampling.h"

#include "formats/json.h"
#include "serve/prompts.h"
#include "serve/sampling.h"

#include <stdlib.h>
#include <string.h>

static const serve_shape biased_shape = {.types = SERVE_JSON_TEXT | SERVE_JSON_NUMBER | SERVE_JSON_FLAG},
                         pair_shape = {.types = SERVE_JSON_LIST, .fewest = 2, .most = 2, .item = &biased_shape};
static const serve_shape bias_shape = SERVE_IS_NUMBER(-100, 100);
const serve_field serve_llama_sampling_fields[] = {
    {"samplers", .is = SERVE_IS_LIST(&serve_any_text)},
    {"logit_bias", .is = {.types = SERVE_JSON_LIST | SERVE_JSON_OBJECT, .item = &pair_shape, .every = &bias_shape}},
    {"n_keep", .is = SERVE_IS_INTEGER(-1, INT32_MAX)},
    {"n_discard", .is = SERVE_IS_INTEGER(0, INT32_MAX)},
    {"min_keep", .class = SERVE_NOTED},
    {"t_max_predict_ms", .class = SERVE_LACKED, .is = SERVE_IS_INTEGER(INT64_MIN, 0),
     .instead = "set \"n_predict\" instead"},
    {"n_indent", .class = SERVE_LACKED},
    {"backend_sampling", .class = SERVE_NOTED},
    {0}};

/* ---- the chain ---- */

/* Names of llama-server's samplers, and the stages here; NULL: there is none. */
static const struct stage {
    const char *sampler, *stage;
} stages[] = {{"penalties", "repeat_penalty"},
              {"temperature", "temperature"},
              {"temp", "temperature"},
              {"top_k", "top_k"},
              {"top_p", "top_p"},
              {"min_p", "min_p"},
              {"dry", NULL},
              {"typ_p", NULL},
              {"typical_p", NULL},
              {"top_n_sigma", NULL},
              {"xtc", NULL},
              {"infill", NULL},
              {"adaptive_p", NULL}};

static const struct stage *find_stage(const char *name) {
    for (size_t i = 0; name && i < sizeof stages / sizeof *stages; i++)
        if (strcmp(stages[i].sampler, name) == 0) return &stages[i];
    return NULL;
}

/* A sampler that the chain leaves out does nothing. */
static void leave_out(ht_sampler_options *s, const char *order) {
    if (!strstr(order, "repeat_penalty")) {
        s->repeat_penalty = 1;
        s->presence_penalty = s->frequency_penalty = 0;
    }
    if (!strstr(order, "temperature") && s->temperature > 0) s->temperature = 1;
    if (!strstr(order, "top_k")) s->top_k = 0;
    if (!strstr(order, "top_p")) s->top_p = 0;
    if (!strstr(order, "min_p")) s->min_p = 0;
}

static bool read_chain(serve_generation *g, char order[SERVE_LLAMA_ORDER]) {
    const ht_json *list = serve_member(g->c->body, "samplers");
    serve_failure *f = &g->c->failure;
    ht_error err = {0};
    *order = '\0';
    if (!list) return true;
    for (size_t i = 0; i < ht_json_array_size(list); i++) {
        const struct stage *stage = find_stage(ht_json_string_value(ht_json_array_get(list, i)));
        if (!stage)
            return serve_fail(f, 400, "samplers",
                              "\"samplers\": number %zu is none; there are \"penalties\", \"temperature\", \"top_k\", "
                              "\"top_p\" and \"min_p\"",
                              i);
        if (!stage->stage) continue;
        const size_t n = strlen(order);
        if (n + strlen(stage->stage) + 2 > SERVE_LLAMA_ORDER)
            return serve_fail(f, 400, "samplers", "\"samplers\" must not repeat a sampler");
        snprintf(order + n, SERVE_LLAMA_ORDER - n, "%s%s", n ? "," : "", stage->stage);
    }
    if (*order && ht_sampler_order_check(order, &err))
        return serve_fail(f, 400, "samplers", "\"samplers\": %s", err.message);
    if (*order) g->sampler.order = order;
    leave_out(&g->sampler, order);
    return true;
}

/* ---- biases as lists ---- */

static bool add_bias(serve_call *c, const ht_json *pair, ht_json *to) {
    const ht_json *which = ht_json_array_get(pair, 0), *value = ht_json_array_get(pair, 1);
    serve_ids ids = {0};
    bool good = true;
    int64_t id;
    if (!(ht_json_is_number(value) || ht_json_is_false(value)) ||
        !(ht_json_is_string(which) || ht_json_whole(which, &id)))
        return serve_fail(
            &c->failure, 400, "logit_bias",
            "\"logit_bias\" must be a list of [token, bias]: a token is an id or a string, a bias a number or false");
    /* false: never. What is beyond the bounds forbids or prescribes as well as they do. */
    double bias = ht_json_is_false(value) ? -100 : ht_json_number_value(value);
    bias = bias < -100 ? -100 : bias > 100 ? 100 : bias;
    if (ht_json_is_string(which)) {
        good = serve_ids_append_text(c, &ids, ht_json_string_value(which), true, "logit_bias");
    } else {
        if (id < 0 || id >= ht_model_vocab_size(c->lease.model))
            return serve_fail(&c->failure, 400, "logit_bias", "\"logit_bias\": %lld is no token of the model",
                              (long long)id);
        good = serve_ids_append(&ids, &(int32_t){(int32_t)id}, 1, &c->failure);
    }
    for (size_t i = 0; good && i < ids.n; i++) {
        char name[16];
        snprintf(name, sizeof name, "%d", (int)ids.id[i]);
        good = ht_json_object_set_new(to, name, ht_json_real(bias)) == 0 ? true : serve_fail_memory(&c->failure);
    }
    free(ids.id);
    return good;
}

/* The members of sampling, biases that are lists made into an object of them; NULL: a failure. */
static ht_json *with_object_of_biases(serve_call *c) {
    const ht_json *list = serve_member(c->body, "logit_bias");
    if (!ht_json_is_array(list)) return ht_json_incref(c->body);
    ht_json *out = ht_json_copy(c->body), *biases = ht_json_new_object();
    bool good = out && biases;
    for (size_t i = 0; good && i < ht_json_array_size(list); i++)
        good = add_bias(c, ht_json_array_get(list, i), biases);
    if (good && ht_json_object_set(out, "logit_bias", biases) == 0) {
        ht_json_decref(biases);
        return out;
    }
    ht_json_decref(out);
    ht_json_decref(biases);
    serve_fail_memory(&c->failure); /* unless there is another failure */
    return NULL;
}

/* ---- all ---- */

bool serve_llama_read_sampling(serve_generation *g, char order[SERVE_LLAMA_ORDER]) {
    serve_call *c = g->c;
    ht_json *members = with_object_of_biases(c);
    const bool good = members && serve_read_sampling(g, members);
    ht_json_decref(members);
    if (!good) return false;
    return read_chain(g, order);
}

ht_json *serve_llama_settings(const serve_generation *g) {
    const ht_sampler_options *s = &g->sampler;
    ht_json *stop = ht_json_new_array(), *samplers = ht_json_new_array();
    const char *order = s->order ? s->order : "repeat_penalty,temperature,top_p,top_k,min_p";
    for (int i = 0; i < g->how.n_stop; i++) ht_json_array_append_new(stop, ht_json_string(g->how.stop[i]));
    while (*order) {
        const size_t n = strcspn(order, ",");
        const bool penalties = strncmp(order, "repeat_penalty", n) == 0;
        ht_json_array_append_new(samplers, penalties ? ht_json_string("penalties") : ht_json_stringn(order, n));
        order += n + (order[n] == ',');
    }
    return ht_json_pack("{so sf si sf sf sf si sf sf so sI sI sb sb si so}", "seed", ht_json_unsigned(s->seed),
                        "temperature", (double)s->temperature, "top_k", (int)s->top_k, "top_p",
                        s->top_p > 0 ? (double)s->top_p : 1.0, "min_p", (double)s->min_p, "repeat_penalty",
                        s->repeat_penalty > 0 ? (double)s->repeat_penalty : 1.0, "repeat_last_n", (int)s->repeat_window,
                        "presence_penalty", (double)s->presence_penalty, "frequency_penalty",
                        (double)s->frequency_penalty, "stop", stop, "n_predict",
                        g->how.max_tokens == INT32_MAX ? (int64_t)-1 : (int64_t)g->how.max_tokens,
                        "reasoning_budget_tokens", (int64_t)g->how.max_thinking_tokens, "stream", (int)g->stream,
                        "ignore_eos", (int)g->how.ignore_eos, "n_probs", (int)g->top_logprobs, "samplers", samplers);
}
