/* Loading and describing models: what is refused, with which words, and that nothing is left behind. */
#include "checkpoint/kv_size.h"
#include "generate/cache.h"
#include "models/model.h"
#include "models/pack.h"
#include "models/weights.h"
#include "support/checkpoints.h"
#include "support/gguf_writer.h"
#include "support/options.h"
#include "support/safetensors_writer.h"
#include "support/scratch.h"
#include "support/test.h"
#include "support/tiny_model.h"

#include <hearth/hearth.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static ht_device *device;

static int open_all(void **state) {
    (void)state;
    scratch_make();
    ht_error err = {0};
    return ht_device_open("cpu", OPTIONS_AT(ht_device_options, with.n_threads = 2), &device, &err) != HT_OK;
}

static int close_all(void **state) {
    (void)state;
    ht_device_free(device);
    scratch_remove();
    return 0;
}

static ht_status try_load(const char *path, ht_model_options options, ht_error *err) {
    options.device = device;
    *err = (ht_error){0};
    ht_model *m = (ht_model *)1;
    ht_status status = ht_model_load(path, &options, &m, err);
    if (status)
        assert_null(m);
    else
        ht_model_free(m);
    return status;
}

static void refused_with(const char *path, ht_model_options options, ht_status expected, const char *const *words) {
    ht_error err;
    ht_status status = try_load(path, options, &err);
    if (status != expected) fail_msg("%s: status %d (%s), expected %d", path, status, err.message, expected);
    for (; status && *words; words++)
        if (!strstr(err.message, *words)) fail_msg("\"%s\" does not say \"%s\"", err.message, *words);
}
#define REFUSED(path, expected, ...)                                                                                   \
    refused_with(path, DEFAULTS(ht_model_options), expected, (const char *const[]){__VA_ARGS__, NULL})
#define REFUSED_OPTIONS(path, options, expected, ...)                                                                  \
    refused_with(path, options, expected, (const char *const[]){__VA_ARGS__, NULL})

static void loads(const char *path) { refused_with(path, DEFAULTS(ht_model_options), HT_OK, NULL); }

static const char tiny[] = "tests/golden/tiny/llama-q4_1.gguf";

/* Copies a file with every `from` replaced by `to`, of the same length; NULL: unchanged. */
static void copy_changed(const char *path, const char *name, const char *from, const char *to) {
    size_t size, n = from ? strlen(from) : 0, found = 0;
    char *data = file_bytes(path, &size);
    assert_int_equal(n, from ? strlen(to) : 0);
    for (size_t i = 0; from && i + n <= size; i++)
        if (!memcmp(data + i, from, n)) {
            memcpy(data + i, to, n);
            found++;
        }
    assert_true(!from || found > 0);
    scratch_write(name, data, size);
    free(data);
}

static void copy_file(const char *from, const char *name) { copy_changed(from, name, NULL, NULL); }

static void paths(void **state) {
    (void)state;
    REFUSED("does/not/exist.gguf", HT_ERR_IO, "does/not/exist.gguf");
    REFUSED(scratch_directory(), HT_ERR_FORMAT, "no weights", "safetensors", ".gguf");
    scratch_write("text.gguf", "hello, this is no model", 23);
    REFUSED(scratch_path("text.gguf"), HT_ERR_FORMAT, "text.gguf", "not a GGUF file");
    scratch_write("empty.gguf", "", 0);
    REFUSED(scratch_path("empty.gguf"), HT_ERR_FORMAT, "empty.gguf");
    REFUSED(scratch_directory(), HT_ERR_ARGUMENT, "2 GGUF files");
    REFUSED("tests/golden/tiny/llama-f32/model.safetensors", HT_ERR_FORMAT, "directory");
    REFUSED("tests/golden/tiny/llama-f32/config.json", HT_ERR_FORMAT, "not a GGUF file");
    remove(scratch_path("text.gguf"));
    remove(scratch_path("empty.gguf"));
    /* One GGUF file in a directory, with files beside it that are no model. */
    copy_file(tiny, "one.gguf");
    static const char *const beside[] = {"mmproj-f16.gguf",  "one-mmproj-f16.gguf", "imatrix.gguf",
                                         "one.imatrix.gguf", "mtp-one.gguf",        "one-draft.gguf",
                                         "adapter.gguf",     "one-Q8_0-LoRA.gguf"};
    for (size_t i = 0; i < sizeof beside / sizeof *beside; i++) scratch_write(beside[i], "x", 1);
    loads(scratch_directory());
    remove(scratch_path("one.gguf"));
    /* A draft model is one where there is no other. */
    remove(scratch_path("mtp-one.gguf"));
    remove(scratch_path("one.imatrix.gguf"));
    remove(scratch_path("one-Q8_0-LoRA.gguf"));
    copy_file(tiny, "one-draft.gguf");
    loads(scratch_directory());
    for (size_t i = 0; i < sizeof beside / sizeof *beside; i++) remove(scratch_path(beside[i]));
}

typedef struct limit {
    double share;
    ht_cancel flag;
} limit;

