/* Files of a rewritten checkpoint: a GGUF file, or a directory with the weights and copies of what is beside them. */
#include "base/checked.h"
#include "base/directory_writer.h"
#include "base/error.h"
#include "base/text.h"
#include "formats/gguf_write.h"
#include "formats/safetensors_set.h"
#include "models/convert_metadata.h"
#include "models/rewrite.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static const char index_name[] = "model.safetensors.index.json", config_name[] = "config.json";

/* ---- tensors of one file ---- */

typedef struct outputs {
    ht_rewrite_values *values;
    ht_tensor_output *tensor; /* [n] */
    size_t *number;           /* [n] of each in the plan */
    int n;
} outputs;

static void add_output(const ht_rewrite_plan *plan, size_t number, outputs *out) {
    out->tensor[out->n] = plan->tensor[number].to;
    out->number[out->n++] = number;
}

/* Whether the tensor is written behind the weight that it belongs to: parts that follow each other are made once. */
static bool follows_weight(const ht_rewrite_plan *plan, size_t number) {
    const ht_rewrite_tensor *t = &plan->tensor[number];
    return t->action == HT_REWRITE_ROUND && t->owner != number && plan->tensor[t->owner].file == t->file;
}

/* Those of file `file`; all are of the first one in GGUF. */
static ht_status list_outputs(const ht_rewrite_plan *plan, int file, ht_rewrite_values *values, outputs *out,
                              ht_error *err) {
    *out = (outputs){values, calloc(plan->n + 1, sizeof *out->tensor), calloc(plan->n + 1, sizeof *out->number), 0};
    if (!out->tensor || !out->number) return ht_fail_memory(err, plan->n * sizeof *out->tensor, "a list of tensors");
    for (size_t i = 0; i < plan->n; i++) {
        const ht_rewrite_tensor *t = &plan->tensor[i];
        if (t->action == HT_REWRITE_DROP || t->file != file || follows_weight(plan, i)) continue;
        add_output(plan, i, out);
        for (size_t part = 0; ht_rewrite_in_parts(plan, t) && part < plan->n; part++)
            if (plan->tensor[part].owner == i && follows_weight(plan, part)) add_output(plan, part, out);
    }
    return HT_OK;
}

static void free_outputs(outputs *o) {
    free(o->tensor);
    free(o->number);
}

static ht_status values_of(void *user, int i, const void **bytes, ht_error *err) {
    const outputs *o = user;
    return ht_rewrite_values_of(o->values, o->number[i], bytes, err);
}

/* ---- GGUF ---- */

/* llama.cpp's number of a file whose matrices are mostly of one float type; -1 for others. */
static int file_type_of(const char *dtype) {
    return !strcmp(dtype, "F32") ? 0 : !strcmp(dtype, "F16") ? 1 : !strcmp(dtype, "BF16") ? 32 : -1;
}

/* Elements of the matrices that are written as `dtype`. */
static double elements_of(const outputs *o, const char *dtype) {
    double sum = 0;
    for (int i = 0; i < o->n; i++) {
        const ht_tensor_output *t = &o->tensor[i];
        if (t->rank < 2 || strcmp(t->dtype, dtype) != 0) continue;
        double n = 1;
        for (int d = 0; d < t->rank; d++) n *= (double)t->shape[d];
        sum += n;
    }
    return sum;
}

/* The file type that is true now; -1 when it is the one the file states, a mix of quantised types. */
static int new_file_type(const outputs *o) {
    const char *most = NULL;
    double largest = 0;
    for (int i = 0; i < o->n; i++) {
        const double n = elements_of(o, o->tensor[i].dtype);
        if (n > largest) {
            largest = n;
            most = o->tensor[i].dtype;
        }
    }
    return most ? file_type_of(most) : -1;
}

static bool change_number(json_t *changes, const char *key, int value) {
    return !json_object_set_new(changes, key, json_pack("{s:s, s:i}", "dtype", "u32", "value", value));
}

