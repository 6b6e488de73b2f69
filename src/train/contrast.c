#include "train/contrast.h"

#include "array/op.h"
#include "base/checked.h"
#include "base/digest.h"
#include "base/error.h"
#include "base/grow.h"
#include "models/model.h"

#include <hearth/embed.h>
#include <hearth/index.h>
#include <hearth/ops.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- texts ---- */

static ht_digest digest_of(const ht_train_batch *b, int32_t q) {
    ht_digest d = {0x452821e638d01377u, 0xbe5466cf34e90c6cu};
    for (int32_t i = b->seq_start[q]; i < b->seq_start[q + 1]; i++) ht_digest_word(&d, (uint64_t)b->id[i]);
    return d;
}

ht_status ht_contrast_check_model(const ht_model *m, ht_error *err) {
    const ht_pooling pooling = ht_model_pooling(m);
    const char *module = m->modules.dense.n ? "Dense" : m->modules.unsupported;
    if (*module)
        return ht_fail(err, HT_ERR_UNSUPPORTED,
                       "the checkpoint has a module `%s` after its pooling; models without one are trained", module);
    if (pooling == HT_POOLING_MEAN || pooling == HT_POOLING_CLS || pooling == HT_POOLING_LAST) return HT_OK;
    return ht_fail(err, HT_ERR_UNSUPPORTED,
                   "the checkpoint's pooling is `%s`; models with last, mean and cls are trained", m->config->pooling);
}

ht_status ht_contrast_check(const ht_model *m, const ht_train_batch *b, ht_error *err) {
    int64_t n_anchors = 0;
    if (!(b->temperature > 0) || !isfinite(b->temperature))
        return ht_fail(err, HT_ERR_ARGUMENT, "a temperature of %g, expected more than 0", b->temperature);
    for (int32_t q = 0; q < b->n_seq; q++) {
        const int32_t match = b->match[q];
        if (b->seq_start[q] >= b->seq_start[q + 1])
            return ht_fail(err, HT_ERR_ARGUMENT, "text %d of a batch has no tokens", (int)q);
        if (match < 0) continue;
        if (match >= b->n_seq || b->match[match] >= 0)
            return ht_fail(err, HT_ERR_ARGUMENT, "the positive of anchor %d is %d, which is no candidate", (int)q,
                           (int)match);
        n_anchors++;
    }
    if (n_anchors != b->n_learned)
        return ht_fail(err, HT_ERR_ARGUMENT, "a batch of %lld anchors has %lld", (long long)b->n_learned,
                       (long long)n_anchors);
    return ht_contrast_check_model(m, err);
}

/* ---- pooling ---- */

int64_t ht_contrast_rows(const ht_model *m, const ht_train_batch *b, int32_t *target) {
    const ht_pooling pooling = ht_model_pooling(m);
    int64_t n = 0;
    for (int32_t q = 0; q < b->n_seq; q++)
        for (int32_t i = b->seq_start[q]; i < b->seq_start[q + 1]; i++) {
            const bool first = i == b->seq_start[q], last = i + 1 == b->seq_start[q + 1];
            const bool is_read = pooling == HT_POOLING_MEAN || (pooling == HT_POOLING_CLS ? first : last);
            target[i] = is_read ? 0 : -1;
            n += is_read;
        }
    return n;
}

/* The sum of the rows of each sequence, added in their order, so that it does not depend on the batch. */
static ht_array *sum_rows(ht_scope *s, const ht_train_batch *b, ht_array *states) {
    const int64_t n_tok = b->n_tok, hidden = ht_array_dim(states, 1), shape[] = {b->n_seq, hidden};
    int32_t *of = malloc((size_t)n_tok * sizeof *of);
    if (!of) return ht_scope_fail(s, HT_ERR_MEMORY, "out of memory: a batch of %d rows", (int)b->n_tok);
    for (int32_t q = 0; q < b->n_seq; q++)
        for (int32_t i = b->seq_start[q]; i < b->seq_start[q + 1]; i++) of[i] = q;
    ht_array *index = ht_array_from(s, of, HT_I32, &n_tok, 1);
    free(of);
    return ht_scatter(s, ht_zeros(s, HT_F32, shape, 2), &index, (int[]){0}, 1, ht_expand_dims(s, states, 1),
                      HT_SCATTER_ADD);
}

