/* Fusing (hearth/fuse.h): checks options and paths, then makes and executes the plan. */
#include "base/checked.h"
#include "base/error.h"
#include "base/grow.h"
#include "base/options.h"
#include "checkpoint/config.h"
#include "checkpoint/family.h"
#include "checkpoint/rewrite.h"
#include "formats/affine.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- changes ---- */

typedef struct search {
    ht_rewrite_plan *plan;
    ht_adapter *const *adapters;
    const float *scales;
    int n;
    bool all; /* quantised weights become floats, also unchanged ones */
    bool any_quantized, any_reordered;
    bool *reordered; /* [tensors of the checkpoint] */
} search;

/* Changes of one tensor keep their order, in which they are summed. */
static ht_status add_change(ht_rewrite_plan *plan, size_t tensor, const ht_rewrite_change *change, ht_error *err) {
    if (!HT_GROW_ONE(plan->change, plan->n_changes))
        return ht_fail_memory(err, plan->n_changes * sizeof *plan->change, "a list of changes");
    size_t *at = &plan->tensor[tensor].change;
    while (*at) at = &plan->change[*at - 1].next;
    plan->change[plan->n_changes++] = *change;
    *at = plan->n_changes;
    return HT_OK;
}

/* The change of a head's matrix, whose outputs in the projection of all heads are those of the key, then of the value.
 * Matrices of keys are stored transposed where they are apart. */
static ht_rewrite_change head_change(const ht_stored_weight *w, const ht_latent *of) {
    const bool is_key = w->spec->expert == HT_HEAD_KEY;
    const int64_t first = w->expert * ht_latent_head_rows(of) + (is_key ? 0 : of->key_dim);
    return (ht_rewrite_change){.first_row = w->first_row,
                               .n_rows = w->rows,
                               .first_output = first,
                               .is_transposed = is_key && !w->is_transposed};
}

/* The tensor that has a weight's rows: the stored one, or another with the piece that replaces them. */
static size_t find_rows(const ht_rewrite_plan *plan, const ht_stored_weight *w, int64_t *first_row) {
    const size_t stored = w->stored.number;
    *first_row = w->first_row;
    for (size_t i = plan->tensor[stored].moved; i && i <= plan->n; i++) {
        const ht_rewrite_tensor *t = &plan->tensor[i - 1];
        for (int64_t k = 0; k < t->n_pieces; k++)
            if (t->piece[k].tensor == stored && t->piece[k].first_row == w->first_row) {
                *first_row = k * t->piece_rows;
                return i - 1;
            }
    }
    return stored;
}

/* The changes of a part of a joined projection, whose rows are runs of the projection's outputs. */
static ht_status add_part_changes(search *s, size_t tensor, const ht_projection *p, ht_rewrite_change change,
                                  ht_error *err) {
    const int64_t first = change.first_row, n = change.n_rows;
    ht_status status = HT_OK;
    for (int64_t i = 0; !status && i < n; i += change.n_rows) {
        change.first_row = first + i;
        change.first_output = ht_part_row(&s->plan->config->recurrence, p->part, i, &change.n_rows);
        status = add_change(s->plan, tensor, &change, err);
    }
    return status;
}

/* The changes by pairs of parts, of an adapter that was read without its model, to a part or to the joined projection.
 * */
static ht_status add_pairs_of_parts(search *s, const ht_stored_weight *w, size_t tensor, const ht_adapter *a,
                                    ht_rewrite_change change, ht_error *err) {
    const ht_recurrence_spec *r = &s->plan->config->recurrence;
    const float scale = change.scale;
    const int64_t first = change.first_row;
    ht_status status = HT_OK;
    for (int part = HT_PART_QKV; !status && part <= HT_PART_GATE; part++) {
        ht_projection of = *w->projection;
        const ht_lora *l = ht_adapter_find_part(a, of.slot, (ht_part_rule)part);
        if (!l || (of.part != HT_PART_ALL && (int)of.part != part)) continue;
        const int64_t n_values = r->heads * r->value_dim;
        of.n_out = part == HT_PART_GATE ? n_values : of.n_out - n_values;
        status = ht_lora_check(l, &of, s->plan->config->family->architecture, err);
        change.lora = l;
        change.scale = scale * l->scale;
        for (int64_t row = 0; !status && row < of.n_out; row += change.n_rows) {
            change.first_row = first + ht_part_row(r, (ht_part_rule)part, row, &change.n_rows);
            if (of.part != HT_PART_ALL) change.first_row = first + row;
            change.first_output = row;
            status = add_change(s->plan, tensor, &change, err);
        }
    }
    return status;
}