/* Adds to metadata, or to changes of some, what the tensors decide; false when memory ran out. */
static bool state_tensors(const ht_rewrite_plan *plan, const outputs *o, json_t *metadata) {
    const int file_type = plan->file_type >= 0 ? plan->file_type : new_file_type(o);
    const bool quantized = plan->file_type >= 0 || (plan->to_other && !ht_rewrite_is_dense(plan));
    json_t *mark = json_pack("{s:s, s:b}", "dtype", "bool", "value", 1);
    return mark && !json_object_set_new(metadata, plan->mark, mark) &&
           (file_type < 0 || change_number(metadata, "general.file_type", file_type)) &&
           (!quantized || change_number(metadata, "general.quantization_version", 2));
}

static json_t *metadata_changes(const ht_rewrite_plan *plan, const outputs *o) {
    json_t *changes = json_pack("{s:n, s:n, s:n}", "split.no", "split.count", "split.tensors.count");
    if (changes && state_tensors(plan, o, changes)) return changes;
    json_decref(changes);
    return NULL;
}

/* The file of a directory's checkpoint. */
static ht_status write_new_gguf(const ht_rewrite_plan *plan, const outputs *o, const char *path, ht_error *err) {
    json_t *metadata;
    ht_status status = ht_gguf_metadata_of(plan->c, plan->config, &metadata, err);
    if (!status && !state_tensors(plan, o, metadata)) status = ht_fail_memory(err, 0, path);
    if (!status) status = ht_gguf_write(path, o->tensor, o->n, metadata, values_of, (void *)(uintptr_t)o, err);
    json_decref(metadata);
    return status;
}

static ht_status write_gguf(const ht_rewrite_plan *plan, ht_rewrite_values *values, const char *path, ht_error *err) {
    outputs o;
    json_t *changes = NULL;
    ht_status status = list_outputs(plan, 0, values, &o, err);
    if (!status && plan->to_other) {
        status = write_new_gguf(plan, &o, path, err);
        free_outputs(&o);
        return status;
    }
    if (!status && !(changes = metadata_changes(plan, &o))) status = ht_fail_memory(err, 0, path);
    if (!status) status = ht_gguf_rewrite(path, plan->c->gguf, changes, o.tensor, o.n, values_of, &o, err);
    json_decref(changes);
    free_outputs(&o);
    return status;
}

/* ---- files beside the weights ---- */

typedef struct names {
    char **name; /* [n], and a NULL */
    size_t n, n_copied;
} names;

static ht_status add_name(names *all, const char *name, size_t n, ht_error *err) {
    char **grown = realloc(all->name, (all->n + 2) * sizeof *grown);
    if (grown) all->name = grown;
    char *copy = grown ? strndup(name, n) : NULL;
    if (!copy) return ht_fail_memory(err, n + 1, "a name");
    all->name[all->n++] = copy;
    all->name[all->n] = NULL;
    return HT_OK;
}

static void free_names(names *all) {
    for (size_t i = 0; i < all->n; i++) free(all->name[i]);
    free(all->name);
}

/* Files that are made of a GGUF file's metadata, or would contradict what is made of it. */
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
    if (name[0] == '.' || !strcmp(name, index_name)) return false;
    if (!plan->to_gguf && !strcmp(name, config_name)) return false;
    if (plan->to_other && is_document(name)) return false;
    if (!strcmp(name, "hf_quant_config.json")) return !ht_rewrite_is_dense(plan);
    if (!strcmp(name, "adapter_config.json")) return false;  /* its values are not copied */
    if (!strncmp(name, "mmproj", 6)) return !plan->to_other; /* a vision tower in GGUF */
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

