/* Out of memory is an error like any other: each scenario is run with its first, second, third ... allocation failing,
 * alone and with all that follow. And decoding allocates nothing but pages of its cache. Linked with --wrap for the allocation functions (tests/CMakeLists.txt); leaks on the way
 * out are the leak sanitizer's to find. */
#include "base/error.h"
#include "base/file.h"
#include "base/pool.h"
#include "checkpoint/convert_metadata.h"
#include "device/step.h"
#include "formats/gguf.h"
#include "formats/importance.h"
#include "formats/json.h"
#include "formats/safetensors.h"
#include "generate/engine_internal.h"
#include "models/adapter.h"
#include "support/adapters.h"
#include "support/allocations.h"
#include "support/gguf_writer.h"
#include "support/options.h"
#include "support/safetensors_writer.h"
#include "support/scratch.h"
#include "support/scripted_child.h"
#include "support/test.h"
#include "support/tiny_model.h"
#include "tokenizer/save.h"
#include "train/batches.h"

#include <hearth/classify.h>
#include <hearth/convert.h>
#include <hearth/embed.h>
#include <hearth/engine.h>
#include <hearth/fuse.h>
#include <hearth/generate.h>
#include <hearth/inspect.h>
#include <hearth/npy.h>
#include <hearth/ops.h>
#include <hearth/optimizer.h>
#include <hearth/rerank.h>
#include <hearth/state.h>
#include <hearth/train.h>

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static ht_importance *to_convert_with;
static const char *converted, *convert_to, *convert_out;
static int64_t convert_file_bytes;

static void count_tensor(const ht_convert_tensor *t, void *user) {
    (void)t;
    ++*(int *)user;
}

static ht_status convert(ht_error *err) {
    ht_convert_report report;
    int n = 0;
    const ht_convert_options options = OPTIONS(
        ht_convert_options, with.type = convert_to, with.n_threads = 1, with.importance = to_convert_with,
        with.on_tensor = count_tensor, with.user = &n, with.report = &report, with.max_file_bytes = convert_file_bytes);
    ht_status st = ht_convert(converted, convert_out, &options, err);
    if (!st) assert_true((n > 0 || !convert_to) && n == report.n_rounded);
    if (!st) assert_int_equal(report.n_files > 1, convert_file_bytes > 0);
    return st;
}

static unsigned char *gguf_bytes, *safetensors_bytes;
static size_t gguf_size, safetensors_size;

static ht_status parse_gguf(ht_error *err) {
    ht_gguf *g;
    ht_status st = ht_gguf_parse(gguf_bytes, gguf_size, "f", &g, err);
    ht_gguf_free(g);
    return st;
}

static ht_status parse_safetensors(ht_error *err) {
    ht_safetensors *s;
    ht_status st = ht_safetensors_parse(safetensors_bytes, safetensors_size, "f", &s, err);
    ht_safetensors_close(s);
    return st;
}

static ht_status open_checkpoint(ht_error *err) {
    ht_safetensors *s;
    ht_status st = ht_safetensors_open(scratch_directory(), &s, err);
    ht_safetensors_close(s);
    return st;
}

static ht_status load_adapter(ht_error *err) {
    ht_adapter *a;
    ht_status st = ht_adapter_load(scratch_path("adapter.gguf"), NULL, NULL, &a, err);
    ht_adapter_free(a);
    return st;
}

static ht_adapter *to_fuse;
static const char *fused, *fuse_out;

static ht_status fuse(ht_error *err) {
    const bool in_groups = strstr(fused, "mlx") != NULL;
    const ht_fuse_options options =
        OPTIONS(ht_fuse_options, with.quantize_bits = in_groups ? 8 : 0, with.quantize_group = in_groups ? 32 : 0);
    return ht_fuse(fused, &to_fuse, NULL, 1, fuse_out, &options, err);
}

static ht_checkpoint_files *to_convert;
static ht_config convert_config;
static ht_tokenizer *convert_tokenizer;

static ht_status convert_to_documents(ht_error *err) {
    ht_directory_documents d;
    ht_status st = ht_directory_documents_of(to_convert, &convert_config, false, "float32", &d, err);
    ht_directory_documents_free(&d);
    return st;
}

static ht_status convert_to_metadata(ht_error *err) {
    ht_json *metadata;
    ht_status st = ht_gguf_metadata_of(to_convert, &convert_config, &metadata, err);
    ht_json_decref(metadata);
    return st;
}

static ht_status save_metadata(ht_error *err) {
    ht_json *metadata = ht_json_new_object();
    if (!metadata) return ht_fail_memory(err, 0, "metadata");
    ht_status st = ht_tokenizer_save_gguf(convert_tokenizer, convert_config.vocab, false, metadata, err);
    if (!st) st = ht_convert_config_to_gguf(&convert_config, metadata, err);
    ht_json_decref(metadata);
    return st;
}

static ht_status parse_json(ht_error *err) {
    static const char text[] = "{\"a\":[1,2.5,\"t\\next\"],\"b\":{\"c\":null},\"d\":0,\"e\":0,\"f\":0,\"g\":0,\"h\":0,"
                               "\"i\":true,\"j\":0,\"k\":0}";
    ht_json *root;
    ht_status st = ht_json_parse(text, sizeof text - 1, "f", &root, err);
    if (st) return st;
    ht_json *copy = ht_json_copy(root), *all = ht_json_pack("{so so ss}", "root", root, "copy", copy, "x", "\xff");
    char *written = ht_json_dump(all, HT_JSON_SORT_KEYS);
    if (!written) st = ht_fail_memory(err, 0, "f");
    free(written);
    ht_json_decref(all);
    return st;
}

static ht_status read_file(ht_error *err) {
    char *data;
    size_t size;
    ht_file *file;
    ht_status st = ht_file_read_all(scratch_path("a.safetensors"), 10000, &data, &size, err);
    free(data);
    if (st) return st;
    st = ht_file_open(scratch_path("a.safetensors"), &file, err);
    if (!st) st = ht_file_fetch(file, file->size, err);
    ht_file_close(file);
    return st;
}

