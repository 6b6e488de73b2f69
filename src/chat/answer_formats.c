/* The tables of formats. To add one of tool calls, add its row (tests/unit/test_answer.c and test_tools.c each take an example). */
#include "chat/answer_formats.h"

#include <string.h>

#define BAR       "\xEF\xBD\x9C" /* U+FF5C */
#define UNDERLINE "\xE2\x96\x81" /* U+2581 */
#define DS(a, b)  "<" BAR "tool" UNDERLINE a UNDERLINE b BAR ">"
#define DS_SEP    "<" BAR "tool" UNDERLINE "sep" BAR ">"
#define DSML      BAR "DSML" BAR

#define MARKS(before, after)    .open = before, .close = after
#define OBJECT(arguments)       "%s{%s\"name\"%s:%s\"%n\"%s,%s\"" arguments "\"%s:%a%s}"
#define LIST(item)              .begin = "%s[", .call = item, .separator = "%s,", .end = "%s]"
#define TAGS(raw_tag, json_tag) .raw = raw_tag, .json = json_tag, .between = ""
#define TAG(tag)                TAGS(tag, tag)
#define LITERALS(q)             .raw = "%k:" q "%v" q, .json = "%k:%v", .between = ",", .quote = q
#define FUNCTION                "%s<function=%n>%p%s</function>"
#define PYTHON                  .json = "%k=%v", .between = ", "
#define HY(tag)                 "<" tag ":opensource>"
#define HY_END(tag)             HY("/" tag)
#define INVOKE(prefix)          "%s<" prefix "invoke name=\"%n\">%p%s</" prefix "invoke>"
#define LINE_PARAMETER          TAG("%s<parameter=%k>\n%v\n</parameter>")
#define PARAMETER               TAG("%s<parameter=%k>%l%v%l</parameter>")
#define NAMED(tag)                                                                                                     \
    TAG("%s<" tag " name=\"%k\">%v</" tag ">"), .quoted = "%s<" tag " name=\"%k\"><![CDATA[%v]]></" tag ">"
#define DSML_TAG(is_string) "%s<" DSML "parameter name=\"%k\" string=\"" is_string "\">%v</" DSML "parameter>"
#define DSML_CALLS          .call = INVOKE(DSML), .separator = "", TAGS(DSML_TAG("true"), DSML_TAG("false"))

#define HARMONY_BEGIN "<|start|>"
#define HARMONY_ROLE  "assistant"
#define HARMONY_BODY  "<|message|>"
#define HARMONY(name) "<|channel|>" name

