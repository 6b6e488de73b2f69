/* The plan of fusing: which tensors adapters change, and in what type every tensor is written. */
#include "base/checked.h"
#include "base/error.h"
#include "formats/affine.h"
#include "models/fp8_scales.h"
#include "models/fuse.h"
#include "models/registry.h"

#include <stdlib.h>
#include <string.h>

static bool is_float(int type) { return type == HT_W_F32 || type == HT_W_F16 || type == HT_W_BF16; }

static bool ends_with(const char *s, const char *end) {
    size_t n = strlen(s), m = strlen(end);
    return n >= m && !strcmp(s + n - m, end);
}

static int64_t elements(const ht_stored_tensor *t) {
    int64_t n = 1;
    for (int d = 0; d < t->n_dims; d++) n *= t->dims[d];
    return n;
}

/* ---- tensors ---- */

/* The tensor whose name has `to` in place of `end`. */
static bool find_beside(const ht_fuse_plan *plan, const ht_fuse_tensor *t, const char *end, const char *to,
                        ht_stored_tensor *out) {
    if (!ends_with(t->name, end)) return false;
    size_t stem = strlen(t->name) - strlen(end), n = strlen(to) + 1;
    char name[512];
    if (stem + n > sizeof name) return false;
    memcpy(name, t->name, stem);
    memcpy(name + stem, to, n);
    return ht_checkpoint_find(plan->c, name, out);
}

/* The weight that the tensor is a scale or bias of. */
static bool find_owner(const ht_fuse_plan *plan, const ht_fuse_tensor *t, ht_stored_tensor *out) {
    if (plan->c->gguf) return false; /* its scales are those of products: drop_product_scales */
    if (ht_fp8_scales_belong(plan->c, &t->from, out)) return true;
    return plan->c->quantization &&
           (find_beside(plan, t, ".scales", ".weight", out) || find_beside(plan, t, ".biases", ".weight", out)) &&
           out->type >= 0 && !is_float(out->type);
}

static ht_status list_tensors(ht_fuse_plan *plan, ht_error *err) {
    plan->n = ht_checkpoint_n_tensors(plan->c);
    plan->tensor = calloc(plan->n + 1, sizeof *plan->tensor);
    if (!plan->tensor) return ht_fail_memory(err, plan->n * sizeof *plan->tensor, "a list of tensors");
    for (size_t i = 0; i < plan->n; i++) {
        ht_fuse_tensor *t = &plan->tensor[i];
        ht_checkpoint_tensor_at(plan->c, i, &t->from);
        t->name = strndup(t->from.name, t->from.name_len);
        if (!t->name) return ht_fail_memory(err, t->from.name_len + 1, "a name");
        ht_stored_tensor owner;
        t->owner = find_owner(plan, t, &owner) ? owner.number : i;
        t->quantized = t->owner == i && t->from.type >= 0 && !is_float(t->from.type);
        t->n_shares = 1;
    }
    return HT_OK;
}

/* ---- changes ---- */

typedef struct search {
    ht_fuse_plan *plan;
    ht_adapter *const *adapters;
    const float *scales;
    int n;
    bool **used; /* [n][pairs of the adapter]: the model has such a projection */
} search;

