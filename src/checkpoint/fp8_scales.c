#include "checkpoint/fp8_scales.h"

#include "base/checked.h"
#include "base/error.h"
#include "base/half.h"
#include "base/text.h"
#include "checkpoint/tensor_read.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NAME_SIZE = 256 };

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
    int64_t n = 1;
    for (int i = 0; i < n_dims; i++) n *= dims[i];
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
static bool find_tensor(const ht_checkpoint_files *c, const char *name, char scale[NAME_SIZE], ht_stored_tensor *out) {
    static const struct {
        const char *end, *scale;
    } names[] = {{".weight", ".scales"}, /* MLX */
                 {"", "_scale_inv"},
                 {"", "_scale"},
                 {"", "_weight_scale"}}; /* names without .weight */
    for (size_t i = c->quantization ? 0 : 1; i < sizeof names / sizeof *names; i++) {
        if (!ht_ends_with(name, names[i].end)) continue;
        snprintf(scale, NAME_SIZE, "%.*s%s", (int)(strlen(name) - strlen(names[i].end)), name, names[i].scale);
        if (ht_checkpoint_find(c, scale, out)) return true;
    }
    return false;
}

ht_status ht_fp8_scales_find(const ht_checkpoint_files *c, const char *name, int64_t n_matrices, int64_t rows,
                             int64_t columns, ht_fp8_scales *out, ht_error *err) {
    *out = (ht_fp8_scales){.rows = rows, .columns = columns, .per_row = 1, .n_matrices = 1, .n_rows = rows};
    char scale[NAME_SIZE];
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
    for (int64_t i = 0; !status && i < n; i++) /* 2^(e - 127); 255 is NaN, becomes an infinity, is refused */
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
