#include "base/checked.h"
#include "base/error.h"
#include "base/half.h"
/* Weights with scales in separate tensors, other than MLX's groups: NVFP4 and fp8. */
#include "checkpoint/scheme.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- NVFP4 ---- */

enum { GROUP = 16, UNIT = 64 };

/* Naming convention of a tool, as suffixes: q, group scales, global scale, and AWQ's activation scale (unsupported). */
static const struct naming {
    const char *numbers, *scales, *whole, *pre_quant;
    bool divides;
} namings[] = {{".weight", ".weight_scale", ".weight_scale_2", ".pre_quant_scale", false},
               {".weight_packed", ".weight_scale", ".weight_global_scale", ".pre_quant_scale", true},
               {"", "_weight_scale", "_weight_scale_2", "_pre_quant_scale", false}};
enum { N_NAMINGS = sizeof namings / sizeof *namings };

/* Finds the tensor named `name` with suffix `end` replaced by `other`; NULL when absent or `name` has another
 * suffix. */
static const ht_safetensor *find_sibling(const ht_checkpoint_files *c, const char *name, const char *end,
                                         const char *other) {
    char found[HT_SIBLING_NAME];
    return ht_sibling_name(name, strlen(name), end, other, found) ? ht_checkpoint_safetensor(c, found) : NULL;
}

/* The naming convention if `t` is an NVFP4 q, and its scales; else NULL. */
static const struct naming *naming_of(const ht_checkpoint_files *c, const ht_safetensor *t,
                                      const ht_safetensor **scales) {
    for (const struct naming *f = namings; f < namings + N_NAMINGS; f++) {
        *scales = find_sibling(c, t->name, f->numbers, f->scales);
        if (*scales && !strcmp(t->dtype, "U8") && (t->rank == 2 || t->rank == 3) &&
            !strcmp((*scales)->dtype, "F8_E4M3"))
            return f;
    }
    return NULL;
}

const ht_safetensor *ht_nvfp4_numbers(const ht_checkpoint_files *c, const char *name) {
    return find_sibling(c, name, ".weight", ".weight_packed");
}

static ht_status wrong_scales(const ht_checkpoint_files *c, const ht_safetensor *t, const ht_safetensor *scales,
                              ht_error *err) {
    char expected[80];
    int at = 0;
    for (int i = 0; i < t->rank - 1; i++)
        at += snprintf(expected + at, sizeof expected - (size_t)at, "%lld, ", (long long)t->shape[i]);
    return ht_fail(err, HT_ERR_FORMAT, "%s: tensor `%s` is not [%s%lld], a scale for %d columns of `%s`",
                   ht_checkpoint_file_of(c, scales), scales->name, expected,
                   (long long)(2 * t->shape[t->rank - 1] / GROUP), (int)GROUP, t->name);
}

static ht_status complete(ht_checkpoint_files *c, const struct naming *f, const ht_safetensor *t,
                          const ht_safetensor *scales, ht_error *err) {
    ht_stored_tensor *out = ht_checkpoint_stored(c, t);
    const int last = t->rank - 1;
    const int64_t columns = 2 * t->shape[last];
    const ht_safetensor *pre_quant = find_sibling(c, t->name, f->numbers, f->pre_quant);
    if (pre_quant)
        return ht_fail(err, HT_ERR_UNSUPPORTED, "%s: `%s` scales what is multiplied by `%s`, which is not supported",
                       ht_checkpoint_file_of(c, pre_quant), pre_quant->name, t->name);
    int64_t rows = 1;
    bool same = scales->rank == t->rank && scales->shape[last] * GROUP == columns;
    for (int i = 0; i < last; i++) {
        rows *= t->shape[i];
        same = same && scales->shape[i] == t->shape[i];
    }
    if (!same) return wrong_scales(c, t, scales, err);
    if (columns % UNIT)
        return ht_fail(err, HT_ERR_UNSUPPORTED,
                       "%s: tensor `%s` has rows of %lld columns; NVFP4 is read in multiples of %d",
                       ht_checkpoint_file_of(c, t), t->name, (long long)columns, (int)UNIT);
    const ht_weight_type_info *info = ht_weight_type_info_of(HT_W_NVFP4);
    out->type = HT_W_NVFP4;
    out->type_name = info->name;
    out->dims[last] = columns;
    out->unit = UNIT;
    out->n_bytes = (size_t)(rows * (columns / info->block)) * info->block_bytes;
    out->n_parts = 2;
    out->part[0] = (ht_tensor_part){ht_safetensors_file(c->tensors, t->file), t->offset, UNIT / 2};
    out->part[1] = (ht_tensor_part){ht_safetensors_file(c->tensors, scales->file), scales->offset, UNIT / GROUP};
    ht_scheme_absorb(ht_checkpoint_stored(c, scales));
    return HT_OK;
}

