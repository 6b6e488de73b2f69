#include "models/nvfp4.h"

#include "base/error.h"
#include "models/pack.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { NAME_SIZE = 256, GROUP = 16, UNIT = 64 };

/* How a tool calls the numbers and the scale of the whole. */
static const struct form {
    const char *numbers, *whole;
    bool divides;
} forms[] = {{".weight", ".weight_scale_2", false}, {".weight_packed", ".weight_global_scale", true}};
enum { N_FORMS = sizeof forms / sizeof *forms };

/* `name` with another end, in the checkpoint; NULL when the name ends otherwise, or there is none. */
static const ht_safetensor *beside(const ht_checkpoint_files *c, const char *name, const char *end, const char *other) {
    char found[NAME_SIZE];
    size_t n = strlen(name), m = strlen(end);
    if (n < m || strcmp(name + n - m, end) != 0) return NULL;
    int length = snprintf(found, sizeof found, "%.*s%s", (int)(n - m), name, other);
    return length < NAME_SIZE ? ht_safetensors_find(c->tensors, found) : NULL;
}

static const char *file_of(const ht_checkpoint_files *c, const ht_safetensor *t) {
    return ht_base_name(ht_safetensors_file(c->tensors, t->file)->path);
}

/* The form in which the tensor holds numbers, and their scales; NULL when it does not. */
static const struct form *form_of(const ht_checkpoint_files *c, const ht_safetensor *t, const ht_safetensor **scales) {
    for (const struct form *f = forms; f < forms + N_FORMS; f++) {
        *scales = beside(c, t->name, f->numbers, ".weight_scale");
        if (*scales && !strcmp(t->dtype, "U8") && t->rank == 2 && !strcmp((*scales)->dtype, "F8_E4M3")) return f;
    }
    return NULL;
}

const ht_safetensor *ht_nvfp4_numbers(const ht_checkpoint_files *c, const char *name) {
    return beside(c, name, ".weight", ".weight_packed");
}

static ht_status complete(const ht_checkpoint_files *c, const struct form *f, const ht_safetensor *t,
                          const ht_safetensor *scales, ht_stored *out, ht_error *err) {
    const int64_t rows = t->shape[0], columns = 2 * t->shape[1];
    const ht_safetensor *before = beside(c, t->name, f->numbers, ".pre_quant_scale");
    if (before)
        return ht_fail(err, HT_ERR_UNSUPPORTED, "%s: `%s` scales what is multiplied by `%s`, which is not supported",
                       file_of(c, before), before->name, t->name);
    if (scales->rank != 2 || scales->shape[0] != rows || scales->shape[1] * GROUP != columns)
        return ht_fail(err, HT_ERR_FORMAT, "%s: tensor `%s` is not [%lld, %lld], a scale for %d columns of `%s`",
                       file_of(c, scales), scales->name, (long long)rows, (long long)(columns / GROUP), (int)GROUP,
                       t->name);
    if (columns % UNIT)
        return ht_fail(err, HT_ERR_UNSUPPORTED,
                       "%s: tensor `%s` has rows of %lld columns; NVFP4 is read in multiples of %d", file_of(c, t),
                       t->name, (long long)columns, (int)UNIT);
    const ht_weight_type_info *info = ht_weight_type_info_of(HT_W_NVFP4);
    out->type = HT_W_NVFP4;
    out->type_name = info->name;
    out->dims[1] = columns;
    out->unit = UNIT;
    out->n_bytes = (size_t)(rows * (columns / info->block)) * info->block_bytes;
    out->n_parts = 2;
    out->part[0] = (ht_stored_part){ht_safetensors_file(c->tensors, t->file), t->offset, UNIT / 2};
    out->part[1] = (ht_stored_part){ht_safetensors_file(c->tensors, scales->file), scales->offset, UNIT / GROUP};
    return HT_OK;
}

void ht_nvfp4_complete(const ht_checkpoint_files *c, const char *name, ht_stored *t) {
    const ht_safetensor *whole = ht_safetensors_find(c->tensors, name), *scales;
    const struct form *f = whole ? form_of(c, whole, &scales) : NULL;
    if (f) {
        complete(c, f, whole, scales, t, NULL);
        return;
    }
    for (int i = 0; i < N_FORMS; i++) {
        const ht_safetensor *numbers = beside(c, name, ".weight_scale", forms[i].numbers);
        if (!numbers || !form_of(c, numbers, &scales)) continue;
        t->n_dims = 1;
        t->dims[0] = 0;
        t->n_bytes = 0;
    }
}

ht_status ht_nvfp4_whole_scale(const ht_checkpoint_files *c, const char *name, float *scale, bool *found,
                               ht_error *err) {
    *found = false;
    const ht_safetensor *numbers = ht_safetensors_find(c->tensors, name), *scales;
    if (!numbers) numbers = ht_nvfp4_numbers(c, name);
    const struct form *f = numbers ? form_of(c, numbers, &scales) : NULL;
    const ht_safetensor *whole = f ? beside(c, numbers->name, f->numbers, f->whole) : NULL;
    if (!whole) return HT_OK;
    ht_stored t;
    ht_checkpoint_find(c, whole->name, &t);
    int64_t n = 1;
    for (int i = 0; i < t.n_dims; i++) n *= t.dims[i];
    if (n != 1 || t.type != HT_W_F32)
        return ht_fail(err, HT_ERR_FORMAT, "%s: `%s` is no single number in F32", t.file_name, whole->name);
    ht_status status = ht_stored_read_f32(&t, 1, scale, err);
    if (status) return status;
    if (!isfinite(*scale) || *scale <= 0)
        return ht_fail(err, HT_ERR_FORMAT, "%s: `%s` is %g, expected a positive number", t.file_name, whole->name,
                       (double)*scale);
    if (f->divides) *scale = 1 / *scale;
    *found = true;
    return HT_OK;
}

static bool is_text(const ht_checkpoint_files *c, const char *name) {
    return !strncmp(name, c->prefix, strlen(c->prefix)) || (c->head && !strcmp(name, c->head));
}

ht_status ht_nvfp4_open(const ht_checkpoint_files *c, ht_error *err) {
    ht_status status = HT_OK;
    for (size_t i = 0, n = ht_safetensors_count(c->tensors); !status && i < n; i++) {
        const ht_safetensor *t = ht_safetensors_at(c->tensors, i), *scales;
        const struct form *f = is_text(c, t->name) ? form_of(c, t, &scales) : NULL;
        if (f) status = complete(c, f, t, scales, &(ht_stored){.n_dims = t->rank}, err);
    }
    return status;
}
