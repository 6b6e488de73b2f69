#include "checkpoint/adapter.h"

#include "base/checked.h"
#include "base/error.h"
#include "checkpoint/adapter_file.h"

#include <stdlib.h>
#include <string.h>

static int by_slot(const void *a, const void *b) {
    return strcmp(((const ht_lora *)a)->slot, ((const ht_lora *)b)->slot);
}

/* Copies a pair's slot and shapes, with values of 0. */
static ht_status make_pair(const ht_lora *from, ht_lora *to, ht_error *err) {
    size_t a, b, n = (size_t)ht_max_i64(1, from->n_experts), rank = (size_t)from->rank;
    if (from->rank < 1 || from->n_in < 1 || from->n_out < 1 || from->n_experts < 0)
        return ht_fail(err, HT_ERR_ARGUMENT, "adapter of `%s`: rank %lld of a [%lld, %lld] projection", from->slot,
                       (long long)from->rank, (long long)from->n_out, (long long)from->n_in);
    if (!ht_mul_size(n, rank, &a) || !ht_mul_size(a, (size_t)from->n_in, &a) || !ht_mul_size(n, rank, &b) ||
        !ht_mul_size(b, (size_t)from->n_out, &b) || a > SIZE_MAX / sizeof(float) || b > SIZE_MAX / sizeof(float))
        return ht_fail(err, HT_ERR_LIMIT, "adapter of `%s`: its values do not fit in memory", from->slot);
    *to = *from;
    to->slot = strdup(from->slot);
    to->a = calloc(a, sizeof *to->a);
    to->b = calloc(b, sizeof *to->b);
    if (to->slot && to->a && to->b) return HT_OK;
    return ht_fail_memory(err, (a + b) * sizeof(float), "an adapter");
}

ht_status ht_adapter_new(const ht_lora *pair, int64_t n, ht_adapter **out, ht_error *err) {
    *out = NULL;
    ht_adapter *a = calloc(1, sizeof *a);
    if (!a) return ht_fail_memory(err, sizeof *a, "an adapter");
    atomic_init(&a->refs, 1);
    pthread_mutex_init(&a->lock, NULL);
    a->lora = calloc((size_t)n + 1, sizeof *a->lora);
    ht_status status = a->lora ? HT_OK : ht_fail_memory(err, (size_t)n * sizeof *a->lora, "an adapter");
    for (int64_t i = 0; !status && i < n; i++) {
        a->n = i + 1;
        status = make_pair(&pair[i], &a->lora[i], err);
    }
    if (status) {
        ht_adapter_free(a);
        return status;
    }
    qsort(a->lora, (size_t)n, sizeof *a->lora, by_slot);
    *out = a;
    return HT_OK;
}

ht_adapter *ht_adapter_retain(ht_adapter *a) {
    atomic_fetch_add_explicit(&a->refs, 1, memory_order_relaxed);
    return a;
}

static ht_digest make_digest(const ht_adapter *a) {
    ht_digest d = {13, 14};
    for (int64_t i = 0; i < a->n; i++) {
        const ht_lora *l = &a->lora[i];
        const size_t n = (size_t)(ht_max_i64(1, l->n_experts) * l->rank) * sizeof(float);
        ht_digest_text(&d, l->slot);
        ht_digest_bytes(&d, &l->scale, sizeof l->scale);
        ht_digest_bytes(&d, l->a, n * (size_t)l->n_in);
        ht_digest_bytes(&d, l->b, n * (size_t)l->n_out);
    }
    return d;
}

ht_digest ht_adapter_digest(ht_adapter *a) {
    pthread_mutex_lock(&a->lock);
    if (!a->has_digest) a->digest = make_digest(a);
    a->has_digest = true;
    const ht_digest d = a->digest;
    pthread_mutex_unlock(&a->lock);
    return d;
}

/* All pairs in the form that steps use, in the memory of one device. */
typedef struct ht_adapter_form {
    struct ht_adapter_form *next;
    ht_memory *memory;
    ht_device *device; /* retained, as the values are in its memory */
    int64_t n;
    size_t *bytes; /* [n] bytes of each pair's values */
    ht_lora_pair pair[];
} ht_adapter_form;

static void free_form(ht_adapter_form *f) {
    for (int64_t i = 0; i < f->n; i++) ht_memory_free(f->memory, (void *)(uintptr_t)f->pair[i].a, f->bytes[i]);
    ht_device_free(f->device);
    free(f->bytes);
    free(f);
}

