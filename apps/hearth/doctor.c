/* hearth doctor: reports the machine, the chosen instruction set and why, GPUs, measured peaks, and missing parts. */
#include "command.h"
#include "fail.h"
#include "json.h"
#include "model_path.h"
#include "terminal.h"

#include <hearth/backend.h>
#include <hearth/measure.h>
#include <hearth/version.h>

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROUNDS = 4, MOST_ADVICE = 12, MOST_GPUS = 16 };
static const double probe_seconds = 0.05;
static const size_t least_read_bytes = (size_t)256 << 20;
static const size_t gpu_read_bytes = (size_t)4 << 30; /* far larger than a GPU's cache */

typedef struct gpu_checkup {
    ht_gpu is;
    size_t read_bytes;
    double read, compute[HT_ARITHMETICS];
    ht_error trouble; /* why the GPU cannot be used; the measurements are then incomplete or zero */
} gpu_checkup;

typedef struct checkup {
    const options *o;
    ht_machine machine;
    size_t available_bytes, read_bytes;
    ht_device *device;
    const ht_instruction_set *sets;
    int n_sets;
    double read, compute[HT_ARITHMETICS]; /* the best of the rounds, per second */
    gpu_checkup gpus[MOST_GPUS];
    int n_gpus;
    ht_error no_gpu; /* why no GPU was found */
    char *model;     /* path of the default model, or NULL */
    char advice[MOST_ADVICE][sizeof((ht_error *)NULL)->message];
    int n_advice;
} checkup;

__attribute__((format(printf, 2, 3))) static void advise(checkup *c, const char *sentence, ...) {
    if (c->n_advice == MOST_ADVICE) return;
    va_list arguments;
    va_start(arguments, sentence);
    vsnprintf(c->advice[c->n_advice], sizeof c->advice[0], sentence, arguments);
    va_end(arguments);
    make_printable(c->advice[c->n_advice++]);
}

/* ---- measurements ---- */

/* Twice the L3 cache, at least 256 MB, but at most a quarter of the available memory. */
static size_t bytes_to_read(const checkup *c) {
    size_t bytes = 2 * c->machine.l3_bytes, limit = c->available_bytes / 4;
    if (bytes < least_read_bytes) bytes = least_read_bytes;
    return limit && limit < bytes ? limit : bytes;
}

/* Best rates of several rounds; after a failure, those of the completed rounds. */
static ht_status measure_device(const checkup *c, ht_device *d, size_t bytes, double *read, double *compute,
                                ht_error *err) {
    ht_meter *meter;
    progress show;
    progress_begin(&show, "measuring", c->o->quiet);
    ht_status st = ht_meter_new(d, bytes, &meter, err);
    for (int i = 0; i < ROUNDS && !st && !interrupted(); i++) {
        *read = fmax(*read, ht_meter_read(meter, probe_seconds));
        for (int a = 0; a < HT_ARITHMETICS; a++)
            compute[a] = fmax(compute[a], ht_meter_compute(meter, (ht_arithmetic)a, probe_seconds));
        progress_show((i + 1) / (double)ROUNDS, &show);
    }
    progress_end(&show);
    if (!st) ht_meter_free(meter);
    if (!st && interrupted()) st = ht_fail(err, HT_ERR_CANCELLED, "interrupted: nothing was measured to the end");
    return st;
}

static ht_status measure(checkup *c, ht_error *err) {
    c->read_bytes = bytes_to_read(c);
    return measure_device(c, c->device, c->read_bytes, &c->read, c->compute, err);
}

static void examine_gpu(const checkup *c, int index, gpu_checkup *g) {
    ht_device *d;
    ht_error *err = &g->trouble;
    ht_status st = ht_device_cuda(index, NULL, &d, err);
    if (!st && !ht_device_gpu(d, &g->is)) st = ht_fail(err, HT_ERR_INTERNAL, "its driver does not say what it is");
    g->read_bytes = g->is.memory_free_bytes / 4 < gpu_read_bytes ? g->is.memory_free_bytes / 4 : gpu_read_bytes;
    if (!st) st = measure_device(c, d, g->read_bytes, &g->read, g->compute, err);
    ht_device_free(d);
}

