#include "checkpoint/stored_weights.h"

#include "base/checked.h"
#include "base/error.h"
#include "base/log.h"
#include "base/plural.h"
#include "base/text.h"
#include "checkpoint/modules.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- experts ---- */

/* Separate gate, up and down; one tensor shared by gate and up; and its stacked down. */
#define GGUF HT_EXPERTS_GGUF
#define HUB  HT_EXPERTS_TRANSFORMERS
#define MLX  HT_EXPERTS_MLX
#define APART(naming, stacked, before, after)                                                                          \
    {HT_EXPERT_GATE, naming, stacked, before "gate" after, 0, 1},                                                      \
        {HT_EXPERT_UP, naming, stacked, before "up" after, 0, 1}, {                                                    \
        HT_EXPERT_DOWN, naming, stacked, before "down" after, 0, 1                                                     \
    }
#define SHARED(naming, name)                                                                                           \
    {HT_EXPERT_GATE, naming, true, name, 0, 2}, { HT_EXPERT_UP, naming, true, name, 1, 2 }
#define STACKED(before, after)                                                                                         \
    SHARED(HUB, before "gate_up_proj" after), { HT_EXPERT_DOWN, HUB, true, before "down_proj" after, 0, 1 }

#define W1_W3_W2(before)                                                                                               \
    {HT_EXPERT_GATE, HUB, false, before "w1.weight", 0, 1}, {HT_EXPERT_UP, HUB, false, before "w3.weight", 0, 1}, {    \
        HT_EXPERT_DOWN, HUB, false, before "w2.weight", 0, 1                                                           \
    }

/* The first row of a part and format names the tensor in messages when none exists. */
static const ht_expert_form forms[] = {APART(GGUF, true, "ffn_", "_exps.weight"),
                                       SHARED(GGUF, "ffn_gate_up_exps.weight"),
                                       APART(HUB, false, "mlp.experts.%d.", "_proj.weight"),
                                       W1_W3_W2("block_sparse_moe.experts.%d."),
                                       W1_W3_W2("feed_forward.experts.%d."),
                                       STACKED("feed_forward.experts.", ""),
                                       APART(MLX, true, "feed_forward.experts.", "_proj.weight"),
                                       {HT_EXPERT_GATE, HUB, true, "block_sparse_moe.input_linear.weight", 0, 2},
                                       {HT_EXPERT_UP, HUB, true, "block_sparse_moe.input_linear.weight", 1, 2},
                                       {HT_EXPERT_DOWN, HUB, true, "block_sparse_moe.output_linear.weight", 0, 1},
                                       STACKED("mlp.experts.", ""),
                                       APART(MLX, true, "mlp.experts.", "_proj.weight"),
                                       STACKED("mlp.experts.", ".weight"),
                                       APART(MLX, true, "mlp.switch_mlp.", "_proj.weight"),
                                       APART(MLX, true, "block_sparse_moe.switch_mlp.", "_proj.weight"),
                                       APART(MLX, true, "feed_forward.switch_mlp.", "_proj.weight"),
                                       STACKED("experts.", ""),
                                       STACKED("experts.", ".weight"),
                                       APART(HUB, false, "experts.%d.", "_proj.weight"),
                                       APART(HUB, false, "moe.experts.%d.", "_proj.weight"),
                                       APART(MLX, true, "experts.switch_glu.", "_proj.weight"),
                                       {HT_STREAM_IN, GGUF, true, "altup_proj.weight", 0, 1},
                                       {HT_STREAM_OUT, GGUF, true, "altup_unembd_proj.weight", 0, 1},
                                       {HT_STREAM_IN, HUB, false, "altup_projections.%d.weight", 0, 1},
                                       {HT_STREAM_OUT, HUB, false, "altup_unembed_projections.%d.weight", 0, 1},
                                       {HT_EXPERT_UP, HUB, false, "mixer.experts.%d.up_proj.weight", 0, 1},
                                       {HT_EXPERT_DOWN, HUB, false, "mixer.experts.%d.down_proj.weight", 0, 1},
                                       {HT_EXPERT_UP, MLX, true, "mixer.switch_mlp.fc1.weight", 0, 1},
                                       {HT_EXPERT_DOWN, MLX, true, "mixer.switch_mlp.fc2.weight", 0, 1},
                                       {HT_HEAD_KEY, GGUF, true, "attn_kv_b.weight", 0, 2},
                                       {HT_HEAD_VALUE, GGUF, true, "attn_kv_b.weight", 1, 2},
                                       {HT_HEAD_KEY, GGUF, true, "attn_k_b.weight", 0, 1},
                                       {HT_HEAD_VALUE, GGUF, true, "attn_v_b.weight", 0, 1},
                                       {HT_HEAD_KEY, HUB, true, "self_attn.kv_b_proj.weight", 0, 2},
                                       {HT_HEAD_VALUE, HUB, true, "self_attn.kv_b_proj.weight", 1, 2},
                                       {HT_HEAD_KEY, MLX, true, "self_attn.embed_q.weight", 0, 1},
                                       {HT_HEAD_VALUE, MLX, true, "self_attn.unembed_out.weight", 0, 1}};
#undef GGUF
#undef HUB
#undef MLX

void ht_expert_tensor_name(const char *prefix, const ht_expert_form *f, int64_t layer, int64_t expert, char *out,
                           size_t size) {
    char part[96];
    if (f->stacked)
        snprintf(part, sizeof part, "%s", f->name);
    else { /* a name has one %d, the expert's index */
        const char *number = strstr(f->name, "%d");
        snprintf(part, sizeof part, "%.*s%lld%s", (int)(number - f->name), f->name, (long long)expert, number + 2);
    }
    if (layer == HT_OUTSIDE_LAYERS)
        snprintf(out, size, "%s%s", prefix, part);
    else
        snprintf(out, size, "%s%s.%lld.%s", prefix, f->naming == HT_EXPERTS_GGUF ? "blk" : "layers", (long long)layer,
                 part);
}

static void expert_name(const ht_checkpoint_files *c, const ht_expert_form *f, int64_t layer, int64_t expert, char *out,
                        size_t size) {
    ht_expert_tensor_name(c->gguf ? "" : c->prefix, f, layer, expert, out, size);
}

/* Modules of all experts, and the stems of their tensors in transformers, whose modules differ from its files. In
 * mlx-lm the stem is the module. */
