/* The plan of a rewrite: the tensors, and how to write each once its action and type are chosen. */
#include "base/checked.h"
#include "base/error.h"
#include "base/text.h"
#include "checkpoint/rewrite.h"
#include "formats/affine.h"
#include "formats/blocks.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- tensors ---- */

/* Finds the tensor whose name ends with `to` instead of `end`. */
static bool find_sibling(const ht_rewrite_plan *plan, const ht_rewrite_tensor *t, const char *end, const char *to,
                         ht_stored_tensor *out) {
    char name[HT_SIBLING_NAME];
    return ht_sibling_name(t->name, strlen(t->name), end, to, name) && ht_checkpoint_find(plan->c, name, out);
}

ht_status ht_rewrite_plan_open(ht_rewrite_plan *plan, const char *model_path, ht_error *err) {
    ht_status status = ht_checkpoint_open(model_path, &plan->c, err);
    if (status) return status;
    plan->config = calloc(1, sizeof *plan->config);
    return plan->config ? HT_OK : ht_fail_memory(err, sizeof *plan->config, "a configuration");
}

ht_status ht_rewrite_plan_list(ht_rewrite_plan *plan, ht_error *err) {
    plan->n = ht_checkpoint_n_tensors(plan->c);
    plan->capacity = 3 * plan->n; /* a weight may get scales and biases */
    plan->tensor = calloc(plan->capacity + 1, sizeof *plan->tensor);
    if (!plan->tensor) return ht_fail_memory(err, plan->n * sizeof *plan->tensor, "a list of tensors");
    for (size_t i = 0; i < plan->n; i++) {
        ht_rewrite_tensor *t = &plan->tensor[i];
        ht_checkpoint_tensor_at(plan->c, i, &t->from);
        t->name = strndup(t->from.name, t->from.name_len);
        if (!t->name) return ht_fail_memory(err, t->from.name_len + 1, "a name");
        ht_stored_tensor owner;
        t->owner = ht_scheme_owner(plan->c, &t->from, &owner) ? owner.number : i;
        t->quantized = t->owner == i && t->from.type >= 0 && !ht_weight_is_float(t->from.type);
        t->n_shares = 1;
        if (!plan->c->gguf) t->file = ht_safetensors_at(plan->c->tensors, i)->file;
    }
    return HT_OK;
}

/* ---- types ---- */

ht_dtype ht_rewrite_dtype(int type) {
    return type == HT_W_F32 ? HT_F32 : type == HT_W_F16 ? HT_F16 : type == HT_W_BF16 ? HT_BF16 : HT_DTYPE_NONE;
}

ht_weight_type ht_rewrite_weight_type(ht_dtype dtype) {
    return dtype == HT_F32 ? HT_W_F32 : dtype == HT_F16 ? HT_W_F16 : HT_W_BF16;
}

ht_status ht_rewrite_check_dtype(ht_dtype dtype, ht_error *err) {
    if (dtype == HT_DTYPE_NONE || dtype == HT_F32 || dtype == HT_F16 || dtype == HT_BF16) return HT_OK;
    return ht_fail(err, HT_ERR_ARGUMENT, "weights cannot be written as %s; f32, f16 and bf16 can",
                   ht_dtype_name(dtype));
}

static ht_dtype dtype_named(const char *name) {
    static const struct {
        const char *name;
        ht_dtype dtype;
    } names[] = {{"float32", HT_F32}, {"bfloat16", HT_BF16}, {"float16", HT_F16}};
    for (size_t i = 0; name && i < sizeof names / sizeof *names; i++)
        if (ht_ends_with(name, names[i].name))
            return names[i].dtype; /* also "torch.bfloat16", which ends in "float16", too */
    return HT_DTYPE_NONE;
}

/* The dtype in config.json. *out stays HT_DTYPE_NONE without one. */
static ht_status configured_dtype(const ht_checkpoint_files *c, ht_dtype *out, ht_error *err) {
    ht_json *root;
    ht_status status = ht_json_parse(c->config_text, c->config_size, c->name, &root, err);
    if (status) return status;
    const ht_json *objects[] = {root, ht_json_object_get(root, "text_config")};
    static const char *const keys[] = {"dtype", "torch_dtype"};
    for (int i = 0; i < 4 && !*out; i++)
        *out = dtype_named(ht_json_string_value(ht_json_object_get(objects[i / 2], keys[i % 2])));
    ht_json_decref(root);
    return HT_OK;
}

