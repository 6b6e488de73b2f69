#include "support/metadata_file.h"

#include "checkpoint/convert_metadata.h"
#include "checkpoint/stored_weights.h"
#include "formats/gguf_write.h"
#include "support/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TENSORS_MAX = 512, NAME_SIZE = 64, FACTORS = HT_ROPE_LENGTHS + 1 };

typedef struct tensor_list {
    char name[TENSORS_MAX][NAME_SIZE];
    int64_t shape[TENSORS_MAX][2];
    ht_tensor_output tensor[TENSORS_MAX];
    int n;
    float *factors[FACTORS], *zeros;
} tensor_list;

/* The tensors of RoPE divisors. */
static const char *factors_name(int k) { return k < HT_ROPE_LENGTHS ? ht_rope_length_factors[k] : HT_ROPE_FACTORS; }

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
    add(list, "token_embd.weight", c->vocab, 1);
    ht_gguf_names_visit(c, add_name, list);
    for (int k = 0; k < FACTORS; k++) {
        int64_t n = 0;
        ht_error err = {0};
        if (ht_gguf_rope_factors(c, factors_name(k), &list->factors[k], &n, &err)) fail_msg("%s", err.message);
        if (list->factors[k]) add(list, factors_name(k), 0, n);
    }
}

static ht_status values_of(void *user, int i, const void **bytes, ht_error *err) {
    const tensor_list *list = user;
    (void)err;
    *bytes = list->zeros;
    for (int k = 0; k < FACTORS; k++)
        if (!strcmp(list->name[i], factors_name(k))) *bytes = list->factors[k];
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
    for (int k = 0; k < FACTORS; k++) free(list->factors[k]);
    free(list->zeros);
    free(list);
}
