/* Measuring a GPU: its identity, read bandwidth and arithmetic throughput (cuda/measure.cu). */
#include "cuda/measure.h"

#include "cuda/cuda.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* One kernel, launched `times` times with the same arguments. */
typedef struct work {
    ht_cuda_kernel_id kernel;
    ht_cuda_shape shape;
    const void *arguments;
    double amount; /* of bytes or operations in a launch */
    int times;
} work;

/* The seconds until all launches are done; negative after a failure. */
static double seconds_of(ht_cuda_device *d, const work *w) {
    const double start = now();
    ht_status status = HT_OK;
    for (int i = 0; i < w->times && !status; i++) status = ht_cuda_launch(d, w->kernel, &w->shape, w->arguments, NULL);
    if (!status) status = ht_cuda_note(d, d->driver->stream_wait(d->stream), NULL, "measuring the GPU");
    return status ? -1 : now() - start;
}

/* Work per second, measured over about `seconds`; 0 after a failure. Launches are queued in rounds that are long
 * compared with a stream wait. */
static double rate_of(ht_cuda_device *d, work *w, double seconds) {
    const double round = seconds / 4 < 5e-3 ? seconds / 4 : 5e-3;
    double took = 0, passed = 0, done = 0;
    for (w->times = 1; took >= 0 && took < round && w->times < 1 << 16; w->times *= 2) took = seconds_of(d, w);
    while (took >= 0 && passed < seconds) {
        took = seconds_of(d, w);
        passed += took;
        done += w->amount * w->times;
    }
    return took < 0 ? 0 : done / passed;
}

static double measure_read(ht_device *device, const void *memory, size_t bytes, double seconds) {
    enum { THREADS = 512, BLOCKS = 4 }; /* of a multiprocessor */
    ht_cuda_device *d = ht_cuda_of(device);
    const ht_cuda_measure_read_arguments a = {.from = memory, .words = (int64_t)(bytes / 16), .out = (void *)d->fault};
    work w = {.kernel = HT_CUDA_ID_ht_cuda_measure_read,
              .shape = {.grid = {(unsigned)(d->multiprocessors * BLOCKS)}, .block = {THREADS}},
              .arguments = &a,
              .amount = (double)bytes};
    const unsigned state = device->begin(device);
    const double rate = rate_of(d, &w, seconds);
    device->end(device, state);
    return rate;
}

/* Iterations for launches of about 100 us, which are long compared with the gaps between them. */
static int32_t iterations_for(ht_cuda_device *d, work *w, ht_cuda_measure_arguments *a) {
    double took = 0;
    w->times = 1;
    (void)seconds_of(d, w); /* loads the kernel */
    for (a->iterations = 1; took >= 0 && took < 1e-4 && a->iterations < 1 << 20; a->iterations *= 2)
        took = seconds_of(d, w);
    return a->iterations;
}

static double measure_compute(ht_device *device, ht_arithmetic arithmetic, double seconds) {
    enum { WARPS_OF_GROUP = 4, BLOCKS = 8 };
    ht_cuda_device *d = ht_cuda_of(device);
    const bool f16 = arithmetic == HT_ARITHMETIC_F16;
    if (!f16 && arithmetic != HT_ARITHMETIC_F32) return 0;
    /* With wgmma one block keeps the tensor cores busy. */
    const int blocks = f16 && d->major == 9 ? d->multiprocessors : d->multiprocessors * BLOCKS;
    const double products = f16 ? (double)HT_CUDA_MEASURE_F16 / (32 * WARPS_OF_GROUP) : HT_CUDA_MEASURE_F32;
    ht_cuda_measure_arguments a = {.iterations = 1, .out = (void *)d->fault};
    work w = {.kernel = f16 ? HT_CUDA_ID_ht_cuda_measure_f16 : HT_CUDA_ID_ht_cuda_measure_f32,
              .shape = {.grid = {(unsigned)blocks},
                        .block = {HT_CUDA_MEASURE_THREADS},
                        .shared_bytes = f16 && d->major == 9 ? HT_CUDA_MEASURE_SHARED : 0},
              .arguments = &a};
    const unsigned state = device->begin(device);
    w.amount = 2 * products * HT_CUDA_MEASURE_THREADS * (double)blocks * iterations_for(d, &w, &a);
    const double rate = rate_of(d, &w, seconds);
    device->end(device, state);
    return rate;
}

static ht_arithmetic arithmetic_of(const ht_device *d, ht_weight_type type, ht_precision precision) {
    (void)d;
    return precision == HT_PRECISION_REFERENCE || type == HT_W_F32 ? HT_ARITHMETIC_F32 : HT_ARITHMETIC_F16;
}

/* The version of the kernel's part of the driver: the first word that begins with a digit in "NVRM version: ... 550.54.15 ...". */
static void read_version(char *version, size_t size) {
    char line[256] = "", *rest = line;
    FILE *f = fopen("/proc/driver/nvidia/version", "re");
    if (!f) return;
    if (!fgets(line, sizeof line, f)) *line = '\0';
    fclose(f);
    for (char *word = strtok_r(line, " \t\n", &rest); word; word = strtok_r(NULL, " \t\n", &rest))
        if (*word >= '0' && *word <= '9' && strchr(word, '.')) {
            snprintf(version, size, "%s", word);
            return;
        }
}

static bool describe(ht_device *device, ht_gpu *out) {
    const ht_cuda_device *d = ht_cuda_of(device);
    *out = (ht_gpu){.major = d->major, .minor = d->minor, .multiprocessors = d->multiprocessors};
    snprintf(out->name, sizeof out->name, "%s", d->name);
    read_version(out->driver, sizeof out->driver);
    int version = 0;
    ht_cuda_enter(d);
    CUresult result = d->driver->version(&version);
    if (!result) result = d->driver->memory_info(&out->memory_free_bytes, &out->memory_bytes);
    ht_cuda_leave(d);
    out->cuda_major = version / 1000;
    out->cuda_minor = version % 1000 / 10;
    return !result;
}

const ht_measure_ops ht_cuda_measure = {measure_read, measure_compute, arithmetic_of, describe};