static const struct {
    const char *module, *mlx_module, *stem;
} layouts[] = {
    [HT_EXPERTS_MLP] = {"mlp.experts", "mlp.switch_mlp", "mlp.experts.%d."},
    [HT_EXPERTS_OUTSIDE] = {"experts", "experts.switch_glu", "experts."},
    [HT_EXPERTS_SPARSE] = {"mlp.experts", "block_sparse_moe.switch_mlp", "block_sparse_moe.experts.%d."},
    [HT_EXPERTS_LINEAR] = {"block_sparse_moe.experts", "block_sparse_moe.switch_mlp", "block_sparse_moe."},
    [HT_EXPERTS_STACKED] = {"mlp.experts", "mlp.switch_mlp", "mlp.experts."},
    [HT_EXPERTS_UNSWITCHED] = {"mlp.experts", "mlp.experts", "mlp.experts."},
    [HT_EXPERTS_FEED_FORWARD] = {"feed_forward.experts", "feed_forward.experts", "feed_forward.experts."},
    [HT_EXPERTS_KIMI] = {"mlp.experts", "mlp.switch_mlp", "block_sparse_moe.experts.%d."},
    [HT_EXPERTS_LFM2] = {"feed_forward.experts", "feed_forward.switch_mlp", "feed_forward.experts.%d."},
    [HT_EXPERTS_MIXER] = {"mixer.experts", "mixer.switch_mlp", "mixer.experts.%d."},
};

const char *ht_expert_module(ht_expert_naming naming, ht_expert_layout layout) {
    return naming == HT_EXPERTS_MLX ? layouts[layout].mlx_module : layouts[layout].module;
}

const ht_expert_form *ht_expert_form_named(ht_expert_naming naming, const ht_family *family, ht_expert_part part) {
    const char *stem = naming == HT_EXPERTS_GGUF  ? "ffn_"
                       : naming == HT_EXPERTS_MLX ? layouts[family->experts].mlx_module
                                                  : layouts[family->experts].stem;
    const bool stacked = naming != HT_EXPERTS_TRANSFORMERS || !strchr(layouts[family->experts].stem, '%'),
               shares = naming == HT_EXPERTS_GGUF ? family->gguf_fuses_experts : stacked && naming != HT_EXPERTS_MLX;
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        const ht_expert_form *f = &forms[i];
        if (ht_part_is_of_stream(part) && f->part == part &&
            (f->naming == HT_EXPERTS_GGUF) == (naming == HT_EXPERTS_GGUF))
            return f;
        if (f->part == part && f->naming == naming && f->stacked == stacked &&
            f->n_shares == (shares && part != HT_EXPERT_DOWN ? 2 : 1) && !strncmp(f->name, stem, strlen(stem)))
            return f;
    }
    return NULL; /* unreachable: the table is complete */
}

/* The form of a layer's experts in the checkpoint; the format's first form if the tensors are missing. */
static const ht_expert_form *form_of(const ht_checkpoint_files *c, ht_expert_part part, int64_t layer) {
    const ht_expert_form *first = NULL;
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        const ht_expert_form *f = &forms[i];
        if (f->part != part || (f->naming == HT_EXPERTS_GGUF) != (c->gguf != NULL)) continue;
        char name[HT_WEIGHT_NAME];
        ht_stored_tensor t;
        expert_name(c, f, layer, 0, name, sizeof name);
        if (ht_checkpoint_find(c, name, &t)) return f;
        if (!first) first = f;
    }
    return first;
}

/* Rows of a stacked tensor: those of all matrices of one expert or head, and the first of the part's. */
typedef struct row_range {
    int64_t all, first;
} row_range;

static row_range rows_of(const ht_config *c, const ht_expert_form *f, int64_t rows) {
    const ht_latent *l = &c->latent; /* keys and values of a head may differ in size */
    if (ht_part_is_of_head(f->part) && f->n_shares > 1)
        return (row_range){l->key_dim + l->value_dim, f->share ? l->key_dim : 0};
    return (row_range){rows * f->n_shares, f->share * rows};
}

/* Slice of a stacked tensor: the matrix [rows, columns] of expert `expert`; `alternates` as in ht_tensor_spec. */
static ht_stored_tensor expert_slice(const ht_stored_tensor *all, const row_range *range, bool alternates,
                                     int64_t expert, int64_t rows) {
    if (!all->column_step && !alternates) return ht_tensor_rows(all, expert * range->all + range->first, rows);
    ht_stored_tensor one = *all;
    one.row_step = 0;
    one = ht_tensor_rows(&one, expert * all->dims[1], all->dims[1]);
    one.row_step = all->row_step;
    return alternates ? ht_tensor_alternate(&one, range->first > 0, rows, all->dims[2])
                      : ht_tensor_rows(&one, range->first, rows);
}

typedef struct walk {
    const ht_checkpoint_files *c;
    const ht_config *config;
    bool *used;    /* [n_tensors] of the checkpoint; NULL: not recorded */
    bool straight; /* a directory whose matrices mlx-lm has transposed back */
    ht_stored_weight_fn *fn;
    void *user;
    ht_error *err;
} walk;

/* ---- shapes ---- */

