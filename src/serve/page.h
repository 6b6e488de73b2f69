/* The page for browsers at "/": a chat that talks to the server as any client does. */
#ifndef HT_SERVE_PAGE_H
#define HT_SERVE_PAGE_H

#include "serve/call.h"

/* Answers with the page (page.html), or with what Ollama's clients look for there when the request does not name HTML among what it
 * accepts, or there is to be no page. */
bool serve_page(serve_call *c);

#endif
