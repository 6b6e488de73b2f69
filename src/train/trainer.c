/* Trainer: opening, describing, memory forecast, steps and evaluations. */
#include "train/trainer.h"

#include "array/array.h"
#include "array/eval_forecast.h"
#include "base/checked.h"
#include "base/error.h"
#include "base/options.h"
#include "base/plural.h"
#include "models/memory_check.h"
#include "models/weights.h"
#include "template/template.h"
#include "train/contrast.h"

#include <hearth/memory.h>
#include <hearth/ops.h>
#include <hearth/random.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- options ---- */

static const ht_trainer_options defaults = {.size = sizeof defaults,
                                            .batch = 4,
                                            .accumulate = 1,
                                            .pack = true,
                                            .epochs = 1,
                                            .learning_rate = 1e-4,
                                            .clip = 1,
                                            .temperature = 0.05};

void ht_trainer_options_init(ht_trainer_options *options, size_t size) {
    ht_options_init(options, size, &defaults, sizeof defaults);
}

static ht_status check_options(const ht_trainer_options *o, ht_error *err) {
    if (!o->data) return ht_fail(err, HT_ERR_ARGUMENT, "no file of training data was named");
    if (o->batch < 1 || o->accumulate < 1)
        return ht_fail(err, HT_ERR_ARGUMENT, "a batch of %d and %d batches a step, expected 1 or more", (int)o->batch,
                       (int)o->accumulate);
    if (o->iters < 0 || !(o->epochs > 0) || !isfinite(o->epochs))
        return ht_fail(err, HT_ERR_ARGUMENT, "%lld steps and %g epochs, expected 0 or more, and more than 0",
                       (long long)o->iters, o->epochs);
    if (!(o->learning_rate >= 0) || !isfinite(o->learning_rate) || !(o->clip >= 0) || o->warmup < 0)
        return ht_fail(err, HT_ERR_ARGUMENT,
                       "a learning rate of %g after %lld steps of warm-up, clipped at %g; expected 0 or more",
                       o->learning_rate, (long long)o->warmup, o->clip);
    if (o->method != HT_METHOD_SFT && o->method != HT_METHOD_EMBED)
        return ht_fail(err, HT_ERR_ARGUMENT, "there is no method %d", (int)o->method);
    if (o->method == HT_METHOD_EMBED && (!(o->temperature > 0) || !isfinite(o->temperature)))
        return ht_fail(err, HT_ERR_ARGUMENT, "a temperature of %g, expected more than 0", o->temperature);
    if (o->valid_batches < 0)
        return ht_fail(err, HT_ERR_ARGUMENT, "%lld batches of an evaluation, expected 0 or more",
                       (long long)o->valid_batches);
    return HT_OK;
}

/* ---- opening ---- */

static void close_source(ht_train_source *from) {
    ht_batches_free(from->batches);
    ht_data_free(from->data);
}

static ht_status open_source(const ht_trainer *t, const char *path, bool held_out, int64_t time, ht_train_source *out,
                             ht_error *err) {
    const ht_trainer_options *o = &t->o;
    const ht_data_options how = {.method = o->method,
                                 .mask = o->mask,
                                 .long_samples = o->long_samples,
                                 .max_length = o->max_length,
                                 .skip_bad = o->skip_bad,
                                 .time = time,
                                 .cancel = o->cancel,
                                 .progress = o->progress,
                                 .user = o->user};
    const ht_batches_options order = {.batch = o->batch,
                                      .pack = o->pack && !held_out,
                                      .shuffle = !o->in_order && !held_out,
                                      .once = held_out,
                                      .temperature = o->temperature,
                                      .seed = o->seed};
    *out = (ht_train_source){NULL, NULL};
    ht_status status = ht_data_open(t->m, path, &how, &out->data, err);
    if (!status) status = ht_batches_new(out->data, &order, &out->batches, err);
    if (status) close_source(out);
    return status;
}

/* Number of steps of all epochs. Batches continue across epochs, so none is incomplete. */
static int64_t count_steps(const ht_trainer *t) {
    if (t->o.iters) return t->o.iters;
    const double step = (double)t->o.accumulate, batch = (double)t->o.batch;
    const bool in_order = t->o.in_order && !t->o.pack;
    const double in_epoch =
        in_order ? (double)ht_data_length(t->train.data) / batch : (double)ht_batches_per_epoch(t->train.batches);
    return (int64_t)fmin(fmax(ceil(t->o.epochs * in_epoch / step), 1), 1e15);
}

