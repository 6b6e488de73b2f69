#include "base/grow.h"
#include "fail.h"
#include "formats/json.h"
#include "pull_hub.h"

#include <hearth/discover.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static const char index_name[] = "model.safetensors.index.json", single_name[] = "model.safetensors";

/* Files that Hearth or mlx_lm reads in addition to safetensors. */
static const char *const beside_safetensors[] = {"config.json",
                                                 "generation_config.json",
                                                 "tokenizer.json",
                                                 "tokenizer_config.json",
                                                 "chat_template.jinja",
                                                 "chat_template.json",
                                                 "added_tokens.json",
                                                 "special_tokens_map.json",
                                                 "hf_quant_config.json",
                                                 "modules.json",
                                                 "config_sentence_transformers.json",
                                                 "sentence_bert_config.json",
                                                 "additional_chat_templates/tool_use.jinja"};
/* Tokenizer files of checkpoints without tokenizer.json. */
static const char *const tokenizer_sources[] = {"tokenizer.model", "vocab.json", "merges.txt", "vocab.txt"};
/* Files that supply what a GGUF file's metadata lack. */
static const char *const beside_gguf[] = {"config.json",           "generation_config.json",
                                          "tokenizer_config.json", "chat_template.jinja",
                                          "chat_template.json",    "additional_chat_templates/tool_use.jinja"};
#define COUNT(array) (sizeof(array) / sizeof *(array))

static bool ends_with(const char *s, const char *end) {
    const size_t n = strlen(s), m = strlen(end);
    return n >= m && strcasecmp(s + n - m, end) == 0;
}

