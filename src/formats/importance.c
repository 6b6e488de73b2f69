/* Importance weights: the table of rows and their names, means, and sums of tables; its readers and its writer. Source of both
 * layouts: llama.cpp's tools/imatrix.
 *
 * GGUF: general.type "imatrix", and for each matrix NAME two tensors of F32: NAME.in_sum2 with the sums of squares [columns,
 * experts] and NAME.counts with the inputs that they are of [1, experts].
 *
 * The older form has no magic number. Little-endian: i32 number of entries; of each i32 length and bytes of the name, i32
 * chunks, i32 number of values, and that many f32, the means times the chunks; then, where the file goes on, i32 chunks in all, i32
 * length and bytes of the text's name. */
#include "formats/importance.h"

#include "base/checked.h"
#include "base/error.h"
#include "base/file.h"
#include "base/grow.h"
#include "base/text.h"
#include "formats/gguf.h"
#include "formats/gguf_write.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Limits of names built from a prefix such as "blk.N." and a suffix of a table below. */
enum { LONGEST_PREFIX = 64, SHORT_NAME = 128 };

/* ---- construction ---- */

ht_status ht_importance_new(size_t n, ht_importance **out, ht_error *err) {
    ht_importance *i = *out = calloc(1, sizeof *i);
    if (i) i->row = calloc(n + 1, sizeof *i->row);
    if (i && i->row && ht_name_index_init(&i->names, n)) {
        i->room = (int64_t)n;
        return HT_OK;
    }
    ht_importance_free(i);
    *out = NULL;
    return ht_fail_memory(err, n * sizeof *i->row, "importance weights");
}

void ht_importance_free(ht_importance *i) {
    if (!i) return;
    for (int64_t k = 0; k < i->n; k++) {
        free(i->row[k].name);
        free(i->row[k].sum);
        free(i->row[k].mean);
        free(i->row[k].count);
    }
    for (int64_t k = 0; k < i->n_datasets; k++) free(i->dataset[k]);
    free(i->dataset);
    free(i->row);
    ht_name_index_free(&i->names);
    free(i);
}

/* Whether a matrix of that name is that of all experts. */
static bool is_of_experts(const char *name, size_t length) {
    static const char end[] = "_exps.weight";
    const size_t n = sizeof end - 1;
    return length > n && memcmp(name + length - n, end, n) == 0;
}

/* Sums and counts of a row that has its sizes. */
static ht_status make_room(ht_importance_row *r, ht_error *err) {
    int64_t n, bytes;
    if (r->n_columns < 1 || r->n_experts < 1 || !ht_mul_i64(r->n_columns, r->n_experts, &n) ||
        !ht_mul_i64(n, (int64_t)sizeof(double), &bytes))
        return ht_fail(err, HT_ERR_FORMAT, "`%.*s`: %lld columns of %lld experts",
                       ht_name_shown(r->name, strlen(r->name)), r->name, (long long)r->n_columns,
                       (long long)r->n_experts);
    r->sum = calloc((size_t)n, sizeof *r->sum);
    r->mean = calloc((size_t)n, sizeof *r->mean);
    r->count = calloc((size_t)r->n_experts, sizeof *r->count);
    if (r->sum && r->mean && r->count) return HT_OK;
    return ht_fail_memory(err, (size_t)n * (sizeof *r->sum + sizeof *r->mean), "importance weights");
}

ht_status ht_importance_add(ht_importance *i, const char *name, size_t length, int64_t n_columns, int64_t n_experts,
                            ht_importance_row **out, ht_error *err) {
    *out = NULL;
    const char *problem = ht_name_problem(name, length);
    if (problem) return ht_fail(err, HT_ERR_FORMAT, "the name of entry %lld %s", (long long)i->n, problem);
    if (i->n == i->room)
        return ht_fail(err, HT_ERR_INTERNAL, "importance weights: more entries than there is room for");
    ht_importance_row *r = &i->row[i->n];
    *r = (ht_importance_row){.name = malloc(length + 1), .n_columns = n_columns, .n_experts = n_experts};
    if (!r->name) return ht_fail_memory(err, length + 1, "importance weights");
    memcpy(r->name, name, length);
    r->name[length] = '\0';
    r->flat = n_experts == 1 && is_of_experts(name, length);
    i->n++; /* from here on freed with the table */
    ht_status status = make_room(r, err);
    if (status) return status;
    size_t first;
    switch (ht_name_index_add(&i->names, r->name, length, (size_t)i->n - 1, &first)) {
    case HT_NAME_ADDED: break;
    case HT_NAME_TWICE:
        return ht_fail(err, HT_ERR_FORMAT, "there are two entries `%.*s`", ht_name_shown(name, length), name);
    case HT_NAME_CROWDED:
        return ht_fail(err, HT_ERR_FORMAT, "the names of entries are made to collide; the file is no honest one");
    }
    *out = r;
    return HT_OK;
}