static ht_status write_npy(ht_error *err) {
    ht_npy_writer *w;
    ht_status st = ht_npy_writer_new(scratch_path("a.npy"), 1, 2, &w, err);
    if (st) return st;
    st = ht_npy_writer_put(w, (float[]){1, 2}, 1, err);
    if (!st) st = ht_npy_writer_commit(w, err);
    ht_npy_writer_free(w);
    return st;
}

static ht_status start_pool(ht_error *err) {
    ht_pool *pool;
    ht_status st = ht_pool_new(2, &pool, err);
    ht_pool_free(pool);
    return st;
}

static ht_stream *stream;

/* Two steps of an optimiser: the first traces them and makes moments, the second replaces these. */
static ht_status train(ht_error *err) {
    ht_optimizer *o;
    ht_status st = ht_optimizer_new(NULL, &o, err);
    ht_scope *s = st ? NULL : ht_scope_new(stream);
    if (!st && !s) st = ht_fail_memory(err, 1, "a scope");
    if (!st) {
        ht_array *p[2] = {ht_ones(s, HT_F32, (int64_t[]){3}, 1), ht_ones(s, HT_BF16, (int64_t[]){2, 2}, 2)}, *made[2];
        ht_array *grads[2], *norm;
        ht_clip_grad_norm(s, p, 2, 1, grads, &norm);
        for (int i = 0; i < 2 && !st; i++) {
            st = ht_optimizer_step(o, s, p, grads, 2, 0.1, made, err);
            memcpy(p, made, sizeof p);
        }
    }
    ht_scope_free(s);
    ht_optimizer_free(o);
    return st;
}

static ht_model *model;

static ht_status read_training_data(ht_error *err) {
    ht_data *d;
    ht_batches *b = NULL;
    ht_train_batch batch;
    ht_status st = ht_data_open(model, scratch_path("train.jsonl"), &(ht_data_options){0}, &d, err);
    if (st) return st;
    st = ht_batches_new(d, &(ht_batches_options){.batch = 2, .pack = true, .shuffle = true}, &b, err);
    if (!st) st = ht_batches_get(b, 1, &batch, err);
    ht_batches_free(b);
    ht_data_free(d);
    return st;
}

static ht_adapter *to_inspect_with;

static ht_status inspect(ht_error *err) {
    static const int32_t layer = 0, ids[] = {70, 71, 72};
    ht_inspection *i;
    char *svg = NULL;
    const ht_inspect_options how =
        OPTIONS(ht_inspect_options, with.values = true, with.queries = true, with.attention = &layer,
                with.n_attention = 1, with.adapters = &to_inspect_with, with.n_adapters = 1,
                with.most_bytes = (size_t)1 << 30); /* or the memory's size could be what cannot be read */
    ht_status st = ht_inspect(model, ids, 3, &how, &i, err);
    if (st) return st;
    st = ht_inspection_draw(i, 0, 0, ht_model_tokenizer(model), &svg, err);
    if (!st) st = ht_inspection_save(i, scratch_path("k.npz"), true, err);
    ht_text_free(svg);
    ht_inspection_free(i);
    return st;
}

static const void *older_importance;
static size_t older_importance_size;

/* Gathers, writes, reads, and adds up with a file of the older form. */
static ht_status gather_importance(ht_error *err) {
    static const int32_t ids[] = {70, 71, 72, 73};
    ht_importance *made[4] = {NULL};
    ht_status st = ht_importance_parse(older_importance, older_importance_size, "f", &made[0], err);
    const ht_importance_options how =
        OPTIONS(ht_importance_options, with.window = 2, with.dataset = "text", with.adapters = &to_inspect_with,
                with.n_adapters = 1, with.from = (const ht_importance *const *)made, with.n_from = 1);
    if (!st) st = ht_importance_gather_ids(model, ids, 4, &how, &made[1], err);
    if (!st) st = ht_importance_save(made[1], scratch_path("imatrix.gguf"), err);
    if (!st) st = ht_importance_load(scratch_path("imatrix.gguf"), &made[2], err);
    if (!st) st = ht_importance_merge((const ht_importance *const *)made, 3, &made[3], err);
    for (int k = 0; k < 4; k++) ht_importance_free(made[k]);
    return st;
}

/* Memory that is missing for a text is that text's failure. Frees the result. */
static ht_status first_failure(ht_embeddings *e, ht_error *err) {
    ht_status st = HT_OK;
    for (size_t i = 0; i < 2 && !st; i++) {
        st = e->embeddings[i].status;
        if (st) snprintf(err->message, sizeof err->message, "%s", e->embeddings[i].message);
        err->status = st;
    }
    ht_embeddings_free(e);
    return st;
}

static ht_status embed(ht_error *err) {
    static const char *const given[] = {"ab", "c"};
    ht_embeddings *e;
    const ht_embed_options how = OPTIONS(ht_embed_options, with.adapters = &to_inspect_with, with.n_adapters = 1);
    const ht_status st = ht_embed_text(model, given, 2, &how, &e, err);
    return st ? st : first_failure(e, err);
}

static ht_status embed_tokens(ht_error *err) {
    static const char *const given[] = {"ab", "the tin on the table in the inn"};
    ht_embeddings *e;
    const ht_embed_options how =
        OPTIONS(ht_embed_options, with.pooling = HT_POOLING_NONE, with.truncate = true, with.dimensions = 3);
    const ht_status st = ht_embed_text(model, given, 2, &how, &e, err);
    return st ? st : first_failure(e, err);
}

