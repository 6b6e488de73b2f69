#include "checkpoint/sampling.h"

#include "base/error.h"
#include "base/log.h"

#include <float.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char generation_file[] = "generation_config.json";

/* Names of fields in generation_config.json (transformers; penalties as in other servers) and in GGUF metadata
 * (llama.cpp); NULL: none. */
static const struct spec {
    const char *name, *json, *gguf;
    bool whole;
    double low, high, fallback;
} specs[HT_SAMPLING_FIELDS] = {
    [HT_SAMPLING_TEMPERATURE] = {"temperature", "temperature", "general.sampling.temp", false, 0, FLT_MAX, 0.7},
    [HT_SAMPLING_TOP_K] = {"top_k", "top_k", "general.sampling.top_k", true, -1, INT32_MAX, 0},
    [HT_SAMPLING_TOP_P] = {"top_p", "top_p", "general.sampling.top_p", false, 0, 1, 0.95},
    [HT_SAMPLING_MIN_P] = {"min_p", "min_p", "general.sampling.min_p", false, 0, 1, 0.05},
    [HT_SAMPLING_REPEAT_PENALTY] = {"repeat_penalty", "repetition_penalty", "general.sampling.penalty_repeat", false, 0,
                                    FLT_MAX, 1},
    [HT_SAMPLING_REPEAT_WINDOW] = {"repeat_window", NULL, "general.sampling.penalty_last_n", true, -1, INT32_MAX, 64},
    [HT_SAMPLING_PRESENCE_PENALTY] = {"presence_penalty", "presence_penalty", NULL, false, -FLT_MAX, FLT_MAX, 0},
    [HT_SAMPLING_FREQUENCY_PENALTY] = {"frequency_penalty", "frequency_penalty", NULL, false, -FLT_MAX, FLT_MAX, 0},
};

ht_sampling ht_sampling_defaults(void) {
    ht_sampling s;
    for (int i = 0; i < HT_SAMPLING_FIELDS; i++)
        s.field[i] = (ht_sampling_value){.name = specs[i].name, .value = specs[i].fallback, .source = "default"};
    return s;
}

/* False for a value out of range. A checkpoint's top_k of -1 disables it, like 0. */
static bool set(ht_sampling *s, int i, double value, const char *source) {
    if (!(value >= specs[i].low && value <= specs[i].high)) return false;
    if (i == HT_SAMPLING_TOP_K && value < 0) value = 0;
    s->field[i].value = value;
    s->field[i].source = source;
    return true;
}

/* ---- generation_config.json ---- */

static void read_json_field(ht_sampling *s, int i, ht_json_reader *r, const ht_json *root) {
    double value = 0;
    int64_t whole = 0;
    const char *key = specs[i].json;
    if (!key) return;
    if (specs[i].whole ? !ht_json_i64(r, root, key, &whole) : !ht_json_f64(r, root, key, &value)) return;
    if (specs[i].whole) value = (double)whole;
    if (!set(s, i, value, generation_file))
        ht_json_fail(r, HT_ERR_FORMAT, "`%s` is %g, expected a number from %g to %g", key, value, specs[i].low,
                     specs[i].high);
}

ht_status ht_sampling_from_json(ht_json_text generation, ht_sampling *out, ht_error *err) {
    ht_json *root;
    bool samples = true;
    *out = ht_sampling_defaults();
    if (!generation.data) return HT_OK;
    ht_status status = ht_json_parse(generation.data, generation.size, generation_file, &root, err);
    if (status) return status;
    ht_json_reader r = {.file = generation_file, .err = err};
    for (int i = 0; i < HT_SAMPLING_FIELDS; i++) read_json_field(out, i, &r, root);
    /* Many checkpoints give a temperature without do_sample; this means sampling. */
    if (ht_json_bool(&r, root, "do_sample", &samples) && !samples)
        set(out, HT_SAMPLING_TEMPERATURE, 0, generation_file);
    /* The penalty of transformers covers all tokens. */
    if (strcmp(out->field[HT_SAMPLING_REPEAT_PENALTY].source, generation_file) == 0)
        set(out, HT_SAMPLING_REPEAT_WINDOW, -1, generation_file);
    ht_json_decref(root);
    return r.status;
}

static ht_json *number_of(int i, double value) {
    return specs[i].whole ? ht_json_integer((int64_t)value) : ht_json_real(value);
}

