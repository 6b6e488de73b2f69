/* Files that other programs wrote are read to the last tensor: the committed tiny checkpoints (made by transformers and
 * the gguf package), and the real ones in $HEARTH_TEST_MODELS. */
#include "base/file.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/modules.h"
#include "checkpoint/stored_weights.h"
#include "formats/gguf.h"
#include "formats/safetensors.h"
#include "support/checkpoints.h"
#include "support/cpu_device.h"
#include "support/safetensors_writer.h"
#include "support/scratch.h"
#include "support/test.h"

#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static void check_gguf(const char *path) {
    ht_file *file;
    ht_gguf *g;
    ht_error err = {0};
    if (ht_file_open(path, &file, &err) || ht_gguf_read(file, path, &g, &err)) fail_msg("%s", err.message);
    ht_bytes architecture;
    assert_true(ht_gguf_get_string(g, "general.architecture", &architecture));
    const ht_gguf_value *tokens = ht_gguf_find(g, "tokenizer.ggml.tokens");
    if (tokens) {
        size_t offset = 0;
        uint64_t n = 0;
        for (ht_bytes token; ht_gguf_next_string(tokens, &offset, &token);) n++;
        assert_int_equal(n, tokens->n_items);
    }
    for (size_t i = 0; i < ht_gguf_n_tensors(g); i++) {
        const ht_gguf_tensor *t = ht_gguf_tensor_at(g, i);
        assert_true(t->type >= 0);
        ht_weight_type type = (ht_weight_type)t->type;
        const ht_weight_type_info *info = ht_weight_type_info_of(type);
        float values[256];
        unsigned char block[1024];
        size_t end = (size_t)(t->data - file->data) + t->n_bytes;
        assert_int_equal(ht_file_read_at(file, end - info->block_bytes, block, info->block_bytes, &err), HT_OK);
        ht_dequantize(type, block, info->block, values);
        for (int k = 0; k < info->block; k++)
            if (!isfinite(values[k]))
                fail_msg("%s: the last block of %.*s is not finite", path, (int)t->name.len, t->name.data);
    }
    ht_gguf_free(g);
    ht_file_close(file);
}

static void check_safetensors(const char *path) {
    ht_safetensors *s;
    ht_error err = {0};
    if (ht_safetensors_open(path, &s, &err)) fail_msg("%s", err.message);
    assert_true(ht_safetensors_count(s) > 0);
    for (size_t i = 0; i < ht_safetensors_count(s); i++) {
        const ht_safetensor *t = ht_safetensors_at(s, i);
        const ht_file *file = ht_safetensors_file(s, t->file);
        unsigned char last;
        assert_ptr_equal(t->data, file->data + t->offset);
        if (t->n_bytes == 0) continue;
        assert_int_equal(ht_file_read_at(file, t->offset + t->n_bytes - 1, &last, 1, &err), HT_OK);
    }
    ht_safetensors_close(s);
}

static bool has_safetensors(const char *directory) {
    bool found = false;
    DIR *dir = opendir(directory);
    for (struct dirent *e; dir && (e = readdir(dir));) found = found || strstr(e->d_name, ".safetensors");
    if (dir) closedir(dir);
    return found;
}

/* Checks what is in a folder, one level deep; returns how many checkpoints that were. */
static int check_folder(const char *folder) {
    int n = 0;
    DIR *dir = opendir(folder);
    if (!dir) fail_msg("%s cannot be read; run the tests from the repository root", folder);
    for (struct dirent *e; (e = readdir(dir));) {
        char *path = ht_path_join(folder, e->d_name);
        size_t len = strlen(path);
        if (e->d_name[0] != '.' && ht_path_is_directory(path) && has_safetensors(path)) {
            check_safetensors(path);
            n++;
        } else if (len > 5 && strcmp(path + len - 5, ".gguf") == 0) {
            check_gguf(path);
            n++;
        }
        free(path);
    }
    closedir(dir);
    return n;
}

static void committed_checkpoints(void **state) {
    (void)state;
    assert_true(check_folder("tests/golden/tiny") >= 10);
}