static const char *base_name(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

enum { CHOSEN_MAX = 5000 }; /* more than any model's shards */

static ht_status add(pull_choice *c, const hub_file *f, ht_error *err) {
    for (size_t i = 0; i < c->n; i++)
        if (c->file[i] == f) return HT_OK;
    if (!*f->hash) return ht_fail(err, HT_ERR_FORMAT, "the hub lists %.200s without the hash of its bytes", f->path);
    if (c->n == CHOSEN_MAX) return ht_fail(err, HT_ERR_LIMIT, "the model has more than %d files", CHOSEN_MAX);
    if (!HT_GROW_ONE(c->file, c->n)) return fail_memory(err, "the list of files");
    c->file[c->n++] = f;
    return HT_OK;
}

void choice_free(pull_choice *c) {
    free(c->file);
    *c = (pull_choice){0};
}

/* Adds the named files that exist in a directory: "" or a path with a trailing slash. */
static ht_status add_named(const hub_listing *l, const char *directory, const char *const *names, size_t n,
                           pull_choice *c, ht_error *err) {
    ht_status st = HT_OK;
    char path[1100];
    for (size_t i = 0; i < n && !st; i++) {
        snprintf(path, sizeof path, "%s%s", directory, names[i]);
        const hub_file *f = hub_find(l, path);
        if (f) st = add(c, f, err);
    }
    return st;
}

/* Whether a file belongs to a module after the transformer: 1_Pooling/config.json, 2_Dense/model.safetensors. */
static bool is_of_module(const char *path) {
    const size_t digits = strspn(path, "0123456789");
    const char *name = strchr(path, '/');
    return digits && path[digits] == '_' && name &&
           (strcmp(name, "/config.json") == 0 || strcmp(name, "/model.safetensors") == 0);
}

static ht_status add_modules(const hub_listing *l, pull_choice *c, ht_error *err) {
    ht_status st = HT_OK;
    for (size_t i = 0; i < l->n && !st; i++)
        if (is_of_module(l->file[i].path)) st = add(c, &l->file[i], err);
    return st;
}

/* ---- GGUF ---- */

/* The GGUF models (files of the lowest role), sorted by name; a split model is listed by its first part. */
typedef struct gguf_list {
    const hub_file **first;
    const char **path;
    int n;
} gguf_list;

/* GGUF files in any directory can be models. */
static bool is_gguf(const hub_file *f) { return ends_with(f->path, ".gguf"); }

/* Safetensors files can be models in the top directory, unless they are in another library's format. */
static bool is_safetensors(const hub_file *f) {
    return !strchr(f->path, '/') && ends_with(f->path, ".safetensors") && strncmp(f->path, "consolidated", 12) != 0;
}

/* The lowest role among the files of a format; HT_FILE_ADAPTER or a later one means that there is no model. */
static ht_file_role model_role(const hub_listing *l, bool (*is_format)(const hub_file *f)) {
    ht_file_role lowest = HT_FILE_PROJECTOR;
    for (size_t i = 0; i < l->n; i++) {
        if (!is_format(&l->file[i])) continue;
        const ht_file_role role = ht_file_role_of(l->file[i].path);
        if (role < lowest) lowest = role;
    }
    return lowest;
}

static ht_status list_gguf(const hub_listing *l, gguf_list *out, ht_error *err) {
    *out =
        (gguf_list){.first = malloc((l->n + 1) * sizeof *out->first), .path = malloc((l->n + 1) * sizeof *out->path)};
    if (!out->first || !out->path) return fail_memory(err, "the list of files");
    const ht_file_role role = model_role(l, is_gguf);
    if (role > HT_FILE_AUXILIARY) return HT_OK;
    for (size_t i = 0; i < l->n; i++) {
        const hub_file *f = &l->file[i];
        size_t n, other;
        const char *before = out->n ? out->path[out->n - 1] : NULL;
        if (!is_gguf(f) || ht_file_role_of(f->path) != role) continue;
        const int parts = gguf_parts(f->path, &n);
        if (parts > 1 && before && gguf_parts(before, &other) == parts && n == other && memcmp(before, f->path, n) == 0)
            continue;
        out->first[out->n] = f;
        out->path[out->n++] = f->path;
    }
    return HT_OK;
}

/* Size of a model, all parts included. */
static int64_t bytes_of(const hub_listing *l, const hub_file *first) {
    size_t prefix, other;
    const int parts = gguf_parts(first->path, &prefix);
    int64_t bytes = parts == 1 ? first->size : 0;
    for (const hub_file *f = first; parts > 1 && f < l->file + l->n && strncmp(f->path, first->path, prefix) == 0;
         f++) {
        if (gguf_parts(f->path, &other) != parts || other != prefix) continue;
        if (__builtin_add_overflow(bytes, f->size, &bytes)) return INT64_MAX;
    }
    return bytes;
}

/* Lists models as "Q4_0 (1.2 GB), Q8_0 (2.3 GB)", as far as they fit. Uses paths for ambiguous quantisations, or for
 * all models with `paths`; returns whether the list contains a path. */
static bool describe(const hub_listing *l, const gguf_list *all, bool paths, char *text, size_t room) {
    size_t used = 0;
    bool has_path = false;
    *text = '\0';
    for (int i = 0; i < all->n; i++) {
        char label[QUANTIZATION_BYTES], size[SIZE_BYTES], entry[400];
        const bool named =
            !paths && quantization_of(all->path[i], label) && quantization_find(all->path, all->n, label) == i;
        const int n = snprintf(entry, sizeof entry, "%s%.300s (%s)", i ? ", " : "", named ? label : all->path[i],
                               size_text(bytes_of(l, all->first[i]), size));
        if (used + (size_t)n + sizeof ", ..." > room) {
            snprintf(text + used, room - used, "%s...", i ? ", " : "");
            return has_path;
        }
        has_path = has_path || !named;
        memcpy(text + used, entry, (size_t)n + 1);
        used += (size_t)n;
    }
    return has_path;
}

static ht_status no_such_model(const hub *h, const hub_listing *l, const gguf_list *all, const pull_name *name,
                               int found, ht_error *err) {
    char there[420];
    const bool has_path = describe(l, all, false, there, sizeof there);
    if (all->n == 0) return ht_fail(err, HT_ERR_ARGUMENT, "%.200s has no GGUF model", h->repo);
    if (found == SEVERAL_MATCH)
        return ht_fail(err, HT_ERR_ARGUMENT, "%.100s has several files of %.40s, there are %s: name one as %.100s/FILE",
                       h->repo, name->quantization ? name->quantization : "Q4_K_M", there, h->repo);
    if (name->quantization)
        return ht_fail(err, HT_ERR_ARGUMENT, "%.100s has no %.40s, there are %s", h->repo, name->quantization, there);
    return ht_fail(err, HT_ERR_ARGUMENT, "%.100s has several GGUF models and none is Q4_K_M: %s; name one as %.100s%s",
                   h->repo, there, h->repo, has_path ? "/FILE" : ":QUANTIZATION");
}

/* Adds all parts of a GGUF model and its additional files. */
static ht_status add_gguf(const hub_listing *l, const hub_file *any, pull_choice *c, ht_error *err) {
    size_t prefix;
    char path[1100], directory[1100];
    const int parts = gguf_parts(any->path, &prefix);
    ht_status st = HT_OK;
    for (int i = 1; i <= parts && !st; i++) {
        if (parts > 1)
            snprintf(path, sizeof path, "%.*s-%05d-of-%05d.gguf", (int)prefix, any->path, i, parts);
        else
            snprintf(path, sizeof path, "%s", any->path);
        const hub_file *f = hub_find(l, path);
        if (!f)
            return ht_fail(err, HT_ERR_FORMAT, "%.200s is missing in the repository, part %d of %d of the model", path,
                           i, parts);
        if (i == 1) c->gguf = f;
        st = add(c, f, err);
    }
    snprintf(directory, sizeof directory, "%.*s", (int)(base_name(any->path) - any->path), any->path);
    if (!st) st = add_named(l, directory, beside_gguf, COUNT(beside_gguf), c, err);
    return st;
}

static ht_status choose_gguf(const hub *h, const hub_listing *l, const pull_name *name, pull_choice *c, ht_error *err) {
    gguf_list all;
    ht_status st = list_gguf(l, &all, err);
    const hub_file *file = name->file ? hub_find(l, name->file) : NULL;
    char there[420];
    if (!st && name->file && !file) {
        describe(l, &all, true, there, sizeof there);
        st = ht_fail(err, HT_ERR_ARGUMENT, "%.100s has no file %.200s, there are %s", h->repo, name->file,
                     all.n ? there : "no GGUF models");
    } else if (!st) {
        const int found = file ? 0 : quantization_find(all.path, all.n, name->quantization);
        if (!file && found < 0)
            st = no_such_model(h, l, &all, name, found, err);
        else
            st = add_gguf(l, file ? file : all.first[found], c, err);
    }
    free(all.first);
    free(all.path);
    return st;
}

/* ---- safetensors ---- */

/* The number of shards in "model-00002-of-00005.safetensors"; 0 for another name. */
static int shards_of(const char *path) {
    int number, total, end = 0;
    if (sscanf(path, "model-%5d-of-%5d.safetensors%n", &number, &total, &end) != 2 || !end || path[end]) return 0;
    return number >= 1 && number <= total ? total : 0;
}

/* Adds shards without an index, or the only file. */
static ht_status add_unindexed(const hub *h, const hub_listing *l, pull_choice *c, ht_error *err) {
    const hub_file *only = NULL;
    const ht_file_role role = model_role(l, is_safetensors);
    int total = 0, n = 0;
    char path[64];
    ht_status st = HT_OK;
    for (size_t i = 0; i < l->n; i++) {
        if (!is_safetensors(&l->file[i]) || ht_file_role_of(l->file[i].path) != role) continue;
        const int shards = shards_of(l->file[i].path);
        if (shards && total && shards != total)
            return ht_fail(err, HT_ERR_FORMAT,
                           "%.200s has shards of two checkpoints, and no %s that says which belong together", h->repo,
                           index_name);
        if (shards)
            total = shards;
        else if (n++ == 0)
            only = &l->file[i];
    }
    if (!total && n != 1)
        return ht_fail(err, HT_ERR_FORMAT, "%.200s has %d safetensors files, and no %s that says which belong together",
                       h->repo, n, index_name);
    if (!total) return add(c, only, err);
    for (int i = 1; i <= total && !st; i++) {
        snprintf(path, sizeof path, "model-%05d-of-%05d.safetensors", i, total);
        const hub_file *f = hub_find(l, path);
        st = f ? add(c, f, err)
               : ht_fail(err, HT_ERR_FORMAT, "%.200s has no %s, which is one of its shards", h->repo, path);
    }
    return st;
}

static ht_status choose_safetensors(const hub *h, const hub_listing *l, pull_choice *c, ht_error *err) {
    const hub_file *single = hub_find(l, single_name);
    ht_status st = add_named(l, "", beside_safetensors, COUNT(beside_safetensors), c, err);
    if (!st) st = add_modules(l, c, err);
    if (!st && !hub_find(l, "tokenizer.json"))
        st = add_named(l, "", tokenizer_sources, COUNT(tokenizer_sources), c, err);
    if (st) return st;
    c->index = hub_find(l, index_name);
    if (c->index) return add(c, c->index, err);
    return single ? add(c, single, err) : add_unindexed(h, l, c, err);
}

static void drop(pull_choice *c, const hub_file *f) {
    for (size_t i = 0; i < c->n; i++)
        if (c->file[i] == f) c->file[i--] = c->file[--c->n];
}

/* Checks that the repository has every file of the index; *missing is one that it lacks. */
static ht_status check_shards(const hub *h, const hub_listing *l, const ht_json *map, const char **missing,
                              ht_error *err) {
    const char *tensor;
    ht_json *file;
    *missing = NULL;
    if (ht_json_object_size(map) == 0)
        return ht_fail(err, HT_ERR_FORMAT, "%.200s: its %s names no weights: `weight_map` is missing or empty", h->repo,
                       index_name);
    ht_json_object_foreach((ht_json *)(uintptr_t)map, tensor, file) {
        const char *name = ht_json_string_value(file);
        if (!name || strchr(name, '/') || strchr(name, '\\') || !ends_with(name, ".safetensors"))
            return ht_fail(err, HT_ERR_FORMAT,
                           "%.200s: %s: the value of `%.100s` must be a safetensors file of the same directory",
                           h->repo, index_name, tensor);
        if (!hub_find(l, name)) *missing = name;
    }
    return HT_OK;
}

/* Compares by position in the listing, which is sorted by name. */
static int by_place(const void *a, const void *b) {
    const hub_file *first = *(const hub_file *const *)a, *second = *(const hub_file *const *)b;
    return (first > second) - (first < second);
}

ht_status choose_shards(const hub *h, const hub_listing *l, const char *index, size_t n, pull_choice *c,
                        ht_error *err) {
    const char *tensor, *missing;
    ht_json *file;
    if (!c->index) {
        if (c->n) qsort(c->file, c->n, sizeof *c->file, by_place);
        return HT_OK;
    }
    ht_json *root;
    ht_status st = ht_json_parse(index, n, index_name, &root, err);
    if (st) return ht_fail_in(err, st, "%.200s", h->repo);
    const ht_json *map = ht_json_object_get(root, "weight_map");
    st = check_shards(h, l, map, &missing, err);
    const hub_file *single = hub_find(l, single_name);
    if (!st && missing && single) { /* a stale index: the single file replaced its shards */
        drop(c, c->index);
        c->index = NULL;
        st = add(c, single, err);
    } else if (!st && missing)
        st = ht_fail(err, HT_ERR_FORMAT, "%.200s has no %.200s, which its %s names", h->repo, missing, index_name);
    else
        ht_json_object_foreach((ht_json *)(uintptr_t)map, tensor, file) {
            if (!st) st = add(c, hub_find(l, ht_json_string_value(file)), err);
        }
    qsort(c->file, c->n, sizeof *c->file, by_place);
    ht_json_decref(root);
    return st;
}

/* ---- either ---- */

static ht_status nothing_to_read(const hub *h, const hub_listing *l, ht_error *err) {
    static const char *const others[] = {".bin", ".pth", ".pt", ".onnx", ".msgpack", ".h5", ".npz", ".tflite"};
    if (hub_find(l, "adapter_config.json"))
        return ht_fail(err, HT_ERR_UNSUPPORTED, "%.200s is an adapter, not a model", h->repo);
    for (size_t i = 0; i < l->n; i++)
        for (size_t k = 0; k < COUNT(others); k++)
            if (ends_with(l->file[i].path, others[k]))
                return ht_fail(
                    err, HT_ERR_UNSUPPORTED,
                    "%.200s has neither safetensors nor GGUF files, but %.200s, which Hearth does not read: look for a "
                    "conversion of the model",
                    h->repo, l->file[i].path);
    return ht_fail(err, HT_ERR_UNSUPPORTED,
                   "%.200s has no model that Hearth reads: neither safetensors beside a config.json, nor GGUF files",
                   h->repo);
}

ht_status choose_files(const hub *h, const hub_listing *l, const pull_name *name, pull_choice *out, ht_error *err) {
    const ht_file_role weights = model_role(l, is_safetensors), gguf = model_role(l, is_gguf);
    *out = (pull_choice){0};
    if (name->file || name->quantization) return choose_gguf(h, l, name, out, err);
    const bool no_gguf = gguf > HT_FILE_AUXILIARY;
    if (hub_find(l, "config.json") && weights <= (no_gguf ? HT_FILE_AUXILIARY : gguf))
        return choose_safetensors(h, l, out, err);
    return !no_gguf ? choose_gguf(h, l, name, out, err) : nothing_to_read(h, l, err);
}
