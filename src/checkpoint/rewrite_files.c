/* Places of a rewritten checkpoint's files: GGUF files by themselves, or a directory with the weights, what describes them, and
 * copies of what is beside them. */
#include "base/checked.h"
#include "base/directory_writer.h"
#include "base/error.h"
#include "base/grow.h"
#include "base/text.h"
#include "checkpoint/convert_metadata.h"
#include "checkpoint/rewrite.h"

#include <hearth/discover.h>

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static const char config_name[] = "config.json";

/* ---- files beside the weights ---- */

typedef struct names {
    char **name; /* [n], and a NULL */
    size_t n, n_copied;
} names;

static ht_status add_name(names *all, const char *name, size_t n, ht_error *err) {
    char *copy = HT_RESIZE(all->name, all->n + 2) ? strndup(name, n) : NULL;
    if (!copy) return ht_fail_memory(err, n + 1, "a name");
    all->name[all->n++] = copy;
    all->name[all->n] = NULL;
    return HT_OK;
}

static void free_names(names *all) {
    for (size_t i = 0; i < all->n; i++) free(all->name[i]);
    free(all->name);
}

/* Files of which a GGUF file has its metadata, or which are made of it and could contradict it. */
static bool is_document(const char *name) {
    static const char *const documents[] = {"generation_config.json",  "tokenizer.json",    "tokenizer_config.json",
                                            "chat_template.jinja",     "tokenizer.model",   "vocab.json",
                                            "special_tokens_map.json", "added_tokens.json", "merges.txt",
                                            "chat_template.json"};
    for (size_t i = 0; i < sizeof documents / sizeof *documents; i++)
        if (!strcmp(name, documents[i])) return true;
    return false;
}

/* Weights that are not rewritten are no part of the new checkpoint, whatever container they are in; nor is ModelOpt's second
 * description of a quantisation that is no more. */
static bool is_copied(const ht_rewrite_plan *plan, const char *name) {
    static const char *const weights[] = {".safetensors", ".bin",  ".pt",   ".pth", ".ckpt",       ".h5",
                                          ".msgpack",     ".onnx", ".gguf", ".npz", ".index.json", ".tmp"};
    if (name[0] == '.' || !strcmp(name, HT_SAFETENSORS_INDEX)) return false;
    if ((!plan->to_gguf || plan->to_other) && !strcmp(name, config_name)) return false;
    if (plan->to_other && is_document(name)) return false;
    if (!strcmp(name, "hf_quant_config.json")) return !ht_rewrite_is_dense(plan);
    if (!strcmp(name, "adapter_config.json")) return false; /* its values are not copied */
    if (ht_file_role_of(name) == HT_FILE_PROJECTOR) return !plan->to_other;
    for (size_t i = 0; i < sizeof weights / sizeof *weights; i++)
        if (ht_ends_with(name, weights[i])) return false;
    return true;
}

static const char *directory_of(const ht_rewrite_plan *plan) {
    return plan->c->gguf ? plan->c->directory : plan->c->path;
}

static ht_status list_copied(const ht_rewrite_plan *plan, names *all, ht_error *err) {
    const char *path = directory_of(plan);
    DIR *directory = opendir(path);
    if (!directory) return ht_fail(err, HT_ERR_IO, "%s: the directory cannot be read", path);
    ht_status status = HT_OK;
    for (const struct dirent *e; !status && (e = readdir(directory));) {
        struct stat st;
        if (!is_copied(plan, e->d_name) || fstatat(dirfd(directory), e->d_name, &st, 0) || !S_ISREG(st.st_mode))
            continue;
        status = add_name(all, e->d_name, strlen(e->d_name), err);
    }
    closedir(directory);
    all->n_copied = all->n;
    return status;
}

static ht_status copy_bytes(const ht_file *from, ht_writer *to, ht_error *err) {
    enum { PIECE = 1 << 20 };
    char *bytes = malloc(PIECE);
    ht_status status = bytes ? HT_OK : ht_fail_memory(err, PIECE, from->path);
    for (size_t at = 0, n; !status && at < from->size; at += n) {
        n = ht_min_size(from->size - at, PIECE);
        status = ht_file_read_at(from, at, bytes, n, err);
        if (!status) status = ht_writer_put(to, bytes, n, err);
    }
    free(bytes);
    return status;
}

static ht_status copy_file(const char *from_directory, const char *to_directory, const char *name, ht_error *err) {
    char *from = ht_path_join(from_directory, name), *to = ht_path_join(to_directory, name);
    ht_file *file = NULL;
    ht_writer *writer = NULL;
    ht_status status = from && to ? ht_file_open(from, &file, err) : ht_fail_memory(err, strlen(name), "a path");
    if (!status) status = ht_writer_open(to, &writer, err);
    if (!status) status = copy_bytes(file, writer, err);
    if (!status)
        status = ht_writer_commit(writer, err);
    else
        ht_writer_discard(writer);
    ht_file_close(file);
    free(from);
    free(to);
    return status;
}

