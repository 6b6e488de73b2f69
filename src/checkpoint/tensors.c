#include "checkpoint/tensors.h"

#include "base/checked.h"
#include "base/error.h"
#include "checkpoint/scheme.h"
#include "formats/blocks.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *ht_base_name(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash && slash[1] ? slash + 1 : path;
}

/* ---- names of safetensors ---- */

const char *ht_checkpoint_bare_name(const char *name) {
    static const char *const wrappers[] = {"model.",    "language_model.", "text_model.", "transformer.",
                                           "backbone.", "bert.",           "roberta.",    "nomic_bert."};
    for (size_t i = 0; i < sizeof wrappers / sizeof *wrappers;) {
        const size_t n = strlen(wrappers[i]);
        if (strncmp(name, wrappers[i], n) != 0) {
            i++;
            continue;
        }
        name += n;
        i = 0;
    }
    return name;
}

bool ht_sibling_name(const char *name, size_t n, const char *end, const char *to, char out[HT_SIBLING_NAME]) {
    const size_t m = strlen(end);
    if (n < m || memcmp(name + n - m, end, m) != 0) return false;
    return snprintf(out, HT_SIBLING_NAME, "%.*s%s", (int)(n - m), name, to) < HT_SIBLING_NAME;
}

bool ht_contains_any(const char *name, const char *const *words) {
    while (*words && !strstr(name, *words)) words++;
    return *words;
}

bool ht_checkpoint_is_tower(const char *name) {
    static const char *const words[] = {"vision",        "visual",    "audio", "multi_modal_projector",
                                        "image_newline", "connector", NULL};
    return ht_contains_any(name, words);
}

bool ht_checkpoint_is_text(const ht_checkpoint_files *c, const char *name) {
    const char *bare = ht_checkpoint_bare_name(name);
    return !ht_checkpoint_is_tower(name) && (bare != name || !*c->prefix || !strncmp(name, "lm_head.", 8));
}

const ht_safetensor *ht_checkpoint_safetensor(const ht_checkpoint_files *c, const char *name) {
    const ht_safetensor *t = ht_safetensors_find(c->tensors, name);
    if (t) return t;
    const char *bare = ht_checkpoint_bare_name(name);
    size_t at = ht_name_index_find(&c->bare_names, bare, strlen(bare));
    return at == SIZE_MAX ? NULL : ht_safetensors_at(c->tensors, at);
}

static ht_status index_names(ht_checkpoint_files *c, size_t n, ht_error *err) {
    if (!ht_name_index_init(&c->bare_names, n))
        return ht_fail_memory(err, n * sizeof(ht_indexed_name), "the names of tensors");
    for (size_t i = 0; i < n; i++) {
        const char *name = ht_safetensors_at(c->tensors, i)->name, *bare = ht_checkpoint_bare_name(name);
        size_t first;
        if (ht_checkpoint_is_tower(name)) continue;
        switch (ht_name_index_add(&c->bare_names, bare, strlen(bare), i, &first)) {
        case HT_NAME_ADDED: break;
        case HT_NAME_TWICE:
            return ht_fail(
                err, HT_ERR_FORMAT,
                "%s: tensors `%.100s` and `%.100s` are both `%.100s` of the text model, expected one of them",
                ht_base_name(c->path), ht_safetensors_at(c->tensors, first)->name, name, bare);
        case HT_NAME_CROWDED:
            return ht_fail(err, HT_ERR_FORMAT, "%s: tensor names were made to collide; the file is not honest",
                           ht_base_name(c->path));
        }
    }
    return HT_OK;
}

/* ---- tensors ---- */

ht_stored_tensor ht_stored_of_gguf(const ht_gguf_tensor *t, const ht_file *file, const char *file_name, size_t number) {
    ht_stored_tensor out = {.name = t->name.data,
                            .name_len = t->name.len,
                            .number = number,
                            .file = file,
                            .file_name = file_name,
                            .type_name = t->type_name,
                            .type = t->type,
                            .n_dims = t->n_dims,
                            .offset = (size_t)(t->data - file->data),
                            .n_bytes = t->n_bytes};
    for (int i = 0; i < t->n_dims; i++) out.dims[i] = t->dims[t->n_dims - 1 - i];
    return out;
}

