/* Scheduler of a model: chooses the sequences of the next step and runs it; all computation goes through it.
 *
 * The owner of a sequence (a session, an engine) queues a job: the positions to compute. Threads that wait for jobs
 * run the steps, one at a time, so a single sequence never changes threads. A step takes jobs in order of arrival:
 * first those of few rows (generated and draft tokens), then prompt rows within the prefill budget. Hidden states
 * and logits need different steps, and so do short and long sequences (ht_model_is_long). Steps of a text encoder take
 * whole sequences. A row's bits do not depend on the rest of the batch. Thread-safe. */
#ifndef HT_GENERATE_SCHEDULER_H
#define HT_GENERATE_SCHEDULER_H

#include "array/plan.h"

#include <hearth/cancel.h>

struct ht_model;

typedef struct ht_scheduler ht_scheduler;

/* Receives logits, or hidden states [n_rows, hidden]. Runs on any thread, concurrently; calls no user callbacks. */
typedef ht_status ht_step_consumer(void *user, const ht_logits_rows *logits, ht_error *err);

/* A job is reused for one sequence. Only the step may touch it while ht_scheduler_run runs. */
typedef struct ht_step_job {
    ht_cache *cache;      /* unshared pages for all positions below `end`; a step advances its length */
    const int32_t *token; /* of all positions below `end` */
    int64_t end;          /* computes positions [cache->length, end); one step may compute fewer */
    int64_t first_out;    /* first position whose logits are wanted */
    /* Text encoders, whose steps take whole sequences: the position that ends those wanted (0: `end`), and token
     * types [end] (NULL: 0). */
    int64_t end_out;
    const int32_t *type;
    int32_t most_rows; /* maximum rows in one step, 1 or more; the cache is sized for it */
    int32_t top_k; /* as in ht_step (device/step.h): `consume` may receive only the highest logits, this many or more */
    bool hidden;   /* wants hidden states after the final norm instead of logits; not with `alone` */
    const ht_lora_set *lora;
    float *logits; /* receives the step's logits, [rows, vocab]; NULL: only `consume` reads them */
    ht_step_consumer *consume;
    void *user;
    const ht_cancel *cancel;
    double prefill_budget; /* most that prompts may slow a generated token, as a factor; 0: 2; 1: no limit */
    bool alone;            /* runs in a separate step; `output` is valid until ht_scheduler_return_output */
    bool tapped;           /* also wants `taps`; not with `alone` */
    bool returns;          /* the sequence's next job follows at once */
    bool prompt;           /* rows of a prompt: not latency-critical, even when few */

    ht_status status; /* of a job that is done; on failure nothing was computed, or `consume` failed */
    ht_error err;
    int64_t first_row, n_rows; /* first position with logits, and how many */
    const float *taps;         /* [n_rows, ht_taps_width], while `consume` reads the logits; NULL unless `tapped` */
    const float *output;       /* with `alone`: [n_rows, vocab]; NULL when there are none */

    /* Private to the scheduler. */
    bool is_done;
    bool generates; /* generated a token in step `awaited_in` */
    struct ht_step_job *next;
    ht_exec *exec; /* lent to the owner */
    int32_t exec_rows, exec_out;
    unsigned exec_form;
    int64_t rows; /* in the present step */
    uint64_t awaited_in;
} ht_step_job;

/* Opens a model's scheduler, creating it at the first call. Executors live until every user has closed it. */
ht_status ht_scheduler_open(struct ht_model *m, ht_error *err);
void ht_scheduler_close(ht_scheduler *s); /* NULL is fine */

/* Queues n jobs, and returns when all of them are done. */
void ht_scheduler_run(ht_scheduler *s, ht_step_job *const *jobs, int n);
/* The sequence of a job with `returns` will not return: steps stop waiting for it. */
void ht_scheduler_leave(ht_scheduler *s, ht_step_job *job);
/* Returns the executor lent to an `alone` job. */
void ht_scheduler_return_output(ht_scheduler *s, ht_step_job *job);

typedef struct ht_scheduler_stats {
    int64_t steps, rows; /* so far */
} ht_scheduler_stats;
ht_scheduler_stats ht_scheduler_get_stats(ht_scheduler *s); /* zeros for NULL */

/* Prefill budget: prompt rows that may join a step while inter-token time grows by a bounded factor. Learned from
 * measured step times; it decides when a row is computed, never its bits. */
enum { HT_PREFILL_BUDGET_SIZES = 65 };

typedef struct ht_prefill_budget {
    double base[HT_PREFILL_BUDGET_SIZES]; /* [n]: seconds of a step of n generated rows only; 0: unknown */
    double row;                           /* seconds that a prompt row adds; 0: unknown */
    int mixed;                            /* steps with prompt rows since the last one without */
} ht_prefill_budget;

/* Prompt rows, 1 to `most`, that keep a step within `bound` times the time of `few` generated rows alone (1 or less:
 * no bound). Occasionally 0, to measure generated rows alone. */
int64_t ht_prefill_budget_rows(const ht_prefill_budget *p, double bound, int64_t few, int64_t most);
/* Learns from a step of `few` generated rows and `prompt` rows of prompts. */
void ht_prefill_budget_learn(ht_prefill_budget *p, int64_t few, int64_t prompt, double seconds);

#endif
