/* The plan of writing a checkpoint in the other container, or a directory's experts for another reader: names of
 * tensors, the stored rows that each is made of, and types that keep the values. */
#include "base/error.h"
#include "base/grow.h"
#include "base/text.h"
#include "checkpoint/convert_metadata.h"
#include "checkpoint/family.h"
#include "checkpoint/rewrite.h"
#include "formats/affine.h"
#include "formats/repack.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NAME_SIZE = 192 };

typedef struct translation {
    ht_rewrite_plan *plan;
    ht_dtype floats;  /* HT_DTYPE_NONE: as they are */
    bool repacks;     /* quantised weights stay quantised if possible */
    const bool *only; /* [tensors of the checkpoint] to restack; NULL: those that the reader expects elsewhere */
} translation;

/* ---- tensors ---- */

static ht_status add_tensor(ht_rewrite_plan *plan, const char *name, ht_rewrite_tensor **out, ht_error *err) {
    if (plan->n + 1 >= plan->capacity / 3) { /* a weight may get scales and biases */
        const size_t capacity = 2 * plan->capacity + 96;
        if (!HT_RESIZE(plan->tensor, capacity))
            return ht_fail_memory(err, capacity * sizeof *plan->tensor, "a list of tensors");
        plan->capacity = capacity;
    }
    ht_rewrite_tensor *t = *out = &plan->tensor[plan->n];
    *t = (ht_rewrite_tensor){.owner = plan->n, .action = HT_REWRITE_ROUND, .n_shares = 1, .name = strdup(name)};
    if (!t->name) return ht_fail_memory(err, strlen(name) + 1, "a name");
    t->from.name = t->name;
    t->from.name_len = strlen(name);
    t->from.number = plan->n++;
    return HT_OK;
}

/* Prefix of the text model's tensor names; "" in GGUF. A directory for another reader renames few weights, so it keeps
 * the prefix; except for GPT-2, which has other names of layers, is released without one, and has one in mlx-lm. */
static const char *prefix_of(const ht_rewrite_plan *plan) {
    if (plan->to_gguf) return "";
    if (!plan->to_other && !plan->renames) return plan->c->prefix;
    if (plan->config->family->layers_name && !plan->config->two_sided) return plan->to_mlx ? "model." : "";
    if (plan->config->family->prefix) return plan->config->family->prefix;
    if (!plan->to_mlx || !plan->config->family->mlx_wrapper) return "model.";
    return plan->config->family->mlx_prefix ? plan->config->family->mlx_prefix : "language_model.model.";
}

/* Prefix of the output head's name. */
static const char *outside_of(const ht_rewrite_plan *plan) {
    return plan->to_mlx && plan->config->family->mlx_wrapper ? "language_model." : "";
}

/* Allocates n pieces of [rows, columns] and sets the joined shape; n_experts: first axis of a stacked tensor, or 0. */
static ht_status set_pieces(ht_rewrite_tensor *t, const ht_stored_weight *w, int64_t rows, int64_t columns, int64_t n,
                            int64_t n_experts, ht_error *err) {
    t->piece = calloc((size_t)n, sizeof *t->piece);
    if (!t->piece) return ht_fail_memory(err, (size_t)n * sizeof *t->piece, "pieces of a tensor");
    t->n_pieces = n;
    t->piece_rows = rows;
    t->from.n_dims = w->is_vector && !w->row_length ? 1 : n_experts ? 3 : 2;
    int64_t *dims = t->from.dims;
    if (n_experts) *dims++ = n_experts;
    if (t->from.n_dims > 1) *dims++ = rows * n / (n_experts ? n_experts : 1);
    *dims = columns;
    return HT_OK;
}

/* Sets piece `i` to the stored rows of w; marks the tensor as mixed if types differ. */
static void put_piece(ht_rewrite_tensor *t, const ht_stored_weight *w, int64_t i) {
    const ht_stored_tensor *stored = &w->stored;
    const bool transposed = stored->column_step != 0 && !w->is_vector;
    t->piece[i] = (ht_rewrite_piece){.tensor = stored->number,
                                     .first_row = w->first_row,
                                     .row_step = w->row_step,
                                     .n_shares = (int)w->n_shares,
                                     .transposed = transposed};
    if (!t->from.type_name) {
        t->from.type = stored->type;
        t->from.type_name = stored->type_name;
        t->from.file_name = stored->file_name;
        t->from.file = stored->file;
    } else if (t->from.type != stored->type) {
        t->from.type = HT_W_F32;
        t->from.type_name = "mixed";
        t->is_mixed = true;
        t->quantized = true;
    }
    t->quantized = t->quantized || !ht_weight_is_float(stored->type);
}

