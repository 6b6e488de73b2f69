/* Adapter reading: from the pieces that a format lists to the pairs of an adapter. */
#include "checkpoint/adapter_file.h"

#include "base/checked.h"
#include "base/error.h"
#include "base/grow.h"
#include "checkpoint/tensor_read.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- names ---- */

static bool strip(const char **name, const char *part) {
    size_t n = strlen(part);
    if (strncmp(*name, part, n) != 0 || (*name)[n] != '.') return false;
    *name += n + 1;
    return true;
}

/* A number without sign or leading zeros, and the '.' behind it. */
static bool read_index(const char **at, int64_t *out) {
    const char *p = *at;
    int64_t n = 0;
    while (*p >= '0' && *p <= '9' && p - *at < 6) n = 10 * n + (*p++ - '0');
    if (p == *at || *p != '.' || (**at == '0' && p - *at > 1)) return false;
    *at = p + 1;
    *out = n;
    return true;
}

bool ht_adapter_module(const char *name, int64_t *layer, const char **rest, bool *wrapped) {
    for (bool any = true; any;) {
        bool language = strip(&name, "language_model");
        *wrapped = *wrapped || language;
        any = language || strip(&name, "base_model") || strip(&name, "model") || strip(&name, "text_model");
    }
    if (!strip(&name, "layers") || !read_index(&name, layer)) return false;
    *rest = name;
    return true;
}

bool ht_adapter_slot(char out[HT_ADAPTER_SLOT], int64_t layer, const char *rest) {
    int n = snprintf(out, HT_ADAPTER_SLOT, "model.layers.%lld.%s", (long long)layer, rest);
    return n > 0 && n < HT_ADAPTER_SLOT;
}

int64_t ht_adapter_stored_row(int64_t row, int64_t head_rows) {
    if (!head_rows) return row;
    int64_t half = head_rows / 2, within = row % head_rows;
    return row - within + within % half * 2 + within / half;
}

/* ---- tensors ---- */

size_t ht_adapter_n_tensors(const ht_adapter_reading *r) {
    return r->gguf ? ht_gguf_n_tensors(r->gguf) : ht_safetensors_count(r->tensors);
}

ht_stored_tensor ht_adapter_tensor(const ht_adapter_reading *r, size_t i, char name[HT_ADAPTER_NAME]) {
    ht_stored_tensor out = {.number = i, .file_name = r->path};
    if (r->gguf) {
        const ht_gguf_tensor *t = ht_gguf_tensor_at(r->gguf, i);
        out.name = t->name.data;
        out.name_len = t->name.len;
        out.file = r->file;
        out.type_name = t->type_name;
        out.type = t->type;
        out.n_dims = t->n_dims;
        out.offset = (size_t)(t->data - r->file->data);
        out.n_bytes = t->n_bytes;
        for (int d = 0; d < t->n_dims; d++) out.dims[d] = t->dims[t->n_dims - 1 - d];
    } else {
        const ht_safetensor *t = ht_safetensors_at(r->tensors, i);
        out.name = t->name;
        out.name_len = strlen(t->name);
        out.file = ht_safetensors_file(r->tensors, t->file);
        out.type_name = t->dtype;
        out.type = t->weight_type;
        out.n_dims = t->rank;
        out.offset = t->offset;
        out.n_bytes = t->n_bytes;
        memcpy(out.dims, t->shape, sizeof out.dims);
    }
    snprintf(name, HT_ADAPTER_NAME, "%.*s", (int)ht_min_size(out.name_len, HT_ADAPTER_NAME), out.name);
    return out;
}

ht_status ht_adapter_need_axes(const ht_adapter_reading *r, const ht_stored_tensor *t, const char *name, int n,
                               ht_error *err) {
    bool some = t->n_dims == n;
    for (int d = 0; d < t->n_dims; d++) some = some && t->dims[d] > 0;
    if (!some)
        return ht_fail(err, HT_ERR_FORMAT, "%s: tensor `%s` has %d axes, or none along one; expected %d", r->path, name,
                       t->n_dims, n);
    bool dense = ht_weight_is_float(t->type);
    if (!dense && !(r->gguf && t->type == HT_W_Q8_0))
        return ht_fail(err, HT_ERR_UNSUPPORTED, "%s: tensor `%s` is of type %s; adapters are F32, F16 or BF16%s",
                       r->path, name, t->type_name, r->gguf ? ", or Q8_0" : "");
    return HT_OK;
}

