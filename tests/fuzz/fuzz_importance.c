/* Files of importance weights in both forms. What is accepted has mean squares that a quantiser can use, can be added to itself, and
 * says the same when it is written and read again. */
#include "files.h"
#include "formats/importance.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static void check_entry(const ht_importance *i, const ht_importance_entry *e) {
    check(e->name[0] && e->n_columns >= 1 && e->n_experts >= 1);
    check(!ht_importance_find(i, e->name, e->n_columns, e->n_experts));
    check(!ht_importance_check(i, e->name, e->n_columns, e->n_experts, NULL));
    for (int64_t x = 0; x < e->n_experts; x++) {
        const float *mean = ht_importance_find(i, e->name, e->n_columns, x);
        check(mean && isfinite(e->count[x]) && e->count[x] >= 0);
        for (int64_t c = 0; c < e->n_columns; c++) {
            check(isfinite(mean[c]) && mean[c] >= 0 && (e->count[x] > 0 || mean[c] == 1));
            check(isfinite(e->sum[x * e->n_columns + c]));
        }
    }
}

static void check_all(const ht_importance *i) {
    const ht_importance_info info = ht_importance_get_info(i);
    check(info.n_entries >= 1 && info.n_chunks >= 0 && info.chunk_tokens >= 0);
    for (int64_t k = 0; k < info.n_datasets; k++) check(info.datasets[k][0]);
    for (int64_t k = 0; k < info.n_entries; k++) {
        const ht_importance_entry e = ht_importance_entry_at(i, k);
        check_entry(i, &e);
    }
}

static void check_same(const ht_importance *a, const ht_importance *b) {
    const int64_t n = ht_importance_get_info(a).n_entries;
    check(n == ht_importance_get_info(b).n_entries);
    for (int64_t k = 0; k < n; k++) {
        const ht_importance_entry x = ht_importance_entry_at(a, k), y = ht_importance_entry_at(b, k);
        check(!strcmp(x.name, y.name) && x.n_columns == y.n_columns && x.n_experts == y.n_experts);
        check(!memcmp(x.sum, y.sum, (size_t)(x.n_columns * x.n_experts) * sizeof *x.sum));
    }
}

static void save_and_load(const ht_importance *i) {
    char path[96];
    ht_error err = {0};
    ht_importance *again;
    snprintf(path, sizeof path, "%s/saved.gguf", files_begin());
    if (ht_importance_save(i, path, &err)) {
        check(err.message[0]); /* names that are too long for a suffix, or collide with it */
    } else if (!ht_importance_load(path, &again, &err)) {
        check_all(again);
        check_same(i, again);
        ht_importance_free(again);
    } else {
        check(err.message[0]); /* counts that f32 rounds can bring means out of range */
    }
    unlink(path);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    ht_importance *i, *sum;
    ht_error err = {0};
    ht_status status = ht_importance_parse(data, size, "file", &i, &err);
    if (refused(status, &err, i)) return 0;
    check_all(i);
    save_and_load(i);
    status = ht_importance_merge((const ht_importance *[]){i, i}, 2, &sum, &err);
    if (!refused(status, &err, sum)) check_all(sum);
    ht_importance_free(sum);
    ht_importance_free(i);
    return 0;
}