static int64_t common_divisor(int64_t a, int64_t b) { return b ? common_divisor(b, a % b) : a; }

/* ---- experts ---- */

static ht_expert_naming naming_of(const ht_rewrite_plan *plan) {
    return plan->to_gguf ? HT_EXPERTS_GGUF : plan->to_mlx ? HT_EXPERTS_MLX : HT_EXPERTS_TRANSFORMERS;
}

/* The output form of a part of the experts. */
static const ht_expert_form *form_of(const ht_rewrite_plan *plan, ht_expert_part part) {
    return ht_expert_form_named(naming_of(plan), plan->config->family, part);
}

/* Name in GGUF, for importance weights. */
static void set_importance(ht_rewrite_tensor *t, const char *gguf, int64_t layer) {
    if (layer >= 0)
        snprintf(t->importance, sizeof t->importance, "blk.%lld.%s", (long long)layer, gguf);
    else
        snprintf(t->importance, sizeof t->importance, "%.*s", HT_REWRITE_NAME_MOST - 1, gguf);
}

static ht_status add_expert(translation *of, const ht_stored_weight *w, ht_error *err) {
    ht_rewrite_plan *plan = of->plan;
    const ht_expert_form *f = form_of(plan, w->spec->expert);
    const int64_t n = ht_part_count(plan->config, w->spec->expert);
    char name[NAME_SIZE];
    ht_expert_tensor_name(prefix_of(plan), f, w->layer, w->expert, name, sizeof name);
    ht_rewrite_tensor *t =
        plan->n ? &plan->tensor[plan->n - 1] : NULL; /* experts of a stacked tensor are visited consecutively */
    ht_status status = HT_OK;
    if (!t || !t->piece || strcmp(t->name, name) != 0) {
        status = add_tensor(plan, name, &t, err);
        if (!status)
            status = set_pieces(t, w, w->rows, w->columns, f->stacked ? n * f->n_shares : 1, f->stacked ? n : 0, err);
        if (status) return status;
        t->is_weight = w->is_quantized;
        t->n_shares = f->n_shares;
        t->transposes = w->spec->transposed && f->naming == HT_EXPERTS_TRANSFORMERS;
        if (w->spec->alternates && f->n_shares > 1 && f->naming == HT_EXPERTS_TRANSFORMERS)
            t->alternates = f->n_shares * w->rows;
        const ht_family *family = plan->config->family;
        set_importance(t, ht_expert_form_named(HT_EXPERTS_GGUF, family, w->spec->expert)->name, w->layer);
    }
    put_piece(t, w, f->stacked ? w->expert * f->n_shares + f->share : 0);
    return HT_OK;
}

/* ---- other weights ---- */

/* One head of a norm with a gain for each head: a row of one tensor in GGUF, a separate tensor in directories. */
static ht_status add_head(translation *of, const ht_stored_weight *w, int64_t head, int64_t n_heads, ht_error *err) {
    ht_rewrite_plan *plan = of->plan;
    ht_stored_weight one = *w;
    char name[NAME_SIZE];
    if (plan->to_gguf)
        snprintf(name, sizeof name, "blk.%lld.%s.weight", (long long)w->layer, w->spec->gguf);
    else
        snprintf(name, sizeof name, "%slayers.%lld.%s.norms.%lld.weight", prefix_of(plan), (long long)w->layer,
                 w->spec->safetensors, (long long)head);
    one.row_length = plan->to_gguf ? w->columns : 0;
    one.first_row += plan->to_gguf ? 0 : head;
    ht_rewrite_tensor *t = plan->n ? &plan->tensor[plan->n - 1] : NULL;
    ht_status status = HT_OK;
    if (!t || strcmp(t->name, name) != 0) {
        status = add_tensor(plan, name, &t, err);
        if (!status) status = set_pieces(t, &one, 1, w->columns, plan->to_gguf ? n_heads : 1, 0, err);
    }
    if (!status) put_piece(t, &one, plan->to_gguf ? head : 0);
    return status;
}

static ht_status add_heads(translation *of, const ht_stored_weight *w, ht_error *err) {
    if (of->plan->to_gguf) return add_head(of, w, w->part, w->n_parts, err);
    ht_stored_weight one = *w;
    ht_status status = HT_OK;
    one.columns = of->plan->config->layer[w->layer].head_dim;
    for (int64_t i = 0; !status && i < w->columns / one.columns; i++) status = add_head(of, &one, i, 1, err);
    return status;
}

