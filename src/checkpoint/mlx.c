#include "base/error.h"
#include "checkpoint/scheme.h"
#include "formats/affine.h"
#include "formats/json.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NAME_SIZE = 192 };

/* Finds tensor "path.part". */
static bool find(const ht_checkpoint_files *c, const char *path, const char *part, const ht_safetensor **out) {
    char name[NAME_SIZE];
    int n = snprintf(name, sizeof name, "%s.%s", path, part);
    *out = n < NAME_SIZE ? ht_checkpoint_safetensor(c, name) : NULL;
    return *out != NULL;
}

/* Strips ".part" from a tensor name; false without this ending. */
static bool path_of(const char *name, const char *part, char path[NAME_SIZE]) {
    size_t n = strlen(name), m = strlen(part);
    if (n <= m + 1 || n - m > NAME_SIZE || name[n - m - 1] != '.' || strcmp(name + n - m, part) != 0) return false;
    memcpy(path, name, n - m - 1);
    path[n - m - 1] = 0;
    return true;
}

/* ---- quantisation scheme ---- */

typedef struct scheme {
    const char *module; /* by its name in config.json */
    const char *mode;
    int64_t bits, group;
    ht_status status; /* result of reading it; only weights that use it fail */
    ht_error error;
} scheme;

/* Modes with fixed bits and group size; affine is handled separately. */
static const struct mode {
    const char *name;
    int bits, group;
    int unit;          /* columns joined at a time */
    ht_weight_type as; /* joined to this type; an NVFP4 block has four groups */
} modes[] = {{"mxfp4", 4, 32, 32, HT_W_MXFP4}, {"nvfp4", 4, 16, 64, HT_W_NVFP4}, {"mxfp8", 8, 32, 32, HT_W_F8_E4M3}};
enum { N_MODES = sizeof modes / sizeof *modes };

static const struct mode *mode_of(const char *name) {
    for (int i = 0; i < N_MODES; i++)
        if (!strcmp(modes[i].name, name)) return &modes[i];
    return NULL;
}

static void check_scheme(ht_json_reader *r, const char *where, const scheme *s) {
    const struct mode *m = mode_of(s->mode);
    if (!m && strcmp(s->mode, "affine") != 0)
        ht_json_fail(r, HT_ERR_UNSUPPORTED,
                     "`%.120s`: the mode `%.40s` is not supported; affine, mxfp4, mxfp8 and nvfp4 are", where, s->mode);
    else if (m && (s->bits != m->bits || s->group != m->group))
        ht_json_fail(r, HT_ERR_FORMAT, "`%.120s`: %s has %d bits in groups of %d, not %lld in groups of %lld", where,
                     m->name, m->bits, m->group, (long long)s->bits, (long long)s->group);
    else if (!m && ht_affine_type(s->bits, s->group, HT_W_F32) < 0)
        ht_json_fail(r, HT_ERR_UNSUPPORTED,
                     "`%.120s`: %lld bits in groups of %lld are not supported; 2, 3, 4, 5, 6 and 8 bits in groups of "
                     "32, 64 and 128 are",
                     where, (long long)s->bits, (long long)s->group);
}

/* Reads a scheme. As in mlx-lm, a module's scheme does not inherit: missing fields get MLX's defaults. */
static void read_scheme(const ht_checkpoint_files *c, const char *module, const ht_json *from, scheme *out) {
    ht_json_reader r = {.file = c->name, .err = &out->error};
    out->module = module;
    out->mode = "affine";
    if (!ht_json_is_object(from))
        ht_json_fail(&r, HT_ERR_FORMAT, "`%.120s` is not to be quantised, but there are scales for it", module);
    else
        ht_json_str(&r, from, "mode", &out->mode);
    const struct mode *m = mode_of(out->mode);
    out->bits = m ? m->bits : 4;
    out->group = m ? m->group : 64;
    if (!r.status) ht_json_i64(&r, from, "bits", &out->bits);
    if (!r.status) ht_json_i64(&r, from, "group_size", &out->group);
    if (!r.status) check_scheme(&r, module, out);
    out->status = r.status;
}

