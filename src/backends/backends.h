/* Backends that are part of the library. */
#ifndef HT_BACKENDS_BACKENDS_H
#define HT_BACKENDS_BACKENDS_H

#include <hearth/backend.h>

extern const ht_backend ht_native_backend;
extern const ht_backend ht_mlx_lm_backend; /* not there with HEARTH_MLX_LM=OFF */

#endif
