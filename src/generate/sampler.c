#include "generate/sampler.h"

#include "base/checked.h"
#include "base/error.h"
#include "base/options.h"
#include "generate/logit_changes.h"
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
    bool filters; /* any of top_k, top_p, min_p is on */
    ht_logit_changes changes;
    float *x;           /* [vocab] the row once it was changed; NULL when nothing changes it */
    int32_t *ids;       /* [vocab] token ids of a row that filters shortened; NULL when that cannot happen */
    float *block_max;   /* [blocks] */
    double *block_mass; /* [blocks]; NULL when greedy */
    ht_ranked *list;    /* [vocab]; NULL without filters */
    bool constrained;   /* x and ids are there, and every pick has a mask */
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

/* Puts each stage that is not among the first n of `order` in front of the first one there that by default comes after
 * it. */
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

static ht_status check_options(const ht_sampler_options *o, ht_error *err) {
    if (!(o->temperature >= 0) || !isfinite(o->temperature))
        return ht_fail(err, HT_ERR_ARGUMENT, "temperature is %g, expected a finite number >= 0",
                       (double)o->temperature);
    if (o->top_k < 0) return ht_fail(err, HT_ERR_ARGUMENT, "top_k is %d, expected 0 (off) or more", (int)o->top_k);
    if (!(o->top_p >= 0 && o->top_p <= 1))
        return ht_fail(err, HT_ERR_ARGUMENT, "top_p is %g, expected 0 to 1", (double)o->top_p);
    if (!(o->min_p >= 0 && o->min_p <= 1))
        return ht_fail(err, HT_ERR_ARGUMENT, "min_p is %g, expected 0 to 1", (double)o->min_p);
    if (!(o->repeat_penalty >= 0) || !isfinite(o->repeat_penalty))
        return ht_fail(err, HT_ERR_ARGUMENT, "repeat_penalty is %g, expected a finite number > 0 (1: off)",
                       (double)o->repeat_penalty);
    if (o->repeat_window < -1)
        return ht_fail(err, HT_ERR_ARGUMENT, "repeat_window is %d, expected -1 (all), 0 (none) or more",
                       (int)o->repeat_window);
    if (!isfinite(o->presence_penalty))
        return ht_fail(err, HT_ERR_ARGUMENT, "presence_penalty is %g, expected a finite number (0: off)",
                       (double)o->presence_penalty);
    if (!isfinite(o->frequency_penalty))
        return ht_fail(err, HT_ERR_ARGUMENT, "frequency_penalty is %g, expected a finite number (0: off)",
                       (double)o->frequency_penalty);
    return HT_OK;
}

static void set_float(float *to, const ht_sampling *model, ht_sampling_field field) {
    if (*to == (float)HT_SAMPLER_UNSET) *to = (float)model->field[field].value;
}

static void set_int(int32_t *to, const ht_sampling *model, ht_sampling_field field) {
    if (*to == HT_SAMPLER_UNSET) *to = (int32_t)model->field[field].value;
}

