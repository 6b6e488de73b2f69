#include "train/trainable.h"

#include "array/differentiate.h"
#include "array/op.h"
#include "array/user_function.h"
#include "base/checked.h"
#include "base/error.h"
#include "base/options.h"
#include "base/plural.h"
#include "checkpoint/kv_size.h"
#include "models/weights.h"
#include "train/contrast.h"

#include <hearth/ops.h>
#include <hearth/random.h>

#include <fnmatch.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NAMES_SIZE = 512 };

/* ---- cross-entropy of a model on a batch, as a differentiable function of an adapter's arrays ---- */

ht_status ht_model_loss_check(const ht_model *m, const ht_train_batch *b, ht_error *err) {
    for (int32_t i = 0; i < b->n_tok; i++) {
        const bool outside = b->id[i] < 0 || b->id[i] >= m->vocab;
        if (outside || (!b->match && b->target[i] >= m->vocab))
            return ht_fail(err, HT_ERR_ARGUMENT, "token id %d of row %d is outside the vocabulary of %d",
                           (int)(outside ? b->id[i] : b->target[i]), (int)i, (int)m->vocab);
    }
    if (b->n_learned < 1)
        return ht_fail(err, HT_ERR_ARGUMENT, "a batch of %d rows has no learned token", (int)b->n_tok);
    return b->match ? ht_contrast_check(m, b, err) : ht_model_need_decoder(m, err);
}

static ht_array *ids(ht_scope *s, const int32_t *values, int64_t n) { return ht_array_from(s, values, HT_I32, &n, 1); }

/* Makes the rows with a learned target the output rows of the pass; `memory` holds 7 n_tok numbers. */
static void fill_rows(ht_scope *s, const ht_train_batch *b, int32_t *memory, ht_plain_pass *pass) {
    int32_t n_out = 0, *own = memory, *first = own + b->n_tok, *out_row = first + b->n_tok;
    int32_t *target = out_row + b->n_tok, *out_first = target + b->n_tok;
    int32_t *last = out_first + b->n_tok, *type = last + b->n_tok;
    memset(type, 0, (size_t)b->n_tok * sizeof *type);
    for (int32_t q = 0; q < b->n_seq; q++)
        for (int32_t i = b->seq_start[q]; i < b->seq_start[q + 1]; i++) {
            own[i] = i;
            first[i] = b->seq_start[q];
            last[i] = b->seq_start[q + 1] - 1;
            if (b->target[i] < 0) continue;
            out_row[n_out] = i;
            target[n_out] = b->target[i];
            out_first[n_out++] = b->seq_start[q];
        }
    pass->id = ids(s, b->id, b->n_tok);
    pass->pos = ids(s, b->pos, b->n_tok);
    pass->own = ids(s, own, b->n_tok);
    pass->first = ids(s, first, b->n_tok);
    pass->last = ids(s, last, b->n_tok);
    pass->type = ids(s, type, b->n_tok);
    pass->out_row = ids(s, out_row, n_out);
    pass->target = ids(s, target, n_out);
    pass->out_first = ids(s, out_first, n_out);
}

/* The losses, or hidden states, of the learned rows of sequences that are all short or all long (ht_model_is_long). */
static ht_array *rows_of(ht_scope *s, const ht_model *m, const ht_train_batch *batch, bool is_long,
                         const ht_adapters *adapters, bool checkpointing, bool hidden) {
    const int64_t n_kv = m->n_cache_layers;
    int32_t *rows = malloc(7 * (size_t)batch->n_tok * sizeof *rows);
    ht_layer_kv *kv = malloc(((size_t)n_kv + 1) * sizeof *kv);
    ht_array **keys = calloc(2 * (size_t)n_kv + 1, sizeof *keys), *out = NULL;
    if (rows && kv && keys) {
        ht_plain_pass pass = {.kv = kv,
                              .keys = keys,
                              .values = keys + n_kv,
                              .shares_keys = ht_unshared_layers(m->config) < m->config->n_layers,
                              .checkpointing = checkpointing};
        fill_rows(s, batch, rows, &pass);
        for (int64_t i = 0; i < n_kv; i++) kv[i] = ht_layer_kv_of(m->config, i, HT_F32);
        ht_ctx c = {.s = s, .pass = &pass, .adapters = adapters, .is_long = is_long, .hidden = hidden};
        out = m->config->family->forward(&c, ht_weights_decoder(m->weights));
    } else
        ht_scope_fail(s, HT_ERR_MEMORY, "out of memory: a batch of %d rows", (int)batch->n_tok);
    free(rows);
    free(kv);
    free(keys);
    return out;
}

