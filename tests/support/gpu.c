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

/* ---- kernels ---- */

void *beside_alloc(ht_device *d, size_t bytes) {
    void *p;
    ht_error err = {0};
    must(ht_memory_alloc(d->memory, bytes, "a test", &p, &err), &err);
    return p;
}

/* Elements between the lowest and the highest of a view; *below: how many of them are below `data`. */
static int64_t extent(const ht_view *v, int64_t *below) {
    int64_t low = 0, high = 0;
    *below = 0;
    if (ht_view_size(v) == 0) return 0;
    for (int i = 0; i < v->n_dims; i++) {
        const int64_t last = (v->shape[i] - 1) * v->stride[i];
        if (last < 0) low += last;
        if (last > 0) high += last;
    }
    *below = -low;
    return high - low + 1;
}

typedef struct copied {
    ht_view view;
    void *memory;
    size_t bytes;
} copied;

/* A view of the device's memory with the contents of one of the host's. */
static copied copy_to(ht_device *d, const ht_view *v) {
    if (ht_view_absent(v)) return (copied){.view = *v};
    int64_t below;
    ht_error err = {0};
    const size_t size = ht_dtype_bytes(v->dtype), n = (size_t)extent(v, &below);
    copied c = {.view = *v, .bytes = n * size + 1};
    c.memory = beside_alloc(d, c.bytes);
    if (n) must(ht_memory_write(d->memory, c.memory, (char *)v->data - (size_t)below * size, n * size, &err), &err);
    c.view.data = (char *)c.memory + (size_t)below * size;
    return c;
}

ht_status beside_run(ht_device *d, ht_op_id op, const void *params, int n_in, const ht_view *in, const ht_view *out,
                     const ht_step *step, bool in_place, ht_error *err) {
    copied inputs[8];
    ht_view views[8];
    for (int i = 0; i < n_in; i++) {
        inputs[i] = copy_to(d, &in[i]);
        views[i] = inputs[i].view;
    }
    copied result = copy_to(d, out);
    if (in_place) result.view.data = views[0].data;
    ht_call call = {.params = params, .n_in = n_in, .in = views, .out = result.view, .step = step, .device = d};
    const size_t bytes = d->kernels[op].scratch ? d->kernels[op].scratch(&call) : 0;
    call.scratch = beside_alloc(d, bytes);
    const unsigned state = d->begin(d);
    ht_status status = d->kernels[op].run(&call, err);
    ht_mark failed;
    if (d->queue) {
        const ht_status later = d->queue->wait(d, d->queue->mark(d), &failed, err);
        status = status ? status : later;
    }
    d->end(d, state);
    const size_t n = (size_t)ht_view_size(out) * ht_dtype_bytes(out->dtype);
    if (!status && n) status = ht_memory_read(d->memory, out->data, result.view.data, n, err);
    ht_memory_free(d->memory, call.scratch, bytes);
    ht_memory_free(d->memory, result.memory, result.bytes);
    for (int i = 0; i < n_in; i++) ht_memory_free(d->memory, inputs[i].memory, inputs[i].bytes);
    return status;
}

void beside_run_ok(ht_device *d, ht_op_id op, const void *params, int n_in, const ht_view *in, const ht_view *out,
                   const ht_step *step) {
    ht_error err = {0};
    must(beside_run(d, op, params, n_in, in, out, step, false, &err), &err);
}
