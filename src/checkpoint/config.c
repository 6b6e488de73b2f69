#include "checkpoint/config.h"

#include "base/checked.h"
#include "base/error.h"
#include "checkpoint/family.h"
#include "checkpoint/kv_size.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool ht_config_add_eos(ht_config *c, int64_t id) {
    if (id < 0 || id >= c->vocab) return true;
    for (int i = 0; i < c->n_eos; i++)
        if (c->eos[i] == id) return true;
    if (c->n_eos == HT_MAX_EOS) return false;
    c->eos[c->n_eos++] = (int32_t)id;
    return true;
}

void ht_config_begin(ht_config *c) {
    const ht_family *f = c->family;
    const ht_config_defaults *d = &f->defaults;
    c->layer_norm = f->layer_norm;
    c->parallel = f->parallel;
    c->two_sided = f->two_sided;
    c->norm_offset = f->norm_offset;
    c->embedding_scale = f->scaled_embedding ? (float)sqrt((double)c->hidden) : 1;
    c->residual_scale = c->logit_scale = 1;
    c->q_bias = d->q_bias;
    c->out_bias = d->out_bias;
    c->mlp_bias = d->mlp_bias;
    c->norm_bias = d->norm_bias;
    c->head_bias = d->head_bias;
    c->routing = d->routing;
    c->recurrence.kind = f->recurrence;
    c->recurrence.normed = true;
    ht_multipliers_clear(&c->multipliers);
    c->head_norms = true;
    c->rope.interleaved = c->local_rope.interleaved = f->interleaved_rope;
    c->has_local_rope = d->local_rope_theta > 0;
}

void ht_config_set_field(ht_config *c, const ht_config_field *f, double value) {
    void *at = (char *)c + f->offset;
    if (f->is_inverse && value != 0) value = 1 / value;
    switch (f->type) {
    case HT_FIELD_I64: *(int64_t *)at = value < 0x1p63 ? (int64_t)value : INT64_MAX; break;
    case HT_FIELD_F32: *(float *)at = (float)value; break;
    case HT_FIELD_BOOL: *(bool *)at = value != 0; break;
    }
}

double ht_config_get_field(const ht_config *c, const ht_config_field *f) {
    const char *at = (const char *)c + f->offset;
    const double value = f->type == HT_FIELD_I64   ? (double)*(const int64_t *)(const void *)at
                         : f->type == HT_FIELD_F32 ? (double)*(const float *)(const void *)at
                                                   : (double)*(const bool *)(const void *)at;
    return f->is_inverse && value != 0 ? (double)(float)(1 / value) : value;
}

const ht_config_field *ht_config_field_of(const ht_family *f, size_t offset) {
    for (const ht_config_field *field = f->fields; field && (field->json || field->gguf); field++)
        if (field->offset == offset) return field;
    return NULL;
}

void ht_config_fill_layers(ht_config *c) {
    for (int64_t i = 0; i < c->n_layers; i++)
        c->layer[i] = (ht_layer_config){
            .n_kv_heads = c->n_kv_heads, .head_dim = c->head_dim, .feed_forward = c->feed_forward, .kv_layer = i};
}

void ht_config_remove_attention(ht_config *c, int64_t layer) {
    c->layer[layer].no_attention = true;
    c->layer[layer].n_kv_heads = 0;
}

void ht_config_make_recurrent(ht_config *c, int64_t layer) {
    ht_config_remove_attention(c, layer);
    c->layer[layer].recurrent = true;
}

void ht_config_end(ht_config *c) {
    bool any = false;
    for (int64_t i = 0; i < c->n_layers; i++) any = any || c->layer[i].recurrent;
    if (!any) c->recurrence.kind = HT_RECURRENCE_NONE;
    if (c->two_sided) c->tied_head = true; /* there is none */
}

/* ---- multipliers ---- */

enum { N_MULTIPLIERS = sizeof(ht_multipliers) / sizeof(float) };

static void list_multipliers(const ht_multipliers *m, float out[N_MULTIPLIERS]) { memcpy(out, m, sizeof *m); }

