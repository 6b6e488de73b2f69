/* config.json of a rewritten checkpoint: the dtype, and which modules are quantised. */
#include "base/error.h"
#include "checkpoint/rewrite.h"
#include "formats/affine.h"
#include "formats/blocks.h"
#include "formats/json.h"

#include <stdlib.h>
#include <string.h>

/* The names under which mlx-lm writes its settings, and other tools theirs. */
static const char *const settings[] = {"quantization", "quantization_config", "compression_config"};
enum { N_SETTINGS = sizeof settings / sizeof *settings };

static ht_status out_of_memory(ht_error *err) { return ht_fail_memory(err, 0, "config.json"); }

static bool any_changed(const ht_rewrite_plan *plan) {
    for (size_t i = 0; i < plan->n; i++) {
        const ht_rewrite_tensor *t = &plan->tensor[i];
        if (t->action == HT_REWRITE_ROUND && (t->quantized || ht_rewrite_in_parts(plan, t))) return true;
    }
    return false;
}

/* ---- dtype ---- */

/* transformers casts weights to the dtype that is stated here. */
static ht_status state_dtype(ht_json *object, ht_dtype dtype, ht_error *err) {
    static const char *const keys[] = {"dtype", "torch_dtype"};
    const char *name = dtype == HT_F32 ? "float32" : dtype == HT_F16 ? "float16" : "bfloat16";
    for (int i = 0; i < 2; i++)
        if (ht_json_is_string(ht_json_object_get(object, keys[i])) &&
            ht_json_object_set_new(object, keys[i], ht_json_string(name)))
            return out_of_memory(err);
    return HT_OK;
}

/* ---- MLX's settings ---- */

/* A module of the settings, from its weight's name; the caller frees it. */
static char *module_of(const ht_rewrite_tensor *t) {
    static const char weight[] = ".weight";
    const char *name = t->renamed ? t->renamed : t->name;
    size_t n = strlen(name), m = sizeof weight - 1;
    return strndup(name, n > m && !strcmp(name + n - m, weight) ? n - m : n);
}

static bool is_affine(const ht_json *quantization) {
    const char *mode = ht_json_string_value(ht_json_object_get(quantization, "mode"));
    return !mode || !strcmp(mode, "affine");
}

typedef struct groups {
    int64_t bits, size;
    bool affine;
} groups;

static groups groups_of(ht_weight_type type) {
    const ht_affine a = ht_affine_of(type);
    return a.bits ? (groups){a.bits, a.group, true} : (groups){4, HT_BLOCK_SMALL, false};
}

/* The type of a weight that is written in such groups; -1: another. */
static int group_type(const ht_rewrite_plan *plan, const ht_rewrite_tensor *t) {
    if (t->action == HT_REWRITE_ROUND) return ht_rewrite_in_parts(plan, t) ? (int)t->type : -1;
    const int type = t->action == HT_REWRITE_COPY ? t->from.type : -1;
    return type >= 0 && (type == HT_W_MXFP4 || ht_affine_of((ht_weight_type)type).bits) ? type : -1;
}

static ht_json *settings_of(const groups *g, bool with_mode) {
    ht_json *out = ht_json_pack("{s:I, s:I}", "group_size", g->size, "bits", g->bits);
    if (out && with_mode && ht_json_object_set_new(out, "mode", ht_json_string(g->affine ? "affine" : "mxfp4"))) {
        ht_json_decref(out);
        out = NULL;
    }
    return out;
}

/* States how a module is stored. mlx-lm takes those for quantised that have scales, or an entry here that is not false;
 * one without an entry has the settings of all, which an entry does not inherit. False when memory ran out. */
static bool change_entry(const ht_rewrite_plan *plan, const ht_rewrite_tensor *t, ht_json *quantization,
                         const char *module) {
    const bool affine = is_affine(quantization);
    const int type = group_type(plan, t);
    if (type < 0)
        return !ht_json_object_get(quantization, module) ||
               !ht_json_object_set_new(quantization, module, ht_json_boolean(false));
    const groups g = groups_of((ht_weight_type)type);
    if (affine == g.affine && ht_json_integer_value(ht_json_object_get(quantization, "bits")) == g.bits &&
        ht_json_integer_value(ht_json_object_get(quantization, "group_size")) == g.size) {
        ht_json_object_del(quantization, module);
        return true;
    }
    ht_json *entry = settings_of(&g, !affine || !g.affine);
    return entry && !ht_json_object_set_new(quantization, module, entry);
}

