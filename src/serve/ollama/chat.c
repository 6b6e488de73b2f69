/* Chats and completions of Ollama's interface. Messages are translated into OpenAI's form; prompts are templated, raw,
 * or fill-in-the-middle. */
#include "base/clock.h"
#include "serve/ollama/ollama.h"
#include "serve/prompts.h"
#include "serve/sampling.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

/* ---- fields ---- */

/* Options, including those of the samplers. */
const serve_field serve_ollama_options[] = {
    {"num_predict", .is = SERVE_IS_INTEGER(-2, INT64_MAX)},
    {"num_ctx", .is = SERVE_IS_INTEGER(1, INT64_MAX)},
    {"stop", .is = SERVE_IS_STOP},
    {"penalize_newline", .class = SERVE_LACKED, .is = {.types = SERVE_JSON_FLAG, .on = true},
     .instead = "newlines are penalized like other tokens"},
    SERVE_LACKED_FIELDS("vocab_only", "rope_frequency_base", "rope_frequency_scale"),
    SERVE_MORE(serve_sampling_fields),
    SERVE_NOTED_FIELDS("num_keep", "draft_num_predict", "num_batch", "num_gpu", "main_gpu", "num_thread", "num_gqa",
                       "numa", "low_vram", "f16_kv", "use_mmap", "use_mlock", "logits_all", "embedding_only"),
    {0}};

static const char *const formats[] = {"", "json", NULL}, *const thinkings[] = {"low", "medium", "high", "max", NULL};
static const serve_field common_fields[] = {
    {"model", .is = SERVE_IS_TEXT},
    {"options", .is = SERVE_IS_OBJECT(serve_ollama_options)},
    {"format", .is = {.types = SERVE_JSON_TEXT | SERVE_JSON_OBJECT, .words = formats}},
    {"stream", .is = SERVE_IS_FLAG},
    {"think", .is = {.types = SERVE_JSON_TEXT | SERVE_JSON_FLAG, .words = thinkings}},
    {"keep_alive", .is = SERVE_IS_DURATION},
    SERVE_LACKED_FIELDS("shift", "debug_render_only"),
    SERVE_MORE(serve_logprobs_fields),
    {0}};

static const serve_field called[] = {
    {"name", .is = SERVE_IS_TEXT, .required = true}, {"arguments", .is = {.types = SERVE_JSON_OBJECT}}, {0}};
static const serve_shape call = SERVE_IS_PART(
    SERVE_FIELDS({"id", .is = SERVE_IS_TEXT}, {"function", .is = SERVE_IS_PART(called), .required = true}));
static const char *const roles[] = {"system", "developer", "user", "assistant", "tool", NULL};
static const serve_field message_members[] = {
    {"role", .is = SERVE_IS_WORD(roles), .required = true},
    {"content", .is = SERVE_IS_TEXT},
    {"thinking", .is = SERVE_IS_TEXT},
    {"tool_calls", .is = SERVE_IS_LIST(&call)},
    {"tool_name", .is = SERVE_IS_TEXT},
    {"tool_call_id", .is = SERVE_IS_TEXT},
    {"name", .is = SERVE_IS_TEXT},
    {"images", .class = SERVE_LACKED, .instead = "only text input is supported"},
    {0}};
static const serve_shape message = SERVE_IS_PART(message_members);
const serve_field serve_ollama_chat_fields[] = {{"messages", .is = SERVE_IS_LIST(&message)},
                                                {"tools", .is = SERVE_IS_LIST(&serve_tool_shape)},
                                                {"truncate", .is = SERVE_IS_FLAG},
                                                SERVE_MORE(common_fields),
                                                {0}};

static const serve_shape id_shape = SERVE_IS_INTEGER(0, INT32_MAX);
const serve_field serve_ollama_generate_fields[] = {
    {"prompt", .is = SERVE_IS_TEXT},
    {"suffix", .is = SERVE_IS_TEXT},
    {"system", .is = SERVE_IS_TEXT},
    {"raw", .is = SERVE_IS_FLAG},
    {"context", .is = SERVE_IS_LIST(&id_shape)},
    {"template", .class = SERVE_LACKED,
     .instead = "prompts use the model's chat template; send a formatted prompt with \"raw\": true"},
    {"images", .class = SERVE_LACKED, .instead = "only text input is supported"},
    SERVE_LACKED_FIELDS("width", "height", "steps", "truncate"),
    SERVE_MORE(common_fields),
    {0}};

/* ---- options ---- */

