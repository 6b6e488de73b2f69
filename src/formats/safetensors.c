/* Safetensors: the parser of a file's header, the tensor index of a set, and the choice of a checkpoint's files: an index, a
 * single file, or numbered shards. */
#include "formats/safetensors.h"

#include "base/checked.h"
#include "base/error.h"
#include "base/grow.h"
#include "base/log.h"
#include "base/text.h"
#include "formats/json.h"
#include "formats/name_index.h"

#include <hearth/discover.h>

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Two arguments of "%.*s" for a name in a message. */
#define SHOWN(name) ht_name_shown(name, strlen(name)), name

enum { HEADER_BYTES_MAX = 100000000, INDEX_BYTES_MAX = 100000000 };

/* Dtypes of the format with their width in bits. */
static const struct {
    const char *name;
    size_t bits;
    int weight_type;
} dtypes[] = {
    {"F32", 32, HT_W_F32},
    {"F16", 16, HT_W_F16},
    {"BF16", 16, HT_W_BF16},
    {"F64", 64, -1},
    {"I64", 64, -1},
    {"I32", 32, -1},
    {"I16", 16, -1},
    {"I8", 8, -1},
    {"U64", 64, -1},
    {"U32", 32, -1},
    {"U16", 16, -1},
    {"U8", 8, -1},
    {"BOOL", 8, -1},
    {"F8_E4M3", 8, HT_W_F8_E4M3},
    {"F8_E5M2", 8, HT_W_F8_E5M2},
    {"F8_E8M0", 8, -1},
    {"F8_E4M3FNUZ", 8, -1},
    {"F8_E5M2FNUZ", 8, -1},
    {"F6_E2M3", 6, -1},
    {"F6_E3M2", 6, -1},
    {"F4", 4, -1},
    {"C64", 64, -1},
};

/* Parser state of one header. */
typedef struct parser {
    ht_json_reader r;
    ht_safetensors *set;
    const unsigned char *data; /* data section: the bytes after the header */
    size_t data_bytes;         /* bytes of data */
    size_t data_offset;        /* file offset of `data` */
    int file;
} parser;

static void read_dtype(parser *p, const ht_json *entry, ht_safetensor *t, size_t *bits) {
    const char *name;
    if (!ht_json_str(&p->r, entry, "dtype", &name)) {
        ht_json_fail(&p->r, HT_ERR_FORMAT, "tensor `%.*s` has no dtype", SHOWN(t->name));
        return;
    }
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++)
        if (strcmp(name, dtypes[i].name) == 0) {
            t->dtype = dtypes[i].name;
            t->weight_type = dtypes[i].weight_type;
            *bits = dtypes[i].bits;
            return;
        }
    char found[128];
    ht_json_fail(&p->r, HT_ERR_UNSUPPORTED, "the dtype of tensor `%.*s` is %s, which the format does not know",
                 SHOWN(t->name), ht_json_describe(ht_json_object_get(entry, "dtype"), found, sizeof found));
}

/* Reads the shape; *count is its number of elements. */
static void read_shape(parser *p, const ht_json *entry, ht_safetensor *t, size_t *count) {
    const ht_json *shape = ht_json_array(&p->r, entry, "shape");
    if (!shape) {
        ht_json_fail(&p->r, HT_ERR_FORMAT, "tensor `%.*s` has no shape", SHOWN(t->name));
        return;
    }
    if (ht_json_array_size(shape) > HT_SAFETENSORS_RANK_MAX) {
        ht_json_fail(&p->r, HT_ERR_FORMAT, "tensor `%.*s` has %zu dimensions, at most %d are supported", SHOWN(t->name),
                     ht_json_array_size(shape), HT_SAFETENSORS_RANK_MAX);
        return;
    }
    t->rank = (int)ht_json_array_size(shape);
    *count = 1;
    for (int d = 0; d < t->rank; d++) {
        const ht_json *dim = ht_json_array_get(shape, (size_t)d);
        if (!ht_json_is_integer(dim) || ht_json_integer_value(dim) < 0) {
            char found[128];
            ht_json_fail(&p->r, HT_ERR_FORMAT, "dimension %d of tensor `%.*s` is %s, expected an integer from 0", d,
                         SHOWN(t->name), ht_json_describe(dim, found, sizeof found));
            return;
        }
        t->shape[d] = ht_json_integer_value(dim);
        if (!ht_mul_size(*count, (size_t)t->shape[d], count)) {
            ht_json_fail(&p->r, HT_ERR_FORMAT, "tensor `%.*s` has more elements than can be counted", SHOWN(t->name));
            return;
        }
    }
}