static int64_t extent(const ht_config *c, ht_extent e, int64_t layer) {
    const ht_layer_config *l = &c->layer[layer];
    switch (e) {
    case HT_EXTENT_NONE: break;
    case HT_EXTENT_HIDDEN: return c->hidden;
    case HT_EXTENT_Q: return c->n_heads * l->head_dim;
    case HT_EXTENT_KV: return l->n_kv_heads * l->head_dim;
    case HT_EXTENT_QKV: return (c->n_heads + 2 * l->n_kv_heads) * l->head_dim;
    case HT_EXTENT_HEAD: return l->head_dim;
    case HT_EXTENT_FEED_FORWARD: return l->feed_forward;
    case HT_EXTENT_GATE_UP: return 2 * l->feed_forward;
    case HT_EXTENT_ONE: return 1;
    case HT_EXTENT_HEADS: return c->n_heads;
    case HT_EXTENT_EXPERTS: return c->n_experts;
    case HT_EXTENT_EXPERTS_HIDDEN: return c->n_experts * c->hidden;
    case HT_EXTENT_EXPERTS_FEED_FORWARD: return c->n_experts * c->expert_feed_forward;
    case HT_EXTENT_EXPERT_FEED_FORWARD: return c->expert_feed_forward;
    case HT_EXTENT_EXPERT_INPUT: return c->expert_latent ? c->expert_latent : c->hidden;
    case HT_EXTENT_EXPERT_LATENT: return c->expert_latent;
    case HT_EXTENT_SHARED_FEED_FORWARD: return c->shared_feed_forward;
    case HT_EXTENT_SHARED_GATE_UP: return 2 * c->shared_feed_forward;
    case HT_EXTENT_CONTEXT: return c->context;
    case HT_EXTENT_TOKEN_TYPES: return c->n_token_types;
    case HT_EXTENT_LABELS: return c->n_labels;
    case HT_EXTENT_LATENT: return c->latent.rank;
    case HT_EXTENT_LATENT_KEY: return c->latent.rank + c->latent.rope_dim;
    case HT_EXTENT_LATENT_Q: return c->n_heads * (c->latent.key_dim + c->latent.rope_dim);
    case HT_EXTENT_LATENT_Q_RANK: return c->latent.q_rank;
    case HT_EXTENT_LATENT_KEY_HEAD: return c->latent.key_dim;
    case HT_EXTENT_LATENT_VALUE: return c->latent.value_dim;
    case HT_EXTENT_LATENT_OUT: return c->n_heads * c->latent.value_dim;
    case HT_EXTENT_TAPS: return c->recurrence.taps;
    case HT_EXTENT_CONV: return ht_conv_channels(c);
    case HT_EXTENT_CONV_WEIGHTS: return c->recurrence.taps * ht_conv_channels(c);
    case HT_EXTENT_STATE_GROUP: return c->recurrence.heads / c->recurrence.key_heads * c->recurrence.value_dim;
    case HT_EXTENT_SSM_IN: return ht_ssm_rows_before(c, HT_SSM_SEGMENTS);
    case HT_EXTENT_GATED_CONV: return 3 * c->hidden;
    case HT_EXTENT_STREAMS: return c->altup.streams;
    case HT_EXTENT_STREAM_PAIRS: return c->altup.streams * c->altup.streams;
    case HT_EXTENT_LAUREL: return c->altup.laurel_rank;
    case HT_EXTENT_GATED_Q: return 2 * c->n_heads * l->head_dim;
    case HT_EXTENT_STATE_HEADS: return c->recurrence.heads;
    case HT_EXTENT_STATE_VALUE: return c->recurrence.value_dim;
    case HT_EXTENT_STATE_VALUES: return c->recurrence.heads * c->recurrence.value_dim;
    case HT_EXTENT_STATE_KEY: return c->recurrence.key_dim;
    case HT_EXTENT_STATE_KEYS: return c->recurrence.key_heads * c->recurrence.key_dim;
    case HT_EXTENT_KEY_WEIGHTS: return c->recurrence.taps * c->recurrence.key_heads * c->recurrence.key_dim;
    case HT_EXTENT_VALUE_WEIGHTS: return c->recurrence.taps * c->recurrence.heads * c->recurrence.value_dim;
    case HT_EXTENT_STATE_INPUTS: return ht_conv_channels(c) + c->recurrence.heads * c->recurrence.value_dim;
    case HT_EXTENT_STATE_RATES: return 2 * c->recurrence.heads;
    case HT_EXTENT_LAYER_INPUT: return c->layer_input;
    case HT_EXTENT_LAYER_INPUTS: return c->layer_input * c->n_layers;
    case HT_EXTENT_LAYER_INPUT_VOCAB: return c->layer_input_vocab;
    }
    return 0;
}

static bool has_bias(const ht_config *c, ht_bias_rule rule) {
    switch (rule) {
    case HT_BIAS_NONE: break;
    case HT_BIAS_Q: return c->q_bias;
    case HT_BIAS_OUT: return c->out_bias;
    case HT_BIAS_MLP: return c->mlp_bias;
    case HT_BIAS_NORM: return c->norm_bias;
    }
    return false;
}

/* The order in GGUF of a weight's n rows, or of its n columns. */
static ht_order order_in_gguf(const ht_config *c, const ht_tensor_spec *p, int64_t layer, bool of_columns, int64_t n) {
    const ht_recurrence_spec *r = &c->recurrence;
    const bool is_rope = p->heads == HT_HEADS_Q || p->heads == HT_HEADS_KV;
    if (is_rope && c->family->gguf_interleaves && !of_columns) return ht_order_of_halves(c->layer[layer].head_dim);
    if (!c->family->gguf_deals_heads || r->heads == r->key_heads ||
        p->heads != (of_columns ? HT_HEADS_STATE_COLUMNS : HT_HEADS_STATE))
        return (ht_order){0};
    int64_t first = 0; /* rows of queries and keys */
    if (p->rows == HT_EXTENT_CONV || p->rows == HT_EXTENT_CONV_WEIGHTS)
        first = n / ht_conv_channels(c) * 2 * r->key_heads * r->key_dim;
    return (ht_order){first, n - first, r->key_heads, (n - first) / r->heads};
}

int64_t ht_part_row(const ht_recurrence_spec *r, ht_part_rule part, int64_t row, int64_t *run) {
    const int64_t values = r->heads / r->key_heads * r->value_dim, all = 2 * (r->key_dim + values),
                  n_keys = r->key_heads * r->key_dim;
    int64_t before = 2 * r->key_dim + values, size = values; /* in the rows of a key head */
    if (part == HT_PART_QKV) {
        const int64_t which = row < n_keys ? 0 : row < 2 * n_keys ? 1 : 2; /* query, key, values */
        row -= which * n_keys;
        before = which * r->key_dim;
        if (which < 2) size = r->key_dim;
    }
    *run = size - row % size;
    return row / size * all + before + row % size;
}

/* ---- names ---- */

static const char *layers_of(const ht_config *c) { return c->family->layers_name ? c->family->layers_name : "layers"; }

/* The name in a container; `prefix` is that of the text model in safetensors. */
static void name_in(bool gguf, const char *prefix, const char *layers, const ht_tensor_spec *p, int64_t layer,
                    const char *part, char out[HT_WEIGHT_NAME]) {
    const char *name = gguf ? p->gguf : p->safetensors, *dot = p->bare || !*part ? "" : ".";
    if (p->bare) part = "";
    if (layer == HT_OUTSIDE_LAYERS)
        snprintf(out, HT_WEIGHT_NAME, "%s%s%s%s", prefix, name, dot, part);
    else
        snprintf(out, HT_WEIGHT_NAME, "%s%s.%lld.%s%s%s", prefix, gguf ? "blk" : layers, (long long)layer, name, dot,
                 part);
}

/* The slot of a weight, of which a table outside the layers has none. */
static void slot_of(const ht_tensor_spec *p, int64_t layer, char out[HT_WEIGHT_NAME]) {
    ht_tensor_spec named = *p;
    named.safetensors = ht_spec_slot(p);
    name_in(false, "model.", "layers", &named, layer, "", out);
}

