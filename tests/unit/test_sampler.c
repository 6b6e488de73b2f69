/* The sampler against a plain implementation that sorts everything, its statistics, and its errors. */
#include "device/device.h"
#include "device/matrix.h"
#include "generate/logits_row.h"
#include "generate/philox.h"
#include "generate/sampler.h"
#include "support/options.h"
#include "support/test.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- a plain chain in double precision ---- */

typedef struct item {
    int32_t id;
    double logit, p;
} item;

static int by_logit(const void *a, const void *b) {
    const item *x = a, *y = b;
    if (x->logit != y->logit) return x->logit > y->logit ? -1 : 1;
    return x->id < y->id ? -1 : 1;
}

static int by_id(const void *a, const void *b) { return ((const item *)a)->id < ((const item *)b)->id ? -1 : 1; }

static void probabilities(item *v, int n, double temperature) {
    double max = -INFINITY, sum = 0;
    for (int i = 0; i < n; i++) max = fmax(max, v[i].logit);
    for (int i = 0; i < n; i++) sum += v[i].p = exp((v[i].logit - max) / temperature);
    for (int i = 0; i < n; i++) v[i].p /= sum;
}

/* Where a decision hangs on less than this, float and double may differ: such cases are not compared. */
static const double margin = 1e-6;

static bool allows(const uint32_t *mask, int32_t id) { return !mask || mask[id >> 5] >> (id & 31) & 1; }

/* What a logit becomes by a change of it. */
static double changed(double y) { return (double)(float)fmin(fmax(y, -1e30), 1e30); }

static double biased(const ht_sampler_options *o, int32_t id, double x) {
    for (int i = 0; i < o->n_logit_bias; i++)
        if (o->logit_bias[i].id == id) return changed(x + (double)o->logit_bias[i].bias);
    return x;
}

static double penalised(const ht_sampler_options *o, int32_t id, double x, const int32_t *history, int n_prompt,
                        int n_history) {
    const int window = o->repeat_window < 0 ? n_history : o->repeat_window;
    bool lately = false;
    int count = 0;
    for (int i = 0; i < n_history; i++) {
        if (history[i] != id) continue;
        lately = lately || i >= n_history - window;
        count += i >= n_prompt;
    }
    const float f = (float)x;
    if (lately && o->repeat_penalty != 0) x = changed((double)(f > 0 ? f / o->repeat_penalty : f * o->repeat_penalty));
    if (count) x = changed(x - (count * (double)o->frequency_penalty + (double)o->presence_penalty));
    return x;
}

/* Of the tokens that the mask allows; NULL: all. Returns the id; -1 when a decision is too close to call. */
static int32_t plain_pick(const ht_sampler_options *o, const ht_sampler_stage *order, const float *logits, int n,
                          const uint32_t *mask, const int32_t *history, int n_prompt, int n_history) {
    item *v = calloc((size_t)n, sizeof *v);
    bool close = false;
    double temperature = 1;
    int n_allowed = 0;
    for (int i = 0; i < n; i++)
        if (allows(mask, i)) v[n_allowed++] = (item){i, biased(o, i, (double)logits[i]), 0};
    n = n_allowed;
    for (int stage = 0; stage < HT_SAMPLER_STAGES; stage++) {
        qsort(v, (size_t)n, sizeof *v, by_logit);
        probabilities(v, n, temperature);
        int kept = n;
        double sum = 0;
        switch (order[stage]) {
        case HT_STAGE_REPEAT_PENALTY:
            for (int i = 0; i < n; i++) v[i].logit = penalised(o, v[i].id, v[i].logit, history, n_prompt, n_history);
            break;
        case HT_STAGE_TEMPERATURE:
            if (o->temperature > 0) temperature = (double)o->temperature;
            break;
        case HT_STAGE_TOP_K:
            if (o->top_k > 0 && o->top_k < n) kept = o->top_k;
            break;
        case HT_STAGE_TOP_P:
            if (o->top_p <= 0 || o->top_p >= 1) break;
            for (kept = 0; kept < n && sum < (double)o->top_p; kept++) {
                sum += v[kept].p;
                close = close || fabs(sum - (double)o->top_p) < margin;
            }
            break;
        case HT_STAGE_MIN_P:
            for (kept = 0; kept < n && v[kept].p >= (double)o->min_p * v[0].p; kept++) {}
            for (int i = 0; i < n; i++) close = close || fabs(v[i].p / v[0].p / (double)o->min_p - 1) < margin;
            break;
        case HT_SAMPLER_STAGES: break;
        }
        n = kept;
    }
    qsort(v, (size_t)n, sizeof *v, by_logit);
    int32_t id = v[0].id;
    if (o->temperature > 0) {
        qsort(v, (size_t)n, sizeof *v, by_id);
        probabilities(v, n, temperature);
        double u = ht_philox_uniform(o->seed, (uint64_t)n_history), sum = 0;
        for (int i = 0; i < n; i++) {
            sum += v[i].p;
            close = close || fabs(sum - u) < margin;
            if (sum > u) {
                id = v[i].id;
                break;
            }
        }
    }
    free(v);
    return close ? -1 : id;
}

