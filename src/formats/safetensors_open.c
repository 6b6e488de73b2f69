/* Safetensors checkpoint files: an index, a single file, or numbered shards. */
#define _GNU_SOURCE
#include "base/checked.h"
#include "base/error.h"
#include "base/grow.h"
#include "base/log.h"
#include "base/text.h"
#include "formats/json.h"
#include "formats/safetensors_set.h"

#include <hearth/discover.h>

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { INDEX_BYTES_MAX = 100000000 };

static const char index_name[] = HT_SAFETENSORS_INDEX, single_name[] = "model.safetensors";

/* Loads the header alone: its 8-byte length and that many bytes. The parser reports an impossible length. */
static ht_status fetch_header(ht_file *file, ht_error *err) {
    size_t length_bytes = ht_min_size(file->size, 8), length = 0;
    ht_status st = ht_file_fetch(file, length_bytes, err);
    for (size_t i = 0; !st && i < length_bytes; i++) length |= (size_t)file->data[i] << 8 * i;
    return st || length > HT_SAFETENSORS_HEADER_MAX || length > file->size - length_bytes
               ? st
               : ht_file_fetch(file, length_bytes + length, err);
}

/* Parses directory/name (`name` when directory is NULL) as the next file of the set. */
static ht_status add_file(ht_safetensors *set, const char *directory, const char *name, ht_error *err) {
    if (set->n_files == HT_SAFETENSORS_FILES_MAX)
        return ht_fail(err, HT_ERR_LIMIT, "%s: more than %d weight files", directory ? directory : name,
                       HT_SAFETENSORS_FILES_MAX);
    if (!HT_GROW_ONE(set->files, set->n_files))
        return ht_fail_memory(err, sizeof *set->files, "the list of files");
    char *path = directory ? ht_path_join(directory, name) : strdup(name);
    if (!path) return ht_fail_memory(err, strlen(name), "a path");
    ht_file *file;
    ht_status st = ht_file_open(path, &file, err);
    free(path);
    if (st) return st;
    set->files[set->n_files++] = file;
    st = fetch_header(file, err);
    return st ? st : ht_safetensors_add(set, file->data, file->size, file->path, set->n_files - 1, err);
}

/* Rejects paths: a name from an index must not leave the directory. */
static bool plain_file_name(const char *name) {
    return ht_name_problem(name, strlen(name)) == NULL && !strchr(name, '/') && !strchr(name, '\\') &&
           strcmp(name, ".") != 0 && strcmp(name, "..") != 0;
}

/* File name of an opened shard. */
static const char *shard_name(const ht_safetensors *set, int file) { return strrchr(set->files[file]->path, '/') + 1; }

/* Parses "model-00002-of-00005.safetensors". */
static bool shard_numbers(const char *name, int *number, int *total) {
    int end = 0;
    return sscanf(name, "model-%5d-of-%5d.safetensors%n", number, total, &end) == 2 && end > 0 && name[end] == '\0' &&
           *number >= 1 && *total >= *number;
}

/* Adds shards 1 to `total`; a missing shard is an error. */
static ht_status add_shards(ht_safetensors *set, const char *directory, int total, ht_error *err) {
    for (int i = 1; i <= total; i++) {
        char name[64];
        snprintf(name, sizeof name, "model-%05d-of-%05d.safetensors", i, total);
        ht_status st = add_file(set, directory, name, err);
        if (st) return st;
    }
    return ht_safetensors_index(set, directory, err);
}

static int is_weight_file(const struct dirent *e) {
    size_t n = strlen(e->d_name);
    return n > 12 && !strcmp(e->d_name + n - 12, ".safetensors") && e->d_name[0] != '.';
}

