#include "probes.h"

#include "json.h"

#include <errno.h>
#include <string.h>

unsigned probes_kinds(const char *list) {
    unsigned kinds = 0;
    for (const char *at = list;;) {
        const size_t n = strcspn(at, ",");
        unsigned found = n == 3 && strncmp(at, "all", n) == 0 ? HT_PROBE_ALL : 0;
        for (unsigned kind = 1; kind & HT_PROBE_ALL; kind *= 2) {
            const char *name = ht_probe_name((ht_probe_kind)kind);
            if (strlen(name) == n && strncmp(at, name, n) == 0) found = kind;
        }
        if (!found) return 0;
        kinds |= found;
        at += n;
        if (!*at++) return kinds;
    }
}

static json_t *top_of(const ht_probe *p) {
    json_t *list = json_array();
    for (int32_t i = 0; i < p->n_top; i++)
        json_array_append_new(list, json_pack("[if]", (int)p->top_token[i], (double)p->top_logit[i]));
    return list;
}

static json_t *likeliest_of(const ht_probe *p) {
    json_t *list = json_array();
    for (int32_t i = 0; i < p->n_likeliest; i++)
        json_array_append_new(list, json_pack("[if]", (int)p->likeliest[i].id, p->likeliest[i].log_probability));
    return list;
}

static json_t *floats(const float *values, int32_t n) {
    json_t *list = json_array();
    for (int32_t i = 0; i < n; i++) json_array_append_new(list, json_real((double)values[i]));
    return list;
}

static json_t *routes_of(const ht_probe *p) {
    json_t *list = json_array();
    for (int32_t i = 0; i < p->n_routes; i++) {
        const ht_probe_route *r = &p->routes[i];
        json_array_append_new(list, json_pack("{si so so}", "layer", (int)r->layer, "experts",
                                              json_ids(r->expert, (size_t)r->n), "weights", floats(r->weight, r->n)));
    }
    return list;
}

/* What the kind says, as members. */
static json_t *members_of(const ht_probe *p) {
    switch (p->kind) {
    case HT_PROBE_TOKEN: return json_pack("{si}", "token", (int)p->token);
    case HT_PROBE_TOP: return json_pack("{so}", "top", top_of(p));
    case HT_PROBE_ENTROPY: return json_pack("{sf}", "entropy", p->entropy);
    case HT_PROBE_CACHE:
        return json_pack("{sf sI sI sI}", "pressure", p->pressure, "positions", (json_int_t)p->positions, "context",
                         (json_int_t)p->context, "bytes", (json_int_t)p->cache_bytes);
    case HT_PROBE_MEMORY:
        return json_pack("{sf sI sI sI}", "pressure", p->pressure, "bytes", (json_int_t)p->memory_bytes, "peak",
                         (json_int_t)p->memory_peak, "limit", (json_int_t)p->memory_limit);
    case HT_PROBE_ROUTER: return json_pack("{so}", "layers", routes_of(p));
    case HT_PROBE_RESIDUAL: return json_pack("{so}", "norms", floats(p->norms, p->n_layers));
    case HT_PROBE_LOGPROB:
        return json_pack("{si sf so}", "token", (int)p->token, "logprob", p->log_probability, "top", likeliest_of(p));
    case HT_PROBE_ALL: break;
    }
    return NULL;
}

static void write_line(const ht_probe *p, void *user) {
    probe_lines *lines = user;
    json_t *line = json_pack("{ss sI sI}", "probe", ht_probe_name(p->kind), "index", (json_int_t)p->index, "position",
                             (json_int_t)p->position);
    json_t *members = members_of(p);
    if (!line || !members || json_object_update(line, members) ||
        json_dumpf(line, lines->file, JSON_COMPACT | JSON_REAL_PRECISION(9)) || fputc('\n', lines->file) == EOF)
        lines->failed = true;
    json_decref(members);
    json_decref(line);
}

ht_status probes_open(const options *o, probe_lines *p, ht_error *err) {
    *p = (probe_lines){.file = stderr, .path = o->probe_out};
    ht_probe_options_init(&p->options, sizeof p->options);
    if (!o->probe) return HT_OK;
    p->options.kinds = probes_kinds(o->probe);
    p->options.top_logprobs = (int32_t)o->top_logprobs;
    p->options.fn = write_line;
    p->options.user = p;
    if (!p->path || (p->file = fopen(p->path, "we"))) return HT_OK;
    snprintf(err->message, sizeof err->message, "%.300s cannot be written: %s", p->path, strerror(errno));
    return err->status = HT_ERR_IO;
}

ht_status probes_close(probe_lines *p, ht_error *err) {
    bool failed = p->failed;
    if (p->path && p->file && fclose(p->file)) failed = true;
    p->file = NULL;
    if (!failed) return HT_OK;
    snprintf(err->message, sizeof err->message, "not all probes could be written to %.300s",
             p->path ? p->path : "standard error");
    return err->status = HT_ERR_IO;
}
