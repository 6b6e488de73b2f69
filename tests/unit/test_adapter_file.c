/* Adapters travel between the three formats with their bits, and what does not fit a model, or is no plain LoRA, is
 * named. */
#include "base/half.h"
#include "checkpoint/config.h"
#include "formats/gguf.h"
#include "models/adapter.h"
#include "support/adapters.h"
#include "support/checkpoints.h"
#include "support/gguf_writer.h"
#include "support/options.h"
#include "support/safetensors_writer.h"
#include "support/scratch.h"
#include "support/test.h"
#include "support/weights.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static ht_model *load_model(const char *name) { return tiny_checkpoint_load(name, 0, NULL); }

/* A pair for every projection, of `rank`. */
static ht_adapter *make_adapter(const ht_model *m, int64_t rank, float scale) {
    ht_adapter *a = test_adapter_for(m, rank, 1, 7);
    for (int64_t i = 0; i < a->n; i++) a->lora[i].scale = scale;
    return a;
}

static ht_adapter *load(const char *path, const ht_model *m) {
    ht_error err = {0};
    ht_adapter *a;
    if (ht_adapter_load(path, m, NULL, &a, &err)) fail_msg("%s", err.message);
    return a;
}

static void save(const ht_adapter *a, const ht_model *m, const char *path, ht_adapter_format format) {
    ht_error err = {0};
    if (ht_adapter_save(a, m, path, format, &err)) fail_msg("%s", err.message);
}

/* Scale and B may share a power of two otherwise. */
static void check_equal(const ht_adapter *a, const ht_adapter *b) {
    assert_int_equal(a->n, b->n);
    for (int64_t i = 0; i < a->n; i++) {
        const ht_lora *l = &a->lora[i], *k = &b->lora[i];
        assert_string_equal(l->slot, k->slot);
        assert_int_equal(l->rank, k->rank);
        assert_int_equal(l->n_in, k->n_in);
        assert_int_equal(l->n_out, k->n_out);
        assert_int_equal(l->n_experts, k->n_experts);
        int64_t experts = l->n_experts ? l->n_experts : 1;
        assert_memory_equal(l->a, k->a, (size_t)(experts * l->rank * l->n_in) * sizeof *l->a);
        for (int64_t j = 0; j < experts * l->n_out * l->rank; j++)
            assert_true(l->scale * l->b[j] == k->scale * k->b[j]);
    }
}

static int n_alone, n_dependent; /* adapters that could be read without their model, and that could not */

/* Reads an adapter without its model; NULL if its names depend on that. */
static ht_adapter *load_alone(const char *path) {
    ht_adapter *a;
    ht_error err = {0};
    if (!ht_adapter_load(path, NULL, NULL, &a, &err)) {
        n_alone++;
        return a;
    }
    if (err.status != HT_ERR_ARGUMENT || !strstr(err.message, "the model, which was not given"))
        fail_msg("%s", err.message);
    n_dependent++;
    return NULL;
}

static void travel_for(ht_model *m) {
    ht_adapter *a = make_adapter(m, 4, 2), *last = ht_adapter_retain(a);
    static const ht_adapter_format formats[] = {HT_ADAPTER_PEFT, HT_ADAPTER_MLX,  HT_ADAPTER_GGUF, HT_ADAPTER_MLX,
                                                HT_ADAPTER_PEFT, HT_ADAPTER_GGUF, HT_ADAPTER_PEFT};
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++) {
        char name[32];
        if (ht_adapter_format_check(m, formats[i], NULL)) continue; /* test_fuse.c has these */
        snprintf(name, sizeof name, "adapter%zu%s", i, formats[i] == HT_ADAPTER_GGUF ? ".gguf" : "");
        const char *path = scratch_path(name);
        save(last, m, path, formats[i]);
        ht_adapter_free(last);
        last = load(path, m);
        assert_int_equal(last->format, formats[i]);
        assert_null(ht_adapter_warning(last));
        check_equal(a, last);
        /* Between PEFT and mlx-lm names suffice, but for gate and up in one tensor. */
        if (formats[i] == HT_ADAPTER_GGUF) continue;
        ht_adapter *alone = load_alone(path);
        if (!alone) continue;
        snprintf(name, sizeof name, "alone%zu", i);
        const ht_adapter_format other = formats[i] == HT_ADAPTER_MLX ? HT_ADAPTER_PEFT : HT_ADAPTER_MLX;
        if (alone->origin.has_multipliers) {
            assert_fails(HT_ERR_ARGUMENT, "factors on products", ht_adapter_save, alone, NULL, scratch_path(name),
                         other);
            ht_adapter_free(alone);
            continue;
        }
        if (alone->halved) {
            assert_fails(HT_ERR_ARGUMENT, "whose order of rows depends on the model", ht_adapter_save, alone, NULL,
                         scratch_path(name), HT_ADAPTER_MLX);
            ht_adapter_free(alone);
            continue;
        }
        save(alone, NULL, scratch_path(name), other);
        ht_adapter_free(alone);
        alone = load(scratch_path(name), m);
        check_equal(a, alone);
        ht_adapter_free(alone);
    }
    ht_adapter_free(last);
    ht_adapter_free(a);
    ht_model_free(m);
}