static ht_status write_text(const char *directory, const char *name, const char *text, ht_error *err) {
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

/* ---- safetensors ---- */

/* The metadata of the first shard, and the mark; the caller frees *out, which lends its texts from the checkpoint. `format` is the
 * program for which the tensors are named. */
static ht_status list_metadata(const ht_rewrite_plan *plan, ht_metadata_pair **out, int *n, ht_error *err) {
    json_t *metadata = plan->to_other ? NULL : plan->c->tensors->metadata, *value;
    const char *key;
    const bool names_format = plan->to_other || plan->restacks;
    *n = 0;
    *out = calloc(json_object_size(metadata) + 2, sizeof **out);
    if (!*out) return ht_fail_memory(err, sizeof **out, "metadata");
    json_object_foreach(metadata, key, value) {
        if (!strcmp(key, plan->mark) || (names_format && !strcmp(key, "format"))) continue;
        (*out)[(*n)++] = (ht_metadata_pair){key, json_string_value(value)};
    }
    if (names_format) (*out)[(*n)++] = (ht_metadata_pair){"format", plan->to_mlx ? "mlx" : "pt"};
    (*out)[(*n)++] = (ht_metadata_pair){plan->mark, "true"};
    return HT_OK;
}

/* Whether all tensors of a file are dropped: a large layer's experts can fill files that none of the tensors begins in which
 * they become. */
static bool is_left_out(const ht_rewrite_plan *plan, int file) {
    for (size_t i = 0; i < plan->n; i++)
        if (plan->tensor[i].file == file && plan->tensor[i].action != HT_REWRITE_DROP) return false;
    return true;
}

static ht_status write_shard(const ht_rewrite_plan *plan, ht_rewrite_values *values, int file, const char *directory,
                             ht_error *err) {
    outputs o;
    ht_metadata_pair *pairs = NULL;
    int n_pairs = 0;
    char *path = ht_path_join(directory, plan->file[file]);
    ht_status status = list_outputs(plan, file, values, &o, err);
    if (!status && !path) status = ht_fail_memory(err, strlen(directory), "a path");
    if (!status) status = list_metadata(plan, &pairs, &n_pairs, err);
    if (!status) status = ht_safetensors_write(path, o.tensor, o.n, pairs, n_pairs, values_of, &o, err);
    free(pairs);
    free(path);
    free_outputs(&o);
    return status;
}

/* Where the checkpoint has an index, or several files need one. *path is that of the checkpoint's, whether it is there or not,
 * or NULL in another container; the caller frees it. */
static ht_status find_index(const ht_rewrite_plan *plan, char **path, bool *wanted, ht_error *err) {
    *path = NULL;
    *wanted = plan->n_files > 1;
    if (plan->to_other) return HT_OK;
    *path = ht_path_join(plan->c->path, index_name);
    if (!*path) return ht_fail_memory(err, strlen(plan->c->path), "a path");
    *wanted = *wanted || ht_path_exists(*path);
    return HT_OK;
}

/* Sets `key` to a new value; false when memory ran out. */
static bool put(json_t *object, const char *key, json_t *value) { return !json_object_set_new(object, key, value); }

static bool fill_index(const ht_rewrite_plan *plan, json_t *index) {
    if (!json_is_object(json_object_get(index, "metadata")) && !put(index, "metadata", json_object())) return false;
    if (!put(index, "weight_map", json_object())) return false;
    json_t *metadata = json_object_get(index, "metadata"), *map = json_object_get(index, "weight_map");
    bool good = put(metadata, "total_size", json_integer((json_int_t)ht_rewrite_plan_bytes(plan)));
    for (size_t i = 0; good && i < plan->n; i++) {
        const ht_rewrite_tensor *t = &plan->tensor[i];
        if (t->action != HT_REWRITE_DROP) good = put(map, t->to.name, json_string(plan->file[t->file]));
    }
    return good;
}

/* The index at `path`, if there is one that can be read, with the sizes and places of what is written; NULL when memory ran
 * out. */
static json_t *make_index(const ht_rewrite_plan *plan, const char *path) {
    json_t *index = NULL;
    if (path && ht_json_read(path, 64 << 20, &index, NULL) == HT_ERR_MEMORY) return NULL;
    if (!index) index = json_object();
    if (fill_index(plan, index)) return index;
    json_decref(index);
    return NULL;
}

static ht_status write_index(const ht_rewrite_plan *plan, const char *directory, ht_error *err) {
    char *path;
    bool wanted = false;
    ht_status status = find_index(plan, &path, &wanted, err);
    json_t *index = !status && wanted ? make_index(plan, path) : NULL;
    char *text = index ? ht_json_text_of(index) : NULL;
    if (!status && wanted)
        status = text ? write_text(directory, index_name, text, err) : ht_fail_memory(err, 0, index_name);
    free(text);
    json_decref(index);
    free(path);
    return status;
}

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
        if (!status) status = write_text(directory, name, changed ? changed : text, err);
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
    status =
        text ? write_text(directory, config_name, text, err) : copy_file(plan->c->path, directory, config_name, err);
    free(text);
    return status;
}

