/* GGUF files of a rewritten checkpoint: one, or parts of which the first has the metadata; llama.cpp's loader reads both.
 * Keys of parts: gguf.constants (split.*). */
#include "base/error.h"
#include "base/file.h"
#include "base/file_set_writer.h"
#include "checkpoint/convert_metadata.h"
#include "checkpoint/rewrite.h"
#include "formats/gguf_write.h"

#include <stdlib.h>
#include <string.h>

/* ---- metadata ---- */

/* llama.cpp's number of a file whose matrices are mostly of one float type; -1 for others. */
static int file_type_of(const char *dtype) {
    return !strcmp(dtype, "F32") ? 0 : !strcmp(dtype, "F16") ? 1 : !strcmp(dtype, "BF16") ? 32 : -1;
}

/* Elements of the matrices that are written as `dtype`. */
static double elements_of(const ht_rewrite_plan *plan, const char *dtype) {
    double sum = 0;
    for (size_t i = 0; i < plan->n; i++) {
        const ht_tensor_output *t = &plan->tensor[i].to;
        if (plan->tensor[i].action == HT_REWRITE_DROP || t->rank < 2 || strcmp(t->dtype, dtype) != 0) continue;
        double n = 1;
        for (int d = 0; d < t->rank; d++) n *= (double)t->shape[d];
        sum += n;
    }
    return sum;
}

static bool keeps_values(const ht_rewrite_plan *plan) {
    for (size_t i = 0; i < plan->n; i++)
        if (plan->tensor[i].action != HT_REWRITE_COPY) return false;
    return true;
}

/* The file type that is true now; -1 when it is the one the file states: a mix of quantised types, or values that are kept. */
static int new_file_type(const ht_rewrite_plan *plan) {
    const char *most = NULL;
    double largest = 0;
    if (keeps_values(plan)) return -1;
    for (size_t i = 0; i < plan->n; i++) {
        const ht_rewrite_tensor *t = &plan->tensor[i];
        if (t->action == HT_REWRITE_DROP || (most && !strcmp(t->to.dtype, most))) continue;
        const double n = elements_of(plan, t->to.dtype);
        if (n > largest) {
            largest = n;
            most = t->to.dtype;
        }
    }
    return most ? file_type_of(most) : -1;
}

static bool put_number(ht_json *metadata, const char *key, const char *dtype, int value) {
    return !ht_json_object_set_new(metadata, key, ht_json_pack("{s:s, s:i}", "dtype", dtype, "value", value));
}

static bool put_mark(const ht_rewrite_plan *plan, ht_json *metadata) {
    ht_json *mark = ht_json_pack("{s:s, s:b}", "dtype", "bool", "value", 1);
    return mark && !ht_json_object_set_new(metadata, plan->mark, mark);
}

/* Adds to metadata, or to changes of some, what the tensors decide; false when memory ran out. */
static bool state_tensors(const ht_rewrite_plan *plan, ht_json *metadata) {
    const int file_type = plan->file_type >= 0 ? plan->file_type : new_file_type(plan);
    const bool quantized = plan->file_type >= 0 || (plan->to_other && !ht_rewrite_is_dense(plan));
    return put_mark(plan, metadata) && (file_type < 0 || put_number(metadata, "general.file_type", "u32", file_type)) &&
           (!quantized || put_number(metadata, "general.quantization_version", "u32", 2));
}

ht_status ht_rewrite_gguf_metadata(ht_rewrite_plan *plan, ht_error *err) {
    ht_status status = HT_OK;
    if (plan->to_other)
        status = ht_gguf_metadata_of(plan->c, plan->config, &plan->metadata, err);
    else
        plan->metadata = ht_json_pack("{s:n, s:n, s:n}", "split.no", "split.count", "split.tensors.count");
    if (!status && (!plan->metadata || !state_tensors(plan, plan->metadata)))
        status = ht_fail_memory(err, 0, "GGUF metadata");
    return status;
}

/* ---- parts ---- */

static int n_tensors(const ht_rewrite_plan *plan) {
    int n = 0;
    for (size_t i = 0; i < plan->n; i++) n += plan->tensor[i].action != HT_REWRITE_DROP;
    return n;
}

/* Metadata of part `file` of n: the model's in the first; the others say what they are, and whose, so that they may be replaced
 * when a killed process left them alone. NULL when memory ran out. */
static ht_json *part_metadata(const ht_rewrite_plan *plan, int file, int n) {
    ht_json *metadata = file ? ht_json_new_object() : ht_json_copy(plan->metadata);
    if (metadata && put_number(metadata, "split.no", "u16", file) && put_number(metadata, "split.count", "u16", n) &&
        put_number(metadata, "split.tensors.count", "i32", n_tensors(plan)) && put_mark(plan, metadata))
        return metadata;
    ht_json_decref(metadata);
    return NULL;
}

ht_status ht_rewrite_gguf_header(const ht_rewrite_plan *plan, int file, size_t *bytes, ht_error *err) {
    const ht_gguf *from = plan->to_other ? NULL : plan->c->gguf;
    ht_json *metadata = part_metadata(plan, file, 1); /* whose numbers have as many bytes in any part */
    ht_status status = metadata ? HT_OK : ht_fail_memory(err, 0, "GGUF metadata");
    if (!status) status = ht_gguf_metadata_bytes(from, metadata, file > 0, bytes, err);
    ht_json_decref(metadata);
    if (!status) *bytes += ht_gguf_alignment(from) - 1; /* behind the entries of the tensors */
    return status;
}

ht_status ht_rewrite_gguf_write(const ht_rewrite_plan *plan, ht_rewrite_values *values, int file, const char *path,
                                ht_error *err) {
    ht_rewrite_outputs o;
    const ht_gguf *from = plan->to_other ? NULL : plan->c->gguf;
    ht_json *metadata = plan->n_files > 1 ? part_metadata(plan, file, plan->n_files) : ht_json_incref(plan->metadata);
    ht_status status = ht_rewrite_outputs_list(plan, file, values, &o, err);
    if (!status && !metadata) status = ht_fail_memory(err, 0, path);
    if (!status && file)
        status = ht_gguf_write_part(path, from, metadata, o.tensor, o.n, ht_rewrite_output_values, &o, err);
    else if (!status && from)
        status = ht_gguf_rewrite(path, from, metadata, o.tensor, o.n, ht_rewrite_output_values, &o, err);
    else if (!status)
        status = ht_gguf_write(path, o.tensor, o.n, metadata, ht_rewrite_output_values, &o, err);
    ht_json_decref(metadata);
    ht_rewrite_outputs_free(&o);
    return status;
}

ht_status ht_rewrite_gguf_write_all(const ht_rewrite_plan *plan, ht_rewrite_values *values, const char *directory,
                                    ht_error *err) {
    ht_status status = HT_OK;
    for (int i = 0; !status && i < plan->n_files; i++) {
        char *path = ht_path_join(directory, plan->file[i]);
        status =
            path ? ht_rewrite_gguf_write(plan, values, i, path, err) : ht_fail_memory(err, strlen(directory), "a path");
        free(path);
    }
    return status;
}

ht_status ht_rewrite_gguf_write_set(const ht_rewrite_plan *plan, ht_rewrite_values *values, ht_error *err) {
    ht_file_set_writer *set;
    ht_status status = ht_file_set_writer_open(plan->out_path, &set, err);
    if (status) return status;
    status = ht_rewrite_gguf_write_all(plan, values, ht_file_set_writer_path(set), err);
    if (!status) return ht_file_set_writer_commit(set, (const char *const *)plan->file, plan->n_files, err);
    ht_file_set_writer_discard(set);
    return status;
}
