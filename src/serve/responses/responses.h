/* OpenAI's Responses interface: requests and responses made of items, and streamed events. It is stateless: each
 * request has the whole conversation. */
#ifndef HT_SERVE_RESPONSES_RESPONSES_H
#define HT_SERVE_RESPONSES_RESPONSES_H

#include "serve/conversation.h"
#include "serve/endpoints.h"

/* Splits a joined function name into name and *namespace (NULL: none), lent from the request's tools or `joined`. */
const char *serve_namespace_split(const ht_json *tools, const char *joined, const char **namespace);

/* Output state of an answer: `extra` of its generation. */
typedef struct serve_responses_answer {
    bool seals_thoughts; /* reasoning items include sealed text */
    ht_json *output;     /* complete items */
    /* For streams. */
    int64_t sequence;    /* number of the next event */
    char item[SERVE_ID]; /* id of the open item */
    ht_text text;        /* text of the open item so far */
    ht_json *logprobs;   /* log-probabilities of the open item; NULL: none */
} serve_responses_answer;

extern const serve_dialect serve_responses_dialect;

#endif