/* An unusable GPU becomes advice; the others are still reported. */
static ht_status examine_gpus(checkup *c, ht_error *err) {
    if (ht_device_count("cuda", &c->n_gpus, &c->no_gpu)) return HT_OK;
    if (c->n_gpus == 0) snprintf(c->no_gpu.message, sizeof c->no_gpu.message, "the CUDA driver has no GPU");
    if (c->n_gpus > MOST_GPUS) c->n_gpus = MOST_GPUS;
    for (int i = 0; i < c->n_gpus; i++) {
        gpu_checkup *g = &c->gpus[i];
        examine_gpu(c, i, g);
        if (g->trouble.status == HT_ERR_CANCELLED) {
            *err = g->trouble;
            return HT_ERR_CANCELLED;
        }
        if (g->trouble.status) advise(c, "GPU %d cannot be used: %s", i, g->trouble.message);
    }
    return HT_OK;
}

static const ht_instruction_set *find_set(const checkup *c, const char *name) {
    for (int i = 0; i < c->n_sets; i++)
        if (strcmp(c->sets[i].name, name) == 0) return &c->sets[i];
    return &c->sets[0];
}

/* Each piece of advice names a problem and its fix. */
static void look_for_troubles(checkup *c) {
    const ht_instruction_set *used = find_set(c, ht_device_instruction_set(c->device));
    for (const ht_instruction_set *s = used + 1; s < c->sets + c->n_sets; s++)
        if (s->machine_has && !s->built_in)
            advise(c, "this machine has %s, but this build has no kernels for it: build with a newer compiler",
                   s->name);
    if (!used->best) advise(c, "%s was asked for with --cpu; without it the best set is used", used->name);
    if (used->best && used == c->sets)
        advise(c, "no vector unit can be used, so everything runs in plain C, slowly: x86-64 with AVX2 or ARM with dot "
                  "products is needed");
    if (ht_device_threads(c->device) > c->machine.cores)
        advise(c, "%d threads share %d cores and wait for each other: use --threads %d", ht_device_threads(c->device),
               c->machine.cores, c->machine.cores);
    if (strcmp(c->machine.huge_pages, "never") == 0)
        advise(c, "huge pages are off, which slows reading weights down: echo madvise, as root, to "
                  "/sys/kernel/mm/transparent_hugepage/enabled");
    if (c->available_bytes && c->available_bytes < (size_t)1 << 30)
        advise(c, "less than 1 GB of memory is available: close other programs, or choose a small model");
}

static ht_status examine(checkup *c, ht_error *err) {
    ht_machine_read(&c->machine);
    (void)ht_memory_available(&c->available_bytes);
    c->sets = ht_instruction_sets(&c->n_sets);
    ht_device_options how;
    ht_device_options_init(&how, sizeof how);
    how.n_threads = (int)c->o->threads;
    how.instruction_set = c->o->cpu;
    ht_status st = ht_device_open("cpu", &how, &c->device, err);
    if (st) return st;
    look_for_troubles(c);
    ht_error missing = {0};
    if (model_path("default", &c->model, &missing)) advise(c, "%s", missing.message);
    st = measure(c, err);
    return st ? st : examine_gpus(c, err);
}

/* ---- the report ---- */

static void set_rates(ht_json *to, double read, const double compute[HT_ARITHMETICS]) {
    ht_json_object_set_new(to, "read_bytes_per_second", read > 0 ? ht_json_real(read) : ht_json_null());
    for (int a = 0; a < HT_ARITHMETICS; a++) {
        char name[40];
        snprintf(name, sizeof name, "%s_ops_per_second", ht_arithmetic_name((ht_arithmetic)a));
        ht_json_object_set_new(to, name, compute[a] > 0 ? ht_json_real(compute[a]) : ht_json_null());
    }
}

