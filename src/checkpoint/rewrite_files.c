/* Weight files: assigns tensors to files, names the files, and writes GGUF and safetensors. Keys of GGUF parts:
 * gguf.constants (split.*), which llama.cpp's loader reads. */
#include "base/checked.h"
#include "base/directory_writer.h"
#include "base/error.h"
#include "base/file.h"
#include "base/plural.h"
#include "base/text.h"
#include "checkpoint/convert_metadata.h"
#include "checkpoint/rewrite.h"
#include "formats/gguf_write.h"
#include "formats/json.h"
#include "formats/safetensors.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- tensors of one file ---- */

typedef struct outputs {
    ht_rewrite_values *values;
    ht_tensor_output *tensor; /* [n] */
    size_t *number;           /* [n] numbers in the plan */
    int n;
} outputs;

static void add_output(const ht_rewrite_plan *plan, size_t number, outputs *out) {
    out->tensor[out->n] = plan->tensor[number].to;
    out->number[out->n++] = number;
}

/* Whether the tensor is in the same file as its weight, where consecutive parts are computed once. */
static bool follows_weight(const ht_rewrite_plan *plan, size_t number) {
    const ht_rewrite_tensor *t = &plan->tensor[number];
    return t->action == HT_REWRITE_ROUND && t->owner != number && plan->tensor[t->owner].file == t->file;
}

/* The caller frees *out even after a failure. */
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

static ht_status output_values(void *user, int i, const void **bytes, ht_error *err) {
    const outputs *o = user;
    return ht_rewrite_values_of(o->values, o->number[i], bytes, err);
}

/* ---- GGUF: metadata ---- */

/* llama.cpp's file type for files with mostly matrices of one float type; -1 for others. */
static int file_type_of(const char *dtype) {
    return !strcmp(dtype, "F32") ? 0 : !strcmp(dtype, "F16") ? 1 : !strcmp(dtype, "BF16") ? 32 : -1;
}

/* The new file type; -1 if the stated one stays valid: a mix of quantised types, or unchanged values. */
static int new_file_type(const ht_rewrite_plan *plan) {
    enum { TYPE_IDS = 64 };          /* more than any ggml type id */
    double elements[TYPE_IDS] = {0}; /* of matrices */
    const char *most = NULL;
    bool changes = false;
    for (size_t i = 0; i < plan->n; i++) {
        const ht_rewrite_tensor *t = &plan->tensor[i];
        changes = changes || t->action != HT_REWRITE_COPY;
        if (t->action == HT_REWRITE_DROP || t->to.rank < 2) continue;
        const int id = ht_gguf_type_id(t->to.dtype);
        if (id < 0 || id >= TYPE_IDS) continue;
        elements[id] += (double)ht_elements(t->to.shape, t->to.rank);
        if (!most || elements[id] > elements[ht_gguf_type_id(most)]) most = t->to.dtype;
    }
    return changes && most ? file_type_of(most) : -1;
}

static void put_number(ht_document *d, const char *key, const char *dtype, int value) {
    ht_document_set(d, key, ht_json_pack("{s:s, s:i}", "dtype", dtype, "value", value));
}

static void put_mark(const ht_rewrite_plan *plan, ht_document *d) {
    ht_document_set(d, plan->mark, ht_json_pack("{s:s, s:b}", "dtype", "bool", "value", 1));
}

/* Makes the file's metadata, or changes to the checkpoint's, with the keys that depend on tensors. */
static ht_status make_metadata(ht_rewrite_plan *plan, ht_error *err) {
    ht_document d = {NULL, "GGUF metadata", HT_OK, err};
    if (plan->to_other)
        d.status = ht_gguf_metadata_of(plan->c, plan->config, &d.object, err);
    else
        d.object = ht_json_pack("{s:n, s:n, s:n}", "split.no", "split.count", "split.tensors.count");
    const int file_type = plan->file_type >= 0 ? plan->file_type : new_file_type(plan);
    const bool quantized = plan->file_type >= 0 || (plan->to_other && !ht_rewrite_is_dense(plan));
    put_mark(plan, &d);
    if (file_type >= 0) put_number(&d, "general.file_type", "u32", file_type);
    if (quantized) put_number(&d, "general.quantization_version", "u32", 2);
    plan->metadata = ht_document_take(&d);
    return d.status;
}

