#include "answer.h"

#include "command.h"
#include "engine.h"
#include "fail.h"
#include "json.h"
#include "terminal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- kept ---- */

ht_json *call_json(const ht_tool_call *call) {
    ht_json *arguments = ht_json_of(call->arguments, strlen(call->arguments));
    if (!arguments) arguments = ht_json_string(call->arguments);
    return ht_json_pack("{ss so ss*}", "name", call->name, "arguments", arguments, "id", call->id);
}

static bool keep(answer *a, ht_text *part, const char *text, size_t n) {
    ht_text_append(part, text, n);
    a->out_of_memory = part->failed;
    return !part->failed;
}

static bool keep_call(answer *a, const ht_tool_call *call) {
    if (!a->calls) a->calls = ht_json_new_array();
    a->out_of_memory = ht_json_array_append_new(a->calls, call_json(call)) != 0;
    return !a->out_of_memory;
}

/* ---- shown ---- */

static bool put(answer *a, const char *text, size_t n) {
    if (n) a->in_line = text[n - 1] != '\n';
    return output_write(text, n) && output_flush();
}

static bool put_text(answer *a, const char *text) { return put(a, text, strlen(text)); }

/* Respects NO_COLOR (https://no-color.org). */
static bool dims(void) {
    const char *no = getenv("NO_COLOR");
    return !no || !*no;
}

static bool show_thought(answer *a, const char *text, size_t n) {
    if (!output_is_terminal()) return true;
    if (!a->dimmed && dims() && !put_text(a, "\033[2m")) return false;
    a->dimmed = true;
    return put(a, text, n);
}

static bool end_thought(answer *a, const char *gap) {
    if (!a->dimmed) return true;
    a->dimmed = false;
    return (!dims() || put_text(a, "\033[0m")) && put_text(a, gap);
}

static bool show_call(answer *a, const ht_tool_call *call) {
    return (!a->in_line || put_text(a, "\n")) && put_text(a, call->name) && put_text(a, " ") &&
           put_text(a, call->arguments) && put_text(a, "\n");
}

/* ---- as it comes ---- */

bool answer_text(const char *text, size_t n, void *user) {
    answer *a = user;
    a->has_text = true;
    return (!a->keeps || keep(a, &a->text, text, n)) && (!a->shows || put(a, text, n));
}

bool answer_piece(const ht_answer_piece *piece, void *user) {
    answer *a = user;
    if (piece->part == HT_ANSWER_THINKING) {
        a->has_thought = true;
        return (!a->keeps || keep(a, &a->thinking, piece->text, piece->n)) &&
               (!a->shows || show_thought(a, piece->text, piece->n));
    }
    if (!end_thought(a, "\n\n")) return false;
    if (piece->part != HT_ANSWER_CALL) return answer_text(piece->text, piece->n, a);
    a->has_text = true;
    return (!a->keeps || keep_call(a, piece->call)) && (!a->shows || show_call(a, piece->call));
}

void answer_end(answer *a) {
    end_thought(a, "\n");
    if (a->in_line) put_text(a, "\n");
}

void answer_free(answer *a) {
    ht_text_discard(&a->text);
    ht_text_discard(&a->thinking);
    ht_json_decref(a->calls);
    *a = (answer){0};
}

/* ---- statistics ---- */

static double rate(double count, double seconds) { return seconds > 0 && count > 0 ? count / seconds : 0; }

double prefill_rate(const ht_metrics *m) { return rate((double)m->prompt_tokens, m->prefill_seconds); }
double decode_rate(const ht_metrics *m) { return rate((double)(m->generated_tokens - 1), m->decode_seconds); }

/* Names the options that allow a longer answer once the context is full. */
static const char *more_context(const options *o) {
    if (!backend_is_native(o)) return "--context raises the limit, up to that of the model";
    return o->context ? "--context raises the limit, --sliding discards the oldest tokens and goes on"
                      : "--sliding discards the oldest tokens and goes on";
}

void limit_print(const options *o, const ht_metrics *m, int32_t max_tokens, int64_t context, const answer *a) {
    if (m->finish != HT_FINISH_LENGTH) return;
    const bool talks = o->command->bit == FOR_CHAT, full = m->generated_tokens < max_tokens;
    if (full || !o->quiet)
        fprintf(stderr, "stopped after %lld token%s", (long long)m->generated_tokens, plural(m->generated_tokens));
    if (full) {
        fprintf(stderr, ", as the context");
        if (context) fprintf(stderr, " of %lld token%s", (long long)context, plural(context));
        fprintf(stderr, " is full; %s%s\n", more_context(o), talks ? ", /clear starts over" : "");
    } else if (!o->quiet)
        fprintf(stderr, "; %s raises the limit\n", talks ? "--max-tokens or /set max_tokens" : "--max-tokens");
    if (a->has_thought && !a->has_text)
        fprintf(stderr,
                "the answer ended within its thinking; --thinking-budget ends that sooner, --no-thinking leaves "
                "it out\n");
}

void metrics_print(const ht_metrics *m) {
    fprintf(stderr, "prefill %lld tok", (long long)m->prompt_tokens);
    if (m->reused_tokens) fprintf(stderr, " · %lld reused", (long long)m->reused_tokens);
    fprintf(stderr, " · ttft %.0f ms", m->first_token_seconds * 1e3);
    if (decode_rate(m) > 0) fprintf(stderr, " · %.1f tok/s", decode_rate(m));
    if (m->guessed_tokens)
        fprintf(stderr, " · %lld of %lld draft token%s accepted", (long long)m->accepted_tokens,
                (long long)m->guessed_tokens, plural(m->guessed_tokens));
}

/* ---- probes ---- */

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

static ht_json *routes_of(const ht_probe *p) {
    ht_json *list = ht_json_new_array();
    for (int32_t i = 0; i < p->n_routes; i++) {
        const ht_probe_route *r = &p->routes[i];
        ht_json_array_append_new(list, ht_json_pack("{si so so}", "layer", (int)r->layer, "experts",
                                                    json_ids(r->expert, (size_t)r->n), "weights",
                                                    json_floats(r->weight, (size_t)r->n)));
    }
    return list;
}

/* The probe's values as JSON fields. */
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
    case HT_PROBE_RESIDUAL: return ht_json_pack("{so}", "norms", json_floats(p->norms, (size_t)p->n_layers));
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
    return fail_system(err, p->path, "written");
}

ht_status probes_close(probe_lines *p, ht_error *err) {
    bool failed = p->failed;
    if (p->path && p->file && fclose(p->file)) failed = true;
    p->file = NULL;
    if (!failed) return HT_OK;
    return ht_fail(err, HT_ERR_IO, "not all probes could be written to %.300s", p->path ? p->path : "standard error");
}
