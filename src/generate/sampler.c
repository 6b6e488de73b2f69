#include "generate/sampler.h"

#include "base/checked.h"
#include "base/error.h"
#include "base/options.h"
#include "generate/logits_row.h"
#include "generate/philox.h"
#include "models/model.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

struct ht_sampler {
    ht_sampler_options o;
    ht_sampler_stage order[HT_SAMPLER_STAGES];
    int32_t vocab;
    const ht_row_ops *ops;
    bool filters;         /* any of top_k, top_p, min_p is on */
    bool repeats, counts; /* penalties on recent tokens; on generated tokens */
    bool biases_raise, penalties_raise;
    int64_t n_prompt; /* tokens of the history that were not generated */
    int32_t n_bias;
    ht_logit_bias *bias; /* [n_bias] in order of id */
    uint8_t *seen;       /* [vocab] bits, clear between calls; NULL unless `repeats` */
    int32_t *count;      /* [vocab] likewise; NULL unless `counts` */
    float *x;            /* [vocab] the row once it was changed; NULL when nothing changes it */
    int32_t *ids;        /* [vocab] token ids of a row that filters shortened; NULL when that cannot happen */
    float *block_max;    /* [blocks] */
    double *block_mass;  /* [blocks]; NULL when greedy */
    ht_ranked *list;     /* [vocab]; NULL without filters */
    bool constrained;    /* x and ids exist, and every pick needs a mask */
    const uint32_t *mask;
    int32_t n_masked; /* tokens that the mask has bits for */
};

/* ---- options ---- */

static const ht_sampler_options unset = {.size = sizeof unset,
                                         .temperature = HT_SAMPLER_UNSET,
                                         .top_k = HT_SAMPLER_UNSET,
                                         .top_p = HT_SAMPLER_UNSET,
                                         .min_p = HT_SAMPLER_UNSET,
                                         .repeat_penalty = HT_SAMPLER_UNSET,
                                         .repeat_window = HT_SAMPLER_UNSET,
                                         .presence_penalty = HT_SAMPLER_UNSET,
                                         .frequency_penalty = HT_SAMPLER_UNSET,
                                         .seed = 11};

const ht_sampler_options ht_sampler_greedy = {.size = sizeof ht_sampler_greedy, .repeat_penalty = 1};

void ht_sampler_options_init(ht_sampler_options *options, size_t size) {
    ht_options_init(options, size, &unset, sizeof unset);
}

static const char *const stage_names[] = {"repeat_penalty", "temperature", "top_p", "top_k", "min_p"};

const char *ht_sampler_stage_name(ht_sampler_stage stage) { return stage_names[stage]; }

/* Inserts every stage not among the first n before the first one that follows it by default. */
static void complete_order(ht_sampler_stage order[HT_SAMPLER_STAGES], int n, const bool listed[HT_SAMPLER_STAGES]) {
    for (int stage = 0; stage < HT_SAMPLER_STAGES; stage++) {
        if (listed[stage]) continue;
        int at = 0;
        while (at < n && (int)order[at] < stage) at++;
        memmove(order + at + 1, order + at, (size_t)(n - at) * sizeof *order);
        order[at] = (ht_sampler_stage)stage;
        n++;
    }
}

ht_status ht_sampler_order_parse(const char *text, ht_sampler_stage order[HT_SAMPLER_STAGES], ht_error *err) {
    bool listed[HT_SAMPLER_STAGES] = {false};
    int n = 0;
    for (const char *p = text; p;) {
        size_t length = strcspn(p, ",");
        int stage = 0;
        while (stage < HT_SAMPLER_STAGES &&
               (strlen(stage_names[stage]) != length || memcmp(stage_names[stage], p, length) != 0))
            stage++;
        if (stage == HT_SAMPLER_STAGES)
            return ht_fail(
                err, HT_ERR_ARGUMENT,
                "sampler order \"%s\": \"%.*s\" is unknown, expected names among repeat_penalty, temperature, "
                "top_p, top_k, min_p with commas between",
                text, (int)(length < 64 ? length : 64), p);
        if (listed[stage])
            return ht_fail(err, HT_ERR_ARGUMENT, "sampler order \"%s\": %s is named twice", text, stage_names[stage]);
        listed[stage] = true;
        order[n++] = (ht_sampler_stage)stage;
        p = p[length] ? p + length + 1 : NULL;
    }
    complete_order(order, n, listed);
    return HT_OK;
}