static void travel(void **state) { travel_for(load_model(*state)); }

/* Slots of all families, also of q, k and v or of gate and up in one matrix. */
static void travel_family(const char *path, bool is_file, void *user) {
    ht_model_options how = OPTIONS(ht_model_options);
    ht_model *m;
    int *turn = user;
    (void)is_file;
    if (!test_takes_today((*turn)++, 3)) return;
    assert_works(ht_device_open, "cpu", OPTIONS_AT(ht_device_options, with.n_threads = 1), &how.device);
    assert_works(ht_model_load, path, &how, &m);
    ht_device_free(how.device);
    travel_for(m);
    scratch_remove();
    scratch_make();
}

static void every_family(void **state) {
    (void)state;
    int turn = 0;
    n_alone = n_dependent = 0;
    family_checkpoints_each(travel_family, &turn);
    print_message("%d adapters read without their model, %d not\n", n_alone, n_dependent);
    assert_true(getenv("HEARTH_TEST_FAMILIES") || TEST_SLOW || (n_dependent > 0 && n_alone > n_dependent));
}

/* Replaces a text of the header of adapter_model.safetensors in a directory, everywhere. */
static void rename_tensors(const char *directory, const char *from, const char *to) {
    char path[512], *file, *at;
    size_t size, n = strlen(from), m = strlen(to);
    uint64_t header, longer = 0;
    snprintf(path, sizeof path, "%s/adapter_model.safetensors", directory);
    assert_works(ht_file_read_all, path, (size_t)1 << 24, &file, &size);
    memcpy(&header, file, sizeof header);
    ht_text text = {0};
    for (const char *rest = file + 8, *end = rest + header; rest < end; rest = at) {
        at = memmem(rest, (size_t)(end - rest), from, n);
        ht_text_append(&text, rest, (size_t)((at ? at : end) - rest));
        if (!at) break;
        ht_text_append(&text, to, m);
        at += n;
        longer++;
    }
    assert_true(longer > 0 && !text.failed);
    while (text.len % 8) ht_text_append(&text, " ", 1);
    FILE *out = fopen(path, "wb");
    assert_non_null(out);
    const uint64_t written = text.len;
    assert_int_equal(fwrite(&written, sizeof written, 1, out), 1);
    assert_int_equal(fwrite(text.data, 1, text.len, out), text.len);
    assert_int_equal(fwrite(file + 8 + header, 1, size - 8 - header, out), size - 8 - header);
    assert_int_equal(fclose(out), 0);
    ht_text_discard(&text);
    free(file);
}

/* Modules of Kimi-Linear as its releases' own code names them, with the model and without. */
static void names_of_releases(void **state) {
    (void)state;
    ht_model *m = load_model("../families/kimi_linear");
    ht_adapter *a = make_adapter(m, 3, 2), *read;
    const char *path = scratch_path("release"), *again = scratch_path("again");
    save(a, m, path, HT_ADAPTER_PEFT);
    rename_tensors(path, "self_attn.forget_gate.", "self_attn.");
    rename_tensors(path, "mlp.shared_experts.", "block_sparse_moe.shared_experts.");
    read = load(path, m);
    check_equal(a, read);
    ht_adapter_free(read);
    read = load(path, NULL);
    save(read, NULL, again, HT_ADAPTER_PEFT);
    ht_adapter_free(read);
    read = load(again, m);
    check_equal(a, read);
    ht_adapter_free(read);
    ht_adapter_free(a);
    ht_model_free(m);
}

/* A module whose name means different weights in different families keeps it until the model is known. */
static void ambiguous_names_stay(void **state) {
    (void)state;
    ht_model *m = load_model("../families/phimoe");
    ht_adapter *a = make_adapter(m, 3, 2), *read;
    const char *path = scratch_path("release"), *again = scratch_path("again");
    save(a, m, path, HT_ADAPTER_PEFT);
    rename_tensors(path, "mlp.router.", "block_sparse_moe.gate.");
    read = load(path, NULL);
    assert_non_null(ht_adapter_find(read, "model.layers.0.block_sparse_moe.gate"));
    save(read, NULL, again, HT_ADAPTER_PEFT);
    ht_adapter_free(read);
    read = load(again, m);
    check_equal(a, read);
    ht_adapter_free(read);
    ht_adapter_free(a);
    ht_model_free(m);
}