static ht_status find_changes(const ht_stored_weight *w, void *user, ht_error *err) {
    search *s = user;
    const ht_projection *p = w->projection;
    ht_status status = HT_OK;
    if (!p) return HT_OK;
    int64_t first_row;
    const size_t tensor = find_rows(s->plan, w, &first_row);
    if (!p->of_heads) s->plan->tensor[tensor].n_shares = (int)w->n_shares;
    for (int i = 0; !status && i < s->n; i++) {
        const ht_adapter *a = s->adapters[i];
        const ht_lora *l = ht_adapter_find(a, p->slot);
        ht_rewrite_change change = {.first_row = first_row,
                                    .n_rows = w->rows,
                                    .rows = w->stored_rows,
                                    .columns = w->stored_columns,
                                    .expert = w->expert,
                                    .scale = s->scales ? s->scales[i] : 1};
        if (p->part && a->gguf_order) status = add_pairs_of_parts(s, w, tensor, a, change, err);
        if (!l || status) continue;
        if (a->gguf_order) change.lora_rows = p->rows, change.lora_columns = p->columns;
        if (p->of_heads) change = head_change(w, &s->plan->config->latent);
        change.lora = l;
        change.scale = (s->scales ? s->scales[i] : 1) * l->scale;
        status = ht_lora_check(l, p, s->plan->config->family->architecture, err);
        if (status) continue;
        const bool is_part = p->part == HT_PART_QKV || p->part == HT_PART_GATE;
        status = is_part ? add_part_changes(s, tensor, p, change, err) : add_change(s->plan, tensor, &change, err);
    }
    return status;
}

/* Marks the tensors that are changed, or become floats, and are stored in another order than rows. */
static ht_status mark_reordered(const ht_stored_weight *w, void *user, ht_error *err) {
    search *s = user;
    bool changes = s->all && !ht_weight_is_float(w->stored.type);
    (void)err;
    for (int i = 0; w->projection && i < s->n; i++)
        changes = changes || ht_adapter_find(s->adapters[i], w->projection->slot);
    if (!changes) return HT_OK;
    s->any_quantized = s->any_quantized || !ht_weight_is_float(w->stored.type);
    if (ht_rewrite_is_reordered(s->plan, w)) s->any_reordered = s->reordered[w->stored.number] = true;
    return HT_OK;
}

/* Restacks tensors whose rows are not apart, as changes and rounding go by rows. */
static ht_status restack(search *s, ht_error *err) {
    ht_rewrite_plan *plan = s->plan;
    s->reordered = calloc(plan->n + 1, sizeof *s->reordered);
    if (!s->reordered) return ht_fail_memory(err, plan->n, "a list of tensors");
    ht_status status = ht_stored_weights_visit(plan->c, plan->config, false, mark_reordered, s, err);
    if (!status && s->any_quantized && !s->all && !plan->c->gguf && !plan->c->quantization) { /* all become floats */
        s->all = true;
        status = ht_stored_weights_visit(plan->c, plan->config, false, mark_reordered, s, err);
    }
    if (!status && s->any_reordered) status = ht_rewrite_plan_restack_some(plan, s->reordered, HT_DTYPE_NONE, err);
    free(s->reordered);
    s->reordered = NULL;
    return status;
}