static void cancel_at(double done, void *user) {
    limit *l = user;
    if (done >= l->share) ht_cancel_request(&l->flag);
}

static void options(void **state) {
    (void)state;
    REFUSED_OPTIONS(tiny, OPTIONS(ht_model_options, with.context = 513), HT_ERR_LIMIT, "llama-q4_1.gguf", "512", "513");
    REFUSED_OPTIONS(tiny, OPTIONS(ht_model_options, with.context = -1), HT_ERR_ARGUMENT, "-1");
    REFUSED_OPTIONS(tiny, OPTIONS(ht_model_options, with.kv_dtype = HT_I32), HT_ERR_ARGUMENT, "i32", "f16");
    limit limits[] = {{.share = 0}, {.share = 0.3}, {.share = 1}, {.share = 2}};
    ht_cancel_request(&limits[3].flag); /* before the call */
    for (int i = 0; i < 4; i++)
        REFUSED_OPTIONS(tiny,
                        (OPTIONS(ht_model_options, with.progress = cancel_at, with.user = &limits[i],
                                 with.cancel = &limits[i].flag)),
                        HT_ERR_CANCELLED, "cancelled");
    ht_model *m;
    ht_error err = {0};
    assert_int_equal(
        ht_model_load(tiny, OPTIONS_AT(ht_model_options, with.device = device, with.context = 300), &m, &err), HT_OK);
    assert_int_equal(ht_model_context(m), 300);
    assert_int_equal(ht_model_vocab_size(m), 61);
    assert_null(ht_model_tokenizer(m));
    ht_model_free(m);
}

/* A llama of one layer with a change to one tensor. */
typedef struct change {
    const char *tensor;
    int64_t dims[2]; /* 0: left out */
    ht_weight_type type;
    const char *also; /* a tensor of one zero */
} change;

static void write_llama(const char *name, const change *c) {
    static const struct {
        const char *name;
        int64_t dims[2];
    } all[] = {
        {"token_embd.weight", {32, 40}},        {"output_norm.weight", {32, 0}},    {"blk.0.attn_norm.weight", {32, 0}},
        {"blk.0.attn_q.weight", {32, 32}},      {"blk.0.attn_k.weight", {32, 16}},  {"blk.0.attn_v.weight", {32, 16}},
        {"blk.0.attn_output.weight", {32, 32}}, {"blk.0.ffn_norm.weight", {32, 0}}, {"blk.0.ffn_gate.weight", {32, 64}},
        {"blk.0.ffn_up.weight", {32, 64}},      {"blk.0.ffn_down.weight", {64, 32}}};
    gguf_writer w = gguf_writer_new();
    gguf_put_str(&w, "general.architecture", "llama");
    gguf_put_u32(&w, "llama.block_count", 1);
    gguf_put_u32(&w, "llama.context_length", 64);
    gguf_put_u32(&w, "llama.embedding_length", 32);
    gguf_put_u32(&w, "llama.feed_forward_length", 64);
    gguf_put_u32(&w, "llama.attention.head_count", 4);
    gguf_put_u32(&w, "llama.attention.head_count_kv", 2);
    bool added = false;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        const int64_t *dims = all[i].dims;
        ht_weight_type type = HT_W_F32;
        if (!strcmp(all[i].name, c->tensor)) {
            added = true;
            if (!c->dims[0]) continue;
            dims = c->dims;
            type = c->type;
        }
        gguf_put_tensor(&w, all[i].name, type, dims[1] ? 2 : 1, dims, NULL);
    }
    if (!added && c->dims[0]) gguf_put_tensor(&w, c->tensor, c->type, c->dims[1] ? 2 : 1, c->dims, NULL);
    if (c->also) gguf_put_tensor(&w, c->also, HT_W_F32, 1, (int64_t[]){1}, NULL);
    gguf_write(&w, name);
}