ht_status ht_adapter_add_piece(ht_adapter_reading *r, const ht_adapter_piece *piece, ht_error *err) {
    if (!HT_GROW_ONE(r->piece, r->n_pieces)) return ht_fail_memory(err, r->n_pieces * sizeof *r->piece, r->path);
    r->piece[r->n_pieces++] = *piece;
    return HT_OK;
}

ht_status ht_adapter_add_joined(ht_adapter_reading *r, ht_adapter_piece piece, int64_t layer, ht_error *err) {
    static const char *const halves[] = {"experts.gate_proj", "experts.up_proj"};
    piece.joined = true;
    if (piece.is_b) piece.features /= 2;
    ht_status status = HT_OK;
    for (int i = 0; !status && i < 2; i++) {
        (void)ht_adapter_slot(piece.slot, layer, halves[i]);
        status = ht_adapter_add_piece(r, &piece, err);
        if (piece.is_b) piece.at += piece.features * piece.feature_stride;
    }
    return status;
}

ht_status ht_adapter_keep(char **to, const char *text, size_t n, ht_error *err) {
    if (!text) return HT_OK;
    free(*to);
    *to = strndup(text, n);
    return *to ? HT_OK : ht_fail_memory(err, n + 1, "an adapter");
}

ht_status ht_adapter_read_metadata(ht_adapter_reading *r, ht_error *err) {
    const char *fingerprint = ht_safetensors_metadata(r->tensors, "hearth.base_fingerprint");
    const char *hash = ht_safetensors_metadata(r->tensors, "hearth.template_hash");
    ht_status status = ht_adapter_keep(&r->origin.fingerprint, fingerprint, fingerprint ? strlen(fingerprint) : 0, err);
    return status ? status : ht_adapter_keep(&r->origin.template_hash, hash, hash ? strlen(hash) : 0, err);
}

/* ---- from pieces to pairs ---- */

static int by_place(const void *a, const void *b) {
    const ht_adapter_piece *p = a, *q = b;
    int order = strcmp(p->slot, q->slot);
    if (order) return order;
    if (p->is_b != q->is_b) return p->is_b - q->is_b;
    return (p->expert > q->expert) - (p->expert < q->expert);
}

/* The pieces of one half of a pair: `n` from `piece` on, which are the experts in their order. */
typedef struct half {
    const ht_adapter_piece *piece;
    size_t n;
    int64_t n_experts;
} half;

static half take_half(const ht_adapter_reading *r, size_t at, bool is_b) {
    half h = {.piece = r->piece + at};
    while (at + h.n < r->n_pieces && !strcmp(h.piece[h.n].slot, h.piece->slot) && h.piece[h.n].is_b == is_b) h.n++;
    return h;
}

static ht_status fail_at(const ht_adapter_reading *r, const ht_adapter_piece *p, ht_error *err, const char *what) {
    char name[HT_ADAPTER_NAME];
    (void)ht_adapter_tensor(r, p->tensor, name);
    return ht_fail(err, HT_ERR_FORMAT, "%s: tensor `%s` %s", r->path, name, what);
}