/* Selects the weight files by listing the directory, which has neither index nor model.safetensors. */
static ht_status open_listing(ht_safetensors *set, const char *directory, ht_error *err) {
    DIR *dir = opendir(directory);
    if (!dir) return ht_fail(err, HT_ERR_IO, "%s: cannot be read: %s", directory, strerror(errno));
    char *only = NULL;
    int n_found = 0, total = 0;
    ht_file_role lowest = HT_FILE_PROJECTOR; /* the files of one role alone are the model */
    bool mixed = false, failed = false;
    for (struct dirent *e; (e = readdir(dir));) {
        int number, of;
        const ht_file_role role = ht_file_role_of(e->d_name);
        if (!is_weight_file(e) || role > lowest) continue;
        if (role < lowest) {
            free(only);
            only = NULL;
            n_found = 0;
        }
        lowest = role;
        if (shard_numbers(e->d_name, &number, &of)) {
            mixed = mixed || (total && total != of);
            total = of;
        } else if (n_found++ == 0 && !(only = strdup(e->d_name)))
            failed = true;
    }
    closedir(dir);
    ht_status st;
    if (failed)
        st = ht_fail_memory(err, 0, directory);
    else if (mixed)
        st =
            ht_fail(err, HT_ERR_FORMAT, "%s: has shards of two different checkpoints and no %s", directory, index_name);
    else if (total)
        st = add_shards(set, directory, total, err);
    else if (n_found == 1) {
        st = add_file(set, directory, only, err);
        if (!st) st = ht_safetensors_index(set, directory, err);
    } else if (n_found == 0)
        st = ht_fail(err, HT_ERR_IO, "%s: no weights found, expected %s, %s or one *.safetensors file", directory,
                     index_name, single_name);
    else
        st = ht_fail(err, HT_ERR_FORMAT, "%s: has %d *.safetensors files and no %s to say which belong together",
                     directory, n_found, index_name);
    free(only);
    return st;
}

static ht_status open_single(ht_safetensors *set, const char *path, ht_error *err) {
    ht_status st = add_file(set, NULL, path, err);
    return st ? st : ht_safetensors_index(set, path, err);
}

/* ---- with an index ---- */

typedef struct shard_index {
    const char *directory, *path;
    ht_json *root;
    const ht_json *map;  /* weight_map: tensor -> file */
    const char *missing; /* a listed file that does not exist, or NULL */
    int n_present;       /* number of listed files that exist */
    bool names_single;   /* model.safetensors is listed */
} shard_index;

static ht_status read_index(shard_index *x, ht_error *err) {
    const char *tensor;
    ht_json *file;
    ht_status st = ht_json_read(x->path, INDEX_BYTES_MAX, &x->root, err);
    if (st) return st;
    ht_json_reader r = {.file = x->path, .err = err};
    x->map = ht_json_object(&r, x->root, "weight_map");
    if (!x->map)
        ht_json_missing(&r, "weight_map", "an object of tensor names and files");
    else if (ht_json_object_size(x->map) == 0)
        ht_json_fail(&r, HT_ERR_FORMAT, "`weight_map` is empty");
    ht_json_object_foreach((ht_json *)(uintptr_t)x->map, tensor, file) {
        const char *name = ht_json_string_value(file), *problem = ht_name_problem(tensor, strlen(tensor));
        char found[128];
        if (problem)
            ht_json_fail(&r, HT_ERR_FORMAT, "the name of a tensor %s", problem);
        else if (!name || !plain_file_name(name))
            ht_json_fail(&r, HT_ERR_FORMAT, "a file of weight_map is %s, expected a file name without directories",
                         ht_json_describe(file, found, sizeof found));
        if (r.status) break;
    }
    return r.status;
}

static ht_status check_present(const char *directory, const char *name, bool *present, ht_error *err) {
    char *path = ht_path_join(directory, name);
    if (!path) return ht_fail_memory(err, strlen(name), "a path");
    *present = ht_path_exists(path);
    free(path);
    return HT_OK;
}