ht_status ht_sampler_order_check(const char *order, ht_error *err) {
    ht_sampler_stage parsed[HT_SAMPLER_STAGES];
    return ht_sampler_order_parse(order, parsed, err);
}

#define NUMBER(field) #field, offsetof(ht_sampler_options, field)

/* The numeric options, which a checkpoint may recommend. */
static const struct {
    const char *name;
    size_t offset;
    bool is_int; /* else float */
    double least, most;
    const char *expected;
} numbers[HT_SAMPLING_FIELDS] = {
    [HT_SAMPLING_TEMPERATURE] = {NUMBER(temperature), false, 0, FLT_MAX, "a finite number >= 0"},
    [HT_SAMPLING_TOP_K] = {NUMBER(top_k), true, 0, INT32_MAX, "0 (off) or more"},
    [HT_SAMPLING_TOP_P] = {NUMBER(top_p), false, 0, 1, "0 to 1"},
    [HT_SAMPLING_MIN_P] = {NUMBER(min_p), false, 0, 1, "0 to 1"},
    [HT_SAMPLING_REPEAT_PENALTY] = {NUMBER(repeat_penalty), false, 0, FLT_MAX, "a finite number > 0 (1: off)"},
    [HT_SAMPLING_REPEAT_WINDOW] = {NUMBER(repeat_window), true, -1, INT32_MAX, "-1 (all), 0 (none) or more"},
    [HT_SAMPLING_PRESENCE_PENALTY] = {NUMBER(presence_penalty), false, -FLT_MAX, FLT_MAX, "a finite number (0: off)"},
    [HT_SAMPLING_FREQUENCY_PENALTY] = {NUMBER(frequency_penalty), false, -FLT_MAX, FLT_MAX, "a finite number (0: off)"},
};

ht_status ht_sampler_options_read(const ht_sampler_options *options, const ht_sampling *model, ht_sampler_options *out,
                                  ht_error *err) {
    ht_status status = ht_options_read(out, options, &unset, sizeof unset, "ht_sampler_options", err);
    for (int i = 0; i < HT_SAMPLING_FIELDS && !status; i++) {
        void *at = (char *)out + numbers[i].offset;
        int32_t *whole = at;
        float *real = at;
        double value;
        if (numbers[i].is_int)
            value = (double)(*whole = *whole == HT_SAMPLER_UNSET ? (int32_t)model->field[i].value : *whole);
        else
            value = (double)(*real = *real == (float)HT_SAMPLER_UNSET ? (float)model->field[i].value : *real);
        if (value >= numbers[i].least && value <= numbers[i].most) continue;
        status = numbers[i].is_int ? ht_fail(err, HT_ERR_ARGUMENT, "%s is %d, expected %s", numbers[i].name, (int)value,
                                             numbers[i].expected)
                                   : ht_fail(err, HT_ERR_ARGUMENT, "%s is %g, expected %s", numbers[i].name, value,
                                             numbers[i].expected);
    }
    return status;
}

ht_status ht_sampler_options_resolve(const ht_model *m, const ht_sampler_options *options, ht_sampler_options *out,
                                     ht_error *err) {
    ht_sampler_options in_effect;
    const size_t size = out->size;
    const ht_status status = ht_sampler_options_read(options, &m->sampling, &in_effect, err);
    if (status) return status;
    memcpy(out, &in_effect, ht_min_size(size, sizeof in_effect));
    out->size = size;
    return HT_OK;
}

/* ---- biases ---- */

static int by_id(const void *a, const void *b) {
    const ht_logit_bias *x = a, *y = b;
    return (x->id > y->id) - (x->id < y->id);
}