static void tensors(void **state) {
    (void)state;
    static const struct {
        change change;
        const char *words; /* NULL: no error */
    } cases[] = {
        {{"none", {0, 0}, HT_W_F32, NULL}, NULL},
        {{"blk.0.ffn_up.weight", {0, 0}, HT_W_F32, NULL}, "`blk.0.ffn_up.weight` is missing"},
        {{"blk.0.ffn_up.weight", {32, 65}, HT_W_F32, NULL},
         "tensor `blk.0.ffn_up.weight` is [65, 32], its metadata implies [64, 32]"},
        {{"blk.0.ffn_norm.weight", {32, 2}, HT_W_F32, NULL},
         "`blk.0.ffn_norm.weight` is [2, 32], its metadata implies [32]"},
        {{"blk.0.attn_q.weight", {32, 0}, HT_W_F32, NULL},
         "`blk.0.attn_q.weight` is [32], its metadata implies [32, 32]"},
        {{"rope_freqs.weight", {4, 0}, HT_W_F32, NULL}, "`rope_freqs.weight` holds 0, expected positive numbers"},
        {{"rope_freqs.weight", {3, 0}, HT_W_F32, NULL}, "`rope_freqs.weight` is [3], its metadata implies [4]"},
        {{"blk.0.attn_q.bias", {31, 0}, HT_W_F32, NULL}, "`blk.0.attn_q.bias` is [31]"},
        {{"blk.0.attn_q.bias", {32, 0}, HT_W_F32, NULL}, "`blk.0.attn_k.bias` is missing"},
        {{"blk.0.ffn_gate.bias", {64, 0}, HT_W_F32, NULL}, "`blk.0.ffn_gate.bias`, but its metadata implies none"},
        {{"output.bias", {32, 0}, HT_W_F32, NULL}, "`output.bias` is [32], its metadata implies [40]"},
        {{"blk.0.ffn_down.weight", {64, 32}, HT_W_NVFP4, NULL}, NULL},
        {{"blk.0.ffn_down.weight", {64, 32}, HT_W_NVFP4, "blk.0.ffn_down.scale"},
         "`blk.0.ffn_down.scale` holds 0, expected a finite"},
    };
    const char *path = scratch_path("t.gguf");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const change *c = &cases[i].change;
        const char *words[] = {"t.gguf: ", cases[i].words, NULL};
        write_llama("t.gguf", c);
        refused_with(path, DEFAULTS(ht_model_options), cases[i].words ? HT_ERR_FORMAT : HT_OK, words);
    }
    gguf_writer w = gguf_writer_new();
    gguf_put_str(&w, "general.architecture", "llama");
    gguf_put_u32(&w, "split.count", 3);
    gguf_write(&w, "t.gguf");
    REFUSED(path, HT_ERR_FORMAT, "t.gguf", "one of 3 parts");
    remove(path);
}

static char noted[1024];
static int n_notes;
static void take_note(ht_log_level level, const char *message, void *user) {
    assert_int_equal(level, HT_LOG_INFO);
    assert_null(user);
    snprintf(noted, sizeof noted, "%s", message);
    n_notes++;
}

/* Tensors that the family does not have would change the results: they are an error. Others are named once. */
static void extra_tensors(void **state) {
    (void)state;
    static const char *const wrong[] = {"blk.0.attn_sinks.weight", "blk.0.attn_q_norm.weight", "blk.0.attn_norm.bias",
                                        "blk.0.attn_z.weight", "token_embd_norm.weight"};
    static const char *const harmless[] = {"blk.0.nextn.eh_proj.weight", "blk.0.attn_rot_embd", "v.blk.0.ln1.weight",
                                           "cls.output.weight", "blk.1.attn_norm.weight"};
    const char *path = scratch_path("t.gguf");
    ht_log_set(take_note, HT_LOG_INFO, NULL);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        write_llama("t.gguf", &(change){wrong[i], {32, 0}, HT_W_F32, NULL});
        REFUSED(path, HT_ERR_UNSUPPORTED, "t.gguf: 1 tensor is not used by llama models: `", wrong[i]);
    }
    assert_int_equal(n_notes, 0);
    for (size_t i = 0; i < sizeof harmless / sizeof *harmless; i++) {
        write_llama("t.gguf", &(change){harmless[i], {32, 0}, HT_W_F32, NULL});
        loads(path);
    }
    assert_int_equal(n_notes, 3);
    assert_string_equal(noted, "t.gguf: 1 tensor is not needed: `blk.1.attn_norm.weight`");
    write_llama("t.gguf", &(change){"none", {0, 0}, HT_W_F32, NULL});
    loads(path);
    loads(tiny_checkpoint("llama-fp8-blocks"));
    assert_int_equal(n_notes, 3);
    loads(tiny_checkpoint("gemma3-multimodal-bf16-shards"));
    assert_int_equal(n_notes, 4);
    assert_non_null(strstr(noted, "tensors of vision and audio left out"));
    ht_log_set(NULL, HT_LOG_INFO, NULL);
    remove(path);
}

/* The same in safetensors, where heads for other tasks may be beside the model. */
static void extra_tensors_in_safetensors(void **state) {
    (void)state;
    static const char *const wrong[] = {"model.layers.0.self_attn.sinks", "layers.1.self_attn.q_norm.weight",
                                        "model.layers.0.input_layernorm.bias", "lm_head.bias", "model.norm.bias"};
    static const char *const harmless[] = {"model.layers.0.self_attn.rotary_emb.inv_freq",
                                           "model.layers.0.self_attn.masked_bias",
                                           "model.layers.0.self_attn.bias",
                                           "model.layers.0.self_attn.k_scale",
                                           "model.layers.2.input_layernorm.weight",
                                           "model.mtp.layers.0.norm.weight",
                                           "score.weight",
                                           "visual.blocks.0.norm.weight"};
    const size_t n_wrong = sizeof wrong / sizeof *wrong, n_harmless = sizeof harmless / sizeof *harmless;
    ht_checkpoint_files *c = checkpoint_files(tiny_checkpoint("llama-f32"));
    scratch_write("config.json", c->config_text, c->config_size);
    for (size_t i = 0; i < n_wrong + n_harmless; i++) {
        safetensors_writer w = {0};
        for (size_t t = 0; t < ht_checkpoint_n_tensors(c); t++) {
            const ht_safetensor *s = ht_safetensors_at(c->tensors, t);
            unsigned char *bytes = checkpoint_bytes(c, s);
            safetensors_put(&w, s->name, s->dtype, s->rank, s->shape, bytes, s->n_bytes);
            free(bytes);
        }
        const char *more = i < n_wrong ? wrong[i] : harmless[i - n_wrong];
        safetensors_put(&w, more, "F32", 1, (int64_t[]){1}, NULL, 4);
        safetensors_write(&w, "model.safetensors");
        if (i < n_wrong)
            REFUSED(scratch_directory(), HT_ERR_UNSUPPORTED, "not used by llama models", more);
        else
            loads(scratch_directory());
    }
    ht_checkpoint_close(c);
    remove(scratch_path("model.safetensors"));
    remove(scratch_path("config.json"));
}