static bool from_checkpoint(const ht_sampling_value *v) { return strcmp(v->source, "default") != 0; }

void ht_sampling_to_json(const ht_sampling *s, ht_document *generation) {
    const ht_sampling_value *t = &s->field[HT_SAMPLING_TEMPERATURE];
    const bool greedy = from_checkpoint(t) && t->value == 0;
    bool any = false;
    for (int i = 0; i < HT_SAMPLING_FIELDS; i++) any = any || (specs[i].json && from_checkpoint(&s->field[i]));
    if (any) ht_document_set(generation, "do_sample", ht_json_boolean(!greedy));
    for (int i = 0; i < HT_SAMPLING_FIELDS; i++)
        if (specs[i].json && from_checkpoint(&s->field[i]) && !(i == HT_SAMPLING_TEMPERATURE && greedy))
            ht_document_set(generation, specs[i].json, number_of(i, s->field[i].value));
}

/* ---- GGUF ---- */

/* Warns of unsupported llama.cpp samplers that a file enables. */
static void warn_of_others(const ht_gguf *g, const char *file) {
    static const char *const keys[] = {"general.sampling.xtc_probability", "general.sampling.mirostat"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        double value = 0;
        int64_t whole = 0;
        if (!ht_gguf_get_f64(g, keys[i], &value) && ht_gguf_get_i64_saturated(g, keys[i], &whole))
            value = (double)whole;
        if (value > 0)
            ht_log_write(HT_LOG_WARNING, "%s: `%s` is %g; this sampler is not supported", file, keys[i], value);
    }
    if (ht_gguf_find(g, "general.sampling.sequence"))
        ht_log_write(HT_LOG_WARNING,
                     "%s: `general.sampling.sequence` is not supported; samplers run in the default order", file);
}

double ht_short_decimal(double value) {
    char text[32];
    for (int digits = 1; digits <= 9 && (double)(float)value == value; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, value);
        if (strtof(text, NULL) == (float)value) return strtod(text, NULL);
    }
    return value;
}

/* Sets *any if a sampling key is present. */
static ht_status read_gguf(const ht_gguf *g, const char *file, ht_sampling *out, bool *any, ht_error *err) {
    *any = false;
    for (int i = 0; i < HT_SAMPLING_FIELDS; i++) {
        const char *key = specs[i].gguf;
        double value = NAN;
        int64_t whole;
        if (!key || !ht_gguf_find(g, key)) continue;
        *any = true;
        if (ht_gguf_get_i64_saturated(g, key, &whole))
            value = (double)whole;
        else if (!specs[i].whole && ht_gguf_get_f64(g, key, &value))
            value = ht_short_decimal(value);
        if (isnan(value))
            return ht_fail(err, HT_ERR_FORMAT, "%s: `%s` is not %s", file, key,
                           specs[i].whole ? "an integer" : "a number");
        if (!set(out, i, value, "GGUF metadata"))
            return ht_fail(err, HT_ERR_FORMAT, "%s: `%s` is %g, expected a number from %g to %g", file, key, value,
                           specs[i].low, specs[i].high);
    }
    warn_of_others(g, file);
    return HT_OK;
}

void ht_sampling_to_gguf(const ht_sampling *s, ht_document *metadata) {
    for (int i = 0; i < HT_SAMPLING_FIELDS; i++)
        if (specs[i].gguf && from_checkpoint(&s->field[i]))
            ht_document_set(metadata, specs[i].gguf,
                            ht_json_pack("{ss so}", "dtype", specs[i].whole ? "i32" : "f32", "value",
                                         number_of(i, s->field[i].value)));
}

/* ---- both ---- */

ht_status ht_sampling_read(const ht_checkpoint_files *c, ht_sampling *out, ht_error *err) {
    bool any;
    if (!c->gguf) return ht_sampling_from_json((ht_json_text){c->generation_text, c->generation_size}, out, err);
    *out = ht_sampling_defaults();
    ht_status status = read_gguf(c->gguf, c->name, out, &any, err);
    if (status || any) return status;
    char *text = NULL;
    size_t size = 0;
    status = ht_checkpoint_text_beside(c, generation_file, &text, &size, err);
    if (!status) status = ht_sampling_from_json((ht_json_text){text, size}, out, err);
    free(text);
    return status;
}