static ht_status add_change(ht_fuse_plan *plan, const ht_fuse_change *change, ht_error *err) {
    if (plan->n_changes == plan->capacity) {
        size_t capacity = ht_max_size(256, 2 * plan->capacity);
        ht_fuse_change *grown = realloc(plan->change, capacity * sizeof *grown);
        if (!grown) return ht_fail_memory(err, capacity * sizeof *grown, "a list of changes");
        plan->change = grown;
        plan->capacity = capacity;
    }
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
        const ht_fuse_change change = {.tensor = p->tensor,
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
static ht_status sort_changes(ht_fuse_plan *plan, ht_error *err) {
    ht_fuse_change *sorted = calloc(plan->n_changes + 1, sizeof *sorted);
    if (!sorted) return ht_fail_memory(err, plan->n_changes * sizeof *sorted, "a list of changes");
    for (size_t i = 0; i < plan->n_changes; i++) plan->tensor[plan->change[i].tensor].n_changes++;
    size_t at = 0;
    for (size_t i = 0; i < plan->n; i++) {
        plan->tensor[i].change = sorted + at;
        at += plan->tensor[i].n_changes;
        plan->tensor[i].n_changes = 0;
    }
    for (size_t i = 0; i < plan->n_changes; i++) {
        ht_fuse_tensor *t = &plan->tensor[plan->change[i].tensor];
        sorted[t->change - sorted + (ptrdiff_t)t->n_changes++] = plan->change[i];
    }
    free(plan->change);
    plan->change = sorted;
    return HT_OK;
}

static ht_status list_changes(ht_fuse_plan *plan, ht_adapter *const *adapters, const float *scales, int n,
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

static ht_status check_groups(const ht_fuse_plan *plan, const ht_fuse_tensor *t, ht_error *err) {
    const int32_t group = plan->options.quantize_group;
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

static ht_status choose_actions(ht_fuse_plan *plan, ht_error *err) {
    const ht_fuse_options *o = &plan->options;
    bool all = o->dense;
    for (size_t i = 0; i < plan->n; i++)
        if (plan->tensor[i].n_changes && plan->tensor[i].quantized && !plan->c->gguf && !plan->c->quantization)
            all = true;
    ht_status status = HT_OK;
    for (size_t i = 0; !status && i < plan->n; i++) {
        ht_fuse_tensor *t = &plan->tensor[i];
        if (t->n_changes && t->quantized && o->quantize_bits) {
            t->action = HT_FUSE_GROUPS;
            status = check_groups(plan, t, err);
        } else if (t->n_changes || (all && t->quantized))
            t->action = HT_FUSE_DENSE;
    }
    for (size_t i = 0; !status && i < plan->n; i++) {
        ht_fuse_tensor *t = &plan->tensor[i];
        const ht_fuse_action owners = plan->tensor[t->owner].action;
        if (t->owner == i || owners == HT_FUSE_COPY) continue;
        t->action = owners == HT_FUSE_DENSE ? HT_FUSE_DROP : HT_FUSE_GROUPS;
        t->part = ends_with(t->name, ".biases") ? 2 : 1;
    }
    return status;
}

/* A GGUF file's scales of the products with a weight that is written as floats are in the floats. */
static ht_status drop_product_scales(ht_fuse_plan *plan, const ht_fuse_tensor *t, ht_error *err) {
    const int64_t n = t->from.n_dims == 3 ? t->from.dims[0] : 1;
    float *values = malloc((size_t)n * sizeof *values);
    bool found;
    if (!values) return ht_fail_memory(err, (size_t)n * sizeof *values, "scales");
    ht_status status = ht_weights_product_scales(plan->c, plan->config, t->name, n, 0, 1, values, &found, err);
    free(values);
    ht_stored_tensor scale;
    if (status || !found) return status;
    if (find_beside(plan, t, "weight", "scale", &scale)) plan->tensor[scale.number].action = HT_FUSE_DROP;
    if (find_beside(plan, t, "weight", "input_scale", &scale)) plan->tensor[scale.number].action = HT_FUSE_DROP;
    return HT_OK;
}

/* ---- types ---- */

static ht_dtype dtype_of(int type) {
    return type == HT_W_F32 ? HT_F32 : type == HT_W_F16 ? HT_F16 : type == HT_W_BF16 ? HT_BF16 : HT_DTYPE_NONE;
}

static ht_dtype dtype_named(const char *name) {
    static const struct {
        const char *name;
        ht_dtype dtype;
    } names[] = {{"float32", HT_F32}, {"float16", HT_F16}, {"bfloat16", HT_BF16}};
    for (size_t i = 0; name && i < sizeof names / sizeof *names; i++)
        if (ends_with(name, names[i].name)) return names[i].dtype; /* also "torch.bfloat16" */
    return HT_DTYPE_NONE;
}

/* What config.json says; HT_DTYPE_NONE when it says nothing. */
static ht_status configured_dtype(const ht_checkpoint_files *c, ht_dtype *out, ht_error *err) {
    json_t *root;
    ht_status status = ht_json_parse(c->config_text, c->config_size, c->name, &root, err);
    if (status) return status;
    const json_t *objects[] = {root, json_object_get(root, "text_config")};
    static const char *const keys[] = {"dtype", "torch_dtype"};
    for (int i = 0; i < 4 && !*out; i++)
        *out = dtype_named(json_string_value(json_object_get(objects[i / 2], keys[i % 2])));
    json_decref(root);
    return HT_OK;
}

/* The float type of what was quantised: that of config.json, else the one of most floats. The vectors of a GGUF file are f32
 * whatever the model's type is, and small f32 matrices are usual: there only bf16 is a sign. */
static ht_status choose_dtype(const ht_fuse_plan *plan, ht_dtype *out, ht_error *err) {
    int64_t count[HT_DTYPE_COUNT] = {0};
    *out = HT_DTYPE_NONE;
    ht_status status = plan->c->gguf ? HT_OK : configured_dtype(plan->c, out, err);
    if (status || *out) return status;
    for (size_t i = 0; i < plan->n; i++)
        if (plan->tensor[i].owner == i) count[dtype_of(plan->tensor[i].from.type)] += elements(&plan->tensor[i].from);
    if (plan->c->gguf)
        *out = count[HT_BF16] > count[HT_F16] ? HT_BF16 : HT_F16;
    else if (count[HT_F32] > count[HT_BF16] && count[HT_F32] > count[HT_F16])
        *out = HT_F32;
    else
        *out = count[HT_F16] > count[HT_BF16] ? HT_F16 : HT_BF16;
    return HT_OK;
}

static const char *spelled(ht_dtype dtype) { return dtype == HT_F32 ? "F32" : dtype == HT_F16 ? "F16" : "BF16"; }

static ht_status put_output(ht_fuse_tensor *t, const char *dtype, int rank, const int64_t *shape, size_t element_bytes,
                            ht_error *err) {
    size_t bytes = element_bytes;
    for (int d = 0; d < rank; d++)
        if (!ht_mul_size(bytes, (size_t)shape[d], &bytes))
            return ht_fail(err, HT_ERR_LIMIT, "%s: tensor `%s` is too large", t->from.file_name, t->name);
    memmove(t->shape, shape, (size_t)rank * sizeof *shape);
    t->to = (ht_tensor_output){t->renamed ? t->renamed : t->name, dtype, rank, t->shape, bytes};
    return HT_OK;
}

static void keep_output(const ht_fuse_plan *plan, size_t i, ht_fuse_tensor *t) {
    const char *dtype = t->from.type_name;
    size_t bytes = t->from.n_bytes;
    const int64_t *shape = t->from.dims;
    int rank = t->from.n_dims;
    if (!plan->c->gguf) { /* the tensor itself, where t->from describes a joined one */
        const ht_safetensor *s = ht_safetensors_at(plan->c->tensors, i);
        dtype = s->dtype;
        bytes = s->n_bytes;
        shape = s->shape;
        rank = s->rank;
    }
    memcpy(t->shape, shape, (size_t)rank * sizeof *shape);
    t->to = (ht_tensor_output){t->name, dtype, rank, t->shape, bytes};
}

/* The name of floats that were packed as compressed-tensors does; transformers calls stacked experts by their module. */
static ht_status rename_packed(ht_fuse_tensor *t, ht_error *err) {
    static const char packed[] = "_packed", weight[] = ".weight_packed";
    if (!ends_with(t->name, weight)) return HT_OK;
    size_t n = strlen(t->name) - (t->from.n_dims == 3 ? sizeof weight : sizeof packed) + 1;
    t->renamed = strndup(t->name, n);
    return t->renamed ? HT_OK : ht_fail_memory(err, n + 1, "a name");
}

static ht_status put_groups(const ht_fuse_plan *plan, ht_fuse_tensor *t, ht_error *err) {
    const ht_fuse_tensor *weight = &plan->tensor[t->owner];
    const int rank = weight->from.n_dims;
    int64_t shape[HT_SAFETENSORS_RANK_MAX];
    memcpy(shape, weight->from.dims, sizeof shape);
    int64_t *columns = &shape[rank - 1];
    if (!t->part) {
        *columns = *columns * plan->options.quantize_bits / 32;
        return put_output(t, "U32", rank, shape, 4, err);
    }
    *columns /= plan->options.quantize_group;
    const ht_affine affine = ht_affine_of((ht_weight_type)weight->from.type);
    return put_output(t, ht_weight_type_info_of(affine.scale)->name, rank, shape, (size_t)affine.scale_bytes, err);
}

static ht_status choose_outputs(ht_fuse_plan *plan, ht_error *err) {
    ht_dtype own;
    ht_status status = choose_dtype(plan, &own, err);
    for (size_t i = 0; !status && i < plan->n; i++) {
        ht_fuse_tensor *t = &plan->tensor[i];
        ht_dtype dtype = plan->options.dtype;
        switch (t->action) {
        case HT_FUSE_DROP: break;
        case HT_FUSE_COPY: keep_output(plan, i, t); break;
        case HT_FUSE_GROUPS: status = put_groups(plan, t, err); break;
        case HT_FUSE_DENSE:
            if (!dtype) dtype = t->quantized ? own : dtype_of(t->from.type);
            status = rename_packed(t, err);
            if (!status)
                status = put_output(t, spelled(dtype), t->from.n_dims, t->from.dims, ht_dtype_bytes(dtype), err);
        }
    }
    return status;
}

/* ---- the plan ---- */

ht_status ht_fuse_plan_make(ht_fuse_plan *plan, ht_adapter *const *adapters, const float *scales, int n,
                            ht_error *err) {
    ht_status status = list_tensors(plan, err);
    if (!status) status = list_changes(plan, adapters, scales, n, err);
    if (!status) status = choose_actions(plan, err);
    for (size_t i = 0; !status && plan->c->gguf && i < plan->n; i++)
        if (plan->tensor[i].action == HT_FUSE_DENSE) status = drop_product_scales(plan, &plan->tensor[i], err);
    return status ? status : choose_outputs(plan, err);
}

void ht_fuse_plan_free(ht_fuse_plan *plan) {
    for (size_t i = 0; plan->tensor && i < plan->n; i++) {
        free(plan->tensor[i].name);
        free(plan->tensor[i].renamed);
    }
    free(plan->tensor);
    free(plan->change);
}

size_t ht_fuse_plan_bytes(const ht_fuse_plan *plan) {
    size_t bytes = 0;
    for (size_t i = 0; i < plan->n; i++) bytes += plan->tensor[i].to.n_bytes;
    return bytes;
}

bool ht_fuse_is_dense(const ht_fuse_plan *plan) {
    for (size_t i = 0; i < plan->n; i++)
        if (plan->tensor[i].quantized && plan->tensor[i].action != HT_FUSE_DENSE) return false;
    return true;
}