/* A directory of safetensors whose config.json says something else. */
static void config_and_tensors(void **state) {
    (void)state;
    copy_file("tests/golden/tiny/llama-f32/model.safetensors", "model.safetensors");
    REFUSED(scratch_directory(), HT_ERR_FORMAT, "no config.json");
    static const char config[] = "tests/golden/tiny/llama-f32/config.json";
    copy_changed(config, "config.json", "\"intermediate_size\": 60", "\"intermediate_size\": 62");
    REFUSED(
        scratch_directory(), HT_ERR_FORMAT,
        "model.safetensors: tensor `model.layers.0.mlp.gate_proj.weight` is [60, 48], config.json implies [62, 48]");
    copy_changed(config, "config.json", "\"attention_bias\": false", "\"attention_bias\": true ");
    REFUSED(scratch_directory(), HT_ERR_FORMAT,
            "`model.layers.0.self_attn.q_proj.bias` is missing, which config.json implies");
    copy_changed(config, "config.json", "\"model_type\": \"llama\"", "\"model_type\": \"lamna\"");
    REFUSED(scratch_directory(), HT_ERR_UNSUPPORTED, "`lamna`",
            "the nearest that is: `llama` (`hearth formats` lists all)");
    remove(scratch_path("config.json"));
    remove(scratch_path("model.safetensors"));
}

/* 8-bit floats whose scales are not there, not of a fitting shape, not numbers. */
static void scales(void **state) {
    (void)state;
    static const struct {
        const char *of, *file, *from, *to;
        ht_status status;
        const char *words;
    } cases[] = {
        {"llama-modelopt-fp8", "model.safetensors", "down_proj.weight_scale", "down_proj.weight_scaXX", HT_ERR_FORMAT,
         "`model.layers.0.mlp.down_proj.weight_scale` is missing, which the quantization_config"},
        {"llama-compressed-fp8-channel", "model.safetensors", "down_proj.weight_scale", "down_proj.weight_scaXX",
         HT_ERR_FORMAT, "`model.layers.0.mlp.down_proj.weight_scale` is missing"},
        {"qwen3-compressed-fp8-block", "config.json", "[\n      16,\n      20", "[\n      12,\n      20", HT_ERR_FORMAT,
         "config.json's quantization_config tells their size"},
        {"llama-fp8-blocks", "model.safetensors", "down_proj.weight_scale_inv", "down_proj.weight_scale_xxx",
         HT_ERR_FORMAT, "`model.layers.0.mlp.down_proj.weight_scale_inv` is missing, which the quantization_config"},
        {"llama-fp8-blocks", "model.safetensors", "\"shape\":[12,5]", "\"shape\":[5,12]", HT_ERR_FORMAT,
         "down_proj.weight_scale_inv` is [5, 12], expected one scale, 48, or one for each block of a matrix [48, 60]"},
        {"llama-fp8-blocks", "model.safetensors", "\"dtype\":\"F32\",\"shape\":[12,5]",
         "\"dtype\":\"I32\",\"shape\":[12,5]", HT_ERR_UNSUPPORTED,
         "down_proj.weight_scale_inv` is of type I32, expected F32"},
        {"llama-fp8-blocks", "config.json", "\"weight_block_size\": [\n   4", "\"weight_block_size\": [\n   0",
         HT_ERR_FORMAT, "weight_block_size is"},
        {"llama-fp8-blocks", "config.json", "\"quant_method\": \"fp8\"", "\"quant_method\": \"awq\"",
         HT_ERR_UNSUPPORTED, "weights quantised by `awq`"},
    };
    static const char *const files[] = {"model.safetensors", "config.json"};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        for (int f = 0; f < 2; f++) {
            char path[128];
            snprintf(path, sizeof path, "tests/golden/tiny/%s/%s", cases[i].of, files[f]);
            copy_changed(path, files[f], strcmp(files[f], cases[i].file) ? NULL : cases[i].from, cases[i].to);
        }
        REFUSED(scratch_directory(), cases[i].status, cases[i].words);
    }
    /* A scale that is infinite, at the end of the file. */
    size_t size;
    copy_file("tests/golden/tiny/llama-fp8-blocks/config.json", "config.json");
    char *data = file_bytes("tests/golden/tiny/llama-fp8-blocks/model.safetensors", &size);
    const char *last = NULL;
    for (size_t i = 0; i + 16 < size; i++)
        if (!memcmp(data + i, "weight_scale_inv", 16)) last = data + i;
    assert_non_null(last);
    unsigned long end;
    assert_int_equal(sscanf(strstr(last, "data_offsets"), "data_offsets\":[%*u,%lu]", &end), 1);
    uint64_t header = 0;
    for (int i = 7; i >= 0; i--) header = header << 8 | (unsigned char)data[i];
    memcpy(data + 8 + header + end - 4, "\0\0\x80\x7f", 4);
    scratch_write("model.safetensors", data, size);
    free(data);
    REFUSED(scratch_directory(), HT_ERR_FORMAT, "expected a finite number");
    remove(scratch_path("config.json"));
    remove(scratch_path("model.safetensors"));
}

