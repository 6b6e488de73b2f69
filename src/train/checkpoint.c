/* Checkpoints of a trainer: parameters, moments, counters and options in one safetensors file, with a checksum. */
#include "array/array.h"
#include "base/digest.h"
#include "base/error.h"
#include "base/plural.h"
#include "formats/json.h"
#include "train/trainer.h"

#include <hearth/io.h>
#include <hearth/ops.h>

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { VALUE_SIZE = 64, MOST_ENTRIES = 48 };

/* One entry of the file's metadata. */
typedef struct entry {
    const char *key;
    char value[VALUE_SIZE];
} entry;

typedef struct entries {
    entry at[MOST_ENTRIES];
    int n;
} entries;

HT_PRINTF(3, 4)
static void add(entries *e, const char *key, const char *format, ...) {
    entry *to = &e->at[e->n++];
    va_list values;
    va_start(values, format);
    (void)vsnprintf(to->value, sizeof to->value, format, values);
    va_end(values);
    to->key = key;
}

static void add_number(entries *e, const char *key, double value) { add(e, key, "%.17g", value); }

static int64_t rank_of(const ht_adapter_pair *pair) { return ht_array_dim(pair->a, ht_array_n_dims(pair->a) - 2); }

/* Adds the rank and scale of all pairs if they are equal, else a digest. */
static void describe_pairs(const ht_trainer *t, entries *e) {
    const ht_trainable *p = t->trainable;
    const ht_adapter_pair *first = &p->pair[0];
    ht_digest d = {0x13198a2e03707344u, 0xa4093822299f31d0u};
    bool alike = true;
    for (int i = 0; i < p->n; i++) {
        const ht_adapter_pair *pair = &p->pair[i];
        const int64_t rank = rank_of(pair);
        alike = alike && rank == rank_of(first) && pair->scale == first->scale;
        ht_digest_word(&d, (uint64_t)rank);
        ht_digest_bytes(&d, &pair->scale, sizeof pair->scale);
    }
    if (alike) {
        add(e, "rank", "%" PRId64, rank_of(first));
        add(e, "scale", "%.9g", (double)first->scale);
    } else
        add(e, "rank", "%016" PRIx64 "%016" PRIx64, d.a, d.b);
}

/* Settings that must match to resume a run. */
static void describe_run(const ht_trainer *t, entries *e) {
    const ht_trainer_options *o = &t->o;
    const ht_data_report *data = ht_data_get_report(t->train.data);
    const ht_optimizer_options *rule = ht_optimizer_get_options(t->optimizer);
    add(e, "format", "hearth-training-1");
    add(e, "model", "%s", t->model);
    add(e, "template", "%s", t->template);
    add(e, "precision", "%d", (int)t->m->precision);
    add(e, "data", "%016" PRIx64, data->fingerprint);
    if (o->method == HT_METHOD_EMBED) {
        add(e, "method", "embed");
        add_number(e, "temperature", o->temperature);
    }
    add(e, "mask", "%d", (int)o->mask);
    add(e, "long", "%d", (int)o->long_samples);
    add(e, "max_length", "%" PRId64, data->max_length);
    add(e, "batch", "%d", (int)o->batch);
    add(e, "accumulate", "%d", (int)o->accumulate);
    add(e, "pack", "%d", o->pack);
    add(e, "in_order", "%d", o->in_order);
    add(e, "seed", "%" PRIu64, o->seed);
    add(e, "schedule", "%d", (int)o->schedule);
    if (o->schedule != HT_SCHEDULE_CONSTANT) add(e, "iters", "%" PRId64, t->iters);
    add(e, "warmup", "%" PRId64, o->warmup);
    add_number(e, "lr", o->learning_rate);
    add_number(e, "clip", o->clip);
    add(e, "optimizer", "%d", (int)rule->kind);
    add_number(e, "beta1", rule->beta1);
    add_number(e, "beta2", rule->beta2);
    add_number(e, "eps", rule->eps);
    add_number(e, "momentum", rule->momentum);
    add_number(e, "weight_decay", rule->weight_decay);
    add_number(e, "dropout", t->dropout);
    add(e, "dtype", "%s", ht_dtype_name(t->dtype));
    describe_pairs(t, e);
}

