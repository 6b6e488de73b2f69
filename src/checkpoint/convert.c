/* Converts and quantises checkpoints (hearth/convert.h): chooses the container and the type of every tensor;
 * rewriting does the rest. */
#include "base/error.h"
#include "base/options.h"
#include "base/text.h"
#include "checkpoint/family.h"
#include "checkpoint/rewrite.h"
#include "formats/affine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static const ht_convert_options defaults = {.size = sizeof defaults};

void ht_convert_options_init(ht_convert_options *options, size_t size) {
    ht_options_init(options, size, &defaults, sizeof defaults);
}

/* ---- types and mixes of GGUF files ---- */

typedef struct quantize_mix {
    const char *name;
    ht_weight_type type; /* type of most matrices */
    int file_type;       /* general.file_type */
} quantize_mix;

/* Name, type and number in llama.h (llama_ftype); the last three are aliases of llama-quantize. */
/* clang-format off */
#define MIXES(X) \
    X(F32, F32, 0) X(F16, F16, 1) X(BF16, BF16, 32) X(Q4_0, Q4_0, 2) X(Q4_1, Q4_1, 3) X(Q5_0, Q5_0, 8) \
    X(Q5_1, Q5_1, 9) X(Q8_0, Q8_0, 7) X(Q2_K, Q2_K, 10) X(Q2_K_S, Q2_K, 21) X(Q3_K_S, Q3_K, 11) \
    X(Q3_K_M, Q3_K, 12) X(Q3_K_L, Q3_K, 13) X(Q4_K_S, Q4_K, 14) X(Q4_K_M, Q4_K, 15) X(Q5_K_S, Q5_K, 16) \
    X(Q5_K_M, Q5_K, 17) X(Q6_K, Q6_K, 18) X(IQ4_NL, IQ4_NL, 25) X(IQ4_XS, IQ4_XS, 30) X(MXFP4, MXFP4, 38) \
    X(Q3_K, Q3_K, 12) X(Q4_K, Q4_K, 15) X(Q5_K, Q5_K, 17)
/* clang-format on */
#define ROW(name, type, number)       {#name, HT_W_##type, number},
#define FILE_TYPE(name, type, number) FT_##name = number,
static const quantize_mix mixes[] = {MIXES(ROW)};
enum { MIXES(FILE_TYPE) };
enum { N_MIXES = sizeof mixes / sizeof *mixes };

/* Ignores case; NULL: no such type or mix. */
static const quantize_mix *mix_named(const char *name) {
    for (int i = 0; i < N_MIXES; i++)
        if (!strcasecmp(mixes[i].name, name)) return &mixes[i];
    return NULL;
}

/* Whether to round a tensor of this name: routers and auxiliary matrices stay exact. */
static bool is_rounded(const char *name) {
    static const char *const kept[] = {"altup", "laurel", "per_layer_model_proj", NULL};
    return !ht_contains_any(name, kept) && !ht_rewrite_is_f32_in_gguf(name);
}

/* Properties of a tensor that quantisation mixes depend on. */
typedef struct quantize_tensor {
    const char *name; /* "blk.3.attn_v.weight" */
    int64_t columns;
    int layer, n_layers; /* layer: -1 outside layers */
    int n_experts;
    int queries_per_kv; /* query heads per KV head */
    bool is_head;       /* the output head, tied or not */
    bool importance;    /* known for the tensor */
} quantize_tensor;

/* The first and the last eighth of the layers, and every third one between them. */
static bool is_sensitive(int layer, int n) { return layer < n / 8 || layer >= 7 * n / 8 || (layer - n / 8) % 3 == 2; }

static ht_weight_type head_type(const quantize_mix *mix) {
    if (mix->type == HT_W_Q8_0 || mix->type == HT_W_F16 || mix->type == HT_W_BF16 || mix->type == HT_W_F32)
        return mix->type;
    return HT_W_Q6_K;
}

