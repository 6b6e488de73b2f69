#include "support/checkpoints.h"

#include "base/text.h"
#include "checkpoint/stored_weights.h"
#include "support/model_run.h"
#include "support/options.h"
#include "support/test.h"

#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TOKENS = 24 };

const char *tiny_checkpoint(const char *name) {
    enum { VALID = 16 };
    static char path[VALID][512];
    static unsigned turn;
    char *out = path[turn++ % VALID];
    snprintf(out, sizeof path[0], "tests/golden/tiny/%s", name);
    return out;
}

void checkpoint_may_refuse(const char *path, const ht_error *err) {
    static const struct {
        const char *name, *says; /* beginning of the name, part of the message */
    } refusals[] = {{"qwen3-moe", "norm_topk_prob"},
                    {"gemma4", "vocab_size_per_layer_input"},
                    {"llama4", "cannot express that the period of the temperature"}};
    const bool is_golden = !strncmp(path, "tests/", 6); /* else converted once */
    for (size_t i = 0; err->status == HT_ERR_UNSUPPORTED && i < sizeof refusals / sizeof *refusals; i++)
        if (strstr(err->message, refusals[i].says) &&
            (!is_golden || !strncmp(strrchr(path, '/') + 1, refusals[i].name, strlen(refusals[i].name))))
            return;
    fail_msg("%s: %s", path, err->message);
}

typedef void checkpoint_fn(const char *name, bool is_file, void *user);

/* Calls fn for the checkpoints of a directory, by their paths or names; those that `list` selects, if there is one. */
static void each(const char *directory, bool by_path, const char *list, int n[2], checkpoint_fn *fn, void *user) {
    DIR *all = opendir(directory);
    assert_non_null(all);
    for (const struct dirent *e; (e = readdir(all));) {
        const bool is_file = ht_ends_with(e->d_name, ".gguf");
        char path[512];
        if (*e->d_name == '.' || (!is_file && strchr(e->d_name, '.'))) continue;
        if (list && !checkpoint_is_listed(list, e->d_name)) continue;
        snprintf(path, sizeof path, "%s/%.200s", directory, e->d_name);
        fn(by_path ? path : e->d_name, is_file, user);
        n[is_file]++;
    }
    closedir(all);
}

void tiny_checkpoints_each(checkpoint_fn *fn, void *user) {
    int n[2] = {0};
    each("tests/golden/tiny", false, NULL, n, fn, user);
    assert_true(n[true] > 10 && n[false] > 40);
}

bool checkpoint_is_listed(const char *list, const char *name) {
    for (const char *item = list; *item;) {
        const size_t n = strcspn(item, ",");
        if (n && !strncmp(name, item, n) && strchr("-.", name[n])) return true;
        item += n + (item[n] == ',');
    }
    return false;
}

typedef struct readable {
    checkpoint_fn *fn;
    void *user;
    int n;
} readable;

/* What cannot be read fails in test_golden_families. */
static void call_if_readable(const char *path, bool is_file, void *user) {
    readable *r = user;
    ht_checkpoint_files *c;
    ht_config config;
    if (ht_checkpoint_open(path, &c, NULL)) return;
    const bool reads =
        !ht_checkpoint_config(c, &config, NULL) && !ht_stored_weights_visit(c, &config, false, NULL, NULL, NULL);
    ht_checkpoint_close(c);
    if (!reads) return;
    r->fn(path, is_file, r->user);
    r->n++;
}

void family_checkpoints_each(checkpoint_fn *fn, void *user) {
    const char *list = getenv("HEARTH_TEST_FAMILIES");
    int n[2] = {0};
    readable r = {fn, user, 0};
    each("tests/golden/families", true, list, n, call_if_readable, &r);
    assert_true(r.n > (list ? 0 : 80));
}

ht_model *tiny_checkpoint_load(const char *name, int n_threads, const ht_model_options *o) {
    ht_model_options how = o ? *o : OPTIONS(ht_model_options);
    ht_error err = {0};
    ht_model *m = NULL;
    if (ht_device_open("cpu", OPTIONS_AT(ht_device_options, with.n_threads = n_threads), &how.device, &err) ||
        ht_model_load(tiny_checkpoint(name), &how, &m, &err))
        fail_msg("%s: %s", name, err.message);
    ht_device_free(how.device);
    return m;
}

