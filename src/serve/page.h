/* The page for browsers at "/": a chat that talks to the server as any client does. */
#ifndef HT_SERVE_PAGE_H
#define HT_SERVE_PAGE_H

#include "serve/call.h"

/* Answers with the page (page.html), or with what Ollama's clients look for there when the request does not name HTML among what it
 * accepts, or there is to be no page. */
bool serve_page(serve_call *c);

/* Whether the value of a field Accept (RFC 9110, 12.5.1), NULL: none, names this type with a weight that is not zero. Ranges as "text/" and an
 * asterisk, which programs send that want no page, do not count. */
bool serve_accepts(const char *accept, const char *type);

#endif
