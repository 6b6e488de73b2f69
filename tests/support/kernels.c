#include "support/kernels.h"

#include "cpu/cpu.h"
#include "cpu/isa.h"
#include "support/test.h"

#include <stdlib.h>
#include <string.h>

int test_devices(int threads, ht_device *out[TEST_MAX_DEVICES]) {
    int n = 0;
    for (int i = 0; i < HT_CPU_ISA_COUNT; i++) {
        if (!ht_cpu_isa_available((ht_cpu_isa)i)) continue;
        ht_error err = {0};
        if (ht_cpu_device_new(threads, ht_cpu_isa_name((ht_cpu_isa)i), &out[n], &err) != HT_OK)
            fail_msg("%s", err.message);
        n++;
    }
    return n;
}

void test_devices_free(ht_device *devices[TEST_MAX_DEVICES], int n) {
    for (int i = 0; i < n; i++) ht_cpu_device_free(devices[i]);
}

ht_status test_run(ht_device *d, ht_op_id op, const void *params, int n_in, const ht_view *in, const ht_view *out,
                   const ht_step *step, ht_error *err) {
    const ht_kernel *kernel = &d->kernels[op];
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
