/* Fusing: a fused checkpoint of every layout answers as its base does with the adapters; types, metadata and files are
 * those that were promised; what is refused or fails leaves nothing. */
#include "base/half.h"
#include "checkpoint/checkpoint.h"
#include "formats/gguf_write.h"
#include "formats/json.h"
#include "models/adapter.h"
#include "models/weights.h"
#include "support/adapters.h"
#include "support/checkpoints.h"
#include "support/multiply.h"
#include "support/options.h"
#include "support/scratch.h"
#include "support/test.h"
#include "support/weights.h"

#include <hearth/hearth.h>

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

enum { N_IDS = 29 };

/* clang-format off */
static const char *const models[] = {
    "llama-f32", "llama-linear-bias-bf16", "qwen2-tied-bf16", "qwen3-moe-f32", "qwen3-moe-mixed-bf16",
    "gemma2-f16-shards", "gemma3-multimodal-bf16-shards", "gemma4-experts-bf16", "gemma4-k-is-v-f16-shards",
    "gemma4-multimodal-bf16", "gemma4-shared-bf16", "llama-f16.gguf", "llama-q4_1.gguf", "llama-nvfp4.gguf",
    "qwen2-q4_0.gguf", "qwen3-moe-q4_1.gguf", "qwen3-moe-nvfp4.gguf", "gemma4-experts-q8_0.gguf", "gemma3-mlx6-bf16",
    "gemma4-experts-mlx4-router8-bf16", "llama-mlx4-bf16", "llama-mxfp4", "qwen3-mlx5-f32", "qwen3-moe-mlx4-bf16",
    "qwen3-moe-mxfp8", "qwen2-nvfp4", "gemma4-experts-compressed-nvfp4", "gemma4-experts-compressed-nvfp4-stacked",
    "gemma4-experts-fp8-rows", "gemma4-experts-modelopt-nvfp4", "llama-compressed-fp8-channel", "llama-fp8-blocks",
    "llama-fp8-whole", "llama-modelopt-nvfp4", "mistral-compressed-mixed", "qwen3-moe-compressed-nvfp4",
    "qwen3-moe-fp8-blocks", "qwen3-moe-modelopt-fp8", "qwen3-moe-modelopt-nvfp4-stacked", "../families/deepseek_v3",
    "../families/deepseek_v3.gguf"};
/* clang-format on */
enum { N_MODELS = sizeof models / sizeof *models };

/* ---- models and logits ---- */

static ht_model *load(const char *path) {
    ht_error err = {0};
    ht_model *m;
    const ht_model_options options =
        OPTIONS(ht_model_options, with.precision = HT_PRECISION_REFERENCE, with.kv_dtype = HT_F32);
    if (ht_model_load(path, &options, &m, &err)) fail_msg("%s: %s", path, err.message);
    return m;
}

static bool keep_logits(const float *logits, int64_t first, int64_t n_rows, int32_t vocab, void *user) {
    memcpy((float *)user + first * vocab, logits, (size_t)(n_rows * vocab) * sizeof *logits);
    return true;
}

static size_t n_logits(const ht_model *m) { return (size_t)m->vocab * N_IDS; }

static float *run(ht_model *m, ht_adapter *const *adapters, const float *scales, int n) {
    ht_session *s;
    int32_t ids[N_IDS];
    uint64_t random = 11;
    for (int i = 0; i < N_IDS; i++) ids[i] = (int32_t)(test_random(&random) % (uint32_t)m->vocab);
    float *logits = test_alloc(n_logits(m) * sizeof *logits);
    const ht_forward_options options = OPTIONS(ht_forward_options, with.all_rows = true);
    assert_works(ht_session_new, m, NULL, &s);
    assert_works(ht_session_set_adapters, s, adapters, scales, n);
    assert_works(ht_session_forward, s, ids, N_IDS, &options, keep_logits, logits);
    ht_session_free(s);
    return logits;
}

static float *run_path(const char *path) {
    ht_model *m = load(path);
    float *logits = run(m, NULL, NULL, 0);
    ht_model_free(m);
    return logits;
}

/* The name of what is fused: a file when the model is one. */
static const char *out_of(const char *name, const char *out) {
    char file[32];
    const char *end = strstr(name, ".gguf");
    snprintf(file, sizeof file, "%s%s", out, end ? end : "");
    return scratch_path(file);
}

static ht_fuse_report fuse(const char *model, ht_adapter *const *adapters, const float *scales, int n, const char *out,
                           ht_fuse_options options) {
    ht_error err = {0};
    ht_fuse_report report;
    options.report = &report;
    if (ht_fuse(model, adapters, scales, n, out, &options, &err)) fail_msg("%s: %s", model, err.message);
    return report;
}

static ht_fuse_options as(ht_dtype dtype) { return OPTIONS(ht_fuse_options, with.dtype = dtype); }

static void empty_scratch(void) {
    scratch_remove();
    scratch_make();
}

/* ---- tensors ---- */

static void name_of(const ht_stored_tensor *t, char name[256]) {
    snprintf(name, 256, "%.*s", (int)t->name_len, t->name);
}

