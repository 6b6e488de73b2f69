/* Chats of Ollama's interface: messages translated into OpenAI's form. */
#include "serve/capabilities.h"
#include "serve/ollama/ollama.h"
#include "serve/sampling.h"

#include <stdlib.h>
#include <string.h>

static const serve_field function_members[] = {
    {"name", .is = SERVE_IS_TEXT, .required = true}, {"arguments", .is = {.types = SERVE_JSON_OBJECT}}, {0}};
static const serve_field *const of_function[] = {function_members, NULL};
static const serve_field call_members[] = {
    {"id", .is = SERVE_IS_TEXT},
    {"function", .is = {.types = SERVE_JSON_OBJECT, .members = of_function, .lenient = true}, .required = true},
    {0}};
static const serve_field *const of_call[] = {call_members, NULL};
static const serve_shape call = {.types = SERVE_JSON_OBJECT, .members = of_call, .lenient = true};
static const char *const roles[] = {"system", "developer", "user", "assistant", "tool", NULL};
static const serve_field message_members[] = {
    {"role", .is = SERVE_IS_WORD(roles), .required = true},
    {"content", .is = SERVE_IS_TEXT},
    {"thinking", .is = SERVE_IS_TEXT},
    {"tool_calls", .is = SERVE_IS_LIST(&call)},
    {"tool_name", .is = SERVE_IS_TEXT},
    {"tool_call_id", .is = SERVE_IS_TEXT},
    {"name", .is = SERVE_IS_TEXT},
    {"images", .class = SERVE_LACKED, .instead = "models see text alone here"},
    {0}};
static const serve_field *const of_message[] = {message_members, NULL};
static const serve_shape message = {.types = SERVE_JSON_OBJECT, .members = of_message, .lenient = true};
static const serve_field chat_fields[] = {{"messages", .is = SERVE_IS_LIST(&message)},
                                          {"tools", .is = SERVE_IS_LIST(&serve_tool_shape)},
                                          {"truncate", .is = SERVE_IS_FLAG},
                                          {0}};
const serve_field *const serve_ollama_chat_fields[] = {chat_fields, serve_ollama_fields, serve_logprobs_fields, NULL};

/* ---- calls and their results ---- */

/* Calls of a conversation that have no result yet. Results name a tool, or nothing, but not the call; templates want its id. */
typedef struct open_calls {
    ht_json *call; /* a list of {id, name} */
    int n;         /* so far */
} open_calls;

static ht_json *call_json(const ht_json *from, open_calls *open) {
    const ht_json *function = serve_member(from, "function");
    const char *name = serve_text(function, "name"), *given = serve_filled_text(from, "id");
    ht_json *arguments = (ht_json *)serve_member(function, "arguments");
    char id[16];
    snprintf(id, sizeof id, "call%05d",
             open->n++ % 100000); /* nine letters and digits, as the strictest templates ask for */
    if (!given) given = id;
    ht_json_array_append_new(open->call, ht_json_pack("{ss ss}", "id", given, "name", name));
    return ht_json_pack("{ss ss s{ss so}}", "id", given, "type", "function", "function", "name", name, "arguments",
                        arguments ? ht_json_incref(arguments) : ht_json_new_object());
}

/* Takes out the call that a result belongs to: the first of that tool, or the first of all; NULL: none is open. */
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

/* ---- messages ---- */

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

/* ---- conversations that are too long ---- */

/* Whether the conversation fits the context, with room for an answer. */
static bool fits(serve_call *c, const serve_conversation *k, bool *good) {
    ht_chat *chat;
    ht_error err = {0};
    int32_t *ids = NULL;
    size_t n = 0;
    *good = serve_make_chat(c, k, &chat);
    if (!*good) return true;
    const ht_status status = ht_chat_encode(c->lease.model, chat, 0, &ids, &n, &err);
    ht_ids_free(ids);
    ht_chat_free(chat);
    if (status) *good = serve_fail_as(&c->failure, status, &err);
    return status || (int64_t)n < ht_model_context(c->lease.model);
}

/* Leaves out the oldest messages, but for a system's and the last one, until the rest fits: what "truncate" asks for. The answer's head
 * says so. */
static bool truncate(serve_call *c, serve_conversation *k, ht_json *messages) {
    const bool wanted = serve_flag(c->body, "truncate", false);
    bool good = true;
    int left_out = 0;
    while (wanted && good && ht_json_array_size(messages) > 1 && !fits(c, k, &good)) {
        size_t i = 0;
        const char *role = ht_json_string_value(ht_json_object_get(ht_json_array_get(messages, 0), "role"));
        if (role && (strcmp(role, "system") == 0 || strcmp(role, "developer") == 0)) i = 1;
        if (i + 1 >= ht_json_array_size(messages)) break;
        ht_json_array_remove(messages, i);
        left_out++;
        /* A result whose call has gone says nothing. */
        while (ht_json_array_size(messages) > i + 1) {
            role = ht_json_string_value(ht_json_object_get(ht_json_array_get(messages, i), "role"));
            if (!role || strcmp(role, "tool") != 0) break;
            ht_json_array_remove(messages, i);
            left_out++;
        }
    }
    if (left_out) {
        char what[64];
        snprintf(what, sizeof what, "the %d oldest of messages", left_out);
        serve_call_ignore(c, what);
    }
    return good;
}

/* ---- requests ---- */

static bool check_tools(serve_call *c, const serve_conversation *k) {
    if (!ht_json_array_size(k->tools)) return true;
    const serve_capabilities can = serve_capabilities_of(ht_model_tokenizer(c->lease.model));
    return can.tools
               ? true
               : serve_fail(&c->failure, 400, "tools",
                            "\"%.128s\" does not support tools: its chat template does not write them", c->lease.name);
}

static bool ask(serve_call *c, const ht_json *from) {
    serve_conversation k = {.tools = serve_member(c->body, "tools")};
    ht_json *messages = messages_json(c, from);
    k.messages = messages;
    serve_generation *g = messages ? serve_ollama_generation(c, true, &k) : NULL;
    const bool good = g && check_tools(c, &k) && truncate(c, &k, messages) && serve_set_conversation(g, &k);
    ht_json_decref(messages); /* the generation has a copy */
    return good && serve_ollama_start(g);
}

bool serve_ollama_chat(serve_call *c) {
    const ht_json *messages = serve_member(c->body, "messages");
    return ht_json_array_size(messages) ? ask(c, messages) : serve_ollama_answer_loaded(c, true);
}
