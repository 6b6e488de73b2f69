#include "device/params.h"
#include "device/step.h"

#include <stdbool.h>
#include <stddef.h>

ht_lora_matrices ht_lora_matrices_of(const ht_lora_pair *l, const ht_lora_params *p) {
    if (!p->head_rows) return (ht_lora_matrices){l->a, l->b, l->rank * l->n_in, l->rank * l->n_out, .b_row = l->n_out};
    if (!p->transposed) return (ht_lora_matrices){l->a, l->b + p->first_row, 0, p->head_rows, .b_row = l->n_out};
    return (ht_lora_matrices){l->b_rows + p->first_row * l->rank, l->a_rows, p->head_rows * l->rank, 0,
                              .b_row = l->n_in};
}

static const ht_lora_use *uses_of(const ht_lora_set *set, int64_t projection, int32_t *n) {
    *n = set ? set->n : 0;
    if (!set) return NULL;
    const ht_lora_use *use = set->use + projection * set->n;
    for (int32_t i = 0; i < set->n; i++)
        if (use[i].pair) return use;
    return NULL;
}

static bool same_uses(const ht_lora_use *a, const ht_lora_use *b, int32_t n) {
    bool same = true;
    for (int32_t i = 0; same && i < n; i++) same = a[i].pair == b[i].pair && a[i].scale == b[i].scale;
    return same;
}

/* Row of the step: output rows are fewer. */
static int32_t token_row(const ht_batch *b, int64_t n_rows, int64_t row) {
    return n_rows == b->n_tok ? (int32_t)row : b->out_row[row];
}

ht_lora_run ht_lora_next_run(const ht_step *step, int64_t projection, int64_t n_rows, int64_t row, int32_t *sequence) {
    const ht_batch *b = step->batch;
    ht_lora_run r = {.first = row};
    bool begun = false;
    for (; row < n_rows; row++, r.n++) {
        int32_t n, before = *sequence;
        while (token_row(b, n_rows, row) >= b->seq_start[*sequence + 1]) ++*sequence;
        if (begun && *sequence == before) continue;
        const ht_lora_use *use = uses_of(step->lora[*sequence], projection, &n);
        if (!begun) {
            r.use = use;
            r.n_uses = n;
            begun = true;
        } else if (!use != !r.use || (use && (n != r.n_uses || !same_uses(use, r.use, n))))
            return r;
    }
    return r;
}
