#include "generate/probe.h"

#include "base/checked.h"
#include "base/error.h"
#include "base/options.h"
#include "device/device.h"
#include "generate/logits_row.h"
#include "models/taps.h"

#include <hearth/memory.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const ht_probe_options defaults = {.size = sizeof defaults};

void ht_probe_options_init(ht_probe_options *options, size_t size) {
    ht_options_init(options, size, &defaults, sizeof defaults);
}

const char *ht_probe_name(ht_probe_kind kind) {
    static const char *const names[] = {"token", "top", "entropy", "cache", "memory", "router", "residual", "logprob"};
    for (int i = 0; 1 << i < HT_PROBE_ALL; i++)
        if ((int)kind == 1 << i) return names[i];
    return NULL;
}

enum { OF_LOGITS = HT_PROBE_TOP | HT_PROBE_ENTROPY | HT_PROBE_LOGPROB, OF_TAPS = HT_PROBE_ROUTER | HT_PROBE_RESIDUAL };

struct ht_probing {
    ht_probe_options o;
    const ht_model *model;
    ht_probe seen; /* what the logits and taps of the present step say */
    size_t machine_bytes;
    float *block_max; /* [ht_row_blocks(vocab)] */
    float *norm;      /* [n_layers] */
    int32_t *expert;  /* [n_layers, experts_used] */
    float *weight;    /* likewise */
    ht_probe_route *route;
    ht_token_probability *likeliest; /* [top_logprobs] */
};

/* ---- life ---- */

ht_status ht_probing_read_options(ht_probe_options *o, const ht_probe_options *options, ht_error *err) {
    ht_status status = ht_options_read(o, options, &defaults, sizeof defaults, "ht_probe_options", err);
    if (status || !o->kinds) return status;
    if (o->kinds & ~(unsigned)HT_PROBE_ALL)
        return ht_fail(err, HT_ERR_ARGUMENT, "probes 0x%x are asked for, of which 0x%x are none", o->kinds,
                       o->kinds & ~(unsigned)HT_PROBE_ALL);
    if (!o->fn) return ht_fail(err, HT_ERR_ARGUMENT, "probes are asked for, but there is no function to take them");
    if (o->top_logprobs < 0 || o->top_logprobs > HT_PROBE_MOST_LOGPROBS)
        return ht_fail(err, HT_ERR_ARGUMENT, "top_logprobs is %d, expected 0 to %d", (int)o->top_logprobs,
                       HT_PROBE_MOST_LOGPROBS);
    return HT_OK;
}

static ht_status allocate(ht_probing *p, ht_error *err) {
    const ht_config *c = p->model->config;
    const size_t layers = (size_t)c->n_layers, used = layers * (size_t)c->experts_used;
    const size_t blocks = (size_t)ht_row_blocks(p->model->vocab);
    p->block_max = malloc(blocks * sizeof *p->block_max);
    p->norm = calloc(layers, sizeof *p->norm);
    p->expert = calloc(used + 1, sizeof *p->expert);
    p->weight = calloc(used + 1, sizeof *p->weight);
    p->route = calloc(layers, sizeof *p->route);
    p->likeliest = calloc((size_t)p->o.top_logprobs + 1, sizeof *p->likeliest);
    if (p->block_max && p->norm && p->expert && p->weight && p->route && p->likeliest) return HT_OK;
    return ht_fail_memory(err, blocks * sizeof *p->block_max + used * sizeof *p->expert, "probes");
}

static void place_routes(ht_probing *p) {
    const ht_config *c = p->model->config;
    const int64_t m = c->experts_used;
    for (int64_t l = 0; l < c->n_layers; l++) {
        if (!c->layer[l].has_experts) continue;
        p->route[p->seen.n_routes++] = (ht_probe_route){
            .layer = (int32_t)l, .n = (int32_t)m, .expert = p->expert + l * m, .weight = p->weight + l * m};
    }
    p->seen.routes = p->route;
    p->seen.n_layers = (int32_t)c->n_layers;
    p->seen.norms = p->norm;
    p->seen.likeliest = p->likeliest;
}

