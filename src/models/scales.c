#include "models/scales.h"

#include "base/checked.h"
#include "base/error.h"
#include "base/half.h"
#include "models/pack.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NAME_SIZE = 256 };

/* Powers of two with the exponent of a float. */
static bool is_e8m0(const ht_stored *t) { return !strcmp(t->type_name, "F8_E8M0"); }

static bool readable(const ht_stored *t) {
    return is_e8m0(t) || t->type == HT_W_F32 || t->type == HT_W_F16 || t->type == HT_W_BF16;
}

static ht_status wrong_shape(const ht_scales *s, const char *name, int64_t rows, int64_t columns, ht_error *err) {
    const ht_stored *t = &s->stored;
    char found[64] = "";
    for (int i = 0, at = 0; i < t->n_dims && at < 40; i++)
        at += snprintf(found + at, sizeof found - (size_t)at, i ? ", %lld" : "%lld", (long long)t->dims[i]);
    return ht_fail(err, HT_ERR_FORMAT,
                   "%s: tensor `%s` is [%s], expected one scale, %lld, or one for each block of a matrix [%lld, %lld]; "
                   "config.json's weight_block_size tells their size",
                   t->file_name, name, found, (long long)rows, (long long)rows, (long long)columns);
}

/* One scale per block: of the size that config.json states, else of one that divides the matrix. */
static bool find_blocks(const ht_fp8_spec *spec, int64_t rows, int64_t columns, ht_scales *s) {
    const ht_stored *t = &s->stored;
    if (t->n_dims != 2 || t->dims[0] < 1 || t->dims[1] < 1) return false;
    if (spec->block[0] && t->dims[0] == ht_ceil_div_i64(rows, spec->block[0]) &&
        t->dims[1] == ht_ceil_div_i64(columns, spec->block[1])) {
        s->rows = spec->block[0];
        s->columns = spec->block[1];
        return true;
    }
    if (rows % t->dims[0] || columns % t->dims[1]) return false;
    s->rows = rows / t->dims[0];
    s->columns = columns / t->dims[1];
    return true;
}

ht_status ht_scales_find(const ht_checkpoint *c, const char *name, int64_t rows, int64_t columns, ht_scales *out,
                         ht_error *err) {
    *out = (ht_scales){.rows = rows, .columns = columns, .n = 1};
    char scale[NAME_SIZE];
    size_t stem = strlen(name) - (sizeof ".weight" - 1); /* with which the name of a matrix ends */
    snprintf(scale, sizeof scale, "%.*s.scales", (int)stem, name);
    bool of_mlx = c->quantization && ht_checkpoint_find(c, scale, &out->stored);
    if (!of_mlx) snprintf(scale, sizeof scale, "%s_scale_inv", name);
    if (!of_mlx && !ht_checkpoint_find(c, scale, &out->stored)) {
        snprintf(scale, sizeof scale, "%s_scale", name);
        if (!ht_checkpoint_find(c, scale, &out->stored)) {
            if (!c->fp8.stated) return HT_OK; /* the weights are what they are */
            return ht_fail(err, HT_ERR_FORMAT,
                           "%s: tensor `%s_scale_inv` is missing, which the quantization_config of config.json implies",
                           ht_base_name(c->path), name);
        }
    }
    const ht_stored *t = &out->stored;
    out->any = true;
    for (int i = 0; i < t->n_dims; i++) out->n *= t->dims[i];
    if (!readable(t))
        return ht_fail(err, HT_ERR_UNSUPPORTED, "%s: tensor `%s` is of type %s, expected F32, F16, BF16 or F8_E8M0",
                       t->file_name, scale, t->type_name);
    if (out->n == 1) return HT_OK;
    if (t->n_dims >= 1 && t->dims[0] == rows && out->n == rows) {
        out->rows = 1;
        return HT_OK;
    }
    return find_blocks(&c->fp8, rows, columns, out) ? HT_OK : wrong_shape(out, scale, rows, columns, err);
}

static ht_status read_e8m0(const ht_stored *t, int64_t n, float *out, ht_error *err) {
    unsigned char *codes = malloc((size_t)n);
    if (!codes) return ht_fail_memory(err, (size_t)n, "scales");
    ht_status status = ht_file_read_at(t->file, t->offset, codes, (size_t)n, err);
    for (int64_t i = 0; !status && i < n; i++) /* 2^(e - 127); 255 is a NaN, and becomes an infinity */
        out[i] = ht_float_from_bits(codes[i] ? (uint32_t)codes[i] << 23 : UINT32_C(1) << 22);
    free(codes);
    return status;
}

ht_status ht_scales_read(const ht_scales *s, ht_matrix *m, ht_error *err) {
    if (!s->any) return HT_OK;
    m->scales = malloc((size_t)s->n * sizeof *m->scales);
    if (!m->scales) return ht_fail_memory(err, (size_t)s->n * sizeof *m->scales, "scales");
    m->scale_rows = s->rows;
    m->scale_columns = s->columns;
    ht_status status = is_e8m0(&s->stored) ? read_e8m0(&s->stored, s->n, m->scales, err)
                                           : ht_stored_read_f32(&s->stored, s->n, m->scales, err);
    for (int64_t i = 0; !status && i < s->n; i++)
        if (!isfinite(m->scales[i]))
            status = ht_fail(err, HT_ERR_FORMAT, "%s: a scale at byte %zu is %g, expected a finite number",
                             s->stored.file_name, s->stored.offset, (double)m->scales[i]);
    return status;
}