/* Counts of the samples; they depend on the time passed to templates. */
static void describe_samples(const ht_trainer *t, entries *e) {
    const ht_data_report *data = ht_data_get_report(t->train.data);
    add(e, "samples", "%" PRId64, data->n_samples);
    add(e, "tokens", "%" PRId64, data->n_tokens);
    add(e, "learned_tokens", "%" PRId64, data->n_learned);
}

static void describe_state(const ht_trainer *t, int64_t optimizer_step, entries *e) {
    add(e, "iter", "%" PRId64, t->iter);
    add(e, "skipped", "%" PRId64, t->skipped);
    add(e, "skipped_in_a_row", "%" PRId64, t->skipped_in_a_row);
    add(e, "optimizer_step", "%" PRId64, optimizer_step);
    add(e, "time", "%" PRId64, t->time);
}

/* ---- arrays: parameters, then the optimiser's moments of each, by name ---- */

typedef struct tensors {
    int n;
    char **name;
    ht_array **array;
} tensors;

static void free_tensors(tensors *x) {
    for (int i = 0; x->name && i < x->n; i++) free(x->name[i]);
    free(x->name);
    free(x->array);
}

/* Names of n_moments further arrays after the parameters, a whole list of parameters at a time. */
static ht_status name_tensors(const ht_trainer *t, int n_moments, tensors *out, ht_error *err) {
    const int n = ht_trainable_count(t->trainable);
    static const char *const kinds[] = {"", "moment1.", "moment2."};
    *out = (tensors){.n = n + n_moments};
    out->name = calloc((size_t)out->n + 1, sizeof(char *));
    out->array = calloc((size_t)out->n + 1, sizeof(ht_array *));
    bool ok = out->name && out->array;
    for (int i = 0; ok && i < out->n; i++) {
        const char *name = ht_trainable_name(t->trainable, i % n);
        const size_t size = strlen(name) + 16;
        out->name[i] = malloc(size);
        ok = out->name[i] != NULL;
        if (ok) (void)snprintf(out->name[i], size, "%s%s", kinds[i / n], name);
    }
    if (ok) return HT_OK;
    free_tensors(out);
    *out = (tensors){0};
    return ht_fail_memory(err, (size_t)(n + n_moments) * sizeof(char *), "a checkpoint");
}

/* Over all entries and all values. */
static ht_status find_checksum(ht_scope *s, const entries *e, const tensors *x, char out[VALUE_SIZE], ht_error *err) {
    ht_digest d = {0x243f6a8885a308d3u, 0x13198a2e03707344u};
    for (int i = 0; i < e->n; i++) {
        ht_digest_text(&d, e->at[i].key);
        ht_digest_text(&d, e->at[i].value);
    }
    for (int i = 0; i < x->n; i++) {
        const void *data;
        void *copy;
        ht_status status = ht_array_borrow(s, x->array[i], &data, &copy, err);
        if (status) return status;
        ht_digest_text(&d, x->name[i]);
        ht_digest_bytes(&d, data, (size_t)ht_array_size(x->array[i]) * ht_dtype_bytes(ht_array_dtype(x->array[i])));
        free(copy);
    }
    (void)snprintf(out, VALUE_SIZE, "%016" PRIx64 "%016" PRIx64, d.a, d.b);
    return HT_OK;
}

/* ---- saving ---- */