ht_status ht_nvfp4_join(ht_checkpoint_files *c, ht_error *err) {
    for (size_t i = 0, n = ht_safetensors_count(c->tensors); i < n; i++) {
        const ht_safetensor *t = ht_safetensors_at(c->tensors, i), *scales;
        const bool is_text = ht_checkpoint_is_text(c, t->name);
        const struct naming *f = naming_of(c, t, &scales);
        const ht_status status = f ? complete(c, f, t, scales, is_text ? err : NULL) : HT_OK;
        if (status && is_text) return status;
    }
    return HT_OK;
}

/* ---- MXFP4 ---- */

const ht_safetensor *ht_mxfp4_blocks(const ht_checkpoint_files *c, const char *name) {
    char blocks[HT_SIBLING_NAME];
    return ht_sibling_name(name, strlen(name), "", "_blocks", blocks) ? ht_checkpoint_safetensor(c, blocks) : NULL;
}

static ht_status complete_mxfp4(ht_checkpoint_files *c, const ht_safetensor *t, ht_error *err) {
    enum { BLOCK = 32 };
    char name[HT_SIBLING_NAME];
    const int last = t->rank - 1;
    const ht_safetensor *scales = ht_sibling_name(t->name, strlen(t->name), "_blocks", "_scales", name)
                                      ? ht_checkpoint_safetensor(c, name)
                                      : NULL;
    bool same =
        t->rank >= 3 && t->shape[last] == BLOCK / 2 && scales && scales->rank == last && !strcmp(scales->dtype, "U8");
    for (int i = 0; same && i < last; i++) same = scales->shape[i] == t->shape[i] && t->shape[i] <= INT64_MAX / BLOCK;
    if (!same)
        return ht_fail(err, HT_ERR_FORMAT, "%s: tensor `%s` is not MXFP4 blocks of 16 bytes, each with a scale in `%s`",
                       ht_checkpoint_file_of(c, t), t->name, name);
    const ht_weight_type_info *info = ht_weight_type_info_of(HT_W_MXFP4);
    ht_stored_tensor *out = ht_checkpoint_stored(c, t);
    out->type = HT_W_MXFP4;
    out->type_name = info->name;
    out->n_dims = last;
    out->dims[last - 1] = t->shape[last - 1] * BLOCK;
    out->unit = BLOCK;
    out->n_bytes = t->n_bytes / (BLOCK / 2) * info->block_bytes;
    out->n_parts = 2;
    out->part[0] = (ht_tensor_part){ht_safetensors_file(c->tensors, t->file), t->offset, BLOCK / 2};
    out->part[1] = (ht_tensor_part){ht_safetensors_file(c->tensors, scales->file), scales->offset, 1};
    ht_scheme_absorb(ht_checkpoint_stored(c, scales));
    return HT_OK;
}

ht_status ht_mxfp4_join(ht_checkpoint_files *c, ht_error *err) {
    ht_status status = HT_OK;
    for (size_t i = 0, n = ht_safetensors_count(c->tensors); !status && i < n; i++) {
        const ht_safetensor *t = ht_safetensors_at(c->tensors, i);
        if (!strcmp(t->dtype, "U8") && ht_ends_with(t->name, "_blocks")) status = complete_mxfp4(c, t, err);
    }
    return status;
}

/* ---- NVFP4: global scales ---- */

/* Reads the global scales `whole` (one, one per matrix, or one per matrix and share) as one per matrix. */
static ht_status read_global_scales(const ht_checkpoint_files *c, const struct naming *f, const ht_safetensor *whole,
                                    const ht_product_scales *of, float *out, ht_error *err) {
    const ht_stored_tensor t = ht_stored_of_safetensors(c->tensors, (size_t)(whole - ht_safetensors_at(c->tensors, 0)));
    const int64_t found = ht_elements(t.dims, t.n_dims), n = of->n;
    bool each = n > 1 || of->n_shares > 1;
    if (t.type != HT_W_F32 || (found != 1 && !(each && (found == n || (found == n * of->n_shares && t.dims[0] == n)))))
        return ht_fail(err, HT_ERR_FORMAT, "%s: `%s` is no single number in F32%s", t.file_name, whole->name,
                       each ? ", nor one for each expert" : "");
    float *values = malloc((size_t)found * sizeof *values);
    if (!values) return ht_fail_memory(err, (size_t)found * sizeof *values, "scales");
    ht_status status = ht_tensor_read_f32(&t, found, values, err);
    for (int64_t i = 0; !status && i < found; i++)
        if (!isfinite(values[i]) || values[i] <= 0)
            status = ht_fail(err, HT_ERR_FORMAT, "%s: `%s` holds %g, expected positive numbers", t.file_name,
                             whole->name, (double)values[i]);
    for (int64_t e = 0; !status && e < n; e++) {
        float scale = values[found == 1 ? 0 : found == n ? e : e * of->n_shares + of->share];
        out[e] = f->divides ? 1 / scale : scale;
    }
    free(values);
    return status;
}