/* Pairs with ranks and scales of their own come out with one of each, and mean the same. */
static void one_rank_and_scale(void **state) {
    (void)state;
    ht_model *m = load_model("llama-f32");
    ht_adapter *a = make_adapter(m, 8, 2), *b;
    for (int64_t i = 0; i < a->n; i += 2) { /* the memory is that of rank 8 */
        a->lora[i].rank = 3;
        a->lora[i].scale = 0.5f;
    }
    save(a, m, scratch_path("mixed"), HT_ADAPTER_PEFT);
    b = load(scratch_path("mixed"), m);
    for (int64_t i = 0; i < b->n; i++) {
        const ht_lora *l = &a->lora[i], *k = &b->lora[i];
        assert_int_equal(k->rank, 8);
        assert_true(k->scale == 2);
        for (int64_t f = 0; f < k->n_out; f++)
            for (int64_t r = 0; r < 8; r++)
                assert_true(k->scale * k->b[f * 8 + r] == (r < l->rank ? l->scale * l->b[f * l->rank + r] : 0));
    }
    ht_adapter_info info;
    ht_adapter_describe(a, &info);
    assert_int_equal(info.rank, 3);
    assert_int_equal(info.most_rank, 8);
    ht_adapter_free(b);
    ht_adapter_free(a);
    ht_model_free(m);
}

/* ---- files written here, value by value ---- */

/* Element i of tensor `tag`. */
static float value_at(int tag, int64_t i) { return (float)(tag * 1000 + i) / 64; }

static void put_tensor(safetensors_writer *w, const char *name, int64_t rows, int64_t columns, int tag) {
    int64_t n = rows * columns;
    float *x = malloc((size_t)n * sizeof *x);
    for (int64_t i = 0; i < n; i++) x[i] = value_at(tag, i);
    safetensors_put(w, name, "F32", 2, (int64_t[]){rows, columns}, x, (size_t)n * sizeof *x);
    free(x);
}

/* Writes a directory of two files into the scratch directory. */
static const char *write_directory(const char *name, const char *config, const char *tensors_name,
                                   safetensors_writer *w) {
    char path[64];
    (void)mkdir(scratch_path(name), 0777);
    snprintf(path, sizeof path, "%s/adapter_config.json", name);
    scratch_write(path, config, strlen(config));
    snprintf(path, sizeof path, "%s/%s", name, tensors_name);
    safetensors_write(w, path);
    return scratch_path(name);
}

static const char *write_peft(const char *name, const char *config, safetensors_writer *w) {
    return write_directory(name, config, "adapter_model.safetensors", w);
}

#define Q "base_model.model.model.layers.1.self_attn.q_proj"
static const char plain[] = "{\"peft_type\": \"LORA\", \"r\": 3, \"lora_alpha\": 6, \"target_modules\": [\"q_proj\"]}";

/* llama-f32: q_proj of [48, 48] is square, so only the format tells A from its transpose. */
static void orientation_is_of_the_format(void **state) {
    (void)state;
    ht_model *m = load_model("llama-f32");
    safetensors_writer w = {0};
    put_tensor(&w, Q ".lora_A.weight", 3, 48, 1);
    put_tensor(&w, Q ".lora_B.weight", 48, 3, 2);
    ht_adapter *a = load(write_peft("plain", plain, &w), m);
    assert_int_equal(a->n, 1);
    const ht_lora *l = ht_adapter_find(a, "model.layers.1.self_attn.q_proj");
    assert_non_null(l);
    assert_true(l->scale == 2 && l->rank == 3);
    for (int64_t i = 0; i < 3 * 48; i++) assert_true(l->a[i] == value_at(1, i) && l->b[i] == value_at(2, i));
    ht_adapter_free(a);

    put_tensor(&w, "model.layers.1.self_attn.q_proj.lora_a", 48, 48, 1);
    put_tensor(&w, "model.layers.1.self_attn.q_proj.lora_b", 48, 48, 2);
    a = load(write_directory("square",
                             "{\"num_layers\": 1, \"lora_parameters\": {\"rank\": 48, \"scale\": 20.0, "
                             "\"dropout\": 0}}",
                             "adapters.safetensors", &w),
             m);
    l = &a->lora[0];
    assert_true(l->scale == 20);
    for (int64_t i = 0; i < 48; i++)
        for (int64_t k = 0; k < 48; k++)
            assert_true(l->a[i * 48 + k] == value_at(1, k * 48 + i) && l->b[i * 48 + k] == value_at(2, k * 48 + i));
    ht_adapter_free(a);
    ht_model_free(m);
}