/* Rows come back from the packed form as they were, interleaved or not, at sizes that end inside a slab. */
static void rows_in_order(void **state) {
    (void)state;
    enum { HEAD = 20, HEADS = 7, ROWS = HEAD * HEADS, K = 24 };
    static float stored[ROWS][K], row[K];
    for (int r = 0; r < ROWS; r++)
        for (int k = 0; k < K; k++) stored[r][k] = (float)(r * K + k);
    scratch_write("rows", stored, sizeof stored);
    ht_error err = {0};
    ht_file *file;
    assert_int_equal(ht_file_open(scratch_path("rows"), &file, &err), HT_OK);
    ht_stored_tensor t = {
        .file = file, .file_name = "rows", .type = HT_W_F32, .n_dims = 2, .dims = {ROWS, K}, .n_bytes = sizeof stored};
    const ht_matrix_kind kind = {.precision = HT_PRECISION_REFERENCE, .type = HT_W_F32, .n_rows = ROWS, .k = K};
    for (int interleaved = 0; interleaved < 2; interleaved++) {
        ht_matrix *m;
        assert_int_equal(ht_matrix_new(device, &kind, "rows", &m, &err), HT_OK);
        m->packed = aligned_alloc(64, (m->packed_bytes + 63) & ~(size_t)63);
        assert_non_null(m->packed);
        ht_pack_task task = {m, t, interleaved ? ht_order_of_halves(HEAD) : (ht_order){0}, 0};
        assert_int_equal(ht_matrices_pack(&task, 1, NULL, device, &err), HT_OK);
        for (int r = 0; r < ROWS; r++) {
            int within = r % HEAD, from = r;
            if (interleaved) from = r - within + (within < HEAD / 2 ? 2 * within : 2 * within - HEAD + 1);
            assert_int_equal(m->ops->row(m, r, row, &err), HT_OK);
            assert_memory_equal(row, stored[from], sizeof row);
        }
        /* A file that shrank since it was opened is an error, not a signal. */
        scratch_write("short", stored, sizeof stored / 2);
        ht_file *cut;
        assert_int_equal(ht_file_open(scratch_path("short"), &cut, &err), HT_OK);
        ht_pack_task missing = task;
        missing.stored.file = cut;
        assert_int_equal(ht_matrices_pack(&missing, 1, NULL, device, &err), HT_ERR_IO);
        ht_file_close(cut);
        free(m->packed);
        ht_matrix_free(m);
    }
    ht_file_close(file);
    remove(scratch_path("rows"));
    remove(scratch_path("short"));
}

/* Rows of a table are those of the stored tensor, at places that end within a piece that is read at once. */
static void rows_of_a_table(void **state) {
    (void)state;
    enum { ROWS = 5, K = 5000, BEFORE = 12 };
    static float stored[ROWS][K], row[K];
    static char file_bytes[BEFORE + sizeof stored];
    for (int r = 0; r < ROWS; r++)
        for (int k = 0; k < K; k++) stored[r][k] = (float)(r * K + k);
    memcpy(file_bytes + BEFORE, stored, sizeof stored);
    scratch_write("rows", file_bytes, sizeof file_bytes);
    ht_error err = {0};
    ht_file *file;
    ht_matrix *m;
    assert_int_equal(ht_file_open(scratch_path("rows"), &file, &err), HT_OK);
    ht_stored_tensor t = {
        .file = file, .type = HT_W_F32, .n_dims = 2, .dims = {ROWS, K}, .offset = BEFORE, .n_bytes = sizeof stored};
    assert_int_equal(ht_file_rows_new(&t, &m, &err), HT_OK);
    ht_file_close(file);
    assert_true(m->n_rows == ROWS && m->k == K && m->packed_bytes == 0);
    for (int r = ROWS - 1; r >= 0; r--) {
        assert_int_equal(m->ops->row(m, r, row, &err), HT_OK);
        assert_memory_equal(row, stored[r], sizeof row);
    }
    ht_file_rows_free(m);
    remove(scratch_path("rows"));
}

/* An embedding that is not the head, too, takes no memory; a file that goes away does not matter, one that is cut while the
 * model is in use is an error. */