static bool is_long_sequence(const ht_model *m, const ht_train_batch *b, int32_t q) {
    return ht_model_is_long(m, b->seq_start[q + 1] - b->seq_start[q]);
}

/* The long sequences of a batch, or the others; `memory` holds its arrays, 3 n_tok + n_seq + 1 numbers. */
static ht_train_batch part_of(const ht_model *m, const ht_train_batch *b, bool is_long, int32_t *memory) {
    int32_t *id = memory, *pos = id + b->n_tok, *target = pos + b->n_tok, *seq_start = target + b->n_tok;
    ht_train_batch part = {.id = id, .pos = pos, .seq_start = seq_start, .target = target};
    seq_start[0] = 0;
    for (int32_t q = 0; q < b->n_seq; q++) {
        if (is_long_sequence(m, b, q) != is_long) continue;
        for (int32_t i = b->seq_start[q]; i < b->seq_start[q + 1]; i++, part.n_tok++) {
            id[part.n_tok] = b->id[i];
            pos[part.n_tok] = b->pos[i];
            target[part.n_tok] = b->target[i];
            part.n_learned += b->target[i] >= 0;
        }
        seq_start[++part.n_seq] = part.n_tok;
    }
    return part;
}

/* The rows of a batch with short and long sequences, from a pass for each kind. `memory` holds 7 n_tok + 2 n_seq + 2
 * numbers. */
static ht_array *rows_of_both(ht_scope *s, const ht_model *m, const ht_train_batch *b, int32_t *memory,
                              const ht_adapters *adapters, bool checkpointing, bool hidden) {
    ht_array *rows[2];
    int32_t *order = memory, *arrays = order + b->n_tok, next[2] = {0, 0};
    int n = 0;
    for (int k = 0; k < 2; k++, arrays += 3 * (size_t)b->n_tok + (size_t)b->n_seq + 1) {
        const ht_train_batch part = part_of(m, b, k == 1, arrays);
        if (part.n_learned) rows[n++] = rows_of(s, m, &part, k == 1, adapters, checkpointing, hidden);
        if (k == 0) next[1] = (int32_t)part.n_learned;
    }
    int64_t n_learned = 0;
    for (int32_t q = 0; q < b->n_seq; q++)
        for (int32_t i = b->seq_start[q]; i < b->seq_start[q + 1]; i++)
            if (b->target[i] >= 0) order[n_learned++] = next[is_long_sequence(m, b, q)]++;
    return ht_take(s, ht_concatenate(s, rows, n, 0), ids(s, order, n_learned), 0);
}

static ht_array *learned_rows(ht_scope *s, const ht_model *m, const ht_train_batch *batch, const ht_adapters *adapters,
                              bool checkpointing, bool hidden) {
    bool has[2] = {false, false};
    for (int32_t q = 0; q < batch->n_seq; q++) has[is_long_sequence(m, batch, q)] = true;
    if (!has[0] || !has[1] || !batch->n_learned) return rows_of(s, m, batch, has[1], adapters, checkpointing, hidden);
    int32_t *memory = malloc((7 * (size_t)batch->n_tok + 2 * (size_t)batch->n_seq + 2) * sizeof *memory);
    if (!memory) return ht_scope_fail(s, HT_ERR_MEMORY, "out of memory: a batch of %d rows", (int)batch->n_tok);
    ht_array *rows = rows_of_both(s, m, batch, memory, adapters, checkpointing, hidden);
    free(memory);
    return rows;
}

ht_array *ht_model_vectors(ht_scope *s, const ht_model *m, const ht_train_batch *batch, const ht_adapters *adapters,
                           bool checkpointing) {
    int32_t *target = malloc((size_t)batch->n_tok * sizeof *target);
    if (!target) return ht_scope_fail(s, HT_ERR_MEMORY, "out of memory: a batch of %d rows", (int)batch->n_tok);
    ht_train_batch pooled = *batch;
    pooled.target = target;
    pooled.n_learned = ht_contrast_rows(m, batch, target);
    ht_array *states = learned_rows(s, m, &pooled, adapters, checkpointing, true);
    free(target);
    return ht_contrast_vectors(s, m, batch, states);
}