ht_status ht_probing_new(const ht_model *m, const ht_probe_options *options, ht_probing **out, ht_error *err) {
    ht_probe_options o;
    *out = NULL;
    ht_status status = ht_probing_read_options(&o, options, err);
    if (status || !o.kinds) return status;
    ht_probing *p = calloc(1, sizeof *p);
    if (!p) return ht_fail_memory(err, sizeof *p, "probes");
    p->o = o;
    p->model = m;
    status = allocate(p, err);
    if (status) {
        ht_probing_free(p);
        return status;
    }
    place_routes(p);
    if (!p->seen.n_routes) p->o.kinds &= ~(unsigned)HT_PROBE_ROUTER;
    if (ht_memory_is_host(m->device->memory)) {
        ht_machine machine;
        ht_machine_read(&machine);
        p->machine_bytes = machine.memory_bytes;
    }
    *out = p;
    return HT_OK;
}

void ht_probing_free(ht_probing *p) {
    if (!p) return;
    free(p->block_max);
    free(p->norm);
    free(p->expert);
    free(p->weight);
    free(p->route);
    free(p->likeliest);
    free(p);
}

bool ht_probing_needs_logits(const ht_probing *p) { return p->o.kinds & OF_LOGITS; }
bool ht_probing_needs_taps(const ht_probing *p) { return p->o.kinds & OF_TAPS; }

/* ---- a row ---- */

static void find_top(ht_probe *seen, const ht_logits_row *row) {
    ht_token_probability top[HT_PROBE_TOP_LOGITS];
    seen->n_top = ht_row_likeliest(row, HT_PROBE_TOP_LOGITS, 0, top);
    for (int32_t i = 0; i < seen->n_top; i++) {
        seen->top_token[i] = top[i].id;
        seen->top_logit[i] = (float)top[i].log_probability;
    }
}

/* Values are summed in lanes by position, the same on every instruction set; enough of them that compilers make vectors of the loop. */
enum { LANES = 64, BLOCK = 2048 };

/* Adds weights exp(x - max) to sum, and these times max - x to drop. */
static void add_lanes(float *restrict sum, float *restrict drop, const float *restrict x, const float *restrict w,
                      float max, int64_t n) {
    for (int64_t l = 0; l < n; l++) {
        sum[l] += w[l];
        drop[l] += w[l] * (max - x[l]);
    }
}

/* log(sum) + sum of w (max - x) / sum: no term is negative, so that nothing cancels. */
static double entropy_of(const ht_logits_row *row) {
    float w[BLOCK];
    double all = 0, all_dropped = 0;
    for (int32_t at = 0; at < row->n; at += BLOCK) {
        const int64_t n = ht_min_i64(BLOCK, row->n - at);
        const float *x = row->x + at;
        float sum[LANES] = {0}, drop[LANES] = {0};
        row->ops->weights(x, n, row->max, 1, w);
        for (int64_t i = 0; i < n; i += LANES) add_lanes(sum, drop, x + i, w + i, row->max, ht_min_i64(LANES, n - i));
        for (int l = 0; l < LANES; l++) {
            all += (double)sum[l];
            all_dropped += (double)drop[l];
        }
    }
    return log(all) + all_dropped / all;
}

static void find_probabilities(ht_probing *p, int32_t token, const ht_logits_row *row) {
    const double log_sum = ht_row_log_sum(row);
    p->seen.log_probability = (double)row->x[token] - log_sum;
    p->seen.n_likeliest = ht_row_likeliest(row, p->o.top_logprobs, log_sum, p->likeliest);
}

void ht_probing_look(ht_probing *p, int32_t token, const float *logits, const float *taps) {
    const ht_model *m = p->model;
    if (p->o.kinds & OF_LOGITS) {
        ht_logits_row row = {.ops = m->device->row_ops, .x = logits, .n = m->vocab, .block_max = p->block_max};
        (void)ht_row_scan(&row); /* finite, or no token was drawn */
        if (p->o.kinds & HT_PROBE_TOP) find_top(&p->seen, &row);
        if (p->o.kinds & HT_PROBE_ENTROPY) p->seen.entropy = entropy_of(&row);
        if (p->o.kinds & HT_PROBE_LOGPROB) find_probabilities(p, token, &row);
    }
    if (p->o.kinds & OF_TAPS) ht_taps_read(m->config, taps, p->norm, p->expert, p->weight);
}

/* ---- handing over ---- */

static double share(double used, double of) { return of > 0 ? used / of : 0; }