/* ---- help ---- */

static ht_device *device;
static const ht_row_ops *ops;

static int open_device(void **state) {
    (void)state;
    ht_error err = {0};
    if (ht_device_open("cpu", OPTIONS_AT(ht_device_options, with.n_threads = 1), &device, &err)) return 1;
    ops = device->row_ops;
    return 0;
}

static int close_device(void **state) {
    (void)state;
    ht_device_free(device);
    return 0;
}

static uint32_t lcg = 1;
static uint32_t next_random(void) {
    lcg = lcg * 1664525u + 1013904223u;
    return lcg >> 8;
}
static float uniform(void) { return (float)next_random() * 0x1p-24f; }
static float bell(void) {
    float sum = -6;
    for (int i = 0; i < 12; i++) sum += uniform();
    return sum;
}

static int32_t pick_from(ht_sampler *s, const float *logits, int32_t n, const int32_t *history, int64_t n_history) {
    int32_t id = -2;
    assert_works(ht_sampler_pick_row, s, &(ht_logits_rows){.x = logits, .n = n}, 0, history, n_history, &id);
    return id;
}

static int32_t pick_masked(const ht_sampler_options *o, const float *logits, int32_t n, const uint32_t *mask,
                           const int32_t *history, int n_prompt, int n_history) {
    ht_sampler *s;
    assert_works(ht_sampler_new, o, n, ops, &s);
    ht_sampler_set_prompt(s, n_prompt);
    if (mask) {
        assert_works(ht_sampler_constrain, s);
        assert_int_equal(ht_sampler_top_k(s, n_history), 0);
        ht_sampler_set_mask(s, mask, n);
    }
    const int32_t id = pick_from(s, logits, n, history, n_history);
    ht_sampler_free(s);
    return id;
}

static int32_t pick(const ht_sampler_options *o, const float *logits, int32_t n, const int32_t *history,
                    int n_history) {
    return pick_masked(o, logits, n, NULL, history, 0, n_history);
}

/* Some of n tokens, one at least. */
static void draw_mask(uint32_t *mask, int n) {
    const uint32_t rarity = next_random() % 6;
    memset(mask, 0, ((size_t)n + 31) / 32 * sizeof *mask);
    for (int i = 0; i < n; i++)
        if (next_random() % (1u << 2 * rarity) == 0) mask[i >> 5] |= 1u << (i & 31);
    const uint32_t one = next_random() % (uint32_t)n;
    mask[one >> 5] |= 1u << (one & 31);
}

/* Penalties of tokens that were generated, and biases of some of n tokens, or none of these. */
static void draw_changes(ht_sampler_options *o, int n, bool raises) {
    static ht_logit_bias bias[8];
    static const float extreme[] = {-100, 100, -3e38f, 3e38f, 0};
    const float least = raises ? -1 : 0;
    if (next_random() % 2) o->presence_penalty = least + 2 * uniform();
    if (next_random() % 2) o->frequency_penalty = least + 2 * uniform();
    if (next_random() % 16 == 0) o->frequency_penalty = 3e38f;
    if (next_random() % 2) return;
    o->logit_bias = bias;
    o->n_logit_bias = 0;
    for (int32_t id = (int32_t)(next_random() % 40); id < n && o->n_logit_bias < 8;
         id += 1 + (int32_t)(next_random() % ((uint32_t)n / 4 + 1)))
        bias[o->n_logit_bias++] =
            (ht_logit_bias){id, next_random() % 4 ? 4 * uniform() - 4 : extreme[next_random() % (raises ? 5 : 1)]};
    for (int i = 0; raises && i < o->n_logit_bias; i++)
        if (next_random() % 2) bias[i].bias = -bias[i].bias;
    for (int i = o->n_logit_bias - 1; i > 0; i--) { /* in no order */
        const int j = (int)(next_random() % (uint32_t)(i + 1));
        const ht_logit_bias b = bias[i];
        bias[i] = bias[j];
        bias[j] = b;
    }
}

/* All stages in some order, and as the text that asks for it. */
static const char *shuffle(ht_sampler_stage order[HT_SAMPLER_STAGES]) {
    static const char *const names[] = {"repeat_penalty", "temperature", "top_p", "top_k", "min_p"};
    static char text[64];
    for (int i = 0; i < HT_SAMPLER_STAGES; i++) order[i] = (ht_sampler_stage)i;
    for (int i = HT_SAMPLER_STAGES - 1; i > 0; i--) {
        int j = (int)(next_random() % (uint32_t)(i + 1));
        ht_sampler_stage t = order[i];
        order[i] = order[j];
        order[j] = t;
    }
    text[0] = '\0';
    for (int i = 0; i < HT_SAMPLER_STAGES; i++) {
        if (i) strcat(text, ",");
        strcat(text, names[order[i]]);
    }
    return text;
}