static void count_all(ht_trainer *t) {
    t->per_epoch = ht_ceil_div_i64(ht_batches_per_epoch(t->train.batches), t->o.accumulate);
    t->iters = count_steps(t);
    t->schedule.total_steps = t->iters;
    if (!t->valid.batches) return;
    const int64_t all = ht_batches_per_epoch(t->valid.batches);
    t->held_out_batches = t->o.valid_batches ? ht_min_i64(t->o.valid_batches, all) : all;
}

/* Opens training data, then held-out data with the same template time. */
static ht_status open_data(ht_trainer *t, int64_t time, ht_error *err) {
    ht_train_source train, valid = {NULL, NULL};
    ht_status status = open_source(t, t->data_path, false, time, &train, err);
    if (!status && t->valid_path) {
        status = open_source(t, t->valid_path, true, ht_data_get_report(train.data)->time, &valid, err);
        if (status) close_source(&train);
    }
    if (status) return status;
    close_source(&t->train);
    close_source(&t->valid);
    t->train = train;
    t->valid = valid;
    t->retrieval = (ht_retrieval){0};
    t->time = ht_data_get_report(t->train.data)->time;
    count_all(t);
    return HT_OK;
}

ht_status ht_trainer_set_time(ht_trainer *t, int64_t time, ht_error *err) {
    bool dated = false;
    for (const ht_chat_setup *s = &t->m->chat; s && !dated; s = s->for_tools)
        dated = s->template && ht_chat_template_mentions(s->template, "strftime_now");
    if (time != t->time && dated) return open_data(t, time, err);
    t->time = time;
    return HT_OK;
}

/* ---- memory forecast, which decides on checkpointing ---- */

/* Rows of a batch. */
typedef struct rows {
    ht_train_batch batch;
    int32_t *memory;
} rows;

/* The sample of pairs with the most tokens, n_seq times over. */
static ht_status largest_pairs(const ht_data *data, int64_t n_samples, double temperature, rows *r, ht_error *err) {
    int64_t at = 0;
    for (int64_t i = 0; i < ht_data_length(data); i++)
        if (ht_data_sample(data, i)->n > ht_data_sample(data, at)->n) at = i;
    const ht_sample *longest = ht_data_sample(data, at);
    const int64_t n_seq = n_samples * longest->n_texts, n = n_samples * longest->n;
    r->memory = malloc((2 * (size_t)n + 2 * (size_t)n_seq + 1) * sizeof *r->memory);
    if (!r->memory) return ht_fail_memory(err, 2 * (size_t)n * sizeof *r->memory, "a batch");
    int32_t *id = r->memory, *pos = id + n, *match = pos + n, *seq_start = match + n_seq;
    seq_start[0] = 0;
    for (int32_t q = 0; q < n_seq; q++) {
        const int32_t text = q % longest->n_texts, from = seq_start[q], begin = longest->begin[text];
        seq_start[q + 1] = from + longest->begin[text + 1] - begin;
        for (int32_t i = from; i < seq_start[q + 1]; i++) {
            id[i] = longest->id[begin + i - from];
            pos[i] = i - from;
        }
        match[q] = text ? -1 : q + 1;
    }
    r->batch = (ht_train_batch){.n_tok = (int32_t)n,
                                .n_seq = (int32_t)n_seq,
                                .id = id,
                                .pos = pos,
                                .seq_start = seq_start,
                                .n_learned = n_samples,
                                .match = match,
                                .temperature = temperature};
    return HT_OK;
}

/* The largest possible batch: the longest samples, or packed. In file order, few samples repeat within a batch. */
static ht_status largest_batch(const ht_trainer *t, bool held_out, rows *r, ht_error *err) {
    const ht_data_report *report = ht_data_get_report(held_out ? t->valid.data : t->train.data);
    const bool pack = t->o.pack && !held_out, repeats = t->o.in_order && !pack && !held_out;
    if (t->o.method == HT_METHOD_EMBED)
        return largest_pairs(held_out ? t->valid.data : t->train.data,
                             repeats ? t->o.batch : ht_min_i64(t->o.batch, report->n_samples), t->o.temperature, r,
                             err);
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
    r->batch = (ht_train_batch){.n_tok = (int32_t)n,
                                .n_seq = (int32_t)n_seq,
                                .id = id,
                                .pos = pos,
                                .seq_start = seq_start,
                                .target = target,
                                .n_learned = n};
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
    else if (ht_data_get_report(t->train.data)->longest > 256)
        help = "a smaller max_length";
    return ht_fail(err, HT_ERR_LIMIT, "training needs about %s more memory at its peak, and %s is free; %s would help",
                   ht_memory_check_text(wanted, need), ht_memory_check_text(available, have), help);
}

