/* Trains an adapter as a description of make_train.py says, for scripts that compare it with other libraries (train_real.py,
 * adapters.py):
 *
 *     train_steps MODEL ADAPTER DESCRIPTION OUT [reference|high|fast] [f32|bf16]
 *
 * writes the gradients of the first batch to OUT/gradients and the trained adapter to OUT/trained, both in PEFT's files, and
 * prints {"losses": [...], "norms": [...]}. */
#include "models/model.h"
#include "support/test.h"
#include "support/train_run.h"

#include <stdio.h>
#include <string.h>

static void save(const ht_trainable *t, const ht_model *m, const char *folder, const char *name) {
    char path[4096];
    ht_adapter *a;
    ht_error err = {0};
    snprintf(path, sizeof path, "%s/%s", folder, name);
    if (ht_trainable_adapter(t, &a, &err) || ht_adapter_save(a, m, path, HT_ADAPTER_PEFT, &err))
        fail_msg("%s", err.message);
    ht_adapter_free(a);
}

/* The gradients in the places of A and B, which PEFT's files then have the names for. */
static void save_gradients(const train_run *r, ht_model *m, const char *adapter, const char *folder) {
    ht_error err = {0};
    ht_trainable *t = train_run_trainable(m, adapter, HT_F32);
    const int n = ht_trainable_count(t);
    ht_array **grads = calloc((size_t)n, sizeof *grads);
    assert_non_null(grads);
    ht_scope *s = ht_scope_new(m->stream);
    (void)train_run_gradients(r, t, s, false, grads);
    if (ht_array_eval(s, grads, n, &err) || ht_trainable_set(t, grads, &err)) fail_msg("%s", err.message);
    save(t, m, folder, "gradients");
    ht_scope_free(s);
    free(grads);
    ht_trainable_free(t);
}

static void print_list(const char *key, const double *x, int n) {
    printf("\"%s\": [", key);
    for (int i = 0; i < n; i++) printf("%s%.9g", i ? ", " : "", x[i]);
    printf("]");
}

int main(int argc, char **argv) {
    if (argc < 5) {
        fprintf(stderr, "usage: train_steps MODEL ADAPTER DESCRIPTION OUT [reference|high|fast] [f32|bf16]\n");
        return 2;
    }
    const char *precision = argc > 5 ? argv[5] : "reference";
    const ht_dtype dtype = argc > 6 && !strcmp(argv[6], "bf16") ? HT_BF16 : HT_F32;
    ht_model *m = train_run_model(argv[1], !strcmp(precision, "high")   ? HT_PRECISION_HIGH
                                           : !strcmp(precision, "fast") ? HT_PRECISION_FAST
                                                                        : HT_PRECISION_REFERENCE);
    train_run r = train_run_open(argv[3]);
    save_gradients(&r, m, argv[2], argv[4]);
    ht_trainable *t = train_run_trainable(m, argv[2], dtype);
    double *losses = calloc(2 * (size_t)r.steps + 2, sizeof *losses), *norms = losses + r.steps + 1;
    train_run_steps(&r, t, m->stream, false, losses, norms);
    save(t, m, argv[4], "trained");
    printf("{");
    print_list("losses", losses, r.steps + 1);
    printf(", ");
    print_list("norms", norms, r.steps + 1);
    printf("}\n");
    free(losses);
    ht_trainable_free(t);
    train_run_close(&r);
    ht_model_free(m);
    return 0;
}