/* Name of a weight whose names for mlx-lm and transformers differ. */
static void share_name(const ht_rewrite_plan *plan, const ht_stored_weight *w, bool for_mlx, char name[NAME_SIZE]) {
    const ht_tensor_spec *p = w->spec;
    const char *end = p->bare ? "" : w->role == HT_ROLE_BIAS ? ".bias" : ".weight";
    char layer[40] = "";
    if (w->layer != HT_OUTSIDE_LAYERS) snprintf(layer, sizeof layer, "layers.%lld.", (long long)w->layer);
    snprintf(name, NAME_SIZE, "%s%s%s%s", prefix_of(plan), layer, for_mlx ? p->safetensors : p->transformers, end);
}

/* Axes of a vector in the output. */
static const char *axes_of(const ht_rewrite_plan *plan, const ht_tensor_spec *p) {
    const ht_expert_naming naming = naming_of(plan);
    if (naming == HT_EXPERTS_GGUF) return p->gguf_axes;
    return naming == HT_EXPERTS_MLX && p->mlx_axes ? p->mlx_axes : p->axes;
}

/* Whether a weight is worth rounding to few bits. */
static bool is_weight(const ht_stored_weight *w) { return w->is_quantized && !ht_rewrite_is_f32_in_gguf(w->gguf); }

/* A weight that is a share of a tensor for transformers; the shares are visited one after another. */
static ht_status add_share(translation *of, const ht_stored_weight *w, ht_error *err) {
    ht_rewrite_plan *plan = of->plan;
    const ht_tensor_spec *p = w->spec;
    const int64_t n = p->n_shares ? p->n_shares : 1, columns = w->row_length ? w->row_length : w->columns,
                  rows = w->rows * w->columns / columns;
    char name[NAME_SIZE];
    share_name(plan, w, false, name);
    ht_rewrite_tensor *t = plan->n ? &plan->tensor[plan->n - 1] : NULL;
    ht_status status = HT_OK;
    if (!t || !t->piece || strcmp(t->name, name) != 0) {
        status = add_tensor(plan, name, &t, err);
        if (!status) status = set_pieces(t, w, rows, columns, n, 0, err);
        if (status) return status;
        t->is_weight = is_weight(w);
        t->is_vector = w->is_vector;
        t->axes = axes_of(plan, p);
        t->by_value = w->is_vector && n > 1;
        if (t->by_value) { /* joined value by value, row by row */
            t->piece_rows = w->columns;
            t->from.dims[0] = rows;
            t->from.dims[1] = n * columns;
        }
        t->alternates = p->alternates ? n * t->piece_rows : 0;
    }
    put_piece(t, w, p->share);
    return HT_OK;
}

/* ---- heads of latent attention: a matrix of keys, transposed, and one of values in GGUF; rows of one matrix in
 * directories ---- */

/* Starts or continues the tensor `name` of n pieces of [rows, columns]; n_heads: its first axis, 0: none. */
static ht_status tensor_of_heads(translation *of, const ht_stored_weight *w, const char *name, int64_t rows,
                                 int64_t columns, int64_t n, int64_t n_heads, ht_rewrite_tensor **out, ht_error *err) {
    ht_rewrite_plan *plan = of->plan;
    ht_rewrite_tensor *t = *out = plan->n ? &plan->tensor[plan->n - 1] : NULL;
    if (t && !strcmp(t->name, name)) return HT_OK;
    ht_status status = add_tensor(plan, name, out, err);
    if (!status) status = set_pieces(*out, w, rows, columns, n, n_heads, err);
    if (!status) (*out)->is_weight = true;
    return status;
}

/* Adds a piece whose `rows` rows are rows of the head's stored matrix from `first` on, or columns of it. */
static void put_head_piece(ht_rewrite_tensor *t, const ht_stored_weight *w, bool by_column, int64_t first, int64_t i) {
    put_piece(t, w, i);
    ht_rewrite_piece *p = &t->piece[i];
    p->n_shares = 1; /* a factor is one of the whole tensor */
    if (by_column)
        p->block_rows = w->rows, p->column = first, t->by_column = true;
    else
        p->first_row += first;
}