static float rounded(float x, int type) {
    if (type == HT_W_F32) return x;
    return type == HT_W_BF16 ? ht_bf16_to_f32(ht_f32_to_bf16(x)) : ht_f16_to_f32(ht_f32_to_f16(x));
}

/* Floats of the result in its own type are those of the result in f32, rounded once; both have the same tensors. */
static void check_rounding(const char *exact_path, const char *path) {
    ht_checkpoint_files *exact = checkpoint_files(exact_path), *c = checkpoint_files(path);
    assert_int_equal(ht_checkpoint_n_tensors(exact), ht_checkpoint_n_tensors(c));
    for (size_t i = 0; i < ht_checkpoint_n_tensors(c); i++) {
        char name[256];
        ht_stored_tensor t, wide;
        ht_checkpoint_tensor_at(c, i, &t);
        name_of(&t, name);
        assert_true(ht_checkpoint_find(exact, name, &wide));
        const size_t n = (size_t)ht_elements(t.dims, t.n_dims);
        assert_int_equal(ht_elements(wide.dims, wide.n_dims), n);
        if (!ht_weight_is_float(t.type) || !n) continue;
        float *x = test_alloc(n * sizeof *x), *y = test_alloc(n * sizeof *y);
        assert_works(ht_tensor_read_f32, &wide, (int64_t)n, x);
        assert_works(ht_tensor_read_f32, &t, (int64_t)n, y);
        for (size_t k = 0; k < n; k++)
            if (rounded(x[k], t.type) != y[k])
                fail_msg("%s: %.9g was rounded to %.9g", name, (double)x[k], (double)y[k]);
        free(x);
        free(y);
    }
    ht_checkpoint_close(exact);
    ht_checkpoint_close(c);
}

static int n_quantized(const char *path) {
    ht_checkpoint_files *c = checkpoint_files(path);
    int n = 0;
    for (size_t i = 0; i < ht_checkpoint_n_tensors(c); i++) {
        ht_stored_tensor t;
        ht_checkpoint_tensor_at(c, i, &t);
        n += t.type >= 0 && !ht_weight_is_float(t.type);
    }
    ht_checkpoint_close(c);
    return n;
}

/* ---- values ---- */

static void check_values(const char *path, int64_t every) {
    static const float scales[2] = {1, -0.75f};
    const char *exact = out_of(path, "exact"), *own = out_of(path, "own"), *dense = out_of(path, "dense");
    ht_model *m = load(path);
    ht_adapter *a[2] = {test_adapter_for(m, 3, every, 5), test_adapter_for(m, 20, 3 * every, 6)};
    float *base = run(m, NULL, NULL, 0), *want = run(m, a, scales, 2);
    const size_t n = n_logits(m);

    const ht_fuse_report r = fuse(path, a, scales, 2, exact, as(HT_F32));
    float *got = run_path(exact);
    const double off = test_difference(got, want, n), moved = test_difference(want, base, n);
    assert_true(off < 1e-5);
    assert_true(moved > 1e-2);
    assert_true(r.n_changed > 0 && r.noise < 1e-6 && fabs(r.kept - 1) < 1e-6);
    free(got);

    const ht_fuse_report r_own = fuse(path, a, scales, 2, own, as(HT_DTYPE_NONE));
    got = run_path(own);
    const double off_own = test_difference(got, want, n);
    print_message("%-40s moved %.1e, off %.1e, in its own type %.1e\n", strrchr(path, '/') + 1, moved, off, off_own);
    assert_true(off_own < moved / 10);
    assert_true(r_own.n_changed == r.n_changed && r_own.n_dense == r.n_dense);
    check_rounding(exact, own);
    free(got);

    ht_fuse_options options = as(HT_F32);
    options.dense = true;
    const ht_fuse_report r_dense = fuse(path, a, scales, 2, dense, options);
    got = run_path(dense);
    assert_true(test_difference(got, want, n) < 1e-5);
    assert_int_equal(n_quantized(dense), 0);
    assert_true(r_dense.n_dense >= r.n_dense);
    free(got);

    free(base);
    free(want);
    for (int i = 0; i < 2; i++) ht_adapter_free(a[i]);
    ht_model_free(m);
}

UNIT_TEST(fused_models_answer_like_adapters) {
    for (int i = 0; i < N_MODELS; i++) {
        if (TEST_SLOW && i % 5) continue;
        check_values(tiny_checkpoint(models[i]), i % 2 ? 2 : 1);
        assert_int_equal(scratch_count(), 3); /* nothing but what was asked for */
        empty_scratch();
    }
}

/* Transposed matrices, gate and up in turns, heads of latent attention. */
static void check_family(const char *path, bool is_file, void *user) {
    (void)is_file, (void)user;
    const char *out = out_of(strrchr(path, '/') + 1, "out");
    ht_model *m = load(path);
    ht_adapter *a = test_adapter_for(m, 3, 1, 5);
    const ht_fuse_options options = as(HT_F32);
    fuse(path, &a, NULL, 1, out, options);
    float *base = run(m, NULL, NULL, 0), *want = run(m, &a, NULL, 1), *got = run_path(out);
    const double off = test_difference(got, want, n_logits(m)), moved = test_difference(want, base, n_logits(m));
    if (!(off < 1e-5 && moved > 1e-2)) fail_msg("%s: moved %.1e, off %.1e", path, moved, off);
    free(base);
    free(want);
    free(got);
    ht_adapter_free(a);
    ht_model_free(m);
    empty_scratch();
}