ht_array *ht_model_loss_rows(ht_scope *s, const ht_model *m, const ht_train_batch *batch, const ht_adapters *adapters,
                             bool checkpointing) {
    if (!batch->match) return learned_rows(s, m, batch, adapters, checkpointing, false);
    return ht_contrast_losses(s, batch, ht_model_vectors(s, m, batch, adapters, checkpointing));
}

/* The sum, then the gradients, into `out`. */
static bool loss_and_gradients(ht_scope *s, const ht_model *m, const ht_train_batch *batch, const ht_adapters *adapters,
                               bool checkpointing, ht_array **out) {
    const int n = adapters->n;
    ht_array **wrt = ht_array_list(s, 2 * n), **grad = out + 1;
    ht_adapter_pair *pair = malloc(((size_t)n + 1) * sizeof *pair);
    if (wrt && !pair) ht_scope_fail(s, HT_ERR_MEMORY, "out of memory: an adapter of %d pairs", n);
    bool ok = wrt && pair;
    for (int i = 0; ok && i < n; i++) {
        pair[i] = adapters->pair[i];
        wrt[2 * i] = pair[i].a = ht_placeholder(s, pair[i].a);
        wrt[2 * i + 1] = pair[i].b = ht_placeholder(s, pair[i].b);
        ok = pair[i].a && pair[i].b;
    }
    ht_adapters traced = *adapters;
    traced.pair = pair;
    ht_array *rows = ok ? ht_model_loss_rows(s, m, batch, &traced, checkpointing) : NULL;
    out[0] = rows ? ht_sum(s, rows, NULL, 0, false) : NULL;
    ht_array *one = ht_full(s, 1, HT_F32, NULL, 0);
    ok = out[0] && one && ht_backward(s, out, &one, 1, wrt, 2 * n, grad);
    for (int i = 0; ok && i < 2 * n; i++) {
        if (grad[i] == HT_NONE) grad[i] = ht_zeros_like(s, wrt[i]); /* a layer that no output row depends on */
        ok = grad[i] != NULL;
    }
    free(wrt);
    free(pair);
    return ok;
}

bool ht_model_loss_gradients(ht_scope *s, const ht_model *m, const ht_train_batch *batch, const ht_adapters *adapters,
                             bool checkpointing, ht_array **sum, ht_array **grad) {
    const int n = 2 * adapters->n;
    *sum = NULL;
    /* An inner scope frees arrays that only unrequested gradients would read. */
    ht_scope *inner = ht_scope_child(s);
    ht_array **out = inner ? ht_array_list(inner, n + 1) : NULL;
    const bool made = out && loss_and_gradients(inner, m, batch, adapters, checkpointing, out);
    const bool ok = inner && ht_scope_give(s, inner, made, out, out ? n + 1 : 0);
    if (ok) *sum = out[0];
    for (int i = 0; i < n; i++) grad[i] = ok ? out[1 + i] : NULL;
    free(out);
    return ok;
}

/* ---- which projections ---- */

static const char *last_name(const char *slot) {
    const char *dot = strrchr(slot, '.');
    return dot ? dot + 1 : slot;
}

/* Whether a projection matches a target: its slot or the slot's end after a dot, a pattern with *, or all-linear.
 * Routers are adapted only when named: adapting one changes the choice of experts. */
static bool is_target(const ht_projection *p, const char *target) {
    const char *slot = p->slot;
    if (!strcmp(target, "all-linear")) return !p->is_router;
    if (strchr(target, '*')) return fnmatch(target, slot, 0) == 0;
    const size_t length = strlen(slot), n = strlen(target);
    return length >= n && !strcmp(slot + length - n, target) && (length == n || slot[length - n - 1] == '.');
}

/* Chooses the matches in the layers from `first` on; false if no layer has any. */
static bool choose_target(const ht_projection *all, int64_t n, const char *target, int64_t first, bool *chosen) {
    bool any = false;
    for (int64_t i = 0; i < n; i++)
        if (is_target(&all[i], target)) {
            any = true;
            if (all[i].layer >= first) chosen[i] = true;
        }
    return any;
}