/* The scale of a vector does not matter: a sum has the direction of the mean. */
ht_array *ht_contrast_vectors(ht_scope *s, const ht_model *m, const ht_train_batch *b, ht_array *states) {
    if (!states) return NULL;
    ht_array *x = ht_model_pooling(m) == HT_POOLING_MEAN ? sum_rows(s, b, states) : states;
    ht_array *length = ht_sqrt(s, ht_sum(s, ht_square(s, x), (int[]){1}, 1, true));
    return ht_divide(s, x, ht_maximum(s, length, ht_full(s, 1e-12, HT_F32, NULL, 0)));
}

/* ---- the loss ---- */

/* Anchors and candidates of a batch, and what is left out of the softmax. */
typedef struct contrast {
    int32_t n_anchors, n_candidates;
    int32_t *anchor;    /* [n_anchors] sequences */
    int32_t *candidate; /* [n_candidates] */
    int32_t *own;       /* [n_anchors] index of the positive among the candidates */
    bool *left_out;     /* [n_anchors, n_candidates] */
    bool any_left_out;
    ht_digest *text; /* [n_seq] */
} contrast;

static void free_contrast(contrast *c) {
    free(c->anchor);
    free(c->candidate);
    free(c->own);
    free(c->left_out);
    free(c->text);
}

/* Leaves out the candidates, other than its own positive, that are equal to the positive of an anchor equal to it. */
static void leave_out(const ht_train_batch *b, contrast *c) {
    for (int32_t i = 0; i < c->n_anchors; i++)
        for (int32_t k = 0; k < c->n_anchors; k++) {
            if (!ht_digest_same(c->text[c->anchor[k]], c->text[c->anchor[i]])) continue;
            const ht_digest right = c->text[b->match[c->anchor[k]]];
            for (int32_t j = 0; j < c->n_candidates; j++) {
                if (j == c->own[i] || !ht_digest_same(c->text[c->candidate[j]], right)) continue;
                c->left_out[(size_t)i * (size_t)c->n_candidates + (size_t)j] = c->any_left_out = true;
            }
        }
}

static bool make_contrast(const ht_train_batch *b, contrast *c) {
    const size_t n = (size_t)b->n_seq, n_anchors = (size_t)b->n_learned;
    *c = (contrast){.n_anchors = (int32_t)n_anchors};
    c->anchor = malloc((n_anchors + 1) * sizeof *c->anchor);
    c->own = malloc((n_anchors + 1) * sizeof *c->own);
    c->candidate = malloc((n + 1) * sizeof *c->candidate);
    c->left_out = calloc(n_anchors * n + 1, sizeof *c->left_out);
    c->text = malloc((n + 1) * sizeof *c->text);
    int32_t *index = malloc((n + 1) * sizeof *index), at = 0;
    const bool good = c->anchor && c->own && c->candidate && c->left_out && c->text && index;
    for (int32_t q = 0; good && q < b->n_seq; q++) {
        c->text[q] = digest_of(b, q);
        if (b->match[q] >= 0) continue;
        index[q] = c->n_candidates;
        c->candidate[c->n_candidates++] = q;
    }
    for (int32_t q = 0; good && q < b->n_seq; q++) {
        if (b->match[q] < 0) continue;
        c->own[at] = index[b->match[q]];
        c->anchor[at++] = q;
    }
    free(index);
    if (good) leave_out(b, c);
    return good;
}

static ht_array *indices(ht_scope *s, const int32_t *values, int64_t n) {
    return ht_array_from(s, values, HT_I32, &n, 1);
}

static ht_array *losses_of(ht_scope *s, const contrast *c, double temperature, ht_array *vectors) {
    const int64_t shape[] = {c->n_anchors, c->n_candidates}, n = c->n_anchors;
    ht_array *anchors = ht_take(s, vectors, indices(s, c->anchor, n), 0);
    ht_array *candidates = ht_take(s, vectors, indices(s, c->candidate, c->n_candidates), 0);
    ht_array *scores = ht_scale(s, ht_matmul(s, anchors, candidates, true), (float)(1 / temperature));
    if (c->any_left_out)
        scores = ht_where(s, ht_array_from(s, c->left_out, HT_BOOL, shape, 2),
                          ht_full(s, (double)-INFINITY, HT_F32, NULL, 0), scores);
    ht_array *own = ht_take_along_axis(s, scores, ht_expand_dims(s, indices(s, c->own, n), 1), 1);
    return ht_subtract(s, ht_logsumexp(s, scores, (int[]){1}, 1, false), ht_reshape(s, own, &n, 1));
}

