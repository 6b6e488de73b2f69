#include "models/adapter.h"

#include "base/error.h"
#include "base/options.h"
#include "base/text.h"
#include "models/weights.h"

#include <stdlib.h>
#include <string.h>

static ht_adapter_base base_of(const ht_model *m) {
    ht_adapter_base base = {.config = m->config, .wrapped = m->wrapped};
    base.projection = ht_weights_projections(m->weights, &base.n);
    return base;
}

ht_status ht_adapter_check(const ht_adapter *a, const ht_model *m, ht_error *err) {
    const ht_adapter_base base = base_of(m);
    return ht_adapter_check_base(a, &base, err);
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
    if (!status) status = warn(*out, m, o.same_base, err);
    if (status) {
        ht_adapter_free(*out);
        *out = NULL;
    }
    return status;
}

ht_status ht_adapter_save(const ht_adapter *a, const ht_model *m, const char *path, ht_adapter_format format,
                          ht_error *err) {
    if (!m) return ht_adapter_write(a, NULL, path, format, err);
    ht_adapter_base base = base_of(m);
    ht_status status = a->origin.fingerprint ? HT_OK : ht_model_fingerprint(m, base.fingerprint, err);
    ht_model_template_hash(m, base.template_hash);
    return status ? status : ht_adapter_write(a, &base, path, format, err);
}