ht_status ht_logit_biases_read(const ht_sampler_options *options, int32_t vocab, ht_logit_bias **out, ht_error *err) {
    const int n = options->n_logit_bias;
    *out = NULL;
    if (n < 0 || (n > 0 && !options->logit_bias))
        return ht_fail(err, HT_ERR_ARGUMENT, "%d biases of logits were announced and none given", n);
    for (int i = 0; i < n; i++) {
        const ht_logit_bias *b = &options->logit_bias[i];
        if (b->id < 0 || b->id >= vocab)
            return ht_fail(err, HT_ERR_ARGUMENT, "logit_bias of token %d, and the vocabulary has ids 0 to %d",
                           (int)b->id, (int)vocab - 1);
        if (!isfinite(b->bias))
            return ht_fail(err, HT_ERR_ARGUMENT,
                           "logit_bias of token %d is %g, expected a finite number (-100 as good as forbids a token)",
                           (int)b->id, (double)b->bias);
    }
    ht_logit_bias *sorted = malloc((size_t)n * sizeof *sorted + 1);
    if (!sorted) return ht_fail_memory(err, (size_t)n * sizeof *sorted, "biases of logits");
    if (n) {
        memcpy(sorted, options->logit_bias, (size_t)n * sizeof *sorted);
        qsort(sorted, (size_t)n, sizeof *sorted, by_id);
    }
    for (int i = 1; i < n; i++)
        if (sorted[i].id == sorted[i - 1].id) {
            const int32_t id = sorted[i].id;
            free(sorted);
            return ht_fail(err, HT_ERR_ARGUMENT, "logit_bias has token %d twice", (int)id);
        }
    *out = sorted;
    return HT_OK;
}

static bool stage_on(const ht_sampler *s, ht_sampler_stage stage) {
    const ht_sampler_options *o = &s->o;
    switch (stage) {
    case HT_STAGE_REPEAT_PENALTY: return s->repeats || s->counts;
    case HT_STAGE_TEMPERATURE: return o->temperature > 0;
    case HT_STAGE_TOP_P: return o->top_p > 0 && o->top_p < 1;
    case HT_STAGE_TOP_K: return o->top_k > 0;
    case HT_STAGE_MIN_P: return o->min_p > 0;
    case HT_SAMPLER_STAGES: break;
    }
    return false;
}

static bool is_filter(ht_sampler_stage stage) { return stage >= HT_STAGE_TOP_P; }

static ht_status allocate(ht_sampler *s, ht_error *err) {
    const ht_sampler_options *o = &s->o;
    s->repeats = o->repeat_penalty != 0 && o->repeat_penalty != 1 && o->repeat_window != 0;
    s->counts = o->presence_penalty != 0 || o->frequency_penalty != 0;
    s->penalties_raise = (s->repeats && o->repeat_penalty < 1) || o->presence_penalty < 0 || o->frequency_penalty < 0;
    for (int32_t i = 0; i < s->n_bias; i++) s->biases_raise = s->biases_raise || s->bias[i].bias > 0;
    const bool changes = s->n_bias > 0 || s->repeats || s->counts;
    bool filter_seen = false, shortened = false;
    for (int i = 0; i < HT_SAMPLER_STAGES; i++) {
        if (!stage_on(s, s->order[i])) continue;
        if (is_filter(s->order[i])) filter_seen = true;
        if (s->order[i] == HT_STAGE_REPEAT_PENALTY && filter_seen) shortened = true;
    }
    /* The most likely token survives every filter: for it they need not run, unless a penalty comes after them. */
    s->filters = filter_seen && (o->temperature > 0 || shortened);
    size_t n = (size_t)s->vocab, blocks = (size_t)ht_row_blocks(s->vocab);
    bool ok = (s->block_max = malloc(blocks * sizeof *s->block_max)) != NULL;
    ok = ok && (s->block_mass = malloc(blocks * sizeof *s->block_mass)) != NULL;
    if (s->repeats) ok = ok && (s->seen = calloc((n + 7) / 8, 1)) != NULL;
    if (s->counts) ok = ok && (s->count = calloc(n, sizeof *s->count)) != NULL;
    if (changes) ok = ok && (s->x = malloc(n * sizeof *s->x)) != NULL;
    if (shortened) ok = ok && (s->ids = malloc(n * sizeof *s->ids)) != NULL;
    if (s->filters) ok = ok && (s->list = malloc(n * sizeof *s->list)) != NULL;
    return ok ? HT_OK : ht_fail_memory(err, n * (sizeof *s->x + sizeof *s->ids + sizeof *s->list), "the sampler");
}

