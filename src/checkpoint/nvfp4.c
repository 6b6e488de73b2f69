#include "checkpoint/nvfp4.h"

#include "base/error.h"
#include "checkpoint/tensor_read.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NAME_SIZE = 256, GROUP = 16, UNIT = 64 };

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
    char found[NAME_SIZE];
    size_t n = strlen(name), m = strlen(end);
    if (n < m || strcmp(name + n - m, end) != 0) return NULL;
    int length = snprintf(found, sizeof found, "%.*s%s", (int)(n - m), name, other);
    return length < NAME_SIZE ? ht_checkpoint_safetensor(c, found) : NULL;
}

/* The naming convention by which `t` is an NVFP4 q, and its scales; NULL when it is none. */
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

static ht_status complete(const ht_checkpoint_files *c, const struct naming *f, const ht_safetensor *t,
                          const ht_safetensor *scales, ht_stored_tensor *out, ht_error *err) {
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
    return HT_OK;
}

void ht_nvfp4_complete(const ht_checkpoint_files *c, const ht_safetensor *s, ht_stored_tensor *t) {
    const ht_safetensor *scales;
    const struct naming *f = naming_of(c, s, &scales);
    if (f) complete(c, f, s, scales, t, NULL);
    for (int i = 0; !f && i < N_NAMINGS; i++) {
        const ht_safetensor *numbers = find_sibling(c, s->name, namings[i].scales, namings[i].numbers);
        if (!numbers || !naming_of(c, numbers, &scales)) continue;
        t->n_dims = 1;
        t->dims[0] = 0;
        t->n_bytes = 0;
    }
}

/* Reads the global scales `whole` (one, one per matrix, or one per matrix and share) as one per matrix. */
static ht_status read_global_scales(const ht_checkpoint_files *c, const struct naming *f, const ht_safetensor *whole,
                                    int64_t n, int share, int n_shares, float *out, ht_error *err) {
    ht_stored_tensor t;
    ht_checkpoint_locate(c, whole, &t);
    int64_t found = 1;
    for (int i = 0; i < t.n_dims; i++) found *= t.dims[i];
    bool each = n > 1 || n_shares > 1;
    if (t.type != HT_W_F32 || (found != 1 && !(each && (found == n || (found == n * n_shares && t.dims[0] == n)))))
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
        float scale = values[found == 1 ? 0 : found == n ? e : e * n_shares + share];
        out[e] = f->divides ? 1 / scale : scale;
    }
    free(values);
    return status;
}

ht_status ht_nvfp4_whole_scales(const ht_checkpoint_files *c, const char *name, int64_t n, int share, int n_shares,
                                float *out, bool *found, ht_error *err) {
    const ht_safetensor *numbers = ht_checkpoint_elements(c, name), *scales;
    const struct naming *f = numbers ? naming_of(c, numbers, &scales) : NULL;
    const ht_safetensor *whole = f ? find_sibling(c, numbers->name, f->numbers, f->whole) : NULL;
    *found = whole != NULL;
    return whole ? read_global_scales(c, f, whole, n, share, n_shares, out, err) : HT_OK;
}

ht_status ht_nvfp4_check(const ht_checkpoint_files *c, ht_error *err) {
    ht_status status = HT_OK;
    for (size_t i = 0, n = ht_safetensors_count(c->tensors); !status && i < n; i++) {
        const ht_safetensor *t = ht_safetensors_at(c->tensors, i), *scales;
        const struct naming *f = ht_checkpoint_is_text(c, t->name) ? naming_of(c, t, &scales) : NULL;
        if (f) status = complete(c, f, t, scales, &(ht_stored_tensor){.n_dims = t->rank}, err);
    }
    return status;
}