/* Scales: rsLoRA, patterns by Python's re.match, wrappers' prefixes, half precision. */
static void peft_scales(void **state) {
    (void)state;
    ht_model *m = load_model("llama-f32");
    safetensors_writer w = {0};
    uint16_t half[3 * 48];
    for (int i = 0; i < 3 * 48; i++) half[i] = ht_f32_to_bf16((float)i);
    safetensors_put(&w, Q ".lora_A.weight", "BF16", 2, (int64_t[]){3, 48}, half, sizeof half);
    put_tensor(&w, Q ".lora_B.weight", 48, 3, 2);
#define V "base_model.model.model.language_model.layers.0.self_attn.v_proj"
    put_tensor(&w, V ".lora_A.weight", 5, 48, 1);
    put_tensor(&w, V ".lora_B.weight", 16, 5, 2);
    ht_adapter *a = load(write_peft("rs",
                                    "{\"peft_type\": \"LORA\", \"r\": 3, \"lora_alpha\": 6.5, \"use_rslora\": true, "
                                    "\"rank_pattern\": {\"proj\": 4, \".*\\\\.v_proj\": 5, \"v_proj\": 6}, "
                                    "\"alpha_pattern\": {\"layers.0.self_attn.v_proj\": 9}}",
                                    &w),
                         m);
    const ht_lora *q = ht_adapter_find(a, "model.layers.1.self_attn.q_proj"),
                  *v = ht_adapter_find(a, "model.layers.0.self_attn.v_proj");
    assert_true(q && v && q->rank == 3 && v->rank == 5);
    assert_true(q->scale == (float)(6.5 / sqrt(3)) && v->scale == (float)(9 / sqrt(5)));
    assert_true(q->a[77] == 77);
    ht_adapter_free(a);
    ht_model_free(m);
}

/* Of qwen3-moe: 44 in, 20 out. PEFT's parameters of all experts: B has the expert as its fastest index. */
static void peft_parameters(void **state) {
    (void)state;
    ht_model *m = load_model("qwen3-moe-f32");
    int64_t n = m->config->n_experts, in = m->config->hidden, out = m->config->expert_feed_forward;
    safetensors_writer w = {0};
#define E "base_model.model.model.layers.0.mlp.experts"
    put_tensor(&w, E ".base_layer.lora_A.weight", n * 2, in, 1);
    put_tensor(&w, E ".base_layer.lora_B.weight", 2 * out, n * 2, 2);
    put_tensor(&w, E ".lora_A.weight", n * 2, out, 3);
    put_tensor(&w, E ".lora_B.weight", in, n * 2, 4);
    ht_adapter *a = load(write_peft("stacked",
                                    "{\"peft_type\": \"LORA\", \"r\": 2, \"lora_alpha\": 2, \"target_parameters\": "
                                    "[\"mlp.experts.gate_up_proj\", \"mlp.experts.down_proj\"]}",
                                    &w),
                         m);
    assert_int_equal(a->n, 3);
    const ht_lora *gate = ht_adapter_find(a, "model.layers.0.experts.gate_proj"),
                  *up = ht_adapter_find(a, "model.layers.0.experts.up_proj"),
                  *down = ht_adapter_find(a, "model.layers.0.experts.down_proj");
    assert_true(gate && up && down);
    for (int64_t e = 0; e < n; e++)
        for (int64_t r = 0; r < 2; r++) {
            for (int64_t i = 0; i < in; i++) {
                assert_true(gate->a[(e * 2 + r) * in + i] == value_at(1, (e * 2 + r) * in + i));
                assert_true(up->a[(e * 2 + r) * in + i] == value_at(1, (e * 2 + r) * in + i));
                assert_true(down->b[(e * in + i) * 2 + r] == value_at(4, i * n * 2 + r * n + e));
            }
            for (int64_t o = 0; o < out; o++) {
                assert_true(gate->b[(e * out + o) * 2 + r] == value_at(2, o * n * 2 + r * n + e));
                assert_true(up->b[(e * out + o) * 2 + r] == value_at(2, (out + o) * n * 2 + r * n + e));
            }
        }
    ht_adapter_free(a);
    ht_model_free(m);
}

