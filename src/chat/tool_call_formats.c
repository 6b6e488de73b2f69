/* The table of notations, as templates write them. */
#include "chat/tool_call_formats.h"

#include <string.h>

#define BAR          "\xEF\xBD\x9C" /* U+FF5C */
#define UNDERLINE    "\xE2\x96\x81" /* U+2581 */
#define DS(a, b)     "<" BAR "tool" UNDERLINE a UNDERLINE b BAR ">"
#define DS_SEPARATOR "<" BAR "tool" UNDERLINE "sep" BAR ">"
#define DSML         BAR "DSML" BAR

#define OBJECT(arguments)         "%s{%s\"name\"%s:%s\"%n\"%s,%s\"" arguments "\"%s:%a%s}"
#define CALL_OBJECT               OBJECT("arguments")
#define LIST                      "%s["
#define COMMA                     "%s,"
#define LIST_END                  "%s]"
#define FUNCTION                  "%s<function=%n>%p%s</function>"
#define PARAMETER                 "%s<parameter=%k>"
#define INVOKE(prefix)            "%s<" prefix "invoke name=\"%n\">%p%s</" prefix "invoke>"
#define DSML_PARAMETER(is_string) "%s<" DSML "parameter name=\"%k\" string=\"" is_string "\">%v</" DSML "parameter>"
#define DSML_CALLS                                                                                                     \
    .call = INVOKE(DSML), .separator = "", .raw = DSML_PARAMETER("true"), .json = DSML_PARAMETER("false"), .between = ""

static const ht_call_writing writings[] = {
    {.mark = "[TOOL_CALLS]", .also = "[CALL_ID]", .call = "%n[CALL_ID]%i[ARGS]%a"},
    {.mark = "[TOOL_CALLS]", .also = "[ARGS]", .call = "%n[ARGS]%a"},
    {.mark = "[TOOL_CALLS]",
     .begin = LIST,
     .call = "%s{%s\"name\"%s:%s\"%n\"%s,%s\"arguments\"%s:%a%m%s}",
     .separator = COMMA,
     .end = LIST_END},
    {.mark = DS("calls", "begin"),
     .also = "```json",
     .call = DS("call", "begin") "function" DS_SEPARATOR "%n\n```json\n%a\n```" DS("call", "end"),
     .separator = "%s"},
    {.mark = DS("calls", "begin"),
     .call = DS("call", "begin") "%n" DS_SEPARATOR "%a" DS("call", "end"),
     .separator = "%s"},
    {.mark = "dsml_token + 'function_calls", DSML_CALLS},
    {.mark = "dsml_token", DSML_CALLS},
    {.mark = "<|tool_calls_section_begin|>",
     .call = "<|tool_call_begin|>functions.%n:%d<|tool_call_argument_begin|>%a<|tool_call_end|>",
     .separator = ""},
    {.mark = "<tool_call|>", .call = "call:%n{%p}", .raw = "%k:<|\"|>%v<|\"|>", .json = "%k:%v", .between = ","},
    {.mark = "<start_function_call>",
     .call = "call:%n{%p}",
     .raw = "%k:<escape>%v<escape>",
     .json = "%k:%v",
     .between = ","},
    {.mark = "<seed:tool_call>",
     .call = FUNCTION,
     .raw = PARAMETER "%v</parameter>",
     .json = PARAMETER "%v</parameter>",
     .between = ""},
    {.mark = "minimax:tool_call",
     .call = INVOKE(""),
     .separator = "",
     .raw = "%s<parameter name=\"%k\">%v</parameter>",
     .json = "%s<parameter name=\"%k\">%v</parameter>",
     .between = ""},
    {.mark = "<TOOLCALL>", .begin = LIST, .call = CALL_OBJECT, .separator = COMMA, .end = LIST_END},
    {.mark = "<|tool_call_start|>",
     .begin = LIST,
     .call = "%s%n(%p)",
     .separator = COMMA,
     .end = LIST_END,
     .json = "%k=%v",
     .between = ", "},
    {.mark = "<|START_ACTION|>",
     .begin = LIST,
     .call = "%s{%s\"tool_call_id\"%s:%s\"%d\"%s,%s\"tool_name\"%s:%s\"%n\"%s,%s\"parameters\"%s:%a%s}",
     .separator = COMMA,
     .end = LIST_END},
    {.mark = "<|tools_prefix|>", .begin = LIST, .call = "%s{%s\"%n\"%s:%a%s}", .separator = COMMA, .end = LIST_END},
    {.mark = "<|tool_call:begin|>",
     .call = "<|tool_call:begin|>%i<|tool_call:name|>%n<|tool_call:args|>%a<|tool_call:end|>",
     .separator = ""},
    {.mark = "<|/tool_call|>", .begin = LIST, .call = CALL_OBJECT, .separator = COMMA, .end = LIST_END},
    {.mark = "<|tool_call|>", .begin = LIST, .call = CALL_OBJECT, .separator = COMMA, .end = LIST_END, .once = true},
    {.mark = "<|function_call|>", .call = CALL_OBJECT, .once = true},
    {.mark = "<tool_calls>", .call = CALL_OBJECT, .separator = ""},
    {.mark = "<tool_call>",
     .also = "<parameter=",
     .call = FUNCTION,
     .raw = PARAMETER "\n%v\n</parameter>",
     .json = PARAMETER "\n%v\n</parameter>",
     .between = ""},
    {.mark = "<tool_call>",
     .also = "<arg_key>",
     .call = "%n%p",
     .raw = "%s<arg_key>%k</arg_key>%s<arg_value>%v</arg_value>",
     .json = "%s<arg_key>%k</arg_key>%s<arg_value>%v</arg_value>",
     .between = ""},
    {.mark = "<tool_call>", .call = CALL_OBJECT},
    {.mark = "<function name=",
     .call = "\"%n\">%p",
     .raw = "%s<param name=\"%k\">%v</param>",
     .json = "%s<param name=\"%k\">%v</param>",
     .between = ""},
    {.mark = "<function=",
     .also = "<parameter=",
     .call = "%n>%p",
     .raw = PARAMETER "%v</parameter>",
     .json = PARAMETER "%v</parameter>",
     .between = ""},
    {.mark = "<function=", .call = "%n>%a"},
    {.mark = "<|python_tag|>", .call = OBJECT("parameters"), .separator = "%s;", .once = true},
    {.mark = "\"parameters\": dictionary", .call = OBJECT("parameters"), .separator = "%s;", .once = true},
};

const ht_call_writing *ht_call_writing_of(const ht_chat_template *t) {
    const ht_call_notation *c = ht_answer_format_of(ht_chat_template_source(t)).call;
    for (size_t i = 0; c && i < sizeof writings / sizeof *writings; i++)
        if (strcmp(writings[i].mark, c->mark) == 0 &&
            (!writings[i].also || ht_chat_template_mentions(t, writings[i].also)))
            return &writings[i];
    return NULL;
}