static const ht_tool_call_format formats[] = {
    /* Mistral: since Small 3.1 with ids, since Large 2 with names before JSON, older ones */
    {.open = "[TOOL_CALLS]", .also = "[CALL_ID]", .call = "%n[CALL_ID]%i[ARGS]%a"},
    {.open = "[TOOL_CALLS]", .also = "[ARGS]", .call = "%n[ARGS]%a"},
    {.open = "[TOOL_CALLS]", LIST("%s{%s\"name\"%s:%s\"%n\"%s,%s\"arguments\"%s:%a%m%s}")},
    {.open = "[TOOL_CALLS]", .call = "%n%a"}, /* only read */
    /* DeepSeek R1 and V3; V3.1 */
    {MARKS(DS("calls", "begin"), DS("calls", "end")), .also = "```json",
     .call = DS("call", "begin") "function" DS_SEP "%n\n```json\n%a\n```" DS("call", "end"), .separator = "%s"},
    {MARKS(DS("calls", "begin"), DS("calls", "end")), .call = DS("call", "begin") "%n" DS_SEP "%a" DS("call", "end"),
     .separator = "%s"},
    /* DeepSeek V3.2; V4 */
    {.mark = "dsml_token + 'function_calls",
     MARKS("<" DSML "function_calls>", "</" DSML "function_calls>"),
     DSML_CALLS},
    {.mark = "dsml_token", MARKS("<" DSML "tool_calls>", "</" DSML "tool_calls>"), DSML_CALLS},
    /* Kimi K2 */
    {MARKS("<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"),
     .call = "<|tool_call_begin|>%f<|tool_call_argument_begin|>%a<|tool_call_end|>", .separator = ""},
    /* Gemma 4; FunctionGemma */
    {.mark = "<tool_call|>", MARKS("<|tool_call>", "<tool_call|>"), .call = "call:%n{%p}", LITERALS("<|\"|>")},
    {MARKS("<start_function_call>", "<end_function_call>"), .call = "call:%n{%p}", LITERALS("<escape>")},
    /* Seed-OSS */
    {MARKS("<seed:tool_call>", "</seed:tool_call>"), .call = FUNCTION, PARAMETER},
    /* MiniMax-M2 */
    {.mark = "minimax:tool_call",
     MARKS("<minimax:tool_call>", "</minimax:tool_call>"),
     .call = INVOKE(""),
     .separator = "",
     NAMED("parameter")},
    /* Nemotron 2; Nemotron Mini, whose template has the marks of turns alone */
    {MARKS("<TOOLCALL>", "</TOOLCALL>"), LIST(OBJECT("arguments"))},
    {.mark = "<extra_id_1>", MARKS("<toolcall>", "</toolcall>"), .call = OBJECT("arguments")},
    /* LFM2 */
    {MARKS("<|tool_call_start|>", "<|tool_call_end|>"), LIST("%s%n(%p)"), PYTHON},
    /* OLMo 3 */
    {MARKS("<function_calls>", "</function_calls>"), .call = "%s%n(%p)", .separator = "\n", PYTHON},
    /* Command R and R+ (mark: as the template's source spells it); R7B and A */
    {.mark = "Action:\\n```json",
     MARKS("Action:\n```json", "```"),
     LIST("%s{%s\"tool_name\"%s:%s\"%n\"%s,%s\"parameters\"%s:%a%s}")},
    {MARKS("<|START_ACTION|>", "<|END_ACTION|>"),
     LIST("%s{%s\"tool_call_id\"%s:%s\"%d\"%s,%s\"tool_name\"%s:%s\"%n\"%s,%s\"parameters\"%s:%a%s}")},
    /* Apertus */
    {MARKS("<|tools_prefix|>", "<|tools_suffix|>"), LIST("%s{%s\"%n\"%s:%a%s}")},
    /* Solar Open */
    {.mark = "<|tool_call:begin|>",
     MARKS("<|tool_calls|>", "<|calls|>"),
     .call = "<|tool_call:begin|>%i<|tool_call:name|>%n<|tool_call:args|>%a<|tool_call:end|>",
     .separator = ""},
    /* Phi-4-mini: the words of common templates; its own template has the marks of tools alone; Granite 3; GigaChat */
    {MARKS("functools[", "]"), .call = OBJECT("arguments"), .separator = "%s,", .once = true},
    {.mark = "<|/tool_call|>", MARKS("<|tool_call|>", "<|/tool_call|>"), LIST(OBJECT("arguments"))},
    {.mark = "<|/tool|>", MARKS("<|tool_call|>", "<|/tool_call|>"), LIST(OBJECT("arguments"))},
    {.open = "<|tool_call|>", LIST(OBJECT("arguments")), .once = true},
    {.open = "<|function_call|>", .call = OBJECT("arguments"), .once = true},
    /* HY3, whose template makes the marks with its format method; Hunyuan, dense and A13B; MiniMax-M1 */
    {.mark = "<tool_calls{}>",
     MARKS(HY("tool_calls"), HY_END("tool_calls")),
     .call = "%s" HY("tool_call") "%n" HY("tool_sep") "%p%s" HY_END("tool_call"),
     .separator = "",
     TAG("%s" HY("arg_key") "%k" HY_END("arg_key") "%s" HY("arg_value") "%v" HY_END("arg_value"))},
    {MARKS("<tool_calls>", "</tool_calls>"), .also = "```json", .call = "%s<tool_call>%n\n```json\n%a\n```</tool_call>",
     .separator = ""},
    {MARKS("<tool_calls>", "</tool_calls>"), .also = "<tool_calls>[", LIST(OBJECT("arguments"))},
    {MARKS("<tool_calls>", "</tool_calls>"), .call = OBJECT("arguments"), .separator = ""},
    /* Qwen3-Coder, Nemotron 3; GLM 4.5; Hermes, Qwen 2.5 and 3, Granite 4, SmolLM3 */
    {MARKS("<tool_call>", "</tool_call>"), .also = "<parameter=", .call = FUNCTION, LINE_PARAMETER,
     .bare = "<function="},
    {MARKS("<tool_call>", "</tool_call>"), .also = "<arg_key>", .call = "%n%p",
     TAG("%s<arg_key>%k</arg_key>%s<arg_value>%v</arg_value>")},
    {MARKS("<tool_call>", "</tool_call>"), .also = "<invoke name=", .call = INVOKE(""), NAMED("parameter")},
    {MARKS("<tool_call>", "</tool_call>"), .call = OBJECT("arguments")},
    /* MiniCPM */
    {MARKS("<function name=", "</function>"), .call = "\"%n\">%p", NAMED("param")},
    /* functionary v3.1, Llama 3.1 with custom tools */
    {MARKS("<function=", "</function>"), .also = "<parameter=", .call = "%n>%p", PARAMETER},
    {MARKS("<function=", "</function>"), .call = "%n>%a"},
    /* Llama 3.2 and 4 with calls as in Python; 3.1 to 3.3; 4; 3.2 without the mark */
    {.mark = "[func_name1(param", LIST("%s%n(%p)"), PYTHON, .once = true, .at_start = true},
    {.open = "<|python_tag|>", .call = OBJECT("parameters"), .separator = "%s;", .once = true, .at_start = true},
    {.mark = "<|python_end|>", .call = OBJECT("parameters"), .separator = "%s", .once = true, .at_start = true},
    {.mark = "\"parameters\": dictionary",
     .call = OBJECT("parameters"),
     .separator = "%s;",
     .once = true,
     .at_start = true},
    /* GLM 4 of April 2025 */
    {.mark = "<|observation|>",
     .also = "metadata",
     .open = "<|assistant|>",
     .call = "%n\n%a",
     .separator = "<|assistant|>",
     .once = true,
     .at_start = true},
    /* gpt-oss: the reader reduces a call's header to the name */
    {.mark = HARMONY("analysis"), .open = HARMONY_BEGIN HARMONY_ROLE, .call = "%n" HARMONY_BODY "%a", .once = true},
};
enum { N_FORMATS = sizeof formats / sizeof *formats };