/* GGUF files have f32 vectors and small f32 matrices whatever the model's type, so only bf16 counts there. */
ht_status ht_rewrite_float_type(const ht_rewrite_plan *plan, ht_dtype *out, ht_error *err) {
    int64_t count[HT_DTYPE_COUNT] = {0};
    *out = HT_DTYPE_NONE;
    ht_status status = plan->c->gguf ? HT_OK : configured_dtype(plan->c, out, err);
    if (status || *out) return status;
    for (size_t i = 0; i < plan->n; i++)
        if (plan->tensor[i].owner == i && plan->tensor[i].action != HT_REWRITE_DROP)
            count[ht_rewrite_dtype(plan->tensor[i].from.type)] +=
                ht_elements(plan->tensor[i].from.dims, plan->tensor[i].from.n_dims);
    if (plan->c->gguf)
        *out = count[HT_BF16] > count[HT_F16] ? HT_BF16 : HT_F16;
    else if (count[HT_F32] > count[HT_BF16] && count[HT_F32] > count[HT_F16])
        *out = HT_F32;
    else
        *out = count[HT_F16] > count[HT_BF16] ? HT_F16 : HT_BF16;
    return HT_OK;
}

/* Drops a GGUF file's product scales of weights that become floats: the floats include them. */
static ht_status drop_product_scales(ht_rewrite_plan *plan, const ht_rewrite_tensor *t, ht_error *err) {
    const int64_t n = t->from.n_dims == 3 ? t->from.dims[0] : 1;
    float *values = malloc((size_t)n * sizeof *values);
    const ht_product_scales of = {t->name, n, 0, 1};
    bool found;
    size_t number;
    if (!values) return ht_fail_memory(err, (size_t)n * sizeof *values, "scales");
    ht_status status = ht_stored_product_scales(plan->c, plan->config, &of, values, &found, &number, err);
    free(values);
    ht_stored_tensor scale;
    if (status || !found) return status;
    if (find_sibling(plan, t, "weight", "scale", &scale)) plan->tensor[scale.number].action = HT_REWRITE_DROP;
    if (find_sibling(plan, t, "weight", "input_scale", &scale)) plan->tensor[scale.number].action = HT_REWRITE_DROP;
    return HT_OK;
}

/* ---- as written ---- */

static ht_status put_output(ht_rewrite_tensor *t, const char *dtype, int rank, const int64_t *shape,
                            size_t element_bytes, ht_error *err) {
    size_t bytes = element_bytes;
    for (int d = 0; d < rank; d++)
        if (!ht_mul_size(bytes, (size_t)shape[d], &bytes))
            return ht_fail(err, HT_ERR_LIMIT, "%s: tensor `%s` is too large", t->from.file_name, t->name);
    memmove(t->shape, shape, (size_t)rank * sizeof *shape);
    t->to = (ht_tensor_output){t->renamed ? t->renamed : t->name, dtype, rank, t->shape, bytes};
    return HT_OK;
}

/* Output of an unchanged tensor. In safetensors this is the stored tensor, while t->from may describe a joined one. */
static void keep_output(const ht_rewrite_plan *plan, size_t i, ht_rewrite_tensor *t) {
    const bool itself = !plan->c->gguf && !t->given;
    const ht_stored_tensor from = itself ? ht_stored_of_safetensors(plan->c->tensors, i) : t->from;
    memcpy(t->shape, from.dims, sizeof t->shape);
    t->to = (ht_tensor_output){t->renamed ? t->renamed : t->name, from.type_name, from.n_dims, t->shape, from.n_bytes};
}

