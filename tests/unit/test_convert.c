/* Checkpoints through their other container: Hearth's own logits are the same bits before and after. */
#include "base/text.h"
#include "formats/gguf_write.h"
#include "support/checkpoints.h"
#include "support/cpu_device.h"
#include "support/options.h"
#include "support/scratch.h"
#include "support/test.h"

#include <hearth/convert.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- converting ---- */

static ht_status convert(const char *from, const char *to, ht_container container, const char *type, ht_dtype dtype,
                         ht_convert_report *report, ht_error *err) {
    ht_convert_options o = OPTIONS(ht_convert_options, with.container = container, with.type = type, with.dtype = dtype,
                                   with.report = report, with.n_threads = 2);
    return ht_convert(from, to, &o, err);
}

static void must_convert(const char *from, const char *to, ht_container container, ht_convert_report *report) {
    ht_error err = {0};
    if (convert(from, to, container, NULL, HT_DTYPE_NONE, report, &err)) fail_msg("%s: %s", from, err.message);
}

/* Scales of products are multiplied into weights that become floats, which rounds to another order of factors. */
static double tolerance_of(const char *name) {
    static const char *const scaled[] = {"nvfp4", "fp8", "mxfp8", "compressed"};
    for (size_t i = 0; i < sizeof scaled / sizeof *scaled; i++)
        if (strstr(name, scaled[i])) return 1e-5;
    return 0;
}

/* GGUF has the columns of a matrix of Qwen3.5 in another order, in which sums round otherwise. */
static double tolerance_of_order(const char *name) { return strstr(name, "qwen3_5") ? 1e-5 : 0; }

static int n_refused;

/* Converts; whether that is refused, as only some checkpoints may be. */
static bool is_refused(const char *path, const char *to, ht_container container) {
    ht_error err = {0};
    if (!convert(path, to, container, NULL, HT_DTYPE_NONE, NULL, &err)) return false;
    checkpoint_may_refuse(path, &err);
    n_refused++;
    return true;
}

static void gguf_to_directories(const char *path) {
    static const ht_container containers[] = {HT_CONTAINER_SAFETENSORS, HT_CONTAINER_MLX};
    for (int i = 0; i < 2; i++) {
        const char *to = scratch_path(i ? "mlx" : "directory"), *back = scratch_path("back.gguf");
        if (is_refused(path, to, containers[i])) continue;
        checkpoints_same_logits(path, to, cpu_device, tolerance_of(path) + tolerance_of_order(path));
        must_convert(to, back, HT_CONTAINER_GGUF, NULL);
        checkpoints_same_logits(to, back, cpu_device, tolerance_of_order(path));
    }
}

static void directory_to_gguf(const char *path) {
    const char *to = scratch_path("model.gguf"), *back = scratch_path("back");
    if (is_refused(path, to, HT_CONTAINER_GGUF)) return;
    checkpoints_same_logits(path, to, cpu_device, tolerance_of(path) + tolerance_of_order(path));
    if (!is_refused(to, back, HT_CONTAINER_SAFETENSORS))
        checkpoints_same_logits(to, back, cpu_device, tolerance_of_order(path));
}

static void convert_both_ways(const char *path, bool is_file) {
    if (is_file)
        gguf_to_directories(path);
    else
        directory_to_gguf(path);
}

/* Through the names of mlx-lm: some families' weights are stacked, split, transposed or renamed there. */
static void directory_through_mlx(const char *path) {
    const char *to = scratch_path_apart("mlx"), *back = scratch_path_apart("back");
    must_convert(path, to, HT_CONTAINER_MLX, NULL);
    checkpoints_same_logits(path, to, cpu_device, 0);
    must_convert(to, back, HT_CONTAINER_SAFETENSORS, NULL);
    checkpoints_same_logits(to, back, cpu_device, 0);
}

static void convert_family(const char *path, bool is_file, void *user) {
    int *turn = user;
    if (!test_takes_today((*turn)++, 3)) return;
    convert_both_ways(path, is_file);
    if (!is_file) directory_through_mlx(path);
}

static void convert_tiny(const char *name, bool is_file, void *user) {
    int *turn = user;
    if (test_takes_today((*turn)++, 3)) convert_both_ways(tiny_checkpoint(name), is_file);
}

static void every_tiny_checkpoint(void **state) {
    (void)state;
    int turn = n_refused = 0;
    tiny_checkpoints_each(convert_tiny, &turn);
    assert_in_range(n_refused, !TEST_SLOW, 10);
}

