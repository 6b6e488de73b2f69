/* Experts of directories, which transformers and mlx-lm stack differently: written for one from what the other reads, as they are
 * and in groups, with the names, the files and the numbers that are expected. */
#include "formats/safetensors_write.h"
#include "support/checkpoints.h"
#include "support/cpu_device.h"
#include "support/gguf_writer.h"
#include "support/options.h"
#include "support/safetensors_writer.h"
#include "support/scratch.h"
#include "support/test.h"

#include <hearth/convert.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static ht_importance *importance; /* of what is rounded; NULL: none */

static ht_convert_report convert(const char *from, const char *to, ht_container container, const char *type,
                                 ht_dtype dtype) {
    ht_convert_report report;
    ht_error err = {0};
    ht_convert_options o = OPTIONS(ht_convert_options, with.container = container, with.type = type, with.dtype = dtype,
                                   with.report = &report, with.n_threads = 2, with.importance = importance);
    if (ht_convert(from, to, &o, &err)) fail_msg("%s: %s", from, err.message);
    return report;
}

static void answers_alike(const char *a, const char *b, double most) {
    checkpoints_same_logits(a, b, cpu_device, most);
}

/* ---- names ---- */

static int count_named(const char *path, const char *part) {
    ht_checkpoint_files *c = checkpoint_files(path);
    int n = 0;
    for (size_t i = 0; i < ht_checkpoint_n_tensors(c); i++)
        n += strstr(ht_safetensors_at(c->tensors, i)->name, part) != NULL;
    ht_checkpoint_close(c);
    return n;
}

static bool has_experts(const char *path) { return count_named(path, ".experts.") + count_named(path, ".switch_") > 0; }

/* Experts as mlx-lm stacks them, and no others. */
static void stacked_for_mlx(const char *path) {
    const int n = count_named(path, ".switch_mlp.") + count_named(path, ".experts.switch_glu.");
    if (n == 0 || n != count_named(path, ".switch_")) fail_msg("%s: %d tensors for mlx-lm", path, n);
    if (count_named(path, ".experts.") != count_named(path, ".experts.switch_glu."))
        fail_msg("%s: experts for another reader are left", path);
}

/* Qwen's experts one by one, Gemma's with gate and up in one tensor; no scale is left of what was quantised. */
static void named_for_transformers(const char *path) {
    const bool gemma = count_named(path, ".per_expert_scale") > 0;
    assert_int_equal(count_named(path, ".switch_"), 0);
    assert_int_equal(count_named(path, ".weight_") + count_named(path, ".scales") + count_named(path, "_proj_"), 0);
    const int n = count_named(path, gemma ? ".experts.gate_up_proj" : ".experts.0.gate_proj.weight");
    assert_true(n > 0);
    assert_int_equal(n, count_named(path, gemma ? ".experts.down_proj" : ".experts.0.down_proj.weight"));
    assert_int_equal(count_named(path, ".experts.gate_up_proj") > 0, gemma);
}

static void go_both_ways(const char *name, bool is_file, void *n) {
    if (is_file || !has_experts(tiny_checkpoint(name))) return;
    scratch_make(); /* a directory of other files is not replaced */
    const char *from = tiny_checkpoint(name), *mlx = scratch_path("mlx"), *floats = scratch_path("floats"),
               *back = scratch_path("back");
    const bool scaled = strstr(name, "nvfp4") || strstr(name, "fp8") || strstr(name, "compressed");
    convert(from, mlx, HT_CONTAINER_MLX, NULL, HT_DTYPE_NONE);
    stacked_for_mlx(mlx);
    answers_alike(from, mlx, scaled ? 1e-5 : 0);
    convert(from, floats, HT_CONTAINER_SAFETENSORS, NULL, HT_DTYPE_NONE);
    named_for_transformers(floats);
    answers_alike(from, floats, scaled ? 1e-5 : 0);
    convert(mlx, back, HT_CONTAINER_SAFETENSORS, NULL, HT_DTYPE_NONE);
    checkpoints_same_tensors(floats, back);
    scratch_remove();
    *(int *)n += 1;
}

/* Of all directories with experts, values unchanged: scales that are multiplied in round to another order of factors. */
static void values_go_both_ways(void **state) {
    (void)state;
    int n = 0;
    tiny_checkpoints_each(go_both_ways, &n);
    assert_true(n >= 17);
}

