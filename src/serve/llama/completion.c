/* Completions in llama-server's form, of prompts and of fill-in-the-middle: sampling options and responses. */
#include "serve/conversation.h"
#include "serve/endpoints.h"
#include "serve/prompts.h"
#include "serve/sampling.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_FILES = 1024 };

/* ---- fields ---- */

static const serve_shape biased_shape = {.types = SERVE_JSON_TEXT | SERVE_JSON_NUMBER | SERVE_JSON_FLAG},
                         pair_shape = {.types = SERVE_JSON_LIST, .fewest = 2, .most = 2, .item = &biased_shape};
static const serve_shape bias_shape = SERVE_IS_NUMBER(-100, 100);
static const serve_field sampling_fields[] = {
    {"samplers", .is = SERVE_IS_LIST(&serve_any_text)},
    {"logit_bias", .is = {.types = SERVE_JSON_LIST | SERVE_JSON_OBJECT, .item = &pair_shape, .every = &bias_shape}},
    {"n_keep", .is = SERVE_IS_INTEGER(-1, INT32_MAX)},
    {"n_discard", .is = SERVE_IS_INTEGER(0, INT32_MAX)},
    SERVE_NOTED_FIELDS("min_keep"),
    {"t_max_predict_ms", .class = SERVE_LACKED, .is = SERVE_IS_INTEGER(INT64_MIN, 0),
     .instead = "set \"n_predict\" instead"},
    SERVE_LACKED_FIELDS("n_indent"),
    SERVE_NOTED_FIELDS("backend_sampling"),
    {0}};

static const serve_field common_fields[] = {
    {"model", .is = SERVE_IS_TEXT},
    {"n_predict", .is = SERVE_IS_MAX_TOKENS},
    {"max_tokens", .is = SERVE_IS_MAX_TOKENS},
    {"n", .is = SERVE_IS_INTEGER(1, SERVE_MOST_ANSWERS)},
    {"n_cmpl", .is = SERVE_IS_INTEGER(1, SERVE_MOST_ANSWERS)},
    {"stream", .is = SERVE_IS_FLAG},
    {"stop", .is = SERVE_IS_STOP},
    {"n_probs", .is = SERVE_IS_INTEGER(0, SERVE_MOST_LOGPROBS)},
    {"logprobs", .is = SERVE_IS_INTEGER(0, SERVE_MOST_LOGPROBS)},
    {"return_tokens", .is = SERVE_IS_FLAG},
    SERVE_LACKED_FIELDS("post_sampling_probs", "return_progress", "response_fields"),
    {"lora", .class = SERVE_LACKED, .instead = "each adapter is a model"},
    SERVE_LACKED_FIELDS("image_data", "system_prompt"),
    SERVE_MORE(sampling_fields),
    SERVE_MORE(serve_sampling_fields),
    SERVE_MORE(serve_structure_fields),
    SERVE_MORE(serve_noted_fields),
    {0}};
const serve_field serve_llama_completion_fields[] = {{"prompt", .is = SERVE_IS_PROMPTS, .required = true},
                                                     SERVE_MORE(serve_thinking_fields),
                                                     SERVE_MORE(common_fields),
                                                     {0}};
static const serve_shape file =
    SERVE_IS_OBJECT(SERVE_FIELDS({"filename", .is = SERVE_IS_TEXT}, {"text", .is = SERVE_IS_TEXT, .required = true}));
const serve_field serve_llama_infill_fields[] = {
    {"input_prefix", .is = SERVE_IS_TEXT, .required = true},
    {"input_suffix", .is = SERVE_IS_TEXT, .required = true},
    {"input_extra", .is = {.types = SERVE_JSON_LIST, .most = MOST_FILES, .item = &file}},
    {"prompt", .is = SERVE_IS_TEXT},
    SERVE_MORE(common_fields),
    {0}};

enum { ORDER = 128 }; /* size of the sampler order, a generation's `extra` */

/* ---- sampling ---- */

/* llama-server's samplers and the stages here; NULL: unsupported. */
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

/* Disables samplers that the chain omits. */
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