ht_status ht_rewrite_write_text(const char *directory, const char *name, const char *text, ht_error *err) {
    char *path = ht_path_join(directory, name);
    ht_writer *writer = NULL;
    ht_status status = path ? ht_writer_open(path, &writer, err) : ht_fail_memory(err, strlen(name), "a path");
    if (!status) status = ht_writer_put(writer, text, strlen(text), err);
    if (!status) status = ht_writer_put(writer, "\n", 1, err);
    if (!status)
        status = ht_writer_commit(writer, err);
    else
        ht_writer_discard(writer);
    free(path);
    return status;
}

/* ---- configuration and documents ---- */

/* config.json and what else a GGUF file has in its metadata. */
static ht_status write_documents(const ht_rewrite_plan *plan, const char *directory, ht_error *err) {
    ht_directory_documents all;
    const char *dtype = plan->dtype == HT_F16 ? "float16" : plan->dtype == HT_BF16 ? "bfloat16" : "float32";
    ht_status status = ht_directory_documents_of(plan->c, plan->config, dtype, &all, err);
    for (int i = 0; !status && i < all.n; i++) {
        const char *name = all.document[i].name, *text = all.document[i].text;
        char *changed = NULL;
        if (!strcmp(name, config_name))
            status = ht_rewrite_config(plan, (ht_json_text){text, strlen(text)}, &changed, err);
        if (!status) status = ht_rewrite_write_text(directory, name, changed ? changed : text, err);
        free(changed);
    }
    ht_directory_documents_free(&all);
    return status;
}

static ht_status write_config(const ht_rewrite_plan *plan, const char *directory, ht_error *err) {
    char *text;
    if (plan->to_other) return write_documents(plan, directory, err);
    ht_status status = ht_rewrite_config(plan, (ht_json_text){plan->c->config_text, plan->c->config_size}, &text, err);
    if (status) return status;
    status = text ? ht_rewrite_write_text(directory, config_name, text, err)
                  : copy_file(plan->c->path, directory, config_name, err);
    free(text);
    return status;
}

/* ---- directories ---- */

/* All names of the directory: those that are copied, then those of the weights and what describes them. */
static ht_status list_names(const ht_rewrite_plan *plan, names *all, ht_error *err) {
    static const char *const made[] = {"generation_config.json", "tokenizer.json", "tokenizer_config.json",
                                       "chat_template.jinja"};
    bool index = false;
    ht_status status = plan->copies_files ? list_copied(plan, all, err) : HT_OK;
    for (int i = 0; !status && i < plan->n_files; i++)
        if (!ht_rewrite_is_left_out(plan, i)) status = add_name(all, plan->file[i], strlen(plan->file[i]), err);
    if (status || plan->to_gguf) return status;
    status = add_name(all, config_name, strlen(config_name), err);
    if (!status) status = ht_rewrite_safetensors_indexed(plan, &index, err);
    if (!status && index) status = add_name(all, HT_SAFETENSORS_INDEX, strlen(HT_SAFETENSORS_INDEX), err);
    for (size_t i = 0; !status && plan->to_other && i < sizeof made / sizeof *made; i++)
        status = add_name(all, made[i], strlen(made[i]), err);
    return status;
}

static ht_status fill_directory(const ht_rewrite_plan *plan, ht_rewrite_values *values, const names *all,
                                const char *path, ht_error *err) {
    ht_status status = HT_OK;
    for (size_t i = 0; !status && i < all->n_copied; i++)
        status = copy_file(directory_of(plan), path, all->name[i], err);
    if (status) return status;
    if (plan->to_gguf) return ht_rewrite_gguf_write_all(plan, values, path, err);
    status = write_config(plan, path, err);
    return status ? status : ht_rewrite_safetensors_write(plan, values, path, err);
}

static ht_status write_directory(const ht_rewrite_plan *plan, ht_rewrite_values *values, ht_error *err) {
    names all = {0};
    ht_directory_writer *directory = NULL;
    ht_status status = list_names(plan, &all, err);
    if (!status) status = ht_directory_writer_open(plan->out_path, (const char *const *)all.name, &directory, err);
    if (!status) status = fill_directory(plan, values, &all, ht_directory_writer_path(directory), err);
    if (!status)
        status = ht_directory_writer_commit(directory, err);
    else
        ht_directory_writer_discard(directory);
    free_names(&all);
    return status;
}

ht_status ht_rewrite_write(const ht_rewrite_plan *plan, ht_rewrite_values *values, ht_error *err) {
    if (plan->is_directory) return write_directory(plan, values, err);
    return plan->n_files > 1 ? ht_rewrite_gguf_write_set(plan, values, err)
                             : ht_rewrite_gguf_write(plan, values, 0, plan->out_path, err);
}