static ht_status write_safetensors(const ht_rewrite_plan *plan, ht_rewrite_values *values, const char *directory,
                                   ht_error *err) {
    ht_status status = write_config(plan, directory, err);
    for (int i = 0; !status && i < plan->n_files; i++)
        if (!is_left_out(plan, i)) status = write_shard(plan, values, i, directory, err);
    return status ? status : write_index(plan, directory, err);
}

/* ---- directories ---- */

/* The name of the one file that a GGUF checkpoint becomes. */
static ht_status add_gguf_name(const ht_rewrite_plan *plan, names *all, ht_error *err) {
    const char *name = ht_gguf_set_part(plan->c->parts, 0)->name;
    int number, count;
    size_t n;
    if (!ht_gguf_part_name(name, &number, &count, &n)) return add_name(all, name, strlen(name), err);
    char whole[512];
    snprintf(whole, sizeof whole, "%.*s.gguf", (int)ht_min_size(n, sizeof whole - 6), name);
    return add_name(all, whole, strlen(whole), err);
}

/* All names of the directory: those that are copied, then those of the weights and what describes them. */
static ht_status list_names(const ht_rewrite_plan *plan, names *all, ht_error *err) {
    ht_status status = plan->copies_files ? list_copied(plan, all, err) : HT_OK;
    if (status || plan->to_gguf) return status ? status : add_gguf_name(plan, all, err);
    static const char *const made[] = {"generation_config.json", "tokenizer.json", "tokenizer_config.json",
                                       "chat_template.jinja"};
    char *path = NULL;
    bool index = false;
    status = add_name(all, config_name, strlen(config_name), err);
    if (!status) status = find_index(plan, &path, &index, err);
    if (!status && index) status = add_name(all, index_name, strlen(index_name), err);
    free(path);
    for (int i = 0; !status && i < plan->n_files; i++)
        if (!is_left_out(plan, i)) status = add_name(all, plan->file[i], strlen(plan->file[i]), err);
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
    if (!plan->to_gguf) return write_safetensors(plan, values, path, err);
    char *file = ht_path_join(path, all->name[all->n - 1]);
    status = file ? write_gguf(plan, values, file, err) : ht_fail_memory(err, strlen(path), "a path");
    free(file);
    return status;
}

static ht_status write_directory(const ht_rewrite_plan *plan, ht_rewrite_values *values, const char *path,
                                 ht_error *err) {
    names all = {0};
    ht_directory_writer *directory = NULL;
    ht_status status = list_names(plan, &all, err);
    if (!status) status = ht_directory_writer_open(path, (const char *const *)all.name, &directory, err);
    if (!status) status = fill_directory(plan, values, &all, ht_directory_writer_path(directory), err);
    if (!status)
        status = ht_directory_writer_commit(directory, err);
    else
        ht_directory_writer_discard(directory);
    free_names(&all);
    return status;
}

ht_status ht_rewrite_write(const ht_rewrite_plan *plan, ht_rewrite_values *values, const char *path, ht_error *err) {
    return plan->is_directory ? write_directory(plan, values, path, err) : write_gguf(plan, values, path, err);
}