/* Fails if the model lacks the projection of a pair. */
static ht_status check_used(const search *s, const ht_adapter *a, ht_error *err) {
    const ht_rewrite_plan *plan = s->plan;
    for (int64_t k = 0; k < a->n; k++) {
        size_t i = 0;
        while (i < plan->n_changes && plan->change[i].lora != &a->lora[k]) i++;
        if (i == plan->n_changes) return ht_lora_check(&a->lora[k], NULL, plan->config->family->architecture, err);
    }
    return HT_OK;
}

static ht_status list_changes(ht_rewrite_plan *plan, ht_adapter *const *adapters, const float *scales, int n, bool all,
                              ht_error *err) {
    search s = {plan, adapters, scales, n, .all = all};
    for (int i = 0; i < n; i++)
        if (adapters[i]->halved && ht_adapter_alternates(plan->config->family))
            return ht_fail(
                err, HT_ERR_ARGUMENT,
                "the adapter has gate and up of experts in one tensor, where their rows alternate; convert it "
                "to another format, with the model, and fuse that");
    ht_status status = restack(&s, err);
    if (!status) status = ht_stored_weights_visit(plan->c, plan->config, false, find_changes, &s, err);
    for (int i = 0; !status && i < n; i++) status = check_used(&s, adapters[i], err);
    if (!status && !plan->n_changes)
        status = ht_fail(err, HT_ERR_ARGUMENT, "the adapters change nothing: they have no pairs");
    return status;
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
    if (t->change && t->quantized && o->quantize_bits) {
        ht_status status = check_groups(t, o->quantize_group, err);
        if (status) return status;
        const ht_affine affine = ht_affine_of((ht_weight_type)t->from.type);
        t->action = HT_REWRITE_ROUND;
        t->type = (ht_weight_type)ht_affine_type(o->quantize_bits, o->quantize_group, affine.scale);
    } else if (t->change || (all && t->quantized)) {
        ht_dtype dtype = o->dtype;
        if (!dtype) dtype = t->quantized ? own : ht_rewrite_dtype(t->from.type);
        t->action = HT_REWRITE_ROUND;
        t->type = ht_rewrite_weight_type(dtype);
    }
    return HT_OK;
}

/* Adds the changes of n adapters and chooses which tensors become floats or groups. */
static ht_status make_plan(ht_rewrite_plan *plan, const ht_fuse_options *options, ht_adapter *const *adapters,
                           const float *scales, int n, ht_error *err) {
    ht_dtype own;
    ht_status status = ht_rewrite_float_type(plan, &own, err);
    if (!status) status = list_changes(plan, adapters, scales, n, options->dense, err);
    bool all = options->dense;
    for (size_t i = 0; !status && i < plan->n; i++)
        if (plan->tensor[i].change && plan->tensor[i].quantized && !plan->c->gguf && !plan->c->quantization) all = true;
    for (size_t i = 0; !status && i < plan->n; i++)
        if (plan->tensor[i].action != HT_REWRITE_DROP) status = choose(options, own, all, &plan->tensor[i], err);
    return status;
}

/* Adapters of one checkpoint, as those of this one; the caller frees them and *out. */
static ht_status adapt(const ht_config *c, ht_adapter *const *adapters, int n, ht_adapter ***out, ht_error *err) {
    *out = calloc((size_t)n, sizeof **out);
    ht_status status = *out ? HT_OK : ht_fail_memory(err, (size_t)n * sizeof **out, "adapters");
    for (int i = 0; !status && i < n; i++) {
        if (c->family->multiplier)
            status = ht_adapter_copy(adapters[i], &(*out)[i], err);
        else
            (*out)[i] = ht_adapter_retain(adapters[i]);
        if (!status) status = ht_adapter_multiply((*out)[i], c, &c->multipliers, err);
    }
    return status;
}

static const ht_fuse_options defaults = {.size = sizeof defaults};

void ht_fuse_options_init(ht_fuse_options *options, size_t size) {
    ht_options_init(options, size, &defaults, sizeof defaults);
}

