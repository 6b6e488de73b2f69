#include "train/data.h"

#include "base/checked.h"
#include "base/error.h"
#include "base/grow.h"
#include "base/plural.h"
#include "models/model.h"
#include "train/jsonl.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { PROGRESS_LINES = 64 };

typedef struct kept_sample {
    uint32_t line; /* index into the file's lines */
    int32_t n;     /* tokens */
} kept_sample;

struct ht_data {
    ht_model *model;
    ht_jsonl *file;
    ht_data_options o;
    ht_sample_options reading;
    kept_sample *samples; /* [report.n_samples] */
    ht_data_report report;
};

/* ---- report ---- */

static void count(ht_data_count *c, int64_t line) {
    if (c->n < HT_DATA_LINES_NAMED) c->line[c->n] = line;
    c->n++;
}

static void count_kept(ht_data_report *r, const ht_sample *s, int64_t line) {
    r->n_samples++;
    r->n_form[s->form]++;
    r->n_tokens += s->n;
    r->n_learned += s->n_learned;
    if (s->n > r->longest) r->longest = s->n;
    int bin = 0;
    while (s->n >> (bin + 1)) bin++;
    r->length[bin]++;
    if (s->truncated) count(&r->truncated, line);
    if (!s->learns_stop) count(&r->stopless, line);
    if (s->prompt_differs) count(&r->prompt_differs, line);
    if (s->history_differs) count(&r->history_differs, line);
    if (s->answer_lost) count(&r->answer_lost, line);
}

static uint64_t mix(uint64_t h, const char *bytes, size_t n) {
    h = (h ^ n) * 0x9E3779B97F4A7C15u;
    while (n) {
        uint64_t word = 0;
        const size_t some = ht_min_size(n, sizeof word);
        for (size_t i = 0; i < some; i++) word |= (uint64_t)(unsigned char)bytes[i] << 8 * i;
        h = (h ^ word) * 0xBF58476D1CE4E5B9u;
        h ^= h >> 32;
        bytes += some;
        n -= some;
    }
    return h;
}

/* ---- lines ---- */

static ht_status keep(ht_data *d, size_t i, const ht_sample *s, ht_error *err) {
    const size_t n = (size_t)d->report.n_samples;
    if (!HT_GROW_ONE(d->samples, n))
        return ht_fail_memory(err, (n + 1) * sizeof *d->samples, "the samples of a data set");
    d->samples[n] = (kept_sample){(uint32_t)i, s->n};
    count_kept(&d->report, s, ht_jsonl_number(d->file, i));
    return HT_OK;
}

static ht_status take_sample(ht_data *d, size_t i, ht_sample *s, ht_error *err) {
    ht_data_report *r = &d->report;
    const int64_t line = ht_jsonl_number(d->file, i);
    if (s->n > r->max_length) {
        if (d->o.long_samples == HT_LONG_REFUSE) {
            ht_fail(
                err, HT_ERR_LIMIT,
                "it has %d token%s, at most %lld are taken; allow more, or choose to drop or to truncate such samples",
                s->n, ht_plural(s->n), (long long)r->max_length);
            return ht_jsonl_fail(d->file, i, HT_ERR_LIMIT, err);
        }
        if (d->o.long_samples == HT_LONG_DROP) {
            count(&r->too_long, line);
            return HT_OK;
        }
        ht_sample_truncate(d->model, s, (int32_t)r->max_length);
    }
    if (s->n_learned) return keep(d, i, s, err);
    count(&r->unlearned, line);
    return HT_OK;
}

/* Failures that are the line's own; others would come again, or say nothing of the line. */
static bool is_of_line(ht_status status) {
    return status == HT_ERR_FORMAT || status == HT_ERR_ARGUMENT || status == HT_ERR_UNSUPPORTED ||
           status == HT_ERR_LIMIT;
}

static ht_status read_sample(const ht_data *d, size_t i, const ht_text *line, ht_sample *out, ht_error *err) {
    ht_sample_options o = d->reading;
    o.path = ht_jsonl_path(d->file);
    o.line = ht_jsonl_number(d->file, i);
    return ht_sample_read(d->model, line->data, line->len, &o, out, err);
}

static ht_status take_line(ht_data *d, size_t i, ht_text *line, ht_error *err) {
    ht_error why = {0};
    ht_sample s = {0};
    ht_status status = ht_jsonl_read(d->file, i, line, &why);
    if (!status) {
        d->report.fingerprint = mix(d->report.fingerprint, line->data, line->len);
        status = read_sample(d, i, line, &s, &why);
    }
    if (!status) {
        status = take_sample(d, i, &s, err);
        ht_sample_free(&s);
        return status;
    }
    if (!d->o.skip_bad || !is_of_line(status)) return ht_fail(err, status, "%s", why.message);
    if (!d->report.bad.n) d->report.first_bad = why;
    count(&d->report.bad, ht_jsonl_number(d->file, i));
    return HT_OK;
}

