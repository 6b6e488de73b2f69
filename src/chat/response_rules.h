/* Grammar rules of answers: reasoning before the text of a grammar, and tool calls in the chat template's format, with arguments that are
 * valid by the tools' schemas, in free text, alone, or as an alternative to the text of another grammar. An answer is one text: marks
 * are spelled, also where they are special tokens. */
#ifndef HT_CHAT_RESPONSE_RULES_H
#define HT_CHAT_RESPONSE_RULES_H

#include "chat/answer_formats.h"
#include "grammar/rules.h"
#include "template/template.h"

#include <hearth/chat.h>

/* White space around reasoning, at most. */
enum { HT_BLANKS_MOST = 16 };

/* Adds starts of answers with reasoning to finished rules (none for `t` NULL). No answer ends within reasoning. */
void ht_rules_add_reasoning(ht_rules *r, const ht_reasoning_format *t);

typedef struct ht_tool_request {
    const ht_chat_template *template;
    ht_jinja_value tools; /* a list of descriptions, or None */
    ht_tool_choice choice;
    const char *name; /* of HT_TOOL_CHOICE_NAMED */
    bool parallel;    /* several calls */
    /* With HT_TOOL_CHOICE_AUTO: another grammar has the answers that are text. HT_START_NO_CALL exists, too. */
    bool beside_text;
} ht_tool_request;

/* Finished rules, whose starts are ht_grammar_start; NULL where the answer is free. `spelled` receives all literal texts, in which
 * special tokens may occur. An unsupported schema is a warning, and its arguments are any object. HT_ERR_ARGUMENT when no tool can be
 * called, HT_ERR_UNSUPPORTED when the template uses no known tool-call format. */
ht_status ht_response_rules_new(const ht_tool_request *q, ht_rules **out, ht_text *spelled, ht_error *err);

#endif
