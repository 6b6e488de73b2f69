#include "support/kernels.h"

#include "cpu/cpu.h"
#include "cpu/element.h"
#include "cpu/isa.h"
#include "support/test.h"
#include "support/weights.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

int test_devices(int threads, ht_device *out[TEST_MAX_DEVICES]) {
    enum { MOST_THREADS = 4 };
    static ht_device
        *kept[MOST_THREADS + 1][TEST_MAX_DEVICES]; /* starting threads for every case would take the time */
    static int n_kept[MOST_THREADS + 1];
    assert_true(threads >= 1 && threads <= MOST_THREADS);
    if (n_kept[threads] == 0)
        for (int i = 0; i < HT_CPU_ISA_COUNT; i++) {
            ht_error err = {0};
            if (!ht_cpu_isa_available((ht_cpu_isa)i)) continue;
            ht_device **d = &kept[threads][n_kept[threads]++];
            if (ht_cpu_device_new(threads, ht_cpu_isa_name((ht_cpu_isa)i), d, &err) != HT_OK)
                fail_msg("%s", err.message);
        }
    memcpy(out, kept[threads], sizeof kept[threads]);
    return n_kept[threads];
}

void *test_room(size_t bytes) {
    void *p = malloc(bytes ? bytes : 1);
    assert_non_null(p);
    return p;
}

void *test_room_on(ht_device *d, size_t bytes) {
    void *p;
    if (!d->memory->ops) return test_room(bytes);
    assert_int_equal(ht_memory_alloc(d->memory, bytes, "a test", &p, NULL), HT_OK);
    return p;
}

void test_room_free(ht_device *d, void *p, size_t bytes) {
    if (d->memory->ops)
        ht_memory_free(d->memory, p, bytes);
    else
        free(p);
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
    const size_t size = ht_dtype_bytes(v->dtype), n = (size_t)extent(v, &below);
    copied c = {.view = *v, .bytes = n * size + 1};
    c.memory = test_room_on(d, c.bytes);
    if (n)
        assert_int_equal(ht_memory_write(d->memory, c.memory, (char *)v->data - (size_t)below * size, n * size, NULL),
                         HT_OK);
    c.view.data = (char *)c.memory + (size_t)below * size;
    return c;
}

static ht_status run_there(ht_device *d, ht_op_id op, const void *params, int n_in, const ht_view *in,
                           const ht_view *out, const ht_step *step, ht_error *err) {
    copied inputs[8];
    ht_view views[8];
    for (int i = 0; i < n_in; i++) {
        inputs[i] = copy_to(d, &in[i]);
        views[i] = inputs[i].view;
    }
    copied result = copy_to(d, out);
    if (n_in && out->data == in[0].data) result.view.data = views[0].data;
    ht_call call = {.params = params, .n_in = n_in, .in = views, .out = result.view, .step = step, .device = d};
    const size_t bytes = d->kernels[op].scratch ? d->kernels[op].scratch(&call) : 0;
    call.scratch = test_room_on(d, bytes);
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

ht_status test_run(ht_device *d, ht_op_id op, const void *params, int n_in, const ht_view *in, const ht_view *out,
                   const ht_step *step, ht_error *err) {
    const ht_kernel *kernel = &d->kernels[op];
    if (d->memory->ops) return run_there(d, op, params, n_in, in, out, step, err);
    ht_call call = {.params = params, .n_in = n_in, .in = in, .out = *out, .step = step, .device = d};
    size_t bytes = kernel->scratch ? kernel->scratch(&call) : 0;
    void *room = NULL;
    if (bytes > 0) {
        /* Ends where the allocation ends, as far as alignment allows, so that a sanitizer sees an overrun. */
        room = aligned_alloc(64, (bytes + 63) / 64 * 64);
        assert_non_null(room);
        memset(room, 0xff, bytes);
    }
    call.scratch = room;
    unsigned state = d->begin(d);
    ht_status status = kernel->run(&call, err);
    d->end(d, state);
    free(room);
    return status;
}

void test_run_ok(ht_device *d, ht_op_id op, const void *params, int n_in, const ht_view *in, const ht_view *out,
                 const ht_step *step) {
    ht_error err = {0};
    if (test_run(d, op, params, n_in, in, out, step, &err) != HT_OK)
        fail_msg("%s (%s): %s", test_op_name(op), d->instruction_set, err.message);
}

void test_same_bits(ht_op_id op, int n_in, const ht_view *in, const void *want) {
    ht_device *devices[TEST_MAX_DEVICES];
    const int n = test_devices(2, devices);
    const ht_dtype t = in[0].dtype;
    const size_t width = ht_dtype_bytes(t);
    char *got = malloc((size_t)in[0].shape[0] * width);
    assert_non_null(got);
    ht_view out = in[0];
    out.data = got;
    for (int d = 0; d < n; d++) {
        test_run_ok(devices[d], op, NULL, n_in, in, &out, NULL);
        for (int64_t i = 0; i < in[0].shape[0]; i++) {
            if (memcmp(got + (size_t)i * width, (const char *)want + (size_t)i * width, width) == 0) continue;
            const double y = ht_get_f64(t, got, i), w = ht_get_f64(t, want, i);
            if (!(isnan(y) && isnan(w)))
                fail_msg("%s(%a, %a) = %a with %s, not %a", test_op_name(op), ht_get_f64(t, in[0].data, i),
                         n_in > 1 ? ht_get_f64(t, in[1].data, i) : 0.0, y, devices[d]->instruction_set, w);
        }
    }
    free(got);
}

float *test_random_floats(int64_t n, float size, uint64_t *state) {
    float *x = test_room((size_t)n * sizeof *x);
    for (int64_t i = 0; i < n; i++) x[i] = size * test_random_float(state);
    return x;
}

ht_view test_view(void *data, ht_dtype dtype, int n_dims, const int64_t *shape) {
    ht_view v = {.data = data, .dtype = dtype, .n_dims = n_dims};
    int64_t stride = 1;
    for (int i = n_dims - 1; i >= 0; i--) {
        v.shape[i] = shape[i];
        v.stride[i] = stride;
        stride *= shape[i];
    }
    return v;
}

ht_view test_absent(void) { return (ht_view){.n_dims = -1}; }

const char *test_op_name(ht_op_id op) {
    static const char *const names[] = {
#define X(id, name) [HT_OP_##id] = #name,
        HT_OP_LIST(X)
#undef X
    };
    return names[op];
}
