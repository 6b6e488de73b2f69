/* Bandwidth and arithmetic measurement (hearth/measure.h). */
#include "base/error.h"
#include "cpu/isa.h"
#include "device/device.h"

#include <hearth/measure.h>

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

struct ht_meter {
    ht_device *device;
    void *memory;
    size_t bytes;
};

const char *ht_arithmetic_name(ht_arithmetic a) {
    static const char *const names[HT_ARITHMETICS] = {[HT_ARITHMETIC_INT8] = "int8",
                                                      [HT_ARITHMETIC_INT16] = "int16",
                                                      [HT_ARITHMETIC_F32] = "f32",
                                                      [HT_ARITHMETIC_F16] = "f16"};
    return names[a];
}

ht_status ht_meter_new(ht_device *d, size_t bytes, ht_meter **out, ht_error *err) {
    *out = NULL;
    if (!d->measure) return ht_fail(err, HT_ERR_UNSUPPORTED, "the device \"%s\" cannot measure itself", d->name);
    ht_meter *m = calloc(1, sizeof *m);
    if (!m) return ht_fail_memory(err, sizeof *m, "a meter");
    ht_status status = bytes ? ht_memory_alloc(d->memory, bytes, "the memory of a meter", &m->memory, err) : HT_OK;
    if (status) {
        free(m);
        return status;
    }
    if (bytes)
        status =
            ht_memory_fill(d->memory, m->memory, 1, bytes, err); /* pages never written would share one zero page */
    if (status) {
        ht_memory_free(d->memory, m->memory, bytes);
        free(m);
        return status;
    }
    m->bytes = bytes;
    m->device = ht_device_retain(d);
    *out = m;
    return HT_OK;
}

bool ht_device_gpu(ht_device *d, ht_gpu *out) {
    *out = (ht_gpu){0};
    return d->measure && d->measure->gpu && d->measure->gpu(d, out);
}

void ht_meter_free(ht_meter *m) {
    if (!m) return;
    ht_memory_free(m->device->memory, m->memory, m->bytes);
    ht_device_free(m->device);
    free(m);
}

double ht_meter_read(ht_meter *m, double seconds) {
    return m->bytes ? m->device->measure->read(m->device, m->memory, m->bytes, seconds) : 0;
}

double ht_meter_compute(ht_meter *m, ht_arithmetic a, double seconds) {
    return m->device->measure->compute(m->device, a, seconds);
}

static ht_instruction_set sets[HT_CPU_ISA_COUNT];

static void find_sets(void) {
    for (int i = 0; i < HT_CPU_ISA_COUNT; i++) {
        ht_cpu_isa isa = (ht_cpu_isa)i;
        sets[i] = (ht_instruction_set){.name = ht_cpu_isa_name(isa),
                                       .needs = ht_cpu_isa_needs(isa),
                                       .built_in = ht_cpu_isa_built_in(isa),
                                       .machine_has = ht_cpu_isa_on_machine(isa),
                                       .best = isa == ht_cpu_isa_best()};
    }
}

const ht_instruction_set *ht_instruction_sets(int *n) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, find_sets);
    *n = HT_CPU_ISA_COUNT;
    return sets;
}
