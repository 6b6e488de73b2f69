#include "formats/gguf_set.h"

#include "base/checked.h"
#include "base/error.h"
#include "base/plural.h"
#include "base/text.h"
#include "formats/name_index.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SUFFIX = sizeof "-00001-of-00001.gguf" - 1 };

struct ht_gguf_set {
    ht_gguf_part *parts;
    int n_parts;
    size_t *first;       /* [n_parts + 1]: index of each part's first tensor */
    ht_name_index names; /* tensors of all parts, when there are several */
};

bool ht_gguf_part_name(const char *name, int *number, int *count, size_t *prefix_len) {
    size_t len = strlen(name);
    if (len < SUFFIX) return false;
    const char *suffix = name + len - SUFFIX;
    int end = 0;
    for (int i = 0; i < 5; i++) /* digits by hand: sscanf accepts signs and spaces */
        if (suffix[1 + i] < '0' || suffix[1 + i] > '9' || suffix[10 + i] < '0' || suffix[10 + i] > '9') return false;
    if (sscanf(suffix, "-%5d-of-%5d.gguf%n", number, count, &end) != 2 || end != SUFFIX) return false;
    *prefix_len = len - SUFFIX;
    return *number >= 1 && *number <= *count;
}

bool ht_gguf_same_set(const char *a, const char *b) {
    int number, count, other_count;
    size_t prefix, other_prefix;
    return ht_gguf_part_name(a, &number, &count, &prefix) &&
           ht_gguf_part_name(b, &number, &other_count, &other_prefix) && count == other_count &&
           prefix == other_prefix && !memcmp(a, b, prefix);
}

void ht_gguf_listing_add(ht_gguf_listing *l, const char *name) {
    const ht_file_role role = ht_file_role_of(name);
    if (!ht_ends_with(name, ".gguf") || role > HT_FILE_AUXILIARY || (l->n && role > l->role)) return;
    if (role < l->role) l->n = 0;
    const bool first = l->n == 0, part = !first && ht_gguf_same_set(l->name, name);
    l->role = role;
    l->n += !part;
    if (first || (part && strcmp(name, l->name) < 0)) snprintf(l->name, sizeof l->name, "%s", name);
}

char *ht_gguf_part_path(const char *prefix, size_t n, int number, int count) {
    const size_t size = n + SUFFIX + 1;
    char *path = malloc(size);
    if (path) snprintf(path, size, "%.*s-%05d-of-%05d.gguf", (int)n, prefix, number, count);
    return path;
}

/* ---- joining the parts ---- */

static ht_status wrong(const ht_gguf_part *p, ht_error *err, const char *key, const char *expected) {
    uint64_t found;
    char text[32] = "missing";
    if (ht_gguf_get_u64(p->gguf, key, &found))
        snprintf(text, sizeof text, "%" PRIu64, found);
    else if (ht_gguf_find(p->gguf, key))
        snprintf(text, sizeof text, "no number");
    return ht_fail(err, HT_ERR_FORMAT, "%s: its %s is %s, expected %s; is it of another model?", p->name, key, text,
                   expected);
}

static bool is_number(const ht_gguf_part *p, const char *key, uint64_t expected) {
    uint64_t found;
    return ht_gguf_get_u64(p->gguf, key, &found) && found == expected;
}

/* Checks each part's split.no and split.count. */
static ht_status check_parts(const ht_gguf_set *set, ht_error *err) {
    char expected[64];
    uint64_t n_tensors, total = set->first[set->n_parts];
    for (int i = 0; i < set->n_parts; i++) {
        const ht_gguf_part *p = &set->parts[i];
        snprintf(expected, sizeof expected, "%d", set->n_parts);
        if (!is_number(p, "split.count", (uint64_t)set->n_parts)) return wrong(p, err, "split.count", expected);
        snprintf(expected, sizeof expected, "%d, as this is part %d", i, i + 1);
        if (!is_number(p, "split.no", (uint64_t)i)) return wrong(p, err, "split.no", expected);
        if (!ht_gguf_find(p->gguf, "split.tensors.count")) continue;
        snprintf(expected, sizeof expected, "%" PRIu64 ", the tensors of all parts", total);
        if (!ht_gguf_get_u64(p->gguf, "split.tensors.count", &n_tensors) || n_tensors != total)
            return wrong(p, err, "split.tensors.count", expected);
    }
    return HT_OK;
}

