/* Tokenizer loading by path: a GGUF file, a tokenizer.json, a vocab.txt, or a directory with one of them. */
#include "base/checked.h"
#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "formats/gguf_set.h"
#include "formats/json.h"
#include "tokenizer/load_config.h"
#include "tokenizer/tokenizer.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SMALL_FILE ((size_t)16 << 20) /* limit for tokenizer_config.json and chat templates */

/* optional: a file without a vocabulary gives *out = NULL instead of an error. */
static ht_status load_gguf(ht_file *file, bool optional, ht_tokenizer **out, ht_error *err) {
    ht_gguf *g;
    ht_status st = ht_gguf_read(file, file->path, &g, err);
    if (!st && !(optional && !ht_gguf_find(g, "tokenizer.ggml.tokens")))
        st = ht_tokenizer_from_gguf(g, file->path, out, err);
    ht_gguf_free(g);
    return st;
}

/* Reads a small file of the directory; *data is NULL when it does not exist. */
static ht_status read_beside(const char *directory, const char *name, char **data, size_t *n, ht_error *err) {
    *data = NULL;
    *n = 0;
    char *path = ht_path_join(directory, name);
    if (!path) return ht_fail_memory(err, strlen(directory), name);
    ht_status st = ht_path_exists(path) ? ht_file_read_all(path, SMALL_FILE, data, n, err) : HT_OK;
    if (*data && ht_is_lfs_pointer(*data, *n)) {
        st = ht_fail(err, HT_ERR_FORMAT, "%s: %s", path, HT_LFS_POINTER);
        free(*data);
        *data = NULL;
    }
    free(path);
    return st;
}

/* Puts the text of a template file in place of a template. */
static ht_status load_file_template(const char *directory, const char *name, char **to, ht_error *err) {
    char *data;
    size_t n;
    ht_status st = read_beside(directory, name, &data, &n, err);
    if (st || !data) return st;
    free(*to);
    *to = data;
    return HT_OK;
}

/* Template files override the templates in tokenizer_config.json. */
static ht_status load_template(ht_tokenizer *t, const char *directory, ht_error *err) {
    char *data, *const listed = t->chat_template;
    size_t n;
    ht_status st = load_file_template(directory, "chat_template.jinja", &t->chat_template, err);
    if (!st && t->chat_template != listed) { /* the file overrides the whole list */
        free(t->tool_template);
        t->tool_template = NULL;
    }
    if (!st) st = load_file_template(directory, HT_TOOL_TEMPLATE_FILE, &t->tool_template, err);
    if (st || t->chat_template) return st;
    st = read_beside(directory, "chat_template.json", &data, &n, err); /* older multimodal checkpoints */
    if (!st && data) st = ht_load_template(t, data, n, "chat_template.json", err);
    free(data);
    return st;
}

ht_status ht_tokenizer_find_template(ht_tokenizer *t, const char *directory, ht_error *err) {
    char *data;
    size_t n;
    if (t->chat_template) return HT_OK;
    ht_status st = load_template(t, directory, err);
    if (st || t->chat_template) return st;
    st = read_beside(directory, "tokenizer_config.json", &data, &n, err);
    if (!st && data) st = ht_load_template(t, data, n, "tokenizer_config.json", err);
    free(data);
    return st;
}

/* Prepends the BOS of a Llama 3 vocabulary, named in config.json, to each text if no post-processor does: the models
 * expect it, and their GGUF files enable it by default. */
static ht_status add_bos(ht_tokenizer *t, const char *directory, ht_error *err) {
    static const char bos[] = "<|begin_of_text|>";
    char *data;
    size_t n;
    ht_json *config;
    if (!t->may_add_bos || t->n_prefix) return HT_OK;
    ht_status st = read_beside(directory, "config.json", &data, &n, err);
    if (st || !data) return st;
    st = ht_json_parse(data, n, "config.json", &config, err);
    free(data);
    if (st) return st;
    const ht_json *named = ht_json_object_get(config, "bos_token_id");
    if (!named) named = ht_json_object_get(ht_json_object_get(config, "text_config"), "bos_token_id");
    const int64_t id = ht_json_is_integer(named) ? ht_json_integer_value(named) : -1;
    if (id >= 0 && id < t->vocab.n && id == ht_vocab_find(&t->vocab, bos, sizeof bos - 1)) {
        t->bos = (int32_t)id;
        st = ht_append_id(&t->prefix, &t->n_prefix, t->bos, err);
    }
    ht_json_decref(config);
    return st;
}

static ht_status load_json(ht_file *file, const char *directory, ht_tokenizer **out, ht_error *err) {
    char *config;
    size_t n_config;
    ht_status st = read_beside(directory, "tokenizer_config.json", &config, &n_config, err);
    if (st) return st;
    st = ht_file_fetch(file, file->size, err);
    if (st) {
        free(config);
        return st;
    }
    st = (ht_ends_with(file->path, ".txt") ? ht_tokenizer_from_vocab : ht_tokenizer_from_json)(
        (const char *)file->data, file->size, config, n_config, out, err);
    if (st) ht_fail_in(err, st, "%s", file->path);
    free(config);
    if (!st) st = load_template(*out, directory, err);
    return st ? st : add_bos(*out, directory, err);
}

