#include "serve/ollama/ollama.h"

#include "base/clock.h"
#include "serve/capabilities.h"
#include "serve/sampling.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

/* Members of `options`, beside those of samplers. */
static const serve_field option_members[] = {
    {"num_predict", .is = SERVE_IS_INTEGER(-2, INT64_MAX)},
    {"num_ctx", .is = SERVE_IS_INTEGER(1, INT64_MAX)},
    {"stop", .is = SERVE_IS_STOP},
    {"penalize_newline", .class = SERVE_LACKED, .is = {.types = SERVE_JSON_FLAG, .on = true},
     .instead = "newlines are penalized like other tokens"},
    {"num_keep", .class = SERVE_NOTED},
    {"draft_num_predict", .class = SERVE_NOTED},
    {"num_batch", .class = SERVE_NOTED}, /* about the machine, which the server was told of */
    {"num_gpu", .class = SERVE_NOTED},
    {"main_gpu", .class = SERVE_NOTED},
    {"num_thread", .class = SERVE_NOTED},
    {"num_gqa", .class = SERVE_NOTED},
    {"numa", .class = SERVE_NOTED},
    {"low_vram", .class = SERVE_NOTED},
    {"f16_kv", .class = SERVE_NOTED},
    {"use_mmap", .class = SERVE_NOTED},
    {"use_mlock", .class = SERVE_NOTED},
    {"logits_all", .class = SERVE_NOTED},
    {"embedding_only", .class = SERVE_NOTED},
    {"vocab_only", .class = SERVE_LACKED},
    {"rope_frequency_base", .class = SERVE_LACKED},
    {"rope_frequency_scale", .class = SERVE_LACKED},
    {0}};
const serve_field *const serve_ollama_options[] = {option_members, serve_sampling_fields, NULL};

static const char *const formats[] = {"", "json", NULL}, *const thinkings[] = {"low", "medium", "high", "max", NULL};
const serve_field serve_ollama_fields[] = {
    {"model", .is = SERVE_IS_TEXT},
    {"options", .is = SERVE_IS_OBJECT(serve_ollama_options)},
    {"format", .is = {.types = SERVE_JSON_TEXT | SERVE_JSON_OBJECT, .words = formats}},
    {"stream", .is = SERVE_IS_FLAG},
    {"think", .is = {.types = SERVE_JSON_TEXT | SERVE_JSON_FLAG, .words = thinkings}},
    {"keep_alive", .is = SERVE_IS_DURATION},
    {"shift", .class = SERVE_LACKED},
    {"debug_render_only", .class = SERVE_LACKED},
    {0}};

/* ---- options ---- */

/* A context of the client's choice is no more than the model's; less than that saves nothing here, as memory is taken when it is needed. */
static void tell_of_context(serve_call *c, const ht_json *options) {
    if (serve_integer(options, "num_ctx", 1) > ht_model_context(c->lease.model)) serve_call_ignore(c, "num_ctx");
}

/* -1 and -2, and 0, leave the end to the context. */
static void read_most(serve_generation *g, const ht_json *options) {
    static const char *const names[] = {"num_predict", NULL};
    serve_read_max_tokens(g, options, names, INT32_MAX);
    if (!g->how.max_tokens) g->how.max_tokens = INT32_MAX;
}

static bool read_options(serve_generation *g) {
    const ht_json *options = serve_member(g->c->body, "options");
    if (!serve_read_sampling(g, options)) return false;
    tell_of_context(g->c, options);
    read_most(g, options);
    return serve_read_stop(g, ht_json_object_get(options, "stop"));
}

/* ---- format, thinking, log-probabilities ---- */

static bool read_format(serve_generation *g) {
    const ht_json *format = serve_member(g->c->body, "format");
    if (ht_json_is_object(format)) return serve_hold_to_schema(g, format, "format");
    return ht_json_string_length(format) ? serve_hold_to_any_object(g, "format") : true;
}

static bool read_think(serve_call *c, serve_conversation *k) {
    const ht_json *think = serve_member(c->body, "think");
    const int word = serve_word(c->body, "think", thinkings, -1);
    if (!think) return true;
    if (word >= 0) k->effort = thinkings[word > 2 ? 2 : word];
    k->thinking = ht_json_is_false(think) ? SERVE_THINKING_OFF : SERVE_THINKING_ON;
    if (k->thinking == SERVE_THINKING_OFF) return true;
    const serve_capabilities can = serve_capabilities_of(ht_model_tokenizer(c->lease.model));
    return !can.template || can.thinking
               ? true
               : serve_fail(&c->failure, 400, "think",
                            "\"%.128s\" does not support thinking: its chat template has none", c->lease.name);
}

/* ---- how long models stay ---- */

