#include "serve/conversation.h"

#include "base/tool_name.h"
#include "chat/reader.h"

#include <stdlib.h>
#include <string.h>

/* ---- fields ---- */

const serve_field serve_function_fields[] = {{"name", .is = SERVE_IS_TEXT, .required = true},
                                             {"description", .is = SERVE_IS_TEXT},
                                             {"parameters", .is = {.types = SERVE_JSON_OBJECT}},
                                             {"strict", .is = SERVE_IS_FLAG},
                                             {0}};
static const serve_kind tool_kinds[] = {
    {"function", SERVE_FIELDS({"function", .is = SERVE_IS_PART(serve_function_fields), .required = true})}, {0}};
const serve_shape serve_tool_shape = {
    .types = SERVE_JSON_OBJECT, .kinds = tool_kinds, .first_kind = true, .other_kinds = true, .lenient = true};

const char *const serve_tool_choices[] = {"auto", "none", "required", NULL};
static const char *const modes[] = {"auto", "required", NULL};
static const serve_shape allowed_tool = SERVE_IS_PART(SERVE_FIELDS(
    {"name", .is = SERVE_IS_TEXT}, {"function", .is = SERVE_IS_OBJECT(SERVE_FIELDS({"name", .is = SERVE_IS_TEXT}))}));
const serve_field serve_allowed_fields[] = {
    {"mode", .is = SERVE_IS_WORD(modes)}, {"tools", .is = SERVE_IS_LIST(&allowed_tool), .required = true}, {0}};

bool serve_read_tool_choice(serve_call *c, serve_conversation *k) {
    static const ht_tool_choice of[] = {HT_TOOL_CHOICE_AUTO, HT_TOOL_CHOICE_NONE, HT_TOOL_CHOICE_REQUIRED};
    const ht_json *choice = serve_member(c->body, "tool_choice"), *allowed = serve_member(choice, "allowed_tools");
    k->choice = of[serve_word(c->body, "tool_choice", serve_tool_choices, 0)];
    k->one_call = !serve_flag(c->body, "parallel_tool_calls", true);
    if (!ht_json_is_object(choice)) return true;
    const char *type = serve_text(choice, "type");
    if (type && strcmp(type, "allowed_tools") == 0) {
        if (!allowed) allowed = choice;
        k->choice = serve_word(allowed, "mode", modes, 0) == 1 ? HT_TOOL_CHOICE_REQUIRED : HT_TOOL_CHOICE_AUTO;
        k->allowed = serve_member(allowed, "tools");
        return true;
    }
    k->choice = HT_TOOL_CHOICE_NAMED;
    k->tool = serve_text(serve_member(choice, "function"), "name");
    if (!k->tool) k->tool = serve_text(choice, "name");
    return k->tool ? true
                   : serve_fail(&c->failure, 400, "tool_choice",
                                "\"tool_choice\" must be \"auto\", \"none\", \"required\" or "
                                "{\"type\": \"function\", \"function\": {\"name\": ...}}");
}

const char *const serve_efforts[] = {"none", "minimal", "low", "medium", "high", "xhigh", "max", NULL};

void serve_read_effort(const ht_json *object, const char *name, serve_conversation *k) {
    const int word = serve_word(object, name, serve_efforts, -1);
    if (word == 0) k->thinking = SERVE_THINKING_OFF;
    if (word > 0) {
        k->thinking = SERVE_THINKING_ON;
        k->effort = word < 3 ? "low" : word == 3 ? "medium" : "high";
    }
}

/* ---- tools ---- */

static const char *tool_name(const ht_json *tool) { return serve_text(ht_json_object_get(tool, "function"), "name"); }