/* ---- tests ---- */

UNIT_TEST(generator_known_answers) {
    uint32_t out[4];
    ht_philox4x32((const uint32_t[4]){0}, (const uint32_t[2]){0}, out);
    assert_int_equal(out[0], 0x6627e8d5);
    assert_int_equal(out[1], 0xe169c58d);
    assert_int_equal(out[2], 0xbc57ac4c);
    assert_int_equal(out[3], 0x9b00dbd8);
    uint32_t ones[4] = {UINT32_MAX, UINT32_MAX, UINT32_MAX, UINT32_MAX};
    ht_philox4x32(ones, ones, out);
    assert_int_equal(out[0], 0x408f276d);
    assert_int_equal(out[1], 0x41c83b0e);
    assert_int_equal(out[2], 0xa20bc7c6);
    assert_int_equal(out[3], 0x6d5451fd);
    double mean = 0;
    for (uint64_t i = 0; i < 10000; i++) {
        double u = ht_philox_uniform(7, i);
        assert_true(u >= 0 && u < 1);
        mean += u / 10000;
    }
    assert_true(fabs(mean - 0.5) < 0.01);
}

UNIT_TEST(greedy_takes_the_lowest_of_ties) {
    static float x[1000];
    ht_sampler_options o = DEFAULTS(ht_sampler_options);
    for (int i = 0; i < 1000; i++) x[i] = -5;
    assert_int_equal(pick(&o, x, 1000, NULL, 0), 0);
    for (int first = 0; first < 1000; first += 37) {
        for (int i = 0; i < 1000; i++) x[i] = i == first || i == 999 ? 2.5f : bell() - 10;
        assert_int_equal(pick(&o, x, 1000, NULL, 0), first);
    }
    x[0] = -0.0f, x[1] = 0.0f;
    assert_int_equal(pick(&o, x, 2, NULL, 0), 0);
    assert_int_equal(pick(&o, x, 1, NULL, 0), 0);
    /* Filters do not change it, a penalty does. */
    o = OPTIONS(ht_sampler_options, with.top_k = 3, with.top_p = 0.1f, with.min_p = 0.5f);
    for (int i = 0; i < 1000; i++) x[i] = (float)(i % 500);
    assert_int_equal(pick(&o, x, 1000, NULL, 0), 499);
    o.repeat_penalty = 2;
    assert_int_equal(pick(&o, x, 1000, (const int32_t[]){499, 499}, 2), 999);
}

/* Chains of every order over rows of many shapes, with ties, against the plain chain. */
UNIT_TEST(agrees_with_the_plain_chain) {
    static const int sizes[] = {1, 2, 5, 127, 128, 129, 1000, 5003, 20000};
    static float x[20000];
    static uint32_t some[625];
    int32_t history[300];
    int compared = 0, close = 0;
    for (int round = 0; round < 3000; round++) {
        int n = sizes[next_random() % (round % 20 ? 7 : 9)];
        int kind = (int)(next_random() % 4);
        float spread = 0.2f + 6 * uniform();
        for (int i = 0; i < n; i++) {
            x[i] = spread * bell();
            if (kind == 1) x[i] = floorf(x[i]); /* many ties */
            if (kind == 2) x[i] = -3;           /* nothing but ties */
        }
        if (kind == 3) x[next_random() % (uint32_t)n] = 60;
        int n_history = (int)(next_random() % 300);
        for (int i = 0; i < n_history; i++) history[i] = (int32_t)(next_random() % (uint32_t)n);
        ht_sampler_options o = OPTIONS(ht_sampler_options, with.seed = next_random() * (uint64_t)0x100000001);
        o.temperature = next_random() % 8 ? 0.1f + 2 * uniform() : 0;
        if (next_random() % 2) o.top_k = 1 + (int32_t)(next_random() % (next_random() % 2 ? 50 : 4000));
        if (next_random() % 2) o.top_p = uniform();
        if (next_random() % 2) o.min_p = uniform() * uniform();
        if (next_random() % 2) o.repeat_penalty = 0.8f + uniform();
        o.repeat_window = (int32_t)(next_random() % 200) - 1;
        const int n_prompt = (int)(next_random() % (uint32_t)(n_history + 1));
        draw_changes(&o, n, true);
        ht_sampler_stage order[HT_SAMPLER_STAGES];
        o.order = shuffle(order);
        const uint32_t *mask = next_random() % 2 ? some : NULL;
        draw_mask(some, n);
        int32_t expected = plain_pick(&o, order, x, n, mask, history, n_prompt, n_history);
        compared++;
        if (expected < 0)
            close++;
        else if (pick_masked(&o, x, n, mask, history, n_prompt, n_history) != expected)
            fail_msg("round %d: n %d kind %d mask %d expected %d", round, n, kind, mask != NULL, expected);
    }
    assert_true(close * 10 < compared);
}