ht_status ht_sampler_new(const ht_sampler_options *options, int32_t vocab, const ht_row_ops *ops, ht_sampler **out,
                         ht_error *err) {
    *out = NULL;
    ht_sampler_options o;
    const ht_sampling library = ht_sampling_defaults();
    ht_status status = ht_sampler_options_read(options, &library, &o, err);
    if (status) return status;
    if (vocab < 1) return ht_fail(err, HT_ERR_ARGUMENT, "a sampler over %d tokens, expected 1 or more", (int)vocab);
    ht_sampler *s = calloc(1, sizeof *s);
    if (!s) return ht_fail_memory(err, sizeof *s, "the sampler");
    s->o = o;
    s->vocab = vocab;
    s->ops = ops;
    s->o.order = NULL; /* lent for this call only, like the next */
    s->o.logit_bias = NULL;
    status = ht_sampler_order_parse(o.order, s->order, err);
    if (!status) status = ht_logit_biases_read(&o, vocab, &s->bias, err);
    s->n_bias = status ? 0 : o.n_logit_bias;
    if (!status) status = allocate(s, err);
    if (status) {
        ht_sampler_free(s);
        return status;
    }
    *out = s;
    return HT_OK;
}

void ht_sampler_free(ht_sampler *s) {
    if (!s) return;
    free(s->bias);
    free(s->seen);
    free(s->count);
    free(s->x);
    free(s->ids);
    free(s->block_max);
    free(s->block_mass);
    free(s->list);
    free(s);
}

ht_status ht_sampler_constrain(ht_sampler *s, ht_error *err) {
    const size_t n = (size_t)s->vocab;
    if (!s->x) s->x = malloc(n * sizeof *s->x);
    if (!s->ids) s->ids = malloc(n * sizeof *s->ids);
    s->constrained = s->x && s->ids;
    return s->constrained ? HT_OK : ht_fail_memory(err, n * (sizeof *s->x + sizeof *s->ids), "the sampler");
}

void ht_sampler_set_mask(ht_sampler *s, const uint32_t *mask, int32_t n_tokens) {
    s->mask = mask;
    s->n_masked = n_tokens < s->vocab ? n_tokens : s->vocab;
}

void ht_sampler_set_prompt(ht_sampler *s, int64_t n_prompt) { s->n_prompt = n_prompt; }

/* ---- changes of single logits ----
 *
 * Changed finite logits are clamped to +-1e30, so that differences are finite. Others stay as they are, for the scan
 * to find. */

/* Clamps y, the new value of a logit x; an x that is not finite stays. */
static float bounded(float x, double y) {
    static const float most = 1e30f;
    if (!isfinite(x)) return x;
    if (y > (double)most) return most;
    return y < (double)-most ? -most : (float)y;
}

/* Index of a token in the row, or -1. */
static int32_t place_of(int32_t id, const int32_t *ids, int32_t n) {
    if (!ids) return id < n ? id : -1;
    int32_t low = 0, high = n;
    while (low < high) {
        const int32_t middle = low + (high - low) / 2;
        if (ids[middle] < id)
            low = middle + 1;
        else
            high = middle;
    }
    return low < n && ids[low] == id ? low : -1;
}

/* Adds the biases to a row x [n], of the tokens ids[0] < ids[1] < ...; NULL: of tokens 0, 1, ... */
static void add_biases(const ht_sampler *s, float *x, const int32_t *ids, int32_t n) {
    for (int32_t i = 0; i < s->n_bias; i++) {
        const int32_t at = place_of(s->bias[i].id, ids, n);
        if (at >= 0) x[at] = bounded(x[at], (double)x[at] + (double)s->bias[i].bias);
    }
}

static float repeated(const ht_sampler *s, float x) {
    return bounded(x, (double)(x > 0 ? x / s->o.repeat_penalty : x * s->o.repeat_penalty));
}

static bool in_vocab(const ht_sampler *s, int32_t id) { return id >= 0 && id < s->vocab; }