static ht_weight_type value_type(const quantize_mix *mix, const quantize_tensor *t) {
    const bool shared = t->queries_per_kv >= 4; /* many query heads share few values */
    if (t->n_experts == 8) return HT_W_Q8_0;
    switch (mix->file_type) {
    case FT_Q2_K: return shared ? HT_W_Q4_K : HT_W_Q3_K;
    case FT_Q2_K_S: return shared ? HT_W_Q4_K : mix->type;
    case FT_Q3_K_M: return t->layer < 2 ? HT_W_Q5_K : HT_W_Q4_K;
    case FT_Q3_K_L: return HT_W_Q5_K;
    case FT_IQ4_NL:
    case FT_IQ4_XS: return shared ? HT_W_Q5_K : mix->type;
    case FT_Q4_K_S: return t->layer < 4 ? HT_W_Q5_K : mix->type;
    case FT_Q4_K_M:
    case FT_Q5_K_M: return is_sensitive(t->layer, t->n_layers) ? HT_W_Q6_K : mix->type;
    default: return mix->type;
    }
}

static ht_weight_type down_type(const quantize_mix *mix, const quantize_tensor *t) {
    const bool early = t->layer < t->n_layers / 8;
    switch (mix->file_type) {
    case FT_Q2_K: return HT_W_Q3_K;
    case FT_Q2_K_S: return early ? HT_W_Q4_K : mix->type;
    case FT_Q3_K_M: return t->layer < t->n_layers / 16 ? HT_W_Q5_K : HT_W_Q4_K;
    case FT_Q3_K_L: return HT_W_Q5_K;
    case FT_IQ4_NL:
    case FT_IQ4_XS: return early && !t->importance ? HT_W_Q5_K : mix->type;
    case FT_Q4_K_S: return early ? HT_W_Q5_K : mix->type;
    case FT_Q4_K_M:
    case FT_Q5_K_M: return is_sensitive(t->layer, t->n_layers) ? HT_W_Q6_K : mix->type;
    case FT_Q4_0: return early && t->importance ? HT_W_Q4_1 : mix->type;
    case FT_Q5_0: return early && t->importance ? HT_W_Q5_1 : mix->type;
    default: return mix->type;
    }
}

static ht_weight_type output_type(const quantize_mix *mix, const quantize_tensor *t) {
    const bool few_bits = mix->type == HT_W_Q2_K || mix->type == HT_W_Q3_K || mix->type == HT_W_Q4_K ||
                          mix->type == HT_W_IQ4_NL || mix->type == HT_W_IQ4_XS;
    if (t->n_experts == 8) return few_bits ? HT_W_Q5_K : mix->type;
    switch (mix->file_type) {
    case FT_Q2_K: return HT_W_Q3_K;
    case FT_Q3_K_M: return HT_W_Q4_K;
    case FT_Q3_K_L: return HT_W_Q5_K;
    default: return mix->type;
    }
}

/* Rules of llama.cpp (llama_tensor_get_type); files get the same size as there. */
static ht_weight_type mixed_type(const quantize_mix *mix, const quantize_tensor *t) {
    if (t->is_head) return head_type(mix);
    if (t->layer < 0) return mix->type;
    if (strstr(t->name, "attn_v.")) return value_type(mix, t);
    if (strstr(t->name, "attn_k.") && t->n_experts == 8) return HT_W_Q8_0;
    if (strstr(t->name, "ffn_down")) return down_type(mix, t);
    if (strstr(t->name, "attn_output.")) return output_type(mix, t);
    return mix->type;
}

/* ---- rows that are no whole blocks ---- */

static ht_weight_type type_for_columns(ht_weight_type type, int64_t columns) {
    if (columns % ht_weight_type_info_of(type)->block == 0) return type;
    switch (type) {
    case HT_W_Q4_K: type = HT_W_Q5_0; break;
    case HT_W_Q5_K: type = HT_W_Q5_1; break;
    case HT_W_Q6_K: type = HT_W_Q8_0; break;
    default: type = HT_W_IQ4_NL; break;
    }
    return columns % ht_weight_type_info_of(type)->block == 0 ? type : HT_W_F16;
}

/* The type of a matrix; with `pure` always that of `mix`. Rows that do not consist of whole blocks get a larger
 * type, as in llama.cpp. */