static void read_offsets(parser *p, const ht_json *entry, ht_safetensor *t, size_t count, size_t bits) {
    const ht_json *pair = ht_json_array(&p->r, entry, "data_offsets");
    if (ht_json_array_size(pair) != 2 || !ht_json_is_integer(ht_json_array_get(pair, 0)) ||
        !ht_json_is_integer(ht_json_array_get(pair, 1))) {
        ht_json_fail(&p->r, HT_ERR_FORMAT, "tensor `%.*s`: data_offsets is not a pair of integers", SHOWN(t->name));
        return;
    }
    int64_t begin = ht_json_integer_value(ht_json_array_get(pair, 0)),
            end = ht_json_integer_value(ht_json_array_get(pair, 1));
    size_t n_bits;
    if (begin < 0 || end < begin || (uint64_t)end > p->data_bytes)
        ht_json_fail(&p->r, HT_ERR_FORMAT,
                     "tensor `%.*s` is at bytes %" PRId64 " to %" PRId64
                     ", the file has %zu bytes of data; it is cut short or "
                     "damaged",
                     SHOWN(t->name), begin, end, p->data_bytes);
    else if (!ht_mul_size(count, bits, &n_bits))
        ht_json_fail(&p->r, HT_ERR_FORMAT, "tensor `%.*s` has more bytes than can be counted", SHOWN(t->name));
    else if (n_bits % 8 || n_bits / 8 != (uint64_t)(end - begin))
        ht_json_fail(&p->r, HT_ERR_FORMAT,
                     "tensor `%.*s` has %zu elements of type %s, which is not the %" PRId64
                     " bytes that data_offsets give",
                     SHOWN(t->name), count, t->dtype, end - begin);
    t->n_bytes = (size_t)(end - begin);
    t->offset = p->data_offset + (size_t)begin;
    t->data = p->data + begin;
}

static bool append(ht_safetensors *set, const ht_safetensor *t) {
    if (!HT_GROW_ONE(set->tensors, set->n_tensors)) return false;
    char *name = strdup(t->name);
    if (!name) return false;
    set->tensors[set->n_tensors] = *t;
    set->tensors[set->n_tensors++].name = name;
    return true;
}

static void read_tensor(parser *p, const char *name, const ht_json *entry) {
    ht_safetensor t = {.name = name, .file = p->file, .weight_type = -1};
    size_t count = 0, bits = 0;
    if (!ht_json_is_object(entry) || ht_json_object_size(entry) != 3)
        ht_json_fail(&p->r, HT_ERR_FORMAT, "tensor `%.*s` is not an object of exactly dtype, shape and data_offsets",
                     SHOWN(name));
    if (!p->r.status) read_dtype(p, entry, &t, &bits);
    if (!p->r.status) read_shape(p, entry, &t, &count);
    if (!p->r.status) read_offsets(p, entry, &t, count, bits);
    if (!p->r.status && !append(p->set, &t)) p->r.status = ht_fail_memory(p->r.err, sizeof t, "the tensor directory");
}

static void read_metadata(parser *p, const ht_json *metadata) {
    const char *key;
    ht_json *value;
    if (ht_json_is_null(metadata)) return; /* mlx writes null for empty metadata */
    if (!ht_json_is_object(metadata)) {
        ht_json_fail(&p->r, HT_ERR_FORMAT, "`__metadata__` is not an object");
        return;
    }
    ht_json_object_foreach((ht_json *)(uintptr_t)metadata, key, value) {
        if (!ht_json_is_string(value)) {
            char found[128];
            ht_json_fail(&p->r, HT_ERR_FORMAT, "a field of `__metadata__` is %s, expected strings only",
                         ht_json_describe(value, found, sizeof found));
            return;
        }
    }
    if (p->file == 0) p->set->metadata = ht_json_incref((ht_json *)(uintptr_t)metadata);
}

