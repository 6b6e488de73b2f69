#include "checkpoint/scheme.h"

#include "base/error.h"
#include "base/text.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- quantization_config ---- */

/* Supported fp8 and NVFP4 methods by quant_method and `format` or `quant_algo`, with the suffix of the scales. The type
 * of each tensor follows from the tensor itself. */
static const struct method {
    const char *method, *form;
    const char *scale;
} methods[] = {
    {"fp8", NULL, "_scale_inv"},
    {"fbgemm_fp8", NULL, "_scale"},
    {"mxfp4", NULL, "_scales"},
    {"compressed-tensors", "float-quantized", "_scale"},
    {"compressed-tensors", "naive-quantized", "_scale"},
    {"compressed-tensors", "nvfp4-pack-quantized", "_scale"},
    {"compressed-tensors", "mixed-precision", "_scale"},
    {"modelopt", "FP8", "_scale"},
    {"modelopt", "NVFP4", "_scale"},
    {"modelopt", "MIXED_PRECISION", "_scale"},
};

static const struct method *method_of(const char *method, const char *form) {
    for (size_t i = 0; i < sizeof methods / sizeof *methods; i++)
        if (!strcmp(method, methods[i].method) && (!methods[i].form || !strcmp(form, methods[i].form)))
            return &methods[i];
    return NULL;
}

static void refuse(ht_json_reader *r, const char *method, const char *form, const char *detail) {
    ht_json_fail(r, HT_ERR_UNSUPPORTED,
                 "weights quantised by `%.40s`%s%.40s%s are not supported; a GGUF file, MLX's ways, or f32, f16, bf16, "
                 "fp8 or nvfp4 weights, are",
                 method, *form ? " as " : "", form, detail);
}

static void put_block(ht_json_reader *r, int64_t rows, int64_t columns, ht_quantized *out) {
    if (out->block[0] && (out->block[0] != rows || out->block[1] != columns))
        ht_json_fail(r, HT_ERR_UNSUPPORTED,
                     "weights have scales for blocks of %lld by %lld and of %lld by %lld; one size is supported",
                     (long long)out->block[0], (long long)out->block[1], (long long)rows, (long long)columns);
    out->block[0] = rows;
    out->block[1] = columns;
}

/* Reads an optional block size [rows, columns] under `key`. */
static void read_block(ht_json_reader *r, const ht_json *object, const char *key, ht_quantized *out) {
    const ht_json *block = ht_json_object_get(object, key);
    int64_t size[2] = {0};
    if (!block || ht_json_is_null(block)) return;
    for (size_t i = 0; i < 2; i++)
        if (ht_json_array_size(block) != 2 || !ht_json_whole(ht_json_array_get(block, i), &size[i]) || size[i] < 1) {
            char found[128];
            ht_json_fail(r, HT_ERR_FORMAT, "%s is %s, expected two numbers of rows and columns", key,
                         ht_json_describe(block, found, sizeof found));
            return;
        }
    put_block(r, size[0], size[1], out);
}

/* ---- compressed-tensors: groups of modules with one scheme each ---- */

/* Reads the weight scheme of a group; 4-bit schemes follow from the tensors. */
static void read_weights(ht_json_reader *r, const char *method, const char *form, const ht_json *weights,
                         ht_quantized *out) {
    bool symmetric = true;
    const char *order = "", *strategy = "";
    int64_t bits = 8, size = 0;
    ht_json_bool(r, weights, "symmetric", &symmetric);
    ht_json_str(r, weights, "strategy", &strategy);
    ht_json_i64(r, weights, "num_bits", &bits);
    if (ht_json_is_string(ht_json_object_get(weights, "actorder"))) ht_json_str(r, weights, "actorder", &order);
    if (!symmetric) refuse(r, method, form, " with zero points");
    if (!strcmp(order, "group") || !strcmp(order, "dynamic")) refuse(r, method, form, " in an order of their own");
    if (bits != 8) return;
    read_block(r, weights, "block_structure", out);
    if (!strcmp(strategy, "group") && ht_json_i64(r, weights, "group_size", &size) && size > 0)
        put_block(r, 1, size, out);
}

static void read_groups(ht_json_reader *r, const char *method, const char *form, const ht_json *how,
                        ht_quantized *out) {
    const char *name;
    ht_json *group;
    const ht_json *sparsity = ht_json_object(r, how, "sparsity_config");
    const char *sparse = "dense";
    ht_json_str(r, sparsity, "format", &sparse);
    if (strcmp(sparse, "dense") != 0) refuse(r, method, sparse, "");
    if (ht_json_object_size(ht_json_object_get(how, "transform_config")))
        refuse(r, method, form, " with a transform_config");
    ht_json_object_foreach((ht_json *)ht_json_object(r, how, "config_groups"), name, group) {
        const char *own = form;
        if (ht_json_is_string(ht_json_object_get(group, "format"))) ht_json_str(r, group, "format", &own);
        const struct method *s = method_of(method, own);
        if (!s)
            refuse(r, method, own, "");
        else
            read_weights(r, method, own, ht_json_object(r, group, "weights"), out);
        if (r->status) return;
    }
}

/* ---- ModelOpt: one algorithm for all layers, or one per layer ---- */

static void read_layers(ht_json_reader *r, const char *method, const ht_json *how) {
    const char *name;
    ht_json *layer;
    ht_json_object_foreach((ht_json *)ht_json_object(r, how, "quantized_layers"), name, layer) {
        const char *algorithm = "";
        ht_json_str(r, layer, "quant_algo", &algorithm);
        if (!method_of(method, algorithm)) refuse(r, method, algorithm, "");
        if (r->status) return;
    }
}

