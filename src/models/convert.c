/* Quantising of checkpoints (hearth/convert.h): the options, and which type every tensor gets; rewriting does the rest. */
#include "base/error.h"
#include "base/options.h"
#include "formats/affine.h"
#include "models/quantize_types.h"
#include "models/registry.h"
#include "models/rewrite.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static const ht_convert_options defaults = {.size = sizeof defaults};

void ht_convert_options_init(ht_convert_options *options, size_t size) {
    ht_options_init(options, size, &defaults, sizeof defaults);
}

static bool ends_with(const char *s, const char *end) {
    size_t n = strlen(s), m = strlen(end);
    return n >= m && !strcmp(s + n - m, end);
}

static bool is_float(int type) { return type == HT_W_F32 || type == HT_W_F16 || type == HT_W_BF16; }

/* Gives a weight its new type; one that has it already is copied, if no factors go into it. */
static void set_type(ht_rewrite_tensor *t, ht_weight_type type) {
    if (t->from.type == (int)type) return;
    t->action = HT_REWRITE_ROUND;
    t->type = type;
}

/* ---- GGUF ---- */

static int layer_of(const char *name) {
    int layer;
    return sscanf(name, "blk.%d.", &layer) == 1 ? layer : -1;
}

static ht_status unknown_mix(const char *name, ht_error *err) {
    char known[400] = "";
    size_t n = 0;
    for (int i = 0; ht_quantize_mix_at(i) && n < sizeof known; i++)
        n += (size_t)snprintf(known + n, sizeof known - n, "%s%s", i ? ", " : "", ht_quantize_mix_at(i)->name);
    return ht_fail(err, HT_ERR_ARGUMENT, "`%s` is no type of weights in GGUF; there are %s", name, known);
}

static ht_status choose_gguf_types(ht_rewrite_plan *plan, const ht_convert_options *o, ht_error *err) {
    const ht_quantize_mix *mix = ht_quantize_mix_named(o->type);
    const ht_config *config = plan->config;
    ht_stored_tensor head;
    if (!mix) return unknown_mix(o->type, err);
    const bool untied = ht_checkpoint_find(plan->c, "output.weight", &head);
    plan->file_type = mix->file_type;
    for (size_t i = 0; i < plan->n; i++) {
        ht_rewrite_tensor *t = &plan->tensor[i];
        if (t->from.type < 0 || t->from.n_dims < 2 || !ends_with(t->name, "weight") || !ht_quantize_is_rounded(t->name))
            continue;
        const ht_quantize_tensor what = {.name = t->name,
                                         .columns = t->from.dims[t->from.n_dims - 1],
                                         .layer = layer_of(t->name),
                                         .n_layers = (int)config->n_layers,
                                         .n_experts = (int)config->n_experts,
                                         .queries_per_kv = (int)(config->n_heads / config->n_kv_heads),
                                         .is_head = !strcmp(t->name, untied ? "output.weight" : "token_embd.weight"),
                                         .importance = o->importance != NULL};
        snprintf(t->importance, sizeof t->importance, "%s", t->name);
        set_type(t, ht_quantize_type(mix, o->pure, &what));
    }
    return HT_OK;
}

/* ---- MLX ---- */

/* What a directory's weights become: floats or groups. */
typedef struct target {
    ht_weight_type type; /* MXFP4, or of floats; unspecified for affine groups */
    int bits, group;     /* affine groups; 0: not */
} target;

static ht_status parse_target(const char *name, target *out, ht_error *err) {
    const ht_quantize_mix *mix = ht_quantize_mix_named(name);
    *out = (target){.type = HT_W_MXFP4};
    if (mix && (is_float((int)mix->type) || mix->type == HT_W_MXFP4)) {
        out->type = mix->type;
        return HT_OK;
    }
    char *end;
    const long bits = strtol(name, &end, 10), group = *end == ':' ? strtol(end + 1, &end, 10) : 64;
    if (end != name && *end == '\0' && ht_affine_type(bits, group, HT_W_F16) >= 0) {
        out->bits = (int)bits;
        out->group = (int)group;
        return HT_OK;
    }
    return ht_fail(
        err, HT_ERR_ARGUMENT,
        "`%s` is no type of weights in safetensors; there are 2, 3, 4, 5, 6 and 8 bits, each also with :32, :64 or "
        ":128 for the columns of a group, mxfp4, f32, f16 and bf16; other types are GGUF's",
        name);
}

typedef struct chosen {
    ht_rewrite_plan *plan;
    bool *is_weight; /* [plan->n] */
} chosen;

static ht_status choose_projection(const ht_stored_projection *p, void *user, ht_error *err) {
    (void)err;
    const chosen *all = user;
    all->is_weight[p->tensor] = true;
    ht_rewrite_tensor *t = &all->plan->tensor[p->tensor];
    t->n_shares = (int)p->n_shares;
    snprintf(t->importance, sizeof t->importance, "%s.weight", p->of.gguf);
    return HT_OK;
}

/* Projections, routers apart; the table of embeddings and the head. */
static ht_status find_weights(ht_rewrite_plan *plan, bool *is_weight, ht_error *err) {
    chosen all = {plan, is_weight};
    ht_status status = ht_weights_visit(plan->c, plan->config, choose_projection, &all, err);
    for (size_t i = 0; !status && i < plan->n; i++) {
        ht_rewrite_tensor *t = &plan->tensor[i];
        if (t->owner != i || t->from.n_dims != 2) continue;
        const bool is_head = plan->c->head && !strcmp(t->name, plan->c->head);
        const bool is_table = ends_with(t->name, "embed_tokens.weight");
        is_weight[i] = is_weight[i] || is_head || is_table || ends_with(t->name, "embed_tokens_per_layer.weight");
        if (is_head || is_table)
            snprintf(t->importance, sizeof t->importance, "%s", is_head ? "output.weight" : "token_embd.weight");
    }
    return status;
}