/* Matrices that have the outputs of several projections, which their names therefore choose as well; in latent attention,
 * the last of two matrices; or the names of text encoders. */
static const struct {
    const char *name, *joined[6];
} joined_names[] = {{"q_proj", {"qkv_proj", "c_attn", "q_b_proj", "query", "Wqkv"}},
                    {"k_proj", {"qkv_proj", "c_attn", "kv_b_proj", "key", "Wqkv"}},
                    {"v_proj", {"qkv_proj", "c_attn", "kv_b_proj", "value", "Wqkv"}},
                    {"gate_proj", {"gate_up_proj", "input_linear"}},
                    {"up_proj", {"gate_up_proj", "input_linear"}}};

static bool choose_joined(const ht_projection *all, int64_t n, const char *target, int64_t first, bool *chosen) {
    bool any = false;
    for (size_t i = 0; i < sizeof joined_names / sizeof *joined_names; i++)
        for (const char *const *joined = joined_names[i].joined; !strcmp(joined_names[i].name, target) && *joined;
             joined++)
            any |= choose_target(all, n, *joined, first, chosen);
    return any;
}

/* Next target of a comma-separated list, without surrounding blanks; NULL at the end. */
static const char *next_target(const char **text, size_t *n) {
    const char *from = *text + strspn(*text, ", ");
    if (!*from) return NULL;
    *n = strcspn(from, ",");
    *text = from + *n;
    while (*n && from[*n - 1] == ' ') --*n;
    return from;
}

/* The last names of all projections, each once, as "q_proj, k_proj". */
static void list_names(const ht_projection *all, int64_t n, char out[NAMES_SIZE]) {
    size_t used = 0;
    out[0] = '\0';
    for (int64_t i = 0; i < n; i++) {
        const char *name = last_name(all[i].slot);
        bool known = false;
        for (int64_t k = 0; k < i && !known; k++) known = !strcmp(last_name(all[k].slot), name);
        if (known || used + strlen(name) + 3 > NAMES_SIZE) continue;
        used += (size_t)snprintf(out + used, NAMES_SIZE - used, "%s%s", used ? ", " : "", name);
    }
}

static ht_status choose_targets(const ht_model *m, const ht_lora_options *o, bool *chosen, ht_error *err) {
    int64_t n;
    const ht_projection *all = ht_weights_projections(m->weights, &n);
    const int64_t first = o->layers > 0 ? m->config->n_layers - o->layers : 0;
    const char *text = o->targets, *target;
    size_t length;
    char names[NAMES_SIZE];
    list_names(all, n, names);
    while ((target = next_target(&text, &length))) {
        char name[256];
        snprintf(name, sizeof name, "%.*s", (int)ht_min_size(length, sizeof name), target);
        /* Layers may have it in one or the other form. */
        bool any = strlen(name) == length && choose_target(all, n, name, first, chosen);
        any |= strlen(name) == length && choose_joined(all, n, name, first, chosen);
        if (any) continue;
        return ht_fail(err, HT_ERR_ARGUMENT,
                       "no projection of this %s model is named `%.*s`; there are %s, and all-linear for all of them",
                       m->architecture, (int)length, target, names);
    }
    for (int64_t i = 0; i < n; i++)
        if (chosen[i]) return HT_OK;
    return ht_fail(err, HT_ERR_ARGUMENT, "the targets `%s` leave no projection to train; there are %s", o->targets,
                   names);
}

/* ---- first values ---- */

static int by_slot(const void *a, const void *b) {
    return strcmp(((const ht_lora *)a)->slot, ((const ht_lora *)b)->slot);
}

/* Seed of one pair. It depends only on seed and slot, so a pair's values do not depend on the other trained pairs. */
static uint64_t seed_of(uint64_t seed, const char *slot) {
    uint64_t h = seed ^ 0x9e3779b97f4a7c15u;
    for (; *slot; slot++) h = (h ^ (unsigned char)*slot) * 0x100000001b3u;
    return h ^ (h >> 29);
}