ht_array *ht_contrast_losses(ht_scope *s, const ht_train_batch *b, ht_array *vectors) {
    contrast c;
    if (!vectors) return NULL;
    ht_array *losses = make_contrast(b, &c)
                           ? losses_of(s, &c, b->temperature, vectors)
                           : ht_scope_fail(s, HT_ERR_MEMORY, "out of memory: a batch of %d texts", (int)b->n_seq);
    free_contrast(&c);
    return losses;
}

/* ---- retrieval ---- */

typedef struct ranked_text {
    ht_digest text;
    int64_t index;     /* of its vector */
    int64_t match;     /* of an anchor, the index of its positive; -1: a candidate */
    int64_t candidate; /* of a candidate, its number among different texts */
} ranked_text;

struct ht_held_out {
    int64_t n, capacity, hidden;
    ranked_text *text; /* [n] */
    float *vector;     /* [n, hidden] */
};

ht_status ht_held_out_new(ht_held_out **out, ht_error *err) {
    *out = calloc(1, sizeof **out);
    return *out ? HT_OK : ht_fail_memory(err, sizeof **out, "an evaluation");
}

void ht_held_out_free(ht_held_out *r) {
    if (!r) return;
    free(r->text);
    free(r->vector);
    free(r);
}

static ht_status reserve(ht_held_out *r, int64_t n, ht_error *err) {
    if (n <= r->capacity) return HT_OK;
    const size_t capacity = (size_t)ht_max_i64(n, 2 * r->capacity);
    if (!HT_RESIZE(r->text, capacity) || !HT_RESIZE(r->vector, capacity * (size_t)r->hidden))
        return ht_fail_memory(err, capacity * (size_t)r->hidden * sizeof *r->vector, "the vectors of an evaluation");
    r->capacity = (int64_t)capacity;
    return HT_OK;
}

ht_status ht_held_out_add(ht_held_out *r, const ht_train_batch *b, const float *vectors, int64_t hidden,
                          ht_error *err) {
    r->hidden = hidden;
    ht_status status = reserve(r, r->n + b->n_seq, err);
    if (status) return status;
    memcpy(r->vector + r->n * hidden, vectors, (size_t)(b->n_seq * hidden) * sizeof *vectors);
    for (int32_t q = 0; q < b->n_seq; q++)
        r->text[r->n + q] = (ranked_text){
            .text = digest_of(b, q), .index = r->n + q, .match = b->match[q] < 0 ? -1 : r->n + b->match[q]};
    r->n += b->n_seq;
    return HT_OK;
}

static int by_text(const void *x, const void *y) {
    const ranked_text *a = x, *b = y;
    if (a->text.a != b->text.a) return a->text.a < b->text.a ? -1 : 1;
    if (a->text.b != b->text.b) return a->text.b < b->text.b ? -1 : 1;
    return (a->index > b->index) - (a->index < b->index);
}

/* The texts of a ranking: different candidates, and anchors, of which equal ones follow each other. */
typedef struct ranks {
    const ht_held_out *r;
    ranked_text *anchor; /* [n_anchors] */
    int64_t *candidate;  /* [n] number of a candidate, by its text's index */
    int64_t *vector;     /* [n_candidates] index of a candidate's vector */
    int64_t n_anchors, n_candidates;
    float *of_anchors, *of_candidates; /* their vectors */
    float *score;                      /* [ANCHORS_AT_ONCE, n_candidates] */
} ranks;

enum { ANCHORS_AT_ONCE = 256 };

static void free_ranks(ranks *k) {
    free(k->anchor);
    free(k->candidate);
    free(k->vector);
    free(k->of_anchors);
    free(k->of_candidates);
    free(k->score);
}

/* Sorts the texts and numbers the different candidates. */
static void find_candidates(ranks *k, ranked_text *sorted) {
    const ht_held_out *r = k->r;
    const ranked_text *before = NULL;
    qsort(sorted, (size_t)r->n, sizeof *sorted, by_text);
    for (int64_t i = 0; i < r->n; i++) {
        if (sorted[i].match >= 0) {
            k->anchor[k->n_anchors++] = sorted[i];
            continue;
        }
        if (!before || !ht_digest_same(before->text, sorted[i].text)) k->vector[k->n_candidates++] = sorted[i].index;
        k->candidate[sorted[i].index] = k->n_candidates - 1;
        before = &sorted[i];
    }
}

