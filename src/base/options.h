/* Option structs of the public interface: defaults for callers, and what callers changed of them.
 *
 * Every such struct begins with `size_t size`, the length that it had where the caller was compiled. A library with more
 * fields takes the defaults of those; one with fewer refuses a caller who has set one of the others. */
#ifndef HT_BASE_OPTIONS_H
#define HT_BASE_OPTIONS_H

#include <hearth/status.h>

#include <stddef.h>

/* Fills the caller's struct of `size` bytes with defaults, of which there are `known` bytes, and zeros behind them. */
void ht_options_init(void *options, size_t size, const void *defaults, size_t known);

/* The options in effect, `known` bytes of them: `defaults`, with `given` over them unless it is NULL. HT_ERR_ARGUMENT, with
 * the type's name, for a struct that no _init function made; HT_ERR_UNSUPPORTED for a field behind those that are known. */
ht_status ht_options_read(void *out, const void *given, const void *defaults, size_t known, const char *type,
                          ht_error *err);

#endif