/* ---- options ---- */

static ht_status check_options(ht_fuse_options *o, const ht_checkpoint_files *c, ht_error *err) {
    if (ht_rewrite_check_dtype(o->dtype, err)) return HT_ERR_ARGUMENT;
    if (!o->quantize_bits && o->quantize_group)
        return ht_fail(err, HT_ERR_ARGUMENT, "groups of %d without a number of bits", (int)o->quantize_group);
    if (!o->quantize_bits) return HT_OK;
    if (!o->quantize_group) o->quantize_group = 64;
    if (ht_affine_type(o->quantize_bits, o->quantize_group, HT_W_F32) < 0)
        return ht_fail(
            err, HT_ERR_ARGUMENT,
            "%d bits in groups of %d are not supported; 2, 3, 4, 5, 6 and 8 bits in groups of 32, 64 and 128 "
            "are",
            (int)o->quantize_bits, (int)o->quantize_group);
    if (o->dense) return ht_fail(err, HT_ERR_ARGUMENT, "all weights as floats and some in groups exclude each other");
    if (!c->quantization)
        return ht_fail(err, HT_ERR_ARGUMENT,
                       "%s: only checkpoints of MLX's groups are quantised again, and this is none", c->path);
    return HT_OK;
}

static ht_status check_adapters(ht_adapter *const *adapters, const float *scales, int n, ht_error *err) {
    if (n < 1) return ht_fail(err, HT_ERR_ARGUMENT, "there is no adapter to fuse");
    for (int i = 0; i < n; i++) {
        if (!adapters[i]) return ht_fail(err, HT_ERR_ARGUMENT, "adapter %d is NULL", i);
        if (scales && !isfinite(scales[i]))
            return ht_fail(err, HT_ERR_ARGUMENT, "the scale of adapter %d is %g, expected a finite number", i,
                           (double)scales[i]);
    }
    return HT_OK;
}

ht_status ht_fuse(const char *model_path, ht_adapter *const *adapters, const float *scales, int n, const char *out_path,
                  const ht_fuse_options *options, ht_error *err) {
    ht_fuse_options o;
    ht_status status = ht_options_read(&o, options, &defaults, sizeof defaults, "ht_fuse_options", err);
    if (!status) status = check_adapters(adapters, scales, n, err);
    if (status) return status;
    ht_rewrite_plan plan = {.is_directory = ht_path_is_directory(model_path),
                            .copies_files = true,
                            .verb = "fusing",
                            .mark = HT_REWRITE_FUSED,
                            .out_path = out_path,
                            .dtype = o.dtype,
                            .file_type = -1,
                            .cancel = o.cancel,
                            .progress = o.progress,
                            .user = o.user};
    ht_rewrite_values *values = NULL;
    ht_adapter **adapted = NULL;
    status = ht_rewrite_plan_open(&plan, model_path, err);
    if (!status) status = check_options(&o, plan.c, err);
    plan.to_gguf = !status && plan.c->gguf;
    if (!status) status = ht_rewrite_check_place(&plan, model_path, err);
    if (!status) status = ht_checkpoint_config(plan.c, plan.config, err);
    if (!status) status = ht_rewrite_plan_list(&plan, err);
    if (!status) status = adapt(plan.config, adapters, n, &adapted, err);
    if (!status) status = make_plan(&plan, &o, adapted, scales, n, err);
    if (!status) status = ht_rewrite_plan_finish(&plan, err);
    if (!status) status = ht_rewrite_choose_files(&plan, err);
    if (!status) status = ht_rewrite_values_new(&plan, &values, err);
    if (!status) status = ht_rewrite_write(&plan, values, err);
    if (!status && o.report) ht_rewrite_values_report(values, o.report);
    ht_rewrite_values_free(values);
    ht_rewrite_plan_free(&plan);
    for (int i = 0; adapted && i < n; i++) ht_adapter_free(adapted[i]);
    free(adapted);
    return status;
}
