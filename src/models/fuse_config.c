/* config.json of a fused checkpoint: the dtype, and which modules are quantised. */
#include "base/error.h"
#include "formats/json.h"
#include "models/fuse.h"

#include <stdlib.h>
#include <string.h>

/* The names under which mlx-lm writes its settings, and other tools theirs. */
static const char *const settings[] = {"quantization", "quantization_config", "compression_config"};
enum { N_SETTINGS = sizeof settings / sizeof *settings };

static ht_status out_of_memory(ht_error *err) { return ht_fail_memory(err, 0, "config.json"); }

static bool any_dense(const ht_fuse_plan *plan) {
    for (size_t i = 0; i < plan->n; i++)
        if (plan->tensor[i].quantized && plan->tensor[i].action != HT_FUSE_COPY) return true;
    return false;
}

/* ---- dtype ---- */

/* transformers casts weights to the dtype that is stated here. */
static ht_status state_dtype(json_t *object, ht_dtype dtype, ht_error *err) {
    static const char *const keys[] = {"dtype", "torch_dtype"};
    const char *name = dtype == HT_F32 ? "float32" : dtype == HT_F16 ? "float16" : "bfloat16";
    for (int i = 0; i < 2; i++)
        if (json_is_string(json_object_get(object, keys[i])) && json_object_set_new(object, keys[i], json_string(name)))
            return out_of_memory(err);
    return HT_OK;
}

/* ---- MLX's settings ---- */

/* A module of the settings, from its weight's name; the caller frees it. */
static char *module_of(const ht_fuse_tensor *t) {
    static const char weight[] = ".weight";
    size_t n = strlen(t->name), m = sizeof weight - 1;
    return strndup(t->name, n > m && !strcmp(t->name + n - m, weight) ? n - m : n);
}

static bool is_affine(const json_t *quantization) {
    const char *mode = json_string_value(json_object_get(quantization, "mode"));
    return !mode || !strcmp(mode, "affine");
}

/* States how a changed module is stored. mlx-lm takes those for quantised that have scales, or an entry here that is not false;
 * one without an entry has the settings of all, which an entry does not inherit. False when memory ran out. */
static bool change_entry(const ht_fuse_plan *plan, const ht_fuse_tensor *t, json_t *quantization, const char *module) {
    const json_int_t bits = plan->options.quantize_bits, group = plan->options.quantize_group;
    const bool affine = is_affine(quantization);
    if (t->action == HT_FUSE_DENSE)
        return !json_object_get(quantization, module) || !json_object_set_new(quantization, module, json_false());
    if (affine && json_integer_value(json_object_get(quantization, "bits")) == bits &&
        json_integer_value(json_object_get(quantization, "group_size")) == group) {
        json_object_del(quantization, module);
        return true;
    }
    json_t *entry = affine ? json_pack("{s:I, s:I}", "group_size", group, "bits", bits)
                           : json_pack("{s:I, s:I, s:s}", "group_size", group, "bits", bits, "mode", "affine");
    return entry && !json_object_set_new(quantization, module, entry);
}

static ht_status change_entries(const ht_fuse_plan *plan, json_t *quantization, ht_error *err) {
    ht_status status = HT_OK;
    for (size_t i = 0; !status && i < plan->n; i++) {
        const ht_fuse_tensor *t = &plan->tensor[i];
        if (!t->quantized || t->action == HT_FUSE_COPY) continue;
        char *module = module_of(t);
        if (!module || !change_entry(plan, t, quantization, module)) status = out_of_memory(err);
        free(module);
    }
    return status;
}

/* ---- the document ---- */

static ht_status change_object(const ht_fuse_plan *plan, json_t *object, bool dense, ht_error *err) {
    ht_status status = plan->options.dtype ? state_dtype(object, plan->options.dtype, err) : HT_OK;
    for (int i = 0; !status && i < N_SETTINGS; i++) {
        json_t *quantization = json_object_get(object, settings[i]);
        if (dense)
            json_object_del(object, settings[i]);
        else if (plan->c->quantization && json_is_object(quantization))
            status = change_entries(plan, quantization, err);
    }
    return status;
}

ht_status ht_fuse_config(const ht_fuse_plan *plan, char **text, ht_error *err) {
    *text = NULL;
    const bool requantized = any_dense(plan), dense = requantized && ht_fuse_is_dense(plan);
    if (!requantized && !plan->options.dtype) return HT_OK;
    json_t *root;
    ht_status status = ht_json_parse(plan->c->config_text, plan->c->config_size, plan->c->name, &root, err);
    if (status) return status;
    json_t *inner = json_object_get(root, "text_config");
    if (json_is_real(json_object_get(root, "vocab_size")) || json_is_real(json_object_get(inner, "vocab_size")))
        status = ht_fail(err, HT_ERR_UNSUPPORTED, "%s: holds a number of more than 64 bits, which would be lost",
                         plan->c->name);
    if (!status) status = change_object(plan, root, dense, err);
    if (!status && json_is_object(inner)) status = change_object(plan, inner, dense, err);
    if (!status && !(*text = ht_json_text_of(root))) status = out_of_memory(err);
    json_decref(root);
    return status;
}