static void every_family(void **state) {
    (void)state;
    int turn = 0;
    family_checkpoints_each(convert_family, &turn);
}

/* The tensors of a directory that mlx-lm has made are also in what is quantised of the same checkpoint. mlx-lm reads
 * the heads of latent attention in one tensor, too, and Hearth keeps routers as they are. */
static void has_names_of_mlx_lm(const char *path, bool is_file, void *user) {
    static const char *const other[] = {"embed_q", "unembed_out", ".scales", ".biases", NULL};
    static const char end[] = "-mlx4";
    int *n = user;
    if (is_file || !ht_ends_with(path, end)) return;
    char from[512];
    ht_error err = {0};
    const char *to = scratch_path_apart("mlx");
    snprintf(from, sizeof from, "%.*s", (int)(strlen(path) - strlen(end)), path);
    if (convert(from, to, HT_CONTAINER_SAME, "4:32", HT_DTYPE_NONE, NULL, &err)) fail_msg("%s: %s", from, err.message);
    ht_checkpoint_files *theirs = checkpoint_files(path), *ours = checkpoint_files(to);
    for (size_t i = 0; i < ht_checkpoint_n_tensors(theirs); i++) {
        const char *name = ht_safetensors_at(theirs->tensors, i)->name;
        if (!ht_contains_any(name, other) && !ht_safetensors_find(ours->tensors, name))
            fail_msg("%s: no `%s`", from, name);
    }
    ht_checkpoint_close(theirs);
    ht_checkpoint_close(ours);
    ++*n;
}

static void directories_have_names_of_mlx_lm(void **state) {
    (void)state;
    int n = 0;
    family_checkpoints_each(has_names_of_mlx_lm, &n);
    assert_true(n > 5 || getenv("HEARTH_TEST_FAMILIES"));
}

/* ---- older files of Qwen3-Next ---- */

/* A file to write of another's tensors, in which the inputs of recurrent layers become one matrix. */
typedef struct older_file {
    const ht_checkpoint_files *from;
    ht_recurrence_spec recurrence;
    int n;
    struct {
        ht_stored_tensor qkv, gate; /* gate only for inputs */
        char name[64];
        int64_t shape[4];
    } of[96];
    ht_tensor_output out[96];
    unsigned char *bytes;
} older_file;

static unsigned char *read_bytes(const ht_stored_tensor *t) {
    unsigned char *bytes = malloc(t->n_bytes);
    assert_non_null(bytes);
    assert_works(ht_file_read_at, t->file, t->offset, bytes, t->n_bytes);
    return bytes;
}

/* The rows of a key head follow each other: its query, its key, the values and the gates of its heads. */
static unsigned char *join_rows(const older_file *f, const ht_stored_tensor *qkv, const ht_stored_tensor *gate) {
    const ht_recurrence_spec *r = &f->recurrence;
    const size_t row = qkv->n_bytes / (size_t)qkv->dims[0], key = (size_t)r->key_dim * row,
                 values = (size_t)(r->heads / r->key_heads * r->value_dim) * row, keys = (size_t)r->key_heads * key;
    unsigned char *from = read_bytes(qkv), *gates = read_bytes(gate), *joined = malloc(qkv->n_bytes + gate->n_bytes),
                  *to = joined;
    assert_non_null(joined);
    for (size_t h = 0; h < (size_t)r->key_heads; h++, to += 2 * (key + values)) {
        memcpy(to, from + h * key, key);
        memcpy(to + key, from + keys + h * key, key);
        memcpy(to + 2 * key, from + 2 * keys + h * values, values);
        memcpy(to + 2 * key + values, gates + h * values, values);
    }
    free(from);
    free(gates);
    return joined;
}

static ht_status older_values(void *user, int i, const void **bytes, ht_error *err) {
    older_file *f = user;
    (void)err;
    free(f->bytes);
    f->bytes = f->of[i].gate.n_bytes ? join_rows(f, &f->of[i].qkv, &f->of[i].gate) : read_bytes(&f->of[i].qkv);
    *bytes = f->bytes;
    return HT_OK;
}