static void an_embedding_in_the_file(void **state) {
    (void)state;
    ht_error err = {0};
    const int32_t ids[3] = {72, 80, 72};
    size_t before = ht_memory_get(device).active_bytes;
    ht_model *m = tiny_load(&(tiny_options){.type = HT_W_Q8_0});
    ht_model_info *in;
    assert_int_equal(ht_model_info_read(scratch_path("tiny.gguf"), &in, &err), HT_OK);
    int64_t table = in->vocab * in->hidden / 32 * 34;
    assert_false(in->tied_head);
    assert_int_equal(in->memory_bytes, in->weight_bytes - table);
    assert_true(ht_memory_get(device).active_bytes - before < (size_t)in->weight_bytes);
    ht_model_info_free(in);
    ht_session *s;
    assert_int_equal(ht_session_new(m, NULL, &s, &err), HT_OK);
    assert_int_equal(ht_session_forward(s, ids, 3, NULL, NULL, NULL, &err), HT_OK);
    assert_int_equal(truncate(scratch_path("tiny.gguf"), 4096), 0);
    assert_fails(HT_ERR_IO, "tiny.gguf: has changed since it was opened", ht_session_forward, s, ids, 3, NULL, NULL,
                 NULL);
    assert_int_equal(ht_session_length(s), 3);
    ht_session_free(s);
    ht_model_free(m);

    m = tiny_load(&(tiny_options){.type = HT_W_Q8_0});
    remove(scratch_path("tiny.gguf"));
    assert_int_equal(ht_session_new(m, NULL, &s, &err), HT_OK);
    assert_int_equal(ht_session_forward(s, ids, 3, NULL, NULL, NULL, &err), HT_OK);
    ht_session_free(s);
    ht_model_free(m);
}

static void shrink(double done, void *user) {
    (void)done;
    if (!*(bool *)user && truncate(scratch_path("shrinks.gguf"), 4096)) fail();
    *(bool *)user = true;
}

/* Another process cuts the file while it is loaded: an error, no signal. */
static void a_file_that_shrinks(void **state) {
    (void)state;
    copy_file(tiny, "shrinks.gguf");
    bool shrunk = false;
    ht_device *one;
    ht_model *m;
    ht_error err = {0};
    assert_int_equal(ht_device_open("cpu", OPTIONS_AT(ht_device_options, with.n_threads = 1), &one, &err), HT_OK);
    ht_model_options o = OPTIONS(ht_model_options, with.device = one, with.progress = shrink, with.user = &shrunk);
    assert_int_equal(ht_model_load(scratch_path("shrinks.gguf"), &o, &m, &err), HT_ERR_IO);
    assert_null(m);
    assert_true(shrunk);
    assert_non_null(strstr(err.message, "shrinks.gguf: the file ends before offset"));
    ht_device_free(one);
    remove(scratch_path("shrinks.gguf"));
}

/* Whatever byte is cut off or turned over, loading gives an error or a model, and no memory is left behind. */
static void damaged_files(void **state) {
    (void)state;
    size_t size;
    char *file = file_bytes(tiny, &size);
    size_t before = ht_memory_get(device).active_bytes;
    ht_error err;
    for (size_t n = 0; n < size; n += n < 2048 ? 1 : 211) {
        scratch_write("cut.gguf", file, n);
        assert_int_not_equal(try_load(scratch_path("cut.gguf"), DEFAULTS(ht_model_options), &err), HT_OK);
        assert_true(err.message[0]);
    }
    remove(scratch_path("cut.gguf"));
    size_t header = 1700; /* metadata and directory */
    int loaded = 0, refused = 0;
    for (size_t bit = 0; bit < header * 8; bit += 3) {
        file[bit / 8] ^= (char)(1 << (bit % 8));
        scratch_write("flip.gguf", file, size);
        if (try_load(scratch_path("flip.gguf"), DEFAULTS(ht_model_options), &err) == HT_OK)
            loaded++;
        else
            refused++;
        file[bit / 8] ^= (char)(1 << (bit % 8));
    }
    print_message("%d loaded, %d refused\n", loaded, refused);
    assert_true(refused > 0);
    remove(scratch_path("flip.gguf"));
    free(file);
    ht_memory_clear_cache(device);
    assert_int_equal(ht_memory_get(device).active_bytes, before);
}

static void opened_again_and_again(void **state) {
    (void)state;
    size_t before = ht_memory_get(device).active_bytes;
    for (int i = 0; i < 100; i++) loads(i % 2 ? tiny : tiny_checkpoint("llama-llama3-f16-shards"));
    assert_int_equal(ht_memory_get(device).active_bytes, before);
}

