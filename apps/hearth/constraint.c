#include "constraint.h"

#include "formats/json.h"
#include "input.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool wanted(const options *o) { return o->regex || o->grammar || o->schema; }

const char *constraint_problem(const options *o) {
    if (!!o->regex + !!o->grammar + !!o->schema > 1) return "--schema, --regex and --grammar exclude each other";
    if (o->tool_choice && !o->tools && !o->messages) return "--tool-choice is of --tools, or of those of --messages";
    if (o->one_call && !o->tool_choice) return "--one-call is of --tool-choice";
    return NULL;
}

ht_status constraint_open(const options *o, ht_model *m, ht_grammar **out, ht_error *err) {
    *out = NULL;
    if (o->regex) return ht_grammar_from_regex(m, o->regex, strlen(o->regex), out, err);
    if (!wanted(o)) return HT_OK;
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