/* From the k highest alone, which are sorted. */
static int32_t pick_of_highest(ht_sampler *s, const float *x, const ht_ranked *sorted, int32_t k,
                               const int32_t *history, int64_t n_history) {
    float *some = malloc((size_t)k * sizeof *some);
    int32_t *ids = malloc((size_t)k * sizeof *ids), id;
    for (int32_t i = 0; i < k; i++) { /* in order of id */
        int32_t at = i;
        for (; at > 0 && ids[at - 1] > ht_ranked_index(sorted[i]); at--) ids[at] = ids[at - 1];
        ids[at] = ht_ranked_index(sorted[i]);
    }
    for (int32_t i = 0; i < k; i++) some[i] = x[ids[i]];
    const ht_logits_rows rows = {some, ids, 1, k};
    assert_works(ht_sampler_pick_row, s, &rows, 0, history, n_history, &id);
    free(some);
    free(ids);
    return id;
}

/* With all but the logits it asks for left out, a sampler picks what it picks from all. */
UNIT_TEST(the_highest_are_enough) {
    enum { N = 3000 };
    static float x[N], left[N];
    static ht_ranked sorted[N];
    int32_t history[100];
    int asked = 0;
    for (int round = 0; round < 3000; round++) {
        float spread = 0.2f + 6 * uniform(), shift = 20 * uniform() - 10;
        for (int i = 0; i < N; i++) {
            x[i] = spread * bell() + shift;
            if (round % 3 == 1) x[i] = floorf(x[i]); /* many ties */
            sorted[i] = ht_rank(x[i], i);
        }
        ht_ranked_sort(sorted, N);
        int n_history = (int)(next_random() % 100);
        for (int i = 0; i < n_history; i++)
            history[i] = ht_ranked_index(sorted[next_random() % (uniform() < 0.5f ? 30 : N)]);
        ht_sampler_options o = OPTIONS(ht_sampler_options, with.seed = next_random());
        if (next_random() % 2) o.temperature = 0.1f + 2 * uniform();
        if (next_random() % 4) o.top_k = 1 + (int32_t)(next_random() % 50);
        if (next_random() % 3 == 0) o.top_p = uniform();
        if (next_random() % 3 == 0) o.min_p = uniform() * uniform();
        if (next_random() % 2) o.repeat_penalty = uniform() < 0.1f ? 3e38f : 0.8f + uniform();
        o.repeat_window = (int32_t)(next_random() % 100) - 1;
        draw_changes(&o, N, next_random() % 8 == 0);
        ht_sampler_stage order[HT_SAMPLER_STAGES];
        o.order = shuffle(order);
        ht_sampler *s;
        assert_works(ht_sampler_new, &o, N, ops, &s);
        ht_sampler_set_prompt(s, next_random() % (uint32_t)(n_history + 1));
        int32_t k = ht_sampler_top_k(s, n_history), all, some;
        assert_true(k >= 0 && k < N);
        if (k > 0) {
            asked++;
            float lowest = ht_ranked_value(sorted[k - 1]);
            for (int i = 0; i < N; i++) left[i] = x[i] < lowest ? HT_MASKED_LOGIT : x[i];
            all = pick_from(s, x, N, history, n_history);
            some = pick_from(s, left, N, history, n_history);
            if (all != some) fail_msg("round %d: %d instead of %d from the highest %d", round, some, all, k);
            some = pick_of_highest(s, x, sorted, k + (int)(next_random() % 3), history, n_history);
            if (all != some) fail_msg("round %d: %d instead of %d from the highest %d alone", round, some, all, k);
        }
        ht_sampler_free(s);
    }
    assert_true(asked > 1000);
}

static int32_t top_k_of(const ht_sampler_options *o, int64_t n_history) {
    ht_sampler *s;
    assert_works(ht_sampler_new, o, 1000, ops, &s);
    ht_sampler_set_prompt(s, n_history < 100 ? 0 : 100);
    int32_t k = ht_sampler_top_k(s, n_history);
    ht_sampler_free(s);
    return k;
}

#define ASKED(k, n_history, ...) assert_int_equal(top_k_of(OPTIONS_AT(ht_sampler_options, __VA_ARGS__), n_history), k)