/* Directories of the first BERT models name the gain and the bias of a LayerNorm gamma and beta. */
static void name_as_before(const ht_checkpoint_files *c, char name[HT_WEIGHT_NAME]) {
    static const char *const ends[][2] = {{".LayerNorm.weight", ".LayerNorm.gamma"},
                                          {".LayerNorm.bias", ".LayerNorm.beta"}};
    char old[HT_SIBLING_NAME];
    ht_stored_tensor t;
    for (int i = 0; i < 2; i++)
        if (ht_sibling_name(name, strlen(name), ends[i][0], ends[i][1], old) && !ht_checkpoint_find(c, name, &t) &&
            ht_checkpoint_find(c, old, &t))
            snprintf(name, HT_WEIGHT_NAME, "%.*s", HT_WEIGHT_NAME - 1, old);
}

/* The name in this checkpoint; whether it is the one for transformers alone. */
static bool stored_name(const walk *w, const ht_tensor_spec *p, int64_t layer, const char *part, char *out) {
    const bool gguf = w->c->gguf != NULL;
    ht_stored_tensor t;
    name_in(gguf, gguf ? "" : w->c->prefix, layers_of(w->config), p, layer, part, out);
    if (!gguf && w->config->two_sided) name_as_before(w->c, out);
    if (gguf || !p->transformers) return false;
    if (!ht_spec_is_shared_by_all(p) && ht_checkpoint_find(w->c, out, &t)) return false;
    const ht_tensor_spec shared = {.safetensors = p->transformers, .bare = p->bare};
    name_in(false, w->c->prefix, layers_of(w->config), &shared, layer, part, out);
    return true;
}

/* ---- tensors ---- */

static ht_status look_up(const walk *w, const char *name, const int64_t *dims, int n_dims, ht_stored_tensor *t) {
    for (int i = 0; i < n_dims; i++)
        if (dims[i] < 1)
            return ht_fail(w->err, HT_ERR_FORMAT, "%s: tensor `%s` has no elements by the sizes in %s",
                           ht_base_name(w->c->path), name, ht_checkpoint_shape_source(w->c));
    ht_status status = ht_checkpoint_need(w->c, name, dims, n_dims, t, w->err);
    if (!status && w->used) w->used[t->number] = true;
    return status;
}

/* ---- scales ---- */

/* Whether a GGUF file's factors for tensor `name` are a vector of the family, such as Gemma 4's
 * `ffn_down_exps.scale`. */
static bool has_own_scales(const ht_config *c, const char *name) {
    const char *in_layer = strncmp(name, "blk.", 4) ? name : strchr(name + 4, '.') + 1,
               *stem = strstr(in_layer, "weight");
    const size_t n = stem ? (size_t)(stem - in_layer) : 0;
    for (const ht_tensor_spec *const *table = c->family->layer; *table; table++)
        for (const ht_tensor_spec *p = *table; p->gguf; p++)
            if (n && p->bare && !strncmp(p->gguf, in_layer, n) && !strcmp(p->gguf + n, "scale")) return true;
    return false;
}

ht_status ht_stored_product_scales(const ht_checkpoint_files *c, const ht_config *config, const ht_product_scales *of,
                                   float *out, bool *found, size_t *number, ht_error *err) {
    *found = false;
    if (!c->scheme->product_scales || has_own_scales(config, of->name)) return HT_OK;
    return c->scheme->product_scales(c, of, out, found, number, err);
}

static ht_status read_product_scales(const walk *w, const ht_product_scales *of, float *out, bool *found) {
    size_t number = SIZE_MAX;
    ht_status status = ht_stored_product_scales(w->c, w->config, of, out, found, &number, w->err);
    if (!status && w->used && number != SIZE_MAX) w->used[number] = true;
    return status;
}

/* The scales of fp8 tensor t: of n consecutive matrices, or of a single matrix when n is 0. */
static ht_status find_scales(const walk *w, const ht_stored_tensor *t, const char *name, int64_t n,
                             ht_fp8_scales *out) {
    *out = (ht_fp8_scales){0};
    if (!ht_weight_is_f8((ht_weight_type)t->type)) return HT_OK;
    const int64_t *dims = t->dims + t->n_dims - 2;
    return ht_fp8_scales_find(w->c, name, n, dims[0], dims[1], out, w->err);
}

/* ---- weights ---- */

static ht_status visit(const walk *w, const ht_stored_weight *at) { return w->fn ? w->fn(at, w->user, w->err) : HT_OK; }

/* Whether the first matrix that transformers hold transposed, and that is not square, is not. */
static bool is_straight(const ht_checkpoint_files *c, const ht_config *config) {
    const walk w = {.c = c, .config = config};
    for (const ht_tensor_spec *const *table = config->family->layer; !c->gguf && *table; table++)
        for (const ht_tensor_spec *p = *table; p->gguf; p++) {
            const int64_t rows = extent(config, p->rows, 0), columns = extent(config, p->columns, 0);
            char name[HT_WEIGHT_NAME];
            ht_stored_tensor t;
            if (!p->transposed || p->expert || rows == columns) continue;
            stored_name(&w, p, 0, "weight", name);
            return ht_checkpoint_find(c, name, &t) && t.n_dims == 2 && t.dims[0] == rows && t.dims[1] == columns;
        }
    return false;
}

/* Blocks of several columns cannot be read column by column, nor value by value. */
static ht_status need_single_values(const walk *w, const ht_stored_tensor *t) {
    if (ht_tensor_unit(t) == 1) return HT_OK;
    return ht_fail(w->err, HT_ERR_UNSUPPORTED, "%s: tensor `%.*s` is of type %s, expected floats, as it is transposed",
                   t->file_name, (int)ht_name_shown(t->name, t->name_len), t->name, t->type_name);
}

/* Finds the tensor of a weight whose names and shape the caller has filled in; `shared`: it has those of its spec's
 * n_shares weights. */
