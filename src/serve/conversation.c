#include "serve/conversation.h"

#include "base/tool_name.h"
#include "chat/reader.h"

#include <stdlib.h>
#include <string.h>

/* ---- members ---- */

static const serve_field function_members[] = {{"name", .is = SERVE_IS_TEXT, .required = true},
                                               {"description", .is = SERVE_IS_TEXT},
                                               {"parameters", .is = {.types = SERVE_JSON_OBJECT}},
                                               {"strict", .is = SERVE_IS_FLAG},
                                               {0}};
const serve_field *const serve_function_fields[] = {function_members, NULL};
static const serve_field tool_members[] = {{"function", .is = SERVE_IS_FUNCTION, .required = true}, {0}};
static const serve_field *const of_tool[] = {tool_members, NULL};
static const serve_kind tool_kinds[] = {{"function", of_tool}, {0}};
const serve_shape serve_tool_shape = {
    .types = SERVE_JSON_OBJECT, .kinds = tool_kinds, .first_kind = true, .other_kinds = true, .lenient = true};

const char *const serve_tool_choices[] = {"auto", "none", "required", NULL};

serve_tool_choice serve_read_tool_choice(const ht_json *body) {
    static const serve_tool_choice of[] = {SERVE_TOOLS_AUTO, SERVE_TOOLS_NONE, SERVE_TOOLS_REQUIRED};
    return of[serve_word(body, "tool_choice", serve_tool_choices, 0)];
}

static const char *const modes[] = {"auto", "required", NULL};
static const serve_field name_members[] = {{"name", .is = SERVE_IS_TEXT}, {0}};
static const serve_field *const of_name[] = {name_members, NULL};
static const serve_field allowed_tool_members[] = {
    {"name", .is = SERVE_IS_TEXT}, {"function", .is = SERVE_IS_OBJECT(of_name)}, {0}};
static const serve_field *const of_allowed_tool[] = {allowed_tool_members, NULL};
static const serve_shape allowed_tool = {.types = SERVE_JSON_OBJECT, .members = of_allowed_tool, .lenient = true};
static const serve_field allowed_members[] = {
    {"mode", .is = SERVE_IS_WORD(modes)}, {"tools", .is = SERVE_IS_LIST(&allowed_tool), .required = true}, {0}};
const serve_field *const serve_allowed_fields[] = {allowed_members, NULL};

void serve_read_allowed(const ht_json *allowed, serve_conversation *k) {
    static const serve_tool_choice of[] = {SERVE_TOOLS_AUTO, SERVE_TOOLS_REQUIRED};
    k->choice = of[serve_word(allowed, "mode", modes, 0)];
    k->allowed = serve_member(allowed, "tools");
}

/* ---- the conversation ---- */

