/* The plan of fusing: which rows adapters change, and which tensors become floats or groups. */
#include "base/checked.h"
#include "base/error.h"
#include "base/grow.h"
#include "checkpoint/family.h"
#include "checkpoint/rewrite.h"
#include "formats/affine.h"

#include <stdlib.h>
#include <string.h>

/* ---- changes ---- */

typedef struct search {
    ht_rewrite_plan *plan;
    ht_adapter *const *adapters;
    const float *scales;
    int n;
    bool **used; /* [n][pairs of the adapter]: the model has such a projection */
} search;

static ht_status add_change(ht_rewrite_plan *plan, const ht_rewrite_change *change, ht_error *err) {
    if (!HT_GROW_ONE(plan->change, plan->n_changes))
        return ht_fail_memory(err, plan->n_changes * sizeof *plan->change, "a list of changes");
    plan->change[plan->n_changes++] = *change;
    return HT_OK;
}

static ht_status find_changes(const ht_stored_projection *p, void *user, ht_error *err) {
    search *s = user;
    ht_status status = HT_OK;
    s->plan->tensor[p->tensor].n_shares = (int)p->n_shares;
    for (int i = 0; !status && i < s->n; i++) {
        const ht_adapter *a = s->adapters[i];
        const ht_lora *l = ht_adapter_find(a, p->of.slot);
        if (!l) continue;
        s->used[i][l - a->lora] = true;
        const ht_rewrite_change change = {.tensor = p->tensor,
                                          .first_row = p->first_row,
                                          .head_rows = p->head_rows,
                                          .lora_head_rows = a->interleaved ? p->of.head_rows : 0,
                                          .lora = l,
                                          .expert = p->expert,
                                          .scale = (s->scales ? s->scales[i] : 1) * l->scale};
        status = ht_lora_check(l, &p->of, s->plan->config->family->architecture, err);
        if (!status) status = add_change(s->plan, &change, err);
    }
    return status;
}

static ht_status check_used(const search *s, ht_error *err) {
    for (int i = 0; i < s->n; i++)
        for (int64_t k = 0; k < s->adapters[i]->n; k++)
            if (!s->used[i][k])
                return ht_lora_check(&s->adapters[i]->lora[k], NULL, s->plan->config->family->architecture, err);
    return HT_OK;
}

/* Puts the changes in the order of tensors; those of one tensor keep theirs, in which they are added up. */
static ht_status sort_changes(ht_rewrite_plan *plan, ht_error *err) {
    ht_rewrite_change *sorted = calloc(plan->n_changes + 1, sizeof *sorted);
    if (!sorted) return ht_fail_memory(err, plan->n_changes * sizeof *sorted, "a list of changes");
    for (size_t i = 0; i < plan->n_changes; i++) plan->tensor[plan->change[i].tensor].n_changes++;
    size_t at = 0;
    for (size_t i = 0; i < plan->n; i++) {
        plan->tensor[i].change = sorted + at;
        at += plan->tensor[i].n_changes;
        plan->tensor[i].n_changes = 0;
    }
    for (size_t i = 0; i < plan->n_changes; i++) {
        ht_rewrite_tensor *t = &plan->tensor[plan->change[i].tensor];
        sorted[t->change - sorted + (ptrdiff_t)t->n_changes++] = plan->change[i];
    }
    free(plan->change);
    plan->change = sorted;
    return HT_OK;
}

static ht_status list_changes(ht_rewrite_plan *plan, ht_adapter *const *adapters, const float *scales, int n,
                              ht_error *err) {
    search s = {plan, adapters, scales, n, calloc((size_t)n, sizeof *s.used)};
    ht_status status = s.used ? HT_OK : ht_fail_memory(err, (size_t)n * sizeof *s.used, "adapters");
    for (int i = 0; !status && i < n; i++) {
        s.used[i] = calloc((size_t)adapters[i]->n + 1, sizeof **s.used);
        if (!s.used[i]) status = ht_fail_memory(err, (size_t)adapters[i]->n, "adapters");
    }
    if (!status) status = ht_weights_visit(plan->c, plan->config, find_changes, &s, err);
    if (!status) status = check_used(&s, err);
    if (!status && !plan->n_changes)
        status = ht_fail(err, HT_ERR_ARGUMENT, "the adapters change nothing: they have no pairs");
    for (int i = 0; s.used && i < n; i++) free(s.used[i]);
    free(s.used);
    return status ? status : sort_changes(plan, err);
}

/* ---- actions ---- */

static ht_status check_groups(const ht_rewrite_tensor *t, int32_t group, ht_error *err) {
    if (!ht_affine_of((ht_weight_type)t->from.type).bits)
        return ht_fail(err, HT_ERR_ARGUMENT,
                       "%s: tensor `%s` is stored as %s; only MLX's affine groups are quantised again, so leave "
                       "quantize_bits out",
                       t->from.file_name, t->name, t->from.type_name);
    const int64_t columns = t->from.dims[t->from.n_dims - 1];
    if (columns % group)
        return ht_fail(err, HT_ERR_ARGUMENT, "%s: tensor `%s` has rows of %lld columns, which are no groups of %d",
                       t->from.file_name, t->name, (long long)columns, (int)group);
    return HT_OK;
}

static ht_status choose(const ht_fuse_options *o, ht_dtype own, bool all, ht_rewrite_tensor *t, ht_error *err) {
    if (t->n_changes && t->quantized && o->quantize_bits) {
        ht_status status = check_groups(t, o->quantize_group, err);
        if (status) return status;
        const ht_affine affine = ht_affine_of((ht_weight_type)t->from.type);
        t->action = HT_REWRITE_ROUND;
        t->type = (ht_weight_type)ht_affine_type(o->quantize_bits, o->quantize_group, affine.scale);
    } else if (t->n_changes || (all && t->quantized)) {
        ht_dtype dtype = o->dtype;
        if (!dtype) dtype = t->quantized ? own : ht_rewrite_dtype(t->from.type);
        t->action = HT_REWRITE_ROUND;
        t->type = ht_rewrite_weight_type(dtype);
    }
    return HT_OK;
}

ht_status ht_fuse_plan(ht_rewrite_plan *plan, const ht_fuse_options *options, ht_adapter *const *adapters,
                       const float *scales, int n, ht_error *err) {
    ht_dtype own;
    ht_status status = list_changes(plan, adapters, scales, n, err);
    if (!status) status = ht_rewrite_float_type(plan, &own, err);
    bool all = options->dense;
    for (size_t i = 0; !status && i < plan->n; i++)
        if (plan->tensor[i].n_changes && plan->tensor[i].quantized && !plan->c->gguf && !plan->c->quantization)
            all = true;
    for (size_t i = 0; !status && i < plan->n; i++) status = choose(options, own, all, &plan->tensor[i], err);
    return status;
}
