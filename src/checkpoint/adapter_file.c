/* Adapter files: joins the pieces that a format lists into adapter pairs, and writes pairs as tensors in the
 * portable form of all formats (hearth/adapter.h). */
#include "checkpoint/adapter_file.h"

#include "base/checked.h"
#include "base/directory_writer.h"
#include "base/error.h"
#include "base/grow.h"
#include "base/text.h"
#include "checkpoint/checkpoint.h"

#include <math.h>
#include <stdarg.h>
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

/* Reads a number without sign or leading zeros, and the '.' after it. */
static bool read_index(const char **at, int64_t *out) {
    const char *p = *at;
    int64_t n = 0;
    while (*p >= '0' && *p <= '9' && p - *at < 6) n = 10 * n + (*p++ - '0');
    if (p == *at || *p != '.' || (**at == '0' && p - *at > 1)) return false;
    *at = p + 1;
    *out = n;
    return true;
}

bool ht_adapter_module(const char *name, int64_t *layer, const char **rest, ht_text_module *text) {
    static const char *const wrappers[] = {"base_model", "model", "transformer", "backbone",
                                           "encoder",    "bert",  "roberta"};
    for (bool any = true; any;) {
        const bool language = strip(&name, "language_model"), text_model = !language && strip(&name, "text_model");
        if (language) *text = HT_TEXT_LANGUAGE_MODEL;
        if (text_model) *text = HT_TEXT_TEXT_MODEL;
        any = language || text_model;
        for (size_t i = 0; i < sizeof wrappers / sizeof *wrappers && !any; i++) any = strip(&name, wrappers[i]);
    }
    /* GPT-2: transformer.h.0.attn.c_attn; BERT: bert.encoder.layer.0.attention.self.query */
    if ((!strip(&name, "layers") && !strip(&name, "h") && !strip(&name, "layer")) || !read_index(&name, layer))
        return false;
    *rest = name;
    return true;
}

bool ht_adapter_slot(char out[HT_ADAPTER_SLOT], int64_t layer, const char *rest) {
    int n = snprintf(out, HT_ADAPTER_SLOT, "model.layers.%lld.%s", (long long)layer, rest);
    return n > 0 && n < HT_ADAPTER_SLOT;
}

bool ht_adapter_half(const char *name, const char *const ends[2], bool *is_b, size_t *n) {
    *is_b = ht_ends_with(name, ends[1]);
    *n = strlen(name) - strlen(ends[0]);
    return (*is_b || ht_ends_with(name, ends[0])) && strlen(name) > strlen(ends[0]);
}

void ht_adapter_lay_out(ht_adapter_piece *p, bool rank_last) {
    p->expert_stride = p->rank * p->features;
    p->rank_stride = rank_last ? 1 : p->features;
    p->feature_stride = rank_last ? p->rank : 1;
}

/* ---- tensors ---- */

size_t ht_adapter_n_tensors(const ht_adapter_reading *r) {
    return r->gguf ? ht_gguf_n_tensors(r->gguf) : ht_safetensors_count(r->tensors);
}