/* Sets t->checkpointing and t->peak_bytes. HT_ERR_LIMIT, with an option that helps, if free memory does not suffice. */
static ht_status forecast_memory(ht_trainer *t, ht_error *err) {
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
    if (!status && t->valid.data) status = measure_held_out(t, &evaluation, err);
    if (status) return status;
    t->step_bytes = ht_max_size(bytes, evaluation) + parameters;
    t->peak_bytes = ht_memory_check_used_on(t->m->device) + t->step_bytes;
    if (known && !t->o.skip_memory_check && t->step_bytes > available) return refuse(t, t->step_bytes, available, err);
    return HT_OK;
}

/* ---- life ---- */

/* The loss of a positive that is the only candidate is 0. */
static ht_status check_contrast(const ht_trainer *t, ht_error *err) {
    if (t->o.method != HT_METHOD_EMBED || t->o.batch > 1) return HT_OK;
    for (int64_t i = 0; i < ht_data_length(t->train.data); i++)
        if (ht_data_sample(t->train.data, i)->n_texts > 2) return HT_OK;
    return ht_fail(err, HT_ERR_ARGUMENT,
                   "a batch of 1 has no candidate but the positive; expected a batch of 2 or more, "
                   "or negatives in the data");
}

static ht_status fill(ht_trainer *t, ht_error *err) {
    const ht_trainer_options *o = &t->o;
    ht_lora_options lora;
    ht_status status = ht_trainable_options(o->lora, &lora, err);
    if (status) return status;
    lora.seed = o->seed;
    t->dropout = lora.dropout;
    t->dtype = lora.dtype;
    status = ht_trainable_new(t->m, &lora, &t->trainable, err);
    if (!status) status = ht_trainable_keep_exact(t->trainable, err);
    if (!status) status = ht_optimizer_new(o->optimizer, &t->optimizer, err);
    t->data_path = strdup(o->data);
    t->valid_path = o->valid ? strdup(o->valid) : NULL;
    if (!status && (!t->data_path || (o->valid && !t->valid_path)))
        status = ht_fail_memory(err, strlen(o->data), "a path");
    ht_schedule_init(&t->schedule, sizeof t->schedule);
    t->schedule.kind = o->schedule;
    t->schedule.learning_rate = o->learning_rate;
    t->schedule.warmup_steps = o->warmup;
    if (!status) status = open_data(t, 0, err);
    if (!status) status = check_contrast(t, err);
    if (!status) status = ht_model_fingerprint(t->m, t->model, err);
    if (status) return status;
    ht_model_template_hash(t->m, t->template);
    return forecast_memory(t, err);
}

ht_status ht_trainer_new(ht_model *m, const ht_trainer_options *options, ht_trainer **out, ht_error *err) {
    *out = NULL;
    ht_trainer_options o;
    ht_status status = ht_options_read(&o, options, &defaults, sizeof defaults, "ht_trainer_options", err);
    if (!status) status = check_options(&o, err);
    if (!status) status = o.method == HT_METHOD_EMBED ? ht_contrast_check_model(m, err) : ht_model_need_decoder(m, err);
    if (status) return status;
    if (o.method == HT_METHOD_EMBED) o.pack = false;
    ht_trainer *t = calloc(1, sizeof *t);
    if (!t) return ht_fail_memory(err, sizeof *t, "a trainer");
    *t = (ht_trainer){.m = ht_model_retain(m), .o = o};
    status = fill(t, err);
    if (!status) {
        t->reserved_bytes = t->step_bytes;
        ht_memory_reserve(m->device->memory, t->reserved_bytes);
    }
    t->o.data = t->o.valid = NULL;
    t->o.lora = NULL;
    t->o.optimizer = NULL;
    t->o.progress = NULL; /* its user pointer is only valid during this call, and resuming reads the data again */
    t->o.user = NULL;
    if (status)
        ht_trainer_free(t);
    else
        *out = t;
    return status;
}