void ht_multipliers_clear(ht_multipliers *m) {
    float ones[N_MULTIPLIERS];
    for (int i = 0; i < N_MULTIPLIERS; i++) ones[i] = 1;
    memcpy(m, ones, sizeof *m);
}

bool ht_multipliers_equal(const ht_multipliers *a, const ht_multipliers *b) { return !memcmp(a, b, sizeof *a); }

bool ht_config_has_multipliers(const ht_config *c) {
    ht_multipliers ones;
    ht_multipliers_clear(&ones);
    return !ht_multipliers_equal(&c->multipliers, &ones);
}

void ht_multipliers_to_text(const ht_multipliers *m, char text[HT_MULTIPLIERS_TEXT]) {
    float each[N_MULTIPLIERS];
    size_t n = 0;
    list_multipliers(m, each);
    for (int i = 0; i < N_MULTIPLIERS; i++)
        n += (size_t)snprintf(text + n, HT_MULTIPLIERS_TEXT - n, "%s%.9g", i ? " " : "", (double)each[i]);
}

bool ht_multipliers_from_text(const char *text, ht_multipliers *out) {
    float each[N_MULTIPLIERS];
    for (int i = 0; i < N_MULTIPLIERS; i++) {
        char *end;
        each[i] = strtof(text, &end);
        if (end == text || !isfinite(each[i]) || each[i] == 0) return false;
        text = end;
    }
    memcpy(out, each, sizeof *out);
    return !*text;
}

int64_t ht_config_head_dim(const ht_config *c, bool slides) {
    int64_t i = 0;
    while (i < c->n_layers && c->layer[i].slides != slides) i++;
    return c->layer[i < c->n_layers ? i : 0].head_dim;
}

void ht_config_slide_by_pattern(ht_config *c, int64_t pattern) {
    for (int64_t i = 0; i < c->n_layers; i++)
        c->layer[i].slides = c->window > 0 && !c->layer[i].no_attention && (i + 1) % pattern != 0;
}

bool ht_config_share_keys(ht_config *c, int64_t n) {
    if (n < 0 || n >= c->n_layers) return n == 0;
    for (int64_t i = c->n_layers - n; i < c->n_layers; i++) {
        int64_t from = c->n_layers - n - 1;
        while (from >= 0 && c->layer[from].slides != c->layer[i].slides) from--;
        if (from < 0) return false;
        c->layer[i].kv_layer = from;
    }
    return true;
}

int64_t ht_config_leading_dense(const ht_config *c) {
    int64_t n = 0;
    while (n < c->n_layers && !c->layer[n].has_experts) n++;
    return n;
}

/* Upper bounds are far above any real model and keep products of two sizes within int64_t. */
static ht_status check_size(const char *what, int64_t value, int64_t most, const char *file, ht_error *err) {
    if (value >= 1 && value <= most) return HT_OK;
    return ht_fail(err, HT_ERR_FORMAT, "%s: %s is %lld, expected 1 to %lld", file, what, (long long)value,
                   (long long)most);
}

static ht_status check_sizes(const ht_config *c, const char *file, ht_error *err) {
    ht_status status = check_size("layers", c->n_layers, HT_MAX_LAYERS, file, err);
    if (!status) status = check_size("attention heads", c->n_heads, 1 << 16, file, err);
    if (!status) status = check_size("hidden size", c->hidden, 1 << 24, file, err);
    if (!status) status = check_size("vocabulary size", c->vocab, 1 << 28, file, err);
    return status ? status : check_size("context length", c->context, INT32_MAX, file, err);
}

