#include "checkpoint/gguf_fields.h"

#include "base/error.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { KEY_SIZE = 160 };

void ht_meta_fail(ht_meta *m, ht_status status, const char *fmt, ...) {
    if (m->status) return;
    char text[512];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    m->status = ht_fail(m->err, status, "%s: %s", m->file, text);
}

static const char *full_key(const ht_meta *m, const char *name, char key[KEY_SIZE]) {
    snprintf(key, KEY_SIZE, "%s.%s", m->architecture, name);
    return key;
}

const ht_gguf_value *ht_meta_value(const ht_meta *m, const char *name) {
    char key[KEY_SIZE];
    return ht_gguf_find(m->gguf, full_key(m, name, key));
}

bool ht_meta_has(const ht_meta *m, const char *name) { return ht_meta_value(m, name) != NULL; }

static void wrong_type(ht_meta *m, const char *name, const ht_gguf_value *v, const char *expected) {
    ht_meta_fail(m, HT_ERR_FORMAT, "`%s.%s` is of type %s, expected %s", m->architecture, name,
                 ht_gguf_type_name(v->type), expected);
}

int64_t ht_meta_i64(ht_meta *m, const char *name, int64_t fallback) {
    const ht_gguf_value *v = ht_meta_value(m, name);
    if (!v) return fallback;
    int64_t value;
    if (v->type != HT_GGUF_ARRAY && ht_gguf_item_i64(v, 0, &value)) return value;
    wrong_type(m, name, v, "an integer");
    return fallback;
}

bool ht_meta_bool(ht_meta *m, const char *name, bool fallback) {
    const ht_gguf_value *v = ht_meta_value(m, name);
    char key[KEY_SIZE];
    bool value = fallback;
    if (v && !ht_gguf_get_bool(m->gguf, full_key(m, name, key), &value)) wrong_type(m, name, v, "a boolean");
    return value;
}

double ht_meta_f64(ht_meta *m, const char *name, double fallback) {
    const ht_gguf_value *v = ht_meta_value(m, name);
    if (!v) return fallback;
    double value;
    int64_t whole;
    if (v->type != HT_GGUF_ARRAY) {
        if (ht_gguf_item_f64(v, 0, &value) && isfinite(value)) return value;
        if (ht_gguf_item_i64(v, 0, &whole)) return (double)whole;
    }
    wrong_type(m, name, v, "a finite number");
    return fallback;
}

int64_t ht_meta_uniform_i64(ht_meta *m, const char *name, int64_t fallback) {
    const ht_gguf_value *v = ht_meta_value(m, name);
    if (!v || v->type != HT_GGUF_ARRAY) return ht_meta_i64(m, name, fallback);
    int64_t first = fallback, value;
    for (uint64_t i = 0; i < v->n_items; i++) {
        if (!ht_gguf_item_i64(v, i, &value)) {
            wrong_type(m, name, v, "integers");
            return fallback;
        }
        if (i == 0) first = value;
        if (value != first) {
            ht_meta_fail(m, HT_ERR_UNSUPPORTED,
                         "`%s.%s` differs between layers (%lld and %lld); %s models with one value for all layers work",
                         m->architecture, name, (long long)first, (long long)value, m->architecture);
            return fallback;
        }
    }
    return first;
}

int64_t ht_meta_layer_i64(ht_meta *m, const char *name, int64_t layer, int64_t fallback) {
    const ht_gguf_value *v = ht_meta_value(m, name);
    if (!v || v->type != HT_GGUF_ARRAY) return ht_meta_i64(m, name, fallback);
    int64_t value;
    if (ht_gguf_item_i64(v, (uint64_t)layer, &value)) return value;
    ht_meta_fail(m, HT_ERR_FORMAT, "`%s.%s` has no whole number for layer %lld", m->architecture, name,
                 (long long)layer);
    return fallback;
}

void ht_meta_string(ht_meta *m, const char *name, char *out, size_t size) {
    *out = '\0';
    const ht_gguf_value *v = ht_meta_value(m, name);
    if (!v) return;
    char key[KEY_SIZE];
    ht_bytes text;
    if (!ht_gguf_get_string(m->gguf, full_key(m, name, key), &text)) {
        wrong_type(m, name, v, "a string");
        return;
    }
    size_t n = text.len < size - 1 ? text.len : size - 1;
    memcpy(out, text.data, n);
    out[n] = '\0';
}
