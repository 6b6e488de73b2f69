/* Output of a rewrite: checks its path, which must be outside the source and may only replace Hearth's outputs. Writes
 * config.json and the documents, and copies other files. */
#include "base/checked.h"
#include "base/directory_writer.h"
#include "base/error.h"
#include "base/grow.h"
#include "base/text.h"
#include "checkpoint/convert_metadata.h"
#include "checkpoint/rewrite.h"
#include "checkpoint/sampling.h"
#include "formats/affine.h"
#include "formats/blocks.h"
#include "formats/json.h"
#include "tokenizer/tokenizer.h"

#include <hearth/discover.h>

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* The absolute path of an existing file, or of a new name in an existing directory. The caller frees *out. */
static ht_status resolve(const char *path, char **out, ht_error *err) {
    *out = realpath(path, NULL);
    if (*out) return HT_OK;
    size_t n = strlen(path);
    while (n > 1 && path[n - 1] == '/') n--;
    size_t at = n;
    while (at && path[at - 1] != '/') at--;
    char *parent = at ? strndup(path, at) : strdup("."), *name = strndup(path + at, n - at);
    char *real = parent && name ? realpath(parent, NULL) : NULL;
    const int code = parent && name ? errno : ENOMEM;
    if (real) *out = ht_path_join(real, name);
    free(real);
    free(parent);
    free(name);
    if (*out) return HT_OK;
    return ht_fail(err, code == ENOMEM ? HT_ERR_MEMORY : HT_ERR_IO, "%s: cannot be written: %s", path, strerror(code));
}

static bool is_within(const char *path, const char *directory) {
    const size_t n = strlen(directory);
    return !strncmp(path, directory, n) && (path[n] == '\0' || path[n] == '/');
}