UNIT_TEST(how_many_are_asked_for) {
    const ht_logit_bias bias[] = {{7, -1}, {3, -100}, {9, 0}}, raised[] = {{7, -1}, {3, 0.5f}};
    ASKED(1, 5, (void)0);
    ASKED(1, 5, with.top_p = 0.5f, with.min_p = 0.1f); /* keep the highest */
    ASKED(6, 5, with.repeat_penalty = 1.1f);
    ASKED(65, 500, with.repeat_penalty = 1.1f);
    ASKED(1, 500, with.repeat_penalty = 1.1f, with.repeat_window = 0);
    ASKED(0, 5, with.repeat_penalty = 0.9f);
    ASKED(0, 5, with.temperature = 1);
    ASKED(40, 5, with.temperature = 1, with.top_k = 40);
    ASKED(40, 5, with.temperature = 1, with.top_k = 40, with.min_p = 0.1f);
    ASKED(0, 5, with.temperature = 1, with.top_k = 40, with.top_p = 0.9f); /* p first */
    ASKED(6, 5, with.presence_penalty = 1);
    ASKED(401, 500, with.frequency_penalty = 1);
    ASKED(65, 130, with.frequency_penalty = 1, with.repeat_penalty = 1.1f);
    ASKED(0, 5, with.presence_penalty = -1);
    ASKED(0, 5, with.presence_penalty = 2, with.frequency_penalty = -1);
    ASKED(4, 5, with.logit_bias = bias, with.n_logit_bias = 3);
    ASKED(9, 5, with.logit_bias = bias, with.n_logit_bias = 3, with.presence_penalty = 1);
    ASKED(0, 5, with.logit_bias = raised, with.n_logit_bias = 2);
    ASKED(0, 5, with.temperature = 1, with.min_p = 0.1f);
    ASKED(0, 5, with.temperature = 1, with.top_k = 1000);
}

/* A nucleus of most of a flat row is found bucket by bucket; the set must be the plain one's to the last member. */
UNIT_TEST(wide_nucleus_is_exact) {
    enum { N = 100000 };
    float *x = malloc(N * sizeof *x);
    float *block_max = malloc((size_t)ht_row_blocks(N) * sizeof *block_max);
    ht_ranked *work = malloc(N * sizeof *work), *sorted = malloc(N * sizeof *sorted);
    for (int kind = 0; kind < 5; kind++) {
        for (int i = 0; i < N; i++) x[i] = kind == 0 ? bell() : kind == 1 ? 0.25f * floorf(4 * bell()) : 1;
        for (int i = 0; i < N && kind == 3; i++) x[i] = 10 * (float)i / (float)N;     /* rises */
        for (int i = 0; i < N && kind == 4; i++) x[i] = i ? 1 + 0.0001f * bell() : 8; /* all but one close together */
        ht_logits_row row = {.ops = ops, .x = x, .n = N, .block_max = block_max};
        assert_true(ht_row_scan(&row));
        for (int i = 0; i < N; i++) sorted[i] = ht_rank(x[i], i);
        ht_ranked_sort(sorted, N);
        double mass = ht_row_mass(&row, 1, ht_cut_none(), NULL);
        for (int tenth = 1; tenth < 10; tenth++) {
            double target = 0.1 * tenth * mass, sum = 0;
            ht_cut cut = ht_row_nucleus(&row, 1, ht_cut_none(), target, work);
            int end = 0;
            while (end < N && sum < target) sum += exp((double)x[ht_ranked_index(sorted[end++])] - (double)row.max);
            int kept = 0;
            for (int i = 0; i < N; i++) kept += ht_cut_keeps(cut, x[i], i);
            assert_true(abs(kept - end) <= 1); /* the sums differ in their last digits */
            assert_true(ht_cut_keeps(cut, x[ht_ranked_index(sorted[kept - 1])], ht_ranked_index(sorted[kept - 1])));
            assert_false(ht_cut_keeps(cut, x[ht_ranked_index(sorted[kept])], ht_ranked_index(sorted[kept])));
        }
    }
    free(x), free(block_max), free(work), free(sorted);
}

/* The highest k, whatever the row's shape: ties go to the lowest index. */
UNIT_TEST(the_highest_are_found) {
    enum { N = 30000 };
    static float x[N], block_max[(N + HT_ROW_BLOCK - 1) / HT_ROW_BLOCK];
    static ht_ranked out[N], sorted[N];
    static const int32_t counts[] = {1, 2, 40, 200, 234, 235, 236, 5000, N};
    for (int kind = 0; kind < 6; kind++) {
        for (int i = 0; i < N; i++) {
            float rise = (float)(i / 7);
            x[i] = kind == 0 ? bell() : kind == 1 ? floorf(bell()) : kind == 2 ? 1 : kind == 3 ? rise : -rise;
            if (kind == 5) x[i] = i % HT_ROW_BLOCK == 77 ? 3 : (float)(i % 2); /* all blocks have the same maximum */
            sorted[i] = ht_rank(x[i], i);
        }
        ht_ranked_sort(sorted, N);
        ht_logits_row row = {.ops = ops, .x = x, .n = N, .block_max = block_max};
        assert_true(ht_row_scan(&row));
        for (size_t c = 0; c < sizeof counts / sizeof *counts; c++) {
            ht_row_top(&row, counts[c], out);
            assert_memory_equal(out, sorted, (size_t)counts[c] * sizeof *out);
        }
    }
}