static float *gather(const ht_held_out *r, const int64_t *index, const ranked_text *text, int64_t n) {
    const size_t row = (size_t)r->hidden;
    float *out = malloc(((size_t)n * row + 1) * sizeof *out);
    for (int64_t i = 0; out && i < n; i++)
        memcpy(out + (size_t)i * row, r->vector + (size_t)(index ? index[i] : text[i].index) * row, row * sizeof *out);
    return out;
}

static ht_status make_ranks(const ht_held_out *r, ranks *k, ht_error *err) {
    const size_t n = (size_t)r->n + 1;
    *k = (ranks){.r = r};
    ranked_text *sorted = malloc(n * sizeof *sorted);
    k->anchor = malloc(n * sizeof *k->anchor);
    k->candidate = malloc(n * sizeof *k->candidate);
    k->vector = malloc(n * sizeof *k->vector);
    bool good = sorted && k->anchor && k->candidate && k->vector;
    if (good) {
        memcpy(sorted, r->text, (size_t)r->n * sizeof *sorted);
        find_candidates(k, sorted);
        k->of_anchors = gather(r, NULL, k->anchor, k->n_anchors);
        k->of_candidates = gather(r, k->vector, NULL, k->n_candidates);
        k->score = malloc((ANCHORS_AT_ONCE * (size_t)k->n_candidates + 1) * sizeof *k->score);
        good = k->of_anchors && k->of_candidates && k->score;
    }
    free(sorted);
    return good ? HT_OK : ht_fail_memory(err, n * (size_t)r->hidden * sizeof(float), "an evaluation");
}

/* The cosines of anchors from `first` on with all candidates. */
static ht_status find_scores(const ranks *k, ht_stream *stream, int64_t first, int64_t n, ht_error *err) {
    const int64_t hidden = k->r->hidden, rows[] = {n, hidden}, columns[] = {k->n_candidates, hidden};
    ht_scope *s = ht_scope_new(stream);
    if (!s) return ht_fail_memory(err, sizeof *s, "an evaluation");
    ht_array *anchors = ht_array_from(s, k->of_anchors + first * hidden, HT_F32, rows, 2);
    ht_array *candidates = ht_array_from(s, k->of_candidates, HT_F32, columns, 2);
    const ht_status status = ht_array_read(s, ht_matmul(s, anchors, candidates, true), k->score,
                                           (size_t)(n * k->n_candidates) * sizeof *k->score, err);
    ht_scope_free(s);
    return status;
}

/* The rank, from 1, of anchor i's positive among the candidates but for the positives of equal anchors. */
static int64_t rank_of(const ranks *k, int64_t i, const float *score) {
    const ranked_text *anchor = &k->anchor[i];
    const int64_t own = k->candidate[anchor->match];
    int64_t first = i, end = i + 1, ahead = 0;
    while (first > 0 && ht_digest_same(k->anchor[first - 1].text, anchor->text)) first--;
    while (end < k->n_anchors && ht_digest_same(k->anchor[end].text, anchor->text)) end++;
    for (int64_t c = 0; c < k->n_candidates; c++) {
        if (c == own || score[c] < score[own]) continue; /* a score that is not finite ranks before it */
        bool is_right = false;
        for (int64_t a = first; a < end && !is_right; a++) is_right = k->candidate[k->anchor[a].match] == c;
        ahead += !is_right;
    }
    return ahead + 1;
}

ht_status ht_held_out_measure(const ht_held_out *r, ht_stream *stream, ht_retrieval *out, ht_error *err) {
    enum { DEPTH = 10 };
    ranks k;
    ht_status status = make_ranks(r, &k, err);
    *out = (ht_retrieval){.n_anchors = k.n_anchors, .n_candidates = k.n_candidates};
    for (int64_t first = 0; !status && first < k.n_anchors; first += ANCHORS_AT_ONCE) {
        const int64_t n = ht_min_i64(ANCHORS_AT_ONCE, k.n_anchors - first);
        status = find_scores(&k, stream, first, n, err);
        for (int64_t i = 0; !status && i < n; i++) {
            const int64_t rank = rank_of(&k, first + i, k.score + i * k.n_candidates);
            out->accuracy_at_1 += rank == 1;
            out->mrr_at_10 += rank <= DEPTH ? 1 / (double)rank : 0;
            out->ndcg_at_10 += rank <= DEPTH ? 1 / log2(1 + (double)rank) : 0;
        }
    }
    if (!status && k.n_anchors) {
        out->accuracy_at_1 /= (double)k.n_anchors;
        out->mrr_at_10 /= (double)k.n_anchors;
        out->ndcg_at_10 /= (double)k.n_anchors;
    }
    free_ranks(&k);
    return status;
}