static void write_older(const char *path, const char *to) {
    older_file *f = calloc(1, sizeof *f);
    ht_config *config = malloc(sizeof *config);
    assert_true(f && config);
    ht_checkpoint_files *c = checkpoint_files(path);
    assert_works(ht_checkpoint_config, c, config);
    f->from = c;
    f->recurrence = config->recurrence;
    for (size_t k = 0; k < ht_checkpoint_n_tensors(c); k++) {
        ht_stored_tensor t, gate = {0};
        char name[64];
        int layer;
        ht_checkpoint_tensor_at(c, k, &t);
        snprintf(name, sizeof name, "%.*s", (int)t.name_len, t.name);
        if (strstr(name, ".attn_gate.")) continue;
        if (strstr(name, ".attn_qkv.") && sscanf(name, "blk.%d.", &layer) == 1) {
            snprintf(name, sizeof name, "blk.%d.attn_gate.weight", layer);
            assert_true(ht_checkpoint_find(c, name, &gate));
            snprintf(name, sizeof name, "blk.%d.ssm_in.weight", layer);
        }
        assert_in_range(f->n, 0, 95);
        memcpy(f->of[f->n].name, name, sizeof name);
        memcpy(f->of[f->n].shape, t.dims, sizeof f->of[f->n].shape);
        if (gate.n_bytes) f->of[f->n].shape[0] += gate.dims[0];
        f->of[f->n].qkv = t;
        f->of[f->n].gate = gate;
        f->out[f->n] =
            (ht_tensor_output){f->of[f->n].name, t.type_name, t.n_dims, f->of[f->n].shape, t.n_bytes + gate.n_bytes};
        f->n++;
    }
    assert_works(ht_gguf_rewrite, to, c->gguf, NULL, f->out, f->n, older_values, f);
    ht_checkpoint_close(c);
    free(f->bytes);
    free(config);
    free(f);
}

static void joined_inputs_in_gguf(void **state) {
    (void)state;
    static const char path[] = "tests/golden/families/qwen3_next.gguf";
    const char *older = scratch_path("older.gguf"), *one = scratch_path("one"), *other = scratch_path("other"),
               *back = scratch_path("back.gguf");
    write_older(path, older);
    assert_string_equal(checkpoint_type(older, "blk.0.ssm_in.weight"), "Q8_0");
    checkpoints_same_logits(path, older, cpu_device, 0);
    must_convert(path, one, HT_CONTAINER_SAFETENSORS, NULL);
    must_convert(older, other, HT_CONTAINER_SAFETENSORS, NULL);
    checkpoints_same_tensors(one, other);
    must_convert(other, back, HT_CONTAINER_GGUF, NULL);
    assert_string_equal(checkpoint_type(back, "blk.0.attn_qkv.weight"), "F32");
    checkpoints_same_logits(older, back, cpu_device, 0);
}

/* ---- types ---- */

/* Blocks that MLX's groups can be stay packed there and back; transformers gets floats. */
static void quantised_weights_stay_packed(void **state) {
    (void)state;
    static const char *const names[] = {"llama-q4_1.gguf",          "llama-q8_0.gguf",    "qwen2-q4_0.gguf",
                                        "gemma2-q4_1.gguf",         "gemma3-q5_1.gguf",   "qwen3-q8_0.gguf",
                                        "gemma4-experts-q8_0.gguf", "qwen3-moe-q4_1.gguf"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        ht_convert_report report;
        const char *mlx = scratch_path("mlx"), *back = scratch_path("back.gguf"), *floats = scratch_path("floats");
        must_convert(tiny_checkpoint(names[i]), mlx, HT_CONTAINER_MLX, &report);
        if (report.n_floats) fail_msg("%s: %d tensors became floats", names[i], (int)report.n_floats);
        assert_true(report.n_rounded > 0 && report.n_inexact == 0);
        must_convert(mlx, back, HT_CONTAINER_GGUF, &report);
        if (report.n_floats) fail_msg("%s: %d tensors became floats again", names[i], (int)report.n_floats);
        char before[32];
        snprintf(before, sizeof before, "%s", checkpoint_type(tiny_checkpoint(names[i]), "blk.0.attn_q.weight"));
        assert_string_equal(checkpoint_type(back, "blk.0.attn_q.weight"), before);
        must_convert(tiny_checkpoint(names[i]), floats, HT_CONTAINER_SAFETENSORS, &report);
        assert_true(report.n_floats > 0);
        assert_string_equal(checkpoint_type(floats, "model.layers.0.self_attn.q_proj.weight"), "F32");
    }
}

/* Every tensor of a directory through GGUF has the bytes that it had. */
static void floats_come_back_as_they_were(void **state) {
    (void)state;
    static const char *const names[] = {"llama-head-dim-bf16", "gemma4-experts-bf16",  "gemma3-scaled-bf16",
                                        "qwen2-tied-bf16",     "qwen3-moe-mixed-bf16", "llama-llama3-bf16",
                                        "../families/gemma3n", "../families/gpt2",     "../families/qwen3_next"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        ht_convert_report report;
        const char *file = scratch_path("model.gguf"), *back = scratch_path("back");
        must_convert(tiny_checkpoint(names[i]), file, HT_CONTAINER_GGUF, &report);
        assert_int_equal(report.n_inexact, 0);
        must_convert(file, back, HT_CONTAINER_SAFETENSORS, &report);
        checkpoints_same_tensors(tiny_checkpoint(names[i]), back);
    }
}