void ht_trainer_free(ht_trainer *t) {
    if (!t) return;
    close_source(&t->valid);
    close_source(&t->train);
    if (t->reserved_bytes) ht_memory_unreserve(t->m->device->memory, t->reserved_bytes);
    free(t->data_path);
    free(t->valid_path);
    ht_optimizer_free(t->optimizer);
    ht_trainable_free(t->trainable);
    ht_model_free(t->m);
    free(t);
}

void ht_trainer_describe(const ht_trainer *t, ht_trainer_plan *out) {
    int64_t n, parameters = 0;
    ht_matrix *const *all = ht_weights_matrices(t->m->weights, &n);
    for (int64_t i = 0; i < n; i++)
        if (!ht_weights_use(t->m->weights, i).table) parameters += all[i]->n_rows * all[i]->k;
    *out = (ht_trainer_plan){.iters = t->iters,
                             .iters_per_epoch = t->per_epoch,
                             .done = t->iter,
                             .skipped = t->skipped,
                             .n_parameters = ht_trainable_parameters(t->trainable),
                             .model_parameters = parameters,
                             .n_projections = t->trainable->n,
                             .checkpointing = t->checkpointing,
                             .peak_bytes = t->peak_bytes,
                             .data = ht_data_get_report(t->train.data),
                             .valid = t->valid.data ? ht_data_get_report(t->valid.data) : NULL};
}

/* ---- a step ---- */

/* Dropout key of batch `number`; HT_NONE without dropout. */
static ht_array *dropout_key(const ht_trainer *t, ht_scope *s, int64_t number) {
    if (t->trainable->dropout <= 0) return HT_NONE;
    return ht_random_key(s, t->o.seed * 0x9e3779b97f4a7c15u + (uint64_t)number + 1);
}

/* Adds made[i] to sums[i], which is NULL before the first batch; the sum is evaluated and retained. */
static ht_status add_up(const ht_trainer *t, ht_scope *s, ht_array **made, ht_array **sums, ht_error *err) {
    const int n = ht_trainable_count(t->trainable) + 1;
    for (int i = 0; i < n; i++) {
        made[i] = ht_astype(s, made[i], HT_F32);
        if (sums[i]) made[i] = ht_add(s, sums[i], made[i]);
    }
    ht_status status = ht_array_eval(s, made, n, err);
    for (int i = 0; !status && i < n; i++) status = ht_array_detach(s, made[i], err);
    for (int i = 0; !status && i < n; i++) {
        ht_array_retain(made[i]);
        ht_array_free(sums[i]);
        sums[i] = made[i];
    }
    return status;
}

/* Adds the gradients of one batch, followed by its loss, to `sums`. */
static ht_status add_batch(const ht_trainer *t, const ht_train_batch *batch, int64_t number, ht_array **sums,
                           ht_error *err) {
    const int n = ht_trainable_count(t->trainable);
    ht_scope *s = ht_scope_new(t->m->stream);
    ht_array **made = calloc((size_t)n + 1, sizeof *made);
    ht_status status = s && made ? HT_OK : ht_fail_memory(err, (size_t)n * sizeof *made, "gradients");
    if (!status)
        status = ht_trainable_gradients(t->trainable, s, batch, dropout_key(t, s, number), t->checkpointing, &made[n],
                                        made, err);
    if (!status) status = add_up(t, s, made, sums, err);
    free(made);
    ht_scope_free(s);
    return status;
}

static ht_status read_scalar(ht_scope *s, ht_array *x, double *out, ht_error *err) {
    float value;
    ht_status status = ht_array_read(s, x, &value, sizeof value, err);
    *out = (double)value;
    return status;
}

/* Whether all values are finite; also false, with *status set, on failure. */
static bool all_finite(ht_scope *s, ht_array *const *arrays, int n, ht_status *status, ht_error *err) {
    ht_array *zero = ht_full(s, 0, HT_F32, NULL, 0), *total = zero;
    double sum = 0;
    for (int i = 0; i < n; i++) total = ht_add(s, total, ht_sum(s, ht_multiply(s, arrays[i], zero), NULL, 0, false));
    *status = read_scalar(s, total, &sum, err);
    return !*status && isfinite(sum);
}