void ht_adapter_free(ht_adapter *a) {
    if (!a || atomic_fetch_sub_explicit(&a->refs, 1, memory_order_acq_rel) != 1) return;
    for (int64_t i = 0; i < a->n; i++) {
        free(a->lora[i].slot);
        free(a->lora[i].a);
        free(a->lora[i].b);
    }
    free(a->lora);
    free(a->origin.base);
    free(a->origin.fingerprint);
    free(a->origin.template_hash);
    free(a->warning);
    for (ht_adapter_form *f = a->transposed, *next; f; f = next) {
        next = f->next;
        free_form(f);
    }
    pthread_mutex_destroy(&a->lock);
    free(a);
}

const ht_lora *ht_adapter_find(const ht_adapter *a, const char *slot) {
    if (!slot || !a->n) return NULL;
    const ht_lora key = {.slot = (char *)(uintptr_t)slot};
    return bsearch(&key, a->lora, (size_t)a->n, sizeof *a->lora, by_slot);
}

/* ---- the form of steps ---- */

static void transpose(const float *from, int64_t n_matrices, int64_t rows, int64_t columns, float *to) {
    for (int64_t m = 0; m < n_matrices; m++, from += rows * columns, to += rows * columns)
        for (int64_t c = 0; c < columns; c++)
            for (int64_t r = 0; r < rows; r++) to[c * rows + r] = from[r * columns + c];
}

/* A and B in one allocation, each followed by the padding that kernels may read; `of_heads`: also as they are. */
static ht_status transpose_pair(const ht_lora *from, bool of_heads, ht_memory *memory, ht_lora_pair *to, size_t *bytes,
                                ht_error *err) {
    const int64_t n = ht_max_i64(1, from->n_experts);
    const size_t a = (size_t)(n * from->rank * from->n_in), b = (size_t)(n * from->rank * from->n_out);
    size_t floats = 2 * HT_LORA_SPARE;
    if (!ht_add_size(floats, a, &floats) || !ht_add_size(floats, b, &floats) ||
        !ht_mul_size(floats, of_heads ? 2 * sizeof(float) : sizeof(float), bytes))
        return ht_fail(err, HT_ERR_LIMIT, "adapter of `%s`: its values do not fit in memory", from->slot);
    void *there;
    float *values = calloc(1, *bytes);
    if (!values) return ht_fail_memory(err, *bytes, "an adapter");
    transpose(from->a, n, from->rank, from->n_in, values);
    transpose(from->b, n, from->n_out, from->rank, values + a + HT_LORA_SPARE);
    if (of_heads) {
        memcpy(values + floats, from->a, a * sizeof *values);
        memcpy(values + floats + a + HT_LORA_SPARE, from->b, b * sizeof *values);
    }
    ht_status status = ht_memory_alloc(memory, *bytes, "an adapter", &there, err);
    if (!status) {
        *to = (ht_lora_pair){.n_experts = from->n_experts,
                             .rank = from->rank,
                             .n_in = from->n_in,
                             .n_out = from->n_out,
                             .a = there,
                             .b = (float *)there + a + HT_LORA_SPARE};
        if (of_heads) to->a_rows = to->a + floats, to->b_rows = to->b + floats;
        status = ht_memory_write(memory, there, values, *bytes, err);
    }
    free(values);
    return status;
}

static ht_status new_form(const ht_adapter *a, const ht_adapter_base *m, ht_device *d, ht_adapter_form **out,
                          ht_error *err) {
    const size_t n = (size_t)a->n;
    ht_adapter_form *f = calloc(1, sizeof *f + n * sizeof f->pair[0]);
    if (f) f->bytes = calloc(n + 1, sizeof *f->bytes);
    if (!f || !f->bytes) {
        free(f);
        return ht_fail_memory(err, n * sizeof f->pair[0], "an adapter");
    }
    f->memory = d->memory;
    f->device = ht_device_retain(d);
    ht_status status = HT_OK;
    for (int64_t i = 0; !status && i < a->n; i++, f->n++) {
        const ht_projection *p = ht_adapter_base_find(m, a->lora[i].slot);
        status = transpose_pair(&a->lora[i], p && p->of_heads, f->memory, &f->pair[i], &f->bytes[i], err);
    }
    if (status)
        free_form(f);
    else
        *out = f;
    return status;
}