static bool read_chain(serve_generation *g, char order[ORDER]) {
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
        if (n + strlen(stage->stage) + 2 > ORDER)
            return serve_fail(f, 400, "samplers", "\"samplers\" must not repeat a sampler");
        snprintf(order + n, ORDER - n, "%s%s", n ? "," : "", stage->stage);
    }
    if (*order && ht_sampler_order_check(order, &err))
        return serve_fail(f, 400, "samplers", "\"samplers\": %s", err.message);
    if (*order) g->sampler.order = order;
    leave_out(&g->sampler, order);
    return true;
}

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
    /* `false` bans the token. Biases beyond the bounds act like the bounds, hence the clamp. */
    double bias = ht_json_is_false(value) ? -100 : ht_json_number_value(value);
    bias = bias < -100 ? -100 : bias > 100 ? 100 : bias;
    if (ht_json_is_string(which)) {
        good = serve_ids_append_text(c, &ids, ht_json_string_value(which), HT_ENCODE_PARSE_SPECIAL, "logit_bias");
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

/* The sampling fields, with a list of biases converted to an object; NULL: a failure. */
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
    serve_fail_memory(&c->failure); /* unless a failure is set already */
    return NULL;
}

static bool read_options(serve_generation *g) {
    static const serve_option_names names = {
        .max_tokens = {"n_predict", "max_tokens"}, .most = INT32_MAX, .stop = "stop", .thinking = true};
    ht_json *members = with_object_of_biases(g->c);
    const bool good = members && serve_read_options(g, members, &names) && read_chain(g, g->extra);
    ht_json_decref(members); /* the body keeps the stop strings alive */
    return good;
}

/* ---- answers ---- */

static double per(double amount, double of) { return of > 0 ? amount / of : 0; }

static ht_json *timings(const serve_answer *a) {
    const ht_metrics *m = &a->metrics;
    const double prompt_ms = m->prefill_seconds * 1e3, decode_ms = m->decode_seconds * 1e3;
    const double prompt_n = (double)m->prompt_tokens, n = (double)m->generated_tokens;
    ht_json *out = ht_json_pack(
        "{sI sI sf sf sf sI sf sf sf}", "cache_n", (int64_t)a->reuse.reused, "prompt_n", (int64_t)m->prompt_tokens,
        "prompt_ms", prompt_ms, "prompt_per_token_ms", per(prompt_ms, prompt_n), "prompt_per_second",
        per(prompt_n * 1e3, prompt_ms), "predicted_n", (int64_t)m->generated_tokens, "predicted_ms", decode_ms,
        "predicted_per_token_ms", per(decode_ms, n), "predicted_per_second", per(n * 1e3, decode_ms));
    if (m->guessed_tokens) {
        ht_json_object_set_new(out, "draft_n", ht_json_integer(m->guessed_tokens));
        ht_json_object_set_new(out, "draft_n_accepted", ht_json_integer(m->accepted_tokens));
    }
    return out;
}

static const char *stop_type(const serve_answer *a) {
    if (a->metrics.finish == HT_FINISH_LENGTH) return "limit";
    return a->metrics.stop >= 0 ? "word" : "eos";
}

static ht_json *prompt_json(const serve_generation *g, const serve_answer *a) {
    char *text = NULL;
    size_t n = 0;
    const serve_prompt *p = &g->prompt[(size_t)a->index / (size_t)g->n];
    const ht_tokenizer *t = ht_model_tokenizer(g->c->lease.model);
    if (!t || ht_tokenizer_decode(t, p->ids, p->n_ids, false, &text, &n, NULL)) return ht_json_string("");
    ht_json *out = ht_json_stringn(text, n);
    ht_text_free(text);
    return out;
}

static ht_json *ids_json(const serve_answer *a) {
    ht_json *ids = ht_json_new_array();
    for (size_t i = 0; i < a->n_ids; i++) ht_json_array_append_new(ids, ht_json_integer(a->ids[i]));
    return ids;
}

static void set_probabilities(serve_answer *a, ht_json *to) {
    ht_json *come = serve_take_logprobs(a);
    if (come) ht_json_object_set_new(to, "completion_probabilities", come);
}