static ht_status visit_tensor(const walk *w, ht_stored_weight *at, bool shared) {
    /* One row may be stored as a vector or as a matrix; the gains of heads, and the weights of channels, in rows with
     * any number of axes. */
    const ht_tensor_spec *p = at->spec;
    const int64_t skipped = p->rows == HT_EXTENT_CONTEXT ? w->config->position_offset : 0,
                  n_shares = shared && p->n_shares ? p->n_shares : 1,
                  dims[] = {n_shares * at->rows + skipped, at->columns}, swapped[] = {at->columns, at->rows};
    ht_stored_tensor t;
    const bool is_found = ht_checkpoint_find(w->c, at->name, &t),
               reshaped = is_found && at->rows == 1 && (at->is_vector ? t.n_dims > 1 : t.n_dims == 1) &&
                          ht_elements(t.dims, t.n_dims) == at->columns;
    int n_dims = at->is_vector ? 1 : 2;
    const int64_t *shape = at->is_vector ? dims + 1 : dims;
    if (reshaped) n_dims = t.n_dims, shape = t.dims;
    const bool transposed = p->transposed && !w->c->gguf && !w->straight && !at->is_vector;
    const bool alternates =
        shared && p->alternates && is_found && at->is_vector && ht_elements(t.dims, t.n_dims) == n_shares * at->columns;
    if (transposed) shape = swapped;
    if (alternates) n_dims = t.n_dims, shape = t.dims;
    ht_status status = look_up(w, at->name, shape, n_dims, &at->stored);
    if (!status && reshaped) {
        at->stored.n_dims = at->is_vector ? 1 : 2;
        memcpy(at->stored.dims, at->is_vector ? dims + 1 : dims, (size_t)at->stored.n_dims * sizeof *dims);
    }
    if (!status && (transposed || alternates)) status = need_single_values(w, &at->stored);
    if (!status && transposed) at->stored = ht_tensor_transposed(&at->stored);
    if (!status && alternates) at->stored = ht_tensor_alternate(&at->stored, p->share, at->columns, 1);
    at->n_shares = 1;
    at->row_step = 1;
    if (alternates) at->row_step = 2, at->first_row = p->share;
    at->product_scale = 1;
    if (!status && !at->is_vector) status = find_scales(w, &at->stored, at->name, 0, &at->scales);
    if (!status && (n_shares > 1 || skipped) && !at->is_vector) {
        at->first_row = at->scale_row = skipped + p->share * at->rows;
        at->stored = ht_tensor_rows(&at->stored, at->first_row, at->rows);
    }
    if (!status && !at->is_vector)
        status =
            read_product_scales(w, &(ht_product_scales){at->name, 1, 0, 1}, &at->product_scale, &at->has_product_scale);
    return status ? status : visit(w, at);
}

/* Like visit_tensor, for a row of a table or its bias. */
static ht_status visit_spec(const walk *w, const char *part, ht_stored_weight at) {
    char stored[HT_WEIGHT_NAME], gguf[HT_WEIGHT_NAME], safetensors[HT_WEIGHT_NAME];
    const bool shared = stored_name(w, at.spec, at.layer, part, stored);
    name_in(true, "", "blk", at.spec, at.layer, part, gguf);
    name_in(false, "", layers_of(w->config), at.spec, at.layer, part, safetensors);
    at.name = stored;
    at.gguf = gguf;
    at.safetensors = safetensors;
    if (at.role == HT_ROLE_HEAD && !w->c->gguf) at.name = w->c->head ? w->c->head : safetensors;
    return visit_tensor(w, &at, shared);
}

/* The bias of a matrix, as many values as rows, or of a norm. */
static ht_stored_weight bias_of(ht_stored_weight matrix) {
    /* A tied head is not visited, so that its bias follows another weight. */
    matrix.role = matrix.role == HT_ROLE_HEAD ? HT_ROLE_HEAD_BIAS : HT_ROLE_BIAS;
    if (!matrix.is_vector) matrix.columns = matrix.rows;
    matrix.gguf_columns = matrix.stored_columns = (ht_order){0};
    matrix.rows = 1;
    matrix.is_gain = false;
    matrix.is_vector = true;
    matrix.is_table = matrix.is_quantized = false;
    matrix.slot = NULL;
    matrix.projection = NULL;
    return matrix;
}

static ht_status visit_matrix(const walk *w, const ht_tensor_spec *p, int64_t layer) {
    const ht_config *c = w->config;
    const int64_t of = ht_max_i64(layer, 0), rows = extent(c, p->rows, of), columns = extent(c, p->columns, of);
    const bool outside = layer == HT_OUTSIDE_LAYERS;
    char slot[HT_WEIGHT_NAME], gguf[HT_WEIGHT_NAME], bias[HT_WEIGHT_NAME];
    ht_stored_tensor unwanted;
    slot_of(p, layer, slot);
    name_in(true, "", "blk", p, layer, "", gguf);
    stored_name(w, p, layer, "bias", bias);
    const ht_projection projection = {.slot = slot,
                                      .gguf = gguf,
                                      .layer = layer,
                                      .n_out = p->part ? extent(c, HT_EXTENT_STATE_INPUTS, of) : rows,
                                      .n_in = columns,
                                      .part = p->part,
                                      .rows = order_in_gguf(c, p, of, false, rows),
                                      .columns = order_in_gguf(c, p, of, true, columns),
                                      .is_router = p->rows == HT_EXTENT_EXPERTS};
    ht_stored_weight at = {.role = HT_ROLE_MATRIX,
                           .spec = p,
                           .layer = layer,
                           .rows = rows,
                           .columns = columns,
                           .slot = slot,
                           .projection = outside ? NULL : &projection,
                           .is_table = p->looked_up,
                           .is_quantized = !outside || p->looked_up,
                           .gguf_rows = projection.rows,
                           .gguf_columns = projection.columns};
    if (c->is_gguf) at.stored_rows = at.gguf_rows, at.stored_columns = at.gguf_columns;
    char name[HT_WEIGHT_NAME];
    stored_name(w, p, layer, "weight", name);
    if (p->optional && !ht_checkpoint_find(w->c, name, &unwanted)) return HT_OK;
    ht_status status = visit_spec(w, "weight", at);
    if (!status && (has_bias(c, p->bias) || (p->optional && ht_checkpoint_find(w->c, bias, &unwanted))))
        return visit_spec(w, "bias", bias_of(at));
    if (!status && ht_checkpoint_find(w->c, bias, &unwanted))
        return ht_fail(w->err, HT_ERR_FORMAT, "%s: there is a tensor `%s`, but %s implies none", unwanted.file_name,
                       bias, ht_checkpoint_shape_source(w->c));
    return status;
}

/* A vector that is stored as one tensor per head. */
static ht_status visit_heads(const walk *w, ht_stored_weight at) {
    ht_status status = HT_OK;
    const int64_t head_dim = w->config->layer[at.layer].head_dim;
    at.n_parts = at.columns / head_dim;
    at.columns = head_dim;
    for (at.part = 0; !status && at.part < at.n_parts; at.part++) {
        char part[40];
        snprintf(part, sizeof part, "norms.%lld.weight", (long long)at.part);
        status = visit_spec(w, part, at);
    }
    return status;
}