/* All experts once, of one shape. */
static ht_status check_half(const ht_adapter_reading *r, half *h, ht_error *err) {
    char what[160];
    for (size_t i = 0; i < h->n; i++) {
        const ht_adapter_piece *p = &h->piece[i], *first = h->piece;
        if (i && (!p->n_experts || p->expert < h->n_experts || !first->n_experts))
            return fail_at(r, p, err, "is there twice, under two names");
        if (p->expert > h->n_experts) {
            snprintf(what, sizeof what, "is of expert %lld, but expert %lld has none", (long long)p->expert,
                     (long long)h->n_experts);
            return fail_at(r, p, err, what);
        }
        h->n_experts += p->n_experts;
        if (p->rank == first->rank && p->features == first->features && p->scale == first->scale) continue;
        snprintf(what, sizeof what,
                 "has rank %lld, %lld features and scale %g; the first expert's have %lld, %lld and %g",
                 (long long)p->rank, (long long)p->features, p->scale, (long long)first->rank,
                 (long long)first->features, first->scale);
        return fail_at(r, p, err, what);
    }
    return HT_OK;
}

static ht_status make_pair(const ht_adapter_reading *r, half *a, half *b, ht_lora *out, ht_error *err) {
    if (!a->n) return fail_at(r, b->piece, err, "is B of a pair whose A is missing");
    if (!b->n) return fail_at(r, a->piece, err, "is A of a pair whose B is missing");
    ht_status status = check_half(r, a, err);
    if (!status) status = check_half(r, b, err);
    if (status) return status;
    char what[160];
    if (a->n_experts != b->n_experts || a->piece->rank != b->piece->rank) {
        snprintf(what, sizeof what, "has rank %lld for %lld experts, its A has rank %lld for %lld",
                 (long long)b->piece->rank, (long long)b->n_experts, (long long)a->piece->rank,
                 (long long)a->n_experts);
        return fail_at(r, b->piece, err, what);
    }
    *out = (ht_lora){.slot = (char *)(uintptr_t)a->piece->slot,
                     .n_experts = a->n_experts,
                     .rank = a->piece->rank,
                     .n_in = a->piece->features,
                     .n_out = b->piece->features,
                     .scale = (float)a->piece->scale};
    if (isfinite(out->scale)) return HT_OK;
    return fail_at(r, a->piece, err, "has a scale that is no finite number");
}

/* ---- values ---- */

static ht_status fill_piece(const ht_adapter_reading *r, const ht_adapter_piece *p, ht_lora *l, float *from,
                            ht_error *err) {
    char name[HT_ADAPTER_NAME];
    ht_stored_tensor t = ht_adapter_tensor(r, p->tensor, name);
    int64_t n = 1;
    for (int d = 0; d < t.n_dims; d++) n *= t.dims[d];
    ht_status status = ht_tensor_read_f32(&t, n, from, err);
    if (status) return status;
    for (int64_t i = 0; i < n; i++)
        if (!isfinite(from[i])) return fail_at(r, p, err, "holds what is no finite number: its training has diverged");
    int64_t size = p->rank * p->features;
    float *to = (p->is_b ? l->b : l->a) + p->expert * size;
    for (int64_t e = 0; e < ht_max_i64(1, p->n_experts); e++, to += size)
        for (int64_t k = 0; k < p->rank; k++)
            for (int64_t f = 0; f < p->features; f++) {
                int64_t row = p->is_b ? ht_adapter_stored_row(f, p->head_rows) : f;
                float x = from[p->at + e * p->expert_stride + k * p->rank_stride + row * p->feature_stride];
                to[p->is_b ? f * p->rank + k : k * p->features + f] = x;
            }
    return HT_OK;
}

/* Keeps the ranks with a B that is not 0 of gate or up, which are stored together so that each has ranks of its own: the
 * others add nothing. All of them stay when none has one, and the result is false. */
static bool drop_ranks(ht_lora *l) {
    int64_t kept = 0, n = ht_max_i64(1, l->n_experts);
    for (int64_t k = 0; k < l->rank; k++) {
        bool any = false;
        for (int64_t i = 0; !any && i < n * l->n_out; i++) any = l->b[i * l->rank + k] != 0;
        if (!any) continue;
        for (int64_t e = 0; e < n; e++)
            memmove(l->a + (e * l->rank + kept) * l->n_in, l->a + (e * l->rank + k) * l->n_in,
                    (size_t)l->n_in * sizeof *l->a);
        for (int64_t i = 0; i < n * l->n_out; i++) l->b[i * l->rank + kept] = l->b[i * l->rank + k];
        kept++;
    }
    if (!kept || kept == l->rank) return kept > 0;
    for (int64_t e = 1; e < n; e++)
        memmove(l->a + e * kept * l->n_in, l->a + e * l->rank * l->n_in, (size_t)(kept * l->n_in) * sizeof *l->a);
    for (int64_t i = 0; i < n * l->n_out; i++)
        for (int64_t k = 0; k < kept; k++) l->b[i * kept + k] = l->b[i * l->rank + k];
    l->rank = kept;
    return true;
}