static bool is_same_file(const char *a, const char *b) {
    struct stat x, y;
    return stat(a, &x) == 0 && stat(b, &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

/* Rejects outputs over the checkpoint or inside it. */
static ht_status check_apart(const ht_checkpoint_files *c, const char *model_path, const char *out_path,
                             ht_error *err) {
    char *model = NULL, *out = NULL;
    ht_status status = resolve(model_path, &model, err);
    if (!status) status = resolve(out_path, &out, err);
    bool same = !status && is_within(out, model);
    for (int i = 0; !status && c->gguf && ht_path_exists(out_path) && i < ht_gguf_set_n_parts(c->parts); i++)
        same = same || is_same_file(out_path, ht_gguf_set_part(c->parts, i)->path);
    free(model);
    free(out);
    if (!same) return status;
    return ht_fail(err, HT_ERR_ARGUMENT, "%s: is the checkpoint that is read, or inside of it; take another place",
                   out_path);
}

static bool is_empty(const char *path) {
    DIR *directory = opendir(path);
    int n = 0;
    if (!directory) return false;
    while (n < 3 && readdir(directory)) n++; /* "." and ".." */
    closedir(directory);
    return n < 3;
}

static const char *const marks[] = {HT_REWRITE_FUSED, HT_REWRITE_QUANTIZED, HT_REWRITE_CONVERTED};
enum { N_MARKS = sizeof marks / sizeof *marks };

/* Whether a checkpoint has one of Hearth's marks; unreadable files have none. Reads one part alone: others may be
 * missing. */
static ht_status find_mark(const char *path, bool is_part, bool *found, ht_error *err) {
    ht_checkpoint_files *c = NULL;
    ht_file *file = NULL;
    ht_gguf *part = NULL;
    ht_error why = {0};
    ht_status status = is_part ? ht_file_open(path, &file, &why) : ht_checkpoint_open(path, &c, &why);
    if (!status && is_part) status = ht_gguf_read(file, path, &part, &why);
    const ht_gguf *gguf = c ? c->gguf : part;
    *found = false;
    for (int i = 0; !status && i < N_MARKS && !*found; i++)
        *found = gguf ? ht_gguf_find(gguf, marks[i]) != NULL : ht_safetensors_metadata(c->tensors, marks[i]) != NULL;
    ht_gguf_free(part);
    ht_file_close(file);
    ht_checkpoint_close(c);
    return status == HT_ERR_MEMORY ? ht_fail(err, status, "%s", why.message) : HT_OK;
}

static ht_status not_replaced(const char *path, ht_error *err) {
    return ht_fail(err, HT_ERR_ARGUMENT,
                   "%s: is not replaced, as it is neither a fused nor a quantised checkpoint of Hearth's, nor a "
                   "converted one; remove it, or take another name",
                   path);
}

/* Only outputs of this library are replaced. */
static ht_status check_target(const char *path, bool is_directory, ht_error *err) {
    if (!*path) return ht_fail(err, HT_ERR_ARGUMENT, "the name of the checkpoint to write is empty");
    if (ht_path_exists(path) && ht_path_is_directory(path) != is_directory)
        return ht_fail(err, HT_ERR_ARGUMENT, "%s: is %s, but the output is %s", path,
                       is_directory ? "a file" : "a directory", is_directory ? "a directory" : "a file");
    if (!is_directory && !ht_ends_with(path, ".gguf")) /* such as `default`, the name of a model */
        return ht_fail(err, HT_ERR_ARGUMENT, "%s: the name of a GGUF file must end with .gguf; use %s.gguf", path,
                       path);
    if (!ht_path_exists(path) || (is_directory && is_empty(path))) return HT_OK;
    bool ours;
    ht_status status = find_mark(path, false, &ours, err);
    return status || ours ? status : not_replaced(path, err);
}

/* Checks the path of one part; other files named like the checkpoint are not replaced. */
static ht_status check_part(const ht_rewrite_plan *plan, int part, const char *model_path, ht_error *err) {
    const size_t n = strlen(plan->out_path) - strlen(".gguf");
    char *path = ht_gguf_part_path(plan->out_path, n, part + 1, plan->n_files);
    bool ours = true;
    ht_status status = path ? HT_OK : ht_fail_memory(err, n, "a path");
    if (!status && ht_path_exists(path)) status = find_mark(path, true, &ours, err);
    if (!status && !ours) status = not_replaced(path, err);
    if (!status) status = check_apart(plan->c, model_path, path, err);
    free(path);
    return status;
}

ht_status ht_rewrite_check_place(const ht_rewrite_plan *plan, const char *model_path, ht_error *err) {
    ht_status status = HT_OK;
    if (plan->is_directory || plan->n_files < 2) {
        status = check_target(plan->out_path, plan->is_directory, err);
        return status ? status : check_apart(plan->c, model_path, plan->out_path, err);
    }
    for (int i = 0; !status && i < plan->n_files; i++) status = check_part(plan, i, model_path, err);
    return status;
}

/* Keys of settings, written by mlx-lm and other tools. */
static const char *const settings[] = {"quantization", "quantization_config", "compression_config"};
enum { N_SETTINGS = sizeof settings / sizeof *settings };

static ht_status out_of_memory(ht_error *err) { return ht_fail_memory(err, 0, "config.json"); }

static bool any_changed(const ht_rewrite_plan *plan) {
    for (size_t i = 0; i < plan->n; i++) {
        const ht_rewrite_tensor *t = &plan->tensor[i];
        if (t->action == HT_REWRITE_ROUND && (t->quantized || ht_rewrite_in_parts(plan, t))) return true;
    }
    return false;
}

/* ---- config.json: dtype ---- */

/* transformers casts weights to this dtype. */
static ht_status state_dtype(ht_json *object, ht_dtype dtype, ht_error *err) {
    static const char *const keys[] = {"dtype", "torch_dtype"};
    const char *name = dtype == HT_F32 ? "float32" : dtype == HT_F16 ? "float16" : "bfloat16";
    for (int i = 0; i < 2; i++)
        if (ht_json_is_string(ht_json_object_get(object, keys[i])) &&
            ht_json_object_set_new(object, keys[i], ht_json_string(name)))
            return out_of_memory(err);
    return HT_OK;
}

/* ---- config.json: factors on products ---- */

/* States the factors that the weights do not have, as their other reader expects: none in mlx-lm. */
static ht_status state_multipliers(const ht_rewrite_plan *plan, ht_json *object, ht_error *err) {
    ht_document d = {object, "config.json", HT_OK, err};
    ht_config *c = malloc(sizeof *c);
    if (!c) return out_of_memory(err);
    *c = *plan->config;
    if (plan->to_mlx) d.status = ht_convert_fold_multipliers(c, err);
    for (const ht_config_field *f = c->family->fields; !d.status && (f->json || f->gguf); f++)
        if (f->json && f->type == HT_FIELD_F32)
            ht_document_set(&d, f->json, ht_json_real(ht_short_decimal(ht_config_get_field(c, f))));
    if (!d.status) c->family->write_json(c, &d);
    free(c);
    return d.status;
}

/* ---- config.json: MLX's settings ---- */

/* A module of the settings, from its weight's name; the caller frees it. */
static char *module_of(const ht_rewrite_tensor *t) {
    const char *name = t->renamed ? t->renamed : t->name;
    return strndup(name, strlen(name) - (ht_ends_with(name, ".weight") ? strlen(".weight") : 0));
}

static bool is_affine(const ht_json *quantization) {
    const char *mode = ht_json_string_value(ht_json_object_get(quantization, "mode"));
    return !mode || !strcmp(mode, "affine");
}

typedef struct groups {
    int64_t bits, size;
    bool affine;
} groups;

static groups groups_of(ht_weight_type type) {
    const ht_affine a = ht_affine_of(type);
    return a.bits ? (groups){a.bits, a.group, true} : (groups){4, HT_BLOCK_SMALL, false};
}

/* The type of a weight that is written in groups; -1 for other weights. */
static int group_type(const ht_rewrite_plan *plan, const ht_rewrite_tensor *t) {
    if (t->action == HT_REWRITE_ROUND) return ht_rewrite_in_parts(plan, t) ? (int)t->type : -1;
    const int type = t->action == HT_REWRITE_COPY ? t->from.type : -1;
    return type >= 0 && (type == HT_W_MXFP4 || ht_affine_of((ht_weight_type)type).bits) ? type : -1;
}

static ht_json *settings_of(const groups *g, bool with_mode) {
    return ht_json_pack("{s:I, s:I, s:s*}", "group_size", g->size, "bits", g->bits, "mode",
                        !with_mode  ? NULL
                        : g->affine ? "affine"
                                    : "mxfp4");
}

/* Writes how a module is stored. mlx-lm treats modules as quantised if they have scales, or an entry here that is
 * not false. Modules without an entry use the global settings, which entries do not inherit. False when out of
 * memory. */
static bool change_entry(const ht_rewrite_plan *plan, const ht_rewrite_tensor *t, ht_json *quantization,
                         const char *module) {
    const bool affine = is_affine(quantization);
    const int type = group_type(plan, t);
    if (type < 0)
        return !ht_json_object_get(quantization, module) ||
               !ht_json_object_set_new(quantization, module, ht_json_boolean(false));
    const groups g = groups_of((ht_weight_type)type);
    if (affine == g.affine && ht_json_integer_value(ht_json_object_get(quantization, "bits")) == g.bits &&
        ht_json_integer_value(ht_json_object_get(quantization, "group_size")) == g.size) {
        ht_json_object_del(quantization, module);
        return true;
    }
    ht_json *entry = settings_of(&g, !affine || !g.affine);
    return entry && !ht_json_object_set_new(quantization, module, entry);
}

/* Updates the entries of changed modules, or of all. */
static ht_status change_entries(const ht_rewrite_plan *plan, ht_json *quantization, bool all, ht_error *err) {
    ht_status status = HT_OK;
    for (size_t i = 0; !status && i < plan->n; i++) {
        const ht_rewrite_tensor *t = &plan->tensor[i];
        const bool changed = t->action == HT_REWRITE_ROUND && t->quantized;
        if (t->owner != i || !(changed || ((all || t->action == HT_REWRITE_ROUND) && group_type(plan, t) >= 0)))
            continue;
        char *module = module_of(t);
        if (!module || !change_entry(plan, t, quantization, module)) status = out_of_memory(err);
        free(module);
    }
    return status;
}

/* Global settings of a checkpoint converted to groups: those of most weights. */
static ht_json *new_settings(const ht_rewrite_plan *plan) {
    groups most = {0};
    double largest = 0;
    for (size_t i = 0; i < plan->n; i++) {
        const ht_rewrite_tensor *t = &plan->tensor[i];
        const int type = t->owner == i ? group_type(plan, t) : -1;
        if (type < 0 || (double)t->to.n_bytes <= largest) continue;
        largest = (double)t->to.n_bytes;
        most = groups_of((ht_weight_type)type);
    }
    return settings_of(&most, true);
}

static bool any_groups(const ht_rewrite_plan *plan) {
    for (size_t i = 0; i < plan->n; i++)
        if (plan->tensor[i].owner == i && ht_rewrite_in_parts(plan, &plan->tensor[i])) return true;
    return false;
}

/* Whether to write new global settings: the checkpoint had none of MLX's, or quantising left no weight that only the
 * old ones describe. Fusing keeps the old settings, as it changes only some weights. */
static bool wants_settings(const ht_rewrite_plan *plan) {
    if (plan->c->quantization && strcmp(plan->mark, HT_REWRITE_QUANTIZED) != 0) return false;
    for (size_t i = 0; plan->c->quantization && i < plan->n; i++) {
        const ht_rewrite_tensor *t = &plan->tensor[i];
        if (t->action == HT_REWRITE_COPY && t->quantized && group_type(plan, t) < 0) return false;
    }
    return any_groups(plan);
}

/* Replaces all quantisation settings; mlx-lm reads the first key, transformers the second. */
static ht_status put_settings(const ht_rewrite_plan *plan, ht_json *root, ht_error *err) {
    ht_json *made = new_settings(plan);
    if (!made) return out_of_memory(err);
    ht_status status = change_entries(plan, made, true, err);
    for (int i = 0; i < N_SETTINGS; i++) ht_json_object_del(root, settings[i]);
    for (int i = 0; !status && i < 2; i++)
        if (ht_json_object_set(root, settings[i], made)) status = out_of_memory(err);
    ht_json_decref(made);
    return status;
}

/* ---- config.json ---- */

static ht_status change_object(const ht_rewrite_plan *plan, ht_json *object, bool dense, ht_error *err) {
    ht_status status = plan->dtype ? state_dtype(object, plan->dtype, err) : HT_OK;
    for (int i = 0; !status && i < N_SETTINGS; i++) {
        ht_json *quantization = ht_json_object_get(object, settings[i]);
        if (dense)
            ht_json_object_del(object, settings[i]);
        else if (plan->c->quantization && ht_json_is_object(quantization))
            status = change_entries(plan, quantization, false, err);
    }
    return status;
}

/* Makes config.json with the plan's dtype and quantisation. *text is NULL if nothing changes; else the caller frees
 * it. */
static ht_status change_config(const ht_rewrite_plan *plan, ht_json_text config, char **text, ht_error *err) {
    *text = NULL;
    const bool changed = any_changed(plan), dense = changed && ht_rewrite_is_dense(plan);
    const bool has_settings = wants_settings(plan),
               has_multipliers = plan->restacks && plan->config->family->multiplier;
    if (!changed && !plan->dtype && !has_multipliers) return HT_OK;
    ht_json *root;
    ht_status status = ht_json_parse(config.data, config.size, plan->c->name, &root, err);
    if (status) return status;
    ht_json *inner = ht_json_object_get(root, "text_config");
    status = change_object(plan, root, dense || has_settings, err);
    if (!status && ht_json_is_object(inner)) status = change_object(plan, inner, dense || has_settings, err);
    if (!status && has_settings) status = put_settings(plan, root, err);
    if (!status && has_multipliers) status = state_multipliers(plan, root, err);
    if (!status && !(*text = ht_json_dump(root, HT_JSON_INDENT(2)))) status = out_of_memory(err);
    ht_json_decref(root);
    return status;
}

static const char config_name[] = "config.json";

/* ---- files other than weights ---- */

typedef struct names {
    char **name; /* [n], and a NULL */
    size_t n, n_copied;
} names;

static ht_status add_name(names *all, const char *name, ht_error *err) {
    char *copy = HT_RESIZE(all->name, all->n + 2) ? strdup(name) : NULL;
    if (!copy) return ht_fail_memory(err, strlen(name) + 1, "a name");
    all->name[all->n++] = copy;
    all->name[all->n] = NULL;
    return HT_OK;
}

static void free_names(names *all) {
    for (size_t i = 0; i < all->n; i++) free(all->name[i]);
    free(all->name);
}

/* Files that repeat a GGUF file's metadata, or are derived from it and could contradict it. The first N_MADE are
 * written. */
static const char *const documents[] = {"generation_config.json",
                                        "tokenizer.json",
                                        "tokenizer_config.json",
                                        "chat_template.jinja",
                                        "modules.json",
                                        "1_Pooling",
                                        "tokenizer.model",
                                        "vocab.json",
                                        "vocab.txt",
                                        "merges.txt",
                                        "special_tokens_map.json",
                                        "added_tokens.json",
                                        "chat_template.json"};
enum { N_DOCUMENTS = sizeof documents / sizeof *documents, N_MADE = 6 };

/* Excludes other weight files in any container, and ModelOpt's separate description of a removed quantisation. */
static bool is_copied(const ht_rewrite_plan *plan, const char *name) {
    static const char *const weights[] = {".safetensors", ".bin",  ".pt",   ".pth", ".ckpt",       ".h5",
                                          ".msgpack",     ".onnx", ".gguf", ".npz", ".index.json", ".tmp"};
    if (name[0] == '.' || !strcmp(name, HT_SAFETENSORS_INDEX)) return false;
    if ((!plan->to_gguf || plan->to_other) && !strcmp(name, config_name)) return false;
    for (int i = 0; plan->to_other && i < N_DOCUMENTS; i++)
        if (!strcmp(name, documents[i])) return false;
    if (!strcmp(name, "hf_quant_config.json")) return !ht_rewrite_is_dense(plan);
    if (!strcmp(name, "adapter_config.json")) return false; /* its weights are not copied */
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
        status = add_name(all, e->d_name, err);
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

/* ---- configuration and documents ---- */

/* Makes the folder of a document that is in one. */
static ht_status make_folder(const char *directory, const char *name, ht_error *err) {
    const char *slash = strchr(name, '/');
    if (!slash) return HT_OK;
    char folder[32];
    snprintf(folder, sizeof folder, "%.*s", (int)(slash - name), name);
    char *path = ht_path_join(directory, folder);
    ht_status status = path ? HT_OK : ht_fail_memory(err, strlen(name), "a path");
    if (!status && mkdir(path, 0777) && errno != EEXIST)
        status = ht_fail(err, HT_ERR_IO, "%s: cannot be written: %s", path, strerror(errno));
    free(path);
    return status;
}

/* Writes config.json and the other documents that a GGUF file stores as metadata. */
static ht_status write_documents(const ht_rewrite_plan *plan, const char *directory, ht_error *err) {
    ht_directory_documents all;
    const char *dtype = plan->dtype == HT_F16 ? "float16" : plan->dtype == HT_BF16 ? "bfloat16" : "float32";
    ht_status status = ht_directory_documents_of(plan->c, plan->config, plan->to_mlx, dtype, &all, err);
    for (int i = 0; !status && i < all.n; i++) {
        const char *name = all.document[i].name, *text = all.document[i].text;
        char *changed = NULL;
        if (!strcmp(name, config_name)) status = change_config(plan, (ht_json_text){text, strlen(text)}, &changed, err);
        if (!status) status = make_folder(directory, name, err);
        if (!status) status = ht_checkpoint_write_text(directory, name, changed ? changed : text, err);
        free(changed);
    }
    ht_directory_documents_free(&all);
    return status;
}

static ht_status write_config(const ht_rewrite_plan *plan, const char *directory, ht_error *err) {
    char *text;
    if (plan->to_other) return write_documents(plan, directory, err);
    ht_status status = change_config(plan, (ht_json_text){plan->c->config_text, plan->c->config_size}, &text, err);
    if (status) return status;
    status = text ? ht_checkpoint_write_text(directory, config_name, text, err)
                  : copy_file(plan->c->path, directory, config_name, err);
    free(text);
    return status;
}

/* ---- directories ---- */

/* Lists the folders of modules for sentence-transformers, 1_Pooling and such. */
static ht_status list_modules(const ht_rewrite_plan *plan, names *all, ht_error *err) {
    ht_status status = HT_OK;
    if (!plan->copies_files || plan->to_gguf || plan->to_other) return HT_OK;
    DIR *directory = opendir(directory_of(plan));
    for (const struct dirent *e; directory && !status && (e = readdir(directory));) {
        struct stat st;
        const size_t digits = strspn(e->d_name, "0123456789");
        if (digits && e->d_name[digits] == '_' && !fstatat(dirfd(directory), e->d_name, &st, 0) && S_ISDIR(st.st_mode))
            status = add_name(all, e->d_name, err);
    }
    if (directory) closedir(directory);
    return status;
}

/* Lists all files of the directory: copied files, then weights and their documents. */
static ht_status list_names(const ht_rewrite_plan *plan, names *all, ht_error *err) {
    bool index = false;
    ht_status status = plan->copies_files ? list_copied(plan, all, err) : HT_OK;
    for (int i = 0; !status && i < plan->n_files; i++)
        if (!ht_rewrite_is_left_out(plan, i)) status = add_name(all, plan->file[i], err);
    if (status || plan->to_gguf) return status;
    status = add_name(all, config_name, err);
    if (!status) status = add_name(all, HT_TEMPLATES_DIRECTORY, err);
    if (!status) status = list_modules(plan, all, err);
    if (!status) status = ht_rewrite_has_index(plan, &index, err);
    if (!status && index) status = add_name(all, HT_SAFETENSORS_INDEX, err);
    for (int i = 0; !status && plan->to_other && i < N_MADE; i++) status = add_name(all, documents[i], err);
    return status;
}

/* Copies the files of a folder, if there is one, whose names end like one of `ends` (NULL-terminated). */
static ht_status copy_folder(const char *from_directory, const char *to_directory, const char *name,
                             const char *const *ends, ht_error *err) {
    char *from = ht_path_join(from_directory, name), *to = ht_path_join(to_directory, name);
    ht_status status = from && to ? HT_OK : ht_fail_memory(err, 0, "a path");
    DIR *directory = status ? NULL : opendir(from);
    if (directory && mkdir(to, 0777))
        status = ht_fail(err, HT_ERR_IO, "%s: cannot be written: %s", to, strerror(errno));
    for (const struct dirent *e; directory && !status && (e = readdir(directory));)
        for (const char *const *end = ends; *end && !status; end++)
            if (ht_ends_with(e->d_name, *end)) status = copy_file(from, to, e->d_name, err);
    if (directory) closedir(directory);
    free(from);
    free(to);
    return status;
}

/* Copies named chat templates, and modules after the transformer. */
static ht_status copy_folders(const ht_rewrite_plan *plan, const char *to, ht_error *err) {
    static const char *const templates[] = {".jinja", NULL}, *const of_modules[] = {"config.json", ".safetensors",
                                                                                    NULL};
    names modules = {0};
    ht_status status = copy_folder(directory_of(plan), to, HT_TEMPLATES_DIRECTORY, templates, err);
    if (!status) status = list_modules(plan, &modules, err);
    for (size_t i = 0; !status && i < modules.n; i++)
        status = copy_folder(directory_of(plan), to, modules.name[i], of_modules, err);
    free_names(&modules);
    return status;
}

static ht_status fill_directory(const ht_rewrite_plan *plan, ht_rewrite_values *values, const names *all,
                                const char *path, ht_error *err) {
    ht_status status = HT_OK;
    for (size_t i = 0; !status && i < all->n_copied; i++)
        status = copy_file(directory_of(plan), path, all->name[i], err);
    if (!status && !plan->to_gguf && plan->copies_files && !plan->to_other) status = copy_folders(plan, path, err);
    if (!status && !plan->to_gguf) status = write_config(plan, path, err);
    return status ? status : ht_rewrite_write_files(plan, values, path, err);
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
    return plan->is_directory ? write_directory(plan, values, err) : ht_rewrite_write_gguf(plan, values, err);
}