const ht_tool_call_format *ht_tool_call_format_of(const char *source) {
    for (const ht_tool_call_format *f = formats; f < formats + N_FORMATS; f++)
        if (strstr(source, f->mark ? f->mark : f->open) && (!f->also || strstr(source, f->also))) return f;
    return NULL;
}

const ht_tool_call_format *ht_tool_call_format_next(const ht_tool_call_format *format,
                                                    const ht_tool_call_format *previous) {
    for (const ht_tool_call_format *f = previous ? previous + 1 : formats; f < formats + N_FORMATS; f++)
        if (format->open && f->open ? strcmp(format->open, f->open) == 0 : f == format) return f;
    return NULL;
}

bool ht_tool_call_format_marks_strings(const ht_tool_call_format *f) { return f->raw && strcmp(f->raw, f->json) != 0; }

const char *ht_tool_call_format_bare_end(const ht_tool_call_format *format) {
    const char *end = strstr(format->call, "%p") + 2;
    return strncmp(end, "%s", 2) == 0 ? end + 2 : end;
}

char ht_tool_call_format_first(const ht_tool_call_format *format) {
    const char *text = format->begin ? format->begin : format->call;
    if (strncmp(text, "%s", 2) == 0) text += 2;
    return *text == '%' ? '\0' : *text;
}

/* ---- reasoning ---- */

#define COHERE_REASONING .open = "<|START_THINKING|>", .close = "<|END_THINKING|>", .anywhere = true
#define THINK            .open = "<think>", .close = "</think>"
#define RESPONSE         THINK, .before = "\n", .behind = "\n\n", .text = "<response>", .text_end = "</response>"