ht_status ht_adapter_transposed(ht_adapter *a, const ht_adapter_base *m, ht_device *d, const ht_lora_pair **out,
                                ht_error *err) {
    pthread_mutex_lock(&a->lock);
    ht_adapter_form **at = &a->transposed;
    while (*at && (*at)->memory != d->memory) at = &(*at)->next;
    const ht_status status = *at ? HT_OK : new_form(a, m, d, at, err);
    *out = status ? NULL : (*at)->pair;
    pthread_mutex_unlock(&a->lock);
    return status;
}

/* ---- fit ---- */

ht_status ht_lora_check(const ht_lora *l, const ht_projection *p, const char *architecture, ht_error *err) {
    if (!p)
        return ht_fail(err, HT_ERR_ARGUMENT,
                       "the adapter is for another model: it changes `%s`, which this %s model does not have", l->slot,
                       architecture);
    if (p->n_in != l->n_in || p->n_out != l->n_out || p->n_experts != l->n_experts)
        return ht_fail(err, HT_ERR_ARGUMENT,
                       "the adapter is for another model: its `%s` is for a projection [%lld, %lld] of %lld "
                       "experts, the model's is [%lld, %lld] of %lld",
                       l->slot, (long long)l->n_out, (long long)l->n_in, (long long)l->n_experts, (long long)p->n_out,
                       (long long)p->n_in, (long long)p->n_experts);
    return HT_OK;
}

const ht_projection *ht_adapter_base_find(const ht_adapter_base *m, const char *slot) {
    for (int64_t i = 0; i < m->n; i++)
        if (strcmp(m->projection[i].slot, slot) == 0) return &m->projection[i];
    return NULL;
}

ht_status ht_adapter_check_base(const ht_adapter *a, const ht_adapter_base *m, ht_error *err) {
    if (a->gguf_order)
        return ht_fail(err, HT_ERR_ARGUMENT, "the adapter was read from a GGUF file without its model; read it with");
    if (a->halved && ht_adapter_alternates(m->config->family))
        return ht_fail(
            err, HT_ERR_ARGUMENT,
            "the adapter was read without its model, in which rows of gate and up alternate: load it for its model");
    ht_multipliers of;
    if (m->config->family->multiplier &&
        !(ht_adapter_multipliers(a, m->config, &of) && ht_multipliers_equal(&of, &m->config->multipliers)))
        return ht_fail(err, HT_ERR_ARGUMENT,
                       "the adapter is for another file of the model, with other factors on products: load it for this "
                       "one");
    ht_status status = HT_OK;
    for (int64_t i = 0; !status && i < a->n; i++)
        status =
            ht_lora_check(&a->lora[i], ht_adapter_base_find(m, a->lora[i].slot), m->config->family->architecture, err);
    return status;
}

/* ---- factors on products ---- */

ht_status ht_adapter_check_format(ht_adapter_format format, const ht_config *c, ht_error *err) {
    const bool is_of_mlx = format == HT_ADAPTER_MLX;
    if (is_of_mlx && c->two_sided)
        return ht_fail(err, HT_ERR_UNSUPPORTED, "mlx-lm has no %s models; expected the format peft or gguf",
                       c->family->architecture);
    if (!c->family->multiplier || format == HT_ADAPTER_GGUF || (!c->is_gguf && c->is_of_mlx == is_of_mlx)) return HT_OK;
    return ht_fail(err, HT_ERR_UNSUPPORTED,
                   "adapters of %s models in the format %s are for a directory for %s, which has other factors on "
                   "products than this model; load such a directory, or take another format",
                   c->family->architecture, ht_adapter_format_name(format), is_of_mlx ? "mlx-lm" : "transformers");
}

bool ht_adapter_multipliers(const ht_adapter *a, const ht_config *c, ht_multipliers *out) {
    *out = a->origin.has_multipliers ? a->origin.multipliers : c->multipliers;
    if (a->origin.has_multipliers || !a->is_read) return true;
    if (a->origin.format == HT_ADAPTER_GGUF) ht_multipliers_clear(out);
    return ht_adapter_check_format(a->origin.format, c, NULL) == HT_OK;
}