/* Two pairs of Qwen3-Next's joined projection, with an A of their own each: their ranks follow each other. */
static void gguf_parts(void **state) {
    (void)state;
    ht_model *m = load_model("../families/qwen3_next");
    const ht_recurrence_spec *r = &m->config->recurrence;
    static const char *const names[] = {"gate", "qkv"}; /* in the order of their slots */
    static const ht_part_rule parts[] = {HT_PART_GATE, HT_PART_QKV};
    const int64_t n_in = m->config->hidden, n_values = r->heads * r->value_dim,
                  n_out[] = {n_values, 2 * r->key_heads * r->key_dim + n_values}, ranks[] = {1, 2};
    float *values = malloc((size_t)(2 * (n_in + n_out[1])) * sizeof *values);
    assert_non_null(values);
    for (int64_t i = 0; i < 2 * (n_in + n_out[1]); i++) values[i] = value_at(3, i);
    gguf_writer w = gguf_writer_new();
    gguf_put_str(&w, "general.architecture", "qwen3next");
    gguf_put_str(&w, "general.type", "adapter");
    gguf_put_str(&w, "adapter.type", "lora");
    gguf_put_f32(&w, "adapter.lora.alpha", 4);
    for (int i = 0; i < 2; i++) {
        char name[64];
        snprintf(name, sizeof name, "blk.0.attn_%s.weight.lora_a", names[i]);
        gguf_put_tensor(&w, name, HT_W_F32, 2, (int64_t[]){n_in, ranks[i]}, values + i);
        snprintf(name, sizeof name, "blk.0.attn_%s.weight.lora_b", names[i]);
        gguf_put_tensor(&w, name, HT_W_F32, 2, (int64_t[]){ranks[i], n_out[i]}, values + i);
    }
    gguf_write(&w, "parts.gguf");
    ht_adapter *a = load(scratch_path("parts.gguf"), m);
    assert_int_equal(a->n, 1);
    const ht_lora *l = &a->lora[0];
    assert_string_equal(l->slot, "model.layers.0.linear_attn.in_proj_qkvz");
    assert_true(l->rank == 3 && l->n_out == n_out[0] + n_out[1] && l->scale == 4);
    for (int i = 0; i < 2; i++) {
        int64_t run;
        assert_memory_equal(l->a + i * n_in, values + i, (size_t)(ranks[i] * n_in) * sizeof *values);
        for (int64_t row = 0; row < n_out[i]; row++) {
            const float *b = l->b + 3 * ht_part_row(r, parts[i], row, &run);
            for (int64_t k = 0; k < 3; k++) { /* alpha / rank differs */
                const int64_t own = k - i;
                const float wanted =
                    own >= 0 && own < ranks[i] ? values[i + row * ranks[i] + own] / (float)ranks[i] : 0;
                assert_true(b[k] == wanted);
            }
        }
    }
    ht_adapter_free(a);
    free(values);
    ht_model_free(m);
}

/* A GGUF file of a family whose q and k are permuted there: rows 2j and 2j + 1 of a head are rows j and j + half. */
static void gguf_rows(void **state) {
    (void)state;
    ht_model *m = load_model("llama-f32.gguf");
    int64_t n_in = m->config->hidden, n_out = m->config->n_heads * m->config->head_dim, dim = m->config->head_dim;
    float *a_values = malloc((size_t)(2 * n_in) * sizeof *a_values),
          *b_values = malloc((size_t)(2 * n_out) * sizeof *b_values);
    assert_true(a_values && b_values);
    for (int64_t i = 0; i < 2 * n_in; i++) a_values[i] = value_at(1, i);
    for (int64_t i = 0; i < 2 * n_out; i++) b_values[i] = value_at(2, i);
    for (int round = 0; round < 2; round++) {
        gguf_writer w = gguf_writer_new();
        gguf_put_str(&w, "general.architecture", "llama");
        gguf_put_str(&w, "general.type", "adapter");
        gguf_put_str(&w, "adapter.type", "lora");
        if (round) gguf_put_f32(&w, "adapter.lora.alpha", 5);
        gguf_put_tensor(&w, "blk.0.attn_q.weight.lora_a", HT_W_F32, 2, (int64_t[]){n_in, 2}, a_values);
        gguf_put_tensor(&w, "blk.0.attn_q.weight.lora_b", HT_W_F32, 2, (int64_t[]){2, n_out}, b_values);
        gguf_write(&w, "rows.gguf");
        ht_adapter *a = load(scratch_path("rows.gguf"), m);
        const ht_lora *l = &a->lora[0];
        assert_string_equal(l->slot, "model.layers.0.self_attn.q_proj");
        assert_true(l->scale == (round ? 2.5f : 1));
        assert_memory_equal(l->a, a_values, (size_t)(2 * n_in) * sizeof *a_values);
        for (int64_t row = 0; row < n_out; row++) {
            int64_t head = row / dim, half = row % dim / (dim / 2), j = row % (dim / 2);
            assert_memory_equal(&l->b[row * 2], &b_values[(head * dim + 2 * j + half) * 2], 2 * sizeof *b_values);
        }
        ht_adapter_free(a);
    }
    ht_error err = {0};
    ht_adapter_info info;
    ht_adapter *alone = load(scratch_path("rows.gguf"), NULL);
    ht_adapter_describe(alone, &info);
    assert_true(info.needs_model);
    assert_int_equal(ht_adapter_save(alone, NULL, scratch_path("alone"), HT_ADAPTER_PEFT, &err), HT_ERR_ARGUMENT);
    assert_int_equal(ht_adapter_check(alone, m, &err), HT_ERR_ARGUMENT);
    ht_adapter_free(alone);
    free(a_values);
    free(b_values);
    ht_model_free(m);
}

