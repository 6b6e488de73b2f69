/* Grammar rules of answers. Reasoning may precede the text of a grammar. Tool calls follow the chat template's
 * format and the tools' schemas: in free text, alone, or as an alternative to another grammar's text. An answer is
 * one text: marks are spelled, even where they are special tokens. */
#ifndef HT_CHAT_RESPONSE_RULES_H
#define HT_CHAT_RESPONSE_RULES_H

#include "chat/answer_formats.h"
#include "grammar/rules.h"
#include "template/template.h"

#include <hearth/chat.h>

/* Maximum white space around reasoning. */
enum { HT_BLANKS_MOST = 16 };

/* The marks of a template's answers; both NULL: none. */
typedef struct ht_answer_marks {
    const ht_reasoning_format *reasoning;
    const ht_message_format *messages;
} ht_answer_marks;

ht_answer_marks ht_answer_marks_of(const ht_chat_template *t);
/* Adds their texts, in which special tokens may occur. */
void ht_answer_marks_note(const ht_answer_marks *marks, ht_text *spelled);
/* Adds starts of answers with reasoning to finished rules (none without its marks). No answer ends within reasoning. `is_text`: the
 * rules' text is an answer's text, which may have a header or marks, not calls. */
void ht_rules_add_reasoning(ht_rules *r, const ht_answer_marks *marks, bool is_text);

typedef struct ht_tool_request {
    const ht_chat_template *template;
    ht_jinja_value tools; /* a list of descriptions, or None */
    ht_tool_choice choice;
    const char *name; /* of HT_TOOL_CHOICE_NAMED */
    bool parallel;    /* several calls */
    /* With HT_TOOL_CHOICE_AUTO: another grammar constrains text answers. HT_START_NO_CALL exists, too. */
    bool beside_text;
} ht_tool_request;

/* Finished rules, whose starts are ht_grammar_start; NULL: the answer is unconstrained. `spelled` receives all
 * literal texts, in which special tokens may occur. An unsupported schema gives a warning, and allows any object.
 * HT_ERR_ARGUMENT: no tool can be called. HT_ERR_UNSUPPORTED: the template uses no known tool-call format. */
ht_status ht_response_rules_new(const ht_tool_request *q, ht_rules **out, ht_text *spelled, ht_error *err);

#endif