/* Reads the schemes of config.json: the global one, one per module, then an empty one. From calloc. */
static ht_status read_schemes(const ht_checkpoint_files *c, scheme **out, ht_error *err) {
    ht_json *how = (ht_json *)(uintptr_t)c->quantization, *own;
    const size_t n = ht_json_object_size(how) + 2;
    const char *module;
    scheme *s = *out = calloc(n, sizeof *s);
    if (!s) return ht_fail_memory(err, n * sizeof *s, "the schemes of modules");
    read_scheme(c, "quantization", how, s++);
    ht_json_object_foreach(how, module, own) read_scheme(c, module, ht_json_is_true(own) ? how : own, s++);
    return HT_OK;
}

/* The scheme of module `path`: under that name, or under the name without prefixes. */
static const scheme *scheme_of(const scheme *all, const char *path) {
    const scheme *found = all;
    const char *bare = ht_checkpoint_bare_name(path);
    while ((++all)->module) {
        if (!strcmp(all->module, path)) return all;
        if (!strcmp(ht_checkpoint_bare_name(all->module), bare)) found = all;
    }
    return found;
}

/* ---- joining a weight ---- */

/* Checks a scales or biases tensor: the weight's shape, with one value per group in the last dimension. */
static ht_status check_part(const ht_checkpoint_files *c, const ht_safetensor *weight, const ht_safetensor *part,
                            const char *type, int64_t columns, const scheme *s, ht_error *err) {
    bool same = part->rank == weight->rank;
    for (int i = 0; same && i < part->rank - 1; i++) same = part->shape[i] == weight->shape[i];
    if (!same || part->shape[part->rank - 1] * s->group != columns) {
        char found[HT_DIMS_TEXT], beside[HT_DIMS_TEXT];
        ht_dims_text(part->shape, part->rank, found);
        ht_dims_text(weight->shape, weight->rank, beside);
        return ht_fail(
            err, HT_ERR_FORMAT,
            "%s: tensor `%s` is [%s], which does not go with the weight's [%s] at %lld bits in groups of %lld",
            ht_checkpoint_file_of(c, part), part->name, found, beside, (long long)s->bits, (long long)s->group);
    }
    if (strcmp(part->dtype, type) != 0)
        return ht_fail(err, HT_ERR_FORMAT, "%s: tensor `%s` is of type %s, expected %s", ht_checkpoint_file_of(c, part),
                       part->name, part->dtype, type);
    return HT_OK;
}

static void put_part(const ht_checkpoint_files *c, const ht_safetensor *t, int64_t unit_bytes, ht_stored_tensor *out) {
    out->part[out->n_parts++] =
        (ht_tensor_part){ht_safetensors_file(c->tensors, t->file), t->offset, (size_t)unit_bytes};
}

static ht_status find_beside(const ht_checkpoint_files *c, const char *path, const ht_safetensor *weight,
                             const char *part, const ht_safetensor **out, ht_error *err) {
    if (find(c, path, part, out)) return HT_OK;
    return ht_fail(err, HT_ERR_FORMAT, "%s: tensor `%s.%s` is missing, without which `%s` means nothing",
                   ht_checkpoint_file_of(c, weight), path, part, weight->name);
}

/* Columns of a packed weight (U32 words); -1 when it is not one. */
static int64_t columns_of(const ht_safetensor *weight, const scheme *s) {
    if (weight->rank < 2 || strcmp(weight->dtype, "U32") != 0) return -1;
    int64_t words = weight->shape[weight->rank - 1];
    return words > 0 && words < INT64_MAX / 32 && words * 32 % s->bits == 0 ? words * 32 / s->bits : -1;
}