static void real_checkpoints(void **state) {
    (void)state;
    const char *folder = getenv("HEARTH_TEST_MODELS");
    if (!folder || !*folder) {
        print_message("skipped: HEARTH_TEST_MODELS is not set\n");
        skip();
    }
    assert_true(check_folder(folder) > 0);
}

/* The configuration of the checkpoint in the scratch directory. */
static const ht_config *scratch_config(void) {
    static ht_config config;
    ht_checkpoint_files *c = checkpoint_files(scratch_directory());
    ht_error err = {0};
    if (ht_checkpoint_config(c, &config, &err)) fail_msg("%s", err.message);
    ht_checkpoint_close(c);
    return &config;
}

/* Whether the head is the embedding, of a checkpoint whose configuration says that it is. */
static bool is_tied(const float *embedding, const float *head, const char *head_type) {
    static const char text[] = "{\"model_type\": \"llama\", \"vocab_size\": 4, \"hidden_size\": 8, "
                               "\"num_attention_heads\": 2, \"tie_word_embeddings\": true}";
    const size_t bytes = strcmp(head_type, "F32") ? 64 : 128;
    safetensors_writer w = {0};
    safetensors_put(&w, "model.embed_tokens.weight", "F32", 2, (int64_t[]){4, 8}, embedding, 128);
    if (head) safetensors_put(&w, "lm_head.weight", head_type, 2, (int64_t[]){4, 8}, head, bytes);
    safetensors_write(&w, "model.safetensors");
    scratch_write("config.json", text, sizeof text - 1);
    return scratch_config()->tied_head;
}

/* As `transformers` does it: a head that is there and is another one is the head, whatever the configuration says. */
static void a_head_beside_a_tied_one(void **state) {
    (void)state;
    float a[32], b[32];
    for (int i = 0; i < 32; i++) a[i] = b[i] = (float)i;
    b[31] = 7;
    assert_true(is_tied(a, NULL, "F32"));
    assert_true(is_tied(a, a, "F32"));
    assert_false(is_tied(a, b, "F32"));
    assert_false(is_tied(a, a, "BF16"));
}

/* ---- a quantised head ---- */

/* A tensor beside the weight of the embedding and of the head. */
typedef struct beside {
    const char *end, *type;
    int rank;
    int64_t shape[2];
    size_t n_bytes;
} beside;

typedef struct scheme {
    const char *settings;
    beside part[3];
} scheme;

/* Whether the head is the embedding of a Gemma whose configuration does not say. Byte 0 of the head's part `changed` is
 * another one; -1: all are the embedding's. */
static bool is_tied_by_default(const scheme *s, int changed) {
    static unsigned char bytes[512];
    char text[512];
    safetensors_writer w = {0};
    for (int head = 0; head < 2; head++)
        for (int i = 0; i < 3 && s->part[i].end; i++) {
            const beside *p = &s->part[i];
            char name[64];
            snprintf(name, sizeof name, "language_model.%s%s", head ? "lm_head" : "model.embed_tokens", p->end);
            bytes[0] = head && i == changed ? 0x35 : 0x3c;
            safetensors_put(&w, name, p->type, p->rank, p->shape, bytes, p->n_bytes);
        }
    int n = snprintf(text, sizeof text,
                     "{\"model_type\": \"gemma3_text\", \"vocab_size\": 4, \"hidden_size\": 64, \"num_hidden_layers\": "
                     "1, \"num_attention_heads\": 2, \"num_key_value_heads\": 1, \"head_dim\": 32, %s}",
                     s->settings);
    safetensors_write(&w, "model.safetensors");
    scratch_write("config.json", text, (size_t)n);
    return scratch_config()->tied_head;
}