static ht_status add_latent_head(translation *of, const ht_stored_weight *w, ht_error *err) {
    const ht_config *c = of->plan->config;
    const ht_latent *l = &c->latent;
    const bool is_key = w->spec->expert == HT_HEAD_KEY;
    ht_rewrite_tensor *t;
    char name[NAME_SIZE];
    if (of->plan->to_gguf) {
        snprintf(name, sizeof name, "blk.%lld.%s.weight", (long long)w->layer, w->spec->gguf);
        ht_status status = is_key
                               ? tensor_of_heads(of, w, name, l->rank, l->key_dim, c->n_heads, c->n_heads, &t, err)
                               : tensor_of_heads(of, w, name, l->value_dim, l->rank, c->n_heads, c->n_heads, &t, err);
        if (status) return status;
        set_importance(t, w->spec->gguf, w->layer);
        put_head_piece(t, w, is_key && w->is_transposed, 0, w->expert);
        return HT_OK;
    }
    /* Pieces of as many rows as divide those of keys and of values. The values follow all keys: their tensor is the
     * last. */
    const int64_t rows = common_divisor(l->key_dim, l->value_dim), of_head = ht_latent_head_rows(l) / rows,
                  own = (is_key ? l->key_dim : l->value_dim) / rows,
                  before = w->expert * of_head + (is_key ? 0 : l->key_dim / rows);
    snprintf(name, sizeof name, "%slayers.%lld." HT_HEADS_SLOT ".weight", prefix_of(of->plan), (long long)w->layer);
    ht_status status = tensor_of_heads(of, w, name, rows, l->rank, c->n_heads * of_head, 0, &t, err);
    for (int64_t i = 0; !status && i < own; i++)
        put_head_piece(t, w, is_key && !w->is_transposed, i * rows, before + i);
    return status;
}

/* The offset that is added to gains as they are written. */
static float written_offset(const ht_rewrite_plan *plan) {
    const ht_family *family = plan->config->family;
    return plan->to_gguf || (plan->to_mlx && family->mlx_adds_norm_offset) ? 0 : family->norm_offset;
}

/* ---- Qwen3-Next's joined projection: two matrices in GGUF ---- */

/* Adds the rows of a weight to one of the tensors, in pieces of as many rows as stay together. */
static ht_status add_part(translation *of, const ht_stored_weight *w, ht_part_rule part, const char *name, int64_t rows,
                          ht_error *err) {
    const ht_recurrence_spec *r = &of->plan->config->recurrence;
    const int64_t unit = common_divisor(r->key_dim, r->heads / r->key_heads * r->value_dim),
                  own = part == w->spec->part ? w->rows : rows;
    ht_rewrite_plan *plan = of->plan;
    ht_rewrite_tensor *t = plan->n ? &plan->tensor[plan->n - 1] : NULL;
    ht_status status = HT_OK;
    if (!t || strcmp(t->name, name) != 0) {
        status = add_tensor(plan, name, &t, err);
        if (!status) status = set_pieces(t, w, unit, w->columns, rows / unit, 0, err);
        if (status) return status;
        t->is_weight = true;
    }
    for (int64_t i = 0, run; i < own / unit; i++) {
        const int64_t joined = ht_part_row(r, part, i * unit, &run);
        const int64_t to = plan->to_gguf ? i : joined / unit, from = plan->to_gguf ? joined : i * unit;
        put_piece(t, w, to);
        t->piece[to].first_row += from;
    }
    return HT_OK;
}

static ht_status add_parts(translation *of, const ht_stored_weight *w, ht_error *err) {
    ht_rewrite_plan *plan = of->plan;
    char name[NAME_SIZE];
    ht_status status = HT_OK;
    if (!plan->to_gguf) {
        snprintf(name, sizeof name, "%s%s", prefix_of(plan), w->safetensors);
        status = add_part(of, w, w->spec->part, name, w->projection->n_out, err);
        if (!status) set_importance(&plan->tensor[plan->n - 1], w->gguf, -1);
        return status;
    }
    const int64_t n_values = plan->config->recurrence.heads * plan->config->recurrence.value_dim;
    for (const ht_tensor_spec *const *table = plan->config->family->layer; *table; table++)
        for (const ht_tensor_spec *p = *table; !status && p->gguf; p++) {
            if (p->part != HT_PART_QKV && p->part != HT_PART_GATE) continue;
            char stem[48];
            snprintf(stem, sizeof stem, "%.32s.weight", p->gguf);
            snprintf(name, sizeof name, "blk.%lld.%s", (long long)w->layer, stem);
            status = add_part(of, w, p->part, name, p->part == HT_PART_GATE ? n_values : w->rows - n_values, err);
            if (!status) set_importance(&plan->tensor[plan->n - 1], stem, w->layer);
        }
    return status;
}