static ht_status rerank(ht_error *err) {
    static const char *const given[] = {"ab", "the tin on the table in the inn"};
    ht_ranking *r;
    const ht_rerank_options how = OPTIONS(ht_rerank_options, with.document_tokens = 4,
                                          with.instruction = model->config->two_sided ? NULL : "sort");
    ht_status st = ht_rerank(model, "tin", given, 2, &how, &r, err);
    if (st) return st;
    for (size_t i = 0; i < 2 && !st; i++) {
        st = r->documents[i].status;
        if (st) snprintf(err->message, sizeof err->message, "%s", r->documents[i].message);
        err->status = st;
    }
    ht_ranking_free(r);
    return st;
}

static ht_train_method method; /* of the trainers */

static ht_trainer_options trainer_options(void) {
    ht_trainer_options o;
    ht_trainer_options_init(&o, sizeof o);
    o.data = o.valid = scratch_path("train.jsonl");
    o.batch = 2;
    o.iters = 1000000;
    o.learning_rate = 1e-2;
    o.method = method;
    o.skip_memory_check = true; /* it may be the memory's size that cannot be read */
    return o;
}

static ht_status open_trainer(ht_error *err) {
    ht_trainer *t;
    const ht_trainer_options o = trainer_options();
    ht_status st = ht_trainer_new(model, &o, &t, err);
    ht_trainer_free(t);
    return st;
}

static ht_trainer *trainer;
static ht_adapter *last_adapter; /* what `trainer` had before a step */

static bool same_values(const ht_adapter *a, const ht_adapter *b) {
    for (int64_t i = 0; i < a->n; i++) {
        const ht_lora *x = &a->lora[i], *y = &b->lora[i];
        if (memcmp(x->a, y->a, (size_t)(x->rank * x->n_in) * sizeof(float)) != 0 ||
            memcmp(x->b, y->b, (size_t)(x->rank * x->n_out) * sizeof(float)) != 0)
            return false;
    }
    return true;
}

/* The adapter now, with memory. */
static ht_adapter *adapter_now(void) {
    const bool was = allocations.armed;
    ht_adapter *a;
    ht_error err = {0};
    allocations.armed = false;
    if (ht_trainer_adapter(trainer, &a, &err)) fail_msg("%s", err.message);
    allocations.armed = was;
    return a;
}

/* A step that fails is none: number and values are those of before. */
static ht_status take_step(ht_error *err) {
    ht_train_step step;
    ht_trainer_plan was, is;
    ht_trainer_describe(trainer, &was);
    ht_status st = ht_trainer_step(trainer, &step, err);
    ht_trainer_describe(trainer, &is);
    assert_int_equal(is.done, was.done + (st == HT_OK));
    ht_adapter *now = adapter_now();
    if (same_values(last_adapter, now) != (st != HT_OK))
        fail_msg("status %d, and the adapter is not as it should be", st);
    ht_adapter_free(last_adapter);
    last_adapter = now;
    return st;
}

static ht_status evaluate(ht_error *err) {
    double loss;
    return ht_trainer_evaluate(trainer, &loss, err);
}

/* What is said to be saved can be read, with memory. */
static void expect_adapter(const ht_adapter *want) {
    const bool was = allocations.armed;
    ht_adapter *read;
    ht_error err = {0};
    allocations.armed = false;
    if (ht_adapter_load(scratch_path("adapter"), model, NULL, &read, &err)) fail_msg("%s", err.message);
    assert_true(same_values(want, read));
    assert_null(ht_adapter_warning(read));
    ht_adapter_free(read);
    allocations.armed = was;
}

static ht_status copy_adapter(ht_error *err) {
    ht_adapter *a;
    ht_status st = ht_trainer_adapter(trainer, &a, err);
    if (!st) st = ht_adapter_save(a, model, scratch_path("adapter"), HT_ADAPTER_PEFT, err);
    if (!st) expect_adapter(a);
    ht_adapter_free(a);
    return st;
}

static void expect_resumed(void) {
    const bool was = allocations.armed;
    ht_error err = {0};
    allocations.armed = false;
    if (ht_trainer_resume(trainer, scratch_path("checkpoint"), &err)) fail_msg("%s", err.message);
    allocations.armed = was;
}

static ht_status save_trainer(ht_error *err) {
    ht_status st = ht_trainer_save(trainer, scratch_path("checkpoint"), err);
    if (!st) expect_resumed();
    return st;
}

static ht_status resume_trainer(ht_error *err) { return ht_trainer_resume(trainer, scratch_path("checkpoint"), err); }

static bool takes_text(const char *text, size_t n, void *user) {
    strncat(user, text, n);
    return true;
}

/* A child that does all right, which is there no more whatever fails. It ends without being told to, too. */
static ht_status answer_with_child(ht_error *err) {
    static const char *const stop = "never";
    static const ht_logit_bias bias[] = {{5, 1}, {3, -1}};
    const ht_sampler_options sampler = OPTIONS(ht_sampler_options, with.temperature = 1, with.order = "top_k",
                                               with.logit_bias = bias, with.n_logit_bias = 2);
    const ht_generate_options how =
        OPTIONS(ht_generate_options, with.sampler = &sampler, with.stop = &stop, with.n_stop = 1);
    ht_backend_model *m = NULL;
    ht_backend_info info;
    char answer[64] = "";
    ht_status st = script_load(script_good, (script_deadlines){0}, &m, err);
    if (!st)
        st = ht_backend_generate(m, &(ht_backend_prompt){.text = "abc"}, &how, takes_text, answer, NULL, NULL, err);
    if (!st) assert_string_equal(answer, "abc");
    if (!st) st = ht_backend_get_info(m, &info, err);
    ht_backend_close(m);
    return st;
}

UNIT_TEST(parsers) {
    assert_int_equal(try_every_failure(parse_gguf, NOTHING_ELSE), 9);
    assert_true(try_every_failure(parse_safetensors, NOTHING_ELSE) > 10);
    assert_true(try_every_failure(parse_json, NOTHING_ELSE) > 5);
}