ht_status ht_trainer_save(const ht_trainer *t, const char *path, ht_error *err) {
    const int n = ht_trainable_count(t->trainable);
    int64_t optimizer_step;
    ht_array *const *moments;
    const int n_moments = ht_optimizer_state(t->optimizer, &optimizer_step, &moments);
    tensors x;
    ht_status status = name_tensors(t, n_moments, &x, err);
    if (status) return status;
    ht_trainable_list(t->trainable, x.array);
    if (n_moments) memcpy(x.array + n, moments, (size_t)n_moments * sizeof *moments);
    entries e = {.n = 0};
    describe_run(t, &e);
    describe_samples(t, &e);
    describe_state(t, optimizer_step, &e);
    char checksum[VALUE_SIZE];
    ht_metadata_pair pairs[MOST_ENTRIES + 1];
    ht_scope *s = ht_scope_new(t->m->stream);
    if (!s) status = ht_fail_memory(err, sizeof *s, "a checkpoint");
    if (!status) status = find_checksum(s, &e, &x, checksum, err);
    for (int i = 0; i < e.n; i++) pairs[i] = (ht_metadata_pair){e.at[i].key, e.at[i].value};
    pairs[e.n] = (ht_metadata_pair){"checksum", checksum};
    if (!status) status = ht_safetensors_save(s, path, (const char *const *)x.name, x.array, x.n, pairs, e.n + 1, err);
    ht_scope_free(s);
    free_tensors(&x);
    return status;
}

/* ---- going on ---- */

typedef struct saved {
    const char *path;
    ht_array_file *file;
    ht_json *metadata;
    int64_t iter, skipped, skipped_in_a_row, optimizer_step, time;
} saved;

static const char *entry_of(const saved *f, const char *key) {
    return ht_json_string_value(ht_json_object_get(f->metadata, key));
}

static ht_status no_checkpoint(const saved *f, const char *why, ht_error *err) {
    return ht_fail(err, HT_ERR_FORMAT, "%s is no whole checkpoint of training: %s", f->path, why);
}

static bool read_count(const saved *f, const char *key, int64_t least, int64_t *out) {
    const char *text = entry_of(f, key);
    char *end;
    if (!text || !*text) return false;
    *out = strtoll(text, &end, 10);
    return !*end && *out >= least;
}

static ht_status open_saved(const char *path, saved *f, ht_error *err) {
    *f = (saved){.path = path};
    ht_status status = ht_array_file_open(path, &f->file, err);
    if (status) return status;
    const char *text = ht_array_file_metadata(f->file);
    status = ht_json_parse(text, strlen(text), path, &f->metadata, err);
    if (status) return status;
    const char *format = entry_of(f, "format");
    if (!format || strncmp(format, "hearth-training-", 16) != 0)
        return no_checkpoint(f, "it does not say that it is one", err);
    if (!read_count(f, "iter", 0, &f->iter) || !read_count(f, "skipped", 0, &f->skipped) ||
        !read_count(f, "skipped_in_a_row", 0, &f->skipped_in_a_row) ||
        !read_count(f, "optimizer_step", 0, &f->optimizer_step) || !read_count(f, "time", INT64_MIN, &f->time))
        return no_checkpoint(f, "a counter is missing or no number", err);
    return HT_OK;
}

static void close_saved(saved *f) {
    ht_json_decref(f->metadata);
    ht_array_file_free(f->file);
}

/* Whether the entries of this run are those of the file. */
static ht_status compare(const entries *e, const saved *f, ht_error *err) {
    for (int i = 0; i < e->n; i++) {
        const char *was = entry_of(f, e->at[i].key);
        if (was && !strcmp(was, e->at[i].value)) continue;
        if (!strcmp(e->at[i].key, "data"))
            return ht_fail(err, HT_ERR_ARGUMENT, "%s was saved while training on other data: its lines have changed",
                           f->path);
        if (!strcmp(e->at[i].key, "model") || !strcmp(e->at[i].key, "template"))
            return ht_fail(err, HT_ERR_ARGUMENT,
                           "%s was saved while training another model, or another chat template of it", f->path);
        return ht_fail(err, HT_ERR_ARGUMENT, "%s was saved with %s %s, this run has %s; go on with the same options",
                       f->path, e->at[i].key, was ? was : "unset", e->at[i].value);
    }
    return HT_OK;
}

static ht_status compare_run(const ht_trainer *t, const saved *f, ht_error *err) {
    entries e = {.n = 0};
    describe_run(t, &e);
    ht_status status = compare(&e, f, err);
    if (status) return status;
    if (f->iter > t->iters)
        return ht_fail(err, HT_ERR_ARGUMENT, "%s was saved after %lld step%s, this run has %lld", f->path,
                       (long long)f->iter, ht_plural(f->iter), (long long)t->iters);
    return HT_OK;
}