UNIT_TEST(fused_families_answer_like_adapters) { family_checkpoints_each(check_family, NULL); }

/* ---- metadata and files ---- */

static ht_adapter *adapter_for(const char *model, int64_t every) {
    ht_model *m = load(model);
    ht_adapter *a = test_adapter_for(m, 3, every, 5);
    ht_model_free(m);
    return a;
}

static bool is_key(const ht_gguf_value *v, const char *key) {
    return v->key.len == strlen(key) && !memcmp(v->key.data, key, v->key.len);
}

/* All values and tensors in their order; the file type is a new one when most weights are floats now. */
UNIT_TEST(metadata_and_order_are_kept) {
    ht_adapter *a = adapter_for(tiny_checkpoint("llama-q4_1.gguf"), 1);
    const char *out = scratch_path("out.gguf");
    fuse(tiny_checkpoint("llama-q4_1.gguf"), &a, NULL, 1, out, as(HT_DTYPE_NONE));
    ht_checkpoint_files *from = checkpoint_files(tiny_checkpoint("llama-q4_1.gguf")), *to = checkpoint_files(out);
    size_t n = ht_gguf_n_values(from->gguf), added = 0;
    for (size_t i = 0; i < n; i++) {
        const ht_gguf_value *x = ht_gguf_value_at(from->gguf, i), *y = ht_gguf_value_at(to->gguf, i);
        assert_true(x->key.len == y->key.len && !memcmp(x->key.data, y->key.data, x->key.len));
        assert_true(x->type == y->type && x->item_type == y->item_type && x->n_items == y->n_items);
        if (!is_key(x, "general.file_type")) {
            assert_int_equal(x->items_bytes, y->items_bytes);
            assert_memory_equal(x->items, y->items, x->items_bytes);
        }
    }
    for (size_t i = n; i < ht_gguf_n_values(to->gguf); i++)
        added += is_key(ht_gguf_value_at(to->gguf, i), "hearth.fused") ||
                 is_key(ht_gguf_value_at(to->gguf, i), "general.file_type");
    assert_int_equal(added, ht_gguf_n_values(to->gguf) - n);
    uint64_t file_type;
    assert_true(ht_gguf_get_u64(to->gguf, "general.file_type", &file_type));
    assert_int_equal(file_type, 1);
    assert_int_equal(ht_gguf_n_tensors(from->gguf), ht_gguf_n_tensors(to->gguf));
    for (size_t i = 0; i < ht_gguf_n_tensors(to->gguf); i++) {
        const ht_bytes x = ht_gguf_tensor_at(from->gguf, i)->name, y = ht_gguf_tensor_at(to->gguf, i)->name;
        assert_true(x.len == y.len && !memcmp(x.data, y.data, x.len));
    }
    ht_checkpoint_close(from);
    ht_checkpoint_close(to);
    ht_adapter_free(a);
}

static const char *file_in(const char *directory, const char *name) {
    static char path[2][300];
    static int turn;
    turn = !turn;
    snprintf(path[turn], sizeof path[0], "%s/%s", directory, name);
    return path[turn];
}

static void same_files(const char *a, const char *b) {
    size_t n_a, n_b;
    char *x = file_bytes(a, &n_a), *y = file_bytes(b, &n_b);
    assert_int_equal(n_a, n_b);
    assert_memory_equal(x, y, n_a);
    free(x);
    free(y);
}

static void holds(const char *path, const char *expected) {
    size_t n;
    char *text = file_bytes(path, &n);
    assert_string_equal(text, expected);
    free(text);
}

static ht_json *read_json(const char *directory, const char *name) {
    ht_json *value;
    assert_works(ht_json_read, file_in(directory, name), 1 << 24, &value);
    return value;
}

static bool has_file(const char *directory, const char *name) { return ht_path_exists(file_in(directory, name)); }

static void copy_to(const char *from, const char *to) {
    size_t size;
    char *bytes = file_bytes(from, &size);
    scratch_write(to, bytes, size);
    free(bytes);
}

/* Copies a file of a tiny checkpoint to model/ in the scratch directory. */
static void copy_to_model(const char *name, const char *file) {
    char to[64];
    snprintf(to, sizeof to, "model/%s", file);
    copy_to(file_in(tiny_checkpoint(name), file), to);
}

