#include "constraint.h"

#include "input.h"

#include <stdlib.h>
#include <string.h>

static bool wanted(const options *o) { return o->regex || o->grammar || o->schema; }

const char *constraint_problem(const options *o) {
    if (!!o->regex + !!o->grammar + !!o->schema > 1) return "--schema, --regex and --grammar exclude each other";
    if (wanted(o) && o->tools)
        return "--tools cannot be had with --schema, --regex or --grammar: calls would be refused";
    if (wanted(o) && o->tool_choice)
        return "--tool-choice cannot be had with --schema, --regex or --grammar: calls would be refused";
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