/* Whatever a weight is stored in, it is one weight for each number, and its scales are none. */
static void info_of_quantised_weights(void **state) {
    (void)state;
    static const struct {
        const char *name, *quantization;
        int32_t bits, group, n_types;
        int64_t n_parameters;
    } cases[] = {
        {"llama-f32", "F32", 32, 0, 1, 35664},
        {"llama-fp8-blocks", "F8_E4M3", 8, 0, 2, 35664},
        {"llama-modelopt-fp8", "F8_E4M3", 8, 0, 2, 35664},
        {"llama-compressed-fp8-channel", "F8_E4M3", 8, 0, 2, 35664},
        {"llama-mlx4-bf16", "MLX4_64_BF16", 4, 64, 3, 81856},
        {"llama-mxfp4", "mxfp4", 4, 32, 2, 81856},
        {"llama-modelopt-nvfp4", "NVFP4", 4, 16, 2, 81856},
        {"qwen2-nvfp4", "nvfp4", 4, 16, 3, 78592},
        {"qwen3-mxfp8", "mxfp8", 8, 32, 2, 84960},
        {"gemma4-experts-compressed-nvfp4", "NVFP4", 4, 16, 2, 172074},
        {"gemma4-experts-compressed-nvfp4-stacked", "NVFP4", 4, 16, 2, 172074},
        {"gemma4-experts-modelopt-nvfp4", "NVFP4", 4, 16, 2, 172074},
        {"llama-nvfp4.gguf", "NVFP4", 4, 16, 2, 32777},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ht_model_info *in;
        ht_error err = {0};
        if (ht_model_info_read(tiny_checkpoint(cases[i].name), &in, &err)) fail_msg("%s", err.message);
        if (strcmp(in->quantization, cases[i].quantization) != 0 || in->quantization_bits != cases[i].bits ||
            in->quantization_group != cases[i].group || in->n_tensor_types != cases[i].n_types ||
            in->n_parameters != cases[i].n_parameters)
            fail_msg("%s: %s, %d bits in groups of %d, %d types, %lld parameters", cases[i].name, in->quantization,
                     in->quantization_bits, in->quantization_group, in->n_tensor_types, (long long)in->n_parameters);
        int64_t bytes = 0;
        for (int t = 0; t < in->n_tensor_types; t++) bytes += in->tensor_types[t].bytes;
        assert_int_equal(bytes, in->weight_bytes);
        ht_model_info_free(in);
    }
}

/* Chunks are no sliding windows; layers of multi-token prediction are counted apart from the model's. */
static void info_of_families(void **state) {
    (void)state;
    static const struct {
        const char *path;
        int64_t n_layers, n_prediction, n_chunked, n_sliding;
    } cases[] = {{"tests/golden/families/llama4", 4, 0, 3, 3},
                 {"tests/golden/families/gpt_oss", 2, 0, 0, 1},
                 {"tests/golden/families/deepseek_v3", 2, 1, 0, 0},
                 {"tests/golden/families/glm4_moe", 2, 1, 0, 0},
                 {"tests/golden/families/glm4_moe.gguf", 2, 1, 0, 0}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ht_model_info *in;
        int64_t n_chunked = 0;
        assert_works(ht_model_info_read, cases[i].path, &in);
        for (int64_t l = 0; l < in->n_layers; l++) n_chunked += in->layers[l].is_chunked;
        assert_int_equal(in->n_layers, cases[i].n_layers);
        assert_int_equal(in->n_prediction_layers, cases[i].n_prediction);
        assert_int_equal(n_chunked, cases[i].n_chunked);
        assert_int_equal(in->n_sliding_layers, cases[i].n_sliding);
        ht_model_info_free(in);
    }
}