/* Renames a weight packed by compressed-tensors. transformers names stacked experts after their module. */
static ht_status rename_packed(ht_rewrite_tensor *t, ht_error *err) {
    static const char packed[] = "_packed", weight[] = ".weight_packed";
    if (t->renamed || !ht_ends_with(t->name, weight)) return HT_OK;
    size_t n = strlen(t->name) - (t->from.n_dims == 3 ? sizeof weight : sizeof packed) + 1;
    t->renamed = strndup(t->name, n);
    return t->renamed ? HT_OK : ht_fail_memory(err, n + 1, "a name");
}

/* ---- MLX's groups ---- */

bool ht_rewrite_in_parts(const ht_rewrite_plan *plan, const ht_rewrite_tensor *weight) {
    if (weight->action != HT_REWRITE_ROUND || plan->to_gguf) return false;
    return ht_affine_of(weight->type).bits || weight->type == HT_W_MXFP4;
}

static int parts_of(const ht_rewrite_tensor *weight) { return weight->type == HT_W_MXFP4 ? 2 : 3; }

static int part_named(const char *name) {
    return ht_ends_with(name, ".scales") ? 1 : ht_ends_with(name, ".biases") ? 2 : 0;
}

/* Sets the action of each scale and bias from that of its weight. */
static void follow_owners(ht_rewrite_plan *plan) {
    for (size_t i = 0; i < plan->n; i++) {
        ht_rewrite_tensor *t = &plan->tensor[i];
        const ht_rewrite_tensor *weight = &plan->tensor[t->owner];
        if (t->owner == i || weight->action == HT_REWRITE_COPY) continue;
        t->part = plan->c->quantization ? part_named(t->name) : 0;
        t->action = ht_rewrite_in_parts(plan, weight) && t->part && t->part < parts_of(weight) ? HT_REWRITE_ROUND
                                                                                               : HT_REWRITE_DROP;
    }
}

/* Adds part `part` of weight `owner` unless it exists. */
static ht_status add_part(ht_rewrite_plan *plan, size_t owner, int part, ht_error *err) {
    const ht_rewrite_tensor *weight = &plan->tensor[owner];
    const char *weight_name = weight->renamed ? weight->renamed : weight->name;
    const char *suffix = part == 1 ? "scales" : "biases";
    ht_stored_tensor there;
    size_t stem = strlen(weight_name) - strlen("weight");
    if (!plan->to_other && find_sibling(plan, weight, ".weight", part == 1 ? ".scales" : ".biases", &there) &&
        plan->tensor[there.number].owner == owner)
        return HT_OK;
    char *name = malloc(stem + strlen(suffix) + 1);
    if (!name) return ht_fail_memory(err, stem + strlen(suffix) + 1, "a name");
    memcpy(name, weight_name, stem);
    memcpy(name + stem, suffix, strlen(suffix) + 1);
    plan->tensor[plan->n++] = (ht_rewrite_tensor){.owner = owner,
                                                  .action = HT_REWRITE_ROUND,
                                                  .type = weight->type,
                                                  .part = part,
                                                  .n_shares = 1,
                                                  .file = weight->file,
                                                  .name = name};
    return HT_OK;
}

static ht_status add_parts(ht_rewrite_plan *plan, ht_error *err) {
    ht_status status = HT_OK;
    const size_t n = plan->n;
    for (size_t i = 0; !status && i < n; i++)
        for (int part = 1; !status && plan->tensor[i].owner == i && ht_rewrite_in_parts(plan, &plan->tensor[i]) &&
                           part < parts_of(&plan->tensor[i]);
             part++)
            status = add_part(plan, i, part, err);
    return status;
}

/* Sets the sizes of one part of a weight in groups. */
static ht_status put_part(const ht_rewrite_plan *plan, ht_rewrite_tensor *t, ht_error *err) {
    const ht_rewrite_tensor *weight = &plan->tensor[t->owner];
    const ht_affine affine = ht_affine_of(weight->type);
    const int bits = affine.bits ? affine.bits : 4, group = affine.bits ? affine.group : HT_BLOCK_SMALL;
    const int rank = weight->from.n_dims;
    int64_t shape[HT_SAFETENSORS_RANK_MAX];
    memcpy(shape, weight->from.dims, sizeof shape);
    if (!t->part) {
        shape[rank - 1] = shape[rank - 1] * bits / 32;
        return put_output(t, "U32", rank, shape, 4, err);
    }
    shape[rank - 1] /= group;
    if (!affine.bits) return put_output(t, "U8", rank, shape, 1, err);
    return put_output(t, ht_weight_type_info_of(affine.scale)->name, rank, shape, (size_t)affine.scale_bytes, err);
}

