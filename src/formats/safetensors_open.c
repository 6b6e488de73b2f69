/* Which files make a safetensors checkpoint: an index, one file, or numbered shards. */
#define _GNU_SOURCE
#include "base/checked.h"
#include "base/error.h"
#include "base/text.h"
#include "formats/json.h"
#include "formats/safetensors_set.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { INDEX_BYTES_MAX = 100000000, FILES_MAX = 4096 };

static const char index_name[] = "model.safetensors.index.json", single_name[] = "model.safetensors";

/* Of a file only its header is read: 8 bytes with its length, and so many more. A length that cannot be is left to the
 * parser to complain about. */
static ht_status fetch_header(ht_file *file, ht_error *err) {
    size_t length_bytes = ht_min_size(file->size, 8), length = 0;
    ht_status st = ht_file_fetch(file, length_bytes, err);
    for (size_t i = 0; !st && i < length_bytes; i++) length |= (size_t)file->data[i] << 8 * i;
    return st || length > HT_SAFETENSORS_HEADER_MAX || length > file->size - length_bytes
               ? st
               : ht_file_fetch(file, length_bytes + length, err);
}

/* Opens and parses directory/name (or `name` when directory is NULL) as the next file of the set. */
static ht_status add_file(ht_safetensors *set, const char *directory, const char *name, ht_error *err) {
    if (set->n_files == FILES_MAX)
        return ht_fail(err, HT_ERR_LIMIT, "%s: more than %d weight files", directory ? directory : name, FILES_MAX);
    if (set->n_files == set->files_capacity) {
        int capacity = set->files_capacity ? 2 * set->files_capacity : 8;
        ht_file **grown = realloc(set->files, (size_t)capacity * sizeof *grown);
        if (!grown) return ht_fail_memory(err, (size_t)capacity * sizeof *grown, "the list of files");
        set->files = grown;
        set->files_capacity = capacity;
    }
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

/* A name from an index is joined to the directory, so it must not lead out of it. */
static bool plain_file_name(const char *name) {
    return ht_name_problem(name, strlen(name)) == NULL && !strchr(name, '/') && !strchr(name, '\\') &&
           strcmp(name, ".") != 0 && strcmp(name, "..") != 0;
}

/* The base name of an opened shard. */
static const char *shard_name(const ht_safetensors *set, int file) { return strrchr(set->files[file]->path, '/') + 1; }

/* Opens every shard the index names, in the order of first mention. */
static ht_status add_listed(ht_safetensors *set, const char *directory, const char *index_path, const json_t *map,
                            ht_error *err) {
    json_t *seen = json_object();
    if (!seen) return ht_fail_memory(err, 0, index_path);
    const char *tensor;
    json_t *shard;
    ht_status st = HT_OK;
    json_object_foreach((json_t *)(uintptr_t)map, tensor, shard) {
        const char *name = json_string_value(shard);
        if (!name || !plain_file_name(name)) {
            char found[128];
            st = ht_fail(err, HT_ERR_FORMAT, "%s: a file of weight_map is %s, expected a file name without directories",
                         index_path, ht_json_describe(shard, found, sizeof found));
        } else if (json_object_get(seen, name))
            continue;
        else if (json_object_set_new(seen, name, json_true()) != 0)
            st = ht_fail_memory(err, strlen(name), index_path);
        else
            st = add_file(set, directory, name, err);
        if (st) break;
    }
    json_decref(seen);
    return st;
}

/* Every tensor of the index must be in the shard that the index says. */
static ht_status check_listed(const ht_safetensors *set, const char *index_path, const json_t *map, ht_error *err) {
    const char *tensor;
    json_t *shard;
    json_object_foreach((json_t *)(uintptr_t)map, tensor, shard) {
        const char *name = json_string_value(shard);
        if (ht_name_problem(tensor, strlen(tensor)))
            return ht_fail(err, HT_ERR_FORMAT, "%s: the name of a tensor %s", index_path,
                           ht_name_problem(tensor, strlen(tensor)));
        const ht_safetensor *t = ht_safetensors_find(set, tensor);
        if (!t)
            return ht_fail(err, HT_ERR_FORMAT, "%s: tensor `%.*s` should be in %s, but is not there", index_path,
                           SHOWN(tensor), name);
        if (strcmp(shard_name(set, t->file), name) != 0)
            return ht_fail(err, HT_ERR_FORMAT, "%s: tensor `%.*s` should be in %s, but is in %s", index_path,
                           SHOWN(tensor), name, shard_name(set, t->file));
    }
    return HT_OK;
}

static ht_status open_index(ht_safetensors *set, const char *directory, const char *index_path, ht_error *err) {
    json_t *index;
    ht_status st = ht_json_read(index_path, INDEX_BYTES_MAX, &index, err);
    if (st) return st;
    ht_json_reader r = {.file = index_path, .err = err};
    const json_t *map = ht_json_object(&r, index, "weight_map");
    if (!map)
        ht_json_missing(&r, "weight_map", "an object of tensor names and files");
    else if (json_object_size(map) == 0)
        ht_json_fail(&r, HT_ERR_FORMAT, "`weight_map` is empty");
    st = r.status;
    if (!st) st = add_listed(set, directory, index_path, map, err);
    if (!st) st = ht_safetensors_index(set, directory, err);
    if (!st) st = check_listed(set, index_path, map, err);
    json_decref(index);
    return st;
}

/* "model-00002-of-00005.safetensors": true with the numbers. */
static bool shard_numbers(const char *name, int *number, int *total) {
    int end = 0;
    return sscanf(name, "model-%5d-of-%5d.safetensors%n", number, total, &end) == 2 && end > 0 && name[end] == '\0' &&
           *number >= 1 && *total >= *number;
}

/* Adds shards 1 to `total`, all of which must be there. */
static ht_status add_shards(ht_safetensors *set, const char *directory, int total, ht_error *err) {
    for (int i = 1; i <= total; i++) {
        char name[64];
        snprintf(name, sizeof name, "model-%05d-of-%05d.safetensors", i, total);
        ht_status st = add_file(set, directory, name, err);
        if (st) return st;
    }
    return ht_safetensors_index(set, directory, err);
}

/* No index and no model.safetensors: looks at what the directory has. */
static ht_status open_found(ht_safetensors *set, const char *directory, ht_error *err) {
    DIR *dir = opendir(directory);
    if (!dir) return ht_fail(err, HT_ERR_IO, "%s: cannot be read: %s", directory, strerror(errno));
    char *only = NULL;
    int n_found = 0, total = 0;
    bool mixed = false, failed = false;
    for (struct dirent *e; (e = readdir(dir));) {
        size_t len = strlen(e->d_name);
        int number, of;
        if (len <= 12 || strcmp(e->d_name + len - 12, ".safetensors") != 0 || e->d_name[0] == '.') continue;
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

static ht_status open_directory(ht_safetensors *set, const char *directory, ht_error *err) {
    char *index_path = ht_path_join(directory, index_name), *single_path = ht_path_join(directory, single_name);
    ht_status st;
    if (!index_path || !single_path)
        st = ht_fail_memory(err, strlen(directory), "a path");
    else if (ht_path_exists(index_path))
        st = open_index(set, directory, index_path, err);
    else if (ht_path_exists(single_path))
        st = open_single(set, single_path, err);
    else
        st = open_found(set, directory, err);
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
