/* Schedules of the learning rate: pure functions of the step. */
#include "base/options.h"

#include <hearth/optimizer.h>

#include <math.h>

static const double pi = 3.14159265358979323846;
static const ht_schedule defaults = {.size = sizeof defaults, .learning_rate = 1e-5};

void ht_schedule_init(ht_schedule *schedule, size_t size) {
    ht_options_init(schedule, size, &defaults, sizeof defaults);
}

static double factor(const ht_schedule *c, int64_t step) {
    if (step < c->warmup_steps) return (double)step / (double)c->warmup_steps;
    if (c->kind == HT_SCHEDULE_CONSTANT) return 1;
    if (step >= c->total_steps) return 0;
    const double decay_steps = (double)(c->total_steps - c->warmup_steps);
    /* not 1 - r, which would round differently from transformers */
    if (c->kind == HT_SCHEDULE_LINEAR) return (double)(c->total_steps - step) / decay_steps;
    return 0.5 * (1 + cos(pi * ((double)(step - c->warmup_steps) / decay_steps)));
}

double ht_schedule_lr(const ht_schedule *schedule, int64_t step) {
    ht_schedule c;
    if (ht_options_read(&c, schedule, &defaults, sizeof defaults, "ht_schedule", NULL)) return (double)NAN;
    const bool known = c.kind >= HT_SCHEDULE_CONSTANT && c.kind <= HT_SCHEDULE_COSINE;
    if (!known || step < 0 || c.warmup_steps < 0 || c.total_steps < 0 || !(c.learning_rate >= 0)) return (double)NAN;
    return c.learning_rate * factor(&c, step);
}
