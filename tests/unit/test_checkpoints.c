/* Files that other programs wrote are read to the last tensor: the committed tiny checkpoints (made by transformers and the
 * gguf package), and the real ones in $HEARTH_TEST_MODELS. */
#define _GNU_SOURCE
#include "base/file.h"
#include "formats/gguf.h"
#include "formats/safetensors.h"
#include "models/checkpoint.h"
#include "support/safetensors_writer.h"
#include "support/scratch.h"
#include "support/test.h"

#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

/* Whether the head is the embedding, of a checkpoint whose configuration says that it is. */
static bool is_tied(const float *embedding, const float *head, const char *head_type) {
    static ht_config config;
    static const char text[] = "{\"model_type\": \"llama\", \"vocab_size\": 4, \"hidden_size\": 8, "
                               "\"num_attention_heads\": 2, \"tie_word_embeddings\": true}";
    size_t size, bytes = strcmp(head_type, "F32") ? 64 : 128;
    safetensors_writer w = {0};
    safetensors_put(&w, "model.embed_tokens.weight", "F32", 2, (int64_t[]){4, 8}, embedding, 128);
    if (head) safetensors_put(&w, "lm_head.weight", head_type, 2, (int64_t[]){4, 8}, head, bytes);
    unsigned char *file = safetensors_finish(&w, &size);
    scratch_write("model.safetensors", file, size);
    scratch_write("config.json", text, sizeof text - 1);
    free(file);
    ht_checkpoint_files *c;
    ht_error err = {0};
    if (ht_checkpoint_open(scratch_directory(), &c, &err) || ht_checkpoint_config(c, &config, &err))
        fail_msg("%s", err.message);
    ht_checkpoint_close(c);
    return config.tied_head;
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

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(committed_checkpoints),
        cmocka_unit_test_setup_teardown(a_head_beside_a_tied_one, scratch_start, scratch_finish),
        cmocka_unit_test(real_checkpoints),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