static int by_offset(const void *a, const void *b) {
    const ht_safetensor *s = *(const ht_safetensor *const *)a, *t = *(const ht_safetensor *const *)b;
    if (s->offset != t->offset) return s->offset < t->offset ? -1 : 1;
    return (s->n_bytes > t->n_bytes) - (s->n_bytes < t->n_bytes); /* empty tensors first */
}

/* Checks that the tensors cover the data section without gaps or overlaps. */
static void check_cover(parser *p, size_t first) {
    size_t n = p->set->n_tensors - first, at = p->data_offset;
    const ht_safetensor **order = malloc((n + 1) * sizeof *order);
    if (!order) {
        p->r.status = ht_fail_memory(p->r.err, n * sizeof *order, "tensor directory");
        return;
    }
    for (size_t i = 0; i < n; i++) order[i] = &p->set->tensors[first + i];
    qsort(order, n, sizeof *order, by_offset);
    for (size_t i = 0; i < n && !p->r.status; i++) {
        if (order[i]->offset != at)
            ht_json_fail(&p->r, HT_ERR_FORMAT, "tensor `%.*s` starts at byte %zu of the data, expected %zu: tensors %s",
                         SHOWN(order[i]->name), order[i]->offset - p->data_offset, at - p->data_offset,
                         order[i]->offset < at ? "overlap" : "leave a hole");
        at = order[i]->offset + order[i]->n_bytes;
    }
    if (at != p->data_offset + p->data_bytes)
        ht_json_fail(&p->r, HT_ERR_FORMAT, "its tensors end at byte %zu of the data, the file has %zu bytes of it",
                     at - p->data_offset, p->data_bytes);
    free(order);
}

/* Finds the JSON header: *length bytes from byte 8. */
static ht_status find_header(const unsigned char *bytes, size_t size, const char *name, size_t *length, ht_error *err) {
    if (ht_is_lfs_pointer(bytes, size)) return ht_fail(err, HT_ERR_FORMAT, "%s: %s", name, HT_LFS_POINTER);
    if (size < 8)
        return ht_fail(err, HT_ERR_FORMAT, "%s: has %zu bytes, which is too short for a safetensors file", name, size);
    uint64_t n = 0;
    for (int i = 7; i >= 0; i--) n = n << 8 | bytes[i];
    if (n > HEADER_BYTES_MAX)
        return ht_fail(err, HT_ERR_FORMAT,
                       "%s: claims a header of %" PRIu64 " bytes, at most %d are allowed; is it a safetensors file?",
                       name, n, HEADER_BYTES_MAX);
    if (n > size - 8)
        return ht_fail(err, HT_ERR_FORMAT,
                       "%s: claims a header of %" PRIu64 " bytes, only %zu remain; the file is cut short", name, n,
                       size - 8);
    *length = (size_t)n;
    const char *text = (const char *)bytes + 8;
    if (n == 0 || text[0] != '{') return ht_fail(err, HT_ERR_FORMAT, "%s: its header does not start with `{`", name);
    if (!ht_utf8_valid(text, *length)) return ht_fail(err, HT_ERR_FORMAT, "%s: its header is not valid UTF-8", name);
    while (text[n - 1] == ' ') n--;
    if (text[n - 1] != '}') return ht_fail(err, HT_ERR_FORMAT, "%s: its header does not end with `}` and spaces", name);
    return HT_OK;
}