static ht_status complete(ht_checkpoint_files *c, const scheme *s, const char *path, const ht_safetensor *weight,
                          ht_error *err) {
    ht_stored_tensor *out = ht_checkpoint_stored(c, weight);
    const ht_safetensor *scales, *biases = NULL;
    ht_status status = find_beside(c, path, weight, "scales", &scales, err);
    if (status) return status;
    if (find(c, path, "global_scale", &biases))
        return ht_fail(err, HT_ERR_UNSUPPORTED, "%s: `%s` has a second scale, `%s`, which is not supported",
                       ht_checkpoint_file_of(c, weight), weight->name, biases->name);
    if (!c->quantization)
        return ht_fail(err, HT_ERR_FORMAT, "%s: `%s` is quantised, but config.json has no `quantization`",
                       ht_checkpoint_file_of(c, weight), weight->name);
    if (s->status && err) *err = s->error;
    if (s->status) return s->status;
    const struct mode *m = mode_of(s->mode);
    int64_t columns = columns_of(weight, s), unit = m ? m->unit : s->group;
    if (columns < 0)
        return ht_fail(err, HT_ERR_FORMAT, "%s: tensor `%s` (%s) holds no rows of %lld-bit numbers in words of U32",
                       ht_checkpoint_file_of(c, weight), weight->name, weight->dtype, (long long)s->bits);
    status = check_part(c, weight, scales, m ? "U8" : scales->dtype, columns, s, err);
    if (!status && columns % unit)
        return ht_fail(err, HT_ERR_UNSUPPORTED,
                       "%s: tensor `%s` has rows of %lld columns; %s is read in multiples of %lld",
                       ht_checkpoint_file_of(c, weight), weight->name, (long long)columns, s->mode, (long long)unit);
    int type = m ? (int)m->as : -1;
    if (!status && !m) {
        if (scales->weight_type >= 0) type = ht_affine_type(s->bits, s->group, (ht_weight_type)scales->weight_type);
        if (type < 0)
            return ht_fail(err, HT_ERR_UNSUPPORTED, "%s: tensor `%s` is of type %s, expected F32, F16 or BF16",
                           ht_checkpoint_file_of(c, scales), scales->name, scales->dtype);
        status = find_beside(c, path, weight, "biases", &biases, err);
        if (!status) status = check_part(c, weight, biases, scales->dtype, columns, s, err);
    }
    if (status) return status;
    const ht_weight_type_info *info = ht_weight_type_info_of((ht_weight_type)type);
    out->type = type;
    out->type_name = m ? m->name : info->name;
    out->dims[out->n_dims - 1] = columns;
    if (type == HT_W_F8_E4M3) { /* its scales stay separate (scaled_weights.c) */
        ht_checkpoint_stored(c, scales)->type_name = "F8_E8M0";
        return HT_OK;
    }
    out->unit = unit;
    out->n_bytes = weight->n_bytes * 8 / (size_t)s->bits / (size_t)info->block * info->block_bytes;
    put_part(c, weight, unit * s->bits / 8, out);
    put_part(c, scales, unit / s->group * (m ? 1 : (int64_t)ht_affine_of((ht_weight_type)type).scale_bytes), out);
    if (!m) put_part(c, biases, (int64_t)out->part[1].unit_bytes, out);
    ht_scheme_absorb(ht_checkpoint_stored(c, scales));
    if (!m) ht_scheme_absorb(ht_checkpoint_stored(c, biases));
    return HT_OK;
}

/* ---- opening ---- */

/* mlx-lm writes its settings under both names; other methods use quantization_config too, with a quant_method. */
const ht_json *ht_mlx_description(const ht_json *root) {
    const ht_json *q = ht_json_object_get(root, "quantization"),
                  *other = ht_json_object_get(root, "quantization_config");
    if (ht_json_is_object(q)) return q;
    return ht_json_is_object(other) && !ht_json_object_get(other, "quant_method") && ht_json_object_get(other, "bits")
               ? other
               : NULL;
}

/* Towers may be stored in an unknown form, so only weights of the text model must be complete. */
ht_status ht_mlx_join(ht_checkpoint_files *c, ht_error *err) {
    scheme *schemes;
    ht_status status = read_schemes(c, &schemes, err);
    for (size_t i = 0, n = ht_safetensors_count(c->tensors); !status && i < n; i++) {
        const ht_safetensor *t = ht_safetensors_at(c->tensors, i), *other;
        const bool is_text = ht_checkpoint_is_text(c, t->name);
        char path[NAME_SIZE];
        if (path_of(t->name, "weight", path) && t->weight_type < 0) {
            const bool counts = is_text && !strcmp(t->dtype, "U32");
            status = complete(c, scheme_of(schemes, path), path, t, counts ? err : NULL);
            if (!counts) status = HT_OK;
        } else if (is_text && c->quantization && path_of(t->name, "scales", path) && find(c, path, "scales", &other))
            status = find_beside(c, path, t, "weight", &other, err);
    }
    free(schemes);
    return status;
}