static ht_json *gpus_json(const checkup *c) {
    ht_json *all = ht_json_new_array();
    for (int i = 0; i < c->n_gpus; i++) {
        const gpu_checkup *g = &c->gpus[i];
        char name[16], capability[16], cuda[16];
        snprintf(name, sizeof name, "cuda:%d", i);
        snprintf(capability, sizeof capability, "%d.%d", g->is.major, g->is.minor);
        snprintf(cuda, sizeof cuda, "%d.%d", g->is.cuda_major, g->is.cuda_minor);
        ht_json *one = ht_json_pack(
            "{ss so ss so ss si sI sI sI so}", "device", name, "name", ht_json_string(g->is.name), "compute_capability",
            capability, "driver", ht_json_string(g->is.driver), "cuda", cuda, "multiprocessors", g->is.multiprocessors,
            "memory_bytes", (int64_t)g->is.memory_bytes, "memory_free_bytes", (int64_t)g->is.memory_free_bytes,
            "read_buffer_bytes", (int64_t)g->read_bytes, "trouble",
            g->trouble.status ? ht_json_string(g->trouble.message) : ht_json_null());
        set_rates(one, g->read, g->compute);
        ht_json_array_append_new(all, one);
    }
    return all;
}

static void print_json(const checkup *c) {
    const ht_machine *m = &c->machine;
    ht_json *sets = ht_json_new_array(), *advice = ht_json_new_array(), *backends = ht_json_new_array();
    for (int i = 0; ht_backend_at(i); i++)
        ht_json_array_append_new(
            backends, ht_json_pack("{ss ss}", "name", ht_backend_at(i)->name, "summary", ht_backend_at(i)->summary));
    for (int i = 0; i < c->n_sets; i++)
        ht_json_array_append_new(sets, ht_json_pack("{ss ss sb sb}", "name", c->sets[i].name, "needs", c->sets[i].needs,
                                                    "built_in", (int)c->sets[i].built_in, "machine_has",
                                                    (int)c->sets[i].machine_has));
    for (int i = 0; i < c->n_advice; i++) ht_json_array_append_new(advice, ht_json_string(c->advice[i]));
    ht_json *value =
        ht_json_pack("{ss so si si sI sI sI sI ss ss so si sI so so}", "version", ht_version(), "processor",
                     ht_json_string(m->processor), "cores", m->cores, "cores_online", m->online, "memory_bytes",
                     (int64_t)m->memory_bytes, "memory_available_bytes", (int64_t)c->available_bytes, "l2_bytes",
                     (int64_t)m->l2_bytes, "l3_bytes", (int64_t)m->l3_bytes, "huge_pages", m->huge_pages,
                     "instruction_set", ht_device_instruction_set(c->device), "instruction_sets", sets, "threads",
                     ht_device_threads(c->device), "read_buffer_bytes", (int64_t)c->read_bytes, "default_model",
                     c->model ? ht_json_string(c->model) : ht_json_null(), "advice", advice);
    ht_json_object_set_new(value, "backends", backends);
    set_rates(value, c->read, c->compute);
    ht_json_object_set_new(value, "gpus", gpus_json(c));
    ht_json_object_set_new(value, "no_gpu", c->n_gpus ? ht_json_null() : ht_json_string(c->no_gpu.message));
    json_output(value);
}

__attribute__((format(printf, 2, 3))) static void say(const char *what, const char *sentence, ...) {
    char text[2048];
    va_list arguments;
    va_start(arguments, sentence);
    int used = snprintf(text, sizeof text, "%-18s ", what);
    vsnprintf(text + used, sizeof text - (size_t)used - 1, sentence, arguments);
    va_end(arguments);
    make_printable(text);
    strcat(text, "\n");
    output_write(text, strlen(text));
}