static ht_status set_group_type(ht_rewrite_tensor *t, const target *to, ht_dtype own, ht_error *err) {
    const ht_weight_type floats = ht_rewrite_weight_type(own);
    const int group = to->bits ? to->group : 32;
    if (!ends_with(t->name, ".weight") && !ends_with(t->name, ".weight_packed"))
        return ht_fail(err, HT_ERR_UNSUPPORTED,
                       "%s: tensor `%s` holds stacked experts, which are not yet written in groups", t->from.file_name,
                       t->name);
    if (strstr(t->name, ".experts.") && t->from.n_dims == 2)
        return ht_fail(err, HT_ERR_UNSUPPORTED,
                       "%s: tensor `%s` is of one expert, and mlx-lm reads groups of all experts in one tensor alone",
                       t->from.file_name, t->name);
    if (t->from.dims[t->from.n_dims - 1] % group)
        set_type(t, t->quantized ? floats : (ht_weight_type)t->from.type);
    else
        set_type(t, to->bits ? (ht_weight_type)ht_affine_type(to->bits, to->group, floats) : HT_W_MXFP4);
    return HT_OK;
}

static ht_status choose_directory_types(ht_rewrite_plan *plan, const ht_convert_options *o, ht_error *err) {
    target to;
    ht_dtype own;
    bool *is_weight = calloc(plan->n + 1, sizeof *is_weight);
    ht_status status = is_weight ? parse_target(o->type, &to, err) : ht_fail_memory(err, plan->n, "a list of tensors");
    if (!status) status = find_weights(plan, is_weight, err);
    if (!status) status = ht_rewrite_float_type(plan, &own, err);
    const bool floats = !status && !to.bits && is_float((int)to.type);
    if (floats) plan->dtype = ht_rewrite_dtype((int)to.type);
    for (size_t i = 0; !status && i < plan->n; i++) {
        ht_rewrite_tensor *t = &plan->tensor[i];
        if (t->owner != i || t->from.type < 0) continue;
        if (floats)
            set_type(t, to.type);
        else if (is_weight[i])
            status = set_group_type(t, &to, own, err);
    }
    free(is_weight);
    return status;
}

/* ---- quantising ---- */

static void fill_report(const ht_rewrite_plan *plan, ht_convert_report *out) {
    double bytes = 0, weights = 0;
    *out = (ht_convert_report){.bytes = (int64_t)ht_rewrite_plan_bytes(plan)};
    for (size_t i = 0; i < plan->n; i++) {
        const ht_rewrite_tensor *t = &plan->tensor[i];
        if (t->action != HT_REWRITE_ROUND) continue;
        bytes += (double)t->to.n_bytes;
        if (t->owner != i) continue;
        double n = 1;
        for (int d = 0; d < t->from.n_dims; d++) n *= (double)t->from.dims[d];
        weights += n;
        out->n_rounded++;
    }
    out->bits = weights > 0 ? 8 * bytes / weights : 0;
}

static ht_status write_checkpoint(const ht_rewrite_plan *plan, const char *path, const ht_convert_options *o,
                                  ht_error *err) {
    ht_rewrite_values *values;
    ht_status status = ht_rewrite_values_new(plan, o->n_threads, &values, err);
    if (!status) status = ht_rewrite_write(plan, values, path, err);
    if (!status && o->report) fill_report(plan, o->report);
    ht_rewrite_values_free(values);
    return status;
}

ht_status ht_convert(const char *model_path, const char *out_path, const ht_convert_options *options, ht_error *err) {
    ht_convert_options o;
    ht_checkpoint_files *c = NULL;
    ht_status status = ht_options_read(&o, options, &defaults, sizeof defaults, "ht_convert_options", err);
    if (!status && (!o.type || !*o.type)) status = ht_fail(err, HT_ERR_ARGUMENT, "the type of the weights is missing");
    if (!status && o.n_threads < 0) status = ht_fail(err, HT_ERR_ARGUMENT, "%d threads", (int)o.n_threads);
    if (!status) status = ht_checkpoint_open(model_path, &c, err);
    if (status) return status;
    ht_config *config = malloc(sizeof *config);
    ht_rewrite_plan plan = {.c = c,
                            .config = config,
                            .is_directory = ht_path_is_directory(model_path) && !ends_with(out_path, ".gguf"),
                            .verb = "quantising",
                            .mark = HT_REWRITE_QUANTIZED,
                            .file_type = -1,
                            .importance = o.importance,
                            .cancel = o.cancel,
                            .progress = o.progress,
                            .on_tensor = o.on_tensor,
                            .user = o.user};
    status = config ? HT_OK : ht_fail_memory(err, sizeof *config, "a configuration");
    if (!status && !c->gguf && !plan.is_directory)
        status = ht_fail(err, HT_ERR_ARGUMENT,
                         "%s: weights of safetensors are written to a directory, not to a GGUF file", out_path);
    if (!status) status = ht_rewrite_check_place(&plan, model_path, out_path, err);
    if (!status) status = ht_checkpoint_config(c, config, err);
    if (!status) status = ht_rewrite_plan_list(&plan, err);
    if (!status) status = c->gguf ? choose_gguf_types(&plan, &o, err) : choose_directory_types(&plan, &o, err);
    if (!status) status = ht_rewrite_plan_finish(&plan, err);
    if (!status) status = write_checkpoint(&plan, out_path, &o, err);
    ht_rewrite_plan_free(&plan);
    ht_checkpoint_close(c);
    free(config);
    return status;
}