/* Quantising chooses types over the tensors as they are named in the other container. */
static void quantising_goes_over(void **state) {
    (void)state;
    static const struct {
        const char *from, *to, *type, *tensor, *is;
        double most;
    } cases[] = {
        {"llama-mlx8-f16", "a.gguf", "Q8_0", "blk.0.attn_q.weight", "Q8_0", 0.05},
        {"gemma4-experts-mlx8-bf16", "b.gguf", "Q8_0", "blk.0.ffn_gate_up_exps.weight", "Q8_0", 0.2},
        {"llama-f32.gguf", "c", "8:32", "model.layers.0.self_attn.q_proj.weight", "MLX8_32_F16", 0.05},
        {"qwen3-moe-q4_1.gguf", "d", "8:32", "model.layers.0.mlp.switch_mlp.gate_proj.weight", "MLX8_32_F16", 0.2},
        {"gemma4-experts-q8_0.gguf", "e", "8:32", "model.layers.0.experts.switch_glu.up_proj.weight", "MLX8_32_F16",
         0.2},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ht_error err = {0};
        const char *to = scratch_path(cases[i].to);
        if (convert(tiny_checkpoint(cases[i].from), to, HT_CONTAINER_SAME, cases[i].type, HT_DTYPE_NONE, NULL, &err))
            fail_msg("%s: %s", cases[i].from, err.message);
        const char *type = checkpoint_type(to, cases[i].tensor);
        if (strcmp(type, cases[i].is) != 0) fail_msg("%s: `%s` is %s", cases[i].from, cases[i].tensor, type);
        checkpoints_same_logits(tiny_checkpoint(cases[i].from), to, cpu_device, cases[i].most);
    }
}

static void floats_of_another_type(void **state) {
    (void)state;
    ht_convert_report report;
    ht_error err = {0};
    const char *to = scratch_path("bf16.gguf");
    assert_int_equal(convert(tiny_checkpoint("llama-f32"), to, HT_CONTAINER_GGUF, NULL, HT_BF16, &report, &err), HT_OK);
    assert_string_equal(checkpoint_type(to, "blk.0.attn_q.weight"), "BF16");
    assert_string_equal(checkpoint_type(to, "blk.0.attn_norm.weight"), "F32");
    assert_true(report.n_inexact > 0);
    to = scratch_path("f16");
    assert_int_equal(
        convert(tiny_checkpoint("llama-q8_0.gguf"), to, HT_CONTAINER_SAFETENSORS, NULL, HT_F16, &report, &err), HT_OK);
    assert_string_equal(checkpoint_type(to, "model.layers.0.self_attn.q_proj.weight"), "F16");
    /* A directory of MLX's groups as one of floats. */
    to = scratch_path("dense");
    must_convert(tiny_checkpoint("llama-mlx4-bf16"), to, HT_CONTAINER_SAFETENSORS, &report);
    assert_string_equal(checkpoint_type(to, "model.layers.0.self_attn.q_proj.weight"), "F32");
    checkpoints_same_logits(tiny_checkpoint("llama-mlx4-bf16"), to, cpu_device, 0);
}

/* The tensors that llama.cpp's files have in f32 whatever the type of most, and no others, are in files of f16. */
static void f32_stays_in_gguf(void **state) {
    (void)state;
    static const char *const names[] = {"falcon_h1-norm", "gemma3n",   "gpt2",    "granite4",
                                        "kimi_linear",    "lfm2_moe",  "mixtral", "nemotron_h_latent",
                                        "qwen3_5_moe",    "qwen3_next"};
    for (size_t i = 0; i < 2 * sizeof names / sizeof *names; i++) {
        char theirs_path[80], from[80];
        const char *to = scratch_path("f16.gguf");
        ht_error err = {0};
        snprintf(theirs_path, sizeof theirs_path, "tests/golden/families/%s.gguf", names[i / 2]);
        snprintf(from, sizeof from, "tests/golden/families/%s%s", names[i / 2], i % 2 ? ".gguf" : "");
        if (convert(from, to, HT_CONTAINER_GGUF, NULL, HT_F16, NULL, &err)) fail_msg("%s: %s", from, err.message);
        ht_checkpoint_files *theirs = checkpoint_files(theirs_path), *ours = checkpoint_files(to);
        for (size_t k = 0; k < ht_checkpoint_n_tensors(theirs); k++) {
            ht_stored_tensor t, found;
            char name[128];
            ht_checkpoint_tensor_at(theirs, k, &t);
            snprintf(name, sizeof name, "%.*s", (int)t.name_len, t.name);
            if (!ht_checkpoint_find(ours, name, &found)) fail_msg("%s: no `%s`", from, name);
            if ((t.type == HT_W_F32) != (found.type == HT_W_F32))
                fail_msg("%s: `%s` is %s", from, name, found.type_name);
        }
        ht_checkpoint_close(theirs);
        ht_checkpoint_close(ours);
    }
}