/* Removes pairs of gate or up without a B where the other one has: the adapter changes that one alone. `gone` is room for a
 * mark for each pair. */
static void drop_pairs(ht_adapter *a, const bool *empty, bool *gone) {
    int64_t kept = 0;
    for (int64_t i = 0; i < a->n; i++) {
        bool is_up;
        const ht_lora *other = empty[i] ? ht_adapter_partner(a, a->lora[i].slot, &is_up) : NULL;
        gone[i] = other && !empty[other - a->lora];
    }
    for (int64_t i = 0; i < a->n; i++) {
        if (gone[i]) {
            free(a->lora[i].slot);
            free(a->lora[i].a);
            free(a->lora[i].b);
        } else
            a->lora[kept++] = a->lora[i];
    }
    a->n = kept;
}

static ht_status fill(const ht_adapter_reading *r, ht_adapter *a, ht_error *err) {
    size_t most = 0;
    char name[HT_ADAPTER_NAME];
    for (size_t i = 0; i < ht_adapter_n_tensors(r); i++) {
        ht_stored_tensor t = ht_adapter_tensor(r, i, name);
        size_t n = 1;
        for (int d = 0; d < t.n_dims; d++) n *= (size_t)t.dims[d];
        most = ht_max_size(most, n);
    }
    float *from = calloc(most, sizeof *from);
    bool *empty = calloc((size_t)a->n, 2 * sizeof *empty);
    ht_status status = from && empty ? HT_OK : ht_fail_memory(err, most * sizeof *from, r->path);
    int64_t l = 0;
    for (size_t i = 0; !status && i < r->n_pieces; i++) {
        const ht_adapter_piece *p = &r->piece[i];
        while (strcmp(a->lora[l].slot, p->slot) != 0) l++;
        status = fill_piece(r, p, &a->lora[l], from, err);
        bool last = i + 1 == r->n_pieces || strcmp(p[1].slot, p->slot) != 0;
        if (!status && last && p->joined) empty[l] = !drop_ranks(&a->lora[l]);
    }
    if (!status) drop_pairs(a, empty, empty + a->n);
    free(from);
    free(empty);
    return status;
}

static ht_status join(ht_adapter_reading *r, ht_adapter **out, ht_error *err) {
    if (!r->n_pieces) return ht_fail(err, HT_ERR_FORMAT, "%s: holds no tensor of an adapter", r->path);
    qsort(r->piece, r->n_pieces, sizeof *r->piece, by_place);
    ht_lora *pair = calloc(r->n_pieces, sizeof *pair);
    if (!pair) return ht_fail_memory(err, r->n_pieces * sizeof *pair, r->path);
    int64_t n = 0;
    ht_status status = HT_OK;
    for (size_t at = 0; !status && at < r->n_pieces; n++) {
        half a = take_half(r, at, false), b = take_half(r, at + a.n, true);
        if (a.n && b.n && strcmp(a.piece->slot, b.piece->slot) != 0) b.n = 0;
        at += a.n + b.n;
        status = make_pair(r, &a, &b, &pair[n], err);
    }
    if (!status) status = ht_adapter_new(pair, n, out, err);
    free(pair);
    return status;
}

/* ---- opening ---- */