ht_stored_tensor ht_stored_of_safetensors(const ht_safetensors *set, size_t number) {
    const ht_safetensor *t = ht_safetensors_at(set, number);
    const ht_file *file = ht_safetensors_file(set, t->file);
    ht_stored_tensor out = {.name = t->name,
                            .name_len = strlen(t->name),
                            .number = number,
                            .file = file,
                            .file_name = ht_base_name(file->path),
                            .type_name = t->dtype,
                            .type = t->weight_type,
                            .n_dims = t->rank,
                            .offset = t->offset,
                            .n_bytes = t->n_bytes};
    memcpy(out.dims, t->shape, sizeof out.dims);
    return out;
}

const char *ht_checkpoint_file_of(const ht_checkpoint_files *c, const ht_safetensor *t) {
    return ht_base_name(ht_safetensors_file(c->tensors, t->file)->path);
}

const ht_safetensor *ht_checkpoint_elements(const ht_checkpoint_files *c, const char *name) {
    const ht_safetensor *t = ht_checkpoint_safetensor(c, name);
    return t || !c->scheme->elements ? t : c->scheme->elements(c, name);
}

ht_status ht_checkpoint_list_tensors(ht_checkpoint_files *c, ht_error *err) {
    const size_t n = ht_checkpoint_n_tensors(c);
    c->stored = calloc(n + 1, sizeof *c->stored);
    if (!c->stored) return ht_fail_memory(err, n * sizeof *c->stored, "a list of tensors");
    for (size_t i = 0; i < n; i++) {
        const ht_gguf_part *part;
        const ht_gguf_tensor *t = c->gguf ? ht_gguf_set_tensor_at(c->parts, i, &part) : NULL;
        c->stored[i] = t ? ht_stored_of_gguf(t, part->file, part->name, i) : ht_stored_of_safetensors(c->tensors, i);
    }
    return c->gguf ? HT_OK : index_names(c, n, err);
}

ht_stored_tensor *ht_checkpoint_stored(ht_checkpoint_files *c, const ht_safetensor *t) {
    return &c->stored[t - ht_safetensors_at(c->tensors, 0)];
}

bool ht_checkpoint_find(const ht_checkpoint_files *c, const char *name, ht_stored_tensor *out) {
    size_t number = SIZE_MAX;
    if (c->gguf) {
        const ht_gguf_part *part;
        const ht_gguf_tensor *t = ht_gguf_set_find(c->parts, name, &part);
        if (t) number = ht_gguf_set_number(c->parts, t, part);
    } else {
        const ht_safetensor *t = ht_checkpoint_elements(c, name);
        if (t) number = (size_t)(t - ht_safetensors_at(c->tensors, 0));
    }
    if (number != SIZE_MAX) *out = c->stored[number];
    return number != SIZE_MAX;
}

size_t ht_checkpoint_n_tensors(const ht_checkpoint_files *c) {
    return c->gguf ? ht_gguf_set_n_tensors(c->parts) : ht_safetensors_count(c->tensors);
}

void ht_checkpoint_tensor_at(const ht_checkpoint_files *c, size_t i, ht_stored_tensor *out) { *out = c->stored[i]; }

const char *ht_checkpoint_shape_source(const ht_checkpoint_files *c) {
    return c->gguf ? "its metadata" : "config.json";
}

void ht_dims_text(const int64_t *dims, int n, char out[HT_DIMS_TEXT]) {
    *out = '\0';
    for (int i = 0, at = 0; i < n && at < 100; i++)
        at += snprintf(out + at, HT_DIMS_TEXT - (size_t)at, i ? ", %lld" : "%lld", (long long)dims[i]);
}

ht_status ht_checkpoint_need(const ht_checkpoint_files *c, const char *name, const int64_t *dims, int n_dims,
                             ht_stored_tensor *t, ht_error *err) {
    if (!ht_checkpoint_find(c, name, t))
        return ht_fail(err, HT_ERR_FORMAT, "%s: tensor `%s` is missing, which %s implies", ht_base_name(c->path), name,
                       ht_checkpoint_shape_source(c));
    if (t->n_dims != n_dims || memcmp(t->dims, dims, (size_t)n_dims * sizeof *dims)) {
        char found[HT_DIMS_TEXT], expected[HT_DIMS_TEXT];
        ht_dims_text(t->dims, t->n_dims, found);
        ht_dims_text(dims, n_dims, expected);
        return ht_fail(err, HT_ERR_FORMAT, "%s: tensor `%s` is [%s], %s implies [%s]", t->file_name, name, found,
                       ht_checkpoint_shape_source(c), expected);
    }
    if (t->type < 0)
        return ht_fail(err, HT_ERR_UNSUPPORTED, "%s: tensor `%s` is of type %s, expected a float or quantised type",
                       t->file_name, name, t->type_name);
    return HT_OK;
}