ht_status ht_importance_add_dataset(ht_importance *i, const char *name, size_t length, ht_error *err) {
    if (!length || !ht_utf8_valid(name, length) || memchr(name, '\0', length)) return HT_OK;
    char *copy = HT_GROW_ONE(i->dataset, i->n_datasets) ? malloc(length + 1) : NULL;
    if (!copy) return ht_fail_memory(err, length + 1, "importance weights");
    memcpy(copy, name, length);
    copy[length] = '\0';
    i->dataset[i->n_datasets++] = copy;
    return HT_OK;
}

/* Means of one expert's n columns; false for a value that no sum of squares can have. */
static bool take_means(const float *sum, double count, int64_t n, float *mean) {
    bool fine = isfinite(count) && count >= 0;
    for (int64_t c = 0; c < n; c++) {
        fine = fine && isfinite(sum[c]) && sum[c] >= 0;
        mean[c] = count > 0 ? (float)((double)sum[c] / count) : 1;
        fine = fine && isfinite(mean[c]);
    }
    return fine;
}

ht_status ht_importance_seal(ht_importance *i, ht_error *err) {
    for (int64_t k = 0; k < i->n; k++) {
        const ht_importance_row *r = &i->row[k];
        for (int64_t e = 0; e < r->n_experts; e++)
            if (!take_means(r->sum + e * r->n_columns, r->count[e], r->n_columns, r->mean + e * r->n_columns))
                return ht_fail(err, HT_ERR_FORMAT,
                               "`%.*s` holds negative numbers or some that are not finite, expected sums of squares",
                               ht_name_shown(r->name, strlen(r->name)), r->name);
    }
    return HT_OK;
}

/* ---- lookup ---- */

static const ht_importance_row *row_named(const ht_importance *i, const char *name, size_t length) {
    const size_t at = ht_name_index_find(&i->names, name, length);
    return at == SIZE_MAX ? NULL : &i->row[at];
}

/* Matrices with the same inputs: a file may have `other` instead of `asked`. Experts may be in one tensor or two,
 * and the embedding may be the head. */
static const struct same_inputs {
    const char *asked, *other;
    bool in_layers; /* the names follow "blk.N." */
} same_inputs[] = {{"ffn_gate_up_exps.weight", "ffn_gate_exps.weight", true},
                   {"ffn_gate_exps.weight", "ffn_gate_up_exps.weight", true},
                   {"ffn_up_exps.weight", "ffn_gate_up_exps.weight", true},
                   {"output.weight", "token_embd.weight", false}};

static const ht_importance_row *find(const ht_importance *i, const char *name) {
    const size_t length = strlen(name);
    const ht_importance_row *r = row_named(i, name, length);
    for (size_t k = 0; !r && k < sizeof same_inputs / sizeof *same_inputs; k++) {
        const struct same_inputs *same = &same_inputs[k];
        const size_t end = strlen(same->asked), before = length < end ? 0 : length - end;
        char other[SHORT_NAME];
        if (length < end || before > LONGEST_PREFIX || strcmp(name + before, same->asked) != 0) continue;
        if (same->in_layers ? !before || name[before - 1] != '.' : before > 0) continue;
        const int n = snprintf(other, sizeof other, "%.*s%s", (int)before, name, same->other);
        r = row_named(i, other, (size_t)n);
    }
    return r;
}

/* Whether the row has n_columns columns per expert, and expert `expert`. */
static bool has(const ht_importance_row *r, int64_t n_columns, int64_t expert) {
    if (n_columns < 1 || expert < 0) return false;
    if (r->flat) return r->n_columns % n_columns == 0 && expert < r->n_columns / n_columns;
    return r->n_columns == n_columns && expert < r->n_experts;
}

const float *ht_importance_find(const ht_importance *i, const char *name, int64_t n_columns, int64_t expert) {
    const ht_importance_row *r = find(i, name);
    return r && has(r, n_columns, expert) ? r->mean + expert * n_columns : NULL;
}