static ht_weight_type type_of(const quantize_mix *mix, bool pure, const quantize_tensor *t) {
    ht_weight_type type = pure ? mix->type : mixed_type(mix, t);
    if (t->is_head && !pure && type == HT_W_Q6_K && t->columns % ht_weight_type_info_of(type)->block) type = HT_W_Q8_0;
    return type_for_columns(type, t->columns);
}

/* Sets a weight's new type; copies the weight if it has this type already and no factors apply. */
static void set_type(ht_rewrite_tensor *t, ht_weight_type type) {
    if (t->from.type == (int)type && !t->piece) return;
    t->action = HT_REWRITE_ROUND;
    t->type = type;
    t->repacks = false;
}

/* ---- GGUF ---- */

static int layer_of(const char *name) {
    int layer;
    return sscanf(name, "blk.%d.", &layer) == 1 ? layer : -1;
}

static ht_status unknown_mix(const char *name, ht_error *err) {
    char known[400] = "";
    size_t n = 0;
    for (int i = 0; i < N_MIXES && n < sizeof known; i++)
        n += (size_t)snprintf(known + n, sizeof known - n, "%s%s", i ? ", " : "", mixes[i].name);
    return ht_fail(err, HT_ERR_ARGUMENT, "`%s` is no type of weights in GGUF; there are %s", name, known);
}

static bool has_tensor(const ht_rewrite_plan *plan, const char *name) {
    for (size_t i = 0; i < plan->n; i++)
        if (!strcmp(plan->tensor[i].name, name)) return true;
    return false;
}

static ht_status choose_gguf_types(ht_rewrite_plan *plan, const ht_convert_options *o, ht_error *err) {
    const quantize_mix *mix = mix_named(o->type);
    const ht_config *config = plan->config;
    if (!mix) return unknown_mix(o->type, err);
    const bool untied = has_tensor(plan, "output.weight");
    plan->file_type = mix->file_type;
    for (size_t i = 0; i < plan->n; i++) {
        ht_rewrite_tensor *t = &plan->tensor[i];
        if (t->from.type < 0 || t->from.n_dims < 2 || !ht_ends_with(t->name, "weight") || !is_rounded(t->name))
            continue;
        const quantize_tensor what = {.name = t->name,
                                      .columns = t->from.dims[t->from.n_dims - 1],
                                      .layer = layer_of(t->name),
                                      .n_layers = (int)config->n_layers,
                                      .n_experts = (int)config->n_experts,
                                      .queries_per_kv = (int)(config->n_heads / config->n_kv_heads),
                                      .is_head = !strcmp(t->name, untied ? "output.weight" : "token_embd.weight"),
                                      .importance = o->importance != NULL};
        snprintf(t->importance, sizeof t->importance, "%s", t->name);
        set_type(t, type_of(mix, o->pure, &what));
    }
    return HT_OK;
}

/* ---- MLX ---- */

/* Target type of a directory's weights: floats, MXFP4 or affine groups. */
typedef struct target {
    ht_weight_type type; /* MXFP4 or a float type; unspecified for affine groups */
    int bits, group;     /* of affine groups; 0 for other types */
} target;

