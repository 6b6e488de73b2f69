/* Rules of the calls themselves, without the text around them. */
#ifndef HT_CHAT_TOOL_CALL_RULES_H
#define HT_CHAT_TOOL_CALL_RULES_H

#include "chat/tool_call_formats.h"
#include "chat/response.h"
#include "chat/tools.h"

typedef struct ht_tool_calls {
    ht_rules *r;
    ht_tool_list *tools;
    const ht_call_writing *writing;
    const ht_call_notation *notation;
    bool parallel;
    ht_re space;
    bool has_inside;
    ht_symbol inside;
    bool again; /* the rules have suffered from a schema that is not supported: they are to be made anew */
    ht_status status;
    ht_error err;
} ht_tool_calls;

/* Of a zeroed struct but for `writing`, or for one that was used before; rules without productions as yet. */
void ht_tool_calls_begin(ht_tool_calls *c, ht_rules *r, ht_tool_list *tools, bool parallel,
                         const ht_call_notation *notation);
/* What stands behind the opening mark, up to the closing mark and with it: a call, or with `parallel` several where the
 * notation has several between its marks. */
ht_symbol ht_tool_calls_inside(ht_tool_calls *c);
/* Texts of a notation without mark that can only be calls: up to the name of a tool and its quote, behind `blanks`. */
ht_re ht_tool_calls_beginning(ht_tool_calls *c, ht_re blanks);

#endif