/* The exact value, even in a thread that flushes denormals. */
static double exact(float sum) {
    uint32_t bits;
    memcpy(&bits, &sum, sizeof bits);
    return bits < 0x800000 ? (double)bits * 0x1p-149 : (double)sum;
}

bool ht_importance_weigh(const ht_importance *i, const char *name, int64_t n_columns, int64_t expert, float *weight) {
    const ht_importance_row *r = find(i, name);
    if (!r || !has(r, n_columns, expert)) return false;
    const float *from = r->sum + expert * n_columns; /* proportional to the means, without their rounding */
    const bool chosen = r->count[r->flat ? 0 : expert] > 0;
    double total = 0;
    for (int64_t c = 0; c < n_columns; c++) total += exact(from[c]);
    for (int64_t c = 0; c < n_columns; c++) {
        const double in_means = total > 0 ? exact(from[c]) / total * (double)n_columns : 0;
        weight[c] = chosen ? fmaxf((float)in_means, 1e-3f) : 1.0f;
    }
    return true;
}

ht_status ht_importance_check(const ht_importance *i, const char *name, int64_t n_columns, int64_t n_experts,
                              ht_error *err) {
    const ht_importance_row *r = find(i, name);
    if (!r || (has(r, n_columns, n_experts - 1) && !has(r, n_columns, n_experts))) return HT_OK;
    return ht_fail(err, HT_ERR_ARGUMENT,
                   "importance weights: `%s` has %lld columns of %lld experts, the model's has %lld of %lld; they were "
                   "gathered on another model",
                   r->name, (long long)r->n_columns, (long long)r->n_experts, (long long)n_columns,
                   (long long)n_experts);
}

ht_importance_info ht_importance_get_info(const ht_importance *i) {
    return (ht_importance_info){i->n, i->n_chunks, i->chunk_tokens, i->n_datasets, (const char *const *)i->dataset};
}

ht_importance_entry ht_importance_entry_at(const ht_importance *i, int64_t k) {
    const ht_importance_row *r = &i->row[k];
    return (ht_importance_entry){r->name, r->n_columns, r->n_experts, r->sum, r->count};
}

/* ---- merging ---- */

/* Adds a row to one of the same shape. A row without counts per expert adds its only count to all experts. */
static ht_status add_row(ht_importance_row *to, const ht_importance_row *from, ht_error *err) {
    const int64_t n = to->n_columns * to->n_experts, shares = to->n_experts / from->n_experts;
    if (from->n_columns * from->n_experts != n || (from->n_experts != to->n_experts && !from->flat))
        return ht_fail(err, HT_ERR_ARGUMENT,
                       "importance weights: `%s` has %lld columns of %lld experts in one and %lld of %lld in another; "
                       "they were gathered on different models",
                       to->name, (long long)to->n_columns, (long long)to->n_experts, (long long)from->n_columns,
                       (long long)from->n_experts);
    for (int64_t c = 0; c < n; c++) to->sum[c] += from->sum[c];
    for (int64_t e = 0; e < to->n_experts; e++) to->count[e] += from->count[e / shares];
    return HT_OK;
}

/* The row of `name` with counts per expert, if any part has one: it sets the shape of the sum. */
static const ht_importance_row *finest(const ht_importance *const *parts, int n, const char *name) {
    const ht_importance_row *best = NULL;
    for (int k = 0; k < n; k++) {
        const ht_importance_row *r = row_named(parts[k], name, strlen(name));
        if (r && (!best || (best->flat && !r->flat))) best = r;
    }
    return best;
}

/* Adds a row of one of the parts to that of `name` in the sum. */
static ht_status merge_row(ht_importance *into, const ht_importance *const *parts, int n, const char *name,
                           const ht_importance_row *from, ht_error *err) {
    const size_t length = strlen(name), at = ht_name_index_find(&into->names, name, length);
    ht_importance_row *to = at == SIZE_MAX ? NULL : &into->row[at];
    if (!to) {
        const ht_importance_row *shape = finest(parts, n, name);
        const ht_status status = ht_importance_add(into, name, length, shape->n_columns, shape->n_experts, &to, err);
        if (status) return status;
    }
    return add_row(to, from, err);
}

