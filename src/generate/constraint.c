/* Constraints of answers to conversations: the grammar of the options behind the thoughts, that of the tools, or both beside each
 * other. */
#include "generate/constraint.h"

#include "base/error.h"
#include "chat/reasoning_formats.h"
#include "chat/tool_cache.h"
#include "models/model.h"

#include <string.h>

void ht_constraint_free(ht_constraint *c) {
    ht_grammar_free(c->grammar);
    ht_grammar_free(c->calls);
    *c = (ht_constraint){0};
}

/* Whether somebody has turned thoughts off by a variable of the template. */
static bool has_thoughts_off(const ht_chat *chat) {
    static const char *const names[] = {"enable_thinking", "thinking"};
    bool off = false;
    for (int i = 0; i < 2; i++) {
        const ht_jinja_value *v = ht_jinja_dict_find_text(chat->variables, names[i], strlen(names[i]));
        off = off || (v && v->kind == HT_VALUE_BOOL && !v->boolean);
    }
    return off;
}

static ht_grammar_start start_of(const ht_model *m, const ht_chat *chat, const char *prompt, size_t n) {
    bool with_title;
    const ht_reasoning_format *format =
        ht_reasoning_format_of(ht_chat_template_source(ht_chat_template_of(&m->chat, chat)));
    if (ht_reasoning_is_open(format, prompt, n, &with_title)) return HT_START_IN_REASONING;
    return chat->continues || has_thoughts_off(chat) ? HT_START_TEXT : HT_START_ANSWER;
}

/* An answer that has to be calls has no text that a grammar could hold. */
static bool has_text(ht_tool_choice choice) {
    return choice != HT_TOOL_CHOICE_REQUIRED && choice != HT_TOOL_CHOICE_NAMED;
}

ht_status ht_constraint_of_chat(ht_model *m, const ht_chat *chat, const ht_generate_options *options,
                                const char *prompt, size_t n, ht_constraint *out, ht_error *err) {
    const ht_tool_choice choice = chat->tool_choice;
    *out = (ht_constraint){0};
    if (!options->grammar && choice == HT_TOOL_CHOICE_FREE) return HT_OK;
    ht_status status = HT_OK;
    if (options->grammar && has_text(choice)) {
        if (choice == HT_TOOL_CHOICE_AUTO) status = ht_tool_cache_find(m, chat, true, &out->calls, err);
        if (status) return status;
        out->grammar = ht_grammar_retain(options->grammar);
        out->no_calls = choice != HT_TOOL_CHOICE_FREE && !out->calls;
    } else {
        status = ht_tool_cache_find(m, chat, false, &out->grammar, err);
        out->only_calls = !has_text(choice);
    }
    out->start = start_of(m, chat, prompt, n);
    return status;
}