static ht_status visit_vector(const walk *w, const ht_tensor_spec *p, int64_t layer) {
    const int64_t n = extent(w->config, p->rows, ht_max_i64(layer, 0));
    ht_stored_weight at = {.role = HT_ROLE_VECTOR,
                           .spec = p,
                           .layer = layer,
                           .rows = 1,
                           .columns = n,
                           .row_length = extent(w->config, p->row, ht_max_i64(layer, 0)),
                           .gguf_rows = order_in_gguf(w->config, p, ht_max_i64(layer, 0), false, n),
                           .is_vector = true,
                           .is_gain = !p->bare};
    if (w->config->is_gguf) at.stored_rows = at.gguf_rows;
    char name[HT_WEIGHT_NAME];
    ht_stored_tensor t;
    stored_name(w, p, layer, "weight", name);
    if (p->optional && !ht_checkpoint_find(w->c, name, &t)) return HT_OK;
    if (p->per_head && !w->c->gguf) return visit_heads(w, at);
    ht_status status = visit_spec(w, "weight", at);
    return status || !has_bias(w->config, p->bias) ? status : visit_spec(w, "bias", bias_of(at));
}

/* ---- experts ---- */

/* Visits all experts of a part in one tensor, which is looked up once. */
static ht_status visit_stacked(const walk *w, const ht_expert_form *f, ht_stored_weight at) {
    const row_range range = rows_of(w->config, f, at.rows);
    const int64_t n = ht_part_count(w->config, f->part), dims[] = {n, range.all, at.columns},
                  swapped[] = {n, at.columns, range.all}, flat[] = {n * range.all, at.columns};
    const bool is_flat = ht_part_is_of_head(f->part) && f->n_shares > 1; /* rows of all heads in a matrix */
    ht_stored_tensor all;
    /* Some families store experts transposed, which the shape shows, unless it is square. */
    const bool is_found = ht_checkpoint_find(w->c, at.name, &all) && all.n_dims == 3 && !w->c->gguf,
               is_square = dims[1] == dims[2],
               transposed = is_found && !memcmp(all.dims, swapped, sizeof swapped) &&
                            (!is_square || (at.spec->transposed && f->naming == HT_EXPERTS_TRANSFORMERS &&
                                            ht_weight_is_float(all.type)));
    float *scales = malloc((size_t)n * sizeof *scales);
    if (!scales) return ht_fail_memory(w->err, (size_t)n * sizeof *scales, "scales");
    ht_status status =
        is_flat ? look_up(w, at.name, flat, 2, &all) : look_up(w, at.name, transposed ? swapped : dims, 3, &all);
    if (!status && transposed) status = need_single_values(w, &all);
    if (!status && transposed) all = ht_tensor_transposed(&all);
    if (!status) status = find_scales(w, &all, at.name, is_flat ? 0 : n, &at.scales);
    const ht_product_scales factors =
        is_flat ? (ht_product_scales){at.name, 1, 0, 1} : (ht_product_scales){at.name, n, f->share, f->n_shares};
    if (!status) status = read_product_scales(w, &factors, scales, &at.has_product_scale);
    at.n_shares = f->n_shares;
    for (at.expert = 0; !status && at.expert < n; at.expert++) {
        const bool alternates = f->n_shares > 1 && !w->c->gguf && at.spec->alternates;
        at.stored = expert_slice(&all, &range, alternates, at.expert, at.rows);
        at.first_row = at.expert * range.all + (alternates ? f->share : range.first);
        at.row_step = alternates ? 2 : 1;
        at.scale_matrix = is_flat ? 0 : at.expert;
        at.scale_row = is_flat ? at.first_row : range.first;
        at.product_scale = at.has_product_scale ? scales[is_flat ? 0 : at.expert] : 1;
        status = visit(w, &at);
    }
    free(scales);
    return status;
}

/* The projection of all heads' keys and values from latents, however the checkpoint divides it; writes its names. */
static ht_projection projection_of_heads(const ht_config *c, int64_t layer, char slot[HT_WEIGHT_NAME],
                                         char gguf[HT_WEIGHT_NAME]) {
    snprintf(slot, HT_WEIGHT_NAME, "model.layers.%lld." HT_HEADS_SLOT, (long long)layer);
    snprintf(gguf, HT_WEIGHT_NAME, "blk.%lld." HT_HEADS_GGUF, (long long)layer);
    return (ht_projection){.slot = slot,
                           .gguf = gguf,
                           .layer = layer,
                           .n_out = c->n_heads * ht_latent_head_rows(&c->latent),
                           .n_in = c->latent.rank,
                           .of_heads = true};
}

static ht_status visit_experts(const walk *w, const ht_tensor_spec *p, int64_t layer) {
    const ht_config *c = w->config;
    const bool outside = layer == HT_OUTSIDE_LAYERS;
    const int64_t rows = extent(c, p->rows, ht_max_i64(layer, 0)),
                  columns = extent(c, p->columns, ht_max_i64(layer, 0)), n = ht_part_count(c, p->expert);
    const ht_expert_form *f = form_of(w->c, p->expert, layer);
    char name[HT_WEIGHT_NAME], slot[HT_WEIGHT_NAME], gguf[HT_WEIGHT_NAME];
    slot_of(p, layer, slot);
    name_in(true, "", "blk", p, layer, "", gguf);
    ht_projection projection = {.slot = slot,
                                .gguf = gguf,
                                .layer = layer,
                                .n_out = rows,
                                .n_in = columns,
                                .n_experts = c->n_experts,
                                .fused =
                                    p->expert != HT_EXPERT_DOWN &&
                                    (f->naming == HT_EXPERTS_GGUF ? f->n_shares > 1 : c->family->gguf_fuses_experts)};
    if (ht_part_is_of_head(p->expert)) projection = projection_of_heads(c, layer, slot, gguf);
    ht_stored_weight at = {.role = HT_ROLE_EXPERT,
                           .spec = p,
                           .layer = layer,
                           .rows = rows,
                           .columns = columns,
                           .name = name,
                           .slot = slot,
                           .projection = outside ? NULL : &projection,
                           .is_quantized = !outside};
    ht_status status = HT_OK;
    if (p->expert == HT_HEAD_KEY && f->n_shares > 1) { /* its rows are those of keys */
        at.rows = columns;
        at.columns = rows;
        at.is_transposed = true;
    }
    expert_name(w->c, f, layer, 0, name, sizeof name);
    if (f->stacked) return visit_stacked(w, f, at);
    for (at.expert = 0; !status && at.expert < n; at.expert++) {
        expert_name(w->c, f, layer, at.expert, name, sizeof name);
        status = visit_tensor(w, &at, false);
    }
    return status;
}

/* ---- tables ---- */

static ht_status visit_table(const walk *w, const ht_tensor_spec *table, int64_t layer) {
    ht_status status = HT_OK;
    for (const ht_tensor_spec *p = table; !status && p->gguf; p++) {
        if (p->has && !p->has(w->config, ht_max_i64(layer, 0))) continue;
        status = p->expert                      ? visit_experts(w, p, layer)
                 : p->columns != HT_EXTENT_NONE ? visit_matrix(w, p, layer)
                                                : visit_vector(w, p, layer);
    }
    return status;
}