/* The generation settings in a response. */
static ht_json *settings(const serve_generation *g) {
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

/* An ended answer; a stream has sent its text before. */
static ht_json *whole_json(serve_generation *g, serve_answer *a) {
    const serve_usage u = serve_answer_usage(a);
    const bool word = a->metrics.finish == HT_FINISH_STOP && a->metrics.stop >= 0 && a->metrics.stop < g->how.n_stop;
    const bool newline = a->block || (a->text.data && strchr(a->text.data, '\n'));
    ht_json *out = ht_json_pack("{si so so si sb ss sI sI so so sb sb ss ss sI so}", "index", (int)a->index, "content",
                                serve_text_json(&a->text), "tokens", ids_json(a), "id_slot", -1, "stop", 1, "model",
                                g->c->lease.name, "tokens_predicted", (int64_t)u.generated, "tokens_evaluated",
                                (int64_t)u.prompt, "generation_settings", settings(g), "prompt", prompt_json(g, a),
                                "has_new_line", (int)newline, "truncated", 0, "stop_type", stop_type(a),
                                "stopping_word", word ? g->how.stop[a->metrics.stop] : "", "tokens_cached",
                                (int64_t)(u.prompt + u.generated), "timings", timings(a));
    set_probabilities(a, out);
    return out;
}

/* One answer as an object, several as a list. */
static ht_json *reply(serve_generation *g) {
    if (g->n_answers == 1) return whole_json(g, &g->answer[0]);
    ht_json *list = ht_json_new_array();
    for (size_t i = 0; i < g->n_answers; i++) ht_json_array_append_new(list, whole_json(g, &g->answer[i]));
    return list;
}

static void piece(serve_generation *g, serve_answer *a, const ht_answer_piece *p) {
    if (p->part != HT_ANSWER_TEXT) return;
    if (memchr(p->text, '\n', p->n)) a->block = 1; /* records a newline */
    ht_json *out = ht_json_pack("{si ss% s[] sb si}", "index", (int)a->index, "content", p->text, p->n, "tokens",
                                "stop", 0, "id_slot", -1);
    set_probabilities(a, out);
    serve_send(g, NULL, out);
}

static void answer_end(serve_generation *g, serve_answer *a) { serve_send(g, NULL, whole_json(g, a)); }

static const serve_dialect completion = {
    .extra_bytes = ORDER, .piece = piece, .answer_end = answer_end, .reply = reply};

/* ---- requests ---- */

/* The call's generation with everything but the prompts. */
static serve_generation *new_generation(serve_call *c) {
    serve_generation *g = serve_generation_new(c, &completion);
    const ht_json *body = c->body;
    const int64_t top = serve_integer(body, "logprobs", serve_integer(body, "n_probs", 0));
    if (!g) return NULL;
    g->n = (int32_t)serve_integer(body, "n_cmpl", serve_integer(body, "n", 1));
    g->logprobs = top > 0;
    g->top_logprobs = (int32_t)top;
    g->keep_ids = serve_flag(body, "return_tokens", false);
    return read_options(g) && serve_read_structure(g, body) ? g : NULL;
}

/* A limit of 0 tokens only prefills the prompt cache. */
static bool start(serve_generation *g) {
    return g->how.max_tokens > 0 ? serve_generation_start(g) : serve_generation_warm(g);
}

bool serve_llama_completion(serve_call *c) {
    serve_generation *g = new_generation(c);
    return g && serve_read_prompts(g, "prompt", serve_read_prompt) && start(g);
}

/* ---- fill-in-the-middle ---- */

static bool read_files(serve_call *c, serve_infill *in, serve_infill_file **out) {
    const ht_json *list = serve_member(c->body, "input_extra");
    in->n_files = ht_json_array_size(list);
    in->file = *out = calloc(in->n_files + 1, sizeof **out);
    if (!*out) return serve_fail_memory(&c->failure);
    for (size_t i = 0; i < in->n_files; i++) {
        const ht_json *one = ht_json_array_get(list, i);
        const char *name = serve_text(one, "filename");
        (*out)[i] = (serve_infill_file){.name = name ? name : "snippet", .text = serve_text(one, "text")};
    }
    return true;
}

bool serve_llama_infill(serve_call *c) {
    serve_infill in = {.prefix = serve_text(c->body, "input_prefix"),
                       .suffix = serve_text(c->body, "input_suffix"),
                       .line = serve_text(c->body, "prompt")};
    serve_infill_file *files = NULL;
    serve_generation *g = new_generation(c);
    if (g) g->how.max_thinking_tokens = -1; /* text around a gap is no reasoning, whatever markers it has */
    const bool good = g && read_files(c, &in, &files) && serve_generation_prompts(g, 1) &&
                      serve_infill_prompt(c, &in, "input_prefix", &g->prompt[0]);
    free(files);
    return good && start(g);
}