static ht_status check_layer(const ht_config *c, const ht_layer_config *l, const char *file, ht_error *err) {
    ht_status status = HT_OK;
    const bool is_bare = c->family->one_block && l->recurrent + !l->no_attention > 0;
    if (l->feed_forward != 0 || !(l->has_experts || is_bare))
        status = check_size("feed-forward size", l->feed_forward, 1 << 26, file, err);
    if (status || l->no_attention) return status;
    status = check_size("K/V heads", l->n_kv_heads, 1 << 16, file, err);
    if (!status) status = check_size("head size", l->head_dim, 1 << 16, file, err);
    if (status) return status;
    if (c->n_heads % l->n_kv_heads)
        return ht_fail(err, HT_ERR_FORMAT, "%s: %lld attention heads cannot share %lld K/V heads evenly", file,
                       (long long)c->n_heads, (long long)l->n_kv_heads);
    const ht_rope_spec *rope = l->slides && c->has_local_rope ? &c->local_rope : &c->rope;
    const int64_t rotated = rope->dims ? rope->dims : l->head_dim;
    if ((rope->dims || !l->no_rope) && (rotated < 2 || rotated % 2 || rotated > l->head_dim))
        return ht_fail(err, HT_ERR_FORMAT,
                       "%s: rotary embedding of %lld of the %lld values of a head, expected an even number", file,
                       (long long)rotated, (long long)l->head_dim);
    return HT_OK;
}

/* Whether the family has weights for the layer's feed-forward, dense or of experts. */
static bool has_feed_forward(const ht_config *c, int64_t layer, bool of_experts) {
    for (const ht_tensor_spec *const *table = c->family->layer; *table; table++)
        for (const ht_tensor_spec *p = *table; p->gguf; p++)
            if ((of_experts ? p->expert == HT_EXPERT_DOWN : !p->expert && p->columns == HT_EXTENT_FEED_FORWARD) &&
                (!p->has || p->has(c, layer)))
                return true;
    return false;
}

static ht_status check_feed_forward(const ht_config *c, int64_t layer, const char *file, ht_error *err) {
    const ht_layer_config *l = &c->layer[layer];
    if (l->has_experts && (c->n_experts == 0 || !has_feed_forward(c, layer, true)))
        return ht_fail(err, HT_ERR_FORMAT, "%s: layer %lld has experts, but the %s model has none", file,
                       (long long)layer, c->family->architecture);
    if (c->family->one_block && l->recurrent + !l->no_attention + l->has_experts + (l->feed_forward > 0) != 1)
        return ht_fail(err, HT_ERR_FORMAT,
                       "%s: layer %lld of %s models must be one of attention, recurrence, feed-forward and experts",
                       file, (long long)layer, c->family->architecture);
    if (!l->has_experts && l->feed_forward > 0 && !has_feed_forward(c, layer, false))
        return ht_fail(err, HT_ERR_FORMAT, "%s: layer %lld has no experts, but layers of %s models must have some",
                       file, (long long)layer, c->family->architecture);
    return HT_OK;
}

static ht_status check_latent(const ht_config *c, const char *file, ht_error *err) {
    const ht_latent *l = &c->latent;
    enum { LEAST = 4 }; /* the kernels' columns (cpu/vector/attend.h) */
    if (!l->rank) return HT_OK;
    if (l->rank < LEAST || l->rank > 1 << 14)
        return ht_fail(err, HT_ERR_FORMAT, "%s: the rank of keys and values is %lld, expected %d to %d", file,
                       (long long)l->rank, LEAST, 1 << 14);
    ht_status status = l->q_rank ? check_size("the rank of queries", l->q_rank, 1 << 20, file, err) : HT_OK;
    if (!status) status = check_size("key size", l->key_dim, 1 << 14, file, err);
    if (!status) status = check_size("rotated key size", l->rope_dim, 1 << 14, file, err);
    return status ? status : check_size("value size", l->value_dim, 1 << 14, file, err);
}

static ht_status check_altup(const ht_config *c, const char *file, ht_error *err) {
    const ht_altup *a = &c->altup;
    if (!a->streams) return HT_OK;
    ht_status status = check_size("streams", a->streams, 64, file, err);
    if (!status) status = check_size("the rank of the learned residual layer", a->laurel_rank, 1 << 20, file, err);
    if (status || (a->streams > 1 && a->active >= 0 && a->active < a->streams)) return status;
    return ht_fail(err, HT_ERR_FORMAT, "%s: stream %lld of %lld is active, expected one of 2 or more", file,
                   (long long)a->active, (long long)a->streams);
}

static ht_status check_inputs(const ht_config *c, const char *file, ht_error *err) {
    if (!c->layer_input) return HT_OK;
    ht_status status = check_size("the width of per-layer inputs", c->layer_input, 1 << 20, file, err);
    return status ? status : check_size("`vocab_size_per_layer_input`", c->layer_input_vocab, 1 << 28, file, err);
}

