/* Option structs of the public interface: fills in defaults and reads the caller's values.
 *
 * Every such struct begins with `size_t size`, its size when the caller was compiled. A newer library uses the
 * defaults of fields that the caller lacks. An older library rejects fields that it does not know, unless they are
 * zero. */
#ifndef HT_BASE_OPTIONS_H
#define HT_BASE_OPTIONS_H

#include <hearth/status.h>

#include <stddef.h>

/* Fills the caller's struct of `size` bytes with the `known` bytes of defaults, then zeros. */
void ht_options_init(void *options, size_t size, const void *defaults, size_t known);

/* Stores the options in effect, `known` bytes: `given` overrides `defaults` unless it is NULL. HT_ERR_ARGUMENT, naming
 * `type`, for a struct that no _init function made; HT_ERR_UNSUPPORTED for an unknown field that is set. */
ht_status ht_options_read(void *out, const void *given, const void *defaults, size_t known, const char *type,
                          ht_error *err);

#endif