/* If `name` is a joined gate and up tensor that a part has as two, stores their names in `split`. */
static bool split_elsewhere(const ht_importance *const *parts, int n, const char *name, char split[2][SHORT_NAME]) {
    static const char both[] = "ffn_gate_up_exps.weight";
    const char *end = strstr(name, both);
    if (!end || end[sizeof both - 1] || end - name > LONGEST_PREFIX) return false;
    snprintf(split[0], SHORT_NAME, "%.*sffn_gate_exps.weight", (int)(end - name), name);
    snprintf(split[1], SHORT_NAME, "%.*sffn_up_exps.weight", (int)(end - name), name);
    return finest(parts, n, split[0]) && finest(parts, n, split[1]);
}

static ht_status merge_rows(ht_importance *into, const ht_importance *const *parts, int n, ht_error *err) {
    ht_status status = HT_OK;
    for (int k = 0; k < n; k++)
        for (int64_t j = 0; !status && j < parts[k]->n; j++) {
            const ht_importance_row *from = &parts[k]->row[j];
            char split[2][SHORT_NAME];
            const bool is_split = split_elsewhere(parts, n, from->name, split);
            status = merge_row(into, parts, n, is_split ? split[0] : from->name, from, err);
            if (!status && is_split) status = merge_row(into, parts, n, split[1], from, err);
        }
    return status;
}

/* Adds each dataset once, even if several parts name it. */
static ht_status merge_datasets(ht_importance *into, const ht_importance *part, ht_error *err) {
    ht_status status = HT_OK;
    for (int64_t k = 0; !status && k < part->n_datasets; k++) {
        bool known = false;
        for (int64_t j = 0; j < into->n_datasets; j++) known = known || !strcmp(into->dataset[j], part->dataset[k]);
        if (!known) status = ht_importance_add_dataset(into, part->dataset[k], strlen(part->dataset[k]), err);
    }
    return status;
}

ht_status ht_importance_merge(const ht_importance *const *parts, int n, ht_importance **out, ht_error *err) {
    *out = NULL;
    size_t most = 0;
    if (n < 1) return ht_fail(err, HT_ERR_ARGUMENT, "%d importance weights to add up, expected 1 or more", n);
    for (int k = 0; k < n; k++)
        if (!ht_add_size(most, (size_t)parts[k]->n, &most))
            return ht_fail(err, HT_ERR_LIMIT, "importance weights: too many entries to add up");
    ht_importance *sum;
    ht_status status = ht_importance_new(most, &sum, err);
    if (!status) status = merge_rows(sum, parts, n, err);
    for (int k = 0; !status && k < n; k++) {
        status = merge_datasets(sum, parts[k], err);
        if (!ht_add_i64(sum->n_chunks, parts[k]->n_chunks, &sum->n_chunks)) sum->n_chunks = INT64_MAX;
        if (parts[k]->chunk_tokens) sum->chunk_tokens = parts[k]->chunk_tokens;
    }
    if (!status) status = ht_importance_seal(sum, err);
    if (status)
        ht_importance_free(sum);
    else
        *out = sum;
    return status;
}

/* ---- reading ---- */

static void read_floats(const unsigned char *from, int64_t n, float *out) {
    for (int64_t i = 0; i < n; i++) {
        const uint32_t bits = ht_le32(from + 4 * i);
        memcpy(&out[i], &bits, sizeof bits);
    }
}

/* ---- GGUF ---- */

static const char sums_end[] = ".in_sum2", counts_end[] = ".counts";

static bool ends_in(ht_bytes name, const char *end, size_t *before) {
    const size_t n = strlen(end);
    if (name.len <= n || memcmp(name.data + name.len - n, end, n) != 0) return false;
    *before = name.len - n;
    return true;
}

static int64_t elements(const ht_gguf_tensor *t) { return (int64_t)(t->n_bytes / sizeof(float)); }

/* The tensor `name` + `end`; NULL when there is none. */
static const ht_gguf_tensor *partner(const ht_gguf *g, ht_bytes name, const char *end) {
    char whole[256];
    if (name.len > sizeof whole - sizeof sums_end) return NULL;
    snprintf(whole, sizeof whole, "%.*s%s", (int)name.len, name.data, end);
    return ht_gguf_find_tensor(g, whole);
}