/* ---- refused ---- */

static void refused(const char *path, const ht_model *m, ht_status status, const char *says) {
    ht_error err = {0};
    ht_adapter *a;
    ht_status got = ht_adapter_load(path, m, NULL, &a, &err);
    if (got != status || !strstr(err.message, says)) fail_msg("status %d, expected %d: %s", got, status, err.message);
    assert_null(a);
}

static void is_strict(void **state) {
    (void)state;
    static const struct {
        const char *name;
        int64_t rows, columns;
        ht_status status;
        const char *says;
    } cases[] = {
        /* beside a good A of q_proj */
        {NULL, 0, 0, HT_ERR_FORMAT, "B is missing"},
        {Q ".lora_B.weight", 48, 4, HT_ERR_FORMAT, "does not have the rank 3"},
        {Q ".lora_B.weight", 3, 48, HT_ERR_FORMAT, "does not have the rank 3"},
        {Q ".lora_B.weight", 40, 3, HT_ERR_ARGUMENT, "is for another model"},
        {Q ".lora_B.bias", 48, 3, HT_ERR_UNSUPPORTED, "a bias of B"},
        {Q ".lora_magnitude_vector", 48, 1, HT_ERR_UNSUPPORTED, "DoRA"},
        {Q ".weight", 48, 48, HT_ERR_UNSUPPORTED, "modules_to_save"},
        {"base_model.model.lm_head.lora_B.weight", 48, 3, HT_ERR_UNSUPPORTED, "no layer of a text model"},
        {"base_model.model.vision_tower.layers.1.self_attn.q_proj.lora_B.weight", 48, 3, HT_ERR_UNSUPPORTED,
         "no layer of a text model"},
        {"base_model.model.model.embed_tokens.lora_embedding_A", 3, 96, HT_ERR_UNSUPPORTED, "embedding"},
        {"base_model.model.model.embed_tokens.base_layer.weight", 3, 96, HT_ERR_UNSUPPORTED, "base model"},
    };
    ht_model *m = load_model("llama-f32");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        safetensors_writer w = {0};
        put_tensor(&w, Q ".lora_A.weight", 3, 48, 1);
        if (cases[i].name) put_tensor(&w, cases[i].name, cases[i].rows, cases[i].columns, 2);
        refused(write_peft("strict", plain, &w), m, cases[i].status, cases[i].says);
    }
    static const struct {
        const char *member, *says;
    } members[] = {
        {"\"use_dora\": true", "DoRA"},
        {"\"lora_bias\": true", "biases"},
        {"\"modules_to_save\": [\"lm_head\"]", "modules_to_save"},
        {"\"bias\": \"all\"", "biases"},
        {"\"trainable_token_indices\": [1]", "embedding"},
        {"\"layer_replication\": [[0, 2]]", "repeats layers"},
        {"\"alora_invocation_tokens\": [1, 2]", "aLoRA"},
        {"\"init_lora_weights\": \"pissa_niter_4\"", "changed the base weights"},
        {"\"peft_type\": \"LOHA\"", "LOHA"},
        {"\"rank_pattern\": {\"q_proj\": 4}", "does not have the rank 4"},
    };
    for (size_t i = 0; i < sizeof members / sizeof *members; i++) {
        safetensors_writer w = {0};
        char config[256];
        put_tensor(&w, Q ".lora_A.weight", 3, 48, 1);
        put_tensor(&w, Q ".lora_B.weight", 48, 3, 2);
        snprintf(config, sizeof config, "{\"peft_type\": \"LORA\", \"r\": 3, \"lora_alpha\": 6, %s}",
                 members[i].member);
        refused(write_peft("strict", config, &w), m, i == 9 ? HT_ERR_FORMAT : HT_ERR_UNSUPPORTED, members[i].says);
    }
    ht_model_free(m);
}