/* ---- GGUF: parts ---- */

static int n_tensors(const ht_rewrite_plan *plan) {
    int n = 0;
    for (size_t i = 0; i < plan->n; i++) n += plan->tensor[i].action != HT_REWRITE_DROP;
    return n;
}

/* Metadata of part `file` of n: the first part has the model's. The others have their number and the mark, so that
 * parts left by a killed process can be replaced. */
static ht_status part_metadata(const ht_rewrite_plan *plan, int file, int n, ht_json **out, ht_error *err) {
    ht_document d = {file ? ht_json_new_object() : ht_json_copy(plan->metadata), "GGUF metadata", HT_OK, err};
    put_number(&d, "split.no", "u16", file);
    put_number(&d, "split.count", "u16", n);
    put_number(&d, "split.tensors.count", "i32", n_tensors(plan));
    put_mark(plan, &d);
    *out = ht_document_take(&d);
    return d.status;
}

/* Maximum bytes of part `file` without tensors; all parts but the first have the same maximum. */
static ht_status measure_gguf_header(const ht_rewrite_plan *plan, int file, size_t *bytes, ht_error *err) {
    const ht_gguf *from = plan->to_other ? NULL : plan->c->gguf;
    ht_json *metadata;
    ht_status status = part_metadata(plan, file, 1, &metadata, err); /* numbers take the same bytes in every part */
    if (!status) status = ht_gguf_metadata_bytes(from, metadata, file > 0, bytes, err);
    ht_json_decref(metadata);
    if (!status) *bytes += ht_gguf_alignment(from) - 1; /* padding after the tensor entries */
    return status;
}

static ht_status write_part(const ht_rewrite_plan *plan, ht_rewrite_values *values, int file, const char *path,
                            ht_error *err) {
    outputs o;
    const ht_gguf *from = plan->to_other ? NULL : plan->c->gguf;
    ht_json *metadata = NULL;
    ht_status status = list_outputs(plan, file, values, &o, err);
    if (!status && plan->n_files > 1)
        status = part_metadata(plan, file, plan->n_files, &metadata, err);
    else
        metadata = ht_json_incref(plan->metadata);
    if (!status && file)
        status = ht_gguf_write_part(path, from, metadata, o.tensor, o.n, output_values, &o, err);
    else if (!status && from)
        status = ht_gguf_rewrite(path, from, metadata, o.tensor, o.n, output_values, &o, err);
    else if (!status)
        status = ht_gguf_write(path, o.tensor, o.n, metadata, output_values, &o, err);
    ht_json_decref(metadata);
    free_outputs(&o);
    return status;
}

static ht_status write_parts(const ht_rewrite_plan *plan, ht_rewrite_values *values, const char *directory,
                             ht_error *err) {
    ht_status status = HT_OK;
    for (int i = 0; !status && i < plan->n_files; i++) {
        char *path = ht_path_join(directory, plan->file[i]);
        status = path ? write_part(plan, values, i, path, err) : ht_fail_memory(err, strlen(directory), "a path");
        free(path);
    }
    return status;
}

ht_status ht_rewrite_write_gguf(const ht_rewrite_plan *plan, ht_rewrite_values *values, ht_error *err) {
    ht_file_set_writer *set;
    if (plan->n_files < 2) return write_part(plan, values, 0, plan->out_path, err);
    ht_status status = ht_file_set_writer_open(plan->out_path, &set, err);
    if (status) return status;
    status = write_parts(plan, values, ht_file_set_writer_path(set), err);
    if (!status) return ht_file_set_writer_commit(set, (const char *const *)plan->file, plan->n_files, err);
    ht_file_set_writer_discard(set);
    return status;
}