static ht_status take_lines(ht_data *d, ht_error *err) {
    const size_t n = ht_jsonl_length(d->file);
    ht_text line = {0};
    ht_status status = HT_OK;
    d->report.n_lines = (int64_t)n;
    for (size_t i = 0; i < n && !status; i++) {
        if (ht_cancel_requested(d->o.cancel))
            status = ht_fail(err, HT_ERR_CANCELLED, "%s: reading was cancelled at line %lld", ht_jsonl_path(d->file),
                             (long long)ht_jsonl_number(d->file, i));
        else
            status = take_line(d, i, &line, err);
        if (d->o.progress && (i + 1) % PROGRESS_LINES == 0) d->o.progress((double)(i + 1) / (double)n, d->o.user);
    }
    ht_text_discard(&line);
    return status;
}

/* ---- opening ---- */

static ht_status check_options(ht_data *d, ht_error *err) {
    const ht_data_options *o = &d->o;
    if (o->max_length < 0 || o->max_length == 1)
        return ht_fail(err, HT_ERR_ARGUMENT, "samples of at most %lld tokens, expected 2 or more",
                       (long long)o->max_length);
    if (o->mask < HT_MASK_ANSWERS || o->mask > HT_MASK_NONE || o->long_samples < HT_LONG_DROP ||
        o->long_samples > HT_LONG_REFUSE)
        return ht_fail(err, HT_ERR_ARGUMENT, "the mask %d and the choice %d for long samples: one of them is unknown",
                       (int)o->mask, (int)o->long_samples);
    int64_t longest = o->max_length ? o->max_length : HT_DATA_LENGTH_DEFAULT;
    longest = ht_min_i64(longest, d->model->context);
    d->report.max_length = ht_min_i64(longest, INT32_MAX);
    d->report.time = o->time ? o->time : (int64_t)time(NULL);
    d->reading = (ht_sample_options){.mask = o->mask, .time = d->report.time};
    return HT_OK;
}

static ht_status check_any_left(const ht_data *d, ht_error *err) {
    const ht_data_report *r = &d->report;
    if (r->n_samples) return HT_OK;
    if (!r->n_lines)
        return ht_fail(err, HT_ERR_FORMAT, "%s: is empty, expected a JSON object on each line", ht_jsonl_path(d->file));
    return ht_fail(err, HT_ERR_FORMAT,
                   "%s: no sample is left of %lld line%s: %lld are bad%s%s, %lld have more than %lld token%s, %lld "
                   "have no token to learn",
                   ht_jsonl_path(d->file), (long long)r->n_lines, ht_plural(r->n_lines), (long long)r->bad.n,
                   r->bad.n ? " such as " : "", r->first_bad.message, (long long)r->too_long.n,
                   (long long)r->max_length, ht_plural(r->max_length), (long long)r->unlearned.n);
}

ht_status ht_data_open(ht_model *m, const char *path, const ht_data_options *options, ht_data **out, ht_error *err) {
    *out = NULL;
    ht_data *d = calloc(1, sizeof *d);
    if (!d) return ht_fail_memory(err, sizeof *d, path);
    d->model = ht_model_retain(m);
    d->o = *options;
    ht_status status = check_options(d, err);
    if (!status) status = ht_jsonl_open(path, &d->file, err);
    if (!status) status = take_lines(d, err);
    if (!status) status = check_any_left(d, err);
    d->o.cancel = NULL;
    if (status)
        ht_data_free(d);
    else
        *out = d;
    return status;
}

void ht_data_free(ht_data *d) {
    if (!d) return;
    ht_jsonl_close(d->file);
    ht_model_free(d->model);
    free(d->samples);
    free(d);
}

/* ---- samples ---- */

const ht_data_report *ht_data_get_report(const ht_data *d) { return &d->report; }
int64_t ht_data_length(const ht_data *d) { return d->report.n_samples; }
int32_t ht_data_tokens(const ht_data *d, int64_t i) { return d->samples[i].n; }
int64_t ht_data_line(const ht_data *d, int64_t i) { return ht_jsonl_number(d->file, d->samples[i].line); }

ht_status ht_data_sample(const ht_data *d, int64_t i, ht_sample *out, ht_error *err) {
    *out = (ht_sample){0};
    if (i < 0 || i >= d->report.n_samples)
        return ht_fail(err, HT_ERR_ARGUMENT, "sample %lld of %lld", (long long)i, (long long)d->report.n_samples);
    const kept_sample *kept = &d->samples[i];
    ht_text line = {0};
    ht_status status = ht_jsonl_read(d->file, kept->line, &line, err);
    if (!status) {
        status = read_sample(d, kept->line, &line, out, err);
    }
    ht_text_discard(&line);
    if (status) return status;
    ht_sample_truncate(d->model, out, (int32_t)d->report.max_length);
    if (out->n == kept->n) return HT_OK;
    ht_fail(err, HT_ERR_INTERNAL, "it has %d token%s, and had %d when the data was checked", out->n, ht_plural(out->n),
            kept->n);
    ht_sample_free(out);
    return ht_jsonl_fail(d->file, kept->line, HT_ERR_INTERNAL, err);
}