/* Calls `visit` once for each listed file, in order of first mention. */
static ht_status for_each_listed(shard_index *x,
                                 ht_status (*visit)(shard_index *, ht_safetensors *, const char *, ht_error *),
                                 ht_safetensors *set, ht_error *err) {
    const char *tensor;
    ht_json *file, *seen = ht_json_new_object();
    ht_status st = seen ? HT_OK : ht_fail_memory(err, 0, x->path);
    ht_json_object_foreach((ht_json *)(uintptr_t)x->map, tensor, file) {
        const char *name = ht_json_string_value(file);
        if (st) break;
        if (ht_json_object_get(seen, name)) continue;
        st = ht_json_object_set_new(seen, name, ht_json_boolean(true)) ? ht_fail_memory(err, strlen(name), x->path)
                                                                       : visit(x, set, name, err);
    }
    ht_json_decref(seen);
    return st;
}

static ht_status inspect_listed(shard_index *x, ht_safetensors *set, const char *name, ht_error *err) {
    (void)set;
    bool present = false;
    ht_status st = check_present(x->directory, name, &present, err);
    x->n_present += present;
    x->names_single |= !strcmp(name, single_name);
    if (!st && !present && !x->missing) x->missing = name;
    return st;
}

static ht_status add_listed(shard_index *x, ht_safetensors *set, const char *name, ht_error *err) {
    bool present = false;
    ht_status st = check_present(x->directory, name, &present, err);
    return st || !present ? st : add_file(set, x->directory, name, err);
}

static bool is_open(const ht_safetensors *set, const char *name) {
    for (int i = 0; i < set->n_files; i++)
        if (!strcmp(shard_name(set, i), name)) return true;
    return false;
}

/* Counts the tensors of the index that no opened file has; *first is one of them, preferably of a missing file. */
static size_t count_absent(const shard_index *x, const ht_safetensors *set, const char **first) {
    const char *tensor;
    ht_json *file;
    size_t n = 0;
    bool found = !x->missing;
    ht_json_object_foreach((ht_json *)(uintptr_t)x->map, tensor, file) {
        if (ht_safetensors_find(set, tensor)) continue;
        if (n++ == 0) *first = tensor;
        if (found || is_open(set, ht_json_string_value(file))) continue;
        *first = tensor;
        found = true;
    }
    return n;
}

static void drop_tensor(const ht_safetensor *t) { free((void *)(uintptr_t)t->name); }

/* Adds from an unlisted file those tensors of the index that no opened file has. An unreadable file adds none. */
static ht_status add_unlisted(const shard_index *x, ht_safetensors *set, const char *name, ht_error *err) {
    const size_t first = set->n_tensors;
    const int n_files = set->n_files;
    ht_error problem = {0};
    ht_status st = add_file(set, x->directory, name, &problem);
    if (st == HT_ERR_MEMORY) return ht_fail(err, st, "%s", problem.message);
    const size_t end = set->n_tensors;
    set->n_tensors = first;
    for (size_t i = first; i < end; i++) {
        const ht_safetensor t = set->tensors[i];
        if (!st && ht_json_object_get(x->map, t.name) && !ht_safetensors_find(set, t.name))
            set->tensors[set->n_tensors++] = t;
        else
            drop_tensor(&t);
    }
    if (set->n_tensors == first && set->n_files > n_files) ht_file_close(set->files[--set->n_files]);
    return HT_OK;
}

/* Searches the unlisted weight files of the directory for tensors missing from the listed ones. */
static ht_status search_unlisted(const shard_index *x, ht_safetensors *set, ht_error *err) {
    struct dirent **entries;
    const int n = scandir(x->directory, &entries, is_weight_file, alphasort);
    if (n < 0 && errno == ENOMEM) return ht_fail_memory(err, 0, x->directory);
    if (n < 0) return ht_fail(err, HT_ERR_IO, "%s: cannot be read: %s", x->directory, strerror(errno));
    ht_status st = HT_OK;
    for (int i = 0; i < n; i++) {
        const char *name = entries[i]->d_name;
        if (!st && strncmp(name, "adapter", 7) && !is_open(set, name)) st = add_unlisted(x, set, name, err);
        free(entries[i]);
    }
    free(entries);
    if (st) return st;
    ht_name_index_free(&set->names);
    return ht_safetensors_index(set, x->directory, err);
}