static ht_status parse_target(const char *name, target *out, ht_error *err) {
    const quantize_mix *mix = mix_named(name);
    *out = (target){.type = HT_W_MXFP4};
    if (mix && (ht_weight_is_float((int)mix->type) || mix->type == HT_W_MXFP4)) {
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

static ht_status choose_projection(const ht_stored_weight *w, void *user, ht_error *err) {
    (void)err;
    ht_rewrite_plan *plan = user;
    ht_rewrite_tensor *t = &plan->tensor[w->stored.number];
    if (w->role == HT_ROLE_EMBEDDING) t->is_weight = true;
    if (!w->projection) return HT_OK;
    t->is_weight = is_rounded(w->projection->gguf) && !w->stored.column_step; /* groups are along the stored columns */
    if (!w->projection->of_heads) t->n_shares = (int)w->n_shares;
    if (!plan->c->gguf) t->importance_columns = w->gguf_columns;
    if (!w->projection->of_heads || t->from.n_dims == 2) /* else it is of one head's matrix */
        snprintf(t->importance, sizeof t->importance, "%s.weight", w->projection->gguf);
    return HT_OK;
}

/* Finds the weights to quantise: projections without routers, the embedding and the head. */
static ht_status find_weights(ht_rewrite_plan *plan, ht_error *err) {
    if (plan->to_other) return HT_OK; /* listing the pieces found them */
    ht_status status = ht_stored_weights_visit(plan->c, plan->config, false, choose_projection, plan, err);
    for (size_t i = 0; !status && i < plan->n; i++) {
        ht_rewrite_tensor *t = &plan->tensor[i];
        if (t->owner != i || t->from.n_dims != 2) continue;
        const bool is_head = plan->c->head && !strcmp(t->name, plan->c->head);
        const bool is_table = ht_ends_with(t->name, "embed_tokens.weight");
        t->is_weight = t->is_weight || is_head || is_table || ht_ends_with(t->name, "embed_tokens_per_layer.weight");
        if (is_head || is_table)
            snprintf(t->importance, sizeof t->importance, "%s", is_head ? "output.weight" : "token_embd.weight");
    }
    return status;
}

static void set_group_type(ht_rewrite_tensor *t, const target *to, ht_dtype own) {
    const ht_weight_type floats = ht_rewrite_weight_type(own);
    const int group = to->bits ? to->group : 32;
    if (t->from.dims[t->from.n_dims - 1] % group)
        set_type(t, t->quantized ? floats : (ht_weight_type)t->from.type);
    else
        set_type(t, to->bits ? (ht_weight_type)ht_affine_type(to->bits, to->group, floats) : HT_W_MXFP4);
}

static ht_status choose_directory_types(ht_rewrite_plan *plan, const ht_convert_options *o, ht_error *err) {
    target to;
    ht_dtype own;
    ht_status status = parse_target(o->type, &to, err);
    if (!status) status = find_weights(plan, err);
    if (!status) status = ht_rewrite_float_type(plan, &own, err);
    const bool floats = !status && !to.bits && ht_weight_is_float((int)to.type);
    if (!status && !floats && o->container == HT_CONTAINER_SAFETENSORS)
        status = ht_fail(err, HT_ERR_ARGUMENT,
                         "directories for transformers hold floats alone, and `%s` is a type of MLX's groups", o->type);
    if (floats) plan->dtype = ht_rewrite_dtype((int)to.type);
    for (size_t i = 0; !status && i < plan->n; i++) {
        ht_rewrite_tensor *t = &plan->tensor[i];
        if (t->owner != i || t->from.type < 0 || t->action == HT_REWRITE_DROP) continue;
        if (floats)
            set_type(t, to.type);
        else if (t->is_weight)
            set_group_type(t, &to, own);
        else if (plan->to_other) /* GGUF's f32 would make activations f32 */
            set_type(t, ht_rewrite_weight_type(own));
        else if (t->quantized && !plan->c->quantization) /* a router that mlx-lm cannot read quantised */
            set_type(t, HT_W_F32);
    }
    if (!status && !floats && plan->to_other) plan->dtype = own;
    return status;
}

/* ---- values as they are ---- */

/* Chooses types if the container stays the same: directories for transformers get floats, others keep theirs. */
static ht_status keep_types(ht_rewrite_plan *plan, const ht_convert_options *o, ht_error *err) {
    const ht_weight_type floats = o->dtype ? ht_rewrite_weight_type(o->dtype) : HT_W_F32;
    const bool dense =
        o->container == HT_CONTAINER_SAFETENSORS || (o->container == HT_CONTAINER_MLX && !plan->c->quantization);
    bool any = o->dtype != HT_DTYPE_NONE;
    ht_status status = plan->to_gguf ? HT_OK : find_weights(plan, err);
    for (size_t i = 0; !status && i < plan->n; i++) {
        ht_rewrite_tensor *t = &plan->tensor[i];
        if (t->owner != i || t->from.type < 0 || t->action == HT_REWRITE_DROP) continue;
        const bool stays = plan->to_gguf && (t->from.n_dims < 2 || ht_rewrite_is_f32_in_gguf(t->name));
        if (t->quantized ? dense : o->dtype && !stays) set_type(t, floats);
        any = any || (t->quantized && dense);
    }
    if (!plan->to_gguf && any) plan->dtype = ht_rewrite_dtype((int)floats); /* readers cast weights to this dtype */
    return status;
}

/* ---- converting ---- */

static void fill_report(const ht_rewrite_plan *plan, const ht_rewrite_values *values, ht_convert_report *out) {
    double bytes = 0, weights = 0;
    *out = (ht_convert_report){.bytes = (int64_t)ht_rewrite_plan_bytes(plan),
                               .n_inexact = ht_rewrite_values_inexact(values),
                               .n_files = plan->n_files};
    for (size_t i = 0; i < plan->n; i++) {
        const ht_rewrite_tensor *t = &plan->tensor[i], *weight = &plan->tensor[t->owner];
        out->n_tensors += t->action != HT_REWRITE_DROP;
        if (t->action != HT_REWRITE_ROUND || !ht_rewrite_changes_type(weight)) continue;
        bytes += (double)t->to.n_bytes;
        if (t->owner != i) continue;
        weights += (double)ht_elements(t->from.dims, t->from.n_dims);
        out->n_rounded++;
        out->n_floats += t->quantized && ht_weight_is_float((int)t->type);
    }
    out->bits = weights > 0 ? 8 * bytes / weights : 0;
}

static bool names_affine_groups(const char *type) { return type && *type >= '0' && *type <= '9'; }

/* Whether a directory gets groups; a GGUF file gets blocks of that type. */
static bool names_groups(const char *type) { return names_affine_groups(type) || (type && !strcasecmp(type, "mxfp4")); }

/* Lists the tensors to write. A directory that changes its reader gets experts in the new reader's layout. */
static ht_status list_tensors(ht_rewrite_plan *plan, const ht_convert_options *o, ht_error *err) {
    if (plan->to_other) return ht_rewrite_plan_translate(plan, o->dtype, !o->type, err);
    ht_status status = ht_rewrite_plan_list(plan, err);
    if (status || plan->to_gguf) return status;
    /* Directories that other programs than mlx-lm have quantised are for transformers. */
    bool has_reader = plan->to_mlx || o->container == HT_CONTAINER_SAFETENSORS;
    for (size_t i = 0; i < plan->n && !plan->c->quantization; i++) has_reader = has_reader || plan->tensor[i].quantized;
    return has_reader ? ht_rewrite_plan_restack(plan, o->dtype, err) : HT_OK;
}

/* Whether to copy the tensors unchanged, which works for any model. */
static bool is_copy(const ht_convert_options *o) {
    return o->container == HT_CONTAINER_SAME && !o->type && o->dtype == HT_DTYPE_NONE;
}

/* Whether the output may have several files. */
static bool is_split(const ht_convert_options *o) { return o->max_file_bytes && o->max_file_bytes != HT_ONE_FILE; }

static const char *verb_of(const ht_convert_options *o) {
    if (is_copy(o)) return is_split(o) ? "splitting" : "merging";
    return o->type ? "quantising" : "converting";
}

/* Chooses the output's container. Split GGUF output without a file name ending in .gguf goes into a directory. */
static ht_status choose_container(ht_rewrite_plan *plan, const char *model_path, const ht_convert_options *o,
                                  ht_error *err) {
    const bool from_gguf = plan->c->gguf != NULL, to_file = ht_ends_with(plan->out_path, ".gguf");
    int number, count;
    size_t n;
    plan->copies_files = ht_path_is_directory(model_path);
    if (is_copy(o))
        plan->to_gguf = from_gguf;
    else
        plan->to_gguf = o->container == HT_CONTAINER_SAME ? to_file || (from_gguf && !names_affine_groups(o->type))
                                                          : o->container == HT_CONTAINER_GGUF;
    plan->to_other = plan->to_gguf != from_gguf;
    plan->to_mlx = !plan->to_gguf && (o->container == HT_CONTAINER_MLX || names_groups(o->type));
    plan->is_directory = !plan->to_gguf || (o->container == HT_CONTAINER_SAME && plan->copies_files && !to_file) ||
                         (is_split(o) && !to_file);
    if (is_copy(o) && !from_gguf && to_file)
        return ht_fail(err, HT_ERR_ARGUMENT,
                       "%s: is the name of a GGUF file, and %s is a directory of safetensors; take the name of a "
                       "directory, or convert it to GGUF",
                       plan->out_path, model_path);
    if (is_split(o) && to_file && ht_gguf_part_name(plan->out_path, &number, &count, &n))
        return ht_fail(err, HT_ERR_ARGUMENT,
                       "%s: is the name of one part; take that of the whole, %.*s.gguf, to which the numbers are added",
                       plan->out_path, (int)n, plan->out_path);
    return HT_OK;
}

static ht_status check_options(const ht_convert_options *o, ht_error *err) {
    if (o->container < HT_CONTAINER_SAME || o->container > HT_CONTAINER_MLX)
        return ht_fail(err, HT_ERR_ARGUMENT, "%d is no container of checkpoints", (int)o->container);
    if (o->type && !*o->type) return ht_fail(err, HT_ERR_ARGUMENT, "the type of the weights is empty");
    if (o->container == HT_CONTAINER_SAME && !o->type && !o->max_file_bytes)
        return ht_fail(err, HT_ERR_ARGUMENT, "the type of the weights is missing");
    if (ht_rewrite_check_dtype(o->dtype, err)) return HT_ERR_ARGUMENT;
    if (o->n_threads < 0) return ht_fail(err, HT_ERR_ARGUMENT, "%d threads", (int)o->n_threads);
    if (o->max_file_bytes < 0)
        return ht_fail(err, HT_ERR_ARGUMENT, "files of at most %lld bytes; expected a positive number, or 0",
                       (long long)o->max_file_bytes);
    return HT_OK;
}

/* Lists the tensors and chooses the action for each. */
static ht_status make_plan(ht_rewrite_plan *plan, const ht_convert_options *o, ht_error *err) {
    if (is_copy(o)) return ht_rewrite_plan_list(plan, err);
    ht_status status = ht_checkpoint_config(plan->c, plan->config, err);
    if (!status) status = list_tensors(plan, o, err);
    if (status || (!o->type && plan->to_other)) return status;
    return !o->type        ? keep_types(plan, o, err)
           : plan->to_gguf ? choose_gguf_types(plan, o, err)
                           : choose_directory_types(plan, o, err);
}

ht_status ht_convert(const char *model_path, const char *out_path, const ht_convert_options *options, ht_error *err) {
    ht_convert_options o;
    ht_status status = ht_options_read(&o, options, &defaults, sizeof defaults, "ht_convert_options", err);
    if (!status) status = check_options(&o, err);
    if (status) return status;
    ht_rewrite_plan plan = {.verb = verb_of(&o),
                            .mark = o.type ? HT_REWRITE_QUANTIZED : HT_REWRITE_CONVERTED,
                            .out_path = out_path,
                            .max_file_bytes = o.max_file_bytes,
                            .file_type = -1,
                            .checks_values = o.type != NULL,
                            .importance = o.importance,
                            .n_threads = o.n_threads,
                            .cancel = o.cancel,
                            .progress = o.progress,
                            .on_tensor = o.on_tensor,
                            .user = o.user};
    ht_rewrite_values *values = NULL;
    status = ht_rewrite_plan_open(&plan, model_path, err);
    if (!status) status = choose_container(&plan, model_path, &o, err);
    const bool has_parts = is_split(&o) && !plan.is_directory; /* their names depend on their final number */
    if (!status && !has_parts) status = ht_rewrite_check_place(&plan, model_path, err);
    if (!status) status = make_plan(&plan, &o, err);
    if (!status) status = ht_rewrite_plan_finish(&plan, err);
    if (!status) status = ht_rewrite_choose_files(&plan, err);
    if (!status && has_parts) status = ht_rewrite_check_place(&plan, model_path, err);
    if (!status) status = ht_rewrite_values_new(&plan, &values, err);
    if (!status) status = ht_rewrite_write(&plan, values, err);
    if (!status && o.report) fill_report(&plan, values, o.report);
    ht_rewrite_values_free(values);
    ht_rewrite_plan_free(&plan);
    return status;
}
