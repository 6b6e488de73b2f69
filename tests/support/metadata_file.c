#include "support/metadata_file.h"

#include "checkpoint/convert_metadata.h"
#include "checkpoint/stored_weights.h"
#include "formats/gguf_write.h"
#include "support/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TENSORS_MAX = 512, NAME_SIZE = 64 };

typedef struct tensor_list {
    char name[TENSORS_MAX][NAME_SIZE];
    int64_t shape[TENSORS_MAX][2];
    ht_tensor_output tensor[TENSORS_MAX];
    int n;
    float *factors, *zeros;
} tensor_list;

static void add(tensor_list *list, const char *name, int64_t rows, int64_t columns) {
    assert_true(list->n < TENSORS_MAX);
    const int i = list->n++;
    snprintf(list->name[i], NAME_SIZE, "%s", name);
    list->shape[i][0] = rows ? rows : columns;
    list->shape[i][1] = columns;
    list->tensor[i] = (ht_tensor_output){.name = list->name[i],
                                         .dtype = "F32",
                                         .rank = rows ? 2 : 1,
                                         .shape = list->shape[i],
                                         .n_bytes = (size_t)((rows ? rows : 1) * columns) * sizeof(float)};
}

static void add_name(const char *name, void *list) { add(list, name, 0, 1); }

static void list_tensors(tensor_list *list, const ht_config *c) {
    int64_t n_factors = 0;
    ht_error err = {0};
    add(list, "token_embd.weight", c->vocab, 1);
    ht_gguf_names_visit(c, add_name, list);
    if (ht_gguf_rope_factors(c, &list->factors, &n_factors, &err)) fail_msg("%s", err.message);
    if (list->factors) add(list, HT_ROPE_FACTORS, 0, n_factors);
}

static ht_status values_of(void *user, int i, const void **bytes, ht_error *err) {
    const tensor_list *list = user;
    (void)err;
    *bytes = strcmp(list->name[i], HT_ROPE_FACTORS) ? list->zeros : list->factors;
    return HT_OK;
}

void metadata_file_write(const char *path, ht_json *metadata, const ht_config *config) {
    tensor_list *list = calloc(1, sizeof *list);
    assert_non_null(list);
    if (config) {
        list_tensors(list, config);
        list->zeros = calloc((size_t)config->vocab, sizeof *list->zeros);
        assert_non_null(list->zeros);
    }
    ht_error err = {0};
    if (ht_gguf_write(path, list->tensor, list->n, metadata, values_of, list, &err)) fail_msg("%s", err.message);
    free(list->factors);
    free(list->zeros);
    free(list);
}