/* Whether the model has factors on the rows that GGUF files and mlx-lm's directories have in the weights. */
static bool has_factors(const ht_rewrite_plan *plan, const ht_stored_weight *w) {
    bool any = false;
    if ((!plan->to_gguf && !plan->to_mlx) || w->is_vector) return false;
    for (int64_t i = 0; i < w->rows && !any; i++) any = ht_stored_multiplier(plan->config, w, i) != 1;
    return any;
}

static ht_status set_factors(const ht_rewrite_plan *plan, const ht_stored_weight *w, ht_rewrite_tensor *t,
                             ht_error *err) {
    if (!has_factors(plan, w)) return HT_OK;
    t->factors = malloc((size_t)w->rows * sizeof *t->factors);
    if (!t->factors) return ht_fail_memory(err, (size_t)w->rows * sizeof *t->factors, "factors");
    for (int64_t i = 0; i < w->rows; i++) t->factors[i] = ht_stored_multiplier(plan->config, w, i);
    return HT_OK;
}

static ht_status add_one(translation *of, const ht_stored_weight *w, ht_error *err) {
    ht_rewrite_plan *plan = of->plan;
    if (ht_part_is_of_head(w->spec->expert)) return add_latent_head(of, w, err);
    if (w->spec->expert != HT_EXPERT_NONE) return add_expert(of, w, err);
    if (w->spec->per_head) return add_heads(of, w, err);
    if (w->spec->part && plan->to_gguf != (plan->c->gguf != NULL)) return add_parts(of, w, err);
    if (w->spec->transformers && (naming_of(plan) == HT_EXPERTS_TRANSFORMERS ||
                                  (naming_of(plan) == HT_EXPERTS_MLX && ht_spec_is_shared_by_all(w->spec))))
        return add_share(of, w, err);
    char name[NAME_SIZE];
    const bool is_outside = !plan->to_gguf && !strncmp(w->safetensors, "lm_head.", 8);
    snprintf(name, sizeof name, "%s%s", is_outside ? outside_of(plan) : prefix_of(plan),
             plan->to_gguf ? w->gguf : w->safetensors);
    ht_rewrite_tensor *t;
    ht_status status = add_tensor(plan, name, &t, err);
    int64_t rows = w->rows, columns = w->columns;
    if (w->row_length) rows = w->columns / w->row_length, columns = w->row_length;
    /* GGUF's table of per-layer inputs has a row for every token: those without their own have that of token 0. */
    const bool is_filled = plan->to_gguf && w->spec->rows == HT_EXTENT_LAYER_INPUT_VOCAB && rows < plan->config->vocab;
    const int64_t n = is_filled ? plan->config->vocab : 1;
    if (!status) status = set_pieces(t, w, is_filled ? 1 : rows, columns, n, 0, err);
    if (status) return status;
    for (int64_t i = 0; i < n; i++) {
        put_piece(t, w, i);
        if (i < rows) t->piece[i].first_row += i;
    }
    t->stored_rows = w->stored_rows;
    t->stored_columns = w->stored_columns;
    if (plan->to_gguf)
        t->rows = w->gguf_rows, t->columns = w->gguf_columns;
    else
        t->importance_columns = w->gguf_columns;
    t->by_value = w->is_vector && (t->stored_rows.group || t->rows.group || w->row_step > 1);
    if (t->by_value) t->piece_rows = w->columns;
    t->transposes = w->spec->transposed && !w->is_vector && naming_of(plan) == HT_EXPERTS_TRANSFORMERS;
    t->is_vector = w->is_vector;
    t->axes = axes_of(plan, w->spec);
    t->is_weight = is_weight(w);
    if (w->is_gain) t->offset = plan->config->norm_offset - written_offset(plan);
    if (w->spec->is_logarithm && plan->to_gguf != (plan->c->gguf != NULL))
        t->map = plan->to_gguf ? HT_VALUES_TO_EXPONENTIAL : HT_VALUES_TO_LOGARITHM;
    if (t->is_weight) set_importance(t, w->gguf, -1);
    return set_factors(plan, w, t, err);
}

/* The name in layer `layer` of a weight in another one: "blk.3.attn_k.weight", "layers.3.self_attn.k_proj.weight". */
static void name_in_layer(const char *name, int64_t layer, char out[NAME_SIZE]) {
    const char *number = strchr(name, '.') + 1, *rest = strchr(number, '.');
    snprintf(out, NAME_SIZE, "%.*s%lld%s", (int)(number - name), name, (long long)layer, rest);
}