/* Averages the sums over learned tokens, clips them, and takes the optimizer's step if all is finite. */
static ht_status apply(ht_trainer *t, ht_array **sums, ht_train_step *out, ht_error *err) {
    const int n = ht_trainable_count(t->trainable);
    ht_scope *s = ht_scope_new(t->m->stream);
    ht_array **list = calloc(3 * (size_t)n + 1, sizeof *list), *norm;
    ht_status status = s && list ? HT_OK : ht_fail_memory(err, 3 * (size_t)n * sizeof *list, "a step");
    if (status) {
        free(list);
        ht_scope_free(s);
        return status;
    }
    ht_array **grads = list, **old = list + n, **new = old + n;
    const double share = 1 / (double)out->n_learned;
    for (int i = 0; i < n; i++) grads[i] = ht_multiply(s, sums[i], ht_full(s, share, HT_F32, NULL, 0));
    if (!ht_clip_grad_norm(s, grads, n, t->o.clip > 0 ? t->o.clip : (double)INFINITY, grads, &norm))
        status = ht_scope_status(s, err);
    if (!status) status = read_scalar(s, sums[n], &out->loss, err);
    if (!status) status = read_scalar(s, norm, &out->grad_norm, err);
    if (!status) {
        out->loss /= (double)out->n_learned;
        out->skipped = !isfinite(out->loss) || !isfinite(out->grad_norm);
        ht_trainable_list(t->trainable, old);
    }
    if (!status && !out->skipped) {
        status = ht_optimizer_step(t->optimizer, s, old, grads, n, out->learning_rate, new, err);
        if (!status && !all_finite(s, new, n, &status, err) && !status)
            status = ht_fail(err, HT_ERR_ARGUMENT,
                             "step %lld at a learning rate of %g made values that are no finite numbers: training has "
                             "diverged",
                             (long long)out->iter, out->learning_rate);
        if (!status) status = ht_trainable_set(t->trainable, new, err);
    }
    free(list);
    ht_scope_free(s);
    return status;
}

/* The fifth step in a row that is not finite ends training. */
static ht_status count_failures(ht_trainer *t, const ht_train_step *step, ht_error *err) {
    t->skipped_in_a_row = step->skipped ? t->skipped_in_a_row + 1 : 0;
    t->skipped += step->skipped;
    if (t->skipped_in_a_row < HT_TRAIN_MOST_FAILURES) return HT_OK;
    char lines[96];
    size_t used = 0;
    for (int32_t i = 0; i < t->last_n_samples && used + 24 < sizeof lines; i++)
        used += (size_t)snprintf(lines + used, sizeof lines - used, "%s%lld", i ? ", " : "",
                                 (long long)ht_batches_line(t->train.batches, i));
    return ht_fail(
        err, HT_ERR_ARGUMENT,
        "%d steps in a row had a loss of %g and gradients of norm %g: training has diverged. Begin a new run "
        "with a lower learning rate than %g, from the last good adapter; the last step's samples are in line "
        "%s",
        HT_TRAIN_MOST_FAILURES, step->loss, step->grad_norm, t->o.learning_rate, used ? lines : "?");
}

ht_status ht_trainer_step(ht_trainer *t, ht_train_step *out, ht_error *err) {
    *out = (ht_train_step){.iter = t->iter + 1, .learning_rate = ht_schedule_lr(&t->schedule, t->iter)};
    if (t->iter >= t->iters)
        return ht_fail(err, HT_ERR_LIMIT, "training is complete after %lld step%s", (long long)t->iters,
                       ht_plural(t->iters));
    const int n = ht_trainable_count(t->trainable) + 1;
    ht_array **sums = calloc((size_t)n, sizeof *sums);
    ht_status status = sums ? HT_OK : ht_fail_memory(err, (size_t)n * sizeof *sums, "gradients");
    for (int32_t i = 0; !status && i < t->o.accumulate; i++) {
        const int64_t number = t->iter * t->o.accumulate + i;
        ht_train_batch batch;
        if (ht_cancel_requested(t->o.cancel)) {
            status = ht_fail(err, HT_ERR_CANCELLED, "training was cancelled after %lld step%s", (long long)t->iter,
                             ht_plural(t->iter));
            break;
        }
        status = ht_batches_get(t->train.batches, number, &batch, err);
        if (!status) status = add_batch(t, &batch, number, sums, err);
        if (status) break;
        t->last_n_samples = ht_batches_samples(t->train.batches);
        out->n_tok += batch.n_tok;
        out->n_learned += batch.n_learned;
    }
    if (!status) status = apply(t, sums, out, err);
    for (int i = 0; sums && i < n; i++) ht_array_free(sums[i]);
    free(sums);
    if (status) return status;
    t->iter++;
    status = count_failures(t, out, err);
    out->total_skipped = t->skipped;
    return status;
}

