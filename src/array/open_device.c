/* Opens devices by name: those that are built in, and those that register. */
#include "base/error.h"
#include "base/options.h"
#include "cpu/cpu.h"
#include "device/device.h"
#include "device/shared_device.h"

#include <hearth/array.h>

#include <stdio.h>
#include <string.h>

static const ht_device_options defaults = {.size = sizeof defaults};

void ht_device_options_init(ht_device_options *options, size_t size) {
    ht_options_init(options, size, &defaults, sizeof defaults);
}

/* ---- known devices ---- */

static ht_status open_cpu(const ht_device_options *o, int index, ht_device **out, ht_error *err) {
    if (index) return ht_fail(err, HT_ERR_UNSUPPORTED, "there is one device \"cpu\", so no \"cpu:%d\"", index);
    return ht_cpu_device_new(o->n_threads, o->instruction_set, out, err);
}

static ht_status open_cuda(const ht_device_options *o, int index, ht_device **out, ht_error *err) {
    ht_device *host;
    const ht_status status = ht_cpu_device_new(o->n_threads, o->instruction_set, &host, err);
    return status ? status : ht_shared_device_load("cuda", index, host, out, err);
}

enum { MOST_DEVICES = 16 };
static struct {
    pthread_mutex_t lock;
    int n;
    struct {
        const char *name;
        ht_device_open_fn *open;
    } device[MOST_DEVICES];
} known = {.lock = PTHREAD_MUTEX_INITIALIZER, .n = 2, .device = {{"cpu", open_cpu}, {"cuda", open_cuda}}};

static int find(const char *name, size_t n) {
    int i = 0;
    while (i < known.n && (strncmp(known.device[i].name, name, n) != 0 || known.device[i].name[n])) i++;
    return i;
}

/* The device index in "cuda:1", 0 without a colon, -1 if it is not a number. */
static int index_of(const char *colon) {
    int index = 0;
    if (*colon && !colon[1]) return -1;
    for (const char *at = colon + 1; *colon && *at; at++) {
        if (*at < '0' || *at > '9' || index > 9999) return -1;
        index = 10 * index + (*at - '0');
    }
    return index;
}

bool ht_device_register(const char *name, ht_device_open_fn *open) {
    pthread_mutex_lock(&known.lock);
    const int i = find(name, strlen(name));
    const bool fits = i < MOST_DEVICES;
    if (fits) {
        known.device[i].name = name;
        known.device[i].open = open;
        if (i == known.n) known.n++;
    }
    pthread_mutex_unlock(&known.lock);
    return fits;
}

ht_status ht_device_open(const char *name, const ht_device_options *options, ht_device **out, ht_error *err) {
    *out = NULL;
    ht_device_options o;
    ht_status status = ht_options_read(&o, options, &defaults, sizeof defaults, "ht_device_options", err);
    if (status) return status;
    char names[256] = "";
    const size_t n_name = strcspn(name, ":");
    const int index = index_of(name + n_name);
    pthread_mutex_lock(&known.lock);
    const int i = find(name, n_name);
    ht_device_open_fn *open = i < known.n && index >= 0 ? known.device[i].open : NULL;
    for (int k = 0, n = 0; !open && k < known.n && n < (int)sizeof names; k++)
        n += snprintf(names + n, sizeof names - (size_t)n, "%s%s", k ? ", " : "", known.device[k].name);
    pthread_mutex_unlock(&known.lock);
    if (open) return open(&o, index, out, err);
    return ht_fail(err, HT_ERR_UNSUPPORTED, "device \"%s\" is unknown; this build has: %s", name, names);
}

ht_status ht_device_cuda(int index, const ht_device_options *options, ht_device **out, ht_error *err) {
    char name[32];
    snprintf(name, sizeof name, "cuda:%d", index);
    return ht_device_open(name, options, out, err);
}

ht_status ht_device_count(const char *name, int *n, ht_error *err) {
    *n = 0;
    if (strcmp(name, "cuda") == 0) return ht_shared_device_number(name, n, err);
    pthread_mutex_lock(&known.lock);
    *n = find(name, strlen(name)) < known.n;
    pthread_mutex_unlock(&known.lock);
    return *n ? HT_OK : ht_fail(err, HT_ERR_UNSUPPORTED, "device \"%s\" is unknown", name);
}