/* The rule is the same for every kind of quantisation: a head that is there and is another one is the head. */
static void a_quantised_head(void **state) {
    (void)state;
    static const scheme schemes[] = {
        {"\"quantization\": {\"bits\": 4, \"group_size\": 64}",
         {{".weight", "U32", 2, {4, 8}, 128}, {".scales", "F16", 2, {4, 1}, 8}, {".biases", "F16", 2, {4, 1}, 8}}},
        {"\"quantization\": {\"bits\": 4, \"group_size\": 32, \"mode\": \"mxfp4\"}",
         {{".weight", "U32", 2, {4, 8}, 128}, {".scales", "U8", 2, {4, 2}, 8}}},
        {"\"quantization_config\": {\"quant_method\": \"modelopt\", \"quant_algo\": \"NVFP4\"}",
         {{".weight", "U8", 2, {4, 32}, 128},
          {".weight_scale", "F8_E4M3", 2, {4, 4}, 16},
          {".weight_scale_2", "F32", 1, {1}, 4}}},
        {"\"quantization_config\": {\"quant_method\": \"compressed-tensors\", \"format\": \"nvfp4-pack-quantized\"}",
         {{".weight_packed", "U8", 2, {4, 32}, 128},
          {".weight_scale", "F8_E4M3", 2, {4, 4}, 16},
          {".weight_global_scale", "F32", 1, {1}, 4}}},
        {"\"quantization_config\": {\"quant_method\": \"fp8\"}",
         {{".weight", "F8_E4M3", 2, {4, 64}, 256}, {".weight_scale_inv", "F32", 1, {1}, 4}}},
    };
    for (size_t i = 0; i < sizeof schemes / sizeof *schemes; i++) {
        assert_true(is_tied_by_default(&schemes[i], -1));
        for (int part = 0; part < 3 && schemes[i].part[part].end; part++)
            assert_false(is_tied_by_default(&schemes[i], part));
    }
}

/* ---- names ---- */

/* Writes a copy of a tiny checkpoint to the scratch directory, its tensors' names with the prefixes in turn. */
static void write_renamed(const char *name, const char *const *prefix, size_t n_prefixes) {
    ht_checkpoint_files *c = checkpoint_files(tiny_checkpoint(name));
    safetensors_writer w = {0};
    for (size_t i = 0, n = ht_checkpoint_n_tensors(c); i < n; i++) {
        const ht_safetensor *t = ht_safetensors_at(c->tensors, i);
        char renamed[256];
        snprintf(renamed, sizeof renamed, "%s%s", prefix[i % n_prefixes], ht_checkpoint_bare_name(t->name));
        unsigned char *bytes = checkpoint_bytes(c, t);
        safetensors_put(&w, renamed, t->dtype, t->rank, t->shape, bytes, t->n_bytes);
        free(bytes);
    }
    safetensors_write(&w, "model.safetensors");
    scratch_write("config.json", c->config_text, c->config_size);
    ht_checkpoint_close(c);
}

/* Every tensor may have its own prefix, and so may the scales beside a weight. */
static void names_with_prefixes(void **state) {
    (void)state;
    static const char *const checkpoints[] = {"llama-f32", "llama-mlx4-bf16", "llama-fp8-blocks",
                                              "qwen3-moe-compressed-nvfp4"};
    static const char *const mixed[] = {"model.language_model.", "language_model.model.", "language_model.", "",
                                        "model.text_model.",     "text_model.model.",     "text_model.",     "model."};
    for (size_t i = 0; i < sizeof checkpoints / sizeof *checkpoints; i++) {
        checkpoint_logits expected = checkpoint_logits_of(tiny_checkpoint(checkpoints[i]), cpu_device);
        for (size_t p = 0; p <= 4; p += 4) { /* all of them in turn, and model.text_model. alone */
            write_renamed(checkpoints[i], mixed + p, p ? 1 : sizeof mixed / sizeof *mixed);
            checkpoint_logits found = checkpoint_logits_of(scratch_directory(), cpu_device);
            checkpoint_same_logits(checkpoints[i], &expected, &found, 0);
            free(found.value);
        }
        free(expected.value);
    }
}

static void names_that_mean_the_same(void **state) {
    (void)state;
    safetensors_writer w = {0};
    safetensors_put(&w, "model.language_model.norm.weight", "F32", 1, (int64_t[]){1}, NULL, 4);
    safetensors_put(&w, "language_model.model.norm.weight", "F32", 1, (int64_t[]){1}, NULL, 4);
    safetensors_write(&w, "model.safetensors");
    scratch_write("config.json", "{}", 2);
    ht_checkpoint_files *c;
    assert_fails(HT_ERR_FORMAT,
                 "`model.language_model.norm.weight` and `language_model.model.norm.weight` are "
                 "both `norm.weight`",
                 ht_checkpoint_open, scratch_directory(), &c);
}