ht_json *serve_tool_from(const ht_json *tool, const char *function, const char *schema) {
    const char *const copied[][2] = {
        {"name", "name"}, {"description", "description"}, {schema, "parameters"}, {"strict", "strict"}};
    const char *type = serve_text(tool, "type");
    if (type && strcmp(type, function) != 0) return ht_json_pack("{ss}", "type", type);
    ht_json *to = ht_json_new_object();
    for (size_t i = 0; i < sizeof copied / sizeof *copied; i++) {
        const ht_json *value = serve_member(tool, copied[i][0]);
        if (value) ht_json_object_set(to, copied[i][1], (ht_json *)value);
    }
    return ht_json_pack("{ss so}", "type", "function", "function", to);
}

static bool is_allowed(const serve_conversation *k, const char *name) {
    bool found = !k->allowed;
    for (size_t i = 0; i < ht_json_array_size(k->allowed) && !found; i++) {
        const ht_json *tool = ht_json_array_get(k->allowed, i);
        const char *one = tool_name(tool) ? tool_name(tool) : serve_text(tool, "name");
        found = one && strcmp(one, name) == 0;
    }
    return found;
}

/* Visits the functions of a request's tools, also in namespaces, in the dialect's form with their JSON paths. */
static bool for_each_tool(serve_call *c, const ht_json *tools, const char *outer,
                          bool (*visit)(serve_call *c, const ht_json *function, const char *place)) {
    for (size_t i = 0; i < ht_json_array_size(tools); i++) {
        const ht_json *tool = ht_json_array_get(tools, i), *function = ht_json_object_get(tool, "function");
        char place[96];
        snprintf(place, sizeof place, "%s[%zu]%s", outer, i, function ? ".function" : "");
        if (!visit(c, function ? function : tool, place)) return false;
        snprintf(place, sizeof place, "%.32s[%zu].tools", outer, i);
        if (!strchr(outer, '[') && !for_each_tool(c, ht_json_object_get(tool, "tools"), place, visit)) return false;
    }
    return true;
}

/* Rejects tool names that are invalid in calls: answers would silently be constrained to the other tools. */
static bool check_name(serve_call *c, const ht_json *function, const char *place) {
    const char *name = serve_text(function, "name");
    char param[128];
    snprintf(param, sizeof param, "%s.name", place);
    return !name || ht_is_tool_name(name)
               ? true
               : serve_fail(&c->failure, 400, param, "\"%s\" must be a valid tool name, not \"%.64s\": %s", param, name,
                            HT_TOOL_NAME_RULE);
}

/* Reports schemas that cannot constrain calls; the arguments of such a call are any object. */
static bool note_schema(serve_call *c, const ht_json *function, const char *place) {
    const char *name = serve_member(function, "parameters") ? "parameters" : "input_schema";
    const ht_json *schema = serve_member(function, name);
    char param[128];
    if (!ht_json_is_object(schema) || !serve_call_may_ignore(c)) return true;
    char *text = ht_json_dump(schema, HT_JSON_COMPACT);
    if (!text) return serve_fail_memory(&c->failure);
    snprintf(param, sizeof param, "%s.%s", place, name);
    if (!serve_grammars_support(c->lease.grammars, text, strlen(text))) serve_call_ignore(c, param);
    free(text);
    return true;
}

/* The functions among the tools; NULL, with a failure, for an invalid list. */
static ht_json *functions_of(serve_call *c, const serve_conversation *k) {
    ht_json *functions = ht_json_new_array(), *tool;
    size_t i;
    if (!functions) serve_fail_memory(&c->failure);
    ht_json_array_foreach((ht_json *)k->tools, i, tool) {
        const char *type = serve_text(tool, "type");
        char what[96];
        if (!type || strcmp(type, "function") == 0) {
            if (tool_name(tool)) {
                if (is_allowed(k, tool_name(tool))) ht_json_array_append(functions, tool);
                continue;
            }
            serve_fail(&c->failure, 400, "tools", "\"tools[%zu]\" must have a function with a name", i);
            ht_json_decref(functions);
            return NULL;
        }
        snprintf(what, sizeof what, "tools of type %.64s", type);
        serve_call_ignore(c, what);
    }
    return functions;
}

/* ---- the conversation ---- */

