/* Steps of a model: the rows of all sequences that wait at a time go through the model together, on executors that all of them
 * share. There is no other way to compute on a loaded model.
 *
 * A sequence's owner (a session, an engine) queues a job: the positions that it wants computed. Threads that wait for their
 * jobs run the steps, one thread at a time; who waits alone never changes threads. A step takes jobs in the order in which they came: first those
 * of few rows, a token that is generated or some guesses, then as many rows of long prompts as the pace of the others allows
 * (models/step_pace.h). Hidden states and logits are not of one step. A row's bits do not depend on its company. Thread-safe. */
#ifndef HT_MODELS_STEPS_H
#define HT_MODELS_STEPS_H

#include "array/plan.h"

#include <hearth/cancel.h>

struct ht_model;

typedef struct ht_steps ht_steps;

/* Takes logits, or hidden states [n_rows, hidden] as such, on a thread that may be another's, beside those of other jobs; no call of
 * the user's belongs here. Not for `alone`. */
typedef ht_status ht_step_consumer(void *user, const ht_logits_rows *logits, ht_error *err);

/* Used again and again for one sequence, which only the step may touch while ht_steps_run has it. */
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
    bool alone;  /* in a step of its own, whose executor is the owner's until ht_steps_give_back: `output` lies in it */
    bool tapped; /* `taps` are wanted, too; not with `alone` */
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

/* For the model, whose plans run; at most `sequences` in one step. */
ht_status ht_steps_new(struct ht_model *m, int32_t sequences, ht_steps **out, ht_error *err);
void ht_steps_free(ht_steps *s); /* NULL is fine; nobody may wait or have opened it */
int32_t ht_steps_sequences(const ht_steps *s);

/* Executors live as long as somebody has opened the steps. */
void ht_steps_open(ht_steps *s);
void ht_steps_close(ht_steps *s);

/* Queues n jobs, and returns when all of them are done. */
void ht_steps_run(ht_steps *s, ht_step_job *const *jobs, int n);
/* Tells that the sequence of a job which `returns` does not come back, so that nobody waits for it. */
void ht_steps_leave(ht_steps *s, ht_step_job *job);
/* Gives back what an `alone` job was lent. */
void ht_steps_give_back(ht_steps *s, ht_step_job *job);

typedef struct ht_steps_figures {
    int64_t steps, rows; /* so far */
} ht_steps_figures;
ht_steps_figures ht_steps_get_figures(ht_steps *s);

#endif