ht_status ht_nvfp4_product_scales(const ht_checkpoint_files *c, const ht_product_scales *of, float *out, bool *found,
                                  size_t *number, ht_error *err) {
    const ht_safetensor *numbers = ht_checkpoint_elements(c, of->name), *scales;
    const struct naming *f = numbers ? naming_of(c, numbers, &scales) : NULL;
    const ht_safetensor *whole = f ? find_sibling(c, numbers->name, f->numbers, f->whole) : NULL;
    (void)number; /* it belongs to the weight */
    *found = whole != NULL;
    return whole ? read_global_scales(c, f, whole, of, out, err) : HT_OK;
}

/* ---- fp8 ---- */

/* OCP E8M0: a power of two as a biased exponent byte. */
static bool is_e8m0(const ht_stored_tensor *t) { return !strcmp(t->type_name, "F8_E8M0"); }

static bool readable(const ht_stored_tensor *t) { return is_e8m0(t) || ht_weight_is_float(t->type); }

static ht_status wrong_shape(const ht_stored_tensor *t, const char *name, int64_t n, int64_t rows, int64_t columns,
                             ht_error *err) {
    char found[HT_DIMS_TEXT], each[48] = "";
    ht_dims_text(t->dims, t->n_dims, found);
    if (n) snprintf(each, sizeof each, "for each of %lld matrices ", (long long)n);
    return ht_fail(
        err, HT_ERR_FORMAT,
        "%s: tensor `%s` is [%s], expected %sone scale, %lld, or one for each block of a matrix [%lld, %lld]; "
        "config.json's quantization_config tells their size",
        t->file_name, name, found, each, (long long)rows, (long long)rows, (long long)columns);
}

/* Block scales: block size from config.json, else from dividing the matrix evenly. */
static bool find_blocks(const ht_quantized *spec, const int64_t *dims, int n_dims, int64_t columns, ht_fp8_scales *s) {
    if (n_dims != 2 || dims[0] < 1 || dims[1] < 1) return false;
    s->per_row = dims[1];
    if (spec->block[0]) {
        s->rows = spec->block[0];
        s->columns = spec->block[1];
        return dims[0] == ht_ceil_div_i64(s->n_rows, s->rows) && dims[1] == ht_ceil_div_i64(columns, s->columns);
    }
    if (s->n_rows % dims[0] || columns % dims[1]) return false;
    s->rows = s->n_rows / dims[0];
    s->columns = columns / dims[1];
    return true;
}

static bool find_shape(const ht_quantized *spec, int64_t n_matrices, int64_t columns, ht_fp8_scales *s) {
    const int64_t *dims = s->tensor.dims;
    int n_dims = s->tensor.n_dims;
    int64_t n = ht_elements(dims, n_dims);
    if (n_matrices && n != 1) {
        if (n_dims < 1 || *dims != n_matrices) return false;
        s->n_matrices = n_matrices;
        n /= n_matrices;
        dims++;
        n_dims--;
    }
    if (n == 1) return true;
    if (n_dims >= 1 && dims[0] == s->n_rows && n == s->n_rows) {
        s->rows = 1;
        return true;
    }
    return find_blocks(spec, dims, n_dims, columns, s);
}

/* The tensor with the scales of weight `name`, and its name. */
static bool find_tensor(const ht_checkpoint_files *c, const char *name, char scale[HT_SIBLING_NAME],
                        ht_stored_tensor *out) {
    static const struct {
        const char *end, *scale;
    } names[] = {{".weight", ".scales"}, /* MLX */
                 {"", "_scale_inv"},
                 {"", "_scale"},
                 {"", "_weight_scale"}}; /* names without .weight */
    for (size_t i = c->quantization ? 0 : 1; i < sizeof names / sizeof *names; i++)
        if (ht_sibling_name(name, strlen(name), names[i].end, names[i].scale, scale) &&
            ht_checkpoint_find(c, scale, out))
            return true;
    return false;
}