UNIT_TEST(sorting_and_weights) {
    enum { N = 3000 };
    static ht_ranked r[N];
    static float x[N], w[N];
    for (int shape = 0; shape < 4; shape++) {
        for (int i = 0; i < N; i++) {
            x[i] = shape == 0 ? (float)i : shape == 1 ? (float)-i : shape == 2 ? 1 : bell();
            r[i] = ht_rank(x[i], i);
            assert_true(ht_ranked_value(r[i]) == x[i]);
            assert_int_equal(ht_ranked_index(r[i]), i);
        }
        ht_ranked_sort(r, N);
        for (int i = 1; i < N; i++) assert_true(r[i - 1] > r[i]);
    }
    for (int i = 0; i < N; i++) x[i] = -0.03f * (float)i;
    ops->weights(x, N, 0, 1, w);
    for (int i = 0; i < N; i++) {
        double expected = exp((double)x[i]);
        if (x[i] > -87.3f)
            assert_true(fabs((double)w[i] / expected - 1) < 3e-7);
        else if (x[i] < -87.4f)
            assert_true(w[i] == 0);
    }
}

/* Every instruction set there is gives the same bits as the plain lanes. */
UNIT_TEST(scans_are_the_same_everywhere) {
    enum { N = 1000 };
    static const char *const sets[] = {"avx512", "avxvnni", "avx2", "i8mm", "neon"};
    static uint16_t bucket[2][HT_ROW_BLOCK];
    static float x[N], w[2][N], top[2][(N + HT_ROW_BLOCK - 1) / HT_ROW_BLOCK];
    ht_error err = {0};
    ht_device *plain, *fast;
    assert_int_equal(
        ht_device_open("cpu", OPTIONS_AT(ht_device_options, with.n_threads = 1, with.instruction_set = "reference"),
                       &plain, &err),
        HT_OK);
    for (int i = 0; i < N; i++) x[i] = -60 * uniform();
    for (size_t set = 0; set < sizeof sets / sizeof *sets; set++) {
        if (ht_device_open("cpu", OPTIONS_AT(ht_device_options, with.n_threads = 1, with.instruction_set = sets[set]),
                           &fast, &err))
            continue;
        const ht_row_ops *a = plain->row_ops, *b = fast->row_ops;
        for (int n = 1; n <= N; n += n < 300 ? 1 : 97) {
            assert_true(a->maxima(x, n, top[0]) && b->maxima(x, n, top[1]));
            assert_memory_equal(top[0], top[1], (size_t)ht_row_blocks(n) * sizeof(float));
            a->weights(x, n, 1, 1.7f, w[0]);
            b->weights(x, n, 1, 1.7f, w[1]);
            assert_memory_equal(w[0], w[1], (size_t)n * sizeof(float));
            int m = n < HT_ROW_BLOCK ? n : HT_ROW_BLOCK;
            for (int strict = 0; strict < 2; strict++)
                assert_true(a->mass(x, m, 1, 1.7f, x[n / 2], strict) == b->mass(x, m, 1, 1.7f, x[n / 2], strict));
            a->buckets(x, m, x[n / 3], x[n / 2], 7.3f, bucket[0]);
            b->buckets(x, m, x[n / 3], x[n / 2], 7.3f, bucket[1]);
            assert_memory_equal(bucket[0], bucket[1], (size_t)m * sizeof(uint16_t));
            for (int i = 0; i < m; i++)
                assert_int_equal(bucket[0][i] == HT_ROW_BUCKETS, x[i] < x[n / 3] || x[i] > x[n / 2]);
        }
        ht_device_free(fast);
    }
    ht_device_free(plain);
}

/* Frequencies of 40,000 draws against the probabilities: chi-squared with 7 degrees of freedom, 1 in 10^5 by chance. */
UNIT_TEST(draws_follow_the_probabilities) {
    enum { N = 8, DRAWS = 40000 };
    static const float x[N] = {0.5f, 2, -1, 1.25f, 0, 2, -0.5f, 1};
    double p[N], total = 0, chi = 0;
    int count[N] = {0};
    ht_sampler_options o = OPTIONS(ht_sampler_options, with.temperature = 0.7f, with.seed = 42);
    ht_sampler *s;
    assert_works(ht_sampler_new, &o, N, ops, &s);
    for (int i = 0; i < DRAWS; i++) count[pick_from(s, x, N, NULL, i)]++;
    ht_sampler_free(s);
    for (int i = 0; i < N; i++) total += p[i] = exp((double)x[i] / 0.7);
    for (int i = 0; i < N; i++) {
        double expected = p[i] / total * (double)DRAWS;
        chi += (count[i] - expected) * (count[i] - expected) / expected;
    }
    assert_true(chi < 35);
}