/* Shards and their index as they were; files beside them copied, weights in other containers left out. */
UNIT_TEST(shards_and_files_are_kept) {
    const char *name = "gemma2-f16-shards";
    char shard[48];
    const char *out = scratch_path("out"), *model = scratch_path("model");
    mkdir(model, 0777);
    copy_to_model(name, "config.json");
    copy_to_model(name, "generation_config.json");
    copy_to_model(name, "model.safetensors.index.json");
    for (int i = 1; i <= 5; i++) {
        snprintf(shard, sizeof shard, "model-%05d-of-00005.safetensors", i);
        copy_to_model(name, shard);
    }
    static const char *const copied[] = {"tokenizer_config.json", "chat_template.jinja", "README.md", "mmproj.gguf"};
    static const char *const left_out[] = {"consolidated.pth", "pytorch_model.bin", "other.gguf", ".hidden"};
    for (int i = 0; i < 4; i++) {
        char path[64];
        snprintf(path, sizeof path, "model/%s", copied[i]);
        scratch_write(path, copied[i], strlen(copied[i]));
        snprintf(path, sizeof path, "model/%s", left_out[i]);
        scratch_write(path, "x", 1);
    }
    mkdir(scratch_path("model/original"), 0777);
    mkdir(scratch_path("model/additional_chat_templates"), 0777);
    scratch_write("model/additional_chat_templates/tool_use.jinja", "T", 1);
    ht_adapter *a = adapter_for(tiny_checkpoint(name), 1);
    fuse(model, &a, NULL, 1, out, as(HT_DTYPE_NONE));
    for (int i = 0; i < 4; i++) {
        holds(file_in(out, copied[i]), copied[i]);
        assert_false(has_file(out, left_out[i]));
    }
    assert_false(has_file(out, "original"));
    assert_true(has_file(out, "additional_chat_templates/tool_use.jinja"));
    same_files(file_in(out, "config.json"), file_in(tiny_checkpoint(name), "config.json"));
    ht_json *index = read_json(out, "model.safetensors.index.json"),
            *old = read_json(tiny_checkpoint(name), "model.safetensors.index.json");
    assert_true(ht_json_equal(ht_json_object_get(index, "weight_map"), ht_json_object_get(old, "weight_map")));
    assert_true(ht_json_equal(ht_json_object_get(ht_json_object_get(index, "metadata"), "total_size"),
                              ht_json_object_get(ht_json_object_get(old, "metadata"), "total_size")));
    ht_json_decref(index);
    ht_json_decref(old);
    ht_checkpoint_files *c = checkpoint_files(out);
    assert_string_equal(ht_safetensors_metadata(c->tensors, "format"), "pt");
    ht_checkpoint_close(c);
    ht_adapter_free(a);
}

/* A directory with a GGUF file becomes one. */
UNIT_TEST(directories_of_gguf_stay_such) {
    mkdir(scratch_path("model"), 0777);
    copy_to(tiny_checkpoint("qwen2-q4_0.gguf"), "model/small.gguf");
    scratch_write("model/chat_template.jinja", "{{ messages }}", 14);
    scratch_write("model/config.json", "{}", 2);
    ht_adapter *a = adapter_for(tiny_checkpoint("qwen2-q4_0.gguf"), 1);
    const char *out = scratch_path("out");
    fuse(scratch_path("model"), &a, NULL, 1, out, as(HT_F32));
    fuse(tiny_checkpoint("qwen2-q4_0.gguf"), &a, NULL, 1, scratch_path("out.gguf"), as(HT_F32));
    holds(file_in(out, "config.json"), "{}");
    assert_true(has_file(out, "chat_template.jinja"));
    float *x = run_path(out), *y = run_path(scratch_path("out.gguf"));
    assert_memory_equal(x, y, sizeof *x * N_IDS);
    free(x);
    free(y);
    ht_adapter_free(a);
}

typedef struct part {
    const ht_checkpoint_files *from;
    size_t first;
    void *bytes;
} part;

static ht_status bytes_of(void *user, int i, const void **bytes, ht_error *err) {
    part *p = user;
    ht_stored_tensor t;
    ht_checkpoint_tensor_at(p->from, p->first + (size_t)i, &t);
    free(p->bytes);
    p->bytes = test_alloc(t.n_bytes);
    *bytes = p->bytes;
    return ht_file_read_at(t.file, t.offset, p->bytes, t.n_bytes, err);
}

/* Writes tensors [first, last) of a GGUF file as part `number` of two. */
static void write_part(const ht_checkpoint_files *from, size_t first, size_t last, int number) {
    char names[64][256], file[64];
    int64_t shapes[64][HT_SAFETENSORS_RANK_MAX];
    ht_tensor_output outputs[64];
    ht_error err = {0};
    part p = {from, first, NULL};
    for (size_t i = first; i < last; i++) {
        ht_stored_tensor t;
        ht_checkpoint_tensor_at(from, i, &t);
        name_of(&t, names[i - first]);
        memcpy(shapes[i - first], t.dims, sizeof t.dims);
        outputs[i - first] = (ht_tensor_output){names[i - first], t.type_name, t.n_dims, shapes[i - first], t.n_bytes};
    }
    ht_json *changes = ht_json_pack("{s:{s:s, s:i}, s:{s:s, s:i}, s:{s:s, s:i}}", "split.no", "dtype", "u16", "value",
                                    number, "split.count", "dtype", "u16", "value", 2, "split.tensors.count", "dtype",
                                    "i32", "value", (int)ht_checkpoint_n_tensors(from));
    snprintf(file, sizeof file, "whole-%05d-of-00002.gguf", number + 1);
    if (ht_gguf_rewrite(scratch_path(file), from->gguf, changes, outputs, (int)(last - first), bytes_of, &p, &err))
        fail_msg("%s", err.message);
    ht_json_decref(changes);
    free(p.bytes);
}