static bool read_options(serve_generation *g) {
    static const serve_option_names names = {
        .max_tokens = {"num_predict"}, .most = INT32_MAX, .stop = "stop", .streams = true, .logprobs = true};
    const ht_json *options = serve_member(g->c->body, "options");
    if (!serve_read_options(g, options, &names)) return false;
    if (!g->how.max_tokens) g->how.max_tokens = INT32_MAX; /* like -1 and -2: only the context limits the answer */
    /* num_ctx cannot exceed the model's context. A smaller one saves nothing, since memory is allocated on demand. */
    if (serve_integer(options, "num_ctx", 1) > ht_model_context(g->c->lease.model)) serve_call_ignore(g->c, "num_ctx");
    return true;
}

static bool read_format(serve_generation *g) {
    const ht_json *format = serve_member(g->c->body, "format");
    if (!ht_json_is_object(format) && !ht_json_string_length(format)) return true;
    return serve_hold_to_schema(g, ht_json_is_object(format) ? format : NULL, "format");
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

/* ---- keep_alive ---- */

/* Whether a text is a duration such as "5m", "1h30m", "-1" or "0"; *zero is set for a zero duration. */
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

/* Whether the request has nothing to answer. */
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

/* Unloads a model once its leases end. */
static bool unload_model(serve_call *c) {
    serve_model_name m;
    const char *name = serve_filled_text(c->body, "model");
    if (!serve_models_find(c->server->models, name, &m))
        return serve_fail(&c->failure, 404, "model", "model \"%.128s\" not found", name);
    return serve_models_unload(c->server->models, m.model ? m.model : m.alias_of ? m.alias_of : m.name);
}

/* Replies to a request without messages or a prompt, which only loads or unloads its model. */
static bool answer_loaded(serve_call *c, bool chat) {
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

/* The call's generation with the fields that chats and completions share: options, format, thinking, stream,
 * log-probabilities. */
static serve_generation *new_generation(serve_call *c, bool chat, serve_conversation *k) {
    serve_generation *g = serve_generation_new(c, &serve_ollama_dialect);
    if (!g) return NULL;
    serve_ollama *o = g->extra;
    o->chat = chat;
    o->model_ready = ht_now_seconds();
    return serve_ollama_read_keep_alive(c->body, &o->unload, &c->failure) && read_options(g) && read_think(c, k) &&
                   read_format(g)
               ? g
               : NULL;
}

/* Requests the unload before the response, so that clients can check it then. The lease keeps the model meanwhile. */
static bool start(serve_generation *g) {
    const serve_ollama *o = g->extra;
    return (!o->unload || unload_model(g->c)) && serve_generation_start(g);
}

/* ---- chats ---- */

/* Calls without a result yet. Ollama's results name a tool at most, but templates need the call's id. */
typedef struct open_calls {
    ht_json *call; /* a list of {id, name} */
    int n;         /* total calls so far */
} open_calls;

static ht_json *call_json(const ht_json *from, open_calls *open) {
    const ht_json *function = serve_member(from, "function");
    const char *name = serve_text(function, "name"), *given = serve_filled_text(from, "id");
    ht_json *arguments = (ht_json *)serve_member(function, "arguments");
    char id[16];
    snprintf(id, sizeof id, "call%05d",
             open->n++ % 100000); /* nine letters and digits, the format of the strictest templates */
    if (!given) given = id;
    ht_json_array_append_new(open->call, ht_json_pack("{ss ss}", "id", given, "name", name));
    return ht_json_pack("{ss ss s{ss so}}", "id", given, "type", "function", "function", "name", name, "arguments",
                        arguments ? ht_json_incref(arguments) : ht_json_new_object());
}

/* Removes the call that a result belongs to: the first of that tool, or the first of all. NULL: none is open. */
static ht_json *take_call(open_calls *open, const char *tool) {
    size_t i, found = 0;
    ht_json *made;
    ht_json_array_foreach(open->call, i, made) {
        const char *name = serve_text(made, "name");
        if (tool && name && strcmp(name, tool) == 0) {
            found = i;
            break;
        }
    }
    made = ht_json_incref(ht_json_array_get(open->call, found));
    ht_json_array_remove(open->call, found);
    return made;
}

static void set_result(const ht_json *from, ht_json *to, open_calls *open) {
    const char *tool = serve_text(from, "tool_name"), *id = serve_filled_text(from, "tool_call_id");
    if (!tool) tool = serve_text(from, "name");
    ht_json *made = take_call(open, tool);
    if (!tool) tool = serve_text(made, "name");
    if (!id) id = serve_text(made, "id");
    if (tool) ht_json_object_set_new(to, "name", ht_json_string(tool));
    if (id) ht_json_object_set_new(to, "tool_call_id", ht_json_string(id));
    ht_json_decref(made);
}

static bool set_calls(const ht_json *calls, ht_json *to, open_calls *open) {
    ht_json *list = ht_json_new_array();
    bool good = list;
    for (size_t i = 0; i < ht_json_array_size(calls) && good; i++)
        good = ht_json_array_append_new(list, call_json(ht_json_array_get(calls, i), open)) == 0;
    return ht_json_object_set_new(to, "tool_calls", list) == 0 && good;
}

static ht_json *message_json(const ht_json *from, open_calls *open) {
    const ht_json *calls = serve_member(from, "tool_calls");
    const char *role = serve_text(from, "role"), *content = serve_text(from, "content"),
               *thinking = serve_filled_text(from, "thinking");
    ht_json *to = ht_json_pack("{ss ss}", "role", role, "content", content ? content : "");
    if (thinking) ht_json_object_set_new(to, "thinking", ht_json_string(thinking));
    if (strcmp(role, "tool") == 0) set_result(from, to, open);
    if (!ht_json_array_size(calls) || set_calls(calls, to, open)) return to;
    ht_json_decref(to);
    return NULL;
}

static ht_json *messages_json(serve_call *c, const ht_json *from) {
    ht_json *to = ht_json_new_array();
    open_calls open = {.call = ht_json_new_array()};
    bool good = to && open.call;
    for (size_t i = 0; i < ht_json_array_size(from) && good; i++)
        good = ht_json_array_append_new(to, message_json(ht_json_array_get(from, i), &open)) == 0;
    ht_json_decref(open.call);
    if (good) return to;
    serve_fail_memory(&c->failure);
    ht_json_decref(to);
    return NULL;
}

/* Whether the conversation fits the context and leaves space for an answer. */
static bool fits(serve_call *c, const serve_conversation *k, bool *good) {
    int64_t n = 0;
    *good = serve_count_conversation(c, k, &n);
    return !*good || n < ht_model_context(c->lease.model);
}

static bool has_role(const ht_json *messages, size_t i, const char *role) {
    const char *is = serve_text(ht_json_array_get(messages, i), "role");
    return is && strcmp(is, role) == 0;
}

/* The oldest removable messages, [*from, return): a turn from one user message to the next. In the last turn, an answer
 * with the results of its calls. Empty when only the last exchange is left. */
static size_t oldest(const ht_json *messages, size_t *from) {
    const size_t n = ht_json_array_size(messages);
    size_t first = 0, last_user = n, to;
    while (first < n && (has_role(messages, first, "system") || has_role(messages, first, "developer"))) first++;
    for (size_t i = first; i < n; i++)
        if (has_role(messages, i, "user")) last_user = i;
    *from = first == last_user ? first + 1 : first;
    const bool earlier = last_user < n && first < last_user;
    for (to = *from + 1; to < n && (earlier ? !has_role(messages, to, "user") : has_role(messages, to, "tool"));) to++;
    return to < n ? to : *from;
}

/* With "truncate", removes the oldest messages until the rest fits, and puts their number in the response's header. */
static bool truncate(serve_call *c, serve_conversation *k, ht_json *messages) {
    const bool wanted = serve_flag(c->body, "truncate", false);
    bool good = true;
    size_t from, to, left_out = 0;
    while (wanted && good && (to = oldest(messages, &from)) > from && !fits(c, k, &good)) {
        left_out += to - from;
        while (to-- > from) ht_json_array_remove(messages, from);
    }
    if (left_out) {
        char what[64];
        snprintf(what, sizeof what, "the %zu oldest of messages", left_out);
        serve_call_ignore(c, what);
    }
    return good;
}

static bool check_tools(serve_call *c, const serve_conversation *k) {
    if (!ht_json_array_size(k->tools)) return true;
    const serve_capabilities can = serve_capabilities_of(ht_model_tokenizer(c->lease.model));
    return can.tools ? true
                     : serve_fail(&c->failure, 400, "tools",
                                  "\"%.128s\" does not support tools: its chat template has none", c->lease.name);
}

static bool ask(serve_call *c, const ht_json *from) {
    serve_conversation k = {.tools = serve_member(c->body, "tools")};
    ht_json *messages = messages_json(c, from);
    k.messages = messages;
    k.continues = serve_ends_in_answer(messages);
    serve_generation *g = messages ? new_generation(c, true, &k) : NULL;
    const bool good = g && check_tools(c, &k) && truncate(c, &k, messages) && serve_set_conversation(g, &k);
    ht_json_decref(messages); /* the generation holds a copy */
    return good && start(g);
}

bool serve_ollama_chat(serve_call *c) {
    const ht_json *messages = serve_member(c->body, "messages");
    return ht_json_array_size(messages) ? ask(c, messages) : answer_loaded(c, true);
}

/* ---- completions ---- */

typedef struct asked {
    const char *prompt, *suffix, *system;
    const ht_json *context;
    bool raw;
} asked;

static bool read_asked(serve_call *c, asked *a) {
    const char *prompt = serve_text(c->body, "prompt");
    *a = (asked){.prompt = prompt ? prompt : "",
                 .suffix = serve_filled_text(c->body, "suffix"),
                 .system = serve_filled_text(c->body, "system"),
                 .context = serve_member(c->body, "context"),
                 .raw = serve_flag(c->body, "raw", false)};
    if (a->raw && (a->suffix || a->system || ht_json_array_size(a->context)))
        return serve_fail(&c->failure, 400, "raw",
                          "\"raw\" cannot be combined with \"suffix\", \"system\" or \"context\"");
    if (a->suffix && (a->system || ht_json_array_size(a->context)))
        return serve_fail(&c->failure, 400, "suffix", "\"suffix\" cannot be combined with \"system\" or \"context\"");
    return true;
}

/* Whether BOS only begins the sequence. Where BOS also marks turns, the answer's turn repeats it. */
static bool begins_with_bos(const ht_tokenizer *t, const int32_t *ids, size_t n) {
    const int32_t bos = t ? ht_tokenizer_bos(t) : -1;
    bool only = n && ids[0] == bos;
    for (size_t i = 1; i < n && only; i++) only = ids[i] != bos;
    return only;
}

/* Appends the turn's ids to those of the client's context, which begin the sequence. */
static bool append_turn(serve_generation *g, const ht_json *context) {
    serve_call *c = g->c;
    serve_ollama *o = g->extra;
    serve_prompt before = {0};
    int32_t *ids = NULL;
    size_t n = 0;
    ht_error err = {0};
    if (ht_json_array_size(context) && !serve_read_prompt(c, context, "context", &before)) {
        ht_ids_free(before.ids);
        return false;
    }
    const ht_status status = ht_chat_encode(c->lease.model, g->prompt[0].chat, 0, &ids, &n, &err);
    const size_t skip = before.n_ids && begins_with_bos(ht_model_tokenizer(c->lease.model), ids, n) ? 1 : 0;
    const bool good = status ? serve_fail_as(&c->failure, status, &err)
                             : serve_ids_append(&o->prompt, before.ids, before.n_ids, &c->failure) &&
                                   serve_ids_append(&o->prompt, ids + skip, n - skip, &c->failure);
    ht_ids_free(before.ids);
    ht_ids_free(ids);
    return good;
}

/* Sets a conversation of one turn as the prompt; with a context, the ids of both. */
static bool set_turn(serve_generation *g, const serve_conversation *like, const asked *a) {
    serve_ollama *o = g->extra;
    serve_conversation k = *like;
    ht_json *messages = a->system ? ht_json_pack("[{ss ss} {ss ss}]", "role", "system", "content", a->system, "role",
                                                 "user", "content", a->prompt)
                                  : ht_json_pack("[{ss ss}]", "role", "user", "content", a->prompt);
    if (!messages) return serve_fail_memory(&g->c->failure);
    k.messages = messages;
    const bool good = serve_set_conversation(g, &k) && append_turn(g, a->context);
    ht_json_decref(messages);
    if (!good) return false;
    o->gives_context = g->keep_ids = true;
    if (!ht_json_array_size(a->context)) return true; /* stays a chat, which separates reasoning from text */
    serve_prompt *p = &g->prompt[0];
    ht_chat_free(p->chat);
    p->chat = NULL;
    p->ids = calloc(o->prompt.n + 1, sizeof *p->ids);
    if (!p->ids) return serve_fail_memory(&g->c->failure);
    if (o->prompt.n) memcpy(p->ids, o->prompt.id, o->prompt.n * sizeof *p->ids);
    p->n_ids = o->prompt.n;
    return true;
}

static bool set_prompt(serve_generation *g, const serve_conversation *k, const asked *a) {
    serve_call *c = g->c;
    if (!a->raw && !a->suffix) return set_turn(g, k, a);
    if (!serve_generation_prompts(g, 1)) return false;
    serve_prompt *p = &g->prompt[0];
    if (a->suffix) g->how.max_thinking_tokens = -1; /* as for /infill */
    if (a->suffix)
        return serve_infill_prompt(c, &(serve_infill){.prefix = a->prompt, .suffix = a->suffix}, "suffix", p);
    return serve_read_prompt(c, ht_json_object_get(c->body, "prompt"), "prompt", p);
}

bool serve_ollama_generate(serve_call *c) {
    asked a;
    serve_conversation k = {0};
    if (!read_asked(c, &a)) return false;
    if (!*a.prompt && !a.suffix) return answer_loaded(c, false);
    serve_generation *g = new_generation(c, false, &k);
    return g && set_prompt(g, &k, &a) && start(g);
}
