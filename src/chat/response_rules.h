/* Rules of answers that call tools: calls in the notation of a chat template, with arguments that are valid by the tools' schemas,
 * in text that is free, alone, or in the place of a text that another grammar holds. */
#ifndef HT_CHAT_RESPONSE_RULES_H
#define HT_CHAT_RESPONSE_RULES_H

#include "chat/reasoning_rules.h"
#include "template/template.h"

#include <hearth/chat.h>

typedef struct ht_tool_request {
    const ht_chat_template *template;
    ht_jinja_value tools; /* a list of descriptions, or None */
    ht_tool_choice choice;
    const char *name; /* of HT_TOOL_CHOICE_NAMED */
    bool parallel;    /* several calls */
    /* Of HT_TOOL_CHOICE_AUTO: calls alone, as another grammar has the answers that are text; HT_START_NO_CALL and the two behind it are starts,
     * too. */
    bool beside_text;
} ht_tool_request;

/* Finished rules, whose starts are ht_grammar_start; NULL where the answer stays free. `spelled` is given all literal texts, in
 * which special tokens may occur. A schema that is not supported is a warning, and its arguments are any object. HT_ERR_ARGUMENT
 * when there is no tool to call, or none that can be, HT_ERR_UNSUPPORTED when the template has no notation of calls that is known. */
ht_status ht_response_rules_new(const ht_tool_request *q, ht_rules **out, ht_text *spelled, ht_error *err);

#endif