UNIT_TEST(checkpoints) {
    assert_true(try_every_failure(open_checkpoint, NOTHING_ELSE) > 20); /* by index */
    assert_int_equal(unlink(scratch_path("model.safetensors.index.json")), 0);
    assert_true(try_every_failure(open_checkpoint, NOTHING_ELSE) > 10); /* the only file */
    assert_true(try_every_failure(load_adapter, NOTHING_ELSE) > 10);
}

UNIT_TEST(files) {
    assert_true(try_every_failure(read_file, NOTHING_ELSE) >= 3);
    int before = scratch_count();
    assert_true(try_every_failure(write_npy, NOTHING_ELSE) >= 3);
    assert_int_equal(scratch_count(), before + 1);
}

/* Of an MLX checkpoint to groups, and of NVFP4 to floats, over what was fused before. */
UNIT_TEST(fusing) {
    static const char *const names[] = {"llama-mlx4-bf16", "qwen2-nvfp4", "llama-nvfp4.gguf"};
    for (int i = 0; i < 3; i++) {
        static const char *const outs[] = {"groups", "floats", "fused.gguf"};
        char path[64], out[128];
        ht_error err = {0};
        ht_model *m;
        snprintf(path, sizeof path, "tests/golden/tiny/%s", names[i]);
        snprintf(out, sizeof out, "%s", scratch_path(outs[i]));
        assert_int_equal(ht_model_load(path, NULL, &m, &err), HT_OK);
        to_fuse = test_adapter_for(m, 2, 3, 7);
        ht_model_free(m);
        fused = path;
        fuse_out = out;
        assert_int_equal(fuse(&err), HT_OK);
        const int before = scratch_count();
        assert_true(try_every_failure(fuse, NOTHING_ELSE) > 50);
        assert_int_equal(scratch_count(), before);
        ht_adapter_free(to_fuse);
    }
}

/* Of floats to blocks and to groups, with importance weights, of groups to others and to floats, of experts that are stacked
 * otherwise; into several files, and these alone; each over what was written before. */
UNIT_TEST(quantising) {
    static const struct {
        const char *model, *type, *out;
        int64_t file_bytes;
    } cases[] = {{"llama-q8_0.gguf", NULL, "parts.gguf", 6000},
                 {"gemma2-f16-shards", NULL, "shards", 40000},
                 {"llama-f32", "Q8_0", "new.gguf", 6000},
                 {"llama-f32.gguf", "Q4_K_M", "blocks.gguf", 0},
                 {"qwen3-moe-nvfp4.gguf", "Q5_1", "experts.gguf", 0},
                 {"qwen2-nvfp4", "4:32", "new-groups", 0},
                 {"qwen3-moe-mlx4-bf16", "8:32", "other-groups", 0},
                 {"llama-mlx4-bf16", "mxfp4", "powers", 0},
                 {"llama-fp8-blocks", "bf16", "numbers", 0},
                 {"qwen3-moe-modelopt-nvfp4-stacked", "8:32", "stacked", 0},
                 {"gemma4-experts-compressed-nvfp4", "4:32", "joined", 0}};
    static const int32_t ids[] = {1, 2, 3, 4};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char path[64], out[128];
        ht_error err = {0};
        ht_model *m;
        snprintf(path, sizeof path, "tests/golden/tiny/%s", cases[i].model);
        snprintf(out, sizeof out, "%s", scratch_path(cases[i].out));
        assert_int_equal(ht_model_load(path, NULL, &m, &err), HT_OK);
        assert_int_equal(ht_importance_gather_ids(m, ids, 4, NULL, &to_convert_with, &err), HT_OK);
        ht_model_free(m);
        converted = path;
        convert_to = cases[i].type;
        convert_out = out;
        convert_file_bytes = cases[i].file_bytes;
        if (convert(&err)) fail_msg("%s: %s", path, err.message);
        const int before = scratch_count();
        assert_true(try_every_failure(convert, NOTHING_ELSE) > 50);
        assert_int_equal(scratch_count(), before);
        ht_importance_free(to_convert_with);
    }
}

static void open_to_convert(const char *path) {
    ht_error err = {0};
    if (ht_checkpoint_open(path, &to_convert, &err) || ht_checkpoint_config(to_convert, &convert_config, &err))
        fail_msg("%s", err.message);
}

/* Of a GGUF file with a tokenizer to documents, and of the directory that they make to metadata. */
UNIT_TEST(converting) {
    ht_directory_documents d;
    ht_error err = {0};
    safetensors_writer w = {0};
    const tiny_options o = {0};
    open_to_convert(tiny_write(&o));
    if (ht_tokenizer_load(to_convert->path, &convert_tokenizer, &err)) fail_msg("%s", err.message);
    assert_true(try_every_failure(convert_to_documents, NOTHING_ELSE) > 100);
    assert_true(try_every_failure(save_metadata, NOTHING_ELSE) > 100);
    if (ht_directory_documents_of(to_convert, &convert_config, false, "float32", &d, &err)) fail_msg("%s", err.message);
    char folder[512];
    snprintf(folder, sizeof folder, "%s", scratch_path("converted"));
    assert_int_equal(mkdir(folder, 0777), 0);
    for (int i = 0; i < d.n; i++) {
        char name[64];
        snprintf(name, sizeof name, "converted/%s", d.document[i].name);
        scratch_write(name, d.document[i].text, strlen(d.document[i].text));
    }
    safetensors_put(&w, "model.embed_tokens.weight", "F32", 2, (int64_t[]){TINY_VOCAB, 1}, NULL, TINY_VOCAB * 4);
    safetensors_write(&w, "converted/model.safetensors");
    ht_directory_documents_free(&d);
    ht_tokenizer_free(convert_tokenizer);
    ht_checkpoint_close(to_convert);
    open_to_convert(folder);
    assert_true(try_every_failure(convert_to_metadata, NOTHING_ELSE) > 50);
    ht_checkpoint_close(to_convert);
}