static ht_array *first_a(ht_scope *s, const ht_lora *l, const ht_lora_options *o) {
    const int64_t shape[] = {ht_max_i64(1, l->n_experts), l->rank, l->n_in};
    const int from = l->n_experts ? 0 : 1;
    ht_array *key = ht_random_key(s, seed_of(o->seed, l->slot));
    if (o->normal_init) {
        ht_array *deviation = ht_full(s, 1 / (double)l->rank, HT_F32, NULL, 0);
        return ht_random_normal(s, HT_NONE, deviation, HT_F32, shape + from, 3 - from, key);
    }
    const double bound = 1 / sqrt((double)l->n_in);
    ht_array *low = ht_full(s, -bound, HT_F32, NULL, 0), *high = ht_full(s, bound, HT_F32, NULL, 0);
    return ht_random_uniform(s, low, high, HT_F32, shape + from, 3 - from, key);
}

static ht_array *from_values(ht_scope *s, const float *values, int64_t experts, int64_t rows, int64_t columns) {
    const int64_t shape[] = {experts, rows, columns};
    const int from = experts ? 0 : 1;
    return ht_array_from(s, values, HT_F32, shape + from, 3 - from);
}

/* Makes and retains the arrays of one pair. */
static bool make_pair(ht_scope *s, const ht_lora *l, const ht_lora_options *o, ht_adapter_pair *to) {
    const int64_t b_shape[] = {ht_max_i64(1, l->n_experts), l->n_out, l->rank};
    const int from = l->n_experts ? 0 : 1;
    ht_array *a, *b;
    if (o->init) {
        a = from_values(s, l->a, l->n_experts, l->rank, l->n_in);
        b = from_values(s, l->b, l->n_experts, l->n_out, l->rank);
    } else {
        a = first_a(s, l, o);
        b = ht_zeros(s, HT_F32, b_shape + from, 3 - from);
    }
    to->scale = l->scale;
    to->a = ht_array_retain(ht_astype(s, a, o->dtype));
    to->b = ht_array_retain(ht_astype(s, b, o->dtype));
    return to->a && to->b;
}

static ht_status make_pairs(ht_trainable *t, const ht_lora *lora, const ht_lora_options *o, ht_error *err) {
    int64_t n_projections;
    const ht_projection *all = ht_weights_projections(t->m->weights, &n_projections);
    ht_scope *s = ht_scope_new(t->m->stream);
    if (!s) return ht_fail_memory(err, sizeof *s, "an adapter");
    bool ok = true;
    for (int i = 0; ok && i < t->n; i++) {
        for (int64_t p = 0; p < n_projections; p++)
            if (!strcmp(all[p].slot, lora[i].slot)) t->pair[i].slot = all[p].slot;
        ok = make_pair(s, &lora[i], o, &t->pair[i]);
        t->n_parameters += ok ? ht_array_size(t->pair[i].a) + ht_array_size(t->pair[i].b) : 0;
    }
    ht_array **arrays = ok ? calloc(2 * (size_t)t->n + 1, sizeof *arrays) : NULL;
    ht_status status = HT_OK;
    if (arrays) {
        ht_trainable_list(t, arrays);
        status = ht_array_eval(s, arrays, 2 * t->n, err);
    } else
        status = ok ? ht_fail_memory(err, 2 * (size_t)t->n * sizeof *arrays, "an adapter") : ht_scope_status(s, err);
    free(arrays);
    ht_scope_free(s);
    return status;
}

/* ---- options ---- */

static float scale_of(const ht_lora_options *o) {
    if (o->scale != 0) return (float)o->scale;
    return (float)(o->alpha / (o->rslora ? sqrt((double)o->rank) : (double)o->rank));
}

