/* Writer of importance weights, as GGUF; the layout is that of importance_read.c. */
#include "base/checked.h"
#include "base/error.h"
#include "base/grow.h"
#include "formats/gguf_write.h"
#include "formats/importance.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TENSORS = 2 }; /* of a row: sums and counts */

typedef struct writing {
    const ht_importance *from;
    ht_tensor_output *tensor; /* [n][2] sums and counts of each row */
    int64_t (*shape)[TENSORS][2];
    char **name; /* [n][2] */
    float *counts;
} writing;

static ht_status values(void *user, int i, const void **bytes, ht_error *err) {
    writing *w = user;
    const ht_importance_row *r = &w->from->row[i / TENSORS];
    *bytes = r->sum;
    if (i % TENSORS == 0) return HT_OK;
    if (!HT_RESIZE(w->counts, r->n_experts))
        return ht_fail_memory(err, (size_t)r->n_experts * sizeof *w->counts, "counts");
    for (int64_t e = 0; e < r->n_experts; e++) w->counts[e] = (float)r->count[e];
    *bytes = w->counts;
    return HT_OK;
}

static char *joined(const char *a, const char *b) {
    const size_t n = strlen(a) + strlen(b) + 1;
    char *both = malloc(n);
    if (both) snprintf(both, n, "%s%s", a, b);
    return both;
}

static ht_status describe(writing *w, ht_error *err) {
    static const char *const ends[TENSORS] = {".in_sum2", ".counts"};
    const size_t n = (size_t)w->from->n * TENSORS;
    w->tensor = calloc(n, sizeof *w->tensor);
    w->shape = calloc((size_t)w->from->n, sizeof *w->shape);
    w->name = calloc(n, sizeof *w->name);
    bool made = w->tensor && w->shape && w->name;
    for (size_t i = 0; made && i < n; i++) {
        const ht_importance_row *r = &w->from->row[i / TENSORS];
        const size_t part = i % TENSORS;
        int64_t *shape = w->shape[i / TENSORS][part];
        shape[0] = r->n_experts;
        shape[1] = part == 0 ? r->n_columns : 1;
        made = (w->name[i] = joined(r->name, ends[part])) != NULL;
        w->tensor[i] = (ht_tensor_output){.name = w->name[i],
                                          .dtype = "F32",
                                          .rank = 2,
                                          .shape = shape,
                                          .n_bytes = (size_t)(shape[0] * shape[1]) * sizeof(float)};
    }
    return made ? HT_OK : ht_fail_memory(err, n * sizeof *w->tensor, "importance weights");
}

/* A number of 32 bits, in the metadata's form. */
static ht_json *u32(int64_t n) {
    return ht_json_pack("{ss sI}", "dtype", "u32", "value", (int64_t)ht_min_i64(n, UINT32_MAX));
}

/* The three keys besides the type are what llama.cpp asks of a file. NULL when memory ran out. */
static ht_json *metadata_of(const ht_importance *i) {
    ht_json *datasets = ht_json_new_array();
    bool whole = datasets != NULL;
    for (int64_t k = 0; k < i->n_datasets; k++)
        whole = ht_json_array_append_new(datasets, ht_json_string(i->dataset[k])) == 0 && whole;
    const int64_t chunk_tokens = i->chunk_tokens ? i->chunk_tokens : HT_IMPORTANCE_CHUNK;
    ht_json *all = ht_json_pack("{ss so so so}", "general.type", "imatrix", "imatrix.datasets", datasets,
                                "imatrix.chunk_count", u32(i->n_chunks), "imatrix.chunk_size", u32(chunk_tokens));
    if (whole) return all;
    ht_json_decref(all);
    return NULL;
}

ht_status ht_importance_save(const ht_importance *i, const char *path, ht_error *err) {
    writing w = {.from = i};
    if (i->n > INT32_MAX / TENSORS)
        return ht_fail(err, HT_ERR_LIMIT, "%s: %lld entries are too many", path, (long long)i->n);
    ht_json *metadata = metadata_of(i);
    ht_status status = metadata ? describe(&w, err) : ht_fail_memory(err, sizeof(ht_json), "metadata");
    if (!status) status = ht_gguf_write(path, w.tensor, (int)i->n * TENSORS, metadata, values, &w, err);
    for (int64_t k = 0; w.name && k < i->n * TENSORS; k++) free(w.name[k]);
    free(w.name);
    free(w.shape);
    free(w.tensor);
    free(w.counts);
    ht_json_decref(metadata);
    return status;
}