bool serve_ends_in_answer(const ht_json *messages) {
    const ht_json *last = ht_json_array_get(messages, ht_json_array_size(messages) - 1);
    const char *role = serve_text(last, "role");
    return role && strcmp(role, "assistant") == 0 && !ht_json_array_size(serve_member(last, "tool_calls"));
}

static bool has_system(const ht_json *messages) {
    for (size_t i = 0; i < ht_json_array_size(messages); i++) {
        const char *role = serve_text(ht_json_array_get(messages, i), "role");
        if (role && (strcmp(role, "system") == 0 || strcmp(role, "developer") == 0)) return true;
    }
    return false;
}

/* The messages, after the server's system prompt if they have none. NULL: out of memory. The caller releases it. */
static ht_json *with_system(const ht_json *messages, const char *system) {
    if (has_system(messages)) return ht_json_incref(messages);
    ht_json *all = ht_json_copy(messages);
    if (!ht_json_array_insert_new(all, 0, ht_json_pack("{ss ss}", "role", "system", "content", system))) return all;
    ht_json_decref(all);
    return NULL;
}

/* Choices of the request override the template's variables. */
static ht_status set_options(ht_chat *chat, const serve_conversation *k, ht_error *err) {
    ht_status status = HT_OK;
    ht_chat_set_continue(chat, k->continues);
    if (k->thinking != SERVE_THINKING_DEFAULT)
        status = ht_chat_set_thinking(chat, k->thinking == SERVE_THINKING_ON, err);
    if (!status && k->effort) {
        char text[32];
        const int n = snprintf(text, sizeof text, "\"%.16s\"", k->effort);
        status = ht_chat_set_variable(chat, "reasoning_effort", text, (size_t)n, err);
    }
    if (!status && k->unopened) status = ht_chat_set_variable(chat, "add_generation_prompt", "false", 5, err);
    return status;
}

static bool has_tool(const ht_json *tools, const char *name) {
    for (size_t i = 0; i < ht_json_array_size(tools); i++)
        if (strcmp(tool_name(ht_json_array_get(tools, i)), name) == 0) return true;
    return false;
}

/* Without tools, a required call is an error. */
static bool set_choice(serve_call *c, const serve_conversation *k, const ht_json *tools, ht_chat *chat) {
    ht_error err = {0};
    const ht_tool_choice choice = k->choice ? k->choice : HT_TOOL_CHOICE_AUTO;
    if (!ht_json_array_size(tools) && choice < HT_TOOL_CHOICE_REQUIRED) return true;
    if (!ht_json_array_size(tools))
        return serve_fail(&c->failure, 400, "tool_choice",
                          "\"tool_choice\" requires a call, but the request has no tools");
    if (choice == HT_TOOL_CHOICE_NAMED && !has_tool(tools, k->tool))
        return serve_fail(&c->failure, 400, "tool_choice",
                          "\"tool_choice\" is \"%.128s\", which is not a tool of the request", k->tool);
    const ht_status status = ht_chat_set_tool_choice(chat, choice, k->tool, !k->one_call, &err);
    return status ? serve_fail_as(&c->failure, status, &err) : true;
}

bool serve_make_chat(serve_call *c, const serve_conversation *k, ht_chat **out) {
    const char *system = c->server->o.system;
    ht_error err = {0};
    ht_json *tools = NULL;
    bool good = true;
    *out = NULL;
    if (k->tools &&
        (!for_each_tool(c, ht_json_object_get(c->body, "tools"), "tools", check_name) || !(tools = functions_of(c, k))))
        return false;
    ht_json *messages = system ? with_system(k->messages, system) : ht_json_incref(k->messages);
    ht_json *whole = ht_json_pack("{so sO* sO*}", "messages", messages, "tools",
                                  ht_json_array_size(tools) ? tools : NULL, "chat_template_kwargs", k->variables);
    ht_status status = whole ? ht_chat_from_value(whole, NULL, out, &err) : HT_ERR_MEMORY;
    if (!status) status = set_options(*out, k, &err);
    if (!whole)
        good = serve_fail_memory(&c->failure);
    else
        good = status ? serve_fail_as(&c->failure, status, &err) : set_choice(c, k, tools, *out);
    ht_json_decref(whole);
    ht_json_decref(tools);
    if (good) return true;
    ht_chat_free(*out);
    *out = NULL;
    return false;
}