/* ---- evaluation ---- */

/* Adds the vectors of a batch's texts to the ranking and returns their losses; NULL on failure. */
static ht_array *rank_batch(const ht_trainer *t, ht_scope *s, const ht_train_batch *batch, const ht_adapters *adapters,
                            ht_held_out *ranking, ht_status *status, ht_error *err) {
    ht_array *vectors = ht_model_vectors(s, t->m, batch, adapters, false);
    *status = ht_scope_status(s, err);
    if (*status) return NULL;
    const int64_t hidden = ht_array_dim(vectors, 1);
    const size_t bytes = (size_t)(batch->n_seq * hidden) * sizeof(float);
    float *values = malloc(bytes);
    *status = values ? ht_array_read(s, vectors, values, bytes, err) : ht_fail_memory(err, bytes, "an evaluation");
    if (!*status) *status = ht_held_out_add(ranking, batch, values, hidden, err);
    free(values);
    return *status ? NULL : ht_contrast_losses(s, batch, vectors);
}

static ht_status evaluate_batch(const ht_trainer *t, const ht_train_batch *batch, ht_held_out *ranking, double *sum,
                                ht_error *err) {
    ht_scope *s = ht_scope_new(t->m->stream);
    if (!s) return ht_fail_memory(err, sizeof *s, "an evaluation");
    const ht_adapters adapters = ht_trainable_adapters(t->trainable, HT_NONE);
    double loss = 0;
    ht_array *losses = NULL;
    ht_status status = ht_model_loss_check(t->m, batch, err);
    if (!status && ranking)
        losses = rank_batch(t, s, batch, &adapters, ranking, &status, err);
    else if (!status)
        losses = ht_model_loss_rows(s, t->m, batch, &adapters, false);
    if (!status) status = ht_scope_status(s, err);
    if (!status) status = read_scalar(s, ht_sum(s, losses, NULL, 0, false), &loss, err);
    *sum += loss;
    ht_scope_free(s);
    return status;
}

static ht_status evaluate_batches(const ht_trainer *t, ht_held_out *ranking, double *loss, ht_error *err) {
    double sum = 0;
    int64_t n = 0;
    for (int64_t i = 0; i < t->held_out_batches; i++) {
        ht_train_batch batch;
        if (ht_cancel_requested(t->o.cancel)) return ht_fail(err, HT_ERR_CANCELLED, "an evaluation was cancelled");
        ht_status status = ht_batches_get(t->valid.batches, i, &batch, err);
        if (!status) status = evaluate_batch(t, &batch, ranking, &sum, err);
        if (status) return status;
        n += batch.n_learned;
    }
    *loss = sum / (double)n;
    return HT_OK;
}

ht_status ht_trainer_evaluate(ht_trainer *t, double *loss, ht_error *err) {
    ht_held_out *ranking = NULL;
    ht_retrieval retrieval = {0};
    *loss = 0;
    if (!t->valid.data) return ht_fail(err, HT_ERR_ARGUMENT, "there are no held-out samples to evaluate on");
    ht_status status = t->o.method == HT_METHOD_EMBED ? ht_held_out_new(&ranking, err) : HT_OK;
    if (!status) status = evaluate_batches(t, ranking, loss, err);
    if (!status && ranking) status = ht_held_out_measure(ranking, t->m->stream, &retrieval, err);
    ht_held_out_free(ranking);
    if (!status) t->retrieval = retrieval;
    return status;
}

void ht_trainer_retrieval(const ht_trainer *t, ht_retrieval *out) { *out = t->retrieval; }

/* ---- what there is now ---- */

ht_status ht_trainer_adapter(const ht_trainer *t, ht_adapter **out, ht_error *err) {
    ht_status status = ht_trainable_adapter(t->trainable, out, err);
    if (!status) (*out)->origin.embeds = t->o.method == HT_METHOD_EMBED;
    return status;
}

ht_status ht_trainer_sample(const ht_trainer *t, int64_t i, ht_train_piece_fn *fn, void *user, ht_error *err) {
    if (i < 0 || i >= ht_data_length(t->train.data))
        return ht_fail(err, HT_ERR_ARGUMENT, "sample %lld of %lld", (long long)i,
                       (long long)ht_data_length(t->train.data));
    return ht_sample_pieces(t->m, ht_data_sample(t->train.data, i), fn, user, err);
}