UNIT_TEST(bad_logits_are_errors) {
    static float x[300];
    const float bad[] = {NAN, INFINITY, -INFINITY};
    const ht_logit_bias bias[] = {{13, 3e38f}, {26, -3e38f}};
    ht_sampler_options chains[] = {
        DEFAULTS(ht_sampler_options), OPTIONS(ht_sampler_options, with.temperature = 1),
        OPTIONS(ht_sampler_options, with.temperature = 1, with.top_k = 2, with.repeat_penalty = 1.5f),
        OPTIONS(ht_sampler_options, with.logit_bias = bias, with.n_logit_bias = 2, with.presence_penalty = 3e38f)};
    const int32_t history[] = {13, 39, 39};
    for (int c = 0; c < 4; c++)
        for (int b = 0; b < 3; b++)
            for (int at = 0; at < 300; at += 13) {
                memset(x, 0, sizeof x);
                x[at] = bad[b];
                ht_sampler *s;
                ht_error err = {0};
                int32_t id = 0;
                assert_int_equal(ht_sampler_new(&chains[c], 300, ops, &s, &err), HT_OK);
                assert_int_equal(ht_sampler_pick_row(s, &(ht_logits_rows){.x = x, .n = 300}, 0, history, 3, &id, &err),
                                 HT_ERR_INTERNAL);
                assert_int_equal(id, -1);
                char token[32];
                snprintf(token, sizeof token, "token %d is", at);
                assert_non_null(strstr(err.message, token));
                ht_sampler_free(s);
            }
}

/* What OpenAI defines, on numbers that a reader can check; n of the history's tokens are the prompt's. */
UNIT_TEST(changes_by_hand) {
    static const float x[] = {1, 2, 3, 2.5f};
    static const int32_t history[] = {2, 3, 3, 1, 3};
    ht_sampler_options o = OPTIONS(ht_sampler_options, with.presence_penalty = 0.75f);
    assert_int_equal(pick_masked(&o, x, 4, NULL, history, 5, 5), 2); /* nothing was generated */
    assert_int_equal(pick_masked(&o, x, 4, NULL, history, 1, 5), 2); /* token 3 is at 1.75 */
    assert_int_equal(pick_masked(&o, x, 4, NULL, history, 0, 5), 2); /* token 2 is at 2.25, token 1 at 1.25 */
    o.frequency_penalty = 0.5f;
    assert_int_equal(pick_masked(&o, x, 4, NULL, history, 0, 5), 2); /* 1.75 against 0.25, 0.75 and 1 */
    o.frequency_penalty = 1;
    assert_int_equal(pick_masked(&o, x, 4, NULL, history, 0, 5), 2); /* 1.25 against 1 */
    o.frequency_penalty = 1.25f;
    assert_int_equal(pick_masked(&o, x, 4, NULL, history, 0, 5), 0); /* 1 is a tie, the lowest id wins */
    o = OPTIONS(ht_sampler_options, with.frequency_penalty = -0.5f);
    assert_int_equal(pick_masked(&o, x, 4, NULL, history, 0, 5), 3); /* 2.5 + 1.5 */
    assert_int_equal(pick_masked(&o, x, 4, NULL, history, 4, 5), 2); /* 2.5 + 0.5 is a tie */
    const ht_logit_bias bias[] = {{2, -100}, {0, 1.25f}};
    o = OPTIONS(ht_sampler_options, with.logit_bias = bias, with.n_logit_bias = 2);
    assert_int_equal(pick(&o, x, 4, NULL, 0), 3);
    assert_int_equal(pick_masked(&o, x, 4, (const uint32_t[]){7}, NULL, 0, 0), 0); /* 2.25 and 2 are left */
    assert_int_equal(pick_masked(&o, x, 4, (const uint32_t[]){4}, NULL, 0, 0),
                     2); /* however low, it alone is allowed */
}

/* The largest changes leave logits finite, whatever follows them: the chain has no infinity to stumble on. */
UNIT_TEST(extreme_changes) {
    enum { N = 2000 };
    static float x[N];
    int32_t history[N];
    for (int i = 0; i < N; i++) {
        x[i] = bell();
        history[i] = i % 50;
    }
    const ht_logit_bias up[] = {{1234, 3.4e38f}}, down[] = {{60, -3.4e38f}, {61, -3.4e38f}};
    const ht_sampler_options filters =
        OPTIONS(ht_sampler_options, with.temperature = 1, with.top_p = 0.9f, with.min_p = 0.01f, with.top_k = 100);
    for (int i = 0; i < 200; i++) {
        ht_sampler_options o = filters;
        o.seed = (uint64_t)i;
        if (i % 2) o.top_k = 0;
        if (i % 3) o.top_p = 0;
        if (i % 5) o.repeat_penalty = 3e38f;
        o.logit_bias = up;
        o.n_logit_bias = 1;
        assert_int_equal(pick(&o, x, N, history, 100), 1234);
        o.frequency_penalty = i % 2 ? 3.4e38f : -3.4e38f;
        o.logit_bias = down;
        o.n_logit_bias = 2;
        o.repeat_penalty = 1;
        const int32_t id = pick(&o, x, N, history, 100);
        assert_true(id != 60 && id != 61 && (i % 2 ? id >= 50 : id >= 0 && id < 50));
    }
    /* Nothing but changed tokens: all at the bound, and so alike. */
    ht_sampler_options o = OPTIONS(ht_sampler_options, with.presence_penalty = 3.4e38f);
    assert_int_equal(pick(&o, x, 50, history, 50), 0);
    o.temperature = 1;
    int differ = 0;
    for (int i = 0; i < 40; i++) {
        o.seed = (uint64_t)i;
        differ += pick(&o, x, 50, history, 50) != 0;
    }
    assert_true(differ > 20);
}

