/* Scheduler of a model: decides which sequences take part in the next step, and runs it; all computing goes through it.
 *
 * The owner of a sequence (a session, an engine) queues a job, the positions to compute. Threads that wait for jobs run the steps, one
 * at a time, so a single sequence never changes threads. A step takes jobs in order of arrival: first those of few rows (a generated
 * token, draft tokens), then rows of prompts within the prefill budget. Jobs for hidden states and for logits run in different steps.
 * A row's bits do not depend on the rest of the batch. Thread-safe. */
#ifndef HT_GENERATE_SCHEDULER_H
#define HT_GENERATE_SCHEDULER_H

#include "array/plan.h"

#include <hearth/cancel.h>

struct ht_model;

typedef struct ht_scheduler ht_scheduler;

/* Takes logits, or hidden states [n_rows, hidden], on any thread, beside others; calls nothing of the user's. */
typedef ht_status ht_step_consumer(void *user, const ht_logits_rows *logits, ht_error *err);

/* Used again and again for one sequence, which only the step may touch while ht_scheduler_run has it. */
typedef struct ht_step_job {
    ht_cache
        *cache; /* with pages of its own for all positions below `end`; its length moves as positions are computed */
    const int32_t *token; /* of all positions below `end` */
    int64_t end;          /* positions from cache->length on and below this are wanted; a step may compute fewer */
    int64_t first_out;    /* logits are wanted from this position on */
    int32_t most_rows;    /* of the sequence in one step, 1 or more: what its cache is made for */
    int32_t top_k; /* of ht_step (device/step.h); with it, `consume` may be given the highest alone: so many, or more */
    bool hidden;   /* hidden states after the final norm are wanted, where it says logits; not with `alone` */
    const ht_lora_set *lora;
    float *logits; /* takes those of the step, [rows, vocab]; NULL: `consume` alone reads them */
    ht_step_consumer *consume;
    void *user;
    const ht_cancel *cancel;
    double pace; /* how many times as long a generated token may take for the sake of prompts beside it; 0: 2; 1: any */
    bool
        alone; /* in a step of its own, whose executor is the owner's until ht_scheduler_return_output: `output` lies in it */
    bool tapped;  /* `taps` are wanted, too; not with `alone` */
    bool returns; /* another job of the sequence follows at once */
    bool prompt;  /* rows of a prompt, however few: nobody waits for them as for a generated token */

    ht_status status; /* of a job that is done; on failure nothing was computed, or `consume` failed */
    ht_error err;
    int64_t first_row, n_rows; /* first position with logits, and how many */
    const float *taps;         /* [n_rows, ht_taps_width], while `consume` reads the logits; NULL unless `tapped` */
    const float *output;       /* with `alone`: [n_rows, vocab]; NULL when there are none */

    /* The step's own. */
    bool is_done;
    bool generates; /* it was a generated token's, in step `awaited_in` */
    struct ht_step_job *next;
    ht_exec *exec; /* lent to the owner */
    int32_t exec_rows, exec_out;
    int64_t rows; /* in the present step */
    uint64_t awaited_in;
} ht_step_job;

/* Opens a model's scheduler, made at the first call. Executors live until every user has closed it. */
ht_status ht_scheduler_open(struct ht_model *m, ht_error *err);
void ht_scheduler_close(ht_scheduler *s); /* NULL is fine */

/* Queues n jobs, and returns when all of them are done. */
void ht_scheduler_run(ht_scheduler *s, ht_step_job *const *jobs, int n);
/* Tells that the sequence of a job which `returns` does not come back, so that nobody waits for it. */
void ht_scheduler_leave(ht_scheduler *s, ht_step_job *job);
/* Gives back what an `alone` job was lent. */
void ht_scheduler_return_output(ht_scheduler *s, ht_step_job *job);

typedef struct ht_scheduler_stats {
    int64_t steps, rows; /* so far */
} ht_scheduler_stats;
ht_scheduler_stats ht_scheduler_get_stats(ht_scheduler *s); /* zeros for NULL */

/* Prefill budget: rows of prompts that may join generated ones so that inter-token time grows by a bounded factor. Learned from
 * the time of steps; decides when a row is computed, never its bits. */
enum { HT_PREFILL_BUDGET_SIZES = 65 };

typedef struct ht_prefill_budget {
    double base[HT_PREFILL_BUDGET_SIZES]; /* seconds of a step of so many generated rows alone; 0: not known */
    double row;                           /* seconds that a row of a prompt adds; 0: not known */
    int mixed;                            /* steps with prompts since the last one without */
} ht_prefill_budget;

/* Rows of prompts that may join `few` generated ones, from 1 to `most`, so that the step takes at most `bound` times as long as
 * without them (1 or less: however long); now and then 0, to learn what these take by now. */
int64_t ht_prefill_budget_rows(const ht_prefill_budget *p, double bound, int64_t few, int64_t most);
/* Learns from a step of `few` generated rows and `prompt` rows of prompts. */
void ht_prefill_budget_learn(ht_prefill_budget *p, int64_t few, int64_t prompt, double seconds);

#endif
