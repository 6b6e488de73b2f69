/* Grammar rules of tool calls, without the text around them. */
#ifndef HT_CHAT_TOOL_CALL_RULES_H
#define HT_CHAT_TOOL_CALL_RULES_H

#include "chat/answer_formats.h"
#include "chat/tools.h"
#include "grammar/rules.h"

/* A tool that can be called. */
typedef struct ht_tool {
    const char *name;
    const ht_jinja_value *parameters; /* NULL: none */
    bool is_relaxed;                  /* its schema is not supported: arguments are any object */
    bool is_constrained;              /* its schema is supported as far as it was compiled */
    bool has_symbol;
    ht_symbol arguments; /* with has_symbol */
} ht_tool;

typedef struct ht_tool_list {
    ht_jinja_arena arena;
    ht_tool *tool; /* [n] in `arena` */
    size_t n;
    int n_too_complex; /* tools with too complex schemas, each of which may take seconds */
} ht_tool_list;

/* The tools of a list of descriptions that can be called by name, or only `only`. The caller frees t->arena in any case. */
ht_status ht_tool_list_read(ht_tool_list *t, ht_jinja_value tools, const char *only, ht_error *err);

typedef struct ht_tool_calls {
    ht_rules *r;
    ht_tool_list *tools;
    const ht_tool_call_format *format;
    bool parallel;
    ht_re space;
    bool has_inside;
    ht_symbol inside;
    bool again; /* an unsupported schema has damaged the rules: they must be rebuilt */
    ht_status status;
    ht_error err;
} ht_tool_calls;

/* Rules without productions as yet. */
void ht_tool_calls_begin(ht_tool_calls *c, ht_rules *r, ht_tool_list *tools, bool parallel,
                         const ht_tool_call_format *format);
/* Text after the opening mark up to the end of the closing mark: a call, or with `parallel` several if the format allows. */
ht_symbol ht_tool_calls_inside(ht_tool_calls *c);
/* The rest of a call that the format's bare text begins. */
ht_symbol ht_tool_calls_after_bare(ht_tool_calls *c);
/* Calls by a pattern, or the rest of one, instead of the format's. */
ht_symbol ht_tool_calls_by(ht_tool_calls *c, const char *pattern);
/* Texts of calls without mark that can only be calls: up to the name of a tool and the character after it, after `blanks`. */
ht_re ht_tool_calls_beginning(ht_tool_calls *c, ht_re blanks);

#endif