static const ht_reasoning_format reasoning[] = {
    {.mark = "<|channel>", .open = "<|channel>", .close = "<channel|>", .title = "thought\n", .anywhere = true},
    {.mark = "[THINK]", .open = "[THINK]", .close = "[/THINK]", .anywhere = true},
    {.mark = "<|START_RESPONSE|>", COHERE_REASONING, .text = "<|START_RESPONSE|>", .text_end = "<|END_RESPONSE|>"},
    {.mark = "<|START_TEXT|>", COHERE_REASONING, .text = "<|START_TEXT|>", .text_end = "<|END_TEXT|>"},
    {.mark = "<|START_THINKING|>", COHERE_REASONING},
    {.mark = "<|inner_prefix|>", .open = "<|inner_prefix|>", .close = "<|inner_suffix|>", .anywhere = true},
    {.mark = "</think{}>", .open = HY("think"), .close = HY_END("think")},
    {.mark = "</seed:think>", .open = "<seed:think>", .close = "</seed:think>"},
    {.mark = HARMONY("analysis"),
     .open = HARMONY("analysis") HARMONY_BODY,
     .close = "<|end|>",
     .anywhere = true,
     .behind = HARMONY_BEGIN HARMONY_ROLE},
    {.mark = "[BEGIN FINAL RESPONSE]", .open = "Here are my reasoning steps:", .close = "[BEGIN FINAL RESPONSE]"},
    /* Llama 4; Granite 3.3; ERNIE 4.5; Hunyuan */
    {.mark = "<|python_end|>",
     THINK,
     .before = "\n",
     .behind = "\n\n",
     .text = "<|python_start|>",
     .text_end = "<|python_end|>"},
    {.mark = "<response></response>", RESPONSE},
    {.mark = "<response>\\n", RESPONSE},
    {.mark = "<answer>", THINK, .before = "\n", .behind = "\n", .text = "<answer>", .text_end = "</answer>"},
    {.mark = "", THINK, .before = "\n", .behind = "\n\n"},
};

const ht_reasoning_format *ht_reasoning_format_of(const char *source) {
    const ht_reasoning_format *f = reasoning;
    while (!strstr(source, f->mark)) f++;
    return f;
}

const ht_reasoning_format *ht_reasoning_format_in(const ht_chat_template *t) {
    const char *source = ht_chat_template_source(t);
    const ht_reasoning_format *f = ht_reasoning_format_of(source);
    const bool is_marked = *f->mark && !f->text; /* else the mark may be that of texts alone */
    return is_marked || strstr(source, f->open) || strstr(source, f->close) ? f : NULL;
}

bool ht_reasoning_is_open(const ht_reasoning_format *f, const char *prompt, size_t n, bool *with_title) {
    while (n && strchr(" \t\r\n", prompt[n - 1])) n--;
    const size_t n_title = f->title ? strlen(f->title) - 1 : 0, n_open = strlen(f->open);
    *with_title = n_title && n >= n_title && memcmp(prompt + n - n_title, f->title, n_title) == 0;
    if (*with_title) n -= n_title;
    return n >= n_open && memcmp(prompt + n - n_open, f->open, n_open) == 0;
}

/* ---- messages ---- */

static const ht_message_format messages[] = {
    {.mark = HARMONY("analysis"),
     .begin = HARMONY_BEGIN,
     .role = HARMONY_ROLE,
     .body = HARMONY_BODY,
     .ends = {"<|end|>", "<|return|>", "<|call|>"},
     .fields = {HARMONY(""), "to=", "<|constrain|>"},
     .recipient = "to=",
     .calls = "functions.",
     .reasoning = HARMONY("analysis"),
     .text = {HARMONY("final"), HARMONY("final") " <|constrain|>json"},
     .call = {" to=functions.%n" HARMONY("commentary") " json" HARMONY_BODY "%a",
              " to=functions.%n" HARMONY("commentary") " <|constrain|>json" HARMONY_BODY "%a",
              HARMONY("commentary") " to=functions.%n <|constrain|>json" HARMONY_BODY "%a"}},
};

const ht_message_format *ht_message_format_of(const char *source) {
    for (size_t i = 0; i < sizeof messages / sizeof *messages; i++)
        if (strstr(source, messages[i].mark)) return &messages[i];
    return NULL;
}