/* Warns about tensors that are missing, or in another file than the index says. */
static void warn_mismatches(const shard_index *x, const ht_safetensors *set) {
    const char *tensor, *absent = NULL, *moved = NULL;
    ht_json *file;
    size_t n_moved = 0, n_absent = count_absent(x, set, &absent);
    ht_json_object_foreach((ht_json *)(uintptr_t)x->map, tensor, file) {
        const ht_safetensor *t = ht_safetensors_find(set, tensor);
        if (t && strcmp(shard_name(set, t->file), ht_json_string_value(file)) != 0 && n_moved++ == 0) moved = tensor;
    }
    if (n_absent)
        ht_log_write(HT_LOG_WARNING, "%s: names %zu tensor%s that no file has: `%.*s`", x->path, n_absent,
                     n_absent == 1 ? "" : "s", SHOWN(absent));
    if (n_moved)
        ht_log_write(HT_LOG_WARNING, "%s: names another file than the right one for %zu tensor%s: `%.*s` is in %s",
                     x->path, n_moved, n_moved == 1 ? "" : "s", SHOWN(moved),
                     shard_name(set, ht_safetensors_find(set, moved)->file));
}

static ht_status open_listed(shard_index *x, ht_safetensors *set, ht_error *err) {
    const char *absent = NULL;
    ht_status st = for_each_listed(x, add_listed, set, err);
    if (!st) st = ht_safetensors_index(set, x->directory, err);
    if (!st && count_absent(x, set, &absent)) st = search_unlisted(x, set, err);
    if (st) return st;
    const char *file = count_absent(x, set, &absent) ? ht_json_string_value(ht_json_object_get(x->map, absent)) : NULL;
    if (file && !is_open(set, file))
        return ht_fail(err, HT_ERR_IO,
                       "%s: names %s, which is missing, and tensor `%.*s` is in no other file; fetch it", x->path, file,
                       SHOWN(absent));
    warn_mismatches(x, set);
    return HT_OK;
}

/* Opens the listed files, or ignores a stale index that lies beside other weights. */
static ht_status open_index(ht_safetensors *set, const char *directory, const char *path, const char *single_path,
                            ht_error *err) {
    shard_index x = {.directory = directory, .path = path};
    ht_status st = read_index(&x, err);
    if (!st) st = for_each_listed(&x, inspect_listed, set, err);
    const bool single = !x.names_single && ht_path_exists(single_path);
    if (!st && x.missing && (single || !x.n_present)) {
        ht_error none = {0};
        st = single ? open_single(set, single_path, err) : open_listing(set, directory, &none);
        if (!st)
            ht_log_write(HT_LOG_WARNING,
                         "%s: names %s, which is missing; the index is ignored for the weights that are", path,
                         x.missing);
        else if (!single)
            ht_fail(err, st, "%s: names %s, which is missing; without the index: %s", path, x.missing, none.message);
    } else if (!st)
        st = open_listed(&x, set, err);
    ht_json_decref(x.root);
    return st;
}

static ht_status open_directory(ht_safetensors *set, const char *directory, ht_error *err) {
    char *index_path = ht_path_join(directory, index_name), *single_path = ht_path_join(directory, single_name);
    ht_status st;
    if (!index_path || !single_path)
        st = ht_fail_memory(err, strlen(directory), "a path");
    else if (ht_path_exists(index_path))
        st = open_index(set, directory, index_path, single_path, err);
    else if (ht_path_exists(single_path))
        st = open_single(set, single_path, err);
    else
        st = open_listing(set, directory, err);
    free(index_path);
    free(single_path);
    return st;
}

ht_status ht_safetensors_open(const char *path, ht_safetensors **out, ht_error *err) {
    *out = NULL;
    ht_safetensors *set = calloc(1, sizeof *set);
    if (!set) return ht_fail_memory(err, sizeof *set, path);
    ht_status st = ht_path_is_directory(path) ? open_directory(set, path, err) : open_single(set, path, err);
    if (st) {
        ht_safetensors_close(set);
        return st;
    }
    *out = set;
    return HT_OK;
}