ht_status ht_fp8_scales_find(const ht_checkpoint_files *c, const char *name, int64_t n_matrices, int64_t rows,
                             int64_t columns, ht_fp8_scales *out, ht_error *err) {
    *out = (ht_fp8_scales){.rows = rows, .columns = columns, .per_row = 1, .n_matrices = 1, .n_rows = rows};
    char scale[HT_SIBLING_NAME];
    if (!find_tensor(c, name, scale, &out->tensor)) {
        if (!c->quantized.scale) return HT_OK; /* unscaled fp8 weights */
        return ht_fail(err, HT_ERR_FORMAT,
                       "%s: tensor `%s%s` is missing, which the quantization_config of config.json implies",
                       ht_base_name(c->path), name, c->quantized.scale);
    }
    const ht_stored_tensor *t = &out->tensor;
    out->any = true;
    if (!readable(t))
        return ht_fail(err, HT_ERR_UNSUPPORTED, "%s: tensor `%s` is of type %s, expected F32, F16, BF16 or F8_E8M0",
                       t->file_name, scale, t->type_name);
    return find_shape(&c->quantized, n_matrices, columns, out) ? HT_OK
                                                               : wrong_shape(t, scale, n_matrices, rows, columns, err);
}

static ht_status read_e8m0(const ht_stored_tensor *t, int64_t n, float *out, ht_error *err) {
    unsigned char *codes = malloc((size_t)n);
    if (!codes) return ht_fail_memory(err, (size_t)n, "scales");
    ht_status status = ht_file_read_at(t->file, t->offset, codes, (size_t)n, err);
    for (int64_t i = 0; !status && i < n; i++) /* 2^(e - 127); 255 is NaN, becomes infinite and is rejected */
        out[i] = ht_float_from_bits(codes[i] ? (uint32_t)codes[i] << 23 : UINT32_C(1) << 22);
    free(codes);
    return status;
}

/* Reads n scales from index `first` and checks that they are finite. */
static ht_status read_numbers(const ht_fp8_scales *s, int64_t first, int64_t n, float *out, ht_error *err) {
    ht_stored_tensor t = s->tensor;
    t.offset += is_e8m0(&t) ? (size_t)first : ht_tensor_size(&t, first);
    ht_status status = is_e8m0(&t) ? read_e8m0(&t, n, out, err) : ht_tensor_read_f32(&t, n, out, err);
    for (int64_t i = 0; !status && i < n; i++)
        if (!isfinite(out[i]))
            status = ht_fail(err, HT_ERR_FORMAT, "%s: a scale at byte %zu is %g, expected a finite number",
                             s->tensor.file_name, t.offset, (double)out[i]);
    return status;
}

static int64_t common_divisor(int64_t a, int64_t b) {
    while (b) {
        int64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

/* `row` may lie within a block: scale blocks are then split to the common divisor of block height and `row`, and scales
 * repeated. */
ht_status ht_fp8_scales_read(const ht_fp8_scales *s, int64_t index, int64_t row, int64_t n_rows, ht_block_scales *out,
                             ht_error *err) {
    *out = (ht_block_scales){0};
    if (!s->any) return HT_OK;
    int64_t rows = common_divisor(s->rows, row), n = ht_ceil_div_i64(n_rows, rows);
    int64_t first = row / s->rows, n_read = (row + n_rows - 1) / s->rows + 1 - first;
    float *read = malloc((size_t)(n_read * s->per_row) * sizeof *read);
    float *values = malloc((size_t)(n * s->per_row) * sizeof *values);
    int64_t blocks = ht_ceil_div_i64(s->n_rows, s->rows), matrix = s->n_matrices > 1 ? index : 0;
    ht_status status = read && values
                           ? read_numbers(s, (matrix * blocks + first) * s->per_row, n_read * s->per_row, read, err)
                           : ht_fail_memory(err, (size_t)((n + n_read) * s->per_row) * sizeof *read, "scales");
    for (int64_t i = 0; !status && i < n; i++)
        memcpy(values + i * s->per_row, read + ((row + i * rows) / s->rows - first) * s->per_row,
               (size_t)s->per_row * sizeof *read);
    free(read);
    if (status)
        free(values);
    else
        *out = (ht_block_scales){values, n * s->per_row, s->per_row, rows, s->columns};
    return status;
}
