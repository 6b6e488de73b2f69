/* hearth batch: answers many prompts and writes one JSON object per line. */
#include "answer.h"
#include "command.h"
#include "engine.h"
#include "fail.h"
#include "json.h"
#include "many.h"

#include <hearth/batch.h>

#include <stdlib.h>
#include <string.h>

typedef struct batching {
    many m;
    /* Options of the latest request. */
    ht_sampler_options sampler;
    ht_generate_options how;
    int32_t n;
    const char **stop; /* borrowed from the line or from --stop */
    bias_list bias;    /* of the line */
    int64_t generated;
} batching;

/* ---- the options of a line ---- */

typedef enum member_kind { INTEGER, SEED, NUMBER, FLAG } member_kind;

/* Fields with a range-checked scalar value; "stop", "logit_bias" and "adapter" have their own readers. */
static const struct member {
    const char *name;
    member_kind kind; /* of an int32_t, a uint64_t, a float or a bool */
    size_t field;     /* in batching */
    double low, high;
} members[] = {
    {"max_tokens", INTEGER, offsetof(batching, how.max_tokens), 1, 2147483647.0},
    {"thinking_budget", INTEGER, offsetof(batching, how.max_thinking_tokens), -1, 2147483647.0},
    {"temperature", NUMBER, offsetof(batching, sampler.temperature), 0, 1000},
    {"top_k", INTEGER, offsetof(batching, sampler.top_k), 0, 2147483647.0},
    {"top_p", NUMBER, offsetof(batching, sampler.top_p), 0, 1},
    {"min_p", NUMBER, offsetof(batching, sampler.min_p), 0, 1},
    {"repeat_penalty", NUMBER, offsetof(batching, sampler.repeat_penalty), 0, 1000},
    {"presence_penalty", NUMBER, offsetof(batching, sampler.presence_penalty), -1000, 1000},
    {"frequency_penalty", NUMBER, offsetof(batching, sampler.frequency_penalty), -1000, 1000},
    {"repeat_window", INTEGER, offsetof(batching, sampler.repeat_window), -1, 2147483647.0},
    {"seed", SEED, offsetof(batching, sampler.seed), 0, 0},
    {"n", INTEGER, offsetof(batching, n), 1, 256},
    {"ignore_eos", FLAG, offsetof(batching, how.ignore_eos), 0, 0},
};
enum { N_MEMBERS = sizeof members / sizeof *members };

static bool is_member(const char *name) {
    for (int i = 0; i < N_MEMBERS; i++)
        if (strcmp(name, members[i].name) == 0) return true;
    return strcmp(name, "stop") == 0 || strcmp(name, "logit_bias") == 0 || strcmp(name, "adapter") == 0;
}

static ht_status refuse(ht_error *err, const char *name, const char *expected) {
    return ht_fail(err, HT_ERR_ARGUMENT, "\"%s\" must be %s", name, expected);
}

static ht_status read_member(const struct member *m, const ht_json *value, batching *b, ht_error *err) {
    void *field = (char *)b + m->field;
    if (m->kind == FLAG) {
        if (!ht_json_is_boolean(value)) return refuse(err, m->name, "true or false");
        *(bool *)field = ht_json_is_true(value);
        return HT_OK;
    }
    if (m->kind == SEED) return ht_json_modulo(value, field) ? HT_OK : refuse(err, m->name, "a whole number");
    const double number = ht_json_number_value(value);
    const bool fits = m->kind == INTEGER ? ht_json_is_integer(value) : ht_json_is_number(value);
    if (!fits || !(number >= m->low && number <= m->high)) {
        char expected[96];
        snprintf(expected, sizeof expected,
                 m->kind == INTEGER ? "a whole number from %.0f to %.0f" : "a number from %g to %g", m->low, m->high);
        return refuse(err, m->name, expected);
    }
    if (m->kind == INTEGER)
        *(int32_t *)field = (int32_t)ht_json_integer_value(value);
    else
        *(float *)field = (float)number;
    return HT_OK;
}