/* Text encoders, whose heads have labels. */
UNIT_TEST(converting_encoders) {
    open_to_convert("tests/golden/rerankers/xlm_roberta.gguf");
    assert_true(try_every_failure(convert_to_documents, NOTHING_ELSE) > 100);
    ht_checkpoint_close(to_convert);
    open_to_convert("tests/golden/rerankers/bert");
    assert_true(try_every_failure(convert_to_metadata, NOTHING_ELSE) > 100);
    ht_checkpoint_close(to_convert);
}

static const char *encoder_tokenizer;

/* Loads a tokenizer, encodes a pair of texts, decodes it, and writes the tokenizer. */
static ht_status tokenize_pair(ht_error *err) {
    static const char first[] = "He\xCC\x81llo wo\xEF\xAC\x81rld", second[] = " hello";
    const ht_pair_options options = {.flags = HT_ENCODE_ADD_SPECIAL, .offsets = true};
    ht_tokenizer *t;
    ht_encoding e = {0};
    char *text = NULL;
    size_t n;
    ht_status st = ht_tokenizer_from_json(encoder_tokenizer, strlen(encoder_tokenizer), NULL, 0, &t, err);
    if (st) return st;
    ht_json *metadata = ht_json_new_object();
    st = metadata ? ht_tokenizer_encode_pair(t, first, sizeof first - 1, second, sizeof second - 1, &options, &e, err)
                  : ht_fail_memory(err, 0, "metadata");
    if (!st) st = ht_tokenizer_decode(t, e.ids, e.n, false, &text, &n, err);
    free(text);
    text = NULL;
    if (!st) st = ht_tokenizer_save_json(t, &text, err);
    if (!st) st = ht_tokenizer_save_gguf(t, t->vocab.n + 1, false, metadata, err);
    free(text);
    ht_json_decref(metadata);
    ht_encoding_free(&e);
    ht_tokenizer_free(t);
    return st;
}

UNIT_TEST(tokenizers_of_encoders) {
    encoder_tokenizer =
        "{\"normalizer\":{\"type\":\"BertNormalizer\"},\"pre_tokenizer\":{\"type\":\"BertPreTokenizer\"},"
        "\"post_processor\":{\"type\":\"BertProcessing\",\"cls\":[\"[CLS]\",1],\"sep\":[\"[SEP]\",2]},"
        "\"decoder\":{\"type\":\"WordPiece\",\"prefix\":\"##\"},\"model\":{\"type\":\"WordPiece\",\"vocab\":{\"[UNK]\":"
        "0,"
        "\"[CLS]\":1,\"[SEP]\":2,\"hello\":3,\"wo\":4,\"##rld\":5}}}";
    assert_true(try_every_failure(tokenize_pair, NOTHING_ELSE) > 100);
    encoder_tokenizer =
        "{\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"NFKC\"},{\"type\":\"StripAccents\"},"
        "{\"type\":\"Precompiled\",\"precompiled_charsmap\":\"BAAAAAAAAAA=\"}]},"
        "\"pre_tokenizer\":{\"type\":\"Metaspace\",\"replacement\":\"\xE2\x96\x81\"},"
        "\"model\":{\"type\":\"Unigram\",\"unk_id\":0,\"vocab\":[[\"u\",0],[\"h\",-1.1],[\"he\",-1],[\"l\",-2]]}}";
    assert_true(try_every_failure(tokenize_pair, NOTHING_ELSE) > 100);
}

UNIT_TEST(pools) { assert_true(try_every_failure(start_pool, NOTHING_ELSE) >= 2); }

UNIT_TEST(training) {
    ht_device_options options;
    ht_device_options_init(&options, sizeof options);
    options.n_threads = 1;
    ht_device *device;
    ht_error err;
    assert_int_equal(ht_device_open("cpu", &options, &device, &err), HT_OK);
    assert_int_equal(ht_stream_new(device, &stream, &err), HT_OK);
    assert_true(try_every_failure(train, ALSO_OK) > 100);
    ht_stream_free(stream);
    ht_device_free(device);
}

UNIT_TEST(inspections) {
    model = tiny_load(&(tiny_options){.context = 64, .n_threads = 1});
    to_inspect_with = test_adapter_for(model, 2, 1, 3);
    const int before = scratch_count();
    assert_true(try_every_failure(inspect, ALSO_OK) > 100);
    assert_int_equal(scratch_count(), before + 1);
    ht_adapter_free(to_inspect_with);
    ht_model_free(model);
}

UNIT_TEST(importance) {
    static const unsigned char older[] = {1,   0,   0,   0, 10, 0, 0, 0, 'a', '.', 'i', 'n', '_', 's', 'u',
                                          'm', '2', 'x', 1, 0,  0, 0, 1, 0,   0,   0,   0,   0,   0,   63};
    older_importance = older;
    older_importance_size = sizeof older;
    model = tiny_load(&(tiny_options){.context = 64, .n_threads = 1});
    to_inspect_with = test_adapter_for(model, 2, 1, 3);
    assert_true(try_every_failure(gather_importance, ALSO_OK | ALSO_ARGUMENT) > 200);
    ht_adapter_free(to_inspect_with);
    ht_model_free(model);
}

UNIT_TEST(embeddings) {
    model = tiny_load(&(tiny_options){.context = 64, .n_threads = 1, .dense = true, .pooling = "mean"});
    to_inspect_with = test_adapter_for(model, 2, 1, 3);
    assert_true(try_every_failure(embed, ALSO_OK) > 30);
    ht_adapter_free(to_inspect_with);
    ht_model_free(model);
    model = tiny_load(&(tiny_options){.context = 6, .n_threads = 1});
    assert_true(try_every_failure(embed_tokens, ALSO_OK) > 30);
    ht_model_free(model);
}