/* Of the changed modules, or of all. */
static ht_status change_entries(const ht_rewrite_plan *plan, ht_json *quantization, bool all, ht_error *err) {
    ht_status status = HT_OK;
    for (size_t i = 0; !status && i < plan->n; i++) {
        const ht_rewrite_tensor *t = &plan->tensor[i];
        const bool changed = t->action == HT_REWRITE_ROUND && t->quantized;
        if (t->owner != i || !(changed || ((all || t->action == HT_REWRITE_ROUND) && group_type(plan, t) >= 0)))
            continue;
        char *module = module_of(t);
        if (!module || !change_entry(plan, t, quantization, module)) status = out_of_memory(err);
        free(module);
    }
    return status;
}

/* The settings of a checkpoint that becomes one of groups: those of most weights. */
static ht_json *new_settings(const ht_rewrite_plan *plan) {
    groups most = {0};
    double largest = 0;
    for (size_t i = 0; i < plan->n; i++) {
        const ht_rewrite_tensor *t = &plan->tensor[i];
        const int type = t->owner == i ? group_type(plan, t) : -1;
        if (type < 0 || (double)t->to.n_bytes <= largest) continue;
        largest = (double)t->to.n_bytes;
        most = groups_of((ht_weight_type)type);
    }
    return settings_of(&most, true);
}

static bool any_groups(const ht_rewrite_plan *plan) {
    for (size_t i = 0; i < plan->n; i++)
        if (plan->tensor[i].owner == i && ht_rewrite_in_parts(plan, &plan->tensor[i])) return true;
    return false;
}

/* Whether the settings of all are to be new ones: there were none of MLX's, or all weights were rounded and none is left of a kind
 * that only they tell of. Fusing changes some weights, and leaves what is said of the others. */
static bool wants_settings(const ht_rewrite_plan *plan) {
    if (plan->c->quantization && strcmp(plan->mark, HT_REWRITE_QUANTIZED) != 0) return false;
    for (size_t i = 0; plan->c->quantization && i < plan->n; i++) {
        const ht_rewrite_tensor *t = &plan->tensor[i];
        if (t->action == HT_REWRITE_COPY && t->quantized && group_type(plan, t) < 0) return false;
    }
    return any_groups(plan);
}

/* Replaces the settings of another quantisation, or of none; mlx-lm reads the first name, transformers the second. */
static ht_status put_settings(const ht_rewrite_plan *plan, ht_json *root, ht_error *err) {
    ht_json *made = new_settings(plan);
    if (!made) return out_of_memory(err);
    ht_status status = change_entries(plan, made, true, err);
    for (int i = 0; i < N_SETTINGS; i++) ht_json_object_del(root, settings[i]);
    for (int i = 0; !status && i < 2; i++)
        if (ht_json_object_set(root, settings[i], made)) status = out_of_memory(err);
    ht_json_decref(made);
    return status;
}

/* ---- the document ---- */

static ht_status change_object(const ht_rewrite_plan *plan, ht_json *object, bool dense, ht_error *err) {
    ht_status status = plan->dtype ? state_dtype(object, plan->dtype, err) : HT_OK;
    for (int i = 0; !status && i < N_SETTINGS; i++) {
        ht_json *quantization = ht_json_object_get(object, settings[i]);
        if (dense)
            ht_json_object_del(object, settings[i]);
        else if (plan->c->quantization && ht_json_is_object(quantization))
            status = change_entries(plan, quantization, false, err);
    }
    return status;
}

ht_status ht_rewrite_config(const ht_rewrite_plan *plan, ht_json_text config, char **text, ht_error *err) {
    *text = NULL;
    const bool changed = any_changed(plan), dense = changed && ht_rewrite_is_dense(plan);
    const bool anew = wants_settings(plan);
    if (!changed && !plan->dtype) return HT_OK;
    ht_json *root;
    ht_status status = ht_json_parse(config.data, config.size, plan->c->name, &root, err);
    if (status) return status;
    ht_json *inner = ht_json_object_get(root, "text_config");
    if (ht_json_is_real(ht_json_object_get(root, "vocab_size")) ||
        ht_json_is_real(ht_json_object_get(inner, "vocab_size")))
        status = ht_fail(err, HT_ERR_UNSUPPORTED, "%s: holds a number of more than 64 bits, which would be lost",
                         plan->c->name);
    if (!status) status = change_object(plan, root, dense || anew, err);
    if (!status && ht_json_is_object(inner)) status = change_object(plan, inner, dense || anew, err);
    if (!status && anew) status = put_settings(plan, root, err);
    if (!status && !(*text = ht_json_dump(root, HT_JSON_INDENT(2)))) status = out_of_memory(err);
    ht_json_decref(root);
    return status;
}
