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
    {"images", .class = SERVE_LACKED, .instead = "only text input is supported"},
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

static bool has_role(const ht_json *messages, size_t i, const char *role) {
    const char *is = serve_text(ht_json_array_get(messages, i), "role");
    return is && strcmp(is, role) == 0;
}

/* The oldest messages that can go, [*from, return): a turn, from a user's message to the next; in the last turn an exchange after
 * its question, which is an answer with the results of its calls. None, an empty range, when only the last exchange is left. */
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

/* Leaves out the oldest messages until the rest fits, which "truncate" asks for; the response's head names their number. */
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

/* ---- requests ---- */

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
    serve_generation *g = messages ? serve_ollama_generation(c, true, &k) : NULL;
    const bool good = g && check_tools(c, &k) && truncate(c, &k, messages) && serve_set_conversation(g, &k);
    ht_json_decref(messages); /* the generation has a copy */
    return good && serve_ollama_start(g);
}

bool serve_ollama_chat(serve_call *c) {
    const ht_json *messages = serve_member(c->body, "messages");
    return ht_json_array_size(messages) ? ask(c, messages) : serve_ollama_answer_loaded(c, true);
}
