/* Grammars for a model's answers (hearth/grammar.h), which may have reasoning before the text. */
#include "base/error.h"
#include "base/options.h"
#include "base/text.h"
#include "chat/response_rules.h"
#include "grammar/grammar.h"
#include "grammar/regex_syntax.h"
#include "grammar/schema_rules.h"
#include "models/model.h"

static ht_status for_model(ht_model *m, ht_rules *rules, ht_grammar **out, ht_error *err) {
    const ht_token_trie *trie;
    const ht_reasoning_format *t = m->chat.template ? ht_reasoning_format_in(m->chat.template) : NULL;
    ht_status status = ht_model_token_trie(m, &trie, err);
    if (!status) {
        ht_rules_add_reasoning(rules, t);
        status = ht_rules_status(rules, err);
    }
    if (status) {
        ht_rules_free(rules);
        return status;
    }
    status = ht_grammar_new(rules, trie, m->stop_ids, m->n_stop_ids, m, out, err);
    if (!status && t) {
        ht_text marks = {0};
        ht_text_printf(&marks, "%s\n%s", t->open, t->close);
        status =
            marks.failed ? ht_fail_memory(err, 0, "a grammar") : ht_grammar_spell(*out, m->tokenizer, marks.data, err);
        ht_text_discard(&marks);
    }
    if (!status) return HT_OK;
    ht_grammar_free(*out);
    *out = NULL;
    return status;
}

ht_status ht_grammar_from_gbnf(ht_model *m, const char *text, size_t n, ht_grammar **out, ht_error *err) {
    ht_rules *rules;
    *out = NULL;
    const ht_status status = ht_gbnf_parse(text, n, &rules, err);
    return status ? status : for_model(m, rules, out, err);
}

static const ht_schema_options schema_defaults = {.size = sizeof schema_defaults, .ordered = true, .closed = true};

void ht_schema_options_init(ht_schema_options *options, size_t size) {
    ht_options_init(options, size, &schema_defaults, sizeof schema_defaults);
}

ht_status ht_grammar_from_json_schema(ht_model *m, const char *json, size_t n, const ht_schema_options *options,
                                      ht_grammar **out, ht_error *err) {
    ht_schema_options o;
    ht_rules *rules;
    *out = NULL;
    ht_status status = ht_options_read(&o, options, &schema_defaults, sizeof schema_defaults, "ht_schema_options", err);
    if (!status && (o.space < HT_SCHEMA_SPACE_LINES || o.space > HT_SCHEMA_SPACE_ANY))
        status = ht_fail(err, HT_ERR_ARGUMENT, "unknown kind of white space: %d", (int)o.space);
    if (!status) status = ht_schema_compile(json, n, &o, &rules, err);
    return status ? status : for_model(m, rules, out, err);
}

static ht_status regex_rules(const char *pattern, size_t n, ht_rules **out, ht_error *err) {
    ht_rules *r = ht_rules_new();
    ht_re re;
    bool has_text = false;
    *out = NULL;
    if (!r) return ht_fail_memory(err, sizeof *r, "a grammar");
    ht_status status = ht_regex_parse(r->re, pattern, n, &(ht_regex_syntax){0}, &re, err);
    if (!status) {
        const ht_symbol whole = ht_rules_rule(r), text = ht_rules_text(r, re);
        ht_rules_add(r, whole, &text, 1);
        ht_rules_finish(r, whole, &has_text);
        status = ht_rules_status(r, err);
    }
    if (!status && !has_text) status = ht_fail(err, HT_ERR_FORMAT, "the regular expression matches no text");
    if (status)
        ht_rules_free(r);
    else
        *out = r;
    return status;
}

ht_status ht_grammar_from_regex(ht_model *m, const char *pattern, size_t n, ht_grammar **out, ht_error *err) {
    ht_rules *rules;
    *out = NULL;
    const ht_status status = regex_rules(pattern, n, &rules, err);
    return status ? status : for_model(m, rules, out, err);
}