static ht_status read_pair(const ht_gguf *g, ht_bytes name, const ht_gguf_tensor *sums, ht_importance *into,
                           ht_error *err) {
    const int shown = ht_name_shown(name.data, name.len);
    const ht_gguf_tensor *counts = partner(g, name, counts_end);
    if (!counts)
        return ht_fail(err, HT_ERR_FORMAT, "`%.*s` has sums but no counts, expected `%.*s%s` too", shown, name.data,
                       shown, name.data, counts_end);
    if (sums->type != HT_W_F32 || counts->type != HT_W_F32)
        return ht_fail(err, HT_ERR_FORMAT, "`%.*s` has sums of %s and counts of %s, expected F32", shown, name.data,
                       sums->type_name, counts->type_name);
    const int64_t n = elements(sums), n_experts = elements(counts);
    if (n % n_experts != 0)
        return ht_fail(err, HT_ERR_FORMAT,
                       "`%.*s` has %" PRId64 " sums, which are no multiple of its %" PRId64 " counts", shown, name.data,
                       n, n_experts);
    ht_importance_row *row;
    const ht_status status = ht_importance_add(into, name.data, name.len, n / n_experts, n_experts, &row, err);
    if (status) return status;
    read_floats(sums->data, n, row->sum);
    for (int64_t e = 0; e < n_experts; e++) {
        float count;
        read_floats(counts->data + 4 * e, 1, &count);
        row->count[e] = (double)count;
    }
    return HT_OK;
}

static ht_status read_metadata(const ht_gguf *g, ht_importance *into, ht_error *err) {
    ht_bytes type;
    if (!ht_gguf_get_string(g, "general.type", &type) || type.len != 7 || memcmp(type.data, "imatrix", 7) != 0)
        return ht_fail(err, HT_ERR_FORMAT,
                       "this GGUF file does not hold importance weights: its general.type is not \"imatrix\"");
    ht_gguf_get_i64_saturated(g, "imatrix.chunk_count", &into->n_chunks);
    ht_gguf_get_i64_saturated(g, "imatrix.chunk_size", &into->chunk_tokens);
    if (into->n_chunks < 0 || into->chunk_tokens < 0)
        return ht_fail(err, HT_ERR_FORMAT, "imatrix.chunk_count is %" PRId64 " and imatrix.chunk_size %" PRId64,
                       into->n_chunks, into->chunk_tokens);
    const ht_gguf_value *names = ht_gguf_find(g, "imatrix.datasets");
    ht_status status = HT_OK;
    ht_bytes dataset;
    for (size_t at = 0; !status && names && ht_gguf_next_string(names, &at, &dataset);)
        status = ht_importance_add_dataset(into, dataset.data, dataset.len, err);
    return status;
}

static ht_status read_gguf(const ht_gguf *g, ht_importance *into, ht_error *err) {
    ht_status status = read_metadata(g, into, err);
    for (size_t i = 0; !status && i < ht_gguf_n_tensors(g); i++) {
        const ht_gguf_tensor *t = ht_gguf_tensor_at(g, i);
        size_t before;
        if (ends_in(t->name, sums_end, &before))
            status = read_pair(g, (ht_bytes){t->name.data, before}, t, into, err);
        else if (ends_in(t->name, counts_end, &before) && !partner(g, (ht_bytes){t->name.data, before}, sums_end))
            status = ht_fail(err, HT_ERR_FORMAT, "`%.*s` has counts but no sums", ht_name_shown(t->name.data, before),
                             t->name.data);
    }
    return status;
}

static ht_status parse_gguf(const void *data, size_t size, const char *name, ht_importance **out, ht_error *err) {
    ht_gguf *g;
    ht_status status = ht_gguf_parse(data, size, name, &g, err); /* its messages name the file */
    if (status) return status;
    status = ht_importance_new(ht_gguf_n_tensors(g), out, err);
    if (!status && (status = read_gguf(g, *out, err))) ht_fail_in(err, status, "%s", name);
    ht_gguf_free(g);
    return status;
}

/* ---- the older form ---- */

typedef struct cursor {
    const unsigned char *data;
    size_t size, pos;
    ht_status status;
    ht_error *err;
} cursor;

HT_PRINTF(2, 3) static void fail(cursor *c, const char *fmt, ...) {
    if (c->status) return;
    char message[400];
    va_list args;
    va_start(args, fmt);
    vsnprintf(message, sizeof message, fmt, args);
    va_end(args);
    c->status = ht_fail(c->err, HT_ERR_FORMAT, "%s", message);
}