ht_stored_tensor ht_adapter_tensor(const ht_adapter_reading *r, size_t i, char name[HT_ADAPTER_NAME]) {
    ht_stored_tensor out = r->gguf ? ht_stored_of_gguf(ht_gguf_tensor_at(r->gguf, i), r->file, r->path, i)
                                   : ht_stored_of_safetensors(r->tensors, i);
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

bool ht_adapter_alternates(const ht_family *family) {
    for (const ht_tensor_spec *const *table = family ? family->layer : NULL; table && *table; table++)
        for (const ht_tensor_spec *p = *table; p->gguf; p++)
            if (p->expert == HT_EXPERT_GATE && p->alternates) return true;
    return false;
}

ht_status ht_adapter_add_joined(ht_adapter_reading *r, ht_adapter_piece piece, bool alternates, const char *name,
                                int64_t layer, ht_error *err) {
    static const char *const halves[] = {"experts.gate_proj", "experts.up_proj"};
    if (piece.is_b && piece.features % 2)
        return ht_fail(err, HT_ERR_FORMAT, "%s: tensor `%s` has %lld rows, which cannot be as many for gate as for up",
                       r->path, name, (long long)piece.features);
    piece.joined = true;
    const int64_t row = piece.feature_stride;
    if (piece.is_b) piece.features /= 2;
    if (piece.is_b && alternates) piece.feature_stride *= 2;
    ht_status status = HT_OK;
    for (int i = 0; !status && i < 2; i++) {
        (void)ht_adapter_slot(piece.slot, layer, halves[i]);
        status = ht_adapter_add_piece(r, &piece, err);
        if (piece.is_b) piece.at += alternates ? row : piece.features * row;
    }
    return status;
}

ht_status ht_adapter_keep(char **to, const char *text, size_t n, ht_error *err) {
    if (!text) return HT_OK;
    free(*to);
    *to = strndup(text, n);
    return *to ? HT_OK : ht_fail_memory(err, 0, "an adapter");
}

static const char multipliers_key[] = "hearth.multipliers", format_key[] = "hearth.format";

/* Reads Hearth's metadata of a safetensors file. */
static ht_status read_metadata(ht_adapter_reading *r, ht_error *err) {
    const char *fingerprint = ht_safetensors_metadata(r->tensors, "hearth.base_fingerprint");
    const char *hash = ht_safetensors_metadata(r->tensors, "hearth.template_hash");
    const char *multipliers = ht_safetensors_metadata(r->tensors, multipliers_key);
    const char *format = ht_safetensors_metadata(r->tensors, format_key);
    for (int i = HT_ADAPTER_PEFT; format && i <= HT_ADAPTER_GGUF; i++)
        if (!strcmp(format, ht_adapter_format_name((ht_adapter_format)i))) r->origin.format = (ht_adapter_format)i;
    r->origin.has_multipliers = multipliers != NULL;
    if (multipliers && !ht_multipliers_from_text(multipliers, &r->origin.multipliers))
        return ht_fail(err, HT_ERR_FORMAT, "%s: the metadata `%s` is no list of factors on products", r->path,
                       multipliers_key);
    ht_status status = ht_adapter_keep(&r->origin.fingerprint, fingerprint, SIZE_MAX, err);
    return status ? status : ht_adapter_keep(&r->origin.template_hash, hash, SIZE_MAX, err);
}

/* ---- from pieces to pairs ---- */

static int by_place(const void *a, const void *b) {
    const ht_adapter_piece *p = a, *q = b;
    int order = strcmp(p->slot, q->slot);
    if (order) return order;
    if (p->is_b != q->is_b) return p->is_b - q->is_b;
    return (p->expert > q->expert) - (p->expert < q->expert);
}

/* The pieces of one half of a pair: `n` from `piece` on, in order of experts. */
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

HT_PRINTF(4, 5)
static ht_status fail_at(const ht_adapter_reading *r, const ht_adapter_piece *p, ht_error *err, const char *fmt, ...) {
    char name[HT_ADAPTER_NAME], what[160];
    va_list args;
    va_start(args, fmt);
    vsnprintf(what, sizeof what, fmt, args);
    va_end(args);
    (void)ht_adapter_tensor(r, p->tensor, name);
    return ht_fail(err, HT_ERR_FORMAT, "%s: tensor `%s` %s", r->path, name, what);
}

/* Checks that every expert occurs once, all with one shape. */
static ht_status check_half(const ht_adapter_reading *r, half *h, ht_error *err) {
    for (size_t i = 0; i < h->n; i++) {
        const ht_adapter_piece *p = &h->piece[i], *first = h->piece;
        if (i && (!p->n_experts || p->expert < h->n_experts || !first->n_experts))
            return fail_at(r, p, err, "is there twice, under two names");
        if (p->expert > h->n_experts)
            return fail_at(r, p, err, "is of expert %lld, but expert %lld has none", (long long)p->expert,
                           (long long)h->n_experts);
        h->n_experts += p->n_experts;
        if (p->rank == first->rank && p->features == first->features && p->scale == first->scale) continue;
        return fail_at(r, p, err,
                       "has rank %lld, %lld features and scale %g; the first expert's have %lld, %lld and %g",
                       (long long)p->rank, (long long)p->features, p->scale, (long long)first->rank,
                       (long long)first->features, first->scale);
    }
    return HT_OK;
}

static ht_status make_pair(const ht_adapter_reading *r, half *a, half *b, ht_lora *out, ht_error *err) {
    if (!a->n) return fail_at(r, b->piece, err, "is B of a pair whose A is missing");
    if (!b->n) return fail_at(r, a->piece, err, "is A of a pair whose B is missing");
    ht_status status = check_half(r, a, err);
    if (!status) status = check_half(r, b, err);
    if (status) return status;
    if (a->n_experts != b->n_experts || a->piece->rank != b->piece->rank)
        return fail_at(r, b->piece, err, "has rank %lld for %lld experts, its A has rank %lld for %lld",
                       (long long)b->piece->rank, (long long)b->n_experts, (long long)a->piece->rank,
                       (long long)a->n_experts);
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

/* Copies the values of a piece from its tensor to the pair's matrices, or back, multiplied by `factor`. */
static void move_values(const ht_adapter_piece *p, int64_t rank, int64_t features, float *pair, float *tensor,
                        bool back, float factor) {
    for (int64_t e = 0; e < ht_max_i64(1, p->n_experts); e++, pair += rank * features)
        for (int64_t f = 0; f < features; f++) {
            float *at = tensor + p->at + e * p->expert_stride + ht_order_stored(&p->order, f) * p->feature_stride;
            for (int64_t k = 0; k < rank; k++, at += p->rank_stride) {
                float *x = pair + (p->is_b ? f * rank + k : k * features + f);
                *(back ? at : x) = back ? factor * *x : *at;
            }
        }
}

static ht_status fill_piece(const ht_adapter_reading *r, const ht_adapter_piece *p, ht_lora *l, float *from,
                            ht_error *err) {
    char name[HT_ADAPTER_NAME];
    ht_stored_tensor t = ht_adapter_tensor(r, p->tensor, name);
    const int64_t n = ht_elements(t.dims, t.n_dims);
    ht_status status = ht_tensor_read_f32(&t, n, from, err);
    if (status) return status;
    for (int64_t i = 0; i < n; i++)
        if (!isfinite(from[i])) return fail_at(r, p, err, "holds what is no finite number: its training has diverged");
    float *to = (p->is_b ? l->b : l->a) + p->expert * p->rank * p->features;
    move_values(p, p->rank, p->features, to, from, false, 1);
    return HT_OK;
}

/* Drops the ranks of gate or up whose B is 0: a joined tensor has the ranks of both, and the other one's add nothing.
 * Keeps all ranks and returns false if every B is 0. */
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

/* Removes a gate or up pair with an empty B if its partner's is not empty: the adapter changes only the partner.
 * `gone` is scratch for one flag per pair. */
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
        const ht_stored_tensor t = ht_adapter_tensor(r, i, name);
        most = ht_max_size(most, (size_t)ht_elements(t.dims, t.n_dims));
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
    if (!status && r->m && !r->has_parts) status = ht_adapter_check_base(a, r->m, err);
    if (status && a) status = ht_fail_in(err, status, "%s", r->path);
    if (!status) status = fill(r, a, err);
    if (!status && r->m && r->has_parts) status = ht_adapter_merge_parts(r, a, err);
    if (!status && r->m && r->has_parts) status = ht_adapter_check_base(a, r->m, err);
    if (!status) {
        a->origin = r->origin;
        r->origin = (ht_adapter_origin){0};
        a->is_read = true;
        a->format = format;
        a->gguf_order = r->gguf_order;
        a->halved = r->halved;
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
    r->origin.format = format;
    char *config = ht_path_join(path, "adapter_config.json"), *tensors = ht_path_join(path, name);
    ht_status status = config && tensors ? ht_safetensors_open(tensors, &r->tensors, err)
                                         : ht_fail_memory(err, strlen(path) + 32, "a path");
    r->path = tensors;
    r->config_path = config;
    if (!status) status = read_metadata(r, err);
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
    r->origin.format = HT_ADAPTER_GGUF;
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

/* ---- slots ---- */

int64_t ht_adapter_slot_layer(const char *slot, const char **rest) {
    static const char prefix[] = "model.layers.";
    char *end;
    int64_t layer = strtoll(slot + sizeof prefix - 1, &end, 10);
    *rest = end + 1;
    return layer;
}

const ht_lora *ht_adapter_partner(const ht_adapter *a, const char *slot, bool *is_up) {
    char other[HT_ADAPTER_SLOT];
    const char *rest;
    long long layer = ht_adapter_slot_layer(slot, &rest);
    *is_up = !strcmp(rest, "experts.up_proj");
    if (!*is_up && strcmp(rest, "experts.gate_proj") != 0) return NULL;
    snprintf(other, sizeof other, "model.layers.%lld.experts.%s", layer, *is_up ? "gate_proj" : "up_proj");
    return ht_adapter_find(a, other);
}

/* ---- tensors ---- */

/* A tensor to write, with the pieces that fill it; the rest is 0. */
typedef struct ht_adapter_tensor_out {
    char name[HT_ADAPTER_NAME];
    int rank;
    int64_t shape[3];
    int n_pieces;
    ht_adapter_piece piece[2];
    const ht_lora *lora[2]; /* the pair of each piece */
} ht_adapter_tensor_out;

/* The tensor in the place of A, or of B. */
static ht_status put_half(ht_adapter_writing *w, const char *name, bool second, const ht_lora *const pair[2],
                          const ht_adapter_layout *how, ht_error *err) {
    const ht_lora *any = pair[0] ? pair[0] : pair[1];
    const bool is_b = second != how->is_swapped, rank_last = second != how->a_rank_last,
               stacked = any->n_experts && how->expert < 0 && !how->is_fused;
    const int64_t features = is_b ? any->n_out : any->n_in, fused = how->is_fused ? any->n_experts : 1;
    ht_adapter_piece p = {.is_b = is_b,
                          .expert = ht_max_i64(how->expert, 0),
                          .n_experts = how->expert < 0 ? any->n_experts : 1,
                          .rank = w->rank * how->shares,
                          .features = is_b ? features * how->shares : features,
                          .scale = how->scale,
                          .order = is_b ? how->rows : how->columns};
    if (!HT_GROW_ONE(w->tensor, w->n_tensors)) return ht_fail_memory(err, w->n_tensors * sizeof *w->tensor, w->path);
    ht_adapter_tensor_out *t = &w->tensor[w->n_tensors++];
    *t = (ht_adapter_tensor_out){.rank = 2 + stacked, .shape = {p.n_experts}};
    snprintf(t->name, sizeof t->name, "%s%s", name, how->ends[second]);
    t->shape[stacked + rank_last] = p.rank * fused;
    t->shape[stacked + !rank_last] = p.features;
    ht_adapter_lay_out(&p, rank_last);
    if (how->is_fused && rank_last) {
        p.expert_stride = 1;
        p.rank_stride *= fused;
        p.feature_stride *= fused;
    }
    const int64_t row = p.feature_stride;
    if (is_b && how->alternates) p.feature_stride *= 2;
    for (int i = 0; i < 2; i++) {
        if (pair[i]) {
            t->lora[t->n_pieces] = pair[i];
            t->piece[t->n_pieces++] = p;
        }
        p.at = w->rank * p.rank_stride + (is_b ? (how->alternates ? row : features * row) : 0);
    }
    return HT_OK;
}

ht_status ht_adapter_put(ht_adapter_writing *w, const char *name, const ht_lora *first, const ht_lora *second,
                         const ht_adapter_layout *how, ht_error *err) {
    const ht_lora *const pair[] = {first, second};
    const ht_status status = put_half(w, name, false, pair, how, err);
    return status ? status : put_half(w, name, true, pair, how, err);
}

/* False when it does not fit in memory. */
static bool count_of(const ht_adapter_tensor_out *t, size_t *out) {
    *out = 1;
    for (int d = 0; d < t->rank; d++)
        if (!ht_mul_size(*out, (size_t)t->shape[d], out)) return false;
    return *out <= SIZE_MAX / sizeof(float);
}

static void put_values(const ht_adapter_writing *w, const ht_adapter_piece *p, const ht_lora *l, float *to) {
    const int64_t features = p->is_b ? l->n_out : l->n_in;
    const float factor = p->is_b ? (float)((double)l->scale / w->scale * (p->scale != 0 ? p->scale : 1)) : 1;
    move_values(p, l->rank, features, (p->is_b ? l->b : l->a) + p->expert * l->rank * features, to, true, factor);
}

ht_status ht_adapter_values(void *user, int i, const void **bytes, ht_error *err) {
    (void)err; /* ht_adapter_outputs allocated the memory */
    ht_adapter_writing *w = user;
    const ht_adapter_tensor_out *t = &w->tensor[i];
    size_t n = 0;
    (void)count_of(t, &n);
    memset(w->values, 0, n * sizeof *w->values);
    for (int p = 0; p < t->n_pieces; p++) put_values(w, &t->piece[p], t->lora[p], w->values);
    *bytes = w->values;
    return HT_OK;
}

static int by_name(const void *a, const void *b) {
    return strcmp(((const ht_adapter_tensor_out *)a)->name, ((const ht_adapter_tensor_out *)b)->name);
}

ht_status ht_adapter_outputs(ht_adapter_writing *w, ht_tensor_output **out, ht_error *err) {
    size_t most = 0, n;
    qsort(w->tensor, w->n_tensors, sizeof *w->tensor, by_name);
    *out = calloc(w->n_tensors + 1, sizeof **out);
    if (!*out) return ht_fail_memory(err, w->n_tensors * sizeof **out, w->path);
    for (size_t i = 0; i < w->n_tensors; i++) {
        const ht_adapter_tensor_out *t = &w->tensor[i];
        if (!count_of(t, &n)) return ht_fail(err, HT_ERR_LIMIT, "%s: tensor `%s` is too large", w->path, t->name);
        most = ht_max_size(most, n);
        (*out)[i] = (ht_tensor_output){t->name, "F32", t->rank, t->shape, n * sizeof(float)};
    }
    w->values = malloc((most + 1) * sizeof *w->values);
    return w->values ? HT_OK : ht_fail_memory(err, most * sizeof *w->values, w->path);
}

ht_status ht_adapter_write_safetensors(ht_adapter_writing *w, const char *name, ht_error *err) {
    ht_metadata_pair pairs[5] = {{"format", "pt"}};
    int n_pairs = 1;
    char multipliers[HT_MULTIPLIERS_TEXT];
    if (*w->fingerprint) pairs[n_pairs++] = (ht_metadata_pair){"hearth.base_fingerprint", w->fingerprint};
    if (*w->template_hash) pairs[n_pairs++] = (ht_metadata_pair){"hearth.template_hash", w->template_hash};
    if (w->multipliers) {
        ht_multipliers_to_text(w->multipliers, multipliers);
        pairs[n_pairs++] = (ht_metadata_pair){multipliers_key, multipliers};
    } else if (w->a->is_read && !w->m)
        pairs[n_pairs++] = (ht_metadata_pair){format_key, ht_adapter_format_name(w->a->origin.format)};
    ht_tensor_output *outputs = NULL;
    char *path = ht_path_join(w->path, name);
    ht_status status = path ? ht_adapter_outputs(w, &outputs, err) : ht_fail_memory(err, strlen(w->path), "a path");
    if (!status)
        status = ht_safetensors_write(path, outputs, (int)w->n_tensors, pairs, n_pairs, ht_adapter_values, w, err);
    free(path);
    free(outputs);
    return status;
}

ht_status ht_adapter_write_json(const ht_adapter_writing *w, const char *name, ht_json *value, ht_error *err) {
    char *text = value ? ht_json_dump(value, HT_JSON_INDENT(2) | HT_JSON_SORT_KEYS) : NULL;
    const ht_status status =
        text ? ht_checkpoint_write_text(w->path, name, text, err) : ht_fail_memory(err, 0, w->path);
    ht_json_decref(value);
    free(text);
    return status;
}

/* ---- saving ---- */

/* Chooses the file's common rank and scale: the largest scale, so that no B grows. */
static void choose_form(ht_adapter_writing *w) {
    const ht_adapter *a = w->a;
    for (int64_t i = 0; i < a->n; i++) {
        w->rank = ht_max_i64(w->rank, a->lora[i].rank);
        if (fabs((double)a->lora[i].scale) > fabs(w->scale)) w->scale = (double)a->lora[i].scale;
    }
    if (w->scale == 0) w->scale = 1;
    w->text = w->m && w->m->text ? w->m->text : a->origin.text;
    w->family = w->m ? w->m->config->family : a->origin.family;
}

static void choose_origin(ht_adapter_writing *w) {
    const ht_adapter_origin *o = &w->a->origin;
    if (o->has_multipliers)
        w->multipliers = &o->multipliers;
    else if (w->m && w->m->config->family->multiplier)
        w->multipliers = &w->m->config->multipliers;
    w->base = o->base;
    const char *fingerprint = o->fingerprint ? o->fingerprint : w->m ? w->m->fingerprint : "";
    const char *template_hash = o->template_hash ? o->template_hash : w->m ? w->m->template_hash : "";
    snprintf(w->fingerprint, sizeof w->fingerprint, "%.16s", fingerprint);
    snprintf(w->template_hash, sizeof w->template_hash, "%.16s", template_hash);
}

static ht_status check(const ht_adapter *a, const ht_adapter_base *m, ht_adapter_format format, ht_error *err) {
    if (!a->n) return ht_fail(err, HT_ERR_ARGUMENT, "the adapter changes nothing: it has no pairs");
    if (a->gguf_order)
        return ht_fail(err, HT_ERR_ARGUMENT,
                       "the adapter was read from a GGUF file, where the order of rows depends on the model's heads: "
                       "load it for its model");
    const ht_family *family = m ? m->config->family : a->origin.family;
    const bool has_multipliers = a->origin.has_multipliers || (family && family->multiplier);
    if (!m && has_multipliers && format != a->format)
        return ht_fail(err, HT_ERR_ARGUMENT,
                       "the adapter has factors on products that depend on the format: load it for its model");
    if (m && ht_adapter_check_format(format, m->config, err)) return HT_ERR_UNSUPPORTED;
    if (a->halved && !m && format != HT_ADAPTER_PEFT)
        return ht_fail(
            err, HT_ERR_ARGUMENT,
            "the adapter has gate and up of experts in one tensor, whose order of rows depends on the model: "
            "load it for its model");
    if (format == HT_ADAPTER_GGUF && !m)
        return ht_fail(err, HT_ERR_ARGUMENT, "adapters in GGUF name the tensors of their model, which was not given");
    return m ? ht_adapter_check_base(a, m, err) : HT_OK;
}

/* Replaces an existing GGUF file only if it is an adapter, never a model. */
static ht_status check_replaced(const char *path, ht_error *err) {
    char type[16];
    ht_gguf_file_type(path, type);
    if (!ht_path_exists(path) || !strcmp(type, "adapter")) return HT_OK;
    return ht_fail(err, HT_ERR_ARGUMENT, "%s: is not replaced, as it is no adapter; remove it, or take another name",
                   path);
}

/* Rejects values that are not finite, as loading does. */
static ht_status check_values(const ht_adapter *a, ht_error *err) {
    for (int64_t i = 0; i < a->n; i++) {
        const ht_lora *l = &a->lora[i];
        const int64_t each = ht_max_i64(l->n_experts, 1) * l->rank;
        bool finite = true;
        for (int64_t k = 0; finite && k < each * l->n_in; k++) finite = isfinite(l->a[k]);
        for (int64_t k = 0; finite && k < each * l->n_out; k++) finite = isfinite(l->b[k]);
        if (!finite)
            return ht_fail(err, HT_ERR_ARGUMENT, "the adapter of %s holds values that are no finite numbers", l->slot);
    }
    return HT_OK;
}

/* Files of an adapter's directory, in PEFT's format and in mlx-lm's. */
static const char *const known[] = {"adapter_config.json", "adapter_model.safetensors", "adapters.safetensors", NULL};

static ht_status save_directory(ht_adapter_writing *w, const char *path, ht_adapter_format format, ht_error *err) {
    ht_directory_writer *directory;
    ht_status status = ht_directory_writer_open(path, known, &directory, err);
    if (status) return status;
    w->path = ht_directory_writer_path(directory);
    status = format == HT_ADAPTER_PEFT ? ht_adapter_write_peft(w, err) : ht_adapter_write_mlx(w, err);
    if (status == HT_OK) return ht_directory_writer_commit(directory, err);
    ht_directory_writer_discard(directory);
    return status;
}

ht_status ht_adapter_save_check(const char *path, ht_error *err) { return ht_directory_writer_check(path, known, err); }

/* A copy for GGUF, whose weights contain the model's factors on products. */
static ht_status copy_for_gguf(const ht_adapter *a, const ht_config *c, ht_adapter **out, ht_error *err) {
    ht_multipliers none;
    ht_multipliers_clear(&none);
    const ht_status status = ht_adapter_copy(a, out, err);
    return status ? status : ht_adapter_multiply(*out, c, &none, err);
}

ht_status ht_adapter_write(const ht_adapter *a, const ht_adapter_base *m, const char *path, ht_adapter_format format,
                           ht_error *err) {
    if (format != HT_ADAPTER_PEFT && format != HT_ADAPTER_MLX && format != HT_ADAPTER_GGUF)
        return ht_fail(err, HT_ERR_ARGUMENT, "there is no format %d of adapters", (int)format);
    ht_adapter *copy = NULL;
    ht_status status = check(a, m, format, err);
    if (!status) status = check_values(a, err);
    if (!status && format == HT_ADAPTER_GGUF && ht_config_has_multipliers(m->config))
        status = copy_for_gguf(a, m->config, &copy, err);
    if (status) {
        ht_adapter_free(copy);
        return status;
    }
    ht_adapter_writing w = {.a = copy ? copy : a, .m = m, .path = path};
    choose_form(&w);
    choose_origin(&w);
    if (format == HT_ADAPTER_GGUF) status = check_replaced(path, err);
    if (!status)
        status = format == HT_ADAPTER_GGUF ? ht_adapter_write_gguf(&w, err) : save_directory(&w, path, format, err);
    for (size_t i = 0; i < w.n_parts; i++) {
        free(w.part[i]->b);
        free(w.part[i]);
    }
    free(w.part);
    free(w.tensor);
    free(w.values);
    ht_adapter_free(copy);
    return status;
}
