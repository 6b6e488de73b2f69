/* Notations of tool calls as they are written: for each that answers are read in (chat/response.h) the literal text around the
 * names and the arguments. */
#ifndef HT_CHAT_TOOL_CALL_FORMATS_H
#define HT_CHAT_TOOL_CALL_FORMATS_H

#include "chat/response.h"

/* Texts are literal but for these:
 *   %s  white space as between the parts of JSON: none, a space, or the end of a line and what indents the next
 *   %n  the tool's name                      %a  its arguments as a JSON object
 *   %p  its parameters, one by one           %k  a parameter's name      %v  its value
 *   %d  a whole number                       %i  an id of letters and digits
 *   %m  nothing, or a member "id" of nine letters and digits
 * A call begins with text, and so does what stands behind %a and %p. */
typedef struct ht_call_writing {
    const char *mark;      /* of the notation that answers are read in */
    const char *also;      /* the template holds this, too; NULL: whatever it holds */
    const char *begin;     /* behind the opening mark */
    const char *call;      /* one call */
    const char *separator; /* between calls within one pair of marks; NULL: there is one */
    const char *end;       /* before the closing mark */
    bool once;             /* marks cannot come again */
    /* For %p: parameters that are strings, written raw, those that are JSON, and what stands between them. A notation without raw strings
     * has NULL for the first. */
    const char *raw, *json, *between;
} ht_call_writing;

/* How the template's calls are written; NULL when it has no notation that is known. */
const ht_call_writing *ht_call_writing_of(const ht_chat_template *t);

#endif