static ht_status index_names(ht_gguf_set *set, ht_error *err) {
    size_t total = set->first[set->n_parts], where;
    if (!ht_name_index_init(&set->names, total))
        return ht_fail_memory(err, total * sizeof(ht_indexed_name), "the tensor names");
    for (size_t i = 0; i < total; i++) {
        const ht_gguf_part *p, *other;
        const ht_gguf_tensor *t = ht_gguf_set_tensor_at(set, i, &p);
        int shown = ht_name_shown(t->name.data, t->name.len);
        switch (ht_name_index_add(&set->names, t->name.data, t->name.len, i, &where)) {
        case HT_NAME_ADDED: break;
        case HT_NAME_TWICE:
            ht_gguf_set_tensor_at(set, where, &other);
            return ht_fail(err, HT_ERR_FORMAT, "%s: tensor `%.*s` is also in %s", p->name, shown, t->name.data,
                           other->name);
        case HT_NAME_CROWDED:
            return ht_fail(err, HT_ERR_FORMAT, "%s: tensor names were made to collide; the file is not honest",
                           p->name);
        }
    }
    return HT_OK;
}

/* Validates the parsed parts as one checkpoint. A single file may omit split.*. */
static ht_status join(ht_gguf_set *set, ht_error *err) {
    set->first = calloc((size_t)set->n_parts + 1, sizeof *set->first);
    if (!set->first) return ht_fail_memory(err, (size_t)set->n_parts * sizeof *set->first, "the parts of a model");
    for (int i = 0; i < set->n_parts; i++) set->first[i + 1] = set->first[i] + ht_gguf_n_tensors(set->parts[i].gguf);
    if (set->n_parts == 1) return HT_OK;
    for (int i = 0; i + 1 < set->n_parts; i++) ht_gguf_continue(set->parts[i].gguf, set->parts[i + 1].gguf);
    ht_status status = check_parts(set, err);
    return status ? status : index_names(set, err);
}

static ht_gguf_set *new_set(int n_parts) {
    ht_gguf_set *set = calloc(1, sizeof *set);
    if (!set) return NULL;
    set->parts = calloc((size_t)n_parts, sizeof *set->parts);
    if (set->parts) return set;
    free(set);
    return NULL;
}

ht_status ht_gguf_set_parse(const ht_gguf_source *sources, int n, ht_gguf_set **out, ht_error *err) {
    *out = NULL;
    ht_gguf_set *set = new_set(n);
    if (!set) return ht_fail_memory(err, sizeof *set, "the parts of a model");
    ht_status status = HT_OK;
    for (int i = 0; !status && i < n; i++) {
        ht_gguf_part *p = &set->parts[set->n_parts++];
        p->name = sources[i].name;
        status = ht_gguf_parse(sources[i].data, sources[i].size, p->name, &p->gguf, err);
    }
    if (!status) status = join(set, err);
    if (status)
        ht_gguf_set_close(set);
    else
        *out = set;
    return status;
}

/* ---- opening files ---- */

