/* Directories of safetensors, cut short and with bits turned over, file by file: config.json, index, headers of shards. What
 * does not load says why, and nothing is left behind. GGUF files: test_model.c. */
#include "base/file.h"
#include "support/options.h"
#include "support/scratch.h"
#include "support/test.h"

#include <hearth/hearth.h>

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FILES = 16, MB = 1 << 20 };

static ht_device *device;

typedef struct sample_file {
    char name[256];
    char *bytes;
    size_t size, header; /* of which damage is of interest: all of it, or a safetensors header */
} sample_file;

static int open_device(void **state) {
    (void)state;
    ht_error err = {0};
    return ht_device_open("cpu", OPTIONS_AT(ht_device_options, with.n_threads = 1), &device, &err) != HT_OK;
}

static int close_device(void **state) {
    (void)state;
    ht_device_free(device);
    return 0;
}

static bool is_safetensors(const sample_file *f) {
    return strstr(f->name, ".safetensors") && !strstr(f->name, ".json");
}

/* Copies a checkpoint to the scratch directory. */
static int copy_all(const char *from, sample_file files[FILES]) {
    int n = 0;
    DIR *dir = opendir(from);
    if (!dir) fail_msg("%s cannot be read; run the tests from the repository root", from);
    for (struct dirent *e; (e = readdir(dir));) {
        if (e->d_name[0] == '.' || !strcmp(e->d_name, "reference.json")) continue;
        sample_file *f = &files[n++];
        assert_true(n <= FILES);
        char *path = ht_path_join(from, e->d_name);
        snprintf(f->name, sizeof f->name, "%s", e->d_name);
        assert_works(ht_file_read_all, path, MB, &f->bytes, &f->size);
        free(path);
        f->header = f->size;
        if (is_safetensors(f)) f->header = 8 + ((unsigned char)f->bytes[0] | (size_t)(unsigned char)f->bytes[1] << 8);
        scratch_write(f->name, f->bytes, f->size);
    }
    closedir(dir);
    return n;
}

static bool loads(void) {
    ht_error err = {0};
    ht_model *m;
    const ht_model_options how =
        OPTIONS(ht_model_options, with.device = device, with.precision = HT_PRECISION_REFERENCE);
    ht_status status = ht_model_load(scratch_directory(), &how, &m, &err);
    if (status) {
        assert_null(m);
        assert_true(err.status == status && err.message[0]);
    }
    ht_model_free(m);
    return !status;
}

static void damage(const sample_file *f, int *n_refused) {
    const size_t cuts = (size_t)test_cases(20, 600), flips = (size_t)test_cases(60, 6000);
    for (size_t n = 0; n < f->size; n += n < f->header ? 1 + f->header / cuts : 99991) {
        scratch_write(f->name, f->bytes, n);
        bool fine = loads();
        *n_refused += !fine;
        if (is_safetensors(f)) assert_false(fine); /* a text may end in a line feed */
    }
    for (size_t bit = 0; bit < 8 * f->header; bit += 1 + 8 * f->header / flips) {
        f->bytes[bit / 8] ^= (char)(1 << bit % 8);
        scratch_write(f->name, f->bytes, f->size);
        *n_refused += !loads();
        f->bytes[bit / 8] ^= (char)(1 << bit % 8);
    }
    remove(scratch_path(f->name));
    *n_refused += !loads(); /* an index beside a single file is not needed */
    scratch_write(f->name, f->bytes, f->size);
}

static void damaged_checkpoints(void **state) {
    sample_file files[FILES];
    char from[128];
    snprintf(from, sizeof from, "tests/golden/tiny/%s", (const char *)*state);
    scratch_make();
    int n = copy_all(from, files), n_refused = 0;
    size_t before = ht_memory_get(device).active_bytes;
    assert_true(loads());
    for (int i = 0; i < n; i++) damage(&files[i], &n_refused);
    assert_true(n_refused > 50);
    assert_true(loads());
    ht_memory_clear_cache(device);
    assert_int_equal(ht_memory_get(device).active_bytes, before);
    for (int i = 0; i < n; i++) free(files[i].bytes);
    scratch_remove();
}

int main(void) {
    static const char *const names[] = {"llama-mlx4-bf16",
                                        "qwen3-moe-mlx4-bf16",
                                        "qwen2-nvfp4",
                                        "qwen3-mxfp8",
                                        "llama-fp8-blocks",
                                        "llama-llama3-f16-shards",
                                        "gemma4-shared-bf16",
                                        "llama-modelopt-nvfp4",
                                        "qwen3-moe-modelopt-nvfp4-stacked",
                                        "mistral-compressed-mixed",
                                        "qwen3-compressed-fp8-block"};
    enum { N = sizeof names / sizeof *names };
    struct CMUnitTest tests[N];
    for (int i = 0; i < N; i++)
        tests[i] = (struct CMUnitTest){names[i], damaged_checkpoints, NULL, NULL, (void *)(uintptr_t)names[i]};
    return cmocka_run_group_tests(tests, open_device, close_device);
}