static const unsigned char *read_bytes(cursor *c, size_t n, const char *what) {
    if (c->status) return NULL;
    if (n > c->size - c->pos) {
        fail(
            c,
            "%s at byte %zu: expected %zu bytes, but only %zu remain; the file is cut short, or is neither GGUF nor an "
            "imatrix.dat",
            what, c->pos, n, c->size - c->pos);
        return NULL;
    }
    const unsigned char *p = c->data + c->pos;
    c->pos += n;
    return p;
}

/* A number that cannot be less than `least`; that after an error. */
static int64_t read_number(cursor *c, int32_t least, const char *what) {
    const size_t at = c->pos;
    const unsigned char *p = read_bytes(c, 4, what);
    const int32_t n = p ? (int32_t)ht_le32(p) : least;
    if (n >= least) return n;
    fail(c, "%s at byte %zu is %" PRId32 "; the file is damaged, or is neither GGUF nor an imatrix.dat", what, at, n);
    return least;
}

static void read_entry(cursor *c, ht_importance *into) {
    const size_t length = (size_t)read_number(c, 1, "the length of a name");
    const unsigned char *name = read_bytes(c, length, "a name");
    const int64_t chunks = read_number(c, 0, "the chunks of an entry"), n = read_number(c, 1, "the values of an entry");
    const unsigned char *values = read_bytes(c, (size_t)n * sizeof(float), "the values of an entry");
    if (!values) return;
    ht_importance_row *row;
    c->status = ht_importance_add(into, (const char *)name, length, n, 1, &row, c->err);
    if (c->status) return;
    /* With 0 chunks the values are the means. */
    const double times = chunks > 0 ? (double)chunks : 1, count = times * (double)HT_IMPORTANCE_CHUNK;
    row->count[0] = count;
    read_floats(values, n, row->sum);
    for (int64_t i = 0; i < n; i++) row->sum[i] *= (float)HT_IMPORTANCE_CHUNK;
}

static void read_trailer(cursor *c, ht_importance *into) {
    if (c->status || c->pos == c->size) return;
    into->n_chunks = read_number(c, 0, "the number of chunks");
    if (c->status || c->pos == c->size) return;
    const size_t length = (size_t)read_number(c, 0, "the length of the text's name");
    const unsigned char *name = read_bytes(c, length, "the text's name");
    if (name) c->status = ht_importance_add_dataset(into, (const char *)name, length, c->err);
}

static ht_status parse_older(const void *data, size_t size, const char *name, ht_importance **out, ht_error *err) {
    enum { LEAST_BYTES = 4 + 1 + 4 + 4 + 4 }; /* of an entry: bounds their number */
    cursor c = {.data = data, .size = size, .err = err};
    const int64_t n = read_number(&c, 1, "the number of entries");
    if (!c.status && (size_t)n > (size - c.pos) / LEAST_BYTES)
        fail(&c,
             "%" PRId64
             " entries do not fit in %zu bytes; the file is cut short, or is neither GGUF nor an imatrix.dat",
             n, size);
    if (!c.status) c.status = ht_importance_new((size_t)n, out, err);
    for (int64_t i = 0; i < n && !c.status; i++) read_entry(&c, *out);
    if (!c.status) read_trailer(&c, *out);
    return c.status ? ht_fail_in(err, c.status, "%s", name) : HT_OK;
}

/* ---- both ---- */

ht_status ht_importance_parse(const void *data, size_t size, const char *name, ht_importance **out, ht_error *err) {
    ht_importance *i = NULL;
    *out = NULL;
    if (ht_is_lfs_pointer(data, size)) return ht_fail(err, HT_ERR_FORMAT, "%s: %s", name, HT_LFS_POINTER);
    const bool is_gguf = size >= 4 && memcmp(data, "GGUF", 4) == 0;
    ht_status status = is_gguf ? parse_gguf(data, size, name, &i, err) : parse_older(data, size, name, &i, err);
    if (!status && i->n == 0) status = ht_fail(err, HT_ERR_FORMAT, "%s: there are no importance weights in it", name);
    if (!status && (status = ht_importance_seal(i, err))) ht_fail_in(err, status, "%s", name);
    if (status)
        ht_importance_free(i);
    else
        *out = i;
    return status;
}

ht_status ht_importance_load(const char *path, ht_importance **out, ht_error *err) {
    ht_file *file;
    *out = NULL;
    ht_status status = ht_file_open(path, &file, err);
    if (status) return status;
    status = ht_file_fetch(file, file->size, err);
    if (!status) status = ht_importance_parse(file->data, file->size, path, out, err);
    ht_file_close(file);
    return status;
}