/* Adds a weight; and for readers that want keys and values in all layers, though those of layers that share them are
 * never used, it again for each of these. */
static ht_status add_weight(const ht_stored_weight *w, void *user, ht_error *err) {
    translation *of = user;
    const ht_config *c = of->plan->config;
    ht_status status = add_one(of, w, err);
    if (!c->family->repeats_shared_keys || naming_of(of->plan) == HT_EXPERTS_TRANSFORMERS || !w->spec->has)
        return status;
    for (int64_t i = w->layer + 1; !status && w->layer >= 0 && i < c->n_layers; i++) {
        if (c->layer[i].kv_layer != w->layer || w->spec->has(c, i)) continue;
        char gguf[NAME_SIZE], safetensors[NAME_SIZE];
        ht_stored_weight copy = *w;
        name_in_layer(w->gguf, i, gguf);
        name_in_layer(w->safetensors, i, safetensors);
        copy.layer = i;
        copy.gguf = gguf;
        copy.safetensors = safetensors;
        status = add_one(of, &copy, err);
        ht_rewrite_tensor *t = &of->plan->tensor[of->plan->n - 1];
        if (!status && t->is_weight) set_importance(t, w->gguf, -1);
    }
    return status;
}

/* Adds a tensor of RoPE divisors, if the model has it; a directory has them in its configuration. */
static ht_status add_rope_factors(ht_rewrite_plan *plan, const char *name, ht_error *err) {
    float *values;
    int64_t n;
    ht_rewrite_tensor *t;
    ht_status status = ht_gguf_rope_factors(plan->config, name, &values, &n, err);
    if (status || !values) return status;
    status = add_tensor(plan, name, &t, err);
    if (status) {
        free(values);
        return status;
    }
    t->given = values;
    t->action = HT_REWRITE_COPY;
    t->from.type = HT_W_F32;
    t->from.type_name = "F32";
    t->from.n_dims = 1;
    t->from.dims[0] = n;
    t->from.n_bytes = (size_t)n * sizeof *values;
    return HT_OK;
}

/* ---- types ---- */

bool ht_rewrite_is_f32_in_gguf(const char *name) {
    static const char *const parts[] = {"_norm.",          "ffn_gate_inp",       "ssm_conv1d",
                                        "shortconv.conv.", "altup_correct_coef", "altup_predict_coef",
                                        "position_embd",   "token_types",        NULL};
    return ht_contains_any(name, parts) || ht_ends_with(name, ".ssm_a") || ht_ends_with(name, ".ssm_d");
}

/* Whether all rows keep their values in another type: stored blocks without factors, or values rounded to floats. */
static ht_status keeps_values(const ht_rewrite_plan *plan, const ht_weight_rows *rows, ht_weight_type to, bool blocks,
                              bool *out, ht_error *err) {
    const ht_weight_type from = (ht_weight_type)rows->of->from.type;
    const ht_weight_type_info *info = ht_weight_type_info_of(to);
    const int64_t n_rows = rows->n_matrices * rows->n_rows, k = rows->k;
    const size_t bytes = blocks ? ht_tensor_size(&rows->source->t, k) : (size_t)k * sizeof(float);
    *out = true;
    void *row = malloc(bytes), *scratch = malloc(ht_weight_rows_scratch(rows, 1)),
         *made = malloc((size_t)(k / info->block + 1) * info->block_bytes);
    ht_status status = row && scratch && made ? HT_OK : ht_fail_memory(err, bytes, "a row of weights");
    for (int64_t i = 0; !status && *out && i < n_rows; i++) {
        if (ht_cancel_requested(plan->cancel)) status = ht_fail(err, HT_ERR_CANCELLED, "%s was cancelled", plan->verb);
        if (!status)
            status = blocks ? ht_weight_rows_read_blocks(rows, i, 1, row, scratch, err)
                            : ht_weight_rows_read(rows, i, 1, row, scratch, err);
        if (!status) *out = blocks ? ht_repack(from, row, k, to, made) : ht_rewrite_is_exact(to, row, k);
    }
    free(row);
    free(scratch);
    free(made);
    return status;
}

/* Whether the stored blocks, without factors, have the same values in another type. */
static ht_status repacks_to(const ht_rewrite_plan *plan, const ht_weight_rows *rows, ht_weight_type to, bool *out,
                            ht_error *err) {
    const ht_weight_type from = (ht_weight_type)rows->of->from.type;
    const int64_t unit = ht_repack_unit(from, to);
    *out = rows->k % unit == 0 && rows->of->stored_columns.block % unit == 0 && rows->of->columns.block % unit == 0;
    for (int64_t i = 0; i < rows->n_sources; i++) *out = *out && !rows->source[i].products && !rows->source[i].scales;
    return *out && from != to ? keeps_values(plan, rows, to, true, out, err) : HT_OK;
}