static ht_status read_tensors(const ht_trainer *t, const saved *f, ht_scope *s, tensors *x, ht_error *err) {
    const int n = ht_trainable_count(t->trainable), in_file = (int)ht_array_file_count(f->file);
    if (in_file < n || in_file % n || in_file > 3 * n)
        return ht_fail(err, HT_ERR_ARGUMENT, "%s has %d arrays, of an adapter of %d; it was saved with other targets",
                       f->path, in_file, n);
    ht_status status = name_tensors(t, in_file - n, x, err);
    for (int i = 0; !status && i < in_file; i++) {
        const char *name = ht_array_file_name(f->file, (size_t)i);
        int at = 0;
        while (at < x->n && strcmp(x->name[at], name) != 0) at++;
        if (at == x->n || x->array[at])
            return ht_fail(err, HT_ERR_ARGUMENT, "%s has an array `%s`: it was saved with other targets", f->path,
                           name);
        x->array[at] = ht_array_file_read(s, f->file, (size_t)i);
        status = ht_scope_status(s, err);
    }
    return status ? status : ht_array_eval(s, x->array, x->n, err);
}

static ht_status check_checksum(const ht_trainer *t, const saved *f, ht_scope *s, const tensors *x, ht_error *err) {
    entries e = {.n = 0};
    char checksum[VALUE_SIZE];
    ht_trainer as_saved = *t;
    as_saved.iter = f->iter;
    as_saved.skipped = f->skipped;
    as_saved.skipped_in_a_row = f->skipped_in_a_row;
    describe_run(&as_saved, &e);
    describe_samples(&as_saved, &e);
    describe_state(&as_saved, f->optimizer_step, &e);
    ht_status status = find_checksum(s, &e, x, checksum, err);
    if (status) return status;
    const char *said = entry_of(f, "checksum");
    return said && !strcmp(said, checksum) ? HT_OK : no_checkpoint(f, "its checksum is not that of its values", err);
}

static ht_status take_over(ht_trainer *t, const saved *f, ht_scope *s, const tensors *x, ht_error *err) {
    const int n = ht_trainable_count(t->trainable);
    ht_array **old = calloc((size_t)n, sizeof *old);
    if (!old) return ht_fail_memory(err, (size_t)n * sizeof *old, "a checkpoint");
    for (int i = 0; i < n; i++) old[i] = ht_array_retain(ht_trainable_get(t->trainable, i));
    ht_status status = ht_trainable_set(t->trainable, x->array, err);
    if (!status) {
        status = ht_optimizer_set_state(t->optimizer, s, f->optimizer_step, x->array + n, x->n - n, err);
        if (status) (void)ht_trainable_set(t->trainable, old, NULL);
    }
    for (int i = 0; i < n; i++) ht_array_free(old[i]);
    free(old);
    if (status) return status;
    t->iter = f->iter;
    t->skipped = f->skipped;
    t->skipped_in_a_row = f->skipped_in_a_row;
    return HT_OK;
}

ht_status ht_trainer_resume(ht_trainer *t, const char *path, ht_error *err) {
    saved f;
    tensors x = {0};
    ht_scope *s = NULL;
    ht_status status = open_saved(path, &f, err);
    const int64_t time = t->time;
    if (!status) status = ht_trainer_set_time(t, f.time, err); /* the number of steps may depend on it */
    if (!status) status = compare_run(t, &f, err);
    if (!status) {
        entries e = {.n = 0};
        describe_samples(t, &e);
        status = compare(&e, &f, err);
    }
    if (!status && !(s = ht_scope_new(t->m->stream))) status = ht_fail_memory(err, sizeof *s, "a checkpoint");
    if (!status) status = read_tensors(t, &f, s, &x, err);
    if (!status) status = check_checksum(t, &f, s, &x, err);
    if (!status) status = take_over(t, &f, s, &x, err);
    if (status) (void)ht_trainer_set_time(t, time, NULL);
    free_tensors(&x);
    ht_scope_free(s);
    close_saved(&f);
    return status;
}