static void refuses_other_files(void **state) {
    (void)state;
    ht_model *m = load_model("llama-f32"), *other = load_model("qwen3-f32");
    refused(scratch_directory(), m, HT_ERR_FORMAT, "holds no adapter");
    refused(scratch_path("none"), m, HT_ERR_IO, "cannot be opened");
    refused("tests/golden/tiny/llama-f32.gguf", m, HT_ERR_ARGUMENT, "expected `adapter`");
    refused("tests/golden/tiny/llama-f32/model.safetensors", m, HT_ERR_FORMAT, "is no adapter");
    ht_adapter *a = make_adapter(m, 2, 1);
    save(a, m, scratch_path("peft"), HT_ADAPTER_PEFT);
    save(a, m, scratch_path("lora.gguf"), HT_ADAPTER_GGUF);
    refused(scratch_path("peft"), other, HT_ERR_ARGUMENT, "is for another model");
    refused(scratch_path("lora.gguf"), other, HT_ERR_ARGUMENT, "for a llama, and the model is a qwen3");
    a->lora[3].b[5] = NAN;
    assert_fails(HT_ERR_ARGUMENT, "no finite number", ht_adapter_save, a, m, scratch_path("nan"), HT_ADAPTER_MLX);
    ht_adapter_free(a);
    ht_model_free(other);
    ht_model_free(m);
}

/* Every prefix of a file is refused, as a file of its own. */
static void refuses_damaged_files(void **state) {
    (void)state;
    ht_model *m = load_model("llama-f32");
    ht_adapter *a = make_adapter(m, 1, 1);
    save(a, m, scratch_path("whole.gguf"), HT_ADAPTER_GGUF);
    FILE *f = fopen(scratch_path("whole.gguf"), "rb");
    assert_non_null(f);
    static char bytes[1 << 20];
    size_t n = fread(bytes, 1, sizeof bytes, f), steps = 200;
    fclose(f);
    for (size_t i = 0; i < steps; i++) {
        ht_error err = {0};
        ht_adapter *none;
        scratch_write("part.gguf", bytes, n * i / steps);
        assert_int_not_equal(ht_adapter_load(scratch_path("part.gguf"), m, NULL, &none, &err), HT_OK);
        assert_null(none);
        assert_true(err.message[0] != '\0');
    }
    ht_adapter_free(a);
    ht_model_free(m);
}

/* ---- writing ---- */

static void replaces_only_adapters(void **state) {
    (void)state;
    ht_error err = {0};
    ht_model *m = load_model("llama-f32");
    ht_adapter *a = make_adapter(m, 2, 1), *b = make_adapter(m, 3, 1);
    save(a, m, scratch_path("again"), HT_ADAPTER_PEFT);
    save(b, m, scratch_path("again"), HT_ADAPTER_MLX);
    assert_int_equal(ht_adapter_save_check(scratch_path("again"), &err), HT_OK);
    assert_int_equal(ht_adapter_save_check(scratch_path("new/"), &err), HT_OK);
    assert_int_equal(ht_adapter_save_check("new", &err), HT_OK);
    assert_int_equal(ht_adapter_save_check("", &err), HT_ERR_ARGUMENT);
    assert_int_equal(scratch_count(), 1);
    ht_adapter *read = load(scratch_path("again"), m);
    check_equal(b, read);
    ht_adapter_free(read);
    scratch_write("again/notes.txt", "mine", 4);
    int n = scratch_count();
    assert_fails(HT_ERR_ARGUMENT, "notes.txt", ht_adapter_save, a, m, scratch_path("again"), HT_ADAPTER_PEFT);
    assert_fails(HT_ERR_ARGUMENT, "notes.txt", ht_adapter_save_check, scratch_path("again"));
    read = load(scratch_path("again"), m);
    check_equal(b, read);
    ht_adapter_free(read);
    scratch_write("model.gguf", "GGUF", 4);
    assert_int_equal(ht_adapter_save(a, m, scratch_path("model.gguf"), HT_ADAPTER_GGUF, &err), HT_ERR_ARGUMENT);
    assert_int_equal(ht_adapter_save(a, m, scratch_path("none/adapter"), HT_ADAPTER_PEFT, &err), HT_ERR_IO);
    assert_int_equal(ht_adapter_save_check(scratch_path("none/adapter"), &err), HT_ERR_IO);
    assert_int_equal(ht_adapter_save_check(scratch_path("model.gguf"), &err), HT_ERR_IO);
    assert_int_equal(scratch_count(), n + 1);
    ht_adapter_free(a);
    ht_adapter_free(b);
    ht_model_free(m);
}