bool serve_count_conversation(serve_call *c, const serve_conversation *k, int64_t *n) {
    ht_chat *chat;
    int32_t *ids = NULL;
    size_t n_ids = 0;
    ht_error err = {0};
    if (!serve_make_chat(c, k, &chat)) return false;
    const ht_status status = ht_chat_encode(c->lease.model, chat, 0, &ids, &n_ids, &err);
    ht_chat_free(chat);
    ht_ids_free(ids);
    *n = (int64_t)n_ids;
    return status ? serve_fail_as(&c->failure, status, &err) : true;
}

bool serve_set_conversation(serve_generation *g, const serve_conversation *k) {
    const bool calls = ht_json_array_size(k->tools) && k->choice != HT_TOOL_CHOICE_NONE;
    return serve_generation_prompts(g, 1) && serve_make_chat(g->c, k, &g->prompt[0].chat) &&
           (!calls || for_each_tool(g->c, ht_json_object_get(g->c->body, "tools"), "tools", note_schema));
}

/* ---- constraints of an answer ---- */

static const serve_field schema_members[] = {{"schema", .is = {.types = SERVE_JSON_OBJECT | SERVE_JSON_FLAG}},
                                             SERVE_NOTED_FIELDS("name", "description", "strict"),
                                             {0}};
const serve_kind serve_formats[] = {
    {"text", SERVE_NO_FIELDS},
    {"json_object", schema_members},
    {"json_schema", SERVE_FIELDS({"json_schema", .is = SERVE_IS_OBJECT(schema_members)}, SERVE_MORE(schema_members))},
    {0}};

#define SCHEMA                                                                                                         \
    { .types = SERVE_JSON_OBJECT | SERVE_JSON_FLAG }
#define SCHEMA_OR_TEXT                                                                                                 \
    { .types = SERVE_JSON_OBJECT | SERVE_JSON_FLAG | SERVE_JSON_TEXT }
#define CHOICE                                                                                                         \
    { .types = SERVE_JSON_LIST, .fewest = 1, .item = &serve_full_text }
static const serve_field output_members[] = {{"json", .is = SCHEMA_OR_TEXT},
                                             {"regex", .is = SERVE_IS_TEXT},
                                             {"grammar", .is = SERVE_IS_TEXT},
                                             {"choice", .is = CHOICE},
                                             {0}};
const serve_field serve_structure_fields[] = {{"response_format", .is = SERVE_IS_FORMAT},
                                              {"grammar", .is = SERVE_IS_TEXT},
                                              {"json_schema", .is = SCHEMA},
                                              {"guided_json", .is = SCHEMA_OR_TEXT},
                                              {"guided_regex", .is = SERVE_IS_TEXT},
                                              {"guided_grammar", .is = SERVE_IS_TEXT},
                                              {"guided_choice", .is = CHOICE},
                                              {"regex", .is = SERVE_IS_TEXT},
                                              {"structured_outputs", .is = SERVE_IS_OBJECT(output_members)},
                                              SERVE_NOTED_FIELDS("guided_decoding_backend"),
                                              {0}};

/* Compiles a grammar for the answer; errors name the field. */
static bool hold(serve_generation *g, serve_grammar_kind kind, const char *text, const char *member) {
    serve_failure *f = &g->c->failure;
    ht_error err = {0};
    ht_grammar *grammar = NULL;
    const ht_status status = serve_grammars_get(g->c->lease.grammars, kind, text, strlen(text), &grammar, &err);
    if (status) return serve_fail(f, status == HT_ERR_MEMORY ? 503 : 400, member, "\"%s\": %s", member, err.message);
    if (g->how.grammar) {
        ht_grammar_free(grammar);
        return serve_fail(f, 400, member,
                          "a response can have one schema, regular expression or grammar; \"%s\" is another", member);
    }
    g->how.grammar = grammar;
    return true;
}

