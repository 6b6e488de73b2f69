/* OpenAI's Responses interface: requests of items, answers of items, and the events by which they come. Nothing is kept: each request has
 * the whole conversation. */
#ifndef HT_SERVE_RESPONSES_RESPONSES_H
#define HT_SERVE_RESPONSES_RESPONSES_H

#include "serve/conversation.h"
#include "serve/endpoints.h"

/* The name, and *namespace, NULL for none, of the function that is called so; lent from the request's tools, or the name itself. */
const char *serve_namespace_split(const ht_json *tools, const char *joined, const char **namespace);

/* What is written of an answer: `extra` of its generation. */
typedef struct serve_responses_answer {
    bool seals_thoughts; /* items of reasoning have them sealed as well */
    ht_json *output;     /* items that are complete */
    /* Of a stream. */
    int64_t sequence;    /* of the next event */
    char item[SERVE_ID]; /* the item that is open */
    ht_text text;        /* of it, so far */
    ht_json *logprobs;   /* likewise; NULL: none */
} serve_responses_answer;

extern const serve_dialect serve_responses_dialect;

#endif