/* ---- pooling ---- */

/* What sentence-transformers is told of a directory. */
static void pooling_of_a_directory(void **state) {
    (void)state;
    static const struct {
        const char *text, *pooling;
    } cases[] = {{"{\"pooling_mode_cls_token\": false, \"pooling_mode_lasttoken\": true}", "last"},
                 {"{\"word_embedding_dimension\": 8, \"pooling_mode_mean_tokens\": true}", "mean"},
                 {"{\"pooling_mode_cls_token\": true}", "cls"},
                 {"{\"pooling_mode_max_tokens\": true}", "max"},
                 {"{\"pooling_mode_cls_token\": true, \"pooling_mode_mean_tokens\": true}", "several"},
                 {"{\"pooling_mode_weightedmean_tokens\": true}", "weightedmean"},
                 {"{\"embedding_dimension\": 8, \"pooling_mode\": \"lasttoken\"}", "last"},
                 {"{\"pooling_mode\": [\"mean\", \"max\"]}", "several"},
                 {"{}", ""}};
    write_renamed("llama-f32", (const char *const[]){"model."}, 1);
    assert_int_equal(mkdir(scratch_path("1_Pooling"), 0700), 0);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        scratch_write("1_Pooling/config.json", cases[i].text, strlen(cases[i].text));
        assert_string_equal(scratch_config()->pooling, cases[i].pooling);
    }
}

/* ---- modules ---- */

static void make_folder(const char *name) {
    if (mkdir(scratch_path(name), 0700)) assert_int_equal(errno, EEXIST);
}

static void put_dense(const char *folder, int64_t n_out, int64_t n_in, bool bias, const char *config) {
    safetensors_writer w = {0};
    float values[64 * 64];
    char path[64];
    for (int i = 0; i < 64 * 64; i++) values[i] = (float)i;
    safetensors_put(&w, "linear.weight", "F32", 2, (int64_t[]){n_out, n_in}, (unsigned char *)values,
                    (size_t)(n_out * n_in) * sizeof *values);
    if (bias)
        safetensors_put(&w, "linear.bias", "F32", 1, &n_out, (unsigned char *)values, (size_t)n_out * sizeof *values);
    make_folder(folder);
    snprintf(path, sizeof path, "%s/model.safetensors", folder);
    safetensors_write(&w, path);
    snprintf(path, sizeof path, "%s/config.json", folder);
    scratch_write(path, config, strlen(config));
}

static void put_text(const char *name, const char *text) { scratch_write(name, text, strlen(text)); }

static ht_status read_modules(ht_modules *out, ht_error *err) {
    static ht_config config;
    ht_checkpoint_files *c = checkpoint_files(scratch_directory());
    assert_works(ht_checkpoint_config, c, &config);
    const ht_status status = ht_modules_read(c, &config, out, err);
    ht_checkpoint_close(c);
    return status;
}

#define MODULE(type, path)                                                                                             \
    "{\"idx\": 0, \"name\": \"0\", \"path\": \"" path "\", \"type\": \"sentence_transformers.models." type "\"}"