ht_status ht_adapter_multiply(ht_adapter *a, const ht_config *c, const ht_multipliers *to, ht_error *err) {
    const ht_family *f = c->family;
    ht_multipliers from;
    if (!f->multiplier) return HT_OK;
    if (!ht_adapter_multipliers(a, c, &from))
        return ht_fail(err, HT_ERR_UNSUPPORTED,
                       "the adapter does not state the factors on products that %s models have; GGUF files and "
                       "directories for mlx-lm have them in their weights, directories for transformers have not: load "
                       "it for the model that it was trained on, and convert it there",
                       f->architecture);
    for (int64_t i = 0; i < a->n; i++) {
        const ht_lora *l = &a->lora[i];
        const char *rest;
        (void)ht_adapter_slot_layer(l->slot, &rest);
        for (const ht_tensor_spec *const *table = f->layer; *table; table++)
            for (const ht_tensor_spec *p = *table; p->gguf; p++) {
                if (p->expert || p->columns == HT_EXTENT_NONE || strcmp(ht_spec_slot(p), rest) != 0) continue;
                for (int64_t row = 0; row < l->n_out; row++) {
                    const float factor = f->multiplier(c, &from, p->offset, row) / f->multiplier(c, to, p->offset, row);
                    for (int64_t k = 0; k < l->rank; k++) l->b[row * l->rank + k] *= factor;
                }
            }
    }
    a->origin.multipliers = *to;
    a->origin.has_multipliers = true;
    return HT_OK;
}

static bool keep_text(char **to, const char *text) {
    *to = text ? strdup(text) : NULL;
    return !text || *to;
}

ht_status ht_adapter_copy(const ht_adapter *a, ht_adapter **out, ht_error *err) {
    ht_status status = ht_adapter_new(a->lora, a->n, out, err);
    if (status) return status;
    ht_adapter *copy = *out;
    for (int64_t i = 0; i < a->n; i++) {
        const ht_lora *l = &a->lora[i];
        const size_t each = (size_t)(ht_max_i64(1, l->n_experts) * l->rank);
        memcpy(copy->lora[i].a, l->a, each * (size_t)l->n_in * sizeof *l->a);
        memcpy(copy->lora[i].b, l->b, each * (size_t)l->n_out * sizeof *l->b);
    }
    copy->is_read = a->is_read;
    copy->format = a->format;
    copy->halved = a->halved;
    copy->gguf_order = a->gguf_order;
    copy->origin = a->origin;
    copy->origin.base = copy->origin.fingerprint = copy->origin.template_hash = NULL;
    if (keep_text(&copy->origin.base, a->origin.base) && keep_text(&copy->origin.fingerprint, a->origin.fingerprint) &&
        keep_text(&copy->origin.template_hash, a->origin.template_hash))
        return HT_OK;
    ht_adapter_free(copy);
    *out = NULL;
    return ht_fail_memory(err, 0, "an adapter");
}

const char *ht_adapter_format_name(ht_adapter_format format) {
    static const char *const names[] = {
        [HT_ADAPTER_PEFT] = "peft", [HT_ADAPTER_MLX] = "mlx", [HT_ADAPTER_GGUF] = "gguf"};
    return names[format];
}

void ht_adapter_describe(const ht_adapter *a, ht_adapter_info *out) {
    *out = (ht_adapter_info){.format = a->format,
                             .n_pairs = a->n,
                             .base = a->origin.base,
                             .fingerprint = a->origin.fingerprint,
                             .template_hash = a->origin.template_hash,
                             .needs_model = a->gguf_order};
    for (int64_t i = 0; i < a->n; i++) {
        const ht_lora *l = &a->lora[i];
        out->n_parameters += ht_max_i64(1, l->n_experts) * l->rank * (l->n_in + l->n_out);
        out->rank = i ? ht_min_i64(out->rank, l->rank) : l->rank;
        out->most_rank = ht_max_i64(out->most_rank, l->rank);
        if (!i || l->scale < out->scale) out->scale = l->scale;
        if (!i || l->scale > out->most_scale) out->most_scale = l->scale;
    }
}

void ht_adapter_pair_at(const ht_adapter *a, int64_t i, ht_adapter_pair_info *out) {
    const ht_lora *l = &a->lora[i];
    *out = (ht_adapter_pair_info){l->slot, l->n_experts, l->rank, l->n_in, l->n_out, l->scale};
}

const char *ht_adapter_warning(const ht_adapter *a) { return a->warning; }
