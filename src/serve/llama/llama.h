/* llama-server's own endpoints: completions in its form, gaps to be filled in, embeddings, slots and adapters. */
#ifndef HT_SERVE_LLAMA_LLAMA_H
#define HT_SERVE_LLAMA_LLAMA_H

#include "serve/call.h"

/* Each answers a call, as a route runs it, with its tables of members. */
bool serve_llama_completion(serve_call *c);
extern const serve_field *const serve_llama_completion_fields[];
bool serve_llama_infill(serve_call *c);
extern const serve_field *const serve_llama_infill_fields[];
bool serve_llama_embedding(serve_call *c);
extern const serve_field *const serve_llama_embedding_fields[];
bool serve_llama_props(serve_call *c);
bool serve_llama_change_props(serve_call *c);
/* There are no slots: answers come and go, and share one prefix cache. The list has as many as there may be answers at once. */
bool serve_llama_slots(serve_call *c);
bool serve_llama_slot_action(serve_call *c);
extern const serve_field *const serve_llama_slot_fields[];
bool serve_llama_adapters(serve_call *c);
bool serve_llama_change_adapters(serve_call *c);

#endif
