/* Checkpoints through their other container: Hearth's own logits are the same bits before and after. */
#include "support/model_run.h"
#include "support/options.h"
#include "support/scratch.h"
#include "support/test.h"

#include <hearth/convert.h>

#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TOKENS = 24 };

static ht_device *device;

static int open_device(void **state) {
    (void)state;
    ht_error err = {0};
    return ht_device_open("cpu", OPTIONS_AT(ht_device_options, with.n_threads = 2), &device, &err) != HT_OK;
}

static int close_device(void **state) {
    (void)state;
    ht_device_free(device);
    return 0;
}

static const char *tiny(const char *name) {
    static char path[512];
    snprintf(path, sizeof path, "tests/golden/tiny/%s", name);
    return path;
}

/* ---- logits ---- */

typedef struct logits {
    float *value; /* [n] */
    int64_t n;
} logits;

static logits logits_of(const char *path) {
    ht_model_options options = OPTIONS(ht_model_options, with.device = device, with.precision = HT_PRECISION_REFERENCE,
                                       with.kv_dtype = HT_F32);
    ht_error err = {0};
    ht_model *m;
    if (ht_model_load(path, &options, &m, &err)) fail_msg("%s", err.message);
    int32_t ids[TOKENS];
    for (int i = 0; i < TOKENS; i++) ids[i] = (int32_t)((i * 37 + 11) % m->vocab);
    /* A window that GGUF cannot express limits the context instead. */
    const int64_t n = ht_model_context(m) < TOKENS ? ht_model_context(m) : TOKENS;
    logits out = {calloc((size_t)(TOKENS * m->vocab), sizeof(float)), n * m->vocab};
    assert_non_null(out.value);
    model_run r = model_run_open(m, n, TOKENS);
    model_run_feed(&r, ids, n, out.value);
    model_run_close(&r);
    ht_model_free(m);
    return out;
}

/* most: of the largest difference, in shares of the largest logit; 0: the same bits. */
static void same_logits(const char *name, const logits *a, const logits *b, double most) {
    const int64_t n = a->n < b->n ? a->n : b->n;
    double difference = 0, largest = 0;
    for (int64_t i = 0; i < n; i++) {
        difference = fmax(difference, fabs((double)a->value[i] - (double)b->value[i]));
        largest = fmax(largest, fabs((double)a->value[i]));
    }
    assert_true(n > 0 && largest > 0);
    if (most > 0 ? !(difference <= most * largest) : memcmp(a->value, b->value, (size_t)n * sizeof(float)) != 0)
        fail_msg("%s: logits differ by %g of %g", name, difference, largest);
}

/* ---- converting ---- */

static ht_status convert(const char *from, const char *to, ht_container container, const char *type, ht_dtype dtype,
                         ht_convert_report *report, ht_error *err) {
    ht_convert_options o = OPTIONS(ht_convert_options, with.container = container, with.type = type, with.dtype = dtype,
                                   with.report = report, with.n_threads = 2);
    return ht_convert(from, to, &o, err);
}

static void must_convert(const char *from, const char *to, ht_container container, ht_convert_report *report) {
    ht_error err = {0};
    if (convert(from, to, container, NULL, HT_DTYPE_NONE, report, &err)) fail_msg("%s: %s", from, err.message);
}

/* Scales of products are multiplied into weights that become floats, which rounds to another order of factors. */
static double tolerance_of(const char *name) {
    static const char *const scaled[] = {"nvfp4", "fp8", "mxfp8", "compressed"};
    for (size_t i = 0; i < sizeof scaled / sizeof *scaled; i++)
        if (strstr(name, scaled[i])) return 1e-5;
    return 0;
}

static void gguf_to_directories(const char *name) {
    const double most = tolerance_of(name);
    logits before = logits_of(tiny(name));
    static const ht_container containers[] = {HT_CONTAINER_SAFETENSORS, HT_CONTAINER_MLX};
    for (int i = 0; i < 2; i++) {
        char to[300], back[300];
        snprintf(to, sizeof to, "%s", scratch_path(i ? "mlx" : "directory"));
        snprintf(back, sizeof back, "%s", scratch_path("back.gguf"));
        ht_convert_report report;
        must_convert(tiny(name), to, containers[i], &report);
        logits after = logits_of(to);
        same_logits(name, &before, &after, most);
        must_convert(to, back, HT_CONTAINER_GGUF, &report);
        logits again = logits_of(back);
        same_logits(name, &after, &again, 0);
        free(after.value);
        free(again.value);
    }
    free(before.value);
}

/* What GGUF has no words for. */
static bool is_refused(const char *message) {
    return strstr(message, "norm_topk_prob") || strstr(message, "vocab_size_per_layer_input");
}

static void directory_to_gguf(const char *name, int *n_refused) {
    char to[300], back[300];
    ht_convert_report report;
    ht_error err = {0};
    snprintf(to, sizeof to, "%s", scratch_path("model.gguf"));
    snprintf(back, sizeof back, "%s", scratch_path("back"));
    if (convert(tiny(name), to, HT_CONTAINER_GGUF, NULL, HT_DTYPE_NONE, &report, &err)) {
        if (err.status != HT_ERR_UNSUPPORTED || !is_refused(err.message)) fail_msg("%s: %s", name, err.message);
        *n_refused += 1;
        return;
    }
    logits before = logits_of(tiny(name)), after = logits_of(to);
    same_logits(name, &before, &after, tolerance_of(name));
    must_convert(to, back, HT_CONTAINER_SAFETENSORS, &report);
    logits again = logits_of(back);
    same_logits(name, &after, &again, 0);
    free(before.value);
    free(after.value);
    free(again.value);
}

static void every_tiny_checkpoint(void **state) {
    (void)state;
    DIR *all = opendir("tests/golden/tiny");
    assert_non_null(all);
    int n_files = 0, n_directories = 0, n_refused = 0;
    for (const struct dirent *e; (e = readdir(all));) {
        const size_t n = strlen(e->d_name);
        if (n > 5 && !strcmp(e->d_name + n - 5, ".gguf")) {
            gguf_to_directories(e->d_name);
            n_files++;
        } else if (e->d_name[0] != '.' && !strchr(e->d_name, '.')) {
            directory_to_gguf(e->d_name, &n_refused);
            n_directories++;
        }
    }
    closedir(all);
    assert_true(n_files > 10 && n_directories - n_refused > 40);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(every_tiny_checkpoint, scratch_start, scratch_finish),
    };
    return cmocka_run_group_tests(tests, open_device, close_device);
}
