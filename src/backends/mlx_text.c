#include "backends/mlx_text.h"

#include "base/error.h"
#include "base/file.h"
#include "chat/conversation.h"
#include "tokenizer/tokenizer.h"

#include <stdlib.h>
#include <string.h>

enum { CONFIG_BYTES_MAX = 64 << 20 };

/* Text of a JSON file in fresh memory; NULL when the file does not exist. */
static ht_status read_text(const char *directory, const char *name, char **text, size_t *size, ht_error *err) {
    char *path = ht_path_join(directory, name);
    *text = NULL;
    *size = 0;
    if (!path) return ht_fail_memory(err, strlen(directory) + strlen(name), "a path");
    const ht_status st = ht_path_exists(path) ? ht_file_read_all(path, CONFIG_BYTES_MAX, text, size, err) : HT_OK;
    free(path);
    return st;
}

/* EOS ids of a JSON file, if it is there. Other members are not looked at: mlx-lm runs models that this library does not. */
static ht_status add_eos(const char *directory, const char *name, ht_config *c, ht_error *err) {
    char *text;
    size_t size;
    ht_status st = read_text(directory, name, &text, &size, err);
    if (!st && text) st = ht_config_eos_read((ht_json_text){text, size}, name, c, err);
    free(text);
    return st;
}

static ht_status find_sampling(const char *directory, ht_sampling *out, ht_error *err) {
    char *text;
    size_t size;
    ht_status st = read_text(directory, "generation_config.json", &text, &size, err);
    if (!st) st = ht_sampling_from_json((ht_json_text){text, size}, out, err);
    free(text);
    return st;
}

static ht_status find_stop_ids(const char *path, ht_mlx_text *t, ht_error *err) {
    ht_config *c = calloc(1, sizeof *c);
    if (!c) return ht_fail_memory(err, sizeof *c, "a configuration");
    c->vocab = t->tokenizer ? ht_tokenizer_vocab_size(t->tokenizer) : INT32_MAX;
    ht_status st = add_eos(path, "config.json", c, err);
    if (!st) st = add_eos(path, "generation_config.json", c, err);
    if (!st) st = ht_chat_detect_stop_ids(c, t->tokenizer, &t->stop_ids, &t->n_stop_ids, err);
    free(c);
    return st;
}

ht_status ht_mlx_text_load(const char *path, ht_mlx_text *out, ht_error *err) {
    *out = (ht_mlx_text){0};
    if (!ht_path_exists(path)) return ht_fail(err, HT_ERR_IO, "%s: there is no such file or directory", path);
    if (!ht_path_is_directory(path))
        return ht_fail(err, HT_ERR_UNSUPPORTED,
                       "%s: mlx_lm loads directories of safetensors with config.json, and this is a file", path);
    const ht_checkpoint_files files = {.path = (char *)(uintptr_t)path};
    ht_status st = ht_chat_detect_tokenizer(&files, &out->tokenizer, err);
    if (!st && !out->tokenizer) out->no_tokenizer = ht_chat_detect_no_tokenizer(&files);
    if (!st && out->tokenizer) st = ht_chat_detect_template(out->tokenizer, &out->chat, err);
    if (!st) st = find_sampling(path, &out->sampling, err);
    return st ? st : find_stop_ids(path, out, err);
}

void ht_mlx_text_free(ht_mlx_text *t) {
    ht_tokenizer_free(t->tokenizer);
    ht_chat_setup_free(&t->chat);
    free(t->stop_ids);
    *t = (ht_mlx_text){0};
}

ht_status ht_mlx_text_need(const ht_mlx_text *t, ht_error *err) {
    if (t->tokenizer) return HT_OK;
    return ht_fail(err, HT_ERR_UNSUPPORTED, "the model %s: it takes and gives token ids alone", t->no_tokenizer);
}

static ht_status copy_ids(const int32_t *from, size_t n_from, int32_t **ids, size_t *n, ht_error *err) {
    if (!n_from) return HT_OK;
    *ids = malloc(n_from * sizeof **ids);
    if (!*ids) return ht_fail_memory(err, n_from * sizeof **ids, "a prompt");
    memcpy(*ids, from, n_from * sizeof **ids);
    *n = n_from;
    return HT_OK;
}

ht_status ht_mlx_text_encode(const ht_mlx_text *t, const ht_backend_prompt *prompt, int32_t **ids, size_t *n,
                             ht_error *err) {
    *ids = NULL;
    *n = 0;
    if (!prompt->text) return copy_ids(prompt->ids, prompt->n_ids, ids, n, err);
    const ht_status st = ht_mlx_text_need(t, err);
    if (st) return st;
    return ht_tokenizer_encode(t->tokenizer, prompt->text, strlen(prompt->text),
                               HT_ENCODE_PARSE_SPECIAL | HT_ENCODE_ADD_SPECIAL, ids, n, err);
}

static const char *piece_of(const ht_tokenizer *t, int32_t id) { return id >= 0 ? ht_tokenizer_piece(t, id) : NULL; }

ht_status ht_mlx_text_chat(const ht_mlx_text *t, const ht_chat *chat, bool parse_special, char **text, size_t *n_text,
                           int32_t **ids, size_t *n_ids, ht_error *err) {
    *text = NULL;
    *ids = NULL;
    *n_ids = 0;
    ht_text_run *runs = NULL;
    size_t n_runs;
    ht_status st = ht_mlx_text_need(t, err);
    if (!st)
        st = ht_chat_write(&t->chat, piece_of(t->tokenizer, ht_tokenizer_bos(t->tokenizer)),
                           piece_of(t->tokenizer, ht_tokenizer_eos(t->tokenizer)), chat, text, n_text, &runs, &n_runs,
                           err);
    if (!st)
        st = ht_chat_encode_runs(t->tokenizer, *text, *n_text, runs, n_runs,
                                 parse_special ? HT_ENCODE_PARSE_SPECIAL : 0, ids, n_ids, err);
    free(runs);
    return st;
}
