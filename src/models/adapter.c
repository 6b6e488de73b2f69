#include "models/adapter.h"

#include "base/digest.h"
#include "base/error.h"
#include "base/options.h"
#include "base/text.h"
#include "checkpoint/adapter_file.h"
#include "checkpoint/config.h"
#include "models/model.h"
#include "models/weights.h"
#include "tokenizer/tokenizer.h"

#include <hearth/adapter.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static ht_adapter_base base_of(const ht_model *m) {
    ht_adapter_base base = {.config = m->config, .text = m->text};
    base.projection = ht_weights_projections(m->weights, &base.n);
    return base;
}

ht_status ht_adapter_check(const ht_adapter *a, const ht_model *m, ht_error *err) {
    const ht_adapter_base base = base_of(m);
    return ht_adapter_check_base(a, &base, err);
}

ht_status ht_adapter_pairs(ht_adapter *a, const ht_model *m, const ht_lora_pair **out, ht_error *err) {
    const ht_adapter_base base = base_of(m);
    return ht_adapter_transposed(a, &base, m->device, out, err);
}

static ht_status warn(ht_adapter *a, const ht_model *m, bool refuse, ht_error *err) {
    char fingerprint[HT_FINGERPRINT_SIZE] = "", hash[HT_FINGERPRINT_SIZE];
    ht_status status = a->origin.fingerprint ? ht_model_fingerprint(m, fingerprint, err) : HT_OK;
    if (status) return status;
    ht_model_template_hash(m, hash);
    bool other_base = a->origin.fingerprint && strcmp(a->origin.fingerprint, fingerprint) != 0;
    bool other_template = a->origin.template_hash && strcmp(a->origin.template_hash, hash) != 0;
    if (!other_base && !other_template) return HT_OK;
    ht_text text = {0};
    if (other_base)
        ht_text_printf(&text,
                       "the adapter was trained on another checkpoint (fingerprint %.16s, here %s); that is fine when "
                       "this one is the same model with other rounding, quantised or not",
                       a->origin.fingerprint, fingerprint);
    if (other_template)
        ht_text_printf(&text, "%s with another chat template (%.16s, here %s), so prompts look unlike those it learned",
                       other_base ? "; and" : "the adapter was trained", a->origin.template_hash,
                       *hash ? hash : "none");
    a->warning = ht_text_take(&text);
    if (!a->warning) return ht_fail_memory(err, 512, "an adapter");
    return refuse ? ht_fail(err, HT_ERR_ARGUMENT, "%s", a->warning) : HT_OK;
}

static const ht_adapter_options defaults = {.size = sizeof defaults};

void ht_adapter_options_init(ht_adapter_options *options, size_t size) {
    ht_options_init(options, size, &defaults, sizeof defaults);
}

ht_status ht_adapter_load(const char *path, const ht_model *m, const ht_adapter_options *options, ht_adapter **out,
                          ht_error *err) {
    *out = NULL;
    ht_adapter_options o;
    ht_status status = ht_options_read(&o, options, &defaults, sizeof defaults, "ht_adapter_options", err);
    if (status) return status;
    if (!m) return ht_adapter_read(path, NULL, out, err);
    const ht_adapter_base base = base_of(m);
    status = ht_adapter_read(path, &base, out, err);
    if (!status && (status = ht_adapter_multiply(*out, m->config, &m->config->multipliers, err)))
        status = ht_fail_in(err, status, "%s", path);
    if (!status) status = warn(*out, m, o.same_base, err);
    if (status) {
        ht_adapter_free(*out);
        *out = NULL;
    }
    return status;
}

ht_status ht_adapter_format_check(const ht_model *m, ht_adapter_format format, ht_error *err) {
    return ht_adapter_check_format(format, m->config, err);
}

ht_status ht_adapter_save(const ht_adapter *a, const ht_model *m, const char *path, ht_adapter_format format,
                          ht_error *err) {
    if (!m) return ht_adapter_write(a, NULL, path, format, err);
    ht_adapter_base base = base_of(m);
    ht_status status = a->origin.fingerprint ? HT_OK : ht_model_fingerprint(m, base.fingerprint, err);
    ht_model_template_hash(m, base.template_hash);
    return status ? status : ht_adapter_write(a, &base, path, format, err);
}

/* ---- fingerprints: they identify the base model of an adapter (hearth/adapter.h) ---- */

enum { SAMPLED_MATRICES = 64 }; /* approximate */

static void write_hex(const ht_digest *d, char out[HT_FINGERPRINT_SIZE]) {
    snprintf(out, HT_FINGERPRINT_SIZE, "%016llx", (unsigned long long)(d->a ^ d->b));
}

static void add_sizes(ht_digest *d, const ht_config *c) {
    const int64_t sizes[] = {c->n_layers, c->hidden, c->n_heads, c->n_experts};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) ht_digest_word(d, (uint64_t)sizes[i]);
}

/* Adds the exact values of a row, independent of the packed form. */
static ht_status add_row(ht_digest *d, const ht_matrix *m, int64_t row, ht_error *err) {
    size_t n = (size_t)m->k * sizeof(float);
    float *values = malloc(n);
    if (!values) return ht_fail_memory(err, n, "a row of weights");
    ht_digest_word(d, (uint64_t)m->n_rows);
    ht_digest_word(d, (uint64_t)m->k);
    ht_status status = m->ops->row(m, row, values, err);
    for (int64_t i = 0; !status && i < m->k; i++) {
        uint32_t bits;
        memcpy(&bits, &values[i], sizeof bits);
        ht_digest_word(d, bits);
    }
    free(values);
    return status;
}

/* Excludes the output head, as files of one model add different rows to the vocabulary. Excludes tables, which are
 * matrices only on some devices. */
ht_status ht_model_fingerprint(const ht_model *m, char out[HT_FINGERPRINT_SIZE], ht_error *err) {
    *out = '\0';
    int64_t n;
    ht_matrix *const *matrices = ht_weights_matrices(m->weights, &n);
    const ht_matrix *head = ht_weights_decoder(m->weights)->head.matrix;
    int64_t tables = 0, i = 0;
    for (int64_t at = 0; at < n; at++) tables += ht_weights_use(m->weights, at).table;
    const int64_t step = ht_ceil_div_i64(n - tables, SAMPLED_MATRICES);
    ht_digest d = {5, 6};
    add_sizes(&d, m->config);
    ht_status status = HT_OK;
    for (int64_t at = 0; !status && at < n; at++) {
        if (matrices[at] == head || ht_weights_use(m->weights, at).table) continue;
        if (i % step == 0) status = add_row(&d, matrices[at], (i * 7919 + 5) % matrices[at]->n_rows, err);
        i++;
    }
    if (!status) write_hex(&d, out);
    return status;
}

void ht_model_template_hash(const ht_model *m, char out[HT_FINGERPRINT_SIZE]) {
    *out = '\0';
    const char *source = m->tokenizer ? ht_tokenizer_chat_template(m->tokenizer) : NULL;
    if (!source) source = m->chat.name;
    if (!source) return;
    ht_digest d = {7, 8};
    ht_digest_text(&d, source);
    if (m->tokenizer && ht_tokenizer_tool_template(m->tokenizer))
        ht_digest_text(&d, ht_tokenizer_tool_template(m->tokenizer));
    write_hex(&d, out);
}