int ht_rewrite_axes(const char *pattern, int64_t rows, int64_t columns, int64_t *dims) {
    int n = 0;
    for (; pattern[n]; n++)
        dims[n] = pattern[n] == 'r' ? rows : pattern[n] == 'c' ? columns : pattern[n] == 'v' ? rows * columns : 1;
    return n;
}

/* Sets the output of a weight in one tensor: floats, or a GGUF file's blocks. */
static ht_status put_weight(ht_rewrite_tensor *t, ht_error *err) {
    const ht_weight_type_info *info = ht_weight_type_info_of(t->type);
    ht_stored_tensor as = t->transposes ? ht_tensor_transposed(&t->from) : t->from;
    if (t->axes) as.n_dims = ht_rewrite_axes(t->axes, t->from.dims[0], t->from.dims[1], as.dims);
    ht_status status = put_output(t, info->name, as.n_dims, as.dims, info->block_bytes, err);
    t->to.n_bytes /= (size_t)info->block;
    return status;
}

static ht_status choose_outputs(ht_rewrite_plan *plan, ht_error *err) {
    ht_status status = HT_OK;
    for (size_t i = 0; !status && i < plan->n; i++) {
        ht_rewrite_tensor *t = &plan->tensor[i];
        if (t->action == HT_REWRITE_COPY)
            keep_output(plan, i, t);
        else if (t->action == HT_REWRITE_ROUND && ht_rewrite_in_parts(plan, &plan->tensor[t->owner]))
            status = put_part(plan, t, err);
        else if (t->action == HT_REWRITE_ROUND)
            status = put_weight(t, err);
    }
    return status;
}

/* ---- the finished plan ---- */

ht_status ht_rewrite_plan_finish(ht_rewrite_plan *plan, ht_error *err) {
    ht_status status = HT_OK;
    follow_owners(plan);
    for (size_t i = 0; !status && i < plan->n; i++) {
        ht_rewrite_tensor *t = &plan->tensor[i];
        if (t->action != HT_REWRITE_ROUND || t->owner != i || plan->to_other) continue;
        status = plan->c->gguf ? drop_product_scales(plan, t, err) : rename_packed(t, err);
    }
    if (!status) status = add_parts(plan, err);
    return status ? status : choose_outputs(plan, err);
}

void ht_rewrite_plan_free(ht_rewrite_plan *plan) {
    for (size_t i = 0; plan->tensor && i < plan->n; i++) {
        free(plan->tensor[i].name);
        free(plan->tensor[i].renamed);
        free(plan->tensor[i].piece);
        free(plan->tensor[i].factors);
        free(plan->tensor[i].given);
    }
    for (int i = 0; plan->file && i < plan->n_files; i++) free(plan->file[i]);
    free(plan->file);
    ht_json_decref(plan->metadata);
    free(plan->tensor);
    free(plan->change);
    free(plan->config);
    ht_checkpoint_close(plan->c);
}

bool ht_rewrite_changes_type(const ht_rewrite_tensor *weight) {
    return weight->action == HT_REWRITE_ROUND && weight->from.type != (int)weight->type;
}

size_t ht_rewrite_plan_bytes(const ht_rewrite_plan *plan) {
    size_t bytes = 0;
    for (size_t i = 0; i < plan->n; i++) bytes += plan->tensor[i].to.n_bytes;
    return bytes;
}

bool ht_rewrite_is_dense(const ht_rewrite_plan *plan) {
    for (size_t i = 0; i < plan->n; i++) {
        const ht_rewrite_tensor *t = &plan->tensor[i];
        if (t->action == HT_REWRITE_COPY
                ? t->quantized
                : t->action == HT_REWRITE_ROUND && !ht_weight_is_float((int)plan->tensor[t->owner].type))
            return false;
    }
    return true;
}