/* What changes is in both parts; one file comes out, as of the file that was parted. */
UNIT_TEST(parts_become_one_file) {
    const char *name = "gemma4-experts-q8_0.gguf";
    ht_checkpoint_files *c = checkpoint_files(tiny_checkpoint(name));
    const size_t n = ht_checkpoint_n_tensors(c);
    assert_true(n / 2 + 1 <= 64);
    write_part(c, 0, n / 2, 0);
    write_part(c, n / 2, n, 1);
    ht_checkpoint_close(c);
    ht_adapter *a = adapter_for(tiny_checkpoint(name), 1);
    fuse(tiny_checkpoint(name), &a, NULL, 1, scratch_path("one.gguf"), as(HT_DTYPE_NONE));
    fuse(scratch_path("whole-00002-of-00002.gguf"), &a, NULL, 1, scratch_path("other.gguf"), as(HT_DTYPE_NONE));
    same_files(scratch_path("one.gguf"), scratch_path("other.gguf"));
    ht_adapter_free(a);
}

/* ---- configurations ---- */

static ht_json *config_of(const char *name, ht_adapter *a, ht_fuse_options options) {
    const char *out = scratch_path("out");
    fuse(tiny_checkpoint(name), &a, NULL, 1, out, options);
    return read_json(out, "config.json");
}

UNIT_TEST(configurations_tell_what_is_stored) {
    ht_adapter *a = adapter_for(tiny_checkpoint("llama-fp8-blocks"), 1);
    ht_json *config = config_of("llama-fp8-blocks", a, as(HT_DTYPE_NONE)), *entry;
    assert_null(ht_json_object_get(config, "quantization_config"));
    ht_json_decref(config);
    ht_adapter_free(a);
    empty_scratch();

    /* layer 0's v_proj has an entry of its own and changes; its o_proj has none and changes; layer 1's v_proj stays */
    const ht_lora pair[] = {{.slot = "model.layers.0.self_attn.v_proj", .rank = 1, .scale = 1},
                            {.slot = "model.layers.0.self_attn.o_proj", .rank = 1, .scale = 1}};
    ht_model *m = load(tiny_checkpoint("llama-mlx4-bf16"));
    ht_lora sized[2];
    int64_t n;
    const ht_projection *all = ht_weights_projections(m->weights, &n);
    for (int i = 0; i < 2; i++) {
        sized[i] = pair[i];
        const ht_projection *p = &all[ht_weights_find_projection(m->weights, pair[i].slot)];
        sized[i].n_in = p->n_in;
        sized[i].n_out = p->n_out;
    }
    assert_works(ht_adapter_new, sized, 2, &a);
    ht_model_free(m);
    static const char *const keys[] = {"quantization", "quantization_config"};
    config = config_of("llama-mlx4-bf16", a, as(HT_F32));
    assert_string_equal(ht_json_string_value(ht_json_object_get(config, "dtype")), "float32");
    for (int i = 0; i < 2; i++) {
        const ht_json *q = ht_json_object_get(config, keys[i]);
        assert_true(ht_json_is_false(ht_json_object_get(q, "model.layers.0.self_attn.v_proj")));
        assert_null(ht_json_object_get(q, "model.layers.0.self_attn.o_proj"));
        assert_true(ht_json_is_object(ht_json_object_get(q, "model.layers.1.self_attn.v_proj")));
        assert_int_equal(ht_json_integer_value(ht_json_object_get(q, "bits")), 4);
    }
    ht_json_decref(config);
    empty_scratch();

    ht_fuse_options options = OPTIONS(ht_fuse_options, with.quantize_bits = 8, with.quantize_group = 32);
    config = config_of("llama-mlx4-bf16", a, options);
    for (int i = 0; i < 2; i++) {
        entry = ht_json_object_get(ht_json_object_get(config, keys[i]), pair[i].slot);
        assert_int_equal(ht_json_integer_value(ht_json_object_get(entry, "bits")), 8);
        assert_int_equal(ht_json_integer_value(ht_json_object_get(entry, "group_size")), 32);
    }
    ht_json_decref(config);
    empty_scratch();

    options = OPTIONS(ht_fuse_options, with.dense = true);
    config = config_of("llama-mlx4-bf16", a, options);
    for (int i = 0; i < 2; i++) assert_null(ht_json_object_get(config, keys[i]));
    assert_string_equal(ht_json_string_value(ht_json_object_get(config, "dtype")), "bfloat16");
    ht_json_decref(config);
    ht_adapter_free(a);
}

/* ---- groups ---- */

