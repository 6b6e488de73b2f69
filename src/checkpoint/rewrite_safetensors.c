/* Safetensors files of a rewritten checkpoint, and the index that says which of them has which tensor. */
#include "base/error.h"
#include "base/file.h"
#include "checkpoint/rewrite.h"
#include "formats/safetensors_set.h"

#include <stdlib.h>
#include <string.h>

/* ---- files ---- */

/* The metadata of the first shard, and the mark; the caller frees *out, which lends its texts from the checkpoint. `format` is the
 * program for which the tensors are named. */
static ht_status list_metadata(const ht_rewrite_plan *plan, ht_metadata_pair **out, int *n, ht_error *err) {
    ht_json *metadata = plan->to_other ? NULL : plan->c->tensors->metadata, *value;
    const char *key;
    const bool names_format = plan->to_other || plan->restacks;
    *n = 0;
    *out = calloc(ht_json_object_size(metadata) + 2, sizeof **out);
    if (!*out) return ht_fail_memory(err, sizeof **out, "metadata");
    ht_json_object_foreach(metadata, key, value) {
        if (!strcmp(key, plan->mark) || (names_format && !strcmp(key, "format"))) continue;
        (*out)[(*n)++] = (ht_metadata_pair){key, ht_json_string_value(value)};
    }
    if (names_format) (*out)[(*n)++] = (ht_metadata_pair){"format", plan->to_mlx ? "mlx" : "pt"};
    (*out)[(*n)++] = (ht_metadata_pair){plan->mark, "true"};
    return HT_OK;
}

bool ht_rewrite_is_left_out(const ht_rewrite_plan *plan, int file) {
    if (plan->to_gguf) return false;
    for (size_t i = 0; i < plan->n; i++)
        if (plan->tensor[i].file == file && plan->tensor[i].action != HT_REWRITE_DROP) return false;
    return true;
}

static ht_status write_shard(const ht_rewrite_plan *plan, ht_rewrite_values *values, int file, const char *directory,
                             ht_error *err) {
    ht_rewrite_outputs o;
    ht_metadata_pair *pairs = NULL;
    int n_pairs = 0;
    char *path = ht_path_join(directory, plan->file[file]);
    ht_status status = ht_rewrite_outputs_list(plan, file, values, &o, err);
    if (!status && !path) status = ht_fail_memory(err, strlen(directory), "a path");
    if (!status) status = list_metadata(plan, &pairs, &n_pairs, err);
    if (!status) status = ht_safetensors_write(path, o.tensor, o.n, pairs, n_pairs, ht_rewrite_output_values, &o, err);
    free(pairs);
    free(path);
    ht_rewrite_outputs_free(&o);
    return status;
}

ht_status ht_rewrite_safetensors_header(const ht_rewrite_plan *plan, size_t *bytes, ht_error *err) {
    ht_metadata_pair *pairs;
    int n;
    const ht_status status = list_metadata(plan, &pairs, &n, err);
    if (!status) *bytes = ht_safetensors_metadata_bytes(pairs, n);
    free(pairs);
    return status;
}

/* ---- index ---- */

/* Path of the checkpoint's index, whether it is there or not, or NULL in another container; the caller frees it. */
static ht_status find_index(const ht_rewrite_plan *plan, char **path, ht_error *err) {
    *path = plan->to_other ? NULL : ht_path_join(plan->c->path, HT_SAFETENSORS_INDEX);
    return *path || plan->to_other ? HT_OK : ht_fail_memory(err, strlen(plan->c->path), "a path");
}

ht_status ht_rewrite_safetensors_indexed(const ht_rewrite_plan *plan, bool *out, ht_error *err) {
    char *path;
    const ht_status status = find_index(plan, &path, err);
    *out = plan->n_files > 1 || (!status && path && !plan->max_file_bytes && ht_path_exists(path));
    free(path);
    return status;
}

/* Sets `key` to a new value; false when memory ran out. */
static bool put(ht_json *object, const char *key, ht_json *value) {
    return !ht_json_object_set_new(object, key, value);
}

static bool fill_index(const ht_rewrite_plan *plan, ht_json *index) {
    if (!ht_json_is_object(ht_json_object_get(index, "metadata")) && !put(index, "metadata", ht_json_new_object()))
        return false;
    if (!put(index, "weight_map", ht_json_new_object())) return false;
    ht_json *metadata = ht_json_object_get(index, "metadata"), *map = ht_json_object_get(index, "weight_map");
    bool good = put(metadata, "total_size", ht_json_integer((int64_t)ht_rewrite_plan_bytes(plan)));
    for (size_t i = 0; good && i < plan->n; i++) {
        const ht_rewrite_tensor *t = &plan->tensor[i];
        if (t->action != HT_REWRITE_DROP) good = put(map, t->to.name, ht_json_string(plan->file[t->file]));
    }
    return good;
}

/* The index at `path`, if there is one that can be read, with the sizes and places of what is written; NULL when memory ran
 * out. */
static ht_json *make_index(const ht_rewrite_plan *plan, const char *path) {
    ht_json *index = NULL;
    if (path && ht_json_read(path, 64 << 20, &index, NULL) == HT_ERR_MEMORY) return NULL;
    if (!index) index = ht_json_new_object();
    if (fill_index(plan, index)) return index;
    ht_json_decref(index);
    return NULL;
}

static ht_status write_index(const ht_rewrite_plan *plan, const char *directory, ht_error *err) {
    char *path = NULL;
    bool wanted;
    ht_status status = ht_rewrite_safetensors_indexed(plan, &wanted, err);
    if (!status && wanted) status = find_index(plan, &path, err);
    ht_json *index = !status && wanted ? make_index(plan, path) : NULL;
    char *text = index ? ht_json_dump(index, HT_JSON_INDENT(2)) : NULL;
    if (!status && wanted)
        status = text ? ht_rewrite_write_text(directory, HT_SAFETENSORS_INDEX, text, err)
                      : ht_fail_memory(err, 0, HT_SAFETENSORS_INDEX);
    free(text);
    ht_json_decref(index);
    free(path);
    return status;
}

ht_status ht_rewrite_safetensors_write(const ht_rewrite_plan *plan, ht_rewrite_values *values, const char *directory,
                                       ht_error *err) {
    ht_status status = HT_OK;
    for (int i = 0; !status && i < plan->n_files; i++)
        if (!ht_rewrite_is_left_out(plan, i)) status = write_shard(plan, values, i, directory, err);
    return status ? status : write_index(plan, directory, err);
}
