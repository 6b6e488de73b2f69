#include "train/forecast.h"

#include "array/array.h"
#include "array/eval_forecast.h"
#include "base/checked.h"
#include "base/error.h"
#include "models/memory_check.h"
#include "train/model_loss.h"

#include <hearth/memory.h>
#include <hearth/random.h>

#include <stdlib.h>

/* Rows of a batch. */
typedef struct rows {
    ht_train_batch batch;
    int32_t *memory;
} rows;

/* The largest batch that can come: sequences as long as the longest sample, or packed to max_length. In the file's order
 * samples come again when there are too few for a batch. */
static ht_status largest_batch(const ht_trainer *t, bool held_out, rows *r, ht_error *err) {
    const ht_data_report *report = ht_data_get_report(held_out ? t->valid : t->data);
    const bool pack = t->o.pack && !held_out, repeats = t->o.in_order && !pack && !held_out;
    const int64_t in_all = report->n_tokens - report->n_samples, one = report->longest - 1;
    const int64_t length = pack ? ht_max_i64(one, ht_min_i64(report->max_length, in_all)) : one;
    const int64_t most = repeats ? t->o.batch : ht_max_i64(1, ht_ceil_div_i64(in_all, length));
    const int64_t n_seq = ht_min_i64(t->o.batch, most), n = n_seq * length;
    r->memory = malloc((3 * (size_t)n + (size_t)n_seq + 1) * sizeof *r->memory);
    if (!r->memory) return ht_fail_memory(err, 3 * (size_t)n * sizeof *r->memory, "a batch");
    int32_t *id = r->memory, *pos = id + n, *target = pos + n, *seq_start = target + n;
    for (int64_t i = 0; i < n; i++) {
        id[i] = target[i] = 0;
        pos[i] = (int32_t)(i % length);
    }
    for (int64_t s = 0; s <= n_seq; s++) seq_start[s] = (int32_t)(s * length);
    r->batch = (ht_train_batch){(int32_t)n, (int32_t)n_seq, id, pos, seq_start, target, n};
    return HT_OK;
}

/* Memory of the gradients of the largest batch. */
static ht_status measure(const ht_trainer *t, const rows *r, bool checkpointing, size_t *bytes, ht_error *err) {
    const int n = ht_trainable_count(t->trainable);
    ht_scope *s = ht_scope_new(t->m->stream);
    ht_array **made = calloc((size_t)n + 1, sizeof *made);
    ht_status status = s && made ? HT_OK : ht_fail_memory(err, (size_t)n * sizeof *made, "a forecast");
    ht_array *key = HT_NONE;
    if (!status && t->trainable->dropout > 0) key = ht_random_key(s, 0);
    if (!status) status = ht_trainable_gradients(t->trainable, s, &r->batch, key, checkpointing, &made[n], made, err);
    if (!status) status = ht_eval_forecast(s, made, n + 1, bytes, err);
    free(made);
    ht_scope_free(s);
    return status;
}

/* Memory of the losses of the largest held-out batch. */
static ht_status measure_held_out(const ht_trainer *t, size_t *bytes, ht_error *err) {
    rows r = {0};
    ht_status status = largest_batch(t, true, &r, err);
    ht_scope *s = status ? NULL : ht_scope_new(t->m->stream);
    if (!status && !s) status = ht_fail_memory(err, sizeof *s, "a forecast");
    if (!status) {
        const ht_adapters adapters = ht_trainable_adapters(t->trainable, HT_NONE);
        ht_array *losses = ht_model_loss_rows(s, t->m, &r.batch, &adapters, false);
        status = losses ? ht_eval_forecast(s, &losses, 1, bytes, err) : ht_scope_status(s, err);
    }
    ht_scope_free(s);
    free(r.memory);
    return status;
}

static ht_status refuse(const ht_trainer *t, size_t wanted, size_t available, ht_error *err) {
    char need[32], have[32];
    const char *help = "fewer targets, or a smaller model";
    if (!t->checkpointing && t->o.checkpointing == HT_CHECKPOINTING_OFF)
        help = "checkpointing";
    else if (t->o.batch > 1)
        help = "a smaller batch, with more batches accumulated";
    else if (ht_data_get_report(t->data)->longest > 256)
        help = "a smaller max_length";
    return ht_fail(err, HT_ERR_LIMIT, "training needs about %s more memory at its peak, and %s is free; %s would help",
                   ht_memory_check_text(wanted, need), ht_memory_check_text(available, have), help);
}

ht_status ht_forecast_check(ht_trainer *t, ht_error *err) {
    enum { MOMENTS = 2, GRADIENTS = 2 };
    rows r = {0};
    size_t bytes, evaluation = 0, available;
    const bool known = ht_memory_check_free_on(t->m->device, &available);
    const size_t parameters = (size_t)ht_trainable_parameters(t->trainable) * sizeof(float) * (MOMENTS + GRADIENTS + 1);
    ht_status status = largest_batch(t, false, &r, err);
    t->checkpointing = t->o.checkpointing == HT_CHECKPOINTING_ON;
    if (!status) status = measure(t, &r, t->checkpointing, &bytes, err);
    if (!status && t->o.checkpointing == HT_CHECKPOINTING_AUTO && known && bytes + parameters > available / 4 * 3) {
        t->checkpointing = true;
        status = measure(t, &r, true, &bytes, err);
    }
    free(r.memory);
    if (!status && t->valid) status = measure_held_out(t, &evaluation, err);
    if (status) return status;
    t->step_bytes = ht_max_size(bytes, evaluation) + parameters;
    t->peak_bytes = ht_memory_check_used_on(t->m->device) + t->step_bytes;
    if (known && !t->o.skip_memory_check && t->step_bytes > available) return refuse(t, t->step_bytes, available, err);
    return HT_OK;
}