/* Visits the weights of every decoder outside its layers, then the family's additional ones. */
static ht_status visit_outside(const walk *w) {
    const ht_config *c = w->config;
    const ht_family *f = c->family;
    const ht_tensor_spec embedding = {.safetensors = f->embedding_name ? f->embedding_name : "embed_tokens",
                                      .gguf = "token_embd"},
                         final_norm = {.safetensors = f->final_norm_name ? f->final_norm_name : "norm",
                                       .gguf = f->gguf_final_norm ? f->gguf_final_norm : "output_norm"},
                         head = {.safetensors = "lm_head", .gguf = "output"};
    const ht_stored_weight table = {.role = HT_ROLE_EMBEDDING,
                                    .spec = &embedding,
                                    .layer = HT_OUTSIDE_LAYERS,
                                    .rows = c->vocab,
                                    .columns = c->hidden,
                                    .slot = "model.embed_tokens",
                                    .is_table = !c->tied_head || c->two_sided,
                                    .is_quantized = true};
    const ht_stored_weight norm = {.role = HT_ROLE_FINAL_NORM,
                                   .spec = &final_norm,
                                   .layer = HT_OUTSIDE_LAYERS,
                                   .rows = 1,
                                   .columns = c->hidden,
                                   .is_vector = true,
                                   .is_gain = true};
    ht_stored_weight logits = table;
    logits.role = HT_ROLE_HEAD;
    logits.spec = &head;
    logits.slot = "lm_head";
    logits.is_table = false;
    ht_status status = visit_spec(w, "weight", table);
    const bool has_norm = !c->family->no_final_norm;
    if (!status && has_norm) status = visit_spec(w, "weight", norm);
    if (!status && has_norm && c->norm_bias) status = visit_spec(w, "bias", bias_of(norm));
    if (!status && !c->tied_head) status = visit_spec(w, "weight", logits);
    if (!status && c->head_bias) status = visit_spec(w, "bias", bias_of(logits));
    return status || !c->family->around ? status : visit_table(w, c->family->around, HT_OUTSIDE_LAYERS);
}

/* ---- names ---- */

void ht_gguf_names_visit(const ht_config *config, void (*fn)(const char *name, void *user), void *user) {
    const ht_family *f = config->family;
    char name[HT_WEIGHT_NAME];
    snprintf(name, sizeof name, "%s.weight", f->gguf_final_norm ? f->gguf_final_norm : "output_norm");
    if (!f->no_final_norm) fn(name, user);
    if (!f->no_final_norm && config->norm_bias) fn("output_norm.bias", user);
    if (!config->tied_head) fn("output.weight", user);
    if (config->head_bias) fn("output.bias", user);
    for (int64_t layer = f->around ? HT_OUTSIDE_LAYERS : 0; layer < config->n_layers; layer++) {
        const ht_tensor_spec *const around[] = {f->around, NULL};
        for (const ht_tensor_spec *const *table = layer < 0 ? around : f->layer; *table; table++)
            for (const ht_tensor_spec *p = *table; p->gguf; p++) {
                if (p->has && !p->has(config, ht_max_i64(layer, 0))) continue;
                name_in(true, "", "blk", p, layer, "weight", name);
                fn(name, user);
                if (!has_bias(config, p->bias)) continue;
                name_in(true, "", "blk", p, layer, "bias", name);
                fn(name, user);
            }
    }
}

/* ---- tensors that no weight is in ---- */

enum { NAMED = 4, NAME_SHOWN = 100 };

/* Tensors that are not weights: scales and biases read with their weight, calibration of activations and caches, and
 * buffers that Hearth computes. */
static bool is_expected(const char *name) {
    static const char *const words[] = {"_scale_inv",
                                        "weight_scale",
                                        "_proj_scale",
                                        "input_scale",
                                        "activation_scale",
                                        "_global_scale",
                                        "_proj_scales",
                                        "k_scale",
                                        "v_scale",
                                        "q_scale",
                                        "output_scale",
                                        "prob_scale",
                                        "input_zero_point",
                                        "_amax",
                                        ".input_min",
                                        ".input_max",
                                        ".output_min",
                                        ".output_max",
                                        "rotary_emb.inv_freq",
                                        "attn_rot_embd",
                                        "rope_freqs.weight",
                                        "rope_factors_",
                                        "attn.masked_bias",
                                        "embeddings.position_ids",
                                        "pooler.dense", /* of BERT without a head that reads it */
                                        ".scales",
                                        ".biases",
                                        NULL};
    /* The endings: causal masks that old checkpoints hold as buffers. */
    return ht_contains_any(name, words) || ht_ends_with(name, ".attn.bias") || ht_ends_with(name, ".self_attn.bias");
}

/* GGUF files that hold both a text model and a tower use short names for the tower's tensors. */
static bool is_of_tower(const ht_checkpoint_files *c, const char *name) {
    static const char *const starts[] = {"v.", "a.", "mm."};
    for (size_t i = 0; c->gguf && i < sizeof starts / sizeof *starts; i++)
        if (!strncmp(name, starts[i], strlen(starts[i]))) return true;
    return ht_checkpoint_is_tower(name);
}

/* Finds the layer of a tensor and its name in it; false outside the layers. */
static bool layer_of(const char *name, const char *layers, int64_t *layer, const char **rest) {
    const size_t n = strlen(layers);
    if (strncmp(name, layers, n) != 0 || name[n] != '.') return false;
    char *end;
    name += n + 1;
    *layer = strtoll(name, &end, 10);
    *rest = end + 1;
    return end > name && *end == '.' && *name >= '0' && *name <= '9';
}

/* Whether the family has a layer weight of this name, which the configuration excludes from this layer. Layers that
 * share keys and values have no such weights, for example. */
static bool is_left_out(const ht_family *family, bool gguf, const char *name) {
    if (gguf && strncmp(name, "attn_", 5) != 0) return false; /* GGUF metadata excludes no other weights */
    for (const ht_tensor_spec *const *table = family->layer; *table; table++)
        for (const ht_tensor_spec *p = *table; p->gguf; p++) {
            const char *own = gguf ? p->gguf : p->safetensors;
            const size_t n = strlen(own);
            if (p->expert || !p->has || strncmp(name, own, n) != 0) continue;
            if (p->bare ? !name[n] : !strcmp(name + n, ".weight") || !strncmp(name + n, ".weight_", 8)) return true;
        }
    return false;
}

/* Whether ignoring this tensor changes the results. Heads for other tasks do not count: in safetensors all tensors
 * outside the layers except those of the embedding, the final norm and the logits. */