static ht_status check_routing(const ht_config *c, const char *file, ht_error *err) {
    const ht_routing *r = &c->routing;
    if (!isfinite(r->scale) || r->scale < 0)
        return ht_fail(err, HT_ERR_FORMAT, "%s: the factor on router weights is %g, expected a positive number", file,
                       (double)r->scale);
    if (!isfinite(r->jitter) || r->jitter < 0)
        return ht_fail(err, HT_ERR_FORMAT, "%s: `router_jitter_noise` is %g, expected 0 or more", file,
                       (double)r->jitter);
    if (r->scores == HT_ROUTER_SPARSE_MIXER && c->experts_used != 2)
        return ht_fail(err, HT_ERR_UNSUPPORTED, "%s: %lld experts per token; %s models use 2", file,
                       (long long)c->experts_used, c->family->architecture);
    if (r->groups < 2) return HT_OK;
    const int64_t size = c->n_experts / r->groups;
    if (c->n_experts % r->groups || size < (r->best_of_group ? 1 : 2) || r->groups_used < 1 ||
        r->groups_used > r->groups || size * r->groups_used < c->experts_used)
        return ht_fail(err, HT_ERR_FORMAT, "%s: %lld of %lld groups of %lld experts cannot give every token %lld", file,
                       (long long)r->groups_used, (long long)r->groups, (long long)c->n_experts,
                       (long long)c->experts_used);
    return HT_OK;
}

static ht_status check_experts(const ht_config *c, const char *file, ht_error *err) {
    enum { MOST = 1 << 16 };
    if (c->n_experts < 0 || c->n_experts > MOST)
        return ht_fail(err, HT_ERR_FORMAT, "%s: %lld experts, expected at most %d", file, (long long)c->n_experts,
                       MOST);
    if (c->n_experts == 0) return HT_OK;
    if (c->experts_used < 1 || c->experts_used > c->n_experts)
        return ht_fail(err, HT_ERR_FORMAT, "%s: every token is to use %lld of %lld experts", file,
                       (long long)c->experts_used, (long long)c->n_experts);
    if (c->shared_feed_forward < 0 || c->shared_feed_forward > 1 << 26)
        return ht_fail(err, HT_ERR_FORMAT, "%s: the feed-forward size of the shared expert is %lld, expected 0 to %d",
                       file, (long long)c->shared_feed_forward, 1 << 26);
    ht_status status = check_size("the feed-forward size of an expert", c->expert_feed_forward, 1 << 26, file, err);
    if (!status && c->expert_latent)
        status = check_size("the latent size of experts", c->expert_latent, 1 << 24, file, err);
    return status ? status : check_routing(c, file, err);
}

static ht_status check_recurrence(const ht_config *c, const char *file, ht_error *err) {
    const ht_recurrence_spec *r = &c->recurrence;
    if (!r->kind) return HT_OK;
    ht_status status = check_size("the width of the convolution", r->taps, 1 << 10, file, err);
    if (!status && r->kind == HT_RECURRENCE_CONV && r->taps < 2)
        return ht_fail(err, HT_ERR_FORMAT, "%s: convolutions of one position, expected 2 or more", file);
    if (status || r->kind == HT_RECURRENCE_CONV) return status;
    status = check_size("key heads of the recurrence", r->key_heads, 1 << 16, file, err);
    if (!status) status = check_size("heads of the recurrence", r->heads, 1 << 16, file, err);
    if (!status) status = check_size("the key size of the recurrence", r->key_dim, 1 << 12, file, err);
    if (!status) status = check_size("the value size of the recurrence", r->value_dim, 1 << 12, file, err);
    if (!status && r->heads % r->key_heads)
        return ht_fail(err, HT_ERR_FORMAT, "%s: %lld heads of the recurrence cannot share %lld key heads evenly", file,
                       (long long)r->heads, (long long)r->key_heads);
    return status;
}

