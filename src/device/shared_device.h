/* Devices in shared objects, opened at run time: a build without one, and a machine without its requirements, work as
 * before.
 *
 * The object comes from the same build as the library, whose structs it fills. It has copies of `base` and `device`;
 * host threads and memory come from the CPU device that it receives. */
#ifndef HT_DEVICE_SHARED_DEVICE_H
#define HT_DEVICE_SHARED_DEVICE_H

#include "device/device.h"

/* Arguments of the object's ht_shared_device_open. */
typedef struct ht_shared_device {
    const char *version; /* of the build, ht_version() */
    size_t sizes[3];     /* of ht_device, ht_memory and ht_call: other builds of a version may have others */
    int n_ops;
    int index;       /* of several, from 0 */
    ht_device *host; /* owned by the device, unless opening it fails */
} ht_shared_device;

/* In the library: opens device `index` of libhearth_NAME.so. Searches the directory of the library or program that
 * contains this function, its ../lib, then the system's path. HT_ERR_UNSUPPORTED if not found. Always takes ownership
 * of `host`. */
ht_status ht_shared_device_load(const char *name, int index, ht_device *host, ht_device **out, ht_error *err);

/* In the library: the number of devices of libhearth_NAME.so, 0 without it; *err then has the reason. */
ht_status ht_shared_device_number(const char *name, int *n, ht_error *err);

/* In the object: HT_ERR_UNSUPPORTED unless it is of the same build. */
ht_status ht_shared_device_check(const ht_shared_device *how, ht_error *err);

/* The object's two visible functions. */
#define HT_SHARED_DEVICE_OPEN "ht_shared_device_open"
typedef ht_status ht_shared_device_open_fn(const ht_shared_device *how, ht_device **out, ht_error *err);
HT_API ht_shared_device_open_fn ht_shared_device_open;
/* Number of devices, 0 after a failure; opens none. */
#define HT_SHARED_DEVICE_COUNT "ht_shared_device_count"
typedef ht_status ht_shared_device_count_fn(int *n, ht_error *err);
HT_API ht_shared_device_count_fn ht_shared_device_count;

#endif