static bool is_missed(const ht_checkpoint_files *c, const ht_config *config, const char *name) {
    static const char *const around[] = {"embed_positions.", "embed_tokens.bias", "embedding_norm.", "norm.",
                                         "norm_f.",          "final_layernorm.",  "lm_head.",        NULL};
    const bool gguf = c->gguf != NULL;
    const char *bare = gguf ? name : ht_checkpoint_bare_name(name), *rest;
    int64_t layer;
    if (layer_of(bare, gguf ? "blk" : layers_of(config), &layer, &rest))
        return layer < config->n_layers && !is_left_out(config->family, gguf, rest);
    if (gguf) return true;
    if (config->tied_head && !strcmp(bare, "lm_head.weight")) return false; /* a copy of the embedding */
    if (config->two_sided && !strncmp(bare, "lm_head.", 8)) return false;   /* for the task of pretraining */
    for (size_t i = 0; around[i]; i++)
        if (!strncmp(bare, around[i], strlen(around[i]))) return true;
    return false;
}

/* Up to NAMED names. */
typedef struct name_list {
    size_t n, at;
    char text[NAMED * (NAME_SHOWN + 8)];
} name_list;

static void add_name(name_list *l, const char *name) {
    if (l->n++ < NAMED)
        l->at += (size_t)snprintf(l->text + l->at, sizeof l->text - l->at, "%s`%.*s`", l->n > 1 ? ", " : "",
                                  ht_name_shown(name, strlen(name)), name);
}

static void end_list(name_list *l) {
    if (l->n > NAMED) snprintf(l->text + l->at, sizeof l->text - l->at, " and %zu more", l->n - NAMED);
}

static void note(const ht_checkpoint_files *c, name_list *others, size_t n_towers) {
    char towers[64] = "";
    const char *where = ht_base_name(c->path);
    if (n_towers)
        snprintf(towers, sizeof towers, "%zu tensor%s of vision and audio left out", n_towers, ht_plural(n_towers));
    end_list(others);
    if (others->n)
        ht_log_write(HT_LOG_INFO, "%s: %s%s%zu tensor%s not needed: %s", where, towers, n_towers ? "; " : "", others->n,
                     others->n == 1 ? " is" : "s are", others->text);
    else if (n_towers)
        ht_log_write(HT_LOG_INFO, "%s: %s", where, towers);
}

/* Multi-token prediction: layers that draft tokens, stored after the model's layers or separately. */
static const char *const prediction[] = {"nextn", "mtp", NULL};

int64_t ht_prediction_layers(const ht_checkpoint_files *c, const ht_config *config) {
    static const char *const words[] = {"nextn", "mtp", "eh_proj", NULL};
    int64_t n = 0;
    for (size_t i = 0; i < ht_checkpoint_n_tensors(c); i++) {
        char name[512];
        const char *rest, *bare = name;
        int64_t layer = 0;
        snprintf(name, sizeof name, "%.*s", (int)ht_min_size(c->stored[i].name_len, sizeof name - 1),
                 c->stored[i].name);
        if (!ht_contains_any(name, words) || is_of_tower(c, name)) continue;
        if (!c->gguf) bare = ht_checkpoint_bare_name(name);
        if (layer_of(bare, c->gguf ? "blk" : layers_of(config), &layer, &rest))
            n = ht_max_i64(n, layer - config->n_layers + 1);
        else /* "mtp.layers.0.", or one layer without a number */
            n = ht_max_i64(n, 1 + ht_min_i64(strtoll(name + strcspn(name, "0123456789"), NULL, 10), HT_MAX_LAYERS));
    }
    return ht_min_i64(n, HT_MAX_LAYERS);
}

/* HT_ERR_UNSUPPORTED, with the name, for a tensor of the text model that no weight uses: the model needs an
 * operation that Hearth lacks. `notes`: logs the other unused tensors in one line. */
static ht_status check_unused(const walk *w, bool notes) {
    const ht_checkpoint_files *c = w->c;
    name_list missed = {0}, others = {0};
    size_t n_towers = 0;
    for (size_t i = 0, n = ht_checkpoint_n_tensors(c); i < n; i++) {
        char name[512];
        snprintf(name, sizeof name, "%.*s", (int)ht_min_size(c->stored[i].name_len, sizeof name - 1),
                 c->stored[i].name);
        if (w->used[i] || is_expected(name) || (c->gguf && ht_modules_has(w->config, name))) continue;
        if (is_of_tower(c, name))
            n_towers++;
        else if (!ht_contains_any(name, prediction) && is_missed(c, w->config, name))
            add_name(&missed, name);
        else
            add_name(&others, name);
    }
    end_list(&missed);
    if (missed.n)
        return ht_fail(w->err, HT_ERR_UNSUPPORTED,
                       "%s: %zu tensor%s not used by %s models: %s. The model is of another architecture, or a variant "
                       "that is not supported",
                       ht_base_name(c->path), missed.n, missed.n == 1 ? " is" : "s are",
                       w->config->family->architecture, missed.text);
    if (notes) note(c, &others, n_towers);
    return HT_OK;
}

float ht_stored_multiplier(const ht_config *config, const ht_stored_weight *w, int64_t row) {
    const ht_family *f = config->family;
    if (!f->multiplier) return 1;
    if (w->role == HT_ROLE_EMBEDDING) return config->tied_head ? 1 : config->embedding_scale;
    if (w->role == HT_ROLE_HEAD) return config->logit_scale;
    return w->role == HT_ROLE_MATRIX ? f->multiplier(config, &config->multipliers, w->spec->offset, row) : 1;
}

/* ---- all ---- */

ht_status ht_stored_weights_visit_outside(const ht_checkpoint_files *c, const ht_config *config,
                                          ht_stored_weight_fn *fn, void *user, ht_error *err) {
    const walk w = {.c = c, .config = config, .straight = is_straight(c, config), .fn = fn, .user = user, .err = err};
    return visit_outside(&w);
}

ht_status ht_stored_weights_visit(const ht_checkpoint_files *c, const ht_config *config, bool notes,
                                  ht_stored_weight_fn *fn, void *user, ht_error *err) {
    walk w = {.c = c, .config = config, .straight = is_straight(c, config), .fn = fn, .user = user, .err = err};
    const size_t n = ht_checkpoint_n_tensors(c);
    w.used = calloc(n + 1, sizeof *w.used);
    if (!w.used) return ht_fail_memory(err, n, "a list of tensors");
    ht_status status = visit_outside(&w);
    for (int64_t layer = 0; !status && layer < config->n_layers; layer++)
        for (const ht_tensor_spec *const *table = config->family->layer; !status && *table; table++)
            status = visit_table(&w, *table, layer);
    if (!status) status = check_unused(&w, notes);
    free(w.used);
    return status;
}