static ht_status check_options(const ht_model *m, const ht_lora_options *o, ht_error *err) {
    if (o->rank < 1 || o->rank > 4096)
        return ht_fail(err, HT_ERR_ARGUMENT, "a rank of %lld, expected 1 to 4096", (long long)o->rank);
    if (!(o->dropout >= 0 && o->dropout < 1))
        return ht_fail(err, HT_ERR_ARGUMENT, "a dropout of %g, expected 0 or more, below 1", o->dropout);
    if (!isfinite(o->alpha) || !isfinite(scale_of(o)))
        return ht_fail(err, HT_ERR_ARGUMENT, "an alpha of %g and a scale of %g, expected finite numbers", o->alpha,
                       o->scale);
    if (!o->init && o->alpha == 0 && o->scale == 0)
        return ht_fail(err, HT_ERR_ARGUMENT, "an alpha of 0: the adapter would change nothing");
    if (o->layers < 0 || o->layers > m->config->n_layers)
        return ht_fail(err, HT_ERR_ARGUMENT, "%lld layer%s, the model has %lld", (long long)o->layers,
                       ht_plural(o->layers), (long long)m->config->n_layers);
    if (o->dtype != HT_F32 && o->dtype != HT_BF16)
        return ht_fail(err, HT_ERR_ARGUMENT, "A and B of type %s, expected f32 or bf16", ht_dtype_name(o->dtype));
    return o->init ? ht_adapter_check(o->init, m, err) : HT_OK;
}

/* Chooses the pairs to train, sorted; their values are from options->init, or NULL. */
static ht_status choose(const ht_model *m, const ht_lora_options *o, ht_lora **out, int *n, ht_error *err) {
    int64_t n_all;
    const ht_projection *all = ht_weights_projections(m->weights, &n_all);
    const int64_t most = o->init ? o->init->n : n_all;
    ht_lora *lora = calloc((size_t)most + 1, sizeof *lora);
    bool *chosen = calloc((size_t)n_all + 1, sizeof *chosen);
    ht_status status = HT_OK;
    if (!lora || !chosen)
        status = ht_fail_memory(err, (size_t)most * sizeof *lora, "an adapter");
    else if (o->init) {
        memcpy(lora, o->init->lora, (size_t)most * sizeof *lora);
        *n = (int)most;
    } else
        status = choose_targets(m, o, chosen, err);
    for (int64_t i = 0; !status && !o->init && i < n_all; i++)
        if (chosen[i])
            lora[(*n)++] = (ht_lora){.slot = (char *)(uintptr_t)all[i].slot,
                                     .n_experts = all[i].n_experts,
                                     .rank = o->rank,
                                     .n_in = all[i].n_in,
                                     .n_out = all[i].n_out,
                                     .scale = scale_of(o)};
    free(chosen);
    if (status) {
        free(lora);
        return status;
    }
    qsort(lora, (size_t)*n, sizeof *lora, by_slot);
    *out = lora;
    return HT_OK;
}

static ht_status name_parameters(ht_trainable *t, const char *base, ht_error *err) {
    if (!base && *t->m->config->name) base = t->m->config->name;
    if (base && !(t->base = strdup(base))) return ht_fail_memory(err, strlen(base), "a name");
    for (int i = 0; i < 2 * t->n; i++) {
        const char *slot = t->pair[i / 2].slot;
        const size_t size = strlen(slot) + sizeof ".lora_A";
        t->name[i] = malloc(size);
        if (!t->name[i]) return ht_fail_memory(err, size, "a name");
        (void)snprintf(t->name[i], size, "%s.lora_%c", slot, i % 2 ? 'B' : 'A');
    }
    return HT_OK;
}

static const ht_lora_options defaults = {
    .size = sizeof defaults, .rank = 8, .alpha = 16, .targets = "q_proj,v_proj", .dtype = HT_F32};

void ht_lora_options_init(ht_lora_options *options, size_t size) {
    ht_options_init(options, size, &defaults, sizeof defaults);
}

ht_status ht_trainable_options(const ht_lora_options *given, ht_lora_options *out, ht_error *err) {
    return ht_options_read(out, given, &defaults, sizeof defaults, "ht_lora_options", err);
}

ht_status ht_trainable_new(ht_model *m, const ht_lora_options *options, ht_trainable **out, ht_error *err) {
    *out = NULL;
    ht_lora_options o;
    ht_lora *lora = NULL;
    int n = 0;
    ht_status status = ht_trainable_options(options, &o, err);
    if (!status) status = check_options(m, &o, err);
    if (!status) status = choose(m, &o, &lora, &n, err);
    if (status) return status;
    ht_trainable *t = calloc(1, sizeof *t);
    if (t) {
        *t = (ht_trainable){.m = ht_model_retain(m), .n = n, .dropout = (float)o.dropout};
        t->pair = calloc((size_t)n + 1, sizeof *t->pair);
        t->name = calloc(2 * (size_t)n + 1, sizeof *t->name);
    }
    if (t && t->pair && t->name)
        status = make_pairs(t, lora, &o, err);
    else
        status = ht_fail_memory(err, (size_t)n * sizeof *t->pair, "an adapter");
    if (!status) status = name_parameters(t, o.base, err);
    free(lora);
    if (status)
        ht_trainable_free(t);
    else
        *out = t;
    return status;
}