UNIT_TEST(reranking) {
    model = tiny_load(&(tiny_options){.context = 64,
                                      .n_threads = 1,
                                      .classifier = 1,
                                      .rerank_prompt = "<Instruct>: find\n{query}\n{document}<|im_end|>"});
    assert_true(try_every_failure(rerank, ALSO_OK) > 60);
    ht_model_free(model);
    ht_device *device;
    assert_works(ht_device_open, "cpu", OPTIONS_AT(ht_device_options, with.n_threads = 1), &device);
    assert_works(ht_model_load, "tests/golden/rerankers/xlm_roberta",
                 OPTIONS_AT(ht_model_options, with.device = device), &model);
    assert_true(try_every_failure(rerank, ALSO_OK) > 60);
    ht_model_free(model);
    ht_device_free(device);
}

UNIT_TEST(training_data) {
    static const char text[] = "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"},"
                               "{\"role\": \"assistant\", \"content\": \"b\"}]}\n{\"text\": \"c\"}\n";
    scratch_write("train.jsonl", text, sizeof text - 1);
    model = tiny_load(&(tiny_options){0});
    assert_true(try_every_failure(read_training_data, NOTHING_ELSE) > 50);
    ht_model_free(model);
}

UNIT_TEST(trainers) {
    static const char text[] = "{\"text\": \"abcd\"}\n{\"text\": \"efg\"}\n";
    ht_error err = {0};
    scratch_write("train.jsonl", text, sizeof text - 1);
    model = tiny_load(&(tiny_options){.n_threads = 1});
    assert_true(try_every_failure(open_trainer, ALSO_OK) > 100);
    const ht_trainer_options o = trainer_options();
    if (ht_trainer_new(model, &o, &trainer, &err)) fail_msg("%s", err.message);
    last_adapter = adapter_now();
    assert_true(try_every_failure(take_step, ALSO_OK) > 100);
    assert_true(try_every_failure(evaluate, ALSO_OK) > 20);
    assert_true(try_every_failure(copy_adapter, ALSO_OK | ALSO_ARGUMENT) > 20);
    assert_true(try_every_failure(save_trainer, ALSO_OK | ALSO_ARGUMENT) > 20);
    assert_true(try_every_failure(resume_trainer, ALSO_OK) > 20);
    ht_adapter_free(last_adapter);
    ht_trainer_free(trainer);
    ht_model_free(model);
}

UNIT_TEST(trainers_of_embeddings) {
    static const char text[] = "{\"query\": \"ab\", \"positive\": \"c\", \"negatives\": [[7], \"d\"]}\n"
                               "{\"anchor\": \"e\", \"positive\": \"c\"}\n";
    ht_error err = {0};
    scratch_write("train.jsonl", text, sizeof text - 1);
    model = tiny_load(&(tiny_options){.n_threads = 1});
    method = HT_METHOD_EMBED;
    assert_true(try_every_failure(open_trainer, ALSO_OK) > 100);
    const ht_trainer_options o = trainer_options();
    if (ht_trainer_new(model, &o, &trainer, &err)) fail_msg("%s", err.message);
    last_adapter = adapter_now();
    assert_true(try_every_failure(take_step, ALSO_OK) > 100);
    assert_true(try_every_failure(evaluate, ALSO_OK) > 20);
    method = HT_METHOD_SFT;
    ht_adapter_free(last_adapter);
    ht_trainer_free(trainer);
    ht_model_free(model);
}

/* ---- prefixes and requests ---- */

static void see(const ht_probe *probe, void *user) { (void)probe, (void)user; }

enum { PREFIX = 300 };

static ht_engine *engine;
static ht_session *with_prefix;

/* What could not be kept is not there, and what is there is whole. */
static ht_status keep_prefix(ht_error *err) {
    const ht_prefix_key key = {.salt = "salt"};
    ht_kv_account account = {0};
    ht_prefix_cache *c;
    ht_prefix_found found = {0};
    ht_cache *into = NULL;
    ht_status st = ht_prefix_cache_new(model, SIZE_MAX, &c, err);
    if (st) return st;
    ht_prefix_cache_keep(c, &key, ht_session_tokens(with_prefix), PREFIX, with_prefix->cache, true);
    st = ht_cache_new(model, 64, &into, err);
    if (!st) ht_cache_set_account(into, &account);
    if (!st) st = ht_prefix_cache_find(c, &key, ht_session_tokens(with_prefix), PREFIX, into, &found, err);
    assert_true(found.used == 0 || found.used == HT_KV_PAGE || found.used == PREFIX - 1); /* the second: of states */
    assert_true(ht_prefix_cache_get_figures(c).tokens >= found.used);
    if (into) assert_int_equal(into->length, found.used);
    ht_prefix_cache_unlock(c, found.lock);
    ht_cache_free(into);
    ht_prefix_cache_free(c);
    return st;
}

static ht_status save_cache(ht_error *err) { return ht_engine_save_cache(engine, scratch_path("cache"), err); }

static ht_status load_cache(ht_error *err) {
    while (ht_prefix_cache_evict(engine->prefix)) {}
    assert_int_equal(atomic_load(&engine->account.bytes), 0);
    return ht_engine_load_cache(engine, scratch_path("cache"), err);
}

/* All that a request copies and makes, freed whatever there is of it. */
static ht_status make_request(ht_error *err) {
    static const ht_logit_bias bias[] = {{5, 1}, {3, -1}};
    static const char *const stops[] = {"a", "b"};
    static const int32_t ids[] = {1, 2, 3};
    const ht_sampler_options sampler =
        OPTIONS(ht_sampler_options, with.temperature = 1, with.presence_penalty = 1, with.repeat_penalty = 2,
                with.logit_bias = bias, with.n_logit_bias = 2, with.order = "top_k");
    const ht_probe_options probes = OPTIONS(ht_probe_options, with.kinds = HT_PROBE_LOGPROB, with.fn = see,
                                            with.top_logprobs = HT_PROBE_MOST_LOGPROBS);
    const ht_generate_options o = OPTIONS(ht_generate_options, with.sampler = &sampler, with.stop = stops,
                                          with.n_stop = 2, with.probes = &probes);
    const ht_request request = OPTIONS(ht_request, with.ids = ids, with.n_ids = 3, with.options = &o);
    ht_engine_request *r;
    const ht_status st = ht_engine_request_new(engine, &request, false, &r, err);
    assert_true(st || r);
    ht_engine_request_free(r);
    return st;
}