/* Eight bits keep the change; two lose most of it, and the report says so. */
UNIT_TEST(groups_are_quantized_again) {
    static const char *const names[] = {"llama-mlx4-bf16", "qwen3-moe-mlx4-bf16", "gemma4-experts-mlx4-f16",
                                        "qwen3-mlx5-f32"};
    for (int i = 0; i < 4; i++) {
        const char *out = scratch_path("out");
        ht_model *m = load(tiny_checkpoint(names[i]));
        ht_adapter *a = test_adapter_for(m, 3, 1, 5);
        float *base = run(m, NULL, NULL, 0), *want = run(m, &a, NULL, 1);
        double last = 0;
        for (int bits = 8; bits >= 2; bits -= 3) {
            const ht_fuse_report r =
                fuse(tiny_checkpoint(names[i]), &a, NULL, 1, out,
                     OPTIONS(ht_fuse_options, with.quantize_bits = bits, with.quantize_group = 32));
            float *got = run_path(out);
            const double off = test_difference(got, want, n_logits(m)),
                         moved = test_difference(want, base, n_logits(m));
            print_message("%s at %d bits: moved %.1e, off %.1e, error %.1e, noise %.1e, kept %.4f to %.4f\n", names[i],
                          bits, moved, off, r.error, r.noise, r.least_kept, r.kept);
            assert_true(bits < 8 || (off < moved && fabs(r.kept - 1) < 0.02 && r.noise < 0.2));
            assert_true(r.error > last && r.least_kept <= r.kept);
            last = r.error;
            free(got);
        }
        free(base);
        free(want);
        ht_adapter_free(a);
        ht_model_free(m);
        empty_scratch();
    }
}

/* ---- adapters without their model ---- */

/* A GGUF adapter's rows of q and k are found whether or not a model told their order. */
UNIT_TEST(adapters_need_no_model) {
    static const char *const names[] = {"llama-f32", "llama-f32.gguf", "../families/qwen3_5.gguf",
                                        "../families/qwen3_next", "../families/qwen3_next.gguf"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        ht_model *m = load(tiny_checkpoint(names[i]));
        ht_adapter *a = test_adapter_for(m, 3, 1, 5), *alone, *read;
        assert_works(ht_adapter_save, a, m, scratch_path("adapter.gguf"), HT_ADAPTER_GGUF);
        assert_works(ht_adapter_load, scratch_path("adapter.gguf"), NULL, NULL, &alone);
        assert_works(ht_adapter_load, scratch_path("adapter.gguf"), m, NULL, &read);
        assert_true(alone->gguf_order && !read->gguf_order);
        const char *one = out_of(names[i], "one"), *other = out_of(names[i], "other");
        fuse(tiny_checkpoint(names[i]), &alone, NULL, 1, one, as(HT_F32));
        fuse(tiny_checkpoint(names[i]), &read, NULL, 1, other, as(HT_F32));
        float *x = run_path(one), *y = run_path(other);
        assert_memory_equal(x, y, n_logits(m) * sizeof *x);
        free(x);
        free(y);
        ht_adapter_free(a);
        ht_adapter_free(alone);
        ht_adapter_free(read);
        ht_model_free(m);
        empty_scratch();
    }
}

/* ---- factors on products ---- */

enum { DIRECTORY, OF_MLX, OF_GGUF, N_KINDS };
static const char *const kinds[N_KINDS] = {"directory", "mlx", "model.gguf"};
static const ht_adapter_format own_format[N_KINDS] = {HT_ADAPTER_PEFT, HT_ADAPTER_MLX, HT_ADAPTER_GGUF};

static const char *adapter_of_kind(int kind) {
    static const char *const names[N_KINDS] = {"peft", "of-mlx", "adapter.gguf"};
    return scratch_path(names[kind]);
}

static void check_logits(ht_model *m, ht_adapter *a, const float *want, const char *from, const char *to) {
    float *got = run(m, &a, NULL, a != NULL);
    const double off = test_difference(got, want, n_logits(m));
    if (!(off <= 1e-6)) fail_msg("an adapter of %s for %s: logits are off by %g", from, to, off);
    free(got);
}

/* An adapter of one kind of file, for another: as it is, and fused without its model. */
static void check_pair(ht_model *const m[N_KINDS], int from, int to, const float *want) {
    ht_adapter *read, *alone;
    const char *out = scratch_path(to == OF_GGUF ? "fused.gguf" : "fused");
    assert_works(ht_adapter_load, adapter_of_kind(from), m[to], NULL, &read);
    check_logits(m[to], read, want, kinds[from], kinds[to]);
    assert_works(ht_adapter_load, adapter_of_kind(from), NULL, NULL, &alone);
    fuse(scratch_path(kinds[to]), &alone, NULL, 1, out, as(HT_F32));
    ht_model *fused = load(out);
    check_logits(fused, NULL, want, kinds[from], kinds[to]);
    ht_model_free(fused);
    ht_adapter_free(alone);
    if (from != to && from != OF_GGUF)
        assert_fails(HT_ERR_UNSUPPORTED, "other factors on products", ht_adapter_save, read, m[to],
                     scratch_path("refused"), own_format[from]);
    if ((from == DIRECTORY) != (to == DIRECTORY))
        assert_fails(HT_ERR_ARGUMENT, "other factors on products", ht_adapter_check, read, m[from]);
    ht_adapter_free(read);
}