/* A directory for sentence-transformers: its modules in their order, prompts and the longest text. */
static void modules_of_a_directory(void **state) {
    (void)state;
    ht_modules m;
    ht_error err = {0};
    write_renamed("llama-f32", (const char *const[]){"model."}, 1);
    const int64_t hidden = scratch_config()->hidden;
    put_dense("2_Dense", 3, hidden, true,
              "{\"activation_function\": \"torch.nn.modules.activation.Tanh\", \"bias\": true}");
    put_dense("3_Dense", 2, 3, false, "{\"activation_function\": \"torch.nn.modules.linear.Identity\"}");
    make_folder("pool");
    put_text("pool/config.json", "{\"pooling_mode_mean_tokens\": true, \"include_prompt\": false}");
    put_text("modules.json",
             "[" MODULE("Transformer", "") ", " MODULE("Pooling", "pool") ", " MODULE("Dense", "2_Dense") ", " MODULE(
                 "Dense", "3_Dense") ", " MODULE("Normalize", "4_Normalize") "]");
    put_text("config_sentence_transformers.json",
             "{\"prompts\": {\"query\": \"find: \", \"document\": \"\"}, \"default_prompt_name\": \"query\"}");
    put_text("sentence_bert_config.json", "{\"max_seq_length\": 256, \"do_lower_case\": false}");
    put_text("tokenizer_config.json", "{\"model_max_length\": 64}"); /* for files without max_seq_length */
    if (read_modules(&m, &err)) fail_msg("%s", err.message);
    assert_string_equal(scratch_config()->pooling, "mean");
    assert_string_equal(m.unsupported, "");
    assert_true(m.skips_prompt && m.max_tokens == 256 && m.n_prompts == 2 && !m.is_reranker);
    assert_string_equal(m.prompt[0].text, "find: ");
    assert_string_equal(m.default_prompt, "query");
    assert_int_equal(m.dense.n, 2);
    const ht_dense *d = m.dense.layer;
    assert_true(d[0].n_in == hidden && d[0].n_out == 3 && d[0].activation == HT_DENSE_TANH && d[0].bias[2] == 2);
    assert_true(d[0].weight[3 * 5 + 1] == (float)(hidden + 5)); /* row 1, column 5 */
    assert_true(d[1].n_in == 3 && d[1].n_out == 2 && d[1].activation == HT_DENSE_IDENTITY && !d[1].bias);
    ht_modules_free(&m);

    /* A module that embeddings need and that is not there is named; the model loads. */
    put_text("sentence_bert_config.json", "{\"module_output_name\": \"token_embeddings\"}");
    put_dense("3_Dense", 2, 3, false, "{\"activation_function\": \"torch.nn.modules.activation.SiLU\"}");
    if (read_modules(&m, &err)) fail_msg("%s", err.message);
    assert_string_equal(m.unsupported, "Dense with SiLU");
    assert_int_equal(m.max_tokens, 64);
    ht_modules_free(&m);
    put_text("tokenizer_config.json", "{\"model_max_length\": 1000000000000000019884624838656}");
    put_text("modules.json", "[" MODULE("Transformer", "") ", " MODULE("WordWeights", "w") "]");
    if (read_modules(&m, &err)) fail_msg("%s", err.message);
    assert_string_equal(m.unsupported, "WordWeights");
    assert_int_equal(m.max_tokens, 0);
    ht_modules_free(&m);

    /* A reranker's tokens. */
    make_folder("1_LogitScore");
    put_text("modules.json", "[" MODULE("Transformer", "") ", " MODULE("LogitScore", "1_LogitScore") "]");
    put_text("1_LogitScore/config.json", "{\"true_token_id\": 7, \"false_token_id\": null}");
    if (read_modules(&m, &err)) fail_msg("%s", err.message);
    assert_true(m.is_reranker && m.yes_token == 7 && m.no_token == -1);
    ht_modules_free(&m);
}