/* ---- values ---- */

int64_t ht_tensor_unit(const ht_stored_tensor *t) {
    return t->n_parts ? t->unit : ht_weight_type_info_of((ht_weight_type)t->type)->block;
}

size_t ht_tensor_size(const ht_stored_tensor *t, int64_t n) {
    const ht_weight_type_info *info = ht_weight_type_info_of((ht_weight_type)t->type);
    return (size_t)(n / info->block) * info->block_bytes;
}

size_t ht_tensor_read_scratch(const ht_stored_tensor *t, int64_t n) {
    size_t bytes = 0;
    for (int i = 0; i < t->n_parts; i++) bytes += (size_t)(n / t->unit) * t->part[i].unit_bytes;
    return bytes;
}

/* ---- joining: components of one unit to blocks ---- */

/* 4-bit q of column i. */
static int code_at(const uint8_t *numbers, int i) { return numbers[i / 2] >> 4 * (i & 1) & 15; }

static void join_mxfp4(const uint8_t *numbers, const uint8_t *scale, ht_block_mxfp4 *out) {
    out->e = *scale;
    for (int i = 0; i < 16; i++) out->qs[i] = (uint8_t)(code_at(numbers, i) | code_at(numbers, i + 16) << 4);
}

/* NVFP4 blocks have unsigned scales: a negative scale flips the sign of its q. */
static void join_nvfp4(const uint8_t *numbers, const uint8_t *scales, ht_block_nvfp4 *out) {
    for (int g = 0; g < 4; g++, numbers += 8) {
        int sign = scales[g] >> 7 ? 0x88 : 0;
        out->d[g] = scales[g] & 127;
        for (int i = 0; i < 8; i++)
            out->qs[8 * g + i] = (uint8_t)((code_at(numbers, i) | code_at(numbers, i + 8) << 4) ^ sign);
    }
}

static void join_affine(const uint8_t *const part[3], const ht_stored_tensor *t, uint8_t *out) {
    size_t n = t->part[1].unit_bytes;
    memcpy(out, part[1], n);
    memcpy(out + n, part[2], n);
    memcpy(out + 2 * n, part[0], t->part[0].unit_bytes);
}

static void join(const ht_stored_tensor *t, const uint8_t *part[3], int64_t n_units, uint8_t *out) {
    size_t bytes = ht_tensor_size(t, t->unit);
    for (int64_t u = 0; u < n_units; u++, out += bytes) {
        switch (t->type) {
        case HT_W_MXFP4: join_mxfp4(part[0], part[1], (void *)out); break;
        case HT_W_NVFP4: join_nvfp4(part[0], part[1], (void *)out); break;
        default: join_affine(part, t, out); break;
        }
        for (int i = 0; i < t->n_parts; i++) part[i] += t->part[i].unit_bytes;
    }
}

/* Reads elements [first, first + n) of a matrix of floats that is stored column by column: of each column those rows, in
 * pieces of at most PIECE bytes. */
static ht_status read_transposed(const ht_stored_tensor *t, int64_t first, int64_t n, unsigned char *out,
                                 ht_error *err) {
    enum { PIECE = 1 << 14 };
    unsigned char piece[PIECE];
    const int64_t k = t->dims[t->n_dims - 1], end = first + n;
    const size_t size = ht_tensor_size(t, 1);
    const int64_t at_once = ht_max_i64(1, (PIECE / (int64_t)size - 1) / t->row_step + 1);
    ht_status status = HT_OK;
    for (int64_t row = first / k; !status && row * k < end; row += at_once) {
        const int64_t n_rows = ht_min_i64(at_once, ht_ceil_div_i64(end, k) - row);
        for (int64_t column = 0; !status && column < k; column++) {
            const size_t begin = (size_t)(row * t->row_step + column * t->column_step) * size;
            const size_t span = ((size_t)((n_rows - 1) * t->row_step) + 1) * size;
            status = ht_file_read_at(t->file, t->offset + begin, piece, span, err);
            for (int64_t i = 0; !status && i < n_rows; i++) {
                const int64_t element = (row + i) * k + column;
                if (element >= first && element < end)
                    memcpy(out + (size_t)(element - first) * size, piece + (size_t)(i * t->row_step) * size, size);
            }
        }
    }
    return status;
}