static void penalise_repeated(ht_sampler *s, float *x, const int32_t *ids, int32_t n, const int32_t *history,
                              int64_t n_history) {
    const int64_t first = s->o.repeat_window > 0 ? ht_max_i64(n_history - s->o.repeat_window, 0) : 0;
    for (int64_t i = first; i < n_history; i++) {
        const int32_t id = history[i];
        if (!in_vocab(s, id) || (s->seen[id / 8] >> (id % 8) & 1)) continue;
        s->seen[id / 8] = (uint8_t)(s->seen[id / 8] | 1 << (id % 8));
        if (!ids) x[id] = repeated(s, x[id]);
    }
    for (int32_t i = 0; ids && i < n; i++)
        if (s->seen[ids[i] / 8] >> (ids[i] % 8) & 1) x[i] = repeated(s, x[i]);
    for (int64_t i = first; i < n_history; i++)
        if (in_vocab(s, history[i])) s->seen[history[i] / 8] = 0;
}

static float counted(const ht_sampler *s, float x, int32_t count) {
    return bounded(x, (double)x - ((double)count * (double)s->o.frequency_penalty +
                                   (double)(count > 0 ? s->o.presence_penalty : 0)));
}

static void penalise_counted(ht_sampler *s, float *x, const int32_t *ids, int32_t n, const int32_t *history,
                             int64_t n_history) {
    for (int64_t i = s->n_prompt; i < n_history; i++)
        if (in_vocab(s, history[i])) s->count[history[i]]++;
    for (int32_t i = 0; ids && i < n; i++)
        if (s->count[ids[i]]) x[i] = counted(s, x[i], s->count[ids[i]]);
    for (int64_t i = s->n_prompt; i < n_history; i++) {
        const int32_t id = history[i];
        if (!in_vocab(s, id) || !s->count[id]) continue;
        if (!ids) x[id] = counted(s, x[id], s->count[id]);
        s->count[id] = 0;
    }
}

/* Applies the penalties of n_history tokens to a row likewise. */
static void penalise(ht_sampler *s, float *x, const int32_t *ids, int32_t n, const int32_t *history,
                     int64_t n_history) {
    if (s->repeats) penalise_repeated(s, x, ids, n, history, n_history);
    if (s->counts) penalise_counted(s, x, ids, n, history, n_history);
}

/* The most tokens that biases, and penalties after n_history tokens, can lower; INT32_MAX if they can raise one. */
static int64_t count_biased(const ht_sampler *s) { return s->biases_raise ? INT32_MAX : s->n_bias; }

static int64_t count_penalised(const ht_sampler *s, int64_t n_history) {
    if (s->penalties_raise) return INT32_MAX;
    int64_t lately = 0;
    if (s->repeats) lately = s->o.repeat_window > 0 ? ht_min_i64(s->o.repeat_window, n_history) : n_history;
    return s->counts ? ht_max_i64(lately, n_history - s->n_prompt) : lately; /* both look back from the last one */
}

/* ---- the chain ---- */

/* The remaining row while the chain runs. `list`, if any, holds its highest values in order: all that remain when
 * `whole`, else those that a later top_k will keep. */
typedef struct chain {
    ht_logits_row row;
    const int32_t *ids; /* NULL: an index is an id */
    int32_t whole_n;    /* of the row, including tokens that cannot be picked */
    float scale;        /* 1 / temperature once that stage has run */
    ht_cut cut;
    int32_t n_list; /* -1: none */
    bool whole;
} chain;

/* Shortens the list to n; it then holds all that remain. */
static void end_list(const ht_sampler *s, chain *c, int32_t n) {
    if (n < c->n_list) {
        c->n_list = n;
        c->whole = true;
    }
    if (c->whole) {
        ht_ranked last = s->list[c->n_list - 1];
        c->cut = (ht_cut){c->row.x[ht_ranked_index(last)], ht_ranked_index(last)};
    }
}

/* The cut of min_p at the chain's scale. */
static ht_cut min_p_cut(const ht_sampler *s, const chain *c) {
    /* exp((x - max) * scale) >= min_p; the most likely one always is. */
    float bound = c->row.max + logf(s->o.min_p) / c->scale;
    if (bound > c->row.max) bound = c->row.max;
    return bound > -FLT_MAX ? (ht_cut){bound, INT32_MAX} : ht_cut_none();
}

/* Whether a min_p after `stage`, with no penalty or temperature before it, leaves less than the target. Then top_p
 * cuts nothing and skips its search. The margin covers rounding of sums in another order. */
