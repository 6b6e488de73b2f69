#include "train/data.h"

#include "base/checked.h"
#include "base/error.h"
#include "base/file.h"
#include "base/grow.h"
#include "base/plural.h"
#include "base/text.h"
#include "models/model.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { CHUNK_BYTES = 1 << 20, LINE_BYTES_MAX = 64 << 20, PROGRESS_LINES = 64 };

typedef struct kept_sample {
    ht_sample sample;
    int64_t line; /* of the file, from 1 */
} kept_sample;

struct ht_data {
    ht_model *model;
    ht_data_options o;
    kept_sample *samples; /* [report.n_samples] */
    ht_data_report report;
};

/* ---- lines ---- */

/* Reads a file line by line. Lines end with LF or CRLF; a byte order mark and blank lines are skipped. */
typedef struct line_reader {
    ht_file *file;
    char *chunk;       /* [CHUNK_BYTES] of the file */
    size_t at, n;      /* bytes of the chunk consumed, and bytes in it */
    size_t end;        /* offset of the chunk's end in the file */
    int64_t number;    /* of the line, from 1 */
    ht_text line;      /* without its LF; empty when it is too long */
    size_t line_bytes; /* also when it is too long */
} line_reader;

static ht_status open_lines(const char *path, line_reader *r, ht_error *err) {
    ht_status status = ht_file_open(path, &r->file, err);
    if (!status && !(r->chunk = malloc(CHUNK_BYTES))) status = ht_fail_memory(err, CHUNK_BYTES, path);
    return status;
}

static void close_lines(line_reader *r) {
    ht_file_close(r->file);
    free(r->chunk);
    ht_text_discard(&r->line);
}

static ht_status read_chunk(line_reader *r, ht_error *err) {
    static const char mark[] = "\xEF\xBB\xBF";
    const size_t begin = r->end;
    r->at = 0;
    r->n = ht_min_size(CHUNK_BYTES, r->file->size - begin);
    r->end += r->n;
    ht_status status = ht_file_read_at(r->file, begin, r->chunk, r->n, err);
    if (status || begin) return status;
    if (r->n >= strlen(mark) && memcmp(r->chunk, mark, strlen(mark)) == 0) r->at = strlen(mark);
    return ht_is_lfs_pointer(r->chunk, r->n) ? ht_fail(err, HT_ERR_FORMAT, "%s: %s", r->file->path, HT_LFS_POINTER)
                                             : HT_OK;
}

static bool is_blank(const ht_text *line) { return !line->len || strspn(line->data, " \t\r") == line->len; }

/* Reads a line, which may be blank; *found is false at the end of the file. */
static ht_status read_line(line_reader *r, bool *found, ht_error *err) {
    bool ended = false;
    ht_text_clear(&r->line);
    r->line_bytes = 0;
    while (!ended && (r->at < r->n || r->end < r->file->size)) {
        const ht_status status = r->at == r->n ? read_chunk(r, err) : HT_OK;
        if (status) return status;
        const char *from = r->chunk + r->at, *newline = memchr(from, '\n', r->n - r->at);
        const size_t n = newline ? (size_t)(newline - from) : r->n - r->at;
        ended = newline != NULL;
        r->at += n + ended;
        r->line_bytes += n;
        if (r->line_bytes <= LINE_BYTES_MAX) ht_text_append(&r->line, from, n);
    }
    if (r->line.failed) return ht_fail_memory(err, r->line_bytes, r->file->path);
    *found = ended || r->line_bytes;
    r->number++;
    if (*found && r->number > INT32_MAX)
        return ht_fail(err, HT_ERR_LIMIT, "%s: has more than %d lines; split it", r->file->path, INT32_MAX);
    return HT_OK;
}

/* Puts file and line number before the message of a failure; returns `status`. */
static ht_status fail_line(const line_reader *r, ht_status status, ht_error *err) {
    return ht_fail_in(err, status, "%s: line %lld", r->file->path, (long long)r->number);
}

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

/* ---- samples ---- */

/* Takes the sample. */
static ht_status keep(ht_data *d, ht_sample *s, int64_t line, ht_error *err) {
    const size_t n = (size_t)d->report.n_samples;
    if (!HT_GROW_ONE(d->samples, n))
        return ht_fail_memory(err, (n + 1) * sizeof *d->samples, "the samples of a data set");
    count_kept(&d->report, s, line);
    d->samples[n] = (kept_sample){*s, line};
    *s = (ht_sample){0};
    return HT_OK;
}

static ht_status take_sample(ht_data *d, const line_reader *r, ht_sample *s, ht_error *err) {
    ht_data_report *report = &d->report;
    const int32_t n = ht_sample_length(s);
    if (n > report->max_length) {
        if (d->o.long_samples == HT_LONG_REFUSE) {
            ht_fail(
                err, HT_ERR_LIMIT,
                "%s has %d token%s, at most %lld are taken; allow more, or choose to drop or to truncate such samples",
                s->begin ? "a text" : "it", n, ht_plural(n), (long long)report->max_length);
            return fail_line(r, HT_ERR_LIMIT, err);
        }
        if (d->o.long_samples == HT_LONG_DROP) {
            count(&report->too_long, r->number);
            return HT_OK;
        }
        ht_sample_truncate(d->model, s, (int32_t)report->max_length);
    }
    if (s->n_learned) return keep(d, s, r->number, err);
    count(&report->unlearned, r->number);
    return HT_OK;
}