/* ---- writing, as GGUF ---- */

enum { TENSORS = 2 }; /* of a row: sums and counts */

typedef struct writing {
    const ht_importance *from;
    ht_tensor_output *tensor; /* [n][2] sums and counts of each row */
    int64_t (*shape)[TENSORS][2];
    char **name; /* [n][2] */
    float *counts;
} writing;

static ht_status values(void *user, int i, const void **bytes, ht_error *err) {
    writing *w = user;
    const ht_importance_row *r = &w->from->row[i / TENSORS];
    *bytes = r->sum;
    if (i % TENSORS == 0) return HT_OK;
    if (!HT_RESIZE(w->counts, r->n_experts))
        return ht_fail_memory(err, (size_t)r->n_experts * sizeof *w->counts, "counts");
    for (int64_t e = 0; e < r->n_experts; e++) w->counts[e] = (float)r->count[e];
    *bytes = w->counts;
    return HT_OK;
}

static char *joined(const char *a, const char *b) {
    const size_t n = strlen(a) + strlen(b) + 1;
    char *both = malloc(n);
    if (both) snprintf(both, n, "%s%s", a, b);
    return both;
}

static ht_status describe(writing *w, ht_error *err) {
    static const char *const ends[TENSORS] = {".in_sum2", ".counts"};
    const size_t n = (size_t)w->from->n * TENSORS;
    w->tensor = calloc(n, sizeof *w->tensor);
    w->shape = calloc((size_t)w->from->n, sizeof *w->shape);
    w->name = calloc(n, sizeof *w->name);
    bool made = w->tensor && w->shape && w->name;
    for (size_t i = 0; made && i < n; i++) {
        const ht_importance_row *r = &w->from->row[i / TENSORS];
        const size_t part = i % TENSORS;
        int64_t *shape = w->shape[i / TENSORS][part];
        shape[0] = r->n_experts;
        shape[1] = part == 0 ? r->n_columns : 1;
        made = (w->name[i] = joined(r->name, ends[part])) != NULL;
        w->tensor[i] = (ht_tensor_output){.name = w->name[i],
                                          .dtype = "F32",
                                          .rank = 2,
                                          .shape = shape,
                                          .n_bytes = (size_t)(shape[0] * shape[1]) * sizeof(float)};
    }
    return made ? HT_OK : ht_fail_memory(err, n * sizeof *w->tensor, "importance weights");
}

/* A number of 32 bits, in the metadata's form. */
static ht_json *u32(int64_t n) {
    return ht_json_pack("{ss sI}", "dtype", "u32", "value", (int64_t)ht_min_i64(n, UINT32_MAX));
}

/* llama.cpp requires the type and these three keys. NULL when memory ran out. */
static ht_json *metadata_of(const ht_importance *i) {
    ht_json *datasets = ht_json_new_array();
    bool whole = datasets != NULL;
    for (int64_t k = 0; k < i->n_datasets; k++)
        whole = ht_json_array_append_new(datasets, ht_json_string(i->dataset[k])) == 0 && whole;
    const int64_t chunk_tokens = i->chunk_tokens ? i->chunk_tokens : HT_IMPORTANCE_CHUNK;
    ht_json *all = ht_json_pack("{ss so so so}", "general.type", "imatrix", "imatrix.datasets", datasets,
                                "imatrix.chunk_count", u32(i->n_chunks), "imatrix.chunk_size", u32(chunk_tokens));
    if (whole) return all;
    ht_json_decref(all);
    return NULL;
}

ht_status ht_importance_save(const ht_importance *i, const char *path, ht_error *err) {
    writing w = {.from = i};
    if (i->n > INT32_MAX / TENSORS)
        return ht_fail(err, HT_ERR_LIMIT, "%s: %lld entries are too many", path, (long long)i->n);
    ht_json *metadata = metadata_of(i);
    ht_status status = metadata ? describe(&w, err) : ht_fail_memory(err, sizeof(ht_json), "metadata");
    if (!status) status = ht_gguf_write(path, w.tensor, (int)i->n * TENSORS, metadata, values, &w, err);
    for (int64_t k = 0; w.name && k < i->n * TENSORS; k++) free(w.name[k]);
    free(w.name);
    free(w.shape);
    free(w.tensor);
    free(w.counts);
    ht_json_decref(metadata);
    return status;
}