UNIT_TEST(orders_are_parsed) {
    ht_sampler_stage order[HT_SAMPLER_STAGES];
    ht_error err = {0};
    assert_int_equal(ht_sampler_order_parse("top_p,min_p,top_k,temperature", order, &err), HT_OK);
    const ht_sampler_stage expected[] = {HT_STAGE_REPEAT_PENALTY, HT_STAGE_TOP_P, HT_STAGE_MIN_P, HT_STAGE_TOP_K,
                                         HT_STAGE_TEMPERATURE};
    assert_memory_equal(order, expected, sizeof order);
    assert_int_equal(ht_sampler_order_parse("min_p,repeat_penalty", order, &err), HT_OK);
    const ht_sampler_stage second[] = {HT_STAGE_TEMPERATURE, HT_STAGE_TOP_P, HT_STAGE_TOP_K, HT_STAGE_MIN_P,
                                       HT_STAGE_REPEAT_PENALTY};
    assert_memory_equal(order, second, sizeof order);
    assert_int_equal(ht_sampler_order_parse(NULL, order, &err), HT_OK);
    for (int i = 0; i < HT_SAMPLER_STAGES; i++) assert_int_equal(order[i], i);
    assert_int_equal(ht_sampler_order_check("top_k", &err), HT_OK);
    static const char *const wrong[] = {"", "top_p,", "top_q", "top_p top_k", "top_p,top_p", "top_p,,min_p", "Top_p"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        err = (ht_error){0};
        assert_fails(HT_ERR_ARGUMENT, "sampler order", ht_sampler_order_check, wrong[i]);
    }
}

UNIT_TEST(bad_options_are_refused) {
    const ht_sampler_options wrong[] = {
        {.temperature = -1},
        {.temperature = NAN},
        {.temperature = INFINITY},
        {.top_k = -1},
        {.top_p = 1.5f},
        {.top_p = -0.1f},
        {.top_p = NAN},
        {.min_p = 2},
        {.repeat_penalty = -1},
        {.repeat_penalty = INFINITY},
        {.repeat_window = -2},
        {.presence_penalty = NAN},
        {.presence_penalty = INFINITY},
        {.frequency_penalty = -INFINITY},
        {.frequency_penalty = NAN},
        {.n_logit_bias = -1},
        {.n_logit_bias = 1},
        {.logit_bias = (const ht_logit_bias[]){{10, 1}}, .n_logit_bias = 1},
        {.logit_bias = (const ht_logit_bias[]){{-1, 1}}, .n_logit_bias = 1},
        {.logit_bias = (const ht_logit_bias[]){{1, NAN}}, .n_logit_bias = 1},
        {.logit_bias = (const ht_logit_bias[]){{1, -INFINITY}}, .n_logit_bias = 1},
        {.logit_bias = (const ht_logit_bias[]){{4, 1}, {2, 1}, {4, 1}}, .n_logit_bias = 3},
        {.order = "top_p,top_p"},
        {.order = "beam"},
        {.order = ""},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        ht_sampler *s = (void *)1;
        ht_error err = {0};
        ht_sampler_options o = wrong[i];
        assert_int_equal(ht_sampler_new(&o, 10, ops, &s, &err), HT_ERR_ARGUMENT);
        assert_string_equal(err.message, "the ht_sampler_options were not made by ht_sampler_options_init(&options, "
                                         "sizeof options)");
        o.size = sizeof o;
        assert_int_equal(ht_sampler_new(&o, 10, ops, &s, &err), HT_ERR_ARGUMENT);
        assert_null(s);
        assert_null(strstr(err.message, "not made by"));
    }
    ht_sampler *s;
    ht_error err = {0};
    assert_int_equal(ht_sampler_new(OPTIONS_AT(ht_sampler_options, (void)0), 0, ops, &s, &err), HT_ERR_ARGUMENT);
    ht_sampler_free(NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(generator_known_answers),
        cmocka_unit_test(greedy_takes_the_lowest_of_ties),
        cmocka_unit_test(changes_by_hand),
        cmocka_unit_test(extreme_changes),
        cmocka_unit_test(the_highest_are_enough),
        cmocka_unit_test(how_many_are_asked_for),
        cmocka_unit_test(agrees_with_the_plain_chain),
        cmocka_unit_test(wide_nucleus_is_exact),
        cmocka_unit_test(the_highest_are_found),
        cmocka_unit_test(sorting_and_weights),
        cmocka_unit_test(scans_are_the_same_everywhere),
        cmocka_unit_test(draws_follow_the_probabilities),
        cmocka_unit_test(bad_logits_are_errors),
        cmocka_unit_test(orders_are_parsed),
        cmocka_unit_test(bad_options_are_refused),
    };
    return cmocka_run_group_tests(tests, open_device, close_device);
}
