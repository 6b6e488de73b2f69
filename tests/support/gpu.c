#include "support/gpu.h"

#include "cpu/cpu.h"
#include "support/operands.h"
#include "support/test.h"

#include <hearth/ops.h>

#include <dlfcn.h>
#include <stdlib.h>

ht_device *beside_device[DEVICES];
ht_stream *beside_stream[DEVICES];

void must(ht_status status, const ht_error *err) {
    if (status) fail_msg("%s", err->message);
}

int beside_open(void **state) {
    (void)state;
    ht_error err = {0};
    must(ht_cpu_device_new(1, "reference", &beside_device[CPU], &err), &err);
    const bool has_driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL) != NULL;
    if (has_driver) must(ht_device_open("cuda", NULL, &beside_device[GPU], &err), &err);
    for (int i = 0; i < DEVICES; i++)
        if (beside_device[i]) must(ht_stream_new(beside_device[i], &beside_stream[i], &err), &err);
    return 0;
}

int beside_close(void **state) {
    (void)state;
    for (int i = 0; i < DEVICES; i++) {
        ht_stream_free(beside_stream[i]);
        ht_device_free(beside_device[i]);
    }
    return 0;
}

/* ---- arrays ---- */

ht_array *beside_array(ht_scope *s, const operand *o) {
    const ht_view *v = &o->view;
    const int64_t first = ((char *)v->data - (char *)o->memory) / (int64_t)ht_dtype_bytes(v->dtype);
    return ht_as_strided(s, ht_array_from(s, o->memory, v->dtype, &o->room, 1), v->shape, v->stride, v->n_dims, first);
}

void *beside_read(ht_scope *s, ht_array *a) {
    ht_error err = {0};
    if (!a) fail_msg("%s", ht_scope_error(s)->message);
    const size_t bytes = (size_t)ht_array_size(a) * ht_dtype_bytes(ht_array_dtype(a));
    void *out = malloc(bytes + 1);
    must(ht_array_read(s, a, out, bytes, &err), &err);
    return out;
}

beside_results beside_make(beside_build_fn *build, const void *how) {
    beside_results r = {0};
    for (int i = 0; i < DEVICES; i++) {
        ht_scope *s = ht_scope_new(beside_stream[i]);
        ht_array *a = build(s, how);
        r.of[i] = beside_read(s, a);
        r.size = ht_array_size(a);
        r.dtype = ht_array_dtype(a);
        ht_scope_free(s);
    }
    return r;
}

void beside_free(beside_results *r) {
    for (int i = 0; i < DEVICES; i++) free(r->of[i]);
}

void beside_same(const char *what, beside_build_fn *build, const void *how) {
    beside_results r = beside_make(build, how);
    for (int64_t i = 0; i < r.size; i++)
        if (!test_alike(r.dtype, r.of[CPU], r.of[GPU], i, 0))
            fail_msg("%s: element %lld of %s differs", what, (long long)i, ht_dtype_name(r.dtype));
    beside_free(&r);
}