void ht_trainable_free(ht_trainable *t) {
    if (!t) return;
    for (int i = 0; t->pair && i < t->n; i++) {
        ht_array_free(t->pair[i].a);
        ht_array_free(t->pair[i].b);
    }
    for (int i = 0; t->exact && i < 2 * t->n; i++) ht_array_free(t->exact[i]);
    for (int i = 0; t->name && i < 2 * t->n; i++) free(t->name[i]);
    free(t->exact);
    free(t->pair);
    free(t->name);
    free(t->base);
    ht_model_free(t->m);
    free(t);
}

/* ---- parameters ---- */

int ht_trainable_count(const ht_trainable *t) { return 2 * t->n; }
int64_t ht_trainable_parameters(const ht_trainable *t) { return t->n_parameters; }
const char *ht_trainable_name(const ht_trainable *t, int i) { return t->name[i]; }

static ht_array **place_of(const ht_trainable *t, int i) {
    return t->exact ? &t->exact[i] : i % 2 ? &t->pair[i / 2].b : &t->pair[i / 2].a;
}

ht_array *ht_trainable_get(const ht_trainable *t, int i) { return *place_of(t, i); }

void ht_trainable_list(const ht_trainable *t, ht_array **out) {
    for (int i = 0; i < 2 * t->n; i++) out[i] = ht_trainable_get(t, i);
}

static void replace(ht_array **held, ht_array *by) {
    ht_array_retain(by);
    ht_array_free(*held);
    *held = by;
}

/* Writes the parameters to `out`, cast to another dtype and evaluated in the scope. */
static ht_status cast_all(const ht_trainable *t, ht_scope *s, ht_array *const *parameters, ht_dtype dtype,
                          ht_array **out, ht_error *err) {
    for (int i = 0; i < 2 * t->n; i++) out[i] = ht_astype(s, parameters[i], dtype);
    return ht_array_eval(s, out, 2 * t->n, err);
}

/* Rounds the parameters to the dtype of the pairs. */
static ht_status round_pairs(ht_trainable *t, ht_array *const *parameters, ht_error *err) {
    ht_scope *s = ht_scope_new(t->m->stream);
    ht_array **rounded = calloc(2 * (size_t)t->n + 1, sizeof *rounded);
    ht_status status = s && rounded ? HT_OK : ht_fail_memory(err, 2 * (size_t)t->n * sizeof *rounded, "an adapter");
    if (!status) status = cast_all(t, s, parameters, t->pair[0].a->dtype, rounded, err);
    for (int i = 0; !status && i < t->n; i++) {
        replace(&t->pair[i].a, rounded[2 * i]);
        replace(&t->pair[i].b, rounded[2 * i + 1]);
    }
    free(rounded);
    ht_scope_free(s);
    return status;
}

ht_status ht_trainable_keep_exact(ht_trainable *t, ht_error *err) {
    if (t->exact || t->pair[0].a->dtype == HT_F32) return HT_OK;
    ht_scope *s = ht_scope_new(t->m->stream);
    ht_array **list = calloc(2 * (size_t)t->n + 1, sizeof *list), **exact = calloc(2 * (size_t)t->n + 1, sizeof *exact);
    ht_status status = s && list && exact ? HT_OK : ht_fail_memory(err, 2 * (size_t)t->n * sizeof *list, "an adapter");
    if (!status) {
        ht_trainable_list(t, list);
        status = cast_all(t, s, list, HT_F32, exact, err);
    }
    if (!status) {
        for (int i = 0; i < 2 * t->n; i++) ht_array_retain(exact[i]);
        t->exact = exact;
    } else
        free(exact);
    free(list);
    ht_scope_free(s);
    return status;
}