/* Adapters of Falcon-H1 that do not state their model's factors fit the kind of files that their format is for. */
static void check_unstated(ht_model *const m[N_KINDS]) {
    for (int from = DIRECTORY; from <= OF_MLX; from++) {
        ht_adapter *a;
        assert_works(ht_adapter_load, adapter_of_kind(from), NULL, NULL, &a);
        a->origin.has_multipliers = false;
        for (int to = 0; to < N_KINDS; to++) {
            const char *out = scratch_path(to == OF_GGUF ? "unstated.gguf" : "unstated");
            const ht_fuse_options plain = as(HT_F32);
            if (to == from)
                assert_works(ht_adapter_check, a, m[to]);
            else
                assert_fails(HT_ERR_ARGUMENT, "load it for this one", ht_adapter_check, a, m[to]);
            if (to != from)
                assert_fails(HT_ERR_UNSUPPORTED, "does not state the factors", ht_fuse, scratch_path(kinds[to]), &a,
                             NULL, 1, out, &plain);
        }
        ht_adapter_free(a);
    }
}

UNIT_TEST(adapters_fit_every_file_of_a_model) {
    static const char *const names[] = {"falcon_h1", "falcon_h1-norm"};
    static const ht_container containers[N_KINDS] = {HT_CONTAINER_SAFETENSORS, HT_CONTAINER_MLX, HT_CONTAINER_GGUF};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char path[64];
        ht_model *m[N_KINDS];
        snprintf(path, sizeof path, "tests/golden/families/%s", names[i]);
        for (int k = 0; k < N_KINDS; k++) {
            assert_works(ht_convert, path, scratch_path(kinds[k]),
                         OPTIONS_AT(ht_convert_options, with.container = containers[k]));
            m[k] = load(scratch_path(kinds[k]));
        }
        ht_adapter *a = test_adapter_for(m[DIRECTORY], 3, 1, 5), *read = NULL;
        float *want = run(m[DIRECTORY], &a, NULL, 1);
        assert_works(ht_adapter_save, a, m[DIRECTORY], adapter_of_kind(DIRECTORY), HT_ADAPTER_PEFT);
        for (int k = 1; k < N_KINDS; k++) {
            assert_works(ht_adapter_load, adapter_of_kind(k - 1), m[k], NULL, &read);
            assert_works(ht_adapter_save, read, m[k], adapter_of_kind(k), own_format[k]);
            ht_adapter_free(read);
        }
        for (int from = 0; from < N_KINDS; from++)
            for (int to = 0; to < N_KINDS; to++) check_pair(m, from, to, want);
        check_unstated(m);
        for (int k = 0; k < N_KINDS; k++) ht_model_free(m[k]);
        ht_adapter_free(a);
        free(want);
        empty_scratch();
    }
}

/* ---- refusals and failures ---- */

static void refuse(const char *model, ht_adapter *a, float scale, const char *out, ht_fuse_options options,
                   ht_status status, const char *text) {
    const int before = scratch_count();
    assert_fails(status, text, ht_fuse, model, &a, &scale, a ? 1 : 0, out, &options);
    assert_int_equal(scratch_count(), before);
}

UNIT_TEST(what_does_not_fit_is_refused) {
    const ht_fuse_options plain = as(HT_DTYPE_NONE);
    const char *llama = "tests/golden/tiny/llama-f32";
    const char *out = scratch_path("out");
    ht_adapter *a = adapter_for(llama, 1), *other = adapter_for(tiny_checkpoint("qwen3-moe-f32"), 1);
    const ht_status wrong = HT_ERR_ARGUMENT;
    refuse(llama, NULL, 1, out, plain, wrong, "no adapter");
    refuse(llama, a, NAN, out, plain, wrong, "finite");
    refuse(llama, other, 1, out, plain, wrong, "another model");
    refuse(llama, a, 1, "", plain, wrong, "empty");
    refuse(llama, a, 1, out, as(HT_I32), wrong, "i32");
    refuse(llama, a, 1, out, OPTIONS(ht_fuse_options, with.quantize_bits = 4), wrong, "MLX");
    refuse(llama, a, 1, out, OPTIONS(ht_fuse_options, with.quantize_bits = 7), wrong, "7 bits");
    refuse(llama, a, 1, out, OPTIONS(ht_fuse_options, with.quantize_group = 32), wrong, "bits");
    refuse(llama, a, 1, out, OPTIONS(ht_fuse_options, with.quantize_bits = 4, with.dense = true), wrong, "exclude");
    refuse(llama, a, 1e9f, out, as(HT_F16), HT_ERR_LIMIT, "take bf16");
    refuse(llama, a, 1, scratch_path("no/such/out"), plain, HT_ERR_IO, "cannot be written");
    refuse(scratch_path("none"), a, 1, out, plain, HT_ERR_IO, "none");
    ht_adapter_free(other);
    ht_adapter_free(a);
    a = adapter_for(tiny_checkpoint("llama-mxfp4"), 1);
    refuse(tiny_checkpoint("llama-mxfp4"), a, 1, out, OPTIONS(ht_fuse_options, with.quantize_bits = 4), wrong, "mxfp4");
    ht_adapter_free(a);
    a = adapter_for(tiny_checkpoint("qwen3-moe-mlx4-bf16"), 1);
    refuse(tiny_checkpoint("qwen3-moe-mlx4-bf16"), a, 1, out,
           OPTIONS(ht_fuse_options, with.quantize_bits = 4, with.quantize_group = 128), wrong, "no groups of 128");
    ht_adapter_free(a);
}

