/* Adapters of a session: resolved to the model's projections once, when they are set. */
#include "base/checked.h"
#include "base/error.h"
#include "base/plural.h"
#include "generate/session_internal.h"
#include "models/weights.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

void ht_session_adapters_free(ht_session_adapters *a) {
    if (!a) return;
    for (int i = 0; i < a->n; i++) ht_adapter_free(a->adapter[i]);
    free(a->adapter);
    free(a->scale);
    free(a->use);
    free(a);
}

static ht_status new_adapters(int64_t n_projections, int n, ht_session_adapters **out, ht_error *err) {
    size_t uses;
    ht_session_adapters *a = calloc(1, sizeof *a);
    if (a && ht_mul_size((size_t)n_projections, (size_t)n, &uses)) {
        a->adapter = calloc((size_t)n, sizeof *a->adapter);
        a->scale = calloc((size_t)n, sizeof *a->scale);
        a->use = calloc(uses + 1, sizeof *a->use);
    }
    *out = a;
    if (a && a->adapter && a->scale && a->use) return HT_OK;
    ht_session_adapters_free(a);
    *out = NULL;
    return ht_fail_memory(err, sizeof *a, "a session's adapters");
}

ht_status ht_session_adapters_copy(const ht_model *m, const ht_session_adapters *from, ht_session_adapters **out,
                                   ht_error *err) {
    int64_t n_projections;
    *out = NULL;
    if (!from) return HT_OK;
    ht_weights_projections(m->weights, &n_projections);
    ht_status status = new_adapters(n_projections, from->n, out, err);
    if (status) return status;
    ht_session_adapters *a = *out;
    for (; a->n < from->n; a->n++) a->adapter[a->n] = ht_adapter_retain(from->adapter[a->n]);
    memcpy(a->scale, from->scale, (size_t)from->n * sizeof *a->scale);
    memcpy(a->use, from->use, (size_t)n_projections * (size_t)from->n * sizeof *a->use);
    a->set = (ht_lora_set){a->n, a->use};
    return HT_OK;
}

/* Adds an adapter behind those that are there. */
static ht_status add_adapter(const ht_model *m, ht_adapter *adapter, float scale, ht_session_adapters *to, int n,
                             ht_error *err) {
    const ht_lora_pair *pair;
    ht_status status = ht_adapter_check(adapter, m, err);
    if (!status) status = ht_adapter_transposed(adapter, m->device, &pair, err);
    if (status) return status;
    for (int64_t i = 0; i < adapter->n; i++) {
        const float factor = adapter->lora[i].scale * scale;
        if (!isfinite(factor))
            return ht_fail(err, HT_ERR_ARGUMENT, "adapter %d times %g: its scale of %g becomes %g", to->n,
                           (double)scale, (double)adapter->lora[i].scale, (double)factor);
        const int64_t projection = ht_weights_find_projection(m->weights, adapter->lora[i].slot);
        to->use[projection * n + to->n] = (ht_lora_use){&pair[i], factor};
    }
    to->scale[to->n] = scale;
    to->adapter[to->n++] = ht_adapter_retain(adapter);
    return HT_OK;
}

ht_status ht_session_adapters_new(ht_model *m, ht_adapter *const *adapters, const float *scales, int n,
                                  ht_session_adapters **out, ht_error *err) {
    int64_t n_projections;
    const ht_plan *plan;
    ht_weights_projections(m->weights, &n_projections);
    ht_status status = new_adapters(n_projections, n, out, err);
    for (int i = 0; i < n && !status; i++) {
        const float scale = scales ? scales[i] : 1;
        if (!adapters[i])
            status = ht_fail(err, HT_ERR_ARGUMENT, "adapter %d of %d is NULL", i, n);
        else if (!isfinite(scale))
            status = ht_fail(err, HT_ERR_ARGUMENT, "adapter %d of %d has a scale of %g, expected a finite number", i, n,
                             (double)scale);
        else
            status = add_adapter(m, adapters[i], scale, *out, n, err);
    }
    if (!status) status = ht_model_plan(m, HT_PLAN_ADAPTERS, &plan, err);
    if (status) {
        ht_session_adapters_free(*out);
        *out = NULL;
        return status;
    }
    (*out)->set = (ht_lora_set){n, (*out)->use};
    return HT_OK;
}

ht_status ht_session_set_adapters(ht_session *s, ht_adapter *const *adapters, const float *scales, int n,
                                  ht_error *err) {
    if (n < 0) return ht_fail(err, HT_ERR_ARGUMENT, "%d adapters for a session, expected 0 or more", n);
    if (s->n_tokens > 0)
        return ht_fail(err, HT_ERR_ARGUMENT,
                       "the session holds %lld token%s, whose keys and values were computed with the adapters it has: "
                       "reset it before setting others",
                       (long long)s->n_tokens, ht_plural(s->n_tokens));
    ht_session_adapters *made = NULL;
    const ht_status status = n ? ht_session_adapters_new(s->model, adapters, scales, n, &made, err) : HT_OK;
    if (status) return status;
    ht_session_adapters_free(s->adapters);
    s->adapters = made;
    return HT_OK;
}