UNIT_TEST(prefixes) {
    ht_error err = {0};
    int32_t ids[PREFIX];
    tiny_ids(ids, PREFIX, 3);
    for (int recurrent = 0; recurrent < 2; recurrent++) {
        model = tiny_load(&(tiny_options){.n_threads = 1, .window = recurrent ? 0 : 40, .recurrent = recurrent});
        assert_int_equal(ht_session_new(model, NULL, &with_prefix, &err), HT_OK);
        tiny_forward(with_prefix, ids, PREFIX, false, NULL);
        assert_true(try_every_failure(keep_prefix, ALSO_OK) > 10);
        ht_session_free(with_prefix);
        const ht_request request = OPTIONS(ht_request, with.ids = ids, with.n_ids = PREFIX);
        if (ht_engine_open(model, NULL, &engine, &err) || ht_engine_warm(engine, &request, NULL, &err))
            fail_msg("%s", err.message);
        assert_true(try_every_failure(save_cache, NOTHING_ELSE) > 10);
        const int files = scratch_count();
        assert_true(try_every_failure(load_cache, NOTHING_ELSE) > 10);
        assert_int_equal(scratch_count(), files);
        if (!recurrent) assert_true(try_every_failure(make_request, NOTHING_ELSE) > 20);
        ht_engine_close(engine);
        ht_model_free(model);
    }
}

/* ---- states ---- */

static float *state_rows; /* of PREFIX tokens without failures */

/* Goes on after the first failure, and back and on again, as if it had not been there. */
static ht_status compute_states(ht_error *err) {
    int32_t ids[PREFIX];
    ht_session *s, *restored = NULL;
    float *rows = NULL;
    const ht_forward_options all = OPTIONS(ht_forward_options, with.all_rows = true);
    tiny_ids(ids, PREFIX, 3);
    ht_status st = ht_session_new(model, OPTIONS_AT(ht_session_options, with.chunk = 100), &s, err);
    if (st) return st;
    st = ht_session_forward(s, ids, PREFIX, NULL, NULL, NULL, err);
    if (!st) st = ht_session_truncate(s, PREFIX - 20, err);
    if (!st) st = ht_session_forward(s, ids + PREFIX - 20, 10, NULL, NULL, NULL, err);
    if (!st) st = ht_session_save(s, scratch_path("state"), err);
    if (!st) st = ht_session_new(model, NULL, &restored, err);
    if (!st) st = ht_session_load(restored, scratch_path("state"), err);
    const bool armed = allocations.armed;
    allocations.armed = false;
    rows = tiny_rows(PREFIX);
    for (int i = 0; i < 2; i++) {
        ht_session *of = i ? restored : s;
        const int64_t n = of ? ht_session_length(of) : PREFIX;
        if (n < PREFIX) assert_works(ht_session_forward, of, ids + n, (size_t)(PREFIX - n), &all, tiny_copy_rows, rows);
        assert_memory_equal(rows + n * TINY_VOCAB, state_rows + n * TINY_VOCAB,
                            (size_t)(PREFIX - n) * TINY_VOCAB * sizeof *rows);
    }
    free(rows);
    allocations.armed = armed;
    ht_session_free(restored);
    ht_session_free(s);
    return st;
}

UNIT_TEST(states) {
    int32_t ids[PREFIX];
    tiny_ids(ids, PREFIX, 3);
    model = tiny_load(&(tiny_options){.n_threads = 1, .recurrent = true});
    state_rows = tiny_rows(PREFIX);
    ht_session *s = tiny_session(model, 512);
    tiny_forward(s, ids, PREFIX, true, state_rows);
    ht_session_free(s);
    assert_true(try_every_failure(compute_states, NOTHING_ELSE) > 50);
    free(state_rows);
    ht_model_free(model);
}

/* ---- many prompts ---- */

/* Whoever got no memory says so; the others have what they always have. */
static bool check_result(const ht_classification *c, void *user) {
    static double wanted[3];
    (void)user;
    assert_true(c->status == HT_OK || c->status == HT_ERR_MEMORY);
    if (c->status) return true;
    if (!allocations.armed) wanted[c->index] = c->labels[1].log_probability;
    if (c->labels[1].log_probability != wanted[c->index]) fail_msg("prompt %zu has another result", c->index);
    return true;
}

static ht_status classify_prompts(ht_error *err) {
    static const char *const labels[] = {"he", " in the end"};
    static const int32_t ids[] = {5, 6, 7};
    const ht_prompt prompt[] = {{.text = "is it t"}, {.text = "is it the other"}, {.ids = ids, .n_ids = 3}};
    const ht_classify_options o =
        OPTIONS(ht_classify_options, with.labels = labels, with.n_labels = 2, with.logits = true);
    return ht_classify(model, prompt, 3, &o, check_result, NULL, err);
}

UNIT_TEST(many_prompts) {
    model = tiny_load(&(tiny_options){.n_threads = 1});
    assert_int_equal(classify_prompts(NULL), HT_OK);
    assert_true(try_every_failure(classify_prompts, ALSO_OK) > 100);
    ht_model_free(model);
}

/* ---- decoding allocates nothing ---- */

typedef struct decoding {
    ht_session *session;
    const char *what;
    long seen;  /* allocations up to the last token */
    long grown; /* allocations at full pages */
    int64_t tokens;
} decoding;

/* One more token: since the last one, pages of the KV cache and the room for the tokens' ids may have grown, if a page
 * was full, and nothing else. */