ht_status ht_sampler_options_read(const ht_sampler_options *options, const ht_sampling *model, ht_sampler_options *out,
                                  ht_error *err) {
    ht_status status = ht_options_read(out, options, &unset, sizeof unset, "ht_sampler_options", err);
    if (status) return status;
    set_float(&out->temperature, model, HT_SAMPLING_TEMPERATURE);
    set_int(&out->top_k, model, HT_SAMPLING_TOP_K);
    set_float(&out->top_p, model, HT_SAMPLING_TOP_P);
    set_float(&out->min_p, model, HT_SAMPLING_MIN_P);
    set_float(&out->repeat_penalty, model, HT_SAMPLING_REPEAT_PENALTY);
    set_int(&out->repeat_window, model, HT_SAMPLING_REPEAT_WINDOW);
    set_float(&out->presence_penalty, model, HT_SAMPLING_PRESENCE_PENALTY);
    set_float(&out->frequency_penalty, model, HT_SAMPLING_FREQUENCY_PENALTY);
    return check_options(out, err);
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

static bool stage_on(const ht_sampler *s, ht_sampler_stage stage) {
    const ht_sampler_options *o = &s->o;
    switch (stage) {
    case HT_STAGE_REPEAT_PENALTY: return ht_logit_changes_penalises(&s->changes);
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
    const bool changes = s->changes.n_bias > 0 || ht_logit_changes_penalises(&s->changes);
    bool filter_seen = false, shortened = false;
    for (int i = 0; i < HT_SAMPLER_STAGES; i++) {
        if (!stage_on(s, s->order[i])) continue;
        if (is_filter(s->order[i])) filter_seen = true;
        if (s->order[i] == HT_STAGE_REPEAT_PENALTY && filter_seen) shortened = true;
    }
    /* The most likely token survives every filter: for it they need not run, unless a penalty comes after them. */
    s->filters = filter_seen && (s->o.temperature > 0 || shortened);
    size_t n = (size_t)s->vocab, blocks = (size_t)ht_row_blocks(s->vocab);
    bool ok = (s->block_max = malloc(blocks * sizeof *s->block_max)) != NULL;
    ok = ok && (s->block_mass = malloc(blocks * sizeof *s->block_mass)) != NULL;
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
    s->o.order = NULL; /* lent for this call alone, as the next */
    s->o.logit_bias = NULL;
    status = ht_sampler_order_parse(o.order, s->order, err);
    if (!status) status = ht_logit_changes_init(&s->changes, &o, vocab, err);
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
    ht_logit_changes_free(&s->changes);
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

void ht_sampler_set_prompt(ht_sampler *s, int64_t n_prompt) { s->changes.n_prompt = n_prompt; }

/* ---- the chain ---- */

/* What is left of the row while the chain runs. `list`, when there is one, holds the highest of the row in order: all
 * that is left when `whole`, else what will be left after a top_k to come. */
typedef struct chain {
    ht_logits_row row;
    const int32_t *ids; /* NULL: an index is an id */
    int32_t whole_n;    /* of the row, with what is not in it as it cannot be picked */
    float scale;        /* 1 / temperature once that stage has run */
    ht_cut cut;
    int32_t n_list; /* -1: none */
    bool whole;
} chain;

static double list_mass(const ht_sampler *s, const chain *c, int32_t n, double target, int32_t *reached) {
    float x[HT_ROW_BLOCK], w[HT_ROW_BLOCK];
    double total = 0;
    *reached = n;
    for (int32_t first = 0; first < n; first += HT_ROW_BLOCK) {
        int32_t count = n - first < HT_ROW_BLOCK ? n - first : HT_ROW_BLOCK;
        for (int32_t i = 0; i < count; i++) x[i] = ht_ranked_value(s->list[first + i]);
        s->ops->weights(x, count, c->row.max, c->scale, w);
        for (int32_t i = 0; i < count; i++) {
            total += (double)w[i];
            if (total >= target) {
                *reached = first + i + 1;
                return total;
            }
        }
    }
    return total;
}

/* Shortens the list to n; what is left then ends in it. */
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

/* Whether a min_p among the stages behind `stage`, with no penalty or temperature before it, leaves less than the target:
 * then top_p has nothing to cut, and its search is saved. The margin is beyond the rounding of sums in another order. */
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
    int32_t reached;
    double mass =
        c->whole ? list_mass(s, c, c->n_list, INFINITY, &reached) : ht_row_mass(&c->row, c->scale, c->cut, NULL);
    double target = (double)s->o.top_p * mass;
    if (c->n_list >= 0) {
        list_mass(s, c, c->n_list, target, &reached);
        end_list(s, c, reached);
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

/* Makes the tokens that the mask allows a row of their own. */
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

/* Makes what is left a row of its own, which may be written to. */
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
    int32_t n = c->n_list, reached, last = 0;
    double target = u * list_mass(s, c, n, INFINITY, &reached), before = 0;
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

/* Logits that are lowered make room for as many others. */
int32_t ht_sampler_top_k(const ht_sampler *s, int64_t n_history) {
    int64_t more = ht_logit_changes_biased(&s->changes), k = s->o.temperature > 0 ? INT32_MAX : 1;
    if (s->constrained) return 0; /* the highest may be none that are allowed */
    for (int i = 0; i < HT_SAMPLER_STAGES; i++) {
        ht_sampler_stage stage = s->order[i];
        if (!stage_on(s, stage)) continue;
        if (stage == HT_STAGE_REPEAT_PENALTY) more += ht_logit_changes_penalised(&s->changes, n_history);
        if (!is_filter(stage) || !s->filters) continue;
        k = stage == HT_STAGE_TOP_K ? s->o.top_k : INT32_MAX; /* what comes after it sees what it left */
        break;
    }
    return k + more < s->vocab ? (int32_t)(k + more) : 0;
}

ht_status ht_sampler_pick(ht_sampler *s, const float *logits, const int32_t *history, int64_t n_history, int32_t *id,
                          ht_error *err) {
    const ht_logits_rows rows = {.x = logits, .n_rows = 1, .n = s->vocab};
    return ht_sampler_pick_row(s, &rows, 0, history, n_history, id, err);
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
    if (s->changes.n_bias) {
        compact(s, &c, false);
        ht_logit_changes_bias(&s->changes, s->x, c.ids, c.row.n);
    }
    for (int i = 0; i < HT_SAMPLER_STAGES; i++) {
        ht_sampler_stage stage = s->order[i];
        if (!stage_on(s, stage)) continue;
        if (stage == HT_STAGE_REPEAT_PENALTY) {
            compact(s, &c, filtered);
            ht_logit_changes_penalise(&s->changes, s->x, c.ids, c.row.n, history, n_history);
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