ht_status ht_trainable_set(ht_trainable *t, ht_array *const *parameters, ht_error *err) {
    char have[HT_SHAPE_TEXT], want[HT_SHAPE_TEXT];
    for (int i = 0; i < 2 * t->n; i++) {
        const ht_array *old = ht_trainable_get(t, i), *by = parameters[i];
        if (!by || by->dtype != old->dtype || !ht_same_shape(by, old) || !ht_array_is_evaluated(by))
            return ht_fail(err, HT_ERR_ARGUMENT, "parameter `%s` is %s of %s, expected evaluated %s of %s", t->name[i],
                           by ? ht_shape_text(by->shape, by->n_dims, have) : "NULL",
                           by ? ht_dtype_name(by->dtype) : "-", ht_shape_text(old->shape, old->n_dims, want),
                           ht_dtype_name(old->dtype));
    }
    ht_status status = t->exact ? round_pairs(t, parameters, err) : HT_OK;
    for (int i = 0; !status && i < 2 * t->n; i++) replace(place_of(t, i), parameters[i]);
    return status;
}

ht_adapters ht_trainable_adapters(const ht_trainable *t, ht_array *key) {
    return (ht_adapters){.n = t->n, .pair = t->pair, .dropout = t->dropout, .key = key ? key : HT_NONE};
}

ht_status ht_trainable_gradients(const ht_trainable *t, ht_scope *s, const ht_train_batch *batch, ht_array *key,
                                 bool checkpointing, ht_array **loss, ht_array **grads, ht_error *err) {
    *loss = NULL;
    for (int i = 0; i < 2 * t->n; i++) grads[i] = NULL;
    ht_status status = ht_model_loss_check(t->m, batch, err);
    if (status) return status;
    const ht_adapters adapters = ht_trainable_adapters(t, key);
    if (ht_model_loss_gradients(s, t->m, batch, &adapters, checkpointing, loss, grads)) return HT_OK;
    *loss = NULL;
    for (int i = 0; i < 2 * t->n; i++) grads[i] = NULL;
    return ht_scope_status(s, err);
}

static ht_status read_f32(ht_scope *s, ht_array *a, float *to, ht_error *err) {
    return ht_array_read(s, ht_astype(s, a, HT_F32), to, (size_t)ht_array_size(a) * sizeof *to, err);
}

ht_status ht_trainable_adapter(const ht_trainable *t, ht_adapter **out, ht_error *err) {
    *out = NULL;
    ht_lora *shape = calloc((size_t)t->n + 1, sizeof *shape);
    ht_scope *s = ht_scope_new(t->m->stream);
    ht_adapter *made = NULL;
    ht_status status = shape && s ? HT_OK : ht_fail_memory(err, (size_t)t->n * sizeof *shape, "an adapter");
    for (int i = 0; !status && i < t->n; i++) {
        const ht_array *a = t->pair[i].a, *b = t->pair[i].b;
        const int last = ht_array_n_dims(a) - 1;
        shape[i] = (ht_lora){.slot = (char *)(uintptr_t)t->pair[i].slot,
                             .n_experts = last == 2 ? ht_array_dim(a, 0) : 0,
                             .rank = ht_array_dim(a, last - 1),
                             .n_in = ht_array_dim(a, last),
                             .n_out = ht_array_dim(b, last - 1),
                             .scale = t->pair[i].scale};
    }
    if (!status) status = ht_adapter_new(shape, t->n, &made, err);
    for (int i = 0; !status && i < t->n; i++) {
        status = read_f32(s, t->pair[i].a, made->lora[i].a, err);
        if (!status) status = read_f32(s, t->pair[i].b, made->lora[i].b, err);
    }
    if (!status && t->m->config->family->multiplier) {
        made->origin.has_multipliers = true;
        made->origin.multipliers = t->m->config->multipliers;
        made->format = t->m->config->is_gguf     ? HT_ADAPTER_GGUF
                       : t->m->config->is_of_mlx ? HT_ADAPTER_MLX
                                                 : HT_ADAPTER_PEFT;
    }
    if (!status && t->base && !(made->origin.base = strdup(t->base)))
        status = ht_fail_memory(err, strlen(t->base), "a name");
    ht_scope_free(s);
    free(shape);
    if (status)
        ht_adapter_free(made);
    else
        *out = made;
    return status;
}