/* Of a checkpoint, computed as `precision` and an instruction set pack it. */
static void fingerprint_of(const char *name, ht_precision precision, const char *set, char out[HT_FINGERPRINT_SIZE]) {
    char path[128];
    ht_error err = {0};
    ht_device *device;
    ht_model *m;
    snprintf(path, sizeof path, "tests/golden/tiny/%s", name);
    ht_device_options how = OPTIONS(ht_device_options, with.n_threads = 1, with.instruction_set = set);
    if (ht_device_open("cpu", &how, &device, &err)) fail_msg("%s", err.message);
    ht_model_options options = OPTIONS(ht_model_options, with.device = device, with.precision = precision);
    if (ht_model_load(path, &options, &m, &err)) fail_msg("%s", err.message);
    assert_int_equal(ht_model_fingerprint(m, out, &err), HT_OK);
    assert_int_equal(strlen(out), HT_FINGERPRINT_SIZE - 1);
    ht_model_free(m);
    ht_device_free(device);
}

/* A fingerprint is of the values, not of the form in which they are packed; another checkpoint is told. */
static void fingerprints(void **state) {
    (void)state;
    static const char *const names[] = {"llama-f32", "llama-q8_0.gguf", "qwen3-moe-mlx4-bf16"};
    char first[3][HT_FINGERPRINT_SIZE], other[HT_FINGERPRINT_SIZE];
    ht_error err = {0};
    ht_adapter *a;
    for (int i = 0; i < 3; i++) {
        fingerprint_of(names[i], HT_PRECISION_HIGH, NULL, first[i]);
        fingerprint_of(names[i], HT_PRECISION_REFERENCE, NULL, other);
        assert_string_equal(first[i], other);
        fingerprint_of(names[i], HT_PRECISION_FAST, "reference", other);
        assert_string_equal(first[i], other);
    }
    assert_string_not_equal(first[0], first[1]);
    ht_model *m = load_model("llama-f32");
    a = make_adapter(m, 2, 1);
    a->origin.fingerprint = strdup("0123456789abcdef");
    for (int format = HT_ADAPTER_PEFT; format <= HT_ADAPTER_GGUF; format++) {
        const char *path = scratch_path(format == HT_ADAPTER_GGUF ? "o.gguf" : format == HT_ADAPTER_MLX ? "o1" : "o2");
        save(a, m, path, (ht_adapter_format)format);
        ht_adapter *read = load(path, m);
        assert_non_null(ht_adapter_warning(read));
        assert_non_null(strstr(ht_adapter_warning(read), "another checkpoint (fingerprint 0123456789abcdef, here "));
        ht_adapter_free(read);
        ht_adapter_options o;
        ht_adapter_options_init(&o, sizeof o);
        o.same_base = true;
        assert_int_equal(ht_adapter_load(path, m, &o, &read, &err), HT_ERR_ARGUMENT);
        assert_null(read);
    }
    ht_adapter_free(a);
    ht_model_free(m);
}

int main(void) {
    const struct CMUnitTest tests[] = {
#define TRAVEL(name) {"travel " name, travel, scratch_start, scratch_finish, (void *)(uintptr_t)name}
        TRAVEL("llama-f32"),
        TRAVEL("llama-q8_0.gguf"),
        TRAVEL("mistral-head-dim-bf16"),
        TRAVEL("qwen2-f32"),
        TRAVEL("qwen3-f32"),
        TRAVEL("qwen3-moe-f32"),
        TRAVEL("qwen3-moe-mixed-bf16"),
        TRAVEL("qwen3-moe-q4_1.gguf"),
        TRAVEL("gemma2-f32"),
        TRAVEL("gemma3-multimodal-bf16-shards"),
        TRAVEL("gemma4-shared-bf16"),
        TRAVEL("gemma4-experts-bf16"),
        TRAVEL("gemma4-experts-q8_0.gguf"),
        TRAVEL("gemma4-k-is-v-f16-shards"),
        in_scratch(every_family),
        in_scratch(names_of_releases),
        in_scratch(ambiguous_names_stay),
        in_scratch(one_rank_and_scale),
        in_scratch(orientation_is_of_the_format),
        in_scratch(peft_scales),
        in_scratch(peft_parameters),
        in_scratch(gguf_rows),
        in_scratch(gguf_parts),
        in_scratch(is_strict),
        in_scratch(refuses_other_files),
        in_scratch(refuses_damaged_files),
        in_scratch(replaces_only_adapters),
        in_scratch(fingerprints)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