static bool min_p_cuts_more(const ht_sampler *s, const chain *c, int stage, double target) {
    for (int i = stage + 1; i < HT_SAMPLER_STAGES; i++) {
        if (!stage_on(s, s->order[i])) continue;
        if (!is_filter(s->order[i])) return false;
        if (s->order[i] != HT_STAGE_MIN_P) continue;
        const ht_cut cut = ht_cut_min(c->cut, min_p_cut(s, c));
        return ht_row_mass(&c->row, c->scale, cut, NULL) < target * (1 - 1e-3);
    }
    return false;
}

static void run_top_p(ht_sampler *s, chain *c, int stage) {
    double mass = 0, before = 0;
    if (c->whole)
        ht_row_reach(&c->row, s->list, c->n_list, c->scale, (double)INFINITY, &mass);
    else
        mass = ht_row_mass(&c->row, c->scale, c->cut, NULL);
    double target = (double)s->o.top_p * mass;
    if (c->n_list >= 0) {
        end_list(s, c, ht_row_reach(&c->row, s->list, c->n_list, c->scale, target, &before));
    } else if (!min_p_cuts_more(s, c, stage, target)) {
        c->cut = ht_row_nucleus(&c->row, c->scale, c->cut, target, s->list);
    }
}

static void run_min_p(ht_sampler *s, chain *c) {
    const ht_cut cut = min_p_cut(s, c);
    if (!(cut.value > -FLT_MAX)) return;
    c->cut = ht_cut_min(c->cut, cut);
    if (c->n_list < 0) return;
    int32_t n = c->n_list;
    while (n > 1 && ht_ranked_value(s->list[n - 1]) < cut.value) n--;
    end_list(s, c, n);
}

/* The k of a top_k among the stages from `first` up to the next penalty, or 0. */
static int32_t coming_top_k(const ht_sampler *s, int first, int32_t n) {
    for (int i = first; i < HT_SAMPLER_STAGES; i++) {
        if (!stage_on(s, s->order[i])) continue;
        if (s->order[i] == HT_STAGE_REPEAT_PENALTY) return 0;
        if (s->order[i] == HT_STAGE_TOP_K) return s->o.top_k < n ? s->o.top_k : 0;
    }
    return 0;
}

/* Compacts the row to the tokens that the mask allows. */
static void run_mask(ht_sampler *s, chain *c) {
    int32_t n = 0;
    for (int32_t first = 0; first < s->n_masked; first += 32)
        for (uint32_t bits = s->mask[first >> 5]; bits; bits &= bits - 1) {
            const int32_t id = first + __builtin_ctz(bits);
            if (id >= s->n_masked) break;
            s->ids[n] = id;
            s->x[n++] = c->row.x[id];
        }
    c->row.n = c->whole_n = n;
    c->row.x = s->x;
    c->ids = s->ids;
}

/* Compacts the row to the remaining tokens, in writable memory. */
static void compact(ht_sampler *s, chain *c, bool filtered) {
    if (!filtered) {
        if (c->row.x != s->x) memcpy(s->x, c->row.x, (size_t)c->row.n * sizeof *s->x);
    } else {
        int32_t n = 0;
        for (int32_t i = 0; i < c->row.n; i++) {
            if (!ht_cut_keeps(c->cut, c->row.x[i], i)) continue;
            s->ids[n] = c->ids ? c->ids[i] : i;
            s->x[n++] = c->row.x[i];
        }
        c->row.n = c->whole_n = n;
        c->ids = s->ids;
    }
    c->row.x = s->x;
    c->cut = ht_cut_none();
    c->n_list = -1;
    c->whole = false;
}

static void run_filter(ht_sampler *s, chain *c, int stage) {
    int32_t k = c->n_list < 0 ? coming_top_k(s, stage, c->whole_n) : 0;
    if (k > 0) {
        ht_row_top(&c->row, k, s->list);
        c->n_list = k;
    }
    switch (s->order[stage]) {
    case HT_STAGE_TOP_P: run_top_p(s, c, stage); break;
    case HT_STAGE_MIN_P: run_min_p(s, c); break;
    case HT_STAGE_TOP_K:
        if (c->n_list >= 0) {
            c->whole = true;
            end_list(s, c, c->n_list);
        }
        break;
    default: break;
    }
}

