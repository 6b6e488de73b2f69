/* Elementwise program preparation (elementwise.h): block functions of the steps, and buffer allocation for intermediate
 * results. */
#include "cpu/elementwise.h"

/* Last step that reads each step's result. */
static void find_last_uses(const ht_program *p, int8_t *last) {
    for (int i = 0; i < p->n_steps; i++) {
        last[i] = (int8_t)i;
        for (int k = 0; k < p->step[i].n_in; k++)
            if (p->step[i].in[k] < 0) last[-1 - p->step[i].in[k]] = (int8_t)i;
    }
}

bool ht_elementwise_prepare(ht_program *p, ht_find_elementwise_fn *find) {
    int8_t last[HT_PROGRAM_STEPS], owner[HT_PROGRAM_LOCALS];
    find_last_uses(p, last);
    for (int l = 0; l < HT_PROGRAM_LOCALS; l++) owner[l] = -1;
    for (int i = 0; i < p->n_steps; i++) {
        ht_program_step *s = &p->step[i];
        s->kernel = (void (*)(void))find(s->op, s->from, s->to);
        s->local = -1;
        if (!s->kernel) return false;
        if (s->out >= 0) continue;
        /* A buffer is reused only after the step of its last read, since a result must not overwrite its own
         * operands. */
        for (int l = 0; l < HT_PROGRAM_LOCALS && s->local < 0; l++)
            if (owner[l] < 0 || last[owner[l]] < i) s->local = (int8_t)l;
        if (s->local < 0) return false;
        owner[s->local] = (int8_t)i;
    }
    return true;
}
