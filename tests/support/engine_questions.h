/* Questions to an engine, with the answers that a session alone gives them, on a model whose cache grows, on one that slides,
 * and on one that is recurrent. */
#ifndef TESTS_SUPPORT_ENGINE_QUESTIONS_H
#define TESTS_SUPPORT_ENGINE_QUESTIONS_H

#include <hearth/engine.h>

enum { RECURRENT = 2, N_MODELS, QUESTIONS = 14, MOST_TOKENS = 40, MOST_PROMPT = 700, WINDOW = 300, NAN_TOKEN = 7 };

extern ht_model *models[N_MODELS]; /* of one whose cache grows, one that slides, and a recurrent one */
extern ht_adapter *adapters[N_MODELS];

/* A question with the answer that a session alone gives. */
typedef struct question {
    int32_t ids[MOST_PROMPT];
    size_t n;
    bool adapted;
    ht_sampler_options sampler;
    int32_t max_tokens;
    int32_t answer[MOST_TOKENS];
    int64_t n_answer;
} question;
extern question questions[N_MODELS][QUESTIONS];

/* Setup and teardown of a group of tests: all of the above. */
int make_questions(void **state);
int free_questions(void **state);

ht_generate_options options_of(const question *q);
/* Asks a session alone. */
void answer_alone(int model, question *q);

/* A request of a test. */
typedef struct asked {
    const question *q;
    ht_engine *engine;
    ht_ticket ticket;
    _Atomic int pieces, ends;
    int refuse_at, cancel_at; /* pieces; 0: never */
    ht_status status;
    ht_metrics metrics;
    ht_reuse reuse;
    int32_t preempted;
    int32_t token[MOST_TOKENS];
    char message[200];
    bool wrong; /* a callback found so: it cannot fail the test on a thread of the engine's */
} asked;

/* Fills in an `asked`, its user. */
ht_engine_end_fn note_answer;
ht_request request_for(asked *a, int model, const ht_generate_options *o);
/* The ticket is there before any callback may read it. */
ht_status submit(ht_engine *e, int model, asked *a, ht_error *err);
/* What was handed over is what the session alone gave, or its beginning when it was ended early. */
void check_answer(const asked *a, const char *when);
ht_engine *open_engine(int model, const ht_engine_options *o);
/* Memory of the model's device that is in use, in bytes. */
size_t in_use(int model);

#endif