static void print_sets(const checkup *c) {
    const char *used = ht_device_instruction_set(c->device);
    for (int i = c->n_sets - 1; i >= 0; i--) {
        const ht_instruction_set *s = &c->sets[i];
        const char *why = strcmp(s->name, used) == 0 ? (s->best ? "used: the best this machine has" : "used: asked for")
                          : s->built_in && s->machine_has ? "can be used"
                          : s->machine_has                ? "not in this build"
                          : s->built_in                   ? "the machine lacks it"
                                                          : "neither in this build nor on this machine";
        say(i == c->n_sets - 1 ? "instruction sets" : "", "%-12s %s; needs %s", s->name, why, s->needs);
    }
}

static void print_rates(const double compute[HT_ARITHMETICS]) {
    for (int i = 0; i < HT_ARITHMETICS; i++) {
        char what[32];
        const bool large = compute[i] >= 1e13;
        snprintf(what, sizeof what, "%s peak", ht_arithmetic_name((ht_arithmetic)i));
        if (compute[i] > 0)
            say(what, large ? "%.0f T operations/s" : "%.0f G operations/s", compute[i] / (large ? 1e12 : 1e9));
    }
}

static void print_gpus(const checkup *c) {
    char a[24], b[24], name[16];
    if (!c->n_gpus) say("GPU", "none: %s", c->no_gpu.message);
    for (int i = 0; i < c->n_gpus; i++) {
        const gpu_checkup *g = &c->gpus[i];
        snprintf(name, sizeof name, "GPU cuda:%d", i);
        if (!g->is.memory_bytes) {
            say(name, "cannot be used: %s", g->trouble.message);
            continue;
        }
        say(name, "%s, compute capability %d.%d, %d multiprocessors", g->is.name, g->is.major, g->is.minor,
            g->is.multiprocessors);
        say("driver", "%s%sCUDA %d.%d", g->is.driver, *g->is.driver ? ", " : "", g->is.cuda_major, g->is.cuda_minor);
        say("memory", "%s, of which %s are free", bytes_text((double)g->is.memory_bytes, a),
            bytes_text((double)g->is.memory_free_bytes, b));
        if (g->read > 0)
            say("reading memory", "%.1f GB/s (%s, front to back)", g->read / 1e9, bytes_text((double)g->read_bytes, a));
        print_rates(g->compute);
    }
}

static void print_text(const checkup *c) {
    const ht_machine *m = &c->machine;
    char a[24], b[24];
    say("hearth", "%s", ht_version());
    say("processor", "%s", *m->processor ? m->processor : "unknown");
    say("cores", "%d of %d may be used", m->cores, m->online);
    if (m->l2_bytes || m->l3_bytes) say("caches", "L2 %zu KiB, L3 %zu MiB", m->l2_bytes >> 10, m->l3_bytes >> 20);
    say("memory", "%s, of which %s are available", bytes_text((double)m->memory_bytes, a),
        bytes_text((double)c->available_bytes, b));
    say("huge pages", "%s%s", *m->huge_pages ? m->huge_pages : "unknown",
        strcmp(m->huge_pages, "never") == 0 || !*m->huge_pages ? "" : ": asked for where weights lie");
    print_sets(c);
    say("threads", "%d", ht_device_threads(c->device));
    say("reading memory", "%.1f GB/s (%s, front to back)", c->read / 1e9, bytes_text((double)c->read_bytes, a));
    print_rates(c->compute);
    print_gpus(c);
    for (int i = 0; ht_backend_at(i); i++)
        say(i ? "" : "backends", "%-12s %s", ht_backend_at(i)->name, ht_backend_at(i)->summary);
    say("default model", "%s", c->model ? c->model : "not there");
    for (int i = 0; i < c->n_advice; i++) say(i ? "" : "what to do", "%s", c->advice[i]);
    if (!c->n_advice) say("what to do", "nothing: all is well");
}

int doctor_command(const options *o) {
    ht_error err = {0};
    checkup c = {.o = o};
    interrupt_watch();
    ht_status st = examine(&c, &err);
    if (!st) (o->json ? print_json : print_text)(&c);
    ht_device_free(c.device);
    free(c.model);
    return output_finish(st ? report(&err) : EXIT_OK);
}