/* Checks the window, and that layers sharing K and V agree on their shape. */
static ht_status check_sharing(const ht_config *c, const char *file, ht_error *err) {
    bool slides = false;
    for (int64_t i = 0; i < c->n_layers; i++) {
        const ht_layer_config *l = &c->layer[i], *from = &c->layer[l->kv_layer];
        bool shares = l->kv_layer != i, before = i > 0 && c->layer[i - 1].kv_layer != i - 1;
        if (before && !shares)
            return ht_fail(err, HT_ERR_FORMAT, "%s: layer %lld has keys and values of its own after one that shares",
                           file, (long long)i);
        slides |= l->slides;
        if (from->slides != l->slides || from->n_kv_heads != l->n_kv_heads || from->head_dim != l->head_dim)
            return ht_fail(err, HT_ERR_FORMAT,
                           "%s: layer %lld cannot use the keys and values of layer %lld: they differ", file,
                           (long long)i, (long long)l->kv_layer);
    }
    /* Half of a two-sided window is on each side. */
    const int64_t least = !slides ? 0 : c->two_sided ? 2 : 1;
    if (c->window < least || c->window > INT32_MAX)
        return ht_fail(err, HT_ERR_FORMAT, "%s: the sliding window is %lld keys, expected %lld or more", file,
                       (long long)c->window, (long long)least);
    return HT_OK;
}

ht_status ht_config_check(const ht_config *c, const char *file, ht_error *err) {
    ht_status status = check_sizes(c, file, err);
    if (!status) status = check_latent(c, file, err);
    if (!status) status = check_recurrence(c, file, err);
    if (!status) status = check_altup(c, file, err);
    if (!status) status = check_inputs(c, file, err);
    for (int64_t i = 0; !status && i < c->n_layers; i++) {
        status = check_layer(c, &c->layer[i], file, err);
        if (!status) status = check_feed_forward(c, i, file, err);
    }
    if (!status) status = check_experts(c, file, err);
    if (!status) status = check_sharing(c, file, err);
    if (status) return status;
    if (!isfinite(c->norm_eps) || c->norm_eps < 0 || c->norm_eps > 1)
        return ht_fail(err, HT_ERR_FORMAT, "%s: the epsilon of the norms is %g, expected 0 to 1", file,
                       (double)c->norm_eps);
    if (!isfinite(c->attention_scale) || c->attention_scale <= 0)
        return ht_fail(err, HT_ERR_FORMAT, "%s: the attention scale is %g, expected a positive number", file,
                       (double)c->attention_scale);
    const float scales[] = {c->embedding_scale, c->residual_scale, c->logit_scale, c->query_beta + 1};
    for (int i = 0; i < 4; i++)
        if (!isfinite(scales[i]) || scales[i] <= 0)
            return ht_fail(err, HT_ERR_FORMAT, "%s: a factor of the model is %g, expected a positive number", file,
                           (double)scales[i]);
    float multipliers[N_MULTIPLIERS];
    list_multipliers(&c->multipliers, multipliers);
    for (int i = 0; i < N_MULTIPLIERS; i++)
        if (!isfinite(multipliers[i]) || multipliers[i] == 0)
            return ht_fail(err, HT_ERR_FORMAT, "%s: a multiplier is %g, expected another number than 0", file,
                           (double)multipliers[i]);
    if (c->query_beta != 0 && (c->query_period < 1 || c->query_period > INT32_MAX))
        return ht_fail(err, HT_ERR_FORMAT,
                       "%s: the temperature of queries changes every %lld positions, expected 1 to %d", file,
                       (long long)c->query_period, INT32_MAX);
    const float caps[] = {c->attention_softcap, c->final_softcap};
    for (int i = 0; i < 2; i++)
        if (!isfinite(caps[i]) || caps[i] < 0)
            return ht_fail(err, HT_ERR_FORMAT, "%s: the cap of the %s is %g, expected a positive number or none", file,
                           i ? "logits" : "attention scores", (double)caps[i]);
    const int64_t rotated = c->rope.dims ? c->rope.dims : ht_config_head_dim(c, false);
    if (c->rope.kind == HT_ROPE_LONG && c->rope.n_divisors && c->rope.n_divisors != rotated / 2)
        return ht_fail(err, HT_ERR_FORMAT, "%s: longrope has %d divisors for %lld rotated values of a head", file,
                       (int)c->rope.n_divisors, (long long)rotated);
    if (c->local_rope.kind == HT_ROPE_LONG)
        return ht_fail(err, HT_ERR_UNSUPPORTED, "%s: longrope in sliding layers alone is not supported", file);
    const char *problem = ht_rope_problem(&c->rope);
    if (!*problem) problem = ht_rope_problem(&c->local_rope);
    if (*problem) return ht_fail(err, HT_ERR_FORMAT, "%s: %s", file, problem);
    return HT_OK;
}