/* Whether a text is a duration such as "5m", "1h30m", "-1" or "0", and whether it is none at all, in *zero. */
static bool is_duration(const char *text, bool *zero) {
    static const char *const units[] = {"ns", "us", "µs", "ms", "s", "m", "h"};
    *zero = true;
    if (*text == '-' || *text == '+') text++;
    if (!*text) return false;
    while (*text) {
        bool digits = false, unit = false;
        for (; isdigit((unsigned char)*text) || *text == '.'; text++) {
            digits = digits || *text != '.';
            if (*text >= '1' && *text <= '9') *zero = false;
        }
        if (!digits) return false;
        for (size_t i = 0; i < sizeof units / sizeof *units && !unit; i++) {
            const size_t n = strlen(units[i]);
            unit = strncmp(text, units[i], n) == 0 && (!text[n] || isdigit((unsigned char)text[n]) || text[n] == '.');
            if (unit) text += n;
        }
        if (!unit && *text) return false;
    }
    return true;
}

bool serve_ollama_read_keep_alive(const ht_json *body, bool *unload, serve_failure *f) {
    const ht_json *value = serve_member(body, "keep_alive");
    *unload = false;
    if (!value) return true;
    if (ht_json_is_number(value)) {
        *unload = !(ht_json_number_value(value) < 0) && !(ht_json_number_value(value) > 0);
        return true;
    }
    if (!ht_json_is_string(value) || !is_duration(ht_json_string_value(value), unload))
        return serve_fail(
            f, 400, "keep_alive",
            "\"keep_alive\" must be a duration such as \"5m\", or a number of seconds; 0 unloads the model");
    return true;
}

/* Whether there is nothing to answer. */
static bool is_empty(const ht_json *body) {
    const ht_json *messages = serve_member(body, "messages");
    const char *prompt = ht_json_string_value(ht_json_object_get(body, "prompt"));
    return !ht_json_array_size(messages) && !(prompt && *prompt) && !serve_member(body, "suffix") &&
           (!messages || ht_json_is_array(messages));
}

bool serve_ollama_only_unloads(const ht_json *body) {
    bool unload;
    serve_failure f = {0};
    return is_empty(body) && serve_ollama_read_keep_alive(body, &unload, &f) && unload;
}

/* Has a model go once nobody uses it. */
static bool unload_model(serve_call *c) {
    serve_model_name m;
    const char *name = serve_filled_text(c->body, "model");
    if (!serve_models_find(c->server->models, name, &m))
        return serve_fail(&c->failure, 404, "model", "model \"%.128s\" not found", name);
    return serve_models_unload(c->server->models, m.model ? m.model : m.alias_of ? m.alias_of : m.name);
}

bool serve_ollama_answer_loaded(serve_call *c, bool chat) {
    bool unload;
    if (!serve_ollama_read_keep_alive(c->body, &unload, &c->failure) || (unload && !unload_model(c))) return false;
    ht_json *line = serve_ollama_line(c, chat, "", 0, true);
    ht_json_object_set_new(line, "done_reason", ht_json_string(unload ? "unload" : "load"));
    serve_reply_json(c->x, 200, line, SERVE_OLLAMA);
    return true;
}

const char *serve_ollama_model_name(const serve_call *c) {
    const char *asked = serve_filled_text(c->body, "model");
    return asked ? asked : c->lease.name ? c->lease.name : "";
}

/* ---- generations ---- */

static void free_extra(void *user) {
    serve_ollama *o = user;
    if (!o) return;
    free(o->prompt.id);
    free(o);
}

serve_generation *serve_ollama_generation(serve_call *c, bool chat, serve_conversation *k) {
    bool unload;
    serve_generation *g = serve_generation_new(c, &serve_ollama_dialect);
    serve_ollama *o = g ? calloc(1, sizeof *o) : NULL;
    if (!g) return NULL;
    if (!o) {
        serve_fail_memory(&c->failure);
        return NULL;
    }
    g->extra = o;
    g->free_extra = free_extra;
    o->chat = chat;
    o->model_ready = ht_now_seconds();
    g->stream = serve_flag(c->body, "stream", true);
    if (!serve_ollama_read_keep_alive(c->body, &unload, &c->failure) || !read_options(g) || !serve_read_logprobs(g) ||
        !read_think(c, k) || !read_format(g))
        return NULL;
    return g;
}

bool serve_ollama_start(serve_generation *g) {
    bool unload;
    if (!serve_ollama_read_keep_alive(g->c->body, &unload, &g->c->failure)) return false;
    /* Before there is an answer, after which the client may ask whether the model has gone. The lease keeps it until then. */
    if (unload && !unload_model(g->c)) return false;
    return serve_generation_start(g);
}