ht_quantized ht_quantized_read(ht_json_reader *r, const ht_json *root) {
    ht_quantized out = {0};
    if (ht_mlx_description(root)) return out; /* ht_mlx_join */
    const ht_json *how = ht_json_object(r, root, "quantization_config");
    if (!how) return out;
    const char *method = "an unnamed method", *form = "";
    ht_json_str(r, how, "quant_method", &method);
    bool modelopt = !strcmp(method, "modelopt");
    ht_json_str(r, how, modelopt ? "quant_algo" : "format", &form);
    if (r->status) return out;
    const struct method *s = method_of(method, form);
    if (!s) {
        refuse(r, method, form, "");
        return out;
    }
    out.scale = s->scale;
    if (!strcmp(method, "fp8")) read_block(r, how, "weight_block_size", &out);
    if (!strcmp(method, "compressed-tensors")) read_groups(r, method, form, how, &out);
    if (modelopt) read_layers(r, method, how);
    return out;
}

/* ---- parts of weights ---- */

void ht_scheme_absorb(ht_stored_tensor *t) {
    t->n_dims = 1;
    t->dims[0] = 0;
    t->n_bytes = 0;
}

bool ht_scheme_owner(const ht_checkpoint_files *c, const ht_stored_tensor *t, ht_stored_tensor *of) {
    static const struct {
        const char *end, *weight;
    } names[] = {{".weight_scale_inv", ".weight"},
                 {".weight_scale", ".weight"},
                 {".weight_scale_2", ".weight"},
                 {".weight_global_scale", ".weight"},
                 {".input_scale", ".weight"},
                 {".input_global_scale", ".weight"},
                 {".activation_scale", ".weight"},
                 {".scales", ".weight"},
                 {"_scales", ""},
                 {".biases", ".weight"},
                 {"_weight_scale", ""},
                 {"_weight_scale_2", ""},
                 {"_input_scale", ""},
                 {"_scale_inv", ""},
                 {"_scale", ""}};
    char name[HT_SIBLING_NAME];
    for (size_t i = 0; c->scheme->has_scales && i < sizeof names / sizeof *names; i++)
        if (ht_sibling_name(t->name, t->name_len, names[i].end, names[i].weight, name) &&
            ht_checkpoint_find(c, name, of) && of->type >= 0 && !ht_weight_is_float(of->type))
            return true;
    return false;
}

/* Reads `x.scale`, where GGUF files store the scales of `x.weight`. */
static ht_status gguf_product_scales(const ht_checkpoint_files *c, const ht_product_scales *of, float *out, bool *found,
                                     size_t *number, ht_error *err) {
    char name[HT_SIBLING_NAME];
    ht_stored_tensor t;
    const char *stem = strstr(of->name, "weight");
    snprintf(name, sizeof name, "%.*sscale", stem ? (int)(stem - of->name) : 0, of->name);
    *found = stem && ht_checkpoint_find(c, name, &t);
    if (!*found) return HT_OK;
    *number = t.number;
    ht_status status = ht_checkpoint_need(c, name, &of->n, 1, &t, err);
    if (!status) status = ht_tensor_read_f32(&t, of->n, out, err);
    for (int64_t i = 0; !status && i < of->n; i++)
        if (!isfinite(out[i]) || out[i] == 0)
            status = ht_fail(err, HT_ERR_FORMAT, "%s: `%s` holds %g, expected a finite number that is not 0",
                             t.file_name, name, (double)out[i]);
    return status;
}

/* ---- schemes ---- */

static const ht_scheme gguf = {.product_scales = gguf_product_scales}, floats = {0},
                       mlx = {.join = ht_mlx_join, .has_scales = true},
                       scaled = {.join = ht_nvfp4_join, /* fp8 and NVFP4: one checkpoint may have both */
                                 .elements = ht_nvfp4_numbers,
                                 .product_scales = ht_nvfp4_product_scales,
                                 .has_scales = true},
                       mxfp4 = {.join = ht_mxfp4_join, .elements = ht_mxfp4_blocks, .has_scales = true};

/* Chooses the scheme by the types of the tensors if config.json describes no MLX groups. */
static const ht_scheme *scheme_of_tensors(const ht_safetensors *tensors) {
    const ht_scheme *out = &floats;
    for (size_t i = 0; i < ht_safetensors_count(tensors); i++) {
        const ht_safetensor *t = ht_safetensors_at(tensors, i);
        if (!strcmp(t->dtype, "U8") && ht_ends_with(t->name, "_proj_blocks")) return &mxfp4;
        if (!strncmp(t->dtype, "F8_", 3) || ht_ends_with(t->name, "_packed")) return &scaled;
        if (!strcmp(t->dtype, "U32") && ht_ends_with(t->name, ".weight")) out = &mlx;
    }
    return out;
}

void ht_scheme_choose(ht_checkpoint_files *c, const ht_json *config) {
    if (c->gguf) {
        c->scheme = &gguf;
        return;
    }
    ht_json_reader r = {.file = "config.json"};
    c->quantized = ht_quantized_read(&r, config);
    c->quantization = ht_json_incref((ht_json *)(uintptr_t)ht_mlx_description(config));
    c->scheme = c->quantization ? &mlx : scheme_of_tensors(c->tensors);
}
