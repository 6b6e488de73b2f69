/* Requests to an engine, one after the other, and what came of them. */
#ifndef TESTS_SUPPORT_ENGINE_RUN_H
#define TESTS_SUPPORT_ENGINE_RUN_H

#include <hearth/engine.h>

enum { ENGINE_RUN_TOKENS = 64 };

typedef struct engine_answer {
    ht_reuse reuse;
    int64_t reused_tokens; /* of the metrics */
    int32_t n;
    int32_t token[ENGINE_RUN_TOKENS];
} engine_answer;

typedef struct engine_question {
    const char *salt;
    ht_adapter *adapter; /* NULL: none */
    float scale;         /* 0: none is given */
    int32_t max_tokens;  /* 0: 8; at most ENGINE_RUN_TOKENS */
} engine_question;

/* An engine with steps of at most step_tokens rows (0: the default) and so many bytes for prefixes. */
ht_engine *engine_open(ht_model *m, int32_t step_tokens, size_t prefix_bytes);
/* The greedy answer to n ids; `how` may be NULL. What goes wrong fails the test. */
engine_answer engine_ask(ht_engine *e, const int32_t *ids, size_t n, const engine_question *how);
ht_reuse engine_warm(ht_engine *e, const int32_t *ids, size_t n, const engine_question *how);
/* Bytes of a page of all layers. */
size_t engine_node_bytes(const ht_model *m);
/* The tokens of a session alone. */
engine_answer engine_alone(ht_model *m, const int32_t *ids, size_t n, const engine_question *how);

#endif