/* Floats that were as transformers reads them come back with every byte. */
static void floats_come_back(void **state) {
    (void)state;
    static const char *const names[] = {"qwen3-moe-f32", "qwen3-moe-mixed-bf16", "gemma4-experts-bf16"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *mlx = scratch_path("mlx"), *back = scratch_path("back");
        ht_convert_report report = convert(tiny_checkpoint(names[i]), mlx, HT_CONTAINER_MLX, NULL, HT_DTYPE_NONE);
        assert_int_equal(report.n_rounded + report.n_inexact + report.n_floats, 0);
        convert(mlx, back, HT_CONTAINER_SAFETENSORS, NULL, HT_DTYPE_NONE);
        checkpoints_same_tensors(tiny_checkpoint(names[i]), back);
    }
}

/* ---- in groups ---- */

/* Fails when all experts' tensors with `part` in their names are the same. */
static void differs(const char *first, const char *second, const char *part) {
    ht_checkpoint_files *a = checkpoint_files(first), *b = checkpoint_files(second);
    int n = 0;
    for (size_t i = 0; i < ht_checkpoint_n_tensors(a); i++) {
        const ht_safetensor *x = ht_safetensors_at(a->tensors, i);
        if (!strstr(x->name, part) || !strstr(x->name, ".switch_")) continue;
        unsigned char *p = checkpoint_bytes(a, x), *q = checkpoint_bytes(b, ht_safetensors_find(b->tensors, x->name));
        n += memcmp(p, q, x->n_bytes) != 0;
        free(p);
        free(q);
    }
    ht_checkpoint_close(a);
    ht_checkpoint_close(b);
    assert_true(n > 0);
}

static void gather_importance(const char *path) {
    static const int32_t ids[] = {1, 5, 9, 2, 7, 3, 20, 30};
    ht_model_options options = OPTIONS(ht_model_options, with.device = cpu_device);
    ht_error err = {0};
    ht_model *m;
    if (ht_model_load(path, &options, &m, &err)) fail_msg("%s", err.message);
    if (ht_importance_gather_ids(m, ids, 8, NULL, &importance, &err)) fail_msg("%s", err.message);
    ht_model_free(m);
}

/* What is rounded in one step is what goes through GGUF: the same tensors, byte by byte. */
static void one_step_rounds_as_two(void **state) {
    (void)state;
    static const char *const models[] = {"qwen3-moe-q4_1.gguf", "gemma4-experts-q8_0.gguf"}, *const types[] = {
                                                                                                 "4:32", "8:32", "3:32",
                                                                                                 "mxfp4"};
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        const char *base = scratch_path("base"), *file = scratch_path("base.gguf");
        convert(tiny_checkpoint(models[i]), base, HT_CONTAINER_SAFETENSORS, NULL, HT_BF16);
        convert(base, file, HT_CONTAINER_GGUF, NULL, HT_DTYPE_NONE);
        for (size_t k = 0; k < sizeof types / sizeof *types; k++) {
            const char *one = scratch_path("one"), *two = scratch_path("two");
            ht_convert_report report = convert(base, one, HT_CONTAINER_SAME, types[k], HT_DTYPE_NONE);
            assert_true(report.n_rounded > 0 && report.bits < 10);
            convert(file, two, HT_CONTAINER_MLX, types[k], HT_DTYPE_NONE);
            stacked_for_mlx(one);
            checkpoints_same_tensors(one, two);
            answers_alike(one, two, 0);
            if (!strcmp(types[k], "8:32")) answers_alike(base, one, 0.5);
            if (strcmp(types[k], "3:32") != 0) continue;
            const char *plain = scratch_path(i ? "plain-gemma" : "plain-qwen");
            assert_int_equal(rename(one, plain), 0);
            gather_importance(base);
            convert(base, one, HT_CONTAINER_SAME, types[k], HT_DTYPE_NONE);
            convert(file, two, HT_CONTAINER_MLX, types[k], HT_DTYPE_NONE);
            ht_importance_free(importance);
            importance = NULL;
            checkpoints_same_tensors(one, two);
            differs(one, plain, ".up_proj.scales"); /* it was found under the experts' names */
        }
    }
}

/* Experts in eight bits with scales of their own, stacked or not, are read exactly before they are rounded. */
static void quantised_experts_are_rounded(void **state) {
    (void)state;
    static const char *const names[] = {"qwen3-moe-compressed-nvfp4", "qwen3-moe-modelopt-nvfp4-stacked",
                                        "gemma4-experts-modelopt-nvfp4", "gemma4-experts-compressed-nvfp4-stacked"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *floats = scratch_path("floats"), *direct = scratch_path("direct"),
                   *through = scratch_path("through");
        convert(tiny_checkpoint(names[i]), floats, HT_CONTAINER_SAFETENSORS, NULL, HT_DTYPE_NONE);
        convert(tiny_checkpoint(names[i]), direct, HT_CONTAINER_SAME, "8:32", HT_DTYPE_NONE);
        convert(floats, through, HT_CONTAINER_SAME, "8:32", HT_DTYPE_NONE);
        stacked_for_mlx(direct);
        checkpoints_same_tensors(direct, through);
        answers_alike(floats, direct, 0.2);
    }
}