static void modules_that_are_damaged(void **state) {
    (void)state;
    static const struct {
        const char *file, *text, *says;
    } cases[] = {
        {"modules.json", "{}", "modules.json: expected a list of modules"},
        {"modules.json", "[1]", "modules.json: module 0 is no object"},
        {"modules.json", "[{}]", "`type`"},
        {"modules.json", "[" MODULE("Dense", "../2_Dense") "]", "leads out of the directory"},
        {"modules.json", "[" MODULE("Dense", "/2_Dense") "]", "leads out of the directory"},
        {"modules.json", "[" MODULE("Dense", "3_Dense") "]", "`linear.weight` is [2, 3], expected [n, "},
        {"1_LogitScore/config.json", "{\"true_token_id\": 99999}", "outside the vocabulary"},
        {"1_LogitScore/config.json", "{}", "`true_token_id`"},
        {"config_sentence_transformers.json", "{\"prompts\": {\"a\": 1}}", "prompt `a` is no string"},
        {"config_sentence_transformers.json", "{\"prompts\": {}, \"default_prompt_name\": \"b\"}", "no prompt `b`"},
        {"sentence_bert_config.json", "{\"max_seq_length\": -1}", "negative"},
        {"pool/config.json", "{\"pooling_mode\": \"median\"}", "`pooling_mode` has the string \"median\""},
    };
    write_renamed("llama-f32", (const char *const[]){"model."}, 1);
    make_folder("pool");
    make_folder("1_LogitScore");
    put_dense("3_Dense", 2, 3, false, "{}");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ht_modules m;
        put_text("modules.json", "[" MODULE("Pooling", "pool") ", " MODULE("LogitScore", "1_LogitScore") "]");
        put_text("1_LogitScore/config.json", "{\"true_token_id\": 7}");
        put_text("config_sentence_transformers.json", "{}");
        put_text("sentence_bert_config.json", "{}");
        put_text("pool/config.json", "{}");
        put_text(cases[i].file, cases[i].text);
        ht_error err = {0};
        static ht_config config;
        ht_checkpoint_files *c = checkpoint_files(scratch_directory());
        ht_status status = ht_checkpoint_config(c, &config, &err);
        if (!status) {
            status = ht_modules_read(c, &config, &m, &err);
            ht_modules_free(&m);
        }
        ht_checkpoint_close(c);
        assert_int_equal(status, HT_ERR_FORMAT);
        if (!strstr(err.message, cases[i].says)) fail_msg("%zu: \"%s\"", i, err.message);
    }
}

/* The logits of the scratch directory with a value of its configuration replaced. */
static checkpoint_logits logits_with(const char *config, const char *field, const char *value) {
    char *text = strdup(config), *at = strstr(text, field);
    assert_non_null(at);
    const size_t n = strlen(field);
    memset(at + n, ' ', strcspn(at + n, ",\n"));
    memcpy(at + n, value, strlen(value));
    scratch_write("config.json", text, strlen(text));
    free(text);
    return checkpoint_logits_of(scratch_directory(), cpu_device);
}

/* PhiMoE's head has a bias, which a tied one has, too. */
static void a_tied_head_with_a_bias(void **state) {
    (void)state;
    const char *path = "tests/golden/families/phimoe";
    char name[512];
    size_t size, config_size;
    snprintf(name, sizeof name, "%s/config.json", path);
    char *config = file_bytes(name, &config_size), *text = strndup(config, config_size);
    snprintf(name, sizeof name, "%s/model.safetensors", path);
    char *file = file_bytes(name, &size);
    ht_checkpoint_files *c = checkpoint_files(path);
    ht_stored_tensor embedding, head;
    assert_true(ht_checkpoint_find(c, "model.embed_tokens.weight", &embedding));
    assert_true(ht_checkpoint_find(c, "lm_head.weight", &head));
    memcpy(file + head.offset, file + embedding.offset, head.n_bytes);
    ht_checkpoint_close(c);
    scratch_write("model.safetensors", file, size);
    checkpoint_logits apart = logits_with(text, "\"tie_word_embeddings\": ", "false"),
                      tied = logits_with(text, "\"tie_word_embeddings\": ", "true");
    checkpoint_same_logits("a tied head", &apart, &tied, 0);
    free(apart.value);
    free(tied.value);
    free(config);
    free(text);
    free(file);
}