static ht_status load_file(const char *path, bool optional, ht_tokenizer **out, ht_error *err) {
    ht_file *file;
    ht_status st = ht_file_open(path, &file, err);
    if (st) return st;
    st = ht_file_fetch(file, ht_min_size(file->size, 4), err);
    if (st) {
        ht_file_close(file);
        return st;
    }
    if (file->size >= 4 && memcmp(file->data, "GGUF", 4) == 0)
        st = load_gguf(file, optional, out, err);
    else if (ht_ends_with(path, ".json") || ht_ends_with(path, "vocab.txt")) {
        const char *slash = strrchr(path, '/');
        char *directory = slash ? ht_copy_text(path, (size_t)(slash - path) + 1) : ht_copy_text(".", 1);
        st = directory ? load_json(file, directory, out, err) : ht_fail_memory(err, strlen(path), path);
        free(directory);
    } else
        st = ht_fail(err, HT_ERR_FORMAT, "%s: is neither a GGUF file nor a tokenizer.json", path);
    ht_file_close(file);
    return st;
}

typedef struct contents {
    ht_gguf_listing gguf;
    bool safetensors;
} contents;

static ht_status list_models(const char *directory, contents *c, ht_error *err) {
    *c = (contents){0};
    DIR *dir = opendir(directory);
    if (!dir) return ht_fail(err, HT_ERR_IO, "%s: the directory cannot be read", directory);
    for (const struct dirent *entry; (entry = readdir(dir)) != NULL;) {
        const char *name = entry->d_name;
        c->safetensors = c->safetensors || ht_ends_with(name, ".safetensors");
        ht_gguf_listing_add(&c->gguf, name);
    }
    closedir(dir);
    return HT_OK;
}

const char *ht_tokenizer_missing(const char *directory) {
#define BY_TRANSFORMERS(name)                                                                                          \
    "holds no tokenizer.json, and its " name " is not read; transformers makes the one from the other "                \
    "(AutoTokenizer.from_pretrained(DIRECTORY).save_pretrained(DIRECTORY))"
    static const char *const found[][2] = {
        {"tokenizer.model", BY_TRANSFORMERS("tokenizer.model")},
        {"sentencepiece.bpe.model", BY_TRANSFORMERS("sentencepiece.bpe.model")},
        {"spiece.model", BY_TRANSFORMERS("spiece.model")},
        {"tekken.json", BY_TRANSFORMERS("tekken.json")},
        {"merges.txt", BY_TRANSFORMERS("merges.txt")},
        {"tiktoken.model", "holds no tokenizer.json, and its tiktoken.model lacks the pattern that splits texts; use a "
                           "GGUF file of the model, or write a tokenizer.json with transformers' TikTokenConverter and "
                           "the pat_str of the model's tokenization_*.py"},
    };
    for (size_t i = 0; i < sizeof found / sizeof *found; i++) {
        char *path = ht_path_join(directory, found[i][0]);
        const bool exists = path && ht_path_exists(path);
        free(path);
        if (exists) return found[i][1];
    }
    return "holds no tokenizer.json, no vocab.txt and no .gguf file";
}

char *ht_tokenizer_file_in(const char *directory) {
    char *path = ht_path_join(directory, "tokenizer.json");
    if (!path || ht_path_exists(path)) return path;
    free(path);
    return ht_path_join(directory, "vocab.txt");
}

/* Same precedence as model loading: tokenizer.json in a directory with safetensors; otherwise a GGUF's vocabulary
 * before tokenizer.json. */
static ht_status load_directory(const char *directory, ht_tokenizer **out, ht_error *err) {
    contents c;
    ht_status st = list_models(directory, &c, err);
    if (st) return st;
    char *gguf = ht_path_join(directory, c.gguf.name), *json = ht_tokenizer_file_in(directory);
    bool has_json = json && ht_path_exists(json);
    if (!gguf || !json)
        st = ht_fail_memory(err, strlen(directory), directory);
    else if (c.gguf.n == 1 && !(has_json && c.safetensors))
        st = load_file(gguf, has_json, out, err);
    else if (c.gguf.n > 1 && !has_json)
        st = ht_fail(err, HT_ERR_ARGUMENT, "%s: holds more than one .gguf file; name the one you mean", directory);
    else if (!has_json)
        st = ht_fail(err, HT_ERR_IO, "%s: %s", directory, ht_tokenizer_missing(directory));
    if (!st && *out)
        st = ht_tokenizer_find_template(*out, directory, err);
    else if (!st)
        st = load_file(json, false, out, err);
    free(gguf);
    free(json);
    return st;
}

ht_status ht_tokenizer_load(const char *path, ht_tokenizer **out, ht_error *err) {
    *out = NULL;
    ht_status st = ht_path_is_directory(path) ? load_directory(path, out, err) : load_file(path, false, out, err);
    if (st) {
        ht_tokenizer_free(*out);
        *out = NULL;
    }
    return st;
}