/* Parses `data` as file number `file` and adds its tensors; the set may be partly extended after a failure. */
static ht_status add_header(ht_safetensors *set, const void *data, size_t size, const char *name, int file,
                            ht_error *err) {
    size_t length = 0, first = set->n_tensors;
    ht_json *root;
    ht_status st = find_header(data, size, name, &length, err);
    if (st) return st;
    st = ht_json_parse_strict((const char *)data + 8, length, name, HT_JSON_VALUES_MAX, &root, err);
    if (st) return st;
    parser p = {.r = {.file = name, .err = err},
                .set = set,
                .data = (const unsigned char *)data + 8 + length,
                .data_bytes = size - 8 - length,
                .data_offset = 8 + length,
                .file = file};
    size_t n;
    const ht_json_member *entry = ht_json_members(root, &n);
    for (size_t i = 0; i < n && !p.r.status; i++, entry++) {
        const char *problem = ht_name_problem(entry->name, entry->n_name);
        if (strcmp(entry->name, "__metadata__") == 0)
            read_metadata(&p, entry->value);
        else if (problem)
            ht_json_fail(&p.r, HT_ERR_FORMAT, "the name of a tensor %s", problem);
        else
            read_tensor(&p, entry->name, entry->value);
    }
    ht_json_decref(root);
    if (!p.r.status) check_cover(&p, first);
    return p.r.status;
}

/* Builds the name index once all files are added; a repeated name is an error. `where` prefixes messages. */
static ht_status index_names(ht_safetensors *set, const char *where, ht_error *err) {
    if (!ht_name_index_init(&set->names, set->n_tensors))
        return ht_fail_memory(err, set->n_tensors * sizeof(ht_indexed_name), "the tensor names");
    for (size_t i = 0; i < set->n_tensors; i++) {
        const ht_safetensor *t = &set->tensors[i];
        size_t first;
        switch (ht_name_index_add(&set->names, t->name, strlen(t->name), i, &first)) {
        case HT_NAME_ADDED: break;
        case HT_NAME_TWICE:
            return ht_fail(err, HT_ERR_FORMAT, "%s: tensor `%.*s` is in two files, %s and %s", where, SHOWN(t->name),
                           set->files[set->tensors[first].file]->path, set->files[t->file]->path);
        case HT_NAME_CROWDED:
            return ht_fail(err, HT_ERR_FORMAT, "%s: tensor names were made to collide; the file is not honest", where);
        }
    }
    return HT_OK;
}

ht_status ht_safetensors_parse(const void *data, size_t size, const char *name, ht_safetensors **out, ht_error *err) {
    *out = NULL;
    ht_safetensors *set = calloc(1, sizeof *set);
    if (!set) return ht_fail_memory(err, sizeof *set, name);
    ht_status st = add_header(set, data, size, name, 0, err);
    if (!st) st = index_names(set, name, err);
    if (st) {
        ht_safetensors_close(set);
        return st;
    }
    *out = set;
    return HT_OK;
}

void ht_safetensors_close(ht_safetensors *set) {
    if (!set) return;
    for (size_t i = 0; i < set->n_tensors; i++) free((void *)(uintptr_t)set->tensors[i].name);
    for (int i = 0; i < set->n_files; i++) ht_file_close(set->files[i]);
    ht_name_index_free(&set->names);
    ht_json_decref(set->metadata);
    free(set->tensors);
    free(set->files);
    free(set);
}

size_t ht_safetensors_count(const ht_safetensors *set) { return set->n_tensors; }
const ht_safetensor *ht_safetensors_at(const ht_safetensors *set, size_t i) { return &set->tensors[i]; }

const ht_safetensor *ht_safetensors_find(const ht_safetensors *set, const char *name) {
    size_t i = ht_name_index_find(&set->names, name, strlen(name));
    return i == SIZE_MAX ? NULL : &set->tensors[i];
}

int ht_safetensors_n_files(const ht_safetensors *set) { return set->n_files; }
const ht_file *ht_safetensors_file(const ht_safetensors *set, int file) { return set->files[file]; }

const char *ht_safetensors_metadata(const ht_safetensors *set, const char *key) {
    return ht_json_string_value(ht_json_object_get(set->metadata, key));
}

/* ---- files of a checkpoint ---- */

static const char index_name[] = HT_SAFETENSORS_INDEX, single_name[] = "model.safetensors";