static void look_at_cache(ht_probe *out, const ht_probing *p, const ht_probing_token *t) {
    out->positions = t->s->cache->length;
    out->context = p->model->context;
    out->cache_bytes = t->cache_budget ? t->cache_bytes : ht_cache_held_bytes(t->s->cache);
    out->cache_budget = t->cache_budget;
    out->pressure = t->cache_budget ? share((double)t->cache_bytes, (double)t->cache_budget)
                                    : share((double)out->positions, (double)out->context);
}

static void look_at_memory(ht_probe *out, const ht_probing *p) {
    const ht_memory_stats stats = ht_memory_get(p->model->device);
    const size_t limit = ht_memory_limit(p->model->device);
    out->memory_bytes = stats.active_bytes;
    out->memory_peak = stats.peak_bytes;
    out->memory_limit = limit ? limit : p->machine_bytes;
    out->pressure = share((double)out->memory_bytes, (double)out->memory_limit);
}

/* One kind of what was seen, without what belongs to others. */
static ht_probe probe_of(const ht_probing *p, ht_probe_kind kind, const ht_probing_token *t) {
    const ht_probe *seen = &p->seen;
    ht_probe out = {.kind = kind, .index = t->index, .position = t->s->n_tokens};
    switch (kind) {
    case HT_PROBE_TOKEN: out.token = t->token; break;
    case HT_PROBE_TOP:
        out.n_top = seen->n_top;
        memcpy(out.top_token, seen->top_token, sizeof out.top_token);
        memcpy(out.top_logit, seen->top_logit, sizeof out.top_logit);
        break;
    case HT_PROBE_ENTROPY: out.entropy = seen->entropy; break;
    case HT_PROBE_CACHE: look_at_cache(&out, p, t); break;
    case HT_PROBE_MEMORY: look_at_memory(&out, p); break;
    case HT_PROBE_ROUTER:
        out.n_routes = seen->n_routes;
        out.routes = seen->routes;
        break;
    case HT_PROBE_RESIDUAL:
        out.n_layers = seen->n_layers;
        out.norms = seen->norms;
        break;
    case HT_PROBE_LOGPROB:
        out.token = t->token;
        out.log_probability = seen->log_probability;
        out.n_likeliest = seen->n_likeliest;
        out.likeliest = seen->likeliest;
        break;
    case HT_PROBE_ALL: break;
    }
    return out;
}

void ht_probing_show(ht_probing *p, const ht_probing_token *t, ht_probe_fn *fn, void *user) {
    for (unsigned kind = 1; kind & HT_PROBE_ALL; kind *= 2) {
        if (!(p->o.kinds & kind)) continue;
        const ht_probe out = probe_of(p, (ht_probe_kind)kind, t);
        if (fn)
            fn(&out, user);
        else
            p->o.fn(&out, p->o.user);
    }
}

/* ---- copies ---- */

/* One allocation, in this order: the struct, likeliest tokens, routes, experts and weights, norms. */
ht_probe *ht_probe_copy(const ht_probe *probe, size_t *bytes) {
    size_t chosen = 0;
    for (int32_t i = 0; i < probe->n_routes; i++) chosen += (size_t)probe->routes[i].n;
    const size_t routes = (size_t)probe->n_routes, layers = (size_t)probe->n_layers;
    const size_t likeliest = (size_t)probe->n_likeliest * sizeof *probe->likeliest;
    *bytes = sizeof *probe + likeliest + routes * sizeof *probe->routes + chosen * (sizeof(int32_t) + sizeof(float)) +
             layers * sizeof(float);
    ht_probe *copy = malloc(*bytes);
    if (!copy) return NULL;
    *copy = *probe;
    copy->likeliest = (ht_token_probability *)(copy + 1);
    if (likeliest) memcpy(copy + 1, probe->likeliest, likeliest);
    ht_probe_route *route = (ht_probe_route *)((char *)(copy + 1) + likeliest);
    int32_t *expert = (int32_t *)(route + routes);
    float *weight = (float *)(expert + chosen), *norm = weight + chosen;
    copy->routes = route;
    copy->norms = norm;
    for (size_t i = 0; i < routes; i++) {
        const ht_probe_route *from = &probe->routes[i];
        const size_t n = (size_t)from->n;
        route[i] = (ht_probe_route){from->layer, from->n, expert, weight};
        memcpy(expert, from->expert, n * sizeof *expert);
        memcpy(weight, from->weight, n * sizeof *weight);
        expert += n;
        weight += n;
    }
    if (layers) memcpy(norm, probe->norms, layers * sizeof *norm);
    return copy;
}