/* A router in fp8, which mlx-lm does not read, has its values in f32. */
static void quantised_routers_become_floats(void **state) {
    (void)state;
    const char *out = scratch_path("out");
    assert_string_equal(
        checkpoint_type(tiny_checkpoint("gemma4-experts-fp8-rows"), "model.layers.0.router.proj.weight"), "F8_E5M2");
    convert(tiny_checkpoint("gemma4-experts-fp8-rows"), out, HT_CONTAINER_SAME, "4:32", HT_DTYPE_NONE);
    assert_string_equal(checkpoint_type(out, "model.layers.0.router.proj.weight"), "F32");
    assert_int_equal(count_named(out, "router.proj.weight_"), 0);
    answers_alike(tiny_checkpoint("gemma4-experts-fp8-rows"), out, 1e-5); /* no row is whole groups */
}

/* ---- files ---- */

typedef struct shard {
    const ht_checkpoint_files *from;
    const ht_safetensor *tensor[256];
    ht_tensor_output output[256];
    char names[256][200];
    int n;
    unsigned char *bytes;
} shard;

static ht_status bytes_of(void *user, int i, const void **bytes, ht_error *err) {
    (void)err;
    shard *s = user;
    free(s->bytes);
    *bytes = s->bytes = s->tensor[i] ? checkpoint_bytes(s->from, s->tensor[i]) : calloc(1, 64);
    return HT_OK;
}

static void add(shard *s, const char *name, const ht_safetensor *t) {
    static const int64_t shape[] = {4, 4};
    assert_true(s->n < 256);
    snprintf(s->names[s->n], sizeof s->names[s->n], "%s", name);
    s->tensor[s->n] = t;
    s->output[s->n] = t ? (ht_tensor_output){s->names[s->n], t->dtype, t->rank, t->shape, t->n_bytes}
                        : (ht_tensor_output){s->names[s->n], "F32", 2, shape, 64};
    s->n++;
}

/* Layer 0's experts but the first fill the second file of three; where `nested` the text model is a part of a larger one, with a
 * tower. */
static int shard_of(const char *name) {
    if (strstr(name, "layers.0.mlp.experts.")) return strstr(name, "experts.0.") ? 0 : 1;
    return strstr(name, "layers.0.") ? 0 : 2;
}

static void write_shards(const char *from, const char *to, bool nested) {
    ht_checkpoint_files *c = checkpoint_files(from);
    char map[65536] = "{\"weight_map\": {", path[400], name[200];
    ht_error err = {0};
    for (int i = 0; i < 3; i++) {
        shard *s = calloc(1, sizeof *s);
        assert_non_null(s);
        s->from = c;
        for (size_t k = 0; k < ht_checkpoint_n_tensors(c); k++) {
            const ht_safetensor *t = ht_safetensors_at(c->tensors, k);
            const bool inner = nested && !strncmp(t->name, "model.", 6);
            if (shard_of(t->name) != i) continue;
            snprintf(name, sizeof name, "%s%s", inner ? "model.language_model." : "", t->name + (inner ? 6 : 0));
            add(s, name, t);
        }
        if (nested && i == 2) add(s, "model.vision_tower.patch.weight", NULL);
        for (int k = 0; k < s->n; k++)
            snprintf(map + strlen(map), sizeof map - strlen(map), "%s\"%s\": \"model-%05d-of-00003.safetensors\"",
                     i || k ? ", " : "", s->names[k], i + 1);
        snprintf(path, sizeof path, "%s/model-%05d-of-00003.safetensors", to, i + 1);
        if (ht_safetensors_write(path, s->output, s->n, NULL, 0, bytes_of, s, &err)) fail_msg("%s", err.message);
        free(s->bytes);
        free(s);
    }
    snprintf(map + strlen(map), sizeof map - strlen(map), "}}");
    snprintf(path, sizeof path, "%s/model.safetensors.index.json", to);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(map, f);
    fclose(f);
    snprintf(path, sizeof path, "cp %s/config.json %s/", from, to);
    assert_int_equal(system(path), 0);
    ht_checkpoint_close(c);
}

static bool is_there(const char *directory, const char *name) {
    char path[400];
    snprintf(path, sizeof path, "%s/%s", directory, name);
    return access(path, R_OK) == 0;
}