static bool count_allocations(const char *text, size_t n, void *user) {
    (void)text, (void)n;
    decoding *d = user;
    int64_t length = ht_session_length(d->session);
    bool full = (length - 1) % HT_KV_PAGE < 2; /* the last token is computed with the next one */
    if (d->tokens++ > 2 && !full && allocations.n != d->seen)
        fail_msg("%s: %ld allocations for the token at %lld", d->what, allocations.n - d->seen, (long long)length);
    if (d->tokens > 3 && full) d->grown += allocations.n - d->seen;
    d->seen = allocations.n;
    return true;
}

static void decode_with(const tiny_options *o, const char *what, const ht_sampler_options *sampler, unsigned probes) {
    enum { N_TOKENS = 700 };
    ht_error err = {0};
    ht_model *m = tiny_load(o);
    decoding d = {.what = what};
    int32_t ids[3];
    tiny_ids(ids, 3, 1);
    assert_int_equal(ht_session_new(m, NULL, &d.session, &err), HT_OK);
    const ht_probe_options seen =
        OPTIONS(ht_probe_options, with.kinds = probes, with.fn = see, with.top_logprobs = HT_PROBE_MOST_LOGPROBS);
    const ht_generate_options how = OPTIONS(ht_generate_options, with.max_tokens = N_TOKENS, with.ignore_eos = true,
                                            with.sampler = sampler, with.probes = &seen);
    if (ht_generate(d.session, ids, 3, &how, count_allocations, &d, NULL, &err)) fail_msg("%s", err.message);
    assert_true(d.tokens > N_TOKENS / 4); /* a token may complete no character */
    assert_true(d.grown > 0);             /* else nothing was counted */
    ht_session_free(d.session);
    ht_model_free(m);
}

static void decode(const tiny_options *o, const char *what, const ht_sampler_options *sampler) {
    decode_with(o, what, sampler, 0);
}

UNIT_TEST(decoding_allocates_nothing) {
    const ht_sampler_options greedy = DEFAULTS(ht_sampler_options);
    static const ht_logit_bias bias[] = {{5, 1}, {3, -1}};
    const ht_sampler_options all =
        OPTIONS(ht_sampler_options, with.temperature = 0.9f, with.top_k = 40, with.top_p = 0.95f, with.min_p = 0.01f,
                with.repeat_penalty = 1.1f, with.seed = 4, with.presence_penalty = 0.5f, with.frequency_penalty = 0.1f,
                with.logit_bias = bias, with.n_logit_bias = 2);
    decode(&(tiny_options){0}, "greedy", &greedy);
    decode(&(tiny_options){0}, "the whole chain", &all);
    decode(&(tiny_options){.window = 300, .type = HT_W_Q8_0}, "a ring", &greedy);
    decode(&(tiny_options){.kv = HT_I8, .n_threads = 1}, "8-bit keys", &greedy);
    decode_with(&(tiny_options){0}, "probes", &greedy, HT_PROBE_ALL);
}

static int make_inputs(void **state) {
    (void)state;
    static const char index[] = "{\"weight_map\":{\"a\":\"a.safetensors\",\"b\":\"a.safetensors\"}}";
    gguf_writer g = gguf_writer_new();
    gguf_put_str(&g, "general.architecture", "llama");
    gguf_put_tensor(&g, "a", HT_W_F32, 1, (int64_t[]){4}, NULL);
    gguf_bytes = gguf_finish(&g, &gguf_size);
    safetensors_writer s = {0};
    ht_text_append_str(&s.header, "\"__metadata__\":{\"format\":\"pt\"}");
    safetensors_put(&s, "a", "F32", 1, (int64_t[]){4}, NULL, 16);
    safetensors_put(&s, "b", "F16", 1, (int64_t[]){4}, NULL, 8);
    safetensors_bytes = safetensors_finish(&s, &safetensors_size);
    scratch_make();
    scratch_write("a.safetensors", safetensors_bytes, safetensors_size);
    scratch_write("model.safetensors.index.json", index, sizeof index - 1);
    g = gguf_writer_new();
    gguf_put_str(&g, "general.architecture", "qwen3");
    gguf_put_str(&g, "general.type", "adapter");
    gguf_put_str(&g, "adapter.type", "lora");
    gguf_put_str(&g, "hearth.base_model", "base");
    gguf_put_tensor(&g, "blk.0.attn_q.weight.lora_a", HT_W_F32, 2, (int64_t[]){4, 2}, NULL);
    gguf_put_tensor(&g, "blk.0.attn_q.weight.lora_b", HT_W_F32, 2, (int64_t[]){2, 4}, NULL);
    size_t adapter_size;
    unsigned char *adapter = gguf_finish(&g, &adapter_size);
    scratch_write("adapter.gguf", adapter, adapter_size);
    free(adapter);
    return 0;
}

static int free_inputs(void **state) {
    (void)state;
    free(gguf_bytes);
    free(safetensors_bytes);
    scratch_remove();
    return 0;
}

UNIT_TEST(children) {
    if (!ht_backend_get("mlx_lm")) skip();
    script_write_checkpoint();
    const int n_files = script_open_files();
    assert_true(try_every_failure(answer_with_child, ALSO_OK) > 100);
    script_check_clean(n_files);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parsers),
        cmocka_unit_test(checkpoints),
        cmocka_unit_test(files),
        cmocka_unit_test(fusing),
        cmocka_unit_test(pools),
        cmocka_unit_test(training),
        cmocka_unit_test(inspections),
        cmocka_unit_test(importance),
        cmocka_unit_test(quantising),
        cmocka_unit_test(converting),
        cmocka_unit_test(converting_encoders),
        cmocka_unit_test(tokenizers_of_encoders),
        cmocka_unit_test(training_data),
        cmocka_unit_test(embeddings),
        cmocka_unit_test(reranking),
        cmocka_unit_test(trainers),
        cmocka_unit_test(trainers_of_embeddings),
        cmocka_unit_test(prefixes),
        cmocka_unit_test(states),
        cmocka_unit_test(many_prompts),
        cmocka_unit_test(decoding_allocates_nothing),
        cmocka_unit_test(children),
    };
    return cmocka_run_group_tests(tests, make_inputs, free_inputs);
}
