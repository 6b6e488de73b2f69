/* Pace of steps: how many rows of prompts may go along with rows of generated tokens, so that the time between two tokens of
 * a running sequence grows by a bounded factor. Times are learned from the steps themselves: what n generated rows take without company, and
 * what a row of a prompt adds. They decide when a row is computed, never its bits. */
#ifndef HT_GENERATE_PREFILL_BUDGET_H
#define HT_GENERATE_PREFILL_BUDGET_H

#include <stdint.h>

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