/* ---- keys and values ---- */

int64_t ht_conv_channels(const ht_config *c) {
    const ht_recurrence_spec *r = &c->recurrence;
    return r->heads ? 2 * r->key_heads * r->key_dim + r->heads * r->value_dim : c->hidden;
}

int64_t ht_ssm_rows(const ht_config *c, int segment) {
    const ht_recurrence_spec *r = &c->recurrence;
    return segment == HT_SSM_DT                         ? r->heads
           : segment == HT_SSM_B || segment == HT_SSM_C ? r->key_heads * r->key_dim
                                                        : r->heads * r->value_dim;
}

int64_t ht_ssm_rows_before(const ht_config *c, int segment) {
    int64_t n = 0;
    for (int i = 0; i < segment; i++) n += ht_ssm_rows(c, i);
    return n;
}

int64_t ht_state_values(const ht_config *c) {
    const ht_recurrence_spec *r = &c->recurrence;
    return (r->taps - 1) * ht_conv_channels(c) + r->heads * r->key_dim * r->value_dim;
}

static bool keeps_keys(const ht_config *c, int64_t layer) {
    return c->layer[layer].kv_layer == layer && !c->layer[layer].no_attention;
}

int64_t ht_unshared_layers(const ht_config *c) {
    int64_t n = 0;
    while (n < c->n_layers && c->layer[n].kv_layer == n) n++;
    return n;
}

/* Cache layers of the model's first n layers. */
static int64_t cache_layers_of(const ht_config *c, int64_t n) {
    int64_t count = 0;
    for (int64_t i = 0; i < n && !c->two_sided; i++) count += keeps_keys(c, i) + c->layer[i].recurrent;
    return count;
}

int64_t ht_cache_layers(const ht_config *c) { return cache_layers_of(c, c->n_layers); }

int64_t ht_cache_layer_of(const ht_config *c, int64_t layer, bool of_state) {
    return cache_layers_of(c, layer) + (of_state && keeps_keys(c, layer));
}

ht_layer_kv ht_layer_kv_of(const ht_config *c, int64_t index, ht_dtype dtype) {
    int64_t layer = 0;
    for (; index >= keeps_keys(c, layer) + c->layer[layer].recurrent; layer++)
        index -= keeps_keys(c, layer) + c->layer[layer].recurrent;
    const ht_layer_config *l = &c->layer[layer];
    if (index || !keeps_keys(c, layer)) return (ht_layer_kv){.shape = {.dtype = HT_F32, .state = ht_state_values(c)}};
    const ht_kv_shape shape = {(int32_t)l->n_kv_heads, (int32_t)l->head_dim, dtype, c->latent.rank > 0, 0};
    return (ht_layer_kv){shape, l->slides ? c->window : 0, l->slides && l->chunked};
}

int64_t ht_kv_ring_pages(int64_t window, int64_t chunk, int64_t context) {
    int64_t span;
    if (window <= 0 || !ht_add_i64(window - 1, chunk, &span)) return 0;
    int64_t pages = ht_ceil_div_i64(span - 1, HT_KV_PAGE) + 1;
    return pages < ht_ceil_div_i64(context, HT_KV_PAGE) ? pages : 0;
}

int64_t ht_kv_pages(int64_t ring, int64_t positions) {
    int64_t pages = ht_ceil_div_i64(positions, HT_KV_PAGE);
    return ring ? ht_min_i64(pages, ring) : pages;
}