/* Tensors stay in the file of their first rows; one that none begins in is not written. */
static void shards_stay(void **state) {
    (void)state;
    const char *base = scratch_path("base");
    convert(tiny_checkpoint("qwen3-moe-q4_1.gguf"), base, HT_CONTAINER_SAFETENSORS, NULL, HT_BF16);
    for (int nested = 0; nested < 2; nested++) {
        const char *parts = scratch_path(nested ? "nested" : "parts"),
                   *out = scratch_path(nested ? "out-nested" : "out"),
                   *back = scratch_path(nested ? "back-nested" : "back");
        assert_int_equal(mkdir(parts, 0777), 0);
        write_shards(base, parts, nested);
        answers_alike(base, parts, 0);
        convert(parts, out, HT_CONTAINER_MLX, NULL, HT_DTYPE_NONE);
        stacked_for_mlx(out);
        assert_true(is_there(out, "model-00001-of-00003.safetensors"));
        assert_false(is_there(out, "model-00002-of-00003.safetensors"));
        assert_true(is_there(out, "model-00003-of-00003.safetensors"));
        answers_alike(base, out, 0);
        assert_int_equal(count_named(out, "model.language_model.") > 0, nested);
        assert_int_equal(count_named(out, "vision_tower"), nested);
        convert(out, back, HT_CONTAINER_SAFETENSORS, NULL, HT_DTYPE_NONE);
        checkpoints_same_tensors(parts, back);
        convert(parts, out, HT_CONTAINER_SAME, "8:32", HT_DTYPE_NONE);
        answers_alike(base, out, 0.2);
    }
}

/* ---- what stays as it is ---- */

/* Without a reader that is named, floats and their names stay; groups stay where mlx-lm's names are there already. */
static void names_stay(void **state) {
    (void)state;
    const char *out = scratch_path("floats");
    convert(tiny_checkpoint("qwen3-moe-mixed-bf16"), out, HT_CONTAINER_SAME, "f32", HT_DTYPE_NONE);
    assert_true(count_named(out, ".experts.0.") > 0);
    assert_int_equal(count_named(out, ".switch_"), 0);
    out = scratch_path("groups");
    convert(tiny_checkpoint("qwen3-moe-mlx4-bf16"), out, HT_CONTAINER_MLX, NULL, HT_DTYPE_NONE);
    checkpoints_same_tensors(tiny_checkpoint("qwen3-moe-mlx4-bf16"), out);
    const char *again = scratch_path("again");
    convert(out, again, HT_CONTAINER_SAME, "4:64", HT_DTYPE_NONE);
    checkpoints_same_tensors(out, again);
}

static void groups_are_not_for_transformers(void **state) {
    (void)state;
    static const char *const types[] = {"4", "mxfp4"};
    const int before = scratch_count();
    for (int i = 0; i < 2; i++) {
        ht_error err = {0};
        ht_convert_options o =
            OPTIONS(ht_convert_options, with.container = HT_CONTAINER_SAFETENSORS, with.type = types[i]);
        const ht_status st = ht_convert(tiny_checkpoint("qwen3-moe-f32"), scratch_path("x"), &o, &err);
        assert_error(st, &err, HT_ERR_ARGUMENT, types[i]);
        assert_non_null(strstr(err.message, "transformers"));
    }
    assert_int_equal(scratch_count(), before);
}

static void put_value(gguf_writer *w, const ht_gguf_value *v) {
    char key[64];
    const size_t head = v->type == HT_GGUF_ARRAY ? 12 : 0;
    unsigned char *bytes = calloc(1, head + v->items_bytes);
    assert_non_null(bytes);
    snprintf(key, sizeof key, "%.*s", (int)v->key.len, v->key.data);
    if (head) bytes[0] = (unsigned char)v->item_type;
    for (int i = 0; head && i < 8; i++) bytes[4 + i] = (unsigned char)(v->n_items >> 8 * i);
    memcpy(bytes + head, v->items, v->items_bytes);
    gguf_put_raw(w, key, v->type, bytes, head + v->items_bytes);
    free(bytes);
}