static const char *base_name(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* Takes ownership of `path`, also on failure. */
static ht_status open_part(ht_gguf_part *p, char *path, ht_error *err) {
    p->path = path;
    p->name = base_name(path);
    ht_status status = ht_file_open(path, &p->file, err);
    if (!status) status = ht_file_fetch(p->file, ht_min_size(p->file->size, 4), err);
    if (status) return status;
    if (p->file->size < 4 || memcmp(p->file->data, "GGUF", 4))
        return ht_fail(err, HT_ERR_FORMAT, "%s: not a GGUF file%s", path,
                       ht_ends_with(path, ".safetensors") ? "; for safetensors give the directory that holds them"
                                                          : "");
    return ht_gguf_read(p->file, p->name, &p->gguf, err);
}

/* The file's split.count; 1 when absent. */
static ht_status count_parts(const ht_gguf_part *p, int *n_parts, ht_error *err) {
    uint64_t count = 1;
    if (ht_gguf_find(p->gguf, "split.count") && !ht_gguf_get_u64(p->gguf, "split.count", &count))
        return wrong(p, err, "split.count", "the number of parts");
    if (count > HT_GGUF_PARTS_MAX)
        return ht_fail(err, HT_ERR_LIMIT, "%s: is one of %" PRIu64 " parts, at most %d are supported", p->name, count,
                       HT_GGUF_PARTS_MAX);
    *n_parts = count > 1 ? (int)count : 1;
    return HT_OK;
}

/* Opens the other parts, in the directory of `named`, and moves `named` to its index. */
static ht_status open_others(ht_gguf_set *set, ht_gguf_part *named, int n_parts, ht_error *err) {
    int number, count;
    size_t prefix;
    if (!ht_gguf_part_name(named->path, &number, &count, &prefix) || count != n_parts)
        return ht_fail(err, HT_ERR_FORMAT,
                       "%s: is one of %d part%s of a model, which are found by names that end with -00001-of-%05d.gguf "
                       "and so on; its own does not",
                       named->name, n_parts, ht_plural(n_parts), n_parts);
    for (int i = 0; i < n_parts; i++) {
        ht_gguf_part *p = &set->parts[set->n_parts++];
        if (i + 1 == number) {
            *p = *named;
            *named = (ht_gguf_part){0};
            continue;
        }
        const char *known = set->n_parts > number ? set->parts[number - 1].path : named->path;
        char *path = ht_gguf_part_path(known, prefix, i + 1, n_parts);
        if (!path) return ht_fail_memory(err, prefix + SUFFIX + 1, "a path");
        if (!ht_path_exists(path)) {
            p->path = path;
            return ht_fail(err, HT_ERR_IO, "%s: is missing, part %d of %d of the model", path, i + 1, n_parts);
        }
        ht_status status = open_part(p, path, err);
        if (status) return status;
    }
    return HT_OK;
}

static void close_part(ht_gguf_part *p) {
    ht_gguf_free(p->gguf);
    ht_file_close(p->file);
    free(p->path);
}

ht_status ht_gguf_set_open(const char *path, ht_gguf_set **out, ht_error *err) {
    *out = NULL;
    ht_gguf_part named = {0};
    char *copy = strdup(path);
    if (!copy) return ht_fail_memory(err, strlen(path) + 1, "a path");
    int n_parts = 1;
    ht_gguf_set *set = NULL;
    ht_status status = open_part(&named, copy, err);
    if (!status) status = count_parts(&named, &n_parts, err);
    if (!status && !(set = new_set(n_parts))) status = ht_fail_memory(err, sizeof *set, "the parts of a model");
    if (!status && n_parts == 1) {
        set->parts[set->n_parts++] = named;
        named = (ht_gguf_part){0};
    } else if (!status)
        status = open_others(set, &named, n_parts, err);
    if (!status) status = join(set, err);
    close_part(&named);
    if (status)
        ht_gguf_set_close(set);
    else
        *out = set;
    return status;
}

void ht_gguf_set_close(ht_gguf_set *set) {
    if (!set) return;
    ht_name_index_free(&set->names);
    for (int i = 0; i < set->n_parts; i++) close_part(&set->parts[i]);
    free(set->parts);
    free(set->first);
    free(set);
}

/* ---- queries ---- */

int ht_gguf_set_n_parts(const ht_gguf_set *set) { return set->n_parts; }
const ht_gguf_part *ht_gguf_set_part(const ht_gguf_set *set, int part) { return &set->parts[part]; }
const ht_gguf *ht_gguf_set_metadata(const ht_gguf_set *set) { return set->parts[0].gguf; }

size_t ht_gguf_set_n_tensors(const ht_gguf_set *set) { return set->first[set->n_parts]; }

const ht_gguf_tensor *ht_gguf_set_tensor_at(const ht_gguf_set *set, size_t i, const ht_gguf_part **part) {
    int low = 0, high = set->n_parts - 1; /* the last non-empty part whose first tensor is <= i */
    while (low < high) {
        int middle = (low + high + 1) / 2;
        if (set->first[middle] <= i)
            low = middle;
        else
            high = middle - 1;
    }
    *part = &set->parts[low];
    return ht_gguf_tensor_at(set->parts[low].gguf, i - set->first[low]);
}

const ht_gguf_tensor *ht_gguf_set_find(const ht_gguf_set *set, const char *name, const ht_gguf_part **part) {
    if (set->n_parts == 1) {
        *part = &set->parts[0];
        return ht_gguf_find_tensor(set->parts[0].gguf, name);
    }
    size_t i = ht_name_index_find(&set->names, name, strlen(name));
    return i == SIZE_MAX ? NULL : ht_gguf_set_tensor_at(set, i, part);
}

size_t ht_gguf_set_number(const ht_gguf_set *set, const ht_gguf_tensor *t, const ht_gguf_part *part) {
    return set->first[part - set->parts] + (size_t)(t - ht_gguf_tensor_at(part->gguf, 0));
}
