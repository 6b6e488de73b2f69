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

static ht_json *top_of(const ht_probe *p) {
    ht_json *list = ht_json_new_array();
    for (int32_t i = 0; i < p->n_top; i++)
        ht_json_array_append_new(list, ht_json_pack("[if]", (int)p->top_token[i], (double)p->top_logit[i]));
    return list;
}

static ht_json *likeliest_of(const ht_probe *p) {
    ht_json *list = ht_json_new_array();
    for (int32_t i = 0; i < p->n_likeliest; i++)
        ht_json_array_append_new(list, ht_json_pack("[if]", (int)p->likeliest[i].id, p->likeliest[i].log_probability));
    return list;
}

static ht_json *floats(const float *values, int32_t n) {
    ht_json *list = ht_json_new_array();
    for (int32_t i = 0; i < n; i++) ht_json_array_append_new(list, ht_json_real((double)values[i]));
    return list;
}

static ht_json *routes_of(const ht_probe *p) {
    ht_json *list = ht_json_new_array();
    for (int32_t i = 0; i < p->n_routes; i++) {
        const ht_probe_route *r = &p->routes[i];
        ht_json_array_append_new(list,
                                 ht_json_pack("{si so so}", "layer", (int)r->layer, "experts",
                                              json_ids(r->expert, (size_t)r->n), "weights", floats(r->weight, r->n)));
    }
    return list;
}

/* What the kind says, as members. */
static ht_json *members_of(const ht_probe *p) {
    switch (p->kind) {
    case HT_PROBE_TOKEN: return ht_json_pack("{si}", "token", (int)p->token);
    case HT_PROBE_TOP: return ht_json_pack("{so}", "top", top_of(p));
    case HT_PROBE_ENTROPY: return ht_json_pack("{sf}", "entropy", p->entropy);
    case HT_PROBE_CACHE:
        return ht_json_pack("{sf sI sI sI}", "pressure", p->pressure, "positions", (int64_t)p->positions, "context",
                            (int64_t)p->context, "bytes", (int64_t)p->cache_bytes);
    case HT_PROBE_MEMORY:
        return ht_json_pack("{sf sI sI sI}", "pressure", p->pressure, "bytes", (int64_t)p->memory_bytes, "peak",
                            (int64_t)p->memory_peak, "limit", (int64_t)p->memory_limit);
    case HT_PROBE_ROUTER: return ht_json_pack("{so}", "layers", routes_of(p));
    case HT_PROBE_RESIDUAL: return ht_json_pack("{so}", "norms", floats(p->norms, p->n_layers));
    case HT_PROBE_LOGPROB:
        return ht_json_pack("{si sf so}", "token", (int)p->token, "logprob", p->log_probability, "top",
                            likeliest_of(p));
    case HT_PROBE_ALL: break;
    }
    return NULL;
}

static void write_line(const ht_probe *p, void *user) {
    probe_lines *lines = user;
    ht_json *line = ht_json_pack("{ss sI sI}", "probe", ht_probe_name(p->kind), "index", (int64_t)p->index, "position",
                                 (int64_t)p->position);
    ht_json *members = members_of(p);
    if (!line || !members || ht_json_object_update(line, members) ||
        ht_json_dumpf(line, lines->file, HT_JSON_COMPACT | HT_JSON_REAL_PRECISION(9)) ||
        fputc('\n', lines->file) == EOF)
        lines->failed = true;
    ht_json_decref(members);
    ht_json_decref(line);
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