/* ---- safetensors ---- */

/* The metadata of the first shard, and the mark. The caller frees *out, whose texts the checkpoint lends. `format`
 * is the program whose tensor names are used. */
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
    outputs o;
    ht_metadata_pair *pairs = NULL;
    int n_pairs = 0;
    char *path = ht_path_join(directory, plan->file[file]);
    ht_status status = list_outputs(plan, file, values, &o, err);
    if (!status && !path) status = ht_fail_memory(err, strlen(directory), "a path");
    if (!status) status = list_metadata(plan, &pairs, &n_pairs, err);
    if (!status) status = ht_safetensors_write(path, o.tensor, o.n, pairs, n_pairs, output_values, &o, err);
    free(pairs);
    free(path);
    free_outputs(&o);
    return status;
}

/* Maximum bytes of a file without tensors. */
static ht_status measure_safetensors_header(const ht_rewrite_plan *plan, size_t *bytes, ht_error *err) {
    ht_metadata_pair *pairs;
    int n;
    const ht_status status = list_metadata(plan, &pairs, &n, err);
    if (!status) *bytes = ht_safetensors_metadata_bytes(pairs, n);
    free(pairs);
    return status;
}

/* ---- index of safetensors ---- */

/* Path of the checkpoint's index, which may not exist; NULL in another container. The caller frees it. */
static ht_status find_index(const ht_rewrite_plan *plan, char **path, ht_error *err) {
    *path = plan->to_other ? NULL : ht_path_join(plan->c->path, HT_SAFETENSORS_INDEX);
    return *path || plan->to_other ? HT_OK : ht_fail_memory(err, strlen(plan->c->path), "a path");
}

ht_status ht_rewrite_has_index(const ht_rewrite_plan *plan, bool *out, ht_error *err) {
    char *path;
    const ht_status status = find_index(plan, &path, err);
    *out = plan->n_files > 1 || (!status && path && !plan->max_file_bytes && ht_path_exists(path));
    free(path);
    return status;
}

/* Makes an index from the readable one at `path`, if any, with sizes and files of the written tensors. */
static ht_status make_index(const ht_rewrite_plan *plan, const char *path, ht_json **out, ht_error *err) {
    ht_document index = {NULL, HT_SAFETENSORS_INDEX, HT_OK, err}, map = index, metadata = index;
    ht_error why = {0};
    if (path && ht_json_read(path, 64 << 20, &index.object, &why) == HT_ERR_MEMORY)
        return ht_fail(err, HT_ERR_MEMORY, "%s", why.message);
    if (!index.object) index.object = ht_json_new_object();
    map.object = ht_json_new_object();
    for (size_t i = 0; i < plan->n; i++) {
        const ht_rewrite_tensor *t = &plan->tensor[i];
        if (t->action != HT_REWRITE_DROP) ht_document_set(&map, t->to.name, ht_json_string(plan->file[t->file]));
    }
    if (!ht_json_is_object(ht_json_object_get(index.object, "metadata")))
        ht_document_set(&index, "metadata", ht_json_new_object());
    ht_document_set(&index, "weight_map", ht_document_take(&map));
    metadata.object = ht_json_object_get(index.object, "metadata");
    if (!index.status) ht_document_set(&metadata, "total_size", ht_json_integer((int64_t)ht_rewrite_plan_bytes(plan)));
    if (!index.status) index.status = metadata.status;
    *out = ht_document_take(&index);
    return index.status;
}

static ht_status write_index(const ht_rewrite_plan *plan, const char *directory, ht_error *err) {
    char *path = NULL, *text = NULL;
    ht_json *index = NULL;
    bool wanted;
    ht_status status = ht_rewrite_has_index(plan, &wanted, err);
    if (status || !wanted) return status;
    status = find_index(plan, &path, err);
    if (!status) status = make_index(plan, path, &index, err);
    if (!status && !(text = ht_json_dump(index, HT_JSON_INDENT(2))))
        status = ht_fail_memory(err, 0, HT_SAFETENSORS_INDEX);
    if (!status) status = ht_checkpoint_write_text(directory, HT_SAFETENSORS_INDEX, text, err);
    free(text);
    ht_json_decref(index);
    free(path);
    return status;
}