/* Writes gpt-oss with factors of its experts to the scratch directory. */
static void write_scaled(const char *name) {
    static const char *const parts[] = {"gate", "up", "down"};
    static const float factors[3] = {0.5f, 2, 4};
    ht_checkpoint_files *c = checkpoint_files("tests/golden/families/gpt_oss.gguf");
    gguf_writer w = gguf_writer_new();
    for (size_t i = 0; i < ht_gguf_n_values(c->gguf); i++) put_value(&w, ht_gguf_value_at(c->gguf, i));
    for (size_t i = 0; i < ht_gguf_n_tensors(c->gguf); i++) {
        const ht_gguf_tensor *t = ht_gguf_tensor_at(c->gguf, i);
        char tensor[64];
        snprintf(tensor, sizeof tensor, "%.*s", (int)t->name.len, t->name.data);
        gguf_put_tensor(&w, tensor, (ht_weight_type)t->type, t->n_dims, t->dims, t->data);
    }
    for (int i = 0; i < 3; i++) {
        char tensor[64];
        snprintf(tensor, sizeof tensor, "blk.1.ffn_%s_exps.scale", parts[i]);
        gguf_put_tensor(&w, tensor, HT_W_F32, 1, (int64_t[]){3}, factors);
    }
    ht_checkpoint_close(c);
    gguf_write(&w, name);
}

/* A factor is one of the product, to which the bias is added. Directories have it in the weights. */
static void factors_and_biases(void **state) {
    (void)state;
    write_scaled("scaled.gguf");
    convert(scratch_path("scaled.gguf"), scratch_path("floats"), HT_CONTAINER_SAFETENSORS, NULL, HT_F32);
    answers_alike(scratch_path("scaled.gguf"), scratch_path("floats"), 1e-5);
}

/* Writes DeepSeek V3 with the latents' projection in fp8 to the scratch directory. Its scales are of 24 rows, but the
 * heads' matrices in it have 10 and 12 rows, so that scales begin within matrices. */
static void write_fp8_heads(const char *to) {
    enum { HEIGHT = 24, WIDTH = 16 };
    ht_checkpoint_files *c = checkpoint_files("tests/golden/families/deepseek_v3");
    safetensors_writer w = {0};
    char name[128], *text = malloc(c->config_size + 128);
    assert_non_null(text);
    for (size_t i = 0; i < ht_checkpoint_n_tensors(c); i++) {
        const ht_safetensor *t = ht_safetensors_at(c->tensors, i);
        unsigned char *bytes = checkpoint_bytes(c, t);
        if (!strstr(t->name, "kv_b_proj.weight"))
            safetensors_put(&w, t->name, t->dtype, t->rank, t->shape, bytes, t->n_bytes);
        else {
            const size_t n = (size_t)(t->shape[0] * t->shape[1]);
            const int64_t blocks[] = {(t->shape[0] + HEIGHT - 1) / HEIGHT, (t->shape[1] + WIDTH - 1) / WIDTH};
            float scales[64];
            for (size_t k = 0; k < n; k++) bytes[k] = (unsigned char)((k * 37 % 2 << 7) | (0x20 + k * 29 % 24));
            for (int64_t k = 0; k < blocks[0] * blocks[1]; k++) scales[k] = 0.25f + 0.125f * (float)(k * 5 % 7);
            assert_true(blocks[0] * blocks[1] <= 64);
            safetensors_put(&w, t->name, "F8_E4M3", 2, t->shape, bytes, n);
            snprintf(name, sizeof name, "%s_scale_inv", t->name);
            safetensors_put(&w, name, "F32", 2, blocks, scales, (size_t)(blocks[0] * blocks[1]) * sizeof *scales);
        }
        free(bytes);
    }
    const int n =
        sprintf(text, "{\"quantization_config\": {\"quant_method\": \"fp8\", \"weight_block_size\": [24, 16]},%.*s",
                (int)c->config_size - 1, c->config_text + 1);
    assert_int_equal(mkdir(scratch_path(to), 0700), 0);
    snprintf(name, sizeof name, "%s/model.safetensors", to);
    safetensors_write(&w, name);
    snprintf(name, sizeof name, "%s/config.json", to);
    scratch_write(name, text, (size_t)n);
    ht_checkpoint_close(c);
    free(text);
}

static void latent_heads_in_fp8(void **state) {
    (void)state;
    write_fp8_heads("fp8");
    convert(scratch_path("fp8"), scratch_path("floats"), HT_CONTAINER_SAFETENSORS, NULL, HT_F32);
    answers_alike(scratch_path("fp8"), scratch_path("floats"), 1e-5);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(values_go_both_ways),
                                       in_scratch(floats_come_back),
                                       in_scratch(one_step_rounds_as_two),
                                       in_scratch(quantised_experts_are_rounded),
                                       in_scratch(quantised_routers_become_floats),
                                       in_scratch(shards_stay),
                                       in_scratch(names_stay),
                                       in_scratch(groups_are_not_for_transformers),
                                       in_scratch(factors_and_biases),
                                       in_scratch(latent_heads_in_fp8)};
    return cmocka_run_group_tests(tests, cpu_device_open, cpu_device_close);
}
