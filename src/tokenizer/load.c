/* Loading by path: a GGUF, a tokenizer.json, or a directory with either. */
#include "base/checked.h"
#include "base/error.h"
#include "base/file.h"
#include "tokenizer/tokenizer.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>

#define SMALL_FILE ((size_t)16 << 20) /* tokenizer_config.json and chat templates are far smaller */

static bool ends_with(const char *text, const char *end) {
    size_t n = strlen(text), m = strlen(end);
    return n >= m && strcmp(text + n - m, end) == 0;
}

static ht_status load_gguf(ht_file *file, ht_tokenizer **out, ht_error *err) {
    ht_gguf *g;
    ht_status st = ht_gguf_read(file, file->path, &g, err);
    if (!st) st = ht_tokenizer_from_gguf(g, file->path, out, err);
    ht_gguf_free(g);
    return st;
}

/* Reads a small file of a directory; *data stays NULL when it is not there. */
static ht_status read_beside(const char *directory, const char *name, char **data, size_t *n, ht_error *err) {
    *data = NULL;
    *n = 0;
    char *path = ht_path_join(directory, name);
    if (!path) return ht_fail_memory(err, strlen(directory), name);
    ht_status st = ht_path_exists(path) ? ht_file_read_all(path, SMALL_FILE, data, n, err) : HT_OK;
    free(path);
    return st;
}

/* A template in a file of its own stands in the place of the one in tokenizer_config.json. */
static ht_status load_template(ht_tokenizer *t, const char *directory, ht_error *err) {
    char *data;
    size_t n;
    ht_status st = read_beside(directory, "chat_template.jinja", &data, &n, err);
    if (st || !data) return st;
    free(t->chat_template);
    t->chat_template = data;
    return HT_OK;
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
    st = ht_tokenizer_from_json((const char *)file->data, file->size, config, n_config, out, err);
    if (st) ht_fail_in(err, st, "%s", file->path);
    free(config);
    if (!st) st = load_template(*out, directory, err);
    return st;
}

static ht_status load_file(const char *path, ht_tokenizer **out, ht_error *err) {
    ht_file *file;
    ht_status st = ht_file_open(path, &file, err);
    if (st) return st;
    st = ht_file_fetch(file, ht_min_size(file->size, 4), err);
    if (st) {
        ht_file_close(file);
        return st;
    }
    if (file->size >= 4 && memcmp(file->data, "GGUF", 4) == 0)
        st = load_gguf(file, out, err);
    else if (ends_with(path, ".json")) {
        const char *slash = strrchr(path, '/');
        char *directory = slash ? ht_copy_text(path, (size_t)(slash - path) + 1) : ht_copy_text(".", 1);
        st = directory ? load_json(file, directory, out, err) : ht_fail_memory(err, strlen(path), path);
        free(directory);
    } else
        st = ht_fail(err, HT_ERR_FORMAT, "%s: is neither a GGUF file nor a tokenizer.json", path);
    ht_file_close(file);
    return st;
}

/* The path of the one GGUF in a directory; NULL when there is none. */
static ht_status find_gguf(const char *directory, char **path, ht_error *err) {
    *path = NULL;
    DIR *dir = opendir(directory);
    if (!dir) return ht_fail(err, HT_ERR_IO, "%s: the directory cannot be read", directory);
    ht_status st = HT_OK;
    for (const struct dirent *entry; !st && (entry = readdir(dir)) != NULL;) {
        if (!ends_with(entry->d_name, ".gguf") || strncmp(entry->d_name, "mmproj", 6) == 0) continue;
        if (*path)
            st = ht_fail(err, HT_ERR_ARGUMENT, "%s: holds more than one .gguf file; name the one you mean", directory);
        else if (!(*path = ht_path_join(directory, entry->d_name)))
            st = ht_fail_memory(err, strlen(directory), directory);
    }
    closedir(dir);
    return st;
}

static ht_status load_directory(const char *directory, ht_tokenizer **out, ht_error *err) {
    char *path = ht_path_join(directory, "tokenizer.json");
    if (!path) return ht_fail_memory(err, strlen(directory), directory);
    ht_status st = HT_OK;
    if (!ht_path_exists(path)) {
        free(path);
        st = find_gguf(directory, &path, err);
    }
    if (!st)
        st = path ? load_file(path, out, err)
                  : ht_fail(err, HT_ERR_IO, "%s: holds neither a tokenizer.json nor a .gguf file", directory);
    free(path);
    return st;
}

ht_status ht_tokenizer_load(const char *path, ht_tokenizer **out, ht_error *err) {
    *out = NULL;
    ht_status st = ht_path_is_directory(path) ? load_directory(path, out, err) : load_file(path, out, err);
    if (st) {
        ht_tokenizer_free(*out);
        *out = NULL;
    }
    return st;
}