/* The same draw as ht_row_draw, over a list. Leaves the list in order of index. */
static int32_t draw_from_list(ht_sampler *s, const chain *c, double u) {
    int32_t n = c->n_list, last = 0;
    double mass = 0, before = 0;
    ht_row_reach(&c->row, s->list, n, c->scale, (double)INFINITY, &mass);
    const double target = u * mass;
    for (int32_t i = 0; i < n; i++) s->list[i] = s->list[i] << 32 | s->list[i] >> 32;
    ht_ranked_sort(s->list, n);
    float x[HT_ROW_BLOCK], w[HT_ROW_BLOCK];
    for (int32_t first = 0; first < n; first += HT_ROW_BLOCK) {
        int32_t count = n - first < HT_ROW_BLOCK ? n - first : HT_ROW_BLOCK;
        for (int32_t i = 0; i < count; i++) x[i] = c->row.x[ht_ranked_index(s->list[first + i] >> 32)];
        s->ops->weights(x, count, c->row.max, c->scale, w);
        for (int32_t i = 0; i < count; i++) {
            if (w[i] <= 0) continue;
            last = ht_ranked_index(s->list[first + i] >> 32);
            before += (double)w[i];
            if (before > target) return last;
        }
    }
    return last;
}

static int32_t draw(ht_sampler *s, const chain *c, double u) {
    if (c->n_list >= 0) return draw_from_list(s, c, u);
    double mass = ht_row_mass(&c->row, c->scale, c->cut, s->block_mass);
    return ht_row_draw(&c->row, c->scale, c->cut, s->block_mass, mass, u);
}

/* Each logit that may be lowered admits one more candidate. */
int32_t ht_sampler_top_k(const ht_sampler *s, int64_t n_history) {
    int64_t more = count_biased(s), k = s->o.temperature > 0 ? INT32_MAX : 1;
    if (s->constrained) return 0; /* the mask may exclude the highest */
    for (int i = 0; i < HT_SAMPLER_STAGES; i++) {
        ht_sampler_stage stage = s->order[i];
        if (!stage_on(s, stage)) continue;
        if (stage == HT_STAGE_REPEAT_PENALTY) more += count_penalised(s, n_history);
        if (!is_filter(stage) || !s->filters) continue;
        k = stage == HT_STAGE_TOP_K ? s->o.top_k : INT32_MAX; /* later stages see only its result */
        break;
    }
    return k + more < s->vocab ? (int32_t)(k + more) : 0;
}

ht_status ht_sampler_pick_row(ht_sampler *s, const ht_logits_rows *logits, int64_t row, const int32_t *history,
                              int64_t n_history, int32_t *id, ht_error *err) {
    const int64_t n = logits->n;
    chain c = {.row = {.ops = s->ops, .x = logits->x + row * n, .n = (int32_t)n, .block_max = s->block_max},
               .ids = logits->id ? logits->id + row * n : NULL,
               .whole_n = s->vocab,
               .scale = 1,
               .cut = ht_cut_none(),
               .n_list = -1};
    bool scanned = false, filtered = false;
    *id = -1;
    if (s->constrained) run_mask(s, &c);
    if (s->n_bias) {
        compact(s, &c, false);
        add_biases(s, s->x, c.ids, c.row.n);
    }
    for (int i = 0; i < HT_SAMPLER_STAGES; i++) {
        ht_sampler_stage stage = s->order[i];
        if (!stage_on(s, stage)) continue;
        if (stage == HT_STAGE_REPEAT_PENALTY) {
            compact(s, &c, filtered);
            penalise(s, s->x, c.ids, c.row.n, history, n_history);
            scanned = false;
        } else if (stage == HT_STAGE_TEMPERATURE) {
            c.scale = 1 / s->o.temperature;
            if (c.scale > 1e30f) c.scale = 1e30f;
        } else if (s->filters) {
            if (!scanned && !ht_row_scan(&c.row)) return ht_row_fail(&c.row, c.ids, err);
            scanned = filtered = true;
            run_filter(s, &c, i);
        }
    }
    if (!scanned && !ht_row_scan(&c.row)) return ht_row_fail(&c.row, c.ids, err);
    int32_t index =
        s->o.temperature > 0 ? draw(s, &c, ht_philox_uniform(s->o.seed, (uint64_t)n_history)) : ht_row_argmax(&c.row);
    *id = c.ids ? c.ids[index] : index;
    return HT_OK;
}