static const char *tool_name(const ht_json *tool) {
    return ht_json_string_value(ht_json_object_get(ht_json_object_get(tool, "function"), "name"));
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

/* Refuses a tool of the request by whose name no call could be written: answers would be held to the others, without a word. `outer`: the
 * tools' place in the body, where they are in the form of its dialect. */
static bool check_names(serve_call *c, const ht_json *tools, const char *outer) {
    for (size_t i = 0; i < ht_json_array_size(tools); i++) {
        const ht_json *tool = ht_json_array_get(tools, i), *function = ht_json_object_get(tool, "function");
        const char *name = serve_text(function ? function : tool, "name");
        char place[96];
        snprintf(place, sizeof place, "%s[%zu]%s.name", outer, i, function ? ".function" : "");
        if (name && !ht_is_tool_name(name))
            return serve_fail(&c->failure, 400, place, "\"%s\" must be a valid tool name, not \"%.64s\": %s", place,
                              name, HT_TOOL_NAME_RULE);
        snprintf(place, sizeof place, "%.32s[%zu].tools", outer, i);
        if (!strchr(outer, '[') && !check_names(c, ht_json_object_get(tool, "tools"), place))
            return false; /* a namespace */
    }
    return true;
}

/* Tells of the parameters of tools that calls cannot be held to: a call of such a tool has any object as its arguments. */
static bool note_schemas(serve_call *c, const ht_json *tools, const char *outer) {
    for (size_t i = 0; i < ht_json_array_size(tools) && serve_call_may_ignore(c); i++) {
        const ht_json *tool = ht_json_array_get(tools, i), *function = ht_json_object_get(tool, "function");
        const ht_json *parameters = serve_member(function ? function : tool, "parameters"),
                      *input = serve_member(tool, "input_schema");
        const ht_json *schema = parameters ? parameters : input;
        char place[96];
        char *text = ht_json_is_object(schema) ? ht_json_dump(schema, HT_JSON_COMPACT) : NULL;
        if (ht_json_is_object(schema) && !text) return serve_fail_memory(&c->failure);
        snprintf(place, sizeof place, "%s[%zu]%s.%s", outer, i, function ? ".function" : "",
                 parameters ? "parameters" : "input_schema");
        if (text && !serve_grammars_support(c->lease.grammars, text, strlen(text))) serve_call_ignore(c, place);
        free(text);
        snprintf(place, sizeof place, "%.32s[%zu].tools", outer, i);
        if (!strchr(outer, '[') && !note_schemas(c, ht_json_object_get(tool, "tools"), place)) return false;
    }
    return true;
}

/* The functions among the tools; NULL, with a failure, for what is no list of tools. */
static ht_json *functions_of(serve_call *c, const serve_conversation *k) {
    ht_json *functions = ht_json_new_array(), *tool;
    size_t i;
    if (!functions) serve_fail_memory(&c->failure);
    ht_json_array_foreach((ht_json *)k->tools, i, tool) {
        const char *type = ht_json_string_value(ht_json_object_get(tool, "type"));
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

static bool set_thinking(serve_call *c, const serve_conversation *k, ht_chat *chat) {
    ht_error err = {0};
    ht_status status = HT_OK;
    if (k->thinking != SERVE_THINKING_DEFAULT)
        status = ht_chat_set_thinking(chat, k->thinking == SERVE_THINKING_ON, &err);
    if (!status && k->effort) {
        char text[32];
        const int n = snprintf(text, sizeof text, "\"%.16s\"", k->effort);
        status = ht_chat_set_variable(chat, "reasoning_effort", text, (size_t)n, &err);
    }
    return status ? serve_fail_as(&c->failure, status, &err) : true;
}

static bool set_prompt_end(serve_call *c, const serve_conversation *k, ht_chat *chat) {
    ht_error err = {0};
    ht_chat_set_continue(chat, k->continues);
    const ht_status status =
        k->unopened ? ht_chat_set_variable(chat, "add_generation_prompt", "false", 5, &err) : HT_OK;
    return status ? serve_fail_as(&c->failure, status, &err) : true;
}

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

/* The messages, after the server's system prompt where they have none; NULL when memory ran out. The caller gives it back. */
static ht_json *with_system(const serve_call *c, const ht_json *messages) {
    const char *system = c->server->o.system;
    if (!system || has_system(messages)) return ht_json_incref((ht_json *)messages);
    ht_json *all = ht_json_copy((ht_json *)messages);
    if (!ht_json_array_insert_new(all, 0, ht_json_pack("{ss ss}", "role", "system", "content", system))) return all;
    ht_json_decref(all);
    return NULL;
}

static bool chat_from(serve_call *c, const serve_conversation *k, const ht_json *tools, ht_chat **out) {
    ht_error err = {0};
    ht_json *messages = with_system(c, k->messages);
    ht_json *whole = messages ? ht_json_pack("{so}", "messages", messages) : NULL;
    if (whole && ht_json_array_size(tools)) ht_json_object_set(whole, "tools", (ht_json *)tools);
    if (whole && k->variables) ht_json_object_set(whole, "chat_template_kwargs", (ht_json *)k->variables);
    if (!whole) return serve_fail_memory(&c->failure);
    const ht_status status = ht_chat_from_value(whole, NULL, out, &err);
    ht_json_decref(whole);
    if (status) return serve_fail_as(&c->failure, status, &err);
    /* The choices that a request has of its own go before the variables of its template. */
    return set_thinking(c, k, *out) && set_prompt_end(c, k, *out);
}

static bool has_tool(const ht_json *tools, const char *name) {
    for (size_t i = 0; i < ht_json_array_size(tools); i++)
        if (strcmp(tool_name(ht_json_array_get(tools, i)), name) == 0) return true;
    return false;
}

/* Without tools there is nothing to choose: a call that is asked for is then refused. */
static bool set_choice(serve_call *c, const serve_conversation *k, const ht_json *tools, ht_chat *chat) {
    static const ht_tool_choice choices[] = {[SERVE_TOOLS_AUTO] = HT_TOOL_CHOICE_AUTO,
                                             [SERVE_TOOLS_NONE] = HT_TOOL_CHOICE_NONE,
                                             [SERVE_TOOLS_REQUIRED] = HT_TOOL_CHOICE_REQUIRED,
                                             [SERVE_TOOLS_NAMED] = HT_TOOL_CHOICE_NAMED};
    ht_error err = {0};
    const bool needs_one = k->choice == SERVE_TOOLS_REQUIRED || k->choice == SERVE_TOOLS_NAMED;
    if (!ht_json_array_size(tools) && !needs_one) return true;
    if (!ht_json_array_size(tools))
        return serve_fail(&c->failure, 400, "tool_choice",
                          "\"tool_choice\" requires a call, but the request has no tools");
    if (k->choice == SERVE_TOOLS_NAMED && !has_tool(tools, k->tool))
        return serve_fail(&c->failure, 400, "tool_choice",
                          "\"tool_choice\" is \"%.128s\", which is not a tool of the request", k->tool);
    const ht_status status = ht_chat_set_tool_choice(chat, choices[k->choice], k->tool, !k->one_call, &err);
    return status ? serve_fail_as(&c->failure, status, &err) : true;
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

bool serve_make_chat(serve_call *c, const serve_conversation *k, ht_chat **out) {
    ht_json *tools = NULL;
    *out = NULL;
    if (k->tools && (!check_names(c, ht_json_object_get(c->body, "tools"), "tools") || !(tools = functions_of(c, k))))
        return false;
    const bool good = chat_from(c, k, tools, out) && set_choice(c, k, tools, *out);
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
    const bool calls = ht_json_array_size(k->tools) && k->choice != SERVE_TOOLS_NONE;
    return serve_generation_prompts(g, 1) && serve_make_chat(g->c, k, &g->prompt[0].chat) &&
           (!calls || note_schemas(g->c, ht_json_object_get(g->c->body, "tools"), "tools"));
}

/* ---- what an answer is held to ---- */

static const serve_field schema_members[] = {{"schema", .is = {.types = SERVE_JSON_OBJECT | SERVE_JSON_FLAG}},
                                             {"name", .class = SERVE_NOTED},
                                             {"description", .class = SERVE_NOTED},
                                             {"strict", .class = SERVE_NOTED},
                                             {0}};
static const serve_field *const of_schema[] = {schema_members, NULL};
static const serve_field wrapped_members[] = {{"json_schema", .is = SERVE_IS_OBJECT(of_schema)}, {0}};
static const serve_field *const of_wrapped_schema[] = {wrapped_members, schema_members, NULL}, *const of_text[] = {
                                                                                                   NULL};
const serve_kind serve_formats[] = {
    {"text", of_text}, {"json_object", of_schema}, {"json_schema", of_wrapped_schema}, {0}};

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
static const serve_field *const of_outputs[] = {output_members, NULL};
const serve_field serve_structure_fields[] = {{"response_format", .is = SERVE_IS_FORMAT},
                                              {"grammar", .is = SERVE_IS_TEXT},
                                              {"json_schema", .is = SCHEMA},
                                              {"guided_json", .is = SCHEMA_OR_TEXT},
                                              {"guided_regex", .is = SERVE_IS_TEXT},
                                              {"guided_grammar", .is = SERVE_IS_TEXT},
                                              {"guided_choice", .is = CHOICE},
                                              {"regex", .is = SERVE_IS_TEXT},
                                              {"structured_outputs", .is = SERVE_IS_OBJECT(of_outputs)},
                                              {"guided_decoding_backend", .class = SERVE_NOTED},
                                              {0}};

/* Takes a grammar that was compiled, or says of which member it could not be. */
static bool hold(serve_generation *g, ht_status status, ht_grammar *grammar, const char *member, const ht_error *err) {
    serve_failure *f = &g->c->failure;
    if (!status && g->how.grammar) {
        ht_grammar_free(grammar);
        return serve_fail(f, 400, member,
                          "a response can have one schema, regular expression or grammar; \"%s\" is another", member);
    }
    if (!status) g->how.grammar = grammar;
    if (!status) return true;
    const int code = status == HT_ERR_MEMORY ? 503 : 400;
    return serve_fail(f, code, member, "\"%s\": %s", member, err->message);
}

static bool hold_to(serve_generation *g, serve_grammar_kind kind, const char *text, const char *member) {
    ht_error err = {0};
    ht_grammar *grammar = NULL;
    const ht_status status = serve_grammars_get(g->c->lease.grammars, kind, text, strlen(text), &grammar, &err);
    return hold(g, status, grammar, member, &err);
}

bool serve_hold_to_schema(serve_generation *g, const ht_json *schema, const char *member) {
    char *text = ht_json_dump(schema, HT_JSON_COMPACT);
    if (!text) return serve_fail_memory(&g->c->failure);
    const bool good = hold_to(g, SERVE_SCHEMA, text, member);
    free(text);
    return good;
}

bool serve_hold_to_any_object(serve_generation *g, const char *member) {
    return hold_to(g, SERVE_SCHEMA, "{\"type\":\"object\"}", member);
}

static bool hold_to_regex(serve_generation *g, const char *pattern, const char *member) {
    return hold_to(g, SERVE_REGEX, pattern, member);
}

static bool hold_to_gbnf(serve_generation *g, const char *text, const char *member) {
    return hold_to(g, SERVE_GBNF, text, member);
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
    const bool good = pattern.failed ? serve_fail_memory(&g->c->failure) : hold_to_regex(g, pattern.data, member);
    ht_text_discard(&pattern);
    return good;
}

bool serve_read_format(serve_generation *g, const ht_json *format, const char *member) {
    static const char *const types[] = {"text", "json_object", "json_schema", NULL};
    const int type = serve_word(format, "type", types, 0);
    if (type == 0) return true;
    const ht_json *wrapped = serve_member(format, "json_schema");
    const ht_json *schema = serve_member(wrapped ? wrapped : format, "schema");
    if (schema) return serve_hold_to_schema(g, schema, member);
    if (type == 1) return serve_hold_to_any_object(g, member);
    return serve_fail(&g->c->failure, 400, member, "\"%s\" of type \"json_schema\" must have a schema", member);
}

/* The members of vLLM's `structured_outputs`, or, with `prefix`, those it had before. */
static bool read_guided(serve_generation *g, const ht_json *from, const char *prefix) {
    char json[32], regex[32], grammar[32], choice[32];
    snprintf(json, sizeof json, "%sjson", prefix);
    snprintf(regex, sizeof regex, "%sregex", prefix);
    snprintf(grammar, sizeof grammar, "%sgrammar", prefix);
    snprintf(choice, sizeof choice, "%schoice", prefix);
    const char *pattern = serve_text(from, regex), *text = serve_text(from, grammar);
    const ht_json *texts = serve_member(from, choice), *schema = serve_member(from, json);
    if (ht_json_is_string(schema)) {
        ht_json *parsed = serve_json_parse(ht_json_string_value(schema), ht_json_string_length(schema),
                                           serve_call_values_max(g->c), NULL, &g->c->failure);
        const bool good = parsed && serve_hold_to_schema(g, parsed, json);
        ht_json_decref(parsed);
        if (!good) return false;
    } else if (schema && !serve_hold_to_schema(g, schema, json))
        return false;
    return (!pattern || hold_to_regex(g, pattern, regex)) && (!text || hold_to_gbnf(g, text, grammar)) &&
           (!texts || hold_to_choice(g, texts, choice));
}

bool serve_read_structure(serve_generation *g, const ht_json *body) {
    const ht_json *schema = serve_member(body, "json_schema");
    const char *grammar = serve_filled_text(body, "grammar"), *regex = serve_text(body, "regex");
    return serve_read_format(g, serve_member(body, "response_format"), "response_format") &&
           (!grammar || hold_to_gbnf(g, grammar, "grammar")) && (!regex || hold_to_regex(g, regex, "regex")) &&
           (!schema || serve_hold_to_schema(g, schema, "json_schema")) && read_guided(g, body, "guided_") &&
           read_guided(g, serve_member(body, "structured_outputs"), "");
}
