/* Choice of the device that a command computes on. */
#ifndef HEARTH_APP_DEVICE_H
#define HEARTH_APP_DEVICE_H

#include "options.h"

/* A model that is to be loaded there. */
typedef struct device_load {
    const char *path;
    ht_dtype kv;
    int64_t positions; /* of the KV cache; 0: of the whole context */
} device_load;

/* Opens the device of --device or, without it, of HEARTH_DEVICE in the environment. When neither says one: the first GPU that has room
 * for the models, or the CPU, which also has what a GPU lacks: --cpu and --packed-cache. *by_default: it is a GPU that nobody asked
 * for. */
ht_status device_open(const options *o, const device_load *models, int n, ht_device **out, bool *by_default,
                      ht_error *err);
/* The CPU, as --threads and --cpu say. */
ht_status device_open_cpu(const options *o, ht_device **out, ht_error *err);

enum { DEVICE_NOTE = 160 };
/* " · NAME" of a GPU, behind what a command says of its speed; "" of the CPU. */
const char *device_note(const ht_device *d, char note[DEVICE_NOTE]);

#endif