/* Failures caused by the line; others would recur or say nothing about the line. */
static bool is_of_line(ht_status status) {
    return status == HT_ERR_FORMAT || status == HT_ERR_ARGUMENT || status == HT_ERR_UNSUPPORTED ||
           status == HT_ERR_LIMIT;
}

static ht_status read_sample(ht_data *d, const line_reader *r, ht_sample *out, ht_error *err) {
    const ht_sample_options o = {
        .method = d->o.method, .mask = d->o.mask, .time = d->report.time, .path = r->file->path, .line = r->number};
    if (r->line_bytes > LINE_BYTES_MAX) {
        ht_fail(err, HT_ERR_LIMIT, "it has %zu bytes, at most %d are read", r->line_bytes, LINE_BYTES_MAX);
        return fail_line(r, HT_ERR_LIMIT, err);
    }
    d->report.fingerprint = mix(d->report.fingerprint, r->line.data, r->line.len);
    return ht_sample_read(d->model, r->line.data, r->line.len, &o, out, err);
}

static ht_status take_line(ht_data *d, const line_reader *r, ht_error *err) {
    ht_error why = {0};
    ht_sample s = {0};
    ht_status status = read_sample(d, r, &s, &why);
    if (!status) {
        status = take_sample(d, r, &s, err);
        ht_sample_free(&s);
        return status;
    }
    if (!d->o.skip_bad || !is_of_line(status)) return ht_fail(err, status, "%s", why.message);
    if (!d->report.bad.n) d->report.first_bad = why;
    count(&d->report.bad, r->number);
    return HT_OK;
}

static ht_status take_lines(ht_data *d, line_reader *r, ht_error *err) {
    ht_status status = HT_OK;
    for (bool found = true; !status;) {
        status = read_line(r, &found, err);
        if (status || !found) break;
        if (r->line_bytes <= LINE_BYTES_MAX && is_blank(&r->line)) continue;
        if (ht_cancel_requested(d->o.cancel))
            return ht_fail(err, HT_ERR_CANCELLED, "%s: reading was cancelled at line %lld", r->file->path,
                           (long long)r->number);
        status = take_line(d, r, err);
        if (++d->report.n_lines % PROGRESS_LINES == 0 && d->o.progress)
            d->o.progress((double)(r->end - r->n + r->at) / (double)r->file->size, d->o.user);
    }
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
    return HT_OK;
}

static ht_status check_any_left(const ht_data *d, const char *path, ht_error *err) {
    const ht_data_report *r = &d->report;
    if (r->n_samples) return HT_OK;
    if (!r->n_lines) return ht_fail(err, HT_ERR_FORMAT, "%s: is empty, expected a JSON object on each line", path);
    return ht_fail(err, HT_ERR_FORMAT,
                   "%s: no sample is left of %lld line%s: %lld are bad%s%s, %lld have more than %lld token%s, %lld "
                   "have no token to learn",
                   path, (long long)r->n_lines, ht_plural(r->n_lines), (long long)r->bad.n, r->bad.n ? " such as " : "",
                   r->first_bad.message, (long long)r->too_long.n, (long long)r->max_length, ht_plural(r->max_length),
                   (long long)r->unlearned.n);
}

ht_status ht_data_open(ht_model *m, const char *path, const ht_data_options *options, ht_data **out, ht_error *err) {
    *out = NULL;
    ht_data *d = calloc(1, sizeof *d);
    if (!d) return ht_fail_memory(err, sizeof *d, path);
    d->model = ht_model_retain(m);
    d->o = *options;
    ht_status status = check_options(d, err);
    line_reader lines = {0};
    if (!status) status = open_lines(path, &lines, err);
    if (!status) status = take_lines(d, &lines, err);
    if (!status) status = check_any_left(d, path, err);
    close_lines(&lines);
    if (status)
        ht_data_free(d);
    else
        *out = d;
    return status;
}

void ht_data_free(ht_data *d) {
    if (!d) return;
    for (int64_t i = 0; i < d->report.n_samples; i++) ht_sample_free(&d->samples[i].sample);
    ht_model_free(d->model);
    free(d->samples);
    free(d);
}

const ht_data_report *ht_data_get_report(const ht_data *d) { return &d->report; }
int64_t ht_data_length(const ht_data *d) { return d->report.n_samples; }
const ht_sample *ht_data_sample(const ht_data *d, int64_t i) { return &d->samples[i].sample; }
int64_t ht_data_line(const ht_data *d, int64_t i) { return d->samples[i].line; }