/* The first type of the other container that can represent a quantised weight's values. */
static ht_status find_packed(const ht_rewrite_plan *plan, ht_rewrite_tensor *t, ht_error *err) {
    ht_weight_rows rows;
    if (!t->is_weight || t->is_mixed || t->by_column || t->factors ||
        ht_repack_type((ht_weight_type)t->from.type, 0) < 0)
        return HT_OK;
    ht_status status = ht_weight_rows_open(plan, t, &rows, err);
    int to;
    for (int i = 0; !status && !t->repacks && (to = ht_repack_type((ht_weight_type)t->from.type, i)) >= 0; i++) {
        status = repacks_to(plan, &rows, (ht_weight_type)to, &t->repacks, err);
        if (t->repacks) t->type = (ht_weight_type)to;
    }
    ht_weight_rows_close(&rows);
    return status;
}

/* Chooses a type that keeps the values. */
static ht_status choose_type(translation *of, ht_rewrite_tensor *t, ht_error *err) {
    ht_rewrite_plan *plan = of->plan;
    const ht_weight_type own = (ht_weight_type)t->from.type;
    const ht_weight_type floats = of->floats ? ht_rewrite_weight_type(of->floats) : HT_W_F32;
    ht_status status = HT_OK;
    t->type = of->floats || t->quantized ? floats : own;
    if (t->quantized && of->repacks) status = find_packed(plan, t, err);
    if (plan->to_gguf && (t->from.n_dims < 2 || t->is_vector || ht_rewrite_is_f32_in_gguf(t->name))) t->type = HT_W_F32;
    return status;
}

/* GGUF files store vectors and routers as f32 even if a narrower type holds their values; directories use the type
 * of most weights. */
static ht_status narrow(const translation *of, ht_rewrite_tensor *t, ht_error *err) {
    const ht_weight_type type = ht_rewrite_weight_type(of->plan->dtype);
    ht_weight_rows rows;
    bool same = false;
    if (of->floats || t->is_weight || t->quantized || t->type != HT_W_F32 || type == HT_W_F32) return HT_OK;
    ht_status status = ht_weight_rows_open(of->plan, t, &rows, err);
    if (!status) status = keeps_values(of->plan, &rows, type, false, &same, err);
    ht_weight_rows_close(&rows);
    if (!status && same) t->type = type;
    return status;
}

/* The float type of most output weights; groups count by the type of their scales. */
static ht_dtype main_dtype(const translation *of) {
    double n[HT_DTYPE_COUNT] = {0};
    ht_dtype most = HT_F32;
    if (of->floats) return of->floats;
    for (size_t i = 0; i < of->plan->n; i++) {
        const ht_rewrite_tensor *t = &of->plan->tensor[i];
        if (!t->is_weight) continue;
        const int as = ht_affine_of(t->type).bits ? (int)ht_affine_of(t->type).scale : (int)t->type;
        const ht_dtype dtype = ht_weight_is_float(as) ? ht_rewrite_dtype(as) : HT_F32;
        n[dtype] += (double)ht_elements(t->from.dims, t->from.n_dims);
        if (n[dtype] > n[most]) most = dtype;
    }
    return most;
}

ht_status ht_rewrite_plan_translate(ht_rewrite_plan *plan, ht_dtype floats, bool keeps_quantized, ht_error *err) {
    translation of = {plan, floats, keeps_quantized && (plan->to_gguf || plan->to_mlx), NULL};
    plan->config->fused_gate_up = false; /* where gate and up have a common matrix, it is made of both */
    ht_status status = ht_stored_weights_visit(plan->c, plan->config, true, add_weight, &of, err);
    if (!status && plan->to_gguf) status = add_rope_factors(plan, HT_ROPE_FACTORS, err);
    for (int k = 0; !status && plan->to_gguf && k < HT_ROPE_LENGTHS; k++)
        status = add_rope_factors(plan, ht_rope_length_factors[k], err);
    for (size_t i = 0; !status && i < plan->n; i++)
        if (plan->tensor[i].piece) status = choose_type(&of, &plan->tensor[i], err);
    if (status || plan->to_gguf) return status;
    plan->dtype = main_dtype(&of);
    for (size_t i = 0; !status && i < plan->n; i++) status = narrow(&of, &plan->tensor[i], err);
    return status;
}

