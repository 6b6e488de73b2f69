/* Pairs of texts: the anchor, positive and negatives of a line. */
#include "base/error.h"
#include "base/grow.h"
#include "train/sample_reading.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Ids of the texts of a pair, one after the other. */
typedef struct texts_of {
    int32_t *id, *begin;
    size_t n;
    int32_t n_texts, n_tail;
} texts_of;

static ht_status add_text_ids(ht_sample_reading *r, texts_of *to, const int32_t *id, size_t n) {
    if (to->n + n > INT32_MAX || to->n_texts == INT32_MAX - 1)
        return ht_fail(r->err, HT_ERR_LIMIT, "its texts have more than %d tokens", INT32_MAX);
    if (!HT_RESIZE(to->id, to->n + n + 1) || !HT_RESIZE(to->begin, (size_t)to->n_texts + 2))
        return ht_fail_memory(r->err, (to->n + n) * sizeof *id, "a sample");
    memcpy(to->id + to->n, id, n * sizeof *id);
    to->begin[to->n_texts++] = (int32_t)to->n;
    to->n += n;
    to->begin[to->n_texts] = (int32_t)to->n;
    return HT_OK;
}

/* The special ids that end a text are those that it has in common with the empty text. */
static ht_status count_tail(ht_sample_reading *r, texts_of *to, const int32_t *ids, size_t n) {
    int32_t *none, tail = 0;
    size_t n_none;
    ht_status status = ht_sample_encode(r, "", 0, &none, &n_none);
    if (status) return status;
    while ((size_t)tail < n && (size_t)tail < n_none && ids[n - 1 - (size_t)tail] == none[n_none - 1 - (size_t)tail])
        tail++;
    if (tail < to->n_tail) to->n_tail = tail;
    ht_ids_free(none);
    return HT_OK;
}

static ht_status add_string(ht_sample_reading *r, texts_of *to, const ht_json *text) {
    int32_t *ids;
    size_t n;
    ht_status status = ht_model_need_tokenizer(r->m, r->err);
    if (!status) status = ht_sample_encode(r, ht_json_string_value(text), ht_json_string_length(text), &ids, &n);
    if (status) return status;
    status = n ? add_text_ids(r, to, ids, n) : ht_fail(r->err, HT_ERR_FORMAT, "a text without tokens");
    if (!status) status = count_tail(r, to, ids, n);
    ht_ids_free(ids);
    return status;
}

static ht_status add_list(ht_sample_reading *r, texts_of *to, const ht_json *list) {
    const size_t n = ht_json_array_size(list);
    int32_t *ids = malloc((n + 1) * sizeof *ids);
    ht_status status = ids ? HT_OK : ht_fail_memory(r->err, n * sizeof *ids, "a sample");
    for (size_t i = 0; !status && i < n; i++) status = ht_sample_read_id(r, list, i, &ids[i]);
    if (!status) status = add_text_ids(r, to, ids, n);
    to->n_tail = 0;
    free(ids);
    return status;
}

static bool is_ids(const ht_json *v) {
    if (!ht_json_is_array(v) || !ht_json_array_size(v)) return false;
    for (size_t i = 0; i < ht_json_array_size(v); i++)
        if (!ht_json_is_integer(ht_json_array_get(v, i))) return false;
    return true;
}

static ht_status add_text(ht_sample_reading *r, texts_of *to, const char *key, const ht_json *v) {
    if (ht_json_is_string(v)) return add_string(r, to, v);
    return is_ids(v) ? add_list(r, to, v) : ht_sample_fail_field(r, key, v, "a text: a string or a list of ids");
}

/* A text, or a list of texts. */
static ht_status add_negatives(ht_sample_reading *r, texts_of *to, const char *key) {
    const ht_json *v = ht_sample_field(r, key);
    if (!v) return HT_OK;
    if (!ht_json_is_array(v) || is_ids(v)) return add_text(r, to, key, v);
    ht_status status = HT_OK;
    for (size_t i = 0; !status && i < ht_json_array_size(v); i++)
        status = add_text(r, to, key, ht_json_array_get(v, i));
    return status;
}

static ht_status add_all_negatives(ht_sample_reading *r, texts_of *to) {
    ht_status status = add_negatives(r, to, "negatives");
    if (!status) status = add_negatives(r, to, "negative");
    char key[32];
    for (int i = 1; !status; i++) {
        (void)snprintf(key, sizeof key, "negative_%d", i);
        if (!ht_sample_field(r, key)) break;
        status = add_negatives(r, to, key);
    }
    return status;
}

/* The names of an anchor and its positive. */
static const char *const pair_names[][2] = {{"anchor", "positive"}, {"query", "positive"}, {"sentence1", "sentence2"}};

static ht_status read_texts(ht_sample_reading *r, texts_of *to) {
    const char *const *names = pair_names[0];
    for (size_t i = 0; i < sizeof pair_names / sizeof *pair_names; i++)
        if (ht_sample_field(r, pair_names[i][0])) names = pair_names[i];
    if (ht_sample_field(r, "score") || ht_sample_field(r, "label"))
        return ht_fail(r->err, HT_ERR_UNSUPPORTED,
                       "it has a `%s`: pairs are learned as equal in meaning, scores of their similarity are not",
                       ht_sample_field(r, "score") ? "score" : "label");
    ht_status status = HT_OK;
    for (int i = 0; !status && i < 2; i++) status = add_text(r, to, names[i], ht_sample_field(r, names[i]));
    return status ? status : add_all_negatives(r, to);
}

ht_status ht_sample_read_pair(ht_sample_reading *r) {
    texts_of all = {.n_tail = INT32_MAX};
    ht_status status = read_texts(r, &all);
    r->out->begin = all.begin;
    if (status) {
        free(all.id);
        return status;
    }
    r->out->n_texts = all.n_texts;
    r->out->n_tail = all.n_tail;
    status = ht_sample_take_ids(r->out, all.id, all.n, r->err);
    for (int32_t i = all.begin[1]; !status && i < all.begin[2]; i++) r->out->learned[i] = true;
    return status;
}
