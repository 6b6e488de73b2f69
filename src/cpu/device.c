/* CPU device construction: instruction set, kernel table, thread pool. */
#include "cpu/device.h"

#include "base/error.h"
#include "cpu/call.h"
#include "cpu/fused_stage.h"
#include "cpu/kv.h"
#include "cpu/matrix.h"
#include "cpu/measure.h"

#include <stdlib.h>

#define FILL(name, id, shared)                                                                                         \
    case id:                                                                                                           \
        ht_vector_kernels_##shared(d->base.kernels);                                                                   \
        ht_vector_rows_##shared(d->rows);                                                                              \
        break;
static void fill_kernels(ht_cpu_device *d) {
    ht_reference_kernels(d->base.kernels);
    switch (d->isa) {
        HT_EACH_ISA(FILL)
    default: break;
    }
}

#define ROW_OPS(name, id, shared)                                                                                      \
    case id: return &ht_vector_row_##shared;
static const ht_row_ops *row_ops(ht_cpu_isa isa) {
    switch (isa) {
        HT_EACH_ISA(ROW_OPS)
    default: return &ht_vector_row_reference;
    }
}

#define ROUND_WEIGHTS(name, id, shared)                                                                                \
    case id: return ht_round_weights_##shared;
static ht_round_weights_fn *round_weights(ht_cpu_isa isa) {
    switch (isa) {
        HT_EACH_ISA(ROUND_WEIGHTS)
    default: return ht_round_weights_reference;
    }
}

#define FIND_ELEMENTWISE(name, id, shared)                                                                             \
    case id: return ht_find_elementwise_##shared;
static ht_find_elementwise_fn *find_elementwise(ht_cpu_isa isa) {
    switch (isa) {
        HT_EACH_ISA(FIND_ELEMENTWISE)
    default: return NULL;
    }
}

static bool takes_step(const ht_device *d, ht_op_id op, ht_dtype from, ht_dtype to) {
    return ((const ht_cpu_device *)d)->find_elementwise(op, from, to) != NULL;
}

static bool prepare_program(const ht_device *d, ht_program *p) {
    return ht_elementwise_prepare(p, ((const ht_cpu_device *)d)->find_elementwise);
}

static const ht_program_ops programs = {takes_step, prepare_program, ht_elementwise_run_program};

static unsigned begin(ht_device *d) {
    ht_pool_lease(ht_device_pool(d));
    return ht_flush_denormals();
}

static void end(ht_device *d, unsigned denormals) {
    ht_restore_denormals(denormals);
    ht_pool_release(ht_device_pool(d));
}

static void yield(ht_device *d) { ht_pool_yield(ht_device_pool(d)); }

static void run_on_host(ht_device *d, int64_t n, int64_t grain, ht_block_fn *fn, void *arg) {
    ht_pool *pool = ht_device_pool(d);
    ht_pool_lease(pool);
    ht_pool_run(pool, n, grain, fn, arg);
    ht_pool_release(pool);
}

static const ht_matrix_ops *matrix_ops(const ht_device *d, ht_weight_type type, ht_precision precision) {
    return ht_cpu_matrix_ops(ht_cpu_device_isa(d), type, precision);
}

static const ht_matrix_ops *head_ops(const ht_device *d, ht_weight_type type, ht_precision precision, int64_t n_rows,
                                     int64_t k) {
    return ht_cpu_head_ops(ht_cpu_device_isa(d), type, precision, n_rows, k);
}

ht_status ht_cpu_device_new(int n_threads, const char *isa, ht_device **out, ht_error *err) {
    *out = NULL;
    ht_cpu_isa chosen;
    ht_status status = ht_cpu_isa_find(isa, &chosen, err);
    if (status != HT_OK) return status;
    ht_cpu_device *d = calloc(1, sizeof *d);
    if (!d) return ht_fail_memory(err, sizeof *d, "the CPU device");
    d->isa = chosen;
    d->base = (ht_device){.name = "cpu",
                          .instruction_set = ht_cpu_isa_name(chosen),
                          .memory = ht_memory_of_host(),
                          .begin = begin,
                          .end = end,
                          .yield = yield,
                          .stages = &ht_cpu_stages,
                          .step_rows = HT_LEAST_STEP_ROWS,
                          .matrix_ops = matrix_ops,
                          .head_ops = head_ops,
                          .kv = &ht_cpu_kv,
                          .run_on_host = run_on_host,
                          .row_ops = row_ops(chosen),
                          .round_weights = round_weights(chosen),
                          .measure = &ht_cpu_measure,
                          .destroy = ht_cpu_device_free,
                          .refs = 1};
    d->find_elementwise = find_elementwise(chosen);
    if (d->find_elementwise) d->base.programs = &programs;
    pthread_mutex_init(&d->base.run_lock, NULL);
    fill_kernels(d);
    status = ht_pool_new(n_threads, &d->pool, err);
    if (status != HT_OK) {
        ht_cpu_device_free(&d->base);
        return status;
    }
    d->base.n_threads = ht_pool_threads(d->pool);
    *out = &d->base;
    return HT_OK;
}

void ht_cpu_device_free(ht_device *device) {
    if (!device) return;
    ht_pool_free(ht_device_pool(device));
    pthread_mutex_destroy(&device->run_lock);
    free((ht_cpu_device *)device);
}