ht_status ht_rewrite_write_files(const ht_rewrite_plan *plan, ht_rewrite_values *values, const char *directory,
                                 ht_error *err) {
    if (plan->to_gguf) return write_parts(plan, values, directory, err);
    ht_status status = HT_OK;
    for (int i = 0; !status && i < plan->n_files; i++)
        if (!ht_rewrite_is_left_out(plan, i)) status = write_shard(plan, values, i, directory, err);
    return status ? status : write_index(plan, directory, err);
}

/* ---- which file ---- */

/* Default tensor bytes per safetensors file, as in transformers and mlx-lm. */
static const size_t usual_bytes = (size_t)5 * 1000 * 1000 * 1000;

enum { NOT_PLACED = -1, APART = -2 };

typedef struct shares {
    const ht_rewrite_plan *plan;
    size_t limit;        /* maximum bytes of a file */
    size_t first, other; /* bytes without tensors: of the first file, of other files */
    size_t *weight;      /* [plan->n] bytes of a weight with its scales and biases, by the weight's number */
    int *file;           /* [plan->n] file of the weight's tensors; NOT_PLACED: none yet; APART: several files */
    int current;         /* the current file */
    size_t filled;       /* its bytes */
    bool is_empty;       /* it has no tensor yet */
} shares;

static size_t add_saturated(size_t a, size_t b) {
    size_t sum;
    return ht_add_size(a, b, &sum) ? sum : SIZE_MAX;
}

static size_t bytes_of(const ht_rewrite_plan *plan, const ht_rewrite_tensor *t) {
    if (!plan->max_file_bytes) return t->to.n_bytes;
    return plan->to_gguf ? ht_gguf_bytes_of(&t->to, ht_gguf_alignment(plan->to_other ? NULL : plan->c->gguf))
                         : ht_safetensors_bytes_of(&t->to);
}

static bool fits(const shares *s, size_t filled, size_t bytes) {
    return filled <= s->limit && bytes <= s->limit - filled;
}

/* The file for the next `bytes`. An empty file accepts oversized tensors unless it has a GGUF file's metadata, which
 * then stays alone in the first file. */
static int place(shares *s, size_t bytes) {
    const bool may_end = !s->is_empty || (s->plan->to_gguf && s->current == 0);
    if (may_end && !fits(s, s->filled, bytes)) {
        s->current++;
        s->filled = s->other;
    }
    s->is_empty = false;
    s->filled = add_saturated(s->filled, bytes);
    return s->current;
}

/* Places tensors in order; all tensors of a weight follow its first one. */
static void place_all(shares *s, ht_rewrite_plan *plan) {
    for (size_t i = 0; i < plan->n; i++) {
        const ht_rewrite_tensor *t = &plan->tensor[i];
        s->file[i] = NOT_PLACED;
        if (t->action != HT_REWRITE_DROP) s->weight[t->owner] = add_saturated(s->weight[t->owner], bytes_of(plan, t));
    }
    for (size_t i = 0; i < plan->n; i++) {
        ht_rewrite_tensor *t = &plan->tensor[i];
        int *together = &s->file[t->owner];
        if (t->action == HT_REWRITE_DROP) continue;
        if (*together == NOT_PLACED)
            *together = fits(s, s->other, s->weight[t->owner]) ? place(s, s->weight[t->owner]) : APART;
        t->file = *together == APART ? place(s, bytes_of(plan, t)) : *together;
    }
}

static ht_status measure_headers(const ht_rewrite_plan *plan, shares *s, ht_error *err) {
    if (!plan->max_file_bytes) return HT_OK;
    if (!plan->to_gguf) {
        const ht_status status = measure_safetensors_header(plan, &s->first, err);
        s->other = s->first;
        return status;
    }
    const ht_status status = measure_gguf_header(plan, 0, &s->first, err);
    return status ? status : measure_gguf_header(plan, 1, &s->other, err);
}