/* ---- what is refused ---- */

static void refuse(const char *from, const char *to, ht_container container, ht_dtype dtype, ht_status status,
                   const char *says) {
    const int entries = scratch_count();
    assert_fails(status, says, convert, from, to, container, NULL, dtype, NULL);
    assert_int_equal(scratch_count(), entries);
}

static void stop_at_once(double done, void *user) {
    if (done > 0) ht_cancel_request(user);
}

static void nothing_is_left_of_a_failure(void **state) {
    (void)state;
    const char *to = scratch_path("out.gguf"), *directory = scratch_path("out");
    refuse(tiny_checkpoint("llama-f32"), directory, HT_CONTAINER_GGUF, HT_DTYPE_NONE, HT_ERR_ARGUMENT,
           "the name of a GGUF file must end with .gguf");
    refuse(tiny_checkpoint("llama-f32"), to, (ht_container)9, HT_DTYPE_NONE, HT_ERR_ARGUMENT, "no container");
    refuse(tiny_checkpoint("llama-f32"), to, HT_CONTAINER_SAME, HT_DTYPE_NONE, HT_ERR_ARGUMENT,
           "type of the weights is missing");
    refuse(tiny_checkpoint("llama-f32"), to, HT_CONTAINER_GGUF, HT_I32, HT_ERR_ARGUMENT, "cannot be written as i32");
    refuse(tiny_checkpoint("llama-f32"), tiny_checkpoint("llama-f32"), HT_CONTAINER_GGUF, HT_DTYPE_NONE,
           HT_ERR_ARGUMENT, "is a directory");
    refuse(tiny_checkpoint("qwen3-moe-mxfp8"), to, HT_CONTAINER_GGUF, HT_DTYPE_NONE, HT_ERR_UNSUPPORTED,
           "norm_topk_prob");
    scratch_write("own.gguf", "x", 1);
    const char *own = scratch_path("own.gguf");
    refuse(tiny_checkpoint("llama-f32"), own, HT_CONTAINER_GGUF, HT_DTYPE_NONE, HT_ERR_ARGUMENT, "is not replaced");
    for (int i = 0; i < 2; i++) { /* in the middle of the values, in both containers */
        ht_cancel cancel = {0};
        ht_error err = {0};
        ht_convert_options o = OPTIONS(ht_convert_options, with.container = i ? HT_CONTAINER_MLX : HT_CONTAINER_GGUF,
                                       with.cancel = &cancel, with.progress = stop_at_once, with.user = &cancel);
        assert_int_equal(ht_convert(tiny_checkpoint(i ? "llama-f32.gguf" : "llama-f32"), i ? directory : to, &o, &err),
                         HT_ERR_CANCELLED);
        assert_int_equal(scratch_count(), 1);
    }
    /* What was written here is replaced. */
    ht_convert_report report;
    must_convert(tiny_checkpoint("llama-f32"), to, HT_CONTAINER_GGUF, &report);
    must_convert(tiny_checkpoint("qwen2-f32"), to, HT_CONTAINER_GGUF, &report);
    assert_int_equal(scratch_count(), 2);
}

int main(void) {
    const struct CMUnitTest tests[] = {in_scratch(every_tiny_checkpoint),
                                       in_scratch(every_family),
                                       in_scratch(directories_have_names_of_mlx_lm),
                                       in_scratch(joined_inputs_in_gguf),
                                       in_scratch(quantised_weights_stay_packed),
                                       in_scratch(floats_come_back_as_they_were),
                                       in_scratch(quantising_goes_over),
                                       in_scratch(floats_of_another_type),
                                       in_scratch(f32_stays_in_gguf),
                                       in_scratch(nothing_is_left_of_a_failure)};
    return cmocka_run_group_tests(tests, cpu_device_open, cpu_device_close);
}
