/* Formats of tool calls, of reasoning and of messages: one table row per way in which models write them. The readers (chat/response.h,
 * chat/tool_call_reader.h) and the grammar rules (chat/tool_call_rules.h, chat/response_rules.h) derive from the row; a new
 * format is a new row. */
#ifndef HT_CHAT_ANSWER_FORMATS_H
#define HT_CHAT_ANSWER_FORMATS_H

#include "template/template.h"

/* ---- tool calls ---- */

/* Patterns are literal text but for:
 *   %s  optional white space, as between the parts of JSON     %l  an optional end of line, which is only read
 *   %n  the tool's name
 *   %a  its arguments as a JSON object                         %p  its parameters, one by one
 *   %k  a parameter's name                                     %v  its value
 *   %i  an id of letters and digits                            %d  a whole number
 *   %f  an id that contains the name: functions.NAME:0         %m  an optional field "id" of nine letters and digits
 * A pattern begins with text, and text follows %a and %p. White space in a pattern is optional when calls are read.
 *
 * Two kinds of call need no pattern to be read: within the marks of every format, JSON objects with a name and arguments (or
 * lists of them) are calls, and a JSON object may stand in place of %p. */
typedef struct ht_tool_call_format {
    const char *mark;      /* templates with this text use the format; NULL: with `open` */
    const char *also;      /* and with this text, too; NULL: no more */
    const char *open;      /* before calls; NULL: nothing */
    const char *close;     /* after calls; NULL: they last to the end of the answer */
    const char *begin;     /* between `open` and the first call; NULL: nothing */
    const char *call;      /* one call */
    const char *separator; /* between calls within one pair of marks; NULL: one call only */
    const char *end;       /* before `close`; NULL: nothing */
    /* For %p: a string as it is, a JSON value, and what separates parameters. `json` ends with its value where values show their own
     * end (literals); `raw` is NULL in formats without bare strings. `quoted` is another way to write a string, only read. */
    const char *raw, *json, *between, *quoted;
    const char *quote; /* around strings in literals; NULL: as in Python */
    bool once;         /* the marks cannot repeat */
    /* Without `open`, calls of known tools also begin with: */
    bool at_start;    /* `begin` or else `call`, as the beginning of the answer, or after reasoning */
    const char *bare; /* this text, with which `call` begins; NULL: nothing */
} ht_tool_call_format;

/* The first row whose marks a template's source contains; NULL: none. */
const ht_tool_call_format *ht_tool_call_format_of(const char *source);
/* The next row, or with `previous` NULL the first, that has the same opening mark: models mix such formats. NULL: no more. */
const ht_tool_call_format *ht_tool_call_format_next(const ht_tool_call_format *format,
                                                    const ht_tool_call_format *previous);
/* Whether the format marks which values are strings, so that their schema is not needed. */
bool ht_tool_call_format_marks_strings(const ht_tool_call_format *format);
/* The literal text in which `bare` calls end. */
const char *ht_tool_call_format_bare_end(const ht_tool_call_format *format);
/* The character that begins calls of `at_start`, after white space; NUL: a tool's name begins them. */
char ht_tool_call_format_first(const ht_tool_call_format *format);

/* ---- reasoning: how models mark it in their answers ---- */

typedef struct ht_reasoning_format {
    const char *mark; /* templates with this text use the format */
    const char *open, *close;
    const char *title;           /* the first line of reasoning, which is not shown; NULL: none */
    bool anywhere;               /* else at the beginning of an answer, or after reasoning or calls */
    const char *before, *behind; /* text around `close`, where the template does not show it; NULL: none */
    const char *text, *text_end; /* marks of the text after reasoning, which models may leave out; NULL: none */
} ht_reasoning_format;

/* The format of a template's source; models write "<think>" whatever the template, so never NULL. */
const ht_reasoning_format *ht_reasoning_format_of(const char *source);
/* The format whose marks the template's source contains; NULL: it contains none. */
const ht_reasoning_format *ht_reasoning_format_in(const ht_chat_template *t);
/* Whether a prompt of n bytes ends within reasoning. *with_title: after its title. */
bool ht_reasoning_is_open(const ht_reasoning_format *format, const char *prompt, size_t n, bool *with_title);

/* ---- messages: answers of several, of which each has a header that shows whether it is reasoning, text or a call ---- */

enum { HT_HEADERS_MOST = 4 };

/* A message: `begin`, a header, `body`, content, and one of `ends`; the beginning of another message ends one, too. A header has the role
 * and fields in any order, each with a word, and further words after a field. The prompt has begun the first message. */
typedef struct ht_message_format {
    const char *mark; /* templates with this text use the format */
    const char *begin, *role, *body;
    const char *ends[HT_HEADERS_MOST];   /* the first one separates messages; after others the answer ends */
    const char *fields[HT_HEADERS_MOST]; /* before their words. The first one begins a message, even without `begin` */
    const char *recipient;               /* the field of a call's name */
    const char *calls;                   /* before the name, unless it is a tool's name alone */
    const char *reasoning;               /* a message is reasoning if its header contains this, and no call */
    const char *text[HT_HEADERS_MOST];   /* headers of the answer's text, as models write them */
    const char *call[HT_HEADERS_MOST];   /* patterns of whole calls, likewise */
} ht_message_format;

/* NULL: answers are one text, with marks. */
const ht_message_format *ht_message_format_of(const char *source);

#endif