static void info(void **state) {
    (void)state;
    ht_error err = {0};
    ht_model_info *in;
    if (ht_model_info_read("tests/golden/tiny/llama-llama3-q8_0.gguf", &in, &err)) fail_msg("%s", err.message);
    assert_string_equal(in->architecture, "llama");
    assert_string_equal(in->name, "llama-llama3-q8_0");
    assert_string_equal(in->format, "gguf");
    assert_string_equal(in->quantization, "Q8_0");
    assert_true(in->quantization_bits == 8 && in->quantization_group == 32);
    assert_true(in->n_tensor_types == 2 && in->bits_per_weight > 8.5 && in->bits_per_weight < 10);
    assert_string_equal(in->tokenizer_kind, "none");
    assert_string_equal(in->chat_format, "none");
    assert_true(in->has_weights && in->tied_head);
    assert_true(in->n_layers == 1 && in->hidden == 32 && in->n_heads == 4 && in->n_kv_heads == 2 && in->head_dim == 8);
    assert_true(in->vocab == 61 && in->context == 512 && in->sliding_window == 0);
    assert_int_equal(ht_model_info_kv_bytes_per_position(in, HT_F16), 2 * 2 * 8 * 2);
    assert_int_equal(ht_model_info_kv_bytes_per_position(in, HT_DTYPE_NONE), 0);
    ht_model_info_free(in);

    if (ht_model_info_read("tests/golden/tiny/gemma3-multimodal-bf16-shards", &in, &err)) fail_msg("%s", err.message);
    assert_string_equal(in->architecture, "gemma3");
    assert_string_equal(in->format, "safetensors");
    assert_string_equal(in->quantization, "BF16");
    assert_string_equal(in->file_type, "");
    assert_int_equal(in->sliding_window, 8);
    assert_true(in->layers[0].slides && !in->layers[2].slides && in->layers[2].kv_layer == 2);
    assert_true(ht_model_info_kv_bytes(in, HT_F16, 1) == 3 * 256 * 2 * 2 * 12 * 2);
    assert_int_equal(ht_model_info_kv_bytes(in, HT_I32, 1), 0);
    assert_int_equal(ht_model_info_kv_bytes_per_position(in, HT_F16),
                     3 * 2 * 2 * 12 * 2); /* rings would be no shorter */
    assert_int_equal(ht_model_info_kv_bytes_per_position(in, HT_F32), 3 * 2 * 2 * 12 * 4);
    assert_int_equal(ht_model_info_kv_bytes_per_position(in, HT_I8), 3 * 2 * 2 * (12 + 2));
    assert_int_equal(ht_model_info_kv_bytes_per_position(in, HT_I32), 0);
    ht_model_info_free(in);

    if (ht_model_info_read("tests/golden/tiny/llama-mlx4-bf16", &in, &err)) fail_msg("%s", err.message);
    assert_true(in->quantization_bits == 4 && in->quantization_group == 64 && in->n_tensor_types == 3);
    assert_int_equal(in->tensor_types[1].n_tensors, 5); /* norms; scales and biases are no tensors of their own */
    ht_model_info_free(in);

    /* A file of another family is described, though it cannot be run. */
    gguf_writer w = gguf_writer_new();
    gguf_put_str(&w, "general.architecture", "bert");
    gguf_put_u32(&w, "bert.block_count", 12);
    gguf_put_u32(&w, "bert.embedding_length", 384);
    gguf_put_u32(&w, "bert.attention.head_count", 6);
    gguf_write(&w, "bert.gguf");
    if (ht_model_info_read(scratch_path("bert.gguf"), &in, &err)) fail_msg("%s", err.message);
    assert_string_equal(in->architecture, "bert");
    assert_string_equal(in->quantization, "none");
    assert_true(!in->has_weights && in->n_layers == 12 && in->head_dim == 64);
    ht_model_info_free(in);
    REFUSED(scratch_path("bert.gguf"), HT_ERR_FORMAT, "bert.gguf", "no weights");
    remove(scratch_path("bert.gguf"));

    ht_model_info_free(NULL);
    assert_int_not_equal(ht_model_info_read("does/not/exist", &in, &err), HT_OK);
    assert_null(in);
}

/* What is said of memory beforehand is what a cache then holds, to the byte. */
static void memory_of_a_cache(void **state) {
    (void)state;
    static const char *const names[] = {"llama-f32",           "mistral-sliding-f32",      "gemma2-f32",
                                        "gemma4-shared-bf16",  "gemma4-k-is-v-f16-shards", "gemma3-q5_1.gguf",
                                        "qwen3-moe-mixed-bf16"};
    static const ht_dtype dtypes[] = {HT_F16, HT_F32, HT_I8};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        for (int t = 0; t < 3; t++) {
            const char *path = tiny_checkpoint(names[i]);
            ht_error err = {0};
            ht_model_info *in;
            ht_model *m;
            ht_cache *c;
            const ht_model_options how = OPTIONS(ht_model_options, with.device = device, with.kv_dtype = dtypes[t]);
            if (ht_model_info_read(path, &in, &err) || ht_model_load(path, &how, &m, &err) ||
                ht_cache_new(m, HT_LEAST_STEP_ROWS, &c, &err))
                fail_msg("%s", err.message);
            size_t before = ht_memory_get(device).active_bytes;
            const int64_t lengths[] = {1, 256, 257, in->context - 200, in->context};
            for (size_t n = 0; n < sizeof lengths / sizeof *lengths; n++) {
                if (ht_cache_reserve(c, lengths[n], &err)) fail_msg("%s", err.message);
                int64_t told = ht_model_info_kv_bytes(in, dtypes[t], lengths[n]);
                assert_int_equal(ht_cache_held_bytes(c), told);
                assert_int_equal(ht_memory_get(device).active_bytes - before, told);
            }
            ht_cache_free(c);
            ht_model_free(m);
            ht_model_info_free(in);
        }
}

static void architectures(void **state) {
    (void)state;
    const char *const *names = ht_model_architectures();
    int n = 0;
    for (; names[n]; n++) assert_string_equal(ht_family_of_architecture(names[n])->architecture, names[n]);
    assert_true(n >= 6);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(paths),
                                       cmocka_unit_test(options),
                                       cmocka_unit_test(tensors),
                                       cmocka_unit_test(extra_tensors),
                                       cmocka_unit_test(extra_tensors_in_safetensors),
                                       cmocka_unit_test(config_and_tensors),
                                       cmocka_unit_test(scales),
                                       cmocka_unit_test(rows_in_order),
                                       cmocka_unit_test(rows_of_a_table),
                                       cmocka_unit_test(an_embedding_in_the_file),
                                       cmocka_unit_test(a_file_that_shrinks),
                                       cmocka_unit_test(damaged_files),
                                       cmocka_unit_test(opened_again_and_again),
                                       cmocka_unit_test(info),
                                       cmocka_unit_test(info_of_quantised_weights),
                                       cmocka_unit_test(info_of_families),
                                       cmocka_unit_test(memory_of_a_cache),
                                       cmocka_unit_test(architectures)};
    return cmocka_run_group_tests(tests, open_all, close_all);
}