/* GPT-2's matrices are stored transposed, which those in blocks cannot be. */
static void transposed_blocks(void **state) {
    (void)state;
    static const char text[] = "{\"model_type\": \"gpt2\", \"n_embd\": 32, \"n_head\": 2, \"n_layer\": 1, "
                               "\"vocab_size\": 4, \"n_positions\": 4}";
    static const char *const vectors[] = {"ln_f.weight", "ln_f.bias", "h.0.ln_1.weight", "h.0.ln_1.bias"};
    safetensors_writer w = {0};
    safetensors_put(&w, "wte.weight", "F32", 2, (int64_t[]){4, 32}, NULL, 512);
    safetensors_put(&w, "wpe.weight", "F32", 2, (int64_t[]){4, 32}, NULL, 512);
    for (int i = 0; i < 4; i++) safetensors_put(&w, vectors[i], "F32", 1, (int64_t[]){32}, NULL, 128);
    safetensors_put(&w, "h.0.attn.c_attn.weight_blocks", "U8", 3, (int64_t[]){32, 3, 16}, NULL, 1536);
    safetensors_put(&w, "h.0.attn.c_attn.weight_scales", "U8", 2, (int64_t[]){32, 3}, NULL, 96);
    safetensors_put(&w, "other_proj_blocks", "U8", 3, (int64_t[]){1, 1, 16}, NULL, 16);
    safetensors_put(&w, "other_proj_scales", "U8", 2, (int64_t[]){1, 1}, NULL, 1);
    safetensors_write(&w, "model.safetensors");
    scratch_write("config.json", text, sizeof text - 1);
    ht_checkpoint_files *c = checkpoint_files(scratch_directory());
    assert_fails(HT_ERR_UNSUPPORTED, "`h.0.attn.c_attn.weight_blocks` is of type MXFP4, expected floats",
                 ht_stored_weights_visit, c, scratch_config(), false, NULL, NULL);
    ht_checkpoint_close(c);
}

/* A number that is too large is one of very many layers. */
static void prediction_layers(void **state) {
    (void)state;
    safetensors_writer w = {0};
    safetensors_put(&w, "model.embed_tokens.weight", "F32", 2, (int64_t[]){4, 8}, NULL, 128);
    safetensors_put(&w, "mtp.99999999999999999999.weight", "F32", 1, (int64_t[]){1}, NULL, 4);
    safetensors_write(&w, "model.safetensors");
    scratch_write("config.json", "{\"model_type\": \"llama\"}", 23);
    ht_checkpoint_files *c = checkpoint_files(scratch_directory());
    assert_int_equal(ht_prediction_layers(c, scratch_config()), HT_MAX_LAYERS);
    ht_checkpoint_close(c);
}

/* Every row has one place in a stored order, which its inverse undoes, and runs end where adjacent rows part. */
static void check_order(const ht_order *o, int64_t n) {
    const ht_order inverse = ht_order_inverse(*o);
    for (int64_t r = 0; r < n; r++) {
        const int64_t at = ht_order_stored(o, r), run = ht_order_run(o, r);
        assert_in_range(at, 0, n - 1);
        assert_int_equal(ht_order_canonical(o, at), r);
        assert_int_equal(ht_order_stored(&inverse, at), r);
        for (int64_t i = 0; i < run && r + i < n; i++) assert_int_equal(ht_order_stored(o, r + i), at + i);
    }
}

static void orders_of_rows(void **state) {
    (void)state;
    const ht_order none = {0}, halves = ht_order_of_halves(6), heads = {4, 12, 2, 2}; /* two parts of three blocks */
    static const int64_t of_halves[12] = {0, 2, 4, 1, 3, 5, 6, 8, 10, 7, 9, 11},
                         of_heads[16] = {0, 1, 2, 3, 4, 5, 8, 9, 12, 13, 6, 7, 10, 11, 14, 15};
    check_order(&none, 5);
    check_order(&halves, 12);
    check_order(&heads, 16);
    for (int64_t r = 0; r < 12; r++) assert_int_equal(ht_order_stored(&halves, r), of_halves[r]);
    for (int64_t r = 0; r < 16; r++) assert_int_equal(ht_order_stored(&heads, r), of_heads[r]);
}

/* The parts of a joined projection have each of its rows once, key head by key head. */
static void rows_of_parts(void **state) {
    (void)state;
    const ht_recurrence_spec spec = {.key_heads = 2, .heads = 4, .key_dim = 3, .value_dim = 2};
    static const int64_t qkv[20] = {0, 1, 2, 14, 15, 16, 3, 4, 5, 17, 18, 19, 6, 7, 8, 9, 20, 21, 22, 23},
                         gate[8] = {10, 11, 12, 13, 24, 25, 26, 27};
    int64_t run;
    for (int64_t r = 0; r < 20; r++) {
        assert_int_equal(ht_part_row(&spec, HT_PART_QKV, r, &run), qkv[r]);
        assert_int_equal(run, r < 12 ? 3 - r % 3 : 4 - (r - 12) % 4);
    }
    for (int64_t r = 0; r < 8; r++) {
        assert_int_equal(ht_part_row(&spec, HT_PART_GATE, r, &run), gate[r]);
        assert_int_equal(run, 4 - r % 4);
    }
}