/* Loads only the header: its 8-byte length and that many bytes. The parser reports an impossible length. */
static ht_status fetch_header(ht_file *file, ht_error *err) {
    size_t length_bytes = ht_min_size(file->size, 8), length = 0;
    ht_status st = ht_file_fetch(file, length_bytes, err);
    for (size_t i = 0; !st && i < length_bytes; i++) length |= (size_t)file->data[i] << 8 * i;
    return st || length > HEADER_BYTES_MAX || length > file->size - length_bytes
               ? st
               : ht_file_fetch(file, length_bytes + length, err);
}

/* Parses directory/name (`name` when directory is NULL) as the next file of the set. */
static ht_status add_file(ht_safetensors *set, const char *directory, const char *name, ht_error *err) {
    if (set->n_files == HT_SAFETENSORS_FILES_MAX)
        return ht_fail(err, HT_ERR_LIMIT, "%s: more than %d weight files", directory ? directory : name,
                       HT_SAFETENSORS_FILES_MAX);
    if (!HT_GROW_ONE(set->files, set->n_files)) return ht_fail_memory(err, sizeof *set->files, "the list of files");
    char *path = directory ? ht_path_join(directory, name) : strdup(name);
    if (!path) return ht_fail_memory(err, strlen(name), "a path");
    ht_file *file;
    ht_status st = ht_file_open(path, &file, err);
    free(path);
    if (st) return st;
    set->files[set->n_files++] = file;
    st = fetch_header(file, err);
    return st ? st : add_header(set, file->data, file->size, file->path, set->n_files - 1, err);
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
    return index_names(set, directory, err);
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
    ht_file_role lowest = HT_FILE_PROJECTOR; /* only files of the lowest role belong to the model */
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
        if (!st) st = index_names(set, directory, err);
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
    return st ? st : index_names(set, path, err);
}

/* ---- with an index ---- */

typedef struct shard_index {
    const char *directory, *path;
    ht_json *root;
    const ht_json *map;  /* weight_map: tensor -> file */
    ht_json *files;      /* the listed files as names of fields, each once */
    const char *missing; /* a listed file that does not exist, or NULL */
    int n_present;       /* number of listed files that exist */
    bool names_single;   /* model.safetensors is listed */
} shard_index;

static ht_status read_index(shard_index *x, ht_error *err) {
    const char *tensor;
    ht_json *file;
    ht_status st = ht_json_read(x->path, INDEX_BYTES_MAX, &x->root, err);
    if (st) return st;
    x->files = ht_json_new_object();
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
        if (ht_json_object_set_new(x->files, name, ht_json_boolean(true))) return ht_fail_memory(err, 0, x->path);
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

static ht_status inspect_listed(shard_index *x, ht_error *err) {
    const char *name;
    ht_json *value;
    ht_json_object_foreach(x->files, name, value) {
        bool present = false;
        ht_status st = check_present(x->directory, name, &present, err);
        if (st) return st;
        x->n_present += present;
        x->names_single |= !strcmp(name, single_name);
        if (!present && !x->missing) x->missing = name;
    }
    return HT_OK;
}

static ht_status add_listed(const shard_index *x, ht_safetensors *set, ht_error *err) {
    const char *name;
    ht_json *value;
    ht_json_object_foreach(x->files, name, value) {
        bool present = false;
        ht_status st = check_present(x->directory, name, &present, err);
        if (!st && present) st = add_file(set, x->directory, name, err);
        if (st) return st;
    }
    return HT_OK;
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
            free((void *)(uintptr_t)t.name);
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
    return index_names(set, x->directory, err);
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
    ht_status st = add_listed(x, set, err);
    if (!st) st = index_names(set, x->directory, err);
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

/* Opens the listed files, or ignores a stale index if the directory has other weights. */
static ht_status open_index(ht_safetensors *set, const char *directory, const char *path, const char *single_path,
                            ht_error *err) {
    shard_index x = {.directory = directory, .path = path};
    ht_status st = read_index(&x, err);
    if (!st) st = inspect_listed(&x, err);
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
    ht_json_decref(x.files);
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