int64_t ht_state_pages(int64_t positions) {
    int64_t pages = positions ? HT_STATE_COPIES + 1 : 0;
    for (int64_t unit = HT_KV_PAGE; unit < positions; unit *= 2) pages++;
    return pages;
}

size_t ht_kv_bytes(const ht_layer_kv *kv, int32_t n_cache_layers, ht_dtype dtype, ht_kv_page_bytes_fn *page_bytes,
                   int64_t positions, int64_t chunk, int64_t context) {
    size_t total = 0;
    for (int32_t i = 0; i < n_cache_layers; i++) {
        size_t pages = (size_t)ht_kv_pages(ht_kv_ring_pages(kv[i].window, chunk, context), positions), bytes;
        ht_kv_shape shape = kv[i].shape;
        shape.dtype = dtype;
        if (shape.state) pages = (size_t)ht_state_pages(positions);
        if (!ht_mul_size(page_bytes(&shape), pages, &bytes) || !ht_add_size(total, bytes, &total)) return SIZE_MAX;
    }
    return total;
}

/* ---- families ---- */

static bool is_listed(const char *const *names, const char *name) {
    for (; *names; names++)
        if (!strcmp(name, *names)) return true;
    return false;
}

const ht_family *ht_family_of_architecture(const char *architecture) {
    for (const ht_family *const *f = ht_families; *f; f++)
        if (!strcmp(architecture, (*f)->architecture) || is_listed((*f)->gguf_aliases, architecture) ||
            ht_family_is_encoder(*f, architecture))
            return *f;
    return NULL;
}

bool ht_family_has_architecture(const ht_family *f, const char *architecture) {
    const char *const own[] = {f->architecture,
                               f->gguf_architecture,
                               f->gguf_moe_architecture,
                               f->gguf_attention_architecture[0],
                               f->gguf_attention_architecture[1],
                               f->gguf_encoder_architecture};
    for (int i = 0; i < 6; i++)
        if (own[i] && !strcmp(architecture, own[i])) return true;
    return is_listed(f->gguf_aliases, architecture);
}

const ht_family *ht_family_of_model_type(const char *model_type) {
    for (const ht_family *const *f = ht_families; *f; f++)
        if (is_listed((*f)->model_types, model_type)) return *f;
    return NULL;
}

/* Levenshtein distance of names of fewer than NAME_SHOWN bytes; longer ones are cut. */
static size_t distance(const char *a, const char *b) {
    enum { NAME_SHOWN = 64 };
    size_t row[NAME_SHOWN + 1];
    const size_t n = ht_min_size(strlen(a), NAME_SHOWN), m = ht_min_size(strlen(b), NAME_SHOWN);
    for (size_t j = 0; j <= m; j++) row[j] = j;
    for (size_t i = 1; i <= n; i++) {
        size_t diagonal = row[0];
        row[0] = i;
        for (size_t j = 1; j <= m; j++) {
            const size_t changed = diagonal + (a[i - 1] != b[j - 1]);
            diagonal = row[j];
            row[j] = ht_min_size(changed, ht_min_size(row[j], row[j - 1]) + 1);
        }
    }
    return row[m];
}

ht_status ht_family_unknown(const char *file, const char *name, ht_error *err) {
    const char *nearest = ht_families[0]->architecture;
    size_t least = SIZE_MAX;
    for (const ht_family *const *f = ht_families; *f; f++) {
        const char *const own[] = {(*f)->architecture, NULL};
        const char *const *const lists[] = {own, (*f)->model_types, (*f)->gguf_aliases};
        for (size_t k = 0; k < sizeof lists / sizeof *lists; k++)
            for (const char *const *known = lists[k]; *known; known++)
                if (distance(name, *known) < least) {
                    least = distance(name, *known);
                    nearest = (*f)->architecture;
                }
    }
    if (least > strlen(name) / 2)
        return ht_fail(err, HT_ERR_UNSUPPORTED,
                       "%s: architecture `%.60s` is not supported; `hearth formats` lists those that are", file, name);
    return ht_fail(err, HT_ERR_UNSUPPORTED,
                   "%s: architecture `%.60s` is not supported; the nearest that is: `%s` (`hearth formats` lists all)",
                   file, name, nearest);
}