static ht_status read_stop(batching *b, const ht_json *value, ht_error *err) {
    const size_t n = ht_json_is_array(value) ? ht_json_array_size(value) : 1;
    free(b->stop);
    b->stop = calloc(n + 1, sizeof *b->stop);
    if (!b->stop) return refuse(err, "stop", "less, as there is no memory for it");
    int n_stop = 0;
    for (size_t i = 0; i < n; i++) {
        const char *text = ht_json_string_value(ht_json_is_array(value) ? ht_json_array_get(value, i) : value);
        if (!text) return refuse(err, "stop", "a text or a list of texts");
        if (*text) b->stop[n_stop++] = text;
    }
    b->how.stop = b->stop;
    b->how.n_stop = n_stop;
    return HT_OK;
}

/* Parses {"token id": bias}, as in the OpenAI API. */
static ht_status read_bias(batching *b, const ht_json *value, ht_error *err) {
    const char *id;
    ht_json *number;
    bias_list_free(&b->bias);
    if (!ht_json_is_object(value)) return refuse(err, "logit_bias", "an object of token ids with numbers");
    ht_json_object_foreach((ht_json *)(uintptr_t)value, id, number) {
        const char *expected;
        char text[80];
        const int n = snprintf(text, sizeof text, "%.40s=%.9g", id, ht_json_number_value(number));
        if (!ht_json_is_number(number) || !bias_list_read(&b->bias, text, (size_t)n, &expected))
            return refuse(err, "logit_bias", "an object of token ids with numbers, as in {\"1234\": -100}");
    }
    b->sampler.logit_bias = b->bias.items;
    b->sampler.n_logit_bias = b->bias.n;
    return HT_OK;
}

/* Selects one of the --adapter adapters by name, or none. */
static ht_status choose_adapter(const batching *b, const ht_json *value, ht_request *request, ht_error *err) {
    const adapter_list *list = &b->m.e.adapters;
    const char *name = ht_json_string_value(value);
    request->n_adapters = 0;
    if (ht_json_is_null(value)) return HT_OK;
    for (int i = 0; name && i < list->n; i++)
        if (strcmp(list->name[i], name) == 0) {
            request->adapters = &list->adapter[i];
            request->adapter_scales = &list->scale[i];
            request->n_adapters = 1;
            return HT_OK;
        }
    return refuse(err, "adapter", "the name of one of --adapter NAME=PATH, or null");
}

static ht_status read_options(batching *b, ht_request *request, ht_error *err) {
    const ht_json *object = b->m.line.object, *stop = ht_json_object_get(object, "stop"),
                  *bias = ht_json_object_get(object, "logit_bias"), *adapter = ht_json_object_get(object, "adapter");
    ht_status st = HT_OK;
    for (int i = 0; i < N_MEMBERS && !st; i++) {
        const ht_json *value = ht_json_object_get(object, members[i].name);
        if (value) st = read_member(&members[i], value, b, err);
    }
    if (!st && stop) st = read_stop(b, stop, err);
    if (!st && bias) st = read_bias(b, bias, err);
    if (!st && adapter) st = choose_adapter(b, adapter, request, err);
    request->n = b->n;
    return st;
}

static ht_status next(size_t i, ht_request *request, void *user, ht_error *err) {
    batching *b = user;
    const options *o = b->m.o;
    const size_t index = many_index(&b->m, i);
    ht_status st = prompts_read(&b->m.prompts, index, o, b->m.e.model, is_member, &b->m.line, err);
    if (st) return st;
    ht_generate_options_init(&b->how, sizeof b->how);
    b->sampler = options_sampler(o);
    b->n = 1;
    if (o->max_tokens > 0) b->how.max_tokens = (int32_t)o->max_tokens;
    b->how.max_thinking_tokens = (int32_t)o->thinking_budget;
    b->how.sampler = &b->sampler;
    b->how.stop = o->stop.items;
    b->how.n_stop = o->stop.n;
    const ht_prompt prompt = prompt_of(&b->m.line);
    request->ids = prompt.ids;
    request->n_ids = prompt.n_ids;
    request->text = prompt.text;
    request->chat = prompt.chat;
    request->options = &b->how;
    request->adapters = b->m.e.adapters.adapter;
    request->adapter_scales = b->m.e.adapters.scale;
    request->n_adapters = b->m.e.adapters.n;
    st = read_options(b, request, err);
    return st ? prompts_fail(&b->m.prompts, index, st, err) : HT_OK;
}

