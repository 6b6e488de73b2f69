#include "conversation.h"

#include "chat/reader.h"
#include "fail.h"
#include "input.h"

#include <stdlib.h>
#include <string.h>

/* Loads a JSON file ("-": standard input); *name is its name for error messages. */
static ht_status load(const char *path, const char **name, ht_json **out, ht_error *err) {
    char *text;
    size_t n;
    *name = strcmp(path, "-") == 0 ? "standard input" : path;
    ht_status st = input_read_file(path, &text, &n, err);
    if (st) return st;
    st = ht_json_load(text, n, &(ht_json_options){.name = *name, .any_value = true}, out, err);
    free(text);
    return st;
}

static ht_status load_conversation(const options *o, ht_chat **out, ht_error *err) {
    const char *name;
    ht_json *document;
    ht_status st = load(o->messages, &name, &document, err);
    if (st) return st;
    st = ht_chat_from_value(document, name, out, err);
    ht_json_decref(document);
    return st;
}

static ht_status set_tools(const options *o, ht_chat *chat, ht_error *err) {
    const char *name;
    ht_json *tools;
    ht_status st = load(o->tools, &name, &tools, err);
    if (st) return st;
    st = ht_chat_set_from_value(chat, "tools", tools, name, err);
    ht_json_decref(tools);
    return st;
}

static ht_status set_tool_choice(const options *o, ht_chat *chat, ht_error *err) {
    static const char *const words[] = {"none", "auto", "required"};
    ht_tool_choice choice = HT_TOOL_CHOICE_NAMED;
    for (int i = 0; i < 3; i++)
        if (strcmp(o->tool_choice, words[i]) == 0) choice = (ht_tool_choice)(HT_TOOL_CHOICE_NONE + i);
    const char *name = choice == HT_TOOL_CHOICE_NAMED ? o->tool_choice : NULL;
    return ht_chat_set_tool_choice(chat, choice, name, !o->one_call, err);
}

ht_status conversation_of(const options *o, const char *prompt, ht_chat **out, ht_error *err) {
    *out = NULL;
    ht_status st = o->messages ? load_conversation(o, out, err) : ht_chat_new(out, err);
    if (!st && o->system) st = ht_chat_add(*out, "system", o->system, err);
    if (!st && *prompt) st = ht_chat_add(*out, "user", prompt, err);
    if (!st && o->tools) st = set_tools(o, *out, err);
    if (!st && o->tool_choice) st = set_tool_choice(o, *out, err);
    if (!st) st = options_chat_variables(o, *out, err);
    if (!st && o->no_thinking) st = ht_chat_set_thinking(*out, false, err);
    if (!st) return HT_OK;
    ht_chat_free(*out);
    *out = NULL;
    return st;
}

/* ---- constraints ---- */

const char *constraint_problem(const options *o) {
    if (!!o->regex + !!o->grammar + !!o->schema > 1) return "--schema, --regex and --grammar exclude each other";
    if (o->tool_choice && !o->tools && !o->messages) return "--tool-choice is of --tools, or of those of --messages";
    if (o->one_call && !o->tool_choice) return "--one-call is of --tool-choice";
    return NULL;
}

ht_status constraint_open(const options *o, ht_model *m, ht_grammar **out, ht_error *err) {
    *out = NULL;
    if (o->regex) return ht_grammar_from_regex(m, o->regex, strlen(o->regex), out, err);
    if (!o->grammar && !o->schema) return HT_OK;
    char *text;
    size_t n;
    ht_status st = input_read_file(o->grammar ? o->grammar : o->schema, &text, &n, err);
    if (st) return st;
    st = o->grammar ? ht_grammar_from_gbnf(m, text, n, out, err)
                    : ht_grammar_from_json_schema(m, text, n, NULL, out, err);
    free(text);
    return st;
}

ht_status constraint_choose_tools(ht_chat *chat, ht_error *err) {
    char *text;
    ht_status st = ht_chat_to_json(chat, &text, err);
    if (st) return st;
    ht_json *whole;
    st = ht_json_load(text, strlen(text),
                      &(ht_json_options){.name = "the conversation", .depth_max = HT_JSON_DEPTH_MAX}, &whole, err);
    ht_text_free(text);
    if (st) return st;
    const ht_json *choice = ht_json_object_get(whole, "tool_choice"),
                  *parallel = ht_json_object_get(whole, "parallel_tool_calls");
    const bool is_open = ht_json_array_size(ht_json_object_get(whole, "tools")) && (!choice || ht_json_is_null(choice));
    if (is_open) st = ht_chat_set_tool_choice(chat, HT_TOOL_CHOICE_AUTO, NULL, !ht_json_is_false(parallel), err);
    ht_json_decref(whole);
    return st;
}

/* ---- the prompt ---- */

ht_status prompt_read(const options *o, char **prompt, size_t *n, ht_error *err) {
    if (o->arguments.n || o->messages) {
        const char *given = o->arguments.n ? o->arguments.items[0] : "";
        *prompt = strdup(given);
        *n = strlen(given);
        return *prompt ? HT_OK : fail_memory(err, "the prompt");
    }
    ht_status st = input_read_all("the prompt", prompt, n, err);
    if (st) return st;
    while (!o->raw && *n && ((*prompt)[*n - 1] == '\n' || (*prompt)[*n - 1] == '\r')) (*prompt)[--*n] = '\0';
    if (strlen(*prompt) == *n) return HT_OK;
    return ht_fail(err, HT_ERR_ARGUMENT, "the prompt on standard input holds a NUL byte: it is not text");
}
