#include "device.h"

#include <hearth/measure.h>
#include <hearth/model.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static ht_device_options options_of(const options *o) {
    ht_device_options how;
    ht_device_options_init(&how, sizeof how);
    how.n_threads = (int)o->threads;
    how.instruction_set = o->cpu;
    return how;
}

ht_status device_open_cpu(const options *o, ht_device **out, ht_error *err) {
    const ht_device_options how = options_of(o);
    return ht_device_open("cpu", &how, out, err);
}

/* ---- whether models fit ---- */

/* Beside weights, keys and values: activations, logits, and the kernels themselves. */
static const int64_t margin_bytes = (int64_t)1 << 30;

/* Of a model on a device that has all its weights in memory; -1 when the files do not tell. */
static int64_t bytes_of(const options *o, const device_load *m) {
    ht_model_info *info;
    ht_error ignored = {0};
    if (ht_model_info_read(m->path, &info, &ignored)) return -1;
    int64_t context = o->context ? o->context : info->context;
    if (m->positions && m->positions < context) context = m->positions;
    const int64_t bytes = info->runs ? info->file_bytes + ht_model_info_kv_bytes(info, m->kv, context) : -1;
    ht_model_info_free(info);
    return bytes;
}

/* Opens the first GPU that has room for so many bytes; *out is NULL when there is none. */
static void open_gpu(const options *o, int64_t bytes, ht_device **out) {
    const ht_device_options how = options_of(o);
    int n;
    ht_error ignored = {0};
    *out = NULL;
    if (ht_device_count("cuda", &n, &ignored)) return;
    for (int i = 0; i < n; i++) {
        ht_gpu gpu;
        if (ht_device_cuda(i, &how, out, &ignored)) continue;
        if (ht_device_gpu(*out, &gpu) && (size_t)bytes <= gpu.memory_free_bytes) return;
        ht_device_free(*out);
        *out = NULL;
    }
}

/* ---- the choice ---- */

ht_status device_open(const options *o, const device_load *models, int n, ht_device **out, bool *by_default,
                      ht_error *err) {
    const char *environment = getenv("HEARTH_DEVICE");
    const char *name = o->device ? o->device : environment && *environment ? environment : NULL;
    const ht_device_options how = options_of(o);
    *by_default = false;
    *out = NULL;
    if (name) return ht_device_open(name, &how, out, err);
    int64_t bytes = margin_bytes;
    for (int i = 0; i < n && bytes >= 0; i++) {
        const int64_t more = bytes_of(o, &models[i]);
        bytes = more < 0 ? -1 : bytes + more;
    }
    if (bytes >= 0 && !o->cpu && !o->packed_cache) open_gpu(o, bytes, out);
    *by_default = *out != NULL;
    return *out ? HT_OK : device_open_cpu(o, out, err);
}

const char *device_note(const ht_device *d, char note[DEVICE_NOTE]) {
    *note = '\0';
    if (d && strcmp(ht_device_name(d), "cpu") != 0) snprintf(note, DEVICE_NOTE, " · %s", ht_device_instruction_set(d));
    return note;
}