/* ---- results ---- */

static ht_json *calls_json(const ht_batch_answer *a) {
    ht_json *calls = ht_json_new_array();
    for (size_t i = 0; calls && i < a->n_calls; i++) ht_json_array_append_new(calls, call_json(&a->calls[i]));
    return calls;
}

/* Adds an answer's results to a JSON object. */
static void put_answer(ht_json *to, const ht_batch_answer *a) {
    const ht_metrics *m = &a->report->metrics;
    if (a->report->status) {
        ht_json_object_set_new(to, "error", ht_json_string(a->report->message));
        return;
    }
    ht_json_object_set_new(to, "text", ht_json_stringn(a->text, a->n_text));
    ht_json_object_set_new(to, "finish", ht_json_string(m->finish == HT_FINISH_STOP ? "stop" : "length"));
    if (a->n_thinking) ht_json_object_set_new(to, "thinking", ht_json_stringn(a->thinking, a->n_thinking));
    if (m->thought_ended) ht_json_object_set_new(to, "thought_ended", ht_json_boolean(true));
    if (a->n_calls) ht_json_object_set_new(to, "tool_calls", calls_json(a));
    ht_json_object_set_new(to, "prompt_tokens", ht_json_integer(m->prompt_tokens + a->report->reuse.reused));
    ht_json_object_set_new(to, "generated_tokens", ht_json_integer(m->generated_tokens));
}

static bool take(const ht_batch_result *r, void *user) {
    batching *b = user;
    bool failed = r->status != HT_OK;
    ht_json *value = many_result(&b->m, r->index, r->status ? r->message : NULL);
    ht_json *list = r->n_answers > 1 ? ht_json_new_array() : NULL;
    for (int32_t i = 0; value && i < r->n_answers; i++) {
        const ht_answer_report *report = r->answers[i].report;
        if (many_interrupted(report->status)) {
            ht_json_decref(list);
            ht_json_decref(value);
            return false;
        }
        ht_json *one = list ? ht_json_new_object() : NULL;
        put_answer(one ? one : value, &r->answers[i]);
        if (one) ht_json_array_append_new(list, one);
        failed = failed || report->status;
        b->generated += report->metrics.generated_tokens;
    }
    if (list) ht_json_object_set_new(value, "answers", list);
    return many_write(&b->m, value, failed);
}

int batch_command(const options *o) {
    batching b = {0};
    ht_error err = {0};
    const int status = many_open(&b.m, o);
    if (status) return status;
    ht_batch_options how;
    ht_batch_options_init(&how, sizeof how);
    how.next = next;
    how.cancel = interrupt_flag();
    how.cache_file = o->cache_file;
    const ht_status st =
        many_left(&b.m) ? ht_batch_generate(b.m.e.model, NULL, many_left(&b.m), &how, take, &b, &err) : HT_OK;
    const double seconds = now_seconds() - b.m.begin;
    progress_end(&b.m.shown);
    char note[DEVICE_NOTE];
    if (!o->quiet && b.generated)
        fprintf(stderr, "%zu prompt%s · %lld token%s · %.1f s · %.1f tok/s%s\n", b.m.done, plural(b.m.done),
                (long long)b.generated, plural(b.generated), seconds, (double)b.generated / seconds,
                device_note(b.m.e.device, note));
    free(b.stop);
    bias_list_free(&b.bias);
    return many_close(&b.m, st, &err);
}