ht_status ht_tensor_read(const ht_stored_tensor *t, int64_t first, int64_t n, void *out, void *scratch, ht_error *err) {
    if (t->column_step) return read_transposed(t, first, n, out, err);
    ht_status status = HT_OK;
    if (t->row_step && t->row_step != t->dims[t->n_dims - 1] && n > 0) { /* rows apart: one by one */
        const int64_t k = t->dims[t->n_dims - 1];
        for (int64_t i = first; !status && i < first + n;) {
            const int64_t row = i / k, m = ht_min_i64(first + n, (row + 1) * k) - i;
            ht_stored_tensor one = ht_tensor_rows(t, row, 1);
            one.row_step = 0;
            status = ht_tensor_read(&one, i - row * k, m, (char *)out + ht_tensor_size(t, i - first), scratch, err);
            i += m;
        }
        return status;
    }
    if (!t->n_parts)
        return ht_file_read_at(t->file, t->offset + ht_tensor_size(t, first), out, ht_tensor_size(t, n), err);
    const uint8_t *part[3] = {0};
    uint8_t *at = scratch;
    for (int i = 0; !status && i < t->n_parts; i++) {
        const ht_tensor_part *p = &t->part[i];
        size_t bytes = (size_t)(n / t->unit) * p->unit_bytes;
        status = ht_file_read_at(p->file, p->offset + (size_t)(first / t->unit) * p->unit_bytes, at, bytes, err);
        part[i] = at;
        at += bytes;
    }
    if (!status) join(t, part, n / t->unit, out);
    return status;
}

ht_stored_tensor ht_tensor_rows(const ht_stored_tensor *t, int64_t first, int64_t n) {
    ht_stored_tensor rows = *t;
    int64_t k = t->dims[t->n_dims - 1];
    rows.n_dims = 2;
    rows.dims[0] = n;
    rows.dims[1] = k;
    rows.n_bytes = ht_tensor_size(t, n * k);
    const int64_t step = t->row_step ? t->row_step : k;
    if (!t->n_parts) rows.offset += ht_tensor_size(t, first * step);
    for (int i = 0; i < t->n_parts; i++)
        rows.part[i].offset += (size_t)(first * step / t->unit) * t->part[i].unit_bytes;
    return rows;
}

ht_stored_tensor ht_tensor_alternate(const ht_stored_tensor *t, int odd, int64_t n, int64_t k) {
    ht_stored_tensor made = *t;
    made.n_dims = 2;
    made.dims[0] = made.dims[1] = k; /* the rows as they are stored */
    made.row_step = t->row_step ? t->row_step : k;
    made = ht_tensor_rows(&made, odd, n);
    made.row_step *= 2;
    if (k == 1) made.column_step = 1;
    return made;
}

ht_stored_tensor ht_tensor_transposed(const ht_stored_tensor *t) {
    ht_stored_tensor made = *t;
    const int64_t rows = t->dims[t->n_dims - 1];
    made.dims[t->n_dims - 1] = t->dims[t->n_dims - 2];
    made.dims[t->n_dims - 2] = rows;
    made.row_step = 1;
    made.column_step = rows;
    return made;
}

ht_status ht_tensor_read_f32(const ht_stored_tensor *t, int64_t n, float *out, ht_error *err) {
    size_t n_bytes = ht_tensor_size(t, n) + ht_tensor_read_scratch(t, n);
    unsigned char *bytes = malloc(n_bytes ? n_bytes : 1);
    if (!bytes) return ht_fail_memory(err, n_bytes, "reading weights");
    ht_status status = ht_tensor_read(t, 0, n, bytes, bytes + ht_tensor_size(t, n), err);
    if (!status) ht_dequantize((ht_weight_type)t->type, bytes, n, out);
    free(bytes);
    return status;
}