UNIT_TEST(nothing_of_others_is_replaced) {
    const ht_fuse_options plain = as(HT_F32);
    const char *out = scratch_path("out"), *file = scratch_path("file.gguf");
    ht_adapter *a = adapter_for(tiny_checkpoint("llama-f32"), 1),
               *b = adapter_for(tiny_checkpoint("llama-f32.gguf"), 1);
    fuse(tiny_checkpoint("llama-f32"), &a, NULL, 1, out, plain);
    fuse(tiny_checkpoint("llama-f32.gguf"), &b, NULL, 1, file, plain);
    fuse(tiny_checkpoint("llama-f32"), &a, NULL, 1, out, plain); /* one of ours is */
    fuse(tiny_checkpoint("llama-f32.gguf"), &b, NULL, 1, file, plain);
    refuse(tiny_checkpoint("llama-f32"), a, 1, file, plain, HT_ERR_ARGUMENT, "a directory");
    refuse(tiny_checkpoint("llama-f32.gguf"), b, 1, out, plain, HT_ERR_ARGUMENT, "a file");
    /* a fused one is a checkpoint itself, and not written over while it is read */
    refuse(out, a, 1, out, plain, HT_ERR_ARGUMENT, "is the checkpoint that is read");
    refuse(out, a, 1, scratch_path("out/inside"), plain, HT_ERR_ARGUMENT, "inside of it");
    refuse(file, b, 1, file, plain, HT_ERR_ARGUMENT, "is the checkpoint that is read");
    scratch_write("out/notes.txt", "x", 1);
    refuse(tiny_checkpoint("llama-f32"), a, 1, out, plain, HT_ERR_ARGUMENT, "notes.txt");
    scratch_write("other.gguf", "GGUF", 4);
    refuse(tiny_checkpoint("llama-f32.gguf"), b, 1, scratch_path("other.gguf"), plain, HT_ERR_ARGUMENT,
           "neither a fused nor a quantised checkpoint");
    mkdir(scratch_path("model"), 0777); /* of the same names, but somebody's own */
    copy_to_model("llama-f32", "config.json");
    copy_to_model("llama-f32", "model.safetensors");
    refuse(tiny_checkpoint("llama-f32"), a, 1, scratch_path("model"), plain, HT_ERR_ARGUMENT,
           "neither a fused nor a quantised checkpoint");
    mkdir(scratch_path("empty"), 0777);
    fuse(tiny_checkpoint("llama-f32"), &a, NULL, 1, scratch_path("empty"), plain);
    ht_adapter_free(a);
    ht_adapter_free(b);
}

typedef struct stop {
    ht_cancel cancel;
    int calls, at;
} stop;

static void on_progress(double done, void *user) {
    stop *s = user;
    assert_true(done > 0 && done <= 1);
    if (++s->calls == s->at) ht_cancel_request(&s->cancel);
}

UNIT_TEST(what_fails_leaves_nothing) {
    static const char *const names[] = {"gemma2-f16-shards", "llama-q4_1.gguf"};
    for (int i = 0; i < 2; i++) {
        ht_adapter *a = adapter_for(tiny_checkpoint(names[i]), 1);
        const char *out = out_of(names[i], "out");
        for (int at = 1; at < 11; at += 9) { /* the last file is one in which much has been written */
            stop s = {.at = at};
            refuse(tiny_checkpoint(names[i]), a, 1, out,
                   OPTIONS(ht_fuse_options, with.cancel = &s.cancel, with.progress = on_progress, with.user = &s),
                   HT_ERR_CANCELLED, "cancelled");
            assert_int_equal(s.calls, at);
        }
        /* as on a full disk */
        struct rlimit old, low;
        assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
        low = old;
        low.rlim_cur = 9000;
        void (*before)(int) = signal(SIGXFSZ, SIG_IGN);
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &low), 0);
        refuse(tiny_checkpoint(names[i]), a, 1, out, as(HT_F32), HT_ERR_IO, "cannot be written");
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
        signal(SIGXFSZ, before);
        assert_int_equal(scratch_count(), 0);
        ht_adapter_free(a);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {in_scratch(fused_models_answer_like_adapters),
                                       in_scratch(fused_families_answer_like_adapters),
                                       in_scratch(metadata_and_order_are_kept),
                                       in_scratch(shards_and_files_are_kept),
                                       in_scratch(directories_of_gguf_stay_such),
                                       in_scratch(parts_become_one_file),
                                       in_scratch(configurations_tell_what_is_stored),
                                       in_scratch(groups_are_quantized_again),
                                       in_scratch(adapters_need_no_model),
                                       in_scratch(adapters_fit_every_file_of_a_model),
                                       in_scratch(what_does_not_fit_is_refused),
                                       in_scratch(nothing_of_others_is_replaced),
                                       in_scratch(what_fails_leaves_nothing)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
