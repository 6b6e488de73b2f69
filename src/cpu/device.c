/* CPU device construction: instruction set, kernel table, thread pool. */
#include "cpu/device.h"

#include "base/error.h"
#include "cpu/fused_stage.h"
#include "cpu/matrix.h"
#include "cpu/measure.h"

#include <stdlib.h>

#define FILL(name, id, shared)                                                                                         \
    case id: ht_vector_kernels_##shared(kernels); break;
static void fill_kernels(ht_cpu_isa isa, ht_kernel kernels[HT_OP_COUNT]) {
    ht_reference_kernels(kernels);
    switch (isa) {
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
    d->base.name = "cpu";
    d->base.instruction_set = ht_cpu_isa_name(chosen);
    d->base.matrix_ops = matrix_ops;
    d->base.head_ops = head_ops;
    d->base.row_ops = row_ops(chosen);
    d->base.measure = &ht_cpu_measure;
    d->base.stage_bytes = ht_cpu_stage_bytes;
    d->base.layout_stage = ht_cpu_layout_stage;
    d->base.run_stage = ht_cpu_run_stage;
    d->find_elementwise = find_elementwise(chosen);
    if (d->find_elementwise) {
        d->base.takes_step = takes_step;
        d->base.prepare_program = prepare_program;
        d->base.run_program = ht_elementwise_run_program;
    }
    d->base.destroy = ht_cpu_device_free;
    atomic_init(&d->base.refs, 1);
    pthread_mutex_init(&d->base.run_lock, NULL);
    fill_kernels(chosen, d->base.kernels);
    status = ht_pool_new(n_threads, &d->base.pool, err);
    if (status != HT_OK) {
        ht_cpu_device_free(&d->base);
        return status;
    }
    *out = &d->base;
    return HT_OK;
}

void ht_cpu_device_free(ht_device *device) {
    if (!device) return;
    ht_pool_free(device->pool);
    pthread_mutex_destroy(&device->run_lock);
    free((ht_cpu_device *)device);
}