bool serve_hold_to_schema(serve_generation *g, const ht_json *schema, const char *member) {
    char *text = schema ? ht_json_dump(schema, HT_JSON_COMPACT) : strdup("{\"type\":\"object\"}");
    if (!text) return serve_fail_memory(&g->c->failure);
    const bool good = hold(g, SERVE_SCHEMA, text, member);
    free(text);
    return good;
}

static bool hold_to_choice(serve_generation *g, const ht_json *texts, const char *member) {
    ht_text pattern = {0};
    for (size_t i = 0; i < ht_json_array_size(texts); i++) {
        const char *text = ht_json_string_value(ht_json_array_get(texts, i));
        if (i) ht_text_append_str(&pattern, "|");
        for (; *text; text++) {
            if (strchr("\\^$.*+?()[]{}|/", *text)) ht_text_append_str(&pattern, "\\");
            ht_text_append(&pattern, text, 1);
        }
    }
    const bool good = pattern.failed ? serve_fail_memory(&g->c->failure) : hold(g, SERVE_REGEX, pattern.data, member);
    ht_text_discard(&pattern);
    return good;
}

bool serve_read_format(serve_generation *g, const ht_json *format, const char *member) {
    static const char *const types[] = {"text", "json_object", "json_schema", NULL};
    const int type = serve_word(format, "type", types, 0);
    if (type == 0) return true;
    const ht_json *wrapped = serve_member(format, "json_schema");
    const ht_json *schema = serve_member(wrapped ? wrapped : format, "schema");
    if (schema || type == 1) return serve_hold_to_schema(g, schema, member);
    return serve_fail(&g->c->failure, 400, member, "\"%s\" of type \"json_schema\" must have a schema", member);
}

/* A value is a schema as an object or text, a list of alternative texts, or a grammar; "" as a grammar means none. */
static bool hold_to_value(serve_generation *g, serve_grammar_kind kind, const ht_json *value, const char *member) {
    const char *text = ht_json_string_value(value);
    if (ht_json_is_array(value)) return hold_to_choice(g, value, member);
    if (kind == SERVE_GBNF && !*text) return true;
    if (kind != SERVE_SCHEMA) return hold(g, kind, text, member);
    if (!text) return serve_hold_to_schema(g, value, member);
    ht_json *parsed =
        serve_json_parse(text, ht_json_string_length(value), serve_call_values_max(g->c), NULL, &g->c->failure);
    const bool good = parsed && serve_hold_to_schema(g, parsed, member);
    ht_json_decref(parsed);
    return good;
}

bool serve_read_structure(serve_generation *g, const ht_json *body) {
    const ht_json *outputs =
        serve_member(body, "structured_outputs"); /* vLLM's; older versions use names that begin with "guided_" */
    const struct {
        const ht_json *of;
        const char *name;
        serve_grammar_kind kind;
    } members[] = {
        {body, "grammar", SERVE_GBNF},        {body, "regex", SERVE_REGEX},        {body, "json_schema", SERVE_SCHEMA},
        {body, "guided_json", SERVE_SCHEMA},  {body, "guided_regex", SERVE_REGEX}, {body, "guided_grammar", SERVE_GBNF},
        {body, "guided_choice", SERVE_REGEX}, {outputs, "json", SERVE_SCHEMA},     {outputs, "regex", SERVE_REGEX},
        {outputs, "grammar", SERVE_GBNF},     {outputs, "choice", SERVE_REGEX}};
    const ht_json *format = serve_member(body, "response_format");
    bool good = !format || serve_read_format(g, format, "response_format");
    for (size_t i = 0; i < sizeof members / sizeof *members && good; i++) {
        const ht_json *value = serve_member(members[i].of, members[i].name);
        good = !value || hold_to_value(g, members[i].kind, value, members[i].name);
    }
    return good;
}
