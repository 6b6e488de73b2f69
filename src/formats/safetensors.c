/* Safetensors parser: a file's header, and the tensor index of a set. safetensors_open.c selects the files of a
 * checkpoint. */
#include "formats/safetensors.h"

#include "base/checked.h"
#include "base/error.h"
#include "base/grow.h"
#include "base/text.h"
#include "formats/json.h"
#include "formats/safetensors_set.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

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
    const unsigned char *data; /* data section: the bytes behind the header */
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
    if (n > HT_SAFETENSORS_HEADER_MAX)
        return ht_fail(err, HT_ERR_FORMAT,
                       "%s: claims a header of %" PRIu64 " bytes, at most %d are allowed; is it a safetensors file?",
                       name, n, HT_SAFETENSORS_HEADER_MAX);
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

ht_status ht_safetensors_add(ht_safetensors *set, const void *data, size_t size, const char *name, int file,
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
    const char *key;
    size_t key_len;
    ht_json *entry;
    ht_json_object_keylen_foreach(root, key, key_len, entry) {
        const char *problem = ht_name_problem(key, key_len);
        if (strcmp(key, "__metadata__") == 0)
            read_metadata(&p, entry);
        else if (problem)
            ht_json_fail(&p.r, HT_ERR_FORMAT, "the name of a tensor %s", problem);
        else
            read_tensor(&p, key, entry);
        if (p.r.status) break;
    }
    ht_json_decref(root);
    if (!p.r.status) check_cover(&p, first);
    return p.r.status;
}

ht_status ht_safetensors_index(ht_safetensors *set, const char *where, ht_error *err) {
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
    ht_status st = ht_safetensors_add(set, data, size, name, 0, err);
    if (!st) st = ht_safetensors_index(set, name, err);
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
