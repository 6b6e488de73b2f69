#include "conversation.h"

#include "chat/reader.h"
#include "input.h"

#include <stdlib.h>
#include <string.h>

/* The JSON of a file, "-" for standard input, whose name in errors is *name. */
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