static ht_status share_out(ht_rewrite_plan *plan, ht_error *err) {
    shares s = {.plan = plan,
                .limit = plan->max_file_bytes ? (size_t)plan->max_file_bytes : usual_bytes,
                .weight = calloc(plan->n + 1, sizeof *s.weight),
                .file = calloc(plan->n + 1, sizeof *s.file),
                .is_empty = true};
    ht_status status = s.weight && s.file ? HT_OK : ht_fail_memory(err, plan->n * sizeof *s.weight, "shares of files");
    if (!status) status = measure_headers(plan, &s, err);
    if (!status) {
        s.filled = s.first;
        place_all(&s, plan);
        plan->n_files = s.current + 1;
    }
    free(s.weight);
    free(s.file);
    const int most = plan->to_gguf ? HT_GGUF_PARTS_MAX : HT_SAFETENSORS_FILES_MAX;
    if (status || plan->n_files <= most) return status;
    return ht_fail(err, HT_ERR_LIMIT,
                   "%s: would be %d file%s of at most %lld bytes, and there can be %d; take more bytes", plan->out_path,
                   plan->n_files, ht_plural(plan->n_files), (long long)plan->max_file_bytes, most);
}

/* ---- names ---- */

/* Stem of the GGUF file names: that of the output file, or in a directory that of the checkpoint's files. */
static const char *stem_of(const ht_rewrite_plan *plan, size_t *n) {
    int number, count;
    const char *name = !plan->is_directory ? ht_base_name(plan->out_path)
                       : plan->c->parts    ? ht_gguf_set_part(plan->c->parts, 0)->name
                                           : "model.gguf";
    const bool is_part = plan->is_directory && ht_gguf_part_name(name, &number, &count, n);
    if (!is_part) *n = strlen(name) - (ht_ends_with(name, ".gguf") ? strlen(".gguf") : 0);
    return name;
}

static char *gguf_name(const ht_rewrite_plan *plan, int file) {
    size_t n;
    const char *stem = stem_of(plan, &n);
    if (plan->n_files > 1) return ht_gguf_part_path(stem, n, file + 1, plan->n_files);
    char *name = malloc(n + sizeof ".gguf");
    if (name) snprintf(name, n + sizeof ".gguf", "%.*s.gguf", (int)n, stem);
    return name;
}

static char *safetensors_name(const ht_rewrite_plan *plan, int file) {
    char name[64] = "model.safetensors";
    if (!plan->to_other && !plan->max_file_bytes)
        return strdup(ht_base_name(ht_safetensors_file(plan->c->tensors, file)->path));
    if (plan->n_files > 1) snprintf(name, sizeof name, "model-%05d-of-%05d.safetensors", file + 1, plan->n_files);
    return strdup(name);
}

ht_status ht_rewrite_choose_files(ht_rewrite_plan *plan, ht_error *err) {
    const bool divides = plan->max_file_bytes || (plan->to_other && !plan->to_gguf);
    plan->n_files = plan->to_gguf ? 1 : plan->to_other ? 0 : ht_safetensors_n_files(plan->c->tensors);
    ht_status status = plan->to_gguf ? make_metadata(plan, err) : HT_OK;
    if (!status && divides) status = share_out(plan, err);
    const int n = status ? 0 : plan->n_files;
    if (!status) plan->file = calloc((size_t)n + 1, sizeof *plan->file);
    if (!status && !plan->file) status = ht_fail_memory(err, (size_t)n * sizeof *plan->file, "names of files");
    for (int i = 0; !status && i < n; i++) {
        plan->file[i] = plan->to_gguf ? gguf_name(plan, i) : safetensors_name(plan, i);
        if (!plan->file[i]) status = ht_fail_memory(err, 0, "a name");
    }
    return status;
}
