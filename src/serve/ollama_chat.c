/* Chats of Ollama's interface: messages translated into OpenAI's form. */
#include "serve/capabilities.h"
#include "serve/ollama.h"

#include <stdlib.h>
#include <string.h>

static const serve_field chat_fields[] = {
    {"messages", SERVE_USED}, {"tools", SERVE_USED}, {"truncate", SERVE_USED}, {NULL, SERVE_USED}};
const serve_field *const serve_ollama_chat_fields[] = {chat_fields, serve_ollama_fields, NULL};

/* ---- calls and their results ---- */

/* Calls of a conversation that have no result yet. Results name a tool, or nothing, but not the call; templates want its id. */
typedef struct open_calls {
    json_t *call; /* a list of {id, name} */
    int n;        /* so far */
} open_calls;

static json_t *call_json(serve_call *c, const json_t *call, size_t place, open_calls *open) {
    const json_t *function = json_object_get(call, "function");
    const char *name = json_string_value(json_object_get(function, "name")),
               *given = json_string_value(json_object_get(call, "id"));
    json_t *arguments = json_object_get(function, "arguments");
    char id[16];
    if (!name) {
        serve_fail(&c->failure, 400, "messages", "\"messages\": number %zu has a call without a function's name",
                   place);
        return NULL;
    }
    snprintf(id, sizeof id, "call%05d",
             open->n++ % 100000); /* nine letters and digits, as the strictest templates ask for */
    if (!given || !*given) given = id;
    json_array_append_new(open->call, json_pack("{ss ss}", "id", given, "name", name));
    return json_pack("{ss ss s{ss so}}", "id", given, "type", "function", "function", "name", name, "arguments",
                     arguments ? json_incref(arguments) : json_object());
}

/* Takes out the call that a result belongs to: the first of that tool, or the first of all; NULL: none is open. */
static json_t *take_call(open_calls *open, const char *tool) {
    size_t i, found = 0;
    json_t *call;
    json_array_foreach(open->call, i, call) {
        const char *name = json_string_value(json_object_get(call, "name"));
        if (tool && name && strcmp(name, tool) == 0) {
            found = i;
            break;
        }
    }
    call = json_incref(json_array_get(open->call, found));
    json_array_remove(open->call, found);
    return call;
}

static void set_result(const json_t *from, json_t *to, open_calls *open) {
    const char *tool = json_string_value(json_object_get(from, "tool_name")),
               *id = json_string_value(json_object_get(from, "tool_call_id"));
    if (!tool) tool = json_string_value(json_object_get(from, "name"));
    json_t *call = take_call(open, tool);
    if (!tool) tool = json_string_value(json_object_get(call, "name"));
    if (!id || !*id) id = json_string_value(json_object_get(call, "id"));
    if (tool) json_object_set_new(to, "name", json_string(tool));
    if (id) json_object_set_new(to, "tool_call_id", json_string(id));
    json_decref(call);
}

/* ---- messages ---- */

static bool set_calls(serve_call *c, const json_t *calls, size_t place, json_t *to, open_calls *open) {
    json_t *list = json_array(), *call;
    size_t i;
    bool good = true;
    json_array_foreach((json_t *)calls, i, call) {
        json_t *one = good ? call_json(c, call, place, open) : NULL;
        good = one && json_array_append_new(list, one) == 0;
    }
    json_object_set_new(to, "tool_calls", list);
    return good ? true : serve_fail_memory(&c->failure);
}

static json_t *message_json(serve_call *c, const json_t *from, size_t place, open_calls *open) {
    const char *role = NULL, *content = "", *thinking = NULL;
    const json_t *calls = NULL, *images = NULL;
    serve_failure *f = &c->failure;
    if (!json_is_object(from)) {
        serve_fail(f, 400, "messages", "\"messages\": number %zu is to be an object", place);
        return NULL;
    }
    if (!serve_read_text(from, "role", &role, f) || !serve_read_text(from, "content", &content, f) ||
        !serve_read_text(from, "thinking", &thinking, f) || !serve_read_array(from, "tool_calls", &calls, f) ||
        !serve_read_array(from, "images", &images, f))
        return NULL;
    if (!role || json_array_size(images)) {
        serve_fail(f, 400, "messages",
                   role ? "\"messages\": number %zu has images, and models see text alone here"
                        : "\"messages\": number %zu has no role",
                   place);
        return NULL;
    }
    json_t *to = json_pack("{ss ss}", "role", role, "content", content);
    if (thinking && *thinking) json_object_set_new(to, "thinking", json_string(thinking));
    if (strcmp(role, "tool") == 0) set_result(from, to, open);
    if (!json_array_size(calls) || set_calls(c, calls, place, to, open)) return to;
    json_decref(to);
    return NULL;
}

static json_t *messages_json(serve_call *c, const json_t *from) {
    json_t *to = json_array(), *message;
    open_calls open = {.call = json_array()};
    size_t i;
    bool good = to && open.call;
    json_array_foreach((json_t *)from, i, message) {
        json_t *one = good ? message_json(c, message, i, &open) : NULL;
        good = one && json_array_append_new(to, one) == 0;
    }
    json_decref(open.call);
    if (good) return to;
    serve_fail_memory(&c->failure); /* unless there is another failure */
    json_decref(to);
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
static bool truncate(serve_call *c, serve_conversation *k, json_t *messages) {
    bool wanted = false, good = true;
    int left_out = 0;
    if (!serve_read_flag(c->body, "truncate", &wanted, &c->failure)) return false;
    while (wanted && good && json_array_size(messages) > 1 && !fits(c, k, &good)) {
        size_t i = 0;
        const char *role = json_string_value(json_object_get(json_array_get(messages, 0), "role"));
        if (role && (strcmp(role, "system") == 0 || strcmp(role, "developer") == 0)) i = 1;
        if (i + 1 >= json_array_size(messages)) break;
        json_array_remove(messages, i);
        left_out++;
        /* A result whose call has gone says nothing. */
        while (json_array_size(messages) > i + 1) {
            role = json_string_value(json_object_get(json_array_get(messages, i), "role"));
            if (!role || strcmp(role, "tool") != 0) break;
            json_array_remove(messages, i);
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
    if (!json_array_size(k->tools)) return true;
    const serve_capabilities can = serve_capabilities_of(ht_model_tokenizer(c->lease.model));
    return can.tools
               ? true
               : serve_fail(&c->failure, 400, "tools",
                            "\"%.128s\" does not support tools: its chat template does not write them", c->lease.name);
}

static bool ask(serve_call *c, const json_t *from) {
    serve_conversation k = {0};
    json_t *messages = messages_json(c, from);
    k.messages = messages;
    serve_generation *g = messages ? serve_ollama_generation(c, true, &k) : NULL;
    const bool good = g && serve_read_array(c->body, "tools", &k.tools, &c->failure) && check_tools(c, &k) &&
                      truncate(c, &k, messages) && serve_set_conversation(g, &k);
    json_decref(messages); /* the generation has a copy */
    return good && serve_ollama_start(g);
}

bool serve_ollama_chat(serve_call *c) {
    const json_t *messages = NULL;
    if (!serve_read_array(c->body, "messages", &messages, &c->failure)) return false;
    return json_array_size(messages) ? ask(c, messages) : serve_ollama_answer_loaded(c, true);
}