/* ---- experts and other weights for the other reader of directories ---- */

/* Whether the reader accepts the weight in its stored tensor. */
static bool is_in_place(const ht_rewrite_plan *plan, const ht_stored_weight *w) {
    const ht_tensor_spec *p = w->spec;
    char name[NAME_SIZE];
    ht_stored_tensor t;
    if (ht_part_is_of_head(p->expert)) return true;
    if (has_factors(plan, w)) return false;
    if (p->expert && !plan->to_mlx && !w->stored.column_step && ht_rewrite_is_reordered(plan, w)) return false;
    if (!p->expert && p->transposed) return w->is_vector || plan->to_mlx == (w->stored.column_step == 0);
    if (w->is_gain && plan->config->family->mlx_adds_norm_offset)
        return plan->config->norm_offset == written_offset(plan);
    if (!p->expert && p->mlx_axes) {
        int64_t dims[HT_SAFETENSORS_RANK_MAX];
        ht_checkpoint_tensor_at(plan->c, w->stored.number, &t);
        const int n = ht_rewrite_axes(axes_of(plan, p), w->columns / w->row_length, w->row_length, dims);
        if (t.n_dims != n || memcmp(t.dims, dims, (size_t)n * sizeof *dims) != 0) return false;
    }
    if (!p->expert && (!p->transformers || plan->config->two_sided)) return true;
    if (p->expert)
        ht_expert_tensor_name(prefix_of(plan), form_of(plan, p->expert), w->layer, w->expert, name, sizeof name);
    else
        share_name(plan, w, plan->to_mlx, name);
    return ht_checkpoint_find(plan->c, name, &t) && t.number == w->stored.number;
}

static ht_status restack(const ht_stored_weight *w, void *user, ht_error *err) {
    translation *of = user;
    ht_rewrite_plan *plan = of->plan;
    if (of->only ? !of->only[w->stored.number] || w->is_vector : is_in_place(plan, w)) return HT_OK;
    const size_t n = plan->n;
    ht_status status = add_weight(w, of, err);
    if (status) return status;
    ht_rewrite_tensor *stored = &plan->tensor[w->stored.number];
    if (!stored->moved) stored->moved = plan->n > n ? n + 1 : plan->n;
    if (plan->n > n) plan->tensor[n].file = stored->file;
    stored->action = HT_REWRITE_DROP;
    plan->restacks = true;
    return HT_OK;
}

static ht_status rename_all(ht_rewrite_plan *plan, ht_error *err) {
    char name[NAME_SIZE];
    for (size_t i = 0; i < plan->n; i++) {
        ht_rewrite_tensor *t = &plan->tensor[i];
        const char *bare = ht_checkpoint_bare_name(t->name);
        if (!strncmp(bare, "lm_head.", 8)) continue;
        if (snprintf(name, sizeof name, "%s%s", prefix_of(plan), bare) >= NAME_SIZE || !strcmp(name, t->name)) continue;
        t->renamed = strdup(name);
        if (!t->renamed) return ht_fail_memory(err, strlen(name) + 1, "a name");
    }
    return HT_OK;
}

bool ht_rewrite_is_reordered(const ht_rewrite_plan *plan, const ht_stored_weight *w) {
    const bool is_joined = !plan->c->gguf && !plan->c->quantization; /* mlx-lm's directories have whole rows */
    return !w->is_vector && (w->stored.column_step || w->row_step > 1 ||
                             (is_joined && w->spec->transposed && !ht_weight_is_float(w->stored.type)));
}

ht_status ht_rewrite_plan_restack(ht_rewrite_plan *plan, ht_dtype floats, ht_error *err) {
    return ht_rewrite_plan_restack_some(plan, NULL, floats, err);
}

ht_status ht_rewrite_plan_restack_some(ht_rewrite_plan *plan, const bool *only, ht_dtype floats, ht_error *err) {
    translation of = {plan, floats, false, only};
    const size_t n = plan->n;
    if (!only) plan->config->fused_gate_up = false;
    plan->renames = !only && plan->config->family->layers_name;
    ht_status status = plan->renames ? rename_all(plan, err) : HT_OK;
    if (!status) status = ht_stored_weights_visit(plan->c, plan->config, false, restack, &of, err);
    for (size_t i = n; !status && i < plan->n; i++) status = choose_type(&of, &plan->tensor[i], err);
    return status;
}
