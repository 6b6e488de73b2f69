#include "generate/prefill_budget.h"

#include <stddef.h>

/* A step is planned to take this share of what it may: single steps vary. */
static const double aim = 0.85;
/* Weight of what is new in a running mean. Rows cost more as their context grows, so the newest count most. */
static const double weight = 0.25;
/* Before anything is known; and after how many steps with prompts one goes without: what generated rows take alone grows with
 * their context. Of a prompt alone, so many rows tell what one of them takes. */
enum { FIRST_ROWS = 8, MOST_MIXED = 32, LEAST_ALONE = 64 };

static int64_t size_of(int64_t few) { return few < HT_PREFILL_BUDGET_SIZES ? few : HT_PREFILL_BUDGET_SIZES - 1; }

/* Seconds of `few` generated rows: as measured, or of the nearest smaller number, which is less. 0: not known. */
static double base_of(const ht_prefill_budget *p, int64_t few) {
    for (int64_t n = size_of(few); n > 0; n--)
        if (p->base[n] > 0) return p->base[n];
    return 0;
}

int64_t ht_prefill_budget_rows(const ht_prefill_budget *p, double bound, int64_t few, int64_t most) {
    if (bound <= 1 || few == 0) return most;
    if (p->mixed >= MOST_MIXED) return 0;
    const double base = base_of(p, few);
    if (base <= 0 || p->row <= 0) return most < FIRST_ROWS ? most : FIRST_ROWS;
    const double rows = (bound * aim - 1) * base / p->row;
    if (rows >= (double)most) return most;
    return rows < 1 ? 1 : (int64_t)rows;
}

static void learn(double *mean, double x) { *mean = *mean > 0 ? *mean + weight * (x - *mean) : x; }

void ht_prefill_budget_learn(ht_prefill_budget *p, int64_t few, int64_t prompt, double seconds) {
    if (prompt == 0) {
        if (few > 0) learn(&p->base[size_of(few)], seconds);
        p->mixed = 0;
        return;
    }
    p->mixed += few > 0;
    const double base = few > 0 ? base_of(p, few) : 0;
    if (few > 0 ? base <= 0 : prompt < LEAST_ALONE) return;
    const double added = (seconds - base) / (double)prompt;
    /* A step that took no longer than without the prompt says that its rows are cheap, not that they are free. */
    learn(&p->row, added > 0.01 * seconds / (double)prompt ? added : 0.01 * seconds / (double)prompt);
}