static ht_status read_all(ht_adapter_reading *r, ht_adapter_format format, ht_adapter **out, ht_error *err) {
    ht_adapter *a = NULL;
    ht_status status = format == HT_ADAPTER_PEFT  ? ht_adapter_list_peft(r, err)
                       : format == HT_ADAPTER_MLX ? ht_adapter_list_mlx(r, err)
                                                  : ht_adapter_list_gguf(r, err);
    if (!status) status = join(r, &a, err);
    if (!status && r->m) status = ht_adapter_check_base(a, r->m, err);
    if (status && a) status = ht_fail_in(err, status, "%s", r->path);
    if (!status) status = fill(r, a, err);
    if (!status) {
        a->origin = r->origin;
        r->origin = (ht_adapter_origin){0};
        a->format = format;
        a->interleaved = r->interleaved;
    }
    if (status)
        ht_adapter_free(a);
    else
        *out = a;
    return status;
}

static ht_status open_directory(ht_adapter_reading *r, const char *path, const char *name, ht_adapter **out,
                                ht_error *err) {
    ht_adapter_format format = strcmp(name, "adapters.safetensors") ? HT_ADAPTER_PEFT : HT_ADAPTER_MLX;
    char *config = ht_path_join(path, "adapter_config.json"), *tensors = ht_path_join(path, name);
    ht_status status = config && tensors ? ht_safetensors_open(tensors, &r->tensors, err)
                                         : ht_fail_memory(err, strlen(path) + 32, "a path");
    r->path = tensors;
    r->config_path = config;
    if (!status) status = ht_adapter_read_metadata(r, err);
    if (!status) status = read_all(r, format, out, err);
    free(config);
    free(tensors);
    return status;
}

static ht_status open_gguf(ht_adapter_reading *r, const char *path, ht_adapter **out, ht_error *err) {
    static const char magic[] = "GGUF";
    char start[4] = "";
    r->path = path;
    ht_status status = ht_file_open(path, &r->file, err);
    if (!status && r->file->size >= sizeof start) status = ht_file_read_at(r->file, 0, start, sizeof start, err);
    if (!status && memcmp(start, magic, sizeof start) != 0)
        status =
            ht_fail(err, HT_ERR_FORMAT,
                    "%s: is no adapter: name a directory of PEFT or mlx-lm with its adapter_config.json, or a GGUF "
                    "file",
                    path);
    if (!status) status = ht_gguf_read(r->file, path, &r->gguf, err);
    return status ? status : read_all(r, HT_ADAPTER_GGUF, out, err);
}

static ht_status open_any(ht_adapter_reading *r, const char *path, ht_adapter **out, ht_error *err) {
    if (!ht_path_is_directory(path)) return open_gguf(r, path, out, err);
    static const char *const names[] = {"adapter_model.safetensors", "adapters.safetensors", "adapter_model.bin"};
    bool there[3];
    for (int i = 0; i < 3; i++) {
        char *file = ht_path_join(path, names[i]);
        if (!file) return ht_fail_memory(err, strlen(path) + 32, "a path");
        there[i] = ht_path_exists(file);
        free(file);
    }
    if (there[0] && there[1])
        return ht_fail(err, HT_ERR_ARGUMENT, "%s: holds two adapters, %s of PEFT and %s of mlx-lm; part them", path,
                       names[0], names[1]);
    if (!there[0] && !there[1] && there[2])
        return ht_fail(err, HT_ERR_UNSUPPORTED, "%s: %s is a pickle, which can run any code; save it as safetensors",
                       path, names[2]);
    if (!there[0] && !there[1])
        return ht_fail(err, HT_ERR_FORMAT, "%s: the directory holds no adapter: neither %s of PEFT nor %s of mlx-lm",
                       path, names[0], names[1]);
    return open_directory(r, path, names[there[1]], out, err);
}

ht_status ht_adapter_read(const char *path, const ht_adapter_base *m, ht_adapter **out, ht_error *err) {
    *out = NULL;
    ht_adapter_reading r = {.m = m};
    ht_status status = open_any(&r, path, out, err);
    ht_safetensors_close(r.tensors);
    ht_gguf_free(r.gguf);
    ht_file_close(r.file);
    free(r.piece);
    free(r.origin.base);
    free(r.origin.fingerprint);
    free(r.origin.template_hash);
    return status;
}