int32_t *checkpoint_ids(const ht_model *m, int n, int salt) {
    int32_t *ids = malloc((size_t)n * sizeof *ids);
    assert_non_null(ids);
    for (int i = 0; i < n; i++) ids[i] = (int32_t)((uint32_t)(i * 7919 + i * i * 31 + salt) % (uint32_t)m->vocab);
    return ids;
}

/* ---- tensors ---- */

ht_checkpoint_files *checkpoint_files(const char *path) {
    ht_checkpoint_files *c;
    assert_works(ht_checkpoint_open, path, &c);
    return c;
}

const char *checkpoint_type(const char *path, const char *name) {
    ht_checkpoint_files *c = checkpoint_files(path);
    ht_stored_tensor t;
    if (!ht_checkpoint_find(c, name, &t)) fail_msg("%s: no %s", path, name);
    const char *type = ht_weight_type_info_of((ht_weight_type)t.type)->name;
    ht_checkpoint_close(c);
    return type;
}

unsigned char *checkpoint_bytes(const ht_checkpoint_files *c, const ht_safetensor *t) {
    unsigned char *bytes = malloc(t->n_bytes + 1);
    assert_non_null(bytes);
    assert_works(ht_file_read_at, ht_safetensors_file(c->tensors, t->file), t->offset, bytes, t->n_bytes);
    return bytes;
}

void checkpoints_same_tensors(const char *first, const char *second) {
    ht_checkpoint_files *a = checkpoint_files(first), *b = checkpoint_files(second);
    assert_int_equal(ht_checkpoint_n_tensors(a), ht_checkpoint_n_tensors(b));
    for (size_t i = 0; i < ht_checkpoint_n_tensors(a); i++) {
        const ht_safetensor *x = ht_safetensors_at(a->tensors, i), *y = ht_safetensors_find(b->tensors, x->name);
        if (!y) fail_msg("%s: no `%s`", second, x->name);
        if (strcmp(x->dtype, y->dtype) != 0) fail_msg("%s: `%s` is %s, not %s", second, x->name, y->dtype, x->dtype);
        if (x->rank != y->rank || memcmp(x->shape, y->shape, (size_t)x->rank * sizeof *x->shape) != 0)
            fail_msg("%s: `%s` has another shape", second, x->name);
        unsigned char *p = checkpoint_bytes(a, x), *q = checkpoint_bytes(b, y);
        if (memcmp(p, q, x->n_bytes) != 0) fail_msg("%s: `%s` has other bytes", second, x->name);
        free(p);
        free(q);
    }
    ht_checkpoint_close(a);
    ht_checkpoint_close(b);
}

/* ---- logits ---- */

checkpoint_logits checkpoint_logits_of(const char *path, ht_device *device) {
    ht_model_options options = OPTIONS(ht_model_options, with.device = device, with.precision = HT_PRECISION_REFERENCE,
                                       with.kv_dtype = HT_F32);
    ht_error err = {0};
    ht_model *m;
    if (ht_model_load(path, &options, &m, &err)) fail_msg("%s", err.message);
    int32_t ids[TOKENS];
    for (int i = 0; i < TOKENS; i++) ids[i] = (int32_t)((i * 37 + 11) % m->vocab);
    /* A window that GGUF cannot express limits the context instead. */
    const int64_t n = ht_model_context(m) < TOKENS ? ht_model_context(m) : TOKENS;
    checkpoint_logits out = {calloc((size_t)(TOKENS * m->vocab), sizeof(float)), n * m->vocab};
    assert_non_null(out.value);
    model_run r = model_run_open(m, n, TOKENS);
    model_run_feed(&r, ids, n, out.value);
    model_run_close(&r);
    ht_model_free(m);
    return out;
}

void checkpoint_same_logits(const char *name, const checkpoint_logits *a, const checkpoint_logits *b, double most) {
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

void checkpoints_same_logits(const char *first, const char *second, ht_device *device, double most) {
    checkpoint_logits a = checkpoint_logits_of(first, device), b = checkpoint_logits_of(second, device);
    checkpoint_same_logits(second, &a, &b, most);
    free(a.value);
    free(b.value);
}