/* mlx-lm's directories of Qwen3.5 have gains with the offset of norms added: their convolutions tell, else the
 * metadata. */
UNIT_TEST(directories_of_mlx_lm) {
#define CONV(shape) ", \"model.layers.0.linear_attn.conv1d.weight\": {\"dtype\": \"F32\", \"shape\": " shape
    static const char config[] = "{\"model_type\": \"qwen3_5_text\", \"hidden_size\": 8, \"num_hidden_layers\": 2, "
                                 "\"num_attention_heads\": 1, \"num_key_value_heads\": 1, \"head_dim\": 8, "
                                 "\"vocab_size\": 48, \"layer_types\": [\"linear_attention\", \"full_attention\"]";
    static const struct {
        const char *format, *convolution, *more;
        float offset;
    } cases[] = {{"pt", "", "", 1},
                 {"mlx", "", "", 0},
                 {"pt", "", ", \"quantization\": {\"group_size\": 64, \"bits\": 4}", 0},
                 {"mlx", CONV("[8, 1, 1], \"data_offsets\": [1536, 1568]}"), "", 0},
                 {"pt", CONV("[8, 1, 1], \"data_offsets\": [1536, 1568]}"), "", 1},
                 {"pt", CONV("[4, 2, 1], \"data_offsets\": [1536, 1568]}"), "", 0},
                 {"mlx", CONV("[4, 1, 2], \"data_offsets\": [1536, 1568]}"), "", 1}};
    assert_int_equal(mkdir(scratch_path("model"), 0777), 0);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char header[512], text[512];
        const bool has_convolution = *cases[i].convolution;
        size_t size;
        ht_checkpoint_files *c;
        ht_config read;
        snprintf(header, sizeof header,
                 "{\"__metadata__\": {\"format\": \"%s\"}, \"model.embed_tokens.weight\": {\"dtype\": \"F32\", "
                 "\"shape\": [48, 8], \"data_offsets\": [0, 1536]}%s}",
                 cases[i].format, cases[i].convolution);
        snprintf(text, sizeof text, "%s%s}", config, cases[i].more);
        unsigned char *file = safetensors_raw(header, has_convolution ? 1568 : 1536, &size);
        scratch_write("model/model.safetensors", file, size);
        scratch_write("model/config.json", text, strlen(text));
        free(file);
        assert_works(ht_checkpoint_open, scratch_path("model"), &c);
        assert_works(ht_checkpoint_config, c, &read);
        if (read.norm_offset != cases[i].offset) fail_msg("case %zu: an offset of %g", i, (double)read.norm_offset);
        ht_checkpoint_close(c);
    }
#undef CONV
}

int main(void) {
    const struct CMUnitTest tests[] = {in_scratch(a_quantised_head),
                                       in_scratch(names_with_prefixes),
                                       in_scratch(names_that_mean_the_same),
                                       in_scratch(pooling_of_a_directory),
                                       in_scratch(modules_of_a_directory),
                                       in_scratch(modules_that_are_damaged),
                                       cmocka_unit_test(committed_checkpoints),
                                       in_scratch(a_head_beside_a_tied_one),
                                       in_scratch(a_tied_head_with_a_bias),
                                       in_scratch(transposed_blocks),
                                       in_scratch(prediction_layers),
                                       in_scratch(directories_of_mlx_lm),
                                       cmocka_unit_test(orders_of_rows),
                                       cmocka_unit_test(rows_of_parts),
                                       cmocka_unit_test(real_checkpoints)};
    return cmocka_run_group_tests(tests, cpu_device_open, cpu_device_close);
}
